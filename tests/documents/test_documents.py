"""Every shell, Python and Node block of the documents is run as it would be pasted, and what it prints is compared with what the document shows.

In an expected output `…` stands for anything. A block runs unless `not_run.py` names it with a reason; then its syntax and flags are checked.
Links, names of files, metrics and alerts in the documents are held to what is there.
"""

import json
import os
import re
import sqlite3
import subprocess
import sys
import threading
import urllib.request
from datetime import UTC, datetime
from pathlib import Path

import commands
import markdown
import pytest
import yaml
from markdown import ROOT, RUN, Block
from not_run import NOT_RUN
from place import Place

README_BYTES_MAX = 12 * 1024
IMAGE_BYTES_MAX = 150 * 1000
COMMAND_SECONDS_MAX = 20
# The README's first block is how each demo here is started.
START = ("README.md", "conf/quickstart")
FOLDERS = ("src/", "tests/", "conf/", "bench/", ".ci/", ".github/")


def binary() -> Path:
    found = Path(os.environ.get("TOLLGATE_BIN") or ROOT / os.environ.get("CARGO_TARGET_DIR", "target") / "debug" / "tollgate").absolute()
    assert found.is_file(), f"{found} is not there: run `tests/run documents`, or `cargo build` first"
    return found


@pytest.fixture
def place(tmp_path):
    modules = Path(os.environ.get("TOLLGATE_NODE_MODULES") or ROOT / "target/node-clients/node_modules").absolute()
    opened = Place(tmp_path, binary(), sys.executable, modules)
    try:
        yield opened
    finally:
        opened.close()


def is_run(block: Block) -> bool:
    return block.language in RUN and (block.document, block.first_line) not in NOT_RUN


def compare(where: str, expected: str, output: str):
    """`…` stands for anything; columns may be wider than those shown."""

    def lines(text: str) -> str:
        return "\n".join(" ".join(line.split()) for line in text.strip().splitlines())

    pattern = ".*".join(re.escape(part) for part in lines(expected).split("…"))
    assert re.fullmatch(pattern, lines(output), re.S), f"{where}: expected\n{expected}\n\nbut it printed\n{output}"


def run(place: Place, block: Block):
    if (block.document, block.text) == START:
        output = place.greeting
    elif block.language == "console":
        for command in re.split(r"^\$ ", block.text, flags=re.M)[1:]:
            line, _, expected = command.partition("\n")
            status, output = place.run(line)
            assert status == 0, f"{block.where}: `{line}` ended with {status}:\n{output}"
            compare(f"{block.where}: `{line}`", expected, place.shown(output))
        return
    else:
        shell = block.language in ("sh", "bash")
        status, output = place.run(block.text) if shell else place.run_program(block.language, block.text)
        assert status == 0, f"{block.where}: ended with {status}:\n{output}"
    if block.expected is not None:
        compare(block.where, block.expected, place.shown(output))


def test_the_backup_of_a_large_ledger_ends_while_the_gateway_writes(tmp_path):
    """SQLite's `.backup` begins anew with each commit of another process."""
    [command] = [block.text for block in markdown.blocks("conf/README.md") if "ledger.db" in block.text and block.text.startswith("(umask")]
    folder = tmp_path / "data/demo"
    folder.mkdir(parents=True)
    ledger = sqlite3.connect(folder / "ledger.db", isolation_level=None, check_same_thread=False)
    ledger.execute("PRAGMA journal_mode = WAL")
    ledger.execute("CREATE TABLE t (a INTEGER PRIMARY KEY, b BLOB)")
    for _ in range(4):
        ledger.execute("INSERT INTO t (b) VALUES (zeroblob(100000000))")
    is_over = threading.Event()

    def write():
        while not is_over.wait(0.02):
            ledger.execute("INSERT INTO t (b) VALUES (1)")

    writer = threading.Thread(target=write)
    writer.start()
    try:
        subprocess.run(["sh", "-ec", command], cwd=tmp_path, check=True, timeout=60)
    finally:
        is_over.set()
        writer.join()
    copy = tmp_path / "copy.db"
    assert copy.stat().st_mode & 0o777 == 0o600
    assert sqlite3.connect(copy).execute("PRAGMA integrity_check").fetchall() == [("ok",)]


@pytest.mark.parametrize("document", [document for document in markdown.documents() if any(map(is_run, markdown.blocks(document)))])
def test_blocks_run_as_pasted(document, place):
    place.open_shell(exported=document != START[0])
    for block in filter(is_run, markdown.blocks(document)):
        run(place, block)


def test_a_newcomers_walk(place):
    """README.md and then conf/README.md, pasted in order into one shell beside the demo: each command on the ledger that its text says."""
    place.open_shell(exported=False)
    for document in ("README.md", "conf/README.md"):
        for block in filter(is_run, markdown.blocks(document)):
            run(place, block)
    # What was done is in the demo's ledger, to the last account and call, and no command has made another one beside it.
    assert [path.name for path in (place.root / "data").iterdir()] == ["demo"]
    status, output = place.run("tollgate account list --json; tollgate ledger audit")
    accounts, _, audit = output.partition("\n")
    assert status == 0 and {account["name"] for account in json.loads(accounts)["accounts"]} == {"demo", "acme"}, output
    assert audit.startswith("the books balance: 2 accounts"), output
    # Without the function that adds the demo's configuration, a command says that it is about another ledger.
    status, output = place.run("command tollgate account list")
    assert status == 1 and f"there is no ledger at {place.root}/data/ledger.db: " in output, output
    assert "this was about the gateway of conf/tollgate.yaml; for the demo that runs here: --conf data/demo/tollgate.yaml" in output, output


def test_queries_in_the_readmes_table_find_something(place):
    """Each GET of the table with its example's query, in the demo after a call: 200, and lists of models and calls are not empty."""
    place.open_shell(exported=True)
    post = "curl -sf $TOLLGATE_URL/llm/chat -H \"Authorization: Bearer $TOLLGATE_KEY\" -H 'Content-Type: application/json' -d "
    status, output = place.run(post + """'{"model":"simulated/chat","messages":[{"role":"user","content":"Hello"}]}'""")
    assert status == 0, output
    asked, today = 0, datetime.now(UTC)
    for path in re.findall(r"`GET (/[^` ]+)`", markdown.read("README.md").partition("### Endpoints")[2].partition("### Errors")[0]):
        if "…" in path or "{" in path or path in ("/openapi.json", "/generation"):
            continue
        # The example's days are of another month than this one.
        path = re.sub(r"from=[\d-]+&to=[\d-]+", f"from={today:%Y-%m-01}&to={today:%Y-%m-%d}", path)
        status, output = place.run(f"curl -sf 'http://127.0.0.1:8080/api/v1{path}' -H \"Authorization: Bearer $TOLLGATE_KEY\"")
        assert status == 0, f"{path}: {output}"
        answer = json.loads(output)
        for name in ("models", "data", "groups"):
            assert answer.get(name, True), f"{path}: {output}"
        asked += 1
    assert asked > 7


def test_every_block_is_known():
    unused = set(NOT_RUN)
    for document in markdown.documents():
        for block in markdown.blocks(document):
            assert block.language in RUN | markdown.READ, f"{block.where}: a block in {block.language or 'no language'} is neither run nor read"
            unused.discard((document, block.first_line))
        before = ""
        for number, line in markdown.prose(document):
            indented = line.startswith("    ") and not before.strip()
            assert not indented, f"{document}:{number}: an indented block is not run: fence it"
            before = line
    assert not unused, f"not_run.py names blocks that are not there: {unused}"


def test_blocks_that_are_not_run_could_be():
    for document in markdown.documents():
        for block in markdown.blocks(document):
            if block.language in RUN and not is_run(block):
                commands.check(block, binary())


def test_commands_in_the_text_could_be_run():
    found = 0
    for document in markdown.documents():
        for number, line in markdown.prose(document):
            for command in re.findall(r"`((?:\w+=\S+ )*(?:tollgate|cargo|tests/run|\.ci/run|conf/quickstart)(?: [^`]*)?)`", line):
                commands.check(Block(document, number, "sh", command), binary())
                found += 1
    assert found > 50


def test_configurations_are_taken(tmp_path):
    """Each YAML block is a part of tollgate.yaml or of catalogue.yaml: no key in it is unknown."""
    for document in markdown.documents():
        for block in markdown.blocks(document):
            if block.language != "yaml":
                continue
            keys, catalogue, conf = yaml.safe_load(block.text), tmp_path / "catalogue.yaml", tmp_path / "tollgate.yaml"
            own = {"data_dir": str(tmp_path / "data"), "store": f"sqlite://{tmp_path}/ledger.db", "catalogue": str(catalogue)}
            catalogue.write_text(block.text if "models" in keys else (ROOT / "conf/catalogue.yaml").read_text())
            conf.write_text(yaml.safe_dump((yaml.safe_load((ROOT / "conf/tollgate.yaml").read_text()) | own) if "models" in keys else own | keys))
            done = subprocess.run(
                [binary(), "check", "--conf", conf], capture_output=True, text=True, timeout=COMMAND_SECONDS_MAX, cwd=ROOT, check=False
            )
            assert "unknown" not in done.stdout + done.stderr, f"{block.where}:\n{done.stdout}{done.stderr}"


def test_links_lead_somewhere():
    for document in markdown.documents():
        for number, line in markdown.prose(document):
            for target in re.findall(r"\]\(([^)\s]+)\)", line):
                if re.match(r"^[a-z]+:", target):
                    continue
                path, _, anchor = target.partition("#")
                found = (ROOT / document).parent / path if path else ROOT / document
                assert found.exists(), f"{document}:{number}: {target} is not there"
                if anchor:
                    names = markdown.anchors(os.path.relpath(found, ROOT))
                    assert anchor in names, f"{document}:{number}: no heading for {target}"


def test_files_that_are_named_are_there():
    named = [
        (f"{document}:{number}", name)
        for document in markdown.documents()
        for number, line in markdown.prose(document)
        for name in re.findall(r"`([\w./-]+)`", line)
        if name.startswith(FOLDERS)
    ]
    assert len(named) > 50
    assert not (missing := [(where, name) for where, name in named if not (ROOT / name).exists()]), f"not there: {missing}"


def test_reports_of_the_bench_are_told_as_they_are():
    """The table of reports has each of them, with the head that it has: figures of one commit are not told as another's."""
    rows = {}
    for line in markdown.read("bench/README.md").partition("### Reports\n")[2].partition("\n## ")[0].splitlines():
        if found := re.match(r"\| \[[^]]+\]\((\S+)\) \| `(.+)` \| (\w+) \| (.+) \| (.+) \|$", line):
            rows[f"bench/{found[1]}"] = found.groups()[1:]
    assert rows.keys() == {name for name in markdown.files() if re.fullmatch(r"bench/figures/.*load\.md", name)}
    for name, row in rows.items():
        report = json.loads((ROOT / name).with_suffix(".json").read_text())
        provenance, machine = report["provenance"], report["machine"]
        assert row == (provenance["command"], provenance["commit"][:7], provenance["date"].removesuffix(" UTC"), machine["cpu"]), name


def test_sizes():
    assert len((ROOT / "README.md").read_bytes()) <= README_BYTES_MAX
    for image in (ROOT / ".github/images").iterdir():
        assert image.stat().st_size <= IMAGE_BYTES_MAX, f"{image.name} is too large"


def test_alerts_and_metrics_are_those_of_the_gateway(place):
    text = markdown.read("conf/README.md")
    groups = yaml.safe_load((ROOT / "conf/prometheus/alerts.yaml").read_text())["groups"]
    alerts = [rule["alert"] for group in groups for rule in group["rules"]]
    assert re.findall(r"^\| `(Tollgate\w+)` \|", text, re.M) == alerts
    with urllib.request.urlopen(f"http://{place.admin}/metrics", timeout=COMMAND_SECONDS_MAX) as answer:
        exposed = set(re.findall(r"^# HELP ((?:tollgate|gen_ai)_\w+) ", answer.read().decode(), re.M))
    table = text.partition("### Metrics")[2].partition("### Traces")[0]
    named = set(re.findall(r"`((?:tollgate|gen_ai)_\w+)`", table))
    assert exposed <= named, f"not in the table: {exposed - named}"
    # Those without a sample yet are not exposed.
    code = "".join(path.read_text() for path in (ROOT / "src/telemetry").rglob("*.rs"))
    assert all(name in code for name in named - exposed), f"not in the code: {[name for name in named - exposed if name not in code]}"


def test_words_of_the_simulator_are_all_described():
    """The table in the head of its module is the reference; a test beside it holds it to the code."""
    module = next(path for path in (ROOT / "src/simulator/mod.rs", ROOT / "src/demo/mod.rs") if path.exists())
    rows = re.findall(r"^//! \| `(simulate:\w[\w-]*)` \|", module.read_text(), re.M)
    assert len(rows) > 5
    assert re.findall(r"^\| `(simulate:\w[\w-]*)` \|", markdown.read("tests/README.md"), re.M) == rows

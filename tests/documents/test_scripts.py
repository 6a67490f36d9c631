"""What tests/README.md and `--help` say of tests/nightly and tests/run, where stand-ins for cargo and its tools build and test nothing."""

import os
import re
import subprocess
import time
import tomllib
from pathlib import Path

import pytest
from markdown import ROOT

# It says what it was asked, and does what the test wants of it.
CARGO = """#!/bin/bash
[ "$*" = "nextest --version" ] && exit $NO_NEXTEST
printf '%s\\n' "$*" >>"$ASKED"
case "$*" in *--list*) printf '%s: test\\n' $TESTS; exit 0 ;; esac
printf '%b' "$PRINTED"
if [ -n "$WRITTEN" ]; then printf '%b' "$WRITTEN" >>"$TOLLGATE_SKIPPED"; fi
"""
# Of these tests/run wants to know only that they are there.
TOOLS = ("cc", "c++", "make", "cmake", "redis-server")

# One of the tests that time something.
TIMED = "no_call_is_slower_with_a_dead_receiver"


class Scripts:
    def __init__(self, folder: Path):
        self.target, self.asked_of_cargo = folder / "target", folder / "asked"
        programs = folder / "programs"
        programs.mkdir()
        stand_ins = dict.fromkeys(TOOLS, "#!/bin/sh\n") | {"cargo": CARGO, "cargo-mutants": "#!/bin/sh\necho '[]'\n"}
        for name, text in stand_ins.items():
            (programs / name).write_text(text)
            (programs / name).chmod(0o755)
        kept = {name: value for name, value in os.environ.items() if not name.startswith("TOLLGATE_") and name != "CI"}
        self.environment = kept | {"PATH": f"{programs}:{os.environ['PATH']}", "ASKED": str(self.asked_of_cargo), "NO_NEXTEST": "0"}
        self.environment |= {"CARGO_TARGET_DIR": str(self.target), "TOLLGATE_INSTALL": "no", "PYTHONDONTWRITEBYTECODE": "1"}

    def run(self, *command: str, status: int = 0, **environment: str) -> str:
        """What a script prints that ends so."""
        done = subprocess.run(command, cwd=ROOT, env=self.environment | environment, capture_output=True, text=True, check=False)
        assert done.returncode == status, done.stdout + done.stderr
        return done.stdout

    def asked(self) -> list[str]:
        """What cargo was asked since the last time."""
        lines = self.asked_of_cargo.read_text().splitlines() if self.asked_of_cargo.exists() else []
        self.asked_of_cargo.unlink(missing_ok=True)
        return lines


@pytest.fixture
def scripts(tmp_path):
    return Scripts(tmp_path)


def test_a_mode_that_passed_with_other_values_is_run_again(scripts):
    for environment, is_run in [({"TOLLGATE_KILLS": "1"}, True), ({}, True), ({"TOLLGATE_KILLS": "1"}, False), ({"TOLLGATE_KILLS": "1000"}, False)]:
        output = scripts.run("tests/nightly", "--continue", "kills", **environment)
        assert bool(scripts.asked()) == is_run, (environment, output)
        assert "modes: 1 passed, 0 failed, 0 skipped;" in output
    assert (scripts.target / "nightly/kills.passed-no").exists(), "the usual values are not in the name"


@pytest.mark.parametrize("told", ["PRINTED", "WRITTEN"])
def test_what_could_not_be_tried_has_not_passed(scripts, told):
    """Whoever skips something says so in its output, which nextest indents, and in a file."""
    skip = {"PRINTED": "    *** SKIPPED: a full disk was NOT tried. ***\\n", "WRITTEN": "a full disk\\n"}[told]
    for _ in range(2):
        output = scripts.run("tests/nightly", "--continue", "points", **{told: skip})
        assert scripts.asked(), output
        assert re.search(r"^points +\d+ s  skipped .*; not tried: a full disk", output, re.M), output
        assert "modes: 0 passed, 0 failed, 1 skipped;" in output


@pytest.mark.parametrize(
    ("options", "passed_on"),
    [([], ""), (["--with-traffic"], " --with-traffic"), (["--with-traffic", "--", "--json"], " --with-traffic --json"), (["--", "--json"], " --json")],
)
def test_the_quickstart_hands_options_to_the_demo(scripts, options, passed_on):
    built = scripts.target / "quick/tollgate"
    built.parent.mkdir(parents=True)
    built.write_text('#!/bin/sh\necho "$@"\n')
    built.chmod(0o755)
    assert scripts.run("conf/quickstart", *options, QUICKSTART_PROFILE="quick").splitlines()[-1] == f"demo{passed_on}"
    assert scripts.asked() == ["build --locked --profile quick --bin tollgate --no-default-features --features serve"]


def test_mutants_go_on_with_those_that_were_chosen(scripts):
    folder = scripts.target / "nightly/mutants"
    scripts.run("tests/nightly", "mutants")
    today = int(time.time()) // 86400
    assert int((folder / "seed").read_text()) in (today - 1, today)
    (scripts.target / "nightly/mutants.passed-no").unlink()
    (folder / "seed").write_text("7\n")
    scripts.run("tests/nightly", "--continue", "mutants")
    assert "chosen by seed 7" in (folder / "pure/results.json").read_text()
    assert (folder / "seed").read_text() == "7\n"
    scripts.run("tests/nightly", "mutants")
    assert int((folder / "seed").read_text()) > 7


def test_what_must_be_alone_is_alone_without_nextest(scripts):
    overrides = tomllib.loads((ROOT / ".config/nextest.toml").read_text())["profile"]["default"]["overrides"]
    filters = [override["filter"] for override in overrides if override.get("threads-required") == "num-test-threads"]
    patterns = [pattern for text in filters for pattern in re.findall(r"test\(/([^/]+)/\)", text)]
    assert set("".join(re.sub(r"test\(/[^/]+/\)", "", text) for text in filters)) <= set("| \n"), "tests/run reads no other filters"
    functions = re.findall(r"^(?:async )?fn (\w+)\(", "".join(path.read_text() for path in (ROOT / "tests/it").rglob("*.rs")), re.M)
    # One variable holds them all: not all functions, and of these most in a module that no pattern names.
    names = [f"{'' if number % 20 == 0 else 'not_'}faults::stops::{name}" for number, name in enumerate(sorted({*functions[::2], TIMED}))]
    alone = {name for name in names if any(re.search(pattern, name) for pattern in patterns)}
    assert any(name.endswith(TIMED) for name in alone) and len(alone) < len(names) / 2
    scripts.run("tests/run", "rust", NO_NEXTEST="1", TESTS=" ".join(names))
    listed, others, one_by_one, documentation = scripts.asked()
    assert "--list" in listed and "--doc" in documentation
    assert set(re.findall(r"--skip (\S+)", others)) == alone and "--exact" in others
    assert set(one_by_one.partition("--test-threads 1 ")[2].split()) == alone and "--exact" in one_by_one


def test_of_suites_that_run_beside_each_other_each_failure_is_told(scripts):
    node = scripts.target.parent / "programs/node"
    node.write_text("#!/bin/sh\nexit $NODE_STATUS\n")
    node.chmod(0o755)
    installed = scripts.target / "node-clients"
    installed.mkdir(parents=True)
    (installed / "installed.json").write_bytes((ROOT / "tests/clients/package.json").read_bytes())
    with_node = {"TOLLGATE_BIN": "/bin/false", "NODE_STATUS": "0"}
    ended = scripts.run("tests/run", "budgets", "node", **with_node)
    assert "failed: none" in ended and "suites: 2 passed, 0 failed" in ended
    # No fuzz target is there, for nothing was built.
    ended = scripts.run("tests/run", "fuzz", "budgets", "node", status=1, **with_node)
    told = ended.index("== tests/run: node passed"), ended.index("== tests/run: fuzz FAILED"), ended.index("== tests/run: why fuzz failed")
    assert list(told) == sorted(told) and "; failed: fuzz\n" in ended and "suites: 2 passed, 1 failed" in ended
    # Alone it is in nobody's background.
    assert "in the background" not in scripts.run("tests/run", "fuzz", status=1)

"""Which mutants are tried, what became of them, and whether enough were caught: the share of caught ones is over all that build, and each
that is not caught is named in survivors.txt with a reason.

What became of a part's mutants is kept in `results.json` in the part's folder, for shards and batches to be put together:

    check.py judge FOLDER...                the verdict over all parts in these folders, such as those of the shards of one commit
    check.py copy TREE                      the sources of this repository in TREE, where only what differs is written
    check.py choose PART TESTS [--sample N] [--seed S] [--shard K/N] [--at-most N]
                                            the next batch: writes PART/config.toml and PART/files. Exits with 3 when nothing is
                                            left to try
    check.py keep PART TESTS OUTPUT         notes what became of a batch
    check.py timeout PART TESTS             how long the tests of a mutant may take in seconds, once these sources have passed them
    check.py forget PART                    what survived is to be tried once more

TESTS are `own`, those of the part, or `all`, by which is tried what the own ones let pass and survivors.txt does not name.
"""

import argparse
import hashlib
import json
import math
import random
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SURVIVORS = Path(__file__).with_name("survivors.txt")
LEAST = 0.95
OUTCOMES = {"CaughtMutant": "caught", "Timeout": "timeout", "MissedMutant": "missed", "Unviable": "unviable"}
# A mutant may loop without end; the tests of all others take about as long as those of the program.
TIMEOUT_MULTIPLIER, TIMEOUT_SECONDS_MIN = 2, 20


# --- Names ----------------------------------------------------------------------------------------------------------------------------


def names_of(listing: list[dict]) -> dict[str, str]:
    """From cargo-mutants' name of each mutant, which has its line, to one that other lines do not change.

    It is `path: what was done`. Where a file has that several times, `[2/3]` follows, in the order of the lines: one more or less makes
    other names of all of them, so that survivors.txt cannot name another mutant than it did.
    """

    def place(mutant: dict) -> tuple:
        start = mutant["span"]["start"]
        return mutant["file"], start["line"], start["column"]

    ordered = sorted(listing, key=place)
    plain = {mutant["name"]: re.sub(r":\d+:\d+: ", ": ", mutant["name"], count=1) for mutant in ordered}
    times, seen, names = Counter(plain.values()), Counter(), {}
    for name, short in plain.items():
        seen[short] += 1
        names[name] = short if times[short] == 1 else f"{short} [{seen[short]}/{times[short]}]"
    return names


def survivors(path: Path = SURVIVORS) -> dict[str, str]:
    named = {}
    for line in path.read_text().splitlines():
        if line and not line.startswith("#"):
            # A mutant's own name may have the separator: `replace | with ^`.
            mutant, _, reason = line.rpartition(" | ")
            assert mutant.strip() and reason.strip(), f"{path.name}: no reason: {line}"
            assert mutant not in named, f"{path.name}: named twice: {mutant}"
            named[mutant] = reason
    return named


# --- Batches --------------------------------------------------------------------------------------------------------------------------


def read(folder: Path) -> dict:
    file = folder / "results.json"
    return json.loads(file.read_text()) if file.is_file() else {"results": {}}


def write(folder: Path, kept: dict) -> None:
    (folder / "results.json").write_text(json.dumps(kept, indent=1) + "\n")


def digest(file: str, root: Path = ROOT) -> str:
    return hashlib.sha256((root / file).read_bytes()).hexdigest()[:16]


def chosen(names: list[str], options: argparse.Namespace) -> tuple[list[str], str]:
    """Which of all mutants are to be tried, and how they were chosen."""
    if options.sample:
        some = random.Random(options.seed).sample(sorted(names), min(options.sample, len(names)))
        return some, f"{len(some)} of {len(names)}, chosen by seed {options.seed}"
    index, count = map(int, options.shard.split("/"))
    assert 0 <= index < count, f"no such shard: {options.shard}"
    # Not one after the other: a shard has some of each file.
    return sorted(names)[index::count], "all" if count == 1 else f"shard {options.shard}"


def left_to_try(kept: dict, tests: str) -> list[str]:
    """Of those that were chosen: the new ones for their own tests, and what these missed for all, unless a reason says why none can see it."""
    results = kept["results"]
    if tests == "own":
        return [name for name in kept["chosen"] if name not in results]
    missed_by_own, named = {"outcome": "missed", "tests": "own"}, survivors()
    return [name for name in kept["chosen"] if name not in named and missed_by_own.items() <= results.get(name, {}).items()]


def choose(options: argparse.Namespace) -> int:
    folder = options.part
    listing = json.loads((folder / "listing.json").read_text())
    names = names_of(listing)
    digests = {file: digest(file) for file in {mutant["file"] for mutant in listing}}
    files = {names[mutant["name"]]: mutant["file"] for mutant in listing}
    kept = read(folder)
    # What is known of a file that has changed since is known no more.
    kept["results"] = {
        name: result
        for name, result in kept["results"].items()
        if name in files and result["source"] == digests[files[name]]
    }
    kept["chosen"], kept["how"] = chosen(list(names.values()), options)
    kept["all"] = {name: digests[file] for name, file in files.items()}
    write(folder, kept)
    left = set(left_to_try(kept, options.tests))
    rank = {name: place for place, name in enumerate(kept["chosen"])}
    batch = sorted((full for full, name in names.items() if name in left), key=lambda full: rank[names[full]])
    batch = batch[: options.at_most]
    if not batch:
        return 3
    patterns = [f"^{re.escape(full)}$" for full in batch]
    base = (ROOT / ".cargo/mutants.toml").read_text()
    (folder / "config.toml").write_text(f"{base}\nexamine_re = {json.dumps(patterns)}\n")
    (folder / "batch.json").write_text(json.dumps(batch))
    (folder / "files").write_text("".join(f"{file}\n" for file in sorted({files[names[full]] for full in batch})))
    print(f"a batch of {folder.name}: {len(batch)} of {len(left)} mutants that are left to try by {options.tests} tests ({kept['how']})")
    return 0


def shards(folder: Path) -> list[str]:
    """As which shards cargo-mutants tries the batch and nothing else, of what it lists for it.

    It does not ask the pattern of a mutant that leaves out a field, and lists all of those in the batch's files.
    """
    listed = [mutant["name"] for mutant in json.loads((folder / "listed.json").read_text())]
    batch = set(json.loads((folder / "batch.json").read_text()))
    assert batch <= set(listed), f"not listed: {batch - set(listed)}"
    if len(listed) == len(batch):
        return ["0/1"]
    return [f"{index}/{len(listed)}" for index, name in enumerate(listed) if name in batch]


def keep(folder: Path, tests: str, output: Path) -> None:
    kept = read(folder)
    names = names_of(json.loads((folder / "listing.json").read_text()))
    for outcome in json.loads((output / "mutants.out" / "outcomes.json").read_text())["outcomes"]:
        phases = {phase["phase"]: phase["duration"] for phase in outcome["phase_results"]}
        if outcome["scenario"] == "Baseline":
            kept.setdefault("passed", {})[tests] = {"sources": digest_of_all(), "seconds": phases["Test"]}
            continue
        name = names[outcome["scenario"]["Mutant"]["name"]]
        kept["results"][name] = {
            "outcome": OUTCOMES[outcome["summary"]],
            "seconds": round(sum(phases.values()), 1),
            "build_seconds": round(phases.get("Build", 0.0), 1),
            "source": kept["all"][name],
            "tests": tests,
        }
    write(folder, kept)


def timeout(folder: Path, tests: str) -> None:
    passed = read(folder).get("passed", {}).get(tests)
    if passed and passed["sources"] == digest_of_all():
        print(math.ceil(max(TIMEOUT_SECONDS_MIN, TIMEOUT_MULTIPLIER * passed["seconds"])))


def forget(folder: Path) -> None:
    kept = read(folder)
    kept["results"] = {name: result for name, result in kept["results"].items() if result["outcome"] != "missed"}
    write(folder, kept)


def sources() -> list[Path]:
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    return sorted(Path(name) for name in listed.stdout.split("\0") if name and (ROOT / name).is_file())


def digest_of_all() -> str:
    digests = [f"{file} {digest(str(file))}" for file in sources()]
    return hashlib.sha256("\n".join(digests).encode()).hexdigest()[:16]


def copy(tree: Path) -> None:
    """A file whose text is the same keeps its time, so cargo builds nothing again for it."""
    files = set(sources())
    for there in [path for path in tree.rglob("*") if path.is_file()]:
        if there.relative_to(tree) not in files:
            there.unlink()
    for file in files:
        here, there = ROOT / file, tree / file
        there.parent.mkdir(parents=True, exist_ok=True)
        if not there.is_file() or there.read_bytes() != here.read_bytes():
            there.write_bytes(here.read_bytes())
        there.chmod(here.stat().st_mode)


# --- The verdict ----------------------------------------------------------------------------------------------------------------------


def interval(caught: int, viable: int) -> tuple[float, float]:
    """Wilson's, of 95 %: where the share of all mutants probably is when a sample of them has this one."""
    if viable == 0:
        return 0.0, 1.0
    z, share = 1.959964, caught / viable
    middle = (share + z * z / (2 * viable)) / (1 + z * z / viable)
    half = z / (1 + z * z / viable) * math.sqrt(share * (1 - share) / viable + z * z / (4 * viable * viable))
    return max(0.0, middle - half), min(1.0, middle + half)


def merged(parts: list[dict]) -> dict:
    """Shards of the same sources as one."""
    whole = {"all": parts[0]["all"], "chosen": [], "results": {}, "how": ", ".join(dict.fromkeys(part["how"] for part in parts))}
    for part in parts:
        assert part["all"] == whole["all"], "these are results of different sources"
        whole["chosen"] += [name for name in part["chosen"] if name not in whole["chosen"]]
        whole["results"] |= part["results"]
    return whole


def judge_part(name: str, whole: dict, named: dict[str, str]) -> list[str]:
    """Prints the figures of a part, and returns what is wrong with it."""
    results = {mutant: whole["results"][mutant] for mutant in whole["chosen"] if mutant in whole["results"]}
    outcome = {mutant: result["outcome"] for mutant, result in results.items()}
    count = Counter(outcome.values())
    caught = count["caught"] + count["timeout"]
    viable = caught + count["missed"]
    share = caught / viable if viable else 1.0
    missed = [mutant for mutant, what in outcome.items() if what == "missed"]
    is_whole = len(results) == len(whole["all"])
    low, high = (share, share) if is_whole else interval(caught, viable)
    seconds = sum(result["seconds"] for result in results.values()) / max(1, len(results))
    print(
        f"{name}: {len(results)} of {len(whole['all'])} mutants tried, {viable} viable, {caught} caught: {100 * share:.1f} %"
        + ("" if is_whole else f" (95 % interval: {100 * low:.1f} to {100 * high:.1f})")
        + f"; {len(missed)} survive, {sum(mutant in named for mutant in missed)} of them with a reason; {seconds:.1f} s a mutant"
    )
    wrong = [f"survives without a reason: {mutant}" for mutant in missed if mutant not in named]
    wrong += [f"named in {SURVIVORS.name}, but caught: {mutant}" for mutant in named if outcome.get(mutant) in ("caught", "timeout")]
    untried = len(whole["chosen"]) - len(results)
    if untried:
        print(f"  {untried} of those that were chosen are not tried yet ({whole['how']})")
    # A sample fails when not even the best that it leaves possible is enough.
    if high < LEAST:
        wrong.append(f"fewer than {100 * LEAST:.0f} % are caught")
    return wrong


def judge(folders: list[Path], named: dict[str, str]) -> int:
    parts: dict[str, list[dict]] = {}
    for file in sorted(file for folder in folders for file in folder.glob("*/results.json")):
        parts.setdefault(file.parent.name, []).append(read(file.parent))
    if not parts:
        print("no results", file=sys.stderr)
        return 1
    is_wrong, known = False, set()
    for name, shards in sorted(parts.items()):
        whole = merged(shards)
        known |= set(whole["all"])
        for line in judge_part(name, whole, named):
            is_wrong = True
            print(f"  {line}")
    # Only files of which there are results can be asked whether they still have such a mutant.
    files = {mutant.partition(": ")[0] for mutant in known}
    for mutant in named:
        if mutant not in known and mutant.partition(": ")[0] in files:
            is_wrong = True
            print(f"  named in {SURVIVORS.name}, but there is no such mutant: {mutant}")
    return 1 if is_wrong else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("judge").add_argument("folders", nargs="+", type=Path)
    commands.add_parser("copy").add_argument("tree", type=Path)
    of_part = {name: commands.add_parser(name) for name in ("choose", "shards", "keep", "timeout", "forget")}
    for name, command in of_part.items():
        command.add_argument("part", type=Path)
        if name not in ("shards", "forget"):
            command.add_argument("tests", choices=["own", "all"])
    of_part["keep"].add_argument("output", type=Path)
    of_part["choose"].add_argument("--sample", type=int)
    of_part["choose"].add_argument("--seed", type=int, default=0)
    of_part["choose"].add_argument("--shard", default="0/1")
    of_part["choose"].add_argument("--at-most", type=int, default=200)
    options = parser.parse_args()
    match options.command:
        case "judge":
            return judge(options.folders, survivors())
        case "choose":
            return choose(options)
        case "copy":
            copy(options.tree)
        case "shards":
            print("\n".join(shards(options.part)))
        case "timeout":
            timeout(options.part, options.tests)
        case "forget":
            forget(options.part)
        case "keep":
            keep(options.part, options.tests, options.output)
    return 0


if __name__ == "__main__":
    sys.exit(main())

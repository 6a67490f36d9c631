"""Tries many mutants with one build: the tests of each are run on the same program, in which an environment variable chooses the mutant.

    at_once.py PART TESTS TREE PROGRAM [--features NAMES] [--at-most N] [--filter EXPRESSION]...

PART is the folder of a part that `check.py choose` has chosen mutants for, TESTS `own` or `all`, TREE where the sources are written to, and
PROGRAM the built package tests/mutants/at_once. The tests of each filter, an expression of nextest, are run in their order until one fails.
What cannot be built this way is left for cargo-mutants, one by one.
"""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import check

SWITCH = """
/// Which mutant is on.
pub mod mutant_switch {
    use std::sync::atomic::{AtomicUsize, Ordering};

    static NUMBER: AtomicUsize = AtomicUsize::new(usize::MAX);

    /// 0 when none is.
    #[inline]
    pub fn number() -> usize {
        match NUMBER.load(Ordering::Relaxed) {
            usize::MAX => {
                let number = std::env::var("TOLLGATE_MUTANT").ok().and_then(|text| text.parse().ok()).unwrap_or(0);
                NUMBER.store(number, Ordering::Relaxed);
                number
            }
            number => number,
        }
    }

    /// Whether this one is.
    #[inline]
    pub fn is_on(mutant: usize) -> bool {
        number() == mutant
    }
}
"""
BUILDS_MAX = 12
SECONDS_MIN = 20


class Build:
    """The tree with mutants in it, and its test binary."""

    def __init__(self, options: argparse.Namespace):
        self.tree, self.part = options.tree, options.part
        self.program = options.program
        features = ["--no-default-features"] + (["--features", options.features] if options.features else [])
        self.library = ["--locked", "--lib", *features]
        self.metadata, self.binaries = self.part / "cargo.json", self.part / "binaries.json"

    def run(self, *command: str, check: bool = False) -> subprocess.CompletedProcess:
        return subprocess.run(command, cwd=self.tree, capture_output=True, text=True, check=check)

    def make(self, wanted: set[int], count: int) -> set[int]:
        """The numbers of those of the wanted mutants that are in the program."""
        without = set(range(1, count + 1)) - wanted
        for _ in range(BUILDS_MAX):
            check.copy(self.tree)
            (self.part / "without").write_text(" ".join(map(str, sorted(without))))
            written = subprocess.run(
                [self.program, self.tree, self.part / "listing.json", self.part / "without"], check=True, capture_output=True, text=True
            )
            numbers = {int(number) for number in written.stdout.split()}
            with (self.tree / "src/lib.rs").open("a") as library:
                library.write(SWITCH)
            started = time.monotonic()
            built = self.run("cargo", "test", "--no-run", *self.library, "--message-format=json")
            errors = [message for line in built.stdout.splitlines() if (message := error_of(line))]
            print(f"built {len(numbers)} mutants at once in {time.monotonic() - started:.0f} s, {len(errors)} errors", flush=True)
            if built.returncode == 0:
                self.note()
                return numbers
            guilty = set().union(*(self.guilty(error) for error in errors)) & numbers
            if not guilty:
                sys.exit(f"cannot be built, and by no mutant:\n{errors[0]['rendered'] if errors else built.stderr[-2000:]}")
            without |= guilty
        sys.exit(f"cannot be built in {BUILDS_MAX} tries")

    def guilty(self, error: dict) -> set[int]:
        """The mutants that an error lies in; else those of its lines, and of a match that lacks an arm all that take one away."""
        spans = [*error["spans"], *(span for child in error["children"] for span in child["spans"])]
        texts = {name: (self.tree / name).read_bytes() for span in spans if (self.tree / (name := span["file_name"])).is_file()}
        spans = [span for span in spans if span["file_name"] in texts]
        for primary in (True, False):
            within = set()
            for span in spans:
                if span["is_primary"] == primary:
                    within |= innermost(texts[span["file_name"]], span)
            if within:
                return within
        if (error.get("code") or {}).get("code") == "E0004":
            arms = re.compile(rb"/\*M(\d+)\[\*/ (?:!crate::mutant_switch|true|false)")
            return {int(number) for span in spans for number in arms.findall(texts[span["file_name"]])}
        lines = (texts[span["file_name"]].split(b"\n")[span["line_start"] - 1 : span["line_end"] + 1] for span in spans)
        return {int(number) for some in lines for line in some for number in re.findall(rb"/\*M(\d+)\[\*/", line)}

    def note(self):
        """What nextest needs to run the tests without asking cargo each time."""
        self.metadata.write_text(self.run("cargo", "metadata", "--format-version", "1", "--locked", check=True).stdout)
        listed = self.run("cargo", "nextest", "list", *self.library, "--list-type", "binaries-only", "--message-format", "json", check=True)
        self.binaries.write_text(listed.stdout)

    def test(self, number: int, tests: str, seconds: float | None) -> str:
        """`caught`, `missed` or `timeout`."""
        command = ["cargo", "nextest", "run", "--cargo-metadata", self.metadata, "--binaries-metadata", self.binaries]
        command += ["-E", tests, "--max-fail", "1:immediate", "--no-tests", "pass"]
        environment = os.environ | {"TOLLGATE_MUTANT": str(number), "NEXTEST_PROFILE": "mutants", "RUST_BACKTRACE": "0"}
        with (self.part / "at-once.log").open("w") as log:
            process = subprocess.Popen(command, cwd=self.tree, env=environment, stdout=log, stderr=log, start_new_session=True)
            try:
                return "missed" if process.wait(seconds) == 0 else "caught"
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGTERM)
                process.wait()
                return "timeout"
            except BaseException:
                os.killpg(process.pid, signal.SIGTERM)
                raise


def error_of(line: str) -> dict | None:
    message = json.loads(line)
    is_error = message.get("reason") == "compiler-message" and message["message"]["level"] == "error"
    return message["message"] if is_error and message["message"]["spans"] else None


def innermost(text: bytes, span: dict) -> set[int]:
    """The mutant whose own text a span lies in."""
    best: tuple[int, int] | None = None
    for number in set(re.findall(rb"/\*M(\d+)\[\*/", text)):
        for found in re.finditer(rb"/\*M" + number + rb"\[\*/.*?/\*M" + number + rb"\]\*/", text, re.DOTALL):
            if found.start() <= span["byte_start"] and span["byte_end"] <= found.end():
                size = found.end() - found.start()
                best = min(best or (size, int(number)), (size, int(number)))
    return {best[1]} if best else set()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", type=Path)
    parser.add_argument("tests", choices=["own", "all"])
    parser.add_argument("tree", type=Path)
    parser.add_argument("program", type=Path)
    parser.add_argument("--features", default="")
    parser.add_argument("--at-most", type=int)
    parser.add_argument("--filter", action="append", dest="filters", default=[])
    options = parser.parse_args()
    filters = options.filters or ["all()"]
    listing = json.loads((options.part / "listing.json").read_text())
    names = check.names_of(listing)
    numbers = {names[mutant["name"]]: number for number, mutant in enumerate(listing, 1)}
    kept = check.read(options.part)
    left = check.left_to_try(kept, options.tests)[: options.at_most]
    if not left:
        return 0
    build = Build(options)
    built = build.make({numbers[name] for name in left}, len(listing))
    started = time.monotonic()
    for tests in filters:
        if build.test(0, tests, None) != "missed":
            sys.exit("without any mutant the tests fail:\n" + (options.part / "at-once.log").read_text()[-3000:])
    seconds = max(SECONDS_MIN, check.TIMEOUT_MULTIPLIER * (time.monotonic() - started))
    tried = [name for name in left if numbers[name] in built]
    print(f"{len(tried)} of {len(left)} mutants are tried at once; the tests take {seconds / check.TIMEOUT_MULTIPLIER:.0f} s", flush=True)
    for done, name in enumerate(tried, 1):
        began, outcome = time.monotonic(), "missed"
        for tests in filters:
            if outcome == "missed":
                outcome = build.test(numbers[name], tests, seconds)
        took = round(time.monotonic() - began, 1)
        kept["results"][name] = {
            "outcome": outcome,
            "seconds": took,
            "build_seconds": 0.0,
            "source": kept["all"][name],
            "tests": options.tests,
        }
        check.write(options.part, kept)
        if outcome != "caught" or done % 20 == 0:
            print(f"{done} of {len(tried)}: {outcome} in {took} s: {name}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

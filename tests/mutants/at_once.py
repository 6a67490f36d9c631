"""Tries many mutants with one build: an environment variable chooses the mutant that is on, and each is tried by those tests only that come
by its place, the fastest first, until one fails.

    at_once.py PART TESTS TREE PROGRAM [--features NAMES] [--at-most N] [--prefix TEXT] [--jobs N]

PART is the folder of a part that `check.py choose` has chosen mutants for, TESTS `own` or `all`, TREE where the sources are written to, and
PROGRAM the built package tests/mutants/at_once. Which tests come by which mutant is recorded first, by one run of each test whose name
begins with TEXT. A test that fails counts when it fails twice. What cannot be built this way is left for cargo-mutants, one by one.
"""

import argparse
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

import check

SWITCH = """
/// Which mutant is on.
pub mod mutant_switch {
    use std::fs::{File, OpenOptions};
    use std::os::unix::fs::FileExt;
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    const UNKNOWN: usize = usize::MAX;
    const RECORDING: usize = usize::MAX - 1;
    static NUMBER: AtomicUsize = AtomicUsize::new(UNKNOWN);
    static REACHED: [AtomicBool; 10_000] = [const { AtomicBool::new(false) }; 10_000];
    static RECORD: OnceLock<File> = OnceLock::new();

    /// 0 when none is.
    #[inline]
    fn number() -> usize {
        match NUMBER.load(Ordering::Relaxed) {
            UNKNOWN => {
                let chosen = std::env::var("TOLLGATE_MUTANT").ok().map(|text| text.parse().expect("a number"));
                let is_recorded = std::env::var_os("TOLLGATE_MUTANTS_REACHED").is_some();
                let number = chosen.unwrap_or(if is_recorded { RECORDING } else { 0 });
                NUMBER.store(number, Ordering::Relaxed);
                number
            }
            number => number,
        }
    }

    /// Which one is, where it matters whether one of these is.
    #[inline]
    pub fn among(mutants: &[usize]) -> usize {
        let number = number();
        if number == RECORDING {
            record(mutants);
        }
        number
    }

    /// Whether this one is.
    #[inline]
    pub fn is_on(mutant: usize) -> bool {
        among(&[mutant]) == mutant
    }

    /// Sets the byte of each in the file.
    #[cold]
    fn record(mutants: &[usize]) {
        for &mutant in mutants {
            if !REACHED[mutant].swap(true, Ordering::Relaxed) {
                let file = RECORD.get_or_init(|| {
                    let path = std::env::var_os("TOLLGATE_MUTANTS_REACHED").expect("it is set");
                    OpenOptions::new().write(true).create(true).open(path).expect("it can be written")
                });
                file.write_all_at(&[1], mutant as u64).expect("it can be written");
            }
        }
    }
}
"""
BUILDS_MAX = 12
# A trait that a type has not, and a function that there is none of: of a value that a function would return.
UNVIABLE_CODES = {"E0277", "E0599"}
# Of a test's own time: a mutant may loop without end, and take what memory and disk it gets.
TIMEOUT_MULTIPLIER, TIMEOUT_SECONDS_MIN = 10, 10
MEMORY_MAX, FILE_MAX = 8 << 30, 2 << 30


class Build:
    """The tree with mutants in it, and its test binary."""

    def __init__(self, options: argparse.Namespace):
        self.tree, self.part = options.tree, options.part
        self.program = options.program
        features = ["--no-default-features"] + (["--features", options.features] if options.features else [])
        self.library = ["--locked", "--lib", *features]
        self.binary = Path()
        self.unviable: set[int] = set()

    def run(self, *command: str, check: bool = False) -> subprocess.CompletedProcess:
        return subprocess.run(command, cwd=self.tree, capture_output=True, text=True, check=check)

    def make(self, wanted: set[int], count: int) -> set[int]:
        """The numbers of those of the wanted mutants that are in the program.

        `unviable` then has those that no build can have: values of a type that has no such value.
        """
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
                self.binary = self.test_binary(built.stdout)
                return numbers
            guilty = set().union(*(self.guilty(error) for error in errors)) & numbers
            if not guilty:
                sys.exit(f"cannot be built, and by no mutant:\n{errors[0]['rendered'] if errors else built.stderr[-2000:]}")
            without |= guilty
            for error in errors:
                if (error.get("code") or {}).get("code") in UNVIABLE_CODES:
                    self.unviable |= self.within(error, True)
        sys.exit(f"cannot be built in {BUILDS_MAX} tries")

    def spans(self, error: dict) -> list[tuple[dict, bytes]]:
        """What the compiler points at, each with the text of its file."""
        spans = [*error["spans"], *(span for child in error["children"] for span in child["spans"])]
        texts = {name: (self.tree / name).read_bytes() for span in spans if (self.tree / (name := span["file_name"])).is_file()}
        return [(span, texts[span["file_name"]]) for span in spans if span["file_name"] in texts]

    def within(self, error: dict, is_primary: bool) -> set[int]:
        """The mutants whose own text an error lies in."""
        return set().union(*(innermost(text, span) for span, text in self.spans(error) if span["is_primary"] == is_primary))

    def guilty(self, error: dict) -> set[int]:
        """The mutants that an error lies in; else those of its lines, and of a match that lacks an arm all that take one away."""
        for is_primary in (True, False):
            if within := self.within(error, is_primary):
                return within
        spans = self.spans(error)
        if (error.get("code") or {}).get("code") == "E0004":
            arms = re.compile(rb"/\*M(\d+)\[\*/ (?:!crate::mutant_switch|true|false)")
            return {int(number) for _, text in spans for number in arms.findall(text)}
        lines = (text.split(b"\n")[span["line_start"] - 1 : span["line_end"] + 1] for span, text in spans)
        return {int(number) for some in lines for line in some for number in re.findall(rb"/\*M(\d+)\[\*/", line)}

    def test_binary(self, built: str) -> Path:
        executables = [message.get("executable") for message in map(json.loads, built.splitlines())]
        return Path(next(path for path in executables if path))


class Tests:
    """The tests of a program, and how long each takes."""

    def __init__(self, binary: Path, tree: Path, prefix: str, jobs: int):
        self.binary, self.tree, self.jobs = binary, tree, jobs
        listed = subprocess.run([binary, "--list", "--format", "terse"], cwd=tree, check=True, capture_output=True, text=True)
        self.names = [line.removesuffix(": test") for line in listed.stdout.splitlines() if line.startswith(prefix)]
        self.seconds: dict[str, float] = {}
        self.of: dict[int, list[str]] = {}
        self.is_ended = threading.Event()

    def run(self, name: str, environment: dict[str, str], seconds: float | None = None) -> str:
        """`passed`, `failed` or `timeout` of one test in a process of its own, which leaves nothing behind."""
        folder = tempfile.mkdtemp(prefix="mutant-")
        command = [self.binary, "--exact", name, "--test-threads", "1"]
        variables = os.environ | environment | {"TMPDIR": folder, "RUST_BACKTRACE": "0"}
        nothing = subprocess.DEVNULL
        process = subprocess.Popen(
            command, cwd=self.tree, env=variables, stdin=nothing, stdout=nothing, stderr=nothing, start_new_session=True
        )
        try:
            return "passed" if process.wait(seconds) == 0 else "failed"
        except subprocess.TimeoutExpired:
            return "timeout"
        finally:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()
            shutil.rmtree(folder, ignore_errors=True)

    def record(self) -> None:
        """Runs each test once and notes which mutants it comes by."""
        with tempfile.TemporaryDirectory(prefix="mutants-") as folder, ThreadPoolExecutor(self.jobs) as pool:

            def one(place: int) -> tuple[str, float, bytes]:
                name, file = self.names[place], Path(folder) / str(place)
                began = time.monotonic()
                outcome = self.run(name, {"TOLLGATE_MUTANTS_REACHED": str(file)})
                if outcome != "passed" and self.run(name, {"TOLLGATE_MUTANTS_REACHED": str(file)}) != "passed":
                    sys.exit(f"fails without any mutant: {name}")
                return name, time.monotonic() - began, file.read_bytes() if file.exists() else b""

            for name, seconds, reached in pool.map(one, range(len(self.names))):
                self.seconds[name] = seconds
                for number, is_reached in enumerate(reached):
                    if is_reached:
                        self.of.setdefault(number, []).append(name)
        for names in self.of.values():
            names.sort(key=self.seconds.__getitem__)

    def attempt(self, number: int) -> tuple[str, str]:
        """`caught`, `missed` or `timeout`, and the test that said so."""
        environment = {"TOLLGATE_MUTANT": str(number)}
        for name in self.of.get(number, []):
            if self.is_ended.is_set():
                raise InterruptedError
            limit = max(TIMEOUT_SECONDS_MIN, TIMEOUT_MULTIPLIER * self.seconds[name])
            for _ in range(2):
                outcome = self.run(name, environment, limit)
                if outcome != "failed":
                    break
            if outcome != "passed":
                return ("caught" if outcome == "failed" else outcome), name
        return "missed", ""

    def attempts(self, numbers: Iterable[int]):
        """What becomes of each, as it is known: its number, the outcome, the test and the seconds."""

        def timed(number: int) -> tuple[int, str, str, float]:
            began = time.monotonic()
            return number, *self.attempt(number), round(time.monotonic() - began, 1)

        with ThreadPoolExecutor(self.jobs) as pool:
            try:
                for future in as_completed([pool.submit(timed, number) for number in numbers]):
                    yield future.result()
            finally:
                self.is_ended.set()
                pool.shutdown(cancel_futures=True)


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


def result(outcome: str, seconds: float, source: str, tests: str) -> dict:
    """What check.py keeps of a mutant."""
    return {"outcome": outcome, "seconds": seconds, "build_seconds": 0.0, "source": source, "tests": tests}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", type=Path)
    parser.add_argument("tests", choices=["own", "all"])
    parser.add_argument("tree", type=Path)
    parser.add_argument("program", type=Path)
    parser.add_argument("--features", default="")
    parser.add_argument("--at-most", type=int)
    parser.add_argument("--prefix", default="")
    # Many tests wait for a server that they start.
    parser.add_argument("--jobs", type=int, default=2 * (os.cpu_count() or 1))
    options = parser.parse_args()
    listing = json.loads((options.part / "listing.json").read_text())
    names = check.names_of(listing)
    numbers = {names[mutant["name"]]: number for number, mutant in enumerate(listing, 1)}
    kept = check.read(options.part)
    left = check.left_to_try(kept, options.tests)[: options.at_most]
    if not left:
        return 0
    build = Build(options)
    # What could not be built with the same text of its file cannot be now.
    cannot = kept.setdefault("not_at_once", {})
    wanted = {numbers[name] for name in left if cannot.get(name) != kept["all"][name]}
    built = build.make(wanted, len(listing))
    for name in left:
        if numbers[name] in built:
            continue
        cannot[name] = kept["all"][name]
        if numbers[name] in build.unviable and listing[numbers[name] - 1]["genre"] == "FnValue":
            kept["results"][name] = result("unviable", 0.0, kept["all"][name], options.tests)
    check.write(options.part, kept)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_MAX, MEMORY_MAX))
    resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_MAX, FILE_MAX))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    tests = Tests(build.binary, options.tree, options.prefix, options.jobs)
    started = time.monotonic()
    tests.record()
    tried = {numbers[name]: name for name in left if numbers[name] in built}
    took = time.monotonic() - started
    print(
        f"{len(tests.names)} tests came by {len(tests.of)} mutants in {took:.0f} s: {len(tried)} of {len(left)} are tried, {len(build.unviable)} cannot be built",
        flush=True,
    )
    try:
        for done, (number, outcome, test, seconds) in enumerate(tests.attempts(tried), 1):
            name = tried[number]
            kept["results"][name] = result(outcome, seconds, kept["all"][name], options.tests) | {"by": test}
            if outcome != "caught" or done % 20 == 0:
                check.write(options.part, kept)
                reason = "" if tests.of.get(number) else ", no test comes by"
                print(f"{done} of {len(tried)}: {outcome} in {seconds} s{reason}: {name}", flush=True)
    finally:
        check.write(options.part, kept)
    return 0


if __name__ == "__main__":
    sys.exit(main())

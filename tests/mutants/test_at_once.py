"""Which mutants an error of the compiler is laid to, and which tests a mutant is tried by."""

import subprocess
from argparse import Namespace
from pathlib import Path

import at_once
import pytest

TEXT = b"""fn sum() -> u64 {
    (match n() { 1 => {/*M1[*/ (a) - ((match n() { 2 => {/*M2[*/ (b) % (c) /*M2]*/} _ => { (b) * (c) } })) /*M1]*/} _ => { 0 } })
}
match x {
    Some(_) if /*M3[*/ !crate::mutant_switch::is_on(3) /*M3]*/ => 1,
    None if (match n() { 4 => {/*M4[*/ true /*M4]*/} _ => { y } }) => 2,
}
"""


def span(text: bytes, is_primary: bool = True) -> dict:
    begins = TEXT.index(text)
    line = TEXT[:begins].count(b"\n") + 1
    place = {"byte_start": begins, "byte_end": begins + len(text), "line_start": line, "line_end": line}
    return place | {"file_name": "lib.rs", "is_primary": is_primary}


def guilty(folder: Path, *spans: dict, code: str = "E0308") -> set[int]:
    (folder / "lib.rs").write_bytes(TEXT)
    build = at_once.Build(Namespace(tree=folder, part=folder, program=None, features="serve"))
    return build.guilty({"spans": list(spans), "children": [], "code": {"code": code}})


def test_an_error_is_of_the_innermost_mutant_that_it_lies_in(tmp_path):
    assert guilty(tmp_path, span(b"(b) % (c)")) == {2}
    assert guilty(tmp_path, span(b"(a) -")) == {1}


def test_what_the_compiler_points_at_first_counts(tmp_path):
    assert guilty(tmp_path, span(b"(a) -", is_primary=False), span(b"(b) %")) == {2}
    assert guilty(tmp_path, span(b"(a) -", is_primary=False), span(b"fn sum")) == {1}


def test_a_value_that_a_type_cannot_have_is_known_from_other_errors(tmp_path):
    (tmp_path / "lib.rs").write_bytes(TEXT)
    build = at_once.Build(Namespace(tree=tmp_path, part=tmp_path, program=None, features="serve"))
    beside = {"spans": [span(b"(a) -", is_primary=False), span(b"fn sum")], "children": []}
    assert build.within(beside, True) == set()
    assert build.within({"spans": [span(b"(b) %")], "children": []}, True) == {2}


def test_an_error_beside_all_mutants_is_of_those_of_its_lines(tmp_path):
    assert guilty(tmp_path, span(b"match n() { 1")) == {1, 2}


def test_a_match_that_lacks_an_arm_is_of_those_that_take_one_away(tmp_path):
    assert guilty(tmp_path, span(b"match x"), code="E0004") == {3, 4}


PROGRAM = """
fn sum(a: u64, b: u64) -> u64 {
    match mutant_switch::among(&[1, 2]) { 1 => a - b, 2 => b + a, _ => a + b }
}
fn counts() -> u64 {
    while mutant_switch::is_on(3) {}
    7
}
pub fn unused() -> bool {
    mutant_switch::is_on(4)
}
mod tests {
    #[test]
    fn sums() { assert_eq!(super::sum(2, 1), 3); }
    #[test]
    fn sums_nothing() { assert_eq!(super::sum(2, 0), 2); }
    #[test]
    fn counts() { assert_eq!(super::counts(), 7); }
}
mod others {
    #[test]
    fn fails() { panic!("{}", super::unused()); }
}
"""


def test_a_mutant_is_tried_by_the_tests_that_come_by_it(tmp_path, monkeypatch):
    monkeypatch.setattr(at_once, "TIMEOUT_SECONDS_MIN", 1)
    source, binary = tmp_path / "program.rs", tmp_path / "program"
    source.write_text(PROGRAM + at_once.SWITCH)
    subprocess.run(["rustc", "--edition", "2024", "--test", source, "-o", binary], check=True, capture_output=True, text=True)
    tests = at_once.Tests(binary, tmp_path, "tests::", 2)
    tests.record()
    assert {number: sorted(names) for number, names in tests.of.items()} == {
        1: ["tests::sums", "tests::sums_nothing"],
        2: ["tests::sums", "tests::sums_nothing"],
        3: ["tests::counts"],
    }
    became = {number: (outcome, test) for number, outcome, test, _ in tests.attempts([1, 2, 3, 4])}
    assert became == {1: ("caught", "tests::sums"), 2: ("missed", ""), 3: ("timeout", "tests::counts"), 4: ("missed", "")}


def test_a_test_that_fails_without_any_mutant_ends_it(tmp_path):
    source, binary = tmp_path / "program.rs", tmp_path / "program"
    source.write_text(PROGRAM + at_once.SWITCH)
    subprocess.run(["rustc", "--edition", "2024", "--test", source, "-o", binary], check=True, capture_output=True, text=True)
    with pytest.raises(SystemExit, match="others::fails"):
        at_once.Tests(binary, tmp_path, "others::", 1).record()

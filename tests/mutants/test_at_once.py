"""Which mutants an error of the compiler is laid to."""

from argparse import Namespace
from pathlib import Path

import at_once

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


def test_an_error_beside_all_mutants_is_of_those_of_its_lines(tmp_path):
    assert guilty(tmp_path, span(b"match n() { 1")) == {1, 2}


def test_a_match_that_lacks_an_arm_is_of_those_that_take_one_away(tmp_path):
    assert guilty(tmp_path, span(b"match x"), code="E0004") == {3, 4}

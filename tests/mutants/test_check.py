"""The verdict over mutants: by figures that are known, and names that stay."""

import argparse
import json
from pathlib import Path

import check
import pytest


def mutant(line: int, what: str, file: str = "src/pure/a.rs") -> dict:
    return {"name": f"{file}:{line}:5: {what}", "file": file, "span": {"start": {"line": line, "column": 5}}}


def results(folder: Path, chosen: dict[str, str], all_names: list[str], how: str = "all") -> None:
    folder.mkdir(parents=True)
    kept = {
        "all": {name: "0" for name in all_names},
        "chosen": list(chosen),
        "how": how,
        "results": {
            name: {"outcome": outcome, "seconds": 2.0, "source": "0", "tests": "own"} for name, outcome in chosen.items() if outcome
        },
    }
    check.write(folder, kept)


def outcomes(caught: int, missed: int, begin: int = 0) -> dict[str, str]:
    return {f"src/pure/a.rs: {n}": "caught" if n < begin + caught else "missed" for n in range(begin, begin + caught + missed)}


def test_a_name_has_no_line_and_says_which_of_several_it_is():
    names = check.names_of([mutant(9, "replace < with <= in f"), mutant(3, "replace < with <= in f"), mutant(5, "replace f with ()")])
    assert names == {
        "src/pure/a.rs:3:5: replace < with <= in f": "src/pure/a.rs: replace < with <= in f [1/2]",
        "src/pure/a.rs:5:5: replace f with ()": "src/pure/a.rs: replace f with ()",
        "src/pure/a.rs:9:5: replace < with <= in f": "src/pure/a.rs: replace < with <= in f [2/2]",
    }
    moved = check.names_of([mutant(13, "replace < with <= in f"), mutant(19, "replace < with <= in f"), mutant(15, "replace f with ()")])
    assert sorted(moved.values()) == sorted(names.values())


def test_a_named_survivor_is_not_caught(tmp_path, capsys):
    results(tmp_path / "pure", outcomes(94, 6), list(outcomes(94, 6)))
    named = {name: "no test can see it" for name, outcome in outcomes(94, 6).items() if outcome == "missed"}
    assert check.judge([tmp_path], named) == 1
    printed = capsys.readouterr().out
    assert "94 caught: 94.0 %" in printed and "6 survive, 6 of them with a reason" in printed
    assert "fewer than 95 % are caught" in printed


def test_enough_are_caught_and_the_rest_has_a_reason(tmp_path):
    all_of = outcomes(95, 5) | {"src/pure/a.rs: u": "unviable"}
    results(tmp_path / "pure", all_of, list(all_of))
    named = {name: "why" for name, outcome in all_of.items() if outcome == "missed"}
    assert check.judge([tmp_path], named) == 0


@pytest.mark.parametrize(
    ("named", "says"),
    [
        ({}, "survives without a reason: src/pure/a.rs: 99"),
        ({"src/pure/a.rs: 99": "why", "src/pure/a.rs: 3": "why"}, "but caught: src/pure/a.rs: 3"),
        ({"src/pure/a.rs: 99": "why", "src/pure/a.rs: gone": "why"}, "there is no such mutant: src/pure/a.rs: gone"),
    ],
)
def test_each_survivor_has_a_reason_and_each_reason_a_survivor(tmp_path, capsys, named, says):
    results(tmp_path / "pure", outcomes(99, 1), list(outcomes(99, 1)))
    assert check.judge([tmp_path], named) == 1
    assert says in capsys.readouterr().out


def test_shards_are_judged_together(tmp_path, capsys):
    all_names = list(outcomes(100, 0))
    results(tmp_path / "one" / "pure", outcomes(45, 5), all_names, "shard 0/2")
    results(tmp_path / "two" / "pure", outcomes(50, 0, begin=50), all_names, "shard 1/2")
    named = {name: "why" for name, outcome in outcomes(45, 5).items() if outcome == "missed"}
    assert check.judge([tmp_path / "one", tmp_path / "two"], named) == 0
    assert "100 of 100 mutants tried, 100 viable, 95 caught: 95.0 %;" in capsys.readouterr().out
    results(tmp_path / "three" / "pure", outcomes(1, 0), all_names[1:])
    with pytest.raises(AssertionError, match="different sources"):
        check.judge([tmp_path / "one", tmp_path / "three"], named)


def test_a_sample_tells_its_interval_and_fails_only_when_it_proves_too_few(tmp_path, capsys):
    all_names = [f"src/pure/a.rs: {n}" for n in range(1000)]
    named = {name: "why" for name in all_names[:100] if name not in outcomes(92, 0)}
    results(tmp_path / "few" / "pure", outcomes(92, 8), all_names, "100 of 1000, chosen by seed 1")
    assert check.judge([tmp_path / "few"], named) == 0
    # Wilson's interval of 92 of 100.
    assert "(95 % interval: 85.0 to 95.9)" in capsys.readouterr().out
    named = {name: "why" for name in all_names[90:100]} | {name: "why" for name in all_names[88:90]}
    results(tmp_path / "fewer" / "pure", outcomes(88, 12), all_names, "100 of 1000, chosen by seed 1")
    assert check.judge([tmp_path / "fewer"], named) == 1


def chooses(part: Path, tests: str = "own", **options) -> argparse.Namespace:
    return argparse.Namespace(**({"part": part, "tests": tests, "sample": None, "seed": 0, "shard": "0/1", "at_most": 200} | options))


@pytest.fixture
def part(tmp_path, monkeypatch) -> Path:
    """A part of ten mutants in a repository of its own."""
    (tmp_path / "src/pure").mkdir(parents=True)
    (tmp_path / "src/pure/a.rs").write_text("fn a() {}")
    (tmp_path / ".cargo").mkdir()
    (tmp_path / ".cargo/mutants.toml").write_text("minimum_test_timeout = 20.0\n")
    monkeypatch.setattr(check, "ROOT", tmp_path)
    monkeypatch.setattr(check, "digest", lambda file: (tmp_path / file).read_text())
    folder = tmp_path / "out/pure"
    folder.mkdir(parents=True)
    (folder / "listing.json").write_text(json.dumps([mutant(line, f"replace f{line} with ()") for line in range(10)]))
    return folder


def note(part: Path, outcome: str) -> None:
    kept = check.read(part)
    kept["results"] = {
        name: {"outcome": outcome, "seconds": 1.0, "source": "fn a() {}", "tests": "own"} for name in kept["chosen"]
    }
    check.write(part, kept)


def test_a_sample_is_the_same_for_the_same_seed_and_is_done_in_batches(part):
    assert check.choose(chooses(part, sample=6, seed=3, at_most=4)) == 0
    first = check.read(part)["chosen"]
    assert len(first) == 6 and (part / "config.toml").read_text().count("replace") == 4
    assert check.choose(chooses(part, sample=6, seed=3)) == 0
    assert check.read(part)["chosen"] == first
    check.choose(chooses(part, sample=6, seed=4))
    assert check.read(part)["chosen"] != first
    check.choose(chooses(part, sample=6, seed=3))
    note(part, "caught")
    assert check.choose(chooses(part, sample=6, seed=3)) == 3


def test_what_survives_the_own_tests_is_tried_with_all_of_them(part):
    check.choose(chooses(part))
    note(part, "missed")
    assert check.choose(chooses(part)) == 3
    assert check.choose(chooses(part, tests="all")) == 0
    check.forget(part)
    assert check.choose(chooses(part)) == 0


def test_what_is_named_is_tried_with_the_own_tests_alone(part, monkeypatch):
    names = [f"src/pure/a.rs: replace f{line} with ()" for line in range(10)]
    monkeypatch.setattr(check, "survivors", lambda: dict.fromkeys(names[:9], "no test can see it"))
    check.choose(chooses(part))
    assert sorted(check.left_to_try(check.read(part), "own")) == names
    note(part, "missed")
    assert check.left_to_try(check.read(part), "all") == names[9:]


def test_what_is_known_of_a_file_is_forgotten_when_it_changes(part, tmp_path):
    check.choose(chooses(part))
    note(part, "caught")
    assert check.choose(chooses(part)) == 3
    (tmp_path / "src/pure/a.rs").write_text("fn b() {}")
    assert check.choose(chooses(part)) == 0


def test_shards_have_each_mutant_once(part):
    seen = []
    for shard in range(3):
        check.choose(chooses(part, shard=f"{shard}/3"))
        seen += check.read(part)["chosen"]
    assert sorted(seen) == sorted(check.names_of(json.loads((part / "listing.json").read_text())).values())


def test_survivors_have_reasons(tmp_path):
    file = tmp_path / "survivors.txt"
    file.write_text("# comment\nsrc/a.rs: replace f with () | why\n")
    assert check.survivors(file) == {"src/a.rs: replace f with ()": "why"}
    file.write_text("src/a.rs: replace | with ^ in f | no bit stands on both sides\n")
    assert check.survivors(file) == {"src/a.rs: replace | with ^ in f": "no bit stands on both sides"}
    file.write_text("src/a.rs: replace f with ()\n")
    with pytest.raises(AssertionError, match="no reason"):
        check.survivors(file)
    assert isinstance(check.survivors(), dict)


def test_of_what_is_listed_only_the_batch_is_tried(part):
    for listed, expected in [("abc", ["0/1"]), ("xabyc", ["1/5", "2/5", "4/5"])]:
        (part / "batch.json").write_text(json.dumps(["a", "b", "c"]))
        (part / "listed.json").write_text(json.dumps([{"name": name} for name in listed]))
        assert check.shards(part) == expected

"""Whether enough mutants were caught: at least 95 % of those that build, without those that survivors.txt names with a reason."""

import re
import sys
from pathlib import Path

LEAST = 95.0
SURVIVORS = Path(__file__).with_name("survivors.txt")


def lines(folder: Path, *kinds: str) -> list[str]:
    names = [folder / "mutants.out" / f"{kind}.txt" for kind in kinds]
    return [line for name in names if name.is_file() for line in name.read_text().splitlines()]


def without_place(mutant: str) -> str:
    """`path: what was done`: lines and columns change with every edit."""
    return re.sub(r":\d+:\d+: ", ": ", mutant)


def survivors() -> dict[str, str]:
    named = {}
    for line in SURVIVORS.read_text().splitlines():
        if line and not line.startswith("#"):
            mutant, _, reason = line.partition(" | ")
            assert reason, f"{SURVIVORS.name}: no reason: {line}"
            named[mutant] = reason
    return named


def check(name: str, folder: Path, named: dict[str, str]) -> bool:
    again = folder / "again"
    caught = [*lines(folder, "caught", "timeout"), *lines(again, "caught", "timeout")]
    missed = lines(again if again.is_dir() else folder, "missed")
    caught, missed = [without_place(mutant) for mutant in caught], [without_place(mutant) for mutant in missed]
    equivalent = [mutant for mutant in missed if mutant in named]
    real = [mutant for mutant in missed if mutant not in named]
    viable = len(caught) + len(real)
    share = 100.0 * len(caught) / viable if viable else 100.0
    print(f"{name}: {viable} mutants, {len(caught)} caught ({share:.1f} %), {len(equivalent)} more that change nothing")
    for mutant in real:
        print(f"  missed: {mutant}")
    stale = [mutant for mutant in named if mutant in caught and mutant not in missed]
    for mutant in stale:
        print(f"  named in {SURVIVORS.name}, but caught: {mutant}")
    return share >= LEAST and not stale


def main() -> int:
    if sys.argv[1] == "--pattern":
        # Of what a run has missed, for another one.
        print("^(" + "|".join(map(re.escape, lines(Path(sys.argv[2]), "missed"))) + ")$")
        return 0
    out, named = Path(sys.argv[1]), survivors()
    results = [check(part, out / part, named) for part in sys.argv[2:]]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())

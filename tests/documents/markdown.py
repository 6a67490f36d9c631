"""Blocks, links and names of the repository's documents, read from their Markdown."""

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# What the documents may hold: blocks that are run, and blocks that are only read.
RUN = {"sh", "bash", "console", "python", "js", "javascript"}
READ = {"text", "yaml", "json"}

FENCE = re.compile(r"^( *)(`{3,})(.*)$")


@dataclass
class Block:
    """A fenced block, and the output that a `text` block right after it shows."""

    document: str
    line: int
    language: str
    text: str
    expected: str | None = None

    @property
    def where(self) -> str:
        return f"{self.document}:{self.line}"

    @property
    def first_line(self) -> str:
        return self.text.split("\n", 1)[0]


def files() -> list[str]:
    """Everything that the repository holds or is about to."""
    # In CI the folder is another user's.
    command = ["git", "-c", "safe.directory=*", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return [name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]


def documents() -> list[str]:
    """The documents, but for the changelog and what the bench has written."""
    return sorted(name for name in files() if name.endswith(".md") and name != "CHANGELOG.md" and not name.startswith("bench/figures/"))


def read(document: str) -> str:
    return (ROOT / document).read_text()


def blocks(document: str) -> list[Block]:
    found: list[Block] = []
    inside: Block | None = None
    between = False
    for number, line in enumerate(read(document).splitlines(), 1):
        fence = FENCE.match(line)
        if inside is None and fence:
            indent, ticks, language = fence.groups()
            inside, closing, lines = Block(document, number, language.strip(), ""), re.compile(rf"^ *{ticks}\s*$"), []
        elif inside is None:
            between = between or bool(line.strip())
        elif closing.match(line):
            inside.text = "\n".join(lines)
            before = found[-1] if found else None
            if inside.language == "text" and before and not between and before.language in RUN - {"console"} and before.expected is None:
                before.expected = inside.text
            else:
                found.append(inside)
            inside, between = None, False
        else:
            lines.append(line.removeprefix(indent))
    assert inside is None, f"{inside.where}: the block does not end"
    return found


def prose(document: str) -> list[tuple[int, str]]:
    """The lines outside of blocks, with their numbers."""
    kept, inside = [], False
    for number, line in enumerate(read(document).splitlines(), 1):
        if FENCE.match(line):
            inside = not inside
        elif not inside:
            kept.append((number, line))
    return kept


def anchors(document: str) -> set[str]:
    """What a link into the document may name, as GitHub makes it of the headings."""
    headings = [line.lstrip("#").strip() for _, line in prose(document) if re.match(r"^#{1,6} ", line)]
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}

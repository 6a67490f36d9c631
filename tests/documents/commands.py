"""Whether a block that is not run could be: its syntax, and the flags and words of the commands that are this repository's own."""

import itertools
import re
import shlex
import subprocess
import tomllib
from functools import cache
from pathlib import Path

from markdown import ROOT, Block

CARGO = {"bench", "build", "check", "clippy", "doc", "fmt", "install", "nextest", "run", "test"}
SCRIPTS = ("tests/run", ".ci/run", "conf/quickstart")


def commands(text: str) -> list[list[str]]:
    """The simple commands of a script, as words, without the variables that are set before them."""
    found = []
    for line in text.replace("\\\n", " ").splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        command: list[str] = []
        for word in [*lexer, ";"]:
            if set(word) <= set(";&|()<>"):
                if command:
                    found.append(command)
                command = []
            elif command or not re.match(r"^\w+=", word):
                command.append(word)
    return found


def check(block: Block, binary: Path):
    """Raises AssertionError when the block could not run as it stands."""
    syntax = subprocess.run(["bash", "-n"], input=block.text, capture_output=True, text=True, check=False)
    assert syntax.returncode == 0, f"{block.where}: {syntax.stderr}"
    for command in commands(block.text):
        at = next((at for at, word in enumerate(command) if Path(word).name == "tollgate"), None)
        if at is not None and command[at + 1 :] and command[at + 1] in subcommands(binary):
            check_tollgate(block, binary, command[at + 1 :])
        else:
            assert at != 0 or not command[1:] or command[1].startswith("-"), f"{block.where}: tollgate has no {command[1]}"
        if command[0] in SCRIPTS:
            text = script_help(command[0])
            for word in command[1:]:
                assert word in text, f"{block.where}: {command[0]} --help does not know {word}"
        if command[0] == "cargo":
            check_cargo(block, command[1:])


@cache
def help_of(binary: Path, words: tuple[str, ...]) -> str:
    done = subprocess.run([binary, *words, "--help"], capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 else ""


@cache
def script_help(script: str) -> str:
    return subprocess.run([ROOT / script, "--help"], capture_output=True, text=True, check=True).stdout


def subcommands(binary: Path, words: tuple[str, ...] = ()) -> set[str]:
    listed = help_of(binary, words).partition("Commands:\n")[2].partition("\n\n")[0]
    return set(re.findall(r"^ {2}([a-z]+) ", listed, re.M))


def check_tollgate(block: Block, binary: Path, words: list[str]):
    named: tuple[str, ...] = ()
    for word in words:
        if word not in subcommands(binary, named):
            break
        named += (word,)
    text = help_of(binary, named)
    for word in words:
        flag = word.split("=")[0]
        assert not flag.startswith("--") or re.search(rf"{re.escape(flag)}\b", text), f"{block.where}: tollgate {' '.join(named)} has no {flag}"


def check_cargo(block: Block, words: list[str]):
    aliases = tomllib.loads((ROOT / ".cargo/config.toml").read_text())["alias"]
    assert words[0] in CARGO or words[0] in aliases, f"{block.where}: cargo has no {words[0]} here"
    if words[0] in aliases:
        words = [*aliases[words[0]].split(), *words[1:]]
    if words[:3] == ["bench", "--bench", "load"]:
        options = (ROOT / "bench/load/cli.rs").read_text()
        for word in words[words.index("--") + 1 :] if "--" in words else []:
            name = word.lstrip("-").replace("-", "_")
            scenario = "".join(part.capitalize() for part in word.split("-"))
            known = word == "--help" or f" {name}: " in options if word.startswith("--") else f"    {scenario},\n" in options
            value = not word.startswith("--") and not re.fullmatch(r"[a-z]+(-[a-z]+)*", word)
            follows = words[words.index(word) - 1] in ("--subjects", "--streams", "--against", "--key", "--binary", "--out", "--model")
            assert known or value or follows, f"{block.where}: the load bench has no {word}"
        # Its client speaks no TLS.
        for word, follower in itertools.pairwise(words):
            assert word != "--against" or follower.startswith("http://"), f"{block.where}: the load bench cannot load {follower}"

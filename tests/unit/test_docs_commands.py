"""Every command in a fenced block of every page is read by the real parser: an unknown command, flag or value fails.
Targets of make are looked up in the Makefile. Consoles of two tutorials are run besides (test_tutorials_typed.py)."""

from __future__ import annotations

import importlib
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from minikube_py.cli import main as cli

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("docs/**/*.md"))]
FENCE = re.compile(r"^ *```(\w*)[^\n]*\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
ENDS = ("|", "||", "&&", "&", ";", ">", ">>", "2>", "<")
PROGRAMS = ("minikube-py", ".venv/bin/minikube-py")


class Line(NamedTuple):
    page: str
    number: int
    words: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.page}:{self.number}: {' '.join(self.words)}"


def lines_of(text: str) -> Iterator[tuple[int, str]]:
    """Lines of fenced blocks, continued ones as one."""
    for block in FENCE.finditer(text):
        if block[1] not in ("", "console", "bash", "sh", "shell"):
            continue
        first = text.count("\n", 0, block.start(2)) + 1
        held = ""
        for number, line in enumerate(block[2].splitlines(), first):
            if line.endswith("\\"):
                held += line[:-1]
                continue
            yield number, held + line
            held = ""


def commands(page: str, text: str) -> Iterator[Line]:
    for number, line in lines_of(text):
        bare = re.sub(r"\s#\s.*", "", re.sub(r"\$\([^)]*\)", "SUBSTITUTED", line)).strip().removeprefix("$ ")
        for part in re.split(r"&&|\|\||;|\|", bare):
            try:
                words = shlex.split(part)
            except ValueError:
                continue
            while words and re.fullmatch(r"[A-Z_]+=\S*|sudo|time|exec", words[0]):
                del words[0]
            end = next((at for at, word in enumerate(words) if word in ENDS), len(words))
            if words and (words[0] in PROGRAMS or words[0] == "make"):
                yield Line(page, number, tuple(words[:end]))


def is_message(line: Line) -> bool:
    """What a command printed, as `minikube-py up: ...`."""
    return any(word.endswith(":") for word in line.words[1:3])


ALL = [
    line for page in PAGES for line in commands(page.relative_to(ROOT).as_posix(), page.read_text(encoding="utf-8"))
]
OURS = [line for line in ALL if line.words[0] in PROGRAMS and "..." not in line.words and not is_message(line)]


def modules() -> Iterator[object]:
    for name in cli.COMMANDS:
        module = importlib.import_module(f"minikube_py.cli.{name.replace('-', '_')}")
        yield module
        for part in getattr(module, "SUBCOMMANDS", {}):
            yield importlib.import_module(f"{module.__name__}_{part.replace('-', '_')}")


@pytest.fixture
def nothing_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in modules():
        if hasattr(module, "run"):
            monkeypatch.setattr(module, "run", lambda arguments: 0)


def test_there_are_commands_on_most_pages() -> None:
    assert len(OURS) > 80 and len({line.page for line in OURS}) > 15


@pytest.mark.parametrize("line", OURS, ids=str)
def test_a_command_on_a_page_is_read(line: Line, nothing_runs: None, capsys: pytest.CaptureFixture[str]) -> None:
    code = cli.main(list(line.words[1:]))
    assert code == 0, f"{line}: {capsys.readouterr().err}"


@pytest.mark.parametrize("line", [line for line in ALL if line.words[0] == "make"], ids=str)
def test_a_target_on_a_page_is_there(line: Line) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    asked = {word for word in line.words[1:] if not re.match(r"[A-Z_]+=|-", word)}
    assert asked <= targets, line


@pytest.mark.parametrize("words", ["up --node 3", "store statuss", "upp", "bench query --nodes 0", "compare a"])
def test_a_wrong_command_is_found(words: str, nothing_runs: None) -> None:
    (line,) = commands("a.md", f"text\n\n```console\n$ minikube-py {words} # a comment\n```\n")
    assert cli.main(list(line.words[1:])) == 2

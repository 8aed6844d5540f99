"""Every command in a fenced block of every page is read by the real parser: an unknown command, flag or value fails.
Targets of make are looked up in the Makefile. tests/integration/test_docs_programs.py does the same for other programs;
the tutorials are typed besides."""

from __future__ import annotations

import importlib
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from doc_commands import ROOT, Line, commands, commands_of

from minikube_py.cli import input_files
from minikube_py.cli import main as cli

PROGRAMS = ("minikube-py", ".venv/bin/minikube-py")


def is_message(line: Line) -> bool:
    """What a command printed, as `minikube-py up: ...`."""
    return any(word.endswith(":") for word in line.words[1:3])


OURS = [line for line in commands_of(*PROGRAMS) if "..." not in line.words and not is_message(line)]


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
    # The files that a page names are the reader's.
    monkeypatch.setattr(input_files, "require_there", lambda text, *_: Path(text))


def test_there_are_commands_on_most_pages() -> None:
    assert len(OURS) > 80 and len({line.page for line in OURS}) > 15


@pytest.mark.parametrize("line", OURS, ids=str)
def test_a_command_on_a_page_is_read(line: Line, nothing_runs: None, capsys: pytest.CaptureFixture[str]) -> None:
    code = cli.main(list(line.words[1:]))
    assert code == 0, f"{line}: {capsys.readouterr().err}"


@pytest.mark.parametrize("line", commands_of("make"), ids=str)
def test_a_target_on_a_page_is_there(line: Line) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    asked = {word for word in line.words[1:] if not re.match(r"[A-Z_]+=|-", word)}
    assert asked <= targets, line


@pytest.mark.parametrize("line", commands_of("python", "tools/upstream"), ids=str)
def test_a_script_on_a_page_is_there_and_has_its_flags(line: Line) -> None:
    words = [word for word in line.words if word != "python"]
    if words[0].startswith("-"):
        return  # A module of Python's or pytest.
    script = ROOT / words[0]
    assert script.is_file()
    beside = "".join(path.read_text(encoding="utf-8") for path in script.parent.glob("*.py"))
    text = script.read_text(encoding="utf-8") + beside
    for flag in {word.partition("=")[0] for word in words if word.startswith("--")}:
        assert f'"{flag}"' in text, flag
    if script.name == "upstream":
        assert f'"{words[1]}"' in text


@pytest.mark.parametrize("line", commands_of("pip", ".venv/bin/pip"), ids=str)
def test_an_extra_on_a_page_is_one(line: Line) -> None:
    known = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    assert line.words[1] == "install"
    for listed in re.findall(r"\[(.*?)\]", " ".join(line.words)):
        assert set(listed.split(",")) <= known.keys()


TYPED = {
    "a-cost-model-of-your-own.md": "tests/unit/lab/test_model_tutorial.py",
    "a-scheduler-plugin-of-your-own.md": "tests/unit/lab/test_scheduler_tutorial.py",
    "an-index-of-your-own.md": "tests/integration/test_tutorials_typed.py",
    "kill-the-leader.md": "tests/integration/test_tutorials_typed.py",
    "testing-an-operator.md": "tests/unit/cluster/test_tutorial.py",
    "your-first-cluster.md": "tests/integration/test_tutorials_typed.py",
}
"""The test that types each tutorial."""


def test_every_tutorial_is_typed() -> None:
    assert TYPED.keys() == {page.name for page in ROOT.glob("docs/tutorials/*.md")}
    for page, test in TYPED.items():
        assert f'{page}"' in (ROOT / test).read_text(encoding="utf-8"), page


@pytest.mark.parametrize("words", ["up --node 3", "store statuss", "upp", "bench query --nodes 0", "compare a"])
def test_a_wrong_command_is_found(words: str, nothing_runs: None) -> None:
    (line,) = commands("a.md", f"text\n\n```console\n$ minikube-py {words} # a comment\n```\n")
    assert cli.main(list(line.words[1:])) == 2

"""What `--json` prints: snake_case, but for answers of the API server. Every command that has the flag is run."""

from __future__ import annotations

import argparse
import importlib
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from up_process import up

from minikube_py.cli.main import COMMANDS

EXAMPLE = Path(__file__).parents[2] / "examples/scheduler/best_fit.py:BestFit"
CAMEL = re.compile(r"[a-z0-9]+(?:[A-Z][A-Za-z0-9]*)+")
OF_THE_API = {f"index {name}" for name in ("create", "list", "stats", "drop", "explain")} | {"explain pod", "what-if"}
ALONE = {
    "compare": ["default", "default", "--scheduler-only", "--seeds", "2", "--pods", "20", "--nodes", "5"],
    "lab packing": ["--seeds", "42", "--policy", "bestfit"],
    "lab prediction": ["--seeds", "1", "--nodes", "1", "--predictor", "n-sigma", "--usage", "busy"],
    "index check": ["max-tree", "--examples", "1", "--no-bench"],
    "front check": ["max-vector", "--examples", "1", "--no-bench"],
    "model check": ["CPU_MEM", "--examples", "1"],
    "predictor check": ["n-sigma", "--examples", "1"],
    "plugin check": [str(EXAMPLE), "--examples", "1", "--no-bench"],
}
OF_THE_STORE = {
    "store status": [[]],
    "store hash": [[]],
    "store alarm": [["list"], ["disarm"]],
    "store transfer-leader": [["store-1"]],
    "store member": [["list"]],
    "store query": [["nodes", "free.cpu>=4", "--index", "fits"], ["nodes"]],
    "store snapshot": [
        ["save", "{folder}/s.snap"],
        ["verify", "{folder}/s.snap"],
        ["restore", "{folder}/s.snap", "--data-dir", "{folder}/new"],
    ],
    "store salvage": [["{folder}/new", "--to", "{folder}/saved"]],
}  # fmt: skip


def with_the_flag() -> Iterator[str]:
    for name in COMMANDS:
        module = importlib.import_module(f"minikube_py.cli.{name.replace('-', '_')}")
        for part in ("", *getattr(module, "SUBCOMMANDS", {})):
            place = f"{module.__name__}_{part.replace('-', '_')}" if part else module.__name__
            parser = argparse.ArgumentParser(add_help=False)
            command = importlib.import_module(place)
            if hasattr(command, "configure"):
                command.configure(parser)
                if "--json" in told(parser):
                    yield f"{name} {part}".strip()


def told(parser: argparse.ArgumentParser) -> set[str]:
    found = set(parser._option_string_actions)
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            found |= {flag for each in action.choices.values() for flag in told(each)}
    return found


def camel(document: Any) -> Iterator[str]:
    if isinstance(document, dict):
        yield from (key for key in document if CAMEL.fullmatch(key))
        document = list(document.values())
    if isinstance(document, list):
        for each in document:
            yield from camel(each)


def printed(words: list[str]) -> Any:
    done = subprocess.run([sys.executable, "-m", "minikube_py", *words, "--json"], capture_output=True, text=True)
    assert done.returncode == 0, f"{words}: {done.stderr}{done.stdout}"
    return json.loads(done.stdout)


def test_every_command_with_the_flag_is_run_here() -> None:
    assert set(with_the_flag()) == OF_THE_API | set(ALONE) | set(OF_THE_STORE)


@pytest.mark.parametrize("name", ALONE)
def test_a_command_without_a_cluster_prints_snake_case(name: str) -> None:
    assert list(camel(printed([*name.split(), *ALONE[name]]))) == []


def test_the_store_commands_print_snake_case(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with up("--members", "3", "--nodes", "0", "--data-dir", str(data)):
        for name, lines in OF_THE_STORE.items():
            for words in lines:
                given = [each.replace("{folder}", str(tmp_path)) for each in words]
                apart = name == "store salvage" or words[:1] in (["verify"], ["restore"])
                access = [] if apart else ["--data-dir", str(data)]
                assert list(camel(printed([*name.split(), *given, *access]))) == [], (name, words)


def test_camel_case_is_found() -> None:
    document = [{"meanFirst": 1, "a": {"atS": 2}}, {"NodeName": 3, "n-sigma": 4, "mean_first": 5}]
    assert list(camel(document)) == ["meanFirst", "atS"]

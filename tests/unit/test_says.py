"""What is said to people ends no work: nobody reads any more, or the disk of the log is full."""

from __future__ import annotations

import ast
import io
import sys
from pathlib import Path

import pytest

from minikube_py import env
from minikube_py.control_plane.linked_member import LinkedMember
from minikube_py.control_plane.progress import say
from minikube_py.sim.disk import SimDisk

PACKAGE = Path(env.__file__).parent
COMMANDS = ("cli", "lab", "studies", "sim")
"""Packages of commands that end when they have printed: a closed pipe may end them."""


class Broken(io.StringIO):
    def write(self, text: str) -> int:
        raise BrokenPipeError("nobody reads")


def printing(source: str) -> list[int]:
    """Lines that write to a standard stream by themselves."""
    found = []
    for node in ast.walk(ast.parse(source)):
        name = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
        if name == "print" or name in ("sys.stderr.write", "sys.stdout.write"):
            found.append(node.lineno)
        # As a default or an argument: whoever calls it later is ended by it.
        if isinstance(node, ast.arguments | ast.Call | ast.keyword):
            given = [*getattr(node, "defaults", ()), *getattr(node, "kw_defaults", ()), *getattr(node, "args", ())]
            given += [node.value] if isinstance(node, ast.keyword) else []
            found += [each.lineno for each in given if isinstance(each, ast.Name) and each.id == "print"]
    return found


def test_only_one_place_writes_to_standard_streams() -> None:
    found = {
        str(path.relative_to(PACKAGE)): lines
        for path in sorted(PACKAGE.rglob("*.py"))
        if path.relative_to(PACKAGE).parts[0] not in COMMANDS and (lines := printing(path.read_text()))
    }
    assert list(found) == ["env.py"] and len(found["env.py"]) == 1


def test_what_prints_is_found() -> None:
    assert printing("def f(say=print): sys.stderr.write('x')\nf(say=print)\nprint('y')") != []
    assert printing("def f(say=say): say('x')") == []


@pytest.mark.parametrize("stream", [Broken(), io.TextIOWrapper(io.BytesIO())])
def test_a_line_that_cannot_be_written_is_dropped(monkeypatch: pytest.MonkeyPatch, stream: io.TextIOBase) -> None:
    if not isinstance(stream, Broken):
        stream.close()
    monkeypatch.setattr(sys, "stdout", stream)
    monkeypatch.setattr(sys, "stderr", stream)
    say("hello")
    env.say("hello")
    env.say("hello", sys.stdout)


def test_what_a_members_listener_raises_stays_with_it() -> None:
    def broken(text: str) -> None:
        raise BrokenPipeError("nobody reads")

    linked = LinkedMember(
        SimDisk(env.Rng(1)), env.SystemClock(), env.Rng(1), None, name="one", fatal=broken, removed=broken, say=broken
    )
    linked.member.say("an alarm")

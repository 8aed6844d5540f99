"""Commands of other programs on the pages, read by the programs themselves: an unknown command or flag fails. `--help`
keeps them from doing anything; what arguments mean is not read."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from doc_commands import Line, commands, commands_of
from needs import absent, original_program, require_kubectls
from patience import PATIENCE_S

PROGRAMS = ("kubectl", "docker", "etcdctl", "etcdutl", "kube-scheduler")
LINES = [line for line in commands_of(*PROGRAMS) if "..." not in line.words]


def program(name: str) -> str | Path:
    if name == "kubectl":
        found = require_kubectls()
        return found[max(found)]
    if name == "docker":
        return shutil.which(name) or absent("docker is not on PATH")
    return original_program(name)


def reads(line: Line) -> str:
    """What it says against it."""
    words = list(line.words)
    # What follows these is for another program, or for the one in a container.
    at = next((number + 1 for number, word in enumerate(words) if word in ("run", "exec")), None)
    if words[0] != "docker" or at is None:
        at = words.index("--") if "--" in words else len(words)
    words.insert(at, "--help")
    done = subprocess.run([program(words[0]), *words[1:]], capture_output=True, text=True, timeout=PATIENCE_S)
    known = "unknown command" not in done.stderr and f"Usage:  {words[0]} [OPTIONS] COMMAND" not in done.stdout
    return "" if done.returncode == 0 and known else done.stderr + done.stdout[:200]


def test_there_are_commands_of_each_program() -> None:
    assert {line.words[0] for line in LINES} == set(PROGRAMS) and len(LINES) > 60


@pytest.mark.kubectl
@pytest.mark.parametrize("line", LINES, ids=str)
def test_a_command_on_a_page_is_read(line: Line) -> None:
    assert not reads(line), line


@pytest.mark.kubectl
@pytest.mark.parametrize(
    "words",
    [
        "kubectl get pods --bogus",
        "kubectl gett pods",
        "docker compose up --bogus",
        "docker run --bogus image",
        "docker runn image",
        "etcdctl get --bogus key",
        "etcdutl snapshott status file",
    ],
)
def test_a_wrong_command_is_found(words: str) -> None:
    (line,) = commands("a.md", f"```\n{words}\n```\n")
    assert reads(line)

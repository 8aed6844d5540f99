"""How worker processes are started, and that who gives up on one takes nothing away from it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from minikube_py.apiserver import workers
from minikube_py.apiserver.limits import Limits
from minikube_py.env import module_command


async def test_a_start_that_is_cancelled_keeps_its_descriptor_until_the_process_has_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reached, go_on, ended = threading.Event(), threading.Event(), threading.Event()
    seen: list[int] = []

    class Spawned:
        def __init__(self, command: list[str], stdin: int, stdout: int) -> None:
            seen.append(os.fstat(stdin).st_ino)
            reached.set()
            go_on.wait(60)
            seen.append(os.fstat(stdin).st_ino)

        def kill(self) -> None:
            seen.append(-1)

        def wait(self) -> int:
            ended.set()
            return 0

    monkeypatch.setattr(workers.subprocess, "Popen", Spawned)
    pool = workers.Workers(Limits())
    asking = asyncio.create_task(pool.run("as_yaml", b"{}"))
    await asyncio.to_thread(reached.wait, 60)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    go_on.set()
    await asyncio.to_thread(ended.wait, 60)
    assert len(seen) == 3
    assert seen[0] == seen[1]
    assert seen[2] == -1


def test_a_child_does_not_look_for_its_modules_in_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "minikube_py.py").write_text("print('a stranger')")
    root = str(Path(workers.__file__).parents[2])
    environment: dict[str, Any] = {**os.environ, "PYTHONPATH": root}
    command = module_command("minikube_py.apiserver.worker")
    done = subprocess.run(command, input=b"", env=environment, capture_output=True)
    assert b"a stranger" not in done.stdout
    assert command[:2] == [sys.executable, "-P"]


def test_a_checkout_that_is_not_installed_still_finds_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(workers.__file__).parents[2])
    assert "-P" not in module_command("minikube_py")

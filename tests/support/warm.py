"""Runs of pytest, each in a fork of a process that has imported once what all of them import: half of what a run costs.

A run has its own folder, environment, path, streams and end, as if `python -m pytest` had been started. What it cannot
show is what an import does: a test of that starts a process of its own.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import _pytest.config
import pytest

QUIET: Final = ("-W", "ignore::pytest.PytestAssertRewriteWarning")
"""What is imported before pytest begins has its assertions as they are."""


class Warm:
    """`modules`: what is imported, from `path` and what is installed. It begins with the first run."""

    def __init__(self, *modules: str, path: Sequence[str] = ()) -> None:
        self._began = json.dumps({"modules": modules, "path": [*path]})
        self._process: subprocess.Popen[str] | None = None

    def run(
        self, arguments: Sequence[str], folder: Path, environment: Mapping[str, str], out: Path, err: Path,
        timeout_s: float | None = None,
    ) -> int:  # fmt: skip
        """The exit code; -N for a run that signal N ended. Raises: TimeoutError."""
        if self._process is None:
            around = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "PYTEST_"))}
            self._process = subprocess.Popen(
                [sys.executable, __file__], env=around, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                start_new_session=True,
            )  # fmt: skip
            self._say(self._began)
        self._say(json.dumps({
            "arguments": [*QUIET, *arguments], "folder": str(folder), "environment": dict(environment),
            "out": str(out), "err": str(err),
        }))  # fmt: skip
        assert self._process.stdout is not None
        try:
            if not select.select([self._process.stdout], [], [], timeout_s)[0]:
                raise TimeoutError(f"not within {timeout_s} s: pytest {' '.join(arguments)}")
            return os.waitstatus_to_exitcode(int(self._process.stdout.readline()))
        except BaseException:
            # The test took too long, say: what runs for it may not answer the next one.
            os.killpg(self._process.pid, signal.SIGKILL)
            self.close()
            raise

    def close(self) -> None:
        """Only now what its runs used is known to who waits for it."""
        if self._process is not None:
            self._process.communicate()
            self._process = None

    def _say(self, line: str) -> None:
        assert self._process is not None and self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()


class WarmRuns:
    """As `popen` of a `Pytester`: its `runpytest_subprocess` runs in a fork; other commands run as ever."""

    def __init__(self, warm: Warm, pytester: pytest.Pytester) -> None:
        self._warm = warm
        self._path = pytester.path
        self._popen = pytester.popen

    def __call__(self, command: Sequence[str], *, stdout: Any, stderr: Any, **more: Any) -> Any:
        if tuple(command[:2]) != (sys.executable, "-mpytest"):
            return self._popen(command, stdout=stdout, stderr=stderr, **more)
        path = os.pathsep.join(filter(None, [os.getcwd(), os.environ.get("PYTHONPATH", "")]))
        around = {**os.environ, "PYTHONPATH": path, "HOME": str(self._path), "USERPROFILE": str(self._path)}
        return WarmRun(self._warm.run(command[2:], Path.cwd(), around, Path(stdout.name), Path(stderr.name)))


class WarmRun:
    """One that has ended."""

    stdin = None

    def __init__(self, code: int) -> None:
        self._code = code

    def wait(self, timeout: float | None = None) -> int:
        return self._code


def _next_run() -> dict[str, Any]:
    """Returns in each fork; the process that forks stays here, and ends with its input."""
    for line in sys.stdin:
        if not (child := os.fork()):
            return json.loads(line)  # type: ignore[no-any-return]
        _, status = os.waitpid(child, 0)
        print(status, flush=True)
    # Nothing to end: no run began here.
    os._exit(0)


def main() -> None:
    began = json.loads(sys.stdin.readline())
    installed = sys.path[1:]
    sys.path[:] = [*began["path"], *installed]
    for name in (*(f"_pytest.{name}" for name in _pytest.config.default_plugins), *began["modules"]):
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    # Most of what a run makes is imported, and stays: neither collections meanwhile nor the last one should walk it.
    gc.set_threshold(100_000, 20, 100)
    atexit.register(gc.freeze)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    run = _next_run()
    os.chdir(run["folder"])
    os.environ.clear()
    os.environ.update(run["environment"])
    sys.path[:] = [run["folder"], *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)), *installed]
    for number, place in ((0, os.devnull), (1, run["out"]), (2, run["err"])):
        opened = os.open(place, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        os.dup2(opened, number)
        os.close(opened)
    sys.exit(pytest.main(run["arguments"]))


if __name__ == "__main__":
    main()

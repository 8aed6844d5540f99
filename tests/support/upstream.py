"""Upstream for tests and benchmarks: by `tools/upstream`, from binaries already built.

Nothing is built here: that takes minutes, and has a separate command (`make upstream`)."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

SCRIPT = Path(__file__).resolve().parents[2] / "tools" / "upstream"
sys.path.insert(0, str(SCRIPT.parent))

from upstream_build import bin_folder, missing  # noqa: E402
from upstream_run import Parts  # noqa: E402

STOP_TIMEOUT_S = 60
_PARTS = ("--scheduler", "--controllers", "--kubelets", "--fairness")


class Absent(Exception):
    """The text states what is missing, and how to get it."""


def binary(name: str) -> Path:
    """Raises: Absent."""
    _require([name])
    return bin_folder() / name


@contextlib.contextmanager
def running(command: str, *flags: str, log: IO[str] | None = None) -> Iterator[dict[str, Any]]:
    """`command`: run or etcd, with its flags. Returns the script's output when all is ready. Raises: Absent."""
    parts = Parts(**{flag.removeprefix("--"): True for flag in flags if flag in _PARTS})
    _require(["etcd"] if command == "etcd" else parts.programs)
    process = subprocess.Popen(
        [sys.executable, str(SCRIPT), command, *flags], stdout=subprocess.PIPE, stderr=log, text=True,
        start_new_session=True,
    )  # fmt: skip
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        if not line:
            raise RuntimeError(f"upstream did not start: tools/upstream {command} {' '.join(flags)}")
        yield json.loads(line)
    finally:
        process.terminate()
        process.wait(STOP_TIMEOUT_S)
        process.stdout.close()


def _require(names: list[str]) -> None:
    if lacking := missing(names):
        raise Absent(f"upstream's {', '.join(lacking)} not built in {bin_folder()}: make upstream (needs Go)")

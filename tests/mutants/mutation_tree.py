"""A tree of its own for each worker: the commit's files, in which a mutant is planted and taken out again."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mutation_operators import Change
from mutation_worker import Answer, Request

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]


def commit_of(name: str = "HEAD") -> str:
    done = subprocess.run(["git", "rev-parse", name], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip()


class Tree:
    """The files of `commit` in `folder`, and a worker there. To be closed."""

    def __init__(self, folder: Path, commit: str) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        archive = subprocess.run(
            ["git", "archive", commit, "minikube_py", "tests", "pyproject.toml"],
            cwd=ROOT, capture_output=True, check=True,
        )  # fmt: skip
        subprocess.run(["tar", "-x", "-C", str(folder)], input=archive.stdout, check=True)
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "PYTHON"))}
        path = os.pathsep.join((str(folder), str(HERE)))
        self._worker = subprocess.Popen(
            [sys.executable, str(HERE / "mutation_worker.py")],
            cwd=folder, env={**kept, "PYTHONPATH": path, "PYTHONHASHSEED": "0"},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def ask(self, request: Request) -> Answer:
        assert self._worker.stdin is not None and self._worker.stdout is not None
        self._worker.stdin.write(json.dumps(request._asdict()) + "\n")
        self._worker.stdin.flush()
        line = self._worker.stdout.readline()
        if not line:
            raise SystemExit(f"the worker in {self.folder} ended with {self._worker.wait()}")
        return Answer(**json.loads(line))

    @contextmanager
    def planted(self, change: Change) -> Iterator[None]:
        file = self.folder / "minikube_py" / change.path
        healthy = file.read_bytes()
        try:
            self._write(file, change.apply(healthy))
            yield
        finally:
            self._write(file, healthy)

    def _write(self, file: Path, source: bytes) -> None:
        file.write_bytes(source)
        # Two texts of one size in one second would pass for each other.
        Path(importlib.util.cache_from_source(str(file))).unlink(missing_ok=True)

    def stop(self) -> None:
        """During a request, which is answered by nobody."""
        self._worker.terminate()

    def close(self) -> None:
        if self._worker.stdin is not None:
            self._worker.stdin.close()
        self._worker.wait()
        if self._worker.stdout is not None:
            self._worker.stdout.close()

"""A tree of its own for each worker: the commit's files, in which a mutant is planted and taken out again."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
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
    """The files of `commit` in `folder`, and two workers there: one that has nothing of the package loaded, and one
    that has collected all tests. To be closed."""

    def __init__(self, folder: Path, commit: str) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        archive = subprocess.run(
            ["git", "archive", commit, "minikube_py", "tests", "tools", "docs", "pyproject.toml"],
            cwd=ROOT, capture_output=True, check=True,
        )  # fmt: skip
        subprocess.run(["tar", "-x", "-C", str(folder)], input=archive.stdout, check=True)
        self._cold = self._worker("mutation_worker.py")
        self._warm: subprocess.Popen[str] | None = None

    def _worker(self, script: str, *arguments: str) -> subprocess.Popen[str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "PYTHON"))}
        path = os.pathsep.join((str(self.folder), str(HERE)))
        return subprocess.Popen(
            [sys.executable, str(HERE / script), *arguments],
            cwd=self.folder, env={**kept, "PYTHONPATH": path, "PYTHONHASHSEED": "0"},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def ask(self, request: Request) -> Answer:
        return self._asked(self._cold, request)

    def warm_up(self, files: Sequence[str]) -> None:
        """Raises: SystemExit if the tests cannot be collected."""
        if self._warm is None:
            self._warm = self._worker("mutation_warm.py", *files)
            self._answered(self._warm)

    def ask_warm(self, request: Request, change: Change | None) -> Answer:
        """With the mutant in what is loaded, and, for processes that tests start, in the files. Outcome: cold, where
        that cannot be done."""
        assert self._warm is not None, "warm_up is missing"
        if change is None:
            return self._asked(self._warm, request)
        with self.planted(change) as source:
            return self._asked(self._warm, request._replace(source=source))

    def _asked(self, worker: subprocess.Popen[str], request: Request) -> Answer:
        assert worker.stdin is not None
        worker.stdin.write(json.dumps(request._asdict()) + "\n")
        worker.stdin.flush()
        return self._answered(worker)

    def _answered(self, worker: subprocess.Popen[str]) -> Answer:
        assert worker.stdout is not None
        line = worker.stdout.readline()
        if not line:
            raise SystemExit(f"a worker in {self.folder} ended with {worker.wait()}")
        return Answer(**json.loads(line))

    @contextmanager
    def planted(self, change: Change) -> Iterator[list[str]]:
        """Gives the file's name, its healthy text and the one in force."""
        file = self.folder / "minikube_py" / change.path
        healthy = file.read_bytes()
        mutated = change.apply(healthy)
        with self.replaced({file: mutated}):
            yield [str(file), healthy.decode(), mutated.decode()]

    @contextmanager
    def replaced(self, texts: Mapping[Path, bytes]) -> Iterator[None]:
        healthy = {file: file.read_bytes() for file in texts}
        try:
            for file, text in texts.items():
                self._write(file, text)
            yield
        finally:
            for file, text in healthy.items():
                self._write(file, text)

    def _write(self, file: Path, source: bytes) -> None:
        file.write_bytes(source)
        # Two texts of one size in one second would pass for each other.
        Path(importlib.util.cache_from_source(str(file))).unlink(missing_ok=True)

    def _workers(self) -> Iterator[subprocess.Popen[str]]:
        yield self._cold
        if self._warm is not None:
            yield self._warm

    def stop(self) -> None:
        """During a request, which is answered by nobody."""
        for worker in self._workers():
            worker.terminate()

    def close(self) -> None:
        for worker in self._workers():
            if worker.stdin is not None:
                worker.stdin.close()
            worker.wait()
            if worker.stdout is not None:
                worker.stdout.close()

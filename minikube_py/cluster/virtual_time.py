"""The part of the public API for virtual time: time that passes by `advance`, and a history."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from minikube_py.cluster.arguments import SECONDS_MAX, FilePath, Main, Namespace, Plain, Span, Word
from minikube_py.cluster.errors import ClusterError
from minikube_py.cluster.methods import BlockingMethods

if TYPE_CHECKING:
    # Imported with the first cluster in virtual time.
    from minikube_py.cluster.inputs import Input
    from minikube_py.cluster.program import Program
    from minikube_py.cluster.virtual_engine import VirtualEngine

T = TypeVar("T")


class InVirtualTime(BlockingMethods):
    """All raise ClusterError in real time."""

    def _virtual(self) -> VirtualEngine:
        raise NotImplementedError

    @property
    def now_s(self) -> float:
        """Virtual seconds since the cluster was created."""
        return self._virtual().virtual.now_s

    @property
    def digest(self) -> str:
        """SHA-256 of the history so far; see `minikube_py.cluster.history`."""
        return self._virtual().virtual.digest

    @property
    def inputs(self) -> Sequence[Input]:
        """All external inputs, in order: requests that write, advances, faults."""
        return tuple(self._virtual().inputs)

    def save_log(self, path: FilePath) -> None:
        """Seed, nodes and inputs, for `minikube-py replay --from PATH --until EVENT`, which replays the history."""
        from minikube_py.cluster import input_log

        engine = self._virtual()
        engine.require_whole()
        try:
            input_log.write(Path(path), engine)
        except OSError as error:
            raise ClusterError(f"path: {path} cannot be written: {error.strerror}") from error

    def advance(self, seconds: Span = 0.0, *, minutes: Span = 0.0, hours: Span = 0.0) -> None:
        """Runs everything due within that virtual time, including its end.

        Raises: ClusterError for negative or infinite time; SimFailure."""
        engine, duration_s = self._virtual(), seconds + 60 * minutes + 3600 * hours
        if duration_s > SECONDS_MAX:
            raise ClusterError(f"seconds, minutes and hours are {SECONDS_MAX:,.0f} s at most, not {duration_s:g} s")
        engine.advance(duration_s)

    def run(self, main: Plain[T]) -> T:
        """Returns or raises what `main()` does, on the cluster's loop; virtual time passes as needed."""
        found: T = self._virtual().run(main)
        return found

    def program(self, main: Main, *, name: Word | None = None, namespace: Namespace | None = None) -> Program:
        """Runs your program as a separate process beside the control plane: `main(clients)` starts now, is restarted if
        it raises, and may `crash()`. A coroutine function uses `clients.httpx_asyncio()`,
        `clients.lightkube_asyncio()`, `await clients.kubernetes_asyncio()`; a plain function `clients.httpx()`,
        `clients.lightkube()`, `clients.kubernetes()` and `time.sleep`. Faults affect it."""
        called = name or str(getattr(main, "__name__", "program"))
        return self._virtual().start_program(main, called, namespace or self.namespace)

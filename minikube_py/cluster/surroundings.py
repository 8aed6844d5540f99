"""What programs under test meet in the process beside the cluster: what they draw by themselves, the parts of asyncio
that differ between versions of Python, and the files in which clients remember a server."""

from __future__ import annotations

import hashlib
import importlib
import os
import random
import sys
import tempfile
import threading
from asyncio import events
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

from minikube_py.cluster.in_process import SERVER
from minikube_py.env import Rng
from minikube_py.sim.replaced import Replaced
from minikube_py.sim.tasks import AS_COMPLETED, WAIT_FOR, WRAP_FUTURE

_thread: Final = threading.local()
_one_at_a_time: Final = threading.RLock()


def _urandom(size: int) -> bytes:
    """On the loop or thread of a program: from its cluster's seed."""
    around = getattr(_thread, "around", None) or getattr(events._get_running_loop(), "around", None)
    found: bytes = URANDOM.own(size) if around is None else around.rng.randbytes(size)
    return found


def _find_and_load(name: str, import_: Any) -> Any:
    """Imports a module that is not loaded yet. Which those are differs between environments, and between two runs in
    a process: what modules draw meanwhile leaves the draws of programs as they were."""
    around = getattr(_thread, "around", None) or getattr(_thread, "in_force", None)
    if around is None or name in sys.modules:
        return IMPORTED.own(name, import_)
    with around.for_import(name):
        return IMPORTED.own(name, import_)


URANDOM: Final = Replaced(os, "urandom", _urandom)
"""`secrets`, `uuid.uuid4` and numpy's unseeded generators come from it."""
OF_RANDOM: Final = Replaced(random, "_urandom", _urandom)
"""The same, as `random` has bound it."""
IMPORTED: Final = Replaced(importlib._bootstrap, "_find_and_load", _find_and_load)  # type: ignore[attr-defined]
REPLACED: Final = (URANDOM, OF_RANDOM, IMPORTED, AS_COMPLETED, WAIT_FOR, WRAP_FUTURE)


class Surroundings:
    """Of all programs of a cluster with that seed. `server`: the URL that their clients know; other clusters, and other
    runs of the same, have others, because clients keep what they discovered in a file named for it."""

    def __init__(self, seed: object) -> None:
        self.rng = Rng(f"draws {seed}")
        self._seed = seed
        self.server = f"{SERVER}-{URANDOM.own(8).hex()}"
        self._states = _first(self.rng)
        self._unloaded: Any = None
        """As if it were the state of numpy's generator, which nothing has imported yet."""
        for each in REPLACED:
            each.hold()

    def release(self) -> None:
        """Once nothing of them runs any more."""
        for each in REPLACED:
            each.release()
        name = hashlib.md5(self.server.encode(), usedforsecurity=False).hexdigest()
        with suppress(OSError):
            # Of DynamicClient.
            os.unlink(os.path.join(tempfile.gettempdir(), f"osrcp-{name}.json"))

    def on_this_thread(self) -> None:
        """A program runs here until the thread's end."""
        _thread.around = self

    def runs_here(self) -> bool:
        """Whether the calling thread is one of its programs'."""
        return getattr(_thread, "around", None) is self

    @contextmanager
    def in_force(self) -> Iterator[None]:
        """Programs run meanwhile, and those of no other cluster, because `random` and numpy have one state in a
        process."""
        with _one_at_a_time:
            before, _thread.in_force = getattr(_thread, "in_force", None), self
            kept = self._exchanged(self._states)
            try:
                yield
            finally:
                self._states = self._exchanged(kept)
                _thread.in_force = before

    @contextmanager
    def for_import(self, name: str) -> Iterator[None]:
        """The module has draws of its own, by its name."""
        kept, self.rng = self.rng, Rng(f"import {name} {self._seed}")
        states = self._exchanged(_first(self.rng))
        try:
            yield
        finally:
            self.rng = kept
            self._exchanged(states)

    def _exchanged(self, states: list[Any]) -> list[Any]:
        """The states of `random` and of numpy's global generator, which now have `states`."""
        numpy: Any = sys.modules.get("numpy.random")
        # While it is imported, it has none yet.
        is_loaded = hasattr(numpy, "get_state")
        found = [random.getstate(), numpy.get_state() if is_loaded else self._unloaded]
        random.setstate(states[0])
        if not is_loaded:
            self._unloaded = states[1]
        else:
            (numpy.set_state if isinstance(states[1], tuple) else numpy.seed)(states[1])
        return found


def _first(rng: Rng) -> list[Any]:
    """The first states: of numpy's generator, a seed."""
    return [random.Random(rng.getrandbits(64)).getstate(), rng.getrandbits(32)]

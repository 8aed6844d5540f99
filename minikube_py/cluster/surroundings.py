"""What programs under test meet in the process beside the cluster: what they draw by themselves, the parts of asyncio
that differ between versions of Python, and the files in which clients remember a server."""

from __future__ import annotations

import hashlib
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


URANDOM: Final = Replaced(os, "urandom", _urandom)
"""`secrets`, `uuid.uuid4` and numpy's unseeded generators come from it."""
OF_RANDOM: Final = Replaced(random, "_urandom", _urandom)
"""The same, as `random` has bound it."""
REPLACED: Final = (URANDOM, OF_RANDOM, AS_COMPLETED, WAIT_FOR, WRAP_FUTURE)


class Surroundings:
    """Of all programs of a cluster with that seed. `server`: the URL that their clients know; other clusters, and other
    runs of the same, have others, because clients keep what they discovered in a file named for it."""

    def __init__(self, seed: object) -> None:
        self.rng = Rng(f"draws {seed}")
        self.server = f"{SERVER}-{URANDOM.own(8).hex()}"
        self._states: list[Any] = [random.Random(self.rng.getrandbits(64)).getstate(), None]
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
            yield from self._exchanging()

    def _exchanging(self) -> Iterator[None]:
        numpy = sys.modules.get("numpy.random")
        if numpy is not None and self._states[1] is None:
            self._states[1] = numpy.RandomState(self.rng.getrandbits(32)).get_state()
        kept = _exchanged(self._states, numpy)
        try:
            yield
        finally:
            self._states = _exchanged(kept, numpy)


def _exchanged(states: list[Any], numpy: Any) -> list[Any]:
    """The states of `random` and of numpy's global generator, which now have `states`."""
    found = [random.getstate(), None if numpy is None else numpy.get_state()]
    random.setstate(states[0])
    if numpy is not None and states[1] is not None:
        numpy.set_state(states[1])
    return found

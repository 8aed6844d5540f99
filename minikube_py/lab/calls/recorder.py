"""The record of a run: counts and latencies of every kind of call, and the most recent calls individually.

Counts cover all calls; individual ones are kept for diagrams, the newest `KEPT_MAX`.
"""

from __future__ import annotations

from array import array
from collections import Counter, deque
from collections.abc import Callable
from contextvars import ContextVar
from typing import Final, Literal, NamedTuple

from minikube_py.env import Clock
from minikube_py.lab.calls.shapes import Shape

KEPT_MAX: Final = 400_000

Layer = Literal["api", "store", "events", "delivery"]
"""A request to an API server; its store call; an event from its store watch; a delivery to a watcher."""


class Caller(NamedTuple):
    """The request that an API server is processing. `purpose`: its intent (`bind`, `status`), empty for plain verbs.
    `request` numbers API requests; 0: the API server's own action."""

    role: str
    verb: str = ""
    purpose: str = ""
    request: int = 0


API_SERVER: Final = "API server"
ITSELF: Final = Caller(API_SERVER)
CALLER: ContextVar[Caller] = ContextVar("caller", default=ITSELF)


class Call(NamedTuple):
    """`server`: the API server involved. `names`: objects as `namespace/name`, as far as known.

    Times in seconds on the run's monotonic clock; an event has only one. `outcome`: `done`, a status, an error."""

    layer: Layer
    role: str
    server: str
    text: str
    resource: str
    names: tuple[str, ...]
    sent_s: float
    ended_s: float
    outcome: str
    request: int
    note: str = ""


class Kind(NamedTuple):
    """The key by which store calls are counted."""

    operation: str
    shape: str
    resource: str
    role: str


class Recorder:
    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.latencies_s: dict[Kind, array[float]] = {}
        self.parts: Counter[str] = Counter()
        self.failures: Counter[str] = Counter()
        self.requests: Counter[tuple[str, str, str]] = Counter()
        """API requests by role, verb and resource."""
        self.events: Counter[str] = Counter()
        """Watch batches and events, by where they were observed."""
        self.kept: deque[Call] = deque(maxlen=KEPT_MAX)
        self.began_s = clock.monotonic_s()
        self._numbers = 0

    def next_number(self) -> int:
        self._numbers += 1
        return self._numbers

    def keep(self, call: Call) -> None:
        self.kept.append(call)

    def count(self, kind: Kind, shape: Shape, duration_s: float, outcome: str) -> None:
        """One store call."""
        found = self.latencies_s.get(kind)
        if found is None:
            found = self.latencies_s[kind] = array("d")
        found.append(duration_s)
        self.parts[shape.operation] += 1
        self.parts.update(shape.parts)
        if outcome != "done":
            self.failures[f"{shape.operation}: {outcome}"] += 1

    def stored(
        self,
        shape: Shape,
        resource: str,
        names: tuple[str, ...],
        role: str,
        server: str,
        sent_s: float,
        outcome: str,
        request: int = 0,
        note: str = "",
    ) -> None:
        """A store call that ends now: counted, and kept."""
        ended_s = self.clock.monotonic_s()
        self.count(Kind(shape.operation, shape.text, resource, role), shape, ended_s - sent_s, outcome)
        text = shape.operation if shape.text == shape.operation else f"{shape.operation}: {shape.text}"
        self.keep(Call("store", role, server, text, resource, names, sent_s, ended_s, outcome, request, note))

    def between(self, from_s: float, to_s: float, wanted: Callable[[Call], bool] = lambda _: True) -> list[Call]:
        """The kept calls that started in [from_s, to_s), in order."""
        found = [call for call in self.kept if from_s <= call.sent_s < to_s and wanted(call)]
        return sorted(found, key=lambda call: call.sent_s)

    @property
    def total(self) -> int:
        return sum(map(len, self.latencies_s.values()))

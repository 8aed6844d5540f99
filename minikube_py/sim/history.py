"""The requests and answers of clients as plain records: all that the checkers know of a run.

Written by whatever runs clients: the simulators, and tests on real processes. Times are microseconds of one clock; in a
simulation no two events share one. Requests and results are the store's types (`mvcc.types`)."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, Final, Literal, NamedTuple

from minikube_py.errors import MinikubeError
from minikube_py.fields.where import Where
from minikube_py.mvcc.types import Command, RangeRequest, RangeResult, Result, WatchBatch


class KeepAlive(NamedTuple):
    """A request to renew a lease to its full TTL. Its answer is a LeaseResult of revision 0; TTL 0: the lease does not
    exist."""

    id: int


Request = Command | RangeRequest | KeepAlive
Status = Literal["done", "refused", "unknown"]
NEVER_US: Final = 1 << 62
"""The time of an event that never happened."""


class Operation(NamedTuple):
    """One request from call to end. done: `result` arrived. refused: `error` is the reason; nothing changed. unknown:
    it may have been done, or may be later; then `return_us` is None. `serializable`: a read of one member's applied
    state."""

    client: int
    call_us: int
    return_us: int | None
    request: Request
    status: Status
    result: Result | RangeResult | None = None
    error: MinikubeError | None = None
    serializable: bool = False
    member: int = 0

    def __str__(self) -> str:
        """In one line, for display."""
        until = "?" if self.return_us is None else f"{self.return_us / 1e6:.6f}"
        outcome = self.result if self.status == "done" else self.error if self.status == "refused" else "unknown"
        return f"client {self.client} [{self.call_us / 1e6:.6f}, {until}] {shown(self.request)} -> {shown(outcome)}"


def shown(value: Any) -> str:
    """A record in one line, without fields that have their defaults."""
    if isinstance(value, Exception):
        return f"{type(value).__name__}: {value}"
    if is_dataclass(value) and not isinstance(value, Where):
        pairs = [(each.name, getattr(value, each.name)) for each in fields(value) if each.init]
        defaults = {each.name: each.default for each in fields(value)}
    elif hasattr(value, "_fields"):
        pairs, defaults = list(zip(value._fields, value)), value._field_defaults
    elif isinstance(value, list | tuple):
        return f"[{', '.join(map(shown, value))}]"
    else:
        return str(value) if isinstance(value, str | Where) else repr(value)
    told = [f"{name}={shown(item)}" for name, item in pairs if name not in defaults or item != defaults[name]]
    return f"{type(value).__name__}({', '.join(told)})"


class Delivery(NamedTuple):
    at_us: int
    batch: WatchBatch


@dataclass(slots=True)
class WatchPart:
    """One stream of a watch: its start, its member, and its events. `created_revision`: the member reported that a
    watch "from now on" excludes what came before it."""

    start_revision: int
    opened_us: int
    member: int = 0
    deliveries: list[Delivery] = field(default_factory=list)
    created_revision: int = 0

    @property
    def told_until(self) -> int:
        """The revision up to which its client has everything it requested."""
        return self.deliveries[-1].batch.revision if self.deliveries else self.start_revision - 1


@dataclass(slots=True)
class Watch:
    """One client's watch. `parts`: a broken stream is followed by another, from where the client had stopped. `live`:
    it was still being served when the history ended."""

    client: int
    key: bytes
    range_end: bytes = b""
    where: Where | None = None
    parts: list[WatchPart] = field(default_factory=list)
    live: bool = False

    def __str__(self) -> str:
        where = f" where {self.where}" if self.where else ""
        return f"client {self.client}'s watch on [{self.key!r}, {self.range_end!r}){where}"


@dataclass(slots=True)
class History:
    """In order of return; operations without one are placed where their client gave up."""

    operations: list[Operation] = field(default_factory=list)
    watches: list[Watch] = field(default_factory=list)

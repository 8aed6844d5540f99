"""Root errors, by who is to blame and by what is known of the outcome.

A request is done, refused or unknown. `RequestError` and `Unavailable` are refusals: nothing changed. `OutcomeUnknown`
means that the outcome cannot be determined; no layer may turn it into one of the others.
"""

from __future__ import annotations

from reprlib import Repr
from typing import Any


def to_install(extra: str) -> str:
    """What to run where a package of an extra is missing. The project is on no package index, where its name could be
    anyone's, so that only a checkout is named."""
    return f"run pip install '.[{extra}]' in the source folder of minikube_py"


SHOWN_CHARS_MAX = 160


class _Shown(Repr):
    """Looks at the beginning of a value only."""

    def repr_bytes(self, x: bytes, level: int) -> str:
        return repr(x) if len(x) <= self.maxstring else f"{x[: self.maxstring]!r}..."

    def repr_dict(self, x: dict[Any, Any], level: int) -> str:
        return f"a map of {len(x)}"

    def repr_instance(self, x: object, level: int) -> str:
        return repr(x) if x is None or isinstance(x, int | float) else f"a {type(x).__name__}"


_SHOWN = _Shown()
_SHOWN.maxlevel, _SHOWN.maxstring, _SHOWN.maxlong = 3, 80, 80


def shown(value: object) -> str:
    """A value that was received, for a message about it: bounded in length, depth and time, so that no value makes the
    message fail or wait, as the `repr` of nested and of large ones does."""
    text = _SHOWN.repr(value)
    return text if len(text) <= SHOWN_CHARS_MAX else f"{text[:SHOWN_CHARS_MAX]}..."


ASK_AGAIN = "ask again in a moment"
"""The end of a refusal's message where what is missing is on its way."""


class MinikubeError(Exception):
    """Root of all errors of this package."""


class RequestError(MinikubeError):
    """The request is invalid; nothing changed, and a retry will not help."""


class Unavailable(MinikubeError):
    """Refused for now; nothing changed, and the same request may succeed later."""


class Leaderless(Unavailable):
    """No leader took or confirmed the request in time."""


class OutcomeUnknown(MinikubeError):
    """The response was lost after the request was sent: it may or may not have been executed."""


class NotLeader(Unavailable):
    """This member is not the leader. `leader_id` 0: no known leader. `address`: where clients reach it, or ""."""

    def __init__(self, leader_id: int = 0, address: str = "") -> None:
        where = f" at {address}" if address else ""
        known = f"member {leader_id:x}{where} leads" if leader_id else "it knows no leader"
        super().__init__(f"this member does not lead; {known}")
        self.leader_id = leader_id
        self.address = address


class SessionExpired(OutcomeUnknown):
    """The request's session is no longer open, or has forgotten the request: it was not executed now, and never will
    be; whether it was executed before is unknown."""


class FieldsRedeclared(Unavailable):
    """The fields that a watch uses were declared again: its earlier events do not lead to the current state."""


class Corruption(MinikubeError):
    """Stored bytes differ from what was written. The process must stop."""


class Compacted(RequestError):
    """A revision below the compacted one was requested (etcd: `ErrCompacted`)."""

    def __init__(self, requested: int, compact_revision: int) -> None:
        super().__init__("etcdserver: mvcc: required revision has been compacted")
        self.requested = requested
        self.compact_revision = compact_revision


class FutureRevision(RequestError):
    """A revision above the current one was requested (etcd: `ErrFutureRev`)."""

    def __init__(self, requested: int, current: int) -> None:
        super().__init__("etcdserver: mvcc: required revision is a future revision")
        self.requested = requested
        self.current = current


class InvalidRequest(RequestError):
    """A request that etcd refuses as InvalidArgument; the text is etcd's (api/v3rpc/rpctypes/error.go)."""


class WrongUsage(InvalidRequest):
    """Flags or arguments of a command that do not fit together; it ends with exit code 2."""


class LeaseNotFound(RequestError):
    def __init__(self) -> None:
        super().__init__("etcdserver: requested lease not found")


class LeaseExists(RequestError):
    def __init__(self) -> None:
        super().__init__("etcdserver: lease already exists")


class NoSpace(RequestError):
    """A growing write, and a member is out of space (etcd: `ErrNoSpace`). `why`: which one, and what to do."""

    advice = ""
    """What to do if the store without space is not ours."""

    def __init__(self, why: str = "") -> None:
        words = "etcdserver: mvcc: database space exceeded"
        super().__init__(why if why.startswith(words) else f"{words}: {why}" if why else words)


class ClusterCorrupt(RequestError):
    """Members hold different data without an agreeing majority: writes are refused (etcd: `ErrCorrupt`)."""

    advice = ""
    """As `NoSpace.advice`."""

    def __init__(self) -> None:
        super().__init__("etcdserver: corrupt cluster")


class RequestTooLarge(RequestError):
    def __init__(self, size_bytes: int, limit_bytes: int) -> None:
        super().__init__(f"etcdserver: request is too large: {size_bytes} bytes, limit {limit_bytes}")
        self.size_bytes = size_bytes
        self.limit_bytes = limit_bytes

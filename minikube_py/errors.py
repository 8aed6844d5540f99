"""Root errors, split by who is to blame and by what is known of the outcome.

A request ends as done, refused or unknown. `RequestError` and `Unavailable` are refusals: nothing changed.
`OutcomeUnknown` says that nobody can tell; no layer may turn it into one of the others.
"""

from __future__ import annotations


class MinikubeError(Exception):
    """Root of all errors of this package."""


class RequestError(MinikubeError):
    """The request is at fault; nothing changed, and sending it again will not help."""


class Unavailable(MinikubeError):
    """Refused for now; nothing changed, and the same request may succeed later."""


class OutcomeUnknown(MinikubeError):
    """The answer was lost after the request was sent: it may or may not have been done."""


class NotLeader(Unavailable):
    """This member does not lead. `leader_id` 0: it knows of no leader. `address`: where clients reach it, or ""."""

    def __init__(self, leader_id: int = 0, address: str = "") -> None:
        where = f" at {address}" if address else ""
        known = f"member {leader_id:x}{where} leads" if leader_id else "it knows of no leader"
        super().__init__(f"this member does not lead; {known}")
        self.leader_id = leader_id
        self.address = address


class SessionExpired(OutcomeUnknown):
    """The session named by the request is not open any more, or has forgotten the request: it was not executed now,
    and never will be; whether it was before, nobody can tell."""


class FieldsRedeclared(Unavailable):
    """The fields a watch asked about were declared again: what it has shown does not lead to what holds now."""


class Corruption(MinikubeError):
    """Stored bytes are not what was written. The process must stop over going on."""


class Compacted(RequestError):
    """A revision below the compacted one was asked for (etcd: `ErrCompacted`)."""

    def __init__(self, requested: int, compact_revision: int) -> None:
        super().__init__("etcdserver: mvcc: required revision has been compacted")
        self.requested = requested
        self.compact_revision = compact_revision


class FutureRevision(RequestError):
    """A revision above the current one was asked for (etcd: `ErrFutureRev`)."""

    def __init__(self, requested: int, current: int) -> None:
        super().__init__("etcdserver: mvcc: required revision is a future revision")
        self.requested = requested
        self.current = current


class InvalidRequest(RequestError):
    """A request that etcd refuses as InvalidArgument; the text is etcd's (api/v3rpc/rpctypes/error.go)."""


class LeaseNotFound(RequestError):
    def __init__(self) -> None:
        super().__init__("etcdserver: requested lease not found")


class LeaseExists(RequestError):
    def __init__(self) -> None:
        super().__init__("etcdserver: lease already exists")


class NoSpace(RequestError):
    """A write that grows, and a member has no room for it (etcd: `ErrNoSpace`). `why`: which one, and what to do."""

    advice = ""
    """What to do, where it is not a store of ours that has no room."""

    def __init__(self, why: str = "") -> None:
        words = "etcdserver: mvcc: database space exceeded"
        super().__init__(why if why.startswith(words) else f"{words}: {why}" if why else words)


class ClusterCorrupt(RequestError):
    """Members hold different data, and no majority agrees: nothing is written (etcd: `ErrCorrupt`)."""

    advice = ""
    """As `NoSpace.advice`."""

    def __init__(self) -> None:
        super().__init__("etcdserver: corrupt cluster")


class RequestTooLarge(RequestError):
    def __init__(self, size_bytes: int, limit_bytes: int) -> None:
        super().__init__(f"etcdserver: request is too large: {size_bytes} bytes, limit {limit_bytes}")
        self.size_bytes = size_bytes
        self.limit_bytes = limit_bytes

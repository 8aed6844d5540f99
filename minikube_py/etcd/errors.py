"""How a failed request is reported to etcd's clients: gRPC's code with etcd's text, by which they distinguish errors.

Source: etcd's api/v3rpc/rpctypes/error.go."""

from __future__ import annotations

from typing import Any, Final

from minikube_py.errors import (
    ClusterCorrupt,
    Compacted,
    FutureRevision,
    InvalidRequest,
    Leaderless,
    LeaseExists,
    LeaseNotFound,
    MinikubeError,
    NoSpace,
    NotLeader,
    OutcomeUnknown,
    RequestTooLarge,
    Unavailable,
)
from minikube_py.etcd.codes import StatusCode
from minikube_py.mvcc import auth

Status = tuple[Any, str]
"""gRPC's code and the text."""


class Refused(Exception):
    """Ends a request with this status."""

    def __init__(self, code: Any, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


def _invalid(text: str) -> tuple[Any, str]:
    return StatusCode.INVALID_ARGUMENT, f"etcdserver: {text}"


def _failed(text: str) -> tuple[Any, str]:
    return StatusCode.FAILED_PRECONDITION, f"etcdserver: {text}"


def _unavailable(text: str) -> tuple[Any, str]:
    return StatusCode.UNAVAILABLE, f"etcdserver: {text}"


EMPTY_KEY: Final = _invalid("key is not provided")
VALUE_PROVIDED: Final = _invalid("value is provided")
LEASE_PROVIDED: Final = _invalid("lease is provided")
KEY_NOT_FOUND: Final = _invalid("key not found")
INVALID_SORT: Final = _invalid("invalid sort option")
TOO_MANY_OPS: Final = _invalid("too many operations in txn request")
TOO_LARGE: Final = _invalid("request is too large")
BAD_URLS: Final = _invalid("given member URLs are invalid")
COMPACTED: Final = (StatusCode.OUT_OF_RANGE, "etcdserver: mvcc: required revision has been compacted")
FUTURE: Final = (StatusCode.OUT_OF_RANGE, "etcdserver: mvcc: required revision is a future revision")
TTL_TOO_LARGE: Final = (StatusCode.OUT_OF_RANGE, "etcdserver: too large lease TTL")
NO_SPACE: Final = (StatusCode.RESOURCE_EXHAUSTED, "etcdserver: mvcc: database space exceeded")
LEASE_NOT_FOUND: Final = (StatusCode.NOT_FOUND, "etcdserver: requested lease not found")
MEMBER_NOT_FOUND: Final = (StatusCode.NOT_FOUND, "etcdserver: member not found")
LEASE_EXISTS: Final = _failed("lease already exists")
FOR_LEARNER: Final = _failed("rpc not supported for learner")
NOT_LEADER: Final = _failed("not leader")
BAD_TRANSFEREE: Final = _failed("bad leader transferee")
PEER_URL_EXISTS: Final = _failed("Peer URLs already exists")
NOT_A_LEARNER: Final = _failed("can only promote a learner member")
LEARNER_BEHIND: Final = _failed("can only promote a learner member which is in sync with leader")
NOT_ENOUGH_STARTED: Final = _failed("re-configuration failed due to not enough started members")
DOWNGRADE_FORMAT: Final = _invalid("wrong downgrade target version format")
DOWNGRADE_TARGET: Final = _invalid("invalid downgrade target version")
BAD_TOKEN: Final = (StatusCode.UNAUTHENTICATED, "etcdserver: invalid auth token")
PERMISSION_NOT_GIVEN: Final = _invalid("permission not given")
NO_PASSWORD_USER: Final = (StatusCode.UNKNOWN, auth.NO_PASSWORD)
TOO_MANY: Final = (StatusCode.RESOURCE_EXHAUSTED, "etcdserver: too many requests")
CORRUPT: Final = (StatusCode.DATA_LOSS, "etcdserver: corrupt cluster")
UNHEALTHY: Final = _unavailable("unhealthy cluster")
NO_LEADER: Final = _unavailable("no leader")
TIMED_OUT: Final = _unavailable("request timed out")
NOT_PROPOSED: Final = (StatusCode.DEADLINE_EXCEEDED, "context deadline exceeded")
LEADER_FAILED: Final = _unavailable("request timed out, possibly due to previous leader failure")

_BY_TYPE: Final[dict[type[MinikubeError], tuple[Any, str]]] = {
    Compacted: COMPACTED,
    FutureRevision: FUTURE,
    NoSpace: NO_SPACE,
    ClusterCorrupt: CORRUPT,
    LeaseNotFound: LEASE_NOT_FOUND,
    LeaseExists: LEASE_EXISTS,
    RequestTooLarge: TOO_LARGE,
    NotLeader: NO_LEADER,
    Leaderless: TIMED_OUT,
}


_CODES: Final[dict[str, Any]] = {
    TTL_TOO_LARGE[1]: StatusCode.OUT_OF_RANGE,
    auth.DENIED: StatusCode.PERMISSION_DENIED,
    auth.ROOT_USER_MISSING: StatusCode.FAILED_PRECONDITION,
    auth.ROOT_ROLE_MISSING: StatusCode.FAILED_PRECONDITION,
    auth.USER_EXISTS: StatusCode.FAILED_PRECONDITION,
    auth.USER_NOT_FOUND: StatusCode.FAILED_PRECONDITION,
    auth.ROLE_EXISTS: StatusCode.FAILED_PRECONDITION,
    auth.ROLE_NOT_FOUND: StatusCode.FAILED_PRECONDITION,
    auth.ROLE_NOT_GRANTED: StatusCode.FAILED_PRECONDITION,
    auth.NOT_GRANTED: StatusCode.FAILED_PRECONDITION,
    auth.NOT_ENABLED: StatusCode.FAILED_PRECONDITION,
}
"""By the text of the state's refusals; others are InvalidArgument."""


def status_of(error: MinikubeError | Refused) -> tuple[Any, str]:
    """Clients do not retry by themselves after the last two, so an unknown outcome stays unknown."""
    if isinstance(error, Refused):
        return error.code, error.text
    found = _BY_TYPE.get(type(error))
    if found is not None:
        return found
    text = str(error)
    if isinstance(error, InvalidRequest):
        return _CODES.get(text, StatusCode.INVALID_ARGUMENT), text
    if isinstance(error, OutcomeUnknown):
        return LEADER_FAILED
    if isinstance(error, Unavailable):
        return StatusCode.UNAVAILABLE, f"etcdserver: {text}"
    return StatusCode.UNKNOWN, text


class Late(Unavailable):
    """A read was not answered in time: the member hangs, or the answer is large for the link."""


class Excluded(Unavailable):
    """etcd refuses this client, until its operator changes what clients may do."""


class EtcdNoSpace(NoSpace):
    advice = "`etcdctl alarm list` tells which member, `etcdctl alarm disarm` ends it once there is room again"


class EtcdCorrupt(ClusterCorrupt):
    advice = "`etcdctl endpoint hashkv --cluster` compares them, `etcdctl alarm disarm` ends the alarm"


_BY_TEXT: Final[dict[str, type[MinikubeError]]] = {
    NO_SPACE[1]: EtcdNoSpace,
    CORRUPT[1]: EtcdCorrupt,
    LEASE_NOT_FOUND[1]: LeaseNotFound,
    LEASE_EXISTS[1]: LeaseExists,
}
REQUEST_BYTES_MAX: Final = 3 << 19
"""etcd's --max-request-bytes by default."""
_NEVER_BEGAN: Final = (
    "failed to connect to all addresses",
    "DNS resolution failed",
    NO_LEADER[1],
    "etcdserver: too many requests",
    FOR_LEARNER[1],
)
_EXCLUDED: Final = (StatusCode.PERMISSION_DENIED, StatusCode.UNAUTHENTICATED, StatusCode.FAILED_PRECONDITION)
_NOT_LOGGED_IN: Final = "etcdserver: user name is empty"
"""Without a certificate or token, where authentication is enabled."""


def refusal_of(code: Any, text: str) -> MinikubeError | None:
    """etcd's error for a request that was refused after examination, or never reached it (Unavailable); None if it may
    or may not have been done. A `Compacted` or `FutureRevision` is left to the caller, which knows the revisions."""
    known = _BY_TEXT.get(text)
    if known is not None:
        return known()
    if text == TOO_LARGE[1] or "larger than max" in text:
        return RequestTooLarge(0, REQUEST_BYTES_MAX)
    if text.startswith(_NEVER_BEGAN):
        return Unavailable(text)
    if code in _EXCLUDED or text == _NOT_LOGGED_IN:
        return Excluded(f"etcd refuses this client: {text}")
    if code in (StatusCode.INVALID_ARGUMENT, StatusCode.OUT_OF_RANGE, StatusCode.UNIMPLEMENTED):
        return InvalidRequest(text)
    return None

"""Checks of a command or a read that do not depend on the state: the same result on every member.

`validate` runs when a request arrives, before a command enters the log and before a read is answered. It bounds later
costs: integers are int64, as in etcd's protobuf; the depth, width and total number of operations of a txn are limited,
and so are texts and their number; the errors state the limits. Its own cost is near-linear in the bytes of the request.
The state may still refuse a valid request (a lease that does not exist); log entries are applied without it, because
earlier versions did not check."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from minikube_py.errors import InvalidRequest, Unavailable
from minikube_py.fields.spec import FieldSet, FieldSpec, SumSpec
from minikube_py.fields.where import MAX_COMPARISONS, MAX_VALUES, Where
from minikube_py.mvcc.codec import USER_COMMANDS
from minikube_py.mvcc.txn import EMPTY_KEY, TOO_MANY_OPS, check, mark_single
from minikube_py.mvcc.types import (
    AsUser,
    ChangeAuth,
    CloseSession,
    Command,
    Compact,
    DeclareFields,
    DeclareIndex,
    DeleteRange,
    DropIndex,
    InSession,
    LeaseCheckpoint,
    LeaseGrant,
    LeaseRevoke,
    OpenSession,
    Put,
    RaiseVersion,
    RangeRequest,
    Release,
    SetAlarm,
    Txn,
)
from minikube_py.mvcc.versions import ALARMS, FIRST, GRANTS_HAVE_NAMES, RELEASES, USERS

INT64_MIN: Final = -(1 << 63)
INT64_MAX: Final = (1 << 63) - 1
TXN_OPS_TOTAL: Final = 4_096
"""Operations and compares of a txn and all that are nested in it: with this many puts it is applied in 20 ms, a user's
in 15 ms more plus 0.3 µs per key of their leases. etcd's own limit, 128 per level, also applies."""
WHERE_CHARS_MAX: Final = 256 << 10
"""Limit of all fields and values of a `where` together."""
FIELDS_MAX: Final = 256
"""Limit of fields whose values are requested."""
NAME_CHARS_MAX: Final = 1024
"""Limit of each text in a declaration of fields."""
AUTH_BYTES_MAX: Final = 4096
"""Limit of a permission's key and range end, a hash, a token: users and roles stay until removed."""


def validate(request: Command | RangeRequest) -> None:
    """Raises: InvalidRequest, with etcd's message where etcd refuses the same."""
    rule = _RULES.get(type(request))
    if rule is None:
        raise InvalidRequest(f"{type(request).__name__} is neither a command nor a range request")
    rule(request)


def validate_own(command: Command) -> None:
    """As `validate`, for members' own proposals: only members raise alarms."""
    if type(command) is SetAlarm:
        _alarm(command)
    else:
        validate(command)


def require_known(command: Command, version: int) -> None:
    """Raises: Unavailable if members of an earlier release, which follow `version` of the rules, could not read the
    command; its log entry would stop them."""
    inner = command.command if type(command) is InSession else command
    needed = _NEEDED.get(type(inner), FIRST)
    if type(inner) is LeaseRevoke and inner.granted:
        needed = GRANTS_HAVE_NAMES
    if needed > version:
        raise Unavailable(
            f"{type(inner).__name__} needs version {needed} of the rules of apply, the store follows {version}: it "
            "upgrades once all members run this release"
        )


_NEEDED: Final[dict[type, int]] = {SetAlarm: ALARMS, Release: RELEASES, ChangeAuth: USERS, AsUser: USERS}


def validate_where(where: Where) -> None:
    """Raises: InvalidRequest if it exceeds the limits of a query."""
    comparisons = where.comparisons
    if len(comparisons) > MAX_COMPARISONS:
        raise InvalidRequest(f"a where has at most {MAX_COMPARISONS} comparisons, this one {len(comparisons)}")
    chars = 0
    for comparison in comparisons:
        field, values = comparison.field, comparison.values
        if len(values) > MAX_VALUES:
            raise InvalidRequest(f"field {field[:80]} is compared with {len(values)} values, the limit is {MAX_VALUES}")
        chars += len(field) + sum(map(len, values))
    if chars > WHERE_CHARS_MAX:
        raise InvalidRequest(f"a where has at most {WHERE_CHARS_MAX} characters, this one {chars}")


def require_int64(name: str, value: int) -> None:
    """Raises: InvalidRequest."""
    if not INT64_MIN <= value <= INT64_MAX:
        raise InvalidRequest(f"{name} {_shown(value)} does not fit a signed 64-bit integer")


def _shown(value: int) -> str:
    """Python refuses to print very large integers."""
    return str(value) if value.bit_length() <= 256 else f"of {value.bit_length()} bits"


def _put(put: Put) -> None:
    if not INT64_MIN <= put.lease <= INT64_MAX:
        require_int64("lease", put.lease)
    check(put)


def validate_range(request: RangeRequest) -> None:
    """As `validate`, for a range request."""
    if not request.key:
        raise InvalidRequest(EMPTY_KEY)
    _bounds(request)


def _bounds(request: RangeRequest) -> None:
    _, _, limit, revision, _, _, where, _, fields, _, _, low, high, low_create, high_create = request
    if not 0 <= limit | revision | low | high | low_create | high_create <= INT64_MAX:
        for name, number in zip(_RANGE_NUMBERS, (limit, revision, low, high, low_create, high_create)):
            require_int64(name, number)
    if where is not None:
        validate_where(where)
    if fields and (len(fields) > FIELDS_MAX or sum(map(len, fields)) > WHERE_CHARS_MAX):
        raise InvalidRequest(f"at most {FIELDS_MAX} fields of {WHERE_CHARS_MAX} characters in all can be asked for")


_RANGE_NUMBERS: Final = (
    "limit",
    "revision",
    "min_mod_revision",
    "max_mod_revision",
    "min_create_revision",
    "max_create_revision",
)


def _txn(txn: Txn) -> None:
    """Counted first: a txn that is too large is not examined further."""
    if txn.single or mark_single(txn):
        return
    left = TXN_OPS_TOTAL
    waiting = [txn]
    for each in waiting:
        left -= len(each.compare) + len(each.success) + len(each.failure)
        if left < 0:
            raise InvalidRequest(f"{TOO_MANY_OPS}: more than {TXN_OPS_TOTAL} in it and in the txns nested in it")
        for _, target, _, operand, _ in each.compare:
            if type(operand) is int and not INT64_MIN <= operand <= INT64_MAX:
                require_int64(f"the operand of a compare of {target[:20]}", operand)
        for branch in (each.success, each.failure):
            for op in branch:
                kind = type(op)
                if kind is Txn:
                    waiting.append(op)  # type: ignore[arg-type]
                elif kind is Put:
                    if not INT64_MIN <= op.lease <= INT64_MAX:  # type: ignore[union-attr]
                        require_int64("lease", op.lease)  # type: ignore[union-attr]
                elif kind is RangeRequest:
                    _bounds(op)  # type: ignore[arg-type]
    check(txn)


def _numbers(*names: str) -> Callable[[Any], None]:
    """The check of a command whose first fields are all numbers."""

    def rule(command: Any) -> None:
        for name, value in zip(names, command):
            if not INT64_MIN <= value <= INT64_MAX:
                require_int64(name, value)

    return rule


def _in_session(request: InSession) -> None:
    session, sequence, acknowledged, command = request
    if min(session, sequence, acknowledged) < 0 or max(session, sequence, acknowledged) > INT64_MAX:
        _SESSION_NUMBERS(request)
    rule = None if type(command) in _OUTER else _RULES.get(type(command))
    if rule is None:
        raise InvalidRequest(f"{type(command).__name__} cannot be sent in a session")
    rule(command)


_SESSION_NUMBERS: Final = _numbers("session", "sequence", "acknowledged")


def _field_set(field_set: FieldSet) -> None:
    _texts((field_set.name,))
    _spans(len(field_set.prefix))
    _parts(field_set.fields)
    _parts(field_set.sums)


def _parts(parts: Iterable[FieldSpec | SumSpec]) -> None:
    for part in parts:
        _texts((part.name, part.extractor, *part.args.keys(), *part.args.values()))
        if isinstance(part, SumSpec):
            _texts((part.reference,))
            _spans(len(part.source_prefix))


def _texts(texts: Iterable[str]) -> None:
    for text in texts:
        _spans(len(text))


def _spans(size: int) -> None:
    if size > NAME_CHARS_MAX:
        raise InvalidRequest(f"a text in a declaration has at most {NAME_CHARS_MAX} characters, this one {size}")


def _declare_index(declare: DeclareIndex) -> None:
    spec = declare.spec
    _parts(spec.declares)
    _parts(spec.sums)
    for name, value in spec.options.items():
        _texts((name,))
        if not isinstance(value, str):
            require_int64(f"option {name}", value)
    require_int64("memoryLimitBytes", spec.memory_limit_bytes)


def _leaders(_: RaiseVersion) -> None:
    raise InvalidRequest("the version of the rules is raised by the leader alone, once all members know them")


def _set_alarm(command: SetAlarm) -> None:
    if command.raised:
        raise InvalidRequest("alarms are raised by the members alone; a client may clear them")
    _alarm(command)


def _change_auth(change: ChangeAuth) -> None:
    _texts((change.action, change.name, change.role))
    require_int64("kind", change.kind)
    if max(map(len, (change.key, change.range_end, change.secret))) > AUTH_BYTES_MAX:
        raise InvalidRequest(f"a key, a range end and a secret of users and roles have at most {AUTH_BYTES_MAX} bytes")


def _as_user(request: AsUser) -> None:
    if type(request.command) not in USER_COMMANDS:
        raise InvalidRequest(f"{type(request.command).__name__} cannot be sent as a user")
    _texts((request.user,))
    require_int64("revision", request.revision)
    validate(request.command)


def _alarm(command: SetAlarm) -> None:
    _texts((command.kind,))
    if not 0 <= command.member <= INT64_MAX:
        raise InvalidRequest("an alarm's member is an id, or 0")


_RULES: Final[dict[type, Callable[[Any], None]]] = {
    Put: _put,
    DeleteRange: check,
    Txn: _txn,
    Release: lambda release: _txn(release.txn),
    RangeRequest: validate_range,
    LeaseGrant: _numbers("lease", "TTL"),
    LeaseRevoke: _numbers("lease"),
    LeaseCheckpoint: _numbers("lease", "TTL"),
    Compact: _numbers("revision"),
    DeclareFields: lambda declare: _field_set(declare.field_set),
    DeclareIndex: _declare_index,
    DropIndex: lambda drop: _texts(drop),
    OpenSession: _numbers("client"),
    InSession: _in_session,
    CloseSession: _numbers("session"),
    RaiseVersion: _leaders,
    SetAlarm: _set_alarm,
    ChangeAuth: _change_auth,
    AsUser: _as_user,
}
_OUTER: Final = frozenset({SetAlarm, OpenSession, InSession, CloseSession, RangeRequest})

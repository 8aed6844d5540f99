"""Commands, requests, results and errors as msgpack, for the log and for the native protocol.

A message is an array `[tag, field, ...]`; the tags are stable, new fields go to the end with a default. `VERSION`
starts every packed message; a reader refuses any other. Input is checked for shape and types, so that no peer can make
`apply` raise anything but a RequestError."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, cast, get_args

import msgpack

from minikube_py import errors
from minikube_py.errors import InvalidRequest, MinikubeError, shown
from minikube_py.fields.spec import FieldSet, FieldSpec, Kind, SumSpec
from minikube_py.fields.where import Comparison, Where
from minikube_py.index.declared import from_json, to_json
from minikube_py.mvcc.txn import MAX_TXN_OPS, TOO_MANY_OPS
from minikube_py.mvcc.types import (
    AsUser,
    ChangeAuth,
    CloseSession,
    Command,
    Compact,
    CompactResult,
    Compare,
    DeclareFields,
    DeclareIndex,
    DeleteRange,
    DeleteResult,
    DropIndex,
    Event,
    InSession,
    KeyValue,
    LeaseCheckpoint,
    LeaseGrant,
    LeaseResult,
    LeaseRevoke,
    OpenSession,
    Put,
    PutResult,
    QueryStats,
    RaiseVersion,
    RangeRequest,
    RangeResult,
    Release,
    Result,
    SessionCommand,
    SessionResult,
    SetAlarm,
    Txn,
    TxnResult,
    UserCommand,
    WatchBatch,
)

VERSION: Final = 1

Message = Command | RangeRequest | Result | RangeResult | Event | WatchBatch | MinikubeError
Plain = Any
"""What msgpack packs: None, ints, floats, str, bytes, lists and dicts."""

# Never change a number: they are stored in logs on disk.
PUT, DELETE, TXN, GRANT, REVOKE, CHECKPOINT, COMPACT, DECLARE, RANGE, OPEN, IN_SESSION, CLOSE = range(1, 13)
DECLARE_INDEX, DROP_INDEX, RAISE, SET_ALARM, RELEASE, CHANGE_AUTH, AS_USER = range(13, 20)
PUT_RESULT, DELETE_RESULT, TXN_RESULT, LEASE_RESULT, COMPACT_RESULT, RANGE_RESULT, SESSION_RESULT = range(20, 27)
EVENT, BATCH, ERROR = range(30, 33)

_TAGS: Final[dict[type, int]] = {
    Put: PUT,
    DeleteRange: DELETE,
    LeaseGrant: GRANT,
    LeaseCheckpoint: CHECKPOINT,
    Compact: COMPACT,
    OpenSession: OPEN,
    CloseSession: CLOSE,
    DropIndex: DROP_INDEX,
    RaiseVersion: RAISE,
    SetAlarm: SET_ALARM,
    ChangeAuth: CHANGE_AUTH,
    PutResult: PUT_RESULT,
    DeleteResult: DELETE_RESULT,
    LeaseResult: LEASE_RESULT,
    CompactResult: COMPACT_RESULT,
    SessionResult: SESSION_RESULT,
    Event: EVENT,
}
_new = tuple.__new__
_packb = msgpack.packb
_unpackb = msgpack.unpackb
_pack_again = msgpack.Packer().pack
"""Keeps its buffer, so only for messages of bounded size."""


class NewerMessage(InvalidRequest):
    """Well-formed, but of a kind unknown to this version; a later one may have written it."""


def pack(message: Message) -> bytes:
    """The bytes of a message, version first.

    Raises: InvalidRequest if it cannot be packed: an integer beyond 64 bits, a text that is not valid Unicode."""
    try:
        if type(message) is Txn:
            return _pack_again((VERSION, to_plain(message)))  # type: ignore[no-any-return]
        packed: bytes = _packb((VERSION, to_plain(message)))
    except (OverflowError, UnicodeError) as error:
        raise InvalidRequest(f"the request cannot be sent: {error}") from None
    return packed


def unpack_any(data: bytes) -> Message:
    """Raises: InvalidRequest if the bytes are not a message of this version."""
    try:
        version, plain = _unpackb(data)
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise InvalidRequest(f"not a message: {error}") from None
    if version != VERSION:
        raise NewerMessage(f"message of version {shown(version)}, this is version {VERSION}")
    return from_plain(plain)


def unpack(data: bytes) -> Command:
    """A command. Raises: InvalidRequest if the bytes are not one."""
    message = unpack_any(data)
    if type(message) not in COMMANDS:
        raise InvalidRequest(f"{type(message).__name__} is not a command")
    return cast(Command, message)


COMMANDS: Final = frozenset(get_args(Command))
USER_COMMANDS: Final = frozenset(get_args(UserCommand))
SESSION_COMMANDS: Final = frozenset(get_args(SessionCommand))


def to_plain(message: Message) -> Plain:
    """A message as plain values for msgpack, to embed in a larger one."""
    tag = _TAGS.get(type(message))
    if tag is not None:
        return (tag, *message)  # type: ignore[misc]
    if type(message) is Txn:
        success, failure = message.success, message.failure
        if message.single:
            return (TXN, message.compare, [(PUT, *success[0])], [(RANGE, *read) for read in failure])  # type: ignore[misc]
        return (TXN, message.compare, [to_plain(op) for op in success], [to_plain(op) for op in failure])
    if type(message) is InSession:
        session, sequence, acknowledged, command = message
        return (IN_SESSION, session, sequence, acknowledged, to_plain(command))
    if type(message) is LeaseRevoke:
        # Version 1 of the rules knows only the id.
        return (REVOKE, *message) if message.granted else (REVOKE, message.id)
    if type(message) is RangeRequest:
        where = message.where
        if where is None:
            return (RANGE, *message)  # type: ignore[return-value]
        return (RANGE, *message._replace(where=None if where is None else where_to_plain(where)))  # type: ignore[arg-type]
    if type(message) is TxnResult:
        return (TXN_RESULT, message.revision, message.succeeded, [to_plain(each) for each in message.responses])
    if type(message) is RangeResult:
        return (RANGE_RESULT, *message)
    if type(message) is AsUser:
        return (AS_USER, message.user, message.revision, to_plain(message.command))
    if type(message) is Release:
        return (RELEASE, to_plain(message.txn))
    if type(message) is WatchBatch:
        error = message.error
        return (BATCH, message.events, message.revision, None if error is None else to_plain(error))
    if type(message) is DeclareFields:
        return (DECLARE, field_set_to_plain(message.field_set))
    if type(message) is DeclareIndex:
        return (DECLARE_INDEX, to_json(message.spec))
    if isinstance(message, MinikubeError):
        return _error_to_plain(message)
    raise TypeError(f"{type(message).__name__} is not a message")


def from_plain(plain: Plain, depth: int = 0) -> Message:
    """Raises: InvalidRequest if the shape or a type is wrong."""
    try:
        message: Message = _reader(plain)(plain, depth)
        return message
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError):
        tag = plain[0] if isinstance(plain, list | tuple) and plain else plain
        raise InvalidRequest(f"malformed message with tag {shown(tag)}") from None


def _reader(plain: Plain) -> Callable[[Plain, int], Any]:
    tag = plain[0]
    reader = _READERS.get(tag)
    if reader is None:
        if type(tag) is int:
            raise NewerMessage(f"no message has the tag {tag}")
        raise TypeError
    return reader


def _typed(kind: type, types: tuple[type, ...], required: int) -> Callable[[Plain, int], Any]:
    """A reader of a flat NamedTuple: at least `required` fields, each of exactly its type."""

    def read(plain: Plain, _: int) -> Any:
        fields = plain[1:]
        if not required <= len(fields) <= len(types) or tuple(map(type, fields)) != types[: len(fields)]:
            raise TypeError
        return kind(*fields)

    return read


def _key_value(plain: Plain) -> KeyValue:
    if tuple(map(type, plain)) != (bytes, bytes, int, int, int, int):
        raise TypeError
    return _new(KeyValue, plain)


def _optional_key_value(plain: Plain) -> KeyValue | None:
    return None if plain is None else _key_value(plain)


def event_from_plain(plain: Plain) -> Event:
    """An event packed as part of a list (without its tag)."""
    kind, kv, prev_kv = plain
    if kind not in ("PUT", "DELETE"):
        raise TypeError
    return _new(Event, (kind, _key_value(kv), _optional_key_value(prev_kv)))


def _compare(plain: Plain) -> Compare:
    compare = Compare(*plain)
    if tuple(map(type, compare[:3])) != (bytes, str, str) or type(compare.range_end) is not bytes:
        raise TypeError
    return compare


def _txn(plain: Plain, depth: int) -> Txn:
    if depth > MAX_TXN_OPS:
        raise InvalidRequest(TOO_MANY_OPS)
    _, compare, success, failure = plain
    return Txn(tuple([_compare(each) for each in compare]), _ops(success, depth + 1), _ops(failure, depth + 1))


def _release(plain: Plain, depth: int) -> Release:
    _, txn = plain
    if txn[0] != TXN:
        raise TypeError
    return Release(_txn(txn, depth))


def _as_user(plain: Plain, depth: int) -> AsUser:
    _, user, revision, command = plain
    inner = _reader(command)(command, depth)
    if type(inner) not in USER_COMMANDS:
        raise InvalidRequest(f"{type(inner).__name__} cannot be sent as a user")
    return AsUser(_text(user), _int(revision), inner)


def _in_session(plain: Plain, depth: int) -> InSession:
    _, session, sequence, acknowledged, command = plain
    if (type(session), type(sequence), type(acknowledged)) != (int, int, int):
        raise TypeError
    inner = _reader(command)(command, depth)
    if type(inner) not in SESSION_COMMANDS:
        raise InvalidRequest(f"{type(inner).__name__} cannot be sent in a session")
    return _new(InSession, (session, sequence, acknowledged, inner))


_OPS: Final = frozenset({PUT, DELETE, RANGE, TXN})


def _ops(plain: Plain, depth: int) -> Any:
    readers = [_reader(each) for each in plain]
    if any(each[0] not in _OPS for each in plain):
        raise TypeError
    return tuple([reader(each, depth) for reader, each in zip(readers, plain)])


_RANGE_TYPES: Final = (bytes, bytes, int, int, bool, bool, None, str, None, str, str, int, int, int, int)


def _range(plain: Plain, _: int) -> RangeRequest:
    fields = list(plain[1:])
    if len(fields) != len(_RANGE_TYPES):
        raise TypeError
    for value, wanted in zip(fields, _RANGE_TYPES):
        if wanted is not None and type(value) is not wanted:
            raise TypeError
    fields[6] = None if fields[6] is None else where_from_plain(fields[6])
    fields[8] = tuple(_text(name) for name in fields[8])
    request = RangeRequest(*fields)
    if request.order not in ("KEY", "ANY"):
        raise TypeError
    if request.sort_order not in ("NONE", "ASCEND", "DESCEND") or request.sort_target not in _SORT_TARGETS:
        raise InvalidRequest("etcdserver: invalid sort option")
    return request


_SORT_TARGETS: Final = frozenset({"KEY", "VERSION", "CREATE", "MOD", "VALUE"})


def _put_result(plain: Plain, _: int) -> PutResult:
    return PutResult(_int(plain[1]), _optional_key_value(plain[2]))


def _delete_result(plain: Plain, _: int) -> DeleteResult:
    return DeleteResult(_int(plain[1]), _int(plain[2]), tuple([_key_value(kv) for kv in plain[3]]))


def _txn_result(plain: Plain, depth: int) -> TxnResult:
    responses: Any = tuple([from_plain(each, depth + 1) for each in plain[3]])
    return TxnResult(_int(plain[1]), bool(plain[2]), responses)


def _range_result(plain: Plain, _: int) -> RangeResult:
    _tag, kvs, count, more, revision, fields, stats = plain
    return RangeResult(
        [_key_value(kv) for kv in kvs],
        _int(count),
        bool(more),
        _int(revision),
        None if fields is None else [tuple(row) for row in fields],
        None if stats is None else QueryStats(*stats),
    )


def _batch(plain: Plain, _: int) -> WatchBatch:
    error = None if plain[3] is None else _error(plain[3], 0)
    return WatchBatch([event_from_plain(each) for each in plain[1]], _int(plain[2]), error)


def _error_to_plain(error: MinikubeError) -> Plain:
    details: list[int | str] = []
    if isinstance(error, errors.Compacted):
        details = [error.requested, error.compact_revision]
    elif isinstance(error, errors.FutureRevision):
        details = [error.requested, error.current]
    elif isinstance(error, errors.RequestTooLarge):
        details = [error.size_bytes, error.limit_bytes]
    elif isinstance(error, errors.NotLeader):
        details = [error.leader_id, error.address]
    name = next(base.__name__ for base in type(error).__mro__ if base in _ERRORS)
    return (ERROR, name, str(error), details)


_PLAIN_ERRORS: Final[tuple[type[MinikubeError], ...]] = (
    errors.MinikubeError,
    errors.RequestError,
    errors.Unavailable,
    errors.OutcomeUnknown,
    errors.Corruption,
    errors.InvalidRequest,
    errors.SessionExpired,
    errors.FieldsRedeclared,
    errors.NoSpace,
)
_BARE_ERRORS: Final[tuple[type[MinikubeError], ...]] = (errors.LeaseNotFound, errors.LeaseExists, errors.ClusterCorrupt)
_DETAILED_ERRORS: Final = (errors.Compacted, errors.FutureRevision, errors.RequestTooLarge)
_ERRORS: Final = (*_PLAIN_ERRORS, *_BARE_ERRORS, *_DETAILED_ERRORS, errors.NotLeader)


def _error(plain: Plain, _: int) -> MinikubeError:
    _tag, name, message, details = plain
    for kind in _DETAILED_ERRORS:
        if kind.__name__ == name:
            return kind(_int(details[0]), _int(details[1]))
    if name == errors.NotLeader.__name__:
        return errors.NotLeader(_int(details[0]), _text(details[1]))
    for bare in _BARE_ERRORS:
        if bare.__name__ == name:
            return bare()
    for other in _PLAIN_ERRORS:
        if other.__name__ == name:
            return other(_text(message))
    raise TypeError


def where_to_plain(where: Where) -> Plain:
    return [(comparison.field, comparison.op, list(comparison.values)) for comparison in where.comparisons]


def where_from_plain(plain: Plain) -> Where:
    """Operators and values are checked when the comparison is compiled (`compile_where`)."""
    return Where(
        tuple([Comparison(_text(field), _text(op), tuple(map(_text, values))) for field, op, values in plain])  # type: ignore[arg-type]
    )


def field_set_to_plain(field_set: FieldSet) -> Plain:
    fields = [(spec.name, spec.kind, spec.extractor, dict(spec.args), spec.minus) for spec in field_set.fields]
    sums = [(spec.name, spec.source_prefix, spec.reference, spec.extractor, dict(spec.args)) for spec in field_set.sums]
    return (field_set.name, field_set.prefix, fields, sums)


_KINDS: Final = frozenset(get_args(Kind))


def field_set_from_plain(plain: Plain) -> FieldSet:
    name, prefix, fields, sums = plain
    return FieldSet(
        _text(name),
        _bytes(prefix),
        tuple([_field_spec(*spec) for spec in fields]),
        tuple([_sum_spec(*spec) for spec in sums]),
    )


def _field_spec(name: Plain, kind: Plain, extractor: Plain, args: Plain, minus: Plain) -> FieldSpec:
    if kind not in _KINDS:
        raise TypeError
    return FieldSpec(_text(name), kind, _text(extractor), _args(args), None if minus is None else _text(minus))


def _sum_spec(name: Plain, source_prefix: Plain, reference: Plain, extractor: Plain, args: Plain) -> SumSpec:
    return SumSpec(_text(name), _bytes(source_prefix), _text(reference), _text(extractor), _args(args))


def _args(plain: Plain) -> dict[str, str]:
    return {_text(key): _text(value) for key, value in plain.items()}


def _text(plain: Plain) -> str:
    if type(plain) is not str:
        raise TypeError
    return plain


def _bytes(plain: Plain) -> bytes:
    if type(plain) is not bytes:
        raise TypeError
    return plain


def _int(plain: Plain) -> int:
    if type(plain) is not int:
        raise TypeError
    return plain


_READERS: Final[dict[int, Callable[[Plain, int], Any]]] = {
    PUT: _typed(Put, (bytes, bytes, int, bool, bool, bool), 2),
    DELETE: _typed(DeleteRange, (bytes, bytes, bool), 1),
    TXN: _txn,
    GRANT: _typed(LeaseGrant, (int, int), 2),
    REVOKE: _typed(LeaseRevoke, (int, int), 1),
    CHECKPOINT: _typed(LeaseCheckpoint, (int, int), 2),
    COMPACT: _typed(Compact, (int,), 1),
    DECLARE: lambda plain, _: DeclareFields(field_set_from_plain(plain[1])),
    DECLARE_INDEX: lambda plain, _: DeclareIndex(from_json(plain[1])),
    DROP_INDEX: _typed(DropIndex, (str,), 1),
    RAISE: _typed(RaiseVersion, (int,), 1),
    SET_ALARM: _typed(SetAlarm, (bool, int, str), 1),
    RELEASE: _release,
    CHANGE_AUTH: _typed(ChangeAuth, (str, str, str, int, bytes, bytes, bytes, bool), 1),
    AS_USER: _as_user,
    RANGE: _range,
    OPEN: _typed(OpenSession, (int,), 1),
    IN_SESSION: _in_session,
    CLOSE: _typed(CloseSession, (int,), 1),
    PUT_RESULT: _put_result,
    DELETE_RESULT: _delete_result,
    TXN_RESULT: _txn_result,
    LEASE_RESULT: _typed(LeaseResult, (int, int, int), 3),
    COMPACT_RESULT: _typed(CompactResult, (int,), 1),
    RANGE_RESULT: _range_result,
    SESSION_RESULT: _typed(SessionResult, (int, int), 2),
    EVENT: lambda plain, _: event_from_plain(plain[1:]),
    BATCH: _batch,
    ERROR: _error,
}

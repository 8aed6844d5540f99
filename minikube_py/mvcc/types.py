"""The store's types: key-values, events, requests, commands and their results. Shapes and names are etcd's (rpc.proto).

Commands change state and go through the log; requests only read. All are immutable, and keep bytes unchanged. Half-open
ranges throughout: [key, range_end). `range_end` empty means the single key; b"\\0" means all keys >= key."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from minikube_py.errors import MinikubeError
from minikube_py.fields.spec import FieldSet
from minikube_py.fields.where import Where
from minikube_py.index.declared import IndexSpec

SINGLE_KEY = b""
FROM_KEY = b"\0"


def prefix_end(prefix: bytes) -> bytes:
    """The `range_end` for which [prefix, range_end) is exactly the keys that begin with `prefix`."""
    trimmed = prefix.rstrip(b"\xff")
    return trimmed[:-1] + bytes((trimmed[-1] + 1,)) if trimmed else FROM_KEY


class KeyValue(NamedTuple):
    key: bytes
    value: bytes
    create_revision: int
    mod_revision: int
    version: int
    lease: int


class Event(NamedTuple):
    """One change. For DELETE, `kv` holds only key and mod_revision. `prev_kv` is the state before, None if there was
    none (or, on a watch with a `where`, if the object was outside it: PUT means entered, DELETE means left)."""

    type: Literal["PUT", "DELETE"]
    kv: KeyValue
    prev_kv: KeyValue | None


class WatchBatch(NamedTuple):
    """Events in order of revision, never splitting one. All matching events up to `revision` are delivered, so a batch
    without events is progress. After `error` (Compacted; Unavailable when the store is gone) nothing more follows."""

    events: Sequence[Event]
    revision: int
    error: MinikubeError | None = None


class RangeRequest(NamedTuple):
    """`revision` 0 is the current one; `limit` 0 is no limit. With `where`, only objects for which it holds, found
    through an index. `order` "KEY" pages in key order; "ANY" gives any min(limit, all) matches in no order. `fields`
    names declared fields whose values are returned with the key-values."""

    key: bytes
    range_end: bytes = SINGLE_KEY
    limit: int = 0
    revision: int = 0
    keys_only: bool = False
    count_only: bool = False
    where: Where | None = None
    order: Literal["KEY", "ANY"] = "KEY"
    fields: tuple[str, ...] = ()
    sort_target: Literal["KEY", "VERSION", "CREATE", "MOD", "VALUE"] = "KEY"
    sort_order: Literal["NONE", "ASCEND", "DESCEND"] = "NONE"
    min_mod_revision: int = 0
    max_mod_revision: int = 0
    min_create_revision: int = 0
    max_create_revision: int = 0


class QueryStats(NamedTuple):
    """The cost of an indexed query: the structure used, rows examined, objects decoded.

    `index`: the declared index that answered, empty if none did. Of the shards examined, `false_positives` had no
    match; pruned ones were not opened. `taken_us`: measured by the answering member, 0 if it was not."""

    structure: str = ""
    rows_examined: int = 0
    objects_decoded: int = 0
    index: str = ""  # type: ignore[assignment]
    shards_examined: int = 0
    shards_pruned: int = 0
    false_positives: int = 0
    taken_us: float = 0.0


class RangeResult(NamedTuple):
    """`count` ignores the limit. `revision` is the current one even for reads of the past. `fields[i]` belongs to
    `kvs[i]`: one value per requested field, None if missing."""

    kvs: list[KeyValue]
    count: int  # type: ignore[assignment]
    more: bool
    revision: int
    fields: list[tuple[int | str | None, ...]] | None = None
    stats: QueryStats | None = None


class Compare(NamedTuple):
    """`target` of the key (of every key in the range) against `operand`: an int, or bytes for VALUE."""

    key: bytes
    target: Literal["VERSION", "CREATE", "MOD", "VALUE", "LEASE"]
    op: Literal["=", "!=", "<", ">"]
    operand: int | bytes
    range_end: bytes = SINGLE_KEY


class Put(NamedTuple):
    key: bytes
    value: bytes
    lease: int = 0
    prev_kv: bool = False
    ignore_value: bool = False
    ignore_lease: bool = False


class DeleteRange(NamedTuple):
    key: bytes
    range_end: bytes = SINGLE_KEY
    prev_kv: bool = False


@dataclass(frozen=True, slots=True)
class Txn:
    compare: tuple[Compare, ...] = ()
    success: tuple[Op, ...] = ()
    failure: tuple[Op, ...] = ()
    plain: bool = field(default=False, init=False, compare=False, repr=False)
    """Set by `txn.check`: valid, nothing nested, and no range compared. Apply skips the check."""
    single: bool = field(default=False, init=False, compare=False, repr=False)
    """Also set by it: `txn.is_single`."""


Op = Put | DeleteRange | RangeRequest | Txn


class Release(NamedTuple):
    """A txn required before a deletion can proceed. Under alarm NOSPACE it may rewrite existing values, within bounds
    (`mvcc.alarms`); otherwise it is an ordinary txn."""

    txn: Txn


class LeaseGrant(NamedTuple):
    """`id` 0 is filled in by the proposer, never by apply. TTL in seconds."""

    id: int
    ttl_s: int


class LeaseRevoke(NamedTuple):
    """`granted` is `Lease.granted` of the lease to end, so that a repeated revoke spares a later lease of the same id;
    0: any lease with the id."""

    id: int
    granted: int = 0


class LeaseCheckpoint(NamedTuple):
    """The leader reports that the lease was renewed at `now_s` (its monotonic clock, informative only)."""

    id: int
    remaining_s: int


class Compact(NamedTuple):
    revision: int


class DeclareFields(NamedTuple):
    field_set: FieldSet


class DeclareIndex(NamedTuple):
    """Answered by a PutResult: the declaration is stored under its own key from that revision on."""

    spec: IndexSpec


class DropIndex(NamedTuple):
    name: str


class Alarm(NamedTuple):
    """`member` 0: all of them. `kind`: NOSPACE or CORRUPT; see `mvcc.alarms`."""

    member: int
    kind: str


class SetAlarm(NamedTuple):
    """Raises or clears; to clear, `member` 0 and `kind` "" match any. Answered by a CompactResult."""

    raised: bool
    member: int = 0
    kind: str = ""


class OpenSession(NamedTuple):
    """Every opening creates another session, so one whose answer was lost may be repeated: the first session expires
    unused. `client`: the client's name, informative only."""

    client: int


class InSession(NamedTuple):
    """`command`, executed once: sent again under the same sequence number (from 1 on) it gets the same reply.

    `session`: the id of the open session. `acknowledged`: the lowest sequence whose answer the client still waits for
    (at most this one); replies below it are dropped, and commands below it are never executed."""

    session: int
    sequence: int
    acknowledged: int
    command: SessionCommand


class CloseSession(NamedTuple):
    """Idempotent, also for a session that has ended."""

    session: int


class ChangeAuth(NamedTuple):
    """One change of users and roles (`mvcc.auth`), named as etcdctl names it: "user add". `kind`: of a permission on
    `key` and `range_end`. `secret`: a password's hash, or a token. `bare`: the user never has a password. Answered by a
    CompactResult."""

    action: str
    name: str = ""
    role: str = ""
    kind: int = 0
    key: bytes = b""
    range_end: bytes = b""
    secret: bytes = b""
    bare: bool = False


class AsUser(NamedTuple):
    """`command`, if the user may run it. `revision`: of users and roles when the user was looked up; 0: it was not."""

    user: str
    revision: int
    command: UserCommand


class RaiseVersion(NamedTuple):
    """From here on apply follows the rules of `version` (`mvcc.versions`). Only a leader proposes it."""

    version: int


UserCommand = Put | DeleteRange | Txn | LeaseRevoke | ChangeAuth
SessionCommand = (
    Put
    | DeleteRange
    | Txn
    | Release
    | LeaseGrant
    | LeaseRevoke
    | LeaseCheckpoint
    | Compact
    | DeclareFields
    | DeclareIndex
    | DropIndex
    | ChangeAuth
    | AsUser
)
Command = SessionCommand | OpenSession | InSession | CloseSession | RaiseVersion | SetAlarm


def bare(command: Command) -> Command:
    """The command itself, without the session, the user and the release it was wrapped in."""
    command = command.command if type(command) is InSession else command
    command = command.command if type(command) is AsUser else command
    return command.txn if type(command) is Release else command


class PutResult(NamedTuple):
    revision: int
    prev_kv: KeyValue | None = None


class DeleteResult(NamedTuple):
    revision: int
    deleted: int
    prev_kvs: tuple[KeyValue, ...] = ()


class TxnResult(NamedTuple):
    """`responses[i]` answers the i-th op of the branch that ran."""

    revision: int
    succeeded: bool
    responses: tuple[PutResult | DeleteResult | RangeResult | TxnResult, ...] = ()


class LeaseResult(NamedTuple):
    revision: int
    id: int
    ttl_s: int


class CompactResult(NamedTuple):
    revision: int


class SessionResult(NamedTuple):
    """`id` is the session id that commands use."""

    revision: int
    id: int


Result = PutResult | DeleteResult | TxnResult | LeaseResult | CompactResult | SessionResult

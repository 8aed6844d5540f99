"""The store's words: key-values, events, requests, commands and their results. Shapes and names are etcd's (rpc.proto).

Commands change state and go through the log; requests only read. All are immutable, and hold bytes as they came.
Half-open ranges throughout: [key, range_end). `range_end` empty means the single key; b"\\0" means all keys >= key.
"""

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
    """The `range_end` that makes [prefix, range_end) hold exactly the keys that begin with `prefix`."""
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
    none (or, on a watch with a `where`, if the object was outside it: then PUT means entered, DELETE means left)."""

    type: Literal["PUT", "DELETE"]
    kv: KeyValue
    prev_kv: KeyValue | None


class WatchBatch(NamedTuple):
    """Events in order of revision, never splitting one. All that the watch was to see up to `revision` is delivered,
    so a batch without events is progress. After `error` (Compacted; Unavailable when the store went away) nothing
    more comes."""

    events: Sequence[Event]
    revision: int
    error: MinikubeError | None = None


class RangeRequest(NamedTuple):
    """`revision` 0 is the current one; `limit` 0 is no limit. With `where`, only objects for which it holds, found
    through an index. `order` "KEY" pages in key order; "ANY" gives min(limit, all) true members in no order.
    `fields` names declared fields whose values are returned beside the key-values."""

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
    """What an indexed query cost: the structure asked, rows it looked at, objects whose bytes were decoded.

    `index`: the declared index that answered, empty where none did. Of the shards examined, `false_positives` held no
    match; the pruned ones were not opened. `taken_us`: measured by the member that answered, 0 where it was not."""

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
    `kvs[i]`: one value per requested field, None where it is missing."""

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
    """Set by `txn.check`: right, with one op at most in a branch, and no range compared. Apply need not look again."""


Op = Put | DeleteRange | RangeRequest | Txn


class Release(NamedTuple):
    """A txn that a deletion needs before anything can go. Under alarm NOSPACE it may rewrite what stands, within bounds
    (`mvcc.alarms`); otherwise it is its txn."""

    txn: Txn


class LeaseGrant(NamedTuple):
    """`id` 0 is filled in by the proposer, never by apply. TTL in seconds."""

    id: int
    ttl_s: int


class LeaseRevoke(NamedTuple):
    """`granted` is that of the lease (`Lease.granted`) which is to end, so that a revoke sent again spares one that was
    granted again under the same id; 0: whichever has the id."""

    id: int
    granted: int = 0


class LeaseCheckpoint(NamedTuple):
    """The leader's word that the lease was renewed at `now_s` (its monotonic clock, informative only)."""

    id: int
    remaining_s: int


class Compact(NamedTuple):
    revision: int


class DeclareFields(NamedTuple):
    field_set: FieldSet


class DeclareIndex(NamedTuple):
    """Answered by a PutResult: the declaration stands under a key of its own from that revision on."""

    spec: IndexSpec


class DropIndex(NamedTuple):
    name: str


class Alarm(NamedTuple):
    """`member` 0: all of them. `kind`: NOSPACE or CORRUPT; see `mvcc.alarms`."""

    member: int
    kind: str


class SetAlarm(NamedTuple):
    """Raises or clears; to clear, `member` 0 and `kind` "" are any. Answered by a CompactResult."""

    raised: bool
    member: int = 0
    kind: str = ""


class OpenSession(NamedTuple):
    """Every opening gives another session, so one whose answer was lost may be repeated: what it made ends unused.
    `client`: how the client calls itself, for people; nothing goes by it."""

    client: int


class InSession(NamedTuple):
    """`command`, once: sent again under the same sequence number (from 1 on) it gets the reply it got before.

    `session`: the id that opening it gave. `acknowledged`: the lowest sequence whose answer the client still waits
    for (this one's at most); replies below are forgotten, and what comes below is never executed."""

    session: int
    sequence: int
    acknowledged: int
    command: SessionCommand


class CloseSession(NamedTuple):
    """Idempotent: also for a session that has ended."""

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
    """`command`, if the user may. `revision`: of users and roles when the user was looked up; 0: nobody was."""

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
    """What is to be done, without the session and the user that it came with, and without why."""
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
    """`id` is what commands of the session name."""

    revision: int
    id: int


Result = PutResult | DeleteResult | TxnResult | LeaseResult | CompactResult | SessionResult

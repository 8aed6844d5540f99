"""Objects on a `Storage`: create if absent, replace and delete if unchanged, each one txn.

Maps store errors to API statuses; an unknown outcome stays unknown (504 with that reason).
"""

from __future__ import annotations

from asyncio import Future, Lock
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar
from weakref import WeakValueDictionary

import orjson

from minikube_py.api.errors import StatusError, expired, request_entity_too_large, service_unavailable, timeout
from minikube_py.apiserver.reading import Reading
from minikube_py.env import Clock
from minikube_py.errors import (
    ClusterCorrupt,
    Compacted,
    FutureRevision,
    InvalidRequest,
    LeaseNotFound,
    MinikubeError,
    NoSpace,
    OutcomeUnknown,
    RequestTooLarge,
    Unavailable,
)
from minikube_py.mvcc.txn import creating, replacing
from minikube_py.mvcc.types import Compare, DeleteRange, KeyValue, Op, Put, RangeRequest, RangeResult, Txn, TxnResult
from minikube_py.store.storage import ALARM_ADVICE, Storage, begun, sent

T = TypeVar("T")
TOO_OLD: Final = "The resourceVersion for the provided list is too old."
UNKNOWN: Final = "etcdserver: request timed out, possibly due to previous leader failure; the outcome is unknown"
"""Begins like etcd's message (api/v3rpc/rpctypes/error.go), which clients match."""
OPENING: Final = len(b'{"metadata":{')
LEASE_REUSE_S: Final = 60
LEASES: Final = b"/registry/coordination.k8s.io/leases/"
NODE_LEASES: Final = LEASES + b"kube-node-lease/"


class OutOfSpace(StatusError):
    """The store refuses growth. Upstream's response to a store error without a known reason."""

    def __init__(self, message: str) -> None:
        super().__init__(500, "", message)


class Claim(NamedTuple):
    """A key put in an object's txn if unchanged: free (a service's address or port), or at this revision (a charged
    quota)."""

    key: bytes
    value: bytes
    revision: int = 0


class Outcome(NamedTuple):
    """If the txn failed, `current` is the stored object, `guard` the stored namespace (if guarded), and `taken` the
    failed claims, with their stored keys in `standing`.

    Otherwise `revision` is the txn's."""

    done: bool
    revision: int
    current: KeyValue | None = None
    guard: KeyValue | None = None
    taken: Sequence[Claim] = ()
    standing: Mapping[bytes, KeyValue | None] = {}


class Turn:
    """Of one change of `key`: after a conflict, and if others wait already, it is made alone. Without, each of n
    concurrent changes is made up to n times. `queued`: what is asked while it is made never changes `key` itself."""

    def __init__(self, store: ObjectStore, key: bytes, queued: bool) -> None:
        self._store, self._key, self._queued = store, key, queued
        self._held: Lock | None = None

    async def __aenter__(self) -> Turn:
        if self._queued and (lock := self._store.turns.get(self._key)) is not None and lock.locked():
            await self._take(lock)
        return self

    async def __aexit__(self, *_: Any) -> None:
        if self._held is not None:
            self._held.release()

    async def _take(self, lock: Lock) -> None:
        await lock.acquire()
        self._held = lock

    async def after(self, current: KeyValue | None) -> KeyValue | None:
        """What to change next. `current`: what the conflict found."""
        if self._held is not None or not self._queued:
            return current
        lock = self._store.turns.setdefault(self._key, Lock())
        waits = lock.locked()
        await self._take(lock)
        return await self._store.get(self._key) if waits else current


class ObjectStore:
    def __init__(self, storage: Storage, clock: Clock, reading: Reading) -> None:
        self.storage = storage
        self.reading = reading
        self._clock = clock
        self._leases: dict[int, tuple[int, float]] = {}
        self.turns: WeakValueDictionary[bytes, Lock] = WeakValueDictionary()

    async def get(self, key: bytes) -> KeyValue | None:
        """Raises: StatusError 500 if it is unreadable."""
        kv, _ = await translated(self.storage.get(key))
        return None if kv is None else self.reading.of(kv)

    async def unread(self, key: bytes) -> KeyValue | None:
        """The stored but unreadable object."""
        kv, _ = await translated(self.storage.get(key))
        return kv if kv is not None and self.reading.maybe(kv) is None else None

    async def current_revision(self) -> int:
        """Linearizable: not below any revision that was acknowledged before this call."""
        _, revision = await translated(self.storage.get(b"/registry/"))
        return revision

    async def range(self, request: RangeRequest) -> RangeResult:
        """Omits unreadable objects."""
        result = await translated(self.storage.range(request))
        if request.keys_only:
            return result
        found = list(map(self.reading.maybe, result.kvs))
        fields = result.fields
        if None in found and fields is not None:
            fields = [row for row, kv in zip(fields, found) if kv is not None]
        return result._replace(kvs=[kv for kv in found if kv is not None], fields=fields)

    async def create(
        self,
        key: bytes,
        value: bytes,
        guard: KeyValue | None = None,
        lease: int = 0,
        claims: Sequence[Claim] = (),
        charges: Sequence[Claim] = (),
    ) -> Outcome:
        """Puts `value` if the key is absent and `guard` (its namespace) unchanged. `charges` are also claims."""
        claims = (*claims, *charges)
        txn = _with_claims(creating(key, value, lease, guard), claims)
        return self._outcome(await self._send(txn), guard, claims)

    async def create_dry(self, key: bytes, charges: Sequence[Claim]) -> Outcome:
        """As `create`, without writing."""
        standing = await self.get(key)
        return Outcome(standing is None, 0, standing)

    async def create_all(self, values: Mapping[bytes, bytes]) -> Outcome:
        """Puts all, or none if any key exists."""
        compare = [Compare(key, "CREATE", "=", 0) for key in values]
        result = await self._txn(compare, [Put(key, value) for key, value in values.items()], [])
        return Outcome(result.succeeded, result.revision)

    async def replace(
        self,
        old: KeyValue,
        value: bytes,
        released: Sequence[bytes] = (),
        claims: Sequence[Claim] = (),
        charges: Sequence[Claim] = (),
    ) -> Outcome:
        """Puts `value` if the object still equals `old`. `charges` are also claims."""
        key = old.key
        claims = (*claims, *charges)
        txn = _with_claims(replacing(old, value), claims, released)
        try:
            result = await self._send(txn)
        except OutOfSpace as full:
            if claims or not _frees(key, value):
                raise
            result = await self._release(txn, full)
        return self._outcome(result, None, claims)

    def renew(self, old: KeyValue, value: bytes) -> Future[TxnResult]:
        """Sends a txn that puts `value` if the object still equals `old`. Raises, and its future: errors of the
        store."""
        self.reading.wrote(old.key, value)
        return begun(self.storage, replacing(old, value))

    async def delete(self, old: KeyValue, released: Sequence[bytes] = ()) -> Outcome:
        """Deletes the object if it still equals `old`."""
        success: list[Op] = [DeleteRange(old.key), *(DeleteRange(key) for key in released)]
        compare = [Compare(old.key, "MOD", "=", old.mod_revision)]
        return self._outcome(await self._txn(compare, success, [RangeRequest(old.key)]), None, ())

    async def _release(self, txn: Txn, full: OutOfSpace) -> TxnResult:
        """Raises: `full` if the store is of an earlier release that cannot decode the request."""
        try:
            return await translated(self.storage.release(txn))
        except StatusError as error:
            raise full if error.code == 400 else error from None

    def _outcome(self, result: TxnResult, guard: KeyValue | None, claims: Sequence[Claim]) -> Outcome:
        """Raises: StatusError 500 if the stored object is unreadable."""
        if result.succeeded:
            return Outcome(True, result.revision)
        found = [_first(response) for response in result.responses]
        first_claim = 2 if guard is not None else 1
        # Of free keys' claims only the keys are read.
        found = [
            kv and (self.reading.of(kv) if kv.value or at < first_claim else kv) for at, kv in enumerate(found)
        ]
        standing = {claim.key: kv for claim, kv in zip(claims, found[first_claim:])}
        taken = [claim for claim in claims if claim.revision != _revision(standing[claim.key])]
        return Outcome(False, result.revision, found[0], found[1] if guard is not None else None, taken, standing)

    async def _txn(self, compare: Sequence[Compare], success: Sequence[Op], failure: Sequence[Op]) -> TxnResult:
        return await self._send(Txn(tuple(compare), tuple(success), tuple(failure)))

    async def _send(self, txn: Txn) -> TxnResult:
        for op in txn.success:
            if type(op) is Put:
                self.reading.wrote(op.key, op.value)
        try:
            return await sent(self.storage, txn)
        except LeaseNotFound:
            # It was revoked early. The next write gets a new one.
            self._leases.clear()
            raise service_unavailable("the lease of the object has ended; please try again") from None
        except MinikubeError as error:
            raise status_of(error) from None

    async def lease(self, ttl_s: int) -> int:
        """A lease that expires in `ttl_s` or up to a minute later, shared by writes of that minute."""
        now_s = self._clock.monotonic_s()
        found = self._leases.get(ttl_s)
        if found is not None and now_s < found[1]:
            return found[0]
        granted = await translated(self.storage.lease_grant(ttl_s + LEASE_REUSE_S))
        self._leases[ttl_s] = (granted.id, now_s + LEASE_REUSE_S)
        return granted.id


def _with_claims(txn: Txn, claims: Sequence[Claim], released: Sequence[bytes] = ()) -> Txn:
    if not claims and not released:
        return txn
    held = [Compare(claim.key, "MOD", "=", claim.revision) for claim in claims]
    puts = [Put(claim.key, claim.value) for claim in claims]
    reads = [RangeRequest(claim.key, keys_only=not claim.revision) for claim in claims]
    success = (*txn.success, *puts, *map(DeleteRange, released))
    return Txn((*txn.compare, *held), success, (*txn.failure, *reads))


def _frees(key: bytes, value: bytes) -> bool:
    """Whether deletions need this update on a full store: objects being deleted, and leader election Leases (not
    nodes')."""
    if key.startswith(LEASES):
        return not key.startswith(NODE_LEASES)
    return bool(orjson.loads(value)["metadata"].get("deletionTimestamp"))


def _revision(kv: KeyValue | None) -> int:
    return kv.mod_revision if kv is not None else 0


def _first(response: object) -> KeyValue | None:
    assert isinstance(response, RangeResult), "the failure branch only reads"
    return response.kvs[0] if response.kvs else None


async def translated(operation: Awaitable[T]) -> T:
    """Maps store errors to API statuses. Raises: StatusError."""
    try:
        return await operation
    except MinikubeError as error:
        raise status_of(error) from None


def status_of(error: MinikubeError) -> MinikubeError:
    """The API status for a store error; other errors unchanged."""
    if isinstance(error, Compacted):
        return expired(TOO_OLD)
    if isinstance(error, RequestTooLarge):
        return request_entity_too_large(f"limit is {error.limit_bytes}")
    if isinstance(error, NoSpace):
        return OutOfSpace(f"{error}; {error.advice or ALARM_ADVICE}")
    if isinstance(error, ClusterCorrupt):
        advice = error.advice or f"`minikube-py store hash` compares them; {ALARM_ADVICE}"
        text = f"{error}: members hold different data, so writes are refused; {advice}"
        return StatusError(500, "", text)
    if isinstance(error, Unavailable):
        return service_unavailable(f"the store is not available: {error}")
    if isinstance(error, OutcomeUnknown):
        return timeout(f"{UNKNOWN}: {error}")
    if isinstance(error, InvalidRequest | FutureRevision):
        return StatusError(400, "BadRequest", str(error))
    return error

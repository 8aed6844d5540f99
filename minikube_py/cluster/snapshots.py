"""The state of a cluster, saved and restored by forward writes: revisions never decrease, watches see the events.

Leases are excluded: they are the heartbeats of nodes and leaders, which continue.

Where objects with a status return to an earlier state, scheduler, controllers and kubelets are stopped meanwhile, and
started again on what is restored: they then remember nothing of the time in between. Time is not restored: what became
due meanwhile happens at once."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Final

import orjson

from minikube_py.cluster.errors import STOPPED, ClusterError
from minikube_py.control_plane.in_process import to_its_end
from minikube_py.control_plane.plane import Plane
from minikube_py.env import Clock
from minikube_py.kubelet.fake import FakeKubelet
from minikube_py.mvcc.types import DeleteRange, Op, Put, RangeRequest, prefix_end
from minikube_py.store.storage import Storage

OBJECTS: Final = b"/registry/"
LEASES: Final = b"/registry/coordination.k8s.io/leases/"
NODES: Final = b"/registry/nodes/"
OPS_AT_ONCE: Final = 100
BYTES_AT_ONCE: Final = 256 << 10
"""Of values in one transaction; a larger one goes alone, as it was written."""
PASSES_MAX: Final = 20
QUIET_LOOKS: Final = 4
LOOK_AGAIN_S: Final = 0.002
LOOKS_MAX: Final = 5_000


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Every object but leases, as stored, at `revision`; of the control plane `of`. `down`: the nodes that were.
    `shown`: the keys whose values the API server shows as they are stored. `created`: the revision at which each
    object's key was written first since it last was absent."""

    revision: int
    objects: Mapping[bytes, bytes] = field(repr=False)
    of: weakref.ref[Plane] = field(repr=False, compare=False)
    down: frozenset[str] = frozenset()
    shown: frozenset[bytes] = field(default=frozenset(), repr=False)
    created: Mapping[bytes, int] = field(default_factory=dict, repr=False)


async def take(plane: Plane) -> Snapshot:
    """Raises: Unavailable."""
    found = await plane.storage.range(RangeRequest(OBJECTS, prefix_end(OBJECTS)))
    kept = [kv for kv in found.kvs if not kv.key.startswith(LEASES)]
    objects, created = {kv.key: kv.value for kv in kept}, {kv.key: kv.create_revision for kv in kept}
    kubelet = plane.components.get("kubelet")
    down: frozenset[str] = kubelet.silent if isinstance(kubelet, FakeKubelet) else frozenset()
    return Snapshot(found.revision, objects, weakref.ref(plane), down, created=created)


class Turn:
    """One at a time: components are paused once, and no snapshot is taken of a state that is half restored."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.over = False

    def require(self) -> None:
        """Raises: ClusterError."""
        if self.over:
            raise ClusterError(STOPPED)


_TURNS: Final[weakref.WeakKeyDictionary[Plane, Turn]] = weakref.WeakKeyDictionary()


def _turn(plane: Plane) -> Turn:
    return _TURNS.setdefault(plane, Turn())


async def no_more(plane: Plane) -> None:
    """Returns once no restore runs or will begin: `stop` must reach the components that one starts."""
    turn = _turn(plane)
    turn.over = True
    async with turn.lock:
        return


async def settled(plane: Plane, clock: Clock) -> Snapshot:
    """Taken once only leases change any more. Raises: ClusterError if that does not happen."""
    async with _turn(plane).lock:
        found, shows = await _at_rest(plane, clock), plane.core.cache.reading.shows
    return replace(found, shown=frozenset(key for key, value in found.objects.items() if shows(key, value)))


async def _at_rest(plane: Plane, clock: Clock) -> Snapshot:
    turn = _turn(plane)
    turn.require()
    last, quiet = await take(plane), 0
    for _ in range(LOOKS_MAX):
        turn.require()
        await clock.sleep(LOOK_AGAIN_S)
        if not await changed_since(plane.storage, last.revision, len(last.objects)):
            quiet += 1
            if quiet >= QUIET_LOOKS:
                return last
            continue
        last, quiet = await take(plane), 0
    raise ClusterError(f"the cluster has not come to rest in {LOOKS_MAX} looks: something writes all the time")


def require_own(plane: Plane, snapshot: Snapshot) -> None:
    """Raises: ClusterError if it is another cluster's."""
    if snapshot.of() is not plane:
        raise ClusterError("snapshot is of another cluster: its nodes and uids are not those of this one")


async def put_back(plane: Plane, clock: Clock, snapshot: Snapshot) -> None:
    """Returns once all components are at rest, and the state is that of the snapshot, or what follows from it.

    Raises: ClusterError if something writes all the time."""
    async with _turn(plane).lock:
        await _put_back(plane, clock, snapshot)


async def _put_back(plane: Plane, clock: Clock, snapshot: Snapshot) -> None:
    # Components remember nothing of the time in between about objects without a status, as ConfigMaps.
    lives = tuple(kind.prefix for kind in plane.core.registry.kinds if kind.has_status)
    for _ in range(PASSES_MAX):
        ops = _difference(await _at_rest(plane, clock), snapshot)
        if snapshot.down or _replaces(ops) or any(isinstance(op, Put) and op.key.startswith(lives) for op in ops):
            break
        if not ops:
            return
        await _write(plane, ops, snapshot.shown)
    # Never halfway: without its components a cluster does nothing.
    await to_its_end(_with_new_components(plane, snapshot))
    await _at_rest(plane, clock)


async def _with_new_components(plane: Plane, snapshot: Snapshot) -> None:
    await plane.pause_components()
    try:
        for _ in range(PASSES_MAX):
            # Programs of the user still write.
            now = await take(plane)
            ops = _difference(now, snapshot)
            if await _write(plane, ops, snapshot.shown, now.revision):
                break
    finally:
        nodes = [key.removeprefix(NODES).decode() for key in snapshot.objects if key.startswith(NODES)]
        await plane.start_again(nodes, snapshot.down)


async def _write(plane: Plane, ops: Sequence[Op], shown: Set[bytes], revision: int = 0) -> bool:
    """Returns whether nobody else has written since `revision`."""
    for op in ops:
        if isinstance(op, Put) and op.key in shown:
            plane.core.cache.reading.wrote(op.key, op.value)
    for batch in batches(ops):
        alone = (await plane.storage.txn((), batch)).revision == revision + 1
        revision = revision + 1 if alone else -1
    return revision >= 0


def batches(ops: Sequence[Op]) -> Iterator[list[Op]]:
    """Transactions in order: none is too large, or has a key twice."""
    batch, size_bytes = list[Op](), 0
    for op in ops:
        more_bytes = len(op.value) if isinstance(op, Put) else 0
        mixed = batch and isinstance(op, Put) != isinstance(batch[-1], Put)
        if batch and (mixed or len(batch) == OPS_AT_ONCE or size_bytes + more_bytes > BYTES_AT_ONCE):
            yield batch
            batch, size_bytes = [], 0
        batch.append(op)
        size_bytes += more_bytes
    if batch:
        yield batch


def _difference(now: Snapshot, wanted: Snapshot) -> list[Op]:
    """Owners are deleted before their dependents, and controllers created after them, so that nothing deleted is
    recreated. An object that has taken the name of a wanted one is deleted first, as watches expect."""
    there, back = now.objects, wanted.objects
    changed = [key for key, value in back.items() if there.get(key) != value]
    others = {
        key
        for key in changed
        # Whose key has not been absent since is the same object.
        if now.created.get(key, 0) > wanted.revision and _uid(there[key]) != _uid(back[key])
    }
    gone = sorted((key for key in there if key not in back or key in others), key=_is_pod)
    changed.sort(key=_is_pod, reverse=True)
    return [*(DeleteRange(key) for key in gone), *(Put(key, back[key]) for key in changed)]


def _replaces(ops: Iterable[Op]) -> bool:
    """Whether an object is deleted before one of its name is back; a component must not create another in between."""
    gone = {op.key for op in ops if isinstance(op, DeleteRange)}
    return any(isinstance(op, Put) and op.key in gone for op in ops)


def _uid(value: bytes) -> object:
    """None for what is no object, as an allocation of an address."""
    try:
        return orjson.loads(value)["metadata"]["uid"]
    except (ValueError, TypeError, LookupError):
        return None


def _is_pod(key: bytes) -> bool:
    return key.startswith(b"/registry/pods/")


async def mark(plane: Plane, clock: Clock) -> tuple[int, int]:
    """For `changed_since`."""
    found = await take(plane)
    return found.revision, len(found.objects)


async def changed_since(storage: Storage, revision: int, count: int) -> bool:
    """Whether an object other than a lease was written since, or one of those `count` deleted."""
    if storage.revision == revision:
        return False
    there, end = 0, prefix_end(OBJECTS)
    for low, high in ((OBJECTS, LEASES), (prefix_end(LEASES), end)):
        found = await storage.range(RangeRequest(low, high, min_mod_revision=revision + 1, keys_only=True))
        if found.kvs:
            return True
        there += found.count
    return there != count

"""DELETE of objects and collections: preconditions, grace, finalizers, propagation.

Source: apiserver `pkg/registry/generic/registry/store.go`, `pkg/registry/rest/delete.go`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import orjson

from minikube_py.api.decode import JSON
from minikube_py.api.errors import GroupResource, Json, StatusError, conflict, not_found
from minikube_py.api.kind import Kind
from minikube_py.api.kinds.core import NAMESPACES, SERVICES
from minikube_py.api.meta import parse_timestamp, timestamp
from minikube_py.apiserver.addresses import held_keys
from minikube_py.apiserver.admission import Passage
from minikube_py.apiserver.messages import Admission, warning_headers
from minikube_py.apiserver.namespaces import check_mortal
from minikube_py.apiserver.object_store import ObjectStore, OutOfSpace
from minikube_py.apiserver.options import DeleteOptions
from minikube_py.apiserver.preparing import Body, as_served, as_written, encode, key_of, kind_of, stored
from minikube_py.apiserver.watch_cache import Entry, nobody_converts
from minikube_py.apiserver.work import Work, is_large
from minikube_py.env import Clock
from minikube_py.mvcc.types import KeyValue

if TYPE_CHECKING:
    from minikube_py.api.registry import Registry
    from minikube_py.apiserver.conversions import Conversions

ORPHAN: Final = "orphan"
FOREGROUND: Final = "foregroundDeletion"
ALONE_MAX: Final = 32
"""Attempts of a delete whose caller has gone: what it meets may be of its own webhook's making, time and again."""


class Deleted(NamedTuple):
    """`gone`: the object is deleted; `value` is its last state. Otherwise grace or finalizers hold it."""

    value: bytes
    revision: int
    gone: bool


class Marked(NamedTuple):
    """An object as its deletion leaves it. `waits`: something holds it; `held`: the addresses that go with it; `told`:
    the options that admission sees. `pending`: nothing changes. `graceful`: watchers see it before it goes; `twice`:
    admission does."""

    value: bytes
    uid: str
    graceful: bool
    twice: bool
    waits: bool
    held: list[bytes]
    told: DeleteOptions
    pending: bool = False


class _Worked(Protocol):
    work: Work


class _Caller:
    """Of a delete that goes on without it."""

    gone = False


class Deleter:
    """`at`: owner of the worker processes."""

    def __init__(self, store: ObjectStore, clock: Clock, at: _Worked) -> None:
        self._at = at
        self._store = store
        self._clock = clock
        self._deleting: set[asyncio.Task[Deleted]] = set()
        self.conversions_of: Callable[[Kind], Conversions | None] = nobody_converts

    async def delete(
        self,
        resource: Kind,
        namespace: str,
        name: str,
        options: DeleteOptions,
        admit: Admission | None = None,
        passage: Passage | None = None,
    ) -> Deleted:
        """Raises: StatusError 403, 404, 409."""
        check_mortal(resource, name)
        if resource.deletion_grace_s is None or options.dry_run:
            return await self._delete(resource, namespace, name, options, admit, passage)
        # Two txns: if the client disconnected between them, the second might never happen.
        caller = _Caller()
        deleting = self._delete(resource, namespace, name, options, admit, passage, caller)
        task = asyncio.get_running_loop().create_task(deleting)
        self._deleting.add(task)
        task.add_done_callback(self._over)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            caller.gone = True
            raise

    def _over(self, task: asyncio.Task[Deleted]) -> None:
        self._deleting.discard(task)
        # Its caller may be gone.
        if not task.cancelled():
            task.exception()

    async def _delete(
        self,
        resource: Kind,
        namespace: str,
        name: str,
        options: DeleteOptions,
        admit: Admission | None,
        passage: Passage | None,
        caller: _Caller | None = None,
    ) -> Deleted:
        kv = await self._store.get(resource.key(namespace, name))
        converting = self.conversions_of(resource)
        alone = 0
        while True:
            alone += caller is not None and caller.gone
            if alone > ALONE_MAX:
                raise conflict(resource, name)
            if kv is None:
                raise not_found(resource, name)
            if converting is not None:
                (kv,) = await converting.all_shown(resource, [kv])
            found = await self._marked(resource, kv, options, name)
            _check_preconditions(resource, name, found.uid, kv, options)
            if found.pending:
                return Deleted(kv.value, kv.mod_revision, False)
            if admit is not None:
                admit(resource, "", name, orjson.loads(as_served(resource, kv.value)), None)
            if passage is not None:
                passage.tell_options(found.told)
                await passage.allow(stored(resource, kv.value, kv.mod_revision), None)
            value, waits = found.value, found.waits
            if options.dry_run:
                return Deleted(value, kv.mod_revision, not waits)
            if waits and value == kv.value:
                return Deleted(kv.value, kv.mod_revision, False)
            if waits or found.graceful:
                try:
                    stored_value = await converting.to_store(resource, value) if converting is not None else value
                    outcome = await self._store.replace(kv, stored_value)
                except OutOfSpace:
                    if waits:
                        raise
                    # Upstream fails here, but a full store must allow deletes.
                    outcome = await self._store.delete(kv)
                    if outcome.done:
                        return Deleted(value, outcome.revision, True)
                    kv = outcome.current
                    continue
                if outcome.done and waits:
                    return Deleted(value, outcome.revision, False)
                if outcome.done:
                    kv = kv._replace(value=value, mod_revision=outcome.revision)
                    if passage is not None:
                        # Upstream runs admission for both txns.
                        await passage.allow(stored(resource, kv.value, kv.mod_revision), None)
                    outcome = await self._store.delete(kv)
            else:
                if passage is not None and found.twice:
                    await passage.allow(stored(resource, kv.value, kv.mod_revision), None)
                outcome = await self._store.delete(kv, found.held)
            if outcome.done:
                return Deleted(value, outcome.revision, True)
            kv = outcome.current

    async def _marked(self, resource: Kind, kv: KeyValue, options: DeleteOptions, name: str) -> Marked:
        wall_s = self._clock.wall_s()
        if not is_large(kv.value, JSON):
            return mark(resource, kv.value, options, wall_s)
        asked = Body(key_of(resource), kv.value, "", "", "", name, wall_s=wall_s, definition=resource.definition)
        found: Marked = await self._at.work.run("late", "deletes", "marked", asked, options)
        return found

    async def delete_collection(
        self,
        resource: Kind,
        entries: list[Entry],
        options: DeleteOptions,
        admit: Admission | None = None,
        passage: Passage | None = None,
    ) -> None:
        """One after another; missing objects are no error. Admission sees the options as they were sent."""
        if passage is not None:
            passage.keep_options()
        for entry in entries:
            *_, namespace, name = entry.key.decode().split("/")
            try:
                await self.delete(resource, namespace if resource.namespaced else "", name, options, admit, passage)
            except StatusError as error:
                if error.code != 404:
                    raise


def marked(kinds: Registry, asked: Body, options: DeleteOptions) -> Marked:
    """As a job: `asked` has the object as its body."""
    return mark(kind_of(kinds, asked), asked.body, options, asked.wall_s)


def mark(resource: Kind, value: bytes, options: DeleteOptions, wall_s: float) -> Marked:
    obj = orjson.loads(value if resource.write is None else as_served(resource, value))
    metadata = obj["metadata"]
    uid, was_deleting = metadata.get("uid", ""), bool(metadata.get("deletionTimestamp"))
    if _is_pending(resource, obj, options):
        return Marked(value, uid, False, False, True, [], options, pending=True)
    told = _as_told(resource, obj, options)
    graceful = resource.deletion_grace_s is not None
    if was_deleting:
        graceful = graceful and bool(metadata.get("deletionGracePeriodSeconds"))
    before = metadata.get("finalizers") or []
    twice = bool(before) or _finalizers(resource, before, options) != before
    if not was_deleting:
        resource.prepare_delete(obj, timestamp(wall_s))
    waits = _mark(resource, obj, options, wall_s)
    held = sorted(held_keys(obj)) if resource is SERVICES else []
    return Marked(as_written(resource, encode(obj)), uid, graceful, twice, waits, held, told)


def _mark(resource: Kind, obj: Json, options: DeleteOptions, wall_s: float) -> bool:
    """Marks the object as being deleted. False: nothing holds it, delete it at once."""
    metadata = obj["metadata"]
    if resource is NAMESPACES:
        return _mark_namespace(obj, options, wall_s)
    deleting = metadata.get("deletionTimestamp")
    waits = False
    if resource.deletion_grace_s is not None and deleting:
        waits = _shorten(metadata, options.grace_s, wall_s)
    elif resource.deletion_grace_s is not None:
        grace_s = resource.deletion_grace_s(obj, options.grace_s)
        _stamp(metadata, grace_s, wall_s)
        waits = grace_s > 0
    before = metadata.get("finalizers") or []
    finalizers = _finalizers(resource, before, options)
    if finalizers != before:
        if finalizers:
            metadata["finalizers"] = finalizers
        else:
            metadata.pop("finalizers", None)
    if finalizers and not metadata.get("deletionTimestamp"):
        _stamp(metadata, 0, wall_s)
    return waits or bool(finalizers)


def _stamp(metadata: Json, grace_s: int, wall_s: float) -> None:
    metadata["deletionTimestamp"] = timestamp(wall_s + grace_s)
    metadata["deletionGracePeriodSeconds"] = grace_s
    if metadata.get("generation"):
        metadata["generation"] += 1


def _mark_namespace(obj: Json, options: DeleteOptions, wall_s: float) -> bool:
    metadata, spec = obj["metadata"], obj.setdefault("spec", {})
    if finalizers := _finalizers(NAMESPACES, metadata.get("finalizers") or [], options):
        metadata["finalizers"] = finalizers
    if not metadata.get("deletionTimestamp"):
        metadata["deletionTimestamp"] = timestamp(wall_s)
    obj.setdefault("status", {})["phase"] = "Terminating"
    return bool(spec.get("finalizers") or metadata.get("finalizers"))


def _shorten(metadata: Json, asked_s: int | None, wall_s: float) -> bool:
    """A pending deletion can only be shortened, and does not end in the past. True: grace is left."""
    period_s = metadata.get("deletionGracePeriodSeconds") or 0
    if asked_s is None or not period_s:
        return False
    asked_s = asked_s if asked_s >= 0 else 1
    end_s = parse_timestamp(metadata["deletionTimestamp"]) - period_s + asked_s
    if end_s < wall_s:
        end_s, asked_s = wall_s, min(asked_s, 1)
    metadata["deletionTimestamp"] = timestamp(end_s)
    metadata["deletionGracePeriodSeconds"] = asked_s
    return asked_s > 0


@contextlib.contextmanager
def orphaning_told(resource: Kind, options: DeleteOptions) -> Iterator[Mapping[str, str]]:
    """The warning header for dependents orphaned by default; also on refusals."""
    silent = options.propagation or options.orphan is not None or not resource.orphaning_warning
    said = () if silent else (resource.orphaning_warning,)
    try:
        yield warning_headers(said)
    except StatusError as error:
        error.warnings += said
        raise


def _is_pending(resource: Kind, obj: Json, options: DeleteOptions) -> bool:
    """Whether a deletion goes on that these options cannot shorten: nothing changes, and admission is not asked."""
    metadata = obj["metadata"]
    if not metadata.get("deletionTimestamp"):
        return False
    if resource is NAMESPACES:
        return bool((obj.get("spec") or {}).get("finalizers"))
    period_s = metadata.get("deletionGracePeriodSeconds") or 0
    asked_s = _asked_s(options)
    return resource.deletion_grace_s is not None and period_s > 0 and (asked_s is None or asked_s >= period_s)


def _asked_s(options: DeleteOptions) -> int | None:
    return options.grace_s if options.grace_s is None or options.grace_s >= 0 else 1


def _as_told(resource: Kind, obj: Json, options: DeleteOptions) -> DeleteOptions:
    """The options that admission sees: with the grace that the kind gives, and the uid that a namespace must have."""
    grace_s, metadata = _asked_s(options), obj["metadata"]
    if resource.deletion_grace_s is not None and not metadata.get("deletionTimestamp"):
        grace_s = resource.deletion_grace_s(obj, grace_s)
    uid = metadata.get("uid", "") if resource is NAMESPACES else options.uid
    return options._replace(grace_s=grace_s, uid=uid)


def _finalizers(resource: Kind, before: list[str], options: DeleteOptions) -> list[str]:
    orphan, foreground = _propagation(resource, before, options)
    kept = [name for name in before if name not in (ORPHAN, FOREGROUND)]
    wanted = kept + ([ORPHAN] if orphan else []) + ([FOREGROUND] if foreground else [])
    return before if set(wanted) == set(before) else wanted


def _propagation(resource: Kind, before: list[str], options: DeleteOptions) -> tuple[bool, bool]:
    """(orphan the dependents, delete them first)."""
    if not resource.has_dependents:
        return False, False
    if options.orphan is not None:
        return options.orphan, False
    if options.propagation:
        return options.propagation == "Orphan", options.propagation == "Foreground"
    if ORPHAN in before:
        return True, False
    if FOREGROUND in before:
        return False, True
    return resource.orphans_by_default, False


def _check_preconditions(resource: Kind, name: str, found: str, kv: KeyValue, options: DeleteOptions) -> None:
    if resource is NAMESPACES:
        found_named = (("UID", options.uid, found), ("ResourceVersion", options.revision_text, str(kv.mod_revision)))
        for what, wanted, there in found_named:
            if wanted and wanted != there:
                why = f"Precondition failed: {what} in precondition: {wanted}, {what} in object meta: {there}"
                raise conflict(resource, name, why)
        return
    by_kind = GroupResource(resource.group, resource.kind, resource.kind)
    if options.uid and options.uid != found:
        why = (
            f"the UID in the precondition ({options.uid}) does not match the UID in record ({found}). "
            "The object might have been deleted and then recreated"
        )
        raise conflict(by_kind, name, why)
    if options.revision_text and options.revision_text != str(kv.mod_revision):
        why = (
            f"the ResourceVersion in the precondition ({options.revision_text}) does not match the ResourceVersion in "
            f"record ({kv.mod_revision}). The object might have been modified"
        )
        raise conflict(by_kind, name, why)

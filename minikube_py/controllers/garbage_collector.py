"""Garbage collector: deletes objects whose owners are all gone.

Background: the owner is deleted first, then its dependents. Foreground: the owner stays, with a finalizer, until the
dependents that block it are gone. Orphan: the dependents' references are removed first. An owner with another uid or
namespace counts as absent. Source: k8s.io/kubernetes/pkg/controller/garbagecollector; KEP-2336.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

import orjson

from minikube_py.api.errors import StatusError
from minikube_py.api.memo import Bounded
from minikube_py.client.crew import Crew
from minikube_py.client.informer import Handler, Informer
from minikube_py.client.rest import EVENTS, Object, ResourceRef, delete_options, path_of
from minikube_py.client.transport import MERGE_PATCH
from minikube_py.client.workqueue import RateLimitingQueue, work
from minikube_py.controllers.base import ControllerContext
from minikube_py.controllers.discovery import ServedResource, served_resources
from minikube_py.controllers.owner_graph import Item, OwnerGraph, unblocked_owners
from minikube_py.controllers.views import FOREGROUND, ORPHAN, MetaView, OwnerRef, owner_refs
from minikube_py.errors import MinikubeError

logger = logging.getLogger(__name__)

_OWNERS_AT_ONCE: Final = 32
"""Asked for between two turns of the loop: with an API server in this process, an answer does not wait."""
ABSENT_OWNERS_MAX: Final = 10_000
IGNORED: Final = frozenset((EVENTS, ResourceRef("events.k8s.io", "v1", "events")))
NEEDED_VERBS: Final = frozenset(("list", "watch", "delete"))


class UnknownOwnerKind(MinikubeError):
    """An ownerReference names a kind that is not served (now): the object is kept and retried."""


class _Classified(NamedTuple):
    solid: list[OwnerRef]
    dangling: list[OwnerRef]
    waiting: list[OwnerRef]
    """Owners in foreground deletion that wait for this object."""


class GarbageCollector:
    name = "garbage-collector-controller"

    def __init__(self, context: ControllerContext) -> None:
        self._client = context.client
        self._clock = context.clock
        self._informers = context.informers
        self._config = context.config
        self._graph = OwnerGraph()
        self._delete_queue: RateLimitingQueue[Item] = RateLimitingQueue(context.clock, timers=context.timers)
        self._orphan_queue: RateLimitingQueue[Item] = RateLimitingQueue(context.clock, timers=context.timers)
        self._monitored: dict[ResourceRef, ServedResource] = {}
        self._by_kind: dict[tuple[str, str], ServedResource] = {}
        self._absent_owners = Bounded(ABSENT_OWNERS_MAX)
        self._deleters = Crew(
            self._config.gc_workers, lambda _: work(self._delete_queue, self.attempt_to_delete, self._failed), self.name
        )
        self._orphaners = Crew(
            self._config.workers, lambda _: work(self._orphan_queue, self.orphan_dependents, self._failed), self.name
        )
        self._rediscovery = Crew(1, lambda _: self._rediscover(), self.name)
        self.deleted = self.orphaned = self.failures = 0

    async def try_to_discover(self) -> None:
        """Follows all served kinds; call it before the informers start. Refused, it is tried again periodically."""
        try:
            await self.discover()
        except MinikubeError as error:
            logger.warning("garbage collector: discovery failed: %s", error or type(error).__name__)
        except Exception:
            logger.exception("garbage collector: discovery failed")

    async def discover(self) -> None:
        resources, failed = await served_resources(self._client)
        served = {
            resource.ref: resource
            for resource in resources
            if resource.verbs >= NEEDED_VERBS and resource.ref not in IGNORED
        }
        served |= {ref: known for ref, known in self._monitored.items() if ref.group in failed and ref not in served}
        for ref in [ref for ref in self._monitored if ref not in served]:
            del self._monitored[ref]
            await self._informers.drop(ref)
        self._by_kind = {(resource.ref.api_version, resource.kind): resource for resource in served.values()}
        for ref, resource in served.items():
            if ref not in self._monitored:
                self._monitored[ref] = resource
                self._monitor(ref)

    def start(self) -> None:
        self._delete_queue.staff(self._deleters)
        self._orphan_queue.staff(self._orphaners)
        if self._config.discovery_period_s > 0:
            self._rediscovery.start(1)

    async def stop(self) -> None:
        self._delete_queue.shut_down()
        self._orphan_queue.shut_down()
        for each in (self._deleters, self._orphaners, self._rediscovery):
            await each.stop()

    def metrics(self) -> dict[str, float]:
        return {
            "garbagecollector_deleted_total": self.deleted,
            "garbagecollector_orphaned_total": self.orphaned,
            "garbagecollector_failures_total": self.failures,
            "garbagecollector_resources_monitored": len(self._monitored),
            'workqueue_depth{name="garbage_collector_attempt_to_delete"}': len(self._delete_queue),
            'workqueue_depth{name="garbage_collector_attempt_to_orphan"}': len(self._orphan_queue),
        }

    async def _rediscover(self) -> None:
        while True:
            await self._clock.sleep(self._config.discovery_period_s)
            await self.try_to_discover()

    def _failed(self, item: Item, error: Exception) -> None:
        self.failures += 1
        if isinstance(error, UnknownOwnerKind) or (isinstance(error, StatusError) and error.code in (404, 409)):
            logger.debug("garbage collector: %s: %s", item.key, error)
        elif isinstance(error, MinikubeError):
            logger.warning("garbage collector: %s %s: %s", item.resource.plural, item.key, error)
        else:
            logger.error("garbage collector: %s %s", item.resource.plural, item.key, exc_info=error)

    # --- the graph follows the objects ------------------------------------------------------------------------------

    def _monitor(self, ref: ResourceRef) -> None:
        def item_of(view: MetaView) -> Item:
            return Item(ref, view.namespace, view.name, view.uid)

        informer: Informer[MetaView] = self._informers.of(ref, needed=False)
        informer.add_handler(
            Handler(
                on_add=lambda view: self._added(item_of, view),
                on_update=lambda old, new: self._updated(item_of, old, new),
                on_delete=lambda view: self._deleted(item_of, view),
            )
        )

    def _added(self, item_of: Callable[[MetaView], Item], view: MetaView) -> None:
        if view.owners:
            item = item_of(view)
            self._graph.add(item, view.owners)
            if any(not self._is_there(owner, view) for owner in view.owners):
                self._delete_queue.add(item)
        if view.deleting:
            self._transition(item_of, None, view)

    def _updated(self, item_of: Callable[[MetaView], Item], old: MetaView, new: MetaView) -> None:
        if old.owners != new.owners:
            item = item_of(new)
            self._graph.update(item, old.owners, new.owners)
            unblocked = set(unblocked_owners(old.owners, new.owners))
            self._enqueue_waiting_owners(new, (owner for owner in old.owners if owner.uid in unblocked))
            if any(not self._is_there(owner, new) for owner in new.owners):
                self._delete_queue.add(item)
        if new.deleting:
            self._transition(item_of, old, new)

    def _deleted(self, item_of: Callable[[MetaView], Item], view: MetaView) -> None:
        for dependent in self._graph.dependents(view.uid):
            self._delete_queue.add(dependent)
        if view.owners:
            self._graph.remove(item_of(view), view.owners)
            self._enqueue_waiting_owners(view, view.owners)

    def _transition(self, item_of: Callable[[MetaView], Item], old: MetaView | None, new: MetaView) -> None:
        """An object started to wait for its dependents to be orphaned or deleted."""
        if new.orphaning and not (old is not None and old.orphaning):
            self._orphan_queue.add(item_of(new))
        elif new.deleting_dependents and not (old is not None and old.deleting_dependents):
            for dependent in self._graph.dependents(new.uid):
                self._delete_queue.add(dependent)
            self._delete_queue.add(item_of(new))

    def _enqueue_waiting_owners(self, view: MetaView, references: Iterable[OwnerRef]) -> None:
        for reference in references:
            found = self._find(reference, view)
            if found is not None and found[1].deleting_dependents:
                resource, owner = found
                self._delete_queue.add(Item(resource.ref, owner.namespace, owner.name, owner.uid))

    def _find(self, owner: OwnerRef, view: MetaView) -> tuple[ServedResource, MetaView] | None:
        """The owner as the informers know it, if the uid matches."""
        resource = self._by_kind.get((owner.api_version, owner.kind))
        if resource is None or resource.ref not in self._monitored:
            return None
        key = f"{view.namespace}/{owner.name}" if resource.namespaced else owner.name
        found: MetaView | None = self._informers.of(resource.ref, needed=False).store.get(key)
        return (resource, found) if found is not None and found.uid == owner.uid else None

    def _is_there(self, owner: OwnerRef, view: MetaView) -> bool:
        return self._find(owner, view) is not None

    def _is_solid(self, owner: OwnerRef, view: MetaView) -> bool:
        found = self._find(owner, view)
        return found is not None and not found[1].deleting_dependents

    def _view(self, item: Item) -> MetaView | None:
        if item.resource not in self._monitored:
            return None
        view: MetaView | None = self._informers.of(item.resource, needed=False).store.get(item.key)
        return view if view is not None and view.uid == item.uid else None

    # --- deleting ---------------------------------------------------------------------------------------------------

    async def attempt_to_delete(self, item: Item) -> None:
        """Deletes `item` if all its owners are gone; removes references to absent owners if some remain."""
        view = self._view(item)
        if view is None or (view.deleting and not view.deleting_dependents):
            return
        if view.deleting_dependents:
            await self._finish_foreground(item, view)
            return
        if all(self._is_solid(owner, view) for owner in view.owners):
            return
        latest = await self._latest(item)
        if latest is None:
            return
        owners = owner_refs(latest)
        if not owners:
            return
        if not view.namespace and any(self._namespaced(owner) for owner in owners):
            # A cluster-scoped object cannot have a namespaced owner: never resolve it, never delete.
            logger.warning("garbage collector: %s names a namespaced owner", item.key)
            return
        classified = await self._classify(view, owners)
        if classified.solid:
            gone = {owner.uid for owner in (*classified.dangling, *classified.waiting)}
            if gone:
                await self._drop_references(item, latest, gone)
        elif classified.waiting and self._graph.has_dependents(item.uid):
            await self._delete_in_foreground(item, latest)
        else:
            await self._delete(item, latest, _policy(latest))

    async def _latest(self, item: Item) -> Object | None:
        """The current metadata on the server, None if that object is gone."""
        try:
            obj = await self._client.get(item.resource, item.name, item.namespace)
        except StatusError as error:
            if error.code != 404:
                raise
            return None
        metadata: Object = obj["metadata"]
        return metadata if metadata["uid"] == item.uid else None

    def _namespaced(self, owner: OwnerRef) -> bool:
        resource = self._by_kind.get((owner.api_version, owner.kind))
        return resource is not None and resource.namespaced

    async def _classify(self, view: MetaView, owners: tuple[OwnerRef, ...]) -> _Classified:
        classified = _Classified([], [], [])
        for number, owner in enumerate(owners, 1):
            if not number % _OWNERS_AT_ONCE:
                await asyncio.sleep(0)
            found = self._find(owner, view)
            if found is not None:
                waits = found[1].deleting_dependents
                (classified.waiting if waits else classified.solid).append(owner)
                continue
            metadata = await self._ask_for_owner(owner, view)
            if metadata is None:
                classified.dangling.append(owner)
            elif metadata.get("deletionTimestamp") and FOREGROUND in (metadata.get("finalizers") or ()):
                classified.waiting.append(owner)
            else:
                classified.solid.append(owner)
        return classified

    async def _ask_for_owner(self, owner: OwnerRef, view: MetaView) -> Object | None:
        """The owner's metadata from the server; None if it is absent, which is cached: uids are never reused."""
        resource = self._by_kind.get((owner.api_version, owner.kind))
        if resource is None:
            raise UnknownOwnerKind(f"no such kind is served: {owner.api_version} {owner.kind}")
        namespace = view.namespace if resource.namespaced else ""
        absent = (namespace, owner.uid)
        if self._absent_owners.known(absent):
            return None
        try:
            obj = await self._client.get(resource.ref, owner.name, namespace)
        except StatusError as error:
            if error.code != 404:
                raise
        else:
            if obj["metadata"]["uid"] == owner.uid:
                metadata: Object = obj["metadata"]
                return metadata
        self._absent_owners(absent, True)
        return None

    async def _finish_foreground(self, item: Item, view: MetaView) -> None:
        """Removes the finalizer once no dependent blocks the object; until then processes those that do."""
        blocking = []
        for dependent in self._graph.dependents(item.uid):
            dependent_view = self._view(dependent)
            if dependent_view is not None and any(
                owner.uid == item.uid and owner.block_owner_deletion for owner in dependent_view.owners
            ):
                blocking.append((dependent, dependent_view))
        if not blocking:
            await self._remove_finalizer(item, FOREGROUND)
            return
        for dependent, dependent_view in blocking:
            if not dependent_view.deleting_dependents:
                self._delete_queue.add(dependent)

    async def _delete_in_foreground(self, item: Item, latest: Object) -> None:
        """A link in a chain of foreground deletions. Unblocking the owner breaks a cycle."""
        views = (self._view(dependent) for dependent in self._graph.dependents(item.uid))
        if any(view is not None and view.deleting_dependents for view in views):
            references = [{**reference, "blockOwnerDeletion": False} for reference in latest["ownerReferences"]]
            latest = await self._patch_metadata(item, latest, {"ownerReferences": references})
        await self._delete(item, latest, "Foreground")

    async def _delete(self, item: Item, latest: Object, policy: str) -> None:
        # With the resourceVersion, a concurrent change of owners causes a conflict, and the object stays.
        options = delete_options(item.uid, latest["resourceVersion"], None, policy)
        path = path_of(item.resource, item.namespace, item.name)
        try:
            await self._client.raw("DELETE", path, None, orjson.dumps(options))
        except StatusError as error:
            if error.code != 404:
                raise
            return
        self.deleted += 1

    async def _drop_references(self, item: Item, latest: Object, uids: set[str]) -> None:
        kept = [reference for reference in latest.get("ownerReferences") or () if reference["uid"] not in uids]
        await self._patch_metadata(item, latest, {"ownerReferences": kept or None})

    async def _remove_finalizer(self, item: Item, finalizer: str) -> None:
        latest = await self._latest(item)
        if latest is None or finalizer not in (latest.get("finalizers") or ()):
            return
        kept = [name for name in latest["finalizers"] if name != finalizer]
        await self._patch_metadata(item, latest, {"finalizers": kept or None})

    async def _patch_metadata(self, item: Item, latest: Object, change: dict[str, Any]) -> Object:
        """Raises StatusError 409 if the object has changed since `latest`."""
        patch = {"metadata": {"uid": item.uid, "resourceVersion": latest["resourceVersion"], **change}}
        path = path_of(item.resource, item.namespace, item.name)
        response = await self._client.raw("PATCH", path, None, orjson.dumps(patch), MERGE_PATCH)
        metadata: Object = orjson.loads(response.body)["metadata"]
        return metadata

    # --- orphaning --------------------------------------------------------------------------------------------------

    async def orphan_dependents(self, item: Item) -> None:
        """Removes the reference to `item` from all its dependents, then its finalizer."""
        outcomes = await asyncio.gather(
            *(self._orphan(dependent, item.uid) for dependent in self._graph.dependents(item.uid)),
            return_exceptions=True,
        )
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
        await self._remove_finalizer(item, ORPHAN)

    async def _orphan(self, dependent: Item, owner_uid: str) -> None:
        latest = await self._latest(dependent)
        if latest is None:
            return
        try:
            await self._drop_references(dependent, latest, {owner_uid})
        except StatusError as error:
            if error.code != 404:
                raise
            return
        self.orphaned += 1


def _policy(metadata: Object) -> str:
    finalizers = metadata.get("finalizers") or ()
    if ORPHAN in finalizers:
        return "Orphan"
    return "Foreground" if FOREGROUND in finalizers else "Background"

"""Maintains the status of ResourceQuotas, the limits and their usage, by a full count.

Admission charges writes, in the same txn; this controller accounts for deletions, other changes, and objects older than
the quota. A count applies to one version of the quota: everything charged up to it is in the lists read afterwards, and
the status is written only if the quota is unchanged. So a late count never lets a quota be exceeded. Only kinds named
by quotas are followed, from the first quota on. Counts beside many objects have a pace: events of one quota in between
are one count.

Source: `pkg/controller/resourcequota`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable
from typing import Final

from minikube_py.api.errors import StatusError
from minikube_py.api.quota.amounts import Amounts, mask, plus, read, same, written
from minikube_py.api.quota.evaluators import Evaluator, Seen, named, payer
from minikube_py.api.quota.pods import is_extended_request
from minikube_py.client.informer import Handler, Informer
from minikube_py.client.rest import PODS, SERVICES, Object, ResourceRef, path_of
from minikube_py.controllers.base import ControllerContext, QueueWorkers
from minikube_py.controllers.discovery import served_resources
from minikube_py.controllers.views import MetaView, PodView
from minikube_py.controllers.volume_views import CLAIMS, DEVICE_CLAIMS, QUOTAS, WholeView
from minikube_py.env import Slices, ended
from minikube_py.fields.quantity import ZERO, from_value

DEVICE_CLASSES: Final = ResourceRef("resource.k8s.io", "v1", "deviceclasses")
RESYNC_S: Final = 300.0
COUNTED_PER_S: Final = 1000
"""Objects that a quota's counts read in a second, if they are more than COUNTED_AT_ONCE."""
COUNTED_AT_ONCE: Final = 100
"""Objects of a page. Beside so few a count is cheap, and does not wait."""
_OBJECT_STEPS: Final = 20
"""Of `env.Slices`, to know what an object uses."""
_VERBS: Final = frozenset(("create", "list", "watch", "delete"))


class _Pace:
    """Of one quota as its owner wrote it: another version does not wait."""

    def __init__(self) -> None:
        self.objects = 0
        self.free_s = 0.0

    def counted(self, objects: int, now_s: float) -> None:
        self.objects, self.free_s = objects, now_s + objects / COUNTED_PER_S


class ResourceQuotas:
    name = "resourcequota-controller"

    def __init__(self, context: ControllerContext) -> None:
        self._client = context.client
        self._clock = context.clock
        self._informers = context.informers
        self._quotas: Informer[WholeView] = context.informers.of(QUOTAS)
        self._workers = QueueWorkers(context, self.name, self._sync)
        self._by_namespace: dict[str, set[str]] = {}
        self._kinds: dict[ResourceRef, Evaluator] = {}
        self._followed: set[ResourceRef] = set()
        self._resync: asyncio.Task[None] | None = None
        self._paces: dict[str, _Pace] = {}
        self._quotas.add_handler(Handler(on_add=self._added, on_update=self._updated, on_delete=self._gone))

    def start(self) -> None:
        self._workers.start()
        self._resync = asyncio.get_running_loop().create_task(self._resync_forever())

    async def stop(self) -> None:
        if self._resync is not None:
            self._resync.cancel()
            await ended(self._resync)
        await self._workers.stop()

    def metrics(self) -> dict[str, float]:
        return self._workers.metrics()

    async def _resync_forever(self) -> None:
        """Finds pods that have passed their deadline: they no longer count, but no event reports it."""
        while True:
            await self._clock.sleep(RESYNC_S)
            for quota in self._quotas.store.values():
                self._workers.queue.add(quota.key)

    # --- triggers ---------------------------------------------------------------------------------------------------

    def _added(self, quota: WholeView) -> None:
        self._by_namespace.setdefault(quota.namespace, set()).add(quota.key)
        self._workers.queue.add(quota.key)

    def _updated(self, old: WholeView, new: WholeView) -> None:
        if not same(read(old.obj["spec"].get("hard")), read(new.obj["spec"].get("hard"))):
            self._paces.pop(new.key, None)
            self._workers.queue.add(new.key)

    def _gone(self, quota: WholeView) -> None:
        self._paces.pop(quota.key, None)
        keys = self._by_namespace[quota.namespace]
        keys.discard(quota.key)
        if not keys:
            del self._by_namespace[quota.namespace]

    def _replenish(self, ref: ResourceRef, namespace: str) -> None:
        for key in sorted(self._by_namespace.get(namespace, ())):
            quota = self._quotas.store.get(key)
            # Whether an extended resource is a device's is only found when counting.
            if quota is not None and _concerns(self._kinds[ref], quota.obj["spec"].get("hard") or {}, Seen(0.0)):
                self._workers.queue.add(key)

    def _follow(self, ref: ResourceRef) -> None:
        if ref in self._followed:
            return
        self._followed.add(ref)
        informer: Informer[MetaView] = self._informers.of(ref, needed=False)

        def updated(old: MetaView, new: MetaView) -> None:
            if _may_use_less(ref, old, new):
                self._replenish(ref, new.namespace)

        informer.add_handler(Handler(on_update=updated, on_delete=lambda view: self._replenish(ref, view.namespace)))

    # --- counting ---------------------------------------------------------------------------------------------------

    async def _sync(self, key: str) -> None:
        namespace, _, name = key.partition("/")
        if key not in self._quotas.store:
            return
        pace, now_s = self._paces.setdefault(key, _Pace()), self._clock.monotonic_s()
        if pace.objects > COUNTED_AT_ONCE and now_s < pace.free_s:
            self._workers.queue.add_after(key, pace.free_s - now_s)
            return
        try:
            quota = await self._client.get(QUOTAS, name, namespace)
        except StatusError as error:
            if error.code == 404:
                return
            raise
        hard, status = read(quota["spec"].get("hard")), quota.get("status") or {}
        before = read(status.get("used"))
        used = mask({**before, **await self._count(quota, hard, pace)}, hard)
        if same(hard, read(status.get("hard"))) and same(used, before):
            # Objects created during the count were charged twice, and no other event triggers a recount.
            now = await self._client.get(QUOTAS, name, namespace)
            if now["metadata"]["resourceVersion"] != quota["metadata"]["resourceVersion"]:
                self._workers.queue.add(key)
            return
        quota["status"] = {"hard": written(hard), "used": written(used)}
        await self._client.update_status(QUOTAS, quota)

    async def _count(self, quota: Object, hard: Collection[str], pace: _Pace) -> Amounts:
        seen = await self._seen(quota, hard)
        kinds = await self._kinds_of(hard, seen)
        total: Amounts = {}
        objects = 0
        for ref, evaluator in kinds.items():
            # Follow first, then list: no deletion in between is missed.
            self._follow(ref)
            counted = dict.fromkeys(evaluator.matching(hard, seen), ZERO)
            used, read_now = await self._used(ref, evaluator, quota, counted, seen)
            total, objects = plus(total, mask(used, counted)), objects + read_now
        pace.counted(objects, self._clock.monotonic_s())
        return total

    async def _used(
        self, ref: ResourceRef, evaluator: Evaluator, quota: Object, start: Amounts, seen: Seen
    ) -> tuple[Amounts, int]:
        """And how many objects were read for it."""
        namespace = quota["metadata"]["namespace"]
        if not evaluator.updates:
            # Only the number of objects matters.
            matches = evaluator.scopes_match(quota, {})
            found = dict.fromkeys(start, from_value(await self._number(ref, namespace))) if matches else start
            return found, 1
        total, slices, objects = start, Slices(), 0
        async for page in self._client.pages(ref, namespace, limit=COUNTED_AT_ONCE):
            objects += len(page.items)
            for obj in page.items:
                await slices.spend(_OBJECT_STEPS)
                if evaluator.scopes_match(quota, obj):
                    total = plus(total, mask(evaluator.usage(obj, seen), start))
        return total, objects

    async def _number(self, ref: ResourceRef, namespace: str) -> int:
        document = await self._client.request("GET", path_of(ref, namespace), {"limit": "1"})
        return len(document.get("items") or ()) + int((document.get("metadata") or {}).get("remainingItemCount") or 0)

    async def _kinds_of(self, hard: Collection[str], seen: Seen) -> dict[ResourceRef, Evaluator]:
        """The kinds that a quota limits; discovery is refreshed if a name matches none."""
        for fresh in (False, True):
            if fresh:
                resources, _ = await served_resources(self._client)
                for each in resources:
                    evaluator = named(each.ref.group, each.ref.plural)
                    if each.namespaced and each.verbs >= _VERBS and evaluator is not None:
                        self._kinds[each.ref] = evaluator
            found = {ref: each for ref, each in self._kinds.items() if _concerns(each, hard, seen)}
            known = {name for each in found.values() for name in each.matching(hard, seen)}
            if known.issuperset(hard):
                break
        return found

    async def _seen(self, quota: Object, hard: Iterable[str]) -> Seen:
        extended: dict[str, str] = {}
        pods: dict[str, Object] = {}
        claims: list[Object] = []
        if any(map(is_extended_request, hard)):
            for each in await self._client.list(DEVICE_CLASSES):
                extended[each["metadata"]["name"]] = each["spec"].get("extendedResourceName") or ""
        if extended:
            namespace = quota["metadata"]["namespace"]
            claims = await self._client.list(DEVICE_CLAIMS, namespace)
            pods = {each["metadata"]["name"]: each for each in await self._client.list(PODS, namespace)}
        return Seen(
            self._clock.wall_s(),
            extended,
            lambda claim: payer(claim, lambda _, name: pods.get(name), lambda _: claims),
        )


def _concerns(evaluator: Evaluator, hard: Iterable[str], seen: Seen) -> bool:
    return bool(evaluator.matching(hard, seen))


def _may_use_less(ref: ResourceRef, old: MetaView, new: MetaView) -> bool:
    """Whether an update may have reduced usage or changed which quotas apply. Admission charges creates and
    increases."""
    if isinstance(old, PodView) and isinstance(new, PodView):
        return old.charged_by != new.charged_by or (new.terminal and not old.terminal)
    return ref in (CLAIMS, SERVICES)

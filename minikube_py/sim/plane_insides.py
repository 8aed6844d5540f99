"""The internal state of a control plane's components, compared with the store: at rest there is no difference.

Informers and work queues are found wherever a component keeps them, so that new components are checked too."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple, TypeVar

from minikube_py.client.informer import Informer, key_of
from minikube_py.client.rest import LEASES, NODES, PODS, Object, ResourceRef, RestClient
from minikube_py.client.workqueue import ItemExponentialRateLimiter, RateLimitingQueue, WorkQueue
from minikube_py.scheduler.cache import Cache
from minikube_py.scheduler.objects import project_node, project_pod
from minikube_py.scheduler.scheduler import Scheduler

T = TypeVar("T")
DEPTH_MAX: Final = 5
HOLDERS: Final = ("minikube_py.client.", "minikube_py.controllers.", "minikube_py.scheduler.", "minikube_py.kubelet.")
PROJECTION_DEPTH_MAX: Final = 4
PLAIN_EQ: Final[object] = object.__eq__
PLAIN: Final = (str, bytes, int, float, bool, type(None), tuple, frozenset)


class Asked(NamedTuple):
    resource: ResourceRef
    namespace: str = ""
    label_selector: str = ""
    field_selector: str = ""

    async def of(self, client: RestClient, version: str = "") -> dict[str, Object]:
        """By key. `version` "0": the server's cached state."""
        page = await client.list_page(
            self.resource,
            self.namespace,
            label_selector=self.label_selector,
            field_selector=self.field_selector,
            resource_version=version,
        )
        return {key_of(item): item for item in page.items}


class Insides:
    """Inspects `components` by host; gets the stored state from `client`, and the cached one from each of `servers` by
    host."""

    def __init__(self, components: Mapping[str, Any], client: RestClient, servers: Mapping[str, RestClient]) -> None:
        self._components, self._client, self._servers = components, client, servers
        self._listed: dict[Asked, dict[str, Object]] = {}

    async def look(self) -> list[str]:
        """Differences from the store. Raises: MinikubeError."""
        found: list[str] = []
        for host, component in self._components.items():
            informers = [(each, await self._informer(each)) for each in reached(component, Informer)]
            found += [f"informers: {host}'s of {each.resource.plural}: {text}" for each, text in informers if text]
            queues = map(_queue, reached(component, WorkQueue))
            found += [f"work queues: {host}: {text}" for text in queues if text]
            if isinstance(component, Scheduler):
                found += [f"scheduler: {text}" for text in await self._scheduler(component)]
        for asked, there in list(self._listed.items()):
            for host, server in self._servers.items():
                # Heartbeats continue.
                if asked.resource != LEASES and await asked.of(server, "0") != there:
                    found.append(f"watch caches: {host} does not remember {asked.resource.plural} as they are")
        return found

    async def _list(self, asked: Asked) -> dict[str, Object]:
        if asked not in self._listed:
            self._listed[asked] = await asked.of(self._client)
        return self._listed[asked]

    async def _informer(self, informer: Informer[Any]) -> str:
        if informer._task is None:
            return ""
        selection = informer._selection
        asked = Asked(informer.resource, selection.namespace, selection.label_selector, selection.field_selector)
        there = {}
        for key, obj in (await self._list(asked)).items():
            if (item := informer._project(obj)) is not None:
                there[key] = item
        known = dict(informer.store.items())
        if known.keys() != there.keys():
            return f"it lacks {sorted(there.keys() - known.keys())}, and keeps {sorted(known.keys() - there.keys())}"
        for key, item in there.items():
            if informer.resource != LEASES and (what := unlike(known[key], item)):
                return f"{key} differs in {what}"
        return ""

    async def _scheduler(self, scheduler: Scheduler) -> list[str]:
        """Its accounting of the nodes, compared with a new scheduler's."""
        fresh = Cache()
        for node in (await self._list(Asked(NODES))).values():
            fresh.put_node(project_node(node))
        for obj in (await self._list(Asked(PODS))).values():
            pod = project_pod(obj)
            if pod.node_name and not pod.finished:
                fresh.put_pod(pod)
        found = []
        cache, queue = scheduler._cache, scheduler._queue
        if cache.assumed:
            found.append(f"{cache.assumed} pods are assumed")
        if any(queue.pending().values()) or queue.in_flight:
            found.append(f"pods wait: {queue.pending()}, {queue.in_flight} in flight")
        if cache._pods.keys() != fresh._pods.keys():
            found.append(f"{len(cache)} pods are counted on nodes, and {len(fresh)} are there")
        counted, there = _counts(cache), _counts(fresh)
        found += [
            f"{name} counts {counted.get(name)}, and holds {there.get(name)}"
            for name in sorted(counted.keys() | there.keys())
            if counted.get(name) != there.get(name)
        ]
        return found


def _counts(cache: Cache) -> dict[str, Any]:
    columns = cache.columns
    return {
        node.name: {
            "requested": {name: amount for name, amount in node.requested.items() if amount},
            "columns": {name: int(columns.requested_row(name)[node.slot]) for name in ("cpu", "memory", "pods")},
            "allocatable": dict(node.allocatable),
            "pods": sorted(node.pods),
            "taints": node.taints,
            "unschedulable": bool(node.unschedulable),
        }
        for node in columns.by_name.values()
        if node.present
    }


def _queue(queue: WorkQueue[Any]) -> str:
    stats = queue.stats()
    if stats.depth or stats.processing:
        return f"{stats.depth} wait and {stats.processing} are worked on: {list(queue._queue)[:3]}"
    if isinstance(queue, RateLimitingQueue) and isinstance(queue._limiter, ItemExponentialRateLimiter):
        failing = list(queue._limiter._failures)
        if failing:
            return f"still fails: {failing[:3]}"
    return ""


def reached(root: Any, kind: type[T]) -> list[T]:
    """All objects of that kind that a component holds, in its objects and in plain containers."""
    found: dict[int, T] = {}
    seen = {id(root)}
    level = [root]
    for _ in range(DEPTH_MAX):
        below: list[Any] = []
        for holder in level:
            for value in _held(holder):
                if id(value) in seen:
                    continue
                seen.add(id(value))
                if isinstance(value, kind):
                    found[id(value)] = value
                elif not isinstance(value, Informer | WorkQueue | str | bytes | int | float | type):
                    below.append(value)
        level = below
    return list(found.values())


def _held(holder: Any) -> Iterator[Any]:
    if isinstance(holder, Mapping):
        yield from holder.values()
    elif isinstance(holder, list | tuple):
        yield from holder
    elif type(holder).__module__.startswith(HOLDERS):
        for _, value in _fields(holder):
            yield value


def _fields(obj: Any) -> Iterator[tuple[str, Any]]:
    yield from getattr(obj, "__dict__", {}).items()
    for base in type(obj).__mro__:
        slots: Any = base.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if hasattr(obj, name):
                yield name, getattr(obj, name)


def unlike(one: Any, other: Any, depth: int = PROJECTION_DEPTH_MAX) -> str:
    """The first field in which two projections differ, "" if they are equal."""
    if type(one) is not type(other):
        return f"{one!r}, not {other!r}"
    if isinstance(one, dict) and "metadata" in one:
        # Items of a list omit both.
        one, other = ({k: v for k, v in each.items() if k not in ("kind", "apiVersion")} for each in (one, other))
    if isinstance(one, tuple) and len(one) == len(other):
        return next((what for pair in zip(one, other, strict=True) if (what := unlike(*pair, depth - 1))), "")
    if isinstance(one, PLAIN) or type(one).__eq__ is not PLAIN_EQ:
        return "" if one == other else f"{one!r}, not {other!r}"
    if callable(one) or depth == 0:
        return ""
    theirs: dict[str, Any] = dict(_fields(other))
    for name, value in _fields(one):
        if what := unlike(value, theirs.get(name), depth - 1):
            return f"{name}: {what}"
    return ""

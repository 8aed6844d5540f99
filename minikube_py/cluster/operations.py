"""Operations of the public API on objects, over any transport: apply, list, get, delete, wait."""

from __future__ import annotations

from typing import Any, Final

from minikube_py.api.errors import StatusError
from minikube_py.api.meta import timestamp
from minikube_py.api.patch import APPLY_PATCH
from minikube_py.client.rest import EVENTS, PODS, Object, RestClient, path_of
from minikube_py.client.transport import STRATEGIC_MERGE_PATCH, ApiTransport
from minikube_py.cluster.arguments import Manifests
from minikube_py.cluster.errors import ClusterError, WaitTimeout
from minikube_py.cluster.faults import ended_status
from minikube_py.cluster.kinds import NOT_FOUND, Kinds
from minikube_py.cluster.loop_thread import LoopThread
from minikube_py.cluster.manifests import objects_of
from minikube_py.cluster.waiting import Waiting
from minikube_py.env import Clock

LOOK_AGAIN_S: Final = 0.01
STRICT: Final = {"fieldValidation": "Strict"}
"""Unknown and repeated fields are refused, as by kubectl."""
BACKGROUND: Final = {"propagationPolicy": "Background"}
APPLY: Final = {**STRICT, "fieldManager": "minikube-py", "force": "true"}


class Operations:
    """In `namespace` by default. All raise: StatusError, ClusterError."""

    def __init__(self, transport: ApiTransport, namespace: str, kinds: Kinds, clock: Clock) -> None:
        self.client = RestClient(transport)
        self.namespace = namespace
        self.kinds = kinds
        self._clock = clock

    async def apply(self, manifests: Manifests) -> list[Object]:
        """Server-side apply, which takes over fields of others. Returns them as stored."""
        return [await self._apply_one(each) for each in objects_of(manifests)]

    async def _apply_one(self, manifest: Object) -> Object:
        served = await self.kinds.of(self.client, manifest)
        metadata = manifest.get("metadata") or {}
        namespace = (metadata.get("namespace") or self.namespace) if served.namespaced else ""
        if metadata.get("name"):
            # The server writes it, and refuses it in an object that was read and changed.
            metadata.pop("managedFields", None)
            path = path_of(served.ref, namespace, metadata["name"])
            return await self.client.request("PATCH", path, APPLY, manifest, APPLY_PATCH)
        if metadata.get("generateName"):
            return await self.client.request("POST", path_of(served.ref, namespace), STRICT, manifest)
        raise ClusterError(f"manifests: a {served.kind} without metadata.name cannot be applied")

    async def objects(
        self, kind: str, namespace: str | None = None, selector: str = "", field_selector: str = "",
    ) -> list[Object]:  # fmt: skip
        """`namespace` "": of all namespaces. Each with its apiVersion and kind."""
        return await self._all("kind", kind, namespace, selector, field_selector)

    async def _all(
        self, parameter: str, kind: str, namespace: str | None, selector: str, field_selector: str = "",
    ) -> list[Object]:  # fmt: skip
        served = await self.kinds.named(self.client, kind, parameter)
        where = (self.namespace if namespace is None else namespace) if served.namespaced else ""
        items = await self.client.list(served.ref, where, label_selector=selector, field_selector=field_selector)
        return [{"apiVersion": served.api_version, "kind": served.kind, **each} for each in items]

    async def get(self, name: str, namespace: str | None = None) -> Object:
        """`name`: as `rc/web`."""
        return await self.client.request("GET", await self._path("name", name, namespace))

    async def delete(self, name: str, namespace: str | None = None) -> None:
        """Returns when the server has accepted it; `wait(name, gone=True)` waits for its end. What it owns is deleted,
        too, as kubectl does."""
        await self.client.request("DELETE", await self._path("name", name, namespace), BACKGROUND)

    async def end_container(self, pod: str, code: int, container: str, reason: str, namespace: str | None) -> Object:
        """See Door."""
        path = path_of(PODS, namespace or self.namespace, pod)
        found = await self.client.request("GET", path)
        status = ended_status(found, code, container, reason, timestamp(self._clock.wall_s()))
        return await self.client.request("PATCH", f"{path}/status", None, {"status": status}, STRATEGIC_MERGE_PATCH)

    async def look(self, waiting: Waiting, namespace: str | None, selector: str) -> bool:
        """Whether the condition holds now."""
        return waiting.seen(await self.found(waiting, namespace, selector))

    async def found(self, waiting: Waiting, namespace: str | None, selector: str) -> list[Object]:
        """The current objects that the condition is about."""
        try:
            if waiting.of_many:
                return await self._all("target", waiting.target, namespace, selector)
            path = await self._path("target", waiting.target, namespace)
        except ClusterError:
            # The objects of a definition end with it.
            if waiting.gone and self.kinds.was_used(waiting.target.partition("/")[0]):
                return []
            raise
        found = await self._or_none(path)
        return [] if found is None else [found]

    async def wait(
        self, waiting: Waiting, timeout_s: float, namespace: str | None, selector: str, clock: Clock
    ) -> list[Object]:
        """Raises: WaitTimeout."""
        deadline_s = clock.monotonic_s() + timeout_s
        while not await self.look(waiting, namespace, selector):
            if clock.monotonic_s() >= deadline_s:
                raise WaitTimeout(await self.why_not(waiting, timeout_s, namespace))
            await clock.sleep(LOOK_AGAIN_S)
        return waiting.last

    async def why_not(self, waiting: Waiting, timeout_s: float, namespace: str | None) -> str:
        """What was seen last, with the pods it owns or selects and the events about them."""
        where = self.namespace if namespace is None else namespace
        owners = {each["metadata"]["uid"] for each in waiting.last}
        every_pod = await self.client.list(PODS, where)
        pods = [
            each
            for each in every_pod
            if any(owner["uid"] in owners for owner in each["metadata"].get("ownerReferences") or ())
        ]
        names = {each["metadata"]["name"] for each in (*waiting.last, *pods)}
        if not waiting.of_many:
            names.add(waiting.target.partition("/")[2])
        every_event = await self.client.list(EVENTS, where)
        events = [each for each in every_event if (each.get("involvedObject") or {}).get("name") in names]
        events.sort(key=lambda each: str(each.get("lastTimestamp") or each.get("eventTime") or ""))
        return waiting.message(timeout_s, f" in {where}" if where else "", pods, events)

    async def _path(self, parameter: str, name: str, namespace: str | None) -> str:
        kind, _, bare = name.partition("/")
        served = await self.kinds.named(self.client, kind, parameter)
        where = (namespace or self.namespace) if served.namespaced else ""
        return path_of(served.ref, where, bare)

    async def _or_none(self, path: str) -> Object | None:
        try:
            return await self.client.request("GET", path)
        except StatusError as error:
            if error.code != NOT_FOUND:
                raise
            return None


def waited(
    thread: LoopThread[Any], clock: Clock, operations: Operations, waiting: Waiting, timeout_s: float,
    namespace: str | None, selector: str,
) -> list[Object]:  # fmt: skip
    """As `Operations.wait`, outside the loop's thread: `until` is called there, and may use the cluster.

    Raises: WaitTimeout."""
    deadline_s = clock.monotonic_s() + timeout_s

    async def later() -> list[Object]:
        await clock.sleep(LOOK_AGAIN_S)
        return await operations.found(waiting, namespace, selector)

    found = thread.run(lambda: operations.found(waiting, namespace, selector))
    while not waiting.seen(found):
        if clock.monotonic_s() >= deadline_s:
            raise WaitTimeout(thread.run(lambda: operations.why_not(waiting, timeout_s, namespace)))
        found = thread.run(later)
    return waiting.last

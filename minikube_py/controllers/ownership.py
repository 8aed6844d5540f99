"""Controller references: adoption of objects that a controller selects, release of those it no longer does, and whose
sync an event of a pod asks for.

Source: k8s.io/kubernetes/pkg/controller/controller_ref_manager.go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, NamedTuple, TypeVar

import orjson

from minikube_py.api.errors import StatusError
from minikube_py.client.events import Involved
from minikube_py.client.informer import Handler, Informer
from minikube_py.client.rest import Object, ResourceRef, RestClient, path_of
from minikube_py.client.store import ObjectStore
from minikube_py.client.transport import STRATEGIC_MERGE_PATCH
from minikube_py.client.workqueue import RateLimitingQueue
from minikube_py.controllers.base import involved, selecting
from minikube_py.controllers.expectations import Expectations
from minikube_py.controllers.views import MetaView, PodView, WorkloadView
from minikube_py.errors import MinikubeError

V = TypeVar("V", bound=MetaView)


class Owner(NamedTuple):
    """A kind that controls other objects."""

    resource: ResourceRef
    kind: str

    def reference(self, owner: MetaView) -> Object:
        """The ownerReference to `owner`."""
        return {
            "apiVersion": self.resource.api_version,
            "kind": self.kind,
            "name": owner.name,
            "uid": owner.uid,
            "controller": True,
            "blockOwnerDeletion": True,
        }

    def involved(self, owner: MetaView) -> Involved:
        return involved(self.kind, owner, self.resource.api_version)

    def of(self, view: MetaView, store: ObjectStore[WorkloadView]) -> WorkloadView | None:
        """The controller that `view` names, if the kind and uid match."""
        reference = view.controller
        if reference is None or reference.kind != self.kind:
            return None
        found = store.get(f"{view.namespace}/{reference.name}")
        return found if found is not None and found.uid == reference.uid else None


class OwnedPods:
    """Queues a workload whenever it changes, and when a pod does that it owns or might adopt; tells `expectations`.

    `slack_s`: what is waited beyond minReadySeconds. Source: k8s.io/kubernetes/pkg/controller/replicaset (addPod,
    updatePod, deletePod)."""

    def __init__(
        self, owner: Owner, workloads: Informer[WorkloadView], pods: Informer[PodView],
        queue: RateLimitingQueue[str], expectations: Expectations, slack_s: float = 0.0,
    ) -> None:  # fmt: skip
        self._kind, self._workloads, self._queue = owner, workloads.store, queue
        self._expectations, self._slack_s = expectations, slack_s
        workloads.add_handler(
            Handler(on_add=self._changed, on_update=lambda old, new: self._changed(new), on_delete=self._gone)
        )
        pods.add_handler(
            Handler(
                on_add=self._pod_added, on_update=self._pod_updated, on_delete=self._pod_deleted,
                on_list=expectations.pods_listed,
            )
        )

    def _changed(self, workload: WorkloadView) -> None:
        self._queue.add(workload.key)

    def _gone(self, workload: WorkloadView) -> None:
        self._expectations.forget(workload.key)
        self._queue.add(workload.key)

    def _owner(self, pod: PodView) -> WorkloadView | None:
        return self._kind.of(pod, self._workloads) if pod.controller_uid else None

    def _adoptable(self, pod: PodView) -> None:
        for workload in selecting(self._workloads, pod):
            self._queue.add(workload.key)

    def _pod_added(self, pod: PodView) -> None:
        if pod.deleting:
            self._pod_deleted(pod)
        elif not pod.controller_uid:
            self._adoptable(pod)
        elif (owner := self._owner(pod)) is not None:
            self._expectations.creation_observed(owner.key)
            self._queue.add(owner.key)

    def _pod_updated(self, old: PodView, new: PodView) -> None:
        if new.deleting:
            self._pod_deleted(new)
            return
        if old.controller_uid != new.controller_uid and (owner := self._owner(old)) is not None:
            self._queue.add(owner.key)
        if new.controller_uid:
            if (owner := self._owner(new)) is not None:
                self._queue.add(owner.key)
                if owner.min_ready_s > 0 and new.ready and not old.ready:
                    self._queue.add_after(owner.key, owner.min_ready_s + self._slack_s)
        elif old.labels != new.labels or old.controller_uid:
            self._adoptable(new)

    def _pod_deleted(self, pod: PodView) -> None:
        if (owner := self._owner(pod)) is not None:
            self._expectations.deletion_observed(owner.key, pod.uid)
            self._queue.add(owner.key)


def everything(view: MetaView) -> bool:
    return True


class Claims(Generic[V]):
    """Claims of one kind of owner on one kind of dependent."""

    def __init__(self, client: RestClient, owner: Owner, child: ResourceRef, finalizer: str = "") -> None:
        """Added to adopted objects."""
        self._client = client
        self._owner = owner
        self._child = child
        self._finalizers = {"finalizers": [finalizer]} if finalizer else {}

    async def claim(
        self, owner: WorkloadView, candidates: Iterable[V], belongs: Callable[[V], bool] = everything
    ) -> list[V]:
        """The owned objects: its own minus released, plus adopted ones. `belongs` narrows the selector. Raises:
        StatusError, Unavailable, after trying all."""
        claimed: list[V] = []
        failures: list[Exception] = []
        may_adopt: bool | None = None
        for view in candidates:
            selected = owner.selects(view.labels) and belongs(view)
            controller = view.controller
            if controller is not None and controller.uid != owner.uid:
                continue
            if controller is not None and selected:
                claimed.append(view)
                continue
            if owner.deleting:
                continue
            try:
                if controller is not None:
                    await self._release(owner, view)
                    continue
                if not selected or view.deleting:
                    continue
                if may_adopt is None:
                    may_adopt = await self._may_adopt(owner)
                if may_adopt and await self._adopt(owner, view):
                    claimed.append(view)
            except MinikubeError as error:
                failures.append(error)
        if failures:
            raise failures[0]
        return claimed

    async def _may_adopt(self, owner: WorkloadView) -> bool:
        """Asks the server, not the cache: a controller being deleted must not adopt what it orphans."""
        try:
            fresh = await self._client.get(self._owner.resource, owner.name, owner.namespace)
        except StatusError as error:
            if error.code != 404:
                raise
            return False
        metadata = fresh["metadata"]
        return metadata["uid"] == owner.uid and not metadata.get("deletionTimestamp")

    async def _adopt(self, owner: WorkloadView, view: V) -> bool:
        references = [self._owner.reference(owner)]
        patch = {"metadata": {"ownerReferences": references, "uid": view.uid, **self._finalizers}}
        return await self._patch(view, patch)

    async def _release(self, owner: WorkloadView, view: V) -> None:
        references = [{"$patch": "delete", "uid": owner.uid}]
        try:
            await self._patch(view, {"metadata": {"ownerReferences": references, "uid": view.uid}})
        except StatusError as error:
            # Another object has the name by now, or the reference is gone: nothing to release.
            if error.code != 422:
                raise

    async def _patch(self, view: V, patch: Object) -> bool:
        """False if the object is gone."""
        path = path_of(self._child, view.namespace, view.name)
        try:
            await self._client.raw("PATCH", path, None, orjson.dumps(patch), STRATEGIC_MERGE_PATCH)
        except StatusError as error:
            if error.code != 404:
                raise
            return False
        return True

"""Namespace: deletes all content of a terminating namespace, pods first.

Source: k8s.io/kubernetes/pkg/controller/namespace; KEP-5080 (ordered namespace deletion).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from minikube_py.api.errors import StatusError
from minikube_py.client.events import timestamp
from minikube_py.client.informer import Handler, Informer
from minikube_py.client.rest import NAMESPACES, PODS, Object, ResourceRef, path_of
from minikube_py.client.transport import MERGE_PATCH
from minikube_py.controllers.base import ControllerContext, QueueController, QueueWorkers
from minikube_py.controllers.discovery import ServedResource, served_resources
from minikube_py.controllers.ranking import parse_time_s
from minikube_py.controllers.views import NamespaceView, PodView
from minikube_py.errors import MinikubeError, Unavailable

FINALIZER: Final = "kubernetes"
FINALIZERS_ESTIMATE_S: Final = 15
"""How long to wait before checking content that has finalizers again."""
FAILURE_CHARS_MAX: Final = 1024
"""Of each failure, in a condition: another server's may be as long as an answer."""

_GOOD: Final = {
    "NamespaceDeletionDiscoveryFailure": ("ResourcesDiscovered", "All resources successfully discovered"),
    "NamespaceDeletionGroupVersionParsingFailure": (
        "ParsedGroupVersions",
        "All legacy kube types successfully parsed",
    ),
    "NamespaceDeletionContentFailure": (
        "ContentDeleted",
        "All content successfully deleted, may be waiting on finalization",
    ),
    "NamespaceContentRemaining": ("ContentRemoved", "All content successfully removed"),
    "NamespaceFinalizersRemaining": ("ContentHasNoFinalizers", "All content-preserving finalizers finished"),
}


@dataclass(slots=True)
class _Remaining:
    """What is left after a pass. `estimate_s`: when to check again."""

    counts: dict[str, int] = field(default_factory=dict)
    """By `plural.group`, as the condition prints it."""
    finalizers: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    discovery_failure: str = ""
    estimate_s: int = 0


class ContentRemains(MinikubeError):
    """Some content was not deleted and has no known reason to wait."""


class NamespaceController(QueueController):
    name = "namespace-controller"

    def __init__(self, context: ControllerContext) -> None:
        self._client = context.client
        self._clock = context.clock
        self._delay_s = context.config.namespace_deletion_delay_s
        self._namespaces: Informer[NamespaceView] = context.informers.of(NAMESPACES)
        self._pods: Informer[PodView] = context.informers.of(PODS)
        self._pods_left: dict[str, int] = {}
        self._workers = QueueWorkers(context, "namespace", self.sync)
        self._queue = self._workers.queue
        self._namespaces.add_handler(Handler(on_add=self._changed, on_update=lambda old, new: self._changed(new)))
        self._pods.add_handler(Handler(on_delete=self._pod_gone))

    def _changed(self, namespace: NamespaceView) -> None:
        if namespace.deleting and FINALIZER in namespace.spec_finalizers:
            self._queue.add_after(namespace.name, self._delay_s)

    def _pod_gone(self, pod: PodView) -> None:
        """Sync again when the last remaining pod of a pass is gone, not at each pod."""
        left = self._pods_left.get(pod.namespace)
        if left is None:
            return
        self._pods_left[pod.namespace] = left - 1
        if left <= 1:
            self._queue.add(pod.namespace)

    # --- one namespace ----------------------------------------------------------------------------------------------

    async def sync(self, name: str) -> None:
        """One pass over a terminating namespace. Raises: ContentRemains, to be retried with backoff."""
        self._pods_left.pop(name, None)
        try:
            namespace = await self._client.get(NAMESPACES, name)
            metadata = namespace["metadata"]
            if not metadata.get("deletionTimestamp"):
                return
            if namespace.get("status", {}).get("phase") != "Terminating":
                namespace = await self._patch_status(name, metadata["uid"], {"phase": "Terminating"})
            if FINALIZER not in (namespace.get("spec", {}).get("finalizers") or ()):
                return
            remaining = await self._delete_content(name, namespace)
            conditions = _conditions(namespace, remaining, self._clock.wall_s())
            if conditions != namespace.get("status", {}).get("conditions"):
                await self._patch_status(name, metadata["uid"], {"conditions": conditions})
            if remaining.failures:
                raise ContentRemains(", ".join(remaining.failures))
            if remaining.estimate_s > 0:
                self._queue.add_after(name, remaining.estimate_s // 2 + 1)
                return
            await self._finalize(name, metadata["uid"])
        except StatusError as error:
            if error.code != 404:
                raise

    async def _patch_status(self, name: str, uid: str, status: Object) -> Object:
        patch = {"metadata": {"uid": uid}, "status": status}
        return await self._client.patch(NAMESPACES, name, patch, content_type=MERGE_PATCH, subresource="status")

    async def _finalize(self, name: str, uid: str) -> None:
        """Removes this controller's finalizer; the server removes the namespace after the last one."""
        namespace = await self._client.get(NAMESPACES, name)
        if namespace["metadata"]["uid"] != uid:
            return
        spec = namespace.setdefault("spec", {})
        spec["finalizers"] = sorted({f for f in spec.get("finalizers") or () if f != FINALIZER})
        await self._client.raw("PUT", path_of(NAMESPACES, "", name, "finalize"), None, orjson.dumps(namespace))

    async def _delete_content(self, name: str, namespace: Object) -> _Remaining:
        remaining = _Remaining()
        try:
            served, failed = await served_resources(self._client)
        except MinikubeError as error:
            remaining.discovery_failure = str(error)[:FAILURE_CHARS_MAX]
            remaining.failures.append(remaining.discovery_failure)
            return remaining
        if failed:
            remaining.discovery_failure = f"Discovery failed for some groups, {len(failed)} failing: {sorted(failed)}"
            remaining.failures.append(remaining.discovery_failure)
        resources = [r for r in served if r.namespaced and "delete" in r.verbs]
        deleted_at_s = parse_time_s(namespace["metadata"]["deletionTimestamp"]) or 0.0
        # Pods first: the objects they use (service accounts, policies, secrets) must outlive them.
        for resource in sorted(resources, key=lambda r: r.ref != PODS):
            await self._delete_kind(resource, name, deleted_at_s, remaining)
            if resource.ref == PODS and remaining.counts:
                self._wait_for_pods(name)
                break
        return remaining

    def _wait_for_pods(self, name: str) -> None:
        left = sum(pod.namespace == name for pod in self._pods.store)
        if left:
            self._pods_left[name] = left
        else:
            # They were removed during the pass.
            self._queue.add(name)

    async def _delete_kind(
        self, resource: ServedResource, namespace: str, deleted_at_s: float, remaining: _Remaining
    ) -> None:
        ref = resource.ref
        try:
            estimate_s = await self._pods_grace_s(namespace, deleted_at_s) if ref == PODS else 0
            await self._delete_all(resource, namespace)
            left = await self._metadata_of_all(ref, namespace) if "list" in resource.verbs else []
        except MinikubeError as error:
            remaining.failures.append(str(error)[:FAILURE_CHARS_MAX])
            return
        if not left:
            return
        remaining.counts[f"{ref.plural}.{ref.group}"] = len(left)
        finalizers = Counter(f for metadata in left for f in metadata.get("finalizers") or ())
        remaining.finalizers.update(finalizers)
        if not estimate_s and finalizers:
            estimate_s = FINALIZERS_ESTIMATE_S
        if not estimate_s:
            gvr = f"{ref.group}/{ref.version}, Resource={ref.plural}"
            remaining.failures.append(f"unexpected items still remain in namespace: {namespace} for gvr: {gvr}")
        remaining.estimate_s = max(remaining.estimate_s, estimate_s)

    async def _pods_grace_s(self, namespace: str, deleted_at_s: float) -> int:
        """The longest grace period of its live pods; 0 once it has passed since the namespace's deletion."""
        longest_s = 0
        async for page in self._client.pages(PODS, namespace):
            for pod in page.items:
                if (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed"):
                    longest_s = max(longest_s, pod.get("spec", {}).get("terminationGracePeriodSeconds") or 0)
        return 0 if self._clock.wall_s() - deleted_at_s >= longest_s else longest_s

    async def _delete_all(self, resource: ServedResource, namespace: str) -> None:
        options = orjson.dumps({"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"})
        if "deletecollection" in resource.verbs:
            try:
                await self._client.raw("DELETE", path_of(resource.ref, namespace), None, options)
                return
            except StatusError as error:
                if error.code not in (404, 405):
                    raise
        if "list" not in resource.verbs:
            return
        for metadata in await self._metadata_of_all(resource.ref, namespace):
            try:
                await self._client.raw("DELETE", path_of(resource.ref, namespace, metadata["name"]), None, options)
            except StatusError as error:
                if error.code not in (404, 405):
                    raise

    async def _metadata_of_all(self, ref: ResourceRef, namespace: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        async for page in self._client.pages(ref, namespace):
            found += [_metadata(ref, item) for item in page.items]
        return found


def _metadata(ref: ResourceRef, item: Any) -> dict[str, Any]:
    """What is needed of it. Raises: Unavailable: what other servers answer may have any form."""
    metadata = item.get("metadata") if isinstance(item, dict) else None
    if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str):
        raise Unavailable(f"an item of the list of {ref.plural}.{ref.group} has no name")
    finalizers = metadata.get("finalizers")
    sound = [each for each in finalizers if isinstance(each, str)] if isinstance(finalizers, list) else []
    return {"name": metadata["name"], "finalizers": sound}


def _conditions(namespace: Object, remaining: _Remaining, now_s: float) -> list[Object]:
    """The five conditions of a terminating namespace, each with its last transition time."""
    bad: dict[str, tuple[str, str]] = {}
    if remaining.discovery_failure:
        bad["NamespaceDeletionDiscoveryFailure"] = ("DiscoveryFailed", remaining.discovery_failure)
    if remaining.failures:
        texts = ", ".join(sorted(remaining.failures))
        message = f"Failed to delete all resource types, {len(remaining.failures)} remaining: {texts}"
        bad["NamespaceDeletionContentFailure"] = ("ContentDeletionFailed", message)
    if remaining.counts:
        texts = ", ".join(f"{name} has {count} resource instances" for name, count in sorted(remaining.counts.items()))
        bad["NamespaceContentRemaining"] = ("SomeResourcesRemain", f"Some resources are remaining: {texts}")
    if remaining.finalizers:
        counts = sorted(remaining.finalizers.items())
        texts = ", ".join(f"{name} in {count} resource instances" for name, count in counts)
        message = f"Some content in the namespace has finalizers remaining: {texts}"
        bad["NamespaceFinalizersRemaining"] = ("SomeFinalizersRemain", message)
    before = {c["type"]: c for c in (namespace.get("status") or {}).get("conditions") or ()}
    conditions = [c for c in before.values() if c["type"] not in _GOOD]
    for kind, good in _GOOD.items():
        status = "True" if kind in bad else "False"
        reason, message = bad.get(kind, good)
        old = before.get(kind)
        since = old["lastTransitionTime"] if old is not None and old["status"] == status else timestamp(now_s)
        conditions.append(
            {"type": kind, "status": status, "lastTransitionTime": since, "reason": reason, "message": message}
        )
    return conditions

"""Creates and deletes an owner's pods, with expectations, growing batches and events.

Source: k8s.io/kubernetes/pkg/controller/controller_utils.go (RealPodControl, slowStartBatch).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import orjson

from minikube_py.api.errors import StatusError
from minikube_py.client.events import NORMAL, WARNING, EventRecorder
from minikube_py.client.rest import PODS, Object, RestClient, delete_options, path_of
from minikube_py.controllers.base import has_cause
from minikube_py.controllers.expectations import Expectations
from minikube_py.controllers.ownership import Owner
from minikube_py.controllers.views import PodView, WorkloadView
from minikube_py.errors import MinikubeError

NAMESPACE_TERMINATING: Final = "NamespaceTerminating"
GENERATED_PREFIX_MAX: Final = 253 - 5 - 1
"""Above this length the pod prefix drops its dash; the server truncates the rest."""


class PodControl:
    """For one kind of owner. Requested changes stay in `expectations` until they are observed."""

    def __init__(self, client: RestClient, owner: Owner, recorder: EventRecorder, expectations: Expectations) -> None:
        self._client = client
        self._owner = owner
        self._recorder = recorder
        self._expectations = expectations

    async def change(self, owner: WorkloadView, bodies: Sequence[bytes], going: Iterable[PodView]) -> None:
        """Creates pods from `bodies`, and deletes those in `going`. Raises the first failure."""
        pods = list(going)
        self._expectations.expect(owner.key, len(bodies), (pod.uid for pod in pods))
        _, failure = await self._create_all(owner, bodies)
        outcomes = await self.delete(owner, pods)
        for each in (failure, *outcomes):
            if each is not None:
                raise each

    async def create(self, owner: WorkloadView, bodies: Sequence[bytes]) -> tuple[int, Exception | None]:
        """Creates pods from `bodies`; returns (number created, first failure)."""
        self._expectations.expect(owner.key, len(bodies))
        return await self._create_all(owner, bodies)

    async def _create_all(self, owner: WorkloadView, bodies: Sequence[bytes]) -> tuple[int, Exception | None]:
        path, waiting = path_of(PODS, owner.namespace), iter(bodies)
        done, failure = await slow_start(len(bodies), lambda: self._create(owner, path, next(waiting)))
        for _ in range(len(bodies) - done):
            self._expectations.creation_observed(owner.key)
        return done, failure

    async def delete(self, owner: WorkloadView, pods: Sequence[PodView]) -> list[Exception | None]:
        """The failure of each. The caller sets the expectations."""
        outcomes = await asyncio.gather(*(self._delete(owner, pod) for pod in pods), return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException) and not isinstance(outcome, Exception):
                raise outcome
        return [outcome if isinstance(outcome, Exception) else None for outcome in outcomes]

    async def _create(self, owner: WorkloadView, path: str, body: bytes) -> None:
        if not (owner.template.get("metadata") or {}).get("labels"):
            raise ValueError("unable to create pods, no labels")
        reference = self._owner.involved(owner)
        try:
            response = await self._client.raw("POST", path, None, body)
        except StatusError as error:
            if has_cause(error, NAMESPACE_TERMINATING):
                # All creations fail in a terminating namespace: report nothing.
                self._expectations.creation_observed(owner.key)
                return
            self._recorder.event(reference, WARNING, "FailedCreate", f"Error creating: {error.message}")
            raise
        name = orjson.loads(response.body)["metadata"]["name"]
        self._recorder.event(reference, NORMAL, "SuccessfulCreate", f"Created pod: {name}")

    async def _delete(self, owner: WorkloadView, pod: PodView) -> None:
        body = orjson.dumps(delete_options(pod.uid, "", None, ""))
        reference = self._owner.involved(owner)
        try:
            await self._client.raw("DELETE", path_of(PODS, pod.namespace, pod.name), None, body)
        except MinikubeError as error:
            self._expectations.deletion_observed(owner.key, pod.uid)
            if isinstance(error, StatusError) and error.code in (404, 409):
                # Gone, or another pod has the name: ours is deleted either way.
                return
            self._recorder.event(reference, WARNING, "FailedDelete", f"Error deleting: {error}")
            raise
        self._recorder.event(reference, NORMAL, "SuccessfulDelete", f"Deleted pod: {pod.name}")


async def slow_start(count: int, call: Callable[[], Awaitable[None]]) -> tuple[int, Exception | None]:
    """Calls in batches of 1, 2, 4, ...; stops after a batch with a failure. (successes, first failure)"""
    done, size = 0, min(count, 1)
    while size > 0:
        outcomes = await asyncio.gather(*(call() for _ in range(size)), return_exceptions=True)
        failures = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
        done += size - len(failures)
        for failure in failures:
            if not isinstance(failure, Exception):
                raise failure
        if failures:
            first = failures[0]
            return done, first if isinstance(first, Exception) else None
        size = min(2 * size, count - done)
    return done, None


def pod_from_template(owner: WorkloadView, reference: Object, template: Mapping[str, Any] | None = None) -> Object:
    """The pod to create, without a name: the server generates it from the prefix. `template`: default the owner's."""
    template = owner.template if template is None else template
    metadata = template.get("metadata") or {}
    prefix = f"{owner.name}-"
    copied: dict[str, Any] = {k: metadata[k] for k in ("labels", "annotations", "finalizers") if metadata.get(k)}
    copied["generateName"] = prefix if len(prefix) <= GENERATED_PREFIX_MAX else owner.name
    copied["ownerReferences"] = [reference]
    return {"kind": "Pod", "apiVersion": "v1", "metadata": copied, "spec": template.get("spec") or {}}

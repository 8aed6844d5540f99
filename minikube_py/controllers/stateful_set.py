"""StatefulSet: pods with stable names, created and replaced in order.

Source: k8s.io/kubernetes/pkg/controller/statefulset.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, islice
from typing import Any, Final, NamedTuple

import orjson

from minikube_py.api.errors import StatusError
from minikube_py.api.values import INT32_MAX
from minikube_py.client.events import NORMAL, WARNING
from minikube_py.client.informer import Informer
from minikube_py.client.rest import (
    CONTROLLER_REVISIONS,
    PERSISTENT_VOLUME_CLAIMS,
    PODS,
    STATEFUL_SETS,
    Object,
    delete_options,
    path_of,
)
from minikube_py.client.transport import MERGE_PATCH
from minikube_py.controllers.base import (
    BY_CONTROLLER,
    ControllerContext,
    QueueController,
    QueueWorkers,
    orphans_for,
)
from minikube_py.controllers.claims import DELETE, is_left, owners_of_claim
from minikube_py.controllers.expectations import Expectations
from minikube_py.controllers.ownership import Claims, OwnedPods, Owner
from minikube_py.controllers.pod_control import pod_from_template, slow_start
from minikube_py.controllers.ranking import is_available, next_availability_s
from minikube_py.controllers.revisions import POD_LABEL, History, in_order
from minikube_py.controllers.views import MetaView, PodView, RevisionView, WorkloadView
from minikube_py.errors import MinikubeError

_OWNER: Final = Owner(STATEFUL_SETS, "StatefulSet")
NAME_LABEL: Final = "statefulset.kubernetes.io/pod-name"
INDEX_LABEL: Final = "apps.kubernetes.io/pod-index"
_CLAIM_GONE_S: Final = 1.0
_COMPARED: Final = (
    "replicas", "currentReplicas", "readyReplicas", "updatedReplicas", "availableReplicas", "currentRevision",
    "updateRevision",
)  # fmt: skip


class Revisions(NamedTuple):
    current: RevisionView
    update: RevisionView
    collisions: int


class Slot(NamedTuple):
    """An ordinal and its pod; None: to be created."""

    ordinal: int
    pod: PodView | None


class Slots:
    """The desired ordinals, each with its pod: as many as `replicas` says, which nobody lists as a whole."""

    def __init__(self, wanted: range, pods: Mapping[int, PodView]) -> None:
        self._wanted, self._pods = wanted, pods

    def __iter__(self) -> Iterator[Slot]:
        return (Slot(ordinal, self._pods.get(ordinal)) for ordinal in self._wanted)

    def down_to(self, position: int) -> Iterator[Slot]:
        """From the last one down to that at `position`."""
        return iter(Slots(self._wanted[position:][::-1], self._pods))

    def with_missing(self, most: int, may: Callable[[int], bool]) -> list[Slot]:
        """Those that have a pod, and the first `most` that have none and `may`."""
        missing = islice((ordinal for ordinal in self._wanted if ordinal not in self._pods and may(ordinal)), most)
        there = (ordinal for ordinal in self._pods if ordinal in self._wanted)
        return [Slot(ordinal, self._pods.get(ordinal)) for ordinal in sorted((*missing, *there))]


class StatefulSetController(QueueController):
    name = "statefulset-controller"

    def __init__(self, context: ControllerContext) -> None:
        self._client = context.client
        self._clock = context.clock
        self._recorder = context.recorder("statefulset-controller")
        self._sets: Informer[WorkloadView] = context.informers.of(STATEFUL_SETS)
        self._pods: Informer[PodView] = context.informers.of(PODS)
        self._revisions: Informer[RevisionView] = context.informers.of(CONTROLLER_REVISIONS)
        self._volumes: Informer[MetaView] = context.informers.of(PERSISTENT_VOLUME_CLAIMS)
        self._pod_claims: Claims[PodView] = Claims(context.client, _OWNER, PODS)
        self._revision_claims: Claims[RevisionView] = Claims(context.client, _OWNER, CONTROLLER_REVISIONS)
        self._history = History(context.client, _OWNER)
        self._workers = QueueWorkers(context, "statefulset", self.sync)
        self._queue = self._workers.queue
        self._burst = context.config.burst_replicas
        self._expectations = Expectations(self._queue.add_after, context.clock, context.config.expectations_timeout_s)
        OwnedPods(_OWNER, self._sets, self._pods, self._queue, self._expectations)

    # --- one StatefulSet --------------------------------------------------------------------------------------------

    async def sync(self, key: str) -> None:
        owner = self._sets.store.get(key)
        if owner is None:
            self._expectations.forget(key)
            return
        if not self._expectations.satisfied(key):
            return
        revisions = in_order(await self._own_revisions(owner))
        pods = await self._own_pods(owner)
        labels = (owner.template.get("metadata") or {}).get("labels") or {}
        update, collisions = await self._history.update_revision(owner, revisions, labels)
        wanted = owner.status.get("currentRevision")
        current = next((each for each in revisions if each.name == wanted), update)
        found = Revisions(current, update, collisions)
        failure: Exception | None = None
        now_s = self._clock.wall_s()
        less_current = 0
        if not owner.deleting:
            try:
                less_current = await self._act(owner, found, pods, now_s)
            except (MinikubeError, ValueError) as error:
                failure = error
        status = _status(owner, found, pods, now_s)
        status["currentReplicas"] -= less_current
        await self._write_status(owner, status)
        live = {current.name, update.name, *(pod.labels.get(POD_LABEL, "") for pod in pods)}
        limit = owner.spec.get("revisionHistoryLimit")
        await self._history.truncate(owner, revisions, live, 10 if limit is None else limit)
        if failure is not None:
            raise failure
        if owner.min_ready_s > 0 and status["readyReplicas"] != status["availableReplicas"]:
            self._queue.add_after(key, next_availability_s(pods, owner.min_ready_s, now_s))

    async def _own_revisions(self, owner: WorkloadView) -> list[RevisionView]:
        store = self._revisions.store
        own = store.by_index(BY_CONTROLLER, owner.uid)
        return await self._revision_claims.claim(owner, own + orphans_for(store, owner))

    async def _own_pods(self, owner: WorkloadView) -> list[PodView]:
        store = self._pods.store
        candidates = store.by_index(BY_CONTROLLER, owner.uid) + orphans_for(store, owner)
        return await self._pod_claims.claim(owner, candidates, lambda pod: ordinal_of(owner, pod) is not None)

    async def _act(self, owner: WorkloadView, found: Revisions, pods: Sequence[PodView], now_s: float) -> int:
        """One step: the first action in order, or all possible ones if parallel. Returns the number of current-revision
        pods deleted for an update."""
        slots, condemned = placed(owner, pods)
        ordered = owner.spec.get("podManagementPolicy") != "Parallel"
        there = chain((slot.pod for slot in slots), reversed(condemned))
        first = next((pod for pod in there if pod is None or _unavailable(pod, owner, now_s)), None)
        if ordered:
            for slot in slots:
                if await self._settle(owner, found, slot, now_s, ordered):
                    return 0
        else:
            # Upstream tries all; what is created brings the set here again.
            chosen = slots.with_missing(self._burst, partial(self._may_be_made, owner))
            waiting = iter(chosen)

            async def settle_next() -> None:
                await self._settle(owner, found, next(waiting), now_s, ordered)

            _, failure = await slow_start(len(chosen), settle_next)
            if failure is not None:
                raise failure
        for pod in condemned:
            if (ordinal := ordinal_of(owner, pod)) is not None:
                await self._keep_claims(owner, ordinal, pod, condemned=True)
        for pod in condemned:
            if pod.deleting:
                if ordered:
                    return 0
                continue
            if ordered and pod is not first and not _ready(pod, owner, now_s):
                return 0
            await self._delete(owner, pod)
            if ordered:
                return 0
        return await self._update(owner, found, slots, now_s)

    async def _settle(self, owner: WorkloadView, found: Revisions, slot: Slot, now_s: float, ordered: bool) -> bool:
        """Reconciles one ordinal; True: later ordinals must wait."""
        pod = slot.pod
        if pod is None:
            if not self._may_be_made(owner, slot.ordinal):
                return True
            await self._create(owner, found, slot.ordinal)
            return ordered
        if pod.terminal:
            if not pod.deleting:
                await self._delete(owner, pod)
            return True
        if pod.phase == "Pending":
            await self._create_claims(owner, slot.ordinal)
            await self._keep_claims(owner, slot.ordinal, pod)
        if ordered and (pod.deleting or not _ready(pod, owner, now_s)):
            return True
        try:
            updated = await self._conform(owner, slot.ordinal, pod)
        except MinikubeError as error:
            self._tell(owner, "update", pod.name, error)
            raise
        if updated:
            self._tell(owner, "update", pod.name)
        return False

    async def _conform(self, owner: WorkloadView, ordinal: int, pod: PodView) -> bool:
        """Gives the pod its identity, volumes and claims; whether something changed."""
        known = pod.labels.get(NAME_LABEL) == pod.name
        claimed = claims_of(owner, pod.name)
        stored = all(claim in pod.claims for claim in claimed.values())
        if not stored:
            await self._create_claims(owner, ordinal)
        kept = await self._keep_claims(owner, ordinal, pod)
        if not (known and stored):
            patch: Object = {"metadata": {"uid": pod.uid, "labels": identity(owner, ordinal)}}
            if not stored:
                # The server refuses to change volumes of a pod: as upstream, it is asked, and the refusal reported.
                found = await self._client.get(PODS, pod.name, pod.namespace)
                patch["spec"] = {"volumes": volumes_of(claimed, found["spec"])}
            path = path_of(PODS, pod.namespace, pod.name)
            await self._client.raw("PATCH", path, None, orjson.dumps(patch), MERGE_PATCH)
        return kept or not known

    async def _update(self, owner: WorkloadView, found: Revisions, slots: Slots, now_s: float) -> int:
        """Replaces the last outdated pod, down to the partition, one at a time."""
        strategy = owner.spec.get("updateStrategy") or {}
        if strategy.get("type") == "OnDelete":
            return 0
        partition = (strategy.get("rollingUpdate") or {}).get("partition") or 0
        # Upstream counts the partition by position, not by ordinal.
        for slot in slots.down_to(partition):
            if slot.pod is None:
                return 0
            if slot.pod.labels.get(POD_LABEL) != found.update.name and not slot.pod.deleting:
                await self._delete(owner, slot.pod)
                return 1
            if _unavailable(slot.pod, owner, now_s):
                return 0
        return 0

    # --- pods and claims --------------------------------------------------------------------------------------------

    async def _create(self, owner: WorkloadView, found: Revisions, ordinal: int) -> None:
        name = f"{owner.name}-{ordinal}"
        self._expectations.expect(owner.key, 1)
        try:
            await self._create_claims(owner, ordinal)
            body = new_pod(owner, found, ordinal)
            await self._client.raw("POST", path_of(PODS, owner.namespace), None, orjson.dumps(body))
        except MinikubeError as error:
            self._expectations.creation_observed(owner.key)
            if not (isinstance(error, StatusError) and error.reason == "AlreadyExists"):
                self._tell(owner, "create", name, error)
            raise
        self._tell(owner, "create", name)

    async def _create_claims(self, owner: WorkloadView, ordinal: int) -> None:
        for template in owner.spec.get("volumeClaimTemplates") or ():
            body = new_claim(owner, template, ordinal)
            name = body["metadata"]["name"]
            standing = self._volumes.store.get(f"{owner.namespace}/{name}")
            if standing is not None:
                if standing.deleting:
                    raise StatusError(409, "Conflict", f"pvc {name} is being deleted", None)
                continue
            told = f"Claim {name} {{}}Pod {owner.name}-{ordinal} in StatefulSet {owner.name}"
            try:
                await self._client.create(PERSISTENT_VOLUME_CLAIMS, body, owner.namespace)
            except StatusError as error:
                if error.reason == "AlreadyExists":
                    continue
                message = f"Create {told.format('for ')} failed error: {error.message}"
                self._recorder.event(_OWNER.involved(owner), WARNING, "FailedCreate", message)
                raise
            self._recorder.event(
                _OWNER.involved(owner), NORMAL, "SuccessfulCreate", f"Create {told.format('')} success"
            )

    def _may_be_made(self, owner: WorkloadView, ordinal: int) -> bool:
        """No claim of an earlier pod is left."""
        pod = f"{owner.name}-{ordinal}"
        for template in owner.spec.get("volumeClaimTemplates") or ():
            claim = self._volumes.store.get(f"{owner.namespace}/{template['metadata']['name']}-{pod}")
            if claim is not None and is_left(owner, pod, claim):
                # Nothing tells when it is gone.
                self._queue.add_after(owner.key, _CLAIM_GONE_S)
                return False
        return True

    async def _keep_claims(self, owner: WorkloadView, ordinal: int, pod: PodView, condemned: bool = False) -> bool:
        """Sets the owners of one ordinal's claims by the retention policy.

        Returns whether a claim changed."""
        changed = False
        for template in owner.spec.get("volumeClaimTemplates") or ():
            name = f"{template['metadata']['name']}-{owner.name}-{ordinal}"
            claim = self._volumes.store.get(f"{owner.namespace}/{name}")
            if claim is None:
                continue
            found = owners_of_claim(owner, pod, pod.name, claim, condemned)
            if found.foreign and found.references is not None:
                why = (
                    f"PersistentVolumeClaim {name} has a conflicting OwnerReference that acts as a manging controller, "
                    "the retention policy is ignored for this claim"
                )
                self._recorder.event(_OWNER.involved(owner), WARNING, "ConflictingController", why)
            if found.references is not None:
                metadata = {"resourceVersion": claim.resource_version, "ownerReferences": found.references}
                path = path_of(PERSISTENT_VOLUME_CLAIMS, owner.namespace, name)
                await self._client.raw("PATCH", path, None, orjson.dumps({"metadata": metadata}), MERGE_PATCH)
                changed = True
        return changed

    async def _delete(self, owner: WorkloadView, pod: PodView) -> None:
        self._expectations.expect(owner.key, 0, (pod.uid,))
        body = orjson.dumps(delete_options(pod.uid, "", None, ""))
        try:
            await self._client.raw("DELETE", path_of(PODS, pod.namespace, pod.name), None, body)
        except MinikubeError as error:
            self._expectations.deletion_observed(owner.key, pod.uid)
            if isinstance(error, StatusError) and error.code in (404, 409):
                return
            self._tell(owner, "delete", pod.name, error)
            raise
        self._tell(owner, "delete", pod.name)

    def _tell(self, owner: WorkloadView, verb: str, pod: str, error: Exception | None = None) -> None:
        what = f"{verb.title()} Pod {pod} in StatefulSet {owner.name}"
        if error is None:
            self._recorder.event(_OWNER.involved(owner), NORMAL, f"Successful{verb.title()}", f"{what} successful")
        else:
            self._recorder.event(
                _OWNER.involved(owner), WARNING, f"Failed{verb.title()}", f"{what} failed error: {error}"
            )

    async def _write_status(self, owner: WorkloadView, status: Object) -> None:
        before = owner.status
        if status["observedGeneration"] <= (before.get("observedGeneration") or 0) and all(
            (before.get(name) or 0) == (status[name] or 0) for name in _COMPARED
        ):
            return
        patch = {"metadata": {"uid": owner.uid}, "status": status}
        path = path_of(STATEFUL_SETS, owner.namespace, owner.name, "status")
        try:
            await self._client.raw("PATCH", path, None, orjson.dumps(patch), MERGE_PATCH)
        except StatusError as error:
            if error.code != 404:
                raise


# --- pure functions -----------------------------------------------------------------------------------------------


def ordinal_of(owner: MetaView, pod: MetaView) -> int | None:
    """None if the pod's name does not belong to this set."""
    parent, dash, digits = pod.name.rpartition("-")
    fits = dash and parent == owner.name and digits.isascii() and digits.isdecimal() and len(digits) <= 10
    return int(digits) if fits and int(digits) <= INT32_MAX else None


def first_ordinal(owner: WorkloadView) -> int:
    return int((owner.spec.get("ordinals") or {}).get("start") or 0)


def placed(owner: WorkloadView, pods: Sequence[PodView]) -> tuple[Slots, list[PodView]]:
    """The desired ordinals, and the pods of other ordinals, highest first."""
    start = first_ordinal(owner)
    by_ordinal = {ordinal: pod for pod in pods if (ordinal := ordinal_of(owner, pod)) is not None}
    wanted = range(start, start + owner.replicas)
    condemned = [by_ordinal[ordinal] for ordinal in sorted(by_ordinal, reverse=True) if ordinal not in wanted]
    return Slots(wanted, by_ordinal), condemned


def _ready(pod: PodView, owner: WorkloadView, now_s: float) -> bool:
    return pod.phase == "Running" and is_available(pod, owner.min_ready_s, now_s)


def _unavailable(pod: PodView, owner: WorkloadView, now_s: float) -> bool:
    return bool(pod.deleting) or not is_available(pod, owner.min_ready_s, now_s)


def identity(owner: MetaView, ordinal: int) -> dict[str, str]:
    return {NAME_LABEL: f"{owner.name}-{ordinal}", INDEX_LABEL: str(ordinal)}


def is_of_current(owner: WorkloadView, ordinal: int) -> bool:
    """Whether a new pod gets the current revision, not the update: below the partition."""
    strategy = owner.spec.get("updateStrategy") or {}
    rolling = strategy.get("rollingUpdate")
    if rolling is not None:
        return bool(ordinal < first_ordinal(owner) + (rolling.get("partition") or 0))
    current = owner.status.get("currentReplicas") or 0
    return bool(strategy.get("type") == "RollingUpdate" and ordinal < first_ordinal(owner) + current)


def new_pod(owner: WorkloadView, found: Revisions, ordinal: int) -> Object:
    revision = found.current if is_of_current(owner, ordinal) else found.update
    name = f"{owner.name}-{ordinal}"
    pod = pod_from_template(owner, _OWNER.reference(owner), revision.template)
    metadata, spec = pod["metadata"], dict(pod["spec"])
    metadata["name"] = name
    metadata["labels"] = {**(metadata.get("labels") or {}), **identity(owner, ordinal), POD_LABEL: revision.name}
    spec["hostname"] = name
    if owner.spec.get("serviceName"):
        spec["subdomain"] = owner.spec["serviceName"]
    if claimed := claims_of(owner, name):
        spec["volumes"] = volumes_of(claimed, spec)
    return {**pod, "spec": spec}


def claims_of(owner: WorkloadView, pod: str) -> dict[str, str]:
    """The names of the pod's claims, by volume."""
    templates = owner.spec.get("volumeClaimTemplates") or ()
    return {each["metadata"]["name"]: f"{each['metadata']['name']}-{pod}" for each in templates}


def volumes_of(claimed: Mapping[str, str], spec: Object) -> list[Object]:
    own = [{"name": name, "persistentVolumeClaim": {"claimName": claim}} for name, claim in claimed.items()]
    return own + [each for each in spec.get("volumes") or () if each["name"] not in claimed]


def new_claim(owner: WorkloadView, template: Mapping[str, Any], ordinal: int) -> Object:
    metadata = template["metadata"]
    selected = (owner.spec.get("selector") or {}).get("matchLabels") or {}
    kept: Object = {name: metadata[name] for name in ("annotations",) if metadata.get(name)}
    name = f"{metadata['name']}-{owner.name}-{ordinal}"
    if (owner.spec.get("persistentVolumeClaimRetentionPolicy") or {}).get("whenDeleted") == DELETE:
        kept["ownerReferences"] = [_OWNER.reference(owner)]
    labels = {**(metadata.get("labels") or {}), **selected}
    return {"metadata": {**kept, "name": name, "labels": labels}, "spec": template.get("spec") or {}}


def _status(owner: WorkloadView, found: Revisions, pods: Sequence[PodView], now_s: float) -> Object:
    ready = [pod for pod in pods if pod.phase == "Running" and pod.ready]
    alive = [pod.labels.get(POD_LABEL) for pod in pods if pod.phase and not pod.deleting]
    status: Object = {
        "observedGeneration": owner.generation,
        "replicas": sum(bool(pod.phase) for pod in pods),
        "readyReplicas": len(ready),
        "availableReplicas": sum(is_available(pod, owner.min_ready_s, now_s) for pod in ready),
        "currentReplicas": alive.count(found.current.name),
        "updatedReplicas": alive.count(found.update.name),
        "currentRevision": found.current.name,
        "updateRevision": found.update.name,
        "collisionCount": found.collisions,
    }
    done = all(status[name] == owner.replicas for name in ("updatedReplicas", "readyReplicas", "replicas"))
    if done and (owner.spec.get("updateStrategy") or {}).get("type") == "RollingUpdate":
        status["currentReplicas"], status["currentRevision"] = status["updatedReplicas"], status["updateRevision"]
    return status

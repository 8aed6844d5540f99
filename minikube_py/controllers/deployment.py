"""Deployment: one ReplicaSet per template, and the rollout from one to the next.

`rollout` computes what to do; this module carries it out. Source: k8s.io/kubernetes/pkg/controller/deployment.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from minikube_py.api.errors import StatusError
from minikube_py.client.events import NORMAL, WARNING
from minikube_py.client.informer import Handler, Informer
from minikube_py.client.rest import DEPLOYMENTS, PODS, REPLICA_SETS, Object, ResourceRef, path_of
from minikube_py.client.transport import MERGE_PATCH
from minikube_py.controllers import rollout
from minikube_py.controllers.base import (
    BY_CONTROLLER,
    ControllerContext,
    QueueController,
    QueueWorkers,
    has_cause,
    orphans_for,
    selecting,
)
from minikube_py.controllers.ownership import Claims, Owner
from minikube_py.controllers.views import PodView, WorkloadView, project_workload

_DEPLOYMENT = Owner(DEPLOYMENTS, "Deployment")
_REPLICA_SET = Owner(REPLICA_SETS, "ReplicaSet")
_NAMESPACE_TERMINATING = "NamespaceTerminating"
Found = tuple[WorkloadView, WorkloadView | None, list[WorkloadView]]
"""The current Deployment, its new ReplicaSet, and the old ones."""


class DeploymentController(QueueController):
    name = "deployment-controller"

    def __init__(self, context: ControllerContext) -> None:
        self._client = context.client
        self._clock = context.clock
        self._recorder = context.recorder("deployment-controller")
        self._deployments: Informer[WorkloadView] = context.informers.of(DEPLOYMENTS)
        self._sets: Informer[WorkloadView] = context.informers.of(REPLICA_SETS)
        self._pods: Informer[PodView] = context.informers.of(PODS)
        self._claims: Claims[WorkloadView] = Claims(context.client, _DEPLOYMENT, REPLICA_SETS)
        self._workers = QueueWorkers(context, "deployment", self.sync)
        self._queue = self._workers.queue
        self._deployments.add_handler(
            Handler(on_add=self._enqueue, on_update=lambda old, new: self._enqueue(new), on_delete=self._enqueue)
        )
        self._sets.add_handler(
            Handler(on_add=self._set_added, on_update=self._set_updated, on_delete=self._set_deleted)
        )
        self._pods.add_handler(Handler(on_delete=self._pod_deleted))

    # --- event handlers ---------------------------------------------------------------------------------------------

    def _enqueue(self, deployment: WorkloadView) -> None:
        self._queue.add(deployment.key)

    def _owner(self, each: WorkloadView) -> WorkloadView | None:
        return _DEPLOYMENT.of(each, self._deployments.store)

    def _set_added(self, each: WorkloadView) -> None:
        if each.deleting:
            self._set_deleted(each)
        elif each.controller is not None:
            if (owner := self._owner(each)) is not None:
                self._enqueue(owner)
        else:
            for deployment in selecting(self._deployments.store, each):
                self._enqueue(deployment)

    def _set_updated(self, old: WorkloadView, new: WorkloadView) -> None:
        changed = old.controller != new.controller
        if changed and (owner := self._owner(old)) is not None:
            self._enqueue(owner)
        if new.controller is not None:
            if (owner := self._owner(new)) is not None:
                self._enqueue(owner)
        elif changed or old.labels != new.labels:
            for deployment in selecting(self._deployments.store, new):
                self._enqueue(deployment)

    def _set_deleted(self, each: WorkloadView) -> None:
        if (owner := self._owner(each)) is not None:
            self._enqueue(owner)

    def _pod_deleted(self, pod: PodView) -> None:
        """The Recreate strategy waits for the last pod of the old template."""
        owner = _REPLICA_SET.of(pod, self._sets.store)
        deployment = self._owner(owner) if owner is not None else None
        if deployment is not None and not rollout.is_rolling(deployment):
            self._enqueue(deployment)

    # --- one Deployment ---------------------------------------------------------------------------------------------

    async def sync(self, key: str) -> None:
        deployment = self._deployments.store.get(key)
        if deployment is None:
            return
        store = self._sets.store
        candidates = store.by_index(BY_CONTROLLER, deployment.uid)
        if not deployment.deleting:
            candidates = candidates + orphans_for(store, deployment)
        sets = await self._claims.claim(deployment, candidates)
        if deployment.deleting:
            deployment, new, old = await self._find(deployment, sets)
            await self._write_plain_status(deployment, new, old)
            return
        deployment = await self._tell_pause(deployment)
        if deployment.spec.get("paused"):
            await self._resize(deployment, sets)
        elif deployment.annotations.get(rollout.ROLLBACK_TO):
            await self._roll_back(deployment, sets)
        else:
            deployment, new, old = await self._find(deployment, sets)
            if rollout.was_scaled(deployment, _all(new, old)):
                await self._resize(deployment, _all(new, old))
            elif rollout.is_rolling(deployment):
                await self._roll(deployment, _all(new, old))
            else:
                await self._recreate(deployment, _all(new, old))

    async def _roll(self, deployment: WorkloadView, sets: Sequence[WorkloadView]) -> None:
        deployment, new, old = await self._find(deployment, sets, create=True)
        assert new is not None
        everything = _all(new, old)
        if new.replicas > deployment.replicas:
            wanted = deployment.replicas
        else:
            wanted = rollout.new_size(deployment, everything, new.replicas)
        scaled = wanted != new.replicas
        if scaled:
            await self._scale(deployment, new, wanted)
        else:
            active = [each for each in old if each.replicas > 0]
            now: dict[str, WorkloadView] = {}
            for each, replicas in rollout.shrink_old(deployment, everything, active, new):
                now[each.uid] = await self._scale(deployment, now.get(each.uid, each), replicas)
            scaled = bool(now)
        if not scaled and rollout.is_complete(deployment, deployment.status):
            await self._clean_up(deployment, old)
        await self._write_progress(deployment, new, old)

    async def _recreate(self, deployment: WorkloadView, sets: Sequence[WorkloadView]) -> None:
        deployment, new, old = await self._find(deployment, sets)
        active = [each for each in old if each.replicas > 0]
        for each in active:
            await self._scale(deployment, each, 0)
        if active or self._old_pods_run(old):
            await self._write_progress(deployment, new, old)
            return
        if new is None:
            deployment, new, old = await self._find(deployment, sets, create=True)
            assert new is not None
        await self._scale(deployment, new, deployment.replicas)
        if rollout.is_complete(deployment, deployment.status):
            await self._clean_up(deployment, old)
        await self._write_progress(deployment, new, old)

    def _old_pods_run(self, old: Sequence[WorkloadView]) -> bool:
        if rollout.count(old, "replicas") > 0:
            return True
        return any(not pod.terminal for each in old for pod in self._pods.store.by_index(BY_CONTROLLER, each.uid))

    async def _resize(self, deployment: WorkloadView, sets: Sequence[WorkloadView]) -> None:
        """Scales after a change of replicas or while paused; templates do not change."""
        deployment, new, old = await self._find(deployment, sets)
        active = [each for each in _all(new, old) if each.replicas > 0]
        alone = rollout.only_active(new, old)
        if alone is not None:
            await self._scale(deployment, alone, deployment.replicas)
        elif rollout.is_saturated(deployment, new):
            for each in old:
                await self._scale(deployment, each, 0)
        elif rollout.is_rolling(deployment):
            for each, replicas in rollout.proportional(deployment, active):
                await self._scale(deployment, each, replicas, force=True)
        if deployment.spec.get("paused") and not deployment.annotations.get(rollout.ROLLBACK_TO):
            await self._clean_up(deployment, old)
        await self._write_plain_status(deployment, new, old)

    async def _roll_back(self, deployment: WorkloadView, sets: Sequence[WorkloadView]) -> None:
        deployment, new, old = await self._find(deployment, sets, create=True)
        everything = _all(new, old)
        asked = int(deployment.annotations[rollout.ROLLBACK_TO])
        revision = asked or rollout.last_revision(everything)
        target = next((each for each in everything if revision and rollout.revision_of(each) == revision), None)
        annotations: dict[str, str | None] = {rollout.ROLLBACK_TO: None}
        patch: Object = {"metadata": {"resourceVersion": deployment.resource_version, "annotations": annotations}}
        reason = message = ""
        if target is None:
            reason = "DeploymentRollbackRevisionNotFound"
            what = "the revision to rollback to" if revision else "last revision"
            message = f"Unable to find {what}."
        elif rollout.same_template(deployment.template, target.template):
            reason = "DeploymentRollbackTemplateUnchanged"
            message = f'The rollback revision contains the same template as current deployment "{deployment.name}"'
        else:
            own = {name: None for name in deployment.annotations if name not in rollout.NOT_COPIED}
            theirs = {name: text for name, text in target.annotations.items() if name not in rollout.NOT_COPIED}
            annotations |= {**own, **theirs}
            await self._replace_template(deployment, target, annotations)
            message = f'Rolled back deployment "{deployment.name}" to revision {revision}'
            self._recorder.event(_DEPLOYMENT.involved(deployment), NORMAL, "DeploymentRollback", message)
            return
        self._recorder.event(_DEPLOYMENT.involved(deployment), WARNING, reason, message)
        await self._patch(DEPLOYMENTS, deployment, patch)

    async def _replace_template(
        self, deployment: WorkloadView, target: WorkloadView, annotations: Mapping[str, str | None]
    ) -> None:
        """A JSON patch: a merge patch would keep fields that only the old template has."""
        kept = {**deployment.annotations, **annotations}
        operations = [
            {"op": "test", "path": "/metadata/resourceVersion", "value": deployment.resource_version},
            {"op": "replace", "path": "/spec/template", "value": rollout.without_hash(target.template)},
            {"op": "add", "path": "/metadata/annotations", "value": {k: v for k, v in kept.items() if v is not None}},
        ]
        path = path_of(DEPLOYMENTS, deployment.namespace, deployment.name)
        await self._client.raw("PATCH", path, None, orjson.dumps(operations), "application/json-patch+json")

    # --- its ReplicaSets --------------------------------------------------------------------------------------------

    async def _find(self, deployment: WorkloadView, sets: Sequence[WorkloadView], create: bool = False) -> Found:
        """The new ReplicaSet, created if missing, with its revision and annotations updated."""
        new = rollout.find_new(deployment, sets)
        old = [each for each in rollout.by_age(sets) if new is None or each.uid != new.uid]
        revision = max((rollout.revision_of(each) for each in old), default=0)
        revision = max(revision, 0) + 1
        if new is None:
            return await self._create(deployment, old, revision) if create else (deployment, None, old)
        annotations = rollout.set_annotations(deployment, new.annotations, revision)
        if annotations != new.annotations or new.min_ready_s != deployment.min_ready_s:
            patch = {
                "metadata": {"resourceVersion": new.resource_version, "annotations": annotations},
                "spec": {"minReadySeconds": deployment.min_ready_s},
            }
            return deployment, await self._patch(REPLICA_SETS, new, patch), old
        conditions: Object = {"conditions": list(deployment.status.get("conditions") or ())}
        told = new.annotations.get(rollout.REVISION, "")
        write = deployment.annotations.get(rollout.REVISION) != told
        if self._has_deadline(deployment) and rollout.condition(deployment.status, "Progressing") is None:
            self._progressing(conditions, "True", "FoundNewReplicaSet", f'Found new replica set "{new.name}"')
            write = True
        if write:
            deployment = await self._write_status(deployment, conditions, told)
        return deployment, new, old

    async def _create(self, deployment: WorkloadView, old: list[WorkloadView], revision: int) -> Found:
        replicas = rollout.new_size(deployment, old, 0)
        body = _new_set(deployment, replicas, revision)
        name = body["metadata"]["name"]
        exists = False
        try:
            path = path_of(REPLICA_SETS, deployment.namespace)
            response = await self._client.raw("POST", path, None, orjson.dumps(body))
            created = project_workload(orjson.loads(response.body))
        except StatusError as error:
            created, exists = await self._not_created(deployment, name, error), True
        if not exists and replicas > 0:
            message = f"Scaled up replica set {created.name} from 0 to {replicas}"
            self._recorder.event(_DEPLOYMENT.involved(deployment), NORMAL, "ScalingReplicaSet", message)
        conditions: Object = {"conditions": list(deployment.status.get("conditions") or ())}
        told = not exists and self._has_deadline(deployment)
        if told:
            self._progressing(conditions, "True", "NewReplicaSetCreated", f'Created new replica set "{created.name}"')
        if told or deployment.annotations.get(rollout.REVISION) != str(revision):
            deployment = await self._write_status(deployment, conditions, str(revision))
        return deployment, created, old

    async def _not_created(self, deployment: WorkloadView, name: str, error: StatusError) -> WorkloadView:
        """The existing ReplicaSet of that name, if owned by this Deployment. Raises: StatusError, usually `error`."""
        conditions: Object = {"conditions": list(deployment.status.get("conditions") or ())}
        if error.reason == "AlreadyExists":
            found = self._sets.store.get(f"{deployment.namespace}/{name}")
            if found is None:
                raise error
            owned = found.controller is not None and found.controller.uid == deployment.uid
            if owned and rollout.same_template(deployment.template, found.template):
                return found
            collisions = (deployment.status.get("collisionCount") or 0) + 1
            await self._write_status(deployment, {"collisionCount": collisions})
        elif not has_cause(error, _NAMESPACE_TERMINATING):
            message = f'Failed to create new replica set "{name}": {error.message}'
            if self._has_deadline(deployment):
                self._progressing(conditions, "False", "ReplicaSetCreateError", message)
                await self._write_status(deployment, conditions)
            self._recorder.event(_DEPLOYMENT.involved(deployment), WARNING, "ReplicaSetCreateError", message)
        raise error

    async def _scale(
        self, deployment: WorkloadView, each: WorkloadView, replicas: int, force: bool = False
    ) -> WorkloadView:
        """`force`: updates its annotations even if its size does not change."""
        annotations = rollout.size_annotations(deployment)
        stays = each.replicas == replicas
        if stays and (not force or annotations.items() <= each.annotations.items()):
            return each
        metadata = {"resourceVersion": each.resource_version, "annotations": annotations}
        scaled = await self._patch(REPLICA_SETS, each, {"metadata": metadata, "spec": {"replicas": replicas}})
        if not stays:
            way = "up" if replicas > each.replicas else "down"
            message = f"Scaled {way} replica set {each.name} from {each.replicas} to {replicas}"
            self._recorder.event(_DEPLOYMENT.involved(deployment), NORMAL, "ScalingReplicaSet", message)
        return scaled

    async def _clean_up(self, deployment: WorkloadView, old: Sequence[WorkloadView]) -> None:
        """Deletes old ReplicaSets beyond the limit, lowest revision first, once they are empty."""
        limit = rollout.limit_of(deployment, "revisionHistoryLimit")
        if limit is None:
            return
        alive = sorted(
            (each for each in old if not each.deleting), key=lambda each: (rollout.revision_of(each), each.created)
        )
        for each in alive[: max(len(alive) - limit, 0)]:
            seen = (each.status.get("observedGeneration") or 0) >= each.generation
            if each.replicas == 0 and not each.status.get("replicas") and seen:
                try:
                    await self._client.delete(REPLICA_SETS, each.name, each.namespace)
                except StatusError as error:
                    if error.code != 404:
                        raise

    # --- writes -----------------------------------------------------------------------------------------------------

    async def _patch(self, resource: ResourceRef, view: WorkloadView, patch: Object, sub: str = "") -> WorkloadView:
        path = path_of(resource, view.namespace, view.name, sub)
        response = await self._client.raw("PATCH", path, None, orjson.dumps(patch), MERGE_PATCH)
        return project_workload(orjson.loads(response.body))

    async def _write_status(
        self, deployment: WorkloadView, status: Mapping[str, Any], revision: str = ""
    ) -> WorkloadView:
        metadata: Object = {"uid": deployment.uid, "resourceVersion": deployment.resource_version}
        if revision:
            metadata["annotations"] = {rollout.REVISION: revision}
        return await self._patch(DEPLOYMENTS, deployment, {"metadata": metadata, "status": status}, "status")

    async def _write_plain_status(
        self, deployment: WorkloadView, new: WorkloadView | None, old: Sequence[WorkloadView]
    ) -> None:
        status = rollout.status_of(deployment, _all(new, old), new, self._clock.wall_s())
        if not _same(deployment.status, status):
            await self._write_status(deployment, status)

    async def _write_progress(
        self, deployment: WorkloadView, new: WorkloadView | None, old: Sequence[WorkloadView]
    ) -> None:
        now_s = self._clock.wall_s()
        status = rollout.progress(deployment, _all(new, old), new, now_s)
        if not _same(deployment.status, status):
            await self._write_status(deployment, status)
        elif (after_s := rollout.next_look_s(deployment, status, now_s)) is not None:
            self._queue.add_after(deployment.key, after_s)

    async def _tell_pause(self, deployment: WorkloadView) -> WorkloadView:
        """Time spent paused must not count as lack of progress."""
        current = rollout.condition(deployment.status, "Progressing") or {}
        told = current.get("reason") == "DeploymentPaused"
        paused = bool(deployment.spec.get("paused"))
        if not self._has_deadline(deployment) or current.get("reason") == "ProgressDeadlineExceeded" or told == paused:
            return deployment
        conditions: Object = {"conditions": list(deployment.status.get("conditions") or ())}
        word = "paused" if paused else "resumed"
        self._progressing(conditions, "Unknown", f"Deployment{word.title()}", f"Deployment is {word}")
        return await self._write_status(deployment, conditions)

    def _has_deadline(self, deployment: WorkloadView) -> bool:
        return rollout.limit_of(deployment, "progressDeadlineSeconds") is not None

    def _progressing(self, status: Object, state: str, reason: str, message: str) -> None:
        now_s = self._clock.wall_s()
        rollout.set_condition(status, rollout.new_condition("Progressing", state, reason, message, now_s))


def _all(new: WorkloadView | None, old: Sequence[WorkloadView]) -> list[WorkloadView]:
    return [*old, new] if new is not None else list(old)


def _new_set(deployment: WorkloadView, replicas: int, revision: int) -> Object:
    """The ReplicaSet for the template. Its name derives from the template, so it is created only once."""
    spec, template = deployment.spec, deployment.template
    found = rollout.template_hash(template, deployment.status.get("collisionCount"))
    metadata = template.get("metadata") or {}
    labels = {**(metadata.get("labels") or {}), rollout.HASH_LABEL: found}
    selector = spec.get("selector") or {}
    matched = {**(selector.get("matchLabels") or {}), rollout.HASH_LABEL: found}
    annotations = rollout.set_annotations(deployment, {}, revision) | rollout.size_annotations(deployment)
    return {
        "kind": "ReplicaSet",
        "apiVersion": "apps/v1",
        "metadata": {
            "name": rollout.set_name(deployment.name, found),
            "labels": labels,
            "annotations": annotations,
            "ownerReferences": [_DEPLOYMENT.reference(deployment)],
        },
        "spec": {
            "replicas": replicas,
            "minReadySeconds": deployment.min_ready_s,
            "selector": {**selector, "matchLabels": matched},
            "template": {**template, "metadata": {**metadata, "labels": labels}},
        },
    }


_POINTERS = ("terminatingReplicas", "collisionCount")


def _same(before: Mapping[str, Any], status: Mapping[str, Any]) -> bool:
    """Whether the status is unchanged; a missing count is 0, except for two that can be unknown."""
    pointers = all(before.get(name) == status.get(name) for name in _POINTERS)
    return (
        pointers
        and all((before.get(name) or 0) == (status[name] or 0) for name in status if name != "conditions")
        and ((before.get("conditions") or []) == status["conditions"])
    )

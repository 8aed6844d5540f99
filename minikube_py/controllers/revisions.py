"""ControllerRevisions: the templates that a StatefulSet or DaemonSet had.

Source: k8s.io/kubernetes/pkg/controller/history.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import orjson

from minikube_py.api.equality import same_message
from minikube_py.api.errors import StatusError
from minikube_py.client.rest import CONTROLLER_REVISIONS, Object, RestClient, path_of
from minikube_py.client.transport import MERGE_PATCH
from minikube_py.controllers.ownership import Owner
from minikube_py.controllers.rollout import template_hash
from minikube_py.controllers.views import RevisionView, WorkloadView, project_revision

HASH_LABEL: Final = "controller.kubernetes.io/hash"
POD_LABEL: Final = "controller-revision-hash"


def in_order(revisions: Sequence[RevisionView]) -> list[RevisionView]:
    return sorted(revisions, key=lambda each: (each.revision, each.created, each.name))


def same_template(left: Mapping[str, Any], right: Mapping[str, Any]) -> bool:
    return same_message("core/v1.PodTemplateSpec", left, right)


def patch_to(template: Mapping[str, Any]) -> Object:
    """What a revision holds. Its members are in the order of Go's maps: kubectl and kube-controller-manager find the
    current revision by comparing bytes.

    Source: k8s.io/kubectl `pkg/polymorphichelpers/history.go`; pkg/controller/daemon/update.go, getPatch."""
    data = {"spec": {"template": {**template, "$patch": "replace"}}}
    found: Object = orjson.loads(orjson.dumps(data, option=orjson.OPT_SORT_KEYS))
    return found


class History:
    """The revisions of one kind of owner."""

    def __init__(self, client: RestClient, owner: Owner) -> None:
        self._client = client
        self._owner = owner

    async def update_revision(
        self,
        owner: WorkloadView,
        revisions: Sequence[RevisionView],
        labels: Mapping[str, str],
        hash_label: str = HASH_LABEL,
    ) -> tuple[RevisionView, int]:
        """The revision of the owner's template, created or renumbered where needed, and the collision count.

        `revisions` are in order; `labels` are for new revisions, beside their hash under `hash_label`."""
        collisions = owner.status.get("collisionCount") or 0
        equal = [each for each in revisions if same_template(each.template, owner.template)]
        following = revisions[-1].revision + 1 if revisions else 1
        if not equal:
            return await self._create(owner, following, labels, hash_label, collisions)
        if equal[-1].revision == revisions[-1].revision:
            return equal[-1], collisions
        path = path_of(CONTROLLER_REVISIONS, owner.namespace, equal[-1].name)
        patch = {"metadata": {"resourceVersion": equal[-1].resource_version}, "revision": following}
        response = await self._client.raw("PATCH", path, None, orjson.dumps(patch), MERGE_PATCH)
        return project_revision(orjson.loads(response.body)), collisions

    async def _create(
        self, owner: WorkloadView, number: int, labels: Mapping[str, str], hash_label: str, collisions: int
    ) -> tuple[RevisionView, int]:
        while True:
            found = template_hash(owner.template, collisions)
            name = f"{owner.name[:223]}-{found}"
            metadata: Object = {
                "name": name,
                "labels": {**labels, hash_label: found},
                "ownerReferences": [self._owner.reference(owner)],
            }
            if owner.annotations:
                metadata["annotations"] = dict(owner.annotations)
            body = {"metadata": metadata, "data": patch_to(owner.template), "revision": number}
            try:
                return project_revision(
                    await self._client.create(CONTROLLER_REVISIONS, body, owner.namespace)
                ), collisions
            except StatusError as error:
                if error.reason != "AlreadyExists":
                    raise
            standing = project_revision(await self._client.get(CONTROLLER_REVISIONS, name, owner.namespace))
            if same_template(standing.template, owner.template):
                return standing, collisions
            collisions += 1

    async def truncate(
        self, owner: WorkloadView, revisions: Sequence[RevisionView], live: set[str], limit: int
    ) -> None:
        """Deletes the oldest unused revisions beyond `limit` (`live`: used names); a negative limit keeps all."""
        idle = [each for each in revisions if each.name not in live]
        if limit < 0:
            return
        for each in idle[: max(len(idle) - limit, 0)]:
            try:
                await self._client.delete(CONTROLLER_REVISIONS, each.name, owner.namespace)
            except StatusError as error:
                if error.code != 404:
                    raise

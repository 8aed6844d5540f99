"""Volumes, claims and classes are kept whole: they are few, and all fields matter."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from minikube_py.api.volume_binding import asked_size, held_size
from minikube_py.client.events import Involved
from minikube_py.client.rest import Object, ResourceRef
from minikube_py.controllers.views import MetaView, meta_of

VOLUMES: Final = ResourceRef("", "v1", "persistentvolumes")
CLAIMS: Final = ResourceRef("", "v1", "persistentvolumeclaims")
STORAGE_CLASSES: Final = ResourceRef("storage.k8s.io", "v1", "storageclasses")
ATTACHMENTS: Final = ResourceRef("storage.k8s.io", "v1", "volumeattachments")
CSI_DRIVERS: Final = ResourceRef("storage.k8s.io", "v1", "csidrivers")
ATTRIBUTES_CLASSES: Final = ResourceRef("storage.k8s.io", "v1", "volumeattributesclasses")
AUTOSCALERS: Final = ResourceRef("autoscaling", "v2", "horizontalpodautoscalers")
BUDGETS: Final = ResourceRef("policy", "v1", "poddisruptionbudgets")
QUOTAS: Final = ResourceRef("", "v1", "resourcequotas")
DEVICE_CLAIMS: Final = ResourceRef("resource.k8s.io", "v1", "resourceclaims")
POD_GROUPS: Final = ResourceRef("scheduling.k8s.io", "v1alpha2", "podgroups")
POLICIES: Final = ResourceRef("admissionregistration.k8s.io", "v1", "validatingadmissionpolicies")
DEVICE_TEMPLATES: Final = ResourceRef("resource.k8s.io", "v1", "resourceclaimtemplates")


@dataclass(slots=True, eq=False)
class WholeView(MetaView):
    """`obj` is shared and must not be modified."""

    obj: Object


def project_whole(obj: Object) -> WholeView:
    return WholeView(*meta_of(obj["metadata"]), obj)


def wants_more(claim: WholeView) -> bool:
    """Whether a bound claim asks for more storage than it has."""
    bound = (claim.obj.get("status") or {}).get("phase") == "Bound"
    return bound and asked_size(claim.obj).compare(held_size(claim.obj)) > 0


def about(kind: str, obj: Object, api_version: str = "v1") -> Involved:
    """The object reference for an event about `obj`."""
    metadata = obj["metadata"]
    version = metadata.get("resourceVersion", "")
    return Involved(kind, metadata.get("namespace", ""), metadata["name"], metadata["uid"], api_version, version)

"""The storage kinds, reduced to what scheduling reads; volumes and claims are whole, since they are also written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from minikube_py.api.kinds.core.volumes import class_of
from minikube_py.api.label_selectors import InvalidSelector, selector_of
from minikube_py.api.meta import annotations_of
from minikube_py.api.selectors import LabelSelector
from minikube_py.api.volume_binding import asked_size, is_fully_bound, size_of
from minikube_py.client.informer import key_of
from minikube_py.client.rest import PERSISTENT_VOLUME_CLAIMS, Object, ResourceRef
from minikube_py.fields.quantity import Quantity, parse
from minikube_py.scheduler.kinds import NeededKind
from minikube_py.scheduler.plugins.node_affinity import Term, parse_selector

BY_CLASS: Final = "class"
BY_NODE: Final = "node"
_STORAGE_GROUP: Final = "storage.k8s.io"


class _View:
    __slots__ = ("key", "name", "uid")

    def __init__(self, obj: Object) -> None:
        metadata = obj["metadata"]
        self.key = key_of(obj)
        self.name: str = metadata["name"]
        self.uid: str = metadata.get("uid", "")


class VolumeView(_View):
    """`terms`: the node affinity, None for a volume reachable from every node. `claim`: the claimRef, None if
    absent."""

    __slots__ = ("claim", "class_name", "obj", "resource_version", "size", "terms")

    def __init__(self, obj: Object) -> None:
        super().__init__(obj)
        spec = obj["spec"]
        self.obj = obj
        self.resource_version: str = obj["metadata"].get("resourceVersion", "")
        self.class_name = class_of(obj)
        self.claim: Mapping[str, Any] | None = spec.get("claimRef")
        self.size = size_of(obj)
        self.terms = affinity_terms(spec)

    def reached_from(self, labels: Mapping[str, str]) -> bool:
        return self.terms is None or reached(self.terms, labels)


class ClaimView(_View):
    __slots__ = ("class_name", "modes", "namespace", "obj", "resource_version", "size", "volume_name")

    def __init__(self, obj: Object) -> None:
        super().__init__(obj)
        metadata, spec = obj["metadata"], obj["spec"]
        self.obj = obj
        self.namespace: str = metadata.get("namespace", "")
        self.resource_version: str = metadata.get("resourceVersion", "")
        self.class_name = class_of(obj)
        self.volume_name: str = spec.get("volumeName") or ""
        self.modes: tuple[str, ...] = tuple(spec.get("accessModes") or ())
        self.size = asked_size(obj)

    @property
    def is_fully_bound(self) -> bool:
        return is_fully_bound(self.obj)

    @property
    def asks_for_storage(self) -> bool:
        return "storage" in ((self.obj["spec"].get("resources") or {}).get("requests") or {})

    @property
    def is_lost(self) -> bool:
        return (self.obj.get("status") or {}).get("phase") == "Lost"

    @property
    def is_deleting(self) -> bool:
        return "deletionTimestamp" in self.obj["metadata"]

    def why_not_of(self, pod_key: str, pod_uid: str) -> str:
        """Why the claim does not belong to the pod's ephemeral volume; "" if it was created for that pod."""
        owners = self.obj["metadata"].get("ownerReferences") or ()
        if any(owner.get("controller") and owner.get("uid") == pod_uid for owner in owners):
            return ""
        return f"PVC {self.key} was not created for pod {pod_key} (pod is not owner)"


class ClassView(_View):
    __slots__ = ("mode", "provisioner", "topologies")

    def __init__(self, obj: Object) -> None:
        super().__init__(obj)
        self.mode: str = obj.get("volumeBindingMode") or ""
        self.provisioner: str = obj.get("provisioner") or ""
        self.topologies: tuple[Mapping[str, Any], ...] = tuple(obj.get("allowedTopologies") or ())

    @property
    def waits_for_consumer(self) -> bool:
        return self.mode == "WaitForFirstConsumer"

    def allows(self, labels: Mapping[str, str]) -> bool:
        """Whether a volume may be provisioned for a node with these labels."""
        if not self.topologies:
            return True
        return any(_topology_matches(term.get("matchLabelExpressions") or (), labels) for term in self.topologies)


class NodeDriversView(_View):
    """A CSINode. `limits`: by driver, the maximum of attached volumes; `migrated`: the in-tree plugins replaced by a
    driver on the node."""

    __slots__ = ("counts", "limits", "migrated")

    def __init__(self, obj: Object) -> None:
        super().__init__(obj)
        drivers = (obj.get("spec") or {}).get("drivers") or ()
        counts = {driver["name"]: (driver.get("allocatable") or {}).get("count") for driver in drivers}
        self.limits: dict[str, int] = {name: count for name, count in counts.items() if count is not None}
        self.counts: dict[str, int] = {name: count or 0 for name, count in counts.items()}
        self.migrated: str = annotations_of(obj).get(MIGRATED_PLUGINS) or ""

    def has_migrated(self, plugin: str) -> bool:
        return plugin in self.migrated.split(",") if self.migrated else False


class DriverView(_View):
    __slots__ = ("counts_capacity",)

    def __init__(self, obj: Object) -> None:
        super().__init__(obj)
        self.counts_capacity = bool((obj.get("spec") or {}).get("storageCapacity"))


class CapacityView(_View):
    """`limit`: the largest volume, None if unknown; `nodes`: those that reach it, None for none."""

    __slots__ = ("class_name", "limit", "nodes")

    def __init__(self, obj: Object) -> None:
        super().__init__(obj)
        self.class_name: str = obj.get("storageClassName") or ""
        # The maximum volume size takes precedence.
        text = obj.get("maximumVolumeSize")
        text = obj.get("capacity") if text is None else text
        self.limit: Quantity | None = None if text is None else parse(text)
        topology = obj.get("nodeTopology")
        self.nodes: LabelSelector | None = None
        if topology is not None:
            try:
                self.nodes = selector_of(topology)
            except InvalidSelector:
                self.nodes = None

    def holds(self, size: Quantity, labels: Mapping[str, str]) -> bool:
        if self.limit is None or self.limit.value() < size.value():
            return False
        return self.nodes is not None and self.nodes.matches(labels)


class AttachmentView(_View):
    __slots__ = ("attacher", "node", "volume")

    def __init__(self, obj: Object) -> None:
        super().__init__(obj)
        spec = obj["spec"]
        self.attacher: str = spec.get("attacher") or ""
        self.node: str = spec.get("nodeName") or ""
        self.volume: str = (spec.get("source") or {}).get("persistentVolumeName") or ""


MIGRATED_PLUGINS: Final = "storage.alpha.kubernetes.io/migrated-plugins"

VOLUMES: Final = NeededKind(
    ResourceRef("", "v1", "persistentvolumes"),
    "PersistentVolume",
    VolumeView,
    {BY_CLASS: lambda volume: (volume.class_name,)},
)
CLAIMS: Final = NeededKind(PERSISTENT_VOLUME_CLAIMS, "PersistentVolumeClaim", ClaimView)
CLASSES: Final = NeededKind(ResourceRef(_STORAGE_GROUP, "v1", "storageclasses"), "StorageClass", ClassView)
NODE_DRIVERS: Final = NeededKind(ResourceRef(_STORAGE_GROUP, "v1", "csinodes"), "CSINode", NodeDriversView)
DRIVERS: Final = NeededKind(ResourceRef(_STORAGE_GROUP, "v1", "csidrivers"), "CSIDriver", DriverView)
CAPACITIES: Final = NeededKind(
    ResourceRef(_STORAGE_GROUP, "v1", "csistoragecapacities"),
    "CSIStorageCapacity",
    CapacityView,
    {BY_CLASS: lambda capacity: (capacity.class_name,)},
)
ATTACHMENTS: Final = NeededKind(
    ResourceRef(_STORAGE_GROUP, "v1", "volumeattachments"),
    "VolumeAttachment",
    AttachmentView,
    {BY_NODE: lambda attachment: (attachment.node,)},
)


def affinity_terms(spec: Mapping[str, Any]) -> tuple[Term, ...] | None:
    required = (spec.get("nodeAffinity") or {}).get("required")
    return None if required is None else parse_selector(required)


def reached(terms: Iterable[Term], labels: Mapping[str, str]) -> bool:
    """By labels alone: upstream checks a nameless node here, and then skips the fields."""
    return any(term.readable and all(each.matches(labels) for each in term.labels) for term in terms)


def _topology_matches(expressions: Iterable[Mapping[str, Any]], labels: Mapping[str, str]) -> bool:
    found = list(expressions)
    return bool(found) and all(labels.get(each.get("key", "")) in (each.get("values") or ()) for each in found)

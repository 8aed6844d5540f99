"""ResourceSlices, DeviceClasses and ResourceClaims, as the allocator reads them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from minikube_py.client.rest import Object, ResourceRef
from minikube_py.fields.quantity import Quantity, from_json
from minikube_py.scheduler.kinds import NeededKind
from minikube_py.scheduler.objects import NodeInfo
from minikube_py.scheduler.plugins.node_affinity import Term, parse_selector

GROUP: Final = "resource.k8s.io"
EXACT_COUNT: Final = "ExactCount"
ALL: Final = "All"

Amounts = dict[str, Quantity]


class DeviceId(NamedTuple):
    driver: str
    pool: str
    device: str

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}/{self.device}"


class PoolId(NamedTuple):
    driver: str
    pool: str

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}"


class Reach(NamedTuple):
    """The nodes from which a slice or a device can be used; `terms` None: no selector."""

    node_name: str | None
    is_everywhere: bool
    terms: tuple[Term, ...] | None
    selector: Mapping[str, Any] | None

    @property
    def is_said(self) -> bool:
        return bool(self.node_name) or self.is_everywhere or self.terms is not None

    def holds(self, node: NodeInfo) -> bool:
        if self.node_name:
            return node.name == self.node_name
        return self.is_everywhere or (self.terms is not None and any(term.matches(node) for term in self.terms))


def _reach(spec: Mapping[str, Any]) -> Reach:
    selector = spec.get("nodeSelector")
    terms = None if selector is None else parse_selector(selector)
    return Reach(spec.get("nodeName"), bool(spec.get("allNodes")), terms, selector)


def amounts(given: Mapping[str, Any] | None) -> Amounts:
    return {name: from_json(value) for name, value in (given or {}).items()}


class Capacity(NamedTuple):
    value: Quantity
    policy: Mapping[str, Any] | None


class Device:
    """`selected`: by expression, whether it selects this device, or its error; kept while the slice is unchanged."""

    __slots__ = (
        "allows_many",
        "attributes",
        "binds_to_node",
        "capacity",
        "conditions",
        "consumes",
        "failure_conditions",
        "has_conditions",
        "id",
        "name",
        "obj",
        "reach",
        "selected",
        "taints",
    )

    def __init__(self, obj: Mapping[str, Any], driver: str, pool: str) -> None:
        self.obj = obj
        self.name: str = obj["name"]
        self.id = DeviceId(driver, pool, self.name)
        self.attributes: Mapping[str, Mapping[str, Any]] = obj.get("attributes") or {}
        self.capacity = {
            name: Capacity(from_json(each.get("value")), each.get("requestPolicy"))
            for name, each in (obj.get("capacity") or {}).items()
        }
        self.consumes = tuple(
            (each.get("counterSet", ""), _counters(each)) for each in obj.get("consumesCounters") or ()
        )
        self.taints: Sequence[Mapping[str, Any]] = obj.get("taints") or ()
        self.allows_many = bool(obj.get("allowMultipleAllocations"))
        self.binds_to_node = bool(obj.get("bindsToNode"))
        self.conditions: Sequence[str] = obj.get("bindingConditions") or ()
        self.failure_conditions: Sequence[str] = obj.get("bindingFailureConditions") or ()
        self.has_conditions = bool(self.conditions)
        self.reach = _reach(obj)
        self.selected: dict[str, bool | Exception] = {}


def _counters(given: Mapping[str, Any]) -> Amounts:
    return {name: from_json(each.get("value")) for name, each in (given.get("counters") or {}).items()}


class SliceView:
    __slots__ = (
        "counter_sets",
        "devices",
        "driver",
        "generation",
        "is_per_device",
        "key",
        "name",
        "pool",
        "reach",
        "resource_version",
        "slice_count",
        "uid",
    )

    def __init__(self, obj: Object) -> None:
        metadata, spec = obj["metadata"], obj["spec"]
        self.key = self.name = metadata["name"]
        self.uid: str = metadata.get("uid", "")
        self.resource_version: str = metadata.get("resourceVersion", "")
        self.driver: str = spec["driver"]
        pool = spec["pool"]
        self.pool = PoolId(self.driver, pool["name"])
        self.generation: int = pool.get("generation") or 0
        self.slice_count: int = pool.get("resourceSliceCount") or 0
        self.reach = _reach(spec)
        self.is_per_device = bool(spec.get("perDeviceNodeSelection"))
        self.counter_sets = tuple((each["name"], _counters(each)) for each in spec.get("sharedCounters") or ())
        self.devices = tuple(Device(each, self.driver, pool["name"]) for each in spec.get("devices") or ())

    @property
    def has_counters(self) -> bool:
        return bool(self.counter_sets)

    def reach_of(self, device: Device) -> Reach:
        return device.reach if self.is_per_device else self.reach

    def is_for(self, node: NodeInfo) -> bool:
        """Whether the slice matters to the node. Counters matter to all nodes: without them their pool is
        incomplete."""
        if self.has_counters:
            return True
        if self.reach.is_said:
            return self.reach.holds(node)
        return self.is_per_device and any(device.reach.holds(node) for device in self.devices)


class ClassView:
    __slots__ = ("configs", "created", "expressions", "extended_resource", "key", "name", "resource_version", "uid")

    def __init__(self, obj: Object) -> None:
        metadata, spec = obj["metadata"], obj.get("spec") or {}
        self.key = self.name = metadata["name"]
        self.uid: str = metadata.get("uid", "")
        self.resource_version: str = metadata.get("resourceVersion", "")
        self.created: str = metadata.get("creationTimestamp") or ""
        self.expressions = _expressions(spec)
        self.configs: Sequence[Mapping[str, Any]] = spec.get("config") or ()
        self.extended_resource: str = spec.get("extendedResourceName") or ""


def _expressions(spec: Mapping[str, Any]) -> tuple[str | None, ...]:
    """None for a selector of another kind."""
    return tuple((each.get("cel") or {}).get("expression") for each in spec.get("selectors") or ())


class Request:
    """A request, or one of the alternatives of request `parent`."""

    __slots__ = "capacity", "class_name", "count", "expressions", "is_admin", "mode", "name", "parent", "tolerations"

    def __init__(self, name: str, parent: str, spec: Mapping[str, Any]) -> None:
        self.name = name
        self.parent = parent
        self.class_name: str = spec.get("deviceClassName") or ""
        self.mode: str = spec.get("allocationMode") or ""
        self.count: int = spec.get("count") or 0
        self.is_admin = not parent and bool(spec.get("adminAccess"))
        self.expressions = _expressions(spec)
        self.tolerations: Sequence[Mapping[str, Any]] = spec.get("tolerations") or ()
        self.capacity = amounts((spec.get("capacity") or {}).get("requests"))

    @property
    def full_name(self) -> str:
        return f"{self.parent}/{self.name}" if self.parent else self.name

    @property
    def base_name(self) -> str:
        return self.parent or self.name


class Wish(NamedTuple):
    """A request of a claim, satisfied by the first available of `choices`."""

    name: str
    choices: tuple[Request, ...]
    has_choice: bool


class ClaimView:
    """`obj` is the claim as served by the API server, or as assumed."""

    __slots__ = ("_signature", "_wishes", "key", "name", "namespace", "obj", "resource_version", "uid")

    def __init__(self, obj: Object) -> None:
        metadata = obj["metadata"]
        self.obj = obj
        self.name: str = metadata["name"]
        self.namespace: str = metadata.get("namespace", "")
        self.key = f"{self.namespace}/{self.name}" if self.namespace else self.name
        self.uid: str = metadata.get("uid", "")
        self.resource_version: str = metadata.get("resourceVersion", "")
        self._wishes: tuple[Wish, ...] | None = None
        self._signature = ""

    @property
    def spec(self) -> Mapping[str, Any]:
        """The requested devices."""
        found: Mapping[str, Any] = (self.obj.get("spec") or {}).get("devices") or {}
        return found

    @property
    def status(self) -> Mapping[str, Any]:
        return self.obj.get("status") or {}

    @property
    def allocation(self) -> Mapping[str, Any] | None:
        return self.status.get("allocation")

    @property
    def is_deleting(self) -> bool:
        return "deletionTimestamp" in self.obj["metadata"]

    @property
    def reserved_for(self) -> Sequence[Mapping[str, Any]]:
        return self.status.get("reservedFor") or ()

    def is_controlled_by(self, uid: str) -> bool:
        owners = self.obj["metadata"].get("ownerReferences") or ()
        return any(owner.get("controller") and owner.get("uid") == uid for owner in owners)

    def is_reserved_for(self, uid: str) -> bool:
        return any(each.get("uid") == uid for each in self.reserved_for)

    @property
    def signature(self) -> str:
        """Claims with equal signatures request the same."""
        if not self._signature:
            self._signature = json.dumps(self.spec, sort_keys=True)
        return self._signature

    @property
    def wishes(self) -> tuple[Wish, ...]:
        if self._wishes is None:
            self._wishes = tuple(_wish(each) for each in self.spec.get("requests") or ())
        return self._wishes

    @property
    def results(self) -> Sequence[Mapping[str, Any]]:
        """The devices it holds."""
        found: Sequence[Mapping[str, Any]] = ((self.allocation or {}).get("devices") or {}).get("results") or ()
        return found


def _wish(request: Mapping[str, Any]) -> Wish:
    name, choices = request["name"], request.get("firstAvailable") or ()
    if choices:
        return Wish(name, tuple(Request(each["name"], name, each) for each in choices), True)
    return Wish(name, (Request(name, "", request.get("exactly") or {}),), False)


SLICES: Final = NeededKind(ResourceRef(GROUP, "v1", "resourceslices"), "ResourceSlice", SliceView)
CLASSES: Final = NeededKind(ResourceRef(GROUP, "v1", "deviceclasses"), "DeviceClass", ClassView)
CLAIMS: Final = NeededKind(ResourceRef(GROUP, "v1", "resourceclaims"), "ResourceClaim", ClaimView)

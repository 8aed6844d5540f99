"""Slotted projections of pods and nodes, made once per watch event.

Pods made from one template share one `PodSpec`: it is interned by content, so that derived data (requests, compiled
selectors, cached results) is computed once, and equal specs compare by identity.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Iterable, Mapping, Sequence
from sys import intern
from typing import Any, NamedTuple, NoReturn

import orjson

from minikube_py.api.memo import Bounded
from minikube_py.client.sharing import ReadOnly, shared_labels
from minikube_py.fields.quantity import QuantityError, wide_units
from minikube_py.fields.resource_requests import (
    NANOS_PER_MILLI,
    NANOS_PER_UNIT,
    pod_level_requests,
    total_nanos,
    units_of,
)
from minikube_py.scheduler.asks import ContainerAsks, ContainersCpu, asks_of, containers_cpu, resources_key, uses_of
from minikube_py.scheduler.images import NO_IMAGES, NodeImages, images_of_node, images_of_pod

logger = logging.getLogger(__name__)

CPU = "cpu"
MEMORY = "memory"
PODS = "pods"
EPHEMERAL_STORAGE = "ephemeral-storage"
NATIVE_RESOURCES = frozenset((CPU, MEMORY, EPHEMERAL_STORAGE))

DEFAULT_MILLI_CPU_REQUEST = 100
"""Default for containers without a cpu request in scoring, so that such pods spread out."""
DEFAULT_MEMORY_REQUEST_BYTES = 200 * 1024 * 1024

DEFAULT_SCHEDULER_NAME = "default-scheduler"
PERSISTENT_CLAIM = "persistentVolumeClaim"
EPHEMERAL = "ephemeral"
_CLAIMING = (PERSISTENT_CLAIM, EPHEMERAL)
VOLUME_SOURCES = (
    PERSISTENT_CLAIM,
    EPHEMERAL,
    "csi",
    "awsElasticBlockStore",
    "azureDisk",
    "azureFile",
    "cinder",
    "gcePersistentDisk",
    "iscsi",
    "portworxVolume",
    "rbd",
    "vsphereVolume",
)
"""Volume sources relevant to scheduling; others, such as config maps, are available on every node."""
TAINT_NODE_UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
AMOUNT_MAX = 1 << 56
"""Larger amounts are capped at this, so that a hundredfold stays within int64. No node has as much: such a pod fits
nowhere."""

Amounts = dict[str, int]
"""Resource name to amount: milli-units for cpu, whole units otherwise."""


class Taint(NamedTuple):
    key: str
    value: str
    effect: str


class Toleration(NamedTuple):
    """`operator` is "Equal" if absent; an empty `key` or `effect` matches all."""

    key: str
    operator: str
    value: str
    effect: str


class HostPort(NamedTuple):
    ip: str
    protocol: str
    port: int


class PodVolume(NamedTuple):
    """A pod volume backed by external storage. `claim`: the name of its claim, "" if the pod names the storage itself;
    `source`: the volume field that is set; `details`: its content, if there is no claim."""

    name: str
    claim: str
    source: str
    details: Mapping[str, Any]

    @property
    def has_claim(self) -> bool:
        return self.source in _CLAIMING

    @property
    def is_ephemeral(self) -> bool:
        return self.source == EPHEMERAL


class PodClaim(NamedTuple):
    """One of the pod's device claims. `claim`: its name, None if none is needed; `is_generated`: from a template, for
    this pod; `problem`: why it has no name yet."""

    claim: str | None
    is_generated: bool = False
    problem: str = ""


class PodSpec:
    """The part of a pod that decides where it may run. Interned: equal specs are the same object.

    `requests`: requested amounts without zeros; `nonzero_cpu_milli` and `nonzero_memory_bytes` include the defaults for
    containers without requests; `by_containers`, unless None, is what NodeResourcesFit scores instead: like upstream,
    without pod-level requests. `cpu`: per container. `affinity` is the object's `affinity.nodeAffinity`, `pod_affinity`
    and `pod_anti_affinity` the rest of it; `spread`: its topology spread constraints; `uses`: features that a node may
    have to declare; `asks`: its containers, if one requests a non-native resource. `cache`: for data that plugins
    derive from the spec alone."""

    __slots__ = (
        "affinity",
        "asks",
        "by_containers",
        "cache",
        "cpu",
        "host_ports",
        "node_selector",
        "nonzero_cpu_milli",
        "nonzero_memory_bytes",
        "pod_affinity",
        "pod_anti_affinity",
        "requests",
        "spread",
        "tolerations",
        "uses",
    )

    def __init__(
        self,
        requests: tuple[tuple[str, int], ...] = (),
        nonzero_cpu_milli: int = 0,
        nonzero_memory_bytes: int = 0,
        tolerations: tuple[Toleration, ...] = (),
        node_selector: tuple[tuple[str, str], ...] = (),
        affinity: Mapping[str, Any] | None = None,
        host_ports: tuple[HostPort, ...] = (),
        pod_affinity: Mapping[str, Any] | None = None,
        pod_anti_affinity: Mapping[str, Any] | None = None,
        spread: Sequence[Mapping[str, Any]] = (),
        uses: tuple[str, ...] = (),
        asks: tuple[ContainerAsks, ...] = (),
        by_containers: Amounts | None = None,
        cpu: ContainersCpu | None = None,
    ) -> None:
        self.cpu = cpu or ContainersCpu()
        self.uses = uses
        self.asks = asks
        self.by_containers = by_containers
        self.pod_affinity = pod_affinity
        self.pod_anti_affinity = pod_anti_affinity
        self.spread = spread
        self.requests = requests
        self.nonzero_cpu_milli = nonzero_cpu_milli
        self.nonzero_memory_bytes = nonzero_memory_bytes
        self.tolerations = tolerations
        self.node_selector = node_selector
        self.affinity = affinity
        self.host_ports = host_ports
        self.cache: dict[str, Any] = {}

    def request(self, resource: str) -> int:
        for name, amount in self.requests:
            if name == resource:
                return amount
        return 0


_specs = Bounded(65_536, 32 << 20)
"""Specs already handed out stay valid when it drops them; later equal ones are just different objects."""


class PodInfo:
    """A pod. `scheduled_condition`: (status, reason, message, lastTransitionTime) of PodScheduled, if any.
    `controller`: (apiVersion, kind, name) of its controlling owner, if any. `body`: the object as extenders get it,
    empty if none is configured. `group`: `namespace/name` of its PodGroup, "" without one or with the gate
    GenericWorkload off (`groups.state`)."""

    __slots__ = (
        "body",
        "claims",
        "controller",
        "deleting",
        "finished",
        "gates",
        "generation",
        "group",
        "images",
        "key",
        "labels",
        "name",
        "namespace",
        "node_name",
        "nominated_node",
        "preempted",
        "preemption_policy",
        "priority",
        "resource_version",
        "scheduled_condition",
        "scheduler_name",
        "spec",
        "started",
        "uid",
        "volumes",
    )

    def __init__(self, namespace: str, name: str, uid: str, spec: PodSpec) -> None:
        self.namespace = namespace
        self.name = name
        self.key = f"{namespace}/{name}"
        self.uid = uid
        self.spec = spec
        self.node_name = ""
        self.scheduler_name = DEFAULT_SCHEDULER_NAME
        self.priority = 0
        self.preemption_policy = ""
        self.labels: Mapping[str, str] = _NO_LABELS
        self.gates: tuple[str, ...] = ()
        self.deleting = False
        self.finished = False
        self.generation = 0
        self.nominated_node = ""
        self.started = ""
        self.preempted = False
        self.resource_version = ""
        self.scheduled_condition: tuple[str, str, str, str] | None = None
        self.volumes: tuple[PodVolume, ...] = ()
        self.claims: tuple[PodClaim, ...] = ()
        self.images = NO_IMAGES
        self.controller: tuple[str, str, str] | None = None
        self.body = b""
        self.group = ""

    def __repr__(self) -> str:
        return f"PodInfo({self.key})"

    def __deepcopy__(self, memo: object) -> PodInfo:
        """Its parts are shared among pods, and never changed."""
        return copy.copy(self)


class _Projected(PodInfo):
    """As the informer has it: all profiles and what is loaded into them hold the same. A copy may be changed."""

    __slots__ = ()

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"{name} of a pod is read-only, as others hold the pod, too; change a copy of it")

    def __copy__(self) -> PodInfo:
        found = PodInfo.__new__(PodInfo)
        for name in PodInfo.__slots__:
            setattr(found, name, getattr(self, name))
        return found


class NodeInfo:
    """A node and its pods. `present` is False if only its pods are known yet.

    `requested`: the sums over its pods, `pods` their number; amounts of 0 may be absent. `body`: as for a pod; the
    informer's is the latest."""

    __slots__ = (
        "allocatable",
        "annotations_hash",
        "body",
        "conditions",
        "declared_features",
        "images",
        "labels",
        "name",
        "nonzero_cpu_milli",
        "nonzero_memory_bytes",
        "pods",
        "ports",
        "present",
        "requested",
        "slot",
        "taints",
        "uid",
        "unschedulable",
    )

    def __init__(self, name: str, uid: str = "") -> None:
        self.name = name
        self.uid = uid
        self.slot = -1
        self.present = False
        self.labels: Mapping[str, str] = _NO_LABELS
        self.taints: tuple[Taint, ...] = ()
        self.unschedulable = False
        self.allocatable: Amounts = ReadOnly()
        self.conditions: tuple[tuple[str, str], ...] = ()
        self.annotations_hash = 0
        self.declared_features: frozenset[str] = frozenset()
        self.images: NodeImages = ()
        self.body = b""
        self.requested: Amounts = ReadOnly({PODS: 0})
        self.nonzero_cpu_milli = 0
        self.nonzero_memory_bytes = 0
        self.pods: dict[str, PodInfo] = ReadOnly()
        self.ports: dict[HostPort, int] = ReadOnly()

    def __repr__(self) -> str:
        return f"NodeInfo({self.name})"


class QueuedPodInfo:
    """A pod in the scheduling queue. Times are on the clock's monotonic scale, None if not set yet."""

    __slots__ = (
        "attempts",
        "backoff_until_s",
        "consecutive_errors",
        "flushed",
        "gating_plugin",
        "group",
        "initial_attempt_s",
        "pending_plugins",
        "pod",
        "queue",
        "sequence",
        "timestamp_s",
        "unschedulable_count",
        "unschedulable_plugins",
    )

    def __init__(self, pod: PodInfo, timestamp_s: float) -> None:
        self.pod = pod
        self.timestamp_s = timestamp_s
        self.initial_attempt_s: float | None = None
        self.attempts = 0
        self.unschedulable_count = 0
        self.consecutive_errors = 0
        self.unschedulable_plugins: set[str] = set()
        self.pending_plugins: set[str] = set()
        self.gating_plugin = ""
        self.backoff_until_s: float | None = None
        self.flushed = False
        self.queue = ""
        self.group: object = None
        self.sequence = 0


_NO_LABELS: Mapping[str, str] = ReadOnly()
_NO_STATUS: Mapping[str, Any] = {}


def _amounts(nanos: Mapping[str, int]) -> Amounts:
    """Amounts for the columns: at least 0, and small enough to be summed."""
    return {name: max(0, min(value, AMOUNT_MAX)) for name, value in units_of(nanos).items()}


_NONZERO_DEFAULTS: Mapping[str, int] = {
    CPU: DEFAULT_MILLI_CPU_REQUEST * NANOS_PER_MILLI,
    MEMORY: DEFAULT_MEMORY_REQUEST_BYTES * NANOS_PER_UNIT,
}


def _nonzero_defaults(spec: Mapping[str, Any], requests: Mapping[str, int]) -> Mapping[str, int]:
    """Defaults for containers without requests; with pod-level requests, only for resources that nothing requests."""
    if not pod_level_requests(spec):
        return _NONZERO_DEFAULTS
    return {name: nanos for name, nanos in _NONZERO_DEFAULTS.items() if name not in requests}


def _by_containers(spec: Mapping[str, Any]) -> Amounts | None:
    if not pod_level_requests(spec):
        return None
    return _amounts(total_nanos({**spec, "resources": None}, None, _NONZERO_DEFAULTS))


def _host_ports(spec: Mapping[str, Any]) -> tuple[HostPort, ...]:
    found = []
    sidecars: Iterable[Any] = (c for c in spec.get("initContainers") or () if c.get("restartPolicy") == "Always")
    for container in (*sidecars, *(spec.get("containers") or ())):
        for port in container.get("ports") or ():
            number = port.get("hostPort") or 0
            if number > 0:
                found.append(HostPort(port.get("hostIP") or "0.0.0.0", port.get("protocol") or "TCP", number))
    return tuple(found)


def _tolerations(spec: Mapping[str, Any]) -> tuple[Toleration, ...]:
    return tuple(
        Toleration(t.get("key", ""), t.get("operator") or "Equal", t.get("value", ""), t.get("effect", ""))
        for t in spec.get("tolerations") or ()
    )


def _pod_claim(pod: PodInfo, claim: Mapping[str, Any], status: Mapping[str, Any]) -> PodClaim:
    if claim.get("resourceClaimName") is not None:
        return PodClaim(claim["resourceClaimName"])
    where = f'pod "{pod.key}"'
    if claim.get("resourceClaimTemplateName") is None:
        problem = f'{where}, spec.resourceClaim "{claim["name"]}": none of the supported fields are set'
        return PodClaim(None, problem=problem)
    for each in status.get("resourceClaimStatuses") or ():
        if each["name"] == claim["name"]:
            return PodClaim(each.get("resourceClaimName"), is_generated=True)
    return PodClaim(None, is_generated=True, problem=f"{where}: ResourceClaim not created yet")


def pod_volumes(pod_name: str, volumes: Iterable[Mapping[str, Any]]) -> tuple[PodVolume, ...]:
    """The volumes relevant to scheduling."""
    found = []
    for volume in volumes:
        for source in VOLUME_SOURCES:
            details = volume.get(source)
            if details is None:
                continue
            claim = str(details.get("claimName") or "") if source == PERSISTENT_CLAIM else ""
            if source == EPHEMERAL:
                claim = f"{pod_name}-{volume['name']}"
            found.append(PodVolume(volume["name"], claim, source, {} if source in _CLAIMING else details))
            break
    return tuple(found)


def pod_spec(spec: Mapping[str, Any], status: Mapping[str, Any] = _NO_STATUS) -> PodSpec:
    """The interned PodSpec of an object's `spec`; the `status` matters for a pod resized in place.

    Raises: QuantityError."""
    affinities = spec.get("affinity") or {}
    affinity = affinities.get("nodeAffinity")
    near, apart = affinities.get("podAffinity"), affinities.get("podAntiAffinity")
    spread = spec.get("topologySpreadConstraints") or ()
    selector = spec.get("nodeSelector")
    tolerations = _tolerations(spec)
    ports = _host_ports(spec)
    uses, asks = uses_of(spec), asks_of(spec)
    key = (
        resources_key(spec, status),
        tolerations,
        tuple(sorted(selector.items())) if selector else (),
        orjson.dumps(affinity) if affinity else None,
        ports,
        orjson.dumps(near) if near else None,
        orjson.dumps(apart) if apart else None,
        orjson.dumps(spread) if spread else None,
        uses,
        asks,
    )
    found: PodSpec | None = _specs.known(key)
    if found is None:
        nanos = total_nanos(spec, status)
        requests = _amounts(nanos)
        nonzero = _amounts(total_nanos(spec, status, _nonzero_defaults(spec, nanos)))
        found = PodSpec(
            tuple((name, amount) for name, amount in requests.items() if amount > 0),
            nonzero.get(CPU, 0),
            nonzero.get(MEMORY, 0),
            tolerations,
            key[2],
            affinity or None,
            ports,
            near or None,
            apart or None,
            tuple(spread),
            uses,
            asks,
            _by_containers(spec),
            containers_cpu(spec),
        )
        _specs(key, found)
    return found


def project_pod(obj: Mapping[str, Any]) -> PodInfo:
    """Raises: QuantityError if a request cannot be parsed (the API server rejects such pods)."""
    metadata, spec, status = obj["metadata"], obj["spec"], obj.get("status") or {}
    namespace, name, uid = metadata.get("namespace", ""), metadata["name"], metadata.get("uid", "")
    pod = PodInfo(intern(namespace), intern(name), intern(uid), pod_spec(spec, status))
    pod.node_name = intern(spec.get("nodeName") or "")
    pod.scheduler_name = intern(spec.get("schedulerName") or DEFAULT_SCHEDULER_NAME)
    pod.priority = spec.get("priority") or 0
    pod.preemption_policy = spec.get("preemptionPolicy") or ""
    pod.labels = shared_labels(metadata.get("labels"))
    pod.images = images_of_pod(spec)
    volumes = spec.get("volumes")
    if volumes:
        pod.volumes = pod_volumes(name, volumes)
    claims = spec.get("resourceClaims")
    if claims:
        pod.claims = tuple(_pod_claim(pod, claim, status) for claim in claims)
    for owner in metadata.get("ownerReferences") or ():
        if owner.get("controller"):
            pod.controller = intern(owner.get("apiVersion", "")), intern(owner.get("kind", "")), intern(owner["name"])
            break
    gates = spec.get("schedulingGates")
    if gates:
        pod.gates = tuple(gate["name"] for gate in gates)
    pod.deleting = "deletionTimestamp" in metadata
    pod.finished = status.get("phase") in ("Succeeded", "Failed")
    pod.generation = metadata.get("generation") or 0
    pod.nominated_node = status.get("nominatedNodeName") or ""
    pod.resource_version = metadata.get("resourceVersion", "")
    pod.started = intern(status.get("startTime") or "")
    if pod.node_name:
        pod.preempted = pod.deleting and _is_preempted(status)
    else:
        for condition in status.get("conditions") or ():
            if condition.get("type") == "PodScheduled":
                pod.scheduled_condition = (
                    condition.get("status", ""),
                    condition.get("reason", ""),
                    condition.get("message", ""),
                    condition.get("lastTransitionTime") or "",
                )
    pod.__class__ = _Projected
    return pod


def _is_preempted(status: Mapping[str, Any]) -> bool:
    for condition in status.get("conditions") or ():
        if condition.get("type") == "DisruptionTarget":
            return (condition.get("status"), condition.get("reason")) == ("True", "PreemptionByScheduler")
    return False


_allocatables = Bounded(4096, 32 << 20)
_AMOUNT_BYTES = 150


def _allocatable(quantities: Mapping[str, Any]) -> Amounts:
    """Interned: never changed in place. Nodes are alike, and most updates of one leave its amounts."""
    key = orjson.dumps(quantities)
    found: Amounts | None = _allocatables.known(key)
    if found is None:
        found = {}
        for name, value in quantities.items():
            try:
                units = wide_units(name, value)
            except QuantityError:
                continue
            found[name] = 0 if units < 0 else units if units < AMOUNT_MAX else AMOUNT_MAX - 1
        found = _allocatables(key, ReadOnly(found), _AMOUNT_BYTES * len(found))
    return found


def project_node(obj: Mapping[str, Any]) -> NodeInfo:
    """A NodeInfo without pods. Unparsable allocatable amounts are omitted."""
    metadata, spec, status = obj["metadata"], obj.get("spec") or {}, obj.get("status") or {}
    node = NodeInfo(metadata["name"], metadata.get("uid", ""))
    node.present = True
    node.labels = ReadOnly(metadata.get("labels") or _NO_LABELS)
    node.taints = tuple(
        Taint(t.get("key", ""), t.get("value") or "", t.get("effect", "")) for t in spec.get("taints") or ()
    )
    node.unschedulable = bool(spec.get("unschedulable"))
    node.allocatable = _allocatable(status.get("allocatable") or {})
    node.conditions = tuple(sorted((c.get("type", ""), c.get("status", "")) for c in status.get("conditions") or ()))
    annotations = metadata.get("annotations")
    node.annotations_hash = hash(frozenset(annotations.items())) if annotations else 0
    node.declared_features = frozenset(status.get("declaredFeatures") or ())
    node.images = images_of_node(status)
    return node


def project_live(obj: Any) -> PodInfo | None:
    """To the scheduler, finished pods do not exist: they hold and need nothing."""
    try:
        pod = project_pod(obj)
    except QuantityError as error:
        # The API server rejects such pods; if one exists all the same, the others must still be scheduled.
        logger.error("pod %s is left alone: %s", obj["metadata"]["name"], error)
        return None
    return None if pod.finished else pod

"""Slotted projections of objects, shared by all controllers.

Plain slotted classes, not frozen ones: a frozen dataclass sets each field through object.__setattr__, which would
triple the cost of a pod's projection (24 fields, tens of thousands of pods). They are shared and must not be modified.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from sys import intern
from typing import Any, Final, NamedTuple

import orjson

from minikube_py.api.label_selectors import NOTHING, InvalidSelector, selector_of
from minikube_py.api.memo import Bounded
from minikube_py.api.selectors import LabelSelector, selector_from_map
from minikube_py.api.service_tokens import ACCOUNT_NAME, ACCOUNT_UID, LEGACY_TYPE
from minikube_py.client.repeats import Renewed
from minikube_py.client.rest import Object
from minikube_py.client.sharing import shared_labels
from minikube_py.controllers.zones import zone_of
from minikube_py.fields.digits import whole_number
from minikube_py.fields.resource_requests import repeats

Labels = Mapping[str, str]

FOREGROUND: Final = "foregroundDeletion"
ORPHAN: Final = "orphan"
JOB_TRACKING: Final = "batch.kubernetes.io/job-tracking"
"""The finalizer of a pod that its Job has not counted yet."""
TERMINAL_PHASES: Final = frozenset(("Succeeded", "Failed"))
DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"
ATTACHES: Final = "volumes.kubernetes.io/controller-managed-attach-detach"
"""The annotation of nodes whose volumes a controller attaches."""
NODE_TTL: Final = "node.alpha.kubernetes.io/ttl"
"""The annotation of how long a kubelet may keep what it read, in seconds."""


class OwnerRef(NamedTuple):
    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool
    block_owner_deletion: bool

    def document(self) -> Object:
        document: Object = {"apiVersion": self.api_version, "kind": self.kind, "name": self.name, "uid": self.uid}
        if self.controller:
            document["controller"] = True
        if self.block_owner_deletion:
            document["blockOwnerDeletion"] = True
        return document


_intern = Bounded()
_owners = Bounded()
"""By the names and values of their members."""
_text = intern


@dataclass(slots=True, eq=False)
class MetaView:
    """Metadata alone. `deleting` is the deletionTimestamp, "" if there is none."""

    namespace: str
    name: str
    uid: str
    resource_version: str
    labels: Labels
    owners: tuple[OwnerRef, ...]
    finalizers: tuple[str, ...]
    deleting: str
    created: str

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    @property
    def controller(self) -> OwnerRef | None:
        for owner in self.owners:
            if owner.controller:
                return owner
        return None

    @property
    def deleting_dependents(self) -> bool:
        """Foreground deletion: it waits for its dependents."""
        return bool(self.deleting) and FOREGROUND in self.finalizers

    @property
    def orphaning(self) -> bool:
        return bool(self.deleting) and ORPHAN in self.finalizers


Meta = tuple[str, str, str, str, Labels, tuple[OwnerRef, ...], tuple[str, ...], str, str]


def owner_refs(metadata: Mapping[str, Any]) -> tuple[OwnerRef, ...]:
    references = metadata.get("ownerReferences")
    if not references:
        return ()
    first = references[0]
    told = (*first, *first.values()) if len(references) == 1 else tuple([(*r, *r.values()) for r in references])
    return _owners.known(told) or _owners(told, _owner_refs(references))


def _owner_refs(references: Iterable[Mapping[str, Any]]) -> tuple[OwnerRef, ...]:
    return tuple(
        OwnerRef(
            r.get("apiVersion", ""),
            r.get("kind", ""),
            r.get("name", ""),
            r.get("uid", ""),
            bool(r.get("controller")),
            bool(r.get("blockOwnerDeletion")),
        )
        for r in references
    )


def meta_of(metadata: Mapping[str, Any]) -> Meta:
    """The fields of a MetaView."""
    finalizers = metadata.get("finalizers")
    return (
        _text(metadata.get("namespace", "")),
        intern(metadata["name"]),
        intern(metadata["uid"]),
        metadata.get("resourceVersion", ""),
        shared_labels(metadata.get("labels")),
        owner_refs(metadata),
        tuple(finalizers) if finalizers else (),
        metadata.get("deletionTimestamp") or "",
        _text(metadata.get("creationTimestamp") or ""),
    )


def project_meta(obj: Object) -> MetaView:
    return MetaView(*meta_of(obj["metadata"]))


class ContainerPort(NamedTuple):
    name: str
    protocol: str
    port: int


class PodClaim(NamedTuple):
    """A device claim of a pod, called `name` in its spec, existing or from a template. `claim` is the object's name,
    None if none is needed; valid only if `known`. `extended`: the scheduler created it for an extended resource."""

    name: str
    template: str
    claim: str | None
    known: bool
    extended: bool = False


class PodRun(NamedTuple):
    """Pod fields that only Jobs need. `sidecars` are container names."""

    annotations: Labels
    status: Mapping[str, Any]
    sidecars: frozenset[str]
    grace_s: int


@dataclass(slots=True, eq=False)
class PodView(MetaView):
    controller_uid: str
    node: str
    phase: str
    ready: bool
    ready_since: str
    """lastTransitionTime of the Ready condition, whatever its status; "" without one."""
    ips: tuple[str, ...]
    ports: tuple[ContainerPort, ...]
    hostname: str
    subdomain: str
    tolerations: tuple[Mapping[str, Any], ...]
    restarts: int
    deletion_cost: int
    evicted: bool
    target: str
    """The node that it is bound to, or pinned to by name."""
    claims: tuple[str, ...]
    """Names of the claims that its volumes use."""
    ephemeral: tuple[tuple[str, str, Mapping[str, Any]], ...]
    """Its ephemeral volumes: volume name, claim name and template."""
    devices: tuple[PodClaim, ...]
    """Its device claims."""
    run: PodRun | None
    """None for pods that belong to no Job."""
    charged_by: str
    """The quota-relevant fields that an update may change, except the phase; usually ""."""

    @property
    def terminal(self) -> bool:
        return self.phase in TERMINAL_PHASES

    @property
    def active(self) -> bool:
        return not self.deleting and self.phase not in TERMINAL_PHASES


def project_pod(obj: Object) -> PodView:
    metadata, spec, status = obj["metadata"], obj.get("spec") or {}, obj.get("status") or {}
    meta = meta_of(metadata)
    ready, ready_since = False, ""
    for condition in status.get("conditions") or ():
        if condition.get("type") == "Ready":
            ready = condition.get("status") == "True"
            ready_since = _text(condition.get("lastTransitionTime") or "")
            break
    controller_uid = ""
    for owner in meta[5]:
        if owner.controller:
            controller_uid = owner.uid
            break
    tolerations = spec.get("tolerations")
    annotations = metadata.get("annotations")
    return PodView(
        *meta,
        controller_uid,
        _text(spec.get("nodeName", "")),
        _text(status.get("phase", "")),
        ready,
        ready_since,
        _ips(status),
        _ports(spec),
        spec.get("hostname", ""),
        spec.get("subdomain", ""),
        _tolerations(tolerations) if tolerations else (),
        max((c.get("restartCount", 0) for c in status.get("containerStatuses") or ()), default=0),
        _deletion_cost(annotations) if annotations else 0,
        status.get("reason") == "Evicted",
        _text(spec.get("nodeName", "") or (_asked_node(spec["affinity"]) if "affinity" in spec else "")),
        *(_volumes(metadata["name"], volumes) if (volumes := spec.get("volumes")) else ((), ())),
        _devices(spec, status) if "resourceClaims" in spec or "extendedResourceClaimStatus" in status else (),
        _run(metadata, spec, status) if JOB_TRACKING in meta[6] or any(o.kind == "Job" for o in meta[5]) else None,
        _charged_by(spec, status),
    )


def _tolerations(given: list[Object]) -> tuple[Object, ...]:
    text = orjson.dumps(given)
    # Dictionaries take some 15 times the bytes of their JSON.
    return _intern(text, tuple(given), 15 * len(text))


def _run(metadata: Mapping[str, Any], spec: Mapping[str, Any], status: Mapping[str, Any]) -> PodRun:
    inits = spec.get("initContainers") or ()
    sidecars = frozenset(each["name"] for each in inits if each.get("restartPolicy") == "Always")
    grace_s = metadata.get("deletionGracePeriodSeconds") or 0
    return PodRun(metadata.get("annotations") or {}, status, sidecars, grace_s)


def _charged_by(spec: Mapping[str, Any], status: Mapping[str, Any]) -> str:
    limited = spec.get("activeDeadlineSeconds") is not None
    resources = []
    if not repeats(status, spec):
        statuses = (*(status.get("containerStatuses") or ()), *(status.get("initContainerStatuses") or ()))
        resources = [(each.get("name"), each["resources"]) for each in statuses if "resources" in each]
    return f"{limited} {orjson.dumps(resources).decode()}" if limited or resources else ""


def _asked_node(affinity: Mapping[str, Any]) -> str:
    """As a DaemonSet pins its pods."""
    required = (affinity.get("nodeAffinity") or {}).get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    for term in required.get("nodeSelectorTerms") or ():
        for wanted in term.get("matchFields") or ():
            values = list(wanted.get("values") or ())
            if (wanted.get("key"), wanted.get("operator"), len(values)) == ("metadata.name", "In", 1):
                return str(values[0])
    return ""


def _volumes(
    pod: str, volumes: Any
) -> tuple[tuple[str, ...], tuple[tuple[str, str, Mapping[str, Any]], ...]]:
    """Names of the claims, and the ephemeral volumes."""
    claims, ephemeral = [], []
    for volume in volumes:
        if (source := volume.get("persistentVolumeClaim")) is not None:
            claims.append(source["claimName"])
        elif (source := volume.get("ephemeral")) is not None:
            ephemeral.append((volume["name"], f"{pod}-{volume['name']}", source.get("volumeClaimTemplate") or {}))
    return tuple(claims), tuple(ephemeral)


def _devices(spec: Mapping[str, Any], status: Mapping[str, Any]) -> tuple[PodClaim, ...]:
    reported = {each["name"]: each.get("resourceClaimName") for each in status.get("resourceClaimStatuses") or ()}
    found = []
    for wanted in spec.get("resourceClaims") or ():
        name, template = wanted["name"], wanted.get("resourceClaimTemplateName") or ""
        if template:
            found.append(PodClaim(name, template, reported.get(name), name in reported))
        else:
            found.append(PodClaim(name, "", wanted.get("resourceClaimName"), True))
    if extended := status.get("extendedResourceClaimStatus"):
        found.append(PodClaim("", "", extended.get("resourceClaimName"), True, extended=True))
    return tuple(found)


def _ips(status: Mapping[str, Any]) -> tuple[str, ...]:
    if ips := status.get("podIPs"):
        return tuple(entry["ip"] for entry in ips if entry.get("ip"))
    ip = status.get("podIP")
    return (ip,) if ip else ()


def _ports(spec: Mapping[str, Any]) -> tuple[ContainerPort, ...]:
    """Named ports of containers, then of sidecars."""
    found = [*_named_ports(spec.get("containers"))]
    for container in spec.get("initContainers") or ():
        if container.get("restartPolicy") == "Always":
            found += _named_ports((container,))
    ports = tuple(found)
    return _intern(ports, ports) if ports else ()


def _named_ports(containers: Any) -> list[ContainerPort]:
    return [
        ContainerPort(port["name"], port.get("protocol", "TCP"), port["containerPort"])
        for container in containers or ()
        for port in container.get("ports") or ()
        if port.get("name")
    ]


def _deletion_cost(annotations: Mapping[str, str]) -> int:
    """Values that are not an int32 count as 0, as upstream."""
    text = annotations.get(DELETION_COST, "0")
    digits = text[1:] if text[:1] == "-" else text
    if not digits.isascii() or not digits.isdecimal() or (digits != "0" and digits.startswith("0")):
        return 0
    cost = whole_number(text)
    return cost if -(2**31) <= cost < 2**31 else 0


@dataclass(slots=True, eq=False)
class NodeView(MetaView):
    conditions: Mapping[str, Mapping[str, Any]]
    """By type, as in the object."""
    taints: tuple[Mapping[str, Any], ...]
    unschedulable: bool
    attaches: bool
    """Whether volumes are attached for it, rather than by it."""
    in_use: tuple[str, ...]
    """Names of the volumes that it says it mounts."""
    attached: tuple[str, ...]
    """Names of the volumes that are attached, as its status lists them."""
    ttl: str
    """Its annotation NODE_TTL; "" without one."""
    cpu: str
    has_ready: bool = field(init=False)
    ready: str = field(init=False)
    """Status of the Ready condition; "" without one."""
    heartbeat: str = field(init=False)
    """The last heartbeat of that condition; "" if it has none."""
    zone: str = field(init=False)

    def __post_init__(self) -> None:
        self.zone = zone_of(self.labels)
        condition = self.conditions.get("Ready")
        self.has_ready = condition is not None
        self.ready = str(condition.get("status", "")) if condition else ""
        self.heartbeat = (condition.get("lastHeartbeatTime") or "") if condition is not None else ""


def project_node(obj: Object) -> NodeView:
    metadata, spec, status = obj["metadata"], obj.get("spec") or {}, obj.get("status") or {}
    annotations = metadata.get("annotations") or {}
    return NodeView(
        *meta_of(metadata),
        {condition.get("type", ""): condition for condition in status.get("conditions") or ()},
        tuple(spec.get("taints") or ()),
        bool(spec.get("unschedulable")),
        ATTACHES in annotations,
        tuple(status.get("volumesInUse") or ()),
        tuple([each["name"] for each in status.get("volumesAttached") or ()]),
        _text(annotations.get(NODE_TTL, "")),
        str((status.get("allocatable") or {}).get("cpu") or "0"),
    )


@dataclass(slots=True, eq=False)
class LeaseView(MetaView):
    renew_time: str
    duration_s: int


def _renewed(lease: LeaseView, version: str, time: str) -> LeaseView:
    return LeaseView(
        lease.namespace, lease.name, lease.uid, version, lease.labels, lease.owners, lease.finalizers, lease.deleting,
        lease.created, time, lease.duration_s,
    )  # fmt: skip


def project_lease(obj: Object) -> LeaseView:
    spec = obj.get("spec") or {}
    return LeaseView(*meta_of(obj["metadata"]), spec.get("renewTime") or "", spec.get("leaseDurationSeconds") or 0)


LEASE: Final = Renewed(project_lease, "renewTime", attrgetter("resource_version", "renew_time"), _renewed)


@dataclass(slots=True, eq=False)
class WorkloadView(MetaView):
    """A workload that runs pods from a template. `selector` is NOTHING if it cannot be parsed."""

    generation: int
    annotations: Labels
    selector: LabelSelector
    spec: Mapping[str, Any]
    status: Mapping[str, Any]

    @property
    def replicas(self) -> int:
        replicas = self.spec.get("replicas")
        return 1 if replicas is None else int(replicas)

    @property
    def min_ready_s(self) -> int:
        return int(self.spec.get("minReadySeconds") or 0)

    @property
    def template(self) -> Mapping[str, Any]:
        return self.spec.get("template") or {}

    def selects(self, labels: Labels) -> bool:
        """An empty selector selects nothing here."""
        return bool(self.selector) and self.selector.matches(labels)


def project_workload(obj: Object) -> WorkloadView:
    return _workload(obj, lambda spec: selector_of(spec.get("selector")))


def project_replication_controller(obj: Object) -> WorkloadView:
    return _workload(obj, lambda spec: selector_from_map(spec.get("selector")))


def _workload(obj: Object, read: Callable[[Mapping[str, Any]], LabelSelector]) -> WorkloadView:
    metadata, spec = obj["metadata"], obj.get("spec") or {}
    try:
        selector = read(spec)
    except InvalidSelector:
        selector = NOTHING
    annotations = metadata.get("annotations") or {}
    meta, generation = meta_of(metadata), metadata.get("generation", 0)
    return WorkloadView(*meta, generation, annotations, selector, spec, obj.get("status") or {})


@dataclass(slots=True, eq=False)
class RevisionView(MetaView):
    """A ControllerRevision: an earlier or current template of its owner."""

    revision: int
    template: Mapping[str, Any]


def project_revision(obj: Object) -> RevisionView:
    metadata = obj["metadata"]
    template = dict(((obj.get("data") or {}).get("spec") or {}).get("template") or {})
    template.pop("$patch", None)
    return RevisionView(*meta_of(metadata), obj.get("revision") or 0, template)


@dataclass(slots=True, eq=False)
class ServiceView(MetaView):
    """`selector` None: no selector, so its Endpoints are not managed here."""

    selector: Labels | None
    ports: tuple[Mapping[str, Any], ...]
    cluster_ip: str
    families: tuple[str, ...]
    external_name: bool
    publish_not_ready: bool
    traffic: str
    """`spec.trafficDistribution`."""
    annotations: Labels

    @property
    def headless(self) -> bool:
        return self.cluster_ip in ("None", "")


def project_service(obj: Object) -> ServiceView:
    spec = obj.get("spec") or {}
    return ServiceView(
        *meta_of(obj["metadata"]),
        spec.get("selector"),
        tuple(spec.get("ports") or ()),
        spec.get("clusterIP", ""),
        tuple(spec.get("ipFamilies") or ()),
        spec.get("type") == "ExternalName",
        bool(spec.get("publishNotReadyAddresses")),
        spec.get("trafficDistribution") or "",
        obj["metadata"].get("annotations") or {},
    )


@dataclass(slots=True, eq=False)
class EndpointsView(MetaView):
    annotations: Labels
    subsets: tuple[Mapping[str, Any], ...]


def project_endpoints(obj: Object) -> EndpointsView:
    metadata = obj["metadata"]
    return EndpointsView(*meta_of(metadata), metadata.get("annotations") or {}, tuple(obj.get("subsets") or ()))


@dataclass(slots=True, eq=False)
class EndpointSliceView(MetaView):
    annotations: Labels
    generation: int
    address_type: str
    endpoints: tuple[Mapping[str, Any], ...]
    ports: tuple[Mapping[str, Any], ...]

    @property
    def service_key(self) -> str:
        """Key of the service it belongs to; "" without one."""
        name = self.labels.get("kubernetes.io/service-name")
        return f"{self.namespace}/{name}" if name else ""

    @property
    def managed_by(self) -> str:
        return self.labels.get("endpointslice.kubernetes.io/managed-by", "")


def project_endpoint_slice(obj: Object) -> EndpointSliceView:
    metadata = obj["metadata"]
    return EndpointSliceView(
        *meta_of(metadata),
        metadata.get("annotations") or {},
        metadata.get("generation") or 0,
        obj.get("addressType") or "",
        tuple(obj.get("endpoints") or ()),
        tuple(obj.get("ports") or ()),
    )


@dataclass(slots=True, eq=False)
class NamespaceView(MetaView):
    phase: str
    spec_finalizers: tuple[str, ...]


def project_namespace(obj: Object) -> NamespaceView:
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    return NamespaceView(*meta_of(obj["metadata"]), status.get("phase", ""), tuple(spec.get("finalizers") or ()))


@dataclass(slots=True, eq=False)
class ConfigMapView(MetaView):
    """`root_ca`: the `ca.crt` of a kube-root-ca.crt, "" for all others; other contents are not kept."""

    root_ca: str


ROOT_CA_NAME: Final = "kube-root-ca.crt"


def project_config_map(obj: Object) -> ConfigMapView:
    metadata = obj["metadata"]
    data = obj.get("data") or {}
    return ConfigMapView(*meta_of(metadata), _text(data.get("ca.crt", "")) if metadata["name"] == ROOT_CA_NAME else "")


@dataclass(slots=True, eq=False)
class SecretView(MetaView):
    """`account`: the token's service account; "" for other types, of which nothing is kept. `data`: as stored, without
    the token itself."""

    account: str
    account_uid: str
    data: dict[str, str]


def project_secret(obj: Object) -> SecretView:
    metadata = obj["metadata"]
    if obj.get("type") != LEGACY_TYPE:
        return SecretView(*meta_of(metadata), "", "", {})
    named = metadata.get("annotations") or {}
    data = {key: text if key != "token" else "held" for key, text in (obj.get("data") or {}).items() if text}
    return SecretView(*meta_of(metadata), named.get(ACCOUNT_NAME) or "", named.get(ACCOUNT_UID) or "", data)


def matches(selector: Labels, labels: Labels) -> bool:
    """An empty selector matches nothing here: neither controllers nor services may select everything."""
    if not selector:
        return False
    return all(labels.get(key) == value for key, value in selector.items())

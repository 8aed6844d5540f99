"""Objects as rows of a `meta.k8s.io/v1` Table: what `kubectl get` prints.

Columns and cells are those of the original's `pkg/printers/internalversion`; the server always fills all of them, and
the client leaves out those of priority 1 without `-o wide`. Nodes may get further columns, `free.cpu` and the like,
from field values that the caller hands in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import orjson

from minikube_py.api import registry
from minikube_py.api.errors import Json
from minikube_py.api.meta import parse_timestamp
from minikube_py.api.pod_status import print_pod
from minikube_py.api.registry import Resource

NONE: Final = "<none>"
UNKNOWN: Final = "<unknown>"
Age = Callable[[Any], str]
"""From a timestamp's text (or None) to the time since, as people read it."""


class Column(NamedTuple):
    name: str
    type: str
    format: str
    description: str
    priority: int

    def definition(self) -> Json:
        return self._asdict()


def human_duration(duration_s: float) -> str:
    """Two or three figures' worth: `90s`, `5m12s`, `3h4m`, `2d5h`, `45d`, `3y20d`."""
    seconds = int(duration_s)
    if seconds < -1:
        return "<invalid>"
    if seconds < 120:
        return f"{max(seconds, 0)}s"
    minutes, rest = divmod(seconds, 60)
    if minutes < 10:
        return f"{minutes}m{rest}s" if rest else f"{minutes}m"
    if minutes < 180:
        return f"{minutes}m"
    hours, rest = divmod(minutes, 60)
    if hours < 8:
        return f"{hours}h{rest}m" if rest else f"{hours}h"
    if hours < 48:
        return f"{hours}h"
    days, rest = divmod(hours, 24)
    if hours < 192:
        return f"{days}d{rest}h" if rest else f"{days}d"
    if hours < 24 * 365 * 2:
        return f"{days}d"
    years, rest = divmod(days, 365)
    return f"{years}y{rest}d" if rest and hours < 24 * 365 * 8 else f"{years}y"


# --- cells, kind by kind --------------------------------------------------------------------------------------------


def _format_labels(labels: Mapping[str, str] | None) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted((labels or {}).items())) or NONE


def _print_pod(pod: Json, age: Age) -> list[Any]:
    return print_pod(pod, age)


def _address(node: Json, kind: str) -> str:
    for address in (node.get("status") or {}).get("addresses") or ():
        if address.get("type") == kind:
            return str(address.get("address", ""))
    return NONE


_ROLE_PREFIX: Final = "node-role.kubernetes.io/"
_ROLE_LABEL: Final = "kubernetes.io/role"


def _roles(labels: Mapping[str, str] | None) -> str:
    found: set[str] = set()
    for key, value in (labels or {}).items():
        if key.startswith(_ROLE_PREFIX):
            found.add(key[len(_ROLE_PREFIX) :])
        elif key == _ROLE_LABEL:
            found.add(value)
    return ",".join(sorted(found - {""})) or NONE


def _print_node(node: Json, age: Age) -> list[Any]:
    metadata, status = node["metadata"], node.get("status") or {}
    ready = UNKNOWN[1:-1].capitalize()
    for condition in status.get("conditions") or ():
        if condition.get("type") == "Ready":
            ready = "Ready" if condition.get("status") == "True" else "NotReady"
    if (node.get("spec") or {}).get("unschedulable"):
        ready += ",SchedulingDisabled"
    info = status.get("nodeInfo") or {}
    kernel = info.get("kernelVersion") or UNKNOWN
    if info.get("architecture"):
        kernel += f" ({info['architecture']})"
    return [
        metadata["name"],
        ready,
        _roles(metadata.get("labels")),
        age(metadata.get("creationTimestamp")),
        info.get("kubeletVersion") or "",
        _address(node, "InternalIP"),
        _address(node, "ExternalIP"),
        info.get("osImage") or UNKNOWN,
        kernel,
        info.get("containerRuntimeVersion") or UNKNOWN,
    ]


def _balancer_addresses(status: Json) -> list[str]:
    ingress = (status.get("loadBalancer") or {}).get("ingress") or ()
    return sorted({entry.get("ip") or entry.get("hostname") or "" for entry in ingress} - {""})


def _external_ip(service: Json) -> str:
    spec = service.get("spec") or {}
    kind, external = spec.get("type"), list(spec.get("externalIPs") or ())
    if kind in ("ClusterIP", "NodePort"):
        return ",".join(external) or NONE
    if kind == "LoadBalancer":
        return ",".join(_balancer_addresses(service.get("status") or {}) + external) or "<pending>"
    return str(spec.get("externalName") or "") if kind == "ExternalName" else UNKNOWN


def _port_text(port: Json) -> str:
    number, protocol, node_port = port.get("port", 0), port.get("protocol", ""), port.get("nodePort") or 0
    return f"{number}:{node_port}/{protocol}" if node_port > 0 else f"{number}/{protocol}"


def _print_service(service: Json, age: Age) -> list[Any]:
    metadata, spec = service["metadata"], service.get("spec") or {}
    addresses = spec.get("clusterIPs") or ([spec["clusterIP"]] if spec.get("clusterIP") else [])
    return [
        metadata["name"],
        spec.get("type") or "",
        addresses[0] if addresses else NONE,
        _external_ip(service),
        ",".join(map(_port_text, spec.get("ports") or ())) or NONE,
        age(metadata.get("creationTimestamp")),
        _format_labels(spec.get("selector")),
    ]


_ENDPOINTS_SHOWN: Final = 3


def _join_host_port(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _endpoints_text(subsets: Sequence[Json]) -> str:
    if not subsets:
        return NONE
    shown: list[str] = []
    count = 0
    for subset in subsets:
        addresses = [address.get("ip", "") for address in subset.get("addresses") or ()]
        ports = subset.get("ports") or ()
        count += len(addresses) * (len(ports) or 1)
        room = _ENDPOINTS_SHOWN - len(shown)
        if not ports:
            shown += addresses[:room]
        for port in ports:
            room = _ENDPOINTS_SHOWN - len(shown)
            shown += [_join_host_port(ip, port.get("port", 0)) for ip in addresses[:room]]
    text = ",".join(shown)
    return f"{text} + {count - _ENDPOINTS_SHOWN} more..." if count > _ENDPOINTS_SHOWN else text


def _print_endpoints(endpoints: Json, age: Age) -> list[Any]:
    metadata = endpoints["metadata"]
    return [
        metadata["name"],
        _endpoints_text(endpoints.get("subsets") or ()),
        age(metadata.get("creationTimestamp")),
    ]


def _print_replication_controller(controller: Json, age: Age) -> list[Any]:
    metadata, spec, status = controller["metadata"], controller.get("spec") or {}, controller.get("status") or {}
    template = (spec.get("template") or {}).get("spec") or {}
    containers = template.get("containers") or ()
    return [
        metadata["name"],
        spec.get("replicas") or 0,
        status.get("replicas") or 0,
        status.get("readyReplicas") or 0,
        age(metadata.get("creationTimestamp")),
        ",".join(container.get("name", "") for container in containers),
        ",".join(container.get("image", "") for container in containers),
        _format_labels(spec.get("selector")),
    ]


def _print_config_map(config: Json, age: Age) -> list[Any]:
    count = len(config.get("data") or ()) + len(config.get("binaryData") or ())
    return [config["metadata"]["name"], count, age(config["metadata"].get("creationTimestamp"))]


def _print_secret(secret: Json, age: Age) -> list[Any]:
    metadata = secret["metadata"]
    return [
        metadata["name"],
        secret.get("type") or "",
        len(secret.get("data") or ()),
        age(metadata.get("creationTimestamp")),
    ]


def _print_name_and_age(obj: Json, age: Age) -> list[Any]:
    return [obj["metadata"]["name"], age(obj["metadata"].get("creationTimestamp"))]


def _print_namespace(namespace: Json, age: Age) -> list[Any]:
    metadata = namespace["metadata"]
    phase = (namespace.get("status") or {}).get("phase") or ""
    return [metadata["name"], phase, age(metadata.get("creationTimestamp"))]


def _print_lease(lease: Json, age: Age) -> list[Any]:
    metadata = lease["metadata"]
    holder = (lease.get("spec") or {}).get("holderIdentity") or ""
    return [metadata["name"], holder, age(metadata.get("creationTimestamp"))]


def _print_event(event: Json, age: Age) -> list[Any]:
    get = event.get
    first = age(get("firstTimestamp") or get("eventTime"))
    last = age(get("lastTimestamp")) if get("lastTimestamp") else first
    count = get("count") or 1
    if (series := get("series")) is not None:
        last, count = age(series.get("lastObservedTime")), series.get("count") or 0
    target, source = get("involvedObject") or {}, get("source") or {}
    kind, name = (target.get("kind") or "").lower(), target.get("name")
    component = source.get("component") or get("reportingComponent") or ""
    instance = source.get("host") or get("reportingInstance") or ""
    return [
        last,
        get("type") or "",
        get("reason") or "",
        f"{kind}/{name}" if name else kind,
        target.get("fieldPath") or "",
        f"{component}, {instance}" if instance else component,
        (get("message") or "").strip(),
        first,
        count,
        event["metadata"]["name"],
    ]


# --- columns --------------------------------------------------------------------------------------------------------

_NAME: Final = Column("Name", "string", "name", "Name of the object.", 0)
_AGE: Final = Column("Age", "string", "", "Time since the object was created.", 0)


def _column(name: str, description: str, priority: int = 0, type: str = "string") -> Column:
    return Column(name, type, "", description, priority)


class _Printer(NamedTuple):
    columns: tuple[Column, ...]
    cells: Callable[[Json, Age], list[Any]]


_PRINTERS: Final[dict[Resource, _Printer]] = {
    registry.PODS: _Printer(
        (
            _NAME,
            _column("Ready", "Containers that are ready, of all."),
            _column("Status", "What the pod is doing, in one word."),
            _column("Restarts", "Restarts of its containers, and when the last one was."),
            _AGE,
            _column("IP", "Address of the pod.", 1),
            _column("Node", "Node the pod is bound to.", 1),
            _column("Nominated Node", "Node that makes room for the pod.", 1),
            _column("Readiness Gates", "Readiness gates that hold, of all.", 1),
        ),
        _print_pod,
    ),
    registry.NODES: _Printer(
        (
            _NAME,
            _column("Status", "Whether the node is ready, and whether it takes new pods."),
            _column("Roles", "Roles of the node, from its labels."),
            _AGE,
            _column("Version", "Version of its kubelet."),
            _column("Internal-IP", "First internal address.", 1),
            _column("External-IP", "First external address.", 1),
            _column("OS-Image", "Operating system.", 1),
            _column("Kernel-Version", "Kernel of the node.", 1),
            _column("Container-Runtime", "Container runtime and its version.", 1),
        ),
        _print_node,
    ),
    registry.SERVICES: _Printer(
        (
            _NAME,
            _column("Type", "How the service is exposed."),
            _column("Cluster-IP", "Address inside the cluster."),
            _column("External-IP", "Addresses outside the cluster."),
            _column("Port(s)", "Ports, with their node ports and protocols."),
            _AGE,
            _column("Selector", "Labels of the pods behind it.", 1),
        ),
        _print_service,
    ),
    registry.ENDPOINTS: _Printer(
        (_NAME, _column("Endpoints", "Addresses and ports behind the service, the first three."), _AGE),
        _print_endpoints,
    ),
    registry.REPLICATIONCONTROLLERS: _Printer(
        (
            _NAME,
            _column("Desired", "Replicas asked for.", 0, "integer"),
            _column("Current", "Replicas there are.", 0, "integer"),
            _column("Ready", "Replicas that are ready.", 0, "integer"),
            _AGE,
            _column("Containers", "Names of the template's containers.", 1),
            _column("Images", "Images of the template's containers.", 1),
            _column("Selector", "Labels of its pods.", 1),
        ),
        _print_replication_controller,
    ),
    registry.CONFIGMAPS: _Printer((_NAME, _column("Data", "Number of keys."), _AGE), _print_config_map),
    registry.SECRETS: _Printer(
        (_NAME, _column("Type", "What the secret is for."), _column("Data", "Number of keys."), _AGE), _print_secret
    ),
    registry.SERVICEACCOUNTS: _Printer((_NAME, _AGE), _print_name_and_age),
    registry.NAMESPACES: _Printer((_NAME, _column("Status", "Phase of the namespace."), _AGE), _print_namespace),
    registry.LEASES: _Printer((_NAME, _column("Holder", "Who holds the lease."), _AGE), _print_lease),
    registry.EVENTS: _Printer(
        (
            _column("Last Seen", "Time since it last happened."),
            _column("Type", "Normal or Warning."),
            _column("Reason", "Why it happened, in one word."),
            _column("Object", "What it happened to."),
            _column("Subobject", "Which part of the object.", 1),
            _column("Source", "Who reported it.", 1),
            _column("Message", "What happened."),
            _column("First Seen", "Time since it first happened.", 1),
            _column("Count", "How often it happened.", 1),
            Column("Name", "string", "name", "Name of the object.", 1),
        ),
        _print_event,
    ),
}
_DEFAULT: Final = _Printer((_NAME, Column("Created At", "date", "", "Time of creation.", 0)), lambda obj, age: [
    obj["metadata"]["name"], obj["metadata"].get("creationTimestamp"),
])  # fmt: skip

_ROW_CONDITIONS: Final = {
    "Succeeded": [
        {
            "type": "Completed",
            "status": "True",
            "reason": "Succeeded",
            "message": "The pod has completed successfully.",
        }
    ],
    "Failed": [{"type": "Completed", "status": "True", "reason": "Failed", "message": "The pod failed."}],
}


def columns(resource: Resource, fields: Sequence[str] = ()) -> list[Json]:
    """The column definitions; `fields` names further ones, of priority 1."""
    own = _PRINTERS.get(resource, _DEFAULT).columns
    extra = (_column(name, "Declared field, as the index holds it.", 1) for name in fields)
    return [column.definition() for column in (*own, *extra)]


class TablePrinter:
    """Prints the rows of one table. Ages are worked out once for each second at which objects were created.

    `include_object` is None, Metadata or Object: what each row carries besides its cells. `fields` names the extra
    columns, whose values each row is handed as text."""

    def __init__(
        self, resource: Resource, now_s: float, include_object: str = "Metadata", fields: Sequence[str] = ()
    ) -> None:
        self._resource = resource
        self._now_s = now_s
        self._include = include_object or "Metadata"
        self._fields = tuple(fields)
        self._cells = _PRINTERS.get(resource, _DEFAULT).cells
        self._ages: dict[str, str] = {}

    def columns(self) -> list[Json]:
        return columns(self._resource, self._fields)

    def age(self, text: Any) -> str:
        """Time since a timestamp; `<unknown>` where there is none, or where it cannot be read."""
        if not text:
            return UNKNOWN
        found = self._ages.get(text)
        if found is None:
            try:
                found = human_duration(self._now_s - parse_timestamp(text))
            except ValueError:
                found = UNKNOWN
            self._ages[text] = found
        return found

    def cells(self, obj: Json, values: Mapping[str, str] | None = None) -> list[Any]:
        """`values` are the field values of this object; a missing one is `<none>`."""
        cells = self._cells(obj, self.age)
        if self._fields:
            given = values or {}
            cells += [given.get(name, NONE) for name in self._fields]
        return cells

    def row(self, obj: Json, values: Mapping[str, str] | None = None) -> Json:
        """`obj` is complete: kind, apiVersion and resourceVersion in place. It is shared, not copied."""
        row: Json = {"cells": self.cells(obj, values)}
        if self._resource is registry.PODS:
            conditions = _ROW_CONDITIONS.get((obj.get("status") or {}).get("phase") or "")
            if conditions is not None:
                row["conditions"] = conditions
        if self._include == "Object":
            row["object"] = obj
        elif self._include == "Metadata":
            row["object"] = {
                "kind": "PartialObjectMetadata",
                "apiVersion": "meta.k8s.io/v1",
                "metadata": obj["metadata"],
            }
        else:
            row["object"] = None
        return row

    def row_bytes(self, value: bytes, resource_version: str, values: Mapping[str, str] | None = None) -> bytes:
        """The row of an object as the store holds it: JSON without kind, apiVersion and resourceVersion."""
        obj = orjson.loads(value)
        obj["metadata"]["resourceVersion"] = resource_version
        if self._include == "Object":
            obj = {"kind": self._resource.kind, "apiVersion": self._resource.api_version, **obj}
        return orjson.dumps(self.row(obj, values))


def cells(resource: Resource, obj: Json, now_s: float, fields: Mapping[str, str] | None = None) -> list[Any]:
    """The cells of one object; `fields` adds one for each of its entries, in their order."""
    return TablePrinter(resource, now_s, "None", tuple(fields or ())).cells(obj, fields)


def table_head(resource: Resource, list_metadata: Json, fields: Sequence[str] = ()) -> bytes:
    """Everything of a Table up to its rows; the caller adds the rows, joined by commas, and `]}`."""
    head = {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": list_metadata,
        "columnDefinitions": columns(resource, fields),
    }
    return orjson.dumps(head)[:-1] + b',"rows":['

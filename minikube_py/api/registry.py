"""Every kind served, as rows of one registry. A new kind is a row plus what is truly its own.

What is common to all kinds reads the row; what is a kind's own (defaults, strategy, validation, columns) stands in the
modules of those names, in tables keyed by the row. Facts a row holds are those of the original's discovery documents
and of its `pkg/registry` strategies.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, Literal

from minikube_py.fields import builtin
from minikube_py.fields.spec import FieldSet

DeleteAnswer = Literal["object", "status"]
ALL_VERBS: Final = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
STATUS_VERBS: Final = ("get", "patch", "update")


@dataclass(frozen=True, slots=True)
class Subresource:
    """`group` and `version` are set only where the kind is another group's (`pods/eviction`: policy/v1)."""

    name: str
    kind: str
    verbs: tuple[str, ...]
    group: str = ""
    version: str = ""


@dataclass(frozen=True, slots=True)
class Selectable:
    """A field label: the text at `path`, `default` where that is missing or empty. Booleans and numbers are printed.

    `otherwise` is a second path to try. A number in a path is an index into a list."""

    path: tuple[str | int, ...]
    default: str = ""
    otherwise: tuple[str | int, ...] = ()


@dataclass(frozen=True, eq=False)
class Resource:
    """One kind at one version. `plural` names it in paths, `kind` in objects.

    `stored` is false for kinds that are only answered (reviews, bindings). `delete_answer` says what a DELETE that is
    done at once answers with; pending grace or finalizers always answer the object. `generation` says whether
    `metadata.generation` is kept. `graceful` kinds are deleted after a grace period (pods).
    `deprecation` is the warning that every request for the kind is answered with.
    """

    group: str
    version: str
    kind: str
    plural: str
    singular: str
    namespaced: bool
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ALL_VERBS
    subresources: tuple[Subresource, ...] = ()
    selectable: Mapping[str, Selectable] = field(default_factory=dict)
    field_aliases: Mapping[str, str] = field(default_factory=dict)
    stored: bool = True
    delete_answer: DeleteAnswer = "status"
    generation: bool = False
    graceful: bool = False
    allow_create_on_update: bool = False
    allow_unconditional_update: bool = True
    deprecation: str = ""

    @cached_property
    def list_kind(self) -> str:
        return f"{self.kind}List"

    @cached_property
    def api_version(self) -> str:
        """As in objects: `v1`, `coordination.k8s.io/v1`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @cached_property
    def prefix(self) -> bytes:
        """Where its objects are stored: `/registry/pods/`."""
        middle = f"{self.group}/{self.plural}" if self.group else self.plural
        return f"/registry/{middle}/".encode()

    def key(self, namespace: str, name: str) -> bytes:
        """The store's key of one object; `namespace` is ignored where the kind has none."""
        return self.prefix + (f"{namespace}/{name}" if self.namespaced else name).encode()

    def collection_prefix(self, namespace: str = "") -> bytes:
        """The store's prefix of all objects, or of those of one namespace."""
        return self.prefix + f"{namespace}/".encode() if namespace and self.namespaced else self.prefix

    @cached_property
    def _subresources(self) -> Mapping[str, Subresource]:
        return {sub.name: sub for sub in self.subresources}

    def subresource(self, name: str) -> Subresource | None:
        return self._subresources.get(name)

    @cached_property
    def has_status(self) -> bool:
        return "status" in self._subresources

    @cached_property
    def field_set(self) -> FieldSet | None:
        """What may be asked of its objects beyond equality (`free.cpu>=4`), or None."""
        return _DECLARED.get((self.group, self.plural))

    def __repr__(self) -> str:
        return f"<Resource {self.plural} {self.api_version}>"


_DECLARED: Final = {("", "nodes"): builtin.NODES, ("", "pods"): builtin.PODS}


_NAME: Final = {"metadata.name": Selectable(("metadata", "name"))}
_NAMESPACED: Final = {**_NAME, "metadata.namespace": Selectable(("metadata", "namespace"))}


def _status(kind: str) -> Subresource:
    return Subresource("status", kind, STATUS_VERBS)


def _involved(name: str) -> Selectable:
    return Selectable(("involvedObject", name))


NAMESPACES: Final = Resource(
    "", "v1", "Namespace", "namespaces", "namespace", False,
    short_names=("ns",),
    verbs=tuple(verb for verb in ALL_VERBS if verb != "deletecollection"),
    subresources=(Subresource("finalize", "Namespace", ("update",)), _status("Namespace")),
    selectable={**_NAME, "status.phase": Selectable(("status", "phase"))},
)  # fmt: skip

NODES: Final = Resource(
    "", "v1", "Node", "nodes", "node", False,
    short_names=("no",),
    subresources=(_status("Node"),),
    selectable={**_NAME, "spec.unschedulable": Selectable(("spec", "unschedulable"), "false")},
)  # fmt: skip

PODS: Final = Resource(
    "", "v1", "Pod", "pods", "pod", True,
    short_names=("po",),
    categories=("all",),
    subresources=(
        Subresource("binding", "Binding", ("create",)),
        Subresource("eviction", "Eviction", ("create",), "policy", "v1"),
        Subresource("log", "Pod", ("get",)),
        _status("Pod"),
    ),
    selectable={
        **_NAMESPACED,
        "spec.nodeName": Selectable(("spec", "nodeName")),
        "spec.restartPolicy": Selectable(("spec", "restartPolicy")),
        "spec.schedulerName": Selectable(("spec", "schedulerName")),
        "spec.serviceAccountName": Selectable(("spec", "serviceAccountName")),
        "spec.hostNetwork": Selectable(("spec", "hostNetwork"), "false"),
        "status.phase": Selectable(("status", "phase")),
        "status.podIP": Selectable(("status", "podIPs", 0, "ip"), "", ("status", "podIP")),
        # Accepted and never filled by the original, so that it equals only the empty text.
        "status.podIPs": Selectable(()),
        "status.nominatedNodeName": Selectable(("status", "nominatedNodeName")),
    },
    field_aliases={"spec.host": "spec.nodeName"},
    delete_answer="object",
    generation=True,
    graceful=True,
)  # fmt: skip

BINDINGS: Final = Resource(
    "", "v1", "Binding", "bindings", "binding", True, verbs=("create",), stored=False,
)  # fmt: skip

SERVICES: Final = Resource(
    "", "v1", "Service", "services", "service", True,
    short_names=("svc",),
    categories=("all",),
    subresources=(_status("Service"),),
    selectable={
        **_NAMESPACED,
        "spec.clusterIP": Selectable(("spec", "clusterIP")),
        "spec.type": Selectable(("spec", "type")),
    },
    delete_answer="object",
    allow_create_on_update=True,
)  # fmt: skip

ENDPOINTS: Final = Resource(
    "", "v1", "Endpoints", "endpoints", "endpoints", True,
    short_names=("ep",), selectable=_NAMESPACED, allow_create_on_update=True,
    deprecation="v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice",
)  # fmt: skip

REPLICATIONCONTROLLERS: Final = Resource(
    "", "v1", "ReplicationController", "replicationcontrollers", "replicationcontroller", True,
    short_names=("rc",),
    categories=("all",),
    subresources=(Subresource("scale", "Scale", STATUS_VERBS, "autoscaling", "v1"), _status("ReplicationController")),
    selectable={**_NAMESPACED, "status.replicas": Selectable(("status", "replicas"), "0")},
    generation=True,
)  # fmt: skip

CONFIGMAPS: Final = Resource(
    "", "v1", "ConfigMap", "configmaps", "configmap", True, short_names=("cm",), selectable=_NAMESPACED,
)  # fmt: skip

SECRETS: Final = Resource(
    "", "v1", "Secret", "secrets", "secret", True, selectable={**_NAMESPACED, "type": Selectable(("type",))},
)  # fmt: skip

SERVICEACCOUNTS: Final = Resource(
    "", "v1", "ServiceAccount", "serviceaccounts", "serviceaccount", True,
    short_names=("sa",), selectable=_NAMESPACED, delete_answer="object",
)  # fmt: skip

EVENTS: Final = Resource(
    "", "v1", "Event", "events", "event", True,
    short_names=("ev",),
    selectable={
        **_NAMESPACED,
        "involvedObject.kind": _involved("kind"),
        "involvedObject.namespace": _involved("namespace"),
        "involvedObject.name": _involved("name"),
        "involvedObject.uid": _involved("uid"),
        "involvedObject.apiVersion": _involved("apiVersion"),
        "involvedObject.resourceVersion": _involved("resourceVersion"),
        "involvedObject.fieldPath": _involved("fieldPath"),
        "reason": Selectable(("reason",)),
        "reportingComponent": Selectable(("reportingComponent",)),
        "source": Selectable(("source", "component"), "", ("reportingComponent",)),
        "type": Selectable(("type",)),
    },
    allow_create_on_update=True,
)  # fmt: skip

LEASES: Final = Resource(
    "coordination.k8s.io", "v1", "Lease", "leases", "lease", True,
    selectable=_NAMESPACED, allow_create_on_update=True, allow_unconditional_update=False,
)  # fmt: skip


def _review(group: str, kind: str) -> Resource:
    plural = f"{kind.lower()}s"
    return Resource(group, "v1", kind, plural, kind.lower(), False, verbs=("create",), stored=False)


SELFSUBJECTACCESSREVIEWS: Final = _review("authorization.k8s.io", "SelfSubjectAccessReview")
SELFSUBJECTRULESREVIEWS: Final = _review("authorization.k8s.io", "SelfSubjectRulesReview")
SELFSUBJECTREVIEWS: Final = _review("authentication.k8s.io", "SelfSubjectReview")


class Registry:
    """The rows, found by path or by kind. Order is that of discovery: by group, then by plural."""

    def __init__(self, resources: tuple[Resource, ...]) -> None:
        self.resources = resources
        self._by_plural = {(r.group, r.version, r.plural): r for r in resources}
        self._by_kind = {(r.group, r.version, r.kind): r for r in resources}
        self.group_versions: tuple[tuple[str, str], ...] = tuple(
            dict.fromkeys((r.group, r.version) for r in resources)
        )

    def resource(self, group: str, version: str, plural: str) -> Resource | None:
        return self._by_plural.get((group, version, plural))

    def kind(self, group: str, version: str, kind: str) -> Resource | None:
        return self._by_kind.get((group, version, kind))


REGISTRY: Final = Registry(
    (
        BINDINGS,
        CONFIGMAPS,
        ENDPOINTS,
        EVENTS,
        NAMESPACES,
        NODES,
        PODS,
        REPLICATIONCONTROLLERS,
        SECRETS,
        SERVICEACCOUNTS,
        SERVICES,
        SELFSUBJECTREVIEWS,
        SELFSUBJECTACCESSREVIEWS,
        SELFSUBJECTRULESREVIEWS,
        LEASES,
    )
)

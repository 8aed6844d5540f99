"""The types of `Cluster.wait`: what it returns follows from how it is called. For type checkers."""

from __future__ import annotations

from typing import Any, Literal, TypedDict

from minikube_py.cluster.waiting import Until

Object = dict[str, Any]
OfMany = Literal[
    "apiservices", "certificatesigningrequests", "cj", "clusterrolebindings", "clusterroles", "cm",
    "componentstatuses", "configmaps", "controllerrevisions", "crd", "crds", "cronjobs", "cs", "csidrivers",
    "csinodes", "csistoragecapacities", "csr", "customresourcedefinitions", "daemonsets", "deploy", "deployments",
    "deviceclasses", "ds", "endpoints", "endpointslices", "ep", "ev", "events", "flowschemas",
    "horizontalpodautoscalers", "hpa", "ing", "ingressclasses", "ingresses", "ip", "ipaddresses", "jobs", "leases",
    "limitranges", "limits", "mutatingadmissionpolicies", "mutatingadmissionpolicybindings",
    "mutatingwebhookconfigurations", "namespaces", "netpol", "networkpolicies", "no", "nodes", "ns", "pc", "pdb",
    "persistentvolumeclaims", "persistentvolumes", "po", "poddisruptionbudgets", "pods", "podtemplates",
    "priorityclasses", "prioritylevelconfigurations", "pv", "pvc", "quota", "rc", "replicasets",
    "replicationcontrollers", "resourceclaims", "resourceclaimtemplates", "resourcequotas", "resourceslices",
    "rolebindings", "roles", "rs", "runtimeclasses", "sa", "sc", "secrets", "serviceaccounts", "servicecidrs",
    "services", "statefulsets", "storageclasses", "sts", "svc", "vac", "validatingadmissionpolicies",
    "validatingadmissionpolicybindings", "validatingwebhookconfigurations", "volumeattachments",
    "volumeattributesclasses",
]  # fmt: skip
"""All of a kind: plurals and short names of the built-in kinds. For other names, a `selector` says so."""


class Held(TypedDict, total=False):
    """Conditions, and where and how long to wait; see Cluster.wait."""

    ready: int | None
    condition: str | None
    phase: str | None
    until: Until | None
    namespace: str | None
    timeout_s: float

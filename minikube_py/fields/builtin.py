"""The declarations every control plane starts with: what nodes and pods can be asked for."""

from __future__ import annotations

from typing import Final

from minikube_py.fields.spec import FieldSet, FieldSpec, SumSpec

_ALLOCATABLE = {"path": "status.allocatable"}

NODES: Final = FieldSet(
    name="nodes",
    prefix=b"/registry/nodes/",
    fields=(
        FieldSpec("free.*", "quantity", "resources@1", _ALLOCATABLE, minus="requested.*"),
        FieldSpec("allocatable.*", "quantity", "resources@1", _ALLOCATABLE),
        FieldSpec("requested.*", "quantity", "sum@1", {"sum": "requested.*", "over": "status.allocatable"}),
        FieldSpec("spec.unschedulable", "string", "path@1", {"path": "spec.unschedulable", "default": "false"}),
        FieldSpec("metadata.name", "string", "path@1", {"path": "metadata.name"}),
    ),
    sums=(SumSpec("requested.*", b"/registry/pods/", "spec.nodeName", "pod_requests@1"),),
)
"""`free.<resource>` = allocatable minus the requests of the live pods bound to the node."""

PODS: Final = FieldSet(
    name="pods",
    prefix=b"/registry/pods/",
    fields=(
        FieldSpec("hash.spec.nodeName", "int", "hash32@1", {"path": "spec.nodeName"}),
        FieldSpec("requests.*", "quantity", "pod_requests@1"),
    ),
)
"""`hash.spec.nodeName`: CRC-32 of the node's name, so that a process can watch its share of the nodes."""

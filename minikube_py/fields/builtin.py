"""The default declarations of every control plane: the queryable fields of nodes and pods."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from minikube_py.fields.spec import FieldSet, FieldSpec, SumSpec

_FORMER: Final = {"resources@2": "resources@1", "pod_requests@2": "pod_requests@1", "sum@3": "sum@1"}

_ALLOCATABLE = {"path": "status.allocatable"}

NODES: Final = FieldSet(
    name="nodes",
    prefix=b"/registry/nodes/",
    fields=(
        FieldSpec("free.*", "quantity", "resources@2", _ALLOCATABLE, minus="requested.*"),
        FieldSpec("allocatable.*", "quantity", "resources@2", _ALLOCATABLE),
        FieldSpec("requested.*", "quantity", "sum@3", {"sum": "requested.*", "over": "status.allocatable"}),
        FieldSpec("spec.unschedulable", "string", "path@1", {"path": "spec.unschedulable", "default": "false"}),
        FieldSpec("metadata.name", "string", "path@1", {"path": "metadata.name"}),
    ),
    sums=(SumSpec("requested.*", b"/registry/pods/", "spec.nodeName", "pod_requests@2"),),
)
"""`free.<resource>` = allocatable minus the requests of the live pods bound to the node."""

PODS: Final = FieldSet(
    name="pods",
    prefix=b"/registry/pods/",
    fields=(
        FieldSpec("hash.spec.nodeName", "int", "hash32@1", {"path": "spec.nodeName"}),
        FieldSpec("requests.*", "quantity", "pod_requests@2"),
    ),
)
"""`hash.spec.nodeName`: CRC-32 of the node's name, so that a process can watch its share of the nodes."""

MINIONS: Final = replace(NODES, name="minions", prefix=b"/registry/minions/")
"""Nodes, where Kubernetes' own API server stores them."""

KUBE_PODS: Final = replace(PODS, name="kube-pods", fields=(*PODS.fields, NODES.fields[-1]))
"""Pods with `metadata.name`, which each readable object has."""


def former(field_set: FieldSet) -> FieldSet:
    """Its replacement while members of an earlier release take part (`mvcc.versions`): the same fields, by the
    extractors of version 1; itself if there is no difference."""
    fields = tuple([replace(each, extractor=_FORMER.get(each.extractor, each.extractor)) for each in field_set.fields])
    sums = tuple([replace(each, extractor=_FORMER.get(each.extractor, each.extractor)) for each in field_set.sums])
    return FieldSet(field_set.name, field_set.prefix, fields, sums)

"""Extender requests and responses, as defined by k8s.io/kube-scheduler/extender/v1. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import orjson

from minikube_py.scheduler.extenders.go_json import INT64, STRING, Shape, read

_NODE: Final = Shape("struct", "v1.Node", {"metadata": Shape("struct", "v1.ObjectMeta", {"name": STRING})})
_FAILED: Final = Shape("map", "v1.FailedNodesMap", of=STRING)
_FILTER: Final = Shape(
    "struct",
    "v1.ExtenderFilterResult",
    {
        "Nodes": Shape("struct", "v1.NodeList", {"items": Shape("list", "[]v1.Node", of=_NODE)}),
        "NodeNames": Shape("list", "[]string", of=STRING),
        "FailedNodes": _FAILED,
        "FailedAndUnresolvableNodes": _FAILED,
        "Error": STRING,
    },
)
_PRIORITIES: Final = Shape(
    "list", "v1.HostPriorityList", of=Shape("struct", "v1.HostPriority", {"Host": STRING, "Score": INT64})
)
_META_POD: Final = Shape("struct", "v1.MetaPod", {"UID": STRING})
_META_VICTIMS: Final = Shape(
    "struct",
    "v1.MetaVictims",
    {"Pods": Shape("list", "[]*v1.MetaPod", of=_META_POD), "NumPDBViolations": INT64},
)
_PREEMPTION: Final = Shape(
    "struct",
    "v1.ExtenderPreemptionResult",
    {"NodeNameToMetaVictims": Shape("map", "map[string]*v1.MetaVictims", of=_META_VICTIMS)},
)
_BINDING: Final = Shape("struct", "v1.ExtenderBindingResult", {"Error": STRING})


class FilterResult(NamedTuple):
    """`nodes` and `names` are None if absent from the response."""

    nodes: list[str] | None
    names: list[str] | None
    failed: Mapping[str, str]
    unresolvable: Mapping[str, str]
    error: str


class Victims(NamedTuple):
    """`uids`: of the pods; None for a null pod."""

    uids: list[str | None]
    violations: int


# --- requests -------------------------------------------------------------------------------------------------------


def node_args(pod: bytes, nodes: Iterable[bytes]) -> bytes:
    """ExtenderArgs with whole nodes. `pod` and `nodes` are JSON."""
    return b'{"Pod":%b,"Nodes":{"metadata":{},"items":[%b]},"NodeNames":null}' % (pod, b",".join(nodes))


def name_args(pod: bytes, names: Sequence[str]) -> bytes:
    """ExtenderArgs for an extender that caches the nodes."""
    return b'{"Pod":%b,"Nodes":null,"NodeNames":%b}' % (pod, orjson.dumps(names))


def preemption_args(pod: bytes, victims: Mapping[str, tuple[Sequence[bytes], int]]) -> bytes:
    """ExtenderPreemptionArgs with whole pods. `victims`: by node, the pods and the number of budget violations."""
    by_node = b",".join(
        b'%b:{"Pods":[%b],"NumPDBViolations":%d}' % (orjson.dumps(node), b",".join(pods), violations)
        for node, (pods, violations) in victims.items()
    )
    return b'{"Pod":%b,"NodeNameToVictims":{%b},"NodeNameToMetaVictims":null}' % (pod, by_node)


def meta_preemption_args(pod: bytes, victims: Mapping[str, tuple[Sequence[str], int]]) -> bytes:
    """As `preemption_args`, with the pods' uids only."""
    by_node = {
        node: {"Pods": [{"UID": uid} for uid in uids], "NumPDBViolations": violations}
        for node, (uids, violations) in victims.items()
    }
    return b'{"Pod":%b,"NodeNameToVictims":null,"NodeNameToMetaVictims":%b}' % (pod, orjson.dumps(by_node))


def binding_args(name: str, namespace: str, uid: str, node: str) -> bytes:
    return orjson.dumps({"PodName": name, "PodNamespace": namespace, "PodUID": uid, "Node": node})


def body_of(obj: Mapping[str, Any], *, trimmed: bool) -> bytes:
    """An object as in upstream's informers: without kind and apiVersion; pods are `trimmed` of managedFields."""
    found = {key: value for key, value in obj.items() if key not in ("kind", "apiVersion")}
    if trimmed and "managedFields" in found["metadata"]:
        found["metadata"] = {key: value for key, value in found["metadata"].items() if key != "managedFields"}
    return orjson.dumps(found)


# --- answers --------------------------------------------------------------------------------------------------------


def filter_result(text: bytes) -> FilterResult:
    """Raises: BadJson."""
    found = read(text, _FILTER) or {}
    nodes = found.get("Nodes")
    listed = None if nodes is None else [_name(node) for node in nodes["items"] or ()]
    return FilterResult(
        listed,
        found.get("NodeNames"),
        found.get("FailedNodes") or {},
        found.get("FailedAndUnresolvableNodes") or {},
        found.get("Error") or "",
    )


def _name(node: Any) -> str:
    return str((((node or {}).get("metadata")) or {}).get("name") or "")


def priorities(text: bytes) -> list[tuple[str, int]]:
    """(node, score). Raises: BadJson."""
    return [(each["Host"], each["Score"]) if each else ("", 0) for each in read(text, _PRIORITIES) or ()]


def preemption_result(text: bytes) -> dict[str, Victims | None]:
    """By node. Raises: BadJson."""
    found = (read(text, _PREEMPTION) or {}).get("NodeNameToMetaVictims") or {}
    return {node: None if victims is None else _victims(victims) for node, victims in found.items()}


def _victims(found: Mapping[str, Any]) -> Victims:
    return Victims([None if pod is None else pod["UID"] for pod in found["Pods"] or ()], found["NumPDBViolations"])


def binding_error(text: bytes) -> str:
    """Empty if it is bound. Raises: BadJson."""
    found: str = (read(text, _BINDING) or {}).get("Error") or ""
    return found

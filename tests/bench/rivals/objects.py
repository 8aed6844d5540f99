"""Nodes as Kubernetes objects, for rivals that store those; without pods, free is allocatable."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson
from rivals.contract import Node, Question, name_of, number_of

PREFIX = b"/registry/nodes/"
KUBE_PREFIX = b"/registry/minions/"
"""Upstream's key prefix of nodes."""
GPU = "nvidia.com/gpu"
READY = {"type": "Ready", "status": "True", "reason": "KubeletReady"}


def key_of(number: int, prefix: bytes = PREFIX) -> bytes:
    return prefix + name_of(number).encode()


def allocatable(node: Node) -> dict[str, str]:
    return {"cpu": f"{node.cpu_milli}m", "memory": f"{node.memory_mib}Mi", GPU: str(node.gpus), "pods": "110"}


def stored(number: int, node: Node, kind: Mapping[str, str] | None = None) -> bytes:
    """As stored: metadata first; with `kind`, as upstream's serializer requires."""
    name = name_of(number)
    labels = {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": f"zone-{number % 3}"}
    uid = f"00000000-0000-4000-8000-{number:012x}"
    metadata = {"name": name, "uid": uid, "labels": labels, "creationTimestamp": "2025-01-01T00:00:00Z"}
    amounts = allocatable(node)
    status = {"capacity": amounts, "allocatable": amounts, "conditions": [READY]}
    return orjson.dumps({**(kind or {}), "metadata": metadata, "spec": {}, "status": status})


def fits(obj: Mapping[str, Any], question: Question) -> bool:
    """For a decoded node. Both servers print amounts in shorter units than written, if possible."""
    amounts = obj["status"]["allocatable"]
    return (
        _milli(amounts["cpu"]) >= question.cpu_milli
        and _mib(amounts["memory"]) >= question.memory_mib
        and int(amounts[GPU]) >= question.gpus
    )


def number_in(obj: Mapping[str, Any]) -> int:
    return number_of(obj["metadata"]["name"])


def _milli(text: str) -> int:
    return int(text[:-1]) if text[-1] == "m" else int(text) * 1000


def _mib(text: str) -> float:
    for unit, mib in (("Ki", 1 / 1024), ("Mi", 1), ("Gi", 1024), ("Ti", 1 << 20)):
        if text.endswith(unit):
            return int(text[:-2]) * mib
    return int(text) / (1 << 20)

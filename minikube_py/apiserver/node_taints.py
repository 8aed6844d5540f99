"""TaintNodesByCondition: no pod is scheduled to a new node before a controller has seen that it is ready.

Off by default: without controllers nothing would ever remove the taint. Source: `plugin/pkg/admission/nodetaint`.
"""

from __future__ import annotations

from minikube_py.api.kinds.core import NODES
from minikube_py.apiserver.admission import TAINT_NODES, Attributes, Operation, Plugin

_NOT_READY = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}


class NodeTaints(Plugin):
    name = TAINT_NODES
    mutates = True
    only = (NODES, "")

    def has_work(self, operation: Operation) -> bool:
        return operation.verb == "CREATE"

    async def admit(self, attributes: Attributes) -> None:
        node = attributes.new
        if node is None:
            return
        spec = node.setdefault("spec", {})
        taints = spec.get("taints") or []
        if all((taint.get("key"), taint.get("effect")) != tuple(_NOT_READY.values()) for taint in taints):
            spec["taints"] = [*taints, dict(_NOT_READY)]

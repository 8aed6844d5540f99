"""PodDisruptionBudgets, as far as preemption looks at them."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final, NamedTuple

from minikube_py.api.label_selectors import NOTHING, InvalidSelector, selector_of
from minikube_py.api.selectors import LabelSelector
from minikube_py.client.rest import ResourceRef
from minikube_py.scheduler.objects import PodInfo

BUDGETS: Final = ResourceRef("policy", "v1", "poddisruptionbudgets")


class Budget(NamedTuple):
    """`allowed`: how many more of its pods may go; `disrupted`: those that are on their way, and are counted."""

    uid: str
    namespace: str
    selector: LabelSelector
    allowed: int
    disrupted: Collection[str]

    def protects(self, pod: PodInfo) -> bool:
        """An empty selector protects nothing here, as upstream's preemption has it."""
        return (
            bool(pod.labels)
            and self.namespace == pod.namespace
            and self.selector.matches(pod.labels)
            and pod.name not in self.disrupted
        )


def project_budget(obj: Any) -> Budget:
    metadata, status = obj["metadata"], obj.get("status") or {}
    namespace = metadata["namespace"]
    try:
        selector = selector_of((obj.get("spec") or {}).get("selector"))
    except InvalidSelector:
        selector = NOTHING
    if not selector:
        selector = NOTHING
    disrupted = frozenset(status.get("disruptedPods") or ())
    return Budget(metadata.get("uid", ""), namespace, selector, status.get("disruptionsAllowed") or 0, disrupted)

"""PodDisruptionBudgets, as far as preemption uses them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any, Final, NamedTuple

from minikube_py.api.label_selectors import NOTHING, InvalidSelector, selector_of
from minikube_py.api.selectors import LabelSelector
from minikube_py.client.rest import ResourceRef
from minikube_py.scheduler.objects import PodInfo

BUDGETS: Final = ResourceRef("policy", "v1", "poddisruptionbudgets")


class Budget(NamedTuple):
    """`allowed`: evictions still allowed; `disrupted`: pods already being evicted and counted."""

    uid: str
    namespace: str
    selector: LabelSelector
    allowed: int
    disrupted: Collection[str]

    def means(self, pod: PodInfo) -> bool:
        """An empty selector matches nothing, as in upstream's preemption."""
        return bool(pod.labels) and self.namespace == pod.namespace and self.selector.matches(pod.labels)


class Budgets:
    """All budgets during a search for victims. Pods with equal labels are matched once."""

    __slots__ = ("_all", "_meaning", "_taken")

    def __init__(self, budgets: Iterable[Budget]) -> None:
        self._all = tuple(budgets)
        self._meaning: dict[tuple[str, tuple[tuple[str, str], ...]], tuple[Budget, ...]] = {}
        self._taken: dict[str, int] = {}
        """By budget: evictions that are on their way."""

    def __bool__(self) -> bool:
        return bool(self._all)

    def without(self, pods: Iterable[PodInfo]) -> Budgets:
        """What is left once `pods` are evicted, too. Costs what they and those before them concern, not all budgets."""
        left = Budgets(self._all)
        left._meaning, left._taken = self._meaning, dict(self._taken)
        for pod in pods:
            for budget in self.protecting(pod):
                left._taken[budget.uid] = left._taken.get(budget.uid, 0) + 1
        return left

    def protecting(self, pod: PodInfo) -> Iterator[Budget]:
        key = pod.namespace, tuple(pod.labels.items())
        meaning = self._meaning.get(key)
        if meaning is None:
            meaning = self._meaning[key] = tuple(budget for budget in self._all if budget.means(pod))
        there = (budget for budget in meaning if pod.name not in budget.disrupted)
        if not self._taken:
            return there
        return (each._replace(allowed=each.allowed - self._taken.get(each.uid, 0)) for each in there)


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

"""The topology spread constraints of a pod: its own, or the defaults of the configuration.

Source: pkg/scheduler/framework/plugins/podtopologyspread/common.go.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from minikube_py.api.label_selectors import NOTHING, selector_of
from minikube_py.api.selectors import LabelRequirement, LabelSelector
from minikube_py.scheduler.objects import NodeInfo, PodInfo
from minikube_py.scheduler.owners import DefaultSelectors
from minikube_py.scheduler.plugins.node_affinity import compile_affinity
from minikube_py.scheduler.plugins.taint_toleration import HARD_EFFECTS, find_untolerated

if TYPE_CHECKING:
    from minikube_py.scheduler.framework import Handle

HOSTNAME: Final = "kubernetes.io/hostname"
ZONE: Final = "topology.kubernetes.io/zone"
HARD: Final = "DoNotSchedule"
SOFT: Final = "ScheduleAnyway"
SYSTEM: Final = "System"
_ACTIONS: Final = (HARD, SOFT)

SYSTEM_DEFAULTS: Final[Sequence[Mapping[str, Any]]] = (
    {"topologyKey": HOSTNAME, "whenUnsatisfiable": SOFT, "maxSkew": 3},
    {"topologyKey": ZONE, "whenUnsatisfiable": SOFT, "maxSkew": 5},
)


class Constraint(NamedTuple):
    """`honor_affinity`, `honor_taints`: nodes excluded by the pod's affinity or untolerated taints do not count."""

    max_skew: int
    key: str
    selector: LabelSelector
    min_domains: int = 1
    honor_affinity: bool = True
    honor_taints: bool = False


class Constraints:
    """`requires_keys`: whether a node without one of the keys gets no score for this pod."""

    def __init__(self, args: Mapping[str, Any], handle: Handle) -> None:
        self._of_the_system = (args.get("defaultingType") or SYSTEM) == SYSTEM
        defaults = SYSTEM_DEFAULTS if self._of_the_system else args.get("defaultConstraints") or ()
        self._defaults = {action: [d for d in defaults if d["whenUnsatisfiable"] == action] for action in _ACTIONS}
        self._selectors = DefaultSelectors(handle) if defaults else None

    def of(self, pod: PodInfo, action: str) -> tuple[Constraint, ...]:
        """Raises: InvalidSelector."""
        documents = pod.spec.spread
        if not documents:
            return self._by_default(pod, action)
        found: tuple[Constraint, ...] | None = pod.spec.cache.get(f"spread {action}")
        if found is None:
            some = [document for document in documents if document.get("whenUnsatisfiable") == action]
            found = tuple(constraint(document, pod.labels) for document in some)
            if not any(document.get("matchLabelKeys") for document in some):
                pod.spec.cache[f"spread {action}"] = found
        return found

    def _by_default(self, pod: PodInfo, action: str) -> tuple[Constraint, ...]:
        defaults = self._defaults[action]
        if not defaults or self._selectors is None:
            return ()
        selector = self._selectors.of(pod)
        if not selector:
            return ()
        return tuple(constraint(document, pod.labels)._replace(selector=selector) for document in defaults)

    def requires_keys(self, pod: PodInfo) -> bool:
        return bool(pod.spec.spread) or not self._of_the_system


def constraint(document: Mapping[str, Any], labels: Mapping[str, str]) -> Constraint:
    """Raises: InvalidSelector."""
    selector = selector_of(document.get("labelSelector"))
    keys = sorted({key for key in document.get("matchLabelKeys") or () if key in labels})
    if keys and selector is not NOTHING:
        own = tuple(LabelRequirement(key, "=", (labels[key],)) for key in keys)
        selector = LabelSelector((*own, *selector.requirements))
    minimum = document.get("minDomains")
    return Constraint(
        document["maxSkew"],
        document["topologyKey"],
        selector,
        1 if minimum is None else minimum,
        (document.get("nodeAffinityPolicy") or "Honor") == "Honor",
        (document.get("nodeTaintsPolicy") or "Ignore") == "Honor",
    )


class Counting(NamedTuple):
    """The nodes that count for a constraint. `key` identifies the test; `holds` None: all nodes with its label."""

    key: Hashable = None
    holds: Callable[[NodeInfo], bool] | None = None


def counting(pod: PodInfo, one: Constraint, keys: tuple[str, ...]) -> Counting:
    """`keys`: labels that a node must have."""
    wanted = compile_affinity(pod)
    affinity = one.honor_affinity and (bool(wanted.selector) or wanted.required is not None)
    keys = () if keys == (one.key,) else keys
    if not (keys or affinity or one.honor_taints):
        return Counting()
    selector, terms = (wanted.selector, wanted.required) if affinity else ((), None)
    tolerations = pod.spec.tolerations

    def holds(node: NodeInfo) -> bool:
        labels = node.labels
        if not all(key in labels for key in keys) or any(labels.get(key) != value for key, value in selector):
            return False
        if terms is not None and not any(term.matches(node) for term in terms):
            return False
        return not one.honor_taints or find_untolerated(node.taints, pod.spec, HARD_EFFECTS) is None

    return Counting((keys, selector, terms, tolerations if one.honor_taints else None), holds)

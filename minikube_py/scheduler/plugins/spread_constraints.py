"""The topology spread constraints of a pod: its own, or the defaults of the configuration, and the arguments for these.

Source: pkg/scheduler/framework/plugins/podtopologyspread/common.go; validation_pluginargs.go.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from minikube_py.api.errors import FieldError, duplicate, forbidden_value, invalid_value, not_supported, required
from minikube_py.api.label_selectors import NOTHING, selector_of
from minikube_py.api.meta import is_qualified_name
from minikube_py.api.selectors import LabelRequirement, LabelSelector
from minikube_py.scheduler.objects import NodeInfo, PodInfo, find_untolerated
from minikube_py.scheduler.owners import DefaultSelectors
from minikube_py.scheduler.plugins.node_affinity import compile_affinity
from minikube_py.scheduler.plugins.node_resources import ArgsError
from minikube_py.scheduler.plugins.taint_toleration import HARD_EFFECTS

if TYPE_CHECKING:
    from minikube_py.scheduler.framework import Handle

HOSTNAME: Final = "kubernetes.io/hostname"
ZONE: Final = "topology.kubernetes.io/zone"
HARD: Final = "DoNotSchedule"
SOFT: Final = "ScheduleAnyway"
SYSTEM, LIST = "System", "List"
_ACTIONS: Final = (HARD, SOFT)

SYSTEM_DEFAULTS: Final[Sequence[Mapping[str, Any]]] = (
    {"topologyKey": HOSTNAME, "whenUnsatisfiable": SOFT, "maxSkew": 3},
    {"topologyKey": ZONE, "whenUnsatisfiable": SOFT, "maxSkew": 5},
)


class Constraint(NamedTuple):
    """`honor_affinity`, `honor_taints`: nodes that the pod's affinity or its tolerations keep it off do not count."""

    max_skew: int
    key: str
    selector: LabelSelector
    min_domains: int = 1
    honor_affinity: bool = True
    honor_taints: bool = False


class Constraints:
    """`requires_keys`: of this pod, a node without one of the keys is not scored."""

    def __init__(self, args: Mapping[str, Any], handle: Handle) -> None:
        defaults, self._of_the_system = _defaults(args)
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
    """Which nodes count for a constraint. `key` tells such tests apart; `holds` None: all that have its label."""

    key: Hashable = None
    holds: Callable[[NodeInfo], bool] | None = None


def counting(pod: PodInfo, one: Constraint, keys: tuple[str, ...]) -> Counting:
    """`keys`: the labels that a node must have."""
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
        return not one.honor_taints or find_untolerated(node.taints, tolerations, HARD_EFFECTS) is None

    return Counting((keys, selector, terms, tolerations if one.honor_taints else None), holds)


# --- arguments ------------------------------------------------------------------------------------------------------


def _defaults(args: Mapping[str, Any]) -> tuple[Sequence[Mapping[str, Any]], bool]:
    """The default constraints, and whether they are the system's. Raises: ArgsError."""
    for name in args:
        if name not in ("defaultConstraints", "defaultingType"):
            raise ArgsError(f'strict decoding error: unknown field "{name}"')
    given, kind = args.get("defaultConstraints") or (), args.get("defaultingType") or SYSTEM
    errors: list[FieldError] = []
    if kind not in (SYSTEM, LIST):
        errors.append(not_supported("defaultingType", kind, (SYSTEM, LIST)))
    elif kind == SYSTEM and given:
        errors.append(invalid_value("defaultingType", kind, "when .defaultConstraints are not empty"))
    for i, one in enumerate(given):
        errors += _wrong(one, f"defaultConstraints[{i}]")
        pair = one.get("topologyKey"), one.get("whenUnsatisfiable")
        if pair in [(other.get("topologyKey"), other.get("whenUnsatisfiable")) for other in given[:i]]:
            errors.append(duplicate(f"defaultConstraints[{i}]", f"{{{pair[0] or ''}, {pair[1] or ''}}}"))
    if errors:
        texts = list(dict.fromkeys(map(str, errors)))
        raise ArgsError(texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]")
    return (SYSTEM_DEFAULTS, True) if kind == SYSTEM else (given, False)


def _wrong(one: Mapping[str, Any], at: str) -> list[FieldError]:
    found: list[FieldError] = []
    skew, key, action = one.get("maxSkew") or 0, one.get("topologyKey") or "", one.get("whenUnsatisfiable") or ""
    if skew <= 0:
        found.append(invalid_value(f"{at}.maxSkew", skew, "not in valid range (0, inf)"))
    if not key:
        found.append(required(f"{at}.topologyKey", "can not be empty"))
    else:
        found += [invalid_value(f"{at}.topologyKey", key, message) for message in is_qualified_name(key)]
    if not action:
        found.append(required(f"{at}.whenUnsatisfiable", "can not be empty"))
    elif action not in _ACTIONS:
        found.append(not_supported(f"{at}.whenUnsatisfiable", action, _ACTIONS))
    if one.get("labelSelector") is not None:
        detail = "constraint must not define a selector, as they deduced for each pod"
        found.append(forbidden_value(f"{at}.labelSelector", detail))
    return found

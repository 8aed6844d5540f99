"""Usage as data: KWOK's ResourceUsages and ClusterResourceUsages give containers' usage, as amounts or CEL.

The ResourceUsage of a pod's own name comes first, then the ClusterResourceUsages in the order of their names, and at
last the annotations (`fields.usage`). An expression is read over `pod`, `node` and `container`, with KWOK's functions
`Quantity`, `Now`, `Rand` and `SinceSecond`; `Rand` is drawn from the pod's uid and the time, so that it can be drawn
again. One that does not compile or evaluate counts as 0, as in KWOK, and is listed in `wrong`.

Source: KWOK 0.8 `pkg/kwok/server/metrics_resource_usage.go`, `pkg/utils/cel`.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, Final

from minikube_py.api.errors import Json
from minikube_py.api.meta import namespace_of, parse_timestamp
from minikube_py.cel.environment import Environment, Expression, compile
from minikube_py.cel.syntax import Call, Ident, Invalid, Node, Select
from minikube_py.cel.types import DOUBLE, DYN, TIMESTAMP
from minikube_py.cel.values import Duration, EvaluationError, Timestamp
from minikube_py.fields import quantity
from minikube_py.fields.quantity import Quantity
from minikube_py.fields.usage import NOTHING, Annotated, Usage, amount, containers_of

KIND: Final = ("kwok.x-k8s.io", "v1alpha1")
PLURAL, CLUSTER_PLURAL = "resourceusages", "clusterresourceusages"
_NANOS: Final = 10**9
_SINCE: Final = "@sinceSecond"
_RESOURCES: Final = (("cpu", quantity.NANO), ("memory", 0))


def _rewritten(node: Node) -> Node:
    """KWOK's functions as what CEL has: a function of the same meaning, variables, and a field."""
    if not isinstance(node, Call):
        return node
    given = [*([] if node.target is None else [node.target]), *node.args]
    if node.function == "Quantity" and node.target is None:
        node.function = "quantity"
    elif node.function in ("Now", "now", "Rand") and not given:
        return Ident(node.at, f"@{node.function.lower()}")
    elif node.function == "SinceSecond" and len(given) == 1:
        return Select(node.at, given[0], _SINCE)
    return node


_ENVIRONMENT: Final = Environment(
    {"pod": DYN, "node": DYN, "container": DYN, "@now": TIMESTAMP, "@rand": DOUBLE}, rewrite=_rewritten
)


@lru_cache(256)
def _compiled(expression: str) -> Expression | str:
    try:
        return compile(expression, _ENVIRONMENT)
    except Invalid as error:
        return str(error)


class DeclaredUsage:
    """A `UsageSource`. `own`: ResourceUsages by namespace and name; `node(name)`: the node, None if deleted."""

    def __init__(
        self, shared: Iterable[Json], own: Mapping[tuple[str, str], Json], node: Callable[[str], Json | None]
    ) -> None:
        self._shared = sorted(shared, key=lambda each: str(each["metadata"]["name"]))
        self._own = own
        self._node = node
        self._otherwise = Annotated()
        self.wrong: dict[str, None] = {}
        """Evaluation errors, in order."""

    def usage(self, pod: Json, at_s: float, container: str = "") -> Usage:
        total = NOTHING
        for each in containers_of(pod):
            if container in ("", each["name"]):
                total = total.plus(self._of(pod, each, at_s))
        return total

    def _of(self, pod: Json, container: Json, at_s: float) -> Usage:
        namespace, name = namespace_of(pod), pod["metadata"]["name"]
        if (own := self._own.get((namespace, name))) is not None:
            said = _said(own, container["name"])
            if said is None:
                lacking = f'container "{container["name"]}" in pod "{namespace}/{name}"'
                self.wrong[f"no resource usage found for {lacking}"] = None
                return NOTHING
        else:
            found = (_said(each, container["name"]) for each in self._shared if _selects(each, namespace, name))
            said = next((each for each in found if each is not None), None)
            if said is None:
                return self._otherwise.usage(pod, at_s, container["name"])
        return Usage(*(self._amount(said.get(each), scale, pod, container, at_s) for each, scale in _RESOURCES))

    def _amount(self, told: Json | None, scale: int, pod: Json, container: Json, at_s: float) -> int:
        if told is None:
            return 0
        if (value := told.get("value")) is not None:
            return amount(str(value), 0, scale)
        text = told.get("expression")
        if text is None:
            return 0
        program = _compiled(text)
        if isinstance(program, str):
            self.wrong[f"failed to compile expression: {program}"] = None
            return 0
        try:
            return _units(program.evaluate(self._bindings(pod, container, at_s)), scale)
        except (EvaluationError, OverflowError) as error:
            self.wrong[f"failed to evaluate metric expression: {error}"] = None
            return 0

    def _bindings(self, pod: Json, container: Json, at_s: float) -> dict[str, Any]:
        seed = f"{pod['metadata'].get('uid')}/{container['name']}/{at_s}".encode()
        spec = {**pod["spec"], "containers": [_measured(each) for each in containers_of(pod)]}
        node = self._node(spec.get("nodeName") or "") or {"metadata": {}}
        return {
            "pod": {**_dated(pod, at_s), "spec": spec},
            "node": _dated(node, at_s),
            "container": _measured(container),
            "@now": Timestamp(round(at_s * _NANOS)),
            "@rand": zlib.crc32(seed) / (1 << 32),
        }


def _selects(shared: Json, namespace: str, name: str) -> bool:
    selector = (shared.get("spec") or {}).get("selector") or {}
    spaces, names = selector.get("matchNamespaces"), selector.get("matchNames")
    return (not spaces or namespace in spaces) and (not names or name in names)


def _said(declared: Json, container: str) -> Json | None:
    """The container's usage by name, else the one for all."""
    usages = (declared.get("spec") or {}).get("usages") or ()
    found = [each for each in usages if container in (each.get("containers") or ())]
    found += [each for each in usages if not each.get("containers")][:1]
    return (found[0].get("usage") or {}) if found else None


def _dated(obj: Json, at_s: float) -> Json:
    metadata = {"annotations": {}, "labels": {}, **obj["metadata"]}
    created = metadata.get("creationTimestamp")
    if not created:
        return {**obj, "metadata": metadata}
    created_s = parse_timestamp(created)
    metadata["creationTimestamp"] = Timestamp(round(created_s * _NANOS))
    return {**obj, "metadata": metadata, _SINCE: at_s - created_s}


def _measured(container: Json) -> Json:
    """With its requests and limits as quantities."""
    resources = {
        name: {resource: quantity.from_json(value) for resource, value in (amounts or {}).items()}
        for name, amounts in (container.get("resources") or {}).items()
        if name in ("requests", "limits")
    }
    return {**container, "resources": {"requests": {}, "limits": {}, **resources}}


def _units(value: Any, scale: int) -> int:
    """What an expression gave, in units of 10**scale. Raises: EvaluationError, OverflowError."""
    if isinstance(value, Quantity):
        return max(0, value.saturated(scale))
    if isinstance(value, Duration):
        value = value.ns
    if not isinstance(value, int | float) or value != value:
        raise EvaluationError(f"cel.AsFloat64 unsupported type: {type(value).__name__}")
    factor: int = 10**-scale
    return max(0, round(value * factor))

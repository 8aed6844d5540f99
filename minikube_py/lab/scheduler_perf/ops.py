"""The operations of a workload, with upstream's fields, strictly parsed.

Source: test/integration/scheduler_perf/operations.go, update.go, dra.go.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cache
from typing import Any, ClassVar, Final, TypeVar, Union, cast

from minikube_py.api.values import BadValue, Mismatch, duration_ns
from minikube_py.errors import InvalidRequest

T = TypeVar("T")
FOREVER: Final = ("create", "recreate")
STAGES: Final = ("", "Scheduled", "Attempted")


class Duration(float):
    """Seconds; parsed from Go's duration format."""


NO_TIME: Final = Duration()


@dataclass(frozen=True, slots=True)
class Op:
    """`place`: its location in the file. A field `x_param` names the parameter for `x`."""

    place: str = ""
    opcode: str = ""

    collects: ClassVar[bool] = False

    def check(self) -> str:
        """Why it is invalid, or ""."""
        return ""


@dataclass(frozen=True, slots=True)
class NodeAllocatable:
    node_allocatable: Mapping[str, str] = field(default_factory=dict)
    csi_node_allocatable: Mapping[str, Any] = field(default_factory=dict)
    migrated_plugins: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeLabel:
    label_key: str = ""
    label_values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class UniqueLabel:
    label_key: str = ""


@dataclass(frozen=True, slots=True)
class CreateNodes(Op):
    count: int = 0
    count_param: str = ""
    node_template_path: str = ""
    node_allocatable_strategy: NodeAllocatable | None = None
    label_node_prepare_strategy: NodeLabel | None = None
    unique_node_label_strategy: UniqueLabel | None = None

    def check(self) -> str:
        return "labelValues must be set" if (own := self.label_node_prepare_strategy) and not own.label_values else ""


@dataclass(frozen=True, slots=True)
class CreateNamespaces(Op):
    prefix: str = ""
    count: int = 0
    count_param: str = ""
    namespace_template_path: str = ""


@dataclass(frozen=True, slots=True)
class CreatePods(Op):
    count: int = 0
    count_param: str = ""
    steady_state: bool = False
    steady_state_param: str = ""
    duration: Duration = NO_TIME
    duration_param: str = ""
    collect_metrics: bool = False
    namespace: str | None = None
    pod_template_path: str = ""
    skip_wait_to_completion: bool = False
    persistent_volume_template_path: str = ""
    persistent_volume_claim_template_path: str = ""

    def check(self) -> str:
        if self.collect_metrics and self.skip_wait_to_completion:
            return "collectMetrics and skipWaitToCompletion cannot be true at the same time"
        if self.skip_wait_to_completion and self.steady_state:
            return "skipWaitToCompletion and steadyState cannot be true at the same time"
        if self.steady_state and not self.duration_param and self.duration <= 0:
            return "when creating pods in a steady state, the test duration must be > 0"
        if bool(self.persistent_volume_template_path) != bool(self.persistent_volume_claim_template_path):
            return "persistentVolumeTemplatePath and persistentVolumeClaimTemplatePath go together"
        return ""


@dataclass(frozen=True, slots=True)
class CreatePodSets(Op):
    count: int = 0
    count_param: str = ""
    namespace_prefix: str = ""
    create_pods_op: CreatePods = CreatePods()


@dataclass(frozen=True, slots=True)
class CreateAny(Op):
    namespace: str = ""
    template_path: str = ""
    count: int = 1
    count_param: str = ""

    def check(self) -> str:
        return "" if self.template_path else "TemplatePath must be set"


@dataclass(frozen=True, slots=True)
class UpdateAny(Op):
    namespace: str = ""
    template_path: str = ""
    count: int = 1
    count_param: str = ""
    update_per_second: int = 0
    subresources: tuple[str, ...] = ()

    def check(self) -> str:
        if not self.template_path:
            return "TemplatePath must be set"
        if self.update_per_second < 0:
            return f"invalid UpdatePerSecond={self.update_per_second}; should be non-negative"
        return "at most one subresource can be updated at once" if len(self.subresources) > 1 else ""


@dataclass(frozen=True, slots=True)
class DeletePods(Op):
    namespace: str = ""
    label_selector: Mapping[str, str] = field(default_factory=dict)
    skip_wait_to_completion: bool = False
    delete_pods_per_second: int = 0

    def check(self) -> str:
        rate = self.delete_pods_per_second
        return f"invalid DeletePodsPerSecond={rate}; should be non-negative" if rate < 0 else ""


@dataclass(frozen=True, slots=True)
class Churn(Op):
    mode: str = ""
    number: int = 0
    interval_milliseconds: int = 0
    namespace: str | None = None
    template_paths: tuple[str, ...] = ()

    def check(self) -> str:
        if self.mode not in FOREVER:
            return f"invalid mode: {self.mode}. must be one of {list(FOREVER)}"
        if self.number < 0:
            return f"number ({self.number}) cannot be negative"
        if self.mode == "recreate" and not self.number:
            return "number cannot be 0 when mode is recreate"
        return "" if self.template_paths else "at least one template spec file needs to be specified"


@dataclass(frozen=True, slots=True)
class Barrier(Op):
    namespaces: tuple[str, ...] = ()
    label_selector: Mapping[str, str] = field(default_factory=dict)
    stage_requirement: str = ""

    def check(self) -> str:
        known = self.stage_requirement in STAGES
        return "" if known else f"invalid StageRequirement {self.stage_requirement}"


@dataclass(frozen=True, slots=True)
class Sleep(Op):
    duration: Duration = NO_TIME
    duration_param: str = ""


@dataclass(frozen=True, slots=True)
class StartCollectingMetrics(Op):
    name: str = ""
    namespaces: tuple[str, ...] = ()
    label_selector: Mapping[str, str] = field(default_factory=dict)

    def check(self) -> str:
        return "" if self.namespaces else "namespaces cannot be empty"


@dataclass(frozen=True, slots=True)
class StopCollectingMetrics(Op):
    pass


@dataclass(frozen=True, slots=True)
class CreateResourceClaims(Op):
    count: int = 0
    count_param: str = ""
    namespace: str = ""
    template_path: str = ""

    def check(self) -> str:
        if not self.namespace:
            return "Namespace must be set"
        return "" if self.template_path else "TemplatePath must be set"


@dataclass(frozen=True, slots=True)
class CreateResourceDriver(Op):
    driver_name: str = ""
    max_claims_per_node: int = 0
    max_claims_per_node_param: str = ""
    nodes: str = ""

    def check(self) -> str:
        if not self.driver_name:
            return "DriverName must be set"
        return "" if self.nodes else "Nodes must be set"


@dataclass(frozen=True, slots=True)
class AllocResourceClaims(Op):
    namespace: str = ""


OPS: Final[Mapping[str, type[Op]]] = {
    name[0].lower() + name[1:]: kind
    for kind in (
        AllocResourceClaims, CreateAny, CreateNodes, CreateNamespaces, CreatePods, CreatePodSets, DeletePods,
        CreateResourceClaims, CreateResourceDriver, Churn, UpdateAny, Barrier, Sleep, StartCollectingMetrics,
        StopCollectingMetrics,
    )
    for name in (kind.__name__,)
}  # fmt: skip
"""By opcode."""


def read_op(document: Any, place: str) -> Op:
    """Raises: InvalidRequest, with the place."""
    if not isinstance(document, dict):
        raise InvalidRequest(f"{place}: an operation is a mapping, not {_named(document)}")
    given = {key.lower(): value for key, value in document.items()}
    kind = OPS.get(str(given.get("opcode")))
    if kind is None:
        raise InvalidRequest(f"{place}: unknown opcode {given.get('opcode')!r}; known opcodes: {', '.join(OPS)}")
    return checked(read_fields(kind, document, place))


def checked(op: Op) -> Op:
    """Raises: InvalidRequest."""
    why = op.check()
    for name in ("count", "max_claims_per_node"):
        number, param = getattr(op, name, 0), getattr(op, name + "_param", "")
        if (param and not param.startswith("$")) or (not param and number < 0):
            why = f"invalid {name} {number} / parameter {param!r}"
    if why:
        raise InvalidRequest(f"{op.place}: {why}")
    if isinstance(op, CreatePodSets):
        checked(op.create_pods_op)
    return op


def patched(op: Op, param: Callable[[str, type], Any]) -> Op:
    """`op` with its parameters substituted; `param(name, kind)` provides them. Raises: InvalidRequest."""
    found: dict[str, Any] = {}
    hints = _hints(cast(Hashable, type(op)))
    for each in fields(op):
        named = getattr(op, each.name) if each.name.endswith("_param") else ""
        if named:
            target = each.name.removesuffix("_param")
            found |= {target: param(named[1:], hints[target]), each.name: ""}
    return checked(replace(op, **found)) if found else op


# --- reading fields ---------------------------------------------------------------------------------------------------


@cache
def _hints(kind: Hashable) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def read_fields(kind: type[T], document: Any, place: str) -> T:
    """A dataclass from a mapping; names are case-insensitive, as in Go. Raises: InvalidRequest."""
    if not isinstance(document, dict):
        raise InvalidRequest(f"{place}: this is a mapping, not {_named(document)}")
    hints = _hints(cast(Hashable, kind))
    names = {name.replace("_", ""): name for name in hints if name != "place"}
    values: dict[str, Any] = {"place": place} if "place" in hints else {}
    for key, value in document.items():
        name = names.get(key.lower())
        if name is None:
            raise InvalidRequest(f"{place}: unknown field {key!r}")
        if value is not None:
            values[name] = convert(hints[name], value, f"{place}.{key}")
    return kind(**values)


def _named(value: Any) -> str:
    return {type(None): "null", dict: "a mapping", list: "a list"}.get(type(value), repr(value))


def duration(text: Any, place: str) -> Duration:
    """Raises: InvalidRequest."""
    try:
        return Duration(duration_ns(text) / 1e9)
    except (BadValue, Mismatch):
        raise InvalidRequest(f"{place}: {text!r} is not a duration; write 10s, 1m30s or 500ms") from None


def convert(hint: Any, value: Any, place: str) -> Any:
    """`value` as the type of a field. Raises: InvalidRequest."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return value
    if origin in (Union, types.UnionType):
        return convert(arguments[0], value, place)
    if hint is Duration:
        return duration(value, place)
    if hint is Op:
        return read_op(value, place)
    if is_dataclass(hint):
        return read_fields(cast("type[Any]", hint), value, place)
    if origin is tuple and isinstance(value, list):
        return tuple(convert(arguments[0], each, f"{place}[{at}]") for at, each in enumerate(value))
    if origin is not None and origin is not tuple and isinstance(value, dict):
        return {key: convert(arguments[1], each, f"{place}.{key}") for key, each in value.items()}
    if hint is float and type(value) is int:
        return float(value)
    if origin is None and type(value) is hint:
        return value
    kinds = {int: "a whole number", str: "a text", bool: "true or false", float: "a number"}
    wanted = kinds.get(hint) or ("a list" if origin is tuple else "a mapping")
    raise InvalidRequest(f"{place}: this is {wanted}, not {_named(value)}")

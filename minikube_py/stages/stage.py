"""A Stage: its selector, weight, delay and steps. Pure.

Source: KWOK 0.8 `pkg/utils/lifecycle`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

import orjson

from minikube_py.env import Rng
from minikube_py.stages.errors import StageFailed
from minikube_py.stages.expressions import NOWHERE, Condition, Json, Source, seconds, whole
from minikube_py.stages.template import Door, Template

JSON_PATCH, MERGE, STRATEGIC, APPLY = (
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
)
TYPES: Final[Mapping[str, str]] = {"json": JSON_PATCH, "merge": MERGE, "strategic": STRATEGIC, "apply": APPLY}


class Ref(NamedTuple):
    """A stage's resource: `apiGroup`, which is an apiVersion, and `kind`."""

    api_version: str
    kind: str

    def __str__(self) -> str:
        return f"{self.kind} of {self.api_version}"


POD, NODE = Ref("v1", "Pod"), Ref("v1", "Node")


class Emit(NamedTuple):
    """An event about the object."""

    type: str
    reason: str
    message: str


class Delete(NamedTuple):
    """Of the object, without a grace."""


class Send(NamedTuple):
    """A patch, or an object to apply."""

    verb: Literal["patch", "apply"]
    body: bytes
    content_type: str
    subresource: str


Action = Emit | Delete | Send


@dataclass(frozen=True, slots=True)
class Event:
    type: str
    reason: str
    message: str

    def actions(self, obj: Json, doors: Mapping[str, Door]) -> list[Action]:
        return [Emit(self.type, self.reason, self.message)]


@dataclass(frozen=True, slots=True)
class Finalizers:
    add: tuple[str, ...]
    remove: tuple[str, ...]
    empty: bool

    def actions(self, obj: Json, doors: Mapping[str, Door]) -> list[Action]:
        operations = self._operations(obj["metadata"].get("finalizers") or [])
        return [Send("patch", orjson.dumps(operations), JSON_PATCH, "")] if operations else []

    def _operations(self, held: list[str]) -> list[Json]:
        path = "/metadata/finalizers"
        found: list[Json] = []
        empty = self.empty
        if not empty and self.remove:
            gone = [at for at in range(len(held) - 1, -1, -1) if held[at] in self.remove]
            empty = len(gone) == len(held)
            if not empty:
                found = [{"op": "remove", "path": f"{path}/{at}"} for at in gone]
        if empty:
            found = [{"op": "remove", "path": path}] if held else []
            held = []
        if self.add and held:
            found += [{"op": "add", "path": f"{path}/-", "value": each} for each in self.add if each not in held]
        elif self.add:
            found.append({"op": "add", "path": path, "value": list(self.add)})
        return found


@dataclass(frozen=True, slots=True)
class Removal:
    def actions(self, obj: Json, doors: Mapping[str, Door]) -> list[Action]:
        return [Delete()]


@dataclass(frozen=True, slots=True)
class Patch:
    template: Template
    root: str
    content_type: str
    subresource: str

    def actions(self, obj: Json, doors: Mapping[str, Door]) -> list[Action]:
        value = self.template.value(obj, doors)
        if self.root:
            value = self._rooted(value)
        return [Send("patch", orjson.dumps(value), self.content_type, self.subresource)]

    def _rooted(self, value: Any) -> Any:
        if self.content_type != JSON_PATCH:
            return {self.root: value}
        if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
            raise StageFailed("a JSON patch is a list of operations")
        known = ("op", "path", "value", "from")
        return [
            {**{key: each[key] for key in known if key in each}, "path": f"/{self.root}{each.get('path', '')}"}
            for each in value
        ]


@dataclass(frozen=True, slots=True)
class Apply:
    template: Template
    content_type: str
    subresource: str

    def actions(self, obj: Json, doors: Mapping[str, Door]) -> list[Action]:
        value = self.template.value(obj, doors)
        return [Send("apply", orjson.dumps(value), self.content_type, self.subresource)]


Step = Event | Finalizers | Removal | Patch | Apply


@dataclass(frozen=True, slots=True)
class Stage:
    """`conditions` None: it matches no object. `delay_s` None: at once."""

    name: str
    ref: Ref
    where: str
    """FILE:LINE"""
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    conditions: tuple[Condition, ...] | None
    weight: int
    weight_from: Source
    delay_s: float | None
    delay_from: Source
    jitter_s: float | None
    jitter_from: Source
    steps: tuple[Step, ...]
    immediate: bool

    def matches(self, obj: Json) -> bool:
        """Raises: StageFailed."""
        if self.conditions is None:
            return False
        metadata = obj["metadata"]
        return (
            _has_all(metadata.get("labels"), self.labels)
            and _has_all(metadata.get("annotations"), self.annotations)
            and all(condition.holds(obj) for condition in self.conditions)
        )

    def weight_of(self, obj: Json) -> int | None:
        return whole(self.weight_from, self.weight, obj)

    def delay_range_s(self, obj: Json, now_s: float) -> tuple[float, float]:
        """Minimum and maximum; equal without jitter. Raises: StageFailed."""
        if self.delay_s is None:
            return 0.0, 0.0
        least = seconds(self.delay_from, self.delay_s, obj, now_s)
        if least is None:
            return 0.0, 0.0
        if self.jitter_s is None and self.jitter_from is NOWHERE:
            return least, least
        most = seconds(self.jitter_from, self.jitter_s, obj, now_s)
        if most is None:
            return least, least
        return (most, most) if most <= least else (least, most)

    def drawn_delay_s(self, obj: Json, now_s: float, rng: Rng) -> float:
        least, most = self.delay_range_s(obj, now_s)
        return least if least == most else rng.uniform(least, most)


def _has_all(held: Mapping[str, str] | None, wanted: Mapping[str, str]) -> bool:
    return not wanted or all((held or {}).get(key) == value for key, value in wanted.items())


def possible(stages: Sequence[Stage], obj: Json) -> list[tuple[Stage, int]]:
    """The matching stages with their weights, 1 if all are equal. Raises: StageFailed."""
    found = [stage for stage in stages if stage.matches(obj)]
    if len(found) < 2:
        return [(stage, 1) for stage in found]
    weights = [(stage, stage.weight_of(obj)) for stage in found]
    heavy = [(stage, weight) for stage, weight in weights if weight is not None and weight > 0]
    # As in KWOK, a negative weight reduces the sum.
    if sum(weight for _, weight in weights if weight is not None):
        return heavy or [(found[-1], 1)]
    told = [(stage, 1) for stage, weight in weights if weight is not None and weight >= 0]
    return told or [(stage, 1) for stage in found]


def chosen(stages: Sequence[Stage], obj: Json, rng: Rng) -> Stage | None:
    """The next stage, by weight. Raises: StageFailed."""
    candidates = possible(stages, obj)
    if len(candidates) < 2:
        return candidates[0][0] if candidates else None
    left = rng.randrange(sum(weight for _, weight in candidates))
    for stage, weight in candidates:
        left -= weight
        if left < 0:
            return stage
    return candidates[-1][0]

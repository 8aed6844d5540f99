"""Declarations of fields and sums: which values of an object can be queried, and how they are read from its bytes.

A declaration is a replicated command, so that all members hold the same. It names pure, versioned extractors
(`"path@1"`, `"resources@1"`, `"pod_requests@1"`) and their arguments. An unreadable value is a missing field, never an
error."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["quantity", "int", "string", "time"]
"""`quantity`: a Kubernetes quantity as int64 (milli-units for cpu, whole units otherwise, both rounded up).
`int`: an int64. `string`: text, ordered by code point. `time`: RFC 3339 as int64 microseconds since 1970."""


@dataclass(frozen=True, slots=True)
class FieldSpec:
    """One field, or with a name ending in `.*` a family of them with one member per resource name.

    `extractor` reads it from the object. With `minus`, the sum of that name is subtracted: `free.*` = `allocatable`
    minus the sum `requested.*`. A field whose own part is unreadable is missing, whatever the sum."""

    name: str
    kind: Kind
    extractor: str
    args: Mapping[str, str] = field(default_factory=dict)
    minus: str | None = None


@dataclass(frozen=True, slots=True)
class SumSpec:
    """A sum over referring objects, kept by reference: objects under `source_prefix` whose field `reference`
    (a path) names the object with the key `target_prefix + reference value`. Referrers may precede their target."""

    name: str
    source_prefix: bytes
    reference: str
    extractor: str
    args: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FieldSet:
    """Fields that selectors can compare on the objects under `prefix`. Declaring the same `name` again replaces it."""

    name: str
    prefix: bytes
    fields: tuple[FieldSpec, ...]
    sums: tuple[SumSpec, ...] = ()

    def find(self, name: str) -> FieldSpec | None:
        """The spec that declares `name`, including a family's members (`free.cpu` by `free.*`), or None."""
        for spec in self.fields:
            if spec.name == name:
                return spec
            if spec.name.endswith("*") and len(name) >= len(spec.name) and name.startswith(spec.name[:-1]):
                return spec
        return None

    def depends_on_others(self, name: str) -> bool:
        """True where the value of `name` can change without a write to the object itself."""
        spec = self.find(name)
        return spec is not None and (spec.minus is not None or spec.extractor.startswith("sum@"))

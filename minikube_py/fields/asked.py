"""The meaning of requested fields: their declarations by name."""

from __future__ import annotations

from collections.abc import Iterable

from minikube_py.fields.extract import SUMS
from minikube_py.fields.spec import FieldSet, FieldSpec, SumSpec

Asked = tuple[tuple[str, tuple[FieldSpec, SumSpec | None] | None], ...]
"""Fields with their declarations: the spec of each, and of the sum it uses; None if undeclared."""


def asked_of(field_set: FieldSet, fields: Iterable[str]) -> Asked:
    found: list[tuple[str, tuple[FieldSpec, SumSpec | None] | None]] = []
    for name in fields:
        spec = field_set.find(name)
        if spec is None:
            found.append((name, None))
            continue
        used = spec.args["sum"] if spec.extractor in SUMS else spec.minus
        found.append((name, (spec, next((total for total in field_set.sums if total.name == used), None))))
    return tuple(found)


def parts_of(asked: Asked) -> list[FieldSpec | SumSpec]:
    """Everything that has to be declared for it."""
    return [part for _, meaning in asked if meaning is not None for part in meaning if part is not None]

"""What expressions make by the names of types: the parts of an object, and operations on one.

Source: cel-go `interpreter/interpretable.go`; apiserver `pkg/cel/mutation`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from minikube_py.cel.values import EvaluationError, OwnEquality, equal, put_optional

if TYPE_CHECKING:
    from minikube_py.cel.evaluation import Run, Step

PATCH: Final = "JSONPatch"
COST: Final = 40


class Message(OwnEquality):
    __slots__ = ("fields", "of")

    def __init__(self, name: str, fields: dict[str, Any]) -> None:
        self.of = name
        self.fields = fields

    def equals(self, other: object) -> bool:
        return isinstance(other, Message) and self.of == other.of and equal(self.fields, other.fields)


def made(name: str, steps: Sequence[tuple[str, Step, bool]]) -> Callable[[Run], Any]:
    """`steps`: of each field its name, its value, and whether that is optional."""

    def message(run: Run) -> Any:
        fields: dict[str, Any] = {}
        for field, step, optional in steps:
            value = step(run)
            if type(value) is EvaluationError:
                return value
            if not optional:
                fields[field] = value
            elif (wrong := put_optional(fields, field, field, value)) is not None:
                return wrong
        run.charge(COST)
        return Message(name, fields)

    return message

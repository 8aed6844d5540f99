"""Validates a cost model's results before a solver sees them: integers within range, or one clear error."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import numpy as np

from minikube_py.own_code import raised, told
from minikube_py.scheduler.flow.model import Arc, CostModel, Machine, Machines, ModelError, Task
from minikube_py.scheduler.flow.problem import AMOUNT_MAX, COST_MAX
from minikube_py.scheduler.framework import IntArray

logger = logging.getLogger(__name__)
T = TypeVar("T")
_WIDE: Final = {"i": np.int64, "u": np.uint64, "f": np.float64}


def shown(value: object) -> str:
    try:
        return repr(value)[:200]
    except raised():
        return f"a {type(value).__name__}"


def forget(model: CostModel, tasks: Iterable[Task]) -> None:
    """The tasks leave the round."""
    for task in tasks:
        try:
            model.remove_task(task)
        except raised():
            # The model's own cleanup failed, but the pods are placed.
            logger.exception("remove_task of cost model %s", model.name)


class Asking:
    """Queries a model about one class of pods. `where`: the class's name; every error names it, the arc and a pod."""

    def __init__(self, model: str, where: str = "all", task: Task | None = None) -> None:
        self._model = model
        self._where = where
        self._task = task

    def fail(self, arc: str, text: str, kind: type[ModelError] = ModelError) -> ModelError:
        pod = "(none)" if self._task is None else self._task.name
        return kind(f"cost model {self._model}: class {self._where}, arc {arc}, pod {pod}: {text}")

    def ask(self, arc: str, question: Callable[..., T], *given: Any) -> T:
        """Raises: ModelError."""
        with self.guarded(arc):
            return question(*given)

    def tell(self, model: CostModel, machine: Machine, new: bool = True) -> None:
        """Of a machine that has come, or changed. Raises: ModelError."""
        with self.guarded(f"machine {machine.name}"):
            if new:
                model.add_machine(machine)
            model.gather_stats(machine)

    @contextmanager
    def guarded(self, arc: str) -> Iterator[None]:
        """Also for what is done with results: hashing, comparing and converting them runs the model's code. Raises:
        ModelError."""
        try:
            yield
        except ModelError:
            raise
        except raised() as error:
            raise self.fail(arc, told(error)) from error

    def classes(self, arc: str, question: Callable[..., Any], *given: Any) -> list[Hashable]:
        """Raises: ModelError."""
        found = self.ask(arc, question, *given)
        if isinstance(found, str) or not isinstance(found, Iterable):
            raise self.fail(arc, f"returned {shown(found)}; a sequence of equivalence classes is expected")
        classes = self.ask(arc, list[Hashable], found)
        for each in classes:
            try:
                dict.fromkeys([each])
            except raised():
                raise self.fail(arc, f"the equivalence class {shown(each)} is not hashable") from None
        return classes

    def arc(self, arc: str, question: Callable[..., Arc], *given: Any) -> Arc:
        """Raises: ModelError."""
        found = self.ask(arc, question, *given)
        try:
            cost, capacity, min_flow = found
        except raised():
            raise self.fail(arc, f"returned {shown(found)}; Arc(cost, capacity, min_flow) is expected") from None
        with self.guarded(arc):
            return Arc(
                self._number(arc, "cost", cost, -COST_MAX, COST_MAX),
                self._number(arc, "capacity", capacity, 0, AMOUNT_MAX),
                self._number(arc, "min_flow", min_flow, 0, AMOUNT_MAX),
            )

    def _number(self, arc: str, what: str, value: Any, low: int, high: int) -> int:
        if type(value) is int and low <= value <= high:
            return value
        return int(self._numbers(lambda _: arc, what, np.array([value], getattr(value, "dtype", None)), low, high)[0])

    def arcs(self, machines: Machines, name: str, question: Callable[..., Any], *given: Any) -> tuple[IntArray, ...]:
        """Costs and capacities of the arcs to `machines`. Raises: ModelError."""
        found = self.ask(f"{name} -> machines", question, *given)

        def named(position: int) -> str:
            return f"{name} -> {machines[position].name}"

        try:
            cost, capacity = (np.broadcast_to(np.asarray(part), len(machines)) for part in found)
        except raised():
            text = (
                f"returned {type(found).__name__}; Arcs(cost, capacity) is wanted, each one number or {len(machines)}"
            )
            raise self.fail(f"{name} -> machines", text) from None
        return (
            self._numbers(named, "cost", cost, -COST_MAX, COST_MAX),
            self._numbers(named, "capacity", capacity, 0, AMOUNT_MAX),
        )

    def _numbers(self, named: Callable[[int], str], what: str, values: Any, low: int, high: int) -> IntArray:
        if values.dtype.kind not in "iuf" and len(values):
            raise self.fail(named(0), f"{what} is {shown(values.tolist()[0])}; a whole number is expected")
        # The bounds overflow a narrow type.
        values = values.astype(_WIDE.get(values.dtype.kind, values.dtype))
        with np.errstate(invalid="ignore"):
            wrong = ~((values >= low) & (values <= high))
            if values.dtype.kind == "f":
                wrong |= values != np.floor(values)
        if wrong.any():
            at = int(np.flatnonzero(wrong)[0])
            text = f"{what} is {shown(values.tolist()[at])}; a whole number from {low} to {high} is expected"
            raise self.fail(named(at), text)
        found: IntArray = values.astype(np.int64)
        return found

    def positions(self, arc: str, count: int, question: Callable[..., Any], *given: Any) -> IntArray | None:
        """Raises: ModelError."""
        found = self.ask(arc, question, *given)
        if found is None:
            return None
        positions = self.ask(arc, np.asarray, found)
        if positions.size == 0:
            return np.zeros(0, np.int64)
        if positions.dtype.kind not in "iu" or positions.min() < 0 or positions.max() >= count:
            raise self.fail(arc, f"returned {shown(found)}; positions within the {count} machines are expected")
        return np.unique(positions.astype(np.int64))

"""The kit tells a right structure from a wrong one, and shows the least that is wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from minikube_py.errors import InvalidRequest
from minikube_py.index.columns import ColumnIndex
from minikube_py.index.structure import HIGH, LOW, MISSING, Box, Found, IntArray, Point, Structure
from minikube_py.lab.conformance import history_text, program, work
from minikube_py.lab.conformance.hosting import Hosting
from minikube_py.lab.conformance.laws import find_counter_example, find_counter_history
from minikube_py.lab.conformance.program import Broken, Find, Load, Program, Remove, run, shrink


class Right:
    """Right, Versioned and Loading: what each of the wrong ones below is but for one thing."""

    structure = "right"

    def __init__(self, dimensions: int) -> None:
        self.points: dict[int, Point] = {}

    def put(self, slot: int, point: Point) -> None:
        self.points[slot] = point

    def remove(self, slot: int) -> None:
        self.points.pop(slot, None)

    def load(self, slots: IntArray, points: IntArray) -> None:
        self.points = {slot: tuple(point) for slot, point in zip(slots.tolist(), points.tolist())}

    def find(self, box: Box, limit: int = 0) -> Found:
        return self.find_frozen(self.points, box, limit)

    def may_match(self, box: Box) -> bool:
        return len(self.find(box, 1).slots) > 0

    def size_bytes(self) -> int:
        return 200 * len(self.points)

    def freeze(self) -> Any:
        return dict(self.points)

    def find_frozen(self, frozen: Any, box: Box, limit: int = 0) -> Found:
        slots = [slot for slot, point in frozen.items() if box.holds(point)]
        shown = slots[:limit] if limit else slots
        return Found(np.array(shown, dtype=np.int64), len(shown) == len(slots), len(frozen))


class ForgetsTheSecondPage(Right):
    """Rows beyond the 256th of a block are not looked at."""

    def find(self, box: Box, limit: int = 0) -> Found:
        return self.find_frozen(dict(list(self.points.items())[:256]), box, limit)


class MissingIsLow(Right):
    def put(self, slot: int, point: Point) -> None:
        self.points[slot] = tuple(max(LOW, value) for value in point)


class AlwaysComplete(Right):
    def find(self, box: Box, limit: int = 0) -> Found:
        return super().find(box, limit)._replace(complete=True)


class CountsBackwards(Right):
    def find(self, box: Box, limit: int = 0) -> Found:
        return super().find(box, limit)._replace(examined=-1)


class SaysNo(Right):
    def may_match(self, box: Box) -> bool:
        return box.lows[0] <= max((point[0] for point in self.points.values()), default=LOW) - 1


class ForgetsWhenAsked(Right):
    """A kept answer of which what has been found is taken out."""

    def find(self, box: Box, limit: int = 0) -> Found:
        found = super().find(box, limit)
        for slot in found.slots.tolist()[1:]:
            del self.points[slot]
        return found


class SharesItsState(Right):
    def freeze(self) -> Any:
        return self.points


class SharesItsAnswer(Right):
    def find(self, box: Box, limit: int = 0) -> Found:
        found = super().find(box, limit)
        self.given = getattr(self, "given", np.zeros(5000, dtype=np.int64))
        self.given[: len(found.slots)] = found.slots
        return found._replace(slots=self.given[: len(found.slots)])


class StopsAtTheLimitTooSoon(Right):
    def find(self, box: Box, limit: int = 0) -> Found:
        return super().find(box, limit and min(limit, 2))


class RemovesTwice(Right):
    def remove(self, slot: int) -> None:
        del self.points[slot]


class KeepsTheArray(Right):
    """What was loaded is read from the caller's array."""

    def load(self, slots: IntArray, points: IntArray) -> None:
        super().load(slots, points)
        self.array = points

    def find(self, box: Box, limit: int = 0) -> Found:
        if hasattr(self, "array"):
            self.points = {slot: tuple(row) for slot, row in zip(self.points, self.array.tolist())}
        return super().find(box, limit)


FOUND, IN_BOX = "slots in the box are found", "found slots lie in the box"
MAY = "may_match is false only if nothing lies in the box"
AGAIN = "find has no side effects: on the second call, "
WRONG = {
    ForgetsTheSecondPage: (FOUND,),
    MissingIsLow: (IN_BOX,),
    AlwaysComplete: ("complete says whether these are all",),
    CountsBackwards: ("the counts of a Found are numbers",),
    SaysNo: (MAY,),
    ForgetsWhenAsked: (FOUND, AGAIN + FOUND),
    SharesItsState: (FOUND, IN_BOX),
    SharesItsAnswer: ("a given answer does not change",),
    StopsAtTheLimitTooSoon: (FOUND,),
    RemovesTwice: ("remove accepts what the contract allows",),
    KeepsTheArray: (FOUND, IN_BOX, MAY),
}
"""Which laws each may be seen to break, whichever comes first."""


def found_in(kind: type[Structure], examples: int = 300, least: bool = False) -> tuple[Program, Broken] | None:
    return find_counter_example(kind, examples, 0, least)


def test_nothing_is_wrong_with_what_is_right() -> None:
    assert found_in(Right, 40) is None
    assert find_counter_history(Hosting(Right), 10, 0, 4) is None


@pytest.mark.parametrize("kind", WRONG, ids=lambda kind: kind.__name__)
def test_what_is_wrong_is_found(kind: type[Structure]) -> None:
    found = found_in(kind)
    assert found is not None
    with pytest.raises(Broken) as again:
        run(kind, found[0])
    assert again.value.law == found[1].law in WRONG[kind]


def test_few_steps_are_left_of_what_is_found() -> None:
    found = found_in(CountsBackwards, least=True)
    assert found is not None
    assert len(found[0].steps) <= 2, program.listing(*found)


def test_a_counter_example_reads_as_a_program() -> None:
    many = Program(
        1, (Load(tuple((slot, (slot % 7,)) for slot in range(300))), Remove(9), Find(Box((MISSING,), (HIGH,)), 0))
    )
    with pytest.raises(Broken) as broken:
        run(ForgetsTheSecondPage, many)
    least, shown = shrink(ForgetsTheSecondPage, many, broken.value)
    assert program.listing(least, shown, "Mine").splitlines() == [
        "index = Mine(1)",
        "for slot in range(43, 300):",
        "    index.put(slot, (0,))",
        "index.find(Box((MISSING,), (HIGH,)), limit=0)",
        "# slots in the box are found:",
        "#   256 of all 257: without slots [299]",
    ]


def test_a_structure_may_refuse_dimensions_but_not_all() -> None:
    class OneField(Right):
        def __init__(self, dimensions: int) -> None:
            if dimensions > 1:
                raise InvalidRequest("one field only")
            super().__init__(dimensions)

    class NoField(Right):
        def __init__(self, dimensions: int) -> None:
            raise InvalidRequest("no field at all")

    assert found_in(OneField, 20) is None
    found = found_in(NoField, 20)
    assert found is not None and "no field at all" in found[1].wanted


class Unfinished:
    def __init__(self, dimensions: int) -> None: ...

    def find(self, box: Box, limit: int = 0) -> Any: ...


def test_methods_that_are_missing_are_named() -> None:
    found = found_in(Unfinished, 5)  # type: ignore[arg-type]
    assert found is not None and found[1].wanted == "without put, remove, may_match, size_bytes"


def test_a_structure_that_draws_lots_is_told_from_a_wrong_one() -> None:
    class Fickle(Right):
        asked = 0

        def find(self, box: Box, limit: int = 0) -> Found:
            Fickle.asked += 1
            found = super().find(box, limit)
            return found._replace(slots=found.slots[1:]) if Fickle.asked == 100 and len(found.slots) else found

    found = found_in(Fickle, 40)
    assert found is None or found[1].law == "equal programs have equal answers"
    assert Fickle.asked > 100


class Scan(Right):
    """Every row is looked at, and no more owned up to than was found."""

    def find(self, box: Box, limit: int = 0) -> Found:
        found = super().find(box, limit)
        return found._replace(examined=len(found.slots))


class NumpyScan:
    structure = "numpy scan"
    converted = False

    def __init__(self, dimensions: int) -> None:
        self.columns = np.full((dimensions, 1 << 17), MISSING)

    def put(self, slot: int, point: Point) -> None:
        self.columns[:, slot] = point

    def load(self, slots: IntArray, points: IntArray) -> None:
        self.columns[:, slots] = points.T

    def remove(self, slot: int) -> None:
        self.columns[:, slot] = MISSING

    def find(self, box: Box, limit: int = 0) -> Found:
        mask = np.ones(self.columns.shape[1], dtype=np.bool_)
        for column, low in zip(self.columns, np.array(box.lows) if self.converted else box.lows):
            mask &= column >= low
        slots = np.flatnonzero(mask)
        shown = slots[:limit] if limit else slots
        return Found(shown, len(shown) == len(slots), len(shown))

    def may_match(self, box: Box) -> bool:
        return True

    def size_bytes(self) -> int:
        return self.columns.nbytes


@pytest.mark.parametrize("kind", [Scan, NumpyScan], ids=lambda kind: kind.__name__)
def test_a_scan_does_not_pass_for_an_index(kind: type[Structure]) -> None:
    assert work.check_counted(Right, 3)
    with pytest.raises(Broken, match="numbers compared"):
        work.check_counted(kind, 3)


def test_a_scan_of_numbers_that_do_not_count_is_betrayed_by_its_time() -> None:
    class Converted(NumpyScan):
        converted = True

        def __init__(self, dimensions: int) -> None:
            self.columns = np.full((dimensions, 0), MISSING)

        def load(self, slots: IntArray, points: IntArray) -> None:
            self.columns = np.ascontiguousarray(points.T)

        def find(self, box: Box, limit: int = 0) -> Found:
            # Ten times over, so that a machine under load cannot hide it.
            for _ in range(9):
                super().find(box, limit)
            return super().find(box, limit)

    with pytest.raises(Broken, match="us of 131,072"):
        work.check_growth(Converted, 3)


class Columns:
    """Column indexes in place of hosted ones: histories judge any index."""

    def __init__(self, kind: Any) -> None:
        self.kind = kind

    def alone(self, fields: Any, oldest_revision: int, rows: Any, frozen_max: int) -> Any:
        from minikube_py.lab.conformance.history import THINGS

        return self.kind(THINGS, oldest_revision, rows)

    def beside(self, index: Any, fields: Any, frozen_max: int) -> Any:
        class Beside:
            def build(self, rows: int) -> bool:
                return False

            def close(self) -> None: ...

        return Beside()


class AnswersThePresent(ColumnIndex):
    def query(self, where: Any, revision: int, *rest: Any) -> Any:
        self.require_retained(revision)
        return super().query(where, self.revision, *rest)


def test_an_index_that_forgets_the_past_is_found() -> None:
    assert find_counter_history(Columns(ColumnIndex), 10, 0, 4) is None
    found = find_counter_history(Columns(AnswersThePresent), 60, 0, 4, least=False)
    assert found is not None
    found = history_text.shrink(Columns(AnswersThePresent), *found)
    assert len(found[0].events) <= 3
    listed = history_text.listing(found[0], found[1], "mine")
    assert listed.startswith("index = hosted('mine', (") and "index.apply(4, {" in listed


def test_an_estimate_that_is_no_number_is_found() -> None:
    class Guesses(Right):
        def cost_us(self, rows: int, share: float, limit: int) -> float:
            return limit / share if share else float("nan")

    found = found_in(Guesses, 5)
    assert found is not None and found[1].wanted == "cost_us(0, 0.0, 0) was nan"

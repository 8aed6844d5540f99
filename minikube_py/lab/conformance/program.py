"""A program is a sequence of calls to a structure, as data: it runs, is checked step by step, and prints as Python.

Expected results come from a full scan of a dictionary of slots and points. A law is broken by a step alone, so that a
program remains a counterexample while unneeded steps are removed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from minikube_py.index.structure import HIGH, LOW, MISSING, Box, Found, Loading, Point, Structure, Versioned
from minikube_py.own_code import raised, told
from minikube_py.sim.shrinking import Rounds, fewest

Build = Callable[[int], Structure]
"""From the number of dimensions to an empty structure."""


class Put(NamedTuple):
    slot: int
    point: Point


class Remove(NamedTuple):
    slot: int


class Load(NamedTuple):
    """Loads many points at once into an empty structure."""

    points: tuple[tuple[int, Point], ...]


class Find(NamedTuple):
    box: Box
    limit: int = 0


class MayMatch(NamedTuple):
    box: Box


class Freeze(NamedTuple):
    """Freezes the current state."""


class FindFrozen(NamedTuple):
    """`state`: index into the frozen states, modulo their number; skipped if there are none."""

    state: int
    box: Box
    limit: int = 0


class Size(NamedTuple):
    """Calls `size_bytes()`."""


Step = Put | Remove | Load | Find | MayMatch | Freeze | FindFrozen | Size


@dataclass(frozen=True, slots=True)
class Program:
    dimensions: int
    steps: tuple[Step, ...]

    def __repr__(self) -> str:
        # Hypothesis prints what it draws; ten thousand steps are unreadable. See `listing`.
        return f"Program({self.dimensions}, {len(self.steps)} steps)"


class Broken(AssertionError):
    """A law does not hold. `step`: the number of the step that shows it."""

    def __init__(self, law: str, wanted: str, step: int = 0) -> None:
        super().__init__(f"{law}: {wanted}")
        self.law = law
        self.wanted = wanted
        self.step = step


Points = dict[int, Point]


@dataclass(slots=True)
class _State:
    """A structure under test, and the expected results."""

    structure: Structure
    points: Points = field(default_factory=dict)
    frozen: list[tuple[Any, Points]] = field(default_factory=list)
    answers: list[tuple[int, Found, tuple[int, ...]]] = field(default_factory=list)


def run(build: Build, program: Program) -> None:
    """Raises: Broken at the first step that shows a broken law."""
    state = _State(guarded("it can be built", 0, lambda: build(program.dimensions)))
    for number, step in enumerate(program.steps, 1):
        _take(state, step, number)
    last = len(program.steps)
    for number, found, slots in state.answers:
        if tuple(_slots_of(found)) != slots:
            raise Broken("a given answer does not change", f"that of step {number} has changed since", last)


def _take(state: _State, step: Step, number: int) -> None:
    structure, points = state.structure, state.points
    law = f"{type(step).__name__.lower()} accepts what the contract allows"
    if isinstance(step, Put):
        guarded(law, number, lambda: structure.put(step.slot, step.point))
        points[step.slot] = step.point
    elif isinstance(step, Remove):
        guarded(law, number, lambda: structure.remove(step.slot))
        points.pop(step.slot, None)
    elif isinstance(step, Load):
        _load(structure, step, number)
        points.update(step.points)
    elif isinstance(step, Find):
        found = guarded(law, number, lambda: structure.find(step.box, step.limit))
        judge(found, points, step.box, step.limit, number)
        state.answers.append((number, found, tuple(_slots_of(found))))
        _judge_again(structure, step, points, number)
    elif isinstance(step, MayMatch):
        said = guarded(law, number, lambda: structure.may_match(step.box))
        if not said and matching(points, step.box):
            raise Broken("may_match is false only if nothing lies in the box", f"{_shown(points, step.box)} do", number)
    elif isinstance(step, Freeze):
        if isinstance(structure, Versioned):
            state.frozen.append((guarded(law, number, structure.freeze), dict(points)))
    elif isinstance(step, FindFrozen):
        if isinstance(structure, Versioned) and state.frozen:
            frozen, then = state.frozen[step.state % len(state.frozen)]
            versioned: Versioned = structure
            found = guarded(law, number, lambda: versioned.find_frozen(frozen, step.box, step.limit))
            judge(found, then, step.box, step.limit, number)
    else:
        size = guarded(law, number, structure.size_bytes)
        if isinstance(size, bool) or not isinstance(size, int) or size < 0:
            raise Broken("size_bytes is a number of bytes", f"it was {size!r}", number)


def _load(structure: Structure, step: Load, number: int) -> None:
    if not isinstance(structure, Loading):
        for slot, point in step.points:
            guarded("put accepts what the contract allows", number, lambda: structure.put(slot, point))  # noqa: B023
        return
    slots = np.array([slot for slot, _ in step.points], dtype=np.int64)
    dimensions = len(step.points[0][1]) if step.points else 0
    points = np.array([point for _, point in step.points], dtype=np.int64).reshape(len(slots), dimensions)
    kept = points.copy()
    guarded("load accepts what the contract allows", number, lambda: structure.load(slots, points))
    if not np.array_equal(points, kept):
        raise Broken("load does not change its arguments", "it changed the array of points", number)
    # The caller may reuse its arrays afterwards; the structure must have copied them.
    slots.fill(-1)
    points.fill(0)


def _judge_again(structure: Structure, step: Find, points: Points, number: int) -> None:
    """Repeats the query at once: a query must not change the results."""
    found = guarded("find can be repeated", number, lambda: structure.find(step.box, step.limit))
    try:
        judge(found, points, step.box, step.limit, number)
    except Broken as broken:
        raise Broken(f"find has no side effects: on the second call, {broken.law}", broken.wanted, number) from None


def guarded(law: str, number: int, ask: Callable[[], Any], *passed: type[Exception]) -> Any:
    """Raises: Broken, for what is not one of `passed`."""
    try:
        return ask()
    except raised() as error:
        if isinstance(error, (Broken, *passed)):
            raise
        raise Broken(law, f"it raised {told(error)}", number) from error


def matching(points: Points, box: Box) -> set[int]:
    """The slots whose points lie in the box, by a full scan."""
    found = set()
    for slot, point in points.items():
        if all(low <= value <= high for low, value, high in zip(box.lows, point, box.highs)):
            found.add(slot)
    return found


def judge(found: Any, points: Points, box: Box, limit: int, number: int) -> None:
    """Raises: Broken unless `found` is a valid result of `find(box, limit)`."""
    if not isinstance(found, Found):
        raise Broken("find answers with a Found", f"it was {type(found).__name__}", number)
    slots = _slots_of(found, number)
    true = matching(points, box)
    if len(set(slots)) < len(slots):
        raise Broken("no slot is found twice", f"slots {_few(slots)}", number)
    if set(slots) - true:
        wrong = min(set(slots) - true)
        stands = f"its point is {shown_point(points[wrong])}" if wrong in points else "it is empty"
        raise Broken("found slots lie in the box", f"slot {wrong} was found, and {stands}", number)
    wanted = min(limit, len(true)) if limit else len(true)
    if len(slots) != wanted:
        missing = _few(sorted(true - set(slots)))
        asked = f"any {wanted} of {len(true)}" if limit else f"all {len(true)}"
        raise Broken("slots in the box are found", f"{len(slots)} of {asked}: without slots {missing}", number)
    if bool(found.complete) != (len(slots) == len(true)):
        # A structure that stops at the limit need not know whether more exist.
        if found.complete or len(slots) < len(true) or not limit:
            told = f"complete={found.complete} with {len(slots)} of {len(true)}"
            raise Broken("complete says whether these are all", told, number)
        if len(slots) < limit:
            raise Broken("complete says whether these are all", f"fewer than {limit} were found, yet not all", number)
    _judge_counts(found, number)


def _judge_counts(found: Found, number: int) -> None:
    """`examined` may be anything: a summary covers many points, a cached result all. `work` counts for itself."""
    counts = found[2:]
    if any(isinstance(count, bool) or not isinstance(count, int | np.integer) or count < 0 for count in counts):
        raise Broken("the counts of a Found are numbers", f"they were {counts}", number)
    if found.false_positives > found.shards:
        told = f"{found.false_positives} false positives in {found.shards} shards"
        raise Broken("a false positive is a shard that was opened", told, number)


def _slots_of(found: Found, number: int = 0) -> list[int]:
    slots = found.slots
    if not isinstance(slots, np.ndarray) or slots.ndim != 1 or slots.dtype != np.int64:
        told = f"{slots.dtype} of {slots.ndim} dimensions" if isinstance(slots, np.ndarray) else type(slots).__name__
        raise Broken("slots are an int64 array", f"they were {told}", number)
    listed: list[int] = slots.tolist()
    return listed


# -- shrinking ---------------------------------------------------------------------------------------------------------


def shrink(build: Build, program: Program, broken: Broken, rounds: int = 4000) -> tuple[Program, Broken]:
    """A shorter program with simpler numbers that breaks the same law; runs at most `rounds`."""

    def fails_at(steps: tuple[Step, ...]) -> Broken | None:
        try:
            run(build, Program(program.dimensions, steps))
        except Broken as found:
            return found if found.law == broken.law else None
        return None

    fails = Rounds(rounds).limited(fails_at)
    steps = fewest(_expanded(program.steps[: broken.step], fails), fails)
    for candidate in _plainer_rows(steps):
        if fails(candidate) is not None:
            steps = candidate
    place = 0
    while place < len(steps):
        for simpler in _simpler(steps[place]):
            changed = (*steps[:place], simpler, *steps[place + 1 :])
            if fails(changed) is not None:
                steps = changed
                break
        else:
            place += 1
    return Program(program.dimensions, steps), fails_at(steps) or broken


def _expanded(steps: tuple[Step, ...], fails: Callable[[tuple[Step, ...]], Broken | None]) -> tuple[Step, ...]:
    """Puts instead of a load, if they show the same; otherwise a load with fewer points."""
    if not steps or not isinstance(steps[0], Load):
        return steps
    first, rest = steps[0], steps[1:]
    puts: tuple[Step, ...] = (*(Put(slot, point) for slot, point in first.points), *rest)
    if fails(puts) is not None:
        return puts
    return (Load(fewest(first.points, lambda points: fails((Load(points), *rest)))), *rest)


def _plainer_rows(steps: tuple[Step, ...]) -> Iterator[tuple[Step, ...]]:
    """The steps with equal points, with rows in slot order, and with both."""
    puts = [step for step in steps if isinstance(step, Put)]
    if len(puts) <= 1:
        return
    rest = [step for step in steps if not isinstance(step, Put)]
    in_order = sorted(puts, key=lambda put: put.slot)
    yield (*in_order, *rest)
    for point in dict.fromkeys([put.point for put in puts[:3]]):
        yield tuple(step._replace(point=point) if isinstance(step, Put) else step for step in steps)
        yield (*(put._replace(point=point) for put in in_order), *rest)


def _simpler(step: Step) -> Iterator[Step]:
    if isinstance(step, Put):
        for place, value in enumerate(step.point):
            for plain in (0, 1):
                if abs(value) > plain:
                    yield step._replace(point=(*step.point[:place], plain, *step.point[place + 1 :]))
    elif isinstance(step, Find | FindFrozen | MayMatch):
        box = step.box
        for place in range(len(box.lows)):
            if (box.lows[place], box.highs[place]) != (MISSING, HIGH):
                lows = (*box.lows[:place], MISSING, *box.lows[place + 1 :])
                highs = (*box.highs[:place], HIGH, *box.highs[place + 1 :])
                yield step._replace(box=Box(lows, highs))


# -- reading -----------------------------------------------------------------------------------------------------------

_NAMED = {MISSING: "MISSING", LOW: "LOW", HIGH: "HIGH", HIGH - 1: "HIGH - 1", LOW + 1: "LOW + 1"}
_SHOWN = 8
_LOOP = 12


def shown_value(value: int) -> str:
    return _NAMED.get(value, str(value))


def shown_point(point: Iterable[int]) -> str:
    values = [shown_value(value) for value in point]
    return f"({values[0]},)" if len(values) == 1 else f"({', '.join(values)})"


def _shown_box(box: Box) -> str:
    return f"Box({shown_point(box.lows)}, {shown_point(box.highs)})"


def _few(slots: Sequence[int]) -> str:
    more = f" and {len(slots) - _SHOWN} more" if len(slots) > _SHOWN else ""
    return "[" + ", ".join(map(str, slots[:_SHOWN])) + "]" + more


def _shown(points: Points, box: Box) -> str:
    return f"slots {_few(sorted(matching(points, box)))}"


def listing(program: Program, broken: Broken, made: str = "MyIndex") -> str:
    """The program as runnable Python, and what it shows. `made`: the structure's name."""
    lines = [f"index = {made}({program.dimensions})"]
    puts: list[Put] = []
    frozen = 0
    for step in (*program.steps, None):
        if isinstance(step, Put):
            puts.append(step)
            continue
        lines += _put_lines(puts)
        puts = []
        if isinstance(step, Freeze):
            lines.append(f"state{frozen} = index.freeze()")
            frozen += 1
        elif isinstance(step, FindFrozen):
            if frozen:
                lines.append(_line(step._replace(state=step.state % frozen)))
        elif step is not None:
            lines.append(_line(step))
    lines += [f"# {broken.law}:", f"#   {broken.wanted}"]
    return "\n".join(lines)


def _put_lines(puts: Sequence[Put]) -> list[str]:
    if len(puts) <= _LOOP:
        return [f"index.put({put.slot}, {shown_point(put.point)})" for put in puts]
    slots = [put.slot for put in puts]
    if len({put.point for put in puts}) == 1 and slots == list(range(slots[0], slots[0] + len(slots))):
        span = f"range({slots[0]}, {slots[-1] + 1})" if slots[0] else f"range({slots[-1] + 1})"
        return [f"for slot in {span}:", f"    index.put(slot, {shown_point(puts[0].point)})"]
    pairs = [f"({put.slot}, {shown_point(put.point)})" for put in puts]
    rows = [", ".join(pairs[place : place + 6]) for place in range(0, len(pairs), 6)]
    return [
        "for slot, point in (",
        *(f"    {row}," for row in rows),
        "):",
        "    index.put(slot, point)",
    ]


def _line(step: Step) -> str:
    if isinstance(step, Remove):
        return f"index.remove({step.slot})"
    if isinstance(step, Load):
        slots = ", ".join(str(slot) for slot, _ in step.points)
        points = ", ".join(shown_point(point) for _, point in step.points)
        return f"index.load(np.array([{slots}]), np.array([{points}]))"
    if isinstance(step, Find):
        return f"index.find({_shown_box(step.box)}, limit={step.limit})"
    if isinstance(step, MayMatch):
        return f"index.may_match({_shown_box(step.box)})"
    if isinstance(step, FindFrozen):
        return f"index.find_frozen(state{step.state}, {_shown_box(step.box)}, limit={step.limit})"
    return "index.size_bytes()"

"""Implements `minikube-py front check`: laws, false positives against the stated bound, upkeep and bytes."""

from __future__ import annotations

import math
import tracemalloc
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib.metadata import entry_points
from statistics import fmean
from typing import Any, Final, NamedTuple

import numpy as np
from hypothesis import strategies as st

from minikube_py.errors import RequestError
from minikube_py.index.filters.front import GROUP, Bools, holding
from minikube_py.index.structure import MISSING, IntArray, Point
from minikube_py.lab.conformance.judging import Failure, Part, Say
from minikube_py.lab.conformance.laws import failing
from minikube_py.lab.conformance.program import Broken
from minikube_py.lab.conformance.subject import NoSubject, require_options
from minikube_py.own_code import BadCode, find_class, load, name_of, raised, told
from minikube_py.studies.emptiness.compiled import SUFFIX, form_of, front_of, machine_code
from minikube_py.studies.emptiness.fronts import FRONTS
from minikube_py.studies.emptiness.study import Behind, Emptiness, World

METHODS: Final = ("passing", "put", "size_bytes")
VALUES: Final = st.sampled_from([0, 1, 2, 3, 7, 8, 4095, 4096, 2**40])
"""Few values, so that nodes are often equal or dominate each other; and the edges of common steps and widths."""
COLUMNS: Final = (5, 8, 9, 16, 17, 33, 64, 65, 86)
"""Beside 1 to 4: up to those of the widest table of a study, and around the widths of words."""
SHARDS: Final = (5, 16, 17, 63, 64, 65, 256, 300)
POINTS_MAX, COPIES_MAX = 16, 20
WORLDS: Final[Mapping[str, Mapping[str, Any]]] = {
    "synthetic": {"n": 2560, "shards": 10},
    "openb": {"list": "default", "shards": 16},
    "dlrm": {"list": "dlrm", "shards": 64, "n": 320},
}
BESIDE: Final = ("none", "repairing-max", "joint-8", "skyline", "bounded-skyline-4")
Build = Callable[[IntArray, int], Any]


class Subject(NamedTuple):
    title: str
    build: Build


class Steps(NamedTuple):
    """Input drawn for the laws."""

    points: tuple[Point, ...]
    shards: int
    changes: tuple[tuple[int, Point], ...]
    asked: tuple[Point, ...]

    def listing(self) -> str:
        lines = [f"front = Front(np.array({list(self.points)}), shards={self.shards})"]
        lines += [f"front.put({slot}, {point})" for slot, point in self.changes]
        return "\n".join([*lines, f"front.passing(np.array({list(self.asked)}))  # {MISSING}: not asked"])


class Cost(NamedTuple):
    """One front on one cluster, means over its batches; `rows_read` is nan if it is not counted. `bytes`: what it
    states; `traced_bytes`: all that Python and numpy hold for it, its copy of the nodes included."""

    world: str
    front: str
    let_through: float
    bytes: float
    traced_bytes: float
    rows_read: float
    answer_us: float
    change_us: float


class Verdict(NamedTuple):
    """`asked`: on which clusters the laws were tried, and on which not."""

    front: str
    parts: list[Part]
    costs: list[Cost]
    asked: list[str]

    @property
    def holds(self) -> bool:
        return all(part.failure is None for part in self.parts)


class Telling(Behind):
    """Asks one request after the other if the front wants to know which openings were in vain, and tells it. That is
    part of its answers' time."""

    right: Bools
    """Of the batch: requests x shards, whether a node has room."""

    def answer(self, asked: Any) -> Any:
        if not hasattr(self.front, "in_vain"):
            return super().answer(asked)
        says = np.ones(self.right.shape, dtype=np.bool_)
        for row, request in enumerate(asked):
            says[row] = self.front.passing(request[None])[0]
            for shard in np.flatnonzero(says[row] & ~self.right[row]).tolist():
                self.front.in_vain(shard, request)
        return says


def find_front(target: str, options: Mapping[str, int | str]) -> Subject:
    """`target`: FILE.py:CLASS, MODULE:CLASS, or the name of a study's or installed front.

    Raises: NoSubject."""
    installed = {point.name: point for point in entry_points(group=GROUP)}
    plain, _, form = target.partition("@")
    if plain in FRONTS and form in ("", SUFFIX):
        require_options(FRONTS[plain][0], options, f"front {target}")
        if form:
            try:
                form_of(FRONTS[plain][0])
                machine_code()
            except RequestError as error:
                raise NoSubject(str(error)) from error
        return Subject(target, lambda points, shards: front_of(target, points, shards, options))
    if target in installed:
        try:
            kind, title = load(installed[target]), target
        except BadCode as error:
            raise NoSubject(str(error)) from error
    elif ":" not in target:
        known = ", ".join((*FRONTS, *installed))
        named = f"the name of a front; the fronts are: {known}; built-in ones also as NAME@{SUFFIX}"
        raise NoSubject(f"{target!r} is neither FILE.py:CLASS nor {named}")
    else:
        try:
            found: Any = find_class(target, "passing")
        except BadCode as error:
            raise NoSubject(str(error)) from error
        kind, title = found, name_of(found, target, "front")
    require_options(kind, options, f"front {title}")
    return Subject(title, lambda points, shards: kind(points, shards, **options))


def check(subject: Subject, examples: int, seed: int, with_bench: bool = True, say: Say = lambda _: None) -> Verdict:
    what = f"{examples} programs of put and passing, against all nodes"
    say(what)
    verdict = Verdict(subject.title, [Part("front", what)], [], [])
    tried = Tried(subject.build)
    found = failing(steps(), lambda drawn: run(tried, drawn), examples, seed, True)
    if found is None and not tried.taken:
        why = f"all were refused: {tried.why}" if tried.refused else "no program was drawn"
        verdict.parts[0].failure = Failure("it takes some number of columns", why)
    elif found is not None:
        drawn, broken = found
        shown = f"{drawn.listing()}\n# {broken.law}: {broken.wanted}"
        verdict.parts[0].failure = Failure(broken.law, broken.wanted, shown)
    elif with_bench:
        for name in WORLDS:
            say(f"false positives, upkeep and bytes on {name} nodes")
            verdict.parts.append(_bench(subject, name, verdict.costs))
    verdict.asked.extend(tried.told())
    return verdict


class Tried:
    """Builds a front, and notes for which clusters it was built and which it refused."""

    def __init__(self, build: Build) -> None:
        self._build = build
        self.taken: dict[int, None] = {}
        """Numbers of columns."""
        self.refused: dict[int, None] = {}
        self.why = ""
        self.shards = self.nodes = 0

    def __call__(self, points: IntArray, shards: int) -> Any:
        columns = points.shape[1]
        try:
            front = self._build(points, shards)
        except RequestError as error:
            self.refused[columns], self.why = None, str(error)
            raise
        self.taken[columns] = None
        self.shards, self.nodes = max(self.shards, shards), max(self.nodes, len(points))
        return front

    def told(self) -> list[str]:
        if not self.taken:
            return []
        most = f"up to {max(self.taken)} columns, {self.shards} shards and {self.nodes} nodes"
        found = [f"the laws were tried on clusters of {most}, and on none that are larger"]
        if self.refused:
            found.append(f"it refused {_listed(self.refused)} columns at times: {self.why}")
        return found


def _listed(numbers: Mapping[int, None]) -> str:
    return ", ".join(map(str, sorted(numbers)))


@st.composite
def steps(draw: st.DrawFn) -> Steps:
    """Few columns, shards and nodes mostly, so that programs stay short; and as many as the studies have."""
    is_wide = draw(st.integers(0, 3)) == 3
    dimensions = draw(st.sampled_from(COLUMNS) if is_wide else st.integers(1, 4))
    point = _points(dimensions, VALUES)
    points = draw(st.lists(point, min_size=1, max_size=POINTS_MAX))
    # Nodes are often alike.
    points *= draw(st.just(1) | st.integers(1, COPIES_MAX))
    changes = draw(st.lists(st.tuples(st.integers(0, len(points) - 1), point), max_size=16))
    asked = draw(st.lists(_points(dimensions, VALUES | st.just(MISSING)), min_size=1, max_size=4))
    shards = draw(st.integers(1, 4) | st.sampled_from(SHARDS))
    return Steps(tuple(points), shards, tuple(changes), tuple(asked))


def _points(dimensions: int, values: st.SearchStrategy[int]) -> st.SearchStrategy[Point]:
    """Of many columns, all but a few have one value: that is drawn quickly, and any column may matter."""
    if dimensions <= 4:
        return st.tuples(*[values] * dimensions)
    others = st.dictionaries(st.integers(0, dimensions - 1), values, max_size=3)
    return st.tuples(values, others).map(lambda drawn: tuple(drawn[1].get(i, drawn[0]) for i in range(dimensions)))


def run(build: Build, drawn: Steps) -> None:
    """Raises: Broken, also if the front raises."""
    try:
        _run(build, drawn)
    except Broken:
        raise
    except raised() as error:
        raise Broken("it answers", told(error)) from error


def _run(build: Build, drawn: Steps) -> None:
    """Raises: Broken. Skips dimensions that the front refuses."""
    now, asked = np.array(drawn.points, dtype=np.int64), np.array(drawn.asked, dtype=np.int64)
    try:
        front = build(points := now.copy(), drawn.shards)
    except RequestError:
        return
    _unchanged("points", points, now)
    missing = [name for name in METHODS if not callable(getattr(front, name, None))]
    if missing:
        raise Broken("it has the methods of Front", f"without {', '.join(missing)}")
    bound = _bound_of(front)
    sizes = []
    for step in range(len(drawn.changes) + 1):
        if step:
            slot, point = drawn.changes[step - 1]
            front.put(slot, point)
            now[slot] = point
        says, truth = _answer(front, asked), holding(now, drawn.shards, asked)
        if says.shape != truth.shape or says.dtype != np.bool_:
            given = f"{says.dtype} of shape {says.shape}, not bool of {truth.shape}"
            raise Broken("passing says requests x shards", given)
        for what, wrong in (("it never rules out a node that fits", truth & ~says), ("it is exact", says & ~truth)):
            if wrong.any() and (bound == 0 or "exact" not in what):
                row, shard = (int(each) for each in np.argwhere(wrong)[0])
                raise Broken(what, f"after {step} changes, request {drawn.asked[row]}, shard {shard}")
        alone = np.concatenate([_answer(front, asked[row : row + 1]) for row in range(len(asked))])
        if not (alone == says).all():
            raise Broken("a batch is answered as its requests are one by one", f"after {step} changes")
        for row in range(len(asked) if hasattr(front, "ask") else 0):
            if (named := list(front.ask(asked[row].copy()))) != np.flatnonzero(says[row]).tolist():
                told = f"after {step} changes, request {drawn.asked[row]}: {named}"
                raise Broken("ask names the shards that passing does, in order", told)
        sizes.append(front.size_bytes())
        if hasattr(front, "in_vain"):
            for row, shard in np.argwhere(says & ~truth).tolist():
                front.in_vain(shard, asked[row].copy())
    if not all(isinstance(size, int) and size >= 0 for size in sizes):
        raise Broken("size_bytes is a number of bytes", f"it was {sizes}")


def _answer(front: Any, asked: IntArray) -> Any:
    """Raises: Broken."""
    says = np.asarray(front.passing(given := asked.copy()))
    _unchanged("asked", given, asked)
    return says


def _unchanged(name: str, given: IntArray, before: IntArray) -> None:
    """Raises: Broken."""
    if not np.array_equal(given, before):
        raise Broken("it changes nothing that it is given", f"{name} was {before.tolist()}, and is {given.tolist()}")


def _bound_of(front: Any) -> float:
    """Raises: Broken."""
    bound = getattr(front, "bound", None)
    if not isinstance(bound, int | float) or not 0 <= bound <= 1:
        raise Broken("it states a bound", f"its attribute `bound` is {bound!r}, not a share from 0 to 1")
    return bound


def _bench(subject: Subject, name: str, costs: list[Cost]) -> Part:
    """Compares it with some built-in fronts; the stated bound is checked over all batches."""
    design = Emptiness().load("quick")
    design = replace(design, raw={**design.raw, "batches": 3, "requests_per_batch": 32})
    world = World(design, {**design.raw["defaults"], **WORLDS[name]}, 0)
    part = Part(name, f"{len(world.points):,} nodes in {world.shards} shards: false positives against the bound")
    rivals = {each: find_front(each, {}).build for each in BESIDE if each != subject.title}
    for title, build in {subject.title: subject.build, **rivals}.items():
        try:
            figures, failure = _measured(build, world)
        except RequestError:
            raise
        except raised() as error:
            law, wanted = (error.law, error.wanted) if isinstance(error, Broken) else ("it answers", told(error))
            part.failure = Failure(law, wanted)
        else:
            figures["traced_bytes"] = _traced(build, world)
            costs.append(Cost(name, title, *(figures.get(each, math.nan) for each in Cost._fields[2:])))
            part.failure = part.failure or failure
    return part


def _traced(build: Build, world: World) -> int:
    """After all changes. Tracing slows everything down, so the front is built again for it."""
    begun_by_us = not tracemalloc.is_tracing()
    if begun_by_us:
        tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    candidate = Behind(build(world.points, world.shards))
    for batch in world.batches:
        candidate.answer(np.array(batch.asked))
        candidate.change(batch.changes)
    held = tracemalloc.get_traced_memory()[0] - before
    if begun_by_us:
        tracemalloc.stop()
    del candidate
    return held


def notes(verdict: Verdict) -> list[str]:
    """Where it states less of what it holds than any built-in front does: that breaks no law, as only its author can
    tell what a query needs."""
    found = []
    for world in dict.fromkeys(cost.world for cost in verdict.costs):
        times = {
            cost.front: cost.traced_bytes / max(1.0, cost.bytes)
            for cost in verdict.costs
            if cost.world == world and cost.front != "none"
        }
        own = next((cost for cost in verdict.costs if (cost.world, cost.front) == (world, verdict.front)), None)
        most = max((each for front, each in times.items() if front != verdict.front), default=math.inf)
        if own is not None and times.get(own.front, 0.0) > most:
            found.append(
                f"size_bytes says {own.bytes:,.0f} on {world} nodes, tracemalloc {own.traced_bytes:,.0f}: "
                f"{times[verdict.front]:,.0f} times as much, and at most {most:,.0f} times for a built-in front"
            )
    return found


def _measured(build: Build, world: World) -> tuple[dict[str, float], Failure | None]:
    """Means over the batches. Raises: Broken, StudyError, RequestError, and what the front raises."""
    front = build(world.points, world.shards)
    bound, candidate = _bound_of(front), Telling(front)
    report: dict[str, Any] = {"asked": [], "wrong": 0, "figures": {}}
    for batch in world.batches:
        candidate.right = batch.right
        Emptiness().ask(candidate, batch, report)
    figures = {figure: fmean(values) for figure, values in report["figures"].items()}
    if report["wrong"]:
        return figures, Failure("it never rules out a node that fits", f"{report['wrong']} requests")
    if figures["let_through"] > bound:
        let = f"{figures['let_through']:.4g} of the full shards, where its bound is {bound:g}"
        return figures, Failure("it keeps its bound", f"it let through {let}")
    return figures, None


def as_json(verdict: Verdict) -> dict[str, Any]:
    return {
        "front": verdict.front,
        "holds": verdict.holds,
        "parts": [part.as_json() for part in verdict.parts],
        # Uncounted values are not numbers.
        "costs": [
            {name: None if figure != figure else figure for name, figure in cost._asdict().items()}
            for cost in verdict.costs
        ],
        "notes": notes(verdict),
        "asked": verdict.asked,
    }

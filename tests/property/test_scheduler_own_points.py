"""A plugin of one's own that raises or answers nonsense at any point: the scheduler lives and the other pods flow, the
pod says which plugin it is, no node stays charged, and the pod is placed once the plugin is mended."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scheduler_world import FakeApi, ManualClock, settle
from virtual_time import run_virtually

from minikube_py.scheduler.config import ConfigError, PluginSet, ProfileConfig, SchedulerConfig
from minikube_py.scheduler.framework import (
    SKIP,
    Bound,
    Code,
    Dimension,
    DimensionKind,
    EventRegistration,
    PermitResult,
    PluginError,
    PostFilterResult,
    PreFilterResult,
    Status,
)
from minikube_py.scheduler.kinds import NeededKind
from minikube_py.scheduler.objects import PodInfo, QueuedPodInfo
from minikube_py.scheduler.own import Guarded
from minikube_py.scheduler.own_results import CHECKS
from minikube_py.scheduler.plugins.queueing import PrioritySort
from minikube_py.scheduler.scheduler import Scheduler

NAN = float("nan")
CPU_FREE = Dimension(DimensionKind.FREE, "cpu")
NO = Status(Code.UNSCHEDULABLE, "no")


@pytest.fixture(autouse=True)
def _unlogged() -> Iterator[None]:
    """Texts with lone surrogates are logged, which pytest's workers cannot send in a report."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


class Broken:
    """Cannot be printed, compared or hashed."""

    def _raise(self, *_: Any) -> Any:
        raise OSError("broken")

    __repr__ = __eq__ = __lt__ = __bool__ = __len__ = _raise
    __hash__ = None  # type: ignore[assignment]


def raising(error: BaseException) -> Callable[[], Any]:
    def answer() -> Any:
        raise error

    return answer


ANSWERS: dict[str, Callable[[], Any]] = {
    "raises": raising(RuntimeError("planted")),
    "stops": raising(StopIteration()),
    "is cancelled": raising(asyncio.CancelledError()),
    "exits": raising(SystemExit(3)),
    "no text": raising(ValueError("\ud800")),
    "None": lambda: None,
    "True": lambda: True,
    "NaN": lambda: NAN,
    "huge": lambda: 1 << 70,
    "text": lambda: "no",
    "one": lambda: (None,),
    "pair": lambda: (None, None),
    "wrong pair": lambda: (5, "no"),
    "short": lambda: np.ones(1, np.int64),
    "long": lambda: np.ones(99, np.bool_),
    "floats": lambda: np.full(3, NAN),
    "deep": lambda: np.zeros((3, 1), np.int64),
    "scalar": lambda: np.int64(7),
    "class": lambda: Status,
    "code": lambda: Code.UNSCHEDULABLE,
    "no code": lambda: Status("no"),  # type: ignore[arg-type]
    "numbers": lambda: Status(Code.UNSCHEDULABLE, 5, ["x"]),  # type: ignore[arg-type]
    "surrogate": lambda: Status(Code.UNSCHEDULABLE, "\ud800"),
    "wait": lambda: PermitResult(Status(Code.WAIT), NAN),
    "no wait": lambda: PermitResult(Status(Code.WAIT), "soon"),  # type: ignore[arg-type]
    "names": lambda: (PreFilterResult(["n1"]), None),  # type: ignore[arg-type]
    "node": lambda: (PostFilterResult(7), Status(Code.SUCCESS)),  # type: ignore[arg-type]
    "codes": lambda: (np.full(3, -1), lambda code: None),
    "broken": Broken,
    "bound of a text": lambda: [Bound("cpu", 1)],  # type: ignore[arg-type]
    "bound by nothing": lambda: [Bound(CPU_FREE, None)],  # type: ignore[arg-type]
    "bound by a text": lambda: [Bound(CPU_FREE, "1")],  # type: ignore[arg-type]
    "bound beyond": lambda: [Bound(CPU_FREE, 1 << 70)],
    "kind of nothing": lambda: [NeededKind(None, None, None)],  # type: ignore[arg-type]
    "event of nothing": lambda: [EventRegistration("Node")],  # type: ignore[arg-type]
}


async def _awaited(answer: Any) -> Any:
    return answer


WELL: dict[str, Callable[..., Any]] = {
    "pre_enqueue": lambda pod: None,
    "sort_key": lambda queued: queued.pod.name,
    "less": PrioritySort().less,
    "pre_filter": lambda state, pod, nodes: (None, None),
    "add_pod": lambda *_: None,
    "remove_pod": lambda *_: None,
    "filter": lambda state, pod, node: None,
    "filter_nodes": lambda state, pod, nodes: np.ones(len(nodes), np.bool_),
    "reject_codes": lambda state, pod, nodes: (np.zeros(len(nodes), np.int64), lambda code: NO),
    "post_filter": lambda state, pod, diagnosis: (None, NO),
    "pre_score": lambda state, pod, nodes: None,
    "score": lambda state, pod, node: 5,
    "score_nodes": lambda state, pod, nodes: np.full(len(nodes), 5),
    "normalize_scores": lambda state, pod, scores: scores,
    "reserve": lambda state, pod, node_name: None,
    "unreserve": lambda state, pod, node_name: None,
    "permit": lambda state, pod, node_name: PermitResult(),
    "has_pre_bind": lambda state, pod, node_name: True,
    "pre_bind": lambda state, pod, node_name: _awaited(None),
    "bind": lambda state, pod, node_name: _awaited(SKIP),
    "post_bind": lambda state, pod, node_name: None,
    "kinds_needed": lambda pod: (),
    "bounds": lambda pod: (),
    "sign_pod": lambda pod: pod.name,
    "gate_key": lambda pod: (),
}
"""Each method as a right plugin has it."""
BESIDE = {
    "add_pod": ("pre_filter", "remove_pod", "filter"),
    "remove_pod": ("pre_filter", "add_pod", "filter"),
    "filter_nodes": ("filter",),
    "reject_codes": ("filter", "filter_nodes"),
    "score_nodes": ("score",),
    "normalize_scores": ("score",),
    "reserve": ("unreserve",),
    "unreserve": ("reserve",),
    "has_pre_bind": ("pre_bind",),
    "kinds_needed": ("filter",),
    "bounds": ("filter",),
    "sign_pod": ("filter", "score"),
    "gate_key": ("pre_enqueue",),
    "post_filter": ("filter",),
}
"""What else the plugin has, so that the method is called."""
ORDERING = ("sort_key", "less")
UNFIT = {
    "reject_codes": "filter_nodes",
    "post_filter": "filter",
    "bounds": "filter",
    "unreserve": "reserve",
    "gate_key": "pre_enqueue",
}
"""By method, one that turns the pods down while the plugin is broken, so that the method is called."""

REJECTED = ("unreserve", "bounds", "add_pod", "remove_pod", "gate_key")
"""Fail where nobody waits for an answer, or are not called for each pod: its reason is what rejected it."""
CACHED = ("sign_pod", "bounds")
"""Called only with scope NODE."""


class Mine:
    """`method` answers for the pods `bad-...` as drawn, as long as the plugin is broken."""

    def __init__(self, method: str, scope: str, answers: dict[str, str]) -> None:
        self.scope, self.method, self.answers = scope, method, answers
        self.is_broken, self.called = True, False
        for name in (method, *BESIDE.get(method, ())):
            setattr(self, name, self._method(name))
        if method != "sign_pod":
            # It looks at names.
            self.sign_pod = WELL["sign_pod"]

    def _method(self, name: str) -> Callable[..., Any]:
        def call(*given: Any) -> Any:
            self.called = self.called or name == self.method
            pods = [each.pod if isinstance(each, QueuedPodInfo) else each for each in given]
            bad = [each.name for each in pods if isinstance(each, PodInfo) and each.name in self.answers]
            if not (bad and self.is_broken):
                return WELL[name](*given)
            if name == self.method:
                answer = ANSWERS[self.answers[bad[0]]]
                return answer()
            if name == UNFIT.get(self.method):
                return np.zeros(len(given[-1]), np.bool_) if name == "filter_nodes" else NO
            return NO if name == "filter" and self.method == "reject_codes" else WELL[name](*given)

        return call


def configured(mine: Mine) -> SchedulerConfig:
    plugins = {"multiPoint": PluginSet((("Mine", 2),))}
    for method, point, more in (
        ("sort_key", "queueSort", ()),
        ("less", "queueSort", ()),
        ("bind", "bind", ("DefaultBinder",)),
    ):
        if mine.method == method:
            plugins[point] = PluginSet(tuple((name, 0) for name in ("Mine", *more)), ("*",))
    return SchedulerConfig(
        (ProfileConfig(plugins=plugins),), registry={"Mine": lambda args, handle: Guarded("Mine", mine)}
    )


async def judged(mine: Mine, names: list[str]) -> None:
    api, clock = FakeApi(), ManualClock()
    preempts = mine.method in ("add_pod", "remove_pod", "post_filter")
    for name in ("n1", "n2", "n3"):
        api.node(name)
        if preempts:
            api.pod(f"filler-{name}", cpu="1", nodeName=name)
    scheduler = Scheduler(api, clock, random.Random(3), configured(mine))
    await scheduler.start()
    try:
        for name in names:
            api.pod(name, cpu="3500m" if preempts and name in mine.answers else "100m", priority=10)
            if mine.method not in ORDERING:
                await settle()
        await clock.advance(40)
        api.pod("good-last", cpu="100m", priority=10)
        await settle()
        assert mine.called and scheduler.failure is None
        for name in (*names, "good-last"):
            if not api.where(name):
                assert name in mine.answers, f"{name} does not flow"
                said = scheduler.ask("explain", f"default/{name}", {}) or {}
                held = said.get("heldBack", {}).get("reason", "")
                told = api.condition(name).get("message", "") + held
                assert "Mine" in told or (told and mine.method in REJECTED), f"{name} has no reason"
        assert scheduler.cache.assumed == 0
        running = sorted(key for node in scheduler.columns.by_slot if node is not None for key in node.pods)
        pods = api.objects["pods"].values()
        assert running == sorted(each["metadata"]["uid"] for each in pods if each["spec"].get("nodeName"))
        mine.is_broken = False
        api.node("n4", cpu="64")
        await settle()
        await clock.advance(400)
        assert all(map(api.where, names))
    finally:
        await scheduler.stop()


@pytest.mark.parametrize("method", WELL)
@given(data=st.data())
@settings(max_examples=10)
def test_nonsense_is_that_pods_error_and_nobody_elses(method: str, data: st.DataObject) -> None:
    # From Bind, None says that the pod is bound.
    known = sorted(ANSWERS.keys() - ({"None"} if method == "bind" else set()))
    drawn = data.draw(st.lists(st.sampled_from(known), min_size=1, max_size=4), label="answers")
    answers = {f"bad-{number}": answer for number, answer in enumerate(drawn)}
    names = data.draw(st.permutations([*answers, "good-0", "good-1", "good-2"]), label="pods")
    scope = data.draw(st.sampled_from(("NODE", "CLUSTER")), label="scope")
    run_virtually(lambda: judged(Mine(method, "NODE" if method in CACHED else scope, answers), names))


def test_each_checked_method_is_drawn() -> None:
    assert set(CHECKS) - set(WELL) == {"events_to_register", "post_filter_through"}


@pytest.mark.parametrize("answer", sorted(ANSWERS))
def test_nonsense_of_the_others_is_told_by_name(answer: str) -> None:
    """`events_to_register` is asked when the scheduler is made, `post_filter_through` only with extenders."""
    guarded: Any = Guarded("Mine", type("Mine", (), {"filter": WELL["filter"]})())
    with pytest.raises(ConfigError, match='initializing plugin "Mine"'):
        guarded.guarded("events_to_register", ANSWERS[answer])()
    if answer != "pair":
        with pytest.raises(PluginError, match='running PostFilter plugin "Mine"'):
            run_virtually(guarded.guarded("post_filter_through", ANSWERS[answer]))


@pytest.mark.parametrize("method", ["bounds", "kinds_needed"])
@pytest.mark.parametrize("answer", sorted(ANSWERS))
def test_nonsense_of_what_cannot_fail_is_nothing(answer: str, method: str) -> None:
    guarded: Any = Guarded("Mine", type("Mine", (), {"filter": WELL["filter"]})())
    assert guarded.guarded(method, ANSWERS[answer])(None) == ()

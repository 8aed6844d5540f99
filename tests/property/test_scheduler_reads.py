"""Pods share a custom plugin's results only where they are equal in what it read, and the record says what decided."""

from __future__ import annotations

import copy
import random
from typing import Any, NamedTuple
from unittest.mock import patch
from zlib import crc32

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scheduler_laws import check_kept
from scheduler_reference import Lent, nodes, pod_of, specs

from minikube_py.scheduler.cache import Cache
from minikube_py.scheduler.cached_results import CachedResults
from minikube_py.scheduler.config import PluginSet, ProfileConfig
from minikube_py.scheduler.evaluate import Evaluator
from minikube_py.scheduler.framework import SKIP, Code, FitError, Normalize, Status
from minikube_py.scheduler.objects import PodInfo, project_node, project_pod
from minikube_py.scheduler.own import Guarded
from minikube_py.scheduler.profile import Profile

NO = Status(Code.UNSCHEDULABLE, "no")
READS: dict[str, Any] = {
    "nothing": lambda pod: 0,
    "spec": lambda pod: pod.spec.request("cpu"),
    "label a": lambda pod: pod.labels.get("a"),
    "label b": lambda pod: pod.labels["b"] if "b" in pod.labels else "",  # noqa: SIM401
    "labels or none": lambda pod: (pod.labels or {}).get("a"),
    "labels": lambda pod: sorted(pod.labels.items()),
    "how many": lambda pod: len(pod.labels),
    "priority": lambda pod: pod.priority,
    "name": lambda pod: pod.name,
    "text": str,
    "copy": lambda pod: copy.copy(pod).labels.get("a"),
    "deep copy": lambda pod: copy.deepcopy(pod).priority,
    "copied labels": lambda pod: sorted(pod.labels.copy()),
}


class Step(NamedTuple):
    """What is read on which nodes (those with as many pods, modulo 2), and from where: the pod as given, or the pod
    or its labels as PreFilter or an earlier call of Filter left them in the state."""

    reads: str
    parity: int
    source: str


class Drawn:
    """Its answers are checksums of what it read."""

    def __init__(self, steps: list[Step], scope: str, skips: bool) -> None:
        self.steps, self.scope, self.skips = steps, scope, skips

    def pre_filter(self, state: Any, pod: Any, columns: Any) -> tuple[None, Status | None]:
        state.write("pod", pod)
        return None, SKIP if self.skips and pod.labels.get("a") is None else None

    def _read(self, state: Any, pod: Any, node: Any) -> int:
        found = []
        for step in self.steps:
            if len(node.pods) % 2 != step.parity:
                continue
            if step.source == "state":
                pod = state.read("pod")
            elif step.source == "later":
                try:
                    pod = state.read("later")
                except KeyError:
                    state.write("later", pod)
            found.append(READS[step.reads](pod))
        return crc32(repr((node.name, len(node.pods), found)).encode())

    def filter(self, state: Any, pod: Any, node: Any) -> Status | None:
        return NO if self._read(state, pod, node) % 5 == 0 else None

    def pre_score(self, state: Any, pod: Any, columns: Any) -> Status | None:
        state.write("pod", pod)
        return SKIP if self.skips and pod.labels.get("a") is None else None

    def score(self, state: Any, pod: Any, node: Any) -> int:
        return self._read(state, pod, node) % 101


class DrawnNormalized(Drawn):
    normalize = Normalize(reverse=True)

    def score(self, state: Any, pod: Any, node: Any) -> int:
        return 7 * super().score(state, pod, node)


class DrawnNormalizing(Drawn):
    def score(self, state: Any, pod: Any, node: Any) -> int:
        return 9 * super().score(state, pod, node) - 50

    def normalize_scores(self, state: Any, pod: Any, scores: Any) -> Any:
        spread = int(scores.max() - scores.min())
        return (scores - scores.min()) * 100 // spread if spread else np.zeros_like(scores)


class Side:
    def __init__(self, plugin: Any, percentage: int) -> None:
        self.cache = Cache()
        lent: Any = Lent(self.cache)
        plugins = {"multiPoint": PluginSet(enabled=(("Drawn", 3),))}
        profile = Profile(
            ProfileConfig(plugins=plugins), lent, {"Drawn": lambda args, handle: Guarded("Drawn", plugin)}
        )
        self.evaluator = Evaluator(profile, self.cache.columns, random.Random(4), percentage)

    def choose(self, pod: PodInfo) -> Any:
        try:
            choice = self.evaluator.choose(pod)
        except FitError as error:
            return error.message, sorted(error.diagnosis.unschedulable_plugins)
        recorded = self.evaluator.score_one(pod, choice.node, choice.tops, choice.wide)
        if choice.feasible > 1:
            assert sum(score * weight for _, score, weight in recorded) == choice.score
        return choice.node.name, choice.score if choice.feasible > 1 else None, choice.feasible, recorded


STEPS = st.builds(
    Step,
    st.sampled_from(sorted(READS)),
    st.integers(0, 1),
    st.sampled_from(("pod", "state", "later")),
)
PODS = st.tuples(
    st.integers(0, 1),
    st.dictionaries(st.sampled_from("ab"), st.sampled_from("xy")),
    st.sampled_from((0, 0, 5)),
)


@pytest.mark.parametrize("kind", [Drawn, DrawnNormalized, DrawnNormalizing])
@pytest.mark.parametrize("percentage", [100, 0])
@settings(max_examples=60)
@given(
    st.lists(nodes(), min_size=1, max_size=6),
    st.lists(specs(), min_size=2, max_size=2),
    st.lists(STEPS, max_size=3),
    st.sampled_from(("NODE", "NODE", "CLUSTER")),
    st.booleans(),
    st.lists(PODS, max_size=20),
)
def test_what_a_plugin_reads_decides_who_shares_its_results(
    percentage: int,
    kind: type[Drawn],
    objs: list[dict[str, Any]],
    shapes: list[dict[str, Any]],
    steps: list[Step],
    scope: str,
    skips: bool,
    pods: list[tuple[int, dict[str, str], int]],
) -> None:
    sides = [Side(kind(steps, scope, skips), percentage) for _ in range(2)]
    for side in sides:
        for obj in objs:
            side.cache.put_node(project_node(obj))
    for i, (shape, labels, priority) in enumerate(pods):
        obj = pod_of(i, {**shapes[shape], "priority": priority})
        obj["metadata"]["labels"] = labels
        pod = project_pod(obj)
        found = sides[0].choose(pod)
        with patch.object(CachedResults, "is_worth_keeping", lambda *_: False):
            assert sides[1].choose(pod) == found
        check_kept(sides[0].evaluator, pod)
        for name in sides[0].cache.columns.by_name:
            fits = sides[1].evaluator.fits(pod, name)
            assert sides[0].evaluator.fits(pod, name) == fits
        if len(found) > 2:
            for side in sides:
                side.cache.assume(pod, found[0])


QUIET = Drawn([Step("nothing", 0, "pod")], "NODE", False)
ONE_LABEL = Drawn([Step("label a", 0, "pod")], "NODE", False)
UNLIKE = {
    "reads the spec": QUIET,
    "reads one label that no pod has": ONE_LABEL,
    "skips, and normalizes by itself": DrawnNormalizing([], "NODE", True),
}


@pytest.mark.parametrize("name", UNLIKE)
def test_pods_that_differ_elsewhere_share_results(name: str) -> None:
    side = Side(UNLIKE[name], 100)
    for i in range(20):
        allocatable = {"cpu": "4", "memory": "8Gi", "pods": "110"}
        metadata = {"name": f"n{i}", "uid": f"n{i}"}
        side.cache.put_node(project_node({"metadata": metadata, "status": {"allocatable": allocatable}}))
    for i in range(30):
        obj = pod_of(i, {"containers": [{"name": "c", "resources": {"requests": {"cpu": "100m"}}}]})
        obj["metadata"]["labels"] = {"statefulset.kubernetes.io/pod-name": f"w-{i}"}
        pod = project_pod(obj)
        side.cache.assume(pod, side.evaluator.choose(pod).node.name)
    assert (side.evaluator.reused, side.evaluator.built) == (29, 1)


class FromState:
    """Looks at the pod that PreFilter put in the state, and only where other pods run."""

    scope = "NODE"

    def pre_filter(self, state: Any, pod: Any, columns: Any) -> tuple[None, None]:
        state.write("pod", pod)
        return None, None

    def filter(self, state: Any, pod: Any, node: Any) -> Status | None:
        return NO if node.pods and state.read("pod").labels.get("a") == "x" else None


def from_state() -> tuple[Side, PodInfo, PodInfo]:
    side = Side(FromState(), 100)
    side.cache.put_node(project_node({"metadata": {"name": "n", "uid": "n"}, "status": {"allocatable": {"pods": "9"}}}))
    first, second = (copy.copy(project_pod(pod_of(i, {"containers": [{"name": "c"}]}))) for i in range(2))
    first.labels, second.labels = {"a": "x"}, {"a": "y"}
    return side, first, second


def test_the_state_is_of_the_pod_that_is_placed() -> None:
    side, first, second = from_state()
    side.cache.assume(first, side.evaluator.choose(first).node.name)
    assert side.evaluator.choose(second).state.read("pod").name == "p1"


def test_the_state_is_of_the_pod_that_is_asked_about() -> None:
    side, first, second = from_state()
    assert side.evaluator.fits(first, "n")
    side.cache.assume(first, "n")
    assert side.evaluator.fits(second, "n") and not side.evaluator.fits(first, "n")


def test_waiting_pods_that_a_plugin_may_tell_apart_are_asked_about_one_by_one() -> None:
    side = Side(ONE_LABEL, 100)
    first, second = (copy.copy(project_pod(pod_of(i, {"containers": [{"name": "c"}]}))) for i in range(2))
    apart = side.evaluator.profile.reads
    assert apart(first) == apart(first) != apart(second)
    lent: Any = Lent(side.cache)
    plain = Profile(ProfileConfig(), lent).reads
    assert plain(first) == plain(second)

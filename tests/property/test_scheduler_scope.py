"""A plugin that looks beyond single nodes decides as if nothing were kept, and costs nothing where it says Skip."""

from __future__ import annotations

import random
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scheduler_reference import Lent, nodes, pod_of, specs

from minikube_py.scheduler.cache import Cache
from minikube_py.scheduler.cached_results import CachedResults
from minikube_py.scheduler.config import PluginSet, ProfileConfig
from minikube_py.scheduler.evaluate import Evaluator
from minikube_py.scheduler.framework import SKIP, Code, FitError, PreFilterResult, Status
from minikube_py.scheduler.objects import project_node, project_pod
from minikube_py.scheduler.profile import Profile

FULL = Status(Code.UNSCHEDULABLE, "node(s) had as many pods as the others")


class Even:
    """Looks at all nodes: none may have two pods more than the emptiest, and the fullest score best. What it does of
    a pod is drawn: nothing, pinning, filtering, scoring."""

    name = "Even"

    def __init__(self, args: Any, handle: Any) -> None:
        self.columns = handle.columns
        self.does: set[str] = set()

    def pre_filter(self, state: Any, pod: Any, columns: Any) -> tuple[PreFilterResult | None, Status | None]:
        state.write("least", min(len(n.pods) for n in columns.by_slot if n is not None and n.present))
        if "pin" in self.does:
            return PreFilterResult(frozenset(("n0", "n1", "n9"))), None
        return None, None if "filter" in self.does else SKIP

    def filter(self, state: Any, pod: Any, node: Any) -> Status | None:
        if "filter" not in self.does:
            return None
        return FULL if len(node.pods) > state.read("least") + 1 else None

    def pre_score(self, state: Any, pod: Any, columns: Any) -> Status | None:
        return None if "score" in self.does else SKIP

    def score(self, state: Any, pod: Any, node: Any) -> int:
        return 7 * len(node.pods) - 3

    def normalize_scores(self, state: Any, pod: Any, scores: Any) -> Any:
        spread = int(scores.max() - scores.min())
        return (scores - scores.min()) * 100 // spread if spread else np.zeros_like(scores)


class Side:
    def __init__(self, percentage: int) -> None:
        self.cache = Cache()
        lent: Any = Lent(self.cache)
        plugins = {"multiPoint": PluginSet(enabled=(("Even", 3),))}
        profile = Profile(ProfileConfig(plugins=plugins), lent, {"Even": Even})
        self.evaluator = Evaluator(profile, self.cache.columns, random.Random(4), percentage)
        self.even: Any = profile.plugin("Even")

    def choose(self, pod: Any) -> Any:
        try:
            choice = self.evaluator.choose(pod)
        except FitError as error:
            return error.message, sorted(error.diagnosis.unschedulable_plugins)
        told = self.evaluator.score_one(pod, choice.node, choice.tops, choice.wide)
        # The only node that fits need not be scored, and is where its score is known already.
        score = choice.score if choice.feasible > 1 else None
        return choice.node.name, score, choice.evaluated, choice.feasible, told


@pytest.mark.parametrize("percentage", [100, 0])
@settings(max_examples=60)
@given(
    st.lists(nodes(), min_size=1, max_size=6),
    st.lists(specs(), min_size=2, max_size=2),
    st.lists(st.tuples(st.integers(0, 1), st.sets(st.sampled_from(("pin", "filter", "score")))), max_size=25),
)
def test_what_looks_further_decides_as_if_nothing_were_kept(
    percentage: int, objs: list[dict[str, Any]], shapes: list[dict[str, Any]], steps: list[tuple[int, set[str]]]
) -> None:
    sides = Side(percentage), Side(percentage)
    for side in sides:
        for obj in objs:
            side.cache.put_node(project_node(obj))
    for i, (shape, does) in enumerate(steps):
        pod = project_pod(pod_of(i, shapes[shape]))
        sides[0].even.does = sides[1].even.does = does
        found = sides[0].choose(pod)
        with patch.object(CachedResults, "is_worth_keeping", lambda *_: False):
            assert sides[1].choose(pod) == found
        if len(found) > 2:
            for side in sides:
                side.cache.assume(pod, found[0])


def test_a_plugin_that_skips_leaves_reuse_on() -> None:
    side = Side(100)
    for i in range(20):
        side.cache.put_node(project_node(node(i)))
    for i in range(30):
        pod = project_pod(pod_of(i, {"containers": [{"name": "c", "resources": {"requests": {"cpu": "100m"}}}]}))
        side.cache.assume(pod, side.evaluator.choose(pod).node.name)
    assert (side.evaluator.reused, side.evaluator.built) == (29, 1)


def node(i: int) -> dict[str, Any]:
    allocatable = {"cpu": "4", "memory": "8Gi", "pods": "110"}
    return {"metadata": {"name": f"n{i}", "uid": f"n{i}"}, "status": {"allocatable": allocatable}}

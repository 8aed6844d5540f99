"""Decisions over columns against the plain reference: the same nodes, scores and reasons, whatever went before."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from scheduler_reference import STEPS, Run, nodes, specs

from minikube_py.scheduler.best import BLOCK, BestScores


@settings(max_examples=100)
@given(st.lists(nodes(), min_size=1, max_size=6), st.lists(specs(), min_size=4, max_size=4), STEPS, st.integers(0, 9))
def test_every_decision_is_the_references(
    first: list[dict[str, Any]], shapes: list[dict[str, Any]], steps: list[tuple[str, Any]], seed: int
) -> None:
    Run(seed).play(first, shapes, steps)


@settings(max_examples=60)
@given(st.data(), st.integers(1, 3 * BLOCK))
def test_best_scores_are_those_of_a_plain_search(data: st.DataObject, size: int) -> None:
    rng = random.Random(data.draw(st.integers(0, 99)))
    plain = [rng.randrange(-1, 4) for _ in range(size)]
    best = BestScores(np.array(plain, np.int64))
    for _ in range(data.draw(st.integers(0, 30))):
        if rng.random() < 0.2:
            slots = rng.sample(range(size), min(size, 20))
            values = [rng.randrange(-1, 5) for _ in slots]
            best.set_many(np.array(slots, np.int64), np.array(values, np.int64))
            for slot, value in zip(slots, values, strict=True):
                plain[slot] = value
        else:
            slot, value = rng.randrange(size), rng.randrange(-1, 5)
            best.set(slot, value)
            plain[slot] = value
        assert best.best() == max(plain)
        assert best.feasible == sum(value >= 0 for value in plain)
        picked = best.pick(rng)
        assert (picked == -1) if max(plain) < 0 else plain[picked] == max(plain)


def test_ties_are_broken_evenly() -> None:
    scores = np.zeros(2 * BLOCK, np.int64)
    winners = [3, BLOCK - 1, BLOCK, 2 * BLOCK - 1]
    scores[winners] = 9
    best, rng = BestScores(scores), random.Random(7)
    counts = dict.fromkeys(winners, 0)
    for _ in range(4000):
        counts[best.pick(rng)] += 1
    assert all(880 < count < 1120 for count in counts.values()), counts

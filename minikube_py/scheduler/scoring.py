"""Score and NormalizeScore over many nodes at once, and the resulting decision."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import repeat
from typing import NamedTuple

import numpy as np

from minikube_py.scheduler.columns import Nodes
from minikube_py.scheduler.framework import MAX_NODE_SCORE, BoolArray, CycleState, IntArray, PluginError
from minikube_py.scheduler.objects import NodeInfo, PodInfo
from minikube_py.scheduler.preparing import Scorer

NO_SCORES: Mapping[str, int] = {}


class Choice(NamedTuple):
    """`evaluated` and `feasible` are node counts; `score` is INFEASIBLE if only one node fitted, unscored.

    `tops`: by plugin, the maximum used to normalise. `wide`: by plugin that reads more than the node, its normalised
    score. `extended`: the extenders' (extender, score, weight)."""

    node: NodeInfo
    state: CycleState
    score: int
    evaluated: int
    feasible: int
    tops: Mapping[str, int] = NO_SCORES
    wide: Mapping[str, int] = NO_SCORES
    extended: tuple[tuple[str, int, int], ...] = ()


def raw_scores(
    scorer: Scorer, state: CycleState, pod: PodInfo, nodes: Nodes, mask: BoolArray | None = None
) -> IntArray | None:
    """The plugin's raw scores; None for 0 everywhere. The per-node form is not called where `mask` says that a node
    does not fit: upstream never does, and it may not be able to score."""
    many = getattr(scorer.plugin, "score_nodes", None)
    if many is not None:
        found: IntArray | None = many(state, pod, nodes)
        return found
    one = scorer.plugin.score
    fits = repeat(True) if mask is None else mask.tolist()
    scores = [one(state, pod, node) if fit and node is not None else 0 for node, fit in zip(nodes.infos(), fits)]
    return np.array(scores, np.int64)


def normalized(scorer: Scorer, raw: IntArray | None, state: CycleState, pod: PodInfo, size: int) -> IntArray:
    """Scores after the plugin's NormalizeScore. Raises: PluginError if not within 0 to 100."""
    if raw is None and scorer.normalize is not None:
        return np.full(size, MAX_NODE_SCORE if scorer.normalize.reverse else 0, np.int64)
    scores = np.zeros(size, np.int64) if raw is None else raw
    own = getattr(scorer.plugin, "normalize_scores", None)
    if scorer.normalize is not None:
        scores = scorer.normalize.apply(scores)
    elif own is not None:
        scores = np.asarray(own(state, pod, scores), np.int64)
    if size and not (scores.min() >= 0 and scores.max() <= MAX_NODE_SCORE):
        wrong = int(scores.min()) if scores.min() < 0 else int(scores.max())
        text = f'plugin "{scorer.plugin.name}" returns an invalid score {wrong}'
        raise PluginError(f"{text}, it should in the range of [0, {MAX_NODE_SCORE}] after normalizing")
    return scores


def is_plain(scorer: Scorer) -> bool:
    """Whether a node's score is independent of the other nodes."""
    return scorer.normalize is None and not callable(getattr(scorer.plugin, "normalize_scores", None))


class Scored(NamedTuple):
    """`totals`: a node's weighted sum. `tops`: as in `Choice`. `wide`: the scores of plugins that are not kept."""

    totals: IntArray
    tops: dict[str, int]
    wide: dict[str, IntArray]

    def wide_of(self, place: int) -> dict[str, int]:
        """As `Choice.wide`, of one of the nodes."""
        return {name: int(scores[place]) for name, scores in self.wide.items()}


def weighed(
    scorers: Iterable[Scorer], state: CycleState, pod: PodInfo, nodes: Nodes, size: int
) -> Iterator[tuple[Scorer, IntArray | None, IntArray]]:
    """Each with its raw scores, as of `raw_scores`, and the normalised ones. Raises: PluginError."""
    for scorer in scorers:
        raw = raw_scores(scorer, state, pod, nodes)
        yield scorer, raw, normalized(scorer, raw, state, pod, size)


def scored(
    scorers: Iterable[Scorer], state: CycleState, pod: PodInfo, nodes: Nodes, size: int, kept: frozenset[str]
) -> Scored:
    """`kept`: the plugins whose scores can be computed again for a node alone. Raises: PluginError."""
    found = Scored(np.zeros(size, np.int64), {}, {})
    for scorer, raw, scores in weighed(scorers, state, pod, nodes, size):
        name = scorer.plugin.name
        found.totals[:] += scores * scorer.weight
        if raw is not None and scorer.normalize is not None:
            found.tops[name] = int(raw.max())
        if name not in kept:
            found.wide[name] = scores
    return found

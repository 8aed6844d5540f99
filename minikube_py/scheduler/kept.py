"""What the evaluator keeps of one signature: all nodes, evaluated."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from minikube_py.scheduler.best import BestScores
from minikube_py.scheduler.filtering import Prepared
from minikube_py.scheduler.framework import Diagnosis, IntArray
from minikube_py.scheduler.profile import Scorer

NO_TOPS: Mapping[str, int] = {}


class Raw(NamedTuple):
    """Scores that are yet to be normalised."""

    scorer: Scorer
    scores: IntArray


class Kept:
    """All nodes evaluated for one signature, as of `version` of the columns.

    `base` are the weighted scores that need no normalising, INFEASIBLE where the pod does not fit; `raws` the others.
    `silent` are scorers that gave 0 everywhere: they add `constant`; the first that speaks up spoils this result."""

    __slots__ = (
        "base",
        "best",
        "constant",
        "diagnosis",
        "plain",
        "prepared",
        "raws",
        "silent",
        "size",
        "tops",
        "version",
    )

    def __init__(self, prepared: Prepared) -> None:
        self.prepared = prepared
        self.version = 0
        self.size = 0
        self.base: IntArray = np.zeros(0, np.int64)
        self.best: BestScores = BestScores(self.base)
        self.plain: list[tuple[Callable[..., int], int]] = []
        self.silent: list[Callable[..., int]] = []
        self.raws: list[Raw] = []
        self.constant = 0
        self.tops: Mapping[str, int] = NO_TOPS
        self.diagnosis: tuple[int, Diagnosis] | None = None

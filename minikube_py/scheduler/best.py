"""The maximum of many scores, updated in time independent of their number.

Scores are stored in blocks, each with its maximum and how often it occurs. A changed score costs one scan of its block;
a pick, one scan of the block list. Ties are broken uniformly at random over all slots that share the maximum.
"""

from __future__ import annotations

import random

import numpy as np

from minikube_py.scheduler.framework import IntArray

BLOCK = 512
INFEASIBLE = -1


class BestScores:
    """`totals`: one score per slot, INFEASIBLE where the pod does not fit. Modified only by `set` and `set_many`."""

    __slots__ = ("_maxima", "_ties", "feasible", "totals")

    def __init__(self, totals: IntArray) -> None:
        self.totals = totals
        self.feasible = int(np.count_nonzero(totals >= 0))
        blocks = range(0, len(totals), BLOCK)
        self._maxima = [INFEASIBLE] * len(blocks)
        self._ties = [0] * len(blocks)
        for block in range(len(blocks)):
            self._look(block)

    def _look(self, block: int) -> None:
        part = self.totals[block * BLOCK : block * BLOCK + BLOCK]
        top = int(part.max())
        self._maxima[block] = top
        self._ties[block] = int(np.count_nonzero(part == top)) if top >= 0 else 0

    def set(self, slot: int, score: int) -> None:
        block = slot // BLOCK
        before = int(self.totals[slot])
        if before == score:
            return
        self.totals[slot] = score
        self.feasible += (score >= 0) - (before >= 0)
        top = self._maxima[block]
        if score > top:
            self._maxima[block], self._ties[block] = score, 1
        elif score == top:
            self._ties[block] += 1
        elif before == top:
            if self._ties[block] > 1:
                self._ties[block] -= 1
            else:
                self._look(block)

    def set_many(self, slots: IntArray, scores: IntArray) -> None:
        """`slots` must not repeat."""
        before = np.count_nonzero(self.totals[slots] >= 0)
        self.totals[slots] = scores
        self.feasible += int(np.count_nonzero(scores >= 0) - before)
        for block in sorted(set((slots // BLOCK).tolist())):
            self._look(block)

    def best(self) -> int:
        """The highest score; INFEASIBLE if nothing fits."""
        return max(self._maxima, default=INFEASIBLE)

    def pick(self, rng: random.Random) -> int:
        """A random slot with the highest score; -1 if nothing fits."""
        top = self.best()
        if top < 0:
            return -1
        maxima, ties = self._maxima, self._ties
        if len(maxima) == 1:
            block, chosen = 0, ties[0]
            chosen = rng.randrange(chosen) if chosen > 1 else 0
        else:
            blocks = [i for i, m in enumerate(maxima) if m == top]
            total = sum(ties[i] for i in blocks)
            chosen = rng.randrange(total) if total > 1 else 0
            for block in blocks:
                if chosen < ties[block]:
                    break
                chosen -= ties[block]
        start = block * BLOCK
        part = self.totals[start : start + BLOCK]
        if chosen == 0:
            return start + int(part.argmax())
        return start + int(np.flatnonzero(part == top)[chosen])

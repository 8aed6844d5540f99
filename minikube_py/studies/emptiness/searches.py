"""The studies `lazy-skyline`, `lazy-requests` and `reasons`: fronts that learn from searches; every opening counts.

A search asks a front for one request, opens the shards that pass, and tells the front which ones were opened in vain;
then some nodes change. All of that is one turn, whose CPU time is measured in whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from minikube_py.index.filters.front import Bools, holding
from minikube_py.index.structure import IntArray
from minikube_py.lab.study.contest import Batch
from minikube_py.lab.study.design import Design, Levels, StudyError, Unit
from minikube_py.lab.study.experiment import Report
from minikube_py.studies.emptiness.study import Behind, Changes, Emptiness, Priced, World
from minikube_py.studies.emptiness.table import Table

FIRST: Final = "@first"
NEXT: Final = "@next"
"""After the name of a front: its searches end at the first shard that has room, and begin at the first of all, or where
the last one found room (as kube-scheduler's `nextStartNodeIndex`)."""
OPENED, READ, UNTRIED = 1, 2, 4
"""Of a request and a shard: it was opened for the request; the front had its nodes read, in order to answer or after an
opening in vain; the search ended before it."""
LATER: Final = (
    "turn_us", "opened_in_all", "bytes", *(f"whole_cost_at_{price}_us" for price in (10, 50, 100, 200, 400)),
)  # fmt: skip
"""Figures that are judged apart for the last batches of a run."""
Marks = npt.NDArray[np.int8]


class Turn(NamedTuple):
    """One request, which shards have room for it, and the changes that follow."""

    request: IntArray
    right: Bools
    changes: Changes


class TurnByTurn(World):
    """Levels: `changes`, how many nodes change after each request. Of openb and DLRM it may be one more or some, as a
    pod that leaves and one that arrives are two changes; what is over is left out of the next turn. `tries`: as of
    `Arrivals`. `bound`: "no", or the pod that is asked for is the one that arrives, and is bound where a search from
    the "first" shard or from the "next" one finds room. The design's `burn_in`: changes before the first batch."""

    begins = _start = 0
    """Where a search for the first turn begins, if it goes on where the last one found room."""

    def settle(self, design: Design, levels: Levels, cluster: Any) -> None:
        cluster.tries = float(levels.get("tries", 0))
        left = int(design.raw.get("burn_in", 0))
        while left > 0:
            cluster.requests(1)
            left -= len(self._changes(levels, cluster, left))
        self.begins = self._start

    def batch(self, design: Design, levels: Levels, cluster: Any) -> Batch:
        turns: list[Turn] = []
        each, made = int(levels["changes"]), 0
        for number in range(1, 1 + int(design.raw["requests_per_batch"])):
            turns.append(self._turn(levels, cluster, number * each - made))
            made += len(turns[-1].changes)
        return Batch(turns, np.array([turn.right for turn in turns]))

    def _turn(self, levels: Levels, cluster: Any, count: int) -> Turn:
        request = np.array(cluster.requests(1), dtype=np.int64)
        right = holding(cluster.points, self.shards, request)[0]
        return Turn(request[0], right, self._changes(levels, cluster, count))

    def _changes(self, levels: Levels, cluster: Any, count: int) -> Changes:
        order = levels.get("bound", "no")
        if order == "no":
            return cluster.change(count) if count > 0 else []  # type: ignore[no-any-return]
        changes: Changes = cluster.bind(self.shards, self._start)
        if order == "next" and cluster.placed >= 0:
            self._start = cluster.placed % self.shards
        return changes


class Searching(Behind):
    """Whoever searches behind a front: is asked turns, and answers by marks, requests x shards. A front of one's own
    may lack `ask`, `in_vain` and `visited`: it is asked for all shards, hears of no opening, and reads none."""

    def __init__(self, front: Any, columns: int | None, order: str = "", start: int = 0) -> None:
        """`order`: FIRST or NEXT; "" opens all that pass."""
        super().__init__(front, columns)
        self._order, self._start = order, start if order == NEXT else 0
        self._ask = getattr(front, "ask", partial(Table.ask, front))
        self._tell = getattr(front, "in_vain", None)
        self._visited: Bools = getattr(front, "visited", np.zeros(0, dtype=np.bool_))

    def answer(self, asked: Any) -> Marks:
        marks: Marks = np.zeros((len(asked), len(asked[0].right) if len(asked) else 0), dtype=np.int8)
        made = 0
        for turn, row in zip(asked, marks):
            self._search(turn, row)
            super().change(turn.changes)
            made += len(turn.changes)
        self._changes = made
        return marks

    def _search(self, turn: Turn, row: Marks) -> None:
        self._visited[:] = False
        asked = turn.request[: self.columns]
        start, last = self._start, -1
        for shard in self._ask(asked, start) if start else self._ask(asked):
            if not last < (last := (shard - start) % len(row)) or not 0 <= shard < len(row):
                raise StudyError(f"its `ask` names shard {shard} of {len(row)} out of order or twice")
            row[shard] = OPENED
            if not turn.right[shard]:
                if self._tell:
                    self._tell(shard, asked)
            elif self._order:
                row[shard + 1 : start if shard < start else None] = UNTRIED
                row[: start if shard >= start else 0] = UNTRIED
                if self._order == NEXT:
                    self._start = shard
                break
        row[np.flatnonzero(self._visited)] |= READ

    def change(self, changes: Changes) -> None:
        """Each turn made its own."""


class Searches(Priced):
    """See docs/studies/lazy-skyline.md and lazy-requests.md."""

    settings = tuple(each for each in Priced.settings if each != "changes_per_batch")
    shares: dict[str, str] = {}
    costs = {"cost": "opened", "whole_cost": "opened_in_all"}
    words = {
        **{name: text for name, text in Emptiness.words.items() if name != "let_through"},
        "turn_us": "CPU time of a turn: one request is asked, the shards opened in vain are formed again by a front "
        "that does so, and the changes that follow are taken in",
        "opened": "shards opened for a request",
        "in_vain": "of them, those that have no room",
        "opened_in_all": "shards opened for a request, and those whose nodes the front had to have read in order to "
        "answer: all when a request is learned, one when it is formed again before it passes. One that is both counts "
        "once",
        "rows_read": "nodes that a front looked at again for each node that changed, for whatever reason",
    }

    def world(self, design: Design, levels: Levels, seed: int) -> TurnByTurn:
        return TurnByTurn(design, levels, seed)

    def candidate(self, name: str, world: Any, design: Design, levels: Levels) -> Searching:
        order = next((each for each in (FIRST, NEXT) if each in name), "")
        behind = super().candidate(name.partition(order or FIRST)[0], world, design, levels)
        return Searching(behind.front, behind.columns, order, world.begins)

    def mistakes(self, batch: Batch, answers: Any) -> int:
        """Requests for which a shard with room was passed over."""
        passed_over = batch.right[: len(answers)] & (answers & (OPENED | UNTRIED) == 0)
        return int(np.count_nonzero(passed_over.any(axis=1)))

    def score(self, batch: Batch, answers: Any) -> Mapping[str, float]:
        opened, right = (answers & OPENED) > 0, batch.right[: len(answers)]
        counted = {"opened": opened, "in_vain": opened & ~right, "opened_in_all": (answers & (OPENED | READ)) > 0}
        means = {name: np.count_nonzero(each) / max(1, len(answers)) for name, each in counted.items()}
        return {**means, "empty": float((~right).mean())}

    def spent_us(self, figures: dict[str, list[float]], asked: Sequence[int]) -> list[float]:
        """No change follows a batch: whole turns, and for each its share of what was put off beyond them."""
        parts = zip(figures.pop("answer_us"), figures.pop("change_us"), asked)
        figures["turn_us"] = [round(turn + late / max(1, turns), 6) for turn, late, turns in parts]
        return figures["turn_us"]


class LaterSearches(Searches):
    """Figures of whole turns once more, as `later_NAME`, of the batches from number `settled_after` on alone: a front
    that learns has learned by then what the earlier batches can teach. Without `tries` the cluster is emptier, too."""

    settings = (*Searches.settings, "settled_after")
    later: Sequence[str] = LATER
    shares = {f"later_{name}": "settled" for name in LATER}
    words = {**Searches.words, "later_": "the figure that follows, of the last batches alone"}

    def measure(self, design: Design, unit: Unit) -> Report:
        report = super().measure(design, unit)
        for each in report["candidates"].values():
            figures = each["figures"]
            # Shares of nothing have no value.
            figures["settled"] = [float(number >= design.raw["settled_after"]) for number in range(len(each["asked"]))]
            figures |= {f"later_{name}": figures[name] for name in self.later if name in figures}
        return report


class LevelSearches(LaterSearches):
    """Of clusters that stay as full as they are; how full they are is measured in the last batches, too."""

    settings = (*LaterSearches.settings, "burn_in")
    later = (*LATER, "in_vain", "empty", "found")
    shares = {f"later_{name}": "settled" for name in later}
    words = {**LaterSearches.words, "found": "the share of requests for which some node has room"}

    def score(self, batch: Batch, answers: Any) -> Mapping[str, float]:
        found = batch.right[: len(answers)].any(axis=1)
        return {**super().score(batch, answers), "found": float(found.mean())}

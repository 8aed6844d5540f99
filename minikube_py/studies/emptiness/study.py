"""The study `emptiness`: which front best predicts that a shard has no node with all a pod requests?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from minikube_py.errors import RequestError
from minikube_py.index.filters.front import Bools, Counting, Front, holding
from minikube_py.index.structure import IntArray, Point
from minikube_py.lab import pod_lists
from minikube_py.lab.study.checking import Needs
from minikube_py.lab.study.contest import Batch, Contest
from minikube_py.lab.study.design import Design, Levels, StudyError, Unit
from minikube_py.lab.study.experiment import CHECKOUT, Absent, Report
from minikube_py.studies.bloom.workload import SYNTHETIC, Cluster
from minikube_py.studies.emptiness.arrivals import Arrivals
from minikube_py.studies.emptiness.compiled import front_of
from minikube_py.studies.emptiness.dlrm import RULES, DlrmCluster
from minikube_py.studies.emptiness.openb import OpenbCluster

Changes = Sequence[tuple[int, Point]]
KNOWN = "@known"
"""After the name of a front that learns requests: it has those that can be known beforehand."""


def cluster_of(design: Design, levels: Levels, seed: int) -> Cluster | OpenbCluster | DlrmCluster:
    """Raises: StudyError for rules that the cluster does not have."""
    listed, rules, packed = str(levels["list"]), str(levels.get("rules", "none")), levels["policy"] == "packed"
    if rules not in (known := RULES if listed == "dlrm" else RULES[: 1 + (listed != "synthetic")]):
        raise StudyError(f"there are no rules {rules!r} of {listed}: there are {', '.join(known)}")
    if listed == "synthetic":
        return Cluster(design, levels, seed)
    if listed == "dlrm":
        return DlrmCluster(rules, int(levels["n"]), int(levels["arrived"]), packed, seed)
    return OpenbCluster(listed, int(levels["arrived"]), packed, seed, rules == "labels")


def needs_of(levels: Levels) -> Needs:
    """Of any study of these clusters."""
    listed = levels.get("list")
    settings, factors = ["batches", "changes_per_batch"], ["list", "policy"]
    levels_there = {"list": ("synthetic", "dlrm", *pod_lists.names()), "policy": ("packed", "spread")}
    if listed == "synthetic":
        settings += SYNTHETIC
        factors += ["n", "d", "shards", "correlation", "utilisation", "repetition", "placement"]
    else:
        factors += ["arrived", *(["n"] if listed == "dlrm" else [])]
    return Needs(settings, factors, levels_there)


class World:
    """A cluster, its requests by batch, and its changes after each. `resources`: how many columns are amounts."""

    def __init__(self, design: Design, levels: Levels, seed: int) -> None:
        cluster = cluster_of(design, levels, seed)
        self.resources = cluster.points.shape[1] if isinstance(cluster, Cluster) else cluster.resources
        self.shards = min(int(levels["shards"]), len(cluster.points))
        self.settle(design, levels, cluster)
        self._points = cluster.points.copy()
        self.known: IntArray | None = cluster.known() if isinstance(cluster, Arrivals) else None
        """The requests that can be known beforehand."""
        self.batches = [self.batch(design, levels, cluster) for _ in range(int(design.raw["batches"]))]

    def settle(self, design: Design, levels: Levels, cluster: Any) -> None:
        """What happens before anybody sees the cluster."""

    def batch(self, design: Design, levels: Levels, cluster: Any) -> Batch:
        """The next one; leaves the cluster as it is after it."""
        asked = np.array(cluster.requests(int(design.raw["requests_per_batch"])), dtype=np.int64)
        right = holding(cluster.points, self.shards, asked)
        return Batch(asked, right, cluster.change(int(design.raw["changes_per_batch"])))

    @property
    def points(self) -> IntArray:
        """A copy for whoever asks: a front may keep and change what it is given."""
        return self._points.copy()


class Behind:
    """A front as a candidate. `columns`: of points and requests, the leading ones that it knows; all by default."""

    def __init__(self, front: Front, columns: int | None = None) -> None:
        self.front: Any = front
        self.columns = columns
        self._read, self._changes = getattr(front, "rows_read", 0), 0

    def answer(self, asked: Any) -> Any:
        return self.front.passing(asked[:, : self.columns])

    def change(self, changes: Changes) -> None:
        put, columns = self.front.put, self.columns
        many = getattr(self.front, "put_many", None)
        if many is not None:
            many([(slot, point[:columns]) for slot, point in changes])
        else:
            for slot, point in changes:
                put(slot, point[:columns])
        self._changes = len(changes)

    def figures(self) -> Mapping[str, float]:
        size = self.front.size_bytes()
        shared = getattr(self.front, "table_bytes", None)
        table = {} if shared is None else {"table_bytes": shared()}
        if not isinstance(self.front, Counting):
            return {"bytes": size, "held_bytes": size}
        read, self._read = self.front.rows_read - self._read, self.front.rows_read
        each = read / max(1, self._changes)
        return {"bytes": size, "held_bytes": self.front.held_bytes(), "rows_read": each, **table}


class Emptiness(Contest):
    """See docs/studies/emptiness.md."""

    name = "emptiness"
    title = "Fronts that know whether a shard has room for a pod"
    text, design = CHECKOUT / "docs/studies/emptiness.md", CHECKOUT / "docs/studies/emptiness.toml"
    packaged = Path(__file__).with_name("design.toml")
    settings: Sequence[str] = ("batches", "requests_per_batch", "changes_per_batch", *SYNTHETIC)
    shares = {"let_through": "empty"}
    words = {
        "shard": "a part of the nodes that is opened as a whole; node i is in shard i modulo their number",
        "front": "what stands before the shards and says which of them need not be opened for a request",
        "let_through": "of the shards that hold no node for a request, the share that the front did not rule out",
        "bytes": "what has to be at hand in order to ask the front; `held_bytes`: with what its upkeep needs",
        "rows_read": "nodes that a front looked at again for each node that changed",
        "empty": "the share of shards that are full for a request: they hold no node with room for it. The registered "
        "predictions and tables call these shards empty",
    }
    mode_notes = {"quick": "Quick mode: 5 of the 23 lists, one size of the synthetic grid, 8 clusters: a first answer."}

    def needs(self, levels: Levels) -> Needs:
        settings, factors, there = needs_of(levels)
        read = [name for name in (*settings, "requests_per_batch") if name in self.settings]
        return Needs(read, (*factors, "shards"), there)

    def world(self, design: Design, levels: Levels, seed: int) -> World:
        return World(design, levels, seed)

    def candidate(self, name: str, world: World, design: Design, levels: Levels) -> Behind:
        base, beforehand, form = name.partition(KNOWN)
        plain = (base + form).replace("@resources", "")
        columns = world.resources if plain != base + form else None
        try:
            front = front_of(plain, world.points[:, :columns], world.shards)
        except RequestError as error:
            raise Absent(str(error)) from error
        if beforehand:
            if world.known is None or not hasattr(front, "table_bytes"):
                raise Absent(f"{base} learns no requests, or those of this cluster are not known beforehand")
            # They are learned as it is built.
            getattr(front, "begin", front.passing)(np.unique(world.known[:, :columns], axis=0))
        return Behind(front, columns)

    def mistakes(self, batch: Batch, answers: Bools) -> int:
        """Requests for which a shard with a fitting node was excluded."""
        return int(np.count_nonzero((batch.right[: len(answers)] & ~answers).any(axis=1)))

    def score(self, batch: Batch, answers: Bools) -> Mapping[str, float]:
        empty = ~batch.right[: len(answers)]
        let, opened, total = (int(np.count_nonzero(each)) for each in (answers & empty, answers, empty))
        share = total / max(1, empty.size)
        return {"let_through": let / max(1, total), "opened": opened / max(1, len(answers)), "empty": share}


class Further(Emptiness):
    """A later question to the same fronts, by a design file of its own."""

    name = title = ""
    mode_notes = {}


class FirstFit(Further):
    """With the figure `opened_first`: the shards opened if they are tried in order, up to the first that has room."""

    words = {
        **Emptiness.words,
        "opened_first": "shards opened for a request if those that pass are tried in order, and the first that has "
        "room ends the search",
    }

    def score(self, batch: Batch, answers: Bools) -> Mapping[str, float]:
        right = batch.right[: len(answers)]
        earlier = np.cumsum(right, axis=1) - right == 0
        return {**super().score(batch, answers), "opened_first": float((answers & earlier).sum(axis=1).mean())}


class Priced(Further):
    """With the figures `cost_at_P_us`: what a request, a change and the shards that it opens take in all, where opening
    one takes P; for each of the design's `prices_us`."""

    settings = (*Emptiness.settings, "prices_us")
    costs: Mapping[str, str] = {"cost": "opened"}
    """By the first word of a figure of cost: which figure counts the shards that are opened."""

    def measure(self, design: Design, unit: Unit) -> Report:
        report = super().measure(design, unit)
        for each in report["candidates"].values():
            figures = each["figures"]
            spent_us = self.spent_us(figures, each["asked"])
            for cost, counted in self.costs.items():
                for price in design.raw["prices_us"]:
                    costs = [round(spent + price * opened, 6) for spent, opened in zip(spent_us, figures[counted])]
                    figures[f"{cost}_at_{price:g}_us"] = costs
        return report

    def spent_us(self, figures: dict[str, list[float]], asked: Sequence[int]) -> list[float]:
        """By batch, the CPU time of a request and what follows it."""
        return [answer + change for answer, change in zip(figures["answer_us"], figures["change_us"])]


class PricedFirstFit(Priced, FirstFit):
    """Both prices: of all shards that pass (`cost_at_P_us`), and of a first fit (`first_cost_at_P_us`)."""

    costs = {"cost": "opened", "first_cost": "opened_first"}


class ByRequests(PricedFirstFit):
    """With the figure `table_bytes`."""

    words = {
        **PricedFirstFit.words,
        "table_bytes": "of the bytes, those of the requests that the front knows, once for all shards",
    }

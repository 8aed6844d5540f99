"""The study `prediction`: a cluster's gain in reservable CPU, and its price in violations and evictions, when it relies
on a predictor."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from minikube_py.lab.prediction.generator import Generator, Parameters, packaged
from minikube_py.lab.study.contest import Batch, Contest
from minikube_py.lab.study.design import Design, Levels, StudyError
from minikube_py.lab.study.experiment import CHECKOUT, Absent
from minikube_py.scheduler.configuration.merging import ConfigError
from minikube_py.studies.prediction import day
from minikube_py.studies.prediction.cluster import (
    PLENTY,
    SCORERS,
    Cluster,
    Days,
    Outcome,
    RealDays,
    Size,
    World,
    faults,
)
from minikube_py.studies.prediction.day import Day
from minikube_py.studies.prediction.titles import OF_CURVES, TITLES

ENVIRONMENT: Final = "MINIKUBE_PY_DATA"


@lru_cache(maxsize=2)
def half(held_out: bool) -> Day:
    """Of the real day, that used for fitting or the other. Raises: StudyError."""
    folder = os.environ.get(ENVIRONMENT)
    if not folder:
        raise StudyError(
            "usage `replayed` needs the published files of cluster-trace-v2026-GenAI; "
            f"name their folder in ${ENVIRONMENT}"
        )
    return day.read(Path(folder)).half(held_out)


def days(usage: str, busy: float, seed: int) -> Days:
    """Raises: StudyError."""
    if usage == "replayed":
        return RealDays(half(True), seed)
    if usage == "tuning":
        return RealDays(half(False), seed)
    kinds: Mapping[str, Mapping[str, Any]] = {
        "fitted": {},
        "busy": {"mean": busy},
        "alone": {"alone": True},
        "growing": {"parameters": growing()},
    }
    if usage not in kinds:
        raise StudyError(f"there is no usage {usage!r}; there are replayed, tuning, {', '.join(kinds)}")
    return Generator(f"prediction {seed}", **kinds[usage])


def growing() -> Parameters:
    """Made, not fitted: each pod starts with half the memory, and takes half of what it reserves more in the day."""
    fitted = packaged()
    return replace(fitted, start=[each / 2 for each in fitted.start], drift=[0.5] * len(fitted.drift))


class OneDay:
    """A one-batch world: one day of one cluster."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.batches: Sequence[Batch] = (Batch(("day",), (None,)),)


class Believer:
    """A cluster that relies on one predictor."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def answer(self, asked: Any) -> list[Outcome]:
        return [self._cluster.run()]

    def change(self, changes: Any) -> None:
        """A day is over."""

    def figures(self) -> Mapping[str, float]:
        return {}


class Prediction(Contest):
    """See docs/studies/prediction.md."""

    name = "prediction"
    title = "What a cluster gains and pays when it believes a predictor"
    text, design = CHECKOUT / "docs/studies/prediction.md", CHECKOUT / "docs/studies/prediction.toml"
    packaged = Path(__file__).with_name("design.toml")
    settings: Sequence[str] = ("size", "busy", "settings")
    optional = ("settings",)
    titles = TITLES
    words = {
        "usable": "CPU that pods have reserved, as a share of what the nodes have",
        "used": "CPU that pods really used, as a share of what the nodes have",
        "violations": "share of minutes of nodes in which pods wanted more CPU than the node has",
        "slowed": "share of the CPU that pods wanted and did not get",
        "evictions": "pods evicted for want of memory, of 100 that were placed",
    }
    mode_notes = {
        "quick": "Quick mode: 8 clusters, the replayed day and a busier generated one."
    }

    def world(self, design: Design, levels: Levels, seed: int) -> OneDay:
        size = Size(**design.raw["size"])
        return OneDay(World(size, days(str(levels["usage"]), float(design.raw["busy"]), seed), seed))

    def candidate(self, name: str, world: OneDay, design: Design, levels: Levels) -> Believer:
        known: Mapping[str, Any] = design.raw.get("settings", {}).get(name, {})
        predictor, _, scorer = name.partition("+") if ":" not in name else (name, "", "")
        if scorer and scorer not in SCORERS:
            raise Absent(f"there is no score {scorer!r}; there are {', '.join(SCORERS)}")
        try:
            unseen = known.get("unseen", "memory" if levels.get("binds") == "cpu" else "")
            using = (known.get("predictor", predictor), known.get("args", {}), scorer, unseen)
            made = Cluster(world.world, *using)
        except ConfigError as error:
            raise Absent(str(error)) from error
        return Believer(made)

    def mistakes(self, batch: Batch, answers: Sequence[Outcome]) -> int:
        return sum(bool(faults(each)) for each in answers)

    def score(self, batch: Batch, answers: Sequence[Outcome]) -> Mapping[str, float]:
        (outcome,) = answers
        return {name: getattr(outcome, name) for name in (*self.words, "placed")}


class OperatingCurves(Prediction):
    """See docs/studies/prediction-curves.md."""

    title = ""
    settings = ("size", "busy", "settings", "first_seed")
    mode_notes = {}
    titles = OF_CURVES

    def world(self, design: Design, levels: Levels, seed: int) -> OneDay:
        size, seed = Size(**design.raw["size"]), seed + int(design.raw["first_seed"])
        if levels["binds"] == "cpu":
            size = size._replace(memory_mib=PLENTY * size.memory_mib)
        return OneDay(World(size, days(str(levels["usage"]), float(design.raw["busy"]), seed), seed))

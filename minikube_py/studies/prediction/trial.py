"""`minikube-py lab prediction`: the study's day for custom predictors, without a registration."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from minikube_py.lab import plots
from minikube_py.lab.study.design import Design, StudyError
from minikube_py.lab.study.measured import Measured
from minikube_py.lab.study.runner import Task, in_processes
from minikube_py.scheduler.prediction.predictor import predictor_named
from minikube_py.scheduler.prediction.predictors import PREDICTORS
from minikube_py.studies.prediction.study import Prediction

BLOCK = "tried"
NAMES = ("reserved", *PREDICTORS)


def design_of(names: Sequence[str], usage: str, seeds: int, nodes: int) -> Design:
    """The registered design, with one block of these predictors. Raises: StudyError."""
    raw: dict[str, Any] = dict(Prediction().load("quick").raw)
    size = dict(raw["size"])
    for grown in ("first", "more"):
        size[grown] = max(1, round(size[grown] * nodes / size["nodes"]))
    size["nodes"] = nodes
    block = {"candidates": list(names), "quick": {"usage": [usage]}}
    raw |= {"size": size, "seeds": {"quick": seeds}, "blocks": {BLOCK: block}, "predictions": [], "tables": []}
    return Design({**raw, "pictures": []}, "quick")


def require_predictor(name: str) -> None:
    """Raises: ConfigError if no predictor has this name."""
    if (base := name if ":" in name else name.partition("+")[0]) not in Prediction().load("quick").raw["settings"]:
        predictor_named(base, besides=NAMES[:1])


def tried(names: Sequence[str], usage: str, seeds: int, nodes: int, jobs: int) -> tuple[Measured, list[str]]:
    """The measurements, and the skipped predictors with reasons. Raises: StudyError if nothing was measured."""
    design = design_of(names, usage, seeds, nodes)
    with in_processes(jobs) as results:
        records = list(results([Task(Prediction.name, design, unit) for unit in design.units()]))
    failed = [record["failed"].strip().splitlines()[-1] for record in records if "failed" in record]
    if failed:
        raise StudyError(failed[0].partition(": ")[2] or failed[0])
    absent = sorted({reason for record in records for reason in record["absent"].values()})
    measured = Measured(design, records)
    return measured, absent + [f"{name}: left out, as it answered what cannot be" for name in sorted(measured.wrong)]


def told_json(found: Measured, figures: Sequence[str], usage: str, seeds: int, absent: Sequence[str]) -> dict[str, Any]:
    rows = []
    for name in found.names(BLOCK):
        row: dict[str, Any] = {"predictor": name}
        for figure in figures:
            values = found.by_cluster(BLOCK, figure, name)
            if values:
                each = found.interval(values)
                row[figure] = {"mean": round(each.value, 6), "by_seed": [round(value, 6) for value in values]}
                if len(values) > 1:
                    row[figure]["interval"] = [round(each.low, 6), round(each.high, 6)]
        rows += [row] if len(row) > 1 else []
    return {"usage": usage, "seeds": seeds, "rows": rows, "absent": list(absent)}


def gains_and_prices(found: Measured, names: Sequence[str], path: Path) -> None:
    """Reservable CPU against violations, one point per predictor."""
    figure, axes = plots.figure(1, 1, (6.4, 4.2))
    axis = axes[0][0]
    for name in names:
        gained, paid = (found.by_cluster(BLOCK, each, name) for each in ("usable", "violations"))
        if gained:
            x, y = (found.interval(each).value for each in (gained, paid))
            axis.plot([100 * x], [100 * y], "o", label=name)
    axis.set_xlabel("CPU that pods have reserved, % of what nodes have")
    axis.set_ylabel("minutes of nodes with too little CPU, %")
    axis.legend(fontsize=7, loc="center left", bbox_to_anchor=(1.02, 0.5))
    plots.save(figure, path)

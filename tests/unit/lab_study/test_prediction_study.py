"""The study `prediction`: a day of a cluster by hand, what a believer gains and pays, and lies that are found."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from minikube_py.cli import main
from minikube_py.lab.prediction.generator import MINUTES, Generator
from minikube_py.lab.study.design import Unit
from minikube_py.scheduler.framework import PluginError
from minikube_py.studies.prediction import study as study_module
from minikube_py.studies.prediction.cluster import WARM_UP_MINUTES, Cluster, Outcome, Size, World, faults
from minikube_py.studies.prediction.study import Prediction

SMALL = Size(nodes=1, cpu_milli=96_000, memory_mib=393_216, first=25, more=0, stay_minutes=10_000)
BUSY = SMALL._replace(more=1)


class Level:
    """Every pod uses one share of its CPU, and so much of its memory from noon on."""

    def __init__(self, cpu: float, memory: float) -> None:
        self._cpu, self._memory = cpu, memory

    def cpu(self, pod: str) -> Any:
        return np.full(MINUTES, self._cpu)

    def memory(self, pod: str) -> Any:
        return np.where(np.arange(MINUTES) < MINUTES // 2, 0.0, self._memory)


def run(days: Any, predictor: str, args: dict[str, Any] | None = None, size: Size = SMALL, scorer: str = "") -> Outcome:
    outcome = Cluster(World(size, days, 1), predictor, args or {}, scorer).run()
    assert not faults(outcome)
    return outcome


def test_reservations_alone_never_cost_anything() -> None:
    found = run(Level(1.0, 1.0), "limits", {"phi": 1.0})
    assert (found.violations, found.slowed, found.evictions) == (0, 0, 0)
    assert 0.8 < found.usable <= 1
    assert found.used == pytest.approx(found.usable)


def test_who_believes_that_nothing_is_used_pays_with_every_minute_and_with_pods() -> None:
    found = run(Level(1.0, 1.0), "limits", {"phi": 0.0})
    assert found.usable > 1.5
    assert found.violations == 1
    assert found.slowed == pytest.approx(1 - 1 / found.usable, rel=0.5)
    assert found.used == 1
    assert found.evictions > 10
    # At a tenth of what they reserve, the same pods do well.
    calm = run(Level(0.1, 0.01), "limits", {"phi": 0.0})
    assert (calm.violations, calm.evictions) == (0, 0)
    assert calm.used == pytest.approx(calm.usable / 10)


def test_steady_pods_are_predicted_at_what_they_use_once_they_are_known() -> None:
    sure = run(Level(0.5, 0.0), "n-sigma", size=BUSY)
    plain = run(Level(0.5, 0.0), "limits", {"phi": 1.0}, BUSY)
    assert sure.violations == 0
    assert sure.usable > 1.3 * plain.usable
    oracle = run(Level(0.5, 0.0), "oracle", size=BUSY)
    assert oracle.violations == 0
    assert oracle.usable >= 0.99 * sure.usable


def test_one_seed_is_one_outcome_and_scores_are_exchanged() -> None:
    days = Generator("study", mean=0.3)
    size = SMALL._replace(nodes=2)
    found = {scorer: run(days, "n-sigma", size=size, scorer=scorer) for scorer in ("", "target-load", "risk")}
    assert run(days, "n-sigma", size=size) == found[""]
    assert len({each.usable for each in found.values()}) > 1
    assert WARM_UP_MINUTES < MINUTES


@pytest.mark.parametrize(
    "wrong",
    [{"violations": 1.5}, {"used": 2.0}, {"placed": 11}, {"slowed": float("nan")}, {"evictions": -1.0}],
)
def test_an_outcome_that_cannot_be_is_a_lie(wrong: dict[str, Any]) -> None:
    right = Outcome(1.5, 0.5, 0.1, 0.1, 0.0, 10, 10)
    assert not faults(right)
    assert faults(right._replace(**wrong))


def test_a_predictor_that_lies_ends_its_own_cluster_and_no_other(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("class Nan:\n    def peak(self, past):\n        return float('nan')\n")
    target = f"{tmp_path / 'mine.py'}:Nan"
    with pytest.raises(PluginError, match="predictor Nan: peak of cpu of node node-000 is nan"):
        Cluster(World(SMALL, Level(0.1, 0.1), 1), target, {}).run()
    command = [
        "lab",
        "prediction",
        "--predictor",
        f"reserved,{target},limits+nobody",
        "--nodes",
        "1",
        "--seeds",
        "1",
        "--json",
    ]
    assert main.main([*command, "--write", str(tmp_path / "found.json")]) == 1
    found = json.loads((tmp_path / "found.json").read_bytes())
    assert [row["predictor"] for row in found["rows"]] == ["reserved"]
    assert found["absent"][0] == (
        f"{target} (failed): PluginError: predictor Nan: peak of cpu of node node-000 is nan; "
        "a number not below 0 is expected"
    )
    assert "there is no score 'nobody'; there are " in found["absent"][1]


def test_the_command_prints_a_table_and_a_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = tmp_path / "gained.png"
    words = [
        "--predictor",
        "reserved,limits",
        "--usage",
        "alone",
        "--nodes",
        "1",
        "--seeds",
        "1",
        "--png",
        str(picture),
    ]
    assert main.main(["lab", "prediction", *words]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split()[:3] == ["PREDICTOR", "USABLE", "USED"]
    assert [line.split()[0] for line in lines[2:]] == ["reserved", "limits"]
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_the_real_day_is_asked_for_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("MINIKUBE_PY_DATA", raising=False)
    study_module.half.cache_clear()
    words = ["--predictor", "reserved", "--usage", "replayed", "--nodes", "1", "--seeds", "1"]
    assert main.main(["lab", "prediction", *words]) == 1
    assert "needs the published files of cluster-trace-v2026-GenAI; name their folder in" in capsys.readouterr().err
    study_module.half.cache_clear()


def test_the_registered_design_is_the_packaged_one_and_all_its_candidates_are_there() -> None:
    study = Prediction()
    assert study.packaged is not None and study.design.read_bytes() == study.packaged.read_bytes()
    design = study.load("quick")
    names = design.candidates("replayed")
    assert names == design.candidates("generated")
    assert {each[part] for each in design.raw["predictions"] for part in ("of", "over") if part in each} <= set(names)
    world = study_module.OneDay(World(SMALL, Level(0.1, 0.1), 0))
    assert [study.candidate(name, world, design, {}) for name in names]
    assert [unit.seed for unit in design.units()][-1] == 7
    assert Unit("replayed", (("usage", "replayed"),), 0) in list(design.units())

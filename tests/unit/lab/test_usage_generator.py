"""Usage: the real day as it is read, the parameters fitted to half of it, and what a generator makes of them."""

from __future__ import annotations

import lzma
from collections.abc import Iterable
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from needs import published_trace

from minikube_py.lab.prediction.generator import BIN_MINUTES, MINUTES, TABLE, Generated, Generator, packaged
from minikube_py.lab.trace import TraceError
from minikube_py.scheduler.objects import CPU, MEMORY, project_pod
from minikube_py.studies.prediction import day, fit

PACKAGED = resources.files("minikube_py.lab.traces").joinpath(TABLE).read_bytes()
FIT: dict[str, Any] = orjson.loads(PACKAGED)
# How far a generated day may be from the half that nothing was fitted to, as a share of that half's figure.
ALLOWED = {
    ("duty", "mean"): 0.1,
    ("duty", "deviation"): 0.15,
    ("duty", "idle minutes"): 0.05,
    ("duty", "99th percentile"): 0.25,
    ("duty", "peak of a pod"): 0.25,
    ("duty", "correlation with the next minute"): 0.35,
    ("duty", "correlation of two pods"): 0.35,
    ("duty", "peak of all together, five minutes"): 0.35,
    ("memory", "mean"): 0.1,
    ("memory", "deviation between pods"): 0.15,
    ("memory", "range of a pod in the day, median"): 0.35,
    # The halves differ twofold here themselves, and the generator draws drift and noise apart.
    ("memory", "range of a pod in the day, 90th percentile"): 1.5,
    ("memory", "pods that rise by more than 0.01"): 0.35,
}
PODS = 100


def generated(seeds: Iterable[int]) -> dict[str, dict[str, list[float]]]:
    """The figures of generated days, by seed."""
    found: dict[str, dict[str, list[float]]] = {name: {each: [] for each in of} for name, of in fit.FIGURES.items()}
    for seed in seeds:
        made = Generator(f"fit {seed}", packaged())
        rows = [np.array([of(str(pod)) for pod in range(PODS)]) for of in (made.cpu, made.memory)]
        for name, values in fit.figures(*rows).items():
            for figure, value in values.items():
                found[name][figure].append(value)
    return found


def test_the_packaged_fit_is_what_the_converter_makes() -> None:
    assert fit.convert(published_trace()) == PACKAGED


def test_a_generated_day_is_like_the_half_that_nothing_was_fitted_to() -> None:
    found = generated(range(3))
    held = FIT["figures"]["heldOut"]
    assert ALLOWED.keys() == {(name, figure) for name, of in held.items() for figure in of}
    off = {}
    for (name, figure), allowed in ALLOWED.items():
        real, made = held[name][figure], float(np.mean(found[name][figure]))
        if abs(made / real - 1) > allowed:
            off[name, figure] = (made, real)
    assert not off


def test_the_fit_finds_the_parameters_of_a_day_that_it_made() -> None:
    made = Generator("known", packaged())
    pods = [str(pod) for pod in range(60)]
    again = fit.fitted(day.Day({pod: made.cpu(pod) for pod in pods}, {pod: made.memory(pod) for pod in pods}))
    known = packaged()
    assert again.mean == pytest.approx(known.mean, rel=0.15)
    assert again.rho == pytest.approx(known.rho, abs=0.2)
    assert np.median(again.job) == pytest.approx(np.median(known.job), rel=0.25)
    assert np.median(again.start) == pytest.approx(np.median(known.start), abs=0.15)


def test_one_seed_is_one_day_of_shares_and_a_busier_one_keeps_its_shape() -> None:
    one, again, other = Generator(1), Generator(1), Generator(2)
    for of in ("cpu", "memory"):
        rows = [getattr(each, of)("p") for each in (one, again, other)]
        assert all(len(row) == MINUTES and row.min() >= 0 and row.max() <= 1 for row in rows)
        assert rows[0].tolist() == rows[1].tolist() != rows[2].tolist()
        assert rows[0].tolist() != getattr(one, of)("q").tolist()
    busier = np.array([Generator(1, mean=0.3).cpu(str(pod)) for pod in range(40)])
    # What is above 1 at the busiest hours is cut.
    assert 0.2 < busier.mean() <= 0.3
    alone = np.array([Generator(1, alone=True).cpu(str(pod)) for pod in range(30)])
    together = np.array([one.cpu(str(pod)) for pod in range(30)])
    assert fit.FIGURES["duty"]["correlation of two pods"](alone) < fit.FIGURES["duty"]["correlation of two pods"](
        together
    )


def test_memory_that_rises_gives_nothing_back() -> None:
    made = Generator(3)
    rows = [made.memory(str(pod)) for pod in range(60)]
    monotone = [row for row in rows if (np.diff(row) >= 0).all()]
    assert 3 <= len(monotone) <= 25
    assert all(row[-1] > row[0] for row in monotone)


def test_a_source_for_a_cluster_repeats_its_day_and_scales_by_the_request() -> None:
    resources_ = {"requests": {"cpu": "2", "memory": "1Gi"}}
    spec = {"containers": [{"name": "c", "resources": resources_}]}
    pod = project_pod({"metadata": {"name": "p", "namespace": "d", "uid": "u"}, "spec": spec})
    source = Generated(seed=4, mean=0.5)
    cpu, memory = Generator(4, mean=0.5).cpu("u"), Generator(4, mean=0.5).memory("u")
    for minute in (0, 17, MINUTES - 1, MINUTES, 30_000_017):
        at = minute % MINUTES
        assert source.usage(pod, minute) == {CPU: cpu[at] * 2000, MEMORY: memory[at] * (1 << 30)}
    with pytest.raises(TraceError, match="mean is 2; a share from 0 to 1 is expected"):
        Generated(mean=2)


def test_a_day_is_read_with_gaps_filled_and_short_ones_left_out(tmp_path: Path) -> None:
    head = "value,timestamp_anon,container_ip"
    stamps = [1000 + 57.0 * minute for minute in range(MINUTES) if not 5 <= minute < 8]
    rows = [f"{100 if stamp < 1300 else 50},{stamp},0000000a" for stamp in stamps] + ["30,1000.0,0000000b"]
    (tmp_path / day.DUTY_CYCLE).write_text("\n".join([head, *rows]))
    with pytest.raises(TraceError, match=r"no pod_memory_util_anon.csv; name the folder"):
        day.read(tmp_path)
    (tmp_path / f"{day.MEMORY}.xz").write_bytes(lzma.compress("\n".join([head, *rows]).encode()))
    found = day.read(tmp_path)
    assert list(found.duty) == ["0000000a"]
    assert found.duty["0000000a"][:9].tolist() == [1.0] * 8 + [0.5]
    assert found.memory["0000000a"].max() == 1.0, "shares are at most 1"
    assert (list(found.half(False).duty), list(found.half(True).duty)) == (["0000000a"], [])
    (tmp_path / day.DUTY_CYCLE).write_text(f"{head}\nmany,1,1\n")
    with pytest.raises(TraceError, match="could not convert string to float: 'many'"):
        day.read(tmp_path)
    assert BIN_MINUTES * 288 == MINUTES

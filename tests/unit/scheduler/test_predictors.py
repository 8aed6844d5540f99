"""Predictors against the formulas that were published, worked out by hand or by other libraries."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minikube_py.scheduler.configuration.merging import ConfigError
from minikube_py.scheduler.prediction import Past, Predictor
from minikube_py.scheduler.prediction.predictor import PredictionError, asked, predictor_named
from minikube_py.scheduler.prediction.predictors import PREDICTORS, smoothed

STATSMODELS = json.loads((Path(__file__).parents[2] / "conformance/data/holt_winters.json").read_bytes())["cases"]
NAN = math.nan


def past(usage: list[list[float]], reserved: list[float], ahead: list[list[float]] | None = None) -> Past:
    rows = np.array(usage, np.float64).reshape(len(reserved), -1)
    return Past(np.array(reserved, np.float64), rows, None if ahead is None else np.array(ahead, np.float64))


def test_no_predictor_writes_to_what_others_see() -> None:
    seen = past([[3.0, 1.0]], [4.0], [[1.0]])
    assert seen.ahead is not None
    for array in (seen.usage, seen.total, seen.reserved, seen.ahead):
        with pytest.raises(ValueError, match="read-only"):
            array.sort()


TWO = [[10.0, 20.0, 30.0, 20.0], [5.0, 5.0, 15.0, 15.0]]  # together 15, 25, 45, 35: mean 30, deviation sqrt(125)
COLD = [NAN, NAN, NAN, 7.0]


@pytest.mark.parametrize(
    ("name", "args", "rows", "expected"),
    [
        ("limits", {}, TWO, 0.9 * 300),
        ("limits", {"phi": 1}, [*TWO, COLD], 400),
        ("n-sigma", {"sigmas": 2, "samples": 4}, TWO, 30 + 2 * math.sqrt(125)),
        ("n-sigma", {"sigmas": 0, "samples": 2}, TWO, 40),
        ("n-sigma", {"sigmas": 2, "samples": 4}, [*TWO, COLD], 30 + 2 * math.sqrt(125) + 100),
        ("n-sigma", {"sigmas": 2, "samples": 5}, TWO, 300),
        ("n-sigma", {"sigmas": 2, "samples": 4, "unknown": 0.3}, [*TWO, COLD], 30 + 2 * math.sqrt(125) + 30),
        ("holt-winters", {"samples": 5, "unknown": 0.5}, TWO, 150),
        ("n-sigma", {"sigmas": 1000, "samples": 4}, TWO, 300),
        ("percentile", {"percent": 100, "samples": 4}, TWO, 30 + 15),
        ("percentile", {"percent": 50, "samples": 4}, TWO, 20 + 10),
        ("percentile", {"percent": 75, "samples": 4}, [*TWO, COLD], 22.5 + 15 + 100),
        # By its recursion from the first value: 15, 20, 32.5, 33.75.
        ("ewma", {"alpha": 0.5, "sigmas": 0, "samples": 4}, TWO, 33.75),
        ("ewma", {"alpha": 1, "sigmas": 9, "samples": 4}, TWO, 35),
        ("max", {"of": ["limits", {"predictor": "n-sigma", "args": {"sigmas": 0, "samples": 4}}]}, TWO, 270),
        ("max", {"of": [{"predictor": "n-sigma", "args": {"sigmas": 0, "samples": 4}}]}, TWO, 30),
    ],
)  # fmt: skip
def test_a_formula_worked_out_by_hand(
    name: str, args: dict[str, Any], rows: list[list[float]], expected: float
) -> None:
    reserved = [200.0, 100.0, 100.0][: len(rows)]
    assert asked(predictor_named(name, args), past(rows, reserved), "") == pytest.approx(expected)


def test_what_a_predictor_is_given_is_read_only() -> None:
    """A part of `max` that sorts would change what the next one sees."""
    seen = past(TWO, [200.0, 100.0], [[1.0], [2.0]])
    for array in (seen.reserved, seen.usage, seen.total, seen.ahead):
        with pytest.raises(ValueError, match="read-only"):
            array.sort()  # type: ignore[union-attr]


def test_an_oracle_knows_the_highest_sum_that_is_to_come() -> None:
    oracle = predictor_named("oracle")
    assert asked(oracle, past(TWO, [200, 100], [[1, 50, 0], [70, 30, 60]]), "") == 80
    with pytest.raises(PredictionError, match="oracle needs to know the future"):
        asked(oracle, past(TWO, [200, 100]), "cpu of node n")


@pytest.mark.parametrize("case", STATSMODELS)
def test_holt_winters_is_what_statsmodels_makes_of_the_same_series(case: dict[str, Any]) -> None:
    kept = smoothed(case["values"], *case["shares"], season=case["season"])
    assert kept.errors[-5:] == pytest.approx(case["errors"], rel=1e-9)
    assert kept.forecast(len(case["forecast"]), case["shares"][-1]) == pytest.approx(case["forecast"], rel=1e-9)


def test_a_season_that_repeats_is_forecast_as_it_will_be() -> None:
    day = [3.0, 9.0, 4.0, 1.0]
    kept = smoothed(day * 3, 0.3, 0.1, 0.2, 0.9, season=4)
    assert kept.forecast(6, 0.9) == pytest.approx([*day, *day[:2]])
    args = {"season": 4, "horizon": 4, "sigmas": 5}
    predictor = predictor_named("holt-winters", args)
    assert predictor.samples == 24
    assert asked(predictor, past([day * 6], [20]), "") == pytest.approx(9)


@given(st.lists(st.lists(st.floats(0, 1), min_size=24, max_size=24), min_size=1, max_size=4), st.integers(0, 3))
def test_predictions_are_ordered_as_their_formulas_are(shares: list[list[float]], cold: int) -> None:
    rows = [*shares, *([[NAN] * 24] * cold)]
    reserved = [float(1 + i) for i in range(len(rows))]
    seen = past([[each * amount for each in row] for row, amount in zip(rows, reserved)], reserved)
    found = {name: asked(predictor_named(name), seen, "") for name in PREDICTORS if name != "oracle"}
    assert all(0 <= each <= seen.limit * (1 + 1e-9) for each in found.values())
    assert found["max"] == max(found["n-sigma"], found["percentile"])
    n = [asked(predictor_named("n-sigma", {"sigmas": n}), seen, "") for n in (0, 1, 5)]
    assert n == sorted(n)
    # Peaks that come together are the most there can be.
    most = asked(predictor_named("percentile", {"percent": 100}), seen, "")
    assert most >= float(np.nansum(seen.usage, axis=0).max()) - 1e-9


@pytest.mark.parametrize(
    ("body", "wrong"),
    [
        ("return float('nan')", "is nan; a number not below 0 is expected"),
        ("return -1", "is -1; a number not below 0 is expected"),
        ("return float('inf')", "is inf; a number not below 0 is expected"),
        ("return '3'", "is a str; a number not below 0 is expected"),
        ("return past.usage", "is a ndarray; a number not below 0 is expected"),
        ("return 1 / 0", r"ZeroDivisionError: division by zero \(mine.py, line 5\)"),
        ("past.usage[:] = 0", r"ValueError: assignment destination is read-only \(mine.py, line 5\)"),
    ],
)
def test_a_lie_is_one_clear_error_that_names_it(tmp_path: Path, body: str, wrong: str) -> None:
    (tmp_path / "mine.py").write_text(
        f"from minikube_py.scheduler.prediction import Predictor\n\nclass Mine(Predictor):\n"
        f"    def peak(self, past):\n        {body}\n"
    )
    mine = predictor_named(f"{tmp_path / 'mine.py'}:Mine")
    with pytest.raises(PredictionError, match=f"predictor Mine: peak of cpu of node n.*{wrong}"):
        asked(mine, past(TWO, [200, 100]), "cpu of node n")


@pytest.mark.parametrize(
    ("target", "args", "wrong"),
    [
        ("mean", {}, "there is no predictor 'mean'; the predictors are: limits, n-sigma, .*; or FILE.py:CLASS"),
        ("n-sigma", {"m": 3}, "predictor n-sigma has no argument 'm'; it has: samples, unknown, sigmas"),
        ("n-sigma", {"sigmas": -1}, "sigmas: Invalid value: -1: must be a number from 0 to 1,000"),
        ("n-sigma", {"sigmas": NAN}, "sigmas: Invalid value: nan: must be a number from 0 to 1,000"),
        ("n-sigma", {"sigmas": True}, "sigmas: Invalid value: true: must be a number from 0"),
        ("n-sigma", {"samples": 2.5}, "samples: Invalid value: 2.5: must be a whole number from 1 to 2,016"),
        ("n-sigma", {"samples": 10**9}, "samples: Invalid value: 1000000000: must be a whole number from 1 to 2,016"),
        ("limits", {"phi": 1.5}, "phi: Invalid value: 1.5: must be a number from 0 to 1"),
        ("max", {"of": []}, "of: Invalid value: a list: must be a list of 1 to 20 items"),
        ("max", {"of": ["nobody"]}, "there is no predictor 'nobody'"),
        ("not_there.py:Mine", {}, "there is no file"),
        ("math:sqrt", {}, "predictor math:sqrt: TypeError"),
    ],
)
def test_what_cannot_be_a_predictor_is_refused(target: str, args: dict[str, Any], wrong: str) -> None:
    with pytest.raises(ConfigError, match=wrong):
        predictor_named(target, args)


@pytest.mark.parametrize("samples", [0, 2017, 10**9, 2.5, None])
def test_samples_of_a_class_of_ones_own_have_a_bound(tmp_path: Path, samples: object) -> None:
    text = f"class Own:\n    samples = {samples}\n    def peak(self, past):\n        return 0\n"
    (tmp_path / "own.py").write_text(text)
    with pytest.raises(ConfigError, match=f"samples is {samples}; a whole number from 1 to 2016 is expected"):
        predictor_named(f"{tmp_path / 'own.py'}:Own")


SHAPES = """
from dataclasses import dataclass
from typing import NamedTuple

@dataclass(frozen=True)
class Frozen:
    samples: int = 12
    def peak(self, past):
        return past.limit

class Slotted:
    __slots__ = ()
    samples = 12
    def peak(self, past):
        return past.limit

class Tuple(NamedTuple):
    samples: int = 12
    def peak(self, past):
        return past.limit

class Properties:
    @property
    def name(self):
        return "of a property"
    @property
    def samples(self):
        return 12
    def peak(self, past):
        return past.limit

class Raising(Properties):
    @property
    def samples(self):
        raise SystemExit(0)

class Nameless(Properties):
    @property
    def name(self):
        raise ValueError("no name")
"""


@pytest.mark.parametrize(
    ("kind", "name"),
    [("Frozen", "Frozen"), ("Slotted", "Slotted"), ("Tuple", "Tuple"), ("Properties", "of a property")],
)
def test_a_predictor_may_have_any_shape_and_is_not_written_to(tmp_path: Path, kind: str, name: str) -> None:
    (tmp_path / "shapes.py").write_text(SHAPES)
    own = predictor_named(f"{tmp_path / 'shapes.py'}:{kind}")
    assert (own.name, own.samples, own.looks_ahead) == (name, 12, False)
    assert asked(own, past(TWO, [200, 100])) == 300


@pytest.mark.parametrize(
    ("kind", "told"), [("Raising", r"SystemExit: 0 \(shapes.py, "), ("Nameless", r"ValueError: no name \(shapes.py, ")]
)
def test_what_a_predictor_says_of_itself_is_asked_behind_a_guard(tmp_path: Path, kind: str, told: str) -> None:
    (tmp_path / "shapes.py").write_text(SHAPES)
    with pytest.raises(ConfigError, match=told):
        predictor_named(f"{tmp_path / 'shapes.py'}:{kind}")


@pytest.mark.parametrize("answer", [NAN, -5.0, float("inf")])
@pytest.mark.parametrize("first", [True, False])
def test_a_part_of_several_predictors_that_answers_wrongly_is_named(
    tmp_path: Path, answer: float, first: bool
) -> None:
    text = f"class Mine:\n    def peak(self, past):\n        return float('{answer}')\n"
    (tmp_path / "mine.py").write_text(text)
    parts = [f"{tmp_path / 'mine.py'}:Mine", "n-sigma"]
    several = predictor_named("max", {"of": parts if first else parts[::-1]})
    wrong = f"predictor max: peak of cpu of node n: predictor Mine: peak is {answer:g}; a number not below 0 is"
    with pytest.raises(PredictionError, match=wrong):
        asked(several, past(TWO, [200, 100]), "cpu of node n")


def test_a_plain_class_will_do(tmp_path: Path) -> None:
    (tmp_path / "plain.py").write_text("class Half:\n    def peak(self, past):\n        return past.limit / 2\n")
    half = predictor_named(f"{tmp_path / 'plain.py'}:Half")
    assert (half.name, half.samples, half.looks_ahead) == ("Half", Predictor.samples, False)
    assert asked(half, past(TWO, [200, 100]), "") == 150

"""Operating curves by hand: what is gained at a price, its intervals over clusters, and constants chosen elsewhere."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from minikube_py.lab.statistics import of_clusters
from minikube_py.lab.study import curves
from minikube_py.lab.study.checking import Known, check
from minikube_py.lab.study.curves import Curve, best, chosen, compared, gained, jackknife
from minikube_py.lab.study.design import Design, StudyError
from minikube_py.lab.study.measured import Measured


@pytest.mark.parametrize(
    ("rate", "expected"),
    [(0.0, 1.0), (0.5, 1.5), (1.0, 2.0), (2.5, 3.0), (4.0, 4.0), (9.0, 4.0)],
)
def test_the_gain_at_a_price_is_on_the_line_between_constants(rate: float, expected: float) -> None:
    assert best([1.0, 2.0, 4.0], [0.0, 1.0, 4.0], rate) == pytest.approx(expected)


def test_no_gain_has_a_price_below_the_least_and_a_detour_costs_nothing() -> None:
    assert math.isnan(best([1.0, 2.0], [0.2, 0.4], 0.1))
    # The second constant is more expensive and worse than the third.
    assert best([1.0, 1.1, 3.0], [0.0, 5.0, 1.0], 1.0) == 3.0


def test_the_jackknife_of_a_mean_gives_the_values_themselves() -> None:
    values = [1.0, 4.0, 2.5, 8.0]
    assert jackknife(4, lambda kept: float(np.mean([values[at] for at in kept]))) == pytest.approx(values)
    assert jackknife(1, lambda kept: 1.0) == []
    assert jackknife(3, lambda kept: math.nan if 1 in kept else 1.0) == []


def test_two_families_on_one_line_gain_the_same_at_every_price() -> None:
    """They differ in constants alone: the first has the more daring ones."""
    rng = np.random.default_rng(1)
    luck = rng.uniform(0.8, 1.2, 8)

    def family(constants: list[float]) -> Curve:
        gains = np.outer(constants, luck)
        return Curve([str(each) for each in constants], list(range(8)), gains, gains / 10)

    daring, careful = family([1.0, 2.0, 4.0]), family([0.5, 1.5, 3.5])
    assert daring.gains.mean() > 1.2 * careful.gains.mean()
    for rate in (0.15, 0.2, 0.3):
        ratios = of_clusters([math.exp(each) for each in compared(daring, careful, rate)], 0.99, ratio=True)
        assert ratios.low <= 1 + 1e-9 and ratios.high >= 1 - 1e-9 and ratios.value == pytest.approx(1)
        assert np.mean(gained(daring, rate)) == pytest.approx(10 * rate, rel=0.01)


def document(**more: Any) -> dict[str, Any]:
    entry = {"title": "t", "block": "b", "gain": "gain", "price": "price", "at": [1.0], "families": ["f", "g"]}
    made: dict[str, Any] = {
        "study": "s",
        "version": 1,
        "seeds": {"quick": 3},
        "defaults": {"usage": "here"},
        "f": ["f1", "f2"],
        "g": ["g1"],
        "blocks": {"b": {"candidates": ["f", "g"], "quick": {"usage": ["here", "there"]}}},
        "predictions": [],
        "curves": [entry],
    }
    return made | more


def records() -> list[dict[str, Any]]:
    """f2 gains twice as much as f1, at a price that is 1 here and 9 there."""
    found = []
    for seed in range(3):
        for usage, price in (("here", 1.0), ("there", 9.0)):
            figures = {"f1": (2.0, 0.0), "f2": (4.0 + seed, price), "g1": (1.0, 0.0)}
            candidates = {
                name: {"asked": [1], "wrong": 0, "figures": {"gain": [gain], "price": [paid]}}
                for name, (gain, paid) in figures.items()
            }
            order = [[*candidates]]
            record = {"key": f"b/usage={usage}/seed={seed}", "block": "b", "seed": seed, "levels": {"usage": usage}}
            found.append({**record, "candidates": candidates, "absent": {}, "planned": [1], "order": order})
    return found


FORETOLD = {"name": "P", "claim": "c", "block": "b", "of": "f", "is": "above", "than": 1.5, "at": {"price": 1.0}}


def measured(foretold: dict[str, Any], kept: list[dict[str, Any]] | None = None) -> Measured:
    raw = document(predictions=[FORETOLD | foretold])
    check(raw, "design", Known())
    return Measured(Design(raw, "quick"), records() if kept is None else kept)


def test_a_prediction_at_a_price_is_judged_over_clusters() -> None:
    (found,) = measured({"figure": "gain", "over": "g", "where": {"usage": "here"}}).judge()
    assert found.outcome == "held" and "gain of f at price of at most 1 over that of g: 5.03 [" in found.evidence
    assert "3 clusters" in found.evidence
    # There, the line from 2 to 5 crosses a price of 1 at a ninth of its way.
    (found,) = measured({"figure": "gain", "where": {"usage": "there"}, "than": 9.0}).judge()
    assert found.outcome == "falsified" and "price of at most 1: 2.33 [" in found.evidence


def test_a_constant_is_chosen_on_some_cells_and_judged_on_others() -> None:
    tuned = {"figure": "price", "gain": "gain", "tuned": {"usage": "here"}, "where": {"usage": "there"}, "than": 8.0}
    (found,) = measured(tuned).judge()
    assert found.outcome == "held" and found.evidence.startswith("price of f2: 9 [9, 9]")
    one = curves.curve(measured(tuned), "b", "f", "gain", "price", {"usage": "there"})
    assert chosen(one, 1.0) == "f1" and chosen(one, 9.0) == "f2" and chosen(one, -1.0) == ""
    (found,) = measured(tuned | {"at": {"price": -1.0}}).judge()
    assert (found.outcome, found.evidence) == ("not tested", "no constant of f has price of at most -1")


def test_too_few_clusters_are_compared_with_nothing() -> None:
    some = [each for each in records() if each["seed"] == 0]
    (found,) = measured({"figure": "gain", "where": {"usage": "here"}}, some).judge()
    assert found.outcome == "not tested" and found.evidence.endswith("at most 1: there are fewer than two clusters")


GAINS = {"figure": "gain", "over": "g", "where": {"usage": "here"}}
TUNED = {"figure": "price", "gain": "gain", "tuned": {"usage": "here"}, "where": {"usage": "there"}}


@pytest.mark.parametrize("foretold", [GAINS, TUNED | {"over": "g"}], ids=["at a price", "chosen"])
@pytest.mark.parametrize("name", ["f2", "g1"])
def test_every_constant_of_a_family_counts_also_one_that_lies(name: str, foretold: dict[str, Any]) -> None:
    """Without the daring constant of the rival, what was falsified was held. All of family g are wrong with g1."""
    lying = records()
    lying[0]["candidates"][name]["wrong"] = 1
    run = measured(foretold, lying)
    (found,) = run.judge()
    assert (found.outcome, found.evidence) == ("not tested", f"{name} gave wrong answers")
    told = {"f2": ["f (without f2: wrong answers)", "g"], "g1": ["f", "g (without g1: wrong answers)"]}
    (rows,) = (table.rows for table in run.tables() if table.title == "t")
    assert [row[0] for row in rows] == told[name]
    (row,) = (row for row in rows if name in row[0])
    assert row[-1] == {"f2": "2 [2, 2], its most", "g1": "-"}[name]


@pytest.mark.parametrize(
    ("timed", "foretold"),
    [
        ("gain", GAINS | {"figure": "gain_us"}),
        ("price", GAINS | {"at": {"price_us": 1.0}}),
        ("gain", TUNED | {"gain": "gain_us"}),
    ],
)
def test_a_biased_order_says_nothing_of_times_at_a_price(timed: str, foretold: dict[str, Any]) -> None:
    biased = records()
    for record in biased:
        record["order"] = [["g1", "f2", "f1"]]
        for each in record["candidates"].values():
            each["figures"][f"{timed}_us"] = each["figures"][timed]
    (found,) = measured(foretold, biased).judge()
    assert found.outcome == "not tested" and found.evidence.startswith("the order of turns was biased: ")


def test_a_comparison_without_a_value_says_what_has_none() -> None:
    none = records()
    for record in none:
        record["candidates"]["g1"]["figures"]["gain"] = [0.0 if record["seed"] else 1.0]
    (found,) = measured(GAINS, none).judge()
    assert found.outcome == "not tested" and "a gain that is not above 0 has no ratio" in found.evidence
    (found,) = measured(GAINS | {"at": {"price": -1.0}}).judge()
    assert found.outcome == "not tested" and "every constant costs more" in found.evidence


def test_tables_say_what_is_a_familys_most_and_what_was_chosen() -> None:
    raw = document()
    raw["curves"].append(raw["curves"][0] | {"by": ["usage"], "tuned": {"usage": "there"}, "title": "chosen"})
    check(raw, "design", Known())
    plain, elsewhere = Measured(Design(raw, "quick"), records()).tables()[-2:]
    assert [row[0] for row in plain.rows] == ["f", "g"] and plain.rows[1][-1] == "1 [1, 1], its most"
    assert [list(row[:3]) for row in elsewhere.rows] == [
        ["f", "f1", "here"],
        ["f", "f1", "there"],
        ["g", "g1", "here"],
        ["g", "g1", "there"],
    ]


@pytest.mark.parametrize("confidence", [0.95, 0.99])
def test_sign_flip_tables_have_the_studys_intervals(confidence: float) -> None:
    """The report's first lines say which: 99 % was said over 95 %."""
    tests = [{"title": "flips", "block": "b", "figure": "gain", "over": "g1"}]
    tables = {
        each.title: each.rows
        for each in Measured(Design(document(confidence=confidence, tests=tests), "quick"), records()).tables()
    }
    own = of_clusters([(2.0 + 2.0) / 2] * 3, confidence), of_clusters([4.0, 5.0, 6.0], confidence)
    assert [row[3] for row in tables["flips"]] == [each.text() for each in own]


@pytest.mark.parametrize(
    ("foretold", "said"),
    [
        ({"figure": "gain", "of": "h"}, "names 'h', which is no candidate of block b"),
        ({"figure": "gain", "at": {"price": 1.0, "gain": 2.0}}, "one price is expected"),
        ({"figure": "gain", "at": {}}, "write numbers"),
        ({"figure": "gain", "at": "price"}, "write numbers"),
        ({"figure": "gain", "gain": "gain"}, "all three say how a constant is chosen"),
        ({"figure": "gain", "gain": "gain", "tuned": {"usage": "gone"}}, "no unit of block b has usage = 'gone'"),
    ],
)
def test_a_price_that_means_nothing_is_refused(foretold: dict[str, Any], said: str) -> None:
    with pytest.raises(StudyError, match=said):
        measured(foretold)

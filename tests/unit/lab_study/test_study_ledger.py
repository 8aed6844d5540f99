"""The ledger and its statistics: sums, break-evens, what wins, and that an ideal filter comes first."""

from typing import Any

import numpy as np
import pytest

from minikube_py.lab.statistics import Interval, of_clusters
from minikube_py.lab.study.design import Design
from minikube_py.studies.bloom.ledger import Cell, Price, cells, oracle_can_win, update_us
from minikube_py.studies.bloom.statistics import against_all, ratios, share_interval, verdict
from minikube_py.studies.bloom.study import Bloom

QUICK: Design = Bloom().load("quick")


def report(query: float, opened: float, update: float = 1.0, kind: str = "front", **more: Any) -> dict[str, Any]:
    noise = np.linspace(0.99, 1.01, 8)
    limit = {
        "query_us": (query * noise).tolist(),
        "opened": [opened] * 8,
        "pruned": [10.0 - opened] * 8,
        "false": [max(0.0, opened - 1)] * 8,
        "examined": [1.0] * 8,
        "asked": [12] * 8,
        "feasible": {},
        "infeasible": {},
    }
    base = {"kind": kind, "limits": {"1": limit}, "update_us": [update] * 8, "load_us_per_node": 1.0}
    return {**base, "size_bytes": 100, "filter_bytes": 100, "cut": False, "wrong": 0, **more}


def cell(**candidates: dict[str, Any]) -> Cell:
    found = {name.replace("_", "-"): each for name, each in candidates.items()}
    levels = {"n": 1000, "shards": 10}
    records = [{"block": "grid", "levels": levels, "seed": seed, "candidates": found} for seed in range(2)]
    (made,) = cells(records, "grid")
    return made


def test_cost_adds_opened_shards_and_updates() -> None:
    made = cell(always=report(20.0, 10.0, 2.0))
    assert made.mean("always", Price(0.0, 0.0)) == pytest.approx(20)
    assert made.mean("always", Price(50.0, 1.0)) == pytest.approx(20 + 500 + 2)
    assert made.mean("always", Price(50.0, 10.0)) == pytest.approx(20 + 500 + 20)


def test_break_even_is_where_both_cost_the_same() -> None:
    made = cell(always=report(20.0, 10.0, 2.0), grafite=report(80.0, 4.0, 5.0))
    even = made.break_even_us("grafite", 1.0)
    assert even == pytest.approx((80 + 5 - 20 - 2) / 6)
    for cost, cheaper in ((even * 0.99, "always"), (even * 1.01, "grafite")):
        assert made.winner(["always", "grafite"], Price(cost, 1.0)) == cheaper


def test_a_filter_that_opens_no_fewer_never_breaks_even() -> None:
    made = cell(always=report(20.0, 10.0), bloom=report(80.0, 10.0))
    assert made.break_even_us("bloom", 1.0) == float("inf")


def test_one_that_is_quicker_and_opens_more_has_no_break_even() -> None:
    made = cell(always=report(20.0, 10.0), max_vector=report(50.0, 3.0), prefix_bloom=report(40.0, 4.0))
    assert made.break_even_us("prefix-bloom", 1.0, "max-vector") == float("inf")
    assert made.break_even_us("always", 1.0, "always") == 0.0


def test_the_rule_is_the_registered_one() -> None:
    made = cell(always=report(20.0, 10.0, 2.0), oracle=report(9.0, 1.0, 9.0), memento=report(80.0, 4.0, 12.0))
    # Per shard probed: saves .6 C; probes cost (80 - 20 / 10) / 10 us, upkeep (12 - 2) / 10 for each update.
    even = (80 - 2 + 10) / 10 / 0.6
    assert made.pays("memento", Price(even * 1.01, 1.0))
    assert not made.pays("memento", Price(even * 0.99, 1.0))


def test_the_oracle_is_charged_for_the_shards_it_opens_alone() -> None:
    made = cell(always=report(20.0, 10.0, 2.0), oracle=report(500.0, 1.0, 99.0))
    assert made.query("oracle") == pytest.approx(2.0)
    assert made.update("oracle") == pytest.approx(2.0)


@pytest.mark.parametrize(("oracle_opens", "can"), [(10.0, False), (9.9, False), (5.0, True)])
def test_where_the_oracle_does_not_win_no_filter_can(oracle_opens: float, can: bool) -> None:
    found = {"always": report(20.0, 10.0), "oracle": report(1.0, oracle_opens), "max-vector": report(30.0, 10.0)}
    assert oracle_can_win(QUICK, found) is can


def test_rebuilding_is_what_it_is_in_the_long_run() -> None:
    rebuilt = {"rebuilt_share": 1.0, "rebuilt_share_expected": 4.0, "load_us_per_node": 3.0}
    found = {"always": report(20.0, 10.0), "grafite": report(80.0, 4.0, 10.0, **rebuilt)}
    # Three nodes more for each update, at 2 us a node above what loading costs without a filter.
    assert update_us(found, "grafite") == pytest.approx([16.0] * 8)


def test_one_that_was_wrong_is_left_out() -> None:
    made = cell(always=report(20.0, 10.0), grafite=report(1.0, 1.0, wrong=1))
    assert made.names == ["always"]


def test_rivals_of_tight_memory_are_no_greater() -> None:
    fronts = {"always": report(20.0, 10.0), "max_vector": report(20.0, 3.0), "grafite": report(80.0, 4.0)}
    small = cell(**fronts, joint_bitset=report(30.0, 2.0, filter_bytes=100))
    large = cell(**fronts, joint_bitset=report(30.0, 2.0, filter_bytes=101), columns=report(5.0, 1.0, kind="whole"))
    assert small.rivals("grafite", free=False) == ["always", "max-vector", "joint-bitset"]
    assert large.rivals("grafite", free=False) == ["always", "max-vector"]
    assert large.rivals("grafite", free=True) == ["always", "max-vector", "columns"]


def test_a_clear_win_a_tie_and_a_loss_are_called_so() -> None:
    made = cell(
        always=report(100.0, 0.0), max_vector=report(99.0, 0.0), grafite=report(50.0, 0.0), bloom=report(300.0, 0.0)
    )
    price = Price(0.0, 0.01)
    assert made.verdict(QUICK, "grafite", price, free=False) == "win"
    assert made.verdict(QUICK, "bloom", price, free=False) == "loss"
    assert made.verdict(QUICK, "max-vector", price, free=False) == "tie"


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        pytest.param(0.5, 0.949, "win", id="surely 5 % less"),
        pytest.param(0.5, 0.951, "undecided", id="perhaps less than 5 %"),
        pytest.param(0.96, 1.04, "tie", id="within the margin"),
        pytest.param(1.06, 2.0, "loss", id="surely more"),
        pytest.param(0.8, 1.3, "undecided", id="anything"),
    ],
)
def test_verdicts(low: float, high: float, expected: str) -> None:
    assert verdict(Interval((low + high) / 2, low, high), 0.05) == expected


def test_a_win_is_one_over_every_rival() -> None:
    win, tie, loss = Interval(0.5, 0.4, 0.6), Interval(1.0, 0.97, 1.03), Interval(2.0, 1.5, 2.5)
    assert against_all([win, win], 0.05) == "win"
    assert against_all([win, tie], 0.05) == "tie"
    assert against_all([win, tie, loss], 0.05) == "loss"
    assert against_all([], 0.05) == "undecided"


def test_intervals_hold_what_they_should() -> None:
    """Of 400 means of known truth about 95 % are inside, of few clusters too, for which a bootstrap had 79 %."""
    rng = np.random.default_rng(1)
    for clusters in (3, 5, 10):
        found = [of_clusters(rng.normal(10, 1, clusters).tolist(), 0.95) for _ in range(400)]
        assert 0.92 <= sum(each.low <= 10 <= each.high for each in found) / 400 <= 0.98
    assert not of_clusters([5.0], 0.95).is_known and of_clusters([5.0, 5.0], 0.95) == (5.0, 5.0, 5.0)


def test_pairs_keep_what_seeds_share_out_of_the_ratio() -> None:
    rng = np.random.default_rng(2)
    shared = rng.uniform(1, 100, size=(10, 8))
    (found,) = ratios(shared * 0.8, shared[None], 500, 0.95)
    assert found == pytest.approx((0.8, 0.8, 0.8))


def test_share_interval_is_that_of_wilson() -> None:
    assert share_interval(0, 10) == pytest.approx((0.0, 0.0, 0.2775), abs=1e-3)
    assert share_interval(5, 10) == pytest.approx((0.5, 0.2366, 0.7634), abs=1e-3)

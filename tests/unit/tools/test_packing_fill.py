"""What won the tuning of the registered packing policy, by its rule; the page has what was measured."""

from __future__ import annotations

import packing_fill
import pytest
from packing_fill import FAMILY, FIRST, LISTS, Member, finalists, one_sided, winner

from minikube_py.lab.statistics import compared


def test_the_rule_of_the_registration() -> None:
    shares = {(n, pods, 1): 90.0 for n in range(len(FAMILY)) for pods in FIRST}
    best = (5, 12, 13, 20)
    shares |= {(n, pods, seed): 95.0 for n in best for pods in LISTS for seed in (1, 2)}
    assert sorted(finalists(shares)) == sorted(best)
    # Equal: the one that differs from FGD in the fewest factors, then the first.
    assert [FAMILY[n].differs for n in best] == [2, 2, 3, 2] and winner(shares) == 5
    assert winner({**shares, (13, LISTS[5], 2): 95.5}) == 13, "more than 0.02 points on the mean of all"
    assert winner({**shares, (13, LISTS[5], 2): 95.1}) == 5


def test_the_policy_is_the_member_that_won() -> None:
    won = FAMILY[winner(packing_fill.read())]
    assert won == Member("left", True, "pods", 1) and FAMILY[0].differs == 0


def test_p_is_one_sided() -> None:
    better, worse = compared([0.0] * 10, [1.0] * 10), compared([1.0] * 10, [0.0] * 10)
    assert one_sided(better) == pytest.approx(2**-10) and one_sided(worse) == 1


def test_the_page_shows_the_committed_figures() -> None:
    assert packing_fill.main([]) == 0

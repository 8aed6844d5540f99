"""The page of the policy by shadow prices shows the committed figures."""

from __future__ import annotations

import packing_prices
import pytest
from packing_prices import one_sided

from minikube_py.lab.statistics import compared


def test_p_is_one_sided() -> None:
    better, worse = compared([0.0] * 10, [1.0] * 10), compared([1.0] * 10, [0.0] * 10)
    assert one_sided(better) == pytest.approx(2**-10) and one_sided(worse) == 1


def test_the_page_shows_the_committed_figures() -> None:
    assert packing_prices.main([]) == 0

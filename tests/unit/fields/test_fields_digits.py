"""`whole_number` is `int` for what has few digits, and never fails for more."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minikube_py.fields.digits import BEYOND, DIGITS_MAX, whole_number


@given(st.integers(-(10**60), 10**60), st.integers(0, 5000))
def test_it_is_int_up_to_its_bound_and_that_bound_beyond(number: int, zeros: int) -> None:
    sign, digits = ("-", str(-number)) if number < 0 else ("", str(number))
    found = whole_number(f"{sign}{'0' * zeros}{digits}")
    beyond = BEYOND if number > 0 else -BEYOND
    assert found == (number if len(digits) <= DIGITS_MAX else beyond)


@pytest.mark.parametrize("text", ["", "x", "9" * 5000 + "x", "-" * 41, "9" * 41 + "٣"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(ValueError):
        whole_number(text)

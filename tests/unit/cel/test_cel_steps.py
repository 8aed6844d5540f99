"""Functions over texts spend steps for what they read and write."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minikube_py.cel.allowance import OutOfSteps, counted, within
from minikube_py.cel.strings import FUNCTIONS

LONG = "a" * 4_000_000
CALLS = {
    "hexadecimal": ("string_format", "%x%X", [LONG, LONG.encode()]),
    "binary": ("string_format", "%s", [LONG]),
    "replaced": ("string_replace_string_string", "a" * 2_000, "a", "b" * 2_000),
    "joined": ("list_join_string", ["a" * 2_000] * 2_000, ","),
    "found": ("string_index_of_string", LONG, "b"),
    "found backwards": ("string_last_index_of_string", LONG, "ab" + "a" * 1_000),
    "cut": ("string_substring_int", LONG, 1),
    "cut in parts": ("string_split_string", LONG, "b"),
    "in other letters": ("string_upper_ascii", LONG),
    "trimmed": ("string_trim", LONG),
}


@pytest.mark.parametrize("case", CALLS)
def test_a_call_over_a_long_text_spends_steps(case: str) -> None:
    name, *given_ = CALLS[case]
    _, steps = counted(FUNCTIONS[name], *given_)
    assert steps > 4_000_000 >> 8
    with pytest.raises(OutOfSteps):
        within(1_000, FUNCTIONS[name], *given_)


texts = st.text("ab", max_size=12)


@given(texts, texts, st.one_of(st.none(), st.integers(0, 14)))
def test_the_last_place_is_the_last(text: str, part: str, start: int | None) -> None:
    given_ = () if start is None else (start,)
    found = FUNCTIONS["string_last_index_of_string"](text, part, *given_)
    if not part:
        assert found == (len(text) if start is None else start)
        return
    latest = len(text) if start is None else start
    expected = [at for at in range(min(latest, len(text)) + 1) if text.startswith(part, at)]
    wanted = expected[-1] if expected and (start is None or start < len(text)) else -1
    assert found == wanted

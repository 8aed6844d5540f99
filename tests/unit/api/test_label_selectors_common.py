"""Keys and values of labels that are accepted together are those that the rule accepts one by one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minikube_py.api.label_selectors import InvalidSelector, selector_of
from minikube_py.api.meta import are_label_keys, are_label_values, is_label_value, is_qualified_name

PREFIXES = ("", "x/", "a.b/", "A/", "a..b/", "a-/", "-a/", f"{'p' * 189}/", f"{'p' * 254}/")
LONG = st.tuples(st.sampled_from(PREFIXES), st.sampled_from((0, 1, 62, 63, 64)))
KEYS = st.text("aZ0-._/\n é", max_size=8) | LONG.map(lambda drawn: drawn[0] + "a" * drawn[1])
COMMON = ("a", "a1", "app.kubernetes.io/name", "x.io/A_b.c-9")


@given(KEYS)
def test_a_selector_is_refused_by_the_rule(key: str) -> None:
    if is_qualified_name(key):
        with pytest.raises(InvalidSelector):
            selector_of({"matchLabels": {key: "a"}})
    else:
        assert selector_of({"matchLabels": {key: "a"}}).matches({key: "a"})


@given(st.lists(KEYS, max_size=4))
def test_together_none_is_accepted_that_is_not_alone(texts: list[str]) -> None:
    right = not any(map(is_qualified_name, texts))
    assert are_label_keys(texts) == (right and all(len(text) <= 253 for text in texts))
    assert are_label_values(texts) == (not any(map(is_label_value, texts)))


@given(KEYS)
def test_one_among_thousands_counts(text: str) -> None:
    assert are_label_values(["a"] * 3000 + [text] + ["b.c"] * 10) == (not is_label_value(text))


def test_common_ones_need_no_rule() -> None:
    assert are_label_keys(COMMON) and are_label_values(["", "a", "A_b.c-9"])

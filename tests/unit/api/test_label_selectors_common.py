"""Keys of selectors that are accepted without asking the rule are those that it accepts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minikube_py.api.label_selectors import _COMMON, InvalidSelector, selector_of
from minikube_py.api.meta import is_qualified_name

PREFIXES = ("", "x/", "a.b/", "A/", "a..b/", f"{'p' * 189}/", f"{'p' * 254}/")
LONG = st.tuples(st.sampled_from(PREFIXES), st.sampled_from((1, 62, 63, 64)))
KEYS = st.text("aZ0-._/\n ", max_size=8) | LONG.map(lambda drawn: drawn[0] + "a" * drawn[1])


@given(KEYS)
def test_no_key_is_accepted_that_is_not_a_label(key: str) -> None:
    assert not (_COMMON.fullmatch(key) and is_qualified_name(key))
    if is_qualified_name(key):
        with pytest.raises(InvalidSelector):
            selector_of({"matchLabels": {key: "a"}})
    else:
        assert selector_of({"matchLabels": {key: "a"}}).matches({key: "a"})


def test_common_keys_need_no_rule() -> None:
    for key in ("a", "a1", "app.kubernetes.io/name", "x.io/A_b.c-9"):
        assert _COMMON.fullmatch(key)

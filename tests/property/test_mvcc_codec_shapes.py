"""A message of another shape than the codec writes is refused, or is a message that the codec would write."""

from __future__ import annotations

from typing import Any

import edges
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from minikube_py.errors import Compacted, FutureRevision, InvalidRequest, NotLeader, RequestTooLarge
from minikube_py.mvcc.codec import from_plain, to_plain
from minikube_py.mvcc.types import (
    CompactResult,
    DeleteResult,
    KeyValue,
    LeaseResult,
    PutResult,
    RangeResult,
    SessionResult,
    TxnResult,
    WatchBatch,
)

LEAVES = st.sampled_from((None, True, -1, 0, 1, 7, 2**63, 0.5, "", "x", b"", b"k"))
SHAPES = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=2), inner))


OTHER_TYPES: dict[type, tuple[Any, ...]] = {
    int: ("x", b"k", 0.5, [], {}),
    bytes: ("x", 7, 0.5, [], {}),
    str: (7, b"k", 0.5, [], {}),
    bool: ("x", b"k", 0.5, 7, []),
}


def places(plain: Any, path: tuple[int, ...] = ()) -> list[tuple[int, ...]]:
    found = [path]
    if isinstance(plain, list | tuple):
        for at, inner in enumerate(plain):
            found += places(inner, (*path, at))
    return found


def with_another(plain: Any, path: tuple[int, ...], other: Any, kind: str) -> Any:
    """`kind`: what is at `path` is replaced, left out, or followed by `other`."""
    if not path:
        return other
    at, *rest = path
    inner = list(plain)
    if rest:
        inner[at] = with_another(inner[at], tuple(rest), other, kind)
    elif kind == "replace":
        inner[at] = other
    else:
        inner[at : at + (kind == "drop")] = [] if kind == "drop" else [other]
    return inner


def is_refused_or_a_message(plain: Any) -> None:
    try:
        message = from_plain(plain)
    except InvalidRequest as refusal:
        assert str(refusal)
        return
    assert message is not None
    assert from_plain(to_plain(message)) == message


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data(), source=edges.commands() | edges.requests(), kind=st.sampled_from(("replace", "drop", "insert")))
def test_a_message_with_a_part_of_another_shape(data: st.DataObject, source: Any, kind: str) -> None:
    plain = to_plain(source)
    path = data.draw(st.sampled_from(places(plain)))
    is_refused_or_a_message(with_another(plain, path, data.draw(SHAPES), kind))


def at_place(plain: Any, path: tuple[int, ...]) -> Any:
    for at in path:
        plain = plain[at]
    return plain


@settings(max_examples=500, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data(), source=edges.commands() | edges.requests())
def test_a_number_a_text_or_a_flag_is_nothing_else(data: st.DataObject, source: Any) -> None:
    plain = to_plain(source)
    leaves = [path for path in places(plain) if type(at_place(plain, path)) in OTHER_TYPES]
    path = data.draw(st.sampled_from(leaves))
    other = data.draw(st.sampled_from(OTHER_TYPES[type(at_place(plain, path))]))
    with pytest.raises(InvalidRequest):
        raise_if_refused(with_another(plain, path, other, "replace"))


KV = KeyValue(b"k", b"v", 1, 2, 3, 4)
ANSWERS = (
    PutResult(3, KV), DeleteResult(3, 1, (KV,)), TxnResult(3, True, (PutResult(3), TxnResult(3, False))),
    LeaseResult(3, 1, 60), CompactResult(3), SessionResult(4, 3), RangeResult([KV], 7, True, 3),
    WatchBatch([], 7), Compacted(3, 5), FutureRevision(9, 3), RequestTooLarge(9, 3), NotLeader(2, "there"),
)  # fmt: skip


@pytest.mark.parametrize("answer", ANSWERS, ids=lambda answer: type(answer).__name__)
def test_a_number_in_an_answer_is_nothing_else(answer: Any) -> None:
    plain = to_plain(answer)
    numbers = [path for path in places(plain) if type(at_place(plain, path)) is int]
    assert numbers
    for path in numbers:
        for other in OTHER_TYPES[int]:
            with pytest.raises(InvalidRequest):
                raise_if_refused(with_another(plain, path, other, "replace"))


def raise_if_refused(plain: Any) -> None:
    message = from_plain(plain)
    raise AssertionError(f"{plain} was taken for {message}")


@given(plain=SHAPES)
def test_what_is_no_message_at_all(plain: Any) -> None:
    is_refused_or_a_message(plain)


@pytest.mark.parametrize("plain", [None, 0, "", [], {}, [999], [[1]], [None], ["put"], [2**70]])
def test_what_has_no_tag_is_refused_by_name(plain: Any) -> None:
    with pytest.raises(InvalidRequest, match=r"malformed message with tag|no message has the tag"):
        from_plain(plain)

"""Large answers of extenders: read off the loop, with the same words as small ones."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from edges import wild_texts
from hypothesis import given, settings
from hypothesis import strategies as st

from minikube_py.env import Answer
from minikube_py.scheduler.extenders import go_json, wire
from minikube_py.scheduler.extenders.asking import Extenders
from minikube_py.scheduler.extenders.config import ExtenderConfig
from minikube_py.scheduler.extenders.go_json import BadJson
from minikube_py.scheduler.objects import PodInfo
from tests.support.hostile_answers import EXTENDER_ANSWERS


@pytest.mark.parametrize("name", EXTENDER_ANSWERS)
def test_a_large_answer_is_read_in_a_thread_and_as_a_small_one(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread reads its outermost members in Python, so that others have their turn meanwhile."""

    def found(text: bytes, large: bool) -> Iterator[object]:
        monkeypatch.setattr(go_json, "LARGE_BYTES", 0 if large else 1 << 40)
        for read in (wire.filter_result, wire.priorities, wire.preemption_result, wire.binding_error):
            try:
                yield read(text)
            except BadJson as error:
                yield str(error)

    for size in (20, 300, 30_000):
        text = EXTENDER_ANSWERS[name](size)
        assert list(found(text, True)) == list(found(text, False))


values = st.recursive(
    st.none() | st.booleans() | st.integers() | wild_texts,
    lambda each: st.lists(each, max_size=3) | st.dictionaries(wild_texts, each, max_size=3),
)


@settings(max_examples=50)
@given(values, st.data())
def test_outermost_members_read_in_python_are_read_as_all_others(value: Any, data: st.DataObject) -> None:
    text = json.dumps(value, indent=data.draw(st.sampled_from([None, 1])))
    at = data.draw(st.integers(0, len(text)))
    text = (
        text[:at]
        + data.draw(st.sampled_from(["", ",", "}", "]", " ", '"', "[", "{", ":", "\\", "1"]))
        + text[at + data.draw(st.integers(0, 2)) :]
    )

    def found(decoder: json.JSONDecoder) -> object:
        try:
            return decoder.raw_decode(text.lstrip())
        except json.JSONDecodeError as error:
            return go_json._explained(text.lstrip(), error) if text.strip() else ""

    assert found(go_json._OUTER) == found(go_json._DECODER)


async def test_a_large_answer_is_read_off_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere: list[int] = []

    async def to_thread(read: Callable[[bytes], Any], text: bytes) -> Any:
        elsewhere.append(len(text))
        return read(text)

    class Answering:
        def __init__(self, size: int) -> None:
            self.size = size

        async def post(self, url: str, body: bytes, tls: Any, timeout_s: float) -> Answer:
            return Answer(200, b"[" + b" " * (self.size - 2) + b"]")

        async def close(self) -> None:
            pass

    monkeypatch.setattr(asyncio, "to_thread", to_thread)
    configured = ExtenderConfig("http://e", prioritize_verb="p", weight=1)
    pod = PodInfo.__new__(PodInfo)
    pod.body = b"{}"
    for size in (go_json.LARGE_BYTES, go_json.LARGE_BYTES + 1):
        assert await Extenders([configured], Answering(size)).prioritize(pod, {}) == {}
    assert elsewhere == [go_json.LARGE_BYTES + 1]

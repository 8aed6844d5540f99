"""The generators reach the edges they are there for: what they never draw, no test ever sees."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import edges
import msgpack
import pytest
from hypothesis import HealthCheck, Phase, find, given, settings

from minikube_py.errors import InvalidRequest
from minikube_py.mvcc.codec import unpack
from minikube_py.mvcc.types import InSession, Txn

DRAWN = settings(max_examples=3000, deadline=None, database=None, derandomize=True, phases=[Phase.generate])


def _reads(data: bytes) -> bool:
    try:
        unpack(data)
    except InvalidRequest:
        return False
    return True


def _nested(command: Any) -> bool:
    return isinstance(command, Txn) and any(isinstance(op, Txn) for op in (*command.success, *command.failure))


@pytest.mark.parametrize(
    ("strategy", "wanted"),
    [
        (edges.ints, lambda value: value > 2**64),
        (edges.wild_texts, lambda text: any("\ud800" <= char <= "\udfff" for char in text)),
        (edges.texts, lambda text: "\0" in text),
        (edges.quantities, lambda text: text == "10P"),
        (edges.ranges, lambda bounds: bounds[1] > b"\0" and bounds[1] < bounds[0]),
        (edges.pods, lambda pod: isinstance(pod, dict) and isinstance(pod.get("status"), list)),
        (edges.requests(), lambda request: request.limit >= 2**63 - 1),
        (edges.txns(), _nested),
        (edges.commands(), lambda command: isinstance(command, InSession)),
        (edges.hostile_bytes, _reads),
        (edges.hostile_bytes, lambda data: not _reads(data)),
    ],
)
def test_an_edge_is_drawn(strategy: Any, wanted: Callable[[Any], bool]) -> None:
    find(strategy, wanted, settings=DRAWN)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(edges.texts, edges.wire_ints, edges.plain_values)
def test_what_is_drawn_for_the_wire_can_be_packed(text: str, number: int, value: Any) -> None:
    assert msgpack.unpackb(msgpack.packb([text, number]), strict_map_key=False) == [text, number]
    msgpack.packb(value)

"""What pods use by their annotations."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minikube_py.fields.usage import CPU, MEMORY, NOTHING, UNTOLD, Annotated, Usage, cpu_text, memory_text


def pod(count: int, **annotations: str) -> dict[str, Any]:
    told = {name: annotations[key] for key, name in (("cpu", CPU), ("memory", MEMORY)) if key in annotations}
    containers = [{"name": f"c{i}"} for i in range(count)]
    return {
        "metadata": {"name": "p", "annotations": told},
        "spec": {"containers": containers, "initContainers": [{"name": "i"}]},
    }


TOLD = [
    ({}, UNTOLD),
    ({"cpu": "100m", "memory": "64Mi"}, Usage(100_000_000, 64 << 20)),
    ({"cpu": "1n", "memory": "1"}, Usage(1, 1)),
    ({"cpu": "0", "memory": "0"}, NOTHING),
    # As in KWOK, where an expression that fails counts as nothing.
    ({"cpu": "x", "memory": ""}, NOTHING),
    ({"cpu": "-1", "memory": "-1Ki"}, NOTHING),
    ({"cpu": "0.5", "memory": "500m"}, Usage(500_000_000, 1)),
]


@pytest.mark.parametrize(("annotations", "each"), TOLD)
def test_each_container_uses_what_the_annotations_say(annotations: dict[str, str], each: Usage) -> None:
    source = Annotated()
    assert source.usage(pod(1, **annotations), 0.0) == each
    assert source.usage(pod(3, **annotations), 0.0, "c1") == each
    assert source.usage(pod(0, **annotations), 0.0) == NOTHING


@given(st.integers(0, 5), st.integers(0, 1 << 40), st.integers(0, 1 << 50), st.floats(0, 1e9))
def test_a_pod_uses_the_sum_of_its_containers_at_any_time(count: int, nanos: int, size: int, at_s: float) -> None:
    source, made = Annotated(), pod(count, cpu=f"{nanos}n", memory=str(size))
    total = NOTHING
    for i in range(count):
        total = total.plus(source.usage(made, at_s, f"c{i}"))
    assert source.usage(made, at_s) == total == Usage(nanos * count, size * count)


def test_amounts_are_printed_as_metrics_server_prints_them() -> None:
    printed = [
        (cpu_text(each), memory_text(each))
        for each in (NOTHING, UNTOLD, Usage(123_456_789, 1500), Usage(2 * 10**9, 3 << 30))
    ]
    assert printed == [("0", "0"), ("1m", "1Mi"), ("123456789n", "1500"), ("2", "3Gi")]

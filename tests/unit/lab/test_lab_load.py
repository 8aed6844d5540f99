"""What the load does where the API does not take a pod, or does not say whether it did."""

from __future__ import annotations

import random
from typing import Any

import pytest
from virtual_time import LoopClock

from minikube_py.client.transport import ApiResponse
from minikube_py.lab.load import LoadError, create_pod
from minikube_py.lab.measure import PodRecorder
from minikube_py.lab.workload import seeded_pods


class Answers:
    def __init__(self, *statuses: int) -> None:
        self.left = list(statuses)

    async def request(self, *_: Any, **__: Any) -> ApiResponse:
        return ApiResponse(self.left.pop(0), b'{"message":"so it is"}')


@pytest.mark.parametrize(
    ("statuses", "done"),
    [
        pytest.param((201,), True, id="taken"),
        pytest.param((429, 503, 201), True, id="refused for now"),
        pytest.param((504, 201), True, id="unknown, and was not done"),
        pytest.param((504, 409), True, id="unknown, and was done"),
        pytest.param((504, 503, 409), True, id="unknown, then refused, and was done"),
        pytest.param((409,), False, id="somebody else's"),
        pytest.param((503, 409), False, id="refused, so somebody else's"),
        pytest.param((422,), False, id="refused for good"),
        pytest.param((504,) * 8, False, id="never known"),
    ],
)
async def test_a_pod_is_created_once(statuses: tuple[int, ...], done: bool) -> None:
    transport: Any = Answers(*statuses)
    pod = next(iter(seeded_pods(random.Random(1), 1, 1, "run")))
    recorder = PodRecorder(transport, LoopClock(), "run")
    if done:
        await create_pod(transport, pod, recorder)
        assert recorder.pods[pod.key].answered_s is not None
    else:
        with pytest.raises(LoadError, match=f"create of pod {pod.key} answered {statuses[-1]}: so it is"):
            await create_pod(transport, pod, recorder)
    assert not transport.left

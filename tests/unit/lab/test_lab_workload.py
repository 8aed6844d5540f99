"""Workloads repeat by their seed; pods say what the trace says; questions are answered right without an index."""

import asyncio
import random
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from functools import partial
from typing import Any

import orjson
import pytest
from virtual_time import LoopClock

from minikube_py.client.transport import ApiResponse, WatchEvent
from minikube_py.errors import Unavailable
from minikube_py.lab import density, metrics, workload
from minikube_py.lab.load import LoadError, run_bounded
from minikube_py.lab.measure import PodRecorder
from minikube_py.lab.questions import Question, free_at_least
from minikube_py.lab.trace import TracePod


def test_same_seed_same_objects_in_the_same_order() -> None:
    def made(seed: int) -> tuple[Any, Any]:
        rng = random.Random(seed)
        return workload.seeded_nodes(rng, 50), workload.seeded_pods(rng, 50, 3, "run")

    assert made(7) == made(7)
    assert made(7) != made(8)


@pytest.mark.parametrize(
    ("milli", "text"), [(0, "0"), (1000, "1"), (12000, "12"), (500, "500m"), (1500, "1500m"), (2, "2m")]
)
def test_cpu_text(milli: int, text: str) -> None:
    assert workload.cpu_text(milli) == text


@pytest.mark.parametrize(("mib", "text"), [(1024, "1Gi"), (30517, "30517Mi"), (262144, "256Gi"), (512, "512Mi")])
def test_memory_text(mib: int, text: str) -> None:
    assert workload.memory_text(mib) == text


def _trace_pod(**figures: Any) -> Any:
    gpus, gpu_milli, models = figures.get("gpus", 0), figures.get("gpu_milli", 0), figures.get("models", ())
    pod = TracePod("p", 0, 1, 6000, 12288, gpus, gpu_milli, models)
    return orjson.loads(workload.trace_pods([pod], "openb", "run")[0].body)


def test_gpu_pods_ask_for_thousandths_of_a_gpu_as_request_and_limit() -> None:
    resources = _trace_pod(gpus=8, gpu_milli=1000)["spec"]["containers"][0]["resources"]
    assert resources == {
        "requests": {"cpu": "6", "memory": "12Gi", workload.GPU_RESOURCE: "8000"},
        "limits": {workload.GPU_RESOURCE: "8000"},
    }
    assert "limits" not in _trace_pod()["spec"]["containers"][0]["resources"]


def test_accepted_models_become_node_affinity() -> None:
    affinity = _trace_pod(gpus=1, gpu_milli=460, models=("V100M16", "V100M32"))["spec"]["affinity"]
    required = affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert required["nodeSelectorTerms"] == [
        {"matchExpressions": [{"key": workload.GPU_MODEL_LABEL, "operator": "In", "values": ["V100M16", "V100M32"]}]}
    ]
    assert "affinity" not in _trace_pod()["spec"]


def _node(name: str, **allocatable: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "status": {"allocatable": allocatable}}


def _pod(node: str, phase: str = "Running", *requests: dict[str, str]) -> dict[str, Any]:
    spec: dict[str, Any] = {"containers": [{"resources": {"requests": each}} for each in requests]}
    return {"spec": {**spec, "nodeName": node} if node else spec, "status": {"phase": phase}}


@pytest.mark.parametrize(
    ("pods", "found"),
    [
        pytest.param([], ("a", "b"), id="nothing bound"),
        pytest.param([_pod("a", "Running", {"cpu": "1"})], ("b",), id="a pod takes the node under the line"),
        pytest.param([_pod("a", "Running", {"cpu": "500m"})], ("a", "b"), id="exactly at the line"),
        pytest.param([_pod("a", "Running", {"cpu": "501m"})], ("b",), id="just under it"),
        pytest.param([_pod("a", "Running", {"cpu": "250m"}, {"cpu": "300m"})], ("b",), id="containers add up"),
        pytest.param([_pod("a", "Succeeded", {"cpu": "4"})], ("a", "b"), id="finished pods take nothing"),
        pytest.param([_pod("", "Pending", {"cpu": "4"})], ("a", "b"), id="unbound pods take nothing"),
        pytest.param([_pod("b", "Pending", {"cpu": "64"})], ("a",), id="bound and not yet running counts"),
    ],
)
def test_free_at_least(pods: list[dict[str, Any]], found: tuple[str, ...]) -> None:
    nodes = [_node("b", cpu="64"), _node("a", cpu="4500m"), _node("without", memory="1Gi"), {"metadata": {"name": "x"}}]
    assert free_at_least(nodes, pods, Question("", {"cpu": "4"})) == found


def test_question_as_a_field_selector() -> None:
    asked = Question("", {"cpu": "4", "memory": "16Gi", workload.GPU_RESOURCE: "1000"})
    assert asked.selector == "free.cpu>=4,free.memory>=16Gi,free.openb.io/gpu-milli>=1000"


METRICS = """# HELP x y
# TYPE up gauge
up 1
a_index_objects_decoded_total 3
b_index_objects_decoded_total{member="1"} 4 1700000000
escaped{text="a\\"b,c=\\"d"} 2.5e3
apiserver_request_sli_duration_seconds_bucket{verb="POST",resource="pods",scope="resource",le="0.05"} 50
apiserver_request_sli_duration_seconds_bucket{verb="POST",resource="pods",scope="resource",le="0.1"} 100
apiserver_request_sli_duration_seconds_bucket{verb="POST",resource="pods",scope="resource",le="+Inf"} 100
"""


def test_metrics_are_read() -> None:
    samples = metrics.parse(METRICS)
    assert samples["up", ()] == 1
    assert samples["escaped", (("text", 'a\\"b,c=\\"d'),)] == 2500
    assert metrics.total_of_suffix(samples, "index_objects_decoded_total") == 7
    calls = metrics.api_call_slis({}, samples)
    assert calls["POST pods resource"]["count"] == 100
    assert calls["POST pods resource"]["p50_ms"] == metrics.FIRST_BOUND_MS, "no finer than the first bucket"
    assert calls["POST pods resource"]["p99_ms"] == pytest.approx(99)
    assert metrics.api_call_slis(samples, samples) == {}


@pytest.mark.parametrize(
    ("buckets", "quantile", "expected"),
    [
        pytest.param({0.1: 10, 0.2: 10, float("inf"): 10}, 0.5, 0.05, id="within the first bucket"),
        pytest.param({0.1: 0, 0.2: 10, float("inf"): 10}, 0.5, 0.15, id="linear within a bucket"),
        pytest.param({0.1: 5, float("inf"): 10}, 0.99, 0.1, id="above the last bound"),
    ],
)
def test_histogram_quantile(buckets: dict[float, float], quantile: float, expected: float) -> None:
    assert metrics.histogram_quantile(buckets, quantile) == pytest.approx(expected)


def test_throughput_counts_by_window() -> None:
    figures = density.throughput([0.0, 0.1, 0.2, 1.5, 2.5])
    assert figures == {"average": 2.0, "p50": 1.0, "p90": 3.0, "max": 3.0}


def test_pods_that_are_bound_at_one_moment_have_no_rate(capsys: pytest.CaptureFixture[str]) -> None:
    none = {"running": {"count": 0, "p50_ms": 0.0, "p90_ms": 0.0, "p99_ms": 0.0, "max_ms": 0.0}}
    phase = density.Phase(2, 0.0, {"by_call": none, "by_watch": none}, density.throughput([1.0, 1.0]))
    options = density.DensityOptions(1, 2, 0, 1.0, False, 1, 0)
    assert density._tell(options, phase, phase, {})
    told = capsys.readouterr().out
    assert "(- pods/s; bound per second: p50 -, max -)" in told and "nan" not in told


class ScriptedTransport:
    """Answers a list, then each watch with the next of `watches`; then ends with what was sent last."""

    def __init__(self, *watches: list[WatchEvent]) -> None:
        self.watches = list(watches)
        self.asked: list[str] = []

    async def request(
        self,
        method: str,
        path: str,
        params: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = "",
    ) -> ApiResponse:
        return ApiResponse(200, b'{"metadata":{"resourceVersion":"5"},"items":[]}')

    async def watch(self, path: str, params: Mapping[str, str] | None = None) -> AsyncIterator[list[WatchEvent]]:
        self.asked.append((params or {})["resourceVersion"])
        if not self.watches:
            raise Unavailable("the script is at its end")
        yield self.watches.pop(0)

    async def close(self) -> None: ...


def _event(kind: str, version: int, **pod: Any) -> WatchEvent:
    metadata = {"name": "p", "namespace": "n", "resourceVersion": str(version)}
    spec = {"containers": [{}], **({"nodeName": pod["node"]} if "node" in pod else {})}
    return WatchEvent(kind, orjson.dumps({"metadata": metadata, "spec": spec, "status": pod.get("status", {})}))


UNSCHEDULABLE = {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]}
RUNNING = {"phase": "Running", "containerStatuses": [{"state": {"running": {}}}]}
NOT_STARTED = {"phase": "Running", "containerStatuses": [{"state": {"waiting": {}}}]}


async def test_recorder_follows_a_pod_through_broken_watches() -> None:
    transport = ScriptedTransport(
        [_event("ADDED", 6), _event("MODIFIED", 7, status=UNSCHEDULABLE)],
        [_event("MODIFIED", 8, node="node-1"), _event("MODIFIED", 9, node="node-1", status=NOT_STARTED)],
        [_event("MODIFIED", 10, node="node-1", status=RUNNING), _event("DELETED", 11, node="node-1", status=RUNNING)],
    )
    recorder = PodRecorder(transport, LoopClock(), "run=x")
    told: list[tuple[str, str, str]] = []
    recorder.on_bound = lambda key, node: told.append(("bound", key, node))
    recorder.on_gone = lambda key, node: told.append(("gone", key, node))
    recorder.sent("n/p")
    await recorder.start()
    assert await recorder.wait_until(lambda: recorder.pods["n/p"].deleted, 5.0)
    await recorder.stop()
    assert transport.asked[:3] == ["5", "7", "9"], "each watch goes on where the one before ended"
    assert told == [("bound", "n/p", "node-1"), ("gone", "n/p", "node-1")]
    assert (recorder.created, recorder.bound, recorder.running, recorder.unschedulable) == (1, 1, 1, set())
    times = recorder.pods["n/p"]
    assert times.sent_s <= times.seen_s <= times.bound_s <= times.running_s  # type: ignore[operator]
    assert recorder.summaries()["by_call"]["running"]["count"] == 1
    assert recorder.summaries()["by_call"]["create call"]["count"] == 0


async def test_recorder_tells_that_its_watch_is_gone_for_good() -> None:
    expired = WatchEvent("ERROR", b'{"kind":"Status","code":410,"message":"too old resource version"}')
    recorder = PodRecorder(ScriptedTransport([expired]), LoopClock(), "run=x")
    await recorder.start()
    with pytest.raises(Unavailable, match="too old resource version"):
        await recorder.wait_until(lambda: False, 5.0)
    await recorder.stop()


async def test_bounded_load_keeps_its_order_and_its_bound() -> None:
    started: list[int] = []
    under_way = most = 0

    async def work(number: int) -> None:
        nonlocal under_way, most
        started.append(number)
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0)
        under_way -= 1

    async def tasks() -> AsyncGenerator[Callable[[], Awaitable[None]], None]:
        for number in range(50):
            yield partial(work, number)

    await run_bounded(tasks(), 8)
    assert started == list(range(50)) and most == 8


async def test_first_refusal_ends_the_load_and_is_raised_as_it_was() -> None:
    started = []

    async def refused(number: int) -> None:
        started.append(number)
        raise LoadError(f"refused {number}")

    async def tasks() -> AsyncGenerator[Callable[[], Awaitable[None]], None]:
        for number in range(1000):
            yield partial(refused, number)

    with pytest.raises(LoadError, match="refused 0"):
        await run_bounded(tasks(), 4)
    assert len(started) < 10

"""The diagrams besides a pod's life, recorded on small clusters: a scheduler starting on a full cluster, a watch
resuming after a compaction, an inequality query with and without an index.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any, Final, NamedTuple, cast

import orjson

from minikube_py.client.informer import Informer
from minikube_py.client.rest import PODS, RestClient
from minikube_py.client.transport import MERGE_PATCH, ApiTransport
from minikube_py.control_plane import tokens
from minikube_py.control_plane.config import ControlPlaneConfig, Step
from minikube_py.control_plane.in_process import ControlPlane
from minikube_py.control_plane.users import USERS
from minikube_py.env import Clock, SystemClock
from minikube_py.index.declared import IndexSpec
from minikube_py.lab.calls.drawing import Arrow, Diagram, Note
from minikube_py.lab.calls.matches import Path
from minikube_py.lab.calls.recorded import RecordedControlPlane, RecordedTransport
from minikube_py.lab.calls.recorder import API_SERVER, Call, Recorder
from minikube_py.lab.calls.story import diagram, repeated, rows_of
from minikube_py.lab.cluster import Cluster, Ground, cluster, running
from minikube_py.lab.load import LoadError, create_namespaces, creations, run_bounded
from minikube_py.lab.measure import PodRecorder
from minikube_py.lab.query import NODES_PREFIX, QueryOptions, fill, scan, timed
from minikube_py.lab.questions import Question
from minikube_py.lab.workload import RUN_LABEL, seeded_nodes, seeded_pods
from minikube_py.mvcc.types import RangeRequest, prefix_end
from minikube_py.scheduler.scheduler import Scheduler
from minikube_py.store.storage import Storage

NODES, POD_COUNT, RUN = 200, 1000, "stories"
QUIET_S, SETTLED_S = 30.0, 0.5
ANOTHER: Final = "API server 2"
QUERY_NODES, QUERY_PODS = 5000, 5000
ROUNDS, FIRST = 31, 10
STRUCTURE: Final = "shapes"
QUESTION: Final = Question("large", {"cpu": "64", "memory": "200Gi"})


@dataclass(frozen=True, slots=True)
class Stories:
    """`query_us`: medians of one query, by index and by range, decode and filter, all in this process."""

    scheduler: Diagram
    compaction: Diagram
    with_index: Diagram
    with_declared: Diagram
    without_index: Diagram
    query_us: dict[str, float]


async def tell(step: Step, seed: int) -> Stories:
    """Raises: MinikubeError of every kind."""
    clock = SystemClock()
    recorder = Recorder(clock)
    planes: list[RecordedControlPlane] = []

    def make(*arguments: Any) -> RecordedControlPlane:
        planes.append(RecordedControlPlane(recorder, *arguments))
        return planes[0]

    rng = random.Random(seed)
    shapes = seeded_nodes(rng, NODES)
    async with cluster(shapes, Ground(step=_quiet, seed=seed, plane=make)) as running:
        await _fill(running, rng)
        step("stories", f"{POD_COUNT:,} pods on {NODES} nodes")
        plane = planes[0]
        scheduler = await _scheduler_start(plane, recorder)
        compaction = await _compaction(plane, recorder)
    queries, query_us = await _query(seed)
    return Stories(scheduler, compaction, *queries, query_us)


def _quiet(name: str, note: str) -> None:
    """Suppresses the small cluster's progress output."""


async def _fill(running: Cluster, rng: random.Random) -> None:
    pods = seeded_pods(rng, POD_COUNT, 1, RUN)
    await create_namespaces(running.transport, [f"{RUN}-0"])
    watched = PodRecorder(running.transport, running.clock, f"{RUN_LABEL}={RUN}")
    await watched.start()
    try:
        await run_bounded(creations(running.transport, pods, watched))
        if not await watched.wait_until(lambda: watched.running >= POD_COUNT, QUIET_S):
            raise LoadError(f"{watched.running} of {POD_COUNT} pods became Running")
    finally:
        await watched.stop()


# -- a scheduler starts ------------------------------------------------------------------------------------------------


async def _scheduler_start(plane: RecordedControlPlane, recorder: Recorder) -> Diagram:
    """A second scheduler beside the running one: all pods are bound, so neither has work."""
    clock = recorder.clock
    await _until(clock, lambda: not _speaks(recorder, "scheduler"))
    began_s = clock.monotonic_s()
    second = Scheduler(plane.transport(USERS[tokens.SCHEDULER]), clock, random.Random(0))
    async with running(second):
        await clock.sleep(SETTLED_S)
        ended_s = clock.monotonic_s()
    calls = recorder.between(began_s, ended_s, lambda call: call.role == "scheduler" and call.layer != "delivery")
    asked = sum(call.layer == "api" for call in calls)
    stored = sum(call.layer == "store" for call in calls)
    subtitle = (
        f"{NODES:,} nodes, {POD_COUNT:,} pods: {asked} API requests, of which {stored} reached the store; "
        "the rest came from the API server's watch cache"
    )
    return diagram("A scheduler starts", subtitle, rows_of(calls))


def _speaks(recorder: Recorder, role: str) -> bool:
    """Whether this role was active within the last moments: events about pods come late."""
    now_s = recorder.clock.monotonic_s()
    return bool(recorder.between(now_s - SETTLED_S, now_s, lambda call: call.role == role and call.layer == "api"))


# -- a watch after a compaction ----------------------------------------------------------------------------------------


async def _compaction(plane: RecordedControlPlane, recorder: Recorder) -> Diagram:
    """One API server loses the store; another continues writing; the store compacts; the first one reconnects, and its
    clients must recover."""
    clock = recorder.clock
    other = await plane.another_core(ANOTHER, random.Random(1))
    client = RestClient(plane.transport())
    informer = Informer(client, PODS, _seen, clock=clock, rng=random.Random(2))
    informer.start()
    try:
        await informer.wait_synced()
        await clock.sleep(SETTLED_S)
        began_s = clock.monotonic_s()
        writer = RecordedTransport(recorder, other, USERS[tokens.ADMIN])
        await _patch(writer, 0)
        await clock.sleep(0.05)
        plane.recorded.cut()
        for number in (1, 2):
            version = await _patch(writer, number)
        compacted = await cast(Storage, plane.member.storage).compact(plane.member.storage.revision)
        compacted_s = clock.monotonic_s()
        await clock.sleep(0.25)
        plane.recorded.mend()
        await _until(clock, lambda: _version(informer, "load-000002") == version)
        await clock.sleep(SETTLED_S)
        calls = recorder.between(began_s, clock.monotonic_s(), _of_interest)
    finally:
        await informer.stop()
        await other.stop()
    rows: list[Arrow | Note] = list(rows_of(calls))
    cut = next(place for place, row in enumerate(rows) if isinstance(row, Arrow) and row.text == "Unavailable")
    rows.insert(cut, Note(f"{API_SERVER} loses its connection to the store; {ANOTHER} keeps its own"))
    after = next(
        place for place, row in enumerate(rows) if isinstance(row, Arrow) and row.at_s and row.at_s > compacted_s
    )
    rows.insert(
        after, Note(f"the store compacts: what was before revision {compacted.revision:,} is no longer available")
    )
    subtitle = (
        f"The user follows pods through {API_SERVER} and changes three through {ANOTHER}; "
        "scheduler, controllers and kubelet are not shown"
    )
    return diagram("A watch after a compaction", subtitle, rows)


def _of_interest(call: Call) -> bool:
    """The user's and the servers' calls; of the store's events, only pods and ends."""
    if call.layer == "events":
        return call.outcome != "done" or call.resource == "pods"
    return call.role in ("user", API_SERVER, ANOTHER)


async def _patch(writer: RecordedTransport, number: int) -> str:
    path = f"/api/v1/namespaces/{RUN}-0/pods/load-{number:06d}"
    body = orjson.dumps({"metadata": {"labels": {"touched": "yes"}}})
    answer = await writer.request("PATCH", path, body=body, content_type=MERGE_PATCH)
    if answer.status != 200:
        raise LoadError(f"patch of {path} answered {answer.status}: {answer.body[:200].decode(errors='replace')}")
    version: str = orjson.loads(answer.body)["metadata"]["resourceVersion"]
    return version


class _Seen(NamedTuple):
    uid: str
    version: str


def _seen(pod: Mapping[str, Any]) -> _Seen:
    return _Seen(pod["metadata"]["uid"], pod["metadata"]["resourceVersion"])


def _version(informer: Informer[_Seen], name: str) -> str:
    found = informer.store.get(f"{RUN}-0/{name}")
    return found.version if found is not None else ""


async def _until(clock: Clock, reached: Callable[[], bool]) -> None:
    deadline_s = clock.monotonic_s() + QUIET_S
    while not reached():
        if clock.monotonic_s() > deadline_s:
            raise LoadError(f"the user's copy of the pods was not up to date within {QUIET_S:.0f} s")
        await clock.sleep(0.02)


# -- an inequality -----------------------------------------------------------------------------------------------------


async def _query(seed: int) -> tuple[tuple[Diagram, Diagram, Diagram], dict[str, float]]:
    """On a plain store and API server, without the recorder's overhead."""
    with tempfile.TemporaryDirectory(prefix="minikube-py-") as folder:
        config = ControlPlaneConfig(FilePath(folder), port=0, components=())
        plane = ControlPlane(config, SystemClock(), random.Random(seed))
        try:
            await plane.start()
            await fill(plane.storage, QueryOptions(QUERY_NODES, QUERY_PODS, seed))
            one, found, took_us = await _by_index(plane.transport(), plane.storage)
            other, names, took_us["range, decode, filter"] = await _by_scan(plane.storage)
            await _declare(plane.storage)
            declared = await _by_declared(plane.storage)
        finally:
            await plane.stop()
    assert found <= set(names), "the index and the scan give equal answers"
    return (one, declared, other), took_us


async def _by_index(transport: ApiTransport, storage: Storage) -> tuple[Diagram, set[str], dict[str, float]]:
    params = {"fieldSelector": QUESTION.selector, "limit": str(FIRST)}
    request = RangeRequest(NODES_PREFIX, prefix_end(NODES_PREFIX), FIRST, where=QUESTION.where)
    took_us = {
        f"index, first {FIRST}, by the API in this process": await _median_us(
            lambda: transport.request("GET", "/api/v1/nodes", params)
        ),
        f"index, first {FIRST}, in the store": await _median_us(lambda: storage.range(request)),
        "index, all, in the store": await _median_us(lambda: storage.range(request._replace(limit=0))),
    }
    with Path("client") as path:
        answer = await transport.request("GET", "/api/v1/nodes", params)
    names = {item["metadata"]["name"] for item in orjson.loads(answer.body)["items"]}
    api_us, store_us, _ = took_us.values()
    subtitle = (
        f"GET nodes?fieldSelector={QUESTION.selector}&limit={FIRST}, {QUERY_NODES:,} nodes: {api_us:.0f} µs "
        f"unobserved, {store_us:.0f} µs of them in the store; {path.decoded():,} objects decoded"
    )
    title = "Which nodes have enough free capacity? With an index"
    return Diagram(title, subtitle, path.lanes(), repeated(path.arrows())), names, took_us


async def _declare(storage: Storage) -> None:
    fields = tuple(f"free.{name}" for name in QUESTION.at_least)
    await storage.declare_index(IndexSpec("fits", "nodes", fields, STRUCTURE))
    clock = SystemClock()
    deadline_s = clock.monotonic_s() + QUIET_S
    while (await storage.indexes())[0].state != "ready":
        if clock.monotonic_s() > deadline_s:
            raise LoadError(f"the index was not built within {QUIET_S:.0f} s")
        await clock.sleep(0.01)


async def _by_declared(storage: Storage) -> Diagram:
    """The first query after the declaration: the planner estimates from a sample. Any ten results suffice, as for a
    scheduler; in key order all would have to be found first."""
    request = RangeRequest(NODES_PREFIX, prefix_end(NODES_PREFIX), FIRST, where=QUESTION.where, order="ANY")
    with Path("client") as path:
        result = await storage.range(request)
    ways = await storage.explain(request)
    told = [
        f"{each.name or 'no index'} ({each.structure}) {each.estimated_us:,.1f} µs"
        for each in (ways.chosen, *ways.others)
    ]
    assert result.stats is not None
    title = f"The same with an index declared: the planner chooses {result.stats.structure}"
    subtitle = (
        f"Any {FIRST} of them. Estimates, the chosen one first: {'; '.join(told)}; {path.decoded():,} objects decoded"
    )
    return Diagram(title, subtitle, path.lanes(), repeated(path.arrows()))


async def _by_scan(storage: Storage) -> tuple[Diagram, tuple[str, ...], float]:
    took_us = await _median_us(lambda: scan(storage, QUESTION))
    with Path("client") as path:
        names = await scan(storage, QUESTION)
    subtitle = (
        f"{QUESTION.selector}, {QUERY_NODES:,} nodes with {QUERY_PODS:,} pods: {took_us / 1000:.1f} ms unobserved; "
        f"{path.decoded():,} objects decoded"
    )
    title = "The same without an index: range, decode, filter"
    return Diagram(title, subtitle, path.lanes(), repeated(path.arrows())), names, took_us


async def _median_us(work: Callable[[], Awaitable[object]]) -> float:
    return (await timed(ROUNDS, work))[0] * 1e6

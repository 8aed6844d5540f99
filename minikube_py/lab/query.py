"""`bench query`: finds nodes with enough free resources in four ways, and times them.

1. **index**: the store's own range query with a `Where`, values included, nothing decoded. 2. **range, decode,
filter**: what an etcd client does: range over nodes and pods, decode, sum, compare. 3. **API, index**: `GET
/api/v1/nodes?fieldSelector=free...` in this process, from request to decoded list. 4. **API, list and filter**: `GET`
of all nodes and all pods, decoded, summed and compared.

The nodes and the pods bound to them are written straight into the store, so that 100,000 of them exist within seconds.
"""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

import orjson

from minikube_py.client.transport import ApiTransport
from minikube_py.control_plane.config import ControlPlaneConfig, Step
from minikube_py.control_plane.in_process import ControlPlane
from minikube_py.env import SystemClock
from minikube_py.fields import builtin
from minikube_py.lab import plots, report
from minikube_py.lab.cluster import require_unused
from minikube_py.lab.environment import Environment, describe
from minikube_py.lab.progress import progress
from minikube_py.lab.questions import Question, QuestionError, ask_by_listing, ask_index, free_at_least
from minikube_py.lab.stage import numbered_uid, write_all
from minikube_py.lab.workload import seeded_nodes
from minikube_py.mvcc.types import Put, RangeRequest, prefix_end
from minikube_py.store.storage import Storage

T = TypeVar("T")

NODES_PREFIX, PODS_PREFIX = builtin.NODES.prefix, builtin.PODS.prefix
FIRST = 10
NAMESPACE = "query"
READY = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
POD_SHARES = (0.1, 0.25, 0.4, 0.5)
WAYS = 5
INDEX_ROUNDS, API_ROUNDS, SCAN_ROUNDS = 51, 11, 3
QUESTIONS = (
    Question("none", {"cpu": "97", "memory": "16Gi"}),
    Question("few", {"cpu": "95", "memory": "380Gi"}),
    Question("most", {"cpu": "4", "memory": "16Gi"}),
)


@dataclass(frozen=True, slots=True)
class QueryOptions:
    nodes: int
    pods: int
    seed: int


@dataclass(frozen=True, slots=True)
class Asked:
    """Seconds, medians. `found` nodes; `rows_examined` by the index, in total."""

    question: str
    selector: str
    found: int
    rows_examined: int
    objects_decoded: int
    structure: str
    index_first_s: float
    index_all_s: float
    scan_s: float
    api_first_s: float
    api_all_s: float
    api_listing_s: float


async def run_query(options: QueryOptions, *, data_dir: Path | None, results: Path, step: Step) -> None:
    """Prints as it goes. Raises: MinikubeError of every kind."""
    report.require_writable(results)
    require_unused(data_dir)
    with tempfile.TemporaryDirectory(prefix="minikube-py-") as temporary:
        folder = data_dir or Path(temporary)
        config = ControlPlaneConfig(folder, port=0, components=())
        plane = ControlPlane(config, SystemClock(), random.Random(), step)
        try:
            await plane.start()
            environment = describe(folder, "one process: store and API server")
            environment.tell()
            await fill(plane.storage, options)
            asked = await _ask_all(plane.storage, plane.transport())
        finally:
            await plane.stop()
    _tell(options, asked)
    folder = report.results_folder(results, "query", datetime.now())
    report.print_written(_write(folder, environment, options, asked))


async def fill(storage: Storage, options: QueryOptions) -> None:
    """Writes the nodes, and the pods bound to them."""
    await write_all(storage, _objects(options), options.nodes + options.pods, "objects written")


def _objects(options: QueryOptions) -> Iterator[Put]:
    """The nodes, then the pods bound to them; nodes are drawn with replacement, so that some fill up."""
    rng = random.Random(options.seed)
    shapes = seeded_nodes(rng, options.nodes)
    for number, shape in enumerate(shapes):
        metadata = _metadata(number, shape.name)
        status = {"capacity": shape.capacity, "allocatable": shape.capacity, "conditions": [READY]}
        yield Put(NODES_PREFIX + shape.name.encode(), _stored(metadata, {}, status))
    for number in range(options.pods):
        shape = shapes[rng.randrange(len(shapes))]
        share = rng.choice(POD_SHARES)
        requests = {
            "cpu": f"{int(int(shape.capacity['cpu']) * 1000 * share)}m",
            "memory": f"{int(int(shape.capacity['memory'][:-2]) * 1024 * share)}Mi",
        }
        metadata = {**_metadata(options.nodes + number, f"pod-{number:07d}"), "namespace": NAMESPACE}
        container = {"name": "main", "image": "registry.k8s.io/pause:3.10", "resources": {"requests": requests}}
        spec = {"nodeName": shape.name, "containers": [container]}
        key = PODS_PREFIX + f"{NAMESPACE}/pod-{number:07d}".encode()
        yield Put(key, _stored(metadata, spec, {"phase": "Running"}))


def _metadata(number: int, name: str) -> dict[str, Any]:
    return {"name": name, "uid": numbered_uid(number), "creationTimestamp": "2025-01-01T00:00:00Z"}


def _stored(metadata: dict[str, Any], spec: dict[str, Any], status: dict[str, Any]) -> bytes:
    return orjson.dumps({"metadata": metadata, "spec": spec, "status": status})


async def _ask_all(storage: Storage, transport: ApiTransport) -> list[Asked]:
    with progress("queries run, each in 5 ways", len(QUESTIONS) * WAYS) as shown:
        answers = []
        for number, question in enumerate(QUESTIONS):

            def asked(way: int, before: int = number * WAYS) -> None:
                shown.update(before + way)

            answers.append(await _ask(storage, transport, question, asked))
        return answers


async def _ask(storage: Storage, transport: ApiTransport, question: Question, asked: Callable[[int], None]) -> Asked:
    """`asked` is called with the number of finished ways."""
    everything = RangeRequest(NODES_PREFIX, prefix_end(NODES_PREFIX), where=question.where)
    first_s, _ = await timed(INDEX_ROUNDS, lambda: storage.range(everything._replace(limit=FIRST)))
    all_s, found = await timed(INDEX_ROUNDS, lambda: storage.range(everything))
    names = tuple(sorted(kv.key[len(NODES_PREFIX) :].decode() for kv in found.kvs))
    asked(1)
    scan_s, scanned = await timed(SCAN_ROUNDS, lambda: scan(storage, question))
    asked(2)
    api_first = await ask_index(transport, question, API_ROUNDS, limit=FIRST)
    asked(3)
    api_all = await ask_index(transport, question, API_ROUNDS)
    asked(4)
    listing = await ask_by_listing(transport, question, SCAN_ROUNDS, api_all.revision)
    asked(WAYS)
    for what, other in (("range and filter", scanned), ("API", api_all.names), ("list and filter", listing.names)):
        if other != names:
            raise QuestionError(f"{question.selector}: the index finds {len(names)} nodes, {what} finds {len(other)}")
    assert found.stats is not None
    return Asked(
        question=question.text,
        selector=question.selector,
        found=len(names),
        rows_examined=found.stats.rows_examined,
        objects_decoded=found.stats.objects_decoded,
        structure=found.stats.structure,
        index_first_s=first_s,
        index_all_s=all_s,
        scan_s=scan_s,
        api_first_s=api_first.duration_s,
        api_all_s=api_all.duration_s,
        api_listing_s=listing.duration_s,
    )


async def scan(storage: Storage, question: Question) -> tuple[str, ...]:
    """What a client of a store without indexes must do."""
    nodes, pods = [
        [orjson.loads(kv.value) for kv in (await storage.range(RangeRequest(prefix, prefix_end(prefix)))).kvs]
        for prefix in (NODES_PREFIX, PODS_PREFIX)
    ]
    return free_at_least(nodes, pods, question)


async def timed(rounds: int, work: Callable[[], Awaitable[T]]) -> tuple[float, T]:
    """The median, and the last result."""
    durations_s = []
    for _ in range(rounds):
        started_s = time.perf_counter()
        result = await work()
        durations_s.append(time.perf_counter() - started_s)
    return median(durations_s), result


def _tell(options: QueryOptions, asked: list[Asked]) -> None:
    columns = (
        "nodes with at least",
        "found",
        f"index, first {FIRST}",
        "index, all",
        "range+decode+filter",
        f"API, first {FIRST}",
        "API, all",
        "API list+filter",
    )
    title = f"{options.nodes:,} nodes, {options.pods:,} pods bound to them (ms, median)"
    table = report.Table(title, columns)
    for each in asked:
        durations_s = [each.index_first_s, each.index_all_s, each.scan_s]
        durations_s += [each.api_first_s, each.api_all_s, each.api_listing_s]
        table.add(each.selector, f"{each.found:,}", *(report.milliseconds(s * 1000) for s in durations_s))
    report.print_table(table)
    decoded = sum(each.objects_decoded for each in asked)
    print(f"all four ways returned the same nodes; the index decoded {decoded:,} objects")


def _write(folder: Path, environment: Environment, options: QueryOptions, asked: list[Asked]) -> list[Path]:
    figures = {"options": asdict(options), "asked": [asdict(each) for each in asked]}
    paths = [report.write_json(folder, "query", environment, figures)]
    if not plots.available():
        print(plots.MISSING)
        return paths
    figure, axes = plots.figure(1, 1, (11, 4.8))
    names = [f"{each.selector}\n{each.found:,} of {options.nodes:,} nodes" for each in asked]
    bars = {
        f"index, first {FIRST}": [each.index_first_s * 1000 for each in asked],
        "index, all": [each.index_all_s * 1000 for each in asked],
        "range+decode+filter": [each.scan_s * 1000 for each in asked],
        f"API, first {FIRST}": [each.api_first_s * 1000 for each in asked],
        "API, all": [each.api_all_s * 1000 for each in asked],
        "API list+filter": [each.api_listing_s * 1000 for each in asked],
    }
    title = f"Which of {options.nodes:,} nodes have enough free? ({options.pods:,} pods bound)"
    plots.draw_groups(axes[0][0], names, bars, title)
    figure.text(0.01, -0.06, "; ".join(environment.lines()), fontsize=7, color=plots.GREY)
    return [*paths, plots.save(figure, folder / "query.png")]

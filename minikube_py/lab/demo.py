"""The demo: a production trace on fake nodes, and one query while they fill.

Which nodes have at least 4 free CPUs, 16Gi and one whole GPU? It is queried through the API when 30, 60 and 95 % of the
GPUs are allocated, by the index inside the store and by listing everything; both results must be equal.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from minikube_py.client.transport import ApiTransport
from minikube_py.lab import metrics, plots, report
from minikube_py.lab.cluster import Ground, cluster
from minikube_py.lab.environment import Environment
from minikube_py.lab.progress import progress
from minikube_py.lab.questions import Question, QuestionError, ask_by_listing, ask_index
from minikube_py.lab.replay import Mark, Replay
from minikube_py.lab.trace import Trace, load
from minikube_py.lab.workload import GPU_RESOURCE, trace_nodes

PROGRAM = "minikube-py"
SHARES = (0.30, 0.60, 0.95)
QUESTION = Question(
    "at least 4 free CPUs, 16Gi and one whole GPU", {"cpu": "4", "memory": "16Gi", GPU_RESOURCE: "1000"}
)
INDEX_ROUNDS = 21
LISTING_ROUNDS = 3
FIRST = 10
# Reported by the component that queries the index: the store, or the API server's client of it.
DECODED, QUERIES = "index_objects_decoded_total", "index_queries_total"


@dataclass(frozen=True, slots=True)
class Asked:
    """The results at one mark; durations in seconds. `decoded` objects for `queries` index queries, by the server."""

    wanted_share: float
    share: float
    nodes: int
    index_s: float
    index_first_s: float
    listing_s: float
    index_bytes: int
    listing_bytes: int
    decoded: int
    queries: int


async def run_demo(ground: Ground, results: Path) -> None:
    """Prints as it goes; writes JSON and a picture. Raises: MinikubeError of every kind; nothing is left running."""
    started_s = time.monotonic()
    report.require_writable(results)
    trace = load()
    async with cluster(trace_nodes(trace.nodes), ground) as running:
        running.environment.tell()
        gpus = trace.gpu_capacity_milli // 1000
        print(f"replaying {len(trace.pods):,} pods on {len(trace.nodes):,} nodes with {gpus:,} GPUs")
        replay = Replay(trace, running.transport, running.clock)
        asked: list[Asked] = []
        with progress("pods", len(trace.pods)) as shown:
            marks = [Mark(share, partial(_ask, running.transport, asked, share)) for share in SHARES]
            await replay.run(shown, marks)
        environment = running.environment
    figures = _figures(trace, replay, asked)
    figures["whole_run_s"] = round(time.monotonic() - started_s, 2)
    _tell(replay, asked, figures)
    folder = report.results_folder(results, "demo-split" if ground.split else "demo", datetime.now())
    report.print_written(_write(folder, environment, replay, asked, figures))
    if ground.virtual is None:
        # Else the digest's line says what is next.
        _tell_next(ground.split)


async def _ask(transport: ApiTransport, asked: list[Asked], wanted_share: float, share: float) -> None:
    before = await metrics.scrape(transport)
    index = await ask_index(transport, QUESTION, INDEX_ROUNDS)
    first = await ask_index(transport, QUESTION, INDEX_ROUNDS, limit=FIRST)
    after = await metrics.scrape(transport)
    listing = await ask_by_listing(transport, QUESTION, LISTING_ROUNDS, index.revision)
    if listing.names != index.names:
        differing = sorted(set(listing.names) ^ set(index.names))
        raise QuestionError(
            f"at revision {index.revision} index and listing differ in {len(differing)} nodes, {differing[0]} is one"
        )
    if not set(first.names) <= set(index.names) or len(first.names) != min(FIRST, len(index.names)):
        raise QuestionError(f"the first {FIRST} are {first.names}, not {FIRST} of the {len(index.names)} there are")
    asked.append(
        Asked(
            wanted_share=wanted_share,
            share=share,
            nodes=len(index.names),
            index_s=index.duration_s,
            index_first_s=first.duration_s,
            listing_s=listing.duration_s,
            index_bytes=index.size_bytes,
            listing_bytes=listing.size_bytes,
            decoded=int(metrics.total_of_suffix(after, DECODED) - metrics.total_of_suffix(before, DECODED)),
            queries=int(metrics.total_of_suffix(after, QUERIES) - metrics.total_of_suffix(before, QUERIES)),
        )
    )


def _figures(trace: Trace, replay: Replay, asked: list[Asked]) -> dict[str, Any]:
    recorder = replay.recorder
    return {
        "nodes": len(trace.nodes),
        "pods": len(trace.pods),
        "pods_running": recorder.running,
        "pods_unschedulable": len(recorder.unschedulable),
        "gpu_requested_share": round(trace.gpu_requested_milli / trace.gpu_capacity_milli, 4),
        "gpu_allocated_share": round(replay.allocated_share, 4),
        "replay_s": round(replay.duration_s, 3),
        "pods_per_s": round(recorder.running / replay.duration_s, 1),
        "latencies": recorder.summaries(),
        "question": {"text": QUESTION.text, "field_selector": QUESTION.selector},
        "asked": [asdict(each) for each in asked],
    }


def _tell(replay: Replay, asked: list[Asked], figures: Mapping[str, Any]) -> None:
    running, left = figures["pods_running"], figures["pods_unschedulable"]
    print(
        f"\n{running:,} pods Running in {figures['replay_s']:.1f} s ({figures['pods_per_s']:,.0f} pods/s), "
        f"{figures['gpu_allocated_share']:.1%} of the GPUs allocated"
    )
    if left:
        requested = figures["gpu_requested_share"]
        print(f"{left:,} pods fit on no node and stay Pending (all pods together request {requested:.1%} of the GPUs)")
    report.print_latencies(figures["latencies"])
    columns = ("allocated", "nodes found", f"index, first {FIRST}", "index, all", "list and filter", "times faster")
    table = report.Table(f"Which nodes have {QUESTION.text}? (ms, median, through the API)", columns)
    for each in asked:
        wanted = f" (not {each.wanted_share:.0%})" if each.share < each.wanted_share else ""
        times_ms = [report.milliseconds(s * 1000) for s in (each.index_first_s, each.index_s, each.listing_s)]
        table.add(f"{each.share:.1%}{wanted}", each.nodes, *times_ms, f"{each.listing_s / each.index_s:,.0f}")
    report.print_table(table)
    decoded, queries = sum(each.decoded for each in asked), sum(each.queries for each in asked)
    print(f"both ways returned the same nodes; the store decoded {decoded:,} objects for {queries:,} index queries")


def _write(
    folder: Path, environment: Environment, replay: Replay, asked: list[Asked], figures: Mapping[str, Any]
) -> list[Path]:
    latencies = {**figures["latencies"]["by_call"], **figures["latencies"]["stages"]}
    paths = [report.write_json(folder, "demo", environment, {**figures, "perf_data": report.perf_data(latencies)})]
    if not plots.available():
        print(plots.MISSING)
        return paths
    picture = _picture(environment, replay, asked, latencies, figures["gpu_allocated_share"])
    return [*paths, plots.save(picture, folder / "demo.png", plots.source_digest(*DRAWS))]


def _picture(
    environment: Environment, replay: Replay, asked: list[Asked], latencies: Mapping[str, Any], allocated_share: float
) -> Any:
    figure, axes = plots.figure(1, 2, (11, 3.7))
    figure.subplots_adjust(top=0.79, bottom=0.24)
    pods, half_s = f"{replay.recorder.running:,} pods", latencies["running"]["p50_ms"] / 1000
    title = f"{pods} of the openb trace on 1,213 fake GPU nodes in {replay.duration_s:.1f} s"
    title = f"{title}; half ran within {half_s:.1f} s of their creation"
    figure.suptitle(title, x=0.01, ha="left", fontsize=11, fontweight="bold")
    left = len(replay.recorder.unschedulable)
    title = f"{allocated_share:.1%} of the GPUs are allocated at the end;\n{left:,} pods fit on no node"
    plots.draw_heat(axes[0][0], replay.series, title, "nodes, fullest first")
    groups = {f"{each.share:.0%} allocated\n{each.nodes:,} nodes found": each for each in asked}
    bars = {
        f"index, first {FIRST}": [each.index_first_s * 1000 for each in groups.values()],
        "index, all": [each.index_s * 1000 for each in groups.values()],
        "list and filter": [each.listing_s * 1000 for each in groups.values()],
    }
    faster = sorted(each.listing_s / each.index_s for each in asked)
    title = f"An index is {faster[0]:,.0f} to {faster[-1]:,.0f} times faster than a list"
    plots.draw_groups(axes[0][1], list(groups), bars, title)
    axes[0][1].set_xlabel("Which nodes have 4 CPUs, 16Gi and a whole GPU free?")
    figure.text(0.01, 0.005, "; ".join(environment.lines()), fontsize=7, color=plots.GREY)
    return figure


DRAWS = (
    _picture, plots.figure, plots.draw_heat, plots.draw_groups, Replay._take_sample,
)  # fmt: skip
"""The code that draws the README's picture; after a change, draw a new one with `make demo`."""


def _tell_next(split: bool) -> None:
    program = program_name()
    print("\nnext:")
    print(f"  {program} up --nodes 10     a control plane for kubectl; paste its kubectl line, and query:")
    print("  kubectl --kubeconfig ... get nodes --field-selector 'free.cpu>=4,free.memory>=16Gi'")
    if split:
        print(f"  {program} demo              the same in one process")
    else:
        print(f"  {program} demo --split      the same, each role in its own process")


def program_name() -> str:
    """How to call this program from here: by name if found on the PATH, else by path."""
    called = Path(sys.argv[0])
    if called.name != PROGRAM:
        return f"{sys.executable} -m minikube_py"
    found = shutil.which(PROGRAM)
    if found is not None and Path(found).resolve() == called.resolve():
        return PROGRAM
    return os.path.relpath(called)

"""The openb trace: 1,213 GPU nodes and the 8,152 pods that ran on them, as a compact table of integers.

The tables beside this module were made by `convert` from the published CSV files (see traces/SOURCES.md); it makes
them again byte for byte. A pod's GPUs, whole or shared, become one figure: thousandths of a GPU.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import NamedTuple

from minikube_py import own_code
from minikube_py.errors import MinikubeError

OPENB = "openb"
GROUP = "minikube_py.traces"
POD_LISTS = ("default", "cpu050", "gpushare40", "gpuspec10", "multigpu20")
NODES_TABLE = "openb_nodes.csv"
PODS_TABLE = "openb_pods.csv"
NODE_COLUMNS = ("cpu_milli", "memory_mib", "gpus", "model")
POD_COLUMNS = ("arrival_s", "duration_s", "cpu_milli", "memory_mib", "gpus", "gpu_milli", "models")
DAY_S = 86_400
MODELS_PREFIX = "# models: "


class TraceError(MinikubeError):
    """A table or source file is invalid; the text says where and what."""


class TraceNode(NamedTuple):
    """`model` is empty if the node has no GPU."""

    name: str
    cpu_milli: int
    memory_mib: int
    gpus: int
    model: str


class TracePod(NamedTuple):
    """`models`: the GPU models it accepts, empty for any. `gpu_milli` is the request for each of its `gpus`."""

    name: str
    arrival_s: int
    duration_s: int
    cpu_milli: int
    memory_mib: int
    gpus: int
    gpu_milli: int
    models: tuple[str, ...]

    @property
    def gpu_total_milli(self) -> int:
        return self.gpus * self.gpu_milli


@dataclass(frozen=True, slots=True)
class Trace:
    """Nodes by number, pods by arrival."""

    nodes: tuple[TraceNode, ...]
    pods: tuple[TracePod, ...]

    @property
    def gpu_capacity_milli(self) -> int:
        return sum(node.gpus for node in self.nodes) * 1000

    @property
    def gpu_requested_milli(self) -> int:
        return sum(pod.gpu_total_milli for pod in self.pods)


def load(folder: Path | None = None) -> Trace:
    """The packaged trace, or the tables in `folder`. Raises: TraceError."""
    return Trace(nodes=_read_nodes(_table(folder, NODES_TABLE)), pods=_read_pods(_table(folder, PODS_TABLE)))


def installed(name: str) -> EntryPoint | None:
    """The entry point of that name; None for `openb`. Raises: TraceError if there is none."""
    points = {} if name == OPENB else {each.name: each for each in entry_points(group=GROUP)}  # a file of each package
    if name not in (OPENB, *points):
        raise TraceError(f"there is no trace {name!r}; the traces are: {', '.join(dict.fromkeys((OPENB, *points)))}")
    return points.get(name)


def trace_named(name: str, folder: Path | None = None) -> Trace:
    """`openb`, as `load` reads it, or what an entry point of `minikube_py.traces` returns, called without arguments.

    Raises: TraceError."""
    point = installed(name)
    if point is None:
        return load(folder)
    try:
        trace = own_code.load(point)()
    except own_code.BadCode as error:
        raise TraceError(f"trace {name}: {error}") from error
    except own_code.raised() as error:
        raise TraceError(f"trace {name}: {own_code.told(error)}") from error
    if not isinstance(trace, Trace) or not trace.nodes or not trace.pods:
        raise TraceError(f"trace {name}: {point.value} returned no minikube_py.lab.trace.Trace with nodes and pods")
    return trace


def of_day(trace: Trace, day: int) -> Trace:
    """Pods that arrive on that day, counted from 0, with times from its start. Raises: TraceError if there are none."""
    start_s = day * DAY_S
    pods = tuple(
        pod._replace(arrival_s=pod.arrival_s - start_s)
        for pod in trace.pods
        if start_s <= pod.arrival_s < start_s + DAY_S
    )
    if not pods:
        raise TraceError(f"no pod of the trace arrives on day {day}; its last is {trace.pods[-1].arrival_s // DAY_S}")
    return replace(trace, pods=pods)


def convert(source: Path, pods: str = "default") -> dict[str, bytes]:
    """The tables by file name, made from the published CSV files in `source` (or its folder `openb`).

    Raises: TraceError if a file is missing or invalid.
    """
    if pods not in POD_LISTS:
        raise TraceError(f"unknown pod list {pods!r}: one of {', '.join(POD_LISTS)}")
    folder = source / "openb" if (source / "openb").is_dir() else source
    nodes = _source_rows(folder / "openb_node_list_gpu_node.csv")
    pod_rows = _source_rows(folder / f"openb_pod_list_{pods}.csv")
    models = sorted({row["model"] for row in nodes if row["model"]} | _accepted_models(pod_rows))
    codes = {model: code for code, model in enumerate(models, start=1)}
    return {
        NODES_TABLE: _format(models, NODE_COLUMNS, _node_rows(nodes, codes)),
        PODS_TABLE: _format(models, POD_COLUMNS, _pod_rows(pod_rows, codes)),
    }


def _source_rows(path: Path) -> list[dict[str, str]]:
    try:
        with path.open(newline="", encoding="utf-8") as file:
            return list(csv.DictReader(file))
    except OSError as error:
        raise TraceError(f"{path}: {error.strerror}; name the folder that holds the openb CSV files") from error


def _accepted_models(rows: Iterable[Mapping[str, str]]) -> set[str]:
    return {model for row in rows for model in (row.get("gpu_spec") or "").split("|") if model}


def _node_rows(rows: Sequence[Mapping[str, str]], codes: Mapping[str, int]) -> Iterable[tuple[int, ...]]:
    for number, row in enumerate(rows):
        if row["sn"] != node_name(number):
            raise TraceError(f"node list row {number + 1}: {row['sn']} where {node_name(number)} was expected")
        yield (int(row["cpu_milli"]), int(row["memory_mib"]), int(row["gpu"]), codes.get(row["model"], 0))


def _pod_rows(rows: Sequence[Mapping[str, str]], codes: Mapping[str, int]) -> list[tuple[int, ...]]:
    table = []
    for row in rows:
        # One of the lists has no times: all its pods arrive at once and stay.
        arrival_s = int(row.get("creation_time") or 0)
        deletion_s = int(row.get("deletion_time") or arrival_s)
        models = sum(1 << codes[model] for model in (row.get("gpu_spec") or "").split("|") if model)
        figures = (int(row[name]) for name in ("cpu_milli", "memory_mib", "num_gpu", "gpu_milli"))
        table.append((arrival_s, deletion_s - arrival_s, *figures, models))
    return sorted(table, key=lambda row: row[0])


def _format(models: Sequence[str], columns: Sequence[str], rows: Iterable[tuple[int, ...]]) -> bytes:
    legend = MODELS_PREFIX + " ".join(f"{code}={model}" for code, model in enumerate(models, start=1))
    lines = [legend, ",".join(columns), *(",".join(map(str, row)) for row in rows)]
    return "".join(f"{line}\n" for line in lines).encode()


def node_name(number: int) -> str:
    return f"openb-node-{number:04d}"


def pod_name(number: int) -> str:
    return f"openb-pod-{number:04d}"


def _table(folder: Path | None, name: str) -> tuple[str, str]:
    if folder is None:
        return name, resources.files("minikube_py.lab.traces").joinpath(name).read_text(encoding="utf-8")
    try:
        return str(folder / name), (folder / name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise TraceError(f"{folder / name}: {error}") from error


def _read_nodes(table: tuple[str, str]) -> tuple[TraceNode, ...]:
    models, rows = _parse(table, NODE_COLUMNS)
    return tuple(
        TraceNode(node_name(number), cpu, memory, gpus, models[model])
        for number, (cpu, memory, gpus, model) in enumerate(rows)
    )


def _read_pods(table: tuple[str, str]) -> tuple[TracePod, ...]:
    models, rows = _parse(table, POD_COLUMNS)
    accepted: dict[int, tuple[str, ...]] = {}
    pods = []
    for number, (arrival, duration, cpu, memory, gpus, gpu_milli, mask) in enumerate(rows):
        if mask not in accepted:
            accepted[mask] = tuple(model for code, model in models.items() if mask >> code & 1 and code)
        pods.append(TracePod(pod_name(number), arrival, duration, cpu, memory, gpus, gpu_milli, accepted[mask]))
    return tuple(pods)


def _parse(table: tuple[str, str], columns: Sequence[str]) -> tuple[dict[int, str], list[list[int]]]:
    where, text = table
    lines = text.splitlines()
    if len(lines) < 2 or not lines[0].startswith(MODELS_PREFIX) or lines[1] != ",".join(columns):
        raise TraceError(f"{where}: not a table of {', '.join(columns)}")
    pairs = (entry.partition("=") for entry in lines[0][len(MODELS_PREFIX) :].split())
    models = {0: "", **{int(code): model for code, _, model in pairs}}
    rows = []
    for number, line in enumerate(lines[2:], start=3):
        try:
            row = list(map(int, line.split(",")))
        except ValueError as error:
            raise TraceError(f"{where}, line {number}: {error}") from error
        if len(row) != len(columns):
            raise TraceError(f"{where}, line {number}: {len(row)} figures where {len(columns)} were expected")
        if columns is NODE_COLUMNS and row[-1] not in models:
            raise TraceError(f"{where}, line {number}: model {row[-1]} is not in the first line")
        rows.append(row)
    return models, rows

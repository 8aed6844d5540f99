"""A run's report: tables on the terminal, one JSON file and charts, in a new folder."""

from __future__ import annotations

import math
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, TextIO

import orjson

from minikube_py.errors import MinikubeError
from minikube_py.lab.environment import Environment

FORMAT_VERSION = "v1"


class ReportError(MinikubeError):
    """The results cannot be written; the text says where and what to do."""


@dataclass(frozen=True, slots=True)
class Table:
    """`rows` are of the length of `columns`; the first column is the row's name."""

    title: str
    columns: tuple[str, ...]
    rows: list[tuple[str, ...]] = field(default_factory=list)

    def add(self, *cells: object) -> None:
        self.rows.append(tuple(map(str, cells)))


def require_writable(base: Path, flag: str = "--results") -> None:
    """Fail before a long run, not after it. Raises: ReportError, naming `flag`."""
    try:
        base.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=base):
            pass
    except OSError as error:
        text = f"cannot write results under {base}: {error.strerror}; choose another folder with {flag}"
        raise ReportError(text) from error


def require_writable_file(path: Path, flag: str) -> None:
    """As `require_writable`, of a file's folder."""
    require_writable(path.parent, flag)
    if path.is_dir():
        raise ReportError(f"{path} is a folder; name a file with {flag}")


def results_folder(base: Path, name: str, now: datetime) -> Path:
    """A new folder `base/name-YYYYMMDD-HHMMSS`. Raises: ReportError."""
    stem = f"{name}-{now:%Y%m%d-%H%M%S}"
    for suffix in ("", *(f"-{number}" for number in range(2, 100))):
        folder = base / (stem + suffix)
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            continue
        except OSError as error:
            reason = error.strerror
            raise ReportError(f"cannot make {folder}: {reason}; choose another folder with --results") from error
        return folder
    raise ReportError(
        f"{base / stem}: it holds a hundred results of the same second; choose another folder with --results"
    )


def write_json(folder: Path, name: str, environment: Environment, figures: Mapping[str, Any]) -> Path:
    """One file with the environment first; nan is written as null."""
    path = folder / f"{name}.json"
    document = {"version": FORMAT_VERSION, "name": name, "environment": environment.as_dict(), **figures}
    path.write_bytes(orjson.dumps(document, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS) + b"\n")
    return path


def perf_data(latencies_ms: Mapping[str, Mapping[str, float]]) -> dict[str, Any]:
    """Latencies as upstream's perf-tests write them: {"version", "dataItems": [{"data", "unit", "labels"}]}."""
    names = {"p50_ms": "Perc50", "p90_ms": "Perc90", "p99_ms": "Perc99"}
    items = []
    for name, figures in latencies_ms.items():
        data = {names[key]: value for key, value in figures.items() if key in names}
        items.append({"data": data, "unit": "ms", "labels": {"Metric": name}})
    return {"version": FORMAT_VERSION, "dataItems": items}


def milliseconds(value_ms: float) -> str:
    """Three figures at most: `0.042`, `4.27`, `42.7`, `427`, `4,270`."""
    if math.isnan(value_ms):
        return "-"
    if value_ms >= 100:
        return f"{value_ms:,.0f}"
    for limit, digits in ((10, 1), (1, 2)):
        if value_ms >= limit:
            return f"{value_ms:.{digits}f}"
    return f"{value_ms:.3f}"


def latency_table(title: str, summaries: Mapping[str, Mapping[str, float]], what: str = "pods") -> Table:
    """One row per summary as `measure.summary_ms` gives them."""
    table = Table(title, ("", what, "p50 ms", "p90 ms", "p99 ms", "max ms"))
    for name, figures in summaries.items():
        cells = (milliseconds(figures[key]) for key in ("p50_ms", "p90_ms", "p99_ms", "max_ms"))
        table.add(name, f"{int(figures['count']):,}", *cells)
    return table


def print_latencies(groups: Mapping[str, Mapping[str, Mapping[str, float]]]) -> None:
    """`groups` from `PodRecorder.summaries`; each table names its definition."""
    print_table(latency_table("Pod latency by call: from the create request to the watch", groups["by_call"]))
    print_table(latency_table("Pod latency by watch, as ClusterLoader2: from first seen", groups["by_watch"]))


def print_table(table: Table, stream: TextIO | None = None) -> None:
    stream = stream or sys.stdout
    if stream.isatty() and _print_rich(table, stream):
        return
    widths = [max(len(row[column]) for row in (table.columns, *table.rows)) for column in range(len(table.columns))]
    print(f"\n{table.title}", file=stream)
    for row in (table.columns, *table.rows):
        cells = [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        print(f"  {'   '.join(cells)}".rstrip(), file=stream)
    stream.flush()


def _print_rich(table: Table, stream: TextIO) -> bool:
    try:
        from rich.console import Console
        from rich.table import Table as RichTable
    except ImportError:
        return False
    shown = RichTable()
    for number, column in enumerate(table.columns):
        shown.add_column(column, justify="right" if number else "left")
    for row in table.rows:
        shown.add_row(*row)
    console = Console(file=stream, highlight=False)
    # A table title would wrap at the table's width.
    console.print(f"\n[bold]{table.title}[/bold]")
    console.print(shown)
    return True


def print_written(paths: Sequence[Path], stream: TextIO | None = None) -> None:
    for path in paths:
        print(f"wrote {path}", file=stream or sys.stdout, flush=True)

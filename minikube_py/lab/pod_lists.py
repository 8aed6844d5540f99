"""The 23 pod lists of the openb trace as one compact table: pod shapes with counts.

The order is omitted, since a replay shuffles. The published lists were derived from the default one with more pods of
one kind: cpu050 (half as many pods without a GPU as with one), gpushare40, gpuspec10 (40 and 10 % ...), multigpu20.
"""

from __future__ import annotations

import csv
import lzma
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Final

from minikube_py.lab.trace import TraceError
from minikube_py.scheduler.packing.fragmentation import Shape

TABLE: Final = "openb_lists.csv"
SHAPE_COLUMNS: Final = ("cpu_milli", "memory_mib", "gpus", "gpu_milli", "models")
PUBLISHED: Final = (
    "default",
    "cpu050",
    "cpu100",
    "cpu200",
    "cpu250",
    "gpushare40",
    "gpushare60",
    "gpushare80",
    "gpushare100",
    "gpuspec10",
    "gpuspec20",
    "gpuspec25",
    "gpuspec33",
    "multigpu20",
    "multigpu30",
    "multigpu40",
    "multigpu50",
)
"""The lists with published results."""
PREFIX: Final = "openb_pod_list_"

Pods = Mapping[tuple[Shape, int], int]
"""(shape, memory in MiB) to pod count."""


def _rows() -> csv.DictReader[str]:
    text = resources.files("minikube_py.lab.traces").joinpath(TABLE).read_text(encoding="utf-8")
    return csv.DictReader(text.splitlines())


@cache
def names() -> Sequence[str]:
    """All lists, those without published results too."""
    return tuple(_rows().fieldnames or ())[len(SHAPE_COLUMNS) :]


def read(name: str) -> Pods:
    """Raises: TraceError."""
    rows = _rows()
    if name not in names():
        raise TraceError(f"there is no pod list {name!r}; there are {', '.join(names())}")
    found: dict[tuple[Shape, int], int] = {}
    for row in rows:
        if count := int(row[name]):
            models = tuple(row["models"].split("|")) if row["models"] else ()
            shape = Shape(int(row["cpu_milli"]), int(row["gpu_milli"]), int(row["gpus"]), models)
            found[shape, int(row["memory_mib"])] = count
    return found


def convert(source: Path) -> bytes:
    """The table, made from the published CSV files in `source` (or its folder `openb`), possibly .xz.

    Raises: TraceError."""
    folder = source / "openb" if (source / "openb").is_dir() else source
    files = {path.name.removeprefix(PREFIX).split(".")[0]: path for path in sorted(folder.glob(f"{PREFIX}*.csv*"))}
    missing = [name for name in PUBLISHED if name not in files]
    if missing:
        raise TraceError(f"{folder}: no {PREFIX}{missing[0]}.csv; name the folder that holds all pod lists of openb")
    counts = {name: Counter(_shapes(path)) for name, path in files.items()}
    lines = [",".join((*SHAPE_COLUMNS, *counts))]
    rows = sorted(set().union(*counts.values()))
    lines += [",".join(map(str, (*row, *(each[row] for each in counts.values())))) for row in rows]
    return "".join(f"{line}\n" for line in lines).encode()


def _shapes(path: Path) -> list[tuple[int, int, int, int, str]]:
    try:
        text = (lzma.decompress(path.read_bytes()) if path.suffix == ".xz" else path.read_bytes()).decode()
        return [_shape(row) for row in csv.DictReader(text.splitlines())]
    except (OSError, lzma.LZMAError, KeyError, ValueError) as error:
        raise TraceError(f"{path}: {error}") from error


def _shape(row: Mapping[str, str]) -> tuple[int, int, int, int, str]:
    gpus = int(row["num_gpu"])
    # A pod without a GPU may still list thousandths or models, which mean nothing.
    milli, models = (int(row["gpu_milli"]), row.get("gpu_spec") or "") if gpus else (0, "")
    return int(row["cpu_milli"]), int(row["memory_mib"]), gpus, milli, "|".join(filter(None, models.split("|")))

"""The header of every report: machine, Python, disk and layout of the roles."""

from __future__ import annotations

import os
import platform
import subprocess
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from minikube_py import __version__
from minikube_py.lab.measure import percentile

SYNC_ROUNDS = 64
SYNC_SIZE_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Environment:
    """`filesystem` and `fdatasync_p50_ms` are of the data folder; `commit` is empty outside a checkout;
    `nodes_scored_percent`: the share of fitting nodes that the scheduler scores, 0 without a scheduler."""

    version: str
    commit: str
    python: str
    machine: str
    cpus: int
    filesystem: str
    fdatasync_p50_ms: float
    layout: str
    nodes_scored_percent: int = 0

    def lines(self) -> list[str]:
        commit = f", commit {self.commit}" if self.commit else ""
        scored = f"; {self.nodes_scored_percent} % of nodes scored" if self.nodes_scored_percent else ""
        return [
            f"minikube_py {self.version}{commit}; Python {self.python}; {self.machine}, {self.cpus} CPUs",
            f"data on {self.filesystem}, fdatasync p50 {self.fdatasync_p50_ms:.2f} ms; {self.layout}{scored}",
        ]

    def tell(self) -> None:
        for line in self.lines():
            print(line, flush=True)

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


def describe(data_dir: Path, layout: str, nodes_scored_percent: int = 0) -> Environment:
    """Measures the disk under `data_dir` briefly (64 syncs of 4 KiB)."""
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return _described(cpus, filesystem_of(data_dir), _sync_p50_s(data_dir), layout, nodes_scored_percent)


def describe_virtual(layout: str, sync_s: float, nodes_scored_percent: int = 0) -> Environment:
    """For a run in virtual time with a simulated disk: syncs take `sync_s` on average."""
    return _described(1, "a simulated disk", sync_s, layout, nodes_scored_percent)


def _described(cpus: int, filesystem: str, sync_s: float, layout: str, nodes_scored_percent: int) -> Environment:
    python, machine = platform.python_version(), f"{platform.system()} {platform.machine()}"
    sync_ms = round(sync_s * 1000, 3)
    return Environment(
        __version__, commit(), python, machine, cpus, filesystem, sync_ms, layout, nodes_scored_percent
    )


def filesystem_of(folder: Path) -> str:
    """The filesystem type of `folder` (`ext4`, `tmpfs`, ...), or `unknown`."""
    try:
        mounts = Path("/proc/self/mounts").read_text(encoding="utf-8")
    except OSError:
        return "unknown"
    path, best, kind = folder.resolve(), -1, "unknown"
    for line in mounts.splitlines():
        _, point, filesystem, *_ = line.split(" ")
        point = point.encode().decode("unicode_escape")
        # The last mount on a mount point hides earlier ones.
        if path.is_relative_to(point) and len(point) >= best:
            best, kind = len(point), filesystem
    return kind


def _sync_p50_s(folder: Path) -> float:
    durations_s = []
    with tempfile.TemporaryFile(dir=folder) as file:
        for number in range(SYNC_ROUNDS):
            os.pwrite(file.fileno(), b"\0" * SYNC_SIZE_BYTES, number * SYNC_SIZE_BYTES)
            started_s = time.perf_counter()
            (getattr(os, "fdatasync", None) or os.fsync)(file.fileno())
            durations_s.append(time.perf_counter() - started_s)
    return percentile(durations_s, 50)


def commit() -> str:
    folder = Path(__file__).resolve().parents[2]
    if not (folder / ".git").exists():
        return ""
    command = ["git", "-C", str(folder), "rev-parse", "--short=12", "HEAD"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""

"""Upstream's benchmark of its scheduler, and ours on the same workload file, one after the other on a quiet machine.

    python tests/bench/bench_scheduler_perf.py [--workloads NAME,...] [--turns N] [--json docs/data/scheduler-perf.json]

A workload is FOLDER:TEST/WORKLOAD. Upstream's runs etcd and one Go process with API server and scheduler, ours one
Python process with all. The figure is `SchedulingThroughput`, pods/s over samples of one second, of the last measured
namespace.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tools")]

from upstream_build import KUBERNETES, module_info  # noqa: E402

from minikube_py.lab import environment  # noqa: E402
from minikube_py.scheduler.config import SCORE_ALL_NODES  # noqa: E402

WORKLOADS = (
    "misc:SchedulingBasic/5000Nodes_10000Pods",
    "affinity:SchedulingPodAntiAffinity/5000Nodes_2000Pods",
    "affinity:SchedulingPodAffinity/5000Nodes_5000Pods",
    "topology_spreading:TopologySpreading/5000Nodes_5000Pods",
    "misc:PreemptionAsync/5000Nodes",
)
TIMEOUT_S = 400


def throughput(items: list[dict[str, Any]]) -> float | None:
    """Pods/s; None if the workload has none, such as one that is over within two seconds."""
    found = [each for each in items if each["labels"].get("Metric") == "SchedulingThroughput" and each["data"]]
    return float(found[-1]["data"]["Average"]) if found else None


def ended(command: list[str]) -> tuple[int, str, str]:
    """Exit code and output. At the timeout its children go, too. Raises: TimeoutExpired."""
    pipe, path = subprocess.PIPE, {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, start_new_session=True, env=path) as process:
        try:
            out, errors = process.communicate(timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    return process.returncode, out, errors


def upstreams(folder: str, test: str, workload: str) -> float | None:
    command = [sys.executable, str(ROOT / "tools" / "upstream"), "scheduler-perf", folder, test, workload]
    code, out, errors = ended(command)
    if code:
        raise SystemExit(f"upstream: {errors[-1500:]}")
    return throughput(json.loads(out[out.index("[") :]))


def ours(folder: str, test: str, workload: str) -> float | None:
    source = Path(module_info("k8s.io/kubernetes", KUBERNETES)["Dir"], "test", "integration", "scheduler_perf")
    with tempfile.TemporaryDirectory() as results:
        command = [
            sys.executable, "-m", "minikube_py", "bench", "scheduler-perf",
            str(source / folder / "performance-config.yaml"), "--workload", f"{test}/{workload}", "--results", results,
        ]  # fmt: skip
        _, out, errors = ended(command)
        written = sorted(Path(results).glob("*/*.json"))
        if not written:
            raise SystemExit(f"ours: {(out + errors)[-1500:]}")
        return throughput([item for file in written for item in json.loads(file.read_text())["dataItems"] or []])


def measured(of: Any, *workload: str) -> float | str | None:
    try:
        found: float | None = of(*workload)
    except subprocess.TimeoutExpired:
        return f"did not end within {TIMEOUT_S} s"
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workloads", default=",".join(WORKLOADS))
    parser.add_argument("--turns", type=int, default=1)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    layout = "ours one process, upstream etcd and one process"
    here = environment.describe(Path(tempfile.gettempdir()), layout, SCORE_ALL_NODES)
    rows: list[dict[str, Any]] = []
    for name in arguments.workloads.split(","):
        folder, _, rest = name.partition(":")
        test, _, workload = rest.partition("/")
        row: dict[str, Any] = {"workload": name, "upstream": [], "ours": []}
        row["load_average_before"] = round(os.getloadavg()[0], 1)
        for _ in range(arguments.turns):
            row["upstream"].append(measured(upstreams, folder, test, workload))
            row["ours"].append(measured(ours, folder, test, workload))
        sides = [[each for each in row[side] if isinstance(each, float)] for side in ("upstream", "ours")]
        row["times"] = statistics.median(sides[1]) / statistics.median(sides[0]) if all(sides) else None
        rows.append(row)
        print(json.dumps(row), flush=True)
        if arguments.json:
            report = {"environment": asdict(here), "kubernetes": KUBERNETES, "rows": rows}
            arguments.json.write_text(json.dumps(report, indent=1, default=str) + "\n")


if __name__ == "__main__":
    main()

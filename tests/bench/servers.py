"""Starts the two sides of a comparison, upstream and ours, each on loopback with a separate folder."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import upstream
from ours import DEFAULT, scheduling, serve

STOP_TIMEOUT_S = 30
ADAPTIVE = """apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
percentageOfNodesToScore: 0
"""


@dataclass(frozen=True, slots=True)
class Server:
    """One side: `pids` are all its processes, whose memory and CPU count as its own."""

    name: str
    url: str
    token: str
    pids: dict[str, int]

    def memory_bytes(self) -> dict[str, int]:
        return {name: _status_kib(pid, "VmRSS") * 1024 for name, pid in self.pids.items()}

    def cpu_s(self) -> dict[str, float]:
        tick_hz = os.sysconf("SC_CLK_TCK")
        used = {}
        for name, pid in self.pids.items():
            fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
            used[name] = (int(fields[11]) + int(fields[12])) / tick_hz
        return used


def _status_kib(pid: int, key: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(key + ":"):
            return int(line.split()[1])
    return 0


@contextlib.contextmanager
def _running(command: list[str], log: Path) -> Iterator[subprocess.Popen[str]]:
    with log.open("w") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(STOP_TIMEOUT_S)
        if process.stdout is not None:
            process.stdout.close()


@contextlib.contextmanager
def original(*parts: str) -> Iterator[Server]:
    """etcd and kube-apiserver, with `scheduler`, `controllers`, `kubelets` if named."""
    with upstream.running("run", *(f"--{part}" for part in parts)) as ready:
        yield Server("original", ready["url"], ready["token"], ready["pids"])


@contextlib.contextmanager
def ours(*parts: str) -> Iterator[Server]:
    """One process: store and API server, with `scheduler`, `controllers`, `kubelets` if named."""
    with _ours(parts, DEFAULT) as server:
        yield server


@contextlib.contextmanager
def ours_adaptive(*parts: str) -> Iterator[Server]:
    """As `ours`, whose scheduler scores upstream's adaptive share of the nodes, not all."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as config:
        config.write(ADAPTIVE)
        config.flush()
        with _ours(parts, scheduling(Path(config.name))) as server:
            yield server


@contextlib.contextmanager
def _ours(parts: tuple[str, ...], started: Sequence[str]) -> Iterator[Server]:
    with serve(tuple("kubelet" if part == "kubelets" else part for part in parts), started) as ready:
        yield Server("ours", ready["url"], ready["token"], {"minikube-py": ready["pid"]})

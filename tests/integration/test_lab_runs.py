"""The runs a user types, small: they end well, say what they did, and write what they say."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import orjson
import pytest

LAYOUTS = [pytest.param((), id="one process"), pytest.param(("--split",), id="split")]


def run(folder: Path, *arguments: str) -> tuple[str, dict[str, Any], list[Path]]:
    """What it printed, its JSON, and its pictures."""
    command = [sys.executable, "-m", "minikube_py", *arguments, "--results", str(folder)]
    environment = {**os.environ, "PYTHONIOENCODING": "utf-8"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    (written,) = folder.iterdir()
    (document,) = written.glob("*.json")
    return done.stdout, orjson.loads(document.read_bytes()), list(written.glob("*.png"))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_replay_places_every_pod_and_accounts_for_it(tmp_path: Path, layout: tuple[str, ...]) -> None:
    printed, figures, pictures = run(tmp_path, "replay", "openb", "--pods", "120", *layout)
    assert (figures["pods"], figures["pods_running"], figures["pods_unschedulable"]) == (120, 120, 0)
    for group in ("by_call", "by_watch"):
        running = figures["latencies"][group]["running"]
        assert running["count"] == 120 and 0 < running["p50_ms"] <= running["p99_ms"] <= running["max_ms"]
    assert figures["latencies"]["by_call"]["create call"]["count"] == 120
    assert figures["gpu_allocated_share"] > 0
    assert "120 of 120 pods became Running" in printed
    assert pictures and pictures[0].read_bytes().startswith(b"\x89PNG")


def test_replay_with_departures_ends_empty(tmp_path: Path) -> None:
    _, figures, _ = run(tmp_path, "replay", "openb", "--pods", "150", "--departures")
    assert figures["pods_running"] == 150
    assert figures["gpu_allocated_share"] == 0
    assert 1 < figures["pods_live_max"] < 150


def test_density(tmp_path: Path) -> None:
    flags = ("--nodes", "20", "--pods", "200", "--latency-pods", "10", "--latency-rate", "50", "--seed", "3")
    printed, figures, _ = run(tmp_path, "bench", "density", *flags)
    assert figures["saturation"]["pods"] == 200
    assert figures["latency"]["latencies"]["by_call"]["running"]["count"] == 10
    assert figures["latency"]["within_threshold"] is True
    assert figures["api_calls"]["POST pods resource"]["count"] == 210
    assert "within the threshold of 5 s" in printed


def test_density_by_controllers(tmp_path: Path) -> None:
    flags = ("--nodes", "10", "--pods", "100", "--latency-pods", "5", "--latency-rate", "50", "--controllers")
    _, figures, _ = run(tmp_path, "bench", "density", *flags)
    assert figures["saturation"]["latencies"]["by_watch"]["running"]["count"] == 100


def test_query_decodes_nothing_and_agrees_with_a_scan(tmp_path: Path) -> None:
    printed, figures, _ = run(tmp_path, "bench", "query", "--nodes", "500", "--pods", "700")
    asked = figures["asked"]
    assert [each["objects_decoded"] for each in asked] == [0, 0, 0]
    assert asked[0]["found"] == 0 < asked[1]["found"] < asked[2]["found"] < 500
    assert "all four ways returned the same nodes" in printed
    assert set(figures["environment"]) >= {"python", "cpus", "filesystem", "fdatasync_p50_ms", "layout", "version"}
    assert all(figures["environment"][name] for name in ("python", "cpus", "filesystem", "fdatasync_p50_ms", "layout"))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_interrupted_run_leaves_nothing(tmp_path: Path, layout: tuple[str, ...], number: signal.Signals) -> None:
    command = [sys.executable, "-m", "minikube_py", "demo", "--results", str(tmp_path / "results"), *layout]
    environment = {**os.environ, "TMPDIR": str(tmp_path / "tmp"), "PYTHONIOENCODING": "utf-8"}
    (tmp_path / "tmp").mkdir()
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        while not process.stdout.readline().startswith("replaying"):
            assert process.poll() is None
        process.send_signal(number)
        errors = process.communicate(timeout=60)[1]
    assert (process.returncode, errors) == (130, "")
    assert list((tmp_path / "tmp").iterdir()) == []

"""A cluster in one line: sync and async, in memory and in a folder; nothing is left behind, however it ends."""

from __future__ import annotations

import asyncio
import gc
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from minikube_py import Cluster, ClusterError

pytestmark = pytest.mark.real_time("real sockets and threads")
NODES = "/api/v1/nodes"


@pytest.fixture(autouse=True)
def nothing_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Threads, open files and sockets, and temporary folders are as before."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    gc.collect()
    threads, files = set(threading.enumerate()), open_files()
    yield
    gc.collect()
    assert set(threading.enumerate()) == threads
    assert open_files() <= files
    assert list((tmp_path / "tmp").iterdir()) == []


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def node_names(body: bytes) -> list[str]:
    return sorted(node["metadata"]["name"] for node in orjson.loads(body)["items"])


def test_a_cluster_for_plain_code() -> None:
    with Cluster(nodes=3) as cluster:
        assert node_names(cluster.request("GET", NODES).body) == ["node-0", "node-1", "node-2"]
        assert cluster.url.startswith("https://127.0.0.1:")
        assert cluster.token in cluster.kubeconfig_path.read_text()
    with pytest.raises(ClusterError, match="not running"):
        _ = cluster.url


async def test_a_cluster_in_the_callers_loop_leaves_no_task() -> None:
    before = asyncio.all_tasks()
    async with Cluster(nodes=2) as cluster:
        assert node_names((await cluster.transport().request("GET", NODES)).body) == ["node-0", "node-1"]
        assert (await cluster.request("GET", NODES)).status == 200
    assert asyncio.all_tasks() == before


def test_a_folder_keeps_what_was_written(tmp_path: Path) -> None:
    made = b'{"metadata":{"name":"kept"}}'
    with Cluster(data_dir=tmp_path / "data") as cluster:
        assert cluster.request("POST", "/api/v1/namespaces/default/configmaps", made).status == 201
    with Cluster(data_dir=tmp_path / "data") as cluster:
        assert cluster.request("GET", "/api/v1/namespaces/default/configmaps/kept").status == 200


def test_what_the_body_raises_is_passed_on() -> None:
    with pytest.raises(KeyError, match="mine"), Cluster():
        raise KeyError("mine")


@pytest.mark.parametrize("in_folder", [False, True])
def test_a_start_that_fails_leaves_no_lock(tmp_path: Path, in_folder: bool) -> None:
    data_dir = tmp_path / "data" if in_folder else None
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        cluster = Cluster(data_dir=data_dir, port=port)
        with pytest.raises(ClusterError, match=f"port: cannot listen on 127.0.0.1:{port}"):
            cluster.start()
        cluster.stop()
    with Cluster(data_dir=data_dir) as again:
        assert again.request("GET", "/readyz").status == 200


async def test_a_cancelled_start_leaves_nothing() -> None:
    async def enter() -> None:
        async with Cluster(nodes=50):
            raise AssertionError("it was cancelled before")

    before = asyncio.all_tasks()
    for turns in (1, 5, 20):
        entering = asyncio.create_task(enter())
        for _ in range(turns):
            await asyncio.sleep(0)
        entering.cancel()
        with pytest.raises(asyncio.CancelledError):
            await entering
    assert asyncio.all_tasks() == before


def test_the_snippet_of_the_readme_runs(capsys: pytest.CaptureFixture[str]) -> None:
    page = Path(__file__).parents[3] / "README.md"
    (snippet,) = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    for _ in range(2):
        exec(compile(snippet, str(page), "exec"), {})
    first, second = capsys.readouterr().out.splitlines()
    assert re.fullmatch("[0-9a-f]{64}", first) and first == second


@pytest.mark.parametrize("given", [{"nodes": -1}, {"nodes": "3"}, {"nodes": 2.5}, {"nodes": ["a"]}, {"port": 70_000}])
def test_arguments_that_cannot_be_are_refused_in_words(given: dict[str, Any]) -> None:
    for clock in ("real", "virtual"):
        with pytest.raises(ClusterError, match=f"^{next(iter(given))} is "):
            Cluster(clock=clock, **given)  # type: ignore[arg-type]


def test_two_clusters_at_once() -> None:
    with Cluster(nodes=1) as one, Cluster(nodes=2) as two:
        assert one.url != two.url
        assert len(node_names(one.request("GET", NODES).body)) == 1
        assert len(node_names(two.request("GET", NODES).body)) == 2


def test_a_stopped_cluster_is_stopped_again_in_vain() -> None:
    cluster = Cluster().start()
    with pytest.raises(ClusterError, match="started already"):
        cluster.start()
    cluster.stop()
    cluster.stop()


def test_without_kubectl_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with Cluster() as cluster, pytest.raises(ClusterError, match="no kubectl on the PATH"):
        cluster.kubectl("get", "nodes")


def test_a_start_loads_nothing_that_waits_for_its_first_use() -> None:
    later = (
        "api.custom.kinds", "api.custom.definition_rules", "api.openapi", "sim.loop",
        "scheduler.packing", "scheduler.prediction", "scheduler.flow.placement", "cluster.virtual",
        "sim.fault_schedule", "apiserver.connecting", "apiserver.node_taints", "controllers.attach_detach",
        "controllers.node_ttl", "controllers.policy_types", "controllers.volume_expander",
    )  # fmt: skip
    foreign = ("importlib.resources", "importlib.metadata", "email.message", "zipfile", "pytest", "matplotlib", "grpc")
    code = """
import sys
from minikube_py import Cluster
with Cluster() as cluster:
    print(*sys.modules)
    assert cluster.request("GET", "/openapi/v2").status == 200
"""
    told = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    loaded = told.stdout.split()
    assert "minikube_py.scheduler.profile" in loaded
    assert [name for name in later if f"minikube_py.{name}" in loaded] == []
    # What a start imports is most of what it costs: 633 modules of ours, and 90 of numpy's, on 2026-11-29.
    assert len([name for name in loaded if name.startswith("minikube_py")]) <= 636
    if sys.version_info[:2] == (3, 11):
        assert [name for name in foreign if name in loaded] == []


def test_the_root_imports_nothing_before_it_is_asked() -> None:
    before, after = "assert 'asyncio' not in sys.modules", "assert 'asyncio' in sys.modules"
    code = f"import sys, minikube_py; {before}; minikube_py.Cluster; {after}"
    subprocess.run([sys.executable, "-c", code], check=True)
    with pytest.raises(AttributeError, match="has no attribute 'Nonsense'"):
        import minikube_py

        minikube_py.Nonsense  # noqa: B018


def test_the_collector_is_after_the_import_as_it_was_before() -> None:
    code = """
import gc, minikube_py
{before}
state = gc.isenabled(), gc.get_freeze_count() > 0, gc.get_threshold()
minikube_py.Cluster
assert (gc.isenabled(), gc.get_freeze_count() > 0, gc.get_threshold()) == state
class Cycle: pass
each = Cycle(); each.itself = each
import weakref
gone = weakref.ref(each)
del each
minikube_py.Cluster
gc.collect()
assert gone() is None
"""
    for before in ("", "gc.disable()", "gc.freeze()"):
        subprocess.run([sys.executable, "-c", code.format(before=before)], check=True)

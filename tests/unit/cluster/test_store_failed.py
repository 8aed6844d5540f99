"""A store that cannot write ends its cluster, not the process of its user."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from minikube_py import Cluster, ClusterError
from tests.support.patience import PATIENCE_S

pytestmark = pytest.mark.real_time("real threads, sockets and files")
FAILED = "the cluster's store has failed, so the cluster can only be stopped: cannot write the log"
RELATIVE = """
import os, sys
from minikube_py import Cluster
with Cluster(nodes=0, data_dir="relative") as c:
    os.chdir(sys.argv[1])
    for i in range(12):
        c.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"k{i}"}, "data": {"a": "x" * 100_000}})
    print(c.kubeconfig_path)
"""
LIMITED = """
import resource
from minikube_py import Cluster, ClusterError
with Cluster(nodes=1, data_dir="limited") as c:
    resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))
    try:
        for i in range(60):
            metadata, data = {"name": f"k{i}"}, {"a": "x" * 20_000}
            c.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})
    except ClusterError as error:
        print(error)
print("the process lives")
"""


def large(number: int) -> dict[str, Any]:
    metadata = {"name": f"large-{number}"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"a": "x" * 100_000}}


def ran(script: str, folder: Path, *arguments: str) -> str:
    command = [sys.executable, "-c", script, *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_relative_folder_stays_the_same_when_the_program_goes_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "begun").mkdir()
    (tmp_path / "other").mkdir()
    told = ran(RELATIVE, tmp_path / "begun", str(tmp_path / "other"))
    assert told.strip() == str(tmp_path / "begun" / "relative" / "kubeconfig")
    assert not list((tmp_path / "other").iterdir())
    with Cluster(nodes=0, data_dir=tmp_path / "begun" / "relative") as cluster:
        assert {f"k{i}" for i in range(12)} <= {each["metadata"]["name"] for each in cluster.objects("cm")}


def test_a_limit_of_the_process_ends_no_process(tmp_path: Path) -> None:
    told = ran(LIMITED, tmp_path)
    assert f"{FAILED}: File too large" in told and told.endswith("the process lives\n")


def test_every_later_call_names_the_failure_and_the_folder_is_free_after_the_end(tmp_path: Path) -> None:
    cluster = Cluster(nodes=1, data_dir=tmp_path / "data").start()
    try:
        snapshot, view = cluster.snapshot(), cluster.in_namespace("kube-system")
        waited: list[BaseException] = []

        def wait() -> None:
            try:
                cluster.wait("cm/never", timeout_s=600)
            except BaseException as error:
                waited.append(error)

        waiting = threading.Thread(target=wait)
        waiting.start()
        acknowledged = 0
        with pytest.raises(ClusterError, match=FAILED):
            shutil.rmtree(tmp_path / "data" / "member" / "store")
            for acknowledged in range(100):
                cluster.apply(large(acknowledged))
        assert acknowledged < 99
        waiting.join(PATIENCE_S)
        assert len(waited) == 1 and isinstance(waited[0], ClusterError) and FAILED in str(waited[0])
        calls: list[Callable[[], object]] = [
            lambda: cluster.apply(large(0)),
            lambda: cluster.objects("cm"),
            lambda: cluster.request("GET", "/version"),
            lambda: cluster.wait("cm/large-0"),
            lambda: view.get("cm/kube-root-ca.crt"),
            lambda: cluster.snapshot(),
            lambda: cluster.restore(snapshot),
            lambda: cluster.node("node-0").down(),
            lambda: cluster.slow(1),
            lambda: cluster.all_well(),
            lambda: cluster.kubectl("get", "nodes"),
            lambda: cluster.url,
            lambda: cluster.kubeconfig_path,
        ]
        for call in calls:
            with pytest.raises(ClusterError, match=FAILED):
                call()
    finally:
        cluster.stop()
    assert not [each for each in threading.enumerate() if each.name == "minikube-py"]
    with Cluster(nodes=1, data_dir=tmp_path / "data") as again:
        again.apply(large(0))


def test_coroutines_are_told_the_same(tmp_path: Path) -> None:
    async def main() -> BaseException:
        async with Cluster(nodes=1, data_dir=tmp_path / "data") as cluster:
            waiting = asyncio.ensure_future(cluster.wait("cm/never", timeout_s=600))
            snapshot = await cluster.snapshot()
            shutil.rmtree(tmp_path / "data" / "member" / "store")
            with pytest.raises(ClusterError, match=FAILED):
                for number in range(100):
                    await cluster.apply(large(number))
            with pytest.raises(ClusterError, match=FAILED):
                await cluster.restore(snapshot)
            with pytest.raises(ClusterError, match=FAILED):
                await cluster.objects("nodes")
            found = (await asyncio.gather(waiting, return_exceptions=True))[0]
        assert isinstance(found, ClusterError)
        return found

    assert FAILED in str(asyncio.run(main()))


def test_a_waiting_task_ends_with_its_cluster() -> None:
    async def main() -> BaseException | Any:
        async with Cluster(nodes=1) as cluster:
            looked = asyncio.Event()
            never = cluster.wait("node/node-0", until=lambda _: bool(looked.set()), timeout_s=600)
            waiting = asyncio.ensure_future(never)
            await looked.wait()
        return (await asyncio.gather(waiting, return_exceptions=True))[0]

    found = asyncio.run(main())
    assert isinstance(found, ClusterError) and str(found) == "the cluster was stopped"

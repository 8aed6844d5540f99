"""A child forked while a cluster runs: all that the door has is refused there, in one way, and the parent's goes on."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest

from minikube_py import Cluster, ClusterError
from minikube_py.cluster.local import Namespaced
from minikube_py.cluster.snapshots import Snapshot

pytestmark = [pytest.mark.real_time("real processes"), pytest.mark.filterwarnings("ignore::DeprecationWarning")]
REFUSED = "this process was forked while the cluster ran, which is its parent's: start one here"
MAP = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}
GIVEN: dict[str, tuple[Any, ...]] = {
    "apply": (MAP,), "delete": ("cm/a",), "end_container": ("a",), "get": ("node/node-0",),
    "in_namespace": ("kube-system",),
    "kubectl": ("get", "nodes"), "objects": ("nodes",), "request": ("GET", "/api"), "wait": ("node/node-0",),
    "delay_events": (1,), "hide_events": (1,), "no_leader": (1,), "slow": (1,), "program": (lambda clients: None,),
    "run": (lambda: None,), "save_log": ("none.jsonl",), "restore": (Snapshot(1, {}, lambda: None),),  # type: ignore[arg-type]
    "webhook": ("guard", lambda request: True),
}  # fmt: skip
FREE = {"stop", "cluster", "clock", "namespace", "of_this_process"}
"""What ends nothing and asks nothing."""
MORE: dict[str, Callable[[Any], Any]] = {
    "node": lambda door: door.node("node-0").down(), "client": lambda door: door.client.httpx(),
}  # fmt: skip


def in_a_child(work: Callable[[], str]) -> str:
    read, write = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.write(write, work().encode())
        except BaseException as error:
            os.write(write, repr(error).encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as told:
        said = told.read()
    assert os.waitpid(child, 0)[1] == 0
    return said


def answered(door: Any, name: str) -> str:
    try:
        if name in MORE:
            MORE[name](door)
        elif callable(inspect.getattr_static(type(door), name)):
            getattr(door, name)(*GIVEN.get(name, ()))
        else:
            getattr(door, name)
    except ClusterError as error:
        return "" if str(error) == REFUSED else f"{name}: {error}\n"
    except BaseException as error:
        return f"{name}: {error!r}\n"
    return f"{name}: answered\n"


@pytest.mark.parametrize("clock", ["real", "virtual"])
def test_everything_is_refused_in_a_forked_child(clock: Literal["real", "virtual"], tmp_path: Path) -> None:
    with Cluster(clock=clock) as cluster:
        assert cluster.kubeconfig_path.exists()
        view, client = cluster.in_namespace("kube-public"), cluster.client.httpx()

        def work() -> str:
            said = ""
            for of, door in ((Cluster, cluster), (Namespaced, view)):
                names = [name for name in dir(of) if not name.startswith("_") and name not in FREE]
                assert len(names) > 30
                said += "".join(answered(door, name) for name in names)
            if clock == "virtual":
                try:
                    said += f"a client: {client.get('/api/v1/nodes')}"
                except ClusterError as error:
                    said += "" if str(error) == REFUSED else f"a client: {error}"
            # As at the end of the block.
            cluster.stop()
            return said + "stopped"

        assert in_a_child(work) == "stopped"
        assert len(cluster.objects("nodes")) == 1 and cluster.kubeconfig_path.exists()
        assert client.get("/api/v1/nodes").status_code == 200


CHILDREN = """
import asyncio, gc, os, sys, time
from minikube_py import Cluster


async def works(clients):
    async for _ in clients.transport.watch("/api/v1/pods"):
        pass


def works_plainly(clients):
    try:
        while True:
            time.sleep(1)
    finally:
        print("a program has ended in", os.getpid() == parent and "the parent" or "a child")


parent, clock = os.getpid(), sys.argv[1]


def child(end):
    sys.stdout.flush()
    if not (pid := os.fork()):
        end()
        sys.exit(0)
    assert os.waitpid(pid, 0)[1] == 0


def dropped():
    global cluster, client
    cluster = client = None
    gc.collect()


with Cluster(nodes=2, clock=clock) as cluster:
    client = cluster.client.httpx()
    cluster.url
    if clock == "virtual":
        cluster.program(works)
        cluster.program(works_plainly)
        cluster.advance(3)
    client.get("/api/v1/nodes")
    for end in (lambda: None, cluster.stop, cluster.client.close, dropped):
        child(end)
    assert len(cluster.objects("nodes")) == 2
    if clock == "virtual":
        cluster.advance(3)
print("done")
"""


@pytest.mark.parametrize("clock", ["real", "virtual"])
def test_a_forked_child_ends_in_silence(clock: str) -> None:
    done = subprocess.run([sys.executable, "-c", CHILDREN, clock], capture_output=True, text=True, timeout=60)
    assert done.stderr == ""
    ended = ["a program has ended in the parent"] if clock == "virtual" else []
    assert (done.returncode, done.stdout.splitlines()) == (0, [*ended, "done"])

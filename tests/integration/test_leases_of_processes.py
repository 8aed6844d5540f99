"""Real processes that contend for Leases: schedulers of which one works, kubelets that share the nodes."""

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import ours
import pytest
from patience import PATIENCE_S, until

from minikube_py.api.errors import StatusError
from minikube_py.client.http_transport import HttpTransport
from minikube_py.client.kubeconfig import load_kubeconfig
from minikube_py.client.rest import LEASES, NODES, PODS, Object, RestClient
from minikube_py.control_plane.supervisor import Child
from minikube_py.env import SystemClock

ELECTION = (
    *("--leader-elect-lease-duration", "4s", "--leader-elect-renew-deadline", "3s"),
    *("--leader-elect-retry-period", "300ms"),
)
CLAIM = ("--claim-share", *(flag.replace("leader-elect", "claim") for flag in ELECTION))


@pytest.fixture(scope="module")
def server() -> Iterator[Path]:
    """An API server without any component; the kubeconfig that leads to it."""
    with ours.serve() as running:
        yield Path(running["kubeconfig"])


@contextlib.asynccontextmanager
async def client_of(kubeconfig: Path) -> AsyncIterator[RestClient]:
    transport = HttpTransport(load_kubeconfig(kubeconfig))
    try:
        yield RestClient(transport)
    finally:
        await transport.close()


@contextlib.asynccontextmanager
async def roles() -> AsyncIterator[list[Child]]:
    children: list[Child] = []
    try:
        yield children
    finally:
        for child in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child.pid or 0, signal.SIGCONT)
        await asyncio.gather(*(child.stop() for child in children))


async def start(children: list[Child], name: str, folder: Path, *flags: str) -> Child:
    child = Child(name, lambda: flags, folder / f"{name}-{len(children)}.log", SystemClock())
    children.append(child)
    await child.start()
    return child


async def make_node(client: RestClient, name: str) -> None:
    status = {"allocatable": {"cpu": "8", "memory": "8Gi", "pods": "110"}}
    status["conditions"] = [{"type": "Ready", "status": "True"}]
    node: Object = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": status}
    with contextlib.suppress(StatusError):
        await client.create(NODES, node)


async def make_pod(client: RestClient, name: str) -> None:
    spec = {"containers": [{"name": "c", "image": "x"}]}
    await client.create(PODS, {"metadata": {"name": name}, "spec": spec}, "default")


async def bound(client: RestClient, name: str) -> str:
    return str((await client.get(PODS, name, "default"))["spec"].get("nodeName", ""))


async def test_a_scheduler_that_stands_by_takes_over_from_a_dead_and_a_stopped_one(
    server: Path, tmp_path: Path
) -> None:
    flags = ("--kubeconfig", str(server), *ELECTION)
    async with client_of(server) as client, roles() as children:
        await make_node(client, "node-of-schedulers")
        first = await start(children, "scheduler", tmp_path, *flags)
        second = await start(children, "scheduler", tmp_path, *flags)
        lease = await client.get(LEASES, "kube-scheduler", "kube-system")
        assert first.where == "synced"
        assert second.where == f"standby: {lease['spec']['holderIdentity']} leads"
        await make_pod(client, "by-the-first")
        await until(lambda: bound(client, "by-the-first"), "bound")

        os.kill(first.pid or 0, signal.SIGSTOP)
        stopped_s = time.monotonic()
        await make_pod(client, "by-the-second")
        await until(lambda: bound(client, "by-the-second"), "bound by the other")
        assert time.monotonic() - stopped_s > 1.0, "it waited for the lease to run out"
        after = await client.get(LEASES, "kube-scheduler", "kube-system")
        assert after["spec"]["holderIdentity"] != lease["spec"]["holderIdentity"]
        assert after["spec"]["leaseTransitions"] == 1

        os.kill(first.pid or 0, signal.SIGCONT)
        assert first._process is not None
        assert await asyncio.wait_for(first._process.wait(), PATIENCE_S) == 1
        assert "kube-system/kube-scheduler" in first.log_file.read_text().splitlines()[-1]

        third = await start(children, "scheduler", tmp_path, *flags)
        assert third.where.startswith("standby")
        await second.stop()
        given_up = await client.get(LEASES, "kube-scheduler", "kube-system")
        assert given_up["spec"].get("holderIdentity") != after["spec"]["holderIdentity"], "nobody waits for its end"
        await make_pod(client, "by-the-third")
        await until(lambda: bound(client, "by-the-third"), "bound by the third")


async def test_kubelets_share_the_nodes_and_take_over_those_of_the_dead(server: Path, tmp_path: Path) -> None:
    flags = ("--kubeconfig", str(server), "--nodes", "5", *CLAIM)
    async with client_of(server) as client, roles() as children:
        await asyncio.gather(*(start(children, "kubelet", tmp_path / name, *flags) for name in _folders(tmp_path, 3)))
        assert sorted(child.where for child in children) == [
            "5 nodes of slot 0, from node-0",
            "5 nodes of slot 1, from node-5",
            "5 nodes of slot 2, from node-10",
        ]
        nodes = {node["metadata"]["name"]: node for node in await client.list(NODES)}
        assert {f"node-{number}" for number in range(15)} <= set(nodes)
        assert len({nodes[f"node-{number}"]["spec"]["podCIDR"] for number in range(15)}) == 15

        dead = next(child for child in children if "slot 1" in child.where)
        os.kill(dead.pid or 0, signal.SIGKILL)
        started_s = time.monotonic()
        heir = await start(children, "kubelet", _folders(tmp_path, 4)[-1], *flags)
        assert heir.where == "5 nodes of slot 1, from node-5"
        assert time.monotonic() - started_s > 1.0

        spec = {"nodeName": "node-7", "containers": [{"name": "c", "image": "x"}]}
        await client.create(PODS, {"metadata": {"name": "on-node-7"}, "spec": spec}, "default")

        async def running() -> bool:
            return (await client.get(PODS, "on-node-7", "default"))["status"]["phase"] == "Running"

        await until(running, "the heir plays its pods")
        added = await start(children, "kubelet", _folders(tmp_path, 5)[-1], *flags)
        assert added.where == "5 nodes of slot 3, from node-15"


def _folders(base: Path, count: int) -> list[Path]:
    folders = [base / f"process-{number}" for number in range(count)]
    for folder in folders:
        folder.mkdir(exist_ok=True)
    return folders


async def test_shares_that_exclude_each_other_are_told_in_one_line(server: Path, tmp_path: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "minikube_py", "kubelet", "--kubeconfig", str(server)),
        *("--share", "0/2", "--claim-share"),
        stderr=asyncio.subprocess.PIPE,
    )
    _, errors = await process.communicate()
    assert process.returncode == 2
    assert "minikube-py kubelet: --share needs a fixed share; this is --claim-share" in errors.decode()

"""`minikube-py up --members 3` whose processes are killed under load: it says so and starts them again, and neither
users of the API nor kubectl lose anything."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import random
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from api_load import ApiLoad
from needs import require_kubectls
from store_members import Members
from up_process import Up, up

from minikube_py.client.kubeconfig import ClusterAccess
from minikube_py.control_plane.listen import parse_address
from minikube_py.control_plane.store_access import FILE_NAME, read_access

STEP = 40
KUBECTL_S = 60


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("up") / "data"


@pytest.fixture(scope="module")
def running(folder: Path) -> Iterator[Up]:
    with up("--members", "3", "--apiservers", "2", "--nodes", "2", "--data-dir", str(folder)) as running:
        yield running


@pytest.fixture
def members(folder: Path, running: Up) -> Members:
    members = Members(read_access(folder / FILE_NAME))
    places = json.loads((folder / "members" / "addresses.json").read_text())
    members.where = {place["name"]: parse_address(place["client"], place["name"]) for place in places}
    return members


def api_servers(running: Up) -> dict[str, ClusterAccess]:
    found = [re.match(r"✓ (apiserver-\S+) .*(https://\S+)", line) for line in running.lines]
    return {match[1]: dataclasses.replace(running.access, server=match[2]) for match in found if match}


def child(running: Up, *words: str) -> int:
    """The process that was started with these words in a row."""
    pid = running.process.pid
    wanted = "\0".join(("", *words, ""))
    for found in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        if wanted in Path(f"/proc/{found}/cmdline").read_text():
            return int(found)
    raise AssertionError(f"{words} does not run")


async def killed(running: Up, name: str, pid: int) -> None:
    """Returns once its supervisor has said that it ended, and that it is back."""
    said = len(running.lines)
    os.kill(pid, signal.SIGKILL)
    for text in (f"{name} was ended by signal 9", f"{name} is back"):
        assert await asyncio.to_thread(running.until_said, text, said), (text, running.lines)


@pytest.mark.timeout(240)
async def test_killed_children_come_back_and_nothing_is_lost(running: Up, members: Members) -> None:
    servers = api_servers(running)
    assert servers.keys() == {"apiserver-1", "apiserver-2"}
    async with ApiLoad(members, list(servers.values()), random.Random("up")) as load:
        leader = await members.leader()
        await killed(running, leader, child(running, "--name", leader))
        await load.progress(STEP)
        follower = (await members.followers())[0]
        await killed(running, follower, child(running, "--name", follower))
        await load.progress(STEP)
        name, access = next(iter(servers.items()))
        await killed(running, name, child(running, "--secure-port", access.server.rpartition(":")[2]))
        await load.progress(STEP)
        load.check_all(await load.finish())
        streams = [len(watch.parts) for watch in load.watches]
        assert streams[0] > 1 == streams[1], f"{streams}: a watch goes on through the next life of its API server"


@pytest.mark.timeout(240)
async def test_kubectl_goes_on_without_the_leader(running: Up, members: Members) -> None:
    kubectl = str(max(require_kubectls().items())[1])

    async def ask(*words: str) -> str:
        done = await asyncio.to_thread(
            subprocess.run,
            [kubectl, "--kubeconfig", str(running.kubeconfig), *words],
            capture_output=True,
            text=True,
            timeout=KUBECTL_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    leader = await members.leader()
    killing = asyncio.create_task(killed(running, leader, child(running, "--name", leader)))
    for number in range(4):
        await ask("create", "configmap", f"kubectl-{number}", f"--from-literal=number={number}")
    await killing
    there = await ask("get", "configmaps", "-o", "name")
    assert {f"configmap/kubectl-{number}" for number in range(4)} <= set(there.split())
    assert (await ask("get", "nodes", "-o", "name")).count("node/") == 2

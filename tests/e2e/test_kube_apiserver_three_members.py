"""Kubernetes' own control plane on three members of ours: kubectl's session as on etcd, and members killed under it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import subprocess
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import record
import scenario
from asking import Ask, Server
from etcd_load import DoorCluster
from needs import original, original_program
from patience import PATIENCE_S, Deadline
from store_cluster import make_secrets

from upstream_run import Parts, Upstream  # isort: skip

pytestmark = [pytest.mark.original, pytest.mark.timeout(600)]
MINOR = 36
ACKNOWLEDGED = 15
"""Objects made between a kill and what is asked next."""
MAPS = "/api/v1/namespaces/default/configmaps"
_CONTAINER = {"name": "c", "image": "x:1", "resources": {"requests": {"cpu": "10m"}}}
_TEMPLATE = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [_CONTAINER]}}
_WEB = {
    "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
    "spec": {"replicas": 3, "selector": {"matchLabels": {"a": "b"}}, "template": _TEMPLATE},
}  # fmt: skip


class Running(NamedTuple):
    cluster: DoorCluster
    upstream: Upstream
    url: str
    kubectl: Path

    def server(self) -> Server:
        return Server(self.url, self.upstream.token)

    async def kubectl_until_done(self, *words: str, stdin: str = "") -> str:
        """Asked again while it fails, as a person does while a leader is elected: what is asked so may be repeated."""
        deadline = Deadline()
        command = [str(self.kubectl), f"--kubeconfig={self.upstream.kubeconfig}", *words]
        while True:
            done = await asyncio.to_thread(
                subprocess.run, command, input=stdin, capture_output=True, text=True, timeout=PATIENCE_S, check=False
            )
            if done.returncode == 0:
                return done.stdout
            deadline.check((words, done.stderr))


@contextlib.asynccontextmanager
async def running(folder: Path, parts: Parts) -> AsyncIterator[Running]:
    for program in (*parts.programs, "kubectl"):
        original_program(program)
    secrets = await asyncio.to_thread(make_secrets, folder / "secrets")
    cluster = DoorCluster(folder / "store", secrets, random.Random(5), "http")
    (folder / "upstream").mkdir()
    upstream = Upstream(folder / "upstream")
    try:
        await cluster.form(3)
        await cluster.settle()
        urls = [cluster.url(name) for name in cluster.places]
        url = await asyncio.to_thread(upstream.start_control_plane, urls, parts)
        yield Running(cluster, upstream, url, original_program("kubectl"))
    finally:
        upstream.kill()
        await cluster.close()


class Writer:
    """Makes one object after the other, in a thread. `made`: those that were acknowledged, with their versions."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.made: dict[str, str] = {}
        self.failed: list[int] = []
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            number += 1
            name = f"c{number}"
            answer = self._server.ask(Ask("create", "POST", MAPS, {"metadata": {"name": name}, "data": {"n": name}}))
            if answer.code == 201:
                self.made[name] = json.loads(answer.body)["metadata"]["resourceVersion"]
            else:
                assert answer.code >= 500, answer
                self.failed.append(answer.code)

    async def progress(self, count: int) -> None:
        wanted, deadline = len(self.made) + count, Deadline()
        while len(self.made) < wanted:
            deadline.check(f"{count} objects are made; refused: {self.failed[-5:]}")
            await asyncio.sleep(0.05)

    async def end(self) -> None:
        self._stop.set()
        await asyncio.to_thread(self._thread.join, PATIENCE_S)


def listed(server: Server, path: str) -> dict[str, Any]:
    """By name."""
    answer = server.ask(Ask("list", "GET", path))
    assert answer.code == 200, answer
    return {each["metadata"]["name"]: each for each in json.loads(answer.body)["items"]}


async def next_to_kill(cluster: DoorCluster, left: list[str]) -> str:
    """The leader, unless it was killed before."""
    leader = await cluster.leader()
    return leader if leader in left else left[0]


async def test_each_member_is_killed_once_and_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    parts = Parts(scheduler=True, controllers=True, kubelets=True, without=("node-lifecycle-controller",))
    async with running(tmp_path, parts) as it:
        with it.server() as server:
            nodes = [
                {"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"n{number}"},
                 "status": {"allocatable": {"cpu": "4", "pods": "50"}}}
                for number in range(3)
            ]  # fmt: skip
            for document in (*nodes, _WEB):
                await it.kubectl_until_done("apply", "-f", "-", stdin=json.dumps(document))
            writer = Writer(server)
            left, replicas = sorted(it.cluster.places), 3
            while left:
                name = await next_to_kill(it.cluster, left)
                left.remove(name)
                await it.cluster.kill(name)
                replicas += 2
                await writer.progress(ACKNOWLEDGED)
                await it.kubectl_until_done("scale", "deployment", "web", f"--replicas={replicas}")
                await it.kubectl_until_done("rollout", "status", "deployment", "web", f"--timeout={PATIENCE_S:g}s")
                await it.cluster.start(name)
                await it.cluster.settle()
            await writer.progress(ACKNOWLEDGED)
            await writer.end()
        with it.server() as server:
            found = listed(server, MAPS)
            pods = listed(server, "/api/v1/namespaces/default/pods")
        for name, version in writer.made.items():
            assert found[name]["data"] == {"n": name}, name
            assert found[name]["metadata"]["resourceVersion"] == version
        assert len(set(writer.made.values())) == len(writer.made)
        assert len(pods) == replicas
        assert all(each["spec"].get("nodeName") for each in pods.values())
        views = await it.cluster.views()
        assert len({view.hashes[min(views, key=lambda each: each.revision).revision] for view in views}) == 1


async def test_kubectl_prints_what_it_prints_on_etcd(tmp_path: Path) -> None:
    parts = Parts(scheduler=True, controllers=True, kubelets=True)
    async with running(tmp_path, parts) as it:
        mine = await asyncio.to_thread(record.kubectl_answers, it.kubectl, MINOR, it.upstream.kubeconfig)
    with original("--scheduler", "--controllers", "--kubelets") as ready:
        theirs = await asyncio.to_thread(record.kubectl_answers, it.kubectl, MINOR, Path(ready["kubeconfig"]))
    assert set(mine) == {step.name for step in scenario.STEPS if not step.only or MINOR in step.only}
    assert {name: answer for name, answer in mine.items() if answer != theirs[name]} == {}

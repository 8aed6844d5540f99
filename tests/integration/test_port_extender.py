"""docs/how-to/grant-a-device-port.md as written, and the extender in examples/scheduler that it runs."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import os
import random
import re
import shlex
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from needs import original_program
from patience import until
from ports import free_ports

from minikube_py.client.rest import RestClient
from minikube_py.control_plane.config import ControlPlaneConfig
from minikube_py.control_plane.in_process import ControlPlane
from minikube_py.env import SystemClock
from minikube_py.scheduler.configuration.chosen import ChosenScheduler

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/how-to/grant-a-device-port.md").read_text(encoding="utf-8")
EXTENDER = ROOT / "examples/scheduler/port_extender.py"
Json = dict[str, Any]


def example() -> Any:
    spec = importlib.util.spec_from_file_location("port_extender", EXTENDER)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def blocks(language: str) -> list[str]:
    found = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    return [text for kind, text in found if kind == language]


def node(name: str, ports: dict[str, int]) -> Json:
    return {"metadata": {"name": name, "annotations": {"example.com/ports": json.dumps(ports)}}}


def pod(mbps: int, on: str = "", port: str = "") -> Json:
    annotations = {"example.com/port": port} if port else {}
    container = {"name": "c", "resources": {"requests": {"example.com/mbps": str(mbps)}}}
    return {"metadata": {"annotations": annotations}, "spec": {"containers": [container], "nodeName": on}}


SPEEDS = st.dictionaries(st.sampled_from(("eth0", "eth1", "eth2")), st.integers(1, 100), max_size=3)


@given(SPEEDS, st.lists(st.integers(0, 60), max_size=12))
def test_no_port_is_granted_twice_and_none_is_refused_that_would_do(ports: dict[str, int], asked: list[int]) -> None:
    port_extender = example()
    here = node("n", ports)
    pods: list[tuple[int, str]] = []
    for mbps in asked:
        waiting = pod(mbps)
        left = {name: speed - sum(amount for amount, on in pods if on == name) for name, speed in ports.items()}
        bound = [pod(amount, "n", name) for amount, name in pods]
        answer = port_extender.filtered(waiting, [here], bound)
        assert bool(answer["NodeNames"]) == any(free >= mbps for free in left.values())
        assert bool(answer["FailedAndUnresolvableNodes"]) == all(speed < mbps for speed in ports.values())
        ((_, score),) = [tuple(each.values()) for each in port_extender.prioritized(waiting, [here], bound)]
        assert 0 <= score <= 10
        if answer["NodeNames"]:
            pods.append((mbps, port_extender.best_port(port_extender.free_ports(here, bound), mbps)))
    for name, speed in ports.items():
        assert sum(amount for amount, on in pods if on == name) <= speed


@contextlib.asynccontextmanager
async def process(*command: str, **environment: str) -> AsyncIterator[asyncio.subprocess.Process]:
    pipe = asyncio.subprocess.PIPE
    variables = {**os.environ, **environment}
    running = await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=pipe, env=variables)
    try:
        yield running
    finally:
        with contextlib.suppress(ProcessLookupError):
            running.kill()
        await running.communicate()


@pytest.mark.original
@pytest.mark.real_time("processes and real sockets")
async def test_the_page_runs_as_it_stands_there(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    for text in blocks("yaml"):
        (tmp_path / text.split("\n")[0].removeprefix("# ")).write_text(text.replace("8765", str(port)))
    start, extend, kubectl = blocks("sh")
    assert start == "minikube-py up --nodes 2 --data-dir data --scheduler-config scheduler.yaml\n"
    chosen = ChosenScheduler(tmp_path / "scheduler.yaml")
    data = tmp_path / "data"
    plane = ControlPlane(ControlPlaneConfig(data, port=0, nodes=2, chosen=chosen), SystemClock(), random.Random(1))
    url = await plane.start()
    try:
        words = shlex.split(extend.replace("https://127.0.0.1:6443", url).replace("data/", f"{data}/"))
        assert words[:2] == ["python", "examples/scheduler/port_extender.py"]
        async with process(sys.executable, str(EXTENDER), *words[2:], "--port", str(port)) as extender:

            async def listens() -> bool:
                assert extender.returncode is None
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                except OSError:
                    return False
                writer.close()
                return True

            await until(listens)
            client = RestClient(plane.transport())
            ready = "/api/v1/namespaces/default/serviceaccounts"
            await until(lambda: has_items(client, ready))
            *applied, look = [shlex.split(line.replace("-f ", f"-f {tmp_path}/")) for line in kubectl.splitlines()]
            for command in applied:
                await said(command, data)
            table = next(text for text in blocks("") if text.startswith("NAME"))

            async def shown() -> bool:
                return await said(look, data) == [line.split() for line in table.splitlines()]

            await until(shown)
            (waits,) = [text.strip() for text in blocks("") if text.startswith("0/2")]

            async def told() -> bool:
                huge = await client.request("GET", "/api/v1/namespaces/default/pods/huge")
                conditions = huge["status"].get("conditions") or [{}]
                return str(conditions[0].get("message", "")).startswith(waits)

            await until(told)
    finally:
        await plane.stop()


async def has_items(client: RestClient, path: str) -> bool:
    return bool((await client.request("GET", path))["items"])


async def said(command: list[str], data: Path) -> list[list[str]]:
    """The words of a kubectl command's output, by line."""
    assert command[0] == "kubectl"
    program = str(original_program("kubectl"))
    async with process(program, *command[1:], KUBECONFIG=str(data / "kubeconfig")) as running:
        out, wrong = await running.communicate()
        assert running.returncode == 0, wrong.decode()
        return [line.split() for line in out.decode().splitlines()]

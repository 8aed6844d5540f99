"""What a long start says while it lasts."""

import asyncio
import sys

import orjson
import pytest
from step_clock import StepClock

from minikube_py.client.transport import ApiResponse, WatchEvent
from minikube_py.control_plane import supervisor
from minikube_py.control_plane.errors import RoleFailed
from minikube_py.control_plane.progress import Registered
from minikube_py.control_plane.supervisor import Child
from minikube_py.env import SystemClock
from minikube_py.lab.nodes import NodesNotReady, wait_ready


def test_registrations_are_told_now_and_then():
    clock, said = StepClock(), []
    registered = Registered(clock, said.append)
    for done in range(1, 101):
        clock.now_s += 0.1
        registered(done * 1000, 100_000)
    assert len(said) in (4, 5)
    assert said[0] in ("20,000 of 100,000 nodes registered", "21,000 of 100,000 nodes registered")


def child(tmp_path, monkeypatch, script, within_s):
    """A child that runs `script` instead of a role."""
    program = tmp_path / "role.py"
    program.write_text(script)
    real = asyncio.create_subprocess_exec

    async def run(*command, **options):
        return await real(sys.executable, str(program), **options)

    monkeypatch.setattr(supervisor.asyncio, "create_subprocess_exec", run)
    monkeypatch.setattr(supervisor, "READY_WITHIN_S", within_s)
    return Child("role", list, tmp_path / "role.log", SystemClock())


SLOW = """
import time
for number in range(10):
    time.sleep(0.3)
    print(number, "of 10 nodes", flush=True)
print("ready at last", flush=True)
time.sleep(60)
"""


async def test_a_child_that_says_how_far_it_is_has_more_time(tmp_path, monkeypatch):
    slow, said = child(tmp_path, monkeypatch, SLOW, 2.5), []
    try:
        assert await slow.start(said.append) == "at last"
    finally:
        await slow.stop()
    assert said == [f"{number} of 10 nodes" for number in range(10)]


async def test_a_child_that_says_nothing_has_not(tmp_path, monkeypatch):
    silent = child(tmp_path, monkeypatch, "import time; time.sleep(60)", 0.5)
    with pytest.raises(RoleFailed, match=r"was not ready, and said nothing for 0 s"):
        await silent.start()


class Api:
    """Lists no nodes; its watch shows one more Ready every `every_s`, `count` in all."""

    def __init__(self, count, every_s):
        self.count, self.every_s = count, every_s

    async def request(self, *_):
        return ApiResponse(200, orjson.dumps({"metadata": {"resourceVersion": "1"}, "items": []}))

    async def watch(self, *_):
        for number in range(self.count):
            await asyncio.sleep(self.every_s)
            status = {"conditions": [{"type": "Ready", "status": "True"}]}
            node = {"metadata": {"name": f"n{number}", "resourceVersion": str(number + 2)}, "status": status}
            yield [WatchEvent("ADDED", orjson.dumps(node))]
        await asyncio.Event().wait()


async def test_nodes_are_waited_for_while_more_and_more_are_ready():
    await wait_ready(Api(30, 0.1), 30, within_s=2.0)
    with pytest.raises(NodesNotReady, match=r"^3 of 4 nodes became Ready within 1 s"):
        await wait_ready(Api(3, 0.01), 4, within_s=1.0)

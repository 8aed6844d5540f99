"""What a long start says while it lasts."""

import asyncio

import orjson
import pytest
from step_clock import StepClock
from virtual_time import LoopClock

from minikube_py.client.transport import ApiResponse, WatchEvent
from minikube_py.control_plane import supervisor
from minikube_py.control_plane.errors import RoleFailed
from minikube_py.control_plane.progress import Registered
from minikube_py.control_plane.supervisor import Child
from minikube_py.lab.nodes import NodesNotReady, wait_ready


def test_registrations_are_told_now_and_then():
    clock, said = StepClock(), []
    registered = Registered(clock, said.append)
    for done in range(1, 101):
        clock.now_s += 0.1
        registered(done * 1000, 100_000)
    assert len(said) in (4, 5)
    assert said[0] in ("20,000 of 100,000 nodes registered", "21,000 of 100,000 nodes registered")


class Process:
    """A role's process that says one line every `every_s`, and is ready after the last."""

    pid = 7
    stdin = None

    def __init__(self, lines: list[str], every_s: float) -> None:
        self.lines = lines
        self.every_s = every_s
        self.stdout = asyncio.StreamReader()
        self.returncode: int | None = None
        self.ended = asyncio.Event()
        self.speaking = asyncio.create_task(self.speak())

    async def speak(self) -> None:
        for line in self.lines:
            await asyncio.sleep(self.every_s)
            self.stdout.feed_data(f"{line}\n".encode())

    async def wait(self) -> int:
        await self.ended.wait()
        return self.returncode or 0

    def kill(self) -> None:
        self.speaking.cancel()
        self.stdout.feed_eof()
        self.returncode = -9
        self.ended.set()

    terminate = kill


def child(tmp_path, monkeypatch, lines=(), every_s=0.0):
    """A child whose process is a scripted one."""

    async def run(*command, **options):
        return Process(lines, every_s)

    monkeypatch.setattr(supervisor.asyncio, "create_subprocess_exec", run)
    return Child("role", list, tmp_path / "role.log", LoopClock())


async def test_a_child_that_says_how_far_it_is_has_more_time(tmp_path, monkeypatch):
    lines = [f"{number} of 10 nodes" for number in range(10)]
    slow, said = child(tmp_path, monkeypatch, [*lines, "ready at last"], supervisor.READY_WITHIN_S * 0.9), []
    assert await slow.start(said.append) == "at last"
    await slow.stop()
    assert said == lines


async def test_a_child_that_says_nothing_has_not(tmp_path, monkeypatch):
    silent = child(tmp_path, monkeypatch)
    began_s = asyncio.get_running_loop().time()
    with pytest.raises(RoleFailed, match=rf"was not ready, and printed nothing for {supervisor.READY_WITHIN_S:.0f} s"):
        await silent.start()
    assert asyncio.get_running_loop().time() - began_s == pytest.approx(supervisor.READY_WITHIN_S, abs=0.1)


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

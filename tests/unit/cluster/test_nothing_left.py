"""However a cluster ends, nothing stays: each way in a process of its own, under `-X dev`, which reports what leaks."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.real_time("real processes")
COUNTED = """
import asyncio, gc, os, sys, tempfile, threading
from minikube_py import Cluster
from minikube_py.cluster.player import GatedControlPlane

def held():
    gc.collect()
    planes = sum(isinstance(each, GatedControlPlane) for each in gc.get_objects())
    files = len(os.listdir("/proc/self/fd")), len(os.listdir(tempfile.gettempdir()))
    return files[0], threading.active_count(), files[1], planes

with Cluster(nodes=1): pass
before = held()
"""
CHECKED = """
assert held() == before, (held(), before)
print("nothing left")
"""
CASES = {
    "plain": "with Cluster(nodes=3) as c: c.objects('nodes')",
    "async": """
async def main():
    async with Cluster(nodes=3) as c: await c.objects('nodes')
    assert asyncio.all_tasks() == {asyncio.current_task()}
asyncio.run(main())
""",
    "dropped in virtual time": """
import asyncio, time
names = lambda: (time.sleep, asyncio.as_completed, asyncio.wait_for, os.urandom, gc.isenabled(), gc.get_freeze_count())
own = names()
def use():
    c = Cluster(nodes=1, clock="virtual").start()
    c.objects("nodes")
    c.advance(10)
for _ in range(2):
    use()
    gc.collect()
    assert names() == own
""",
    "dropped by a program of another one": """
import time
def runs(clients):
    while True: time.sleep(1)
def other():
    c = Cluster(nodes=0, clock="virtual").start()
    c.program(runs)
    c.advance(1)
    return [c]
kept = other()
with Cluster(nodes=0, clock="virtual") as c:
    c.program(lambda clients: kept.clear())
    c.advance(1)
assert threading.active_count() == 2
with Cluster(nodes=0, clock="virtual"): pass
""",
    "folder": f"""
import shutil
with Cluster(nodes=3, data_dir={"tempfile.gettempdir()"} + "/data") as c: c.objects('nodes')
shutil.rmtree(tempfile.gettempdir() + "/data")
""",
    "raise": """
try:
    with Cluster(nodes=3) as c: raise KeyError
except KeyError: pass
""",
    "interrupt": """
import signal
try:
    with Cluster(nodes=3) as c: os.kill(os.getpid(), signal.SIGINT); c.wait("cm/never", timeout_s=100)
except KeyboardInterrupt: pass
""",
    "interrupted start": """
import signal
threading.Timer(0.02, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
try:
    with Cluster(nodes=300) as c: c.wait("cm/never", timeout_s=100)
except KeyboardInterrupt: pass
while threading.active_count() > before[1]: pass
""",
    "two in one loop": """
async def main():
    async with Cluster(nodes=1) as one, Cluster(nodes=2) as two:
        assert len(await one.objects("nodes")) == 1 and len(await two.objects("nodes")) == 2
asyncio.run(main())
""",
    "view from before": """
c = Cluster(nodes=1).start()
view = c.in_namespace("default")
c.stop()
for _ in range(2):
    c.start()
    view.client.httpx().get("/api/v1/nodes")
    c.stop()
""",
    "few descriptors": """
import resource
with Cluster(nodes=1, clock="virtual") as c: c.url
before = held()
used, (soft, hard), failed = before[0] - 1, resource.getrlimit(resource.RLIMIT_NOFILE), 0
for clock in ("real", "virtual"):
    for free in range(6, 12):
        resource.setrlimit(resource.RLIMIT_NOFILE, (used + free, hard))
        try:
            with Cluster(nodes=1, clock=clock) as c: c.url
        except Exception: failed += 1
        finally: resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert held() == before, (clock, free, held(), before)
assert failed
""",
    "failed starts": """
import socket
with socket.create_server(("127.0.0.1", 0)) as taken:
    port, failed = taken.getsockname()[1], 0
    async def main():
        async with Cluster(port=port): pass
    def plain(**more):
        with Cluster(port=port, **more) as c: c.url
    for start in (lambda: asyncio.run(main()), plain, lambda: plain(clock="virtual")):
        for _ in range(2):
            try: start()
            except Exception: failed += 1
assert failed == 6
""",
    "cancelled start": """
async def use():
    async with Cluster(nodes=300) as c: await c.wait("cm/never", timeout_s=100)
async def main():
    for steps in range(0, 40, 8):
        task = asyncio.create_task(use())
        for _ in range(steps): await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
asyncio.run(main())
""",
    "stops that raise": """
class Client:
    async def aclose(self): raise KeyError
    def close(self): raise KeyError
async def main():
    async with Cluster(nodes=1) as c: c.client = Client()
def plain():
    with Cluster(nodes=1) as c: c.client = Client()
for end in (lambda: asyncio.run(main()), plain):
    try: end()
    except KeyError: pass
    else: assert False
""",
    "uvloop": """
import uvloop
async def main():
    async with Cluster(nodes=3) as c:
        assert len((await c.client.httpx_asyncio().get("/api/v1/nodes")).json()["items"]) == 3
def run(main):
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner: runner.run(main)
# uvloop keeps two descriptors for the whole process.
run(asyncio.sleep(0))
before = held()
run(main())
""",
    "trio": """
import trio
async def main():
    with Cluster(nodes=3) as c:
        return await trio.to_thread.run_sync(lambda: c.objects("nodes"))
assert len(trio.run(main)) == 3
# trio keeps its worker threads for ten seconds.
before = (held()[0], threading.active_count(), *before[2:])
""",
    "fork": """
import warnings
with Cluster(nodes=1) as c:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        child = os.fork()
    if not child:
        try:
            c.stop()
        finally:
            os._exit(0 if c._engine is None else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert len(c.objects("nodes")) == 1 and c.kubeconfig_path.exists()
""",
}


def run(code: str, folder: Path, *arguments: str) -> subprocess.Popen[str]:
    folder.mkdir(exist_ok=True)
    environment = {**os.environ, "TMPDIR": str(folder), "PYTHONWARNINGS": "default,ignore::DeprecationWarning"}
    # `-X dev` would check each block of memory too, for what C writes beyond it: two thirds of the CPU.
    environment["PYTHONMALLOC"] = "pymalloc"
    command = [sys.executable, "-X", "dev", "-c", code, *arguments]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("name", list(CASES))
def test_nothing_stays(name: str, tmp_path: Path) -> None:
    out, said = (process := run(COUNTED + CASES[name] + CHECKED, tmp_path / "tmp")).communicate()
    assert (process.returncode, out.strip()) == (0, "nothing left"), said
    assert "ResourceWarning" not in said and "never awaited" not in said and "Task was destroyed" not in said, said
    assert "Exception ignored" not in said, said
    assert list((tmp_path / "tmp").iterdir()) == []


@pytest.mark.parametrize(("body", "told"), [("pass", ""), ("c.program(main)", "program main runs, 1 start")])
def test_a_cluster_in_virtual_time_ends_with_its_process_at_the_latest(body: str, told: str, tmp_path: Path) -> None:
    # The frame of its program holds it.
    code = f"""
import time
from minikube_py import Cluster
def use():
    def main(clients):
        while True: time.sleep(1); c
    c = Cluster(nodes=1, clock="virtual").start()
    {body}
    c.advance(5)
    return c
c = use()
"""
    process = run(code, tmp_path / "tmp")
    said = process.communicate()[1]
    assert process.returncode == 0
    assert not said if not told else re.search(f"ResourceWarning: a cluster .* was never stopped.*: {told}", said)


@pytest.mark.parametrize("how", ["never stopped", "SIGINT"])
def test_a_process_that_ends_without_stopping_it_leaves_no_folder(how: str, tmp_path: Path) -> None:
    code = "from minikube_py import Cluster\nc = Cluster().start()\nprint(c.kubeconfig_path, flush=True)\n"
    if how == "SIGINT":
        code += "import threading\nthreading.Event().wait()\n"
    process = run(code, tmp_path / "tmp")
    assert process.stdout is not None
    process.stdout.readline()
    if how == "SIGINT":
        process.send_signal(signal.SIGINT)
    process.communicate()
    assert list((tmp_path / "tmp").iterdir()) == []


HELD = """
import sys, threading
from minikube_py import Cluster
with Cluster(nodes=1, clock=sys.argv[1]) as c:
    print(c.kubeconfig_path, flush=True)
    threading.Event().wait()
"""


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("clock", ["real", "virtual"])
def test_what_a_killed_process_leaves_is_removed_by_the_next(clock: str, how: signal.Signals, tmp_path: Path) -> None:
    killed, running = (run(HELD, tmp_path / "tmp", clock) for _ in range(2))
    left, kept = (Path(_line_of(process)).parent for process in (killed, running))
    killed.send_signal(how)
    killed.communicate()
    assert left.is_dir()
    said = run("from minikube_py import Cluster\nwith Cluster() as c: c.url", tmp_path / "tmp").communicate()[1]
    assert list((tmp_path / "tmp").iterdir()) == [kept], said
    running.send_signal(signal.SIGINT)
    running.communicate()
    assert list((tmp_path / "tmp").iterdir()) == []


def _line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_a_forked_child_that_lives_on_does_not_hold_the_port(tmp_path: Path) -> None:
    code = """
import os, socket, sys, warnings
warnings.simplefilter("ignore")
from minikube_py import Cluster
with Cluster() as c:
    port = int(c.url.rpartition(":")[2])
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(writing); os.read(reading, 1); os._exit(0)
    os.close(reading)
try:
    socket.create_connection(("127.0.0.1", port))
except ConnectionRefusedError:
    print("refused")
os.close(writing); os.waitpid(child, 0)
"""
    out, said = run(code, tmp_path / "tmp").communicate()
    assert out == "refused\n", said

"""`minikube-py up` as a user meets it: as a process, over HTTPS, in both layouts."""

import asyncio
import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import orjson
import pytest
from patience import PATIENCE_S, Deadline, until

from minikube_py.client.http_transport import HttpTransport
from minikube_py.client.kubeconfig import load_kubeconfig
from minikube_py.client.rest import Object

READY_WITHIN_S = PATIENCE_S
LAYOUTS = [pytest.param((), id="one process"), pytest.param(("--split",), id="split")]


class Up:
    """One running `minikube-py up`; `lines` is what it printed until it was ready."""

    def __init__(self, process: asyncio.subprocess.Process, lines: list[str]) -> None:
        self.process, self.lines = process, lines
        found = [match for line in lines if (match := re.search(r"kubectl --kubeconfig (\S+) get nodes", line))]
        self.kubeconfig = Path(found[0][1]) if found else None

    @contextlib.asynccontextmanager
    async def transport(self) -> AsyncIterator[HttpTransport]:
        assert self.kubeconfig is not None
        transport = HttpTransport(load_kubeconfig(self.kubeconfig))
        try:
            yield transport
        finally:
            await transport.close()

    async def end(self, number: signal.Signals = signal.SIGINT) -> tuple[int, str]:
        """Its exit code, and what it printed since it was ready."""
        self.process.send_signal(number)
        out, _ = await asyncio.wait_for(self.process.communicate(), 60)
        assert self.process.returncode is not None
        return self.process.returncode, out.decode()


async def start(*flags: str) -> Up:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "minikube_py", "up", "--port", "0", *flags),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONIOENCODING": "utf-8"},
    )
    assert process.stdout is not None
    lines: list[str] = []
    while line := await asyncio.wait_for(process.stdout.readline(), READY_WITHIN_S):
        lines.append(line.decode().rstrip("\n"))
        if "kubectl --kubeconfig" in lines[-1]:
            break
    return Up(process, lines)


@contextlib.asynccontextmanager
async def up(*flags: str) -> AsyncIterator[Up]:
    running = await start(*flags)
    try:
        if running.kubeconfig is None:
            _, errors = await running.process.communicate()
            pytest.fail(f"did not become ready: {running.lines} {errors.decode()}")
        yield running
    finally:
        if running.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                running.process.send_signal(signal.SIGTERM)
            await asyncio.wait_for(running.process.communicate(), 60)


async def create_config_map(transport: HttpTransport, name: str) -> None:
    body = orjson.dumps({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": name}})
    answer = await transport.request("POST", "/api/v1/namespaces/default/configmaps", body=body)
    assert answer.status == 201, answer.body


async def names_of(transport: HttpTransport, path: str) -> set[str]:
    answer = await transport.request("GET", path)
    assert answer.status == 200, answer.body
    return {item["metadata"]["name"] for item in orjson.loads(answer.body)["items"]}


async def pod_when(transport: HttpTransport, name: str, phase: str) -> Object:
    """The pod once it is in that phase, by watch."""
    params = {"fieldSelector": f"metadata.name={name}", "timeoutSeconds": "30"}
    async for batch in transport.watch("/api/v1/namespaces/default/pods", params):
        for event in batch:
            pod: Object = orjson.loads(event.object)
            if pod.get("status", {}).get("phase") == phase:
                return pod
    raise AssertionError(f"pod {name} did not become {phase}")


@pytest.mark.parametrize("layout", LAYOUTS)
async def test_a_pod_runs(tmp_path: Path, layout: tuple[str, ...]) -> None:
    data = str(tmp_path / "data")
    async with up("--data-dir", data, "--nodes", "2", "--matcher", "max-tree", *layout) as running:
        if layout:
            told = Path(f"/proc/{child_pid(running.process.pid, 'scheduler')}/cmdline").read_text()
            assert "\0--matcher\0max-tree\0" in told
        async with running.transport() as transport:
            assert len(await names_of(transport, "/api/v1/nodes")) == 2
            await create_pod(transport, "one")
            node = (await pod_when(transport, "one", "Running"))["spec"]["nodeName"]
            if layout:
                (line,) = (line for line in running.lines if line.startswith("✓ scheduler "))
                metrics = await asyncio.to_thread(read_url, line.split()[-1])
                assert b'scheduler_schedule_attempts_total{result="scheduled"' in metrics
        await until(partial(why_there, running.kubeconfig, node), "the scheduler tells of the pod")
        code, after = await running.end()
        assert code == 0
        assert "SIGINT: stopping ..." in after and after.rstrip().endswith("stopped")


def read_url(url: str) -> bytes:
    with urllib.request.urlopen(url) as answer:
        found: bytes = answer.read()
        return found


async def why_there(kubeconfig: Path | None, node: str) -> bool:
    """Whether `explain` and `what-if` tell of the pod. A scheduler apart may come to the API server a moment later."""
    words = [sys.executable, "-m", "minikube_py", "explain", "pod", "one", "--at", "1", "--kubeconfig", str(kubeconfig)]
    explained = await asyncio.to_thread(subprocess.run, words, capture_output=True, text=True)
    if "no scheduler answers" in explained.stderr:
        return False
    decided = f"scheduler decision 1; the numbers of all decisions for this pod: 1\nchose {node} among 2"
    assert explained.stdout.startswith(f"default/one is on {node}\n{decided}")
    return explained.returncode == 0


@pytest.mark.parametrize("layout", LAYOUTS)
async def test_a_second_one_is_refused_and_names_the_holder(tmp_path: Path, layout: tuple[str, ...]) -> None:
    folder = str(tmp_path / "data")
    async with up("--data-dir", folder, *layout) as running:
        second = await start("--data-dir", folder)
        _, errors = await second.process.communicate()
        assert second.process.returncode == 1
        assert f"in use by process {running.process.pid}" in errors.decode()
        assert errors.count(b"\n") == 1


@pytest.mark.parametrize("layout", LAYOUTS)
async def test_what_was_acknowledged_outlives_kill_9(tmp_path: Path, layout: tuple[str, ...]) -> None:
    folder = str(tmp_path / "data")
    async with up("--data-dir", folder, *layout) as running:
        async with running.transport() as transport:
            for number in range(20):
                await create_config_map(transport, f"map-{number}")
        token = load_kubeconfig(tmp_path / "data" / "kubeconfig").token
        running.process.kill()
        await running.process.communicate()
    async with again(folder, *layout) as running, running.transport() as transport:
        maps = await names_of(transport, "/api/v1/namespaces/default/configmaps")
        assert {f"map-{number}" for number in range(20)} <= maps
        assert load_kubeconfig(tmp_path / "data" / "kubeconfig").token == token


@contextlib.asynccontextmanager
async def again(folder: str, *layout: str) -> AsyncIterator[Up]:
    """The children of a killed supervisor end by themselves, a moment later; their store is held until then."""
    deadline = Deadline()
    while True:
        running = await start("--data-dir", folder, *layout)
        if running.kubeconfig is not None:
            break
        _, errors = await running.process.communicate()
        assert b"in use by process" in errors, errors
        deadline.check(errors)
    try:
        yield running
    finally:
        await running.end(signal.SIGTERM)


def child_pid(parent: int, role: str) -> int:
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    (found,) = [pid for pid in children if f"\0{role}\0" in Path(f"/proc/{pid}/cmdline").read_text()]
    return int(found)


async def until_printed(running: Up, text: str) -> None:
    assert running.process.stdout is not None
    while text not in (line := (await asyncio.wait_for(running.process.stdout.readline(), 60)).decode()):
        assert line, f"ended without saying {text!r}"


@pytest.mark.parametrize("role", ["apiserver", "scheduler", "controllers", "kubelet", "store"])
async def test_split_goes_on_after_a_role_was_killed(tmp_path: Path, role: str) -> None:
    async with up("--data-dir", str(tmp_path / "data"), "--split") as running:
        os.kill(child_pid(running.process.pid, role), signal.SIGKILL)
        await until_printed(running, f"{role} is back")
        async with running.transport() as transport:
            await create_pod(transport, "after")
            await pod_when(transport, "after", "Running")


async def create_pod(transport: HttpTransport, name: str) -> None:
    """The first answer after a restart may be that the store is not there yet; nothing was done then."""
    spec = {"containers": [{"name": "main", "image": "pause"}]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
    deadline = Deadline()
    while True:
        answer = await transport.request("POST", "/api/v1/namespaces/default/pods", body=orjson.dumps(pod))
        if answer.status == 201:
            return
        assert answer.status in (429, 503, 504), answer.body
        deadline.check(answer.body)


async def test_each_layout_takes_up_what_the_other_left(tmp_path: Path) -> None:
    folder = str(tmp_path / "data")
    for number, layout in enumerate(((), ("--split",), ())):
        async with up("--data-dir", folder, *layout) as running, running.transport() as transport:
            maps = await names_of(transport, "/api/v1/namespaces/default/configmaps")
            assert {f"map-{each}" for each in range(number)} <= maps
            await create_config_map(transport, f"map-{number}")


async def test_the_same_seed_does_not_make_the_same_uids(tmp_path: Path) -> None:
    uids = set()
    for name in ("first", "second"):
        async with up("--data-dir", str(tmp_path / "data"), "--seed", "7") as running, running.transport() as transport:
            await create_config_map(transport, name)
            answer = await transport.request("GET", f"/api/v1/namespaces/default/configmaps/{name}")
            uids.add(orjson.loads(answer.body)["metadata"]["uid"])
    assert len(uids) == 2


async def test_without_a_data_dir_nothing_is_left(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "config"
    async with up("--kubeconfig", str(kubeconfig)) as running:
        folder = re.search(r"data in (\S+) \(temporary", running.lines[0])
        assert folder is not None and Path(folder[1]).is_dir()
        assert kubeconfig.exists()
        await running.end(signal.SIGTERM)
        assert not Path(folder[1]).exists()
        assert not kubeconfig.exists(), "it points to what is gone"


async def test_steps_are_told_with_their_times() -> None:
    async with up() as running:
        steps = [line.split()[:2] for line in running.lines if line.startswith("✓ ")]
        assert [name for _, name in steps][:4] == ["Python", "certificates", "store", "apiserver"]
        assert {"scheduler", "controllers", "kubelet"} <= {name for _, name in steps}
        ready = re.compile(r"ready in \d+\.\d\d s at https://127\.0\.0\.1:\d+; Ctrl-C ends it")
        assert any(ready.fullmatch(line) for line in running.lines)


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        pytest.param(("--kubeconfig", "{tmp}/theirs"), "was not written by minikube_py", id="somebody's kubeconfig"),
        pytest.param(("--kubeconfig", "/nowhere/config"), "cannot write /nowhere/config", id="no folder for it"),
        pytest.param(("--data-dir", "/dev/null/x"), "cannot be used as data directory", id="no folder for data"),
        pytest.param(("--port", "{taken}"), "in use; name another with --port", id="a taken port"),
    ],
)
async def test_bad_flags_are_one_line(tmp_path: Path, flags: tuple[str, ...], text: str) -> None:
    (tmp_path / "theirs").write_text("apiVersion: v1\n")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        running = await start(*(flag.format(tmp=tmp_path, taken=taken.getsockname()[1]) for flag in flags))
        _, errors = await running.process.communicate()
    assert running.process.returncode == 1
    assert text in errors.decode() and errors.count(b"\n") == 1
    assert (tmp_path / "theirs").read_text() == "apiVersion: v1\n"

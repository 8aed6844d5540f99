"""A role's word on how it is, and `minikube-py health`, which asks for it."""

import asyncio
import socket
import subprocess
import sys

import pytest
from patience import PATIENCE_S

from minikube_py.apiserver.health import READY_S, all_of, one, well, within
from minikube_py.cli import main as cli
from minikube_py.cli.health import NotWell, ask
from minikube_py.control_plane.errors import SetupError
from minikube_py.control_plane.healthz import Healthz
from minikube_py.control_plane.process import ProcessOptions, run_role


async def asked(port: int, timeout_s: float = PATIENCE_S) -> str:
    return await asyncio.to_thread(ask, f"127.0.0.1:{port}", timeout_s)


@pytest.mark.real_time("it is asked from a thread")
async def test_it_says_how_the_role_is() -> None:
    state = "it is starting"

    async def how() -> str:
        return state

    health = Healthz("127.0.0.1", 0, "store", how)
    await health.start()
    try:
        with pytest.raises(NotWell, match="it is starting"):
            await asked(health.port)
        state = ""
        assert await asked(health.port) == "ok"
        port = health.port
    finally:
        await health.stop()
    with pytest.raises(NotWell, match=r"connection refused; is it running, with --healthz at this address\?"):
        await asked(port)


@pytest.mark.parametrize(
    ("request_bytes", "answer"),
    [
        pytest.param(b"GET /healthz HTTP/1.1\r\n\r\n", b"HTTP/1.1 200 OK", id="healthz"),
        pytest.param(b"GET /readyz?verbose HTTP/1.1\r\nA: b\r\n\r\n", b"HTTP/1.1 200 OK", id="with a query"),
        pytest.param(b"GET / HTTP/1.1\r\n\r\n", b"HTTP/1.1 404 Not Found", id="anything else"),
        pytest.param(b"POST /healthz HTTP/1.1\r\n\r\n", b"HTTP/1.1 404 Not Found", id="another verb"),
        pytest.param(b"\r\n\r\n", b"HTTP/1.1 404 Not Found", id="nothing"),
        pytest.param(b"GET /" + b"x" * 9000, b"", id="a head without end"),
    ],
)
async def test_requests(request_bytes: bytes, answer: bytes) -> None:
    health = Healthz("127.0.0.1", 0, "store", well)
    await health.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", health.port)
    try:
        writer.write(request_bytes)
        head = (await reader.read()).partition(b"\r\n")[0]
    except ConnectionResetError:
        head = b""
    finally:
        writer.close()
        await health.stop()
    assert head == answer
    await asyncio.sleep(0)
    metrics = health.listening.metrics()
    assert metrics["connections_unauthenticated"] == metrics["connections_waiting"] == 0


async def test_metrics_are_answered_as_text() -> None:
    health = Healthz("127.0.0.1", 0, "scheduler", well, lambda: {'scheduler_pending_pods{queue="active"}': 2})
    await health.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", health.port)
    try:
        writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    finally:
        writer.close()
        await health.stop()
    assert head.startswith(b"HTTP/1.1 200 OK")
    assert body == b'# TYPE scheduler_pending_pods gauge\nscheduler_pending_pods{queue="active"} 2\n'


def test_one_that_listens_and_says_nothing_is_not_well() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(NotWell, match="no answer in time"):
        ask(f"127.0.0.1:{silent.getsockname()[1]}", 0.05)


@pytest.mark.parametrize("address", ["nowhere", "127.0.0.1:x", "127.0.0.1:99999"])
def test_bad_addresses_are_one_line(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["health", "store", "--address", address]) == 2
    assert capsys.readouterr().err.count("\n") == 1


class Busy:
    """A role that ends by itself once it was seen to be well."""

    def __init__(self) -> None:
        self.broken: BaseException | None = None

    async def start(self) -> str:
        return "serving"

    async def stop(self) -> None:
        return

    def failure(self) -> BaseException | None:
        return self.broken

    def unwell(self) -> str:
        return "no leader is known"


def test_a_taken_port_is_an_error_only_where_it_was_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(SetupError, match="in use; name another with --healthz"):
            run_role("scheduler", Busy, ProcessOptions(False, address, True))

        def make() -> Busy:
            role = Busy()
            role.broken = SetupError("gone")
            return role

        with pytest.raises(Exception, match="ended unexpectedly: gone"):
            run_role("scheduler", make, ProcessOptions(False, address))
    assert "`minikube-py health scheduler` will not work" in capsys.readouterr().err


def test_it_asks_without_what_takes_long_to_import() -> None:
    script = "import sys, minikube_py.cli.main as m; m.main(['health', 'store', '--address', 'x']); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert not {"aiohttp", "asyncio", "numpy", "ssl", "cryptography", "msgpack", "yaml"} & set(done.stdout.split())


async def test_what_does_not_know_in_time_is_not_ready_but_alive() -> None:
    asked_of = asyncio.Event()

    async def hangs() -> str:
        asked_of.set()
        await asyncio.Event().wait()
        return ""

    assert READY_S == 2.0
    assert await within(hangs, "it does not know", 0.01) == "it does not know within 0.01 s"
    assert asked_of.is_set()
    checks = {"ping": well, "etcd": lambda: within(hangs, "no answer", 0.01)}
    assert await all_of("readyz", checks) == (500, "[+]ping ok\n[-]etcd failed: reason withheld\nreadyz check failed\n")
    assert await all_of("readyz", checks, ["etcd"]) == (200, "ok")
    assert await one(checks["etcd"]) == (500, "internal server error: no answer within 0.01 s\n")
    status, text = await all_of("readyz", checks, ["etcd", "nothing"], verbose=True)
    warning = 'warn: some health checks cannot be excluded: no matches for "nothing"'
    assert (status, text) == (200, f"[+]ping ok\n[+]etcd excluded: ok\n{warning}\nreadyz check passed\n")


@pytest.mark.parametrize("path", ["/livez", "/livez/ping"])
async def test_alive_is_who_answers(path: str) -> None:
    async def unready() -> str:
        return "no quorum"

    health = Healthz("127.0.0.1", 0, "store", unready)
    assert (await health.answer(f"GET {path} HTTP/1.1".encode())).endswith(b"\r\n\r\nok\n")
    answer = await health.answer(b"GET /readyz/store HTTP/1.1")
    assert b"500" in answer and answer.endswith(b"internal server error: no quorum\n")

"""A role's word on how it is, and `minikube-py health`, which asks for it."""

import asyncio
import socket
import subprocess
import sys

import pytest

from minikube_py.cli import main as cli
from minikube_py.cli.health import NotWell, ask
from minikube_py.control_plane.errors import SetupError
from minikube_py.control_plane.healthz import Healthz
from minikube_py.control_plane.process import ProcessOptions, run_role


async def asked(port: int, timeout_s: float = 5.0) -> str:
    return await asyncio.to_thread(ask, f"127.0.0.1:{port}", timeout_s)


async def test_it_says_how_the_role_is() -> None:
    state = "it is starting"
    health = Healthz("127.0.0.1", 0, lambda: state)
    await health.start()
    try:
        with pytest.raises(NotWell, match="it is starting"):
            await asked(health.port)
        state = ""
        assert await asked(health.port) == "ok"
        port = health.port
    finally:
        await health.stop()
    with pytest.raises(NotWell, match=r"connection refused; does it run, and with --healthz there\?"):
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
    health = Healthz("127.0.0.1", 0, lambda: "")
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
    assert health.connections == 0


def test_one_that_listens_and_says_nothing_is_not_well() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(NotWell, match="no answer in time"):
        ask(f"127.0.0.1:{silent.getsockname()[1]}", 0.05)


@pytest.mark.parametrize("address", ["nowhere", "127.0.0.1:x", "127.0.0.1:99999"])
def test_bad_addresses_are_one_line(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["health", "store", "--address", address]) == 1
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

        with pytest.raises(Exception, match="ended by itself: gone"):
            run_role("scheduler", make, ProcessOptions(False, address))
    assert "`minikube-py health scheduler` will not do" in capsys.readouterr().err


def test_it_asks_without_what_takes_long_to_import() -> None:
    script = "import sys, minikube_py.cli.main as m; m.main(['health', 'store', '--address', 'x']); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert not {"aiohttp", "asyncio", "numpy", "ssl", "cryptography", "msgpack", "yaml"} & set(done.stdout.split())

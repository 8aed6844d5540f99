"""Roles as processes: they say when they are ready, end in order, and come back when they die."""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from patience import PATIENCE_S

from minikube_py.control_plane.certificates import ensure_certificates
from minikube_py.control_plane.errors import RoleFailed
from minikube_py.control_plane.private_files import write_private
from minikube_py.control_plane.supervisor import Child
from minikube_py.control_plane.tls import client_context
from minikube_py.env import Rng, SystemClock
from minikube_py.mvcc.types import Put
from minikube_py.store.client import StoreClient
from minikube_py.store.client_connection import Endpoint

TOKEN = "a-token-of-enough-length"


class StoreFiles:
    """What a store process needs, in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.certificates = ensure_certificates(folder / "pki")
        self.token_file = folder / "token"
        write_private(self.token_file, f"{TOKEN}\n".encode())

    def flags(self, listen: str = "127.0.0.1:0", name: str = "member") -> list[str]:
        certificates = self.certificates
        return [
            *("--data-dir", str(self.folder / name), "--listen", listen, "--token-file", str(self.token_file)),
            *("--tls-cert-file", str(certificates.server_file)),
            *("--tls-private-key-file", str(certificates.server_key_file)),
            *("--healthz", "none"),
        ]

    async def client(self, where: str) -> StoreClient:
        host, _, port = where.rpartition(":")
        endpoint = Endpoint(host, int(port), TOKEN, client_context(self.certificates.authority_pem))
        client = StoreClient(endpoint, SystemClock(), Rng(1))
        await client.start()
        return client


@pytest.fixture
def store(tmp_path: Path) -> StoreFiles:
    return StoreFiles(tmp_path)


@contextlib.asynccontextmanager
async def running(child: Child) -> AsyncIterator[str]:
    try:
        yield await child.start()
    finally:
        await child.stop()


async def test_a_child_that_is_killed_comes_back_with_what_was_acknowledged(store: StoreFiles) -> None:
    said: list[str] = []
    back = asyncio.Event()

    def say(text: str) -> None:
        said.append(text)
        if "is back" in text:
            back.set()

    child = Child("store", lambda: store.flags(child.where or "127.0.0.1:0"), store.folder / "store.log", SystemClock())
    async with running(child) as where:
        child.keep(say)
        client = await store.client(where)
        await client.txn((), [Put(b"key", b"value")])
        await client.close()
        first = child.pid
        assert first is not None
        os.kill(first, signal.SIGKILL)
        await asyncio.wait_for(back.wait(), PATIENCE_S)
        assert child.pid != first
        assert child.where == where, "it comes back where its clients look for it"
        client = await store.client(child.where)
        found, _ = await client.get(b"key")
        await client.close()
        assert found is not None and found.value == b"value"
    assert "ended by signal 9" in said[0]


async def test_a_child_that_cannot_start_says_why_in_one_line(store: StoreFiles) -> None:
    child = Child("store", lambda: store.flags("127.0.0.1:0"), store.folder / "store.log", SystemClock())
    second = Child("store", lambda: store.flags("127.0.0.1:0"), store.folder / "second.log", SystemClock())
    async with running(child):
        with pytest.raises(RoleFailed, match=f"in use by process {child.pid}"):
            await second.start()


async def test_no_child_outlives_its_parent(store: StoreFiles) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "minikube_py", "store", "--with-parent", *store.flags()),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None and process.stdout is not None
    assert (await process.stdout.readline()).startswith(b"ready 127.0.0.1:")
    process.stdin.close()
    assert await asyncio.wait_for(process.wait(), PATIENCE_S) == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_signal_ends_it_in_order(store: StoreFiles, number: signal.Signals) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "minikube_py", "store", *store.flags()),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    await process.stdout.readline()
    process.send_signal(number)
    _, errors = await asyncio.wait_for(process.communicate(), PATIENCE_S)
    assert (process.returncode, errors) == (0, b"")


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        pytest.param({"--token-file": "/nowhere"}, "cannot read the token file /nowhere", id="token file absent"),
        pytest.param({"--token-file": "/no/where"}, "`minikube-py init-secrets --dir D` makes", id="no folder"),
        pytest.param({"--listen": "nonsense"}, "--listen: nonsense: not an address", id="bad address"),
        pytest.param({"--tls-cert-file": __file__}, "are not a certificate and its key", id="bad certificate"),
        pytest.param({"--tls-cert-file": "/dev/null"}, "/dev/null: not a regular file", id="a device"),
        pytest.param({"--data-dir": "/dev/null/x"}, "cannot be used as data directory", id="bad folder"),
    ],
)
async def test_bad_flags_are_one_line(store: StoreFiles, flags: dict[str, str], text: str) -> None:
    arguments = store.flags()
    for flag, value in flags.items():
        arguments[arguments.index(flag) + 1] = value
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "minikube_py", "store", *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    _, errors = await asyncio.wait_for(process.communicate(), PATIENCE_S)
    assert process.returncode == (2 if "--listen" in flags else 1)
    assert text in errors.decode() and errors.count(b"\n") == 1

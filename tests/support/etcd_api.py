"""A test client of etcd's API, for ours and a real etcd: any method over gRPC, with responses as plain data."""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import random
import signal
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import grpc
from needs import etcd_binary, original_program
from patience import PATIENCE_S, Deadline
from ports import free_ports

from minikube_py.env import SystemClock, SystemDisk
from minikube_py.etcd.grpc_server import Limits
from minikube_py.etcd.http import HttpDoor, HttpLimits
from minikube_py.etcd.messages import BY_NAME, WHOLE_BY_NAME
from minikube_py.etcd.node import Node
from minikube_py.etcd.schema import Method, methods
from minikube_py.etcd.server import EtcdServer
from minikube_py.store.member import StoreMember
from minikube_py.store.member_config import MemberConfig

METHODS: dict[str, Method] = {f"{each.service.rpartition('.')[2]}/{each.name}": each for each in methods()}
OPTIONS = (("grpc.max_receive_message_length", -1), ("grpc.enable_retries", 0))
Answer = tuple[str, Any]


def plain(message: Any) -> dict[str, Any]:
    """Integers and bytes unchanged; unset fields are omitted."""
    found = {}
    for field, value in message.ListFields():
        if field.name == "response_txn":
            found[field.name] = plain(BY_NAME["TxnResponse"].FromString(value))
        elif field.message_type is None:
            found[field.name] = list(value) if field.is_repeated else value
        elif field.is_repeated:
            found[field.name] = [plain(each) for each in value]
        else:
            found[field.name] = plain(value)
    return found


def whole(message: Any) -> Any:
    """With nested txns as messages instead of bytes."""
    return WHOLE_BY_NAME[message.DESCRIPTOR.name].FromString(message.SerializeToString())


class Caller:
    """One connection. Responses are ("ok", data) or (gRPC's code, text)."""

    def __init__(self, target: str, credentials: Any = None, unshared: str = "") -> None:
        """`unshared`: uses a separate connection, not shared with others to the same address."""
        self.target = target
        options = (*OPTIONS, ("minikube.unshared", unshared))
        self._channel = (
            grpc.insecure_channel(target, options)
            if credentials is None
            else grpc.secure_channel(target, credentials, options)
        )

    def close(self) -> None:
        self._channel.close()

    def method(self, name: str, wrap: str) -> Any:
        found = METHODS[name]
        return getattr(self._channel, wrap)(
            f"/{found.service}/{found.name}",
            request_serializer=lambda request: request.SerializeToString(),
            response_deserializer=BY_NAME[found.response].FromString,
        )

    def call(self, name: str, request: Any = None, metadata: Any = None) -> Answer:
        if request is None:
            request = BY_NAME[METHODS[name].request]()
        try:
            answer = self.method(name, "unary_unary")(request, timeout=PATIENCE_S, metadata=metadata)
        except grpc.RpcError as error:
            return error.code().name, error.details()
        return "ok", plain(answer)

    def raw(self, path: str, data: bytes, *, stream: bool = False) -> tuple[str, str]:
        """Any bytes to any path; error messages of Go's protobuf vary in their kind of blank."""
        wrap = self._channel.stream_stream if stream else self._channel.unary_unary
        method = wrap(path, request_serializer=bytes, response_deserializer=bytes)
        try:
            list(method(iter([data]), timeout=PATIENCE_S)) if stream else method(data, timeout=PATIENCE_S)
        except grpc.RpcError as error:
            return error.code().name, error.details().replace("\xa0", " ")
        return "ok", ""

    def parts(self, name: str, request: Any) -> Answer:
        try:
            return "ok", [plain(each) for each in self.method(name, "unary_stream")(request, timeout=PATIENCE_S)]
        except grpc.RpcError as error:
            return error.code().name, error.details()

    def stream(self, name: str, metadata: Any = None) -> Stream:
        return Stream(self.method(name, "stream_stream"), metadata)


class Stream:
    """Requests are sent immediately; responses wait in `next`."""

    def __init__(self, method: Any, metadata: Any = None) -> None:
        self._requests: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.created = 0
        self._call = method(iter(self._requests.get, None), metadata=metadata)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        try:
            for each in self._call:
                self._answers.put(found := plain(each))
                self.created += bool(found.get("created"))
            self._answers.put(("ok", "ended"))
        except grpc.RpcError as error:
            self._answers.put((error.code().name, error.details()))

    def send(self, request: Any) -> None:
        self._requests.put(request)

    def next(self, within_s: float = PATIENCE_S) -> Any:
        """Raises: queue.Empty."""
        return self._answers.get(timeout=within_s)

    def until(self, condition: Callable[[Any], bool]) -> list[Any]:
        """Responses up to and including the first that satisfies the condition."""
        found = [self.next()]
        while not condition(found[-1]):
            found.append(self.next())
        return found

    def close(self) -> None:
        self._requests.put(None)
        self._call.cancel()
        self._reader.join(PATIENCE_S)


class Ours(EtcdServer):
    http_port = 0
    door: HttpDoor


@contextlib.contextmanager
def ours(
    folder: Path,
    limits: Limits | None = None,
    *,
    http: bool | HttpLimits = False,
    config: MemberConfig | None = None,
    tls: ssl.SSLContext | None = None,
    http_tls: ssl.SSLContext | None = None,
) -> Iterator[Ours]:
    """A single member that serves etcd's API from a loop in a separate thread; with `http`, also over HTTP."""
    started: queue.SimpleQueue[Any] = queue.SimpleQueue()

    async def serve() -> None:
        member = StoreMember(SystemDisk(folder), SystemClock(), random.Random(), config or MemberConfig(fsync="inline"))
        await member.start()
        server = Ours(Node(member), [("127.0.0.1", 0)], tls, limits)
        door = HttpDoor(server, ("127.0.0.1", 0), http_tls, http if isinstance(http, HttpLimits) else None)
        try:
            await server.start()
            if http:
                await door.start()
                server.http_port, server.door = door.port, door
            ending = asyncio.Event()
            started.put((server, partial(asyncio.get_running_loop().call_soon_threadsafe, ending.set)))
            await ending.wait()
        finally:
            if server.http_port:
                await door.stop()
            await server.stop()
            await member.stop()

    def run() -> None:
        try:
            asyncio.run(serve())
        except BaseException as error:
            started.put(error)
            raise

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    begun = started.get(timeout=PATIENCE_S)
    if isinstance(begun, BaseException):
        raise begun
    server, end = begun
    try:
        yield server
    finally:
        end()
        thread.join(PATIENCE_S)


class RealEtcd:
    """A single-member real etcd, always at the same addresses; `place`: where it serves."""

    def __init__(self, folder: Path, *flags: str, credentials: Any = None, peer_port: int = 0) -> None:
        """`credentials`: its clients', if `flags` make it serve TLS. `peer_port`: etcd derives its identity from it;
        0: any free one."""
        client, free = free_ports(2)
        self.folder, self.peer_port = folder, peer_port or free
        scheme = "http" if credentials is None else "https"
        urls = f"{scheme}://127.0.0.1:{client}", f"http://127.0.0.1:{self.peer_port}"
        self._credentials = credentials
        self.place = f"127.0.0.1:{client}"
        self._initial = [
            "--name", "one", "--data-dir", str(folder), "--initial-advertise-peer-urls", urls[1],
            "--initial-cluster", f"one={urls[1]}",
        ]  # fmt: skip
        self._command = [
            etcd_binary(), *self._initial, "--unsafe-no-fsync", "--log-level", "error",
            "--listen-client-urls", urls[0], "--advertise-client-urls", urls[0], "--listen-peer-urls", urls[1], *flags,
        ]  # fmt: skip
        self._process: subprocess.Popen[bytes] | None = None

    def restore(self, saved: Path, *flags: str) -> None:
        """Makes its folder from a snapshot."""
        command = [original_program("etcdutl"), "snapshot", "restore", saved, *self._initial, *flags]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        assert not done.returncode, done.stderr

    def start(self, *flags: str) -> None:
        """Returns once it serves; a learner refuses by a status of its own."""
        command = [*self._command, *flags]
        process = self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = Deadline()
        caller = Caller(self.place, self._credentials)
        while caller.call("KV/Range", BY_NAME["RangeRequest"](key=b"a"))[0] not in ("ok", "FAILED_PRECONDITION"):
            deadline.check("etcd serves")
            assert process.poll() is None
        caller.close()

    def send(self, number: int) -> None:
        """Once SIGSTOP was sent, returns when the process has stopped: until then it may still answer."""
        assert self._process is not None
        self._process.send_signal(number)
        if number == signal.SIGSTOP:
            os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WNOWAIT)

    def end(self, number: int = signal.SIGTERM) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(PATIENCE_S)
            self._process = None


@contextlib.contextmanager
def real_etcd(folder: Path, *flags: str) -> Iterator[str]:
    """A single-member real etcd; yields its address."""
    etcd = RealEtcd(folder, *flags)
    try:
        etcd.start()
        yield etcd.place
    finally:
        etcd.end()

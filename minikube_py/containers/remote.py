"""Protocol negotiation of upgraded connections, and exec, attach and port-forward over them.

Source: k8s.io/cri-streaming (remotecommand, portforward), k8s.io/streaming (httpstream, wsstream), and the API server's
stream translator for v5.channel.k8s.io and SPDY in WebSocket messages.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import struct
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

import orjson

from minikube_py.containers.channels import Channel, Duplex, NumberedChannels, SpdyChannels, Unread, WebSocket
from minikube_py.containers.process import nothing
from minikube_py.containers.runtime import NotThere, Streams
from minikube_py.containers.spdy import STREAMS_MAX, Malformed
from minikube_py.env import ended

STREAMS_TIMEOUT_S: Final = 30.0
"""As upstream: the timeout for a client to open its streams."""
PORTS_MAX: Final = 32
"""Of a WebSocket with numbered channels, two for each port."""
_COMMAND: Final = ("v4.channel.k8s.io", "v3.channel.k8s.io", "v2.channel.k8s.io", "channel.k8s.io")
_COMMAND_SOCKET: Final = (
    "v5.channel.k8s.io", "v4.channel.k8s.io", "v4.base64.channel.k8s.io", "channel.k8s.io", "base64.channel.k8s.io", "",
)  # fmt: skip
_FORWARD: Final = ("portforward.k8s.io",)
_FORWARD_TUNNEL: Final = "SPDY/3.1+portforward.k8s.io"
_FORWARD_SOCKET: Final = (_FORWARD_TUNNEL, "v4.channel.k8s.io", "v4.base64.channel.k8s.io", "")
_VERSION: Final = "X-Stream-Protocol-Version"
_ACCEPTED: Final = "X-Accepted-Stream-Protocol-Versions"
_SOCKET_SALT: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_NAMES: Final = ("stdin", "stdout", "stderr", "error", "resize")

Run = Callable[[Streams], Awaitable[int]]
Dial = Callable[[int, Callable[[], Awaitable[bytes]], Callable[[bytes], Awaitable[None]]], Awaitable[None]]
Sleep = Callable[[float], Awaitable[None]]


class Refused(Exception):
    """No upgrade; `str` is the response."""

    def __init__(self, status: int, text: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(text)
        self.status = status
        self.headers = headers or {}


class Upgrade(NamedTuple):
    """`headers` of the answer 101; then `serve` has the connection until it returns."""

    headers: Mapping[str, str]
    serve: Callable[[Duplex], Awaitable[object]]


class Wanted(NamedTuple):
    """The requested streams."""

    stdin: bool
    stdout: bool
    stderr: bool
    tty: bool


class Asked(NamedTuple):
    """A request's upgrade headers: all values of each."""

    connection: Sequence[str]
    upgrade: str
    versions: Sequence[str]
    socket_key: str
    socket_version: str
    socket_protocols: Sequence[str]

    @property
    def upgrades(self) -> bool:
        return any("upgrade" in each.lower() for each in self.connection)

    @property
    def is_socket(self) -> bool:
        return self.upgrades and self.upgrade.lower() == "websocket"


def asked_of(values: Callable[[str], list[str]]) -> Asked:
    """`values(name)` gives all values of a header, the name in lower case."""

    def first(name: str) -> str:
        return next(iter(values(name)), "")

    protocols = [part.strip() for each in values("sec-websocket-protocol") for part in each.split(",")]
    versions = [part.strip() for each in values(_VERSION.lower()) for part in each.split(",")]
    return Asked(
        values("connection"), first("upgrade"), [each for each in versions if each], first("sec-websocket-key"),
        first("sec-websocket-version"), [each for each in protocols if each],
    )  # fmt: skip


# --- commands -------------------------------------------------------------------------------------------------------


def command(asked: Asked, wanted: Wanted, argv: Sequence[str], run: Run, sleep: Sleep) -> Upgrade:
    """An upgrade for exec or attach. Raises: Refused."""
    if asked.is_socket:
        protocol, headers = socket_of(asked, _COMMAND_SOCKET)
        coded = "base64" in protocol

        async def serve(duplex: Duplex) -> None:
            numbered = NumberedChannels(duplex, 5, coded=coded, closes=protocol.startswith("v5"))
            channels = dict(zip(_NAMES, numbered.channels))
            # Confirms the connection to the client.
            first = "stdout" if wanted.stdout else "stderr" if wanted.stderr else "error"
            await channels[first].write(b"")
            await while_connected(numbered, _command(channels, wanted, argv, run, protocol))

        return Upgrade(headers, serve)
    version, headers = _spdy(asked, _COMMAND)

    async def serve_spdy(duplex: Duplex) -> None:
        streams = SpdyChannels(duplex)
        count = 1 + wanted.stdin + wanted.stdout + wanted.stderr + (wanted.tty and version[:2] in ("v3", "v4"))

        async def work() -> None:
            channels = await _opened(streams, count, sleep)
            if channels is not None:
                await _command(channels, wanted, argv, run, version)

        await while_connected(streams, work())

    return Upgrade(headers, serve_spdy)


async def _opened(streams: SpdyChannels, count: int, sleep: Sleep) -> dict[str, Channel] | None:
    """The requested streams by type; None on a timeout."""
    found: dict[str, Channel] = {}

    async def collect() -> None:
        while len(found) < count and (channel := await streams.opened.get()) is not None:
            found[channel.headers.get("streamtype", "")] = channel

    collecting = asyncio.ensure_future(collect())
    late = asyncio.ensure_future(sleep(STREAMS_TIMEOUT_S))
    await asyncio.wait((collecting, late), return_when=asyncio.FIRST_COMPLETED)
    for each in (collecting, late):
        each.cancel()
    return found if len(found) == count and "error" in found else None


async def _command(
    channels: Mapping[str, Channel], wanted: Wanted, argv: Sequence[str], run: Run, protocol: str
) -> None:
    async def dropped(data: bytes) -> None:
        pass

    for name, channel in channels.items():
        if name != "stdin" or not wanted.stdin:
            channel.close(dropping=True)
    read = channels["stdin"].read if wanted.stdin and "stdin" in channels else nothing
    out = channels["stdout"].write if wanted.stdout and "stdout" in channels else dropped
    err = channels["stderr"].write if wanted.stderr and "stderr" in channels else out if wanted.tty else dropped
    try:
        code = await run(Streams(read, out, err, wanted.tty))
        status = _status(code, argv)
    except NotThere as error:
        message = f"Internal error occurred: {error}"
        status = {"metadata": {}, "status": "Failure", "message": message, "reason": "InternalError",
                  "details": {"causes": [{"message": str(error)}]}, "code": 500}  # fmt: skip
    if protocol[:2] in ("v4", "v5"):
        await channels["error"].write(orjson.dumps(status))
    elif status["status"] != "Success":
        await channels["error"].write(str(status["message"]).encode())
    for channel in channels.values():
        await channel.end()


def _status(code: int, argv: Sequence[str]) -> dict[str, Any]:
    if not code:
        return {"metadata": {}, "status": "Success"}
    what = f"error executing command [{' '.join(argv)}], exit code {code}"
    message = f"command terminated with non-zero exit code: {what}"
    return {"metadata": {}, "status": "Failure", "message": message, "reason": "NonZeroExitCode",
            "details": {"causes": [{"reason": "ExitCode", "message": str(code)}]}}  # fmt: skip


# --- ports ----------------------------------------------------------------------------------------------------------


def forward(asked: Asked, ports: Sequence[int], pod: str, uid: str, dial: Dial) -> Upgrade:
    """An upgrade for port-forward. `ports` are those of a WebSocket's query. Raises: Refused."""
    if not asked.is_socket:
        _, headers = _spdy(asked, _FORWARD)
        return Upgrade(headers, lambda duplex: _forward_spdy(duplex, pod, uid, dial))
    tunnels = _FORWARD_TUNNEL in asked.socket_protocols
    if not tunnels and not (ports and all(ports)):
        raise Refused(400, 'query parameter "port" is required' if not ports else 'port "0" must be > 0')
    if not tunnels and len(ports) > PORTS_MAX:
        raise Refused(400, f"more than {PORTS_MAX} ports were asked for, which is the limit")
    protocol, headers = socket_of(asked, _FORWARD_SOCKET)

    async def serve(duplex: Duplex) -> None:
        if tunnels:
            socket = WebSocket(duplex)
            wrong = await _forward_spdy(socket, pod, uid, dial, socket.unread)
            with suppress(ConnectionError):
                await socket.finish(wrong)
            return
        numbered = NumberedChannels(duplex, 2 * len(ports), coded="base64" in protocol)
        for channel, number in zip(numbered.channels, (port for each in ports for port in (each, each))):
            await channel.write(struct.pack("<H", number))
        pairs = [
            _forward_one(numbered.channels[2 * at], numbered.channels[2 * at + 1], port, pod, uid, dial)
            for at, port in enumerate(ports)
        ]
        await while_connected(numbered, _all(pairs))

    return Upgrade(headers, serve)


async def _forward_spdy(duplex: Duplex, pod: str, uid: str, dial: Dial, unread: Unread | None = None) -> str:
    """What the client did wrong, or ""."""
    streams = SpdyChannels(duplex, unread)

    async def work() -> None:
        waiting: dict[str, dict[str, Channel]] = {}
        async with asyncio.TaskGroup() as group:
            while (channel := await streams.opened.get()) is not None:
                port, kind = channel.headers.get("port", ""), channel.headers.get("streamtype", "")
                known = port.isascii() and port.isdigit() and 0 < len(port) < 6 and kind in ("error", "data")
                request = channel.headers.get("requestid", port)
                if not known or (request not in waiting and len(waiting) >= STREAMS_MAX):
                    await channel.end(reset=True)
                    continue
                pair = waiting.setdefault(request, {})
                pair[kind] = channel
                if len(pair) == 2:
                    del waiting[request]
                    group.create_task(_forward_one(pair["data"], pair["error"], int(port), pod, uid, dial))

    return await while_connected(streams, work())


async def _forward_one(data: Channel, error: Channel, port: int, pod: str, uid: str, dial: Dial) -> None:
    error.close(dropping=True)
    with suppress(ConnectionError):
        try:
            await dial(port, data.read, data.write)
        except NotThere as refused:
            await error.write(f"error forwarding port {port} to pod {pod}, uid {uid}: {refused}".encode())
            await data.end(reset=True)
        await data.end()
        await error.end()


async def _all(parts: list[Coroutine[Any, Any, None]]) -> None:
    tasks = [asyncio.ensure_future(part) for part in parts]
    try:
        await asyncio.wait(tasks)
    finally:
        await _end(tasks)


async def _end(tasks: Sequence[asyncio.Future[None]]) -> None:
    """Cancels running tasks. Raises only errors that are bugs here."""
    for each in tasks:
        each.cancel()
    await ended(*tasks)
    for each in tasks:
        error = None if each.cancelled() else each.exception()
        if error is not None and not isinstance(error, (ConnectionError, Malformed)):
            raise error


# --- connections ----------------------------------------------------------------------------------------------------


async def while_connected(streams: SpdyChannels | NumberedChannels | WebSocket, work: Coroutine[Any, Any, None]) -> str:
    """Runs until done, disconnected, or a protocol error, which it returns."""
    tasks = [asyncio.ensure_future(streams.pump()), asyncio.ensure_future(work)]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        failed = tasks[0].exception() if tasks[0].done() and not tasks[0].cancelled() else None
        wrong = str(failed) if isinstance(failed, Malformed) else ""
        with suppress(ConnectionError):
            await streams.finish(wrong)
        return wrong
    finally:
        try:
            await _end(tasks)
        finally:
            streams.drop()


def _spdy(asked: Asked, served: Sequence[str]) -> tuple[str, dict[str, str]]:
    """Raises: Refused."""
    if not asked.versions:
        raise Refused(400, f"unable to upgrade: header {_VERSION} does not exist in request")
    version = next((each for each in asked.versions if each in served), "")
    if not version:
        text = (
            f"unable to upgrade: unable to negotiate protocol: client supports [{' '.join(asked.versions)}], server "
            f"accepts [{' '.join(served)}]"
        )
        raise Refused(403, text, {_ACCEPTED: "\n".join(served)})
    if not asked.upgrades or "spdy/3.1" not in asked.upgrade.lower():
        raise Refused(400, "unable to upgrade: missing upgrade headers in request")
    return version, {"Connection": "Upgrade", "Upgrade": "SPDY/3.1", _VERSION: version}


def socket_of(asked: Asked, served: Sequence[str]) -> tuple[str, dict[str, str]]:
    """The first protocol that is served, and the headers that upgrade to it. Raises: Refused."""
    if asked.socket_version != "13" or not asked.socket_key:
        raise Refused(400, "not websocket protocol", {"Sec-WebSocket-Version": "13"})
    protocol = next((each for each in asked.socket_protocols or ("",) if each in served), None)
    if protocol is None:
        raise Refused(403, f"requested protocol(s) are not supported: [{' '.join(asked.socket_protocols)}]")
    accept = base64.b64encode(hashlib.sha1(asked.socket_key.encode() + _SOCKET_SALT).digest()).decode()
    headers = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Accept": accept}
    return protocol, headers | ({"Sec-WebSocket-Protocol": protocol} if protocol else {})

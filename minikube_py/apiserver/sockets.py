"""Watches and logs over WebSockets, as browsers read them: a text frame for each event, a frame for each part of a log.

Source: apiserver `pkg/endpoints/handlers/watch.go` (HandleWS), `handlers/responsewriters/writers.go` (StreamObject);
streaming `pkg/httpstream/wsstream/stream.go`; golang.org/x/net/websocket.
"""

from __future__ import annotations

import asyncio
import base64
import re
from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import partial
from typing import Final

from minikube_py.apiserver.http1 import Head
from minikube_py.apiserver.messages import TEXT, Response
from minikube_py.apiserver.watch_stream import Batch, Stream
from minikube_py.containers.channels import Duplex, WebSocket
from minikube_py.containers.remote import Asked, Refused, Upgrade, asked_of, socket_of, while_connected

_OF_LOGS: Final = ("", "binary.k8s.io", "base64.binary.k8s.io")
_URI: Final = re.compile(r"(?:/|[A-Za-z][A-Za-z0-9+.-]*:)[^\x00-\x20\x7f]*")
_PART_BYTES: Final = 2048
"""Of a log, in a frame."""
_EVENTS_BYTES: Final = 64 << 10
"""Of a watch, taken from its queue at once."""


def over(response: Response, head: Head) -> Response:
    """What answers a watch or sends a log, in frames if the request upgrades to a WebSocket."""
    asked = asked_of(head.values)
    if not asked.is_socket or response.status != 200:
        return response
    stream = response.stream
    try:
        protocol, headers = _of_watch(asked, head) if stream is not None else socket_of(asked, _OF_LOGS)
    except Refused as refused:
        if stream is not None:
            stream.close()
        return Response(refused.status, str(refused).encode(), TEXT, refused.headers)
    carried = Response(101)
    serve = partial(_watch, stream) if stream is not None else partial(_log, response, "base64" in protocol)
    carried.upgrade = Upgrade(headers, serve)
    return carried


def _of_watch(asked: Asked, head: Head) -> tuple[str, dict[str, str]]:
    """Of a watch, the protocol is echoed and means nothing; a page's origin must be said. Raises: Refused."""
    socket_of(asked._replace(socket_protocols=()), ("",))
    if not _URI.fullmatch(head.headers.get("origin") or ""):
        raise Refused(403, "")
    if len(asked.socket_protocols) > 1:
        raise Refused(400, "")
    return socket_of(asked, asked.socket_protocols or ("",))


async def _watch(stream: Stream, duplex: Duplex) -> None:
    socket, task = WebSocket(duplex, text=True), asyncio.current_task()
    assert task is not None
    stream.on_cut = partial(_cancel, task)

    async def send() -> None:
        while batches := await stream.next(_EVENTS_BYTES):
            for event in [event for batch in batches for event in batch.events]:
                await socket.write(Batch([event]).lines())
            if stream.starting:
                await asyncio.sleep(0)

    try:
        await while_connected(socket, send())
    finally:
        stream.on_cut = None
        stream.close()


def _cancel(task: asyncio.Task[object]) -> None:
    task.cancel()


async def _log(response: Response, coded: bool, duplex: Duplex) -> None:
    socket = WebSocket(duplex, text=coded)

    async def send() -> None:
        await socket.write(b"")
        async with aclosing(response.text or _whole(response.body)) as parts:
            async for part in parts:
                for at in range(0, len(part), _PART_BYTES):
                    piece = part[at : at + _PART_BYTES]
                    await socket.write(base64.b64encode(piece) if coded else piece)

    await while_connected(socket, send())


async def _whole(body: bytes) -> AsyncGenerator[bytes, None]:
    yield body

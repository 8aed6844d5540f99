"""A process that holds shards and answers for them over TCP, one client at a time: the far side of `RemoteShards`.

A message is four bytes of length (big endian) and as many of msgpack: a request is [operation, arguments...], answered
in turn. Arrays travel as little-endian int64. It listens on this machine alone, prints "host port", and ends when its
standard input does.

    python -m minikube_py.lab.shard_server
"""

from __future__ import annotations

import os
import selectors
import socket
import sys
from typing import Any, Final

import msgpack
import numpy as np

from minikube_py.index.structure import Box, IntArray
from minikube_py.index.structures.shard_reader import MemoryShards

MESSAGE_LIMIT_BYTES: Final = 1 << 28


def bytes_of(array: IntArray) -> bytes:
    return np.ascontiguousarray(array, dtype="<i8").tobytes()


def arrays_of(slots: bytes, points: bytes, dimensions: int) -> tuple[IntArray, IntArray]:
    """Slots, and points of one row each."""
    return np.frombuffer(slots, dtype="<i8"), np.frombuffer(points, dtype="<i8").reshape(-1, dimensions)


def send(connection: socket.socket, message: Any) -> None:
    """Raises: OSError."""
    body: bytes = msgpack.packb(message)
    connection.sendall(len(body).to_bytes(4, "big") + body)


def receive(connection: socket.socket) -> Any:
    """The next message; None where the connection was closed before it.

    Raises: OSError, also for a message over MESSAGE_LIMIT_BYTES."""
    header = _exactly(connection, 4)
    if header is None:
        return None
    size_bytes = int.from_bytes(header, "big")
    if size_bytes > MESSAGE_LIMIT_BYTES:
        raise OSError(f"a message of {size_bytes} bytes is over the limit of {MESSAGE_LIMIT_BYTES}")
    body = _exactly(connection, size_bytes)
    return None if body is None else msgpack.unpackb(body, max_bin_len=MESSAGE_LIMIT_BYTES)


def _exactly(connection: socket.socket, size_bytes: int) -> bytes | None:
    parts: list[bytes] = []
    while size_bytes:
        part = connection.recv(min(size_bytes, 1 << 20))
        if not part:
            return None
        parts.append(part)
        size_bytes -= len(part)
    return b"".join(parts)


class ShardServer:
    """The shards of one client after the other; each `begin` empties them."""

    def __init__(self) -> None:
        self._dimensions = 1
        self._shards = MemoryShards(1)

    def answer(self, operation: str, *arguments: Any) -> Any:
        shards = self._shards
        if operation == "begin":
            (self._dimensions,) = arguments
            self._shards = MemoryShards(self._dimensions)
        elif operation == "find":
            shard, lows, highs, limit = arguments
            read = shards.find(shard, Box(tuple(lows), tuple(highs)), limit)
            return bytes_of(read.slots), read.examined, read.complete
        elif operation == "put":
            shard, slot, point = arguments
            shards.put(shard, slot, tuple(point))
        elif operation == "remove":
            shards.remove(*arguments)
        elif operation == "point":
            return shards.point(*arguments)
        elif operation == "fill":
            shard, slots, points = arguments
            shards.fill(shard, *arrays_of(slots, points, self._dimensions))
        elif operation == "contents":
            slots, points = shards.contents(*arguments)
            return bytes_of(slots), bytes_of(points)
        else:
            raise ValueError(f'no operation "{operation}"')
        return True


def serve(connection: socket.socket, server: ShardServer) -> bool:
    """Answers one request; False where there is none and the connection has to be closed."""
    try:
        request = receive(connection)
        if request is None:
            return False
        send(connection, server.answer(*request))
    except (OSError, ValueError, TypeError, KeyError) as error:
        print(f"shard server: the connection is closed: {error!r}", file=sys.stderr)
        return False
    return True


def main() -> int:
    server = ShardServer()
    selector = selectors.DefaultSelector()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        host, port = listener.getsockname()
        print(host, port, flush=True)
        stdin = sys.stdin.fileno()
        selector.register(stdin, selectors.EVENT_READ, None)
        selector.register(listener, selectors.EVENT_READ, None)
        client: socket.socket | None = None
        while True:
            for key, _ in selector.select():
                if key.fd == stdin:
                    if not os.read(stdin, 4096):
                        return 0
                elif key.fileobj is listener:
                    accepted, _address = listener.accept()
                    if client is not None:
                        selector.unregister(client)
                        client.close()
                    client = accepted
                    client.settimeout(30)
                    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    selector.register(client, selectors.EVENT_READ, None)
                elif client is not None and key.fileobj is client and not serve(client, server):
                    selector.unregister(client)
                    client.close()
                    client = None


if __name__ == "__main__":
    sys.exit(main())

"""Servers on a simulated container's declared ports: HTTP gets a line of text, anything else is echoed."""

from __future__ import annotations

import re
from typing import Any, Final

from minikube_py.containers.process import Read, Write
from minikube_py.containers.runtime import NotThere
from minikube_py.env import turns

_HEAD_BYTES_MAX: Final = 16 << 10
REQUEST_STEPS: Final = 50
_REQUEST: Final = re.compile(rb"([A-Z]+) (\S+) HTTP/1\.[01]\r\n")
_LENGTH: Final = re.compile(rb"\r\ncontent-length: *([0-9]{1,9})\r\n", re.IGNORECASE)
_CLOSES: Final = re.compile(rb"\r\nconnection: *close\r\n", re.IGNORECASE)


def container_of(pod: dict[str, Any], port: int) -> str:
    """The container that declares this TCP port. Raises: NotThere, as when nothing listens."""
    for container in pod["spec"].get("containers") or ():
        for each in container.get("ports") or ():
            if each.get("containerPort") == port and each.get("protocol", "TCP") == "TCP":
                return str(container["name"])
    raise NotThere(
        "failed to execute portforward in network namespace: failed to connect to localhost:"
        f"{port} inside namespace: dial tcp4 127.0.0.1:{port}: connect: connection refused"
    )


def page(pod: dict[str, Any], port: int, method: str, path: str) -> bytes:
    """The body of an HTTP response. Raises: NotThere."""
    metadata = pod["metadata"]
    name = container_of(pod, port)
    return f"pod {metadata['namespace']}/{metadata['name']}, container {name}, port {port}: {method} {path}\n".encode()


async def serve(pod: dict[str, Any], port: int, read: Read, write: Write) -> None:
    """One connection to a port. Raises: NotThere, ConnectionError."""
    container_of(pod, port)
    buffer = await read()
    if buffer and _REQUEST.match(buffer) is None and not buffer[:1].isupper():
        while buffer:
            await write(buffer)
            buffer = await read()
        return
    while buffer:
        while b"\r\n\r\n" not in buffer and len(buffer) <= _HEAD_BYTES_MAX and (part := await read()):
            buffer += part
        head, found, buffer = buffer.partition(b"\r\n\r\n")
        match = _REQUEST.match(head + b"\r\n")
        if not found or match is None:
            await write(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
            return
        length = _LENGTH.search(head + b"\r\n")
        left = int(length[1]) if length is not None else 0
        while left > len(buffer) and (part := await read()):
            left -= len(buffer)
            buffer = part
        buffer = buffer[left:]
        body = page(pod, port, match[1].decode(), match[2].decode("latin-1"))
        answer = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n" % len(body)
        await write(answer + (b"" if match[1] == b"HEAD" else body))
        if _CLOSES.search(head + b"\r\n"):
            return
        # Many requests may have arrived at once.
        await turns().next(REQUEST_STEPS)
        buffer = buffer or await read()

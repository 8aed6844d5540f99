"""A worker process: reads jobs from the socket on standard input, runs them, and writes the results.

It ends with the server, after idling for a while, or killed because a job took too long. A frame is its length in eight
bytes and a pickle; both ends are this project's, on one socket pair.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import pickle
import resource
import signal
import socket
import struct
from typing import Any, Final

IDLE_S: Final = 60.0
MEMORY_BYTES_MAX: Final = 2 << 30
"""Address space; a job that exceeds it fails alone."""
NICE: Final = 5
"""Small requests have priority over large ones."""
FRAME: Final = struct.Struct(">Q")


def main() -> None:
    # Ctrl-C is for the server, which ends its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    importlib.import_module("minikube_py.apiserver.preparing")
    limit = resource.RLIMIT_AS
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(limit, (MEMORY_BYTES_MAX, resource.getrlimit(limit)[1]))
    with contextlib.suppress(OSError):
        os.nice(NICE)
    with socket.socket(fileno=0) as server:
        server.settimeout(IDLE_S)
        with contextlib.suppress(OSError, EOFError):
            while True:
                _serve(server)


def _serve(server: socket.socket) -> None:
    job, given = pickle.loads(_read(server))
    server.settimeout(None)
    answer = pickle.dumps(_done(job, given), 5)
    server.sendall(FRAME.pack(len(answer)) + answer)
    server.settimeout(IDLE_S)


def _done(job: str, given: tuple[Any, ...]) -> tuple[bool, Any]:
    """(True, result) or (False, what was raised)."""
    from minikube_py.api.errors import StatusError, request_entity_too_large, shortened
    from minikube_py.api.registry import REGISTRY
    from minikube_py.apiserver.preparing import JOBS, Made

    try:
        result = JOBS[job](REGISTRY, *given)
        if isinstance(result, Made) and result.refusal is not None:
            shortened(result.refusal)
        return True, result
    except StatusError as error:
        return False, shortened(error)
    except (MemoryError, RecursionError) as error:
        limit = f"limit is {MEMORY_BYTES_MAX} bytes of memory" if isinstance(error, MemoryError) else "it is too deep"
        return False, request_entity_too_large(f"it cannot be worked on; {limit}")
    except Exception as error:
        return False, RuntimeError(f"{type(error).__name__}: {error}")


def _read(server: socket.socket) -> bytes:
    (size,) = FRAME.unpack(_exactly(server, FRAME.size))
    return _exactly(server, size)


def _exactly(server: socket.socket, size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        part = server.recv(min(size - len(parts), 1 << 20))
        if not part:
            raise EOFError
        parts += part
    return bytes(parts)


if __name__ == "__main__":
    main()

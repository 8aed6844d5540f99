"""Returns free memory to the system.

glibc keeps free memory between used blocks: 150 MB after 300 connections had ended. `malloc_trim` returns every free
page; it takes milliseconds, and other threads may run meanwhile."""

from __future__ import annotations

import ctypes
import sys
import threading
from asyncio.sslproto import SSLProtocol
from collections.abc import Callable
from typing import Final

TLS_BUFFER_BYTES: Final = 32 << 10


def _trimmer() -> Callable[[int], int] | None:
    if not sys.platform.startswith("linux"):
        return None
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):
        # Another C library keeps less, and has no such call.
        return None
    trim.argtypes, trim.restype = (ctypes.c_size_t,), ctypes.c_int
    found: Callable[[int], int] = trim
    return found


_trim = _trimmer()
_lock = threading.Lock()
_servers = 0
_size_before = 0


def shrink_tls_buffers() -> None:
    """asyncio reserves 256 KiB of receive buffer for each TLS connection, before it is authenticated, and fills it with
    zeros. Less is enough for two records. The attribute is undocumented and used only here; if it is missing,
    connections keep asyncio's size.

    It affects the whole process, which may have another owner: each call is undone by one of `restore_tls_buffers`."""
    global _servers, _size_before
    with _lock:
        _servers += 1
        size = getattr(SSLProtocol, "max_size", 0)
        if _servers == 1 and size > TLS_BUFFER_BYTES:
            _size_before = size
            SSLProtocol.max_size = TLS_BUFFER_BYTES  # type: ignore[misc]


def restore_tls_buffers() -> None:
    """With the last server, restores asyncio's size."""
    global _servers, _size_before
    with _lock:
        _servers -= 1
        if not _servers and _size_before:
            SSLProtocol.max_size, _size_before = _size_before, 0  # type: ignore[misc]


def give_back() -> None:
    """May be called in any thread."""
    if _trim is not None:
        _trim(0)

"""Memory that is free goes back to the system.

glibc keeps what lies between blocks that are still used: after 300 connections had ended, 150 MB. `malloc_trim` gives
back every free page; it takes milliseconds, and other threads may run meanwhile.
"""

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
    """asyncio sets 256 KiB aside for what each TLS connection receives, before anybody has said who they are, and fills
    it with zeros. Two records fit into less. The attribute is not documented: this is the only place that knows it, and
    where it is gone, connections are as large as asyncio makes them.

    Of the whole process, which may be somebody else's: each call is undone by one of `restore_tls_buffers`."""
    global _servers, _size_before
    with _lock:
        _servers += 1
        size = getattr(SSLProtocol, "max_size", 0)
        if _servers == 1 and size > TLS_BUFFER_BYTES:
            _size_before = size
            SSLProtocol.max_size = TLS_BUFFER_BYTES  # type: ignore[misc]


def restore_tls_buffers() -> None:
    """With the last server, asyncio's own size comes back."""
    global _servers, _size_before
    with _lock:
        _servers -= 1
        if not _servers and _size_before:
            SSLProtocol.max_size, _size_before = _size_before, 0  # type: ignore[misc]


def give_back() -> None:
    """May be called in any thread."""
    if _trim is not None:
        _trim(0)

"""Bodies that several informers of one process get, decoded once."""

from __future__ import annotations

from typing import Any, Final

import orjson

KEPT_BYTES_MAX: Final = 1 << 20


class Decoded:
    """Decodes JSON; the last bodies, up to `bytes_max`, are kept, and equal bytes give the same object. Callers must
    not modify it. Raises: JSONDecodeError."""

    def __init__(self, bytes_max: int = KEPT_BYTES_MAX) -> None:
        # Bytes remember their hash, so all askers but the first find them at once.
        self._kept: dict[bytes, Any] = {}
        self._bytes_max, self._bytes = bytes_max, 0

    def __call__(self, body: bytes) -> Any:
        if body in self._kept:
            return self._kept[body]
        self._kept[body] = obj = orjson.loads(body)
        self._bytes += len(body)
        while self._bytes > self._bytes_max:
            oldest = next(iter(self._kept))
            del self._kept[oldest]
            self._bytes -= len(oldest)
        return obj

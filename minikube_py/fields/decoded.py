"""Objects that are decoded once for all in this process who come with the same bytes at about the same time."""

from __future__ import annotations

from typing import Any, Final

import orjson

KEPT_MAX: Final = 256
"""About a megabyte of pods; as many as change in one turn."""


class Decoded:
    """By their bytes; forgets all when full. Nobody may change what it gives. `wanted`: somebody will `take`."""

    def __init__(self) -> None:
        self.wanted = False
        self._kept: dict[bytes, Any] = {}

    def keep(self, body: bytes, obj: Any) -> None:
        if len(self._kept) >= KEPT_MAX:
            self._kept.clear()
        self._kept[body] = obj

    def take(self, body: bytes) -> Any:
        """For the last who asks. Raises: orjson.JSONDecodeError."""
        found = self._kept.pop(body, None)
        return orjson.loads(body) if found is None else found

    def __call__(self, body: bytes) -> Any:
        """For one of several. Raises: orjson.JSONDecodeError."""
        found = self._kept.get(body)
        if found is None:
            self.keep(body, found := orjson.loads(body))
        return found


APPLIED: Final = Decoded()
"""Stored values, from the tables to who watches all keys."""
SHOWN: Final = Decoded()
"""What events hold that a server sends to watches in its own process."""

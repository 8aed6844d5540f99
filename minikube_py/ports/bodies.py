"""A limit shared by a port's requests."""

from __future__ import annotations


class Bodies:
    """The bytes of all bodies being received, up to a limit."""

    __slots__ = ("bytes_max", "held_bytes")

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.held_bytes = 0

    def hold(self, size_bytes: int) -> bool:
        """Whether this many more may be held."""
        if self.held_bytes + size_bytes > self.bytes_max:
            return False
        self.held_bytes += size_bytes
        return True

    def release(self, size_bytes: int) -> None:
        self.held_bytes -= size_bytes

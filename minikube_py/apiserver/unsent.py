"""Answers that their clients have not read: bounded in total, over all connections.

Beyond the limit, the user whose answers take most loses the connection that has waited longest, so that whoever does
not read cannot take others' answers with it.
"""

from __future__ import annotations

from collections import Counter
from typing import Generic, TypeVar

Reader = TypeVar("Reader")


class Unsent(Generic[Reader]):
    """`total_bytes`: of all readers that wait."""

    __slots__ = ("_by_reader", "_by_user", "_limit_bytes", "_of_user", "total_bytes")

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._by_reader: dict[Reader, tuple[str, int]] = {}
        self._by_user: Counter[str] = Counter()
        self._of_user: dict[str, dict[Reader, None]] = {}
        self.total_bytes = 0

    def hold(self, reader: Reader, user: str, size_bytes: int) -> Reader | None:
        """`reader` waits, with this much. Returns the reader to disconnect, if all together are too much."""
        self.let_go(reader)
        self._by_reader[reader] = user, size_bytes
        self._by_user[user] += size_bytes
        self._of_user.setdefault(user, {})[reader] = None
        self.total_bytes += size_bytes
        if self.total_bytes <= self._limit_bytes:
            return None
        largest = max(self._by_user, key=self._by_user.__getitem__)
        return next(iter(self._of_user[largest]))

    def let_go(self, reader: Reader) -> None:
        user, size_bytes = self._by_reader.pop(reader, ("", -1))
        if size_bytes < 0:
            return
        self.total_bytes -= size_bytes
        self._by_user[user] -= size_bytes
        readers = self._of_user[user]
        del readers[reader]
        if not readers:
            del self._of_user[user], self._by_user[user]

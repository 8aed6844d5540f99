"""Something scarce that users share, and who loses where there is too little of it.

Nobody has a fixed share. Where there is too little, the user who holds most loses, so that no user takes all of it from
the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Generic, TypeVar

Holder = TypeVar("Holder")


class Shares(Generic[Holder]):
    """`limit`, and the `total` of all holders: bytes, or how many there are."""

    __slots__ = ("_by_holder", "_by_user", "_of_user", "limit", "total")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.total = 0
        self._by_holder: dict[Holder, tuple[str, int]] = {}
        self._by_user: Counter[str] = Counter()
        self._of_user: dict[str, dict[Holder, None]] = {}

    def hold(self, holder: Holder, user: str, amount: int) -> None:
        """`holder` has this much now; with nothing it is no holder."""
        if amount <= 0:
            self.let_go(holder)
            return
        user, before = self._by_holder.get(holder, (user, 0))
        self._by_holder[holder] = user, amount
        self._by_user[user] += amount - before
        self._of_user.setdefault(user, {})[holder] = None
        self.total += amount - before

    def let_go(self, holder: Holder) -> None:
        """May be called again."""
        user, amount = self._by_holder.pop(holder, ("", -1))
        if amount < 0:
            return
        self.total -= amount
        self._by_user[user] -= amount
        holders = self._of_user[user]
        del holders[holder]
        if not holders:
            del self._of_user[user], self._by_user[user]

    def of(self, user: str) -> int:
        return self._by_user[user]

    def most(self) -> str:
        """The user who holds most; "" if nobody holds anything."""
        return max(self._by_user, key=self._by_user.__getitem__, default="")

    def holders(self, user: str) -> Iterable[Holder]:
        """Those of the user, the one that has held longest first."""
        return self._of_user.get(user, ())

    def loser(self) -> Holder | None:
        """Who must let go: of the user who holds most, the one that has held longest. None within the limit."""
        return next(iter(self._of_user[self.most()])) if self.total > self.limit else None

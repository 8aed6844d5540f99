"""Attributes of other packages that have another value while a cluster with programs runs, and their own afterwards."""

from __future__ import annotations

from typing import Any


class Replaced:
    """Counted: the first `hold` replaces, the last `release` restores, unless someone else has replaced it since."""

    def __init__(self, owner: Any, name: str, value: Any) -> None:
        self._owner, self._name, self._value = owner, name, value
        self._own: Any = None
        self._holders = 0

    def hold(self) -> None:
        if not self._holders:
            self._own = getattr(self._owner, self._name)
        self._holders += 1
        setattr(self._owner, self._name, self._value)

    def release(self) -> None:
        self._holders -= 1
        if not self._holders and getattr(self._owner, self._name) is self._value:
            setattr(self._owner, self._name, self._own)

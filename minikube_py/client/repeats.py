"""Objects known again by their bytes: those whose usual change is one time, and those that several informers get.

Most events of an idle cluster are node Leases, renewed every ten seconds: an event's object equals the last one's but
for its resourceVersion and one time. Then the last projection, with another version and time, is that of the object,
and nothing is decoded. A body in another form, as of another server, is decoded as ever.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

import orjson

T = TypeVar("T")
_VERSION: Final = b'"resourceVersion":"'
_TIME_BYTES: Final = len("2026-01-01T00:00:00.000000Z")
KEPT_MAX: Final = 20_000
"""Half a kilobyte each."""


@dataclass(frozen=True, slots=True)
class Renewed(Generic[T]):
    """A projection of objects that are renewed: `field` is the time, `told(item)` an item's version and time, and
    `again(item, version, time)` the item with others."""

    project: Callable[[dict[str, Any]], T]
    field: str
    told: Callable[[T], tuple[str, str]]
    again: Callable[[T, str, str], T]

    def __call__(self, obj: dict[str, Any]) -> T:
        return self.project(obj)


class Repeats(Generic[T]):
    """The bodies of one informer, without version and time."""

    def __init__(self, renewed: Renewed[T]) -> None:
        self._renewed = renewed
        self._mark = b'"%b":"' % renewed.field.encode()
        self._known: dict[bytes, tuple[bytes, bytes, str, list[T]]] = {}

    def find(self, body: bytes, kept: Callable[[str], T | None]) -> tuple[str, T, str] | None:
        """The key, the projection and the version of an object that equals the last one. None: it must be decoded.
        `kept(key)`: what the informer holds."""
        start, end, place = self._places(body)
        known = self._known.get(body[end:place])
        if known is None:
            return None
        head, tail, key, last = known
        after = place + _TIME_BYTES
        version, time = body[start:end], body[place:after]
        if body[:start] != head or body[after:] != tail or not version.isdigit() or b'"' in time or b"\\" in time:
            return None
        if kept(key) is not last[0]:
            return None
        item = last[0] = self._renewed.again(last[0], version.decode(), time.decode())
        return key, item, version.decode()

    def _places(self, body: bytes) -> tuple[int, int, int]:
        """Where the version begins and ends, and where the time begins."""
        start = body.find(_VERSION) + len(_VERSION)
        end = body.find(b'"', start)
        return start, end, body.find(self._mark, end) + len(self._mark)

    def learn(self, body: bytes, key: str, item: T) -> None:
        """From a decoded body."""
        start, end, place = self._places(body)
        after = place + _TIME_BYTES
        version, time = body[start:end], body[place:after]
        if not (version + time).isascii() or self._renewed.told(item) != (version.decode(), time.decode()):
            return
        if len(self._known) >= KEPT_MAX:
            self._known.clear()
        self._known[body[end:place]] = body[:start], body[after:], key, [item]


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

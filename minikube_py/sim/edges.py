"""Values at the edges of every type: what a client may send, not what a well-behaved one does.

The one list of them, for simulated clients (drawn by an `Rng`) and for tests (`tests/support/edges.py` wraps it in
hypothesis strategies). Add data here; do not write a second list."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeVar

import orjson

from minikube_py.env import Rng

T = TypeVar("T")

# -- numbers -----------------------------------------------------------------------------------------------------------

_POWERS: Final = (7, 8, 15, 16, 31, 32, 53, 62, 63, 64, 65, 127, 128, 1023, 1024, 4096)
EDGE_INTS: Final = tuple(
    sorted({sign * (2**power + step) for power in _POWERS for step in (-1, 0, 1) for sign in (1, -1)} | {0, 1, -1})
)
"""Around every integer width in use."""
INT64_EDGES: Final = tuple([value for value in EDGE_INTS if -(1 << 63) <= value < 1 << 63])
WIRE_EDGES: Final = tuple([value for value in EDGE_INTS if -(1 << 63) <= value < 1 << 64])
COUNT_EDGES: Final = tuple([value for value in INT64_EDGES if value >= 0])

# -- texts and bytes ---------------------------------------------------------------------------------------------------

EDGE_TEXTS: Final = (
    "", " ", "\0", "a\0b", "\n", "\x7f", "\x1b[2J", "\u200b", "\u2028", "\ufeff", "\ufffd", "\U0010ffff", "e\u0301",
    "é", "İ", "ß", "٣", "²", "Ⅷ", "👩‍👩‍👧", "../..", "a/b", "%00", "*", "-", ".", "true", "null", "0", "-0", "NaN",
    "a" * 63, "a" * 64, "a" * 253, "a" * 254, "a" * 1024, "a" * 1025, "é" * 600, "9" * 19, "9" * 20, "9" * 400,
)  # fmt: skip
LONE_SURROGATES: Final = ("\ud800", "\udfff", "a\udc80b", "\udc00\ud800")
EDGE_BYTES: Final = (b"", b"\0", b"\0\0", b"\xff", b"\xff\xff", b"\xc3", b"\xed\xa0\x80", b"a" * 1024, b"\x80" * 300)

# -- quantities --------------------------------------------------------------------------------------------------------

SUFFIXES: Final = (
    "", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei",
    "e0", "e3", "E6", "e-3", "e-9", "e-10", "e18", "e19", "e38", "e39", "e99", "e9999", "e10000", "e-9999",
    "e", "Zi", "K",
)  # fmt: skip
EDGE_QUANTITIES: Final = (
    "0", "10P", "5Ei", "7Ei", "8Ei", "9E", "10E", "9223372036854775807", "9223372036854775808", "9223372036854775807m",
    "9223372036854775808m", "-9223372036854775808", "-9223372036854775809", "-10P", "-1", "1n", "0.0000000001",
    "1e9999", "-1e9999", "+1", "+", ".", "1.", ".5", "1..5", "Ki", "m", " 1 ", "1 Gi", "1,5", "0x10", "1e1e1", "٣",
    "9" * 4096, "9" * 4097, "0" * 5000, "0." + "0" * 4000 + "1", "null", "", "inf", "1_000",
)  # fmt: skip
ALMOST_QUANTITIES: Final = tuple([text for text in EDGE_QUANTITIES if any("0" <= char <= "9" for char in text)])
"""Those with a digit; only resource.ParseQuantity defines the others."""
NO_QUANTITIES: Final[tuple[Any, ...]] = (None, True, [], {}, [1], {"a": "1"}, 3, -1, 1.5, 1 << 63, 1e300)
"""JSON values in place of a quantity; some are valid."""

# -- JSON --------------------------------------------------------------------------------------------------------------

EDGE_FLOATS: Final = (0.0, -0.0, 5e-324, 1e308, -1e308, 1.5, 2.0**63, 2.0**64)
NO_OBJECTS: Final = (b"", b"{", b"null", b"[]", b"\xff", b'{"spec":NaN}', b"1" * 400)
"""Values that may be stored under a key of objects without being one."""
DEPTHS: Final = (100, 1000, 1030, 4000)
"""Some decoders take no more than 1024."""
WIDTHS: Final = (0, 1, 10, 100)


def deep_json(depth: int, inner: str = "0") -> str:
    """JSON text as deep as it is long."""
    return '{"a":[' * (depth // 2) + inner + "]}" * (depth // 2)


# -- drawn by an Rng ---------------------------------------------------------------------------------------------------


class Edges:
    """Draws values; `share` of them at the edges, the others as given by the caller."""

    def __init__(self, rng: Rng, share: float) -> None:
        self._rng = rng
        self._share = share

    def now(self) -> bool:
        return self._rng.random() < self._share

    def one(self, usual: T, edges: Sequence[T]) -> T:
        return self._rng.choice(edges) if self.now() else usual

    def count(self, usual: int) -> int:
        """A number from 0 to 2^63 - 1."""
        return self.one(usual, COUNT_EDGES)

    def int64(self, usual: int) -> int:
        return self.one(usual, INT64_EDGES)

    def text(self, usual: str) -> str:
        return self.one(usual, EDGE_TEXTS)

    def behind(self, usual: bytes) -> bytes:
        """`usual` with a suffix: as unique as before."""
        if not self.now():
            return usual
        return usual + b"." + self._rng.choice(self._rng.choice((EDGE_BYTES, NO_OBJECTS, _TEXT_BYTES)))

    def quantity(self, usual: str) -> Any:
        """Usually a text, sometimes another JSON value."""
        if not self.now():
            return usual
        rng = self._rng
        kind = rng.random()
        if kind < 0.4:
            return rng.choice(ALMOST_QUANTITIES)
        if kind < 0.8:
            return f"{rng.choice((0, 1, 5, 999, 1 << 31, (1 << 63) - 1, -1))}{rng.choice(SUFFIXES)}"
        return rng.choice(NO_QUANTITIES)

    def json(self) -> bytes:
        """Any JSON value, deep, wide or odd."""
        rng = self._rng
        kind = rng.random()
        if kind < 0.4:
            return orjson.dumps(rng.choice((*EDGE_FLOATS, *EDGE_TEXTS, *COUNT_EDGES, None, True, [], {})))
        if kind < 0.6:
            return deep_json(rng.choice((10, 100, 400))).encode()
        width = rng.choice(WIDTHS)
        if kind < 0.8:
            return orjson.dumps([rng.choice(EDGE_TEXTS) for _ in range(width)])
        return orjson.dumps({f"{number}{rng.choice(EDGE_TEXTS)[:60]}": number for number in range(width)})

    def stored(self, usual: bytes) -> bytes:
        """`usual`, an object's JSON that ends with `}`; or with a duplicate key; or not an object at all."""
        if not self.now():
            return usual
        rng = self._rng
        kind = rng.random()
        if kind < 0.3:
            return rng.choice(NO_OBJECTS)
        if kind < 0.4:
            return deep_json(rng.choice((10, 100, 400))).encode()
        if kind < 0.7:
            return usual[:-1] + b',"metadata":{"name":"twice"}}'
        return usual[:-1] + b',"odd":' + self.json() + b"}"


_TEXT_BYTES: Final = tuple([text.encode() for text in EDGE_TEXTS])

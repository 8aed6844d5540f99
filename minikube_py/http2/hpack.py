"""HPACK decoding (RFC 7541): header blocks to fields, with the table that they build up.

A block that does not change the table is cached with its meaning until the table changes: most requests of a connection
send the same few bytes. What we send never changes the peer's table."""

from __future__ import annotations

from typing import Any, Final

from minikube_py.http2.huffman import BadCode, decode

TABLE_BYTES: Final = 4096
"""The default table size, which we do not change."""
ENTRY_BYTES: Final = 32
"""Overhead of an entry in addition to its name and value."""
INTEGER_BYTES_MAX: Final = 5
READ_ON: Final = 4
"""A block may expand to this many times the limit, and is still decoded for the table's sake: one byte may refer to 4
KB."""
KEPT_MAX: Final = 64
"""Cached blocks, and short strings."""
KEPT_BYTES_MAX: Final = 256

_NAMED: Final = """
:authority
:method GET|:method POST|:path /|:path /index.html|:scheme http|:scheme https
:status 200|:status 204|:status 206|:status 304|:status 400|:status 404|:status 500
accept-charset|accept-encoding gzip, deflate|accept-language|accept-ranges|accept|access-control-allow-origin|age|allow
authorization|cache-control|content-disposition|content-encoding|content-language|content-length|content-location
content-range|content-type|cookie|date|etag|expect|expires|from|host|if-match|if-modified-since|if-none-match|if-range
if-unmodified-since|last-modified|link|location|max-forwards|proxy-authenticate|proxy-authorization|range|referer
refresh|retry-after|server|set-cookie|strict-transport-security|transfer-encoding|user-agent|vary|via|www-authenticate
"""
Field = tuple[bytes, bytes]
STATIC: Final[list[Field]] = [
    (name.encode(), value.encode())
    for name, _, value in (each.partition(" ") for each in _NAMED.strip().replace("\n", "|").split("|"))
]
STATIC_END: Final = 0x80 + len(STATIC)
"""The byte that refers to the last of them."""


class BadBlock(Exception):
    """Header compression is out of sync: nothing more on this connection can be decoded."""


class Block:
    """`fields` in their order; None if they exceed the limit. `meaning` is set by the reader, and cached with it."""

    __slots__ = ("fields", "meaning", "request")

    def __init__(self, fields: list[Field] | None) -> None:
        self.fields = fields
        self.meaning: Any = None
        self.request: bool | None = None


class Decoder:
    """`list_bytes_max`: of the fields of a block, each plus 32 bytes, as SETTINGS_MAX_HEADER_LIST_SIZE."""

    def __init__(self, list_bytes_max: int) -> None:
        self._list_bytes_max = list_bytes_max
        self._table: list[Field] = []
        """The newest last."""
        self._size_bytes = 0
        self._size_max = TABLE_BYTES
        self._kept: dict[bytes, Block] = {}
        self._strings: dict[bytes, bytes] = {}

    def decode(self, data: bytes) -> Block:
        """Raises: BadBlock."""
        block = self._kept.get(data)
        if block is not None:
            return block
        fields, changed = self._read(data)
        block = Block(fields)
        if changed:
            self._kept.clear()
        elif len(data) <= KEPT_BYTES_MAX:
            if len(self._kept) >= KEPT_MAX:
                self._kept.clear()
            self._kept[data] = block
        return block

    def _read(self, data: bytes) -> tuple[list[Field] | None, bool]:
        """The fields, and whether the table changed."""
        fields: list[Field] = []
        size_bytes = at = 0
        changed = False
        table = self._table
        while at < len(data):
            byte = data[at]
            if STATIC_END < byte < 0xFF and byte - STATIC_END <= len(table):
                # As `_field`, inlined for the usual case.
                field = table[STATIC_END - byte]
                at += 1
            elif byte >= 0x80:
                index, at = (byte & 0x7F, at + 1) if byte != 0xFF else _integer(data, at, 7)
                field = self._field(index)
            elif byte & 0xE0 == 0x20:
                if fields or size_bytes:
                    raise BadBlock("a table size within a header block")
                at = self._resize(data, at)
                changed = True
                continue
            else:
                kept = byte >= 0x40
                index, at = _integer(data, at, 6 if kept else 4)
                name, at = (self._field(index)[0], at) if index else self._string(data, at)
                value, at = self._string(data, at)
                field = name, value
                if kept:
                    self._add(field)
                    changed = True
            size_bytes += len(field[0]) + len(field[1]) + ENTRY_BYTES
            if size_bytes <= self._list_bytes_max:
                fields.append(field)
            elif size_bytes > self._list_bytes_max * READ_ON:
                raise BadBlock("the fields of a header block are far too many")
        return fields if size_bytes <= self._list_bytes_max else None, changed

    def _field(self, index: int) -> Field:
        if 0 < index <= len(STATIC):
            return STATIC[index - 1]
        position = index - len(STATIC)
        if not 0 < position <= len(self._table):
            raise BadBlock(f"no field has index {index}")
        return self._table[-position]

    def _string(self, data: bytes, at: int) -> tuple[bytes, int]:
        if at >= len(data):
            raise BadBlock("a header block ends within a field")
        coded = data[at] & 0x80
        size, start = _integer(data, at, 7)
        at = start + size
        text = data[start:at]
        if len(text) < size:
            raise BadBlock("a header block ends within a string")
        return (self._decoded(text) if coded else text), at

    def _decoded(self, text: bytes) -> bytes:
        found = self._strings.get(text)
        if found is None:
            try:
                found = decode(text)
            except BadCode:
                raise BadBlock("a string is not of the Huffman code") from None
            if len(text) <= KEPT_BYTES_MAX:
                if len(self._strings) >= KEPT_MAX:
                    self._strings.clear()
                self._strings[text] = found
        return found

    def _add(self, field: Field) -> None:
        self._size_bytes += len(field[0]) + len(field[1]) + ENTRY_BYTES
        self._table.append(field)
        if self._size_bytes > self._size_max:
            self._evict()

    def _evict(self) -> None:
        gone = 0
        while self._size_bytes > self._size_max:
            name, value = self._table[gone]
            self._size_bytes -= len(name) + len(value) + ENTRY_BYTES
            gone += 1
        del self._table[:gone]

    def _resize(self, data: bytes, at: int) -> int:
        self._size_max, at = _integer(data, at, 5)
        if self._size_max > TABLE_BYTES:
            raise BadBlock("a table larger than was allowed")
        self._evict()
        return at


def _integer(data: bytes, at: int, bits: int) -> tuple[int, int]:
    """The number whose first bits are the last of the byte at `at`, and where it ends. Raises: BadBlock."""
    most = (1 << bits) - 1
    found = data[at] & most
    at += 1
    if found < most:
        return found, at
    for position, byte in enumerate(data[at : at + INTEGER_BYTES_MAX]):
        found += (byte & 0x7F) << 7 * position
        if byte < 0x80:
            return found, at + position + 1
    raise BadBlock("a number has no end")


def encode(*fields: Field) -> bytes:
    """As literals that are not added to the peer's table."""
    parts = []
    for name, value in fields:
        index = next((at for at, field in enumerate(STATIC, 1) if field[0] == name), 0)
        if (name, value) in STATIC:
            parts.append(_prefixed(STATIC.index((name, value)) + 1, 7, 0x80))
            continue
        parts.append(_prefixed(index, 4, 0) + (b"" if index else _prefixed(len(name), 7, 0) + name))
        parts.append(_prefixed(len(value), 7, 0) + value)
    return b"".join(parts)


def _prefixed(number: int, bits: int, mark: int) -> bytes:
    most = (1 << bits) - 1
    if number < most:
        return bytes([mark | number])
    number -= most
    out = bytearray([mark | most])
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)

"""The Huffman code of HPACK's strings (RFC 7541, section 5.2 and appendix B)."""

from __future__ import annotations

from typing import Final

_LENGTHS: Final = """
d n s s s s s s s o u s s u s s s s s s s s u s s s s s s s s s 6 a a c d 6 8 b a a 8 b 8 6 6 6 5 5 5 6
6 6 6 6 6 6 7 8 f 6 c a d 6 7 7 7 7 7 7 7 7 7 7 7 7 7 7 7 7 7 7 7 7 7 7 8 7 8 d j d e 6 f 5 6 5 6 5 6 6
6 5 7 7 6 6 6 5 6 7 6 5 5 6 7 7 7 7 7 f b e d s k m k k m m m n m n n n n n o n o o m n o n n n n l m n
m n n o m l k m m n n l n m m o l m n n l l m l n m n n k m m m n m m n q q k j m n m p q q q r r q o p
j l q r r q r o l l q q s r r r k o k l m l l n m m p p o o q n q r q q r r r r r s r r r r r q u
"""
"""The length in bits of each byte's code, a digit to base 36, and of the end's. The code is canonical: codes of one
length are in the order of their bytes, and shorter ones come first."""
_END: Final = 256
_DONE_BITS_MAX: Final = 7
"""Limit of padding: longer padding is an error."""


class BadCode(Exception):
    """Not a valid encoding."""


def _tree() -> list[list[int]]:
    """Nodes with two branches: negative is the byte `~branch`, else another node."""
    lengths = [int(digit, 36) for digit in _LENGTHS.split()]
    nodes, code, before = [[0, 0]], 0, 0
    for symbol in sorted(range(len(lengths)), key=lambda each: (lengths[each], each)):
        code <<= lengths[symbol] - before
        before = lengths[symbol]
        node = 0
        for position in range(before - 1, 0, -1):
            bit = code >> position & 1
            if not nodes[node][bit]:
                nodes.append([0, 0])
                nodes[node][bit] = len(nodes) - 1
            node = nodes[node][bit]
        nodes[node][code & 1] = ~symbol
        code += 1
    return nodes


def _steps() -> tuple[list[tuple[int, bytes] | None], frozenset[int]]:
    """By node and next four bits: the next node, and the byte that ended within them. None: no code has them. Second,
    the nodes where a string may end: those reached only by ones, at most seven."""
    nodes = _tree()
    steps: list[tuple[int, bytes] | None] = []
    for start in range(len(nodes)):
        for bits in range(16):
            node, out = start, b""
            step: tuple[int, bytes] | None = None
            for position in (3, 2, 1, 0):
                following = nodes[node][bits >> position & 1]
                if following < 0:
                    if ~following == _END:
                        break
                    out, following = out + bytes([~following]), 0
                node = following
            else:
                step = node, out
            steps.append(step)
    ends, node = [0], 0
    for _ in range(_DONE_BITS_MAX):
        node = nodes[node][1]
        ends.append(node)
    return steps, frozenset(ends)


_STEPS, _ENDS = _steps()


def decode(data: bytes) -> bytes:
    """Raises: BadCode."""
    steps, node, out = _STEPS, 0, bytearray()
    for byte in data:
        for bits in (byte >> 4, byte & 15):
            step = steps[node << 4 | bits]
            if step is None:
                raise BadCode
            node, found = step
            if found:
                out += found
    if node not in _ENDS:
        raise BadCode
    return bytes(out)

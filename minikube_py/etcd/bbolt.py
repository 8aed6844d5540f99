"""Writes the file format of bbolt, etcd's database: pages of 4 KiB, and buckets that are trees of sorted keys.

Written once, from front to back. The first page names the last, so the position of each page must be known first; items
are therefore iterated twice, once for their sizes. Source: bbolt 1.5, internal/common (page.go, meta.go, inode.go)."""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

PAGE: Final = 4096
MAGIC, VERSION = 0xED0CDAED, 2
BRANCH, LEAF, META, FREELIST = 1, 2, 4, 16
IS_BUCKET: Final = 1
HEADER: Final = struct.Struct("<QHHI")
"""Number, kind, element count, additional pages."""
ELEMENT: Final = struct.Struct("<IIII")
"""Of a leaf: kind, offset from here, sizes of key and value."""
CHILD: Final = struct.Struct("<IIQ")
"""Of a branch: offset from here, size of key, page."""
ROOT: Final = struct.Struct("<QQ")
"""The value of a bucket in its parent tree: its page, and a sequence that etcd does not use."""
FIRST_PAGE: Final = 3
"""Behind two metas and the empty list of free pages."""
SLICE: Final = 500
KEY_BYTES_MAX: Final = 1000
"""Several fit on a page, so that each level of a tree is smaller than the one below; etcd's have 18."""

Items = Callable[[], Iterable[tuple[bytes, bytes]]]


class Node(NamedTuple):
    """A page: its first key, its number, and how many items it has."""

    key: bytes
    page: int
    items: int


@dataclass
class Bucket:
    """`items` yields the same each time, sorted by key. A key has at most KEY_BYTES_MAX bytes."""

    name: bytes
    items: Items
    root: int = 0


class File:
    """Call `plan` before `pages`; both run in small steps."""

    def __init__(self, buckets: Iterable[Bucket]) -> None:
        self._buckets = sorted(buckets, key=lambda bucket: bucket.name)
        self._leaves: list[list[tuple[Node, int]]] = []
        self._levels: list[list[list[list[Node]]]] = []
        self._root = 0
        self.page_count = FIRST_PAGE

    @property
    def size_bytes(self) -> int:
        return self.page_count * PAGE

    def plan(self) -> Iterator[None]:
        for bucket in self._buckets:
            leaves = yield from self._plan_leaves(bucket.items())
            self._leaves.append(leaves)
            levels: list[list[list[Node]]] = []
            nodes = [node for node, _ in leaves]
            while len(nodes) > 1:
                groups = _groups(nodes)
                nodes = [Node(group[0].key, self._take(1), len(group)) for group in groups]
                levels.append(groups)
            self._levels.append(levels)
            bucket.root = nodes[0].page
        self._root = self._take(1)

    def pages(self) -> Iterator[bytes]:
        """The file, in pieces."""
        for number in (0, 1):
            yield _padded(HEADER.pack(number, META, 0, 0) + _meta(self._root, self.page_count, number), 1)
        yield _padded(HEADER.pack(2, FREELIST, 0, 0), 1)
        for bucket, leaves, levels in zip(self._buckets, self._leaves, self._levels, strict=True):
            items = iter(bucket.items())
            page = 0
            for node, pages in leaves:
                page = node.page + pages
                yield _leaf(node.page, pages, [next(items) for _ in range(node.items)])
            for groups in levels:
                for group in groups:
                    yield _branch(page, group)
                    page += 1
        yield _leaf(self._root, 1, [(each.name, ROOT.pack(each.root, 0)) for each in self._buckets], IS_BUCKET)

    def _take(self, pages: int) -> int:
        first, self.page_count = self.page_count, self.page_count + pages
        return first

    def _plan_leaves(self, items: Iterable[tuple[bytes, bytes]]) -> Generator[None, None, list[tuple[Node, int]]]:
        """Returns each leaf and its number of pages. Each has at least one item."""
        leaves: list[tuple[Node, int]] = []
        first, count, used = b"", 0, HEADER.size

        def close() -> None:
            pages = -(-used // PAGE)
            leaves.append((Node(first, self._take(pages), count), pages))

        for number, (key, value) in enumerate(items):
            size = ELEMENT.size + len(key) + len(value)
            if count and used + size > PAGE:
                close()
                count, used = 0, HEADER.size
            if not count:
                first = key
            count, used = count + 1, used + size
            if number % SLICE == SLICE - 1:
                yield
        if count or not leaves:
            close()
        return leaves


def _groups(nodes: list[Node]) -> list[list[Node]]:
    """Groups that fit on one page each."""
    groups: list[list[Node]] = []
    used = PAGE
    for node in nodes:
        size = CHILD.size + len(node.key)
        if used + size > PAGE:
            groups.append([])
            used = HEADER.size
        groups[-1].append(node)
        used += size
    return groups


def _leaf(page: int, pages: int, items: list[tuple[bytes, bytes]], kind: int = 0) -> bytes:
    elements, data = bytearray(), bytearray()
    for position, (key, value) in enumerate(items):
        offset = (len(items) - position) * ELEMENT.size + len(data)
        elements += ELEMENT.pack(kind, offset, len(key), len(value))
        data += key
        data += value
    return _padded(HEADER.pack(page, LEAF, len(items), pages - 1) + elements + data, pages)


def _branch(page: int, nodes: list[Node]) -> bytes:
    elements, data = bytearray(), bytearray()
    for position, node in enumerate(nodes):
        offset = (len(nodes) - position) * CHILD.size + len(data)
        elements += CHILD.pack(offset, len(node.key), node.page)
        data += node.key
    return _padded(HEADER.pack(page, BRANCH, len(nodes), 0) + elements + data, 1)


def _meta(root: int, pages: int, transaction: int) -> bytes:
    """Of the two, the one with the later transaction is valid."""
    fields = struct.pack("<IIIIQQQQQ", MAGIC, VERSION, PAGE, 0, root, 0, 2, pages, transaction)
    checksum = 0xCBF29CE484222325
    for byte in fields:
        checksum = (checksum ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return fields + struct.pack("<Q", checksum)


def _padded(data: bytes | bytearray, pages: int) -> bytes:
    return bytes(data).ljust(pages * PAGE, b"\0")

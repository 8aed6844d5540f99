"""Files as bbolt lays them out, read by the rules of its pages; bbolt checks them itself in tests/conformance."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from hypothesis import example, given, settings
from hypothesis import strategies as st

from minikube_py.etcd.bbolt import BRANCH, HEADER, IS_BUCKET, KEY_BYTES_MAX, LEAF, META, PAGE, Bucket, File

Pairs = list[tuple[bytes, bytes]]
SIZES = st.sampled_from([0, 1, 7, 400, 4048, 4049, 4080, 4096, 20_000])
KEYS = st.one_of(st.binary(min_size=1, max_size=20), st.integers(1, KEY_BYTES_MAX).map(lambda size: b"k" * size))
BUCKETS = st.dictionaries(
    st.sampled_from([b"key", b"meta", b"lease", b"a" * 300]),
    st.dictionaries(KEYS, SIZES.map(bytes), max_size=60).map(lambda items: sorted(items.items())),
    max_size=4,
)
MANY: Pairs = [(b"%08d" % number, b"v" * 90) for number in range(7000)]
WIDE: Pairs = [(b"%04d" % number + b"k" * (KEY_BYTES_MAX - 4), b"") for number in range(40)]


class Reader:
    """Goes down from the meta page, and notes each page that it comes by."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.seen: list[int] = []

    def header(self, page: int) -> tuple[int, int, int, int]:
        number, kind, count, more = HEADER.unpack_from(self.data, page * PAGE)
        assert number == page
        self.seen += range(page, page + more + 1)
        return number, kind, count, more

    def root(self) -> int:
        roots = {}
        for page in (0, 1):
            assert self.header(page)[1] == META
            fields = self.data[page * PAGE + HEADER.size :][:56]
            magic, version, size, _, root, _, free, pages, transaction = struct.unpack("<IIIIQQQQQ", fields)
            assert (magic, version, size, free) == (0xED0CDAED, 2, PAGE, 2) and pages * PAGE == len(self.data)
            roots[transaction] = root
        self.header(2)
        return roots[max(roots)]

    def items(self, page: int, kind_of_items: int = 0) -> Iterator[tuple[bytes, bytes]]:
        _, kind, count, more = self.header(page)
        end = (page + more + 1) * PAGE
        for position in range(count):
            at = page * PAGE + HEADER.size + position * 16
            if kind == BRANCH:
                offset, size, child = struct.unpack_from("<IIQ", self.data, at)
                key = self.data[at + offset :][:size]
                inner = list(self.items(child))
                assert inner and inner[0][0] == key
                yield from inner
            else:
                found, offset, key_size, value_size = struct.unpack_from("<IIII", self.data, at)
                assert (kind, found) == (LEAF, kind_of_items) and at + offset + key_size + value_size <= end
                start = at + offset
                yield self.data[start:][:key_size], self.data[start + key_size :][:value_size]


@settings(max_examples=60)
@given(BUCKETS)
@example({})
@example({b"key": []})
@example({b"key": MANY, b"meta": [(b"k", bytes(3 * PAGE))], b"lease": WIDE})
def test_what_is_written_is_read(buckets: dict[bytes, Pairs]) -> None:
    file = File([Bucket(name, lambda items=items: items) for name, items in buckets.items()])  # type: ignore[misc]
    for _ in file.plan():
        pass
    data = b"".join(file.pages())
    assert len(data) == file.size_bytes
    reader = Reader(data)
    found = {}
    for name, value in reader.items(reader.root(), IS_BUCKET):
        root, _ = struct.unpack("<QQ", value)
        found[name] = list(reader.items(root))
    assert found == buckets and list(found) == sorted(buckets)
    # Each page belongs to one place; none is lost, as none is listed as free.
    assert sorted(reader.seen) == list(range(file.page_count))

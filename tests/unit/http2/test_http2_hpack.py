"""Header blocks: what we read beside what the library `hpack` reads, of blocks good and bad, and what we write."""

from __future__ import annotations

import random

import hpack
import pytest
from http2_peer import varint
from hypothesis import given, settings
from hypothesis import strategies as st

from minikube_py.http2 import hpack as ours
from minikube_py.http2.huffman import BadCode, decode

LIST_BYTES = 1 << 16
NAMES = [":path", "content-type", "grpc-timeout", "x", "x-" + "y" * 150, "accept-encoding", ""]
VALUES = ["", "/", "application/grpc", "é", "1" * 127, "2" * 128, "~" * 300, "gzip, deflate", "\x00\xff"]
FIELDS = st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(VALUES) | st.text(max_size=40)), max_size=12)


def theirs() -> hpack.Decoder:
    decoder = hpack.Decoder(max_header_list_size=1 << 24)
    decoder.max_allowed_table_size = ours.TABLE_BYTES
    return decoder


def read_theirs(decoder: hpack.Decoder, data: bytes) -> list[tuple[bytes, bytes]] | None:
    """None: it cannot be read."""
    try:
        return [(bytes(name), bytes(value)) for name, value in decoder.decode(data, raw=True)]
    except (hpack.HPACKError, ValueError, IndexError):
        return None


def read_ours(decoder: ours.Decoder, data: bytes) -> list[tuple[bytes, bytes]] | None:
    try:
        return decoder.decode(data).fields
    except ours.BadBlock:
        return None


@given(st.lists(st.tuples(FIELDS, st.booleans(), st.sampled_from([None, 0, 100, 4096])), max_size=8))
def test_blocks_of_one_connection_are_read_as_they_were_written(blocks: list) -> None:
    encoder, decoder = hpack.Encoder(), ours.Decoder(LIST_BYTES)
    for fields, huffman, size in blocks:
        if size is not None:
            encoder.header_table_size = size
        data = encoder.encode(fields, huffman=huffman)
        expected = [(name.encode(), value.encode()) for name, value in fields]
        assert decoder.decode(data).fields == expected


@given(st.data())
@settings(max_examples=300)
def test_damaged_blocks_are_read_as_the_library_reads_them_or_not_at_all(data: st.DataObject) -> None:
    encoder, left, right = hpack.Encoder(), theirs(), ours.Decoder(LIST_BYTES)
    for fields in data.draw(st.lists(FIELDS, min_size=1, max_size=4)):
        block = bytearray(encoder.encode(fields, huffman=data.draw(st.booleans())))
        for _ in range(data.draw(st.integers(0, 2))):
            at = data.draw(st.integers(0, len(block)))
            block[at : at + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=3))
        expected, found = read_theirs(left, bytes(block)), read_ours(right, bytes(block))
        assert found == expected
        if expected is None:
            return


@given(st.binary(max_size=30))
@settings(max_examples=500)
def test_any_bytes_are_read_as_the_library_reads_them_or_not_at_all(block: bytes) -> None:
    assert read_ours(ours.Decoder(LIST_BYTES), block) == read_theirs(theirs(), block)


@pytest.mark.parametrize(
    ("what", "block"),
    [
        ("index 0", "80"),
        ("an index beyond the table", "be"),
        ("a name beyond the table", "7f0001 61"),
        ("a number without an end", "ff ffffffffff 7f"),
        ("a string that ends early", "00 0161 0561"),
        ("a block that ends after a name", "00 0161"),
        ("a table larger than was allowed", "3fe21f"),
        ("a table size after a field", "82 20"),
        ("the Huffman code's end", "00 84ffffffff 00"),
        ("padding of zeros", "00 8118 00"),
        ("padding of eight ones", "00 821fff 00"),
    ],
)
def test_what_rfc_7541_calls_an_error_is_one(what: str, block: str) -> None:
    with pytest.raises(ours.BadBlock):
        ours.Decoder(LIST_BYTES).decode(bytes.fromhex(block))


def test_a_block_that_is_kept_is_read_anew_once_the_table_is_another() -> None:
    decoder = ours.Decoder(LIST_BYTES)
    decoder.decode(b"\x40\x01a\x011")
    assert decoder.decode(b"\xbe").fields == [(b"a", b"1")]
    assert decoder.decode(b"\xbe") is decoder.decode(b"\xbe")
    decoder.decode(b"\x40\x01a\x012")
    assert decoder.decode(b"\xbe").fields == [(b"a", b"2")]
    assert decoder.decode(b"\x20").fields == []
    with pytest.raises(ours.BadBlock):
        decoder.decode(b"\xbe")


def test_fields_beyond_the_limit_are_not_kept_and_the_table_stays_in_step_unless_they_are_a_bomb() -> None:
    """A bomb: each byte of the block names an entry of 4 KB."""
    decoder = ours.Decoder(16 << 10)
    large = b"\x40\x01a\x7f" + varint(4_050 - 127) + b"v" * 4_050
    assert decoder.decode(b"\x40\x01b\x011" + large + b"\xbe" * 5).fields is None
    with pytest.raises(ours.BadBlock):
        decoder.decode(b"\xbf")
    assert decoder.decode(b"\xbe").fields == [(b"a", b"v" * 4_050)]
    assert decoder.decode(b"\x40\x01c\x011\xbe").fields == [(b"c", b"1")] * 2
    with pytest.raises(ours.BadBlock, match="far too many"):
        decoder.decode(large + b"\xbe" * 20)
    assert len(decoder._kept) <= ours.KEPT_MAX


def test_what_is_kept_is_bounded() -> None:
    decoder = ours.Decoder(LIST_BYTES)
    for each in range(5_000):
        decoder.decode(hpack.Encoder().encode([("a", str(each))]))
        decoder.decode(b"\0\x01a\x04%04d" % each)
    assert len(decoder._kept) <= ours.KEPT_MAX
    assert len(decoder._strings) <= ours.KEPT_MAX
    assert decoder._size_bytes <= ours.TABLE_BYTES


def test_the_static_table_and_the_code_are_those_of_the_rfc() -> None:
    assert tuple(ours.STATIC) == tuple(hpack.table.HeaderTable.STATIC_TABLE)
    rng = random.Random(1)
    for size in (*range(60), 1_000):
        text = rng.randbytes(size)
        coded = hpack.Encoder().huffman_coder.encode(text)
        assert decode(coded) == text
    for byte in range(256):
        assert decode(hpack.Encoder().huffman_coder.encode(bytes([byte]))) == bytes([byte])
    with pytest.raises(BadCode):
        decode(b"\xff\xff\xff\xff")


@given(FIELDS)
def test_what_we_write_needs_no_table_and_is_read_as_it_was_meant(fields: list[tuple[str, str]]) -> None:
    wanted = [(name.encode(), value.encode()) for name, value in fields]
    decoder = theirs()
    assert read_theirs(decoder, ours.encode(*wanted)) == wanted
    assert not decoder.header_table.dynamic_entries

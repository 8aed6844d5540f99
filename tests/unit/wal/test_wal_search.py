"""Valid records are found behind any bytes, at a cost that is linear in them: also where a client's value is full of
headers that claim most of the file."""

from __future__ import annotations

import random
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minikube_py.wal import checksums, record, seed
from minikube_py.wal.checksums import STEP_BYTES, Checksums
from minikube_py.wal.record import HEADER, HEADER_BYTES, MAGIC, decode_record, encode_record, find_records
from minikube_py.wal.segment import HEAD_BYTES

SEED = 7
BYTES_PER_HEADER = 2 * STEP_BYTES + 2 * HEADER_BYTES


@given(st.integers(0, 1 << 30), st.integers(0, 3 * STEP_BYTES), st.data())
def test_the_checksum_of_any_part_is_known_after_one_pass(seed, size, data):
    content = random.Random(seed).randbytes(size)
    end = data.draw(st.integers(0, size))
    start = data.draw(st.integers(0, end))
    before = data.draw(st.integers(0, (1 << 32) - 1))
    assert Checksums(content).part(start, end, before) == crc32(content[start:end], before)


def each_by_itself(data: bytes, start: int, seed: int) -> list[record.Record]:
    found, offset = [], start
    while offset + HEADER_BYTES <= len(data):
        one = decode_record(data, offset, seed)
        found += [one] * (one is not None)
        offset = offset + 1 if one is None else one.end
    return found


@pytest.mark.parametrize("number", range(20))
def test_all_valid_records_are_found_and_no_other(number):
    rng = random.Random(number)
    data = bytearray()
    for _ in range(6):
        payload = rng.randbytes(rng.choice((0, 9, STEP_BYTES, STEP_BYTES + 1, 3 * STEP_BYTES)))
        lure = HEADER.pack(MAGIC + b"\2", rng.choice((5, 5000, 20_000, 1 << 30)), 0, rng.getrandbits(32))
        data += lure * rng.randrange(4)
        data += encode_record(2, payload, seed=SEED, offset=len(data) + rng.choice((0, 0, 1)), synced=0)
        if rng.random() < 0.3:
            data[rng.randrange(len(data))] ^= 1
    assert list(find_records(bytes(data), 0, SEED)) == each_by_itself(bytes(data), 0, SEED)


@pytest.mark.parametrize("claim", [1, STEP_BYTES, STEP_BYTES + 1, 600_000])
def test_the_bytes_summed_are_linear_in_the_file(claim, monkeypatch):
    headers = 3000
    data = bytes(HEAD_BYTES) + HEADER.pack(MAGIC + b"\2", claim, 0, 1) * headers + bytes(1 << 20)
    summed = 0

    def counted(part: bytes, before: int = 0) -> int:
        nonlocal summed
        summed += len(part)
        return crc32(part, before)

    for module in (checksums, record, seed):
        monkeypatch.setattr(module, "crc32", counted)
    assert list(find_records(data, 0, SEED)) == []
    assert summed <= len(data) + headers * BYTES_PER_HEADER
    summed = 0
    seed.seed_of(data)
    assert summed <= len(data) + headers * BYTES_PER_HEADER

"""Cold and remote shards answer as those in memory do, and say so when they cannot."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from minikube_py.errors import Corruption, InvalidRequest, Unavailable
from minikube_py.index.structure import HIGH, LOW, MISSING, Box, Point
from minikube_py.index.structures.shard_reader import MemoryShards, ShardReader
from minikube_py.index.structures.sharded import Sharded
from minikube_py.lab import shard_server, shards
from minikube_py.lab.shards import ColdShards, RemoteShards, spawned


@pytest.fixture(scope="module")
def address() -> Iterator[tuple[str, int]]:
    with spawned() as where:
        yield where


KINDS = ("memory", "cold columns", "cold objects", "cold evicted", "remote")


@pytest.fixture(params=KINDS)
def reader(request: pytest.FixtureRequest, tmp_path: Path, address: tuple[str, int]) -> Iterator[ShardReader]:
    kind = request.param
    if kind == "memory":
        yield MemoryShards(2)
    elif kind == "remote":
        remote = RemoteShards(address, 2)
        yield remote
        remote.close()
    else:
        encoding = "objects" if "objects" in kind else "columns"
        yield ColdShards(tmp_path / "cold", 2, encoding, evict="evicted" in kind)


def test_any_reader_gives_the_same_answers(reader: ShardReader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "FLUSH_CHANGES", 16)
    rng = np.random.default_rng(9)
    structure = Sharded.over(reader, 2, shards=4, filter="max-vector", rebuild_percent=20)
    first = rng.integers(-9, 9, (40, 2))
    first[3] = (MISSING, HIGH)
    structure.load(np.arange(40), first)
    truth: dict[int, Point] = {slot: tuple(point) for slot, point in enumerate(first.tolist())}
    for slot in rng.integers(0, 60, 150).tolist():
        if rng.random() < 0.3:
            structure.remove(slot)
            truth.pop(slot, None)
        else:
            truth[slot] = (int(rng.integers(-9, 9)), MISSING if rng.random() < 0.1 else LOW)
            structure.put(slot, truth[slot])
    assert structure.ledger.rebuilds > 0
    for low in range(-9, 10, 3):
        for box in (Box((low, MISSING), (HIGH, HIGH)), Box((low, LOW), (low + 2, 3)), Box((MISSING,) * 2, (HIGH,) * 2)):
            right = {slot for slot, point in truth.items() if box.holds(point)}
            assert set(structure.find(box).slots.tolist()) == right, box
            some = structure.find(box, 3).slots.tolist()
            assert len(some) == min(3, len(right)) and set(some) <= right
    assert structure.size_bytes() > 0


def test_filters_that_forget_ask_for_the_old_point(reader: ShardReader) -> None:
    structure = Sharded.over(reader, 2, shards=2, filter="oracle")
    structure.load(np.arange(6), np.arange(12, dtype=np.int64).reshape(6, 2))
    structure.put(5, (3, 3))
    structure.remove(4)
    found = structure.find(Box((8, MISSING), (HIGH, HIGH)))
    assert found.pruned == 2 and not len(found.slots)


def test_what_a_cold_shard_costs_is_counted(tmp_path: Path) -> None:
    cold = ColdShards(tmp_path, 3, "objects")
    structure = Sharded.over(cold, 3, shards=8, filter="max-vector")
    structure.load(np.arange(800), np.random.default_rng(1).integers(0, 1 << 40, (800, 3)))
    assert 800 * 320 <= cold.disk_bytes() < 800 * 340
    cold.bytes_read = 0
    assert structure.find(Box((1 << 41, MISSING, MISSING), (HIGH,) * 3)).pruned == 8
    assert cold.bytes_read == 0, "no file is read where its filter says no"
    structure.find(Box((MISSING,) * 3, (HIGH,) * 3))
    assert cold.bytes_read == cold.disk_bytes()


def test_a_damaged_file_is_told(tmp_path: Path) -> None:
    cold = ColdShards(tmp_path, 1)
    cold.fill(0, np.arange(9), np.arange(9, dtype=np.int64).reshape(-1, 1))
    file = tmp_path / "shard-00000"
    content = bytearray(file.read_bytes())
    content[40] ^= 1
    file.write_bytes(content)
    with pytest.raises(Corruption, match="shard-00000: not what was written"):
        cold.find(0, Box((0,), (HIGH,)))


@pytest.mark.parametrize(
    ("options", "says"),
    [({"encoding": "parquet"}, "encoding"), ({}, "holds shards already")],
)
def test_a_folder_or_encoding_that_cannot_be(tmp_path: Path, options: dict[str, Any], says: str) -> None:
    (tmp_path / "shard-00001").touch()
    with pytest.raises(InvalidRequest, match=says):
        ColdShards(tmp_path, 1, **options)


def test_a_server_that_is_not_there_or_gone() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        free = listener.getsockname()
    with pytest.raises(Unavailable, match="no shard server at 127"):
        RemoteShards(free, 1, timeout_s=2)
    with spawned() as address:
        remote = RemoteShards(address, 1)
        remote.put(0, 1, (5,))
    with pytest.raises(Unavailable, match="shard server at"):
        remote.find(0, Box((0,), (HIGH,)))
    remote.close()


def test_a_message_over_the_limit_is_refused(address: tuple[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard_server, "MESSAGE_LIMIT_BYTES", 64)
    remote = RemoteShards(address, 1)
    remote.fill(0, np.arange(100), np.arange(100, dtype=np.int64).reshape(-1, 1))
    with pytest.raises(Unavailable, match="over the limit of 64"):
        remote.contents(0)
    remote.close()


def test_an_unknown_request_closes_the_connection(address: tuple[str, int]) -> None:
    remote = RemoteShards(address, 1)
    with pytest.raises(Unavailable, match="closed the connection"):
        remote._ask("dance")
    remote.close()
    again = RemoteShards(address, 1)
    again.put(3, 7, (4,))
    assert again.find(3, Box((4,), (4,))).slots.tolist() == [7]
    again.close()

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
from minikube_py.store.client_connection import Endpoint
from minikube_py.studies.bloom import shards
from minikube_py.studies.bloom.remote_shards import RemoteShards, spawned
from minikube_py.studies.bloom.shards import ColdShards


@pytest.fixture(scope="module")
def member(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoint]:
    with spawned(tmp_path_factory.mktemp("shards") / "store") as where:
        yield where


KINDS = ("memory", "cold columns", "cold objects", "cold evicted", "remote")


@pytest.fixture(params=KINDS)
def reader(request: pytest.FixtureRequest, tmp_path: Path, member: Endpoint) -> Iterator[ShardReader]:
    kind = request.param
    if kind == "memory":
        yield MemoryShards(2)
    elif kind == "remote":
        remote = RemoteShards(member, 2)
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


EDGES = (MISSING, LOW, LOW + 1, -1, 0, 7, HIGH - 1, HIGH)


def test_any_box_is_asked_as_it_is(reader: ShardReader) -> None:
    points = np.array([(one, other) for one in EDGES for other in EDGES], dtype=np.int64)
    slots = np.arange(len(points)) * 3
    reader.fill(5, slots, points)
    reader.fill(6, slots[:2] + 1, points[:2])
    rng = np.random.default_rng(4)
    for low, high in ((low, high) for low in EDGES for high in EDGES):
        others = (int(rng.choice(EDGES)), int(rng.choice(EDGES)))
        for box in (Box((low, MISSING), (high, HIGH)), Box((low, min(others)), (high, max(others)))):
            right = {slot for slot, point in zip(slots.tolist(), points.tolist()) if box.holds(tuple(point))}
            read = reader.find(5, box)
            assert set(read.slots.tolist()) == right and read.complete, box
            assert read.examined >= len(right)
            some = reader.find(5, box, 3)
            assert len(some.slots) == min(3, len(right)) and set(some.slots.tolist()) <= right, box
            assert some.complete == (len(right) <= 3), box
    reader.fill(5, slots[:1], points[:1])
    assert reader.contents(5)[0].tolist() == [0] and reader.contents(6)[0].tolist() == [1, 4]
    assert reader.contents(7)[1].shape == (0, 2)


def test_a_member_that_is_not_there_or_gone(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        free = Endpoint("127.0.0.1", listener.getsockname()[1], "a token of enough length")
    with pytest.raises(Unavailable, match=r"127\.0\.0\.1"):
        RemoteShards(free, 1, timeout_s=2)
    with spawned(tmp_path / "store") as member:
        remote = RemoteShards(member, 1)
        remote.put(0, 1, (5,))
    with pytest.raises(Unavailable):
        remote.find(0, Box((0,), (HIGH,)))
    remote.close()


def test_each_reader_begins_without_shards_and_with_its_own_fields(member: Endpoint) -> None:
    for dimensions in (1, 4, 2):
        remote = RemoteShards(member, dimensions)
        assert not len(remote.contents(3)[0])
        point = tuple(range(dimensions))
        remote.put(3, 7, point)
        assert remote.point(3, 7) == point
        assert remote.find(3, Box(point, point)).slots.tolist() == [7]
        remote.close()


def test_a_shard_larger_than_a_transaction(member: Endpoint) -> None:
    remote = RemoteShards(member, 3)
    slots, points = np.arange(300), np.random.default_rng(2).integers(0, 1 << 50, (300, 3))
    remote.fill(0, slots, points)
    remote.fill(1, slots + 300, points)
    found, held = remote.contents(0)
    assert {slot: tuple(point) for slot, point in zip(found.tolist(), held.tolist())} == {
        slot: tuple(point) for slot, point in zip(slots.tolist(), points.tolist())
    }
    read = remote.find(0, Box((0, 0, 0), (HIGH,) * 3))
    assert set(read.slots.tolist()) == set(range(300)) and read.examined >= 300
    remote.close()

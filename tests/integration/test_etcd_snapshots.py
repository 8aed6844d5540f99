"""Maintenance.Snapshot: what a stream says of itself, and how many are sent at once."""

from __future__ import annotations

import hashlib
import random
from pathlib import Path

import pytest

from minikube_py.env import SystemClock, SystemDisk
from minikube_py.etcd.bbolt import PAGE
from minikube_py.etcd.errors import Refused
from minikube_py.etcd.maintenance import SNAPSHOTS_MAX, Maintenance
from minikube_py.etcd.node import Node
from minikube_py.store.member import StoreMember
from minikube_py.store.member_config import MemberConfig


async def test_a_snapshot_counts_down_and_ends_with_its_sum_and_few_are_sent_at_once(tmp_path: Path) -> None:
    member = StoreMember(SystemDisk(tmp_path), SystemClock(), random.Random(), MemberConfig(fsync="inline"))
    await member.start()
    try:
        maintenance = Maintenance(Node(member))
        waiting = [maintenance.snapshot(None) for _ in range(SNAPSHOTS_MAX)]
        for each in waiting:
            await anext(each)
        with pytest.raises(Refused, match="etcdserver: too many requests"):
            await anext(maintenance.snapshot(None))
        # One whose client left makes room.
        await waiting.pop().aclose()
        *parts, last = [part async for part in maintenance.snapshot(None)]
        data = b"".join(part.blob for part in parts)
        assert last.blob == hashlib.sha256(data).digest() and len(data) % PAGE == 0
        left = [len(data)]
        for part in parts:
            left.append(left[-1] - len(part.blob))
        assert [part.remaining_bytes for part in (*parts, last)] == [*left[1:], 0]
        for each in waiting:
            await each.aclose()
    finally:
        await member.stop()

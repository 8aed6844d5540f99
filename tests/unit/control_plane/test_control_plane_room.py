"""A store is not begun where it would have no room from its first moment on; one that has begun starts nevertheless."""

from __future__ import annotations

import pytest

from minikube_py.control_plane.errors import SetupError
from minikube_py.control_plane.room import require_room
from minikube_py.env import SystemDisk
from minikube_py.store.log_files import FIRST_SEGMENT_BYTES
from minikube_py.wal.segment import SEGMENT_BYTES

RESERVE_BYTES = 64 << 20
NEEDED_BYTES = FIRST_SEGMENT_BYTES + RESERVE_BYTES


class SmallDisk(SystemDisk):
    free = 0

    def free_bytes(self) -> int:
        return self.free


def test_a_new_store_needs_room_and_the_refusal_says_where_how_much_and_what_to_do(tmp_path):
    disk = SmallDisk(tmp_path)
    disk.free = NEEDED_BYTES
    require_room(disk, RESERVE_BYTES)
    disk.free -= 1
    with pytest.raises(SetupError) as refused:
        require_room(disk, RESERVE_BYTES)
    text = str(refused.value)
    assert text.startswith(f"{tmp_path} has {NEEDED_BYTES - 1:,} bytes free, and a new store needs {NEEDED_BYTES:,}")
    assert all(flag in text for flag in ("--data-dir", "--reserve-bytes"))
    require_room(disk, RESERVE_BYTES - 1)


def test_members_on_one_disk_need_room_for_each_others_logs(tmp_path):
    """They started on 90 MB, and refused writes for good after two ConfigMaps."""
    disk = SmallDisk(tmp_path)
    disk.free = 3 * FIRST_SEGMENT_BYTES + 2 * SEGMENT_BYTES + RESERVE_BYTES
    require_room(disk, RESERVE_BYTES, members=3)
    disk.free -= 1
    with pytest.raises(SetupError, match="36,700,160 for 3 logs, and 67,108,864 reserved"):
        require_room(disk, RESERVE_BYTES, members=3)


def test_a_store_that_has_begun_starts_without_room(tmp_path):
    disk = SmallDisk(tmp_path)
    disk.open("wal-0000000000000001.log", create=True).close()
    require_room(disk, RESERVE_BYTES)

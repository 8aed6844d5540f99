"""What Linux alone has is taken away: the store's files are synced and allocated by what macOS has. On no Mac was this
run."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from minikube_py import Cluster
from minikube_py.env import ZEROS_BYTES, SystemDisk

pytestmark = pytest.mark.real_time("a store in a real folder")
F_FULLFSYNC = 51
"""Its number on macOS."""
SYSTEM_FCNTL = fcntl.fcntl


class Asked(list[int]):
    """Descriptors that F_FULLFSYNC was asked for. `refusal`: the error that it ends with, 0 for none."""

    refusal = 0


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[Asked]:
    found = Asked()

    def mac_fcntl(fd: int, command: int, *arguments: Any) -> Any:
        if command != F_FULLFSYNC:
            return SYSTEM_FCNTL(fd, command, *arguments)
        found.append(fd)
        if found.refusal:
            raise OSError(found.refusal, os.strerror(found.refusal))
        return 0

    for name in ("fdatasync", "posix_fallocate", "posix_fadvise", "sched_getaffinity"):
        monkeypatch.delattr(os, name)
    monkeypatch.setattr(fcntl, "F_FULLFSYNC", F_FULLFSYNC, raising=False)
    monkeypatch.setattr(fcntl, "fcntl", mac_fcntl)
    return found


def test_a_store_in_a_folder_keeps_what_it_acknowledged(asked: Asked, tmp_path: Path) -> None:
    with Cluster(nodes=1, data_dir=tmp_path) as cluster:
        cluster.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kept"}, "data": {"a": "b"}})
    assert asked
    with Cluster(nodes=1, data_dir=tmp_path) as cluster:
        assert cluster.get("cm/kept")["data"] == {"a": "b"}


def test_what_is_allocated_is_written_and_keeps_what_was_there(asked: Asked, tmp_path: Path) -> None:
    file = SystemDisk(tmp_path).open("segment", create=True)
    size_bytes = 2 * ZEROS_BYTES + 3
    file.write_at(0, b"there")
    file.allocate(size_bytes)
    assert file.read_all() == b"there" + bytes(size_bytes - 5)
    assert (tmp_path / "segment").stat().st_blocks * 512 >= size_bytes
    file.close()


@pytest.mark.parametrize(("refusal", "held"), [(0, True), (errno.ENOTSUP, True), (errno.EIO, False)])
def test_a_file_system_without_it_is_synced_and_an_error_is_told(
    asked: Asked, tmp_path: Path, refusal: int, held: bool
) -> None:
    asked.refusal = refusal
    file = SystemDisk(tmp_path).open("segment", create=True)
    try:
        if held:
            file.sync()
        else:
            with pytest.raises(OSError, match="Input/output error"):
                file.sync()
        assert len(asked) == 1
    finally:
        file.close()

"""Keys, certificates and tokens that were used once are there after a power cut, by the law of the simulated disk.

A start writes what is missing and uses what it finds; what ends it is a kill or the power, at any operation.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from minikube_py.control_plane.private_files import make_private_folder, write_private
from minikube_py.env import Rng
from minikube_py.sim.disk import SimDisk
from minikube_py.store.data_dir import write_whole

STEPS = 12


def start(disk: SimDisk, name: str, data: bytes) -> bytes:
    """As a role does: what is there is made durable and used; else it is made."""
    disk.sync_folder()
    if name in disk.names():
        return contents(disk, name)
    temporary = f".{name}.{len(disk.names())}"
    disk.open(temporary, create=True).close()
    write_whole(disk, temporary, name, data)
    return data


def contents(disk: SimDisk, name: str) -> bytes:
    file = disk.open(name)
    try:
        return file.read_all()
    finally:
        file.close()


@pytest.mark.parametrize("seed", range(40))
def test_what_a_start_used_the_next_one_finds(seed: int) -> None:
    rng = Rng(seed)
    for cut in range(1, STEPS):
        disk = SimDisk(Rng(seed))
        used = b""
        for life in range(4):
            if rng.random() < 0.7:
                disk.cut_after(cut)
            try:
                found = start(disk, "ca.key", b"key of life %d" % life)
                assert used in (b"", found), "it was used, and is another now"
                used = found
            except OSError as error:
                assert error.errno == errno.EIO
            before, disk = disk, disk.crash(rng) if rng.random() < 0.6 else disk.killed()
            before.lose()
            whole = {b"key of life %d" % each for each in range(life + 1)}
            assert "ca.key" not in disk.names() or contents(disk, "ca.key") in whole


@pytest.mark.parametrize("seed", range(40))
def test_what_is_replaced_is_the_old_or_the_new(seed: int) -> None:
    rng = Rng(seed)
    for cut in range(1, STEPS):
        disk = SimDisk(Rng(seed))
        assert start(disk, "file", b"old" * 3000) == b"old" * 3000
        disk.open(".file.1", create=True).close()
        disk.cut_after(cut)
        done = True
        try:
            write_whole(disk, ".file.1", "file", b"new" * 2000)
        except OSError:
            done = False
        found = contents(disk.crash(rng), "file")
        assert found == b"new" * 2000 or (found == b"old" * 3000 and not done)


def test_on_a_real_disk_the_file_is_synced_before_its_name_and_then_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    replace, fsync, sync_data = os.replace, os.fsync, os.fdatasync

    def noted(what: str, act: object) -> object:
        def run(*given: object, **more: object) -> object:
            steps.append(what)
            return act(*given, **more)  # type: ignore[operator]

        return run

    monkeypatch.setattr(os, "replace", noted("name", replace))
    monkeypatch.setattr(os, "fsync", noted("folder", fsync))
    monkeypatch.setattr("minikube_py.env.sync_data", noted("data", sync_data))
    write_private(tmp_path / "file", b"data")
    assert steps == ["data", "name", "folder"]
    steps.clear()
    make_private_folder(tmp_path)
    assert steps == ["folder"]
    assert [each.name for each in tmp_path.iterdir()] == ["file"]

"""One process at a time, and who it is."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from minikube_py.errors import MinikubeError
from minikube_py.store.data_dir import LOCK_NAME, DataDir, DataDirBusy


def test_a_second_holder_is_told_who_the_first_is(tmp_path):
    with DataDir(tmp_path / "data"):
        with pytest.raises(DataDirBusy) as refusal:
            DataDir(tmp_path / "data")
        assert refusal.value.pid == os.getpid()
        message = str(refusal.value)
        assert str(os.getpid()) in message and str(tmp_path / "data") in message and "\n" not in message
    with DataDir(tmp_path / "data"):
        pass


def test_the_lock_falls_with_a_killed_process(tmp_path):
    script = (
        "import sys; from pathlib import Path; from minikube_py.store.data_dir import DataDir;"
        "d = DataDir(Path(sys.argv[1])); print('held', flush=True); sys.stdin.read()"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True
    )
    assert child.stdout.readline() == "held\n"
    with pytest.raises(DataDirBusy, match=f"process {child.pid};"):
        DataDir(tmp_path)
    child.kill()
    child.communicate()
    DataDir(tmp_path).close()


def test_a_stale_pid_in_the_file_does_not_matter(tmp_path):
    (tmp_path / LOCK_NAME).write_text("999999\n")
    DataDir(tmp_path).close()


def test_a_holder_that_did_not_say(tmp_path):
    with DataDir(tmp_path):
        (tmp_path / LOCK_NAME).write_text("")
        with pytest.raises(DataDirBusy, match="another process"):
            DataDir(tmp_path)


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(MinikubeError, match=r"file/data: cannot be used as data directory"):
        DataDir(tmp_path / "file" / "data")


def test_the_disk_within(tmp_path):
    with DataDir(tmp_path) as data:
        data.disk().open("x", create=True).close()
        assert (tmp_path / "store" / "x").exists()


def test_new_folders_are_durable_by_their_parents_before_anything_is_in_them(tmp_path, monkeypatch):
    synced = []

    def fsync(fd):
        synced.append(os.fstat(fd).st_ino)

    monkeypatch.setattr(os, "fsync", fsync)
    with DataDir(tmp_path / "a" / "b") as data:
        data.disk()
        folders = (tmp_path, tmp_path / "a", tmp_path / "a" / "b")
        assert sorted(synced) == sorted(folder.stat().st_ino for folder in folders)
        data.disk()
    assert len(synced) == 3

"""Only temporary folders that are ours beyond doubt, and whose process is gone, are removed by another process."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from minikube_py.cluster.temporary import OWNER, PREFIX, TemporaryFolder, remove_abandoned

NAME = f"{PREFIX}a1_b2c3d"


@pytest.fixture(scope="module")
def gone() -> int:
    """The id of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def made(where: Path, owner: str, name: str = NAME) -> Path:
    folder = where / name
    folder.mkdir(mode=0o700)
    (folder / "pki").mkdir()
    (folder / "pki" / "key").write_text("secret")
    (folder / OWNER).write_text(owner)
    return folder


def test_a_folder_whose_process_is_gone_is_removed(gone: int, tmp_path: Path) -> None:
    made(tmp_path, f"{gone}\n")
    remove_abandoned(str(tmp_path))
    assert list(tmp_path.iterdir()) == []


OTHERS: dict[str, Callable[[Path, int], object]] = {
    "of another name": lambda where, gone: made(where, f"{gone}\n", "minikube-py-a1_b2c3d"),
    "of a longer name": lambda where, gone: made(where, f"{gone}\n", f"{NAME}.kept"),
    "its process lives": lambda where, gone: made(where, f"{os.getpid()}\n"),
    "no process is named": lambda where, gone: made(where, ""),
    "half a number": lambda where, gone: made(where, f"{gone}"),
    "something else is named": lambda where, gone: made(where, "me\n"),
    "all processes are named": lambda where, gone: made(where, "-1\n"),
    "it has no lock": lambda where, gone: (made(where, "") / OWNER).unlink(),
    "others may read it": lambda where, gone: made(where, f"{gone}\n").chmod(0o755),
    "a link": lambda where, gone: (where / NAME).symlink_to(made(where, f"{gone}\n", "elsewhere")),
    "its lock is a link": lambda where, gone: linked(made(where, ""), made(where, f"{gone}\n", "elsewhere")),
    "its lock is a pipe": lambda where, gone: piped(made(where, "")),
}


def linked(folder: Path, other: Path) -> None:
    (folder / OWNER).unlink()
    (folder / OWNER).symlink_to(other / OWNER)


def piped(folder: Path) -> None:
    (folder / OWNER).unlink()
    os.mkfifo(folder / OWNER)


@pytest.mark.parametrize("name", list(OTHERS))
def test_others_stay(name: str, gone: int, tmp_path: Path) -> None:
    OTHERS[name](tmp_path, gone)
    before = sorted(tmp_path.rglob("*"))
    remove_abandoned(str(tmp_path))
    assert sorted(tmp_path.rglob("*")) == before


def test_a_folder_whose_lock_is_held_stays(gone: int, tmp_path: Path) -> None:
    with (made(tmp_path, f"{gone}\n") / OWNER).open() as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        remove_abandoned(str(tmp_path))
    assert (tmp_path / NAME).is_dir()


def test_another_users_folder_stays(gone: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, other = made(tmp_path, f"{gone}\n"), os.geteuid() + 1
    monkeypatch.setattr(os, "geteuid", lambda: other)
    remove_abandoned(str(tmp_path))
    assert folder.is_dir()


def test_a_living_folder_has_the_mark_that_is_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    folder = TemporaryFolder()
    assert (folder.path / OWNER).read_text() == f"{os.getpid()}\n"
    monkeypatch.setattr("minikube_py.cluster.temporary._lives", lambda pid: False)
    remove_abandoned(str(tmp_path))
    assert folder.path.is_dir()
    folder.clear()
    folder.clear()
    assert list(tmp_path.iterdir()) == []

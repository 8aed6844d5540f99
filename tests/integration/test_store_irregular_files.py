"""What has the name of a segment or snapshot and is no file: a start refuses, and a salvage names it as lost."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from test_store_extended_files import folder, started

from minikube_py.cli import main as cli
from minikube_py.control_plane.exit_codes import DAMAGED
from minikube_py.errors import Corruption
from minikube_py.store.spare import SPARE_NAME
from minikube_py.wal.segment import segment_name, segment_sequence

__all__ = ["folder"]


def dangling(path: Path) -> None:
    path.symlink_to(path.parent / "unmounted" / path.name)


def in_a_circle(path: Path) -> None:
    path.symlink_to(path)


KINDS = {"a dangling link": dangling, "a circle": in_a_circle, "a FIFO": os.mkfifo, "a folder": Path.mkdir}


def newest_segment(folder: Path) -> Path:
    return max(folder.glob("wal-*.log"))


def next_segment(folder: Path) -> Path:
    return folder / segment_name((segment_sequence(newest_segment(folder).name) or 0) + 1)


def oldest_segment(folder: Path) -> Path:
    return min(folder.glob("wal-*.log"))


def newest_snapshot(folder: Path) -> Path:
    return max(folder.glob("*.snap"))


@pytest.mark.parametrize("which", [newest_segment, next_segment, oldest_segment, newest_snapshot])
@pytest.mark.parametrize("kind", KINDS)
async def test_a_start_refuses_and_changes_nothing(folder: Path, kind: str, which: Callable[[Path], Path]) -> None:
    path = which(folder)
    if path.exists():
        path.rename(path.with_suffix(".away"))
    KINDS[kind](path)
    before = sorted(os.listdir(folder))
    with pytest.raises(Corruption, match=re.escape(f"{path}: not a file that can be read and written (")) as refused:
        await started(folder)
    assert "mount that disk" in str(refused.value) and "store salvage" in str(refused.value)
    assert sorted(os.listdir(folder)) == before


async def test_a_start_refuses_where_it_may_not_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, system_open = newest_segment(folder), os.open

    def forbidden(name: Path, *arguments: int) -> int:
        if name == path:
            raise PermissionError(13, "Permission denied", str(name))
        return system_open(name, *arguments)

    monkeypatch.setattr(os, "open", forbidden)
    with pytest.raises(Corruption, match=r"Permission denied.*correct its permissions"):
        await started(folder)


async def test_a_link_to_a_file_is_as_the_file(folder: Path) -> None:
    path = newest_segment(folder)
    path.rename(path.with_suffix(".elsewhere"))
    path.symlink_to(path.with_suffix(".elsewhere"))
    member = await started(folder)
    assert len(member.state.index.current) == 150
    await member.stop()


@pytest.mark.parametrize("kind", ["a dangling link", "a circle", "a FIFO"])
async def test_in_place_of_a_spare_it_is_removed(folder: Path, kind: str) -> None:
    (folder / SPARE_NAME).unlink(missing_ok=True)
    KINDS[kind](folder / SPARE_NAME)
    member = await started(folder)
    assert not os.path.lexists(folder / SPARE_NAME) or (folder / SPARE_NAME).is_file()
    await member.stop()


@pytest.mark.parametrize("which", [newest_segment, next_segment])
@pytest.mark.parametrize("kind", KINDS)
async def test_salvage_names_it_as_lost(
    folder: Path, kind: str, which: Callable[[Path], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    path = which(folder)
    path.unlink(missing_ok=True)
    KINDS[kind](path)
    assert cli.main(["store", "salvage", str(folder)]) == DAMAGED
    assert re.search(rf"lost: {path.name} at .*: not a file that can be read \(.*\): it may", capsys.readouterr().out)


async def test_salvage_needs_no_snapshot_that_the_log_holds(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = newest_snapshot(folder)
    path.unlink()
    KINDS["a FIFO"](path)
    cli.main(["store", "salvage", str(folder)])
    assert f"lost: {path.name} at offset 0: 0 bytes: not a file that can be read (" in capsys.readouterr().out


@pytest.mark.parametrize("there", ["", "member", "members/store-1"])
async def test_salvage_finds_the_member_in_the_folder_of_up(
    folder: Path, there: str, tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    up = tmp_path_factory.mktemp("up")
    shutil.copytree(folder, up / there / "store")
    code = cli.main(["store", "salvage", str(up)])
    out, err = capsys.readouterr()
    if there.startswith("members"):
        assert code == 1 and f"several members; name one: {up}/members/store-1" in err
    else:
        assert code == 0 and "with 150 keys" in out

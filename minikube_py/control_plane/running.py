"""The running control planes of this user, so that `minikube-py store status` finds the only one.

Each `up` keeps a note in a per-user folder while it runs; one whose process is gone is ignored."""

from __future__ import annotations

import contextlib
import json
import os
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path

import orjson

from minikube_py.control_plane.errors import SetupError
from minikube_py.control_plane.private_files import write_private
from minikube_py.env import read_file
from minikube_py.store.data_dir import LOCK_NAME


@dataclass(frozen=True, slots=True)
class Running:
    pid: int
    data_dir: Path


def notes_folder() -> Path:
    """`$XDG_RUNTIME_DIR/minikube-py`, or a per-user folder in the temporary one."""
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    if runtime and Path(runtime).is_dir():
        return Path(runtime, "minikube-py")
    return Path(tempfile.gettempdir(), f"minikube-py-{os.getuid()}")


class Note:
    """Records that this process runs the control plane in `data_dir`, until `remove`. If it cannot be written, the user
    has to name the folder."""

    def __init__(self, data_dir: Path) -> None:
        self._path: Path | None = None
        folder = notes_folder()
        for _ in range(2):
            # Retry if another process's end removed the empty folder in between.
            try:
                folder.mkdir(mode=0o700, exist_ok=True)
                if not _is_own(folder):
                    return
                path = folder / f"{os.getpid()}.json"
                write_private(path, json.dumps({"dataDir": str(data_dir)}).encode())
            except (OSError, SetupError):
                continue
            self._path = path
            return

    def remove(self) -> None:
        path, self._path = self._path, None
        if path is not None:
            path.unlink(missing_ok=True)
            with contextlib.suppress(OSError):
                path.parent.rmdir()


def running() -> list[Running]:
    """The running ones, by pid."""
    folder = notes_folder()
    if not folder.is_dir() or not _is_own(folder):
        return []
    found = []
    for path in sorted(folder.glob("*.json")):
        if not path.stem.isdigit():
            continue
        pid = int(path.stem)
        if not _lives(pid):
            path.unlink(missing_ok=True)
            continue
        try:
            data_dir = Path(orjson.loads(read_file(path))["dataDir"])
            holds = (data_dir / LOCK_NAME).read_text(encoding="ascii").strip() == str(pid)
        except (OSError, ValueError, KeyError, TypeError):
            holds = False
        if holds:
            found.append(Running(pid, data_dir))
    return sorted(found, key=lambda each: each.pid)


def the_one() -> Path:
    """The data folder of the only running control plane. Raises: SetupError if there is none, or several."""
    found = running()
    if not found:
        raise SetupError("no control plane of yours is running; start one by `minikube-py up`, or give its --data-dir")
    if len(found) > 1:
        folders = ", ".join(str(each.data_dir) for each in found)
        raise SetupError(f"several control planes are running: {folders}; choose one with --data-dir")
    return found[0].data_dir


def _is_own(folder: Path) -> bool:
    """Other users must not have written there."""
    found = folder.stat()
    return found.st_uid == os.getuid() and not stat.S_IMODE(found.st_mode) & 0o077


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True

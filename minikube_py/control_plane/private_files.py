"""Files that only their owner may read: keys, tokens, kubeconfigs. Written atomically."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from minikube_py.control_plane.errors import SetupError
from minikube_py.env import SystemDisk, read_file, sync_data
from minikube_py.store.data_dir import make_folder, sync_folder, write_whole
from minikube_py.store.room import FULL, lacking


def write_private(path: Path, data: bytes) -> None:
    """Replaces `path` by `data` with mode 0600; atomic and durable. A file that already holds `data` is not written; on
    a full disk the old file is overwritten in place.

    Raises: SetupError."""
    try:
        if _holds(path, data):
            return
        _replace(path, data)
    except OSError as error:
        full = error.errno in FULL
        if full and _overwrite(path, data):
            return
        why = lacking(error, SystemDisk(path.parent)) if full else "name an existing folder that can be written to"
        raise SetupError(f"cannot write {path}: {error.strerror}; {why}") from error


def _holds(path: Path, data: bytes) -> bool:
    try:
        return path.stat().st_mode & 0o777 == 0o600 and path.read_bytes() == data
    except OSError:
        return False


def _replace(path: Path, data: bytes) -> None:
    fd, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    os.close(fd)
    try:
        write_whole(SystemDisk(path.parent), os.path.basename(temporary), path.name, data)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _overwrite(path: Path, data: bytes) -> bool:
    """False if the old file is too small."""
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        if os.fstat(fd).st_size + 4095 & ~4095 < len(data) or os.pwrite(fd, data, 0) != len(data):
            return False
        os.ftruncate(fd, len(data))
        sync_data(fd)
        return True
    except OSError:
        return False
    finally:
        os.close(fd)


def make_private_folder(path: Path) -> Path:
    """Makes its content durable, even if the writer ended before that. Raises: SetupError."""
    try:
        make_folder(path)
        sync_folder(path)
    except OSError as error:
        raise SetupError(f"cannot make the folder {path}: {error.strerror}; name another one") from error
    return path


def read_text(path: Path, what: str) -> str:
    """Raises: SetupError, naming `what` the file should contain."""
    try:
        return read_file(path).decode()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not text"
        made = "" if path.parent.is_dir() else " (`minikube-py init-secrets --dir D` makes those of --secrets-dir)"
        raise SetupError(f"cannot read the {what} {path}: {reason}; name one that can be read{made}") from error

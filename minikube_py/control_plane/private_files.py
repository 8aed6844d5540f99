"""Files that only their owner may read: keys, tokens, kubeconfigs. Written whole or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from minikube_py.control_plane.errors import SetupError


def write_private(path: Path, data: bytes) -> None:
    """Replaces `path` by `data` with mode 0600; a reader sees the old file or the whole new one.

    Raises: SetupError.
    """
    try:
        fd, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        try:
            with os.fdopen(fd, "wb") as file:
                file.write(data)
            os.replace(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise
    except OSError as error:
        reason = error.strerror
        raise SetupError(f"cannot write {path}: {reason}; name a folder that exists and can be written to") from error


def make_private_folder(path: Path) -> Path:
    """Raises: SetupError."""
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise SetupError(f"cannot make the folder {path}: {error.strerror}; name another one") from error
    return path


def read_text(path: Path, what: str) -> str:
    """Raises: SetupError, naming `what` the file was to hold."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not text"
        raise SetupError(f"cannot read the {what} {path}: {reason}; name a file that exists") from error

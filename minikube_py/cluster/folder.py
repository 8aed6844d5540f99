"""The folder of a cluster, temporary unless its user named one and then deleted with the cluster; and its
kubeconfigs."""

from __future__ import annotations

import os
import tempfile
import weakref
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from minikube_py.cluster.owner import Owner
from minikube_py.control_plane.kubeconfig import Access, kubeconfig_text
from minikube_py.control_plane.private_files import write_private

DEFAULT: Final = "default"
USUAL: Final = "/tmp"
IN_MEMORY: Final = "/dev/shm"
"""To make and remove files there waits for no disk."""


class Folder:
    """`path`; `let_go` is called in a child forked while it exists: there it belongs to the parent."""

    def __init__(self, named: Path | None, let_go: Callable[[], None]) -> None:
        self.path = named or Path(tempfile.mkdtemp(prefix="minikube-py-", dir=place()))
        self._temporary = named is None
        if self._temporary:
            try:
                # For its removal: a start may fail for want of descriptors.
                self._reserved = os.open(self.path, os.O_RDONLY)
            except OSError:
                self.path.rmdir()
                raise
        self.owner = Owner()
        self.let_go = let_go
        self._written: set[str] = set()
        """Kubeconfigs of this start: a kept folder has those of earlier ones, with their ports."""
        _standing.add(self)

    def clear(self) -> None:
        """Idempotent."""
        _standing.discard(self)
        if self._temporary and self.owner.is_here:
            self._temporary = False
            os.close(self._reserved)
            _remove(self.path)

    def kubeconfig(self, namespace: str, access: Access) -> Path:
        """An administrator's, with that namespace as the context's."""
        path = self.path / ("kubeconfig" if namespace == DEFAULT else f"kubeconfig-{namespace}")
        if namespace not in self._written or not path.exists():
            self._written.add(namespace)
            text = kubeconfig_text(access, namespace="" if namespace == DEFAULT else namespace)
            write_private(path, text.encode())
        return path


def place() -> str:
    """Of temporary folders: in memory, unless the user has chosen another."""
    usual = tempfile.gettempdir()
    return IN_MEMORY if usual == USUAL and os.access(IN_MEMORY, os.W_OK | os.X_OK) else usual


def _remove(folder: Path) -> None:
    """As far as it is possible, by one descriptor at a time: shutil.rmtree needs two for each level."""
    with suppress(OSError):
        for name in os.listdir(folder):
            each = folder / name
            if each.is_dir() and not each.is_symlink():
                _remove(each)
            else:
                with suppress(OSError):
                    each.unlink()
        folder.rmdir()


_standing: weakref.WeakSet[Folder] = weakref.WeakSet()


def _forked() -> None:
    for each in list(_standing):
        each.let_go()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)

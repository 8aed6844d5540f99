"""The folder of a cluster, temporary unless its user named one and then deleted with the cluster; and its
kubeconfigs."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Final

from minikube_py.cluster.errors import STOPPED, ClusterError
from minikube_py.cluster.owner import Owner
from minikube_py.cluster.temporary import TemporaryFolder
from minikube_py.control_plane.errors import SetupError
from minikube_py.control_plane.kubeconfig import Access, kubeconfig_text
from minikube_py.control_plane.private_files import write_private

DEFAULT: Final = "default"


class Folder:
    """`path`; `let_go` is called in a child forked while it exists: there it belongs to the parent."""

    def __init__(self, named: Path | None, let_go: Callable[[], None]) -> None:
        self._temporary: TemporaryFolder | None = None
        if named is None:
            self._temporary = TemporaryFolder()
            named = self._temporary.path
        self.path = named
        self.owner = Owner()
        self.let_go = let_go
        self._written: set[str] = set()
        """Kubeconfigs of this start: a kept folder has those of earlier ones, with their ports."""
        _standing.add(self)

    def clear(self) -> None:
        """Idempotent."""
        _standing.discard(self)
        if self._temporary is not None:
            self._temporary.clear()

    def kubeconfig(self, namespace: str, access: Access) -> Path:
        """An administrator's, with that namespace as the context's. Raises: ClusterError if the cluster ends."""
        path = self.path / ("kubeconfig" if namespace == DEFAULT else f"kubeconfig-{namespace}")
        if namespace not in self._written or not path.exists():
            self._written.add(namespace)
            text = kubeconfig_text(access, namespace="" if namespace == DEFAULT else namespace)
            try:
                write_private(path, text.encode())
            except SetupError as error:
                raise error if self in _standing else ClusterError(STOPPED) from None
        return path


_standing: weakref.WeakSet[Folder] = weakref.WeakSet()


def _forked() -> None:
    for each in list(_standing):
        each.let_go()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)

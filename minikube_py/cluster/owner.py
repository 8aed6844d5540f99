"""The process that owns a cluster: a child forked meanwhile has a copy of it, which it must leave alone."""

from __future__ import annotations

import os
from typing import Final

from minikube_py.cluster.errors import ClusterError

FORKED: Final = "this process was forked while the cluster ran, which is its parent's: start one here"


class Owner:
    """The process that makes this."""

    def __init__(self) -> None:
        self._process = os.getpid()

    @property
    def is_here(self) -> bool:
        return os.getpid() == self._process

    def require(self) -> None:
        """Raises: ClusterError in a child forked since."""
        if not self.is_here:
            raise ClusterError(FORKED)

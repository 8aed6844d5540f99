"""The contents of `from minikube_py import ...`. Everything else is private, and may change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from minikube_py.api.errors import StatusError
from minikube_py.cluster.errors import ClusterError, WaitTimeout
from minikube_py.cluster.local import AsyncCluster, Cluster
from minikube_py.kubelet.config import NodeSpec

if TYPE_CHECKING:
    from minikube_py.sim.loop import SimFailure

__all__ = ["AsyncCluster", "Cluster", "ClusterError", "NodeSpec", "SimFailure", "StatusError", "WaitTimeout"]


def __getattr__(name: str) -> Any:
    """SimFailure comes with the simulation, which only virtual time needs."""
    if name != "SimFailure":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from minikube_py.sim.loop import SimFailure

    return SimFailure

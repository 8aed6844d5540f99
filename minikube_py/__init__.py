"""A whole Kubernetes control plane in pure Python, with range-query indexes inside its store."""

from __future__ import annotations

from sys import modules
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from minikube_py.cluster.public import AsyncCluster as AsyncCluster
    from minikube_py.cluster.public import Cluster as Cluster
    from minikube_py.cluster.public import ClusterError as ClusterError
    from minikube_py.cluster.public import StatusError as StatusError
    from minikube_py.cluster.public import WaitTimeout as WaitTimeout

__version__ = "0.1.0"
_PUBLIC = ("AsyncCluster", "Cluster", "ClusterError", "StatusError", "WaitTimeout")


def __getattr__(name: str) -> Any:
    """Imported on first use: they load the whole control plane."""
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import gc
    from importlib import import_module

    # Imported objects stay. Garbage collections would walk them many times, so freeze them.
    unwalked = gc.isenabled() and not gc.get_freeze_count() and f"{__name__}.cluster.public" not in modules
    if unwalked:
        gc.disable()
    try:
        return getattr(import_module("minikube_py.cluster.public"), name)
    finally:
        if unwalked:
            gc.freeze()
            gc.unfreeze()
            gc.enable()

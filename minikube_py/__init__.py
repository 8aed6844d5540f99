"""A whole Kubernetes control plane in pure Python, with range-query indexes inside its store."""

from __future__ import annotations

from sys import modules
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from minikube_py.cluster.public import AsyncCluster, Cluster, ClusterError, NodeSpec, SimFailure  # noqa: I001 (a budget of lines)
    from minikube_py.cluster.public import StatusError, WaitTimeout

__version__ = "0.1.0"
__all__ = ["AsyncCluster", "Cluster", "ClusterError", "NodeSpec", "SimFailure", "StatusError", "WaitTimeout"]


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])


def __getattr__(name: str) -> Any:
    """Imported on first use: they load the whole control plane."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import gc
    from importlib import import_module

    # Imported objects stay. Garbage collections would walk them many times, so freeze them.
    unwalked = f"{__name__}.cluster.public" not in modules and gc.isenabled() and not gc.get_freeze_count()
    if unwalked:
        gc.disable()
    try:
        return getattr(import_module("minikube_py.cluster.public"), name)
    finally:
        if unwalked:
            gc.freeze()
            gc.unfreeze()
            gc.enable()

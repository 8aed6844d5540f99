"""A whole Kubernetes control plane in pure Python, with range-query indexes inside its store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from minikube_py.cluster.local import Cluster as Cluster
    from minikube_py.cluster.virtual import VirtualCluster as VirtualCluster

__version__ = "0.1.0"

_DOORS = {"Cluster": "minikube_py.cluster.local", "VirtualCluster": "minikube_py.cluster.virtual"}


def __getattr__(name: str) -> Any:
    """Imported when first asked for: they bring the whole control plane."""
    module = _DOORS.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(module), name)

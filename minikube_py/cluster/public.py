"""The contents of `from minikube_py import ...`. Everything else is private, and may change."""

from __future__ import annotations

from minikube_py.api.errors import StatusError
from minikube_py.cluster.errors import ClusterError, WaitTimeout
from minikube_py.cluster.local import AsyncCluster, Cluster

__all__ = ["AsyncCluster", "Cluster", "ClusterError", "StatusError", "WaitTimeout"]

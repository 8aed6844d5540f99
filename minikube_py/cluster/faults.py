"""What can go wrong on demand, by name: each acts on the parts of a running control plane, in real and in virtual time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from minikube_py.cluster.errors import ClusterError
from minikube_py.control_plane.plane import Plane
from minikube_py.kubelet.fake import FakeKubelet


def _kubelet(plane: Plane) -> FakeKubelet:
    kubelet = plane.components.get("kubelet")
    if not isinstance(kubelet, FakeKubelet):
        raise ClusterError("this cluster has no kubelet")
    return kubelet


def node_down(plane: Plane, name: str) -> None:
    """It falls silent; its pods stay as they are, whatever is requested from them. Idempotent."""
    _kubelet(plane).power_off(name)


def node_up(plane: Plane, name: str) -> None:
    """It is there again, and deals with what was requested from its pods meanwhile. Idempotent."""
    _kubelet(plane).power_on(name)


def all_well(plane: Plane) -> None:
    """What was injected is over."""
    if "kubelet" in plane.components:
        _kubelet(plane).power_on_all()


ON_DEMAND: Final[dict[str, Callable[..., Any]]] = {each.__name__: each for each in (node_down, node_up, all_well)}


class Node:
    """A fake node of a running cluster. Raises: InvalidRequest where it is not played here."""

    def __init__(self, name: str, inject: Callable[..., Any]) -> None:
        self.name = name
        self._inject = inject

    def down(self) -> None:
        """It loses its power: no heartbeats, and its pods stay as they are. After 40 s it counts as lost."""
        self._inject("node_down", self.name)

    def up(self) -> None:
        """It has its power back."""
        self._inject("node_up", self.name)

"""Extended resources backed by devices, on nodes without a native amount: NodeResourcesFit leaves them to
DynamicResources, and scores such nodes by devices. Source: `shouldDelegateResourceToDRA` and
`calculateDRAExtendedResourceAllocatableRequest` of plugins/noderesources.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from minikube_py.scheduler.devices.extended import names_in
from minikube_py.scheduler.devices.known import Devices
from minikube_py.scheduler.devices.views import CLASSES, ClassView

if TYPE_CHECKING:
    from minikube_py.scheduler.columns import Nodes
    from minikube_py.scheduler.framework import IntArray
    from minikube_py.scheduler.kinds import NeededKind
    from minikube_py.scheduler.objects import NodeInfo, PodInfo

Classes = Mapping[str, ClassView]
"""By resource, the class that backs it."""
NO_CLASSES: Final[Classes] = {}


class ByDevices:
    """Used by one plugin; without a cluster, no class backs any resource."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle

    @property
    def _knows(self) -> bool:
        return getattr(self._handle, "kinds", None) is not None

    def kinds_needed(self, pod: PodInfo) -> Sequence[NeededKind]:
        if not self._knows or not names_in(pod.spec):
            return ()
        Devices.of(self._handle)
        return (CLASSES,)

    def sign_pod(self, pod: PodInfo) -> object:
        """Devices change without any change of the node."""
        return None if self.of(pod) else ()

    def of(self, pod: PodInfo) -> Classes:
        if not pod.spec.asks or not self._knows:
            return NO_CLASSES
        class_of = Devices.of(self._handle).class_of
        return {name: view for name in names_in(pod.spec) if (view := class_of(name)) is not None}

    def totals(self, node: NodeInfo, view: ClassView) -> tuple[int, int]:
        """How many devices the node can reach, and how many are in use."""
        return Devices.of(self._handle).totals(node, view)

    def columns(self, nodes: Nodes, view: ClassView, capacity: IntArray, used: IntArray) -> tuple[IntArray, IntArray]:
        """Both arrays, with device counts where the capacity is 0."""
        capacity, used = capacity.copy(), used.copy()
        Devices.of(self._handle).begin()
        for place, node in enumerate(nodes.infos()):
            if node is not None and not capacity[place]:
                count, held = self.totals(node, view)
                if count:
                    capacity[place], used[place] = np.int64(count), np.int64(held)
        return capacity, used

"""Upstream's default plugins that are not built: a pod that needs one is held, and its message says which.

A pod that was bound as if it had not asked would run where it must not. A configuration that disables the plugin
lets its constraint pass, as upstream does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from minikube_py.scheduler.config import ConfigError
from minikube_py.scheduler.configuration.args import with_defaults
from minikube_py.scheduler.framework import (
    SKIP,
    Code,
    CycleState,
    Diagnosis,
    EventRegistration,
    PostFilterResult,
    PreFilterResult,
    Status,
)
from minikube_py.scheduler.objects import PodInfo

if TYPE_CHECKING:
    from minikube_py.scheduler.columns import NodeColumns

CONSTRAINTS: Final[Mapping[str, str]] = {
    "DynamicResources": "a resource claim",
}
"""By plugin, what a pod has that needs it."""


class NotBuilt:
    """PreFilter: turns down pods whose spec needs the plugin `name`."""

    node_local = True

    def __init__(self, name: str, args: Mapping[str, Any] | None = None, handle: object = None) -> None:
        if args and args != with_defaults(name, {}):
            raise ConfigError(f'plugin "{name}" takes no arguments yet; leave them out')
        self.name = name
        why = f"pod has {CONSTRAINTS[name]}, which this scheduler cannot honour yet ({name} is not built)"
        self._held = Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, why)

    def events_to_register(self) -> Sequence[EventRegistration]:
        """Nothing that happens to the cluster helps."""
        return ()

    def pre_filter(
        self, state: CycleState, pod: PodInfo, nodes: NodeColumns
    ) -> tuple[PreFilterResult | None, Status | None]:
        return None, self._held if self.name in pod.spec.not_built else SKIP


class Devices(NotBuilt):
    """DynamicResources: holds pods with claims, and has none to give back."""

    def post_filter(
        self, state: CycleState, pod: PodInfo, diagnosis: Diagnosis
    ) -> tuple[PostFilterResult | None, Status]:
        if diagnosis.pre_filter_message:
            # Upstream's plugin looks for what its own PreFilter wrote.
            return None, Status(Code.ERROR, "not found")
        return None, Status(Code.UNSCHEDULABLE, "no new claims to deallocate")


FACTORIES: Final[Mapping[str, Callable[..., NotBuilt]]] = {
    name: partial(Devices if name == "DynamicResources" else NotBuilt, name) for name in CONSTRAINTS
}

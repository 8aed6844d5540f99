"""Flow scheduling: pods are placed in rounds, each a minimum-cost flow through a graph priced by a cost model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from minikube_py.scheduler.flow.model import CLUSTER, Arc, Arcs, CostModel, Machine, MachineClass, Machines, Task

__all__ = ["CLUSTER", "Arc", "Arcs", "CostModel", "Machine", "MachineClass", "Machines", "Task"]


def __getattr__(name: str) -> Any:
    """Imported on first use: most schedulers place nothing by flow."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.model"), name)

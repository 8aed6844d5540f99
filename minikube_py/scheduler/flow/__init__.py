"""Flow scheduling: pods are placed in rounds, each a minimum-cost flow through a graph priced by a cost model."""

from minikube_py.scheduler.flow.model import CLUSTER, Arc, Arcs, CostModel, Machine, MachineClass, Machines, Task

__all__ = ["CLUSTER", "Arc", "Arcs", "CostModel", "Machine", "MachineClass", "Machines", "Task"]

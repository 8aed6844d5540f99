"""Flow scheduling: pods are placed by rounds, each the cheapest flow through a graph that a cost model prices."""

from minikube_py.scheduler.flow.model import CLUSTER, Arc, Arcs, CostModel, Machine, MachineClass, Machines, Task

__all__ = ["CLUSTER", "Arc", "Arcs", "CostModel", "Machine", "MachineClass", "Machines", "Task"]

"""The plugin that a profile enables to be placed by flow: it says how, and `rounds` does it.

profiles:
- schedulerName: flow
  plugins: {multiPoint: {enabled: [{name: FlowPlacement}]}}
  pluginConfig:
  - name: FlowPlacement
    args: {costModel: CPU_MEM, solver: auto}
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from minikube_py.scheduler.budgets import BUDGETS, Budgets, project_budget
from minikube_py.scheduler.configuration import own_args
from minikube_py.scheduler.flow.model import CostModel
from minikube_py.scheduler.flow.models import model_named
from minikube_py.scheduler.flow.solvers import solver_named
from minikube_py.scheduler.framework import NODE, POD, Action, ClusterEvent, EventRegistration, Handle

NAME: Final = "FlowPlacement"


@dataclass(frozen=True, slots=True)
class FlowArgs:
    """`cost_model`: one of `flow.models`, or FILE.py:CLASS; `model_args` are its own. `max_pods` per round, `max_arcs`
    from machine classes. `retry_seconds`: when pods that a price kept waiting are priced again. `preemption`: evicts
    running pods if a waiting one is worth more."""

    cost_model: str = "CPU_MEM"
    model_args: Mapping[str, Any] = field(default_factory=dict)
    solver: str = "auto"
    max_pods: int = 10_000
    max_arcs: int = 300_000
    retry_seconds: float = 1.0
    preemption: bool = False


KINDS: Final[Mapping[str, own_args.Kind]] = {
    "costModel": own_args.text,
    "modelArgs": own_args.mapped(own_args.anything),
    "solver": own_args.text,
    "maxPods": own_args.whole(1, 10_000_000),
    "maxArcs": own_args.whole(1, 10_000_000),
    "retrySeconds": own_args.number(0.001, 1e6),
    "preemption": own_args.flag,
}


def read_args(args: Any) -> FlowArgs:
    """Raises: ConfigError."""
    given = own_args.read_args(f'plugin "{NAME}"', args, KINDS)
    named = zip(FlowArgs.__slots__, KINDS, strict=True)
    return FlowArgs(**{name: given[field] for name, field in named if field in given})


class FlowPlacement:
    """Implements no point: the profile's pods are placed in rounds. Raises from the constructor: ConfigError."""

    name = NAME
    places_in_rounds = True

    def __init__(self, args: Mapping[str, Any], handle: Handle) -> None:
        self.args = read_args(args)
        self.solver = solver_named(self.args.solver)
        rng: Any = handle.rng
        self.model: CostModel = model_named(self.args.cost_model, self.args.model_args, rng)
        self._budgets = handle.informer(BUDGETS, project_budget) if self.args.preemption else None

    def budgets(self) -> Budgets:
        """The known budgets; used with `preemption`."""
        return Budgets(self._budgets.store.values() if self._budgets is not None else ())

    def events_to_register(self) -> Sequence[EventRegistration]:
        """Events that may change a price."""
        return (
            EventRegistration(ClusterEvent(POD, Action.DELETE | Action.ADD)),
            EventRegistration(ClusterEvent(NODE, Action.ADD | Action.UPDATE | Action.DELETE)),
        )

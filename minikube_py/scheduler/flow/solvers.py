"""Solvers of minimum-cost flow behind one protocol: numpy (built in), LEMON (pylmcf) and OR-tools.

All find flows of equal cost; among several optimal flows each solver chooses its own, deterministically.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Final, NamedTuple, Protocol

import numpy as np

from minikube_py.errors import to_install
from minikube_py.own_code import raised, told
from minikube_py.scheduler.configuration.merging import ConfigError
from minikube_py.scheduler.flow.problem import Infeasible, Problem, reduced
from minikube_py.scheduler.flow.shortest_paths import successive_shortest_paths
from minikube_py.scheduler.framework import IntArray

logger = logging.getLogger(__name__)
AUTO: Final = "auto"


class Solved(NamedTuple):
    """`flow`: of each arc; `by`: the name of the solver that found it, which may be another than the one asked."""

    flow: IntArray
    by: str


class Solver(Protocol):
    @property
    def name(self) -> str: ...

    def solve(self, problem: Problem) -> IntArray:
        """The flow of each arc. Raises: Infeasible."""

    def solved(self, problem: Problem) -> Solved:
        """Raises: Infeasible."""


class _NoRoom(Exception):
    """The problem exceeds a solver's arithmetic."""


class _Reducing:
    """`core` only gets problems without lower bounds and negative costs; one that raises _NoRoom leaves the problem to
    the first other solver that can be loaded."""

    def __init__(self, name: str, core: Callable[[Problem], IntArray]) -> None:
        self.name = name
        self._core = core

    def solve(self, problem: Problem) -> IntArray:
        return self.solved(problem).flow

    def solved(self, problem: Problem) -> Solved:
        try:
            return Solved(self._solve(problem), self.name)
        except _NoRoom:
            return _fastest(self.name).solved(problem)

    def _solve(self, problem: Problem) -> IntArray:
        simple, base, sign = reduced(problem)
        if (simple.capacity < 0).any() or simple.supply.sum() != 0:
            raise Infeasible("a lower bound is above its capacity, or supplies do not add up to 0")
        if not simple.supply.any():
            return base
        if not len(simple.start):
            raise Infeasible("there is supply, and there are no arcs")
        return base + sign * self._core(simple)


def _lemon(problem: Problem) -> IntArray:
    import pylmcf

    arrays = (np.ascontiguousarray(array, np.int64) for array in problem[:5])
    try:
        found = pylmcf.lmcf_lct(*arrays)
    except OverflowError as error:
        # The largest cost times the cube of the number of nodes exceeds 2^58.
        raise _NoRoom from error
    except (RuntimeError, ValueError) as error:
        raise Infeasible(str(error)) from error
    return np.asarray(found, np.int64)


def _ortools(problem: Problem) -> IntArray:
    from ortools.graph.python import min_cost_flow

    solver = min_cost_flow.SimpleMinCostFlow()
    arcs = solver.add_arcs_with_capacity_and_unit_cost(problem.start, problem.end, problem.capacity, problem.cost)
    solver.set_nodes_supplies(np.arange(len(problem.supply)), problem.supply)
    status = solver.solve()
    if status != solver.OPTIMAL:
        raise Infeasible(f"OR-tools says {status.name}")
    return np.asarray(solver.flows(arcs), np.int64)


NUMPY: Final = _Reducing("numpy", successive_shortest_paths)
_WITH_PACKAGE: Final[Mapping[str, tuple[str, str, Solver]]] = {
    "ortools": ("ortools.graph.python.min_cost_flow", "flow-ortools", _Reducing("ortools", _ortools)),
    "lemon": ("pylmcf", "flow", _Reducing("lemon", _lemon)),
}
"""By name: the module, the extra with its package, the solver. The first available is the fastest."""
NAMES: Final = (AUTO, NUMPY.name, *_WITH_PACKAGE)


def available() -> dict[str, Solver]:
    """The solvers whose packages are installed, fastest first."""
    found = {name: each[2] for name, each in _WITH_PACKAGE.items() if find_spec(each[0].partition(".")[0]) is not None}
    return {**found, NUMPY.name: NUMPY}


def _fault(name: str) -> str:
    """Why the package of a solver cannot be loaded; "" once it is."""
    try:
        for module in _WITH_PACKAGE.get(name, ())[:1]:
            import_module(module)
    except raised() as error:
        return told(error)
    return ""


def _fastest(but: str = "") -> Solver:
    for name, solver in available().items():
        if name != but and not (why := _fault(name)):
            return solver
        if name != but:
            logger.warning("solver %s is installed and cannot be loaded: %s; the next one is taken", name, why)
    return NUMPY


def solver_named(name: str) -> Solver:
    """`auto` is the fastest one that can be loaded. Its package is loaded now, not in the first round, which others
    would wait for. Raises: ConfigError."""
    if name == AUTO:
        return _fastest()
    if name in (there := available()):
        if why := _fault(name):
            raise ConfigError(f"solver {name} cannot be loaded: {why}; install it again, or take numpy")
        return there[name]
    if name in _WITH_PACKAGE:
        module, extra, _ = _WITH_PACKAGE[name]
        raise ConfigError(f"solver {name} needs {module.partition('.')[0]}; {to_install(extra)}, or take numpy")
    raise ConfigError(f"there is no solver {name!r}; the solvers are: {', '.join(NAMES)}")

"""A minimum-cost flow problem as arrays, and the checks of a solution.

Solvers get problems without lower bounds and negative costs: `reduced` transforms any problem.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from minikube_py.scheduler.framework import IntArray

COST_MAX: Final = 1 << 40
"""Keeps the cost of a path through a million nodes within int64."""
AMOUNT_MAX: Final = 1 << 31


class Infeasible(Exception):
    """Not all supply can reach the demand."""


class Problem(NamedTuple):
    """`supply`: by node, negative for demand, sum 0. The others by arc; `lower` is the minimum flow, None for 0
    everywhere. All int64."""

    supply: IntArray
    start: IntArray
    end: IntArray
    capacity: IntArray
    cost: IntArray
    lower: IntArray | None = None

    def price(self, flow: IntArray) -> int:
        # As Python ints: the sum of many large products may exceed int64.
        used = np.flatnonzero(flow)
        return sum(int(f) * int(c) for f, c in zip(flow[used].tolist(), self.cost[used].tolist(), strict=True))


class Reduced(NamedTuple):
    """`flow = base + sign * (solution of the problem)`."""

    problem: Problem
    base: IntArray
    sign: IntArray


def reduced(problem: Problem) -> Reduced:
    """The equivalent problem with lower bounds of 0 and costs of 0 or more: required flow is already sent, and an arc
    with negative cost is full, with a reverse arc of the opposite cost."""
    lower = np.zeros(len(problem.start), np.int64) if problem.lower is None else problem.lower
    pays = problem.cost < 0
    base = np.where(pays, problem.capacity, lower)
    if not (base.any() or pays.any()):
        return Reduced(problem._replace(lower=None), base, np.ones(len(base), np.int64))
    supply = problem.supply.copy()
    np.subtract.at(supply, problem.start, base)
    np.add.at(supply, problem.end, base)
    return Reduced(
        Problem(
            supply,
            np.where(pays, problem.end, problem.start),
            np.where(pays, problem.start, problem.end),
            problem.capacity - lower,
            np.abs(problem.cost),
        ),
        base,
        np.where(pays, -1, 1),
    )


def faults(problem: Problem, flow: IntArray) -> list[str]:
    """Why `flow` is not a minimum-cost flow; empty if it is.

    It is optimal if and only if no cycle of the residual graph has a negative cost; then distances within that graph
    are potentials under which every reduced cost is 0 or more."""
    lower = 0 if problem.lower is None else problem.lower
    found = []
    if ((flow < lower) | (flow > problem.capacity)).any():
        found.append("an arc carries less than its lower bound or more than its capacity")
    left = problem.supply.copy()
    np.subtract.at(left, problem.start, flow)
    np.add.at(left, problem.end, flow)
    if left.any():
        found.append(f"flow is not conserved at node {int(np.flatnonzero(left)[0])}")
    if not found and _pays_off(problem, flow, lower):
        found.append("a cycle of the residual graph costs less than nothing: there is a cheaper flow")
    return found


def _pays_off(problem: Problem, flow: IntArray, lower: IntArray | int) -> bool:
    ahead, back = flow < problem.capacity, flow > lower
    start = np.concatenate((problem.start[ahead], problem.end[back]))
    end = np.concatenate((problem.end[ahead], problem.start[back]))
    cost = np.concatenate((problem.cost[ahead], -problem.cost[back]))
    distance = np.zeros(len(problem.supply), np.int64)
    for _ in range(len(problem.supply) + 1):
        before = distance.copy()
        np.minimum.at(distance, end, distance[start] + cost)
        if (before == distance).all():
            return False
    return True

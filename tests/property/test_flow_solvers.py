"""Solvers of minimum-cost flow: equal cost on drawn graphs, flow conserved, no cheaper cycle left.

networkx and HiGHS are judges who share no code with them."""

from __future__ import annotations

from importlib.util import find_spec

import networkx
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog
from scipy.sparse import coo_array

from minikube_py.errors import to_install
from minikube_py.scheduler.configuration.merging import ConfigError
from minikube_py.scheduler.flow import solvers
from minikube_py.scheduler.flow.problem import COST_MAX, Infeasible, Problem, faults, reduced
from minikube_py.scheduler.flow.shortest_paths import successive_shortest_paths
from minikube_py.scheduler.flow.solvers import NUMPY, available, solver_named
from minikube_py.scheduler.framework import IntArray

COSTS = st.one_of(st.integers(-3, 12), st.sampled_from((0, 1, 2_560_000, COST_MAX, -COST_MAX)))
ROOM = st.one_of(st.integers(0, 5), st.sampled_from((0, 1, 1 << 31)))


@st.composite
def problems(draw: st.DrawFn, lowest: int = 0) -> Problem:
    """One that has an answer: supplies are what some flow within the bounds leaves at each node."""
    nodes = draw(st.integers(2, 9))
    ends = st.tuples(st.integers(0, nodes - 1), st.integers(0, nodes - 1)).filter(lambda arc: arc[0] != arc[1])
    arcs = draw(st.lists(st.tuples(ends, ROOM, COSTS, st.integers(0, 2), st.integers(0, 5)), min_size=1, max_size=24))
    start, end = (np.array([arc[0][i] for arc in arcs], np.int64) for i in (0, 1))
    capacity = np.array([arc[1] for arc in arcs], np.int64)
    lower = np.minimum(capacity, [arc[3] for arc in arcs])
    some = np.minimum(capacity, np.maximum(lower, [arc[4] for arc in arcs]))
    supply = np.zeros(nodes, np.int64)
    np.add.at(supply, start, some)
    np.subtract.at(supply, end, some)
    return Problem(supply, start, end, capacity, np.array([arc[2] for arc in arcs], np.int64), lower)


def _arcs_that_pay_without_room() -> Problem:
    zero, one = np.zeros(2, np.int64), np.ones(2, np.int64)
    return Problem(np.array([1, -1]), zero, one, np.array([0, 1]), np.array([-1, 0]), zero)


@given(problems())
@example(_arcs_that_pay_without_room())
@settings(max_examples=120, deadline=None)
def test_all_solvers_find_a_cheapest_flow_and_all_of_the_same_price(problem: Problem) -> None:
    prices = {}
    for name, solver in available().items():
        flow = solver.solve(problem)
        assert not faults(problem, flow), name
        prices[name] = problem.price(flow)
    assert len(set(prices.values())) == 1, prices


@given(problems())
@settings(max_examples=60, deadline=None)
def test_networkx_and_highs_find_none_that_costs_less(problem: Problem) -> None:
    small = problem._replace(cost=np.clip(problem.cost, -1000, 1000), capacity=np.minimum(problem.capacity, 1000))
    price = small.price(NUMPY.solve(small))
    assert price == _by_networkx(small)
    assert price == _by_highs(small)


def _by_networkx(problem: Problem) -> int:
    simple, base, sign = reduced(problem)
    graph = networkx.MultiDiGraph()
    graph.add_nodes_from((i, {"demand": -int(amount)}) for i, amount in enumerate(simple.supply))
    for i, (u, v) in enumerate(zip(simple.start.tolist(), simple.end.tolist(), strict=True)):
        graph.add_edge(u, v, key=i, capacity=int(simple.capacity[i]), weight=int(simple.cost[i]))
    _, found = networkx.network_simplex(graph)
    flow = [found[u][v][i] for i, (u, v) in enumerate(zip(simple.start.tolist(), simple.end.tolist(), strict=True))]
    return problem.price(base + sign * np.array(flow, np.int64))


def _by_highs(problem: Problem) -> int:
    count, nodes = len(problem.start), len(problem.supply)
    columns = np.arange(count)
    balance = coo_array((np.ones(count), (problem.start, columns)), (nodes, count))
    balance = balance - coo_array((np.ones(count), (problem.end, columns)), (nodes, count))
    bounds = np.column_stack((problem.lower, problem.capacity))
    found = linprog(problem.cost, A_eq=balance, b_eq=problem.supply, bounds=bounds, method="highs")
    assert found.status == 0, found.message
    return round(found.fun)


@given(problems(), st.data())
@settings(max_examples=60, deadline=None)
def test_a_flow_that_is_wrong_is_found_out(problem: Problem, data: st.DataObject) -> None:
    flow = NUMPY.solve(problem)
    at = data.draw(st.integers(0, len(flow) - 1))
    for by in (1, -1):
        wrong = flow.copy()
        wrong[at] += by
        assert faults(problem, wrong)


def test_a_flow_that_costs_more_than_it_must_is_found_out() -> None:
    two_ways = _of([2, 0, -2], [(0, 1, 2, 1), (1, 2, 2, 1), (0, 2, 2, 3)])
    assert faults(two_ways, np.array([2, 2, 0])) == []
    assert "cheaper" in faults(two_ways, np.array([0, 0, 2]))[0]


def _of(supply: list[int], arcs: list[tuple[int, int, int, int]]) -> Problem:
    """Arcs as (start, end, capacity, cost)."""
    return Problem(np.array(supply, np.int64), *np.array(arcs, np.int64).T.copy())


@pytest.mark.parametrize("name", solvers.NAMES)
def test_what_cannot_flow_is_said_by_every_solver(name: str) -> None:
    if name not in available() and name != solvers.AUTO:
        pytest.skip(f"{name} is not installed: {to_install('flow,flow-ortools')}")
    for supply in ([3, 0, -3], [1, 1, -3], [-1, 0, 1]):
        with pytest.raises(Infeasible):
            solver_named(name).solve(_of(supply, [(0, 1, 2, 1), (1, 2, 2, 1)]))


def test_numpy_alone_is_always_there_and_others_say_what_they_need(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(solvers, "find_spec", lambda name: None)
    assert list(available()) == ["numpy"]
    assert solver_named("auto") is NUMPY
    with pytest.raises(ConfigError, match=r"solver lemon needs pylmcf; run pip install '\.\[flow\]' in the source"):
        solver_named("lemon")
    with pytest.raises(ConfigError, match=r"there is no solver 'simplex'; the solvers are: auto, numpy, "):
        solver_named("simplex")


@pytest.mark.parametrize("error", [ImportError("no file"), AttributeError("_ARRAY_API"), SystemExit(1)], ids=repr)
def test_a_package_that_cannot_be_loaded_keeps_no_other_solver_out(
    error: BaseException, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    broken = {"ortools.graph.python.min_cost_flow"}

    def loaded(name: str) -> None:
        if name in broken:
            raise error

    monkeypatch.setattr(solvers, "find_spec", lambda name: name)
    monkeypatch.setattr(solvers, "import_module", loaded)
    assert solver_named("auto").name == "lemon"
    assert f"solver ortools is installed and cannot be loaded: {type(error).__name__}: {error} (" in caplog.text
    with pytest.raises(ConfigError, match=f"solver ortools cannot be loaded: {type(error).__name__}: .*install it"):
        solver_named("ortools")

    def full(problem: Problem) -> IntArray:
        raise solvers._NoRoom

    problem = _of([2, 0, -2], [(0, 1, 2, 1), (1, 2, 2, 1)])
    assert solvers._Reducing("lemon", full).solved(problem).by == "numpy", "nor in a round"
    broken.add("pylmcf")
    assert solver_named("auto") is NUMPY


@pytest.mark.skipif(find_spec("pylmcf") is None, reason=f"pylmcf is not installed: {to_install('flow')}")
def test_what_lemon_has_no_room_for_is_solved_all_the_same() -> None:
    machines = 300
    arcs = [(0, 2 + i, 1, (i * 7919) % COST_MAX) for i in range(machines)]
    arcs += [(2 + i, 1, 1, 0) for i in range(machines)] + [(0, 1, 500, COST_MAX)]
    problem = _of([400, -400] + [0] * machines, arcs)
    flow, by = solver_named("lemon").solved(problem)
    assert not faults(problem, flow)
    assert by == next(name for name in available() if name != "lemon"), "and it is said who did it"
    small = _of([2, 0, -2], [(0, 1, 2, 1), (1, 2, 2, 1)])
    assert solver_named("lemon").solved(small).by == "lemon"


def test_phases_are_as_many_as_costs_have_bits_and_not_as_there_are_prices(monkeypatch: pytest.MonkeyPatch) -> None:
    from minikube_py.scheduler.flow import shortest_paths

    phases = []
    block = shortest_paths._block
    monkeypatch.setattr(shortest_paths, "_block", lambda *given: phases.append(block(*given)))
    machines = 1000
    arcs = [(0, 2 + i, 1, i * 17) for i in range(machines)] + [(2 + i, 1, 1, 0) for i in range(machines)]
    problem = _of([machines, -machines] + [0] * machines, arcs)
    assert not faults(problem, successive_shortest_paths(problem))
    assert len(phases) <= 4 * int(problem.cost.max()).bit_length()

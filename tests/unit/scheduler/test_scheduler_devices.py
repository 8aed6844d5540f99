"""The search for devices: as upstream's allocator answers, and what holds of every answer."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import device_cases
import pytest
from drawn_devices import Draw
from hypothesis import example, given
from hypothesis import strategies as st

from minikube_py.fields.quantity import ZERO
from minikube_py.scheduler.devices.allocated import Allocated
from minikube_py.scheduler.devices.allocator import AllocationError, Search, SelectorError, Solution, TooLong
from minikube_py.scheduler.devices.pools import Inventory
from minikube_py.scheduler.devices.results import allocations
from minikube_py.scheduler.devices.selecting import selects
from minikube_py.scheduler.devices.views import ClaimView, ClassView, Device, SliceView
from minikube_py.scheduler.objects import project_node

seeds = st.integers(0, 1 << 32)


def test_all_of_upstreams_table_and_drawn_cases_are_answered_as_upstream_does() -> None:
    """The same devices in the same order, the same words, and as many steps on the way."""
    counts: Counter[str] = Counter()
    for place, case in enumerate(device_cases.cases()):
        theirs = device_cases.told(case)
        assert device_cases.asked(case) == theirs, (place, case)
        kind = "error" if "error" in theirs else "none" if theirs["results"] is None else "found"
        counts[f"{case['name'].split()[0]} {kind}"] += 1
    assert counts == {
        "table found": 121,
        "table none": 60,
        "table error": 42,
        "drawn found": 140,
        "drawn none": 40,
        "drawn error": 20,
    }


def test_expressions_select_what_they_select_upstream() -> None:
    """Or fail as they fail there."""
    counts: Counter[bool] = Counter()
    for case in device_cases.cases():
        told = device_cases.slices_of(case)
        for expression, answers in case["answer"]["selected"].items():
            for place, each in enumerate(told):
                for device in each.devices:
                    theirs = answers[""] if "" in answers else answers[f"{place}/{device.name}"]
                    try:
                        ours: Any = selects(expression, device)
                    except SelectorError as error:
                        ours = str(error)
                    assert ours == theirs, (expression, device.obj)
                    counts[isinstance(ours, str)] += 1
    assert min(counts.values()) > 100, counts


# --- laws -----------------------------------------------------------------------------------------------------------


def by_driver(expression: str, device: Device) -> bool:
    return "device.driver ==" not in expression or device.id.driver in expression


class Answer:
    def __init__(self, case: dict[str, Any], slices: list[dict[str, Any]] | None = None) -> None:
        self.slices = [SliceView(each) for each in (case["slices"] if slices is None else slices)]
        self.claims = [ClaimView(each) for each in case["claims"]]
        self.allocated = device_cases.allocated_of(case)
        classes = {each["metadata"]["name"]: ClassView(each) for each in case["classes"]}
        node = project_node(case["node"])
        self.pools = Inventory.of(self.slices).pools(node)
        search = Search(self.pools, self.allocated, classes.get, by_driver, node)
        self.solution: Solution | None = None
        self.told: Any = None
        try:
            self.solution = search.run(self.claims)
            self.told = self.solution and allocations(self.solution, self.claims, node.name)
        except (AllocationError, TooLong) as error:
            self.told = repr(error)

    @property
    def given(self) -> list[Any]:
        return [each for given in (self.solution.given if self.solution else ()) for each in given]


@given(seeds)
def test_no_device_is_given_twice_unless_it_is_shared_or_an_administrators(seed: int) -> None:
    answer = Answer(Draw(seed).case())
    whole = [
        each.candidate.device.id
        for each in answer.given
        if not each.request.is_admin and not each.candidate.device.allows_many
    ]
    assert len(whole) == len(set(whole))
    assert not set(whole) & set(answer.allocated.devices)


@given(seeds)
def test_no_more_of_a_device_or_of_counters_is_given_than_there_is(seed: int) -> None:
    answer = Answer(Draw(seed).case())
    if answer.solution is None:
        return
    taken: dict[Any, dict[str, Any]] = {id: dict(held) for id, held in answer.allocated.capacity.items()}
    for each in answer.given:
        device, held = each.candidate.device, taken.setdefault(each.candidate.device.id, {})
        for name, amount in (each.taken or {}).items():
            held[name] = held.get(name, ZERO).plus(amount)
            assert held[name].compare(device.capacity[name].value) <= 0
    given_ids = {
        each.candidate.device.id for each in answer.given if not answer.allocated.is_held(each.candidate.device.id)
    }
    for pool in answer.pools:
        if not pool.is_usable:
            # It may name counters that are not there; nothing is given from it.
            assert not given_ids & {candidate.device.id for candidate in pool.candidates}
            continue
        left = {name: dict(counters) for name, counters in pool.counter_sets.items()}
        consuming = [device for device in pool.consuming if device.id in given_ids]
        for device in (*consuming, *(d for d in pool.consuming if answer.allocated.is_held(d.id))):
            for name, counters in device.consumes:
                for counter, amount in counters.items():
                    left[name][counter] = left[name][counter].minus(amount)
        if consuming:
            assert all(amount.unscaled >= 0 for counters in left.values() for amount in counters.values()), pool.id


@given(seeds)
def test_devices_of_a_match_have_one_value(seed: int) -> None:
    answer = Answer(Draw(seed).case())
    for claim, given_to in zip(answer.claims, answer.solution.given if answer.solution else (), strict=False):
        for constraint in claim.spec.get("constraints") or ():
            if "matchAttribute" not in constraint:
                continue
            named = set(constraint.get("requests") or ())
            domain, _, name = constraint["matchAttribute"].partition("/")
            values = set()
            for each in given_to:
                if not named or named & {each.request.base_name, each.request.full_name}:
                    device = each.candidate.device
                    own = device.attributes.get(name) if device.id.driver == domain else None
                    values.add(repr(device.attributes.get(f"{domain}/{name}", own)))
            assert len(values) <= 1


@given(seeds)
def test_the_order_in_which_slices_come_is_of_no_matter(seed: int) -> None:
    case = Draw(seed).case()
    slices = list(case["slices"])
    random.Random(seed).shuffle(slices)
    assert Answer(case).told == Answer(case, slices).told


@given(st.lists(seeds, min_size=2, max_size=4))
@example([6443, 184, 112])
def test_pools_kept_up_with_each_slice_are_those_gathered_afresh(drawn: list[int]) -> None:
    """By what is then found in them; nodes ask in between, so that something is kept."""
    inventory, known = Inventory(), {}
    for seed in drawn:
        case = Draw(seed).case()
        nodes = [project_node({"metadata": {"name": name, "labels": {"zone": "a"}}}) for name in ("n0", "n1")]
        coming = {each["metadata"]["name"]: each for each in case["slices"]}
        for name in [each for i, each in enumerate(known) if i % 2]:
            inventory.put(known.pop(name), None)
        for name, obj in coming.items():
            new = SliceView(obj)
            inventory.put(known.get(name), new)
            known[name] = new
            inventory.pools(nodes[0])
        for node in nodes:
            kept, afresh = inventory.pools(node), Inventory.of(known.values()).pools(node)
            assert [told(pool) for pool in kept] == [told(pool) for pool in afresh]
            assert inventory.pools(node) is kept


def test_of_a_pool_in_part_only_slices_of_its_newest_generation_are_sorted() -> None:
    compared: list[str] = []

    class Name(str):
        __slots__ = ()

        def __lt__(self, other: str) -> bool:
            compared.append(other)
            return str.__lt__(self, other)

    def a_slice(number: int, node: str, generation: int) -> SliceView:
        pool = {"name": "p", "generation": generation, "resourceSliceCount": 3}
        return SliceView({"metadata": {"name": Name(number)}, "spec": {"driver": "d", "pool": pool, "nodeName": node}})

    slices = [a_slice(0, "n0", 2), a_slice(1, "n1", 2), *(a_slice(number, "n1", 1) for number in range(2, 100))]
    (pool,) = Inventory.of(slices).pools(project_node({"metadata": {"name": "n0"}}))
    assert not pool.is_whole and len(compared) == 1


def told(pool: Any) -> tuple[Any, ...]:
    devices = [(each.slice.name, each.device.id) for each in pool.candidates]
    return pool.id, pool.is_whole, pool.problem, devices, sorted(each.id for each in pool.consuming)


@given(st.lists(seeds, min_size=1, max_size=6), st.randoms(use_true_random=False))
def test_what_is_added_and_removed_leaves_nothing(drawn: list[int], order: random.Random) -> None:
    allocated, results = Allocated(), []
    for seed in drawn:
        found = Answer(Draw(seed).case()).told or ()
        results += [each["devices"].get("results") or [] for each in found if isinstance(each, dict)]
    for each in results:
        allocated.add(each)
    held = sum(1 for each in results for device in each if not device.get("adminAccess"))
    assert sum(allocated.devices.values()) + sum(allocated.shared.values()) == held
    order.shuffle(results)
    for each in results:
        allocated.remove(each)
    assert not allocated.devices and not allocated.shared and not allocated.capacity


def test_a_search_without_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Search.__init__, "__defaults__", (3,))
    case = next(case for case in device_cases.cases() if case["answer"]["calls"] > 50 and not case["answer"]["results"])
    with pytest.raises(TooLong):
        device_cases.asked(case)

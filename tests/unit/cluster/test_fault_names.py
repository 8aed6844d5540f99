"""Reports name a fault as the registry does, and the method that injects it."""

from __future__ import annotations

from collections.abc import Callable
from operator import methodcaller
from typing import Any

from minikube_py.cluster import faults
from minikube_py.cluster.aimed_faults import described, ordinal
from minikube_py.sim.fault_schedule import REGISTRY
from minikube_py.sim.faults import Fault
from minikube_py.sim.inject_api import KINDS

ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "delay_events": (1,), "hide_events": (1,), "slow": (1,), "no_leader": (1,), "node": ("node-0",),
}  # fmt: skip


class Recorded(faults.Faults):
    def __init__(self) -> None:
        self.kinds: list[str] = []

    def _inject(self, fault: Fault) -> None:
        self.kinds.append(fault.kind)

    def _plural(self, on: str) -> str:
        return on


def test_each_method_is_named_by_its_kind_of_fault() -> None:
    found = {}
    for name in (each for each in vars(faults.Faults) if not each.startswith("_")):
        calls: dict[str, Callable[[Recorded], object]] = {f"{name}()": methodcaller(name, *ARGUMENTS.get(name, ()))}
        if name == "fail_next":
            calls["fail_next(done=True)"] = lambda it: it.fail_next(done=True)
        if name == "node":
            calls = {"node().down()": lambda it: it.node("a").down(), "node().up()": lambda it: it.node("a").up()}
        for text, call in calls.items():
            recorded = Recorded()
            call(recorded)
            found[recorded.kinds[0]] = text
    assert found | {"crash_client": "crash() of the program"} == faults.METHODS
    assert set(faults.METHODS) == set(KINDS)


def test_nothing_of_a_row_is_left_to_be_filled_in() -> None:
    for kind in KINDS:
        text = described(Fault(0, kind, amount=1.0))
        assert text.startswith(f"{kind} (as by {faults.METHODS[kind]}): ") and REGISTRY[kind].about[:8] in text
        assert "`" not in text
    assert "before its 1st write from then on" in described(Fault(0, "crash_client", amount=0.0))
    assert "before its 12th write from then on" in described(Fault(0, "crash_client", amount=11.0))
    named = ("1st", "2nd", "3rd", "4th", "10th", "11th", "12th", "13th", "21st", "22nd", "111th", "112th", "121st")
    assert all(ordinal(int(each[:-2])) == each for each in named)

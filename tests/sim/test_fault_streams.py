"""A reported seed keeps its faults when the registry grows: each row draws from a stream of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from minikube_py.cluster import aimed_faults
from minikube_py.env import Rng
from minikube_py.sim import fault_schedule, inject_parts
from minikube_py.sim.fault_player import FaultPlayer
from minikube_py.sim.faults import Fault, Injection, S, at_once, chosen
from minikube_py.sim.plane_run import drawn_plane
from minikube_py.sim.run import RunOptions, drawn_faults, drawn_options

SEEDS = range(300)
ROW = Injection("new_row", "a row that was not there when the seeds were reported", at_once("new_row"), lambda *_: True)
VERBS = ("get", "list", "watch", "create", "update", "delete", "ADDED", "MODIFIED", "DELETED")
CALM = aimed_faults.FaultlessRun(60 * S, {(verb, plural): 3 for verb in VERBS for plural in ("pods", "services")})
Faults = dict[str, Any]
Histories = dict[int, tuple[Any, Faults]]


def of_runs(drawn: Callable[[int], RunOptions]) -> Histories:
    """All that a seed decides but the kinds of its faults, and the faults by name."""
    found: Histories = {}
    for seed in SEEDS:
        options = drawn(seed)
        faults = fault_schedule.named_schedule(seed, options.plan)
        assert drawn_faults(options) == list(faults.values())
        found[seed] = replace(options, plan=replace(options.plan, kinds=())), faults
    return found


def of_explored() -> Histories:
    found: Histories = {}
    for seed in SEEDS:
        faults: Faults = {}
        for fault in aimed_faults.drawn(f"explore {seed}", CALM, 2):
            faults[f"{fault.kind}.{sum(each.kind == fault.kind for each in faults.values())}"] = fault
        found[seed] = None, faults
    return found


REGISTRIES: dict[str, tuple[Any, Callable[[], Histories]]] = {
    "store": (fault_schedule, lambda: of_runs(drawn_options)),
    "cluster": (inject_parts, lambda: of_runs(drawn_plane)),
    "explored programs": (aimed_faults, of_explored),
}


def without(kind: str, faults: Faults) -> list[tuple[str, Any]]:
    """In order, with their names."""
    return [(name, fault) for name, fault in faults.items() if fault.kind != kind]


@pytest.mark.parametrize("place", [0, 5, 99])
@pytest.mark.parametrize("name", REGISTRIES)
def test_a_row_that_is_added_leaves_all_others_their_faults(
    name: str, place: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, histories = REGISTRIES[name]
    before = histories()
    kinds = list(module.KINDS)
    kinds.insert(place, ROW.kind)
    monkeypatch.setattr(module, "KINDS", tuple(kinds))
    monkeypatch.setitem(fault_schedule.REGISTRY, ROW.kind, ROW)
    after = histories()
    for seed in SEEDS:
        options, faults = after[seed]
        assert (options, without(ROW.kind, faults)) == (before[seed][0], [*before[seed][1].items()]), f"seed {seed}"
    have_it = [seed for seed in SEEDS if after[seed] != before[seed]]
    # Most seeds are as they were to the last step.
    assert 0 < len(have_it) < 0.5 * len(SEEDS)


@pytest.mark.parametrize("name", REGISTRIES)
def test_rows_that_are_taken_away_leave_all_others_their_faults(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, histories = REGISTRIES[name]
    whole, kinds = histories(), module.KINDS
    for gone in kinds:
        monkeypatch.setattr(module, "KINDS", tuple([kind for kind in kinds if kind != gone]))
        for seed, (options, faults) in histories().items():
            assert options == whole[seed][0]
            # Themes and classes of faults name their kinds themselves.
            assert without(gone, faults) == without(gone, whole[seed][1]), f"seed {seed} without {gone}"


def test_a_row_draws_the_same_when_it_begins_whatever_others_drew() -> None:
    class World:
        world = None

    def drawn(others: int) -> list[float]:
        player = FaultPlayer(World(), Rng(3))  # type: ignore[arg-type]
        found = []
        for _ in range(5):
            for number in range(others):
                player.rng_of(Fault(0, f"other-{number}")).random()
            found.append(player.rng_of(Fault(0, "kill")).random())
        return found

    assert drawn(0) == drawn(1) == drawn(7)


def test_an_option_that_is_added_leaves_other_seeds_theirs() -> None:
    options = (("kill",), ("cut", "clog"), ("pause",))
    before = [chosen(seed, options) for seed in SEEDS]
    after = [chosen(seed, (("wipe",), *options)) for seed in SEEDS]
    assert {*before} == {*options}
    assert all(now == then for now, then in zip(after, before) if now != ("wipe",))
    assert 0.15 < after.count(("wipe",)) / len(SEEDS) < 0.35

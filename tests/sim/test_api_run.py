"""API servers on the simulated store, under faults: their clients' answers are right, and planted bugs show in them."""

from __future__ import annotations

import pytest
from sim_api_clients import Stretch, check_stretches
from sim_api_run import run_seed

from minikube_py.apiserver.object_store import ObjectStore
from minikube_py.apiserver.watch_cache import WatchCache
from minikube_py.store.storage import WatchBatch

CAUGHT_WITHIN = 120
"""Of these seeds two show the first bug, and a third of them the second."""


@pytest.mark.parametrize("seed", range(8))
def test_nothing_is_violated(seed):
    outcome = run_seed(seed)
    assert not outcome.violations, f"replay: PYTHONPATH=tests/support python tests/support/sim_api_run.py {seed}"
    assert outcome.counts["operations"] > 200 and outcome.counts["watch events"] > 0


# -- the check of watches ---------------------------------------------------------------------------------------------


def stretch(start, *events, live=True, listed=None):
    return Stretch(start, listed or {}, list(events), max([start, *(event[0] for event in events)]), live)


FIRST, SECOND, THIRD = (2, "ADDED", "a", "1"), (3, "MODIFIED", "a", "2"), (5, "DELETED", "a", "2")
TOLD = {
    "all of it": ([stretch(1, FIRST, SECOND, THIRD), stretch(2, SECOND, THIRD, listed={"a": (2, "1")})], {}, ""),
    "one missing": ([stretch(1, FIRST, SECOND), stretch(1, SECOND, live=False)], {"a": (3, "2")}, "is missing between"),
    "one twice": ([stretch(1, FIRST, FIRST)], {"a": (2, "1")}, "came after one of 2"),
    "out of order": ([stretch(1, SECOND, FIRST)], {"a": (2, "1")}, "came after one of 3"),
    "two contents": ([stretch(1, FIRST), stretch(1, (2, "ADDED", "a", "9"))], {"a": (2, "1")}, "came as"),
    "another end": ([stretch(1, FIRST, SECOND)], {"a": (4, "3")}, "and there are"),
}


@pytest.mark.parametrize("name", TOLD)
def test_what_watches_told(name):
    stretches, names, said = TOLD[name]
    found = check_stretches(stretches, max(each.reached for each in stretches), names)
    assert said in found if said else found == ""


# -- planted bugs -----------------------------------------------------------------------------------------------------


def a_list_does_not_ask_how_far_the_store_is(patch):
    async def current_revision(self):
        return self.storage.revision

    patch.setattr(ObjectStore, "current_revision", current_revision)


def an_event_of_many_is_dropped(patch):
    apply = WatchCache.apply

    def forgetful(self, events, revision):
        batch = WatchBatch(events, revision)
        apply(self, batch.events[1:] if len(batch.events) > 1 else batch.events, revision)

    patch.setattr(WatchCache, "apply", forgetful)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("plant", "first"),
    [(a_list_does_not_ask_how_far_the_store_is, 88), (an_event_of_many_is_dropped, 1)],
    ids=["a_list_does_not_ask_how_far_the_store_is", "an_event_of_many_is_dropped"],
)
def test_a_planted_bug_is_found(plant, first, monkeypatch):
    """`first`: a seed that showed it when it was last looked for. Where histories change, another one may."""
    plant(monkeypatch)
    for seed in sorted(range(CAUGHT_WITHIN), key=lambda seed: seed != first):
        if run_seed(seed).violations:
            print(f"{plant.__name__} was found by seed {seed}")
            return
    pytest.fail(f"not found within {CAUGHT_WITHIN} seeds")

"""Catching up goes in slices: one looks at no more watchers, and hands out no more events, than its budget says."""

from __future__ import annotations

from typing import Any

import pytest

from minikube_py.mvcc.state import StateMachine
from minikube_py.mvcc.types import Put
from minikube_py.mvcc.watch import WatchHub

WATCHERS = 40
REVISIONS = 30


@pytest.mark.parametrize("budget", [1, 7, REVISIONS, 3 * REVISIONS])
def test_a_slice_moves_as_many_watchers_as_its_budget_pays_for(budget: int, monkeypatch: pytest.MonkeyPatch) -> None:
    state = StateMachine()
    hub = WatchHub(state)
    for number in range(REVISIONS):
        state.apply(Put(b"k%d" % number, b""))
    hub.notify()
    seen: list[list[Any]] = [[] for _ in range(WATCHERS)]
    for own in seen:
        hub.add(b"k", b"l", 2, own.append)
    moved: list[Any] = []
    advance = hub._advance

    def counted(watcher: Any, after: int, until: int) -> None:
        moved.append(until - after)
        advance(watcher, after, until)

    monkeypatch.setattr(hub, "_advance", counted)
    slices = 0
    while True:
        moved.clear()
        left = hub.catch_up(budget)
        slices += 1
        # A whole revision is handed out at once, so a slice may pass its budget by what one revision holds.
        assert sum(moved) <= budget and all(step > 0 for step in moved)
        if not left:
            break
    assert slices >= WATCHERS * REVISIONS // budget
    for own in seen:
        assert [event.kv.mod_revision for batch in own for event in batch.events] == list(range(2, REVISIONS + 2))

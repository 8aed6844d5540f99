"""A condition that cannot be answered ends the watches that asked for it, in step or catching up, and no others."""

from __future__ import annotations

import pytest
from test_mvcc_indexes import cluster, node, where

from minikube_py.errors import InvalidRequest
from minikube_py.fields.builtin import NODES
from minikube_py.mvcc.types import WatchBatch, prefix_end
from minikube_py.mvcc.watch import WatchHub

ASKED = where(("free.cpu", ">", "1"))
END = prefix_end(NODES.prefix)


def fails(*_: object) -> None:
    raise ZeroDivisionError("a bug")


@pytest.mark.parametrize("start_revision, failures", [(0, 1), (4, 2)], ids=["in step", "catching up"])
def test_what_cannot_be_answered_ends_those_who_asked(
    monkeypatch: pytest.MonkeyPatch, start_revision: int, failures: int
) -> None:
    state = cluster(3)
    hub = WatchHub(state)
    seen: list[list[WatchBatch]] = [[], [], []]
    hub.add(NODES.prefix, END, 0, seen[0].append)
    with monkeypatch.context() as patched:
        if not start_revision:
            hub.notify()
        patched.setattr("minikube_py.mvcc.watch.where_events", fails)
        for sink in seen[1:]:
            hub.add(NODES.prefix, END, start_revision, sink.append, ASKED)
        state.apply(node(1, 3))
        hub.notify()
        hub.catch_up()
    for batches in seen[1:]:
        assert [type(batch.error) for batch in batches] == [InvalidRequest]
        assert "ZeroDivisionError: a bug" in str(batches[0].error)
    assert hub.in_vain == failures and hub.last_in_vain == "ZeroDivisionError: a bug"
    state.apply(node(2, 3))
    hub.notify()
    assert [event.kv.key for batch in seen[0] for event in batch.events][-1].endswith(b"2")
    assert len(hub) == 1 and not hub.behind and all(batch.error is None for batch in seen[0])

"""etcd's robustness traffic against three members of ours over gRPC, broken as its tests break etcd, and judged: strict
serializability, durability, and the guarantees of watches.

`make test` plays four; `make robustness` plays all scenarios with both profiles, with other seeds (RUNS=n).
Source: etcd tests/robustness (traffic, failpoint, validate).
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from etcd_load import NOT_TOLD, DoorCluster, EtcdLoad, Watching, name_compactions
from patience import until
from store_cluster import make_secrets
from test_three_members_store import SCENARIOS, Torture

from minikube_py.errors import Compacted, FutureRevision
from minikube_py.mvcc.types import Compact, CompactResult, Put, PutResult, RangeRequest
from minikube_py.sim.checkers import transactions
from minikube_py.sim.history import History, Operation

RUNS = int(os.environ.get("MINIKUBE_PY_ROBUSTNESS", "0"))
"""How many to play in all; 0: the short choice."""
FAULTS = (
    "kill any", "kill the leader", "stop the leader", "part the leader", "part a follower", "one way", "ring",
    "kill all", "slow links", "rolling restarts", "transfer", "power cut",
)  # fmt: skip
SHORT = (
    ("etcd", "kill the leader", 0), ("kubernetes", "stop the leader", 0), ("etcd", "part the leader", 0),
    ("kubernetes", "kill all", 0),
)  # fmt: skip


def plays() -> list[tuple[str, str, int]]:
    """(profile, fault, seed)"""
    if not RUNS:
        return list(SHORT)
    pairs = [(profile, fault) for fault in FAULTS for profile in ("etcd", "kubernetes")]
    return [(*pairs[number % len(pairs)], number // len(pairs) + 1) for number in range(RUNS)]


@pytest.fixture(scope="module")
def secrets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_secrets(tmp_path_factory.mktemp("secrets"))


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("profile", "fault", "seed"), plays())
async def test_what_etcd_promises_holds_under_faults(
    tmp_path: Path, secrets: Path, profile: str, fault: str, seed: int
) -> None:
    rng = random.Random(f"{profile} {fault} {seed}")
    begin_s = time.monotonic()
    cluster = DoorCluster(tmp_path, secrets, rng)
    try:
        await cluster.form(3)
        async with EtcdLoad(cluster, rng, profile) as load:
            torture = Torture(cluster, load, rng, 3 if RUNS else 1, Counter(), [], {}, [])
            await SCENARIOS[fault](torture)
            await cluster.heal()
            # Under load a whole short run may pass without one.
            await until(lambda: load.seen.progress, "a watch said how far it is")
            verdicts = await load.finish()
            counts = load.counts()
    finally:
        await cluster.close()
    if RUNS:
        told = ", ".join(f"{count:,} {name}" for name, count in counts.items() if count)
        undecided = [name for name, verdict in verdicts.items() if verdict.outcome == "undecided"] or "none"
        print(f"\n{profile}, {fault} {seed}: {time.monotonic() - begin_s:.0f} s: {told}; undecided: {undecided}")
    violations = {name: verdict.text for name, verdict in verdicts.items() if verdict.outcome == "violation"}
    assert not violations, violations
    assert verdicts["transactions"].ok and verdicts["members"].ok and verdicts["durability"].ok, verdicts
    assert verdicts["watches"].ok, verdicts
    assert counts["watch events"] and counts["progress"] and counts["done"]


@pytest.mark.parametrize(("taken", "found"), [(True, "ok"), (False, "violation")])
def test_a_refused_read_names_a_compaction_that_took_place(taken: bool, found: str) -> None:
    """The higher one, of a future revision, was refused."""
    compacts = [Operation(2, 5, 6, Compact(9), "refused", None, FutureRevision(9, 3))]
    if taken:
        compacts.append(Operation(1, 5, 6, Compact(3), "done", CompactResult(3)))
    history = History([
        Operation(1, 1, 2, Put(b"a", b"1"), "done", PutResult(2)),
        Operation(1, 3, 4, Put(b"a", b"2"), "done", PutResult(3)),
        *compacts,
        Operation(1, 7, 8, RangeRequest(b"a", revision=2), "refused", None, Compacted(2, NOT_TOLD)),
    ])  # fmt: skip
    name_compactions(history)
    assert transactions.check(history).verdict.outcome == found


async def test_an_event_that_is_left_out_is_noticed(
    tmp_path: Path, secrets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken, count = Watching._take, 0

    def lossy(self: Watching, answer: Any) -> None:
        nonlocal count
        count += bool(answer.events)
        # One of thirty: a stream that ends at once is resumed, and misses nothing.
        if count % 30 or not answer.events:
            taken(self, answer)

    monkeypatch.setattr(Watching, "_take", lossy)
    rng = random.Random(1)
    cluster = DoorCluster(tmp_path, secrets, rng)
    try:
        await cluster.form(3)
        async with EtcdLoad(cluster, rng, "etcd") as load:
            await load.progress(200)
            # Under load, many events come in one answer.
            while count <= 60:
                await load.progress(50)
            verdicts = await load.finish()
    finally:
        await cluster.close()
    assert verdicts["watches"].outcome == "violation"

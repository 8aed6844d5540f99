"""Folders that an earlier release left behind, whose log holds the entry that ended it: this one starts on them.

`earlier/*.tar.gz` were written by the release before validation, one member each: it applied five entries, failed on
the sixth, and at every start after. `limit`: a txn with a range of limit 2^63-1; `cpu`: a pod of 10P; `phase`: a pod
whose phase is a list.
"""

from __future__ import annotations

import random
import tarfile
from pathlib import Path

import pytest
from replica_net import Outcome

from minikube_py.env import SystemDisk
from minikube_py.fields.builtin import NODES, PODS
from minikube_py.fields.where import Comparison, Where
from minikube_py.mvcc.codec import pack
from minikube_py.mvcc.types import Command, DeclareFields, Put, RangeRequest
from minikube_py.mvcc.versions import LATEST
from minikube_py.store.log_files import LogFiles
from minikube_py.store.replica import Replica

FOLDERS = Path(__file__).with_name("earlier")
REQUESTED = RangeRequest(b"/registry/nodes/n0", fields=("requested.cpu",))
HUGE = RangeRequest(
    b"/registry/pods/", b"/registry/pods0", where=Where((Comparison("requests.cpu", ">=", ("9223372036854775807m",)),))
)


def opened(folder: Path) -> Replica:
    rng = random.Random(7)
    replica = Replica(LogFiles(SystemDisk(folder), rng, 16 << 10), rng)
    replica.open()
    work(replica)
    return replica


def work(replica: Replica) -> None:
    while (turn := replica.turn()) is not None:
        if turn.sync is not None:
            turn.sync()
            replica.synced()


def done(replica: Replica, command: Command) -> None:
    outcome = Outcome()
    replica.propose(command, pack(command), outcome)
    work(replica)
    assert outcome.done, outcome.error


@pytest.mark.parametrize(("name", "requested"), [("cpu", 2**63 - 1), ("phase", 1500), ("limit", 500)])
def test_it_starts_answers_and_takes_the_rules_of_this_release(name: str, requested: int, tmp_path: Path) -> None:
    with tarfile.open(FOLDERS / f"{name}.tar.gz") as packed:
        # Python 3.11.0 to 3.11.3 knows no filters.
        packed.extractall(tmp_path, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    replica = opened(tmp_path)
    state = replica.state
    assert state.version == LATEST and state.range(REQUESTED).fields == [(requested,)]
    assert state.range(RangeRequest(b"\0", b"\0")).count == (3 if name != "limit" else 2)
    done(replica, Put(b"after", b"1"))
    for field_set in (NODES, PODS):
        done(replica, DeclareFields(field_set))
    assert state.range(HUGE).count == (name == "cpu")
    for sync in replica.take_snapshot():
        if sync is not None:
            sync()
    digest = state.hash()
    replica.close()
    again = opened(tmp_path)
    assert again.state.hash() == digest and again.state.version == LATEST
    again.close()

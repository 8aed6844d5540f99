"""What `etcdctl snapshot save` gets from this store: etcdutl reads it, an etcd restored from it answers the same."""

from __future__ import annotations

import itertools
import json
import os
import random
import subprocess
from pathlib import Path
from typing import Any

import pytest
from etcd_api import Caller, RealEtcd, ours
from needs import original_program

from minikube_py.etcd.messages import pb

pytestmark = pytest.mark.original
SEEDS = int(os.environ.get("MINIKUBE_PY_SNAPSHOT_HISTORIES", "2"))
STEPS = 120
KEYS = [b"", b"\0", b"\xff", b"a" * 4000, *(b"k/%02d" % number for number in range(40))]
SIZES = (0, 1, 20, 300, 4060, 4096, 9000, 70_000)


class History:
    """Drawn writes to one server."""

    def __init__(self, caller: Caller, seed: int) -> None:
        self._caller, self._drawn = caller, random.Random(seed)
        self._leases: list[int] = []
        self.revision, self.compacted = 1, 0

    def key(self) -> bytes:
        return b"/" + self._drawn.choice(KEYS)

    def put(self) -> Any:
        lease = self._drawn.choice([0, 0, *self._leases])
        value = self._drawn.randbytes(self._drawn.choice(SIZES))
        return pb.PutRequest(key=self.key(), value=value, lease=lease)

    def step(self) -> None:
        kind = self._drawn.choice(["put"] * 6 + ["delete", "delete", "range", "txn", "txn", "lease", "compact"])
        if kind == "lease":
            self._leases.append(self.ok("Lease/LeaseGrant", pb.LeaseGrantRequest(TTL=9000))["ID"])
        elif kind == "compact" and self._drawn.random() < 0.4:
            self.compact(self._drawn.randint(self.compacted, self.revision))
        elif kind == "put":
            self.ok("KV/Put", self.put())
        elif kind == "delete":
            self.ok("KV/DeleteRange", pb.DeleteRangeRequest(key=self.key()))
        elif kind == "range":
            first = b"/k/%02d" % self._drawn.randrange(40)
            self.ok("KV/DeleteRange", pb.DeleteRangeRequest(key=first, range_end=b"/k/99"))
        elif kind == "txn":
            puts = {put.key: put for put in [self.put() for _ in range(5)]}
            gone = [key for key in dict.fromkeys(b"/" + key for key in KEYS) if key not in puts][:3]
            ops = [pb.RequestOp(request_put=put) for put in puts.values()]
            ops += [pb.RequestOp(request_delete_range=pb.DeleteRangeRequest(key=key)) for key in gone]
            self._drawn.shuffle(ops)
            self.ok("KV/Txn", pb.TxnRequest(success=ops))

    def compact(self, revision: int) -> None:
        if revision > self.compacted:
            self.ok("KV/Compact", pb.CompactionRequest(revision=revision))
            self.compacted = revision

    def ok(self, method: str, request: Any) -> Any:
        code, answer = self._caller.call(method, request)
        assert code == "ok", (method, request, answer)
        self.revision = answer["header"]["revision"]
        return answer


def run(*words: str) -> str:
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)
    assert not done.returncode, (words, done.stdout, done.stderr)
    return done.stdout


def watched(caller: Caller, start: int, end: int) -> list[Any]:
    """All events of the revisions from `start` to `end`."""
    stream = caller.stream("Watch/Watch")
    create = pb.WatchCreateRequest(key=b"\0", range_end=b"\0", start_revision=start)
    stream.send(pb.WatchRequest(create_request=create))
    events: list[Any] = []
    while not events or events[-1]["kv"]["mod_revision"] < end:
        answer = stream.next()
        assert not answer.get("canceled"), answer
        events += answer.get("events", [])
    stream.close()
    return events


def answers(caller: Caller, history: History) -> list[Any]:
    """All that is retained, and what is refused."""
    everything = {"key": b"\0", "range_end": b"\0"}
    first = max(history.compacted - 1, 1)
    found: list[Any] = []
    for revision in range(first, history.revision + 2):
        code, answer = caller.call("KV/Range", pb.RangeRequest(revision=revision, **everything))
        found.append((revision, code, answer if code != "ok" else (answer.get("kvs"), answer["header"]["revision"])))
    leases = caller.call("Lease/LeaseLeases")[1].get("leases", [])
    for lease in sorted(each["ID"] for each in leases):
        _, told = caller.call("Lease/LeaseTimeToLive", pb.LeaseTimeToLiveRequest(ID=lease, keys=True))
        found.append((lease, told["grantedTTL"], sorted(told.get("keys", []))))
    return found


@pytest.mark.parametrize("seed", range(SEEDS))
def test_an_etcd_restored_from_it_answers_the_same(tmp_path: Path, seed: int) -> None:
    with ours(tmp_path / "ours") as server:
        caller = Caller(f"127.0.0.1:{server.port}")
        history = History(caller, seed)
        for _ in range(STEPS):
            history.step()
        if seed % 2:
            # The newest revision is a deletion, and compacted: nothing but the record of that tells the revision.
            history.ok("KV/Put", pb.PutRequest(key=b"/last"))
            history.ok("KV/DeleteRange", pb.DeleteRangeRequest(key=b"/last"))
            history.compact(history.revision)
        expected = answers(caller, history)
        events = watched(caller, max(history.compacted, 2), history.revision)
        saved = str(tmp_path / "saved.db")
        run(str(original_program("etcdctl")), f"--endpoints={caller.target}", "snapshot", "save", saved)
        caller.close()
    utl = str(original_program("etcdutl"))
    told = json.loads(run(utl, "snapshot", "status", saved, "--write-out=json"))
    assert told["version"] == "3.7.0" and told["totalSize"] == Path(saved).stat().st_size - 32
    etcd = RealEtcd(tmp_path / "restored")
    etcd.restore(Path(saved))
    try:
        etcd.start()
        restored = Caller(etcd.place)
        for mine, theirs in itertools.zip_longest(expected, answers(restored, history)):
            assert mine == theirs
        assert watched(restored, max(history.compacted, 2), history.revision) == events
        # It goes on from there.
        _, put = restored.call("KV/Put", pb.PutRequest(key=b"/k/00", value=b"after"))
        assert put["header"]["revision"] == history.revision + 1
        restored.close()
    finally:
        etcd.end()

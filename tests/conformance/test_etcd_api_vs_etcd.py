"""etcd's API in front of our store beside a real etcd: the same requests over gRPC, the same answers, headers, errors
and watch streams."""

from __future__ import annotations

import contextlib
import os
import urllib.request
from collections.abc import Callable, Iterator
from itertools import zip_longest
from typing import Any

import pytest
from drawn_etcd import UNARY, Draws, at_edges
from etcd_api import Answer, Caller, Stream, ours, real_etcd, whole
from patience import PATIENCE_S, eventually

from minikube_py.etcd.messages import pb

pytestmark = pytest.mark.original
HISTORIES = int(os.environ.get("MINIKUBE_PY_ETCD_HISTORIES", "2"))
SLOW_WATCHERS = "etcd_debugging_mvcc_slow_watcher_total "
SENTINEL = b"~the end of a history"
ENDS = 1 << 50


class Side:
    """One of the two servers: asked, and its ids told apart from its answers."""

    def __init__(self, target: str, behind: Callable[[], int]) -> None:
        self.behind = behind
        self.caller = Caller(target)
        self._ids: dict[str, int] = {}
        _, found = self.caller.call("KV/Range", pb.RangeRequest(key=b"a"))
        self._ids = {name: found["header"].pop(name) for name in ("cluster_id", "member_id", "raft_term")}

    def call(self, name: str, request: Any = None) -> Answer:
        code, found = self.caller.call(name, request)
        if code != "ok":
            return code, found
        return code, self.known(found)

    def known(self, found: dict[str, Any]) -> dict[str, Any]:
        """Without ids and term, which are those of this member, in this term."""
        header = found.get("header")
        if header is None:
            return found
        assert {name: header.pop(name) for name in self._ids} == self._ids
        for name in ("hash", "members"):
            found.pop(name, None)
        if "keys" in found:
            # Upstream's come in the order of a Go map.
            found["keys"].sort()
        if "leases" in found:
            found["leases"].sort(key=lambda lease: lease["ID"])
        if "TTL" in found and found["TTL"] > 0:
            found["TTL"] = "some"
        return found

    def watched(self, stream: Stream, end_revision: int) -> dict[int, list[Any]]:
        """By watch what came, up to the sentinel's event. How events were gathered is each server's own."""
        by_watch: dict[int, list[Any]] = {}
        for answer in stream.until(lambda answer: answer.get("watch_id") == ENDS and "events" in answer):
            told = self.known(answer)
            revision = told.pop("header").get("revision", 0)
            events = told.pop("events", None)
            line = by_watch.setdefault(told.get("watch_id", 0), [])
            if events is None:
                line.append((revision, told))
                continue
            revisions = [event["kv"]["mod_revision"] for event in events]
            assert revisions == sorted(revisions) and revisions[-1] <= revision <= end_revision
            line += [event for event in events if event["kv"]["key"] != SENTINEL]
        return by_watch


def behind_at(target: str) -> int:
    with urllib.request.urlopen(f"http://{target}/metrics", timeout=PATIENCE_S) as answer:
        lines = answer.read().decode().splitlines()
    return int(float(next(line.split()[1] for line in lines if line.startswith(SLOW_WATCHERS))))


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Side, Side]]:
    folder = tmp_path_factory.mktemp("etcd")
    with contextlib.ExitStack() as stack:
        target = stack.enter_context(real_etcd(folder / "theirs"))
        server = stack.enter_context(ours(folder / "ours"))
        theirs = Side(target, lambda: behind_at(target))
        mine = Side(f"127.0.0.1:{server.port}", lambda: server.node.member.replica.hub.behind)
        yield theirs, mine
        for side in (theirs, mine):
            side.caller.close()


def same(both: tuple[Side, Side], name: str, request: Any = None) -> Any:
    theirs, mine = (side.call(name, request) for side in both)
    assert mine == theirs, f"{name} {whole(request) if request is not None else ''}"
    return theirs[1]


def created_as(key: bytes, watch_id: int) -> Any:
    return pb.WatchRequest(create_request=pb.WatchCreateRequest(key=key, watch_id=watch_id))


def ask_streams(streams: list[Stream], request: Any, creates: int) -> int:
    """Returns when both have taken it; how many creations there are more. A creation is always answered, so one of
    another watch tells that what came before it was taken."""
    asked = [request]
    if request.WhichOneof("request_union") == "cancel_request":
        asked.append(created_as(b"~nothing", (1 << 51) + creates))
    for stream in streams:
        for each in asked:
            stream.send(each)
        eventually(lambda: stream.created > creates, f"the watch is created: {request}")  # noqa: B023
    return 1


def in_step(both: tuple[Side, Side]) -> None:
    """Watches that begin in the past have seen it."""
    for side in both:
        eventually(lambda: side.behind() == 0, "all watches are in step")  # noqa: B023


def test_each_number_at_the_edges_of_its_type_is_answered_alike(both: tuple[Side, Side]) -> None:
    for key in (b"a", b"b"):
        same(both, "KV/Put", pb.PutRequest(key=key, value=b"v"))
    for name, request in at_edges():
        same(both, name, request)


def test_what_is_no_message_and_no_method_is_refused_in_the_same_words(both: tuple[Side, Side]) -> None:
    callers = [side.caller for side in both]
    for path in ("/etcdserverpb.KV/Nope", "/foo.Bar/Nope", "/nope", "/a/b/c", "//", "/etcdserverpb.KV/"):
        theirs, mine = (caller.raw(path, b"") for caller in callers)
        assert mine == theirs and theirs[0] == "UNIMPLEMENTED", path
    for path in ("/etcdserverpb.Watch/Watch", "/etcdserverpb.Lease/LeaseKeepAlive"):
        theirs, mine = (caller.raw(path, b"\xff", stream=True) for caller in callers)
        assert mine == theirs and theirs[0] == "INTERNAL", path
    theirs, mine = (caller.raw("/etcdserverpb.Cluster/MemberAdd", b"\x0a\x01\xff") for caller in callers)
    assert mine == theirs and "UTF-8" in theirs[1]
    draws = Draws(11)
    for _ in range(400):
        path, data = draws.garbage()
        theirs, mine = (caller.raw(path, data) for caller in callers)
        assert mine == theirs, (path, data)


@pytest.mark.parametrize("seed", range(HISTORIES))
def test_generated_histories_over_grpc_are_answered_alike(both: tuple[Side, Side], seed: int) -> None:
    draws = Draws(seed)
    streams = [side.caller.stream("Watch/Watch") for side in both]
    draws.revision = same(both, "KV/Put", pb.PutRequest(key=b"a"))["header"]["revision"]
    creates = 0
    for _ in range(250):
        request = draws.request()
        name = UNARY.get(request.DESCRIPTOR.name)
        if name is None:
            # In step with what follows: a start of "now" is the same on both.
            if request.WhichOneof("request_union") == "cancel_request":
                in_step(both)
            creates += ask_streams(streams, request, creates)
            continue
        if name == "KV/Compact":
            in_step(both)
        found = same(both, name, request)
        if isinstance(found, dict):
            draws.revision = max(draws.revision, found["header"]["revision"])
            if name == "KV/Compact":
                draws.compacted = max(draws.compacted, request.revision)
    ask_streams(streams, created_as(SENTINEL, ENDS), creates)
    in_step(both)
    end = same(both, "KV/Put", pb.PutRequest(key=SENTINEL))["header"]["revision"]
    theirs, mine = (side.watched(stream, end) for side, stream in zip(both, streams))
    assert theirs.keys() == mine.keys()
    for watch_id, told in theirs.items():
        for position, pair in enumerate(zip_longest(told, mine[watch_id])):
            assert pair[0] == pair[1], (watch_id, position, told[0])
    for stream in streams:
        stream.close()

"""What reimplementations of etcd's API get wrong, each a test of ours, and of a real etcd: that it is so."""

from __future__ import annotations

import contextlib
import queue
import random
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from etcd_api import METHODS, Caller, Stream, ours, real_etcd
from patience import eventually

from minikube_py.etcd.messages import pb

LIMIT_BYTES = 3 << 19
SILENT_S = 0.3
COMPACTED = ("OUT_OF_RANGE", "etcdserver: mvcc: required revision has been compacted")
FUTURE = ("OUT_OF_RANGE", "etcdserver: mvcc: required revision is a future revision")


@pytest.fixture(scope="module", params=["ours", pytest.param("etcd", marks=pytest.mark.original)])
def etcd(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Caller]:
    folder = tmp_path_factory.mktemp("etcd")
    with contextlib.ExitStack() as stack:
        if request.param == "ours":
            target = f"127.0.0.1:{stack.enter_context(ours(folder)).port}"
        else:
            target = stack.enter_context(real_etcd(folder))
        caller = Caller(target)
        yield caller
        caller.close()


@pytest.fixture
def stream(etcd: Caller) -> Iterator[Stream]:
    found = etcd.stream("Watch/Watch")
    yield found
    found.close()


def put(etcd: Caller, key: bytes, value: bytes = b"", **more: Any) -> int:
    return ok(etcd.call("KV/Put", pb.PutRequest(key=key, value=value, **more)))["header"]["revision"]


def ok(answer: tuple[str, Any]) -> Any:
    assert answer[0] == "ok", answer
    return answer[1]


def revision(etcd: Caller) -> int:
    return ok(etcd.call("KV/Range", pb.RangeRequest(key=b"a")))["header"]["revision"]


def putting(key: bytes, value: bytes = b"") -> Any:
    return pb.RequestOp(request_put=pb.PutRequest(key=key, value=value))


def deleting(key: bytes, range_end: bytes = b"") -> Any:
    return pb.RequestOp(request_delete_range=pb.DeleteRangeRequest(key=key, range_end=range_end))


def reading(key: bytes, **more: Any) -> Any:
    return pb.RequestOp(request_range=pb.RangeRequest(key=key, **more))


def nesting(*ops: Any, **more: Any) -> Any:
    return pb.RequestOp(request_txn=pb.TxnRequest(success=ops, **more).SerializeToString())


def txn(etcd: Caller, *ops: Any, **more: Any) -> tuple[str, Any]:
    return etcd.call("KV/Txn", pb.TxnRequest(success=ops, **more))


def create(stream: Stream, key: bytes, **more: Any) -> dict[str, Any]:
    stream.send(pb.WatchRequest(create_request=pb.WatchCreateRequest(key=key, **more)))
    return stream.next()


def test_a_change_adds_one_revision_and_a_delete_of_nothing_none(etcd: Caller) -> None:
    before = revision(etcd)
    ok(txn(etcd, putting(b"one/a"), putting(b"one/b"), deleting(b"one/none")))
    assert revision(etcd) == before + 1
    ok(etcd.call("KV/DeleteRange", pb.DeleteRangeRequest(key=b"one/none")))
    assert revision(etcd) == before + 1


def test_compares_see_what_was_before_and_reads_what_the_txn_wrote(etcd: Caller) -> None:
    absent = pb.Compare(key=b"seen", target=1, result=0, create_revision=0)
    inner = nesting(reading(b"seen"), compare=[absent])
    found = ok(txn(etcd, putting(b"seen", b"v"), inner, compare=[absent]))
    nested = found["responses"][1]["response_txn"]
    assert found["succeeded"] and nested["succeeded"]
    assert nested["responses"][0]["response_range"]["kvs"][0]["value"] == b"v"


def test_a_missing_key_compares_as_zeros_and_its_value_never(etcd: Caller) -> None:
    def holds(**compare: Any) -> bool:
        return bool(ok(txn(etcd, compare=[pb.Compare(**compare)])).get("succeeded"))

    value, version = 3, 0
    assert holds(key=b"miss", target=version, result=0, version=0)
    assert not holds(key=b"miss", target=value, result=0, value=b"")
    assert not holds(key=b"miss", target=value, result=3, value=b"x")
    put(etcd, b"all/1")
    put(etcd, b"all/2")
    put(etcd, b"all/2")
    assert holds(key=b"all/", range_end=b"all0", target=version, result=1, version=0)
    assert not holds(key=b"all/", range_end=b"all0", target=version, result=0, version=1)


def test_a_key_is_put_once_in_a_txn(etcd: Caller) -> None:
    duplicate = ("INVALID_ARGUMENT", "etcdserver: duplicate key given in txn request")
    assert txn(etcd, putting(b"k"), putting(b"k")) == duplicate
    assert txn(etcd, putting(b"k"), deleting(b"k")) == duplicate
    assert txn(etcd, deleting(b"a", b"z"), putting(b"k")) == duplicate
    ok(txn(etcd, deleting(b"k"), deleting(b"k")))
    ok(txn(etcd, nesting(putting(b"k"), failure=[putting(b"k")])))


def test_nesting_spends_the_budget_of_operations(etcd: Caller) -> None:
    too_many = ("INVALID_ARGUMENT", "etcdserver: too many operations in txn request")

    def nested(depth: int) -> Any:
        op = putting(b"deep")
        for _ in range(depth - 1):
            op = nesting(op)
        return op

    ok(txn(etcd, nested(128)))
    assert txn(etcd, nested(129)) == too_many
    ok(txn(etcd, *[putting(b"wide/%d" % at) for at in range(128)]))
    assert txn(etcd, *[putting(b"wide/%d" % at) for at in range(129)]) == too_many
    assert txn(etcd, pb.RequestOp()) == ("INVALID_ARGUMENT", "etcdserver: key not found")


def test_a_txn_that_is_refused_has_written_nothing(etcd: Caller) -> None:
    before = revision(etcd)
    assert txn(etcd, putting(b"first"), reading(b"a", revision=before + 9)) == FUTURE
    leased = pb.RequestOp(request_put=pb.PutRequest(key=b"second", lease=424242))
    assert txn(etcd, putting(b"first"), leased) == ("NOT_FOUND", "etcdserver: requested lease not found")
    assert revision(etcd) == before
    assert "count" not in ok(etcd.call("KV/Range", pb.RangeRequest(key=b"first")))


def test_where_a_range_ends(etcd: Caller) -> None:
    for key in (b"end/a", b"end/b", b"end/c"):
        put(etcd, key)

    def keys(key: bytes, range_end: bytes) -> list[bytes]:
        found = ok(etcd.call("KV/Range", pb.RangeRequest(key=key, range_end=range_end)))
        return [kv["key"] for kv in found.get("kvs", ())]

    assert keys(b"end/b", b"") == [b"end/b"]
    assert keys(b"end/b", b"\0")[:2] == [b"end/b", b"end/c"]
    assert keys(b"end/b", b"end/b") == keys(b"end/b", b"end/a") == []
    assert etcd.call("KV/Range", pb.RangeRequest(range_end=b"\0"))[1] == "etcdserver: key is not provided"


def test_reads_of_the_past_and_what_is_compacted(etcd: Caller) -> None:
    first = put(etcd, b"past", b"1")
    put(etcd, b"past", b"2")
    now = put(etcd, b"past", b"3")
    old = ok(etcd.call("KV/Range", pb.RangeRequest(key=b"past", revision=first)))
    assert (old["header"]["revision"], old["kvs"][0]["value"]) == (now, b"1")
    ok(etcd.call("KV/Compact", pb.CompactionRequest(revision=first + 1, physical=True)))
    assert etcd.call("KV/Range", pb.RangeRequest(key=b"past", revision=first)) == COMPACTED
    at = ok(etcd.call("KV/Range", pb.RangeRequest(key=b"past", revision=first + 1)))
    assert at["kvs"][0]["value"] == b"2"
    assert etcd.call("KV/Range", pb.RangeRequest(key=b"past", revision=now + 1)) == FUTURE
    assert etcd.call("KV/Compact", pb.CompactionRequest(revision=first)) == COMPACTED
    assert etcd.call("KV/Compact", pb.CompactionRequest(revision=now + 9)) == FUTURE


def test_count_ignores_limit_and_filters_and_more_does_not(etcd: Caller) -> None:
    first = put(etcd, b"count/1")
    for key in (b"count/2", b"count/3"):
        put(etcd, key)

    def found(**more: Any) -> tuple[int, int, bool]:
        answer = ok(etcd.call("KV/Range", pb.RangeRequest(key=b"count/", range_end=b"count0", **more)))
        return answer["count"], len(answer.get("kvs", ())), answer.get("more", False)

    assert found(limit=2) == (3, 2, True)
    assert found(limit=2, max_mod_revision=first) == (3, 1, False)
    assert found(count_only=True) == (3, 0, False)
    odd = pb.RangeRequest(key=b"a", sort_target=9)
    assert etcd.call("KV/Range", odd) == ("INVALID_ARGUMENT", "etcdserver: invalid sort option")


def test_what_is_too_large_is_refused_with_etcds_words(etcd: Caller) -> None:
    large = pb.PutRequest(key=b"large", value=bytes(LIMIT_BYTES + 1))
    assert etcd.call("KV/Put", large) == ("INVALID_ARGUMENT", "etcdserver: request is too large")
    code, _ = etcd.call("KV/Put", pb.PutRequest(key=b"large", value=bytes(LIMIT_BYTES * 2)))
    assert code == "RESOURCE_EXHAUSTED"


def test_watches_have_ids_of_their_stream(etcd: Caller, stream: Stream) -> None:
    assert [create(stream, b"w").get("watch_id", 0) for _ in range(2)] == [0, 1]
    assert create(stream, b"w", watch_id=7)["watch_id"] == 7
    taken = create(stream, b"w", watch_id=7)
    assert (taken["watch_id"], taken["created"], taken["canceled"]) == (-1, True, True)
    empty = create(stream, b"w", range_end=b"a")
    assert empty["watch_id"] == -1 and empty["cancel_reason"] == "mvcc: watcher range is empty"
    below = create(stream, b"w", start_revision=-1)
    assert below["watch_id"] == -1 and below["cancel_reason"] == COMPACTED[1]
    # An unknown one is canceled in silence.
    for watch_id in (99, 1):
        stream.send(pb.WatchRequest(cancel_request=pb.WatchCancelRequest(watch_id=watch_id)))
    canceled = stream.next()
    assert (canceled["watch_id"], canceled["canceled"]) == (1, True)


def test_a_watch_from_before_the_compaction_is_created_and_then_canceled(etcd: Caller, stream: Stream) -> None:
    first = put(etcd, b"old", b"1")
    compacted = put(etcd, b"old", b"2")
    put(etcd, b"old", b"3")
    ok(etcd.call("KV/Compact", pb.CompactionRequest(revision=compacted)))
    assert create(stream, b"old", start_revision=first)["created"]
    canceled = stream.next()
    assert (canceled["canceled"], canceled["compact_revision"]) == (True, compacted)
    assert "cancel_reason" not in canceled and "revision" not in canceled["header"]
    # What was before the event at the compacted revision is compacted itself.
    create(stream, b"old", start_revision=compacted, prev_kv=True)
    events = stream.next()["events"]
    assert [event.get("prev_kv", {}).get("value") for event in events] == [None, b"2"]


def test_a_watch_from_the_future_is_silent_until_then(etcd: Caller, stream: Stream) -> None:
    start = revision(etcd) + 2
    create(stream, b"future", start_revision=start)
    put(etcd, b"future")
    stream.send(pb.WatchRequest(progress_request=pb.WatchProgressRequest()))
    with pytest.raises(queue.Empty):
        stream.next(SILENT_S)
    put(etcd, b"future")
    assert [event["kv"]["mod_revision"] for event in stream.next()["events"]] == [start]


def test_progress_is_told_once_for_all_watches(etcd: Caller, stream: Stream) -> None:
    for key in (b"p", b"q"):
        create(stream, key)
    now = put(etcd, b"other")
    stream.send(pb.WatchRequest(progress_request=pb.WatchProgressRequest()))
    told = stream.next()
    assert (told["watch_id"], told["header"]["revision"]) == (-1, now) and "events" not in told
    with pytest.raises(queue.Empty):
        stream.next(SILENT_S)


def test_what_a_deletion_looks_like(etcd: Caller, stream: Stream) -> None:
    put(etcd, b"gone", b"v")
    create(stream, b"gone", prev_kv=True, filters=[0])
    put(etcd, b"gone", b"w")
    ok(etcd.call("KV/DeleteRange", pb.DeleteRangeRequest(key=b"gone")))
    (event,) = stream.next()["events"]
    assert event["type"] == 1 and sorted(event["kv"]) == ["key", "mod_revision"]
    assert event["prev_kv"]["value"] == b"w"


def test_one_revision_is_cut_for_who_asked_for_fragments_alone(etcd: Caller, stream: Stream) -> None:
    create(stream, b"big/", range_end=b"big0", fragment=True)
    create(stream, b"big/", range_end=b"big0")
    for part in range(3):
        # More than 2 MiB in one revision, which no request can carry, by deleting what many wrote.
        put(etcd, b"big/%d" % part, bytes(1 << 20))
    for _ in range(6):
        stream.next()
    ok(etcd.call("KV/DeleteRange", pb.DeleteRangeRequest(key=b"big/", range_end=b"big0")))
    create(stream, b"big/", range_end=b"big0", fragment=True, prev_kv=True, start_revision=revision(etcd), watch_id=9)
    create(stream, b"big/", range_end=b"big0", prev_kv=True, start_revision=revision(etcd), watch_id=8)
    found: dict[int, list[tuple[int, bool]]] = {8: [], 9: []}
    while len(found[8]) < 1 or not found[9] or found[9][-1][1]:
        answer = stream.next()
        if "events" in answer and answer.get("watch_id") in found:
            found[answer["watch_id"]].append((len(answer["events"]), answer.get("fragment", False)))
    assert found == {8: [(3, False)], 9: [(1, True), (1, True), (1, False)]}


def test_leases_that_nobody_has(etcd: Caller) -> None:
    unknown = ("NOT_FOUND", "etcdserver: requested lease not found")
    assert etcd.call("Lease/LeaseRevoke", pb.LeaseRevokeRequest(ID=4711)) == unknown
    assert etcd.call("KV/Put", pb.PutRequest(key=b"a", lease=4711)) == unknown
    left = ok(etcd.call("Lease/LeaseTimeToLive", pb.LeaseTimeToLiveRequest(ID=4711)))
    assert (left["ID"], left["TTL"]) == (4711, -1)
    renewals = etcd.stream("Lease/LeaseKeepAlive")
    renewals.send(pb.LeaseKeepAliveRequest(ID=4711))
    renewed = renewals.next()
    assert (renewed["ID"], renewed.get("TTL", 0)) == (4711, 0)
    renewals.close()


def test_leases_and_their_keys(etcd: Caller, stream: Stream) -> None:
    granted = ok(etcd.call("Lease/LeaseGrant", pb.LeaseGrantRequest(TTL=1)))
    assert granted["TTL"] == 2 and granted["ID"] > 0
    too_large = etcd.call("Lease/LeaseGrant", pb.LeaseGrantRequest(TTL=9_000_000_001))
    assert too_large == ("OUT_OF_RANGE", "etcdserver: too large lease TTL")
    ok(etcd.call("Lease/LeaseGrant", pb.LeaseGrantRequest(ID=77, TTL=500)))
    again = etcd.call("Lease/LeaseGrant", pb.LeaseGrantRequest(ID=77, TTL=500))
    assert again == ("FAILED_PRECONDITION", "etcdserver: lease already exists")
    for key in (b"lease/c", b"lease/a", b"lease/b"):
        put(etcd, key, lease=77)
    put(etcd, b"lease/b")
    left = ok(etcd.call("Lease/LeaseTimeToLive", pb.LeaseTimeToLiveRequest(ID=77, keys=True)))
    assert sorted(left["keys"]) == [b"lease/a", b"lease/c"] and 0 < left["TTL"] <= left["grantedTTL"] == 500
    create(stream, b"lease/", range_end=b"lease0")
    before = revision(etcd)
    ok(etcd.call("Lease/LeaseRevoke", pb.LeaseRevokeRequest(ID=77)))
    events = stream.next()["events"]
    assert [(event["kv"]["key"], event["kv"]["mod_revision"]) for event in events] == [
        (b"lease/a", before + 1),
        (b"lease/c", before + 1),
    ]


def test_a_range_in_a_stream_is_the_range(etcd: Caller) -> None:
    for part in range(3):
        put(etcd, b"stream/%d" % part, bytes(900_000))
    asked = pb.RangeRequest(key=b"stream/", range_end=b"stream0")
    parts = [part.get("range_response", {}) for part in ok(etcd.parts("KV/RangeStream", asked))]
    whole = ok(etcd.call("KV/Range", asked))
    assert [kv for part in parts for kv in part.get("kvs", ())] == whole["kvs"]
    # How many parts there are is the server's affair; what is not part of the list is in the last alone.
    assert not any(name in part for part in parts[:-1] for name in ("header", "count", "more"))
    assert (parts[-1]["header"], parts[-1]["count"]) == (whole["header"], whole["count"])
    sorted_by = pb.RangeRequest(key=b"a", sort_order=2)
    assert etcd.parts("KV/RangeStream", sorted_by)[0] == "UNIMPLEMENTED"


def test_any_bytes_are_refused_and_nothing_ends(etcd: Caller) -> None:
    drawn = random.Random(5)
    channel = grpc.insecure_channel(etcd.target)
    try:
        for name, method in METHODS.items():
            if method.takes_stream or method.service in ("grpc.health.v1.Health", "etcdserverpb.Auth"):
                continue
            if name in ("Maintenance/Snapshot", "Lock/Lock", "Election/Campaign", "Election/Observe"):
                continue
            call = channel.unary_unary(f"/{method.service}/{method.name}")
            for size in (1, 7, 60):
                with pytest.raises(grpc.RpcError):
                    call(b"\xff" + drawn.randbytes(size), timeout=20)
    finally:
        channel.close()
    assert put(etcd, b"still")


def test_a_stream_that_is_not_read_holds_itself_back(tmp_path_factory: pytest.TempPathFactory) -> None:
    with ours(tmp_path_factory.mktemp("slow")) as server:
        caller = Caller(f"127.0.0.1:{server.port}")
        channel = grpc.insecure_channel(caller.target, (("grpc.max_receive_message_length", -1),))
        requests: queue.SimpleQueue[Any] = queue.SimpleQueue()
        call = caller.method("Watch/Watch", "stream_stream")(iter(requests.get, None))
        requests.put(pb.WatchRequest(create_request=pb.WatchCreateRequest(key=b"s", range_end=b"t")))
        assert next(call).created
        sent = [put(caller, b"s/%d" % at, bytes(1 << 20)) for at in range(24)]
        (watching,) = server._streams
        eventually(lambda: watching.behind == 1, "the watch is taken off the store")
        seen: list[int] = []
        while len(seen) < len(sent):
            seen += [event.kv.mod_revision for event in next(call).events]
        assert seen == sent
        call.cancel()
        requests.put(None)
        channel.close()
        caller.close()

"""How much of what a client may ask for is bounded: connections, streams, requests and what half opens them."""

from __future__ import annotations

import contextlib
import itertools
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from etcd_api import Caller, Ours, ours
from patience import PATIENCE_S, eventually

from minikube_py.etcd.grpc_server import Limits
from minikube_py.etcd.messages import pb
from minikube_py.store.member_config import MemberConfig

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SMALL = Limits(connections_max=8, streams_max=12, per_connection_max=4, handshake_s=0.5)


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Ours]:
    with ours(tmp_path, SMALL) as server:
        yield server


def test_a_stream_beyond_the_bound_is_refused_and_requests_go_on_once_there_is_room(small: Ours) -> None:
    with contextlib.ExitStack() as stack:
        callers = [Caller(f"127.0.0.1:{small.port}", unshared=str(number)) for number in range(4)]
        for caller in callers:
            stack.callback(caller.close)
        streams = []
        for caller in callers[:3]:
            for _ in range(4):
                stream = caller.stream("Watch/Watch")
                stack.callback(stream.close)
                stream.send(pb.WatchRequest(create_request=pb.WatchCreateRequest(key=b"a")))
                assert stream.next()["created"]
                streams.append(stream)
        assert callers[3].call("KV/Range", pb.RangeRequest(key=b"a"))[0] == "RESOURCE_EXHAUSTED"
        streams[0].close()
        eventually(lambda: callers[3].call("KV/Range", pb.RangeRequest(key=b"a"))[0] == "ok", "there is room")


def test_connections_that_say_nothing_or_half_of_it_hold_nobody_up(small: Ours) -> None:
    with contextlib.ExitStack() as stack:
        silent = [
            stack.enter_context(socket.create_connection(("127.0.0.1", small.port), PATIENCE_S)) for _ in range(4)
        ]
        for number, each in enumerate(silent):
            each.sendall((PREFACE + b"\0\0\x08\x01\x04\0\0\0\x01")[: number * 11])
        caller = Caller(f"127.0.0.1:{small.port}")
        stack.callback(caller.close)
        assert caller.call("KV/Put", pb.PutRequest(key=b"a"))[0] == "ok"
        for each in silent:
            # What never became a connection is ended.
            while each.recv(1 << 12):
                pass


def test_connections_beyond_the_bound_are_ended(small: Ours) -> None:
    with contextlib.ExitStack() as stack:
        held = [Caller(f"127.0.0.1:{small.port}", unshared=str(number)) for number in range(SMALL.connections_max)]
        for caller in held:
            stack.callback(caller.close)
            assert caller.call("KV/Range", pb.RangeRequest(key=b"a"))[0] == "ok"
        more = Caller(f"127.0.0.1:{small.port}", unshared="more")
        stack.callback(more.close)
        assert more.call("KV/Range", pb.RangeRequest(key=b"a"))[0] == "UNAVAILABLE"
        # Nobody who was there has lost a connection for it.
        assert all(caller.call("KV/Range", pb.RangeRequest(key=b"a"))[0] == "ok" for caller in held)
        held[0].close()
        eventually(lambda: more.call("KV/Range", pb.RangeRequest(key=b"a"))[0] == "ok", "there is room")


def test_a_store_over_its_quota_takes_deletes_and_says_so_in_etcds_words(tmp_path: Path) -> None:
    with ours(tmp_path, config=MemberConfig(fsync="inline", quota_bytes=1 << 20)) as server:
        caller = Caller(f"127.0.0.1:{server.port}")
        value = bytes(1 << 16)

        def put(number: int) -> tuple[str, object]:
            return caller.call("KV/Put", pb.PutRequest(key=b"k%d" % number, value=value))

        numbers = itertools.count()
        eventually(lambda: put(next(numbers))[0] != "ok", "the quota is exceeded")
        assert put(0) == ("RESOURCE_EXHAUSTED", "etcdserver: mvcc: database space exceeded")
        refused = caller.call("Lease/LeaseGrant", pb.LeaseGrantRequest(TTL=60))
        assert refused == ("RESOURCE_EXHAUSTED", "etcdserver: mvcc: database space exceeded")
        eventually(lambda: "alarms" in caller.call("Maintenance/Alarm")[1], "the alarm is raised")
        status = caller.call("Maintenance/Status")[1]
        own = status["header"]["member_id"]
        assert caller.call("Maintenance/Alarm")[1]["alarms"] == [{"memberID": own, "alarm": 1}]
        assert status["errors"] == [f"memberID:{own} alarm:NOSPACE"]
        deleted = caller.call("KV/DeleteRange", pb.DeleteRangeRequest(key=b"k", range_end=b"l"))
        assert deleted[0] == "ok"
        revision = deleted[1]["header"]["revision"]
        assert caller.call("KV/Compact", pb.CompactionRequest(revision=revision, physical=True))[0] == "ok"
        # The member clears it itself once there is room.
        eventually(lambda: put(0)[0] == "ok", "there is room")
        caller.close()

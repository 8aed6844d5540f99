"""What a client may make the gRPC server hold or do is bounded, and others are served meanwhile."""

from __future__ import annotations

import contextlib
import gc
import socket
import struct
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from etcd_api import Caller, Ours, ours
from http2_peer import (
    CONTINUATION,
    DATA,
    GOAWAY,
    HEADERS,
    HELLO,
    PING,
    PREFACE,
    PRIORITY,
    RST_STREAM,
    RawPeer,
    block,
    frame,
    message,
    number,
    request,
    settings,
)
from patience import PATIENCE_S, eventually

from minikube_py.etcd.grpc_server import Limits
from minikube_py.etcd.maintenance import SNAPSHOTS_MAX
from minikube_py.etcd.messages import pb

CALM = 11
KEY = b"large"
GET = message(pb.RangeRequest(key=KEY).SerializeToString())
WATCH = message(pb.WatchRequest(create_request=pb.WatchCreateRequest(key=b"w")).SerializeToString())
PUT = "/etcdserverpb.KV/Put"
WATCHES = "/etcdserverpb.Watch/Watch"
SNAPSHOT = "/etcdserverpb.Maintenance/Snapshot"
SLACK_BYTES = 4 << 20
"""Of what Python and the store hold besides."""


@contextlib.contextmanager
def serving(folder: Path, limits: Limits | None = None) -> Iterator[tuple[Ours, Caller]]:
    with ours(folder, limits) as server:
        caller = Caller(f"127.0.0.1:{server.port}", unshared="good")
        try:
            yield server, caller
        finally:
            caller.close()


def peer(server: Ours, hello: bytes = HELLO) -> RawPeer:
    return RawPeer(server.port, PATIENCE_S, hello)


def is_served(caller: Caller) -> bool:
    return caller.call("KV/Range", pb.RangeRequest(key=b"a"))[0] == "ok"


def metric(server: Ours, name: str) -> float:
    return server.metrics()[f"minikube_py_etcd_grpc_{name}"]


def grown_bytes(work: Callable[[], None]) -> int:
    """The most that was held meanwhile, above what was held before."""
    gc.collect()
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_ten_thousand_streams_are_as_many_as_there_may_be_and_what_never_comes_is_given_up(tmp_path: Path) -> None:
    limits = Limits(streams_max=2_000, per_connection_max=500, stalled_s=15.0)
    with serving(tmp_path, limits) as (server, caller), contextlib.ExitStack() as stack:
        peers = [stack.enter_context(peer(server)) for _ in range(10)]

        def flood() -> None:
            for each in peers:
                each.send(b"".join([request(2 * stream + 1, path=PUT) for stream in range(1_000)]))
            eventually(lambda: metric(server, "calls") >= 2_000, "all places are accepted")

        assert grown_bytes(flood) < 32 << 20
        assert metric(server, "calls") <= 2_000
        # They said what they want, and then nothing: they make room at once, and are given up.
        assert is_served(caller)
        eventually(lambda: metric(server, "calls") == 0, "nothing is left of them")


def test_streams_that_never_say_anything_are_given_up_and_those_that_did_may_wait(tmp_path: Path) -> None:
    with serving(tmp_path, Limits(streams_max=100, stalled_s=1.0)) as (server, caller), peer(server) as some:
        some.send(request(1, path=WATCHES) + frame(DATA, 0, 1, WATCH))
        assert some.until(DATA, 1) is not None
        some.send(b"".join([request(stream, path=WATCHES) for stream in range(3, 301, 2)]))
        eventually(lambda: metric(server, "calls") == 100, "all places are taken")
        assert is_served(caller)
        eventually(lambda: metric(server, "calls") == 1, "the silent ones were given up")
        assert caller.call("KV/Put", pb.PutRequest(key=b"w"))[0] == "ok"
        assert some.until(DATA, 1) is not None


@pytest.mark.parametrize(
    ("path", "first"), [(WATCHES, (0, WATCH)), ("/grpc.health.v1.Health/Watch", (1, b"\0\0\0\0\0"))]
)
def test_who_has_a_user_is_served_whatever_those_without_hold(
    path: str, first: tuple[int, bytes], tmp_path: Path
) -> None:
    """Their watches are refused, as etcd does, and their streams stay open, from the same address. Who asks once and is
    answered without end makes room, too."""
    with serving(tmp_path, Limits(streams_max=100)) as (server, caller), peer(server) as bad:
        assert caller.call("Auth/UserAdd", pb.AuthUserAddRequest(name="root", password="x"))[0] == "ok"
        assert caller.call("Auth/UserGrantRole", pb.AuthUserGrantRoleRequest(user="root", role="root"))[0] == "ok"
        assert caller.call("Auth/AuthEnable", pb.AuthEnableRequest())[0] == "ok"
        told = caller.call("Auth/Authenticate", pb.AuthenticateRequest(name="root", password="x"))[1]
        flags, message = first
        for stream in range(1, 201, 2):
            bad.send(request(stream, path=path) + frame(DATA, flags, stream, message))
            assert bad.until(DATA, stream) is not None
        assert metric(server, "calls") == 100
        token = [("token", told["token"])]
        assert caller.call("KV/Range", pb.RangeRequest(key=b"a"), metadata=token)[0] == "ok"
        # Nobody's token is no user of its own.
        found = caller.call("KV/Range", pb.RangeRequest(key=b"a"), metadata=[("token", "invented")])[0]
        assert found == "UNAUTHENTICATED"
        bad.send(request(201, path=WATCHES) + frame(DATA, 0, 201, WATCH))
        bad.send(request(203, ("token", "invented"), path=WATCHES) + frame(DATA, 0, 203, WATCH))
        assert bad.answer(203)["grpc-message"] == "etcdserver: too many requests"


def test_what_follows_the_only_message_of_a_request_under_way_ends_nothing(tmp_path: Path) -> None:
    """Also where the answer is a stream without end: it is dropped, whatever it is."""
    with serving(tmp_path, Limits()) as (server, caller), peer(server) as some:
        some.send(request(1, path="/grpc.health.v1.Health/Watch") + frame(DATA, 0, 1, b"\0\0\0\0\0"))
        assert some.until(DATA, 1) is not None
        # More than a message may have: of one that has not begun it is refused.
        some.send(frame(DATA, 0, 1, b"\0\x7f\xff\xff\xff"))
        # Frames of a connection are taken in order.
        some.send(request(3, path="/grpc.health.v1.Health/Check") + frame(DATA, 1, 3, b"\0\0\0\0\0"))
        assert some.until(DATA, 3) is not None
        eventually(lambda: metric(server, "calls") == 1, "it goes on, and the other has ended")
        assert is_served(caller)


def test_messages_that_come_by_half_take_no_more_than_their_room(tmp_path: Path) -> None:
    limits = Limits(messages_bytes_max=1 << 20, stalled_s=1.0)
    with serving(tmp_path, limits) as (server, caller), peer(server) as bad:
        half = b"\0" + (1 << 20).to_bytes(4, "big") + bytes(16_000)
        refused = 0
        for stream in range(1, 401, 2):
            bad.send(request(stream, path=PUT) + frame(DATA, 0, stream, half))
        while refused < 100:
            found = bad.until(HEADERS)
            assert found is not None
            fields = bad.fields(found)
            refused += fields.get("grpc-message") == "etcdserver: too many requests"
        assert metric(server, "unread_bytes") <= 1 << 20
        # Small requests come whole in a frame, and take none of it.
        assert is_served(caller)
        eventually(lambda: metric(server, "unread_bytes") == 0, "they were given up")
        large = pb.PutRequest(key=b"a", value=bytes(1 << 19))
        assert caller.call("KV/Put", large)[0] == "ok"


def test_empty_messages_that_a_stream_does_not_take_count_like_others(tmp_path: Path) -> None:
    """The stream waits to write its first answer, and takes no further request."""
    empty = message(b"") * 3_000
    with serving(tmp_path, Limits(messages_bytes_max=1 << 20)) as (server, caller):
        with peer(server, PREFACE + settings((4, 0))) as bad:
            for stream in range(1, 9, 2):
                bad.send(request(stream, path="/etcdserverpb.Lease/LeaseKeepAlive"))
                bad.send(frame(DATA, 0, stream, empty) * 4)
            eventually(lambda: metric(server, "unread_bytes") > 400_000, "messages wait")
            eventually(lambda: metric(server, "calls") < 4, "a stream is refused")
            assert metric(server, "unread_bytes") <= 1 << 20
            assert is_served(caller)
        eventually(lambda: metric(server, "unread_bytes") == 0, "nothing is left of them")


def test_a_message_that_is_too_large_is_refused_before_it_has_come(tmp_path: Path) -> None:
    with serving(tmp_path) as (server, caller), peer(server) as bad:
        bad.send(request(1, path=PUT) + frame(DATA, 0, 1, b"\0\x7f\xff\xff\xff"))
        found = bad.answer(1)
        assert found["grpc-message"] == "grpc: received message larger than max (2147483647 vs. 2097152)"
        assert is_served(caller)


def test_answers_that_nobody_takes_are_bounded_in_bytes_and_in_time(tmp_path: Path) -> None:
    """A window of nothing: each answer waits for it."""
    limits = Limits(unsent_bytes_max=4 << 20, stalled_s=1.0)
    with serving(tmp_path, limits) as (server, caller), peer(server, PREFACE + settings((4, 0))) as bad:
        assert caller.call("KV/Put", pb.PutRequest(key=KEY, value=bytes(1 << 20)))[0] == "ok"
        bad.send(b"".join([request(stream) + frame(DATA, 1, stream, GET) for stream in range(1, 41, 2)]))
        eventually(lambda: metric(server, "unsent_bytes") >= 4 << 20, "answers wait")
        # Their owner is refused, and nobody else.
        assert metric(server, "unsent_bytes") <= (4 << 20) + (1 << 20) + 100
        found = bad.until(HEADERS, 39)
        assert found is not None and bad.fields(found)["grpc-message"] == "etcdserver: too many requests"
        assert is_served(caller)
        eventually(lambda: metric(server, "unsent_bytes") == 0, "those that nobody took were given up")


def test_a_large_answer_is_made_as_it_is_read_and_must_be_read_at_a_pace(tmp_path: Path) -> None:
    """The one whose client gives the window of a byte now and then is given up; the other is not."""
    limits = Limits(stalled_s=1.0, answer_s=60.0)
    with serving(tmp_path, limits) as (server, caller), peer(server, PREFACE + settings((4, 0))) as slow:
        for number_of in range(40):
            put = pb.PutRequest(key=b"large/%02d" % number_of, value=bytes(1 << 20))
            assert caller.call("KV/Put", put)[0] == "ok"
        asked = message(pb.RangeRequest(key=b"large/", range_end=b"large0").SerializeToString())
        slow.send(request(1) + frame(DATA, 1, 1, asked))
        eventually(lambda: metric(server, "unsent_bytes") > 0, "a piece waits")

        def trickled() -> bool:
            slow.send(frame(8, 0, 0, number(1)) + frame(8, 0, 1, number(1)))
            assert is_served(caller) and metric(server, "unsent_bytes") <= 2 << 20
            return metric(server, "unsent_bytes") == 0

        eventually(trickled, "it was given up")


def test_snapshots_that_are_not_read_make_room_for_others(tmp_path: Path) -> None:
    with serving(tmp_path, Limits(stalled_s=1.0)) as (server, caller), peer(server, PREFACE + settings((4, 0))) as bad:
        for stream in range(1, 2 * SNAPSHOTS_MAX, 2):
            bad.send(request(stream, path=SNAPSHOT) + frame(DATA, 1, stream, message(b"")))
        eventually(lambda: metric(server, "calls") == SNAPSHOTS_MAX, "they wait for their reader")
        assert caller.parts("Maintenance/Snapshot", pb.SnapshotRequest())[0] == "RESOURCE_EXHAUSTED"
        ended = lambda: caller.parts("Maintenance/Snapshot", pb.SnapshotRequest())[0] == "ok"  # noqa: E731
        eventually(ended, "they were given up")


def test_a_watch_that_is_not_read_holds_what_it_may_and_goes_on_when_it_is(tmp_path: Path) -> None:
    with serving(tmp_path, Limits(stalled_s=1.0)) as (server, caller), peer(server, PREFACE + settings((4, 0))) as slow:
        slow.send(request(1, path=WATCHES) + frame(DATA, 0, 1, WATCH))
        eventually(lambda: server.metrics()["minikube_py_etcd_watches"] == 1, "it watches")
        for _ in range(12):
            assert caller.call("KV/Put", pb.PutRequest(key=b"w", value=bytes(1 << 20)))[0] == "ok"
        assert server.metrics()["minikube_py_etcd_watch_bytes_waiting"] <= 6 << 20
        slow.send(frame(8, 0, 0, number(1 << 30)) + frame(8, 0, 1, number(1 << 30)))
        got = 0
        while got < 12 << 20:
            found = slow.until(DATA, 1)
            assert found is not None
            got += len(found.payload)


def test_who_does_not_read_its_socket_is_not_read_either(tmp_path: Path) -> None:
    """Otherwise acknowledgements of pings, and answers, would pile up."""
    with serving(tmp_path, Limits(ping_least_s=0.0)) as (server, caller), peer(server) as bad:
        bad.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        bad.socket.setblocking(False)
        sent = 0

        def flood() -> None:
            nonlocal sent
            pings = frame(PING, 0, 0, bytes(8)) * 1_000
            with contextlib.suppress(BlockingIOError):
                while sent < 64 << 20:
                    sent += bad.socket.send(pings[: len(pings) - sent % 17])
                    if not sent % 100:
                        assert is_served(caller)

        assert grown_bytes(flood) < SLACK_BYTES
        assert sent < 64 << 20
        assert is_served(caller)


FLOODS: dict[str, Callable[[int], bytes]] = {
    "resets (CVE-2023-44487)": lambda n: request(2 * n + 1, path=PUT) + frame(RST_STREAM, 0, 2 * n + 1, number(8)),
    "streams that we reset (CVE-2025-8671)": lambda n: request(2 * n + 1, path=PUT) + frame(8, 0, 2 * n + 1, number(0)),
    "settings (CVE-2019-9515)": lambda n: settings((3, n)),
    "settings that change all windows": lambda n: (
        b"".join([request(2 * each + 1, path=WATCHES) for each in range(100)]) if not n else settings((4, n))
    ),
    "pings (CVE-2019-9512)": lambda n: frame(PING, 0, 0, bytes(8)),
    "priorities (CVE-2019-9513)": lambda n: frame(PRIORITY, 0, 1, number(2 * n + 3) + b"a"),
    "empty frames (CVE-2019-9518)": lambda n: (request(1, path=PUT) if not n else b"") + frame(DATA, 0, 1),
    "windows": lambda n: frame(8, 0, 0, number(1)),
    "unknown frames": lambda n: frame(200, 0, 0, bytes(8)),
    "continuations (CVE-2024-27316)": lambda n: frame(HEADERS, 0, 1) if not n else frame(CONTINUATION, 0, 1, b""),
    "malformed requests": lambda n: frame(HEADERS, 5, 2 * n + 1, block(("A", "b"))),
    "header bombs (CVE-2016-6581)": lambda n: frame(
        HEADERS, 5, 2 * n + 1, (b"\x40\x01a\x7f\x81\x1e" + b"v" * 4_000 if not n else b"") + b"\xbe" * 9_000
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", FLOODS)
def test_a_flood_ends_its_connection_and_others_do_not_notice(tmp_path: Path, what: str) -> None:
    make, ended = FLOODS[what], False
    with serving(tmp_path) as (server, caller), peer(server) as bad:

        def flood() -> None:
            for start in range(0, 30_000, 100):
                try:
                    bad.send(b"".join([make(each) for each in range(start, start + 100)]))
                except (ConnectionResetError, BrokenPipeError):
                    return
                if not start % 1_000:
                    assert is_served(caller)

        assert grown_bytes(flood) < SLACK_BYTES
        with contextlib.suppress(ConnectionResetError):
            while (found := bad.next()) is not None:
                if found.kind == GOAWAY:
                    ended = struct.unpack(">L", found.payload[4:8])[0] in (CALM, 1, 9)
        eventually(lambda: metric(server, "calls") == 0, "nothing is left of it")
        assert ended or any("broken" in name for name in server.metrics())
        assert is_served(caller)


def test_a_watch_stream_that_sends_what_cannot_be_read_is_ended_whole(tmp_path: Path) -> None:
    with serving(tmp_path) as (server, caller), peer(server) as bad:
        for stream, wrong in enumerate((b"\7\0\0\0\0", b"\0\xff\0\0\0", message(b"\xff"))):
            number_ = 2 * stream + 1
            bad.send(request(number_, path=WATCHES) + frame(DATA, 0, number_, WATCH))
            assert bad.until(DATA, number_) is not None
            bad.send(frame(DATA, 0, number_, wrong))
            assert bad.until(RST_STREAM, number_) is not None
        eventually(lambda: server.metrics()["minikube_py_etcd_watch_streams"] == 0, "nothing watches any more")
        assert metric(server, "calls") == 0 and is_served(caller)


def test_a_timeout_ends_what_waits_and_a_reset_ends_what_runs(tmp_path: Path) -> None:
    with serving(tmp_path) as (server, caller), peer(server) as some:
        lock = message(pb.LockRequest(name=b"l").SerializeToString())
        path = "/v3lockpb.Lock/Lock"
        assert caller.call("Lock/Lock", pb.LockRequest(name=b"l"))[0] == "ok"
        some.send(request(1, ("grpc-timeout", "200m"), path=path) + frame(DATA, 1, 1, lock))
        assert some.answer(1)["code"] == "8"
        some.send(request(3, path=path) + frame(DATA, 1, 3, lock))
        eventually(lambda: metric(server, "calls") == 1, "it waits")
        some.send(frame(RST_STREAM, 0, 3, number(8)))
        eventually(lambda: metric(server, "calls") == 0, "it does not wait any more")
        found = caller.call("KV/Range", pb.RangeRequest(key=b"l/", range_end=b"l0"))[1]
        eventually(
            lambda: caller.call("KV/Range", pb.RangeRequest(key=b"l/", range_end=b"l0"))[1]["count"] == 1,
            "nothing waits for a client that has gone",
        )
        assert found["count"] >= 1


def test_connections_end_with_the_server_and_are_told_so(tmp_path: Path) -> None:
    with serving(tmp_path) as (server, _):
        some = peer(server)
        some.send(request(1) + frame(DATA, 1, 1, GET))
        assert some.answer(1)["grpc-status"] == "0"
    found = some.until(GOAWAY)
    assert found is not None and struct.unpack(">LL", found.payload[:8]) == (1, 0)
    assert some.next() is None
    some.socket.close()


def test_a_put_that_is_under_way_is_not_told_that_there_was_too_much(tmp_path: Path) -> None:
    """Clients read that as a call that never began."""
    with serving(tmp_path, Limits(messages_bytes_max=4096)) as (server, caller), peer(server) as bad:
        put = message(pb.PutRequest(key=b"there", value=b"v" * 1000).SerializeToString())
        data = request(1, path=PUT) + frame(DATA, 0, 1, put[:500]) + frame(DATA, 0, 1, put[500:])
        # More than its message, and half-sent ones of the same address.
        data += frame(DATA, 0, 1, bytes(900))
        half = b"\0" + (1 << 20).to_bytes(4, "big") + bytes(1_500)
        for stream in range(3, 11, 2):
            data += request(stream, path=PUT) + frame(DATA, 0, stream, half)
        bad.send(data)
        assert bad.answer(1)["grpc-status"] == "0"
        found = caller.call("KV/Range", pb.RangeRequest(key=b"there"))
        assert found[0] == "ok" and found[1]["kvs"]

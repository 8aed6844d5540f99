"""What comes over a connection before anybody is known, and slowly: raw bytes, deadlines moved by hand."""

from __future__ import annotations

import asyncio
import gc
import json
import struct
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest_asyncio
from patience import patience

from minikube_py.apiserver.auth import SCHEDULER
from minikube_py.apiserver.http import Connection
from minikube_py.apiserver.http_server import HttpServer
from minikube_py.apiserver.limits import Limits
from minikube_py.apiserver.rules import User
from minikube_py.apiserver.watch_stream import Stream
from tests.support.api_core import Core

MAPS = "/api/v1/namespaces/default/configmaps"
TURNS_MAX = 10_000


class Peer:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, method: str, path: str, body: bytes = b"", token: str = "admin-token", **headers: str) -> None:
        given = {"Host": "x", "Content-Length": str(len(body)), "Content-Type": "application/json"}
        given |= {name.replace("_", "-"): value for name, value in headers.items()}
        if token:
            given["Authorization"] = f"Bearer {token}"
        lines = "".join(f"{name}: {value}\r\n" for name, value in given.items() if value)
        self.writer.write(f"{method} {path} HTTP/1.1\r\n{lines}\r\n".encode() + body)

    async def answer(self) -> tuple[int, dict[str, str], Any]:
        async with patience():
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode()
            first, *lines = head.rstrip().split("\r\n")
            headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
            body = await self.reader.readexactly(int(headers["content-length"])) if "content-length" in headers else b""
        return int(first.split()[1]), headers, json.loads(body) if body[:1] == b"{" else body

    async def ended(self) -> bytes:
        """What comes up to the end of the connection."""
        try:
            async with patience():
                return await self.reader.read()
        except ConnectionError:
            return b""


class Served:
    def __init__(self, core: Core, http: HttpServer, port: int) -> None:
        self.core = core
        self.http = http
        self.port = port
        self.peers: list[Peer] = []

    async def peer(self) -> Peer:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        self.peers.append(Peer(reader, writer))
        return self.peers[-1]

    def later(self, seconds: float) -> None:
        """As if so much time had passed."""
        self.http.sweep(self.core.clock.monotonic_s() + seconds)

    async def until(self, what: Any) -> None:
        for _ in range(TURNS_MAX):
            if what():
                return
            await asyncio.sleep(0.001)
        raise AssertionError(f"never: {self.http.metrics()}")

    def held_bytes(self) -> int:
        """All that was sent and is kept."""
        return self.http.metrics()["apiserver_bodies_in_flight_bytes"] + sum(  # type: ignore[return-value]
            connection.reader.buffered_bytes for connection in self.http._connections
        )


LIMITS = Limits(
    connections_max=120,
    strangers_per_peer_max=100,
    header_bytes_max=8192,
    heads_bytes_max=64 << 10,
    bodies_bytes_max=4 << 20,
    writes_in_flight_max=2,
)


@pytest_asyncio.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    core = Core(tmp_path, LIMITS)
    core.tokens["scheduler-token"] = SCHEDULER
    core.tokens["other-token"] = User("other", groups=("system:masters", "system:authenticated"))
    for number in range(LIMITS.connections_max):
        core.tokens[f"token-{number}"] = User(f"user-{number}", groups=("system:authenticated",))
    core.tokens["guest-token"] = User("guest", groups=("system:authenticated",))
    await core.start()
    http = HttpServer(core.api)
    served = Served(core, http, await http.start())
    yield served
    for peer in served.peers:
        peer.writer.close()
    await core.api.stop()
    await http.stop()
    await core.member.stop()


# --- nobody without credentials costs memory --------------------------------------------------------------------------


async def test_whoever_may_not_write_is_told_so_before_a_body_is_read(served: Served) -> None:
    for token, code in (("", 403), ("wrong", 401), ("scheduler-token", 403)):
        peer = await served.peer()
        peer.send("POST", MAPS, token=token, Content_Length=str(3 << 20))
        status, headers, answer = await peer.answer()
        assert (status, answer["code"], headers["connection"]) == (code, code, "close")
        peer.writer.write(b"x" * 100_000)
        served.later(1)
        assert await peer.ended() == b""
    assert served.http.metrics()["apiserver_bodies_in_flight_bytes"] == 0


async def test_a_hundred_unfinished_bodies_without_credentials_keep_nothing(served: Served) -> None:
    peers = [await served.peer() for _ in range(100)]
    for peer in peers:
        peer.send("POST", MAPS, token="", Content_Length=str(3 << 20))
        peer.writer.write(b"x" * (1 << 20))
    for peer in peers:
        assert (await peer.answer())[0] == 403
    await served.until(lambda: served.held_bytes() == 0)
    served.later(1)
    for peer in peers:
        await peer.ended()
    await served.until(lambda: not served.http._connections)


async def test_a_body_is_asked_for_only_of_those_who_may_send_it(served: Served) -> None:
    peer = await served.peer()
    peer.send("POST", MAPS, token="", Expect="100-continue", Content_Length="10")
    assert (await peer.answer())[0] == 403
    peer = await served.peer()
    body = b'{"metadata":{"name":"a"}}'
    peer.send("POST", MAPS, Expect="100-continue", Content_Length=str(len(body)))
    assert (await peer.reader.readuntil(b"\r\n\r\n")) == b"HTTP/1.1 100 Continue\r\n\r\n"
    peer.writer.write(body)
    assert (await peer.answer())[0] == 201


async def test_a_small_body_that_nobody_wanted_does_not_cost_the_connection(served: Served) -> None:
    peer = await served.peer()
    for _ in range(3):
        peer.send("POST", MAPS, b"x" * 70_000, token="")
        assert (await peer.answer())[0] == 403
    peer.send("GET", "/healthz", token="")
    assert (await peer.answer())[0] == 200


async def test_half_sent_heads_are_bounded_together_and_end_at_their_deadline(served: Served) -> None:
    peers = [await served.peer() for _ in range(50)]
    for peer in peers:
        peer.writer.write(b"GET / HTTP/1.1\r\nX: " + b"y" * 4000)
    await served.until(lambda: served.http.refused["heads_bytes_max"])
    assert served.held_bytes() <= LIMITS.heads_bytes_max + LIMITS.header_bytes_max
    served.later(LIMITS.header_timeout_s)
    for peer in peers:
        assert await peer.ended() == b""
    await served.until(lambda: not served.http._connections)
    assert served.http.metrics()["apiserver_unfinished_heads_bytes"] == 0


async def test_a_connection_that_says_nothing_ends(served: Served) -> None:
    silent, idle = await served.peer(), await served.peer()
    idle.send("GET", "/healthz")
    assert (await idle.answer())[0] == 200
    served.later(LIMITS.header_timeout_s)
    assert await silent.ended() == b""
    idle.send("GET", "/healthz")
    assert (await idle.answer())[0] == 200
    served.later(LIMITS.idle_timeout_s)
    assert await idle.ended() == b""


async def test_a_connection_into_a_pod_on_which_nobody_sends_ends(served: Served) -> None:
    peer = await served.peer()
    pod = {"metadata": {"name": "p"}, "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]}}
    peer.send("POST", "/api/v1/namespaces/default/pods", json.dumps(pod).encode())
    assert (await peer.answer())[0] == 201
    status = json.dumps({"status": {"phase": "Running"}}).encode()
    patch = "application/merge-patch+json"
    peer.send("PATCH", "/api/v1/namespaces/default/pods/p/status", status, Content_Type=patch)
    assert (await peer.answer())[0] == 200
    asked = {"Connection": "Upgrade", "Upgrade": "SPDY/3.1", "X_Stream_Protocol_Version": "portforward.k8s.io"}
    peer.send("POST", "/api/v1/namespaces/default/pods/p/portforward", **asked)
    assert (await peer.answer())[0] == 101
    served.later(LIMITS.idle_timeout_s)
    ping = struct.pack(">HHII", 0x8003, 6, 4, 1)
    peer.writer.write(ping)
    async with patience():
        assert await peer.reader.readexactly(len(ping)) == ping
    served.later(LIMITS.upgraded_idle_timeout_s)
    assert await peer.ended() == b""


async def test_those_who_say_nothing_take_no_place_from_others(served: Served) -> None:
    silent = [await served.peer() for _ in range(LIMITS.strangers_per_peer_max + 20)]
    speaking = await served.peer()
    speaking.send("GET", "/api/v1/nodes")
    assert (await speaking.answer())[0] == 200
    assert served.http.port.strangers_count == 0
    silent[0].send("GET", "/api/v1/nodes")
    assert (await silent[0].answer())[0] == 200


async def test_a_place_whose_peer_lets_it_wait_is_taken_back_for_others(served: Served) -> None:
    known = await served.peer()
    known.send("GET", "/api/v1/nodes")
    assert (await known.answer())[0] == 200
    half = [await served.peer() for _ in range(LIMITS.strangers_per_peer_max)]
    for peer in half:
        peer.writer.write(b"GET / HTTP/1.1\r\n")
    await served.until(lambda: served.http.port.strangers_count == LIMITS.strangers_per_peer_max)
    waiting = await served.peer()
    waiting.send("GET", "/healthz", token="")
    await served.until(lambda: served.http.port.waiting_count == 1)
    served.later(LIMITS.stranger_patience_s)
    assert (await waiting.answer())[0] == 200
    # The oldest made room; none who is authenticated does.
    assert await half[0].ended() == b""
    assert served.http.refused + served.http.port.ended == {"strangers_per_peer_max": 1}
    known.send("GET", "/api/v1/nodes")
    assert (await known.answer())[0] == 200


async def test_whose_request_is_worked_on_keeps_its_place(served: Served) -> None:
    busy = await served.peer()
    busy.writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n")
    await served.until(lambda: served.http._connections)
    (connection,) = served.http._connections
    connection.incoming.busy()
    half = [await served.peer() for _ in range(LIMITS.strangers_per_peer_max)]
    for peer in half:
        peer.writer.write(b"GET / HTTP/1.1\r\n")
    await served.until(lambda: served.http.port.waiting_count == 1)
    served.later(LIMITS.stranger_patience_s)
    await served.until(lambda: served.http.port.waiting_count == 0)
    busy.writer.write(b"\r\n")
    assert (await busy.answer())[0] == 200


async def test_the_number_of_authenticated_connections_is_bounded(served: Served) -> None:
    peers = [await served.peer() for _ in range(LIMITS.connections_max + 1)]
    for peer in peers[:-1]:
        peer.send("GET", "/healthz")
        assert (await peer.answer())[0] == 200
    peers[-1].send("GET", "/healthz")
    status, headers, answer = await peers[-1].answer()
    assert (status, headers["connection"], headers["retry-after"]) == (429, "close", "1")
    assert answer["message"] == f"too many connections: {LIMITS.connections_max} is the limit; please try again later"
    for peer in peers:
        peer.writer.close()
    await served.until(lambda: not served.http._connections and not served.http.port._peers)
    assert not any(served.http.port.metrics()[f"connections_{kind}"] for kind in ("authenticated", "unauthenticated"))


async def test_whoever_has_most_connections_makes_room_for_others(served: Served) -> None:
    many = [await served.peer() for _ in range(LIMITS.connections_max)]
    for peer in many:
        peer.send("GET", "/healthz", token="scheduler-token")
        assert (await peer.answer())[0] == 200
    many[0].send("GET", "/healthz", token="scheduler-token")
    assert (await many[0].answer())[0] == 200
    more = await served.peer()
    more.send("GET", "/healthz", token="scheduler-token")
    assert (await more.answer())[0] == 429
    # The one that has waited longest for its client is closed, whatever came first.
    for at, token in ((1, "guest-token"), (2, "admin-token"), (3, "admin-token")):
        peer = await served.peer()
        peer.send("GET", "/healthz", token=token)
        assert (await peer.answer())[0] == 200
        assert await many[at].ended() == b""
        assert served.http.port.authenticated_count == LIMITS.connections_max
    many[0].send("GET", "/healthz", token="scheduler-token")
    assert (await many[0].answer())[0] == 200


async def test_administrators_make_room_for_nobody(served: Served) -> None:
    peers = [await served.peer() for _ in range(LIMITS.connections_max + 1)]
    for peer in peers[:-1]:
        peer.send("GET", "/healthz")
        assert (await peer.answer())[0] == 200
    peers[-1].send("GET", "/healthz", token="scheduler-token")
    assert (await peers[-1].answer())[0] == 429


async def test_of_those_who_wait_the_oldest_make_room_for_the_newest(served: Served) -> None:
    served.http.port.limits = replace(served.http.port.limits, waiting_per_peer_max=2)
    silent = [await served.peer() for _ in range(3)]
    assert await silent[0].ended() == b""
    assert served.http.port.ended == {"waiting_per_peer_max": 1}
    silent[2].send("GET", "/healthz", token="")
    assert (await silent[2].answer())[0] == 200


async def test_connections_that_end_leave_nothing_for_the_collector(served: Served) -> None:
    """It walks what is old only rarely (store.collector): what is garbage in circles would stay."""
    gc.collect()
    gc.disable()
    others = {id(found) for found in gc.get_objects() if isinstance(found, Connection | Stream)}
    try:
        for token in ("", "admin-token"):
            for path in ("/healthz", MAPS, f"{MAPS}?watch=true"):
                peers = [await served.peer() for _ in range(5)]
                for peer in peers:
                    peer.send("GET", path, token=token)
                    await peer.reader.readuntil(b"\r\n\r\n")
                for peer in peers:
                    peer.writer.close()
                await served.until(lambda: not served.http._connections)
        for _ in range(5):
            await asyncio.sleep(0)
        served.peers.clear()
        left = [found for found in gc.get_objects() if isinstance(found, Connection | Stream)]
        assert not [found for found in left if id(found) not in others]
    finally:
        gc.enable()


# --- bodies -----------------------------------------------------------------------------------------------------------


async def test_a_body_that_does_not_come_is_answered_408(served: Served) -> None:
    peer = await served.peer()
    peer.send("POST", MAPS, Content_Length="100")
    peer.writer.write(b"{")
    await served.until(lambda: served.http.metrics()["apiserver_bodies_in_flight_bytes"] == 1)
    served.later(LIMITS.body_timeout_s)
    status, headers, answer = await peer.answer()
    assert (status, answer["code"], headers["connection"]) == (408, 408, "close")
    assert answer["message"] == "the body of the request did not arrive within 30 s, which is the limit"
    await served.until(lambda: served.held_bytes() == 0)


async def test_bodies_in_flight_have_a_budget(served: Served) -> None:
    first, second = await served.peer(), await served.peer()
    for peer in (first, second):
        peer.send("POST", MAPS, Content_Length=str(3 << 20))
        peer.writer.write(b"x" * ((3 << 20) - 1))
    done, _ = await asyncio.wait([asyncio.ensure_future(peer.answer()) for peer in (first, second)],
                                 return_when=asyncio.FIRST_COMPLETED)  # fmt: skip
    status, headers, answer = done.pop().result()
    assert (status, headers["retry-after"]) == (429, "1")
    assert "reach 4194304 bytes, which is the limit" in answer["message"]
    assert served.http.metrics()["apiserver_bodies_in_flight_bytes"] <= LIMITS.bodies_bytes_max


REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
REVIEW = json.dumps({"spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}}).encode()


async def test_unfinished_bodies_of_one_user_take_no_room_from_others(served: Served) -> None:
    full = [await served.peer() for _ in range(2)]
    for number, peer in enumerate(full, 1):
        peer.send("POST", REVIEWS, token="scheduler-token", Content_Length=str((2 << 20) + 1))
        peer.writer.write(b" " * (2 << 20))
        await served.until(lambda held=number * (2 << 20): served.http.bodies.total == held)
    other = await served.peer()
    for _ in range(3):
        other.send("POST", REVIEWS, REVIEW, token="other-token")
        assert (await other.answer())[0] == 201
    # What arrived at once takes no room; what does not is held, and the one who holds most makes room for it.
    assert served.http.bodies.total == LIMITS.bodies_bytes_max
    other.send("POST", REVIEWS, token="other-token", Content_Length=str(len(REVIEW) + 100_000))
    other.writer.write(b" " * 100_000)
    status, headers, answer = await full[0].answer()
    assert (status, headers["retry-after"], headers["connection"]) == (429, "1", "close")
    assert "the bodies being received reach 4194304 bytes, which is the limit" in answer["message"]
    other.writer.write(REVIEW)
    assert (await other.answer())[0] == 201
    assert served.http.refused["bodies_bytes_max"] == 1
    await served.until(lambda: served.http.bodies.total == 2 << 20)


async def test_too_long_a_body_is_refused_by_its_length_alone(served: Served) -> None:
    peer = await served.peer()
    peer.send("POST", MAPS, Content_Length=str((3 << 20) + 1))
    status, _, answer = await peer.answer()
    assert (status, answer["message"]) == (413, "Request entity too large: limit is 3145728")


async def test_a_body_in_chunks_of_one_byte_is_read_a_part_at_a_time(served: Served) -> None:
    body = json.dumps({"metadata": {"name": "a"}, "data": {"x": "y" * 20_000}}).encode()
    peer = await served.peer()
    peer.send("POST", MAPS, Content_Length="", Transfer_Encoding="chunked")
    peer.writer.write(b"".join(b"1\r\n%c\r\n" % byte for byte in body) + b"0\r\n\r\n")
    assert (await peer.answer())[0] == 201
    peer.send("POST", MAPS, Content_Length="", Transfer_Encoding="chunked")
    peer.writer.write(b"zz\r\n")
    status, headers, answer = await peer.answer()
    assert (status, headers["connection"]) == (400, "close") and "invalid byte in chunk length" in answer["message"]


async def test_writes_in_flight_are_bounded_but_for_administrators(served: Served) -> None:
    slots = served.core.api.in_flight.writes
    slots.taken = slots.limit
    lease = b'{"metadata":{"name":"a","namespace":"default"}}'
    path = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
    peer = await served.peer()
    peer.send("POST", path, lease, token="scheduler-token")
    status, headers, answer = await peer.answer()
    assert (status, headers["retry-after"], answer["reason"]) == (429, "1", "TooManyRequests")
    assert answer["message"] == (
        "Too many requests, please try again later. The limit is 2 mutating requests in flight."
    )
    peer.send("GET", "/api/v1/nodes", token="scheduler-token")
    assert (await peer.answer())[0] == 200
    peer.send("POST", path, lease)
    assert (await peer.answer())[0] == 201
    slots.taken = 0
    peer.send("POST", path, lease, token="scheduler-token")
    assert (await peer.answer())[0] == 409
    assert slots.taken == 0


async def test_a_large_list_is_in_flight_until_all_of_it_was_sent(served: Served) -> None:
    object.__setattr__(served.core.api.limits, "list_slice", 1)
    slots = served.core.api.in_flight.reads
    for i in range(60):
        leader = {"control-plane.alpha.kubernetes.io/leader": "y" * 250_000}
        node = {"metadata": {"name": f"m{i}", "annotations": leader}}
        await served.core.done("POST", "/api/v1/nodes", node)
    slow, gone = await served.peer(), await served.peer()
    for peer in (slow, gone):
        peer.writer.transport.pause_reading()  # type: ignore[attr-defined]
        peer.send("GET", "/api/v1/nodes", token="scheduler-token")
    await served.until(lambda: len(served.http._stalled) == 2)
    assert slots.taken == 2
    gone.writer.transport.abort()  # type: ignore[attr-defined]
    await served.until(lambda: slots.taken == 1)
    slow.writer.transport.resume_reading()  # type: ignore[attr-defined]
    async with patience():
        last = b""
        while not last.endswith(b"\r\n0\r\n\r\n"):
            last = last[-7:] + await slow.reader.read(1 << 20)
    await served.until(lambda: slots.taken == 0)


# --- answers ----------------------------------------------------------------------------------------------------------


async def test_a_reader_of_a_list_that_takes_nothing_is_cut_off(served: Served) -> None:
    object.__setattr__(served.core.api.limits, "list_slice", 1)
    for i in range(12):
        await served.core.done("POST", MAPS, {"metadata": {"name": f"m{i}"}, "data": {"x": "y" * 1_000_000}})
    peer = await served.peer()
    peer.writer.transport.pause_reading()  # type: ignore[attr-defined]
    peer.send("GET", MAPS)
    await served.until(lambda: served.http._stalled)
    served.later(LIMITS.write_timeout_s)
    assert served.http.refused["write_timeout_s"] == 1
    await served.until(lambda: not served.http._connections)


async def test_answers_that_are_not_read_hold_up_the_next_request(served: Served) -> None:
    await served.core.done("POST", MAPS, {"metadata": {"name": "m"}, "data": {"x": "y" * 1_000_000}})
    peer = await served.peer()
    peer.writer.transport.pause_reading()  # type: ignore[attr-defined]
    for _ in range(40):
        peer.send("GET", f"{MAPS}/m")
    await served.until(lambda: served.http._stalled)
    (connection,) = served.http._connections
    assert connection.transport.get_write_buffer_size() < 4 << 20
    peer.writer.transport.resume_reading()  # type: ignore[attr-defined]
    for _ in range(40):
        assert (await peer.answer())[0] == 200


def _more_than(seen: int, http: HttpServer) -> bool:
    return len(http._stalled) + http.refused["unsent_bytes_max"] > seen


async def test_unread_answers_are_bounded_in_total_and_cost_whoever_holds_most(served: Served) -> None:
    await served.core.done("POST", MAPS, {"metadata": {"name": "m"}, "data": {"x": "y" * 1_000_000}})
    modest = await served.peer()
    modest.writer.transport.pause_reading()  # type: ignore[attr-defined]
    # The kernel takes some megabytes of each connection.
    for _ in range(16):
        modest.send("GET", f"{MAPS}/m")
    await served.until(lambda: served.http._stalled)
    (spared,) = served.http._stalled
    one_bytes = served.http.unsent.total
    assert 1_000_000 < one_bytes < 2 << 20
    served.http.unsent.limit = limit_bytes = 8 * one_bytes
    for _ in range(30):
        seen = len(served.http._stalled) + served.http.refused["unsent_bytes_max"]
        peer = await served.peer()
        peer.writer.transport.pause_reading()  # type: ignore[attr-defined]
        for _ in range(16):
            peer.send("GET", f"{MAPS}/m", token="other-token")
        await served.until(partial(_more_than, seen, served.http))
        assert served.http.metrics()["apiserver_unsent_answers_bytes"] <= limit_bytes
    assert served.http.refused["unsent_bytes_max"] >= 30 - 8 and spared in served.http._stalled
    for peer in served.peers:
        peer.writer.transport.abort()  # type: ignore[attr-defined]
    await served.until(lambda: not served.http._connections)
    assert served.http.unsent.total == 0 and not served.http.unsent._by_user


async def test_a_reader_that_reads_a_little_now_and_then_does_not_keep_its_place_for_long(served: Served) -> None:
    object.__setattr__(served.core.api.limits, "list_slice", 1)
    for i in range(60):
        leader = {"control-plane.alpha.kubernetes.io/leader": "y" * 250_000}
        await served.core.done("POST", "/api/v1/nodes", {"metadata": {"name": f"m{i}", "annotations": leader}})
    slots = served.core.api.in_flight.reads
    peer = await served.peer()
    peer.writer.transport.pause_reading()  # type: ignore[attr-defined]
    peer.send("GET", "/api/v1/nodes", token="scheduler-token")
    await served.until(lambda: served.http._stalled)
    (connection,) = served.http._connections
    assert slots.taken == 1
    # Progress, which satisfies `write_timeout_s`, at each look.
    for passed_s in (20.0, 40.0, 59.0):
        connection.stalled_bytes += 1
        served.later(passed_s)
        assert slots.taken == 1 and not served.http.refused
    connection.stalled_bytes += 1
    served.later(LIMITS.request_timeout_s + 1)
    assert served.http.refused == {"request_timeout_s": 1}
    await served.until(lambda: slots.taken == 0)


async def test_a_watch_may_wait_for_its_reader_as_long_as_that_reads_at_all(served: Served) -> None:
    peer = await served.peer()
    peer.writer.transport.pause_reading()  # type: ignore[attr-defined]
    peer.send("GET", f"{MAPS}?watch=true")
    for i in range(12):
        await served.core.done("POST", MAPS, {"metadata": {"name": f"m{i}"}, "data": {"x": "y" * 1_000_000}})
    await served.until(lambda: served.http._stalled)
    (connection,) = served.http._connections
    connection.stalled_bytes += 1
    served.later(2 * LIMITS.request_timeout_s)
    assert not served.http.refused


async def test_an_option_that_says_follow_takes_no_request_out_of_the_limits(served: Served) -> None:
    slots = served.core.api.in_flight.writes
    for _ in range(LIMITS.writes_in_flight_max):
        slots.take()
    peer = await served.peer()
    for query in ("", "?follow=true", "?follow"):
        peer.send("POST", f"{MAPS}{query}", b'{"metadata": {"name": "m"}}', token="scheduler-token")
        assert (await peer.answer())[0] == 429


async def test_who_writes_on_while_a_client_reads_nothing_does_not_begin_its_time_again(served: Served) -> None:
    """As the two streams of a session do; and whoever waits behind it is ended in time, too."""
    await served.core.done("POST", MAPS, {"metadata": {"name": "m"}, "data": {"x": "y" * 1_000_000}})
    for _ in range(2):
        peer = await served.peer()
        peer.writer.transport.pause_reading()  # type: ignore[attr-defined]
        for _ in range(16):
            peer.send("GET", f"{MAPS}/m")
        await served.until(lambda: len(served.http._stalled) == len(served.peers))
    first = next(iter(served.http._stalled))
    since_s = served.http._stalled[first]
    served.http.stalled(first)
    assert served.http._stalled[first] == since_s
    served.later(LIMITS.write_timeout_s)
    assert served.http.refused["write_timeout_s"] == 2


async def test_users_with_one_connection_each_take_none_from_each_other(served: Served) -> None:
    many = [await served.peer() for _ in range(LIMITS.connections_max)]
    for number, peer in enumerate(many):
        peer.send("GET", "/version", token=f"token-{number}")
        assert (await peer.answer())[0] == 200
    more = await served.peer()
    more.send("GET", "/version", token="guest-token")
    assert (await more.answer())[0] == 429
    administrator = await served.peer()
    administrator.send("GET", "/version")
    assert (await administrator.answer())[0] == 200

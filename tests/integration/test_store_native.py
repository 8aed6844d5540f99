"""The native protocol over real sockets: all of Storage, and clients that misbehave."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import random
import ssl
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from cryptography import x509
from patience import patience
from ports import free_ports

from minikube_py.env import SystemClock, SystemDisk
from minikube_py.errors import (
    Compacted,
    FutureRevision,
    InvalidRequest,
    LeaseExists,
    LeaseNotFound,
    MinikubeError,
    RequestTooLarge,
    Unavailable,
)
from minikube_py.fields.builtin import NODES
from minikube_py.fields.where import Comparison, Where
from minikube_py.index import planner
from minikube_py.index.declared import IndexSpec, parse
from minikube_py.mvcc import sessions
from minikube_py.mvcc.codec import pack
from minikube_py.mvcc.types import Compare, DeleteRange, Put, RangeRequest, Txn, WatchBatch, prefix_end
from minikube_py.raft.configuration import NodeId
from minikube_py.store.client import StoreClient
from minikube_py.store.client_connection import Endpoint
from minikube_py.store.framing import LENGTH, FrameReader, decode_error, frame
from minikube_py.store.limits import FRAME_BYTES_MAX, ServerLimits
from minikube_py.store.member import MemberConfig, StoreMember
from minikube_py.store.membership import ChangeKind, MemberChange
from minikube_py.store.protocol import GREETING, VERSION, Answer, Op
from minikube_py.store.server import StoreServer

TOKEN = "correct horse"


@contextlib.asynccontextmanager
async def serving(
    folder, limits: ServerLimits | None = None, tls: ssl.SSLContext | None = None, port: int = 0
) -> AsyncIterator[StoreServer]:
    config = MemberConfig(own_gc=False)
    member = StoreMember(SystemDisk(folder), SystemClock(), random.Random(), config, pytest.fail)
    await member.start()
    server = StoreServer(member, TOKEN, port=port, tls=tls, limits=limits)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()
        await member.stop()


@contextlib.asynccontextmanager
async def connected(server: StoreServer, tls: ssl.SSLContext | None = None, token: str = TOKEN, cluster_id: int = 0):
    host, port = server.address
    endpoint = Endpoint("localhost" if tls else host, port, token, tls, cluster_id)
    client = StoreClient(endpoint, SystemClock(), random.Random(1))
    await client.start()
    try:
        yield client
    finally:
        await client.close()


async def put(client, key: bytes, value: bytes = b"v", lease: int = 0) -> int:
    return (await client.txn((), (Put(key, value, lease),))).revision


async def until(condition, pause_s: float = 0.005) -> None:
    async with patience():
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(pause_s)


async def test_all_of_storage(tmp_path):
    async with serving(tmp_path) as server, connected(server) as client:
        assert await put(client, b"/a/1", b"one") == 2
        result = await client.txn((Compare(b"/a/1", "MOD", "=", 2),), (Put(b"/a/2", b"two"), RangeRequest(b"/a/1")))
        assert result.succeeded and result.responses[1].kvs[0].value == b"one"
        kv, revision = await client.get(b"/a/2")
        assert (kv.value, revision) == (b"two", 3)
        assert (await client.get(b"/none"))[0] is None
        whole = await client.range(RangeRequest(b"/a/", prefix_end(b"/a/"), limit=1))
        assert (len(whole.kvs), whole.count, whole.more) == (1, 2, True)
        lease = await client.lease_grant(30)
        assert lease.id > 0 and await client.lease_keep_alive(lease.id) == 30
        assert (await client.lease_grant(30, 77)).id == 77
        await put(client, b"/leased", b"x", lease.id)
        await client.lease_revoke(lease.id)
        assert (await client.get(b"/leased"))[0] is None
        assert (await client.compact(3)).revision == client.revision
        assert client.revision == server.member.state.revision
        assert len(server.connections) == 1
        assert client.metrics()["minikube_py_store_client_connected"] == 1


ERRORS = [
    ("below the compacted revision", lambda c: c.range(RangeRequest(b"/k", revision=2)), Compacted),
    ("above the current revision", lambda c: c.range(RangeRequest(b"/k", revision=99)), FutureRevision),
    ("no key", lambda c: c.range(RangeRequest(b"")), InvalidRequest),
    ("unknown lease", lambda c: put(c, b"/k", b"v", 5), LeaseNotFound),
    ("known lease", lambda c: c.lease_grant(10, 9), LeaseExists),
    ("too large", lambda c: put(c, b"/k", bytes(2 << 20)), RequestTooLarge),
    ("larger than any frame", lambda c: put(c, b"/k", bytes(FRAME_BYTES_MAX)), RequestTooLarge),
    ("compacted already", lambda c: c.compact(2), Compacted),
    ("put twice", lambda c: c.txn((), (Put(b"/x", b""), Put(b"/x", b""))), InvalidRequest),
]


@pytest.mark.parametrize(("call", "error"), [case[1:] for case in ERRORS], ids=[case[0] for case in ERRORS])
async def test_errors_arrive_as_what_they_are(tmp_path, call, error):
    async with serving(tmp_path) as server, connected(server) as client:
        for _ in range(5):
            await put(client, b"/k")
        await client.lease_grant(10, 9)
        await client.compact(4)
        with pytest.raises(error):
            await call(client)
        assert await put(client, b"/still-here") == 7


async def test_a_large_range_comes_in_parts(tmp_path):
    async with serving(tmp_path) as server, connected(server) as client:
        value = bytes(1000)
        for start in range(0, 9000, 100):
            await client.txn((), [Put(b"/big/%06d" % i, value) for i in range(start, start + 100)])
        await put(client, b"/big/x", bytes(1_500_000))
        result = await client.range(RangeRequest(b"/big/", b"/big0"))
        assert len(result.kvs) == result.count == 9001
        assert [kv.key for kv in result.kvs] == sorted(kv.key for kv in result.kvs)
        assert sum(len(kv.value) for kv in result.kvs) == 9_000_000 + 1_500_000
        many = await client.txn((), (RangeRequest(b"/big/", b"/big0"),))
        assert many.responses[0].kvs == result.kvs


async def test_a_watch_over_the_wire(tmp_path):
    async with serving(tmp_path) as server, connected(server) as client:
        for i in range(50):
            await put(client, b"/w/%d" % i, b"before")
        seen: list[WatchBatch] = []
        handle = client.watch(b"/w/", b"/w0", 2, seen.append)
        await put(client, b"/w/1", b"after")
        await client.txn((), (DeleteRange(b"/w/2"),))
        revisions = lambda: [event.kv.mod_revision for batch in seen for event in batch.events]  # noqa: E731
        await until(lambda: len(revisions()) == 52)
        assert revisions() == list(range(2, 54))
        last = [event for batch in seen for event in batch.events][-1]
        assert last.type == "DELETE" and last.kv.key == b"/w/2" and last.prev_kv.value == b"before"
        handle.cancel()
        await put(client, b"/w/3")
        await client.get(b"/w/3")
        assert len(revisions()) == 52
        await until(lambda: (len(server.member.replica.hub)) == 0)


def node(name: str, cpu: int) -> Put:
    value = b'{"metadata":{"name":"%s"},"status":{"allocatable":{"cpu":"%d"}}}' % (name.encode(), cpu)
    return Put(b"/registry/nodes/" + name.encode(), value)


def pod(name: str, node_name: str, cpu: int) -> Put:
    value = (
        b'{"metadata":{"name":"%s","namespace":"default"},"spec":{"nodeName":"%s","containers":'
        b'[{"name":"c","resources":{"requests":{"cpu":"%d"}}}]},"status":{"phase":"Running"}}'
    )
    return Put(b"/registry/pods/default/" + name.encode(), value % (name.encode(), node_name.encode(), cpu))


async def test_inequalities_are_asked_and_watched_over_the_wire_and_outlive_a_restart(tmp_path):
    where = Where((Comparison("free.cpu", ">=", ("4",)),))
    many = RangeRequest(b"/registry/nodes/", b"/registry/nodes0", where=where, fields=("free.cpu",))
    async with serving(tmp_path) as server, connected(server) as client:
        await client.declare(NODES)
        await client.txn((), (node("big", 8), node("small", 2)))
        found = await client.range(many)
        assert [kv.key for kv in found.kvs] == [b"/registry/nodes/big"] and found.fields == [(8000,)]
        assert found.stats is not None and found.stats.objects_decoded == 0
        seen: list[WatchBatch] = []
        client.watch(many.key, many.range_end, 0, seen.append, where)
        revision = (await client.txn((), (pod("greedy", "big", 5),))).revision
        events = lambda: [event for batch in seen for event in batch.events]  # noqa: E731
        await until(events)
        [left] = events()
        assert (left.type, left.kv.key, left.kv.mod_revision) == ("DELETE", b"/registry/nodes/big", revision)
        await client.txn((), (DeleteRange(b"/registry/pods/default/greedy"),))
        await until(lambda: len(events()) == 2)
        entered = events()[1]
        assert (entered.type, entered.prev_kv, entered.kv.mod_revision) == ("PUT", None, 2)
        assert client.metrics()["minikube_py_store_client_index_queries_total"] == 1
        assert client.metrics()["minikube_py_store_client_index_objects_decoded_total"] == 0
        past = await client.range(many._replace(revision=revision))
        assert past.kvs == [] and past.revision == client.revision
    async with serving(tmp_path) as server, connected(server) as client:
        assert (await client.range(many)).fields == [(8000,)]
        assert (await client.range(many._replace(revision=revision))).kvs == []
        with pytest.raises(InvalidRequest):
            await client.range(many._replace(where=Where((Comparison("free.cpu", ">=", ("four",)),))))
        refused: list[WatchBatch] = []
        client.watch(many.key, many.range_end, 0, refused.append, Where((Comparison("nope", "=", ("1",)),)))
        await until(lambda: refused)
        assert isinstance(refused[0].error, InvalidRequest)


async def test_indexes_are_declared_asked_and_explained_over_the_wire(tmp_path, monkeypatch):
    # Among so few rows the columns are quicker than any index.
    monkeypatch.setattr(planner, "COLUMNS_US", 1e6)
    spec = IndexSpec("fits", "nodes", ("free.cpu",), "columns", {"block_slots": 128})
    four = Where((Comparison("free.cpu", ">=", ("4",)),))
    request = RangeRequest(b"/registry/nodes/", b"/registry/nodes0", where=four, limit=3, order="ANY")
    async with serving(tmp_path) as server, connected(server) as client:
        await client.declare(NODES)
        await client.txn((), tuple(node(f"n{number}", number % 8) for number in range(80)))
        revision = await client.declare_index(spec)
        assert revision == client.revision == await client.declare_index(spec)
        assert parse((await client.get(b"/minikube-py/indexes/fits"))[0].value) == spec
        await until(lambda: server.member.state.tables.reports()[0].state == "ready")
        found = await client.range(request)
        assert len(found.kvs) == 3 and found.more and found.count == -1
        assert (found.stats.index, found.stats.structure, found.stats.objects_decoded) == ("fits", "columns", 0)
        assert 0 < found.stats.taken_us < 1e6
        assert client.metrics()['minikube_py_store_client_index_hits_by_name_total{index="fits"}'] == 1
        (report,) = await client.indexes()
        assert (report.spec, report.rows, report.queries, report.hits) == (spec, 80, 1, 1)
        explanation = await client.explain(request)
        assert explanation.chosen.name == "fits" and explanation.chosen.found == 3
        assert [each.structure for each in explanation.others] == ["columns", "scan"]
        for wrong, message in (
            (client.declare_index(replace(spec, name="other", structure="magic")), "no structure is named 'magic'"),
            (client.declare_index(replace(spec, structure="scan", options={})), "declared already with another"),
            (client.declare_index(replace(spec, name="other", fields=("x",))), "field 'x' is not declared"),
            (client.drop_index("other"), "there is no index 'other'; the indexes are: fits"),
            (client.txn((), (Put(b"/minikube-py/indexes/x", b""),)), "by declaring and dropping indexes"),
            (client.explain(request._replace(where=None)), "nothing to explain"),
        ):
            with pytest.raises(InvalidRequest, match=message):
                await wrong
        assert await client.drop_index("fits") == client.revision
        assert await client.indexes() == [] and (await client.range(request)).stats.index == ""


async def test_a_watch_of_another_prefix_learns_of_progress(tmp_path):
    async with serving(tmp_path) as server, connected(server) as client:
        seen: list[WatchBatch] = []
        client.watch(b"/quiet/", b"/quiet0", 0, seen.append)
        revision = await put(client, b"/loud")
        await until(lambda: seen and seen[-1].revision == revision)
        assert not seen[-1].events


async def test_one_revision_is_one_batch_however_large(tmp_path):
    async with serving(tmp_path) as server, connected(server) as client:
        for i in range(12):
            await put(client, b"/w/%02d" % i, bytes(1_400_000))
        seen: list[WatchBatch] = []
        client.watch(b"/w/", b"/w0", 0, seen.append)
        await client.txn((), (DeleteRange(b"/w/", b"/w0"),))
        await until(lambda: any(batch.events for batch in seen))
        [batch] = [batch for batch in seen if batch.events]
        assert len(batch.events) == 12 and len({event.kv.mod_revision for event in batch.events}) == 1


async def test_watches_of_the_past_end_with_their_reason(tmp_path):
    async with serving(tmp_path) as server, connected(server) as client:
        for _ in range(9):
            await put(client, b"/k")
        await client.compact(8)
        seen: list[WatchBatch] = []
        client.watch(b"/k", b"", 3, seen.append)
        await until(lambda: seen)
        assert isinstance(seen[0].error, Compacted) and seen[0].error.compact_revision == 8


async def test_many_in_flight(tmp_path):
    limits = ServerLimits(in_flight_max=50)
    async with serving(tmp_path, limits) as server, connected(server) as client:
        revisions = await asyncio.gather(*(put(client, b"/k/%d" % i) for i in range(2000)))
        assert sorted(revisions) == list(range(2, 2002))
        assert all(connection.in_flight == 0 for connection in server.connections)


WRONG = [
    ("token", {"token": "battery staple"}, "the token is wrong"),
    ("cluster", {"cluster_id": 42}, "not 42"),
]


@pytest.mark.parametrize(("change", "message"), [case[1:] for case in WRONG], ids=[case[0] for case in WRONG])
async def test_who_is_not_welcome_is_told_why(tmp_path, change, message):
    async with serving(tmp_path) as server:
        with pytest.raises(MinikubeError, match=message):
            async with connected(server, **change):
                pass
        await until(lambda: not server.connections)


async def test_nobody_there():
    client = StoreClient(Endpoint("127.0.0.1", 1, TOKEN), SystemClock(), random.Random())
    with pytest.raises(Unavailable, match=r"127\.0\.0\.1:1 cannot be reached"):
        await client.start()
    with pytest.raises(Unavailable, match="no connection"):
        await client.get(b"/a")
    await client.close()


def tls_contexts(folder) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """A certificate of its own for localhost, and who trusts it."""
    import datetime

    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = certificate.public_bytes(serialization.Encoding.PEM)
    (folder / "tls.crt").write_bytes(pem)
    (folder / "tls.key").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    return serving, ssl.create_default_context(cadata=pem.decode())


async def test_tls(tmp_path):
    serving_tls, client_tls = tls_contexts(tmp_path)
    async with serving(tmp_path / "data", tls=serving_tls) as server:
        async with connected(server, client_tls) as client:
            await put(client, b"/a", bytes(1_000_000))
            assert len((await client.get(b"/a"))[0].value) == 1_000_000
        with pytest.raises(Unavailable, match="certificate"):
            async with connected(server, ssl.create_default_context()):
                pass


class Raw:
    """A client that says what it likes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.frames = FrameReader(FRAME_BYTES_MAX)
        self.answers: list = []

    async def next(self):
        """The next frame, or None at the end of the connection."""
        async with patience():
            while not self.answers:
                data = await self.reader.read(1 << 16)
                if not data:
                    return None
                self.answers += self.frames.feed(data)
        return self.answers.pop(0)


@contextlib.asynccontextmanager
async def raw(server: StoreServer, hello: bool = True):
    reader, writer = await asyncio.open_connection(*server.address)
    client = Raw(reader, writer)
    try:
        if hello:
            writer.write(frame((GREETING.magic, VERSION, TOKEN, 0)))
            assert (await client.next())[0] == VERSION
        yield client
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


NONSENSE = [
    ("oversized frame", LENGTH.pack(FRAME_BYTES_MAX + 1), f"limit of {FRAME_BYTES_MAX}"),
    ("no msgpack", LENGTH.pack(3) + b"\xc1\xc1\xc1", "cannot be decoded"),
    ("not a request", frame("hello"), "not an array"),
    ("a number", frame(7), "not an array"),
    ("id of another type", frame(("1", Op.PING, None)), "not a positive integer"),
    ("an id that only the server uses", frame((0, Op.PING, None)), "not a positive integer"),
    ("unknown op", frame((1, 99, None)), "unknown op 99"),
]


@pytest.mark.parametrize(("data", "message"), [case[1:] for case in NONSENSE], ids=[case[0] for case in NONSENSE])
async def test_nonsense_is_answered_with_its_reason_and_the_end(tmp_path, data, message):
    async with serving(tmp_path) as server, raw(server) as client:
        client.writer.write(data)
        number, error = await client.next()
        assert number == 0 and message in str(decode_error(error))
        assert await client.next() is None
        async with connected(server) as other:
            assert await put(other, b"/a") == 2


MALFORMED = [
    ("command of no bytes", (1, Op.COMMAND, None)),
    ("command of rubbish", (1, Op.COMMAND, b"rubbish")),
    ("command with wrong types", (1, Op.COMMAND, pack(Put(5, "x")))),  # type: ignore[arg-type]
    ("range that is a command", (1, Op.RANGE, pack(Put(b"k", b"v")))),
    ("command that is a range", (1, Op.COMMAND, pack(RangeRequest(b"k")))),
    ("watch of one word", (1, Op.WATCH, b"k")),
    ("watch with wrong types", (1, Op.WATCH, (b"k", b"", "3", None))),
    ("watch with a broken where", (1, Op.WATCH, (b"k", b"", 0, [1, 2]))),
    ("unhashable lease", (1, Op.KEEP_ALIVE, {})),
    ("nested beyond reason", (1, Op.COMMAND, pack(Txn((), (Txn((), tuple(Txn() for _ in range(200))),))))),
]


@pytest.mark.parametrize("request_", [case[1] for case in MALFORMED], ids=[case[0] for case in MALFORMED])
async def test_malformed_requests_are_refused_and_the_connection_goes_on(tmp_path, request_):
    async with serving(tmp_path) as server, raw(server) as client:
        client.writer.write(frame(request_))
        number, kind, error, unlogged = await client.next()
        assert (number, kind, unlogged) == (1, Answer.ERROR, True) and isinstance(decode_error(error), InvalidRequest)
        client.writer.write(frame((2, Op.COMMAND, pack(Put(b"/a", b"")))))
        assert (await client.next())[:2] == (2, Answer.OK)


HELLOS = [
    ("http", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "over the limit"),
    ("a large one from a stranger", LENGTH.pack(5000), "limit of 4096"),
    ("no hello", frame((1, Op.PING, None)), "not its handshake"),
    ("another version", frame((GREETING.magic, 99, TOKEN, 0)), "version 99"),
    ("token of another type", frame((GREETING.magic, VERSION, None, 0)), "token is wrong"),
]


@pytest.mark.parametrize(("data", "message"), [case[1:] for case in HELLOS], ids=[case[0] for case in HELLOS])
async def test_without_a_hello_nothing(tmp_path, data, message):
    async with serving(tmp_path) as server, raw(server, hello=False) as client:
        client.writer.write(data)
        number, error = await client.next()
        assert number == 0 and message in str(decode_error(error))
        assert await client.next() is None


async def test_who_says_nothing_is_sent_away(tmp_path):
    async with serving(tmp_path, ServerLimits(hello_s=0.05)) as server, raw(server, hello=False) as client:
        with contextlib.suppress(ConnectionError):
            assert await client.next() is None
        await until(lambda: not server.connections)


async def test_byte_by_byte(tmp_path):
    async with serving(tmp_path) as server, raw(server) as client:
        for byte in frame((1, Op.COMMAND, pack(Put(b"/a", b"v")))):
            client.writer.write(bytes((byte,)))
            await asyncio.sleep(0)
        assert (await client.next())[:2] == (1, Answer.OK)


async def test_a_half_closed_connection_gets_its_answers(tmp_path):
    async with serving(tmp_path) as server, raw(server) as client:
        for i in range(100):
            client.writer.write(frame((i + 1, Op.COMMAND, pack(Put(b"/%d" % i, b"v")))))
        client.writer.write_eof()
        answers = [await client.next() for _ in range(100)]
        assert [answer[:2] for answer in answers] == [(i + 1, Answer.OK) for i in range(100)]
        assert await client.next() is None
        await until(lambda: not server.connections)


async def test_connections_are_limited(tmp_path):
    async with serving(tmp_path, ServerLimits(connections_max=1)) as server, connected(server):
        with pytest.raises(Unavailable, match="its limit of 1 connections"):
            async with connected(server):
                pass


async def test_watches_are_limited(tmp_path):
    async with serving(tmp_path, ServerLimits(watches_max=1)) as server, connected(server) as client:
        seen: list[WatchBatch] = []
        client.watch(b"/a", b"", 0, lambda batch: None)
        client.watch(b"/a", b"", 0, seen.append)
        await until(lambda: seen)
        assert isinstance(seen[0].error, Unavailable) and "may hold at most 1 watches" in str(seen[0].error)


async def test_a_slow_watcher_is_cut_off_alone(tmp_path):
    limits = ServerLimits(watch_bytes_max=1 << 20, write_buffer_bytes=64 << 10)
    async with serving(tmp_path, limits) as server, connected(server) as brisk:
        seen: list[WatchBatch] = []
        brisk.watch(b"/w/", b"/w0", 0, seen.append)
        async with raw(server) as slow:
            slow.writer.write(frame((9, Op.WATCH, (b"/w/", b"/w0", 0, None))))
            slow.writer.write(frame((2, Op.PING, None)))
            assert (await slow.next())[:2] == (9, Answer.EVENTS)
            assert (await slow.next())[:2] == (2, Answer.OK)
            writes = 0
            while server.watches_cut_off == 0:
                await put(brisk, b"/w/%d" % (writes % 10), bytes(100_000))
                writes += 1
                assert writes < 1000
            [connection] = [each for each in server.connections if 9 in each.watches]
            assert connection.watches[9].pending_bytes <= 1 << 20
            assert len(server.member.replica.hub) == 1
            while (answer := await slow.next())[1] != Answer.END:
                assert answer[1] == Answer.EVENTS
            assert "over 1048576 bytes" in str(decode_error(answer[2]))
            slow.writer.write(frame((3, Op.COMMAND, pack(Put(b"/other", b"")))))
            assert (await slow.next())[:2] == (3, Answer.OK)
        await until(lambda: sum(len(batch.events) for batch in seen) == writes)
        assert all(batch.error is None for batch in seen)


async def test_who_takes_nothing_for_long_is_closed(tmp_path):
    limits = ServerLimits(stall_s=0.1, write_buffer_bytes=64 << 10)
    async with serving(tmp_path, limits) as server, connected(server) as other:
        for i in range(20):
            await put(other, b"/big/%d" % i, bytes(1_000_000))
        async with raw(server) as client:
            for i in range(10):
                client.writer.write(frame((i + 1, Op.RANGE, pack(RangeRequest(b"/big/", b"/big0")))))
            await until(lambda: len(server.connections) == 1)
        assert await put(other, b"/fine")


def in_flight(client: StoreClient) -> bool:
    """Something was handed to the transport and is not answered yet."""
    connection = client._connection
    return connection is not None and any(call.sent for call in connection._calls.values())


async def test_a_lost_connection_comes_back_and_nothing_is_done_twice(tmp_path):
    async with serving(tmp_path) as server, connected(server) as client:
        await put(client, b"/count", b"0")
        seen: list[WatchBatch] = []
        client.watch(b"/count", b"", 0, seen.append)
        await client.get(b"/count")
        create = client.txn((Compare(b"/new", "CREATE", "=", 0),), (Put(b"/new", b""), Put(b"/count", b"1")))
        sent = asyncio.ensure_future(create)
        await until(lambda: in_flight(client), 0)
        client._connection._transport.abort()
        # Had it been done before and then again, it would have been refused the second time.
        assert (await sent).succeeded
        kv, _ = await client.get(b"/count")
        assert (kv.value, kv.version) == (b"1", 2)
        await until(lambda: any(batch.events for batch in seen))
        assert [event.kv.version for batch in seen for event in batch.events] == [2]
        assert client.metrics()["minikube_py_store_client_connects_total"] == 2
        assert client.metrics()["minikube_py_store_client_writes_resent_total"] == 1


async def test_what_was_not_sent_is_sent_when_the_connection_is_back(tmp_path):
    async with serving(tmp_path) as server, connected(server) as client:
        write = asyncio.ensure_future(put(client, b"/a"))
        client._connection._transport.abort()
        assert await write == 2


async def test_reads_that_lost_their_answer_are_asked_again(tmp_path):
    async with serving(tmp_path) as server, connected(server) as client:
        read = asyncio.ensure_future(client.get(b"/a"))
        await until(lambda: in_flight(client), 0)
        client._connection._transport.abort()
        assert await read == (None, 1)


async def test_who_will_not_wait_is_refused_at_once(tmp_path):
    async with serving(tmp_path) as server:
        client = StoreClient(Endpoint(*server.address, TOKEN), SystemClock(), random.Random(), fail_fast=True)
        await client.start()
        await put(client, b"/a")
        unsent = asyncio.ensure_future(put(client, b"/b"))
        await asyncio.sleep(0)
        client._connection.abort("cut by the test")
        with pytest.raises(Unavailable, match="cut by the test"):
            await unsent
        with pytest.raises(Unavailable, match="no connection to the leader of the store"):
            await put(client, b"/b")
        with pytest.raises(Unavailable, match="no connection"):
            await client.get(b"/a")
        refused: list[WatchBatch] = []
        client.watch(b"/a", b"", 0, refused.append)
        await until(lambda: client._connection is not None)
        assert isinstance(refused[0].error, Unavailable)
        assert (await client.get(b"/b"))[0] is None
        await client.close()


async def test_a_server_that_stops_answers_first_and_comes_back(tmp_path):
    [port] = free_ports(1)
    async with serving(tmp_path, port=port):
        endpoint = Endpoint("127.0.0.1", port, TOKEN)
        client = StoreClient(endpoint, SystemClock(), random.Random(), request_timeout_s=1.5)
        await client.start()
        revision = await put(client, b"/a")
    await until(lambda: client._connection is None)
    with pytest.raises(Unavailable, match=rf"no leader of the store was reached within 1\.5 s: 127\.0\.0\.1:{port}: "):
        await put(client, b"/b")
    with pytest.raises(Unavailable, match="no member of the store was reached within"):
        await client.get(b"/a")
    async with serving(tmp_path, port=port):
        await until(lambda: client._connection is not None)
        assert (await client.get(b"/a"))[0].mod_revision == revision
        assert await put(client, b"/b") == revision + 1
        await client.close()


async def test_a_watch_goes_on_behind_what_it_has_shown(tmp_path):
    async with serving(tmp_path) as server, connected(server) as writer, connected(server) as client:
        for _ in range(5):
            await put(writer, b"/k")
        seen: list[WatchBatch] = []
        client.watch(b"/k", b"", 3, seen.append)
        for _ in range(5):
            client._connection._transport.abort()
            await put(writer, b"/k")
            await until(lambda: client._connection is not None)
            await put(writer, b"/k")
        events = lambda: [event.kv.mod_revision for batch in seen for event in batch.events]  # noqa: E731
        await until(lambda: len(events()) == 14)
        assert events() == list(range(3, 17))
        assert all(batch.error is None for batch in seen)
        assert client.metrics()["minikube_py_store_client_watches_resumed_total"] == 5


async def test_a_write_from_before_a_long_pause_finds_another_session(tmp_path, monkeypatch):
    """The store has forgotten an unused session: nothing was on its way in it, so nothing is in doubt."""
    monkeypatch.setattr(sessions, "SESSIONS_MAX", 1)
    async with serving(tmp_path) as server, connected(server) as client, connected(server) as other:
        await put(client, b"/a")
        await put(other, b"/b")
        revisions = await asyncio.gather(*(put(client, b"/c/%d" % i) for i in range(50)))
        assert sorted(revisions) == list(range(4, 54))
        assert client.metrics()["minikube_py_store_client_sessions_renewed_total"] == 1


async def test_two_clients_with_generators_of_one_seed_do_not_share_a_session(tmp_path):
    async with serving(tmp_path) as server, connected(server) as one, connected(server) as other:
        assert [await put(one, b"/a"), await put(other, b"/b")] == [2, 3]
        assert (await one.get(b"/b"))[0] is not None


async def test_a_client_that_leaves_ends_its_session(tmp_path):
    async with serving(tmp_path) as server:
        async with connected(server) as client:
            await put(client, b"/a")
            assert len(server.member.state.sessions.by_id) == 1
        await until(lambda: not server.member.state.sessions.by_id)


async def test_what_people_ask(tmp_path):
    async with serving(tmp_path) as server, connected(server) as client:
        revision = await put(client, b"/a")
        status = await client.status()
        assert (status["role"], status["revision"], status["leader"]) == ("LEADER", revision, server.member.member_id)
        [member] = (await client.members())["members"]
        assert member["id"] == server.member.member_id
        async with raw(server) as asking:
            asking.writer.write(frame((1, Op.HASH, revision)))
            assert await asking.next() == (1, Answer.OK, (await server.member.hash(revision), revision))
            asking.writer.write(frame((2, Op.HASH, revision + 1)))
            assert isinstance(decode_error((await asking.next())[2]), FutureRevision)
            asking.writer.write(frame((3, Op.PING, None)))
            assert await asking.next() == (3, Answer.OK, revision)
            before = server.member.raft.log.applied
            asking.writer.write(frame((4, Op.SNAPSHOT, None)))
            while (answer := await asking.next())[1] == Answer.PART:
                pass
            assert before <= answer[2][2] <= server.member.raft.log.applied, "one is taken for who asks"
        with pytest.raises(InvalidRequest):
            await client.change_members(MemberChange(ChangeKind.PROMOTE, NodeId(12345)))


async def test_a_snapshot_arrives_as_it_is_on_disk(tmp_path):
    async with serving(tmp_path) as server, connected(server) as client:
        for i in range(20):
            await put(client, b"/%d" % i, random.Random(i).randbytes(100_000))
        # A compaction may be applied at any turn of the loop.
        applied = server.member.raft.log.applied
        for sync in server.member.replica.take_snapshot():
            if sync is not None:
                sync()
        [file] = tmp_path.glob("*.snap")
        async with raw(server) as asking:
            asking.writer.write(frame((1, Op.SNAPSHOT, None)))
            data = b""
            while (answer := await asking.next())[1] == Answer.PART:
                data += answer[2]
        size_bytes, digest, index, term = answer[2]
        assert data == file.read_bytes() and size_bytes == len(data) > 2_000_000
        assert digest == hashlib.sha256(data).digest()
        assert (index, term) == (applied, server.member.raft.term)


async def test_both_ends_close_a_tls_connection_at_once(tmp_path, caplog):
    serving_tls, client_tls = tls_contexts(tmp_path)
    async with serving(tmp_path / "data", tls=serving_tls) as server, connected(server, client_tls) as client:
        await client.get(b"/a")
        [connection] = server.connections
        # Closed here already when the client's goodbye comes.
        connection.finish()
        connection.finish()
        await connection.closed
    assert not caplog.records, caplog.text

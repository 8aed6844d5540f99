"""The API server on a real etcd: what two of them see, what is compacted, and what etcd's failures become."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import shutil
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from api_core import MAPS, MERGE, PODS, config_map, names, node, pod
from etcd_api import Caller
from etcd_behind import OnEtcd, RealEtcd, real_etcd, served, storage_at
from patience import patience, until

from minikube_py.cli import index_explain
from minikube_py.control_plane.certificates import ensure_certificates, ensure_client_certificate
from minikube_py.control_plane.etcd_behind import EtcdBehind
from minikube_py.env import SystemClock
from minikube_py.errors import InvalidRequest, OutcomeUnknown, Unavailable
from minikube_py.etcd.client import REQUEST_TIMEOUT_S, Endpoints
from minikube_py.etcd.compactor import Compactor
from minikube_py.etcd.feed import BEHIND_MAX, COMPACT_KEY, SINGLE_MAX
from minikube_py.etcd.messages import pb
from minikube_py.etcd.storage import EtcdStorage
from minikube_py.mvcc.types import Put, RangeRequest, prefix_end

pytestmark = pytest.mark.original
FREE = "/api/v1/nodes?fieldSelector=free.cpu>=4"


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with real_etcd(tmp_path_factory.mktemp("etcd") / "data") as place:
        yield place


@contextlib.asynccontextmanager
async def two_on(place: str, prefix: str) -> AsyncIterator[tuple[OnEtcd, OnEtcd]]:
    async with served(place, prefix=prefix) as one, served(place, prefix=prefix) as other:
        yield one, other


async def test_two_servers_read_what_either_acknowledged(etcd: str) -> None:
    caller = Caller(etcd)
    async with patience(), two_on(etcd, "/two") as (one, other):
        for n in range(12):
            writer, reader = (one, other) if n % 2 else (other, one)
            await writer.done("POST", MAPS, config_map(f"m{n}"))
            # Others' keys: revisions that no watch on ours sees.
            caller.call("KV/Put", pb.PutRequest(key=b"/of-somebody-else", value=b"x"))
            assert f"m{n}" in names(await reader.done("GET", MAPS))
            await writer.done("POST", "/api/v1/nodes", node(f"n{n}", cpu=str(n)))
            assert names(await reader.done("GET", FREE)) == sorted(f"n{i}" for i in range(4, n + 1))
        await one.done("POST", PODS, pod("p", "n6", cpu="3"))
        assert "n6" not in names(await other.done("GET", FREE))
        assert one.storage.feed.asked + other.storage.feed.asked > 0
    caller.close()


async def test_a_copied_compaction_stops_no_server_and_readiness_says_what_does(
    etcd: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    caller = Caller(etcd)
    for value in (b"5000000", b"9" * 5000):
        caller.call("KV/Put", pb.PutRequest(key=COMPACT_KEY, value=value))
        async with patience(), served(etcd) as core:
            await core.done("POST", MAPS, config_map("m"))
            caller.call("KV/Put", pb.PutRequest(key=COMPACT_KEY, value=value + b"0"))
            assert names(await core.done("GET", MAPS)) == ["m"]
            monkeypatch.setitem(core.storage.feed._troubles, "watch", "planted")
            refused = await core.respond("GET", "/readyz/informer-sync")
            assert refused.status == 500 and b"planted" in refused.body
            core.storage.feed._restart()
            await until(lambda: not core.storage.trouble, "it follows again")
            assert (await core.respond("GET", "/readyz")).status == 200
            await core.done("DELETE", f"{MAPS}/m")
    caller.call("KV/DeleteRange", pb.DeleteRangeRequest(key=COMPACT_KEY))
    caller.close()


async def test_an_index_that_one_declares_is_built_by_all_and_kept(etcd: str) -> None:
    async with patience(), two_on(etcd, "/indexes") as (one, other):
        for n in range(9):
            await one.done("POST", MAPS, config_map(f"m{n}", {"size": str(n)}))
        body = {"name": "by-size", "on": "configmaps", "fields": ['size=metadata.labels["size"]:int']}
        status, made = await one.ask("POST", "/minikube-py/v1/indexes", body)
        assert status == 201, made
        for each in (other, one):
            assert names(await each.done("GET", f"{MAPS}?fieldSelector=size>=7")) == ["m7", "m8"]
        async with served(etcd, prefix="/indexes") as third:
            assert names(await third.done("GET", f"{MAPS}?fieldSelector=size<2")) == ["m0", "m1"]
            await third.done("DELETE", "/minikube-py/v1/indexes/by-size")
        status, _ = await other.ask("GET", f"{MAPS}?fieldSelector=size>=7")
        assert status == 400


async def test_what_was_compacted_is_expired_and_pages_can_go_on(etcd: str) -> None:
    async with patience(), two_on(etcd, "/compacted") as (one, other):
        for n in range(4):
            await one.done("POST", MAPS, config_map(f"m{n}"))
        await one.done("POST", "/api/v1/nodes", node("n"))
        page = await one.done("GET", f"{MAPS}?limit=2")
        watch = await other.watch(f"{MAPS}?resourceVersion={page['metadata']['resourceVersion']}")
        await one.done("POST", MAPS, config_map("m4"))
        # The protocol by which API servers agree: the first round learns, the second compacts.
        made = [Compactor(each.storage._client, each.clock, 0, lambda _: None) for each in (one, other)]
        await made[0].step()
        await made[0].step()
        await made[1].step()
        assert made[1]._version == made[0]._version
        compacted = made[0]._revision
        await one.done("POST", MAPS, config_map("m5"))
        await made[0].step()
        for each in (one, other):
            state = each.storage.feed
            await until(lambda state=state: state.mirror.state.compact_revision >= compacted, "it knows")  # type: ignore[misc]
        status, gone = await one.ask("GET", f"{MAPS}?limit=2&continue={page['metadata']['continue']}")
        assert (status, gone["reason"]) == (410, "Expired")
        rest = await one.done("GET", f"{MAPS}?continue={gone['metadata']['continue']}")
        assert names(rest) == ["m2", "m3", "m4", "m5"]
        old = page["metadata"]["resourceVersion"]
        status, gone = await other.ask("GET", f"{FREE}&resourceVersion={old}&resourceVersionMatch=Exact")
        assert status == 410
        # A watch that stands is not touched by it.
        assert await watch.named(2) == [("ADDED", "m4"), ("ADDED", "m5")]
        watch.close()


async def test_an_operators_compaction_ends_what_no_server_holds(etcd: str) -> None:
    """As with kube-apiserver, which follows its own key too, and answers the rest from memory."""
    async with patience(), two_on(etcd, "/operator") as (one, other):
        made = [await one.done("POST", MAPS, config_map(f"m{n}")) for n in range(4)]
        await one.done("POST", "/api/v1/nodes", node("n"))
        page = await one.done("GET", f"{MAPS}?limit=2")
        await other.done("POST", "/api/v1/nodes", node("later"))
        old, caller = made[1]["metadata"]["resourceVersion"], Caller(etcd)
        newest = caller.call("KV/Range", pb.RangeRequest(key=b"a"))[1]["header"]["revision"]
        assert caller.call("KV/Compact", pb.CompactionRequest(revision=newest, physical=True))[0] == "ok"
        gone = caller.call("KV/Range", pb.RangeRequest(key=b"a", revision=int(old)))
        assert gone == ("OUT_OF_RANGE", "etcdserver: mvcc: required revision has been compacted")
        caller.close()
        exact, rest = f"{MAPS}?resourceVersion={old}&resourceVersionMatch=Exact", f"{MAPS}?continue="
        free = f"{FREE}&resourceVersion={old}&resourceVersionMatch=Exact"
        for each in (one, other):
            assert names(await each.done("GET", exact)) == ["m0", "m1"]
            assert names(await each.done("GET", rest + page["metadata"]["continue"])) == ["m2", "m3"]
            assert names(await each.done("GET", free)) == []
            watch = await each.watch(f"{MAPS}?resourceVersion={old}")
            assert await watch.named(2) == [("ADDED", "m2"), ("ADDED", "m3")]
            watch.close()
        async with served(etcd, prefix="/operator") as later:
            for path in (exact, free, rest + page["metadata"]["continue"]):
                status, refused = await later.ask("GET", path)
                assert (status, refused["reason"]) == (410, "Expired")
            assert names(await later.done("GET", rest + refused["metadata"]["continue"])) == ["m2", "m3"]
            watch = await later.watch(f"{MAPS}?resourceVersion={old}")
            assert [obj["code"] for kind, obj in await watch.rest() if kind == "ERROR"] == [410]


async def test_a_revision_from_before_a_server_began_is_scanned(etcd: str) -> None:
    async with patience(), served(etcd, prefix="/scanned") as core:
        await core.done("POST", "/api/v1/nodes", node("small", cpu="1"))
        await core.done("POST", "/api/v1/nodes", node("large", cpu="8"))
        await core.done("POST", PODS, pod("p", "large", cpu="5"))
        full = await core.done("GET", FREE)
        old = full["metadata"]["resourceVersion"]
        await core.done("DELETE", f"{PODS}/p?gracePeriodSeconds=0")
        assert names(await core.done("GET", FREE)) == ["large"]
        await core.storage.feed._load(0)
        mirror = core.storage.feed.mirror
        assert mirror.state.compact_revision > int(old)
        await core.in_step()
        at_old = f"{FREE}&resourceVersion={old}&resourceVersionMatch=Exact"
        assert names(await core.done("GET", at_old)) == names(full) == []
        assert names(await core.done("GET", FREE)) == ["large"]
        request = RangeRequest(b"/registry/nodes/", prefix_end(b"/registry/nodes/"), 0, int(old), fields=("free.cpu",))
        explain = "/minikube-py/v1/explain?resource=nodes&where=free.cpu>=4"
        told = await core.done("GET", explain)
        assert told["scannedBelow"] == mirror.state.compact_revision
        assert f"below {told['scannedBelow']} are read from etcd and scanned" in index_explain.told(told)
        result = await core.storage.range(request)
        assert result.stats is not None and result.stats.structure == "scan"
        free = dict(zip([kv.key[-5:] for kv in result.kvs], result.fields or ()))
        assert free == {b"large": (3000,), b"small": (1000,)}


async def test_an_etcd_that_dies_leaves_each_write_done_refused_or_unknown(tmp_path: Path) -> None:
    etcd = RealEtcd(tmp_path / "etcd")
    etcd.start()
    try:
        async with patience(), served(etcd.place) as core:
            watch = await core.watch(MAPS)
            outcomes: dict[int, list[str]] = {}
            stop = asyncio.Event()

            async def write(worker: int) -> None:
                n = 0
                while not stop.is_set():
                    name = f"w{worker}-{n}"
                    n += 1
                    status, answer = await core.ask("POST", MAPS, config_map(name))
                    assert status in (201, 503, 504), answer
                    outcomes.setdefault(status, []).append(name)
                    if status == 504:
                        assert "etcdserver: request timed out" in answer["message"]

            writers = [asyncio.create_task(write(worker)) for worker in range(4)]
            core.storage.wait_at_most(1.0)
            await until(lambda: len(outcomes.get(201, [])) > 10, "writes are done")
            etcd.end(signal.SIGKILL)
            await until(lambda: outcomes.get(503), "writes are refused")
            health = await core.respond("GET", "/readyz")
            assert health.status == 500 and b"[-]etcd failed" in health.body
            status, answer = await core.ask("GET", MAPS)
            assert status == 503 and "etcd" in answer["message"]
            core.storage.wait_at_most(REQUEST_TIMEOUT_S)
            etcd.start()
            await core.in_step()
            done = len(outcomes[201])
            await until(lambda: len(outcomes[201]) > done, "writes are done again")
            stop.set()
            await asyncio.gather(*writers)
            listed = set(names(await core.done("GET", MAPS)))
            assert sorted(name for _, name in await watch.named(len(listed))) == sorted(listed)
            assert set(outcomes[201]) <= listed <= set(outcomes[201]) | set(outcomes.get(504, []))
            assert (await core.respond("GET", "/readyz")).status == 200
            watch.close()
    finally:
        etcd.end()


async def test_an_etcd_that_hangs_is_waited_for_no_longer_than_told(tmp_path: Path) -> None:
    etcd = RealEtcd(tmp_path / "etcd")
    etcd.start()
    try:
        async with patience(), served(etcd.place) as core:
            etcd.send(signal.SIGSTOP)
            core.storage.wait_at_most(0.5)
            with pytest.raises(OutcomeUnknown, match="did not answer in time"):
                await core.storage.txn((), (Put(b"/registry/lost", b"x"),))
            status, answer = await core.ask("GET", MAPS)
            assert status == 503 and "did not answer in time" in answer["message"]
            etcd.send(signal.SIGCONT)
            core.storage.wait_at_most(REQUEST_TIMEOUT_S)
            await until(lambda: _listed(core), "it answers again")
            feed = core.storage.feed
            feed.questions_max = 3
            etcd.send(signal.SIGSTOP)
            feed.want(feed.mirror.revision + 1)
            await until(lambda: not feed.following, "a watch that says nothing is left")
            etcd.send(signal.SIGCONT)
            await core.in_step()
            await core.done("POST", MAPS, config_map("later"))
            assert "later" in names(await core.done("GET", MAPS))
    finally:
        etcd.send(signal.SIGCONT)
        etcd.end()


async def _listed(core: OnEtcd) -> bool:
    return (await core.ask("GET", MAPS))[0] == 200


async def test_an_etcd_without_space_takes_deletions_and_says_so(tmp_path: Path) -> None:
    with real_etcd(tmp_path / "etcd", "--quota-backend-bytes", str(1 << 20)) as place:
        async with patience(), served(place) as core:
            await core.done("POST", MAPS, config_map("small"))
            text = base64.b64encode(bytes(range(256)) * 1000).decode()
            # etcd looks at its file, which it writes now and then.
            status, answer = 201, {}
            for n in itertools.count():
                status, answer = await core.ask("POST", MAPS, config_map(f"m{n}", text=text))
                if status != 201:
                    break
            assert status == 500
            assert answer["message"].startswith("etcdserver: mvcc: database space exceeded")
            assert "etcdctl alarm" in answer["message"]
            health = await core.respond("GET", "/readyz/nospace")
            assert health.status == 500 and b"NOSPACE" in health.body and b"etcdctl alarm" in health.body
            assert (await core.respond("GET", "/readyz")).status == 200
            await core.done("DELETE", f"{MAPS}/small")
            status, _ = await core.ask("PATCH", f"{MAPS}/m0", {"data": {"a": "b"}}, content_type=MERGE)
            assert status == 500


async def test_an_etcd_that_was_put_back_is_read_again(tmp_path: Path) -> None:
    """Another identity, at an earlier revision: as after a restore."""
    etcd = RealEtcd(tmp_path / "etcd")
    etcd.start()
    try:
        async with patience(), served(etcd.place) as core:
            await core.done("POST", "/api/v1/nodes", node("n"))
            stream = await core.watch(FREE)
            assert await stream.named(1) == [("ADDED", "n")]
            for number in range(30):
                lost = (await core.done("POST", "/api/v1/nodes", node(f"lost-{number}")))["metadata"]["resourceVersion"]
            await core.in_step()
            plain = await core.watch(f"/api/v1/nodes?resourceVersion={lost}")
            etcd.end(signal.SIGKILL)
            shutil.rmtree(tmp_path / "etcd")
            etcd.start("--initial-cluster-token", "another")
            await until(lambda: core.storage.feed.loads > 1 and core.storage.feed.following, "it is read again")
            await core.in_step()
            assert names(await core.done("GET", "/api/v1/nodes")) == []
            last = [obj for kind, obj in await stream.rest() if kind == "ERROR"]
            assert not last or last[0]["code"] == 410
            # Whoever watches lists again, now or when it comes back: what it knows never happened.
            for each in (
                plain,
                await core.watch(f"/api/v1/nodes?resourceVersion={lost}"),
                await core.watch(f"{FREE}&resourceVersion={lost}"),
            ):
                assert [(kind, obj.get("code")) for kind, obj in await each.rest()] == [("ERROR", 410)]
            ahead = await core.watch(f"/api/v1/nodes?resourceVersion={int(lost) + 10}")
            ahead.close()
            await core.done("POST", "/api/v1/nodes", node("later"))
            assert names(await core.done("GET", FREE)) == ["later"]
    finally:
        etcd.end()


BUMPED = ("--bump-revision", "1000000", "--mark-compacted")


@pytest.mark.parametrize(
    ("lost", "made", "flags"), [(["lost"], [], ()), (["lost"], ["made"], ()), ([], ["made"], ()), ([], [], BUMPED)]
)
async def test_a_restored_etcd_that_has_passed_what_was_seen_is_read_again(
    tmp_path: Path, lost: list[str], made: list[str], flags: tuple[str, ...]
) -> None:
    """It has the same identity (the same members and token), and a later revision than any that was seen."""
    etcd = RealEtcd(tmp_path / "etcd")
    etcd.start()
    caller = Caller(etcd.place)
    try:
        async with patience(), served(etcd.place) as core:
            await core.done("POST", "/api/v1/nodes", node("kept"))
            saved = tmp_path / "saved.db"
            parts = caller.parts("Maintenance/Snapshot", pb.SnapshotRequest())[1]
            saved.write_bytes(b"".join(part["blob"] for part in parts if "blob" in part))
            for name in lost:
                await core.done("POST", "/api/v1/nodes", node(name))
            before = caller.call("KV/Put", pb.PutRequest(key=b"/of-somebody-else"))[1]["header"]
            assert names(await core.done("GET", FREE)) == ["kept", *lost]
            assert core.storage.feed.mirror.revision == before["revision"]
            old = (await core.done("GET", "/api/v1/nodes"))["metadata"]["resourceVersion"]
            stream = await core.watch(FREE)
            assert await stream.named(1 + len(lost)) == [("ADDED", name) for name in ("kept", *lost)]
            etcd.end(signal.SIGKILL)
            restored = RealEtcd(tmp_path / "restored", peer_port=etcd.peer_port)
            restored.restore(saved, *flags)
            restored.start()
            elsewhere = Caller(restored.place)
            found = elsewhere.call("KV/Range", pb.RangeRequest(key=b"/", range_end=b"\0"))[1]["kvs"]
            key, value = next((each["key"], each["value"]) for each in found if each["key"].endswith(b"/nodes/kept"))
            for name in made:
                at, content = [part.replace(b"kept", name.encode()) for part in (key, value)]
                assert elsewhere.call("KV/Put", pb.PutRequest(key=at, value=content))[0] == "ok"
            for _ in range(9):
                header = elsewhere.call("KV/Put", pb.PutRequest(key=b"/of-somebody-else"))[1]["header"]
            assert header["cluster_id"] == before["cluster_id"] and header["revision"] > before["revision"]
            elsewhere.close()
            restored.end()
            shutil.rmtree(etcd.folder)
            restored.folder.rename(etcd.folder)
            etcd.start()
            await until(lambda: core.storage.feed.loads > 1 and core.storage.feed.following, "it is read again")
            await core.in_step()
            assert names(await core.done("GET", "/api/v1/nodes")) == ["kept", *made]
            assert names(await core.done("GET", FREE)) == ["kept", *made]
            assert [obj["code"] for kind, obj in await stream.rest() if kind == "ERROR"] == [410]
            await core.done("POST", "/api/v1/nodes", node("later"))
            assert names(await core.done("GET", FREE)) == ["kept", "later", *made]
            if flags:
                async with served(etcd.place) as later:
                    exact = f"/api/v1/nodes?resourceVersion={old}&resourceVersionMatch=Exact"
                    assert (await later.ask("GET", exact))[0] == 410
    finally:
        caller.close()
        etcd.end()


async def test_an_etcd_with_tls_lets_in_who_shows_a_certificate(tmp_path: Path) -> None:
    ensure_certificates(tmp_path)
    certificate, key = ensure_client_certificate(tmp_path, "client")
    authority = tmp_path / "ca.crt"
    flags = [
        *("--cert-file", str(tmp_path / "server.crt"), "--key-file", str(tmp_path / "server.key")),
        *("--client-cert-auth", "--trusted-ca-file", str(authority)),
    ]
    pem = [path.read_bytes() for path in (authority, key, certificate)]
    etcd = RealEtcd(tmp_path / "etcd", *flags, credentials=grpc.ssl_channel_credentials(*pem))
    etcd.start()
    try:
        behind = EtcdBehind(f"https://{etcd.place}", authority, certificate, key, "/of-tls")
        behind.check()
        storage = behind.storage(SystemClock())
        await storage.start()
        done = await storage.txn((), (Put(b"/registry/a", b"x"),))
        kv, _ = await storage.get(b"/registry/a")
        assert done.succeeded and kv is not None and kv.value == b"x"
        await storage.close()
        stranger = EtcdStorage(
            Endpoints((etcd.place,), pem[0], secure=True), SystemClock(), compaction_interval_s=0, request_timeout_s=0.5
        )
        with pytest.raises(Unavailable):
            await stranger.start()
        await stranger.close()
    finally:
        etcd.end()


@pytest.mark.parametrize("value", [b"k8s\0\n\x09", b"k8s:enc:aescbc:v1:k:x", b'{"kind":"Pod"', b"\xd9\xd9\xf7\xa1"])
async def test_objects_of_another_kubernetes_are_left_alone(etcd: str, value: bytes) -> None:
    prefix = f"/foreign-{value[:6].hex()}"
    caller = Caller(etcd)
    for number in range(400):
        caller.call("KV/Put", pb.PutRequest(key=f"{prefix}/a/{number:03}".encode(), value=b'{"metadata":{}}'))
    caller.call("KV/Put", pb.PutRequest(key=f"{prefix}/pods/default/p".encode(), value=value))
    caller.close()
    with pytest.raises(InvalidRequest, match=f"{prefix}/pods/default/p in etcd .* another Kubernetes"):
        async with storage_at(etcd, prefix=prefix):
            pass


async def test_an_etcd_that_lets_only_users_in_is_not_the_clients_mistake(tmp_path: Path) -> None:
    with real_etcd(tmp_path / "etcd") as place:
        caller = Caller(place)
        async with patience(), served(place) as core:
            await core.done("POST", MAPS, config_map("before"))
            caller.call("Auth/UserAdd", pb.AuthUserAddRequest(name="root", password="p"))
            caller.call("Auth/UserGrantRole", pb.AuthUserGrantRoleRequest(user="root", role="root"))
            assert caller.call("Auth/AuthEnable", pb.AuthEnableRequest())[0] == "ok"
            status, answer = await core.ask("POST", MAPS, config_map("refused"))
            assert status == 503 and "etcd refuses this client: etcdserver: user name is empty" in answer["message"]
        caller.close()


async def test_a_learner_among_the_members_is_passed_over(tmp_path: Path) -> None:
    etcd, learner = RealEtcd(tmp_path / "etcd"), RealEtcd(tmp_path / "learner")
    etcd.start()
    caller = Caller(etcd.place)
    try:
        peer = f"http://127.0.0.1:{learner.peer_port}"
        request = pb.MemberAddRequest(peerURLs=[peer], isLearner=True)
        await until(lambda: caller.call("Cluster/MemberAdd", request)[0] == "ok", "a learner is added")
        cluster = f"learner={peer},one=http://127.0.0.1:{etcd.peer_port}"
        learner.start("--name", "learner", "--initial-cluster", cluster, "--initial-cluster-state", "existing")
        async with patience(), storage_at(learner.place, etcd.place) as storage:
            done = await storage.txn((), (Put(b"/registry/a", b"x"),))
            kv, _ = await storage.get(b"/registry/a")
            assert done.succeeded and kv is not None and kv.value == b"x"
    finally:
        caller.close()
        learner.end()
        etcd.end()


async def test_an_etcd_that_is_not_there_is_unavailable(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="etcd at 127"):
        async with storage_at("127.0.0.1:1", timeout_s=0.3):
            pass


async def test_a_watch_far_behind_is_asked_for_again_and_misses_nothing(
    etcd: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Written while the loop stands still: a message waits for each revision, unless etcd itself is behind."""
    async with patience(), storage_at(etcd, prefix="/behind") as storage:
        seen: list[int] = []
        messages: list[int] = []
        prefix, take = b"/registry/configmaps/default/", storage.feed._take
        storage.watch(
            prefix, prefix_end(prefix), 0, lambda batch: seen.extend(each.kv.mod_revision for each in batch.events)
        )
        await until(lambda: storage.feed.following, "the watch stands")

        async def counted(answer: Any) -> None:
            messages.append(len(answer.events))
            await take(answer)

        monkeypatch.setattr(storage.feed, "_take", counted)
        caller = Caller(etcd)
        put = pb.PutRequest(key=b"/behind/configmaps/default/a", value=b'{"metadata":{"name":"a"}}')
        written = [caller.call("KV/Put", put)[1]["header"]["revision"] for _ in range(3 * BEHIND_MAX)]
        caller.close()
        storage.feed.want(written[-1])
        await storage.feed.reached(written[-1], REQUEST_TIMEOUT_S)
        assert seen == written
        assert len(messages) <= BEHIND_MAX + 8 * SINGLE_MAX
        assert not storage.feed._waiting

"""A store without room: what upstream's server answers for etcd's error, deletes that pass, and health that says so."""

from __future__ import annotations

import asyncio

from api_core import Core, config_map, names, node, pod
from patience import until

MAPS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"


async def text_of(core: Core, path: str) -> tuple[int, str]:
    answer = await core.respond("GET", path)
    return answer.status, answer.body.decode()


async def test_without_room_writes_are_refused_as_upstream_does_and_deletes_pass(core: Core) -> None:
    await core.done("POST", "/api/v1/nodes", node("n0"))
    for name in ("one", "two"):
        await core.done("POST", MAPS, config_map(name))
        await core.done("POST", PODS, pod(name, node="n0"))
    assert await text_of(core, "/readyz/nospace") == (200, "ok")
    reserved = core.member.room.reserve_bytes
    core.member.room.reserve_bytes = 1 << 60
    await until(lambda: bool(core.member.state.alarms.raised))
    status, refusal = await core.ask("POST", MAPS, config_map("three"))
    assert (status, refusal["code"], refusal["status"]) == (500, 500, "Failure") and "reason" not in refusal
    assert refusal["message"].startswith("etcdserver: mvcc: database space exceeded: ")
    assert "`minikube-py store alarm list`" in refusal["message"]
    assert "bytes free" in refusal["message"] and str(core.member.replica.files.disk.folder) in refusal["message"]
    assert (await core.ask("PUT", f"{MAPS}/one", config_map("one", a="b")))[0] == 500
    assert (await core.ask("DELETE", f"{MAPS}/one"))[0] == 200
    assert (await core.ask("DELETE", f"{PODS}/one?gracePeriodSeconds=0"))[0] == 200
    # A grace period has to be written first; so does the pod's end, and nothing else of pods.
    status, two = await core.ask("DELETE", f"{PODS}/two")
    assert status == 200 and two["metadata"]["deletionGracePeriodSeconds"] == 30
    two["status"] = {"phase": "Succeeded"}
    assert (await core.ask("PUT", f"{PODS}/two/status", two))[0] == 200
    assert (await core.ask("DELETE", f"{PODS}/two?gracePeriodSeconds=0"))[0] == 200
    assert (await core.ask("GET", f"{PODS}/two"))[0] == 404
    assert "one" not in names(await core.done("GET", MAPS))
    # Who is not ready gets no requests, and then nobody could delete.
    assert await text_of(core, "/readyz") == (200, "ok")
    status, text = await text_of(core, "/readyz/nospace")
    assert status == 500 and f"alarm NOSPACE of member {core.member.member_id:x}" in text
    core.member.room.reserve_bytes = reserved
    await until(lambda: not core.member.state.alarms.raised)
    await core.done("POST", MAPS, config_map("three"))
    assert await text_of(core, "/livez/nospace") == (200, "ok")


async def test_without_room_finalizers_go_namespaces_end_and_offices_are_held(core: Core) -> None:
    await core.done("POST", "/api/v1/namespaces", {"metadata": {"name": "old"}})
    held = config_map("held")
    held["metadata"]["finalizers"] = ["example.com/hold"]
    await core.done("POST", MAPS, held)
    leases = "/apis/coordination.k8s.io/v1/namespaces/{}/leases"
    for namespace in ("kube-system", "kube-node-lease"):
        lease = {"metadata": {"name": "one"}, "spec": {"holderIdentity": "a"}}
        await core.done("POST", leases.format(namespace), lease)
    core.member.room.reserve_bytes = 1 << 60
    await until(lambda: bool(core.member.state.alarms.raised))
    spec = {"spec": {"renewTime": "2030-01-01T00:00:00.000000Z"}}
    merge = "application/merge-patch+json"
    for namespace, status in (("kube-system", 200), ("kube-node-lease", 500)):
        answer = await core.ask("PATCH", leases.format(namespace) + "/one", spec, content_type=merge)
        assert answer[0] == status, namespace
    assert (await core.ask("PATCH", f"{MAPS}/held", {"data": {"a": "b"}}, content_type=merge))[0] == 500
    status, held = await core.ask("DELETE", f"{MAPS}/held")
    assert status == 200 and held["metadata"]["deletionTimestamp"]
    status, refusal = await core.ask("PATCH", f"{MAPS}/held", {"data": {"a": "b" * 5000}}, content_type=merge)
    assert status == 500 and "a deletion may add 4,096 bytes to a value" in refusal["message"]
    gone = {"metadata": {"finalizers": None}}
    assert (await core.ask("PATCH", f"{MAPS}/held", gone, content_type=merge))[0] == 200
    assert (await core.ask("GET", f"{MAPS}/held"))[0] == 404
    status, old = await core.ask("DELETE", "/api/v1/namespaces/old")
    assert status == 200 and old["status"]["phase"] == "Terminating"
    old["spec"]["finalizers"] = []
    assert (await core.ask("PUT", "/api/v1/namespaces/old/finalize", old))[0] == 200
    assert (await core.ask("GET", "/api/v1/namespaces/old"))[0] == 404


async def test_a_server_starts_on_a_store_without_room(core: Core) -> None:
    """Nobody could delete otherwise: what a cluster begins with is there already, or waits for room."""
    core.member.room.reserve_bytes = 1 << 60
    await until(lambda: bool(core.member.state.alarms.raised))
    await core.done("DELETE", "/apis/scheduling.k8s.io/v1/priorityclasses/system-node-critical")
    server = core.server()
    await server.start()
    await server.publish("10.1.2.3", 6444)
    assert server.ready
    await server.stop()


async def test_health_lists_its_checks_by_upstreams_names(core: Core) -> None:
    status, text = await text_of(core, "/readyz?verbose")
    lines = text.splitlines()
    assert lines[:5] == [f"[+]{name} ok" for name in ("ping", "log", "etcd", "etcd-readiness", "informer-sync")]
    assert (status, lines[-2:]) == (200, ["[+]shutdown ok", "readyz check passed"]) and len(lines) == 36
    assert await text_of(core, "/healthz/poststarthook/rbac/bootstrap-roles") == (200, "ok")
    status, text = await text_of(core, "/healthz?verbose&exclude=etcd&exclude=nothing&exclude=ping,log")
    assert status == 200 and "[+]ping ok\n[+]log ok\n" in text and "[+]etcd excluded: ok\n" in text
    assert text.endswith('no matches for "nothing","ping,log"\nhealthz check passed\n')
    assert (await text_of(core, "/livez/shutdown"))[0] == 404


async def test_a_server_without_its_store_is_alive_and_not_ready(core: Core) -> None:
    core.api.store.current_revision = stuck
    assert await text_of(core, "/livez") == (200, "ok")
    assert "[+]etcd excluded: ok\n" in (await text_of(core, "/livez?verbose=true"))[1]
    before_s = asyncio.get_running_loop().time()
    status, text = await text_of(core, "/readyz")
    refusal = (500, "internal server error: no answer within 2 s\n")
    assert await text_of(core, "/livez/etcd") == await text_of(core, "/readyz/etcd") == refusal
    assert asyncio.get_running_loop().time() - before_s < 6.01, "in virtual time"
    failed = [line for line in text.splitlines() if "[+]" not in line]
    named = [f"[-]{name} failed: reason withheld" for name in ("etcd", "etcd-readiness")]
    assert (status, failed) == (500, [*named, "readyz check failed"])
    core.api.store.storage.alarms = stuck
    before_s = asyncio.get_running_loop().time()
    assert await text_of(core, "/readyz/nospace") == refusal
    assert asyncio.get_running_loop().time() - before_s < 2.01, "in virtual time"


async def test_a_server_that_starts_or_ends_is_not_ready(core: Core) -> None:
    core.api.started = False
    failed = (500, "internal server error: not finished\n")
    assert await text_of(core, "/livez/poststarthook/start-service-ip-repair-controllers") == failed
    core.api.started, core.api.stopping = True, True
    assert await text_of(core, "/readyz/shutdown") == (500, "internal server error: process is shutting down\n")
    assert (await text_of(core, "/livez"))[0] == 200 and (await text_of(core, "/readyz"))[0] == 500
    core.api.stopping = False


async def stuck() -> int:
    await asyncio.Event().wait()
    return 0

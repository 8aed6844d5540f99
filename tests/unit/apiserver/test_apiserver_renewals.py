"""What renews a Lease takes a shorter way through the API server, with the same outcome as the long one."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import orjson
from api_core import JSON, MERGE, Core, node
from virtual_time import run_virtually

from minikube_py.api.errors import forbidden
from minikube_py.api.kind import admits_all, carries_nothing, nothing, warns_of_nothing
from minikube_py.api.kinds.coordination import LEASES
from minikube_py.api.registry import REGISTRY
from minikube_py.apiserver.admission import ORDER, Attributes, Chain, Plugin
from minikube_py.apiserver.auth import ADMIN, SHARED_KUBELET
from minikube_py.apiserver.inprocess import InProcessTransport
from minikube_py.apiserver.messages import Request
from minikube_py.apiserver.rules import AUTHENTICATED, User
from minikube_py.client.transport import USER_AGENT, ApiResponse
from minikube_py.errors import Unavailable

Json = dict[str, Any]
ALL = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
TIMES = (
    "2026-11-23T20:00:00.000001Z", "2026-11-30T23:59:59.999999Z", "2026-12-31T00:00:00.123456Z",
    "2026-02-28T12:00:00.000000Z", "2028-02-29T12:00:00.000000Z", "2026-02-29T12:00:00.000000Z",
    "2026-13-01T12:00:00.000000Z", "2026-11-31T12:00:00.000000Z", "2026-11-23T24:00:00.000000Z",
    "2026-11-23T20:00:61.000000Z", "2026-11-23T20:00:00.1Z", "2026-11-23T20:00:00Z", "2026-11-23T20:00:00.000001+01:00",
    "0001-01-01T00:00:00.000000Z", "", "now",
)  # fmt: skip
HOLDERS = ("n", "n", "n", "n", "m", 'n","renewTime":"2026-11-23T20:00:00.000001Z', "\u2028")


USUAL_SHARE = 0.7


def lease(rng: random.Random, version: str) -> Json:
    spec: Json
    metadata: Json
    if version and rng.random() < USUAL_SHARE:
        metadata = {"name": "n", "namespace": "kube-node-lease", "resourceVersion": version}
        time = f"2026-11-23T20:00:00.{rng.randrange(99):06}Z"
        spec = {"holderIdentity": "n", "leaseDurationSeconds": 40, "renewTime": time}
        return {"metadata": metadata, "spec": spec}
    spec = {"holderIdentity": rng.choice(HOLDERS), "leaseDurationSeconds": rng.choice((40, 40, 40, 40, 0))}
    usual = rng.choice((True, True, True, False))
    second = f"{rng.randrange(60):02}.{rng.randrange(3):06}"
    spec["renewTime"] = f"2026-11-23T20:00:{second}Z" if usual else rng.choice(TIMES)
    metadata = {"name": "n", "namespace": "kube-node-lease"}
    metadata["resourceVersion"] = rng.choice((version,) * 12 + ("1", "", "0", "x", f"0{version}", f"{version}0"))
    if rng.random() < 0.15:
        edges = ({"renewTime": TIMES[0]}, {"resourceVersion": version}, {"a": f'"renewTime":"{TIMES[0]}"'}, {})
        metadata["annotations"] = rng.choice(edges)
    if rng.random() < 0.05:
        metadata["finalizers"] = ["a/b"]
    if rng.random() < 0.05:
        metadata["ownerReferences"] = [{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u"}] * 2
    obj = {"kind": "Lease", "apiVersion": "coordination.k8s.io/v1", "metadata": metadata, "spec": spec}
    return dict(reversed(obj.items())) if rng.random() < 0.05 else obj


def asked(rng: random.Random, version: str) -> tuple[str, str, bytes, dict[str, str], str, Any]:
    """Method, path, body, query, content type and user of one request."""
    user = rng.choice((ADMIN,) + (SHARED_KUBELET,) * 9)
    kind = rng.random()
    if kind < 0.04:
        return "DELETE", f"{ALL}/n", b"", {}, JSON, ADMIN
    if kind < 0.08:
        return "POST", ALL, orjson.dumps(lease(rng, "")), {}, JSON, user
    if kind < 0.12:
        spec = {"spec": {"holderIdentity": rng.choice(HOLDERS)}}
        return "PATCH", f"{ALL}/n", orjson.dumps(spec), {}, MERGE, ADMIN
    body = orjson.dumps(lease(rng, version))
    if rng.random() < 0.05:
        body = body.replace(b'"spec":{', b'"spec":{"renewTime":"2026-11-23T20:00:00.000001Z","unknown":1,')
    query = rng.choice(({},) * 15 + ({"dryRun": "All"}, {"fieldValidation": "Strict"}, {"fieldManager": "me"}))
    return "PUT", f"{ALL}/n", body, query, rng.choice((JSON,) * 15 + ("application/yaml", "text/plain")), user


class _Received(NamedTuple):
    body: bytes

    async def __call__(self) -> bytes:
        return self.body

    def holding(self, size_bytes: int) -> nullcontext[None]:
        return nullcontext()


@asynccontextmanager
async def running(folder: Path) -> AsyncIterator[Core]:
    core = await Core(folder).start()
    try:
        yield core
    finally:
        await core.stop()


async def history(folder: Path, seed: int, way: str) -> tuple[list[Any], int]:
    """What each request of a seed is answered; how many went the short way. `way`: "long"; "short", as from this
    process; "received", with a body that is read after authorization; "together", as in a batch from this process."""
    rng, found, renewed = random.Random(seed), [], 0
    async with running(folder) as core:
        if way == "long":
            core.api.writer.renewals.learn = lambda *_: None  # type: ignore[method-assign]
        written = core.api.writer.renewals.written

        def counted(*given: Any) -> Any:
            nonlocal renewed
            done = written(*given)
            renewed += done is not None
            return done

        core.api.writer.renewals.written = counted  # type: ignore[method-assign]
        version = ""
        for _ in range(60):
            method, path, body, query, content_type, user = asked(rng, version)
            request = Request(method, path, query, body, user, JSON, content_type)
            request.user_agent = USER_AGENT
            if way == "received":
                request.body, request.receive = b"", _Received(body)
            if way == "together" and method == "PUT" and content_type == JSON and not query:
                (told,) = await InProcessTransport(core.api, user).put_all([(path, body)])
                assert isinstance(told, ApiResponse)
                found.append((told.status, told.body, told.headers))
            else:
                answer = await core.api.handle(request)
                found.append((answer.status, answer.body, answer.headers))
            _, now = await core.ask("GET", f"{ALL}/n")
            version = now["metadata"].get("resourceVersion", "")
            found.append(now)
    return found, renewed


def test_the_short_way_has_the_outcome_of_the_long_one(tmp_path: Path) -> None:
    short_ones = 0
    for seed in range(24):
        found, renewed = run_virtually(lambda s=seed: history(tmp_path / f"short-{s}", s, "short"))
        received, as_many = run_virtually(lambda s=seed: history(tmp_path / f"received-{s}", s, "received"))
        together, these = run_virtually(lambda s=seed: history(tmp_path / f"together-{s}", s, "together"))
        other, none = run_virtually(lambda s=seed: history(tmp_path / f"long-{s}", s, "long"))
        assert found == received == together == other, seed
        assert not none and renewed == as_many == these
        short_ones += renewed
    assert short_ones > 60


def test_no_hook_of_a_kind_that_is_renewed_looks_at_more_than_its_metadata_and_spec() -> None:
    renewed = [kind for kind in REGISTRY.kinds if kind.renews]
    assert renewed == [LEASES]
    for kind in renewed:
        assert kind.admit is kind.validate_admission is admits_all and kind.warn is warns_of_nothing
        assert kind.prepare_update is carries_nothing and kind.canonicalize is nothing
        assert not (kind.generation or kind.has_status or kind.converts or kind.read or kind.sees or kind.assigned)
        assert not kind.deprecation


def test_who_may_not_renew_any_more_is_refused_on_the_short_way_too(tmp_path: Path) -> None:
    def body(version: str, second: int) -> bytes:
        metadata = {"name": "n", "namespace": "kube-node-lease", **({"resourceVersion": version} if version else {})}
        spec = {"holderIdentity": "n", "leaseDurationSeconds": 40, "renewTime": f"2026-11-23T20:00:{second:02}.000000Z"}
        return orjson.dumps({"metadata": metadata, "spec": spec})

    async def main() -> None:
        async with running(tmp_path) as core:
            _, made = await core.ask("POST", ALL, body("", 0), user=SHARED_KUBELET)
            for second in (1, 2, 3):
                version = made["metadata"]["resourceVersion"]
                status, made = await core.ask("PUT", f"{ALL}/n", body(version, second), user=SHARED_KUBELET)
                assert status == 200
            # The node's own kubelet registers it.
            own = User("system:node:n", ("system:nodes", AUTHENTICATED))
            assert (await core.ask("POST", "/api/v1/nodes", node("n"), user=own))[0] == 201
            version = made["metadata"]["resourceVersion"]
            status, refused = await core.ask("PUT", f"{ALL}/n", body(version, 4), user=SHARED_KUBELET)
            assert (status, refused["reason"]) == (403, "Forbidden")

    run_virtually(main)


def test_who_loses_a_role_is_refused_with_the_next_renewal_and_patch(tmp_path: Path) -> None:
    """What a user's changes of an object are held to is remembered; a binding that goes ends it."""
    rbac, user = "/apis/rbac.authorization.k8s.io/v1", User("leader", (AUTHENTICATED,))

    def body(version: str, second: int) -> bytes:
        metadata = {"name": "n", "namespace": "kube-node-lease", **({"resourceVersion": version} if version else {})}
        spec = {"holderIdentity": "n", "renewTime": f"2026-11-23T20:00:{second:02}.000000Z"}
        return orjson.dumps({"metadata": metadata, "spec": spec})

    async def main() -> None:
        async with running(tmp_path) as core:
            rule = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["*"]}
            role = {"metadata": {"name": "leads"}, "rules": [rule]}
            reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "leads"}
            subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "leader"}
            binding = {"metadata": {"name": "leads"}, "roleRef": reference, "subjects": [subject]}
            for plural, obj in (("clusterroles", role), ("clusterrolebindings", binding)):
                assert (await core.ask("POST", f"{rbac}/{plural}", orjson.dumps(obj), user=ADMIN))[0] == 201
            status, made = await core.ask("POST", ALL, body("", 0), user=user)
            assert status == 201
            for second in (1, 2, 3):
                version = made["metadata"]["resourceVersion"]
                status, made = await core.ask("PUT", f"{ALL}/n", body(version, second), user=user)
                assert status == 200
            patch = {"body": b'{"spec":{"leaseTransitions":1}}', "content_type": MERGE}
            status, made = await core.ask("PATCH", f"{ALL}/n", **patch, user=user)
            assert status == 200
            # The same name in another group is another user.
            other = User("leader", (AUTHENTICATED, "others"))
            version = made["metadata"]["resourceVersion"]
            status, made = await core.ask("PUT", f"{ALL}/n", body(version, 4), user=other)
            assert status == 200
            assert (await core.ask("DELETE", f"{rbac}/clusterrolebindings/leads", user=ADMIN))[0] == 200
            for who in (user, other):
                version = made["metadata"]["resourceVersion"]
                assert (await core.ask("PUT", f"{ALL}/n", body(version, 5), user=who))[0] == 403
            assert (await core.ask("PATCH", f"{ALL}/n", **patch, user=user))[0] == 403

    run_virtually(main)


def test_an_admission_plugin_that_comes_sees_the_next_renewal(tmp_path: Path) -> None:
    class Refuses(Plugin):
        name = ORDER[0]

        async def validate(self, attributes: Attributes) -> None:
            raise forbidden(LEASES, attributes.name, "by this plugin")

    def body(version: str, second: int) -> bytes:
        metadata = {"name": "n", "namespace": "kube-node-lease", "resourceVersion": version}
        spec = {"holderIdentity": "n", "renewTime": f"2026-11-23T20:00:{second:02}.000000Z"}
        return orjson.dumps({"metadata": metadata, "spec": spec})

    async def main() -> None:
        async with running(tmp_path) as core:
            _, made = await core.ask("POST", ALL, {"metadata": {"name": "n"}, "spec": {"holderIdentity": "n"}})
            for second in (1, 2, 3):
                status, made = await core.ask("PUT", f"{ALL}/n", body(made["metadata"]["resourceVersion"], second))
                assert status == 200
            core.api.writer.chain = Chain((Refuses(),))
            assert (await core.ask("PUT", f"{ALL}/n", body(made["metadata"]["resourceVersion"], 4)))[0] == 403

    run_virtually(main)


def renewal(name: str, version: str, second: int, **metadata: Any) -> bytes:
    about = {"name": name, "namespace": "kube-node-lease", **({"resourceVersion": version} if version else {})}
    spec = {"holderIdentity": name, "renewTime": f"2026-11-23T20:00:{second:02}.000000Z"}
    return orjson.dumps({"metadata": about | metadata, "spec": spec})


async def learned(core: Core, names: Sequence[str]) -> dict[str, str]:
    """The leases' versions, once the server knows how each is renewed."""
    versions = {}
    for name in names:
        _, made = await core.ask("POST", ALL, renewal(name, "", 0))
        _, made = await core.ask("PUT", f"{ALL}/{name}", renewal(name, made["metadata"]["resourceVersion"], 1))
        versions[name] = made["metadata"]["resourceVersion"]
    return versions


def test_a_batch_renews_in_one_step_what_it_can_and_asks_for_the_rest_one_by_one(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as core:
            known = await learned(core, ("a", "b", "c"))
            transport = InProcessTransport(core.api, ADMIN)
            writes = [
                (f"{ALL}/a", renewal("a", known["a"], 2)),
                (f"{ALL}/a", renewal("a", known["a"], 3)),
                (f"{ALL}/b", renewal("b", known["b"], 2, labels={"x": "y"})),
                (f"{ALL}/c", renewal("c", known["c"], 2)),
                (f"{ALL}/d", renewal("d", "7", 2)),
                ("/nowhere", b"{}"),
            ]
            handled = []
            handle = core.api.handle

            def counted(request: Request) -> Any:
                handled.append(request.path)
                return handle(request)

            core.api.handle = counted  # type: ignore[method-assign]
            answers = await transport.put_all(writes)
            assert [each.status for each in answers if isinstance(each, ApiResponse)] == [200, 409, 200, 200, 201, 404]
            assert handled == [f"{ALL}/a", f"{ALL}/b", f"{ALL}/d", "/nowhere"]
            assert 'resource="leases"' in b"".join(each.encode() for each in core.api.requests.lines()).decode()
            await transport.close()
            assert all(isinstance(each, Unavailable) for each in await transport.put_all(writes))

    run_virtually(main)


def test_a_batch_that_takes_too_long_is_sent_again_and_one_that_is_cancelled_leaves_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as core:
            known = await learned(core, ("a", "b"))
            never: list[asyncio.Future[Any]] = []

            def unanswered(*given: Any) -> Any:
                never.append(asyncio.get_running_loop().create_future())
                return never[-1]

            core.api.store.renew = unanswered  # type: ignore[method-assign]
            writes = [(f"{ALL}/{name}", renewal(name, version, 2)) for name, version in known.items()]
            transport = InProcessTransport(core.api, ADMIN)
            task = asyncio.create_task(transport.put_all(writes))
            await core.clock.sleep(1)
            assert core.api.metrics()["apiserver_current_inflight_requests"] == 1
            task.cancel()
            assert isinstance((await asyncio.gather(task, return_exceptions=True))[0], asyncio.CancelledError)
            assert all(each.cancelled() for each in never) and len(never) == 2
            assert core.api.metrics()["apiserver_current_inflight_requests"] == 0
            answers = await transport.put_all(writes)
            assert [each.status for each in answers if isinstance(each, ApiResponse)] == [200, 200]
            assert len(never) == 4

    run_virtually(main)

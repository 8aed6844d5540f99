"""Webhooks of a test: called for admission and conversion in real and in virtual time, late and in error."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from minikube_py import Cluster, ClusterError, StatusError
from minikube_py.cluster.webhooks import Webhook

pytestmark = pytest.mark.real_time("real sockets and threads")
POLICIES = ("Fail", "Ignore")
LATE = (
    'Internal error occurred: failed calling webhook "guard.example.com": failed to call webhook: '
    'Post "https://guard.webhook.invalid/?timeout=1s": context deadline exceeded'
)
NAME = {"type": "object", "properties": {"spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}}


@pytest.fixture(params=["real", "virtual"])
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with Cluster(nodes=0, clock=request.param) as running:
        yield running


def configuration(hook: Webhook, policy: str = "Fail", kind: str = "Validating", timeout_s: int = 1) -> dict[str, Any]:
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": f"{kind}WebhookConfiguration",
        "metadata": {"name": hook.name},
        "webhooks": [
            {
                "name": f"{hook.name}.example.com",
                "clientConfig": {"url": hook.url},
                "admissionReviewVersions": ["v1"],
                "sideEffects": "None",
                "timeoutSeconds": timeout_s,
                "failurePolicy": policy,
                "rules": [rule],
            }
        ],
    }


def config_map(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}


def refusal(call: Callable[[], object]) -> tuple[int, str] | None:
    try:
        call()
    except StatusError as error:
        return error.code, error.message
    return None


def test_its_answer_decides(cluster: Cluster) -> None:
    hook = cluster.webhook("guard", lambda request: request["name"] != "bad")
    cluster.apply(configuration(hook))
    said = 'admission webhook "guard.example.com" denied the request without explanation'
    assert refusal(lambda: cluster.apply(config_map("bad"))) == (400, said)
    assert refusal(lambda: cluster.apply(config_map("good"))) is None
    assert [each["name"] for each in hook.requests] == ["bad", "good"]


LEASE = "/apis/coordination.k8s.io/v1/namespaces/default/leases/made"


@pytest.mark.parametrize("operation", ["CREATE", "UPDATE"])
@pytest.mark.parametrize("by", ["apply", "PUT"])
def test_an_update_that_creates_its_object_is_a_creation(cluster: Cluster, operation: str, by: str) -> None:
    def made() -> int:
        lease = b'{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"made"}}'
        if by == "PUT":
            return cluster.request("PUT", LEASE, lease).status
        found = refusal(lambda: cluster.apply(lease.decode()))
        return found[0] if found else 201

    hook = cluster.webhook("guard", lambda request: request["options"]["kind"] == "UpdateOptions")
    of = configuration(hook)
    of["webhooks"][0]["rules"] = [
        {"apiGroups": ["*"], "apiVersions": ["*"], "operations": [operation], "resources": ["leases"]}
    ]
    cluster.apply(of)
    assert made() == (400 if operation == "CREATE" else 201)
    assert len(hook.requests) == (operation == "CREATE")


def test_its_patch_is_applied(cluster: Cluster) -> None:
    patch = [{"op": "add", "path": "/data", "value": {"a": "b"}}]
    hook = cluster.webhook("guard", lambda _: {"allowed": True, "patch": patch})
    cluster.apply(configuration(hook, kind="Mutating"))
    assert cluster.apply(config_map("a"))[0]["data"] == {"a": "b"}


@pytest.mark.parametrize("kind", ["Validating", "Mutating"])
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("late", ["time_out", "slow"])
def test_an_answer_after_its_timeout_is_a_failure(late: str, policy: str, kind: str) -> None:
    """In virtual time, where it costs nothing: every policy, phase and way."""
    with Cluster(nodes=0, clock="virtual") as cluster:
        hook = cluster.webhook("guard", lambda _: True)
        cluster.apply(configuration(hook, policy, kind))
        hook.time_out(times=1) if late == "time_out" else hook.slow(1, times=1)
        begun_s = cluster.now_s
        assert refusal(lambda: cluster.apply(config_map("a"))) == ((500, LATE) if policy == "Fail" else None)
        assert 1 <= cluster.now_s - begun_s < 1.1
        assert len(hook.requests) == 1
        assert refusal(lambda: cluster.apply(config_map("b"))) is None
        hook.slow(0.9)
        begun_s = cluster.now_s
        assert refusal(lambda: cluster.apply(config_map("c"))) is None
        assert 0.9 <= cluster.now_s - begun_s < 1


@pytest.mark.parametrize("policy", POLICIES)
def test_it_times_out_in_real_time(policy: str) -> None:
    with Cluster(nodes=0) as cluster:
        hook = cluster.webhook("guard", lambda _: True)
        cluster.apply(configuration(hook, policy))
        hook.time_out()
        assert refusal(lambda: cluster.apply(config_map("a"))) == ((500, LATE) if policy == "Fail" else None)
        cluster.all_well()
        assert refusal(lambda: cluster.apply(config_map("b"))) is None


def test_an_exception_and_an_invalid_answer_are_errors_of_its_server(cluster: Cluster) -> None:
    answers: list[Callable[[], Any]] = [lambda: 1 / 0, lambda: None, lambda: {"allowed": {1, 2}}]
    hook = cluster.webhook("guard", lambda _: answers.pop(0)())
    cluster.apply(configuration(hook))
    for said in ("ZeroDivisionError", "it returned NoneType", "TypeError"):
        found = refusal(lambda: cluster.apply(config_map("a")))
        assert found is not None
        assert found[0] == 500
        assert said in found[1]


def test_only_in_real_time_it_may_use_the_cluster(cluster: Cluster) -> None:
    hook = cluster.webhook("guard", lambda _: cluster.objects("configmaps") is not None)
    cluster.apply(configuration(hook))
    found = refusal(lambda: cluster.apply(config_map("a")))
    if cluster.clock == "real":
        assert found is None
    else:
        assert found is not None
        assert "ClusterError: a cluster in virtual time cannot be used or stopped from within a simulation" in found[1]
        assert "a" not in [each["metadata"]["name"] for each in cluster.objects("configmaps")]


@pytest.mark.parametrize(
    "use",
    [
        Cluster.stop,
        lambda cluster: cluster.__exit__(None, None, None),
        lambda cluster: cluster.wait("nodes", ready=0),
        lambda cluster: cluster.apply(config_map("b")),
        lambda cluster: cluster.fail_next(),
        lambda cluster: cluster.snapshot(),
        lambda cluster: cluster.client.httpx().get("/api"),
        lambda cluster: cluster.kubectl("get", "nodes"),
        lambda cluster: cluster._virtual().gateway,
        lambda cluster: cluster.advance(1),
        lambda cluster: cluster.run(lambda: asyncio.sleep(1)),
        lambda cluster: Cluster(nodes=0, clock="virtual").start(),
    ],
)
def test_what_cannot_work_in_a_function_is_refused(use: Callable[[Cluster], object]) -> None:
    with Cluster(nodes=0, clock="virtual") as cluster:
        hook = cluster.webhook("guard", lambda _: bool(use(cluster)) or True)
        cluster.apply(configuration(hook))
        inputs = len(cluster.inputs)
        found = refusal(lambda: cluster.apply(config_map("a")))
        assert found is not None and "ClusterError: a cluster in virtual time cannot be used or stopped" in found[1]
        assert len(cluster.inputs) == inputs + 1, "only the create"
        assert cluster.objects("nodes") == []


def test_a_program_or_coroutine_cannot_use_the_cluster_that_runs_it() -> None:
    with Cluster(nodes=0, clock="virtual") as cluster:

        async def as_coroutine(clients: Any) -> None:
            cluster.stop()

        for main in (as_coroutine, lambda clients: cluster.objects("nodes"), lambda clients: cluster.stop()):
            program = cluster.program(main)
            cluster.advance(0.01)
            assert isinstance(program.error, ClusterError) and "from within a simulation" in str(program.error)
            program.stop()

        async def stops() -> None:
            cluster.stop()

        with pytest.raises(ClusterError, match="from within a simulation"):
            cluster.run(stops)
        assert cluster.objects("nodes") == []


def test_in_real_time_a_function_cannot_stop_the_cluster_and_all_else_works() -> None:
    with Cluster(nodes=0) as cluster:
        said: list[str] = []

        def answer(request: dict[str, Any]) -> bool:
            if request["name"] == "a":
                with pytest.raises(ClusterError) as refused:
                    cluster.stop()
                said.append(str(refused.value))
                cluster.apply(config_map("b"))
                cluster.snapshot()
            return True

        hook = cluster.webhook("guard", answer)
        cluster.apply(configuration(hook, timeout_s=20))
        assert refusal(lambda: cluster.apply(config_map("a"))) is None
        assert said == ["a webhook's function cannot stop the cluster, which waits for its answer"]
        assert {"a", "b"} <= {each["metadata"]["name"] for each in cluster.objects("configmaps")}


@pytest.mark.timeout(60)
def test_the_end_does_not_wait_for_a_function() -> None:
    """In both forms; the functions end when the test says so."""
    goes_on, ended = threading.Event(), threading.Semaphore(0)

    def answer(request: dict[str, Any]) -> bool:
        goes_on.wait()
        ended.release()
        return True

    async def in_a_loop() -> None:
        async with Cluster(nodes=0) as cluster:
            await cluster.apply(configuration(cluster.webhook("guard", answer)))
            with pytest.raises(StatusError, match="context deadline exceeded"):
                await cluster.apply(config_map("a"))

    with Cluster(nodes=0) as cluster:
        cluster.apply(configuration(cluster.webhook("guard", answer)))
        assert refusal(lambda: cluster.apply(config_map("a"))) == (500, LATE)
    asyncio.run(in_a_loop())
    assert not ended.acquire(blocking=False)
    goes_on.set()
    for _ in range(2):
        assert ended.acquire(timeout=30)


def test_it_converts(cluster: Cluster) -> None:
    def convert(request: dict[str, Any]) -> dict[str, Any]:
        wanted = request["desiredAPIVersion"]
        objects = [{**each, "apiVersion": wanted, "spec": {"by": wanted}} for each in request["objects"]]
        return {"convertedObjects": objects, "result": {"status": "Success"}}

    hook = cluster.webhook("convert", convert)
    conversion = {"clientConfig": {"url": hook.url}, "conversionReviewVersions": ["v1"]}
    versions = [
        {"name": name, "served": True, "storage": name == "v1", "schema": {"openAPIV3Schema": NAME}}
        for name in ("v1", "v2")
    ]
    cluster.apply(
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": "things.example.com"},
            "spec": {
                "group": "example.com",
                "scope": "Namespaced",
                "names": {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"},
                "conversion": {"strategy": "Webhook", "webhook": conversion},
                "versions": versions,
            },
        }
    )
    cluster.wait("crd/things.example.com", condition="Established")
    cluster.apply({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "a"}, "spec": {}})
    path = "/apis/example.com/v2/namespaces/default/things/a"
    assert b'"by":"example.com/v2"' in cluster.request("GET", path).body
    if cluster.clock == "virtual":
        hook.time_out()
        assert b"context deadline exceeded" in cluster.request("GET", path).body


def test_one_seed_one_history() -> None:
    def digest(seed: int) -> str:
        with Cluster(nodes=1, clock="virtual", seed=seed) as cluster:
            hook = cluster.webhook("guard", lambda request: request["name"] != "bad")
            cluster.apply(configuration(hook, "Ignore"))
            hook.slow(0.7, times=2)
            for name in ("a", "bad", "b"):
                refusal(lambda name=name: cluster.apply(config_map(name)))  # type: ignore[misc]
            cluster.advance(5)
            return cluster.digest

    assert digest(7) == digest(7) != digest(8)


def test_what_it_cannot_be_is_refused(cluster: Cluster) -> None:
    async def answer(_: object) -> bool:
        return True

    for given, said in (
        (("Guard", lambda _: True), "name is a DNS label"),
        (("guard", None), "answer is a plain function"),
        (("guard", answer), "answer is a plain function"),
    ):
        with pytest.raises(ClusterError, match=said):
            cluster.webhook(*given)  # type: ignore[arg-type]
    with pytest.raises(ClusterError, match="seconds is"):
        cluster.webhook("guard", lambda _: True).slow(0)


def test_within_a_loop_of_the_caller() -> None:
    async def main() -> None:
        async with Cluster(nodes=0) as cluster:
            hook = cluster.webhook("guard", lambda request: request["name"] != "bad")
            await cluster.apply(configuration(hook))
            await cluster.apply(config_map("good"))
            with pytest.raises(StatusError, match="denied"):
                await cluster.apply(config_map("bad"))

    asyncio.run(main())


@pytest.mark.parametrize(
    "raised", [ValueError, SystemExit, KeyboardInterrupt, GeneratorExit, asyncio.CancelledError, pytest.fail.Exception]
)
def test_whatever_the_function_raises_its_caller_is_told(cluster: Cluster, raised: type[BaseException]) -> None:
    def answer(request: dict[str, Any]) -> bool:
        raise raised("so")

    cluster.apply(configuration(cluster.webhook("guard", answer)))
    told = refusal(lambda: cluster.apply(config_map("a")))
    assert told is not None and told[0] == 500 and f"{raised.__name__}: so" in told[1]
    assert refusal(lambda: cluster.apply({**config_map("b"), "kind": "Secret"})) is None

"""Coroutines of a cluster's loop in virtual time: requests, watches and clients, for which time passes."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Any, Literal

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from minikube_py import Cluster, ClusterError

pytestmark = pytest.mark.real_time("plain functions")
PODS = "/api/v1/namespaces/default/pods"
POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"},
       "spec": {"containers": [{"name": "c", "image": "i"}]}}  # fmt: skip
SUBJECT = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "bob")])
SIGNED = x509.CertificateSigningRequestBuilder(SUBJECT).sign(ec.generate_private_key(ec.SECP256R1()), hashes.SHA256())
REQUEST = base64.b64encode(SIGNED.public_bytes(serialization.Encoding.PEM)).decode()
CSRS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
CSR = {
    "metadata": {"name": "bob"},
    "spec": {"request": REQUEST, "signerName": "kubernetes.io/kube-apiserver-client", "usages": ["client auth"]},
}
Create = Callable[[Cluster], Awaitable[None]]
Phases = Callable[[Cluster], Any]


async def by_transport(cluster: Cluster) -> None:
    assert (await cluster.transport().request("POST", PODS, body=json.dumps(POD).encode())).status == 201


async def phases_by_transport(cluster: Cluster) -> list[str]:
    found: list[str] = []
    async with aclosing(cluster.transport().watch(PODS)) as batches:  # type: ignore[type-var]
        async for batch in batches:
            found += [json.loads(each.object)["status"]["phase"] for each in batch if each.type != "BOOKMARK"]
            if "Running" in found:
                break
    return found


async def by_httpx(cluster: Cluster) -> None:
    async with cluster.client.httpx_asyncio() as client:
        assert (await client.post(PODS, json=POD)).status_code == 201


async def phases_by_httpx(cluster: Cluster) -> list[str]:
    found: list[str] = []
    async with cluster.client.httpx_asyncio() as client, client.stream("GET", PODS, params={"watch": "true"}) as told:
        async for line in told.aiter_lines():
            found.append(json.loads(line)["object"]["status"]["phase"])
            if found[-1] == "Running":
                break
    return found


async def by_kubernetes(cluster: Cluster) -> None:
    client = pytest.importorskip("kubernetes_asyncio").client
    async with await cluster.client.kubernetes_asyncio() as api:
        await client.CoreV1Api(api).create_namespaced_pod("default", POD)


async def phases_by_kubernetes(cluster: Cluster) -> list[str]:
    package = pytest.importorskip("kubernetes_asyncio")
    found: list[str] = []
    async with await cluster.client.kubernetes_asyncio() as api, package.watch.Watch() as watch:
        async for event in watch.stream(package.client.CoreV1Api(api).list_namespaced_pod, "default"):
            found.append(event["object"].status.phase)
            if found[-1] == "Running":
                break
    return found


async def by_lightkube(cluster: Cluster) -> None:
    models = pytest.importorskip("lightkube.resources.core_v1")
    await cluster.client.lightkube_asyncio().create(models.Pod.from_dict(POD))


async def phases_by_lightkube(cluster: Cluster) -> list[str]:
    models = pytest.importorskip("lightkube.resources.core_v1")
    found: list[str] = []
    async for _, pod in cluster.client.lightkube_asyncio().watch(models.Pod):
        found.append(pod.status.phase)
        if found[-1] == "Running":
            break
    return found


ACCESS: dict[str, tuple[Create, Phases]] = {
    "transport": (by_transport, phases_by_transport),
    "httpx": (by_httpx, phases_by_httpx),
    "kubernetes": (by_kubernetes, phases_by_kubernetes),
    "lightkube": (by_lightkube, phases_by_lightkube),
}


@pytest.mark.parametrize("way", ACCESS)
def test_it_writes_and_watches_while_time_passes(way: str) -> None:
    create, phases = ACCESS[way]
    digests = []
    for _ in range(2):
        with Cluster(clock="virtual", seed=5) as cluster:

            async def main(cluster: Cluster = cluster, before_s: float = 10.0) -> list[str]:
                watching = asyncio.create_task(phases(cluster))
                await asyncio.sleep(before_s)
                await create(cluster)
                seen: list[str] = await watching
                return seen

            begun_s = cluster.now_s
            assert cluster.run(main)[-1] == "Running"
            assert cluster.now_s > begun_s + 10
            cluster.advance(5)
            digests.append(cluster.digest)
    assert digests[0] == digests[1]


def test_faults_apply_to_it() -> None:
    with Cluster(clock="virtual") as cluster:
        cluster.fail_next("pods", times=2)

        async def main() -> tuple[int, int, int]:
            transport = cluster.transport()
            async with cluster.client.httpx_asyncio() as client:
                first = await client.get(PODS)
            return first.status_code, (await transport.request("GET", PODS)).status, (
                await transport.request("GET", PODS)
            ).status

        assert cluster.run(main) == (500, 500, 200)


def test_elsewhere_in_the_simulation_it_is_refused() -> None:
    with Cluster(clock="virtual") as cluster:

        async def main(clients: Any) -> None:
            await cluster.transport().request("GET", PODS)

        program = cluster.program(main)
        cluster.advance(1)
        assert isinstance(program.error, ClusterError) and "run(main)" in str(program.error)
        with pytest.raises(ClusterError, match="real time only"):
            cluster.run(lambda: cluster.client.kr8s_asyncio())


def test_an_approved_request_for_a_certificate_is_signed_and_the_same_seed_signs_the_same() -> None:
    def certificate() -> bytes:
        with Cluster(clock="virtual", seed=3) as cluster:
            client = cluster.client.httpx()
            assert client.post(CSRS, json=CSR).status_code == 201
            approved = {**CSR, "status": {"conditions": [{"type": "Approved", "status": "True", "reason": "asked"}]}}
            assert client.put(f"{CSRS}/bob/approval", json=approved).status_code == 200
            cluster.advance(5)
            return base64.b64decode(client.get(f"{CSRS}/bob").json()["status"]["certificate"])

    signed = certificate()
    assert x509.load_pem_x509_certificate(signed).subject == SUBJECT
    assert certificate() == signed


@pytest.mark.parametrize("clock", ["real", "virtual"])
def test_a_watch_by_request_is_refused(clock: Literal["real", "virtual"]) -> None:
    with Cluster(clock=clock) as cluster:
        for path in ("/api/v1/watch/pods", "/api/v1/pods?watch=true"):
            name, _, query = path.partition("?")
            params = {"watch": "true"} if query else None
            with pytest.raises(ClusterError, match="watch"):
                cluster.request("GET", name, params=params)

"""Virtual time: the first use of a Secret's token on a day is written, whatever uses it, and is an input of the history
(upstream's `pkg/serviceaccount/legacy.go`)."""

from __future__ import annotations

import base64
import json
import ssl
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest

from minikube_py import Cluster
from minikube_py.cluster.input_log import InputLog

pytestmark = pytest.mark.real_time("real sockets and threads")
SECRET = {
    "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
    "metadata": {"name": "tok", "annotations": {"kubernetes.io/service-account.name": "default"}},
}  # fmt: skip
LAST_USED = "kubernetes.io/legacy-token-last-used"
CONFIG = b'{"metadata":{"name":"a"}}'
Use = Callable[[Cluster, str], int]


def by_httpx(method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None) -> Use:
    def use(cluster: Cluster, token: str) -> int:
        told = {"Authorization": f"Bearer {token}", "Content-Type": "application/json", **(headers or {})}
        return cluster.client.httpx().request(method, path, content=body, headers=told).status_code

    return use


def by_https(cluster: Cluster, token: str) -> int:
    trusted = ssl.create_default_context(cadata=cluster.authority_pem)
    headers = {"Authorization": f"Bearer {token}"}
    with httpx.Client(base_url=cluster.url, verify=trusted, headers=headers, trust_env=False) as client:
        return client.get("/api/v1/pods").status_code


def by_review(cluster: Cluster, token: str) -> int:
    body = json.dumps({"spec": {"token": token}}).encode()
    response = cluster.request("POST", "/apis/authentication.k8s.io/v1/tokenreviews", body)
    assert json.loads(response.body)["status"]["authenticated"]
    return response.status


USES: dict[str, tuple[Use, int]] = {
    "get": (by_httpx("GET", "/apis"), 200),
    "forbidden": (by_httpx("GET", "/api/v1/pods"), 403),
    "head": (by_httpx("HEAD", "/apis"), 403),
    "absent": (by_httpx("GET", "/none"), 403),
    "watch": (by_httpx("GET", "/api/v1/pods?watch=true"), 403),
    "write": (by_httpx("POST", "/api/v1/namespaces/default/configmaps", CONFIG), 403),
    "dry run": (by_httpx("POST", "/api/v1/namespaces/default/configmaps?dryRun=All", CONFIG), 403),
    "as another": (by_httpx("GET", "/apis", None, {"Impersonate-User": "bob"}), 403),
    "wrong impersonation": (by_httpx("GET", "/apis", None, {"Impersonate-Group": "all"}), 400),
    "https": (by_https, 403),
    "review": (by_review, 201),
}


@pytest.mark.parametrize("way", USES)
def test_the_first_use_of_a_day_is_written_and_replayed(way: str, tmp_path: Path) -> None:
    use, status = USES[way]
    with Cluster(clock="virtual") as cluster:
        cluster.apply(SECRET)
        cluster.advance(1)
        token = base64.b64decode(cluster.get("secret/tok")["data"]["token"]).decode()
        assert use(cluster, token) == status
        now = cluster._virtual().clock.wall_s()
        assert cluster.get("secret/tok")["metadata"]["labels"][LAST_USED] == f"{datetime.fromtimestamp(now, UTC):%F}"
        before = cluster.digest, cluster.now_s
        assert by_httpx("GET", "/apis")(cluster, token) == 200
        assert (cluster.digest, cluster.now_s) == before
        cluster.advance(5)
        assert [each.kind for each in cluster.inputs].count("token") == 1
        cluster.save_log(tmp_path / "log")
        digest = cluster.digest
    log = InputLog.read(tmp_path / "log")
    engine = log.start()
    try:
        log.play(engine)
        assert engine.virtual.digest == digest
    finally:
        engine.stop(quietly=True)


def test_a_program_that_uses_it_writes_as_part_of_the_history() -> None:
    with Cluster(clock="virtual") as cluster:
        cluster.apply(SECRET)
        cluster.advance(1)
        token = base64.b64decode(cluster.get("secret/tok")["data"]["token"]).decode()

        def program(clients: object) -> None:
            headers = {"Authorization": f"Bearer {token}"}
            assert clients.httpx().get("/apis", headers=headers).status_code == 200  # type: ignore[attr-defined]

        cluster.program(program)
        cluster.advance(1)
        assert cluster.get("secret/tok")["metadata"]["labels"][LAST_USED]
        assert "token" not in [each.kind for each in cluster.inputs]

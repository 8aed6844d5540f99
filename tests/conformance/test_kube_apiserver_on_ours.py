"""Kubernetes' own API server on our store: it starts, and does what kubectl and controllers ask of it."""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Iterator
from typing import Any

import pytest
from etcd_api import Caller, ours
from needs import original_program
from patience import PATIENCE_S

from minikube_py.etcd.messages import pb

from upstream_run import Parts, Upstream  # isort: skip

pytestmark = pytest.mark.original
MAPS = "/api/v1/namespaces/default/configmaps"


class Api:
    def __init__(self, url: str, token: str) -> None:
        self._host = url.removeprefix("https://")
        self._token = token
        self._context = ssl._create_unverified_context()

    def connection(self) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection(self._host, context=self._context, timeout=PATIENCE_S)

    def ask(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> tuple[int, Any]:
        connection = self.connection()
        answer = self.send(connection, method, path, body, kind)
        found = json.loads(answer.read())
        connection.close()
        return answer.status, found

    def send(
        self, connection: http.client.HTTPSConnection, method: str, path: str, body: Any = None, kind: str = ""
    ) -> http.client.HTTPResponse:
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": kind}
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        return connection.getresponse()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Api, Caller]]:
    original_program("kube-apiserver")
    folder = tmp_path_factory.mktemp("apiserver")
    with ours(tmp_path_factory.mktemp("store")) as server:
        upstream, caller = Upstream(folder), Caller(f"127.0.0.1:{server.port}")
        try:
            url = upstream._start_api_server([f"http://{caller.target}"], Parts())
            yield Api(url, upstream.token), caller
        finally:
            upstream.kill()
            caller.close()


def test_objects_are_made_changed_listed_in_pages_watched_and_deleted(served: tuple[Api, Caller]) -> None:
    api, caller = served
    versions = []
    for number in range(5):
        document = {"metadata": {"name": f"c{number}"}, "data": {"a": "b"}}
        code, made = api.ask("POST", MAPS, document)
        assert code == 201
        versions.append(made["metadata"]["resourceVersion"])
    again = api.ask("POST", MAPS, {"metadata": {"name": "c0"}})
    assert again[0] == 409
    connection = api.connection()
    watching = api.send(connection, "GET", f"{MAPS}?watch=1&resourceVersion={versions[0]}")
    seen = [json.loads(watching.readline()) for _ in range(4)]
    assert [each["object"]["metadata"]["resourceVersion"] for each in seen] == versions[1:]
    patch = {"data": {"a": "c"}}
    code, changed = api.ask("PATCH", f"{MAPS}/c1", patch, "application/merge-patch+json")
    assert code == 200 and changed["data"] == {"a": "c"}
    stale = {"metadata": {"name": "c1", "resourceVersion": versions[1]}}
    assert api.ask("PUT", f"{MAPS}/c1", stale)[0] == 409
    assert api.ask("DELETE", f"{MAPS}/c2")[0] == 200
    assert [json.loads(watching.readline())["type"] for _ in range(2)] == ["MODIFIED", "DELETED"]
    connection.close()
    names, token = [], ""
    while True:
        code, page = api.ask("GET", f"{MAPS}?limit=2&continue={token}")
        assert code == 200
        names += [each["metadata"]["name"] for each in page["items"]]
        token = page["metadata"].get("continue", "")
        if not token:
            break
    assert [name for name in names if name.startswith("c")] == ["c0", "c1", "c3", "c4"]
    # Its objects are in our store, under its keys and at its revisions.
    key = b"/registry/configmaps/default/c4"
    code, found = caller.call("KV/Range", pb.RangeRequest(key=key))
    assert code == "ok" and found["kvs"][0]["mod_revision"] == int(versions[4])


def test_it_answers_what_it_holds_when_somebody_else_compacts_the_store(served: tuple[Api, Caller]) -> None:
    """It follows `compact_rev_key` alone. Our API server on a real etcd does the same (`test_etcd_behind.py`)."""
    (api, caller), maps = served, MAPS.replace("default", "kube-public")
    made = [api.ask("POST", maps, {"metadata": {"name": f"c{number}"}})[1]["metadata"] for number in range(4)]
    _, page = api.ask("GET", f"{maps}?limit=2")
    newest = api.ask("POST", maps, {"metadata": {"name": "c4"}})[1]["metadata"]["resourceVersion"]
    old = made[1]["resourceVersion"]
    assert caller.call("KV/Compact", pb.CompactionRequest(revision=int(newest), physical=True))[0] == "ok"
    assert caller.call("KV/Range", pb.RangeRequest(key=b"a", revision=int(old)))[0] == "OUT_OF_RANGE"
    asked = (f"resourceVersion={old}&resourceVersionMatch=Exact", f"continue={page['metadata']['continue']}")
    for query, expected in zip(asked, (["c0", "c1"], ["c2", "c3"]), strict=True):
        code, found = api.ask("GET", f"{maps}?{query}")
        assert code == 200 and [each["metadata"]["name"] for each in found["items"]][-2:] == expected
    connection = api.connection()
    watching = api.send(connection, "GET", f"{maps}?watch=1&resourceVersion={old}")
    assert [json.loads(watching.readline())["object"]["metadata"]["name"] for _ in range(3)] == ["c2", "c3", "c4"]
    connection.close()


def test_it_says_that_it_is_well(served: tuple[Api, Caller]) -> None:
    connection = served[0].connection()
    answer = served[0].send(connection, "GET", "/readyz?verbose")
    lines = answer.read().decode().splitlines()
    connection.close()
    assert answer.status == 200 and "[+]etcd ok" in lines

"""Paths, errors and bodies of the REST client; kubeconfig files; lines of a watch stream."""

import base64
import random

import orjson
import pytest
import yaml
from fake_api import FakeApi
from patience import until
from step_clock import StepClock

from minikube_py.api.errors import StatusError
from minikube_py.client import rest
from minikube_py.client.http_transport import parse_event
from minikube_py.client.informer import Informer
from minikube_py.client.kubeconfig import BadKubeconfig, load_kubeconfig
from minikube_py.client.rest import (
    LEASES,
    NODES,
    PODS,
    REPLICATION_CONTROLLERS,
    ResourceRef,
    RestClient,
    binding_body,
    delete_options,
    path_of,
    status_error,
)
from minikube_py.client.transport import ApiResponse
from minikube_py.errors import Unavailable

PATHS = {
    "core, all namespaces": ((PODS,), "/api/v1/pods"),
    "core, one namespace": ((PODS, "a"), "/api/v1/namespaces/a/pods"),
    "core, one object": ((PODS, "a", "p"), "/api/v1/namespaces/a/pods/p"),
    "subresource": ((PODS, "a", "p", "status"), "/api/v1/namespaces/a/pods/p/status"),
    "cluster-scoped": ((NODES, "", "n"), "/api/v1/nodes/n"),
    "named group": ((LEASES, "a", "l"), "/apis/coordination.k8s.io/v1/namespaces/a/leases/l"),
    "names are quoted": ((PODS, "a", "p/../q?x"), "/api/v1/namespaces/a/pods/p%2F..%2Fq%3Fx"),
    "colons stay": (
        (ResourceRef("rbac.authorization.k8s.io", "v1", "clusterroles"), "", "system:node"),
        "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:node",
    ),
}


@pytest.mark.parametrize("name", PATHS)
def test_paths(name):
    arguments, expected = PATHS[name]
    assert path_of(*arguments) == expected


def test_a_status_becomes_a_status_error():
    details = {"name": "p", "kind": "pods", "retryAfterSeconds": 3}
    body = {"kind": "Status", "code": 429, "reason": "TooManyRequests", "message": "slow down", "details": details}
    error = status_error(429, orjson.dumps(body))
    assert (error.code, error.reason, error.message, error.retry_after_s) == (429, "TooManyRequests", "slow down", 3)


@pytest.mark.parametrize("body", [b"", b"<html>Bad Gateway</html>", b"[1]", b'{"kind":"Pod"}'])
def test_what_is_no_status_still_makes_an_error(body):
    assert status_error(502, body).code == 502


def test_a_status_without_a_code_takes_that_of_the_answer():
    assert status_error(418, b'{"kind":"Status","message":"x"}').code == 418


def test_bodies():
    assert orjson.loads(binding_body("a", "p", "n", "u"))["metadata"] == {"name": "p", "namespace": "a", "uid": "u"}
    assert delete_options("", "", None, "") is None
    assert delete_options("u", "7", 0, "Orphan") == {
        "kind": "DeleteOptions",
        "apiVersion": "v1",
        "preconditions": {"uid": "u", "resourceVersion": "7"},
        "gracePeriodSeconds": 0,
        "propagationPolicy": "Orphan",
    }


async def test_requests_end_to_end_on_the_fake():
    api = FakeApi(StepClock())
    client = RestClient(api)
    pod = await client.create(PODS, {"metadata": {"name": "p"}, "spec": {"containers": []}}, "a")
    await client.bind("a", "p", "n")
    with pytest.raises(StatusError) as stale:
        await client.update(PODS, pod)
    assert stale.value.code == 409
    await client.patch(PODS, "p", {"status": {"phase": "Running"}}, "a", subresource="status")
    fresh = await client.get(PODS, "p", "a")
    assert (fresh["spec"]["nodeName"], fresh["status"]["phase"]) == ("n", "Running")
    await client.create(REPLICATION_CONTROLLERS, {"metadata": {"name": "r"}, "spec": {"replicas": 1}}, "a")
    await client.scale(REPLICATION_CONTROLLERS, "r", "a", 5)
    assert (await client.get(REPLICATION_CONTROLLERS, "r", "a"))["spec"]["replicas"] == 5
    for number in range(7):
        await client.create(PODS, {"metadata": {"name": f"q{number}"}}, "a")
    assert [len(page.items) async for page in client.pages(PODS, "a", limit=3)] == [3, 3, 2]
    assert len(await client.list(PODS, "a")) == 8
    with pytest.raises(StatusError):
        await client.delete(PODS, "p", "a", uid="another")
    await client.delete(PODS, "p", "a", uid=pod["metadata"]["uid"], grace_period_s=0)
    with pytest.raises(StatusError) as gone:
        await client.get(PODS, "p", "a")
    assert gone.value.reason == "NotFound"


async def test_a_list_without_end_is_given_up(monkeypatch):
    """Other API servers may answer anything."""
    monkeypatch.setattr(rest, "LIST_OBJECTS_MAX", 10)
    api = FakeApi(StepClock())
    answer = orjson.dumps({"metadata": {"resourceVersion": "1", "continue": "again"}, "items": []})
    asked = []

    async def request(method, path, params=None, body=None, content_type=""):
        asked.append(path)
        return ApiResponse(200, answer)

    api.request = request
    with pytest.raises(Unavailable, match="goes on after 10 objects, the limit"):
        await RestClient(api).list(PODS)
    assert len(asked) == 10
    asked.clear()
    informer = Informer(RestClient(api), PODS, dict, clock=StepClock(), rng=random.Random(1))
    informer.start()
    await until(lambda: informer.problem)
    assert "goes on after 10 objects" in informer.problem and len(asked) == 10
    await informer.stop()


LINES = {
    "usual": (b'{"type":"ADDED","object":{"a":1}}', ("ADDED", b'{"a":1}')),
    "the marker inside the object": (
        b'{"type":"ADDED","object":{"x":"\\",\\"object\\":"}}',
        ("ADDED", b'{"x":"\\",\\"object\\":"}'),
    ),
    "spaces": (b'{ "type": "DELETED", "object": {"a": 1} }', ("DELETED", b'{"a":1}')),
    "other order": (b'{"object":{"a":1},"type":"MODIFIED"}', ("MODIFIED", b'{"a":1}')),
}


@pytest.mark.parametrize("name", LINES)
def test_watch_lines(name):
    line, expected = LINES[name]
    assert tuple(parse_event(line)) == expected


@pytest.mark.parametrize("line", [b"", b"{", b"[]", b'{"type":"ADDED"}', b"not json"])
def test_what_is_no_watch_event_is_refused(line):
    with pytest.raises(Unavailable):
        parse_event(line)


def kubeconfig(cluster=None, user=None, **changes):
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "main",
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:6443/", **(cluster or {})}}],
        "users": [{"name": "u", "user": user or {}}],
        "contexts": [{"name": "main", "context": {"cluster": "c", "user": "u"}}],
        **changes,
    }


def load(tmp_path, document, context=None):
    path = tmp_path / "config"
    path.write_text(document if isinstance(document, str) else yaml.safe_dump(document))
    return load_kubeconfig(path, context)


def test_kubeconfig_with_data_inside(tmp_path):
    ca, key = base64.b64encode(b"CA").decode(), base64.b64encode(b"KEY").decode()
    user = {"client-certificate-data": ca, "client-key-data": key, "token": "t"}
    access = load(tmp_path, kubeconfig({"certificate-authority-data": ca, "tls-server-name": "x"}, user))
    assert (access.server, access.ca_pem, access.server_name) == ("https://127.0.0.1:6443", b"CA", "x")
    assert (access.client_certificate_pem, access.client_key_pem, access.token) == (b"CA", b"KEY", "t")


def test_kubeconfig_with_files_beside_it(tmp_path):
    (tmp_path / "ca.pem").write_bytes(b"CA")
    (tmp_path / "token").write_text("secret\n")
    access = load(tmp_path, kubeconfig({"certificate-authority": "ca.pem"}, {"tokenFile": "token"}))
    assert (access.ca_pem, access.token) == (b"CA", "secret")


def test_kubeconfig_insecure_http_has_no_tls(tmp_path):
    assert load(tmp_path, kubeconfig({"server": "http://h:1"})).ssl_context() is None


BAD = {
    "not yaml": ("a: [", "not YAML"),
    "not a mapping": ("- a", "a mapping is expected"),
    "no context": (kubeconfig(**{"current-context": ""}), "current-context is not set"),
    "unknown context": (kubeconfig(**{"current-context": "x"}), "context 'x' is not among its contexts"),
    "unknown cluster": (kubeconfig(clusters=[]), "cluster 'c' is not among its clusters"),
    "unknown user": (kubeconfig(users=None), "user 'u' is not among its users"),
    "no server": (kubeconfig({"server": "h:1"}), "has no http(s) server"),
    "bad base64": (kubeconfig({"certificate-authority-data": "!"}), "certificate-authority-data is not base64"),
    "missing file": (kubeconfig({"certificate-authority": "none.pem"}), "cannot read none.pem"),
    "plugin": (kubeconfig(user={"exec": {"command": "x"}}), "from a plugin, which is not supported"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_kubeconfigs_say_what_is_wrong(tmp_path, name):
    document, expected = BAD[name]
    with pytest.raises(BadKubeconfig) as error:
        load(tmp_path, document)
    assert expected in str(error.value) and "\n" not in str(error.value)


def test_a_missing_kubeconfig_is_named(tmp_path):
    with pytest.raises(BadKubeconfig, match="none: cannot read the kubeconfig"):
        load_kubeconfig(tmp_path / "none")

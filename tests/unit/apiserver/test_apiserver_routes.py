"""From paths to verbs, and from Accept headers to forms."""

from __future__ import annotations

import pytest

from minikube_py.api.errors import StatusError
from minikube_py.apiserver.forms import PLAIN, negotiate
from minikube_py.apiserver.routes import parse_path, route, verb_of

SERVED = {
    "all pods": ("GET", "/api/v1/pods", ("list", "pods", "", "")),
    "trailing slash": ("GET", "/api/v1/pods/", ("list", "pods", "", "")),
    "pods of a namespace": ("GET", "/api/v1/namespaces/n/pods", ("list", "pods", "n", "")),
    "one pod": ("GET", "/api/v1/namespaces/n/pods/p", ("get", "pods", "n", "p")),
    "a namespace": ("GET", "/api/v1/namespaces/n", ("get", "namespaces", "", "n")),
    "a namespace's status": ("PUT", "/api/v1/namespaces/n/status", ("update", "namespaces", "", "n")),
    "finalize": ("PUT", "/api/v1/namespaces/n/finalize", ("update", "namespaces", "", "n")),
    "a lease": ("PATCH", "/apis/coordination.k8s.io/v1/namespaces/n/leases/l", ("patch", "leases", "n", "l")),
    "deletecollection": ("DELETE", "/api/v1/namespaces/n/pods", ("deletecollection", "pods", "n", "")),
    "binding": ("POST", "/api/v1/namespaces/n/pods/p/binding", ("create", "pods", "n", "p")),
    "older watch": ("GET", "/api/v1/watch/namespaces/n/pods/p", ("watch", "pods", "n", "p")),
    "escaped": ("GET", "/api/v1/namespaces/n/pods/a%2Eb", ("get", "pods", "n", "a.b")),
}


@pytest.mark.parametrize("case", SERVED.values(), ids=SERVED)
def test_served(case: tuple[str, str, tuple[str, str, str, str]]) -> None:
    method, path, wanted = case
    parsed = parse_path(path)
    assert parsed is not None
    found = route(parsed, method, verb_of(parsed, method, False))
    assert (found.verb, found.resource.plural, found.namespace, found.name) == wanted


NOT_SERVED = {
    "unknown resource": ("GET", "/api/v1/foos", 404),
    "unknown subresource": ("GET", "/api/v1/namespaces/n/pods/p/foo", 404),
    "an escaped slash": ("GET", "/api/v1/namespaces/n/pods/a%2fb", 404),
    "a namespaced object without its namespace": ("GET", "/api/v1/pods/p", 404),
    "a node in a namespace": ("GET", "/api/v1/namespaces/n/nodes", 404),
    "too deep": ("GET", "/api/v1/namespaces/n/pods/p/status/x", 404),
    "create in all namespaces": ("POST", "/api/v1/pods", 405),
    "put on a collection": ("PUT", "/api/v1/namespaces/n/pods", 405),
    "patch on a collection": ("PATCH", "/api/v1/pods", 405),
    "post on an object": ("POST", "/api/v1/namespaces/n/pods/p", 405),
    "get of a binding": ("GET", "/api/v1/namespaces/n/pods/p/binding", 405),
    "head": ("HEAD", "/api/v1/pods", 405),
    "all namespaces at once": ("DELETE", "/api/v1/namespaces", 405),
    "an unknown group": ("PATCH", "/apis/foo.example/v1/bars/x", 404),
    "a review of a namespace without one": ("GET", "/apis/authorization.k8s.io/v1/localsubjectaccessreviews", 404),
    "a subresource of nothing": ("GET", "/api/v1/namespaces/n/pods//status", 400),
    "a method of a subresource of nothing": ("DELETE", "/api/v1/namespaces/n/pods//status", 405),
    "an older watch written to": ("POST", "/api/v1/watch/pods", 405),
}


@pytest.mark.parametrize("case", NOT_SERVED.values(), ids=NOT_SERVED)
def test_not_served(case: tuple[str, str, int]) -> None:
    method, path, code = case
    parsed = parse_path(path)
    assert parsed is not None
    with pytest.raises(StatusError) as refused:
        route(parsed, method, verb_of(parsed, method, False))
    assert refused.value.code == code


def test_paths_that_name_no_resource() -> None:
    for path in ("/", "/version", "/api", "/api/v1", "/healthz"):
        assert parse_path(path) is None


FORMS = {
    "json": ("application/json", "object"),
    "anything": ("*/*", "object"),
    "table or json": ("application/json;as=Table;v=v1;g=meta.k8s.io,application/json", "table"),
    "an unknown form, else json": ("application/json;as=Foo;v=v1;g=meta.k8s.io,application/json", "object"),
    "protobuf, else json": ("application/vnd.kubernetes.protobuf,application/json", "object"),
    "by quality": ("application/json;q=0.1,application/json;as=Table;v=v1beta1;g=meta.k8s.io", "table"),
    "partial": ("application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io", "partial"),
}


@pytest.mark.parametrize("case", FORMS.values(), ids=FORMS)
def test_forms(case: tuple[str, str]) -> None:
    accept, kind = case
    assert negotiate(accept).kind == kind
    assert negotiate("application/json") is PLAIN

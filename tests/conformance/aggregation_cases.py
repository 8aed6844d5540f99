"""APIServices that controllers look after: those of definitions, and one of another server that both servers ask."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from asking import Ask
from extension_server import GROUP, NAME, ROOT, Extension

SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
PLAIN = "/api/v1/namespaces/default/services"
SLICES = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
MANAGED = "kube-aggregator.kubernetes.io/automanaged"
SOUNDS = f"{ROOT}/namespaces/default/sounds"
_MERGE = "application/merge-patch+json"
_AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


class Step(NamedTuple):
    """`until`: it is asked again until its answer has this text, or, if `gone`, has it no more."""

    ask: Ask
    until: str = ""
    gone: bool = False


def _definition(plural: str, *versions: tuple[str, bool]) -> dict[str, Any]:
    schema = {"openAPIV3Schema": {"type": "object"}}
    names = {"plural": plural, "kind": plural.capitalize()}
    listed = [
        {"name": name, "served": served, "storage": not at, "schema": schema}
        for at, (name, served) in enumerate(versions)
    ]
    spec = {"group": "managed.example.com", "scope": "Namespaced", "names": names, "versions": listed}
    return {
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.managed.example.com"}, "spec": spec,
    }  # fmt: skip


def _get(name: str, path: str, until: str = "", gone: bool = False, accept: str = "application/json") -> Step:
    return Step(Ask(name, "GET", path, accept=accept), until, gone)


def _local(name: str, label: str = "") -> dict[str, Any]:
    version, _, group = name.partition(".")
    metadata = {"name": name, **({"labels": {MANAGED: label}} if label else {})}
    spec = {"group": group, "version": version, "groupPriorityMinimum": 100, "versionPriority": 7}
    return {"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": metadata, "spec": spec}


def of_definitions() -> Iterator[Step]:
    v1, v2 = (f"{SERVICES}/{version}.managed.example.com" for version in ("v1", "v2beta1"))
    made = Ask("definition", "POST", DEFINITIONS, _definition("ones", ("v1", True), ("v2beta1", True)))
    yield Step(made)
    yield _get("made with its definition", v1, '"Local"')
    yield _get("made with its definition", v2, '"Local"')
    yield _get("groups", "/apis", "managed.example.com")
    yield _get("group", "/apis/managed.example.com")
    yield Step(Ask("spec", "PATCH", v1, {"spec": {"versionPriority": 7}}, _MERGE))
    yield _get("restored", v1, '"versionPriority":100')
    yield Step(Ask("remote", "PATCH", v1, {"spec": {"service": {"namespace": "a", "name": "b"}}}, _MERGE))
    yield _get("restored", v1, '"service"', gone=True)
    condition = {"type": "Available", "status": "False", "reason": "R", "message": "m", "lastTransitionTime": None}
    yield Step(Ask("status", "PATCH", f"{v1}/status", {"status": {"conditions": [condition]}}, _MERGE))
    yield _get("available again", v1, '"Local"')
    yield Step(Ask("deleted", "DELETE", v1))
    yield _get("made again", v1, '"Local"')
    taken = {"metadata": {"labels": {MANAGED: None}}, "spec": {"versionPriority": 200}}
    yield Step(Ask("no label", "PATCH", v2, taken, _MERGE))
    preferred = '"preferredVersion":{"groupVersion":"managed.example.com/v2beta1"'
    yield _get("groups by priority", "/apis/managed.example.com", preferred)
    yield _get("left to its user", v2)
    yield Step(Ask("spurious", "POST", SERVICES, _local("v1.spurious.example.com", "true")))
    yield _get("deleted", f"{SERVICES}/v1.spurious.example.com", "NotFound")
    yield Step(Ask("of a user", "POST", SERVICES, _local("v1.users.example.com", "onstart")))
    yield _get("kept", f"{SERVICES}/v1.users.example.com", '"Local"')
    yield Step(Ask("not served", "PATCH", f"{DEFINITIONS}/ones.managed.example.com", {
        "spec": _definition("ones", ("v1", True), ("v2beta1", False))["spec"],
    }, _MERGE))  # fmt: skip
    yield _get("left to its user", v2)
    yield Step(Ask("definition", "DELETE", f"{DEFINITIONS}/ones.managed.example.com"))
    yield _get("gone with its definition", v1, "NotFound")
    yield Step(Ask("of a user", "DELETE", v2))
    yield Step(Ask("of a user", "DELETE", f"{SERVICES}/v1.users.example.com"))
    yield _get("groups", "/apis", "managed.example.com", gone=True)


def of_another_server(other: Extension) -> Iterator[Step]:
    """The service has an external name: upstream's server, too, reaches it without a network of pods."""
    one = f"{SERVICES}/{NAME}"
    made = {"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", **other.api_service()}
    yield Step(Ask("made", "POST", SERVICES, made))
    yield _get("no service", one, "ServiceNotFound")
    yield _get("unavailable", SOUNDS, "service unavailable")
    yield _get("unavailable", ROOT)
    yield _get("listed all the same", f"/apis/{GROUP}")
    yield _get("stale", "/apis", '"Stale"', accept=_AGGREGATED)
    ports = [{"name": "https", "port": 1, "protocol": "TCP"}]
    yield Step(Ask("service", "POST", PLAIN, {"metadata": {"name": "echo"}, "spec": {"ports": ports}}))
    yield _get("another port", one, "ServicePortError")
    changed = [{"name": "https", "port": other.port, "protocol": "TCP"}]
    yield Step(Ask("service", "PATCH", f"{PLAIN}/echo", {"spec": {"ports": changed}}, _MERGE))
    yield _get("no slices", one, "EndpointsNotFound")
    piece = {
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": "echo", "labels": {"kubernetes.io/service-name": "echo"}},
        "ports": [{"name": "https", "port": other.port}],
        "endpoints": [{"addresses": ["10.1.1.1"], "conditions": {"ready": False}}],
    }  # fmt: skip
    yield Step(Ask("slice", "POST", SLICES, piece))
    yield _get("none is ready", one, "MissingEndpoints")
    yield Step(Ask("slice", "DELETE", f"{SLICES}/echo"))
    yield Step(Ask("service", "DELETE", f"{PLAIN}/echo"))
    yield _get("no service", one, "ServiceNotFound")
    yield Step(Ask("service", "POST", PLAIN, other.service()))
    yield _get("available", one, '"Passed"')
    yield _get("in a table", one, accept="application/json;as=Table;v=v1;g=meta.k8s.io")
    yield _get("current", "/apis", '"sounds"', accept=_AGGREGATED)
    yield _get("discovery", ROOT)
    yield _get("index of OpenAPI", "/openapi/v3", ROOT)
    yield _get("OpenAPI", f"/openapi/v3{ROOT}")
    sounds = f"{SOUNDS}?b=1&a=2"
    for method, body in (("GET", None), ("POST", {"a": 1}), ("PUT", {"b": 2}), ("PATCH", {"c": 3})):
        yield Step(Ask("passed on", method, sounds, body, _MERGE if method == "PATCH" else ""))
    yield _get("redirected", f"{ROOT}/redirect")
    yield _get("of its own", f"{ROOT}/nowhere/at/all")
    yield Step(Ask("not trusted", "PATCH", one, {"spec": {"caBundle": None}}, _MERGE))
    yield _get("not trusted", one, "FailedDiscoveryCheck")
    yield Step(Ask("any", "PATCH", one, {"spec": {"insecureSkipTLSVerify": True}}, _MERGE))
    yield _get("any", one, '"Passed"')
    yield Step(Ask("anonymous", "GET", SOUNDS, token=""))
    yield Step(Ask("nobody listens", "PATCH", one, {"spec": {"service": {"port": 1}}}, _MERGE))
    yield _get("nobody listens", one, "refused")
    yield Step(Ask("gone", "DELETE", one))
    yield _get("gone", SOUNDS, "404")


_PORT = re.compile(r"(?<=dial tcp )127\.0\.0\.1:\d+|localhost:\d+")


def plain(text: str) -> str:
    """Without the ports, which differ; upstream names the address that it dials, ours the host."""
    return _PORT.sub("localhost:PORT", text)

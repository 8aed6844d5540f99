"""Non-resource paths: health, version, discovery, OpenAPI, the index of paths, declared indexes."""

from __future__ import annotations

import asyncio
import platform
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import orjson

from minikube_py import __version__
from minikube_py.api import discovery
from minikube_py.api.decode import media_type
from minikube_py.api.errors import StatusError, method_not_allowed, path_not_found
from minikube_py.api.kind import Kind
from minikube_py.api.registry import Registry
from minikube_py.apiserver import health, indexes, questions, scheduling
from minikube_py.apiserver.forms import negotiate
from minikube_py.apiserver.messages import TEXT, Request, Response, page_not_found
from minikube_py.apiserver.metrics import render
from minikube_py.apiserver.object_store import translated

if TYPE_CHECKING:
    from minikube_py.api.openapi import Others
    from minikube_py.apiserver.core import ApiServer

METRICS_TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"
_HOOKS: Final = (
    "start-apiserver-admission-initializer", "generic-apiserver-start-informers", "max-in-flight-filter",
    "storage-object-count-tracker-hook", "start-apiextensions-informers", "start-apiextensions-controllers",
    "crd-informer-synced", "start-system-namespaces-controller", "peer-endpoint-reconciler-controller",
    "start-cluster-authentication-info-controller", "start-kube-apiserver-identity-lease-controller",
    "start-kube-apiserver-identity-lease-garbage-collector", "storage-readiness",
    "start-legacy-token-tracking-controller", "start-service-ip-repair-controllers", "rbac/bootstrap-roles",
    "scheduling/bootstrap-system-priority-classes", "priority-and-fairness-config-producer", "bootstrap-controller",
    "start-kubernetes-service-cidr-controller", "start-kube-aggregator-informers",
    "apiservice-status-local-available-controller", "apiservice-status-remote-available-controller",
    "apiservice-registration-controller", "apiservice-discovery-controller", "kube-apiserver-autoregistration",
    "autoregister-completion", "apiservice-openapi-controller", "apiservice-openapiv3-controller",
)  # fmt: skip
"""Steps of upstream's start, in its order; here all of them tell whether the server has started (ADR 0234)."""
_STARTS: Final = tuple(name if name == "autoregister-completion" else f"poststarthook/{name}" for name in _HOOKS)
_ALIVE: Final = ("ping", "log", "loopback-serving-certificate", "etcd", *_STARTS)
_CHECKS: Final = {
    "healthz": _ALIVE,
    "livez": _ALIVE,
    "readyz": ("ping", "log", "etcd", "etcd-readiness", "informer-sync", *_STARTS, "shutdown"),
}
_METRICS: Final = "/metrics"
_SLIS: Final = "/metrics/slis"
_PAGES: Final = ("/flagz", "/statusz")
_EXACT: Final = ("openapi", "flagz", "statusz", *_CHECKS)
"""A path below one of these that ends with a slash is another path."""


async def answer(request: Request, server: ApiServer) -> Response:
    """Raises: StatusError 404, 405, 406; what `indexes` raises."""
    if request.path in (_METRICS, _SLIS):
        return _metrics(request, server)
    path = "/" + "/".join(part for part in request.path.split("/") if part)
    first = path.split("/")[1]
    if request.path[:2] == "//" or request.path[:1] != "/" or (first in _EXACT and request.path.endswith("/")):
        return page_not_found()
    group = path.split("/")[2] if path.startswith("/apis/") else ""
    if group not in server.registry.groups and (path.count("/") > 2 or group not in server.services.groups):
        return page_not_found()
    if path == scheduling.WHAT_IF or path.startswith(scheduling.EXPLAIN_PODS):
        return await scheduling.answer(path, request, server)
    if path.startswith(questions.ROOT):
        return await questions.answer(path, request, server.questions)
    if path.startswith(f"{indexes.ROOT}/"):
        await request.read_body()
        return await indexes.answer(path, request, server)
    if path in _PAGES and request.path == path:
        pages = import_module("minikube_py.apiserver.zpages")
        found_page: Response = pages.answer(path, request, server, f"{'.'.join(KUBERNETES)}.0", _paths(server.registry))
        return found_page
    if first in _CHECKS:
        return await _health(path, request, server)
    others = server.services.elsewhere.swaggers if path == "/openapi/v2" and server.services.elsewhere else ()
    if first == "openapi":
        await _make_document(path, server, others)
    try:
        found = _document(path, request, server, others)
        if found is not None or first != "version":
            return _only_get(request, found or page_not_found())
    except StatusError as error:
        # The method is checked before Content-Type and Accept, and after the path.
        groups_first = path == "/api" and ";as=APIGroupDiscoveryList" in request.accept
        if error.code != 404 and request.method != "GET" and not groups_first and not _answers_any_method(path):
            raise method_not_allowed() from None
        raise
    raise path_not_found()


def _metrics(request: Request, server: ApiServer) -> Response:
    slis = request.path == _SLIS
    if request.method == "DELETE":
        (server.healthchecks if slis else server.requests).reset()
        return Response(200, b"metrics reset\n", TEXT)
    body = server.healthchecks.render() if slis else render(server.requests, server.metrics())
    told = Response(200, body, METRICS_TEXT)
    told.packed_above_bytes = 0
    return told


def _only_get(request: Request, response: Response) -> Response:
    if response.status != 404 and request.method != "GET" and not _answers_any_method(request.path):
        raise method_not_allowed()
    return response


def _answers_any_method(path: str) -> bool:
    """The index, OpenAPI, and the aggregator's lists: all groups, or one."""
    parts = path.strip("/").split("/")
    return parts[0] in ("", "index.html", "openapi") or (parts[0] == "apis" and len(parts) <= 2)


def deleted_status(resource: Kind, name: str, value: bytes) -> bytes:
    """The response to a completed DELETE, for most kinds."""
    details = {"name": name, "group": resource.group, "kind": resource.plural}
    details["uid"] = orjson.loads(value)["metadata"].get("uid", "")
    status = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": {key: text for key, text in details.items() if text},
    }
    return orjson.dumps(status)


def deleted_unread(resource: Kind, name: str) -> bytes:
    """The same, for an unreadable object."""
    details = {"name": name, "kind": resource.kind}
    status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    return orjson.dumps({**status, "details": details, "code": 200})


# --- health ---------------------------------------------------------------------------------------------------------


async def _health(path: str, request: Request, server: ApiServer) -> Response:
    kind, _, name = path[1:].partition("/")
    checks = _checks(kind, server)
    if name:
        checks["nospace"] = partial(_has_room, server)
        check = checks.get(name)
        if check is None:
            return page_not_found()
        status, said = await health.one(check)
        return Response(200, said.encode(), TEXT) if status == 200 else _text(status, said)
    # Restarting a server that waits for its store does not help.
    unasked = "etcd" if kind == "livez" else ""
    excluded = request.query.get("exclude", "").split("\n")
    verbose, results = "verbose" in request.query, server.healthchecks
    return _text(*await health.all_of(kind, checks, excluded, verbose=verbose, results=results, unasked=unasked))


def _checks(kind: str, server: ApiServer) -> dict[str, health.Check]:
    """By name, in upstream's order."""
    store, started = partial(_store_answers, server), partial(_has_started, server)
    own = {"etcd": store, "etcd-readiness": store, "informer-sync": partial(_in_step, server),
           "shutdown": partial(_runs_on, server)}  # fmt: skip
    usual: dict[str, health.Check] = dict.fromkeys(_STARTS, started)
    return {name: own.get(name) or usual.get(name, health.well) for name in _CHECKS[kind]}


async def _has_started(server: ApiServer) -> str:
    return "" if server.started else "not finished"


async def _runs_on(server: ApiServer) -> str:
    return "process is shutting down" if server.stopping else ""


async def _store_answers(server: ApiServer) -> str:
    """By a linearizable read, as users experience it."""
    try:
        await server.store.current_revision()
    except StatusError as error:
        return error.message
    return ""


async def _has_room(server: ApiServer) -> str:
    """A separate check: an unready server gets no requests, so deletes would be impossible."""
    try:
        alarms = await translated(server.store.storage.alarms())
    except StatusError as error:
        return error.message
    raised = ", ".join(f"alarm {alarm.kind} of member {alarm.member:x}" for alarm in alarms)
    return f"{raised}: {server.storage.alarm_advice}" if raised else ""


async def _in_step(server: ApiServer) -> str:
    return server.storage.trouble or ("" if server.ready else "not in step with the store")


def _text(status: int, text: str) -> Response:
    return Response(status, text.encode(), TEXT, {"X-Content-Type-Options": "nosniff"})


# --- documents ------------------------------------------------------------------------------------------------------

KUBERNETES: Final = ("1", "36")
"""The version of the API that is served: its kinds, fields and semantics."""


def _version() -> bytes:
    major, minor = KUBERNETES
    document = {
        "major": major,
        "minor": minor,
        "emulationMajor": major,
        "emulationMinor": minor,
        "minCompatibilityMajor": major,
        "minCompatibilityMinor": str(int(minor) - 1),
        "gitVersion": f"v{major}.{minor}.0+minikube-py.{__version__}",
        "gitCommit": "",
        "gitTreeState": "",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": platform.python_implementation().lower(),
        "platform": f"{platform.system().lower()}/{_ARCHITECTURES.get(platform.machine(), platform.machine())}",
    }
    return orjson.dumps(document, option=orjson.OPT_INDENT_2)


_ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64"}
_VERSION: Final = _version()


def _index(registry: Registry) -> bytes:
    return orjson.dumps({"paths": _paths(registry)}, option=orjson.OPT_INDENT_2)


def _paths(registry: Registry) -> list[str]:
    paths = {"/api", "/apis", indexes.INDEXES, indexes.EXPLAIN, "/openapi/v2", "/openapi/v3", "/version"}
    paths |= {_METRICS, _SLIS, *_OF_TOKENS, *_PAGES}
    for group, version in registry.group_versions:
        root = f"/apis/{group}" if group else "/api"
        paths |= {root, f"{root}/{version}", f"/openapi/v3{root}/{version}"}
    for kind, names in _CHECKS.items():
        paths |= {f"/{kind}", *(f"/{kind}/{name}" for name in (*names, "nospace"))}
    return sorted(paths)


async def _make_document(path: str, server: ApiServer, others: Others) -> None:
    """Once per change of the served kinds, off the event loop: piece by piece, so that others go between, and what is
    made is kept if the request ends."""
    while True:
        async with server.making_document:
            known = _openapi().documents(server.registry)
            if (of := known.lacks(path, others)) is None:
                for _ in known.joining(path, others):
                    await asyncio.sleep(0)
                return
            kinds = [kind for kind in server.registry.kinds if kind.definition]
            needed = [kind.definition for kind in kinds if (kind.group, kind.version) == of[:2]]
            made = await server.writer.work.run("open_api", tuple(dict.fromkeys(needed)), of)
            if made is None:
                return
            known.keep(of, made)


def _openapi() -> Any:
    """Loaded on first use."""
    return import_module("minikube_py.api.openapi")


def _document(path: str, request: Request, server: ApiServer, others: Others) -> Response | None:
    """None if not found. Raises: StatusError 404, 406."""
    parts = path.strip("/").split("/")
    version = ("", *parts[1:]) if parts[0] == "api" else tuple(parts[1:])
    if parts[0] in ("api", "apis") and len(version) == 2 and version not in server.registry.group_versions:
        raise path_not_found()
    if parts[0] in ("api", "apis", "version") and not _answers_any_method(path):
        check_readable(request.content_type)
    if path in ("/", "/index.html"):
        return _exact(Response(200, _index(server.registry)))
    if path == "/version":
        # go-restful checks media types only.
        accepted = [each.partition(";")[0].strip().lower() for each in request.accept.split(",")]
        negotiate(",".join(accepted))
        if "application/yaml" in accepted and not {"application/json", "*/*"}.intersection(accepted):
            message = "406: Not Acceptable\n\nAvailable representations: application/json"
            raise StatusError(406, "NotAcceptable", message, {})
        return _exact(Response(200, _VERSION))
    if path.startswith(tuple(f"{each}/" for each in _OF_TOKENS)):
        raise path_not_found()
    if path in _OF_TOKENS:
        return _of_tokens(path, request, server)
    if path.startswith("/openapi/"):
        asked_hash = request.query.get("hash", "")
        given = path, request.accept, asked_hash, request.if_none_match, server.registry
        found = _openapi().document(*given, others)
        if found is not None and path == "/openapi/v3" and server.services.elsewhere:
            paths = orjson.loads(found.body)["paths"] | server.services.elsewhere.openapi_paths()
            found = found._replace(body=orjson.dumps({"paths": dict(sorted(paths.items()))}))
    else:
        told = path, request.accept, server.address, request.if_none_match, server.registry
        found = discovery.document(*told, server.services.listed, server.services.remote)
    if found is None:
        return None
    answer = Response(found.status, found.body, found.content_type, found.headers)
    if path == "/openapi/v2":
        answer.packed_above_bytes = _PACKED_ABOVE_BYTES
    return _exact(answer) if path.startswith("/openapi/") else answer


_PACKED_ABOVE_BYTES: Final = 1_400
"""As upstream's handler for version 2."""
_OF_TOKENS: Final = {
    "/.well-known/openid-configuration": "application/json",
    "/openid/v1/jwks": "application/jwk-set+json",
}
_AN_HOUR: Final = {"Cache-Control": "public, max-age=3600"}


def _of_tokens(path: str, request: Request, server: ApiServer) -> Response:
    """How others verify service account tokens. Raises: StatusError 406."""
    made = _OF_TOKENS[path]
    accepted = {each.partition(";")[0].strip().lower() for each in request.accept.split(",")}
    if accepted.isdisjoint((made, "*/*", "")):
        raise StatusError(406, "NotAcceptable", f"406: Not Acceptable\n\nAvailable representations: {made}", {})
    key = server.accounts.key
    body = key.configuration(server.address) if path.startswith("/.") else key.keys()
    return _exact(Response(200, body, made, _AN_HOUR))


def check_readable(content_type: str) -> None:
    """Raises: StatusError 415 where go-restful would refuse, even without a body."""
    try:
        media_type(content_type)
    except StatusError:
        raise StatusError(415, "UnsupportedMediaType", "415: Unsupported Media Type", {}) from None


def _exact(response: Response) -> Response:
    response.exact = True
    return response

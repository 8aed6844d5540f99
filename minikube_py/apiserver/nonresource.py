"""Paths that name no resource: health, version, discovery, OpenAPI, the index of paths, declared indexes."""

from __future__ import annotations

import asyncio
import platform
from typing import TYPE_CHECKING, Final

import orjson

from minikube_py import __version__
from minikube_py.api import discovery, openapi
from minikube_py.api.errors import StatusError, method_not_allowed
from minikube_py.api.kind import Kind
from minikube_py.api.registry import REGISTRY
from minikube_py.apiserver import indexes
from minikube_py.apiserver.forms import negotiate
from minikube_py.apiserver.messages import TEXT, Request, Response

if TYPE_CHECKING:
    from minikube_py.apiserver.core import ApiServer

METRICS_TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"
_HEALTH: Final = ("healthz", "livez", "readyz")
_CHECKS: Final = ("ping", "log", "etcd", "watch-cache")


async def answer(request: Request, server: ApiServer) -> Response:
    """Raises: StatusError 404, 405, 406; what `indexes` raises."""
    path = "/" + "/".join(part for part in request.path.split("/") if part)
    first = path.split("/")[1]
    if path.startswith(f"{indexes.ROOT}/"):
        return await indexes.answer(path, request, server)
    if first in _HEALTH:
        return _only_get(request, await _health(path, request, server))
    return _only_get(request, _document(path, request, server) or page_not_found())


def _only_get(request: Request, response: Response) -> Response:
    if response.status != 404 and request.method not in ("GET", "HEAD"):
        raise method_not_allowed()
    return response


def page_not_found() -> Response:
    return Response(404, b"404 page not found\n", TEXT, {"X-Content-Type-Options": "nosniff"})


def deleted_status(resource: Kind, name: str, value: bytes) -> bytes:
    """What a DELETE that is done answers for most kinds."""
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


# --- health ---------------------------------------------------------------------------------------------------------


async def _health(path: str, request: Request, server: ApiServer) -> Response:
    kind, _, check = path[1:].partition("/")
    if check and check not in _CHECKS:
        return page_not_found()
    excluded = request.query.get("exclude", "").split(",")
    results = {name: await _check(name, kind, server) for name in _CHECKS if name not in excluded}
    if check:
        failed = results.get(check, "")
        return _text(500, f"internal server error: {failed}\n") if failed else _text(200, "ok")
    lines = [f"[-]{name} failed: {why}" if why else f"[+]{name} ok" for name, why in results.items()]
    if any(results.values()):
        return _text(500, "\n".join([*lines, f"{kind} check failed", ""]))
    if "verbose" in request.query:
        return _text(200, "\n".join([*lines, f"{kind} check passed", ""]))
    return _text(200, "ok")


async def _check(name: str, kind: str, server: ApiServer) -> str:
    """Why the check fails, empty where it does not."""
    if name == "etcd":
        timeout_s = server.limits.health_timeout_s
        try:
            async with asyncio.timeout(timeout_s):
                await server.store.current_revision()
        except StatusError as error:
            return error.message
        except TimeoutError:
            return f"the store gave no answer within {timeout_s:g} s"
    if name == "watch-cache" and kind == "readyz" and not server.ready:
        return "not in step with the store"
    return ""


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


def _index() -> bytes:
    paths = {"/api", "/apis", "/metrics", indexes.INDEXES, indexes.EXPLAIN, "/openapi/v2", "/openapi/v3", "/version"}
    for group, version in REGISTRY.group_versions:
        root = f"/apis/{group}" if group else "/api"
        paths |= {root, f"{root}/{version}", f"/openapi/v3{root}/{version}"}
    for kind in _HEALTH:
        paths |= {f"/{kind}", *(f"/{kind}/{check}" for check in _CHECKS)}
    return orjson.dumps({"paths": sorted(paths)}, option=orjson.OPT_INDENT_2)


def _document(path: str, request: Request, server: ApiServer) -> Response | None:
    """None where there is no such document. Raises: StatusError 404, 406."""
    if path in ("/", "/version"):
        negotiate(request.accept)
        return _exact(Response(200, _VERSION if path == "/version" else _index()))
    if path.startswith("/openapi/"):
        found = openapi.document(path, request.accept, "", request.if_none_match)
    else:
        found = discovery.document(path, request.accept, server.address, request.if_none_match)
    if found is None:
        return None
    answer = Response(found.status, found.body, found.content_type, found.headers)
    return _exact(answer) if path.startswith("/openapi/") else answer


def _exact(response: Response) -> Response:
    response.exact = True
    return response

"""Paths that name no resource: health, version, discovery, OpenAPI, the index of paths."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import orjson

from minikube_py.api.errors import StatusError, method_not_allowed
from minikube_py.api.registry import Resource
from minikube_py.apiserver.messages import TEXT, Request, Response

if TYPE_CHECKING:
    from minikube_py.apiserver.core import ApiServer

METRICS_TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"
_HEALTH: Final = ("healthz", "livez", "readyz")
_CHECKS: Final = ("ping", "log", "etcd", "watch-cache")


async def answer(request: Request, server: ApiServer) -> Response:
    """Raises: StatusError 404, 405, 406."""
    path = "/" + "/".join(part for part in request.path.split("/") if part)
    first = path.split("/")[1]
    if first in _HEALTH:
        return _only_get(request, await _health(path, request, server))
    return _only_get(request, _document(path, request) or page_not_found())


def _only_get(request: Request, response: Response) -> Response:
    if response.status != 404 and request.method not in ("GET", "HEAD"):
        raise method_not_allowed()
    return response


def page_not_found() -> Response:
    return Response(404, b"404 page not found\n", TEXT, {"X-Content-Type-Options": "nosniff"})


def deleted_status(resource: Resource, name: str, value: bytes) -> bytes:
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
        try:
            await server.store.current_revision()
        except StatusError as error:
            return error.message
    if name == "watch-cache" and kind == "readyz" and not server.ready:
        return "not in step with the store"
    return ""


def _text(status: int, text: str) -> Response:
    return Response(status, text.encode(), TEXT, {"X-Content-Type-Options": "nosniff"})


# --- documents ------------------------------------------------------------------------------------------------------


def _document(path: str, request: Request) -> Response | None:
    return None

"""`/flagz` and `/statusz`: a server's settings, and what it is. Text for people; by Accept, objects of config.k8s.io.

Source: apiserver `pkg/server/{flagz,statusz}`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, NamedTuple

import orjson

from minikube_py.api import yaml_text
from minikube_py.api.errors import Json, not_acceptable
from minikube_py.api.meta import timestamp
from minikube_py.apiserver.forms import YAML, split_accept
from minikube_py.apiserver.messages import TEXT, Request, Response, warning_headers
from minikube_py.client.transport import JSON

if TYPE_CHECKING:
    from minikube_py.apiserver.core import ApiServer

FLAGZ: Final = "/flagz"
STATUSZ: Final = "/statusz"
_GROUP: Final = "config.k8s.io"
_TEXT: Final = "text/plain"
_SERVED: Final = (JSON, YAML, _TEXT)
_NEWEST, _DEPRECATED = "v1beta1", "v1alpha1"
_NO_PATHS: Final = ("", "api", "apis", "openid", "openapi", ".well-known")
_HEAD: Final = (
    "\napiserver {}\nWarning: This endpoint is not meant to be machine parseable, has no formatting compatibility "
    "guarantees and is for debugging purposes only.\n"
)


class _Wanted(NamedTuple):
    media_type: str
    version: str = ""


def answer(path: str, request: Request, server: ApiServer, version: str, paths: Iterable[str]) -> Response:
    """`version`: the server's; `paths`: those that it lists. Raises: StatusError 406."""
    name = path[1:]
    wanted = _negotiated(request.accept, name.capitalize())
    found = _flags(server) if path == FLAGZ else _status(server, version, paths)
    if wanted.media_type == _TEXT:
        return Response(200, _text(name, found).encode(), TEXT)
    known = {"kind": name.capitalize(), "apiVersion": f"{_GROUP}/{wanted.version}", "metadata": {"name": "apiserver"}}
    body = {**known, **({"flags": found} if path == FLAGZ else found)}
    told = f"This version of the {name} endpoint is deprecated. Please use a newer version."
    headers = warning_headers((told,) if wanted.version == _DEPRECATED else ())
    made = yaml_text.write(body) if wanted.media_type == YAML else orjson.dumps(body)
    return Response(200, made, wanted.media_type, headers)


def _negotiated(accept: str, kind: str) -> _Wanted:
    """Text, or an object whose kind and version are asked for. Raises: StatusError 406."""
    if not accept.strip():
        return _Wanted(_TEXT)
    for asked, params in split_accept(accept):
        for served in _SERVED:
            if asked not in (served, f"{served.partition('/')[0]}/*", "*/*"):
                continue
            version, plain = params.get("v", ""), not {"as", "g", "v"} & params.keys()
            named = (params.get("g"), params.get("as")) == (_GROUP, kind) and version in (_NEWEST, _DEPRECATED)
            if plain if served == _TEXT else named:
                return _Wanted(served, version)
    raise not_acceptable(_SERVED)


def _flags(server: ApiServer) -> Json:
    """The limits by their names, and what else was chosen at the start."""
    found = {name: f"{value:g}" for name, value in asdict(server.limits).items()}
    gates = ",".join(f"{gate}=true" for gate in sorted(server.registry.gates))
    chosen = {"feature-gates": gates, "service-cluster-ip-range": str(server.addresses.network)}
    return dict(sorted({**found, **chosen}.items()))


def _status(server: ApiServer, version: str, paths: Iterable[str]) -> Json:
    folders = sorted({f"/{folder}" for path in paths if (folder := path.split("/")[1]) not in _NO_PATHS})
    return {
        "startTime": timestamp(server.started_s),
        "uptimeSeconds": max(0, int(server.clock.wall_s() - server.started_s)),
        "goVersion": "",
        "binaryVersion": version,
        "emulationVersion": ".".join(version.split(".")[:2]),
        "paths": folders,
    }


def _text(name: str, found: Mapping[str, object]) -> str:
    head = _HEAD.format(name)
    if name == FLAGZ[1:]:
        return head + "".join(f"{flag}={value}\n" for flag, value in found.items())
    started = datetime.fromisoformat(str(found["startTime"]).replace("Z", "+00:00")).astimezone(UTC)
    up_s = int(str(found["uptimeSeconds"]))
    lines = {
        "Started": started.strftime("%a %b %e %H:%M:%S UTC %Y"),
        "Up": f"{up_s // 3600} hr {up_s // 60 % 60:02} min {up_s % 60:02} sec",
        "Go version": found["goVersion"],
        "Binary version": found["binaryVersion"],
        "Emulation version": found["emulationVersion"],
        "Paths": " ".join(map(str, found["paths"])),  # type: ignore[call-overload]
    }
    return head + "\n" + "".join(f"{label}: {value}\n" for label, value in lines.items())

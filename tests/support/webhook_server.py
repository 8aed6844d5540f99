"""A webhook over HTTPS: the path determines its answer, and requests are recorded by path."""

from __future__ import annotations

import base64
import contextlib
import json
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from minikube_py.control_plane.certificates import ensure_certificates

Json = dict[str, Any]
Said = tuple[int, str, bytes]
"""Status, Content-Type and body."""
JSON = "application/json"
ANSWERS: dict[str, Callable[[Json], Said]] = {}


def review(asked: Json, allowed: bool = True, version: str = "", **more: Any) -> Said:
    response = {"uid": asked["request"]["uid"], "allowed": allowed, **more}
    said = {"kind": "AdmissionReview", "apiVersion": version or asked["apiVersion"], "response": response}
    return 200, JSON, json.dumps(said).encode()


def patch(asked: Json, operations: Any, kind: str | None = "JSONPatch", **more: Any) -> Said:
    text = operations if isinstance(operations, bytes) else json.dumps(operations).encode()
    typed = {"patchType": kind} if kind is not None else {}
    return review(asked, patch=base64.b64encode(text).decode(), **typed, **more)


def raw(body: bytes, status: int = 200, media: str = JSON) -> Callable[[Json], Said]:
    return lambda asked: (status, media, body)


def label(asked: Json, key: str, value: str) -> Json:
    labels = asked["request"]["object"]["metadata"].get("labels") or {}
    return {"op": "add", "path": "/metadata/labels", "value": {**labels, key: value}}


ANSWERS |= {
    "allow": review,
    "deny": lambda asked: review(asked, False),
    "deny-why": lambda asked: review(asked, False, status={"message": "because", "code": 403, "reason": "Forbidden"}),
    "deny-200": lambda asked: review(asked, False, status={"status": "Success", "message": "no & <never>", "code": 200}),
    "deny-reason": lambda asked: review(asked, False, status={"reason": "Expired", "code": 418}),
    "deny-details": lambda asked: review(
        asked, False,
        status={"message": "m", "code": 422, "details": {"name": "n", "causes": [{"field": "f", "message": "wrong"}]}},
    ),
    "deny-warns": lambda asked: review(asked, False, warnings=["one", "two", "one", ""]),
    "warns": lambda asked: review(asked, warnings=["one", 'two "quoted"', "three"], auditAnnotations={"a": "b"}),
    "old": lambda asked: review(asked, version="admission.k8s.io/v1beta1"),
    "odd-kind": lambda asked: (200, JSON, review(asked)[2].replace(b"AdmissionReview", b"Review")),
    "no-kind": lambda asked: (200, JSON, json.dumps({"response": {"uid": asked["request"]["uid"], "allowed": True}}).encode()),
    "other-uid": lambda asked: review(asked, uid="x"),
    "no-response": lambda asked: (200, JSON, json.dumps({"kind": asked["kind"], "apiVersion": asked["apiVersion"]}).encode()),
    "bad-type": lambda asked: review(asked, "yes"),  # type: ignore[arg-type]
    "bad-json": raw(b"nonsense"),
    "half-json": raw(b'{"kind": "Adm'),
    "list": raw(b"[]"),
    "empty": raw(b""),
    "text": lambda asked: (200, "text/plain", review(asked)[2]),
    **{f"http-{code}": raw(b"gone <wrong>", code, "text/plain") for code in (400, 401, 403, 404, 405, 409, 418, 422, 500, 502)},
    "http-500-json": raw(b'{"a":1}', 500),
    "label": lambda asked: patch(asked, [label(asked, "patched", "yes")]),
    "label-again": lambda asked: patch(asked, [label(asked, "again", "yes")]),
    "count": lambda asked: patch(asked, [label(asked, "count", str(1 + int((asked["request"]["object"]["metadata"].get("labels") or {}).get("count", 0))))]),
    "unknown-field": lambda asked: patch(asked, [{"op": "add", "path": "/nobodyKnows", "value": 1}]),
    "bad-field": lambda asked: patch(asked, [{"op": "add", "path": "/data", "value": {"a": 1}}]),
    "invalid": lambda asked: patch(asked, [label(asked, "-", "-")]),
    "empty-patch": lambda asked: patch(asked, []),
    "no-patch-type": lambda asked: patch(asked, [], None),
    "only-patch-type": lambda asked: review(asked, patchType="JSONPatch"),
    "odd-patch-type": lambda asked: patch(asked, [label(asked, "a", "b")], "Merge"),
    "blank-patch-type": lambda asked: patch(asked, [label(asked, "a", "b")], ""),
    "patch-text": lambda asked: patch(asked, b"nonsense"),
    "patch-object": lambda asked: patch(asked, {"op": "add"}),
    "patch-misses": lambda asked: patch(asked, [{"op": "remove", "path": "/data/nowhere"}]),
    "patch-tests": lambda asked: patch(asked, [{"op": "test", "path": "/metadata/name", "value": "other"}]),
    "patch-odd": lambda asked: patch(asked, [{"op": "odd", "path": "/data"}]),
    "rename": lambda asked: patch(asked, [{"op": "replace", "path": "/metadata/name", "value": "renamed"}]),
    "names": lambda asked: patch(asked, [{"op": "add", "path": "/metadata/name", "value": "named-by-hook"}]),
    "move": lambda asked: patch(asked, [{"op": "add", "path": "/metadata/namespace", "value": "default"}]),
    "image": lambda asked: patch(asked, [{"op": "replace", "path": "/spec/containers/0/image", "value": "other"}]),
    "priority": lambda asked: patch(asked, [{"op": "add", "path": "/spec/tolerations", "value": []}]),
    "version-1": lambda asked: patch(asked, [{"op": "add", "path": "/metadata/resourceVersion", "value": "1"}]),
    "no-version": lambda asked: patch(asked, [{"op": "add", "path": "/metadata/resourceVersion", "value": ""}]),
    "replicas": lambda asked: patch(asked, [{"op": "add", "path": "/spec/replicas", "value": 3}]),
}  # fmt: skip


def conversion(asked: Json, objects: list[Json] | None = None, **more: Any) -> Said:
    request = asked["request"]
    made = objects if objects is not None else [moved(each, request["desiredAPIVersion"]) for each in request["objects"]]
    response = {"uid": request["uid"], "result": {"status": "Success"}, "convertedObjects": made, **more}
    return 200, JSON, json.dumps({"kind": asked["kind"], "apiVersion": asked["apiVersion"], "response": response}).encode()


def moved(obj: Json, version: str, **metadata: Any) -> Json:
    """The object in another version: `spec.size` of v1 is `spec.dimensions.width` in v2, the rest is the same."""
    made = json.loads(json.dumps(obj))
    spec = made.get("spec") or {}
    if version.endswith("/v1") and "dimensions" in spec:
        spec["size"] = spec.pop("dimensions").get("width", 0)
    elif version.endswith("/v2") and "size" in spec:
        spec["dimensions"] = {"width": spec.pop("size")}
    return {**made, "apiVersion": version, "metadata": {**made.get("metadata", {}), **metadata}}


def converting(**metadata: Any) -> Callable[[Json], Said]:
    return lambda asked: conversion(asked, [moved(each, asked["request"]["desiredAPIVersion"], **metadata) for each in asked["request"]["objects"]])


def _each(change: Callable[[Json], Any]) -> Callable[[Json], Said]:
    return lambda asked: conversion(asked, [change(moved(each, asked["request"]["desiredAPIVersion"])) for each in asked["request"]["objects"]])


CONVERSIONS: dict[str, Callable[[Json], Said]] = {
    "c-moves": conversion,
    "c-why": lambda asked: conversion(asked, result={"status": "Failure", "message": "no & <never>"}),
    "c-no-why": lambda asked: conversion(asked, result={"status": "Failed"}),
    "c-no-result": lambda asked: conversion(asked, result={}),
    "c-other-uid": lambda asked: conversion(asked, uid="x"),
    "c-fewer": lambda asked: conversion(asked, []),
    "c-more": lambda asked: conversion(asked, asked["request"]["objects"] * 2),
    "c-same": lambda asked: conversion(asked, asked["request"]["objects"]),
    "c-no-kind": _each(lambda obj: {name: obj[name] for name in obj if name != "kind"}),
    "c-other-kind": _each(lambda obj: {**obj, "kind": "Other"}),
    "c-renamed": converting(name="other"),
    "c-elsewhere": converting(namespace="other"),
    "c-other-object": converting(uid="1-2-3"),
    "c-no-metadata": _each(lambda obj: {name: obj[name] for name in obj if name != "metadata"}),
    "c-labels": converting(labels={"made": "yes"}, annotations={"a/b": "c"}, creationTimestamp="2001-01-01T00:00:00Z", generation=7),
    "c-odd-labels": converting(labels=["a"]),
    "c-number-labels": converting(labels={"a": 1}),
    "c-bad-labels": converting(labels={"a b": "c d"}),
    "c-bad-annotations": converting(annotations={"a b": "c d"}),
    "c-junk": _each(lambda obj: {**obj, "junk": 1, "spec": {**obj.get("spec", {}), "junk": [1]}}),
    "c-floats": _each(lambda obj: {**obj, "spec": {**obj.get("spec", {}), "name": None}}),
    "c-no-response": lambda asked: (200, JSON, json.dumps({"kind": asked["kind"], "apiVersion": asked["apiVersion"]}).encode()),
    "c-odd-kind": lambda asked: (200, JSON, conversion(asked)[2].replace(b"ConversionReview", b"Review")),
    "c-no-type": lambda asked: (200, JSON, json.dumps({"response": {"uid": asked["request"]["uid"], "result": {"status": "Success"}, "convertedObjects": []}}).encode()),
    "c-old": lambda asked: (200, JSON, conversion(asked)[2].replace(b"apiextensions.k8s.io/v1", b"apiextensions.k8s.io/v1beta1")),
    "c-null": lambda asked: conversion(asked, [None] * len(asked["request"]["objects"])),  # type: ignore[list-item]
    "c-bad-json": raw(b"nonsense"),
    "c-http-500": raw(b"gone <wrong>", 500, "text/plain"),
    "c-http-404": raw(b"gone <wrong>", 404, "text/plain"),
    "c-empty": raw(b""),
    "c-status": raw(b'{"kind":"Status","apiVersion":"v1","status":"Failure","message":"my message","code":403}', 403),
    "c-moved": raw(b"", 307),
    "c-around": raw(b"", 307),
    "c-busy": raw(b"wait", 503, "text/plain"),
    "c-deny-later": lambda asked: review(asked, False, status={"code": 429, "details": {"retryAfterSeconds": 5}}),
    "c-no-namespace": lambda asked: patch(asked, [{"op": "remove", "path": "/metadata/namespace"}]),
}  # fmt: skip
ANSWERS |= CONVERSIONS


HEADERS = {
    "c-moved": {"Location": "allow"}, "c-around": {"Location": "c-around"},
    "c-busy": {"Retry-After": "0"},
}  # fmt: skip


class WebhookServer:
    """`https://127.0.0.1:PORT/SIDE/ANSWER/...`; `bundle` is the authority in base64. `sent` is by side and the rest."""

    def __init__(self, folder: Path) -> None:
        certificates = ensure_certificates(folder)
        self.bundle = base64.b64encode(certificates.authority_pem).decode()
        self.sent: dict[str, dict[str, list[Json]]] = defaultdict(lambda: defaultdict(list))
        self.ended = threading.Event()
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                _, side, *rest = self.path.partition("?")[0].split("/")
                server.sent[side]["/".join(rest)].append(asked)
                if rest[0] == "hang":
                    server.ended.wait()
                if rest[0] == "c-gone":
                    self.close_connection = True
                    return
                status, media, body = ANSWERS.get(rest[0], review)(asked)
                with contextlib.suppress(OSError):
                    self.send_response(status)
                    self.send_header("Content-Type", media)
                    for name, value in HEADERS.get(rest[0], {}).items():
                        self.send_header(name, value)
                    self.send_header("Content-Length", str(len(body)))
                    self.end_headers()
                    self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        # Clients that do not trust the certificate end the handshake.
        self._http.handle_error = lambda *_: None  # type: ignore[method-assign]
        self._http.socket = certificates.server_context().wrap_socket(self._http.socket, server_side=True, do_handshake_on_connect=False)
        self.port = self._http.server_address[1]
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        self.ended.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[WebhookServer]:
    server = WebhookServer(folder)
    try:
        yield server
    finally:
        server.close()

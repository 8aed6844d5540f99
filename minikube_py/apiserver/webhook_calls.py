"""One call of a webhook: an AdmissionReview out, its answer back and verified, failures in upstream's words.

Source: apiserver `pkg/util/webhook/client.go`, `pkg/admission/plugin/webhook/request`; client-go `rest/request.go`.
"""

from __future__ import annotations

import base64
import posixpath
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

import orjson

from minikube_py.api import json_text, yaml_text
from minikube_py.api.decode import decode_value, target
from minikube_py.api.errors import Json, StatusError, go_quote, service_unavailable
from minikube_py.api.kinds.core import SERVICES
from minikube_py.api.kinds.discovery import ENDPOINTSLICES
from minikube_py.api.typed import DecodeError
from minikube_py.api.values import json_type
from minikube_py.apiserver.outgoing import Answer, BadAuthority, NoAnswer, Outgoing
from minikube_py.apiserver.watch_cache import WatchCache

GROUP: Final = "admission.k8s.io"
_KIND: Final = "AdmissionReview"
_V1: Final = f"{GROUP}/v1"
_TYPE_META: Final = (
    'struct { APIVersion string "json:\\"apiVersion,omitempty\\""; Kind string "json:\\"kind,omitempty\\"" }'
)
_FAILED: Final = "failed to call webhook: "
_INVALID: Final = "received invalid webhook response: "
_ROUTED: Final = ("ClusterIP", "LoadBalancer", "NodePort")
_STATUS_TEXTS: Final = {
    400: "the server rejected our request for an unknown reason",
    401: "the server has asked for the client to provide credentials",
    404: "the server could not find the requested resource",
    405: "the server does not allow this method on the requested resource",
    406: "the server was unable to respond with a content type that the client supports",
    409: "the server reported a conflict",
    415: "the server was unable to respond with a content type that the client supports",
    422: "the server rejected our request due to an error in our request",
    429: "the server has received too many requests and has asked us to try again later",
    503: "the server is currently unable to handle the request",
    504: "the server was unable to return a response in the time allotted, but may still be processing the request",
}


class CallFailed(Exception):
    """The webhook could not be asked, or its answer is none."""


class Review(NamedTuple):
    allowed: bool
    status: Json | None
    warnings: list[str]
    patch: bytes
    patch_type: str


class Caller:
    def __init__(self, outgoing: Outgoing, cache: WatchCache) -> None:
        self.outgoing = outgoing
        self._cache = cache

    async def ask(self, hook: Json, request: Json, mutating: bool) -> Review:
        """Raises: CallFailed."""
        known = [version for version in hook.get("admissionReviewVersions") or () if version in ("v1", "v1beta1")]
        if not known:
            why = "webhook does not accept known AdmissionReview versions (v1, v1beta1)"
            raise CallFailed(f"could not create admission objects: {why}")
        body = {"kind": _KIND, "apiVersion": f"{GROUP}/{known[0]}", "request": request}
        timeout_s = hook.get("timeoutSeconds") or 10
        answer = await self._post(hook.get("clientConfig") or {}, orjson.dumps(body), timeout_s)
        review = _decoded(answer, known[0])
        return _verified(review, request["uid"], mutating, known[0])

    async def _post(self, client: Json, body: bytes, timeout_s: int) -> Answer:
        service = client.get("service")
        if service is not None:
            host = f"{service.get('name')}.{service.get('namespace')}.svc:{service.get('port') or 443}"
            path = service.get("path") or ""
        else:
            split = urlsplit(client.get("url") or "")
            host, path = split.netloc, split.path
        url = f"https://{host}{posixpath.normpath('/' + path.lstrip('/'))}?timeout={timeout_s}s"
        try:
            via = self._endpoint(service) if service is not None else ""
            return await self.outgoing.post(url, client.get("caBundle") or "", body, timeout_s, via)
        except BadAuthority as error:
            raise CallFailed(f"could not get REST client: {error}") from None
        except (NoAnswer, StatusError) as error:
            told = error.message if isinstance(error, StatusError) else error
            raise CallFailed(f"{_FAILED}Post {go_quote(url)}: {told}") from error

    def _endpoint(self, service: Json) -> str:
        """An address behind the service: nothing carries packets to a service's own address, so it is resolved as
        upstream does with --enable-aggregator-routing. Raises: StatusError, NoAnswer."""
        namespace, name = service.get("namespace") or "", service.get("name") or ""
        port = service.get("port") or 443
        entry = self._cache.of(SERVICES).entries.get(SERVICES.key(namespace, name))
        if entry is None:
            raise NoAnswer(f"service {go_quote(name)} not found")
        spec = entry.decode()["spec"]
        if spec.get("type") not in _ROUTED:
            raise NoAnswer(f"unsupported service type {go_quote(spec.get('type') or '')}")
        named = next((each.get("name") or "" for each in spec.get("ports") or () if each.get("port") == port), None)
        if named is None:
            raise service_unavailable(f"no service port {port} found for service {go_quote(name)}")
        slices = self._cache.of(ENDPOINTSLICES)
        for found in slices.iterate(ENDPOINTSLICES.collection_prefix(namespace), None):
            each = found.decode()
            if (each["metadata"].get("labels") or {}).get("kubernetes.io/service-name") != name:
                continue
            ports = [p["port"] for p in each.get("ports") or () if (p.get("name") or "") == named and p.get("port")]
            for endpoint in each.get("endpoints") or () if ports else ():
                if (endpoint.get("conditions") or {}).get("ready") in (None, True):
                    address = endpoint["addresses"][0]
                    return f"[{address}]:{ports[0]}" if ":" in address else f"{address}:{ports[0]}"
        raise service_unavailable(f"no endpoints available for service {go_quote(name)}")


def _decoded(answer: Answer, version: str) -> Json:
    """Raises: CallFailed."""
    if not 200 <= answer.status <= 206:
        raise CallFailed(_FAILED + _http_error(answer))
    if not answer.body:
        media = answer.headers.get("Content-Type", "")
        raise CallFailed(f"{_FAILED}0-length response with status code: {answer.status} and content type: {media}")
    try:
        found: Any = _read(answer.body)
    except json_text.Syntax as error:
        raise CallFailed(f"{_FAILED}couldn't get version/kind; json parse error: {error}") from None
    except yaml_text.YamlError as error:
        raise CallFailed(f"{_FAILED}error converting YAML to JSON: {error}") from None
    if not isinstance(found, dict):
        why = f"json: cannot unmarshal {json_type(found)} into Go value of type {_TYPE_META}"
        raise CallFailed(f"{_FAILED}couldn't get version/kind; json parse error: {why}")
    given, kind = found.get("apiVersion") or f"{GROUP}/{version}", found.get("kind") or _KIND
    if kind != _KIND or given not in (f"{GROUP}/v1", f"{GROUP}/v1beta1"):
        scheme = 'in scheme "pkg/runtime/scheme.go:111"'
        raise CallFailed(f"{_FAILED}no kind {go_quote(kind)} is registered for version {go_quote(given)} {scheme}")
    if given != f"{GROUP}/{version}":
        other = given.rpartition("/")[2]
        raise CallFailed(f"{_FAILED}converting ({other}.{_KIND}) to ({version}.{_KIND}): unknown conversion")
    said = {name: found.get(name) or "" for name in ("kind", "apiVersion")}
    try:
        return {**decode_value(target(GROUP, version, _KIND), found, False)[0], **said}
    except DecodeError as error:
        raise CallFailed(f"{_FAILED}{error}") from None


def _read(body: bytes) -> Any:
    """What does not begin as an object in JSON is read as YAML. Raises: Syntax, YamlError."""
    if body.lstrip(b" \t\r\n").startswith(b"{"):
        return json_text.plain(json_text.read(body))
    return yaml_text.read(body)[0]


def _http_error(answer: Answer) -> str:
    text = "unknown"
    if answer.headers.get("Content-Type", "").startswith("text/"):
        text = answer.body.decode(errors="replace").strip()
    if answer.status == 403:
        return text
    if answer.status in _STATUS_TEXTS:
        return _STATUS_TEXTS[answer.status]
    if answer.status >= 500:
        return f"an error on the server ({go_quote(text)}) has prevented the request from succeeding"
    return f"the server responded with the status code {answer.status} but did not return more information"


def _verified(review: Json, uid: str, mutating: bool, version: str) -> Review:
    """Raises: CallFailed."""
    response = review.get("response")
    if response is None:
        raise CallFailed(f"{_INVALID}webhook response was absent")
    patch, patch_type = base64.b64decode(response.get("patch") or ""), response.get("patchType")
    if version == "v1":
        why = _wrong(review, response, uid) or _wrong_patch(patch, patch_type, mutating)
        if why:
            raise CallFailed(_INVALID + why)
    elif patch:
        patch_type = "JSONPatch"
    return Review(
        bool(response.get("allowed")), response.get("status"), response.get("warnings") or [],
        patch if mutating else b"", patch_type or "",
    )  # fmt: skip


def _wrong(review: Json, response: Json, uid: str) -> str:
    found = response.get("uid") or ""
    if found != uid:
        return f"expected response.uid={go_quote(uid)}, got {go_quote(found)}"
    said = review.get("apiVersion") or "", review.get("kind") or ""
    if said != (_V1, _KIND):
        return f"expected webhook response of {_V1}, Kind={_KIND}, got {said[0] or '/'}, Kind={said[1]}"
    return ""


def _wrong_patch(patch: bytes, patch_type: str | None, mutating: bool) -> str:
    if not mutating:
        if patch:
            return "validating webhook may not return response.patch"
        return "validating webhook may not return response.patchType" if patch_type is not None else ""
    if patch and patch_type is None:
        return "webhook returned response.patch but not response.patchType"
    if not patch and patch_type is not None:
        return "webhook returned response.patchType but not response.patch"
    return f"webhook returned invalid response.patchType of {go_quote('')}" if patch_type == "" else ""

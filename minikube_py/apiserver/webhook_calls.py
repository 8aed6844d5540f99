"""One call of a webhook: sends an AdmissionReview, returns the response; errors in upstream's words.

Source: apiserver `pkg/util/webhook/client.go`, `pkg/admission/plugin/webhook/request`.
"""

from __future__ import annotations

import asyncio
import posixpath
from typing import Final
from urllib.parse import urlsplit

import orjson

from minikube_py.api.decode import JSON
from minikube_py.api.errors import Json, StatusError, go_quote, service_unavailable
from minikube_py.api.kinds.core import SERVICES
from minikube_py.api.kinds.discovery import ENDPOINTSLICES
from minikube_py.api.registry import REGISTRY
from minikube_py.apiserver.forms import YAML
from minikube_py.apiserver.outgoing import Answer, BadAuthority, BrokenBody, NoAnswer, Outgoing
from minikube_py.apiserver.watch_cache import WatchCache
from minikube_py.apiserver.webhook_answers import FAILED, GROUP, KIND, Review, looks_like_json, reviewed
from minikube_py.apiserver.work import Work, is_large

_ROUTED: Final = ("ClusterIP", "LoadBalancer", "NodePort")


class CallFailed(Exception):
    """The call failed, or the response is invalid."""


class Caller:
    def __init__(self, outgoing: Outgoing, cache: WatchCache) -> None:
        self.outgoing = outgoing
        self._cache = cache
        self._found_at = (-1, -1)
        self._found: dict[tuple[str, str, int], list[str]] = {}

    async def ask(self, hook: Json, request: Json, mutating: bool, work: Work) -> Review:
        """`work` decodes a large response. Raises: CallFailed."""
        known = [version for version in hook.get("admissionReviewVersions") or () if version in ("v1", "v1beta1")]
        if not known:
            why = "webhook does not accept known AdmissionReview versions (v1, v1beta1)"
            raise CallFailed(f"could not create admission objects: {why}")
        body = {"kind": KIND, "apiVersion": f"{GROUP}/{known[0]}", "request": request}
        timeout_s = hook.get("timeoutSeconds") or 10
        await asyncio.sleep(0)
        text = orjson.dumps(body)
        await asyncio.sleep(0)
        answer = await self.post(hook.get("clientConfig") or {}, text, timeout_s)
        media = answer.headers.get("Content-Type", "")
        given = (answer.status, media, answer.body, known[0], request["uid"], mutating)
        large = is_large(answer.body, JSON if looks_like_json(answer.body) else YAML)
        found: Review | str = await work.run("reviewed", *given) if large else reviewed(REGISTRY, *given)
        if isinstance(found, str):
            raise CallFailed(found)
        return found

    async def post(self, client: Json, body: bytes, timeout_s: int) -> Answer:
        """`client`: a clientConfig. Raises: CallFailed."""
        service = client.get("service")
        if service is not None:
            host = f"{service.get('name')}.{service.get('namespace')}.svc:{service.get('port') or 443}"
            path = service.get("path") or ""
        else:
            try:
                split = urlsplit(client.get("url") or "")
            except ValueError as error:
                raise CallFailed(f"could not get REST client: {error}") from None
            host, path = split.netloc, split.path
        url = f"https://{host}{posixpath.normpath('/' + path.lstrip('/'))}?timeout={timeout_s}s"
        try:
            via = self.addresses(service)[0] if service is not None else ""
            return await self.outgoing.post(url, client.get("caBundle") or "", body, timeout_s, via)
        except BadAuthority as error:
            raise CallFailed(f"could not get REST client: {error}") from None
        except BrokenBody as error:
            raise CallFailed(f"{FAILED}{error}") from error
        except (NoAnswer, StatusError) as error:
            told = error.message if isinstance(error, StatusError) else error
            url = getattr(error, "url", "") or url
            raise CallFailed(f"{FAILED}Post {go_quote(url)}: {told}") from error

    def addresses(self, service: Json) -> list[str]:
        """Of the service's endpoints, at least one: cluster IPs are not routed, so it is resolved as upstream does with
        --enable-aggregator-routing; an external name, as upstream does without. Read again once any service or
        EndpointSlice has changed. Raises: StatusError, NoAnswer."""
        of = self._cache.of
        now = of(SERVICES).last_change, of(ENDPOINTSLICES).last_change
        if self._found_at != now:
            self._found_at, self._found = now, {}
        asked = service.get("namespace") or "", service.get("name") or "", service.get("port") or 443
        if asked not in self._found:
            self._found[asked] = self._addresses(*asked)
        return self._found[asked]

    def _addresses(self, namespace: str, name: str, port: int) -> list[str]:
        entry = self._cache.of(SERVICES).entries.get(SERVICES.key(namespace, name))
        if entry is None:
            raise NoAnswer(f"service {go_quote(name)} not found")
        spec = entry.decode()["spec"]
        if spec.get("type") == "ExternalName":
            return [f"{spec['externalName']}:{port}"]
        if spec.get("type") not in _ROUTED:
            raise NoAnswer(f"unsupported service type {go_quote(spec.get('type') or '')}")
        named = next((each.get("name") or "" for each in spec.get("ports") or () if each.get("port") == port), None)
        if named is None:
            raise service_unavailable(f"no service port {port} found for service {go_quote(name)}")
        slices, addresses = self._cache.of(ENDPOINTSLICES), []
        for found in slices.iterate(ENDPOINTSLICES.collection_prefix(namespace), None):
            if found.labels.get("kubernetes.io/service-name") != name:
                continue
            each = found.decode()
            ports = [p["port"] for p in each.get("ports") or () if (p.get("name") or "") == named and p.get("port")]
            for endpoint in each.get("endpoints") or () if ports else ():
                if (endpoint.get("conditions") or {}).get("ready") in (None, True):
                    address = endpoint["addresses"][0]
                    addresses.append(f"[{address}]:{ports[0]}" if ":" in address else f"{address}:{ports[0]}")
        if not addresses:
            raise service_unavailable(f"no endpoints available for service {go_quote(name)}")
        return addresses

"""One group and version of another API server: whether it is available, and what discovery tells of it.

Answers are bounded in time and size, and come from one task per APIService. Few of them check at a time; one that hangs
or never ends does so beside those.

Source: kube-aggregator `pkg/controllers/status/remote`, `pkg/apiserver/handler_discovery.go`,
`pkg/controllers/{openapi,openapiv3}/aggregator`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

import orjson

from minikube_py.api.discovery import AGGREGATED, Remote
from minikube_py.api.document import etag_of, object_of, objects, parse_accept, read_object, text, texts
from minikube_py.api.errors import Json, StatusError, go_quote
from minikube_py.api.kinds.apiregistration import is_local, with_condition
from minikube_py.api.kinds.core import SERVICES
from minikube_py.api.kinds.discovery import ENDPOINTSLICES
from minikube_py.api.meta import timestamp
from minikube_py.api.openapi_merging import FOREIGN_BYTES_MAX, Foreign
from minikube_py.apiserver.api_services import Known
from minikube_py.apiserver.forwarding import Asked, Opened, Target
from minikube_py.apiserver.outgoing import DEADLINE, BadAuthority, NoAnswer
from minikube_py.apiserver.registration import change
from minikube_py.apiserver.rules import MASTERS
from minikube_py.errors import MinikubeError

if TYPE_CHECKING:
    from minikube_py.apiserver.aggregation import Aggregation

log = logging.getLogger(__name__)
DOCUMENT_BYTES_MAX: Final = 1 << 20
"""Of a discovery document of another server, of what is kept of it, and of its index of OpenAPI documents."""
RESOURCES_MAX: Final = 4096
"""That a discovery document may tell of, subresources included in its older form."""
SUBRESOURCES_MAX: Final = 256
"""Of a resource in the aggregated form."""
_URL_CHARS_MAX: Final = 4096
_SLICE: Final = 64
"""Resources that are read in one turn of the loop."""
_ANSWER_S: Final = 5.0
_ATTEMPTS: Final = 5
_RESYNC_S: Final = 30.0
_REFRESH_S: Final = 60.0
_BACKOFF_S: Final = 0.1
_APART_S: Final = 0.1
_SLOW_S: Final = 0.25
"""A check that takes longer lets another one begin."""
_ASKER: Final = (("X-Remote-User", "system:kube-aggregator"),)
_AGGREGATOR: Final = (("X-Remote-User", "system:aggregator"),)
_MASTER: Final = (*_ASKER, ("X-Remote-Group", MASTERS))
_ACCEPTED: Final = ",".join(
    f"application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList" for version in AGGREGATED
)
Told = tuple[str, str, str]
"""Status, reason and message of `Available`."""


class RemoteService:
    """`run` until the APIService is gone."""

    def __init__(self, at: Aggregation, known: Known) -> None:
        self._at = at
        self._known = known
        self._wake = asyncio.Event()
        self._signature: object = None
        self._told_of = ""
        """The address that the last message names."""
        self._refreshed_s: float | None = None
        spec = known.service["spec"]
        self.group: str = spec.get("group") or ""
        self.version: str = spec["version"]
        self.openapi: Json = {}
        """Of the index of version 3, by path."""
        self.swagger: Foreign | None = None
        """What its document of version 2 adds; as it was last told."""
        self._tag = ""
        self.discovered = Remote(self.group, self.version, self._priorities, freshness="Stale")

    @property
    def name(self) -> str:
        return f"{self.version}.{self.group}"

    @property
    def _spec(self) -> Json:
        spec: Json = self._known.service["spec"]
        return spec

    @property
    def _priorities(self) -> tuple[int, int]:
        return self._spec["groupPriorityMinimum"], self._spec["versionPriority"]

    @property
    def available(self) -> bool:
        conditions = (self._known.service.get("status") or {}).get("conditions") or ()
        return any(each.get("type") == "Available" and each.get("status") == "True" for each in conditions)

    def take(self, known: Known) -> None:
        """The APIService has changed."""
        before, self._known = self._known, known
        if before.service["spec"] != known.service["spec"]:
            self._refreshed_s = None
            self.discovered = self.discovered._replace(priorities=self._priorities)
        elif before.service["metadata"]["uid"] == known.service["metadata"]["uid"]:
            # Its status, which this task wrote, or that of another server, which may see it otherwise.
            return
        self._wake.set()

    def look(self) -> None:
        """Services or their endpoints have changed; or a check begins, and what it sees is no reason for another."""
        try:
            signature: object = self._missing(), self._addresses()
        except Exception as error:
            log.exception("the service of the APIService %s", self.name)
            signature = repr(error)
        if signature != self._signature:
            self._signature = signature
            self._wake.set()

    def _addresses(self) -> list[str]:
        with suppress(StatusError, NoAnswer):
            return self._at.server.webhook_caller.addresses(self._spec["service"])
        return []

    def address(self) -> str:
        """One of the service's endpoints. Raises: StatusError, NoAnswer."""
        addresses = self._at.server.webhook_caller.addresses(self._spec["service"])
        return addresses[self._at.server.rng.randrange(len(addresses))] if len(addresses) > 1 else addresses[0]

    def target(self, address: str) -> Target:
        service = self._spec["service"]
        name = f"{service['name']}.{service['namespace']}.svc"
        return Target(
            address, name, self._spec.get("caBundle") or "", bool(self._spec.get("insecureSkipTLSVerify"))
        )

    # --- what is asked again and again ------------------------------------------------------------------------------

    async def run(self) -> None:
        failures = 0
        while True:
            failed = True
            try:
                async with _slot(self._at.checks):
                    self.look()
                    self._wake.clear()
                    failed = await self._round()
            except MinikubeError as error:
                log.warning("the APIService %s: %s", self.name, error)
            except Exception:
                log.exception("the APIService %s", self.name)
            failures = failures + 1 if failed else 0
            wait_s = min(_RESYNC_S, _BACKOFF_S * 2 ** min(failures, 16)) if failed else _RESYNC_S
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._wake.wait()
            await self._at.server.clock.sleep(_APART_S)

    async def _round(self) -> bool:
        """Whether something failed that may be better soon."""
        failed, spec = False, self._spec
        try:
            told = self._missing() or await self._reached()
        except BadAuthority as error:
            log.warning("the APIService %s: %s", self.name, error)
            failed, told = True, None
        if told is not None:
            await self._tell(told)
            failed = told[1] == "FailedDiscoveryCheck"
        now_s = self._at.server.clock.monotonic_s()
        if failed or (told is not None and told[0] != "True"):
            self._publish(self.discovered._replace(freshness="Stale"))
            self._refreshed_s = None
        elif self._refreshed_s is None or now_s - self._refreshed_s >= _REFRESH_S:
            failed = not await self._refresh()
            self._refreshed_s = None if failed or self._spec != spec else now_s
        return failed

    async def _tell(self, told: Told) -> None:
        server = self._at.server

        def make(service: Json) -> Json:
            return service if is_local(service) else with_condition(service, *told, timestamp(server.clock.wall_s()))

        if make(self._known.service) is self._known.service:
            return
        try:
            await change(server, self.name, "status", make)
        except StatusError as error:
            if error.code != 404:
                raise

    # --- availability -----------------------------------------------------------------------------------------------

    def _missing(self) -> Told | None:
        """Why it need not even be asked."""
        reference, cache = self._spec["service"], self._at.server.cache
        namespace, name, port = reference["namespace"], reference["name"], reference.get("port") or 443
        where = f"service/{name} in {go_quote(namespace)}"
        entry = cache.of(SERVICES).entries.get(SERVICES.key(namespace, name))
        if entry is None:
            return "False", "ServiceNotFound", f"{where} is not present"
        spec = entry.decode()["spec"]
        if spec.get("type") != "ClusterIP":
            return None
        named = next((each.get("name") or "" for each in spec.get("ports") or () if each.get("port") == port), None)
        if named is None:
            return "False", "ServicePortError", f"{where} is not listening on port {port}"
        entries = cache.of(ENDPOINTSLICES).iterate(ENDPOINTSLICES.collection_prefix(namespace), None)
        slices = [each.decode() for each in entries if each.labels.get("kubernetes.io/service-name") == name]
        if not slices:
            return "False", "EndpointsNotFound", f"cannot find endpointslices for {where}"
        if not any(_has_endpoint(each, named) for each in slices):
            why = f"endpointslices for {where} have no addresses with port name {go_quote(named)}"
            return "False", "MissingEndpoints", why
        return None

    async def _reached(self) -> Told:
        """Raises: BadAuthority."""
        try:
            addresses = list(dict.fromkeys(self._at.server.webhook_caller.addresses(self._spec["service"])))
        except (StatusError, NoAnswer) as error:
            return "False", "FailedDiscoveryCheck", str(error)
        start = self._at.server.rng.randrange(len(addresses)) if len(addresses) > _ATTEMPTS else 0
        drawn = addresses[start:] + addresses[:start]
        self._told_of = self._told_of if self._told_of in addresses else drawn[0]
        # The message names the same one each time: another one would be another status, and another write.
        chosen = dict.fromkeys((self._told_of, *drawn[: _ATTEMPTS - 1]))
        errors = await asyncio.gather(*(self._attempt(each) for each in chosen))
        if "" in errors:
            return "True", "Passed", "all checks passed"
        return "False", "FailedDiscoveryCheck", errors[0]

    async def _attempt(self, address: str) -> str:
        """Why it failed, or "". Raises: BadAuthority."""
        url = f"https://{address}{self._path}"
        try:
            opened = await self._opened(address, self._path, _MASTER)
        except NoAnswer as error:
            late = " (Client.Timeout exceeded while awaiting headers)" if str(error) == DEADLINE else ""
            return f"failing or missing response from {url}: Get {go_quote(url)}: {error}{late}"
        opened.response.close()
        if not 200 <= opened.status < 300:
            return f"failing or missing response from {url}: bad status from {url}: {opened.status}"
        return ""

    @property
    def _path(self) -> str:
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"

    async def _opened(
        self, address: str, path: str, headers: tuple[tuple[str, str], ...], accept: str = "application/json"
    ) -> Opened:
        """Raises: NoAnswer, BadAuthority."""
        asked = Asked("GET", path, (("Host", address), ("Accept", accept), *headers))
        try:
            async with asyncio.timeout(_ANSWER_S):
                return await self._at.forwarder.open(self.target(address), asked)
        except TimeoutError:
            raise NoAnswer(DEADLINE) from None

    # --- discovery --------------------------------------------------------------------------------------------------

    async def _refresh(self) -> bool:
        """Whether the other server told what it serves."""
        try:
            address = self.address()
            resources = await self._grouped(address)
            if resources is None:
                resources = await self._listed(address)
            self._publish(self.discovered._replace(resources=await _kept(resources), freshness="Current"))
            self.openapi = await self._index(address)
        except (NoAnswer, StatusError, BadAuthority) as error:
            log.warning("the discovery of the APIService %s: %s", self.name, error)
            self._publish(self.discovered._replace(freshness="Stale"))
            return False
        try:
            await self._refresh_swagger(address)
        except (NoAnswer, StatusError, BadAuthority) as error:
            log.warning("the document of OpenAPI version 2 of the APIService %s: %s", self.name, error)
        return True

    def _publish(self, told: Remote) -> None:
        if told != self.discovered:
            self.discovered = told
            self._at.publish()

    async def _grouped(self, address: str) -> Iterable[Json] | None:
        """From the aggregated form; None if it has none. Raises: NoAnswer, BadAuthority."""
        opened = await self._opened(address, "/apis", _MASTER, _ACCEPTED)
        body = await opened.body(DOCUMENT_BYTES_MAX, _ANSWER_S)
        if opened.status == 503:
            raise NoAnswer("the service returned non-success response code: 503")
        if opened.status != 200 or not _is_grouped("".join(opened.headers.get("Content-Type", ()))):
            return None
        for group in objects(_read(body), "items"):
            if (object_of(group.get("metadata")).get("name") or "") == self.group:
                for version in objects(group, "versions"):
                    if version.get("version") == self.version:
                        return map(_resource, _bounded(objects(version, "resources"), RESOURCES_MAX, "resources"))
        return []

    async def _listed(self, address: str) -> Iterable[Json]:
        """From the older form. Raises: NoAnswer, BadAuthority."""
        opened = await self._opened(address, self._path, _ASKER)
        body = await opened.body(DOCUMENT_BYTES_MAX, _ANSWER_S)
        if opened.status != 200:
            raise NoAnswer(f"failed to download legacy discovery for {self._path}: status {opened.status}")
        return _converted(_bounded(objects(_read(body), "resources"), RESOURCES_MAX, "resources"))

    async def _refresh_swagger(self, address: str) -> None:
        """Raises: NoAnswer, BadAuthority; StatusError, also if the document cannot be merged."""
        known = (("If-None-Match", self._tag),) if self._tag else ()
        opened = await self._opened(address, "/openapi/v2", (*_AGGREGATOR, *known))
        body = await opened.body(FOREIGN_BYTES_MAX, _ANSWER_S)
        if opened.status != 200 or not self.group:
            return
        root = f"{self._path}/"
        etag = etag_of(root.encode() + body)
        if self.swagger is None or self.swagger.etag != etag:
            work = self._at.server.writer.work
            self.swagger = await work.run("late", ".api.openapi_merging", "foreign", body, root, etag)
        self._tag = "".join(opened.headers.get("Etag", ()))

    async def _index(self, address: str) -> Json:
        opened = await self._opened(address, "/openapi/v3", _AGGREGATOR)
        body = await opened.body(DOCUMENT_BYTES_MAX, _ANSWER_S)
        if opened.status != 200 or not self.group:
            return {}
        path = self._path[1:]
        told = object_of(object_of(_read(body).get("paths")).get(path)).get("serverRelativeURL")
        short = isinstance(told, str) and len(told) <= _URL_CHARS_MAX
        return {path: {"serverRelativeURL": told}} if short else {}


@asynccontextmanager
async def _slot(checks: asyncio.Semaphore) -> AsyncIterator[None]:
    """Given back early if what is done takes longer than _SLOW_S."""
    await checks.acquire()
    held = [checks]

    def give_back() -> None:
        if held:
            held.pop().release()

    early = asyncio.get_running_loop().call_later(_SLOW_S, give_back)
    try:
        yield
    finally:
        early.cancel()
        give_back()


def _has_endpoint(piece: Json, named: str) -> bool:
    ready = any((each.get("conditions") or {}).get("ready") in (None, True) for each in piece.get("endpoints") or ())
    return ready and any((p.get("name") or "") == named and p.get("port") for p in piece.get("ports") or ())


def _is_grouped(content_type: str) -> bool:
    for clause in parse_accept(content_type):
        told = clause.parameters
        if told.get("g") == "apidiscovery.k8s.io" and told.get("as") == "APIGroupDiscoveryList":
            return told.get("v") in AGGREGATED
    return False


# --- what others say, read with care ----------------------------------------------------------------------------------


def _read(body: bytes) -> Json:
    """Raises: NoAnswer."""
    try:
        return read_object(body, "the document")
    except ValueError as error:
        raise NoAnswer(str(error)) from None


def _kind(found: Any) -> Json:
    return {name: text(object_of(found), name) for name in ("group", "version", "kind")}


def _bounded(found: list[Json], most: int, what: str) -> list[Json]:
    """Raises: NoAnswer."""
    if len(found) > most:
        raise NoAnswer(f"the document has {len(found)} {what}; the limit is {most}")
    return found


async def _kept(resources: Iterable[Json]) -> bytes:
    """A list of those that have a name, the first of each name, in JSON; empty without any. Raises: NoAnswer."""
    found: dict[str, bytes] = {}
    size = 2
    for place, each in enumerate(resources):
        if place % _SLICE == 0:
            await asyncio.sleep(0)
        name = each["resource"]
        if not name or name in found:
            continue
        found[name] = orjson.dumps(each)
        size += len(found[name]) + 1
        if size > DOCUMENT_BYTES_MAX:
            raise NoAnswer(f"what is kept of the document is longer than {DOCUMENT_BYTES_MAX} bytes, the limit")
    return b"[%b]" % b",".join(found.values()) if found else b""


def _resource(told: Json) -> Json:
    """A resource of the aggregated form, with the fields that it has. Raises: NoAnswer."""
    found: Json = {
        "resource": text(told, "resource"), "responseKind": _kind(told.get("responseKind")),
        "scope": text(told, "scope"), "singularResource": text(told, "singularResource"),
        "verbs": texts(told, "verbs"),
    }  # fmt: skip
    found |= {name: named for name in ("shortNames", "categories") if (named := texts(told, name))}
    subs = {
        name: {"subresource": name, "responseKind": _kind(each.get("responseKind")), "verbs": texts(each, "verbs")}
        for each in reversed(_bounded(objects(told, "subresources"), SUBRESOURCES_MAX, "subresources"))
        if (name := text(each, "subresource"))
    }
    if subs:
        found["subresources"] = list(reversed(subs.values()))
    return found


def _converted(rows: list[Json]) -> Iterator[Json]:
    """Resources of the older form in the aggregated one. Source: apiserver `pkg/endpoints/installer.go`."""
    found: dict[str, Json] = {}
    below: dict[str, dict[str, Json]] = {}
    for row in rows:
        parent, slash, name = text(row, "name").partition("/")
        if slash:
            below.setdefault(parent, {}).setdefault(name, row)
        else:
            found.setdefault(parent, row)
    for parent in [*found, *(each for each in below if each not in found)]:
        subs = below.get(parent, {})
        told = found.get(parent) or {"namespaced": next(iter(subs.values())).get("namespaced")}
        scope = "Namespaced" if told.get("namespaced") is True else "Cluster"
        more = {"resource": parent, "responseKind": told, "scope": scope, "singularResource": told.get("singularName")}
        resource = _resource({**told, **more, "subresources": None})
        if subs:
            resource["subresources"] = [_below(name, row) for name, row in subs.items()]
        yield resource


def _below(name: str, row: Json) -> Json:
    kind = _kind(row if row.get("kind") else None)
    return {"subresource": name, "responseKind": kind, "verbs": texts(row, "verbs")}

"""The audit log: what is recorded of each request, as `audit.k8s.io/v1` events.

`Auditor.handle` wraps the server's handler. Where a request's body, its decision and annotations become known, the
handler passes them to `Request.audit`; it is None for requests that are not logged.

Source: apiserver `pkg/audit/{context,request}.go`, `pkg/endpoints/filters/{audit,authn_audit}.go`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import urlencode

import orjson

from minikube_py.api import go_json
from minikube_py.api.errors import Json, StatusError, internal
from minikube_py.api.kinds.authentication import TOKENREQUESTS
from minikube_py.api.meta import is_qualified_name, micro_timestamp, new_uid
from minikube_py.apiserver.audit_policy import (
    API_VERSION,
    COMPLETE,
    LEVELS,
    METADATA,
    NONE,
    PANIC,
    RECEIVED,
    REQUEST,
    REQUEST_RESPONSE,
    STARTED,
    Attributes,
    AuditPolicy,
    Decision,
)
from minikube_py.apiserver.audit_requests import attributes_of, is_long_running, source_addresses, tried_methods
from minikube_py.apiserver.forms import refusal_form
from minikube_py.apiserver.messages import Request, Response
from minikube_py.apiserver.rules import User
from minikube_py.apiserver.work import InYaml
from minikube_py.env import Clock, Rng

if TYPE_CHECKING:
    from minikube_py.api.kind import Kind, Subresource
    from minikube_py.apiserver.http1 import Head
    from minikube_py.apiserver.watch_stream import Stream
    from minikube_py.containers.remote import Upgrade

log = logging.getLogger(__name__)
DECISION, REASON = "authorization.k8s.io/decision", "authorization.k8s.io/reason"
DEPRECATED: Final = "k8s.io/deprecated"
_AGENT_CHARS_MAX: Final = 1024
_CLOSED: Final[Json] = {"metadata": {}, "status": "Success", "message": "Connection closed early", "code": 200}
_BOUNDED: Final = ("status", "message", "reason", "details")
"""Of a Status, what `responseStatus` shows."""
_DEFAULTS: Final = {TOKENREQUESTS.kind: TOKENREQUESTS.default}
"""Of bodies of subresources that are kinds of their own."""
Handle = Callable[[Request], Awaitable[Response]]


class Sink(Protocol):
    """Where events go, in order."""

    blocks: bool
    """Whether requests wait for their events, and (`strict`) fail without the first."""
    strict: bool

    def post(self, line: bytes) -> asyncio.Future[bool] | None:
        """Whether the event was written; None: yes."""

    async def stop(self) -> None: ...

    def metrics(self) -> dict[str, float]: ...


class Audited:
    """One request: made by the transport, or by `Auditor.handle`, which decides how it is logged."""

    __slots__ = (
        "_annotations", "_object", "_reply", "_unencodable", "addresses", "agent", "asked", "constraint", "decision",
        "id", "impersonated", "panic", "received_s", "reference", "status", "uri", "user",
    )  # fmt: skip

    def __init__(self, id: str, uri: str, agent: str, addresses: list[str], received_s: float) -> None:
        self.id, self.uri, self.addresses, self.received_s = id, uri, addresses, received_s
        self.agent = agent if len(agent) <= _AGENT_CHARS_MAX else agent[:_AGENT_CHARS_MAX] + "...TRUNCATED"
        self.decision: Decision
        self.asked: Attributes
        self.user: User | None = None
        self.impersonated: User | None = None
        self.constraint = self.panic = self._unencodable = ""
        self.reference: Json = {}
        self.status: Json | None = None
        self._object: Json | list[Any] | None = None
        self._reply: Json | None = None
        self._annotations: dict[str, tuple[int, str]] = {}

    # --- told by the handler ------------------------------------------------------------------------------------------

    def authorized(self, may: bool, reason: str) -> None:
        self.note(DECISION, "allow" if may else "forbid")
        self.note(REASON, reason)

    def note(self, key: str, value: str, level: int = METADATA) -> None:
        """The first value of an annotation stays."""
        known = self._annotations.setdefault(key, (level, value))
        if known[1] != value:
            log.warning("audit %s: the annotation %s is set already, to %r, not to %r", self.id, key, known[1], value)

    def admission_note(self, key: str, value: str, level: int = METADATA) -> None:
        """From a configured plugin: malformed keys are dropped."""
        if key.count("/") != 1 or is_qualified_name(key):
            log.warning("audit %s: the annotation key %r is malformed", self.id, key)
        else:
            self.note(key, value, level)

    def took(self, kind: Kind, obj: Json, sub: Subresource | None = None) -> None:
        """The decoded body, before anything else changes it."""
        metadata = obj.get("metadata") or {}
        for name in ("namespace", "name", "uid", "resourceVersion"):
            if metadata.get(name) and not self.reference.get(name):
                self.reference[name] = metadata[name]
        if self.decision.level < REQUEST:
            return
        copy: Json = orjson.loads(orjson.dumps(obj))
        default = kind.default if sub is None or sub.kind == kind.kind else _DEFAULTS.get(sub.kind)
        if default is not None:
            default(copy)
        of: Any = sub if sub is not None and sub.version else kind
        version = f"{of.group}/{of.version}" if of.group else of.version
        named = {"kind": sub.kind if sub is not None else kind.kind, "apiVersion": version}
        self._object = self._shown(named | {name: each for name, each in copy.items() if name not in named})

    def took_options(self, options: Json) -> None:
        """The DeleteOptions of a body."""
        if self.decision.level >= REQUEST:
            # Upstream's own name for what it decodes them to.
            given = {"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/__internal"}
            self._object = given | {key: value for key, value in options.items() if key not in given}

    def took_patch(self, patch: bytes) -> None:
        """Shown as sent. What is not JSON, as YAML, cannot be shown, and then upstream loses the whole event."""
        if self.decision.level < REQUEST:
            return
        try:
            self._object = orjson.loads(patch)
        except orjson.JSONDecodeError as error:
            self._unencodable = f"the patch is not JSON: {error}"

    def answered(self, response: Response, accept: str = "") -> None:
        """Takes status and object of a response that is a whole object, and is in an accepted form."""
        refused = response.status >= 400 and not refusal_form(accept)
        obj = None if refused else _object_of(response, self.decision.level >= REQUEST_RESPONSE)
        if obj is not None and obj.get("kind") == "Status" and obj.get("apiVersion") == "v1":
            self.status = {"metadata": {}, **{name: obj[name] for name in _BOUNDED if name in obj}}
        if obj is not None and self.decision.level >= REQUEST_RESPONSE:
            self._reply = self._shown(obj)
        status = self.status or {"metadata": {}}
        self.status = {**status, "code": 101 if response.upgrade is not None else response.status}

    def _shown(self, obj: Json) -> Json:
        if self.decision.omit_managed_fields:
            _drop_managed_fields(obj)
        return obj

    # --- the event ----------------------------------------------------------------------------------------------------

    def event(self, stage: str, now_s: float) -> bytes:
        """One line. Raises: ValueError if the request's patch cannot be shown."""
        if self._unencodable:
            raise ValueError(self._unencodable)
        level, impersonated = self.decision.level, self.impersonated
        annotations = {key: text for key, (least, text) in sorted(self._annotations.items()) if least <= level}
        event: Json = {
            "kind": "Event", "apiVersion": API_VERSION, "level": LEVELS[level], "auditID": self.id, "stage": stage,
            "requestURI": self.uri, "verb": self.asked.verb, "user": _user(self.user),
            "impersonatedUser": _user(impersonated) if impersonated is not None else None,
            "authenticationMetadata": {"impersonationConstraint": self.constraint} if self.constraint else None,
            "sourceIPs": self.addresses, "userAgent": self.agent, "objectRef": self.reference,
            "responseStatus": self.status, "requestObject": self._object, "responseObject": self._reply,
            "requestReceivedTimestamp": micro_timestamp(self.received_s),
            "stageTimestamp": micro_timestamp(self.received_s if stage == RECEIVED else now_s),
            "annotations": annotations,
        }  # fmt: skip
        kept = ("verb", "user")
        event = {key: value for key, value in event.items() if key in kept or value not in (None, "", [], {})}
        try:
            return go_json.dumps(event) + b"\n"
        except TypeError:
            # Bytes of a header or path that are not UTF-8.
            text = repr(event).encode("utf-8", "replace").decode()
            raise ValueError(f"not UTF-8: {text:.200}") from None


class Auditor:
    """`policy` says what is logged to `sink`."""

    def __init__(self, policy: AuditPolicy, sink: Sink, clock: Clock, rng: Rng) -> None:
        self._policy, self._sink, self._clock, self._rng = policy, sink, clock, rng
        self._levels = dict.fromkeys(LEVELS, 0)
        self._events = self._errors = self._rejected = 0

    def metrics(self) -> dict[str, float]:
        found: dict[str, float] = {f'apiserver_audit_level_total{{level="{k}"}}': n for k, n in self._levels.items()}
        found["apiserver_audit_event_total"] = self._events
        found["apiserver_audit_requests_rejected_total"] = self._rejected
        written = self._sink.metrics()
        lost = 'apiserver_audit_error_total{plugin="log"}'
        return {**found, **written, lost: written.get(lost, 0) + self._errors}

    async def stop(self) -> None:
        await self._sink.stop()

    def seen(self, head: Head, id: str, peer: str) -> Audited:
        """A request over a connection from `peer`, an address."""
        get = head.headers.get
        uri = f"{head.path}?{head.query}" if head.query else head.path
        return Audited(id, uri, get("user-agent") or "", source_addresses(head, peer), self._clock.wall_s())

    async def handle(self, request: Request, handle: Handle) -> Response:
        """Logs the request's stages around `handle`, as `ApiServer.handle`."""
        audited = request.audit
        if audited is None:
            head, query = request.head, urlencode(request.query)
            if head is not None:
                audited = self.seen(head, head.headers.get("audit-id") or new_uid(self._rng), "")
            else:
                uri = f"{request.path}?{query}" if query else request.path
                audited = Audited(new_uid(self._rng), uri, request.user_agent, [], self._clock.wall_s())
        request.audit = audited if self._decide(audited, request.user, request) else None
        if request.audit is None:
            return await handle(request)
        if not await self._stage(audited, RECEIVED):
            self._rejected += 1
            return _failure(internal("failed to store audit event"))
        try:
            response = await handle(request)
        except asyncio.CancelledError:
            audited.status = _CLOSED
            self._post(audited, COMPLETE)
            raise
        return await self._ended(audited, request, response)

    def _decide(self, audited: Audited, user: User | None, request: Request | Head) -> bool:
        """Whether the request is logged."""
        query: Mapping[str, str] = request.query if isinstance(request, Request) else {}
        asked = audited.asked = attributes_of(request.path, request.method, query)
        audited.user = user
        decision = audited.decision = self._policy.decide(user, asked)
        self._levels[LEVELS[decision.level]] += 1
        if asked.is_resource:
            named = {
                "resource": asked.resource, "namespace": asked.namespace, "name": asked.name, "apiGroup": asked.group,
                "apiVersion": asked.version, "subresource": asked.subresource,
            }  # fmt: skip
            audited.reference = {key: value for key, value in named.items() if value}
        return decision.level != NONE

    async def _ended(self, audited: Audited, request: Request, response: Response) -> Response:
        if response.pieces is not None and audited.decision.level >= REQUEST_RESPONSE:
            parts = []
            for piece in response.pieces:
                parts.append(piece)
                await asyncio.sleep(0)
            response.body, response.pieces = b"".join(parts), None
            response.sent()
        audited.answered(response, request.accept)
        if audited.panic:
            why = {"status": "Failure", "message": f"APIServer panic'd: {audited.panic}", "reason": "InternalError"}
            audited.status = {"metadata": {}, **why, "code": 500}
            await self._stage(audited, PANIC)
            return response
        if is_long_running(audited.asked):
            await self._stage(audited, STARTED)
        if response.stream is not None:
            _when_left(response.stream, lambda: self._completed(audited))
        elif response.upgrade is not None:
            response.upgrade = self._upgraded(audited, response.upgrade)
        elif response.text is not None:
            response.text = self._told(audited, response.text)
        else:
            if " is deprecated in v" in (response.headers.get("Warning") or ""):
                audited.note(DEPRECATED, "true")
            await self._stage(audited, COMPLETE)
        return response

    async def refused(self, head: Head, error: StatusError, audited: Audited, user: User | None) -> None:
        """A request that the authenticator (`user` None), or then the transport, refused."""
        if not self._decide(audited, user, head):
            return
        body, accept = orjson.dumps(error.to_status()), head.headers.get("accept") or ""
        if user is None:
            if error.code == 401:
                audited.status = {"metadata": {}, "message": tried_methods(head)}
                audited.answered(Response(error.code, body), accept)
                await self._stage(audited, STARTED)
            return
        await self._stage(audited, RECEIVED)
        audited.answered(Response(error.code, body), accept)
        await self._stage(audited, COMPLETE)

    # --- stages -------------------------------------------------------------------------------------------------------

    async def _stage(self, audited: Audited, stage: str) -> bool:
        """False: the request must fail."""
        writing = self._post(audited, stage)
        if writing is None or not self._sink.blocks:
            return True
        # Shared with the other events of its batch: a cancelled request must not cancel it.
        written = await asyncio.shield(writing)
        return written or not self._sink.strict or stage != RECEIVED

    def _post(self, audited: Audited, stage: str) -> asyncio.Future[bool] | None:
        if stage in audited.decision.omit_stages:
            return None
        self._events += 1
        try:
            line = audited.event(stage, self._clock.wall_s())
        except ValueError as error:
            self._errors += 1
            log.error("audit %s: the event of stage %s is lost: %s", audited.id, stage, error)
            return None
        return self._sink.post(line)

    def _completed(self, audited: Audited) -> None:
        self._post(audited, COMPLETE)

    def _upgraded(self, audited: Audited, upgrade: Upgrade) -> Upgrade:
        async def serve(duplex: Any) -> None:
            try:
                await upgrade.serve(duplex)
            finally:
                self._completed(audited)

        return upgrade._replace(serve=serve)

    async def _told(self, audited: Audited, parts: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
        try:
            async with aclosing(parts):
                async for part in parts:
                    yield part
        finally:
            self._completed(audited)


def _when_left(stream: Stream, done: Callable[[], None]) -> None:
    """Calls `done` once, when the stream has ended."""
    if stream.ended:
        done()
        return
    stream.leaves(done)


def _failure(error: StatusError) -> Response:
    return Response(error.code, orjson.dumps(error.to_status()))


def _user(user: User | None) -> Json:
    if user is None:
        return {}
    found: Json = {"username": user.name, "uid": user.uid, "groups": list(user.groups)}
    found["extra"] = {key: list(values) for key, values in user.extra}
    return {key: value for key, value in found.items() if value}


def _object_of(response: Response, always: bool) -> Json | None:
    """The API object that a response is; unless `always`, only if it may be a Status."""
    body = response.body
    if not (always or response.status >= 400 or b"Status" in body[:40]) or not body:
        return None
    try:
        if isinstance(body, InYaml):
            found = orjson.loads(body.source)
        elif response.content_type.startswith("application/yaml"):
            from minikube_py.api.yaml_text import documents

            found = documents(body)[0]
        elif response.content_type.startswith("application/json"):
            found = orjson.loads(body)
        else:
            return None
    except ValueError:
        return None
    return found if isinstance(found, dict) and "kind" in found else None


def _drop_managed_fields(obj: Json) -> None:
    """Of an object, the items of a list, and the objects in the rows of a table."""
    rows = (row.get("object") or {} for row in obj.get("rows") or () if isinstance(row, dict))
    items = (item for item in obj.get("items") or () if isinstance(item, dict))
    for each in (obj, *items, *rows):
        if isinstance(metadata := each.get("metadata"), dict):
            metadata.pop("managedFields", None)

"""Builds the `Request` for `ApiServer.handle` from an HTTP head.

Shared by connections and in-process clients, so both get the same answers.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from minikube_py.api.errors import StatusError, unauthorized
from minikube_py.apiserver.audit_requests import INVALID_TIMEOUT, timeout_s
from minikube_py.apiserver.auth import ANONYMOUS, Authenticator, Shown, Spoken
from minikube_py.apiserver.core import ApiServer, error_response
from minikube_py.apiserver.forms import is_pretty, presented
from minikube_py.apiserver.http1 import Head
from minikube_py.apiserver.impersonation import PREFIX, wanted_user
from minikube_py.apiserver.messages import NO_QUERY, Request, Response, parse_query
from minikube_py.client.transport import JSON
from minikube_py.env import Clock

if TYPE_CHECKING:
    from minikube_py.apiserver.audit import Audited
    from minikube_py.apiserver.rules import User

_IMPERSONATES: Final = re.compile(PREFIX).match
_PROTOCOLS: Final = "sec-websocket-protocol"
_TOKEN: Final = "base64url.bearer.authorization.k8s.io."
_BASE64URL: Final = re.compile("[A-Za-z0-9_-]*")


def _nothing(user: User) -> None:
    pass


async def request_of(
    asked: Head,
    authenticator: Authenticator,
    clock: Clock,
    shown: Shown | None = None,
    identified: Callable[[User], None] = _nothing,
) -> tuple[Request, str]:
    """The request without its body, and a warning for the response. `shown`: the client certificate. `identified` is
    called after valid credentials; it may refuse.

    Raises: StatusError 400, 401, 429."""
    headers = asked.headers
    query = parse_query(asked.query) if asked.query else NO_QUERY
    limit_s = timeout_s(asked.path, asked.method, query) if "timeout" in query else 0.0
    credential = headers.get("authorization")
    user, warning = authenticator.known(credential), ""
    try:
        if shown is not None:
            user, _, warning = await authenticator.shower(shown, clock.wall_s(), credential)
        elif user is None and credential:
            user, _, warning = await authenticator.asker(credential)
    except StatusError:
        if _PROTOCOLS not in headers or (found := await _by_protocol(asked, authenticator)) is None:
            raise
        (user, _, warning), asked = found
    else:
        if user is ANONYMOUS and _PROTOCOLS in headers and (found := await _by_protocol(asked, authenticator)):
            (user, _, warning), asked = found
    if user is not None and user is not ANONYMOUS:
        identified(user)
    wanted = None
    if any(map(_IMPERSONATES, headers)):
        wanted = wanted_user((*headers.items(), *asked.repeated))
    get = headers.get
    request = Request(
        asked.method, asked.path, query, b"", user, get("accept") or "*/*", get("content-type") or JSON,
        get("if-none-match"), wanted,
    )  # fmt: skip
    request.head = asked
    request.deadline_s = clock.monotonic_s() + limit_s if limit_s > 0 else None
    request.user_agent = get("user-agent") or ""
    request.pretty = is_pretty(query, request.user_agent)
    return request, warning


async def _by_protocol(asked: Head, authenticator: Authenticator) -> tuple[Spoken, Head] | None:
    """The user of the bearer token among the subprotocols of a WebSocket, where browsers have no other place for one,
    and the head without it. None: there is none. Raises: StatusError 401.

    Source: apiserver `pkg/authentication/request/websocket/protocol.go`."""
    from minikube_py.containers.remote import asked_of

    protocols = asked_of(asked.values)
    tokens = [each for each in protocols.socket_protocols if each.startswith(_TOKEN)]
    if not protocols.is_socket or not tokens:
        return None
    others = [each for each in protocols.socket_protocols if not each.startswith(_TOKEN)]
    text = tokens[0].removeprefix(_TOKEN)
    try:
        if len(tokens) > 1 or not _BASE64URL.fullmatch(text):
            raise unauthorized()
        token = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode()
    except ValueError:
        raise unauthorized() from None
    if not token:
        return None
    spoken = await authenticator.asker(f"Bearer {token}")
    if spoken.user is ANONYMOUS or not others:
        raise unauthorized()
    repeated = tuple(each for each in asked.repeated if each[0] != _PROTOCOLS)
    return spoken, asked._replace(headers={**asked.headers, _PROTOCOLS: ",".join(others)}, repeated=repeated)


def refusal_of(error: StatusError, asked: Head) -> Response:
    """The response to an error of `request_of`."""
    try:
        query = parse_query(asked.query)
    except StatusError:
        query = NO_QUERY
    response = error_response(error)
    if error.code == 400 and not error.message.startswith(INVALID_TIMEOUT):
        response.headers = {**response.headers, "X-Content-Type-Options": "nosniff"}
    pretty = is_pretty(query, asked.headers.get("user-agent") or "")
    return presented(response, asked.headers.get("accept") or JSON, pretty)


async def audit_refusal(
    core: ApiServer, audited: Audited, asked: Head, error: StatusError, shown: Shown | None = None
) -> None:
    """Logs a refusal by `request_of`: of a sender who is not known, or of `Impersonate-*` headers of one who is."""
    assert core.auditor is not None
    user: User | None = None
    if error.code == 400 and any(map(_IMPERSONATES, asked.headers)):
        headers = {name: value for name, value in asked.headers.items() if not _IMPERSONATES(name)}
        try:
            request, _ = await request_of(
                asked._replace(headers=headers, repeated=()), core.access.authenticator, core.clock, shown
            )
        except StatusError:
            return
        user = request.user
    await core.auditor.refused(asked, error, audited, user)


async def answer_of(core: ApiServer, asked: Head, body: bytes) -> Response:
    """Handles a whole request of an in-process client."""
    try:
        request, warning = await request_of(asked, core.access.authenticator, core.clock)
    except StatusError as error:
        return refusal_of(error, asked)
    request.body = body
    response = await core.handle(request)
    return response.warning(warning) if warning else response

"""Requests and responses without HTTP: what `ApiServer.handle` takes and gives. Both adapters speak these."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias
from urllib.parse import parse_qsl, unquote

from minikube_py.api import go_json
from minikube_py.api.errors import PageNotFound, bad_request
from minikube_py.api.memo import remembered
from minikube_py.client.transport import JSON

if TYPE_CHECKING:
    from minikube_py.api.apply.managed_fields import Converted
    from minikube_py.api.errors import Json, StatusError
    from minikube_py.api.kind import Kind
    from minikube_py.apiserver.audit import Audited
    from minikube_py.apiserver.http1 import Head
    from minikube_py.apiserver.rules import User
    from minikube_py.apiserver.watch_stream import Stream
    from minikube_py.containers.remote import Upgrade

TEXT: Final = "text/plain; charset=utf-8"
QUERY_TERMS_MAX: Final = 256
NO_QUERY: Final[Mapping[str, str]] = {}
NO_HEADERS: Final[Mapping[str, str]] = {}
_CONTROLS: Final = re.compile("[\\x00-\\x1f\\x7f-\\x9f\\ud800-\\udfff]")
_WARNED: Final = '299 - "'
_ESCAPED: Final = re.compile(r"\\(.)")


class Receive(Protocol):
    async def __call__(self) -> bytes:
        """The body. Raises: StatusError."""
        ...

    def holding(self, size_bytes: int) -> AbstractContextManager[None]:
        """Counts the body that was read for as long as it is kept. Raises: StatusError 429."""
        ...



Admission: TypeAlias = "Callable[[Kind, str, str, Json | None, Json | None], None]"
"""The checks on a user's writes. Called with resource, subresource and name, the stored object (None: it is being
created) and the new one (None: it is being deleted), before the new one is validated. May change the new one.

Raises: StatusError 403, 404."""

Standing: TypeAlias = "Callable[[Kind, str, Json], Callable[[], bool] | None]"
"""A cheap check for later updates of an object (given its kind, name and value) that change only `Kind.renews` or
`Kind.beats`. None: full admission is required."""


PAGE: Final = "/minikube-py/ui/"


class Page(Protocol):
    """Serves the paths below PAGE, with its own authorization."""

    async def answer(self, request: Request) -> Response:
        """Raises: StatusError."""
        ...


def admits_renewals(kind: Kind, name: str, obj: Json) -> Callable[[], bool] | None:
    """The `Standing` that checks nothing."""
    return _always


def _always() -> bool:
    return True


_WITH_BODY: Final = frozenset(("POST", "PUT", "PATCH", "DELETE"))


class Request:
    """`path` is percent-decoded by the router, not before.

    `query` maps each name to its first value. `accept`, `content_type` and `if_none_match` are the headers of those
    names. `receive` is set for requests over a connection: it reads the body after authorization. `pretty` is None for
    in-process callers; over a connection it says whether to indent JSON. `head` is set for requests over a connection:
    the raw head, for protocol upgrades.

    `user` is the sender, using `user_agent`; `wanted` is the user in its `Impersonate-*` headers. After authorization
    `user` is the effective user, `admit` checks that user's writes, and `standing` checks renewals (None: `admit`
    must). `warnings` are those of admission.

    `deadline_s`: when it ends by its own `timeout`, of the monotonic clock."""

    __slots__ = (
        "accept", "admit", "audit", "body", "content_type", "converted", "deadline_s", "head", "if_none_match",
        "method", "path", "pretty", "query", "receive", "standing", "user", "user_agent", "wanted", "warnings",
    )  # fmt: skip

    def __init__(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] = NO_QUERY,
        body: bytes = b"",
        user: User | None = None,
        accept: str = JSON,
        content_type: str = JSON,
        if_none_match: str | None = None,
        wanted: User | None = None,
    ) -> None:
        self.method = method
        self.path = path
        self.query = query
        self.body = body
        self.user = user
        self.accept = accept
        self.content_type = content_type
        self.if_none_match = if_none_match
        self.receive: Receive | None = None
        self.wanted = wanted
        self.pretty: bool | None = None
        self.admit: Admission | None = None
        self.standing: Standing | None = admits_renewals
        self.converted: Converted | None = None
        """For kinds with a conversion webhook: its results for field managers."""
        self.user_agent = ""
        self.deadline_s: float | None = None
        self.head: Head | None = None
        self.warnings: list[str] = []
        self.audit: Audited | None = None
        """Takes what the audit log tells of the request; None: it is not logged."""

    async def read_body(self) -> None:
        """Call after authorization: only then may the body use memory."""
        if self.receive is not None and self.method in _WITH_BODY:
            self.body = await self.receive()


def _nothing() -> None:
    pass


class Response:
    """Exactly one of `body`, `pieces`, `stream` and `text` is the content; `upgrade` takes the connection over.

    `text` yields parts as they arrive; `body` holds those available already. `pieces` yields the parts of a large list;
    all objects are of one moment. `exact`: the body is sent unchanged, without indentation or final newline. The caller
    calls `sent` once `pieces` or `text` are consumed or dropped; until then the request is in flight. Longer than
    `packed_above_bytes` may be compressed if accepted; None: as upstream for this content.
    """

    __slots__ = (
        "body", "content_type", "exact", "headers", "packed_above_bytes", "pieces", "sent", "status", "stream", "text",
        "upgrade",
    )  # fmt: skip

    def __init__(
        self,
        status: int = 200,
        body: bytes = b"",
        content_type: str = JSON,
        headers: Mapping[str, str] = NO_HEADERS,
        pieces: Iterator[bytes] | None = None,
        stream: Stream | None = None,
    ) -> None:
        self.status = status
        self.body = body
        self.content_type = content_type
        self.headers = headers
        self.pieces = pieces
        self.stream = stream
        self.exact = False
        self.packed_above_bytes: int | None = None
        self.sent: Callable[[], None] = _nothing
        self.text: AsyncGenerator[bytes, None] | None = None
        self.upgrade: Upgrade | None = None

    def whole(self) -> bytes:
        """The content, of `body` or all `pieces`, which are consumed."""
        return self.body if self.pieces is None else b"".join(self.pieces)

    def warned(self, texts: Iterable[str]) -> Response:
        """This response with these warnings appended, without duplicates."""
        return self._with_warnings([*_texts_of(self.headers), *texts])

    def warning(self, text: str) -> Response:
        """This response with one more warning in front."""
        return self._with_warnings([text, *_texts_of(self.headers)])

    def _with_warnings(self, texts: Iterable[str]) -> Response:
        self.headers = {**self.headers, **warning_headers(texts)}
        return self


def _texts_of(headers: Mapping[str, str]) -> list[str]:
    lines = filter(None, (headers.get("Warning") or "").split("\n"))
    return [_ESCAPED.sub(r"\1", line[len(_WARNED) : -1]) for line in lines]

WARNINGS_CHARS_MAX: Final = 4096
WARNING_CHARS_MAX: Final = 256
"""Maximum per warning if all exceed WARNINGS_CHARS_MAX (apiserver `endpoints/filters/warning.go`)."""


def warning_headers(warnings: Iterable[str]) -> Mapping[str, str]:
    """`Warning: 299` headers, one line each (RFC 7234, 5.5); none if none can be sent."""
    shown: list[str] = []
    written, shortens = 0, False
    for text in dict.fromkeys(str(warning) for warning in warnings if warning):
        if shortens and written >= WARNINGS_CHARS_MAX:
            break
        text = text[:WARNING_CHARS_MAX] if shortens else text
        if _CONTROLS.search(text):
            # As upstream, texts with control characters are dropped.
            continue
        shown.append(text)
        written += len(text)
        if written > WARNINGS_CHARS_MAX and not shortens:
            shortens, shown = True, [each[:WARNING_CHARS_MAX] for each in shown]
            written = sum(map(len, shown))
    lines = [f'{_WARNED}{_quoted(text)}"' for text in dict.fromkeys(shown)]
    return {"Warning": "\n".join(lines)} if lines else NO_HEADERS


def page_not_found() -> Response:
    return Response(404, b"404 page not found\n", TEXT, {"X-Content-Type-Options": "nosniff"})


def error_response(error: StatusError) -> Response:
    if isinstance(error, PageNotFound):
        return page_not_found()
    headers: dict[str, str] = {}
    if error.retry_after_s:
        headers["Retry-After"] = str(error.retry_after_s)
    headers |= warning_headers(error.warnings)
    return Response(error.code, go_json.dumps(error.to_status()), headers=headers)


def with_warnings(error: StatusError, warnings: list[str]) -> StatusError:
    """A refusal includes the warnings of its decoded body."""
    error.warnings = tuple(warnings)
    return error


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


_WRONG_ESCAPE: Final = re.compile("%(?![0-9A-Fa-f]{2})")


def query_terms(text: str) -> list[tuple[str, str]]:
    """Names and values. Terms with a wrong escape or a semicolon are left out, as by upstream.

    Raises: StatusError 400 if there are too many terms."""
    if ";" in text or _WRONG_ESCAPE.search(text):
        text = "&".join(term for term in text.split("&") if ";" not in term and not _WRONG_ESCAPE.search(term))
    try:
        return parse_qsl(text, keep_blank_values=True, max_num_fields=QUERY_TERMS_MAX)
    except ValueError:
        raise bad_request(f"the query has more than {QUERY_TERMS_MAX} terms") from None


@remembered(4096, 512)
def parse_query(text: str) -> Mapping[str, str]:
    """First value of each name of `query_terms`; the values of those in `_REPEATED` are joined.

    Raises: StatusError 400 if there are too many terms."""
    query: dict[str, str] = {}
    for name, value in query_terms(text):
        if name not in query:
            query[name] = value
        elif name in _REPEATED:
            query[name] += _REPEATED[name] + value
    return query


_REPEATED: Final = {"dryRun": ",", "exclude": "\n"}
"""What may be given several times, and what its values are joined by."""


def decode_path(path: str) -> str:
    """As upstream, escaped slashes also separate segments."""
    return unquote(path) if "%" in path else path

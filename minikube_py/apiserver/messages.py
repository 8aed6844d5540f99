"""Requests and responses without HTTP: what `ApiServer.handle` takes and gives. Both adapters speak these."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias
from urllib.parse import parse_qsl, unquote

from minikube_py.api.errors import bad_request
from minikube_py.api.memo import remembered
from minikube_py.client.transport import JSON

if TYPE_CHECKING:
    from minikube_py.api.apply.managed_fields import Converted
    from minikube_py.api.errors import Json, StatusError
    from minikube_py.api.kind import Kind
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
Receive = Callable[[], Awaitable[bytes]]

Admission: TypeAlias = "Callable[[Kind, str, str, Json | None, Json | None], None]"
"""What a user's writes are held to. Called with resource, subresource and name, the stored object (None: it is being
created) and the new one (None: it is being deleted), before the new one is validated. May change the new one.

Raises: StatusError 403, 404."""

Standing: TypeAlias = "Callable[[str, Json], Callable[[], bool] | None]"
"""What an admission needs to ask of later updates that leave an object (its name, and as it stands) as it is but for
`Kind.renews`. None: it has to see them."""


PAGE: Final = "/minikube-py/ui/"


class Page(Protocol):
    """Answers the paths below PAGE, and settles by itself who may."""

    async def answer(self, request: Request) -> Response:
        """Raises: StatusError."""
        ...


def admits_renewals(name: str, obj: Json) -> Callable[[], bool] | None:
    """The `Standing` of whoever asks nothing of them."""
    return _always


def _always() -> bool:
    return True


_WITH_BODY: Final = frozenset(("POST", "PUT", "PATCH", "DELETE"))


class Request:
    """`path` is percent-decoded by the router, not before. `query` maps each name to its
    first value. `accept`, `content_type` and `if_none_match` are the headers of those names.

    `receive` is set where the request came over a connection: it reads the body, which waits there until its sender
    was found to be allowed.

    `pretty` is None for callers in this process, who want JSON as it is made; over a connection it says whether JSON
    is to be laid out for people.

    `head` is set where the request came over a connection: as it was sent, for those who take the connection over.

    `user` is who sent it, by the program `user_agent`, and `wanted` whom its `Impersonate-*` headers name; once it was
    authorized, `user` is who it runs as, and `admit` what that user's writes are held to; `standing` says the same of
    renewals, None where `admit` has to see them. `warnings` are those of admission."""

    __slots__ = (
        "accept", "admit", "body", "content_type", "converted", "head", "if_none_match", "method", "path", "pretty",
        "query", "receive", "standing", "user", "user_agent", "wanted", "warnings",
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
        """Of a kind whose versions a webhook converts: what it gave for the owners of fields."""
        self.user_agent = ""
        self.head: Head | None = None
        self.warnings: list[str] = []

    async def read_body(self) -> None:
        """To be called once the sender may: now the body is worth its memory."""
        if self.receive is not None and self.method in _WITH_BODY:
            self.body = await self.receive()


def _nothing() -> None:
    pass


class Response:
    """Exactly one of `body`, `pieces`, `stream` and `text` is the content; `upgrade` takes the connection over.

    `text` yields parts as they come, for as long as they come; `body` holds those that are there already.

    `pieces` yields the parts of a large list one after another; the objects they hold are those of one moment.
    `exact`: the body goes out to the byte, neither laid out nor ended with a newline. `sent` is to be called by whoever
    asked once `pieces` are used up or dropped: until then the request counts as in flight. What is longer than
    `packed_above_bytes` may be compressed for a client that accepts it; None: as upstream does for this content.
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

    def warned(self, texts: Iterable[str]) -> Response:
        """The same answer, with these warnings behind all others that are not among them."""
        return self._with_warnings([*_texts_of(self.headers), *texts])

    def warning(self, text: str) -> Response:
        """The same answer, with one more warning, before all others."""
        return self._with_warnings([text, *_texts_of(self.headers)])

    def _with_warnings(self, texts: Iterable[str]) -> Response:
        self.headers = {**self.headers, **warning_headers(texts)}
        return self


def _texts_of(headers: Mapping[str, str]) -> list[str]:
    lines = filter(None, (headers.get("Warning") or "").split("\n"))
    return [_ESCAPED.sub(r"\1", line[len(_WARNED) : -1]) for line in lines]

WARNINGS_CHARS_MAX: Final = 4096
WARNING_CHARS_MAX: Final = 256
"""Of each warning, where all together are longer than WARNINGS_CHARS_MAX (apiserver `endpoints/filters/warning.go`)."""


def warning_headers(warnings: Iterable[str]) -> Mapping[str, str]:
    """`Warning: 299` headers, one line each (RFC 7234, 5.5); none where nothing can be said."""
    shown: list[str] = []
    written, shortens = 0, False
    for text in dict.fromkeys(str(warning) for warning in warnings if warning):
        if shortens and written >= WARNINGS_CHARS_MAX:
            break
        text = text[:WARNING_CHARS_MAX] if shortens else text
        if _CONTROLS.search(text):
            # Of a text that holds control characters nothing is said, as upstream does.
            continue
        shown.append(text)
        written += len(text)
        if written > WARNINGS_CHARS_MAX and not shortens:
            shortens, shown = True, [each[:WARNING_CHARS_MAX] for each in shown]
            written = sum(map(len, shown))
    lines = [f'{_WARNED}{_quoted(text)}"' for text in dict.fromkeys(shown)]
    return {"Warning": "\n".join(lines)} if lines else NO_HEADERS


def with_warnings(error: StatusError, warnings: list[str]) -> StatusError:
    """A refusal carries the warnings of a body that was read already."""
    error.warnings = tuple(warnings)
    return error


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


@remembered(4096, 512)
def parse_query(text: str) -> Mapping[str, str]:
    """First value of each name. `dryRun` may be given several times: its values are joined by commas.

    Raises: StatusError 400 where there are too many terms."""
    try:
        pairs = parse_qsl(text, keep_blank_values=True, max_num_fields=QUERY_TERMS_MAX)
    except ValueError:
        raise bad_request(f"the query has more than {QUERY_TERMS_MAX} terms") from None
    query: dict[str, str] = {}
    for name, value in pairs:
        if name not in query:
            query[name] = value
        elif name == "dryRun":
            query[name] = f"{query[name]},{value}"
    return query


def decode_path(path: str) -> str:
    """Escaped slashes separate segments too, as they do in upstream."""
    return unquote(path) if "%" in path else path

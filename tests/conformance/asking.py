"""Requests to a server over HTTPS as they stand, byte by byte, and its answers."""

from __future__ import annotations

import http.client
import json
import ssl
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import urlsplit

REQUEST_TIMEOUT_S = 30
JSON = "application/json"


@dataclass(frozen=True, slots=True)
class Ask:
    """One request. `body` may be bytes, text or JSON; `target` is path and query, as they go over the wire.

    `token` None: the administrator's. Headers of `headers` win over those that the other fields stand for."""

    name: str
    method: str
    target: str
    body: Any = None
    content_type: str = ""
    accept: str = JSON
    token: str | None = None
    headers: tuple[tuple[str, str], ...] = field(default=())

    def payload(self) -> bytes | None:
        if self.body is None or isinstance(self.body, bytes):
            return self.body
        return self.body.encode() if isinstance(self.body, str) else json.dumps(self.body).encode()

    def all_headers(self, token: str) -> list[tuple[str, str]]:
        given = {name.lower() for name, _ in self.headers}
        sent = token if self.token is None else self.token
        usual = [("Authorization", f"Bearer {sent}")] if sent else []
        usual += [("Accept", self.accept)] if self.accept else []
        if self.body is not None and (self.content_type or self.method != "PATCH"):
            usual.append(("Content-Type", self.content_type or JSON))
        return [pair for pair in usual if pair[0].lower() not in given] + list(self.headers)

    def shown(self) -> str:
        body = self.payload()
        told = f"{self.method} {self.target}" + "".join(f"\n    {name}: {value}" for name, value in self.all_headers("T"))
        return told + (f"\n    {body[:600]!r}" if body is not None else "")


class Answer(NamedTuple):
    """`headers` have names in lower case; those that came several times hold several values."""

    code: int
    headers: dict[str, list[str]]
    body: bytes

    def to_json(self) -> dict[str, Any]:
        return {"code": self.code, "headers": self.headers, "body": self.body.decode("latin-1")}

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> Answer:
        return cls(found["code"], found["headers"], found["body"].encode("latin-1"))


class Server:
    """One connection that is kept while the server keeps it."""

    def __init__(self, url: str, token: str) -> None:
        where = urlsplit(url)
        self.token = token
        self._connection = http.client.HTTPSConnection(
            where.hostname or "", where.port, timeout=REQUEST_TIMEOUT_S, context=ssl._create_unverified_context()
        )

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def ask(self, ask: Ask) -> Answer:
        try:
            return self._ask(ask)
        except (http.client.BadStatusLine, ConnectionError, ssl.SSLEOFError):
            # An idle connection may be closed by the server at any time; a fresh one may not.
            self._connection.close()
            return self._ask(ask)

    def _ask(self, ask: Ask) -> Answer:
        connection, payload = self._connection, ask.payload()
        try:
            connection.putrequest(ask.method, ask.target, skip_accept_encoding=True)
            for name, value in ask.all_headers(self.token):
                connection.putheader(name, value.encode("latin-1", "replace"))
            names = {name.lower() for name, _ in ask.headers}
            if not names & {"content-length", "transfer-encoding"} and (
                payload is not None or ask.method in ("POST", "PUT", "PATCH")
            ):
                connection.putheader("Content-Length", str(len(payload or b"")))
            connection.endheaders(payload)
            answer = connection.getresponse()
            headers: dict[str, list[str]] = {}
            for name, value in answer.getheaders():
                headers.setdefault(name.lower(), []).append(value)
            return Answer(answer.status, headers, answer.read())
        except BaseException:
            connection.close()
            raise

"""One keep-alive HTTPS connection to an API server, ours or upstream."""

from __future__ import annotations

import http.client
import ssl
from typing import Any
from urllib.parse import urlencode, urlsplit

import orjson
from rivals.contract import Node, name_of
from rivals.objects import allocatable

JSON = "application/json"
TIMEOUT_S = 300


class Client:
    def __init__(self, url: str, token: str) -> None:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        where = urlsplit(url)
        self._http = http.client.HTTPSConnection(where.hostname or "", where.port, timeout=TIMEOUT_S, context=context)
        self._headers = {"Authorization": f"Bearer {token}", "Accept": JSON}

    def ask(
        self, method: str, path: str, params: dict[str, str], body: Any = None, kind: str = JSON, accept: str = JSON
    ) -> Any:
        """The decoded response. Raises: SystemExit on failure."""
        target = f"{path}?{urlencode(params)}" if params else path
        payload = orjson.dumps(body) if body is not None else None
        self._http.request(method, target, payload, {**self._headers, "Accept": accept, "Content-Type": kind})
        answer = self._http.getresponse()
        data = answer.read()
        if answer.status not in (200, 201):
            raise SystemExit(f"{method} {target} answered {answer.status}: {data[:300]!r}")
        return orjson.loads(data)

    def set_node(self, number: int, node: Node) -> None:
        path = f"/api/v1/nodes/{name_of(number)}/status"
        self.ask("PATCH", path, {}, {"status": {"allocatable": allocatable(node)}}, "application/merge-patch+json")

    def close(self) -> None:
        self._http.close()

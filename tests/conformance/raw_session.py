"""Sends raw requests to a server over HTTPS, and makes what differs by nature alike."""

from __future__ import annotations

import http.client
import json
import re
import ssl
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit

from kubectl_session import normalise
from raw_cases import Case

REQUEST_TIMEOUT_S = 30


class Answer(NamedTuple):
    code: int
    headers: dict[str, str]
    body: bytes


def send(url: str, token: str, case: Case) -> Answer:
    where = urlsplit(url)
    connection = http.client.HTTPSConnection(
        where.hostname or "", where.port, timeout=REQUEST_TIMEOUT_S, context=ssl._create_unverified_context()
    )
    headers = dict(case.headers)
    if (sent := token if case.token is None else case.token) != "":
        headers["Authorization"] = f"Bearer {sent}"
    headers["Accept"] = case.accept or "application/json"
    payload = case.payload()
    if payload is not None and (case.content_type or case.method != "PATCH"):
        headers["Content-Type"] = case.content_type or "application/json"
    try:
        connection.request(case.method, quote(case.path, safe="/?=&%(),:!"), payload, headers)
        answer = connection.getresponse()
        return Answer(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read())
    finally:
        connection.close()


VOLATILE = {
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "deletionTimestamp",
    "lastTransitionTime",
    "startTime",
    "time",
    "clusterIP",
}


def plain(value: Any) -> Any:
    """JSON without managedFields, and with uids, times and versions replaced by their names."""
    if isinstance(value, dict):
        cleaned = {}
        for key, item in value.items():
            if key == "managedFields" or (key == "selfLink" and not item):
                continue
            cleaned[key] = f"<{key}>" if key in VOLATILE and isinstance(item, str) and item else plain(item)
        return cleaned
    if isinstance(value, list):
        return [plain(item) for item in value]
    return re.sub(r'"\d+"', '"<n>"', normalise(value)) if isinstance(value, str) else value


def comparable(case: Case, answer: Answer) -> dict[str, Any]:
    """What of an answer must be alike on both sides, by the case's own rule."""
    result: dict[str, Any] = {"code": answer.code}
    if "warning" in answer.headers:
        result["warning"] = answer.headers["warning"]
    if case.compare == "code" or case.method == "HEAD":
        return result
    text = answer.body.decode(errors="replace")
    if case.compare == "text":
        return {**result, "text": text}
    if case.compare == "events":
        return {**result, "events": [plain(json.loads(line)) for line in text.splitlines()]}
    try:
        body = plain(json.loads(text)) if text else ""
    except ValueError:
        return {**result, "text": text}
    if case.compare == "table" and isinstance(body, dict) and "columnDefinitions" in body:
        for column in body["columnDefinitions"]:
            column.pop("description", None)
    return {**result, "body": body}


def session(url: str, token: str, cases: Iterable[Case]) -> Iterator[tuple[Case, Answer]]:
    for case in cases:
        yield case, send(url, token, case)

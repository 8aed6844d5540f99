"""Documents of discovery and OpenAPI, as constant bytes, and content negotiation."""

from __future__ import annotations

import hashlib
from typing import Any, Final, NamedTuple

import orjson

JSON: Final = "application/json"
YAML: Final = "application/yaml"
PROTOBUF: Final = "application/vnd.kubernetes.protobuf"


class Document(NamedTuple):
    """An answer. `status` 304 has no body. `headers` are those beside Content-Type."""

    body: bytes
    content_type: str
    headers: dict[str, str]
    status: int = 200


class Accepted(NamedTuple):
    """One clause of an Accept header: the media type, and its parameters but for `q`."""

    media: str
    parameters: dict[str, str]


def parse_accept(header: str | None) -> list[Accepted]:
    """The clauses of an Accept header, most preferred first, also those of weight 0, as upstream; `*/*` without a
    header."""
    found: list[tuple[float, Accepted]] = []
    for clause in (header or "*/*").split(","):
        media, *rest = (part.strip() for part in clause.split(";"))
        parameters = dict(part.partition("=")[::2] for part in rest if part)
        try:
            weight = float(parameters.pop("q", "1") or "1")
        except ValueError:
            weight = 0.0
        if media:
            found.append((weight, Accepted(media.lower(), parameters)))
    found.sort(key=lambda pair: -pair[0])
    return [accepted for _, accepted in found]


def matches(media: str, accepted: str) -> bool:
    """Whether a clause such as `application/*` accepts the media type."""
    return accepted in (media, "*/*") or (accepted.endswith("/*") and media.startswith(accepted[:-1]))


def etag_of(data: bytes) -> str:
    """As upstream makes them: the SHA-512 in capitals."""
    return hashlib.sha512(data).hexdigest().upper()


def not_changed(etag: str, if_none_match: str | None) -> bool:
    """Whether the client already has this document."""
    return if_none_match is not None and etag in (tag.strip().removeprefix("W/") for tag in if_none_match.split(","))


# --- what others send, which may have any form ------------------------------------------------------------------------


def read_object(body: bytes, what: str) -> dict[str, Any]:
    """Raises: ValueError, which says that `what` is none."""
    try:
        found = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise ValueError(f"{what} is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise ValueError(f"{what} must be a JSON object")
    return found


def object_of(found: Any) -> dict[str, Any]:
    return found if isinstance(found, dict) else {}


def objects(found: dict[str, Any], name: str) -> list[dict[str, Any]]:
    items = found.get(name)
    return [each for each in items if isinstance(each, dict)] if isinstance(items, list) else []


def text(found: dict[str, Any], name: str) -> str:
    value = found.get(name)
    return value if isinstance(value, str) else ""


def texts(found: dict[str, Any], name: str) -> list[str]:
    items = found.get(name)
    return [each for each in items if isinstance(each, str)] if isinstance(items, list) else []

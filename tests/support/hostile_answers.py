# ruff: noqa: E501
"""External input designed to be slow: answers of webhooks and extenders, selectors of devices."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any, Final

from tests.support.hostile import JSON, Shape, _dump, _many, _map, _operations

# --- webhook responses ------------------------------------------------------------------------------------------------


def _review(**response: Any) -> tuple[int, str, bytes]:
    said = {"uid": "UID", "allowed": True, **response}
    return 200, JSON, _dump({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": said})


def _patched(patch: bytes) -> tuple[int, str, bytes]:
    return _review(patch=base64.b64encode(patch).decode(), patchType="JSONPatch")


def _denied(**status: Any) -> tuple[int, str, bytes]:
    return _review(allowed=False, status=status)


_COPY: Final = {"op": "copy", "from": "/data", "path": "/data/a"}

WEBHOOK_ANSWERS: Final[dict[str, Callable[[int], tuple[int, str, bytes]]]] = {
    "members by one patch": lambda size: _patched(_dump([{"op": "add", "path": "/data", "value": _map(size // 2, "k", "v")}])),
    "many operations": lambda size: _patched(_operations(size // 2, 50, op="add", path=lambda at: f"/data/n{at}", value="v")),
    "labels that are bad": lambda size: _patched(_dump([{"op": "add", "path": "/metadata/labels", "value": _map(size // 2, "-bad/", "-")}])),
    "copies that double": lambda size: _patched(_dump([{"op": "add", "path": "/data/b", "value": "x" * 9000}, *[_COPY] * 40])),
    "a patch of the wrong type": lambda size: _patched(_dump({"op": ["add"] * (size // 10)})),
    "a patch that is cut short": lambda size: _patched(_dump([_COPY] * (size // 70))[:-5]),
    "a deep patch": lambda size: _patched(b"[" * (size // 2)),
    "a text of the patch": lambda size: _patched(_dump([{"op": "add", "path": "/data/b", "value": "x" * (size // 2)}])),
    "warnings": lambda size: _review(warnings=[f"w{at}" for at in range(size // 12)]),
    "long warnings": lambda size: _review(warnings=["x" * (size // 2), "x" * (size // 2) + "y"]),
    "annotations of an audit": lambda size: _review(auditAnnotations=_map(size, "k", "v")),
    "a long denial": lambda size: _denied(message="<\n" * (size // 3)),
    "a denial of many causes": lambda size: _denied(message="m", details={"causes": [{"field": f"f{at}", "message": "m"} for at in range(size // 40)]}),
    "unknown members": lambda size: _review(**_map(size, "k", "v")),
    "YAML": lambda size: (200, "application/yaml", b"response:\n  uid: UID\n  allowed: true\n  warnings:\n" + b"  - a\n" * (size // 6)),
    "lists of nothing": lambda size: (200, JSON, b'{"response":[' + _many(size, "[]").encode() + b"]}"),
    "blanks": lambda size: (200, JSON, b" " * size),
    "an error's text": lambda size: (500, "text/plain", b"<\xff" * (size // 2)),
}  # fmt: skip
"""Status, Content-Type and body, of a size; UID is replaced by the request's."""


def long_selector(driver: str, deep: int) -> str:
    """Of devices: every attribute with every other, that many times; upstream accepts it, by its estimate."""
    expression = "true"
    for at in range(deep):
        expression = f'device.attributes["{driver}"].all(k{at}, {expression})'
    return expression


# --- extender responses -----------------------------------------------------------------------------------------------

EXTENDER_ANSWERS: Final[dict[str, Shape]] = {
    "many nodes": lambda size: _dump({"Nodes": {"items": [{"metadata": {"name": f"n{at}"}} for at in range(size // 30)]}}),
    "many names": lambda size: _dump({"NodeNames": [f"n{at}" for at in range(size // 9)]}),
    "many failures": lambda size: _dump({"FailedNodes": _map(size, "n", "no")}),
    "many scores": lambda size: _dump([{"Host": f"n{at}", "Score": at} for at in range(size // 26)]),
    "scores of the wrong type": lambda size: _dump([{"Host": f"n{at}", "Score": "1"} for at in range(size // 26)]),
    "many victims": lambda size: _dump({"NodeNameToMetaVictims": {f"n{at}": {"Pods": [{"UID": f"u{at}"}]} for at in range(size // 40)}}),
    "a long error": lambda size: _dump({"Error": "x" * size}),
    "unknown members": lambda size: _dump(_map(size, "k", "v")),
    "lists of nothing": lambda size: b'{"NodeNames":[' + _many(size, "[]").encode() + b"]}",
    "cut short": lambda size: _dump([{"Host": f"n{at}"} for at in range(size // 15)])[:-3],
    "no colon": lambda size: _dump(_map(size, "k", "v"))[:-8] + b'"}',
    "more behind": lambda size: _dump(_map(size, "k", "v")) + b"}",
    "deep lists": lambda size: b"[" * size,
    "blanks": lambda size: b" " * size,
    "bad bytes": lambda size: b'{"Error":"' + b"\xff" * size + b'"}',
}  # fmt: skip

# --- what another API server answers ----------------------------------------------------------------------------------

DISCOVERIES: Final[dict[str, bytes]] = {
    "a web page": b"<html>", "nothing": b"", "a list": b"[1]", "no object": b"1", "null": b"null",
    "a text for rows": b'{"resources":"ab"}', "a row without a name": b'{"resources":[{}]}',
    "a row that is no object": b'{"resources":[1]}', "a name that is no text": b'{"resources":[{"name":1}]}',
    "a name that leads elsewhere": b'{"resources":[{"name":"../x?a=b","verbs":["delete","list","watch"]}]}',
    "verbs that are none": b'{"resources":[{"name":"a","kind":[],"verbs":[[],{}]},{"name":"b","verbs":5}]}',
    "too many rows": _dump({"resources": [{"name": f"r{at}", "verbs": ["delete", "list", "watch"]} for at in range(5000)]}),
}  # fmt: skip
"""Answers with 200 to a GET of a group and version."""
LISTS: Final[dict[str, bytes]] = {
    "a web page": b"<html>", "nothing": b"", "a list": b"[1]", "no object": b"true",
    "items that are no list": b'{"items":1}', "metadata that is none": b'{"metadata":[1],"items":[]}',
    "a version that is no text": b'{"metadata":{"resourceVersion":5},"items":[]}',
    "a token that is no text": b'{"metadata":{"continue":{}},"items":[]}',
}  # fmt: skip
"""Answers with 200 to a GET of a collection that cannot be read at all."""
ITEMS: Final[dict[str, bytes]] = {
    "no objects": b'{"items":[1,[],null]}', "without metadata": b'{"items":[{}]}',
    "metadata that is none": b'{"items":[{"metadata":[1]}]}', "a name that is none": b'{"items":[{"metadata":{"name":{}}}]}',
    "an identity that is none": b'{"items":[{"metadata":{"name":"a","uid":[],"ownerReferences":[5]}}]}',
    "finalizers that are none": b'{"items":[{"metadata":{"name":"a","uid":"u","finalizers":[[],5]}}]}',
}  # fmt: skip
"""Lists of what is no object."""
EVENTS: Final[dict[str, bytes]] = {
    "no object": b"[1]", "no version": b'{"metadata":{"resourceVersion":5.5}}', "no JSON": b"<html>", "null": b"null",
    "an error of no code": b'{"kind":"Status","code":{},"details":5,"message":[]}', "a code that is a text": b'{"kind":"Status","code":"x"}',
}  # fmt: skip
"""Objects of events of a watch."""


def _grouped(resources: bytes) -> bytes:
    return b'{"items":[{"metadata":{"name":"echo.example.com"},"versions":[{"version":"v1","resources":[%b]}]}]}' % resources


GROUPED: Final[dict[str, Shape]] = {
    "rows of nothing": lambda size: _grouped(_many(size - 200, "{}").encode()),
    "one name": lambda size: _grouped(b",".join([b'{"resource":"a"}'] * 4000)),
    "parts of nothing": lambda size: _grouped(b'{"resource":"a","subresources":[%b]}' % _many(size - 200, "{}").encode()),
    "many parts": lambda size: _grouped(b",".join(b'{"resource":"r%d","subresources":[%b]}' % (at, b",".join(b'{"subresource":"%d"}' % n for n in range(256))) for at in range(size // 6000))),
}  # fmt: skip
"""Aggregated discovery, of a size."""

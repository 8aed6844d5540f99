"""Two OpenAPI documents of version 2 side by side: ours tells a part of what upstream's tells, and the same of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import yaml
from asking import Ask, Server

Json = dict[str, Any]
PROTOBUF = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
_GVK = "x-kubernetes-group-version-kind"
NOT_HONOURED = {"shardSelector", "ignoreStoreReadErrorWithClusterBreakingPotential"}
"""Parameters of upstream's alpha features, which ours does not know."""


def resources(server: Server) -> dict[str, Json]:
    """What discovery lists, by path, but for the hash of the stored version, which each server makes by itself."""

    def asked(path: str) -> Json:
        found: Json = json.loads(server.ask(Ask("discovery", "GET", path)).body)
        return found

    versions = [version["groupVersion"] for group in asked("/apis")["groups"] for version in group["versions"]]
    return {
        f"{path}/{entry['name']}": {name: value for name, value in entry.items() if name != "storageVersionHash"}
        for path in ("/api/v1", *(f"/apis/{version}" for version in versions))
        for entry in asked(path)["resources"]
    }


def _bare(value: Any, names: bool = False) -> Any:
    """Without texts, which need not be installed. `names`: the members are names of members, not words of a schema."""
    if isinstance(value, list):
        return [_bare(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {k: _bare(each, k == "properties" and not names) for k, each in value.items() if names or k != "description"}


def differences(theirs: Json, mine: Json) -> list[str]:
    found = []
    for name, schema in _bare(mine["definitions"], True).items():
        wanted = _bare(theirs["definitions"].get(name, {}))
        told, known = schema.pop(_GVK, ()), wanted.pop(_GVK, ())
        # Of what all groups have, ours tells the groups that it serves.
        if schema != wanted or [kind for kind in told if kind not in known]:
            found.append(f"{name}: {wanted} {known}, ours {schema} {told}")
    for path, item in mine["paths"].items():
        wanted = dict(_operations(theirs, theirs["paths"].get(path, {})))
        for method, operation in _operations(mine, item):
            if operation != wanted.get(method):
                found.append(f"{method} {path}: {wanted.get(method)}, ours {operation}")
    return found


def _operations(document: Json, item: Json) -> Iterator[tuple[str, Json]]:
    shared = item.get("parameters", ())
    for method, operation in item.items():
        if method == "parameters":
            continue
        told = _bare({k: each for k, each in operation.items() if k not in ("consumes", "parameters", "produces")})
        parameters = [_resolved(document, each) for each in (*shared, *operation.get("parameters", ()))]
        told["parameters"] = {each["name"]: _bare(each) for each in parameters if each["name"] not in NOT_HONOURED}
        told["produces"] = {each for each in operation["produces"] if "protobuf" not in each and "cbor" not in each}
        told["consumes"] = {each for each in operation["consumes"] if "cbor" not in each}
        yield method, told


def _resolved(document: Json, parameter: Json) -> Json:
    name = parameter.get("$ref", "").removeprefix("#/parameters/")
    return document["parameters"][name] if name else parameter


def differs(theirs: bytes, mine: bytes) -> str:
    """Where two messages differ but in the order of their fields and the layout of YAML within; "" where nowhere."""
    if theirs == mine:
        return ""
    try:
        pairs = [sorted(_fields(each), key=lambda field: field[0]) for each in (theirs, mine)]
    except (IndexError, ValueError):
        return "" if yaml.safe_load(theirs) == yaml.safe_load(mine) else f"{theirs[:300]!r}, ours {mine[:300]!r}"
    if [number for number, _ in pairs[0]] != [number for number, _ in pairs[1]]:
        return "" if _same_yaml(theirs, mine) else f"{theirs[:300]!r}, ours {mine[:300]!r}"
    for (number, one), (_, other) in zip(*pairs, strict=True):
        if one != other and not (isinstance(one, bytes) and isinstance(other, bytes)):
            return f"field {number}: {one!r}, ours {other!r}"
        if one != other and (found := differs(one, other)):  # type: ignore[arg-type]
            return "" if _same_yaml(theirs, mine) else f"{number}.{found}"
    return ""


def _same_yaml(theirs: bytes, mine: bytes) -> bool:
    try:
        return isinstance(yaml.safe_load(theirs), dict | list) and yaml.safe_load(theirs) == yaml.safe_load(mine)
    except (yaml.YAMLError, UnicodeDecodeError):
        return False


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Raises: IndexError, ValueError where this is no message."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        kind = key & 7
        if kind not in (0, 1, 2) or not key >> 3:
            raise ValueError("no message")
        if kind == 0:
            value, at = _varint(message, at)
            yield key >> 3, value
            continue
        size, at = (8, at) if kind == 1 else _varint(message, at)
        if at + size > len(message):
            raise ValueError("no message")
        yield key >> 3, message[at : at + size]
        at += size


def _varint(message: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = message[at]
        number |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return number, at

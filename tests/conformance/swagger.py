"""OpenAPI documents of two servers side by side, of version 2 and of version 3.

    python tests/conformance/swagger.py

records what upstream tells of its operations, as data/openapi_operations.json. Upstream is run by `tools/upstream`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "support")]

import needs  # noqa: E402
import openapi_told  # noqa: E402
import yaml  # noqa: E402
from asking import Ask, Server  # noqa: E402
from differences import OPENAPI  # noqa: E402

Json = dict[str, Any]
PROTOBUF = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
_GVK = "x-kubernetes-group-version-kind"
RECORDED = Path(__file__).parent / "data" / "openapi_operations.json"


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


def document(server: Server, path: str, accept: str = "application/json") -> bytes:
    return server.ask(Ask("openapi", "GET", path, accept=accept)).body


def documents_of_version_3(server: Server) -> dict[str, Json]:
    """By path, as the root lists them."""
    listed = json.loads(document(server, "/openapi/v3"))["paths"]
    return {name: json.loads(document(server, entry["serverRelativeURL"])) for name, entry in listed.items()}


def users(documents: dict[str, Json]) -> dict[str, set[str]]:
    """The group-versions (`/v1`, `apps/v1`) that tell a schema, by its name."""
    found: dict[str, set[str]] = {}
    for path, told in documents.items():
        for name in _schemas(told):
            found.setdefault(name, set()).add("/".join(["", *path.split("/")[1:]][-2:]))
    return found


# --- what differs on purpose: a view of a document for each rule ------------------------------------------------------


def _without_texts(value: Any, names: bool = False) -> Any:
    """`names`: the members are names of members, not words of a schema."""
    if isinstance(value, list):
        return [_without_texts(each) for each in value]
    if not isinstance(value, dict):
        return value
    kept = {name: each for name, each in value.items() if names or name != "description"}
    return {name: _without_texts(each, name == "properties" and not names) for name, each in kept.items()}


def _with_bare_references(value: Any) -> Any:
    if isinstance(value, list):
        return [_with_bare_references(each) for each in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == {"allOf"} and len(value["allOf"]) == 1:
        return value["allOf"][0]
    return {name: _with_bare_references(each) for name, each in value.items()}


def _with_own_parameters(told: Json) -> Json:
    shared = {"parameters": told.get("parameters", {})}
    for item in told["paths"].values():
        for each in (item, *item.values()):
            if isinstance(each, dict) and "parameters" in each:
                found = [openapi_told.resolved(shared, parameter) for parameter in each["parameters"]]
                each["parameters"] = sorted(found, key=lambda parameter: (parameter["name"], parameter["in"]))
    return {name: each for name, each in told.items() if name != "parameters"}


def _schemas(told: Json) -> Json:
    found: Json = told["definitions"] if "definitions" in told else told["components"].get("schemas", {})
    return found


def _with_kinds_of(users: dict[str, set[str]]) -> Callable[[Json], Json]:
    def view(told: Json) -> Json:
        for name, schema in _schemas(told).items():
            if len(schema.get(_GVK, ())) > 1:
                own = users[name]
                schema[_GVK] = [kind for kind in schema[_GVK] if f"{kind['group']}/{kind['version']}" in own]
        return told

    return view


def seen(told: Json, users: dict[str, set[str]]) -> Json:
    """Through all views."""
    views = {
        "texts": _without_texts,
        "untold members": _with_bare_references,
        "shared parameters": _with_own_parameters,
        "groups that do not use it": _with_kinds_of(users),
    }
    assert views.keys() == OPENAPI.keys()
    for view in views.values():
        told = view(told)
    return told


def differences(theirs: Json, mine: Json, users: dict[str, set[str]]) -> list[str]:
    theirs, mine = seen(theirs, users), seen(mine, users)
    heads = [{name: each[name] for name in _HEAD if name in each} for each in (theirs, mine)]
    pairs = {"": heads, "schema": map(_schemas, (theirs, mine)), "path": [theirs["paths"], mine["paths"]]}
    found = []
    for kind, (wanted, told) in pairs.items():
        names = [name for name in sorted(wanted.keys() | told.keys()) if wanted.get(name) != told.get(name)]
        found += [f"{kind} {name}: {wanted.get(name)}, ours {told.get(name)}" for name in names]
    return found


_HEAD = ("openapi", "swagger", "info", "security", "securityDefinitions")


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


def main() -> None:
    with needs.original() as upstream, Server(upstream["url"], upstream["token"]) as server:
        told = openapi_told.version_2(json.loads(document(server, "/openapi/v2")))
        found = openapi_told.packed(told, documents_of_version_3(server))
    RECORDED.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
    print(f"wrote {RECORDED.name}: {len(found['operations'])} operations, {len(found['documents'])} documents")


if __name__ == "__main__":
    main()

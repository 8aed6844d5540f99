"""A large list as YAML, in parts that each take a worker process a fraction of a second: whoever waits for one comes in
between. PyYAML writes some 300 KB a second."""

from __future__ import annotations

from typing import Final

import orjson

from minikube_py.api import yaml_text
from minikube_py.api.registry import Registry

PART_BYTES: Final = 64 << 10
_ITEMS: Final = b"items:\n"

Part = tuple[bool, bytes]
"""JSON, and whether it is some of a list's items alone."""


def parts(kinds: Registry, body: bytes) -> list[Part]:
    """As a job: what to write, one after the other. An object is one part, whatever its size."""
    value = orjson.loads(body)
    items = value.get("items") if isinstance(value, dict) else None
    if not isinstance(items, list) or not items:
        return [(False, body)]
    # Members are written in their order by name.
    before = {name: each for name, each in value.items() if name < "items"}
    after = {name: each for name, each in value.items() if name > "items"}
    found: list[Part] = [(False, orjson.dumps(before))] if before else []
    held: list[bytes] = []
    size = 0
    for item in items:
        held.append(orjson.dumps(item))
        size += len(held[-1])
        if size >= PART_BYTES:
            found.append((True, b",".join(held)))
            held, size = [], 0
    if held:
        found.append((True, b",".join(held)))
    first = next(at for at, (of_items, _) in enumerate(found) if of_items)
    return [*found[:first], (False, _ITEMS), *found[first:], *([(False, orjson.dumps(after))] if after else [])]


def written(kinds: Registry, of_items: bool, part: bytes) -> bytes:
    """As a job: one part as YAML."""
    if part == _ITEMS:
        return part
    return yaml_text.write(orjson.loads(b"[" + part + b"]" if of_items else part))

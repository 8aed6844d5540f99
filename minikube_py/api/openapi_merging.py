"""The whole document of version 2: the parts of this server's groups, and what other servers' documents add.

Of another server's document, what its paths need is taken. A definition or parameter that differs from the one known by
its name gets another name: `NAME_v2`, `NAME_v3`, ...

Source: kube-openapi `pkg/aggregator`; kube-aggregator `pkg/controllers/openapi/aggregator`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from itertools import count
from typing import Any, Final, NamedTuple

import orjson

from minikube_py.api.document import read_object
from minikube_py.api.openapi_v2 import GVK, Entry, Json, Part, entry, in_order, whole

FOREIGN_BYTES_MAX: Final = 4 << 20
"""Of another server's document, and of what is kept of it in either form."""
_SLICE: Final = 64
"""Entries that are looked at in one step."""
_REFERENCE: Final = re.compile(rb'"\$ref":"#/(definitions|parameters)/([^"\\]*)"')
"""In compact JSON; within a text, quotes are escaped."""
Entries = dict[str, Entry]


class Foreign(NamedTuple):
    """What another server's document adds."""

    etag: str
    paths: Entries
    definitions: Entries
    parameters: Entries


def foreign(kinds: object, body: bytes, root: str, etag: str) -> Foreign:
    """As a job: the paths that begin with `root`, and what they need. Raises: ValueError."""
    told = read_object(body, "the document")
    found = {name: told.get(name) or {} for name in ("paths", "definitions", "parameters")}
    try:
        paths, definitions, parameters = (
            {name: orjson.dumps(value) for name, value in each.items()} for each in found.values()
        )
        kept = {path: text for path, text in paths.items() if path.startswith(root)}
        there = definitions, parameters
        dropped = _needed(paths.values(), *there) - _needed(kept.values(), *there)
        made = Foreign(
            etag,
            {path: entry("PathItem", path, orjson.loads(text)) for path, text in kept.items()},
            {name: _schema(name, text) for name, text in definitions.items() if name not in dropped},
            {name: entry("Parameter", name, orjson.loads(text)) for name, text in parameters.items()},
        )
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"the document is not one of OpenAPI version 2: {error!r}") from None
    size = sum(max(map(len, each)) for entries in made[1:] for each in entries.values())
    if size > FOREIGN_BYTES_MAX:
        raise ValueError(f"what is kept of the document is longer than {FOREIGN_BYTES_MAX} bytes, the limit")
    return made


def _schema(name: str, text: bytes) -> Entry:
    """Raises: TypeError, AttributeError."""
    value = orjson.loads(text)
    sorted(map(_kind_text, value.get(GVK) or ()))
    return entry("Schema", name, value)


def _kind_text(kind: Json) -> str:
    """Raises: TypeError, AttributeError."""
    found: str = kind.get("group", "") + "/" + kind.get("version", "") + "." + kind.get("kind", "")
    return found


def _needed(texts: Iterable[bytes], definitions: Mapping[str, bytes], parameters: Mapping[str, bytes]) -> set[str]:
    """The definitions that these refer to, and those that they need."""
    named = {b"definitions": definitions, b"parameters": parameters}
    waiting, found = list(texts), set[tuple[bytes, bytes]]()
    while waiting:
        for reference in _REFERENCE.findall(waiting.pop()):
            if reference not in found:
                found.add(reference)
                of, name = reference
                waiting += [text] if (text := named[of].get(name.decode())) is not None else []
    return {name.decode() for of, name in found if of == b"definitions"}


def joining(parts: Iterable[Part], others: Iterable[Foreign] = ()) -> Generator[None, None, tuple[bytes, bytes]]:
    """The document that these make together, in JSON and in protobuf; yields between steps."""
    info: Json = {}
    known = Foreign("", {}, {}, {})
    for each in parts:
        info = info or each.info
        known.paths.update(each.paths)
        found = known.definitions
        for name, one in each.definitions.items():
            found[name] = one if name not in found or found[name] == one else _merged(name, found[name], one)
        yield
    for other in others:
        yield from _adding(known, other)
    return (yield from whole(info, *known[1:]))


def _merged(name: str, first: Entry, second: Entry) -> Entry:
    """Of messages common to all groups, each group has its own kinds."""
    kinds, told = _value(first), _value(second)
    if not (kinds.get(GVK) and told.get(GVK)):
        return second
    told[GVK] = [*kinds[GVK], *(kind for kind in told[GVK] if kind not in kinds[GVK])]
    return entry("Schema", name, in_order(told))


def _value(one: Entry) -> Any:
    (value,) = orjson.loads(b"{%b}" % one.json).values()
    return value


# --- what other servers add -----------------------------------------------------------------------------------------


def _adding(known: Foreign, other: Foreign) -> Iterator[None]:
    paths = {path: each for path, each in other.paths.items() if path not in known.paths}
    if not paths:
        return
    names: dict[tuple[bytes, bytes], bytes] = {}
    definitions = other.definitions
    if len(paths) < len(other.paths):
        texts = [{name: each.json for name, each in part.items()} for part in other[1:]]
        kept = {path: texts[0][path] for path in paths}
        dropped = _needed(texts[0].values(), *texts[1:]) - _needed(kept.values(), *texts[1:])
        definitions = {name: each for name, each in definitions.items() if name not in dropped}
    given = ((b"definitions", known.definitions, definitions), (b"parameters", known.parameters, other.parameters))
    for of, here, told in given:
        for name, new in _other_names(here, told, _value_but_kinds if of == b"definitions" else _value):
            if new != name:
                names[of, name.encode()] = new.encode()
            yield
    for of, here, told in ((b"paths", known.paths, paths), *given):
        message = {b"paths": "PathItem", b"definitions": "Schema", b"parameters": "Parameter"}[of]
        for at, (name, one) in enumerate(told.items()):
            new, renamed = _renamed(message, of, name, one, names)
            if new not in here:
                here[new] = renamed
            elif of == b"definitions":
                here[new] = _with_kinds(new, here[new], renamed)
            if at % _SLICE == 0:
                yield


def _value_but_kinds(one: Entry) -> Any:
    value = _value(one)
    value.pop(GVK, None)
    return value


def _other_names(known: Entries, told: Entries, value: Callable[[Entry], Any]) -> Iterator[tuple[str, str]]:
    """Which name each of them that is known gets: another one, unless both are alike."""
    used = known.keys() | told.keys()
    for name, one in sorted(told.items()):
        if name in known:
            wanted = value(one)
            names = (name if at == 1 else f"{name}_v{at}" for at in count(1))
            new = next(each for each in names if each not in used or (each in known and value(known[each]) == wanted))
            used.add(new)
            yield name, new


def _renamed(
    message: str, of: bytes, name: str, one: Entry, names: Mapping[tuple[bytes, bytes], bytes]
) -> tuple[str, Entry]:
    new = names.get((of, name.encode()), b"").decode() or name

    def other(found: re.Match[bytes]) -> bytes:
        return b'"$ref":"#/%b/%b"' % (found[1], names.get((found[1], found[2]), found[2]))

    text = _REFERENCE.sub(other, one.json) if names else one.json
    if text == one.json and new == name:
        return name, one
    return new, entry(message, new, _value(Entry(text, b"")))


def _with_kinds(name: str, first: Entry, second: Entry) -> Entry:
    value, more = _value(first), _value(second).get(GVK) or []
    kinds = value.get(GVK) or []
    if all(kind in kinds for kind in more):
        return first
    together = [*kinds, *(kind for kind in more if kind not in kinds)]
    value[GVK] = sorted(together, key=_kind_text)
    return entry("Schema", name, value)

"""The whole document of version 2: the parts of this server's groups, and what other servers' documents add.

Of another server's document, what its paths need is taken. A definition or parameter that differs from the one known by
its name gets another name: `NAME_v2`, `NAME_v3`, ...

Source: kube-openapi `pkg/aggregator`; kube-aggregator `pkg/controllers/openapi/aggregator`.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from itertools import count
from typing import Any, Final, NamedTuple, TypeVar

import orjson

from minikube_py.api.document import object_of, objects, read_object
from minikube_py.api.errors import bad_request
from minikube_py.api.openapi_v2 import GVK, Entry, Json, Part, entry, in_order, whole
from minikube_py.env import at_once
from minikube_py.errors import shown

log = logging.getLogger(__name__)
FOREIGN_BYTES_MAX: Final = 4 << 20
"""Of another server's document, and of what is kept of it in either form."""
ENTRIES_MAX: Final = 20_000
"""Paths, definitions and parameters of another server's document."""
VALUES_MAX: Final = 20_000
"""JSON values in one of these: it is encoded again in one step if what it refers to is renamed."""
DEPTH_MAX: Final = 100
"""Levels of one of these, which takes up to four calls for each."""
KINDS_MAX: Final = 1000
"""Of a definition in another server's document."""
SHARED_KINDS_MAX: Final = 2 * KINDS_MAX
"""Of a definition that servers share."""
STEP_BYTES: Final = 16 << 10
"""Of JSON that is looked at in one step, and one entry beyond."""
_AT_LEAST_BYTES: Final = 64
"""That an entry counts as, however short it is."""
_T = TypeVar("_T")
_REFERENCE: Final = re.compile(rb'"\$ref":"#/(definitions|parameters)/([^"\\]*)"')
"""In compact JSON; within a text, quotes are escaped."""
_NOT_ONE: Final = "the document is not one of OpenAPI version 2"
Entries = dict[str, Entry]


class Foreign(NamedTuple):
    """What another server's document adds."""

    etag: str
    paths: Entries
    definitions: Entries
    parameters: Entries


def foreign(kinds: object, body: bytes, root: str, etag: str) -> Foreign:
    """As a job: the paths that begin with `root`, and what they need. Raises: StatusError 400, and nothing else."""
    try:
        return _read(_bounded(read_object(body, "the document")), root, etag)
    except ValueError as error:
        raise bad_request(str(error)) from None


def _bounded(told: Json) -> dict[str, Json]:
    """Raises: ValueError."""
    found = {name: told.get(name) or {} for name in ("paths", "definitions", "parameters")}
    if not all(isinstance(each, dict) for each in found.values()):
        raise ValueError(f"{_NOT_ONE}: paths, definitions and parameters are objects")
    if sum(map(len, found.values())) > ENTRIES_MAX:
        raise ValueError(f"the document has more than {ENTRIES_MAX} paths, definitions and parameters, the limit")
    for of, entries in found.items():
        for name, value in entries.items():
            what = f"{shown(name)} in the {of} of the document"
            _check_form(what, value)
            if len(objects(object_of(value), GVK)) > KINDS_MAX:
                raise ValueError(f"{what} has more than {KINDS_MAX} kinds, the limit")
    return found


def _check_form(what: str, value: Any) -> None:
    """Raises: ValueError."""
    depth, values, level = 0, 0, [value]
    while level:
        depth, values = depth + 1, values + len(level)
        if depth > DEPTH_MAX:
            raise ValueError(f"{what} has more than {DEPTH_MAX} levels, the limit")
        if values > VALUES_MAX:
            raise ValueError(f"{what} has more than {VALUES_MAX} values, the limit")
        level = [each for one in level for each in _within(one)]


def _within(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def _read(found: Mapping[str, Json], root: str, etag: str) -> Foreign:
    """Raises: ValueError."""
    try:
        made = _made(found, root, etag)
    except Exception as error:
        # Whatever comes of a value of another type than it should be, wherever it is.
        raise ValueError(f"{_NOT_ONE}: {type(error).__name__}: {shown(str(error))}") from None
    size = sum(max(map(len, each)) for entries in made[1:] for each in entries.values())
    if size > FOREIGN_BYTES_MAX:
        raise ValueError(f"what is kept of the document is longer than {FOREIGN_BYTES_MAX} bytes, the limit")
    return made


def _made(found: Mapping[str, Json], root: str, etag: str) -> Foreign:
    paths, definitions, parameters = (
        {name: orjson.dumps(value) for name, value in each.items()} for each in found.values()
    )
    kept = {path: text for path, text in paths.items() if path.startswith(root)}
    there = definitions, parameters
    dropped = at_once(_needed(paths.values(), *there)) - at_once(_needed(kept.values(), *there))
    return Foreign(
        etag,
        {path: entry("PathItem", path, orjson.loads(text)) for path, text in kept.items()},
        {name: _schema(name, text) for name, text in definitions.items() if name not in dropped},
        {name: entry("Parameter", name, orjson.loads(text)) for name, text in parameters.items()},
    )


def _schema(name: str, text: bytes) -> Entry:
    """Raises: TypeError, AttributeError."""
    value = orjson.loads(text)
    sorted(map(_kind_text, value.get(GVK) or ()))
    return entry("Schema", name, value)


def _kind_text(kind: Json) -> str:
    """Raises: TypeError, AttributeError."""
    found: str = kind.get("group", "") + "/" + kind.get("version", "") + "." + kind.get("kind", "")
    return found


class _Work:
    """How much has been looked at since others had their turn."""

    def __init__(self) -> None:
        self._bytes = 0

    def is_due(self, *looked_at: bytes) -> bool:
        """Whether it is time for a turn of others, after these."""
        self._bytes += sum(max(len(each), _AT_LEAST_BYTES) for each in looked_at)
        due = self._bytes >= STEP_BYTES
        if due:
            self._bytes = 0
        return due


def _needed(
    texts: Iterable[bytes], definitions: Mapping[str, bytes], parameters: Mapping[str, bytes]
) -> Generator[None, None, set[str]]:
    """The definitions that these refer to, and those that they need."""
    named = {b"definitions": definitions, b"parameters": parameters}
    waiting, found, work = list(texts), set[tuple[bytes, bytes]](), _Work()
    while waiting:
        looked_at = waiting.pop()
        for reference in _REFERENCE.findall(looked_at):
            if reference not in found:
                found.add(reference)
                of, name = reference
                waiting += [text] if (text := named[of].get(name.decode())) is not None else []
        if work.is_due(looked_at):
            yield
    return {name.decode() for of, name in found if of == b"definitions"}


def joining(parts: Iterable[Part], others: Iterable[Foreign] = ()) -> Generator[None, None, tuple[bytes, bytes]]:
    """The document that these make together, in JSON and in protobuf; yields between steps. Another server's that
    cannot be merged is left out with a warning."""
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
        try:
            yield from _adding(known, other)
        except Exception as error:
            why = f"{type(error).__name__}: {shown(str(error))}"
            log.warning("another server's document, which has %s, is left out: %s", shown(next(iter(other.paths))), why)
    return (yield from whole(info, *known[1:]))


def _merged(name: str, first: Entry, second: Entry) -> Entry:
    """Of messages common to all groups, each group has its own kinds."""
    kinds, told = _value(first), _value(second)
    if not (kinds.get(GVK) and told.get(GVK)):
        return second
    told[GVK] = _together(kinds[GVK], told[GVK])
    return entry("Schema", name, in_order(told))


def _together(first: list[Json], second: list[Json]) -> list[Json]:
    seen = set(map(_kind_text, first))
    return [*first, *(kind for kind in second if _kind_text(kind) not in seen)]


def _value(one: Entry) -> Any:
    (value,) = orjson.loads(b"{%b}" % one.json).values()
    return value


# --- what other servers add -----------------------------------------------------------------------------------------


def _adding(known: Foreign, other: Foreign) -> Iterator[None]:
    """Adds all, or nothing if it raises."""
    paths = {path: each for path, each in other.paths.items() if path not in known.paths}
    if not paths:
        return
    names: dict[tuple[bytes, bytes], bytes] = {}
    definitions, work = other.definitions, _Work()
    if len(paths) < len(other.paths):
        texts = [{name: each.json for name, each in part.items()} for part in other[1:]]
        kept = {path: texts[0][path] for path in paths}
        of_all = yield from _needed(texts[0].values(), *texts[1:])
        dropped = of_all - (yield from _needed(kept.values(), *texts[1:]))
        definitions = {name: each for name, each in definitions.items() if name not in dropped}
    given = ((b"definitions", known.definitions, definitions), (b"parameters", known.parameters, other.parameters))
    for of, here, told in given:
        found = yield from _other_names(here, told, _value_but_kinds if of == b"definitions" else _value, work)
        names |= {(of, name.encode()): new.encode() for name, new in found.items() if new != name}
    added: list[tuple[Entries, Entries]] = []
    for of, here, told in ((b"paths", known.paths, paths), *given):
        message = {b"paths": "PathItem", b"definitions": "Schema", b"parameters": "Parameter"}[of]
        made: Entries = {}
        for name, one in told.items():
            new, renamed = _renamed(message, of, name, one, names)
            first = made.get(new) or here.get(new)
            if first is None:
                made[new] = renamed
            elif of == b"definitions":
                made[new] = _with_kinds(new, first, renamed)
            if work.is_due(one.json, b"" if first is None else first.json):
                yield
        added.append((here, made))
    for here, made in added:
        here.update(made)


def _value_but_kinds(one: Entry) -> Any:
    value = _value(one)
    value.pop(GVK, None)
    return value


def _other_names(
    known: Entries, told: Entries, value: Callable[[Entry], Any], work: _Work
) -> Generator[None, None, dict[str, str]]:
    """Which name each of them that is known gets: another one, unless both are alike."""
    used, found = known.keys() | told.keys(), dict[str, str]()
    for name, one in sorted(told.items()):
        if name not in known:
            continue
        wanted = value(one)
        if work.is_due(one.json):
            yield
        for at in count(1):
            new = name if at == 1 else f"{name}_v{at}"
            there = known.get(new)
            alike = there is not None and value(there) == wanted
            if work.is_due(b"" if there is None else there.json):
                yield
            if alike or new not in used:
                break
        used.add(new)
        found[name] = new
    return found


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
    together = _together(kinds, more)
    if len(together) == len(kinds):
        return first
    if len(together) > SHARED_KINDS_MAX:
        raise ValueError(f"{shown(name)} would have more than {SHARED_KINDS_MAX} kinds, the limit")
    value[GVK] = sorted(together, key=_kind_text)
    return entry("Schema", name, value)

"""Index declarations: the content of a `DeclareIndex` command, and its checks.

A declaration contains nothing that could differ between members: whether a structure of that name can be built is
checked when a request arrives (`index.catalogue`), and a member that cannot build it answers without it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, get_args

import orjson

from minikube_py.errors import InvalidRequest
from minikube_py.fields.evaluate import check_field_set
from minikube_py.fields.extract import MAX_MEMBERS, NEWEST_EXTRACTORS, SUMS
from minikube_py.fields.spec import FieldSet, FieldSpec, Kind, SumSpec

INDEXES_PREFIX: Final = b"/minikube-py/indexes/"
"""Each declaration is stored as JSON under a key with this prefix; clients cannot write there."""
MAX_INDEXES: Final = 64
MAX_FIELDS: Final = 16
MAX_OPTIONS: Final = 16
MAX_DECLARED: Final = 32
MAX_TEXT: Final = 1024
MEMORY_LIMIT_BYTES: Final = 256 << 20
MEMORY_LIMIT_BYTES_MIN: Final = 64 << 10
MEMORY_LIMIT_BYTES_MAX: Final = 1 << 40

_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?")
_STRUCTURE: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.:]{0,61}[A-Za-z0-9])?")
_KINDS: Final = frozenset(get_args(Kind))

Option = int | str


@dataclass(frozen=True, slots=True)
class IndexSpec:
    """An index over `fields` of the objects of the FieldSet `on`, kept in a `structure` with `options`.

    `declares` and `sums`: fields beyond those the FieldSet has. Above `memory_limit_bytes` the structure is dropped and
    the index degraded: its queries are answered without it."""

    name: str
    on: str
    fields: tuple[str, ...]
    structure: str
    options: Mapping[str, Option] = field(default_factory=dict)
    memory_limit_bytes: int = MEMORY_LIMIT_BYTES
    declares: tuple[FieldSpec, ...] = ()
    sums: tuple[SumSpec, ...] = ()


def key_of(name: str) -> bytes:
    """The key of the declaration of index `name`."""
    return INDEXES_PREFIX + name.encode()


def check_spec(spec: IndexSpec) -> None:
    """Raises: InvalidRequest if the declaration is invalid in any state."""
    if not _NAME.fullmatch(spec.name):
        raise InvalidRequest(
            f"index name {spec.name[:80]!r}: use up to 63 lower-case letters, digits, '-' and '.', "
            "beginning and ending with a letter or digit"
        )
    if not spec.on or len(spec.on) > MAX_TEXT:
        raise InvalidRequest(f"index {spec.name}: `on` must name a resource, such as nodes")
    if not 1 <= len(spec.fields) <= MAX_FIELDS:
        raise InvalidRequest(f"index {spec.name} has {len(spec.fields)} fields; it needs 1 to {MAX_FIELDS}")
    for name in spec.fields:
        if not name or len(name) > MAX_TEXT:
            raise InvalidRequest(f"index {spec.name}: a field's name has 1 to {MAX_TEXT} characters")
        if name.endswith("*"):
            raise InvalidRequest(f"index {spec.name}: {name} is a family of fields; name one of its members")
    if len(set(spec.fields)) < len(spec.fields):
        raise InvalidRequest(f"index {spec.name}: a field is given more than once in {', '.join(spec.fields)}")
    if not _STRUCTURE.fullmatch(spec.structure):
        raise InvalidRequest(f"index {spec.name}: {spec.structure[:80]!r} is not a structure's name")
    if len(spec.options) > MAX_OPTIONS or any(len(str(value)) > MAX_TEXT for value in spec.options.values()):
        raise InvalidRequest(f"index {spec.name}: at most {MAX_OPTIONS} options of at most {MAX_TEXT} characters")
    if not MEMORY_LIMIT_BYTES_MIN <= spec.memory_limit_bytes <= MEMORY_LIMIT_BYTES_MAX:
        raise InvalidRequest(
            f"index {spec.name}: a memory limit of {spec.memory_limit_bytes} bytes; it must be from "
            f"{MEMORY_LIMIT_BYTES_MIN} to {MEMORY_LIMIT_BYTES_MAX}"
        )
    if len(spec.declares) > MAX_DECLARED or len(spec.sums) > MAX_DECLARED:
        raise InvalidRequest(f"index {spec.name} declares more than {MAX_DECLARED} fields or sums, which is the limit")
    try:
        dump(spec)
    except (UnicodeError, TypeError) as error:
        raise InvalidRequest(f"index {spec.name} is not valid JSON in UTF-8: {error}") from None


def check_against(
    spec: IndexSpec, base: FieldSet, others: Sequence[IndexSpec], version: int = NEWEST_EXTRACTORS
) -> None:
    """Raises: InvalidRequest if `spec` uses unknown fields, or redeclares existing ones with another meaning; `others`
    are the indexes on the same FieldSet."""
    known = extended(base, others)
    for added in spec.declares:
        taken = known.find(added.name)
        if taken is not None and taken != added:
            raise InvalidRequest(
                f"index {spec.name}: field {added.name} is declared on {spec.on} already with another definition"
            )
    sums = {each.name: each for each in known.sums}
    for total in spec.sums:
        if sums.get(total.name, total) != total:
            raise InvalidRequest(
                f"index {spec.name}: sum {total.name} is declared on {spec.on} already with another definition"
            )
    fields = (*known.fields, *(each for each in spec.declares if known.find(each.name) is None))
    totals = (*known.sums, *(each for each in spec.sums if each.name not in sums))
    whole = FieldSet(base.name, base.prefix, fields, totals)
    check_field_set(whole, version)
    for name in spec.fields:
        if whole.find(name) is None:
            declared = ", ".join(sorted(each.name for each in whole.fields)) or "none"
            raise InvalidRequest(
                f"index {spec.name}: field {name!r} is not declared on {spec.on}, nor by the index itself; "
                f"declared: {declared}"
            )


def extended(base: FieldSet, specs: Iterable[IndexSpec]) -> FieldSet:
    """`base` with the fields and sums that `specs`, in order of their names, add. Fields of `base` are unchanged; those
    that no longer fit a redeclared `base` are omitted."""
    fields, sums = list(base.fields), list(base.sums)
    found = base
    known_sums = {each.name for each in sums}
    for spec in sorted(specs, key=lambda each: each.name):
        for total in spec.sums:
            if total.name not in known_sums and len(sums) < MAX_MEMBERS:
                known_sums.add(total.name)
                sums.append(total)
        for added in spec.declares:
            used = added.args.get("sum") if added.extractor in SUMS else added.minus
            if found.find(added.name) is None and len(fields) < MAX_MEMBERS and (used is None or used in known_sums):
                fields.append(added)
                found = FieldSet(base.name, base.prefix, tuple(fields), tuple(sums))
    if len(fields) == len(base.fields) and len(sums) == len(base.sums):
        return base
    return FieldSet(base.name, base.prefix, tuple(fields), tuple(sums))


def declared_since(
    base: FieldSet, standing: Iterable[tuple[IndexSpec, int]], parts: Iterable[FieldSpec | SumSpec]
) -> int:
    """The revision since which all `parts` have had their meaning; 0 if `base` itself has them.

    `standing`: the indexes on it, each with the revision of its declaration. One of them declares what `base` does not
    have; of several the first."""
    since = 0
    own, indexes = (*base.fields, *base.sums), list(standing)
    for part in parts:
        if part not in own:
            since = max(since, min(at for spec, at in indexes if part in spec.declares or part in spec.sums))
    return since


# -- as JSON -----------------------------------------------------------------------------------------------------------


def to_json(spec: IndexSpec) -> dict[str, Any]:
    """The declaration as a JSON object, as stored under its key and in the log."""
    return {
        "name": spec.name,
        "on": spec.on,
        "fields": list(spec.fields),
        "structure": spec.structure,
        "options": dict(sorted(spec.options.items())),
        "memoryLimitBytes": spec.memory_limit_bytes,
        "declares": [
            {
                "name": each.name,
                "kind": each.kind,
                "extractor": each.extractor,
                "args": dict(sorted(each.args.items())),
                **({} if each.minus is None else {"minus": each.minus}),
            }
            for each in spec.declares
        ],
        "sums": [
            {
                "name": each.name,
                "sourcePrefix": each.source_prefix.decode(),
                "reference": each.reference,
                "extractor": each.extractor,
                "args": dict(sorted(each.args.items())),
            }
            for each in spec.sums
        ],
    }


def from_json(value: Any) -> IndexSpec:
    """Parses the output of `to_json`, or JSON written by hand: `options`, `memoryLimitBytes`, `declares`, `sums` and
    `args` are optional. Raises: InvalidRequest that names the invalid part."""
    known = ("name", "on", "fields", "structure", "options", "memoryLimitBytes", "declares", "sums")
    given = _object(value, "the declaration of an index", known)
    spec = IndexSpec(
        _text(given, "name"),
        _text(given, "on"),
        tuple([_is_text(each, "fields") for each in _list(given, "fields")]),
        _text(given, "structure"),
        {name: _option(name, option) for name, option in _object(given.get("options", {}), "options").items()},
        _integer(given.get("memoryLimitBytes", MEMORY_LIMIT_BYTES), "memoryLimitBytes"),
        tuple([_field_spec(each) for each in _list(given, "declares", optional=True)]),
        tuple([_sum_spec(each) for each in _list(given, "sums", optional=True)]),
    )
    check_spec(spec)
    return spec


def dump(spec: IndexSpec) -> bytes:
    return orjson.dumps(to_json(spec))


def parse(data: bytes) -> IndexSpec:
    """Raises: InvalidRequest."""
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise InvalidRequest(f"the declaration of an index is not JSON: {error}") from None
    return from_json(value)


def _field_spec(value: Any) -> FieldSpec:
    given = _object(value, "a field in `declares`", ("name", "kind", "extractor", "args", "minus"))
    kind = _text(given, "kind")
    if kind not in _KINDS:
        raise InvalidRequest(f"field {_text(given, 'name')}: kind {kind!r} is none of {', '.join(sorted(_KINDS))}")
    minus = given.get("minus")
    return FieldSpec(
        _text(given, "name"),
        kind,  # type: ignore[arg-type]
        _text(given, "extractor"),
        _args(given),
        None if minus is None else _is_text(minus, "minus"),
    )


def _sum_spec(value: Any) -> SumSpec:
    given = _object(value, "a sum in `sums`", ("name", "sourcePrefix", "reference", "extractor", "args"))
    prefix = _text(given, "sourcePrefix").encode("utf-8", "surrogatepass")
    return SumSpec(_text(given, "name"), prefix, _text(given, "reference"), _text(given, "extractor"), _args(given))


def _args(given: Mapping[str, Any]) -> dict[str, str]:
    return {name: _is_text(value, f"args.{name}") for name, value in _object(given.get("args", {}), "args").items()}


def _object(value: Any, what: str, known: Sequence[str] = ()) -> dict[str, Any]:
    if not isinstance(value, dict) or not all(isinstance(name, str) for name in value):
        raise InvalidRequest(f"{what} must be a JSON object")
    unknown = sorted(value.keys() - set(known)) if known else []
    if unknown:
        raise InvalidRequest(f"{what} has no {unknown[0]!r}; it has {', '.join(known)}")
    return value


def _list(given: Mapping[str, Any], name: str, *, optional: bool = False) -> Sequence[Any]:
    value = given.get(name, [] if optional else None)
    if not isinstance(value, list | tuple):
        raise InvalidRequest(f"{name} must be a list")
    return value


def _text(given: Mapping[str, Any], name: str) -> str:
    if name not in given:
        raise InvalidRequest(f"{name} is missing")
    return _is_text(given[name], name)


def _is_text(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise InvalidRequest(f"{name} must be a text, not {type(value).__name__}")
    return value


def _integer(value: Any, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidRequest(f"{name} must be a whole number")
    return value


def _option(name: str, value: Any) -> Option:
    if isinstance(value, str):
        return value
    return _integer(value, f"option {name}")

"""Declarations in text form: parses the fields and sums of an index.

    free.cpu                                    already declared
    metadata.creationTimestamp                  a path; its kind is that of the schema
    metadata.labels["pool"]:int                 a path and its kind: int, quantity, string or time
    pool=metadata.labels["pool"]                an alias for it
    requested.cpu                               a member of a sum that is also declared
    left=status.capacity["cpu"] minus requested.cpu

    requested.*=pods:spec.nodeName:pod_requests@2           a sum: NAME=RESOURCE:REFERENCE:EXTRACTOR
    tasks=pods:spec.nodeName:path@1(path=spec.priority)     with arguments of the extractor

All errors are InvalidRequest, with the fault and the correct form."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from difflib import get_close_matches
from functools import lru_cache
from typing import Final, NamedTuple, cast, get_args

from minikube_py.errors import InvalidRequest
from minikube_py.fields import quantity
from minikube_py.fields.extract import SUMS, check, newest
from minikube_py.fields.paths import Path, parse_path, path_text
from minikube_py.fields.spec import FieldSet, FieldSpec, Kind, SumSpec
from minikube_py.fields.times import time_text
from minikube_py.fields.where import resource_of

KINDS: Final[tuple[str, ...]] = get_args(Kind)
MAX_FIELDS: Final = 16
"""Limit of fields per index. More would hardly narrow a query, and each costs memory for every object."""
MAX_SUMS: Final = 8

_READS: Final[Mapping[Kind, frozenset[str]]] = {
    "string": frozenset(KINDS),
    "int": frozenset(("int", "quantity", "string")),
    "quantity": frozenset(("quantity", "string")),
    "time": frozenset(("time", "string")),
}
"""The kinds as which a value of each kind may be read."""

KindAt = Callable[[Path], Kind]
"""The kind of the value at a path. Raises: InvalidRequest if there can be none."""

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:[-./][A-Za-z0-9_]+)*", re.ASCII)
_SUM_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:[-./][A-Za-z0-9_]+)*(?:\.\*)?", re.ASCII)
_EXTRACTOR: Final = re.compile(r"([a-z0-9_]+(?:@\d+)?)(?:\((.*)\))?", re.ASCII | re.DOTALL)
_RESOURCES: Final = ("cpu", "memory", "ephemeral-storage", "pods")
_MINUS: Final = re.compile(r"\s+minus\s+")
_TIMES: Final = ("Timestamp", "Time")
_OBJECT_PARTS: Final = ("metadata", "spec", "status")
_SUM_FORM: Final = "write NAME=RESOURCE:REFERENCE:EXTRACTOR, as requested.*=pods:spec.nodeName:pod_requests@2"


class Source(NamedTuple):
    """A resource whose objects a sum may run over: where they are stored, and their schema."""

    prefix: bytes
    kind_at: KindAt


class Declaration(NamedTuple):
    """`fields`: names, in the given order. `declares` and `sums`: those not in the field set itself."""

    fields: tuple[str, ...]
    declares: tuple[FieldSpec, ...]
    sums: tuple[SumSpec, ...]


def guessed_kind(path: Path) -> Kind:
    """From the name alone: times in Kubernetes' objects end in Time or Timestamp; everything else is text."""
    last = path[-1]
    in_map = path[:2] in (("metadata", "labels"), ("metadata", "annotations"))
    return "time" if isinstance(last, str) and last.endswith(_TIMES) and not in_map else "string"


def read_declaration(
    known: FieldSet,
    fields: Sequence[str],
    sums: Sequence[str] = (),
    sources: Mapping[str, Source] | None = None,
    kind_at: KindAt = guessed_kind,
    others: FieldSet | None = None,
) -> Declaration:
    """Each of `fields` may contain several names, separated by commas. `others`: `known` and the additional
    declarations of other indexes, which may be named too and are then declared again, because the others may be
    dropped. Raises: InvalidRequest."""
    others = others or known
    new_sums = _read_sums(others, sums, sources or {})
    all_sums = {spec.name: spec for spec in (*others.sums, *new_sums)}
    items = [item.strip() for text in fields for item in split_outside(text, ",")]
    if not any(items):
        raise InvalidRequest("an index needs a field: name those that are compared, as free.cpu,free.memory")
    if "" in items:
        raise InvalidRequest(f"fields {','.join(items)!r}: there is an empty one; take the comma too many away")
    if len(items) > MAX_FIELDS:
        raise InvalidRequest(f"an index has at most {MAX_FIELDS} fields, this one {len(items)}")
    names: list[str] = []
    declares: list[FieldSpec] = []
    for item in items:
        name, spec = _read_field(others, all_sums, kind_at, item)
        there = others.find(name)
        if there is not None and there != spec:
            other = f"is declared on {known.name} already, as {field_text(there)}: choose another name"
            raise InvalidRequest(f"field {item!r}: {name} {other}")
        if name in names:
            raise InvalidRequest(f"field {item!r} is named twice")
        names.append(name)
        if known.find(name) is None:
            declares.append(spec)
    used = {_sum_used(spec) for spec in declares}
    for total in new_sums:
        if total.name not in used:
            example = total.name.replace("*", "cpu")
            raise InvalidRequest(f"sum {total.name} is used by no field: add one, as {example}, or leave the sum out")
    own = {spec.name for spec in known.sums}
    return Declaration(tuple(names), tuple(declares), tuple(all_sums[name] for name in all_sums if name in used - own))


def _sum_used(spec: FieldSpec) -> str | None:
    return spec.args["sum"] if spec.extractor in SUMS else spec.minus


# --- fields ---------------------------------------------------------------------------------------------------------


def _read_field(known: FieldSet, sums: Mapping[str, SumSpec], kind_at: KindAt, item: str) -> tuple[str, FieldSpec]:
    alias, text = _split_alias(item)
    text, *minus = _MINUS.split(text)
    if len(minus) > 1:
        raise InvalidRequest(f"field {item!r}: one sum can be taken off, not {len(minus)}")
    text, kind = _split_kind(item, text)
    if not alias and not minus:
        declared = find_field(known, text)
        if declared is not None:
            name, spec = declared
            if kind not in (None, spec.kind):
                raise InvalidRequest(f"field {name} is declared on {known.name} as {spec.kind}: leave :{kind} away")
            if spec.name.endswith("*"):
                _check_resource(name, name[len(spec.name) - 1 :])
            return name, spec
    member = _member(sums, text)
    if member is not None and not minus:
        if kind not in (None, "quantity"):
            raise InvalidRequest(f"field {text} is a sum, which is a quantity: leave :{kind} away")
        return alias or text, FieldSpec(alias or text, "quantity", "sum@2", {"sum": member[0], "resource": member[1]})
    if text.endswith(".*") and (known.find(text) or text in sums):
        raise InvalidRequest(f"field {item!r}: that is a family of fields: name its members, as {text[:-1]}cpu")
    path = _read_path(known, sums, item, text)
    name = alias or path_text(path)
    held = _kind_at(known, sums, kind_at, path)
    found: Kind = kind or ("quantity" if minus else held)
    if found not in _READS[held]:
        may = " or ".join(each for each in KINDS if each in _READS[held])
        raise InvalidRequest(f"field {item!r}: its value ({held}) does not read as {found}, only as {may}")
    if minus:
        return name, _difference(item, name, path, found, sums, minus[0])
    args = {"path": path_text(path)}
    if found == "quantity":
        args["resource"] = str(path[-1])
    return name, FieldSpec(name, found, "path@1", args)


def _split_alias(item: str) -> tuple[str, str]:
    alias, *rest = split_outside(item, "=", 1)
    if not rest:
        return "", item
    alias = alias.strip()
    if not _NAME.fullmatch(alias):
        raise InvalidRequest(
            f"field {item!r}: {alias!r} is not a name; use letters, digits, and ./-_ inside, such as pool.size"
        )
    if alias.split(".")[0] in _OBJECT_PARTS:
        raise InvalidRequest(f"field {item!r}: {alias!r} would look like a path; choose a name that does not begin so")
    return alias, rest[0].strip()


def _split_kind(item: str, text: str) -> tuple[str, Kind | None]:
    text, *kinds = (part.strip() for part in split_outside(text, ":"))
    if not kinds:
        return text, None
    if len(kinds) > 1 or kinds[0] not in KINDS:
        wrong = ":".join(kinds)
        raise InvalidRequest(f"field {item!r}: no kind {wrong!r}{_instead(wrong, KINDS)}; kinds are {', '.join(KINDS)}")
    return text, cast(Kind, kinds[0])


def _read_path(known: FieldSet, sums: Collection[str], item: str, text: str) -> Path:
    try:
        return parse_path(text)
    except InvalidRequest as wrong:
        raise InvalidRequest(f"field {item!r}: {wrong}; {_what_there_is(known, sums)}") from None


def _kind_at(known: FieldSet, sums: Collection[str], kind_at: KindAt, path: Path) -> Kind:
    try:
        return kind_at(path)
    except InvalidRequest as wrong:
        raise InvalidRequest(f"{wrong}; {_what_there_is(known, sums)}") from None


def _difference(item: str, name: str, path: Path, kind: Kind, sums: Mapping[str, SumSpec], taken: str) -> FieldSpec:
    member = _member(sums, taken.strip())
    if member is None:
        there = ", ".join(sums) or "none; declare one beside it"
        raise InvalidRequest(f"field {item!r}: no sum {taken.strip()!r} to take off; sums are: {there}")
    if kind != "quantity":
        raise InvalidRequest(f"field {item!r}: a sum is taken off a quantity, not off a {kind}: leave :{kind} away")
    return FieldSpec(name, "quantity", "path@1", {"path": path_text(path), "resource": member[1]}, member[0])


def _member(sums: Mapping[str, SumSpec], name: str) -> tuple[str, str] | None:
    """The sum that `name` is or is a member of, and the resource that defines its unit."""
    spec = sums.get(name)
    if spec is not None and not name.endswith("*"):
        return name, spec.args.get("resource", "")
    for each in sums:
        if each.endswith("*") and name.startswith(each[:-1]) and len(name) >= len(each):
            return each, name[len(each) - 1 :]
    return None


def _check_resource(name: str, resource: str) -> None:
    if resource not in _RESOURCES and not re.match(".+/|hugepages-|attachable-volumes-", resource):
        hint = f"no resource {resource!r}{_instead(resource, _RESOURCES)}"
        raise InvalidRequest(f"field {name}: {hint}; extended resources have a domain, as nvidia.com/gpu")


def find_field(known: FieldSet, text: str) -> tuple[str, FieldSpec] | None:
    """The declared field that `text` names, in any notation of its path, and its name."""
    name = text if known.find(text) else _canonical(text)
    spec = known.find(name) if name else None
    return (name, spec) if name and spec is not None and not text.endswith("*") else None


@lru_cache(maxsize=4096)
def _canonical(text: str) -> str:
    try:
        return path_text(parse_path(text))
    except InvalidRequest:
        return ""


def _what_there_is(known: FieldSet, sums: Collection[str]) -> str:
    declared = [spec.name for spec in known.fields] + [name for name in sums if known.find(name) is None]
    there = f"declared on {known.name}: {', '.join(declared)}; or give" if declared else "give"
    return f'{there} a path that {known.name} have, such as metadata.labels["pool"], with its kind where needed (:int)'


# --- sums -----------------------------------------------------------------------------------------------------------


def _read_sums(known: FieldSet, texts: Sequence[str], sources: Mapping[str, Source]) -> list[SumSpec]:
    if len(texts) > MAX_SUMS:
        raise InvalidRequest(f"an index has at most {MAX_SUMS} sums, this one {len(texts)}")
    declared = {spec.name: spec for spec in known.sums}
    found: dict[str, SumSpec] = {}
    for text in texts:
        spec = _read_sum(text.strip(), sources)
        there = declared.get(spec.name) or found.get(spec.name)
        if there is None:
            if known.find(spec.name) is not None:
                raise InvalidRequest(f"sum {text!r}: {known.name} has a field {spec.name}; choose another name")
            found[spec.name] = spec
        elif there != spec:
            raise InvalidRequest(
                f"sum {spec.name} is declared already, as {sum_text(there, sources)}: choose another name"
            )
    return list(found.values())


def _read_sum(text: str, sources: Mapping[str, Source]) -> SumSpec:
    name, *rest = split_outside(text, "=", 1)
    name = name.strip()
    if not rest:
        raise InvalidRequest(f"sum {text!r}: {_SUM_FORM}")
    if not _SUM_NAME.fullmatch(name) or name.split(".")[0] in _OBJECT_PARTS:
        raise InvalidRequest(f"sum {text!r}: {name!r} is not a name for a sum; use requested.* or tasks, for example")
    parts = [part.strip() for part in split_outside(rest[0], ":")]
    if len(parts) != 3:
        raise InvalidRequest(f"sum {text!r}: {len(parts)} of 3 parts after the name; {_SUM_FORM}")
    plural, reference, extractor = parts
    source = sources.get(plural)
    if source is None:
        there = ", ".join(sorted(sources)) or "none"
        raise InvalidRequest(f"sum {text!r}: no resource {plural!r}{_instead(plural, sources)}; there are {there}")
    try:
        path = parse_path(reference)
        if source.kind_at(path) != "string":
            raise InvalidRequest(f"{plural} hold no name at {reference!r}")
    except InvalidRequest as wrong:
        raise InvalidRequest(f"sum {text!r}: {wrong}; the reference is a path to a name, as spec.nodeName") from None
    known, args = _read_extractor(text, extractor)
    try:
        check(known, args, "quantity", name.endswith("*"))
    except InvalidRequest as wrong:
        raise InvalidRequest(f"sum {text!r}: {wrong}") from None
    if known in SUMS:
        raise InvalidRequest(f"sum {text!r}: a sum cannot be of sums; as pod_requests@2 or count@1")
    return SumSpec(name, source.prefix, path_text(path), known, args)


def _read_extractor(text: str, extractor: str) -> tuple[str, dict[str, str]]:
    match = _EXTRACTOR.fullmatch(extractor)
    if match is None:
        raise InvalidRequest(
            f"sum {text!r}: {extractor!r} is not an extractor; use path@1(path=spec.size), for example"
        )
    name, listed = match.groups()
    if "@" not in name:
        raise InvalidRequest(f"sum {text!r}: extractors have a version: {newest(name)}")
    args: dict[str, str] = {}
    for item in split_outside(listed, ",") if listed else ():
        key, *value = split_outside(item, "=", 1)
        if not value or key.strip() in args:
            raise InvalidRequest(f"sum {text!r}: argument {item.strip()!r}: write each once, as path=spec.size")
        args[key.strip()] = value[0].strip()
    return name, args


# --- back to text ---------------------------------------------------------------------------------------------------


def field_text(spec: FieldSpec) -> str:
    """A declared field in the syntax of `read_declaration`; the bare name if only code can declare it."""
    if spec.extractor != "path@1" or "default" in spec.args:
        return spec.name
    path = spec.args["path"]
    text = path if spec.name == path else f"{spec.name}={path}"
    if spec.minus is None:
        return f"{text}:{spec.kind}"
    return f"{text} minus {spec.minus.replace('*', spec.args.get('resource', ''))}"


def value_text(spec: FieldSpec, name: str, value: int | str) -> str:
    """A value of the field `name` in text form."""
    if isinstance(value, str):
        return value
    if spec.kind == "quantity":
        return quantity.resource_text(resource_of(spec, name), value)
    return time_text(value) if spec.kind == "time" else str(value)


def sum_text(spec: SumSpec, sources: Mapping[str, Source]) -> str:
    plural = next((name for name, source in sources.items() if source.prefix == spec.source_prefix), "")
    args = ",".join(f"{key}={value}" for key, value in spec.args.items())
    where = plural or spec.source_prefix.decode("utf-8", "replace")
    return f"{spec.name}={where}:{spec.reference}:{spec.extractor}{f'({args})' if args else ''}"


# --- pieces ---------------------------------------------------------------------------------------------------------


def split_outside(text: str, separator: str, times: int = -1) -> list[str]:
    """`text` split at `separator`, but not within brackets, parentheses and quotes; at most `times` times."""
    parts: list[str] = []
    start, depth, quote = 0, 0, ""
    for at, char in enumerate(text):
        if quote:
            quote = "" if char == quote else quote
        elif char in "\"'" and depth:
            quote = char
        elif char in "[(":
            depth += 1
        elif char in "])":
            depth = max(depth - 1, 0)
        elif char == separator and not depth and len(parts) != times:
            parts.append(text[start:at])
            start = at + 1
    return [*parts, text[start:]]


def _instead(wrong: str, known: Collection[str]) -> str:
    near = get_close_matches(wrong, list(known), 1)
    return f", did you mean {near[0]!r}?" if near else ""

"""Selectors: labels and fields by upstream's grammars, and comparisons on declared fields.

Label selectors as `apimachinery/pkg/labels` reads them (`=`, `==`, `!=`, `in`, `notin`, `key`, `!key`, `<`, `>`), field
selectors as `apimachinery/pkg/fields` does (`=`, `==`, `!=`, values escaped by a backslash).

A term of a field selector is an *extension* only where its field is declared, by the kind's own `FieldSet` or beside
an index (`free.cpu>=4`, `free.cpu in (1,2)`, bare `free.cpu`, `metadata.labels["pool"]=fast`,
`metadata.creationTimestamp<2026-01-31T12:00:00Z`): it becomes a comparison of `FieldSelector.where`. All other terms
are upstream's, down to their errors, so `a=b>c` means what it always did.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from operator import itemgetter
from typing import Any, Final, NamedTuple, cast

from minikube_py.api.errors import FieldError, aggregate, bad_request, go_quote, invalid_value
from minikube_py.api.kind import Kind, Selectable
from minikube_py.api.matching import Labels, compile_attributes, compile_fields, compile_labels, int64
from minikube_py.api.memo import remembered, remembered_by_text
from minikube_py.api.meta import is_label_value, is_qualified_name
from minikube_py.fields import quantity
from minikube_py.fields.asked import Asked, asked_of
from minikube_py.fields.extract import MAX_STRING_LENGTH
from minikube_py.fields.paths import parse_path
from minikube_py.fields.spec import FieldSet, FieldSpec
from minikube_py.fields.text import find_field
from minikube_py.fields.times import parse_time
from minikube_py.fields.where import MAX_COMPARISONS, MAX_VALUES, Comparison, Op, Where, resource_of

TERMS_LIMIT: Final = 1000
SELECTOR_CHARS_MAX: Final = 32 << 10
_VALUES_TOLD_MAX: Final = 100
"""Terms of one selector. Upstream has no such limit; a URL of ordinary length cannot hold as many."""

# --- labels ---------------------------------------------------------------------------------------------------------


class LabelRequirement(NamedTuple):
    """`op` is as written: `=`, `==`, `!=`, `in`, `notin`, `exists`, `!`, `>`, `<`. `values` are sorted."""

    key: str
    op: str
    values: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.op == "exists":
            return self.key
        if self.op == "!":
            return f"!{self.key}"
        if self.op in ("in", "notin"):
            return f"{self.key} {self.op} ({','.join(self.values)})"
        return f"{self.key}{self.op}{self.values[0]}"

    def matches(self, labels: Labels) -> bool:
        value = labels.get(self.key)
        if self.op == "!":
            return value is None
        if value is None:
            return self.op in ("!=", "notin")
        if self.op in ("=", "==", "in"):
            return value in self.values
        if self.op in ("!=", "notin"):
            return value not in self.values
        if self.op == "exists":
            return True
        number = int64(value)
        bound = int(self.values[0])
        return number is not None and (number > bound if self.op == ">" else number < bound)


class LabelSelector:
    """All requirements hold. `matches(labels)` is compiled; labels may be None. `keys`: how many labels it looks at."""

    __slots__ = ("keys", "matches", "requirements")

    def __init__(self, requirements: tuple[LabelRequirement, ...]) -> None:
        self.requirements = requirements
        self.keys = len(set(map(_KEY, requirements)))
        self.matches: Callable[[Labels | None], bool] = compile_labels(requirements)

    def __str__(self) -> str:
        return ",".join(map(str, self.requirements))

    def __bool__(self) -> bool:
        return bool(self.requirements)

    def exact(self, key: str) -> str | None:
        """The one value that `key` must have, or None."""
        for requirement in self.requirements:
            if requirement.key == key and requirement.op in ("=", "==", "in") and len(requirement.values) == 1:
                return requirement.values[0]
        return None


_KEY: Final = itemgetter(0)
EVERYTHING: Final = LabelSelector(())

_SPECIAL: Final = "=!(),><"
_TOKEN: Final = re.compile(r"[ \t\r\n]*(?:([^=!(),>< \t\r\n\0]+)|(==|!=|[=!(),><])|(\Z|\0))")
_END: Final = ("end", "")
_OPERATORS_TEXT: Final = "in, notin, =, ==, !=, gt, lt"


class _LabelParser:
    """Tokens are (kind, text): kind is `id`, `end`, or the symbol itself. `in` and `notin` are identifiers here."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._ahead: tuple[str, str] | None = None

    def _peek(self) -> tuple[str, str]:
        if self._ahead is None:
            match = _TOKEN.match(self._text, self._at)
            assert match is not None, "every character starts a token"
            self._at = match.end()
            word, sign = match[1], match[2]
            self._ahead = ("id", word) if word is not None else (sign, sign) if sign is not None else _END
        return self._ahead

    def _next(self) -> tuple[str, str]:
        token = self._peek()
        if token is not _END:
            self._ahead = None
        return token

    def parse(self) -> tuple[LabelRequirement, ...]:
        requirements: list[LabelRequirement] = []
        while True:
            kind, text = self._peek()
            if kind == "end":
                return tuple(requirements)
            if kind not in ("id", "!"):
                raise _Wrong(f"found '{text}', expected: !, identifier, or 'end of string'")
            try:
                requirements.append(self._requirement())
            except _Wrong as wrong:
                raise _Wrong(f"unable to parse requirement: {wrong}") from None
            kind, text = self._next()
            if kind == "end":
                return tuple(requirements)
            if kind != ",":
                raise _Wrong(f"found '{text}', expected: ',' or 'end of string'")
            kind, text = self._peek()
            if kind not in ("id", "!"):
                raise _Wrong(f"found '{text}', expected: identifier after ','")

    def _requirement(self) -> LabelRequirement:
        kind, key = self._next()
        absent = kind == "!"
        if absent:
            kind, key = self._next()
        if kind != "id":
            raise _Wrong(f"found '{key}', expected: identifier")
        if messages := is_qualified_name(key):
            raise _Wrong(str(invalid_value("<nil>", key, "; ".join(messages))))
        if absent:
            return LabelRequirement(key, "!")
        if self._peek()[0] in ("end", ","):
            return LabelRequirement(key, "exists")
        kind, text = self._next()
        if kind == "id" and text in ("in", "notin"):
            return _checked(LabelRequirement(key, text, tuple(sorted(self._values()))))
        if kind in ("=", "==", "!=", ">", "<"):
            return _checked(LabelRequirement(key, kind, (self._exact_value(),)))
        raise _Wrong(f"found '{text}', expected: {_OPERATORS_TEXT}")

    def _exact_value(self) -> str:
        if self._peek()[0] in ("end", ","):
            return ""
        kind, text = self._next()
        if kind != "id":
            raise _Wrong(f"found '{text}', expected: identifier")
        return text

    def _values(self) -> set[str]:
        kind, text = self._next()
        if kind != "(":
            raise _Wrong(f"found '{text}' expected: '('")
        kind, text = self._peek()
        if kind == ")":
            self._next()
            return {""}
        if kind not in ("id", ","):
            raise _Wrong(f"found '{text}', expected: ',', ')' or identifier")
        values = self._identifiers()
        self._next()
        return values

    def _identifiers(self) -> set[str]:
        """Up to, and without, the closing parenthesis. A comma with nothing beside it stands for an empty value."""
        values: set[str] = set()
        while True:
            kind, text = self._next()
            if kind == "id":
                values.add(text)
                kind, text = self._peek()
                if kind == ")":
                    return values
                if kind != ",":
                    raise _Wrong(f"found '{text}', expected: ',' or ')'")
            elif kind == ",":
                if not values:
                    values.add("")
                kind, _ = self._peek()
                if kind in (")", ","):
                    values.add("")
                if kind == ")":
                    return values
            else:
                raise _Wrong(f"found '{text}', expected: ',', or identifier")


class _Wrong(Exception):
    """An invalid selector; the text is upstream's."""


def _checked(requirement: LabelRequirement) -> LabelRequirement:
    errors: list[FieldError] = []
    key, op, values = requirement
    if op in ("<", ">") and int64(values[0]) is None:
        detail = "for 'Gt', 'Lt' operators, the value must be an integer"
        errors.append(invalid_value("values[0]", values[0], detail))
    for i, value in enumerate(values):
        if messages := is_label_value(value):
            errors.append(invalid_value(f"values[{i}][{key}]", value, "; ".join(messages)))
            if len(errors) >= _VALUES_TOLD_MAX:
                break
    if errors:
        raise _Wrong(aggregate(map(str, errors)))
    return requirement


def _check_length(what: str, text: str) -> None:
    if len(text) > SELECTOR_CHARS_MAX:
        raise bad_request(f"{what} selector has {len(text)} characters, limit {SELECTOR_CHARS_MAX}")


@remembered(1024, 1024)
def parse_label_selector(text: str) -> LabelSelector:
    """Raises: StatusError 400 with upstream's sentence."""
    if not text:
        return EVERYTHING
    _check_length("label", text)
    try:
        requirements = _LabelParser(text).parse()
    except _Wrong as wrong:
        raise bad_request(str(wrong)) from None
    if len(requirements) > TERMS_LIMIT:
        raise bad_request(f"label selector has {len(requirements)} terms, limit {TERMS_LIMIT}")
    return LabelSelector(tuple(sorted(requirements, key=lambda r: r.key)))


def selector_from_map(labels: Labels | None) -> LabelSelector:
    """The selector that a map stands for (`spec.selector` of services and replication controllers)."""
    items = sorted((labels or {}).items())
    return LabelSelector(tuple(LabelRequirement(key, "=", (value,)) for key, value in items))


# --- fields ---------------------------------------------------------------------------------------------------------


class FieldRequirement(NamedTuple):
    """`op` is `=` or `!=`; `value` is unescaped."""

    field: str
    op: str
    value: str

    def __str__(self) -> str:
        return f"{self.field}{self.op}{escape_value(self.value)}"


Getter = Callable[[Mapping[str, Any]], str]


@dataclass(frozen=True, slots=True, eq=False)
class Askable:
    """Fields of a resource that can be compared beyond equality, and which of them are indexed. By identity."""

    field_set: FieldSet | None
    indexed: frozenset[str] = frozenset()


@lru_cache(256)
def built_in(resource: Kind) -> Askable:
    return Askable(resource.field_set)


class FieldSelector:
    """`requirements` in upstream's grammar, and `where`: the extension's comparisons on declared fields.

    `matches(obj)` tells whether the object meets `requirements`; `matches_attributes(attributes)` the same of what
    `field_attributes` gave. Neither looks at `where`: the store answers that. `indexed` is `where` and, besides, those
    requirements that an index of the store can answer just as well; `has_index` tells whether one was declared that
    narrows it down. `declared`: the fields that `where` names.
    """

    __slots__ = ("declared", "has_index", "indexed", "matches", "matches_attributes", "requirements", "where")

    def __init__(
        self,
        resource: Kind,
        requirements: tuple[FieldRequirement, ...],
        comparisons: tuple[Comparison, ...],
        askable: Askable | None = None,
    ) -> None:
        askable = askable or built_in(resource)
        self.requirements = requirements
        self.declared = askable.field_set
        self.where = Where(comparisons)
        self.indexed = Where((comparisons + _indexable(resource, requirements, askable.field_set))[:MAX_COMPARISONS])
        self.has_index = any(each.field in askable.indexed and each.op != "!=" for each in self.indexed.comparisons)
        self.matches = compile_fields(requirements, lambda field: _getter(resource, field))
        self.matches_attributes = compile_attributes(requirements)

    def __str__(self) -> str:
        return ",".join([*map(str, self.requirements), *map(str, self.where.comparisons)])

    def __bool__(self) -> bool:
        return bool(self.requirements or self.where)

    def asked(self) -> Asked:
        """The declared fields that it compares, with their declarations."""
        if self.declared is None:
            return ()
        return asked_of(self.declared, [comparison.field for comparison in self.where.comparisons])

    def exact(self, field: str) -> str | None:
        """The one value that `field` must have, or None (`metadata.name`: a single object is asked for)."""
        for requirement in self.requirements:
            if requirement.field == field and requirement.op == "=":
                return requirement.value
        return None


def _indexable(
    resource: Kind, requirements: tuple[FieldRequirement, ...], declared: FieldSet | None
) -> tuple[Comparison, ...]:
    """A missing field is empty to upstream and unequal to everything in a Where, so `f=` stays out; so does what
    is too long for a row."""
    if declared is None:
        return ()
    found: list[Comparison] = []
    for field, op, value in requirements:
        spec = declared.find(field)
        if spec is None or spec.kind != "string" or not value or len(value) > MAX_STRING_LENGTH:
            continue
        if _same(spec, resource.selectable[field]):
            found.append(Comparison(field, "=" if op == "=" else "!=", (value,)))
    return tuple(found)


def _same(spec: FieldSpec, selectable: Selectable) -> bool:
    """Whether the declared field equals upstream's selectable field."""
    if spec.extractor != "path@1" or selectable.otherwise or spec.args.get("default", "") != selectable.default:
        return False
    return parse_path(spec.args["path"]) == selectable.path


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)


def _follow(obj: Any, path: tuple[str | int, ...]) -> Any:
    for step in path:
        if isinstance(step, int):
            if not isinstance(obj, list) or len(obj) <= step:
                return None
            obj = obj[step]
        else:
            if not isinstance(obj, dict):
                return None
            obj = obj.get(step)
    return obj


@lru_cache(1024)
def _getter(resource: Kind, field: str) -> Getter:
    selectable = resource.selectable[field]
    path, default, otherwise = selectable.path, selectable.default, selectable.otherwise
    if not path:
        return lambda obj: default

    def follow(obj: Mapping[str, Any]) -> str:
        return _text(_follow(obj, path)) or (_text(_follow(obj, otherwise)) if otherwise else "") or default

    return follow


@lru_cache(1024)
def _by_part(resource: Kind) -> list[tuple[str, list[tuple[str, Any]]]]:
    """The selectable fields, those of one part of the object together: it is looked up once. Under "": getters."""
    parts: dict[str, list[tuple[str, Any]]] = {}
    for label, field in resource.selectable.items():
        if len(field.path) == 2 and not (field.otherwise or field.default or field.loose):
            parts.setdefault(str(field.path[0]), []).append((label, field.path[1]))
        else:
            parts.setdefault("", []).append((label, _getter(resource, label)))
    return list(parts.items())


def field_attributes(resource: Kind, obj: Mapping[str, Any]) -> dict[str, str]:
    """All selectable fields of an object, as text; what is missing is left out (it equals the empty text)."""
    found: dict[str, str] = {}
    for first, fields in _by_part(resource):
        if part := obj.get(first) if first else obj:
            for label, second in fields:
                value = part.get(second) if first else second(obj)
                if value is not None and (text := value if type(value) is str else _text(value)):
                    found[label] = text
    return found


def escape_value(value: str) -> str:
    return value.replace("\\", "\\\\").replace(",", "\\,").replace("=", "\\=")


def _unescape_value(text: str) -> str:
    if not ("\\" in text or "," in text or "=" in text):
        return text
    out: list[str] = []
    escaped = False
    for char in text:
        if escaped:
            if char not in "\\,=":
                raise bad_request(f"invalid field selector: invalid escape sequence: \\{char}")
            out.append(char)
            escaped = False
        elif char == "\\":
            escaped = True
        elif char in ",=":
            raise bad_request(f"invalid field selector: unescaped character in value: {ord(char)}")
        else:
            out.append(char)
    if escaped:
        raise bad_request("invalid field selector: invalid escape sequence: \\")
    return "".join(out)


PLAIN_TERM: Final = re.compile(r"(?:[^,\\]|\\.)*\\?", re.DOTALL)
_OPERATOR: Final = re.compile("!=|==|=")
_DECLARED_TERM: Final = re.compile(
    r"[ \t]*([A-Za-z0-9_](?:[-A-Za-z0-9_./]|\[\"[^\"]*\"\]|\['[^']*'\]|\[[0-9]{1,9}\]|\\[./])*)[ \t]*"
    r"(?:(<=|>=|!=|==|=|<|>)([^,]*)|(?<=[ \t])in[ \t]*\(([^()]*)\)[ \t]*(?=,|\Z)|(?=,|\Z))"
)


def parse_field_selector(resource: Kind, text: str, askable: Askable | None = None) -> FieldSelector:
    """`askable` None: what is declared of `resource` without any index.

    Raises: StatusError 400; on a field that is neither selectable nor declared, with upstream's sentence."""
    return _parse_field_selector(resource, text, askable or built_in(resource))


@remembered_by_text(1024, 1024)
def _parse_field_selector(resource: Kind, text: str, askable: Askable) -> FieldSelector:
    _check_length("field", text)
    terms: list[str] = []
    comparisons: list[Comparison] = []
    position = 0
    while position < len(text):
        extension = _extension(resource, askable.field_set, text, position)
        if extension is not None:
            comparison, position = extension
            comparisons.append(comparison)
        else:
            match = PLAIN_TERM.match(text, position)
            assert match is not None, "the pattern matches the empty text"
            terms.append(match[0])
            position = match.end()
        position += 1
    if len(terms) + len(comparisons) > TERMS_LIMIT:
        raise bad_request(f"field selector has {len(terms) + len(comparisons)} terms, limit {TERMS_LIMIT}")
    if len(comparisons) > MAX_COMPARISONS:
        raise bad_request(f"field selector compares {len(comparisons)} times, limit {MAX_COMPARISONS}")
    # Sorted first, as upstream does: the order decides which of two errors is reported.
    split = [split_term(text, term) for term in sorted(terms) if term]
    requirements = [found for parts in split if (found := _supported(resource, *parts)) is not None]
    return FieldSelector(resource, tuple(requirements), tuple(comparisons), askable)


def split_term(selector: str, term: str) -> tuple[str, str, str]:
    match = _OPERATOR.search(term)
    if match is None:
        raise bad_request(f"invalid selector: '{selector}'; can't understand '{term}'")
    return term[: match.start()], "!=" if match[0] == "!=" else "=", _unescape_value(term[match.end() :])


def _supported(resource: Kind, field: str, op: str, value: str) -> FieldRequirement | None:
    if not field and not value:
        return None
    field = resource.field_aliases.get(field, field)
    if field in resource.selectable:
        return FieldRequirement(field, op, value)
    if set(resource.selectable) == {"metadata.name", "metadata.namespace"} and resource.codec is None:
        known = 'only "metadata.name", "metadata.namespace"'
        raise bad_request(f"{go_quote(field)} is not a known field selector: {known}")
    raise bad_request(f"field label not supported: {field}")


def _extension(resource: Kind, declared: FieldSet | None, text: str, position: int) -> tuple[Comparison, int] | None:
    """The comparison that starts at `position` and where it ends, or None where the term is upstream's."""
    match = _DECLARED_TERM.match(text, position) if declared is not None else None
    if match is None or declared is None:
        return None
    written, op, value, listed = match.groups()
    found = find_field(declared, written)
    if found is None or (found[0] in resource.selectable and (op in ("=", "==", "!="))):
        return None
    field, spec = found
    if listed is not None:
        return _comparison(spec, field, "in", tuple(part.strip() for part in listed.split(","))), match.end()
    if op is None:
        return Comparison(field, "exists"), match.end()
    return _comparison(spec, field, cast(Op, "=" if op == "==" else op), (value.strip(),)), match.end()


def _comparison(spec: FieldSpec, field: str, op: Op, values: tuple[str, ...]) -> Comparison:
    """Checks that the values can be read by the field's kind."""
    if len(values) > MAX_VALUES:
        raise bad_request(f"invalid field selector: {field}: {len(values)} values, limit {MAX_VALUES}")
    for value in values:
        if spec.kind == "quantity":
            try:
                quantity.resource_units(resource_of(spec, field), value)
            except quantity.QuantityError as wrong:
                raise bad_request(f"invalid field selector: {field}: {go_quote(value)}: {wrong}") from None
        elif spec.kind == "int" and int64(value) is None:
            raise bad_request(f"invalid field selector: {field}: {go_quote(value)}: must be a 64-bit integer")
        elif spec.kind == "time" and parse_time(value) is None and int64(value) is None:
            detail = "must be a time, as 2026-01-31T12:00:00Z"
            raise bad_request(f"invalid field selector: {field}: {go_quote(value)}: {detail}")
    return Comparison(field, op, values)

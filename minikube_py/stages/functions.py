"""The functions of templates: Go's own, common sprig functions, and KWOK's without external input.

Sprig functions that use time, randomness, environment or keys are not supported. Source: Go `text/template/funcs.go`,
sprig 3.3, KWOK 0.8 `pkg/utils/gotpl/funcs.go`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from minikube_py.api.errors import go_quote
from minikube_py.api.yaml_text import YamlError, resolve
from minikube_py.stages.errors import StageFailed
from minikube_py.stages.go_values import (
    CHARS_MAX,
    DEPTH_MAX,
    MISSING,
    Float,
    Int,
    Int64,
    as_json,
    is_number,
    is_true,
    kind_of,
    number_text,
    quoted,
    shown,
    text_of,
    too_long,
    type_of,
)
from minikube_py.stages.template_syntax import Param

ITEMS_MAX: Final = 10_000
_MIN, _MAX = -(1 << 63), (1 << 63) - 1


class Function(NamedTuple):
    """`run` None: supplied by the caller of `render`. `check(literals)`: the error in literal arguments (MISSING: not a
    literal), or ""."""

    param: Param
    run: Callable[..., Any] | None
    check: Callable[[Sequence[Any]], str] | None = None


def _nothing(value: Any) -> bool:
    return value is MISSING or value is None


# --- Go's ---------------------------------------------------------------------------------------------------------


def _index(item: Any, *keys: Any) -> Any:
    if _nothing(item):
        raise StageFailed("index of untyped nil")
    for key in keys:
        item = number_text(item) if is_number(item) else item
        if isinstance(item, dict):
            if _nothing(key):
                raise StageFailed("value is nil; should be of type string")
            if not isinstance(key, str):
                raise StageFailed(f"value has type {type_of(key)}; should be string")
            item = item.get(key)
        elif isinstance(item, list | str):
            if isinstance(item, str):
                # Go indexes the bytes of a text.
                item = [Int(byte) for byte in item.encode(errors="surrogatepass")]
            if not isinstance(key, Int):
                what = "nil" if _nothing(key) else f"type {type_of(key)}"
                raise StageFailed(f"cannot index slice/array with {what}")
            if not 0 <= key < len(item):
                raise StageFailed(f"index out of range: {int(key)}")
            item = item[key]
        else:
            why = "index of nil pointer" if _nothing(item) else f"can't index item of type {type_of(item)}"
            raise StageFailed(why)
    return item


def _len(value: Any) -> Int:
    if isinstance(value, list | dict):
        return Int(len(value))
    if isinstance(value, str) or is_number(value):
        return Int(len(text_of(value).encode()))
    raise StageFailed("len of nil pointer" if _nothing(value) else f"len of type {type_of(value)}")


def _equal(first: Any, *others: Any) -> bool:
    if not others:
        raise StageFailed("missing argument for comparison")
    return any(_same(first, other) for other in others)


def _same(one: Any, other: Any) -> bool:
    kinds = kind_of(one), kind_of(other)
    if _nothing(one) or _nothing(other):
        return _nothing(one) and _nothing(other)
    if kinds[0] != kinds[1]:
        raise StageFailed(f"incompatible types for comparison: {type_of(one)} and {type_of(other)}")
    if not kinds[0]:
        raise StageFailed(f"non-comparable type {shown(other)}: {type_of(other)}")
    return text_of(one) == text_of(other) if kinds[0] == "string" else bool(one == other)


def _less(one: Any, other: Any) -> bool:
    kind, other_kind = kind_of(one), kind_of(other)
    if not kind or not other_kind or "bool" in (kind, other_kind):
        raise StageFailed("invalid type for comparison")
    if kind != other_kind:
        raise StageFailed("incompatible types for comparison")
    return text_of(one) < text_of(other) if kind == "string" else bool(one < other)


_VERB: Final = re.compile(r"%([-+# 0]*)(\d*)(\.\d+)?(.?)", re.DOTALL)


def _format_error(literals: Sequence[Any]) -> str:
    if not literals or not isinstance(literals[0], str):
        return "printf is understood with a literal format alone"
    for flags, width, precision, verb in _VERB.findall(literals[0]):
        if verb == "%" and not flags + width + precision:
            continue
        if verb not in tuple("svdqtx") or precision or flags.strip("0-") or len(width) > 2:
            return f"%{flags}{width}{precision}{verb} of printf is not understood; %s, %v, %d, %q, %t and a width are"
        if verb == "x":
            return "%x of printf is not understood; %s, %v, %d, %q, %t and a width are"
    return ""


def _printf(form: Any, *values: Any) -> str:
    if why := _format_error([form]):
        raise StageFailed(why)
    left = list(values)
    total = 0

    def one(found: re.Match[str]) -> str:
        nonlocal total
        flags, width, _, verb = found.groups()
        if verb == "%":
            return "%"
        if not left:
            raise StageFailed(f"%{verb} of printf has no argument")
        text = _formatted(verb, left.pop(0))
        pad = "0" if "0" in flags and "-" not in flags and verb == "d" else " "
        size = int(width or 0)
        if "-" in flags:
            text = text.ljust(size)
        elif pad == "0" and text.startswith("-"):
            text = "-" + text[1:].rjust(size - 1, "0")
        else:
            text = text.rjust(size, pad)
        total += len(text)
        if total > CHARS_MAX:
            raise too_long()
        return text

    text = _VERB.sub(one, form)
    if left:
        raise StageFailed(f"printf has {len(left)} arguments more than verbs")
    return text


def shown_in(value: Any) -> str:
    """As fmt prints it, where nothing is `<nil>`."""
    return "<nil>" if _nothing(value) else shown(value)


def _formatted(verb: str, value: Any) -> str:
    """A verb mismatch fails: Go would write `%!d(...)`."""
    if verb == "v":
        return shown_in(value)
    if is_number(value):
        value = number_text(value)
    fits = {"s": str, "d": Int, "q": str, "t": bool}[verb]
    if not isinstance(value, fits):
        raise StageFailed(f"%{verb} does not fit {'nil' if _nothing(value) else type_of(value)}; %v fits all")
    return go_quote(str(value)) if verb == "q" else shown(value)


def _print(*values: Any) -> str:
    """fmt.Sprint: a space between two of which neither is a string."""
    parts: list[str] = []
    for at, value in enumerate(values):
        if at and kind_of(value) != "string" and kind_of(values[at - 1]) != "string":
            parts.append(" ")
        parts.append(shown_in(value))
    return _bounded("".join(parts))


def _bounded(text: str) -> str:
    if len(text) > CHARS_MAX:
        raise too_long()
    return text


# --- sprig's ------------------------------------------------------------------------------------------------------


def _empty(value: Any) -> bool:
    if _nothing(value):
        return True
    return False if is_number(value) else not value


def _default(default: Any, *given: Any) -> Any:
    return default if not given or _empty(given[0]) else given[0]


def _coalesce(*values: Any) -> Any:
    return next((value for value in values if not _empty(value)), None)


def _text(value: Any) -> str:
    """strval."""
    return value if isinstance(value, str) else shown_in(value)


def _dict(*values: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for at in range(0, len(values), 2):
        value = values[at + 1] if at + 1 < len(values) else ""
        found[_text(values[at])] = None if value is MISSING else value
    return found


def _list(*values: Any) -> list[Any]:
    return [None if value is MISSING else value for value in values]


def _join(separator: str, value: Any) -> str:
    if _nothing(value):
        return ""
    items = value if isinstance(value, list) else [value]
    texts = [_text(each) for each in items if each is not None]
    if sum(map(len, texts)) + len(separator) * len(texts) > CHARS_MAX:
        raise too_long()
    return separator.join(texts)


def _quote(*values: Any) -> str:
    return _join(" ", [go_quote(_text(value)) for value in values if not _nothing(value)])


def _squote(*values: Any) -> str:
    return _join(" ", [f"'{shown(value)}'" for value in values if not _nothing(value)])


def _replace(old: str, new: str, source: str) -> str:
    if (source.count(old) if old else len(source) + 1) * len(new) + len(source) > CHARS_MAX:
        raise too_long()
    return source.replace(old, new)


def _indent(spaces: Int, value: str) -> str:
    if spaces < 0:
        raise StageFailed("strings: negative Repeat count")
    if spaces * (value.count("\n") + 1) + len(value) > CHARS_MAX:
        raise too_long()
    pad = " " * spaces
    return pad + value.replace("\n", "\n" + pad)


_WHOLE: Final = re.compile(r"[-+]?(?:0[xX][0-9a-fA-F]+|0[bB][01]+|0[oO]?[0-7]+|0|[1-9]\d*)", re.ASCII)


def parse_int(text: str) -> int | None:
    """strconv.ParseInt(text, 0, 64); None where it is no such number."""
    plain = text
    if not _WHOLE.fullmatch(plain) or len(plain) > 70:
        return None
    digits = plain.lstrip("+-")
    octal = len(digits) > 1 and digits[0] == "0" and digits[1].isdigit()
    value = int(digits, 8) if octal else int(digits, 0)
    value = -value if plain.startswith("-") else value
    return value if _MIN <= value <= _MAX else None


def _int(value: Any) -> Int:
    """cast.ToInt64: what is no number is 0."""
    if isinstance(value, bool):
        return Int(value)
    if isinstance(value, Int):
        return value
    if isinstance(value, Float):
        return Int(int(value)) if abs(value) < 1 << 62 else Int(0)
    if is_number(value) or isinstance(value, str):
        text = text_of(value)
        return Int(parse_int(re.sub(r"\.0*$", "", text)) or 0)
    return Int(0)


def _wrapped(value: int) -> Int64:
    """In 64 bits."""
    return Int64((value - _MIN) % (1 << 64) + _MIN)


def _add(*values: Any) -> Int:
    return _wrapped(sum(map(_int, values)))


def _mul(first: Any, *values: Any) -> Int:
    found = _wrapped(_int(first))
    for value in values:
        found = _wrapped(found * _int(value))
    return found


def _div(one: Any, other: Any) -> Int:
    left, right = _int(one), _int(other)
    if not right:
        raise StageFailed("runtime error: integer divide by zero")
    whole = abs(left) // abs(right)
    return _wrapped(whole if (left < 0) == (right < 0) else -whole)


def _mod(one: Any, other: Any) -> Int:
    left, right = _int(one), _int(other)
    if not right:
        raise StageFailed("runtime error: integer divide by zero")
    rest = abs(left) % abs(right)
    return Int64(-rest if left < 0 else rest)


def _end(at: int, name: str) -> Callable[[Any], Any]:
    def call(value: Any) -> Any:
        if not isinstance(value, list):
            raise StageFailed(f"Cannot find {name} on type {'string' if isinstance(value, str) else type_of(value)}")
        return value[at] if value else None

    return call


def _until(count: Int) -> list[Any]:
    if abs(count) > ITEMS_MAX:
        raise StageFailed(f"a list of more than {ITEMS_MAX:,}")
    return [Int(at) for at in range(0, count, -1 if count < 0 else 1)]


# --- KWOK's -------------------------------------------------------------------------------------------------------

_PLAIN: Final = re.compile(r"[A-Za-z/][-A-Za-z0-9_./]*")


def _yaml(value: Any, *indent: Any) -> str:
    """In KWOK's layout; texts are in quotes wherever they could be read as something else."""
    lines: list[str] = []
    _write(value, "", lines, [0], 0)
    text = "\n".join(lines) + "\n"
    spaces = indent[0] if len(indent) == 1 else 0
    if spaces <= 0:
        return _bounded(text)
    if spaces > DEPTH_MAX:
        raise StageFailed(f"an indent of more than {DEPTH_MAX}")
    return _replace("\n", "\n" + " " * (2 * spaces), "\n" + text)


def _write(value: Any, pad: str, lines: list[str], total: list[int], depth: int, first: str = "") -> None:
    """`first`: the text before it on its line."""
    if depth > DEPTH_MAX:
        raise StageFailed(f"a value nested deeper than {DEPTH_MAX} levels")
    total[0] += len(pad) + 1
    if total[0] > CHARS_MAX:
        raise too_long()
    if isinstance(value, dict) and value:
        for at, key in enumerate(sorted(value)):
            head = (pad if at or not first else first) + _yaml_text(key) + ":"
            _write_member(value[key], head, pad, lines, total, depth)
    elif isinstance(value, list) and value:
        for at, each in enumerate(value):
            _write(each, pad + "  ", lines, total, depth + 1, (pad if at or not first else first) + "- ")
    else:
        lines.append((first or pad) + _yaml_scalar(value))
        total[0] += len(lines[-1])


def _write_member(value: Any, head: str, pad: str, lines: list[str], total: list[int], depth: int) -> None:
    if isinstance(value, dict) and value:
        lines.append(head)
        _write(value, pad + "  ", lines, total, depth + 1)
    elif isinstance(value, list) and value:
        lines.append(head)
        _write(value, pad, lines, total, depth + 1)
    else:
        lines.append(f"{head} {_yaml_scalar(value)}")
        total[0] += len(lines[-1])


def _yaml_scalar(value: Any) -> str:
    if isinstance(value, dict | list):
        return "{}" if isinstance(value, dict) else "[]"
    if _nothing(value):
        return "null"
    return _yaml_text(value) if isinstance(value, str) else shown(value)


def _yaml_text(text: str) -> str:
    try:
        plain = _PLAIN.fullmatch(text) is not None and resolve(text) == text
    except YamlError:
        plain = False
    return text if plain else as_json(text)


NODE_CONDITIONS: Final = [
    {"lastHeartbeatTime": None, "lastTransitionTime": None, "message": message, "reason": reason, "status": status,
     "type": kind}
    for kind, status, reason, message in (
        ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
        ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
        ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
        ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
        ("NetworkUnavailable", "False", "RouteCreated", "RouteController created a route"),
    )
]  # fmt: skip


def _takes(*kinds: str, several: bool = False, optional: int = 0) -> Param:
    return Param(kinds, several, optional)


_ANY, _ANYS = _takes("any"), _takes("any", several=True)
_TWO, _TEXTS = _takes("any", "any"), _takes("string", "string")
_ONE_TEXT, _FIRST_AND = _takes("string"), _takes("any", "any", several=True)

FUNCTIONS: Final[dict[str, Function]] = {
    "and": Function(_ANYS, None),
    "or": Function(_ANYS, None),
    "not": Function(_ANY, lambda value: not is_true(value)),
    "eq": Function(_FIRST_AND, _equal),
    "ne": Function(_TWO, lambda one, other: not _same(one, other)),
    "lt": Function(_TWO, _less),
    "le": Function(_TWO, lambda one, other: _less(one, other) or _same(one, other)),
    "gt": Function(_TWO, lambda one, other: not _less(one, other) and not _same(one, other)),
    "ge": Function(_TWO, lambda one, other: not _less(one, other)),
    "index": Function(_FIRST_AND, _index),
    "len": Function(_ANY, _len),
    "print": Function(_ANYS, _print),
    "println": Function(_ANYS, lambda *values: _bounded(" ".join(map(shown_in, values)) + "\n")),
    "printf": Function(_takes("string", "any", several=True), _printf, _format_error),
    "default": Function(_FIRST_AND, _default),
    "empty": Function(_ANY, _empty),
    "coalesce": Function(_ANYS, _coalesce),
    "ternary": Function(_takes("any", "any", "bool"), lambda yes, no, which: yes if which else no),
    "dict": Function(_ANYS, _dict),
    "list": Function(_ANYS, _list),
    "get": Function(_takes("map", "string"), lambda found, key: found.get(key, "")),
    "hasKey": Function(_takes("map", "string"), lambda found, key: key in found),
    "first": Function(_ANY, _end(0, "first")),
    "last": Function(_ANY, _end(-1, "last")),
    "until": Function(_takes("int"), _until),
    "join": Function(_takes("string", "any"), _join),
    "quote": Function(_ANYS, _quote),
    "squote": Function(_ANYS, _squote),
    "toString": Function(_ANY, _text),
    "toJson": Function(_ANY, as_json),
    "lower": Function(_ONE_TEXT, str.lower),
    "upper": Function(_ONE_TEXT, str.upper),
    "trim": Function(_ONE_TEXT, str.strip),
    "trimPrefix": Function(_TEXTS, lambda prefix, text: text.removeprefix(prefix)),
    "trimSuffix": Function(_TEXTS, lambda suffix, text: text.removesuffix(suffix)),
    "contains": Function(_TEXTS, lambda part, text: part in text),
    "hasPrefix": Function(_TEXTS, lambda prefix, text: text.startswith(prefix)),
    "hasSuffix": Function(_TEXTS, lambda suffix, text: text.endswith(suffix)),
    "replace": Function(_takes("string", "string", "string"), _replace),
    "indent": Function(_takes("int", "string"), _indent),
    "nindent": Function(_takes("int", "string"), lambda spaces, text: "\n" + _indent(spaces, text)),
    "int": Function(_ANY, _int),
    "add": Function(_ANYS, _add),
    "add1": Function(_ANY, lambda value: _wrapped(_int(value) + 1)),
    "sub": Function(_TWO, lambda one, other: _wrapped(_int(one) - _int(other))),
    "mul": Function(_FIRST_AND, _mul),
    "div": Function(_TWO, _div),
    "mod": Function(_TWO, _mod),
    "max": Function(_FIRST_AND, lambda *values: _wrapped(max(map(_int, values)))),
    "min": Function(_FIRST_AND, lambda *values: _wrapped(min(map(_int, values)))),
    "Quote": Function(_ANY, quoted),
    "YAML": Function(_takes("any", "int", several=True), _yaml),
    "NodeConditions": Function(_takes(), lambda: NODE_CONDITIONS),
}

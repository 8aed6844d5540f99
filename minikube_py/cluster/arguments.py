"""Argument checks of the public API. A parameter's rule is part of its annotation, and is checked before anything is
done: an invalid value raises a ClusterError that names the parameter.

    class Faults(Checked):
        def slow(self, seconds: Lasting, on: On = "") -> None: ...
"""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from functools import cache, wraps
from pathlib import Path
from types import FunctionType, NoneType, SimpleNamespace
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

from minikube_py.api.errors import StatusError
from minikube_py.api.meta import is_dns1123_label, is_dns1123_subdomain
from minikube_py.api.selectors import parse_label_selector
from minikube_py.cluster.errors import ClusterError
from minikube_py.cluster.snapshots import Snapshot
from minikube_py.fields import quantity
from minikube_py.kubelet.config import NodeSpec

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
SECONDS_MAX: Final = 1e9
COUNT_MAX: Final = 1_000_000_000
NODES_MAX: Final = 100_000
PORT_MAX: Final = 65_535
SEED_MAX: Final = 1 << 64
EXIT_CODE_MAX: Final = 255
SHOWN_MAX: Final = 80
METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")


class Rule(NamedTuple):
    """`what` completes "seconds is ..."; `fits` may raise if it does not."""

    what: str
    fits: Callable[[Any], object]

    def check(self, parameter: str, value: object) -> None:
        """Raises: ClusterError."""
        try:
            if self.fits(value):
                return
            why = ""
        except (StatusError, ValueError) as error:
            why = f": {error}"
        raise ClusterError(f"{parameter} is {self.what}, not {shown(value)}{why}")


def shown(value: object) -> str:
    """For a message; accepts any value."""
    try:
        text = repr(value)
    except Exception:
        text = f"a {type(value).__name__}"
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}..."


class Checked:
    """Checks the arguments of public methods of its subclasses."""

    def __init_subclass__(cls, **given: Any) -> None:
        super().__init_subclass__(**given)
        for name, each in list(vars(cls).items()):
            if isinstance(each, FunctionType) and not name.startswith("_"):
                setattr(cls, name, checked(each))


def checked(function: F) -> F:
    """Checks every argument by the rule of its parameter."""

    def check(given: tuple[Any, ...], named: dict[str, Any]) -> None:
        signature, rules = _rules(function)
        try:
            arguments = signature.bind(*given, **named).arguments
        except TypeError:
            # The call itself gives a better error.
            return
        for name, (rule, optional, many) in rules.items():
            if name in arguments:
                for value in arguments[name] if many else (arguments[name],):
                    if not (optional and value is None):
                        rule.check(name, value)

    if inspect.iscoroutinefunction(function):

        @wraps(function)
        async def awaited(*given: Any, **named: Any) -> Any:
            check(given, named)
            return await function(*given, **named)

        return awaited  # type: ignore[return-value]

    @wraps(function)
    def called(*given: Any, **named: Any) -> Any:
        check(given, named)
        return function(*given, **named)

    return called  # type: ignore[return-value]


@cache
def _rules(function: Callable[..., Any]) -> tuple[inspect.Signature, dict[str, tuple[Rule, bool, bool]]]:
    """By parameter: its rule, whether it accepts None, and whether it takes several. Raises: TypeError if a parameter
    has no rule."""
    signature = inspect.signature(function)
    texts = {name: each for name, each in function.__annotations__.items() if name != "return"}
    hints = get_type_hints(SimpleNamespace(__annotations__=texts), function.__globals__, include_extras=True)
    found = {}
    for name, parameter in list(signature.parameters.items())[1:]:
        rule, optional = _rule_of(hints.get(name))
        if rule is None:
            raise TypeError(f"{function.__qualname__}: {name} has no rule")
        found[name] = rule, optional, parameter.kind is parameter.VAR_POSITIONAL
    return signature, found


def _rule_of(hint: Any) -> tuple[Rule | None, bool]:
    if get_origin(hint) is Annotated:
        return next((each for each in hint.__metadata__ if isinstance(each, Rule)), None), False
    parts = get_args(hint)
    rules = [rule for rule, _ in map(_rule_of, parts) if rule is not None]
    return (rules[0] if len(rules) == 1 else None), NoneType in parts


# -- rules -------------------------------------------------------------------------------------------------------------


def _text(value: object, least: int = 0) -> bool:
    """A text that can be encoded and displayed."""
    return isinstance(value, str) and len(value) >= least and (value.isprintable() or not value)


def _whole(low: int, high: int) -> Callable[[object], bool]:
    return lambda value: isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def _seconds(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= SECONDS_MAX


def _lasting(value: Any) -> bool:
    return _seconds(value) and value > 0


def _label(value: object) -> bool:
    return isinstance(value, str) and not is_dns1123_label(value)


def _path(value: object) -> bool:
    return isinstance(value, str | Path) and value != "" and b"\0" not in os.fsencode(value)


def _paths(value: object) -> bool:
    several = isinstance(value, Sequence) and not isinstance(value, str | bytes)
    return _path(value) or (several and all(map(_path, value)))  # type: ignore[call-overload]


def _given(value: object) -> bool:
    """Can be passed to another program."""
    return isinstance(value, str) and b"\0" not in value.encode()


def _matches(pattern: str) -> Callable[[object], bool]:
    whole = re.compile(pattern)
    return lambda value: isinstance(value, str) and value.isprintable() and whole.fullmatch(value) is not None


def _selector(value: object) -> bool:
    return isinstance(value, str) and parse_label_selector(value) is not None


def _seed(value: object) -> bool:
    return _text(value, 1) or _whole(-SEED_MAX, SEED_MAX)(value)


def _texts(value: object) -> bool:
    return isinstance(value, Mapping) and all(_text(each) for row in value.items() for each in row)


def _manifests(value: object) -> bool:
    many = isinstance(value, Iterable) and not isinstance(value, bytes | bytearray | memoryview | set | frozenset)
    return isinstance(value, str | Path | Mapping) or many


def are_nodes(value: object) -> bool:
    if _whole(0, NODES_MAX)(value):
        return True
    if not isinstance(value, Sequence) or isinstance(value, str | bytes) or len(value) > NODES_MAX:
        return False
    if not all(map(_node, value)):
        return False
    return len({each.name for each in value}) == len(value)


def _node(value: object) -> bool:
    if not isinstance(value, NodeSpec) or not isinstance(value.name, str) or is_dns1123_subdomain(value.name):
        return False
    for amounts in (value.capacity, value.allocatable or {}):
        if not _texts(amounts):
            return False
        for each in amounts.values():
            quantity.parse(each)
    return _texts(value.labels) and _texts(value.annotations) and all(map(_texts, value.taints))


def _plain(value: object) -> bool:
    return callable(value) and not inspect.iscoroutinefunction(value)


Seconds = Annotated[float, Rule(f"a number of seconds from 0 to {SECONDS_MAX:,.0f}", _seconds)]
Lasting = Annotated[float, Rule(f"a number of seconds, more than 0 and up to {SECONDS_MAX:,.0f}", _lasting)]
Span = Annotated[float, Rule(f"a number from 0 to {SECONDS_MAX:,.0f}", _seconds)]
Times = Annotated[int, Rule(f"a whole number from 1 to {COUNT_MAX:,}", _whole(1, COUNT_MAX))]
Ready = Annotated[int, Rule(f"a whole number from 0 to {COUNT_MAX:,}", _whole(0, COUNT_MAX))]
ExitCode = Annotated[int, Rule(f"an exit code from 0 to {EXIT_CODE_MAX}", _whole(0, EXIT_CODE_MAX))]
Port = Annotated[int, Rule(f"a number from 0 to {PORT_MAX}", _whole(0, PORT_MAX))]
Flag = Annotated[bool, Rule("True or False", lambda value: isinstance(value, bool))]
Text = Annotated[str, Rule("a text of a line", _text)]
Word = Annotated[str, Rule("a text of a line that is not empty", lambda value: _text(value, 1))]
Input = Annotated[str, Rule("a text without NUL", _given)]
Argument = Annotated[str, Rule("texts without NUL", _given)]
On = Annotated[str, Rule('the name of a resource, as "pods", or "" for all of them', _matches(r"[^/\s]*"))]
KindName = Annotated[str, Rule('the name of a resource, as "pods" or "deployments.apps"', _matches(r"[^/\s]+"))]
ObjectName = Annotated[str, Rule("KIND/NAME, as rc/web", _matches(r"[^/\s]+/(?!\.\.?$)[^/%\s]+"))]
Target = Annotated[
    str, Rule("KIND/NAME, as rc/web, or KIND for all of a kind", _matches(r"[^/\s]+(/(?!\.\.?$)[^/%\s]+)?"))
]
Name = Annotated[str, Rule("the name of an object", _matches(r"(?!\.\.?$)[^/%\s]+"))]
Label = Annotated[str, Rule("a DNS label, as guard", _label)]
Namespace = Annotated[str, Rule("the name of a namespace", _label)]
Namespaces = Annotated[
    str, Rule('the name of a namespace, or "" for all of them', lambda value: value == "" or _label(value))
]
Selector = Annotated[str, Rule('a label selector, as "app=web"', _selector)]
FieldSelector = Annotated[str, Rule('a field selector, as "status.phase=Running"', _text)]
Method = Annotated[str, Rule(f"one of {', '.join(METHODS)}", lambda value: isinstance(value, str) and value in METHODS)]
RequestPath = Annotated[
    str, Rule("a path from / on, without a query, which is for params", _matches(r"/[!-\"$->@-~]*"))
]
Manifests = Annotated[
    str | Path | Mapping[str, Any] | Iterable[Mapping[str, Any]],
    Rule("YAML or JSON text, a path, an object, or several objects", _manifests),
]
"""YAML or JSON text, a file or folder with such, an object, or several."""
Body = Annotated[bytes, Rule("bytes", lambda value: isinstance(value, bytes))]
Params = Annotated[
    Mapping[str, str],
    Rule(
        "a mapping of texts to texts, without a watch, which is for transport() and clients",
        lambda value: _texts(value) and "watch" not in value,
    ),
]
ContentType = Annotated[str, Rule("a media type", _matches(r"[!-~]+/[ -~]+"))]
FilePath = Annotated[Path | str, Rule("the path of a file or folder", _path)]
FilePaths = Annotated[Path | str | Sequence[Path | str], Rule("the path of a file or folder, or several", _paths)]
Until = Annotated[Callable[[dict[str, Any]], bool], Rule("a function of the object", callable)]
Plain = Annotated[Callable[[], Coroutine[Any, Any, T]], Rule("a coroutine function", callable)]
Answer = Annotated[
    Callable[[dict[str, Any]], bool | Mapping[str, Any]], Rule("a plain function of the request", _plain)
]
Main = Annotated[Callable[..., Any], Rule("a function", callable)]
Nodes = Annotated[
    int | Sequence[NodeSpec],
    Rule(f"how many, from 0 to {NODES_MAX:,}, or a list of NodeSpec with names of their own", are_nodes),
]
Time = Annotated[
    Literal["real", "virtual"],
    Rule('"real" or "virtual"', lambda value: isinstance(value, str) and value in ("real", "virtual")),
]
Seed = Annotated[int | str, Rule("a whole number of at most 64 bits, or a printable text", _seed)]
State = Annotated[Snapshot, Rule("a Snapshot, as snapshot() gives", lambda value: isinstance(value, Snapshot))]

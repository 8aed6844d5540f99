"""Large objects of every stored kind, drawn from the schema: one list, map or text of the kind made as long as asked.

    places(plural)     every field that can grow, as a path through the kind's messages
    Filled             a kind's object with one such field filled: with what validation accepts, or with what it refuses

What validation accepts is found by asking: a small object is sent, and what the refusal names is mended, by the field's
type, until it is accepted (`Filled.mend`). Whatever is never accepted is still sent, as a body that is refused.
"""
# ruff: noqa: E501

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

import orjson
import worlds

from minikube_py.api.kind import Kind
from minikube_py.api.registry import REGISTRY
from minikube_py.api.schema import SCHEMA, Message, Type

Json = dict[str, Any]
AT: Final = "@at@"
"""In a text: the item's number. A text that is `NUMBER` becomes the number itself."""
NUMBER: Final = "@number@"
DEPTH_MAX: Final = 12
_SET_BY_THE_SERVER: Final = frozenset(("kind", "apiVersion", "uid", "resourceVersion", "generateName", "selfLink"))
_RULE: Final = {"apiGroups": ["x.io"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["xs"]}
_POLICY: Final = {"matchConstraints": {"resourceRules": [_RULE]}, "failurePolicy": "Ignore"}
_NAMES: Final = {"plural": "widgets", "kind": "Widget"}
_OPEN: Final = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_ADMISSION: Final = worlds.ADMISSION
MORE: Final[dict[str, tuple[str, Json]]] = {
    "validatingadmissionpolicies": (
        f"{_ADMISSION}/validatingadmissionpolicies", {"spec": {**_POLICY, "validations": [{"expression": "true"}]}},
    ),
    "validatingadmissionpolicybindings": (
        f"{_ADMISSION}/validatingadmissionpolicybindings", {"spec": {"policyName": "p", "validationActions": ["Warn"]}},
    ),
    "mutatingadmissionpolicies": (
        f"{_ADMISSION}/mutatingadmissionpolicies",
        {"spec": {**_POLICY, "reinvocationPolicy": "Never", "mutations": [
            {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": "Object{}"}},
        ]}},
    ),
    "mutatingadmissionpolicybindings": (f"{_ADMISSION}/mutatingadmissionpolicybindings", {"spec": {"policyName": "p"}}),
    "customresourcedefinitions": (
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        {"metadata": {"name": "widgets.x.io"}, "spec": {"group": "x.io", "scope": "Namespaced", "names": _NAMES, "versions": [
            {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": _OPEN}},
        ]}},
    ),
    "apiservices": (
        "/apis/apiregistration.k8s.io/v1/apiservices",
        {"metadata": {"name": "v1.x.io"}, "spec": {"group": "x.io", "version": "v1", "groupPriorityMinimum": 1, "versionPriority": 1,
         "insecureSkipTLSVerify": True, "service": {"name": "s", "namespace": "n"}}},
    ),
    "ipaddresses": (
        "/apis/networking.k8s.io/v1/ipaddresses",
        {"metadata": {"name": "10.9.1.1"}, "spec": {"parentRef": {"resource": "services", "name": "s", "namespace": "n"}}},
    ),
}  # fmt: skip
"""Kinds that `worlds` does not have. Of certificate requests only metadata and status can be large."""
OBJECTS: Final[dict[str, tuple[str, Json]]] = {**worlds.WORLD, **MORE}


@dataclass(frozen=True)
class Place:
    """`steps`: names of fields, and 0 for the first item of a list. `type`: of the list, map or text there."""

    plural: str
    steps: tuple[str | int, ...]
    type: Type

    def __str__(self) -> str:
        return f"{self.plural} {'.'.join(map(str, self.steps))}"


def kind_of(plural: str) -> Kind:
    parts = OBJECTS[plural][0].split("/")
    group, version = ("", "v1") if parts[1] == "api" else parts[2:4]
    found = REGISTRY.resource(group, version, parts[-1])
    assert found is not None, plural
    return found


def message_of(plural: str) -> Message:
    kind = kind_of(plural)
    found = SCHEMA.kind(kind.group, kind.version, kind.kind)
    assert found is not None, plural
    return found


def places(plural: str) -> list[Place]:
    return list(_below(plural, message_of(plural), (), ()))


def _below(plural: str, message: Message, steps: tuple[str | int, ...], seen: tuple[str, ...]) -> Iterator[Place]:
    """No message within itself."""
    if message.name in seen or len(steps) > DEPTH_MAX:
        return
    for each in message.fields.values():
        here = (*steps, each.name)
        if each.name in _SET_BY_THE_SERVER or here == ("metadata", "managedFields"):
            continue
        yield from _within(plural, each.type, here, (*seen, message.name))


def _within(plural: str, type_: Type, steps: tuple[str | int, ...], seen: tuple[str, ...]) -> Iterator[Place]:
    if type_.kind in ("list", "map"):
        yield Place(plural, steps, type_)
        assert type_.element is not None
        if type_.kind == "list":
            yield from _within(plural, type_.element, (*steps, 0), seen)
    elif type_.kind == "string" and not type_.named:
        yield Place(plural, steps, type_)
    elif message := _message(type_):
        yield from _below(plural, message, steps, seen)


def _message(type_: Type) -> Message | None:
    if type_.message and SCHEMA.has(type_.message) and type_.kind in ("message", "raw"):
        return SCHEMA.message(type_.message)
    return None


# --- values -----------------------------------------------------------------------------------------------------------

_TEXTS: Final = (
    f"a{AT}", f"x.io/a{AT}", f"a{AT}.example.com", f"/a{AT}", "10.1.{hi}.{lo}", "10.1.{hi}.{lo}/32", "v1", "true", f"A{AT}",
    f"requests.x.io/a{AT}", "pods", "cpu", "Always", "ServiceAccount", f"x.io/x/{AT}", "0", "1", "",
    f"https://a.example.com/{AT}", "2026-01-01T00:00:00Z",
)  # fmt: skip
_OF_KIND: Final[dict[str, tuple[Any, ...]]] = {
    "bool": (True, False), "int32": (NUMBER, 1, 0, 80, 600), "int64": (NUMBER, 1, 0, 600), "uint8": (1,), "float64": (1.0,),
    "time": ("2026-01-01T00:00:00Z",), "microtime": ("2026-01-01T00:00:00.000000Z",), "duration": ("1s",),
    "quantity": ("1", "1Gi", "500m"), "intorstring": (1, "10%", 80), "bytes": ("AAEC",), "any": ({"a": AT},),
    "raw": ({"a": f"b{AT}"},), "schema-or": ({"type": "string"},),
}  # fmt: skip


_BY_NAME: Final[dict[str, tuple[Any, ...]]] = {
    "operator": ("In", "Exists", "Equal"), "image": ("i",), "ip": ("10.1.{hi}.{lo}",), "expression": ("true",), "jsonPath": (f".spec.a{AT}",),
    "topologyKey": (f"k{AT}",), "accessModes": (["ReadWriteOnce"],), "values": ([f"v{AT}"],), "cidr": ("10.1.{hi}.{lo}/32",),
    "labelSelector": ({"matchLabels": {"a": f"b{AT}"}},), "resources": ({"requests": {"storage": "1Gi"}},),
}  # fmt: skip
"""Tried first for a field of this name."""
_QUOTED: Final = re.compile(r"`([a-zA-Z]+)`")


def candidates(type_: Type, name: str | int = "") -> tuple[Any, ...]:
    """Values to try, one after the other."""
    if (known := _BY_NAME.get(str(name))) is not None and type_.kind in ("string", "list", "message"):
        fitting = tuple(each for each in known if isinstance(each, {"list": list, "message": dict}.get(type_.kind, str)))
        return (*fitting, *candidates(type_))
    if type_.kind == "string":
        return (*(SCHEMA.enum(type_.named) if type_.named else ()), *_TEXTS)
    if type_.kind in ("list", "map"):
        assert type_.element is not None
        inner = candidates(type_.element)[:6]
        return tuple([each] if type_.kind == "list" else {f"a{AT}": each} for each in inner)
    if message := _message(type_):
        return (started(message),)
    return _OF_KIND.get(type_.kind, _TEXTS)


def started(message: Message) -> Json:
    """A message with its names, which make items distinct; the rest is filled in as refusals ask for it."""
    found: Json = {}
    for each in message.fields.values():
        if each.required or each.name in ("name", "key", "uid", "ip", "type", "port", "containerPort", "path"):
            if each.type.kind == "message":
                continue
            found[each.name] = candidates(each.type, each.name)[0]
    return found


def numbered(value: Any, at: int) -> Any:
    if isinstance(value, str):
        if value == NUMBER:
            return at % 60_000 + 1
        if AT in value or "{hi}" in value:
            return value.replace(AT, str(at)).replace("{hi}", str(at >> 8 & 255)).replace("{lo}", str(at & 255))
        return value
    if isinstance(value, dict):
        return {numbered(name, at): numbered(each, at) for name, each in value.items()}
    return [numbered(each, at) for each in value] if isinstance(value, list) else value


# --- one filled object ------------------------------------------------------------------------------------------------

_FIELD: Final = re.compile(r"[^.\[\]]+|\[[^\]]*\]")
_SUPPORTED: Final = re.compile(r'supported values: (".*)$')


@dataclass
class Filled:
    """`item`: of a list or map, with its numbers open; of a text what is repeated. `base`: the object around it."""

    place: Place
    base: Json
    item: Any = None
    key: str = f"a{AT}"
    tried: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, place: Place, name: str) -> Filled:
        path, body = OBJECTS[place.plural]
        base = copy.deepcopy(body)
        metadata = base.setdefault("metadata", {})
        metadata.setdefault("name", name)
        if "/namespaces/" in path:
            metadata["namespace"] = path.split("/namespaces/")[1].split("/")[0]
        type_ = place.type
        item: Any = "a" if type_.kind == "string" else candidates(type_.element)[0] if type_.element else None
        return cls(place, base, item)

    @property
    def status(self) -> bool:
        return self.place.steps[0] == "status"

    def made(self, count: int) -> Json:
        """With `count` items, or a text of that length."""
        obj = numbered(self.base, 0)
        at: Any = obj
        message, type_ = message_of(self.place.plural), None
        steps = self.place.steps
        for step, after in pairwise(steps):
            empty: Any = [] if after == 0 else {}
            if step == 0:
                if not at:
                    at.append(numbered(started(message), 0) if message else empty)
                at = at[0]
            else:
                if at.get(step) is None:
                    at[step] = empty
                at = at[step]
            if step != 0 and message is not None:
                type_ = message.fields[str(step)].type
            elif type_ is not None:
                type_ = type_.element
            message = _message(type_) if type_ is not None and type_.kind != "list" else (
                _message(type_.element) if type_ is not None and type_.element is not None else None
            )  # fmt: skip
        value: Any
        if self.place.type.kind == "string":
            value = str(self.item) * count
        elif self.place.type.kind == "list":
            value = [numbered(self.item, number) for number in range(count)]
        else:
            value = {numbered(self.key, number): numbered(self.item, number) for number in range(count)}
        if steps[-1] == 0:
            at[:1] = [value]
        else:
            at[steps[-1]] = value
        return obj

    def sized(self, size: int) -> Json:
        """As many as make `size` bytes of JSON."""
        if self.place.type.kind == "string":
            return self.made(size // max(1, len(str(self.item))))
        few, more = (len(orjson.dumps(self.made(count))) for count in (100, 200))
        each = max(1.0, (more - few) / 100)
        return self.made(max(1, int((size - few) / (each + 2)) + 100))

    def refusable(self) -> Filled:
        """The same with items that no validation takes, where one looks."""
        found = copy.deepcopy(self)
        found.item, found.key = _spoilt(self.item), f"-bad/{AT}/-"
        return found

    # --- mending ------------------------------------------------------------------------------------------------------

    def mend(self, causes: list[Json]) -> bool:
        """Changes what the refusal of `made(2)` names. False where nothing more can be tried."""
        several = {tuple(self._steps(str(cause.get("field") or ""))): cause for cause in causes[:16]}
        changed = [self._mended(cause) for cause in several.values()]
        return True in changed

    def _mended(self, cause: Json) -> bool:
        steps = self._steps(str(cause.get("field") or ""))
        depth = len(self.place.steps)
        if steps[:depth] == self.place.steps and self.place.type.kind != "string":
            inner = steps[depth + 1 :]
            element = self.place.type.element
            if self.place.type.kind == "map" and not inner and "key" in str(cause.get("message")):
                return self._next_key()
            assert element is not None
            holder: Any = [self.item]
            changed = self._put(holder, (0, *inner), element, cause)
            self.item = holder[0]
            return changed or (self.place.type.kind == "map" and self._next_key())
        message = message_of(self.place.plural)
        if not steps or steps[0] not in message.fields:
            return False
        return self._put(self.base, steps, None, cause)

    def _next_key(self) -> bool:
        chosen = self._turn("key", len(_TEXTS))
        if chosen is None:
            return False
        self.key = _TEXTS[chosen]
        return True

    def _turn(self, what: str, count: int) -> int | None:
        turn = self.tried.get(what, 0)
        self.tried[what] = turn + 1
        return turn if turn < count else None

    def _put(self, holder: Any, steps: tuple[str | int, ...], element: Type | None, cause: Json) -> bool:
        type_ = element or self._type_at(steps)
        if element is not None:
            for step in steps[1:]:
                type_ = _stepped(type_, step)
        if type_ is None:
            return False
        reason, message = str(cause.get("reason")), str(cause.get("message"))
        if (of := _message(type_)) and (asked := [each for each in _QUOTED.findall(message) if each in of.fields]):
            steps, type_ = (*steps, asked[0]), of.fields[asked[0]].type
        values = candidates(type_, next((step for step in reversed(steps) if step != 0), ""))
        if found := _SUPPORTED.search(message):
            values = tuple(re.findall(r'"([^"]*)"', found[1])) or values
        if "orbidden" in reason or "may not be specified" in message or "must not be set" in message:
            return _remove(holder, steps)
        chosen = self._turn(f"{element is not None} {steps}", len(values))
        return chosen is not None and _set(holder, steps, values[chosen])

    def _steps(self, text: str) -> tuple[str | int, ...]:
        found: list[str | int] = []
        for part in _FIELD.findall(text):
            inner = part[1:-1] if part[0] == "[" else part
            found.append(0 if part[0] == "[" and inner.isdigit() else inner)
        return tuple(found)

    def _type_at(self, steps: tuple[str | int, ...]) -> Type | None:
        found = message_of(self.place.plural).fields.get(str(steps[0]))
        type_ = found.type if found else None
        for step in steps[1:]:
            type_ = _stepped(type_, step)
        return type_


def _stepped(type_: Type | None, step: str | int) -> Type | None:
    if type_ is None:
        return None
    if type_.kind in ("list", "map"):
        return type_.element
    message = _message(type_)
    found = message.fields.get(str(step)) if message else None
    return found.type if found else None


def _set(holder: Any, steps: tuple[str | int, ...], value: Any) -> bool:
    for step, after in pairwise(steps):
        if isinstance(step, int):
            if not isinstance(holder, list) or not holder:
                return False
            holder = holder[0]
        elif isinstance(holder, dict):
            if not isinstance(holder.get(step), dict | list):
                holder[step] = [] if after == 0 else {}
            holder = holder[step]
        else:
            return False
    last = steps[-1]
    if isinstance(last, int):
        if not isinstance(holder, list):
            return False
        holder[:1] = [copy.deepcopy(value)]
    elif isinstance(holder, dict):
        holder[last] = copy.deepcopy(value)
    else:
        return False
    return True


def _remove(holder: Any, steps: tuple[str | int, ...]) -> bool:
    for step in steps[:-1]:
        if isinstance(step, int):
            holder = holder[0] if isinstance(holder, list) and holder else None
        else:
            holder = holder.get(step) if isinstance(holder, dict) else None
    return isinstance(holder, dict) and holder.pop(steps[-1], None) is not None


def _spoilt(value: Any) -> Any:
    if isinstance(value, str):
        return f"-bad/{AT}/-"
    if isinstance(value, dict):
        return {name: _spoilt(each) for name, each in value.items()}
    return [_spoilt(each) for each in value] if isinstance(value, list) else value

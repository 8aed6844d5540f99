"""The external inputs of a history in virtual time, and their form in a log."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from minikube_py.apiserver.messages import Request
from minikube_py.apiserver.rules import User
from minikube_py.client.transport import JSON
from minikube_py.cluster.gate import DOOR

BODY: Final = 3
NS_MAX: Final = 1 << 63


class Input(NamedTuple):
    """An external input at `at_ns`: `kind` "request" (method, path, query, body, content type, user, as whom, accepted,
    program, If-None-Match, whether laid out), "advance" (seconds; and nanoseconds, where it was interrupted after
    those), "fault" (its fields), "all_well", "snapshot", "restore" (the snapshot's revision), "token"
    (namespace and name of a Secret whose token a read used first on its day); "code" (its name) for what cannot be
    recorded."""

    at_ns: int
    kind: str
    arguments: tuple[Any, ...]
    digest: str = ""
    """Of the history before it; "" in logs of earlier versions."""

    def to_json(self) -> dict[str, Any]:
        return {**self._asdict(), "arguments": [_plain(each) for each in self.arguments]}

    @staticmethod
    def from_json(row: Mapping[str, Any]) -> Input:
        """Raises: ValueError, TypeError or LookupError if it is not one."""
        arguments, digest = list(row["arguments"]), row.get("digest", "")
        if row["kind"] == "request":
            # Only bodies are bytes; a query may look like one.
            arguments[BODY] = base64.b64decode(arguments[BODY]["base64"], validate=True)
        found = Input(row["at_ns"], row["kind"], tuple(arguments), digest)
        if not (_whole(found.at_ns) and _text(digest) and _fits(FORMS[found.kind], arguments)):
            raise ValueError(f"not the fields of {found.kind}: {row}")
        return found


def _text(value: object) -> bool:
    return isinstance(value, str)


def _texts(value: object) -> bool:
    return isinstance(value, Mapping) and all(_text(each) for each in value.values())


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < NS_MAX


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < NS_MAX


def _list_of(fits: Callable[[Any], bool], value: object) -> bool:
    return isinstance(value, list) and all(map(fits, value))


def _places(value: object) -> bool:
    return _list_of(_whole, value)


def _extra(value: object) -> bool:
    return isinstance(value, list) and len(value) == 2 and _text(value[0]) and _list_of(_text, value[1])


def _user(value: object) -> bool:
    if value is None or value == "door":
        return True
    fields = (_text, lambda groups: _list_of(_text, groups), _text, lambda extra: _list_of(_extra, extra))
    return isinstance(value, list) and len(value) == len(fields) and _fits((fields,), value)


def _fits(forms: Sequence[Sequence[Callable[[Any], bool]]], arguments: Sequence[Any]) -> bool:
    def holds(form: Sequence[Callable[[Any], bool]]) -> bool:
        return len(form) == len(arguments) and all(fits(each) for fits, each in zip(form, arguments, strict=True))

    return any(map(holds, forms))


def _or_none(fits: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: value is None or fits(value)


_ASKED: Final = (_text, _text, _texts, lambda body: isinstance(body, bytes), _text, _user, _user)
_FAULT: Final = (_whole, _text, _places, _places, _whole, _number, _text)
FORMS: Final[Mapping[str, Sequence[Sequence[Callable[[Any], bool]]]]] = {
    # The first logs had neither programs nor forms of answers.
    "request": (_ASKED, (*_ASKED, _text, _text, _or_none(_text), _or_none(lambda laid: isinstance(laid, bool)))),
    "advance": ((_number,), (_number, _whole)),
    "fault": (_FAULT,),
    "all_well": ((),),
    "snapshot": ((),),
    "restore": ((_whole,),),
    "token": ((_text, _text),),
    "code": ((_text,),),
}
"""Of each kind of input, the arguments that it may have."""


def input_of(request: Request) -> tuple[Any, ...]:
    """Everything the server reads from it."""
    return (
        request.method, request.path, dict(request.query), request.body, request.content_type,
        _user_row(request.user), _user_row(request.wanted),
        request.accept, request.user_agent, request.if_none_match, request.pretty,
    )  # fmt: skip


def request_of(arguments: Sequence[Any]) -> Request:
    """The inverse."""
    method, path, query, body, content_type, user, wanted, *more = arguments
    accept, user_agent, if_none_match, pretty = more or (JSON, "", None, None)
    found = Request(method, path, query, body, user_of(user), accept, content_type, if_none_match, user_of(wanted))
    found.user_agent, found.pretty = user_agent, pretty
    return found


def _user_row(user: User | None) -> Any:
    """The public API's user, not affected by faults, is compared by identity."""
    if user is None or user is DOOR:
        return None if user is None else "door"
    return [user.name, list(user.groups), user.uid, [[key, list(values)] for key, values in user.extra]]


def user_of(row: Any) -> User | None:
    if row is None or row == "door":
        return None if row is None else DOOR
    name, groups, uid, extra = row
    return User(name, tuple(groups), uid, tuple((key, tuple(values)) for key, values in extra))


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return {"base64": base64.b64encode(value).decode()}
    return dict(value) if isinstance(value, Mapping) else value

"""What a custom plugin's method may return; anything else is refused, with the type that is expected.

A check gets the result and the arguments of the call. It returns the result as the framework wants it, or raises
Nonsense.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence, Set
from inspect import iscoroutinefunction
from math import isnan
from reprlib import repr as short
from typing import Any, Final

import numpy as np

from minikube_py.client.rest import ResourceRef
from minikube_py.scheduler.devices import known
from minikube_py.scheduler.framework import (
    INT64_MAX,
    INT64_MIN,
    MAX_NODE_SCORE,
    Action,
    Bound,
    ClusterEvent,
    Code,
    Dimension,
    DimensionKind,
    EventRegistration,
    IntArray,
    PermitResult,
    PostFilterResult,
    PreFilterResult,
    Status,
)
from minikube_py.scheduler.groups.state import POD_GROUPS
from minikube_py.scheduler.kinds import NeededKind
from minikube_py.scheduler.volumes import storage

BUILT_IN: Final = {kind.name: kind for kind in (*storage.ALL, *known.ALL, POD_GROUPS)}
SCORE_MAX: Final = INT64_MAX // MAX_NODE_SCORE
"""Before normalisation, which multiplies."""
_NUMBER: Final = (int, float, np.integer, np.floating)


class Nonsense(Exception):
    """The text says what was returned and what is expected."""

    def __init__(self, found: object, wanted: str, where: str = "") -> None:
        try:
            said = short(found)
        except Exception:
            said = f"a {type(found).__name__}"
        super().__init__(f"returned {said}{where}; {wanted} is expected")


def _anything(found: Any, *given: Any) -> None:
    return None


def _status(found: Any, *given: Any) -> Status | None:
    if found is None or (isinstance(found, Status) and _is_whole(found)):
        return found
    raise Nonsense(found, "a Status or None")


def _is_whole(status: Status) -> bool:
    texts = (*status.reasons, status.plugin)
    return isinstance(status.code, Code) and all(isinstance(text, str) and _is_unicode(text) for text in texts)


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _pair(found: Any, kind: type, wanted: str) -> tuple[Any, Status | None]:
    if isinstance(found, tuple) and len(found) == 2 and (found[0] is None or isinstance(found[0], kind)):
        return found[0], _status(found[1])
    raise Nonsense(found, wanted)


def _pre_filtered(found: Any, *given: Any) -> tuple[PreFilterResult | None, Status | None]:
    result, status = _pair(found, PreFilterResult, "(PreFilterResult or None, Status or None)")
    if result is None or result.node_names is None:
        return result, status
    if not isinstance(result.node_names, Set):
        raise Nonsense(result, "a frozenset of node names, or None,")
    return PreFilterResult(frozenset(result.node_names)), status


def _post_filtered(found: Any, *given: Any) -> tuple[PostFilterResult | None, Status]:
    result, status = _pair(found, PostFilterResult, "(PostFilterResult or None, Status)")
    if status is None or not (result is None or isinstance(result.nominated_node, str | None)):
        raise Nonsense(found, "(PostFilterResult or None, Status)")
    return result, status


def _permitted(found: Any, *given: Any) -> PermitResult:
    if not isinstance(found, tuple) or len(found) != 2:
        raise Nonsense(found, "a PermitResult")
    status, timeout_s = found
    if not isinstance(timeout_s, _NUMBER) or isnan(timeout_s):
        raise Nonsense(found, "a PermitResult whose timeout is a number of seconds")
    return PermitResult(_status(status), float(timeout_s))


def _score(found: Any, *given: Any) -> int:
    if isinstance(found, bool) or not isinstance(found, int | np.integer) or abs(int(found)) > SCORE_MAX:
        raise Nonsense(found, "an int", f" for node {given[-1].name}")
    return int(found)


def _array(found: Any, kinds: str, shape: tuple[int, ...], what: str) -> Any:
    if isinstance(found, np.ndarray) and found.dtype.kind in kinds and found.shape == shape:
        return found
    raise Nonsense(found, f"a numpy array of {shape[0]} {what}")


def _mask(found: Any, *given: Any) -> Any:
    return None if found is None else _array(found, "b", (len(given[-1]),), "bools, one a node, or None,")


def _ints(found: Any, shape: tuple[int, ...], what: str) -> IntArray:
    whole: IntArray = _array(found, "iu", shape, what).astype(np.int64, copy=False)
    if whole.size and max(abs(int(whole.min())), abs(int(whole.max()))) > SCORE_MAX:
        raise Nonsense(found, f"a numpy array of ints up to {SCORE_MAX}")
    return whole


def _scores(found: Any, *given: Any) -> IntArray | None:
    return None if found is None else _ints(found, (len(given[-1]),), "ints, one a node, or None,")


def _normalized(found: Any, *given: Any) -> IntArray:
    return _ints(found, given[-1].shape, "ints, one a score,")


def _codes(found: Any, *given: Any) -> tuple[IntArray, Callable[[int], Status]]:
    if not (isinstance(found, tuple) and len(found) == 2 and callable(found[1])):
        raise Nonsense(found, "(a code for each node, a function from a code to its Status)")
    codes, meaning = _ints(found[0], (len(given[-1]),), "codes, one a node,"), found[1]
    known: dict[int, Status] = {}
    for code in np.unique(codes).tolist():
        status = _status(meaning(code))
        if code < 0 or status is None or not status.is_rejected:
            raise Nonsense((code, status), "a code of at least 0, and a Status that rejects")
        known[code] = status
    return codes, known.__getitem__


def _each(kind: type, is_whole: Callable[[Any], bool], wanted: str) -> Callable[..., Any]:
    def check(found: Any, *given: Any) -> Sequence[Any]:
        if isinstance(found, Iterable) and not isinstance(found, str | bytes):
            listed = list(found)
            if all(isinstance(each, kind) and is_whole(each) for each in listed):
                return listed
        raise Nonsense(found, wanted)

    return check


def _is_registration(each: EventRegistration) -> bool:
    event, hint = each
    whole = isinstance(event, ClusterEvent) and isinstance(event.resource, str) and isinstance(event.action, Action)
    return whole and (hint is None or (callable(hint) and not iscoroutinefunction(hint)))


def _is_kind(each: NeededKind) -> bool:
    named = isinstance(each.resource, ResourceRef) and isinstance(each.name, str)
    whole = named and isinstance(each.project, Hashable) and callable(each.project)
    # Hints of built-in plugins could not read what another projection returns.
    return whole and isinstance(each.indexers, Mapping) and BUILT_IN.get(each.name, each) == each


def _is_bound(each: Bound) -> bool:
    of, low, high, values = each
    named = isinstance(of, Dimension) and isinstance(of.kind, DimensionKind) and isinstance(of.name, str)
    numbers = all(isinstance(end, int | np.integer) and INT64_MIN <= end <= INT64_MAX for end in (low, high))
    return named and numbers and isinstance(values, frozenset | None)


def _hashable(found: Any, *given: Any) -> Any:
    try:
        frozenset((found,))
    except Exception:
        raise Nonsense(found, "a hashable") from None
    return found


def _truth(found: Any, *given: Any) -> bool:
    if not isinstance(found, bool | np.bool_):
        raise Nonsense(found, "a bool")
    return bool(found)


def _ordered(found: Any, *given: Any) -> Any:
    if found is None or found != found:
        raise Nonsense(found, "a key that can be compared")
    return found


CHECKS: Final[Mapping[str, Callable[..., Any]]] = {
    "pre_enqueue": _status,
    "sort_key": _ordered,
    "less": _truth,
    "pre_filter": _pre_filtered,
    "add_pod": _status,
    "remove_pod": _status,
    "filter": _status,
    "filter_nodes": _mask,
    "reject_codes": _codes,
    "post_filter": _post_filtered,
    "post_filter_through": _post_filtered,
    "pre_score": _status,
    "score": _score,
    "score_nodes": _scores,
    "normalize_scores": _normalized,
    "reserve": _status,
    "unreserve": _anything,
    "permit": _permitted,
    "has_pre_bind": _truth,
    "pre_bind": _status,
    "bind": _status,
    "post_bind": _anything,
    "events_to_register": _each(
        EventRegistration, _is_registration, "EventRegistrations of ClusterEvents with an Action, hints not async,"
    ),
    "kinds_needed": _each(NeededKind, _is_kind, "NeededKinds, with names of its own for projections of its own,"),
    "bounds": _each(Bound, _is_bound, "Bounds of Dimensions by int64"),
    "sign_pod": _hashable,
    "gate_key": _hashable,
}
"""By method."""


def checks() -> dict[str, Callable[..., Any]]:
    """CHECKS for one plugin, with those that remember its earlier results."""
    return {**CHECKS, "kinds_needed": _same_kinds()}


def _same_kinds() -> Callable[..., Sequence[NeededKind]]:
    known: dict[str, NeededKind] = {}

    def check(found: Any, *given: Any) -> Sequence[NeededKind]:
        listed: Sequence[NeededKind] = CHECKS["kinds_needed"](found)
        for kind in listed:
            # Each other projection would start an informer, and hold the pod until it is synced.
            if known.setdefault(kind.name, kind) != kind:
                raise Nonsense(kind, "the NeededKind of that name from earlier calls, with `project` made once,")
        return listed

    return check

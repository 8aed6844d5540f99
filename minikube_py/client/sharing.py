"""One copy of values that many projections hold: thousands of pods have the same labels, and each informer its own view
of each pod. Names, uids and other texts are shared by `sys.intern`, which drops unreferenced ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NoReturn, TypeVar

from minikube_py.api.memo import Bounded

K = TypeVar("K")
V = TypeVar("V")


class ReadOnly(dict[K, V]):
    """A dictionary that code of others holds, too, and which costs it no more to read. Who keeps it changes it by PUT
    and DROP. Its copies are ordinary ones."""

    __slots__ = ()

    def _refused(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError("this dictionary is read-only, as others hold it, too; change a copy of it")

    __setitem__ = __delitem__ = __ior__ = clear = pop = popitem = setdefault = update = _refused  # type: ignore

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(self),)


PUT: Final = dict.__setitem__
DROP: Final = dict.__delitem__


def locked(array: V) -> V:
    """A read-only view of a numpy array, for others; who keeps it writes to what `owned` has."""
    view: Any = array.view()  # type: ignore[attr-defined]
    view.flags.writeable = False
    found: V = view
    return found


def owned(view: Any) -> Any:
    return view.base


LABELS_SHARED_MAX: Final = 64
"""Larger maps are rarely shared, and would be kept for long."""
_NO_LABELS: Final[Mapping[str, str]] = ReadOnly()


_labels: Final = Bounded()


def shared_labels(labels: Mapping[str, str] | None) -> Mapping[str, str]:
    """As `labels`, or equal ones seen before. The order of members counts, since answers preserve it."""
    if not labels:
        return _NO_LABELS
    if len(labels) > LABELS_SHARED_MAX:
        return ReadOnly(labels)
    key = tuple(labels.items())
    found: Mapping[str, str] | None = _labels.known(key)
    return _labels(key, ReadOnly(labels)) if found is None else found

"""`metav1.LabelSelector`, the form in which specs hold a selector: matchLabels and matchExpressions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import chain, repeat
from operator import itemgetter
from typing import Any, Final

from minikube_py.api.meta import are_label_keys, are_label_values, is_qualified_name
from minikube_py.api.selectors import LabelRequirement, LabelSelector


class _Nothing(LabelSelector):
    """Selects no object, and is printed as nothing."""

    __slots__ = ()

    def __str__(self) -> str:
        return ""


NOTHING: Final = _Nothing((LabelRequirement("", "in"),))
_OPERATORS: Final = {"In": "in", "NotIn": "notin", "Exists": "exists", "DoesNotExist": "!"}

_KEY: Final = itemgetter(0)
_VALUES: Final = itemgetter(2)
_REQUIREMENT: Final[Callable[[tuple[Any, ...]], LabelRequirement]] = partial(tuple.__new__, LabelRequirement)


class InvalidSelector(ValueError):
    """An invalid selector."""


def selector_of(document: Mapping[str, Any] | None) -> LabelSelector:
    """What `document` selects: a missing one nothing, an empty one everything. Raises: InvalidSelector."""
    if document is None:
        return NOTHING
    labels: Mapping[str, str] = document.get("matchLabels") or {}
    found = list(map(_REQUIREMENT, zip(labels, repeat("="), zip(labels.values()))))
    for expression in document.get("matchExpressions") or ():
        op, values = _OPERATORS.get(expression.get("operator") or ""), expression.get("values") or ()
        if op is None or bool(values) != (op in ("in", "notin")):
            raise InvalidSelector(f"operator {expression.get('operator')!r} with {len(values)} values")
        found.append(LabelRequirement(expression.get("key") or "", op, tuple(sorted(values))))
    if not are_label_keys([*map(_KEY, found)]) or not are_label_values([*chain.from_iterable(map(_VALUES, found))]):
        _check(found)
    return LabelSelector(tuple(sorted(found, key=_KEY)))


def _check(requirements: Iterable[LabelRequirement]) -> None:
    """Raises: InvalidSelector."""
    for key, _, texts in requirements:
        if is_qualified_name(key) or not are_label_values(texts):
            raise InvalidSelector(f"{key!r} or one of its values is not a label")


def selects(document: Mapping[str, Any] | None, labels: Mapping[str, str]) -> bool:
    """Whether `document` is valid and selects these labels. Parsed only if its `matchLabels` do: there may be
    thousands, and many such selectors."""
    wanted = (document or {}).get("matchLabels") or {}
    if len(wanted) > len(labels) or any(labels.get(key) != value for key, value in wanted.items()):
        return False
    try:
        return selector_of(document).matches(labels)
    except InvalidSelector:
        return False


def selector_text(document: Mapping[str, Any] | None, invalid: str = "<error>", empty: str = "<none>") -> str:
    """As it is printed: `invalid` or, without requirements, `empty` on those."""
    try:
        return str(selector_of(document)) or empty
    except InvalidSelector:
        return invalid

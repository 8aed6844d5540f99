"""`metav1.LabelSelector`, the form in which specs hold a selector: matchLabels and matchExpressions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from operator import itemgetter
from typing import Any, Final

from minikube_py.api.meta import is_label_value, is_qualified_name
from minikube_py.api.selectors import LabelRequirement, LabelSelector


class _Nothing(LabelSelector):
    """Selects no object, and is printed as nothing."""

    __slots__ = ()

    def __str__(self) -> str:
        return ""


NOTHING: Final = _Nothing((LabelRequirement("", "in"),))
_OPERATORS: Final = {"In": "in", "NotIn": "notin", "Exists": "exists", "DoesNotExist": "!"}


_PREFIX: Final = r"(?=.{1,253}\Z)(?:[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*/)?"
_COMMON: Final = re.compile(_PREFIX + "[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
"""Keys that are valid without asking the rules in Python, of which there may be thousands."""


class InvalidSelector(ValueError):
    """An invalid selector."""


def selector_of(document: Mapping[str, Any] | None) -> LabelSelector:
    """What `document` selects: a missing one nothing, an empty one everything. Raises: InvalidSelector."""
    if document is None:
        return NOTHING
    found = [LabelRequirement(key, "=", (value,)) for key, value in (document.get("matchLabels") or {}).items()]
    for expression in document.get("matchExpressions") or ():
        op, values = _OPERATORS.get(expression.get("operator") or ""), expression.get("values") or ()
        if op is None or bool(values) != (op in ("in", "notin")):
            raise InvalidSelector(f"operator {expression.get('operator')!r} with {len(values)} values")
        found.append(LabelRequirement(expression.get("key") or "", op, tuple(sorted(values))))
    for key, _, texts in found:
        if (not _COMMON.fullmatch(key) and is_qualified_name(key)) or any(map(is_label_value, texts)):
            raise InvalidSelector(f"{key!r} or one of its values is not a label")
    return LabelSelector(tuple(sorted(found, key=itemgetter(0))))


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

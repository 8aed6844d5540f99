"""Kubernetes' named formats in expressions: `format.dns1123Label().validate(text)`.

Source: apiserver `pkg/cel/library/format.go`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from minikube_py.api.custom.formats import is_format
from minikube_py.api.meta import (
    is_dns1035_label,
    is_dns1123_label,
    is_dns1123_subdomain,
    is_label_value,
    is_qualified_name,
    mask_trailing_dash,
)
from minikube_py.cel.urls import url_problem
from minikube_py.cel.values import NONE, NamedFormat, Optional

Rule = Callable[[str], Sequence[str]]


def _prefix(rule: Rule) -> Rule:
    return lambda text: rule(mask_trailing_dash(text))


def _of_schemas(name: str, message: str) -> Rule:
    return lambda text: () if is_format(name, text) else (message,)


def _uri(text: str) -> Sequence[str]:
    problem = url_problem(text)
    return () if problem is None else (problem,)


_RULES: Final[dict[str, tuple[str, Rule]]] = {
    "dns1123Label": ("DNS1123Label", is_dns1123_label),
    "dns1123Subdomain": ("DNS1123Subdomain", is_dns1123_subdomain),
    "dns1035Label": ("DNS1035Label", is_dns1035_label),
    "qualifiedName": ("QualifiedName", is_qualified_name),
    "dns1123LabelPrefix": ("DNS1123LabelPrefix", _prefix(is_dns1123_label)),
    "dns1123SubdomainPrefix": ("DNS1123SubdomainPrefix", _prefix(is_dns1123_subdomain)),
    "dns1035LabelPrefix": ("DNS1035LabelPrefix", _prefix(is_dns1035_label)),
    "labelValue": ("LabelValue", is_label_value),
    "uri": ("URI", _uri),
    "uuid": ("uuid", _of_schemas("uuid", "does not match the UUID format")),
    "byte": ("byte", _of_schemas("byte", "invalid base64")),
    "date": ("date", _of_schemas("date", "invalid date")),
    "datetime": ("datetime", _of_schemas("datetime", "invalid datetime")),
}
_BY_NAME: Final = dict(_RULES.values())


def _named(name: str) -> Optional:
    return Optional(NamedFormat(_RULES[name][0])) if name in _RULES else NONE


def _validated(of: NamedFormat, text: str) -> Optional:
    messages = _BY_NAME[of.name](text)
    return Optional(list(messages)) if messages else NONE


def _constant(value: NamedFormat) -> Callable[[], Any]:
    return lambda: value


FORMATS: Final[dict[str, Callable[..., Any]]] = {
    "format-named": _named,
    "format-validate": _validated,
    **{f"format.{name}": _constant(NamedFormat(known)) for name, (known, _) in _RULES.items()},
}
"""See `Environment.functions`."""

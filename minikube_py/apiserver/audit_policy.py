"""The audit policy (`audit.k8s.io/v1` Policy): which requests are logged, how much of them, and at which stages.

Source: apiserver `pkg/audit/policy`, `pkg/apis/audit/{v1,validation}`.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from minikube_py.api.decode import SCHEME, open_document
from minikube_py.api.errors import (
    FieldError,
    Json,
    aggregate,
    go_quote,
    invalid_value,
    not_supported,
    required,
)
from minikube_py.api.meta import is_dns1123_subdomain
from minikube_py.api.schema import SCHEMA
from minikube_py.api.typed import DecodeError
from minikube_py.apiserver.rules import User
from minikube_py.errors import MinikubeError

log = logging.getLogger(__name__)
_GROUP, _KIND = "audit.k8s.io", "Policy"
API_VERSION: Final = f"{_GROUP}/v1"
NONE, METADATA, REQUEST, REQUEST_RESPONSE = 0, 1, 2, 3
LEVELS: Final = ("None", "Metadata", "Request", "RequestResponse")
RECEIVED, STARTED, COMPLETE, PANIC = STAGES = ("RequestReceived", "ResponseStarted", "ResponseComplete", "Panic")
_PACKAGE: Final = "audit/v1"
_LEVEL_TYPE: Final = re.compile(r"(\.level of type )string$")
_STAGES_TYPE: Final = re.compile(r"(\.omitStages of type (?:\[\])?)string$")
"""Go names the types of these texts."""


def _lists(*names: str) -> list[list[Any]]:
    return [[name, "[]string", 0, "e"] for name in names]


SCHEMA.extend(
    {
        f"{_PACKAGE}.Policy": [
            ["kind", "string", 0, "e"],
            ["apiVersion", "string", 0, "e"],
            ["metadata", "meta/v1.ObjectMeta", 0, "e"],
            ["rules", f"[]{_PACKAGE}.PolicyRule", 0, ""],
            *_lists("omitStages"),
            ["omitManagedFields", "bool", 0, "e"],
        ],
        f"{_PACKAGE}.PolicyRule": [
            ["level", "string", 0, ""],
            *_lists("users", "userGroups", "verbs"),
            ["resources", f"[]{_PACKAGE}.GroupResources", 0, "e"],
            *_lists("namespaces", "nonResourceURLs", "omitStages"),
            ["omitManagedFields", "*bool", 0, "e"],
        ],
        f"{_PACKAGE}.GroupResources": [["group", "string", 0, "e"], *_lists("resources", "resourceNames")],
    }
)


class PolicyError(MinikubeError):
    """The audit policy cannot be used; the message is upstream's."""


class Attributes(NamedTuple):
    """A request, as authorization and audit see it. `is_resource` false: only verb and path are set."""

    verb: str
    path: str
    is_resource: bool = False
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""


class Decision(NamedTuple):
    """How a request is logged."""

    level: int
    omit_stages: frozenset[str]
    omit_managed_fields: bool


class _Rule(NamedTuple):
    decision: Decision
    spec: Json

    def matches(self, user: User | None, asked: Attributes) -> bool:
        spec = self.spec
        if (users := spec.get("users")) and (user is None or user.name not in users):
            return False
        groups = spec.get("userGroups")
        if groups and (user is None or not any(group in groups for group in user.groups)):
            return False
        if (verbs := spec.get("verbs")) and asked.verb not in verbs:
            return False
        if spec.get("namespaces") or spec.get("resources"):
            return asked.is_resource and self._matches_resource(asked)
        if paths := spec.get("nonResourceURLs"):
            return not asked.is_resource and any(_path_matches(asked.path, each) for each in paths)
        return True

    def _matches_resource(self, asked: Attributes) -> bool:
        if (namespaces := self.spec.get("namespaces")) and asked.namespace not in namespaces:
            return False
        resources = self.spec.get("resources")
        return not resources or any(_group_matches(each, asked) for each in resources)


def _path_matches(path: str, spec: str) -> bool:
    return spec in ("*", path) or (spec.endswith("*") and path.startswith(spec.rstrip("*")))


def _group_matches(spec: Json, asked: Attributes) -> bool:
    if spec.get("group", "") not in (asked.group, "*"):
        return False
    resources = spec.get("resources")
    if not resources:
        return True
    if (names := spec.get("resourceNames")) and asked.name not in names:
        return False
    whole = f"{asked.resource}/{asked.subresource}" if asked.subresource else asked.resource
    wanted = {whole, "*", f"{asked.resource}/*"} | ({f"*/{asked.subresource}"} if asked.subresource else set())
    return any(each in wanted for each in resources)


class AuditPolicy:
    """`spec` is valid."""

    def __init__(self, spec: Json) -> None:
        omitted, drops = frozenset(spec.get("omitStages") or ()), bool(spec.get("omitManagedFields"))
        self._default = Decision(NONE, omitted, drops)
        self._rules = [
            _Rule(
                Decision(
                    LEVELS.index(rule["level"]),
                    omitted | frozenset(rule.get("omitStages") or ()),
                    drops if rule.get("omitManagedFields") is None else rule["omitManagedFields"],
                ),
                rule,
            )
            for rule in spec["rules"]
        ]

    def decide(self, user: User | None, asked: Attributes) -> Decision:
        """By the first rule that matches. `user` None: authentication failed."""
        return next((rule.decision for rule in self._rules if rule.matches(user, asked)), self._default)


# --- the file ---------------------------------------------------------------------------------------------------------


def read_policy(path: Path) -> AuditPolicy:
    """Raises: PolicyError, with upstream's message."""
    try:
        body = path.read_bytes()
    except OSError as error:
        why = f"open {path}: {(error.strerror or '').lower()}"
        raise PolicyError(f"loading audit policy file: failed to read file path {go_quote(str(path))}: {why}") from None
    try:
        return parse_policy(body)
    except PolicyError as error:
        raise PolicyError(f"loading audit policy file: {error}: from file {path}") from None


def parse_policy(body: bytes) -> AuditPolicy:
    """Unknown and repeated fields are ignored with a warning in the log, as upstream does. Raises: PolicyError."""
    try:
        document = open_document(body)
        spec = _decoded(document.api_version, document.kind or _KIND, document.read)
    except DecodeError as error:
        text = _STAGES_TYPE.sub(r"\1v1.Stage", _LEVEL_TYPE.sub(r"\1v1.Level", str(error)))
        raise PolicyError(f"failed decoding: {text}") from None
    errors = _validate(spec)
    if errors:
        raise PolicyError(aggregate(str(error) for error in errors))
    if not spec.get("rules"):
        raise PolicyError("loaded illegal policy with 0 rules")
    return AuditPolicy(spec)


def _decoded(api_version: str, kind: str, read: Any) -> Json:
    """Raises: PolicyError, DecodeError."""
    if not api_version and kind == _KIND:
        raise PolicyError(f"unknown group version field {_GROUP}/__internal, Kind={kind} in policy")
    if api_version != API_VERSION or kind not in (_KIND, "PolicyList", "Event", "EventList"):
        internal = f"the internal version of group {go_quote(_GROUP)}"
        version = f"version {go_quote(api_version)}" if api_version else internal
        told = f"no kind {go_quote(kind)} is registered for {version}"
        raise PolicyError(f"failed decoding: {told} in scheme {go_quote(SCHEME)}")
    if kind != _KIND:
        raise PolicyError(f"failed decoding: converting (v1.{kind}) to (audit.{_KIND}): unknown conversion")
    spec: Json
    spec, problems = read(SCHEMA.message(f"{_PACKAGE}.Policy"))
    if problems:
        told = f"strict decoding error: {', '.join(problems)}"
        log.warning("Audit policy contains errors, falling back to lenient decoding: %s", told)
    return spec


def _validate(spec: Json) -> list[FieldError]:
    errors = _wrong_stages(spec.get("omitStages") or (), "omitStages")
    for at, rule in enumerate(spec.get("rules") or ()):
        path, level, paths = f"rules[{at}]", rule.get("level", ""), rule.get("nonResourceURLs") or ()
        if not level:
            errors.append(required(f"{path}.level"))
        elif level not in LEVELS:
            errors.append(not_supported(f"{path}.level", level, LEVELS))
        errors += _wrong_paths(paths, f"{path}.nonResourceURLs")
        errors += _wrong_resources(rule.get("resources") or (), f"{path}.resources")
        errors += _wrong_stages(rule.get("omitStages") or (), f"{path}.omitStages")
        if paths and (rule.get("resources") or rule.get("namespaces")):
            why = "rules cannot apply to both regular resources and non-resource URLs"
            errors.append(invalid_value(f"{path}.nonResourceURLs", paths, why))
    return errors


def _wrong_stages(stages: Sequence[str], path: str) -> list[FieldError]:
    why = f"allowed stages are {','.join(STAGES)}"
    return [invalid_value(f"{path}[{at}]", each, why) for at, each in enumerate(stages) if each not in STAGES]


def _wrong_paths(paths: Sequence[str], path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    for at, each in enumerate(paths):
        if each != "*" and not each.startswith("/"):
            why = "non-resource URL rules must begin with a '/' character"
            errors.append(invalid_value(f"{path}[{at}]", each, why))
        if "*" in each[:-1]:
            why = "non-resource URL wildcards '*' must be the final character of the rule"
            errors.append(invalid_value(f"{path}[{at}]", each, why))
    return errors


def _wrong_resources(resources: Sequence[Json], path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    for each in resources:
        group, names = each.get("group", ""), each.get("resourceNames")
        if group not in ("", "*") and (wrong := is_dns1123_subdomain(group)):
            errors.append(invalid_value(f"{path}.group", group, ",".join(wrong)))
        if names and not each.get("resources"):
            why = "using resourceNames requires at least one resource"
            errors.append(invalid_value(f"{path}.resourceNames", names, why))
    return errors

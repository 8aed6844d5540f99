"""The `authorizer` of expressions: what checks it can describe, and the answers.

Evaluation is pure. A check without an answer is an error value and is noted; evaluation continues, so that it notes the
others too, and its result is dropped. The caller adds all answers and evaluates again: an evaluation is repeated for
checks that depend on the answers to others, not for each check. Within one evaluation the same check has one answer, as
behind upstream's cache.

Source: apiserver `pkg/cel/library/authz.go`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from minikube_py.api.errors import StatusError
from minikube_py.api.meta import is_dns1123_label, is_dns1123_subdomain
from minikube_py.cel.values import EvaluationError, OwnEquality

_AUTHORIZER, _PATH, _GROUP, _RESOURCE, _DECISION = (
    f"kubernetes.authorization.{name}"
    for name in ("Authorizer", "PathCheck", "GroupCheck", "ResourceCheck", "Decision")
)


class Check(NamedTuple):
    """`account`: namespace and name of a service account; None: the request's user. `path`: None for a resource."""

    account: tuple[str, str] | None = None
    verb: str = ""
    group: str = ""
    plural: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str | None = None
    field_selector: str = ""
    label_selector: str = ""


@dataclass(slots=True)
class Answers:
    """`known`: whether a check is allowed, and why. `lacking`: the checks that an evaluation found no answer to."""

    known: dict[Check, tuple[bool, str]] = field(default_factory=dict)
    lacking: dict[Check, None] = field(default_factory=dict)


class Unanswered(NamedTuple):
    checks: tuple[Check, ...]


def answered(bindings: Mapping[str, object], work: Callable[..., Any], *given: Any) -> Any:
    """The result of the work, or the checks of these bindings that it has no answer to. Raises: what the work raises,
    unless answers are lacking."""
    answers = answers_of(bindings)
    answers.lacking.clear()
    try:
        found = work(*given)
    except StatusError:
        if not answers.lacking:
            raise
    return Unanswered(tuple(answers.lacking)) if answers.lacking else found


def answers_of(bindings: Mapping[str, object]) -> Answers:
    shown = bindings["authorizer"]
    assert isinstance(shown, AuthorizerValue)
    return shown.answers


class AuthorizerValue(OwnEquality):
    """An authorizer, a check or a decision, by its type `of`. Equal to nothing, not even itself, as upstream's."""

    __slots__ = ("answers", "check", "of")

    def __init__(self, of: str, answers: Answers, check: Check) -> None:
        self.of = of
        self.answers = answers
        self.check = check

    def equals(self, other: object) -> bool:
        return False

    def told(self, of: str, **more: Any) -> AuthorizerValue:
        return AuthorizerValue(of, self.answers, self.check._replace(**more))


def bindings_of(group: str, plural: str, subresource: str, namespace: str, name: str) -> dict[str, object]:
    """`authorizer` and `authorizer.requestResource` of a request; they share their answers."""
    answers = Answers()
    of_request = Check(None, "", group, plural, subresource, namespace, name)
    return {
        "authorizer": AuthorizerValue(_AUTHORIZER, answers, Check()),
        "authorizer.requestResource": AuthorizerValue(_RESOURCE, answers, of_request),
    }


def _path(of: AuthorizerValue, path: str) -> Any:
    return of.told(_PATH, path=path) if path.strip() else EvaluationError("path must not be empty")


def _service_account(of: AuthorizerValue, namespace: str, name: str) -> Any:
    if is_dns1123_subdomain(name):
        return EvaluationError("Invalid service account name")
    if is_dns1123_label(namespace):
        return EvaluationError("Invalid service account namespace")
    return of.told(_AUTHORIZER, account=(namespace, name))


def _resource(of: AuthorizerValue, plural: str) -> Any:
    return of.told(_RESOURCE, plural=plural) if plural.strip() else EvaluationError("resource must not be empty")


def _set(part: str) -> Callable[[AuthorizerValue, str], AuthorizerValue]:
    return lambda of, value: of.told(_RESOURCE, **{part: value})


def _checked(of: AuthorizerValue, verb: str) -> Any:
    found = of.told(_DECISION, verb=verb)
    if found.check not in found.answers.known:
        found.answers.lacking[found.check] = None
        return EvaluationError("this check has no answer yet")
    return found


AUTHORIZER_FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    "authorizer_path": _path,
    "authorizer_group": lambda of, group: of.told(_GROUP, group=group),
    "authorizer_serviceaccount": _service_account,
    "groupcheck_resource": _resource,
    "resourcecheck_subresource": _set("subresource"),
    "resourcecheck_namespace": _set("namespace"),
    "resourcecheck_name": _set("name"),
    "authorizer_fieldselector": _set("field_selector"),
    "authorizer_labelselector": _set("label_selector"),
    "pathcheck_check": _checked,
    "resourcecheck_check": _checked,
    "decision_allowed": lambda of: of.answers.known[of.check][0],
    "decision_reason": lambda of: of.answers.known[of.check][1],
    # As with upstream's authorizers, of which none fails: the reason names a missing role.
    "decision_errored": lambda of: False,
    "decision_error": lambda of: "",
}

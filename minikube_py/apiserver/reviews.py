"""Reviews: queries about identity and permissions; never stored.

Source: kubernetes `pkg/registry/authorization`, `pkg/registry/authentication`, `pkg/apis/authorization/validation`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from minikube_py.api.errors import GroupResource, Json, StatusError, bad_request, invalid
from minikube_py.api.kind import Kind
from minikube_py.api.kinds.authentication import SELFSUBJECTREVIEWS, TOKENREVIEWS
from minikube_py.api.kinds.authorization import (
    SELFSUBJECTACCESSREVIEWS,
    SELFSUBJECTRULESREVIEWS,
)
from minikube_py.api.label_selectors import InvalidSelector, selector_of
from minikube_py.api.meta import timestamp
from minikube_py.api.selectors import PLAIN_TERM, parse_label_selector, split_term
from minikube_py.api.service_tokens import ISSUER, InvalidToken
from minikube_py.api.validation.dispatch import validate_create
from minikube_py.apiserver.access import Access
from minikube_py.apiserver.auth import ANONYMOUS, Asked
from minikube_py.apiserver.forms import negotiate_of, single_bytes, with_options
from minikube_py.apiserver.messages import Request, Response, warning_headers, with_warnings
from minikube_py.apiserver.options import WriteOptions
from minikube_py.apiserver.preparing import check_namespace, encode
from minikube_py.apiserver.rbac import joined
from minikube_py.apiserver.routes import Route
from minikube_py.apiserver.rules import User
from minikube_py.apiserver.writes import Writer

_NO_TOKEN: Final = "invalid bearer token"


async def review(
    writer: Writer, route: Route, request: Request, access: Access, options: WriteOptions, wall_s: float
) -> Response:
    """Raises: StatusError 400, 422."""
    kind, user = route.resource, request.user or ANONYMOUS
    form = with_options(negotiate_of(request.accept, kind), request.query)
    obj, warnings = await writer.read(kind, request, options)
    try:
        check_namespace(kind, obj["metadata"], route.namespace)
        if "namespace" in obj["metadata"]:
            # Errors show the metadata in upstream's order.
            given = obj["metadata"]
            first = {name: given[name] for name in ("name", "generateName", "namespace") if name in given}
            obj["metadata"] = {**first, **given}
        if (passage := writer.enter(route, request, "CREATE")) is not None:
            if kind is SELFSUBJECTRULESREVIEWS:
                obj["status"] = {"resourceRules": None, "nonResourceRules": None, **(obj.get("status") or {})}
            await passage.admit(None, obj)
        _check(kind, obj)
        if passage is not None:
            await passage.validate(None, obj)
        if kind is SELFSUBJECTREVIEWS:
            obj["metadata"]["creationTimestamp"] = timestamp(wall_s)
            obj["status"] = {"userInfo": _user_info(user)}
        else:
            obj["status"] = await _status(kind, obj, user, access)
    except StatusError as error:
        raise with_warnings(error, warnings) from None
    body = single_bytes(kind, encode(obj), 0, form, wall_s)
    return Response(201, body, form.media_type, warning_headers(warnings))


def _check(kind: Kind, obj: Json) -> None:
    """Raises: StatusError 400, 422."""
    if kind is TOKENREVIEWS:
        if not obj["spec"].get("token"):
            raise bad_request("token is required for TokenReview in authentication")
    elif kind is not SELFSUBJECTREVIEWS:
        if errors := validate_create(kind, obj):
            raise invalid(GroupResource(kind.group, kind.plural, ""), "", errors)
        if kind is SELFSUBJECTRULESREVIEWS and not (obj.get("spec") or {}).get("namespace"):
            raise bad_request("no namespace on request")


async def _token_status(spec: Json, access: Access) -> Json:
    """Whose token it is."""
    audiences = tuple(spec.get("audiences") or (ISSUER,))
    # As in a header, up to the first blank.
    token = spec["token"].rstrip().partition(" ")[0]
    if not token:
        return {"authenticated": True, "user": _user_info(ANONYMOUS), "audiences": list(audiences)}
    try:
        spoken = await access.authenticator.speaker(token, audiences)
    except InvalidToken as error:
        return {"user": {}, "error": f"[{_NO_TOKEN}, {error}]"}
    if spoken is None:
        return {"user": {}, "error": _NO_TOKEN}
    return {"authenticated": True, "user": _user_info(spoken.user), "audiences": list(spoken.audiences)}


async def _status(kind: Kind, obj: Json, user: User, access: Access) -> Json:
    if kind is TOKENREVIEWS:
        return await _token_status(obj["spec"], access)
    spec = obj.get("spec") or {}
    if kind is SELFSUBJECTRULESREVIEWS:
        obj["spec"] = {}
        return _rules_status(user, spec["namespace"], access)
    if kind is not SELFSUBJECTACCESSREVIEWS:
        user = _named(spec)
    may, reason = await access.may(user, _asked(spec))
    status: Json = {"allowed": may}
    if reason:
        status["reason"] = reason
    if error := "; ".join(_ignored(spec.get("resourceAttributes") or {})):
        status["evaluationError"] = error
    return status


def _ignored(attributes: Json) -> Iterator[str]:
    """Errors of invalid selectors."""
    for field, read in (("fieldSelector", _field_requirements), ("labelSelector", _label_requirements)):
        selector = attributes.get(field) or {}
        requirements = selector.get("requirements") or []
        good = read(selector)
        if good < (len(requirements) or bool(selector.get("rawSelector"))):
            how = "partially ignored" if good else "ignored"
            yield f"spec.resourceAttributes.{field} {how} due to parse error"


def _field_requirements(selector: Json) -> int:
    """How many requirements are valid; for a raw selector, 1 if it is."""
    if raw := selector.get("rawSelector"):
        return _reads(lambda: [split_term(raw, term) for term in PLAIN_TERM.findall(raw) if term])
    requirements = selector.get("requirements") or []
    return sum(each.get("operator") in ("In", "NotIn") and len(each.get("values") or ()) == 1 for each in requirements)


def _label_requirements(selector: Json) -> int:
    if raw := selector.get("rawSelector"):
        return _reads(lambda: parse_label_selector(raw))
    requirements = selector.get("requirements") or []
    return sum(_reads(partial(selector_of, {"matchExpressions": [each]})) for each in requirements)


def _reads(parse: Callable[[], object]) -> int:
    try:
        parse()
    except (StatusError, InvalidSelector):
        return 0
    return 1


def _named(spec: Json) -> User:
    """The review's user as given; nothing is added."""
    extra = tuple(sorted((key, tuple(values or ())) for key, values in (spec.get("extra") or {}).items()))
    return User(spec.get("user") or "", tuple(spec.get("groups") or ()), spec.get("uid") or "", extra)


def _user_info(user: User) -> Json:
    info: Json = {"username": user.name}
    if user.uid:
        info["uid"] = user.uid
    info["groups"] = list(user.groups)
    if user.extra:
        info["extra"] = {key: list(values) for key, values in user.extra}
    return info


def _asked(spec: Json) -> Asked:
    wanted = spec.get("resourceAttributes")
    if wanted is not None:
        names = ("verb", "group", "resource", "subresource", "namespace", "name")
        return Asked(*(str(wanted.get(name) or "") for name in names))
    path = spec.get("nonResourceAttributes") or {}
    return Asked(path.get("verb") or "", path=path.get("path") or "")


def _rules_status(user: User, namespace: str, access: Access) -> Json:
    rules, errors = access.policy.rules_of(user, namespace)
    shown = [rule.to_json() for rule in rules]
    status = {
        "resourceRules": [rule for rule in shown if "resources" in rule],
        "nonResourceRules": [
            {"verbs": rule["verbs"], "nonResourceURLs": rule["nonResourceURLs"]}
            for rule in shown
            if "nonResourceURLs" in rule
        ],
        "incomplete": False,
    }
    return {**status, "evaluationError": joined(errors)} if errors else status

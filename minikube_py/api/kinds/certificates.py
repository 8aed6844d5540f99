"""The group `certificates.k8s.io`: requests for certificates, approved by one and signed by another.

Source: `pkg/apis/certificates/validation`, `pkg/registry/certificates/certificates/strategy.go`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from minikube_py.api.defaulting import part
from minikube_py.api.errors import (
    FieldError,
    Json,
    duplicate,
    forbidden_value,
    go_quote,
    invalid_value,
    not_supported,
    required,
    too_long,
)
from minikube_py.api.kind import NAMED, STATUS_VERBS, Kind, Selectable, Subresource, status_of
from minikube_py.api.meta import is_dns1123_label, is_dns1123_subdomain, validate_object_meta
from minikube_py.api.printing import AGE, NAME, NONE, Age, Printer, column, human_duration
from minikube_py.api.schema import SCHEMA

GROUP: Final = "certificates.k8s.io"
APPROVED, DENIED, FAILED = "Approved", "Denied", "Failed"
LASTS_S_MIN: Final = 600
_LEGACY: Final = "kubernetes.io/legacy-unknown"
_USAGES: Final = tuple(sorted(SCHEMA.enum("certificates/v1.KeyUsage")))
_STATUSES: Final = ("False", "True", "Unknown")
_DOMAIN_MAX: Final = 253
_CONDITIONS: Final = "status.conditions"


def _conditions(obj: Json) -> list[Json]:
    return (obj.get("status") or {}).get("conditions") or []


def _of_type(obj: Json, wanted: str) -> list[Json]:
    return [each for each in _conditions(obj) if (each.get("type") or "") == wanted]


def _types(obj: Json | None) -> list[str]:
    return [each.get("type") or "" for each in _conditions(obj or {})]


# --- what is kept -----------------------------------------------------------------------------------------------------


def _default(obj: Json) -> None:
    part(obj, "spec")
    part(obj, "status")


def _note_sender(
    obj: Json, name: str, uid: str, groups: Sequence[str], extra: Sequence[tuple[str, Sequence[str]]]
) -> None:
    spec = part(obj, "spec")
    told = {"username": name, "uid": uid, "groups": list(groups), "extra": {key: list(held) for key, held in extra}}
    for field, value in told.items():
        spec.pop(field, None)
        if value:
            spec[field] = value


def _create(obj: Json) -> None:
    obj["status"] = {}


def _keep_spec(new: Json, old: Json) -> None:
    new["spec"] = old["spec"]


def _keep_approval(new: Json, old: Json) -> None:
    """Signing keeps approvals and denials; adding one is refused."""
    conditions = _conditions(new)
    for wanted in (APPROVED, DENIED):
        before, places = _of_type(old, wanted), [i for i, each in enumerate(conditions) if each.get("type") == wanted]
        if len(before) == len(places):
            for i, condition in zip(places, before):
                conditions[i] = condition


def _keep_certificate(new: Json, old: Json) -> None:
    conditions = _conditions(new)
    new["status"] = {key: value for key, value in (old.get("status") or {}).items() if key != "conditions"}
    if conditions:
        new["status"]["conditions"] = conditions


def _stamp(new: Json, old: Json, now: str) -> None:
    for each in _conditions(new):
        if not each.get("lastUpdateTime"):
            each["lastUpdateTime"] = now
        if not each.get("lastTransitionTime"):
            same = (
                before["lastTransitionTime"]
                for before in _conditions(old)
                if (before.get("type"), before.get("status")) == (each.get("type"), each.get("status"))
                and before.get("lastTransitionTime")
            )
            each["lastTransitionTime"] = next(same, now)


# --- what is refused --------------------------------------------------------------------------------------------------


def validate_signer_name(name: str, path: str) -> list[FieldError]:
    if not name:
        return [required(path)]
    domain, _, below = name.partition("/")
    if name.count("/") != 1:
        wanted = "must be a fully qualified domain and path of the form 'example.com/signer-name'"
        return [invalid_value(path, name, wanted)]
    errors = [too_long(path, _DOMAIN_MAX)] if len(domain) > _DOMAIN_MAX else []
    labels = domain.split(".")
    errors += _label_errors(domain, labels, is_dns1123_label, path)
    if len(labels) < 2:
        errors.append(invalid_value(path, domain, "should be a domain with at least two segments separated by dots"))
    errors += _label_errors(below, below.split("."), is_dns1123_subdomain, path)
    most = 2 * _DOMAIN_MAX + 63 + 2
    return errors + ([too_long(path, most)] if len(name) > most else [])


def _label_errors(segment: str, labels: Sequence[str], rule: Any, path: str) -> list[FieldError]:
    """Those of the first label that is wrong."""
    wrong = next(((label, messages) for label in labels if (messages := rule(label))), None)
    if wrong is None:
        return []
    label, messages = wrong
    return [invalid_value(path, segment, f"validating label {go_quote(label)}: {message}") for message in messages]


def _validate(obj: Json, old: Json | None) -> list[FieldError]:
    """`old`: existing errors may stay."""
    spec, before = obj.get("spec") or {}, (old or {}).get("spec") or {}
    errors = validate_object_meta(obj["metadata"], False, lambda name: ()) if old is None else []
    errors += _validate_request(spec.get("request") or "")
    usages, known = spec.get("usages") or [], before.get("usages") or []
    if not usages:
        errors.append(required("spec.usages"))
    if all(usage in _USAGES for usage in known):
        wrong = [(i, usage) for i, usage in enumerate(usages) if usage not in _USAGES]
        errors += [not_supported(f"spec.usages[{i}]", usage, _USAGES) for i, usage in wrong]
    if len(set(known)) == len(known):
        errors += [duplicate(f"spec.usages[{i}]", usage) for i, usage in enumerate(usages) if usage in usages[:i]]
    signer = spec.get("signerName") or ""
    if signer == _LEGACY and before.get("signerName") != _LEGACY:
        why = "the legacy signerName is not allowed via this API version"
        errors.append(invalid_value("spec.signerName", signer, why))
    else:
        errors += validate_signer_name(signer, "spec.signerName")
    lasts_s = spec.get("expirationSeconds")
    if lasts_s is not None and lasts_s < LASTS_S_MIN:
        why = "may not specify a duration less than 600 seconds (10 minutes)"
        errors.append(invalid_value("spec.expirationSeconds", lasts_s, why))
    return errors + _validate_conditions(obj, _types(old)) + _validate_certificate(obj, old)


def _validate_request(request: str) -> list[FieldError]:
    # Deferred: a tenth of importing all kinds.
    from minikube_py.api.certificate_requests import BadRequest, check_signature, parse_request

    try:
        check_signature(parse_request(request))
    except BadRequest as error:
        return [invalid_value("spec.request", request, str(error))]
    return []


def _validate_conditions(obj: Json, known: Sequence[str]) -> list[FieldError]:
    errors: list[FieldError] = []
    types = _types(obj)
    for i, each in enumerate(_conditions(obj)):
        kind, status, at = types[i], each.get("status") or "", f"{_CONDITIONS}[{i}]"
        if not kind and "" not in known:
            errors.append(required(f"{at}.type"))
        allowed = ("True",) if kind in (APPROVED, DENIED, FAILED) else _STATUSES
        if not status:
            errors.append(required(f"{at}.status"))
        elif status not in allowed:
            errors.append(not_supported(f"{at}.status", status, allowed))
        other = {APPROVED: DENIED, DENIED: APPROVED}.get(kind)
        if other in types[:i] and not (APPROVED in known and DENIED in known):
            why = "Approved and Denied conditions are mutually exclusive"
            errors.append(invalid_value(_CONDITIONS, kind, why))
        if kind in types[:i] and len(set(known)) == len(known):
            errors.append(duplicate(f"{at}.type", kind))
    return errors


def _certificate(obj: Json | None) -> str:
    return ((obj or {}).get("status") or {}).get("certificate") or ""


def _validate_certificate(obj: Json, old: Json | None) -> list[FieldError]:
    if _certificate(obj) == _certificate(old):
        return []
    from minikube_py.api.certificate_requests import BadRequest, check_certificates

    try:
        check_certificates(_certificate(old))
    except BadRequest:
        return []
    try:
        check_certificates(_certificate(obj))
    except BadRequest as error:
        return [invalid_value("status.certificate", "<certificate data>", str(error))]
    return []


def _validate_update(new: Json, old: Json, approves: bool = False, signs: bool = False) -> list[FieldError]:
    errors = _validate(new, old)
    counts = {kind: len(_of_type(new, kind)) - len(_of_type(old, kind)) for kind in (APPROVED, DENIED, FAILED)}
    for kind, count in counts.items():
        if count < 0:
            errors.append(forbidden_value(_CONDITIONS, f"updates may not remove a condition of type {go_quote(kind)}"))
    for kind in () if approves else (APPROVED, DENIED):
        if counts[kind] > 0:
            errors.append(forbidden_value(_CONDITIONS, f"updates may not add a condition of type {go_quote(kind)}"))
    if _certificate(new) != _certificate(old):
        if not signs:
            errors.append(forbidden_value("status.certificate", "updates may not set certificate content"))
        elif _certificate(old):
            why = "updates may not modify existing certificate content"
            errors.append(forbidden_value("status.certificate", why))
    return errors


def _print(obj: Json, age: Age) -> list[Any]:
    metadata, spec, types = obj["metadata"], obj.get("spec") or {}, _types(obj)
    state = "Denied" if DENIED in types else "Approved" if APPROVED in types else "Pending"
    state += ",Failed" if FAILED in types else ""
    state += ",Issued" if _certificate(obj) else ""
    lasts_s = spec.get("expirationSeconds")
    lasts = NONE if lasts_s is None else human_duration(lasts_s)
    since = age(metadata.get("creationTimestamp"))
    return [metadata["name"], since, spec.get("signerName") or NONE, spec.get("username") or "", lasts, state]


REQUESTS: Final = Kind(
    GROUP, "v1", "CertificateSigningRequest", "certificatesigningrequests", "certificatesigningrequest", False,
    short_names=("csr",),
    selectable={**NAMED, "spec.signerName": Selectable(("spec", "signerName"))},
    subresources=(
        Subresource("approval", "CertificateSigningRequest", STATUS_VERBS, tabled=False),
        status_of("CertificateSigningRequest"),
    ),
    default=_default,
    note_sender=_note_sender,
    prepare_create=_create,
    prepare_update=_keep_spec,
    prepare_status=_keep_approval,
    prepare_approval=_keep_certificate,
    stamp_status=_stamp,
    validate=lambda new: _validate(new, None),
    validate_update={
        "": _validate_update,
        "status": lambda new, old: _validate_update(new, old, signs=True),
        "approval": lambda new, old: _validate_update(new, old, approves=True),
    },
    also_reset={
        "": (("spec",),), "status": (("status", "conditions"),), "approval": (("status", "certificate"),),
    },
    printer=Printer(
        (
            NAME, AGE, column("SignerName", "Who is to sign it."), column("Requestor", "Who sent it."),
            column("RequestedDuration", "How long the certificate is to be good."),
            column("Condition", "What has become of it."),
        ),
        _print,
    ),
)  # fmt: skip

KINDS: Final[tuple[Kind, ...]] = (REQUESTS,)

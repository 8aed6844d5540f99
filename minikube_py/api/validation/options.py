"""Options of requests: what `DeleteOptions` and the query of a write or list may say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from minikube_py.api.errors import FieldError, Json, Verbatim, forbidden_value, go_json, invalid_value, not_supported
from minikube_py.api.meta import validate_field_manager

_FIELD_VALIDATION: Final = ("", "Ignore", "Strict", "Warn")
_NO_CONTINUE: Final = "resourceVersionMatch is forbidden when continue is provided"
_PROPAGATION: Final = ("Foreground", "Background", "Orphan")


def validate_dry_run(values: Sequence[str]) -> list[FieldError]:
    if all(value == "All" for value in values):
        return []
    return [not_supported("dryRun", Verbatim(go_json(list(values))), ("All",))]


def validate_write_options(manager: str, dry_run: Sequence[str], field_validation: str) -> list[FieldError]:
    """Of create, update and patch."""
    errors = validate_field_manager(manager, "fieldManager") + validate_dry_run(dry_run)
    if field_validation not in _FIELD_VALIDATION:
        errors.append(not_supported("fieldValidation", field_validation, _FIELD_VALIDATION))
    return errors


def validate_patch_options(
    manager: str, dry_run: Sequence[str], field_validation: str, force: bool | None
) -> list[FieldError]:
    """Of patches other than apply."""
    errors: list[FieldError] = []
    if force is not None:
        errors.append(forbidden_value("force", "may not be specified for non-apply patch"))
    return errors + validate_write_options(manager, dry_run, field_validation)


def validate_delete_options(options: Json) -> list[FieldError]:
    errors: list[FieldError] = []
    policy = options.get("propagationPolicy")
    if policy is not None:
        shown = Verbatim(go_json(policy))
        if options.get("orphanDependents") is not None:
            detail = "orphanDependents and deletionPropagation cannot be both set"
            errors.append(invalid_value("propagationPolicy", shown, detail))
        if policy not in _PROPAGATION:
            errors.append(not_supported("propagationPolicy", shown, (*_PROPAGATION, "nil")))
    return errors + validate_dry_run(options.get("dryRun") or ())


def validate_list_options(
    *, watch: bool, resource_version: str, match: str, continue_token: str, send_initial_events: bool | None
) -> list[FieldError]:
    """How resourceVersion, its match, continue and sendInitialEvents go together."""
    if watch:
        return _validate_watch_options(match, continue_token, send_initial_events)
    errors: list[FieldError] = []
    if match:
        if not resource_version:
            detail = "resourceVersionMatch is forbidden unless resourceVersion is provided"
            errors.append(forbidden_value("resourceVersionMatch", detail))
        if continue_token:
            errors.append(forbidden_value("resourceVersionMatch", _NO_CONTINUE))
        if match not in ("Exact", "NotOlderThan"):
            errors.append(not_supported("resourceVersionMatch", match, ("Exact", "NotOlderThan", "")))
        if match == "Exact" and resource_version == "0":
            detail = 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"'
            errors.append(forbidden_value("resourceVersionMatch", detail))
    if send_initial_events is not None:
        errors.append(forbidden_value("sendInitialEvents", "sendInitialEvents is forbidden for list"))
    return errors


def _validate_watch_options(
    match: str, continue_token: str, send_initial_events: bool | None
) -> list[FieldError]:
    errors: list[FieldError] = []
    if send_initial_events is not None:
        if match != "NotOlderThan":
            detail = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
            errors.append(forbidden_value("resourceVersionMatch", detail))
    elif match:
        detail = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
        errors.append(forbidden_value("resourceVersionMatch", detail))
    if match and match != "NotOlderThan":
        errors.append(not_supported("resourceVersionMatch", match, ("NotOlderThan",)))
    if match and continue_token:
        errors.append(forbidden_value("resourceVersionMatch", _NO_CONTINUE))
    return errors

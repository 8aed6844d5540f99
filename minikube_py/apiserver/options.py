"""The options of a request, from its query and body (ListOptions, DeleteOptions, ...), checked as upstream does.

Source: apimachinery `pkg/apis/meta/internalversion/validation`, `pkg/apis/meta/v1/validation`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any, Final, NamedTuple

from minikube_py.api.decode import decode_delete_options, media_type
from minikube_py.api.errors import (
    FieldError,
    GroupResource,
    Json,
    StatusError,
    bad_request,
    forbidden_value,
    go_quote,
    invalid,
    invalid_value,
    not_supported,
    required,
)
from minikube_py.api.kind import Kind
from minikube_py.api.meta import validate_field_manager
from minikube_py.api.patch import ACCEPTED as PATCH_TYPES
from minikube_py.api.patch import is_apply
from minikube_py.api.selectors import parse_field_selector, parse_label_selector, split_term

_TERMS: Final = re.compile(r"(?:[^,\\]|\\.)+\\?", re.DOTALL)
_META: Final = "meta.k8s.io"
_INTEGER: Final = re.compile(r"[+-]?[0-9]+")
_INT64_MAX: Final = (1 << 63) - 1
_UINT64_MAX: Final = (1 << 64) - 1
UNSUPPORTED_PATCH: Final = "415: Unsupported Media Type"
EXACT: Final = "Exact"
NOT_OLDER_THAN: Final = "NotOlderThan"


def parse_int(text: str) -> int:
    """An int64 as Go's strconv reads it. Raises: StatusError 400."""
    if not _INTEGER.fullmatch(text) or not text.isascii():
        raise bad_request(f"strconv.ParseInt: parsing {go_quote(text)}: invalid syntax")
    value = int(text) if len(text) < 40 else _INT64_MAX + 1
    if not -_INT64_MAX - 1 <= value <= _INT64_MAX:
        raise bad_request(f"strconv.ParseInt: parsing {go_quote(text)}: value out of range")
    return value


def parse_bool(query: Mapping[str, str], name: str) -> bool:
    """Absent, `false` and `0` are false; all else is true."""
    value = query.get(name)
    return value is not None and value.lower() not in ("false", "0")


def parse_revision(text: str) -> int:
    """A resourceVersion; "" and "0" are 0. Raises: StatusError 400."""
    if not text or text == "0":
        return 0
    reason = ""
    if not text.isascii() or not text.isdigit():
        reason = "invalid syntax"
    elif len(text) > 20 or int(text) > _UINT64_MAX:
        reason = "value out of range"
    if reason:
        wrong = invalid_value("resourceVersion", text, f"strconv.ParseUint: parsing {go_quote(text)}: {reason}")
        raise bad_request(f"invalid resource version: {wrong}")
    # Beyond int64 all versions are just "too new".
    return min(int(text), _INT64_MAX)


class ListOptions(NamedTuple):
    """`revision` is 0 both for "" and "0"; `revision_text` tells them apart. `timeout_s` 0: the server decides.
    `marks_state`: a bookmark ends a watch's initial state."""

    label_selector: str = ""
    field_selector: str = ""
    revision_text: str = ""
    revision: int = 0
    match: str = ""
    limit: int = 0
    continue_token: str = ""
    timeout_s: int = 0
    bookmarks: bool = False
    send_initial_events: bool | None = None
    marks_state: bool = True


_DEFAULT_LIST: Final = ListOptions()


def read_options(query: Mapping[str, str], verb: str, kind: Kind) -> ListOptions:
    """Options of a get (version only), list or watch. Raises: StatusError 400, 422."""
    if verb == "get":
        if parse_bool(query, "export"):
            raise bad_request("the export parameter, deprecated since v1.14, is no longer supported")
        query = {"resourceVersion": query["resourceVersion"]} if "resourceVersion" in query else {}
    if verb != "watch" or ("watch" in query and parse_bool(query, "watch")):
        return list_options(query, verb == "watch", kind)
    # Upstream treats options of path-style watches as those of a list.
    return list_options(query, False, kind)._replace(marks_state=False)


def list_options(query: Mapping[str, str], watch: bool, kind: Kind) -> ListOptions:
    """Raises: StatusError 400, 422."""
    if not query:
        return _DEFAULT_LIST
    get = query.get
    limit, timeout = get("limit"), get("timeoutSeconds")
    timeout_s = max(parse_int(timeout), 0) if timeout is not None else 0
    options = ListOptions(
        get("labelSelector", ""),
        get("fieldSelector", ""),
        get("resourceVersion", ""),
        0,
        get("resourceVersionMatch", ""),
        max(parse_int(limit), 0) if limit is not None else 0,
        get("continue", ""),
        timeout_s,
        parse_bool(query, "allowWatchBookmarks"),
        parse_bool(query, "sendInitialEvents") if "sendInitialEvents" in query else None,
    )
    errors = _watch_errors(options) if watch else _list_errors(options)
    try:
        if errors:
            raise _invalid_options("ListOptions", errors)
        return options._replace(revision=parse_revision(options.revision_text))
    except StatusError:
        # Upstream reports invalid selectors first.
        parse_label_selector(options.label_selector)
        for term in sorted(_TERMS.findall(options.field_selector)):
            split_term(options.field_selector, term)
        if not errors and options.continue_token and not watch:
            # `continue` is checked first, and excludes any version.
            return options._replace(revision=1)
        if not errors:
            parse_field_selector(kind, options.field_selector)
        raise


def _list_errors(options: ListOptions) -> list[FieldError]:
    errors: list[FieldError] = []
    field, match = "resourceVersionMatch", options.match
    if match:
        if not options.revision_text:
            errors.append(forbidden_value(field, f"{field} is forbidden unless resourceVersion is provided"))
        if options.continue_token:
            errors.append(forbidden_value(field, f"{field} is forbidden when continue is provided"))
        if match not in (EXACT, NOT_OLDER_THAN):
            errors.append(not_supported(field, match, (EXACT, NOT_OLDER_THAN, "")))
        if match == EXACT and options.revision_text == "0":
            errors.append(forbidden_value(field, f'{field} "exact" is forbidden for resourceVersion "0"'))
    if options.send_initial_events is not None:
        errors.append(forbidden_value("sendInitialEvents", "sendInitialEvents is forbidden for list"))
    return errors


def _watch_errors(options: ListOptions) -> list[FieldError]:
    errors: list[FieldError] = []
    field, match = "resourceVersionMatch", options.match
    if options.send_initial_events is not None and match != NOT_OLDER_THAN:
        detail = f"sendInitialEvents requires setting {field} to {NOT_OLDER_THAN}"
        errors.append(forbidden_value(field, detail))
    if match:
        if options.send_initial_events is None:
            detail = f"{field} is forbidden for watch unless sendInitialEvents is provided"
            errors.append(forbidden_value(field, detail))
        if match != NOT_OLDER_THAN:
            errors.append(not_supported(field, match, (NOT_OLDER_THAN,)))
    # A watch from the start defaults to initial events.
    defaulted = options.send_initial_events is None and options.revision_text in ("", "0")
    if (match or defaulted) and options.continue_token:
        errors.append(forbidden_value(field, f"{field} is forbidden when continue is provided"))
    return errors


def _invalid_options(kind: str, errors: list[FieldError]) -> StatusError:
    return invalid(GroupResource(_META, "", kind), "", errors)


class WriteOptions(NamedTuple):
    dry_run: bool = False
    field_validation: str = "Warn"
    field_manager: str = ""
    force: bool = False


_DEFAULT_WRITE: Final = WriteOptions()


def write_options(query: Mapping[str, str], kind: str, content_type: str = "") -> WriteOptions:
    """`kind` is CreateOptions, UpdateOptions or PatchOptions. Raises: StatusError 422; for a create, 415 first."""
    if not query and kind != "PatchOptions":
        return _DEFAULT_WRITE
    if kind == "CreateOptions":
        media_type(content_type)
    errors: list[FieldError] = []
    force, manager = "force" in query, query.get("fieldManager", "")
    if kind == "PatchOptions":
        if is_apply(content_type):
            if not manager:
                errors.append(required("fieldManager", "is required for apply patch"))
        elif force:
            errors.append(forbidden_value("force", "may not be specified for non-apply patch"))
    if manager:
        errors += validate_field_manager(manager, "fieldManager")
    dry_run = _dry_run(query, errors)
    validation = query.get("fieldValidation", "")
    if validation not in ("", "Ignore", "Warn", "Strict"):
        errors.append(not_supported("fieldValidation", validation, ("", "Ignore", "Strict", "Warn")))
    if errors:
        raise _invalid_options(kind, errors)
    return WriteOptions(dry_run, validation or "Warn", manager, force and parse_bool(query, "force"))


def check_patch_type(content_type: str, types: Collection[str] = PATCH_TYPES) -> None:
    if content_type.partition(";")[0] not in types:
        raise StatusError(415, "UnsupportedMediaType", UNSUPPORTED_PATCH, {})


def _dry_run(query: Mapping[str, str], errors: list[FieldError]) -> bool:
    text = query.get("dryRun")
    if text is None:
        return False
    wanted = text.split(",")
    if any(value != "All" for value in wanted):
        errors.append(not_supported("dryRun", wanted, ("All",)))
    return True


class DeleteOptions(NamedTuple):
    """`propagation` is "", Orphan, Foreground or Background; `orphan` the older way to say it."""

    grace_s: int | None = None
    uid: str = ""
    revision_text: str = ""
    propagation: str = ""
    orphan: bool | None = None
    dry_run: bool = False
    unread: bool = False
    """Deletes unreadable objects too."""
    refusal: StatusError | None = None
    """Of an eviction's options: why they do not delete."""


UNREAD: Final = "ignoreStoreReadErrorWithClusterBreakingPotential"
_DEFAULT_DELETE: Final = DeleteOptions()
_PROPAGATION: Final = ("Foreground", "Background", "Orphan", "nil")


def delete_options(query: Mapping[str, str], body: bytes, content_type: str) -> DeleteOptions:
    """From the body if present, else from the query. Raises: StatusError 400, 415, 422."""
    if body:
        return options_of(decode_delete_options(body, content_type))
    if not query:
        return _DEFAULT_DELETE
    errors: list[FieldError] = []
    grace, orphan = query.get("gracePeriodSeconds"), query.get("orphanDependents")
    policy = query.get("propagationPolicy")
    options = DeleteOptions(
        grace_s=parse_int(grace) if grace is not None else None,
        propagation=policy or "",
        orphan=parse_bool(query, "orphanDependents") if orphan is not None else None,
        dry_run=_dry_run(query, errors),
        unread=parse_bool(query, UNREAD),
    )
    return _checked(options, policy, errors)


def options_of(obj: Json) -> DeleteOptions:
    """From a decoded body. Raises: StatusError 422."""
    preconditions: Mapping[str, Any] = obj.get("preconditions") or {}
    errors: list[FieldError] = []
    wanted = obj.get("dryRun") or []
    if any(value != "All" for value in wanted):
        errors.append(not_supported("dryRun", wanted, ("All",)))
    options = DeleteOptions(
        obj.get("gracePeriodSeconds"),
        preconditions.get("uid") or "",
        preconditions.get("resourceVersion") or "",
        obj.get("propagationPolicy") or "",
        obj.get("orphanDependents"),
        bool(wanted),
        bool(obj.get(UNREAD)),
    )
    return _checked(options, obj.get("propagationPolicy"), errors)


def _checked(options: DeleteOptions, policy: str | None, errors: list[FieldError]) -> DeleteOptions:
    """`policy` None: not given, unlike an empty one."""
    field, others, errors = "propagationPolicy", errors, []
    if policy is not None and options.orphan is not None:
        errors.append(invalid_value(field, policy, "orphanDependents and deletionPropagation cannot be both set"))
    if policy is not None and policy not in _PROPAGATION[:3]:
        errors.append(not_supported(field, policy, _PROPAGATION))
    if errors or others:
        raise _invalid_options("DeleteOptions", errors + others)
    return options


def check_unread(options: DeleteOptions) -> None:
    """For the deletion of unreadable objects. Raises: StatusError 422."""
    others = {
        "dryRun": options.dry_run, "propagationPolicy": options.propagation, "orphanDependents": options.orphan,
        "gracePeriodSeconds": options.grace_s, "preconditions": options.uid or options.revision_text or None,
    }  # fmt: skip
    given = [name for name, value in others.items() if value not in (None, "") and value is not False]
    wrong = [invalid_value(UNREAD, True, f"cannot be set together with .{name}") for name in given]
    if wrong:
        raise _invalid_options("DeleteOptions", wrong)

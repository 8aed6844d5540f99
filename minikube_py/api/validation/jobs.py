"""Jobs and CronJobs: validation of spec and status.

Source: `pkg/apis/batch/validation/validation.go`, in its order of errors; which of them hold only for changed parts is
said in `pkg/registry/batch/job/strategy.go`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from minikube_py.api.cron import BadSchedule, load_zone, parse
from minikube_py.api.errors import (
    FieldError,
    Json,
    duplicate,
    go_quote,
    invalid_value,
    not_supported,
    omitted,
    required,
    too_long,
    too_many,
)  # fmt: skip
from minikube_py.api.meta import is_qualified_name
from minikube_py.api.rules import at, named_by, non_negative, rules
from minikube_py.api.validation.go_view import go_view
from minikube_py.api.validation.paths import domain_prefixed_path

INDEXED: Final = "Indexed"
MANY_COMPLETIONS: Final = 100_000
PARALLELISM_MAX: Final = 100_000
PARALLELISM_OF_MANY_MAX: Final = 10_000
FAILED_INDEXES_MAX: Final = 100_000
FAILED_INDEXES_OF_MANY_MAX: Final = 10_000
RULES_MAX: Final = 20
EXIT_CODES_MAX: Final = 255
PATTERNS_MAX: Final = 20
MANAGED_BY_BYTES_MAX: Final = 63
SUCCEEDED_INDEXES_BYTES_MAX: Final = 64 * 1024
_ACTIONS: Final = ("Count", "FailIndex", "FailJob", "Ignore")
_OPERATORS: Final = ("In", "NotIn")
_STATUSES: Final = ("False", "True", "Unknown")
_REPLACEMENTS: Final = ("Failed", "TerminatingOrFailed")
_MODES: Final = ("NonIndexed", INDEXED)
_RESTARTS: Final = ("OnFailure", "Never")
_PER_INDEX: Final = f"when completions are above {MANY_COMPLETIONS} and used with backoff limit per index"


def _listed(values: Iterable[str]) -> str:
    """As Go's %q prints a slice."""
    return f"valid values: [{' '.join(map(go_quote, values))}]"


def _chosen(value: str | None, path: str, values: Sequence[str]) -> list[FieldError]:
    if not value:
        return [required(path, _listed(values))]
    return [] if value in values else [not_supported(path, value, values)]


def validate_job_spec(
    spec: Json, path: str, validate_template: Callable[[Json, str], list[FieldError]]
) -> list[FieldError]:
    """All of it but the selector."""
    counts = ("parallelism", "completions", "activeDeadlineSeconds", "backoffLimit", "ttlSecondsAfterFinished")
    errors = [error for name in counts for error in non_negative(spec.get(name), f"{path}.{name}")]
    errors += non_negative(spec.get("backoffLimitPerIndex"), f"{path}.backoffLimitPerIndex")
    errors += non_negative(spec.get("maxFailedIndexes"), f"{path}.maxFailedIndexes")
    if spec.get("maxFailedIndexes") is not None and spec.get("backoffLimitPerIndex") is None:
        errors.append(required(f"{path}.backoffLimitPerIndex", "when maxFailedIndexes is specified"))
    if (manager := spec.get("managedBy")) is not None:
        errors += domain_prefixed_path(manager, f"{path}.managedBy")
        if len(manager.encode()) > MANAGED_BY_BYTES_MAX:
            errors.append(too_long(f"{path}.managedBy", MANAGED_BY_BYTES_MAX))
    errors += _mode(spec, path)
    if spec.get("podFailurePolicy") is not None:
        errors += _failure_policy(spec, f"{path}.podFailurePolicy")
    if (policy := spec.get("successPolicy")) is not None:
        at_policy = f"{path}.successPolicy"
        if spec.get("completionMode") != INDEXED:
            shown = go_view("batch/v1.SuccessPolicy", policy)
            errors.append(invalid_value(at_policy, shown, "requires indexed completion mode"))
        else:
            errors += _success_policy(spec, at_policy)
    errors += _replacement(spec, f"{path}.podReplacementPolicy")
    template = spec.get("template") or {}
    errors += validate_template(template, f"{path}.template")
    return errors + _restarts(spec, template.get("spec") or {}, f"{path}.template.spec.restartPolicy")


def _mode(spec: Json, path: str) -> list[FieldError]:
    mode, completions, parallelism = (spec.get(name) for name in ("completionMode", "completions", "parallelism"))
    per_index, failed_max = spec.get("backoffLimitPerIndex"), spec.get("maxFailedIndexes")
    errors: list[FieldError] = []

    def at_most(name: str, value: int | None, limit: int, why: str = "") -> None:
        if value is not None and value > limit:
            errors.append(invalid_value(f"{path}.{name}", value, f"must be less than or equal to {limit}{why}"))

    if mode is not None and mode not in _MODES:
        errors.append(not_supported(f"{path}.completionMode", mode, _MODES))
    if mode == INDEXED:
        if completions is None:
            errors.append(required(f"{path}.completions", f"when completion mode is {INDEXED}"))
        at_most("parallelism", parallelism, PARALLELISM_MAX, f" when completion mode is {INDEXED}")
        if completions is not None and failed_max is not None and failed_max > completions:
            why = "must be less than or equal to completions"
            errors.append(invalid_value(f"{path}.maxFailedIndexes", failed_max, why))
        at_most("maxFailedIndexes", failed_max, FAILED_INDEXES_MAX)
        if completions is not None and completions > MANY_COMPLETIONS and per_index is not None:
            if failed_max is None:
                why = f"must be specified when completions is above {MANY_COMPLETIONS}"
                errors.append(required(f"{path}.maxFailedIndexes", why))
            at_most("parallelism", parallelism, PARALLELISM_OF_MANY_MAX, f" {_PER_INDEX}")
            at_most("maxFailedIndexes", failed_max, FAILED_INDEXES_OF_MANY_MAX, f" {_PER_INDEX}")
    if mode is None or mode == "NonIndexed":
        named = (("backoffLimitPerIndex", per_index), ("maxFailedIndexes", failed_max))
        errors += [
            invalid_value(f"{path}.{name}", value, "requires indexed completion mode")
            for name, value in named
            if value is not None
        ]
    return errors


def _replacement(spec: Json, path: str) -> list[FieldError]:
    policy = spec.get("podReplacementPolicy")
    allowed = _REPLACEMENTS if spec.get("podFailurePolicy") is None else _REPLACEMENTS[:1]
    return [] if policy is None or policy in allowed else [not_supported(path, policy, allowed)]


def _restarts(spec: Json, pod: Json, path: str) -> list[FieldError]:
    policy = pod.get("restartPolicy") or ""
    if policy in ("", "Always"):
        return [required(path, 'valid values: "OnFailure", "Never"')]
    if policy not in _RESTARTS:
        return [not_supported(path, policy, _RESTARTS)]
    if spec.get("podFailurePolicy") is not None and policy != "Never":
        return [invalid_value(path, policy, 'only "Never" is supported when podFailurePolicy is specified')]
    return []


# --- policies ---------------------------------------------------------------------------------------------------------


def _failure_policy(spec: Json, path: str) -> list[FieldError]:
    listed = spec["podFailurePolicy"].get("rules") or ()
    errors = [too_many(f"{path}.rules", len(listed), RULES_MAX)] if len(listed) > RULES_MAX else []
    pod = (spec.get("template") or {}).get("spec") or {}
    names = {each.get("name") or "" for kind in ("containers", "initContainers") for each in pod.get(kind) or ()}
    for i, rule in enumerate(listed):
        errors += _failure_rule(spec, rule, f"{path}.rules[{i}]", names)
    return errors


def _failure_rule(spec: Json, rule: Json, path: str, names: set[str]) -> list[FieldError]:
    action, codes, patterns = rule.get("action"), rule.get("onExitCodes"), rule.get("onPodConditions") or ()
    if action != "FailIndex":
        errors = _chosen(action, f"{path}.action", _ACTIONS)
    elif spec.get("backoffLimitPerIndex") is None:
        errors = [invalid_value(f"{path}.action", action, "requires the backoffLimitPerIndex to be set")]
    else:
        errors = []
    if codes is not None:
        errors += _exit_codes(codes, f"{path}.onExitCodes", names)
    if patterns:
        errors += _patterns(patterns, f"{path}.onPodConditions")
    if codes is not None and patterns:
        errors.append(omitted(path, "specifying both OnExitCodes and OnPodConditions is not supported"))
    if codes is None and not patterns:
        errors.append(omitted(path, "specifying one of OnExitCodes and OnPodConditions is required"))
    return errors


def _patterns(patterns: Sequence[Json], path: str) -> list[FieldError]:
    errors = [too_many(path, len(patterns), PATTERNS_MAX)] if len(patterns) > PATTERNS_MAX else []
    for i, pattern in enumerate(patterns):
        errors += named_by(is_qualified_name)(pattern.get("type"), f"{path}[{i}].type")
        errors += _chosen(pattern.get("status"), f"{path}[{i}].status", _STATUSES)
    return errors


def _exit_codes(codes: Json, path: str, names: set[str]) -> list[FieldError]:
    operator, name, values = codes.get("operator"), codes.get("containerName"), codes.get("values") or []
    errors = _chosen(operator, f"{path}.operator", _OPERATORS)
    if name is not None and name not in names:
        why = "must be one of the container or initContainer names in the pod template"
        errors.append(invalid_value(f"{path}.containerName", name, why))
    if not values:
        errors.append(invalid_value(f"{path}.values", codes.get("values"), "at least one value is required"))
    elif len(values) > EXIT_CODES_MAX:
        errors.append(too_many(f"{path}.values", len(values), EXIT_CODES_MAX))
    for i, value in enumerate(values):
        if operator == "In" and value == 0:
            errors.append(invalid_value(f"{path}.values[{i}]", value, "must not be 0 for the In operator"))
        if value in values[:i]:
            errors.append(duplicate(f"{path}.values[{i}]", value))
    if values != sorted(values):
        errors.append(invalid_value(f"{path}.values", values, "must be ordered"))
    return errors


def _success_policy(spec: Json, path: str) -> list[FieldError]:
    listed, errors = spec["successPolicy"].get("rules") or (), []
    if not listed:
        why = "at least one rules must be specified when the successPolicy is specified"
        errors.append(required(f"{path}.rules", why))
    if len(listed) > RULES_MAX:
        errors.append(too_many(f"{path}.rules", len(listed), RULES_MAX))
    for i, rule in enumerate(listed):
        errors += _success_rule(rule, spec.get("completions") or 0, f"{path}.rules[{i}]")
    return errors


def _success_rule(rule: Json, completions: int, path: str) -> list[FieldError]:
    count, indexes, errors, total = rule.get("succeededCount"), rule.get("succeededIndexes"), [], 0
    if count is None and indexes is None:
        errors.append(required(path, "at least one of succeededCount or succeededIndexes must be specified"))
    if indexes is not None:
        if len(indexes.encode()) > SUCCEEDED_INDEXES_BYTES_MAX:
            errors.append(too_long(f"{path}.succeededIndexes", SUCCEEDED_INDEXES_BYTES_MAX))
        try:
            total = sum(last - first + 1 for first, last in index_intervals(indexes, completions))
        except BadIndexes as error:
            why = f"error parsing succeededIndexes: {error}"
            errors.append(invalid_value(f"{path}.succeededIndexes", indexes, why))
    if count is None:
        return errors
    at_count, most = f"{path}.succeededCount", "must be less than or equal to"
    errors += non_negative(count, at_count)
    if count > completions:
        errors.append(invalid_value(at_count, count, f"{most} {completions} (the number of specified completions)"))
    if indexes is not None and count > total:
        why = f"{most} {total} (the number of indexes in the specified succeededIndexes field)"
        errors.append(invalid_value(at_count, count, why))
    return errors


# --- indexes ----------------------------------------------------------------------------------------------------------


class BadIndexes(ValueError):
    """Not a list of indexes such as `1,3-5`."""


def _index(text: str, completions: int) -> int:
    if not re.fullmatch(r"[+-]?[0-9]+", text, re.ASCII) or len(text) > 18:
        raise BadIndexes(f"cannot convert string to integer for index: {go_quote(text)}")
    if int(text) >= completions:
        raise BadIndexes(f"too large index: {go_quote(text)}")
    return int(text)


def index_interval(text: str, completions: int) -> tuple[int, int]:
    """Raises: BadIndexes."""
    limits = text.split("-")
    if len(limits) > 2:
        why = "violates the requirement that an index interval can have at most two parts separated by '-'"
        raise BadIndexes(f"the fragment {go_quote(text)} {why}")
    first = _index(limits[0], completions)
    if len(limits) == 1:
        return first, first
    last = _index(limits[1], completions)
    if first >= last:
        raise BadIndexes(f"non-increasing order, previous: {first}, current: {last}")
    return first, last


def index_intervals(text: str, completions: int) -> list[tuple[int, int]]:
    """`1,3-5` as [(1, 1), (3, 5)]; all below `completions`, in order. Raises: BadIndexes."""
    found: list[tuple[int, int]] = []
    for part in text.split(",") if text else ():
        first, last = index_interval(part, completions)
        if found and found[-1][1] >= first:
            raise BadIndexes(f"non-increasing order, previous: {found[-1][1]}, current: {first}")
        found.append((first, last))
    return found


def _readable(text: str, completions: int) -> list[tuple[int, int]]:
    found = []
    for part in text.split(","):
        try:
            found.append(index_interval(part, completions))
        except BadIndexes:
            continue
    return found


def _overlap(completed: str, failed: str, completions: int) -> int | None:
    """The first index that is in both, of intervals that can be read."""
    if not completed or not failed:
        return None
    ours, theirs = _readable(completed, completions), _readable(failed, completions)
    i = j = 0
    while i < len(ours) and j < len(theirs):
        (first, last), (begin, end) = ours[i], theirs[j]
        if first <= end and begin <= last:
            return max(first, begin)
        i, j = (i + 1, j) if first <= begin else (i, j + 1)
    return None


# --- status -----------------------------------------------------------------------------------------------------------

_COUNTED: Final = ("active", "succeeded", "failed", "ready", "terminating")
_counts: Final = rules(*(at(f"status.{name}", non_negative) for name in _COUNTED))
FINISHED: Final = ("Complete", "Failed")


def holds(job: Json, *types: str) -> bool:
    """Whether a condition of one of `types` is true."""
    conditions = (job.get("status") or {}).get("conditions") or ()
    return any(each.get("type") in types and each.get("status") == "True" for each in conditions)


def _uncounted(status: Json) -> list[FieldError]:
    seen: set[str] = set()
    errors: list[FieldError] = []
    for name in ("succeeded", "failed"):
        for i, uid in enumerate((status.get("uncountedTerminatedPods") or {}).get(name) or ()):
            path = f"status.uncountedTerminatedPods.{name}[{i}]"
            if not uid:
                errors.append(invalid_value(path, "", "must not be empty"))
            elif uid in seen:
                errors.append(duplicate(path, uid))
            seen.add(uid)
    return errors


class _Changed:
    """Which parts of a status an update changes: rules hold only for those, so that others can be fixed later."""

    def __init__(self, new: Json, old: Json) -> None:
        self._new, self._old = new, old
        self._status, self._before = new.get("status") or {}, old.get("status") or {}

    def condition(self, *types: str) -> bool:
        return any(holds(self._new, each) != holds(self._old, each) for each in types)

    def finished(self) -> bool:
        return holds(self._new, *FINISHED) != holds(self._old, *FINISHED)

    def any_of(self, *names: str) -> bool:
        return any((self._status.get(name)) != (self._before.get(name)) for name in names)


def validate_job_status(new: Json, old: Json) -> list[FieldError]:
    changed = _Changed(new, old)
    status, spec = new.get("status") or {}, new.get("spec") or {}
    errors = _counts(new) + _uncounted(status)
    errors += _ends(new, status, spec, changed)
    errors += _indexes(status, spec, changed)
    errors += _last_rules(new, status, changed)
    return errors + _transitions(new, old, spec)


def _ends(new: Json, status: Json, spec: Json, changed: _Changed) -> list[FieldError]:
    """Conditions, and when a job that ended did so."""
    errors: list[FieldError] = []
    complete, failed, finished = holds(new, "Complete"), holds(new, "Failed"), holds(new, *FINISHED)
    ended, started = status.get("completionTime"), status.get("startTime")
    at_end, conditions = "status.completionTime", "status.conditions"
    if changed.condition("Complete", "Failed") and complete and failed:
        errors.append(omitted(conditions, "cannot set Complete=True and Failed=true conditions"))
    if changed.condition("Complete", "FailureTarget") and complete and holds(new, "FailureTarget"):
        errors.append(omitted(conditions, "cannot set Complete=True and FailureTarget=true conditions"))
    end_changed = changed.condition("Complete") or changed.any_of("completionTime")
    if end_changed and ended is not None and not complete:
        why = "cannot set completionTime when there is no Complete=True condition"
        errors.append(invalid_value(at_end, ended, why))
    if end_changed and ended is None and complete:
        errors.append(required(at_end, "completionTime is required for Complete jobs"))
    if changed.any_of("startTime", "completionTime") and started is not None and ended is not None and ended < started:
        errors.append(invalid_value(at_end, ended, "must be equal to or after `startTime`"))
    if (changed.condition("Failed") or changed.any_of("failedIndexes")) and failed and not holds(new, "FailureTarget"):
        errors.append(omitted(conditions, "cannot set Failed=True condition without the FailureTarget=true condition"))
    if changed.condition("Complete", "SuccessCriteriaMet") and complete and not holds(new, "SuccessCriteriaMet"):
        why = "cannot set Complete=True condition without the SuccessCriteriaMet=true condition"
        errors.append(omitted(conditions, why))
    if (changed.finished() or changed.any_of("active")) and finished and (status.get("active") or 0) > 0:
        errors.append(invalid_value("status.active", status["active"], "active>0 is invalid for finished job"))
    empty_and_suspended = spec.get("suspend") is True and spec.get("completions") == 0
    if (changed.finished() or changed.any_of("startTime")) and not empty_and_suspended and finished and started is None:
        errors.append(required("status.startTime", "startTime is required for finished job"))
    uncounted = status.get("uncountedTerminatedPods")
    remain = any((uncounted or {}).get(name) for name in ("succeeded", "failed"))
    if (changed.finished() or changed.any_of("uncountedTerminatedPods")) and finished and remain:
        shown = go_view("batch/v1.UncountedTerminatedPods", uncounted)
        errors.append(invalid_value("status.uncountedTerminatedPods", shown, "must be empty for finished job"))
    return errors


def _indexes(status: Json, spec: Json, changed: _Changed) -> list[FieldError]:
    errors: list[FieldError] = []
    completed, failed = status.get("completedIndexes") or "", status.get("failedIndexes")
    completions, per_index = spec.get("completions"), spec.get("backoffLimitPerIndex")
    at_completed, at_failed = "status.completedIndexes", "status.failedIndexes"
    completed_changed, failed_changed = changed.any_of("completedIndexes"), changed.any_of("failedIndexes")
    judged = (
        (completed_changed and completions is not None, "completedIndexes", completed),
        (failed_changed and None not in (completions, per_index, failed), "failedIndexes", failed),
    )
    for wanted, name, text in judged:
        try:
            if wanted:
                index_intervals(text or "", completions or 0)
        except BadIndexes as error:
            errors.append(invalid_value(f"status.{name}", text, f"error parsing {name}: {error}"))
    if completed_changed and completed and spec.get("completionMode") != INDEXED:
        why = "cannot set non-empty completedIndexes when non-indexed completion mode"
        errors.append(invalid_value(at_completed, completed, why))
    if failed_changed and per_index is None and failed is not None:
        why = "cannot set non-null failedIndexes when backoffLimitPerIndex is null"
        errors.append(invalid_value(at_failed, failed, why))
    if (failed_changed or completed_changed) and completions is not None and failed is not None:
        shared = _overlap(completed, failed, completions)
        if shared is not None:
            why = f"failedIndexes and completedIndexes overlap at index: {shared}"
            errors.append(invalid_value(at_failed, failed, why))
    return errors


def _last_rules(new: Json, status: Json, changed: _Changed) -> list[FieldError]:
    errors: list[FieldError] = []
    terminating, ready, finished = status.get("terminating"), status.get("ready"), holds(new, *FINISHED)
    if (changed.finished() or changed.any_of("terminating")) and finished and (terminating or 0) > 0:
        errors.append(invalid_value("status.terminating", terminating, "terminating>0 is invalid for finished job"))
    if changed.any_of("ready", "active") and ready is not None and ready > (status.get("active") or 0):
        errors.append(invalid_value("status.ready", ready, "cannot set more ready pods than active"))
    met, conditions = holds(new, "SuccessCriteriaMet"), "status.conditions"
    if met and holds(new, "Failed"):
        errors.append(omitted(conditions, "cannot set SuccessCriteriaMet=True and Failed=true conditions"))
    if met and holds(new, "FailureTarget"):
        errors.append(omitted(conditions, "cannot set SuccessCriteriaMet=True and FailureTarget=true conditions"))
    if (new.get("spec") or {}).get("successPolicy") is not None and not met and holds(new, "Complete"):
        why = "cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True"
        errors.append(omitted(conditions, why))
    return errors


def _transitions(new: Json, old: Json, spec: Json) -> list[FieldError]:
    status, before = new.get("status") or {}, old.get("status") or {}
    errors = [
        omitted("status.conditions", f"cannot disable the terminal {kind}=True condition")
        for kind in ("Failed", "Complete", "FailureTarget")
        if holds(old, kind) and not holds(new, kind)
    ]
    elastic = spec.get("completionMode") == INDEXED and spec.get("completions") == spec.get("parallelism")
    for name in ("failed",) if elastic else ("failed", "succeeded"):
        count = status.get(name) or 0
        if count < (before.get(name) or 0):
            errors.append(invalid_value(f"status.{name}", count, f"cannot decrease the {name} counter"))
    ended, started = status.get("completionTime"), status.get("startTime")
    if ended is not None and before.get("completionTime") not in (None, ended):
        errors.append(invalid_value("status.completionTime", ended, "field is immutable"))
    resumes = holds(old, "Suspended") and any(
        each.get("type") == "Suspended" and each.get("status") == "False" for each in status.get("conditions") or ()
    )
    if before.get("startTime") not in (None, started) and not resumes and not spec.get("suspend"):
        why = "field is immutable for unsuspended job once set"
        errors.append(invalid_value("status.startTime", started, why))
    met, was_met = holds(new, "SuccessCriteriaMet"), holds(old, "SuccessCriteriaMet")
    if was_met and not met:
        errors.append(omitted("status.conditions", "cannot disable the SuccessCriteriaMet=True condition"))
    if holds(old, "Complete") and not was_met and met:
        why = "cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions"
        errors.append(omitted("status.conditions", why))
    return errors


# --- schedules --------------------------------------------------------------------------------------------------------

_ZONE_PART: Final = re.compile(r"[A-Za-z.\-_0-9+]{1,14}")


def validate_schedule(spec: Json, old: Json | None) -> list[FieldError]:
    text, zone, path = spec.get("schedule") or "", spec.get("timeZone"), "spec.schedule"
    if not text:
        return [required(path)]
    errors: list[FieldError] = []
    try:
        parse(text)
    except BadSchedule as error:
        errors.append(invalid_value(path, text, str(error)))
    had_zone = old is not None and "TZ" in (old.get("schedule") or "")
    if "TZ" in text and had_zone and zone is not None:
        why = "cannot use both timeZone field and TZ or CRON_TZ in schedule"
        errors.append(invalid_value(path, text, why))
    if "TZ" in text and not had_zone:
        why = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead"
        errors.append(invalid_value(path, text, why))
    return errors


def validate_time_zone(zone: str | None) -> list[FieldError]:
    path = "spec.timeZone"
    if zone is None:
        return []
    if not zone:
        return [invalid_value(path, zone, "timeZone must be nil or non-empty string")]
    for part in zone.split("/"):
        if part in (".", "..") or part.startswith("-") or not _ZONE_PART.fullmatch(part):
            return [invalid_value(path, zone, f"unknown time zone {zone}")]
    errors: list[FieldError] = []
    if zone.lower() == "local":
        why = "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones"
        errors.append(invalid_value(path, zone, why))
    try:
        load_zone(zone)
    except BadSchedule as error:
        errors.append(invalid_value(path, zone, str(error)))
    return errors

"""PodDisruptionBudgets: checked by evictions, updated by the disruption controller.

Source: `pkg/registry/core/pod/storage/eviction.go`, component-helpers `apps/poddisruptionbudget`.
"""

from __future__ import annotations

from typing import Any, Final

from minikube_py.api.errors import GroupResource, Json, StatusError, conflict, forbidden, too_many_requests

DISRUPTED_PODS_MAX: Final = 2000
"""Limit of evictions that the controller has not processed yet."""
RETRY_S: Final = 10
ALLOWED: Final = "DisruptionAllowed"
SYNC_FAILED: Final = "SyncFailed"
_BUDGETS: Final = GroupResource("policy", "poddisruptionbudget", "PodDisruptionBudget")
_VIOLATED: Final = "Cannot evict pod as it would violate the pod's disruption budget."


def _count(status: Json, name: str) -> int:
    return int(status.get(name) or 0)


def is_ready(pod: Json) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(each.get("type") == "Ready" and each.get("status") == "True" for each in conditions)


def needs_no_budget(pod: Json) -> bool:
    """Pods whose removal disrupts nothing: finished, not started, or already being deleted."""
    phase = (pod.get("status") or {}).get("phase")
    return phase in ("Succeeded", "Failed", "Pending") or bool(pod["metadata"].get("deletionTimestamp"))


def spares_unready(budget: Json) -> bool:
    """Whether an unready pod may be evicted without being counted."""
    status = budget.get("status") or {}
    desired = _count(status, "desiredHealthy")
    always = (budget.get("spec") or {}).get("unhealthyPodEvictionPolicy") == "AlwaysAllow"
    return always or (_count(status, "currentHealthy") >= desired > 0)


def still_processed(name: str) -> StatusError:
    """429: retry shortly."""
    return _refused(f"The disruption budget {name} is still being processed by the server.", RETRY_S)


def _refused(why: str, retry_after_s: int) -> StatusError:
    return too_many_requests(_VIOLATED, retry_after_s, [{"reason": "DisruptionBudget", "message": why}])


def take_one(budget: Json, pod_name: str, now: str) -> Json:
    """The budget with one disruption less, and the pod in `disruptedPods`. Raises: StatusError 403, 429."""
    metadata, status = budget["metadata"], budget.get("status") or {}
    name = metadata["name"]
    if _count(status, "observedGeneration") < int(metadata.get("generation") or 0):
        raise still_processed(name)
    allowed, disrupted = _count(status, "disruptionsAllowed"), status.get("disruptedPods") or {}
    if allowed < 0:
        raise forbidden(_BUDGETS, name, "pdb disruptions allowed is negative")
    if len(disrupted) > DISRUPTED_PODS_MAX:
        why = "DisruptedPods map too big - too many evictions not confirmed by PDB controller"
        raise forbidden(_BUDGETS, name, why)
    if not allowed:
        raise _refused(_why_none(name, status), 0)
    left = {**status, "disruptionsAllowed": allowed - 1}
    if allowed == 1:
        left["conditions"] = allowed_condition(left, now)
    left["disruptedPods"] = {**disrupted, pod_name: now}
    return {**budget, "metadata": dict(metadata), "status": left}


def _why_none(name: str, status: Json) -> str:
    found: Json = next((each for each in status.get("conditions") or () if each.get("type") == ALLOWED), {})
    said = found.get("message") or "" if found.get("status") == "False" else ""
    reason, stuck = found.get("reason") or "", f"The disruption budget {name} does not allow evicting pods currently"
    if said and reason == SYNC_FAILED:
        return f"{stuck} because it failed sync: {said}"
    desired, current = _count(status, "desiredHealthy"), _count(status, "currentHealthy")
    if current <= desired:
        return f"The disruption budget {name} needs {desired} healthy pods and has {current} currently"
    return f"{stuck} ({reason}): {said}" if said else stuck


def allowed_condition(status: Json, now: str) -> list[Json]:
    """The conditions of `status`, with DisruptionAllowed matching its count."""
    some = _count(status, "disruptionsAllowed") > 0
    reason = "SufficientPods" if some else "InsufficientPods"
    return with_condition(status, "True" if some else "False", reason, "", now)


def with_condition(status: Json, value: str, reason: str, message: str, now: str) -> list[Json]:
    """The conditions of `status`, with DisruptionAllowed set; its time changes only with its value."""
    known = list(status.get("conditions") or ())
    made: dict[str, Any] = {
        "type": ALLOWED,
        "status": value,
        "observedGeneration": _count(status, "observedGeneration"),
        "lastTransitionTime": now,
        "reason": reason,
        "message": message,
    }
    if not made["observedGeneration"]:
        del made["observedGeneration"]
    for i, condition in enumerate(known):
        if condition.get("type") == ALLOWED:
            if condition.get("status") == value:
                made["lastTransitionTime"] = condition.get("lastTransitionTime")
            known[i] = made
            return known
    return [*known, made]


# --- evicted pods ---------------------------------------------------------------------------------------------------

_POD: Final = GroupResource("", "Pod", "Pod")


def has_ended(pod: Json) -> bool:
    phase = (pod.get("status") or {}).get("phase")
    return phase in ("Succeeded", "Failed") or bool(pod["metadata"].get("deletionTimestamp"))


def check_same(pod: Json, uid: str, revision_text: str) -> None:
    """Raises: StatusError 409 if the uid or resourceVersion does not match."""
    metadata = pod["metadata"]
    parts = (
        ("UID", uid, metadata["uid"], "deleted and then recreated"),
        ("ResourceVersion", revision_text, metadata["resourceVersion"], "modified"),
    )
    for what, wanted, found, happened in parts:
        if wanted and wanted != found:
            why = (
                f"the {what} in the precondition ({wanted}) does not match the {what} in record ({found}). "
                f"The object might have been {happened}"
            )
            raise conflict(_POD, metadata["name"], why)


def targeted(pod: Json, now: str) -> Json:
    """The pod with a condition giving the reason of its eviction."""
    made = {
        "type": "DisruptionTarget",
        "status": "True",
        "lastProbeTime": None,
        "lastTransitionTime": now,
        "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting",
    }
    status = pod.get("status") or {}
    conditions = list(status.get("conditions") or ())
    for i, condition in enumerate(conditions):
        if condition.get("type") == made["type"]:
            if condition.get("status") == made["status"]:
                made["lastTransitionTime"] = condition.get("lastTransitionTime")
            conditions[i] = made
            break
    else:
        conditions.append(made)
    return {**pod, "metadata": dict(pod["metadata"]), "status": {**status, "conditions": conditions}}

"""A Deployment's decisions about its ReplicaSets: which is new, revisions, sizes, status. Pure.

Source: k8s.io/kubernetes/pkg/controller/deployment (util/deployment_util.go, sync.go, progress.go, rolling.go).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import orjson

from minikube_py.api.equality import same_message
from minikube_py.api.matching import int64
from minikube_py.client.events import timestamp
from minikube_py.client.rest import Object
from minikube_py.controllers.ranking import parse_time_s
from minikube_py.controllers.views import WorkloadView
from minikube_py.fields.digits import whole_number

REVISION: Final = "deployment.kubernetes.io/revision"
HISTORY: Final = "deployment.kubernetes.io/revision-history"
DESIRED: Final = "deployment.kubernetes.io/desired-replicas"
MAX: Final = "deployment.kubernetes.io/max-replicas"
ROLLBACK_TO: Final = "deprecated.deployment.rollback.to"
HASH_LABEL: Final = "pod-template-hash"
NOT_COPIED: Final = frozenset(
    ("kubectl.kubernetes.io/last-applied-configuration", REVISION, HISTORY, DESIRED, MAX, ROLLBACK_TO)
)
HASHED_BYTES_MAX: Final = 8 << 10
HISTORY_CHARS_MAX: Final = 2000
NO_LIMIT: Final = (1 << 31) - 1
_ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"

Sets = Sequence[WorkloadView]


# --- numbers ----------------------------------------------------------------------------------------------------------


def scaled(value: Any, of: int, *, up: bool) -> int:
    """An int, or a percentage of `of`, rounded up or down. Raises: ValueError."""
    if not isinstance(value, str):
        return int(value or 0)
    if not value.endswith("%"):
        raise ValueError(f"invalid value for IntOrString: invalid type: string is not a percentage: {value}")
    product = whole_number(value[:-1]) * of
    return -(-product // 100) if up else product // 100


def is_rolling(deployment: WorkloadView) -> bool:
    return bool((deployment.spec.get("strategy") or {}).get("type") == "RollingUpdate")


def fenceposts(deployment: WorkloadView) -> tuple[int, int]:
    """maxSurge and maxUnavailable as counts; both 0 without a rolling update."""
    if not is_rolling(deployment):
        return 0, 0
    rolling = deployment.spec["strategy"].get("rollingUpdate") or {}
    surge = scaled(rolling.get("maxSurge"), deployment.replicas, up=True)
    unavailable = scaled(rolling.get("maxUnavailable"), deployment.replicas, up=False)
    # Rounding down may give 0, and then no pod could ever be replaced.
    return surge, unavailable if surge or unavailable else 1


def max_unavailable(deployment: WorkloadView) -> int:
    return min(fenceposts(deployment)[1], deployment.replicas)


def max_size(deployment: WorkloadView) -> int:
    return deployment.replicas + fenceposts(deployment)[0]


def size(sets: Iterable[WorkloadView]) -> int:
    return sum(each.replicas for each in sets)


def count(sets: Iterable[WorkloadView], name: str) -> int:
    """The sum of one status count."""
    return sum(each.status.get(name) or 0 for each in sets)


def limit_of(deployment: WorkloadView, name: str) -> int | None:
    """`progressDeadlineSeconds` or `revisionHistoryLimit`; None if unset."""
    value = deployment.spec.get(name)
    return None if value is None or value == NO_LIMIT else int(value)


# --- templates and revisions ------------------------------------------------------------------------------------------


def without_hash(template: Mapping[str, Any]) -> Object:
    metadata = template.get("metadata") or {}
    labels = {name: value for name, value in (metadata.get("labels") or {}).items() if name != HASH_LABEL}
    return {**template, "metadata": {**metadata, "labels": labels}}


def same_template(left: Mapping[str, Any], right: Mapping[str, Any]) -> bool:
    return same_message("core/v1.PodTemplateSpec", without_hash(left), without_hash(right))


def template_hash(template: Mapping[str, Any], collisions: int | None) -> str:
    """FNV-1a of the template, in letters that form no words. Upstream hashes its Go structs, so values differ."""
    data = orjson.dumps(template, option=orjson.OPT_SORT_KEYS)
    if collisions is not None:
        data += collisions.to_bytes(8, "little")
    if len(data) > HASHED_BYTES_MAX:
        # FNV takes a step of Python for each byte.
        data = hashlib.sha256(data).digest()
    found = 0x811C9DC5
    for byte in data:
        found = ((found ^ byte) * 0x01000193) & 0xFFFFFFFF
    return "".join(_ALPHABET[ord(digit) % len(_ALPHABET)] for digit in str(found))


def set_name(name: str, template_hash: str) -> str:
    return f"{name[: 253 - 1 - len(template_hash)]}-{template_hash}"


def by_age(sets: Iterable[WorkloadView]) -> list[WorkloadView]:
    return sorted(sets, key=lambda each: (each.created, each.name))


def find_new(deployment: WorkloadView, sets: Iterable[WorkloadView]) -> WorkloadView | None:
    """The oldest ReplicaSet with the Deployment's template."""
    template = deployment.template
    return next((each for each in by_age(sets) if same_template(each.template, template)), None)


def revision_of(view: WorkloadView) -> int:
    """0 if there is none, -1 if it cannot be parsed."""
    text = view.annotations.get(REVISION, "0")
    found = int64(text)
    return -1 if found is None else found


def last_revision(sets: Iterable[WorkloadView]) -> int:
    """The second highest revision; 0 if there is none."""
    found = sorted(revision_of(each) for each in sets)
    return max(found[-2], 0) if len(found) > 1 else 0


def set_annotations(deployment: WorkloadView, before: Mapping[str, str], revision: int) -> dict[str, str]:
    """Sets annotations of the new ReplicaSet: the Deployment's, its revision, and earlier revisions."""
    copied = {name: value for name, value in deployment.annotations.items() if name not in NOT_COPIED}
    found = {**before, **copied}
    old = before.get(REVISION)
    known = int64(old) if old else 0
    if known is None:
        return found
    if known < revision:
        found[REVISION] = str(revision)
        if old is not None:
            found[HISTORY] = _history(before.get(HISTORY, ""), old)
    return found


def _history(history: str, old: str) -> str:
    revisions = [*filter(None, history.split(",")), old]
    while len(",".join(revisions)) > HISTORY_CHARS_MAX and len(revisions) > 1:
        del revisions[0]
    return ",".join(revisions)


def size_annotations(deployment: WorkloadView) -> dict[str, str]:
    return {DESIRED: str(deployment.replicas), MAX: str(max_size(deployment))}


def _number(text: str | None) -> int | None:
    found = int64(text or "")
    return found if found is not None and 0 <= found <= NO_LIMIT else None


def was_scaled(deployment: WorkloadView, sets: Iterable[WorkloadView]) -> bool:
    """Whether the replicas were changed since the active ReplicaSets were sized."""
    wanted = (_number(each.annotations.get(DESIRED)) for each in sets if each.replicas > 0)
    return any(found is not None and found != deployment.replicas for found in wanted)


# --- sizes ------------------------------------------------------------------------------------------------------------


def new_size(deployment: WorkloadView, everything: Sets, own: int) -> int:
    """The allowed size of the new ReplicaSet, now `own`."""
    if not is_rolling(deployment):
        return deployment.replicas
    room = max_size(deployment) - size(everything)
    return own if room <= 0 else own + min(room, deployment.replicas - own)


def only_active(new: WorkloadView | None, old: Sets) -> WorkloadView | None:
    """The ReplicaSet that gets all replicas: the only active one, or the newest if none is. None: several are."""
    active = [each for each in (*old, *([new] if new else ())) if each.replicas > 0]
    if active:
        return active[0] if len(active) == 1 else None
    return new if new is not None else by_age(old)[-1] if old else None


def is_saturated(deployment: WorkloadView, new: WorkloadView | None) -> bool:
    if new is None or _number(new.annotations.get(DESIRED)) != deployment.replicas:
        return False
    return new.replicas == deployment.replicas == (new.status.get("availableReplicas") or 0)


def proportional(deployment: WorkloadView, active: Sets) -> list[tuple[WorkloadView, int]]:
    """The sizes of several active ReplicaSets after the Deployment was scaled: in proportion, largest first."""
    allowed = max_size(deployment) if deployment.replicas > 0 else 0
    to_add = allowed - size(active)
    ordered = list(active)
    if to_add:
        # At equal size, newer ones grow first, and older ones shrink first.
        aged = by_age(active)
        ordered = sorted(aged[::-1] if to_add > 0 else aged, key=lambda each: -each.replicas)
    sizes: list[int] = []
    added = 0
    for each in ordered:
        share = _share(deployment, each, to_add, added)
        sizes.append(each.replicas + share)
        added += share
    if sizes and to_add:
        sizes[0] = max(sizes[0] + to_add - added, 0)
    return list(zip(ordered, sizes, strict=True))


def _share(deployment: WorkloadView, each: WorkloadView, to_add: int, added: int) -> int:
    if each.replicas == 0 or to_add == 0 or to_add == added:
        return 0
    if deployment.replicas == 0:
        fraction = -each.replicas
    else:
        before = _number(each.annotations.get(MAX)) or deployment.status.get("replicas") or 0
        if before == 0:
            return 0
        grown = each.replicas * max_size(deployment) / before
        fraction = int(grown + 0.5) - each.replicas
    return min(fraction, to_add - added) if to_add > 0 else max(fraction, to_add - added)


class Scaling(NamedTuple):
    set: WorkloadView
    replicas: int


def shrink_old(deployment: WorkloadView, everything: Sets, old: Sets, new: WorkloadView) -> list[Scaling]:
    """New sizes of the old ReplicaSets in a rolling update: unavailable pods go first, then as many as new available
    pods allow."""
    least = deployment.replicas - max_unavailable(deployment)
    missing = new.replicas - (new.status.get("availableReplicas") or 0)
    may_go = size(everything) - least - missing
    if size(old) == 0 or may_go <= 0:
        return []
    planned: list[Scaling] = []
    sizes = {each.uid: each.replicas for each in old}
    gone = 0
    for each in by_age(old):
        idle = each.replicas - (each.status.get("availableReplicas") or 0)
        if gone < may_go and each.replicas > 0 and idle < 0:
            # Its status lags behind its size: try again once it has caught up.
            return planned
        if gone < may_go and each.replicas > 0 and idle:
            cut = min(may_go - gone, idle)
            gone += cut
            sizes[each.uid] -= cut
            planned.append(Scaling(each, sizes[each.uid]))
    spare = count((*old, new), "availableReplicas") - least
    cut_already = 0
    for each in by_age(old):
        if cut_already >= spare:
            break
        cut = min(sizes[each.uid], spare - cut_already)
        if cut > 0:
            cut_already += cut
            sizes[each.uid] -= cut
            planned.append(Scaling(each, sizes[each.uid]))
    return planned


# --- status -----------------------------------------------------------------------------------------------------------


def condition(status: Mapping[str, Any], kind: str) -> Object | None:
    return next((each for each in status.get("conditions") or () if each.get("type") == kind), None)


def new_condition(kind: str, state: str, reason: str, message: str, now_s: float) -> Object:
    now = timestamp(now_s)
    return {
        "type": kind,
        "status": state,
        "lastUpdateTime": now,
        "lastTransitionTime": now,
        "reason": reason,
        "message": message,
    }


def drop_condition(status: Object, kind: str) -> None:
    status["conditions"] = [each for each in status.get("conditions") or () if each.get("type") != kind]


def set_condition(status: Object, given: Object) -> None:
    """No-op if the same status and reason are set."""
    current = condition(status, given["type"])
    if current is not None and current["status"] == given["status"]:
        if current.get("reason") == given["reason"]:
            return
        given = {**given, "lastTransitionTime": current["lastTransitionTime"]}
    drop_condition(status, given["type"])
    status["conditions"].append(given)


def status_of(deployment: WorkloadView, everything: Sets, new: WorkloadView | None, now_s: float) -> Object:
    available = count(everything, "availableReplicas")
    status: Object = {
        "observedGeneration": deployment.generation,
        "replicas": count(everything, "replicas"),
        "updatedReplicas": count((new,) if new else (), "replicas"),
        "readyReplicas": count(everything, "readyReplicas"),
        "availableReplicas": available,
        "unavailableReplicas": max(size(everything) - available, 0),
        "terminatingReplicas": _terminating(everything),
        "collisionCount": deployment.status.get("collisionCount"),
        "conditions": list(deployment.status.get("conditions") or ()),
    }
    enough = available >= deployment.replicas - max_unavailable(deployment)
    state, reason = ("True", "MinimumReplicasAvailable") if enough else ("False", "MinimumReplicasUnavailable")
    message = f"Deployment {'has' if enough else 'does not have'} minimum availability."
    set_condition(status, new_condition("Available", state, reason, message, now_s))
    return status


def _terminating(everything: Sets) -> int | None:
    """None if an observed ReplicaSet does not report it."""
    told = [each.status for each in everything if each.status.get("observedGeneration")]
    if any(status.get("terminatingReplicas") is None for status in told):
        return None
    return sum(int(status["terminatingReplicas"]) for status in told)


def is_complete(deployment: WorkloadView, status: Mapping[str, Any]) -> bool:
    names = ("updatedReplicas", "replicas", "availableReplicas")
    done = all((status.get(name) or 0) == deployment.replicas for name in names)
    return done and (status.get("observedGeneration") or 0) >= deployment.generation


def _progressed(before: Mapping[str, Any], status: Mapping[str, Any]) -> bool:
    def old(each: Mapping[str, Any]) -> int:
        return (each.get("replicas") or 0) - (each.get("updatedReplicas") or 0)

    names = ("updatedReplicas", "readyReplicas", "availableReplicas")
    more = any((status.get(name) or 0) > (before.get(name) or 0) for name in names)
    return more or old(status) < old(before)


def _timed_out(deployment: WorkloadView, status: Mapping[str, Any], deadline_s: int, now_s: float) -> bool:
    current = condition(status, "Progressing")
    if current is None or current.get("reason") == "NewReplicaSetAvailable":
        return False
    if current.get("reason") == "ProgressDeadlineExceeded":
        return True
    since_s = parse_time_s(current.get("lastUpdateTime") or "")
    return since_s is not None and since_s + deadline_s < now_s


def progress(deployment: WorkloadView, everything: Sets, new: WorkloadView | None, now_s: float) -> Object:
    """The status during a rollout, including its progress."""
    status, deadline_s = status_of(deployment, everything, new, now_s), limit_of(deployment, "progressDeadlineSeconds")
    current = condition(deployment.status, "Progressing")
    what = f'ReplicaSet "{new.name}"' if new is not None else f'Deployment "{deployment.name}"'
    complete = status["replicas"] == status["updatedReplicas"]
    if deadline_s is None:
        drop_condition(status, "Progressing")
    elif complete and current is not None and current.get("reason") == "NewReplicaSetAvailable":
        pass
    elif is_complete(deployment, status):
        message = f"{what} has successfully progressed."
        set_condition(status, new_condition("Progressing", "True", "NewReplicaSetAvailable", message, now_s))
    elif _progressed(deployment.status, status):
        found = new_condition("Progressing", "True", "ReplicaSetUpdated", f"{what} is progressing.", now_s)
        if current is not None and current["status"] == "True":
            found["lastTransitionTime"] = current["lastTransitionTime"]
        drop_condition(status, "Progressing")
        set_condition(status, found)
    elif _timed_out(deployment, status, deadline_s, now_s):
        message = f"{what} has timed out progressing."
        set_condition(status, new_condition("Progressing", "False", "ProgressDeadlineExceeded", message, now_s))
    failures = [c for each in ((new,) if new else ()) if (c := condition(each.status, "ReplicaFailure"))]
    failures += [c for each in everything if (c := condition(each.status, "ReplicaFailure"))]
    if failures:
        set_condition(status, {**failures[0], "lastUpdateTime": failures[0].get("lastTransitionTime")})
    else:
        drop_condition(status, "ReplicaFailure")
    return status


def next_look_s(deployment: WorkloadView, status: Mapping[str, Any], now_s: float) -> float | None:
    """When to check a rollout without progress again; None: not needed."""
    current, deadline_s = condition(deployment.status, "Progressing"), limit_of(deployment, "progressDeadlineSeconds")
    if deadline_s is None or current is None or current.get("reason") == "ProgressDeadlineExceeded":
        return None
    if is_complete(deployment, status):
        return None
    since_s = parse_time_s(current.get("lastUpdateTime") or "")
    return max((since_s or now_s) + deadline_s - now_s, 0.0) + 1.0

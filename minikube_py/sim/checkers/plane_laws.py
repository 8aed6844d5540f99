"""Laws over each change of a control plane's objects: what the controllers, the scheduler and an eviction may write.

They know the Kubernetes API, and nothing of this implementation. Components act on late views: a law asks whether some
state of the past permits the change, in calm times one of the last seconds."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple, Protocol

Object = dict[str, Any]
TERMINAL: Final = ("Succeeded", "Failed")
BY_EVICTION, BY_TAINT, BY_PREEMPTION = "EvictionByEvictionAPI", "DeletionByTaintManager", "PreemptionByScheduler"
RESOLUTION_S: Final = 1.0
"""Changes are seen a little later than they are made."""
LATE_S: Final = 300.0
"""No message is held up for longer."""


class Change(NamedTuple):
    """`old` None: the object is created; `new` None: it is removed. `at_s`: when it was seen."""

    plural: str
    key: str
    old: Object | None
    new: Object | None
    revision: int
    at_s: float = 0.0


class Past(Protocol):
    """`objects`: after the change. `lag_s`: how late views may be. `unknown`: by namespace, how many creations of pods
    by controllers have an unknown outcome."""

    lag_s: float
    counts: Counter[str]

    @property
    def objects(self) -> Mapping[str, Mapping[str, Object]]: ...
    @property
    def unknown(self) -> Callable[[str], int]: ...


class Law(Protocol):
    def broken(self, change: Change, past: Past) -> Iterator[str]: ...


class Evictions:
    """An eviction is counted by the budget that selects its pod, which allowed it then."""

    def __init__(self) -> None:
        self._counted: defaultdict[str, set[str]] = defaultdict(set)
        self._since_s: dict[str, float] = {}

    def broken(self, change: Change, past: Past) -> Iterator[str]:
        if change.new is None:
            return
        if change.plural == "poddisruptionbudgets":
            yield from self._budget(change, change.new, past)
        elif change.plural == "pods" and change.old is not None:
            yield from self._pod(change, change.old, change.new, past)

    def _budget(self, change: Change, new: Object, past: Past) -> Iterator[str]:
        old, namespace = change.old or {}, new["metadata"]["namespace"]
        if old.get("spec") != new["spec"]:
            self._since_s[new["metadata"]["uid"]] = change.at_s
        before, after = old.get("status", {}), new.get("status", {})
        gained = sorted((after.get("disruptedPods") or {}).keys() - (before.get("disruptedPods") or {}).keys())
        if not gained:
            return
        past.counts["evictions allowed by a budget"] += len(gained)
        pods = [past.objects["pods"].get(f"{namespace}/{name}") for name in gained]
        self._counted[new["metadata"]["uid"]] |= {pod["metadata"]["uid"] for pod in pods if pod is not None}
        allowed, left = before.get("disruptionsAllowed", 0), after.get("disruptionsAllowed", 0)
        if allowed < len(gained) or left != allowed - len(gained):
            yield f"budget {change.key} allowed {allowed}, then {left}, and {gained} are evicted"
        if before.get("observedGeneration", 0) < old.get("metadata", {}).get("generation", 0):
            yield f"budget {change.key} was changed, its status not yet, and {gained} are evicted"

    def _pod(self, change: Change, old: Object, new: Object, past: Past) -> Iterator[str]:
        if not _becomes(change, BY_EVICTION):
            return
        past.counts["evictions"] += 1
        ready: Object = next((each for each in old["status"].get("conditions") or () if each["type"] == "Ready"), {})
        if ready.get("status") != "True" or phase_of(old) != "Running" or "deletionTimestamp" in old["metadata"]:
            return
        late_s = min(past.lag_s, LATE_S)
        for key, budget in past.objects["poddisruptionbudgets"].items():
            uid = budget["metadata"]["uid"]
            stood = change.at_s - self._since_s[uid] > late_s and "deletionTimestamp" not in budget["metadata"]
            if stood and selects(budget, new) and new["metadata"]["uid"] not in self._counted[uid]:
                yield f"pod {change.key} is evicted, and budget {key} has not counted it: {budget.get('status')}"


class Stay(NamedTuple):
    """A pod's time on a node with taints that it tolerates for so long at most. `end_s`: math.inf while it lasts."""

    since_s: float
    allowed_s: float
    end_s: float = math.inf


class TaintEvictions:
    """A pod is deleted for taints only if it stood them for as long as it tolerates them."""

    def __init__(self) -> None:
        self._stays: defaultdict[str, list[Stay]] = defaultdict(list)
        self._bound_s: dict[str, float] = {}
        self._were: defaultdict[str, list[tuple[float, list[Object]]]] = defaultdict(list)
        """By node: its taints before, and when they changed."""

    def broken(self, change: Change, past: Past) -> Iterator[str]:
        old, new = change.old, change.new
        if change.plural == "nodes" and _taints(old) != _taints(new):
            self._were[change.key].append((change.at_s, _taints(old)))
            for pod in past.objects["pods"].values():
                if pod["spec"].get("nodeName") == change.key:
                    self._follow(pod, new, change.at_s)
        elif change.plural == "pods" and new is not None:
            if _becomes(change, BY_TAINT):
                past.counts["taint evictions"] += 1
                stays = self._stays[new["metadata"]["uid"]]
                stood_any = any(_is_over(stay, change.at_s, past.lag_s) for stay in stays)
                if not stood_any and not self._seemed_tainted(new, change.at_s, past.lag_s):
                    stood = [tuple(stay) for stay in stays]
                    yield f"pod {change.key} goes at {change.at_s:.1f} s for taints of {stood} (from, for, until)"
            parts = ("nodeName", "tolerations")
            if old is None or any(old["spec"].get(part) != new["spec"].get(part) for part in parts):
                if new["spec"].get("nodeName"):
                    self._bound_s.setdefault(new["metadata"]["uid"], change.at_s)
                self._follow(new, past.objects["nodes"].get(new["spec"].get("nodeName", "")), change.at_s)

    def _seemed_tainted(self, pod: Object, at_s: float, lag_s: float) -> bool:
        """A stale view of its node can have taints that were removed before the pod was bound."""
        bound_s, tolerations = self._bound_s.get(pod["metadata"]["uid"], at_s), pod["spec"].get("tolerations") or ()
        return any(
            end_s <= bound_s <= end_s + lag_s and tolerated_s(taints, tolerations) <= at_s - bound_s + RESOLUTION_S
            for end_s, taints in self._were[pod["spec"].get("nodeName", "")]
        )

    def _follow(self, pod: Object, node: Object | None, at_s: float) -> None:
        stays = self._stays[pod["metadata"]["uid"]]
        allowed_s = tolerated_s(_taints(node), pod["spec"].get("tolerations") or ())
        last = stays[-1] if stays and stays[-1].end_s == math.inf else None
        if last is None and allowed_s < math.inf:
            stays.append(Stay(at_s, allowed_s))
        elif last is not None and allowed_s == math.inf:
            stays[-1] = last._replace(end_s=at_s)
        elif last is not None:
            # A shorter time counts from the beginning: upstream keeps the time that it has set.
            stays[-1] = last._replace(allowed_s=min(allowed_s, last.allowed_s))


def _is_over(stay: Stay, at_s: float, lag_s: float) -> bool:
    return stay.since_s + stay.allowed_s <= min(at_s, stay.end_s + lag_s) + RESOLUTION_S


class Creations:
    """No controller has more active pods than its spec has asked for at any time, but for creations whose outcome it
    does not know; a DaemonSet has one on each node."""

    WANTED: Final = {
        "replicationcontrollers": "replicas", "replicasets": "replicas", "statefulsets": "replicas",
        "jobs": "parallelism",
    }  # fmt: skip

    def __init__(self) -> None:
        self._most: dict[str, int] = {}
        self._active: defaultdict[tuple[str, str], dict[str, None]] = defaultdict(dict)

    def broken(self, change: Change, past: Past) -> Iterator[str]:
        old, new = change.old, change.new
        if field := self.WANTED.get(change.plural):
            if new is not None:
                uid, wanted = new["metadata"]["uid"], new["spec"].get(field)
                self._most[uid] = max(self._most.get(uid, 0), 1 if wanted is None else wanted)
            return
        if change.plural != "pods":
            return
        if old is not None:
            self._active[_place(old)].pop(old["metadata"]["uid"], None)
        if new is None or not is_active(new):
            return
        place = _place(new)
        active = self._active[place]
        active[new["metadata"]["uid"]] = None
        owner = controller_of(new)
        if old is not None or owner is None:
            return
        most = 1 if owner["kind"] == "DaemonSet" else self._most.get(owner["uid"])
        unknown = past.unknown(new["metadata"]["namespace"])
        if owner["kind"] == "StatefulSet" and most is not None:
            # It may have adopted more. What it creates has one of its names.
            if ordinal_of(new) >= most:
                yield f"{change.key} is created, and {most} at most were wanted"
            return
        if most is not None and len(active) > most + unknown:
            where = f" on {place[1]}" if place[1] else ""
            yield (
                f"{owner['kind']} {owner['name']} has {len(active)} active pods{where}, wanted {most} at most, and "
                f"knows the outcome of all creations but {unknown}"
            )


def _place(pod: Object) -> tuple[str, str]:
    """The controller's uid; for a DaemonSet's pod also its node."""
    owner = controller_of(pod)
    if owner is None:
        return "", pod["metadata"]["uid"]
    return owner["uid"], pinned_to(pod) if owner["kind"] == "DaemonSet" else ""


class Surges:
    """The ReplicaSets of a Deployment want no more together than its replicas and its surge allow."""

    def __init__(self) -> None:
        self._most: dict[str, int] = {}
        self._wanted: defaultdict[str, dict[str, int]] = defaultdict(dict)

    def broken(self, change: Change, past: Past) -> Iterator[str]:
        old, new = change.old, change.new
        if change.plural == "deployments" and new is not None:
            uid, replicas = new["metadata"]["uid"], new["spec"].get("replicas", 1)
            rolling = (new["spec"].get("strategy") or {}).get("rollingUpdate") or {}
            self._most[uid] = max(self._most.get(uid, 0), replicas + _share(rolling.get("maxSurge", 0), replicas))
        if change.plural != "replicasets":
            return
        owner, before = controller_of(new or {}), controller_of(old or {})
        if old is not None and before is not None:
            self._wanted[before["uid"]].pop(old["metadata"]["uid"], None)
        if new is None or owner is None:
            return
        wanted = self._wanted[owner["uid"]]
        wanted[new["metadata"]["uid"]] = replicas = new["spec"].get("replicas", 1)
        had = 0 if old is None else old["spec"].get("replicas", 1)
        grown = replicas > had and (old is None or before == owner)
        most = self._most.get(owner["uid"])
        if grown and most is not None and sum(wanted.values()) > most:
            yield f"the ReplicaSets of Deployment {owner['name']} want {sum(wanted.values())} pods, with surge {most}"


class Ordinals:
    """A StatefulSet's pod is created once each one before it has been ready."""

    def __init__(self) -> None:
        self._ready: defaultdict[str, set[int]] = defaultdict(set)

    def broken(self, change: Change, past: Past) -> Iterator[str]:
        new = change.new
        owner = controller_of(new or {})
        if change.plural != "pods" or new is None or owner is None or owner["kind"] != "StatefulSet":
            return
        ordinal = ordinal_of(new)
        ready = self._ready[owner["uid"]]
        if any(each["type"] == "Ready" and each["status"] == "True" for each in new["status"].get("conditions") or ()):
            ready.add(ordinal)
        found = past.objects["statefulsets"].get(f"{new['metadata']['namespace']}/{owner['name']}")
        if change.old is not None or found is None or found["spec"].get("podManagementPolicy") == "Parallel":
            return
        past.counts["pods of StatefulSets"] += 1
        if missing := sorted(set(range(ordinal)) - ready):
            yield f"pod {change.key} is created, and {missing} of its set have never been ready"


class Schedules:
    """A CronJob that forbids concurrency starts no Job beside one that has not ended; an end is never taken back."""

    def __init__(self) -> None:
        self._since_s: dict[str, float] = {}

    def broken(self, change: Change, past: Past) -> Iterator[str]:
        old, new = change.old, change.new
        if change.plural != "jobs" or new is None:
            return
        if old is not None:
            before, after = (each.get("status", {}).get("succeeded", 0) for each in (old, new))
            if after < before or (_is_over_job(old) and not _is_over_job(new)):
                yield f"job {change.key} had ended, or had {before} pods that did, and now {after}"
            return
        self._since_s[new["metadata"]["uid"]] = change.at_s
        owner = controller_of(new)
        if owner is None:
            return
        past.counts["jobs of CronJobs"] += 1
        cron = past.objects["cronjobs"].get(f"{new['metadata']['namespace']}/{owner['name']}")
        if cron is None or cron["spec"].get("concurrencyPolicy", "Allow") == "Allow":
            return
        for key, job in past.objects["jobs"].items():
            other, stands = controller_of(job), not _is_over_job(job) and "deletionTimestamp" not in job["metadata"]
            long = change.at_s - self._since_s[job["metadata"]["uid"]] > past.lag_s
            if stands and long and other is not None and other["uid"] == owner["uid"]:
                yield f"{change.key} is started beside {key}: {cron['spec']['concurrencyPolicy']}"


class Preemptions:
    """A pod is preempted only for one of higher priority that waits, or did."""

    def __init__(self) -> None:
        self._waiting: dict[str, int] = {}
        self._until_s: dict[int, float] = {}

    def broken(self, change: Change, past: Past) -> Iterator[str]:
        if change.plural != "pods":
            return
        old, new = change.old, change.new
        if old is not None and (priority := self._waiting.pop(old["metadata"]["uid"], None)) is not None:
            self._until_s[priority] = change.at_s
        if new is None:
            return
        priority = new["spec"].get("priority", 0)
        if not new["spec"].get("nodeName"):
            self._waiting[new["metadata"]["uid"]] = priority
        if _becomes(change, BY_PREEMPTION):
            past.counts["preemptions"] += 1
            recent = [each for each, at_s in self._until_s.items() if change.at_s - at_s <= LATE_S]
            if max((*recent, *self._waiting.values()), default=priority) <= priority:
                yield f"pod {change.key} of priority {priority} is preempted, and none of a higher one waits"


class Volumes:
    """A volume is never bound to another claim, nor a claim to another volume."""

    def broken(self, change: Change, past: Past) -> Iterator[str]:
        if change.old is None or change.new is None:
            return
        if change.plural == "persistentvolumes":
            before, after = ((each["spec"].get("claimRef") or {}).get("uid") for each in (change.old, change.new))
        elif change.plural == "persistentvolumeclaims":
            before, after = (each["spec"].get("volumeName") for each in (change.old, change.new))
        else:
            return
        if before and after and before != after:
            yield f"{change.plural} {change.key} was bound to {before}, and is to {after}"


class Laws:
    """`broken` is called with each change, in order."""

    def __init__(self) -> None:
        self._laws: Final[dict[str, Law]] = {
            "evictions": Evictions(), "taint evictions": TaintEvictions(), "creations": Creations(), "surges": Surges(),
            "ordinals": Ordinals(), "schedules": Schedules(), "preemptions": Preemptions(), "volumes": Volumes(),
        }  # fmt: skip

    def broken(self, change: Change, past: Past) -> str:
        """The first law that the change breaks, "" if none."""
        old, new = change.old, change.new
        if old is not None and new is not None and old["metadata"]["uid"] != new["metadata"]["uid"]:
            return self.broken(change._replace(new=None), past) or self.broken(change._replace(old=None), past)
        for name, law in self._laws.items():
            for text in law.broken(change, past):
                return f"{name}: {text}, at revision {change.revision}"
        return ""


# -- what the API says -------------------------------------------------------------------------------------------------


def controller_of(obj: Object) -> Object | None:
    references = obj.get("metadata", {}).get("ownerReferences") or ()
    return next((each for each in references if each.get("controller")), None)


def ordinal_of(pod: Object) -> int:
    return int(pod["metadata"]["name"].rpartition("-")[2])


def is_active(pod: Object) -> bool:
    return phase_of(pod) not in TERMINAL and "deletionTimestamp" not in pod["metadata"]


def selects(budget: Object, pod: Object) -> bool:
    wanted = budget["spec"]["selector"]["matchLabels"].items()
    same = budget["metadata"]["namespace"] == pod["metadata"]["namespace"]
    return bool(same and wanted <= (pod["metadata"].get("labels") or {}).items())


def pinned_to(pod: Object) -> str:
    """The node that its affinity names."""
    affinity = (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    terms = required.get("nodeSelectorTerms") or ()
    return next((str(each["values"][0]) for term in terms for each in term.get("matchFields") or ()), "")


def tolerated_s(taints: list[Object], tolerations: Any) -> float:
    """How long such a pod may stay on a node with these NoExecute taints; the first toleration of each taint counts.

    Source: kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration."""
    shortest_s = math.inf
    for taint in taints:
        used = next((each for each in tolerations if _tolerates(each, taint)), None)
        if used is None:
            return 0.0
        if used.get("tolerationSeconds") is not None:
            shortest_s = min(shortest_s, max(0.0, used["tolerationSeconds"]))
    return shortest_s


def _tolerates(toleration: Object, taint: Object) -> bool:
    if toleration.get("effect") not in (None, "", taint["effect"]):
        return False
    if toleration.get("key") not in (None, "", taint["key"]):
        return False
    return toleration.get("operator") == "Exists" or toleration.get("value", "") == taint.get("value", "")


def _taints(node: Object | None) -> list[Object]:
    return [each for each in ((node or {}).get("spec", {}).get("taints") or ()) if each["effect"] == "NoExecute"]


def _becomes(change: Change, reason: str) -> bool:
    """Whether the pod gets this reason of its deletion."""
    return reason in _targeted(change.new) and reason not in _targeted(change.old)


def _targeted(pod: Object | None) -> list[str]:
    conditions = (pod or {}).get("status", {}).get("conditions") or ()
    return [each.get("reason", "") for each in conditions if each["type"] == "DisruptionTarget"]


def phase_of(pod: Object) -> str:
    return str(pod.get("status", {}).get("phase", ""))


def _is_over_job(job: Object) -> bool:
    conditions = job.get("status", {}).get("conditions") or ()
    return any(each["type"] in ("Complete", "Failed") and each["status"] == "True" for each in conditions)


def _share(value: int | str, whole: int) -> int:
    """A count, or a percentage rounded up."""
    return value if isinstance(value, int) else -(-whole * int(value.removesuffix("%")) // 100)

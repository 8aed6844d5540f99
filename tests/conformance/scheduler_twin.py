"""Our scheduler plays a script of `drawn_scheduling`; what it says of each step, beside what upstream's says.

Its API is a dictionary and its clock moves when told to, so that a step ends when nothing is left to do.
"""

from __future__ import annotations

import asyncio
import copy
import random
import re
from collections.abc import Iterable, Mapping
from typing import Any

from scheduler_world import FakeApi, ManualClock

from minikube_py.api import merge_patch
from minikube_py.api.volume_binding import SELECTED_NODE
from minikube_py.client.transport import ApiResponse
from minikube_py.scheduler.config import SchedulerConfig, parse
from minikube_py.scheduler.explaining import verdicts
from minikube_py.scheduler.framework import Code, Diagnosis, Status
from minikube_py.scheduler.objects import PodInfo, QueuedPodInfo
from minikube_py.scheduler.scheduler import ProfileRun, Scheduler
from minikube_py.scheduler.scoring import Choice
from minikube_py.scheduler.search import MIN_FEASIBLE_TO_FIND

Json = dict[str, Any]
TURNS = 40
"""Of the loop, without anything to do, after which a step is over."""
SPINS_MAX = 20_000
HELD = Status(Code.UNSCHEDULABLE, "held", plugin="Witness")


def key_of(obj: Json) -> str:
    metadata = obj["metadata"]
    return f"{metadata['namespace']}/{metadata['name']}" if "namespace" in metadata else str(metadata["name"])


class Api(FakeApi):
    """`changes`: how often something was written."""

    changes = 0

    def put(self, plural: str, obj: Json) -> None:
        self.changes += 1
        super().put(plural, obj)

    def _delete(self, key: str, pod: Json) -> Any:
        if pod["spec"].get("terminationGracePeriodSeconds") != 0:
            return super()._delete(key, pod)
        self.delete("pods", key)
        return ApiResponse(200, b"{}")


class Witnessed(Scheduler):
    """Writes down each attempt. Pods in `held` are kept from the node that was found."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.held: set[str] = set()
        self.attempts: list[Json] = []
        self.theirs: dict[str, list[str]] = {}
        """By pod, the nodes that upstream placed it on, in order; of equally good nodes ours takes the same."""

    def _looked_at(self, run: ProfileRun, pod: PodInfo, number: int) -> list[str]:
        """Those that fit of the last nodes before the one that the next search begins with."""
        order = self.columns.ordered()
        fitting = [each.node for each in verdicts(run.evaluator, pod) if each.rejected is None]
        last = order.next_start - 1
        since = {node.name: (last - int(order.places[node.slot])) % len(order.slots) for node in fitting}
        return sorted(name for name, ago in since.items() if ago < number)

    def place(self, run: ProfileRun, queued: QueuedPodInfo, choice: Choice, started_s: float) -> None:
        pod = queued.pod
        found: Json = {"pod": pod.key, "node": choice.node.name, "feasible": [choice.node.name]}
        if choice.feasible >= MIN_FEASIBLE_TO_FIND:
            found["feasible"] = self._looked_at(run, pod, choice.evaluated)
            found["node"] = ""
            found["count"] = choice.feasible
        elif choice.feasible > 1:
            fitting = [verdict for verdict in verdicts(run.evaluator, pod) if verdict.rejected is None]
            found["feasible"] = sorted(verdict.node.name for verdict in fitting)
            found["count"] = choice.feasible
            found["scores"] = {
                verdict.node.name: {each.plugin: each.score * each.weight for each in verdict.scores}
                for verdict in fitting
            }
            choice = self._follow(pod, choice, {name: sum(given.values()) for name, given in found["scores"].items()})
            found["node"] = choice.node.name
        elif pod.key in self.theirs:
            self.theirs[pod.key] = self.theirs[pod.key][1:]
        self.attempts.append(found)
        if pod.key in self.held:
            self.fail_by_status(run, queued, HELD, started_s)
        else:
            super().place(run, queued, choice, started_s)

    def _follow(self, pod: PodInfo, choice: Choice, totals: Mapping[str, int]) -> Choice:
        """Upstream breaks a tie without extenders by the order that it came to the nodes, ours at random; from then on
        the two would have different clusters."""
        wanted, *self.theirs[pod.key] = self.theirs.get(pod.key) or [""]
        if totals.get(wanted, -1) != max(totals.values()):
            return choice
        return choice._replace(node=self.columns.by_name[wanted])

    def fail(
        self,
        run: ProfileRun,
        queued: QueuedPodInfo,
        code: Code,
        message: str,
        diagnosis: Diagnosis | None,
        started_s: float,
        nominated: str | None = "",
    ) -> None:
        if message != "0/1 nodes are available: 1 held.":
            found: Json = {"pod": queued.pod.key, "message": message}
            if diagnosis is not None:
                columns = run.evaluator.columns
                nodes = [columns.by_slot[slot] for slot in diagnosis.unschedulable_slots]
                found["mendable"] = sorted(node.name for node in nodes if node is not None)
                found["plugins"] = sorted(diagnosis.unschedulable_plugins)
            self.attempts.append(found)
        super().fail(run, queued, code, message, diagnosis, started_s, nominated)


class Twin:
    def __init__(self, script: Json, theirs: Iterable[Json] = ()) -> None:
        self.script = script
        self.clock = ManualClock()
        self.api = Api()
        config = parse(script["config"]) if "config" in script else SchedulerConfig()
        self.scheduler = Witnessed(self.api, self.clock, random.Random(1), config)
        for attempt in (each for answer in theirs for each in answer.get("attempts") or ()):
            if "node" in attempt:
                self.scheduler.theirs.setdefault(attempt["pod"], []).append(attempt["node"])

    async def play(self) -> list[Json]:
        await self.scheduler.start()
        try:
            await self.settle()
            return [await self.step(each) for each in self.script["steps"]]
        finally:
            await self.scheduler.stop()
            assert self.scheduler.failure is None

    async def settle(self) -> None:
        """Until nothing has changed for a while."""
        before: Any = None
        quiet = 0
        for _ in range(SPINS_MAX):
            now = self.api.changes, len(self.scheduler.attempts), len(self.api.listed), self.scheduler.queue.has_work
            quiet = quiet + 1 if now == before else 0
            if quiet >= TURNS:
                return
            before = now
            await asyncio.sleep(0)
        raise AssertionError(f"it never comes to rest: {self.scheduler.attempts[-3:]}")

    async def step(self, step: Json) -> Json:
        scheduler = self.scheduler
        scheduler.attempts = []
        what = step["do"]
        if what in ("put", "try"):
            obj = copy.deepcopy(step["object"])
            key, plural = key_of(obj), PLURALS[obj["kind"]]
            if step.get("hold") or what == "try":
                scheduler.held.add(key)
            self.api.put(plural, obj)
            if what == "try":
                await self.settle()
                self.api.delete("pods", key)
                await self.settle()
                scheduler.held.discard(key)
        elif what == "merge":
            self.merge(step["kind"].rpartition("/")[2], step["key"], step["object"])
            await self.advance(step["seconds"])
        elif what == "delete":
            self.remove(step["kind"].rpartition("/")[2], step["key"])
        elif what == "sleep":
            await self.advance(step["seconds"])
        elif what == "look":
            return self.look()
        await self.settle()
        return {"attempts": scheduler.attempts} if scheduler.attempts else {}

    def merge(self, plural: str, key: str, patch: Json) -> None:
        if key in self.api.objects[plural]:
            self.api.put(plural, merge_patch.apply(*copy.deepcopy((self.api.objects[plural][key], patch))))

    def remove(self, plural: str, key: str) -> None:
        if key in self.api.objects[plural]:
            self.api.delete(plural, key)

    async def advance(self, seconds: float) -> None:
        for _ in range(round(seconds * 2)):
            await self.clock.advance(0.5)
            await self.settle()

    def look(self) -> Json:
        pods = {}
        for key, pod in self.api.objects["pods"].items():
            told: Json = {}
            for condition in pod.get("status", {}).get("conditions") or ():
                told[condition["type"]] = [condition["status"], *(condition.get(k, "") for k in ("reason", "message"))]
            if nominated := pod.get("status", {}).get("nominatedNodeName"):
                told["nominated"] = nominated
            if "deletionTimestamp" in pod["metadata"]:
                told["deleting"] = True
            if pod["spec"].get("nodeName"):
                told["node"] = pod["spec"]["nodeName"]
            pods[key] = told
        queue = self.scheduler.queue
        queued = {key: found.queue for key in pods if (found := queue.get(key)) is not None}
        objects = self.api.objects
        claims = {key: _claim(obj) for key, obj in objects["persistentvolumeclaims"].items()}
        devices = {key: _devices(obj.get("status") or {}) for key, obj in objects["resourceclaims"].items()}
        return {"pods": pods, "queue": queued, "claims": claims, "devices": devices}


def _claim(obj: Json) -> list[str]:
    return [str((obj["metadata"].get("annotations") or {}).get(SELECTED_NODE, "")), obj["spec"].get("volumeName", "")]


def _devices(status: Json) -> list[list[str]]:
    results = ((status.get("allocation") or {}).get("devices") or {}).get("results") or ()
    return [
        [f"{each['pool']}/{each['device']}" for each in results],
        [each["name"] for each in status.get("reservedFor") or ()],
    ]


PLURALS = {
    "Node": "nodes",
    "Pod": "pods",
    "Namespace": "namespaces",
    "Service": "services",
    "PersistentVolume": "persistentvolumes",
    "PersistentVolumeClaim": "persistentvolumeclaims",
    "StorageClass": "storageclasses",
    "CSINode": "csinodes",
    "CSIDriver": "csidrivers",
    "CSIStorageCapacity": "csistoragecapacities",
    "DeviceClass": "deviceclasses",
    "ResourceSlice": "resourceslices",
    "ResourceClaim": "resourceclaims",
    "PodDisruptionBudget": "poddisruptionbudgets",
    "ReplicaSet": "replicasets",
}


def played(script: Json, theirs: Iterable[Json]) -> list[Json]:
    return asyncio.run(Twin(script, theirs).play())


# --- what differs -----------------------------------------------------------------------------------------------------


class Comparison:
    """Of a script, step by step, up to the first that leaves both in different states.

    Upstream wakes pods that then fit nowhere still, since most of its hints look at less than ours (a pod that asks for
    what no node has is woken by each pod that goes). `for_nothing`: how often. The condition of such a pod is then
    written again, in other numbers perhaps; ours stays as it is. `for_nothing_here`: the other way round, where a node
    that changed would do for its node-local filters, and did before. Nothing else may be left out, or woken besides.
    """

    def __init__(self, script: Json, theirs: list[Json], ours: list[Json]) -> None:
        self.found: list[tuple[int, str]] = []
        self.for_nothing = 0
        self.for_nothing_here = 0
        self._asleep: set[str] = set()
        for i, step in enumerate(script["steps"]):
            differ = self._look if step["do"] == "look" else self._attempts
            if text := differ(theirs[i], ours[i]):
                self.found.append((i, text))
                if step["do"] != "try":
                    break

    def _attempts(self, theirs: Json, ours: Json) -> str:
        by_pod = _by_pod(theirs.get("attempts") or ()), _by_pod(ours.get("attempts") or ())
        for pod in sorted({*by_pod[0], *by_pod[1]}):
            one, other = by_pod[0].get(pod, []), by_pod[1].get(pod, [])
            if text := self._unlike(pod, one, other):
                return text
        return ""

    def _unlike(self, pod: str, theirs: list[Json], ours: list[Json]) -> str:
        """Those of either side that the other lacks came to nothing. Of pods that one event wakes at one instant, which
        goes first is left to chance, and the others' attempts before it: what counts is then who was placed, and
        what was said last."""
        text = _aligned(pod, theirs, ours)
        if text and theirs and ours:
            placed = [[each for each in side if not each.get("message")] for side in (theirs, ours)]
            ends = [(theirs[-1], ours[-1]), *zip(*placed, strict=False)]
            if len(placed[0]) != len(placed[1]) or any(_attempts_differ(*each) for each in ends):
                return text
        elif text:
            return text
        self.for_nothing += max(len(theirs) - len(ours), 0)
        self.for_nothing_here += max(len(ours) - len(theirs), 0)
        if len(theirs) != len(ours):
            self._asleep.add(pod)
        elif theirs and theirs[-1].get("message"):
            self._asleep.discard(pod)
        return ""

    def _look(self, theirs: Json, ours: Json) -> str:
        for key in sorted({*theirs["queue"], *ours["queue"]}):
            # Which of two queues it is depends on how both clocks fall into a step.
            one, other = (_waits(side["queue"].get(key)) for side in (theirs, ours))
            if one != other:
                return f"{key} waits as {one} upstream, as {other} here"
        for key in sorted({*theirs["pods"], *ours["pods"]}):
            one, other = (self._shown(key, side["pods"].get(key)) for side in (theirs, ours))
            if one != other:
                return f"{key}: {one} upstream, {other} here"
        for kind in ("claims", "devices"):
            for key in sorted({*theirs[kind], *ours[kind]}):
                one, other = theirs[kind].get(key), ours[kind].get(key)
                if one != other:
                    return f"{key}: {one} upstream, {other} here"
        return ""

    def _shown(self, key: str, pod: Json | None) -> Json | None:
        if pod is None:
            return None
        told = pod.get("PodScheduled", ["", "", ""])[2]
        hidden = {"PodScheduled"} if key in self._asleep or "held" in told else set()
        return {field: value for field, value in pod.items() if field not in hidden}


def differences(script: Json, theirs: list[Json], ours: list[Json]) -> list[tuple[int, str]]:
    """(step, what differs)"""
    return Comparison(script, theirs, ours).found


def _by_pod(attempts: Iterable[Json]) -> dict[str, list[Json]]:
    found: dict[str, list[Json]] = {}
    for each in attempts:
        found.setdefault(each["pod"], []).append(each)
    return found


def _aligned(pod: str, theirs: list[Json], ours: list[Json]) -> str:
    """What differs if each attempt is held against the next one of the other side that is like it."""
    left, text = list(ours), ""
    for each in theirs:
        if left and not (text := _attempts_differ(each, left[0])):
            left.pop(0)
        elif not each.get("message") or len(theirs) <= len(ours):
            return f"{pod}: {text or 'it was not tried here'}"
    if not all(each.get("message") for each in left) or (theirs and left):
        return f"{pod} was tried {len(theirs)} times by upstream, {len(ours)} times by ours"
    return ""


def _attempts_differ(theirs: Json, ours: Json) -> str:
    if theirs.get("message", "") != ours.get("message", "") and not _both_broke(theirs, ours):
        told = [each.get("message") or each.get("node") for each in (theirs, ours)]
        return f"message\n    upstream: {told[0]}\n    ours:     {told[1]}"
    if theirs.get("message"):
        mendable = sorted(node for node, code in theirs.get("codes", {}).items() if code == "Unschedulable")
        if "mendable" in ours and mendable != ours["mendable"]:
            return f"preemption may help on {mendable} by upstream, on {ours['mendable']} by ours"
        if theirs["message"] == NO_NODES:
            # Upstream tries again and again, ours once there is a node.
            return ""
        if "plugins" in ours and (theirs.get("plugins") or []) != ours["plugins"]:
            return f"rejected by {theirs.get('plugins')} upstream, by {ours['plugins']} here"
        return ""
    if theirs["feasible"] != ours["feasible"] or ours.get("count", 1) != len(ours["feasible"]):
        return f"feasible are {theirs['feasible']} upstream, {ours['feasible']} ({ours.get('count')}) here"
    totals: dict[str, int] = {}
    for node, given in (theirs.get("scores") or {}).items():
        own = ours["scores"][node]
        for plugin in sorted({*given, *own}):
            if given.get(plugin, 0) != own.get(plugin, 0):
                return f"{plugin} gives {node} {given.get(plugin, 0)} upstream, {own.get(plugin, 0)} here"
        totals[node] = sum(given.values())
    best = max(totals.values(), default=0)
    if totals and totals[ours["node"]] != best:
        return f"{ours['node']} was chosen, of {totals}"
    return ""


NO_NODES = "no nodes available to schedule pods"


def _both_broke(theirs: Json, ours: Json) -> bool:
    """The same plugin gave up. Of several nodes that would make it, upstream takes the first that it comes to."""
    found = [BROKE.match(each.get("message", "")) for each in (theirs, ours)]
    return found[0] is not None and found[1] is not None and found[0][0] == found[1][0]


BROKE = re.compile('running "[^"]+" filter plugin: ')


def _waits(queue: str | None) -> str | None:
    return "soon" if queue in ("active", "backoff") else "unschedulable" if queue == "gated" else queue

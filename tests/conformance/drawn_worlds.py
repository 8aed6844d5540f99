"""Worlds of drawn workloads: what a script's kubelets and steps do, and what is there, on one of two servers."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final, Protocol

from drawn_cron_jobs import Step as CronStep
from drawn_cron_jobs import before
from drawn_jobs import Step as JobStep
from drawn_stateful_sets import OTHER, Drawn, Step
from lockstep import ACTS_EVERY_S, SIDE
from patience import until
from side_by_side import Told
from test_controllers_vs_original import normal

from minikube_py.api.errors import StatusError
from minikube_py.client.rest import (
    CONFIG_MAPS,
    CONTROLLER_REVISIONS,
    CRON_JOBS,
    JOBS,
    NAMESPACES,
    PERSISTENT_VOLUME_CLAIMS,
    PODS,
    STATEFUL_SETS,
    ResourceRef,
    RestClient,
)
from minikube_py.client.transport import MERGE_PATCH

Json = dict[str, Any]
ENDED_AT: Final = "2026-01-01T00:01:00Z"


class One(Protocol):
    """A drawn object, what is done to it, and its name, in which those of its parts begin or end."""

    @property
    def name(self) -> str: ...

    @property
    def body(self) -> Json: ...

    @property
    def steps(self) -> Sequence[Any]: ...


class World(ABC):
    """A namespace with all drawn objects of a kind, and its kubelets; each step is done to all at once."""

    namespace: str
    kinds: tuple[ResourceRef, ...]
    """Of the objects themselves, and of what is made of them."""

    def __init__(self, client: RestClient, drawn: Sequence[One]) -> None:
        self.client = client
        self.drawn = drawn
        self.answers: list[dict[str, dict[str, Any]]] = []
        self.names: dict[str, str] = {}
        self.told = Told()

    @abstractmethod
    def of(self, obj: Json) -> str:
        """The name of the drawn object that it belongs to."""

    @abstractmethod
    async def kubelet(self, pod: Json) -> None: ...

    @abstractmethod
    async def step(self, one: Any, step: Any) -> None: ...

    async def run(self) -> None:
        await self.client.create(NAMESPACES, {"metadata": {"name": self.namespace}})
        await self.client.create(CONFIG_MAPS, {"metadata": {"name": OTHER}}, self.namespace)
        for one in self.drawn:
            await self.client.create(self.kinds[0], one.body, self.namespace)
        kubelets = asyncio.get_running_loop().create_task(self._kubelets())
        try:
            await self._settle()
            for at in range(max(len(one.steps) for one in self.drawn)):
                await asyncio.gather(*(self.step(one, one.steps[at]) for one in self.drawn))
                await self._settle()
        finally:
            kubelets.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await kubelets
        kind = self.drawn[0].body["kind"]
        await self.told.read(self.client, self.namespace, kind, self.plain)
        for one in self.drawn:
            if said := self.told.by_name.get(one.name):
                self.told.by_name[one.name] = self.settled(one, said)

    def settled(self, one: Any, said: list[str]) -> list[str]:
        """Its events, without what is left to chance."""
        return said

    async def _kubelets(self) -> None:
        while True:
            for pod in await self.client.list(PODS, self.namespace):
                with contextlib.suppress(StatusError):
                    await self.kubelet(pod)
            await asyncio.sleep(ACTS_EVERY_S)

    async def _settle(self) -> None:
        self.answers.append(await SIDE.get().settle(self._state))

    async def _state(self) -> dict[str, dict[str, Any]]:
        """By drawn object, without what differs by chance. Parts whose names differ by chance alone have one name."""
        found: dict[str, dict[str, Any]] = {}
        for kind in self.kinds:
            objects = await self.client.list(kind, self.namespace)
            numbered = sorted((each for each in objects if "revision" in each), key=lambda each: int(each["revision"]))
            for each in numbered:
                self.names.setdefault(each["metadata"]["name"].rpartition("-")[2], f"R{each['revision']}")
            for each in objects:
                # Upstream's are in the order of a Go map.
                (each.get("spec") or {}).get("volumes", []).sort(key=lambda volume: volume["name"])
                name = self.plain(f"{kind.plural} {each['metadata']['name']}")
                plain = json.loads(self.plain(json.dumps(normal(self.kept(each)))))
                named = found.setdefault(self.of(each), {}).setdefault(name, [])
                named.append(plain)
                named.sort(key=lambda each: json.dumps(each, sort_keys=True))
        return found

    def kept(self, obj: Json) -> Json:
        """With such of its times as do not differ by chance in another form, which is compared."""
        return obj

    def plain(self, text: str) -> str:
        text = re.sub("|".join(self.names) or "$^", lambda match: self.names[match[0]], text)
        return re.sub(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", "UID", text)

    async def parts(self, resource: ResourceRef, one: One) -> list[Json]:
        found = [each for each in await self.client.list(resource, self.namespace) if self.of(each) == one.name]
        return sorted(found, key=lambda each: (each.get("revision", 0), each["metadata"]["name"]))

    async def patch(self, resource: ResourceRef, name: str, body: Any, subresource: str = "") -> None:
        with contextlib.suppress(StatusError):
            await self.client.patch(
                resource, name, body, self.namespace, subresource=subresource, content_type=MERGE_PATCH
            )


class StatefulSets(World):
    namespace = "drawn-sets"
    kinds = (STATEFUL_SETS, CONTROLLER_REVISIONS, PODS, PERSISTENT_VOLUME_CLAIMS)

    def of(self, obj: Json) -> str:
        """Names of pods and claims end in those of their set and an ordinal."""
        return re.sub(r"^.*?(s\d+)(-.*)?$", r"\1", obj["metadata"]["name"])

    def settled(self, one: Drawn, said: list[str]) -> list[str]:
        """Either side may write a claim that it has not seen since its last write, and then tries again."""
        said = [line for line in said if "the object has been modified" not in line]
        return said if one.ordered else sorted(said)

    async def kubelet(self, pod: Json) -> None:
        name, image = pod["metadata"]["name"], pod["spec"]["containers"][0]["image"]
        if pod["metadata"].get("deletionTimestamp"):
            if image != "stuck":
                await self.client.delete(PODS, name, self.namespace, grace_period_s=0)
        elif pod["status"].get("phase") == "Pending" and image != "broken":
            at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            ready = {"type": "Ready", "status": "False" if image == "crashing" else "True", "lastTransitionTime": at}
            status = {"phase": "Running", "conditions": [ready]}
            await self.client.patch(PODS, name, {"status": status}, self.namespace, subresource="status")

    async def step(self, one: Drawn, step: Step) -> None:
        if step.what.startswith("again"):
            await self._again(one, step)
        elif step.what == "patch":
            await self.patch(STATEFUL_SETS, one.name, step.body)
        elif step.what == "delete revision":
            await self._on_revision(one, step)
        else:
            await self._on_part(one, step)

    async def _again(self, one: Drawn, step: Step) -> None:
        policy = step.what.rpartition(" ")[2]
        await self.client.delete(STATEFUL_SETS, one.name, self.namespace, propagation=policy)

        async def gone() -> bool:
            found = {each["metadata"]["name"] for each in await self.client.list(STATEFUL_SETS, self.namespace)}
            if policy != "Orphan":
                pods = [each for each in await self.client.list(PODS, self.namespace) if self.of(each) == one.name]
                for pod in pods:
                    # A pod that stays would hold up its set forever.
                    with contextlib.suppress(StatusError):
                        await self.client.delete(PODS, pod["metadata"]["name"], self.namespace, grace_period_s=0)
                return one.name not in found and not pods
            return one.name not in found

        await until(gone, f"{one.name} is deleted")
        assert step.body is not None
        await self.client.create(STATEFUL_SETS, step.body, self.namespace)

    async def _on_revision(self, one: Drawn, step: Step) -> None:
        found = await self.parts(CONTROLLER_REVISIONS, one)
        if step.at < len(found):
            await self.client.delete(CONTROLLER_REVISIONS, found[step.at]["metadata"]["name"], self.namespace)

    async def _on_part(self, one: Drawn, step: Step) -> None:
        resource = PERSISTENT_VOLUME_CLAIMS if "claim" in step.what else PODS
        found = await self.parts(resource, one)
        if step.at >= len(found):
            return
        part = found[step.at]
        name = part["metadata"]["name"]
        with contextlib.suppress(StatusError):
            if step.what in ("delete pod", "delete claim"):
                await self.client.delete(resource, name, self.namespace)
            elif step.what == "kill pod":
                await self.client.delete(resource, name, self.namespace, grace_period_s=0)
            elif step.what == "pod status":
                await self.client.patch(PODS, name, {"status": step.body}, self.namespace, subresource="status")
            elif step.what == "patch pod":
                await self.patch(PODS, name, step.body)
            else:
                await self._own(one, name, (step.body or {})["ownerReferences"])

    async def _own(self, one: Drawn, claim: str, references: list[Json] | None) -> None:
        """Owners of the claim, by their kind: those that are there, or of a uid that nobody has."""
        made = []
        for each in references or ():
            resource, name = {
                "ConfigMap": (CONFIG_MAPS, each["name"]), "StatefulSet": (STATEFUL_SETS, one.name),
                "Pod": (PODS, f"{one.name}-{claim.rpartition('-')[2]}"),
            }[each["kind"]]  # fmt: skip
            with contextlib.suppress(StatusError):
                found = await self.client.get(resource, name, self.namespace)
                made.append({**each, "name": name, "uid": found["metadata"]["uid"]})
        await self.patch(PERSISTENT_VOLUME_CLAIMS, claim, {"metadata": {"ownerReferences": made or None}})


class CronJobs(World):
    namespace = "drawn-crons"
    kinds = (CRON_JOBS, JOBS)
    now: Final = datetime.now(UTC)

    def of(self, obj: Json) -> str:
        return str(obj["metadata"]["name"]).partition("-")[0]

    async def kubelet(self, pod: Json) -> None:
        image, phase = pod["spec"]["containers"][0]["image"], pod["status"].get("phase")
        if pod["metadata"].get("deletionTimestamp"):
            await self.client.delete(PODS, pod["metadata"]["name"], self.namespace, grace_period_s=0)
        elif phase == "Pending":
            ready = {"type": "Ready", "status": "True", "lastTransitionTime": before(self.now, 0)}
            await self._become(pod, "Running", [ready])
        elif phase == "Running" and image != "runs":
            await self._become(pod, "Succeeded" if image == "ends" else "Failed", [])

    async def _become(self, pod: Json, phase: str, conditions: list[Json]) -> None:
        status = {"phase": phase, "conditions": conditions}
        await self.client.patch(PODS, pod["metadata"]["name"], {"status": status}, self.namespace, subresource="status")

    def settled(self, one: One, said: list[str]) -> list[str]:
        """Upstream's controller may miss a job that it has deleted, until it sees its own last write."""
        deleted = {line.rpartition(" ")[2] for line in said if " SuccessfulDelete: " in line}
        return [line for line in said if " MissingJob: " not in line or line.rpartition(" ")[2] not in deleted]

    async def step(self, one: One, step: CronStep) -> None:
        if step.what == "changed":
            await self.patch(CRON_JOBS, one.name, step.body)
        elif step.what == "late":
            # One change makes it due: the last.
            await self.patch(CRON_JOBS, one.name, {"spec": {**(step.body or {}), "suspend": True}})
            late = {"status": {"lastScheduleTime": before(self.now, step.late_s)}}
            await self.patch(CRON_JOBS, one.name, late, "status")
            await self.patch(CRON_JOBS, one.name, {"spec": {"suspend": (step.body or {}).get("suspend", False)}})
        elif step.what == "delete a job":
            for job in (await self.parts(JOBS, one))[:1]:
                await self.client.delete(JOBS, job["metadata"]["name"], self.namespace, propagation="Background")
        elif step.what == "end a job":
            for pod in (await self.parts(PODS, one))[:1]:
                with contextlib.suppress(StatusError):
                    await self._become(pod, "Succeeded", [])
        elif step.what == "job by hand" and step.body is not None:
            uid = (await self.client.get(CRON_JOBS, one.name, self.namespace))["metadata"]["uid"]
            metadata = step.body["metadata"]
            owners = [{**each, "uid": uid} for each in metadata["ownerReferences"]]
            with contextlib.suppress(StatusError):
                await self.client.create(
                    JOBS, {**step.body, "metadata": {**metadata, "ownerReferences": owners}}, self.namespace
                )

    def kept(self, obj: Json) -> Json:
        last = obj["status"].get("lastScheduleTime")
        return {**obj, "status": {**obj["status"], "lastScheduleTime": last.replace("T", " ")}} if last else obj

    def plain(self, text: str) -> str:
        return re.sub(r"\b(c\d+-(?:\d+|hand))-[a-z0-9]{5}\b", r"\1-XXXXX", super().plain(text))


class Jobs(World):
    namespace = "drawn-jobs"
    kinds = (JOBS, PODS)

    def of(self, obj: Json) -> str:
        return str(obj["metadata"]["name"]).partition("-")[0]

    def settled(self, one: One, said: list[str]) -> list[str]:
        """Pods are made at once."""
        return sorted(said)

    async def kubelet(self, pod: Json) -> None:
        name = pod["metadata"]["name"]
        if pod["metadata"].get("deletionTimestamp"):
            await self.client.delete(PODS, name, self.namespace, grace_period_s=0)
        elif pod["status"].get("phase") == "Pending":
            ready = {"type": "Ready", "status": "True", "lastTransitionTime": ENDED_AT}
            status = {"phase": "Running", "conditions": [ready]}
            await self.client.patch(PODS, name, {"status": status}, self.namespace, subresource="status")

    async def step(self, one: One, step: JobStep) -> None:
        if step.what == "patch":
            await self.patch(JOBS, one.name, step.body)
            return
        for pod in await self.parts(PODS, one):
            index = (pod["metadata"].get("annotations") or {}).get("batch.kubernetes.io/job-completion-index", "-1")
            if pod["status"].get("phase") == "Running" and step.index in (-1, int(index)):
                await self._end(pod, step)
                return

    async def _end(self, pod: Json, step: JobStep) -> None:
        ended = {"exitCode": step.code, "reason": "R", "finishedAt": ENDED_AT, "startedAt": ENDED_AT}
        container = {"name": "c", "image": "runs", "imageID": "", "ready": False, "restartCount": 0}
        status: Json = {
            "phase": "Failed" if step.code else "Succeeded",
            "containerStatuses": [{**container, "state": {"terminated": ended}}],
        }
        if step.disrupted:
            disrupted = {"type": "DisruptionTarget", "status": "True", "lastTransitionTime": ENDED_AT}
            status["conditions"] = [*pod["status"].get("conditions", ()), disrupted]
        await self.client.patch(PODS, pod["metadata"]["name"], {"status": status}, self.namespace, subresource="status")

    def plain(self, text: str) -> str:
        return re.sub(r"\b(j\d+-(?:\d+-)?)[a-z0-9]{5}\b", r"\1XXXXX", super().plain(text))

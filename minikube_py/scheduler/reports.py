"""Asynchronous reports about a pod: events, and the PodScheduled condition."""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime
from typing import Any, NamedTuple

import orjson

from minikube_py.api.errors import StatusError
from minikube_py.client.events import EventRecorder, Involved
from minikube_py.client.rest import Object, RestClient
from minikube_py.client.transport import STRATEGIC_MERGE_PATCH
from minikube_py.env import Clock, Rng, ended
from minikube_py.errors import MinikubeError
from minikube_py.scheduler.objects import PodInfo

logger = logging.getLogger(__name__)

NOTE_BYTES_MAX = 1024
EVENTS_QUEUED_MAX = 50_000
SENDERS = 32
"""Every pod causes an event: concurrent sends share a group commit, and keep up with binding."""
REASON_UNSCHEDULABLE = "Unschedulable"
REASON_ERROR = "SchedulerError"
ACTIONS = {"FailedScheduling": "Scheduling", "Scheduled": "Binding", "Preempted": "Preempting"}


def truncate(message: str) -> str:
    """To what the API server accepts as an event's note."""
    written = message.encode(errors="replace")
    if len(written) <= NOTE_BYTES_MAX:
        return message
    return written[: NOTE_BYTES_MAX - 4].decode(errors="ignore") + " ..."


class SchedulerEvents(EventRecorder):
    """Events in the form of events.k8s.io/v1, as upstream's: an action and an eventTime instead of a source and a
    count."""

    def __init__(self, client: RestClient, clock: Clock, rng: Rng, component: str, host: str) -> None:
        super().__init__(client, clock, rng, component, host, queue_max=EVENTS_QUEUED_MAX, senders=SENDERS)
        self._instance = f"{component}-{host}" if host else component

    def about(self, pod: PodInfo, type: str, reason: str, message: str) -> None:
        involved = Involved("Pod", pod.namespace, pod.name, pod.uid, "v1", pod.resource_version)
        self.event(involved, type, reason, truncate(message))

    def _body(self, name: str, namespace: str, message: str, count: int, pending: Any) -> Object:
        body = super()._body(name, namespace, message, count, pending)
        body["source"] = {}
        body["firstTimestamp"] = body["lastTimestamp"] = None
        del body["count"]
        at = datetime.fromtimestamp(pending.at_s, UTC)
        body["eventTime"] = at.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        body["action"] = ACTIONS.get(pending.reason, pending.reason)
        body["reportingInstance"] = self._instance
        return body


class _Status(NamedTuple):
    """What is written of a pod; None: is left unchanged. `told`: why it is not scheduled, as (reason, message).
    `nominated`: its nominated node, "" to clear it."""

    pod: PodInfo
    told: tuple[str, str] | None
    nominated: str | None

    def after(self, earlier: _Status | None) -> _Status:
        if earlier is None:
            return self
        nominated = earlier.nominated if self.nominated is None else self.nominated
        return _Status(self.pod, self.told or earlier.told, nominated)


class Conditions:
    """Patches PodScheduled=False into pods, and the node they are nominated to.

    One request per pod at a time; of several results the last one is written. A result is not sent again until the pod
    is seen in another version; from then on results are compared with its own status, so that one removed or changed
    by others is written again. Source: updatePod in pkg/scheduler/schedule_one.go."""

    def __init__(self, client: RestClient, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._wanted: dict[str, _Status] = {}
        # By uid: what is written, over the version of the pod seen at that time.
        self._sent: dict[str, _Status] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self.patched = self.failed = 0

    def not_scheduled(self, pod: PodInfo, reason: str, message: str, nominated: str | None) -> None:
        """`nominated`: the node to write, "" to clear it, None to leave it unchanged."""
        self._write(_Status(pod, (reason, message), nominated))

    async def nominate(self, pod: PodInfo, node_name: str) -> None:
        """Returns once the API server has it, or cannot be told."""
        self._write(_Status(pod, None, node_name))
        if (task := self._tasks.get(pod.uid)) is not None:
            await asyncio.wait((task,))

    def _write(self, new: _Status) -> None:
        """Only what differs from what is written, or is going to be."""
        pod, told, nominated = new
        known = self._known(pod)
        if told == known.told:
            told = None
        if nominated == known.nominated:
            nominated = None
        if told is None and nominated is None:
            return
        self._wanted[pod.uid] = _Status(pod, told, nominated).after(self._wanted.get(pod.uid))
        if pod.uid not in self._tasks:
            self._tasks[pod.uid] = asyncio.get_running_loop().create_task(self._send(pod.uid))

    def _known(self, pod: PodInfo) -> _Status:
        status, reason, message, _ = pod.scheduled_condition or ("", "", "", "")
        known = _Status(pod, (reason, message) if status == "False" else None, pod.nominated_node)
        sent, wanted = self._sent.get(pod.uid), self._wanted.get(pod.uid)
        if sent is not None and sent.pod.resource_version == pod.resource_version:
            known = sent.after(known)
        return known if wanted is None else wanted.after(known)

    def forget(self, uid: str) -> None:
        """The pod is bound or gone."""
        self._wanted.pop(uid, None)
        self._sent.pop(uid, None)

    async def stop(self) -> None:
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await ended(*tasks)

    async def _send(self, uid: str) -> None:
        try:
            while (wanted := self._wanted.pop(uid, None)) is not None:
                sent = self._sent.get(uid)
                same = sent is not None and sent.pod.resource_version == wanted.pod.resource_version
                self._sent[uid] = wanted.after(sent if same else None)
                await self._patch(*wanted)
        finally:
            del self._tasks[uid]

    async def _patch(self, pod: PodInfo, told: tuple[str, str] | None, nominated: str | None) -> None:
        written: dict[str, object] = {} if told is None else self._condition(pod, *told)
        if nominated is not None:
            written["nominatedNodeName"] = nominated or None
        patch = {"metadata": {"uid": pod.uid}, "status": written}
        path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}/status"
        try:
            await self._client.raw("PATCH", path, None, orjson.dumps(patch), STRATEGIC_MERGE_PATCH)
            self.patched += 1
        except StatusError as error:
            self._sent.pop(pod.uid, None)
            if error.code not in (404, 409):
                self.failed += 1
                logger.warning("status of pod %s: %s", pod.key, error)
        except MinikubeError as error:
            # The pod's next attempt writes it again.
            self._sent.pop(pod.uid, None)
            self.failed += 1
            logger.warning("status of pod %s: %s", pod.key, error)

    def _condition(self, pod: PodInfo, reason: str, message: str) -> dict[str, object]:
        old = pod.scheduled_condition
        since = old[3] if old is not None and old[0] == "False" and old[3] else ""
        now = datetime.fromtimestamp(self._clock.wall_s(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        condition: dict[str, object] = {
            "type": "PodScheduled",
            "status": "False",
            "reason": reason,
            "message": message,
            "lastProbeTime": None,
            "lastTransitionTime": since or now,
        }
        if pod.generation:
            condition["observedGeneration"] = pod.generation
        return {"$setElementOrder/conditions": [{"type": "PodScheduled"}], "conditions": [condition]}

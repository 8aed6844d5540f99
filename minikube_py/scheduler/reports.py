"""Asynchronous reports about a pod: events, and the PodScheduled condition."""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime
from typing import Any

import orjson

from minikube_py.api.errors import StatusError
from minikube_py.client.events import EventRecorder, Involved
from minikube_py.client.rest import Object, RestClient
from minikube_py.client.transport import STRATEGIC_MERGE_PATCH
from minikube_py.env import Clock, Rng, ended
from minikube_py.errors import MinikubeError
from minikube_py.scheduler.objects import PodInfo

logger = logging.getLogger(__name__)

NOTE_CHARS_MAX = 1024
EVENTS_QUEUED_MAX = 50_000
SENDERS = 32
"""Every pod causes an event: concurrent sends share a group commit, and keep up with binding."""
REASON_UNSCHEDULABLE = "Unschedulable"
REASON_ERROR = "SchedulerError"
ACTIONS = {"FailedScheduling": "Scheduling", "Scheduled": "Binding", "Preempted": "Preempting"}


def truncate(message: str) -> str:
    return message if len(message) <= NOTE_CHARS_MAX else message[: NOTE_CHARS_MAX - 4] + " ..."


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


class Conditions:
    """Patches PodScheduled=False into pods, and the node they are nominated to.

    One request per pod at a time; of several results the last one is written. A result is not sent again until the pod
    is seen in another version; from then on results are compared with its own condition, so that one removed or changed
    by others is written again. Source: updatePod in pkg/scheduler/schedule_one.go."""

    def __init__(self, client: RestClient, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._wanted: dict[str, tuple[PodInfo, str, str, str | None]] = {}
        # By uid: reason, message, and the pod version seen at that time.
        self._sent: dict[str, tuple[str, str, str]] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self.patched = self.failed = 0

    def not_scheduled(self, pod: PodInfo, reason: str, message: str, nominated: str | None) -> None:
        """`nominated`: the node to write, "" to clear it, None to leave it unchanged."""
        if nominated == pod.nominated_node:
            nominated = None
        sent = self._sent.get(pod.uid)
        known = None
        if sent is not None and sent[2] == pod.resource_version:
            known = sent[:2]
        elif pod.scheduled_condition is not None:
            status, old_reason, old_message, _ = pod.scheduled_condition
            known = (old_reason, old_message) if status == "False" else None
        if pod.uid in self._wanted:
            earlier = self._wanted[pod.uid][3]
            self._wanted[pod.uid] = (pod, reason, message, earlier if nominated is None else nominated)
        elif known != (reason, message) or nominated is not None:
            self._wanted[pod.uid] = (pod, reason, message, nominated)
            if pod.uid not in self._tasks:
                self._tasks[pod.uid] = asyncio.get_running_loop().create_task(self._send(pod.uid))

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
                pod, reason, message, nominated = wanted
                self._sent[uid] = (reason, message, pod.resource_version)
                await self._patch(pod, reason, message, nominated)
        finally:
            del self._tasks[uid]

    async def _patch(self, pod: PodInfo, reason: str, message: str, nominated: str | None) -> None:
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
        order = [{"type": "PodScheduled"}]
        written: dict[str, object] = {"$setElementOrder/conditions": order, "conditions": [condition]}
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
                logger.warning("condition of pod %s: %s", pod.key, error)
        except MinikubeError as error:
            # The pod's next attempt writes it again.
            self._sent.pop(pod.uid, None)
            self.failed += 1
            logger.warning("condition of pod %s: %s", pod.key, error)

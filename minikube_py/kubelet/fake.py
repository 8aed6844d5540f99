"""Fake kubelets: one object plays thousands of nodes.

Pods that are bound to its nodes become Running, with an address and conditions; deleted pods are removed after their
stop delay; finite pods finish. One watch for all pods, one patch per pod, one timer for all delays.
"""

from __future__ import annotations

import logging
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any

import orjson

from minikube_py.api.errors import StatusError
from minikube_py.client.events import timestamp
from minikube_py.client.informer import Handler, Informer, InformerFactory, Selection
from minikube_py.client.rest import NODES, PODS, Object, RestClient, path_of, status_error
from minikube_py.client.store import Indexer
from minikube_py.client.timers import Timers
from minikube_py.client.transport import JSON, STRATEGIC_MERGE_PATCH, ApiResponse, ApiTransport
from minikube_py.client.unreadable import unreadable_metrics
from minikube_py.env import Clock, Rng
from minikube_py.fields.where import MAX_VALUES
from minikube_py.kubelet import pod_status
from minikube_py.kubelet.admission import Rejection, Room, amount_of, lacking
from minikube_py.kubelet.config import KubeletConfig, NodeSpec
from minikube_py.kubelet.nodes import Nodes, PlayedNode, Registered
from minikube_py.kubelet.pods import PlayedPod, PodView, Stage, project_pod
from minikube_py.kubelet.writes import Write, Writer

logger = logging.getLogger(__name__)

BY_NODE = "node"
INDEXERS: Mapping[str, Indexer[PodView]] = {BY_NODE: lambda pod: (pod.node,)}
BOUND = "spec.nodeName!="
NO_ADDRESS_RETRY_S = 1.0
REFUSED_RETRY_S = 1.0


Action = Callable[[PodView, PlayedPod], None]
Done = Callable[[ApiResponse], None]


def _cancel(played: PlayedPod) -> None:
    for timer in (played.timer, played.deadline):
        if timer is not None:
            timer.cancel()
    played.timer = played.deadline = None


class FakeKubelet:
    """Without a config, it plays all existing nodes; `register` creates more."""

    def __init__(
        self,
        transport: ApiTransport,
        clock: Clock,
        rng: Rng,
        config: KubeletConfig | None = None,
        on_registered: Registered = lambda *_: None,
        informers: InformerFactory | None = None,
    ) -> None:
        self.config = config if config is not None else KubeletConfig()
        self._client = RestClient(transport)
        self._clock = clock
        self._rng = rng
        self._timers = Timers(clock)
        self._writer = Writer(transport, self._timers, rng, self.config.writes_at_once)
        self._statuses = pod_status.PodStatuses()
        self._played: dict[str, PlayedPod] = {}
        self._to_start: list[tuple[str, PlayedPod]] = []
        self._deferred: dict[str, dict[str, None]] = {}
        """By node, the pods whose resize waits for room."""
        self._room = Room()
        self._factory = informers or InformerFactory(self._client, clock, rng)
        told = self._node_played, self._node_lost, on_registered
        self._nodes = Nodes(self._client, clock, rng, self.config, self._writer, *told, self._factory)
        self._pods: Informer[PodView] | None = None
        self.started = self.stopped = self.finished = 0
        self.rejected: Counter[str] = Counter()
        """By reason, pods that their node had no room for."""

    # --- life -------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Returns when the configured nodes are registered and all pods are known.

        Raises: StatusError, RequestError, Unavailable."""
        self._writer.start()
        await self._nodes.start()
        selection = Selection(field_selector=await self._field_selector())
        self._pods = self._factory.make(PODS, project_pod, selection, INDEXERS)
        self._pods.add_handler(
            Handler(on_add=self._seen, on_update=self._changed, on_delete=self._gone, on_batch=self._start_seen)
        )
        self._pods.start()
        await self._pods.wait_synced()

    async def stop(self) -> None:
        if self._pods is not None:
            await self._pods.stop()
        await self._nodes.stop()
        await self._writer.stop()
        await self._timers.close()

    async def register(self, specs: Iterable[NodeSpec]) -> None:
        """Makes more nodes and plays them. Raises: StatusError, RequestError, Unavailable."""
        await self._nodes.register(specs)

    def plays(self, name: str) -> bool:
        """Whether this process plays that node, silent or not."""
        return self._nodes.plays(name)

    @property
    def silent(self) -> frozenset[str]:
        """The nodes that are powered off."""
        return self._nodes.silent

    def power_off(self, name: str) -> None:
        """The node goes silent: no heartbeats, and its pods do not change. Idempotent.

        Raises: InvalidRequest where it is not played here."""
        self._nodes.power_off(name)

    def power_on(self, name: str) -> None:
        """The node is back, and catches up with what was requested for its pods meanwhile. Idempotent."""
        self._nodes.power_on(name)

    def power_on_all(self) -> None:
        """Wakes all silent nodes."""
        self._nodes.power_on_all()

    @property
    def failures(self) -> list[BaseException]:
        """Errors that ended informers; a kubelet with any must be restarted."""
        return [informer.failure for informer in self._informers() if informer.failure is not None]

    def _informers(self) -> list[Informer[Any]]:
        return [informer for informer in (self._nodes.informer, self._pods) if informer is not None]

    def metrics(self) -> dict[str, float]:
        return {
            **self._nodes.metrics(),
            **unreadable_metrics(informer.unreadable for informer in self._informers()),
            "kubelet_pods": len(self._played),
            "kubelet_started_pods_total": self.started,
            "kubelet_stopped_pods_total": self.stopped,
            "kubelet_finished_pods_total": self.finished,
            **{f'kubelet_admission_rejections_total{{reason="{why}"}}': n for why, n in self.rejected.items()},
            "kubelet_writes_queued": len(self._writer),
            "kubelet_writes_total": self._writer.sent,
            "kubelet_writes_refused_total": self._writer.refused,
            "kubelet_writes_retried_total": self._writer.retried,
        }

    async def _field_selector(self) -> str:
        """Bound pods: this process's share if the server can filter, else all."""
        share = self._share_selector()
        if share == BOUND:
            return BOUND
        try:
            await self._client.list_page(PODS, field_selector=share, limit=1)
        except StatusError as error:
            if error.code != 400:
                raise
            logger.warning("the server cannot select pods by a node's hash: this process watches all of them")
            return BOUND
        return share

    def _share_selector(self) -> str:
        if self.config.slot is not None:
            hashes = sorted({zlib.crc32(spec.name.encode()) for spec in self.config.nodes})
            if not 0 < len(hashes) <= MAX_VALUES:
                return BOUND
            return f"hash.spec.nodeName in ({','.join(map(str, hashes))})"
        if self.config.share.count == 1:
            return BOUND
        low, high = self.config.share.bounds
        return f"hash.spec.nodeName>={low},hash.spec.nodeName<{high}"

    # --- what the informer sees -------------------------------------------------------------------------------------

    def _seen(self, pod: PodView) -> None:
        node = self._nodes.played.get(pod.node)
        if node is not None:
            self._begin(pod, node)

    def _changed(self, old: PodView, new: PodView) -> None:
        played = self._played.get(new.key)
        if played is None or played.uid != new.uid:
            self._seen(new)
        elif new.deleting and not old.deleting:
            self._stop(new, played)
        elif new.terminal and not old.terminal:
            self._release(new, played)
            self._room_on(new.node)
        elif new.behind and not new.deleting and (not old.behind or new.containers != old.containers):
            self._adjust(new, played)
        elif old.ready and not new.ready and played.stage is Stage.RUNNING and not new.deleting:
            # It was marked as lost, but is running.
            self._resume(new, played)
        if new.deadline_s != old.deadline_s and played is not None and played.stage is Stage.RUNNING:
            self._arm_deadline(new, played)

    def _gone(self, pod: PodView) -> None:
        played = self._played.pop(pod.key, None)
        if played is not None:
            _cancel(played)
            self._room.leave(pod.uid)
            self._give_back(pod.node, played)
            self._room_on(pod.node)

    def _node_played(self, node: PlayedNode) -> None:
        if self._pods is not None:
            for pod in self._pods.store.by_index(BY_NODE, node.name):
                self._begin(pod, node)
            self._start_seen()

    def _node_lost(self, node: PlayedNode) -> None:
        """Leaves its pods unchanged: the controllers must detect that they no longer run."""
        if self._pods is None:
            return
        for pod in self._pods.store.by_index(BY_NODE, node.name):
            self._room.leave(pod.uid)
            played = self._played.pop(pod.key, None)
            if played is not None:
                _cancel(played)

    # --- a pod's life -----------------------------------------------------------------------------------------------

    def _begin(self, pod: PodView, node: PlayedNode) -> None:
        """Resumes a pod in any state, as after a kubelet restart."""
        if pod.key in self._played:
            return
        played = self._played[pod.key] = PlayedPod(pod.uid, Stage.RUNNING)
        if pod.ip and not pod.host_network and not pod.terminal:
            node.block.reserve(pod.ip)
            played.ip = pod.ip
        if pod.phase == "Running":
            self._room.take(pod.node, pod.uid, pod_status.asked_by(pod.containers, pod.granted))
        if pod.deleting:
            self._stop(pod, played)
        elif pod.terminal:
            played.stage = Stage.STOPPING
        elif pod.phase == "Running":
            self._resume(pod, played)
            if pod.behind:
                self._adjust(pod, played)
        else:
            played.stage = Stage.STARTING
            self._to_start.append((pod.key, played))

    def _start_seen(self) -> None:
        """Only now, after registering the addresses and resources of all running pods in the batch, assign new ones."""
        to_start, self._to_start = self._to_start, []
        for key, played in to_start:
            if played.stage is not Stage.STARTING:
                continue
            try:
                self._after(played, 0, key, self._admit)
                if played.stage is Stage.STARTING:
                    self._after(played, self.config.start_delay.draw_s(self._rng), key, self._start)
            except Exception:
                logger.exception("pod %s cannot be started", key)

    def _after(self, played: PlayedPod, delay_s: float, key: str, action: Action) -> None:
        """Calls `action(pod, played)` later, if that pod still exists; immediately without a delay. What an answer asks
        for replaces no deletion."""
        seen = self._pods.store.get(key) if self._pods is not None else None
        if seen is not None and seen.deleting and action not in (self._kill, self._delete):
            return
        if played.timer is not None:
            played.timer.cancel()
            played.timer = None

        def due() -> None:
            played.timer = None
            pod = self._pods.store.get(key) if self._pods is not None else None
            if pod is not None and pod.uid == played.uid and self._played.get(key) is played:
                action(pod, played)

        if delay_s > 0:
            played.timer = self._timers.call_later(delay_s, due)
        else:
            due()

    def _admit(self, pod: PodView, played: PlayedPod) -> None:
        """A pod that its node has no room for fails."""
        asked = pod_status.asked_by(pod.containers, pod.granted)
        node = self._nodes.informer.store.get(pod.node)
        # Capacity of a node being registered is unknown.
        why = self._room.refusal(pod.node, asked, node.allocatable) if node is not None and node.allocatable else None
        if why is None:
            self._room.take(pod.node, pod.uid, asked)
        else:
            logger.info("pod %s is rejected by node %s: %s", pod.key, pod.node, why.message)
            self._reject(pod, played, why)

    def _reject(self, pod: PodView, played: PlayedPod, why: Rejection) -> None:
        played.stage = Stage.STOPPING
        body = pod_status.rejected(pod.uid, timestamp(self._clock.wall_s()), why.reason, why.message)

        def done(response: ApiResponse) -> None:
            if response.status < 300:
                self.rejected[why.reason] += 1
            elif self._refused(pod, response):
                self._after(played, REFUSED_RETRY_S, pod.key, lambda pod, played: self._reject(pod, played, why))

        self._write_status(pod, body, done)

    def _start(self, pod: PodView, played: PlayedPod) -> None:
        node = self._nodes.played.get(pod.node)
        if node is None:
            return
        if not played.ip and not pod.host_network:
            ip = node.block.take()
            if ip is None:
                # As upstream, it waits for an address to be released.
                self._after(played, NO_ADDRESS_RETRY_S, pod.key, self._start)
                return
            played.ip = ip
        now = timestamp(self._clock.wall_s())
        self._began(pod, played, now)
        body = self._statuses.running(pod.uid, pod.containers, node.address, played.ip or node.address, now)
        self._write_status(pod, body, lambda response: self._started(pod, played, response))

    def _started(self, pod: PodView, played: PlayedPod, response: ApiResponse) -> None:
        if response.status < 300:
            self.started += 1
            if played.stage is Stage.STARTING:
                played.stage = Stage.RUNNING
                self._arm_finish(pod, played)
        elif self._refused(pod, response):
            self._after(played, REFUSED_RETRY_S, pod.key, self._start)

    def _resume(self, pod: PodView, played: PlayedPod) -> None:
        """It was running before. If its pods were marked unready during a node outage, report it ready."""
        if pod.ready:
            self._arm_finish(pod, played)
            return

        def done(response: ApiResponse) -> None:
            if response.status < 300:
                self._arm_finish(pod, played)
            elif self._refused(pod, response):
                self._after(played, REFUSED_RETRY_S, pod.key, self._resume)

        self._write_status(pod, pod_status.ready_again(pod.uid, timestamp(self._clock.wall_s())), done)

    # --- resizes and ephemeral containers ---------------------------------------------------------------------------

    def _began(self, pod: PodView, played: PlayedPod, now: str) -> dict[str, str]:
        ephemeral = [each.name for each in pod.containers if each.kind == "ephemeral"]
        if ephemeral:
            played.since = {name: (played.since or {}).get(name, now) for name in ephemeral}
        return played.since or {}

    def _adjust(self, pod: PodView, played: PlayedPod) -> None:
        """Applies the current spec if the node has room."""

        def weighed(response: ApiResponse) -> None:
            if response.status >= 300:
                return
            lacking = self._lacking(pod, orjson.loads(response.body))
            if lacking:
                self._deferred.setdefault(pod.node, {})[pod.key] = None
            body = pod_status.resizing(pod.uid, timestamp(self._clock.wall_s()), pod.generation, lacking)
            self._write_status(pod, body, (lambda answer: self._log_refusal(pod, answer)) if lacking else begun)

        def begun(response: ApiResponse) -> None:
            if response.status < 300:
                self._put_in_force(pod, played)
            else:
                self._log_refusal(pod, response)

        if pod.behind is pod_status.Behind.RESIZE:
            self._writer.put(Write("GET", path_of(NODES, "", pod.node), b"", JSON, weighed))
        else:
            self._put_in_force(pod, played)

    def _put_in_force(self, pod: PodView, played: PlayedPod) -> None:
        self._room.take(pod.node, pod.uid, pod_status.asked_by(pod.containers, pod.granted))
        now = timestamp(self._clock.wall_s())
        since = self._began(pod, played, now)
        body = self._statuses.adjusted(pod.uid, pod.containers, pod.started or now, since, pod.generation)
        self._write_status(pod, body, lambda response: self._log_refusal(pod, response))

    def _log_refusal(self, pod: PodView, response: ApiResponse) -> None:
        if response.status >= 300:
            self._refused(pod, response)

    def _lacking(self, pod: PodView, node: Object) -> str:
        """The resource that the node lacks for the resize, in upstream's words."""
        asked = pod_status.asked_by(pod.containers, pod.granted)
        most = (node.get("status") or {}).get("allocatable") or {}
        beside = self._room.used_beside(pod.node, pod.uid)
        for name in ("cpu", "memory"):
            used, capacity = beside.get(name, 0), amount_of(name, most) or 0
            if asked.get(name, 0) + used > capacity:
                return lacking(name, asked[name], used, capacity)
        return ""

    def _room_on(self, node: str) -> None:
        """Retries pending resizes after a pod is removed."""
        for key in self._deferred.pop(node, {}) if self._deferred else ():
            pod = self._pods.store.get(key) if self._pods is not None else None
            played = self._played.get(key)
            if pod is not None and played is not None and pod.behind and not pod.deleting:
                self._adjust(pod, played)

    def _arm_deadline(self, pod: PodView, played: PlayedPod) -> None:
        if played.deadline is not None:
            played.deadline.cancel()
            played.deadline = None
        if pod.deadline_s is not None:

            def due() -> None:
                now = self._pods.store.get(pod.key) if self._pods is not None else None
                here = now is not None and self._played.get(pod.key) is played and played.stage is Stage.RUNNING
                if now is not None and here and not now.deleting:
                    self._end(now, played, pod_status.KILLED, pod_status.LATE)

            played.deadline = self._timers.call_later(max(0.0, pod.deadline_s - self._ran_s(pod)), due)

    def _arm_finish(self, pod: PodView, played: PlayedPod) -> None:
        if pod.deadline_s is not None:
            self._arm_deadline(pod, played)
        run_s = pod.run_s
        if run_s is None and pod.never_restarts and (self.config.complete_after is not None or pod.of_job):
            run_s = (self.config.complete_after or self.config.job_run).draw_s(self._rng)
        if run_s is not None:
            self._after(played, run_s - self._ran_s(pod), pod.key, self._finish)

    def _ran_s(self, pod: PodView) -> float:
        """Its run time so far; 0 unless it was found running."""
        if not pod.started:
            return 0.0
        return max(0.0, self._clock.wall_s() - datetime.fromisoformat(pod.started).timestamp())

    def _finish(self, pod: PodView, played: PlayedPod) -> None:
        self._end(pod, played, pod.exit_code)

    def _end(self, pod: PodView, played: PlayedPod, exit_code: int, why: bytes = b"") -> None:
        played.stage = Stage.STOPPING
        _cancel(played)
        now = timestamp(self._clock.wall_s())
        body = self._statuses.ended(pod.uid, pod.containers, pod.started or now, now, exit_code, why)

        def done(response: ApiResponse) -> None:
            if response.status < 300:
                self.finished += 1
            elif self._refused(pod, response):
                self._after(played, REFUSED_RETRY_S, pod.key, lambda now, same: self._end(now, same, exit_code, why))

        self._write_status(pod, body, done)

    def _stop(self, pod: PodView, played: PlayedPod) -> None:
        played.stage = Stage.STOPPING
        delay_s = min(float(pod.grace_s), self.config.stop_delay.draw_s(self._rng))
        self._after(played, delay_s, pod.key, self._kill)

    def _kill(self, pod: PodView, played: PlayedPod) -> None:
        """If a finalizer holds it, report its end: the object remains."""
        if pod.terminal or not pod.held:
            self._delete(pod, played)
            return
        now = timestamp(self._clock.wall_s())
        body = self._statuses.ended(pod.uid, pod.containers, pod.started or now, now, pod_status.KILLED)

        def done(response: ApiResponse) -> None:
            if response.status >= 300 and self._refused(pod, response):
                self._after(played, REFUSED_RETRY_S, pod.key, self._kill)
            else:
                self._delete(pod, played)

        self._write_status(pod, body, done)

    def _delete(self, pod: PodView, played: PlayedPod) -> None:
        def done(response: ApiResponse) -> None:
            if response.status < 300:
                self.stopped += 1
            elif self._refused(pod, response):
                self._after(played, REFUSED_RETRY_S, pod.key, self._delete)

        path = path_of(PODS, pod.namespace, pod.name)
        self._writer.put(Write("DELETE", path, pod_status.deletion(pod.uid), JSON, done))

    def _release(self, pod: PodView, played: PlayedPod) -> None:
        """A finished pod releases resources, address and timer, but for the timer of its deletion."""
        self._room.leave(pod.uid)
        played.stage = Stage.STOPPING
        if not pod.deleting:
            _cancel(played)
        self._give_back(pod.node, played)

    def _give_back(self, node_name: str, played: PlayedPod) -> None:
        node = self._nodes.played.get(node_name)
        if played.ip and node is not None:
            node.block.give_back(played.ip)
        played.ip = ""

    def _write_status(self, pod: PodView, body: bytes, done: Done) -> None:
        path = path_of(PODS, pod.namespace, pod.name, "status")
        self._writer.put(Write("PATCH", path, body, STRATEGIC_MERGE_PATCH, done))

    def _refused(self, pod: PodView, response: ApiResponse) -> bool:
        """True to retry: not if the pod is gone or replaced."""
        if response.status in (404, 409, 422):
            return False
        error = status_error(response.status, response.body)
        logger.warning("pod %s: %s", pod.key, error)
        return True

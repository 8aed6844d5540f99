"""Node lifecycle: silent nodes become Unknown and tainted, and so lose their pods; nodes that return recover.

Source: k8s.io/kubernetes/pkg/controller/nodelifecycle/node_lifecycle_controller.go.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Collection, Iterable, Sequence
from typing import Final

import orjson

from minikube_py.api.errors import StatusError
from minikube_py.client.events import NORMAL, WARNING, timestamp
from minikube_py.client.informer import Handler, Informer
from minikube_py.client.rest import LEASES, NODES, PODS, Object, path_of
from minikube_py.client.timers import Timer, has_passed
from minikube_py.client.transport import MERGE_PATCH, STRATEGIC_MERGE_PATCH
from minikube_py.controllers.base import BY_NODE, ControllerContext, QueueWorkers, involved
from minikube_py.controllers.node_health import Health, grace_s, observe, silent_conditions
from minikube_py.controllers.node_taints import (
    UNHEALTHY,
    TaintId,
    changed_taints,
    no_schedule_changes,
    taint_ids,
    unhealthy_changes,
)
from minikube_py.controllers.ranking import parse_time_s
from minikube_py.controllers.views import LeaseView, NodeView, PodView, project_node
from minikube_py.controllers.zones import ZoneQueue, ZoneState, eviction_rate_per_s, zone_state
from minikube_py.env import ended
from minikube_py.errors import MinikubeError

logger = logging.getLogger(__name__)

LEASE_NAMESPACE: Final = "kube-node-lease"
EXCLUDED: Final = "node.kubernetes.io/exclude-disruption"
BETA_LABELS: Final = (
    ("kubernetes.io/os", "beta.kubernetes.io/os"),
    ("kubernetes.io/arch", "beta.kubernetes.io/arch"),
)
WRITES_AT_ONCE: Final = 16
WRITE_ATTEMPTS: Final = 5
SLICE_NODES: Final = 1000
"""Nodes checked per turn of the event loop."""
NODES_PER_PERIOD: Final = 20_000
"""Above this many nodes, passes run proportionally less often: their total cost stays constant."""
DEAF_S: Final = 1.0
"""A pass that starts this late means that the process was suspended."""
NODE_EVENTS_PER_PASS: Final = 100
"""Limits events about added and removed nodes, so that a thousand nodes cannot drown out other events."""


class NodeLifecycleController:
    name = "node-lifecycle-controller"

    def __init__(self, context: ControllerContext) -> None:
        self._client = context.client
        self._clock = context.clock
        self._config = context.config
        self._timers = context.timers
        self._recorder = context.recorder("node-controller")
        self._nodes: Informer[NodeView] = context.informers.of(NODES)
        self._leases: Informer[LeaseView] = context.informers.of(LEASES)
        self._pods: Informer[PodView] = context.informers.of(PODS)
        self._workers = QueueWorkers(context, "node_lifecycle_controller", self.sync_node, WRITES_AT_ONCE)
        self._evictions = QueueWorkers(context, "node_lifecycle_noexecute", self.taint_silent_node)
        self._health: dict[str, Health] = {}
        self._zones: dict[str, ZoneQueue] = {}
        self._zone_timers: dict[str, Timer] = {}
        self._pods_to_mark: dict[str, None] = {}
        self._node_events: deque[tuple[NodeView, str, str]] = deque()
        self._task: asyncio.Task[None] | None = None
        self.tainted = 0
        self._nodes.add_handler(
            Handler(
                on_add=self._node_added, on_update=lambda old, new: self._node_changed(new), on_delete=self._node_gone
            )
        )

    def start(self) -> None:
        self._workers.start()
        self._evictions.start()
        self._task = asyncio.get_running_loop().create_task(self._run(), name=self.name)

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await ended(self._task)
        for timer in self._zone_timers.values():
            timer.cancel()
        await self._workers.stop()
        await self._evictions.stop()

    def metrics(self) -> dict[str, float]:
        return {**self._workers.metrics(), "node_collector_evictions_total": self.tainted}

    # --- taints and labels that follow the node's own state ---------------------------------------------------------

    def _node_added(self, node: NodeView) -> None:
        self._node_events.append((node, "RegisteredNode", f"Registered Node {node.name} in Controller"))
        self._node_changed(node)

    def _node_changed(self, node: NodeView) -> None:
        add, remove = no_schedule_changes(node)
        if add or remove or _missing_labels(node):
            self._workers.queue.add(node.name)

    def _node_gone(self, node: NodeView) -> None:
        self._node_events.append((node, "RemovingNode", f"Removing Node {node.name} from Controller"))
        self._health.pop(node.name, None)
        self._pods_to_mark.pop(node.name, None)
        for zone in self._zones.values():
            zone.waiting.pop(node.name, None)

    async def sync_node(self, name: str) -> None:
        """NoSchedule taints by condition and spec.unschedulable; the old names of the os and arch labels."""
        node = self._nodes.store.get(name)
        if node is None:
            return
        add, remove = no_schedule_changes(node)
        await self._change_taints(node, add, remove)
        if labels := _missing_labels(node):
            patch = {"metadata": {"uid": node.uid, "labels": labels}}
            await self._patch(path_of(NODES, "", name), patch, MERGE_PATCH)

    async def _change_taints(self, node: NodeView, add: Collection[TaintId], remove: Collection[TaintId]) -> bool:
        """True if the node now has the taints, False if it is gone. Raises StatusError 409 if it keeps changing."""
        for attempt in range(WRITE_ATTEMPTS):
            taints = changed_taints(node.taints, add, remove, timestamp(self._clock.wall_s()))
            if taints is None:
                return True
            patch = {
                "metadata": {"uid": node.uid, "resourceVersion": node.resource_version},
                "spec": {"taints": taints or None},
            }
            try:
                return await self._patch(path_of(NODES, "", node.name), patch, MERGE_PATCH)
            except StatusError as error:
                if error.code != 409 or attempt == WRITE_ATTEMPTS - 1:
                    raise
            fresh = project_node(await self._client.get(NODES, node.name))
            if fresh.uid != node.uid:
                return False
            node = fresh
        return False

    async def _patch(self, path: str, patch: Object, content_type: str) -> bool:
        try:
            await self._client.raw("PATCH", path, None, orjson.dumps(patch), content_type)
        except StatusError as error:
            if error.code != 404:
                raise
            return False
        return True

    # --- the monitor ------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            try:
                await self.monitor()
            except MinikubeError as error:
                logger.warning("node monitor: %s", error or type(error).__name__)
            period_s = self._config.node_monitor_period_s * max(1.0, len(self._nodes.store) / NODES_PER_PERIOD)
            asleep_s = self._clock.monotonic_s()
            await self._clock.sleep(period_s)
            self.forgive(self._clock.monotonic_s() - asleep_s - period_s)

    def forgive(self, late_s: float) -> None:
        """Heartbeats were not observed during a suspension: do not count it against the nodes."""
        if late_s > DEAF_S:
            logger.warning("node monitor: nothing was heard for %.0f s, by no node's fault", late_s)
            for health in self._health.values():
                health.heard_s += late_s

    async def _in_slices(self, nodes: Sequence[NodeView]) -> AsyncIterator[Sequence[NodeView]]:
        for first in range(0, len(nodes), SLICE_NODES):
            part = nodes[first : first + SLICE_NODES]
            yield part
            if len(part) == SLICE_NODES:
                await asyncio.sleep(0)

    async def monitor(self) -> None:
        """One pass over all nodes. A healthy node costs a few dictionary lookups."""
        self._send_node_events()
        now_s, wall_s = self._clock.monotonic_s(), self._clock.wall_s()
        silent: list[NodeView] = []
        ready: dict[str, str] = {}
        nodes = list(self._nodes.store)
        async for part in self._in_slices(nodes):
            silent += self._look_at(part, ready, now_s, wall_s)
        await self._mark_silent(silent, ready)
        await self._update_zones(nodes, ready)
        unwell: list[NodeView] = []
        async for part in self._in_slices(nodes):
            unwell += [node for node in part if node.taints or ready[node.name] != "True"]
        await self._follow_readiness(unwell, ready)
        await self._mark_pods()

    def _look_at(
        self, nodes: Sequence[NodeView], ready: dict[str, str], now_s: float, wall_s: float
    ) -> list[NodeView]:
        """Returns nodes silent for too long; stores each node's reported readiness in `ready`."""
        silent: list[NodeView] = []
        lease_of, known = self._leases.store.get, self._health
        startup_s, usual_s = self._config.node_startup_grace_s, self._config.node_monitor_grace_s
        for node in nodes:
            name = node.name
            ready[name] = node.ready
            lease, health = lease_of(f"{LEASE_NAMESPACE}/{name}"), known.get(name)
            if health is None or health.lease is not lease or health.node is not node:
                age_s = 0.0 if node.has_ready else wall_s - (parse_time_s(node.created) or wall_s)
                health = known[name] = observe(health, node, lease, now_s, age_s)
                health.grace_s = grace_s(node, lease, startup_s, usual_s)
            if has_passed(health.grace_s, health.heard_s, now_s):
                silent.append(node)
        return silent

    def _send_node_events(self) -> None:
        for _ in range(min(NODE_EVENTS_PER_PASS, len(self._node_events))):
            node, reason, message = self._node_events.popleft()
            self._recorder.event(involved("Node", node), NORMAL, reason, f"Node {node.name} event: {message}")

    async def _mark_silent(self, silent: Sequence[NodeView], ready: dict[str, str]) -> None:
        async def one(node: NodeView) -> None:
            conditions = silent_conditions(node, timestamp(self._clock.wall_s()))
            if not conditions:
                return
            metadata = {"uid": node.uid, "resourceVersion": node.resource_version}
            patch = {"metadata": metadata, "status": {"conditions": conditions}}
            path = path_of(NODES, "", node.name, "status")
            try:
                written = await self._patch(path, patch, STRATEGIC_MERGE_PATCH)
            except MinikubeError as error:
                # It changed meanwhile (409) or cannot be written now: the next pass retries.
                logger.info("node %s: %s", node.name, error or type(error).__name__)
                return
            if written:
                if node.ready == "True":
                    self._not_ready_any_more(node)
                ready[node.name] = "Unknown"

        left = iter(silent)

        async def worker() -> None:
            for position, node in enumerate(left, start=1):
                await one(node)
                if position % SLICE_NODES == 0:
                    await asyncio.sleep(0)

        await asyncio.gather(*(worker() for _ in range(min(WRITES_AT_ONCE, len(silent)))))

    def _not_ready_any_more(self, node: NodeView) -> None:
        message = f"Node {node.name} status is now: NodeNotReady"
        logger.info("%s", message)
        self._recorder.event(involved("Node", node), NORMAL, "NodeNotReady", message)
        self._pods_to_mark[node.name] = None

    async def _follow_readiness(self, nodes: Iterable[NodeView], ready: dict[str, str]) -> None:
        """NoExecute taints: swapped or removed at once, added at the rate of the node's zone."""
        for node in nodes:
            status = ready[node.name]
            zone = self._zones[node.zone]
            present = taint_ids(node.taints) & UNHEALTHY
            add, remove = unhealthy_changes(status)
            if not status:
                zone.waiting.pop(node.name, None)
            if present & remove:
                try:
                    await self._change_taints(node, add if status != "True" else (), remove)
                except MinikubeError as error:
                    logger.info("node %s: %s", node.name, error or type(error).__name__)
            elif add and not add <= present:
                zone.waiting.setdefault(node.name)
        for name, zone in self._zones.items():
            for node_name in [n for n in zone.waiting if ready.get(n, "True") == "True"]:
                del zone.waiting[node_name]
            self._pump(name)

    def _pump(self, name: str) -> None:
        """Releases the zone's nodes to the workers as its rate allows, and reschedules itself."""
        zone = self._zones.get(name)
        if zone is None:
            return
        now_s = self._clock.monotonic_s()
        while (node := zone.take(now_s)) is not None:
            self._evictions.queue.add(node)
        timer = self._zone_timers.pop(name, None)
        if timer is not None:
            timer.cancel()
        delay_s = zone.next_s(now_s)
        if delay_s is not None:
            self._zone_timers[name] = self._timers.call_later(delay_s, lambda: self._pump(name))

    async def taint_silent_node(self, name: str) -> None:
        node = self._nodes.store.get(name)
        if node is None or node.ready in ("True", ""):
            return
        add, remove = unhealthy_changes(node.ready)
        if await self._change_taints(node, add, remove):
            self.tainted += 1

    # --- zones ------------------------------------------------------------------------------------------------------

    async def _update_zones(self, nodes: Sequence[NodeView], ready: dict[str, str]) -> None:
        counts: dict[str, list[int]] = {}
        async for part in self._in_slices(nodes):
            for node in part:
                count = counts.get(node.zone)
                if count is None:
                    count = counts[node.zone] = [0, 0]
                    if node.zone not in self._zones:
                        rate = self._config.node_eviction_rate_per_s
                        self._zones[node.zone] = ZoneQueue(rate, at_s=self._clock.monotonic_s())
                if EXCLUDED not in node.labels:
                    count[ready[node.name] != "True"] += 1
        for name in [name for name, zone in self._zones.items() if name not in counts and not zone.waiting]:
            del self._zones[name]
        sizes = {name: sum(count) for name, count in counts.items() if any(count)}
        share = self._config.unhealthy_zone_share
        states = {name: zone_state(up, down, share) for name, (up, down) in counts.items() if name in sizes}
        self._change_states(nodes, states, sizes, ready)

    def _change_states(
        self,
        nodes: Iterable[NodeView],
        states: dict[str, ZoneState],
        sizes: dict[str, int],
        ready: dict[str, str],
    ) -> None:
        full = ZoneState.FULL_DISRUPTION
        all_full = all(state is full for state in states.values())
        all_were_full = all(self._zones[name].state is full for name in states)
        now_s = self._clock.monotonic_s()
        if not states or (all_full and all_were_full):
            return
        if all_full:
            logger.warning("no node is ready: evictions stop until one is")
            for node in nodes:
                # No status: its NoExecute taints are removed in this pass.
                ready[node.name] = ""
            for name in states:
                zone = self._zones[name]
                zone.waiting.clear()
                zone.set_rate(0.0, now_s)
                zone.state = full
            return
        if all_were_full:
            # During a full outage silence meant nothing: each node gets its whole grace period again.
            logger.warning("some nodes are ready again: evictions are possible again")
            for health in self._health.values():
                health.heard_s = now_s
        for name, state in states.items():
            zone = self._zones[name]
            if zone.state is not state or all_were_full:
                config = self._config
                rate = eviction_rate_per_s(
                    state,
                    sizes[name],
                    config.node_eviction_rate_per_s,
                    config.secondary_node_eviction_rate_per_s,
                    config.large_cluster_size,
                )
                zone.set_rate(rate, now_s)
                zone.state = state

    # --- pods of silent nodes ---------------------------------------------------------------------------------------

    async def _mark_pods(self) -> None:
        """Pods on an unready node become unready too, so that services do not route to them."""
        for name in list(self._pods_to_mark):
            pods = [pod for pod in self._pods.store.by_index(BY_NODE, name) if pod.ready]
            try:
                await asyncio.gather(*(self._mark_pod(pod) for pod in pods))
            except MinikubeError as error:
                logger.info("pods of node %s: %s", name, error or type(error).__name__)
                continue
            self._pods_to_mark.pop(name, None)

    async def _mark_pod(self, pod: PodView) -> None:
        now = timestamp(self._clock.wall_s())
        condition = {"type": "Ready", "status": "False", "lastTransitionTime": now}
        patch = {"metadata": {"uid": pod.uid}, "status": {"conditions": [condition]}}
        path = path_of(PODS, pod.namespace, pod.name, "status")
        try:
            if not await self._patch(path, patch, STRATEGIC_MERGE_PATCH):
                return
        except StatusError as error:
            if error.code != 409:
                raise
            return
        self._recorder.event(involved("Pod", pod), WARNING, "NodeNotReady", "Node is not ready")


def _missing_labels(node: NodeView) -> dict[str, str]:
    return {
        old: node.labels[name]
        for name, old in BETA_LABELS
        if name in node.labels and node.labels.get(old) != node.labels[name]
    }

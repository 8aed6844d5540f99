"""DaemonSet: one pod on each eligible node.

`daemons` plans the pods of each node; this module carries the plan out. Source:
k8s.io/kubernetes/pkg/controller/daemon.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

import orjson

from minikube_py.api.errors import StatusError
from minikube_py.client.informer import Handler, Informer
from minikube_py.client.rest import CONTROLLER_REVISIONS, DAEMON_SETS, NODES, PODS, Object, path_of
from minikube_py.client.transport import MERGE_PATCH
from minikube_py.controllers import daemons
from minikube_py.controllers.base import (
    BY_CONTROLLER,
    ControllerContext,
    QueueController,
    QueueWorkers,
    orphans_for,
)
from minikube_py.controllers.expectations import Expectations
from minikube_py.controllers.ownership import Claims, OwnedPods, Owner
from minikube_py.controllers.pod_control import PodControl, pod_from_template
from minikube_py.controllers.revisions import POD_LABEL, History, in_order
from minikube_py.controllers.views import NodeView, PodView, RevisionView, WorkloadView

_OWNER: Final = Owner(DAEMON_SETS, "DaemonSet")
BURST: Final = 250
TRIED_AT_ONCE_MAX: Final = 5_000
"""Node terms and taints in one step."""
FIRST_WAIT_S: Final = 1.0
LONGEST_WAIT_S: Final = 900.0
_SLACK_S: Final = 1.0


class DaemonSetController(QueueController):
    name = "daemonset-controller"

    def __init__(self, context: ControllerContext) -> None:
        self._client = context.client
        self._clock = context.clock
        self._recorder = context.recorder("daemonset-controller")
        self._sets: Informer[WorkloadView] = context.informers.of(DAEMON_SETS)
        self._pods: Informer[PodView] = context.informers.of(PODS)
        self._nodes: Informer[NodeView] = context.informers.of(NODES)
        self._revisions: Informer[RevisionView] = context.informers.of(CONTROLLER_REVISIONS)
        self._pod_claims: Claims[PodView] = Claims(context.client, _OWNER, PODS)
        self._revision_claims: Claims[RevisionView] = Claims(context.client, _OWNER, CONTROLLER_REVISIONS)
        self._history = History(context.client, _OWNER)
        self._workers = QueueWorkers(context, "daemonset", self.sync)
        self._queue = self._workers.queue
        self._expectations = Expectations(self._queue.add_after, context.clock, context.config.expectations_timeout_s)
        self._control = PodControl(context.client, _OWNER, self._recorder, self._expectations)
        self._waits: dict[tuple[str, str], tuple[float, float]] = {}
        """(uid of the set, node) to (backoff in seconds, its start) of a pod that failed there."""
        self._eligible: dict[str, daemons.Eligible] = {}
        OwnedPods(_OWNER, self._sets, self._pods, self._queue, self._expectations, _SLACK_S)
        self._sets.add_handler(Handler(on_delete=self._set_deleted))
        self._nodes.add_handler(
            Handler(on_add=self._node_changed, on_update=self._node_updated, on_delete=self._node_changed)
        )

    # --- event handlers ---------------------------------------------------------------------------------------------

    def _set_deleted(self, view: WorkloadView) -> None:
        self._waits = {key: wait for key, wait in self._waits.items() if key[0] != view.uid}

    def _node_changed(self, node: NodeView) -> None:
        for view in self._sets.store:
            self._queue.add(view.key)

    def _node_updated(self, old: NodeView, new: NodeView) -> None:
        if old.labels != new.labels or old.taints != new.taints:
            self._node_changed(new)

    # --- one DaemonSet ----------------------------------------------------------------------------------------------

    async def sync(self, key: str) -> None:
        owner = self._sets.store.get(key)
        if owner is None:
            self._expectations.forget(key)
            self._eligible.pop(key, None)
            return
        if owner.deleting:
            return
        eligible = await self._judged(owner)
        revisions = in_order(await self._own_revisions(owner))
        labels = (owner.template.get("metadata") or {}).get("labels") or {}
        current, collisions = await self._history.update_revision(owner, revisions, labels, POD_LABEL)
        found = current.labels.get(POD_LABEL) or current.name
        seen = self._expectations.satisfied(key)
        if seen:
            pods = await self._own_pods(owner)
            await self._manage(owner, eligible, pods, found)
            if self._expectations.satisfied(key) and (owner.spec.get("updateStrategy") or {}).get("type") != "OnDelete":
                # The changes above are observed by now and must not be repeated.
                pods = await self._own_pods(owner)
                nodes = {node.name: node for node in self._nodes.store}
                plan = daemons.roll(owner, eligible, nodes, _by_node(pods), found, self._clock.wall_s())
                await self._carry_out(owner, plan, found)
            old = [each for each in revisions if each.name != current.name]
            await self._truncate(owner, old, pods)
        await self._write_status(owner, eligible, await self._own_pods(owner), found, collisions, seen)

    async def _judged(self, owner: WorkloadView) -> daemons.Eligible:
        """With a verdict on each node; others run in between if the template has many terms."""
        eligible = self._eligible.get(owner.key)
        if eligible is None or eligible.template != owner.template:
            eligible = self._eligible[owner.key] = daemons.Eligible(owner.template)
        nodes = {node.name: node for node in self._nodes.store}
        eligible.forget_others(nodes)
        for node in nodes.values():
            eligible(node)
            if eligible.tried > TRIED_AT_ONCE_MAX:
                eligible.tried = 0
                await asyncio.sleep(0)
        return eligible

    async def _own_revisions(self, owner: WorkloadView) -> list[RevisionView]:
        store = self._revisions.store
        own = store.by_index(BY_CONTROLLER, owner.uid)
        return await self._revision_claims.claim(owner, own + orphans_for(store, owner))

    async def _own_pods(self, owner: WorkloadView) -> list[PodView]:
        store = self._pods.store
        return await self._pod_claims.claim(owner, store.by_index(BY_CONTROLLER, owner.uid) + orphans_for(store, owner))

    async def _manage(
        self, owner: WorkloadView, eligible: daemons.Eligible, pods: Sequence[PodView], revision: str
    ) -> None:
        now_s = self._clock.monotonic_s()

        def held(node: str) -> bool:
            wait_s, since_s = self._waits.get((owner.uid, node), (0.0, 0.0))
            if now_s - since_s < wait_s:
                self._queue.add_after(owner.key, wait_s)
                return True
            # After twice the backoff without a failure, start over with the first backoff.
            grown = min(wait_s * 2, LONGEST_WAIT_S) if wait_s and now_s - since_s < 2 * LONGEST_WAIT_S else FIRST_WAIT_S
            self._waits[owner.uid, node] = (grown, now_s)
            return False

        nodes = list(self._nodes.store)
        plan = daemons.manage(owner, eligible, nodes, _by_node(pods), revision, self._clock.wall_s(), held)
        for kind, reason, message in plan.said:
            self._recorder.event(_OWNER.involved(owner), kind, reason, message)
        await self._carry_out(owner, plan, revision)

    async def _carry_out(self, owner: WorkloadView, plan: daemons.Plan, revision: str) -> None:
        template = daemons.daemon_template(owner, revision)
        bodies = []
        for node in plan.nodes[:BURST]:
            pod = pod_from_template(owner, _OWNER.reference(owner), template)
            bodies.append(orjson.dumps({**pod, "spec": daemons.pinned(pod["spec"], node)}))
        if bodies or plan.going:
            await self._control.change(owner, bodies, plan.going[:BURST])

    async def _truncate(self, owner: WorkloadView, old: Sequence[RevisionView], pods: Sequence[PodView]) -> None:
        live = {pod.labels.get(POD_LABEL, "") for pod in pods}
        used = {each.name for each in old if each.labels.get(POD_LABEL) in live}
        limit = owner.spec.get("revisionHistoryLimit")
        kept = 10 if limit is None else int(limit)
        # Revisions in use count towards the limit and are kept.
        await self._history.truncate(owner, old, used, max(kept - len(used), 0))

    async def _write_status(
        self,
        owner: WorkloadView,
        eligible: daemons.Eligible,
        pods: Sequence[PodView],
        revision: str,
        collisions: int,
        seen: bool,
    ) -> None:
        status: Object = dict(
            daemons.status_of(owner, eligible, self._nodes.store, _by_node(pods), revision, self._clock.wall_s())
        )
        before = owner.status
        same = all((before.get(name) or 0) == count for name, count in status.items())
        if not same or (before.get("observedGeneration") or 0) < owner.generation:
            if seen:
                status["observedGeneration"] = owner.generation
            if collisions:
                status["collisionCount"] = collisions
            path = path_of(DAEMON_SETS, owner.namespace, owner.name, "status")
            patch = orjson.dumps({"metadata": {"uid": owner.uid}, "status": status})
            try:
                await self._client.raw("PATCH", path, None, patch, MERGE_PATCH)
            except StatusError as error:
                if error.code != 404:
                    raise
        if owner.min_ready_s > 0 and status["numberReady"] != status["numberAvailable"]:
            self._queue.add_after(owner.key, owner.min_ready_s)


def _by_node(pods: Sequence[PodView]) -> dict[str, list[PodView]]:
    found: dict[str, list[PodView]] = {}
    for pod in pods:
        # Finished pods that are being deleted are left to the kubelet.
        if pod.target and not (pod.terminal and pod.deleting):
            found.setdefault(pod.target, []).append(pod)
    return found

"""Bugs planted in informers, controllers, scheduler, kubelets and API server: for histories of a control plane.

The judges are the same for every bug, and know none of them.
"""

# ruff: noqa: E501 - lines of the product, as they stand
from __future__ import annotations

from swarm_mutants import SwarmMutant

MUTANTS: tuple[SwarmMutant, ...] = (
    # --- informers and work queues -----------------------------------------------------------------------------------
    SwarmMutant(
        "informer: objects deleted during a gap are kept", "client/informer.py",
        "enumerate([key for key in known if key not in found], start=1)",
        "enumerate([key for key in known if key not in known], start=1)",
        "a list after 410 is merged into the copy, and deletions of the meantime are missed",
    ),
    SwarmMutant(
        "informer: 410 is handled like any other error", "client/informer.py",
        "        if error.code == 410 or (error.code == 504",
        "        if (error.code == 504",
        "the watch is opened again from where it was, forever",
    ),
    SwarmMutant(
        "informer: a watch resumes at the revision of the list", "client/informer.py",
        "        self.resource_version = version\n\n    def _raise_error",
        "        pass\n\n    def _raise_error",
        "after each watch the events since the list come again, older ones over newer ones",
    ),
    SwarmMutant(
        "queue: a key added while it is processed is lost", "client/workqueue.py",
        "        if item in self._dirty:\n            self._enqueue(item)",
        "        self._dirty.discard(item)\n        if item in self._dirty:\n            self._enqueue(item)",
        "a change that arrives during a sync causes no other",
    ),
    SwarmMutant(
        "queue: a failed key is not retried", "client/workqueue.py",
        "            failed(item, error)\n            queue.add_rate_limited(item)",
        "            failed(item, error)\n            queue.forget(item)",
        "an answer that was lost ends the work on an object",
    ),
    # --- controllers --------------------------------------------------------------------------------------------------
    SwarmMutant(
        "controllers: deletions are not expected", "controllers/ownership.py",
        "        if (owner := self._owner(pod)) is not None:\n            self._expectations.deletion_observed(owner.key, pod.uid)\n            self._queue.add(owner.key)",
        "        if (owner := self._owner(pod)) is not None:\n            self._expectations.deletion_observed(owner.key, pod.uid)",
        "a pod that somebody else deletes is not replaced",
    ),
    SwarmMutant(
        "controllers: a status is written without its generation", "controllers/replication.py",
        "        if same and current.get(\"observedGeneration\", 0) == controller.generation:",
        "        if same:",
        "a change of the spec that changes no count is never acknowledged",
    ),
    SwarmMutant(
        "garbage collector: the deletion of an owner is not noticed", "controllers/garbage_collector.py",
        "        for dependent in self._graph.dependents(view.uid):\n            self._delete_queue.add(dependent)\n        if view.owners:",
        "        if view.owners:",
        "what an object owned stays when it goes in the background",
    ),
    SwarmMutant(
        "garbage collector: owners are not checked at the start", "controllers/garbage_collector.py",
        "            if any(not self._is_there(owner, view) for owner in view.owners):\n                self._delete_queue.add(item)\n        if view.deleting:",
        "        if view.deleting:",
        "an owner that went while no controllers ran leaves its dependents forever",
    ),
    SwarmMutant(
        "garbage collector: a foreground deletion is not finished", "controllers/garbage_collector.py",
        "            await self._remove_finalizer(item, FOREGROUND)\n            return",
        "            return",
        "the owner waits for dependents that are gone",
    ),
    SwarmMutant(
        "node lifecycle: a taint outlives its cause", "controllers/node_taints.py",
        "    return set(), set(UNHEALTHY)",
        "    return set(), {(NOT_READY, NO_EXECUTE)}",
        "a node that was unreachable and is back keeps that taint",
    ),
    SwarmMutant(
        "quotas: deleted objects stay counted", "controllers/resource_quotas.py",
        "on_delete=lambda view: self._replenish(ref, view.namespace)",
        "on_delete=lambda view: None",
        "used only grows, until the next full look",
    ),
    SwarmMutant(
        "budgets: a terminating pod counts as healthy", "controllers/disruption.py",
        "pod.ready and not pod.deleting and pod.name not in disrupted",
        "pod.ready and pod.name not in disrupted",
        "more may be disrupted than there are",
    ),
    SwarmMutant(
        "controllers: creations are not expected", "controllers/pod_control.py",
        "self._expectations.expect(owner.key, len(bodies), (pod.uid for pod in pods))",
        "self._expectations.expect(owner.key, 0, (pod.uid for pod in pods))",
        "a sync before the watch shows the new pods creates as many again",
    ),
    SwarmMutant(
        "jobs: creations are not expected", "controllers/pod_control.py",
        "        self._expectations.expect(owner.key, len(bodies))\n        return",
        "        return",
        "the same for a Job, which then runs more than its parallelism",
    ),
    SwarmMutant(
        "deployments: the surge is added for each set", "controllers/rollout.py",
        "    return deployment.replicas + fenceposts(deployment)[0]",
        "    return deployment.replicas + 2 * fenceposts(deployment)[0]",
        "a rollout takes more room than it was given",
    ),
    SwarmMutant(
        "stateful sets: the next pod does not wait until one is ready", "controllers/stateful_set.py",
        "        if ordered and (pod.deleting or not _ready(pod, owner, now_s)):",
        "        if ordered and pod.deleting:",
        "pods are created in order, but all at once",
    ),
    SwarmMutant(
        "stateful sets: orphans are not adopted", "controllers/stateful_set.py",
        "        candidates = store.by_index(BY_CONTROLLER, owner.uid) + orphans_for(store, owner)\n        return await self._pod",
        "        candidates = store.by_index(BY_CONTROLLER, owner.uid)\n        return await self._pod",
        "pods of a set that was deleted without them hold the names of the next one's",
    ),
    SwarmMutant(
        "daemon sets: the removal of a taint is not noticed", "controllers/daemon_set.py",
        "        if old.labels != new.labels or old.taints != new.taints:",
        "        if old.labels != new.labels:",
        "a node that is free again gets no pod",
    ),
    SwarmMutant(
        "cron jobs: concurrencyPolicy Forbid is ignored", "controllers/cron_jobs.py",
        '        if cron.spec.get("concurrencyPolicy") == "Forbid" and look.active:',
        '        if cron.spec.get("concurrencyPolicy") == "Forbid" and known:',
        "a Job is started beside the last one",
    ),
    SwarmMutant(
        "taint eviction: a cancelled eviction is carried out", "controllers/taint_eviction.py",
        "            timer.cancel()\n            if not gone:",
        "            if not gone:",
        "the taint goes before the toleration ends, and the pod is deleted for it",
    ),
    SwarmMutant(
        "budgets: an eviction does not check them", "apiserver/evictions.py",
        "        elif budgets:\n            name, now",
        "        elif budgets[1:]:\n            name, now",
        "more pods go than may",
    ),
    SwarmMutant(
        "budgets: an eviction is not counted", "api/budgets.py",
        '"disruptionsAllowed": allowed - 1}',
        '"disruptionsAllowed": allowed}',
        "of several evictions at once each sees the same count",
    ),
    SwarmMutant(
        "volumes: a claim takes the volume of another", "api/volume_binding.py",
        '        if spec.get("claimRef") is not None and not bound:\n            continue\n',
        '        if spec.get("claimRef") is not None and class_of(volume) == class_of(claim):\n            return volume\n',
        "two claims hold one volume",
    ),
    SwarmMutant(
        "autoscaler: the maximum is reported, not enforced", "controllers/horizontal_autoscaler.py",
        '            desired, why = most, "Current',
        '            why = "Current',
        "what was scaled by hand stays above it",
    ),
    # --- scheduler ----------------------------------------------------------------------------------------------------
    SwarmMutant(
        "scheduler cache: an assumed pod is not counted", "scheduler/cache.py",
        "        self.columns.add_pod(pod, node_name)\n        self.assumed += 1",
        "        self.assumed += 1",
        "the next pods are placed as if it were not there",
    ),
    SwarmMutant(
        "scheduler cache: a pod whose bind failed stays counted", "scheduler/cache.py",
        "        self.columns.remove_pod(counted.pod, counted.node_name)\n        return True",
        "        return True",
        "a node fills up with pods that it never got",
    ),
    SwarmMutant(
        "scheduler cache: a deleted pod stays counted", "scheduler/cache.py",
        "        self.columns.remove_pod(counted.pod, counted.node_name)\n        return counted.node_name",
        "        return counted.node_name",
        "a node fills up with pods of the past",
    ),
    SwarmMutant(
        "scheduler: a pod that fits nowhere is forgotten", "scheduler/queue.py",
        "        self._waiting[queued.pod.key] = queued",
        "        pass",
        "nothing brings it back when there is room",
    ),
    SwarmMutant(
        "scheduler: pods of equal priority preempt each other", "scheduler/plugins/default_preemption.py",
        "    return [other for other in node.pods.values() if other.priority < pod.priority]",
        "    return [other for other in node.pods.values() if other.priority <= pod.priority]",
        "the comparison of priorities admits equal ones",
    ),
    SwarmMutant(
        "scheduler: preemptions of one pod share an entry", "scheduler/preemption.py",
        "            if self._running.get(pod.uid) is evictions:\n                del self._running[pod.uid]",
        "            del self._running[pod.uid]",
        "a pod preempts again before the answer to its last eviction is here",
    ),
    # --- kubelets -----------------------------------------------------------------------------------------------------
    SwarmMutant(
        "kubelet: a pod marked not ready stays so", "kubelet/fake.py",
        "        elif old.ready and not new.ready and played.stage is Stage.RUNNING and not new.deleting:",
        "        elif old.ready and not new.ready and played.stage is Stage.STARTING:",
        "the fault that these histories found in the product",
    ),
    SwarmMutant(
        "kubelet: deletions from before its start are missed", "kubelet/fake.py",
        "        if pod.deleting:\n            self._stop(pod, played)\n        elif pod.terminal:\n            played.stage",
        "        if pod.terminal:\n            played.stage",
        "a pod that was deleted while the kubelet was down is never confirmed as gone",
    ),
    SwarmMutant(
        "kubelet: addresses in use are assigned again", "kubelet/fake.py",
        "            node.block.reserve(pod.ip)\n",
        "",
        "a kubelet that starts again does not look at what its pods have",
    ),
    SwarmMutant(
        "kubelet: pods of Jobs never end after a restart", "kubelet/fake.py",
        "        if pod.ready:\n            self._arm_finish(pod, played)\n            return",
        "        if pod.ready:\n            return",
        "what was running when the kubelet ended runs forever",
    ),
    # --- API server ---------------------------------------------------------------------------------------------------
    SwarmMutant(
        "API server: a bound pod is bound again", "api/kinds/core/pods.py",
        "        raise conflict(_PODS_BINDING, name, f'pod {name} is already assigned to node \"{spec[\"nodeName\"]}\"')",
        "        pass",
        "two schedulers, or one that lost an answer, move a running pod",
    ),
)  # fmt: skip

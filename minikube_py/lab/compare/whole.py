"""The whole control plane in virtual time: store, API server, scheduler, controllers, kubelet and load."""

from __future__ import annotations

from dataclasses import replace

from minikube_py.cluster.virtual import LOOP, VirtualCluster, VirtualConfig
from minikube_py.lab.compare.alone import ended
from minikube_py.lab.compare.figures import Ended
from minikube_py.lab.compare.workload import NAMESPACE, RUN, Workload, priority_class
from minikube_py.lab.load import LoadError, create_namespaces, creations, run_bounded
from minikube_py.lab.measure import PodRecorder
from minikube_py.lab.nodes import wait_ready
from minikube_py.lab.workload import RUN_LABEL
from minikube_py.scheduler.config import SchedulerConfig
from minikube_py.sim.replaced import frozen
from minikube_py.ui.recording import Recording

ERRORS = 'scheduler_schedule_attempts_total{result="error"'
QUIET_S = 60.0
"""Longer than the scheduler's maximum backoff and a victim's grace period."""


def run_whole(workload: Workload, config: SchedulerConfig, seed: int, recording: Recording | None = None) -> Ended:
    """Raises: SimFailure, LoadError, ConfigError."""
    given = VirtualConfig(nodes=workload.shapes, scheduler=config, heartbeats="elided", ties=seed)
    cluster = VirtualCluster(f"compare {seed}", config=replace(given, loop=replace(LOOP, shuffle=False)))
    if recording is not None:
        cluster.on_change(recording.take)
    try:
        with frozen():
            return cluster.run(lambda: _run(cluster, workload))
    finally:
        cluster.close()


async def _run(cluster: VirtualCluster, workload: Workload) -> Ended:
    await cluster.bring_up()
    transport = cluster.transport()
    await wait_ready(transport, len(workload.shapes))
    await create_namespaces(transport, [NAMESPACE])
    answer = await transport.request("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", body=priority_class())
    if answer.status != 201:
        raise LoadError(f"create of a PriorityClass answered {answer.status}")
    recorder = PodRecorder(transport, cluster.clock, f"{RUN_LABEL}={RUN}")
    placed: dict[str, str] = {}
    recorder.on_bound = placed.__setitem__
    await recorder.start()
    try:
        await run_bounded(creations(transport, workload.bodies, recorder))
        # Pods that never fit cause no further events, so the cluster becomes idle.
        await recorder.wait_until(lambda: False, QUIET_S)
    finally:
        await recorder.stop()
    gone = [key for key, times in recorder.pods.items() if times.deleted]
    for key in gone:
        placed.pop(key, None)
    errors = sum(int(count) for name, count in cluster.plane.metrics().items() if name.startswith(ERRORS))
    return ended(workload, placed, len(gone), recorder.by_pod_s("sent_s", "bound_s"), errors)

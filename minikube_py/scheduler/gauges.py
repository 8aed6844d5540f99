"""The scheduler's gauges, read on demand: sizes of queues and cache, and counters of its parts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from minikube_py.scheduler.metrics import Labels

if TYPE_CHECKING:
    from minikube_py.scheduler.scheduler import Scheduler


def gauges_of(scheduler: Scheduler, binding: int) -> dict[tuple[str, Labels], float]:
    """`binding`: the number of pods being bound."""
    queue, cache, gauges = scheduler.queue, scheduler.cache, dict[tuple[str, Labels], float]()
    for name, number in queue.pending().items():
        gauges["scheduler_pending_pods", (("queue", name),)] = number
    for (name, event), number in queue.incoming.items():
        gauges["scheduler_queue_incoming_pods_total", (("queue", name), ("event", event))] = number
    for (plugin, profile), number in queue.unschedulable_by_plugin.items():
        gauges["scheduler_unschedulable_pods", (("plugin", plugin), ("profile", profile))] = number
    gauges["scheduler_cache_size", (("type", "nodes"),)] = cache.columns.count
    gauges["scheduler_cache_size", (("type", "pods"),)] = len(cache)
    gauges["scheduler_cache_size", (("type", "assumed_pods"),)] = cache.assumed
    gauges["scheduler_goroutines", (("operation", "binding"),)] = binding
    gauges["scheduler_goroutines", (("operation", "prioritizing_extender"),)] = scheduler.extenders.prioritizing
    for name, run in scheduler.profiles.items():
        labels = (("profile", name),)
        gauges["scheduler_evaluations_reused_total", labels] = run.evaluator.reused
        gauges["scheduler_evaluations_built_total", labels] = run.evaluator.built
        for metric, count in run.rounds.metrics().items() if run.rounds is not None else ():
            gauges[f"scheduler_flow_{metric}_total", labels] = count
        for metric, value in run.events.metrics().items():
            gauges[f"scheduler_{metric}", labels] = value
    return gauges

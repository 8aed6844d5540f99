"""The scheduler alone: consecutive decisions over nodes in memory, without API, store, kubelet or time.

The profile, its plugins and the choice are those of the scheduler; placed pods run at once, and preemption victims are
gone at once.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import orjson

from minikube_py.lab.compare.figures import Ended
from minikube_py.lab.compare.workload import PRIORITY, Workload
from minikube_py.scheduler.cache import Cache
from minikube_py.scheduler.config import ConfigError, ProfileConfig, SchedulerConfig
from minikube_py.scheduler.configuration.checking import NoCluster
from minikube_py.scheduler.dry_run import Trial
from minikube_py.scheduler.evaluate import Evaluator
from minikube_py.scheduler.framework import CycleState, FitError, NoNodesAvailable
from minikube_py.scheduler.metrics import Labels
from minikube_py.scheduler.objects import DEFAULT_SCHEDULER_NAME, NodeInfo, PodInfo, project_node, project_pod
from minikube_py.scheduler.profile import Profile
from minikube_py.scheduler.scoring import Choice

RUN: Final = frozenset(("preFilter", "filter", "postFilter", "preScore", "score", "reserve"))
"""The points that run here."""
NOT_RUN: Final = {
    "preEnqueue": "pre_enqueue_plugins",
    "permit": "permitters",
    "preBind": "pre_binders",
    "bind": "binders",
    "postBind": "post_binders",
}
"""The others, with the profile's attribute of their plugins."""


class _Lent(NoCluster):
    """The plugins' handle where only decisions are simulated."""

    def __init__(self, cache: Cache, rng: random.Random) -> None:
        super().__init__(cache.columns)
        self.rng = rng
        self.evaluator: Evaluator | None = None
        self.preempted: list[PodInfo] = []
        self._cache = cache

    def dry_run(self, pod: PodInfo) -> Callable[[NodeInfo], Trial] | None:
        assert self.evaluator is not None
        return self.evaluator.dry_run(pod)

    def preempt(self, pod: PodInfo, node_name: str, victims: Sequence[PodInfo]) -> None:
        for victim in victims:
            self._cache.forget(victim.uid)
        self.preempted += victims

    def is_preempting(self, uid: str) -> bool:
        return False

    def count(self, metric: str, labels: Labels = ()) -> None:
        return


def run_alone(workload: Workload, config: SchedulerConfig, seed: int) -> Ended:
    """Raises: ConfigError, PluginError."""
    cache, rng = Cache(), random.Random(f"ties {seed}")
    for number, shape in enumerate(workload.shapes):
        labels = {"kubernetes.io/hostname": shape.name, **shape.labels}
        metadata = {"name": shape.name, "uid": f"node-{number}", "labels": labels}
        cache.put_node(project_node({"metadata": metadata, "spec": {}, "status": {"allocatable": shape.capacity}}))
    lent = _Lent(cache, rng)
    profile = _profile(config, lent)
    evaluator = lent.evaluator = Evaluator(profile, cache.columns, rng, config.percentage_of_nodes_to_score)
    placed: dict[str, str] = {}
    for number, body in enumerate(workload.bodies):
        node = _place(profile, evaluator, _pod(orjson.loads(body.body), number), cache)
        if node:
            placed[body.key] = node
    for victim in lent.preempted:
        placed.pop(victim.key, None)
    return ended(workload, placed, len(lent.preempted), {})


def _profile(config: SchedulerConfig, handle: Any) -> Profile:
    """The pods'. Raises: ConfigError."""
    (own,) = (each for each in config.profiles if each.scheduler_name == DEFAULT_SCHEDULER_NAME)
    return Profile(own, handle, config.registry, config.gates)


def require_alone(config: SchedulerConfig) -> None:
    """Raises: ConfigError if the profile has what only a whole control plane runs, beyond the default profile."""
    handle: Any = _Lent(Cache(), random.Random(0))
    profile, usual = _profile(config, handle), Profile(ProfileConfig(), handle, gates=config.gates)
    more = [
        f"{name} ({point})"
        for point, plugins in NOT_RUN.items()
        for name in getattr(profile, plugins)
        if name not in getattr(usual, plugins)
    ]
    if profile.queue_sort_name != usual.queue_sort_name:
        more.append(f"{profile.queue_sort_name} (queueSort)")
    if profile.placer is not None:
        more.append(f"{profile.placer.name} (placement in rounds)")
    if more:
        raise ConfigError(f"the scheduler alone does not run {', '.join(more)}; remove --scheduler-only")


def _pod(obj: dict[str, Any], number: int) -> PodInfo:
    """The pod after admission."""
    obj["metadata"]["uid"] = f"pod-{number}"
    obj["status"] = {}
    if obj["spec"].pop("priorityClassName", ""):
        obj["spec"]["priority"] = PRIORITY
    return project_pod(obj)


def _place(profile: Profile, evaluator: Evaluator, pod: PodInfo, cache: Cache) -> str:
    """The node, or "". Once victims are gone, the pod is retried, as by the queue."""
    for _ in range(2):
        try:
            choice = evaluator.choose(pod)
        except FitError as error:
            if not profile.post_filters:
                return ""
            result, _ = profile.run_post_filter(CycleState(), pod, error.diagnosis)
            if result is None or not result.nominated_node:
                return ""
            continue
        except NoNodesAvailable:
            return ""
        return reserved(profile, cache, pod, choice)
    return ""


def reserved(profile: Profile, cache: Cache, pod: PodInfo, choice: Choice) -> str:
    """The chosen node, with the pod assumed on it; "" if a plugin's Reserve fails."""
    cache.assume(pod, choice.node.name)
    if profile.run_reserve(choice.state, pod, choice.node.name).is_success:
        return choice.node.name
    profile.run_unreserve(choice.state, pod, choice.node.name)
    cache.forget(pod.uid)
    return ""


def ended(
    workload: Workload, placed: dict[str, str], preempted: int, latencies_s: Mapping[str, float], errors: int = 0
) -> Ended:
    """`placed`: pod key to node name; `latencies_s`: by pod key."""
    numbers = {node.name: number for number, node in enumerate(workload.nodes)}
    found = {i: numbers[placed[body.key]] for i, body in enumerate(workload.bodies) if body.key in placed}
    lines = (f"{body.key} {placed.get(body.key, '')}\n" for body in workload.bodies)
    digest = hashlib.sha256("".join(lines).encode()).hexdigest()
    timed = {i: latencies_s[body.key] for i, body in enumerate(workload.bodies) if body.key in latencies_s}
    return Ended(found, preempted, timed, digest, errors)

"""What a scheduling decision costs, stage by stage, without an API server.

    python tests/bench/bench_scheduler.py [--nodes 1000,5000,100000] [--pods 3000] [--json FILE]
    python tests/bench/bench_scheduler.py --predicates all --matchers columns,max-tree [--utilisation .97]
    python tests/bench/bench_scheduler.py --own --nodes 1000,5000 [--pods 1500] [--json FILE]

Every line is microseconds of CPU a pod, the median over pods. `same` places pods of one spec, as a
ReplicationController makes them; `mixed` cycles through 200 specs; `fresh` never sees a spec twice; `spread` and
`prefer-zone`, `prefer-host` have one topology spread constraint, `affinity` one of nodes; `apart-host`, `near-zone` and
`prefer-apart` have terms between pods. All nodes are scored.

With `--predicates`, the load of `bench schedule` instead (no two pods alike, nodes nearly full): what `choose` costs,
by matcher and sampling, and whether all of them chose the same nodes.

With `--own`, pods of one spec, all with different labels, and a plugin of one's own beside the default ones: what
`choose` and `assume` cost with each, in turn in one process, and how often that is the time without any.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from minikube_py.client.informer import InformerFactory
from minikube_py.lab.predicates import MIXES, LabNode, LabPod, filler_object, lab_nodes, lab_pods, node_object
from minikube_py.scheduler.cache import Cache
from minikube_py.scheduler.config import ProfileConfig
from minikube_py.scheduler.configuration.chosen import ChosenScheduler
from minikube_py.scheduler.configuration.files import read_scheduler
from minikube_py.scheduler.evaluate import Evaluator
from minikube_py.scheduler.framework import SKIP, FitError
from minikube_py.scheduler.matcher import COLUMNS, Matcher
from minikube_py.scheduler.objects import PodInfo, project_node, project_pod
from minikube_py.scheduler.plugin_informers import PluginInformers
from minikube_py.scheduler.profile import Profile
from minikube_py.scheduler.queue import SchedulingQueue
from minikube_py.scheduler.rules import Rules

ZONES = 8
SAMPLINGS = {"all": 100, "upstream": 0}
STAGES = ("project", "enqueue", "pop", "choose", "assume", "confirm", "decision")
"""`decision` is pop + choose + assume."""


class Lent:
    """The part of the scheduler that plugins see."""

    client = None

    def __init__(self, cache: Cache) -> None:
        self.columns = cache.columns
        unused: Any = None
        self._informers = PluginInformers(InformerFactory(unused, unused, unused), unused)

    def informer(self, resource: Any, project: Any) -> Any:
        return self._informers.of(resource, project)

    def is_preempting(self, uid: str) -> bool:
        return False


def node(i: int) -> dict[str, Any]:
    amounts = {"cpu": "32", "memory": "256Gi", "pods": "110"}
    labels = {"kubernetes.io/hostname": f"node-{i}", "topology.kubernetes.io/zone": f"zone-{i % ZONES}"}
    return {"metadata": {"name": f"node-{i}", "uid": f"n{i}", "labels": labels}, "status": {"allocatable": amounts}}


def pod(i: int, cpu: str, memory: str, **spec: Any) -> dict[str, Any]:
    container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": cpu, "memory": memory}}}
    metadata = {"name": f"pod-{i}", "namespace": "default", "uid": f"p{i}", "resourceVersion": str(i)}
    return {"metadata": metadata, "spec": {"containers": [container], **spec}, "status": {"phase": "Pending"}}


def affine(i: int) -> dict[str, Any]:
    zone = {"key": "topology.kubernetes.io/zone", "operator": "In", "values": [f"zone-{i % ZONES}", "zone-1"]}
    required = {"nodeSelectorTerms": [{"matchExpressions": [zone]}]}
    preferred = [{"weight": 10, "preference": {"matchExpressions": [zone]}}]
    return {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": required,
            "preferredDuringSchedulingIgnoredDuringExecution": preferred,
        }
    }


def spread(i: int, key: str, unmet: str, skew: int) -> dict[str, Any]:
    selector = {"matchLabels": {"color": "blue"}}
    one = {"maxSkew": skew, "topologyKey": key, "whenUnsatisfiable": unmet, "labelSelector": selector}
    made = pod(i, "100m", "500Mi", topologySpreadConstraints=[one])
    made["metadata"]["labels"] = {"color": "blue"}
    return made


def termed(i: int, kind: str, how: str, key: str) -> dict[str, Any]:
    """A pod with one term about pods like itself, as those of `beside`."""
    term: dict[str, Any] = {"topologyKey": key, "labelSelector": {"matchLabels": {"color": "red"}}}
    each = term if how == "required" else {"weight": 1, "podAffinityTerm": term}
    made = pod(i, "100m", "128Mi", affinity={kind: {f"{how}DuringSchedulingIgnoredDuringExecution": [each]}})
    made["metadata"]["labels"] = {"color": "red"}
    return made


WORKLOADS: dict[str, Callable[[int], dict[str, Any]]] = {
    "same": lambda i: pod(i, "100m", "128Mi"),
    "mixed": lambda i: pod(i, f"{50 + i % 200}m", f"{64 + i % 200}Mi"),
    "fresh": lambda i: pod(i, f"{100 + i}m" if i < 10_000 else "100m", f"{64 + i % 5000}Mi"),
    "affinity": lambda i: pod(i, "100m", "128Mi", affinity=affine(0)),
    "unschedulable": lambda i: pod(i, "64", "128Mi"),
    "spread-zone": lambda i: spread(i, "topology.kubernetes.io/zone", "DoNotSchedule", 5),
    "spread-host": lambda i: spread(i, "kubernetes.io/hostname", "DoNotSchedule", 1),
    "prefer-zone": lambda i: spread(i, "topology.kubernetes.io/zone", "ScheduleAnyway", 5),
    "prefer-host": lambda i: spread(i, "kubernetes.io/hostname", "ScheduleAnyway", 1),
    "apart-host": lambda i: termed(i, "podAntiAffinity", "required", "kubernetes.io/hostname"),
    "near-zone": lambda i: termed(i, "podAffinity", "required", "topology.kubernetes.io/zone"),
    "prefer-apart": lambda i: termed(i, "podAntiAffinity", "preferred", "kubernetes.io/hostname"),
}


def measure(nodes: int, pods: int, workload: str) -> dict[str, float]:
    """Median microseconds per stage."""
    cache = Cache()
    for i in range(nodes):
        cache.put_node(project_node(node(i)))
    lent: Any = Lent(cache)
    profile = Profile(ProfileConfig(), lent)
    evaluator = Evaluator(profile, cache.columns, random.Random(1), 100)
    rules = Rules(profile.events(), evaluator.helps, profile.local_plugins, profile.run_pre_enqueue)
    queue = SchedulingQueue(time.monotonic, profile.sort_key, {profile.name: rules})
    objects = [WORKLOADS[workload](i) for i in range(pods)]
    stages: dict[str, list[float]] = {name: [] for name in STAGES[:-1]}
    clock = time.thread_time
    for i, obj in enumerate(objects):
        t0 = clock()
        info = project_pod(obj)
        t1 = clock()
        queue.add(info)
        t2 = clock()
        queued = queue.pop()
        assert queued is not None
        t3 = clock()
        try:
            choice = evaluator.choose(info)
        except Exception:
            choice = None
        t4 = clock()
        if choice is None:
            queue.done(info.uid)
            times = (t1 - t0, t2 - t1, t3 - t2, t4 - t3)
        else:
            cache.assume(info, choice.node.name)
            t5 = clock()
            queue.done(info.uid)
            bound = PodInfo(info.namespace, info.name, info.uid, info.spec)
            bound.labels = info.labels
            bound.node_name = choice.node.name
            t6 = clock()
            cache.put_pod(bound)
            times = (t1 - t0, t2 - t1, t3 - t2, t4 - t3, t5 - t4, clock() - t6)
        if i >= min(100, pods // 10):
            for samples, value in zip(stages.values(), times):
                samples.append(value)
    found = {name: statistics.median(samples) * 1e6 for name, samples in stages.items() if samples}
    found["decision"] = sum(found.get(name, 0.0) for name in ("pop", "choose", "assume"))
    return found


def measure_matcher(
    nodes: list[LabNode], pods: list[LabPod], matcher: str, percentage: int
) -> tuple[list[float], list[str], dict[str, int]]:
    """CPU microseconds of each `choose`, sorted; the nodes chosen, "" for none; the matcher's counters."""
    cache = Cache()
    for i, each in enumerate(nodes):
        obj = json.loads(node_object(each, str(i)))
        cache.put_node(project_node(obj))
        cache.put_pod(project_pod(json.loads(filler_object(each, f"filler-{i}", f"f{i}"))))
    lent: Any = Lent(cache)
    index = None if matcher == COLUMNS else Matcher(cache.columns, matcher)
    evaluator = Evaluator(Profile(ProfileConfig(), lent), cache.columns, random.Random(1), percentage, index)
    durations_us, chosen = [], []
    for i, each in enumerate(pods):
        obj = json.loads(each.body.body)
        obj["metadata"]["uid"] = f"p{i}"
        info = project_pod(obj)
        started_s = time.thread_time()
        try:
            choice = evaluator.choose(info)
        except FitError:
            choice = None
        durations_us.append((time.thread_time() - started_s) * 1e6)
        chosen.append(choice.node.name if choice is not None else "")
        if choice is not None:
            cache.assume(info, choice.node.name)
    # The first ones add dimensions and fill the index.
    return sorted(durations_us[min(20, len(pods) // 4) :]), chosen, {} if index is None else index.counts()


def run_predicates(args: argparse.Namespace) -> list[dict[str, Any]]:
    results = []
    print(f"{'nodes':>7} {'sampling':9} {'matcher':14} {'mean':>9} {'p50':>9} {'p99':>9}  microseconds of CPU a choice")
    for count in (int(n) for n in args.nodes.split(",")):
        rng = random.Random(args.seed)
        nodes = lab_nodes(rng, count, args.utilisation)
        pods = lab_pods(rng, args.pods, args.predicates, 0)
        for sampling, percentage in SAMPLINGS.items():
            before: list[str] | None = None
            for matcher in args.matchers.split(","):
                times, chosen, counts = measure_matcher(nodes, pods, matcher, percentage)
                if before not in (None, chosen):
                    raise SystemExit(f"{matcher} chose other nodes than the matcher before it")
                before = chosen
                found = {"mean": statistics.mean(times), "p50": times[len(times) // 2]}
                found["p99"] = times[len(times) * 99 // 100]
                told = " ".join(f"{value:9.1f}" for value in found.values())
                print(f"{count:7d} {sampling:9} {matcher:14} {told}", counts, flush=True)
                result = {"nodes": count, "sampling": sampling, "matcher": matcher, "microseconds": found}
                results.append({**result, "counts": counts})
    return results


class Quiet:
    scope = "NODE"

    def filter(self, state: Any, pod: Any, node: Any) -> None:
        return None

    def score(self, state: Any, pod: Any, node: Any) -> int:
        return 0


class Skipping(Quiet):
    """Concerned with pods that have a label; no pod has it."""

    def pre_filter(self, state: Any, pod: Any, nodes: Any) -> tuple[None, Any]:
        return None, None if "example.com/mine" in pod.labels else SKIP

    def pre_score(self, state: Any, pod: Any, nodes: Any) -> Any:
        return None if "example.com/mine" in pod.labels else SKIP


class SkippingEverywhere(Skipping):
    scope = "CLUSTER"


class Normalizing(Skipping):
    def normalize_scores(self, state: Any, pod: Any, scores: Any) -> Any:
        return scores


class BestFit:
    """The tutorial's."""

    scope = "NODE"

    def score(self, state: Any, pod: Any, node: Any) -> int:
        capacity = node.allocatable.get("cpu", 0)
        used = node.requested.get("cpu", 0) + pod.spec.request("cpu")
        return min(100, 100 * used // capacity) if capacity else 0

    def score_nodes(self, state: Any, pod: Any, nodes: Any) -> Any:
        capacity = nodes.allocatable("cpu")
        used = nodes.requested("cpu") + pod.spec.request("cpu")
        return np.where(capacity > 0, np.minimum(100, 100 * used // np.maximum(capacity, 1)), 0)


IO_BANDWIDTH = f"{Path(__file__).parents[2]}/examples/scheduler/io_bandwidth.py:IoBandwidth"
OWN: dict[str, Any] = {
    "none": None,
    "CLUSTER, skips": SkippingEverywhere,
    "NODE, skips": Skipping,
    "NODE, normalize_scores, skips": Normalizing,
    "NODE, no opinion": Quiet,
    "BestFit (tutorial)": BestFit,
    "IoBandwidth (example)": IO_BANDWIDTH,
}


def run_own(args: argparse.Namespace) -> list[dict[str, Any]]:
    results = []
    for nodes in (int(n) for n in args.nodes.split(",")):
        sides: dict[str, tuple[Cache, Evaluator, list[float]]] = {}
        for name, kind in OWN.items():
            cache = Cache()
            for i in range(nodes):
                cache.put_node(project_node(node(i)))
            lent: Any = Lent(cache)
            target = kind if isinstance(kind, str) else f"{__name__}:{kind.__name__}" if kind is not None else ""
            config = read_scheduler(ChosenScheduler(None, (target,) if target else ()))
            profile = Profile(config.profiles[0], lent, config.registry)
            sides[name] = cache, Evaluator(profile, cache.columns, random.Random(1), 100), []
        for i in range(args.pods):
            obj = pod(i, "100m", "128Mi")
            obj["metadata"]["labels"] = {"statefulset.kubernetes.io/pod-name": f"pod-{i}"}
            for cache, evaluator, samples in sides.values():
                info = project_pod(obj)
                started_s = time.thread_time()
                cache.assume(info, evaluator.choose(info).node.name)
                samples.append(time.thread_time() - started_s)
        medians = {name: statistics.median(samples[20:]) * 1e6 for name, (_, _, samples) in sides.items()}
        for name, median in medians.items():
            times = median / medians["none"]
            results.append({"nodes": nodes, "plugin": name, "microseconds": median, "times": times})
            print(f"{nodes:7d} {name:30} {median:9.1f} x{times:.2f}  built {sides[name][1].built}", flush=True)
    return results


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", default="1000,5000,100000")
    parser.add_argument("--pods", type=int, default=3000)
    parser.add_argument("--workloads", default=",".join(WORKLOADS))
    parser.add_argument("--json", type=Path)
    parser.add_argument("--own", action="store_true")
    parser.add_argument("--predicates", choices=MIXES)
    parser.add_argument("--matchers", default=COLUMNS)
    parser.add_argument("--utilisation", type=float, default=0.97)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    results = run_own(args) if args.own else run_predicates(args) if args.predicates else run_workloads(args)
    if args.json is not None:
        args.json.write_text(json.dumps(results, indent=1))
    return 0


def run_workloads(args: argparse.Namespace) -> list[dict[str, Any]]:
    results: list[dict[str, Any]] = []
    print(f"{'nodes':>7} {'workload':14} " + " ".join(f"{stage:>9}" for stage in STAGES))
    for nodes in (int(n) for n in args.nodes.split(",")):
        for workload in args.workloads.split(","):
            found = measure(nodes, args.pods if nodes < 50_000 else min(args.pods, 1000), workload)
            results.append({"nodes": nodes, "workload": workload, "microseconds": found})
            cells = (f"{found[stage]:9.1f}" if stage in found else f"{'-':>9}" for stage in STAGES)
            print(f"{nodes:7d} {workload:14} " + " ".join(cells), flush=True)
    return results


if __name__ == "__main__":
    sys.exit(main())

"""How long the scheduler blocks the loop while thousands of distinct pods fit nowhere and others are scheduled.

    python tests/bench/bench_waiting.py [--waiting 10000] [--kinds large,selector,affinity,spread,claim] [--flow 200]

A cluster in virtual time; prints processor time: of each phase, and of the longest step of the scheduler parts that
handle all waiting pods.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from minikube_py import Cluster
from minikube_py.client.informer import Informer
from minikube_py.scheduler.queue import SchedulingQueue
from minikube_py.scheduler.scheduler import Scheduler

Obj = dict[str, Any]
NODES = 100
MEASURED = (
    (Informer, "_apply"),
    (SchedulingQueue, "on_change"),
    (SchedulingQueue, "catch_up"),
    (SchedulingQueue, "flush"),
    (Scheduler, "_schedule_one"),
)
KINDS: dict[str, Callable[[int], Obj]] = {
    "large": lambda i: {},
    "selector": lambda i: {"nodeSelector": {"k": f"v{i}"}},
    "affinity": lambda i: {
        "affinity": {
            "podAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": f"x{i}"}}}
                ]
            }
        }
    },
    "spread": lambda i: {
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": "nowhere",
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {"matchLabels": {"app": f"x{i}"}},
            }
        ]
    },
    "claim": lambda i: {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": f"none{i}"}}]},
}


def pod(name: str, cpu: str, **more: Any) -> Obj:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    spec = {"terminationGracePeriodSeconds": 0, "containers": [container], **more}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": "s"}}, "spec": spec}


def waiting(i: int, kind: str) -> Obj:
    return pod(f"w{i}", f"{1000 + i}" if kind == "large" else f"{10 + i}m", **KINDS[kind](i))


def measure(spent: dict[str, list[float]]) -> None:
    for owner, name in MEASURED:
        inner = getattr(owner, name)

        def outer(*given: Any, inner: Any = inner, what: str = f"{owner.__name__}.{name}", **named: Any) -> Any:
            started_s = time.thread_time()
            try:
                return inner(*given, **named)
            finally:
                spent[what].append(time.thread_time() - started_s)

        setattr(owner, name, outer)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--waiting", type=int, default=10_000)
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--flow", type=int, default=200)
    asked = parser.parse_args()
    kinds = asked.kinds.split(",")
    spent: dict[str, list[float]] = defaultdict(list)
    measure(spent)

    with Cluster(nodes=NODES, clock="virtual", seed=3) as cluster:

        def phase(name: str, work: Callable[[], object], seconds: float) -> None:
            spent.clear()
            started_s = time.process_time()
            work()
            cluster.advance(seconds=seconds)
            longest = ", ".join(f"{what} {1000 * max(some):.1f}" for what, some in sorted(spent.items()))
            print(f"{name:26} {time.process_time() - started_s:6.2f} s; longest, ms: {longest}", flush=True)

        many = [waiting(i, kinds[i % len(kinds)]) for i in range(asked.waiting)]
        phase(f"{asked.waiting} pods come", lambda: cluster.apply(many), 30)
        flow = [pod(f"s{i}", "10m") for i in range(asked.flow)]
        phase(f"{asked.flow} others are placed", lambda: cluster.apply(flow), 5)
        phase("those go", lambda: [cluster.delete(f"pod/s{i}") for i in range(asked.flow)], 5)
        node = cluster.objects("nodes")[0]
        node["metadata"].setdefault("labels", {})["some"] = "label"
        phase("a node gets a label", lambda: cluster.apply(node), 2)
        phase("all have waited too long", lambda: None, 360)


if __name__ == "__main__":
    main()

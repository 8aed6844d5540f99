"""Drawn KubeSchedulerConfigurations: mostly right, each with at most a few values at or beyond an edge."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from minikube_py.scheduler.configuration.messages import API_VERSION, KIND, POINTS

Json = dict[str, Any]
NAMES = [
    "SchedulingGates",
    "PrioritySort",
    "NodeUnschedulable",
    "NodeName",
    "TaintToleration",
    "NodeAffinity",
    "NodePorts",
    "NodeResourcesFit",
    "VolumeRestrictions",
    "VolumeBinding",
    "PodTopologySpread",
    "InterPodAffinity",
    "DynamicResources",
    "DefaultPreemption",
    "NodeResourcesBalancedAllocation",
    "DefaultBinder",
]
STRANGE = ("Nonsense", "", "EBSLimits", "*", "nodeports")
INT32 = (-(1 << 31), -1, 0, 1, 2, 99, 100, 101, (1 << 31) - 1)
KEYS = ("zone", "example.com/a", "", "a b", "-", "x" * 64, "A/b/c")
WRONG_TYPES: tuple[Any, ...] = ("text", 1.5, True, [], {}, [1], {"a": 1}, 1 << 40, -(1 << 70))


def configuration(rng: random.Random) -> Json:
    draw = _Draw(rng)
    found = draw.document()
    for _ in range(rng.choice((0, 0, 0, 1))):
        draw.spoil(found)
    return found


class _Draw:
    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def sometimes(self, chance: float = 0.3) -> bool:
        return self.rng.random() < chance

    def some(self, fields: dict[str, Callable[[], Any]], chance: float = 0.3) -> Json:
        return {name: make() for name, make in fields.items() if self.sometimes(chance)}

    def int32(self) -> int:
        return self.rng.choice(INT32)

    def mostly(self, right: Any, wrong: tuple[Any, ...], chance: float = 0.15) -> Any:
        return self.rng.choice(wrong) if self.sometimes(chance) else right

    def document(self) -> Json:
        rng = self.rng
        found: Json = {"apiVersion": API_VERSION, "kind": KIND}
        found |= self.some(
            {
                "parallelism": lambda: self.mostly(4, INT32),
                "percentageOfNodesToScore": lambda: self.mostly(rng.randint(0, 100), INT32),
                "podInitialBackoffSeconds": lambda: self.mostly(rng.randint(1, 5), INT32),
                "podMaxBackoffSeconds": lambda: self.mostly(rng.randint(5, 20), INT32),
                "enableProfiling": lambda: rng.random() < 0.5,
                "enableContentionProfiling": lambda: rng.random() < 0.5,
                "delayCacheUntilActive": lambda: rng.random() < 0.5,
                "leaderElection": self.election,
                "clientConnection": lambda: self.some(
                    {"qps": lambda: 7.5, "burst": self.int32, "contentType": lambda: "application/json"}
                ),
                "extenders": lambda: [self.extender() for _ in range(rng.randint(0, 2))],
            },
            0.12,
        )
        if self.sometimes(0.9):
            found["profiles"] = [self.profile(i) for i in range(rng.choice((0, 1, 1, 1, 2, 3)))]
        return found

    def election(self) -> Json:
        duration = lambda: self.rng.choice(("0s", "5s", "1m30s", "500ms", "-1s", "20s"))  # noqa: E731
        return self.some(
            {
                "leaderElect": lambda: self.rng.random() < 0.5,
                "leaseDuration": duration,
                "renewDeadline": duration,
                "retryPeriod": duration,
                "resourceLock": lambda: self.mostly("leases", ("endpoints", "")),
                "resourceName": lambda: "mine",
            }
        )

    def extender(self) -> Json:
        names = ("example.com/gpu",) * 4 + ("example.com/port", "cpu", "kubernetes.io/x", "a b", "")
        resource = lambda: {"name": self.rng.choice(names), "ignoredByScheduler": self.sometimes(0.5)}  # noqa: E731
        return {"urlPrefix": "http://127.0.0.1:1"} | self.some(
            {
                "filterVerb": lambda: "filter",
                "prioritizeVerb": lambda: "prioritize",
                "weight": self.int32,
                "bindVerb": lambda: "bind",
                "preemptVerb": lambda: "preempt",
                "httpTimeout": lambda: self.rng.choice(("5s", "0s", "1m30s", "500ms", "-1s")),
                "enableHTTPS": lambda: self.rng.random() < 0.5,
                "nodeCacheCapable": lambda: self.rng.random() < 0.5,
                "ignorable": lambda: self.rng.random() < 0.5,
                "tlsConfig": lambda: self.some(
                    {
                        "insecure": lambda: self.rng.random() < 0.5,
                        "serverName": lambda: "x",
                        "caFile": lambda: "/nowhere",
                        "caData": lambda: "eA==",
                        "certData": lambda: "eA==",
                        "keyFile": lambda: "/nowhere",
                    },
                    0.2,
                ),
                "managedResources": lambda: [resource() for _ in range(self.rng.randint(0, 3))],
            },
            0.5,
        )

    def profile(self, number: int) -> Json:
        rng = self.rng
        found: Json = {}
        if number or self.sometimes(0.7):
            found["schedulerName"] = self.mostly(f"s{number}", ("s0", ""), 0.1)
        found |= self.some(
            {
                "percentageOfNodesToScore": lambda: self.mostly(rng.randint(0, 100), INT32),
                "plugins": lambda: self.some(dict.fromkeys(("multiPoint", *POINTS), self.plugin_set), 0.08),
                "pluginConfig": lambda: [self.config() for _ in range(rng.randint(0, 3))],
            },
            0.5,
        )
        return found

    def plugin(self) -> Json:
        name = self.mostly(self.rng.choice(NAMES), STRANGE, 0.06)
        return {"name": name} | self.some({"weight": lambda: self.mostly(self.rng.randint(0, 9), INT32)})

    def plugin_set(self) -> Json:
        rng = self.rng
        return self.some(
            {
                "enabled": lambda: [self.plugin() for _ in range(rng.randint(0, 3))],
                "disabled": lambda: [{"name": rng.choice((*NAMES, "*"))} for _ in range(rng.randint(0, 2))],
            },
            0.6,
        )

    def config(self) -> Json:
        name = self.mostly(self.rng.choice((*ARGS_OF, *NAMES)), STRANGE, 0.05)
        found: Json = {"name": name}
        args = ARGS_OF.get(name, lambda draw: {})(self)
        if self.sometimes(0.3):
            args |= {
                "apiVersion": API_VERSION,
                "kind": self.mostly(f"{name}Args", ("DefaultPreemptionArgs", "Pod"), 0.2),
            }
        if args or self.sometimes(0.3):
            found["args"] = args
        return found

    def resources(self) -> list[Json]:
        names = ("cpu", "memory", "example.com/gpu", "pods")
        return [
            {"name": self.rng.choice(names)} | self.some({"weight": lambda: self.mostly(1, INT32)})
            for _ in range(self.rng.randint(0, 3))
        ]

    def shape(self) -> list[Json]:
        points = sorted(self.rng.sample(range(101), self.rng.randint(0, 3)))
        return [
            {"utilization": self.mostly(x, INT32, 0.08), "score": self.mostly(self.rng.randint(0, 10), INT32, 0.08)}
            for x in points
        ]

    def strategy(self) -> Json:
        kind = self.mostly(
            self.rng.choice(("LeastAllocated", "MostAllocated", "RequestedToCapacityRatio")), ("", "Best"), 0.1
        )
        found = {"type": kind} | self.some({"resources": self.resources}, 0.5)
        if self.sometimes(0.9 if kind.startswith("Requested") else 0.1):
            found["requestedToCapacityRatio"] = self.some({"shape": self.shape}, 0.9)
        return found

    def term(self) -> Json:
        operators = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Bad", "")
        values = ("a", "7", "", "no label!", "-", "9" * 19)

        def requirement() -> Json:
            found: Json = {
                "key": self.mostly("zone", KEYS),
                "operator": self.rng.choice(operators[: self.mostly(6, (8,))]),
            }
            number = {"In": 2, "NotIn": 2, "Gt": 1, "Lt": 1}.get(found["operator"], 0)
            if number or self.sometimes(0.1):
                count = self.mostly(number, (0, 1, 2))
                found["values"] = [self.mostly("7", values) for _ in range(count)]
            return found

        return self.some(
            {
                "matchExpressions": lambda: [requirement() for _ in range(self.rng.randint(0, 2))],
                "matchFields": lambda: [{**requirement(), "key": "metadata.name"}],
            },
            0.5,
        )

    def affinity(self) -> Json:
        return self.some(
            {
                "requiredDuringSchedulingIgnoredDuringExecution": lambda: {"nodeSelectorTerms": [self.term()]},
                "preferredDuringSchedulingIgnoredDuringExecution": lambda: [
                    {"weight": self.rng.randint(0, 2), "preference": self.term()}
                ],
            },
            0.7,
        )

    def spread(self) -> Json:
        found: Json = {"maxSkew": self.mostly(1, INT32), "topologyKey": self.mostly("zone", KEYS)}
        found["whenUnsatisfiable"] = self.mostly("ScheduleAnyway", ("DoNotSchedule", "", "Never"))
        return found | self.some({"labelSelector": lambda: {"matchLabels": {"a": "b"}}}, 0.1)

    def spoil(self, found: Json) -> None:
        """One field of some object becomes another type, or gets a neighbour that nobody knows."""
        objects: list[Json] = []

        def walk(value: Any) -> None:
            if isinstance(value, dict):
                objects.append(value)
                for item in value.values():
                    walk(item)
            elif isinstance(value, list):
                for item in value:
                    walk(item)

        walk(found)
        target = self.rng.choice(objects)
        fields = [key for key in target if key not in ("apiVersion", "kind")]
        if fields and self.sometimes(0.5):
            target[self.rng.choice(fields)] = self.rng.choice(WRONG_TYPES)
        else:
            target["unheardOf"] = 1


ARGS_OF: dict[str, Callable[[_Draw], Json]] = {
    "DefaultPreemption": lambda d: d.some(
        {"minCandidateNodesPercentage": d.int32, "minCandidateNodesAbsolute": d.int32}, 0.6
    ),
    "NodeResourcesFit": lambda d: d.some(
        {
            "ignoredResources": lambda: [d.mostly("example.com/gpu", KEYS)],
            "ignoredResourceGroups": lambda: [d.mostly("example.com", KEYS)],
            "scoringStrategy": d.strategy,
        },
        0.5,
    ),
    "NodeResourcesBalancedAllocation": lambda d: d.some({"resources": d.resources}, 0.8),
    "NodeAffinity": lambda d: d.some({"addedAffinity": d.affinity}, 0.8),
    "PodTopologySpread": lambda d: d.some(
        {
            "defaultingType": lambda: d.mostly("List", ("System", "", "None")),
            "defaultConstraints": lambda: [d.spread() for _ in range(d.rng.randint(0, 2))],
        },
        0.7,
    ),
    "InterPodAffinity": lambda d: d.some(
        {"hardPodAffinityWeight": d.int32, "ignorePreferredTermsOfExistingPods": lambda: True}, 0.7
    ),
    "VolumeBinding": lambda d: d.some({"bindTimeoutSeconds": d.int32, "shape": lambda: d.shape() or [{}]}, 0.5),
    "DynamicResources": lambda d: d.some(
        {
            "filterTimeout": lambda: d.rng.choice(("0s", "-1s", "3s")),
            "bindingTimeout": lambda: d.rng.choice(("1s", "999ms")),
        },
        0.7,
    ),
}

"""Clusters and pods drawn for what looks beyond the node: spread over topologies, affinity between pods.

All drawn objects pass the API's validation, or nearly so; their edges are empty and missing selectors, labels that only
some nodes have, empty values, several terms, domains that a pod's own affinity or tolerations leave out.
"""

from __future__ import annotations

import random
from typing import Any

Obj = dict[str, Any]
ZONE, HOSTNAME = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
KEYS = (ZONE, ZONE, HOSTNAME, "rack")
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
TEAMS = {"team-x": {"team": "x"}, "team-y": {"team": "y"}}


def labels(rng: random.Random) -> dict[str, str]:
    both = {"app": "web", "tier": "1"}
    return dict(rng.choice(({"app": "web"}, both, {"app": "db"}, {"tier": "1"}, {"app": ""}, {})))


def selector(rng: random.Random) -> Obj:
    found = rng.choice(
        (
            {"matchLabels": {"app": "web"}},
            {"matchLabels": {"app": "web"}},
            {"matchLabels": {"app": "db"}},
            {},
            {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["db", ""]}]},
            {"matchExpressions": [{"key": "tier", "operator": "DoesNotExist"}]},
            {"matchExpressions": [{"key": "tier", "operator": "Exists"}], "matchLabels": {"app": "web"}},
        )
    )
    return dict(found)


def nodes(rng: random.Random, prefix: str) -> list[Obj]:
    found = []
    for i in range(rng.randint(3, 7)):
        own = {HOSTNAME: f"{prefix}-{i}", "round": prefix}
        if rng.random() < 0.85:
            own[ZONE] = rng.choice("abc")
        if rng.random() < 0.6:
            own["rack"] = rng.choice(("r1", "r2", ""))
        spec: Obj = {}
        if rng.random() < 0.25:
            spec["taints"] = [{"key": "k", "value": "v", "effect": rng.choice(("NoSchedule", "PreferNoSchedule"))}]
        amounts = {"cpu": "8", "memory": "16Gi", "pods": "110"}
        status = {"allocatable": amounts, "capacity": amounts}
        metadata = {"name": f"{prefix}-{i}", "labels": own}
        found.append({"kind": "Node", "apiVersion": "v1", "metadata": metadata, "spec": spec, "status": status})
    return found


def term(rng: random.Random) -> Obj:
    found: Obj = {"topologyKey": rng.choice(KEYS)}
    if rng.random() < 0.95:
        found["labelSelector"] = selector(rng)
    chance = rng.random()
    if chance < 0.15:
        found["namespaces"] = rng.sample(["default", *TEAMS], rng.randint(1, 2))
    elif chance < 0.35:
        found["namespaceSelector"] = rng.choice(
            ({}, {"matchLabels": {"team": "x"}}, {"matchExpressions": [{"key": "team", "operator": "DoesNotExist"}]})
        )
    if "labelSelector" in found and rng.random() < 0.15:
        found[rng.choice(("matchLabelKeys", "mismatchLabelKeys"))] = ["pair"]
    return found


def affinity(rng: random.Random) -> Obj:
    found: Obj = {}
    for kind in rng.sample(("podAffinity", "podAntiAffinity"), rng.choice((1, 1, 2))):
        own: Obj = {}
        if rng.random() < 0.7:
            own[REQUIRED] = [term(rng) for _ in range(rng.choice((1, 1, 2)))]
        if rng.random() < 0.5 or not own:
            own[PREFERRED] = [
                {"weight": rng.choice((1, 30, 100)), "podAffinityTerm": term(rng)} for _ in range(rng.randint(1, 2))
            ]
        found[kind] = own
    return found


def spread(rng: random.Random) -> list[Obj]:
    found: dict[tuple[str, str], Obj] = {}
    for _ in range(rng.choice((1, 1, 2, 3))):
        action = rng.choice(("DoNotSchedule", "ScheduleAnyway"))
        one: Obj = {"maxSkew": rng.randint(1, 2), "topologyKey": rng.choice(KEYS), "whenUnsatisfiable": action}
        if rng.random() < 0.9:
            one["labelSelector"] = selector(rng)
            if rng.random() < 0.2:
                one["matchLabelKeys"] = ["pair"]
        if action == "DoNotSchedule" and rng.random() < 0.3:
            one["minDomains"] = rng.randint(1, 4)
        for policy in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
            if rng.random() < 0.3:
                one[policy] = rng.choice(("Honor", "Ignore"))
        found[one["topologyKey"], action] = one
    return list(found.values())


def shape(rng: random.Random, kind: str) -> tuple[dict[str, str], Obj]:
    """Labels and spec of a pod; `kind`: spread, affinity or plain."""
    spec: Obj = {}
    if kind == "spread":
        spec["topologySpreadConstraints"] = spread(rng)
    elif kind == "affinity":
        spec["affinity"] = affinity(rng)
    if rng.random() < 0.3:
        spec["tolerations"] = [{"key": "k", "operator": "Exists"}]
    if rng.random() < 0.15:
        spec["nodeSelector"] = {"rack": "r1"}
    own = labels(rng)
    if rng.random() < 0.3:
        own["pair"] = rng.choice("12")
    return own, spec

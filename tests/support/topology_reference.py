"""PodTopologySpread and InterPodAffinity pod by pod and node by node, as in upstream's source, on plain objects.

Follows pkg/scheduler/framework/plugins/podtopologyspread and interpodaffinity line by line, without caches."""

from __future__ import annotations

import math
from typing import Any

Obj = dict[str, Any]
HOSTNAME = "kubernetes.io/hostname"
SPREAD = "node(s) didn't match pod topology spread constraints"
NO_LABEL = f"{SPREAD} (missing required label)"
AFFINITY = "node(s) didn't match pod affinity rules"
ANTI_AFFINITY = "node(s) didn't match pod anti-affinity rules"
EXISTING = "node(s) didn't satisfy existing pods anti-affinity rules"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
SYSTEM_DEFAULTS = [
    {"topologyKey": HOSTNAME, "whenUnsatisfiable": "ScheduleAnyway", "maxSkew": 3},
    {"topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "ScheduleAnyway", "maxSkew": 5},
]


def selects(selector: Obj | None, labels: dict[str, str]) -> bool:
    """A missing selector selects nothing, an empty one everything."""
    if selector is None:
        return False
    if any(labels.get(key) != value for key, value in (selector.get("matchLabels") or {}).items()):
        return False
    for e in selector.get("matchExpressions") or ():
        has, value = e["key"] in labels, labels.get(e["key"])
        good = {
            "In": has and value in e.get("values", ()),
            "NotIn": not has or value not in e.get("values", ()),
            "Exists": has,
            "DoesNotExist": not has,
        }[e["operator"]]
        if not good:
            return False
    return True


def is_empty(selector: Obj | None) -> bool:
    return selector is not None and not selector.get("matchLabels") and not selector.get("matchExpressions")


def labels_of(obj: Obj) -> dict[str, str]:
    found: dict[str, str] = obj["metadata"].get("labels") or {}
    return found


def namespace_of(pod: Obj) -> str:
    return str(pod["metadata"]["namespace"])


class Cluster:
    """The contents: nodes by name, the pods on each (known or not), namespaces' labels, Services and owners."""

    def __init__(self) -> None:
        self.nodes: dict[str, Obj] = {}
        self.running: dict[str, list[Obj]] = {}
        self.namespaces: dict[str, dict[str, str]] = {}
        self.services: list[Obj] = []
        self.owners: dict[tuple[str, str], Obj] = {}
        """By namespace and name; all are ReplicaSets."""

    def pods(self, node: str) -> list[Obj]:
        return self.running.get(node, [])

    # --- spread -----------------------------------------------------------------------------------------------------

    def default_selector(self, pod: Obj) -> Obj | None:
        wanted: dict[str, str] = {}
        for service in self.services:
            own = service["spec"].get("selector")
            here = service["metadata"]["namespace"] == namespace_of(pod)
            if here and own is not None and selects({"matchLabels": own}, labels_of(pod)):
                wanted.update(own)
        found: Obj = {"matchLabels": wanted, "matchExpressions": []}
        for owner in pod["metadata"].get("ownerReferences") or ():
            if owner.get("controller") and (owner["apiVersion"], owner["kind"]) == ("apps/v1", "ReplicaSet"):
                own = self.owners.get((namespace_of(pod), owner["name"]))
                if own is not None:
                    found["matchExpressions"] = [
                        {"key": k, "operator": "In", "values": [v]}
                        for k, v in own["spec"]["selector"]["matchLabels"].items()
                    ]
        return None if is_empty(found) else found

    def constraints(self, pod: Obj, action: str, defaults: list[Obj]) -> list[Obj]:
        own = pod["spec"].get("topologySpreadConstraints") or []
        if own:
            found = []
            for c in own:
                if c["whenUnsatisfiable"] != action:
                    continue
                selector = c.get("labelSelector")
                more = {k: labels_of(pod)[k] for k in c.get("matchLabelKeys") or () if k in labels_of(pod)}
                if more and selector is not None:
                    expressions = [{"key": k, "operator": "In", "values": [v]} for k, v in more.items()]
                    expressions += selector.get("matchExpressions") or []
                    selector = {**selector, "matchExpressions": expressions}
                found.append({**c, "labelSelector": selector})
            return found
        found = [c for c in defaults if c["whenUnsatisfiable"] == action]
        selector = self.default_selector(pod) if found else None
        return [{**c, "labelSelector": selector} for c in found] if selector is not None else []

    def counts(self, pod: Obj, c: Obj, node: Obj) -> bool:
        """matchNodeInclusionPolicies"""
        if c.get("nodeAffinityPolicy", "Honor") == "Honor":
            wanted = pod["spec"].get("nodeSelector") or {}
            if any(labels_of(node).get(key) != value for key, value in wanted.items()):
                return False
        if c.get("nodeTaintsPolicy", "Ignore") == "Honor":
            tolerated = {t["key"] for t in pod["spec"].get("tolerations") or ()}
            taints = node["spec"].get("taints") or ()
            if any(t["effect"] != "PreferNoSchedule" and t["key"] not in tolerated for t in taints):
                return False
        return True

    def matching(self, pods: list[Obj], c: Obj, namespace: str) -> int:
        if is_empty(c["labelSelector"]):
            return 0
        return sum(
            not pod["metadata"].get("deletionTimestamp")
            and namespace_of(pod) == namespace
            and selects(c["labelSelector"], labels_of(pod))
            for pod in pods
        )

    def spread_counts(self, pod: Obj, constraints: list[Obj]) -> list[dict[str, int]]:
        found: list[dict[str, int]] = [{} for _ in constraints]
        for name, node in self.nodes.items():
            if any(c["topologyKey"] not in labels_of(node) for c in constraints):
                continue
            for i, c in enumerate(constraints):
                if self.counts(pod, c, node):
                    value = labels_of(node)[c["topologyKey"]]
                    number = self.matching(self.pods(name), c, namespace_of(pod))
                    found[i][value] = found[i].get(value, 0) + number
        return found

    def spread_reasons(self, pod: Obj, defaults: list[Obj]) -> dict[str, str]:
        """By rejected node."""
        constraints = self.constraints(pod, "DoNotSchedule", defaults)
        counted = self.spread_counts(pod, constraints)
        found: dict[str, str] = {}
        for name, node in self.nodes.items():
            for c, counts in zip(constraints, counted, strict=True):
                if c["topologyKey"] not in labels_of(node):
                    found[name] = NO_LABEL
                    break
                least = min(counts.values(), default=(1 << 31) - 1)
                if len(counts) < (c.get("minDomains") or 1):
                    least = 0
                own = selects(c["labelSelector"], labels_of(pod))
                if counts.get(labels_of(node)[c["topologyKey"]], 0) + own - least > c["maxSkew"]:
                    found[name] = SPREAD
                    break
        return found

    def selector_reasons(self, pod: Obj) -> dict[str, str]:
        wanted = pod["spec"].get("nodeSelector") or {}
        without = (name for name, node in self.nodes.items() if not wanted.items() <= labels_of(node).items())
        return dict.fromkeys(without, "node(s) didn't match Pod's node affinity/selector")

    def spread_scores(self, pod: Obj, fitting: list[str], defaults: list[Obj], of_the_system: bool) -> dict[str, int]:
        """Normalised; empty if there is nothing to score."""
        constraints = self.constraints(pod, "ScheduleAnyway", defaults)
        if not constraints:
            return {}
        requires = bool(pod["spec"].get("topologySpreadConstraints")) or not of_the_system

        def lacks(node: Obj) -> bool:
            return requires and any(c["topologyKey"] not in labels_of(node) for c in constraints)

        ignored = {name for name in fitting if lacks(self.nodes[name])}
        pairs: list[dict[str, int]] = [{} for _ in constraints]
        for name in fitting:
            for i, c in enumerate(constraints):
                if name not in ignored and c["topologyKey"] != HOSTNAME:
                    pairs[i][labels_of(self.nodes[name]).get(c["topologyKey"], "")] = 0
        weights = [
            math.log((len(fitting) - len(ignored) if c["topologyKey"] == HOSTNAME else len(pairs[i])) + 2)
            for i, c in enumerate(constraints)
        ]
        for name, node in self.nodes.items():
            for i, c in enumerate(constraints):
                value = labels_of(node).get(c["topologyKey"], "")
                if not lacks(node) and self.counts(pod, c, node) and value in pairs[i]:
                    pairs[i][value] += self.matching(self.pods(name), c, namespace_of(pod))
        raw: dict[str, int] = {}
        for name in fitting:
            score = 0.0
            for i, c in enumerate(constraints):
                value = labels_of(self.nodes[name]).get(c["topologyKey"])
                if name in ignored or value is None:
                    continue
                here = self.matching(self.pods(name), c, namespace_of(pod))
                number = here if c["topologyKey"] == HOSTNAME else pairs[i][value]
                score += number * weights[i] + (c["maxSkew"] - 1)
            raw[name] = math.floor(score) + (score - math.floor(score) >= 0.5)
        taken = [raw[name] for name in fitting if name not in ignored]
        low, high = min(taken, default=0), max(taken, default=0)
        return {
            name: 0 if name in ignored else 100 if high == 0 else 100 * (high + low - raw[name]) // high
            for name in fitting
        }

    # --- affinity ---------------------------------------------------------------------------------------------------

    def terms(self, pod: Obj, kind: str, when: str) -> list[Obj]:
        affinity = (pod["spec"].get("affinity") or {}).get(kind) or {}
        return affinity.get(when) or []

    def incoming_means(self, owner: Obj, term: Obj, other: Obj) -> bool:
        """A term of the pod to be placed, its namespaceSelector merged into its namespaces; Matches(pod, nil) then puts
        the selector to no labels, since it was emptied in a copy."""
        names, more = set(term.get("namespaces") or ()), term.get("namespaceSelector")
        if not names and more is None:
            names = {namespace_of(owner)}
        if more is not None and not is_empty(more):
            names |= {name for name, labels in self.namespaces.items() if selects(more, labels)}
        everywhere = more is not None and selects(more, {})
        return (namespace_of(other) in names or everywhere) and selects(term.get("labelSelector"), labels_of(other))

    def existing_means(self, owner: Obj, term: Obj, incoming: Obj) -> bool:
        names, more = set(term.get("namespaces") or ()), term.get("namespaceSelector")
        if not names and more is None:
            names = {namespace_of(owner)}
        picked = namespace_of(incoming) in names or selects(more, self.namespaces.get(namespace_of(incoming), {}))
        return picked and selects(term.get("labelSelector"), labels_of(incoming))

    def existing(self) -> list[tuple[dict[str, str], Obj]]:
        """(labels of the node, pod) of all pods on existing nodes."""
        return [(labels_of(node), pod) for name, node in self.nodes.items() for pod in self.pods(name)]

    def affinity_reasons(self, pod: Obj) -> dict[str, str]:
        wanted = self.terms(pod, "podAffinity", REQUIRED)
        unwanted = self.terms(pod, "podAntiAffinity", REQUIRED)

        def means_all(other: Obj) -> bool:
            return bool(wanted) and all(self.incoming_means(pod, term, other) for term in wanted)

        near: set[tuple[str, str]] = set()
        apart: set[tuple[str, str]] = set()
        against: set[tuple[str, str]] = set()
        for labels, other in self.existing():
            if means_all(other):
                near |= {(t["topologyKey"], labels[t["topologyKey"]]) for t in wanted if t["topologyKey"] in labels}
            for term in unwanted:
                if term["topologyKey"] in labels and self.incoming_means(pod, term, other):
                    apart.add((term["topologyKey"], labels[term["topologyKey"]]))
            for term in self.terms(other, "podAntiAffinity", REQUIRED):
                if term["topologyKey"] in labels and self.existing_means(other, term, pod):
                    against.add((term["topologyKey"], labels[term["topologyKey"]]))
        found: dict[str, str] = {}
        for name, node in self.nodes.items():
            labels = labels_of(node)
            keys = [term["topologyKey"] for term in wanted]
            good = all(key in labels for key in keys)
            if good and not all((key, labels[key]) in near for key in keys):
                good = not near and means_all(pod)
            if not good:
                found[name] = AFFINITY
            elif any((t["topologyKey"], labels.get(t["topologyKey"])) in apart for t in unwanted):
                found[name] = ANTI_AFFINITY
            elif any(pair in against for pair in labels.items()):
                found[name] = EXISTING
        return found

    def affinity_scores(self, pod: Obj, fitting: list[str], hard_weight: int, ignore: bool) -> dict[str, int]:
        soft = [(t, 1) for t in self.terms(pod, "podAffinity", PREFERRED)]
        soft += [(t, -1) for t in self.terms(pod, "podAntiAffinity", PREFERRED)]
        if ignore and not soft:
            return {}
        scores: dict[tuple[str, str], int] = {}

        def add(labels: dict[str, str], key: str, weight: int) -> None:
            if key in labels:
                scores[key, labels[key]] = scores.get((key, labels[key]), 0) + weight

        for labels, other in self.existing():
            for weighted, sign in soft:
                term = weighted["podAffinityTerm"]
                if self.incoming_means(pod, term, other):
                    add(labels, term["topologyKey"], sign * weighted["weight"])
            for term in self.terms(other, "podAffinity", REQUIRED) if hard_weight else ():
                if self.existing_means(other, term, pod):
                    add(labels, term["topologyKey"], hard_weight)
            for kind, sign in (("podAffinity", 1), ("podAntiAffinity", -1)):
                for weighted in self.terms(other, kind, PREFERRED):
                    term = weighted["podAffinityTerm"]
                    if self.existing_means(other, term, pod):
                        add(labels, term["topologyKey"], sign * weighted["weight"])
        if not scores:
            return {}
        raw = {name: sum(scores.get(pair, 0) for pair in labels_of(self.nodes[name]).items()) for name in fitting}
        low, high = min(raw.values(), default=0), max(raw.values(), default=0)
        return {name: int(100.0 * ((raw[name] - low) / (high - low))) if high > low else 0 for name in fitting}

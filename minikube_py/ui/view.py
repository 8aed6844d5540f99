"""The page's state, updated by node and pod events. Pure: `Page` feeds and queries it.

Each change gives a node the next sequence number; a client at number n gets only the nodes changed since.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from minikube_py.fields.pod_requests import PODS, is_finished
from minikube_py.fields.quantity import QuantityError, wide_units
from minikube_py.fields.resource_requests import resource_requests

ZONE: Final = "topology.kubernetes.io/zone"
REMEMBERED_MAX: Final = 20_000
"""Pods whose moments are kept; the oldest are forgotten first."""
GONE_MAX: Final = 4_096
"""Deleted nodes remembered; a page further behind gets everything."""
LATENCIES_MAX: Final = 2_000
PENDING_SHOWN_MAX: Final = 200
LABELS_MAX: Final = 100
"""Labels of nodes by which a page can group them."""

Json = dict[str, Any]


class NodeFacts(NamedTuple):
    uid: str
    name: str
    zone: str
    ready: bool
    open: bool
    """False while it is cordoned."""
    allocatable: Mapping[str, int]
    labels: Mapping[str, str]


class PodFacts(NamedTuple):
    uid: str
    key: str
    """namespace/name"""
    node: str
    phase: str
    requests: Mapping[str, int]
    created: str
    """RFC 3339, in whole seconds."""
    reason: str
    """Why it is not scheduled, from its condition."""
    terminating: bool


def node_facts(node: Mapping[str, Any]) -> NodeFacts:
    metadata, status = node["metadata"], node.get("status") or {}
    conditions = status.get("conditions") or ()
    return NodeFacts(
        metadata["uid"],
        metadata["name"],
        (metadata.get("labels") or {}).get(ZONE, ""),
        any(each.get("type") == "Ready" and each.get("status") == "True" for each in conditions),
        not (node.get("spec") or {}).get("unschedulable"),
        {name: wide_units(name, amount) for name, amount in (status.get("allocatable") or {}).items()},
        metadata.get("labels") or {},
    )


def pod_facts(pod: Mapping[str, Any]) -> PodFacts:
    metadata, status = pod["metadata"], pod.get("status") or {}
    try:
        requests = resource_requests(pod)
    except QuantityError:
        requests = {} if is_finished(pod) else {PODS: 1}
    reason = ""
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            reason = str(condition.get("message") or condition.get("reason") or "")
    return PodFacts(
        metadata["uid"],
        f"{metadata['namespace']}/{metadata['name']}",
        (pod.get("spec") or {}).get("nodeName", ""),
        str(status.get("phase", "")),
        requests,
        str(metadata.get("creationTimestamp", "")),
        reason,
        "deletionTimestamp" in metadata,
    )


class _Node:
    __slots__ = ("changed", "facts", "pods", "used")

    def __init__(self) -> None:
        self.facts: NodeFacts | None = None
        """None while only pods refer to it."""
        self.used: dict[str, int] = {}
        self.pods: dict[str, None] = {}
        self.changed = 0


class View:
    """`wall_s` is given with each event: nothing here reads a clock. Numbers follow `start`, so that clients of an
    earlier view get everything."""

    def __init__(self, start: int = 0) -> None:
        self.sequence = self._start = start
        self.pods: dict[str, PodFacts] = {}
        self.pending: dict[str, None] = {}
        self._pending_at = self._labels_at = 0
        """The numbers of the last change of a waiting pod, and of the last that brought a new label."""
        self.totals = {"created": 0, "bound": 0, "running": 0, "deleted": 0}
        self._nodes: dict[str, _Node] = {}
        self._latest: dict[str, None] = {}
        """Names in the order of their last change."""
        self._gone: deque[tuple[int, str]] = deque(maxlen=GONE_MAX)
        self._values: dict[str, Counter[str]] = {}
        """Label -> how many nodes have each value."""
        self._moments: dict[str, dict[str, float]] = {}
        self._waits: dict[str, deque[float]] = {
            name: deque(maxlen=LATENCIES_MAX) for name in ("created to bound", "bound to running", "created to running")
        }
        self._latency_s: dict[str, list[float]] | None = {}
        """None once a wait was added: sorting thousands for each answer would cost more than the answer."""
        self.live = False
        """Set after the initial lists: earlier objects predate the page."""

    # --- events -----------------------------------------------------------------------------------------------------

    def put_node(self, facts: NodeFacts) -> None:
        node = self._nodes.setdefault(facts.name, _Node())
        if node.facts != facts:
            self._count_labels(node.facts, facts)
            node.facts = facts
            self._touch(facts.name, node)

    def remove_node(self, name: str) -> None:
        node = self._nodes[name]
        self._count_labels(node.facts, None)
        node.facts = None
        self.sequence += 1
        self._gone.append((self.sequence, name))
        self._latest.pop(name, None)
        self._drop_if_empty(name, node)

    def _count_labels(self, old: NodeFacts | None, new: NodeFacts | None) -> None:
        before, after = (each.labels if each is not None else {} for each in (old, new))
        for labels, by in ((after, 1), (before, -1)) if before != after else ():
            for label, value in labels.items():
                if label not in self._values:
                    self._labels_at = self.sequence + 1
                values = self._values.setdefault(label, Counter())
                values[value] += by
                if not values[value]:
                    del values[value]
                if not values:
                    del self._values[label]

    def put_pod(self, new: PodFacts, wall_s: float) -> None:
        old = self.pods.get(new.key)
        self.pods[new.key] = new
        if old is not None and (old.node, old.requests) != (new.node, new.requests):
            self._take(old)
        if old is None or (old.node, old.requests) != (new.node, new.requests):
            self._give(new)
        self._note(old, new, wall_s)
        self.sequence += 1
        if new.node or new.phase in ("Succeeded", "Failed") or new.terminating:
            self._drop_pending(new.key)
        else:
            self.pending[new.key], self._pending_at = None, self.sequence

    def remove_pod(self, key: str) -> None:
        old = self.pods.pop(key)
        self._take(old)
        self._moments.pop(key, None)
        self.totals["deleted"] += 1
        self.sequence += 1
        self._drop_pending(key)

    def _drop_pending(self, key: str) -> None:
        if key in self.pending:
            del self.pending[key]
            self._pending_at = self.sequence

    def _give(self, pod: PodFacts) -> None:
        if pod.node:
            node = self._nodes.setdefault(pod.node, _Node())
            node.pods[pod.key] = None
            for name, amount in pod.requests.items():
                node.used[name] = node.used.get(name, 0) + amount
            self._touch(pod.node, node)

    def _take(self, pod: PodFacts) -> None:
        node = self._nodes.get(pod.node)
        if node is not None:
            node.pods.pop(pod.key, None)
            for name, amount in pod.requests.items():
                node.used[name] = node.used.get(name, 0) - amount
            self._touch(pod.node, node)
            self._drop_if_empty(pod.node, node)

    def _touch(self, name: str, node: _Node) -> None:
        self.sequence += 1
        node.changed = self.sequence
        if node.facts is not None:
            self._latest.pop(name, None)
            self._latest[name] = None

    def _drop_if_empty(self, name: str, node: _Node) -> None:
        if node.facts is None and not node.pods:
            del self._nodes[name]

    def _note(self, old: PodFacts | None, new: PodFacts, wall_s: float) -> None:
        if not self.live:
            return
        moments = self._moments.get(new.key)
        if old is None:
            moments = self._moments[new.key] = {"created": wall_s}
            self.totals["created"] += 1
            if len(self._moments) > REMEMBERED_MAX:
                del self._moments[next(iter(self._moments))]
        if new.node and (old is None or not old.node):
            self._reached("bound", "created", moments, wall_s)
        if new.phase == "Running" and (old is None or old.phase != "Running"):
            self._reached("running", "bound", moments, wall_s)

    def _reached(self, what: str, after: str, moments: dict[str, float] | None, wall_s: float) -> None:
        self.totals[what] += 1
        if moments is None:
            return
        moments[what] = wall_s
        for start in dict.fromkeys((after, "created")):
            if start in moments:
                self._waits[f"{start} to {what}"].append(wall_s - moments[start])
                self._latency_s = None

    # --- answers ----------------------------------------------------------------------------------------------------

    def changes(self, since: int) -> Json:
        """Names of the nodes that changed after `since`; `rows` says more, also after further events: what they change
        has a later number. `all`: everything is sent, at the start or to a page too far behind; `labels` are then, and
        if there is a new one, the nodes' labels, fewest values first."""
        everything = self._everything(since)
        return {
            "sequence": self.sequence,
            "all": everything,
            "nodes": list(self._latest if everything else self._changed(since)),
            "gone": [] if everything else [name for at, name in self._gone if at > since and name not in self._latest],
            "labels": self._labels() if everything or self._labels_at > since else [],
        }

    def _everything(self, since: int) -> bool:
        lost = self._gone[0][0] if len(self._gone) == GONE_MAX else 0
        return since <= self._start or since < lost or since > self.sequence

    def _changed(self, since: int) -> Iterator[str]:
        for name in reversed(self._latest):
            if self._nodes[name].changed <= since:
                return
            yield name

    def _labels(self) -> list[str]:
        return sorted(self._values, key=lambda label: (len(self._values[label]), label))[:LABELS_MAX]

    def rows(self, names: Iterable[str], label: str = ZONE) -> list[list[Any]]:
        """[name, value of `label`, ready, open, pods, {resource: [used, allocatable]}] of those that still exist."""
        return [self._row(name, label) for name in names if name in self._latest]

    def _row(self, name: str, label: str) -> list[Any]:
        node = self._nodes[name]
        facts = node.facts
        assert facts is not None
        amounts = {each: [_shown(node.used.get(each, 0)), _shown(amount)] for each, amount in facts.allocatable.items()}
        return [name, facts.labels.get(label, ""), facts.ready, facts.open, len(node.pods), amounts]

    def summary(self, since: int = 0) -> Json:
        """Counts, waiting pods (None: none has changed after `since`) and latencies in seconds."""
        if self._latency_s is None:
            self._latency_s = {name: quantiles(waits) for name, waits in self._waits.items() if waits}
        waiting = None
        if self._everything(since) or self._pending_at > since:
            shown = [self.pods[key] for key, _ in zip(self.pending, range(PENDING_SHOWN_MAX))]
            waiting = [[pod.key, pod.reason, pod.created] for pod in shown]
        return {
            "pods": len(self.pods),
            "pending": len(self.pending),
            "waiting": waiting,
            "totals": self.totals,
            "latency_s": self._latency_s,
        }

    def node(self, name: str) -> Json | None:
        node = self._nodes.get(name)
        if node is None or node.facts is None:
            return None
        pods = [self.pods[key] for key in node.pods]
        return {"name": name, "pods": [[pod.key, pod.phase, shown_amounts(pod.requests)] for pod in pods]}

    def pod(self, key: str) -> Json | None:
        """`moments`: when the server saw it, in seconds since 1970; "" if it predates the page."""
        pod = self.pods.get(key)
        if pod is None:
            return None
        return {**pod._asdict(), "requests": shown_amounts(pod.requests), "moments": {**self._moments.get(key, {})}}


def _shown(amount: int) -> float:
    """JSON integers are limited to 64 bits, a browser's to 53."""
    return amount if -(2**53) < amount < 2**53 else float(amount)


def shown_amounts(amounts: Mapping[str, int]) -> dict[str, float]:
    """As JSON: integers beyond 53 bits are rounded for browsers."""
    return {name: _shown(amount) for name, amount in amounts.items()}


def quantiles(waits: deque[float]) -> list[float]:
    """[median, 99th percentile]"""
    ordered = sorted(waits)
    return [ordered[len(ordered) // 2], ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)]]

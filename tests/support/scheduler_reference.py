"""A plain reference of the scheduler's decisions, clusters and changes that are drawn, and a run of both side by side.

The reference reads the objects as the API has them and follows the documented formulas node by node.
"""

from __future__ import annotations

import math
import random
from typing import Any

from hypothesis import strategies as st

from minikube_py.client.informer import InformerFactory
from minikube_py.scheduler.best import INFEASIBLE
from minikube_py.scheduler.cache import Cache
from minikube_py.scheduler.config import ProfileConfig
from minikube_py.scheduler.evaluate import Evaluator
from minikube_py.scheduler.framework import FitError, NoNodesAvailable
from minikube_py.scheduler.objects import PodInfo, project_node, project_pod
from minikube_py.scheduler.plugin_informers import PluginInformers
from minikube_py.scheduler.profile import Profile

MI = 1 << 20


class Lent:
    """What a scheduler provides to its plugins, without one. `informers` are never started: tests fill their stores."""

    client = None

    def __init__(self, cache: Cache) -> None:
        self.cache = cache
        self.columns = cache.columns
        unused: Any = None
        self.informers = PluginInformers(InformerFactory(unused, unused, unused), unused)

    def informer(self, resource: Any, project: Any) -> Any:
        found = self.informers.of(resource, project)
        # As if it were started: handlers get what is put.
        found._shows = True
        return found


# --- the reference ---------------------------------------------------------------------------------------------------


def amount(resource: str, text: str) -> int:
    for suffix, factor in (("Mi", MI), ("Gi", 1 << 30), ("m", 1)):
        if text.endswith(suffix):
            return int(text[: -len(suffix)]) * factor
    return int(text) * (1000 if resource == "cpu" else 1)


def requests_of(pod: dict[str, Any]) -> dict[str, int]:
    total: dict[str, int] = {}
    for container in pod["spec"]["containers"]:
        for name, text in container["resources"]["requests"].items():
            total[name] = total.get(name, 0) + amount(name, text)
    return total


def nonzero_of(pod: dict[str, Any]) -> dict[str, int]:
    total = {"cpu": 0, "memory": 0}
    for container in pod["spec"]["containers"]:
        wanted = container["resources"]["requests"]
        total["cpu"] += amount("cpu", wanted["cpu"]) if "cpu" in wanted else 100
        total["memory"] += amount("memory", wanted["memory"]) if "memory" in wanted else 200 * MI
    return total


def tolerated(taint: dict[str, str], pod: dict[str, Any], effects: tuple[str, ...] = ()) -> bool:
    for t in pod["spec"].get("tolerations", ()):
        if effects and t.get("effect", "") not in effects:
            continue
        if t.get("effect") and t["effect"] != taint["effect"]:
            continue
        if t.get("key") and t["key"] != taint["key"]:
            continue
        if t.get("operator") == "Exists" or t.get("value", "") == taint["value"]:
            return True
    return False


def matches(term: dict[str, Any], labels: dict[str, str]) -> bool:
    if not term.get("matchExpressions"):
        return False
    for e in term["matchExpressions"]:
        value, operator, values = labels.get(e["key"]), e["operator"], e.get("values", [])
        if operator == "In":
            good = value in values
        elif operator == "NotIn":
            good = value not in values
        elif operator == "Exists":
            good = value is not None
        elif operator == "DoesNotExist":
            good = value is None
        else:
            numeric = value is not None and value.isdigit()
            good = numeric and (int(value) > int(values[0]) if operator == "Gt" else int(value) < int(values[0]))
        if not good:
            return False
    return True


class World:
    """Objects by name, and the pods that run on each node."""

    def __init__(self) -> None:
        self.nodes: dict[str, dict[str, Any]] = {}
        self.running: dict[str, list[dict[str, Any]]] = {}

    def reasons(self, pod: dict[str, Any], name: str) -> list[str]:
        node, spec = self.nodes[name], pod["spec"]
        cordon = {"key": "node.kubernetes.io/unschedulable", "value": "", "effect": "NoSchedule"}
        if node["spec"].get("unschedulable") and not tolerated(cordon, pod):
            return ["node(s) were unschedulable"]
        for taint in node["spec"].get("taints", ()):
            if taint["effect"] != "PreferNoSchedule" and not tolerated(taint, pod):
                return ["node(s) had untolerated taint(s)"]
        labels = node["metadata"]["labels"]
        affinity = spec.get("affinity", {}).get("nodeAffinity", {})
        required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
        selected = all(labels.get(k) == v for k, v in spec.get("nodeSelector", {}).items())
        if not selected or (required and not any(matches(t, labels) for t in required["nodeSelectorTerms"])):
            return ["node(s) didn't match Pod's node affinity/selector"]
        found = []
        running = self.running.get(name, [])
        allocatable = {r: amount(r, text) for r, text in node["status"]["allocatable"].items()}
        if len(running) + 1 > allocatable.get("pods", 0):
            found.append("Too many pods")
        for resource, wanted in requests_of(pod).items():
            used = sum(requests_of(other).get(resource, 0) for other in running)
            if wanted > 0 and wanted > allocatable.get(resource, 0) - used:
                found.append(f"Insufficient {resource}")
        return found

    def least(self, pod: dict[str, Any], name: str) -> int:
        total = weight = 0
        for resource in ("cpu", "memory"):
            capacity = amount(resource, self.nodes[name]["status"]["allocatable"].get(resource, "0"))
            if capacity:
                used = sum(nonzero_of(p)[resource] for p in (*self.running.get(name, []), pod))
                total += max(0, (capacity - used) * 100 // capacity) if used <= capacity else 0
                weight += 1
        return total // weight if weight else 0

    def balance(self, pod: dict[str, Any], name: str) -> int | None:
        if not any(requests_of(pod).get(r) for r in ("cpu", "memory")):
            return None

        def score(pods: list[dict[str, Any]]) -> int:
            shares = []
            for resource in ("cpu", "memory"):
                capacity = amount(resource, self.nodes[name]["status"]["allocatable"].get(resource, "0"))
                if capacity:
                    shares.append(min(1.0, sum(requests_of(p).get(resource, 0) for p in pods) / capacity))
            deviation = abs(shares[0] - shares[1]) / 2 if len(shares) == 2 else 0.0
            return math.floor((1 - deviation) * 100)

        running = self.running.get(name, [])
        return 50 + (50 + score([*running, pod]) - score(running)) // 2

    def totals(self, pod: dict[str, Any]) -> dict[str, int]:
        """The weighted score of every fitting node."""
        fitting = [name for name in self.nodes if not self.reasons(pod, name)]
        preferring = {
            name: sum(
                taint["effect"] == "PreferNoSchedule" and not tolerated(taint, pod, ("", "PreferNoSchedule"))
                for taint in self.nodes[name]["spec"].get("taints", ())
            )
            for name in fitting
        }
        affinity = pod["spec"].get("affinity", {}).get("nodeAffinity", {})
        terms = affinity.get("preferredDuringSchedulingIgnoredDuringExecution", ())
        wished = {
            name: sum(t["weight"] for t in terms if matches(t["preference"], self.nodes[name]["metadata"]["labels"]))
            for name in fitting
        }
        most_taints, most_wished = max(preferring.values(), default=0), max(wished.values(), default=0)
        found = {}
        for name in fitting:
            taints = 100 - 100 * preferring[name] // most_taints if most_taints else 100
            wishes = 100 * wished[name] // most_wished if most_wished else 0
            found[name] = 3 * taints + 2 * wishes + self.least(pod, name) + (self.balance(pod, name) or 0)
        return found


# --- generated clusters ----------------------------------------------------------------------------------------------

KEYS, VALUES = ("zone", "size"), ("a", "b", "7", "12")
LABELS = st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES))
EFFECTS = ("NoSchedule", "NoExecute", "PreferNoSchedule")
TAINTS = st.lists(
    st.builds(
        lambda key, value, effect: {"key": key, "value": value, "effect": effect},
        st.sampled_from("kl"),
        st.sampled_from(("", "v")),
        st.sampled_from(EFFECTS),
    ),
    max_size=2,
)
TOLERATIONS = st.lists(
    st.fixed_dictionaries(
        {"key": st.sampled_from("kl"), "operator": st.sampled_from(("Exists", "Equal"))},
        optional={"effect": st.sampled_from(EFFECTS)},
    ),
    max_size=2,
)


@st.composite
def expressions(draw: st.DrawFn) -> dict[str, Any]:
    operator = draw(st.sampled_from(("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")))
    found: dict[str, Any] = {"key": draw(st.sampled_from(KEYS)), "operator": operator}
    if operator in ("In", "NotIn"):
        found["values"] = draw(st.lists(st.sampled_from(VALUES), min_size=1, max_size=2, unique=True))
    elif operator in ("Gt", "Lt"):
        found["values"] = [draw(st.sampled_from(("6", "7", "9", "12")))]
    return found


TERMS = st.lists(expressions(), min_size=0, max_size=2).map(lambda found: {"matchExpressions": found})


@st.composite
def nodes(draw: st.DrawFn) -> dict[str, Any]:
    name = f"n{draw(st.integers(0, 5))}"
    allocatable = {
        "cpu": draw(st.sampled_from(("1", "2", "3500m"))),
        "memory": draw(st.sampled_from(("1Gi", "3000Mi", "0"))),
        "pods": draw(st.sampled_from(("2", "10"))),
    }
    if draw(st.booleans()):
        allocatable["example.com/gpu"] = "2"
    plain = draw(st.integers(0, 2)) > 0
    spec = {} if plain else {"taints": draw(TAINTS), "unschedulable": draw(st.booleans())}
    metadata = {"name": name, "uid": name, "labels": draw(LABELS)}
    return {"metadata": metadata, "spec": spec, "status": {"allocatable": allocatable}}


SHAPES = st.fixed_dictionaries(
    {},
    optional={
        "cpu": st.sampled_from(("0", "1m", "300m", "1", "2")),
        "memory": st.sampled_from(("64Mi", "500Mi", "1Gi")),
        "example.com/gpu": st.sampled_from(("1", "2")),
    },
)


@st.composite
def specs(draw: st.DrawFn) -> dict[str, Any]:
    shapes = draw(st.lists(SHAPES, min_size=1, max_size=2))
    containers = [{"name": f"c{i}", "resources": {"requests": shape}} for i, shape in enumerate(shapes)]
    spec: dict[str, Any] = {"containers": containers}
    if draw(st.booleans()):
        return spec
    if draw(st.booleans()):
        spec["tolerations"] = draw(TOLERATIONS)
    if draw(st.integers(0, 3)) == 0:
        spec["nodeSelector"] = draw(LABELS)
    affinity: dict[str, Any] = {}
    if draw(st.integers(0, 2)) == 0:
        terms = draw(st.lists(TERMS, min_size=1, max_size=2))
        affinity["requiredDuringSchedulingIgnoredDuringExecution"] = {"nodeSelectorTerms": terms}
    if draw(st.integers(0, 2)) == 0:
        weighted = st.builds(lambda w, t: {"weight": w, "preference": t}, st.integers(1, 100), TERMS)
        affinity["preferredDuringSchedulingIgnoredDuringExecution"] = draw(st.lists(weighted, max_size=2))
    if affinity:
        spec["affinity"] = {"nodeAffinity": affinity}
    return spec


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("node"), nodes()),
        # One with the same name, and everything but a facet.
        st.tuples(st.just("change node"), st.tuples(st.sampled_from(("labels", "taints", "allocatable")), nodes())),
        st.tuples(st.just("drop node"), st.integers(0, 5)),
        # Several of one spec in a row, as controllers create them: the first one's cached result serves the others.
        st.tuples(st.just("schedule"), st.integers(0, 3)),
        st.tuples(st.just("schedule three"), st.integers(0, 3)),
        st.tuples(st.just("schedule three"), st.integers(0, 3)),
        st.tuples(st.just("delete pod"), st.integers(0, 30)),
    ),
    max_size=20,
)


def pod_of(i: int, spec: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"name": f"p{i}", "namespace": "d", "uid": f"p{i}"}, "spec": spec, "status": {}}


class Run:
    """The scheduler's side and the reference side by side."""

    def __init__(self, seed: int) -> None:
        self.world = World()
        self.cache = Cache()
        lent: Any = Lent(self.cache)
        self.evaluator = Evaluator(Profile(ProfileConfig(), lent), self.cache.columns, random.Random(seed), 100)
        self.placed: list[tuple[PodInfo, dict[str, Any], str]] = []
        self.made = 0

    def play(self, first: list[dict[str, Any]], shapes: list[dict[str, Any]], steps: list[tuple[str, Any]]) -> None:
        """The nodes there are at `first`, then the steps, then a pod of each shape."""
        for obj in first:
            self.node(obj)
        for what, value in steps:
            if what == "node":
                self.node(value)
            elif what == "change node":
                self.change_node(*value)
            elif what == "drop node":
                self.drop_node(f"n{value}")
            elif what == "delete pod":
                self.delete_pod(value)
            else:
                for _ in range(3 if what == "schedule three" else 1):
                    self.schedule(shapes[value])
        for spec in shapes:
            self.schedule(spec)

    def node(self, obj: dict[str, Any]) -> None:
        self.world.nodes[obj["metadata"]["name"]] = obj
        self.cache.put_node(project_node(obj))

    def change_node(self, facet: str, other: dict[str, Any]) -> None:
        """The node of `other`'s name gets that facet of it, if there is one."""
        old = self.world.nodes.get(other["metadata"]["name"])
        if old is None:
            return
        part = {"labels": "metadata", "taints": "spec", "allocatable": "status"}[facet]
        changed = {key: value for key, value in old[part].items() if key != facet}
        if facet in other[part]:
            changed[facet] = other[part][facet]
        self.node({**old, part: changed})

    def drop_node(self, name: str) -> None:
        self.world.nodes.pop(name, None)
        self.cache.remove_node(name)

    def delete_pod(self, i: int) -> None:
        if self.placed:
            info, obj, node = self.placed.pop(i % len(self.placed))
            self.world.running[node].remove(obj)
            self.cache.remove_pod(info.uid)

    def schedule(self, spec: dict[str, Any]) -> None:
        self.made += 1
        obj = pod_of(self.made, spec)
        info = project_pod(obj)
        totals = self.world.totals(obj)
        try:
            choice = self.evaluator.choose(info)
        except NoNodesAvailable:
            assert not self.world.nodes
            return
        except FitError as error:
            self.check_failure(obj, totals, error)
            return
        assert choice.node.name in totals, (choice.node.name, totals)
        assert totals[choice.node.name] == max(totals.values())
        if len(totals) > 1 or choice.score != INFEASIBLE:
            assert choice.score == totals[choice.node.name]
        explained = self.evaluator.score_one(info, choice.node, choice.tops, choice.wide)
        assert sum(score * weight for _, score, weight in explained) == totals[choice.node.name]
        self.cache.assume(info, choice.node.name)
        self.world.running.setdefault(choice.node.name, []).append(obj)
        self.placed.append((info, obj, choice.node.name))

    def check_failure(self, obj: dict[str, Any], totals: dict[str, int], error: FitError) -> None:
        assert not totals
        counted: dict[str, int] = {}
        for name in self.world.nodes:
            for reason in self.world.reasons(obj, name):
                counted[reason] = counted.get(reason, 0) + 1
        assert error.diagnosis.reasons == counted

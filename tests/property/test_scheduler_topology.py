"""Spread over topologies and affinity between pods: decisions as upstream's source has them, counts as a recount gives.

After any interleaving of pods assumed, forgotten, confirmed, relabelled and deleted, of nodes and namespaces that come,
change and go, each count that is kept equals what counting again gives, and each decision that of a plain reference.
"""

from __future__ import annotations

import random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from scheduler_laws import check_counts
from scheduler_reference import Lent
from topology_reference import HOSTNAME, PREFERRED, REQUIRED, SYSTEM_DEFAULTS, Cluster, Obj

from minikube_py.client.rest import REPLICA_SETS, SERVICES
from minikube_py.scheduler.cache import Cache
from minikube_py.scheduler.config import PluginSet, ProfileConfig
from minikube_py.scheduler.evaluate import Evaluator
from minikube_py.scheduler.explaining import verdicts
from minikube_py.scheduler.framework import FitError, NoNodesAvailable, Status
from minikube_py.scheduler.objects import PodInfo, project_node, project_pod
from minikube_py.scheduler.owners import by_labels, by_selector
from minikube_py.scheduler.preparing import Rejected
from minikube_py.scheduler.profile import Profile

ZONE = "topology.kubernetes.io/zone"
KEYS = (ZONE, HOSTNAME, "rack")
NAMESPACES = ("a", "b", "c")
VALUES = ("x", "y", "")
LABELS = st.one_of(
    st.just({"app": "x"}),
    st.sampled_from(({"app": "x", "tier": "y"}, {"app": "x", "tier": "x"})),
    st.dictionaries(st.sampled_from(("app", "tier")), st.sampled_from(VALUES), max_size=2),
)

SELECTORS = st.one_of(
    st.just({"matchLabels": {"app": "x"}}),
    st.none(),
    st.just({}),
    st.builds(lambda labels: {"matchLabels": labels}, LABELS),
    st.builds(
        lambda key, op, values: {
            "matchExpressions": [{"key": key, "operator": op, **({"values": values} if op in ("In", "NotIn") else {})}]
        },
        st.sampled_from(("app", "tier")),
        st.sampled_from(("In", "NotIn", "Exists", "DoesNotExist")),
        st.lists(st.sampled_from(VALUES), min_size=1, max_size=2, unique=True),
    ),
)
NODES = st.builds(
    lambda i, labels, taints: {
        "metadata": {"name": f"n{i}", "uid": f"n{i}", "labels": labels},
        "spec": {"taints": taints},
        "status": {"allocatable": {"pods": "110"}},
    },
    st.integers(0, 4),
    st.one_of(
        st.builds(
            lambda zone, rack, i: {ZONE: zone, "rack": rack, HOSTNAME: f"h{i}"},
            st.sampled_from("pq"),
            st.sampled_from("rs"),
            st.integers(0, 4),
        ),
        st.dictionaries(st.sampled_from(KEYS), st.sampled_from(("p", "q", "")), max_size=3),
    ),
    st.lists(
        st.builds(
            lambda key, effect: {"key": key, "value": "", "effect": effect},
            st.sampled_from("kl"),
            st.sampled_from(("NoSchedule", "NoExecute", "PreferNoSchedule")),
        ),
        max_size=1,
    ),
)
CONSTRAINTS = st.fixed_dictionaries(
    {
        "maxSkew": st.integers(1, 3),
        "topologyKey": st.sampled_from(KEYS),
        "whenUnsatisfiable": st.sampled_from(("DoNotSchedule", "ScheduleAnyway")),
    },
    optional={
        "labelSelector": SELECTORS,
        "minDomains": st.integers(1, 4),
        "nodeAffinityPolicy": st.sampled_from(("Honor", "Ignore")),
        "nodeTaintsPolicy": st.sampled_from(("Honor", "Ignore")),
        "matchLabelKeys": st.lists(st.sampled_from(("app", "tier")), max_size=2, unique=True),
    },
)
TERMS = st.fixed_dictionaries(
    {"topologyKey": st.sampled_from(KEYS)},
    optional={
        "labelSelector": SELECTORS,
        "namespaces": st.lists(st.sampled_from(NAMESPACES), max_size=2, unique=True),
        "namespaceSelector": SELECTORS.filter(lambda selector: selector is not None),
    },
)
WEIGHTED = st.builds(lambda w, t: {"weight": w, "podAffinityTerm": t}, st.integers(1, 100), TERMS)
AFFINITIES = st.fixed_dictionaries(
    {}, optional={REQUIRED: st.lists(TERMS, max_size=2), PREFERRED: st.lists(WEIGHTED, max_size=2)}
)
SPREADS = st.fixed_dictionaries(
    {},
    optional={
        "topologySpreadConstraints": st.lists(CONSTRAINTS, min_size=1, max_size=3),
        "nodeSelector": st.just({"rack": "r"}),
        "tolerations": st.just([{"key": "k", "operator": "Exists"}]),
    },
)
NEIGHBOURS = st.fixed_dictionaries(
    {"affinity": st.fixed_dictionaries({}, optional={"podAffinity": AFFINITIES, "podAntiAffinity": AFFINITIES})}
)
OWNED = st.sampled_from((None, "x", "y"))


def shapes(specs: st.SearchStrategy[Obj]) -> st.SearchStrategy[list[tuple[Any, ...]]]:
    """(namespace, labels, spec, owner) of pods."""
    return st.lists(st.tuples(st.sampled_from(NAMESPACES[:2]), LABELS, specs, OWNED), min_size=2, max_size=4)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(("assume", "three", "three", "bound")), st.integers(0, 3)),
        st.tuples(st.sampled_from(("assume", "three", "three", "bound")), st.integers(0, 3)),
        st.tuples(st.sampled_from(("assume", "three", "three", "bound")), st.integers(0, 3)),
        st.tuples(st.sampled_from(("forget", "confirm", "delete", "deleting", "dry run")), st.integers(0, 20)),
        st.tuples(st.just("relabel"), st.tuples(st.integers(0, 20), LABELS)),
        st.tuples(st.just("node"), NODES),
        st.tuples(st.just("drop node"), st.integers(0, 4)),
        st.tuples(st.just("namespace"), st.tuples(st.sampled_from(NAMESPACES), LABELS)),
        st.tuples(st.just("drop namespace"), st.sampled_from(NAMESPACES)),
        st.tuples(st.just("service"), st.tuples(st.sampled_from(NAMESPACES), LABELS)),
    ),
    max_size=25,
)


class Run:
    """Ours and the reference, side by side. `plugins`: those that filter and score, with their weights."""

    def __init__(self, plugins: tuple[tuple[str, int], ...], args: dict[str, dict[str, Any]]) -> None:
        self.cluster = Cluster()
        self.cache = Cache()
        self.args = args
        self.lent = Lent(self.cache)
        lent: Any = self.lent
        sets = {"multiPoint": PluginSet((("PrioritySort", 0), ("DefaultBinder", 0), *plugins), frozenset("*"))}
        self.profile = Profile(ProfileConfig(plugins=sets, plugin_args=args), lent)
        self.evaluator = Evaluator(self.profile, self.cache.columns, random.Random(5), 100)
        self.weights = dict(plugins)
        self.pods: dict[str, Obj] = {}
        self.where: dict[str, str] = {}
        self.made = 0

    # --- steps ------------------------------------------------------------------------------------------------------

    def play(self, first: list[Obj], shapes: list[tuple[Any, ...]], steps: list[tuple[str, Any]]) -> None:
        for obj in first:
            self.node(obj)
        for owner in ("x", "y"):
            selector = {"matchLabels": {"tier": owner}}
            metadata = {"name": owner, "namespace": "a", "uid": owner}
            self.cluster.owners["a", owner] = {"metadata": metadata, "spec": {"selector": selector}}
            replica_sets = self.lent.informer(REPLICA_SETS, by_selector)
            replica_sets._put(f"a/{owner}", by_selector(self.cluster.owners["a", owner]))
        # What most pods and selectors name is there from the beginning.
        for name, labels in (("a", {"app": "x"}), ("b", {"app": "x", "tier": "y"})):
            self.namespace((name, labels))
        for what, value in steps:
            if what in ("assume", "three", "bound"):
                for _ in range(3 if what == "three" else 1):
                    self.arrive(self.pod(shapes[value % len(shapes)]), what != "bound")
            elif what in ("forget", "confirm", "delete", "deleting", "dry run") and self.pods:
                names = sorted(self.pods)
                getattr(self, what.replace(" ", "_"))(names[value % len(names)])
            elif what == "relabel" and self.pods:
                self.relabel(sorted(self.pods)[value[0] % len(self.pods)], value[1])
            elif what == "node":
                self.node(value)
            elif what == "drop node":
                self.cluster.nodes.pop(f"n{value}", None)
                self.cache.remove_node(f"n{value}")
            elif what in ("namespace", "drop namespace", "service"):
                getattr(self, what.replace(" ", "_"))(value)
        check_counts(self.cache.columns)
        for shape in shapes:
            self.decide(self.pod(shape))
        for asking in shapes:
            for rival in shapes:
                self.rival(self.pod(rival), self.pod(asking))
        for uid in sorted(self.pods):
            self.dry_run(uid)
        check_counts(self.cache.columns)

    def pod(self, shape: tuple[Any, ...]) -> Obj:
        namespace, labels, spec, owner = shape
        self.made += 1
        metadata: Obj = {"name": f"p{self.made}", "namespace": namespace, "uid": f"p{self.made}", "labels": labels}
        if owner is not None:
            kind = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": owner, "controller": True}
            metadata["ownerReferences"] = [kind]
        return {"metadata": metadata, "spec": {"containers": [], **spec}, "status": {}}

    def node(self, obj: Obj) -> None:
        self.cluster.nodes[obj["metadata"]["name"]] = obj
        self.cache.put_node(project_node(obj))

    def arrive(self, obj: Obj, assumed: bool) -> None:
        node = self.decide(obj)
        if node is None:
            return
        uid = obj["metadata"]["uid"]
        self.pods[uid], self.where[uid] = obj, node
        self.cluster.running.setdefault(node, []).append(obj)
        if assumed:
            self.cache.assume(project_pod(obj), node)
        else:
            self.confirm(uid)

    def confirm(self, uid: str) -> None:
        """The pod as the informer has it."""
        obj = self.pods[uid]
        self.cache.put_pod(project_pod({**obj, "spec": {**obj["spec"], "nodeName": self.where[uid]}}))

    def forget(self, uid: str) -> None:
        if self.cache.forget(uid):
            self.gone(uid)

    def delete(self, uid: str) -> None:
        self.cache.remove_pod(uid)
        self.gone(uid)

    def gone(self, uid: str) -> None:
        self.cluster.running[self.where.pop(uid)].remove(self.pods.pop(uid))

    def replaced(self, uid: str, **metadata: Any) -> None:
        old = self.pods[uid]
        new = self.pods[uid] = {**old, "metadata": {**old["metadata"], **metadata}}
        running = self.cluster.running[self.where[uid]]
        running[running.index(old)] = new
        self.confirm(uid)

    def deleting(self, uid: str) -> None:
        self.replaced(uid, deletionTimestamp="2026-01-01T00:00:00Z")

    def relabel(self, uid: str, labels: dict[str, str]) -> None:
        self.replaced(uid, labels=labels)

    def namespace(self, value: tuple[str, dict[str, str]]) -> None:
        self.cluster.namespaces[value[0]] = value[1]
        self.cache.columns.topology.put_namespace(*value)

    def drop_namespace(self, name: str) -> None:
        self.cluster.namespaces.pop(name, None)
        self.cache.columns.topology.remove_namespace(name)

    def service(self, value: tuple[str, dict[str, str]]) -> None:
        namespace, selector = value
        name = f"s{len(self.cluster.services) % 2}"
        key = f"{namespace}/{name}"
        service = {"metadata": {"name": name, "namespace": namespace, "uid": key}, "spec": {"selector": selector}}
        others = [o for o in self.cluster.services if o["metadata"]["uid"] != key]
        self.cluster.services = [*others, service]
        self.lent.informer(SERVICES, by_labels)._put(key, by_labels(service))

    # --- decisions --------------------------------------------------------------------------------------------------

    def expected(self, obj: Obj) -> tuple[dict[str, str], dict[str, int]]:
        """Reasons by node that is turned down, and totals of the others."""
        args = self.args.get("PodTopologySpread", {})
        of_the_system = args.get("defaultingType", "System") == "System"
        defaults = SYSTEM_DEFAULTS if of_the_system else args.get("defaultConstraints", [])
        reasons: dict[str, str] = {}
        scores: dict[str, dict[str, int]] = {}
        if "InterPodAffinity" in self.weights:
            reasons |= self.cluster.affinity_reasons(obj)
        if "PodTopologySpread" in self.weights:
            reasons |= self.cluster.spread_reasons(obj, defaults)
        if "NodeAffinity" in self.weights:
            reasons |= self.cluster.selector_reasons(obj)
        fitting = [name for name in self.cluster.nodes if name not in reasons]
        if "PodTopologySpread" in self.weights:
            scores["PodTopologySpread"] = self.cluster.spread_scores(obj, fitting, defaults, of_the_system)
        if "InterPodAffinity" in self.weights:
            own = self.args.get("InterPodAffinity", {})
            ignore = own.get("ignorePreferredTermsOfExistingPods", False)
            hard = own.get("hardPodAffinityWeight", 1)
            scores["InterPodAffinity"] = self.cluster.affinity_scores(obj, fitting, hard, ignore)
        totals = {
            name: sum(self.weights[plugin] * given.get(name, 0) for plugin, given in scores.items()) for name in fitting
        }
        return reasons, totals

    def decide(self, obj: Obj) -> str | None:
        """Where the pod goes, the same as by the reference; None for nowhere."""
        info = project_pod(obj)
        reasons, totals = self.expected(obj)
        try:
            choice = self.evaluator.choose(info)
        except NoNodesAvailable:
            assert not self.cluster.nodes
            return None
        except FitError as error:
            counted: dict[str, int] = {}
            for reason in reasons.values():
                counted[reason] = counted.get(reason, 0) + 1
            assert error.diagnosis.reasons == counted
            assert not totals
            return None
        self.check_one_by_one(info, reasons)
        ranked = verdicts(self.evaluator, info)
        assert {each.node.name: each.total for each in ranked if each.rejected is None} == totals
        assert totals[choice.node.name] == max(totals.values())
        if len(totals) > 1:
            assert choice.score == totals[choice.node.name]
        return choice.node.name

    def check_one_by_one(self, info: PodInfo, reasons: dict[str, str]) -> None:
        """The per-node form of the filters says the same, with its reason."""
        try:
            prepared = self.evaluator.prepare(info)
        except Rejected:
            return
        for name in self.cluster.nodes:
            node = self.cache.columns.by_name[name]
            found: list[Status] = []
            for _, plugin in prepared.filters:
                status = plugin.filter(prepared.state, info, node)
                if status is not None:
                    found.append(status)
                    break
            assert (found[0].message if found else None) == reasons.get(name)

    def dry_run(self, uid: str) -> None:
        """What the filters say once a pod is supposed gone, as preemption asks, is what they say when it is."""
        obj, name = self.pods[uid], self.where[uid]
        if name not in self.cluster.nodes:
            return
        victim = next(p for p in self.cache.columns.by_name[name].pods.values() if p.uid == uid)
        asking = {**obj, "metadata": {**obj["metadata"], "name": "asks", "uid": "asks"}}
        for deep in (True, False):
            info = project_pod(asking)
            prepared = self.evaluator.prepare(info)
            state, node = prepared.state.clone(), self.cache.columns.by_name[name]
            if obj["metadata"].get("deletionTimestamp") and "PodTopologySpread" in self.weights:
                return  # upstream supposes one more gone than it had counted
            for _, plugin in prepared.filters:
                if plugin.name == "NodeAffinity":
                    continue
                plugin.remove_pod(state, info, victim, node)
                if deep:
                    plugin.add_pod(state, info, victim, node)
            found = {
                plugin.name: status.message
                for _, plugin in prepared.filters
                if (status := plugin.filter(state, info, node)) is not None
            }
            if deep:
                before = {
                    plugin.name: status.message
                    for _, plugin in prepared.filters
                    if (status := plugin.filter(prepared.state, info, node)) is not None
                }
                assert found == before
                continue
            running = self.cluster.running[name]
            at = running.index(obj)
            running.pop(at)
            reason = self.expected(asking)[0].get(name)
            running.insert(at, obj)
            if any("labelSelector" in c and not c["labelSelector"] for c in spread_of(asking)):
                return  # upstream counts nothing for an empty selector, but supposes every pod in it gone
            assert next(iter(found.values()), None) == reason


    def rival(self, obj: Obj, asking: Obj) -> None:
        """What the filters say of each node once a nominated pod is supposed there is what they say when it is."""
        if any("labelSelector" in c and not c["labelSelector"] for c in spread_of(asking)):
            return  # upstream counts nothing for an empty selector, but supposes every pod in it there
        info, rival = project_pod(asking), project_pod(obj)
        try:
            prepared = self.evaluator.prepare(info)
        except (Rejected, NoNodesAvailable):
            return
        if "InterPodAffinity" in self.weights and "InterPodAffinity" not in dict(prepared.filters):
            return  # upstream leaves it out where no pod that runs has a term, whatever the nominated one has
        for name in self.cluster.nodes:
            state, node = prepared.state.clone(), self.cache.columns.by_name[name]
            for _, plugin in prepared.filters:
                if plugin.name != "NodeAffinity":
                    plugin.add_pod(state, info, rival, node)
            said = (plugin.filter(state, info, node) for _, plugin in prepared.filters)
            found = next((status.message for status in said if status is not None), None)
            self.cluster.running.setdefault(name, []).append(obj)
            expected = self.expected(asking)[0].get(name)
            self.cluster.running[name].pop()
            assert found == expected


def spread_of(obj: Obj) -> list[Obj]:
    found: list[Obj] = obj["spec"].get("topologySpreadConstraints") or []
    return found


SPREAD_ARGS = st.sampled_from(
    (
        {},
        {"defaultingType": "List"},
        {
            "defaultingType": "List",
            "defaultConstraints": [
                {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule"},
                {"maxSkew": 2, "topologyKey": "rack", "whenUnsatisfiable": "ScheduleAnyway"},
                {"maxSkew": 1, "topologyKey": HOSTNAME, "whenUnsatisfiable": "ScheduleAnyway"},
            ],
        },
    )
)


@settings(max_examples=300)
@given(st.lists(NODES, max_size=5), shapes(SPREADS), STEPS, SPREAD_ARGS)
def test_spread_is_as_upstreams_source_has_it(first: Any, shapes: Any, steps: Any, args: Any) -> None:
    run = Run((("NodeAffinity", 1), ("PodTopologySpread", 2)), {"PodTopologySpread": args})
    run.play(first, shapes, steps)


def test_only_domains_with_a_fitting_node_weigh() -> None:
    """Three pods in one zone and one in another score otherwise if a third zone, where nothing fits, counts."""
    labels = [{ZONE: zone, "rack": rack, HOSTNAME: f"h{i}"} for i, (zone, rack) in enumerate(("pr", "qr", "os"))]
    nodes: list[Obj] = [
        {"metadata": {"name": f"n{i}", "uid": f"n{i}", "labels": each}, "spec": {}, "status": {}}
        for i, each in enumerate(labels)
    ]
    soft = {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "ScheduleAnyway"}
    soft["labelSelector"] = {"matchLabels": {"app": "x"}}
    specs: list[Obj] = [{"nodeSelector": {HOSTNAME: f"h{i}"}} for i in range(2)]
    specs.append({"nodeSelector": {"rack": "r"}, "topologySpreadConstraints": [soft]})
    shapes = [("a", {"app": "x"}, spec, None) for spec in specs]
    run = Run((("NodeAffinity", 1), ("PodTopologySpread", 2)), {})
    run.play(nodes, shapes, [("assume", which) for which in (0, 0, 0, 1, 2)])


AFFINITY_ARGS = st.fixed_dictionaries(
    {},
    optional={
        "hardPodAffinityWeight": st.sampled_from((0, 1, 50)),
        "ignorePreferredTermsOfExistingPods": st.booleans(),
    },
)


@settings(max_examples=300)
@given(st.lists(NODES, max_size=5), shapes(st.one_of(NEIGHBOURS, NEIGHBOURS, SPREADS)), STEPS, AFFINITY_ARGS)
def test_affinity_is_as_upstreams_source_has_it(first: Any, shapes: Any, steps: Any, args: Any) -> None:
    run = Run((("InterPodAffinity", 2),), {"InterPodAffinity": args})
    run.play(first, shapes, steps)

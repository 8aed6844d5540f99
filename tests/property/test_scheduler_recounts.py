"""What the scheduler counts, after any interleaving of what it may be told: the same as counting again.

Pods are drawn to share what is counted: ports on several addresses, claims, labels, specs, priorities. They are
assumed, confirmed (elsewhere perhaps, resized, relabelled), forgotten and deleted, while nodes come, change, go and
come back.
"""

from __future__ import annotations

import random
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st
from scheduler_laws import check_counts, check_forms, check_kept, check_nominations, same_columns
from scheduler_reference import Lent
from scripts_of_scheduling import CPU, HOSTNAME, MEMORY, ZONE, labels, node_affinity, taints, tolerations

from minikube_py.scheduler import cached_results
from minikube_py.scheduler.cache import Cache
from minikube_py.scheduler.config import ProfileConfig
from minikube_py.scheduler.evaluate import Evaluator
from minikube_py.scheduler.framework import FitError, NoNodesAvailable, PluginError
from minikube_py.scheduler.nominations import Nominations
from minikube_py.scheduler.objects import NodeInfo, PodInfo, project_node, project_pod
from minikube_py.scheduler.profile import Profile

Obj = dict[str, Any]
NODES = 5
IMAGES = ({"names": ["x:latest"], "sizeBytes": 90 << 20}, {"names": ["y:1", "z:1"], "sizeBytes": 900 << 20})


FACETS = ("labels", "taints", "allocatable", "images", "unschedulable")


def node_object(rng: random.Random, rarely: float, before: Obj | None = None) -> Obj:
    """`rarely`: the share of nodes that are plain. With `before` one facet alone may be another."""
    found = whole_node(rng, before["metadata"]["name"] if before else f"n{rng.randrange(NODES)}")
    if before is None:
        if rng.random() < rarely:
            found["spec"] = {}
            found["metadata"]["labels"] = {HOSTNAME: found["metadata"]["name"]}
        return found
    facet = rng.choice(FACETS)
    for part, names in (("metadata", ("labels",)), ("spec", ("taints", "unschedulable")), ("status", FACETS)):
        kept = {key: value for key, value in before[part].items() if not (key == facet and key in names)}
        found[part] = {**{key: found[part][key] for key in names if key == facet and key in found[part]}, **kept}
    return found


def whole_node(rng: random.Random, name: str) -> Obj:
    amounts = {"cpu": rng.choice(("1", "4")), "memory": rng.choice(("0", "1Gi", "8Gi")), "pods": rng.choice(("2", "9"))}
    if rng.random() < 0.4:
        amounts["example.com/gpu"] = "2"
    status = {"allocatable": amounts, "images": rng.sample(IMAGES, rng.randint(0, 2))}
    spec: Obj = {"taints": taints(rng), "unschedulable": rng.random() < 0.1}
    metadata = {"name": name, "uid": name, "labels": {HOSTNAME: name, **labels(rng)}}
    return {"metadata": metadata, "spec": spec, "status": status}


def spec_of(rng: random.Random) -> Obj:
    requests = {"cpu": rng.choice(CPU[:6]), "memory": rng.choice(MEMORY[:4])}
    if rng.random() < 0.3:
        requests["example.com/gpu"] = "1"
    container: Obj = {"name": "c", "image": rng.choice("xyz"), "resources": {"requests": requests}}
    if rng.random() < 0.4:
        container["ports"] = [
            {"containerPort": 80, "hostPort": rng.choice((80, 443)), "protocol": "TCP", "hostIP": rng.choice(HOSTS)}
            for _ in range(rng.choice((1, 1, 2)))
        ]
    found: Obj = {"containers": [container], "tolerations": tolerations(rng)}
    if rng.random() < 0.4:
        named = rng.sample(("a", "b"), rng.choice((1, 1, 2)))
        found["volumes"] = [{"name": each, "persistentVolumeClaim": {"claimName": each}} for each in named]
    affinity: Obj = {"nodeAffinity": node_affinity(rng)} if rng.random() < 0.3 else {}
    if rng.random() < 0.3:
        term = {
            "topologyKey": rng.choice((ZONE, HOSTNAME)),
            "labelSelector": {"matchLabels": {"app": rng.choice("ab")}},
        }
        kind = rng.choice(("podAffinity", "podAntiAffinity"))
        affinity[kind] = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 5, "podAffinityTerm": term}]}
    if affinity:
        found["affinity"] = affinity
    return found


HOSTS = ("", "127.0.0.1", "10.0.0.1")


class Books:
    """A cache, and beside it what it last heard of each node and pod."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.cache = Cache()
        lent: Any = Lent(self.cache)
        self.evaluator = Evaluator(Profile(ProfileConfig(), lent), self.cache.columns, random.Random(3), 100)
        self.shapes = [spec_of(rng) for _ in range(3)]
        self.rarely = rng.choice((0.0, 0.9, 1.0))
        self.nodes: dict[str, NodeInfo] = {}
        self.objects: dict[str, Obj] = {}
        self.assumed: dict[str, tuple[Obj, PodInfo, str]] = {}
        self.bound: dict[str, tuple[Obj, PodInfo]] = {}
        self.made = 0

    def pod(self) -> Obj:
        self.made += 1
        name = f"p{self.made}"
        own = {"app": self.rng.choice("ab")}
        spec = {**self.rng.choice(self.shapes), "priority": self.rng.choice((-5, 0, 0, 7))}
        return {"metadata": {"name": name, "namespace": "d", "uid": name, "labels": own}, "spec": spec, "status": {}}

    def asking(self) -> Obj:
        """One that needs nothing but nodes and pods."""
        obj = self.pod()
        obj["spec"].pop("volumes", None)
        return obj

    def step(self) -> None:
        what = self.rng.choice(STEPS)
        getattr(self, what)()

    def put_node(self) -> None:
        self._put(node_object(self.rng, self.rarely))

    def change_node(self) -> None:
        if self.objects:
            self._put(node_object(self.rng, 0.0, self.rng.choice(list(self.objects.values()))))

    def _put(self, obj: Obj) -> None:
        node = project_node(obj)
        self.objects[node.name] = obj
        self.nodes[node.name] = node
        self.cache.put_node(node)

    def drop_node(self) -> None:
        name = f"n{self.rng.randrange(NODES)}"
        self.nodes.pop(name, None)
        self.objects.pop(name, None)
        self.cache.remove_node(name)

    def assume(self) -> None:
        obj = self.pod()
        info, name = project_pod(obj), f"n{self.rng.randrange(NODES)}"
        self.assumed[info.uid] = obj, info, name
        self.cache.assume(info, name)

    def choose(self) -> None:
        """What is kept of a spec serves the next pod like it."""
        obj = self.asking()
        try:
            name = self.evaluator.choose(project_pod(obj)).node.name
        except (FitError, NoNodesAvailable, PluginError):
            return
        info = project_pod(obj)
        self.assumed[info.uid] = obj, info, name
        self.cache.assume(info, name)

    def confirm(self) -> None:
        if self.assumed:
            uid = self.rng.choice(list(self.assumed))
            obj, _, name = self.assumed.pop(uid)
            if self.rng.random() < 0.2:
                name = f"n{self.rng.randrange(NODES)}"
            self.tell({**obj, "spec": {**obj["spec"], "nodeName": name}})

    def appear(self) -> None:
        obj = self.pod()
        self.tell({**obj, "spec": {**obj["spec"], "nodeName": f"n{self.rng.randrange(NODES)}"}})

    def tell(self, obj: Obj) -> None:
        info = project_pod(obj)
        self.bound[info.uid] = obj, info
        self.cache.put_pod(info)

    def change(self) -> None:
        if not self.bound:
            return
        obj, _ = self.bound[self.rng.choice(list(self.bound))]
        what = self.rng.choice(("priority", "labels", "deleting", "resized"))
        if what == "priority":
            obj = {**obj, "spec": {**obj["spec"], "priority": self.rng.choice((-5, 0, 7, 9))}}
        elif what == "labels":
            obj = {**obj, "metadata": {**obj["metadata"], "labels": {"app": self.rng.choice("abc")}}}
        elif what == "deleting":
            obj = {**obj, "metadata": {**obj["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}}
        else:
            # Volumes of a pod never change.
            fixed = {key: obj["spec"][key] for key in ("nodeName", "volumes") if key in obj["spec"]}
            obj = {**obj, "spec": {**self.rng.choice(self.shapes), "volumes": [], **fixed}}
        self.tell(obj)

    def forget(self) -> None:
        if self.assumed:
            uid = self.rng.choice(list(self.assumed))
            del self.assumed[uid]
            assert self.cache.forget(uid)

    def delete(self) -> None:
        uids = [*self.bound, *self.assumed]
        if uids:
            uid = self.rng.choice(uids)
            self.bound.pop(uid, None)
            self.assumed.pop(uid, None)
            self.cache.remove_pod(uid)

    def look(self) -> None:
        """What is built when it is first asked for is kept up from then on."""
        columns, rng = self.cache.columns, self.rng
        columns.free_row(rng.choice(("cpu", "pods", "example.com/gpu")))
        columns.label_mask(ZONE, rng.choice("ab"))
        columns.label_mask("disk", rng.choice(("ssd", "hdd", "")))
        columns.label_exists(rng.choice((ZONE, "disk", "size")))
        columns.label_ints("size")

    def check(self) -> None:
        fresh = Cache()
        for node in self.nodes.values():
            fresh.put_node(node)
        for _, info in self.bound.values():
            fresh.put_pod(info)
        for _, info, name in self.assumed.values():
            fresh.assume(info, name)
        assert self.cache.assumed == len(self.assumed)
        same_columns(self.cache.columns, fresh.columns)
        check_counts(self.cache.columns)
        if self.nodes:
            for _ in self.shapes:
                asking = project_pod(self.asking())
                check_forms(self.evaluator, asking)
                check_kept(self.evaluator, asking)


STEPS = (
    "put_node", "put_node", "change_node", "change_node", "drop_node", "assume", "choose", "choose", "confirm",
    "confirm", "appear", "appear", "change", "forget", "delete", "delete", "look",
)  # fmt: skip


@settings(max_examples=40)
@given(st.integers(0, 1 << 32), st.booleans())
def test_columns_and_what_is_kept_of_them_are_as_counted_again(seed: int, many: bool) -> None:
    books = Books(random.Random(seed))
    few, cached_results.FEW_NODES = cached_results.FEW_NODES, 0 if many else cached_results.FEW_NODES
    try:
        for _ in range(8):
            for _ in range(5):
                books.step()
            books.check()
    finally:
        cached_results.FEW_NODES = few


def pod_told(uid: str, priority: int, nominated: str) -> PodInfo:
    status = {"nominatedNodeName": nominated} if nominated else {}
    metadata = {"name": uid, "namespace": "d", "uid": uid}
    return project_pod({"metadata": metadata, "spec": {"containers": [], "priority": priority}, "status": status})


@settings(max_examples=100)
@given(st.integers(0, 1 << 32))
def test_nominations_are_those_decided_last_or_told_since(seed: int) -> None:
    """A pod counts on the node decided for it, until the API says another, or says none after it had said one."""
    rng = random.Random(seed)
    ours, told, where = Nominations(), {}, {}
    for _ in range(30):
        uid, node = f"p{rng.randrange(4)}", rng.choice(("", "n0", "n1"))
        what = rng.choice(("decided", "told", "told", "gone"))
        if what == "gone" or uid not in told:
            ours.drop(uid)
            told[uid], where[uid] = pod_told(uid, rng.randrange(3), ""), ""
        elif what == "decided":
            ours.put(told[uid], node)
            where[uid] = node
        else:
            new = pod_told(uid, told[uid].priority, node)
            ours.update(told[uid], new)
            if node or told[uid].nominated_node:
                where[uid] = node
            told[uid] = new
        check_nominations(ours)
        for name in ("n0", "n1"):
            assert sorted(pod.uid for pod in ours.on(name)) == sorted(uid for uid in where if where[uid] == name)
        asking = pod_told("p0", 1, "")
        rivals = {name: [p.uid for p in ours.on(name) if p.uid != "p0" and p.priority >= 1] for name in ("n0", "n1")}
        found = {name: [pod.uid for pod in pods] for name, pods in ours.rivals(asking).items()}
        assert found == {name: uids for name, uids in rivals.items() if uids}
        assert bool(ours) == any(where.values())


def decided(evaluator: Evaluator, obj: Obj) -> object:
    try:
        choice = evaluator.choose(project_pod(obj))
    except FitError as error:
        return error.diagnosis.reasons
    except (NoNodesAvailable, PluginError) as error:
        return repr(error)
    return choice.score, choice.feasible, choice.evaluated


@settings(max_examples=60)
@example(153, 36)  # A node with a nominated pod is gone.
@given(st.integers(0, 2**32), st.integers(5, 40))
def test_beside_nominated_pods_a_kept_result_decides_as_a_new_one(seed: int, steps: int) -> None:
    rng = random.Random(seed)
    books, nominations = Books(rng), Nominations()
    profile, columns = books.evaluator.profile, books.cache.columns
    books.evaluator = Evaluator(profile, columns, random.Random(3), 100, None, nominations)
    nominated: list[str] = []
    for _ in range(5):
        books.put_node()
    for _ in range(steps):
        what = rng.random()
        if what < 0.3:
            info = project_pod(books.asking())
            nominated.append(info.uid)
            nominations.put(info, f"n{rng.randrange(NODES)}")
        elif what < 0.5 and nominated:
            nominations.drop(nominated.pop(rng.randrange(len(nominated))))
        elif what < 0.8:
            books.step()
        obj = books.asking()
        fresh = Evaluator(profile, columns, random.Random(3), 100, None, nominations)
        assert decided(books.evaluator, obj) == decided(fresh, obj)

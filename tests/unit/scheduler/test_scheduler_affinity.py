"""InterPodAffinity: words, arguments, what wakes a pod that was turned down, and who is first of its kind."""

from __future__ import annotations

import random
from copy import copy
from typing import Any

import pytest
from scheduler_objects import node, pod
from scheduler_reference import Lent
from scheduler_world import FakeApi, ManualClock, settle

from minikube_py.scheduler.cache import Cache
from minikube_py.scheduler.config import ConfigError, ProfileConfig
from minikube_py.scheduler.framework import (
    EVENT_ASSIGNED_POD_ADD,
    EVENT_ASSIGNED_POD_DELETE,
    EVENT_NODE_ADD,
    NODE,
    UNSCHEDULED_POD,
    Action,
    ClusterChange,
    ClusterEvent,
    QueueingHint,
)
from minikube_py.scheduler.pod_terms import affinity_terms
from minikube_py.scheduler.profile import Profile
from minikube_py.scheduler.scheduler import Scheduler

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def term(key: str = "zone", **labels: str) -> dict[str, Any]:
    return {"topologyKey": key, "labelSelector": {"matchLabels": labels}}


def near(*terms: dict[str, Any]) -> dict[str, Any]:
    return {"podAffinity": {REQUIRED: list(terms)}}


def apart(*terms: dict[str, Any]) -> dict[str, Any]:
    return {"podAntiAffinity": {REQUIRED: list(terms)}}


def labelled(**labels: str) -> dict[str, Any]:
    return {"labels": labels}


class Setting:
    def __init__(self) -> None:
        self.api, self.clock = FakeApi(), ManualClock()
        self.scheduler = Scheduler(self.api, self.clock, random.Random(3))

    async def pods(self, *named: tuple[str, dict[str, Any], dict[str, Any]]) -> None:
        for name, labels, affinity in named:
            self.api.pod(name, metadata={"labels": labels}, affinity=affinity)
            await settle()

    def message(self, name: str) -> str:
        return str(self.api.condition(name)["message"]).partition(". ")[0]


async def test_words_for_each_rule_and_who_wakes_whom() -> None:
    s = Setting()
    for name, zone in (("a1", "a"), ("a2", "a"), ("b1", "b")):
        s.api.node(name, labels={"zone": zone, "host": name}, unschedulable=name == "a2")
    s.api.node("bare", unschedulable=True)
    await s.scheduler.start()
    # The first of a kind that must be near its like goes anywhere; db keeps others of its zone away.
    await s.pods(("web", {"app": "web"}, near(term(app="web"))), ("db", {"app": "db"}, apart(term(app="web"))))
    assert sorted(name for name, _ in s.api.bound) == ["db", "web"]
    assert s.api.where("web") != s.api.where("db")
    await s.pods(("far", {"app": "far"}, apart(term(app="web"), term(app="db"))))
    assert s.message("far") == (
        "0/4 nodes are available: 2 node(s) didn't match pod anti-affinity rules, 2 node(s) were unschedulable"
    )
    s.api.delete("pods", "default/far")
    await s.pods(("lone", {"app": "lone"}, near(term(app="nobody"))))
    assert s.message("lone") == (
        "0/4 nodes are available: 2 node(s) didn't match pod affinity rules, 2 node(s) were unschedulable"
    )
    s.api.node("a1", labels={"zone": "a", "host": "a1"}, unschedulable=s.api.where("web") == "a1")
    s.api.node("b1", labels={"zone": "b", "host": "b1"}, unschedulable=s.api.where("web") == "b1")
    await settle()
    await s.pods(("web2", {"app": "web"}, {}))
    assert s.message("web2") == (
        "0/4 nodes are available: 1 node(s) didn't satisfy existing pods anti-affinity rules, "
        "3 node(s) were unschedulable"
    )
    s.api.delete("pods", "default/db")
    await settle()
    await s.clock.advance(3)
    assert s.api.where("web2")
    await s.pods(("nobody", {"app": "nobody"}, {}))
    await s.clock.advance(30)
    assert s.api.where("lone") == s.api.where("nobody")
    await s.scheduler.stop()


async def test_namespaces_are_picked_by_their_labels_as_they_are_now() -> None:
    s = Setting()
    for name in ("n1", "n2"):
        s.api.node(name, labels={"host": name})
    s.api.put("namespaces", {"metadata": {"name": "default", "uid": "d"}})
    s.api.put("namespaces", {"metadata": {"name": "team", "uid": "t", "labels": {"team": "x"}}})
    await s.scheduler.start()
    s.api.put("pods", {**_bound("q", "n1")})
    await settle()
    wanted = {**term("host", app="q"), "namespaceSelector": {"matchLabels": {"team": "x"}}}
    await s.pods(("p1", {}, near(wanted)))
    assert s.api.where("p1") == "n1"
    s.api.put("namespaces", {"metadata": {"name": "team", "uid": "t", "labels": {"team": "y"}}})
    await settle()
    await s.pods(("p2", {}, near(wanted)))
    assert s.message("p2") == "0/2 nodes are available: 2 node(s) didn't match pod affinity rules"
    await s.scheduler.stop()


def _bound(name: str, where: str) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "team", "uid": name, "labels": {"app": name}}
    return {"metadata": metadata, "spec": {"nodeName": where, "containers": []}, "status": {}}


# --- arguments -------------------------------------------------------------------------------------------------------


def plugin(**args: Any) -> Any:
    lent: Any = Lent(Cache())
    return Profile(ProfileConfig(plugin_args={"InterPodAffinity": args}), lent).plugin("InterPodAffinity")


@pytest.mark.parametrize(
    ("args", "text"),
    [
        ({"hardPodAffinityWeight": -1}, "hardPodAffinityWeight: Invalid value: -1: not in valid range [0, 100]"),
        ({"hardPodAffinityWeight": 101}, "hardPodAffinityWeight: Invalid value: 101: not in valid range [0, 100]"),
    ],
)
def test_wrong_arguments_are_refused_in_upstreams_words(args: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        plugin(**args)
    assert str(caught.value) == f'initializing plugin "InterPodAffinity": {text}'


# --- hints -----------------------------------------------------------------------------------------------------------


def there(name: str, affinity: Any = None, **labels: str) -> Any:
    found = copy(pod(name, metadata=labelled(**labels), affinity=affinity))
    found.node_name = "n"
    return found


def added(new: Any) -> ClusterChange:
    return ClusterChange(EVENT_ASSIGNED_POD_ADD, None, new)


def deleted(old: Any) -> ClusterChange:
    return ClusterChange(EVENT_ASSIGNED_POD_DELETE, old, None)


def relabelled(old: Any, new: Any, resource: str = "AssignedPod") -> ClusterChange:
    return ClusterChange(ClusterEvent(resource, Action.UPDATE_POD_LABEL), old, new)


def moved(old: dict[str, str], new: dict[str, str]) -> ClusterChange:
    return ClusterChange(ClusterEvent(NODE, Action.UPDATE_NODE_LABEL), node("n", labels=old), node("n", labels=new))


def new_node(**labels: str) -> ClusterChange:
    return ClusterChange(EVENT_NODE_ADD, None, node("n", labels=labels))


NEAR, APART = near(term(service="s")), apart(term(service="s"))
BOTH_NEAR = near(term(service="s"), term(security="x"))
Z1, Z2 = {"zone": "1"}, {"zone": "2"}
# Of upstream's plugin_test.go, Test_isSchedulableAfterPodChange and Test_isSchedulableAfterNodeChange.
HINTS: list[tuple[str, dict[str, Any], ClusterChange, bool]] = [
    ("affinity, one that matches is added", NEAR, added(there("q", service="s")), True),
    ("affinity, one that does not is added", NEAR, added(there("q", service="t")), False),
    ("affinity, one that matches one term of two", BOTH_NEAR, added(there("q", service="s")), False),
    ("affinity, one that matches both", BOTH_NEAR, added(there("q", service="s", security="x")), True),
    ("affinity, one that matches is deleted", NEAR, deleted(there("q", service="s")), False),
    ("affinity, one comes to match", NEAR, relabelled(there("q"), there("q", service="s")), True),
    ("affinity, one matches no longer", NEAR, relabelled(there("q", service="s"), there("q")), False),
    ("affinity, one matches as before", NEAR, relabelled(there("q", service="s"), there("r", service="s")), False),
    ("anti-affinity, one that matches is deleted", APART, deleted(there("q", service="s")), True),
    ("anti-affinity, one that does not is deleted", APART, deleted(there("q", service="t")), False),
    ("anti-affinity, one that matches is added", APART, added(there("q", service="s")), False),
    ("anti-affinity, one matches no longer", APART, relabelled(there("q", service="s"), there("q")), True),
    ("anti-affinity, one comes to match", APART, relabelled(there("q"), there("q", service="s")), False),
    ("one with anti-affinity against it is deleted", {}, deleted(there("q", apart(term(own="p")))), True),
    ("one with anti-affinity against others is deleted", {}, deleted(there("q", apart(term(own="q")))), False),
    ("affinity, a node with the label is added", NEAR, new_node(zone="1"), True),
    ("affinity, a node without it is added", NEAR, new_node(), False),
    ("affinity, a node gets the label", NEAR, moved({}, Z1), True),
    ("affinity, a node loses it", NEAR, moved(Z1, {}), False),
    ("affinity, a node moves", NEAR, moved(Z1, Z2), True),
    ("affinity, another label of a node", NEAR, moved(Z1, {**Z1, "a": "b"}), False),
    ("anti-affinity, a node without the label is added", APART, new_node(), True),
    ("anti-affinity, a node gets the label", APART, moved({}, Z1), False),
    ("anti-affinity, a node loses it", APART, moved(Z1, {}), True),
    ("anti-affinity, a node moves", APART, moved(Z1, Z2), True),
    ("anti-affinity, another label of a node", APART, moved(Z1, {**Z1, "a": "b"}), False),
]


@pytest.mark.parametrize(("why", "affinity", "change", "helps"), HINTS, ids=[why for why, *_ in HINTS])
def test_what_wakes_a_pod_that_was_turned_down(
    why: str, affinity: dict[str, Any], change: ClusterChange, helps: bool
) -> None:
    assert hint(pod("p", metadata=labelled(own="p"), affinity=affinity), change) is helps


def hint(waiting: Any, change: ClusterChange) -> bool:
    asked = [r.hint for r in plugin().events_to_register() if r.event.matches(change.event)]
    return QueueingHint.QUEUE in [ask(waiting, change) for ask in asked]


def test_its_own_labels_help_always_and_those_of_other_waiting_pods_never() -> None:
    old, new = pod("p", affinity=NEAR), pod("p", affinity=NEAR, metadata=labelled(a="b"))
    assert hint(new, relabelled(old, new, UNSCHEDULED_POD))
    assert not hint(old, relabelled(pod("q"), pod("q", metadata=labelled(service="s")), UNSCHEDULED_POD))


def test_nothing_is_kept_of_topology_keys_that_no_node_has() -> None:
    """Each would take eight bytes of each node, and a pass over all nodes."""
    cache = Cache()
    cache.put_node(node("n", labels={"zone": "a"}))
    kept = cache.columns.topology
    wanted = pod("p", affinity=near(term(app="x"), term(app="y")))
    one, other = (each.pods for each in affinity_terms(wanted).affinity)
    for number in range(100):
        for selector, key in ((one, f"key{number}"), (other, "zone")):
            asked = kept.asked((selector,))
            asked.by_domain(kept.domains(key))
            asked.by_domain(kept.domains(key, blank=True))
    assert len(kept._domains) == 4
    assert [len(list(asked.views())) for asked in kept._asked.values()] == [2, 2]
    # Once a node has such a key, only that key is another.
    cache.put_node(node("m", labels={"key7": "b"}))
    assert kept.domains("key7").by_value(kept.asked((one,)).by_domain(kept.domains("key7")).counts) == {"b": 0}
    assert kept.domains("key7", blank=True).in_use == 2 and kept.domains("key8", blank=True).in_use == 1
    assert kept.domains("key8").placed == 0 and kept.domains("key8") is kept.domains("key9")
    cache.remove_node("m")
    assert kept.domains("key7") is kept.domains("key8")

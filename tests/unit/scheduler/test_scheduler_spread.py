"""PodTopologySpread: a Service's pods over the nodes, arguments, what wakes a pod that was turned down."""

from __future__ import annotations

import random
from copy import copy
from typing import Any

import pytest
from scheduler_objects import node, node_object, pod, pod_object
from scheduler_reference import Lent
from scheduler_world import FakeApi, ManualClock, settle

from minikube_py.client.rest import SERVICES
from minikube_py.scheduler.cache import Cache
from minikube_py.scheduler.config import ConfigError, ProfileConfig
from minikube_py.scheduler.evaluate import Evaluator
from minikube_py.scheduler.framework import (
    EVENT_ASSIGNED_POD_ADD,
    EVENT_ASSIGNED_POD_DELETE,
    EVENT_NODE_ADD,
    EVENT_NODE_DELETE,
    NODE,
    UNSCHEDULED_POD,
    Action,
    ClusterChange,
    ClusterEvent,
    QueueingHint,
)
from minikube_py.scheduler.objects import project_node, project_pod
from minikube_py.scheduler.owners import by_labels
from minikube_py.scheduler.profile import Profile
from minikube_py.scheduler.scheduler import Scheduler

ZONE = "topology.kubernetes.io/zone"
WEB = {"app": "web"}
SELECTOR = {"matchLabels": WEB}
BY_ZONE = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": SELECTOR}


def lent() -> Any:
    return Lent(Cache())


def profile(handle: Any, **args: Any) -> Profile:
    return Profile(ProfileConfig(plugin_args={"PodTopologySpread": args}), handle)


# --- by default ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("served", [True, False])
def test_the_pods_of_a_service_go_to_as_many_nodes_as_there_are(served: bool) -> None:
    handle = lent()
    evaluator = Evaluator(profile(handle), handle.columns, random.Random(2), 100)
    for i in range(12):
        labels = {"kubernetes.io/hostname": f"n{i}", ZONE: f"z{i % 3}"}
        # Big nodes score best by far, and would get all pods.
        cpu = "4" if i else "64"
        handle.cache.put_node(project_node(node_object(f"n{i}", cpu=cpu, memory="64Gi", labels=labels)))
    if served:
        service = {"metadata": {"name": "web", "namespace": "default", "uid": "u"}, "spec": {"selector": WEB}}
        handle.informer(SERVICES, by_labels)._put("default/web", by_labels(service))
    found = set()
    for i in range(12):
        info = project_pod(pod_object(f"web-{i}", cpu="100m", metadata={"labels": WEB}))
        choice = evaluator.choose(info)
        handle.cache.assume(info, choice.node.name)
        found.add(choice.node.name)
    assert (len(found) == 12) is served


# --- arguments -------------------------------------------------------------------------------------------------------

HARD = {"maxSkew": 1, "topologyKey": "node", "whenUnsatisfiable": "DoNotSchedule"}
LISTED = {"defaultingType": "List"}
REFUSED: list[tuple[dict[str, Any], str]] = [
    (
        {"defaultConstraints": [HARD]},
        'defaultingType: Invalid value: "System": when .defaultConstraints are not empty',
    ),
    ({"defaultingType": "Foo"}, 'defaultingType: Unsupported value: "Foo": supported values: "System", "List"'),
    (
        {**LISTED, "defaultConstraints": [{**HARD, "maxSkew": -1}]},
        "defaultConstraints[0].maxSkew: Invalid value: -1: not in valid range (0, inf)",
    ),
    (
        {**LISTED, "defaultConstraints": [{**HARD, "topologyKey": ""}]},
        "defaultConstraints[0].topologyKey: Required value: can not be empty",
    ),
    (
        {**LISTED, "defaultConstraints": [{**HARD, "whenUnsatisfiable": ""}]},
        "defaultConstraints[0].whenUnsatisfiable: Required value: can not be empty",
    ),
    (
        {**LISTED, "defaultConstraints": [{**HARD, "whenUnsatisfiable": "unknown action"}]},
        'defaultConstraints[0].whenUnsatisfiable: Unsupported value: "unknown action": supported values: '
        '"DoNotSchedule", "ScheduleAnyway"',
    ),
    ({**LISTED, "defaultConstraints": [HARD, HARD]}, 'defaultConstraints[1]: Duplicate value: "{node, DoNotSchedule}"'),
    (
        {**LISTED, "defaultConstraints": [{**HARD, "labelSelector": {"matchLabels": {"a": "b"}}}]},
        "defaultConstraints[0].labelSelector: Forbidden: constraint must not define a selector, "
        "as they deduced for each pod",
    ),
    (
        {**LISTED, "defaultConstraints": [{**HARD, "maxSkew": 0, "topologyKey": ""}]},
        "[defaultConstraints[0].maxSkew: Invalid value: 0: not in valid range (0, inf), "
        "defaultConstraints[0].topologyKey: Required value: can not be empty]",
    ),
]


@pytest.mark.parametrize(("args", "text"), REFUSED, ids=[text[:40] for _, text in REFUSED])
def test_wrong_arguments_are_refused_in_upstreams_words(args: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        profile(lent(), **args)
    assert str(caught.value) == f'initializing plugin "PodTopologySpread": {text}'


# --- hints -----------------------------------------------------------------------------------------------------------

LABELLED = Action.UPDATE_NODE_LABEL
TAINTED = Action.UPDATE_NODE_TAINT


def there(name: str, namespace: str = "default", **labels: str) -> Any:
    found = copy(pod(name, namespace=namespace, metadata={"labels": labels}))
    found.node_name = "n"
    return found


def added(new: Any) -> ClusterChange:
    return ClusterChange(EVENT_ASSIGNED_POD_ADD, None, new)


def deleted(old: Any) -> ClusterChange:
    return ClusterChange(EVENT_ASSIGNED_POD_DELETE, old, None)


def relabelled(old: Any, new: Any) -> ClusterChange:
    return ClusterChange(ClusterEvent("AssignedPod", Action.UPDATE_POD_LABEL), old, new)


def renewed(action: Action, old: Any, new: Any) -> ClusterChange:
    return ClusterChange(ClusterEvent(NODE, action), old, new)


# Of upstream's plugin_test.go, Test_isSchedulableAfterPodChange and Test_isSchedulableAfterNodeChange.
HINTS: list[tuple[str, ClusterChange, bool]] = [
    ("a pod that matches is added", added(there("q", app="web")), True),
    ("a pod that does not match is added", added(there("q", app="db")), False),
    ("a pod of another namespace is added", added(there("q", "other", app="web")), False),
    ("a pod that matches is deleted", deleted(there("q", app="web")), True),
    ("a pod that does not match is deleted", deleted(there("q", app="db")), False),
    ("a pod comes to match", relabelled(there("q", app="db"), there("q", app="web")), True),
    ("a pod matches no longer", relabelled(there("q", app="web"), there("q")), True),
    ("a pod matches as before", relabelled(there("q", app="web"), there("q", app="web", x="y")), False),
    ("a node with the label is added", ClusterChange(EVENT_NODE_ADD, None, node("n", labels={"zone": "a"})), True),
    ("a node without it is added", ClusterChange(EVENT_NODE_ADD, None, node("n")), False),
    ("a node with the label is gone", ClusterChange(EVENT_NODE_DELETE, node("n", labels={"zone": "a"})), True),
    ("a node without it is gone", ClusterChange(EVENT_NODE_DELETE, node("n")), False),
    ("a node gets the label", renewed(LABELLED, node("n"), node("n", labels={"zone": "a"})), True),
    ("a node loses it", renewed(LABELLED, node("n", labels={"zone": "a"}), node("n")), True),
    ("a node moves", renewed(LABELLED, node("n", labels={"zone": "a"}), node("n", labels={"zone": "b"})), True),
    (
        "another label of it",
        renewed(LABELLED, node("n", labels={"zone": "a"}), node("n", labels={"zone": "a", "x": "y"})),
        False,
    ),
    (
        "a taint of it",
        renewed(TAINTED, node("n", labels={"zone": "a"}, taints=("k:NoSchedule",)), node("n", labels={"zone": "a"})),
        True,
    ),
    ("a taint of another", renewed(TAINTED, node("n", taints=("k:NoSchedule",)), node("n")), False),
]


@pytest.mark.parametrize(("why", "change", "helps"), HINTS, ids=[why for why, _, _ in HINTS])
def test_what_wakes_a_pod_that_was_turned_down(why: str, change: ClusterChange, helps: bool) -> None:
    waiting = pod("p", metadata={"labels": WEB}, topologySpreadConstraints=[BY_ZONE])
    assert hint(waiting, change) is helps


def hint(waiting: Any, change: ClusterChange) -> bool:
    plugin: Any = profile(lent()).plugin("PodTopologySpread")
    asked = [r.hint for r in plugin.events_to_register() if r.event.matches(change.event)]
    return QueueingHint.QUEUE in [ask(waiting, change) for ask in asked]


@pytest.mark.parametrize(("policy", "helps"), [("Honor", True), ("Ignore", False)])
def test_its_own_tolerations_help_where_taints_count(policy: str, helps: bool) -> None:
    constraints = [{**BY_ZONE, "nodeTaintsPolicy": policy}]
    old = pod("p", topologySpreadConstraints=constraints)
    new = pod("p", topologySpreadConstraints=constraints, tolerations=[{"key": "k", "operator": "Exists"}])
    change = ClusterChange(ClusterEvent(UNSCHEDULED_POD, Action.UPDATE_POD_TOLERATION), old, new)
    assert hint(new, change) is helps


async def test_a_pod_that_waits_for_another_zone_goes_once_there_is_one() -> None:
    api, clock = FakeApi(), ManualClock()
    api.node("n1", labels={"zone": "a"})
    api.node("bare")
    constraints = [{**BY_ZONE, "minDomains": 2}]
    scheduler = Scheduler(api, clock, random.Random(3))
    await scheduler.start()
    for name in ("p1", "p2"):
        api.pod(name, metadata={"labels": WEB}, topologySpreadConstraints=constraints)
    await settle()
    assert api.bound == [("p1", "n1")]
    assert api.condition("p2")["message"].startswith(
        "0/2 nodes are available: 1 node(s) didn't match pod topology spread constraints, "
        "1 node(s) didn't match pod topology spread constraints (missing required label). "
    )
    api.node("n2", labels={"zone": "b"})
    await settle()
    await clock.advance(3)
    assert api.bound == [("p1", "n1"), ("p2", "n2")]
    await scheduler.stop()


async def test_a_key_that_no_node_had_counts_once_nodes_have_it() -> None:
    """What was counted without it is of no use any more."""
    api, clock = FakeApi(), ManualClock()
    for name in "abc":
        api.node(name)
    scheduler = Scheduler(api, clock, random.Random(3))
    await scheduler.start()
    for name in "pqrs":
        api.pod(name, metadata={"labels": WEB}, topologySpreadConstraints=[{**BY_ZONE, "topologyKey": "rack"}])
    await settle()
    assert not api.bound
    for name, rack in zip("abc", "xyz", strict=True):
        api.node(name, labels={"rack": rack})
    await settle()
    await clock.advance(60)
    assert len(api.bound) == 4 and {node for _, node in api.bound} == {"a", "b", "c"}
    await scheduler.stop()

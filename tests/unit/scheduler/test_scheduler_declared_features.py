"""NodeDeclaredFeatures by upstream's own tables (1.36.2), and the specs from which features are inferred.

Source: plugins/nodedeclaredfeatures/nodedeclaredfeatures_test.go; the tests of
component-helpers/nodedeclaredfeatures/features. Upstream's features there are mocks that are needed or not; here a use
that a pod's spec shows takes their place. Left out: "plugin disabled" (2), as the gate is on; "Feature not required,
version > MaxVersion" and "Infer returns error", as no feature of 1.36 ends and the version is known; "Error getting
pre-filter state", as the filter reads the pod alone; the tests of the bitmap and of updates to pods that run.
"""

from __future__ import annotations

from typing import Any

import pytest
from scheduler_objects import node_object, pod, pod_object

from minikube_py.scheduler.asks import POD_LEVEL_RESOURCES, RESTARTS_ALL, SHARES_HOST_NETWORK
from minikube_py.scheduler.changes import columns_differ, node_changes, pod_changes
from minikube_py.scheduler.columns import NodeColumns
from minikube_py.scheduler.framework import SKIP, Action, ClusterChange, Code, CycleState, QueueingHint
from minikube_py.scheduler.objects import NodeInfo, PodInfo, project_node, project_pod
from minikube_py.scheduler.plugins.node_declared_features import NodeDeclaredFeatures

USES = {"a": RESTARTS_ALL, "b": SHARES_HOST_NETWORK, "c": POD_LEVEL_RESOURCES}
FEATURES = {"FeatureA": USES["a"], "FeatureB": USES["b"], "FeatureC": USES["c"]}
RESTART = {"restartPolicyRules": [{"action": "Restart"}, {"action": "RestartAllContainers"}]}
SPECS: dict[str, dict[str, Any]] = {
    "a": {"container": RESTART},
    "b": {"hostNetwork": True, "hostUsers": False},
    "c": {"resources": {}},
}


def needing(letters: str, name: str = "test-pod", **more: Any) -> PodInfo:
    spec: dict[str, Any] = {}
    for letter in letters:
        spec |= SPECS[letter]
    return pod(name, **spec, **more)


def declaring(*features: str) -> NodeInfo:
    obj = node_object("node-1")
    if features:
        obj["status"]["declaredFeatures"] = list(features)
    return project_node(obj)


PRE_FILTER = {
    "Pod with feature requirements": ("a", {"FeatureA"}),
    "Pod with multiple feature requirements": ("ab", {"FeatureA", "FeatureB"}),
    "Pod with no requirements": ("", set()),
}


@pytest.mark.parametrize("name", PRE_FILTER)
def test_pre_filter(name: str) -> None:
    letters, needed = PRE_FILTER[name]
    plugin, incoming = NodeDeclaredFeatures(features=FEATURES), needing(letters)
    result, status = plugin.pre_filter(CycleState(), incoming, NodeColumns())
    assert result is None and status is (None if needed else SKIP)
    assert plugin.needed(incoming.spec) == needed


FILTER: dict[str, tuple[str, tuple[str, ...], bool]] = {
    "Node matches requirements": ("a", ("FeatureA", "FeatureB"), True),
    "Node does not match requirements": ("a", ("FeatureB",), False),
    "Node with multiple features, pod requires subset": ("ac", ("FeatureA", "FeatureB", "FeatureC"), True),
    "Node has no declared features": ("a", (), False),
    "Node with some but not all required features": ("ab", ("FeatureA",), False),
}


@pytest.mark.parametrize("name", FILTER)
def test_filter(name: str) -> None:
    letters, declared, passes = FILTER[name]
    status = NodeDeclaredFeatures(features=FEATURES).filter(CycleState(), needing(letters), declaring(*declared))
    if passes:
        assert status is None
    else:
        assert status is not None and status.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE
        assert status.message == "node(s) didn't match Pod's required features"


NODE_UPDATES: dict[str, tuple[tuple[str, ...], tuple[str, ...], bool]] = {
    "Node Update (Features Added)": ((), ("FeatureA",), True),
    "Node Update (Features Unchanged)": (("FeatureA",), ("FeatureA",), False),
}


@pytest.mark.parametrize("name", NODE_UPDATES)
def test_an_update_of_a_node_wakes_pods_where_its_features_changed(name: str) -> None:
    before, after, wakes = NODE_UPDATES[name]
    old, new = declaring(*before), declaring(*after)
    asked = [each.event for each in NodeDeclaredFeatures().events_to_register()]
    heard = [change for change in node_changes(old, new) if any(event.matches(change.event) for event in asked)]
    assert bool(heard) is wakes and columns_differ(old, new) is wakes
    assert all(change.event.label == "NodeUpdateNodeDeclaredFeature" for change in heard)
    assert any(event.resource == "Node" and event.action & Action.ADD for event in asked)


POD_UPDATES: dict[str, tuple[str, str, str, bool]] = {
    "Pod Update adds requirement": ("test-pod", "", "a", True),
    "Pod Update removes requirement": ("test-pod", "a", "", True),
    "Pod Update with no change in requirements": ("test-pod", "", "", False),
    "Updated pod not the same as target pod": ("another-test-pod", "", "a", False),
}


@pytest.mark.parametrize("name", POD_UPDATES)
def test_an_update_of_a_pod_wakes_it_where_its_needs_changed(name: str) -> None:
    updated, before, after, wakes = POD_UPDATES[name]
    plugin, old, new = NodeDeclaredFeatures(features=FEATURES), needing(before, updated), needing(after, updated)
    changes: list[ClusterChange] = pod_changes(old, new)
    hints = [
        registration.hint(needing("", "test-pod"), change)
        for registration in plugin.events_to_register()
        for change in changes
        if registration.hint is not None and registration.event.matches(change.event)
    ]
    assert (QueueingHint.QUEUE in hints) is wakes


def spec_of(rule: str | None = None, init: str | None = None, **spec: Any) -> dict[str, Any]:
    obj = pod_object("p", container={"restartPolicyRules": [{"action": rule}]} if rule else {}, **spec)
    if init:
        obj["spec"]["initContainers"] = [{"name": "i", "restartPolicyRules": [{"action": init}]}]
    return obj


INFERRED: dict[str, tuple[dict[str, Any], set[str]]] = {
    "no rules": (spec_of(), set()),
    "another action": (spec_of(rule="Restart", init="Restart"), set()),
    "a container restarts all": (spec_of(rule="RestartAllContainers"), {"RestartAllContainersOnContainerExits"}),
    "an init container restarts all": (
        spec_of(init="RestartAllContainers"), {"RestartAllContainersOnContainerExits"},
    ),
    "host network, own users": (
        spec_of(hostNetwork=True, hostUsers=False), {"UserNamespacesHostNetworkSupport"},
    ),
    "host network, host users": (spec_of(hostNetwork=True, hostUsers=True), set()),
    "host network, users not said": (spec_of(hostNetwork=True), set()),
    "own network, own users": (spec_of(hostNetwork=False, hostUsers=False), set()),
    "resources at pod level are no feature": (spec_of(resources={"requests": {"cpu": "1"}}), set()),
}  # fmt: skip


@pytest.mark.parametrize("name", INFERRED)
def test_what_a_spec_needs(name: str) -> None:
    obj, needed = INFERRED[name]
    assert NodeDeclaredFeatures().needed(project_pod(obj).spec) == needed


def test_columns_keep_what_a_node_declares_now() -> None:
    columns, plugin, incoming = NodeColumns(), NodeDeclaredFeatures(features=FEATURES), needing("a")
    columns.put_node(declaring())
    kept = columns.by_name["node-1"]
    assert plugin.filter(CycleState(), incoming, kept) is not None
    columns.put_node(declaring("FeatureA"))
    assert plugin.filter(CycleState(), incoming, kept) is None

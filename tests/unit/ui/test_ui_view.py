"""The page's view: after any events, what was sent adds up to what is there."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minikube_py.fields.pod_requests import PODS
from minikube_py.ui import view as views
from minikube_py.ui.view import View, node_facts, pod_facts

NAMES = st.sampled_from(["a", "b", "c"])


def node(name: str, cpu: str = "4", ready: bool = True, zone: str = "", closed: bool = False) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "uid": f"node {name}", "labels": {views.ZONE: zone} if zone else {}},
        "spec": {"unschedulable": True} if closed else {},
        "status": {
            "allocatable": {"cpu": cpu, "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
        },
    }


def pod(name: str, on: str = "", phase: str = "Pending", cpu: str = "1", reason: str = "") -> dict[str, Any]:
    conditions = [{"type": "PodScheduled", "status": "False", "message": reason}] if reason else []
    return {
        "metadata": {
            "name": name, "namespace": "default", "uid": name, "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": {"nodeName": on, "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]},
        "status": {"phase": phase, "conditions": conditions},
    }  # fmt: skip


EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("put node"), NAMES, st.sampled_from(["1", "64", "10P"]), st.booleans()),
        st.tuples(st.just("remove node"), NAMES),
        st.tuples(
            st.just("put pod"),
            st.sampled_from(["p", "q"]),
            st.sampled_from(["", "a", "b", "z"]),
            st.sampled_from(["Pending", "Running", "Succeeded"]),
            st.sampled_from(["0", "500m", "10P", "1e30"]),
        ),
        st.tuples(st.just("remove pod"), st.sampled_from(["p", "q"])),
        st.tuples(st.just("look"),),
    ),
    max_size=40,
)  # fmt: skip


@given(events=EVENTS)
def test_what_was_sent_adds_up_to_what_is_there(events: list[tuple[Any, ...]]) -> None:
    view, there, pods = View(), set[str](), dict[str, dict[str, Any]]()
    shown: dict[str, list[Any]] = {}
    seen = 0
    begun: dict[str, Any] | None = None
    view.live = True
    for at, (event, *rest) in enumerate(events):
        if event == "put node":
            there.add(rest[0])
            view.put_node(node_facts(node(rest[0], rest[1], rest[2])))
        elif event == "remove node" and rest[0] in there:
            there.remove(rest[0])
            view.remove_node(rest[0])
        elif event == "put pod":
            name, on, phase, cpu = rest
            pods[name] = pod(name, on, phase, cpu)
            view.put_pod(pod_facts(pods[name]), float(at))
        elif event == "remove pod" and rest[0] in pods:
            del pods[rest[0]]
            view.remove_pod(f"default/{rest[0]}")
        elif event == "look":
            # Rows are made while further events come.
            if begun is not None:
                seen = apply(view, begun, shown)
            begun = view.changes(seen)
    if begun is not None:
        seen = apply(view, begun, shown)
    apply(view, view.changes(seen), shown)
    everything: dict[str, list[Any]] = {}
    apply(view, view.changes(0), everything)
    assert shown == everything and shown.keys() == there
    for name, row in shown.items():
        facts = [pod_facts(each) for each in pods.values() if pod_facts(each).node == name]
        assert row[4] == len(facts)
        assert row[5][PODS][0] == sum(each.requests.get(PODS, 0) for each in facts)
        assert row[5]["cpu"][0] == pytest.approx(sum(each.requests.get("cpu", 0) for each in facts), rel=1e-15)
    for key in pods:
        orjson.dumps([everything, view.pod(f"default/{key}"), *(view.node(name) for name in there)])
    facts = [pod_facts(each) for each in pods.values()]
    waiting = {each.key for each in facts if not each.node and each.phase != "Succeeded"}
    assert {key for key, _, _ in view.summary()["waiting"]} == waiting


def apply(view: View, answer: dict[str, Any], shown: dict[str, list[Any]]) -> int:
    if answer["all"]:
        shown.clear()
    for row in view.rows(answer["nodes"]):
        shown[row[0]] = row
    for name in answer["gone"]:
        shown.pop(name, None)
    return int(answer["sequence"])


def test_a_page_that_is_too_far_behind_is_sent_everything() -> None:
    view = View()
    view.put_node(node_facts(node("stays")))
    behind = view.sequence
    for number in range(views.GONE_MAX + 1):
        view.put_node(node_facts(node(f"n{number}")))
        view.remove_node(f"n{number}")
    answer = view.changes(behind)
    assert answer["all"] and answer["nodes"] == ["stays"]
    assert View(100).changes(60)["all"] and view.changes(view.sequence + 1)["all"], "numbers of other views"


def test_a_node_is_described() -> None:
    view = View()
    view.put_node(node_facts(node("n", "4", ready=False, zone="z1", closed=True)))
    view.put_pod(pod_facts(pod("p", "n", "Running", "1500m")), 1.0)
    assert view.rows(view.changes(0)["nodes"]) == [
        ["n", "z1", False, False, 1, {"cpu": [1500, 4000], "pods": [1, 110]}]
    ]
    assert view.node("n") == {"name": "n", "pods": [["default/p", "Running", {"cpu": 1500, "pods": 1}]]}
    assert view.node("other") is None and view.pod("default/other") is None


def test_waiting_pods_come_when_they_change() -> None:
    view = View()
    view.put_node(node_facts(node("n")))
    view.put_pod(pod_facts(pod("waits")), 0.0)
    view.put_pod(pod_facts(pod("runs", "n")), 0.0)
    seen = view.sequence
    view.put_pod(pod_facts(pod("runs", "n", "Running")), 1.0)
    assert view.summary(seen)["waiting"] is None and view.summary(seen)["pending"] == 1
    view.put_pod(pod_facts(pod("waits", reason="no node")), 2.0)
    assert view.summary(seen)["waiting"] == [["default/waits", "no node", "2026-01-01T00:00:00Z"]]
    seen = view.sequence
    view.put_pod(pod_facts(pod("waits", "n")), 3.0)
    assert view.summary(seen)["waiting"] == [] and view.summary(view.sequence + 1)["waiting"] == []


def test_labels_are_those_of_the_nodes_that_there_are() -> None:
    view = View()
    for name, zone in (("a", "z1"), ("b", "z2"), ("c", "z2")):
        view.put_node(node_facts(node(name, zone=zone)))
    assert view.changes(0)["labels"] == [views.ZONE]
    view.put_node(node_facts(node("a")))
    view.remove_node("b")
    assert view.changes(0)["labels"] == [views.ZONE]
    view.put_node(node_facts(node("c")))
    assert view.changes(0)["labels"] == [] and not view._values


def test_a_label_that_is_new_is_told_to_pages_that_are_open() -> None:
    view = View()
    view.put_node(node_facts(node("a", zone="z1")))
    seen = view.sequence
    view.put_node(node_facts(node("b", zone="z2")))
    assert view.changes(seen)["labels"] == [], "no new label"
    labelled = node("b", zone="z2")
    labelled["metadata"]["labels"]["rack"] = "r1"
    seen = view.sequence
    view.put_node(node_facts(labelled))
    view.put_node(node_facts(node("c")))
    assert view.changes(seen)["labels"] == ["rack", views.ZONE]
    assert view.changes(view.sequence)["labels"] == []


def test_moments_and_waits_are_those_that_were_seen() -> None:
    view = View()
    view.put_pod(pod_facts(pod("old")), 0.0)
    view.live = True
    view.put_pod(pod_facts(pod("old", "n")), 5.0)
    view.put_pod(pod_facts(pod("new", reason="0/1 nodes are available")), 10.0)
    assert view.summary()["waiting"] == [["default/new", "0/1 nodes are available", "2026-01-01T00:00:00Z"]]
    view.put_pod(pod_facts(pod("new", "n")), 10.5)
    view.put_pod(pod_facts(pod("new", "n", "Running")), 12.5)
    found = view.pod("default/new")
    assert found is not None and found["moments"] == {"created": 10.0, "bound": 10.5, "running": 12.5}
    waits = view.summary()["latency_s"]
    assert waits == {
        "created to bound": [0.5, 0.5], "bound to running": [2.0, 2.0], "created to running": [2.5, 2.5],
    }  # fmt: skip
    assert view.totals == {"created": 1, "bound": 2, "running": 1, "deleted": 0}


def test_only_so_many_moments_and_waiting_pods_are_kept() -> None:
    view = View()
    view.live = True
    for number in range(views.REMEMBERED_MAX + 5):
        view.put_pod(pod_facts(pod(f"p{number}")), float(number))
    assert len(view._moments) == views.REMEMBERED_MAX
    summary = view.summary()
    assert len(summary["waiting"]) == views.PENDING_SHOWN_MAX and summary["pending"] == views.REMEMBERED_MAX + 5

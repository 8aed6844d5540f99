"""Fields whose gate is off."""

from __future__ import annotations

import copy
import json
from typing import Any

from minikube_py.api import gates
from minikube_py.api.feature_gates import GENERIC_WORKLOAD, NO_GATES

SPEC: dict[str, Any] = {
    "schedulingGroup": {"podGroupName": "g"},
    "containers": [
        {"lifecycle": {"stopSignal": "SIGTERM"}},
        {"lifecycle": {}},
        {"lifecycle": {"stopSignal": "SIGTERM", "preStop": {"sleep": {"seconds": 1}}}},
    ],
    "volumes": [
        {"emptyDir": {}},
        {"projected": {"sources": [{"podCertificate": {"keyPath": "k"}}, {"configMap": {}}]}},
    ],
}


def test_they_are_dropped_from_what_is_new() -> None:
    pod = {"spec": copy.deepcopy(SPEC)}
    gates.drop(pod, None, gates.of_pods("spec"), NO_GATES)
    containers = [{}, {"lifecycle": {}}, {"lifecycle": {"preStop": {"sleep": {"seconds": 1}}}}]
    volumes = [{"emptyDir": {}}, {"projected": {"sources": [{}, {"configMap": {}}]}}]
    assert pod == {"spec": {"containers": containers, "volumes": volumes}}


def test_those_in_use_are_kept_and_no_others() -> None:
    old = {"spec": {"containers": [{"lifecycle": {"stopSignal": "SIGINT"}}]}}
    pod = {"spec": copy.deepcopy(SPEC)}
    gates.drop(pod, old, gates.of_pods("spec"), NO_GATES)
    assert pod["spec"]["containers"] == SPEC["containers"]
    assert "schedulingGroup" not in pod["spec"]
    assert pod["spec"]["volumes"][1]["projected"]["sources"] == [{}, {"configMap": {}}]


def test_a_field_is_kept_where_its_gate_was_turned_on() -> None:
    pod = {"spec": copy.deepcopy(SPEC)}
    gates.drop(pod, None, gates.of_pods("spec"), frozenset((GENERIC_WORKLOAD,)))
    assert pod["spec"]["schedulingGroup"] == {"podGroupName": "g"}
    assert "stopSignal" not in json.dumps(pod)

"""matchLabelKeys and mismatchLabelKeys of a pod become part of the selectors beside them, with the pod's own values."""

from __future__ import annotations

from typing import Any

from minikube_py.api.kinds.core.pods import PODS

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def test_label_keys_are_merged_where_there_is_a_selector_and_a_label() -> None:
    selector = {"matchLabels": {"app": "web"}}
    term = {"topologyKey": "zone", "labelSelector": selector, "matchLabelKeys": ["hash", "none"]}
    other = {"topologyKey": "zone", "labelSelector": {}, "mismatchLabelKeys": ["hash"]}
    bare = {"topologyKey": "zone", "matchLabelKeys": ["hash"]}
    spec: dict[str, Any] = {
        "containers": [],
        "topologySpreadConstraints": [{**term, "maxSkew": 1}, bare],
        "affinity": {
            "podAffinity": {REQUIRED: [term, bare]},
            "podAntiAffinity": {PREFERRED: [{"weight": 1, "podAffinityTerm": other}]},
        },
    }
    pod = {"metadata": {"labels": {"hash": "7", "app": "web"}}, "spec": spec}
    PODS.prepare_create(pod)
    added = {**selector, "matchExpressions": [{"key": "hash", "operator": "In", "values": ["7"]}]}
    assert spec["topologySpreadConstraints"] == [{**term, "maxSkew": 1, "labelSelector": added}, bare]
    assert spec["affinity"]["podAffinity"][REQUIRED] == [{**term, "labelSelector": added}, bare]
    (weighted,) = spec["affinity"]["podAntiAffinity"][PREFERRED]
    excluded = {"matchExpressions": [{"key": "hash", "operator": "NotIn", "values": ["7"]}]}
    assert weighted["podAffinityTerm"]["labelSelector"] == excluded
    assert selector == {"matchLabels": {"app": "web"}}

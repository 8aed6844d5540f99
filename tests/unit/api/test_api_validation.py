"""Every case of `validation_cases`, judged by ours as upstream judged it (recorded)."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import orjson
import pytest
from validation_cases import CREATES, UPDATES, Create, Update

from minikube_py.api import pod_warnings, strategy
from minikube_py.api.apply.managed_fields import Sender, track
from minikube_py.api.decode import decode
from minikube_py.api.errors import StatusError, invalid
from minikube_py.api.kind import EmptyCluster, Kind
from minikube_py.api.registry import REGISTRY
from minikube_py.api.validation import pods
from minikube_py.api.validation.dispatch import validate_create, validate_update

CONFORMANCE = pathlib.Path(__file__).parents[2] / "conformance"

Json = dict[str, Any]
RECORDED_CREATES: Json = json.loads((CONFORMANCE / "data" / "validation_create.json").read_text())
RECORDED_UPDATES: Json = json.loads((CONFORMANCE / "data" / "validation_update.json").read_text())
BY_PLURAL = {resource.plural: resource for resource in reversed(REGISTRY.kinds)}
NOW = "2024-01-01T00:00:00Z"
ALLOCATED = ("clusterIP", "clusterIPs", "healthCheckNodePort")
"""What the API server finds for a service after its rules have passed."""


def create(resource: Kind, body: Json) -> Json:
    obj, _ = decode(resource, orjson.dumps(body), "application/json", "Ignore")
    metadata = obj.setdefault("metadata", {})
    if resource.stored:
        metadata["creationTimestamp"] = NOW
    if resource.namespaced:
        metadata["namespace"] = "default"
    resource.default(obj)
    track(resource, "", None, obj, Sender())
    strategy.prepare_for_create(resource, obj, EmptyCluster())
    if errors := validate_create(resource, obj):
        raise invalid(resource, metadata.get("name") or "", errors)
    resource.canonicalize(obj)
    resource.validate_admission(obj, None, EmptyCluster())
    return obj


def update(resource: Kind, new_body: Json, old: Json, subresource: str) -> Json:
    new, _ = decode(resource, orjson.dumps(new_body), "application/json", "Ignore")
    resource.default(new)
    strategy.prepare_for_update(resource, new, old, subresource, EmptyCluster())
    if errors := validate_update(resource, new, old, subresource):
        raise invalid(resource, new["metadata"]["name"], errors)
    resource.canonicalize(new)
    return new


def refusal(status: Json) -> Json:
    """A Status in a form that does not depend on the order of Go's maps."""
    given = status.get("details", {}).get("causes", ())
    causes = sorted((cause.get("field", ""), cause["reason"], cause["message"]) for cause in given)
    shown = {"code": status["code"], "reason": status.get("reason"), "causes": causes}
    if len(causes) < 2:
        shown["message"] = status["message"]
    return shown


def plain(obj: Json) -> Json:
    """What both must agree on: all but what is given out again each time."""
    obj = orjson.loads(orjson.dumps(obj))
    metadata = {
        key: value
        for key, value in obj.get("metadata", {}).items()
        if key not in ("uid", "resourceVersion", "creationTimestamp", "managedFields")
    }
    out = {**obj, "metadata": metadata}
    for condition in obj.get("status", {}).get("conditions", ()):
        assert condition["lastTransitionTime"]
        condition["lastTransitionTime"] = NOW
    if obj.get("kind") == "Service":
        out["spec"] = {key: value for key, value in obj["spec"].items() if key not in ALLOCATED}
        if "ports" in obj["spec"]:
            out["spec"]["ports"] = [
                {key: value for key, value in port.items() if key != "nodePort"} for port in obj["spec"]["ports"]
            ]
    return out


def judged(make: Any) -> tuple[int, Json | None]:
    try:
        return 200, plain(make())
    except StatusError as refused:
        return refused.code, refusal(refused.to_status())


@pytest.mark.parametrize("case", CREATES, ids=lambda case: case.name)
def test_create_is_judged_as_the_original_does(case: Create) -> None:
    recorded = RECORDED_CREATES[case.name]
    code, found = judged(lambda: create(BY_PLURAL[case.plural], case.body))
    if recorded["code"] >= 300:
        assert found == refusal(recorded["answer"])
    else:
        assert code == 200, found
        assert found == plain(recorded["answer"])


@pytest.mark.parametrize("case", UPDATES, ids=lambda case: case.name)
def test_update_is_judged_as_the_original_does(case: Update) -> None:
    recorded = RECORDED_UPDATES[case.name]
    resource = BY_PLURAL[case.plural]
    old = recorded["old"]
    before = orjson.dumps(old)
    code, found = judged(lambda: update(resource, recorded["new"], old, case.subresource))
    assert orjson.dumps(old) == before, "the stored object was changed"
    if recorded["code"] >= 300:
        assert found == refusal(recorded["answer"])
    else:
        assert code == 200, found
        assert found == plain(recorded["answer"])


DEPRECATED_KINDS = ("endpoints",)


def unwrapped(headers: list[str]) -> list[str]:
    """The texts of `299 - "text"`."""
    return [json.loads(header.removeprefix("299 - ")) for header in headers]


@pytest.mark.parametrize("case", CREATES, ids=lambda case: case.name)
def test_create_warns_as_the_original_does(case: Create) -> None:
    recorded = RECORDED_CREATES[case.name]
    if recorded["code"] < 300 and case.plural not in DEPRECATED_KINDS:
        resource = BY_PLURAL[case.plural]
        obj = create(resource, case.body)
        assert resource.warn(obj, None) == unwrapped(recorded.get("warnings", []))


@pytest.mark.parametrize("case", UPDATES, ids=lambda case: case.name)
def test_update_warns_as_the_original_does(case: Update) -> None:
    recorded = RECORDED_UPDATES[case.name]
    if recorded["code"] < 300 and case.plural not in DEPRECATED_KINDS and not case.subresource:
        resource = BY_PLURAL[case.plural]
        new = update(resource, recorded["new"], recorded["old"], "")
        assert resource.warn(new, recorded["old"]) == unwrapped(recorded.get("warnings", []))


def test_endpoints_are_told_to_be_deprecated() -> None:
    recorded = RECORDED_CREATES["endpoints: plain"]
    assert unwrapped(recorded["warnings"]) == [BY_PLURAL["endpoints"].deprecation]


def test_every_case_is_recorded() -> None:
    assert {case.name for case in CREATES} == set(RECORDED_CREATES)
    assert {case.name for case in UPDATES} == set(RECORDED_UPDATES)


class Seen(dict[str, Any]):
    """Records which members are asked for."""

    def __init__(self, **held: Any) -> None:
        super().__init__(held)
        self.asked: set[str] = set()

    def get(self, key: str, default: Any = None) -> Any:
        self.asked.add(key)
        return super().get(key, default)

    def __contains__(self, key: object) -> bool:
        self.asked.add(str(key))
        return super().__contains__(key)


def asked(rule: Any, **held: Any) -> set[str]:
    seen = Seen(**held)
    rule(seen)
    return seen.asked


def test_rules_that_are_skipped_are_of_the_members_that_are_looked_for() -> None:
    """A rule of a further member of pods' specs has to be named with those that few pods have, or be checked always."""
    more = asked(lambda spec: pods._validate_all_of_rest(spec, "spec"))
    assert more - asked(lambda spec: pods._validate_commonest(spec, "spec")) == pods._FEW_HAVE

    def warned(spec: Seen) -> None:
        assert pod_warnings.pod_warnings({"annotations": {"team": "a"}}, spec, "") == []

    assert asked(warned, affinity={}) - asked(warned) == pod_warnings._WARNED

"""Expressions of policies are checked against the types of what they match; the status lists what does not fit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from minikube_py import Cluster
from minikube_py.api.errors import StatusError
from minikube_py.controllers.policy_types import Documents, GroupVersionKind
from minikube_py.errors import Unavailable

GROUP = "admissionregistration.k8s.io/v1"
RULE = {"apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["deployments"]}


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(nodes=0, clock="virtual", seed=1) as cluster:
        yield cluster


def checked(cluster: Cluster, *expressions: str, rules: list[dict[str, Any]] | None = None, **spec: Any) -> Any:
    validations = [{"expression": each} for each in expressions]
    whole = {"matchConstraints": {"resourceRules": rules or [RULE]}, "validations": validations, **spec}
    kind = "ValidatingAdmissionPolicy"
    cluster.apply({"apiVersion": GROUP, "kind": kind, "metadata": {"name": "p"}, "spec": whole})
    cluster.advance(1)
    return cluster.get("validatingadmissionpolicy/p")["status"]


def test_what_fits_is_told_nothing_of(cluster: Cluster) -> None:
    fits = "object.spec.replicas > 1 && oldObject == null && object.metadata.labels['a'] == 'b'"
    strategy = "object.spec.strategy.rollingUpdate.maxSurge == 1"
    assert checked(cluster, fits, strategy) == {"observedGeneration": 1, "typeChecking": {}}


def test_an_undefined_field_is_told_of_with_its_place(cluster: Cluster) -> None:
    status = checked(cluster, "object.replicas > 1", "object.spec.replicas > 'a'")
    warnings = status["typeChecking"]["expressionWarnings"]
    assert warnings[0] == {
        "fieldRef": "spec.validations[0].expression",
        "warning": "apps/v1, Kind=Deployment: ERROR: <input>:1:7: undefined field 'replicas'\n"
        " | object.replicas > 1\n | ......^\n",
    }  # fmt: skip
    assert "found no matching overload for '_>_' applied to '(int, string)'" in warnings[1]["warning"]


def test_each_kind_that_a_policy_names_is_checked(cluster: Cluster) -> None:
    rules = [{**RULE, "resources": ["deployments", "daemonsets"]}, {**RULE, "apiGroups": [""], "resources": ["pods"]}]
    status = checked(cluster, "object.spec.replicas > 1", rules=rules)
    (warning,) = status["typeChecking"]["expressionWarnings"]
    assert [line.partition(": ")[0] for line in warning["warning"].splitlines() if "Kind=" in line] == [
        "/v1, Kind=Pod", "apps/v1, Kind=DaemonSet",
    ]  # fmt: skip


def test_what_matches_any_kind_is_not_checked(cluster: Cluster) -> None:
    status = checked(cluster, "object.nothing == 1", rules=[{**RULE, "apiGroups": ["*"]}])
    assert status == {"observedGeneration": 1, "typeChecking": {}}


def test_variables_and_messages_are_checked_too(cluster: Cluster) -> None:
    rule = {"expression": "variables.few > 'a'", "messageExpression": "string(object.nothing)"}
    variables = [{"name": "few", "expression": "object.spec.replicas"}]
    status = checked(cluster, variables=variables, validations=[rule])
    fields = [each["fieldRef"] for each in status["typeChecking"]["expressionWarnings"]]
    assert fields == ["spec.validations[0].expression", "spec.validations[0].messageExpression"]


def test_the_kind_of_a_definition_is_checked_by_its_schema(cluster: Cluster) -> None:
    properties = {"spec": {"type": "object", "properties": {"size": {"type": "integer"}}}}
    version = {"name": "v1", "served": True, "storage": True, "schema": {
        "openAPIV3Schema": {"type": "object", "properties": properties}}}
    names = {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"}
    spec = {"group": "x.io", "scope": "Namespaced", "names": names, "versions": [version]}
    definition = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}
    cluster.apply({**definition, "metadata": {"name": "things.x.io"}, "spec": spec})
    cluster.advance(2)
    rules = [{**RULE, "apiGroups": ["x.io"], "resources": ["things"]}]
    status = checked(cluster, "object.spec.size > 1", "object.spec.sise > 1", rules=rules)
    (warning,) = status["typeChecking"]["expressionWarnings"]
    assert "x.io/v1, Kind=Thing: ERROR: <input>:1:12: undefined field 'sise'" in warning["warning"]


def test_a_policy_that_changes_is_checked_again(cluster: Cluster) -> None:
    assert checked(cluster, "object.replicas > 1")["typeChecking"] != {}
    assert checked(cluster, "object.spec.replicas > 1") == {"observedGeneration": 2, "typeChecking": {}}


class Answers:
    """A client of a server with one group of another one."""

    def __init__(self, other: object) -> None:
        pods = {"resources": [{"name": "pods", "singularName": "pod", "kind": "Pod"}]}
        groups = {"groups": [{"name": "echo.example.com", "versions": [{"version": "v1"}]}]}
        self._found = {"/api/v1": pods, "/apis": groups}
        self._other = other

    async def request(self, method: str, path: str) -> Any:
        found = self._found.get(path, self._other)
        if isinstance(found, Exception):
            raise found
        return found


@pytest.mark.parametrize(
    "other",
    [
        StatusError(503, "", "service unavailable", None), Unavailable("no object"), {"resources": 5},
        {"resources": [{}]}, {"resources": [1]}, {"components": {"schemas": {"a": []}}}, {"components": []},
    ],
)  # fmt: skip
async def test_a_group_of_another_server_holds_up_no_other(other: object) -> None:
    client: Any = Answers(other)
    documents = Documents(client)
    assert await documents.kinds("", "v1", "pods") == [GroupVersionKind("", "v1", "Pod")]
    assert await documents.schema(GroupVersionKind("echo.example.com", "v1", "Sound")) is None

"""Whatever another program puts into the store past the API: every role lives on, starts again, and serves the others.

Objects of all stored kinds are drawn by their schema, at the edges of each type; then any JSON takes any place in some
of them. They are put where the API server keeps its own.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import orjson
import pytest
from drawn_objects import message_fields
from edges import as_json, json_values, one_of_these
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from minikube_py.api.kind import Kind
from minikube_py.api.registry import REGISTRY
from minikube_py.api.schema import SCHEMA
from minikube_py.cluster.virtual import VirtualCluster, VirtualConfig
from minikube_py.kubelet.config import numbered_nodes
from minikube_py.mvcc.types import Put

NODES = tuple(numbered_nodes(2))
PODS = "/api/v1/namespaces/sound/pods"
ADMISSION = "admissionregistration.k8s.io"
KINDS = [kind for kind in REGISTRY.kinds if kind.stored and kind.group != ADMISSION]
CONFIGURING = [kind for kind in REGISTRY.kinds if kind.stored and kind.group == ADMISSION]
"""These may rightly refuse a pod, but by name: as forbidden or invalid, or because a webhook does not answer."""
OFTEN = ("pods", "nodes", "replicasets", "jobs", "services", "clusterroles")
WATCHED = [kind for kind in KINDS if kind.plural in OFTEN]
"""Drawn more often: those on which roles depend most."""


@st.composite
def stored(draw: st.DrawFn, kinds: st.SearchStrategy[Kind] | None = None) -> tuple[Kind, bytes, bytes]:
    """A kind, a key of it, and what is put there."""
    kind = draw(st.one_of(one_of_these(WATCHED), one_of_these(KINDS)) if kinds is None else kinds)
    name = draw(st.sampled_from(("odd", "odder", "n0", "default")))
    metadata: dict[str, Any] = {"name": name, "uid": f"uid-{name}", "creationTimestamp": "2026-01-01T00:00:00Z"}
    namespace = "default" if kind.namespaced else ""
    if namespace:
        metadata["namespace"] = namespace
    message = SCHEMA.kind(kind.group, kind.version, kind.kind)
    obj: dict[str, Any] = {"metadata": metadata, **(draw(message_fields(message)) if message is not None else {})}
    if kind in CONFIGURING:
        _aim(draw, obj, name)
    for _ in range(draw(st.integers(0, 2))):
        _spoil(draw, obj)
    return kind, kind.key(namespace, name), as_json(obj)


EVERY_WRITE: dict[str, Any] = {
    "apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*"],
}  # fmt: skip


def _aim(draw: st.DrawFn, obj: dict[str, Any], name: str) -> None:
    """Most of what configures admission matches every write: a drawn rule would match none."""
    webhooks, spec = obj.get("webhooks"), obj.get("spec")
    for each in filter(None, webhooks or ()):
        each["rules"] = [deepcopy(EVERY_WRITE)]
    if isinstance(spec, dict) and draw(st.integers(0, 3)):
        spec.setdefault("policyName", name)
        spec["matchConstraints"] = {**(spec.get("matchConstraints") or {}), "resourceRules": [deepcopy(EVERY_WRITE)]}


def _spoil(draw: st.DrawFn, obj: Any) -> None:
    """Any JSON in any place."""
    places = list(_places(obj)) or [(obj, "metadata")]
    holder, key = places[draw(st.integers(0, len(places) - 1))]
    if draw(st.integers(0, 5)) == 0 and isinstance(holder, dict) and key in holder:
        del holder[key]
    else:
        holder[key] = draw(json_values)


def _places(value: Any) -> Any:
    for key in value if isinstance(value, dict) else range(len(value)):
        yield value, key
        if isinstance(value[key], dict | list):
            yield from _places(value[key])


def put(cluster: VirtualCluster, objects: list[tuple[Kind, bytes, bytes]]) -> None:
    async def all_of_them() -> None:
        for _, key, value in objects:
            await cluster.plane.storage.txn([], [Put(key, value)])

    cluster.run(all_of_them)


def check_serves(cluster: VirtualCluster, name: str, kinds: list[Kind]) -> None:
    """A sound pod runs, and every list is answered."""
    # On a node that a kubelet plays: an odd one may look better.
    spec = {"containers": [{"name": "c", "image": "i"}], "nodeSelector": {"kubernetes.io/hostname": NODES[0].name}}
    body = {"metadata": {"name": name}, "spec": spec}
    made = cluster.request("POST", PODS, orjson.dumps(body))
    assert made.status == 201, made.body
    for _ in range(20):
        cluster.advance(5)
        found = orjson.loads(cluster.request("GET", f"{PODS}/{name}").body)
        if found["status"]["phase"] == "Running":
            break
    else:
        raise AssertionError(found)
    for kind in kinds:
        path = f"{'/apis/' + kind.group if kind.group else '/api'}/{kind.version}/{kind.plural}"
        assert cluster.request("GET", path).status == 200
    # SimFailure where a component ended.
    cluster.advance(60)


SELECTOR = {"matchExpressions": [{"key": "a", "operator": "Bogus"}]}
NOT_WRITTEN: tuple[tuple[str, dict[str, Any]], ...] = (
    ("validatingadmissionpolicybindings", {}), ("validatingadmissionpolicybindings", {"spec": {}}),
    ("mutatingadmissionpolicybindings", {"spec": {}}),
    ("validatingadmissionpolicies", {
        "spec": {"matchConstraints": {"resourceRules": [EVERY_WRITE], "objectSelector": SELECTOR}}}),
    ("validatingadmissionpolicies", {"spec": {"matchConstraints": {"resourceRules": [EVERY_WRITE]}, "paramKind": {}}}),
    ("mutatingadmissionpolicies", {"spec": {"matchConstraints": {"resourceRules": [EVERY_WRITE]}, "mutations": [{}]}}),
    ("validatingwebhookconfigurations", {"webhooks": [{}]}),
    *((f"{each}webhookconfigurations", {"webhooks": [{
        "name": "x", "rules": [EVERY_WRITE], "namespaceSelector": SELECTOR, "failurePolicy": policy}]})
      for each in ("validating", "mutating") for policy in ("Ignore", "Fail")),
)  # fmt: skip
"""By plural, what validation refuses."""


def check_asked(cluster: VirtualCluster, put_there: list[tuple[Kind, bytes, bytes]]) -> set[int]:
    """A pod is created or refused with reasons, never by an error of this server. Returns the codes seen."""
    put(cluster, put_there)
    cluster.advance(1)
    seen = set()
    for name in ("a", "b"):
        body = {"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
        answer = cluster.request("POST", PODS, orjson.dumps(body))
        seen.add(answer.status)
        called = answer.status == 500 and b"failed calling webhook" in answer.body
        assert called or answer.status in (201, 400, 403, 422), answer.body
    return seen


def bound(plural: str, obj: dict[str, Any]) -> list[tuple[Kind, bytes, bytes]]:
    """With the other half, where it is a policy or binding."""
    found = []
    halves = {plural: obj}
    if "policies" in plural:
        spec = {"policyName": "zz", "validationActions": ["Deny"]}
        halves[plural.replace("policies", "policybindings")] = {"spec": spec}
    for kind in CONFIGURING:
        if kind.plural in halves:
            metadata = {"name": "zz", "uid": "u-1", "creationTimestamp": "2026-01-01T00:00:00Z"}
            found.append((kind, kind.key("", "zz"), as_json({"metadata": metadata, **halves[kind.plural]})))
    return found


@pytest.mark.parametrize("given", NOT_WRITTEN, ids=lambda given: given[0])
def test_admission_that_validation_would_refuse_never_ends_in_an_error(given: tuple[str, dict[str, Any]]) -> None:
    with VirtualCluster(1, config=VirtualConfig(nodes=(), components=())) as cluster:
        assert cluster.request("POST", "/api/v1/namespaces", b'{"metadata":{"name":"sound"}}').status == 201
        ignored = "Ignore" in str(given) or "binding" in given[0] or given[1] == {"webhooks": [{}]}
        assert check_asked(cluster, bound(*given)) <= ({201} if ignored else {403, 422}), given


@pytest.mark.unreadable
@settings(max_examples=40, phases=(Phase.generate,))
@given(given=st.lists(stored(one_of_these(CONFIGURING)), min_size=4, max_size=12))
def test_admission_answers_whatever_configures_it(given: list[tuple[Kind, bytes, bytes]]) -> None:
    with VirtualCluster(1, config=VirtualConfig(nodes=(), components=())) as cluster:
        assert cluster.request("POST", "/api/v1/namespaces", b'{"metadata":{"name":"sound"}}').status == 201
        check_asked(cluster, given)


@pytest.mark.unreadable
@settings(max_examples=8, phases=(Phase.generate,))
@given(before=st.lists(stored(), min_size=4, max_size=12), after=st.lists(stored(), min_size=4, max_size=12))
def test_roles_start_and_go_on_whatever_is_stored(
    before: list[tuple[Kind, bytes, bytes]], after: list[tuple[Kind, bytes, bytes]]
) -> None:
    config = VirtualConfig(nodes=NODES, components=())
    with VirtualCluster(1, config=config) as cluster:
        assert cluster.request("POST", "/api/v1/namespaces", b'{"metadata":{"name":"sound"}}').status == 201
        put(cluster, before)
        told = VirtualConfig(nodes=config.nodes).told
        cluster.run(lambda: cluster.plane.start_components(told))
        kinds = [kind for kind, _, _ in (*before, *after)]
        check_serves(cluster, "first", kinds)
        put(cluster, after)
        check_serves(cluster, "second", kinds)

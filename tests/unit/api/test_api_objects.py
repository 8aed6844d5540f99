"""Metadata, errors, registry, strategy: the parts that no comparison with upstream reaches."""

from __future__ import annotations

import random
from typing import Any

import pytest

from minikube_py.api import errors, meta, registry, services, strategy
from minikube_py.api.defaults_pod import default_pull_policy
from minikube_py.api.equality import same
from minikube_py.api.errors import StatusError
from minikube_py.api.kind import EmptyCluster
from minikube_py.api.kinds import coordination, core
from minikube_py.api.kinds.core.pods import bind_pod, deletion_grace_s, validate_binding
from minikube_py.api.pod_resources import qos_class
from minikube_py.api.scale import scale_of, validate_scale, with_scale
from minikube_py.api.schema import SCHEMA
from minikube_py.api.validation.dispatch import validate_create

Json = dict[str, Any]


def pod(**spec: Any) -> Json:
    return {
        "metadata": {"name": "p", "namespace": "default", "uid": "u", "resourceVersion": "5"},
        "spec": {"containers": [{"name": "c", "image": "x"}], **spec},
        "status": {},
    }


# --- errors ---------------------------------------------------------------------------------------------------------

STATUSES = [
    (errors.not_found(coordination.LEASES, "x"), 404, "NotFound", 'leases.coordination.k8s.io "x" not found'),
    (errors.already_exists(core.PODS, "x"), 409, "AlreadyExists", 'pods "x" already exists'),
    (
        errors.conflict(core.PODS, "x"),
        409,
        "Conflict",
        'Operation cannot be fulfilled on pods "x": the object has been modified; please apply your changes to the '
        "latest version and try again",
    ),
    (errors.expired("too old"), 410, "Expired", "too old"),
    (errors.bad_request("bad"), 400, "BadRequest", "bad"),
    (errors.unauthorized(), 401, "Unauthorized", "Unauthorized"),
    (errors.forbidden(core.PODS, "x", "no"), 403, "Forbidden", 'pods "x" is forbidden: no'),
    (errors.forbidden(core.PODS, "", "no"), 403, "Forbidden", "pods is forbidden: no"),
    (errors.forbidden(None, "", "no"), 403, "Forbidden", "forbidden: no"),
    (
        errors.method_not_supported(core.PODS, "create"),
        405,
        "MethodNotAllowed",
        'create is not supported on resources of kind "pods"',
    ),
    (errors.not_acceptable(["a", "b"]), 406, "NotAcceptable", "only the following media types are accepted: a, b"),
    (
        errors.unsupported_media_type(["a"]),
        415,
        "UnsupportedMediaType",
        "the body of the request was in an unknown format - accepted media types include: a",
    ),
    (errors.request_entity_too_large("3"), 413, "RequestEntityTooLarge", "Request entity too large: 3"),
    (errors.internal("x"), 500, "InternalError", "Internal error occurred: x"),
    (errors.too_many_requests("wait", 5), 429, "TooManyRequests", "wait"),
]


@pytest.mark.parametrize(("error", "code", "reason", "message"), STATUSES, ids=[case[2] for case in STATUSES])
def test_statuses(error: StatusError, code: int, reason: str, message: str) -> None:
    status = error.to_status()
    assert list(status)[:4] == ["kind", "apiVersion", "metadata", "status"]
    assert (status["code"], status["reason"], status["message"]) == (code, reason, message)
    again = StatusError.from_status(status)
    assert again.to_status() == status


def test_too_large_resource_version_says_so_in_a_cause() -> None:
    status = errors.too_large_resource_version(9, 5).to_status()
    assert status["code"] == 504
    assert status["message"] == "Timeout: Too large resource version: 9, current: 5"
    assert status["details"] == {
        "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
        "retryAfterSeconds": 1,
    }


def test_invalid_tells_each_message_once_and_each_cause() -> None:
    wrong = errors.required("spec.x", "say it")
    status = errors.invalid(coordination.LEASES, "l", [wrong, wrong, errors.duplicate("y", 5)]).to_status()
    assert status["message"] == (
        'Lease.coordination.k8s.io "l" is invalid: [spec.x: Required value: say it, y: Duplicate value: 5]'
    )
    assert [cause["field"] for cause in status["details"]["causes"]] == ["spec.x", "spec.x", "y"]
    one = errors.invalid(core.PODS, "p", [wrong])
    assert one.message == 'Pod "p" is invalid: spec.x: Required value: say it'


@pytest.mark.parametrize(
    ("text", "quoted"),
    [
        ("a", '"a"'), ('a"b\\', '"a\\"b\\\\"'), ("\n\t\x01", '"\\n\\t\\x01"'), ("é", '"é"'), ("\u200b", '"\\u200b"'),
        ("\U000e0001", '"\\U000e0001"'), ("\x7f", '"\\x7f"'),
    ],
)  # fmt: skip
def test_go_quote(text: str, quoted: str) -> None:
    assert errors.go_quote(text) == quoted


# --- metadata -------------------------------------------------------------------------------------------------------


def test_generated_names_are_cut_to_fit_and_end_in_five_characters() -> None:
    rng = random.Random(1)
    name = meta.generate_name("x" * 100, rng)
    assert len(name) == 63
    assert meta.generate_name("web-", rng).startswith("web-")
    assert len({meta.generate_name("a", rng) for _ in range(100)}) == 100
    assert not set("aeiou013") & set(meta.generate_name("", rng))


def test_uids_are_version_four() -> None:
    uid = meta.new_uid(random.Random(1))
    assert [len(part) for part in uid.split("-")] == [8, 4, 4, 4, 12]
    assert uid[14] == "4"
    assert uid[19] in "89ab"


def test_timestamps_round_trip() -> None:
    assert meta.timestamp(1704067200.9) == "2024-01-01T00:00:00Z"
    assert meta.micro_timestamp(1704067200.25) == "2024-01-01T00:00:00.250000Z"
    assert meta.parse_timestamp("2024-01-01T00:00:00Z") == 1704067200
    assert meta.parse_timestamp("2024-01-01T01:00:00+01:00") == 1704067200
    with pytest.raises(ValueError, match="no time zone"):
        meta.parse_timestamp("2024-01-01T00:00:00")


def test_controller_is_the_owner_that_says_so() -> None:
    owners = [{"kind": "A", "name": "a", "uid": "1"}, {"kind": "B", "name": "b", "uid": "2", "controller": True}]
    owner = meta.controller_of({"metadata": {"ownerReferences": owners}})
    assert owner is not None
    assert (owner.kind, owner.uid) == ("B", "2")
    assert meta.controller_of({"metadata": {}}) is None


def test_long_values_are_judged_and_not_remembered() -> None:
    assert meta.is_label_value("a" * 1000)
    assert meta.is_label_value("a" * 63) == ()


# --- registry -------------------------------------------------------------------------------------------------------


def test_rows_are_found_by_path_and_by_kind() -> None:
    assert registry.REGISTRY.resource("", "v1", "pods") is core.PODS
    assert registry.REGISTRY.kind("coordination.k8s.io", "v1", "Lease") is coordination.LEASES
    assert registry.REGISTRY.resource("", "v2", "pods") is None
    assert len({(r.group, r.version, r.plural) for r in registry.REGISTRY.kinds}) == len(registry.REGISTRY.kinds)


def test_keys_in_the_store() -> None:
    assert core.PODS.key("ns", "a") == b"/registry/pods/ns/a"
    assert core.NODES.key("", "n") == b"/registry/nodes/n"
    assert coordination.LEASES.key("ns", "l") == b"/registry/coordination.k8s.io/leases/ns/l"
    assert core.PODS.collection_prefix("ns") == b"/registry/pods/ns/"
    assert core.PODS.collection_prefix() == b"/registry/pods/"
    assert core.NODES.field_set is not None
    assert core.NODES.field_set.prefix == core.NODES.prefix
    assert core.CONFIGMAPS.field_set is None


# --- strategy -------------------------------------------------------------------------------------------------------

ALL = {"cpu": "1", "memory": "1Gi"}
QOS = [
    ("no resources", [{}], "BestEffort"),
    ("zero", [{"requests": {"cpu": "0"}}], "BestEffort"),
    ("requests", [{"requests": {"cpu": "1"}}], "Burstable"),
    ("extended only", [{"limits": {"example.com/x": "1"}}], "BestEffort"),
    ("cpu limit alone", [{"limits": {"cpu": "1"}, "requests": {"cpu": "1"}}], "Burstable"),
    (
        "both limits",
        [{"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1000m", "memory": "1024Mi"}}],
        "Guaranteed",
    ),
    ("one without", [{"limits": ALL, "requests": ALL}, {}], "Burstable"),
    ("less asked", [{"limits": ALL, "requests": {"cpu": "1", "memory": "1Mi"}}], "Burstable"),
]


@pytest.mark.parametrize(("name", "resources", "qos"), QOS, ids=[case[0] for case in QOS])
def test_qos_class(name: str, resources: list[Json], qos: str) -> None:
    spec = {"containers": [{"name": f"c{i}", "resources": given} for i, given in enumerate(resources)]}
    assert qos_class(spec) == qos


GRACE = [
    ("unscheduled", {}, {}, None, 0),
    ("default", {"nodeName": "n", "terminationGracePeriodSeconds": 30}, {}, None, 30),
    ("asked", {"nodeName": "n", "terminationGracePeriodSeconds": 30}, {}, 5, 5),
    ("now", {"nodeName": "n", "terminationGracePeriodSeconds": 30}, {}, 0, 0),
    ("negative", {"nodeName": "n"}, {}, -3, 1),
    ("finished", {"nodeName": "n", "terminationGracePeriodSeconds": 30}, {"phase": "Succeeded"}, None, 0),
]


@pytest.mark.parametrize(("name", "spec", "status", "asked_s", "grace_s"), GRACE, ids=[case[0] for case in GRACE])
def test_deletion_grace(name: str, spec: Json, status: Json, asked_s: int | None, grace_s: int) -> None:
    assert deletion_grace_s({"spec": spec, "status": status}, asked_s) == grace_s
    assert core.CONFIGMAPS.deletion_grace_s is None


def test_binding_sets_node_condition_and_annotations() -> None:
    bound = pod()
    binding = {"metadata": {"name": "p", "annotations": {"a": "b"}}, "target": {"kind": "Node", "name": "n1"}}
    bind_pod(bound, binding, 1704067200)
    assert bound["spec"]["nodeName"] == "n1"
    assert bound["metadata"]["annotations"] == {"a": "b"}
    assert bound["status"]["conditions"] == [
        {
            "type": "PodScheduled",
            "status": "True",
            "lastProbeTime": None,
            "lastTransitionTime": "2024-01-01T00:00:00Z",
        }
    ]


BINDING_REFUSED = [
    ("bound", {"spec": {"nodeName": "n0"}}, {}, 'pods/binding "p": pod p is already assigned to node "n0"'),
    ("deleted", {"metadata": {"deletionTimestamp": "x"}}, {}, "pod p is being deleted, cannot be assigned to a host"),
    ("gated", {"spec": {"schedulingGates": [{"name": "a"}]}}, {}, "pod p has non-empty .spec.schedulingGates"),
    ("other uid", {}, {"uid": "v"}, "Precondition failed: UID in precondition: v, UID in object meta: u"),
    ("other version", {}, {"resourceVersion": "6"}, "precondition: 6, ResourceVersion in object meta: 5"),
]


@pytest.mark.parametrize(
    ("name", "change", "metadata", "message"), BINDING_REFUSED, ids=[case[0] for case in BINDING_REFUSED]
)
def test_binding_is_refused(name: str, change: Json, metadata: Json, message: str) -> None:
    given = pod()
    for part, values in change.items():
        given[part].update(values)
    with pytest.raises(StatusError) as refused:
        bind_pod(given, {"metadata": {"name": "p", **metadata}, "target": {"name": "n1"}}, 0)
    assert refused.value.code == 409
    assert message in refused.value.message


def test_bindings_need_a_node() -> None:
    assert validate_binding({"target": {"kind": "Node", "name": "n"}}) == []
    assert [e.field for e in validate_binding({"target": {"kind": "Foo"}})] == ["target.kind", "target.name"]


def test_scale_is_read_and_written() -> None:
    controller = {
        "metadata": {"name": "r", "namespace": "default", "uid": "u", "resourceVersion": "5", "labels": {"a": "b"}},
        "spec": {"replicas": 3, "selector": {"b": "2", "a": "1"}},
        "status": {"replicas": 2},
    }
    scale = scale_of(core.REPLICATIONCONTROLLERS, controller)
    assert scale["spec"] == {"replicas": 3}
    assert scale["status"] == {"replicas": 2, "selector": "a=1,b=2"}
    assert "labels" not in scale["metadata"]
    scaled = with_scale(core.REPLICATIONCONTROLLERS, controller, {**scale, "spec": {"replicas": 7}})
    assert scaled["spec"]["replicas"] == 7
    assert controller["spec"]["replicas"] == 3
    assert validate_scale(scale) == []
    assert [e.field for e in validate_scale({**scale, "spec": {"replicas": -1}})] == ["spec.replicas"]


def test_unscaled_is_an_empty_spec() -> None:
    controller = {"metadata": {"name": "r"}, "spec": {"replicas": 0}, "status": {}}
    assert scale_of(core.REPLICATIONCONTROLLERS, controller)["spec"] == {}
    assert scale_of(core.REPLICATIONCONTROLLERS, controller)["status"] == {"replicas": 0}


SAME: list[tuple[str, Any, Any]] = [
    ("[]string", [], None), ("map[string]string", {}, None), ("string", "", None), ("bool", False, None),
    ("int32", 0, None), ("core/v1.Affinity", {}, None), ("*bool", None, None), ("*string", "a", "a"),
    ("resource.Quantity", "1Gi", "1024Mi"), ("[]core/v1.Container", [{"name": ""}], [{}]),
    ("meta/v1.Time", "2026-01-01T00:00:00Z", "2026-01-01T01:00:00+01:00"),
]  # fmt: skip
OTHER: list[tuple[str, Any, Any]] = [
    ("*bool", False, None), ("*string", "", None), ("*core/v1.Affinity", {}, None),
    ("map[string]string", {"a": ""}, {}),
    ("[]string", ["a"], ["a", "a"]), ("bool", True, None), ("string", "x", None), ("resource.Quantity", "1", "2"),
    ("core/v1.Affinity", {"nodeAffinity": {}}, {}), ("meta/v1.Time", "2026-01-01T00:00:00Z", None),
]  # fmt: skip


@pytest.mark.parametrize(("type_", "left", "right"), SAME)
def test_what_go_holds_to_be_equal_is_equal(type_: str, left: Any, right: Any) -> None:
    assert same(SCHEMA.type(type_), left, right)
    assert same(SCHEMA.type(type_), right, left)


@pytest.mark.parametrize(("type_", "left", "right"), OTHER)
def test_differences_are_seen(type_: str, left: Any, right: Any) -> None:
    assert not same(SCHEMA.type(type_), left, right)
    assert not same(SCHEMA.type(type_), right, left)


def test_status_writes_keep_what_writers_do_not_know() -> None:
    old = pod()
    ready = {"type": "Ready", "observedGeneration": 3}
    old["status"] = {"qosClass": "Burstable", "observedGeneration": 3, "conditions": [ready]}
    new = {
        "metadata": {"name": "p", "namespace": "default", "ownerReferences": [{"uid": "z"}]},
        "spec": {"nodeName": "elsewhere"},
        "status": {"phase": "Running", "conditions": [{"type": "Ready"}]},
    }
    strategy.prepare_for_update(core.PODS, new, old, "status", EmptyCluster())
    assert new["spec"] is old["spec"]
    assert "ownerReferences" not in new["metadata"]
    assert new["metadata"]["uid"] == "u"
    assert new["status"]["qosClass"] == "Burstable"
    assert new["status"]["observedGeneration"] == 3
    assert new["status"]["conditions"][0]["observedGeneration"] == 3


# --- defaults and services ------------------------------------------------------------------------------------------

IMAGES = [
    ("a", "Always"), ("a:latest", "Always"), ("a:v1", "IfNotPresent"), ("localhost:5000/a", "Always"),
    ("localhost:5000/a:v1", "IfNotPresent"), ("a@sha256:" + "0" * 64, "IfNotPresent"), ("UPPER/a", "Always"),
    ("a/UPPER", "IfNotPresent"), ("", "IfNotPresent"), ("a:latest@sha256:" + "0" * 64, "Always"),
    ("a" * 5000, "IfNotPresent"),
]  # fmt: skip


@pytest.mark.parametrize(("image", "policy"), IMAGES, ids=[image[:30] for image, _ in IMAGES])
def test_pull_policy_by_tag(image: str, policy: str) -> None:
    assert default_pull_policy(image) == policy


def test_unreadable_quantities_are_refused_not_crashed() -> None:
    with pytest.raises(StatusError) as refused:
        core.NODES.default( {"metadata": {"name": "n"}, "status": {"capacity": {"cpu": "x"}}})
    assert refused.value.code == 400


def test_defaults_are_stable() -> None:
    first = pod(volumes=[{"name": "v"}], hostNetwork=True)
    core.PODS.default(first)
    strategy.prepare_for_create(core.PODS, first, EmptyCluster())
    second = {**first, "spec": {**first["spec"]}}
    core.PODS.default(second)
    assert second == first
    assert validate_create(core.PODS, first) == []


def test_services_say_what_is_to_be_found_for_them() -> None:
    ports = [{"port": 1}, {"port": 2, "nodePort": 30001}]
    service = {"metadata": {"name": "s"}, "spec": {"type": "NodePort", "ports": ports}}
    assert services.needs_cluster_ip(service)
    assert [port["port"] for port in services.ports_without_node_port(service)] == [1]
    services.set_cluster_ip(service, "10.0.0.5")
    services.complete_families(service)
    assert service["spec"]["clusterIPs"] == ["10.0.0.5"]
    assert service["spec"]["ipFamilies"] == ["IPv4"]
    assert not services.needs_cluster_ip(service)
    assert not services.needs_cluster_ip({"spec": {"type": "ExternalName"}})

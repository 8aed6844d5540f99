"""The official Python client, whose answers are typed by pydantic, against `minikube-py up` as a process."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import threading
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from kubernetes import client, config, dynamic, watch
from kubernetes.client import ApiException
from up_process import Up, up

from minikube_py.control_plane.tls import client_context
from minikube_py.env import SystemClock
from minikube_py.store.client import StoreClient
from minikube_py.store.client_connection import Endpoint

FAR = {"nodeSelector": {"on": "no-node-at-all"}}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with up("--nodes", "2", "--data-dir", str(tmp_path_factory.mktemp("python") / "data")) as running:
        yield running


@contextlib.contextmanager
def connected(running: Up) -> Iterator[client.ApiClient]:
    with config.new_client_from_config(str(running.kubeconfig)) as api:
        yield api
        api.rest_client.pool_manager.clear()


@pytest.fixture(scope="module")
def api(running: Up) -> Iterator[client.ApiClient]:
    with connected(running) as api:
        yield api


@pytest.fixture(scope="module")
def v1(api: client.ApiClient) -> client.CoreV1Api:
    return client.CoreV1Api(api)


@pytest.fixture(scope="module")
def versions(v1: client.CoreV1Api) -> str:
    v1.create_namespace({"metadata": {"name": "versions"}})
    return "versions"


@pytest.fixture
def namespace(v1: client.CoreV1Api, request: pytest.FixtureRequest) -> str:
    made = v1.create_namespace({"metadata": {"generateName": "test-"}})
    name: str = made.metadata.name
    return name


def pod(name: str, **spec: Any) -> dict[str, Any]:
    containers = [{"name": "main", "image": "pause"}]
    return {"metadata": {"name": name, "labels": {"app": name}}, "spec": {"containers": containers, **spec}}


class Kind(NamedTuple):
    """`noun` as in the client's method names; what to create; a change to merge, and where it must be found then."""

    noun: str
    spec: dict[str, Any]
    change: dict[str, Any]
    namespaced: bool = True
    group: str = "CoreV1Api"
    deleted: str = "Status"
    """What a delete answers: a Status, the object, or the object where the client expects it and gives it its type."""

    @property
    def api_group(self) -> str:
        return "coordination.k8s.io" if self.group == "CoordinationV1Api" else ""


KINDS = [
    Kind("namespace", {}, {"metadata": {"labels": {"a": "b"}}}, namespaced=False, deleted="object"),
    Kind("node", {}, {"spec": {"unschedulable": True}}, namespaced=False),
    Kind("pod", pod("x", **FAR), {"metadata": {"annotations": {"a": "b"}}}, deleted="typed"),
    Kind("service", {"spec": {"ports": [{"port": 80}], "selector": {"a": "b"}}},
         {"spec": {"selector": {"a": "c"}}}, deleted="typed"),
    Kind("endpoints", {"subsets": [{"addresses": [{"ip": "10.1.2.3"}], "ports": [{"port": 80}]}]},
         {"metadata": {"labels": {"a": "b"}}}),
    Kind("replication_controller", {"spec": {"replicas": 0, "selector": {"app": "x"}, "template": pod("x")}},
         {"spec": {"minReadySeconds": 3}}, deleted="object"),
    Kind("config_map", {"data": {"a": "1"}}, {"data": {"b": "2"}}),
    Kind("secret", {"stringData": {"a": "1"}}, {"data": {"b": "Mg=="}}),
    Kind("service_account", {}, {"automountServiceAccountToken": False}, deleted="typed"),
    Kind("event", {"involvedObject": {"kind": "Pod", "name": "p", "namespace": "{namespace}"}, "reason": "Tested",
                   "message": "m", "type": "Normal", "firstTimestamp": "2024-01-01T00:00:00Z", "count": 1},
         {"count": 2}),
    Kind("lease", {"spec": {"holderIdentity": "me", "leaseDurationSeconds": 15,
                            "renewTime": "2024-01-01T00:00:00.000001Z"}},
         {"spec": {"holderIdentity": "you"}}, group="CoordinationV1Api"),
]  # fmt: skip


class Calls:
    """The client's methods for one kind, as create(), read(), list() ... whether it has namespaces or not."""

    def __init__(self, api: client.ApiClient, kind: Kind, namespace: str) -> None:
        self._api = getattr(client, kind.group)(api)
        self._noun = f"namespaced_{kind.noun}" if kind.namespaced else kind.noun
        self.where = (namespace,) if kind.namespaced else ()

    def method(self, verb: str) -> Any:
        return getattr(self._api, f"{verb}_{self._noun}")

    def create(self, body: Any, **given: Any) -> Any:
        return self.method("create")(*self.where, body, **given)

    def list(self, **given: Any) -> Any:
        return self.method("list")(*self.where, **given)

    def named(self, verb: str, name: str, *body: Any, **given: Any) -> Any:
        return self.method(verb)(name, *self.where, *body, **given)


def contains(found: Any, wanted: Any) -> bool:
    if isinstance(wanted, dict):
        return isinstance(found, dict) and all(contains(found.get(key), value) for key, value in wanted.items())
    return bool(found == wanted)


@pytest.mark.parametrize("kind", KINDS, ids=[kind.noun for kind in KINDS])
def test_every_kind_from_create_to_delete(api: client.ApiClient, namespace: str, kind: Kind) -> None:
    calls = Calls(api, kind, namespace)
    name = f"{kind.noun.replace('_', '-')}-x"
    body = json.loads(json.dumps(kind.spec).replace("{namespace}", namespace))
    body["metadata"] = {"labels": {"app": "x"}, **body.get("metadata", {}), "name": name}

    before = calls.list().metadata.resource_version
    made = calls.create(body, field_validation="Strict")
    assert made.metadata.name == name and made.metadata.uid and made.metadata.creation_timestamp
    found = calls.named("read", name)
    assert type(found) is type(made) and found.metadata.uid == made.metadata.uid
    with pytest.raises(ApiException) as twice:
        calls.create(body)
    assert (twice.value.status, json.loads(twice.value.body)["reason"]) == (409, "AlreadyExists")

    changed = calls.named("patch", name, kind.change)
    assert contains(api.sanitize_for_serialization(changed), kind.change)
    assert int(changed.metadata.resource_version) > int(made.metadata.resource_version)
    with pytest.raises(ApiException) as stale:
        changed.metadata.resource_version = made.metadata.resource_version
        calls.named("replace", name, changed)
    assert (stale.value.status, json.loads(stale.value.body)["reason"]) == (409, "Conflict")
    assert label(calls, name, "replaced").metadata.labels["replaced"] == "yes"

    one = calls.list(label_selector="replaced=yes", field_selector=f"metadata.name={name}")
    assert [item.metadata.name for item in one.items] == [name]
    gone = calls.named("delete", name, grace_period_seconds=0)
    answer = gone if isinstance(gone, dict) else api.sanitize_for_serialization(gone)
    if kind.deleted == "Status":
        details = answer["details"]
        assert (answer["kind"], answer["status"], details["uid"]) == ("Status", "Success", made.metadata.uid)
        assert (details["name"], details["kind"], details.get("group", "")) == (name, plural(kind), kind.api_group)
    else:
        assert kind.deleted == "object" or type(gone) is type(made)
        assert answer["metadata"]["uid"] == made.metadata.uid
    seen = [
        event["type"]
        for event in until_deleted(calls, before, field_selector=f"metadata.name={name}", timeout_seconds=20)
    ]
    assert seen[0] == "ADDED" and seen[-1] == "DELETED" and set(seen[1:-1]) == {"MODIFIED"}
    with pytest.raises(ApiException) as missing:
        calls.named("read", name)
    assert missing.value.status == 404


def label(calls: Calls, name: str, key: str) -> Any:
    """A read and a replace, again where a controller came between."""
    while True:
        found = calls.named("read", name)
        found.metadata.labels = {**(found.metadata.labels or {}), key: "yes"}
        try:
            return calls.named("replace", name, found)
        except ApiException as error:
            assert error.status == 409, error


def plural(kind: Kind) -> str:
    noun = kind.noun.replace("_", "")
    return noun if noun.endswith("s") else noun + "s"


def until_deleted(calls: Calls, version: str, **given: Any) -> Iterator[Any]:
    """All events after that version, up to the first that is a deletion."""
    stream = watch.Watch()
    for event in stream.stream(calls.method("list"), *calls.where, resource_version=version, **given):
        yield event
        if event["type"] == "DELETED":
            stream.stop()


def test_a_watch_is_resumed_where_it_ended(v1: client.CoreV1Api, versions: str) -> None:
    def create(name: str) -> None:
        v1.create_namespaced_secret(versions, {"metadata": {"name": name}})

    start = v1.list_namespaced_secret(versions).metadata.resource_version
    create("a")
    create("b")
    first = watch.Watch()
    names = []
    for event in first.stream(v1.list_namespaced_secret, versions, resource_version=start, timeout_seconds=20):
        names.append(event["object"].metadata.name)
        first.stop()
    create("c")
    rest = watch.Watch()
    resumed = rest.stream(
        v1.list_namespaced_secret, versions, resource_version=first.resource_version, timeout_seconds=20
    )
    for event in resumed:
        assert event["type"] == "ADDED"
        names.append(event["object"].metadata.name)
        if len(names) == 3:
            rest.stop()
    assert names == ["a", "b", "c"]


def test_a_watch_ends_at_its_timeout(v1: client.CoreV1Api, namespace: str) -> None:
    v1.create_namespaced_secret(namespace, {"metadata": {"name": "a"}})
    events = list(watch.Watch().stream(v1.list_namespaced_secret, namespace, timeout_seconds=1))
    assert [(e["type"], e["object"].metadata.name) for e in events] == [("ADDED", "a")]


def test_versions_that_are_too_high_or_no_number(v1: client.CoreV1Api, namespace: str) -> None:
    cases = [
        ({"resource_version": "99999999"}, 504, "Timeout", "Too large resource version"),
        ({"resource_version": "x"}, 400, "BadRequest", "invalid resource version"),
        ({"resource_version_match": "Exact"}, 422, "Invalid", "resourceVersionMatch is forbidden"),
        ({"_continue": "nonsense"}, 400, "BadRequest", "continue key is not valid"),
    ]
    for given, status, reason, message in cases:
        with pytest.raises(ApiException) as refused:
            v1.list_namespaced_config_map(namespace, **given)
        answer = json.loads(refused.value.body)
        assert (refused.value.status, answer["reason"]) == (status, reason), answer
        assert message in answer["message"] and answer["code"] == status


def test_pages_hold_one_moment(v1: client.CoreV1Api, namespace: str) -> None:
    for number in range(7):
        v1.create_namespaced_secret(namespace, {"metadata": {"name": f"s{number}"}})
    page = v1.list_namespaced_secret(namespace, limit=3)
    assert page.metadata.remaining_item_count == 4
    v1.delete_namespaced_secret("s6", namespace)
    names, at = [s.metadata.name for s in page.items], page.metadata.resource_version
    while page.metadata._continue:
        page = v1.list_namespaced_secret(namespace, limit=3, _continue=page.metadata._continue)
        names += [s.metadata.name for s in page.items]
        assert page.metadata.resource_version == at
    assert names == [f"s{number}" for number in range(7)]


PATCHES: list[tuple[str, Any, dict[str, str | None]]] = [
    ("application/merge-patch+json", {"data": {"a": None, "b": "2"}}, {"a": None, "b": "2"}),
    ("application/strategic-merge-patch+json", {"data": {"c": "3"}}, {"a": "1", "c": "3"}),
    ("application/json-patch+json", [{"op": "replace", "path": "/data/a", "value": "9"}], {"a": "9"}),
]


@pytest.mark.parametrize("case", PATCHES, ids=[case[0] for case in PATCHES])
def test_patches(api: client.ApiClient, v1: client.CoreV1Api, namespace: str, case: Any) -> None:
    kind, patch, wanted = case
    v1.create_namespaced_config_map(namespace, {"metadata": {"name": "m"}, "data": {"a": "1"}})
    answer = api.call_api(
        "PATCH",
        f"{api.configuration.host}/api/v1/namespaces/{namespace}/configmaps/m",
        {"Content-Type": kind, "Accept": "application/json", **authorization(api)},
        patch,
    )
    answer.read()
    assert answer.status == 200
    data = v1.read_namespaced_config_map("m", namespace).data
    assert {key: data.get(key) for key in wanted} == wanted


def authorization(api: client.ApiClient) -> dict[str, str]:
    headers: dict[str, str] = {}
    api.update_params_for_auth(headers, [], ["BearerToken"], None, None, None)
    return headers


def test_a_list_given_to_patch_is_a_json_patch(v1: client.CoreV1Api, namespace: str) -> None:
    v1.create_namespaced_config_map(namespace, {"metadata": {"name": "m"}, "data": {"a": "1"}})
    v1.patch_namespaced_config_map("m", namespace, [{"op": "remove", "path": "/data/a"}])
    assert not v1.read_namespaced_config_map("m", namespace).data
    with pytest.raises(ApiException) as refused:
        v1.patch_namespaced_config_map("m", namespace, [{"op": "test", "path": "/data/a", "value": "2"}])
    assert refused.value.status == 422


def test_status_is_written_apart(v1: client.CoreV1Api, namespace: str) -> None:
    v1.create_namespaced_pod(namespace, pod("p", **FAR))
    change = {"spec": {"activeDeadlineSeconds": 5}, "status": {"phase": "Failed", "message": "by hand"}}
    v1.patch_namespaced_pod_status("p", namespace, change)
    found = v1.read_namespaced_pod_status("p", namespace)
    assert (found.status.phase, found.status.message) == ("Failed", "by hand")
    assert found.spec.active_deadline_seconds is None
    found.status.phase = "Succeeded"
    found.spec.containers[0].image = "other"
    kept = v1.replace_namespaced_pod_status("p", namespace, found)
    assert kept.status.phase == "Succeeded" and kept.spec.containers[0].image == "pause"


def running_pods(v1: client.CoreV1Api, namespace: str, count: int) -> list[Any]:
    """By watch: the pods of the namespace once exactly so many of them run."""
    listed = v1.list_namespaced_pod(namespace)
    pods = {p.metadata.name: p for p in listed.items}

    def alive() -> list[Any]:
        return [p for p in pods.values() if p.status.phase == "Running" and p.metadata.deletion_timestamp is None]

    if len(alive()) == count == len(pods):
        return alive()
    stream = watch.Watch()
    version = listed.metadata.resource_version
    for event in stream.stream(v1.list_namespaced_pod, namespace, resource_version=version, timeout_seconds=40):
        pods.pop(event["object"].metadata.name, None)
        if event["type"] != "DELETED":
            pods[event["object"].metadata.name] = event["object"]
        if len(alive()) == count == len(pods):
            return alive()
    raise AssertionError(f"{[(p.metadata.name, p.status.phase) for p in pods.values()]} instead of {count} Running")


def test_scale_of_a_controller(v1: client.CoreV1Api, namespace: str) -> None:
    template = pod("web") | {"metadata": {"labels": {"app": "web"}}}
    body = {"metadata": {"name": "web"}, "spec": {"replicas": 2, "selector": {"app": "web"}, "template": template}}
    v1.create_namespaced_replication_controller(namespace, body)
    first = running_pods(v1, namespace, 2)
    assert all(p.spec.node_name and p.status.pod_ip and p.metadata.owner_references for p in first)
    v1.patch_namespaced_replication_controller_scale("web", namespace, {"spec": {"replicas": 3}})
    assert len(running_pods(v1, namespace, 3)) == 3
    scale = v1.read_namespaced_replication_controller_scale("web", namespace)
    assert (scale.spec.replicas, scale.status.selector) == (3, "app=web")
    scale.spec.replicas = 1
    scale.metadata.resource_version = None
    v1.replace_namespaced_replication_controller_scale("web", namespace, scale)
    (left,) = running_pods(v1, namespace, 1)
    assert v1.read_namespaced_replication_controller("web", namespace).spec.replicas == 1
    gone = v1.delete_namespaced_pod(left.metadata.name, namespace)
    assert gone.metadata.deletion_timestamp is not None and gone.metadata.deletion_grace_period_seconds == 30
    (instead,) = running_pods(v1, namespace, 1)
    assert instead.metadata.name != left.metadata.name
    v1.delete_namespaced_replication_controller("web", namespace, propagation_policy="Foreground")
    assert running_pods(v1, namespace, 0) == []


def test_binding_and_eviction(v1: client.CoreV1Api, namespace: str) -> None:
    v1.create_namespaced_pod(namespace, pod("p", schedulerName="nobody"))
    binding = {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "node-1"}}
    v1.create_namespaced_pod_binding("p", namespace, binding, _preload_content=False).read()
    (bound,) = running_pods(v1, namespace, 1)
    assert bound.spec.node_name == "node-1"
    with pytest.raises(ApiException) as again:
        v1.create_namespaced_pod_binding("p", namespace, binding, _preload_content=False)
    assert again.value.status == 409 and "already assigned to node" in again.value.body
    with pytest.raises(ApiException) as other:
        v1.create_namespaced_pod_eviction("p", namespace, {"metadata": {"name": "q"}})
    assert other.value.status == 400
    v1.create_namespaced_pod_eviction("p", namespace, {"metadata": {"name": "p"}}, _preload_content=False).read()
    assert running_pods(v1, namespace, 0) == []


def test_what_an_exception_tells(v1: client.CoreV1Api, namespace: str) -> None:
    with pytest.raises(ApiException) as missing:
        v1.read_namespaced_pod("nope", namespace)
    error = missing.value
    assert (error.status, error.reason) == (404, "Not Found")
    assert error.headers["Content-Type"] == "application/json"
    assert json.loads(error.body) == {
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": "NotFound", "code": 404,
        "message": 'pods "nope" not found', "details": {"name": "nope", "kind": "pods"},
    }  # fmt: skip
    with pytest.raises(ApiException) as invalid:
        v1.create_namespaced_pod(namespace, {"metadata": {"name": "Bad_Name"}, "spec": {"containers": []}})
    answer = json.loads(invalid.value.body)
    assert (answer["code"], answer["reason"]) == (422, "Invalid")
    assert {cause["field"] for cause in answer["details"]["causes"]} == {"metadata.name", "spec.containers"}
    with pytest.raises(ApiException) as unknown:
        v1.patch_namespaced_config_map("kube-root-ca.crt", "default", {"date": {}}, field_validation="Strict")
    assert 'unknown field "date"' in json.loads(unknown.value.body)["message"]


def test_dry_run_changes_nothing(v1: client.CoreV1Api, namespace: str) -> None:
    v1.create_namespaced_config_map(namespace, {"metadata": {"name": "m"}}, dry_run="All")
    assert v1.list_namespaced_config_map(namespace, field_selector="metadata.name=m").items == []


def test_inequalities(v1: client.CoreV1Api) -> None:
    for name, cpu in (("small", "2"), ("middle", "6"), ("large", "12")):
        allocatable = {"cpu": cpu, "memory": "24Gi", "pods": "10", "example.com/shares": cpu}
        body = {"metadata": {"name": name}, "spec": {"unschedulable": True}, "status": {"allocatable": allocatable}}
        v1.create_node(body)

    def fit(selector: str, **given: Any) -> list[str]:
        names = [node.metadata.name for node in v1.list_node(field_selector=selector, **given).items]
        return [name for name in names if not name.startswith("node-")]

    assert fit("free.cpu>=6,free.memory>=16Gi") == ["large", "middle"]
    assert fit("free.cpu<6") == ["small"]
    assert fit("free.example.com/shares in (2,12)") == ["large", "small"]
    then = v1.list_node().metadata.resource_version
    v1.create_namespaced_pod(
        "default", pod("taker", nodeName="large", containers=[
            {"name": "main", "image": "pause", "resources": {"requests": {"cpu": "8"}}}])
    )  # fmt: skip
    assert fit("free.cpu>=6,free.memory>=16Gi") == ["middle"]
    assert fit("free.cpu>=6", resource_version=then, resource_version_match="Exact") == ["large", "middle"]
    stream = watch.Watch()
    for event in stream.stream(
        v1.list_node, field_selector="free.cpu>=12", resource_version=then, timeout_seconds=20
    ):
        if event["type"] != "MODIFIED":
            assert (event["type"], event["object"].metadata.name) == ("DELETED", "large")
            stream.stop()
    with pytest.raises(ApiException) as unknown:
        v1.list_node(field_selector="free-cpu>=1")
    assert unknown.value.status == 400


def test_the_dynamic_client(api: client.ApiClient, namespace: str, tmp_path: Path) -> None:
    anything = dynamic.DynamicClient(api, cache_file=str(tmp_path / "discovery"))
    maps = anything.resources.get(api_version="v1", kind="ConfigMap")
    body = {"metadata": {"name": "d", "namespace": namespace, "labels": {"app": "d"}}, "data": {"a": "1"}}
    assert maps.create(body=body).data.a == "1"
    assert maps.get(name="d", namespace=namespace).kind == "ConfigMap"
    listed = maps.get(namespace=namespace, label_selector="app=d")
    assert [item.metadata.name for item in listed.items] == ["d"] and listed.kind == "ConfigMapList"
    change = {"metadata": {"name": "d", "namespace": namespace}, "data": {"b": "2"}}
    merged = maps.patch(body=change, content_type="application/merge-patch+json")
    assert merged.data.to_dict() == {"a": "1", "b": "2"}
    kinds = {
        (found.group_version, found.kind)
        for found in anything.resources.search()
        if not found.kind.endswith("List") and not isinstance(found, dynamic.resource.ResourceList)
    }
    wanted = ("Namespace", "Node", "Pod", "Service", "Endpoints", "ReplicationController", "Secret", "ServiceAccount")
    assert {("v1", kind) for kind in wanted} | {("coordination.k8s.io/v1", "Lease")} <= kinds
    pods = anything.resources.get(api_version="v1", kind="Pod")
    pods.create(body=pod("p", **FAR), namespace=namespace)
    for event in pods.watch(namespace=namespace, timeout=20):
        assert (event["type"], event["object"].metadata.name) == ("ADDED", "p")
        break
    assert pods.delete(name="p", namespace=namespace).kind == "Pod"
    with pytest.raises(dynamic.exceptions.NotFoundError) as missing:
        pods.get(name="p", namespace=namespace)
    assert missing.value.status == 404 and missing.value.summary() == 'pods "p" not found'
    with pytest.raises(dynamic.exceptions.ResourceNotFoundError):
        anything.resources.get(api_version="v1", kind="Gadget")


def test_versions_health_and_rights(api: client.ApiClient) -> None:
    version = client.VersionApi(api).get_code()
    assert version.major == "1" and int(version.minor) >= 30
    groups = {group.name for group in client.ApisApi(api).get_api_versions().groups}
    assert {"coordination.k8s.io", "authorization.k8s.io"} <= groups
    assert "pods/eviction" in {each.name for each in client.CoreV1Api(api).get_api_resources().resources}
    review = {"spec": {"resourceAttributes": {"verb": "create", "resource": "pods", "namespace": "default"}}}
    assert client.AuthorizationV1Api(api).create_self_subject_access_review(review).status.allowed


def test_many_threads_share_one_client(v1: client.CoreV1Api, namespace: str) -> None:
    v1.create_namespaced_config_map(namespace, {"metadata": {"name": "n"}, "data": {"n": "0"}})
    conflicts: list[int] = []

    def count_up(seed: int) -> None:
        done = 0
        order = random.Random(seed)
        while done < 10:
            found = v1.read_namespaced_config_map("n", namespace)
            found.data["n"] = str(int(found.data["n"]) + 1)
            found.data[f"by-{order.randrange(5)}"] = str(seed)
            try:
                v1.replace_namespaced_config_map("n", namespace, found)
                done += 1
            except ApiException as error:
                assert error.status == 409, error
                conflicts.append(seed)

    threads = [threading.Thread(target=count_up, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert v1.read_namespaced_config_map("n", namespace).data["n"] == "40"


def test_expired_versions_are_410_and_a_new_list_goes_on(tmp_path: Path) -> None:
    """The store compacts, as its age limit would; then the API server is killed, so that its cache is lost too."""
    flags = ("--split", "--nodes", "0", "--data-dir", str(tmp_path / "data"))
    with up(*flags) as running, connected(running) as api:
        v1 = client.CoreV1Api(api)
        for number in range(4):
            v1.create_namespaced_config_map("default", {"metadata": {"name": f"m{number}"}})
        page = v1.list_namespaced_config_map("default", limit=2)
        old = page.metadata.resource_version
        newer = v1.create_namespaced_config_map("default", {"metadata": {"name": "m4"}}).metadata.resource_version
        asyncio.run(compact(running, int(newer)))

        with pytest.raises(ApiException) as exact:
            v1.list_namespaced_config_map("default", resource_version=old, resource_version_match="Exact")
        assert (exact.value.status, json.loads(exact.value.body)["reason"]) == (410, "Expired")
        with pytest.raises(ApiException) as paged:
            v1.list_namespaced_config_map("default", limit=2, _continue=page.metadata._continue)
        assert paged.value.status == 410
        token = json.loads(paged.value.body)["metadata"]["continue"]
        rest = v1.list_namespaced_config_map("default", _continue=token)
        assert "m4" in [m.metadata.name for m in rest.items]

        said = len(running.lines)
        os.kill(running.children()["apiserver"], signal.SIGKILL)
        assert running.until_said("apiserver is back", said)
        with pytest.raises(ApiException) as gone:
            list(watch.Watch().stream(v1.list_namespaced_config_map, "default", resource_version=old,
                                      timeout_seconds=5))  # fmt: skip
        assert gone.value.status == 410 and "too old resource version" in gone.value.reason
        listed = v1.list_namespaced_config_map("default")
        v1.create_namespaced_config_map("default", {"metadata": {"name": "m5"}})
        stream = watch.Watch()
        for event in stream.stream(v1.list_namespaced_config_map, "default", timeout_seconds=20,
                                   resource_version=listed.metadata.resource_version):  # fmt: skip
            assert event["object"].metadata.name == "m5"
            stream.stop()


async def compact(running: Up, revision: int) -> None:
    arguments = Path(f"/proc/{running.children()['apiserver']}/cmdline").read_text().split("\0")
    given = dict(pairwise(arguments))
    host, _, port = given["--store"].rpartition(":")
    token = Path(given["--store-token-file"]).read_text().strip()
    context = client_context(Path(given["--store-ca-file"]).read_bytes())
    store = StoreClient(Endpoint(host, int(port), token, context), SystemClock(), random.Random(1))
    await store.start()
    await store.compact(revision)
    await store.close()

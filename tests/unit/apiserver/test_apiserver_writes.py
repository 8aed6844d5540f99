"""Creates, updates, patches and deletes, as upstream answers them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from api_core import MAPS, MERGE, PODS, Core, config_map, names, node, pod

RC = "/api/v1/namespaces/default/replicationcontrollers"
SERVICES = "/api/v1/namespaces/default/services"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"


def controller(name: str, replicas: int = 0) -> dict[str, Any]:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    spec = {"replicas": replicas, "selector": {"a": "b"}, "template": template}
    return {"apiVersion": "v1", "kind": "ReplicationController", "metadata": {"name": name}, "spec": spec}


def service(name: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": {"ports": [{"port": 80}], **spec}}  # noqa: E501


async def test_a_created_object_is_what_get_returns(core: Core) -> None:
    created = await core.done("POST", MAPS, config_map("a", x="1"))
    assert created["kind"] == "ConfigMap" and created["metadata"]["resourceVersion"]
    assert await core.done("GET", f"{MAPS}/a") == created


REFUSED_CREATES = {
    "exists": ("POST", MAPS, config_map("there"), 409, "AlreadyExists", 'configmaps "there" already exists'),
    "no namespace": (
        "POST", "/api/v1/namespaces/nope/configmaps", config_map("a"), 404, "NotFound", 'namespaces "nope" not found',
    ),
    "another namespace in the body": (
        "POST", MAPS, {**config_map("a"), "metadata": {"name": "a", "namespace": "other"}}, 400, "BadRequest",
        "the namespace of the provided object does not match the namespace sent on the request",
    ),
    "a version": (
        "POST", MAPS, {"metadata": {"name": "a", "resourceVersion": "5"}}, 400, "BadRequest",
        "resourceVersion should not be set on objects to be created",
    ),
    "no name": (
        "POST", MAPS, {"metadata": {}}, 422, "Invalid",
        'ConfigMap "" is invalid: metadata.name: Required value: name or generateName is required',
    ),
    "wrong dryRun": (
        "POST", f"{MAPS}?dryRun=foo", config_map("a"), 422, "Invalid",
        'CreateOptions.meta.k8s.io "" is invalid: dryRun: Unsupported value: ["foo"]: supported values: "All"',
    ),
    "wrong fieldValidation": (
        "POST", f"{MAPS}?fieldValidation=Foo", config_map("a"), 422, "Invalid",
        'CreateOptions.meta.k8s.io "" is invalid: fieldValidation: Unsupported value: "Foo": supported values: "", '
        '"Ignore", "Strict", "Warn"',
    ),
    "stale PUT": (
        "PUT", f"{MAPS}/there", {"metadata": {"name": "there", "resourceVersion": "1"}}, 409, "Conflict",
        'Operation cannot be fulfilled on configmaps "there": the object has been modified; please apply your changes '
        "to the latest version and try again",
    ),
    "PUT of another name": (
        "PUT", f"{MAPS}/there", config_map("y"), 400, "BadRequest",
        "the name of the object (y) does not match the name on the URL (there)",
    ),
    "PUT without a name": (
        "PUT", f"{MAPS}/there", {"data": {}}, 400, "BadRequest",
        "the name of the object (there based on URL) was undeterminable: name must be provided",
    ),
    "PUT of what is not there": ("PUT", f"{MAPS}/nope", config_map("nope"), 404, "NotFound", 'configmaps "nope" not found'),  # noqa: E501
    "PUT with a version that is none": (
        "PUT", f"{MAPS}/there", {"metadata": {"name": "there", "resourceVersion": "abc"}}, 400, "BadRequest",
        'strconv.ParseUint: parsing "abc": invalid syntax',
    ),
    "unconditional PUT of a lease": (
        "PUT", f"{LEASES}/l", {"metadata": {"name": "l"}, "spec": {"holderIdentity": "z"}}, 422, "Invalid",
        'leases.coordination.k8s.io "l" is invalid: metadata.resourceVersion: Invalid value: 0: must be specified for '
        "an update",
    ),
    "DELETE of what is not there": ("DELETE", f"{MAPS}/nope", None, 404, "NotFound", 'configmaps "nope" not found'),
    "DELETE with a wrong policy": (
        "DELETE", f"{MAPS}/there", {"propagationPolicy": "Foo"}, 422, "Invalid",
        'DeleteOptions.meta.k8s.io "" is invalid: propagationPolicy: Unsupported value: "Foo": supported values: '
        '"Foreground", "Background", "Orphan", "nil"',
    ),
    "DELETE of an immortal namespace": (
        "DELETE", "/api/v1/namespaces/default", None, 403, "Forbidden",
        'namespaces "default" is forbidden: this namespace may not be deleted',
    ),
    "DELETE of another uid": (
        "DELETE", f"{MAPS}/there", {"preconditions": {"resourceVersion": "1"}}, 409, "Conflict",
        'Operation cannot be fulfilled on ConfigMap "there": the ResourceVersion in the precondition (1) does not match '  # noqa: E501
        "the ResourceVersion in record (VERSION). The object might have been modified",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED_CREATES.values(), ids=REFUSED_CREATES)
async def test_refusals_say_why_and_change_nothing(core: Core, case: tuple[Any, ...]) -> None:
    method, path, body, code, reason, message = case
    there = await core.done("POST", MAPS, config_map("there"))
    await core.done("POST", LEASES, {"metadata": {"name": "l"}})
    before = core.member.storage.revision
    status, answer = await core.ask(method, path, body)
    message = message.replace("VERSION", there["metadata"]["resourceVersion"])
    assert (status, answer["reason"], answer["message"]) == (code, reason, message)
    assert answer["kind"] == "Status" and answer["code"] == code
    assert core.member.storage.revision == before


async def test_generated_names_are_tried_again_when_taken(core: Core, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = iter(["g-1", "g-1", "g-2"])
    monkeypatch.setattr("minikube_py.apiserver.preparing.generate_name", lambda base, rng: next(tried))
    body = {"metadata": {"generateName": "g-"}}
    assert (await core.done("POST", MAPS, body))["metadata"]["name"] == "g-1"
    assert (await core.done("POST", MAPS, body))["metadata"]["name"] == "g-2"


async def test_dry_run_answers_and_stores_nothing(core: Core) -> None:
    before = core.member.storage.revision
    status, answer = await core.ask("POST", f"{MAPS}?dryRun=All", config_map("a"))
    assert status == 201 and answer["metadata"]["uid"] and "resourceVersion" not in answer["metadata"]
    await core.done("POST", MAPS, config_map("b"))
    await core.done("PATCH", f"{MAPS}/b?dryRun=All", {"data": {"z": "1"}}, MERGE)
    await core.done("DELETE", f"{MAPS}/b?dryRun=All")
    assert core.member.storage.revision == before + 1
    assert (await core.done("GET", f"{MAPS}/b")).get("data", {}) == {}


async def test_an_update_that_changes_nothing_keeps_the_version(core: Core) -> None:
    created = await core.done("POST", MAPS, config_map("a", x="1", y="2"))
    put = await core.done("PUT", f"{MAPS}/a", {"data": {"y": "2", "x": "1"}, "metadata": created["metadata"]})
    patched = await core.done("PATCH", f"{MAPS}/a", {"data": {"x": "1"}}, MERGE)
    assert created["metadata"] == put["metadata"] == patched["metadata"]


async def test_concurrent_patches_all_take_effect(core: Core) -> None:
    await core.done("POST", MAPS, config_map("a"))
    patches = [core.done("PATCH", f"{MAPS}/a", {"data": {f"k{i}": "v"}}, MERGE) for i in range(20)]
    await asyncio.gather(*patches)
    assert len((await core.done("GET", f"{MAPS}/a"))["data"]) == 20


@pytest.mark.parametrize("verb", ["PATCH", "PUT"])
async def test_however_many_changes_of_one_object_name_no_version_all_succeed(core: Core, verb: str) -> None:
    """As upstream's TestPatchConflicts; and few are made in vain."""
    made = await core.done("POST", MAPS, config_map("a"))
    tried = []
    replace = core.api.store.replace

    async def counted(*args: Any) -> Any:
        tried.append(1)
        return await replace(*args)

    core.api.store.replace = counted  # type: ignore[method-assign]
    kind = MERGE if verb == "PATCH" else "application/json"
    body = [{"metadata": {"name": "a"}, "data": {f"k{i}": "v"}} for i in range(100)]
    await asyncio.gather(*(core.done(verb, f"{MAPS}/a", each, kind) for each in body))
    found = await core.done("GET", f"{MAPS}/a")
    assert len(found["data"]) == (100 if verb == "PATCH" else 1) and 100 <= len(tried) <= 250
    assert int(found["metadata"]["resourceVersion"]) == int(made["metadata"]["resourceVersion"]) + 100
    assert not core.api.store.turns


async def test_concurrent_updates_of_one_version_succeed_once(core: Core) -> None:
    created = await core.done("POST", MAPS, config_map("a"))
    puts = [core.ask("PUT", f"{MAPS}/a", {"metadata": created["metadata"], "data": {"by": str(i)}}) for i in range(10)]
    codes = sorted(status for status, _ in await asyncio.gather(*puts))
    assert codes == [200] + [409] * 9


async def test_generation_rises_with_the_spec_alone(core: Core) -> None:
    await core.done("POST", PODS, pod("p"))
    status = {"status": {"phase": "Running"}}
    assert (await core.done("PATCH", f"{PODS}/p/status", status, MERGE))["metadata"]["generation"] == 1
    await core.done("POST", RC, controller("r"))
    scaled = await core.done("PATCH", f"{RC}/r", {"spec": {"replicas": 2}}, MERGE)
    assert scaled["metadata"]["generation"] == 2
    assert (await core.done("PATCH", f"{RC}/r", {"metadata": {"labels": {"x": "y"}}}, MERGE))["metadata"]["generation"] == 2  # noqa: E501


async def test_status_and_spec_are_written_apart(core: Core) -> None:
    await core.done("POST", PODS, pod("p"))
    await core.done("PATCH", f"{PODS}/p", {"status": {"phase": "Failed"}}, MERGE)
    assert (await core.done("GET", f"{PODS}/p"))["status"]["phase"] == "Pending"
    await core.done("PATCH", f"{PODS}/p/status", {"spec": {"nodeName": "n"}, "status": {"phase": "Running"}}, MERGE)
    found = await core.done("GET", f"{PODS}/p")
    assert found["status"]["phase"] == "Running" and "nodeName" not in found["spec"]


# --- deletion -------------------------------------------------------------------------------------------------------


async def test_what_a_delete_answers(core: Core) -> None:
    created = await core.done("POST", MAPS, config_map("a"))
    answer = await core.done("DELETE", f"{MAPS}/a")
    assert answer["status"] == "Success"
    assert answer["details"] == {"name": "a", "kind": "configmaps", "uid": created["metadata"]["uid"]}
    await core.done("POST", PODS, pod("p"))
    assert (await core.done("DELETE", f"{PODS}/p"))["kind"] == "Pod"


async def test_a_bound_pod_is_given_its_grace_and_an_unbound_one_goes_at_once(core: Core) -> None:
    await core.done("POST", PODS, pod("bound", "n1"))
    await core.done("POST", PODS, pod("unbound"))
    deleted = await core.done("DELETE", f"{PODS}/bound")
    assert deleted["metadata"]["deletionGracePeriodSeconds"] == 30
    assert (await core.done("DELETE", f"{PODS}/bound"))["metadata"] == deleted["metadata"]
    shorter = await core.done("DELETE", f"{PODS}/bound?gracePeriodSeconds=5")
    assert shorter["metadata"]["deletionGracePeriodSeconds"] == 5
    await core.done("DELETE", f"{PODS}/unbound")
    assert names(await core.done("GET", PODS)) == ["bound"]
    await core.done("DELETE", f"{PODS}/bound?gracePeriodSeconds=0")
    assert names(await core.done("GET", PODS)) == []


async def test_finalizers_hold_an_object_until_the_last_is_taken_off(core: Core) -> None:
    body = config_map("a")
    body["metadata"]["finalizers"] = ["example.com/one", "example.com/two"]
    await core.done("POST", MAPS, body)
    held = await core.done("DELETE", f"{MAPS}/a")
    assert held["metadata"]["deletionTimestamp"] and held["metadata"]["deletionGracePeriodSeconds"] == 0
    await core.done("PATCH", f"{MAPS}/a", {"metadata": {"finalizers": ["example.com/one"]}}, MERGE)
    assert (await core.ask("GET", f"{MAPS}/a"))[0] == 200
    await core.done("PATCH", f"{MAPS}/a", {"metadata": {"finalizers": None}}, MERGE)
    assert (await core.ask("GET", f"{MAPS}/a"))[0] == 404


PROPAGATION = {
    "orphan": ({"propagationPolicy": "Orphan"}, ["orphan"]),
    "the older way": ({"orphanDependents": True}, ["orphan"]),
    "foreground": ({"propagationPolicy": "Foreground"}, ["foregroundDeletion"]),
    "background": ({"propagationPolicy": "Background"}, None),
    "controllers orphan unless told otherwise": (None, ["orphan"]),
}


@pytest.mark.parametrize("case", PROPAGATION.values(), ids=PROPAGATION)
async def test_propagation(core: Core, case: tuple[Any, list[str] | None]) -> None:
    options, finalizers = case
    await core.done("POST", RC, controller("r"))
    await core.done("DELETE", f"{RC}/r", options)
    status, found = await core.ask("GET", f"{RC}/r")
    assert (found["metadata"].get("finalizers") if status == 200 else None) == finalizers


async def test_deletecollection_takes_what_is_selected(core: Core) -> None:
    for name in "abc":
        await core.done("POST", MAPS, config_map(name, {"keep": "yes"} if name == "b" else None))
    answer = await core.done("DELETE", f"{MAPS}?labelSelector=!keep")
    assert answer["kind"] == "ConfigMapList" and names(answer) == ["a", "c"]
    assert names(await core.done("GET", MAPS)) == ["b"]


async def test_a_namespace_goes_when_it_is_finalized(core: Core) -> None:
    await core.done("POST", "/api/v1/namespaces", {"metadata": {"name": "n"}})
    deleted = await core.done("DELETE", "/api/v1/namespaces/n")
    assert deleted["status"]["phase"] == "Terminating"
    status, answer = await core.ask("POST", "/api/v1/namespaces/n/configmaps", config_map("a"))
    assert status == 403 and answer["details"]["causes"][0]["reason"] == "NamespaceTerminating"
    assert answer["message"] == (
        'configmaps "a" is forbidden: unable to create new content in namespace n because it is being terminated'
    )
    await core.done("PUT", "/api/v1/namespaces/n/finalize", {"metadata": {"name": "n"}, "spec": {}})
    assert (await core.ask("GET", "/api/v1/namespaces/n"))[0] == 404


async def test_no_object_slips_into_a_namespace_that_was_closed_meanwhile(core: Core) -> None:
    """Another server closes the namespace after this one has looked at it: the write itself must notice."""
    await core.done("POST", "/api/v1/namespaces", {"metadata": {"name": "n"}})
    await core.done("POST", "/api/v1/namespaces/n/configmaps", config_map("a"))
    other = core.server()
    await other.start()
    other.cache.apply = lambda events, revision: None  # type: ignore[method-assign]
    await core.done("DELETE", "/api/v1/namespaces/n")
    core.api, first = other, core.api
    status, answer = await core.ask("POST", "/api/v1/namespaces/n/configmaps", config_map("b"))
    core.api = first
    await other.stop()
    assert (status, answer["reason"]) == (403, "Forbidden")


# --- subresources ---------------------------------------------------------------------------------------------------


def binding(name: str, target: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "target": {"kind": "Node", "name": target}}


async def test_binding(core: Core) -> None:
    await core.done("POST", PODS, pod("p"))
    assert (await core.ask("POST", f"{PODS}/p/binding", binding("p", "n1")))[0] == 201
    found = await core.done("GET", f"{PODS}/p")
    assert found["spec"]["nodeName"] == "n1"
    assert [(c["type"], c["status"]) for c in found["status"]["conditions"]] == [("PodScheduled", "True")]
    status, answer = await core.ask("POST", f"{PODS}/p/binding", binding("p", "n2"))
    assert status == 409 and 'pod p is already assigned to node "n1"' in answer["message"]
    assert (await core.ask("POST", f"{PODS}/nope/binding", binding("nope", "n1")))[0] == 404
    assert (await core.ask("POST", f"{PODS}/p/binding", binding("q", "n1")))[0] == 400
    assert (await core.ask("POST", f"{PODS}/p/binding", binding("p", "")))[0] == 422


async def test_concurrent_bindings_succeed_once(core: Core) -> None:
    await core.done("POST", PODS, pod("p"))
    asked = [core.ask("POST", f"{PODS}/p/binding", binding("p", f"n{i}")) for i in range(8)]
    assert sorted(status for status, _ in await asyncio.gather(*asked)) == [201] + [409] * 7


async def test_eviction_deletes_and_says_so_in_a_condition(core: Core) -> None:
    await core.done("POST", PODS, pod("p", "n1"))
    assert (await core.ask("POST", f"{PODS}/p/eviction", {"metadata": {"name": "p"}}))[0] == 201
    found = await core.done("GET", f"{PODS}/p")
    assert found["metadata"]["deletionTimestamp"]
    assert found["status"]["conditions"][-1]["reason"] == "EvictionByEvictionAPI"
    assert (await core.ask("POST", f"{PODS}/nope/eviction", {"metadata": {"name": "nope"}}))[0] == 404


async def test_scale(core: Core) -> None:
    await core.done("POST", RC, controller("r", 1))
    scale = await core.done("GET", f"{RC}/r/scale")
    assert scale["kind"] == "Scale" and scale["spec"] == {"replicas": 1} and scale["status"]["selector"] == "a=b"
    assert (await core.done("PATCH", f"{RC}/r/scale", {"spec": {"replicas": 3}}, MERGE))["spec"]["replicas"] == 3
    scale["spec"]["replicas"] = 5
    assert (await core.ask("PUT", f"{RC}/r/scale", scale))[0] == 409
    scale["metadata"].pop("resourceVersion")
    assert (await core.done("PUT", f"{RC}/r/scale", scale))["spec"]["replicas"] == 5
    status, answer = await core.ask("PATCH", f"{RC}/r/scale", {"spec": {"replicas": -3}}, content_type=MERGE)
    assert status == 422 and 'Scale.autoscaling "r" is invalid' in answer["message"]


async def test_log(core: Core) -> None:
    await core.done("POST", PODS, pod("p", "n1"))
    status, answer = await core.ask("GET", f"{PODS}/p/log")
    assert (status, answer["message"]) == (
        400, 'container "main" in pod "p" is waiting to start: ContainerCreating',
    )  # fmt: skip
    running = {"status": {"containerStatuses": [{"name": "main", "state": {"running": {}}}]}}
    await core.done("PATCH", f"{PODS}/p/status", running, MERGE)
    assert (await core.respond("GET", f"{PODS}/p/log")).body == b""
    assert (await core.ask("GET", f"{PODS}/p/log?container=x"))[0] == 400
    assert (await core.ask("GET", f"{PODS}/p/log?tailLines=-1"))[0] == 422


# --- services -------------------------------------------------------------------------------------------------------


async def test_services_get_addresses_that_no_other_has(core: Core) -> None:
    answers = await asyncio.gather(*(core.done("POST", SERVICES, service(f"s{i}")) for i in range(60)))
    addresses = [answer["spec"]["clusterIP"] for answer in answers]
    assert len(set(addresses)) == 60 and all(address.startswith("10.0.0.") for address in addresses)


ADDRESSES = {
    "taken": ("10.0.0.77", "failed to allocate IP 10.0.0.77: provided IP is already allocated"),
    "out of range": ("10.1.0.77", "failed to allocate IP 10.1.0.77: the provided network does not match the current range"),  # noqa: E501
}


@pytest.mark.parametrize("case", ADDRESSES.values(), ids=ADDRESSES)
async def test_an_address_that_cannot_be_had(core: Core, case: tuple[str, str]) -> None:
    wanted, why = case
    await core.done("POST", SERVICES, service("first", clusterIP="10.0.0.77"))
    status, answer = await core.ask("POST", SERVICES, service("second", clusterIP=wanted))
    assert status == 422
    assert answer["message"] == f'Service "second" is invalid: spec.clusterIPs: Invalid value: ["{wanted}"]: {why}'


async def test_a_deleted_service_gives_its_address_and_port_back(core: Core) -> None:
    wanted = {"clusterIP": "10.0.0.9", "type": "NodePort", "ports": [{"port": 80, "nodePort": 30123}]}
    for _ in range(2):
        await core.done("POST", SERVICES, service("s", **wanted))
        await core.done("DELETE", f"{SERVICES}/s")


async def test_a_service_that_becomes_a_node_port_gets_one_and_keeps_its_address(core: Core) -> None:
    created = await core.done("POST", SERVICES, service("s"))
    changed = await core.done("PATCH", f"{SERVICES}/s", {"spec": {"type": "NodePort"}}, MERGE)
    port = changed["spec"]["ports"][0]["nodePort"]
    assert changed["spec"]["clusterIP"] == created["spec"]["clusterIP"] and 30000 <= port <= 32767
    status, answer = await core.ask(
        "POST", SERVICES, service("t", type="NodePort", ports=[{"port": 80, "nodePort": port}])
    )
    assert status == 422 and "provided port is already allocated" in answer["message"]


async def test_a_full_range_says_so(core: Core) -> None:
    networks = "/apis/networking.k8s.io/v1/servicecidrs"
    await core.done("POST", networks, {"metadata": {"name": "small"}, "spec": {"cidrs": ["10.9.0.0/29"]}})
    told = {"type": "Ready", "status": "False", "reason": "R", "lastTransitionTime": "2024-01-01T00:00:00Z"}
    await core.done("PATCH", f"{networks}/kubernetes/status", {"status": {"conditions": [told]}}, MERGE)
    for i in range(6):
        await core.done("POST", SERVICES, service(f"s{i}"))
    status, answer = await core.ask("POST", SERVICES, service("one-too-many"))
    assert status == 500 and "range is full" in answer["message"]


async def test_put_creates_where_the_kind_allows_it(core: Core) -> None:
    status, answer = await core.ask("PUT", f"{LEASES}/l", {"metadata": {"name": "l"}, "spec": {"holderIdentity": "x"}})
    assert status == 201 and answer["metadata"]["uid"]


async def test_events_end_by_themselves(core: Core) -> None:
    event = {"metadata": {"name": "e"}, "involvedObject": {"kind": "Pod", "namespace": "default", "name": "p"}}
    await core.done("POST", "/api/v1/namespaces/default/events", event)
    kv, _ = await core.member.storage.get(b"/registry/events/default/e")
    assert kv is not None and kv.lease
    await core.member.storage.lease_revoke(kv.lease)
    assert names(await core.done("GET", "/api/v1/events")) == []


async def test_warnings_for_unknown_fields(core: Core) -> None:
    response = await core.respond("POST", MAPS, {**config_map("a"), "foo": 1})
    assert response.status == 201 and response.headers["Warning"] == '299 - "unknown field \\"foo\\""'
    status, answer = await core.ask("POST", f"{MAPS}?fieldValidation=Strict", {**config_map("b"), "foo": 1})
    assert status == 400 and 'unknown field "foo"' in answer["message"]


async def test_nodes_keep_the_status_they_are_created_with(core: Core) -> None:
    created = await core.done("POST", "/api/v1/nodes", node("n"))
    assert created["status"]["allocatable"]["cpu"] == "8"


@pytest.mark.parametrize("grace_s", [999_999_999_999, 9_223_372_036_854_775_807])
async def test_a_grace_period_beyond_the_calendar_ends_with_it(core: Core, grace_s: int) -> None:
    await core.done("POST", "/api/v1/nodes", node("n0"))
    long = pod("long", node="n0")
    long["spec"]["terminationGracePeriodSeconds"] = grace_s
    await core.done("POST", PODS, long)
    status, deleted = await core.ask("DELETE", f"{PODS}/long")
    assert (status, deleted["metadata"]["deletionTimestamp"]) == (200, "9999-12-31T23:59:59Z")
    status, deleted = await core.ask("DELETE", f"{PODS}/long?gracePeriodSeconds=0")
    assert status == 200
    await core.done("POST", PODS, pod("other", node="n0"))
    assert (await core.ask("DELETE", f"{PODS}/other?gracePeriodSeconds={grace_s}"))[0] == 200


ROLES = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
DEFINITION = {
    "metadata": {"name": "things.example.com", "namespace": "foo"},
    "spec": {
        "group": "example.com", "scope": "Cluster", "names": {"plural": "things", "kind": "Thing"},
        "versions": [{
            "name": "v1", "served": True, "storage": True,
            "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
        }],
    },
}  # fmt: skip


@pytest.mark.parametrize(
    ("path", "obj"),
    [
        (ROLES, {"metadata": {"name": "a"}, "rules": []}),
        ("/api/v1/namespaces", {"metadata": {"name": "a"}}),
        ("/api/v1/nodes", {"metadata": {"name": "a"}}),
        ("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", DEFINITION),
    ],
)
async def test_an_object_outside_of_namespaces_loses_the_one_that_it_names(
    core: Core, path: str, obj: dict[str, Any]
) -> None:
    """Source: rest.EnsureObjectNamespaceMatchesRequestNamespace."""
    metadata = {**obj["metadata"], "namespace": "foo"}
    created = await core.done("POST", path, {**obj, "metadata": metadata})
    assert "namespace" not in created["metadata"]
    here = f"{path}/{created['metadata']['name']}"
    patched = {"metadata": {"namespace": "foo", "labels": {"a": "1"}}}
    answers = [await core.done("PATCH", here, patched, content_type=MERGE), await core.done("GET", here)]
    if obj is not DEFINITION:  # Whose PUT needs a version, and whose status is written meanwhile.
        del answers[0]["metadata"]["resourceVersion"]
        answers[0]["metadata"]["namespace"] = "foo"
        answers[0] = await core.done("PUT", here, answers[0])
    for answer in answers:
        assert "namespace" not in answer["metadata"] and answer["metadata"]["labels"]["a"] == "1"


@pytest.mark.parametrize("query", ["export", "export=", "export=true", "export=no"])
async def test_an_export_is_refused(core: Core, query: str) -> None:
    await core.done("POST", MAPS, config_map("a"))
    status, refused = await core.ask("GET", f"{MAPS}/a?{query}")
    assert status == 400
    assert refused["message"] == "the export parameter, deprecated since v1.14, is no longer supported"
    for given in ("export=false", "export=0", "export=False"):
        await core.done("GET", f"{MAPS}/a?{given}")

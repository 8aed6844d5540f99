"""Answers that were found to differ from a live upstream's, and no longer do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import orjson
import pytest
from api_core import MAPS, PODS, TABLE, Core, config_map, node, pod

from minikube_py.api.registry import REGISTRY
from minikube_py.apiserver.bookmarks import bookmark_object

LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
BOOKMARKS = json.loads((Path(__file__).parents[2] / "conformance" / "data" / "bookmarks.json").read_text())
"""The object of the bookmark that ends the first events, by kind, at revision 7, as kube-apiserver 1.36 wrote it."""


@pytest.mark.parametrize("name", BOOKMARKS)
def test_bookmarks_hold_what_an_object_without_content_prints(name: str) -> None:
    kind = next(kind for kind in REGISTRY.kinds if kind.kind == name)
    metadata = {"resourceVersion": "7", "annotations": {"k8s.io/initial-events-end": "true"}}
    assert orjson.dumps(bookmark_object(kind, metadata)) == orjson.dumps(BOOKMARKS[name])


@pytest.mark.parametrize("query", ["", "?dryRun=All"])
async def test_what_is_there_but_being_deleted_is_said_to_be(core: Core, query: str) -> None:
    held = config_map("a")
    held["metadata"]["finalizers"] = ["a.example/b"]
    await core.done("POST", MAPS, held)
    assert (await core.ask("POST", MAPS + query, held))[1]["message"] == 'configmaps "a" already exists'
    await core.done("DELETE", f"{MAPS}/a")
    status, answer = await core.ask("POST", MAPS + query, held)
    assert (status, answer["reason"]) == (409, "AlreadyExists")
    assert answer["message"] == 'object is being deleted: configmaps "a" already exists'


@pytest.mark.parametrize("size", [1, 40_000])
async def test_a_put_that_creates_reads_the_version_and_the_uid(core: Core, size: int) -> None:
    def lease(name: str, **metadata: str) -> dict[str, Any]:
        return {"metadata": {"name": name, "annotations": {"a": "x" * size}, **metadata}, "spec": {}}

    for version in ("", "0", "5"):
        name = f"v{version}"
        made = await core.done("PUT", f"{LEASES}/{name}", lease(name, resourceVersion=version))
        assert made["metadata"]["resourceVersion"] != version
    status, answer = await core.ask("PUT", f"{LEASES}/bad", lease("bad", resourceVersion="x"))
    assert (status, answer["message"]) == (400, 'strconv.ParseUint: parsing "x": invalid syntax')
    status, answer = await core.ask("PUT", f"{LEASES}/old", lease("old", uid="5"))
    assert status == 409
    assert answer["message"].endswith("Precondition failed: UID in precondition: 5, UID in object meta: ")


async def test_options_of_a_table_are_read_once_there_is_something_to_be_shown(core: Core) -> None:
    wrong = "Unable to convert to Table as requested: includeObject: Invalid value"
    status, answer = await core.ask("POST", f"{MAPS}?includeObject=bad", config_map("a"), accept=TABLE)
    assert status == 400 and answer["message"].startswith(wrong)
    assert (await core.done("GET", f"{MAPS}/a"))["metadata"]["name"] == "a"
    for path, code in ((f"{MAPS}/absent", 404), (f"{MAPS}/a", 400), (MAPS, 400)):
        assert (await core.ask("GET", f"{path}?includeObject=bad", accept=TABLE))[0] == code
    status, answer = await core.ask("GET", f"{MAPS}?includeObject=bad&watch=true", accept=TABLE)
    assert status == 400 and answer["message"].startswith(wrong)


async def test_a_log_is_asked_for_in_forms_that_errors_have(core: Core) -> None:
    await core.done("POST", PODS, pod("a", "n1"))
    for accept in ("text/plain", TABLE):
        for name in ("a", "absent"):
            status, answer = await core.ask("GET", f"{PODS}/{name}/log", accept=accept)
            assert status == 406 and answer["message"].startswith("only the following media types are accepted")
    assert (await core.ask("GET", f"{PODS}/absent/log", accept="application/json, */*"))[0] == 404


@pytest.mark.parametrize("way", ["strategic", "merge", "apply", "json", "put"])
async def test_a_pods_address_is_the_first_of_its_addresses(core: Core, way: str) -> None:
    """As upstream's conversion has it, and its answers: to each status, its podIP and podIPs."""
    one, two = {"ip": "1.1.1.1"}, {"ip": "::1"}
    cases: list[tuple[dict[str, Any], Any, Any]] = [
        ({"podIP": "1.1.1.1"}, "1.1.1.1", [one]),
        ({"podIPs": [one, two]}, "1.1.1.1", [one, two]),
        ({"podIP": "1.1.1.1", "podIPs": [one, two]}, "1.1.1.1", [one, two]),
        ({"podIP": "2.2.2.2", "podIPs": [one, two]}, "2.2.2.2", [{"ip": "2.2.2.2"}]),
        ({"message": "m"}, None, None),
    ]
    for number, (status, address, addresses) in enumerate(cases):
        name = f"p{number}"
        await core.done("POST", PODS, pod(name))
        body: Any = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "status": status}
        at, method, kind = f"{PODS}/{name}/status", "PATCH", f"application/{way}-patch+json"
        if way == "strategic":
            kind = "application/strategic-merge-patch+json"
        elif way == "apply":
            at, kind = f"{at}?fieldManager=m", "application/apply-patch+yaml"
        elif way == "json":
            body = [{"op": "add", "path": f"/status/{part}", "value": value} for part, value in status.items()]
        elif way == "put":
            method, kind = "PUT", "application/json"
            body = {**await core.done("GET", f"{PODS}/{name}"), "status": status}
        for found in (await core.done(method, at, body, kind), await core.done("GET", f"{PODS}/{name}")):
            assert (found["status"].get("podIP"), found["status"].get("podIPs")) == (address, addresses), (way, status)


async def test_a_nodes_older_range_counts_where_both_are_given(core: Core) -> None:
    ranges = {"podCIDR": "10.1.0.0/24", "podCIDRs": ["10.2.0.0/24"]}
    found = await core.done("POST", "/api/v1/nodes", {**node("n"), "spec": ranges})
    assert found["spec"] == {"podCIDR": "10.1.0.0/24", "podCIDRs": ["10.1.0.0/24"]}


async def test_a_pods_own_requests_follow_those_that_a_limit_range_sets(core: Core) -> None:
    """Upstream defaults again what it has stored; its answer."""
    limits = [{"type": "Container", "defaultRequest": {"cpu": "100m"}, "default": {"cpu": "500m", "memory": "100Mi"}}]
    namespace = "/api/v1/namespaces/default"
    await core.done("POST", f"{namespace}/limitranges", {"metadata": {"name": "l"}, "spec": {"limits": limits}})
    given = pod("p")
    given["spec"]["resources"] = {"limits": {"memory": "1Gi"}}
    given["spec"]["containers"] = [{"name": name, "image": "i"} for name in ("a", "b")]
    made = await core.done("POST", PODS, given)
    assert made["spec"]["resources"] == {"limits": {"memory": "1Gi"}, "requests": {"memory": "1Gi", "cpu": "200m"}}
    assert await core.done("GET", f"{PODS}/p") == made

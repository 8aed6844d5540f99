"""Server-side apply on our own server. What it answers beside upstream: `test_applies_answer_as_upstream`."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from api_core import MAPS, MERGE, PODS, Core, config_map, pod

from minikube_py.apiserver.auth import ADMIN
from minikube_py.apiserver.messages import Request

APPLY = "application/apply-patch+yaml"


async def applied(core: Core, path: str, config: Any, manager: str, more: str = "") -> tuple[int, dict[str, Any]]:
    return await core.ask("PATCH", f"{path}?fieldManager={manager}{more}", config, content_type=APPLY)


def data(**items: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": items}


def owners(obj: dict[str, Any]) -> dict[str, Any]:
    return {
        f"{each['manager']} {each['operation']} {each.get('subresource', '')}".strip(): each["fieldsV1"]
        for each in obj["metadata"].get("managedFields", ())
    }


async def test_two_managers_share_a_map_and_quarrel_about_a_key(core: Core) -> None:
    status, made = await applied(core, f"{MAPS}/a", data(x="1"), "me")
    assert status == 201 and owners(made) == {"me Apply": {"f:data": {"f:x": {}}}}
    status, shared = await applied(core, f"{MAPS}/a", data(y="2"), "you")
    assert status == 200 and shared["data"] == {"x": "1", "y": "2"}
    status, refused = await applied(core, f"{MAPS}/a", data(x="3", y="2"), "you")
    assert status == 409 and refused["message"] == 'Apply failed with 1 conflict: conflict with "me": .data.x'
    assert await core.done("GET", f"{MAPS}/a") == shared
    status, forced = await applied(core, f"{MAPS}/a", data(x="3"), "you", "&force=true")
    assert status == 200 and forced["data"] == {"x": "3"}
    assert owners(forced) == {"you Apply": {"f:data": {"f:x": {}}}}


async def test_an_apply_that_changes_nothing_is_no_write(core: Core) -> None:
    _, made = await applied(core, f"{PODS}/a", pod("a", labels={"l": "1"}), "me")
    assert (await applied(core, f"{PODS}/a", pod("a", labels={"l": "1"}), "me"))[1] == made


async def test_plain_writes_are_kept_once_an_object_was_applied(core: Core) -> None:
    created = await core.done("POST", MAPS, data(x="1"))
    assert "managedFields" not in created["metadata"]
    changed = await core.done("PATCH", f"{MAPS}/a", {"data": {"z": "1"}}, MERGE)
    assert "managedFields" not in changed["metadata"]
    _, first = await applied(core, f"{MAPS}/a", data(y="2"), "me")
    assert owners(first) == {
        "me Apply": {"f:data": {"f:y": {}}},
        "before-first-apply Update": {"f:data": {".": {}, "f:x": {}, "f:z": {}}},
    }
    request = Request("PATCH", f"{MAPS}/a", {}, orjson.dumps({"data": {"y": "3"}}), ADMIN, content_type=MERGE)
    request.user_agent = "operator/v1 (linux)"
    found = orjson.loads((await core.api.handle(request)).body)
    assert owners(found)["operator Update"] == {"f:data": {"f:y": {}}}
    assert "me Apply" not in owners(found)


async def test_managers_of_all_writes_are_kept_where_that_is_asked_for(core: Core) -> None:
    core.api.writer.tracks_all = True
    created = await core.done("POST", f"{MAPS}?fieldManager=kubectl-create", data(x="1"))
    assert owners(created) == {"kubectl-create Update": {"f:data": {".": {}, "f:x": {}}}}
    await core.done("POST", f"{PODS}?fieldManager=m", pod("p"))
    status = {"status": {"phase": "Running"}}
    found = await core.done("PATCH", f"{PODS}/p/status?fieldManager=kubelet", status, MERGE)
    assert owners(found)["kubelet Update status"] == {"f:status": {"f:phase": {}}}
    assert "f:containers" in owners(found)["m Update"]["f:spec"]


async def test_a_large_configuration_goes_the_same_way(core: Core) -> None:
    large = data(**{f"k{number}": "x" for number in range(3_000)})
    status, made = await applied(core, f"{MAPS}/a", large, "me")
    assert status == 201 and len(owners(made)["me Apply"]["f:data"]) == 3_000
    status, less = await applied(core, f"{MAPS}/a", data(k1="x"), "me")
    assert status == 200 and less["data"] == {"k1": "x"}
    yaml = b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: b}\ndata: {" + b"a: b" + b"}\n#" + b"x" * 4096
    status, made = await applied(core, f"{MAPS}/b", yaml, "me")
    assert status == 201 and made["data"] == {"a": "b"}


async def test_an_empty_list_of_managers_forgets_them(core: Core) -> None:
    await applied(core, f"{MAPS}/a", data(x="1"), "me")
    for reset in ([], [{}]):
        await applied(core, f"{MAPS}/a", data(x="1"), "me")
        found = await core.done("PATCH", f"{MAPS}/a", {"metadata": {"managedFields": reset}}, MERGE)
        assert "managedFields" not in found["metadata"]
    await applied(core, f"{MAPS}/a", data(x="1"), "me")
    put = await core.done("PUT", f"{MAPS}/a", {**config_map("a", x="2"), "metadata": {"name": "a"}})
    assert "unknown Update" in owners(put)


async def test_a_scale_takes_the_replicas_over(core: Core) -> None:
    at = "/api/v1/namespaces/default/replicationcontrollers/a"
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    config = {"apiVersion": "v1", "kind": "ReplicationController", "metadata": {"name": "a"}}
    await applied(core, at, {**config, "spec": {"replicas": 1, "template": template}}, "me")
    await core.done("PATCH", f"{at}/scale?fieldManager=you", {"spec": {"replicas": 3}}, MERGE)
    found = owners(await core.done("GET", at))
    assert found["you Update scale"] == {"f:spec": {"f:replicas": {}}}
    assert "f:replicas" not in found["me Apply"]["f:spec"]


async def test_a_scale_is_applied(core: Core) -> None:
    """As upstream answered: `apply_cases.told_of_scales`."""
    at = "/api/v1/namespaces/default/replicationcontrollers/a"
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    whole = {"apiVersion": "v1", "kind": "ReplicationController", "metadata": {"name": "a"}}
    scale = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "a"}, "spec": {"replicas": 4}}
    await applied(core, at, {**whole, "spec": {"replicas": 1, "template": template}}, "me")
    status, refused = await applied(core, f"{at}/scale", scale, "you")
    assert (status, refused["message"]) == (409, 'Apply failed with 1 conflict: conflict with "me": .spec.replicas')
    status, scaled = await applied(core, f"{at}/scale", scale, "you", "&force=true")
    assert (status, scaled["kind"], scaled["spec"]) == (200, "Scale", {"replicas": 4})
    assert "managedFields" not in scaled["metadata"]
    found = owners(await core.done("GET", at))
    replicas = {"f:spec": {"f:replicas": {}}}
    assert found["you Apply scale"] == replicas and "f:replicas" not in found["me Apply"]["f:spec"]
    forged = {"manager": "forged", "operation": "Apply", "apiVersion": "autoscaling/v1", "fieldsType": "FieldsV1"}
    metadata = {"name": "a", "managedFields": [{**forged, "fieldsV1": replicas}]}
    await core.done("PUT", f"{at}/scale?fieldManager=them", {"metadata": metadata, "spec": {"replicas": 4}})
    assert owners(await core.done("GET", at)) == found
    status, refused = await applied(core, f"{at}/scale", orjson.dumps(scale) + b" " * 32_768, "you")
    assert (status, refused["message"]) == (413, "Request entity too large: limit is 2048 for YAML, 32768 for JSON")


async def test_the_first_apply_of_a_scale_takes_nobodys_replicas_in_silence(core: Core) -> None:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    at = "/api/v1/namespaces/default/replicationcontrollers"
    await core.done("POST", at, {"metadata": {"name": "a"}, "spec": {"replicas": 1, "template": template}})
    scale = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "a"}, "spec": {"replicas": 4}}
    status, refused = await applied(core, f"{at}/a/scale", scale, "me")
    assert status == 409 and 'conflict with "before-first-apply" using autoscaling/v1' in refused["message"]
    await applied(core, f"{at}/a/scale", scale, "me", "&force=true")
    found = owners(await core.done("GET", f"{at}/a"))
    assert found["me Apply scale"] == {"f:spec": {"f:replicas": {}}}
    before = found["before-first-apply Update"]["f:spec"]
    assert "f:replicas" not in before and "f:template" in before


@pytest.mark.parametrize(("first", "second"), [("v1", "v2"), ("v2", "v1")])
async def test_owners_of_one_version_are_owners_in_the_other(core: Core, first: str, second: str) -> None:
    """As upstream answered: `apply_cases.told_of_autoscalers`."""

    def at(version: str) -> str:
        return f"/apis/autoscaling/{version}/namespaces/default/horizontalpodautoscalers/a"

    def config(version: str, **spec: Any) -> dict[str, Any]:
        return {
            "apiVersion": f"autoscaling/{version}",
            "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": "a"},
            "spec": spec,
        }

    target = {"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"}
    whole = config(first, scaleTargetRef=target, maxReplicas=3, minReplicas=2)
    assert (await applied(core, at(first), whole, "me"))[0] == 201
    status = {"status": {"currentReplicas": 1}}
    found = await core.done("PATCH", f"{at(second)}/status?fieldManager=controller", status, MERGE)
    assert {"me Apply", "controller Update status"} == set(owners(found))
    status, refused = await applied(core, at(second), config(second, maxReplicas=4), "you")
    assert (status, refused["message"]) == (409, 'Apply failed with 1 conflict: conflict with "me": .spec.maxReplicas')
    found = await core.done("PATCH", f"{at(second)}?fieldManager=you", {"spec": {"maxReplicas": 5}}, MERGE)
    assert (
        "f:maxReplicas" not in owners(found)["me Apply"]["f:spec"]
        and "f:minReplicas" in owners(found)["me Apply"]["f:spec"]
    )
    status, less = await applied(core, at(second), config(second, scaleTargetRef=target), "me")
    assert status == 200 and less["spec"]["minReplicas"] == 1
    scale_target = {"f:scaleTargetRef": {"f:apiVersion": {}, "f:kind": {}, "f:name": {}} if second == "v2" else {}}
    assert owners(less)["me Apply"] == {"f:spec": scale_target}


async def test_what_conversion_adds_is_the_writers(core: Core) -> None:
    """Version 1 has metrics in an annotation, and CPU at 80 % by default; as upstream answered."""
    at = "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers"
    metric = '[{"type": "Resource", "resource": {"name": "memory", "targetAverageUtilization": 7}}]'
    spec = {"scaleTargetRef": {"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"}, "maxReplicas": 3}
    old = {"autoscaling.alpha.kubernetes.io/metrics": metric}
    for name, noted, owned in (("a", {}, {"f:targetCPUUtilizationPercentage": {}}), ("b", old, {})):
        obj = {"metadata": {"name": name, "annotations": noted}, "spec": spec}
        made = await core.done("POST", f"{at}?fieldManager=me", obj)
        mine = owners(made)["me Update"]
        assert mine["f:spec"] == {"f:maxReplicas": {}, "f:minReplicas": {}, "f:scaleTargetRef": {}, **owned}
        assert await core.done("PUT", f"{at}/{name}?fieldManager=you", obj) == made


async def test_a_status_is_applied_only_to_what_is_there(core: Core) -> None:
    status, refused = await applied(core, f"{PODS}/a/status", pod("a"), "me")
    assert (status, refused["reason"]) == (404, "NotFound")

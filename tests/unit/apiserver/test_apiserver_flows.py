"""Flow schemas and priority levels: those that upstream has from its start, and what becomes of them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import orjson
import pytest
from api_core import MERGE, TABLE, Core, names

from minikube_py.api.kinds.flowcontrol import NOT_ENFORCED

GROUP = "/apis/flowcontrol.apiserver.k8s.io/v1"
FLOWS, LEVELS = f"{GROUP}/flowschemas", f"{GROUP}/prioritylevelconfigurations"
RECORDED = orjson.loads((Path(__file__).parents[2] / "conformance" / "data" / "flow_schemas.json").read_bytes())
KEPT = "apf.kubernetes.io/autoupdate-spec"
MINUTE_S = 61
PRODUCER, CONSUMER = (f"api-priority-and-fairness-config-{part}-v1" for part in ("producer", "consumer"))
HERE = 'This FlowSchema references the PriorityLevelConfiguration object named "{}" and it exists'
NOT_HERE = 'This FlowSchema references the PriorityLevelConfiguration object named "{}" but there is no such object'


def told(flow: dict[str, Any]) -> str | None:
    """The condition Dangling without its time; None: there is none."""
    found = [each for each in (flow["status"].get("conditions") or ()) if each["type"] == "Dangling"]
    return " ".join(found[0][name] for name in ("status", "reason", "message")) if found else None


async def flow_of(core: Core, name: str) -> dict[str, Any]:
    """As it is when the server has looked at it."""
    await asyncio.sleep(2)
    return await core.done("GET", f"{FLOWS}/{name}")


@pytest.mark.parametrize("path", [FLOWS, LEVELS])
async def test_those_of_upstream_are_there_from_the_start(core: Core, path: str) -> None:
    items = (await core.done("GET", path))["items"]
    found = {
        each["metadata"]["name"]: {"annotations": each["metadata"]["annotations"], "spec": each["spec"]}
        for each in items
    }
    assert found == RECORDED[path.rpartition("/")[2]]
    assert all(each["metadata"]["generation"] == 1 for each in items)
    said = {each["metadata"]["name"]: told(each) for each in items}
    levels = {name: flow["spec"].get("priorityLevelConfiguration", {}).get("name") for name, flow in found.items()}
    assert said == {name: level and f"False Found {HERE.format(level)}" for name, level in levels.items()}
    owners = [PRODUCER] if path == LEVELS else [CONSUMER, PRODUCER]
    assert all([each["manager"] for each in item["metadata"]["managedFields"]] == owners for item in items)
    # Each of them passes the rules of its kind.
    for each in items:
        answer = await core.done("PUT", f"{path}/{each['metadata']['name']}?dryRun=All", each)
        assert answer["metadata"]["generation"] == 1


async def test_rows_stand_in_the_order_in_which_schemas_match(core: Core) -> None:
    _, table = await core.ask("GET", FLOWS, accept=TABLE)
    cells = [(row["cells"][2], row["cells"][0]) for row in table["rows"]]
    assert cells == sorted(cells) and cells[0] == (1, "exempt") and len(cells) == len(RECORDED["flowschemas"])


async def test_who_writes_one_is_told_that_it_limits_nothing(core: Core) -> None:
    spec = RECORDED["flowschemas"]["probes"]["spec"]
    response = await core.respond("POST", FLOWS, {"metadata": {"name": "mine"}, "spec": spec})
    assert response.status == 201 and NOT_ENFORCED in response.headers["Warning"]


async def test_fixed_specs_cannot_be_changed(core: Core) -> None:
    status, answer = await core.ask("PATCH", f"{FLOWS}/catch-all", {"spec": {"rules": None}}, content_type=MERGE)
    assert status == 422 and "spec of 'catch-all' must equal the fixed value" in answer["message"]
    status, answer = await core.ask("PATCH", f"{LEVELS}/exempt", {"spec": {"type": "Limited"}}, content_type=MERGE)
    assert status == 422 and "spec of 'exempt' except the 'spec.exempt' field" in answer["message"]


async def test_every_minute_what_nobody_took_over_is_as_it_was(core: Core) -> None:
    """Deleted ones are made again; specs of those that say so are put back, the shares of exempt are left alone."""

    async def patch(path: str, body: dict[str, Any]) -> None:
        await core.done("PATCH", path, body, MERGE)

    await core.done("DELETE", f"{FLOWS}/exempt")
    await core.done("DELETE", f"{LEVELS}/system")
    await patch(f"{LEVELS}/exempt", {"spec": {"exempt": {"lendablePercent": 7}}})
    await patch(f"{FLOWS}/probes", {"spec": {"matchingPrecedence": 3}})
    taken = {"metadata": {"annotations": {KEPT: "false"}}, "spec": {"matchingPrecedence": 901}}
    await patch(f"{FLOWS}/kube-scheduler", taken)
    left = {"metadata": {"annotations": {KEPT: None}}, "spec": {"matchingPrecedence": 8}}
    await patch(f"{FLOWS}/service-accounts", left)
    mine = {"metadata": {"name": "mine"}, "spec": RECORDED["flowschemas"]["probes"]["spec"]}
    await core.done("POST", FLOWS, mine)
    old = {**mine, "metadata": {"name": "old", "annotations": {KEPT: "T"}}}
    await core.done("POST", FLOWS, old)
    await asyncio.sleep(MINUTE_S)
    listed = await core.done("GET", FLOWS)
    assert set(names(listed)) == {*RECORDED["flowschemas"], "mine"}
    found = {each["metadata"]["name"]: each for each in listed["items"]}
    told = {name: (found[name]["spec"]["matchingPrecedence"], found[name]["metadata"]["annotations"][KEPT],
                   found[name]["metadata"]["generation"]) for name in ("probes", "kube-scheduler", "service-accounts")}
    assert told == {
        "probes": (2, "true", 3), "kube-scheduler": (901, "false", 2), "service-accounts": (8, "false", 2),
    }  # fmt: skip
    level = await core.done("GET", f"{LEVELS}/exempt")
    assert level["spec"]["exempt"] == {"nominalConcurrencyShares": 0, "lendablePercent": 7}
    before = (await core.done("GET", LEVELS))["metadata"]["resourceVersion"]
    await asyncio.sleep(2 * MINUTE_S)
    assert (await core.done("GET", LEVELS))["metadata"]["resourceVersion"] == before


async def test_every_flow_schema_says_whether_its_level_exists(core: Core) -> None:
    probes = RECORDED["flowschemas"]["probes"]["spec"]
    mine = {"metadata": {"name": "mine"}, "spec": {**probes, "priorityLevelConfiguration": {"name": "later"}}}
    await core.done("POST", FLOWS, mine)
    found = await flow_of(core, "mine")
    assert told(found) == f"True NotFound {NOT_HERE.format('later')}"
    assert found["metadata"]["generation"] == 1
    owners = {each["manager"]: each for each in found["metadata"]["managedFields"]}
    owner = owners[CONSUMER]
    assert (owner["operation"], owner["subresource"]) == ("Apply", "status")
    assert list(owner["fieldsV1"]["f:status"]["f:conditions"]) == ['k:{"type":"Dangling"}']
    level = {"metadata": {"name": "later"}, "spec": RECORDED["prioritylevelconfigurations"]["system"]["spec"]}
    await core.done("POST", LEVELS, level)
    assert told(await flow_of(core, "mine")) == f"False Found {HERE.format('later')}"
    await core.done("DELETE", f"{LEVELS}/later")
    assert told(await flow_of(core, "mine")) == f"True NotFound {NOT_HERE.format('later')}"
    await core.done("PATCH", f"{FLOWS}/mine", {"spec": {"priorityLevelConfiguration": {"name": "exempt"}}}, MERGE)
    assert told(await flow_of(core, "mine")) == f"False Found {HERE.format('exempt')}"


async def test_a_condition_of_others_is_taken_back_six_times_a_minute(core: Core) -> None:
    """What else is in the status is left alone."""
    since = "2026-01-01T00:00:00Z"
    other = {"type": "Mine", "status": "True", "reason": "R", "message": "m", "lastTransitionTime": since}
    wrong = {**other, "type": "Dangling"}
    for _ in range(6):
        await core.done("PATCH", f"{FLOWS}/probes/status", {"status": {"conditions": [wrong, other]}}, MERGE)
        found = await flow_of(core, "probes")
        assert told(found) == f"False Found {HERE.format('exempt')}"
        assert other in found["status"]["conditions"]
    await core.done("PATCH", f"{FLOWS}/probes/status", {"status": {"conditions": [wrong]}}, MERGE)
    assert told(await flow_of(core, "probes")) == "True R m"
    await asyncio.sleep(MINUTE_S)
    assert told(await flow_of(core, "probes")) == f"False Found {HERE.format('exempt')}"

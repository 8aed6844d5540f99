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


@pytest.mark.parametrize("path", [FLOWS, LEVELS])
async def test_those_of_upstream_are_there_from_the_start(core: Core, path: str) -> None:
    items = (await core.done("GET", path))["items"]
    found = {
        each["metadata"]["name"]: {"annotations": each["metadata"]["annotations"], "spec": each["spec"]}
        for each in items
    }
    assert found == RECORDED[path.rpartition("/")[2]]
    assert all(each["status"] == {} and each["metadata"]["generation"] == 1 for each in items)
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

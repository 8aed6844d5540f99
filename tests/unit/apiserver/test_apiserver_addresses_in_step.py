"""A pod's and a node's addresses are in two fields, an older single one and a list: they agree, as upstream's do."""

from __future__ import annotations

from typing import Any

import pytest
from api_core import MERGE, PODS, Core, node, pod

STRATEGIC, APPLY = "application/strategic-merge-patch+json", "application/apply-patch+yaml"
ONE, TWO = "10.0.0.1", "10.0.0.2"
STATUSES: tuple[tuple[dict[str, Any], str, list[str]], ...] = (
    ({"podIP": ONE}, ONE, [ONE]),
    ({"podIPs": [{"ip": ONE}]}, ONE, [ONE]),
    ({"podIPs": [{"ip": ONE}, {"ip": "fd00::1"}]}, ONE, [ONE, "fd00::1"]),
    ({"podIP": TWO, "podIPs": [{"ip": ONE}]}, TWO, [TWO]),
)


@pytest.mark.parametrize("content_type", [MERGE, STRATEGIC, APPLY])
async def test_each_field_of_a_pods_addresses_follows_the_other(core: Core, content_type: str) -> None:
    for number, (status, ip, ips) in enumerate(STATUSES):
        await core.done("POST", PODS, pod(f"p{number}"))
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"p{number}"}, "status": status}
        path = f"{PODS}/p{number}/status" + ("?fieldManager=z&force=true" if content_type == APPLY else "")
        code, found = await core.ask("PATCH", path, body, content_type=content_type)
        assert code == 200, found
        assert (found["status"]["podIP"], [each["ip"] for each in found["status"]["podIPs"]]) == (ip, ips)


async def test_a_nodes_older_range_counts_where_both_are_given(core: Core) -> None:
    ranges = {"podCIDR": "10.1.0.0/24", "podCIDRs": ["10.2.0.0/24"]}
    found = await core.done("POST", "/api/v1/nodes", {**node("n"), "spec": ranges})
    assert found["spec"] == {"podCIDR": "10.1.0.0/24", "podCIDRs": ["10.1.0.0/24"]}

"""Many definitions of one group: each further one, and each change of one, costs as before them. Counted, not timed."""

from __future__ import annotations

from typing import Any

import pytest
from api_core import MERGE, Core
from patience import until

from minikube_py.apiserver import custom_resources

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
FEW, MANY = 20, 80


def definition(at: int, short: str = "") -> dict[str, Any]:
    names = {"plural": f"k{at}s", "singular": f"k{at}", "kind": f"K{at}", "listKind": f"K{at}List"}
    more = {"shortNames": [short]} if short else {}
    schema = {"openAPIV3Schema": {"type": "object"}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": f"k{at}s.many.io"},
        "spec": {
            "group": "many.io", "scope": "Cluster", "names": {**names, **more},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
        },
    }  # fmt: skip


async def served(core: Core, at: int) -> None:
    async def answers() -> bool:
        return (await core.respond("GET", f"/apis/many.io/v1/k{at}s")).status == 200

    await until(answers, f"k{at}s is served")


async def made(core: Core, at: int) -> None:
    await core.done("POST", DEFINITIONS, definition(at))
    await served(core, at)


async def rename(core: Core, names: list[str] | None) -> None:
    """The first one."""
    body = {"spec": {"names": {"shortNames": names}}}
    await core.done("PATCH", f"{DEFINITIONS}/k0s.many.io", body, content_type=MERGE)


async def test_of_many_definitions_of_a_group_each_is_looked_at_when_it_changes(
    core: Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = 0
    plain = custom_resources._next_status

    def counted(*given: Any) -> Any:
        nonlocal looks
        looks += 1
        return plain(*given)

    monkeypatch.setattr(custom_resources, "_next_status", counted)
    costs = []
    for at in range(MANY):
        before = looks, core.api.custom._names.steps
        await made(core, at)
        costs.append((looks - before[0], core.api.custom._names.steps - before[1]))
    assert costs[MANY - 1] <= costs[FEW], costs
    before = looks
    labelled = {"metadata": {"labels": {"a": "b"}}}
    await core.done("PATCH", f"{DEFINITIONS}/k3s.many.io", labelled, content_type=MERGE)
    await made(core, MANY)
    assert looks - before <= costs[FEW][0] + 2


async def test_a_name_that_is_free_again_goes_to_the_definition_that_waits_for_it(core: Core) -> None:
    for at in range(2):
        await core.done("POST", DEFINITIONS, definition(at, "same"))
        await core.clock.sleep(1.0)

    async def accepted() -> list[Any]:
        found = [await core.done("GET", f"{DEFINITIONS}/k{at}s.many.io") for at in range(2)]
        return [(each.get("status") or {}).get("acceptedNames", {}).get("shortNames") for each in found]

    assert await accepted() == [["same"], None]
    await rename(core, None)

    async def passed_on() -> bool:
        return await accepted() == [None, ["same"]]

    await until(passed_on, "the second has the name")
    await core.done("DELETE", f"{DEFINITIONS}/k1s.many.io")
    await rename(core, ["same"])

    async def returned() -> bool:
        found = await core.done("GET", f"{DEFINITIONS}/k0s.many.io")
        return bool(found["status"]["acceptedNames"].get("shortNames") == ["same"])

    await until(returned, "the first has it again")


def test_a_group_that_is_gone_leaves_nothing() -> None:
    names = custom_resources.AcceptedNames()
    for at in range(3):
        names.change(b"k", definition(at))
        names.change(b"k", None)
    assert not names._wanting and not names._owners and not names._had

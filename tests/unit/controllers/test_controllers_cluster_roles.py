"""Roles that hold the rules of those that they select.

`aggregated_roles.json` holds what upstream made of the bootstrap policy: the rules of admin, edit and view.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Any
from unittest import mock

import orjson
from controller_world import World
from step_clock import settle

from minikube_py.api.label_selectors import selector_of
from minikube_py.controllers import cluster_roles
from minikube_py.env import Slices

Json = dict[str, Any]
NAME = "clusterrole-aggregation-controller"
RECORDED: dict[str, list[Json]] = orjson.loads((Path(__file__).parent / "aggregated_roles.json").read_bytes())
POLICY: Json = orjson.loads((files("minikube_py.apiserver") / "bootstrap_policy.json").read_bytes())


def make(world: World, role: Json) -> None:
    given = {key: value for key, value in role.items() if key != "metadata"}
    world.api.make("clusterroles", role["metadata"]["name"], metadata=role["metadata"], **given)


async def test_the_bootstrap_roles_come_to_what_upstream_makes_of_them() -> None:
    async with World(NAME) as world:
        for role in POLICY["clusterroles"]:
            make(world, role)
        await settle()
        made = world.api.kind("clusterroles")
        assert {name: made[name]["rules"] for name in RECORDED} == RECORDED


async def test_rules_come_and_go_with_the_roles_that_are_selected() -> None:
    reads = {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}
    async with World(NAME) as world:
        selector = {"matchLabels": {"gather": "yes"}}
        make(
            world, {"metadata": {"name": "all"}, "aggregationRule": {"clusterRoleSelectors": [selector]}, "rules": None}
        )
        make(world, {"metadata": {"name": "one", "labels": {"gather": "yes"}}, "rules": [reads, reads]})
        make(world, {"metadata": {"name": "two", "labels": {"gather": "no"}}, "rules": [{**reads, "verbs": ["list"]}]})
        await settle()
        assert world.api.kind("clusterroles")["all"]["rules"] == [reads]
        world.api.remove("clusterroles", "one")
        await settle()
        assert "rules" not in world.api.kind("clusterroles")["all"]


async def test_a_role_that_selects_nothing_keeps_its_own_rules() -> None:
    """As upstream, whose controller applies no rules then. Who is bound to the role would lose its rights."""
    own = [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]
    selector = {"matchLabels": {"gather": "nobody"}}
    async with World(NAME) as world:
        role = {"metadata": {"name": "all"}, "aggregationRule": {"clusterRoleSelectors": [selector]}, "rules": own}
        make(world, role)
        await settle()
        assert world.api.kind("clusterroles")["all"]["rules"] == own
        asked = [params for params in world.api.asked if "fieldManager" in params]
        assert asked and all(params == {"fieldManager": NAME, "force": "true"} for params in asked)


async def test_a_selector_that_selects_no_role_is_not_parsed() -> None:
    """It may have thousands of labels, and is looked at for each change of any role."""
    labels = {f"a{number}": "b" for number in range(100)}
    chosen = {"aggregationRule": {"clusterRoleSelectors": [{"matchLabels": labels}]}}
    role = {"metadata": {"name": "all", "labels": labels}, **chosen}
    part = {"metadata": {"name": "part", "labels": {"a0": "b"}}, "rules": [{"verbs": ["get"]}]}
    whole = {"metadata": {"name": "whole", "labels": {**labels, "c": "d"}}, "rules": [{"verbs": ["list"]}]}
    with mock.patch.object(cluster_roles, "selector_of", side_effect=selector_of) as parsed:
        assert await cluster_roles.aggregated(role, [role, part], Slices()) == []
        assert not parsed.called
        assert await cluster_roles.aggregated(role, [role, part, whole], Slices()) == [{"verbs": ["list"]}]
        assert parsed.call_count == 1

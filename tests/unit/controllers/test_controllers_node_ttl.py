"""The TTL that kubelets read, by the number of nodes; its controller runs if asked for."""

from __future__ import annotations

from controller_world import World
from step_clock import settle

from minikube_py.controllers.manager import CONTROLLERS, OFF

TTL = "ttl-controller"


def ttls(w: World) -> dict[str, str]:
    annotated = {key: node["metadata"].get("annotations") or {} for key, node in w.api.kind("nodes").items()}
    return {key: annotations.get("node.alpha.kubernetes.io/ttl", "") for key, annotations in annotated.items()}


def test_it_is_off_by_default() -> None:
    assert TTL in OFF and TTL not in CONTROLLERS


async def test_nodes_get_the_ttl_of_the_size_at_which_they_came() -> None:
    async with World(TTL) as w:
        for number in range(100):
            w.api.make("nodes", f"n{number}")
        await settle()
        assert set(ttls(w).values()) == {"0"}
        w.api.make("nodes", "n100")
        await settle()
        assert {key for key, ttl in ttls(w).items() if ttl != "0"} == {"n100"} and ttls(w)["n100"] == "15"


async def test_older_nodes_get_it_as_they_change_and_it_falls_late() -> None:
    async with World(TTL) as w:
        for number in range(101):
            w.api.make("nodes", f"n{number}")
        await settle()
        w.api.change("nodes", "n0", status={"phase": "seen"})
        await settle()
        assert ttls(w)["n0"] == "15"
        for number in range(90, 101):
            w.api.remove("nodes", f"n{number}")
        await settle()
        w.api.change("nodes", "n0", status={"phase": "90"})
        await settle()
        assert ttls(w)["n0"] == "15"
        w.api.remove("nodes", "n89")
        await settle()
        w.api.change("nodes", "n0", status={"phase": "89"})
        await settle()
        assert ttls(w)["n0"] == "0"


async def test_each_node_is_written_once() -> None:
    async with World(TTL) as w:
        for number in range(10):
            w.api.make("nodes", f"n{number}")
        await settle()
        w.api.change("nodes", "n0", status={"phase": "seen"})
        await settle()
        assert len([call for call in w.api.calls if call[0] == "PATCH"]) == 10

"""The order of the nodes for a search that stops early, beside upstream's tree of zones written down as it stands."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from minikube_py.scheduler.columns import NodeColumns
from minikube_py.scheduler.node_order import BETA, STABLE
from minikube_py.scheduler.objects import NodeInfo
from minikube_py.scheduler.search import Search


class Tree:
    """pkg/scheduler/backend/cache/node_tree.go with lists, and the list of the snapshot."""

    def __init__(self) -> None:
        self.zones: list[str] = []
        self.tree: dict[str, list[str]] = {}
        self.zone_of: dict[str, str] = {}
        self.listed: list[str] = []

    def put(self, name: str, zone: str) -> None:
        if self.zone_of.get(name) == zone:
            return
        if name in self.zone_of:
            self.remove(name)
        if zone not in self.tree:
            self.zones.append(zone)
            self.tree[zone] = []
        self.tree[zone].append(name)
        self.zone_of[name] = zone

    def remove(self, name: str) -> None:
        zone = self.zone_of.pop(name)
        self.tree[zone].remove(name)
        if not self.tree[zone]:
            del self.tree[zone]
            self.zones.remove(zone)

    def snapshot(self) -> list[str]:
        if set(self.listed) != set(self.zone_of):
            self.listed = []
            index = 0
            while len(self.listed) < len(self.zone_of):
                self.listed += [self.tree[zone][index] for zone in self.zones if index < len(self.tree[zone])]
                index += 1
        return self.listed


def drawn_labels(rng: random.Random) -> dict[str, str]:
    keys = [prefix + key for prefix in (BETA, STABLE) for key in ("region", "zone")]
    return {key: rng.choice(("", "a", "b")) for key in keys if rng.random() < 0.4}


def zone_key(labels: dict[str, str]) -> str:
    zone = labels[BETA + "zone"] if BETA + "zone" in labels else labels.get(STABLE + "zone", "")
    region = labels[BETA + "region"] if BETA + "region" in labels else labels.get(STABLE + "region", "")
    return f"{region}:\0:{zone}" if region or zone else ""


@settings(max_examples=150)
@given(st.integers(0, 1 << 32), st.booleans())
def test_nodes_stand_in_upstreams_order(seed: int, late: bool) -> None:
    """`late`: the order is asked for when there are nodes already, which then stand as they came."""
    rng, columns, tree = random.Random(seed), NodeColumns(), Tree()
    if not late:
        Search(columns, 50)
    for _ in range(60):
        name = f"n{rng.randrange(9)}"
        if rng.random() < 0.7:
            node = NodeInfo(name)
            node.labels = labels = drawn_labels(rng)
            columns.put_node(node)
            tree.put(name, zone_key(labels))
        elif name in tree.zone_of and not late:
            columns.remove_node(name)
            tree.remove(name)
        if late:
            tree = Tree()
            for slot_node in columns.by_slot:
                if slot_node is not None:
                    tree.put(slot_node.name, zone_key(dict(slot_node.labels)))
            columns.order = None
            Search(columns, 50)
        if late or rng.random() < 0.6:
            order = columns.ordered()
            order.bring_up_to_date()
            named = [node.name for slot in order.slots.tolist() if (node := columns.by_slot[slot]) is not None]
            assert named == tree.snapshot()
            assert order.places[order.slots].tolist() == list(range(len(named)))


def test_who_looks_at_all_nodes_keeps_no_order() -> None:
    columns = NodeColumns()
    columns.put_node(NodeInfo("n"))
    search = Search(columns, 100)
    search.looked_at(1)
    assert not search.samples and columns.order is None

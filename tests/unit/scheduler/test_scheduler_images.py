"""ImageLocality by upstream's own tables (1.36.2), all 8 scores and 4 names; and its counts against a recount.

Source: plugins/imagelocality/image_locality_test.go. Left out: its 3 cases of signatures, for upstream's batches.
"""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest
from scheduler_objects import node_object, pod_object

from minikube_py.scheduler.changes import columns_differ, node_changes
from minikube_py.scheduler.columns import NodeColumns
from minikube_py.scheduler.framework import SKIP, CycleState
from minikube_py.scheduler.images import images_of_pod
from minikube_py.scheduler.objects import NodeInfo, PodInfo, project_node, project_pod
from minikube_py.scheduler.plugins.image_locality import ImageLocality

MB = 1 << 20


def node(name: str, *images: tuple[int, tuple[str, ...]]) -> NodeInfo:
    """Images by their size in MB, which is their name, too."""
    obj = node_object(name)
    obj["status"]["images"] = [
        {"names": [f"gcr.io/{size}:{tag}" for tag in tags], "sizeBytes": size * MB} for size, tags in images
    ]
    return project_node(obj)


def latest(name: str, *sizes: int) -> NodeInfo:
    return node(name, *((size, ("latest",)) for size in sizes))


def pod(*sizes: int, init: tuple[int, ...] = (), volumes: tuple[int, ...] = ()) -> PodInfo:
    def containers(of: tuple[int, ...]) -> list[dict[str, Any]]:
        return [{"name": f"c{i}", "image": f"gcr.io/{size}"} for i, size in enumerate(of)]

    mounted = [{"name": f"v{i}", "image": {"reference": f"gcr.io/{size}"}} for i, size in enumerate(volumes)]
    obj = pod_object("p", containers=containers(sizes), initContainers=containers(init), volumes=mounted)
    return project_pod(obj)


BOTH = ("latest", "v1")
A_40_300_2000 = ((40, (*BOTH, "v1")), (300, BOTH), (2000, ("latest",)))
A_250_10 = ((250, ("latest",)), (10, BOTH))
TABLE: dict[str, tuple[PodInfo, list[NodeInfo], list[int]]] = {
    "two images spread on two nodes, prefer the larger image one": (
        pod(40, 250), [node("node1", *A_40_300_2000), node("node2", *A_250_10)], [0, 5],
    ),
    "two images on one node, prefer this node": (
        pod(40, 300), [node("node1", *A_40_300_2000), node("node2", *A_250_10)], [7, 0],
    ),
    "if exceed limit, use limit": (
        pod(10, 4000), [latest("node1", 4000, 30), node("node2", *A_250_10)], [100, 0],
    ),
    "if exceed limit, use limit (with node which has no images present)": (
        pod(10, 4000), [latest("node1", 4000, 30), node("node2", *A_250_10), latest("node3")], [66, 0, 0],
    ),
    "pod with multiple large images, node2 is preferred": (
        pod(300, 600, 900),
        [latest("node1", 600, 40, 900), latest("node2", 300, 600, 900), latest("node3")],
        [32, 36, 0],
    ),
    "pod with multiple small images": (pod(30, 40), [latest("node1", 20, 30, 40), latest("node2", 4000, 30)], [1, 0]),
    "pod with ImageVolume": (
        pod(30, volumes=(300,)), [latest("node1", 300, 600, 900), latest("node2", 4000, 30)], [12, 0],
    ),
    "include InitContainers: two images spread on two nodes, prefer the larger image one": (
        pod(30, init=(300,)), [node("node1", *A_40_300_2000), latest("node2", 20, 30, 40)], [6, 0],
    ),
}  # fmt: skip


def scores(columns: NodeColumns, incoming: PodInfo) -> list[int]:
    """By both forms, which agree; 0 everywhere where PreScore says Skip."""
    plugin: Any = ImageLocality({}, SimpleNamespace(columns=columns))  # type: ignore[arg-type]
    many = plugin.score_nodes(CycleState(), incoming, columns.all()).tolist()
    one = [plugin.score(CycleState(), incoming, each) for each in columns.by_slot if each is not None]
    assert [many[each.slot] for each in columns.by_slot if each is not None] == one
    skipped = plugin.pre_score(CycleState(), incoming, columns) is SKIP
    assert not skipped or not any(one)
    return one


@pytest.mark.parametrize("name", TABLE)
def test_scores(name: str) -> None:
    incoming, nodes, wanted = TABLE[name]
    columns = NodeColumns()
    for each in nodes:
        columns.put_node(each)
    assert scores(columns, incoming) == wanted


NAMES = {
    "root": "root:latest", "gcr.io:5000/root": "gcr.io:5000/root:latest", "root:tag": "root:tag",
    "root@sha256:4813": "root@sha256:4813",
}  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_names(name: str) -> None:
    found = images_of_pod({"containers": [{"name": "c", "image": name}]})
    assert (found.containers, found.names) == (1, (NAMES[name],))


def test_counts_are_those_of_a_recount_after_any_changes() -> None:
    rng = random.Random(7)
    columns = NodeColumns()
    known: dict[str, NodeInfo] = {}
    for _ in range(400):
        name = f"n{rng.randrange(6)}"
        if rng.random() < 0.2:
            columns.remove_node(name)
            known.pop(name, None)
        else:
            sizes = rng.sample((0, 1, 10, 90, 1000), rng.randint(0, 4))
            known[name] = latest(name, *sizes)
            columns.put_node(known[name])
        having = {image: {each for each in known if image in dict(known[each].images)} for image in IMAGES}
        found = {image: {columns.by_slot[slot].name for slot in state.slots}  # type: ignore[union-attr]
                 for image, state in columns.images.known.items()}  # fmt: skip
        assert found == {image: names for image, names in having.items() if names}
        assert len(scores(columns, pod(90, 1000, init=(10,)))) >= len(known)


IMAGES = [f"gcr.io/{size}:latest" for size in (0, 1, 10, 90, 1000)]


def test_an_image_that_came_is_told_to_the_columns_and_wakes_nobody() -> None:
    old, new = latest("n", 40), latest("n", 40, 90)
    assert columns_differ(old, new) and not node_changes(old, new)


def test_without_images_on_nodes_there_is_nothing_to_score() -> None:
    columns = NodeColumns()
    columns.put_node(latest("n"))
    plugin: Any = ImageLocality({}, SimpleNamespace(columns=columns))  # type: ignore[arg-type]
    assert plugin.pre_score(CycleState(), pod(40), columns) is SKIP

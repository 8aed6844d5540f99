"""A recording of a run, played again: what the page would show is what the cluster held, at every moment."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import orjson
import pytest

from minikube_py.cluster.virtual import VirtualCluster
from minikube_py.mvcc.types import Event, KeyValue
from minikube_py.ui.recording import NODE_GONE, NODE_PUT, POD_GONE, POD_PUT, Recording, page_of, write_page
from minikube_py.ui.view import node_facts, pod_facts

NOWHERE = Path("/dev/null")
PODS = "/api/v1/namespaces/default/pods"


class Played:
    """What the page's script keeps, after a recording's moments."""

    def __init__(self, data: dict[str, Any]) -> None:
        self.nodes: dict[str, list[Any]] = {}
        self.pods: dict[str, tuple[Any, str, str]] = {}
        for _, what, number, *names in data["moments"]:
            if what in (NODE_PUT, NODE_GONE):
                row = data["nodes"][number]
                self.nodes[row[0]] = row
                if what == NODE_GONE:
                    del self.nodes[row[0]]
            else:
                key, requests = data["pods"][number]
                node, phase, _reason = (data["names"][each] for each in names) if what == POD_PUT else ("", "", "")
                self.pods[key] = (requests, node, phase)
                if what == POD_GONE:
                    del self.pods[key]


def pod(name: str, cpu: str) -> bytes:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    metadata = {"name": name, "namespace": "default"}
    return orjson.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}})


def listed(cluster: VirtualCluster, path: str) -> list[Any]:
    found: list[Any] = orjson.loads(cluster.request("GET", path).body)["items"]
    return found


def run(seed: int, recording: Recording | None) -> tuple[str, list[Any], list[Any]]:
    """Pods that fit and that do not, some deleted, nodes cordoned and lost; digest, nodes and pods at the end."""
    rng = random.Random(seed)
    cluster = VirtualCluster(seed, nodes=rng.randint(1, 4))
    if recording is not None:
        cluster.on_change(recording.take)
    with cluster:
        for number in range(rng.randint(5, 20)):
            body = pod(f"p-{number}", rng.choice(["1m", "4", "30", "1000"]))
            assert cluster.request("POST", PODS, body).status == 201
            cluster.advance(rng.choice([0.0, 0.5, 60.0]))
            if rng.random() < 0.3:
                assert cluster.request("DELETE", f"{PODS}/p-{rng.randint(0, number)}").status in (200, 404)
            if rng.random() < 0.2:
                patch = orjson.dumps({"spec": {"unschedulable": rng.random() < 0.5}})
                path = "/api/v1/nodes/node-0"
                assert cluster.request("PATCH", path, patch, content_type="application/merge-patch+json").status == 200
            if rng.random() < 0.1:
                cluster.node_down("node-0")
        return cluster.digest, listed(cluster, "/api/v1/nodes"), listed(cluster, PODS)


@pytest.mark.parametrize("seed", range(4))
def test_a_recording_holds_what_the_cluster_held_and_changes_nothing(seed: int) -> None:
    recording = Recording("a run")
    digest, nodes, pods = run(seed, recording)
    assert run(seed, None)[0] == digest
    played = Played(recording.as_dict())
    for facts in map(node_facts, nodes):
        assert played.nodes.pop(facts.name)[:4] == [facts.name, facts.zone, facts.ready, facts.open]
    assert not played.nodes
    for facts in map(pod_facts, pods):
        phase = "Terminating" if facts.terminating else facts.phase
        assert played.pods.pop(facts.key) == (facts.requests, facts.node, phase)
    assert not played.pods


def test_heartbeats_are_no_moments() -> None:
    recording = Recording("a run")
    cluster = VirtualCluster(0, nodes=2)
    cluster.on_change(recording.take)
    with cluster:
        cluster.advance(60)
        before = recording.held
        cluster.advance(hours=1)
    assert recording.held == before


def put(name: str, revision: int) -> Event:
    return Event("PUT", KeyValue(f"/registry/pods/default/{name}".encode(), stored(name), 1, revision, 1, 0), None)


def stored(name: str) -> bytes:
    metadata = {"name": name, "namespace": "default", "uid": name, "creationTimestamp": "2026-01-01T00:00:00Z"}
    return orjson.dumps({"metadata": metadata, "spec": {"containers": []}, "status": {"phase": "Pending"}})


def test_more_moments_than_a_page_holds_are_counted_and_said() -> None:
    recording = Recording("long", moments_max=3)
    for number in range(5):
        recording.take(number, put(f"p-{number}", number))
    assert (recording.held, recording.left_out) == (3, 2)
    said: list[str] = []
    assert recording.as_dict()["left_out"] == 2
    write_page(NOWHERE, [recording], said.append)
    assert said == ["null shows the first 3 changes of long; 2 later ones are omitted"]


def test_a_name_cannot_end_the_element_that_holds_it() -> None:
    recording = Recording("</script><script>alert(1)</script> %data%")
    recording.take(1, put("</script>", 1))
    page = page_of([recording]).decode()
    assert page.count("</script>") == 2
    held = page.split('type="application/json">')[1].split("</script>")[0]
    assert orjson.loads(held)[0]["title"] == recording.title
    assert page_of([recording]).decode() == page

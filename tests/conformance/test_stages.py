"""Stages beside what KWOK 0.8 made of them: recorded expressions, templates and lifecycles, and the statuses of pods
that the real KWOK played, played again in virtual time."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import drawn_stages
import pytest
import stage_judge
import stage_scenes

from minikube_py import Cluster
from minikube_py.stages.files import load

DATA = Path(__file__).parent / "data" / "stages.json"
SEED, QUERIES, TEMPLATES, OBJECTS, PODS = 1, 400, 400, 60, 16


@pytest.fixture(scope="module")
def recorded() -> Mapping[str, Any]:
    found: Mapping[str, Any] = json.loads(DATA.read_text())
    return found


@pytest.fixture(scope="module")
def files(recorded: Mapping[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stages")
    for name, text in recorded["files"].items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def test_expressions_select_what_gojq_selects(recorded: Mapping[str, Any]) -> None:
    asked = drawn_stages.queries(SEED, QUERIES)
    assert len(asked) == len(recorded["queries"])
    wrong = [why for given, answer in zip(asked, recorded["queries"]) if (why := stage_judge.query(given, answer))]
    assert not wrong, wrong[:3]
    assert sum(answer.get("values") is not None for answer in recorded["queries"]) > QUERIES / 3


def test_templates_give_what_go_gives(recorded: Mapping[str, Any]) -> None:
    asked = drawn_stages.templates(SEED, TEMPLATES)
    wrong = [why for given, answer in zip(asked, recorded["templates"]) if (why := stage_judge.template(given, answer))]
    assert not wrong, wrong[:3]
    assert sum("text" in answer for answer in recorded["templates"]) > TEMPLATES / 4


def test_each_stage_that_kwok_ships_is_matched_weighed_and_rendered_as_there(
    recorded: Mapping[str, Any], files: Path
) -> None:
    matched: set[str] = set()
    for (folders, objects), answers in zip(drawn_stages.lives(SEED, OBJECTS), recorded["lives"], strict=True):
        paths = [files / each for each in folders]
        for obj, answer in zip(objects, answers, strict=True):
            assert stage_judge.life(paths, obj) == stage_judge.told(answer), (folders, obj)
            matched.update(each["stage"] for each in stage_judge.told(answer) or ())
    shipped = {Path(name).stem for name in recorded["files"]}
    assert matched == shipped


@pytest.mark.parametrize("name", stage_scenes.SETS)
def test_pods_go_through_the_statuses_that_kwok_gave_them(recorded: Mapping[str, Any], files: Path, name: str) -> None:
    drawn = stage_scenes.scenes(name, SEED, PODS)
    found = stage_scenes.played_virtually(drawn, load(stage_scenes.stage_files(files, name)))
    assert found == recorded["scenes"][name]


def test_volumes_are_bound_and_deleted_by_kwoks_stages(files: Path) -> None:
    claim = {
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "c", "namespace": "default"},
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "kwok-volume",
                 "resources": {"requests": {"storage": "5Gi"}}},
    }  # fmt: skip
    storage = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "kwok-volume"},
               "provisioner": "kwok.x-k8s.io/volume"}  # fmt: skip
    with Cluster(nodes=1, clock="virtual", seed=1, stages=files / "volume" / "fast") as cluster:
        cluster.apply(storage)
        cluster.apply(claim)
        cluster.advance(seconds=20)
        (volume,), (bound,) = cluster.objects("persistentvolumes"), cluster.objects("persistentvolumeclaims")
        assert bound["status"]["phase"] == volume["status"]["phase"] == "Bound"
        assert bound["spec"]["volumeName"] == volume["metadata"]["name"] == f"pvc-{bound['metadata']['uid']}"
        cluster.delete("pvc/c")
        cluster.advance(seconds=30)
        assert not cluster.objects("persistentvolumeclaims") and not cluster.objects("persistentvolumes")


def test_nodes_live_by_kwoks_stages(files: Path) -> None:
    folders = [files / "node" / each for each in ("fast", "heartbeat", "chaos")]
    with Cluster(nodes=2, clock="virtual", seed=1, stages=folders) as cluster:
        cluster.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "default"},
                       "spec": {"containers": [{"name": "c", "image": "i"}]}})  # fmt: skip
        cluster.advance(seconds=90)
        nodes = cluster.objects("nodes")
        assert {each["status"]["phase"] for each in nodes} == {"Running"}
        beats = {_ready(each)["lastHeartbeatTime"] for each in nodes}
        assert cluster.objects("pods")[0]["status"]["phase"] == "Running"
        cluster.advance(seconds=60)
        assert not beats & {_ready(each)["lastHeartbeatTime"] for each in cluster.objects("nodes")}
        prefix = "node-not-ready.stage.kwok.x-k8s.io"
        cluster.apply({"apiVersion": "v1", "kind": "Node", "metadata": {
            "name": "node-0", "labels": {prefix: "true"}, "annotations": {f"{prefix}/reason": "itBroke"}}})  # fmt: skip
        cluster.advance(seconds=10)
        found = {each["metadata"]["name"]: _ready(each) for each in cluster.objects("nodes")}
        assert (found["node-0"]["status"], found["node-0"]["reason"]) == ("False", "itBroke")
        assert found["node-1"]["status"] == "True"


def _ready(node: dict[str, Any]) -> dict[str, Any]:
    return next(each for each in node["status"]["conditions"] if each["type"] == "Ready")

"""Clusters whose pods live by stages, in virtual time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from minikube_py import Cluster, ClusterError, NodeSpec
from minikube_py.kubelet.stage_player import AT_ONCE_MAX

EXAMPLES = Path(__file__).parents[3] / "examples" / "stages"
LOOP = """apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: NAME}
spec:
  resourceRef: {kind: Pod}
  selector: {matchExpressions: [{key: .status.phase, operator: In, values: [FROM]}]}
  next: {statusTemplate: "phase: TO"}
  immediateNextStage: IMMEDIATE
"""
HELD = """apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: hold}
spec:
  resourceRef: {kind: Pod}
  selector:
    matchExpressions:
    - {key: .metadata.finalizers, operator: DoesNotExist}
    - {key: .metadata.deletionTimestamp, operator: DoesNotExist}
  steps:
  - event: {type: Warning, reason: Held, message: it is held}
  - finalizers: {add: [{value: example.com/a}, {value: example.com/b}]}
  - patch: {subresource: status, root: status, template: "phase: Running"}
  - patch: {type: json, root: metadata/labels, template: '[{op: add, path: /seen, value: "yes"}]'}
  - apply:
      template: |
        apiVersion: v1
        kind: ConfigMap
        metadata: {name: "of-{{ .metadata.name }}"}
        data: {uid: {{ .metadata.uid | Quote }}}
---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: let-go}
spec:
  resourceRef: {kind: Pod}
  selector: {matchExpressions: [{key: .metadata.deletionTimestamp, operator: Exists}]}
  delay: {durationMilliseconds: 3000}
  steps:
  - finalizers: {empty: true}
  - delete: true
  - event: {type: Normal, reason: Gone, message: it is gone}
"""


def pod(name: str, labels: Any = None, told: Any = None, restart: str = "Always") -> dict[str, Any]:
    metadata = {"name": name, "namespace": "default", "labels": labels or {}, "annotations": told or {}}
    spec = {"restartPolicy": restart, "containers": [{"name": "c", "image": "i"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def job(name: str, code: str) -> dict[str, Any]:
    spec = pod("", restart="Never")["spec"]
    template = {"metadata": {"annotations": {"lives/exit-code": code}}, "spec": spec}
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata,
            "spec": {"backoffLimit": 1, "template": template}}  # fmt: skip


def played(cluster: Cluster) -> dict[str, float]:
    engine: Any = cluster._reached()
    found: dict[str, float] = engine.virtual.plane.metrics()
    return {key: value for key, value in found.items() if key.startswith("kubelet_stages_")}


def seen(cluster: Cluster, name: str) -> tuple[str, str, int]:
    """Phase, reason and restarts."""
    status = next(each["status"] for each in cluster.objects("pods") if each["metadata"]["name"] == name)
    (container,) = status["containerStatuses"]
    (state,) = container["state"].values()
    return status["phase"], state.get("reason", ""), container["restartCount"]


def lives(seed: int) -> tuple[list[Any], str]:
    found = []
    with Cluster(nodes=2, clock="virtual", seed=seed, stages=EXAMPLES) as cluster:
        for each in (
            pod("web"),
            pod("pull", {"image": "missing"}),
            pod("crash", {"crashes": "true"}, {"lives/exit-code": "137"}),
            pod("once", {"crashes": "true"}, restart="Never"),
            pod("done", restart="Never"),
            pod("bad", None, {"lives/exit-code": "3", "lives/run-seconds": "4s"}, "OnFailure"),
            job("good", "0"),
            job("fails", "2"),
        ):
            cluster.apply(each)
        names = ("web", "pull", "crash", "once", "done", "bad")
        for wait_s in (3, 5, 10, 24, 40, 60):
            cluster.advance(seconds=wait_s)
            found.append({name: seen(cluster, name) for name in names})
        conditions = {
            each["metadata"]["name"]: [told["type"] for told in each["status"]["conditions"]]
            for each in cluster.objects("jobs")
        }
        assert conditions == {"good": ["SuccessCriteriaMet", "Complete"], "fails": ["FailureTarget", "Failed"]}
        assert not played(cluster)["kubelet_stages_failed_total"]
        assert not played(cluster)["kubelet_stages_refused_total"]
        cluster.delete("pod/web")
        cluster.advance(seconds=2)
        assert "web" not in [each["metadata"]["name"] for each in cluster.objects("pods")]
        events = {(each["reason"], each["type"]) for each in cluster.objects("events")}
        assert {("BackOff", "Warning"), ("Failed", "Warning"), ("Started", "Normal")} <= events
        return found, cluster.digest


def test_the_examples_run_crash_complete_and_fail_to_pull() -> None:
    found, digest = lives(5)
    first, last = found[0], found[-1]
    assert first["crash"] == ("Running", "CrashLoopBackOff", 0)
    assert first["once"] == ("Failed", "Error", 0)
    assert {each["web"] for each in found} == {("Running", "", 0)}
    assert {each["pull"][:2] for each in found[1:]} == {("Pending", "ErrImagePull"), ("Pending", "ImagePullBackOff")}
    assert last["done"] == ("Succeeded", "Completed", 0)
    assert last["bad"] == ("Failed", "Error", 0)
    assert [each["crash"][2] for each in found] == [0, 0, 1, 2, 3, 4]
    again, digest_again = lives(5)
    assert (again, digest_again) == (found, digest)


@pytest.mark.parametrize("immediate", ["true", "false"])
def test_a_loop_of_stages_without_a_delay_goes_on_once_a_second(tmp_path: Path, immediate: str) -> None:
    texts = [
        LOOP.replace("NAME", name).replace("FROM", old).replace("TO", new).replace("IMMEDIATE", immediate)
        for name, old, new in (("up", "Pending", "Running"), ("down", "Running", "Pending"))
    ]
    (tmp_path / "loop.yaml").write_text("---\n".join(texts))
    with Cluster(nodes=1, clock="virtual", seed=1, stages=tmp_path) as cluster:
        cluster.apply(pod("a"))
        cluster.advance(seconds=20)
        metrics = played(cluster)
        turns = sum(value for key, value in metrics.items() if "played_total" in key)
        assert AT_ONCE_MAX < turns <= AT_ONCE_MAX + 21
        assert metrics["kubelet_stages_held_back_total"] > 10


def test_steps_hold_patch_apply_and_delete(tmp_path: Path) -> None:
    (tmp_path / "held.yaml").write_text(HELD)
    with Cluster(nodes=1, clock="virtual", seed=1, stages=tmp_path) as cluster:
        cluster.apply(pod("a", {"of": "a"}))
        cluster.advance(seconds=2)
        (found,) = cluster.objects("pods")
        assert found["metadata"]["finalizers"] == ["example.com/a", "example.com/b"]
        assert found["metadata"]["labels"] == {"of": "a", "seen": "yes"}
        assert found["status"]["phase"] == "Running"
        maps = {each["metadata"]["name"]: each for each in cluster.objects("configmaps")}
        assert maps["of-a"]["data"] == {"uid": found["metadata"]["uid"]}
        cluster.delete("pod/a")
        cluster.advance(seconds=2)
        assert cluster.objects("pods")
        cluster.advance(seconds=2)
        assert not cluster.objects("pods")
        cluster.advance(seconds=2)
        assert {"Held", "Gone"} <= {each["reason"] for each in cluster.objects("events")}
        assert not played(cluster)["kubelet_stages_refused_total"]


def test_a_node_that_is_down_plays_nothing_and_goes_on_where_it_was() -> None:
    with Cluster(nodes=1, clock="virtual", seed=1, stages=EXAMPLES) as cluster:
        cluster.apply(pod("a", None, {"lives/run-seconds": "5s"}, "Never"))
        cluster.advance(seconds=2)
        assert seen(cluster, "a")[0] == "Running"
        cluster.node("node-0").down()
        cluster.advance(seconds=20)
        assert seen(cluster, "a")[0] == "Running"
        cluster.node("node-0").up()
        cluster.advance(seconds=8)
        assert seen(cluster, "a") == ("Succeeded", "Completed", 0)


def test_pods_wait_for_addresses_and_those_that_ended_give_theirs_back() -> None:
    shape = NodeSpec("node-0", {"cpu": "1000", "memory": "1Ti", "pods": "1000"})
    with Cluster(nodes=[shape], clock="virtual", seed=1, stages=EXAMPLES) as cluster:
        for at in range(260):
            body = pod(f"p{at}", restart="Never")
            body["spec"]["nodeName"] = "node-0"
            assert cluster.request("POST", "/api/v1/namespaces/default/pods", json.dumps(body).encode()).status == 201
        cluster.advance(seconds=30)
        statuses = [each["status"] for each in cluster.objects("pods")]
        assert [each["phase"] for each in statuses] == ["Succeeded"] * 260
        assert len({each["podIP"] for each in statuses}) == 254
        assert not played(cluster)["kubelet_stages_failed_total"]


def test_a_file_that_is_not_understood_is_refused_before_anything_starts(tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text(LOOP.replace("phase: TO", "phase: {{ nope }}").replace("IMMEDIATE", "true"))
    for clock in ("virtual", "real"):
        with pytest.raises(ClusterError, match=r"stages: .*bad.yaml:7: spec.next.status.*'nope' is not"):
            Cluster(nodes=1, clock=clock, stages=tmp_path / "bad.yaml").start()  # type: ignore[arg-type]
    (tmp_path / "bad.yaml").write_text(LOOP.replace("Pod", "Widget").replace("IMMEDIATE", "true"))
    with pytest.raises(ClusterError, match=r"stages: .*Widget of v1, which is not a built-in kind"):
        Cluster(nodes=1, clock="virtual", stages=tmp_path / "bad.yaml").start()

"""`minikube-py what-if` on a control plane in virtual time."""

from __future__ import annotations

import json
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import Any

import pytest

from minikube_py.cli import running, what_if
from minikube_py.cli.main import main
from minikube_py.cluster.virtual import VirtualCluster

POD = "kind: Pod\napiVersion: v1\nmetadata: {name: web}\nspec: {containers: [{name: c, image: x}]}\n"
PODS = "/api/v1/namespaces/default/pods"


def _finished(asking: Coroutine[Any, Any, Any]) -> Any:
    """What it returns: it waits for nothing, since the cluster runs in virtual time when it is asked."""
    try:
        asking.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("it waits")


def door_of(cluster: VirtualCluster) -> type:
    class InCluster:
        """The door of the command, to this cluster."""

        def __init__(self, arguments: Any) -> None: ...

        async def __aenter__(self) -> InCluster:
            return self

        async def __aexit__(self, *_: object) -> None: ...

        async def ask(self, method: str, path: str, params: Mapping[str, str], body: Any) -> Any:
            return self._sent(method, f"/minikube-py/v1/{path}", params, body)

        async def dry_run(self, path: str, body: Any) -> Any:
            return self._sent("POST", path, {"dryRun": "All"}, body)

        async def get(self, path: str) -> Any:
            return self._sent("GET", path, {}, None)

        def _sent(self, method: str, path: str, params: Mapping[str, str], body: Any) -> Any:
            sent = b"" if body is None else json.dumps(body).encode()
            answer = cluster.request(method, path, sent, dict(params))
            if answer.status == 503:
                cluster.advance(1)
                answer = cluster.request(method, path, sent, dict(params))
            return json.loads(answer.body)

    return InCluster


def test_the_answer_names_the_pod_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "pod.yaml"
    file.write_text(POD)
    with VirtualCluster(1, nodes=2) as cluster:
        monkeypatch.setattr(what_if, "Api", door_of(cluster))
        monkeypatch.setattr(running, "run_interruptible", _finished)
        cluster.advance(5)
        # One of that name stands already.
        body = {"metadata": {"name": "web"}, "spec": {"containers": [{"name": "c", "image": "x"}]}}
        assert cluster.request("POST", PODS, json.dumps(body).encode()).status == 201
        cluster.advance(5)
        assert main(["what-if", str(file)]) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"default/web of {file}: nothing was created\n")
    assert "2 of 2" in said or "2/2" in said


@pytest.mark.parametrize(("text", "said"), [(f"{POD}---\n{POD}", "has several objects"), ("", "is not a Pod")])
def test_a_file_of_another_number_of_pods_is_refused(
    text: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "pods.yaml"
    file.write_text(text)
    assert main(["what-if", str(file), "--kubeconfig", str(tmp_path / "none")]) == 2
    assert said in capsys.readouterr().err


def _made(cluster: VirtualCluster, path: str, **body: Any) -> None:
    answer = cluster.request("POST", path, json.dumps(body).encode())
    assert answer.status == 201, answer.body


CLAIMED = """
kind: Pod
apiVersion: v1
metadata: {name: web}
spec:
  containers: [{name: c, image: x}]
  volumes:
  - name: v
    ephemeral:
      volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}
  resourceClaims: [{name: d, resourceClaimTemplateName: t}]
"""


@pytest.mark.parametrize("devices", [1, 0])
def test_claims_from_templates_are_supposed(
    devices: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As controllers would make them: the volume's of the default class, and the devices of the template."""
    file = tmp_path / "pod.yaml"
    file.write_text(CLAIMED)
    with VirtualCluster(1, nodes=2) as cluster:
        monkeypatch.setattr(what_if, "Api", door_of(cluster))
        monkeypatch.setattr(running, "run_interruptible", _finished)
        cluster.advance(5)
        default = {"storageclass.kubernetes.io/is-default-class": "true"}
        storage = {"provisioner": "x.io/p", "volumeBindingMode": "WaitForFirstConsumer"}
        classes = "/apis/storage.k8s.io/v1/storageclasses"
        _made(cluster, classes, metadata={"name": "s", "annotations": default}, **storage)
        group = "/apis/resource.k8s.io/v1"
        _made(cluster, f"{group}/deviceclasses", metadata={"name": "c"}, spec={})
        pool = {"name": "p", "generation": 1, "resourceSliceCount": 1}
        there = {"driver": "d.io", "nodeName": "node-1", "pool": pool, "devices": [{"name": "d"}] * devices}
        _made(cluster, f"{group}/resourceslices", metadata={"name": "s"}, spec=there)
        wanted = {"requests": [{"name": "r", "exactly": {"deviceClassName": "c"}}]}
        template = {"metadata": {"labels": {"a": "b"}}, "spec": {"devices": wanted}}
        _made(cluster, f"{group}/namespaces/default/resourceclaimtemplates", metadata={"name": "t"}, spec=template)
        assert main(["what-if", str(file)]) == 0
        said = capsys.readouterr().out
        assert f"now {devices} of 2 nodes fit" in said and "held back" not in said
        if not devices:
            assert "cannot allocate all claims" in said
        for path in (f"{group}/resourceclaims", "/api/v1/persistentvolumeclaims", "/api/v1/pods"):
            assert json.loads(cluster.request("GET", path).body)["items"] == [], "nothing was created"

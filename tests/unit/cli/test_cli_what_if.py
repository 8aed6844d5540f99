"""`minikube-py what-if` on a control plane in virtual time."""

from __future__ import annotations

import json
from collections.abc import Coroutine, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from minikube_py.api.errors import StatusError
from minikube_py.cli import running, what_if
from minikube_py.cli.main import main
from minikube_py.cluster.virtual import VirtualCluster
from minikube_py.env import SystemClock

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
            return self._sent("POST", path, {"dryRun": "All", "fieldValidation": "Strict"}, body)

        async def get(self, path: str) -> Any:
            return self._sent("GET", path, {}, None)

        def _sent(self, method: str, path: str, params: Mapping[str, str], body: Any) -> Any:
            sent = b"" if body is None else json.dumps(body).encode()
            answer = cluster.request(method, path, sent, dict(params))
            found = json.loads(answer.body)
            if answer.status >= 400:
                raise StatusError(found["code"], found["reason"], found["message"])
            return found

    return InCluster


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[VirtualCluster]:
    """The command asks this cluster, whose time passes where it sleeps."""
    with VirtualCluster(1, nodes=2) as cluster:

        class Passing(SystemClock):
            def monotonic_s(self) -> float:
                return cluster.clock.monotonic_s()

            async def sleep(self, duration_s: float) -> None:
                cluster.advance(duration_s)

        monkeypatch.setattr(what_if, "Api", door_of(cluster))
        monkeypatch.setattr(what_if, "SystemClock", Passing)
        monkeypatch.setattr(running, "run_interruptible", _finished)
        cluster.advance(5)
        yield cluster


def test_the_answer_names_the_pod_of_the_file(
    tmp_path: Path, cluster: VirtualCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "pod.yaml"
    file.write_text(POD)
    for _ in range(2):
        assert main(["what-if", str(file)]) == 0
        said = capsys.readouterr().out
        assert said.startswith(f"default/web of {file}: nothing was created\n")
        assert "2 of 2" in said or "2/2" in said
        # Now one of that name is there.
        body = {"metadata": {"name": "web"}, "spec": {"containers": [{"name": "c", "image": "x"}]}}
        cluster.request("POST", PODS, json.dumps(body).encode())
        cluster.advance(5)


WRONG = {
    "misspelt": (POD.replace("spec: {", "spec: {nodeSelectr: {a: b}, "), 'unknown field "spec.nodeSelectr"'),
    "metadata": (POD.replace("{name: web}", "web"), "metadata: a mapping is expected"),
    "metadata list": (POD.replace("{name: web}", "[web]"), "metadata: a mapping is expected"),
    "name": (POD.replace("name: web", "name: Web_1"), 'Pod "Web_1" is invalid: metadata.name: Invalid value: "Web_1"'),
    "scheduler": (
        POD.replace("spec: {", "spec: {schedulerName: nobody, "),
        'no scheduler has the pod "web": it names a scheduler that does not run',
    ),
}


@pytest.mark.parametrize(("text", "said"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_told_by_the_names_in_the_file(
    text: str, said: str, tmp_path: Path, cluster: VirtualCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "pod.yaml"
    file.write_text(text)
    assert main(["what-if", str(file)]) in (1, 2)
    told = capsys.readouterr()
    assert said in told.err and told.out == ""


def test_it_waits_until_the_scheduler_has_read_what_no_pod_needed_before(
    tmp_path: Path, cluster: VirtualCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "pod.yaml"
    limits = "resources: {limits: {example.com/gpu: 1}}"
    file.write_text(POD.replace("image: x", f"image: x, {limits}"))
    assert main(["what-if", str(file)]) == 0
    assert "Insufficient example.com/gpu" in capsys.readouterr().out


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
    devices: int, tmp_path: Path, cluster: VirtualCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    """As controllers would make them: the volume's of the default class, and the devices of the template."""
    file = tmp_path / "pod.yaml"
    file.write_text(CLAIMED)
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

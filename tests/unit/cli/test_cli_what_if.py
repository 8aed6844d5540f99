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


def test_the_answer_names_the_pod_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "pod.yaml"
    file.write_text(POD)
    with VirtualCluster(1, nodes=2) as cluster:

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

            def _sent(self, method: str, path: str, params: Mapping[str, str], body: Any) -> Any:
                return json.loads(cluster.request(method, path, json.dumps(body).encode(), dict(params)).body)

        monkeypatch.setattr(what_if, "Api", InCluster)
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

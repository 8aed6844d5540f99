"""`minikube-py up` lives through what `kubectl apply` may bring, answers, and starts again on its folder."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from needs import absent
from patience import eventually
from up_process import Up, again, up

LAYOUTS = [pytest.param((), id="one process"), pytest.param(("--members", "3"), id="three members")]
HUGE = ("10P", "9223372036854775807", "9223372036854775808m", "1e30", "5Ei", "1E")
pytestmark = pytest.mark.kubectl


def kubectl(running: Up, *arguments: str, stdin: str = "") -> str:
    found = shutil.which("kubectl") or absent("kubectl is not on the PATH: install any of 1.27 to 1.33")
    done = subprocess.run(
        [str(found), "--kubeconfig", str(running.kubeconfig), *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def pod(name: str, *requests: dict[str, str]) -> dict[str, Any]:
    containers = [{"name": f"c{at}", "image": "i", "resources": {"requests": each}} for at, each in enumerate(requests)]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": containers}}


def apply(running: Up, *pods: dict[str, Any]) -> None:
    kubectl(running, "apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": pods}))


def phases(running: Up, *flags: str) -> dict[str, str]:
    items = json.loads(kubectl(running, "get", "pods", "-o", "json", *flags))["items"]
    return {item["metadata"]["name"]: item["status"].get("phase", "") for item in items}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_pods_that_ask_for_more_than_there_is_stop_nothing(tmp_path: Path, layout: tuple[str, ...]) -> None:
    flags = ("--data-dir", str(tmp_path / "data"), "--nodes", "2", *layout)
    huge = [pod(f"cpu-{at}", {"cpu": text}) for at, text in enumerate(HUGE)]
    huge += [pod("memory-0", {"memory": "5Ei"}, {"memory": "5Ei"}), pod("memory-1", {"memory": "5Ei"})]
    # By its own word on a node that comes later: the sums of the node take it in, until a kubelet can refuse it.
    bound = pod("bound", {"cpu": "10P", "memory": "7Ei"}, {"cpu": "10P", "memory": "7Ei"})
    bound["spec"]["nodeName"] = "late"
    late = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "late"}, "status": {"allocatable": {"cpu": "4"}}}
    with up(*flags) as running:
        apply(running, *huge, bound, pod("usual", {"cpu": "100m"}))
        eventually(lambda: phases(running)["usual"] == "Running", "the usual pod runs")
        assert {phases(running)[each["metadata"]["name"]] for each in huge} == {"Pending"}
        assert set(phases(running, "--field-selector", "requests.cpu>=1P")) >= {"cpu-0", "cpu-3", "bound"}
        apply(running, late)
        eventually(lambda: phases(running)["bound"] == "Failed", "the kubelet refuses it")
        running.kill()
    restarted = again(*flags)
    try:
        assert set(phases(restarted)) == {each["metadata"]["name"] for each in (*huge, bound, pod("usual"))}
        apply(restarted, pod("later", {"cpu": "100m"}))
        eventually(lambda: phases(restarted)["later"] == "Running", "a pod runs after the restart")
    finally:
        restarted.end()

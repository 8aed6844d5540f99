"""The real kube-scheduler and kube-controller-manager, unchanged, on our API server: nothing answers in its place."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ours
import patience
import pytest
from asking import Ask, Server
from needs import original_program

pytestmark = [pytest.mark.original, pytest.mark.slow, pytest.mark.timeout(300)]

NODES = 3
PODS = "/api/v1/namespaces/default/pods"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
REPLICA_SETS = "/apis/apps/v1/namespaces/default/replicasets"
_FAILED = re.compile(r'"Failed to watch".*? type="\*\w+\.(\w+)"')
_TEMPLATE = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "x:1"}]}}


@contextmanager
def running(program: str, kubeconfig: str, folder: Path, *flags: str) -> Iterator[Path]:
    """Its log. No lease is asked for: a machine that stalls for ten seconds ends a leader."""
    log = folder / f"{program}.log"
    command = [str(original_program(program)), f"--kubeconfig={kubeconfig}", "--leader-elect=false", "--secure-port=0"]
    with log.open("w") as written:
        process = subprocess.Popen([*command, *flags], stdout=written, stderr=subprocess.STDOUT)
    try:
        yield log
        assert process.poll() is None, log.read_text()[-2000:]
    finally:
        process.terminate()
        process.wait(patience.PATIENCE_S)


def items(server: Server, path: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(server.ask(Ask("list", "GET", path)).body)["items"]
    return found


def make(server: Server, path: str, body: dict[str, Any]) -> None:
    answer = server.ask(Ask("create", "POST", path, body))
    assert answer.code == 201, answer


def pod(name: str, cpu: str) -> dict[str, Any]:
    container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": cpu}}}
    return {"metadata": {"name": name}, "spec": {"containers": [container]}}


def test_the_real_scheduler_binds_every_pod(tmp_path: Path) -> None:
    with (
        ours.serve(("controllers", "kubelet"), nodes=NODES) as up,
        Server(up["url"], up["token"]) as server,
        running("kube-scheduler", up["kubeconfig"], tmp_path) as log,
    ):
        account = Ask("get", "GET", "/api/v1/namespaces/default/serviceaccounts/default")
        patience.eventually(lambda: server.ask(account).code == 200, "pods may be made")
        for i in range(30):
            make(server, PODS, pod(f"p{i}", "100m"))
        make(server, PODS, pod("huge", "1000"))

        def settled() -> bool:
            phases = [each["status"]["phase"] for each in items(server, PODS)]
            conditions = [c for each in items(server, PODS) for c in each["status"].get("conditions") or ()]
            return phases.count("Running") == 30 and any(c.get("reason") == "Unschedulable" for c in conditions)

        patience.eventually(settled, "30 pods run, and one is found to fit nowhere")
        found = {each["metadata"]["name"]: each for each in items(server, PODS)}
        (told,) = [c for c in found.pop("huge")["status"]["conditions"] if c["type"] == "PodScheduled"]
        assert told["message"].startswith(f"0/{NODES} nodes are available: {NODES} Insufficient cpu.")
        # All nodes are alike, so it spreads the pods.
        on = [each["spec"]["nodeName"] for each in found.values()]
        assert len(set(on)) == NODES

        def events() -> set[str]:
            told = items(server, "/api/v1/namespaces/default/events")
            return {each["involvedObject"]["name"] for each in told if each["reason"] == "Scheduled"}

        patience.eventually(lambda: events() == set(found), "each of its bindings has an event")
        assert not _FAILED.findall(log.read_text())


def test_the_real_controller_manager_runs_a_deployment(tmp_path: Path) -> None:
    # It takes nodes for dead whose heartbeat is late, as it is on a machine that stalls.
    chosen = "--controllers=*,-node-lifecycle-controller"
    with (
        ours.serve(("scheduler", "kubelet"), nodes=NODES) as up,
        Server(up["url"], up["token"]) as server,
        running("kube-controller-manager", up["kubeconfig"], tmp_path, chosen) as log,
    ):
        spec = {"replicas": 3, "selector": {"matchLabels": {"a": "b"}}, "template": _TEMPLATE}
        make(server, DEPLOYMENTS, {"metadata": {"name": "web"}, "spec": spec})

        def complete(replicas: int) -> bool:
            (found,) = items(server, DEPLOYMENTS)
            status, generation = found.get("status") or {}, found["metadata"]["generation"]
            counts = [status.get(name, 0) for name in ("replicas", "updatedReplicas", "availableReplicas")]
            return counts == [replicas] * 3 and status["observedGeneration"] == generation

        def change(value: dict[str, Any]) -> None:
            ask = Ask("patch", "PATCH", f"{DEPLOYMENTS}/web", value, "application/strategic-merge-patch+json")
            assert server.ask(ask).code == 200

        patience.eventually(lambda: complete(3), "3 replicas are available")
        change({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "x:2"}]}}}})
        patience.eventually(lambda: complete(3), "the new template is rolled out")
        specs = [each["spec"] for each in items(server, REPLICA_SETS)]
        wanted = {each["template"]["spec"]["containers"][0]["image"]: each["replicas"] for each in specs}
        assert wanted == {"x:1": 0, "x:2": 3}
        change({"spec": {"replicas": 1}})
        patience.eventually(lambda: complete(1), "it is scaled down")
        # What it owns is collected.
        body = {"propagationPolicy": "Background"}
        assert server.ask(Ask("delete", "DELETE", f"{DEPLOYMENTS}/web", body)).code == 200
        patience.eventually(lambda: not items(server, REPLICA_SETS) and not items(server, PODS), "nothing is left")
        assert not _FAILED.findall(log.read_text())

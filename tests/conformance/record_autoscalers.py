"""Records what upstream's controller makes of the autoscalers in `tests/unit/controllers/upstream_autoscalers.json`.

    PYTHONPATH=$PWD python tests/conformance/record_autoscalers.py KUBE_CONTROLLER_MANAGER

Targets and autoscalers are those of the file. They are made on this API server, whose own controller of them must be
taken out of `CONTROLLERS` for it; statuses and events go back into the file.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from minikube_py import Cluster

DATA = Path(__file__).parents[1] / "unit" / "controllers" / "upstream_autoscalers.json"
SERVICE = {
    "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": "v1beta1.metrics.k8s.io"},
    "spec": {"group": "metrics.k8s.io", "version": "v1beta1", "groupPriorityMinimum": 100, "versionPriority": 100},
}  # fmt: skip
FLAGS = (
    "--controllers=horizontal-pod-autoscaler-controller", "--leader-elect=false", "--secure-port=0",
    "--horizontal-pod-autoscaler-sync-period=5s",
)  # fmt: skip
WARM_S, RUN_S = 22, 45
NAMESPACE = "namespaces/default"
Json = dict[str, Any]


def items(cluster: Cluster, path: str) -> list[Json]:
    listed: list[Json] = json.loads(cluster.request("GET", path)[1])["items"]
    return listed


def record(data: Json, manager: str, served: bool) -> Json:
    with Cluster(nodes=2) as cluster:
        for each in (*([SERVICE] if served else []), *data["targets"]):
            cluster.apply(each)
        time.sleep(WARM_S)
        for each in data["autoscalers"]:
            cluster.apply(each)
        process = subprocess.Popen([manager, "--kubeconfig", str(cluster.kubeconfig_path), *FLAGS])
        try:
            time.sleep(RUN_S)
        finally:
            process.terminate()
            process.wait()
        scalers = items(cluster, f"/apis/autoscaling/v2/{NAMESPACE}/horizontalpodautoscalers")
        events: dict[str, list[list[str]]] = {}
        for event in items(cluster, f"/api/v1/{NAMESPACE}/events"):
            if event["involvedObject"]["kind"] == "HorizontalPodAutoscaler":
                told = [event["type"], event["reason"], event["message"]]
                events.setdefault(event["involvedObject"]["name"], []).append(told)
    return {"status": {each["metadata"]["name"]: each.get("status", {}) for each in scalers}, "events": events}


def main() -> None:
    data = json.loads(DATA.read_text())
    for name in ("served", "unserved"):
        data[name] = record(data, sys.argv[1], name == "served")
    DATA.write_text(json.dumps(data, indent=0) + "\n")


if __name__ == "__main__":
    main()

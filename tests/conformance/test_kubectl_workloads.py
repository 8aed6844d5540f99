"""kubectl 1.36 on workloads: what people type, and what they are to see. `serve` runs our whole control plane."""

from __future__ import annotations

import subprocess
from pathlib import Path

import needs
import ours
import pytest
import upstream

from minikube_py.control_plane.config import COMPONENTS

pytestmark = [pytest.mark.original, pytest.mark.slow]

DOCUMENTS = """
apiVersion: v1
kind: Namespace
metadata: {name: multi}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db, namespace: multi}
spec:
  serviceName: db
  replicas: 2
  selector: {matchLabels: {app: db}}
  template: {metadata: {labels: {app: db}}, spec: {containers: [{name: c, image: "IMAGE"}]}}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent, namespace: multi}
spec:
  selector: {matchLabels: {app: agent}}
  template: {metadata: {labels: {app: agent}}, spec: {containers: [{name: c, image: "IMAGE"}]}}
"""
DEPLOYMENT: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("create deployment web --image=nginx --replicas=3", ("deployment.apps/web created",)),
    ("rollout status deployment/web --timeout=60s", ('deployment "web" successfully rolled out',)),
    ("get deploy,rs -o wide", ("deployment.apps/web   3/3     3            3", "app=web,pod-template-hash=")),
    ("scale deployment web --replicas=5", ("deployment.apps/web scaled",)),
    ("set image deployment/web nginx=nginx:2", ("deployment.apps/web image updated",)),
    ("rollout status deployment/web --timeout=60s", ('deployment "web" successfully rolled out',)),
    ("rollout history deployment/web", ("1         <none>", "2         <none>")),
    ("rollout undo deployment/web", ("deployment.apps/web rolled back",)),
    ("rollout status deployment/web --timeout=60s", ('deployment "web" successfully rolled out',)),
    ("rollout history deployment/web --revision=3", ("with revision #3", "Image:\tnginx\n")),
    ("rollout pause deployment/web", ("deployment.apps/web paused",)),
    ("rollout resume deployment/web", ("deployment.apps/web resumed",)),
    ("rollout restart deployment/web", ("deployment.apps/web restarted",)),
    ("rollout status deployment/web --timeout=60s", ('deployment "web" successfully rolled out',)),
    ("describe deployment web", ("5 desired | 5 updated | 5 total | 5 available | 0 unavailable", "NewReplicaSetAvailable",
                                 "deployment-controller  Scaled up replica set web-")),
    ("describe rs", ("Controlled By:  Deployment/web", "deployment.kubernetes.io/revision: 3")),
    ("get all", ("pod/web-", "deployment.apps/web", "replicaset.apps/web-")),
    ("delete deployment web --cascade=foreground --timeout=60s", ('deployment.apps "web" deleted',)),
    ("get pods,rs", ("No resources found",)),
)  # fmt: skip
OTHERS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("apply -f one.yaml", ("statefulset.apps/db created", "daemonset.apps/agent created")),
    ("rollout status -n multi statefulset/db --timeout=60s", ("2 new pods have been updated",)),
    ("rollout status -n multi daemonset/agent --timeout=60s", ('daemon set "agent" successfully rolled out',)),
    ("apply -f two.yaml", ("namespace/multi unchanged", "statefulset.apps/db configured", "daemonset.apps/agent configured")),
    ("rollout status -n multi statefulset/db --timeout=90s", ("2 new pods have been updated",)),
    ("rollout status -n multi daemonset/agent --timeout=90s", ("successfully rolled out",)),
    ("rollout history -n multi statefulset/db", ("1         <none>", "2         <none>")),
    ("rollout history -n multi daemonset/agent --revision=1", ("daemonset.apps/agent with revision #1", "Image:\tnginx:1")),
    ("rollout undo -n multi statefulset/db", ("statefulset.apps/db rolled back",)),
    ("rollout undo -n multi daemonset/agent", ("daemonset.apps/agent rolled back",)),
    # Which is the current one kubectl finds by the bytes of their data.
    ("rollout undo -n multi statefulset/db --to-revision=3", ("statefulset.apps/db skipped rollback",)),
    ("rollout undo -n multi daemonset/agent --to-revision=3", ("daemonset.apps/agent skipped rollback",)),
    ("rollout status -n multi statefulset/db --timeout=90s", ("2 new pods have been updated",)),
    ("get pods -n multi db-0 -o jsonpath={.spec.containers[0].image}", ("nginx:1",)),
    ("describe -n multi sts db", ("Update Strategy:    RollingUpdate", "Create Pod db-1 in StatefulSet db successful")),
    ("describe -n multi ds agent", ("Desired Number of Nodes Scheduled: 1", "daemonset-controller  Created pod: agent-")),
    ("get controllerrevisions -n multi", ("daemonset.apps/agent", "statefulset.apps/db")),
    ("scale -n multi sts db --replicas=1", ("statefulset.apps/db scaled",)),
    ("delete -n multi sts db --cascade=orphan", ('statefulset.apps "db" deleted',)),
    ("get pods -n multi db-0", ("db-0",)),
    ("delete -n multi ds agent", ('daemonset.apps "agent" deleted',)),
    # What the namespace takes with it may be gone before kubectl deletes it by name.
    ("delete -f one.yaml --ignore-not-found --timeout=60s", ('namespace "multi" deleted',)),
)  # fmt: skip


@pytest.mark.timeout(400)
@pytest.mark.parametrize("session", (DEPLOYMENT, OTHERS), ids=("deployment", "others"))
def test_kubectl_shows_what_it_should(session: tuple[tuple[str, tuple[str, ...]], ...], tmp_path: Path) -> None:
    try:
        kubectl = upstream.binary("kubectl")
    except upstream.Absent as reason:
        needs.absent(str(reason))
    for name, image in (("one", "nginx:1"), ("two", "nginx:2")):
        (tmp_path / f"{name}.yaml").write_text(DOCUMENTS.replace("IMAGE", image))
    with ours.serve(COMPONENTS, nodes=1) as server:
        for typed, shown in session:
            command = [str(kubectl), *typed.split(), "--kubeconfig", server["kubeconfig"]]
            done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=120)
            told = done.stdout + done.stderr
            missing = [text for text in shown if text not in told]
            assert not missing, f"kubectl {typed}\n{told}\nlacks {missing}"

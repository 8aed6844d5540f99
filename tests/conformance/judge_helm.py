# ruff: noqa: E501
"""helm and kustomize on upstream's control plane and on ours: the same commands, output by output.

    python tests/conformance/judge_helm.py

helm is built from its Go module (minutes at first); kustomize is kubectl's. The chart is helm's own (`helm create`) with a
file of what charts like to have: lookups, a hook, a custom resource beside its definition, a StatefulSet, a DaemonSet, a
claim with its volume. The exit code is 1 where an output differs.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(each) for each in (HERE, HERE.parent / "support", ROOT / "tools", ROOT)]

import upstream_build  # noqa: E402
from planes import Both, both  # noqa: E402

CRD = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.h.example.com}
spec:
  group: h.example.com
  scope: Namespaced
  names: {plural: widgets, singular: widget, kind: Widget, listKind: WidgetList}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {n: {type: integer, default: 3}}}}}}
"""
MORE = """
apiVersion: v1
kind: ConfigMap
metadata: {name: "{{ .Release.Name }}-look"}
data:
  nodes: {{ len (lookup "v1" "Node" "" "").items | quote }}
  none: {{ empty (lookup "v1" "ConfigMap" "default" "nothing") | quote }}
  kube: {{ .Capabilities.KubeVersion.Minor | quote }}
  has: {{ .Capabilities.APIVersions.Has "apps/v1/Deployment" | quote }}
  revision: {{ .Release.Revision | quote }}
---
apiVersion: h.example.com/v1
kind: Widget
metadata: {name: "{{ .Release.Name }}-w"}
spec: {}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: "{{ .Release.Name }}-c"}
spec: {accessModes: [ReadWriteOnce], storageClassName: slow, resources: {requests: {storage: 1Gi}}, volumeName: "{{ .Release.Name }}-v"}
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: "{{ .Release.Name }}-v"}
spec: {accessModes: [ReadWriteOnce], storageClassName: slow, capacity: {storage: 1Gi}, hostPath: {path: /x}}
---
apiVersion: batch/v1
kind: Job
metadata: {name: "{{ .Release.Name }}-pre", annotations: {helm.sh/hook: "pre-install,pre-upgrade", helm.sh/hook-delete-policy: "before-hook-creation,hook-succeeded"}}
spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: x}]}}}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: "{{ .Release.Name }}-s"}
spec: {replicas: 2, serviceName: x, selector: {matchLabels: {s: x}}, template: {metadata: {labels: {s: x}}, spec: {containers: [{name: c, image: {{ .Values.setImage | default "a" }}}]}}}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: "{{ .Release.Name }}-d"}
spec: {selector: {matchLabels: {d: x}}, template: {metadata: {labels: {d: x}}, spec: {containers: [{name: c, image: a}]}}}
"""
BASE = {
    "base/kustomization.yaml": "resources: [d.yaml]\nconfigMapGenerator: [{name: c, literals: [a=b]}]\nsecretGenerator: [{name: s, literals: [p=q]}]\n",
    "base/d.yaml": "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: kd}\nspec: {selector: {matchLabels: {a: kd}}, "
    "template: {metadata: {labels: {a: kd}}, spec: {containers: [{name: c, image: x, envFrom: [{configMapRef: {name: c}}]}]}}}\n",
    "over/kustomization.yaml": "resources: [../base]\nnamespace: kz\nnamePrefix: p-\nlabels: [{pairs: {team: t}, includeSelectors: true}]\n"
    'replicas: [{name: kd, count: 2}]\nimages: [{name: x, newName: img, newTag: "2"}]\n',
}  # fmt: skip
STEPS = """
helm install w ./chart --dry-run=server --set replicaCount=2
helm install w ./chart --set replicaCount=2,autoscaling.enabled=true,ingress.enabled=true --wait --timeout 60s
helm list
kubectl get cm w-look -o jsonpath={.data}
kubectl get widget w-w -o jsonpath={.spec}
kubectl get pvc w-c -o jsonpath={.status.phase}
helm upgrade w ./chart --set replicaCount=3,setImage=b --wait --timeout 80s
helm upgrade w ./chart --set service.port=99999
helm history w
helm get manifest w
helm rollback w 1 --wait --timeout 80s
kubectl get deploy,sts,ds,ing -o wide
helm install w ./chart
helm install Bad ./chart
helm install lone ./chart --namespace nowhere
helm upgrade --install x2 ./chart --namespace made --create-namespace --skip-crds
helm uninstall w --keep-history --wait --timeout 60s
helm rollback w 2 --wait --timeout 60s
helm uninstall w --wait --timeout 60s --cascade foreground
helm uninstall x2 -n made --wait
kubectl create ns kz
kubectl apply -k over
kubectl apply -k over
kubectl apply -k over --server-side
kubectl apply -k over --server-side --force-conflicts
kubectl rollout status deploy/p-kd -n kz --timeout=60s
kubectl diff -k over
kubectl apply view-last-applied deploy/p-kd -n kz
kubectl delete -k over
kubectl get deploy,sts,ds,pvc -A -o name
helm uninstall nothing
"""
def furnish(folder: Path, helm: Path) -> None:
    """The chart and the bases, where the steps are run."""
    subprocess.run([helm, "create", "chart"], cwd=folder, check=True, capture_output=True)
    more = {"chart/crds/widgets.yaml": CRD, "chart/templates/more.yaml": MORE, **BASE}
    for name, text in more.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def play(ask: Both, steps: str) -> None:
    for plane in ask.planes:
        furnish(plane.folder, plane.programs["helm"])
    for step in steps.strip().splitlines():
        ask(step)


def main() -> int:
    upstream_build.build(["helm", "kubectl"])
    with tempfile.TemporaryDirectory() as folder, both(Path(folder), "helm") as ask:
        play(ask, STEPS)
    print(f"{ask.steps} commands, {len(ask.differing)} with another output")
    return 1 if ask.differing else 0


if __name__ == "__main__":
    sys.exit(main())

"""One long kubectl session, told as steps. The same steps run against upstream and against ours.

Each step is one command as a user would type it. `until` names a text that must appear in its output: the step is
repeated until it does (what it waits for is made by controllers, at their own pace). Steps whose output depends on
timing alone are compared by their exit code and `keep` lines only.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Step:
    """`command` follows `kubectl`; `stdin` is its standard input; `env` is added to its environment.

    `only`: kubectl minor versions it runs with, all if empty. `compare` is what must be alike: "all", "stdout",
    "sorted" (lines in any order), "fields" (of an explanation, without its texts), "object" (all but its status) or "code". `keep`: only output lines that begin with one of these are compared. `beside`: it takes seconds, and runs beside the next steps up to one that changes something.
    """

    name: str
    command: str
    stdin: str = ""
    until: str = ""
    compare: str = "all"
    keep: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    only: tuple[int, ...] = ()
    beside: bool = False


NODE = """
apiVersion: v1
kind: Node
metadata:
  name: {name}
  labels: {{kubernetes.io/hostname: {name}, kubernetes.io/os: linux, kubernetes.io/arch: amd64, disk: {disk}}}
  annotations: {{kwok.x-k8s.io/node: fake}}
spec: {{}}
status:
  allocatable: {{cpu: "8", memory: 32Gi, pods: "110"}}
  capacity: {{cpu: "8", memory: 32Gi, pods: "110"}}
---
"""

POD = """
apiVersion: v1
kind: Pod
metadata:
  name: web
  namespace: shop
  labels: {app: web, tier: front}
spec:
  nodeSelector: {disk: ssd}
  containers:
  - name: nginx
    image: nginx:1.27
    ports: [{containerPort: 80, name: http}]
    resources: {requests: {cpu: 100m, memory: 64Mi}}
    env: [{name: A, value: "1"}, {name: B, value: "2"}]
"""

POD_APPLIED = """
apiVersion: v1
kind: Pod
metadata: {name: applied, namespace: shop, labels: {app: applied}}
spec:
  nodeSelector: {disk: ssd}
  containers:
  - {name: c, image: "busybox:1.36", command: [sleep, "3600"]}
"""

RC = """
apiVersion: v1
kind: ReplicationController
metadata: {name: web-rc, namespace: shop}
spec:
  replicas: 3
  selector: {app: rc}
  template:
    metadata: {labels: {app: rc}}
    spec:
      containers: [{name: c, image: "nginx:1.27", ports: [{containerPort: 80, name: http}]}]
"""

SERVICE = """
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec:
  selector: {app: rc}
  ports: [{name: http, port: 80, targetPort: http}]
"""

CONFIG = """
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, namespace: shop}
data: {color: blue, size: "10"}
"""

LEASE = """
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {name: mine, namespace: shop}
spec: {holderIdentity: me, leaseDurationSeconds: 15}
"""

BIG = """
apiVersion: v1
kind: Pod
metadata: {name: big, namespace: shop}
spec:
  containers: [{name: c, image: nginx, resources: {requests: {cpu: "64"}}}]
"""

S = Step
SETUP = [
    S("create nodes", "create -f -", stdin=NODE.format(name="n1", disk="ssd") + NODE.format(name="n2", disk="hdd")),
    S("wait nodes ready", "wait --for=condition=Ready node/n1 node/n2 --timeout=30s"),
    S("create namespace", "create namespace shop"),
    S("create namespace twice", "create namespace shop"),
    S("default service account", "-n shop get serviceaccount default", until="default"),
    S("get namespaces", "get ns", compare="sorted"),
    S("get namespace name", "get ns shop -o name"),
    S("describe namespace", "describe ns shop"),
]

CREATE = [
    S("create pod", "create -f -", stdin=POD),
    S("create pod twice", "create -f -", stdin=POD),
    S("wait pod ready", "-n shop wait --for=condition=Ready pod/web --timeout=30s"),
    S("get pods", "-n shop get pods"),
    S("get pods wide", "-n shop get pods -o wide"),
    S("get pod json", "-n shop get pod web -o json", compare="object"),
    S("get pod yaml", "-n shop get pod web -o yaml", compare="object"),
    S("get pods yaml list", "-n shop get pods -o yaml", compare="object"),
    S("get pod name", "-n shop get pod web -o name"),
    S("get pod jsonpath", "-n shop get pod web -o 'jsonpath={.spec.containers[*].image}{.status.phase}'"),
    S("get pods custom columns", "-n shop get pods -o custom-columns=NAME:.metadata.name,PHASE:.status.phase"),
    S("get pods labels", "-n shop get pods --show-labels"),
    S("get pods label column", "-n shop get pods -L app,tier"),
    S("get pods by label", "-n shop get pods -l 'app=web,tier in (front)'"),
    S("get pods by label none", "-n shop get pods -l app=none"),
    S("get pods by label set", "-n shop get pods -l 'app,!gone,tier!=back' -o name"),
    S("get pods bad label", "-n shop get pods -l app=a=b"),
    S("get pods by field", "-n shop get pods --field-selector status.phase=Running,metadata.name=web -o name"),
    S("get pods by field none", "-n shop get pods --field-selector status.phase=Failed"),
    S("get pods bad field", "-n shop get pods --field-selector spec.foo=bar"),
    S("get pods malformed field", "-n shop get pods --field-selector spec.foo"),
    S("get pods field a=b>c", "-n shop get pods --field-selector 'metadata.name=b>c'"),
    S("get pod missing", "-n shop get pod nothing"),
    S("get unknown kind", "get gadgets"),
    S("get two kinds", "-n shop get pods,services"),
    S("get no headers", "-n shop get pods --no-headers -o name"),
    S("get ignore not found", "-n shop get pod nothing --ignore-not-found"),
    S("describe pod", "-n shop describe pod web"),
    S("logs", "-n shop logs web", compare="code"),
    S("get nodes", "get nodes"),
    S("get nodes wide", "get nodes -o wide --no-headers=false"),
    S("get nodes by label", "get nodes -l disk=ssd -o name"),
    S("get nodes jsonpath", "get nodes -o 'jsonpath={range.items[*]}{.metadata.name}={.status.allocatable.cpu};{end}'"),
    S("describe node", "describe node n1", keep=("Name:", "Taints:", "Unschedulable:", "Capacity:", "  cpu", "  memory")),
    S("node leases", "-n kube-node-lease get leases", until="n2", compare="sorted"),
]

APPLY = [
    S("apply creates", "apply -f -", stdin=POD_APPLIED),
    S("apply unchanged", "apply -f -", stdin=POD_APPLIED),
    S("apply changes label", "apply -f -", stdin=POD_APPLIED.replace("{app: applied}", "{app: applied, more: x}")),
    S("apply removes label", "apply -f -", stdin=POD_APPLIED),
    S("labels after apply", "-n shop get pod applied -o 'jsonpath={.metadata.labels}'"),
    S("apply changes image", "apply -f -", stdin=POD_APPLIED.replace("1.36", "1.37")),
    S("apply forbidden change", "apply -f -", stdin=POD_APPLIED.replace("sleep", "rest")),
    S("apply dry run server", "apply --dry-run=server -f -", stdin=POD_APPLIED.replace("applied}", "applied, dry: x}")),
    S("apply dry run client", "apply --dry-run=client -f -", stdin=POD_APPLIED),
    S("diff", "diff -f -", stdin=POD_APPLIED.replace("{app: applied}", "{app: changed}"), compare="code"),
    S("apply view last", "-n shop apply view-last-applied pod applied"),
    S("apply configmap", "apply -f -", stdin=CONFIG),
    S("apply configmap change", "apply -f -", stdin=CONFIG.replace("blue", "red")),
    S("apply configmap removes key", "apply -f -", stdin=CONFIG.replace(', size: "10"', "")),
    S("configmap data", "-n shop get cm settings -o 'jsonpath={.data}'"),
    S("describe configmap", "-n shop describe cm settings"),
    S("replace configmap", "replace -f -", stdin=CONFIG.replace("blue", "green")),
    S("replace missing", "replace -f -", stdin=CONFIG.replace("settings", "absent")),
    S("edit configmap", "-n shop edit cm settings", env=(("KUBE_EDITOR", "sed -i s/green/black/"),)),
    S("edit unchanged", "-n shop edit cm settings", env=(("KUBE_EDITOR", "true"),)),
    S("configmap after edit", "-n shop get cm settings -o 'jsonpath={.data.color}'"),
    S("create configmap literal", "-n shop create configmap lit --from-literal=a=1 --from-literal=b=2"),
    S("get configmaps", "-n shop get cm", compare="sorted"),
    S("create secret", "-n shop create secret generic pass --from-literal=p=secret"),
    S("get secrets", "-n shop get secrets"),
    S("get secret yaml", "-n shop get secret pass -o yaml"),
    S("describe secret", "-n shop describe secret pass"),
    S("create serviceaccount", "-n shop create serviceaccount robot"),
    S("get serviceaccounts", "-n shop get sa", compare="sorted", keep=("default", "robot")),
    S("describe serviceaccount", "-n shop describe sa robot"),
    S("create lease", "create -f -", stdin=LEASE),
    S("get leases", "-n shop get leases"),
    S("get lease yaml", "-n shop get lease mine -o yaml"),
    S("describe lease", "-n shop describe lease mine"),
]

CHANGE = [
    S("patch strategic", "-n shop patch pod web -p '{\"metadata\":{\"labels\":{\"p\":\"1\"}}}'"),
    S("patch merge", "-n shop patch pod web --type=merge -p '{\"metadata\":{\"labels\":{\"p\":null,\"q\":\"2\"}}}'"),
    S("patch json", "-n shop patch pod web --type=json -p '[{\"op\":\"replace\",\"path\":\"/metadata/labels/q\",\"value\":\"3\"}]'"),
    S("patch json test fails", "-n shop patch pod web --type=json -p '[{\"op\":\"test\",\"path\":\"/metadata/labels/q\",\"value\":\"9\"}]'"),
    S("patch json bad path", "-n shop patch pod web --type=json -p '[{\"op\":\"remove\",\"path\":\"/metadata/labels/absent\"}]'"),
    S("patch container image", "-n shop patch pod web -p '{\"spec\":{\"containers\":[{\"name\":\"nginx\",\"image\":\"nginx:1.28\"}]}}'"),
    S("patch forbidden", "-n shop patch pod web -p '{\"spec\":{\"nodeName\":\"n9\"}}'"),
    S("patch bad json", "-n shop patch pod web --type=merge -p '{'"),
    S("patch unknown field", "-n shop patch pod web --type=merge -p '{\"spec\":{\"foo\":1}}'"),
    S("patch no change", "-n shop patch pod web -p '{}'"),
    S("patch status", "-n shop patch pod web --subresource=status --type=merge -p '{\"status\":{\"message\":\"hello\"}}'"),
    S("status message", "-n shop get pod web -o 'jsonpath={.status.message}|{.spec.containers[0].image}|{.metadata.labels}'"),
    S("patch node status", "patch node n2 --subresource=status --type=merge -p '{\"status\":{\"allocatable\":{\"example.com/chip\":\"4\"}}}'"),
    S("label", "-n shop label pod web color=red"),
    S("label again", "-n shop label pod web color=blue"),
    S("label overwrite", "-n shop label pod web color=blue --overwrite"),
    S("label remove", "-n shop label pod web color-"),
    S("label bad", "-n shop label pod web color=a/b"),
    S("label all", "-n shop label cm --all team=a", compare="sorted"),
    S("annotate", "-n shop annotate pod web note=hi"),
    S("annotate remove", "-n shop annotate pod web note-"),
    S("set image", "-n shop set image pod/web nginx=nginx:1.29"),
    S("cordon", "cordon n1"),
    S("cordon again", "cordon n1"),
    S("get cordoned", "get nodes"),
    S("nodes by unschedulable", "get nodes --field-selector spec.unschedulable=true -o name"),
    S("uncordon", "uncordon n1"),
    S("taint", "taint node n1 key=value:NoSchedule"),
    S("taint again", "taint node n1 key=value:NoSchedule"),
    S("taint bad effect", "taint node n1 key=value:Never"),
    S("taint shown", "get node n1 -o 'jsonpath={.spec.taints}'"),
    S("untaint", "taint node n1 key:NoSchedule-"),
]

WORK = [
    S("create rc", "create -f -", stdin=RC),
    S("rc ready", "-n shop get rc web-rc -o 'jsonpath={.status.readyReplicas}'", until="3"),
    S("get rc", "-n shop get rc"),
    S("get rc wide", "-n shop get rc -o wide"),
    S("describe rc", "-n shop describe rc web-rc"),
    S("create service", "create -f -", stdin=SERVICE),
    S("get service", "-n shop get svc"),
    S("get service wide", "-n shop get svc web -o wide"),
    S("get service yaml", "-n shop get svc web -o yaml"),
    S("endpoints", "-n shop get endpoints web -o 'jsonpath={range.subsets[*].addresses[*]}{.targetRef.kind};{end}'", until="Pod;Pod;Pod;"),
    S("endpoints ports", "-n shop get endpoints web -o 'jsonpath={.subsets[*].ports}'"),
    S("scale up", "-n shop scale rc web-rc --replicas=5"),
    S("scaled up", "-n shop get rc web-rc -o 'jsonpath={.status.readyReplicas}'", until="5"),
    S("scale wrong current", "-n shop scale rc web-rc --current-replicas=9 --replicas=1"),
    S("scale current", "-n shop scale rc web-rc --current-replicas=5 --replicas=2"),
    S("scaled down", "-n shop get rc web-rc -o 'jsonpath={.status.replicas}'", until="2"),
    S("pods of rc", "-n shop get pods -l app=rc --no-headers -o custom-columns=P:.status.phase", until="Running\nRunning"),
    S("delete one pod", "-n shop delete pod -l app=rc --field-selector status.phase=Running --wait=false", compare="code"),
    S("rc replaces", "-n shop get rc web-rc -o 'jsonpath={.status.readyReplicas}'", until="2"),
    S("delete rc orphan", "-n shop delete rc web-rc --cascade=orphan"),
    S("orphans live", "-n shop get pods -l app=rc --no-headers -o custom-columns=P:.status.phase,O:.metadata.ownerReferences"),
    S("adopt orphans", "create -f -", stdin=RC.replace("replicas: 3", "replicas: 2")),
    S("adopted", "-n shop get pods -l app=rc --no-headers -o custom-columns=O:.metadata.ownerReferences[0].name", until="web-rc\nweb-rc"),
    S("delete rc", "-n shop delete rc web-rc"),
    S("pods collected", "-n shop get pods -l app=rc", until="No resources found"),
    S("expose by create service", "-n shop create service clusterip made --tcp=80:8080"),
    S("made has its endpoints", "-n shop get endpoints,endpointslices -l app=made -o 'jsonpath={.items[*].kind}'", until="Endpoints EndpointSlice"),
    S("describe service", "-n shop describe svc made"),
    S("delete service", "-n shop delete svc made web"),
    S("endpoints gone", "-n shop get endpoints web", until="NotFound"),
    S("unschedulable pod", "create -f -", stdin=BIG),
    S("pending message", "-n shop get pod big -o 'jsonpath={.status.conditions[0].message}'", until="nodes are available"),
    S("pending shown", "-n shop get pods big"),
    S("events of pending", "-n shop get events --field-selector involvedObject.name=big,reason=FailedScheduling -o 'jsonpath={.items[0].message}'", until="nodes are available"),
    S("describe pending", "-n shop describe pod big", keep=("Name:", "Status:", "Node:", "  Warning")),
    S("sort by name", "-n shop get pods --sort-by=.metadata.name"),
    S("sort by phase", "-n shop get pods --sort-by=.status.phase -o name"),
    S("chunked", "-n shop get cm --chunk-size=1 -o name"),
    S("all namespaces", "get pods -A"),
    S("run", "-n shop run ran --image=nginx:1.27 --labels=app=ran --overrides='{\"spec\":{\"nodeSelector\":{\"disk\":\"hdd\"}}}'"),
    S("wait jsonpath", "-n shop wait --for=jsonpath='{.status.phase}'=Running pod/ran --timeout=20s"),
    S("expose pod", "-n shop expose pod ran --port=80 --name=ran"),
    S("get all", "-n shop get all -l app=ran", keep=("pod/", "service/", "NAME")),
    S("create rc foreground", "create -f -", stdin=RC.replace("web-rc", "fore").replace("app: rc", "app: fore")),
    S("fore ready", "-n shop get rc fore -o 'jsonpath={.status.readyReplicas}'", until="3"),
    S("delete foreground", "-n shop delete rc fore --cascade=foreground"),
    S("foreground gone", "-n shop get pods -l app=fore"),
    S("get events", "-n shop get events --field-selector involvedObject.name=ran,reason=Scheduled -o custom-columns=R:.reason,T:.type,M:.message,C:.source.component"),
    S("events of pod", "-n shop events --for pod/ran", keep=("LAST", "Scheduled")),
    S("drain dry", "drain n2 --force --ignore-daemonsets --dry-run=server", compare="code"),
    S("drain", "drain n2 --force --ignore-daemonsets --grace-period=0", compare="code"),
    S("drained", "get pods -A --field-selector spec.nodeName=n2 -o name"),
    S("uncordon drained", "uncordon n2"),
    S("wait for delete", "-n shop wait --for=delete pod/nothing --timeout=5s"),
    S("wait times out", "-n shop wait --for=condition=Ready pod/big --timeout=1s", beside=True),
    S("watch only", "-n shop get pods -w --request-timeout=5s", compare="stdout", beside=True),
    S("watch events", "-n shop get cm settings -w --output-watch-events --request-timeout=5s", compare="stdout", beside=True),
]

ASK = [
    S("auth can-i", "auth can-i create pods"),
    S("auth can-i all", "auth can-i '*' '*'"),
    S("auth can-i named", "auth can-i delete pods/log --subresource=log -n shop", compare="code"),
    S("auth can-i list", "auth can-i --list", compare="code"),
    S("auth whoami", "auth whoami", only=(28, 29, 30, 31, 32, 33), compare="code"),
    S("explain pods", "explain pods", compare="fields"),
    S("explain field", "explain pods.spec.containers", compare="fields"),
    S("explain leaf", "explain rc.spec.replicas", compare="fields"),
    S("explain recursive", "explain cm --recursive", compare="fields"),
    S("explain missing", "explain pods.spec.nothing", compare="fields"),
    S("api-resources", "api-resources --api-group= --no-headers", compare="sorted",
      keep=("bindings", "configmaps", "endpoints", "events", "namespaces", "nodes", "pods", "replicationcontrollers", "secrets", "serviceaccounts", "services")),
    S("api-resources wide", "api-resources --api-group= --namespaced=true -o name", compare="sorted",
      keep=("bindings", "configmaps", "endpoints", "events", "pods", "replicationcontrollers", "secrets", "serviceaccounts", "services")),
    S("api-versions", "api-versions", compare="sorted", keep=("v1", "coordination.k8s.io/v1")),
    S("version", "version -o json", compare="code"),
    S("cluster-info", "cluster-info", compare="code"),
    S("raw namespace", "get --raw /api/v1/namespaces/shop"),
    S("raw healthz", "get --raw /healthz"),
    S("raw readyz", "get --raw /readyz"),
    S("raw missing", "get --raw /nothing/here"),
    S("raw list limit", "get --raw /api/v1/namespaces/shop/configmaps?limit=1", compare="code"),
]

BAD = [
    S("unknown field strict", "create -f -", stdin=POD.replace("name: web", "name: odd").replace("    image:", "    imag: x\n    image:")),
    S("unknown field ignored", "create --validate=ignore -f -", stdin=POD.replace("name: web", "name: odd").replace("    image:", "    imag: x\n    image:")),
    S("unknown field warned", "create --validate=warn -f -", stdin=POD.replace("name: web", "name: odd2").replace("    image:", "    imag: x\n    image:")),
    S("wrong type", "create --validate=ignore -f -", stdin=POD.replace("name: web", "name: t1").replace("containerPort: 80", "containerPort: eighty")),
    S("bad quantity", "create --validate=ignore -f -", stdin=POD.replace("name: web", "name: t2").replace("100m", "lots")),
    S("bad name", "create -f -", stdin=POD.replace("name: web", "name: Bad_Name")),
    S("no containers", "create -f -", stdin="apiVersion: v1\nkind: Pod\nmetadata: {name: none, namespace: shop}\nspec: {containers: []}\n"),
    S("missing namespace", "create -f -", stdin=POD.replace("shop", "nowhere")),
    S("no kind", "create -f -", stdin="metadata: {name: x}\n"),
    S("not yaml", "create -f -", stdin="a: [b\n"),
    S("bad restart policy", "create -f -", stdin=POD.replace("name: web", "name: t3").replace("spec:", "spec:\n  restartPolicy: Sometimes")),
    S("bad service port", "create -f -", stdin=SERVICE.replace("port: 80", "port: 800000")),
    S("rc selector mismatch", "create -f -", stdin=RC.replace("selector: {app: rc}", "selector: {app: other}")),
    S("delete missing", "-n shop delete pod nothing"),
    S("delete missing ignored", "-n shop delete pod nothing --ignore-not-found"),
]

END = [
    S("delete pod", "-n shop delete pod web"),
    S("delete pod now", "-n shop delete pod applied --grace-period=0 --force"),
    S("delete pod no wait", "-n shop delete pod big --wait=false"),
    S("delete by label", "-n shop delete cm -l team=a", compare="sorted"),
    S("delete several kinds", "-n shop delete secret/pass lease/mine sa/robot"),
    S("delete all", "-n shop delete pods --all --grace-period=0 --force", compare="code"),
    S("delete namespace", "delete ns shop"),
    S("namespace gone", "get ns shop"),
    S("create in deleted", "-n shop create cm x"),
    S("delete node", "delete node n1 n2"),
    S("nodes gone", "get nodes"),
]

STEPS = [*SETUP, *CREATE, *APPLY, *CHANGE, *WORK, *ASK, *BAD, *END]

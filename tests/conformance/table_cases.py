"""Objects whose printing upstream is asked for: `STATUSES` of pods, and `OBJECTS` of other kinds."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]
FINISHED = "2024-01-01T00:00:00Z"


def container(name: str = "c", **fields: Any) -> Json:
    return {"name": name, "image": "x", "imageID": "", "ready": False, "restartCount": 0, **fields}


def running(name: str = "c", **fields: Any) -> Json:
    return container(name, ready=True, state={"running": {"startedAt": FINISHED}}, **fields)


def waiting(reason: str, name: str = "c", **fields: Any) -> Json:
    return container(name, state={"waiting": {"reason": reason}}, **fields)


def ended(code: int, reason: str = "", name: str = "c", **fields: Any) -> Json:
    state = {"exitCode": code, "startedAt": FINISHED, "finishedAt": FINISHED, **({"reason": reason} if reason else {})}
    return container(name, state={"terminated": state}, **fields)


def last_run(code: int = 1) -> Json:
    return {"terminated": {"exitCode": code, "startedAt": FINISHED, "finishedAt": FINISHED}}


READY = {"type": "Ready", "status": "True", "lastProbeTime": None, "lastTransitionTime": FINISHED}
INITIALIZED = {"type": "Initialized", "status": "True", "lastProbeTime": None, "lastTransitionTime": FINISHED}

INIT = {"initContainers": [{"name": "i", "image": "x"}, {"name": "j", "image": "x"}]}
SIDECAR = {"initContainers": [{"name": "s", "image": "x", "restartPolicy": "Always"}]}
TWO = {"containers": [{"name": "c", "image": "x"}, {"name": "d", "image": "x"}]}
GATES = {"readinessGates": [{"conditionType": "a/b"}, {"conditionType": "Ready"}]}

STATUSES: dict[str, tuple[Json, Json]] = {
    "pending": ({}, {"phase": "Pending"}),
    "scheduled": ({"nodeName": "n1"}, {"phase": "Pending"}),
    "creating": ({}, {"phase": "Pending", "containerStatuses": [waiting("ContainerCreating")]}),
    "running": (
        {"nodeName": "n1"},
        {
            "phase": "Running",
            "podIP": "10.1.1.1",
            "podIPs": [{"ip": "10.1.1.1"}],
            "conditions": [READY],
            "containerStatuses": [running()],
        },
    ),
    "running one of two": (TWO, {"phase": "Running", "containerStatuses": [running(), waiting("", "d")]}),
    "crash loop": (
        {},
        {
            "phase": "Running",
            "containerStatuses": [waiting("CrashLoopBackOff", restartCount=3, lastState=last_run())],
        },
    ),
    "restarted": ({}, {"phase": "Running", "containerStatuses": [running(restartCount=1, lastState=last_run())]}),
    "restarted without a time": ({}, {"phase": "Running", "containerStatuses": [running(restartCount=1)]}),
    "image pull": ({}, {"phase": "Pending", "containerStatuses": [waiting("ImagePullBackOff")]}),
    "completed": ({}, {"phase": "Succeeded", "containerStatuses": [ended(0, "Completed")]}),
    "failed": ({}, {"phase": "Failed", "containerStatuses": [ended(1, "Error")]}),
    "exit code": ({}, {"phase": "Failed", "containerStatuses": [ended(7)]}),
    "signal": (
        {},
        {
            "phase": "Failed",
            "containerStatuses": [
                container(
                    state={
                        "terminated": {"exitCode": 137, "signal": 9, "startedAt": FINISHED, "finishedAt": FINISHED}
                    }
                )
            ],
        },
    ),
    "evicted": ({}, {"phase": "Failed", "reason": "Evicted"}),
    "completed and running ready": (
        TWO,
        {
            "phase": "Running",
            "conditions": [READY],
            "containerStatuses": [ended(0, "Completed"), running("d")],
        },
    ),
    "completed and running not ready": (
        TWO,
        {"phase": "Running", "containerStatuses": [ended(0, "Completed"), running("d")]},
    ),
    "completed and failed": (
        TWO,
        {"phase": "Running", "containerStatuses": [ended(0, "Completed"), ended(1, "Error", "d")]},
    ),
    "init first": (
        INIT,
        {"phase": "Pending", "initContainerStatuses": [running("i"), waiting("PodInitializing", "j")]},
    ),
    "init second": (
        INIT,
        {"phase": "Pending", "initContainerStatuses": [ended(0, "Completed", "i"), waiting("PodInitializing", "j")]},
    ),
    "init crash": (
        INIT,
        {
            "phase": "Pending",
            "initContainerStatuses": [waiting("CrashLoopBackOff", "i", restartCount=2, lastState=last_run())],
        },
    ),
    "init failed": (INIT, {"phase": "Failed", "initContainerStatuses": [ended(3, "", "i")]}),
    "init error": (INIT, {"phase": "Failed", "initContainerStatuses": [ended(3, "Error", "i")]}),
    "init done": (
        INIT,
        {
            "phase": "Running",
            "conditions": [INITIALIZED, READY],
            "initContainerStatuses": [ended(0, "Completed", "i"), ended(0, "Completed", "j")],
            "containerStatuses": [running()],
        },
    ),
    "sidecar": (
        SIDECAR,
        {
            "phase": "Running",
            "initContainerStatuses": [running("s", started=True, restartCount=2, lastState=last_run())],
            "containerStatuses": [running()],
        },
    ),
    "sidecar starting": (SIDECAR, {"phase": "Pending", "initContainerStatuses": [running("s", started=False)]}),
    "nominated": ({}, {"phase": "Pending", "nominatedNodeName": "n9"}),
    "readiness gates": (
        GATES,
        {
            "phase": "Running",
            "conditions": [READY, {**READY, "type": "a/b", "status": "False"}],
            "containerStatuses": [running()],
        },
    ),
    "gated": ({"schedulingGates": [{"name": "a/b"}]}, {}),
}


def meta(name: str, **fields: Any) -> Json:
    return {"name": name, **fields}


def condition(kind: str, status: str) -> Json:
    return {"type": kind, "status": status, "lastHeartbeatTime": None, "lastTransitionTime": None}


OBJECTS: dict[str, list[Json]] = {
    "nodes": [
        {"metadata": meta("n-plain")},
        {
            "metadata": meta(
                "n-ready",
                labels={
                    "node-role.kubernetes.io/worker": "",
                    "node-role.kubernetes.io/control-plane": "",
                    "kubernetes.io/role": "x",
                },
            ),
            "status": {
                "conditions": [condition("Ready", "True")],
                "addresses": [
                    {"type": "InternalIP", "address": "10.0.0.1"},
                    {"type": "ExternalIP", "address": "1.2.3.4"},
                ],
                "nodeInfo": {
                    "kubeletVersion": "v1.36.2",
                    "osImage": "Linux",
                    "kernelVersion": "6.1",
                    "architecture": "amd64",
                    "containerRuntimeVersion": "containerd://2.0",
                },
            },
        },
        {
            "metadata": meta("n-cordoned"),
            "spec": {"unschedulable": True},
            "status": {"conditions": [condition("Ready", "Unknown")]},
        },
    ],
    "services": [
        {"metadata": meta("s-plain"), "spec": {"ports": [{"port": 80}], "selector": {"b": "2", "a": "1"}}},
        {"metadata": meta("s-headless"), "spec": {"clusterIP": "None"}},
        {"metadata": meta("s-external"), "spec": {"type": "ExternalName", "externalName": "a.b"}},
        {
            "metadata": meta("s-ips"),
            "spec": {
                "ports": [{"port": 80, "name": "a"}, {"port": 53, "protocol": "UDP", "name": "b"}],
                "externalIPs": ["1.2.3.4", "1.2.3.5"],
            },
        },
        {"metadata": meta("s-balancer"), "spec": {"type": "LoadBalancer", "ports": [{"port": 80, "nodePort": 30123}]}},
    ],
    "endpoints": [
        {"metadata": meta("e-none")},
        {"metadata": meta("e-bare"), "subsets": [{"addresses": [{"ip": "10.1.1.1"}]}]},
        {
            "metadata": meta("e-many"),
            "subsets": [
                {
                    "addresses": [{"ip": f"10.1.1.{i}"} for i in range(1, 6)],
                    "ports": [{"port": 80, "name": "a"}, {"port": 81, "name": "b"}],
                }
            ],
        },
        {
            "metadata": meta("e-three"),
            "subsets": [{"addresses": [{"ip": f"10.1.1.{i}"} for i in range(1, 4)], "ports": [{"port": 80}]}],
        },
        {"metadata": meta("e-six"), "subsets": [{"addresses": [{"ip": "fd00::1"}], "ports": [{"port": 80}]}]},
    ],
    "configmaps": [{"metadata": meta("c"), "data": {"a": "b", "c": "d"}, "binaryData": {"e": "Yg=="}}],
    "secrets": [{"metadata": meta("s"), "type": "a/b", "data": {"a": "Yg=="}}],
    "serviceaccounts": [{"metadata": meta("sa")}],
    "replicationcontrollers": [
        {
            "metadata": meta("r"),
            "spec": {
                "replicas": 3,
                "selector": {"a": "b"},
                "template": {
                    "metadata": {"labels": {"a": "b"}},
                    "spec": {"containers": [{"name": "c", "image": "x"}, {"name": "d", "image": "y:v1"}]},
                },
            },
        }
    ],
    "leases": [
        {"metadata": meta("l-held"), "spec": {"holderIdentity": "h"}},
        {"metadata": meta("l-free")},
    ],
    "events": [
        {
            "metadata": meta("ev-old"),
            "involvedObject": {"kind": "Pod", "namespace": "default", "name": "p", "fieldPath": "spec.containers{c}"},
            "reason": "Pulled",
            "message": " pulled it \n",
            "type": "Normal",
            "source": {"component": "kubelet", "host": "n1"},
            "firstTimestamp": FINISHED,
            "lastTimestamp": FINISHED,
            "count": 4,
        },
        {
            "metadata": meta("ev-new"),
            "involvedObject": {"kind": "Pod", "namespace": "default", "name": "p"},
            "reason": "Scheduled",
            "action": "Binding",
            "message": "m",
            "type": "Warning",
            "eventTime": "2024-01-01T00:00:00.000000Z",
            "reportingComponent": "default-scheduler",
            "reportingInstance": "i",
        },
        {
            "metadata": meta("ev-series"),
            "involvedObject": {"kind": "Pod", "namespace": "default"},
            "series": {"count": 7, "lastObservedTime": "2024-01-01T00:00:00.000000Z"},
        },
    ],
}

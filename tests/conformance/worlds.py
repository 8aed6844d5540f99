"""Objects that drawn requests speak of: one body a kind, its optional parts, and its status.

Data alone, so that a kind is drawn by adding its lines. A plural in `WORLD` is created, updated, patched, listed, read and
deleted; `PARTS` are merged into its body, and `STATUS` into that of a write to `status`.
"""

from __future__ import annotations

import copy
import os
from typing import Any

import world_flows

NAMESPACE = os.environ.get("MINIKUBE_PY_JUDGE_NAMESPACE", "drawn")
CORE = "/api/v1"
IN = f"{CORE}/namespaces/{NAMESPACE}"
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
APPS = f"/apis/apps/v1/namespaces/{NAMESPACE}"
STORAGE = "/apis/storage.k8s.io/v1"
NETWORKING = "/apis/networking.k8s.io/v1"
BATCH = f"/apis/batch/v1/namespaces/{NAMESPACE}"
DEVICES = "/apis/resource.k8s.io/v1"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
ADMISSION = "/apis/admissionregistration.k8s.io/v1"

Body = dict[str, Any]
def merged(body: Any, part: Any) -> Any:
    """As a JSON merge patch, but null stays: it is what is sent."""
    if not (isinstance(body, dict) and isinstance(part, dict)):
        return copy.deepcopy(part)
    return {**body, **{name: merged(body.get(name), value) for name, value in part.items()}}


_CONTAINER = {
    "name": "c", "image": "nginx", "env": [{"name": "A", "value": "1"}], "ports": [{"containerPort": 80}],
    "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"cpu": "1"}},
}  # fmt: skip
_TEMPLATE = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "x"}]}}
_RUN = {"metadata": {"labels": {"a": "b"}}, "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "x"}]}}
_EXITS = {"containerName": "c", "operator": "In", "values": [1, 2]}
_INDEXED = {"completionMode": "Indexed", "completions": 4, "parallelism": 4, "template": _RUN}
_SELECTOR = {"matchLabels": {"a": "b"}}
_CLAIM = {"metadata": {"name": "v"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}
_ZONE = {"matchExpressions": [{"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["a"]}]}
_BACKEND = {"service": {"name": "s", "port": {"number": 80}}}
_CLAIMED = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "storageClassName": "fast"}
_OPAQUE = {"opaque": {"driver": "x.io", "parameters": {"a": 1}}}
_EXACTLY = {"deviceClassName": "one", "tolerations": [{"key": "t", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 3}]}
_WANTED = {"devices": {
    "requests": [
        {"name": "r", "exactly": {**_EXACTLY, "count": 2, "capacity": {"requests": {"storage": "1Gi"}}}},
        {"name": "any", "firstAvailable": [{"name": "s", **_EXACTLY, "selectors": [{"cel": {"expression": "device.attributes['x.io'].b > 1"}}]}, {"name": "all", "deviceClassName": "one", "allocationMode": "All"}]},
    ],
    "constraints": [{"requests": ["r"], "matchAttribute": "x.io/y"}, {"requests": ["any/s"], "distinctAttribute": "x.io/z"}],
    "config": [{"requests": ["any/s"], **_OPAQUE}],
}}  # fmt: skip
_GIVEN = {"request": "r", "driver": "x.io", "pool": "p", "device": "d", "bindingConditions": ["x.io/y"], "bindingFailureConditions": ["a"]}
_GRANTED = {"devices": {"results": [_GIVEN, {**_GIVEN, "shareID": "3ac5cdab-9592-4564-a397-6197884b34cf"}], "config": [{"source": "FromClass", **_OPAQUE}]}}
_DEVICE = {
    "name": "d", "attributes": {"a": {"int": 1}, "x.io/b": {"version": "1.2.3"}, "c": {"string": "s"}, "d": {"bool": True}},
    "capacity": {"storage": {"value": "10Gi", "requestPolicy": {"default": "1Gi", "validRange": {"min": "1Gi", "max": "3Gi", "step": "1Gi"}}}},
    "allowMultipleAllocations": True, "taints": [{"key": "t", "effect": "NoSchedule", "timeAdded": "2026-01-01T00:00:00Z"}],
    "bindingConditions": ["x.io/y"], "bindingFailureConditions": ["a"],
}  # fmt: skip
_RULES = [
    {"verbs": ["get", "list"], "apiGroups": ["", "apps"], "resources": ["pods", "*/scale"]},
    {"verbs": ["update"], "apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["a"]},
]
_CPU = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 60}}}
_OBJECT = {"describedObject": {"kind": "Service", "name": "s"}, "metric": {"name": "m", "selector": {"matchLabels": {"a": "b"}}}, "target": {"type": "Value", "value": "1500m"}}
_CONTAINERS = {"name": "memory", "container": "c", "target": {"type": "AverageValue", "averageValue": "1Gi"}}
_OF_RBAC = {"apiGroup": "rbac.authorization.k8s.io"}
_SUBJECTS = [{"kind": "User", "name": "u"}, {"kind": "Group", "name": "g", **_OF_RBAC}, {"kind": "ServiceAccount", "name": "s", "namespace": "n"}]
# Hooks that match nothing, whatever else is drawn of them.
_HOOK = {
    "name": "a.example.com", "clientConfig": {"url": "https://127.0.0.1:1/x", "caBundle": "AAEC"}, "failurePolicy": "Ignore", "sideEffects": "None",
    "admissionReviewVersions": ["v1"], "objectSelector": {"matchLabels": {"asks": "nobody"}},
    "rules": [{"operations": ["CREATE"], "apiGroups": ["apps"], "apiVersions": ["v1"], "resources": ["deployments"]}],
    "matchConditions": [{"name": "c", "expression": "object.metadata.name != 'x'"}],
}
_SERVED_HOOK = {**_HOOK, "name": "b.example.com", "clientConfig": {"service": {"name": "s", "namespace": "n", "path": "/a/b"}}, "timeoutSeconds": 3}
_ABOUT = {"kind": "Pod", "name": "x", "namespace": NAMESPACE, "uid": "u"}
_HAPPENED = {"reason": "R", "type": "Normal", "action": "A", "reportingInstance": "i", "eventTime": "2026-01-01T00:00:00.123456Z"}
WORLD: dict[str, tuple[str, Body]] = {
    "pods": (
        f"{IN}/pods",
        {"spec": {"containers": [_CONTAINER], "nodeSelector": {"disk": "ssd"}, "tolerations": [{"key": "k", "operator": "Exists"}]}},
    ),
    "configmaps": (f"{IN}/configmaps", {"data": {"a": "1", "b": "2"}, "binaryData": {"c": "AAEC"}}),
    "secrets": (f"{IN}/secrets", {"data": {"a": "AAEC"}, "type": "Opaque"}),
    "services": (f"{IN}/services", {"spec": {"ports": [{"name": "p", "port": 80}], "selector": {"a": "b"}, "clusterIP": "None"}}),
    "replicationcontrollers": (f"{IN}/replicationcontrollers", {"spec": {"replicas": 0, "selector": {"a": "b"}, "template": _TEMPLATE}}),
    "serviceaccounts": (f"{IN}/serviceaccounts", {"secrets": [{"name": "s"}]}),
    "endpoints": (f"{IN}/endpoints", {"subsets": [{"addresses": [{"ip": "10.1.1.1"}], "ports": [{"port": 80}]}]}),
    "events": (
        f"{IN}/events",
        {"involvedObject": {"kind": "Pod", "name": "x", "namespace": NAMESPACE}, "reason": "R", "message": "m", "type": "Normal", "count": 1},
    ),
    "events v1": (
        f"/apis/events.k8s.io/v1/namespaces/{NAMESPACE}/events",
        {**_HAPPENED, "regarding": _ABOUT, "note": "m", "reportingController": "x.io/c", "series": {"count": 2, "lastObservedTime": "2026-01-01T00:00:01.000000Z"}},
    ),
    "leases": (LEASES, {"spec": {"holderIdentity": "h", "leaseDurationSeconds": 10, "leaseTransitions": 1}}),
    "nodes": (f"{CORE}/nodes", {"spec": {"unschedulable": True}, "status": {"capacity": {"cpu": "4", "memory": "8Gi"}}}),
    "namespaces": (f"{CORE}/namespaces", {}),
    "podtemplates": (f"{IN}/podtemplates", {"template": _TEMPLATE}),
    "replicasets": (f"{APPS}/replicasets", {"spec": {"replicas": 2, "minReadySeconds": 1, "selector": _SELECTOR, "template": _TEMPLATE}}),
    "deployments": (
        f"{APPS}/deployments",
        {"spec": {
            "replicas": 2, "minReadySeconds": 1, "revisionHistoryLimit": 3, "progressDeadlineSeconds": 60, "paused": True,
            "selector": _SELECTOR, "template": _TEMPLATE, "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": "20%"}},
        }},
    ),
    "statefulsets": (
        f"{APPS}/statefulsets",
        {"spec": {
            "replicas": 2, "minReadySeconds": 1, "revisionHistoryLimit": 3, "serviceName": "s", "podManagementPolicy": "Parallel",
            "ordinals": {"start": 1}, "selector": _SELECTOR, "template": _TEMPLATE, "volumeClaimTemplates": [_CLAIM],
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 1}},
        }},
    ),
    "daemonsets": (
        f"{APPS}/daemonsets",
        {"spec": {
            "minReadySeconds": 1, "revisionHistoryLimit": 3, "selector": _SELECTOR, "template": _TEMPLATE,
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "20%", "maxSurge": 0}},
        }},
    ),
    "jobs": (f"{BATCH}/jobs", {"spec": {"parallelism": 2, "completions": 3, "template": _RUN}}),
    "cronjobs": (
        f"{BATCH}/cronjobs",
        {"spec": {"schedule": "*/5 * * * *", "timeZone": "Europe/Berlin", "startingDeadlineSeconds": 60, "jobTemplate": {"metadata": {"labels": {"a": "b"}}, "spec": {"template": _RUN}}}},
    ),
    "controllerrevisions": (f"{APPS}/controllerrevisions", {"data": {"spec": {"template": {"a": 1}}}, "revision": 1}),
    "persistentvolumes": (
        f"{CORE}/persistentvolumes",
        {"spec": {
            "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "fast",
            "csi": {"driver": "csi.example.com", "volumeHandle": "h"}, "nodeAffinity": {"required": {"nodeSelectorTerms": [_ZONE]}},
        }},
    ),
    "limitranges": (
        f"{IN}/limitranges",
        {"spec": {"limits": [
            {"type": "PersistentVolumeClaim", "max": {"storage": "10Gi"}, "min": {"storage": "1"}},
            {"type": "x.io/y", "max": {"cpu": "2"}, "min": {"cpu": "10m"}, "default": {"cpu": "1"}, "maxLimitRequestRatio": {"cpu": "4"}},
        ]}},
    ),
    "resourcequotas": (
        f"{CORE}/namespaces/default/resourcequotas",
        {"spec": {
            "hard": {"cpu": "4", "limits.cpu": "2", "pods": "10", "requests.x.io/y": "3"}, "scopes": ["NotTerminating"],
            "scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": ["a", "b"]}]},
        }},
    ),
    "persistentvolumeclaims": (f"{IN}/persistentvolumeclaims", {"spec": _CLAIMED}),
    "poddisruptionbudgets": (
        f"/apis/policy/v1/namespaces/{NAMESPACE}/poddisruptionbudgets", {"spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "guarded"}}}},
    ),
    "priorityclasses": ("/apis/scheduling.k8s.io/v1/priorityclasses", {"value": 7, "description": "d"}),
    "storageclasses": (
        f"{STORAGE}/storageclasses",
        {"provisioner": "example.com/p", "parameters": {"a": "b"}, "allowedTopologies": [{"matchLabelExpressions": [{"key": "zone", "values": ["a"]}]}]},
    ),
    "csidrivers": (f"{STORAGE}/csidrivers", {"spec": {"attachRequired": True, "tokenRequests": [{"audience": "a", "expirationSeconds": 600}]}}),
    "csinodes": (
        f"{STORAGE}/csinodes", {"spec": {"drivers": [{"name": "csi.example.com", "nodeID": "n", "topologyKeys": ["zone"], "allocatable": {"count": 3}}]}},
    ),
    "csistoragecapacities": (
        f"{STORAGE}/namespaces/{NAMESPACE}/csistoragecapacities",
        {"storageClassName": "fast", "capacity": "1Gi", "nodeTopology": {"matchLabels": {"zone": "a"}}},
    ),
    "horizontalpodautoscalers": (
        f"/apis/autoscaling/v2/namespaces/{NAMESPACE}/horizontalpodautoscalers",
        {"spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}, "minReplicas": 2, "maxReplicas": 5,
            "metrics": [_CPU, {"type": "Pods", "pods": {"metric": {"name": "m"}, "target": {"type": "AverageValue", "averageValue": "1"}}}],
            "behavior": {"scaleUp": {"stabilizationWindowSeconds": 3, "policies": [{"type": "Pods", "value": 1, "periodSeconds": 60}]}},
        }},
    ),
    "horizontalpodautoscalers v1": (
        f"/apis/autoscaling/v1/namespaces/{NAMESPACE}/horizontalpodautoscalers",
        {"spec": {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}, "maxReplicas": 5, "targetCPUUtilizationPercentage": 70}},
    ),
    "volumeattributesclasses": (f"{STORAGE}/volumeattributesclasses", {"driverName": "csi.example.com", "parameters": {"iops": "100"}}),
    "runtimeclasses": (
        "/apis/node.k8s.io/v1/runtimeclasses",
        {
            "handler": "h", "overhead": {"podFixed": {"cpu": "10m", "memory": "1Mi"}},
            "scheduling": {"nodeSelector": {"a": "b"}, "tolerations": [{"key": "t", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 3}]},
        },
    ),
    "volumeattachments": (
        f"{STORAGE}/volumeattachments", {"spec": {"attacher": "csi.example.com", "nodeName": "n", "source": {"persistentVolumeName": "v"}}},
    ),
    "endpointslices": (
        f"/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices",
        {
            "addressType": "IPv4", "ports": [{"name": "p", "port": 80, "appProtocol": "http"}],
            "endpoints": [{
                "addresses": ["10.1.1.1"], "conditions": {"ready": True}, "nodeName": "n", "zone": "a", "hostname": "h",
                "hints": {"forZones": [{"name": "a"}], "forNodes": [{"name": "n"}]}, "targetRef": {"kind": "Pod", "name": "x"},
            }],
        },
    ),
    "ingressclasses": (
        f"{NETWORKING}/ingressclasses",
        {"spec": {"controller": "example.com/c", "parameters": {"apiGroup": "example.com", "kind": "P", "name": "p", "scope": "Namespace", "namespace": "x"}}},
    ),
    "servicecidrs": (f"{NETWORKING}/servicecidrs", {"spec": {"cidrs": ["fd40::/64"]}}),
    "ingresses": (
        f"{NETWORKING}/namespaces/{NAMESPACE}/ingresses",
        {"spec": {
            "ingressClassName": "one", "defaultBackend": _BACKEND, "tls": [{"hosts": ["a.b", "*.a.b"], "secretName": "s"}],
            "rules": [{"host": "*.a.b", "http": {"paths": [{"path": "/x", "pathType": "Prefix", "backend": _BACKEND}]}}],
        }},
    ),
    "networkpolicies": (
        f"{NETWORKING}/namespaces/{NAMESPACE}/networkpolicies",
        {"spec": {
            "podSelector": _SELECTOR, "policyTypes": ["Ingress", "Egress"],
            "ingress": [{"ports": [{"port": 80, "endPort": 90}], "from": [{"podSelector": _SELECTOR, "namespaceSelector": {}}]}],
            "egress": [{"ports": [{"port": "http", "protocol": "UDP"}], "to": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"]}}]}],
        }},
    ),
    "deviceclasses": (f"{DEVICES}/deviceclasses", {"spec": {"config": [_OPAQUE], "extendedResourceName": "x.io/y", "selectors": [{"cel": {"expression": "device.driver == 'x.io'"}}]}}),
    "resourceclaims": (f"{DEVICES}/namespaces/{NAMESPACE}/resourceclaims", {"spec": _WANTED}),
    "resourceclaimtemplates": (
        f"{DEVICES}/namespaces/{NAMESPACE}/resourceclaimtemplates", {"spec": {"metadata": {"labels": {"a": "b"}}, "spec": _WANTED}},
    ),
    "resourceslices": (
        f"{DEVICES}/resourceslices",
        {"spec": {"driver": "x.io", "nodeName": "n", "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1}, "devices": [_DEVICE]}},
    ),
    **world_flows.WORLD,
    "clusterroles": (f"{RBAC}/clusterroles", {"rules": [*_RULES, {"verbs": ["get"], "nonResourceURLs": ["/x", "/y/*"]}]}),
    "clusterrolebindings": (f"{RBAC}/clusterrolebindings", {"subjects": _SUBJECTS, "roleRef": {"kind": "ClusterRole", "name": "r", **_OF_RBAC}}),
    "roles": (f"{RBAC}/namespaces/{NAMESPACE}/roles", {"rules": _RULES}),
    "rolebindings": (f"{RBAC}/namespaces/{NAMESPACE}/rolebindings", {"subjects": _SUBJECTS, "roleRef": {"kind": "Role", "name": "r", **_OF_RBAC}}),
    "mutatingwebhookconfigurations": (f"{ADMISSION}/mutatingwebhookconfigurations", {"webhooks": [_HOOK, {**_SERVED_HOOK, "reinvocationPolicy": "IfNeeded"}]}),
    "validatingwebhookconfigurations": (f"{ADMISSION}/validatingwebhookconfigurations", {"webhooks": [_HOOK, _SERVED_HOOK]}),
}  # fmt: skip
"""Plural to collection and body. Each is in the world as `one` and `two`; see `named`. What is stored in one version
and served in another, too, is that version's object: the second create meets the first one's."""
CLUSTER_WIDE = frozenset(plural for plural, (where, _) in WORLD.items() if "/namespaces/" not in where)
BY_SCHEMA = frozenset((
    "events", "events v1", "horizontalpodautoscalers", "horizontalpodautoscalers v1", "jobs", "cronjobs", "persistentvolumes", "persistentvolumeclaims", "poddisruptionbudgets", "priorityclasses", "storageclasses", "csidrivers", "csinodes",
    "csistoragecapacities", "volumeattachments", "volumeattributesclasses", "runtimeclasses", "endpointslices", "ingressclasses", "servicecidrs", "ingresses", "networkpolicies",
    "deviceclasses", "resourceclaims", "resourceclaimtemplates", "resourceslices", "limitranges",
    "resourcequotas", "flowschemas", "prioritylevelconfigurations",
    "clusterroles", "clusterrolebindings", "roles", "rolebindings",
    "mutatingwebhookconfigurations", "validatingwebhookconfigurations",
))  # fmt: skip
"""Kinds whose writes are also drawn by the schema, field by field: all but the older ones that hold the template of a pod."""
OTHERS: dict[str, dict[str, Body]] = {
    "persistentvolumes": {"disk": {"spec": {"capacity": {"storage": "5Gi"}, "accessModes": ["ReadWriteMany"], "hostPath": {"path": "/a"}}}},
    "events": {"newer": {**_HAPPENED, "involvedObject": _ABOUT, "message": "m", "reportingComponent": "x.io/c"}},
    "events v1": {"noted": {**_HAPPENED, "regarding": _ABOUT, "note": "m", "reportingController": "x.io/c"}},
    "horizontalpodautoscalers v1": {
        "many": {"spec": {"scaleTargetRef": {"kind": "ReplicationController", "name": "r"}, "maxReplicas": 3}},
        "old": {"spec": {"scaleTargetRef": {"apiVersion": "x.io/v1", "kind": "K", "name": "k"}, "minReplicas": 2, "maxReplicas": 3}},
    },
    "horizontalpodautoscalers": {
        "plain": {"spec": {"scaleTargetRef": {"kind": "ReplicationController", "name": "r"}, "maxReplicas": 3}},
        "many": {"spec": {
            "scaleTargetRef": {"apiVersion": "x.io/v1", "kind": "K", "name": "k"}, "maxReplicas": 3,
            "metrics": [{"type": "Object", "object": _OBJECT}, {"type": "ContainerResource", "containerResource": _CONTAINERS}, {"type": "External", "external": {"metric": {"name": "e"}, "target": {"type": "AverageValue", "averageValue": "2"}}}],
            "behavior": {"scaleDown": {"selectPolicy": "Disabled", "tolerance": "0.1"}},
        }},
    },
    "persistentvolumeclaims": {
        "bound": {"spec": {**_CLAIMED, "storageClassName": "grows", "volumeName": "v"}}, "none": {"spec": {**_CLAIMED, "storageClassName": None}},
    },
    "jobs": {
        "indexed": {"spec": {
            **_INDEXED, "backoffLimitPerIndex": 1, "maxFailedIndexes": 2,
            "podFailurePolicy": {"rules": [{"action": "FailIndex", "onExitCodes": _EXITS}, {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]},
            "successPolicy": {"rules": [{"succeededIndexes": "0,2-3", "succeededCount": 2}]},
        }},
        "waiting": {"spec": {"suspend": True, "template": merged(_RUN, {"spec": {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [_ZONE]}}}}})}},
        "ended": {"spec": {**_INDEXED, "ttlSecondsAfterFinished": 100}},
        "manual": {"spec": {"manualSelector": True, "selector": _SELECTOR, "template": _RUN}},
        "begun": {"spec": {"managedBy": "x.io/y", "suspend": True, "completions": 2, "template": _RUN}},
    },
    "cronjobs": {"plain": {"spec": {"schedule": "@hourly", "suspend": True, "jobTemplate": {"spec": {"template": merged(_RUN, {"metadata": None})}}}}},
    "endpointslices": {
        "six": {"addressType": "IPv6", "endpoints": [{"addresses": ["fd00::1"]}, {"addresses": ["fd00::2"], "conditions": {"serving": False}}]},
        "named": {"addressType": "FQDN", "endpoints": [{"addresses": ["a.example.com"]}], "ports": [{"port": 1}, {"name": "b", "protocol": "UDP"}]},
    },
    "ingressclasses": {"plain": {"spec": {"controller": "example.com/c"}}},
    "ingresses": {
        "plain": {"spec": {"rules": [{"http": {"paths": [{"pathType": "ImplementationSpecific", "backend": {"resource": {"kind": "K", "name": "n"}}}]}}]}},
    },
    "networkpolicies": {
        "plain": {"spec": {"egress": [{}]}},
        "six": {"spec": {"ingress": [{"from": [{"ipBlock": {"cidr": "fd00::/8"}}]}]}},
    },
    "poddisruptionbudgets": {"percent": {"spec": {"maxUnavailable": "30%", "selector": {}}}},
    "storageclasses": {"grows": {"provisioner": "example.com/p", "allowVolumeExpansion": True, "volumeBindingMode": "WaitForFirstConsumer"}},
    "volumeattachments": {
        "inline": {"spec": {
            "attacher": "csi.example.com", "nodeName": "n",
            "source": {"inlineVolumeSpec": {"accessModes": ["ReadWriteOnce"], "csi": {"driver": "csi.example.com", "volumeHandle": "h"}}},
        }},
    },
    "resourceslices": {
        "counters": {"spec": {
            "driver": "x.io", "allNodes": True, "pool": {"name": "p", "resourceSliceCount": 1},
            "sharedCounters": [{"name": "set", "counters": {"a": {"value": "3"}}}],
        }},
        "apart": {"spec": {
            "driver": "X.io", "perDeviceNodeSelection": True, "pool": {"name": "p", "resourceSliceCount": 1},
            "devices": [
                {"name": "d", "nodeName": "n", "consumesCounters": [{"counterSet": "set", "counters": {"a": {"value": "1"}}}]},
                {"name": "e", "nodeSelector": {"nodeSelectorTerms": [_ZONE]}, "capacity": {"x.io/c": {"value": "1"}}},
            ],
        }},
    },
    "resourceclaims": {"given": {"spec": _WANTED}},
    "clusterroles": {"gathers": {"aggregationRule": {"clusterRoleSelectors": [_SELECTOR, {"matchExpressions": [{"key": "z", "operator": "Exists"}]}]}}},
    "rolebindings": {"bare": {"roleRef": {"kind": "ClusterRole", "name": "r"}}},
}  # fmt: skip
"""What is in the world beside `one` and `two`, by plural and name."""
_AT = "2026-01-01T00:00:00Z"
_HEALTHY = {"disruptionsAllowed": 1, "currentHealthy": 2, "desiredHealthy": 1, "expectedPods": 2, "observedGeneration": 1}
REPORTED: dict[str, dict[str, Body]] = {
    "flowschemas": {"two": {"conditions": [{"type": "Dangling", "status": "True", "reason": "R", "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}},
    "persistentvolumes": {"two": {"phase": "Available"}},
    "persistentvolumeclaims": {
        "two": {"phase": "Bound", "capacity": {"storage": "500Mi"}},
        "bound": {"phase": "Bound", "capacity": {"storage": "1Gi"}, "currentVolumeAttributesClassName": "gold"},
    },
    "poddisruptionbudgets": {"two": _HEALTHY},
    "horizontalpodautoscalers": {
        "two": {"currentReplicas": 2, "desiredReplicas": 3, "lastScaleTime": _AT, "currentMetrics": [{"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": 70, "averageValue": "300m"}}}]},
        "many": {
            "currentReplicas": 1, "desiredReplicas": 1, "conditions": [{"type": "AbleToScale", "status": "True", "reason": "R", "message": "m", "lastTransitionTime": _AT}],
            "currentMetrics": [
                {"type": "Object", "object": {**{k: _OBJECT[k] for k in ("describedObject", "metric")}, "current": {"value": "2"}}},
                {"type": "ContainerResource", "containerResource": {"name": "memory", "container": "c", "current": {"averageValue": "2Gi"}}},
                {"type": "External", "external": {"metric": {"name": "e"}, "current": {"value": "4", "averageValue": "2"}}},
            ],
        },
    },
    "jobs": {
        "two": {"startTime": _AT, "active": 1, "ready": 1, "succeeded": 1, "uncountedTerminatedPods": {"failed": ["u"]}},
        "ended": {
            "startTime": _AT, "completionTime": "2026-01-01T00:05:00Z", "succeeded": 4, "completedIndexes": "0-3",
            "conditions": [{"type": "SuccessCriteriaMet", "status": "True"}, {"type": "Complete", "status": "True"}],
        },
        "begun": {"startTime": _AT, "conditions": [{"type": "Suspended", "status": "True"}]},
    },
    "cronjobs": {"two": {"lastScheduleTime": _AT, "active": [{"kind": "Job", "name": "a"}, {"kind": "Job", "name": "b"}]}},
    "ingresses": {"two": {"loadBalancer": {"ingress": [{"ip": "10.1.1.1", "ports": [{"port": 80, "protocol": "TCP"}]}, {"hostname": "a.b"}]}}},
    "resourceclaims": {
        "given": {
            "allocation": _GRANTED, "reservedFor": [{"resource": "pods", "name": "one", "uid": "u"}],
            "devices": [{"driver": "x.io", "pool": "p", "device": "d", "data": {"a": 1}, "networkData": {"interfaceName": "eth1", "ips": ["10.9.8.7/24"]}}],
        },
    },
}
"""The status of some of them."""
ONLY = frozenset(filter(None, os.environ.get("MINIKUBE_PY_JUDGE_KINDS", "").split(",")))
"""Plurals to ask about, and about nothing else; empty: all."""
DRAWN = sorted(ONLY & set(WORLD) or WORLD)

_COUNTS = (0, 1, 2, 3, -1)
_ROLLING = (0, 1, -1, "0%", "25%", "100%", "101%", "-1%", "x", "", "1", "007%")


def _spec(**fields: Any) -> Body:
    return {"spec": fields}


_TEMPLATED: tuple[Body, ...] = (
    _spec(selector=None), _spec(selector={}), _spec(selector={"matchLabels": {"a": "c"}}), _spec(selector={"matchLabels": {"a": "-"}}),
    _spec(selector={"matchLabels": None, "matchExpressions": [{"key": "a", "operator": "In", "values": ["b", "c"]}]}),
    _spec(selector={"matchExpressions": [{"key": "a", "operator": "Exists"}, {"key": "z", "operator": "DoesNotExist"}]}),
    _spec(selector={"matchExpressions": [{"key": "a", "operator": "In"}]}), _spec(selector={"matchExpressions": [{"key": "a", "operator": "Odd"}]}),
    _spec(selector={"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["b"]}]}),
    _spec(selector={"matchExpressions": [{"operator": "Exists", "values": ["b"]}]}),
    _spec(template=None), _spec(template={"metadata": {"labels": None}}), _spec(template={"metadata": {"labels": {"a": "b", "B": "-"}}}),
    _spec(template={"metadata": {"labels": {"a": "b", "c": "d"}, "annotations": {"k": "v", "controller.kubernetes.io/pod-deletion-cost": "x"}}}),
    _spec(template={"spec": {"restartPolicy": "OnFailure"}}), _spec(template={"spec": {"restartPolicy": "Odd", "activeDeadlineSeconds": 5}}),
    _spec(template={"spec": {"containers": []}}), _spec(template={"spec": {"ephemeralContainers": [{"name": "e", "image": "x"}]}}),
    _spec(template={"spec": {"hostNetwork": True, "subdomain": "-", "hostname": "A", "terminationGracePeriodSeconds": 0}}),
    _spec(template={"spec": {"volumes": [{"name": "v", "emptyDir": {}}, {"name": "w", "hostPath": {"path": "/x"}}]}}),
    _spec(template={"spec": {"containers": [{"name": "c", "image": "y"}]}}), _spec(minReadySeconds=-1), _spec(revisionHistoryLimit=-1),
    *(_spec(replicas=count) for count in (*_COUNTS, None)),
    {"metadata": {"name": "Not.a.label"}}, {"metadata": {"name": "dotted.name"}}, {"metadata": {"finalizers": ["odd"]}},
)  # fmt: skip
_STRATEGIES = (
    {"type": "Recreate"}, {"type": "Recreate", "rollingUpdate": None}, {"type": "OnDelete"}, {"type": "OnDelete", "rollingUpdate": None},
    {"type": ""}, {"type": "Odd"}, {"type": "Odd", "rollingUpdate": None}, {"rollingUpdate": None}, {"rollingUpdate": {}}, None,
)  # fmt: skip
_CODES = ([1], [0], [2, 1], [1, 1], [], None, list(range(1, 256)), list(range(1, 258)))
_FAILURES: tuple[Body, ...] = (
    {"action": "FailJob", "onExitCodes": _EXITS}, {"action": "FailIndex", "onExitCodes": _EXITS}, {"action": "Odd"}, {"onExitCodes": _EXITS}, {"action": "Count"},
    *({"action": "Ignore", "onExitCodes": {"operator": operator, "values": values}} for operator in ("In", "NotIn", "", "Odd") for values in _CODES[:3]),
    *({"action": "Ignore", "onExitCodes": {"operator": "In", "values": values}} for values in _CODES), {"action": "Ignore", "onExitCodes": {**_EXITS, "containerName": "d"}},
    {"action": "Ignore", "onPodConditions": [{"type": "Ready", "status": "False"}, {"type": "", "status": "Odd"}]}, {"action": "Ignore", "onExitCodes": _EXITS, "onPodConditions": [{"type": "A/b/c"}]},
    {"action": "Ignore", "onPodConditions": [{"type": "Ready"}] * 21}, {"action": "Ignore", "onPodConditions": []},
)  # fmt: skip
_INDEXES = ("", "0", "0-3", "0,2-3", "3,2", "2-2", "3-1", "4", "0-4", "1-2-3", "x", "-", "0,", "0,0", "+1", "1,1-2", " 1")
_JOB_PARTS: tuple[Body, ...] = (
    *(_spec(**{name: value}) for name in ("parallelism", "completions", "activeDeadlineSeconds", "backoffLimit", "ttlSecondsAfterFinished", "backoffLimitPerIndex", "maxFailedIndexes") for value in (0, 1, -1, 100001, None)),
    *(_spec(**{**_INDEXED, name: value}) for name in ("parallelism", "completions", "backoffLimitPerIndex", "maxFailedIndexes") for value in (0, 4, 5, -1, 100001, None)),
    *(_spec(**{**_INDEXED, "completions": 100001, "backoffLimitPerIndex": 1, "maxFailedIndexes": most, "parallelism": parallelism}) for most in (None, 1, 10001, 100001) for parallelism in (1, 10001, 100001)),
    *(_spec(completionMode=mode) for mode in ("Indexed", "NonIndexed", "", "Odd", None)), *(_spec(suspend=value) for value in (True, False, None)),
    *(_spec(podReplacementPolicy=policy) for policy in ("Failed", "TerminatingOrFailed", "", "Odd")), *(_spec(podReplacementPolicy=policy, podFailurePolicy={"rules": []}) for policy in (None, "Failed", "TerminatingOrFailed")),
    *(_spec(managedBy=name) for name in ("kubernetes.io/job-controller", "x.io/y", "x", "", "x.io/", "/y", "A_/y", "x.io/ y", "x.io/" + "y" * 60)),
    *(_spec(podFailurePolicy={"rules": [rule]}) for rule in _FAILURES), _spec(podFailurePolicy={"rules": [_FAILURES[0]] * 21}), _spec(podFailurePolicy={}),
    *(_spec(**_INDEXED, backoffLimitPerIndex=1, podFailurePolicy={"rules": [rule]}) for rule in _FAILURES[:4]),
    *(_spec(**_INDEXED, successPolicy={"rules": [{"succeededIndexes": text}]}) for text in _INDEXES), *(_spec(**_INDEXED, successPolicy={"rules": [{"succeededIndexes": "0-1", "succeededCount": count}]}) for count in (0, 2, 3, 5, -1)),
    _spec(successPolicy={"rules": [{"succeededIndexes": "0"}]}), _spec(**_INDEXED, successPolicy={"rules": []}), _spec(**_INDEXED, successPolicy={"rules": [{}]}), _spec(**_INDEXED, successPolicy={"rules": [{"succeededCount": 1}] * 21}),
    *(_spec(template={"spec": {"restartPolicy": policy}}) for policy in ("Always", "OnFailure", "", "Odd", None)), _spec(podFailurePolicy={"rules": []}, template={"spec": {"restartPolicy": "OnFailure"}}),
    _spec(template=None), _spec(template={"metadata": {"labels": None}}), _spec(template={"metadata": {"labels": {"B": "-"}}}), _spec(template={"spec": {"containers": [{"name": "c", "image": "y", "resources": {"requests": {"cpu": "1"}}}]}}),
    _spec(template={"spec": {"nodeSelector": {"a": "b"}, "tolerations": [{"operator": "Exists"}]}}), _spec(template={"spec": {"affinity": {"nodeAffinity": {}, "podAffinity": {}}}}), _spec(template={"spec": {"affinity": None}}), _spec(template={"metadata": {"annotations": {"k": "v"}}}),
)  # fmt: skip
SCHEDULES = (
    "* * * * *", "*/15 2-4,6 1 jan-Mar MON", "? * ? * ?", "59 23 31 12 6", "60 * * * *", "* 24 * * *", "* * 0 * *", "* * 32 * *", "* * * 13 *", "* * * * 7", "*/0 * * * *", "5-3 * * * *", "1-2-3 * * * *",
    "1/2/3 * * * *", "a * * * *", "-1 * * * *", "1 2 3 4", "1 2 3 4 5 6", "  1  2 3 4 5 ", "", " ", "@hourly", "@yearly", "@Hourly", "@every 90s", "@every 1h30m", "@every x", "@every 1", "@every 1x", "@every -5s", "@every", "@reboot",
    "TZ=UTC * * * * *", "CRON_TZ=Europe/Berlin 0 0 * * *", "TZ=0", "TZ=Nowhere 0 0 * * *", ", * * * *", "1,,2 * * * *", "99999999999999999999 * * * *", "*/99 * * * *", "*-5 * * * *", "+5 * * * *", "0 0 L * *", "1. * * * *",
)  # fmt: skip
ZONES = ("UTC", "Etc/UTC", "Europe/Berlin", "europe/berlin", "Nowhere/City", "", "Local", "local", "..", "../x", "/UTC", "UTC/", "A B", "America/Argentina/Buenos_Aires", "-x", "GMT+5", "Etc/GMT+5", "EST5EDT", "A" * 15, None)
_RUN_BY = f"{NAMESPACE}-one"
_SCALER = "autoscaling.alpha.kubernetes.io/"
_IN_V1 = (
    '[{"type":"Object","object":{"target":{"kind":"S","name":"s"},"metricName":"m","targetValue":"1500m","selector":{"matchLabels":{"a":"b"}}}}]',
    '[{"type":"Object","object":{"target":{"kind":"S","name":"s"},"metricName":"m","targetValue":"0","averageValue":"2"}}]', '[null]', "[]", "null", "x", "{}", '[{"type":1}]',
    '[{"type":"Pods","pods":{"metricName":"m","targetAverageValue":"1"}},{"type":"External","external":{"metricName":"e","metricSelector":{},"targetValue":"3"}}]',
    '[{"type":"Resource","resource":{"name":"memory","targetAverageValue":"1Gi"}},{"type":"ContainerResource","containerResource":{"name":"cpu","container":"c","targetAverageUtilization":5}}]',
)
_SCALED = ('{"ScaleUp":{"StabilizationWindowSeconds":3,"SelectPolicy":"Min","Policies":[{"Type":"Pods","Value":1,"PeriodSeconds":60}],"Tolerance":"100m"},"ScaleDown":null}', '{"scaledown":{"policies":[{"type":"Percent","value":1,"periodseconds":2000}]}}', "{}", "null", "1", '{"ScaleUp":[]}')
_REPORTED_V1 = ('[{"type":"Resource","resource":{"name":"cpu","currentAverageUtilization":5,"currentAverageValue":"1"}},{"type":"External","external":{"metricName":"e","currentValue":"1"}}]', "[]", "x")
_RULED = (
    *({"resources": resources} for resources in (["*"], ["*/*"], ["*/*", "pods"], ["*", "pods"], ["*", "pods/x"], ["pods", "*"], ["pods/*", "pods/status"], ["*/status", "pods/status"], ["pods", "pods/log"], ["", "a"], [])),
    *({"operations": operations} for operations in (["*"], ["*", "CREATE"], ["CREATE", "create"], ["CONNECT", "DELETE"], [], [""])),
    *({name: items} for name in ("apiGroups", "apiVersions") for items in (["*"], ["*", "a"], [""], [], ["a", "b"])), *({"scope": scope} for scope in ("*", "Cluster", "Namespaced", "", "x", None)),
)
_CONDITIONS = (
    "true", "1", "", " ", "request.operation == 'CREATE'", "request.userInfo.groups.exists(g, g == 'x')", "request.name", "request.nope", "oldObject == null", "namespaceObject.metadata.labels['a'] == 'b'",
    "namespaceObject.spec.x", "object.spec.replicas > 3", "params.x", "variables.x", "object.", "quantity('1') > quantity('2')", "has(object.metadata.labels)", "request.kind.group", "request.options.x == 1",
)
_HOOKED: tuple[Body, ...] = tuple({"webhooks": [merged(_HOOK, part)]} for part in (
    *({"rules": [merged(_HOOK["rules"][0], part)]} for part in _RULED), *({"matchConditions": [{"name": "c", "expression": text}]} for text in _CONDITIONS),
    *({"name": name} for name in ("", "a", "a.b", "a.b.c", "A.b.c", "a..b", "a.b.c.")), *({"sideEffects": effects} for effects in ("None", "NoneOnDryRun", "Some", "Unknown", "", None)),
    *({"clientConfig": {"url": url}} for url in ("https://h", "http://h/p", "https://u:p@h/p", "https://h/p#f", "https://h/p?q=1", "https:///p", "h", "", "https://[::1]:8443/x", "https://h:x/", "%zz", "https://h/%zz", None)),
    *({"clientConfig": {"url": None, "service": merged({"name": "s", "namespace": "n"}, part)}} for part in (
        {}, {"name": ""}, {"namespace": ""}, {"port": 0}, {"port": 65536}, *({"path": path} for path in ("", "/", "//", "a", "/a//b", "/A", "/a/", "/a.b/c-d", "/-", "/a/ ", "/a%20")))),
    {"clientConfig": {"service": {"name": "s", "namespace": "n"}}}, {"clientConfig": None}, *({"timeoutSeconds": seconds} for seconds in (0, 1, 30, 31, -1, None)),
    *({"admissionReviewVersions": versions} for versions in (["v1beta1"], ["v1", "v1"], ["v2"], [], ["V1"], ["v2", "v1"], None)), *({"failurePolicy": policy} for policy in ("Fail", "", "x", None)),
    *({"matchPolicy": policy} for policy in ("Exact", "Equivalent", "", "x", None)), *({"reinvocationPolicy": policy} for policy in ("Never", "IfNeeded", "", "x", None)),
    *({name: selector} for name in ("namespaceSelector", "objectSelector") for selector in ({"matchLabels": {"a": "-"}}, {"matchExpressions": [{"key": "a", "operator": "In", "values": ["-"]}]}, {"matchExpressions": [{"key": "", "operator": "Odd"}]})),
    {"matchConditions": [{"name": "c", "expression": "true"}] * 2}, {"matchConditions": [{"name": name, "expression": "true"} for name in ("", "a/b", "a b")]}, {"matchConditions": [{"name": f"c{i}", "expression": "true"} for i in range(65)]},
))
PARTS: dict[str, tuple[Body, ...]] = {
    **world_flows.PARTS,
    "horizontalpodautoscalers v1": (
        *({"metadata": {"annotations": {f"{_SCALER}metrics": text}}} for text in _IN_V1), *({"metadata": {"annotations": {f"{_SCALER}behavior": text}}} for text in _SCALED),
        *({"metadata": {"annotations": {f"{_SCALER}current-metrics": text}}} for text in _REPORTED_V1), {"metadata": {"annotations": {f"{_SCALER}conditions": '[{"type":"ScalingActive","status":"True"}]'}}},
        *(_spec(targetCPUUtilizationPercentage=share) for share in (None, 0, 1, -1)), {"metadata": {"annotations": {f"{_SCALER}scale-up-tolerance": "x"}}},
    ),
    "horizontalpodautoscalers": ({"metadata": {"annotations": {f"{_SCALER}metrics": "x", f"{_SCALER}behavior": "{}"}}},),
    "pods": (
        *(_spec(runtimeClassName=name) for name in (_RUN_BY, "absent", "", "A")), _spec(overhead={"cpu": "10m"}), _spec(overhead={}),
        *(_spec(runtimeClassName=_RUN_BY, overhead=given) for given in ({"cpu": "0.01", "memory": "1Mi"}, {"cpu": "1"}, {})),
        *(_spec(runtimeClassName=_RUN_BY, nodeSelector=given) for given in ({"a": "b"}, {"a": "c"}, {})),
        *(_spec(runtimeClassName=_RUN_BY, tolerations=[given]) for given in (
            {"operator": "Exists"}, {"key": "t", "operator": "Exists"}, {"key": "t", "operator": "Equal", "value": "v", "effect": "NoExecute"},
            {"key": "t", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 2}, {"key": "t", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 4},
        )),
    ),
    "mutatingwebhookconfigurations": (*_HOOKED, {"webhooks": [_HOOK, _HOOK]}, {"webhooks": []}, {"metadata": {"name": "x.static.k8s.io"}}),
    "validatingwebhookconfigurations": (*_HOOKED, {"webhooks": [_HOOK, _HOOK]}, {"webhooks": None}, {"metadata": {"name": "x.static.k8s.io"}}),
    "replicationcontrollers": _TEMPLATED[10:],
    "replicasets": _TEMPLATED,
    "deployments": (
        *_TEMPLATED,
        *(_spec(strategy=strategy) for strategy in _STRATEGIES),
        *(_spec(strategy={"rollingUpdate": {"maxSurge": value}}) for value in _ROLLING),
        *(_spec(strategy={"rollingUpdate": {"maxSurge": 0, "maxUnavailable": value}}) for value in _ROLLING),
        _spec(progressDeadlineSeconds=1), _spec(progressDeadlineSeconds=-1), _spec(progressDeadlineSeconds=None, minReadySeconds=600),
        {"metadata": {"annotations": {"more": "x"}}},
        *({"metadata": {"annotations": {"deprecated.deployment.rollback.to": text}}} for text in ("", "0", "-1", "+7", "x", "9" * 30)),
    ),
    "statefulsets": (
        *_TEMPLATED,
        *(_spec(updateStrategy=strategy) for strategy in _STRATEGIES),
        *(_spec(updateStrategy={"rollingUpdate": {"maxUnavailable": value}}) for value in _ROLLING),
        _spec(updateStrategy={"rollingUpdate": {"partition": -1}}), _spec(updateStrategy={"rollingUpdate": {"partition": None}}),
        *(_spec(podManagementPolicy=policy) for policy in ("OrderedReady", "", "Odd")), _spec(serviceName=""), _spec(serviceName="A"),
        _spec(ordinals=None), _spec(ordinals={"start": -1}), _spec(volumeClaimTemplates=None),
        *(_spec(persistentVolumeClaimRetentionPolicy={"whenDeleted": what}) for what in ("Delete", "", "Odd")),
        _spec(persistentVolumeClaimRetentionPolicy={"whenScaled": "Odd"}), _spec(volumeClaimTemplates=[{"metadata": {"name": "w"}}]),
    ),
    "daemonsets": (
        *_TEMPLATED,
        *(_spec(updateStrategy=strategy) for strategy in _STRATEGIES),
        *(_spec(updateStrategy={"rollingUpdate": {"maxUnavailable": value}}) for value in _ROLLING),
        *(_spec(updateStrategy={"rollingUpdate": {"maxUnavailable": 0, "maxSurge": value}}) for value in _ROLLING),
        *({"metadata": {"annotations": {"deprecated.daemonset.template.generation": text}}} for text in ("", "0", "-1", "+7", "x", "9" * 30)),
    ),
    "jobs": (
        *_JOB_PARTS, *(_spec(selector=selector) for selector in ({"matchLabels": {"a": "b"}}, {"matchLabels": {"batch.kubernetes.io/controller-uid": "x"}}, {"matchExpressions": [{"key": "a", "operator": "Odd"}]})),
        _spec(manualSelector=True), _spec(manualSelector=True, selector=_SELECTOR), _spec(manualSelector=True, selector={"matchLabels": {"a": "c"}}),
        *(_spec(template={"metadata": {"labels": {label: "x"}}}) for label in ("controller-uid", "batch.kubernetes.io/controller-uid", "job-name", "batch.kubernetes.io/job-name")),
        {"metadata": {"labels": None}}, {"metadata": {"name": "Not.a.label"}}, {"metadata": {"name": "dotted.name"}, **_spec(**_INDEXED)}, {"metadata": {"name": "a" * 63}, **_spec(**_INDEXED)},
    ),
    "cronjobs": (
        *({"spec": {"jobTemplate": part}} for part in _JOB_PARTS), _spec(jobTemplate={"spec": {"selector": _SELECTOR}}), _spec(jobTemplate={"spec": {"manualSelector": True}}),
        *(_spec(schedule=text) for text in SCHEDULES), *(_spec(timeZone=zone) for zone in ZONES), *(_spec(concurrencyPolicy=policy) for policy in ("Forbid", "Replace", "", "Odd", None)),
        *(_spec(**{name: value}) for name in ("startingDeadlineSeconds", "successfulJobsHistoryLimit", "failedJobsHistoryLimit") for value in (-1, 0, None)),
        {"metadata": {"name": "a" * 52}}, {"metadata": {"name": "a" * 53}}, {"metadata": {"name": "dotted.name"}},
    ),
    "controllerrevisions": (
        {"data": None}, {"data": []}, {"data": "x"}, {"data": 1}, {"data": {"kind": "Pod", "apiVersion": "v1"}}, {"data": {"spec": {"b": 2}}},
        {"revision": -1}, {"revision": 2}, {"revision": None},
    ),
    "podtemplates": (
        {"template": None}, {"template": {"metadata": {"labels": {"B": "-"}}}}, {"template": {"spec": {"containers": []}}},
        {"template": {"spec": {"restartPolicy": "OnFailure"}}}, {"template": {"metadata": {"labels": {"c": "d"}}}},
    ),
}  # fmt: skip
"""Plural to what may be merged into its body (as a JSON merge patch does it)."""

_REPLICAS = {"replicas": 2, "readyReplicas": 2, "availableReplicas": 1, "observedGeneration": 1}
_CONDITION = {"type": "Progressing", "status": "True", "reason": "R", "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z"}
STATUS: dict[str, Body] = {
    "jobs": {
        "active": 1, "ready": 1, "terminating": 1, "succeeded": 2, "failed": 1, "startTime": _AT, "completionTime": "2026-01-01T00:05:00Z", "completedIndexes": "0-1", "failedIndexes": "2",
        "uncountedTerminatedPods": {"succeeded": ["a"], "failed": ["b"]}, "conditions": [{"type": "Complete", "status": "True"}, {"type": "SuccessCriteriaMet", "status": "True"}],
    },
    "cronjobs": {"lastScheduleTime": _AT, "lastSuccessfulTime": _AT, "active": [{"kind": "Job", "name": "a"}]},
    "replicationcontrollers": {**_REPLICAS, "fullyLabeledReplicas": 2},
    "replicasets": {**_REPLICAS, "fullyLabeledReplicas": 2, "terminatingReplicas": 1, "conditions": [_CONDITION]},
    "deployments": {
        **_REPLICAS, "updatedReplicas": 2, "unavailableReplicas": 1, "terminatingReplicas": 1, "collisionCount": 1,
        "conditions": [{**_CONDITION, "lastUpdateTime": "2026-01-01T00:00:00Z"}],
    },
    "statefulsets": {
        **_REPLICAS, "currentReplicas": 1, "updatedReplicas": 1, "currentRevision": "a", "updateRevision": "b", "collisionCount": 1,
        "conditions": [_CONDITION],
    },
    "daemonsets": {
        "currentNumberScheduled": 1, "numberMisscheduled": 1, "desiredNumberScheduled": 2, "numberReady": 1, "observedGeneration": 1,
        "updatedNumberScheduled": 1, "numberAvailable": 1, "numberUnavailable": 1, "collisionCount": 1, "conditions": [_CONDITION],
    },
}  # fmt: skip
"""Plural to the status that is written; counts in it are drawn."""


def named(plural: str, name: str) -> Body:
    body = OTHERS.get(plural, {}).get(name, WORLD[plural][1])
    metadata = {"name": name, "labels": {"app": name, "world": NAMESPACE}, "annotations": {"note": "n"}}
    return {"metadata": metadata, **copy.deepcopy(body)}


def world_name(plural: str, name: str) -> str:
    """Objects of the whole cluster carry the world's name."""
    return f"{NAMESPACE}-{name}" if plural in CLUSTER_WIDE else name


def named_in_world(plural: str, name: str) -> Body:
    obj = named(plural, name)
    obj["metadata"]["name"] = world_name(plural, name)
    return obj


def place(plural: str, name: str) -> str:
    return f"{WORLD[plural][0]}/{world_name(plural, name)}"

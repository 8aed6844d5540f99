"""Objects, right and wrong, for upstream and ours to judge: `CREATES` and `UPDATES`.

Each is a name, a plural, and a body; an update is a body that is stored and a merge patch that makes the new one.
"""

from __future__ import annotations

import copy
from typing import Any, NamedTuple

Json = dict[str, Any]


class Create(NamedTuple):
    name: str
    plural: str
    body: Json


class Update(NamedTuple):
    """`subresource` is written to with `stored` merged with `patch`."""

    name: str
    plural: str
    stored: Json
    patch: Json
    subresource: str = ""


def meta(**fields: Any) -> Json:
    return {"name": "z", **fields}


def pod(*, c: Json | None = None, m: Json | None = None, **spec: Any) -> Json:
    """A pod of one container, with fields of the container (`c`), metadata (`m`) and spec set."""
    container = {"name": "c", "image": "x", **(c or {})}
    return {"metadata": meta(**(m or {})), "spec": {"containers": [container], **spec}}


def service(**spec: Any) -> Json:
    return {"metadata": meta(), "spec": {"ports": [{"port": 80}], **spec}}


def controller(*, t: Json | None = None, m: Json | None = None, **spec: Any) -> Json:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "x"}], **(t or {})}}
    return {"metadata": meta(**(m or {})), "spec": {"selector": {"a": "b"}, "template": template, **spec}}


def volumes(*sources: Json) -> Json:
    return pod(volumes=[{"name": f"v{i}", **source} for i, source in enumerate(sources)])


LONG = "a" * 300
CREATES: list[Create] = []


def add(plural: str, **bodies: Json) -> None:
    CREATES.extend(Create(f"{plural}: {name.replace('_', ' ')}", plural, body) for name, body in bodies.items())


# --- metadata -------------------------------------------------------------------------------------------------------

add(
    "configmaps",
    plain={"metadata": meta(), "data": {"a": "b"}},
    empty={"metadata": meta()},
    name_upper={"metadata": meta(name="A")},
    name_slash={"metadata": meta(name="a/b")},
    name_dots={"metadata": meta(name="..")},
    name_long={"metadata": meta(name=LONG)},
    label_key={"metadata": meta(labels={"-a": "b"})},
    label_prefix={"metadata": meta(labels={"A_/b": "b"})},
    label_empty_prefix={"metadata": meta(labels={"/b": "b"})},
    label_empty_name={"metadata": meta(labels={"b/": "b"})},
    label_two_slashes={"metadata": meta(labels={"a/b/c": "b"})},
    label_long={"metadata": meta(labels={"a" * 64: "b" * 64})},
    label_long_prefix={"metadata": meta(labels={LONG + "/a": "b"})},
    label_value={"metadata": meta(labels={"a": "b c"})},
    annotation_key={"metadata": meta(annotations={"a b": "x", "UPPER/ok": "y"})},
    annotations_large={"metadata": meta(annotations={"a": "x" * (256 * 1024)})},
    owner_empty={"metadata": meta(ownerReferences=[{"apiVersion": "", "kind": "", "name": "", "uid": ""}])},
    owner_event={
        "metadata": meta(ownerReferences=[{"apiVersion": "v1", "kind": "Event", "name": "e", "uid": "u"}])
    },
    owners_two_controllers={
        "metadata": meta(
            ownerReferences=[
                {"apiVersion": "v1", "kind": "Pod", "name": n, "uid": n, "controller": True} for n in ("a", "b")
            ]
        )
    },
    finalizer_bad={"metadata": meta(finalizers=["a b"])},
    finalizers_both={"metadata": meta(finalizers=["orphan", "foregroundDeletion"])},
    generation_given={"metadata": meta(generation=7)},
    managed_bad={"metadata": meta(managedFields=[{"operation": "X", "manager": "m", "apiVersion": "v1"}])},
    key_bad={"metadata": meta(), "data": {"a b": "c"}},
    key_dots={"metadata": meta(), "data": {"..": "c", "..a": "d"}},
    key_twice={"metadata": meta(), "data": {"a": "c"}, "binaryData": {"a": "Yg=="}},
    binary_key_bad={"metadata": meta(), "binaryData": {"a/b": "Yg=="}},
    large={"metadata": meta(), "data": {"a": "x" * (1024 * 1024 + 1)}},
)

# --- pods: containers -----------------------------------------------------------------------------------------------

add(
    "pods",
    plain=pod(),
    no_containers={"metadata": meta(), "spec": {"containers": []}},
    no_spec={"metadata": meta()},
    name_bad=pod(m={"name": "A_"}),
    container_no_name=pod(c={"name": ""}),
    container_name_bad=pod(c={"name": "A"}),
    container_name_dots=pod(c={"name": "a.b"}),
    container_name_long=pod(c={"name": "a" * 64}),
    container_twice={"metadata": meta(), "spec": {"containers": [{"name": "c", "image": "x"}] * 2}},
    no_image=pod(c={"image": ""}),
    image_blank=pod(c={"image": " x"}),
    image_digest=pod(c={"image": "r.io:5000/a/b:v1@sha256:" + "a" * 64}),
    image_latest=pod(c={"image": "localhost/a:latest"}),
    image_tag=pod(c={"image": "a:v1"}),
    image_unreadable=pod(c={"image": "A:latest"}),
    pull_policy=pod(c={"imagePullPolicy": "Sometimes"}),
    message_policy=pod(c={"terminationMessagePolicy": "X"}),
    ports_good=pod(c={"ports": [{"containerPort": 80, "name": "http"}, {"containerPort": 81, "protocol": "UDP"}]}),
    port_missing=pod(c={"ports": [{}]}),
    port_range=pod(c={"ports": [{"containerPort": 70000, "hostPort": 70001}]}),
    port_protocol=pod(c={"ports": [{"containerPort": 1, "protocol": "tcp"}]}),
    port_name_bad=pod(c={"ports": [{"containerPort": 1, "name": "A--b-"}]}),
    port_name_long=pod(c={"ports": [{"containerPort": 1, "name": "a" * 16}]}),
    port_name_digits=pod(c={"ports": [{"containerPort": 1, "name": "123"}]}),
    port_name_twice=pod(c={"ports": [{"containerPort": 1, "name": "a"}, {"containerPort": 2, "name": "a"}]}),
    host_port_twice=pod(c={"ports": [{"containerPort": 1, "hostPort": 5}, {"containerPort": 2, "hostPort": 5}]}),
    host_network_ports=pod(hostNetwork=True, c={"ports": [{"containerPort": 1, "hostPort": 5}]}),
    host_network_default=pod(hostNetwork=True, c={"ports": [{"containerPort": 1}]}),
    env_good=pod(
        c={
            "env": [
                {"name": "A", "value": "b"},
                {"name": "my.env-x", "value": ""},
                {"name": "N", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                {"name": "L", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['a']"}}},
                {"name": "C", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
                {"name": "M", "valueFrom": {"configMapKeyRef": {"name": "m", "key": "k", "optional": True}}},
            ],
            "envFrom": [{"prefix": "P_", "secretRef": {"name": "s"}}],
        }
    ),
    env_no_name=pod(c={"env": [{"value": "x"}]}),
    env_name_bad=pod(c={"env": [{"name": "a=b"}]}),
    env_value_and_source=pod(
        c={"env": [{"name": "A", "value": "x", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]}
    ),
    env_no_source=pod(c={"env": [{"name": "A", "valueFrom": {}}]}),
    env_two_sources=pod(
        c={
            "env": [
                {
                    "name": "A",
                    "valueFrom": {
                        "fieldRef": {"fieldPath": "metadata.name"},
                        "secretKeyRef": {"name": "a", "key": "b"},
                    },
                }
            ]
        }
    ),
    env_field_unknown=pod(c={"env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "spec.foo"}}}]}),
    env_field_volume_only=pod(c={"env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels"}}}]}),
    env_field_empty=pod(c={"env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": ""}}}]}),
    env_field_version=pod(
        c={"env": [{"name": "A", "valueFrom": {"fieldRef": {"apiVersion": "v2", "fieldPath": "metadata.name"}}}]}
    ),
    env_field_subscript=pod(
        c={"env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['-x']"}}}]}
    ),
    env_field_subscript_elsewhere=pod(
        c={"env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name['x']"}}}]}
    ),
    env_resource_unknown=pod(c={"env": [{"name": "A", "valueFrom": {"resourceFieldRef": {"resource": "limits.x"}}}]}),
    env_resource_empty=pod(c={"env": [{"name": "A", "valueFrom": {"resourceFieldRef": {"resource": ""}}}]}),
    env_divisor=pod(
        c={"env": [{"name": "A", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "2"}}}]}
    ),
    env_divisor_memory=pod(
        c={"env": [{"name": "A", "valueFrom": {"resourceFieldRef": {"resource": "limits.memory", "divisor": "3"}}}]}
    ),
    env_key_ref=pod(c={"env": [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "A", "key": "a b"}}}]}),
    env_key_ref_empty=pod(c={"env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "a", "key": ""}}}]}),
    env_file=pod(
        c={"env": [{"name": "A", "valueFrom": {"fileKeyRef": {"key": "k", "volumeName": "v", "path": "p"}}}]},
        volumes=[{"name": "v"}],
    ),
    env_file_bad=pod(
        c={"env": [{"name": "A", "valueFrom": {"fileKeyRef": {"key": "a=b", "volumeName": "V", "path": "../p"}}}]}
    ),
    env_file_volume=pod(
        c={"env": [{"name": "A", "valueFrom": {"fileKeyRef": {"key": "k", "volumeName": "v", "path": "p"}}}]},
        volumes=[{"name": "v", "hostPath": {"path": "/x"}}],
    ),
    env_from_none=pod(c={"envFrom": [{}]}),
    env_from_two=pod(c={"envFrom": [{"configMapRef": {"name": "a"}, "secretRef": {"name": "b"}}]}),
    env_from_names=pod(c={"envFrom": [{"prefix": "a=b", "configMapRef": {"name": ""}}, {"secretRef": {"name": "A"}}]}),
    mounts_good=pod(
        c={"volumeMounts": [{"name": "v", "mountPath": "/x", "subPath": "a/b", "mountPropagation": "None"}]},
        volumes=[{"name": "v", "emptyDir": {"sizeLimit": "1Gi"}}],
    ),
    mount_unknown=pod(c={"volumeMounts": [{"name": "v", "mountPath": "/x"}]}),
    mount_empty=pod(c={"volumeMounts": [{"name": "", "mountPath": ""}]}),
    mount_twice=pod(
        c={"volumeMounts": [{"name": "v", "mountPath": "/x"}, {"name": "v", "mountPath": "/x"}]},
        volumes=[{"name": "v"}],
    ),
    mount_sub_path=pod(
        c={"volumeMounts": [{"name": "v", "mountPath": "/x", "subPath": "/a", "subPathExpr": "../b"}]},
        volumes=[{"name": "v"}],
    ),
    mount_propagation=pod(
        c={
            "volumeMounts": [
                {"name": "v", "mountPath": "/x", "mountPropagation": "Bidirectional"},
                {"name": "v", "mountPath": "/y", "mountPropagation": "Foo"},
                {"name": "v", "mountPath": "/z", "recursiveReadOnly": "Enabled"},
                {"name": "v", "mountPath": "/w", "recursiveReadOnly": "Foo"},
            ]
        },
        volumes=[{"name": "v"}],
    ),
    devices=pod(
        c={
            "volumeDevices": [
                {"name": "v", "devicePath": "/x"},
                {"name": "v", "devicePath": "/x"},
                {"name": "p", "devicePath": ""},
                {"name": "q", "devicePath": "../z"},
            ],
            "volumeMounts": [{"name": "v", "mountPath": "/x"}],
        },
        volumes=[{"name": "v"}, {"name": "p", "persistentVolumeClaim": {"claimName": "c"}}],
    ),
    resources_good=pod(
        c={
            "resources": {
                "requests": {"cpu": "0.5", "memory": "1024Mi", "example.com/gpu": "2"},
                "limits": {"cpu": "1000m", "memory": "2Gi", "example.com/gpu": "2", "ephemeral-storage": "1e9"},
            }
        }
    ),
    resources_guaranteed=pod(c={"resources": {"limits": {"cpu": "1", "memory": "1Gi"}}}),
    resources_tiny=pod(c={"resources": {"requests": {"cpu": "0.0001", "memory": "1.5"}}}),
    resources_negative=pod(c={"resources": {"limits": {"cpu": "-1"}}}),
    resources_over_limit=pod(c={"resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}}),
    resources_extended_unequal=pod(
        c={"resources": {"requests": {"example.com/gpu": "1"}, "limits": {"example.com/gpu": "2"}}}
    ),
    resources_extended_no_limit=pod(c={"resources": {"requests": {"example.com/gpu": "1"}}}),
    resources_extended_fraction=pod(c={"resources": {"limits": {"example.com/gpu": "1.5"}}}),
    resources_unknown=pod(c={"resources": {"limits": {"foo": "1"}}}),
    resources_name_bad=pod(c={"resources": {"limits": {"a b": "1"}}}),
    resources_native_unknown=pod(c={"resources": {"limits": {"kubernetes.io/foo": "1"}}}),
    resources_requests_prefix=pod(c={"resources": {"limits": {"requests.example.com/foo": "1"}}}),
    resources_pods=pod(c={"resources": {"limits": {"pods": "1"}}}),
    resources_hugepages=pod(c={"resources": {"limits": {"hugepages-2Mi": "4Mi"}}}),
    resources_hugepages_good=pod(c={"resources": {"limits": {"hugepages-2Mi": "4Mi", "cpu": "1"}}}),
    resources_hugepages_part=pod(c={"resources": {"limits": {"hugepages-2Mi": "3Mi", "cpu": "1"}}}),
    resources_claims=pod(c={"resources": {"claims": [{"name": "a"}, {"name": "a"}, {}]}}),
    resources_claims_good=pod(
        c={"resources": {"claims": [{"name": "a"}]}}, resourceClaims=[{"name": "a", "resourceClaimName": "b"}]
    ),
    pod_resources=pod(
        c={"resources": {"requests": {"cpu": "1"}}}, resources={"limits": {"cpu": "2", "memory": "1Gi"}}
    ),
    pod_resources_unknown=pod(resources={"limits": {"foo": "1", "example.com/gpu": "1"}}),
    resource_claim_names=pod(resourceClaims=[{"name": "A"}, {"resourceClaimName": "b", "name": "x"}, {"name": "x"}]),
    resize_policy=pod(
        c={"resizePolicy": [{"resourceName": "x", "restartPolicy": "y"}, {"resourceName": "x", "restartPolicy": ""}]}
    ),
    resize_never=pod(
        restartPolicy="Never", c={"resizePolicy": [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]}
    ),
    container_restart=pod(c={"restartPolicy": "Foo"}),
    container_restart_rules=pod(c={"restartPolicyRules": [{"action": "X", "exitCodes": {"operator": "Y"}}, {}]}),
    probes_good=pod(
        c={
            "livenessProbe": {"httpGet": {"port": 80}},
            "readinessProbe": {"exec": {"command": ["x"]}, "initialDelaySeconds": 5},
            "startupProbe": {"grpc": {"port": 5}},
        }
    ),
    probe_none=pod(c={"livenessProbe": {}}),
    probe_two=pod(c={"livenessProbe": {"httpGet": {"port": 80}, "tcpSocket": {"port": 80}}}),
    probe_numbers=pod(
        c={
            "readinessProbe": {
                "tcpSocket": {"port": "x"},
                "initialDelaySeconds": -1,
                "timeoutSeconds": -2,
                "periodSeconds": -3,
                "successThreshold": -4,
                "failureThreshold": -5,
                "terminationGracePeriodSeconds": 0,
            }
        }
    ),
    probe_success=pod(c={"livenessProbe": {"tcpSocket": {"port": 5}, "successThreshold": 2}}),
    probe_http=pod(
        c={
            "livenessProbe": {
                "httpGet": {"port": "A!", "scheme": "FTP", "httpHeaders": [{"name": "a b", "value": "c"}]}
            }
        }
    ),
    probe_port=pod(c={"startupProbe": {"tcpSocket": {"port": 0}}}),
    probe_exec=pod(c={"startupProbe": {"exec": {}}}),
    lifecycle_good=pod(
        c={"lifecycle": {"preStop": {"sleep": {"seconds": 5}}, "postStart": {"exec": {"command": ["x"]}}}}
    ),
    lifecycle_sleep=pod(c={"lifecycle": {"preStop": {"sleep": {"seconds": 50}}}}),
    lifecycle_none=pod(c={"lifecycle": {"preStop": {}}}),
    init_good=pod(initContainers=[{"name": "i", "image": "y"}, {"name": "s", "image": "z", "restartPolicy": "Always"}]),
    init_name_taken=pod(initContainers=[{"name": "c", "image": "y"}]),
    init_probes=pod(
        initContainers=[{"name": "i", "image": "y", "livenessProbe": {"tcpSocket": {"port": 1}}, "lifecycle": {}}]
    ),
    init_sidecar_probe=pod(
        initContainers=[
            {"name": "i", "image": "y", "restartPolicy": "Always", "readinessProbe": {"tcpSocket": {"port": 0}}}
        ]
    ),
    init_resize=pod(
        initContainers=[
            {
                "name": "i",
                "image": "y",
                "resizePolicy": [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}],
            }
        ]
    ),
    ephemeral_on_create=pod(ephemeralContainers=[{"name": "e", "image": "x"}]),
    security_good=pod(
        securityContext={"runAsUser": 1000, "fsGroup": 5, "supplementalGroups": [1, 2], "runAsNonRoot": True},
        c={"securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}},
    ),
    security_ids=pod(
        securityContext={"runAsUser": -1, "runAsGroup": 3000000000, "fsGroup": -2, "supplementalGroups": [-3]},
        c={"securityContext": {"runAsUser": -1}},
    ),
    security_proc_mount=pod(c={"securityContext": {"procMount": "X"}}),
    security_proc_unmasked=pod(c={"securityContext": {"procMount": "Unmasked"}}),
    security_escalation=pod(
        c={"securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"add": ["CAP_SYS_ADMIN"]}}}
    ),
    security_seccomp=pod(securityContext={"seccompProfile": {"type": "X"}}),
    security_seccomp_local=pod(
        securityContext={"seccompProfile": {"type": "Localhost"}},
        c={"securityContext": {"seccompProfile": {"type": "RuntimeDefault", "localhostProfile": "x"}}},
    ),
    security_seccomp_path=pod(securityContext={"seccompProfile": {"type": "Localhost", "localhostProfile": "/../x"}}),
    security_app_armor=pod(
        securityContext={"appArmorProfile": {"type": "X"}},
        c={"securityContext": {"appArmorProfile": {"type": "Localhost", "localhostProfile": " x"}}},
    ),
    security_sysctls=pod(
        securityContext={"sysctls": [{"name": name, "value": "1"} for name in ("A", "net.a", "net.a")]}
    ),
    security_policies=pod(
        securityContext={
            "fsGroupChangePolicy": "X",
            "supplementalGroupsPolicy": "Y",
            "seLinuxChangePolicy": "Z",
        }
    ),
    share_process_namespace=pod(shareProcessNamespace=True, hostPID=True),
    host_users=pod(hostUsers=False, hostPID=True, hostIPC=True),
)

# --- pods: the rest of the spec -------------------------------------------------------------------------------------

add(
    "pods",
    restart_policy=pod(restartPolicy="Sometimes"),
    dns_policy=pod(dnsPolicy="X"),
    dns_none=pod(dnsPolicy="None"),
    dns_none_no_servers=pod(dnsPolicy="None", dnsConfig={}),
    dns_good=pod(dnsConfig={"nameservers": ["1.2.3.4"], "searches": ["_a.b", "."], "options": [{"name": "x"}]}),
    dns_bad=pod(
        dnsConfig={"nameservers": ["x", "1.2.3.4", "01.2.3.4", "::ffff:1.2.3.4"], "searches": ["A"], "options": [{}]}
    ),
    dns_many=pod(dnsConfig={"searches": ["a"] * 33}),
    node_selector_good=pod(nodeSelector={"a": "b"}),
    node_selector=pod(nodeSelector={"-a": "b c"}),
    node_name=pod(nodeName="A"),
    node_name_good=pod(nodeName="n1"),
    service_account=pod(serviceAccountName="A"),
    service_account_alias=pod(serviceAccount="foo"),
    deadline=pod(activeDeadlineSeconds=0),
    grace_negative=pod(terminationGracePeriodSeconds=-3),
    hostname=pod(hostname="A", subdomain="b.c"),
    hostname_override=pod(hostnameOverride="A", setHostnameAsFQDN=True),
    host_aliases=pod(hostAliases=[{"ip": "x", "hostnames": ["A", "ok"]}]),
    priority_class=pod(priorityClassName="foo"),
    priority_class_system=pod(priorityClassName="system-node-critical"),
    priority_given=pod(priority=5),
    preemption=pod(preemptionPolicy="Never"),
    runtime_class=pod(runtimeClassName="foo"),
    overhead=pod(overhead={"cpu": "1"}),
    os_linux=pod(os={"name": "linux"}),
    os_bad=pod(os={"name": "foo"}),
    pull_secrets=pod(imagePullSecrets=[{"name": "a"}]),
    readiness_gates=pod(readinessGates=[{"conditionType": "a/b/c"}]),
    scheduling_group=pod(schedulingGroup={"podGroupName": "-"}),
    scheduling_gates=pod(schedulingGates=[{"name": "a/b"}, {"name": "a/b"}, {"name": "-"}]),
    scheduling_gate_good=pod(schedulingGates=[{"name": "a/b"}]),
    scheduling_gate_and_node=pod(schedulingGates=[{"name": "a/b"}], nodeName="n1"),
    deletion_cost=pod(m={"annotations": {"controller.kubernetes.io/pod-deletion-cost": "1.5"}}),
    deletion_cost_plus=pod(m={"annotations": {"controller.kubernetes.io/pod-deletion-cost": "+5"}}),
    tolerations_good=pod(tolerations=[{"operator": "Exists"}, {"key": "a", "value": "b", "effect": "NoSchedule"}]),
    toleration_partly=pod(tolerations=[{"key": "node.kubernetes.io/not-ready", "operator": "Exists"}]),
    toleration_no_key=pod(tolerations=[{"value": "x"}]),
    toleration_key=pod(tolerations=[{"key": "-a"}]),
    toleration_operator=pod(tolerations=[{"key": "a", "operator": "X"}, {"key": "a", "operator": "Gt", "value": "5"}]),
    toleration_exists_value=pod(tolerations=[{"key": "a", "operator": "Exists", "value": "x"}]),
    toleration_value=pod(tolerations=[{"key": "a", "value": "b c"}]),
    toleration_effect=pod(tolerations=[{"key": "a", "operator": "Exists", "effect": "X"}]),
    toleration_seconds=pod(tolerations=[{"key": "a", "operator": "Exists", "tolerationSeconds": 5}]),
    spread_good=pod(
        topologySpreadConstraints=[
            {
                "maxSkew": 1,
                "topologyKey": "zone",
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {"matchLabels": {"a": "b"}},
            }
        ]
    ),
    spread_bad=pod(
        topologySpreadConstraints=[
            {
                "maxSkew": 0,
                "topologyKey": "",
                "whenUnsatisfiable": "X",
                "minDomains": 0,
                "nodeAffinityPolicy": "Y",
                "nodeTaintsPolicy": "Z",
                "matchLabelKeys": ["-a"],
            }
        ]
    ),
    spread_twice=pod(
        topologySpreadConstraints=[{"maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "ScheduleAnyway"}] * 2
    ),
    node_affinity_good=pod(
        affinity={
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [
                        {
                            "matchExpressions": [
                                {"key": "a", "operator": "In", "values": ["b"]},
                                {"key": "n", "operator": "Gt", "values": ["5"]},
                                {"key": "m", "operator": "Exists"},
                            ],
                            "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}],
                        }
                    ]
                },
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {"weight": 1, "preference": {"matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]}}
                ],
            }
        }
    ),
    node_affinity_bad=pod(
        affinity={
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [
                        {
                            "matchExpressions": [
                                {"key": "a", "operator": "In"},
                                {"key": "-", "operator": "Exists", "values": ["x"]},
                                {"key": "n", "operator": "Gt", "values": ["1", "2"]},
                                {"key": "n", "operator": "Lt", "values": ["x"]},
                                {"key": "n", "operator": "Foo"},
                                {"key": "n", "operator": "NotIn", "values": ["a b"]},
                            ],
                            "matchFields": [
                                {"key": "metadata.name", "operator": "In", "values": ["A"]},
                                {"key": "spec.x", "operator": "Exists"},
                            ],
                        }
                    ]
                },
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {
                        "weight": 0,
                        "preference": {"matchExpressions": [{"key": "a", "operator": "In", "values": ["a b"]}]},
                    }
                ],
            }
        }
    ),
    node_affinity_empty=pod(
        affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}}
    ),
    pod_affinity_good=pod(
        affinity={
            "podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    {"topologyKey": "zone", "labelSelector": {"matchLabels": {"a": "b"}}}
                ],
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {"weight": 5, "podAffinityTerm": {"topologyKey": "zone"}}
                ],
            }
        }
    ),
    pod_affinity_bad=pod(
        affinity={
            "podAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    {
                        "topologyKey": "",
                        "namespaces": ["A"],
                        "labelSelector": {
                            "matchLabels": {"-a": "b"},
                            "matchExpressions": [
                                {"key": "a", "operator": "In"},
                                {"key": "b", "operator": "Exists", "values": ["x"]},
                                {"key": "c", "operator": "Gt", "values": ["1"]},
                                {"key": "d", "operator": "NotIn", "values": ["a b"]},
                            ],
                        },
                    }
                ],
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {"weight": 101, "podAffinityTerm": {"topologyKey": "-"}}
                ],
            }
        }
    ),
    pod_affinity_match_keys=pod(
        affinity={
            "podAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    {"topologyKey": "z", "matchLabelKeys": ["a"]},
                    {
                        "topologyKey": "z",
                        "labelSelector": {"matchLabels": {"x": "y"}},
                        "matchLabelKeys": ["a"],
                        "mismatchLabelKeys": ["a"],
                    },
                ]
            }
        }
    ),
    volumes_good=pod(
        volumes=[
            {"name": "e"},
            {"name": "m", "configMap": {"name": "x", "items": [{"key": "k", "path": "p"}]}},
            {"name": "s", "secret": {"secretName": "x"}},
            {"name": "h", "hostPath": {"path": "/x", "type": "Directory"}},
            {"name": "d", "downwardAPI": {"items": [{"path": "l", "fieldRef": {"fieldPath": "metadata.labels"}}]}},
            {"name": "p", "projected": {"sources": [{"configMap": {"name": "x"}}, {"secret": {"name": "y"}}]}},
            {"name": "i", "image": {"reference": "r:v1"}},
            {"name": "c", "persistentVolumeClaim": {"claimName": "c"}},
        ]
    ),
    volume_names=pod(volumes=[{"name": ""}, {"name": "A"}, {"name": "x"}, {"name": "x"}]),
    volume_two_sources=volumes({"emptyDir": {}, "hostPath": {"path": "/x"}, "configMap": {"name": "x"}}),
    volume_empty_dir=volumes({"emptyDir": {"sizeLimit": "-1"}}),
    volume_host_path=volumes({"hostPath": {"path": ""}}, {"hostPath": {"path": "/a/../b", "type": "X"}}),
    volume_config_map=volumes(
        {"configMap": {"name": "", "defaultMode": 1000, "items": [{"key": "", "path": ""}]}},
        {"configMap": {"name": "y", "items": [{"key": "a", "path": "/x"}]}},
        {"configMap": {"name": "x", "items": [{"key": "a", "path": "../x", "mode": -1}, {"key": "a", "path": "..x"}]}},
    ),
    volume_secret=volumes({"secret": {"defaultMode": -1}}),
    volume_claim=volumes({"persistentVolumeClaim": {}}),
    volume_nfs=volumes({"nfs": {"server": "", "path": "x"}}),
    volume_downward=volumes(
        {"downwardAPI": {"items": [{"path": "x"}, {"path": "y", "fieldRef": {"fieldPath": "spec.nodeName"}}]}},
        {"downwardAPI": {"items": [{"path": "z", "resourceFieldRef": {"resource": "limits.cpu"}}]}},
    ),
    volume_projected=volumes(
        {
            "projected": {
                "defaultMode": 1000,
                "sources": [
                    {"secret": {"name": "", "items": [{"key": "a", "path": "p"}]}},
                    {"configMap": {"name": "m", "items": [{"key": "a", "path": "p"}]}},
                ],
            }
        }
    ),
    volume_token=volumes({"projected": {"sources": [{"serviceAccountToken": {"path": "t", "expirationSeconds": 5}}]}}),
    volume_image=volumes({"image": {"reference": "", "pullPolicy": "X"}}),
    volume_ephemeral=volumes({"ephemeral": {"volumeClaimTemplate": {"spec": {}}}}),
    volume_ephemeral_good=volumes(
        {
            "ephemeral": {
                "volumeClaimTemplate": {
                    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
                }
            }
        }
    ),
)

# --- what is taken with a warning -----------------------------------------------------------------------------------

add(
    "pods",
    warned_name=pod(m={"name": "a.b"}),
    warned_env=pod(
        c={
            "env": [
                {"name": "A", "value": "1"},
                {"name": "A", "value": "2"},
                {"name": "A", "value": "$(A)3"},
                {"name": "A", "value": "$(A)"},
            ]
        }
    ),
    warned_ports={
        "metadata": meta(),
        "spec": {
            "containers": [
                {"name": "c", "image": "x", "ports": [{"containerPort": 80}, {"containerPort": 80, "name": "x"}]},
                {"name": "d", "image": "x", "ports": [{"containerPort": 80, "hostPort": 8080, "name": "x"}]},
                {
                    "name": "e",
                    "image": "x",
                    "ports": [{"containerPort": 80, "hostPort": 8080, "hostIP": "1.2.3.4"}],
                },
            ]
        },
    },
    warned_labels=pod(
        nodeSelector={"beta.kubernetes.io/os": "linux"},
        affinity={
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [
                        {
                            "matchExpressions": [
                                {"key": "failure-domain.beta.kubernetes.io/zone", "operator": "Exists"}
                            ]
                        }
                    ]
                }
            },
            "podAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone"}],
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {"weight": 1, "podAffinityTerm": {"topologyKey": "zone"}}
                ],
            },
        },
        topologySpreadConstraints=[
            {
                "maxSkew": 1,
                "topologyKey": "beta.kubernetes.io/instance-type",
                "whenUnsatisfiable": "ScheduleAnyway",
            }
        ],
    ),
    warned_fraction=pod(c={"resources": {"requests": {"memory": "100m", "ephemeral-storage": "1.5"}}}),
    warned_lists=pod(
        imagePullSecrets=[{"name": "a"}, {"name": "a"}, {}],
        hostAliases=[{"ip": "1.2.3.4", "hostnames": ["a"]}, {"ip": "1.2.3.4", "hostnames": ["b"]}],
    ),
    warned_annotations=pod(
        m={
            "annotations": {
                "seccomp.security.alpha.kubernetes.io/pod": "unconfined",
                "scheduler.alpha.kubernetes.io/critical-pod": "",
            }
        }
    ),
    warned_volume=pod(volumes=[{"name": "g", "gitRepo": {"repository": "x"}}]),
)
add(
    "services",
    warned_external_ips=service(externalIPs=["1.2.3.4"]),
    warned_headless=service(clusterIP="None", sessionAffinity="ClientIP", externalIPs=["1.2.3.4"]),
    warned_external_name=service(externalName="a.b", trafficDistribution="PreferClose"),
)
add("nodes", warned={"metadata": meta(), "spec": {"externalID": "x"}})
add(
    "replicationcontrollers",
    warned=controller(m={"name": "a.b"}, t={"nodeSelector": {"beta.kubernetes.io/arch": "x"}}),
)

# --- other kinds ----------------------------------------------------------------------------------------------------

add(
    "namespaces",
    plain={"metadata": meta(name="y")},
    name_dots={"metadata": meta(name="a.b")},
    finalizer={"metadata": meta(name="y"), "spec": {"finalizers": ["a/b"]}},
    finalizer_bad={"metadata": meta(name="y"), "spec": {"finalizers": ["foo"]}},
)

add(
    "nodes",
    plain={"metadata": meta()},
    full={
        "metadata": meta(labels={"a": "b"}),
        "spec": {"taints": [{"key": "a", "effect": "NoSchedule"}], "podCIDR": "10.1.0.0/24", "unschedulable": True},
        "status": {"capacity": {"cpu": "4", "memory": "16Gi", "pods": "110"}},
    },
    name_bad={"metadata": meta(name="A")},
    taints_bad={
        "metadata": meta(),
        "spec": {"taints": [
            {"key": "-", "effect": "X"}, {"key": "a", "value": "b c", "effect": ""},
            {"key": "k", "effect": "NoSchedule"}, {"key": "k", "value": "v", "effect": "NoSchedule"},
        ]},
    },
    capacity_bad={"metadata": meta(), "status": {"capacity": {"cpu": "-1", "pods": "1.5", "example.com/x": "0.5"}}},
    cidr_bad={"metadata": meta(), "spec": {"podCIDR": "x", "podCIDRs": ["x"]}},
    cidrs_same_family={
        "metadata": meta(),
        "spec": {"podCIDR": "10.0.0.0/24", "podCIDRs": ["10.0.0.0/24", "10.0.1.0/24"]},
    },
    cidr_bits={"metadata": meta(), "spec": {"podCIDR": "10.0.0.1/24", "podCIDRs": ["10.0.0.1/24"]}},
)

add(
    "services",
    plain=service(),
    no_ports=service(ports=[]),
    headless=service(clusterIP="None", ports=[], selector={"a": "b"}),
    node_port=service(type="NodePort"),
    load_balancer=service(type="LoadBalancer"),
    external_name=service(type="ExternalName", externalName="a.b.", ports=[]),
    external_name_missing=service(type="ExternalName", ports=[]),
    external_name_bad=service(type="ExternalName", externalName="A!", ports=[], clusterIP="10.0.0.9"),
    type_bad=service(type="X"),
    name_upper={"metadata": meta(name="A"), "spec": {"ports": [{"port": 80}]}},
    name_digit={"metadata": meta(name="1a"), "spec": {"ports": [{"port": 80}]}},
    name_dots={"metadata": meta(name="a.b"), "spec": {"ports": [{"port": 80}]}},
    port_bad=service(ports=[{"port": 0, "protocol": "X", "targetPort": "A--"}]),
    ports_unnamed=service(ports=[{"port": 80}, {"port": 81}]),
    ports_same_name=service(ports=[{"port": 80, "name": "a"}, {"port": 81, "name": "a"}]),
    ports_same=service(ports=[{"port": 80, "name": "a"}, {"port": 80, "name": "b"}]),
    port_app=service(ports=[{"port": 80, "appProtocol": "a b"}]),
    node_port_on_cluster_ip=service(ports=[{"port": 80, "nodePort": 30001}]),
    cluster_ip_bad=service(clusterIP="x"),
    cluster_ip_zeros=service(clusterIP="010.0.0.5"),
    cluster_ips_mismatch=service(clusterIP="10.0.0.8", clusterIPs=["10.0.0.9"]),
    headless_node_port=service(type="NodePort", clusterIP="None"),
    selector_bad=service(selector={"-a": "b c"}),
    affinity_bad=service(sessionAffinity="X"),
    affinity_client=service(sessionAffinity="ClientIP"),
    affinity_timeout=service(
        sessionAffinity="ClientIP", sessionAffinityConfig={"clientIP": {"timeoutSeconds": 0}}
    ),
    families_bad=service(ipFamilies=["X"], ipFamilyPolicy="Y"),
    families_twice=service(ipFamilies=["IPv4", "IPv4"]),
    families_six=service(ipFamilies=["IPv6"]),
    families_both=service(ipFamilies=["IPv4", "IPv6"]),
    families_both_single=service(ipFamilies=["IPv4", "IPv6"], ipFamilyPolicy="SingleStack"),
    families_required=service(ipFamilyPolicy="RequireDualStack"),
    families_preferred=service(ipFamilyPolicy="PreferDualStack"),
    families_headless=service(clusterIP="None", ports=[]),
    families_headless_six=service(clusterIP="None", ports=[], ipFamilies=["IPv6"]),
    families_headless_single=service(clusterIP="None", ports=[], ipFamilyPolicy="SingleStack"),
    external_ips=service(externalIPs=["x", "127.0.0.1", "0.0.0.0", "169.254.1.1", "224.0.0.1"]),
    external_policy=service(externalTrafficPolicy="Local"),
    external_policy_bad=service(type="NodePort", externalTrafficPolicy="X"),
    internal_policy=service(internalTrafficPolicy="X"),
    distribution=service(trafficDistribution="X"),
    source_ranges=service(loadBalancerSourceRanges=["10.0.0.0/8"]),
    source_ranges_bad=service(type="LoadBalancer", loadBalancerSourceRanges=["x", "10.0.0.1/8"]),
    allocate_ports=service(allocateLoadBalancerNodePorts=True),
    class_not_balancer=service(loadBalancerClass="a/b"),
    class_bad=service(type="LoadBalancer", loadBalancerClass="a b"),
    health_port=service(healthCheckNodePort=30002),
)

add(
    "endpoints",
    plain={
        "metadata": meta(),
        "subsets": [{"addresses": [{"ip": "10.1.1.1", "nodeName": "n"}], "ports": [{"port": 80, "name": "a"}]}],
    },
    empty_subset={"metadata": meta(), "subsets": [{}]},
    addresses_bad={
        "metadata": meta(),
        "subsets": [{"addresses": [{"ip": "x", "hostname": "A", "nodeName": "B"}, {"ip": "127.0.0.1"}, {"ip": "::1"}]}],
    },
    ports_bad={
        "metadata": meta(),
        "subsets": [
            {
                "addresses": [{"ip": "10.1.1.1"}],
                "ports": [{"port": 0, "name": "A"}, {"port": 1, "protocol": "X", "appProtocol": "a b"}],
            }
        ],
    },
)

add(
    "replicationcontrollers",
    plain=controller(),
    defaults=controller(selector={}),
    no_template={"metadata": meta(), "spec": {"selector": {"a": "b"}}},
    no_selector={"metadata": meta(), "spec": {"template": {"spec": {"containers": [{"name": "c", "image": "x"}]}}}},
    selector_mismatch=controller(selector={"a": "c"}),
    replicas_negative=controller(replicas=-1, minReadySeconds=-2),
    restart_policy=controller(t={"restartPolicy": "Never"}),
    deadline=controller(t={"activeDeadlineSeconds": 5}),
    template_bad=controller(t={"containers": [{"name": "A", "image": "x"}], "nodeSelector": {"-": "x"}}),
    template_ephemeral=controller(t={"ephemeralContainers": [{"name": "e", "image": "x"}]}),
    template_host_network=controller(
        t={"hostNetwork": True, "containers": [{"name": "c", "image": "x", "ports": [{"containerPort": 5}]}]}
    ),
    template_resources=controller(
        t={"containers": [{"name": "c", "image": "x", "resources": {"limits": {"cpu": "1"}}}]}
    ),
    name_bad=controller(m={"name": "A"}),
)

add(
    "secrets",
    plain={"metadata": meta(), "data": {"a": "Yg=="}},
    string_data={"metadata": meta(), "stringData": {"a": "b"}},
    key_bad={"metadata": meta(), "data": {"a b": "Yg=="}},
    large={"metadata": meta(), "stringData": {"a": "x" * (1024 * 1024 + 1)}},
    tls={"metadata": meta(), "type": "kubernetes.io/tls"},
    basic_auth={"metadata": meta(), "type": "kubernetes.io/basic-auth"},
    ssh={"metadata": meta(), "type": "kubernetes.io/ssh-auth", "data": {"ssh-privatekey": ""}},
    docker={"metadata": meta(), "type": "kubernetes.io/dockerconfigjson"},
    docker_not_json={
        "metadata": meta(), "type": "kubernetes.io/dockerconfigjson", "stringData": {".dockerconfigjson": "x"}
    },
    docker_cut={
        "metadata": meta(), "type": "kubernetes.io/dockercfg", "stringData": {".dockercfg": '{"a":'}
    },
    docker_list={
        "metadata": meta(), "type": "kubernetes.io/dockercfg", "stringData": {".dockercfg": "[]"}
    },
    token={"metadata": meta(), "type": "kubernetes.io/service-account-token"},
    other_type={"metadata": meta(), "type": "example.com/x"},
)  # fmt: skip

add(
    "serviceaccounts",
    plain={"metadata": meta(), "secrets": [{"name": "s", "namespace": "n"}]},
    name_bad={"metadata": meta(name="A")},
)

add(
    "events",
    plain={"metadata": meta(), "involvedObject": {"kind": "Pod", "namespace": "default", "name": "p"}, "reason": "R"},
    namespace_mismatch={"metadata": meta(), "involvedObject": {"kind": "Pod", "namespace": "other"}},
    cluster_scoped={"metadata": meta(), "involvedObject": {"kind": "Node", "name": "n"}},
    new_style_bad={
        "metadata": meta(),
        "involvedObject": {"kind": "Pod", "namespace": "default"},
        "eventTime": "2024-01-01T00:00:00.000000Z",
        "reportingComponent": "a b",
        "reason": "x" * 200,
        "message": "y" * 1100,
    },
    name_upper={"metadata": meta(name="A"), "involvedObject": {"namespace": "default"}},
)

add(
    "leases",
    plain={"metadata": meta(), "spec": {"holderIdentity": "h", "renewTime": "2024-01-01T00:00:00.000000Z"}},
    empty={"metadata": meta()},
    numbers={"metadata": meta(), "spec": {"leaseDurationSeconds": 0, "leaseTransitions": -1}},
    name_bad={"metadata": meta(name="A")},
)

add(
    "selfsubjectaccessreviews",
    none={"spec": {}},
    both={"spec": {"resourceAttributes": {"verb": "get"}, "nonResourceAttributes": {"path": "/", "verb": "get"}}},
)

# --- updates --------------------------------------------------------------------------------------------------------

UPDATES: list[Update] = []


def change(plural: str, stored: Json, subresource: str = "", **patches: Json) -> None:
    for name, patch in patches.items():
        path = f"{plural}/{subresource}" if subresource else plural
        UPDATES.append(Update(f"{path}: {name.replace('_', ' ')}", plural, copy.deepcopy(stored), patch, subresource))


def containers(**fields: Any) -> Json:
    return {"spec": {"containers": [{"name": "c", "image": "x", **fields}]}}


change(
    "pods",
    pod(activeDeadlineSeconds=100, nodeSelector={"a": "b"}),
    nothing={},
    label={"metadata": {"labels": {"a": "b"}}},
    label_bad={"metadata": {"labels": {"-a": "b"}}},
    image=containers(image="y"),
    image_empty=containers(image=""),
    container_added={"spec": {"containers": [{"name": "c", "image": "x"}, {"name": "d", "image": "x"}]}},
    container_renamed={"spec": {"containers": [{"name": "d", "image": "x"}]}},
    command=containers(command=["x"]),
    env=containers(env=[{"name": "A", "value": "b"}]),
    resources=containers(resources={"limits": {"cpu": "1"}}),
    deadline_lower={"spec": {"activeDeadlineSeconds": 50}},
    deadline_higher={"spec": {"activeDeadlineSeconds": 500}},
    deadline_removed={"spec": {"activeDeadlineSeconds": None}},
    deadline_negative={"spec": {"activeDeadlineSeconds": -5}},
    tolerations_removed={"spec": {"tolerations": []}},
    tolerations_added={
        "spec": {
            "tolerations": [
                {"key": f"node.kubernetes.io/{name}", "operator": "Exists", "effect": "NoExecute",
                 "tolerationSeconds": 300}
                for name in ("not-ready", "unreachable")
            ]
            + [{"key": "a", "operator": "Exists"}]
        }
    },
    node_name={"spec": {"nodeName": "n1"}},
    node_selector={"spec": {"nodeSelector": {"a": "c"}}},
    restart_policy={"spec": {"restartPolicy": "Never"}},
    host_network={"spec": {"hostNetwork": True}},
    scheduling_group={"spec": {"schedulingGroup": {"podGroupName": "g"}}},
    host_pid={"spec": {"hostPID": True}},
    grace={"spec": {"terminationGracePeriodSeconds": 5}},
    gate_added={"spec": {"schedulingGates": [{"name": "a/b"}]}},
    volumes_added={"spec": {"volumes": [{"name": "v"}]}},
    priority={"spec": {"priority": 5}},
    status_ignored={"status": {"phase": "Running"}},
    generation_ignored={"metadata": {"generation": 9}},
    creation_ignored={"metadata": {"creationTimestamp": "2001-01-01T00:00:00Z"}},
)
change(
    "pods",
    pod(schedulingGates=[{"name": "a/b"}], nodeSelector={"a": "b"}),
    gate_removed={"spec": {"schedulingGates": None}},
    selector_narrowed={"spec": {"nodeSelector": {"c": "d"}}},
    selector_changed={"spec": {"nodeSelector": {"a": "x"}}},
)
change(
    "pods",
    pod(),
    "status",
    running={"status": {"phase": "Running", "podIP": "10.1.1.1", "podIPs": [{"ip": "10.1.1.1"}]}},
    spec_ignored={"spec": {"nodeName": "n5"}, "status": {"phase": "Running"}},
    qos_changed={"status": {"qosClass": "Guaranteed"}},
    ip_bad={"status": {"podIPs": [{"ip": "x"}]}},
    ips_same_family={"status": {"podIP": "10.1.1.1", "podIPs": [{"ip": "10.1.1.1"}, {"ip": "10.1.1.2"}]}},
    host_ip_mismatch={"status": {"hostIP": "10.0.0.1", "hostIPs": [{"ip": "10.0.0.2"}]}},
    nominated_bad={"status": {"nominatedNodeName": "A"}},
    claims_bad={"status": {"resourceClaimStatuses": [{"name": "x", "resourceClaimName": "A_"}, {"name": "y"}]}},
    node_allocatable={"status": {"nodeAllocatableResourceClaimStatuses": [{"resourceClaimName": "a"}]}},
    extended_empty={"status": {"extendedResourceClaimStatus": {"requestMappings": [], "resourceClaimName": ""}}},
    extended_bad={"status": {"extendedResourceClaimStatus": {"resourceClaimName": "A_", "requestMappings": [
        {"containerName": name, "resourceName": "example.com/x", "requestName": "A_"} for name in ("c", "c", "no")]}}},
)
change(
    "configmaps",
    {"metadata": meta(), "data": {"a": "b"}, "immutable": True},
    data={"data": {"a": "c"}},
    immutable={"immutable": False},
    label={"metadata": {"labels": {"x": "y"}}},
)
change(
    "secrets",
    {"metadata": meta(), "data": {"a": "Yg=="}},
    type_changed={"type": "x/y"},
    data={"data": {"a": "Yw=="}},
)
change(
    "services",
    service(),
    cluster_ip_changed={"spec": {"clusterIP": "10.0.0.77", "clusterIPs": ["10.0.0.77"]}},
    cluster_ip_left_out={"spec": {"clusterIP": None, "clusterIPs": None}},
    to_node_port={"spec": {"type": "NodePort"}},
    to_external_name={"spec": {"type": "ExternalName", "externalName": "a.b"}},
    to_headless={"spec": {"clusterIP": "None", "clusterIPs": ["None"]}},
    families={"spec": {"ipFamilies": ["IPv6"]}},
    port={"spec": {"ports": [{"port": 81}]}},
)
change(
    "services",
    service(type="NodePort"),
    to_cluster_ip={"spec": {"type": "ClusterIP"}},
    port_kept={"spec": {"ports": [{"port": 80, "name": "x"}]}},
)
change(
    "services",
    service(),
    "status",
    ingress={"status": {"loadBalancer": {"ingress": [{"ip": "1.2.3.4"}]}}},
)
change(
    "services",
    service(type="LoadBalancer"),
    "status",
    ingress={"status": {"loadBalancer": {"ingress": [{"ip": "1.2.3.4"}]}}},
    ingress_bad={"status": {"loadBalancer": {"ingress": [{"ip": "x"}, {"hostname": "1.2.3.4"}, {"ipMode": "VIP"}]}}},
)
change(
    "nodes",
    {"metadata": meta(), "spec": {"podCIDR": "10.1.0.0/24", "podCIDRs": ["10.1.0.0/24"], "providerID": "p"}},
    cidr={"spec": {"podCIDR": "10.2.0.0/24", "podCIDRs": ["10.2.0.0/24"]}},
    provider={"spec": {"providerID": "q"}},
    taint={"spec": {"taints": [{"key": "a", "effect": "NoExecute"}]}},
    taint_bad={"spec": {"taints": [{"key": "a", "effect": "X"}]}},
    unschedulable={"spec": {"unschedulable": True}},
    status_ignored={"status": {"capacity": {"cpu": "5"}}},
)
change(
    "nodes",
    {"metadata": meta()},
    "status",
    capacity={"status": {"capacity": {"cpu": "5"}, "allocatable": {"cpu": "4"}}},
    capacity_bad={"status": {"capacity": {"cpu": "-5"}}},
    addresses_twice={"status": {"addresses": [{"type": "InternalIP", "address": "1.2.3.4"}] * 2}},
    spec_ignored={"spec": {"unschedulable": True}},
)
change(
    "replicationcontrollers",
    controller(),
    replicas={"spec": {"replicas": 5}},
    selector={"spec": {"selector": {"a": "x"}}},
    template={"spec": {"template": {"spec": {"nodeSelector": {"a": "b"}}}}},
    status_ignored={"status": {"replicas": 4}},
)
change(
    "replicationcontrollers",
    controller(),
    "status",
    counts={"status": {"replicas": 2, "readyReplicas": 1, "availableReplicas": 1, "observedGeneration": 1}},
    counts_bad={"status": {"replicas": 1, "readyReplicas": 2, "availableReplicas": 3, "fullyLabeledReplicas": -1}},
    spec_ignored={"spec": {"replicas": 9}},
)
change(
    "namespaces",
    {"metadata": meta()},
    label={"metadata": {"labels": {"a": "b"}}},
    label_name_removed={"metadata": {"labels": {"kubernetes.io/metadata.name": "other"}}},
    finalizers_ignored={"spec": {"finalizers": ["a/b"]}},
)
change("namespaces", {"metadata": meta()}, "status", phase={"status": {"phase": "Terminating"}})
change("namespaces", {"metadata": meta()}, "finalize", bad={"spec": {"finalizers": ["foo"]}})
change(
    "leases",
    {"metadata": meta(), "spec": {"holderIdentity": "a"}},
    holder={"spec": {"holderIdentity": "b"}},
    duration={"spec": {"leaseDurationSeconds": -1}},
)
change(
    "endpoints",
    {"metadata": meta(), "subsets": [{"addresses": [{"ip": "10.1.1.1"}]}]},
    address={"subsets": [{"addresses": [{"ip": "x"}]}]},
)
change("serviceaccounts", {"metadata": meta()}, secrets={"secrets": [{"name": "s", "namespace": "n"}]})
change(
    "events",
    {"metadata": meta(), "involvedObject": {"kind": "Pod", "namespace": "default", "name": "p"}},
    count={"count": 5},
    namespace={"involvedObject": {"namespace": "other"}},
)

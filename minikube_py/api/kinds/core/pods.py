"""Pod, and the Binding that gives it a node.

The rules of its spec, which templates share, are in `api.defaults_pod` and `api.validation.pods`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from minikube_py.api.admission import admit_pod, take_topology, validate_overhead
from minikube_py.api.apply.assigned import EACH, always, when
from minikube_py.api.defaults_pod import default_admitted_pod, default_pod
from minikube_py.api.errors import FieldError, GroupResource, Json, conflict, not_supported, required
from minikube_py.api.gates import of_pods
from minikube_py.api.kind import (
    NAMESPACED,
    STATUS_VERBS,
    Cluster,
    Kind,
    Selectable,
    Subresource,
    connection,
    proxy_of,
    status_of,
)
from minikube_py.api.kinds.core import limit_ranges
from minikube_py.api.meta import timestamp
from minikube_py.api.pod_resizing import resized, validate_pod_resize
from minikube_py.api.pod_resources import qos_class
from minikube_py.api.pod_status import print_pod
from minikube_py.api.pod_warnings import name_warnings, pod_warnings
from minikube_py.api.printing import AGE, NAME, Printer, column
from minikube_py.api.strategy import check_preconditions, keep
from minikube_py.api.validation.pods import (
    validate_pod_create,
    validate_pod_ephemeral,
    validate_pod_status_update,
    validate_pod_update,
)
from minikube_py.api.validation.profiles import sync_fields, sync_warnings
from minikube_py.fields import builtin


def _create_pod(pod: Json) -> None:
    pod["metadata"]["generation"] = 1
    spec = pod["spec"]
    _merge_label_keys(spec, pod["metadata"].get("labels") or {})
    if annotations := pod["metadata"].get("annotations"):
        sync_fields(annotations, spec)
    pod["status"] = {"phase": "Pending", "qosClass": qos_class(spec)}
    if spec.get("schedulingGates"):
        pod["status"]["conditions"] = [
            {
                "type": "PodScheduled",
                "status": "False",
                "lastProbeTime": None,
                "lastTransitionTime": pod["metadata"].get("creationTimestamp"),
                "reason": "SchedulingGated",
                "message": "Scheduling is blocked due to non-empty scheduling gates",
            }
        ]


def _merge_label_keys(spec: Json, labels: Mapping[str, str]) -> None:
    """The pod's own values of `matchLabelKeys` and `mismatchLabelKeys` become part of the selectors beside them."""
    constraints = spec.get("topologySpreadConstraints")
    if constraints:
        spec["topologySpreadConstraints"] = [_merged(one, labels) for one in constraints]
    affinity = spec.get("affinity") or {}
    for kind in ("podAffinity", "podAntiAffinity") if affinity else ():
        own = affinity.get(kind) or {}
        terms = own.get("requiredDuringSchedulingIgnoredDuringExecution")
        if terms:
            own["requiredDuringSchedulingIgnoredDuringExecution"] = [_merged(term, labels) for term in terms]
        for weighted in own.get("preferredDuringSchedulingIgnoredDuringExecution") or ():
            if weighted.get("podAffinityTerm"):
                weighted["podAffinityTerm"] = _merged(weighted["podAffinityTerm"], labels)


def _merged(term: Json, labels: Mapping[str, str]) -> Json:
    selector = term.get("labelSelector")
    if selector is None:
        return term
    added = [
        {"key": key, "operator": operator, "values": [labels[key]]}
        for field, operator in (("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn"))
        for key in term.get(field) or ()
        if key in labels
    ]
    if not added:
        return term
    expressions = [*(selector.get("matchExpressions") or ()), *added]
    return {**term, "labelSelector": {**selector, "matchExpressions": expressions}}


_ADDED_TOLERATIONS: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


def _is_token(mount: Json) -> bool:
    return bool(mount.get("mountPath") == "/var/run/secrets/kubernetes.io/serviceaccount")


def _update_status(new: Json, old: Json) -> None:
    metadata, status = new["metadata"], new["status"]
    metadata.pop("deletionTimestamp", None)
    # The gate DRANodeAllocatableResources is off: upstream drops the field.
    status.pop("nodeAllocatableResourceClaimStatuses", None)
    keep(metadata, old["metadata"], "ownerReferences")
    before = old.get("status") or {}
    if not status.get("qosClass") and before.get("qosClass"):
        status["qosClass"] = before["qosClass"]
    _keep_observed_generation(status, before)


def _update_ephemeral(new: Json, old: Json) -> None:
    """Only ephemeral containers may change."""
    added = new["spec"].get("ephemeralContainers")
    new["spec"] = {**old["spec"], **({"ephemeralContainers": added} if added else {})}
    if not added:
        new["spec"].pop("ephemeralContainers", None)
    _keep_beside(new, old)


def _update_resize(new: Json, old: Json) -> None:
    moved = resized(new, old)
    if moved is not new["spec"]:
        new["spec"] = moved
        _keep_beside(new, old)


def _keep_beside(new: Json, old: Json) -> None:
    keep(new, old, "status")
    for name in ("deletionTimestamp", "labels", "annotations", "finalizers", "ownerReferences"):
        keep(new["metadata"], old["metadata"], name)


def _keep_observed_generation(status: Json, before: Json) -> None:
    """Clients unaware of the field must not clear it."""
    if not status.get("observedGeneration") and before.get("observedGeneration"):
        status["observedGeneration"] = before["observedGeneration"]
    known: dict[str, list[int]] = {}
    for condition in before.get("conditions") or ():
        known.setdefault(condition.get("type", ""), []).append(condition.get("observedGeneration") or 0)
    for condition in status.get("conditions") or ():
        generations = known.get(condition.get("type", ""))
        generation = generations.pop(0) if generations else 0
        if generation and not condition.get("observedGeneration"):
            condition["observedGeneration"] = generation


def deletion_grace_s(pod: Json, asked_s: int | None) -> int:
    """Grace period in seconds; 0 for immediate deletion."""
    spec = pod["spec"]
    period_s = asked_s if asked_s is not None else (spec.get("terminationGracePeriodSeconds") or 0)
    if not spec.get("nodeName") or (pod.get("status") or {}).get("phase") in ("Failed", "Succeeded"):
        return 0
    return 1 if period_s < 0 else int(period_s)


def _warnings(pod: Json, old: Json | None) -> list[str]:
    """No warnings on updates, which are mostly automated."""
    if old is not None:
        return []
    own = name_warnings(pod["metadata"].get("name") or "", "this is used in the Pod's hostname")
    return own + pod_warnings(pod["metadata"], pod["spec"], "")


_ROW_CONDITIONS: Final = {
    "Succeeded": [
        {
            "type": "Completed",
            "status": "True",
            "reason": "Succeeded",
            "message": "The pod has completed successfully.",
        }
    ],
    "Failed": [{"type": "Completed", "status": "True", "reason": "Failed", "message": "The pod failed."}],
}


def _row_conditions(pod: Json) -> list[Json] | None:
    return _ROW_CONDITIONS.get((pod.get("status") or {}).get("phase") or "")


def _admit(pod: Json, old: Json | None, cluster: Cluster) -> None:
    if old is None:
        limit_ranges.fill_up(pod, cluster)
    admit_pod(pod, old, cluster)
    _take_topology(pod, old, cluster)


def _take_topology(pod: Json, old: Json | None, cluster: Cluster) -> None:
    if old is None and (node := pod["spec"].get("nodeName")):
        take_topology(pod, node, cluster)


def _within_limits(pod: Json, old: Json | None, cluster: Cluster) -> None:
    if old is None:
        limit_ranges.check_pod(PODS, pod, cluster)
        validate_overhead(pod, cluster)


def _fill_up(pod: Json, old: Json | None, cluster: Cluster) -> None:
    spec = pod["spec"]
    for kind in ("containers", "initContainers"):
        if spec.get(kind):
            spec[kind] = [{**each, "resources": dict(each.get("resources") or {})} for each in spec[kind]]
    limit_ranges.fill_up(pod, cluster)


def _check_limits(pod: Json, old: Json | None, cluster: Cluster) -> None:
    limit_ranges.check_pod(PODS, pod, cluster)


PODS: Final = Kind(
    "", "v1", "Pod", "pods", "pod", True,
    short_names=("po",),
    categories=("all",),
    also_reset={
        "status": (("metadata", "deletionTimestamp"), ("metadata", "ownerReferences")),
    },
    subresources=(
        connection("attach", "PodAttachOptions"),
        Subresource("binding", "Binding", ("create",), tabled=False),
        Subresource("ephemeralcontainers", "Pod", STATUS_VERBS, tabled=False),
        Subresource("eviction", "Eviction", ("create",), "policy", "v1", tabled=False),
        connection("exec", "PodExecOptions"),
        Subresource("log", "Pod", ("get",)),
        connection("portforward", "PodPortForwardOptions"),
        proxy_of("Pod"),
        Subresource("resize", "Pod", STATUS_VERBS, tabled=False),
        status_of("Pod"),
    ),
    selectable={
        **NAMESPACED,
        "spec.nodeName": Selectable(("spec", "nodeName")),
        "spec.restartPolicy": Selectable(("spec", "restartPolicy")),
        "spec.schedulerName": Selectable(("spec", "schedulerName")),
        "spec.serviceAccountName": Selectable(("spec", "serviceAccountName")),
        "spec.hostNetwork": Selectable(("spec", "hostNetwork"), "false"),
        "status.phase": Selectable(("status", "phase")),
        "status.podIP": Selectable(("status", "podIPs", 0, "ip"), "", ("status", "podIP")),
        # Accepted but never set upstream, so it matches only the empty text.
        "status.podIPs": Selectable(()),
        "status.nominatedNodeName": Selectable(("status", "nominatedNodeName")),
    },
    field_aliases={"spec.host": "spec.nodeName"},
    field_set=builtin.PODS,
    delete_answer="object",
    generation=True,
    deletion_grace_s=deletion_grace_s,
    default=default_pod,
    canonicalize=default_admitted_pod,
    admit=_admit,
    admit_here=(b'"nodeName"', _take_topology),
    validate_admission=_within_limits,
    sees=(
        ("scheduling.k8s.io", "v1", "priorityclasses"), ("node.k8s.io", "v1", "runtimeclasses"), *limit_ranges.SEEN,
    ),
    prepare_create=_create_pod,
    prepare_status=_update_status,
    admit_part={"resize": (_fill_up, _check_limits)},
    prepare_part={"ephemeralcontainers": _update_ephemeral, "resize": _update_resize},
    validate=validate_pod_create,
    validate_update={
        "": validate_pod_update, "status": validate_pod_status_update, "ephemeralcontainers": validate_pod_ephemeral,
        "resize": validate_pod_resize,
    },
    warn=_warnings,
    gated=of_pods("spec"),
    warn_given=sync_warnings,
    assigned=(
        *always("spec.priority", "spec.preemptionPolicy", "spec.nodeName", "status.qosClass"),
        *when("spec.serviceAccountName", "default"), *when("spec.serviceAccount", "default"),
        *when("status.phase", "Pending"),
        (("spec", "tolerations"), lambda held: all(each.get("key") in _ADDED_TOLERATIONS for each in held)),
        (("spec", "volumes", EACH), lambda volume: volume["name"].startswith("kube-api-access-")),
        *((("spec", kind, EACH, "volumeMounts", EACH), _is_token) for kind in ("initContainers", "containers")),
    ),
    printer=Printer(
        (
            NAME,
            column("Ready", "Containers that are ready, of all."),
            column("Status", "What the pod is doing, in one word."),
            column("Restarts", "Restarts of its containers, and when the last one was."),
            AGE,
            column("IP", "Address of the pod.", 1),
            column("Node", "Node the pod is bound to.", 1),
            column("Nominated Node", "Node that makes room for the pod.", 1),
            column("Readiness Gates", "Readiness gates that hold, of all.", 1),
        ),
        print_pod,
        _row_conditions,
    ),
)  # fmt: skip

BINDINGS: Final = Kind("", "v1", "Binding", "bindings", "binding", True, verbs=("create",), stored=False)


_PODS_BINDING: Final = GroupResource("", "pods/binding", "Binding")


def bind_pod(pod: Json, binding: Json, wall_s: float) -> None:
    """Sets the node and the PodScheduled condition. Raises: StatusError 409 if it cannot be bound any more."""
    metadata, spec = pod["metadata"], pod["spec"]
    name = metadata["name"]
    wanted = binding.get("metadata") or {}
    check_preconditions(PODS, pod, wanted.get("uid"), wanted.get("resourceVersion"))
    if metadata.get("deletionTimestamp"):
        raise conflict(_PODS_BINDING, name, f"pod {name} is being deleted, cannot be assigned to a host")
    if spec.get("nodeName"):
        raise conflict(_PODS_BINDING, name, f'pod {name} is already assigned to node "{spec["nodeName"]}"')
    if spec.get("schedulingGates"):
        raise conflict(_PODS_BINDING, name, f"pod {name} has non-empty .spec.schedulingGates")
    spec["nodeName"] = binding["target"]["name"]
    if annotations := wanted.get("annotations"):
        metadata["annotations"] = {**(metadata.get("annotations") or {}), **annotations}
    if labels := wanted.get("labels"):
        metadata["labels"] = {**(metadata.get("labels") or {}), **labels}
    status = pod.setdefault("status", {})
    status.pop("nominatedNodeName", None)
    conditions = [c for c in status.get("conditions") or () if c.get("type") != "PodScheduled"]
    scheduled = {
        "type": "PodScheduled",
        "status": "True",
        "lastProbeTime": None,
        "lastTransitionTime": timestamp(wall_s),
    }
    status["conditions"] = [*conditions, scheduled]


def validate_binding(binding: Json) -> list[FieldError]:
    """A Binding's target."""
    errors: list[FieldError] = []
    target = binding.get("target") or {}
    if target.get("kind") not in (None, "", "Node"):
        errors.append(not_supported("target.kind", target["kind"], ("Node", "<empty>")))
    if not target.get("name"):
        errors.append(required("target.name"))
    return errors

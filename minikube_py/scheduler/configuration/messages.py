"""The shapes of kubescheduler.config.k8s.io/v1, in the form of the API's table of messages.

Source: k8s.io/kube-scheduler/config/v1 and k8s.io/component-base/config/v1alpha1, 0.36.2.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from minikube_py.api.schema import SCHEMA

GROUP: Final = "kubescheduler.config.k8s.io"
VERSION: Final = "v1"
API_VERSION: Final = f"{GROUP}/{VERSION}"
KIND: Final = "KubeSchedulerConfiguration"
_PACKAGE: Final = "kubescheduler/v1"
_BASE: Final = "componentbase/v1alpha1"

POINTS: Final = (
    "preFilter", "filter", "postFilter", "reserve", "preScore", "score", "preBind", "bind", "postBind", "permit",
    "preEnqueue", "queueSort", "placementGenerate", "placementScore",
)  # fmt: skip
"""The extension points, in the order in which upstream fills them in."""
MULTI_POINT: Final = "multiPoint"

_META: Final[Sequence[Any]] = (["kind", "string", 0, "e"], ["apiVersion", "string", 0, "e"])


def _row(name: str, go_type: str, flags: str = "e") -> list[Any]:
    return [name, go_type, 0, flags]


def _rows(*fields: tuple[str, ...]) -> list[list[Any]]:
    return [_row(*each) for each in fields]


_SHAPE: Final = ("shape", f"[]{_PACKAGE}.UtilizationShapePoint")
_RESOURCES: Final = ("resources", f"[]{_PACKAGE}.ResourceSpec")

ARGS: Final[dict[str, list[list[Any]]]] = {
    "DefaultPreemption": _rows(("minCandidateNodesPercentage", "*int32"), ("minCandidateNodesAbsolute", "*int32")),
    "DynamicResources": _rows(("filterTimeout", "*meta/v1.Duration", ""), ("bindingTimeout", "*meta/v1.Duration")),
    "InterPodAffinity": _rows(("hardPodAffinityWeight", "*int32"), ("ignorePreferredTermsOfExistingPods", "bool", "")),
    "NodeAffinity": _rows(("addedAffinity", "*core/v1.NodeAffinity")),
    "NodeResourcesBalancedAllocation": _rows(_RESOURCES),
    "NodeResourcesFit": _rows(
        ("ignoredResources", "[]string"),
        ("ignoredResourceGroups", "[]string"),
        ("scoringStrategy", f"*{_PACKAGE}.ScoringStrategy"),
    ),
    "PodTopologySpread": _rows(
        ("defaultConstraints", "[]core/v1.TopologySpreadConstraint"), ("defaultingType", "string")
    ),
    "VolumeBinding": _rows(("bindTimeoutSeconds", "*int64"), _SHAPE),
}
"""The argument fields of each plugin; upstream's other plugins take none."""

_MESSAGES: Final[dict[str, list[list[Any]]]] = {
    "ScoringStrategy": _rows(
        ("type", "string"),
        _RESOURCES,
        ("requestedToCapacityRatio", f"*{_PACKAGE}.RequestedToCapacityRatioParam"),
    ),
    "RequestedToCapacityRatioParam": _rows(_SHAPE),
    "UtilizationShapePoint": _rows(("utilization", "int32", ""), ("score", "int32", "")),
    "ResourceSpec": _rows(("name", "string", ""), ("weight", "int64")),
    "Plugin": _rows(("name", "string", ""), ("weight", "*int32")),
    "PluginSet": _rows(("enabled", f"[]{_PACKAGE}.Plugin"), ("disabled", f"[]{_PACKAGE}.Plugin")),
    "Plugins": _rows(*((point, f"{_PACKAGE}.PluginSet") for point in (MULTI_POINT, *POINTS))),
    "PluginConfig": _rows(("name", "string", ""), ("args", "runtime.RawExtension")),
    "KubeSchedulerProfile": _rows(
        ("schedulerName", "*string"),
        ("percentageOfNodesToScore", "*int32"),
        ("plugins", f"*{_PACKAGE}.Plugins"),
        ("pluginConfig", f"[]{_PACKAGE}.PluginConfig"),
    ),
    "ExtenderManagedResource": _rows(("name", "string", ""), ("ignoredByScheduler", "bool")),
    "ExtenderTLSConfig": _rows(
        ("insecure", "bool"),
        *((name, "string") for name in ("serverName", "certFile", "keyFile", "caFile")),
        *((name, "[]byte") for name in ("certData", "keyData", "caData")),
    ),
    "Extender": _rows(
        ("urlPrefix", "string", ""),
        *((name, "string") for name in ("filterVerb", "preemptVerb", "prioritizeVerb")),
        ("weight", "int64"),
        ("bindVerb", "string"),
        ("enableHTTPS", "bool"),
        ("tlsConfig", f"*{_PACKAGE}.ExtenderTLSConfig"),
        ("httpTimeout", "meta/v1.Duration"),
        ("nodeCacheCapable", "bool"),
        ("managedResources", f"[]{_PACKAGE}.ExtenderManagedResource"),
        ("ignorable", "bool"),
    ),
    KIND: [
        *_META,
        *_rows(
            ("parallelism", "*int32"),
            ("leaderElection", f"{_BASE}.LeaderElectionConfiguration", ""),
            ("clientConnection", f"{_BASE}.ClientConnectionConfiguration", ""),
            ("enableProfiling", "*bool"),
            ("enableContentionProfiling", "*bool"),
            ("percentageOfNodesToScore", "*int32"),
            ("podInitialBackoffSeconds", "*int64"),
            ("podMaxBackoffSeconds", "*int64"),
            ("profiles", f"[]{_PACKAGE}.KubeSchedulerProfile"),
            ("extenders", f"[]{_PACKAGE}.Extender"),
            ("delayCacheUntilActive", "bool"),
        ),
    ],
    **{f"{name}Args": [*_META, *fields] for name, fields in ARGS.items()},
}

_BASE_MESSAGES: Final[dict[str, list[list[Any]]]] = {
    "LeaderElectionConfiguration": _rows(
        ("leaderElect", "*bool", ""),
        *((name, "meta/v1.Duration", "") for name in ("leaseDuration", "renewDeadline", "retryPeriod")),
        *((name, "string", "") for name in ("resourceLock", "resourceName", "resourceNamespace")),
    ),
    "ClientConnectionConfiguration": _rows(
        *((name, "string", "") for name in ("kubeconfig", "acceptContentTypes", "contentType")),
        ("qps", "float32", ""),
        ("burst", "int32", ""),
    ),
}

SCHEMA.extend(
    {
        f"{package}.{name}": rows
        for package, of in ((_PACKAGE, _MESSAGES), (_BASE, _BASE_MESSAGES))
        for name, rows in of.items()
    }
)


def message_name(kind: str) -> str:
    return f"{_PACKAGE}.{kind}"

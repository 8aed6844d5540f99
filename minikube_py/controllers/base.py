"""What controllers share: informers by resource, event recorders, queues with workers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

import orjson

from minikube_py.api.errors import StatusError
from minikube_py.api.feature_gates import NO_GATES, FeatureGates
from minikube_py.api.service_tokens import SigningKey
from minikube_py.client.crew import Crew
from minikube_py.client.events import EventRecorder, Involved
from minikube_py.client.informer import InformerFactory
from minikube_py.client.rest import (
    ADDRESSES,
    CERTIFICATE_REQUESTS,
    CLUSTER_ROLES,
    CONFIG_MAPS,
    CONTROLLER_REVISIONS,
    CRON_JOBS,
    DAEMON_SETS,
    DEPLOYMENTS,
    ENDPOINT_SLICES,
    ENDPOINTS,
    JOBS,
    LEASES,
    NAMESPACES,
    NODES,
    PODS,
    REPLICA_SETS,
    REPLICATION_CONTROLLERS,
    SECRETS,
    SERVICE_CIDRS,
    SERVICES,
    STATEFUL_SETS,
    Object,
    ResourceRef,
    RestClient,
    delete_options,
    path_of,
)
from minikube_py.client.store import Indexer, ObjectStore
from minikube_py.client.timers import Timers
from minikube_py.client.transport import STRATEGIC_MERGE_PATCH
from minikube_py.client.workqueue import RateLimiter, RateLimitingQueue, work
from minikube_py.controllers import views
from minikube_py.controllers.autoscaling import AutoscalerConfig
from minikube_py.controllers.device_taints import DEVICE_SLICES, held_devices, placed_taints, project_slice
from minikube_py.controllers.informers import Informers, Needs, Starting
from minikube_py.controllers.views import Labels, MetaView, PodView, ServiceView, WorkloadView
from minikube_py.controllers.volume_views import (
    ATTACHMENTS,
    ATTRIBUTES_CLASSES,
    AUTOSCALERS,
    BUDGETS,
    CLAIMS,
    CSI_DRIVERS,
    DEVICE_CLAIMS,
    DEVICE_TEMPLATES,
    POD_GROUPS,
    POLICIES,
    QUOTAS,
    STORAGE_CLASSES,
    VOLUMES,
    project_whole,
)
from minikube_py.env import Clock, Rng
from minikube_py.errors import MinikubeError

if TYPE_CHECKING:
    from minikube_py.controllers.certificate_signing import SigningAuthority

logger = logging.getLogger(__name__)

V = TypeVar("V", bound=MetaView)

BY_CONTROLLER: Final = "controller"
BY_NODE: Final = "node"
BY_LABEL: Final = "label"
BY_SELECTOR: Final = "selector"
BY_CLAIM: Final = "claim"
BY_SERVICE: Final = "service"
BY_DEVICES: Final = "devices"
BY_DEVICE: Final = "device"
BY_POOL: Final = "pool"


@dataclass(frozen=True, slots=True)
class ControllerConfig:
    """Periods in seconds. Defaults are those of kube-controller-manager 1.36, except where a field says otherwise."""

    workers: int = 5
    gc_workers: int = 20
    burst_replicas: int = 500
    node_monitor_period_s: float = 5.0
    node_monitor_grace_s: float = 50.0
    node_startup_grace_s: float = 60.0
    node_eviction_rate_per_s: float = 0.1
    secondary_node_eviction_rate_per_s: float = 0.01
    large_cluster_size: int = 50
    unhealthy_zone_share: float = 0.55
    pod_gc_period_s: float = 20.0
    pod_gc_quarantine_s: float = 40.0
    terminated_pods_max: int = 12_500
    discovery_period_s: float = 30.0
    namespace_deletion_delay_s: float = 0.0
    """Upstream waits 5 s for the caches of other API servers; here there is only one."""
    expectations_timeout_s: float = 300.0
    root_ca_pem: str = ""
    """Published as kube-root-ca.crt into every namespace; "" publishes nothing."""
    autoscaler: AutoscalerConfig = field(default_factory=AutoscalerConfig)
    signing_key: SigningKey | None = None
    """Signs the tokens of service account Secrets; None leaves these Secrets as they are."""
    gates: FeatureGates = NO_GATES
    """Feature gates that are on although upstream has them off by default."""
    signing_authority: SigningAuthority | None = None
    """Signs certificate requests; None leaves them as they are."""
    enabled: tuple[str, ...] = ()
    """Controllers that run beside the default ones."""


def labels_of(view: MetaView) -> list[tuple[str, str, str]]:
    return [(view.namespace, key, value) for key, value in view.labels.items()]


def pod_claims(pod: PodView) -> list[str]:
    """Keys of the claims of its volumes, existing or not."""
    if not pod.claims and not pod.ephemeral:
        return []
    return [f"{pod.namespace}/{name}" for name in (*pod.claims, *(claim for _, claim, _ in pod.ephemeral))]


def pod_devices(pod: PodView) -> list[tuple[str, str]]:
    """The device claims it has, and the templates of those it is to get, by key."""
    if not pod.devices:
        return []
    named = [("claim", f"{pod.namespace}/{each.claim}") for each in pod.devices if each.claim]
    return named + [("template", f"{pod.namespace}/{each.template}") for each in pod.devices if each.template]


def _selector_pair(namespace: str, selector: Labels | None) -> tuple[tuple[str, str, str], ...]:
    """Index by one pair of the selector: every match has that label."""
    if not selector:
        return ()
    key = min(selector)
    return ((namespace, key, selector[key]),)


def selector_pairs(workload: WorkloadView) -> list[tuple[str, str, str]]:
    """The labels that every match must have: (namespace, key, value)."""
    return [
        (workload.namespace, requirement.key, requirement.values[0])
        for requirement in workload.selector.requirements
        if requirement.op in ("=", "in") and len(requirement.values) == 1
    ]


def _workload_selector(workload: WorkloadView) -> tuple[tuple[str, str, str], ...]:
    """One pair represents the selector; (namespace, "", "") without pairs."""
    return (min(selector_pairs(workload), default=(workload.namespace, "", "")),)


def _controller_uid(view: MetaView) -> tuple[str, ...]:
    controller = view.controller
    return (controller.uid,) if controller is not None else ()


_WORKLOAD: Final[Mapping[str, Indexer[Any]]] = {BY_SELECTOR: _workload_selector, BY_CONTROLLER: _controller_uid}


def _service_selector(service: ServiceView) -> tuple[tuple[str, str, str], ...]:
    return _selector_pair(service.namespace, service.selector)


_PROJECTIONS: Final[Mapping[ResourceRef, Callable[[Object], Any]]] = {
    PODS: views.project_pod,
    NODES: views.project_node,
    LEASES: views.LEASE,
    SERVICES: views.project_service,
    ENDPOINTS: views.project_endpoints,
    ENDPOINT_SLICES: views.project_endpoint_slice,
    REPLICATION_CONTROLLERS: views.project_replication_controller,
    REPLICA_SETS: views.project_workload,
    DEPLOYMENTS: views.project_workload,
    STATEFUL_SETS: views.project_workload,
    DAEMON_SETS: views.project_workload,
    JOBS: views.project_workload,
    CRON_JOBS: views.project_workload,
    CONTROLLER_REVISIONS: views.project_revision,
    NAMESPACES: views.project_namespace,
    CONFIG_MAPS: views.project_config_map,
    SECRETS: views.project_secret,
    CLUSTER_ROLES: project_whole,
    **dict.fromkeys((VOLUMES, CLAIMS, STORAGE_CLASSES, ATTRIBUTES_CLASSES, ATTACHMENTS, CSI_DRIVERS), project_whole),
    **dict.fromkeys((BUDGETS, DEVICE_CLAIMS, DEVICE_TEMPLATES, POLICIES), project_whole),
    DEVICE_SLICES: project_slice,
    QUOTAS: project_whole,
    AUTOSCALERS: project_whole,
    CERTIFICATE_REQUESTS: project_whole,
    SERVICE_CIDRS: project_whole,
    ADDRESSES: project_whole,
    POD_GROUPS: project_whole,
}
_INDEXERS: Final[Mapping[ResourceRef, Mapping[str, Indexer[Any]]]] = {
    PODS: {
        BY_CONTROLLER: lambda pod: (pod.controller_uid,) if pod.controller_uid else (),
        BY_NODE: lambda pod: (pod.node,) if pod.node else (),
        BY_LABEL: labels_of,
        BY_CLAIM: pod_claims,
        BY_DEVICES: pod_devices,
    },
    DEVICE_CLAIMS: {BY_CONTROLLER: _controller_uid, BY_DEVICE: held_devices},
    DEVICE_SLICES: {
        BY_POOL: lambda piece: ((piece.pool, piece.generation),) if piece.taints else (),
        BY_DEVICE: placed_taints,
    },
    REPLICATION_CONTROLLERS: _WORKLOAD,
    REPLICA_SETS: {**_WORKLOAD, BY_LABEL: labels_of},
    DEPLOYMENTS: _WORKLOAD,
    STATEFUL_SETS: _WORKLOAD,
    DAEMON_SETS: _WORKLOAD,
    JOBS: _WORKLOAD,
    CONTROLLER_REVISIONS: {BY_CONTROLLER: _controller_uid, BY_LABEL: labels_of},
    SERVICES: {BY_SELECTOR: _service_selector},
    ENDPOINT_SLICES: {BY_SERVICE: lambda piece: (piece.service_key,) if piece.service_key else ()},
}


def shared_informers(factory: InformerFactory) -> Informers:
    """Shared by the controllers: each resource is kept as its view, or as MetaView."""
    return Informers(factory, views.project_meta, _PROJECTIONS, _INDEXERS)


@dataclass(slots=True)
class ControllerContext:
    """What a controller is constructed from."""

    client: RestClient
    clock: Clock
    rng: Rng
    config: ControllerConfig
    informers: Needs
    timers: Timers
    starting: Starting
    """Of those that are made later."""
    recorders: dict[str, EventRecorder] = field(default_factory=dict)

    def recorder(self, component: str) -> EventRecorder:
        if component not in self.recorders:
            self.recorders[component] = EventRecorder(self.client, self.clock, self.rng, component)
        return self.recorders[component]


class Controller(Protocol):
    name: str

    def start(self) -> None:
        """Called once all informers are synced."""

    async def stop(self) -> None: ...

    def metrics(self) -> dict[str, float]: ...


class QueueWorkers:
    """A queue of keys and the workers that call `sync(key)`; a failed key is retried with backoff."""

    def __init__(
        self,
        context: ControllerContext,
        name: str,
        sync: Callable[[str], Any],
        workers: int | None = None,
        limiter: RateLimiter[str] | None = None,
    ) -> None:
        self.queue: RateLimitingQueue[str] = RateLimitingQueue(context.clock, limiter, timers=context.timers)
        self._name = name
        self._sync = sync
        size = workers if workers is not None else context.config.workers
        self._crew = Crew(size, lambda _: work(self.queue, self._handle, self._failed), name)
        self.syncs = 0
        self.failures = 0

    def start(self) -> None:
        self.queue.staff(self._crew)

    async def stop(self) -> None:
        self.queue.shut_down()
        await self._crew.stop()

    async def _handle(self, key: str) -> None:
        self.syncs += 1
        await self._sync(key)

    def _failed(self, key: str, error: Exception) -> None:
        self.failures += 1
        if isinstance(error, StatusError) and error.code in (404, 409):
            logger.debug("%s: %s: %s", self._name, key, error)
        elif isinstance(error, MinikubeError):
            logger.warning("%s: %s: %s", self._name, key, error or type(error).__name__)
        else:
            logger.error("%s: %s", self._name, key, exc_info=error)

    def metrics(self) -> dict[str, float]:
        stats = self.queue.stats()
        label = f'{{name="{self._name}"}}'
        return {
            f"workqueue_depth{label}": stats.depth,
            f"workqueue_adds_total{label}": stats.adds,
            f"workqueue_retries_total{label}": stats.retries,
            f"workqueue_queue_duration_seconds_sum{label}": stats.queued_s,
            f"workqueue_work_duration_seconds_sum{label}": stats.worked_s,
            f"controller_syncs_total{label}": self.syncs,
            f"controller_sync_failures_total{label}": self.failures,
        }


class QueueController:
    """Lifecycle of a controller that consists only of its queue's workers."""

    _workers: QueueWorkers

    def start(self) -> None:
        self._workers.start()

    async def stop(self) -> None:
        await self._workers.stop()

    def metrics(self) -> dict[str, float]:
        return self._workers.metrics()


def orphans_for(store: ObjectStore[V], workload: WorkloadView) -> list[V]:
    """Objects that `workload` may select and that have no controller. The store is indexed by label."""
    if not workload.selector:
        return []
    pairs = selector_pairs(workload)
    if pairs:
        rarest = min(pairs, key=lambda pair: store.count_by_index(BY_LABEL, pair))
        found = store.by_index(BY_LABEL, rarest)
    else:
        found = [view for view in store if view.namespace == workload.namespace]
    return [view for view in found if view.controller is None and workload.selector.matches(view.labels)]


def selecting(store: ObjectStore[WorkloadView], view: MetaView) -> list[WorkloadView]:
    """The workloads whose selector matches the labels of `view`."""
    pairs = [*labels_of(view), (view.namespace, "", "")]
    return [each for pair in pairs for each in store.by_index(BY_SELECTOR, pair) if each.selects(view.labels)]


def involved(kind: str, view: MetaView, api_version: str = "v1") -> Involved:
    return Involved(kind, view.namespace, view.name, view.uid, api_version, view.resource_version)


def has_cause(error: StatusError, cause: str) -> bool:
    """Whether `cause` is a reason in details.causes, for example NamespaceTerminating."""
    causes = (error.details or {}).get("causes") or ()
    return any(entry.get("reason") == cause for entry in causes)


def disruption(reason: str, message: str, since: str) -> Object:
    """The condition. `since`: its lastTransitionTime."""
    return {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": reason,
        "message": message,
        "lastTransitionTime": since,
    }


async def delete_pod(
    client: RestClient, namespace: str, name: str, uid: str, status: Object | None, grace_s: int | None
) -> None:
    """Once its status says why; `status`: None for no change. `grace_s`: None for its own. Raises: StatusError."""
    path = path_of(PODS, namespace, name)
    if status is not None:
        patch = orjson.dumps({"metadata": {"uid": uid}, "status": status})
        await client.raw("PATCH", f"{path}/status", None, patch, STRATEGIC_MERGE_PATCH)
    await client.raw("DELETE", path, None, orjson.dumps(delete_options(uid, "", grace_s, "")))

"""The scheduling framework: statuses, cycle state, cluster events, and the plugin interfaces.

A plugin is any object with a `name` and the methods of the points it takes part in (KEP-624; the points are those of
kubernetes.io/docs/concepts/scheduling-eviction/scheduling-framework). Filter and Score have two forms. The per-node
form (`filter`, `score`) looks at one `NodeInfo`; the vectorised form (`filter_nodes`, `score_nodes`) looks at many
nodes as numpy columns. The framework uses the available form, or the cheaper of both. If a plugin has both, they must
agree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, IntEnum, IntFlag
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from minikube_py.client.informer import Informer
    from minikube_py.client.rest import Object, ResourceRef
    from minikube_py.env import Clock, Rng
    from minikube_py.scheduler.columns import NodeColumns, Nodes
    from minikube_py.scheduler.dry_run import DryRuns
    from minikube_py.scheduler.groups.state import Groups
    from minikube_py.scheduler.kinds import LentKinds, NeededKind
    from minikube_py.scheduler.metrics import Labels
    from minikube_py.scheduler.objects import NodeInfo, PodInfo, QueuedPodInfo

BoolArray = npt.NDArray[np.bool_]
IntArray = npt.NDArray[np.int64]

OF_NO_PODS, OF_REQUESTS = "nothing", "requests"
INT64_MIN, INT64_MAX = -(1 << 63), (1 << 63) - 1
MAX_NODE_SCORE = 100


class Code(IntEnum):
    """A plugin's result. The values are upstream's."""

    SUCCESS = 0
    ERROR = 1
    UNSCHEDULABLE = 2
    """Preemption may help."""
    UNSCHEDULABLE_AND_UNRESOLVABLE = 3
    """Preemption on this node cannot help."""
    WAIT = 4
    """From Permit only."""
    SKIP = 5
    """PreFilter and PreScore: skip the paired Filter or Score. Bind: not handled here."""
    PENDING = 6
    """The plugin will report when the pod may be tried again, without backoff."""


CODE_NAMES = {
    Code.SUCCESS: "Success",
    Code.ERROR: "Error",
    Code.UNSCHEDULABLE: "Unschedulable",
    Code.UNSCHEDULABLE_AND_UNRESOLVABLE: "UnschedulableAndUnresolvable",
    Code.WAIT: "Wait",
    Code.SKIP: "Skip",
    Code.PENDING: "Pending",
}


class Status:
    """A code, its reasons, and the plugin that returned it. A plugin may return None for Success."""

    __slots__ = ("code", "plugin", "reasons")

    def __init__(self, code: Code, *reasons: str, plugin: str = "") -> None:
        self.code = code
        self.reasons: tuple[str, ...] = reasons
        self.plugin = plugin

    @property
    def is_success(self) -> bool:
        return self.code is Code.SUCCESS

    @property
    def is_rejected(self) -> bool:
        return self.code in _REJECTED

    @property
    def message(self) -> str:
        return ", ".join(self.reasons)

    def by(self, plugin: str) -> Status:
        """The same status, attributed to `plugin` unless already attributed."""
        return self if self.plugin else Status(self.code, *self.reasons, plugin=plugin)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Status) and (self.code, self.reasons) == (other.code, other.reasons)

    def __hash__(self) -> int:
        return hash((self.code, self.reasons))

    def __repr__(self) -> str:
        return f"Status({CODE_NAMES[self.code]}, {self.message!r}, plugin={self.plugin!r})"


_REJECTED = frozenset((Code.UNSCHEDULABLE, Code.UNSCHEDULABLE_AND_UNRESOLVABLE, Code.PENDING))
SUCCESS = Status(Code.SUCCESS)
SKIP = Status(Code.SKIP)


class PluginError(Exception):
    """A plugin failed (an Error status or an exception); the pod is retried after its error backoff."""


class CycleState:
    """Data that plugins share during one pod's cycle, by key.

    `skip_filter` and `skip_score`: the plugins that PreFilter and PreScore skipped."""

    __slots__ = ("_data", "skip_filter", "skip_score")

    def __init__(self) -> None:
        self._data: dict[str, Any] | None = None
        self.skip_filter: frozenset[str] = frozenset()
        self.skip_score: frozenset[str] = frozenset()

    def write(self, key: str, value: Any) -> None:
        if self._data is None:
            self._data = {}
        self._data[key] = value

    def read(self, key: str) -> Any:
        """Raises: KeyError."""
        if self._data is None:
            raise KeyError(key)
        return self._data[key]

    def delete(self, key: str) -> None:
        if self._data is not None:
            self._data.pop(key, None)

    def clone(self) -> CycleState:
        """A copy that shares the values."""
        copy = CycleState()
        copy._data = dict(self._data) if self._data else None
        copy.skip_filter = self.skip_filter
        copy.skip_score = self.skip_score
        return copy


class PreFilterResult(NamedTuple):
    """`node_names`: the only candidate nodes; None for all."""

    node_names: frozenset[str] | None = None


class Normalize(NamedTuple):
    """The usual NormalizeScore, as data: scores become `100 * score // max`, or 100 minus that if `reverse`.

    If the maximum is 0, all become 0, or 100 if `reverse`. This form can be updated incrementally."""

    reverse: bool = False

    def apply(self, scores: IntArray) -> IntArray:
        top = int(scores.max()) if scores.size else 0
        if top <= 0:
            return np.full_like(scores, MAX_NODE_SCORE) if self.reverse else scores
        scaled = scores * MAX_NODE_SCORE // top
        return MAX_NODE_SCORE - scaled if self.reverse else scaled

    def apply_one(self, score: int, top: int) -> int:
        """`apply` for one of several scores whose maximum is `top`."""
        scaled = score * MAX_NODE_SCORE // top if top > 0 else 0
        return MAX_NODE_SCORE - scaled if self.reverse else scaled


class PermitResult(NamedTuple):
    """`timeout_s` counts only where `status` is Wait."""

    status: Status | None = None
    timeout_s: float = 0.0


class PostFilterResult(NamedTuple):
    """`nominated_node`: the node being vacated; "" clears a nomination, None leaves it unchanged."""

    nominated_node: str | None = None


class Action(IntFlag):
    """What happened to an object."""

    ADD = 1
    DELETE = 2
    UPDATE_NODE_ALLOCATABLE = 4
    UPDATE_NODE_LABEL = 8
    UPDATE_NODE_TAINT = 16
    UPDATE_NODE_CONDITION = 32
    UPDATE_NODE_ANNOTATION = 64
    UPDATE_POD_LABEL = 128
    UPDATE_POD_SCALE_DOWN = 256
    UPDATE_POD_TOLERATION = 512
    UPDATE_POD_SCHEDULING_GATES_ELIMINATED = 1024
    UPDATE_OTHER = 2048
    UPDATE_POD_GENERATED_RESOURCE_CLAIM = 4096
    UPDATE_NODE_DECLARED_FEATURE = 8192
    UPDATE = 4 | 8 | 16 | 32 | 64 | 128 | 256 | 512 | 1024 | 2048 | 4096 | 8192
    ALL = 1 | 2 | UPDATE


NODE = "Node"
POD = "Pod"
"""Any pod; events themselves use ASSIGNED_POD or UNSCHEDULED_POD."""
ASSIGNED_POD = "AssignedPod"
UNSCHEDULED_POD = "UnscheduledPod"
WILDCARD = "*"

_ACTION_NAMES = {
    Action.ADD: "Add",
    Action.DELETE: "Delete",
    Action.UPDATE_NODE_ALLOCATABLE: "UpdateNodeAllocatable",
    Action.UPDATE_NODE_LABEL: "UpdateNodeLabel",
    Action.UPDATE_NODE_TAINT: "UpdateNodeTaint",
    Action.UPDATE_NODE_CONDITION: "UpdateNodeCondition",
    Action.UPDATE_NODE_ANNOTATION: "UpdateNodeAnnotation",
    Action.UPDATE_NODE_DECLARED_FEATURE: "UpdateNodeDeclaredFeature",
    Action.UPDATE_POD_LABEL: "UpdatePodLabel",
    Action.UPDATE_POD_SCALE_DOWN: "UpdatePodScaleDown",
    Action.UPDATE_POD_TOLERATION: "UpdatePodToleration",
    Action.UPDATE_POD_SCHEDULING_GATES_ELIMINATED: "UpdatePodSchedulingGatesEliminated",
    Action.UPDATE_POD_GENERATED_RESOURCE_CLAIM: "UpdatePodGeneratedResourceClaim",
    Action.UPDATE_OTHER: "Update",
    Action.UPDATE: "Update",
    Action.ALL: "All",
}


class ClusterEvent(NamedTuple):
    """A kind of change. A plugin's registration may combine several actions."""

    resource: str
    action: Action
    custom_label: str = ""

    @property
    def label(self) -> str:
        return self.custom_label or self.resource + _ACTION_NAMES.get(self.action, "Update")

    def matches(self, incoming: ClusterEvent) -> bool:
        """Whether this registration covers `incoming`."""
        if self.resource == WILDCARD or incoming.resource == WILDCARD:
            return True
        if not self.action & incoming.action:
            return False
        return self.resource == incoming.resource or (
            self.resource == POD and incoming.resource in (ASSIGNED_POD, UNSCHEDULED_POD)
        )


class ClusterChange(NamedTuple):
    """A concrete change: `old` and `new` are NodeInfo or PodInfo or None; `node`: where room may have been freed."""

    event: ClusterEvent
    old: Any = None
    new: Any = None
    node: str = ""


EVENT_FORCE_ACTIVATE = ClusterEvent(WILDCARD, Action.ALL, "ForceActivate")
EVENT_UNSCHEDULABLE_TIMEOUT = ClusterEvent(WILDCARD, Action.ALL, "UnschedulableTimeout")
EVENT_ASSIGNED_POD_ADD = ClusterEvent(ASSIGNED_POD, Action.ADD)
EVENT_ASSIGNED_POD_DELETE = ClusterEvent(ASSIGNED_POD, Action.DELETE)
EVENT_UNSCHEDULED_POD_ADD = ClusterEvent(UNSCHEDULED_POD, Action.ADD)
EVENT_UNSCHEDULED_POD_UPDATE = ClusterEvent(UNSCHEDULED_POD, Action.UPDATE_OTHER)
EVENT_NODE_ADD = ClusterEvent(NODE, Action.ADD)
EVENT_NODE_DELETE = ClusterEvent(NODE, Action.DELETE)


class QueueingHint(IntEnum):
    SKIP = 0
    QUEUE = 1


HintFunction = Callable[["PodInfo", ClusterChange], QueueingHint]
"""(the unschedulable pod, the change) -> whether to retry the pod. An exception counts as QUEUE."""


def own_update(pod: PodInfo, change: ClusterChange) -> QueueingHint:
    """QUEUE if the unschedulable pod itself changed."""
    new = change.new
    return QueueingHint.QUEUE if new is not None and new.uid == pod.uid else QueueingHint.SKIP


class EventRegistration(NamedTuple):
    """`hint` None: QUEUE, or, for a node-local plugin, whether the pod now passes every filter on the changed node."""

    event: ClusterEvent
    hint: HintFunction | None = None


EVERYTHING = EventRegistration(ClusterEvent(WILDCARD, Action.ALL))


class DimensionKind(Enum):
    """The source of a node's number."""

    FREE = "free"
    """A resource's free amount, as in the columns; for `pods`, how many more fit."""
    NUMBER = "number"
    """A label that parses as an int64."""
    TEXT = "text"
    """A label, compared for equality."""


class Dimension(NamedTuple):
    """`name`: the resource or label."""

    kind: DimensionKind
    name: str


class Bound(NamedTuple):
    """`low <= number <= high`; for a text: one of `values`."""

    dimension: Dimension
    low: int = INT64_MIN
    high: int = INT64_MAX
    values: frozenset[str] | None = None


class Plugin(Protocol):
    """Common to all plugins.

    `node_local` (class attribute, False if absent): filter and score depend only on the pod and that node, and
    PreFilter and PreScore only on the pod. The framework then caches results per pod signature and recomputes only
    changed nodes. Such a plugin must have `sign_pod`, unless it reads only `pod.spec` of the pod. Values across nodes
    (a maximum to normalise by) belong in `normalize`.

    `of_pods` (class attribute, optional): what the vectorised filter reads of a node's pods: OF_NO_PODS, or OF_REQUESTS
    for requested and free amounts. Preemption can then run it on many nodes at once, without some of their pods.
    """

    @property
    def name(self) -> str: ...


@runtime_checkable
class SignPlugin(Protocol):
    def sign_pod(self, pod: PodInfo) -> object:
        """A hashable of all that the plugin reads besides `pod.spec`; None if unknown."""


@runtime_checkable
class EnqueueExtensions(Protocol):
    def events_to_register(self) -> Sequence[EventRegistration]: ...


@runtime_checkable
class NeedsKinds(Protocol):
    def kinds_needed(self, pod: PodInfo) -> Sequence[NeededKind]:
        """Kinds besides pods and nodes that must be synced before the pod is tried; empty for most pods."""


@runtime_checkable
class PreEnqueuePlugin(Protocol):
    """`gate_key(pod) -> hashable`, if present: the hints answer alike for rejected pods with equal keys."""

    def pre_enqueue(self, pod: PodInfo) -> Status | None: ...


@runtime_checkable
class QueueSortPlugin(Protocol):
    def less(self, a: QueuedPodInfo, b: QueuedPodInfo) -> bool:
        """True if `a` goes first. `sort_key(queued) -> comparable` is used instead if present."""


@runtime_checkable
class PreFilterPlugin(Protocol):
    def pre_filter(
        self, state: CycleState, pod: PodInfo, nodes: NodeColumns
    ) -> tuple[PreFilterResult | None, Status | None]: ...


@runtime_checkable
class PreFilterExtensions(Protocol):
    """Updates PreFilter's state while preemption tries removing or restoring pods."""

    def add_pod(self, state: CycleState, pod: PodInfo, added: PodInfo, node: NodeInfo) -> Status | None: ...

    def remove_pod(self, state: CycleState, pod: PodInfo, removed: PodInfo, node: NodeInfo) -> Status | None: ...


@runtime_checkable
class FilterPlugin(Protocol):
    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None: ...


@runtime_checkable
class VectorFilterPlugin(Protocol):
    def filter_nodes(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> BoolArray | None:
        """True where the pod passes; None if it passes everywhere."""

    def reject_codes(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> tuple[IntArray, Callable[[int], Status]]:
        """For nodes rejected by `filter_nodes`: a code each, and the meaning of the codes."""


@runtime_checkable
class BoundedFilterPlugin(Protocol):
    def bounds(self, pod: PodInfo) -> Iterable[Bound]:
        """Bounds that hold for every node that passes, and perhaps for others; an index may search by them."""


@runtime_checkable
class PostFilterPlugin(Protocol):
    def post_filter(
        self, state: CycleState, pod: PodInfo, diagnosis: Diagnosis
    ) -> tuple[PostFilterResult | None, Status]: ...


@runtime_checkable
class PreScorePlugin(Protocol):
    def pre_score(self, state: CycleState, pod: PodInfo, nodes: NodeColumns) -> Status | None: ...


@runtime_checkable
class ScorePlugin(Protocol):
    """`normalize` (attribute, optional): a `Normalize`. Otherwise `normalize_scores` is run if present. `bounded`
    (attribute, optional): True promises scores of 0 to 100; other plugins' scores are checked."""

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        """0 to 100 after normalisation."""


@runtime_checkable
class VectorScorePlugin(Protocol):
    def score_nodes(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> IntArray | None:
        """One score per node; None for 0 everywhere."""


@runtime_checkable
class CeilingScorePlugin(Protocol):
    """Only for scores without normalisation. Both forms must agree."""

    def score_ceiling(self, node: NodeInfo) -> int:
        """An upper bound of any pod's score on the current node."""

    def score_ceilings(self, nodes: Nodes) -> IntArray:
        """The same for many nodes."""


@runtime_checkable
class NormalizeScorePlugin(Protocol):
    def normalize_scores(self, state: CycleState, pod: PodInfo, scores: IntArray) -> IntArray:
        """`scores`: of the nodes that passed the filters."""


@runtime_checkable
class ReservePlugin(Protocol):
    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None: ...

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        """Must be idempotent, and allowed without a preceding `reserve`."""


@runtime_checkable
class PermitPlugin(Protocol):
    def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> PermitResult: ...


@runtime_checkable
class PreBindPlugin(Protocol):
    """`has_pre_bind(state, pod, node_name)`, if present, says whether the pod needs PreBind. `parallel_pre_bind` (class
    attribute, False if absent): it may run beside its neighbours in the order of plugins."""

    async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None: ...


@runtime_checkable
class BindPlugin(Protocol):
    async def bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None: ...


@runtime_checkable
class PostBindPlugin(Protocol):
    def post_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> None: ...


PluginFactory = Callable[[Mapping[str, Any], "Handle"], Plugin]
"""(args of the plugin's pluginConfig, handle) -> plugin."""


class Handle(Protocol):
    """What the scheduler provides to its plugins, in their constructors too."""

    @property
    def columns(self) -> NodeColumns: ...

    @property
    def client(self) -> Any:
        """The scheduler's RestClient; None in a dry run."""

    def informer(self, resource: ResourceRef, project: Callable[[Object], Any]) -> Informer[Any]:
        """A resource's objects, for a plugin to request at construction; synced before the first pod is placed.
        `project` must be a module-level function, so that all callers share the informer."""

    def polled(self, resource: ResourceRef, project: Callable[[Object], Any]) -> Any:
        """The `plugin_informers.Polled` of a resource that cannot be watched; `project` as for `informer`."""

    @property
    def clock(self) -> Clock: ...

    @property
    def kinds(self) -> LentKinds:
        """The informers of all other kinds."""

    @property
    def groups(self) -> Groups:
        """Pod groups and their assigned pods."""

    def pod(self, key: str) -> PodInfo | None:
        """The pod `namespace/name`; None if unknown or finished."""

    def tell(self, pod: PodInfo, reason: str, message: str) -> None:
        """Emits an event of type Normal about the pod."""

    def allow_waiting_pod(self, uid: str, plugin: str) -> bool:
        """False if no such pod waits at Permit."""

    def reject_waiting_pod(self, uid: str, plugin: str, message: str) -> bool: ...

    def activate(self, pods: Iterable[PodInfo], *, after_error: bool = False) -> None:
        """Moves pods to the active queue. `after_error`: a request for them failed, so they wait."""

    @property
    def rng(self) -> Rng: ...

    def dry_run(self, pod: PodInfo) -> DryRuns | None:
        """Trials of nodes without some of their pods; None if PreFilter rejects the pod."""

    def preempt(self, pod: PodInfo, node_name: str, victims: Sequence[PodInfo]) -> None:
        """Evicts the victims asynchronously."""

    def is_preempting(self, uid: str) -> bool:
        """Whether evictions for that pod are in progress."""

    def count(self, metric: str, labels: Labels = ()) -> None:
        """Increments a counter."""


@dataclass(slots=True)
class Diagnosis:
    """Why no node was found.

    `reasons`: with node counts. `unschedulable_slots`: the nodes where preemption might help; on all others it
    cannot."""

    node_count: int
    reasons: dict[str, int] = field(default_factory=dict)
    unschedulable_slots: list[int] = field(default_factory=list)
    unschedulable_plugins: set[str] = field(default_factory=set)
    pending_plugins: set[str] = field(default_factory=set)
    pre_filter_message: str = ""
    post_filter_message: str = ""

    def add_plugin(self, status: Status) -> None:
        if status.plugin and status.is_rejected:
            self.unschedulable_plugins.add(status.plugin)
            if status.code is Code.PENDING:
                self.pending_plugins.add(status.plugin)

    def message(self) -> str:
        """The condition's message, in upstream's format."""
        text = f"0/{self.node_count} nodes are available:"
        if self.pre_filter_message:
            text += f" {self.pre_filter_message}."
        elif self.reasons:
            counted = sorted(f"{count} {reason}" for reason, count in self.reasons.items())
            text += f" {', '.join(counted)}."
        if self.post_filter_message:
            text += f" {self.post_filter_message}"
        return text


class FitError(Exception):
    """The pod fits no node."""

    def __init__(self, diagnosis: Diagnosis, code: Code = Code.UNSCHEDULABLE) -> None:
        super().__init__(diagnosis.message())
        self.diagnosis = diagnosis
        self.code = code

    @property
    def message(self) -> str:
        return self.diagnosis.message()


class NoNodesAvailable(Exception):
    """The cluster has no nodes."""

    message = "no nodes available to schedule pods"

    def __init__(self) -> None:
        super().__init__(self.message)

"""The configuration of the fake kubelets: which nodes, how fast pods start and end, how often nodes report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from minikube_py.env import Rng
from minikube_py.errors import RequestError

if TYPE_CHECKING:
    from minikube_py.stages.files import Stages

RUN_SECONDS: Final = "minikube-py.io/run-seconds"
"""Annotation of a pod: it ends this long after its start."""
EXIT_CODE: Final = "minikube-py.io/exit-code"
"""Annotation of a pod that ends: with this code of its containers, and, unless that is 0, as Failed."""

HASH_END: Final = 1 << 32
SLOTS_MAX: Final = 64
"""Maximum number of slots; small enough for normal address blocks."""

DEFAULT_CAPACITY: Final[Mapping[str, str]] = {"cpu": "32", "memory": "256Gi", "ephemeral-storage": "1Ti", "pods": "110"}


class NodeSpec(NamedTuple):
    """A node to register. `allocatable` None: the capacity. Quantities as the API writes them."""

    name: str
    capacity: Mapping[str, str] = DEFAULT_CAPACITY
    labels: Mapping[str, str] = {}
    taints: tuple[Mapping[str, Any], ...] = ()
    annotations: Mapping[str, str] = {}
    allocatable: Mapping[str, str] | None = None


def numbered_nodes(count: int, prefix: str = "node-", first: int = 0, shape: NodeSpec | None = None) -> list[NodeSpec]:
    """`count` nodes of one shape: node-0, node-1, ..."""
    base = shape if shape is not None else NodeSpec("")
    return [base._replace(name=f"{prefix}{number}") for number in range(first, first + count)]


@dataclass(frozen=True, slots=True)
class Delay:
    """Uniform in [low_s, high_s]; exponential: mean `low_s`, cut at `high_s`."""

    low_s: float = 0.0
    high_s: float = 0.0
    distribution: Literal["uniform", "exponential"] = "uniform"

    def __post_init__(self) -> None:
        if not 0 <= self.low_s <= self.high_s:
            raise RequestError(f"a delay needs 0 <= low <= high, not {self.low_s}..{self.high_s} s")

    def draw_s(self, rng: Rng) -> float:
        if self.high_s <= 0:
            return 0.0
        if self.distribution == "exponential":
            return min(self.high_s, rng.expovariate(1 / self.low_s)) if self.low_s > 0 else 0.0
        return rng.uniform(self.low_s, self.high_s)


@dataclass(frozen=True, slots=True)
class Share:
    """The part of all nodes that one process plays: those whose name's CRC-32 falls into its slice of [0, 2^32)."""

    index: int = 0
    count: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.index < self.count:
            raise RequestError(f"a share needs 0 <= index < count, not {self.index} of {self.count}")

    @property
    def bounds(self) -> tuple[int, int]:
        return HASH_END * self.index // self.count, HASH_END * (self.index + 1) // self.count


@dataclass(frozen=True, slots=True)
class KubeletConfig:
    """`manage_all_nodes`: also play nodes created by others, but never those of other slots. Beyond `heartbeat_nodes`,
    the periods are stretched in proportion, so that the heartbeat rate is bounded."""

    nodes: tuple[NodeSpec, ...] = ()
    manage_all_nodes: bool = True
    share: Share = field(default_factory=Share)
    slot: int | None = None
    """The number of this process; each slot has `slot_nodes` nodes; see `slots`."""
    slot_nodes: int = 0
    start_delay: Delay = field(default_factory=Delay)
    stop_delay: Delay = field(default_factory=Delay)
    complete_after: Delay | None = None
    """For pods whose restartPolicy is not Always; None: they run until deleted, but for those of Jobs."""
    job_run: Delay = field(default_factory=lambda: Delay(1.0, 1.0))
    """Default run time of Job pods."""
    renew_interval_s: float = 10.0
    lease_duration_s: int = 40
    status_interval_s: float = 300.0
    down: frozenset[str] = frozenset()
    """Nodes that are silent from the start."""
    heartbeats: bool = True
    """False: nodes neither renew Leases nor repeat their status. The node lifecycle controller must be configured for
    that too."""
    heartbeat_nodes: int = 5000
    writes_at_once: int = 64
    pod_cidr: str = "10.0.0.0/8"
    service_cidr: str = "10.0.0.0/24"
    """The API server's service network, excluded for pods."""
    node_cidr: str = "172.16.0.0/12"
    kubelet_version: str = "v1.36.2"
    stages: Stages | None = None
    """Stages of objects: see `making.make_kubelet`."""

    @property
    def bare_nodes(self) -> bool:
        """Stages write the nodes' status."""
        return self.stages is not None and self.stages.for_nodes

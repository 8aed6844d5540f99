"""The configuration of a control plane, in one process or several, and the locations of its files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from minikube_py.api.feature_gates import NO_GATES, FeatureGates
from minikube_py.control_plane.auditing import NO_AUDIT, Auditing
from minikube_py.control_plane.etcd_behind import EtcdBehind
from minikube_py.kubelet.config import NodeSpec, numbered_nodes
from minikube_py.scheduler.configuration.chosen import DEFAULT_SCHEDULER, ChosenScheduler
from minikube_py.store.room import QUOTA_BYTES, SEGMENTS_RESERVED
from minikube_py.wal.segment import SEGMENT_BYTES

LOOPBACK = "127.0.0.1"
DEFAULT_PORT = 6443
COMPONENTS = ("scheduler", "controllers", "kubelet")


@dataclass(frozen=True, slots=True)
class ControlPlaneConfig:
    """`port`: 0 any free one; None 6443, or any free one if that is taken. `kubeconfig`: None for one in `data_dir`.

    `shapes` are the fake nodes; without them there are `nodes` of the default shape. Without `components` there are
    only store and API server. `seed`: of the scheduler's tie-breaking; `matcher`: as in `SchedulerConfig`;
    `structures`: custom structures for indexes. `enabled_plugins`: of admission, as of `ApiServer`;
    `enabled_controllers`: as in `ControllerConfig`. `chosen`: the scheduler, whose plugins all share;
    `more_schedulers`: (name, file) of additional ones. `names`: further host names and addresses the server's
    certificate is for. `members`: of the store, None for as many as `data_dir` holds; with
    several, or several of another role, each is a separate process. `restore`: a snapshot with which a new store
    begins. `etcd_port`: of etcd's API, of the first member where there are several, the next port of the next; None: it
    is not served. `etcd_http_port`: likewise of its gateway. `quota_bytes`, `reserve_bytes`, `retain_s`: of each
    store member. `etcd`: the store is this one, and there are no members. `gates`: upstream feature gates to enable
    that are off by default. `stages`: files and folders of stages by which pods and nodes live. `audit`: of API
    requests."""

    data_dir: Path
    host: str = LOOPBACK
    port: int | None = None
    kubeconfig: Path | None = None
    nodes: int = 0
    shapes: tuple[NodeSpec, ...] = ()
    seed: int | None = None
    matcher: str = "columns"
    structures: tuple[str, ...] = ()
    enabled_plugins: tuple[str, ...] = ()
    enabled_controllers: tuple[str, ...] = ()
    chosen: ChosenScheduler = DEFAULT_SCHEDULER
    more_schedulers: tuple[tuple[str, Path], ...] = ()
    components: tuple[str, ...] = COMPONENTS
    names: tuple[str, ...] = field(default=())
    members: int | None = None
    apiservers: int = 1
    schedulers: int = 1
    controllers: int = 1
    restore: Path | None = None
    etcd_port: int | None = None
    etcd_http_port: int | None = None
    etcd: EtcdBehind | None = None
    quota_bytes: int = QUOTA_BYTES
    reserve_bytes: int = SEGMENTS_RESERVED * SEGMENT_BYTES
    retain_s: float | None = None
    gates: FeatureGates = NO_GATES
    stages: tuple[Path, ...] = ()
    audit: Auditing = NO_AUDIT

    @property
    def node_specs(self) -> tuple[NodeSpec, ...]:
        return self.shapes or tuple(numbered_nodes(self.nodes))

    @property
    def kubeconfig_file(self) -> Path:
        return self.kubeconfig or self.data_dir / "kubeconfig"

    @property
    def pki_folder(self) -> Path:
        return self.data_dir / "pki"

    @property
    def accounts_key_file(self) -> Path:
        """Signs the tokens of service accounts."""
        return self.pki_folder / "service-accounts.key"

    @property
    def tokens_folder(self) -> Path:
        return self.data_dir / "tokens"

    @property
    def member_folder(self) -> Path:
        """The store member's folder, with a separate lock: the member may be a separate process."""
        return self.data_dir / "member"

    @property
    def roles_folder(self) -> Path:
        """Files that the supervisor gives to its children: kubeconfigs, shapes; and their logs."""
        return self.data_dir / "roles"


Step = Callable[[str, str], None]
"""Called for each part that became ready: its name and a few words."""

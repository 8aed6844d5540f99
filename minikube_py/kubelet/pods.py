"""Per-pod state of the kubelets, and the next action."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from sys import intern
from typing import Any, Final

from minikube_py.api.memo import Bounded
from minikube_py.client.rest import Object
from minikube_py.client.timers import Timer
from minikube_py.kubelet.config import EXIT_CODE, RUN_SECONDS
from minikube_py.kubelet.pod_status import Behind, Containers, Granted, behind, containers_of, granted_of, is_ready

TERMINAL: Final = frozenset(("Succeeded", "Failed"))


@dataclass(slots=True, eq=False)
class PodView:
    """`grace_s`: the grace of a pod that is being deleted. `containers` are kept while they may be needed: until it
    runs, or longer if it will finish."""

    uid: str
    namespace: str
    name: str
    node: str
    phase: str
    ready: bool
    deleting: bool
    grace_s: int
    ip: str
    started: str
    host_network: bool
    never_restarts: bool
    run_s: float | None
    exit_code: int
    of_job: bool
    held: bool
    """By a finalizer: its end must be reported before deletion."""
    containers: Containers
    behind: Behind
    generation: int
    granted: Granted
    deadline_s: int | None
    """After which a running pod fails."""

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def terminal(self) -> bool:
        return self.phase in TERMINAL


_containers: Final = Bounded()


def _shared(containers: Containers) -> Containers:
    return _containers(containers, containers)


def project_pod(obj: Object) -> PodView:
    metadata, spec, status = obj["metadata"], obj["spec"], obj.get("status") or {}
    annotations = metadata.get("annotations")
    phase = status.get("phase", "")
    return PodView(
        intern(metadata["uid"]),
        intern(metadata.get("namespace", "")),
        intern(metadata["name"]),
        intern(spec.get("nodeName", "")),
        intern(phase),
        is_ready(status),
        "deletionTimestamp" in metadata,
        metadata.get("deletionGracePeriodSeconds") or 0,
        status.get("podIP", ""),
        status.get("startTime") or "",
        bool(spec.get("hostNetwork")),
        spec.get("restartPolicy", "Always") != "Always",
        _run_s(annotations[RUN_SECONDS]) if annotations and RUN_SECONDS in annotations else None,
        _exit_code(annotations[EXIT_CODE]) if annotations and EXIT_CODE in annotations else 0,
        any(owner.get("kind") == "Job" for owner in metadata.get("ownerReferences") or ()),
        bool(metadata.get("finalizers")),
        _shared(containers_of(spec)) if phase not in TERMINAL else (),
        behind(spec, status) if phase == "Running" else Behind.NOTHING,
        metadata.get("generation") or 0,
        granted_of(status["extendedResourceClaimStatus"]) if "extendedResourceClaimStatus" in status else frozenset(),
        spec.get("activeDeadlineSeconds"),
    )


def _run_s(text: Any) -> float | None:
    """Invalid values count as not given."""
    try:
        seconds = float(text)
    except (TypeError, ValueError):
        return None
    return seconds if 0 <= seconds < 1e9 else None


def _exit_code(text: Any) -> int:
    """Invalid exit codes count as not given."""
    return int(text) if text.isascii() and text.isdigit() and int(text[:9]) < 256 else 0


class Stage(IntEnum):
    STARTING = 0
    RUNNING = 1
    STOPPING = 2
    """Its end is written or being written."""


@dataclass(slots=True, eq=False)
class PlayedPod:
    """`timer`: its next action. `ip` is from its node's block, or ""."""

    uid: str
    stage: Stage
    ip: str = ""
    timer: Timer | None = None
    since: dict[str, str] | None = None
    """When its ephemeral containers began, by name."""
    deadline: Timer | None = None

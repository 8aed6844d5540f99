"""A pod's columns in `kubectl get pods`: READY, STATUS and RESTARTS, by the rules of upstream's printer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from minikube_py.api.errors import Json

NONE: Final = "<none>"
NODE_LOST: Final = "NodeLost"


def print_pod(pod: Json, age: Callable[[Any], str]) -> list[Any]:
    """The nine cells of a pod's row."""
    metadata = pod["metadata"]
    spec = pod.get("spec") or {}
    status = pod.get("status") or {}
    if status.get("initContainerStatuses") or spec.get("initContainers"):
        ready, total, reason, restarts, last = _with_init_containers(spec, status)
    else:
        ready, reason, restarts, last = _containers(status, _phase_reason(status), 0, "", 0)
        total = len(spec.get("containers") or ())
    phase = status.get("phase")
    if metadata.get("deletionTimestamp"):
        if status.get("reason") == NODE_LOST:
            reason = "Unknown"
        elif phase not in ("Failed", "Succeeded"):
            reason = "Terminating"
    restarts_text = f"{restarts} ({age(last)} ago)" if restarts and last else str(restarts)
    addresses = status.get("podIPs")
    gates = spec.get("readinessGates")
    return [
        metadata["name"],
        f"{ready}/{total}",
        reason,
        restarts_text,
        age(metadata.get("creationTimestamp")),
        (addresses[0].get("ip") if addresses else status.get("podIP")) or NONE,
        spec.get("nodeName") or NONE,
        status.get("nominatedNodeName") or NONE,
        _gates_text(gates, status) if gates else NONE,
    ]


def _phase_reason(status: Json) -> str:
    for condition in status.get("conditions") or ():
        if condition.get("reason") == "SchedulingGated" and condition.get("type") == "PodScheduled":
            return "SchedulingGated"
    return status.get("reason") or status.get("phase") or ""


def _later(first: str, container: Json) -> str:
    """The later of a time and the end of the container's last run; RFC 3339 in UTC sorts as text."""
    terminated = (container.get("lastState") or {}).get("terminated")
    return max(first, terminated.get("finishedAt") or "") if terminated else first


def _ended(terminated: Json) -> str:
    if terminated.get("reason"):
        return str(terminated["reason"])
    if terminated.get("signal"):
        return f"Signal:{terminated['signal']}"
    return f"ExitCode:{terminated.get('exitCode', 0)}"


def _is_true(status: Json, kind: str) -> bool:
    return any(c.get("type") == kind and c.get("status") == "True" for c in status.get("conditions") or ())


def _containers(status: Json, reason: str, restarts: int, last: str, ready: int) -> tuple[int, str, int, str]:
    """Ready containers, reason, restarts and the time of the last, those given included."""
    running = False
    error = ""
    for container in reversed(status.get("containerStatuses") or ()):
        restarts += container.get("restartCount") or 0
        if container.get("lastState"):
            last = _later(last, container)
        state = container.get("state") or {}
        waiting = state.get("waiting")
        if waiting and waiting.get("reason"):
            reason = waiting["reason"]
        elif (terminated := state.get("terminated")) is not None:
            reason = _ended(terminated)
            if terminated.get("exitCode"):
                error = reason
        elif container.get("ready") and state.get("running") is not None:
            running = True
            ready += 1
    if reason == "Completed":
        if running and _is_true(status, "Ready"):
            reason = "Running"
        elif error:
            reason = error
        elif running:
            reason = "NotReady"
    return ready, reason, restarts, last


def _with_init_containers(spec: Json, status: Json) -> tuple[int, int, str, int, str]:
    """As `_containers`, of a pod that has init containers or sidecars."""
    init = spec.get("initContainers") or ()
    sidecars = {container.get("name") for container in init if container.get("restartPolicy") == "Always"}
    total = len(spec.get("containers") or ()) + len(sidecars)
    reason = _phase_reason(status)
    ready = restarts = sidecar_restarts = 0
    last = sidecar_last = ""
    initializing = False
    for i, container in enumerate(status.get("initContainerStatuses") or ()):
        restarts += container.get("restartCount") or 0
        last = _later(last, container)
        is_sidecar = container.get("name") in sidecars
        if is_sidecar:
            sidecar_restarts += container.get("restartCount") or 0
            sidecar_last = _later(sidecar_last, container)
        state = container.get("state") or {}
        terminated, waiting = state.get("terminated"), state.get("waiting")
        if terminated is not None and not terminated.get("exitCode"):
            continue
        if is_sidecar and container.get("started"):
            ready += bool(container.get("ready"))
            continue
        initializing = True
        if terminated is not None:
            reason = f"Init:{_ended(terminated)}"
        elif waiting and waiting.get("reason") and waiting["reason"] != "PodInitializing":
            reason = f"Init:{waiting['reason']}"
        else:
            reason = f"Init:{i}/{len(init)}"
        break
    if not initializing or _is_true(status, "Initialized"):
        ready, reason, restarts, last = _containers(status, reason, sidecar_restarts, sidecar_last, ready)
    return ready, total, reason, restarts, last


def _gates_text(gates: list[Json], status: Json) -> str:
    held = {c.get("type"): c.get("status") for c in reversed(status.get("conditions") or ())}
    return f"{sum(held.get(gate.get('conditionType')) == 'True' for gate in gates)}/{len(gates)}"

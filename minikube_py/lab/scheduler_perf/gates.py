"""Feature gates of workloads: upstream 1.36's defaults, and their meaning here."""

from __future__ import annotations

from typing import Final, NamedTuple

from minikube_py.errors import InvalidRequest
from minikube_py.lab.scheduler_perf.files import Run


class Gate(NamedTuple):
    """`is_inner`: it changes only kube-scheduler's internals, not its decisions."""

    default: bool
    is_inner: bool = False


GATES: Final[dict[str, Gate]] = {
    "DRAAdminAccess": Gate(True),
    "DRAConsumableCapacity": Gate(True),
    "DRADeviceBindingConditions": Gate(True),
    "DRADeviceTaintRules": Gate(False),
    "DRADeviceTaints": Gate(True),
    "DRAExtendedResource": Gate(True),
    "DRAPartitionableDevices": Gate(True),
    "DRAPrioritizedList": Gate(True),
    "DRAResourceClaimDeviceStatus": Gate(True),
    "DRAWorkloadResourceClaims": Gate(False),
    "DynamicResourceAllocation": Gate(True),
    "GangScheduling": Gate(False),
    "GenericWorkload": Gate(False),
    "InPlacePodVerticalScaling": Gate(True),
    "NodeDeclaredFeatures": Gate(True),
    "NodeInclusionPolicyInPodTopologySpread": Gate(True),
    "OpportunisticBatching": Gate(True, is_inner=True),
    "SchedulerAsyncAPICalls": Gate(False, is_inner=True),
    "SchedulerAsyncPreemption": Gate(True, is_inner=True),
    "SchedulerQueueingHints": Gate(True, is_inner=True),
}


def check_gates(runs: list[Run]) -> None:
    """Raises: InvalidRequest for an unknown gate, with its place."""
    for run in runs:
        for name in run.gates:
            if name not in GATES:
                raise InvalidRequest(f"{run.workload.place}: unknown feature gate {name}; known are {', '.join(GATES)}")


def refusal(run: Run) -> str:
    """Why a workload cannot run here, or ""."""
    for name, wanted in run.gates.items():
        gate = GATES[name]
        if wanted and not gate.is_inner and not gate.default:
            return f"needs feature gate {name}, which is off by default"
    return ""


def notes(run: Run) -> list[str]:
    """Settings of the workload that have no effect here."""
    found = []
    for name, wanted in run.gates.items():
        gate = GATES[name]
        if gate.is_inner:
            found.append(
                f"{name}={str(wanted).lower()}: internal to kube-scheduler; the scheduler here has no such switch"
            )
        elif not wanted and gate.default:
            found.append(f"{name}=false: on by default, and always on here")
    return found

"""Which pods of a group are known, assigned or assumed. Pure.

A group exists here from its first pod to its last, with or without a PodGroup object of that name. Source:
pkg/scheduler/backend/cache/podgroupstate.go.
"""

from __future__ import annotations

from collections.abc import Callable
from sys import intern
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from minikube_py.client.rest import ResourceRef
from minikube_py.scheduler.kinds import NeededKind

if TYPE_CHECKING:
    from minikube_py.scheduler.objects import PodInfo

Condition = tuple[str, str, str, str, int]
"""Status, reason, message, lastTransitionTime and observedGeneration of PodGroupScheduled."""
SCHEDULED: Final = "PodGroupScheduled"


class PodGroupView(NamedTuple):
    """A PodGroup. `min_count`: of its gang policy, 0 for the basic policy."""

    key: str
    uid: str
    generation: int
    min_count: int
    condition: Condition | None


def project_group(obj: Any) -> PodGroupView:
    metadata, policy = obj["metadata"], (obj.get("spec") or {}).get("schedulingPolicy") or {}
    condition = None
    for each in (obj.get("status") or {}).get("conditions") or ():
        if each.get("type") == SCHEDULED:
            condition = (
                each.get("status") or "",
                each.get("reason") or "",
                each.get("message") or "",
                each.get("lastTransitionTime") or "",
                each.get("observedGeneration") or 0,
            )
    return PodGroupView(
        f"{metadata['namespace']}/{metadata['name']}",
        metadata.get("uid", ""),
        metadata.get("generation") or 0,
        int((policy.get("gang") or {}).get("minCount") or 0),
        condition,
    )


POD_GROUPS: Final = NeededKind(ResourceRef("scheduling.k8s.io", "v1alpha2", "podgroups"), "PodGroup", project_group)


def in_groups(project: Callable[[Any], PodInfo | None]) -> Callable[[Any], PodInfo | None]:
    """`project`, plus the pod's PodGroup."""

    def grouped(obj: Any) -> PodInfo | None:
        pod, named = project(obj), obj["spec"].get("schedulingGroup")
        if pod is not None and named and named.get("podGroupName") is not None:
            object.__setattr__(pod, "group", intern(f"{pod.namespace}/{named['podGroupName']}"))
        return pod

    return grouped


class Group:
    """Pods by uid, each unscheduled, assumed or assigned."""

    __slots__ = ("assigned", "assumed", "pods", "unscheduled")

    def __init__(self) -> None:
        self.pods: dict[str, PodInfo] = {}
        self.unscheduled: dict[str, PodInfo] = {}
        self.assumed: dict[str, PodInfo] = {}
        self.assigned: dict[str, PodInfo] = {}

    @property
    def scheduled_count(self) -> int:
        return len(self.assumed) + len(self.assigned)


class Groups:
    """By `PodInfo.group`. Only for pods that have a group."""

    def __init__(self) -> None:
        self._groups: dict[str, Group] = {}

    def get(self, group: str) -> Group | None:
        return self._groups.get(group)

    def __len__(self) -> int:
        return len(self._groups)

    def put(self, pod: PodInfo) -> None:
        """The current pod: new, changed, or bound."""
        group = self._groups.get(pod.group)
        if group is None:
            group = self._groups[pod.group] = Group()
        uid = pod.uid
        group.pods[uid] = pod
        if pod.node_name:
            group.assigned[uid] = pod
            group.unscheduled.pop(uid, None)
            group.assumed.pop(uid, None)
        elif uid not in group.assumed and uid not in group.assigned:
            group.unscheduled[uid] = pod

    def assume(self, pod: PodInfo) -> None:
        group = self._groups.get(pod.group)
        if group is not None and pod.uid in group.unscheduled:
            del group.unscheduled[pod.uid]
            group.assumed[pod.uid] = pod

    def forget(self, pod: PodInfo) -> None:
        """The pod is no longer assumed; it may be gone by now."""
        group = self._groups.get(pod.group)
        if group is not None and group.assumed.pop(pod.uid, None) is not None:
            group.unscheduled[pod.uid] = group.pods[pod.uid]

    def remove(self, pod: PodInfo) -> None:
        group = self._groups.get(pod.group)
        if group is None:
            return
        for members in (group.pods, group.unscheduled, group.assumed, group.assigned):
            members.pop(pod.uid, None)
        if not group.pods:
            del self._groups[pod.group]

"""The groups of waiting pods, and which of them a change may help. Pure.

Pods to which any change means the same form a group; groups rejected by the same plugins form a class: whether a class
listens to an event is looked up once for all its pods. Groups that need room on a node are skipped, by columns
(`waiting`), if the changed node could never leave them enough.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from minikube_py.scheduler.framework import WILDCARD, ClusterChange, ClusterEvent
from minikube_py.scheduler.objects import NodeInfo, QueuedPodInfo
from minikube_py.scheduler.waiting import Waiting

if TYPE_CHECKING:
    from minikube_py.scheduler.rules import Rules

NO_ROW: Final = -1


class Group:
    """`row`: in `Waiting`, NO_ROW for pods whose answer depends on more than one node. `number`: creation order."""

    __slots__ = ("members", "number", "of", "row")

    def __init__(self, of: _Class, row: int, number: int) -> None:
        self.members: dict[str, QueuedPodInfo] = {}
        self.of = of
        self.row = row
        self.number = number


class Unasked(NamedTuple):
    """A change to put to the groups up to number `last`, except the pod `but_not` (a uid) and pods above
    `priority_max`."""

    change: ClusterChange
    but_not: str
    priority_max: int
    last: int


class Groups:
    """`node(name)`: the current node; without it, every node change is put to all groups."""

    def __init__(self, rules: Mapping[str, Rules], node: Callable[[str], NodeInfo | None] | None) -> None:
        self._rules = rules
        self._node = node
        self._by_key: dict[object, Group] = {}
        self._classes: dict[tuple[str, str, frozenset[str], bool], _Class] = {}
        self._needing = Waiting()
        self._by_row: dict[int, Group] = {}
        self.last = 0
        """The number of the newest group."""

    def join(self, queued: QueuedPodInfo, gated: bool) -> None:
        queued.group = self._key(queued, gated)
        group = self._by_key.get(queued.group)
        if group is None:
            group = self._by_key[queued.group] = self._begin(queued, gated)
        group.members[queued.pod.key] = queued

    def leave(self, queued: QueuedPodInfo) -> None:
        group = self._by_key[queued.group]
        del group.members[queued.pod.key]
        if not group.members:
            del self._by_key[queued.group]
            del group.of.groups[group.number]
            if group.row != NO_ROW:
                self._needing.drop(group.row)
                del self._by_row[group.row]

    def may_fit(self, node: NodeInfo, group: Group) -> bool:
        """False: no pod of the group could fit the node, whichever pods left it."""
        return group.row == NO_ROW or bool(self._needing.may_fit(node)[group.row])

    def concerned(self, asked: Unasked) -> list[Group]:
        """The groups that the change may help, oldest first."""
        change = asked.change
        found: list[Group] = []
        by_rows = bool(change.node) and self._node is not None
        for each in self._classes.values():
            if each.groups and each.hears(change.event, bool(change.node)) and not (by_rows and each.has_rows):
                found += each.groups.values()
        if by_rows and self._by_row:
            assert self._node is not None
            rows = np.flatnonzero(self._needing.may_fit(self._node(change.node))).tolist()
            found += [self._by_row[row] for row in rows if row in self._by_row]
        found = [group for group in found if group.number <= asked.last]
        found.sort(key=_number)
        return found

    def _begin(self, queued: QueuedPodInfo, gated: bool) -> Group:
        self.last += 1
        pod, rules = queued.pod, self._rules.get(queued.pod.scheduler_name)
        row = NO_ROW
        # Only if a node change helps exactly when the pod then fits there.
        if not gated and rules is not None and queued.group != pod.uid and not rules.elsewhere(pod, ""):
            row = self._needing.put(pod.priority, rules.needs(pod))
        rejectors = frozenset(queued.unschedulable_plugins | queued.pending_plugins)
        key = (pod.scheduler_name, queued.gating_plugin, rejectors, row != NO_ROW)
        kept = self._classes.get(key)
        if kept is None:
            kept = self._classes[key] = _Class(rules, *key[1:])
        group = kept.groups[self.last] = Group(kept, row, self.last)
        if row != NO_ROW:
            self._by_row[row] = group
        return group

    def _key(self, queued: QueuedPodInfo, gated: bool) -> object:
        """Pods with equal keys are helped by the same changes: by what the node-local filters read, priority and
        nomination if only such filters rejected them; gated pods if their gate says so."""
        pod, rules = queued.pod, self._rules.get(queued.pod.scheduler_name)
        if rules is None:
            return pod.uid
        if gated:
            # A pod that was tried before is woken by what rejected it then.
            tried = queued.unschedulable_plugins != {queued.gating_plugin}
            gate = None if tried else rules.gate_key(queued.gating_plugin, pod)
            return pod.uid if gate is None else (pod.scheduler_name, queued.gating_plugin, gate)
        if queued.pending_plugins or not queued.unschedulable_plugins <= rules.local_plugins:
            return pod.uid
        read = rules.reads(pod)
        if read is None:
            return pod.uid
        may_preempt = pod.priority, pod.preemption_policy, rules.promised(pod)
        return (pod.scheduler_name, read, may_preempt, frozenset(queued.unschedulable_plugins))


class _Class:
    """Groups of one profile whose pods the same plugins rejected, by number."""

    __slots__ = ("_gate", "_heard", "_rejectors", "_rules", "groups", "has_rows")

    def __init__(self, rules: Rules | None, gate: str, rejectors: frozenset[str], has_rows: bool) -> None:
        self.groups: dict[int, Group] = {}
        self.has_rows = has_rows
        self._rules = rules
        self._gate = gate
        self._rejectors = rejectors
        self._heard: dict[tuple[ClusterEvent, bool], bool] = {}

    def hears(self, event: ClusterEvent, of_node: bool) -> bool:
        """Whether any plugin may find the event helpful. For most events, such as a pod being bound, none does; with
        many waiting pods this shortcut matters."""
        heard = self._heard.get((event, of_node))
        if heard is None:
            heard = self._heard[event, of_node] = self._may_hear(event, of_node)
        return heard

    def _may_hear(self, event: ClusterEvent, of_node: bool) -> bool:
        rules = self._rules
        if not self._rejectors or rules is None or event.resource == WILDCARD:
            return True
        if self._gate and not _matches(rules, self._gate, event):
            return False
        if of_node and not self._rejectors.isdisjoint(rules.local_plugins):
            # Whether a pod fits a node is answered exactly. The plugin that blocks the pod now need not be the one that
            # rejected it, so any change of the node may help.
            return True
        return any(_matches(rules, plugin, event) for plugin in self._rejectors)


def _matches(rules: Rules, plugin: str, event: ClusterEvent) -> bool:
    return any(registration.event.matches(event) for registration in rules.hints.get(plugin, ()))


def _number(group: Group) -> int:
    return group.number

"""Bugs planted in the scheduler: in its plugins, in what it counts, in its queue and in preemption.

The judges know none of them. Each bug names the one that is asked first; a bug that it does not find goes to all others.
"""

# ruff: noqa: E501 - lines of the product, as they stand
from __future__ import annotations

from typing import NamedTuple

DECISIONS = "property/test_scheduler_decisions.py"
TOPOLOGY = "property/test_scheduler_topology.py"
LAWS = "property/test_scheduler_laws.py"
RECOUNTS = "property/test_scheduler_recounts.py"
DEVICES = "property/test_scheduler_device_books.py"
QUEUE = "property/test_scheduler_queue_model.py"
FORCE = "property/test_preemption_by_force.py"
MATCHER = "property/test_scheduler_matcher.py property/test_scheduler_scope.py"
ORDER = "property/test_scheduler_node_order.py"
TWINS = "unit/scheduler/test_scheduler_twins.py"
GANGS = "property/test_scheduler_gang_laws.py"
FLOW = "unit/scheduler/test_flow_laws.py"
PACKING = "property/test_packing_policies.py"
JUDGES = (LAWS, RECOUNTS, DEVICES, DECISIONS, QUEUE, FORCE, TOPOLOGY, TWINS, MATCHER, ORDER, GANGS, FLOW, PACKING)


class SchedulerMutant(NamedTuple):
    """`old` stands exactly once in `minikube_py/scheduler/<file>`; `near` is the judge that is asked first."""

    name: str
    near: str
    file: str
    old: str
    new: str
    why: str


MUTANTS: tuple[SchedulerMutant, ...] = (
    SchedulerMutant(
        "columns: a resource that a node lost is still there", RECOUNTS, "columns.py",
        "[each for each in had if each not in wanted]",
        "[each for each in had if not wanted]",
        "only what the node has is written to its row",
    ),
    SchedulerMutant(
        "columns: a removed node is in no log", RECOUNTS, "columns.py",
        "        owned(self.taint_class)[slot] = 0\n        self._touch(slot)\n",
        "        owned(self.taint_class)[slot] = 0\n",
        "what is kept of earlier pods goes on with the node",
    ),
    SchedulerMutant(
        "columns: a label read as a number is not read again", DECISIONS, "columns.py",
        "            if key in self._label_ints:\n                _set_int(self._label_ints[key], slot, after)",
        "            if key in self._label_ints and before is None:\n                _set_int(self._label_ints[key], slot, after)",
        "a changed value taken for one that came",
    ),
    SchedulerMutant(
        "columns: the mask of a label's old value stays", DECISIONS, "columns.py",
        "            for value, holds in ((before, False), (after, True)):",
        "            for value, holds in ((after, True),):",
        "a node is added to the masks of its labels, and never taken from one",
    ),
    SchedulerMutant(
        "columns: two pods with one port on two addresses leave as one", RECOUNTS, "columns.py",
        "        if not any(p.protocol == protocol and p.port == number for p in node.ports):",
        "        if not any(p == port for p in node.ports):",
        "which nodes use a port is kept by protocol and number, and was looked up by address too",
    ),
    SchedulerMutant(
        "columns: of two pods with one claim the first to go takes it along", RECOUNTS, "columns.py",
        "                slots[slot] = slots.get(slot, 0) + by\n                if not slots[slot]:",
        "                slots[slot] = slots.get(slot, 0) + by\n                if by < 0:",
        "a count read as a flag",
    ),
    SchedulerMutant(
        "columns: a pod keeps its old priority when it changes", RECOUNTS, "columns.py",
        "        if old.priority != new.priority:\n            self._count_priority(old.priority, -1)\n            self._count_priority(new.priority, 1)",
        "        if old.priority != new.priority:\n            self._count_priority(new.priority, 1)",
        "the lowest priority of all that runs is looked up before preemption",
    ),
    SchedulerMutant(
        "columns: a free row is brought up to date once too seldom", DECISIONS, "columns.py",
        "        changed = self.changed_since(version) if version >= 0 and len(row) == self.capacity else None",
        "        changed = self.changed_since(version + 1) if version >= 0 and len(row) == self.capacity else None",
        "off by one in the log of changes",
    ),
    SchedulerMutant(
        "columns: a node that comes back under another slot brings its images twice", RECOUNTS, "images.py",
        "                state.slots.pop(slot, None)\n                if not state.slots:",
        "                if not state.slots:",
        "which nodes have an image only ever grows",
    ),
    SchedulerMutant(
        "cache: a pod that was resized is counted as before", RECOUNTS, "cache.py",
        "        if counted.node_name == pod.node_name and counted.pod.spec is pod.spec:",
        "        if counted.node_name == pod.node_name:",
        "the specs are compared to find a pod that moved, and pods do not move",
    ),
    SchedulerMutant(
        "kept: a scorer that was silent stays unheard", RECOUNTS, "cached_results.py",
        "                for one in kept.silent:\n                    if one(state, pod, node):\n                        return False\n",
        "",
        "a node that changed is the first that such a scorer has something to say of",
    ),
    SchedulerMutant(
        "kept: of many changed nodes the raw scores are old", RECOUNTS, "cached_results.py",
        "                raws[scorer][slots] = 0 if raw is None else raw",
        "                if raw is not None:\n                    raws[scorer][slots] = raw",
        "None means 0 everywhere, not nothing to do",
    ),
    SchedulerMutant(
        "kept: new slots are not looked at", DECISIONS, "cached_results.py",
        "        if changed is None or kept.size != columns.size or not self._redo(kept, pod, changed):",
        "        if changed is None or not self._redo(kept, pod, changed):",
        "nodes were only ever changed in the tests of the author",
    ),
    SchedulerMutant(
        "sampled: the next search begins with the node after the one too many", TWINS, "node_order.py",
        "(self.next_start + looked_at) %",
        "(self.next_start + looked_at + 1) %",
        "what was found is counted in",
    ),
    SchedulerMutant(
        "sampled: a search of all nodes is forgotten", TWINS, "evaluate.py",
        "        self.search.looked_at(count)\n        slot = best.pick(self._rng)",
        "        slot = best.pick(self._rng)",
        "going once around ends where it began, as long as the number of nodes stays",
    ),
    SchedulerMutant(
        "conditions: what was written once is never written again", TWINS, "reports.py",
        "        if sent is not None and sent.pod.resource_version == pod.resource_version:",
        "        if sent is not None:",
        "nobody else was thought to touch the condition",
    ),
    SchedulerMutant(
        "nominations: a pod that lost its nomination sleeps on", TWINS, "scheduler.py",
        "            self._queue.on_change(left, priority_max=pod.priority)",
        "            self._queue.on_change(left, pod.uid, pod.priority)",
        "what a pod leaves was thought to help others alone",
    ),
    SchedulerMutant(
        "helps: a node that all are leaving anyway helps nobody", TWINS, "evaluate.py",
        "        if promised == node.name and all(other.deleting for other in below):",
        "        if all(other.deleting for other in below):",
        "whose victims are going already gets a nomination by an attempt, which others respect",
    ),
    SchedulerMutant(
        "helps: a pod whose victims are leaving is tried for each of them", TWINS, "evaluate.py",
        "        if promised and self._is_being_freed(prepared, pod, promised):",
        "        if not promised and self._is_being_freed(prepared, pod, promised):",
        "it may not preempt more until they are gone",
    ),
    SchedulerMutant(
        "sampled: nodes are listed zone after zone", ORDER, "node_order.py",
        "            rows = zip_longest(*self._zones.values())",
        "            rows = self._zones.values()",
        "a sample lies in few zones",
    ),
    SchedulerMutant(
        "sampled: a node that changes its zone is in two", ORDER, "node_order.py",
        "        if self._zone_of.get(name) != zone:\n            self._leave(name)",
        "        if self._zone_of.get(name) != zone:",
        "nodes were only ever added",
    ),
    SchedulerMutant(
        "best: the last of several ties is not the last", DECISIONS, "best.py",
        "            if self._ties[block] > 1:\n                self._ties[block] -= 1",
        "            if self._ties[block] >= 1:\n                self._ties[block] -= 1",
        "off by one",
    ),
    SchedulerMutant(
        "topology: who asks late finds nobody", TOPOLOGY, "topology.py",
        "        one.asked[asked] = None\n        for slot, number in one.slots.items():\n            asked.add(slot, number)",
        "        one.asked[asked] = None",
        "what is kept up from now on starts at zero",
    ),
    SchedulerMutant(
        "topology: a namespace that is gone keeps its labels", TOPOLOGY, "topology.py",
        "        if self.namespaces.pop(name, None) is not None:\n            self._look_again(name)",
        "        self.namespaces.pop(name, None)",
        "the counts of namespace selectors follow additions alone",
    ),
    SchedulerMutant(
        "topology: a pod that is being deleted still counts", TOPOLOGY, "topology.py",
        "        if old.labels is not new.labels or old.deleting is not new.deleting:",
        "        if old.labels is not new.labels:",
        "spread counts only pods that stay",
    ),
    SchedulerMutant(
        "topology: the number of an empty domain is given out while it is in use", TOPOLOGY, "topology.py",
        "        self._nodes[number] += 1\n        self.placed += 1",
        "        self._nodes[number] = 1\n        self.placed += 1",
        "a count read as a flag",
    ),
    SchedulerMutant(
        "topology: a node that changes its taints counts as before", TOPOLOGY, "topology.py",
        "        if node.labels == new.labels and node.taints == new.taints:",
        "        if node.labels == new.labels:",
        "which nodes count for a spread depends on taints only where a pod says so",
    ),
    SchedulerMutant(
        "topology: the fewest pods of a domain are remembered once it has more", TOPOLOGY, "topology.py",
        "                del tally[before]\n                self._extremes = None",
        "                del tally[before]",
        "a minimum that only falls",
    ),
    SchedulerMutant(
        "topology: a domain without nodes is still the emptiest", TOPOLOGY, "topology.py",
        "        self._recount(before, int(self.counts[domain]) if self.nodes[domain] else None)",
        "        self._recount(before, int(self.counts[domain]))",
        "the number of a domain outlives its nodes",
    ),
    SchedulerMutant(
        "topology: nodes that enter late bring no pods", TOPOLOGY, "topology.py",
        "        self.nodes[domain] += by\n        self.counts[domain] += by * pods",
        "        self.nodes[domain] += by\n        self.counts[domain] += pods if by < 0 else 0",
        "a node that comes has no pods yet, mostly",
    ),
    SchedulerMutant(
        "NodeResourcesFit: many nodes may have one pod too many", DECISIONS, "plugins/node_resources.py",
        "        mask: BoolArray = nodes.free(PODS) >= 1",
        "        mask: BoolArray = nodes.free(PODS) >= 0",
        "off by one in one form of two",
    ),
    SchedulerMutant(
        "NodeResourcesFit: what preemption cannot mend is forgotten", LAWS, "plugins/node_resources.py",
        "            beyond |= mask & (capacity < amount)",
        "            beyond |= mask & (capacity <= amount)",
        "off by one in the diagnosis of many nodes",
    ),
    SchedulerMutant(
        "NodeResourcesFit: an index looks for more than is asked", MATCHER, "plugins/node_resources.py",
        "                yield Bound(Dimension(DimensionKind.FREE, resource), amount)",
        "                yield Bound(Dimension(DimensionKind.FREE, resource), amount + 1)",
        "bounds that exclude their ends",
    ),
    SchedulerMutant(
        "BalancedAllocation: the ceiling of a node is too low", MATCHER, "plugins/node_resources.py",
        "        before, _ = self._shares(self._nothing, node)\n        return MAX_NODE_SCORE // 2 + (3 * (MAX_NODE_SCORE // 2) - balance(before)) // 2",
        "        before, _ = self._shares(self._nothing, node)\n        return MAX_NODE_SCORE // 2 + (2 * (MAX_NODE_SCORE // 2) - balance(before)) // 2",
        "a bound worked out for pods that leave the balance as it is",
    ),
    SchedulerMutant(
        "TaintToleration: a toleration without an effect does not count for soft taints", TWINS, "plugins/taint_toleration.py",
        "    tolerations = _tolerations(spec)\n    return sum(",
        "    tolerations = Tolerations([t for t in spec.tolerations if t.effect == \"PreferNoSchedule\"])\n    return sum(",
        "\"\" read as no effect instead of all",
    ),
    SchedulerMutant(
        "TaintToleration: taints that come later are tolerated as the first ones were", DECISIONS, "plugins/taint_toleration.py",
        "        known: _Table[BoolArray] | None = spec.cache.get(\"taints/filter\")\n        if known is None or known.sets is not sets or known.size != len(sets):",
        "        known: _Table[BoolArray] | None = spec.cache.get(\"taints/filter\")\n        if known is None or known.sets is not sets:",
        "a table by class is not built again for new classes",
    ),
    SchedulerMutant(
        "NodeAffinity: Gt includes its bound where many are looked at", DECISIONS, "plugins/node_affinity.py",
        "            found: BoolArray = valid & (numbers > self.number if self.operator == \"Gt\" else numbers < self.number)",
        "            found: BoolArray = valid & (numbers >= self.number if self.operator == \"Gt\" else numbers < self.number)",
        "off by one in one form of two",
    ),
    SchedulerMutant(
        "NodePorts: every address of a node takes a port from one only", TWINS, "plugins/node_ports.py",
        "        and (wanted.ip == used.ip or ANY_ADDRESS in (wanted.ip, used.ip))",
        "        and (wanted.ip == used.ip or wanted.ip == ANY_ADDRESS)",
        "a rule for two written for one of them",
    ),
    SchedulerMutant(
        "ImageLocality: of one node the share of nodes is of slots", RECOUNTS, "plugins/image_locality.py",
        "                found += _scaled(each.size_bytes, len(each.slots), columns.count)",
        "                found += _scaled(each.size_bytes, len(each.slots), columns.size)",
        "slots of nodes that are gone counted in",
    ),
    SchedulerMutant(
        "InterPodAffinity: the first of its kind starts anywhere", TOPOLOGY, "plugins/inter_pod_affinity.py",
        "            mask &= counted.domains.of[nodes.index] >= 0 if begins else counted.any_in(nodes)",
        "            mask &= True if begins else counted.any_in(nodes)",
        "a node without the label is in no domain",
    ),
    SchedulerMutant(
        "InterPodAffinity: a victim's anti-affinity stays when it goes", TOPOLOGY, "plugins/inter_pod_affinity.py",
        "                against[key] = against[key].changed(slot, by)",
        "                against[key] = against[key].changed(slot, max(by, 0))",
        "preemption supposes pods gone, and their terms there",
    ),
    SchedulerMutant(
        "PodTopologySpread: the emptiest domain stays the emptiest in a dry run", TOPOLOGY, "plugins/pod_topology_spread.py",
        "        return judged(self.followed, self.own, changes)",
        "        return self._replace(changes=changes)",
        "the least count is worked out once a pod",
    ),
    SchedulerMutant(
        "preemption: a node barred for nominated pods stays barred when it changes", RECOUNTS, "evaluate.py",
        "            if changed is not None and set(changed).isdisjoint((*columns.slots_of(rivals), *known.statuses)):",
        "            if changed is not None:",
        "what is kept of the last pod depends on the nodes, too",
    ),
    SchedulerMutant(
        "preemption: nodes barred for some nominated pods are those for any", RECOUNTS, "evaluate.py",
        "        if known is not None and not wide.filters and known.rivals == rivals:",
        "        if known is not None and not wide.filters:",
        "the nodes are compared, the pods nominated to them are not",
    ),
    SchedulerMutant(
        "PodTopologySpread: no domain is full, so a node without the label fits", TOPOLOGY, "plugins/pod_topology_spread.py",
        "        if not self.changes and view.domains.placed == nodes.columns.count and view.extremes()[1] <= self.most:",
        "        if not self.changes and view.extremes()[1] <= self.most:",
        "a short cut by domains forgets the nodes outside all of them",
    ),
    SchedulerMutant(
        "PodTopologySpread: a constraint that all nodes meet lifts the one before it", TOPOLOGY, "plugins/pod_topology_spread.py",
        "            if fits is not None:\n                mask = fits if mask is None else mask & fits",
        "            mask = fits if mask is None or fits is None else mask & fits",
        "None read as everywhere for all constraints, not for one",
    ),
    SchedulerMutant(
        "PodTopologySpread: domains without a fitting node count in the weight", TOPOLOGY, "plugins/pod_topology_spread.py",
        "        if ignored is None and len(nodes) == self._columns.count:",
        "        if ignored is None:",
        "the number of domains is that of the cluster, mostly",
    ),
    SchedulerMutant(
        "VolumeRestrictions: two who read may not share a disk", TWINS, "plugins/volume_restrictions.py",
        "    return one.get(\"pdName\") == other.get(\"pdName\") and not _both_read(one, other)",
        "    return one.get(\"pdName\") == other.get(\"pdName\")",
        "one rule for all disks",
    ),
    SchedulerMutant(
        "NodeVolumeLimits: a volume that is attached already counts again", TWINS, "plugins/node_volume_limits.py",
        "        new = Counter(driver for driver, handle in wanted if (driver, handle) not in attached)",
        "        new = Counter(driver for driver, handle in wanted)",
        "volumes counted for each pod",
    ),
    SchedulerMutant(
        "devices: what a claim gives back is not given back", DEVICES, "devices/known.py",
        "        if held != results:\n            self.allocated.remove(held)\n            self.allocated.add(results)",
        "        if held != results:\n            self.allocated.add(results)",
        "a claim gets devices once, mostly",
    ),
    SchedulerMutant(
        "devices: a slice that moved to another pool stays in the first", DEVICES, "devices/pools.py",
        "            if new is None or old.pool != new.pool:",
        "            if new is None:",
        "which slices make a pool is kept for slices that come and go",
    ),
    SchedulerMutant(
        "preemption: of equals the first by name goes", FORCE, "plugins/default_preemption.py",
        "    return -pod.priority, pod.started or STARTED_NEVER",
        "    return -pod.priority, pod.name",
        "ties broken by what comes to hand",
    ),
    SchedulerMutant(
        "preemption: a budget protects one pod too many", FORCE, "plugins/default_preemption.py",
        "            violates |= left[budget.uid] < 0",
        "            violates |= left[budget.uid] <= 0",
        "off by one",
    ),
    SchedulerMutant(
        "preemption: pods of the same importance are victims", FORCE, "plugins/default_preemption.py",
        "    return [other for other in node.pods.values() if other.priority < pod.priority]",
        "    return [other for other in node.pods.values() if other.priority <= pod.priority]",
        "off by one",
    ),
    SchedulerMutant(
        "preemption: negative priorities make many victims cheap", FORCE, "plugins/default_preemption.py",
        "        lambda c: sum(victim.priority + PRIORITY_OFFSET for victim in c.victims),",
        "        lambda c: sum(victim.priority for victim in c.victims),",
        "a sum without the offset",
    ),
    SchedulerMutant(
        "preemption: the node whose victims started first is chosen", FORCE, "plugins/default_preemption.py",
        "    latest = max(map(_start_of_highest, left))",
        "    latest = min(map(_start_of_highest, left))",
        "the comparison the wrong way round",
    ),
    SchedulerMutant(
        "preemption: a pod nominated to the node is no rival unless it is above", FORCE, "evaluate.py",
        "        return [o for o in self._nominations.on(node.name) if o.priority >= pod.priority and o.uid != pod.uid]",
        "        return [o for o in self._nominations.on(node.name) if o.priority > pod.priority]",
        "off by one",
    ),
    SchedulerMutant(
        "preemption: a victim keeps its port while others are tried", FORCE, "dry_run.py",
        "        left = node.ports.get(port, 0) + sign\n        if left:",
        "        left = node.ports.get(port, 0) + sign\n        if left or sign < 0:",
        "a port without users is still in use",
    ),
    SchedulerMutant(
        "nominations: one that the API has cleared comes back", RECOUNTS, "nominations.py",
        "        if not old.nominated_node and not node_name:",
        "        if not node_name:",
        "what was decided meanwhile is kept, whoever decided it",
    ),
    SchedulerMutant(
        "nominations: a node loses one nomination with another", RECOUNTS, "nominations.py",
        "        del pods[uid]\n        if not pods:\n            del self._by_node[node_name]",
        "        del self._by_node[node_name]",
        "one nomination a node, mostly",
    ),
    SchedulerMutant(
        "preemption: in lockstep what is let back and does not fit stays in", FORCE, "lockstep.py",
        "            self._less[resource][places[~fits]] += amounts[~fits]",
        "            self._less[resource][places[~fits]] += 0",
        "a trial that is not undone",
    ),
    SchedulerMutant(
        "nominations: in lockstep a pod that is nominated makes room", FORCE, "lockstep.py",
        "                less -= np.array([_sum(pods, resource)",
        "                less += np.array([_sum(pods, resource)",
        "the wrong sign",
    ),
    SchedulerMutant(
        "nominations: one that is bound meanwhile counts twice", FORCE, "dry_run.py",
        "        return [rival for rival in self._rivals(node) if rival.uid not in node.pods]",
        "        return list(self._rivals(node))",
        "the nomination outlives the binding",
    ),
    SchedulerMutant(
        "preemption: in lockstep the first of several filters has the last word", FORCE, "lockstep.py",
        "            left = left[passing]\n        return found",
        "            left = left[passing] if not len(rejected) else rejected\n        return found",
        "the wrong half goes on",
    ),
    SchedulerMutant(
        "waiting pods: a row keeps what its last pod needed", LAWS, "waiting.py",
        "            column[row] = INT64_MIN\n",
        "            column[row] = max(column[row], INT64_MIN)\n",
        "a row is given out again as it is",
    ),
    SchedulerMutant(
        "waiting pods: those below count as if they stayed", LAWS, "waiting.py",
        "side=\"left\")",
        "side=\"left\") * 0",
        "what preemption may free is left out",
    ),
    SchedulerMutant(
        "queue: the less important go first", QUEUE, "plugins/queueing.py",
        "        return (-queued.pod.priority, queued.timestamp_s)",
        "        return (queued.pod.priority, queued.timestamp_s)",
        "the sign of a sort key",
    ),
    SchedulerMutant(
        "queue: backoff doubles once too often", QUEUE, "queue.py",
        "        doubled = self._initial_backoff_s * (1 << min(count - 1, 30))",
        "        doubled = self._initial_backoff_s * (1 << min(count, 30))",
        "off by one",
    ),
    SchedulerMutant(
        "queue: a pod that failed by an error is popped before its time", QUEUE, "queue.py",
        "        heapq.heappush(self._backoff if early else self._error_backoff, entry)",
        "        heapq.heappush(self._backoff, entry)",
        "one heap for both kinds of failures",
    ),
    SchedulerMutant(
        "queue: what happened while a pod was tried is forgotten", QUEUE, "queue.py",
        "        elif strategy == SKIP and start is not None:\n            strategy = self._replay(queued, start)",
        "        elif rejected and start is None:\n            strategy = AFTER_BACKOFF",
        "events are heard by those who wait, and by nobody in flight",
    ),
    SchedulerMutant(
        "queue: a rejected pod still waits as long as its errors say", QUEUE, "queue.py",
        "            queued.unschedulable_count += 1\n            queued.consecutive_errors = 0",
        "            queued.unschedulable_count += 1",
        "two counters, one of which is reset",
    ),
    SchedulerMutant(
        "queue: the end of a pod on one node does not let another preempt on a second", TWINS, "queue.py",
        "            ends = _true_or_broken(rules.elsewhere, queued.pod, change.node)",
        "            ends = False",
        "a change of a node is answered by that node",
    ),
    SchedulerMutant(
        "queue: of a group the first alone is woken", QUEUE, "queue.py",
        "        for queued in waking:",
        "        for queued in waking[:1]:",
        "the answer for one is the answer for all, and was given to one",
    ),
    SchedulerMutant(
        "queue: a pod that was gated is counted where it is not", LAWS, "queue.py",
        "        elif queue == GATED:\n            del self._gated[queued.pod.key]\n            self._groups.leave(queued)",
        "        elif queue == GATED:\n            del self._gated[queued.pod.key]",
        "a group holds pods that were let in long ago",
    ),
    SchedulerMutant(
        "queue: a pod is grouped by what it was", LAWS, "queue.py",
        "        self._groups.leave(queued)\n        self._groups.join(queued, queued.queue == GATED)\n        for change in changes:",
        "        for change in changes:",
        "a waiting pod changes its spec, and shares the answer of those that have its old one",
    ),
    SchedulerMutant(
        "queue: what one step had no time to ask is forgotten", QUEUE, "queue.py",
        "            if self._questions_left <= 0:\n                break\n            self._asking = None",
        "            self._asking = None",
        "a change counts as asked when the step ends, not when all have answered",
    ),
    SchedulerMutant(
        "queue: pods that wait for long are not tried again", QUEUE, "queue.py",
        "        due = takewhile(lambda q: q.timestamp_s + wait_s <= now_s, self._waiting.values())",
        "        due = takewhile(lambda q: q.timestamp_s + wait_s < now_s - wait_s, self._waiting.values())",
        "a deadline worked out twice",
    ),
    # --- gangs --------------------------------------------------------------------------------------------------------
    SchedulerMutant(
        "gangs: one pod too few is enough", GANGS, "plugins/gang_scheduling.py",
        "        if known.scheduled_count < group.min_count:\n",
        "        if known.scheduled_count + 1 < group.min_count:\n",
        "the pod that asks is counted already",
    ),
    SchedulerMutant(
        "gangs: a pod that gives its place back still counts", GANGS, "groups/state.py",
        "        if group is not None and group.assumed.pop(pod.uid, None) is not None:\n",
        "        if group is not None and pod.uid not in group.assumed:\n",
        "assume without forget: a gang has enough pods that nobody placed",
    ),
    SchedulerMutant(
        "gangs: what was placed in memory is not all taken back", GANGS, "groups/cycle.py",
        "            for revert in reversed(reverts):\n",
        "            for revert in reversed(reverts[1:]):\n",
        "the first pod of a gang holds a node that it never gets",
    ),
    SchedulerMutant(
        "gangs: a pod that is deleted still counts", GANGS, "scheduler.py",
        "        if pod.group:\n            self.groups.remove(pod)\n",
        "",
        "a gang has enough pods of the past",
    ),
)

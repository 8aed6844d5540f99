"""Invariants of a scheduler at any moment, for every test that has one.

Each maintained count equals a recount, the forms of a plugin agree, cached results of earlier pods equal a new
computation, and duplicated data agree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from minikube_py.scheduler.asking import NO_ROW
from minikube_py.scheduler.best import BestScores
from minikube_py.scheduler.cache import Cache
from minikube_py.scheduler.cached_results import CachedResult, CachedResults
from minikube_py.scheduler.columns import NodeColumns
from minikube_py.scheduler.devices.allocated import Allocated
from minikube_py.scheduler.devices.known import Devices
from minikube_py.scheduler.devices.pools import Inventory
from minikube_py.scheduler.devices.views import CLAIMS as DEVICE_CLAIMS
from minikube_py.scheduler.devices.views import SLICES, SliceView
from minikube_py.scheduler.evaluate import Evaluator
from minikube_py.scheduler.framework import PluginError, Status
from minikube_py.scheduler.nominations import Nominations
from minikube_py.scheduler.objects import NodeInfo, PodInfo
from minikube_py.scheduler.pod_terms import PodSelector, affinity_terms, label_as_int
from minikube_py.scheduler.preparing import Prepared, Rejected, prepare
from minikube_py.scheduler.queue import GATED, UNSCHEDULABLE, SchedulingQueue
from minikube_py.scheduler.scheduler import Scheduler
from minikube_py.scheduler.topology import (
    NOBODY,
    PREFERRED,
    REQUIRED_AFFINITY,
    REQUIRED_ANTI_AFFINITY,
    DomainCounts,
    PodCounts,
    Topology,
)
from minikube_py.scheduler.volumes.storage import Storage

Counts = Mapping[Any, Any]


def check(scheduler: Scheduler, asked: Iterable[PodInfo] = ()) -> None:
    """All invariants. `asked`: pods to pass to the plugins, in addition to the waiting ones."""
    pods = [*scheduler._pods.store.values(), *asked]
    check_columns(scheduler)
    check_counts(scheduler.columns)
    check_storage(scheduler)
    devices = scheduler.kinds._shared.get("devices")
    if devices is not None:
        kinds, nodes = scheduler.kinds, [node for node in scheduler.columns.by_name.values() if node.present]
        check_devices(devices, kinds.of(DEVICE_CLAIMS).store.keys(), kinds.of(SLICES).store.values(), nodes)
    check_queue(scheduler.queue)
    check_waiting(scheduler)
    check_nominations(scheduler.nominations)
    for run in scheduler.profiles.values():
        for pod in pods:
            if pod.scheduler_name == run.profile.name and not pod.node_name:
                check_forms(run.evaluator, pod)
                check_kept(run.evaluator, pod)


# --- columns ---------------------------------------------------------------------------------------------------------


def check_columns(scheduler: Scheduler) -> None:
    """Compared with a new cache of the current nodes and pods."""
    fresh = Cache()
    for node in scheduler._nodes.store.values():
        fresh.put_node(node)
    for pod in scheduler._pods.store.values():
        if pod.node_name:
            fresh.put_pod(pod)
    for counted in scheduler.cache._pods.values():
        if counted.assumed:
            fresh.assume(counted.pod, counted.node_name)
    assert scheduler.cache.assumed == fresh.assumed
    same_columns(scheduler.columns, fresh.columns)


def same_columns(ours: NodeColumns, fresh: NodeColumns) -> None:
    assert ours.by_name.keys() == fresh.by_name.keys()
    assert ours.count == fresh.count == int(ours.present.sum())
    for name, node in ours.by_name.items():
        assert ours.by_slot[node.slot] is node
        expected = node_figures(fresh, fresh.by_name[name])
        for what, figure in node_figures(ours, node).items():
            assert figure == expected[what], f"{what} of {name}: {figure}, not {expected[what]}"
    gone = [slot for slot, node in enumerate(ours.by_slot) if node is None]
    assert sorted(ours._free_slots) == gone
    for row in (*ours._allocatable.values(), *ours._requested.values(), ours.present, ours.unschedulable):
        assert not row[gone].any() and not row[ours.size :].any()
    assert ours._priorities == fresh._priorities
    assert named(ours, ours._port_slots) == named(fresh, fresh._port_slots)
    assert named(ours, ours._claim_slots) == named(fresh, fresh._claim_slots)
    images = [{name: state.slots for name, state in c.images.known.items()} for c in (ours, fresh)]
    assert named(ours, images[0]) == named(fresh, images[1])
    check_labels(ours, fresh)


def named(columns: NodeColumns, by_slot: Mapping[Any, Mapping[int, Any]]) -> dict[Any, dict[str, Any]]:
    """Values kept by slot, by the names of the nodes."""
    return {key: {_name(columns, slot): value for slot, value in slots.items()} for key, slots in by_slot.items()}


def _name(columns: NodeColumns, slot: int) -> str:
    node = columns.by_slot[slot]
    return f"nobody at {slot}" if node is None else node.name


def node_figures(columns: NodeColumns, node: NodeInfo) -> Counts:
    slot, names = node.slot, sorted({*columns._allocatable, *columns._requested, *node.requested})
    rows = {name: (int(columns.allocatable_row(name)[slot]), int(columns.requested_row(name)[slot])) for name in names}
    told = (node.allocatable, dict(node.labels), node.images, node.declared_features, node.conditions)
    return {
        "pods": sorted(node.pods),
        "requested": {name: amount for name, amount in node.requested.items() if amount},
        "nonzero": (node.nonzero_cpu_milli, node.nonzero_memory_bytes),
        "nonzero columns": (int(columns.nonzero_cpu_milli[slot]), int(columns.nonzero_memory_bytes[slot])),
        "rows": {name: amounts for name, amounts in rows.items() if any(amounts)},
        "free": {name: free for name in names if (free := int(columns.free_row(name)[slot]))},
        "ports": dict(node.ports),
        "taints": (node.taints, columns.taint_sets[columns.taint_class[slot]]),
        "cordoned": (node.unschedulable, bool(columns.unschedulable[slot])),
        "is there": (node.present, bool(columns.present[slot])),
        "object": told if node.present else (),
    }


def check_labels(ours: NodeColumns, fresh: NodeColumns) -> None:
    assert ours.label_keys == fresh.label_keys
    for key, values in ours._label_values.items():
        assert named(ours, values) == named(fresh, fresh.label_values(key)), key
        there = [(node, node.labels.get(key)) for node in ours.by_name.values()]
        for (masked, value), mask in ours._label_masks.items():
            if masked == key:
                assert set(np.flatnonzero(mask)) == {node.slot for node, found in there if found == value}, (key, value)
        if key in ours._label_exists:
            found = set(np.flatnonzero(ours._label_exists[key]))
            assert found == {node.slot for node, value in there if value is not None}, key
        if key in ours._label_ints:
            valid, numbers = ours._label_ints[key]
            read = {node.slot: number for node, text in there if (number := label_as_int(text)) is not None}
            assert {int(slot): int(numbers[slot]) for slot in np.flatnonzero(valid)} == read, key


# --- counts of pods that others ask about ----------------------------------------------------------------------------


def _means(selector: PodSelector, pod: PodInfo, topology: Topology) -> bool:
    return selector.covers(pod.namespace, topology.namespaces) and selector.selector.matches(pod.labels)


def check_counts(columns: NodeColumns) -> None:
    """All counts by topology, compared with a recount."""
    topology = columns.topology
    running = [(node, pod) for node in columns.by_slot if node is not None for pod in node.pods.values()]
    for asked in topology._asked.values():
        slots: dict[int, int] = {}
        for node, pod in running:
            means = (_means(selector, pod, topology) for selector in asked.selectors)
            if all(means) and not (asked.living and pod.deleting):
                slots[node.slot] = slots.get(node.slot, 0) + 1
        _check_one(asked, slots, columns)
    carried: dict[object, dict[int, int]] = {}
    for node, pod in running:
        terms = affinity_terms(pod)
        for kind, some in (
            (REQUIRED_AFFINITY, terms.affinity),
            (REQUIRED_ANTI_AFFINITY, terms.anti_affinity),
            (PREFERRED, terms.preferred),
        ):
            for term in some:
                found = carried.setdefault((kind, term.weight, term.topology_key, term.pods.key), {})
                found[node.slot] = found.get(node.slot, 0) + 1
    assert set(carried) == set(topology._carried)
    for key, slots in carried.items():
        assert topology._carried[key].number == sum(slots.values())
        _check_one(topology._carried[key], slots, columns)


def _check_one(counts: PodCounts, slots: dict[int, int], columns: NodeColumns) -> None:
    assert counts.slots == slots
    for view in counts.views():
        _check_view(view, slots, columns)


def _check_view(view: DomainCounts, slots: dict[int, int], columns: NodeColumns) -> None:
    pods: dict[str, int] = {}
    nodes: dict[str, int] = {}
    for node in columns.by_slot:
        if node is None or not node.present or (value := view.domains.value(node)) is None:
            continue
        eligible = view.eligible is None or view.eligible.test(node)
        nodes[value] = nodes.get(value, 0) + eligible
        pods[value] = pods.get(value, 0) + (slots.get(node.slot, 0) if eligible else 0)
    size = view.domains.size
    for kept, expected in ((view.counts, pods), (view.nodes, nodes)):
        full = list(kept[:size]) + [0] * (size - len(kept[:size]))
        assert view.domains.by_value(np.array(full, np.int64)) == expected
        assert int(sum(full)) == sum(expected.values())
    there = [pods[value] for value in nodes if nodes[value]]
    assert view.tally == Counter(there)
    assert view.extremes() == (min(there, default=NOBODY), max(there, default=0))
    assert (view.domains.placed, view.domains.in_use) == (int(np.count_nonzero(view.domains.of >= 0)), len(nodes))


# --- volumes and devices ---------------------------------------------------------------------------------------------


def check_storage(scheduler: Scheduler) -> None:
    """An assumed object replaces the served one, and only for that version of it."""
    storage: Storage | None = scheduler.kinds._shared.get("storage")
    if storage is None:
        return
    for assumed in (storage.volumes, storage.claims):
        for key, view in assumed._assumed.items():
            served = assumed.served(key)
            assert served is not None and served.resource_version == view.resource_version, key


def check_devices(
    devices: Devices, claims: Iterable[str], slices: Iterable[SliceView], nodes: Iterable[NodeInfo]
) -> None:
    """Devices held by claims, compared with a recount; pools of nodes, compared with new ones. `claims`: the keys of
    all served ones."""
    fresh, held = Allocated(), {}
    promised = dict(devices._pending.values())
    for key in dict.fromkeys((*claims, *promised)):
        claim = devices.claim(key)
        results: Any = claim.results if claim is not None else ()
        # A deleted claim holds nothing, unless it was only an assumption.
        if key in promised and (key in devices._pending if claim is None else claim.allocation is None):
            results = promised[key]["devices"].get("results") or ()
        if results:
            held[key] = results
            fresh.add(results)
    assert devices._held == held
    ours = devices.allocated
    assert (ours.devices, ours.shared) == (fresh.devices, fresh.shared)
    assert _amounts(ours.capacity) == _amounts(fresh.capacity)
    inventory = Inventory.of(slices)
    for node in nodes:
        told = [[_pool(pool) for pool in each.pools(node)] for each in (devices._inventory, inventory)]
        assert told[0] == told[1], node.name


def _amounts(capacity: Mapping[Any, Mapping[str, Any]]) -> Counts:
    held = {id: {n: taken.at_scale(-9) for n, taken in some.items() if taken.unscaled} for id, some in capacity.items()}
    return {id: some for id, some in held.items() if some}


def _pool(pool: Any) -> Any:
    return pool.id, pool.problem, [candidate.device.name for candidate in pool.candidates]


# --- the queue and nominations ---------------------------------------------------------------------------------------


def check_queue(queue: SchedulingQueue) -> None:
    """Each pod is in one place, which it also records; each group holds those that would be put into it now."""
    places: dict[str, set[str]] = {name: set() for name in queue.pending()}
    for key, queued in queue._all.items():
        assert queued.pod.key == key
        places[queued.queue].add(key)
    assert {name: len(keys) for name, keys in places.items()} == queue.pending()
    assert queue._waiting.keys() == places[UNSCHEDULABLE] and queue._gated.keys() == places[GATED]
    check_groups(queue, places[UNSCHEDULABLE] | places[GATED])
    rejected: dict[tuple[str, str], int] = {}
    for queued in queue._all.values():
        for plugin in queued.unschedulable_plugins | queued.pending_plugins:
            where = plugin, queued.pod.scheduler_name
            rejected[where] = rejected.get(where, 0) + 1
    assert {where: number for where, number in queue.unschedulable_by_plugin.items() if number} == rejected


def check_groups(queue: SchedulingQueue, sleeping: set[str]) -> None:
    """Each pod is in the group that it would be put into now; the group indexes agree."""
    groups = queue._groups
    grouped = {key: name for name, group in groups._by_key.items() for key in group.members}
    assert sum(len(group.members) for group in groups._by_key.values()) == len(grouped)
    of_rows = {group.row: group for group in groups._by_key.values() if group.row != NO_ROW}
    assert of_rows == groups._by_row
    assert sorted([*of_rows, *groups._needing._free_rows]) == list(range(groups._needing._size))
    of_classes = {group for each in groups._classes.values() for group in each.groups.values()}
    assert of_classes == set(groups._by_key.values())
    assert all(group.of.groups[group.number] is group for group in of_classes)
    asleep = {key: queue._all[key] for key in sleeping}
    assert grouped == {key: groups._key(queued, queued.queue == GATED) for key, queued in asleep.items()}


def check_waiting(scheduler: Scheduler) -> None:
    """Pods that share an answer would each get it, and none is skipped that the node would help."""
    groups = scheduler.queue._groups
    for node in scheduler.columns.by_name.values():
        for group in groups._by_row.values():
            pods = [queued.pod for queued in group.members.values()]
            answers = {scheduler.profiles[pod.scheduler_name].evaluator.helps(pod, node.name) for pod in pods}
            assert len(answers) == 1, (node.name, pods)
            assert groups.may_fit(node, group) or answers == {False}, (node.name, pods)


def check_nominations(nominations: Nominations) -> None:
    listed = {uid: name for name, pods in nominations._by_node.items() for uid in pods}
    assert listed == nominations._node_of and all(nominations._by_node.values())


# --- plugins ---------------------------------------------------------------------------------------------------------


def check_forms(evaluator: Evaluator, pod: PodInfo) -> None:
    """A plugin's answer for many nodes equals that for each."""
    try:
        prepared = evaluator.prepare(pod)
    except (Rejected, PluginError):
        return
    columns = evaluator.columns
    slots = np.flatnonzero(columns.present[: columns.size])
    nodes = [node for node in (columns.by_slot[slot] for slot in slots) if node is not None]
    for name, plugin in prepared.filters:
        if not hasattr(plugin, "filter_nodes") or not hasattr(plugin, "filter"):
            continue
        one_by_one = [plugin.filter(prepared.state, pod, node) for node in nodes]
        assert list(_many(prepared, plugin, pod, columns, slots)) == one_by_one, (name, pod.key)
    if prepared.broken is not None:
        return
    fits = np.array([_passes(prepared, pod, node) for node in nodes], np.bool_)
    for scorer in prepared.scorers:
        plugin = scorer.plugin
        if not hasattr(plugin, "score_nodes") or not hasattr(plugin, "score"):
            continue
        found = plugin.score_nodes(prepared.state, pod, columns.some(slots[fits]))
        told = [0] * int(fits.sum()) if found is None else found.tolist()
        passing = [node for node, fit in zip(nodes, fits, strict=True) if fit]
        assert told == [plugin.score(prepared.state, pod, node) for node in passing], (plugin.name, pod.key)


def _many(prepared: Prepared, plugin: Any, pod: PodInfo, columns: NodeColumns, slots: Any) -> Iterator[Status | None]:
    everywhere, some = columns.all(), columns.some(slots)
    mask = plugin.filter_nodes(prepared.state, pod, everywhere)
    passing = np.ones(len(slots), np.bool_) if mask is None else mask[slots]
    again = plugin.filter_nodes(prepared.state, pod, some)
    assert np.array_equal(passing, np.ones(len(slots), np.bool_) if again is None else again)
    codes, meaning = plugin.reject_codes(prepared.state, pod, columns.some(slots[~passing]))
    rejected = iter(codes.tolist())
    for passes in passing:
        yield None if passes else meaning(next(rejected))


def _passes(prepared: Prepared, pod: PodInfo, node: NodeInfo) -> bool:
    for _, plugin in prepared.filters:
        try:
            status = plugin.filter(prepared.state, pod, node)
        except PluginError:
            return False
        if status is not None and not status.is_success:
            return False
    return True


def check_kept(evaluator: Evaluator, pod: PodInfo) -> None:
    """Cached results for pods like this one, compared with a new evaluation of all nodes."""
    signature = evaluator.profile.sign(pod)
    results, columns = evaluator._results, evaluator.columns
    kept = None if signature is None else results.get(signature, pod)
    if kept is None:
        return
    local = prepare(evaluator.profile.kept, columns, pod)
    fresh = CachedResults(columns, results._narrow, eager=True).keep(evaluator.profile.sign, local, pod)
    fits = np.flatnonzero(fresh.base >= 0)
    assert np.array_equal(np.flatnonzero(kept.base >= 0), fits), pod.key
    # Which of them speak up may differ: that adds the same to all.
    (ours, tops), (theirs, others) = kept.totals_of(fits), fresh.totals_of(fits)
    assert ours.tolist() == theirs.tolist(), pod.key
    assert _raised(tops) == _raised(others), pod.key
    check_best(kept, fresh)


def _raised(tops: Mapping[str, int]) -> dict[str, int]:
    """A maximum of 0 and one that was not computed are the same."""
    return {name: top for name, top in tops.items() if top}


def check_best(kept: CachedResult, fresh: CachedResult) -> None:
    plain = BestScores(kept.best.totals)
    assert (kept.best._maxima, kept.best._ties) == (plain._maxima, plain._ties)
    assert (kept.best.feasible, kept.best.best()) == (fresh.best.feasible, fresh.best.best())

"""Runs the filters of one pod that PreFilter left, in either form, and diagnoses why no node passed."""

from __future__ import annotations

from typing import Any

import numpy as np

from minikube_py.scheduler.columns import NodeColumns, Nodes
from minikube_py.scheduler.framework import BoolArray, Code, CycleState, Diagnosis, IntArray, PluginError, Status
from minikube_py.scheduler.objects import NodeInfo, PodInfo
from minikube_py.scheduler.preparing import Prepared

SMALL_CODES = 1 << 16


def ok(name: str, status: Status | None) -> bool:
    """Whether the node passes. Raises: PluginError."""
    if status is None or status.is_success:
        return True
    if not status.is_rejected:
        raise PluginError(f'running "{name}" filter plugin: {status.message}')
    return False


def rejection(
    prepared: Prepared, state: CycleState, pod: PodInfo, node: NodeInfo, columns: NodeColumns
) -> Status | None:
    """The signed status of the first filter that rejects the pod on the node; None if it passes. A filter without a
    per-node form sees the node as it is in the columns. Raises: PluginError."""
    for name, plugin in prepared.filters:
        if callable(getattr(plugin, "filter", None)):
            status = plugin.filter(state, pod, node)
        else:
            some = plugin.filter_nodes(state, pod, columns.some(np.array([node.slot])))
            status = None if some is None or some[0] else _unsatisfied(name)
        if status is not None and not ok(name, status):
            rejected: Status = status.by(name)
            return rejected
    return None


def _unsatisfied(name: str) -> Status:
    return Status(Code.UNSCHEDULABLE, f"node(s) didn't satisfy plugin(s) [{name}]", plugin=name)


def passed(name: str, plugin: Any, state: CycleState, pod: PodInfo, nodes: Nodes, mask: BoolArray) -> BoolArray | None:
    """Which of `nodes` pass, None for all; nodes outside `mask` need not be checked. Raises: PluginError."""
    many = getattr(plugin, "filter_nodes", None)
    if many is not None:
        vector: BoolArray | None = many(state, pod, nodes)
        return vector
    found = np.zeros(len(nodes), np.bool_)
    for i, node in enumerate(nodes.infos()):
        if mask[i] and node is not None:
            found[i] = ok(name, plugin.filter(state, pod, node))
    return found


def fitting(prepared: Prepared, pod: PodInfo, nodes: Nodes) -> BoolArray:
    """Which of `nodes` exist and pass all filters."""
    return narrowed(nodes.columns.present[nodes.index].copy(), prepared, pod, nodes)


def narrowed(mask: BoolArray, prepared: Prepared, pod: PodInfo, nodes: Nodes) -> BoolArray:
    """`mask`, in place, without the nodes that do not pass all filters."""
    for name, plugin in prepared.filters:
        passing = passed(name, plugin, prepared.state, pod, nodes, mask)
        if passing is not None:
            mask &= passing
    if prepared.barred:
        mask &= ~nodes.slot_mask(prepared.barred)
    return mask


def fitting_slots(prepared: Prepared, pod: PodInfo, columns: NodeColumns) -> IntArray:
    """Of all nodes, those that PreFilter left and that pass all filters."""
    nodes = columns.all()
    mask = fitting(prepared, pod, nodes)
    if prepared.node_names is not None:
        mask &= nodes.name_mask(prepared.node_names)
    return np.flatnonzero(mask)


def fitting_of(prepared: Prepared, pod: PodInfo, columns: NodeColumns, slots: IntArray) -> IntArray:
    """Those of `slots` that fit."""
    return slots[fitting(prepared, pod, columns.some(slots))]


def diagnose(columns: NodeColumns, pod: PodInfo, prepared: Prepared) -> Diagnosis:
    """For every node, the status of the first filter that rejected it."""
    diagnosis = Diagnosis(columns.count)
    if prepared.node_names is None:
        left = np.flatnonzero(columns.present[: columns.size])
    else:
        left = np.array(sorted(columns.slots_of(prepared.node_names)), np.int64)
        diagnosis.unschedulable_plugins |= prepared.pinned_by
        absent = columns.count - len(left)
        if absent:
            listed = " ".join(sorted(prepared.pinned_by))
            diagnosis.reasons[f"node(s) didn't satisfy plugin(s) [{listed}]"] = absent
    for slot, status in prepared.barred.items():
        if slot in left:
            _tally(diagnosis, status, np.array([slot]))
    left = left[~np.isin(left, list(prepared.barred))] if prepared.barred else left
    for name, plugin in prepared.filters:
        if not len(left):
            break
        nodes = columns.some(left)
        passing = passed(name, plugin, prepared.state, pod, nodes, np.ones(len(left), np.bool_))
        if passing is None or passing.all():
            continue
        rejected = columns.some(left[~passing])
        _count(diagnosis, name, plugin, prepared.state, pod, rejected)
        left = left[passing]
    return diagnosis


def _count(diagnosis: Diagnosis, name: str, plugin: Any, state: CycleState, pod: PodInfo, rejected: Nodes) -> None:
    slots = np.fromiter(rejected.slots(), np.int64, len(rejected))
    codes_of = getattr(plugin, "reject_codes", None)
    if codes_of is not None:
        codes, meaning = codes_of(state, pod, rejected)
        for code in _values(codes):
            _tally(diagnosis, meaning(code).by(name), slots[codes == code])
    elif callable(getattr(plugin, "filter", None)):
        for slot, node in zip(slots, rejected.infos(), strict=True):
            status = plugin.filter(state, pod, node)
            if status is None or ok(name, status):
                raise PluginError(f'running "{name}" filter plugin: filter_nodes rejects {node}, filter does not')
            _tally(diagnosis, status.by(name), np.array([slot]))
    else:
        _tally(diagnosis, _unsatisfied(name), slots)


def _tally(diagnosis: Diagnosis, status: Status, slots: IntArray) -> None:
    diagnosis.add_plugin(status)
    if status.code is Code.UNSCHEDULABLE:
        diagnosis.unschedulable_slots += slots.tolist()
    for reason in status.reasons:
        diagnosis.reasons[reason] = diagnosis.reasons.get(reason, 0) + len(slots)


def _values(codes: IntArray) -> list[int]:
    """The distinct codes, ascending; small ones are found without sorting."""
    if int(codes.max(initial=0)) < SMALL_CODES:
        found: list[int] = np.flatnonzero(np.bincount(codes)).tolist()
        return found
    found = np.unique(codes).tolist()
    return found

"""Runs PreFilter and PreScore for a pod: the candidate nodes, and the plugins that remain to be run on them.

Plugins that read single nodes only (`node_local`) are prepared separately from the others: their results are cached by
signature, while the others run for every pod. One that returns Skip costs no more than that.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from minikube_py.scheduler.columns import NodeColumns
from minikube_py.scheduler.framework import Code, CycleState, Normalize, PluginError, Status
from minikube_py.scheduler.objects import PodInfo


class Scorer(NamedTuple):
    plugin: Any
    weight: int
    normalize: Normalize | None
    """None: scores are used unchanged, or the plugin has `normalize_scores`."""


class Plugins(NamedTuple):
    """The node-related plugins of a profile, or some of them, in the profile's order."""

    pre_filters: Mapping[str, Any]
    filters: Mapping[str, Any]
    pre_scorers: Mapping[str, Any]
    scorers: tuple[Scorer, ...]

    def of(self, names: frozenset[str]) -> Plugins:
        return Plugins(
            {name: plugin for name, plugin in self.pre_filters.items() if name in names},
            {name: plugin for name, plugin in self.filters.items() if name in names},
            {name: plugin for name, plugin in self.pre_scorers.items() if name in names},
            tuple(scorer for scorer in self.scorers if scorer.plugin.name in names),
        )

    def by_name(self) -> dict[str, Any]:
        scorers = {scorer.plugin.name: scorer.plugin for scorer in self.scorers}
        return {**self.pre_filters, **self.filters, **self.pre_scorers, **scorers}


NO_PLUGINS = Plugins({}, {}, {}, ())


class Rejected(Exception):
    """PreFilter rejected the pod."""

    def __init__(self, status: Status, plugins: set[str]) -> None:
        self.status = status
        self.plugins = plugins


_NONE_BARRED: Mapping[int, Status] = {}


class Prepared(NamedTuple):
    """The result of PreFilter and PreScore: the state, and the plugins still to run. `node_names`: the only candidate
    nodes, None for all. `barred`: slots where nominated pods leave no room for this one, with the reason.

    `broken`: PreScore's error. It matters only if several nodes fit: upstream runs PreScore only then."""

    state: CycleState
    node_names: frozenset[str] | None
    pinned_by: frozenset[str]
    filters: tuple[tuple[str, Any], ...]
    scorers: tuple[Scorer, ...]
    barred: Mapping[int, Status] = _NONE_BARRED
    broken: PluginError | None = None

    def require_scores(self) -> None:
        """Raises: PluginError."""
        if self.broken is not None:
            raise self.broken

    @property
    def is_idle(self) -> bool:
        """Whether no plugin affects any node."""
        return not (self.filters or self.scorers or self.barred) and self.node_names is None and self.broken is None


def prepare(plugins: Plugins, columns: NodeColumns, pod: PodInfo, state: CycleState | None = None) -> Prepared:
    """Raises: Rejected, PluginError."""
    state = CycleState() if state is None else state
    skipped: set[str] = set()
    pinning: set[str] = set()
    names: frozenset[str] | None = None
    rejection: Status | None = None
    for name, plugin in plugins.pre_filters.items():
        result, status = plugin.pre_filter(state, pod, columns)
        if status is not None and not status.is_success:
            if status.code is Code.SKIP:
                skipped.add(name)
                continue
            status = Status(status.code, *status.reasons, plugin=name)
            if status.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE:
                raise Rejected(status, set())
            if not status.is_rejected:
                raise PluginError(f'running PreFilter plugin "{name}": {status.message}')
            rejection = status
            continue
        if result is not None and result.node_names is not None:
            pinning.add(name)
            names = result.node_names if names is None else names & result.node_names
            if not names:
                raise _nowhere(pinning)
    if rejection is not None:
        raise Rejected(rejection, pinning)
    if skipped:
        state.skip_filter |= skipped
        filters = tuple(item for item in plugins.filters.items() if item[0] not in skipped)
    else:
        filters = tuple(plugins.filters.items())
    scorers, broken = _prepare_scores(plugins, columns, pod, state)
    return Prepared(state, names, frozenset(pinning), filters, scorers, broken=broken)


def _nowhere(pinning: set[str]) -> Rejected:
    """The plugins in `pinning` have no node in common."""
    listed = " ".join(sorted(pinning))
    text = f"node(s) didn't satisfy plugin {listed}"
    if len(pinning) > 1:
        text = f"node(s) didn't satisfy plugin(s) [{listed}] simultaneously"
    return Rejected(Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, text), pinning)


def _prepare_scores(
    plugins: Plugins, columns: NodeColumns, pod: PodInfo, state: CycleState
) -> tuple[tuple[Scorer, ...], PluginError | None]:
    skipped: set[str] = set()
    for name, plugin in plugins.pre_scorers.items():
        status = plugin.pre_score(state, pod, columns)
        if status is not None and not status.is_success:
            if status.code is not Code.SKIP:
                return (), PluginError(f'running PreScore plugin "{name}": {status.message}')
            skipped.add(name)
    if not skipped:
        return plugins.scorers, None
    state.skip_score |= skipped
    return tuple(scorer for scorer in plugins.scorers if scorer.plugin.name not in skipped), None


def both(plugins: Plugins, first: Prepared, second: Prepared) -> Prepared:
    """Combines two parts of `plugins`, in the order of `plugins`; the state is the second's, derived from the first's.
    Raises: Rejected."""
    names, pinning = first.node_names, first.pinned_by | second.pinned_by
    if second.node_names is not None:
        names = second.node_names if names is None else names & second.node_names
        if not names:
            raise _nowhere(set(pinning))
    left = {name for name, _ in (*first.filters, *second.filters)}
    filters = tuple(item for item in plugins.filters.items() if item[0] in left)
    scoring = {scorer.plugin.name for scorer in (*first.scorers, *second.scorers)}
    scorers = tuple(scorer for scorer in plugins.scorers if scorer.plugin.name in scoring)
    broken = first.broken or second.broken
    return Prepared(second.state, names, pinning, filters, scorers, second.barred or first.barred, broken)

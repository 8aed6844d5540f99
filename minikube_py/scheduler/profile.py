"""A profile: its plugins by point, built from configuration, and the points that run once per pod.

Filter and Score, which look at nodes, are run by `evaluate`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import isnan
from typing import TYPE_CHECKING, Any

from minikube_py.api.errors import aggregate
from minikube_py.api.feature_gates import NO_GATES, FeatureGates
from minikube_py.own_code import meant
from minikube_py.scheduler.config import ConfigError, PluginSet, ProfileConfig
from minikube_py.scheduler.configuration.args import validate, with_defaults
from minikube_py.scheduler.configuration.merging import (
    default_plugins,
    expanded,
    listed,
    merged,
    refuse_unprepared,
    score_weights,
)
from minikube_py.scheduler.configuration.messages import ARGS, MULTI_POINT, POINTS
from minikube_py.scheduler.framework import (
    EVERYTHING,
    NODE,
    SUCCESS,
    Action,
    ClusterEvent,
    Code,
    CycleState,
    Diagnosis,
    EventRegistration,
    Handle,
    Plugin,
    PluginFactory,
    PostFilterResult,
    PreFilterExtensions,
    Status,
)
from minikube_py.scheduler.kinds import NeededKind
from minikube_py.scheduler.objects import PodInfo, QueuedPodInfo
from minikube_py.scheduler.own import Guarded, Order
from minikube_py.scheduler.plugins.node_resources import ArgsError
from minikube_py.scheduler.plugins.queueing import PrioritySort
from minikube_py.scheduler.pre_binding import of_point
from minikube_py.scheduler.preparing import Plugins, Scorer
from minikube_py.scheduler.registry import UPSTREAM_POINTS, factory

if TYPE_CHECKING:
    from minikube_py.scheduler.extenders.asking import Extenders

logger = logging.getLogger(__name__)

_METHODS: Mapping[str, tuple[str, ...]] = {
    "preEnqueue": ("pre_enqueue",),
    "queueSort": ("sort_key", "less"),
    "preFilter": ("pre_filter",),
    "filter": ("filter", "filter_nodes"),
    "postFilter": ("post_filter",),
    "preScore": ("pre_score",),
    "score": ("score", "score_nodes"),
    "reserve": ("reserve",),
    "permit": ("permit",),
    "preBind": ("pre_bind",),
    "bind": ("bind",),
    "postBind": ("post_bind",),
}
"""By point, the methods of which a participating plugin has at least one."""


def takes_part(plugin: object, point: str) -> bool:
    """Whether a plugin participates in a point; upstream's plugins participate where upstream's do."""
    upstream = UPSTREAM_POINTS.get(getattr(plugin, "name", ""))
    return _runs(plugin, point) if upstream is None else point in upstream


WAITED_FOR = "one or more plugins asked to wait and no plugin rejected pod"


def _runs(plugin: object, point: str) -> bool:
    return any(callable(getattr(plugin, method, None)) for method in _METHODS.get(point, ()))


PREPARED_HERE = {
    "preFilter": ("filter", "NodeName", "VolumeZone", "NodeVolumeLimits"),
    "preScore": ("score", "DynamicResources", "ImageLocality"),
}
"""By point, the one that it prepares, and the plugins that do without it upstream, or compute it where they need it."""


def _is_read(plugin: object) -> bool:
    """Whether what it reads of pods is found out as it reads."""
    return getattr(plugin, "reads", None) is not None


def _signing(plugins: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(plugin for plugin in plugins.values() if callable(getattr(plugin, "sign_pod", None)))


class Profile:
    """Raises from the constructor: ConfigError."""

    def __init__(
        self,
        config: ProfileConfig,
        handle: Handle,
        registry: Mapping[str, PluginFactory] | None = None,
        gates: FeatureGates = NO_GATES,
    ) -> None:
        self.name = config.scheduler_name
        self.percentage_of_nodes_to_score = config.percentage_of_nodes_to_score
        self._config = config
        self._gates = gates
        self._handle = handle
        self._registry = registry or {}
        self._made: dict[str, Any] = {}
        self._weights: dict[str, int] = {}
        points = self._points()
        self.pre_enqueue_plugins = points["preEnqueue"]
        self.post_filters = points["postFilter"]
        scorers = tuple(
            Scorer(plugin, self._weights[name], getattr(plugin, "normalize", None))
            for name, plugin in points["score"].items()
        )
        self.looking = Plugins(points["preFilter"], points["filter"], points["preScore"], scorers)
        self.reservers = points["reserve"]
        self.permitters = points["permit"]
        self.pre_binders = points["preBind"]
        self.binders = points["bind"]
        self.post_binders = points["postBind"]
        self._needing = tuple(p for p in self._made.values() if callable(getattr(p, "kinds_needed", None)))
        self.placer = next((p for p in self._made.values() if getattr(p, "places_in_rounds", False)), None)
        """Places the profile's pods together; None if each is placed alone."""
        (self._queue_sort,) = points["queueSort"].values()
        self.sort_key = self._sort_key()
        by_name = self.looking.by_name()
        self.local_plugins = frozenset(n for n, plugin in by_name.items() if getattr(plugin, "node_local", False))
        self.local = self.looking.of(self.local_plugins)
        self.wide = self.looking.of(frozenset(by_name) - self.local_plugins)
        self.kept_plugins = frozenset(name for name in self.local_plugins if self._is_reusable(name))
        """Those of them whose results are cached by signature."""
        self.reads_pods_of_nodes = any(isinstance(by_name[name], Guarded) for name in self.kept_plugins)
        self.kept = self.looking.of(self.kept_plugins)
        self.beyond = self.looking.of(frozenset(by_name) - self.kept_plugins)
        self.extensions = {
            name: plugin for name, plugin in self.looking.pre_filters.items() if isinstance(plugin, PreFilterExtensions)
        }
        self._signers = _signing(self.kept.by_name())
        self._filter_signers = _signing({**self.local.pre_filters, **self.local.filters})
        preparing = {**self.kept.pre_filters, **self.kept.pre_scorers}
        for_each = frozenset(name for name, plugin in preparing.items() if _is_read(plugin))
        self.kept_for_each = self.kept.of(for_each)
        """Cached custom plugins with PreFilter or PreScore, which may put the pod itself in the state."""
        self.kept_others = self.kept.of(self.kept_plugins - for_each)

    @classmethod
    def named(
        cls,
        config: ProfileConfig,
        handle: Handle,
        registry: Mapping[str, PluginFactory] | None = None,
        gates: FeatureGates = NO_GATES,
    ) -> Profile:
        """One of a scheduler's profiles. Raises: ConfigError, naming the profile."""
        try:
            return cls(config, handle, registry, gates)
        except ConfigError as error:
            where = f"initializing profiles: creating profile for scheduler name {config.scheduler_name}"
            raise ConfigError(f"{where}: {error}") from error

    # --- construction -----------------------------------------------------------------------------------------------

    def _points(self) -> dict[str, dict[str, Any]]:
        """By point, its plugins in order: multiPoint's, with the point's own overrides and additions."""
        plugins = self._config.plugins
        own = {point: merged(plugins.get(point, PluginSet()), ()) for point in POINTS}
        multi = merged(plugins.get(MULTI_POINT, PluginSet()), default_plugins(self._gates)).enabled
        for name, _ in (*(item for each in own.values() for item in each.enabled), *multi):
            self._make(name)
        asking = {point: partial(self._extends, point) for point in POINTS}
        for point in POINTS:
            listed(own[point], point, asking[point])
        names = {point: expanded(own[point], multi, point, asking[point]) for point in POINTS}
        for before, (point, *prepared) in PREPARED_HERE.items():
            names[before] += [name for name in prepared if name in names[point] and name not in names[before]]
        self._check(names["queueSort"], names["bind"])
        self._weights.update(score_weights(own["score"], multi, asking["score"]))
        refuse_unprepared(names)
        return {
            point: {name: self._made[name] for name in names[point] if _runs(self._made[name], point)}
            for point in _METHODS
        }

    def _extends(self, point: str, name: str) -> bool | None:
        plugin = self._made.get(name)
        return None if plugin is None else takes_part(plugin, point)

    def _make(self, name: str) -> None:
        """Errors about a missing plugin name the point. Raises: ConfigError."""
        make = None if name in self._made else factory(name, self._registry, self._gates)
        if make is None:
            return
        args = self._config.plugin_args.get(name, {})
        if name in ARGS:
            args = with_defaults(name, args)
            errors = validate(name, args, "")
            if errors:
                raise ConfigError(f'initializing plugin "{name}": {aggregate(str(error) for error in errors)}')
        try:
            made = self._made[name] = make(args, self._handle)
        except ArgsError as error:
            raise ConfigError(f'initializing plugin "{name}": {error}') from error
        if not any(takes_part(made, point) for point in POINTS) and not getattr(made, "places_in_rounds", False):
            methods = [method for each in _METHODS.values() for method in each]
            none = f"it has none of {', '.join(methods)}{meant(getattr(made, 'plugin', made), methods)}"
            raise ConfigError(f'plugin "{name}" takes part in no extension point: {none}')

    def _check(self, sorters: Sequence[str], binders: Sequence[str]) -> None:
        if len(sorters) != 1:
            text = "only one queue sort plugin required for profile with scheduler name"
            *others, last = sorters or ("",)
            out = f"disabled: [{', '.join(f'{{name: {name}}}' for name in others)}]"
            how = f". A file with `plugins: {{queueSort: {{{out}}}}}` in profile {self.name} leaves the order to {last}"
            raise ConfigError(f'{text} "{self.name}", but got {len(sorters)}{how if others else ""}')
        if not binders:
            raise ConfigError(f'at least one bind plugin is needed for profile with scheduler name "{self.name}"')

    def _is_reusable(self, name: str) -> bool:
        """Whether a node-local plugin's results may be cached by signature and reused for unchanged nodes."""

        def has(method: str) -> bool:
            return callable(getattr(self._made[name], method, None))

        scores = any(scorer.plugin.name == name for scorer in self.looking.scorers)
        both_forms = (has("filter") or name not in self.looking.filters) and (has("score") or not scores)
        return both_forms and not has("normalize_scores")

    def _sort_key(self) -> Callable[[QueuedPodInfo], Any]:
        plugin = self._queue_sort
        return plugin.sort_key if isinstance(plugin, PrioritySort) else Order(plugin)

    @property
    def queue_sort_name(self) -> str:
        return str(self._queue_sort.name)

    @property
    def queue_sort_args(self) -> Mapping[str, Any] | None:
        """None without pluginConfig."""
        return self._config.plugin_args.get(self.queue_sort_name)

    def plugin(self, name: str) -> Plugin | None:
        found: Plugin | None = self._made.get(name)
        return found

    def events(self) -> list[tuple[str, EventRegistration]]:
        """All registered events as (plugin, registration). A plugin that may reject pods without registering events
        gets all of them, or its pods would only return by timeout; one that hears of new nodes hears of changed taints
        (upstream: buildQueueingHintMap)."""
        rejecting = {**self.looking.by_name(), **self.pre_enqueue_plugins, **self.reservers, **self.permitters}
        if self.placer is not None:
            rejecting[self.placer.name] = self.placer
        found = []
        for name, plugin in rejecting.items():
            ask = getattr(plugin, "events_to_register", None)
            registrations = ask() if ask is not None else (EVERYTHING,)
            found += [(name, registration) for registration in registrations]
            heard = [each.event.action for each in registrations if each.event.resource == NODE]
            if any(each & Action.ADD for each in heard) and not any(each & Action.UPDATE_NODE_TAINT for each in heard):
                found.append((name, EventRegistration(ClusterEvent(NODE, Action.UPDATE_NODE_TAINT))))
        return found

    # --- points that run once a pod ---------------------------------------------------------------------------------

    def kinds_needed(self, pod: PodInfo) -> list[NeededKind]:
        """The kinds that must be synced before any plugin tries the pod."""
        return [kind for plugin in self._needing for kind in plugin.kinds_needed(pod)]

    def sign(self, pod: PodInfo) -> object:
        """Pods with equal signatures get equal results on equal nodes from the cached plugins; None: no such
        guarantee. Valid until a plugin reads more of a pod than before."""
        parts: list[object] = [pod.spec]
        for plugin in self._signers:
            part = plugin.sign_pod(pod)
            if part is None:
                return None
            parts.append(part)
        return tuple(parts)

    def reads(self, pod: PodInfo) -> object:
        """A hashable of all that the node-local filters may read of the pod, now or later; None if unknown. What a
        custom filter without `sign_pod` will read is not known: the pod itself."""
        parts = [pod.uid if _is_read(plugin) else plugin.sign_pod(pod) for plugin in self._filter_signers]
        return None if None in parts else (pod.spec, *parts)

    def run_pre_enqueue(self, pod: PodInfo) -> Status:
        for name, plugin in self.pre_enqueue_plugins.items():
            try:
                status = plugin.pre_enqueue(pod)
            except Exception as error:
                # Hold back only this pod: this runs in the watch event handlers.
                logger.exception("PreEnqueue plugin %s for pod %s", name, pod.key)
                status = Status(Code.ERROR, str(error) or type(error).__name__)
            if status is not None and not status.is_success:
                return Status(status.code, *status.reasons, plugin=name)
        return SUCCESS

    def run_post_filter(
        self, state: CycleState, pod: PodInfo, diagnosis: Diagnosis
    ) -> tuple[PostFilterResult | None, Status]:
        said = _PostFiltered()
        for name, plugin in self.post_filters.items():
            if said.ends_with(name, *plugin.post_filter(state, pod, diagnosis)):
                break
        return said.all

    async def run_post_filter_through(
        self, extenders: Extenders, pod: PodInfo, diagnosis: Diagnosis
    ) -> tuple[PostFilterResult | None, Status]:
        """As `run_post_filter`, with extenders involved."""
        said = _PostFiltered()
        for name, plugin in self.post_filters.items():
            through = getattr(plugin, "post_filter_through", None)
            told = plugin.post_filter(CycleState(), pod, diagnosis) if through is None else None
            if said.ends_with(name, *(told or await plugin.post_filter_through(extenders, pod, diagnosis))):
                break
        return said.all

    def run_reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        for name, plugin in self.reservers.items():
            status = plugin.reserve(state, pod, node_name)
            if status is not None and not status.is_success:
                return of_point("Reserve", name, status)
        return SUCCESS

    def run_unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        """In reverse order, all plugins, whether or not they reserved. Never raises: the node is released anyway."""
        for plugin in reversed(self.reservers.values()):
            try:
                plugin.unreserve(state, pod, node_name)
            except Exception:
                logger.exception("Unreserve of plugin %s for pod %s", plugin.name, pod.key)

    def run_permit(self, state: CycleState, pod: PodInfo, node_name: str) -> tuple[Status, dict[str, float]]:
        """The status, and for Wait, each plugin's timeout in seconds."""
        waits: dict[str, float] = {}
        told = SUCCESS
        for name, plugin in self.permitters.items():
            status, timeout_s = plugin.permit(state, pod, node_name)
            if status is None or status.is_success:
                continue
            if status.code is not Code.WAIT:
                return of_point("Permit", name, status), {}
            if isnan(timeout_s):
                return Status(Code.ERROR, f'running Permit plugin "{name}": its timeout is no number', plugin=name), {}
            waits[name] = timeout_s
            told = Status(Code.WAIT, *status.reasons, WAITED_FOR)
        return told, waits

    def pre_binders_of(self, state: CycleState, pod: PodInfo, node_name: str) -> dict[str, Any]:
        """The PreBind plugins that the pod needs."""
        found = {}
        for name, plugin in self.pre_binders.items():
            ask = getattr(plugin, "has_pre_bind", None)
            if ask is None or ask(state, pod, node_name):
                found[name] = plugin
        return found

    async def run_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        """The first plugin that does not return Skip decides."""
        for name, plugin in self.binders.items():
            status = await plugin.bind(state, pod, node_name)
            if status is None or status.is_success:
                return SUCCESS
            if status.code is not Code.SKIP:
                return Status(status.code, *status.reasons, plugin=name)
        return Status(Code.ERROR, "no bind plugin took the pod")

    def run_post_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        for plugin in self.post_binders.values():
            plugin.post_bind(state, pod, node_name)


class _PostFiltered:
    """The combined PostFilter result: the first plugin that succeeds, fails or returns unresolvable decides."""

    def __init__(self) -> None:
        self.all: tuple[PostFilterResult | None, Status] = (None, Status(Code.UNSCHEDULABLE))

    def ends_with(self, name: str, found: PostFilterResult | None, status: Status) -> bool:
        if status.is_success or not status.is_rejected or status.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE:
            self.all = found, status.by(name)
            return True
        before, so_far = self.all
        self.all = found or before, Status(Code.UNSCHEDULABLE, *so_far.reasons, *status.reasons)
        return False


def require_one_order(profiles: Sequence[Profile]) -> None:
    """All profiles share one queue. Raises: ConfigError."""
    first, args = profiles[0].queue_sort_name, profiles[0].queue_sort_args
    for profile in profiles:
        if profile.queue_sort_name == first and profile.queue_sort_args != args:
            raise ConfigError(f'initializing profiles: different queue sort plugin args for profile "{profile.name}"')
        if profile.queue_sort_name != first:
            text = f'different queue sort plugins for profile "{profile.name}": "{profile.queue_sort_name}"'
            raise ConfigError(f'initializing profiles: {text}, first: "{first}"')

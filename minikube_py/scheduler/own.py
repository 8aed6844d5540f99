"""A custom plugin: loaded by `FILE.py:CLASS`, `MODULE:CLASS` or entry point name, and run beside the others.

It needs the methods of one extension point; to look at nodes, only `filter` or `score` for one node. An exception in
such a plugin, or a result that means nothing, becomes an Error status with upstream's message and the line where it
happened; the scheduler and the other pods continue (ADR 0108).
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Mapping
from enum import StrEnum
from functools import partial
from operator import attrgetter
from typing import Any, Final, NamedTuple

from minikube_py.errors import MinikubeError
from minikube_py.own_code import BadCode, find_class, name_of, raised, told
from minikube_py.scheduler.configuration.merging import ConfigError
from minikube_py.scheduler.framework import MAX_NODE_SCORE, Handle, Normalize, PluginError, PluginFactory
from minikube_py.scheduler.objects import PodInfo, QueuedPodInfo
from minikube_py.scheduler.own_results import CHECKS, Nonsense, checks
from minikube_py.scheduler.plugins.queueing import PrioritySort
from minikube_py.scheduler.reads import ReadPod, Reads

logger = logging.getLogger(__name__)

_NEEDING: Final = {
    "filter_nodes": ("filter", "the form for one node"),
    "score_nodes": ("score", "the form for one node"),
    "reserve": ("unreserve", "what gives back"),
    "add_pod": ("remove_pod", "its reverse"),
    "remove_pod": ("add_pod", "its reverse"),
}
"""By method, another that it needs, and what that is."""


class Scope(StrEnum):
    """What `filter` and `score` read besides the pod. A plugin declares it as its attribute `scope`."""

    NODE = "NODE"
    """Only that node with its pods. Results are cached for pods that are equal in what it reads of them (`reads`)."""
    TOPOLOGY = "TOPOLOGY"
    """Nodes with equal values of the labels in its attribute `topology_keys`."""
    CLUSTER = "CLUSTER"
    """Any node; the default."""


class OwnPlugin(NamedTuple):
    """`name`: as in the configuration."""

    name: str
    make: PluginFactory


def find(target: str, name: str = "") -> OwnPlugin:
    """`name`: overrides the plugin's own name. Raises: ConfigError, with the location and a remedy."""
    if not target.rpartition(":")[0]:
        from minikube_py.scheduler.registry import entry_point

        name = name or target
        return OwnPlugin(name, partial(_make, name, entry_point(target)))
    try:
        kind = find_class(target, "filter", "score", required=False)
    except BadCode as error:
        raise ConfigError(str(error)) from error
    name = name or name_of(kind, target, "name")
    return OwnPlugin(name, partial(_make, name, kind))


def _make(name: str, kind: Callable[..., Any], args: Mapping[str, Any], handle: Handle) -> Any:
    """`kind` takes nothing, its pluginConfig's args, or the args and a Handle. Raises: ConfigError."""
    count = _parameters(kind)
    if args and not count:
        raise ConfigError(f'plugin "{name}" takes no args; give it `def __init__(self, args)`, or remove its args')
    try:
        plugin = kind(*(args, handle)[:count])
        guarded = Guarded(name, plugin)
    except ConfigError:
        raise
    except raised() as error:
        raise ConfigError(f'initializing plugin "{name}": {told(error)}') from error
    for method, (other, what) in _NEEDING.items():
        if callable(getattr(plugin, method, None)) and not callable(getattr(plugin, other, None)):
            raise ConfigError(f'plugin "{name}" has {method} and no {other}: write {what} as well')
    return guarded


def _parameters(kind: Callable[..., Any]) -> int:
    """How many of (args, handle) it takes."""
    try:
        parameters = inspect.signature(kind).parameters.values()
    except (TypeError, ValueError):
        return 0
    if any(each.kind is each.VAR_POSITIONAL for each in parameters):
        return 2
    return min(2, sum(each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD) for each in parameters))


_FAILED: Final = {
    "pre_enqueue": 'running PreEnqueue plugin "{}": {}',
    "sort_key": 'running QueueSort plugin "{}": {}',
    "less": 'running QueueSort plugin "{}": {}',
    "pre_filter": 'running PreFilter plugin "{}": {}',
    "add_pod": 'running AddPod on PreFilter plugin "{}": {}',
    "remove_pod": 'running RemovePod on PreFilter plugin "{}": {}',
    "filter": 'running "{}" filter plugin: {}',
    "filter_nodes": 'running "{}" filter plugin: {}',
    "reject_codes": 'running "{}" filter plugin: {}',
    "post_filter": 'running PostFilter plugin "{}": {}',
    "post_filter_through": 'running PostFilter plugin "{}": {}',
    "pre_score": 'running PreScore plugin "{}": {}',
    "score": 'running Score plugins: plugin "{}" failed with: {}',
    "score_nodes": 'running Score plugins: plugin "{}" failed with: {}',
    "normalize_scores": 'running Normalize on Score plugins: plugin "{}" failed with: {}',
    "reserve": 'running Reserve plugin "{}": {}',
    "permit": 'running Permit plugin "{}": {}',
    "has_pre_bind": 'running PreBind plugin "{}": {}',
    "pre_bind": 'running PreBind plugin "{}": {}',
    "bind": 'running Bind plugin "{}": {}',
    "events_to_register": 'initializing plugin "{}": {}',
}
"""Upstream's messages for failing plugin methods."""

_ASYNC: Final = frozenset(("pre_bind", "bind", "post_filter_through"))
_WITHOUT: Final[Mapping[str, Any]] = {
    "kinds_needed": (),
    "sign_pod": None,
    "gate_key": None,
    "bounds": (),
    "unreserve": None,
    "post_bind": None,
}
"""Methods that cannot fail, and their results if they do."""

_FILTERING: Final = ("pre_filter", "add_pod", "remove_pod", "filter", "filter_nodes", "reject_codes")
_SHARED: Final = frozenset((*_FILTERING, "pre_score", "score", "score_nodes"))
"""The methods whose results pods share; their second parameter is the pod."""


class Guarded:
    """A custom plugin with error handling, as the framework sees it.

    `reads`: what it reads of pods; None if its results are not shared, or it has a `sign_pod` of its own."""

    def __init__(self, name: str, plugin: Any) -> None:
        self.name = name
        self.plugin = plugin
        self.scope = self._scope()
        self.node_local = self.scope is Scope.NODE
        self.normalize = getattr(plugin, "normalize", None)
        if not (self.normalize is None or isinstance(self.normalize, Normalize)):
            raise ConfigError(f'plugin "{name}": normalize is {self.normalize!r}; a Normalize is expected')
        # Scores of a bounded plugin are not checked.
        self.bounded = False
        self.parallel_pre_bind = bool(getattr(plugin, "parallel_pre_bind", False))
        by_others = callable(getattr(plugin, "normalize_scores", None))
        self._checks = checks()
        if self.normalize is None and not by_others:
            self._checks["score"] = self._in_range
        signs = callable(getattr(plugin, "sign_pod", None))
        self.reads = Reads() if self.node_local and not by_others and not signs else None
        self._seen: PodInfo | None = None
        self._view: PodInfo | None = None
        # Not its helper methods, which may have the names of attributes here.
        for method in CHECKS:
            own = getattr(plugin, method, None)
            if callable(own):
                setattr(self, method, self.guarded(method, own))
        if self.node_local and not signs:
            self.sign_pod = attrgetter("uid") if self.reads is None else self.reads.sign

    def _scope(self) -> Scope:
        said = getattr(self.plugin, "scope", None)
        if said is None:
            return Scope.NODE if getattr(self.plugin, "node_local", False) else Scope.CLUSTER
        try:
            scope = Scope(said)
        except ValueError:
            raise ConfigError(f'plugin "{self.name}": scope is {said!r}; write NODE, TOPOLOGY or CLUSTER') from None
        if scope is Scope.TOPOLOGY and not getattr(self.plugin, "topology_keys", ()):
            raise ConfigError(f'plugin "{self.name}": scope TOPOLOGY needs topology_keys, the labels that it looks at')
        return scope

    def guarded(self, method: str, own: Callable[..., Any]) -> Callable[..., Any]:
        """One of CHECKS. Raises: ConfigError if it is async and must not be."""
        if method in _ASYNC:
            return partial(self._run_async, method, own)
        if inspect.iscoroutinefunction(own):
            raise ConfigError(f'plugin "{self.name}": {method} is async; only {", ".join(sorted(_ASYNC))} may be')
        if method in _WITHOUT:
            return partial(self._or_nothing, method, own)
        run = self._run if self.reads is None or method not in _SHARED else self._run_shared
        return partial(run, method, own)

    def _run(self, method: str, own: Callable[..., Any], *given: Any) -> Any:
        """Raises: PluginError; ConfigError from `events_to_register`."""
        try:
            return self._checks[method](own(*given), *given)
        except raised() as error:
            kind = ConfigError if method == "events_to_register" else PluginError
            raise kind(self._said(method, error)) from error

    def _run_shared(self, method: str, own: Callable[..., Any], state: Any, pod: PodInfo, *more: Any) -> Any:
        """As `_run`, with a view of the pod. Raises: PluginError."""
        if pod is not self._seen:
            assert self.reads is not None
            self._seen, self._view = pod, ReadPod(pod, self.reads)
        try:
            return self._checks[method](own(state, self._view, *more), *more)
        except raised() as error:
            raise PluginError(self._said(method, error)) from error

    async def _run_async(self, method: str, own: Callable[..., Any], *given: Any) -> Any:
        """Raises: PluginError; MinikubeError unchanged, since a binding whose answer is lost is not one that failed."""
        try:
            found = own(*given)
            return self._checks[method](await found if inspect.isawaitable(found) else found, *given)
        except MinikubeError:
            raise
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            # Something else was cancelled that it waited for.
            raise PluginError(self._said(method, error)) from error
        except raised() as error:
            raise PluginError(self._said(method, error)) from error

    def _or_nothing(self, method: str, own: Callable[..., Any], *given: Any) -> Any:
        try:
            return self._checks[method](own(*given), *given)
        except raised() as error:
            logger.error("plugin %s: %s", self.name, _why(method, error), exc_info=error)
            return _WITHOUT[method]

    def _in_range(self, found: Any, *given: Any) -> int:
        """The check of scores that are not normalised. Raises: Nonsense, _OutOfRange."""
        score: int = CHECKS["score"](found, *given)
        if 0 <= score <= MAX_NODE_SCORE:
            return score
        text = f'plugin "{self.name}" returns an invalid score {score}'
        raise _OutOfRange(f"{text}, it should in the range of [0, {MAX_NODE_SCORE}] after normalizing")

    def _said(self, method: str, error: BaseException) -> str:
        text = str(error) if isinstance(error, _OutOfRange) else _FAILED[method].format(self.name, _why(method, error))
        # What is no UTF-8 could not be written to the pod.
        return text.encode(errors="replace").decode()


def _why(method: str, error: BaseException) -> str:
    return f"{method} {error}" if isinstance(error, Nonsense) else told(error)


class _OutOfRange(PluginError):
    """Has upstream's whole message."""


class Order:
    """The queue's sort key by a plugin: what it returns for a queued pod can be compared. Where the plugin fails, pods
    are in the order of PrioritySort."""

    def __init__(self, plugin: Any) -> None:
        self._plugin = plugin
        self._has_key = callable(getattr(plugin, "sort_key", None))
        self._told = False

    def __call__(self, queued: QueuedPodInfo) -> Place:
        try:
            return Place(self, queued, self._plugin.sort_key(queued) if self._has_key else None)
        except raised() as error:
            self._tell(queued, error)
            return Place(self, queued, None)

    def is_before(self, one: Place, other: Place) -> bool:
        try:
            if not self._has_key:
                return bool(self._plugin.less(one.queued, other.queued))
            if one.key is not None and other.key is not None:
                return bool(one.key < other.key)
        except raised() as error:
            self._tell(one.queued, error)
        return PrioritySort().less(one.queued, other.queued)

    def _tell(self, queued: QueuedPodInfo, error: BaseException) -> None:
        if not self._told:
            self._told = True
            text = "the order of pod %s fails, logged once; such pods are in the order of PrioritySort: %s"
            logger.error(text, queued.pod.key, error)


class Place:
    __slots__ = ("_order", "key", "queued")

    def __init__(self, order: Order, queued: QueuedPodInfo, key: Any) -> None:
        self._order, self.queued, self.key = order, queued, key

    def __lt__(self, other: Place) -> bool:
        return self._order.is_before(self, other)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Place) and not (self < other or other < self)

    __hash__ = None  # type: ignore[assignment]

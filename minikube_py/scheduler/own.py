"""A custom plugin: loaded by `FILE.py:CLASS`, `MODULE:CLASS` or entry point name, and run beside the others.

Only `filter` or `score` for one node is required. An exception in such a plugin becomes an Error status with upstream's
message and the line where it happened; the scheduler and the other pods continue.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Mapping
from enum import StrEnum
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np

from minikube_py.own_code import BadCode, find_class, name_of, told
from minikube_py.scheduler.configuration.merging import ConfigError
from minikube_py.scheduler.framework import MAX_NODE_SCORE, Handle, PluginError, PluginFactory
from minikube_py.scheduler.objects import PodInfo

logger = logging.getLogger(__name__)

_DERIVING: Final = (("filter_nodes", "filter"), ("score_nodes", "score"))


class Scope(StrEnum):
    """What `filter` and `score` read besides the pod. A plugin declares it as its attribute `scope`."""

    NODE = "NODE"
    """Only that node. Results are cached for pods with equal signatures."""
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
        kind = find_class(target, "filter", "score")
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
    except ConfigError:
        raise
    except Exception as error:
        raise ConfigError(f'initializing plugin "{name}": {told(error)}') from error
    for many, one in _DERIVING:
        if callable(getattr(plugin, many, None)) and not callable(getattr(plugin, one, None)):
            raise ConfigError(f'plugin "{name}" has {many} and no {one}: write the form for one node as well')
    return Guarded(name, plugin)


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
    "pre_filter": 'running PreFilter plugin "{}": {}',
    "add_pod": 'running AddPod on PreFilter plugin "{}": {}',
    "remove_pod": 'running RemovePod on PreFilter plugin "{}": {}',
    "filter": 'running "{}" filter plugin: {}',
    "filter_nodes": 'running "{}" filter plugin: {}',
    "reject_codes": 'running "{}" filter plugin: {}',
    "pre_score": 'running PreScore plugin "{}": {}',
    "score": 'running Score plugins: plugin "{}" failed with: {}',
    "score_nodes": 'running Score plugins: plugin "{}" failed with: {}',
    "normalize_scores": 'running Normalize on Score plugins: plugin "{}" failed with: {}',
    "reserve": 'running Reserve plugin "{}": {}',
    "permit": 'running Permit plugin "{}": {}',
}
"""Upstream's messages for failing plugin methods."""

_WITHOUT: Final[Mapping[str, Any]] = {"unreserve": None, "post_bind": None, "kinds_needed": (), "sign_pod": None}
"""Methods that cannot fail, and their results if they raise."""


class Guarded:
    """A custom plugin with error handling, as the framework sees it."""

    def __init__(self, name: str, plugin: Any) -> None:
        self.name = name
        self.plugin = plugin
        self.scope = self._scope()
        self.node_local = self.scope is Scope.NODE
        self.normalize = getattr(plugin, "normalize", None)
        # Scores of a bounded plugin are not checked.
        self.bounded = False
        self._plain = self.normalize is None and not callable(getattr(plugin, "normalize_scores", None))
        for method in dir(plugin):
            own = None if method.startswith("_") else getattr(plugin, method, None)
            if callable(own) and not isinstance(own, type):
                setattr(self, method, self.guarded(method, own))
        if self.node_local and not callable(getattr(plugin, "sign_pod", None)):
            self.sign_pod = signature

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
        if method in _WITHOUT:
            return partial(self._or_nothing, method, own)
        if method not in _FAILED:
            return own
        checks = {"score": self._check_score, "score_nodes": self._check_scores, "filter_nodes": self._check_mask}
        return partial(self._run, method, own, checks.get(method))

    def _run(self, method: str, own: Callable[..., Any], check: Callable[..., Any] | None, *given: Any) -> Any:
        """Raises: PluginError."""
        try:
            found = own(*given)
        except Exception as error:
            raise PluginError(_FAILED[method].format(self.name, told(error))) from error
        return found if check is None else check(found, given[-1])

    def _or_nothing(self, method: str, own: Callable[..., Any], *given: Any) -> Any:
        try:
            return own(*given)
        except Exception:
            logger.exception("%s of plugin %s", method, self.name)
            return _WITHOUT[method]

    def _check_score(self, score: Any, node: Any) -> int:
        if isinstance(score, bool) or not isinstance(score, int | np.integer):
            text = f"score returned {score!r} for node {node.name}; an int is expected"
            raise PluginError(_FAILED["score"].format(self.name, text))
        if self._plain and not 0 <= score <= MAX_NODE_SCORE:
            text = f'plugin "{self.name}" returns an invalid score {score}'
            raise PluginError(f"{text}, it should in the range of [0, {MAX_NODE_SCORE}] after normalizing")
        return int(score)

    def _check_scores(self, scores: Any, nodes: Any) -> Any:
        return self._check_array("score_nodes", scores, nodes, "i")

    def _check_mask(self, mask: Any, nodes: Any) -> Any:
        return self._check_array("filter_nodes", mask, nodes, "b")

    def _check_array(self, method: str, found: Any, nodes: Any, kind: str) -> Any:
        fits = isinstance(found, np.ndarray) and found.dtype.kind == kind and found.shape == (len(nodes),)
        if found is None or fits:
            return found
        wanted = "ints" if kind == "i" else "bools"
        text = f"{method} wants a numpy array of {len(nodes)} {wanted}, one a node, or None"
        raise PluginError(_FAILED[method].format(self.name, text))


def signature(pod: PodInfo) -> object:
    """What tells a pod from others with the same spec; None if it has volumes."""
    if pod.volumes:
        return None
    labels = tuple(sorted(pod.labels.items()))
    return pod.namespace, labels, pod.priority, pod.preemption_policy, pod.controller, pod.gates

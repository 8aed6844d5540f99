"""The plugins of each point: the defaults, a profile's changes, and multiPoint expanded.

Sources: mergePluginSet in pkg/scheduler/apis/config/v1/default_plugins.go; updatePluginList and expandMultiPointPlugins
in pkg/scheduler/framework/runtime/framework.go.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from minikube_py.api.feature_gates import GANG_SCHEDULING, FeatureGates
from minikube_py.errors import RequestError

Enabled = tuple[tuple[str, int], ...]

UPSTREAM_DEFAULTS: Final[Enabled] = (
    ("SchedulingGates", 0),
    ("PrioritySort", 0),
    ("NodeUnschedulable", 0),
    ("NodeName", 0),
    ("TaintToleration", 3),
    ("NodeAffinity", 2),
    ("NodePorts", 0),
    ("NodeResourcesFit", 1),
    ("VolumeRestrictions", 0),
    ("NodeVolumeLimits", 0),
    ("VolumeBinding", 0),
    ("VolumeZone", 0),
    ("PodTopologySpread", 2),
    ("InterPodAffinity", 2),
    ("DynamicResources", 2),
    ("DefaultPreemption", 0),
    ("NodeResourcesBalancedAllocation", 1),
    ("ImageLocality", 1),
    ("DefaultBinder", 0),
    ("NodeDeclaredFeatures", 0),
)
"""(name, weight), in upstream's order."""


def default_plugins(gates: FeatureGates) -> Enabled:
    """With these gates enabled."""
    return (*UPSTREAM_DEFAULTS, (GANG_SCHEDULING, 0)) if GANG_SCHEDULING in gates else UPSTREAM_DEFAULTS


class ConfigError(RequestError):
    """The configuration is invalid; the message says where, why, and what is valid."""


@dataclass(frozen=True, slots=True)
class PluginSet:
    """`enabled`: (name, weight), weight 0 for the default of 1. `disabled`: names, "*" for all defaults."""

    enabled: Enabled = ()
    disabled: Collection[str] = ()


def merged(custom: PluginSet, defaults: Enabled) -> PluginSet:
    """The defaults minus disabled ones, re-weighted in place if enabled again, then other enabled plugins; a plugin
    named twice stays twice."""
    kept: list[tuple[str, int]] = []
    last = {name: i for i, (name, _) in enumerate(custom.enabled)}
    replaced: set[int] = set()
    if "*" not in custom.disabled:
        for name, weight in defaults:
            if name in custom.disabled:
                continue
            if name in last:
                replaced.add(last[name])
                weight = custom.enabled[last[name]][1]
            kept.append((name, weight))
    kept += [item for i, item in enumerate(custom.enabled) if i not in replaced]
    return PluginSet(tuple(kept), custom.disabled)


def interface(point: str) -> str:
    """Upstream's name for the plugins of a point: `PreFilterPlugin`."""
    return f"{point[:1].upper()}{point[1:]}Plugin"


def listed(own: PluginSet, point: str, extends: Callable[[str], bool | None]) -> list[str]:
    """The plugins that a point names itself. `extends(name)`: whether the plugin implements the point, None if there is
    no such plugin. Raises: ConfigError."""
    found: list[str] = []
    for name, _ in own.enabled:
        takes_part = extends(name)
        if takes_part is None:
            raise ConfigError(f'{interface(point)} "{name}" does not exist')
        if not takes_part:
            raise ConfigError(f'plugin "{name}" does not extend {interface(point)} plugin')
        if name in found:
            raise ConfigError(f'plugin "{name}" already registered as "{interface(point)}"')
        found.append(name)
    return found


def expanded(own: PluginSet, multi: Enabled, point: str, extends: Callable[[str], bool | None]) -> list[str]:
    """The plugins of a point, in order: multiPoint's that the point reconfigures, multiPoint's others, then the point's
    own. Raises: ConfigError."""
    named = [name for name, _ in own.enabled]
    if "*" in own.disabled:
        return named
    from_multi: list[str] = []
    overriding: set[str] = set()
    for name, _ in multi:
        takes_part = extends(name)
        if takes_part is None:
            raise ConfigError(f'{interface(point)} "{name}" does not exist')
        if not takes_part or name in own.disabled:
            continue
        if name in named:
            overriding.add(name)
        elif name in from_multi:
            raise ConfigError(f'plugin "{name}" already registered as "{interface(point)}"')
        else:
            from_multi.append(name)
    return [*(n for n in named if n in overriding), *from_multi, *(n for n in named if n not in overriding)]


READ_BEFORE: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = {
    "preFilter": {
        "filter": (
            "NodePorts", "NodeResourcesFit", "VolumeRestrictions", "VolumeBinding", "PodTopologySpread",
            "InterPodAffinity", "DynamicResources", "NodeDeclaredFeatures",
        ),
        "score": ("DynamicResources",),
        **dict.fromkeys(("reserve", "preBind"), ("VolumeBinding", "DynamicResources")),
    },
    "preScore": {"score": ("TaintToleration", "PodTopologySpread", "InterPodAffinity")},
}  # fmt: skip
"""The plugins that read at one point what they computed at another."""


def refuse_unprepared(names: Mapping[str, Collection[str]]) -> None:
    """`names`: by point. Upstream accepts such a profile, and then ends each pod's cycle with an error.

    Raises: ConfigError."""
    for before, points in READ_BEFORE.items():
        for point, name in ((point, name) for point, plugins in points.items() for name in plugins):
            if name in names[point] and name not in names[before]:
                raise ConfigError(f'plugin "{name}" is enabled at {point} but not at {before}, whose results it reads')


MAX_TOTAL_SCORE = (1 << 63) - 1


def score_weights(own: PluginSet, multi: Enabled, extends: Callable[[str], bool | None]) -> Mapping[str, int]:
    """By score plugin; the point's weight overrides multiPoint's. Raises: ConfigError."""
    weights: dict[str, int] = {}
    total = 0
    for name, weight in (*own.enabled, *multi):
        if name in weights or not extends(name):
            continue
        weights[name] = weight or 1
        if weights[name] * 100 > MAX_TOTAL_SCORE - total:
            raise ConfigError("score plugins: total score of Score plugins could overflow")
        total += weights[name] * 100
    return weights


def refuse_unknown(what: str, args: Iterable[str], known: Iterable[str]) -> None:
    """A misspelt argument is not the same as none. Raises: ConfigError."""
    known = tuple(known)
    if (unknown := next((each for each in args if each not in known), None)) is not None:
        raise ConfigError(f"{what} has no argument {unknown!r}; it has: {', '.join(known) or 'none'}")

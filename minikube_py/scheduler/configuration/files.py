"""Loads a scheduler's configuration from a file, for any layout."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from minikube_py.api import yaml_text
from minikube_py.api.feature_gates import NO_GATES, FeatureGates
from minikube_py.env import read_file
from minikube_py.index.catalogue import admit
from minikube_py.scheduler.config import ConfigError, PluginSet, SchedulerConfig, load
from minikube_py.scheduler.configuration.checking import checked, written
from minikube_py.scheduler.configuration.chosen import DEFAULT_SCHEDULER, ChosenScheduler
from minikube_py.scheduler.configuration.messages import API_VERSION, KIND, MULTI_POINT
from minikube_py.scheduler.objects import DEFAULT_SCHEDULER_NAME
from minikube_py.scheduler.own import OwnPlugin, find
from minikube_py.scheduler.registry import BUILT_IN

EMPTY: Final = f"apiVersion: {API_VERSION}\nkind: {KIND}\n".encode()


def read_scheduler(
    chosen: ChosenScheduler = DEFAULT_SCHEDULER,
    matcher: str = "columns",
    *,
    name: str = "",
    needed: str = "",
    gates: FeatureGates = NO_GATES,
) -> SchedulerConfig:
    """The defaults without a file. `matcher`: a name, or the location of a custom class. `name`: of an additional
    scheduler, given to the only profile if that has none; `needed`: a profile that the run requires.

    Raises: ConfigError, with upstream's message; BadCode, InvalidRequest of the matcher."""
    file, own, known = chosen.file, own_plugins(chosen.plugins), own_plugins(chosen.known)
    if file is None:
        config = with_own(SchedulerConfig(gates=gates), own)
        config = checked(config, own) if own else config
    else:
        try:
            config = checked(with_own(load(_read(file), gates), own, known), own)
        except ConfigError as error:
            raise ConfigError(f"{file}: {error}") from None
    profiles = config.profiles
    if name and len(profiles) == 1 and profiles[0].scheduler_name == DEFAULT_SCHEDULER_NAME:
        profiles = (replace(profiles[0], scheduler_name=name),)
    for wanted in filter(None, (name, needed)):
        if wanted not in {profile.scheduler_name for profile in profiles}:
            raise ConfigError(f"{file}: no profile has the schedulerName {wanted}")
    return replace(config, profiles=profiles, matcher=admit(matcher))


def own_plugins(plugins: Iterable[str]) -> dict[str, OwnPlugin]:
    """By name. Raises: ConfigError."""
    found: dict[str, OwnPlugin] = {}
    for target in plugins:
        own = find(target)
        if own.name in BUILT_IN:
            raise ConfigError(f"{target}: {own.name} is a built-in plugin; rename yours")
        if own.name in found:
            raise ConfigError(f"{target}: another plugin is named {own.name} as well; give one of them another name")
        found[own.name] = own
    return found


def with_own(
    config: SchedulerConfig, own: Mapping[str, OwnPlugin], known: Mapping[str, OwnPlugin] | None = None
) -> SchedulerConfig:
    """`config` plus these plugins, at all their points in each profile; where a profile names one, as enabled or
    disabled, the profile decides. Those in `known` are active only where a profile names them."""
    if not own and not known:
        return config
    profiles = []
    for profile in config.profiles:
        sets = profile.plugins
        named = {name for each in sets.values() for name in (*dict(each.enabled), *each.disabled)}
        multi = sets.get(MULTI_POINT, PluginSet())
        more = tuple((name, 0) for name in own if name not in named)
        plugins = {**sets, MULTI_POINT: replace(multi, enabled=(*multi.enabled, *more))}
        profiles.append(replace(profile, plugins=plugins))
    registry = {**config.registry, **{name: plugin.make for name, plugin in {**(known or {}), **own}.items()}}
    return replace(config, profiles=tuple(profiles), registry=registry)


def write_scheduler(chosen: ChosenScheduler, to: Path, gates: FeatureGates = NO_GATES) -> None:
    """Writes the effective configuration as YAML. Raises: ConfigError."""
    body = EMPTY if chosen.file is None else _read(chosen.file)
    own = own_plugins(chosen.plugins)
    try:
        to.write_bytes(yaml_text.write(written(body, lambda config: with_own(config, own), gates, own)))
    except OSError as error:
        raise ConfigError(f"{to}: {error.strerror}") from None


def _read(file: Path) -> bytes:
    try:
        return read_file(file)
    except OSError as error:
        raise ConfigError(str(error.strerror)) from None

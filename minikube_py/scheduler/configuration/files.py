"""A scheduler's configuration from a file, for whatever layout."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Final

from minikube_py.api import yaml_text
from minikube_py.scheduler.config import ConfigError, SchedulerConfig, load
from minikube_py.scheduler.configuration.checking import checked, written
from minikube_py.scheduler.configuration.messages import API_VERSION, KIND
from minikube_py.scheduler.objects import DEFAULT_SCHEDULER_NAME

EMPTY: Final = f"apiVersion: {API_VERSION}\nkind: {KIND}\n".encode()


def read_scheduler(file: Path | None, matcher: str = "columns", *, name: str = "", needed: str = "") -> SchedulerConfig:
    """The default where there is no file. `name`: of a scheduler beside the first, which the file's only profile gets
    where it has none; `needed`: a profile without which the run makes no sense.

    Raises: ConfigError, with upstream's message."""
    if file is None:
        return SchedulerConfig(matcher=matcher)
    try:
        config = checked(load(_read(file)))
    except ConfigError as error:
        raise ConfigError(f"{file}: {error}") from None
    profiles = config.profiles
    if name and len(profiles) == 1 and profiles[0].scheduler_name == DEFAULT_SCHEDULER_NAME:
        profiles = (replace(profiles[0], scheduler_name=name),)
    for wanted in filter(None, (name, needed)):
        if wanted not in {profile.scheduler_name for profile in profiles}:
            raise ConfigError(f"{file}: no profile has the schedulerName {wanted}")
    return replace(config, profiles=profiles, matcher=matcher)


def write_scheduler(file: Path | None, to: Path) -> None:
    """Writes what a configuration comes to, as YAML. Raises: ConfigError."""
    body = EMPTY if file is None else _read(file)
    try:
        to.write_bytes(yaml_text.write(written(body)))
    except OSError as error:
        raise ConfigError(f"{to}: {error.strerror}") from None


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise ConfigError(str(error.strerror)) from None

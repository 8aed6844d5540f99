"""The effective configuration: `minikube-py scheduler --write-config-to`, as in `kube-scheduler`."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from minikube_py.api.feature_gates import NO_GATES, FeatureGates
from minikube_py.client.informer import Informer, InformerFactory
from minikube_py.client.rest import Object, ResourceRef
from minikube_py.env import SystemClock
from minikube_py.scheduler.columns import NodeColumns
from minikube_py.scheduler.config import ConfigError, SchedulerConfig, load
from minikube_py.scheduler.configuration.messages import API_VERSION, ARGS
from minikube_py.scheduler.configuration.reading import read
from minikube_py.scheduler.framework import Handle
from minikube_py.scheduler.groups.state import Groups
from minikube_py.scheduler.kinds import LentKinds
from minikube_py.scheduler.metrics import Labels
from minikube_py.scheduler.objects import PodInfo
from minikube_py.scheduler.plugin_informers import PluginInformers, Polled
from minikube_py.scheduler.profile import Profile, require_one_order

BINDER: Final = "DefaultBinder"


class NoCluster:
    """A whole Handle for plugins that no scheduler runs: they are only made to see whether they can be, or are judged.
    Nothing is known but the nodes, nothing waits, and events, counts and requests are dropped."""

    client: Any = None

    def __init__(self, columns: NodeColumns | None = None) -> None:
        self.columns = NodeColumns() if columns is None else columns
        self.clock = SystemClock()
        self.rng = random.Random(0)
        factory = InformerFactory(self.client, self.clock, random.Random(0))
        self._lent = PluginInformers(factory, self.clock)
        self.kinds = LentKinds(factory, self.clock, lambda change: None, lambda: None)
        self.groups = Groups()

    def informer(self, resource: ResourceRef, project: Callable[[Object], Any]) -> Informer[Any]:
        """One that is never started."""
        return self._lent.of(resource, project)

    def polled(self, resource: ResourceRef, project: Callable[[Object], Any]) -> Polled:
        """One that is never started."""
        return self._lent.polled(resource, project, self.client, self.rng, self.count)

    def pod(self, key: str) -> PodInfo | None:
        return None

    def tell(self, pod: PodInfo, reason: str, message: str) -> None: ...

    def allow_waiting_pod(self, uid: str, plugin: str) -> bool:
        return False

    def reject_waiting_pod(self, uid: str, plugin: str, message: str) -> bool:
        return False

    def activate(self, pods: Iterable[PodInfo], *, after_error: bool = False) -> None: ...

    def dry_run(self, pod: PodInfo) -> Any:
        return None

    def preempt(self, pod: PodInfo, node_name: str, victims: Sequence[PodInfo]) -> None: ...

    def is_preempting(self, uid: str) -> bool:
        return False

    def count(self, metric: str, labels: Labels = ()) -> None: ...


def checked(config: SchedulerConfig, own: Iterable[str] = ()) -> SchedulerConfig:
    """`config`, whose profiles are made once to see that they can be. `own`: custom plugins that are to run at all
    their points. Raises: ConfigError."""
    lent: Handle = NoCluster()
    profiles = [Profile.named(profile, lent, config.registry, config.gates) for profile in config.profiles]
    require_one_order(profiles)
    for profile in profiles:
        binders = list(profile.binders)
        after = binders[binders.index(BINDER) + 1 :] if BINDER in binders else ()
        for name in filter(after.__contains__, own):
            raise ConfigError(
                f'plugin "{name}" would bind no pod: {BINDER} stands before it and binds all. A file with `plugins: '
                f"{{bind: {{disabled: [{{name: {BINDER}}}]}}}}` in profile {profile.name} leaves binding to {name}"
            )
    return config


def _typed(plugin: str, args: Any) -> Any:
    """Arguments of plugins that take none stay as they were given."""
    return {"apiVersion": API_VERSION, "kind": f"{plugin}Args", **args} if plugin in ARGS else args


def written(
    body: bytes,
    with_own: Callable[[SchedulerConfig], SchedulerConfig],
    gates: FeatureGates = NO_GATES,
    own: Iterable[str] = (),
) -> dict[str, Any]:
    """The configuration with all that it leaves unsaid. `with_own`: adds `own`, the plugins that are not built in.

    Raises: ConfigError."""
    checked(with_own(load(body, gates)), own)
    full = read(body, gates).full
    for profile in full["profiles"]:
        needed = {each["name"] for point in profile["plugins"].values() for each in point.get("enabled", ())}
        configs = sorted((c for c in profile["pluginConfig"] if c["name"] in needed), key=lambda each: each["name"])
        profile["pluginConfig"] = [
            {"name": c["name"], "args": _typed(c["name"], c["args"])} for c in configs if c.get("args") is not None
        ]
        if not profile["pluginConfig"]:
            del profile["pluginConfig"]
    return full

"""What the queue asks a profile about its waiting pods."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from minikube_py.scheduler.framework import EventRegistration, Status
from minikube_py.scheduler.objects import PodInfo

if TYPE_CHECKING:
    from minikube_py.scheduler.evaluate import Evaluator
    from minikube_py.scheduler.profile import Profile

NO_NEEDS: Mapping[str, int] = {}


class Rules:
    """A profile's callbacks for the queue. `fits(pod, node)`: whether it passes all node-local filters on the current
    node, or on the node without the pods that it may preempt; without a name, all filters on any node. `reads(pod)`: a
    hashable of all that node-local filters read of the pod; None if unknown. `needs(pod)`: the free amounts required
    for that, valid for every node while the pod waits. `promised(pod)`: its nominated node. `elsewhere(pod, node)`:
    whether a change of the node, or without a name of any, may let it preempt on another."""

    __slots__ = ("_gates", "elsewhere", "fits", "hints", "local_plugins", "needs", "pre_enqueue", "promised", "reads")

    def __init__(
        self,
        events: Iterable[tuple[str, EventRegistration]],
        fits: Callable[[PodInfo, str], bool],
        local_plugins: frozenset[str],
        pre_enqueue: Callable[[PodInfo], Status],
    ) -> None:
        self.hints: dict[str, list[EventRegistration]] = {}
        for plugin, registration in events:
            self.hints.setdefault(plugin, []).append(registration)
        self.fits = fits
        self.local_plugins = local_plugins
        self.pre_enqueue = pre_enqueue
        self.needs: Callable[[PodInfo], Mapping[str, int]] = lambda pod: NO_NEEDS
        self.promised: Callable[[PodInfo], str] = lambda pod: ""
        self.reads: Callable[[PodInfo], object] = lambda pod: pod.spec
        self.elsewhere: Callable[[PodInfo, str], bool] = lambda pod, node: False
        self._gates: Mapping[str, Callable[[PodInfo], object]] = {}

    def gate_key(self, plugin: str, pod: PodInfo) -> object:
        """What of the pod decides which changes let it pass this PreEnqueue plugin; None: the pod itself."""
        key = self._gates.get(plugin)
        if key is not None:
            return key(pod)
        return () if all(registration.hint is None for registration in self.hints.get(plugin, ())) else None

    @classmethod
    def of(cls, profile: Profile, evaluator: Evaluator, more: Iterable[tuple[str, EventRegistration]]) -> Rules:
        """`more`: additional events that wake its pods."""
        events = [*profile.events(), *more]
        found = cls(events, evaluator.helps, profile.local_plugins, profile.run_pre_enqueue)
        found.needs, found.promised, found.reads = evaluator.needs, evaluator.promised, profile.reads
        found.elsewhere = evaluator.may_preempt_elsewhere
        keyed = {n: p for n, p in profile.pre_enqueue_plugins.items() if callable(getattr(p, "gate_key", None))}
        found._gates = {name: plugin.gate_key for name, plugin in keyed.items()}
        return found

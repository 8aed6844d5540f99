"""Tracks the pods of a run by an informer, and waits for their states."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from minikube_py.client.informer import Handler, Informer
from minikube_py.client.rest import PODS, RestClient
from minikube_py.env import Clock, Rng, run_until
from minikube_py.lab.load import LoadError

PATIENCE_S: Final = 600.0
"""As upstream: 5,000 pods at the lowest rate ever observed."""


class PodSeen:
    __slots__ = ("is_attempted", "labels", "name", "namespace", "node", "uid")

    def __init__(self, obj: Mapping[str, Any]) -> None:
        metadata = obj["metadata"]
        self.uid: str = metadata["uid"]
        self.namespace: str = metadata["namespace"]
        self.name: str = metadata["name"]
        self.labels: Mapping[str, str] = metadata.get("labels") or {}
        self.node: str = obj["spec"].get("nodeName") or ""
        conditions = (obj.get("status") or {}).get("conditions") or ()
        self.is_attempted = any(each["type"] == "PodScheduled" for each in conditions)

    def has(self, labels: Mapping[str, str]) -> bool:
        return labels.items() <= self.labels.items()


class Pods:
    """`on_scheduled`: called with each pod that got a node."""

    def __init__(self, client: RestClient, clock: Clock, rng: Rng) -> None:
        self.on_scheduled: list[Callable[[PodSeen], None]] = []
        self._clock = clock
        self._changed = asyncio.Event()
        self._informer: Informer[PodSeen] = Informer(client, PODS, PodSeen, clock=clock, rng=rng)
        self._informer.add_handler(Handler(self._added, self._updated, on_batch=self._changed.set))
        self.scheduled = 0
        self._events = 0

    async def start(self) -> None:
        self._informer.start()
        await self._informer.wait_synced()

    async def stop(self) -> None:
        await self._informer.stop()

    def _added(self, pod: PodSeen) -> None:
        self._events += 1
        if pod.node:
            self._tell(pod)

    def _updated(self, old: PodSeen, new: PodSeen) -> None:
        self._events += 1
        if new.node and not old.node:
            self._tell(new)

    def _tell(self, pod: PodSeen) -> None:
        self.scheduled += 1
        for told in list(self.on_scheduled):
            told(pod)

    def select(self, namespaces: Collection[str], labels: Mapping[str, str]) -> list[PodSeen]:
        return [pod for pod in self._informer.store.values() if pod.namespace in namespaces and pod.has(labels)]

    async def wait_for(self, namespace: str, labels: Mapping[str, str], count: int, attempted: bool) -> None:
        """Until this many are scheduled; with `attempted`, an attempt suffices. Raises: LoadError."""

        deadline_s = self._clock.monotonic_s() + PATIENCE_S
        while True:
            pods = self.select((namespace,), labels)
            left = [pod for pod in pods if not pod.node and not (attempted and pod.is_attempted)]
            have = len(pods) - len(left)
            if have >= count:
                return
            # Each event concerns one pod: recount only after as many events as pods are missing.
            enough = self._events + count - have
            try:
                await run_until(self._clock, deadline_s, self._until(enough))
            except TimeoutError:
                what = "attempted" if attempted else "scheduled"
                which = f"; pod {left[0].namespace}/{left[0].name} is not" if left else ""
                text = f"namespace {namespace}: {have:,} of {count:,} pods {what} within {PATIENCE_S:g} s{which}"
                raise LoadError(text) from None

    async def _until(self, events: int) -> None:
        while self._events < events:
            if failure := self._informer.failure:
                raise failure
            self._changed.clear()
            await self._changed.wait()

"""Assigns nodes to any number of kubelet processes: slot k plays nodes k x N to (k+1) x N.

A process claims a slot by a Lease, `kube-system/minikube-py-kubelet-<k>`, as in leader election. A new process takes
the lowest free slot; a dead process's slot is free once its lease expires. A new process therefore watches held leases
until each is renewed or expires, and only then opens a new slot.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from minikube_py.api.errors import StatusError
from minikube_py.client.leader_election import NAMESPACE, LeaderElector
from minikube_py.client.lease_lock import Timing, record_of
from minikube_py.client.rest import LEASES, RestClient
from minikube_py.env import Clock, Rng
from minikube_py.errors import OutcomeUnknown, RequestError, Unavailable
from minikube_py.kubelet.config import SLOTS_MAX

LEASE_PREFIX: Final = "minikube-py-kubelet-"
LOOK_AGAIN: Final = 0.25
"""Fraction of a retry period between a new process's looks at the leases."""


@dataclass(slots=True)
class _Seen:
    """A slot as this process sees it. `alive`: its holder has renewed it since."""

    elector: LeaderElector
    alive: bool = False


class Slots:
    """`claim` gives a slot and the elector that holds it. Raises: RequestError if SLOTS_MAX are held."""

    def __init__(
        self,
        client: RestClient,
        clock: Clock,
        rng: Rng,
        identity: str,
        *,
        namespace: str = NAMESPACE,
        prefix: str = LEASE_PREFIX,
        timing: Timing | None = None,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._client, self._clock, self._rng = client, clock, rng
        self._identity, self._namespace, self._prefix = identity, namespace, prefix
        self._timing = timing or Timing()
        self._say = say
        self._seen: dict[int, _Seen] = {}
        self._said: tuple[int, ...] = ()

    async def claim(self) -> tuple[int, LeaderElector]:
        """Returns when a slot is held; `hold` it from then on. Raises: RequestError."""
        first = True
        while True:
            try:
                changed = await self._look(first)
            except (StatusError, Unavailable, OutcomeUnknown) as error:
                self._say(f"the leases of kubelets cannot be read: {error}")
                await self._clock.sleep(self._timing.retry_period_s)
                continue
            first = False
            for slot in self._to_try():
                elector = self._slot(slot).elector
                if await elector.attempt():
                    return slot, elector
            # Lost to another process: there is news, and the next slot may be free.
            if not changed:
                await self._clock.sleep(self._timing.retry_period_s * LOOK_AGAIN * (1.0 + self._rng.random()))

    async def _look(self, first: bool) -> bool:
        """Whether any lease has changed since the last check."""
        any_changed = False
        for lease in await self._client.list(LEASES, self._namespace):
            slot = slot_of(lease["metadata"]["name"], self._prefix)
            if slot is None:
                continue
            seen = self._slot(slot)
            seen.elector.lock.found(lease)
            changed = seen.elector.saw(record_of(lease))
            # Leases in the first read may be old.
            seen.alive |= changed and not first
            any_changed |= changed
        return any_changed

    def _to_try(self) -> list[int]:
        """Slots that may be free now, lowest first; a new one only if all others are alive."""
        now_s = self._clock.monotonic_s()
        known = self._seen
        end = max(known, default=-1) + 1
        free = [slot for slot in range(end) if slot not in known or known[slot].elector.candidate.may_take(now_s)]
        if free:
            return free
        silent = tuple(slot for slot in known if not known[slot].alive)
        if silent:
            if silent != self._said:
                self._said = silent
                numbers = ", ".join(map(str, sorted(silent)))
                self._say(f"held: slots {numbers}; waiting until their holders are heard of, or their leases run out")
            return []
        if end >= SLOTS_MAX:
            raise RequestError(f"all {SLOTS_MAX} slots of kubelet processes are held, which is the limit")
        return [end]

    def _slot(self, slot: int) -> _Seen:
        seen = self._seen.get(slot)
        if seen is None:
            name = f"{self._prefix}{slot}"
            seen = self._seen[slot] = _Seen(
                LeaderElector(
                    self._client,
                    self._clock,
                    self._rng,
                    name,
                    self._identity,
                    namespace=self._namespace,
                    timing=self._timing,
                )
            )
        return seen


def slot_of(name: str, prefix: str = LEASE_PREFIX) -> int | None:
    """The slot whose lease is called `name`; None for any other lease."""
    number = name.removeprefix(prefix)
    if number == name or not number.isascii() or not number.isdigit() or str(int(number)) != number:
        return None
    return int(number) if int(number) < SLOTS_MAX else None

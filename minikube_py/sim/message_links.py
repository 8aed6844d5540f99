"""Faults of a packet network for single messages between members: loss, duplication, reordering.

It sits between a member and its links (`store.links.PeerLinks`), whose contract permits all of that. A SNAPSHOT message
is never lost here: it represents a transfer, whose end is reported to its sender."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from minikube_py.env import Rng
from minikube_py.raft.configuration import NodeId
from minikube_py.raft.message import Message, MessageType
from minikube_py.sim.loop import SimLoop
from minikube_py.store.links import PeerLinks
from minikube_py.store.membership import Member

AGAIN_S: Final = 0.05
"""The maximum delay of a message's second copy."""


@dataclass(slots=True)
class Trouble:
    """From one host to another. Of overlapping faults of one kind the largest counts."""

    loss: list[float] = field(default_factory=list)
    double: list[float] = field(default_factory=list)
    delay: list[float] = field(default_factory=list)
    """In microseconds."""


class MessageTroubles:
    """Of a whole cluster. `lost`, `doubled` and `messages` are counters."""

    def __init__(self) -> None:
        self._by_pair: dict[tuple[str, str], Trouble] = {}
        self.messages = self.lost = self.doubled = 0

    def begin(
        self, kind: str, sources: Iterable[str], others: Iterable[str], amount: float
    ) -> Callable[[], None]:
        """Returns the function that ends it. `kind`: a field of `Trouble`."""
        targets = tuple(others)
        pairs = [(source, target) for source in sources for target in targets if source != target]
        lists = [getattr(self._by_pair.setdefault(pair, Trouble()), kind) for pair in pairs]
        for values in lists:
            values.append(amount)

        def end() -> None:
            for values in lists:
                values.remove(amount)

        return end

    def heal(self) -> None:
        """Cancels what is still in progress."""
        self._by_pair = {}

    def between(self, source: str, target: str) -> Trouble | None:
        trouble = self._by_pair.get((source, target))
        return trouble if trouble is not None and (trouble.loss or trouble.double or trouble.delay) else None


@dataclass(frozen=True, slots=True)
class TroubledLinks:
    """A member's links under its cluster's `troubles`. `told` gets everything the member sends."""

    links: PeerLinks
    loop: SimLoop
    rng: Rng
    host: str
    troubles: MessageTroubles
    host_of: Callable[[NodeId], str]
    told: Callable[[Message], None]

    def send(self, messages: Sequence[Message]) -> None:
        troubles = self.troubles
        troubles.messages += len(messages)
        now: list[Message] = []
        for message in messages:
            self.told(message)
            trouble = troubles.between(self.host, self.host_of(message.to))
            if trouble is None:
                now.append(message)
            else:
                self._trouble(trouble, message, now)
        if now:
            self.links.send(now)

    def _trouble(self, trouble: Trouble, message: Message, now: list[Message]) -> None:
        rng = self.rng
        if trouble.loss and message.type != MessageType.SNAPSHOT and rng.random() < max(trouble.loss):
            self.troubles.lost += 1
            return
        delay_s = rng.random() * max(trouble.delay) / 1e6 if trouble.delay else 0.0
        if delay_s:
            self.loop.call_later(delay_s, self.links.send, (message,))
        else:
            now.append(message)
        if trouble.double and rng.random() < max(trouble.double):
            self.troubles.doubled += 1
            self.loop.call_later(delay_s + rng.random() * AGAIN_S, self.links.send, (message,))

    def update(self, members: Sequence[Member], removed: Sequence[NodeId]) -> None:
        self.links.update(members, removed)

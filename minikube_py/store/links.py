"""What a member asks of whoever carries its words to the others, so that a simulator can stand in for the network."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from minikube_py.raft.configuration import NodeId
from minikube_py.raft.message import Message
from minikube_py.store.membership import Member
from minikube_py.store.snapshot_transfer import IncomingSnapshot, SnapshotOffer, SnapshotSource


class PeerLinks(Protocol):
    """Links to the other members. Nothing here waits or raises: what cannot be sent is dropped, and Raft repairs it."""

    def send(self, messages: Sequence[Message]) -> None:
        """In order per receiver. With a SNAPSHOT message goes the snapshot itself, by other means."""

    def update(self, members: Sequence[Member], removed: Sequence[NodeId]) -> None:
        """All members, this one included, as of now, and whom to tell that they were removed."""


class NoLinks:
    """Alone there is nobody to speak to; what is said before the links are there is lost, as on any network."""

    def send(self, messages: Sequence[Message]) -> None:
        pass

    def update(self, members: Sequence[Member], removed: Sequence[NodeId]) -> None:
        pass


class PeerDriver(Protocol):
    """What the links ask of their member."""

    def receive(self, message: Message) -> None:
        """A message arrived; a SNAPSHOT only after `snapshot_arrived` for its snapshot has returned."""

    def report(self, to: NodeId, reachable: bool, snapshot: bool | None = None) -> None:
        """A link was lost or came; `snapshot`: the sending of one ended, well or not."""

    def expelled(self, reason: str) -> None:
        """The others say that this member was removed: it has no business any more."""

    def snapshot_source(self) -> SnapshotSource | None:
        """The newest snapshot, None where there is none yet."""

    def incoming_snapshot(self, offer: SnapshotOffer) -> IncomingSnapshot:
        """Where the bytes of an offered snapshot go; the one in progress if it is of the same offer."""

    async def snapshot_arrived(self, incoming: IncomingSnapshot) -> None:
        """Verifies and restores what came, while serving. Raises: TransferRefused."""

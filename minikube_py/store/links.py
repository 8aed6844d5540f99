"""What a member asks of whoever carries its words to the others, so that a simulator can stand in for the network."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from minikube_py.raft.configuration import NodeId
from minikube_py.raft.message import Message
from minikube_py.store.membership import Member


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

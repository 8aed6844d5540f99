"""What a member requires of its transport to the others, so that a simulator can replace the network."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from minikube_py.raft.configuration import NodeId
from minikube_py.raft.message import Message
from minikube_py.store.membership import Member


class PeerLinks(Protocol):
    """Links to the other members. Nothing here waits or raises: what cannot be sent is dropped, and Raft repairs it."""

    def send(self, messages: Sequence[Message]) -> None:
        """In order per receiver. With a SNAPSHOT message the snapshot itself is sent separately."""

    def update(self, members: Sequence[Member], removed: Sequence[NodeId]) -> None:
        """All that take part, this member included, and those to notify of their removal. A member without a `peer`
        address is known by its id alone, until it opens a link."""


class NoLinks:
    """A single member has no peers; messages sent before the links exist are lost, as on any network."""

    def send(self, messages: Sequence[Message]) -> None:
        pass

    def update(self, members: Sequence[Member], removed: Sequence[NodeId]) -> None:
        pass

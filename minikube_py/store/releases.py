"""When the rules of apply may change: once every member has told the leader that it knows the new ones.

A follower's replies carry what its release knows (`RaftConfig.release`); earlier releases say 0 there, and know the
first rules only.
"""

from __future__ import annotations

from minikube_py.mvcc.versions import FIRST
from minikube_py.raft.configuration import NodeId
from minikube_py.raft.message import Message, MessageType, Term
from minikube_py.store.membership import Membership

_REPLIES = (MessageType.HEARTBEAT_REPLY, MessageType.APPEND_REPLY)


class Releases:
    """`own`: what this member knows. `proposed`: the term in which it last proposed to raise the version."""

    def __init__(self, own: int) -> None:
        self.own = own
        self.proposed = Term(0)
        self._known: dict[NodeId, int] = {}

    def heard(self, message: Message) -> None:
        if message.type in _REPLIES and not message.reject:
            self._known[message.sender] = message.hint or FIRST

    def due(self, term: Term, membership: Membership, me: NodeId) -> int:
        """The highest version that all members know, for `me` to propose; the first while one has not been heard, and
        in a term in which it was proposed."""
        if self.proposed == term:
            return FIRST
        known = [self._known.get(each.id, FIRST) for each in membership.members if each.id != me]
        return min([self.own, *known])

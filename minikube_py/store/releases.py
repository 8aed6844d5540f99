"""Raises the version of the rules of apply once every member has reported to the leader that it supports it.

A follower's replies carry the version it supports (`RaftConfig.release`); earlier releases send 0 and support only the
first rules."""

from __future__ import annotations

from minikube_py.mvcc.versions import FIRST
from minikube_py.raft.configuration import NodeId
from minikube_py.raft.message import Message, MessageType, Term
from minikube_py.store.membership import Membership

_REPLIES = (MessageType.HEARTBEAT_REPLY, MessageType.APPEND_REPLY)


class Releases:
    """`own`: the version this member supports. `proposed`: the term in which it last proposed to raise the version."""

    def __init__(self, own: int) -> None:
        self.own = own
        self.proposed = Term(0)
        self._known: dict[NodeId, int] = {}

    def heard(self, message: Message) -> None:
        if message.type in _REPLIES and not message.reject:
            self._known[message.sender] = message.hint or FIRST

    def due(self, term: Term, membership: Membership, me: NodeId) -> int:
        """The highest version that all members support, for `me` to propose; the first while a member has not replied,
        or after a proposal in this term."""
        if self.proposed == term:
            return FIRST
        known = [self._known.get(each.id, FIRST) for each in membership.members if each.id != me]
        return min([self.own, *known])

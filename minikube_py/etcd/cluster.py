"""Cluster: the members in etcd's form.

etcd assigns a member's id when it is added, here it gets one once it starts: an added member is listed with id 0, and
joins with its peer address as its name."""

from __future__ import annotations

import re
from collections.abc import Sequence
from ipaddress import IPv6Address
from typing import Any, Final

from minikube_py.errors import Unavailable
from minikube_py.etcd.errors import (
    BAD_URLS,
    LEARNER_BEHIND,
    MEMBER_NOT_FOUND,
    NO_LEADER,
    NOT_A_LEARNER,
    NOT_ENOUGH_STARTED,
    NOT_PROPOSED,
    PEER_URL_EXISTS,
    UNHEALTHY,
    Refused,
    Status,
)
from minikube_py.etcd.messages import pb
from minikube_py.etcd.node import Node
from minikube_py.ports.addresses import join_address
from minikube_py.raft.configuration import NodeId
from minikube_py.store.membership import ChangeKind, Member, MemberChange
from minikube_py.store.membership_checks import NO_MAJORITY, NOT_CAUGHT_UP

_URL: Final = re.compile(
    r"https?://(?:(?P<host>[A-Za-z0-9._-]{1,200})|\[(?P<literal>[0-9A-Fa-f:.]+)\]):(?P<port>[0-9]{1,8})", re.IGNORECASE
)
PORT_MAX: Final = 65535
UNNAMED: Final = "default"
"""etcd's name of a member without one."""


class Cluster:
    def __init__(self, node: Node) -> None:
        self._node = node

    async def list(self, request: Any) -> Any:
        await self._node.guard.known()
        if request.linearizable:
            await self._node.confirmed()
        return pb.MemberListResponse(header=self._header(), members=await self._members())

    async def add(self, request: Any) -> Any:
        await self._node.guard.admin()
        peer = self._peer(request.peerURLs)
        if self._node.member.replica.leader() is None:
            raise Refused(*UNHEALTHY)
        await self._node.confirmed()
        self._require_free(peer)
        await self._node.change_members(
            MemberChange(ChangeKind.EXPECT, name=peer, peer=peer, learner=request.isLearner)
        )
        added = pb.Member(peerURLs=[f"https://{peer}"], isLearner=request.isLearner)
        return pb.MemberAddResponse(header=self._header(), member=added, members=await self._members())

    async def remove(self, request: Any) -> Any:
        await self._node.guard.admin()
        if int(self._node.member.member_id) == request.ID and self._node.member.replica.leader() is None:
            # Of another, etcd asks the log: it may be the one that is down.
            raise Refused(*UNHEALTHY)
        member = await self._known(request.ID)
        voters = [each for each in self._node.member.membership.members if not each.learner]
        if voters == [member]:
            raise Refused(*NOT_ENOUGH_STARTED)
        try:
            await self._node.change_members(MemberChange(ChangeKind.REMOVE, member.id))
        except Unavailable as error:
            raise (Refused(*UNHEALTHY) if NO_MAJORITY in str(error) else error) from None
        return pb.MemberRemoveResponse(header=self._header(), members=await self._members())

    async def update(self, request: Any) -> Any:
        await self._node.guard.admin()
        member = await self._known(request.ID)
        peer = self._peer(request.peerURLs)
        if member.peer != peer:
            self._require_free(peer)
            await self._node.change_members(MemberChange(ChangeKind.UPDATE, member.id, peer=peer))
        return pb.MemberUpdateResponse(header=self._header(), members=await self._members())

    async def promote(self, request: Any) -> Any:
        await self._node.guard.admin()
        member = await self._known(request.ID, NO_LEADER)
        if not member.learner:
            raise Refused(*NOT_A_LEARNER)
        try:
            await self._node.change_members(MemberChange(ChangeKind.PROMOTE, member.id), NO_LEADER)
        except Unavailable as error:
            raise (Refused(*LEARNER_BEHIND) if NOT_CAUGHT_UP in str(error) else error) from None
        return pb.MemberPromoteResponse(header=self._header(), members=await self._members())

    def _header(self) -> Any:
        """etcd's header has no revision here."""
        return self._node.header(0)

    async def _known(self, member_id: int, leaderless: Status = NOT_PROPOSED) -> Member:
        """Raises: Refused."""
        await self._node.confirmed(leaderless)
        found = self._node.member.membership.get(NodeId(member_id))
        if found is None:
            raise Refused(*MEMBER_NOT_FOUND)
        return found

    async def _members(self) -> Sequence[Any]:
        membership = self._node.member.membership
        urls = await self._node.urls()
        return [
            pb.Member(
                ID=int(each.id),
                # As in etcd, a member without a name has not started.
                name=(each.name or UNNAMED) if each.id else "",
                peerURLs=[f"https://{each.peer}"] if each.peer else [],
                clientURLs=urls.get(int(each.id), ()),
                isLearner=each.learner,
            )
            for each in (*membership.members, *membership.expected)
        ]

    @staticmethod
    def _peer(urls: Sequence[str]) -> str:
        """`host:port`: a member has one peer address, and the URL must contain nothing else. Raises: Refused."""
        found = _URL.fullmatch(urls[0].strip()) if len(urls) == 1 else None
        if found is None or not 0 < int(found["port"]) <= PORT_MAX:
            raise Refused(*BAD_URLS)
        host = found["host"] or found["literal"]
        try:
            if found["literal"]:
                IPv6Address(host)
        except ValueError:
            raise Refused(*BAD_URLS) from None
        return join_address(host.lower(), int(found["port"]))

    def _require_free(self, peer: str) -> None:
        membership = self._node.member.membership
        if any(each.peer == peer for each in (*membership.members, *membership.expected)):
            raise Refused(*PEER_URL_EXISTS)

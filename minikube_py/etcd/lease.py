"""Lease: grants and revocations go through the log; only the leader knows the remaining time."""

from __future__ import annotations

from typing import Any, cast

from minikube_py.errors import LeaseNotFound
from minikube_py.etcd.messages import pb
from minikube_py.etcd.node import Node
from minikube_py.mvcc.types import LeaseGrant, LeaseResult, LeaseRevoke


class Lease:
    def __init__(self, node: Node) -> None:
        self._node = node

    async def grant(self, request: Any) -> Any:
        await self._node.guard.known()
        result = cast(LeaseResult, await self._node.command(LeaseGrant(request.ID, request.TTL)))
        return pb.LeaseGrantResponse(header=self._node.header(result.revision), ID=result.id, TTL=result.ttl_s)

    async def revoke(self, request: Any) -> Any:
        await self._node.guard.known()
        result = await self._node.command(LeaseRevoke(request.ID))
        return pb.LeaseRevokeResponse(header=self._node.header(result.revision))

    async def keep_alive(self, request: Any) -> Any:
        # The earlier revision: the lease existed then.
        header = self._node.header_now()
        await self._node.guard.renew(self._node.member.state.lessor.by_id.get(request.ID))
        return pb.LeaseKeepAliveResponse(header=header, ID=request.ID, TTL=await self._node.keep_alive(request.ID))

    async def time_to_live(self, request: Any) -> Any:
        node = self._node
        await node.guard.known()
        who = await node.guard.read_leases([node.member.state.lessor.by_id.get(request.ID)] if request.keys else ())
        try:
            remaining_s = await node.remaining_s(request.ID)
            lease = node.member.state.lessor.get(request.ID)
        except LeaseNotFound:
            return pb.LeaseTimeToLiveResponse(header=node.header_now(), ID=request.ID, TTL=-1)
        if request.keys:
            node.guard.unchanged(who)
        return pb.LeaseTimeToLiveResponse(
            header=node.header_now(),
            ID=request.ID,
            TTL=int(remaining_s),
            grantedTTL=lease.ttl_s,
            keys=sorted(lease.keys) if request.keys else (),
        )

    async def leases(self, request: Any) -> Any:
        node = self._node
        if node.member.replica.leader() is not None:
            # Without one, as in etcd: what is known here.
            await node.confirmed()
        await node.guard.read_leases(node.member.state.lessor.by_id.values())
        found = [pb.LeaseStatus(ID=lease_id) for lease_id, _ in node.member.state.leases()]
        return pb.LeaseLeasesResponse(header=node.header_now(), leases=found)

"""A leader's safety checks before it changes the members, based on what it knows of its peers. Pure."""

from __future__ import annotations

from minikube_py.errors import Unavailable
from minikube_py.raft.configuration import NodeId
from minikube_py.raft.status import Status
from minikube_py.store.membership import ChangeKind, MemberChange, Membership

NOT_CAUGHT_UP = "has not caught up yet"
NO_MAJORITY = "no majority"
IN_TOUCH = "is in touch"
PROMOTE_LAG_ENTRIES = 1000
"""A learner this close to the leader's last entry has caught up."""


def caught_up(status: Status) -> set[NodeId]:
    """Voters that are up to date enough to acknowledge the next commit."""
    # Includes a probed voter: after its link fell there may be nothing to send that would change its state.
    return {
        peer.id
        for peer in status.peers
        if peer.active
        and peer.state != "snapshot"
        and peer.match > 0
        and peer.match + PROMOTE_LAG_ENTRIES >= status.last_index
    }


def heir(status: Status) -> NodeId | None:
    """The voter, other than the leader, with the most complete log."""
    voters = [peer for peer in status.peers if peer.active and peer.id in status.configuration.voters]
    return max(voters, key=lambda peer: peer.match).id if voters else None


def check_timely(change: MemberChange, membership: Membership, status: Status) -> None:
    """Raises: Unavailable if the change is valid but would cost the cluster its quorum now, or put it at risk."""
    if change.kind == ChangeKind.JOIN:
        _check_replaced(change, membership, status)
        return
    member = membership.get(change.id) if change.id else membership.named(change.name)
    if member is None:
        return
    if change.kind == ChangeKind.PROMOTE and member.id not in caught_up(status):
        raise Unavailable(f"{member.name} {NOT_CAUGHT_UP}; it cannot vote safely without the log")
    voters = status.configuration.voters
    if change.kind == ChangeKind.REMOVE and member.id in voters:
        left = voters - {member.id}
        in_touch = left & ({peer.id for peer in status.peers if peer.active} | {status.id})
        if len(in_touch) <= len(left) // 2:
            raise Unavailable(
                f"without {member.name} only {len(in_touch)} of {len(left)} voters are reachable, {NO_MAJORITY}: "
                "restore another one first"
            )


def _check_replaced(change: MemberChange, membership: Membership, status: Status) -> None:
    """One that still runs is not replaced: whoever asks may be a second process under its name."""
    standing = membership.named(change.name)
    if not change.rejoin or standing is None or standing.id == change.id:
        return
    if standing.id in {status.id, *(peer.id for peer in status.peers if not peer.silent)}:
        raise Unavailable(
            f"{standing.name} (member {standing.id:x}) {IN_TOUCH}, or was less than two election timeouts ago: it is "
            "replaced once it is silent; end its process first"
        )

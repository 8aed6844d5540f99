"""Decides which members are admitted on the peer port, and the reason for refusals. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from minikube_py.raft.configuration import NodeId
from minikube_py.store.identity import id_text
from minikube_py.store.peer_protocol import LinkHello, Refusal, Refused


@dataclass(frozen=True, slots=True)
class Admission:
    """What a member knows when it decides. `cluster_id` 0: it is not in a cluster yet. `applied`: the index of its own
    log that `members` and `removed` are as of."""

    own: NodeId
    name: str
    cluster_id: int = 0
    members: Collection[NodeId] = ()
    removed: Collection[NodeId] = ()
    applied: int = 0

    def refuses(self, hello: LinkHello) -> Refused | None:
        """Why a link is refused; None: it is accepted."""
        if not self.cluster_id:
            return Refused(Refusal.EARLY, f"{self.name} is not in a cluster yet")
        if hello.cluster_id != self.cluster_id:
            return self.of_another_cluster(hello.cluster_id)
        if hello.to != self.own:
            own, meant = id_text(self.own), id_text(hello.to)
            return Refused(Refusal.ADDRESSEE, f"this is member {own}, not {meant}: that member lost its disk or moved")
        if hello.sender == self.own:
            text = f"member {id_text(self.own)} is this one: one folder was copied from the other"
            return Refused(Refusal.STRANGER, text)
        return self.refuses_member(hello.sender, hello.applied)

    def refuses_member(self, id: NodeId, applied: int) -> Refused | None:
        """The same for an existing link. `applied`: the log index at which the peer claims to be a member.

        A peer unknown here may have been added by entries not applied here yet, and may be needed to get them: a
        candidate needs the votes of lagging members (Raft thesis, 4.1). So a peer with a higher index is admitted."""
        who = f"member {id_text(id)}"
        if id in self.removed:
            text = f"{who} was removed from cluster {id_text(self.cluster_id)}: empty its folder, and it may rejoin"
            return Refused(Refusal.REMOVED, f"{text} under a new id")
        if id in self.members or self.own not in self.members or applied > self.applied:
            return None
        return Refused(Refusal.STRANGER, f"{who} is unknown in cluster {id_text(self.cluster_id)}")

    def of_another_cluster(self, cluster_id: int) -> Refused:
        ours, theirs = id_text(self.cluster_id), id_text(cluster_id)
        return Refused(Refusal.CLUSTER, f"this is a member of cluster {ours}, not of {theirs}")

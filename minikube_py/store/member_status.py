"""A member's status and Prometheus metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

from minikube_py import __version__
from minikube_py.index.reports import IndexState
from minikube_py.mvcc.alarms import KINDS
from minikube_py.store.membership import Member

if TYPE_CHECKING:
    from minikube_py.store.member import StoreMember

PREFIX = "minikube_py_store_"
SHOWN_OF_MEMBERS = ("id", "name", "peer", "client", "learner")
SHOWN_OF_PEERS = ("id", "match", "next", "state", "active", "learner", "inflight_messages")


def status_of(member: StoreMember) -> dict[str, Any]:
    """JSON-able. `snapshot_age_s` None: this member took none since it started. `peers` is empty except on the
    leader."""
    replica, raft = member.replica, member.raft.status()
    own = replica.membership.get(replica.member_id) or Member(replica.member_id, "")
    snapshot = replica.files.snapshot
    return {
        "member": _plain(own),
        "client_urls": list(member.client_urls),
        "cluster": replica.cluster_id,
        "role": raft.role,
        "term": raft.term,
        "leader": raft.leader,
        "commit": raft.commit,
        "applied": raft.applied,
        "last_index": raft.last_index,
        "revision": replica.state.revision,
        "compact_revision": replica.state.compact_revision,
        "size_bytes": replica.state.size_bytes,
        "snapshot_index": snapshot.head.index if snapshot else 0,
        "snapshot_size_bytes": snapshot.size_bytes if snapshot else 0,
        "snapshot_age_s": member.snapshotter.age_s,
        "members": [_plain(each) for each in replica.membership.members],
        "expected": [_plain(each) for each in replica.membership.expected],
        "peers": [{name: getattr(peer, name) for name in SHOWN_OF_PEERS} for peer in raft.peers],
        "version": __version__,
        "alarms": [{"member": alarm.member, "kind": alarm.kind} for alarm in sorted(replica.state.alarms.raised)],
        "data_bytes": replica.state.data_bytes,
        "quota_bytes": member.room.quota_bytes,
        "free_bytes": member.room.free_bytes,
        "reserve_bytes": member.room.reserve_bytes,
        "shortage": member.room.shortage,
        "snapshot_failure": member.snapshotter.retry.failure,
        "warnings": [
            *replica.files.warnings,
            *_apart(member),
            *replica.refusals.told(),
            *_strange(member),
            *_different(member),
        ],
    }


def metrics_of(member: StoreMember) -> dict[str, float]:
    """Counters and gauges by Prometheus name."""
    replica, state, log = member.replica, member.state, member.raft.log
    kinds = [alarm.kind for alarm in sorted(state.alarms.raised)]
    indexes = [report.state for report in state.tables.reports()]
    return {
        PREFIX + "proposals_applied_total": replica.applied_entries,
        PREFIX + "proposals_pending": replica.waiting,
        PREFIX + "reads_pending": replica.waiting_reads,
        PREFIX + "wal_written_bytes_total": replica.files.written_bytes,
        PREFIX + "leases": len(state.lessor.by_id),
        PREFIX + "raft_term": member.raft.term,
        PREFIX + "raft_members_apart": len(member.raft.apart),
        PREFIX + "raft_messages_refused_total": replica.refusals.count,
        PREFIX + "raft_leading": int(bool(replica.leading)),
        PREFIX + "raft_members": len(replica.membership.members),
        PREFIX + "raft_leaders_seen_total": member.raft.leaders_seen,
        PREFIX + "raft_lag_entries": _lag_entries(member),
        PREFIX + "raft_commit_index": log.committed,
        PREFIX + "raft_applied_index": log.applied,
        PREFIX + "revision": state.revision,
        PREFIX + "compact_revision": state.compact_revision,
        PREFIX + "size_bytes": state.size_bytes,
        PREFIX + "data_bytes": state.data_bytes,
        PREFIX + "quota_bytes": member.room.quota_bytes,
        PREFIX + "disk_free_bytes": member.room.free_bytes,
        **{f'{PREFIX}alarms{{kind="{kind}"}}': kinds.count(kind) for kind in KINDS},
        PREFIX + "hash_checks_total": member.upkeep.hash_check.checks,
        PREFIX + "hash_mismatches_total": member.upkeep.hash_check.mismatches,
        PREFIX + "watchers": len(member.replica.hub),
        PREFIX + "field_sets_degraded": len(state.tables.degraded),
        **{
            f'{PREFIX}objects_unreadable{{field_set="{name}"}}': count
            for name, count in sorted(state.tables.unreadable().items())
        },
        PREFIX + "callbacks_failed_total": replica.tell.in_vain + member.replica.hub.in_vain,
        **{f'{PREFIX}indexes{{state="{each}"}}': indexes.count(each) for each in get_args(IndexState)},
        PREFIX + "snapshot_size_bytes": replica.files.snapshot.size_bytes if replica.files.snapshot else 0,
        **member.snapshotter.metrics(PREFIX),
    }


def _apart(member: StoreMember) -> list[str]:
    own = member.raft.term
    return [
        f"member {id:x} is in term {term:,}, this one in term {own:,}: no elections lead so far, and neither believes "
        "the other. Empty the folder of the one that the other members do not follow, and start it with --rejoin"
        for id, term in member.raft.apart.items()
    ]


def _strange(member: StoreMember) -> list[str]:
    texts = [
        f"member {id:x} says that it is of this cluster, and {why}: compare the members in `store status` of all. If "
        "one names others than the rest do, a file of it was edited, or is an older copy: empty its folder and start "
        "it with --rejoin"
        for id, why in member.strangers.items()
    ]
    if not member.membership.agrees(member.raft.configuration):
        texts.append("the record of members differs from those that vote: an edited entry changed only one of the two")
    return texts


def _different(member: StoreMember) -> list[str]:
    found = member.upkeep.hash_check.difference
    return [f"{found}; see `minikube-py store hash`"] if found and member.replica.leading else []


def _lag_entries(member: StoreMember) -> int:
    """How many entries of the leader's log the slowest member lacks; 0 on a follower."""
    raft = member.raft.status()
    return max((raft.last_index - peer.match for peer in raft.peers), default=0)


def _plain(member: Member) -> dict[str, Any]:
    return {name: getattr(member, name) for name in SHOWN_OF_MEMBERS}

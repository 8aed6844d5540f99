"""A member's metrics under etcd's names, for dashboards and alerts made for etcd.

Name, type and help are etcd's. What etcd counts and this store does not have is left out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from minikube_py.etcd.maintenance import CLUSTER_VERSION, EMPTY_BYTES, VERSION

if TYPE_CHECKING:
    from minikube_py.etcd.server import EtcdServer

_TABLE: Final = """
etcd_cluster_version gauge Which version is running. 1 for 'cluster_version' label with current cluster version
etcd_debugging_mvcc_compact_revision gauge The revision of the last compaction in store.
etcd_debugging_mvcc_current_revision gauge The current revision of store.
etcd_debugging_mvcc_keys_total gauge Total number of keys.
etcd_debugging_mvcc_watch_stream_total gauge Total number of watch streams.
etcd_debugging_mvcc_watcher_total gauge Total number of watchers.
etcd_mvcc_db_total_size_in_bytes gauge Total size of the underlying database physically allocated in bytes.
etcd_mvcc_db_total_size_in_use_in_bytes gauge Total size of the underlying database logically in use in bytes.
etcd_server_has_leader gauge Whether or not a leader exists. 1 is existence, 0 is not.
etcd_server_id gauge Server or member ID in hexadecimal format. 1 for 'server_id' label with current ID.
etcd_server_is_leader gauge Whether or not this member is a leader. 1 if is, 0 otherwise.
etcd_server_is_learner gauge Whether or not this member is a learner. 1 if is, 0 otherwise.
etcd_server_leader_changes_seen_total counter The number of leader changes seen.
etcd_server_proposals_applied_total gauge The total number of consensus proposals applied.
etcd_server_proposals_committed_total gauge The total number of consensus proposals committed.
etcd_server_proposals_pending gauge The current number of pending proposals to commit.
etcd_server_quota_backend_bytes gauge Current backend storage quota size in bytes.
etcd_server_version gauge Which version is running. 1 for 'server_version' label with current version.
"""
KNOWN: Final = {name: (kind, what) for name, kind, what in (line.split(" ", 2) for line in _TABLE.split("\n") if line)}
"""Type and help by name."""


def under_etcds_names(server: EtcdServer) -> dict[str, float]:
    member, own = server.node.member, server.metrics()
    state, log = member.state, member.raft.log
    return {
        f'etcd_cluster_version{{cluster_version="{CLUSTER_VERSION}"}}': 1,
        "etcd_debugging_mvcc_compact_revision": state.compact_revision,
        "etcd_debugging_mvcc_current_revision": state.revision,
        "etcd_debugging_mvcc_keys_total": len(state.index.current),
        "etcd_debugging_mvcc_watch_stream_total": own["minikube_py_etcd_watch_streams"],
        "etcd_debugging_mvcc_watcher_total": own["minikube_py_etcd_watches"],
        "etcd_mvcc_db_total_size_in_bytes": state.size_bytes or EMPTY_BYTES,
        "etcd_mvcc_db_total_size_in_use_in_bytes": state.data_bytes,
        "etcd_server_has_leader": member.replica.leader() is not None,
        f'etcd_server_id{{server_id="{int(member.member_id):x}"}}': 1,
        "etcd_server_is_leader": bool(member.replica.leading),
        "etcd_server_is_learner": server.node.learner,
        "etcd_server_leader_changes_seen_total": member.raft.leaders_seen,
        "etcd_server_proposals_applied_total": log.applied,
        "etcd_server_proposals_committed_total": log.committed,
        "etcd_server_proposals_pending": member.replica.waiting,
        "etcd_server_quota_backend_bytes": member.room.quota_bytes,
        f'etcd_server_version{{server_version="{VERSION}"}}': 1,
    }

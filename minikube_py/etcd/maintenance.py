"""Maintenance: a member's status, its alarms, its hash, the leader."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import AsyncGenerator
from typing import Any, Final

from minikube_py.errors import Unavailable
from minikube_py.etcd.backup import Backup
from minikube_py.etcd.codes import StatusCode
from minikube_py.etcd.errors import (
    BAD_TRANSFEREE,
    DOWNGRADE_FORMAT,
    DOWNGRADE_TARGET,
    NO_LEADER,
    NOT_LEADER,
    NOT_PROPOSED,
    TIMED_OUT,
    TOO_MANY,
    Refused,
)
from minikube_py.etcd.kv import ALARMS
from minikube_py.etcd.messages import pb
from minikube_py.etcd.node import Node
from minikube_py.mvcc.types import SetAlarm
from minikube_py.raft.configuration import NodeId

VERSION: Final = "3.7.3"
"""The etcd version of this API: clients use it to choose features."""
STORAGE_VERSION: Final = "3.7.0"
CLUSTER_VERSION: Final = "3.7"
EMPTY_BYTES: Final = 4096
SNAPSHOTS_MAX: Final = 4
"""Concurrent snapshots: each keeps history that is compacted meanwhile."""
BLOB_BYTES: Final = 32 << 10
GET, ACTIVATE, DEACTIVATE = range(3)
VALIDATE_DOWNGRADE, ENABLE_DOWNGRADE, CANCEL_DOWNGRADE = range(3)
_VERSION: Final = re.compile(r"[0-9]+\.[0-9]+(\.[0-9]+([-+].*)?)?")


class Maintenance:
    def __init__(self, node: Node) -> None:
        self._node = node
        self._sending = 0

    async def status(self, request: Any) -> Any:
        await self._node.guard.known()
        node, member = self._node, self._node.member
        leader, alarms = member.replica.leader(), member.state.alarms.raised
        errors = [] if leader is not None else [NO_LEADER[1]]
        errors += [f"memberID:{alarm.member} alarm:{alarm.kind}" for alarm in sorted(alarms)]
        return pb.StatusResponse(
            header=node.header_now(),
            version=VERSION,
            storageVersion=STORAGE_VERSION,
            # etcdctl divides by it, and etcd's is never 0.
            dbSize=member.state.size_bytes or EMPTY_BYTES,
            dbSizeInUse=member.state.data_bytes,
            dbSizeQuota=member.room.quota_bytes,
            leader=0 if leader is None else int(leader.id),
            raftIndex=member.raft.log.committed,
            raftAppliedIndex=member.raft.log.applied,
            raftTerm=int(member.raft.term),
            isLearner=node.learner,
            errors=errors,
            downgradeInfo=pb.DowngradeInfo(),
        )

    async def alarm(self, request: Any) -> Any:
        """Members raise alarms themselves, and repeat them while the cause lasts. As in etcd, NONE activates none."""
        node = self._node
        await (node.guard.known() if request.action == GET else node.guard.admin())
        if request.action == ACTIVATE and request.alarm:
            raise Refused(StatusCode.INVALID_ARGUMENT, "etcdserver: alarms are raised by the members alone")
        if request.action not in (GET, ACTIVATE, DEACTIVATE):
            # It would stop an etcd member.
            raise Refused(StatusCode.INVALID_ARGUMENT, f"etcdserver: there is no action {request.action} for alarms")
        await node.confirmed(NOT_PROPOSED)
        kind = ALARMS[request.alarm] if 0 <= request.alarm < len(ALARMS) else "?"
        found = [
            alarm
            for alarm in (sorted(node.member.state.alarms.raised) if request.action != ACTIVATE else ())
            if kind in ("", alarm.kind) and (request.action == GET or request.memberID in (0, alarm.member))
        ]
        if request.action == DEACTIVATE and found:
            await node.clear_alarm(SetAlarm(False, request.memberID, kind))
        listed = [pb.AlarmMember(memberID=alarm.member, alarm=ALARMS.index(alarm.kind)) for alarm in found]
        return pb.AlarmResponse(header=node.header_now(), alarms=listed)

    async def downgrade(self, request: Any) -> Any:
        """This store follows no etcd version, so there is nothing to downgrade to."""
        await self._node.guard.admin()
        if request.action == CANCEL_DOWNGRADE:
            return pb.DowngradeResponse(header=self._node.header_now(), version=CLUSTER_VERSION)
        if request.action not in (VALIDATE_DOWNGRADE, ENABLE_DOWNGRADE):
            raise Refused(StatusCode.UNKNOWN, "etcdserver: unknown method")
        if _VERSION.fullmatch(request.version) is None:
            raise Refused(*DOWNGRADE_FORMAT)
        await self._node.confirmed()
        raise Refused(*DOWNGRADE_TARGET)

    async def defragment(self, request: Any) -> Any:
        """Frees compacted history in memory, and in the log by a new snapshot."""
        await self._node.guard.admin()
        await self._node.trimmed()
        try:
            await self._node.member.take_snapshot()
        except OSError as error:
            raise Unavailable(f"the snapshot cannot be taken: {error.strerror}") from None
        return pb.DefragmentResponse()

    async def snapshot(self, request: Any) -> AsyncGenerator[Any, None]:
        """An etcd database, and its SHA-256."""
        await self._node.guard.admin()
        if self._sending == SNAPSHOTS_MAX:
            raise Refused(*TOO_MANY)
        raft = self._node.member.raft
        self._sending += 1
        try:
            backup = Backup(self._node.member.state, raft.log.applied, int(raft.term), STORAGE_VERSION)
            for _ in backup.plan():
                await asyncio.sleep(0)
            digest, left, blob = hashlib.sha256(), backup.file.size_bytes, bytearray()
            for piece in backup.file.pages():
                blob += piece
                left -= len(piece)
                if left and len(blob) < BLOB_BYTES:
                    continue
                digest.update(blob)
                yield pb.SnapshotResponse(remaining_bytes=left, blob=bytes(blob), version=STORAGE_VERSION)
                blob.clear()
                await asyncio.sleep(0)
            yield pb.SnapshotResponse(blob=digest.digest(), version=STORAGE_VERSION)
        finally:
            self._sending -= 1

    async def hash(self, request: Any) -> Any:
        await self._node.guard.admin()
        found, revision = await self._hash(0)
        return pb.HashResponse(header=self._node.header(revision), hash=found)

    async def hash_kv(self, request: Any) -> Any:
        await self._node.guard.admin()
        # There is nothing at a revision before the first.
        found, revision = await self._hash(request.revision) if request.revision >= 0 else (0, request.revision)
        compacted = self._node.member.state.compact_revision
        header = self._node.header_now()
        return pb.HashKVResponse(header=header, hash=found, compact_revision=compacted, hash_revision=revision)

    async def _hash(self, revision: int) -> tuple[int, int]:
        """Equal on members that agree at the revision; different from etcd's."""
        member = self._node.member
        at = revision if revision > 0 else member.state.revision
        return await member.hash(at, rows=False) & 0xFFFFFFFF, at

    async def move_leader(self, request: Any) -> Any:
        await self._node.guard.admin()
        member = self._node.member
        if not member.replica.leading:
            raise Refused(*NOT_LEADER)
        target = member.membership.get(request.targetID)
        if target is None or target.learner:
            raise Refused(*BAD_TRANSFEREE)
        if target.id != member.member_id:
            try:
                await member.transfer(NodeId(target.id))
            except Unavailable:
                raise Refused(*TIMED_OUT) from None
        return pb.MoveLeaderResponse()

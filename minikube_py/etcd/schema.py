"""etcd's messages and services as a table: facts of its rpc.proto, kv.proto, v3lock.proto, v3election.proto.

A line names a message and its fields, numbered from 1 on; `=N` numbers one otherwise, `*` repeats it, and fields of one
`name/` are alternatives of which one is set. `!`: of arbitrary nesting depth, and so parsed level by level: on the wire
a nested message is its bytes."""

from __future__ import annotations

from typing import Final, NamedTuple

ENUMS: Final = """
SortOrder NONE ASCEND DESCEND
SortTarget KEY VERSION CREATE MOD VALUE
CompareResult EQUAL GREATER LESS NOT_EQUAL
CompareTarget VERSION CREATE MOD VALUE LEASE
EventType PUT DELETE
FilterType NOPUT NODELETE
AlarmType NONE NOSPACE CORRUPT
AlarmAction GET ACTIVATE DEACTIVATE
DowngradeAction VALIDATE ENABLE CANCEL
PermissionType READ WRITE READWRITE
"""

MESSAGES: Final = """
ResponseHeader cluster_id:uint64 member_id:uint64 revision:int64 raft_term:uint64
KeyValue key:bytes create_revision:int64 mod_revision:int64 version:int64 value:bytes lease:int64
Event type:EventType kv:KeyValue prev_kv:KeyValue
RangeRequest key:bytes range_end:bytes limit:int64 revision:int64 sort_order:SortOrder sort_target:SortTarget
+ serializable:bool keys_only:bool count_only:bool min_mod_revision:int64 max_mod_revision:int64
+ min_create_revision:int64 max_create_revision:int64
RangeResponse header:ResponseHeader kvs:*KeyValue more:bool count:int64
RangeStreamResponse range_response:RangeResponse
PutRequest key:bytes value:bytes lease:int64 prev_kv:bool ignore_value:bool ignore_lease:bool
PutResponse header:ResponseHeader prev_kv:KeyValue
DeleteRangeRequest key:bytes range_end:bytes prev_kv:bool
DeleteRangeResponse header:ResponseHeader deleted:int64 prev_kvs:*KeyValue
RequestOp request/request_range:RangeRequest request/request_put:PutRequest
+ request/request_delete_range:DeleteRangeRequest request/request_txn:TxnRequest!
ResponseOp response/response_range:RangeResponse response/response_put:PutResponse
+ response/response_delete_range:DeleteRangeResponse response/response_txn:TxnResponse!
Compare result:CompareResult target:CompareTarget key:bytes target_union/version:int64
+ target_union/create_revision:int64 target_union/mod_revision:int64 target_union/value:bytes target_union/lease:int64
+ range_end:bytes=64
TxnRequest compare:*Compare success:*RequestOp failure:*RequestOp
TxnResponse header:ResponseHeader succeeded:bool responses:*ResponseOp
CompactionRequest revision:int64 physical:bool
CompactionResponse header:ResponseHeader
WatchRequest request_union/create_request:WatchCreateRequest request_union/cancel_request:WatchCancelRequest
+ request_union/progress_request:WatchProgressRequest
WatchCreateRequest key:bytes range_end:bytes start_revision:int64 progress_notify:bool filters:*FilterType prev_kv:bool
+ watch_id:int64 fragment:bool
WatchCancelRequest watch_id:int64
WatchProgressRequest
WatchResponse header:ResponseHeader watch_id:int64 created:bool canceled:bool compact_revision:int64
+ cancel_reason:string fragment:bool events:*Event=11
LeaseGrantRequest TTL:int64 ID:int64
LeaseGrantResponse header:ResponseHeader ID:int64 TTL:int64 error:string
LeaseRevokeRequest ID:int64
LeaseRevokeResponse header:ResponseHeader
LeaseKeepAliveRequest ID:int64
LeaseKeepAliveResponse header:ResponseHeader ID:int64 TTL:int64
LeaseTimeToLiveRequest ID:int64 keys:bool
LeaseTimeToLiveResponse header:ResponseHeader ID:int64 TTL:int64 grantedTTL:int64 keys:*bytes
LeaseLeasesRequest
LeaseStatus ID:int64
LeaseLeasesResponse header:ResponseHeader leases:*LeaseStatus
Member ID:uint64 name:string peerURLs:*string clientURLs:*string isLearner:bool
MemberAddRequest peerURLs:*string isLearner:bool
MemberAddResponse header:ResponseHeader member:Member members:*Member
MemberRemoveRequest ID:uint64
MemberRemoveResponse header:ResponseHeader members:*Member
MemberUpdateRequest ID:uint64 peerURLs:*string
MemberUpdateResponse header:ResponseHeader members:*Member
MemberListRequest linearizable:bool
MemberListResponse header:ResponseHeader members:*Member
MemberPromoteRequest ID:uint64
MemberPromoteResponse header:ResponseHeader members:*Member
AlarmRequest action:AlarmAction memberID:uint64 alarm:AlarmType
AlarmMember memberID:uint64 alarm:AlarmType
AlarmResponse header:ResponseHeader alarms:*AlarmMember
StatusRequest
DowngradeInfo enabled:bool targetVersion:string
StatusResponse header:ResponseHeader version:string dbSize:int64 leader:uint64 raftIndex:uint64 raftTerm:uint64
+ raftAppliedIndex:uint64 errors:*string dbSizeInUse:int64 isLearner:bool storageVersion:string dbSizeQuota:int64
+ downgradeInfo:DowngradeInfo
DefragmentRequest
DefragmentResponse header:ResponseHeader
HashRequest
HashResponse header:ResponseHeader hash:uint32
HashKVRequest revision:int64
HashKVResponse header:ResponseHeader hash:uint32 compact_revision:int64 hash_revision:int64
StoredLease ID:int64 TTL:int64 RemainingTTL:int64
SnapshotRequest
SnapshotResponse header:ResponseHeader remaining_bytes:uint64 blob:bytes version:string
MoveLeaderRequest targetID:uint64
MoveLeaderResponse header:ResponseHeader
DowngradeRequest action:DowngradeAction version:string
DowngradeResponse header:ResponseHeader version:string
UserAddOptions no_password:bool
Permission permType:PermissionType key:bytes range_end:bytes
AuthEnableRequest
AuthEnableResponse header:ResponseHeader
AuthDisableRequest
AuthDisableResponse header:ResponseHeader
AuthStatusRequest
AuthStatusResponse header:ResponseHeader enabled:bool authRevision:uint64
AuthenticateRequest name:string password:string
AuthenticateResponse header:ResponseHeader token:string
AuthUserAddRequest name:string password:string options:UserAddOptions hashedPassword:string
AuthUserAddResponse header:ResponseHeader
AuthUserGetRequest name:string
AuthUserGetResponse header:ResponseHeader roles:*string
AuthUserListRequest
AuthUserListResponse header:ResponseHeader users:*string
AuthUserDeleteRequest name:string
AuthUserDeleteResponse header:ResponseHeader
AuthUserChangePasswordRequest name:string password:string hashedPassword:string
AuthUserChangePasswordResponse header:ResponseHeader
AuthUserGrantRoleRequest user:string role:string
AuthUserGrantRoleResponse header:ResponseHeader
AuthUserRevokeRoleRequest name:string role:string
AuthUserRevokeRoleResponse header:ResponseHeader
AuthRoleAddRequest name:string
AuthRoleAddResponse header:ResponseHeader
AuthRoleGetRequest role:string
AuthRoleGetResponse header:ResponseHeader perm:*Permission
AuthRoleListRequest
AuthRoleListResponse header:ResponseHeader roles:*string
AuthRoleDeleteRequest role:string
AuthRoleDeleteResponse header:ResponseHeader
AuthRoleGrantPermissionRequest name:string perm:Permission
AuthRoleGrantPermissionResponse header:ResponseHeader
AuthRoleRevokePermissionRequest role:string key:bytes range_end:bytes
AuthRoleRevokePermissionResponse header:ResponseHeader
LockRequest name:bytes lease:int64
LockResponse header:ResponseHeader key:bytes
UnlockRequest key:bytes
UnlockResponse header:ResponseHeader
LeaderKey name:bytes key:bytes rev:int64 lease:int64
CampaignRequest name:bytes lease:int64 value:bytes
CampaignResponse header:ResponseHeader leader:LeaderKey
ProclaimRequest leader:LeaderKey value:bytes
ProclaimResponse header:ResponseHeader
LeaderRequest name:bytes
LeaderResponse header:ResponseHeader kv:KeyValue
ResignRequest leader:LeaderKey
ResignResponse header:ResponseHeader
HealthCheckRequest service:string
HealthCheckResponse status:int32
HealthListRequest
HealthEntry key:string value:HealthCheckResponse
HealthListResponse statuses:*HealthEntry
"""

SERVICES: Final = """
etcdserverpb.KV Range:Range Put:Put DeleteRange:DeleteRange Txn:Txn Compact:Compaction
etcdserverpb.KV RangeStream:RangeRequest>RangeStreamResponse
etcdserverpb.Watch Watch:Watch<>
etcdserverpb.Lease LeaseGrant LeaseRevoke LeaseKeepAlive:LeaseKeepAlive<> LeaseTimeToLive LeaseLeases
etcdserverpb.Cluster MemberAdd MemberRemove MemberUpdate MemberList MemberPromote
etcdserverpb.Maintenance Alarm Status Defragment Hash HashKV Snapshot:Snapshot> MoveLeader Downgrade
etcdserverpb.Auth AuthEnable AuthDisable AuthStatus Authenticate UserAdd:AuthUserAdd UserGet:AuthUserGet
+ UserList:AuthUserList UserDelete:AuthUserDelete UserChangePassword:AuthUserChangePassword
+ UserGrantRole:AuthUserGrantRole UserRevokeRole:AuthUserRevokeRole RoleAdd:AuthRoleAdd RoleGet:AuthRoleGet
+ RoleList:AuthRoleList RoleDelete:AuthRoleDelete RoleGrantPermission:AuthRoleGrantPermission
+ RoleRevokePermission:AuthRoleRevokePermission
v3lockpb.Lock Lock Unlock
v3electionpb.Election Campaign Proclaim Leader Observe:LeaderRequest>LeaderResponse Resign
grpc.health.v1.Health Check:HealthCheck Watch:HealthCheck> List:HealthList
"""
"""`Name:Stem` takes StemRequest and returns StemResponse; `A>B` names both. `>` returns a stream; `<>` also takes
one."""


class Method(NamedTuple):
    service: str
    name: str
    request: str
    response: str
    takes_stream: bool
    gives_stream: bool

    @property
    def short(self) -> str:
        """Without the package: `KV/Range`."""
        return f"{self.service.rpartition('.')[2]}/{self.name}"


def lines(table: str) -> list[list[str]]:
    """The words of each line; one that begins with + continues the previous one."""
    return [line.split() for line in table.replace("\n+", "").strip().splitlines()]


def methods() -> list[Method]:
    return [_method(service, word) for service, *words in lines(SERVICES) for word in words]


def _method(service: str, word: str) -> Method:
    name, _, types = word.partition(":")
    types = types or name
    both, gives = types.endswith("<>"), ">" in types
    stem, _, response = types.replace("<", "").partition(">")
    request, response = (stem, response) if response else (f"{stem}Request", f"{stem}Response")
    return Method(service, name, request, response, both, gives)

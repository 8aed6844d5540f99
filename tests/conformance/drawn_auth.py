"""Requests about users, roles and what they may, drawn so that names, keys and leases often meet."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, TypeVar

from drawn_etcd import ENDS, KEYS

from minikube_py.etcd.messages import pb

T = TypeVar("T")
USERS = ("root", "root", "u1", "u1", "u2", "")
ROLES = ("root", "r1", "r1", "r2", "r2", "")
PASSWORDS = ("p", "q", "", "x" * 72, "x" * 73)
LEASES = (8001, 8002)
SOME_KEYS = KEYS[:8]


class AuthDraws:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def pick(self, values: Sequence[T]) -> T:
        return self.random.choice(values)

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def password(self, user: str) -> str:
        """Mostly the one that everybody has."""
        return "p" if self.chance(0.85) else self.pick(PASSWORDS)

    def management(self) -> tuple[str, Any]:
        """A change of users and roles, or a question about them."""
        user, role = self.pick(USERS), self.pick(ROLES)
        key, end = self.pick((*SOME_KEYS, b"")), self.pick(ENDS)
        permission = pb.Permission(permType=self.pick((0, 1, 2, 2, 7)), key=key, range_end=end)
        options = pb.UserAddOptions(no_password=True) if self.chance(0.1) else None
        drawn: tuple[tuple[str, Any], ...] = (
            ("UserAdd", pb.AuthUserAddRequest(name=user, password=self.password(user), options=options)),
            ("UserAdd", pb.AuthUserAddRequest(name=user, password=self.password(user))),
            ("UserDelete", pb.AuthUserDeleteRequest(name=user)),
            ("UserChangePassword", pb.AuthUserChangePasswordRequest(name=user, password=self.password(user))),
            ("UserGrantRole", pb.AuthUserGrantRoleRequest(user=user, role=role)),
            ("UserGrantRole", pb.AuthUserGrantRoleRequest(user=user, role=role)),
            ("UserRevokeRole", pb.AuthUserRevokeRoleRequest(name=user, role=role)),
            ("RoleAdd", pb.AuthRoleAddRequest(name=role)),
            ("RoleAdd", pb.AuthRoleAddRequest(name=role)),
            ("RoleDelete", pb.AuthRoleDeleteRequest(role=role)),
            ("RoleGrantPermission", pb.AuthRoleGrantPermissionRequest(name=role, perm=permission)),
            ("RoleGrantPermission", pb.AuthRoleGrantPermissionRequest(name=role, perm=permission)),
            ("RoleGrantPermission", pb.AuthRoleGrantPermissionRequest(name=role, perm=permission)),
            ("RoleGrantPermission", pb.AuthRoleGrantPermissionRequest(name=role)),
            ("RoleRevokePermission", pb.AuthRoleRevokePermissionRequest(role=role, key=key, range_end=end)),
            ("UserGet", pb.AuthUserGetRequest(name=user)),
            ("RoleGet", pb.AuthRoleGetRequest(role=role)),
            ("UserList", pb.AuthUserListRequest()),
            ("RoleList", pb.AuthRoleListRequest()),
            ("AuthStatus", pb.AuthStatusRequest()),
            ("AuthEnable", pb.AuthEnableRequest()),
            *((("AuthDisable", pb.AuthDisableRequest()),) if self.chance(0.1) else ()),
        )
        name, request = self.pick(drawn)
        return f"Auth/{name}", request

    def put(self) -> Any:
        lease = self.pick((0, 0, 0, *LEASES))
        return pb.PutRequest(key=self.pick(SOME_KEYS), value=b"v", lease=lease, prev_kv=self.chance(0.3))

    def delete(self) -> Any:
        return pb.DeleteRangeRequest(key=self.pick(SOME_KEYS), range_end=self.pick(ENDS), prev_kv=self.chance(0.3))

    def range(self) -> Any:
        serializable = self.chance(0.3)
        return pb.RangeRequest(key=self.pick(SOME_KEYS), range_end=self.pick(ENDS), serializable=serializable)

    def op(self, depth: int) -> Any:
        kind = self.random.randrange(4 if depth < 2 else 3)
        if kind == 3:
            return pb.RequestOp(request_txn=self.txn(depth + 1).SerializeToString())
        made = (self.put, self.delete, self.range)[kind]()
        return pb.RequestOp(**{("request_put", "request_delete_range", "request_range")[kind]: made})

    def txn(self, depth: int = 0, *, reads: bool = False) -> Any:
        compare = [
            pb.Compare(key=self.pick(SOME_KEYS), range_end=self.pick((b"", b"", *ENDS)))
            for _ in range(self.pick((0, 1)))
        ]
        branches = [
            [
                pb.RequestOp(request_range=self.range()) if reads else self.op(depth)
                for _ in range(self.pick((0, 1, 1, 2)))
            ]
            for _ in range(2)
        ]
        return pb.TxnRequest(compare=compare, success=branches[0], failure=branches[1])

    def access(self) -> tuple[str, Any]:
        """What somebody may do, or may not."""
        lease = self.pick(LEASES)
        return self.pick(
            (
                ("KV/Put", self.put()),
                ("KV/Put", self.put()),
                ("KV/DeleteRange", self.delete()),
                ("KV/Range", self.range()),
                ("KV/Range", self.range()),
                ("KV/Txn", self.txn()),
                ("KV/Txn", self.txn(reads=True)),
                ("KV/Compact", pb.CompactionRequest(revision=1)),
                ("Lease/LeaseGrant", pb.LeaseGrantRequest(ID=lease, TTL=600)),
                ("Lease/LeaseRevoke", pb.LeaseRevokeRequest(ID=lease)),
                ("Lease/LeaseTimeToLive", pb.LeaseTimeToLiveRequest(ID=lease, keys=self.chance(0.7))),
                ("Lease/LeaseLeases", pb.LeaseLeasesRequest()),
                ("Lease/LeaseKeepAlive", pb.LeaseKeepAliveRequest(ID=lease)),
                ("Watch/Watch", pb.WatchCreateRequest(key=self.pick(SOME_KEYS), range_end=self.pick(ENDS))),
                ("Maintenance/Status", pb.StatusRequest()),
                ("Maintenance/Alarm", pb.AlarmRequest(action=self.pick((0, 2)))),
                ("Maintenance/HashKV", pb.HashKVRequest()),
                ("Maintenance/Hash", pb.HashRequest()),
                ("Maintenance/MoveLeader", pb.MoveLeaderRequest(targetID=5)),
                ("Maintenance/Downgrade", pb.DowngradeRequest(action=0, version="3.7")),
                ("Cluster/MemberList", pb.MemberListRequest()),
                ("Cluster/MemberRemove", pb.MemberRemoveRequest(ID=5)),
                ("Cluster/MemberPromote", pb.MemberPromoteRequest(ID=5)),
                ("Election/Leader", pb.LeaderRequest(name=self.pick((b"d", b"zz")))),
                ("Lock/Lock", pb.LockRequest(name=b"d", lease=self.pick((8001, 9)))),
            )
        )

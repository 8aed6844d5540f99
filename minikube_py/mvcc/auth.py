"""Users, roles and their permissions on keys: etcd's Auth as a part of the replicated state.

It applies to commands sent `AsUser`, from etcd's API; clients of the native protocol have a member's certificate and
unrestricted access. Passwords arrive hashed: apply never hashes. Rules and messages are etcd's (server/auth/store.go,
range_perm_cache.go, etcdserver/apply/auth.go)."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from functools import partial
from typing import Any, Final, NamedTuple

from minikube_py.errors import InvalidRequest
from minikube_py.mvcc.lease import NO_LEASE, Lease, Leases
from minikube_py.mvcc.types import (
    FROM_KEY,
    AsUser,
    ChangeAuth,
    Command,
    DeleteRange,
    InSession,
    LeaseRevoke,
    Put,
    RangeRequest,
    Txn,
)

ROOT: Final = "root"
"""The user, and the role, with unrestricted access."""
READ, WRITE, READWRITE = range(3)
ENTRIES_MAX: Final = 10_000
"""Limit of users, roles, granted roles and permissions together."""
BYTES_MAX: Final = 4 << 20
"""Limit of the bytes of names, keys and hashes: the quota does not count them, and each snapshot writes them."""
TOKENS_MAX: Final = 10_000
"""Limit of tokens; beyond it the oldest expires early."""

ROOT_USER_MISSING: Final = "etcdserver: root user does not exist"
ROOT_ROLE_MISSING: Final = "etcdserver: root user does not have root role"
USER_EXISTS: Final = "etcdserver: user name already exists"
USER_EMPTY: Final = "etcdserver: user name is empty"
USER_NOT_FOUND: Final = "etcdserver: user name not found"
ROLE_EXISTS: Final = "etcdserver: role name already exists"
ROLE_NOT_FOUND: Final = "etcdserver: role name not found"
ROLE_EMPTY: Final = "etcdserver: role name is empty"
AUTH_FAILED: Final = "etcdserver: authentication failed, invalid user ID or password"
NO_PASSWORD: Final = "auth: authentication failed, password was given for no password user"
DENIED: Final = "etcdserver: permission denied"
ROLE_NOT_GRANTED: Final = "etcdserver: role is not granted to the user"
NOT_GRANTED: Final = "etcdserver: permission is not granted to the role"
NOT_ENABLED: Final = "etcdserver: authentication is not enabled"
BAD_MANAGEMENT: Final = "etcdserver: invalid auth management"
OLD_REVISION: Final = "etcdserver: revision of auth store is old"
TOO_MANY: Final = f"etcdserver: there are {ENTRIES_MAX} users, roles and permissions, which is the limit"
TOO_LARGE: Final = f"etcdserver: users, roles and permissions take {BYTES_MAX} bytes, which is the limit"


class User(NamedTuple):
    """`password`: its hash, in the format of the hasher; empty: no password matches. `bare`: it never has one."""

    roles: tuple[str, ...] = ()
    password: bytes = b""
    bare: bool = False


class Permission(NamedTuple):
    """`kind`: READ, WRITE, READWRITE; kinds unknown to etcd grant nothing. `range_end` as in a request."""

    kind: int
    key: bytes
    range_end: bytes


Bounds = list[bytes]
"""Strictly ascending bounds: a granted range starts, ends, the next starts; with an odd number the last is
unbounded."""


class Auth:
    """`revision` counts changes: users looked up before the last one are looked up again. `tokens` is local to this
    member, and in no snapshot: every member that applies a token's entry keeps it until its own clock expires it."""

    def __init__(self) -> None:
        self.enabled = False
        self.revision = 1
        self.users: dict[str, User] = {}
        self.roles: dict[str, tuple[Permission, ...]] = {}
        self.tokens: dict[str, str] = {}
        self._bounds: dict[str, tuple[Bounds, Bounds]] = {}

    @property
    def used(self) -> bool:
        """Whether there is anything that an earlier release would not understand."""
        return self.revision > 1

    # -- changes -------------------------------------------------------------------------------------------------------

    def change(self, change: ChangeAuth) -> None:
        """Raises: InvalidRequest, without changing anything."""
        act = _CHANGES.get(change.action)
        if act is None:
            raise InvalidRequest(f"users and roles know no {change.action[:40]!r}")
        if act(self, change):
            self.revision += 1
            self._bounds = {}

    def _enable(self, _: ChangeAuth) -> bool:
        if not self.enabled:
            root = self.users.get(ROOT)
            if root is None:
                raise InvalidRequest(ROOT_USER_MISSING)
            if ROOT not in root.roles:
                raise InvalidRequest(ROOT_ROLE_MISSING)
            self.enabled = True
        return False

    def _disable(self, _: ChangeAuth) -> bool:
        was, self.enabled = self.enabled, False
        self.tokens.clear()
        return was

    def _add_user(self, change: ChangeAuth) -> bool:
        if not change.name:
            raise InvalidRequest(USER_EMPTY)
        if change.name in self.users:
            raise InvalidRequest(USER_EXISTS)
        user = User((), b"" if change.bare else change.secret, change.bare)
        self._require_room(len(change.name.encode()) + len(user.password))
        self.users[change.name] = user
        return True

    def _delete_user(self, change: ChangeAuth) -> bool:
        if self.enabled and change.name == ROOT:
            raise InvalidRequest(BAD_MANAGEMENT)
        self._user(change.name)
        del self.users[change.name]
        self._end_tokens(change.name)
        return True

    def _change_password(self, change: ChangeAuth) -> bool:
        user = self._user(change.name)
        changed = user._replace(password=b"" if user.bare else change.secret)
        self._require_room(len(changed.password) - len(user.password), 0)
        self.users[change.name] = changed
        self._end_tokens(change.name)
        return True

    def _grant_role(self, change: ChangeAuth) -> bool:
        user = self._user(change.name)
        if change.role != ROOT:
            self._role(change.role)
        if change.role in user.roles:
            return False
        self._require_room(len(change.role.encode()))
        self.users[change.name] = user._replace(roles=tuple(sorted((*user.roles, change.role))))
        return True

    def _revoke_role(self, change: ChangeAuth) -> bool:
        if self.enabled and change.name == change.role == ROOT:
            raise InvalidRequest(BAD_MANAGEMENT)
        user = self._user(change.name)
        if change.role not in user.roles:
            raise InvalidRequest(ROLE_NOT_GRANTED)
        self._take_role(change.name, change.role)
        return True

    def _add_role(self, change: ChangeAuth) -> bool:
        if not change.name:
            raise InvalidRequest(ROLE_EMPTY)
        if change.name in self.roles:
            raise InvalidRequest(ROLE_EXISTS)
        self._require_room(len(change.name.encode()))
        self.roles[change.name] = ()
        return True

    def _delete_role(self, change: ChangeAuth) -> bool:
        if self.enabled and change.name == ROOT:
            raise InvalidRequest(BAD_MANAGEMENT)
        self._role(change.name)
        del self.roles[change.name]
        for name in self.users:
            self._take_role(name, change.name)
        return True

    def _grant(self, change: ChangeAuth) -> bool:
        permission = Permission(change.kind, change.key, change.range_end)
        end = _end(permission)
        if not permission.key or (end is not None and permission.key >= end):
            raise InvalidRequest(BAD_MANAGEMENT)
        granted = list(self._role(change.name))
        # As upstream: of several that start at the key only the first is considered.
        at = bisect_left(granted, permission.key, key=lambda each: each.key)
        if at < len(granted) and granted[at][1:] == permission[1:]:
            granted[at] = permission
        else:
            self._require_room(len(permission.key) + len(permission.range_end))
            granted.append(permission)
            granted.sort(key=lambda each: each.key)
        self.roles[change.name] = tuple(granted)
        return True

    def _revoke(self, change: ChangeAuth) -> bool:
        granted = self._role(change.name)
        left = tuple([each for each in granted if each[1:] != (change.key, change.range_end)])
        if len(left) == len(granted):
            raise InvalidRequest(NOT_GRANTED)
        self.roles[change.name] = left
        return True

    def _assign(self, change: ChangeAuth) -> bool:
        """The password was compared before; `kind` is the revision at that time."""
        if not self.enabled:
            raise InvalidRequest(NOT_ENABLED)
        user = self.users.get(change.name)
        if user is None or user.bare:
            raise InvalidRequest(AUTH_FAILED)
        if change.kind != self.revision:
            raise InvalidRequest(OLD_REVISION)
        self.tokens[change.secret.decode("ascii", "replace")] = change.name
        while len(self.tokens) > TOKENS_MAX:
            del self.tokens[next(iter(self.tokens))]
        return False

    def _user(self, name: str) -> User:
        user = self.users.get(name)
        if user is None:
            raise InvalidRequest(USER_NOT_FOUND)
        return user

    def _role(self, name: str) -> tuple[Permission, ...]:
        role = self.roles.get(name)
        if role is None:
            raise InvalidRequest(ROLE_NOT_FOUND)
        return role

    def _take_role(self, user: str, role: str) -> None:
        found = self.users[user]
        if role in found.roles:
            self.users[user] = found._replace(roles=tuple([each for each in found.roles if each != role]))

    def _end_tokens(self, name: str) -> None:
        self.tokens = {token: user for token, user in self.tokens.items() if user != name}

    def _require_room(self, more_bytes: int, more: int = 1) -> None:
        granted = sum(map(len, self.roles.values())) + sum([len(user.roles) for user in self.users.values()])
        if len(self.users) + len(self.roles) + granted + more > ENTRIES_MAX:
            raise InvalidRequest(TOO_MANY)
        if more_bytes > 0 and self._size_bytes() + more_bytes > BYTES_MAX:
            raise InvalidRequest(TOO_LARGE)

    def _size_bytes(self) -> int:
        names = [*self.users, *self.roles, *[role for user in self.users.values() for role in user.roles]]
        keys = [len(key) + len(end) for granted in self.roles.values() for _, key, end in granted]
        return len("".join(names).encode()) + sum([len(user.password) for user in self.users.values()]) + sum(keys)

    # -- permissions ---------------------------------------------------------------------------------------------------

    def check_admin(self, user: str) -> None:
        """Raises: InvalidRequest."""
        if not self.enabled:
            return
        if not user:
            raise InvalidRequest(USER_EMPTY)
        if ROOT not in self._user(user).roles:
            raise InvalidRequest(DENIED)

    def is_admin(self, user: str) -> bool:
        try:
            self.check_admin(user)
        except InvalidRequest:
            return False
        return True

    def check_read(self, user: str, revision: int, key: bytes, range_end: bytes = b"") -> None:
        """`revision`: of `Auth` when the user was looked up; 0: no user. Raises: InvalidRequest."""
        self._check_range(user, revision, key, range_end, READ)

    def _check_range(self, user: str, revision: int, key: bytes, range_end: bytes, kind: int) -> None:
        if not self.enabled:
            return
        if revision == 0:
            raise InvalidRequest(USER_EMPTY)
        if revision < self.revision:
            raise InvalidRequest(OLD_REVISION)
        known = self.users.get(user)
        if known is None or not (ROOT in known.roles or self._covers(user, key, range_end, kind)):
            raise InvalidRequest(DENIED)

    def require(self, command: Command, leases: Leases) -> None:
        """As `check`, for any command: one without a user is always permitted. Raises: InvalidRequest."""
        inner = command.command if type(command) is InSession else command
        if type(inner) is AsUser:
            self.check(inner, leases)

    def check(self, request: AsUser, leases: Leases) -> None:
        """Whether the user may do it: all branches of a txn count, whichever runs. Raises: InvalidRequest."""
        user, revision, command = request
        if not self.enabled:
            return
        if type(command) is ChangeAuth:
            if command.action != TOKEN:
                self.check_admin(user)
        elif type(command) is LeaseRevoke:
            self.check_lease(user, revision, leases.by_id.get(command.id))
        else:
            checked = {NO_LEASE}
            for op in _ops(command):  # type: ignore[arg-type]
                self._check_op(user, revision, op)
                # Once per lease: it may have many keys.
                if type(op) is Put and op.lease not in checked:
                    checked.add(op.lease)
                    self.check_lease(user, revision, leases.by_id.get(op.lease))

    def check_reads(self, user: str, revision: int, txn: Txn) -> None:
        """For a txn that only reads. Raises: InvalidRequest."""
        for key, range_end, *_ in _ops(txn):
            self.check_read(user, revision, key, range_end)  # type: ignore[arg-type]

    def _check_op(self, user: str, revision: int, op: Any) -> None:
        kind = type(op)
        range_end = b"" if kind is Put else op.range_end
        if kind is not RangeRequest:
            self._check_range(user, revision, op.key, range_end, WRITE)
        if kind is RangeRequest or op.prev_kv:
            self.check_read(user, revision, op.key, range_end)

    def check_lease(self, user: str, revision: int, lease: Lease | None, kind: int = WRITE) -> None:
        """A lease deletes its keys: to attach one to it, renew it or revoke it a user needs write permission on all of
        them; to list them (READ) read permission. About 0.1 µs per key. Raises: InvalidRequest."""
        if lease is None or not lease.keys or self.is_admin(user):
            return
        self._check_range(user, revision, next(iter(lease.keys)), b"", kind)
        inside = partial(bisect_right, self._bounds_of(user)[kind])
        if not all(at & 1 for at in set(map(inside, lease.keys))):
            raise InvalidRequest(DENIED)

    def _bounds_of(self, name: str) -> tuple[Bounds, Bounds]:
        bounds = self._bounds.get(name)
        if bounds is None:
            granted = [each for role in self.users[name].roles for each in self.roles.get(role, ())]
            reads = _merged([each for each in granted if each.kind in (READ, READWRITE)])
            bounds = self._bounds[name] = reads, _merged([each for each in granted if each.kind in (WRITE, READWRITE)])
        return bounds

    def _covers(self, name: str, key: bytes, range_end: bytes, kind: int) -> bool:
        bounds = self._bounds_of(name)[kind]
        at = bisect_right(bounds, key)
        if not at & 1:
            return False
        return at == len(bounds) or (range_end != FROM_KEY and range_end <= bounds[at])

    # -- snapshots -----------------------------------------------------------------------------------------------------

    def records(self) -> list[list[Any]]:
        """The input of `load`; the same on members that agree."""
        if not self.used:
            return []
        users = [[name, list(roles), password, bare] for name, (roles, password, bare) in sorted(self.users.items())]
        roles = [[name, [list(each) for each in granted]] for name, granted in sorted(self.roles.items())]
        return [[self.enabled, self.revision, users, roles]]

    def load(self, records: list[list[Any]]) -> None:
        """Raises: TypeError, ValueError if they are not `records`."""
        self._bounds = {}
        enabled, self.revision, users, roles = records[0] if records else (False, 1, [], [])
        self.enabled = bool(enabled)
        self.users = {name: User(tuple(granted), password, bare) for name, granted, password, bare in users}
        self.roles = {name: tuple([Permission(*each) for each in granted]) for name, granted in roles}


def are_users_and_roles(record: list[Any]) -> bool:
    """Whether its shape is that of `Auth.records`."""
    if list(map(type, record)) != [bool, int, list, list]:
        return False
    users = [type(each) is list and list(map(type, each)) == [str, list, bytes, bool] for each in record[2]]
    roles = [type(each) is list and list(map(type, each)) == [str, list] for each in record[3]]
    if not all(users + roles) or any(type(role) is not str for each in record[2] for role in each[1]):
        return False
    granted = [each for _, granted in record[3] for each in granted]
    return all(type(each) is list and list(map(type, each)) == [int, bytes, bytes] for each in granted)


def _end(permission: Permission) -> bytes | None:
    """The bound behind the last key of the permission; None: unbounded."""
    if not permission.range_end:
        return permission.key + b"\0"
    return None if permission.range_end == FROM_KEY else permission.range_end


def _merged(permissions: list[Permission]) -> Bounds:
    bounds: Bounds = []
    for each in sorted(permissions, key=lambda each: each.key):
        end = _end(each)
        if len(bounds) & 1:
            break
        if bounds and each.key <= bounds[-1]:
            last = bounds.pop()
            end = end and max(end, last)
        else:
            bounds.append(each.key)
        if end is not None:
            bounds.append(end)
    return bounds


def _ops(command: Put | DeleteRange | RangeRequest | Txn) -> Iterator[Any]:
    """Each range, put and delete, and each compare as the range it reads, in etcd's order."""
    if type(command) is not Txn:
        yield command
        return
    for compare in command.compare:
        yield RangeRequest(compare.key, compare.range_end)
    for op in (*command.success, *command.failure):
        yield from _ops(op)


TOKEN: Final = "token"
_CHANGES: Final[dict[str, Any]] = {
    "enable": Auth._enable,
    "disable": Auth._disable,
    "user add": Auth._add_user,
    "user delete": Auth._delete_user,
    "user passwd": Auth._change_password,
    "user grant-role": Auth._grant_role,
    "user revoke-role": Auth._revoke_role,
    "role add": Auth._add_role,
    "role delete": Auth._delete_role,
    "role grant-permission": Auth._grant,
    "role revoke-permission": Auth._revoke,
    TOKEN: Auth._assign,
}

"""Auth: users, roles and tokens, in etcd's API.

Passwords are hashed here, off the loop, and are never in the log: by scrypt from the standard library, where etcd uses
bcrypt. Source: etcd's v3_server.go."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
import string
from collections.abc import Awaitable, Callable
from typing import Any, Final

from minikube_py.errors import InvalidRequest
from minikube_py.etcd.codes import StatusCode
from minikube_py.etcd.errors import NO_PASSWORD_USER, NOT_PROPOSED, PERMISSION_NOT_GIVEN, TOO_MANY, Refused
from minikube_py.etcd.guard import SHOWN, address_shown
from minikube_py.etcd.messages import pb
from minikube_py.etcd.node import Node
from minikube_py.mvcc.auth import (
    AUTH_FAILED,
    NOT_ENABLED,
    OLD_REVISION,
    READWRITE,
    ROLE_NOT_FOUND,
    ROOT,
    TOKEN,
    USER_NOT_FOUND,
)
from minikube_py.mvcc.types import FROM_KEY, ChangeAuth

PASSWORD_BYTES_MAX: Final = 72
"""bcrypt's."""
SALT_BYTES: Final = 16
COST: Final = {"n": 1 << 14, "r": 8, "p": 1}
"""16 MiB and about as long as etcd's bcrypt at its default cost."""
HASHES_AT_ONCE: Final = 2
HASHES_PER_ADDRESS: Final = 16
"""Limit of running and queued hashes per address. One runs at a time, so other addresses wait for at most one of
them."""
TOKEN_LETTERS: Final = 16


Scrypt = Callable[[str, bytes], Awaitable[bytes]]
"""Password and salt to hash."""


async def scrypt(password: str, salt: bytes) -> bytes:
    return await asyncio.to_thread(hashlib.scrypt, password.encode(), salt=salt, **COST)


class _Address:
    """`waiting`: its running and queued hashes."""

    def __init__(self) -> None:
        self.waiting = 0
        self.turn = asyncio.Lock()


class Users:
    def __init__(self, node: Node, scrypt: Scrypt = scrypt) -> None:
        self._node = node
        self._make = scrypt
        self._hashing = asyncio.Semaphore(HASHES_AT_ONCE)
        self._addresses: dict[str, _Address] = {}
        self.unary: dict[str, Callable[[Any], Awaitable[Any]]] = {
            "Auth/AuthEnable": self._changing("AuthEnable", "enable"),
            "Auth/AuthDisable": self._changing("AuthDisable", "disable"),
            "Auth/AuthStatus": self.status,
            "Auth/Authenticate": self.authenticate,
            "Auth/UserAdd": self.add_user,
            "Auth/UserGet": self.get_user,
            "Auth/UserList": self.list_users,
            "Auth/UserDelete": self._changing("AuthUserDelete", "user delete", name="name"),
            "Auth/UserChangePassword": self.change_password,
            "Auth/UserGrantRole": self._changing("AuthUserGrantRole", "user grant-role", name="user", role="role"),
            "Auth/UserRevokeRole": self._changing("AuthUserRevokeRole", "user revoke-role", name="name", role="role"),
            "Auth/RoleAdd": self._changing("AuthRoleAdd", "role add", name="name"),
            "Auth/RoleGet": self.get_role,
            "Auth/RoleList": self.list_roles,
            "Auth/RoleDelete": self._changing("AuthRoleDelete", "role delete", name="role"),
            "Auth/RoleGrantPermission": self.grant,
            "Auth/RoleRevokePermission": self._changing(
                "AuthRoleRevokePermission", "role revoke-permission", name="role", key="key", range_end="range_end"
            ),
        }

    def _changing(self, stem: str, action: str, **fields: str) -> Callable[[Any], Awaitable[Any]]:
        """`fields`: of the command, by the corresponding field of the request."""

        async def call(request: Any) -> Any:
            taken = {name: getattr(request, field) for name, field in fields.items()}
            return await self._change(stem, ChangeAuth(action, **taken))

        return call

    async def _change(self, stem: str, change: ChangeAuth) -> Any:
        node = self._node
        result = await node.command(change)
        if not node.member.replica.leading:
            # This member's next answers must include it.
            await node.confirmed()
        return getattr(pb, f"{stem}Response")(header=node.header(result.revision))

    # -- users and roles -----------------------------------------------------------------------------------------------

    async def add_user(self, request: Any) -> Any:
        bare = request.options.no_password
        secret = b"" if bare else await self._hashed(request.password)
        return await self._change("AuthUserAdd", ChangeAuth("user add", request.name, secret=secret, bare=bare))

    async def change_password(self, request: Any) -> Any:
        """An empty one matches nothing from then on, as in etcd."""
        if request.hashedPassword and not request.password:
            text = "etcdserver: a hash that was made elsewhere cannot be read here: give the password"
            raise Refused(StatusCode.INVALID_ARGUMENT, text)
        secret = await self._hashed(request.password) if request.password else b""
        return await self._change("AuthUserChangePassword", ChangeAuth("user passwd", request.name, secret=secret))

    async def _require_admin(self) -> None:
        """Check permission before hashing, which takes long. Raises: Refused, InvalidRequest."""
        try:
            await self._node.guard.admin()
        except InvalidRequest:
            # This member may be behind.
            await self._node.confirmed()
            await self._node.guard.admin()

    async def grant(self, request: Any) -> Any:
        if not request.HasField("perm"):
            await self._node.guard.admin()
            raise Refused(*PERMISSION_NOT_GIVEN)
        kind, key, range_end = request.perm.permType, request.perm.key, request.perm.range_end
        change = ChangeAuth("role grant-permission", request.name, "", kind, key, range_end)
        return await self._change("AuthRoleGrantPermission", change)

    async def get_user(self, request: Any) -> Any:
        """Users may read their own entry."""
        user, auth = await self._asking(), self._node.guard.auth
        if request.name != user:
            auth.check_admin(user)
        found = auth.users.get(request.name)
        if found is None:
            raise InvalidRequest(USER_NOT_FOUND)
        return pb.AuthUserGetResponse(header=self._node.header_now(), roles=found.roles)

    async def list_users(self, request: Any) -> Any:
        user, auth = await self._asking(), self._node.guard.auth
        auth.check_admin(user)
        return pb.AuthUserListResponse(header=self._node.header_now(), users=sorted(auth.users))

    async def get_role(self, request: Any) -> Any:
        """Users may read their own roles."""
        user, auth = await self._asking(), self._node.guard.auth
        if user not in auth.users or request.role not in auth.users[user].roles:
            auth.check_admin(user)
        found = auth.roles.get(request.role)
        if found is None:
            raise InvalidRequest(ROLE_NOT_FOUND)
        granted = [pb.Permission(permType=kind, key=key, range_end=end) for kind, key, end in found]
        if request.role == ROOT:
            granted = [pb.Permission(permType=READWRITE, range_end=FROM_KEY)]
        return pb.AuthRoleGetResponse(header=self._node.header_now(), perm=granted)

    async def list_roles(self, request: Any) -> Any:
        user, auth = await self._asking(), self._node.guard.auth
        auth.check_admin(user)
        return pb.AuthRoleListResponse(header=self._node.header_now(), roles=sorted(auth.roles))

    async def status(self, request: Any) -> Any:
        await self._asking()
        auth = self._node.guard.auth
        header = self._node.header_now()
        return pb.AuthStatusResponse(header=header, enabled=auth.enabled, authRevision=auth.revision)

    async def _asking(self) -> str:
        """Their name, once this member has applied what was acknowledged to them."""
        await self._node.confirmed(NOT_PROPOSED)
        return (await self._node.guard.who()).user

    # -- passwords and tokens ------------------------------------------------------------------------------------------

    async def authenticate(self, request: Any) -> Any:
        """The token is known to every member that applies its entry, so it is valid at any of them."""
        node, auth = self._node, self._node.guard.auth
        await node.confirmed()
        while True:
            auth = node.guard.auth
            if not auth.enabled:
                raise InvalidRequest(NOT_ENABLED)
            user, revision = auth.users.get(request.name), auth.revision
            if user is None:
                raise InvalidRequest(AUTH_FAILED)
            if user.bare:
                raise Refused(*NO_PASSWORD_USER)
            if not await self._fits(request.password, user.password):
                raise InvalidRequest(AUTH_FAILED)
            letters = "".join(secrets.choice(string.ascii_letters) for _ in range(TOKEN_LETTERS))
            token = f"{letters}.{node.member.raft.log.applied}"
            change = ChangeAuth(TOKEN, request.name, kind=revision, secret=token.encode())
            try:
                result = await node.command(change, guarded=False)
            except InvalidRequest as error:
                if str(error) != OLD_REVISION:
                    raise
                # Users or roles changed since the password was compared.
                await node.confirmed()
                continue
            return pb.AuthenticateResponse(header=node.header(result.revision), token=token)

    async def _hashed(self, password: str) -> bytes:
        if len(password.encode()) > PASSWORD_BYTES_MAX:
            raise Refused(StatusCode.UNKNOWN, f"bcrypt: password length exceeds {PASSWORD_BYTES_MAX} bytes")
        await self._require_admin()
        salt = secrets.token_bytes(SALT_BYTES)
        return salt + await self._scrypt(password, salt)

    async def _fits(self, password: str, hashed: bytes) -> bool:
        if len(hashed) <= SALT_BYTES:
            return False
        salt, wanted = hashed[:SALT_BYTES], hashed[SALT_BYTES:]
        return hmac.compare_digest(await self._scrypt(password, salt), wanted)

    async def _scrypt(self, password: str, salt: bytes) -> bytes:
        """Raises: Refused if too many from that address wait."""
        address = address_shown(SHOWN.get()().peer)
        mine = self._addresses.setdefault(address, _Address())
        if mine.waiting >= HASHES_PER_ADDRESS:
            raise Refused(*TOO_MANY)
        mine.waiting += 1
        try:
            async with mine.turn, self._hashing:
                return await self._make(password, salt)
        finally:
            mine.waiting -= 1
            if not mine.waiting:
                del self._addresses[address]

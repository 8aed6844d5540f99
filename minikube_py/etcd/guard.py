"""Authentication, and permission to read here: tokens and client certificates before `mvcc.auth`.

Writes are checked when they are applied; reads and requests about this member are checked here, against this member's
state. Nothing is checked while authentication is off. Source: etcd's v3_server.go, api/v3rpc, simple_token.go."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextvars import ContextVar
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

from minikube_py.errors import InvalidRequest, MinikubeError
from minikube_py.etcd.errors import BAD_TOKEN, Refused, status_of
from minikube_py.mvcc.auth import OLD_REVISION, READ, USER_EMPTY, Auth
from minikube_py.mvcc.lease import Lease
from minikube_py.mvcc.types import AsUser, Txn, UserCommand
from minikube_py.ports.port import address_of
from minikube_py.store.member import StoreMember

TOKEN_S: Final = 300.0
"""etcd's --auth-token-ttl: how long a token lives without being shown to this member."""
GO_CODES: Final = {
    "INVALID_ARGUMENT": "InvalidArgument",
    "PERMISSION_DENIED": "PermissionDenied",
    "UNAUTHENTICATED": "Unauthenticated",
}


class Shown(NamedTuple):
    """`token`: "" if none was shown. `name`: of the client's certificate, None without one. `peer`: its address, as
    gRPC writes it."""

    token: str = ""
    name: str | None = None
    peer: str = ""


class Who(NamedTuple):
    """`revision`: of users and roles when the user was looked up; 0: no user."""

    user: str = ""
    revision: int = 0


NOBODY: Final = Who()
SHOWN: Final[ContextVar[Callable[[], Shown]]] = ContextVar("SHOWN", default=Shown)
"""The credentials of the client of the current request; read only if authentication is on."""


def shown_over_grpc(metadata: Iterable[tuple[str, str]], name: str | None, peer: str) -> Shown:
    found: dict[str, str] = {}
    for key, value in metadata:
        found.setdefault(key, value)
    return Shown(_token(found, "token", "authorization"), name, peer)


def shown_over_http(headers: Mapping[str, str], host: str = "") -> Shown:
    """As in etcd, certificates do not count: there the gateway shows its own, and refuses those with a name."""
    return Shown(_token(headers, "Grpc-Metadata-Token", "Authorization"), peer=f"tcp:{host}:0" if host else "")


def name_shown(certificate: Mapping[str, Any] | None) -> str | None:
    """The common name in what `SSLSocket.getpeercert` returns, the last one as in Go; "" if it has none: a user without
    any permission. None: no certificate."""
    if not certificate:
        return None
    subject = [each for part in certificate.get("subject", ()) for each in part]
    return next((value for kind, value in reversed(subject) if kind == "commonName"), "")


def address_shown(peer: str) -> str:
    """The address under which connections are counted together (`ports.port.address_of`)."""
    host = unquote(peer).partition(":")[2].rpartition(":")[0].strip("[]")
    return address_of((host,))


def _token(headers: Mapping[str, str], *names: str) -> str:
    found = next((headers[name] for name in names if name in headers), None)
    # An empty token that was shown is invalid.
    return "" if found is None else found.removeprefix("Bearer ") or "?"


class Guard:
    """`confirm` returns once this member's state includes everything acknowledged before."""

    def __init__(self, member: StoreMember, confirm: Callable[[], Awaitable[None]], token_s: float = TOKEN_S) -> None:
        self._member = member
        self._confirm = confirm
        self.token_s = token_s
        self._ends_s: dict[str, float] = {}

    @property
    def auth(self) -> Auth:
        return self._member.state.auth

    async def who(self) -> Who:
        """Raises: Refused if the token is unknown or expired."""
        if not self.auth.enabled:
            return NOBODY
        token, name, _ = SHOWN.get()()
        if not token:
            return NOBODY if name is None else Who(name, self.auth.revision)
        if token not in self.auth.tokens:
            await self._confirm()
        user, now_s = self.auth.tokens.get(token), self._member.clock.monotonic_s()
        if user is None or self._ends_s.get(token, now_s) < now_s:
            raise Refused(*BAD_TOKEN)
        self._ends_s[token] = now_s + self.token_s
        return Who(user, self.auth.revision)

    def known_as(self, shown: Shown) -> str:
        """The user, as far as this member knows now; "" for none, or while authentication is off."""
        if not self.auth.enabled:
            return ""
        name = self.auth.tokens.get(shown.token, "") if shown.token else shown.name or ""
        return name if name in self.auth.users else ""

    def sweep(self) -> None:
        """Removes expired tokens; called about each second."""
        tokens, ends_s = self.auth.tokens, self._ends_s
        if not tokens and not ends_s:
            return
        now_s = self._member.clock.monotonic_s()
        for token in list(tokens):
            if ends_s.setdefault(token, now_s + self.token_s) < now_s:
                del tokens[token]
        self._ends_s = {token: end_s for token, end_s in ends_s.items() if token in tokens}

    # -- permissions ---------------------------------------------------------------------------------------------------

    async def as_user(self, command: UserCommand) -> AsUser:
        """Raises: Refused."""
        return AsUser(*await self.who(), command)

    async def allowed(self, txn: Txn) -> None:
        """Check this before revealing how much there is. Raises: Refused, InvalidRequest."""
        self.auth.require(await self.as_user(txn), self._member.state.lessor)

    async def admin(self) -> None:
        """Raises: Refused, InvalidRequest, as all below."""
        if self.auth.enabled:
            self.auth.check_admin((await self.who()).user)

    async def known(self) -> None:
        if self.auth.enabled and await self.who() == NOBODY:
            raise InvalidRequest(USER_EMPTY)

    async def read(self, key: bytes, range_end: bytes = b"") -> Who:
        """Returns the input of `unchanged` for after the read."""
        who = await self.who()
        self.auth.check_read(*who, key, range_end)
        return who

    async def read_txn(self, txn: Txn) -> Who:
        who = await self.who()
        self.auth.check_reads(*who, txn)
        return who

    def unchanged(self, who: Who) -> None:
        """Checks that users and roles have not changed since."""
        if who.revision and who.revision != self.auth.revision:
            raise InvalidRequest(OLD_REVISION)

    async def read_leases(self, leases: Iterable[Lease | None]) -> Who:
        """Their keys reveal the content."""
        if not self.auth.enabled:
            return NOBODY
        await self.known()
        who = await self.who()
        for lease in leases:
            self.auth.check_lease(*who, lease, READ)
        return who

    async def renew(self, lease: Lease | None) -> None:
        if self.auth.enabled:
            await self.known()
            self.auth.check_lease(*await self.who(), lease)

    async def watch_refusal(self, key: bytes, range_end: bytes) -> str:
        """Why a watch is not permitted, with the message of Go's gRPC; "" if it is."""
        try:
            await self.read(key, range_end)
        except (Refused, MinikubeError) as error:
            code, text = status_of(error)
            return f"rpc error: code = {GO_CODES.get(code.name, 'Unavailable')} desc = {text}"
        return ""

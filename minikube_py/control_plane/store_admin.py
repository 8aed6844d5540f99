"""Administration of a running store: its members one by one, their hashes, leader and membership.

Each member is asked over a separate connection, so that one that is down does not hide the state of the others."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from minikube_py.apiserver.health import within
from minikube_py.control_plane.errors import SetupError
from minikube_py.control_plane.listen import parse_address
from minikube_py.control_plane.store_access import StoreAccess
from minikube_py.env import SystemClock
from minikube_py.errors import (
    Compacted,
    Corruption,
    FutureRevision,
    MinikubeError,
    NotLeader,
    OutcomeUnknown,
    RequestError,
    Unavailable,
)
from minikube_py.mvcc.alarms import NOSPACE
from minikube_py.mvcc.codec import pack
from minikube_py.mvcc.types import RangeRequest, SetAlarm
from minikube_py.ports.addresses import join_address
from minikube_py.store.client_connection import Call, ClientConnection, Endpoint, connect
from minikube_py.store.data_dir import sync_folder
from minikube_py.store.membership import MemberChange, encode_member_change
from minikube_py.store.protocol import Op

HASH_ATTEMPTS = 5
LEADER_ATTEMPTS = 20
LEADER_PAUSE_S = 0.25
ACTION_S = 15.0
"""Timeout of a change of members or leader; one without a quorum never ends."""


@dataclass(frozen=True, slots=True)
class MemberReport:
    """Information about one member. `status` None: it did not answer, and `error` is the reason. `name`, `id`,
    `expected`: as known to the others; "" and 0 if unknown. `unready`: why a linearizable read through it does not pass
    within READY_S; "" if it does, or was not tried."""

    address: str
    name: str = ""
    id: int = 0
    status: dict[str, Any] | None = None
    error: str = ""
    learner: bool = False
    expected: bool = False
    unready: str = ""


@dataclass(frozen=True, slots=True)
class MemberHash:
    """`hash` None: it has none at that revision, and `error` is the reason."""

    address: str
    name: str
    revision: int
    hash: int | None = None
    error: str = ""


@dataclass(frozen=True, slots=True)
class SavedSnapshot:
    """The state after entry `index` of `term`, as reported by its member."""

    address: str
    name: str
    size_bytes: int
    sha256: bytes
    index: int
    term: int


class Asking:
    """Requests over one connection, one after the other."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection
        connection.owner = self

    async def ask(self, op: Op, argument: object = None, on_part: Callable[[bytes], None] | None = None) -> Any:
        """Raises: the member's error; Unavailable, OutcomeUnknown if the connection is lost."""
        call = Call(op, argument, asyncio.get_running_loop().create_future())
        call.on_part = on_part
        return await self.send(call)

    async def send(self, call: Call) -> Any:
        """Raises: as `ask`."""
        if self._connection.why_lost:
            raise Unavailable(self._connection.why_lost)
        self._connection.send(call)
        return await call.future

    # -- client_connection.Owner ------------------------------------------------------------------------------------

    def answered(self, call: Call, value: Any) -> None:
        if not call.future.done():
            call.future.set_result(value)

    def refused(self, call: Call, error: MinikubeError, connection: ClientConnection) -> None:
        if not call.future.done():
            call.future.set_exception(error)

    def leader_told(self, connection: ClientConnection) -> None:
        return

    def fell(self, connection: ClientConnection, calls: list[Call], reason: str) -> None:
        for call in calls:
            if not call.future.done():
                unknown = call.writes and call.sent
                call.future.set_exception(OutcomeUnknown(reason) if unknown else Unavailable(reason))


class PartialFile:
    """A file that gets its name only by `keep`; before that, and after a failure, the name does not exist."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._part = path.with_name(f".{path.name}.part")
        self._hash = hashlib.sha256()
        self.size_bytes = 0

    def __enter__(self) -> PartialFile:
        try:
            self._fd = os.open(self._part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise SetupError(f"cannot write {self._path}: {error.strerror}; name another file") from error
        return self

    def write(self, data: bytes) -> None:
        self._hash.update(data)
        self.size_bytes += len(data)
        view = memoryview(data)
        while view:
            view = view[os.write(self._fd, view) :]

    def sha256(self) -> bytes:
        return self._hash.digest()

    def keep(self) -> None:
        """Makes it durable and gives it its name."""
        os.fsync(self._fd)
        os.replace(self._part, self._path)
        sync_folder(self._path.parent)

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)
        self._part.unlink(missing_ok=True)


class StoreAdmin:
    """`timeout_s` bounds each request to each member."""

    def __init__(self, access: StoreAccess, timeout_s: float = 5.0) -> None:
        self._clock = SystemClock()
        self._access = access
        self._timeout_s = timeout_s
        self._tls = access.context()
        self.endpoints = access.endpoints

    async def status(self, *, readiness: bool = False) -> list[MemberReport]:
        """Of all members known to any member, by name, then of the expected ones; if the members do not report all
        addresses, also of the addresses that did not answer. `readiness`: check whether they serve."""
        addresses = [self._text(address) for address in self._access.addresses]
        asked = await asyncio.gather(*(self._report(address, readiness) for address in addresses))
        reports = {report.address: report for report in asked}
        known = _known(asked)
        more = [each["client"] for each in known.values() if each["client"] and each["client"] not in reports]
        for report in await asyncio.gather(*(self._report(address, readiness) for address in more)):
            reports[report.address] = report
        return _named(list(reports.values()), known)

    async def hashes(self, revision: int = 0) -> list[MemberHash]:
        """Of each member at one revision, by default the latest that all answering members have; see `compared`.

        Raises: Unavailable if none answers, RequestError if they do not all have that revision."""
        for attempt in range(HASH_ATTEMPTS):
            reports = [report for report in await self.status() if not report.expected]
            there = [report for report in reports if report.status is not None]
            if not there:
                raise Unavailable("; ".join(f"{report.address}: {report.error}" for report in reports))
            at = revision or min(report.status["revision"] for report in there if report.status)
            hashes = await asyncio.gather(*(self._hash(report, at) for report in reports))
            gone = [each for each in hashes if each.error and each.hash is None and each.revision]
            if revision or not gone or attempt == HASH_ATTEMPTS - 1:
                return compared(reports, hashes)
        raise AssertionError("unreachable: the last attempt returns or raises")

    async def find(self, name_or_id: str) -> dict[str, Any]:
        """The member with that name or hexadecimal id. Raises: RequestError, Unavailable."""
        reports = await self.status()
        known = sorted(_known(reports).values(), key=lambda each: (each["name"], each["id"]))
        if not known:
            raise Unavailable("; ".join(f"{report.address}: {report.error}" for report in reports))
        found = [each for each in known if name_or_id in (each["name"], f"{each['id']:x}")]
        if len(found) != 1:
            names = ", ".join(f"{each['name'] or '(no name)'} ({each['id']:x})" for each in known)
            raise RequestError(f"there is no member {name_or_id!r}; the members are: {names}")
        return found[0]

    async def expected(self) -> list[str]:
        """The names of members that were announced and have not started yet."""
        return [report.name for report in await self.status() if report.expected]

    async def heir(self) -> dict[str, Any]:
        """The voter other than the leader with the most complete log. Raises: Unavailable, RequestError."""
        reports = await self.status()
        leader, known = leader_of(reports), _known(reports)
        others = [
            report for report in reports if report.status and report.id != leader and not known[report.id]["learner"]
        ]
        if not others:
            raise RequestError("no other voter answers; name a member, or see `minikube-py store status`")
        return known[max(others, key=lambda report: report.status["last_index"] if report.status else 0).id]

    async def alarms(self) -> list[dict[str, Any]]:
        """All raised alarms, as reported by the most up-to-date member: kind, member (its id, "" for all), its name,
        and the reason, if known. Raises: Unavailable."""
        reports = await self.status()
        there = [report.status for report in reports if report.status is not None]
        if not there:
            raise Unavailable("; ".join(f"{report.address}: {report.error}" for report in reports))
        known, said = _known(reports), {status["member"]["id"]: status.get("shortage", "") for status in there}
        latest = max(there, key=lambda status: status["applied"])
        return [
            {
                "kind": each["kind"],
                "member": f"{each['member']:x}" if each["member"] else "",
                "name": known[each["member"]]["name"] if each["member"] in known else "",
                "why": said.get(each["member"], "") if each["kind"] == NOSPACE else "",
            }
            for each in latest.get("alarms", ())
        ]

    async def disarm(self) -> None:
        """Clears all alarms. Raises: Unavailable, OutcomeUnknown."""
        await self._of_leader(Op.COMMAND, pack(SetAlarm(False)))

    async def change(self, change: MemberChange) -> None:
        """Done by the leader, whichever member gets the request.

        Raises: RequestError if it does not fit, Unavailable, OutcomeUnknown."""
        await self._of_leader(Op.MEMBER_CHANGE, encode_member_change(change))

    async def transfer(self, to: int) -> None:
        """Returns when member `to` leads. Raises: Unavailable, RequestError."""
        await self._of_leader(Op.TRANSFER, to)

    async def leader(self) -> dict[str, Any]:
        """Raises: Unavailable if no answering member knows one."""
        reports = await self.status()
        leader = leader_of(reports)
        if leader is None:
            raise Unavailable("no reachable member knows a leader; see `minikube-py store status`")
        known = _known(reports).get(leader)
        if known is None or not known["client"]:
            raise Unavailable(f"member {leader:x} leads, but no member reports its address")
        return known

    async def save_snapshot(self, path: Path) -> SavedSnapshot:
        """Writes a snapshot to `path`, from the leader or, if none is known, from any member that answers.

        Raises: Unavailable, RequestError; SetupError where the file cannot be written; Corruption where what came is
        not whole."""
        reports = await self.status()
        there = [report for report in reports if report.status is not None]
        if not there:
            raise Unavailable("; ".join(f"{report.address}: {report.error}" for report in reports))
        leader = leader_of(reports)
        report = next((each for each in there if each.id == leader), there[0])
        with PartialFile(path) as file:
            async with self.connected(report.address) as asking:
                size_bytes, sha256, index, term = await asking.ask(Op.SNAPSHOT, None, file.write)
            if (size_bytes, sha256) != (file.size_bytes, file.sha256()):
                raise Corruption(f"{report.address}: {file.size_bytes:,} of {size_bytes:,} bytes, or others, arrived")
            file.keep()
        return SavedSnapshot(report.address, report.name, size_bytes, sha256, index, term)

    @asynccontextmanager
    async def connected(self, address: str) -> AsyncIterator[Asking]:
        """Raises: Unavailable; MinikubeError if the store refuses this client."""
        host, port = parse_address(address, "--endpoints")
        endpoint = Endpoint(host, port, self._access.token, self._tls)
        connection = await connect(endpoint, self._clock, self._timeout_s)
        try:
            yield Asking(connection)
        finally:
            connection.close()
            await connection.wait_closed()

    async def ask(self, address: str, op: Op, argument: object) -> Any:
        """The answer of one member. Raises: its error; Unavailable."""
        async with self.connected(address) as asking:
            try:
                async with asyncio.timeout(self._timeout_s):
                    return await asking.ask(op, argument)
            except TimeoutError:
                raise Unavailable(f"no answer within {self._timeout_s:g} s") from None

    async def _of_leader(self, op: Op, argument: object) -> None:
        """Asks the leader, and retries while there is none or it has just changed: nothing was done then."""
        for attempt in range(LEADER_ATTEMPTS):
            try:
                leader = await self.leader()
                async with self.connected(leader["client"]) as asking, asyncio.timeout(ACTION_S):
                    await asking.ask(op, argument)
                return
            except TimeoutError:
                raise OutcomeUnknown(f"no answer within {ACTION_S:g} s; it may still take effect: see status") from None
            except NotLeader:
                if attempt == LEADER_ATTEMPTS - 1:
                    raise
                await asyncio.sleep(LEADER_PAUSE_S)

    async def _report(self, address: str, readiness: bool) -> MemberReport:
        try:
            status = await self.ask(address, Op.STATUS, None)
        except MinikubeError as error:
            return MemberReport(address, error=str(error))
        own = status["member"]
        unready = await within(partial(self._unready, address), "no read passed") if readiness else ""
        return MemberReport(address, own["name"], own["id"], status, learner=own["learner"], unready=unready)

    async def _unready(self, address: str) -> str:
        try:
            await self.ask(address, Op.RANGE, pack(RangeRequest(b"\0", limit=1, count_only=True)))
        except MinikubeError as error:
            return str(error)
        return ""

    async def _hash(self, report: MemberReport, revision: int) -> MemberHash:
        if report.status is None:
            return MemberHash(report.address, report.name, 0, error=report.error)
        try:
            digest, at = await self.ask(report.address, Op.HASH, revision)
            return MemberHash(report.address, report.name, at, digest)
        except (Compacted, FutureRevision, Unavailable) as error:
            return MemberHash(report.address, report.name, revision, error=str(error))

    @staticmethod
    def _text(address: tuple[str, int]) -> str:
        return join_address(*address)


def compared(reports: Sequence[MemberReport], hashes: Iterable[MemberHash]) -> list[MemberHash]:
    """The hashes, without those of members that lack what others have: a later entry never comes to an earlier
    revision, so whoever has applied as much as another, and is at an earlier one, differs at any revision."""
    found = []
    there = [(each.status["applied"], each.status["revision"], each.name) for each in reports if each.status]
    for report, each in zip(reports, hashes, strict=True):
        own = (report.status["applied"], report.status["revision"]) if report.status else (0, 0)
        ahead = [other for other in there if report.status and other[0] <= own[0] and other[1] > own[1]]
        if ahead:
            entry, revision, name = max(ahead)
            at = f"at revision {own[1]:,} after entry {own[0]:,}"
            why = f"it is {at}, but {name} was at {revision:,} after entry {entry:,}: they have diverged"
            each = MemberHash(report.address, report.name, own[1], error=why)
        found.append(each)
    return found


def leader_of(reports: list[MemberReport]) -> int | None:
    """The leader's id, as reported by the member with the latest term; None if unknown."""
    said = [(each.status["term"], each.status["leader"]) for each in reports if each.status and each.status["leader"]]
    return max(said)[1] if said else None


def _known(reports: list[MemberReport]) -> dict[int, dict[str, Any]]:
    """The members by id, as reported by the most up-to-date one."""
    there = [report.status for report in reports if report.status is not None]
    if not there:
        return {}
    latest = max(there, key=lambda status: status["applied"])
    # A store of one member may have no address to report: it is reached where it answered.
    asked = {report.id: report.address for report in reports if report.status is not None}
    return {each["id"]: {**each, "client": each["client"] or asked.get(each["id"], "")} for each in latest["members"]}


def _named(reports: list[MemberReport], known: dict[int, dict[str, Any]]) -> list[MemberReport]:
    """Each member once, with the name the others know; then the expected ones."""
    by_id: dict[int, MemberReport] = {report.id: report for report in reports if report.status is not None}
    silent = {report.address: report for report in reports if report.status is None}
    named = list(by_id.values())
    for id, each in known.items():
        if id not in by_id:
            report = silent.pop(each["client"], None)
            error = report.error if report else "its address is not known"
            named.append(MemberReport(each["client"], each["name"], id, None, error, each["learner"]))
    there = [report.status for report in reports if report.status is not None]
    expected = max(there, key=lambda status: status["applied"])["expected"] if there else []
    waited_for = [
        MemberReport(each["client"], each["name"], error="not started yet", learner=each["learner"], expected=True)
        for each in expected
    ]
    # An address that does not answer, and belongs to no member, was a member's once.
    unknown = () if there and all(each["client"] for each in known.values()) else silent.values()
    return [*sorted(named, key=lambda report: (report.name, report.id)), *waited_for, *unknown]

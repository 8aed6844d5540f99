"""A stand-in for a store member: attributes from the test, calls recorded with their time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from types import SimpleNamespace
from typing import Any

from virtual_time import LoopClock

from minikube_py.errors import Unavailable
from minikube_py.mvcc.codec import pack
from minikube_py.mvcc.types import LeaseRevoke
from minikube_py.mvcc.versions import ALARMS
from minikube_py.raft.configuration import NodeId
from minikube_py.store.member_config import MemberConfig
from minikube_py.store.membership import Member, Membership
from minikube_py.store.upkeep import Upkeep


class Noted:
    """A stand-in for a member: attributes from the test, calls recorded with their time."""

    def __init__(self, **config: Any) -> None:
        self.loop = asyncio.get_running_loop()
        self.clock = LoopClock()
        self.config = MemberConfig(**{"tick_s": 1.0, **config})
        self.member_id = NodeId(1)
        self.calls: list[tuple[float, str, Any]] = []
        self.words: list[str] = []
        self.began_s = self.loop.time()
        tables = SimpleNamespace(
            specs={}, unbuilt=False, degraded={}, unreadable=dict, check_memory=self.note("check_memory")
        )
        self.state: Any = SimpleNamespace(
            revision=1, compact_revision=0, data_bytes=0, version=ALARMS, tables=tables, trim=self.note("trim"),
            alarms=SimpleNamespace(raised=set()), build_indexes=self.build,
            lessor=SimpleNamespace(revoke_of=lambda id: LeaseRevoke(id, 0), by_id={}),
        )  # fmt: skip
        files = SimpleNamespace(
            written_bytes=0, wants_upkeep=False, spare=SimpleNamespace(held_bytes=0), upkeep=self.prepare,
            disk=SimpleNamespace(folder="/data", free_bytes=lambda: 5, free_files=lambda: None),
        )  # fmt: skip
        self.replica: Any = SimpleNamespace(
            leading=3, alone=True, lacks_entry=False, shortage="", files=files, snapshot_due=False,
            hub=SimpleNamespace(progress_some=self.note("progress"), in_vain=0, last_in_vain=""),
            tell=SimpleNamespace(in_vain=0, last=""), transfer=self.note("transfer"), waiting=0,
        )  # fmt: skip
        self.raft: Any = SimpleNamespace(
            leader=NodeId(1), configuration=SimpleNamespace(voters=frozenset((NodeId(1),))), status=lambda: None,
            log=SimpleNamespace(applied=0),
        )
        self.room: Any = SimpleNamespace(shortage="", look=lambda *_: None)
        self.lessor: Any = SimpleNamespace(expired=list)
        self.membership = Membership.of([Member(NodeId(1), "one", "h:1")])
        retry = SimpleNamespace(due=True, pause_s=7.0, failure="it failed", full=False)
        self.snapshotter: Any = SimpleNamespace(retry=retry)
        self.failed = ""
        self.rows_left = 0
        self.step_s = 0.0
        self.file_error: OSError | None = None
        self.snapshot_error: OSError | None = None
        self.hashes: dict[int, int] = {}

    def note(self, name: str) -> Callable[..., None]:
        return lambda *arguments: self.calls.append((self.now_s, name, arguments))

    @property
    def now_s(self) -> float:
        return round(self.loop.time() - self.began_s, 3)

    def named(self, name: str) -> list[tuple[float, Any]]:
        return [(at, arguments) for at, what, arguments in self.calls if what == name]

    def times(self, name: str) -> list[float]:
        return [at for at, _ in self.named(name)]

    def __getattr__(self, name: str) -> Callable[..., None]:
        if name in ("tick", "tell", "tables_changed", "turn_soon", "propose_change"):
            return self.note(name)
        raise AttributeError(name)

    def say(self, text: str) -> None:
        self.words.append(text)

    def fail(self, why: str) -> None:
        self.failed = why

    def check_running(self) -> None:
        if self.failed:
            raise Unavailable(self.failed)

    def propose(self, command: Any, data: bytes, done: Any, own: bool = False) -> None:
        assert data == pack(command) and own
        self.calls.append((self.now_s, "propose", (command,)))

    def proposed(self) -> list[Any]:
        return [command for _, (command,) in self.named("propose")]

    def build(self, rows: int) -> bool:
        self.calls.append((self.now_s, "build", (rows,)))
        self.loop.charge(self.step_s)  # type: ignore[attr-defined]
        self.rows_left -= 1
        return self.rows_left > 0

    def prepare(self, spare: bool) -> Generator[None, None, None]:
        self.calls.append((self.now_s, "prepare", (spare,)))
        yield None
        if self.file_error is not None:
            raise self.file_error

    async def wait_for_sync(self, sync: Any) -> None: ...

    async def take_snapshot(self) -> None:
        self.calls.append((self.now_s, "snapshot", ()))
        if self.snapshot_error is not None:
            raise self.snapshot_error

    async def hash(self, revision: int, *, rows: bool) -> int:
        assert not rows
        self.calls.append((self.now_s, "hash", (revision,)))
        return self.hashes.get(revision, 77)


def kept(member: Noted) -> Upkeep:
    return Upkeep(member)  # type: ignore[arg-type]


class Running:
    def __init__(self, *works: Any) -> None:
        self.tasks = [asyncio.ensure_future(work) for work in works]

    async def __aenter__(self) -> Running:
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.wait(self.tasks)
        for task in self.tasks:
            assert task.cancelled()

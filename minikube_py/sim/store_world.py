"""A whole store in a simulated world: members on machines of their own, who restarts them, what they must agree on.

Level 2 of the simulation: the product's members, links, server and client, unchanged, over simulated TCP, disks and
clocks. `FaultPlayer` breaks it; `settled` says when it is well again.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Final
from zlib import crc32

from minikube_py.env import Rng
from minikube_py.errors import Compacted, Corruption, MinikubeError
from minikube_py.mvcc.types import Compact, RangeRequest
from minikube_py.raft.configuration import Configuration, NodeId
from minikube_py.raft.message import NOBODY, LogIndex
from minikube_py.sim.checkers.convergence import Agreement, MemberView
from minikube_py.sim.disk import SimDisk
from minikube_py.sim.faults import Fault
from minikube_py.sim.store_clients import Traffic
from minikube_py.sim.store_member import CLIENT_PORT, PEER_PORT, Started, run_member
from minikube_py.sim.world import Ended, Process, World
from minikube_py.store.bootstrap import Initial
from minikube_py.store.discovery import BootstrapRefused
from minikube_py.store.identity import LogLost
from minikube_py.store.member import StoreMember
from minikube_py.store.membership import ChangeKind, MemberChange

RESTART_S: Final = (0.02, 0.5)
LOOK_S: Final = 0.02
STOP_S: Final = 15.0
WISH_TRIES: Final = 50
WISH_PAUSE_S: Final = 0.1


@dataclass(slots=True)
class Place:
    """A member's machine. `down`: how many faults hold it down. `member`: what runs there and takes part. `lost`: its
    data is gone, and the member that is to replace it does not vote yet. `leaving`: somebody asked that it be removed;
    `gone`: it was, for ever."""

    number: int
    host: str
    name: str
    down: int = 0
    member: StoreMember | None = None
    member_id: NodeId = NOBODY
    started: Started | None = None
    known: bool = False
    rejoin: bool = False
    lost: bool = False
    leaving: bool = False
    gone: bool = False


@dataclass(slots=True)
class Counts:
    """What happened to the members."""

    elections: int = 0
    changes: int = 0
    snapshots_installed: int = 0
    rejoins: int = 0
    stops: int = 0
    ends: Counter[str] = field(default_factory=Counter)


class SimStore:
    """`members` that form the cluster, and `spare` places for those that may join it. Implements
    `store_faults.FaultyStore`. `problem`: the first thing that was wrong."""

    def __init__(self, world: World, rng: Rng, members: int, spare: int, traffic: Traffic) -> None:
        self.world = world
        self.rng = rng
        self.traffic = traffic
        self.agreement = Agreement()
        self.counts = Counts()
        self.problem = ""
        self.elected: Callable[[int], None] | None = None
        self._members = members
        self.places = [Place(number, f"store-{number}", f"m{number}") for number in range(members + spare)]
        self._initial: Initial = tuple((place.name, f"{place.host}:{PEER_PORT}") for place in self.places[:members])
        self._look: dict[int, _Look] = {}
        self._newest = (0, Configuration(frozenset()))
        self._tasks: dict[asyncio.Task[None], None] = {}
        world.on_end = self._ended
        for place in self.places[:members]:
            place.known = True

    # -- members' lives -----------------------------------------------------------------------------------------------

    def start(self, place: Place) -> None:
        """Nothing where it is held down, runs already, or is no member any more."""
        if place.down or place.gone or not place.known or self.world.running(place.host) is not None:
            return
        address = f"{place.host}:{PEER_PORT}"
        initial = self._initial
        if place.name not in dict(initial):
            initial = tuple(sorted((*initial, (place.name, address))))

        def ready(member: StoreMember) -> None:
            self._ready(place, member)

        started = place.started = Started(place.name, initial, place.rejoin, ready)
        self.world.start(place.host, lambda process: run_member(process, started))

    def _ready(self, place: Place, member: StoreMember) -> None:
        place.member = member
        if place.lost and member.member_id != place.member_id:
            self.counts.rejoins += 1
        place.member_id = member.member_id
        self._look[place.number] = _Look(member)
        member.leader_listeners.append(lambda: self._look_at(place, member))
        self.agreement.restarted(member.member_id)

    def _ended(self, process: Process, ended: Ended) -> None:
        place = next((place for place in self.places if place.host == process.name), None)
        if place is None:
            if ended.error is not None:
                self.fail(f"{process.name} raised {type(ended.error).__name__}: {ended.error}")
            return
        self.counts.ends[ended.how] += 1
        place.member = None
        error = ended.error
        if ended.how == "died" and "was removed" in ended.why:
            place.gone = True
        elif isinstance(error, Corruption | LogLost) and place.lost:
            self.world.scheduler.log(f"{place.host} refuses to start, rightly: {error}")
            machine = self.world.machine(place.host)
            machine.disk = SimDisk(machine.rng)
            place.rejoin = True
        elif isinstance(error, BootstrapRefused) and "was removed" in str(error):
            place.gone = True
        elif error is not None and not isinstance(error, OSError):
            self.fail(f"{process.loop.name} does not start: {type(error).__name__}: {error}")
        if not place.down and not place.gone:
            self.world.scheduler.after(self.rng.uniform(*RESTART_S), self.start, place)

    async def stop(self, place: Place) -> None:
        """Asks a member to end in good order, and returns when it has; it is started again as after any end."""
        process, started = self.world.running(place.host), place.started
        if process is None or started is None or place.member is None or process.loop.paused:
            return
        self.world.scheduler.log(f"stop {process.loop.name}")
        self.counts.stops += 1
        process.loop.call_soon(started.stop.set)
        until_s = self.world.scheduler.now_s + STOP_S
        while process.ended is None:
            if process.loop.paused:
                until_s += STOP_S
            if self.world.scheduler.now_s > until_s:
                self.fail(f"{process.loop.name} was asked to stop, and has not ended {STOP_S:g} s later")
                return
            await asyncio.sleep(0.05)

    def fail(self, text: str) -> None:
        if not self.problem:
            self.problem = text
            self.world.scheduler.log(f"VIOLATION: {text}")

    # -- store_faults.FaultyStore -------------------------------------------------------------------------------------

    def host(self, place: int) -> str:
        return self.places[place].host

    def hosts(self) -> list[str]:
        return list(self.world.machines)

    def leading(self) -> int | None:
        leader = self.leader()
        return leader.number if leader is not None else None

    def forming(self) -> int:
        return self._members

    def known(self, place: int) -> bool:
        return place < len(self.places) and self.places[place].known and not self.places[place].gone

    def may_lose(self, place: int) -> bool:
        """Not while another's data is lost or members are changing, and not where the others could not go on."""
        if any(other.lost or other.leaving for other in self.places):
            return False
        _, known = self._newest
        if known.outgoing or known.learners or len(known.voters) < 3:
            return False
        voters = [each for each in self.places if each.member_id in known.voters and not each.gone]
        if len(voters) != len(known.voters) or self.places[place] not in voters:
            return False
        self.places[place].lost = True
        return True

    def hold_down(self, place: int) -> None:
        self.places[place].down += 1

    def release(self, place: int, *, wiped: bool = False) -> None:
        held = self.places[place]
        held.rejoin = held.rejoin or wiped
        held.down -= 1
        self.start(held)

    def wish(self, fault: Fault) -> None:
        if fault.kind == "compact":
            leader = self.leader()
            if leader is not None and leader.member is not None:
                revision = int(leader.member.state.revision * fault.amount)
                self.traffic.ask(Compact(max(1, revision)))
            return
        wishes: dict[str, Callable[[Fault], Coroutine[Any, Any, bool]]] = {
            "grow": self._grow,
            "shrink": self._shrink,
            "transfer": self._transfer,
        }
        if fault.kind in wishes:
            task = asyncio.get_running_loop().create_task(self._try(fault, wishes[fault.kind]))
            self._tasks[task] = None
            task.add_done_callback(self._tasks.pop)

    async def _try(self, fault: Fault, wish: Callable[[Fault], Coroutine[Any, Any, bool]]) -> None:
        """An administrator who tries again for a while."""
        for _ in range(WISH_TRIES):
            if await wish(fault):
                self.counts.changes += 1
                return
            await asyncio.sleep(WISH_PAUSE_S)

    async def _grow(self, fault: Fault) -> bool:
        place = self.places[fault.places[0]]
        if place.known:
            return True
        peer, client = f"{place.host}:{PEER_PORT}", f"{place.host}:{CLIENT_PORT}"
        change = MemberChange(ChangeKind.EXPECT, name=place.name, peer=peer, client=client)
        if not await self._at_leader(lambda member: member.change_members(change)):
            return False
        place.known = True
        self.start(place)
        return True

    async def _shrink(self, fault: Fault) -> bool:
        place = self.places[fault.places[0]]
        known = self.configuration()
        if place.gone:
            return True
        if place.lost or known is None or place.member_id not in known.voters:
            return False
        if len(known.voters) < 3 or any(other.lost for other in self.places):
            return True
        place.leaving = True
        change = MemberChange(ChangeKind.REMOVE, id=place.member_id)
        return await self._at_leader(lambda member: member.change_members(change))

    async def _transfer(self, fault: Fault) -> bool:
        to = self.places[fault.places[0]].member_id
        await self._at_leader(lambda member: member.transfer(to))
        return True

    async def _at_leader(self, act: Callable[[StoreMember], Coroutine[Any, Any, None]]) -> bool:
        """Lets the leader do something in its own process; whether it said that it is done."""
        leader = self.leader()
        process = self.world.running(leader.host) if leader is not None else None
        if leader is None or leader.member is None or process is None:
            return False
        outcome: list[bool] = []
        process.loop.call_soon(_begin, process, act, leader.member, outcome)
        for _ in range(WISH_TRIES):
            await asyncio.sleep(WISH_PAUSE_S)
            if outcome or process.ended is not None:
                break
        return outcome == [True]

    # -- what is known of the cluster ---------------------------------------------------------------------------------

    def running(self) -> list[Place]:
        return [place for place in self.places if place.member is not None]

    def leader(self) -> Place | None:
        """The leader of the newest term, if a running member thinks that it is."""
        leading = [place for place in self.running() if place.member is not None and place.member.replica.leading]
        return max(leading, key=_term, default=None)

    def configuration(self) -> Configuration | None:
        """The newest one that a running member has in force."""
        members = [place.member for place in self.running() if place.member is not None]
        return max(members, key=_applied).raft.configuration if members else None

    async def watch_over(self) -> None:
        """Looks at all members again and again: one leader a term, one log for all, nothing that goes back."""
        while True:
            await asyncio.sleep(LOOK_S)
            self.look()

    def look(self) -> None:
        for place in self.places:
            if place.member is not None:
                self._look_at(place, place.member)
        if self.agreement.problem:
            self.fail(self.agreement.problem)

    def _look_at(self, place: Place, member: StoreMember) -> None:
        look, raft, agreement = self._look[place.number], member.raft, self.agreement
        if member.state is not look.state:
            look.state = member.state
            self.counts.snapshots_installed += 1
        if raft.role == "LEADER" and look.term != raft.term:
            look.term = raft.term
            self.counts.elections += 1
            agreement.leads(member.member_id, raft.term)
            if self.elected is not None:
                self.elected(place.number)
        log = raft.log
        self._newest = max(self._newest, (log.applied, raft.configuration), key=lambda known: known[0])
        seen = max(look.index, log.offset)
        if log.committed > seen:
            for entry in log.slice(LogIndex(seen), log.committed):
                agreement.committed(member.member_id, entry.index, entry.term, crc32(entry.data))
            look.index = log.committed
        agreement.stands_at(member.member_id, raft.term, log.committed, raft.vote)
        for other in self.places:
            if not other.gone and other.member_id in member.membership.removed and not other.lost:
                other.gone, other.leaving = True, False
        known = raft.configuration
        if place.lost and not known.outgoing and member.member_id in known.voters and self._votes(member.member_id):
            place.lost = place.rejoin = False

    def _votes(self, id: NodeId) -> bool:
        leader = self.leader()
        return leader is not None and leader.member is not None and id in leader.member.raft.configuration.voters

    # -- the end ------------------------------------------------------------------------------------------------------

    def settled(self) -> str:
        """What is still missing until the cluster is well; empty: nothing."""
        leader = self.leader()
        if leader is None or leader.member is None:
            return "there is no leader"
        known = leader.member.raft.configuration
        if known.outgoing or any(member.auto_promote for member in leader.member.membership.members):
            return f"members are still changing: {leader.member.membership.members}"
        wanted = [place for place in self.places if place.known and not place.gone]
        aside = [place.name for place in wanted if place.member_id not in known.voters]
        if aside:
            return f"{', '.join(aside)} do not vote"
        running = {place.member_id: place for place in self.running()}
        missing = [f"{id:x}" for id in sorted(known.voters | known.learners) if id not in running]
        if missing:
            return f"members {', '.join(missing)} do not run"
        applied = {id: _applied(_member(running[id])) for id in sorted(known.voters | known.learners)}
        if len(set(applied.values())) > 1:
            return f"they have applied {applied}"
        return ""

    def views(self) -> list[MemberView]:
        leader = self.leader()
        assert leader is not None and leader.member is not None
        known = leader.member.raft.configuration
        return [_view(_member(place)) for place in self.running() if place.member_id in known.voters | known.learners]


class _Look:
    """How far a member was looked at in this life."""

    def __init__(self, member: StoreMember) -> None:
        self.index: int = member.raft.log.offset
        self.term = 0
        self.state = member.state


def _begin(
    process: Process, act: Callable[[StoreMember], Coroutine[Any, Any, None]], member: StoreMember, outcome: list[bool]
) -> None:
    async def do() -> None:
        try:
            await act(member)
        except MinikubeError as error:
            process.world.scheduler.log(f"{process.loop.name} does not do as it is asked: {error}")
            outcome.append(False)
        else:
            outcome.append(True)

    process.errands.append(process.loop.create_task(do()))


def _member(place: Place) -> StoreMember:
    assert place.member is not None
    return place.member


def _applied(member: StoreMember) -> int:
    return member.raft.log.applied


def _term(place: Place) -> int:
    return _member(place).replica.leading


def _view(member: StoreMember) -> MemberView:
    state = member.state
    hashes: dict[int, int] = {}
    for revision in range(max(1, state.compact_revision), state.revision + 1):
        try:
            hashes[revision] = state.hash(revision)
        except Compacted:
            continue
    kvs = state.range(RangeRequest(b"\0", b"\0")).kvs
    return MemberView(
        member.member_id,
        member.raft.log.applied,
        state.revision,
        state.compact_revision,
        hashes,
        kvs,
        sorted(state.leases()),
    )

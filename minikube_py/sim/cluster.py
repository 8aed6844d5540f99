"""A simulated cluster: members on separate machines, their supervisor, and what they must agree on.

The members are the product's, with its links and servers, over simulated TCP, disks and clocks. `FaultPlayer` breaks
them; `unsettled` lists what is missing until all is healthy again."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from minikube_py.env import Rng
from minikube_py.errors import Corruption, InvalidRequest, MinikubeError
from minikube_py.raft.configuration import Configuration, NodeId
from minikube_py.raft.message import NOBODY, EntryKind
from minikube_py.sim.clients import Traffic
from minikube_py.sim.member_process import CLIENT_PORT, CONFIG, PEER_PORT, Started, run_member
from minikube_py.sim.message_links import MessageTroubles, TroubledLinks
from minikube_py.sim.step_checks import Look, StepChecks
from minikube_py.sim.world import Ended, Process, World
from minikube_py.store.bootstrap import Initial
from minikube_py.store.discovery import BootstrapRefused
from minikube_py.store.identity import LogLost
from minikube_py.store.links import PeerLinks
from minikube_py.store.member import StoreMember
from minikube_py.store.member_config import TICK_S, MemberConfig
from minikube_py.store.membership import ChangeKind, MemberChange, Membership

RESTART_S: Final = (0.02, 0.4)
AT_ONCE_S: Final = 0.002
AT_ONCE_SHARE: Final = 0.4
STOP_S: Final = 15.0
WISH_TRIES: Final = 50
WISH_PAUSE_S: Final = 0.1

Task = Callable[[StoreMember], Coroutine[Any, Any, None]]


@dataclass(slots=True)
class Place:
    """A member's machine. `down`: how many faults hold it down. `member`: the running member, once it takes part.
    `last`: the latest whose log was opened there, observed by `look`; `opened`: in this run. `wiped`: its data is lost;
    `corrupt`: it may be; `rejoin`: a member that starts there on an empty disk gets a new id. `sick`: its disk was made
    to fail. `leaving`: the member whose removal was requested; `gone`: it was removed. `known`: a member belongs there.
    """

    number: int
    host: str
    name: str
    down: int = 0
    member: StoreMember | None = None
    last: StoreMember | None = None
    look: Look | None = None
    opened: bool = False
    member_id: NodeId = NOBODY
    started: Started | None = None
    known: bool = False
    wiped: bool = False
    rejoin: bool = False
    corrupt: bool = False
    sick: bool = False
    leaving: NodeId = NOBODY
    gone: bool = False

    @property
    def peer(self) -> str:
        return f"{self.host}:{PEER_PORT}"


class SimCluster:
    """`members` that form the cluster, and `spare` places for those that may join. `problem`: the first violation.
    `elected` gets the place of a new leader, `rivals` the places of a new leader and of an old one that does not know
    of it; `announced`, by name, an expected member."""

    def __init__(
        self, world: World, rng: Rng, members: int, spare: int, traffic: Traffic, config: MemberConfig = CONFIG
    ) -> None:
        self.world = world
        self.rng = rng
        self.traffic = traffic
        self.forming = members
        self.messages = MessageTroubles()
        self.counts: Counter[str] = Counter()
        self.ended: Counter[str] = Counter()
        self.elected: Callable[[int], None] | None = None
        self.rivals: Callable[[Place, Place], None] | None = None
        self.announced: dict[str, Callable[[], None]] = {}
        self.places = [Place(number, f"store-{number}", f"m{number}") for number in range(members + spare)]
        self.checks = StepChecks(self.places, self._elected)
        self._config = config
        self._initial: Initial = tuple((place.name, place.peer) for place in self.places[:members])
        self._hosts: dict[NodeId, str] = {}
        self.problem = ""
        self._tasks: dict[asyncio.Task[object], None] = {}
        world.on_end = self._ended
        for place in self.places[:members]:
            place.known = True

    def fail(self, text: str) -> None:
        if not self.problem:
            self.problem = text
            self.world.scheduler.log(f"VIOLATION: {text}")

    # -- lifecycle of members
    # ------------------------------------------------------------------------------------------------

    def start(self, place: Place) -> None:
        """No effect if it is held down, already running, or no longer a member."""
        if place.down or place.gone or not place.known or self.world.running(place.host) is not None:
            return
        # A starting member lists the current members: none of the initial ones may be left.
        known = {member.name: member.peer for member in self.membership().members}
        initial = tuple(sorted((dict(self._initial) | known | {place.name: place.peer}).items()))
        started = place.started = Started(
            place.name,
            initial,
            place.rejoin,
            partial(self._ready, place),
            partial(self._made, place),
            self._through,
            self._config,
        )
        self.counts["starts"] += 1
        self.world.start(place.host, lambda process: run_member(process, started))

    @property
    def election_s(self) -> float:
        """The minimum time for which members tolerate a silent leader."""
        return self._config.tick_s * self._config.election_ticks

    def start_all(self) -> None:
        for place in self.places:
            self.start(place)

    def _made(self, place: Place, process: Process, member: StoreMember) -> None:
        process.loop.after_step = partial(self._stepped, place, member)

    def _through(self, process: Process, links: PeerLinks) -> PeerLinks:
        rng = Rng(process.rng.getrandbits(64))
        return TroubledLinks(links, process.loop, rng, process.name, self.messages, self._host_of, self.checks.said)

    def _host_of(self, id: NodeId) -> str:
        return self._hosts.get(id, "")

    def _stepped(self, place: Place, member: StoreMember) -> None:
        """After each callback of a member's process."""
        if not place.opened:
            if not member.opened:
                return
            self._opened(place, member)
        look = place.look
        assert look is not None
        if look.changed():
            self.checks.look(look)
            if self.announced:
                self._hear(member.membership)
            if self.checks.problem:
                self.fail(self.checks.problem)

    def _hear(self, membership: Membership) -> None:
        """A requester that waits for a member to be expected acts as soon as any member knows it."""
        for place in [place for place in self.places if place.name in self.announced]:
            if membership.expecting(place.name) is not None:
                self.world.scheduler.after(0, self._welcome, place)

    def _opened(self, place: Place, member: StoreMember) -> None:
        if place.wiped and place.last is not None:
            self.counts["rejoins"] += 1
        before = None if place.wiped or place.corrupt else place.last
        place.last, place.opened, place.wiped = member, True, False
        place.member_id = member.member_id
        place.look = self.checks.opened(member, before)
        self._hosts[member.member_id] = place.host

    def _ready(self, place: Place, member: StoreMember) -> None:
        place.member = member

    def _elected(self, look: Look) -> None:
        new = next(place for place in self.places if place.look is look)
        self.world.scheduler.log(f"{new.host} leads term {look.term}")
        if self.elected is not None:
            self.elected(new.number)
        for old in self.places:
            leads = old.opened and old.last is not None and old.last.raft.role == "LEADER"
            if self.rivals is not None and old is not new and leads:
                self.rivals(new, old)

    def _ended(self, process: Process, ended: Ended) -> None:
        place = next((place for place in self.places if place.host == process.name), None)
        if place is None:
            if ended.error is not None:
                self.fail(f"{process.name} raised {type(ended.error).__name__}: {ended.error}")
            return
        self.ended[ended.how] += 1
        place.member = None
        place.opened = False
        error = ended.error
        if "was removed" in (str(error) if isinstance(error, BootstrapRefused) else ended.why):
            if not place.leaving and not place.gone:
                self.fail(f"{process.loop.name} was removed without a request: {ended.why}")
            place.gone, place.leaving = True, NOBODY
        elif isinstance(error, Corruption | LogLost) and place.corrupt:
            self.world.scheduler.log(f"{place.host} refuses to start, rightly: {error}")
            self.counts["rot detected"] += 1
            self.wipe(place.number)
        elif ended.how == "died" and not place.sick:
            self.fail(f"{process.loop.name} ended itself: {ended.why}")
        elif error is not None and not (isinstance(error, OSError) and place.sick):
            self.fail(f"{process.loop.name} does not start: {type(error).__name__}: {error}")
        if not place.down and not place.gone:
            self._start_soon(place)

    def _start_soon(self, place: Place) -> None:
        """As a supervisor does: at once, or after a delay."""
        at_once = self.rng.random() < AT_ONCE_SHARE
        delay_s = self.rng.random() * AT_ONCE_S if at_once else self.rng.uniform(*RESTART_S)
        self.world.scheduler.after(delay_s, self.start, place)

    async def stop(self, place: Place) -> None:
        """Asks a member to stop cleanly, and returns when it has; it is restarted as after any end."""
        process, started = self.world.running(place.host), place.started
        if process is None or started is None or place.member is None or process.loop.paused:
            return
        self.world.scheduler.log(f"stop {process.loop.name}")
        self.counts["members stopped"] += 1
        process.loop.call_soon(started.stop.set)
        until_s = self.world.scheduler.now_s + STOP_S
        while process.ended is None:
            if process.loop.paused:
                until_s += STOP_S
            if self.world.scheduler.now_s > until_s:
                self.fail(f"{process.loop.name} was asked to stop, and has not ended {STOP_S:g} s later")
                return
            await asyncio.sleep(0.05)

    def calm(self, tick_s: float = TICK_S) -> None:
        """From here on all use this longer tick, which is cheaper to simulate."""
        self._config = replace(self._config, tick_s=tick_s)
        for place in self.running():
            if place.member is not None:
                place.member.config = replace(place.member.config, tick_s=tick_s)

    # -- for faults ----------------------------------------------------------------------------------------------------

    def host(self, place: int) -> str:
        return self.places[place].host

    def takes_part(self, place: int) -> bool:
        """False: no member was ever started there, or it was removed."""
        return place < len(self.places) and self.places[place].known and not self.places[place].gone

    def hold_down(self, place: int) -> None:
        """The process there has ended, or will, and stays down until released as often."""
        self.places[place].down += 1

    def release(self, place: int) -> None:
        held = self.places[place]
        held.down -= 1
        if not held.down:
            self._start_soon(held)

    def corrupt(self, place: int) -> None:
        self.places[place].corrupt = True

    def sick(self, places: tuple[int, ...]) -> None:
        for place in places:
            self.places[place].sick = True

    def wipe(self, place: int) -> None:
        """Deletes everything on its disk. Nothing may run there."""
        wiped = self.places[place]
        self.world.wipe(wiped.host)
        wiped.wiped, wiped.rejoin, wiped.corrupt = True, True, False

    def may_lose(self, place: int) -> bool:
        """Whether a majority stays intact without this member's data."""
        voters = self.configuration().voters
        if not self.places[place].opened or not self.quiet():
            return False
        if self.places[place].member_id not in voters:
            return True
        return self.lost_voters() + 1 <= (len(voters) - 1) // 2

    def lost_voters(self) -> int:
        """Voters whose data is lost, or may turn out to be when they start."""
        held = {place.member_id for place in self._views() if not place.corrupt}
        configuration = self.configuration()
        return len((configuration.voters | configuration.outgoing) - held)

    def quiet(self) -> bool:
        """No change of members is in progress, not even in the log of a partitioned member."""
        configuration, membership = self.configuration(), self.membership()
        if not configuration.voters or configuration.outgoing or membership.expected:
            return False
        if any(place.leaving for place in self.places):
            return False
        if any(member.learner and member.auto_promote for member in membership.members):
            return False
        for place in self._views():
            assert place.last is not None
            log = place.last.raft.log
            if any(entry.kind == EntryKind.CHANGE for entry in log.slice(log.applied, log.last_index)):
                return False
            if place.opened and place.last.membership != membership:
                return False
        return True

    # -- requests of an administrator
    # ------------------------------------------------------------------------------------

    def grow(self, number: int) -> bool:
        place = self.places[number]
        if (place.known and not place.gone) or not self.quiet() or self.lost_voters():
            return False
        if place.gone:
            self.world.kill(place.host)
            self.wipe(number)
            place.wiped = place.rejoin = place.known = place.gone = False
            place.last, place.member_id = None, NOBODY
        return self._try(self._expect, place)

    async def _expect(self, place: Place) -> bool:
        leader = self.leader()
        if leader is None or leader.member is None:
            return False
        membership = leader.member.membership
        if membership.expecting(place.name) is None and membership.named(place.name) is None:
            change = MemberChange(
                ChangeKind.EXPECT, name=place.name, peer=place.peer, client=f"{place.host}:{CLIENT_PORT}"
            )
            await self._change(change)
            return False
        self._welcome(place)
        return True

    def _welcome(self, place: Place) -> None:
        """It is expected."""
        place.known = True
        self.start(place)
        announced = self.announced.pop(place.name, None)
        if announced is not None:
            announced()

    def shrink(self, number: int) -> bool:
        place = self.places[number]
        if not place.opened or len(self.configuration().voters) < 3 or not self.quiet() or self.lost_voters():
            return False
        place.leaving = place.member_id
        return self._try(partial(self._remove, place.leaving), place)

    async def _remove(self, id: NodeId, place: Place) -> bool:
        """Also done once another member has taken the place: a member whose removal was not requested stays."""
        await self._change(MemberChange(ChangeKind.REMOVE, id=id))
        self.follow()
        if place.member_id != id and place.leaving == id:
            place.leaving = NOBODY
        return place.gone or place.member_id != id

    async def _change(self, change: MemberChange) -> None:
        """Has the leader make it. A refused change must have been invalid at some moment between request and answer."""
        before = self.membership()

        async def make(member: StoreMember) -> None:
            try:
                await member.change_members(change)
            except InvalidRequest as error:
                if self.membership() == before and _fits(before, change):
                    self.fail(f"{member.member_id:x} refuses a change of members that fits: {error}")
                raise

        await self._at_leader(make)

    def transfer(self, number: int) -> bool:
        place, leader = self.places[number], self.leader()
        if leader is None or place is leader:
            return False
        to = place.member_id
        self._keep(self._at_leader(lambda member: member.transfer(to)))
        return True

    def take_snapshot(self, number: int) -> bool:
        place = self.places[number]
        process = self.world.running(place.host)
        if place.member is None or process is None or not place.member.raft.log.applied:
            return False
        process.loop.call_soon(_begin, process, StoreMember.take_snapshot, place.member, [])
        return True

    def _try(self, wish: Callable[[Place], Coroutine[Any, Any, bool]], place: Place) -> bool:
        self._keep(self._until_done(wish, place))
        return True

    def _keep(self, work: Coroutine[Any, Any, object]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)

    async def _until_done(self, wish: Callable[[Place], Coroutine[Any, Any, bool]], place: Place) -> None:
        """An administrator who retries for a while."""
        for _ in range(WISH_TRIES):
            if await wish(place):
                self.counts["membership changes"] += 1
                return
            await asyncio.sleep(WISH_PAUSE_S)

    async def _at_leader(self, task: Task) -> bool:
        """Runs an action in the leader's process; whether it reported success."""
        leader = self.leader()
        process = self.world.running(leader.host) if leader is not None else None
        if leader is None or leader.member is None or process is None:
            return False
        outcome: list[bool] = []
        process.loop.call_soon(_begin, process, task, leader.member, outcome)
        for _ in range(WISH_TRIES):
            await asyncio.sleep(WISH_PAUSE_S)
            if outcome or process.ended is not None:
                break
        return outcome == [True]

    # -- state ---------------------------------------------------------------------------------------------------------

    def running(self) -> list[Place]:
        return [place for place in self.places if place.member is not None]

    def leader(self) -> Place | None:
        """The leader of the newest term, if a running member believes to be it."""
        leading = [place for place in self.running() if place.member is not None and place.member.replica.leading]
        return max(leading, key=_term, default=None)

    def members(self) -> list[tuple[Place, StoreMember]]:
        """Places of the cluster's members, the leader's first. There must be one."""
        leader = self.leader()
        assert leader is not None and leader.member is not None
        ids = {member.id for member in leader.member.membership.members}
        others = [place for place in self.running() if place is not leader and place.member_id in ids]
        return [(place, place.member) for place in (leader, *others) if place.member is not None]

    def configuration(self) -> Configuration:
        """The newest one in force at any member."""
        newest = self._newest()
        return newest.raft.configuration if newest is not None else Configuration(frozenset())

    def membership(self) -> Membership:
        newest = self._newest()
        return newest.membership if newest is not None else Membership()

    def _views(self) -> list[Place]:
        """Places whose members know the cluster, including those that are down."""
        return [place for place in self.places if place.last is not None and not place.wiped and not place.gone]

    def _newest(self) -> StoreMember | None:
        known = [place.last for place in self._views() if place.last is not None]
        return max(known, key=lambda member: member.raft.log.applied, default=None)

    def follow(self) -> None:
        """Records which members were removed, and which vote again."""
        removed, voters = self.membership().removed, self.configuration().voters
        leader = self.leader()
        expected = leader.member.membership.expected if leader is not None and leader.member is not None else ()
        for place in self.places:
            if not place.known and any(member.name == place.name for member in expected):
                # Its removal was requested, with unknown outcome.
                self._welcome(place)
            if place.leaving and place.member_id in removed:
                place.gone, place.leaving = True, NOBODY
            if place.rejoin and place.opened and place.member_id in voters:
                place.rejoin = False

    def unsettled(self) -> str:
        """What is missing until the cluster is healthy; empty: nothing."""
        for place in self.running():
            if place.started is not None and place.started.stop.is_set():
                return f"{place.name} was asked to stop, and has not ended"
        leader = self.leader()
        if leader is None or leader.member is None:
            return "there is no leader"
        self.follow()
        log, membership = leader.member.raft.log, leader.member.membership
        wanted = {place.name for place in self.places if place.known and not place.gone}
        named = {member.name for member in membership.members}
        if named != wanted or membership.expected or leader.member.raft.configuration.outgoing:
            return f"members are {sorted(named)}, expected {membership.expected}, wanted {sorted(wanted)}"
        voters = {member.id for member in membership.members if not member.learner}
        running = {place.member_id: place.member for place in self.running()}
        for known in membership.members:
            member = running.get(known.id)
            if member is None:
                return f"{known.name} does not run"
            if known.learner:
                return f"{known.name} does not vote"
            if member.raft.log.applied < log.last_index:
                return f"{known.name} has applied {member.raft.log.applied} of {log.last_index}"
            if (counted := member.raft.configuration.voters) != voters:
                return f"{known.name} counts the votes of {sorted(counted)}, not of {sorted(voters)}"
        return ""


def _begin(process: Process, task: Task, member: StoreMember, outcome: list[bool]) -> None:
    async def do() -> None:
        try:
            await task(member)
        except (MinikubeError, OSError) as error:
            process.world.scheduler.log(f"{process.loop.name} does not do as it is asked: {error}")
            outcome.append(False)
        else:
            outcome.append(True)

    process.errands.append(process.loop.create_task(do()))


def _fits(membership: Membership, change: MemberChange) -> bool:
    try:
        membership.apply(change)
    except InvalidRequest:
        return False
    return True


def _term(place: Place) -> int:
    assert place.member is not None
    return place.member.replica.leading

"""Who breaks a simulated cluster, and who keeps it running: faults are played, processes started again, members that
lost their disk brought back, members added and removed; and in the end everything is made well.

What the store does not promise to survive is left out, and counted: data lost on a second member before the first one
is replaced, or while a change of members is under way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final

from minikube_py.env import Rng
from minikube_py.errors import Corruption, Unavailable
from minikube_py.mvcc.types import Compact
from minikube_py.raft.configuration import Configuration
from minikube_py.raft.message import EntryKind
from minikube_py.sim.cluster import Cluster
from minikube_py.sim.faults import Fault, aim
from minikube_py.sim.history import History, Operation
from minikube_py.sim.place import SYNC_US, Place
from minikube_py.store.identity import LogLost
from minikube_py.store.membership import ChangeKind, MemberChange, Membership

RESTART_US: Final = (20_000, 400_000)
TEND_US: Final = 100_000
TENDER: Final = 91
"""The client under which compactions stand in the history."""


class Tending:
    """Plays faults on `cluster`, and answers what happens to its members. `counts`: faults played, by kind;
    `left_out`: those that were not."""

    def __init__(self, cluster: Cluster, rng: Rng, history: History, members: int) -> None:
        self.cluster = cluster
        self.steps = cluster.steps
        self.rng = rng
        self.history = history
        self.counts: Counter[str] = Counter()
        self.left_out: Counter[str] = Counter()
        self.wanted = set(range(members))
        """Places at which there is to be a member."""
        self.detected_rot = 0
        self.membership_changes = 0
        self._growing: set[int] = set()
        self._shrinking: dict[int, int] = {}
        self._rotten: set[int] = set()
        self._sick_disks: set[int] = set()
        self._cutting: set[int] = set()
        self._down: Counter[int] = Counter()
        self._undo: dict[int, Callable[[], object]] = {}
        self._number = 0
        self._healed = False
        self._known_members: tuple[int, ...] = ()

    def start(self, faults: Iterable[Fault]) -> None:
        for place in self.cluster.all:
            if place.number in self.wanted:
                self.steps.after(self.rng.randint(0, 20_000), place.start)
        for fault in faults:
            self.steps.at(fault.at_us, self.begin, fault)
        self._tend()

    def begin(self, fault: Fault) -> None:
        """Plays one fault, or leaves it out."""
        if self._healed:
            return
        leader = self.cluster.leader()
        aimed = aim(fault, leader.number if leader else None, len(self.cluster.all))
        if aimed is None:
            self.left_out[fault.kind] += 1
            return
        fault = aimed
        play: Callable[[Fault], bool] = getattr(self, f"_{fault.kind}")
        if play(fault):
            self.counts[fault.kind] += 1
            self.steps.tell(f"fault: {fault}")
        else:
            self.left_out[fault.kind] += 1

    def heal(self) -> None:
        """All faults end, and all that is down is started."""
        self.steps.tell("all faults end")
        self._healed = True
        for number in list(self._undo):
            self._end(number)
        self.cluster.links.heal()
        self.cluster.release_all()
        for place in self.cluster.all:
            if place.paused:
                place.resume()
            place.disk.cut_after(1 << 60)
            place.disk.fail_sync_after(1 << 60)
            place.disk.capacity_bytes = None
            place.sync_more_us = 0
            place.sync_us = SYNC_US
            if place.clock.rate != 1.0:
                place.clock.drift(1.0)
        self._down.clear()

    # -- faults that last ----------------------------------------------------------------------------------------------

    def _until(self, duration_us: int, undo: Callable[[], object]) -> bool:
        self._number += 1
        self._undo[self._number] = undo
        self.steps.after(duration_us, self._end, self._number)
        return True

    def _end(self, number: int) -> None:
        undo = self._undo.pop(number, None)
        if undo is not None:
            undo()

    def _on_links(self, fault: Fault, name: str) -> bool:
        links = self.cluster.links
        lists = [getattr(links.link(*pair), name) for pair in links.pairs(fault.places, fault.others)]
        for values in lists:
            values.append(fault.amount)
        return self._until(fault.duration_us, lambda: [values.remove(fault.amount) for values in lists])

    def _loss(self, fault: Fault) -> bool:
        return self._on_links(fault, "loss")

    def _double(self, fault: Fault) -> bool:
        return self._on_links(fault, "double")

    def _delay(self, fault: Fault) -> bool:
        return self._on_links(fault, "delays")

    def _cut(self, fault: Fault) -> bool:
        links = self.cluster.links
        cut = [links.link(*pair) for pair in links.pairs(fault.places, fault.others)]
        for link in cut:
            link.cuts += 1

        def mend() -> None:
            for link in cut:
                link.cuts -= 1

        return bool(cut) and self._until(fault.duration_us, mend)

    def _clog(self, fault: Fault) -> bool:
        cluster = self.cluster
        pairs = cluster.links.pairs(fault.places, fault.others)
        for pair in pairs:
            cluster.links.link(*pair).clogs += 1

        def unclog() -> None:
            for pair in pairs:
                cluster.links.link(*pair).clogs -= 1
                cluster.release(*pair)

        return bool(pairs) and self._until(fault.duration_us, unclog)

    # -- faults of processes and disks ---------------------------------------------------------------------------------

    def _running(self, fault: Fault) -> list[Place]:
        return [place for place in self.cluster.all if place.number in fault.places and place.running]

    def _hold(self, places: list[Place], duration_us: int) -> bool:
        """They stay down until it is over."""
        for place in places:
            self._down[place.number] += 1

        def release() -> None:
            for place in places:
                # One whose disk had too little to do for its last operation to come loses its power now.
                if place.running and place.number in self._cutting:
                    place.end(power=True)
                self._cutting.discard(place.number)
                self._down[place.number] -= 1
                self._start_soon(place)

        return bool(places) and self._until(duration_us, release)

    def _crash(self, fault: Fault) -> bool:
        places = self._running(fault)
        for place in places:
            if fault.amount:
                place.disk.cut_after(int(fault.amount))
                self._cutting.add(place.number)
            else:
                place.end(power=True, silently=self.rng.random() < 0.5)
        return self._hold(places, fault.duration_us)

    def _kill(self, fault: Fault) -> bool:
        places = self._running(fault)
        for place in places:
            place.end()
        return self._hold(places, fault.duration_us)

    def _torn_sync(self, fault: Fault) -> bool:
        places = [place for place in self._running(fault) if place.replica is not None]
        for place in places:
            place.at_next_sync = self._tear(place)
        return self._hold(places, fault.duration_us)

    def _tear(self, place: Place) -> Callable[[], None]:
        life = place.life

        def tear() -> None:
            if place.life == life:
                place.end(power=True, silently=self.rng.random() < 0.5)

        return tear

    def _pause(self, fault: Fault) -> bool:
        places = self._running(fault)
        for place in places:
            place.pause()

        def resume() -> None:
            for place in places:
                place.resume()

        return bool(places) and self._until(fault.duration_us, resume)

    def _rot(self, fault: Fault) -> bool:
        """The process is killed, and what it wrote stays: by what it wrote last, damage is told from a torn write."""
        for place in self._running(fault):
            if self._may_lose(place):
                place.end()
                where = place.disk.rot(self.rng)
                self.steps.tell(f"{place.name}: a bit flips in {where}")
                self._rotten.add(place.number)
                return self._hold([place], fault.duration_us)
        return False

    def _wipe(self, fault: Fault) -> bool:
        for place in self._running(fault):
            if self._may_lose(place):
                place.end(power=True)
                self._lose_disk(place)
                return self._hold([place], fault.duration_us)
        return False

    def _lose_disk(self, place: Place) -> None:
        place.wipe()
        place.rejoin = True
        self._rotten.discard(place.number)

    def _full(self, fault: Fault) -> bool:
        places = self._running(fault)
        for place in places:
            place.disk.capacity_bytes = place.disk.used_bytes() + int(fault.amount)
            self._sick_disks.add(place.number)

        def free() -> None:
            for place in places:
                place.disk.capacity_bytes = None

        return bool(places) and self._until(fault.duration_us, free)

    def _slow_sync(self, fault: Fault) -> bool:
        places = self._running(fault)
        for place in places:
            place.sync_more_us = int(fault.amount)

        def quicken() -> None:
            for place in places:
                place.sync_more_us = 0

        return bool(places) and self._until(fault.duration_us, quicken)

    def _bad_sync(self, fault: Fault) -> bool:
        places = self._running(fault)
        for place in places:
            place.disk.fail_sync_after(int(fault.amount))
            self._sick_disks.add(place.number)
        return bool(places)

    def _clock(self, fault: Fault) -> bool:
        places = [place for place in self.cluster.all if place.number in fault.places]
        for place in places:
            place.clock.drift(fault.amount)

        def back() -> None:
            for place in places:
                place.clock.drift(1.0)

        return self._until(fault.duration_us, back)

    def _depose(self, fault: Fault) -> bool:
        """What a leader began is to be left with a few: it goes almost as soon as it has come."""
        self.cluster.elected = lambda place: self.steps.after(int(fault.amount), self._strike, place, place.life)

        def leave() -> None:
            self.cluster.elected = None

        return self._until(fault.duration_us, leave)

    def _strike(self, place: Place, life: int) -> None:
        if self._healed or place.life != life or not place.running:
            return
        how = self.rng.random()
        duration_us = self.rng.randint(50_000, 500_000)
        if how < 0.2:
            place.end()
            self._hold([place], duration_us // 4)
        elif how < 0.4:
            place.end(power=True, silently=True)
            self._hold([place], duration_us // 4)
        else:
            others = [other.number for other in self.cluster.all if other is not place]
            if how < 0.8:
                others.remove(self.rng.choice(others))
            both = how < 0.6 or how > 0.9
            self._cut(Fault(0, "cut", (place.number,), tuple(others), duration_us))
            if both:
                self._cut(Fault(0, "cut", tuple(others), (place.number,), duration_us))

    # -- what the store itself is asked --------------------------------------------------------------------------------

    def _transfer(self, fault: Fault) -> bool:
        leader = self.cluster.leader()
        target = self.cluster.all[fault.places[0]]
        if leader is None or leader.replica is None or target is leader:
            return False
        try:
            leader.replica.transfer(target.member_id)  # type: ignore[arg-type]
        except Unavailable:
            return False
        leader.turn_soon()
        return True

    def _compact(self, fault: Fault) -> bool:
        leader = self.cluster.leader()
        if leader is None or leader.replica is None:
            return False
        revision = max(1, int(leader.replica.state.revision * fault.amount))
        now_us = self.steps.now_us
        self.history.operations.append(Operation(TENDER, now_us, None, Compact(revision), "unknown"))
        leader.propose_own(Compact(revision))
        return True

    def _snapshot(self, fault: Fault) -> bool:
        places = self._running(fault)
        for place in places:
            place.do(place.life, place.take_snapshot)
        return bool(places)

    def _grow(self, fault: Fault) -> bool:
        place = self.cluster.all[fault.places[0]]
        leader = self.cluster.leader()
        if place.number in self.wanted or leader is None or not self._quiet() or self._lost_voters():
            return False
        self.wanted.add(place.number)
        self._growing.add(place.number)
        place.wipe()
        self._expect(place)
        return True

    def _expect(self, place: Place) -> None:
        leader = self.cluster.leader()
        if leader is not None and leader.replica is not None and leader.replica.membership.named(place.name) is None:
            change = MemberChange(ChangeKind.EXPECT, name=place.name, peer=place.address, client=place.address)
            if leader.replica.membership.expecting(place.name) is None:
                self.cluster.change_members(leader, change)
        place.start()

    def _shrink(self, fault: Fault) -> bool:
        place = self.cluster.all[fault.places[0]]
        leader = self.cluster.leader()
        if leader is None or leader.replica is None or place.number not in self.wanted:
            return False
        if len(self.wanted) < 3 or not self._quiet() or self._lost_voters() or not place.running:
            return False
        if leader.replica.membership.get(place.member_id) is None:
            return False
        removed = self.cluster.change_members(leader, MemberChange(ChangeKind.REMOVE, id=place.member_id))  # type: ignore[arg-type]
        if removed:
            self._shrinking[place.number] = place.member_id
        return removed

    # -- what must not be lost -----------------------------------------------------------------------------------------

    def _views(self) -> list[Place]:
        """Places whose members know something of the cluster, those that are down included."""
        return [place for place in self.cluster.all if place.last is not None and not place.rejoin]

    def _newest(self) -> Place | None:
        return max(self._views(), key=lambda place: place.last.raft.log.applied if place.last else 0, default=None)

    def _configuration(self) -> Configuration:
        newest = self._newest()
        return newest.last.raft.configuration if newest and newest.last else Configuration(frozenset())

    def _membership(self) -> Membership:
        newest = self._newest()
        return newest.last.membership if newest and newest.last else Membership()

    def _quiet(self) -> bool:
        """No change of members is under way, not even one in the log of somebody who is cut off."""
        configuration, membership = self._configuration(), self._membership()
        if not configuration.voters or configuration.outgoing or membership.expected or self._shrinking:
            return False
        if any(member.learner and member.auto_promote for member in membership.members):
            return False
        if self._pending():
            return False
        return all(place.last.membership == membership for place in self._views() if place.last and place.running)

    def _lost_voters(self) -> int:
        """Voters whose data is gone, or may turn out to be when they start."""
        held = {place.member_id for place in self._views() if place.number not in self._rotten}
        configuration = self._configuration()
        return len((configuration.voters | configuration.outgoing) - held)

    def _may_lose(self, place: Place) -> bool:
        """Whether a majority stays whole without this member's data."""
        voters = self._configuration().voters
        if place.replica is None or not self._quiet():
            return False
        return place.member_id not in voters or self._lost_voters() + 1 <= (len(voters) - 1) // 2

    # -- keeping it running --------------------------------------------------------------------------------------------

    def _start_soon(self, place: Place) -> None:
        """As a supervisor does: at once, or after a while."""
        if not self._down[place.number]:
            delay_us = self.rng.randint(*RESTART_US) if self.rng.random() < 0.6 else self.rng.randint(1, 2_000)
            self.steps.after(delay_us, self._start, place)

    def _start(self, place: Place) -> None:
        untold = any(number == place.number for number, _ in self.cluster.refusals)
        if place.number in self.wanted and not self._down[place.number] and not place.running and not untold:
            place.start()

    def _tend(self) -> None:
        """Looks after everything, now and then."""
        self.steps.after(TEND_US, self._tend)
        cluster = self.cluster
        failures, cluster.failures = cluster.failures, []
        for number, why in failures:
            if number not in self._sick_disks:
                cluster.fail(f"m{number} ended itself: {why}")
        refusals, cluster.refusals = cluster.refusals, []
        for number, error in refusals:
            self._refused(cluster.all[number], error)
        self._follow_members()
        for number in sorted(self._growing):
            place = cluster.all[number]
            if place.up and self._membership().get(place.member_id) is not None:
                self._growing.discard(number)
            elif not place.up and not self._down[number]:
                self._expect(place)
        for place in cluster.all:
            if not place.running:
                self._start(place)

    def _refused(self, place: Place, error: Exception) -> None:
        number = place.number
        if isinstance(error, Corruption | LogLost):
            if number in self._rotten:
                self.detected_rot += 1
                self._lose_disk(place)
            else:
                self.cluster.fail(f"{place.name} does not start, though nothing happened to its disk: {error}")
        elif place.running and place.replica is None:
            # Not let in, or not yet: it asks again.
            place.end()

    def _follow_members(self) -> None:
        membership = self._membership()
        ids = tuple(member.id for member in membership.members)
        if ids != self._known_members:
            self.membership_changes += bool(self._known_members)
            self._known_members = ids
        for number, member_id in list(self._shrinking.items()):
            if membership.members and membership.get(member_id) is None:
                del self._shrinking[number]
                self.wanted.discard(number)
                self.steps.tell(f"m{number} was removed")
            elif not self._pending():
                del self._shrinking[number]
        for place in self.cluster.all:
            if place.number not in self.wanted and place.running and (self._healed or self.rng.random() < 0.05):
                place.end()

    def _pending(self) -> bool:
        """Some log holds a change of members that is not applied there."""
        for place in self._views():
            assert place.last is not None
            log = place.last.raft.log
            if any(entry.kind == EntryKind.CHANGE for entry in log.slice(log.applied, log.last_index)):
                return True
        return False

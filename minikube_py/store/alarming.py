"""A member's alarms: it raises one when space runs out, clears it when there is space again, and stops serving once the
others agree that its data differ from theirs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from minikube_py.errors import InvalidRequest, shown
from minikube_py.mvcc.alarms import CORRUPT, NOSPACE
from minikube_py.mvcc.types import Alarm, Command, SetAlarm
from minikube_py.raft.configuration import NodeId
from minikube_py.store.room import where

if TYPE_CHECKING:
    from minikube_py.store.member import StoreMember

AGAIN_S: Final = 1.0
"""What was sent to the leader, or proposed, may be lost; it is sent again until the state shows it."""

Ask = Callable[[Command], None]
"""Has the current leader propose a command; the request may be lost."""


def wanted_by(sender: NodeId, command: Command) -> SetAlarm:
    """The alarm that another member wants: of its own disk. Whose data differ only a leader's own comparison says.

    Raises: InvalidRequest for anything else."""
    if type(command) is not SetAlarm or (command.member, command.kind) != (sender, NOSPACE):
        raise InvalidRequest(f"a member asks for {NOSPACE} of itself alone, not for {shown(command)}")
    return command


class Alarming:
    def __init__(self, member: StoreMember, ask: Ask) -> None:
        self._member = member
        self._ask = ask
        self._next_s = 0.0
        self._known: frozenset[Alarm] = frozenset()

    def look(self) -> None:
        """Call this regularly."""
        member = self._member
        state, room = member.state, member.room
        room.look(state.data_bytes, member.replica.files.spare.held_bytes)
        member.replica.shortage = room.shortage
        raised = state.alarms.raised
        if raised != self._known:
            self._tell(raised)
        if stands_aside(member):
            member.fail(aside_text(member))
            return
        wrong = bool(room.shortage) != (Alarm(member.member_id, NOSPACE) in raised)
        gone = self._gone(raised)
        now_s = member.clock.monotonic_s()
        # Without writes, raising the alarm again adds the entry that a snapshot needs, and changes nothing else.
        if (wrong or gone or member.replica.lacks_entry) and now_s >= self._next_s:
            self._next_s = now_s + AGAIN_S
            if wrong or member.replica.lacks_entry:
                self._ask(SetAlarm(bool(room.shortage), member.member_id, NOSPACE))
            for alarm in gone:
                self._ask(SetAlarm(False, *alarm))

    def _gone(self, raised: set[Alarm]) -> list[Alarm]:
        """Alarms of removed members. A leader clears them."""
        member = self._member
        if not raised or not member.replica.leading:
            return []
        return sorted(each for each in raised if each.member and member.membership.get(each.member) is None)

    def _tell(self, raised: set[Alarm]) -> None:
        for alarm in sorted(raised - self._known):
            whose = f" of member {alarm.member:x}" if alarm.member else ""
            why = self._member.room.shortage if alarm == (self._member.member_id, NOSPACE) else _WHAT[alarm.kind]
            self._member.say(f"alarm {alarm.kind}{whose}: {why}")
        for alarm in sorted(self._known - raised):
            self._member.say(f"alarm {alarm.kind} of member {alarm.member:x} is cleared")
        self._known = frozenset(raised)


_WHAT: Final = {
    NOSPACE: "writes that need space are refused",
    CORRUPT: "members hold different data; compare them with `minikube-py store hash`",
}


def stands_aside(member: StoreMember) -> bool:
    """The others agree that this member's data differ. Alarms against a majority of the voters cannot be right, so they
    stop no member."""
    raised, voters = member.state.alarms.raised, member.raft.configuration.voters
    marked = [each for each in voters if Alarm(each, CORRUPT) in raised]
    return Alarm(member.member_id, CORRUPT) in raised and len(marked) * 2 <= len(voters)


def aside_text(member: StoreMember) -> str:
    return (
        "this member's data differ from the majority's, so it stopped serving: empty "
        f"{where(member.replica.files.disk)}, and restart it with --rejoin; it gets the data from the other members"
    )

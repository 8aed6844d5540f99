"""What this release can apply, and what the other members' releases can.

Entries are checked where they enter a log, from a message or from the member's own files: what a member cannot apply it
does not hold, acknowledge or send. The version of the rules of apply is raised once every member has reported to the
leader that it supports it: a follower's replies carry its version (`RaftConfig.release`); earlier releases send 0 and
support only the first rules."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final

from minikube_py.errors import InvalidRequest, MinikubeError, RequestError
from minikube_py.mvcc.codec import NewerMessage, unpack
from minikube_py.mvcc.types import Command, RaiseVersion
from minikube_py.mvcc.versions import FIRST, LATEST, TooNew
from minikube_py.raft.codec import Malformed, decode_change
from minikube_py.raft.configuration import ChangeRefused, ConfChange, Configuration, NodeId, changed
from minikube_py.raft.message import Entry, Message, MessageType, Term
from minikube_py.raft.ready import ClaimRefused
from minikube_py.store.membership import MemberChange, Membership, decode_member_change

AHEAD_BYTES_MAX = 16 << 20
"""Decoded commands are kept until they are applied, up to this size; beyond it they are decoded again."""
COMMAND_BYTES = 256
"""Counted for each."""
_DECODED_TIMES = 10
"""Counted for each byte of its data: what a txn of many small requests becomes."""


class Inapplicable(MinikubeError):
    """This release cannot apply the entry, and must not guess what it does."""


REFUSED: Final = (Inapplicable, ClaimRefused)
"""Why one message of a member is dropped."""


class EntryCheck:
    """Decodes each command once, on arrival, and keeps it for the time when it is applied."""

    def __init__(self) -> None:
        self._commands: dict[int, tuple[bytes, Command]] = {}
        self._size_bytes = 0

    def admit(self, entries: Iterable[Entry], commit: int, applied: int = 0) -> None:
        """Checks entries before they enter the log. Commands that nobody can read pass, and so do such changes of
        members up to `commit`: everybody skips them. What is `applied` is not kept. Raises: Inapplicable."""
        for _, index, data, kind in entries:
            if kind:
                _check_change(index, data, committed=index <= commit)
            elif data:
                with suppress(InvalidRequest):
                    command = _read(index, data)
                    if index > applied:
                        self._keep(index, data, command)

    def command(self, index: int, data: bytes) -> Command:
        """The command of an entry to apply. Raises: Inapplicable; InvalidRequest if nobody can read it."""
        found = self._commands.pop(index, None)
        if found is not None:
            self._size_bytes -= _size_bytes(found[0])
            if found[0] == data:
                return found[1]
        return _read(index, data)

    def forget(self) -> None:
        self._commands.clear()
        self._size_bytes = 0

    def _keep(self, index: int, data: bytes, command: Command) -> None:
        before = self._commands.pop(index, None)
        if before is not None:
            self._size_bytes -= _size_bytes(before[0])
        if self._size_bytes > AHEAD_BYTES_MAX:
            self.forget()
        self._commands[index] = (data, command)
        self._size_bytes += _size_bytes(data)


def _size_bytes(data: bytes) -> int:
    return len(data) * _DECODED_TIMES + COMMAND_BYTES


class Refusals:
    """What other members sent in vain. To drop a message is to lose it: it changes nothing, and is not acknowledged."""

    def __init__(self) -> None:
        self.count = 0
        self._of: dict[NodeId, tuple[int, str]] = {}
        """By member of the configuration: how many, and why the latest."""
        self.skipped = ""
        """The latest committed change of members that nobody can apply."""
        self.listener: Callable[[str], None] | None = None
        """Called with the first one of each member, and with each change that is skipped."""

    def refuse(self, sender: NodeId, why: str, configuration: Configuration) -> None:
        self.count += 1
        count = self._of.get(sender, (0, ""))[0] + 1
        self._of = {id: of for id, of in self._of.items() if configuration.contains(id)}
        if configuration.contains(sender):
            self._of[sender] = count, why
            if count == 1:
                self._tell(f"a message of member {sender:x} was refused: {why}")

    def skip(self, why: str) -> InvalidRequest:
        """Returns what whoever proposed it gets as its error."""
        self.skipped = why
        self._tell(why)
        return InvalidRequest(why)

    def told(self) -> list[str]:
        texts = [
            f"{count:,} message{'s' * (count > 1)} of member {id:x} refused, the latest because {why}"
            for id, (count, why) in self._of.items()
        ]
        return [*texts, self.skipped] if self.skipped else texts

    def _tell(self, text: str) -> None:
        if self.listener is not None:
            self.listener(text)


def read_change(data: bytes) -> tuple[ConfChange, MemberChange | None]:
    """An entry of kind CHANGE; None: the configuration changes alone.

    Raises: Malformed, InvalidRequest; NewerMessage if a later version may have written it."""
    change = decode_change(data)
    return change, decode_member_change(change.context) if change.context else None


def applied_change(entry: Entry, membership: Membership, configuration: Configuration) -> Membership | str:
    """The members after a committed change, or why it changes nothing: everybody decides alike. Raises: Inapplicable if
    a later version may know it."""
    try:
        change, of_members = read_change(entry.data)
        after = membership if of_members is None else membership.apply(of_members)
        changed(configuration, change)
    except NewerMessage as error:
        raise Inapplicable(f"cannot apply entry {entry.index}: {error}") from None
    except (Malformed, ChangeRefused, RequestError) as error:
        return (
            f"entry {entry.index}, a change of members, was skipped: {error}. If `store hash` differs from the other "
            "members', a file of this one was edited: empty its folder and start it with --rejoin"
        )
    return after


def _read(index: int, data: bytes) -> Command:
    try:
        command = unpack(data)
    except NewerMessage as error:
        raise Inapplicable(f"cannot apply entry {index}: {error}") from None
    if type(command) is RaiseVersion and command.version > LATEST:
        raise Inapplicable(f"cannot apply entry {index}: {TooNew(command.version)}")
    return command


def _check_change(index: int, data: bytes, *, committed: bool) -> None:
    try:
        read_change(data)
    except (Malformed, RequestError) as error:
        if not committed or isinstance(error, NewerMessage):
            raise Inapplicable(f"cannot apply entry {index}, a change of members: {error}") from None


_REPLIES = (MessageType.HEARTBEAT_REPLY, MessageType.APPEND_REPLY)


class Releases:
    """`own`: the version this member supports. `proposed`: the term in which it last proposed to raise the version."""

    def __init__(self, own: int) -> None:
        self.own = own
        self.proposed = Term(0)
        self._known: dict[NodeId, int] = {}

    def heard(self, message: Message) -> None:
        if message.type in _REPLIES and not message.reject:
            self._known[message.sender] = message.hint or FIRST

    def due(self, term: Term, membership: Membership, me: NodeId) -> int:
        """The highest version that all members support, for `me` to propose; the first while a member has not replied,
        or after a proposal in this term."""
        if self.proposed == term:
            return FIRST
        known = [self._known.get(each.id, FIRST) for each in membership.members if each.id != me]
        return min([self.own, *known])

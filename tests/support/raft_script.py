"""A small command language for Raft, and the log that each command is expected to leave (as etcd-io/raft has it).

A transcript is a list of blocks: a comment or none, commands one a line, a line `----`, the expected log, a blank.
`python tests/support/raft_script.py --rewrite FILE...` writes what the code does in place of what was expected; read it
before it is committed.

    add-nodes 3 [voters=1,2,3] [learners=4] [index=1] [term=1] [log=1,1,2] [commit=2] [vote=1] [knob=value...]
                            members with the next ids, alike: `log` gives the terms of entries after `index`, `term` and
                            `commit` the hard state; knobs are those of RaftConfig. `ids=4` names them
    campaign 1              starts an election at once
    propose 1 a b           entries
    propose-change 1 +5 learner:4 -3 | leave | context:x         (more than one change: joint consensus)
    read-index 1 name | transfer 1 to=2 | report 1 2 unreachable|snapshot-ok|snapshot-failed
    tick 1 [count]          `tick all` goes round the members
    ready 1 [no-write]      one Ready; its writes wait for `persist`
    persist 1 [count]       the oldest writes become durable (default: all)
    messages                what is under way
    deliver [N] [from=1] [to=2] [type=APPEND] [nth=2]   N (default: all) that match, from the nth oldest on
    drop, duplicate         the same
    partition 1,2 | 3       and: cut 1 2 (one way), heal
    stabilize [1 2] [quiet] [no-ticks]              Ready, persist, deliver until nothing is left to do
    crash 1 [kept=2] | restart 1
    again                    another world
    snapshot 1 [index] | compact 1 index
    status [1...] | log [1...] | state [1...]

Entries are written index@term.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from raft_world import Listener, Member, World, Write, entries_of, is_idle

from minikube_py.raft.codec import decode_change
from minikube_py.raft.configuration import Change, ChangeType, ConfChange, Configuration
from minikube_py.raft.message import Entry, EntryKind, HardState, Message, MessageType, SnapshotMeta
from minikube_py.raft.ready import ProposalDropped, ReadState, Ready, UnknownPeer
from minikube_py.raft.status import PeerStatus

RULE = "----"
ROUNDS_MAX = 100


class Block(NamedTuple):
    """`comment` and `commands` as they are in the file; `line` is where the commands begin."""

    comment: str
    commands: str
    expected: str
    line: int


# What things look like


def show_data(entry: Entry) -> str:
    if entry.kind == EntryKind.CHANGE:
        return show_change(decode_change(entry.data))
    return f'"{entry.data.decode()}"' if entry.data else "(empty)"


def show_entry(entry: Entry) -> str:
    return f"{entry.index}@{entry.term} {show_data(entry)}"


def show_change(change: ConfChange) -> str:
    signs = {ChangeType.ADD_VOTER: "+", ChangeType.REMOVE: "-", ChangeType.ADD_LEARNER: "learner:"}
    parts = [f"{signs[ChangeType(one.type)]}{one.node}" for one in change.changes]
    parts += ["leave"] * change.leave_joint + [f"context:{change.context.decode()}"] * bool(change.context)
    return f"({' '.join(parts) or 'nothing'})"


def show_configuration(configuration: Configuration) -> str:
    names = ("voters", "outgoing", "learners", "learners_next")
    parts = [f"{name} {','.join(map(str, sorted(ids)))}" for name, ids in zip(names, configuration) if ids]
    return " ".join(parts + ["auto-leave"] * configuration.auto_leave) or "nobody"


def show_snapshot(meta: SnapshotMeta) -> str:
    return f"{meta.index}@{meta.term} {show_configuration(meta.configuration)}"


class Contexts:
    """Ids of reads are the code's own; a transcript numbers them as they come."""

    def __init__(self) -> None:
        self._known: dict[bytes, str] = {}

    def show(self, context: bytes) -> str:
        if context.isascii() and context.decode().isidentifier():
            return context.decode()
        return self._known.setdefault(context, f"#{len(self._known) + 1}")


def show_message(message: Message, contexts: Contexts) -> str:
    kind = MessageType(message.type)
    head = f"{message.sender}->{message.to} {kind.name} t{message.term}"
    return f"{head}{_show_body(message, kind, contexts)}"


def _show_body(message: Message, kind: MessageType, contexts: Contexts) -> str:
    context = f" {contexts.show(message.context)}" if message.context else ""
    verdict = " refused" if message.reject else " granted"
    match kind:
        case MessageType.PRE_VOTE | MessageType.VOTE:
            return f" last {message.index}@{message.log_term}{context}"
        case MessageType.PRE_VOTE_REPLY | MessageType.VOTE_REPLY:
            return verdict
        case MessageType.APPEND:
            entries = ", ".join(map(show_entry, message.entries))
            return f" after {message.index}@{message.log_term} commit {message.commit} [{entries}]"
        case MessageType.APPEND_REPLY if message.reject:
            return f" refused {message.index}, try {message.hint}@{message.log_term}"
        case MessageType.APPEND_REPLY:
            return f" has {message.index}"
        case MessageType.HEARTBEAT:
            return f" commit {message.commit}{context}"
        case MessageType.SNAPSHOT:
            return f" {show_snapshot(message.snapshot)}" if message.snapshot else ""
        case MessageType.READ_INDEX_REPLY:
            return context + (" refused" if message.reject else f" index {message.index}")
        case MessageType.TRANSFER:
            return f" to {message.hint}"
        case _:
            return context


def show_role(member: Member) -> str:
    raft = member.up
    return f"{raft.role} t{raft.term} vote {raft.vote or '-'} leader {raft.leader or '-'}"


class Script(Listener):
    """One world and the log of what happens in it."""

    def __init__(self) -> None:
        self.world = World(listener=self)
        self._lines: list[str] = []
        self._contexts = Contexts()
        self._roles: dict[int, str] = {}
        self._configurations: dict[int, Configuration] = {}
        self._quiet = False

    def run(self, commands: str) -> str:
        """The log of these commands, one a line."""
        self._lines = []
        for line in commands.splitlines():
            name, *words = line.split("#")[0].split()
            options = dict(word.split("=", 1) for word in words if "=" in word)
            plain = [word for word in words if "=" not in word]
            method = getattr(self, "do_" + name.replace("-", "_"), None)
            if method is None:
                raise ValueError(f"no such command: {name}")
            method(plain, options)
        return "\n".join(self._lines) or "ok"

    # What is printed

    def say(self, line: str) -> None:
        if not self._quiet:
            self._lines.append(line)

    def show(self, message: Message) -> str:
        return show_message(message, self._contexts)

    def changed(self, id: int) -> None:
        """What a member has become since it was last looked at."""
        member = self.world.members[id]
        if member.raft is None:
            return
        role = show_role(member)
        if self._roles.get(id) != role:
            self._roles[id] = role
            self.say(f"  {id} is {role}")
        configuration = member.up.configuration
        if self._configurations.get(id) != configuration:
            self._configurations[id] = configuration
            self.say(f"  {id} goes by: {show_configuration(configuration)}")

    def handed(self, member: Member, ready: Ready) -> None:
        if not is_idle(ready):
            self.say(f"> {member.id} ready")
        for message in ready.messages:
            self.say(f"  send {self.show(message)}")
        if ready.snapshot is not None:
            self.say(f"  install snapshot {show_snapshot(ready.snapshot)}")
        if ready.hard_state is not None:
            term, vote, commit = ready.hard_state
            self.say(f"  write hard state t{term} vote {vote or '-'} commit {commit}")
        if ready.entries:
            self.say(f"  write {', '.join(map(show_entry, ready.entries))}")
        for message in ready.messages_after:
            self.say(f"  then send {self.show(message)}")
        if ready.committed:
            self.say(f"  apply {', '.join(map(show_entry, ready.committed))}")
        for state in ready.read_states:
            self.say(f"  {self._show_read(state)}")

    def sent(self, member: Member, message: Message, *, after: bool) -> None:
        if (message.sender, message.to) in self.world.cut:
            self.say(f"  (lost: {self.show(message)})")

    def _show_read(self, state: ReadState) -> str:
        answer = "cannot be served" if state.index is None else f"may be served at {state.index}"
        return f"read {self._contexts.show(state.context)} {answer}"

    # Commands: members

    def do_add_nodes(self, words: Sequence[str], options: dict[str, str]) -> None:
        first = max(self.world.members, default=0) + 1
        ids = _ids(options.pop("ids", "")) or list(range(first, first + int(words[0])))
        configuration = Configuration(
            frozenset(_ids(options.pop("voters", ",".join(map(str, ids))))),
            learners=frozenset(_ids(options.pop("learners", ""))),
        )
        index = int(options.pop("index", 0))
        terms = _ids(options.pop("log", ""))
        base = int(options.pop("base", 1 if index else 0))
        entries = [Entry(term, index + n, f"e{index + n}".encode()) for n, term in enumerate(terms, start=1)]
        last = terms[-1] if terms else base
        hard_state = HardState(
            int(options.pop("term", last)), int(options.pop("vote", 0)), int(options.pop("commit", index))
        )
        knobs = {name.replace("-", "_"): _knob(value) for name, value in options.items()}
        for id in ids:
            self.world.add(id, configuration, index=index, term=base, entries=entries, hard_state=hard_state, **knobs)
            self.changed(id)

    def do_anew(self, words: Sequence[str], options: dict[str, str]) -> None:
        self.__init__()  # type: ignore[misc]  # a new world, of which nothing is known

    def do_crash(self, words: Sequence[str], options: dict[str, str]) -> None:
        id = int(words[0])
        kept, lost = int(options.get("kept", 0)), self.world.unsynced(id)
        self.world.crash(id, kept)
        self._roles.pop(id, None)
        self.say(f"> {id} crashes, {max(0, lost - kept)} of {lost} records written and not durable are lost")

    def do_restart(self, words: Sequence[str], options: dict[str, str]) -> None:
        self.world.restart(int(words[0]))
        self.say(f"> {words[0]} restarts")
        self.changed(int(words[0]))

    # Commands to one member

    def _ask(self, id: int, what: Callable[[], object]) -> None:
        try:
            what()
        except (ProposalDropped, UnknownPeer, ValueError) as error:
            hint = f" (ask {error.leader})" if isinstance(error, ProposalDropped) and error.leader else ""
            self.say(f"  {type(error).__name__}: {error}{hint}")
        self.changed(id)

    def do_campaign(self, words: Sequence[str], options: dict[str, str]) -> None:
        self._ask(int(words[0]), lambda: self.world.campaign(int(words[0])))

    def do_propose(self, words: Sequence[str], options: dict[str, str]) -> None:
        id = int(words[0])
        for word in words[1:]:
            self._ask(id, lambda word=word: self.world.call(id, lambda raft: raft.propose(word.encode())))

    def do_propose_change(self, words: Sequence[str], options: dict[str, str]) -> None:
        id = int(words[0])
        change = parse_change(words[1:])
        self._ask(id, lambda: self.world.call(id, lambda raft: raft.propose_change(change)))

    def do_read_index(self, words: Sequence[str], options: dict[str, str]) -> None:
        self._ask(int(words[0]), lambda: self.world.read_index(int(words[0]), words[1].encode()))

    def do_transfer(self, words: Sequence[str], options: dict[str, str]) -> None:
        id, to = int(words[0]), int(options["to"])
        self._ask(id, lambda: self.world.call(id, lambda raft: raft.transfer(to)))

    def do_report(self, words: Sequence[str], options: dict[str, str]) -> None:
        id, to, what = int(words[0]), int(words[1]), words[2]
        reachable = what != "unreachable"
        snapshot = {"snapshot-ok": True, "snapshot-failed": False}.get(what)
        self._ask(id, lambda: self.world.call(id, lambda raft: raft.report(to, reachable, snapshot=snapshot)))

    def do_tick(self, words: Sequence[str], options: dict[str, str]) -> None:
        for _ in range(int(words[1]) if len(words) > 1 else 1):
            for id in self._which(words[:1]):
                self.world.tick(id)
                self.changed(id)

    # Commands: the driver

    def do_ready(self, words: Sequence[str], options: dict[str, str]) -> None:
        id = int(words[0])
        before = len(self._lines)
        self.world.turn(id, can_write="no-write" not in words)
        if len(self._lines) == before:
            self.say(f"> {id} has nothing to do")
        self.changed(id)

    def do_persist(self, words: Sequence[str], options: dict[str, str]) -> None:
        id = int(words[0])
        pending = self.world.members[id].disk.pending
        for _ in range(int(words[1]) if len(words) > 1 else len(pending)):
            for message in self._persist(id).messages:
                self.say(f"  sends {self.show(message)}")
            self.changed(id)

    def _persist(self, id: int) -> Write:
        write = self.world.sync(id)
        self.say(f"> {id} persisted t{write.term} index {write.index}")
        return write

    def do_snapshot(self, words: Sequence[str], options: dict[str, str]) -> None:
        id = int(words[0])
        index = int(words[1]) if len(words) > 1 else None
        meta = self.world.take_snapshot(id, index, compact=self.world[id].log.offset)
        self.say(f"  snapshot {show_snapshot(meta)}")

    def do_compact(self, words: Sequence[str], options: dict[str, str]) -> None:
        id, index = int(words[0]), int(words[1])
        self._ask(id, lambda: self.world.call(id, lambda raft: raft.compact(index)))
        self.say(f"  {id}'s log begins after {self.world[id].log.offset}")

    # Commands: links

    def _matching(self, words: Sequence[str], options: dict[str, str]) -> Iterator[int]:
        """Positions of what is under way now and matches, corrected for those taken out meanwhile."""
        skip = int(options.pop("nth", 1)) - 1
        matching = []
        for envelope in self.world.links:
            message = envelope.message
            wanted = {"from": message.sender, "to": message.to, "type": MessageType(message.type).name}
            if all(str(wanted[key]) == value for key, value in options.items()):
                matching.append(envelope)
        for envelope in matching[skip : skip + int(words[0]) if words else None]:
            yield next(n for n, one in enumerate(self.world.links) if one is envelope)

    def do_messages(self, words: Sequence[str], options: dict[str, str]) -> None:
        for envelope in self.world.links:
            self.say(f"  {self.show(envelope.message)}")
        if not self.world.links:
            self.say("  nothing is under way")

    def _deliver(self, position: int, *, keep: bool = False) -> None:
        message = self.world.links[position].message
        self.say(f"{self.show(message)}{'' if self.world.members[message.to].raft else ' (it is down)'}")
        self.world.deliver(position, keep=keep)
        self.changed(message.to)

    def do_deliver(self, words: Sequence[str], options: dict[str, str]) -> None:
        for position in self._matching(words, options):
            self._deliver(position)

    def do_duplicate(self, words: Sequence[str], options: dict[str, str]) -> None:
        for position in self._matching(words, options):
            self._deliver(position, keep=True)

    def do_drop(self, words: Sequence[str], options: dict[str, str]) -> None:
        for position in self._matching(words, options):
            self.say(f"lost: {self.show(self.world.drop(position))}")

    def do_partition(self, words: Sequence[str], options: dict[str, str]) -> None:
        self.world.partition(*(_ids(group) for group in "".join(words).split("|")))

    def do_cut(self, words: Sequence[str], options: dict[str, str]) -> None:
        self.world.cut_off(int(words[0]), int(words[1]))

    def do_heal(self, words: Sequence[str], options: dict[str, str]) -> None:
        self.world.heal()

    def do_stabilize(self, words: Sequence[str], options: dict[str, str]) -> None:
        self._quiet = "quiet" in words
        ids = self._which([word for word in words if word != "quiet"])
        for _ in range(ROUNDS_MAX):
            if not self._round(ids):
                break
        else:
            raise AssertionError(f"not stable after {ROUNDS_MAX} rounds")
        self._quiet = False

    def _round(self, ids: Sequence[int]) -> bool:
        busy = False
        for id in ids:
            if self.world.members[id].raft is None:
                continue
            busy = not is_idle(self.world.turn(id)) or busy
            self.changed(id)
            while self.world.members[id].disk.pending:
                self._persist(id)
                self.changed(id)
                busy = True
        for envelope in list(self.world.links):
            position = next((n for n, one in enumerate(self.world.links) if one is envelope), None)
            if envelope.message.to in ids and position is not None:
                self._deliver(position)
                busy = True
        return busy

    # Commands: looking

    def _which(self, words: Sequence[str]) -> list[int]:
        if not words or words == ["all"]:
            return [member.id for member in self.world.up()]
        return [int(word) for word in words]

    def do_status(self, words: Sequence[str], options: dict[str, str]) -> None:
        for id in self._which(words):
            member = self.world.members[id]
            raft = member.up
            log = raft.log
            self.say(
                f"{id}: {show_role(member)} log {log.offset}..{log.last_index}@{log.last_term}"
                f" stable {log.stable} commit {log.committed} applied {log.applied}"
            )
            for peer in raft.status().peers if raft.role == "LEADER" else ():
                self.say(f"  {show_peer(peer)}")

    def do_log(self, words: Sequence[str], options: dict[str, str]) -> None:
        for id in self._which(words):
            self.say(f"{id}: {', '.join(map(show_entry, entries_of(self.world[id]))) or '(empty)'}")

    def do_state(self, words: Sequence[str], options: dict[str, str]) -> None:
        for id in self._which(words):
            data = [entry.data.decode() for entry in self.world.members[id].state if entry.kind == EntryKind.NORMAL]
            self.say(f"{id}: {' '.join(filter(None, data)) or '(nothing)'}")


def show_peer(peer: PeerStatus) -> str:
    notes = [
        "" if peer.active else "not heard of",
        "learner" if peer.learner else "",
        f"{peer.inflight_messages} in flight" if peer.inflight_messages else "",
        f"snapshot {peer.snapshot_index} under way" if peer.snapshot_index else "",
    ]
    return ", ".join(filter(None, (f"{peer.id}: {peer.state} match {peer.match} next {peer.next}", *notes)))


def parse_change(words: Iterable[str]) -> ConfChange:
    changes: list[Change] = []
    leave, context = False, b""
    for word in words:
        if word == "leave":
            leave = True
        elif word.startswith("context:"):
            context = word.removeprefix("context:").encode()
        elif word.startswith("learner:"):
            changes.append(Change(ChangeType.ADD_LEARNER, int(word.removeprefix("learner:"))))
        else:
            kind = {"+": ChangeType.ADD_VOTER, "-": ChangeType.REMOVE}[word[0]]
            changes.append(Change(kind, int(word[1:])))
    return ConfChange(tuple(changes), leave, context)


def _ids(text: str) -> list[int]:
    return [int(part) for part in text.split(",") if part]


def _knob(value: str) -> object:
    return {"on": True, "off": False}[value] if value in ("on", "off") else int(value)


# Files


def read_blocks(text: str) -> list[Block]:
    """Raises: ValueError for commands without a rule after them."""
    blocks: list[Block] = []
    lines = text.splitlines()
    position = 0
    while position < len(lines):
        comment, commands = [], []
        while position < len(lines) and (not lines[position] or lines[position].startswith("#")):
            comment.append(lines[position])
            position += 1
        first = position + 1
        while position < len(lines) and lines[position] != RULE:
            commands.append(lines[position])
            position += 1
        if position == len(lines):
            if commands:
                raise ValueError(f"line {first}: commands without {RULE} after them")
            break
        end = next((n for n in range(position, len(lines)) if not lines[n]), len(lines))
        blocks.append(Block("\n".join(comment), "\n".join(commands), "\n".join(lines[position + 1 : end]), first))
        position = end
    return blocks


def rewrite(text: str) -> str:
    """The same transcript with what the code does now."""
    script = Script()
    parts = []
    for block in read_blocks(text):
        actual = script.run(block.commands)
        parts.append("\n".join(filter(None, (block.comment.strip("\n"), block.commands, RULE, actual))))
    return "\n\n".join(parts) + "\n"


def main(arguments: Sequence[str]) -> int:
    if len(arguments) < 2 or arguments[0] != "--rewrite":
        print("usage: python tests/support/raft_script.py --rewrite FILE...", file=sys.stderr)
        return 2
    for name in arguments[1:]:
        path = Path(name)
        path.write_text(rewrite(path.read_text()))
        print(f"{name}: written; read it before it is committed")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

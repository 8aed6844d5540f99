"""The leader's side of replication: each peer's progress, its next messages, and the resulting commits (Raft, 5.3,
5.4.2; the thesis, 10.2 for pipelining)."""

from __future__ import annotations

from collections.abc import Sequence

from minikube_py.raft import quorum
from minikube_py.raft.configuration import NodeId
from minikube_py.raft.message import Entry, LogIndex, Message, MessageType
from minikube_py.raft.progress import Inflights, Progress, ProgressState
from minikube_py.raft.ready import ClaimRefused
from minikube_py.raft.state import State

Cuts = dict[LogIndex, tuple[Sequence[Entry], int]]


class Replication:
    """`peers`: all other members that receive the log, by id. `alone`: this member is the only voter.
    `snapshot_wanted`: a peer needs a newer snapshot."""

    __slots__ = ("_state", "alone", "peers", "snapshot_wanted")

    def __init__(self, state: State) -> None:
        self._state = state
        self.peers: dict[NodeId, Progress] = {}
        self.alone = False
        self.snapshot_wanted = False
        self.configure(active=False)

    def configure(self, *, active: bool = True) -> None:
        """Applies the current configuration: adds new peers, removes old ones. `active`: new ones count as heard from,
        so that the quorum does not fail before they had time to answer."""
        state = self._state
        before = self.peers
        self.peers = {}
        self.alone = state.configuration.voters == {state.id} and not state.configuration.joint
        for node in state.configuration.members():
            if node != state.id:
                self.peers[node] = before.get(node) or self._unknown(active)
        for node, progress in before.items():
            if node not in self.peers:
                # Its last message: that it was removed.
                self._poke(node, progress)

    def replicate(self) -> None:
        """Sends each peer the entries it lacks among those handed out for writing, within its flow control; or, if no
        entries are about to follow, the commit index."""
        log = self._state.log
        commit_alone = log.handed == log.last_index
        # Most peers are at the same index, and share the list.
        cuts: Cuts = {}
        for node, progress in self.peers.items():
            while not progress.paused and self._send_next(node, progress, cuts, commit_alone):
                pass

    def tell_commit(self) -> None:
        """Sends the commit index to all peers that are up to date, before this leader steps down."""
        for node, progress in self.peers.items():
            self._poke(node, progress)

    def replied(self, message: Message) -> bool:
        """Handles an APPEND_REPLY; True if it may commit more. Raises: ClaimRefused."""
        log = self._state.log
        progress = self.peers[message.sender]
        if not message.reject and message.index > log.last_index:
            raise ClaimRefused(
                f"node {message.sender:x} acknowledges entry {message.index}; the leader's log ends at {log.last_index}"
            )
        progress.active = True
        if message.reject:
            may_agree = LogIndex(message.hint)
            if message.log_term:
                may_agree = log.agreement(may_agree, message.log_term)[0]
            progress.refused(message.index, may_agree)
            return False
        advanced = progress.acknowledged(message.index)
        state = progress.state
        if (state is ProgressState.PROBE and message.index == progress.match) or (
            state is ProgressState.SNAPSHOT and advanced and progress.match >= log.offset
        ):
            progress.replicate()
        return advanced

    def heartbeat(self, context: bytes, *, tick: bool) -> None:
        """`tick`: by the clock, not only for a read; peers without progress get a message they must answer."""
        state = self._state
        committed = state.log.committed
        for node, progress in self.peers.items():
            state.send(MessageType.HEARTBEAT, node, commit=min(progress.match, committed), context=context)
            if tick:
                progress.quiet = True
                if progress.state is ProgressState.SNAPSHOT:
                    progress.snapshot_ticks += state.config.heartbeat_ticks
                    if progress.snapshot_ticks >= state.config.snapshot_ticks:
                        progress.snapshot_ended(False)

    def heartbeat_answered(self, node: NodeId) -> None:
        """A peer lives. Without progress since the last heartbeat, messages may be lost: send one that it must
        answer."""
        progress = self.peers[node]
        progress.active = True
        if not progress.quiet:
            return
        progress.quiet = False
        if progress.state is ProgressState.PROBE:
            progress.waiting = False
        elif progress.match < self._state.log.handed:
            self._poke(node, progress)

    def report(self, node: NodeId, reachable: bool, snapshot: bool | None) -> None:
        """What the driver learned about a peer by other means."""
        progress = self.peers.get(node)
        if progress is None:
            return
        if progress.state is ProgressState.SNAPSHOT:
            if snapshot is not None or not reachable:
                progress.snapshot_ended(bool(snapshot))
            else:
                progress.snapshot_ticks = 0
        elif not reachable and progress.state is ProgressState.REPLICATE:
            progress.probe()

    def quorum_active(self) -> bool:
        """Whether a majority was heard from since the last call."""
        heard = [self._state.id]
        for node, progress in self.peers.items():
            if progress.active:
                heard.append(node)
            progress.recent, progress.active = progress.active, False
        return quorum.has_majority(self._state.configuration, heard)

    def agreed(self) -> LogIndex:
        """The last index that a majority has durably; this leader counts with its own disk."""
        state = self._state
        if self.alone:
            return state.log.stable
        match = {node: progress.match for node, progress in self.peers.items()}
        match[state.id] = state.log.stable
        return quorum.committed_index(state.configuration, match)

    def _unknown(self, active: bool) -> Progress:
        config = self._state.config
        inflights = Inflights(config.inflight_messages_max, config.inflight_bytes_max)
        return Progress(LogIndex(self._state.log.last_index + 1), inflights, active)

    def _send_next(self, node: NodeId, progress: Progress, cuts: Cuts, commit_alone: bool) -> bool:
        """Sends one message to a peer if permitted. False: there is nothing to send."""
        log = self._state.log
        before = LogIndex(progress.next - 1)
        if before < log.offset:
            return self._send_snapshot(node, progress)
        if before < log.handed:
            cut = cuts.get(before)
            if cut is None:
                cut = cuts[before] = log.cut(before, log.handed, self._state.config.append_bytes_max)
            entries, size_bytes = cut
            self._append(node, progress, before, entries)
            progress.sent(entries[-1].index, size_bytes)
            return True
        if before > log.handed:
            return False
        if progress.state is ProgressState.PROBE:
            if progress.match == before:
                return False
            progress.waiting = True
        elif not commit_alone or min(log.committed, before) <= progress.commit_sent:
            return False
        self._append(node, progress, before, ())
        return True

    def _poke(self, node: NodeId, progress: Progress) -> None:
        """An append without entries, even to a peer whose window is full."""
        if progress.state is ProgressState.REPLICATE:
            if progress.next > self._state.log.offset:
                self._append(node, progress, LogIndex(progress.next - 1), ())
            else:
                progress.probe()

    def _append(self, node: NodeId, progress: Progress, before: LogIndex, entries: Sequence[Entry]) -> None:
        state = self._state
        log = state.log
        last = LogIndex(before + len(entries))
        progress.commit_sent = max(progress.commit_sent, min(log.committed, last))
        state.messages.append(Message(
            MessageType.APPEND, state.id, node, state.term, log.term(before), before, log.committed, entries
        ))

    def _send_snapshot(self, node: NodeId, progress: Progress) -> bool:
        state = self._state
        meta = state.latest_snapshot
        if not progress.active:
            # The peer seems unreachable, and a snapshot is too expensive to send in vain.
            return False
        if meta is None or meta.index < state.log.offset or not meta.configuration.contains(node):
            self.snapshot_wanted = True
            return False
        progress.send_snapshot(meta.index)
        state.send(MessageType.SNAPSHOT, node, snapshot=meta)
        return True

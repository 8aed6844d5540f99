"""A leader's view of a peer's log, and its flow control (the thesis, 10.2)."""

from __future__ import annotations

from collections import deque
from enum import Enum

from minikube_py.raft.message import LogIndex

NONE = LogIndex(0)


class ProgressState(Enum):
    """PROBE: the matching index is unknown; one message at a time. REPLICATE: it is known; messages are pipelined.
    SNAPSHOT: the peer needs compacted entries; nothing is sent until it has the snapshot."""

    PROBE = "probe"
    REPLICATE = "replicate"
    SNAPSHOT = "snapshot"


class Inflights:
    """Unacknowledged messages, oldest first, bounded in number and in bytes (a single one may exceed the bound)."""

    __slots__ = ("_messages", "bytes_max", "messages_max", "size_bytes")

    def __init__(self, messages_max: int, bytes_max: int) -> None:
        self.messages_max = messages_max
        self.bytes_max = bytes_max
        self.size_bytes = 0
        self._messages: deque[tuple[LogIndex, int]] = deque()

    def __len__(self) -> int:
        return len(self._messages)

    @property
    def full(self) -> bool:
        return len(self._messages) >= self.messages_max or self.size_bytes >= self.bytes_max

    def add(self, last: LogIndex, size_bytes: int) -> None:
        """A message whose last entry is `last`, above those before."""
        assert not self.full, "a message was sent beyond the limit"
        self._messages.append((last, size_bytes))
        self.size_bytes += size_bytes

    def free_to(self, index: LogIndex) -> None:
        """The peer has everything up to `index`."""
        messages = self._messages
        while messages and messages[0][0] <= index:
            self.size_bytes -= messages.popleft()[1]

    def clear(self) -> None:
        self._messages.clear()
        self.size_bytes = 0


class Progress:
    """One peer. Always match < next: up to `match` the logs are known to match and to be durable there, `next` is the
    first entry to send.

    `commit_sent`: the highest commit index sent. `waiting`: a probe is out. `active`: it was heard from since the last
    quorum check; `recent`: before that, since the check before, or nothing is known yet. `quiet`: no progress since the
    last heartbeat. `snapshot_index`: of the snapshot being sent."""

    __slots__ = (
        "active",
        "commit_sent",
        "inflights",
        "match",
        "next",
        "quiet",
        "recent",
        "snapshot_index",
        "snapshot_ticks",
        "state",
        "waiting",
    )

    def __init__(self, next_index: LogIndex, inflights: Inflights, active: bool = False) -> None:
        self.match = NONE
        self.next = next_index
        self.state = ProgressState.PROBE
        self.inflights = inflights
        self.active = active
        self.recent = True
        self.waiting = self.quiet = False
        self.commit_sent = self.snapshot_index = NONE
        self.snapshot_ticks = 0

    @property
    def paused(self) -> bool:
        if self.state is ProgressState.REPLICATE:
            return self.inflights.full
        return self.waiting or self.state is ProgressState.SNAPSHOT

    def sent(self, last: LogIndex, size_bytes: int) -> None:
        """Entries up to `last` are in flight; when replicating, more may follow at once."""
        if self.state is ProgressState.REPLICATE:
            self.next = LogIndex(last + 1)
            self.inflights.add(last, size_bytes)
        else:
            self.waiting = True

    def acknowledged(self, index: LogIndex) -> bool:
        """The peer has everything up to `index`. False: that was known."""
        self.inflights.free_to(index)
        if index <= self.match:
            return False
        self.match = index
        self.next = max(self.next, LogIndex(index + 1))
        self.waiting = self.quiet = False
        return True

    def refused(self, index: LogIndex, may_agree: LogIndex) -> bool:
        """The peer does not have the leader's entry `index`; up to `may_agree` it may. False: a stale answer."""
        if self.state is ProgressState.REPLICATE:
            if index <= self.match:
                return False
            self.probe()
            return True
        if self.state is ProgressState.SNAPSHOT or index != self.next - 1:
            return False
        self.next = max(min(index, LogIndex(may_agree + 1)), LogIndex(self.match + 1))
        self.waiting = False
        self.commit_sent = min(self.commit_sent, LogIndex(self.next - 1))
        return True

    def probe(self) -> None:
        """Returns to one message at a time. `snapshot_index` tells whether a snapshot in progress counts as
        received."""
        after = self.snapshot_index if self.state is ProgressState.SNAPSHOT else NONE
        self._reset(ProgressState.PROBE)
        self.next = LogIndex(max(self.match, after) + 1)
        self.commit_sent = min(self.commit_sent, self.match)

    def replicate(self) -> None:
        self._reset(ProgressState.REPLICATE)
        self.next = LogIndex(self.match + 1)

    def send_snapshot(self, index: LogIndex) -> None:
        self._reset(ProgressState.SNAPSHOT)
        self.snapshot_index = index

    def snapshot_ended(self, well: bool) -> None:
        """The peer has the snapshot, or will not get it. Either way wait for its next message or a heartbeat."""
        if not well:
            self.snapshot_index = NONE
        self.probe()
        self.waiting = True

    def _reset(self, state: ProgressState) -> None:
        self.state = state
        self.waiting = self.quiet = False
        self.snapshot_index = NONE
        self.snapshot_ticks = 0
        self.inflights.clear()

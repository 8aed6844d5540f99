"""Linearizable reads without writing to the log (Raft, 8; the thesis, 6.4)."""

from __future__ import annotations

from typing import NamedTuple

from minikube_py.raft import quorum
from minikube_py.raft.configuration import Configuration, NodeId
from minikube_py.raft.message import LogIndex
from minikube_py.raft.ready import ReadState

ID_BYTES = 8


class Read(NamedTuple):
    """`asker` waits for the index from which a read under `context` is safe."""

    asker: NodeId
    context: bytes


class Round(NamedTuple):
    """Reads confirmed at `index` by a majority's answers to heartbeat `id` or any later one."""

    id: LogIndex
    index: LogIndex  # type: ignore[assignment]  # hides tuple.index
    reads: list[Read]


class LeaderReads:
    """The leader's side. Heartbeats carry an id that grows with each; reads are safe at the index committed when their
    round began, once a majority answered that id or a later one: it still followed this leader then. At most one round
    is in progress; reads that arrive meanwhile form the next.

    Ids are never reused, so an answer to an abandoned attempt confirms only reads begun before it (etcd#20418). They
    restart with each leadership; a reply of another term never gets here."""

    __slots__ = ("_answered", "_own", "_round", "last_id", "waiting")

    def __init__(self, own: NodeId) -> None:
        self._own = own
        self._answered: dict[NodeId, LogIndex] = {}
        self._round: Round | None = None
        self.last_id = LogIndex(0)
        self.waiting: list[Read] = []

    def __len__(self) -> int:
        return len(self.waiting) + (len(self._round.reads) if self._round else 0)

    @property
    def under_way(self) -> bool:
        return self._round is not None

    def begin(self, commit: LogIndex) -> bytes | None:
        """The id of a new round for the waiting reads, or None: one is in progress."""
        if self._round is not None:
            return None
        context = self.fresh()
        self._round = Round(self.last_id, commit, self.waiting)
        self.waiting = []
        return context

    def fresh(self) -> bytes:
        """A new id, for a heartbeat."""
        self.last_id = LogIndex(self.last_id + 1)
        return self.last_id.to_bytes(ID_BYTES, "big")

    def answered(self, node: NodeId, context: bytes) -> None:
        """`node` answered the heartbeat with this id; ignores an id never issued."""
        if len(context) == ID_BYTES:
            number = LogIndex(int.from_bytes(context, "big"))
            if self._answered.get(node, 0) < number <= self.last_id:
                self._answered[node] = number

    def confirmed(self, configuration: Configuration) -> LogIndex:
        """The latest id that a majority has answered."""
        return quorum.committed_index(configuration, {**self._answered, self._own: self.last_id})

    def release(self, configuration: Configuration) -> Round | None:
        """The current round, removed if it is confirmed."""
        done = self._round
        if done is None or self.confirmed(configuration) < done.id:
            return None
        self._round = None
        return done

    def all(self) -> list[Read]:
        """All reads without an answer, oldest first."""
        return [*(self._round.reads if self._round else ()), *self.waiting]


class ForwardedReads:
    """The follower's side: its unanswered requests to the leader.

    Each request has an id never used by another member or an earlier run of this one: `prefix` is drawn at random at
    the start. So a late answer to an old request is never mistaken for one to a new request."""

    __slots__ = ("_asked", "_number", "_prefix", "_waiting")

    def __init__(self, prefix: bytes) -> None:
        self._prefix = prefix
        self._number = 0
        self._waiting: list[bytes] = []
        self._asked: dict[bytes, tuple[int, list[bytes]]] = {}

    def __len__(self) -> int:
        return len(self._waiting) + sum(len(contexts) for _, contexts in self._asked.values())

    def add(self, context: bytes) -> None:
        self._waiting.append(context)

    def ask(self, ticks: int) -> bytes | None:
        """The id of one request for all waiting reads, which expires after a number of ticks; None: none wait."""
        if not self._waiting:
            return None
        self._number += 1
        question = self._prefix + self._number.to_bytes(ID_BYTES, "big")
        self._asked[question] = (ticks, self._waiting)
        self._waiting = []
        return question

    def answered(self, question: bytes, index: LogIndex | None) -> list[ReadState]:
        _, contexts = self._asked.pop(question, (0, []))
        return [ReadState(index, context) for context in contexts]

    def tick(self) -> list[ReadState]:
        """The requests that expire now."""
        if not self._asked:
            return []
        left = self._asked
        self._asked = {question: (ticks - 1, contexts) for question, (ticks, contexts) in left.items() if ticks > 1}
        return [
            ReadState(None, context) for ticks, contexts in left.values() if ticks <= 1 for context in contexts
        ]

    def give_up(self) -> list[ReadState]:
        """The leader changed or is lost: no request will be answered."""
        contexts = [context for _, asked in self._asked.values() for context in asked] + self._waiting
        self._asked, self._waiting = {}, []
        return [ReadState(None, context) for context in contexts]

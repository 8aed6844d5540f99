"""Linearizable reads without writing to the log (Raft, 8; the thesis, 6.4)."""

from __future__ import annotations

from typing import NamedTuple

from minikube_py.raft import quorum
from minikube_py.raft.configuration import Configuration, NodeId
from minikube_py.raft.message import LogIndex
from minikube_py.raft.ready import ReadState

ID_BYTES = 8


class Read(NamedTuple):
    """`asker` wants to know from where on a read under `context` is safe."""

    asker: NodeId
    context: bytes


class Round(NamedTuple):
    """Reads that a majority's answers to heartbeat `id`, or any later one, confirm at `index`."""

    id: LogIndex
    index: LogIndex  # type: ignore[assignment]  # hides tuple.index
    reads: list[Read]


class LeaderReads:
    """The leader's side. Heartbeats carry an id that grows with each; reads are safe at the index that was committed
    when their round began, once a majority answered an id not below the round's: it still followed this leader then.
    One round is under way at most; what comes meanwhile is the next.

    Ids are never used twice, so an answer to an attempt that was given up confirms only what began before it
    (etcd#20418). They start again with each leadership; a reply of another term never gets here.
    """

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
        """The id of a new round for the reads that wait, or None: one is under way."""
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
        """`node` answered the heartbeat with this id; one that was never given out says nothing."""
        if len(context) == ID_BYTES:
            number = LogIndex(int.from_bytes(context, "big"))
            if self._answered.get(node, 0) < number <= self.last_id:
                self._answered[node] = number

    def confirmed(self, configuration: Configuration) -> LogIndex:
        """The latest id that a majority has answered."""
        return quorum.committed_index(configuration, {**self._answered, self._own: self.last_id})

    def release(self, configuration: Configuration) -> Round | None:
        """The round under way, taken off if it is confirmed."""
        done = self._round
        if done is None or self.confirmed(configuration) < done.id:
            return None
        self._round = None
        return done

    def all(self) -> list[Read]:
        """All that have no answer yet, oldest first."""
        return [*(self._round.reads if self._round else ()), *self.waiting]


class ForwardedReads:
    """A follower's side: what it asked the leader for and has no answer to.

    Each question has an id that no other member, and no earlier life of this one, ever used: `prefix` is drawn at
    random at its start. A late answer to an old question is thereby never taken for one to a new.
    """

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
        """The id of one question for all that wait, which is given up after so many ticks; None: none wait."""
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
        """What is given up now."""
        if not self._asked:
            return []
        left = self._asked
        self._asked = {question: (ticks - 1, contexts) for question, (ticks, contexts) in left.items() if ticks > 1}
        return [
            ReadState(None, context) for ticks, contexts in left.values() if ticks <= 1 for context in contexts
        ]

    def give_up(self) -> list[ReadState]:
        """There is another leader, or none: none of the questions will be answered."""
        contexts = [context for _, asked in self._asked.values() for context in asked] + self._waiting
        self._asked, self._waiting = {}, []
        return [ReadState(None, context) for context in contexts]

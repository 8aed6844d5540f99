"""Compares the members' contents with each other and with the answers to clients.

During a run: at most one leader per term, and one log up to the commit index (Raft, 5.2 to 5.4). Afterwards: equal
states at equal revisions on every member, with everything that was acknowledged."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from minikube_py.mvcc.types import KeyValue
from minikube_py.sim.checkers.model import ANY_KEY
from minikube_py.sim.checkers.transactions import Checked
from minikube_py.sim.checkers.verdict import OK, Verdict, violation


class LogEnd(NamedTuple):
    """A voter's log as (term, index) of its last entry: `durable`, after a power loss now; `now`, currently. `has`,
    `keeps`: whether the entry in question is in it now, and after a power loss."""

    durable: tuple[int, int]
    now: tuple[int, int]
    has: bool
    keeps: bool


class Agreement:
    """Called by the observer of the members of one cluster, step by step; `problem` is the first violation."""

    def __init__(self) -> None:
        self.problem = ""
        self.leaders: dict[int, int] = {}
        """The leader of each term."""
        self._entries: dict[int, tuple[int, int, int]] = {}
        self._known_in: dict[int, int] = {}
        """The latest term with a leader when an entry was first seen as committed."""
        self._commits: dict[int, int] = {}
        self._terms: dict[int, int] = {}
        self._revisions: dict[int, tuple[int, int]] = {}
        self._promised: dict[int, int] = {}
        self._votes: dict[tuple[int, int], int] = {}

    def leads(self, member: int, term: int, terms: Mapping[int, int] | None = None) -> None:
        """`member` becomes leader of `term`. `terms`: of the entries in its log, by index, from its snapshot on."""
        other = self.leaders.setdefault(term, member)
        if other != member:
            self._fail(f"election safety: members {other:x} and {member:x} both lead term {term}")
        oldest = min(terms, default=0) if terms else 0
        for index, (committed, _, holder) in self._entries.items() if terms else ():
            found = terms.get(index) if terms else None
            # Votes may have been in flight for long: only leaders of later terms must have it.
            if index >= oldest and found != committed and self._known_in[index] < term:
                what = "does not have it" if found is None else f"has one of term {found} in its place"
                self._fail(
                    f"leader completeness: entry {index} of term {committed} is committed on {holder:x}; member "
                    f"{member:x} leads term {term} and {what}"
                )

    def believes(self, member: int, refused: Collection[str]) -> None:
        """Simulated members say what is: none may refuse what another says."""
        if refused:
            self._fail(f"member {member:x} disbelieves: {'; '.join(refused)}")

    def committed(self, member: int, index: int, term: int, digest: int) -> None:
        """`member` holds an entry of `term` and content `digest` as committed at `index`."""
        known = self._entries.setdefault(index, (term, digest, member))
        self._known_in.setdefault(index, max(self.leaders, default=term))
        if known[:2] != (term, digest):
            self._fail(
                f"state machine safety: entry {index} was committed with term {known[0]} on member {known[2]:x}, with "
                f"term {term} on {member:x}"
                + ("" if known[0] != term else ", and other content")
            )

    def decides(
        self, leader: int, index: int, term: int, logs: Mapping[int, LogEnd], groups: Sequence[Collection[int]]
    ) -> None:
        """`leader` counts an entry as committed. From then on no member without it may become leader, whichever lose
        power: a majority of each of `groups` must refuse them their votes. `logs`: of the voters with intact data.

        Source: Raft, 5.4.2, whose figure 8 shows that counting alone is not enough."""
        without = [(candidate, log.now) for candidate, log in logs.items() if not log.has]
        without += [(candidate, log.durable) for candidate, log in logs.items() if not log.keeps]
        for candidate, last in without:
            willing = {voter for voter, other in logs.items() if other.durable <= last}
            if all(len(willing & set(group)) > len(group) // 2 for group in groups):
                self._fail(
                    f"member {leader:x} counts entry {index} of term {term} as committed, though {candidate:x} can "
                    f"still be elected without it, by {sorted(f'{voter:x}' for voter in willing)}"
                )

    def counts(self, leader: int, term: int, index: int, entry_term: int) -> None:
        """`leader`, which leads `term`, has found by counting that everything up to `index` is committed.

        Source: Raft, 5.4.2: only entries of the leader's own term are committed by counting."""
        if entry_term != term:
            self._fail(
                f"member {leader:x} leads term {term} and counts entry {index} of term {entry_term} as committed: one "
                "with an entry of a term in between may still be elected without it"
            )

    def applied(self, member: int, index: int, revision: int) -> None:
        """`member` has applied exactly the entries up to `index`: its state is at `revision`."""
        known = self._revisions.setdefault(index, (revision, member))
        if known[0] != revision:
            self._fail(
                f"after entry {index} the state of member {known[1]:x} is at revision {known[0]}, that of {member:x} "
                f"at {revision}"
            )

    def promised(self, member: int, term: int) -> None:
        """`member` made a permanent promise: that it is in `term`, and not in an earlier one."""
        self._promised[member] = max(term, self._promised.get(member, 0))

    def voted(self, member: int, term: int, candidate: int) -> None:
        other = self._votes.setdefault((member, term), candidate)
        if other != candidate:
            self._fail(f"member {member:x} voted twice in term {term}: for {other:x} and for {candidate:x}")

    def stands_at(self, member: int, term: int, commit: int, vote: int | None = None) -> None:
        """The term of a running member, and its vote in that term. A restart may forget what was not promised, but not
        a vote that was sent; report a restart with `restarted`."""
        promised = self._votes.get((member, term))
        if vote is not None and promised not in (None, vote):
            self._fail(f"member {member:x} voted for {promised:x} in term {term}, and has forgotten it")
        known = max(self._terms.get(member, 0), self._promised.get(member, 0))
        if term < known:
            self._fail(f"member {member:x} went back from term {known} to {term}")
        if commit < self._commits.get(member, 0):
            self._fail(f"member {member:x} went back from commit {self._commits[member]} to {commit}")
        self._terms[member], self._commits[member] = term, commit

    def restarted(self, member: int) -> None:
        self._commits.pop(member, None)
        self._terms.pop(member, None)

    def keeps(self, member: int, durable: tuple[int, int], now: tuple[int, int], *, there: bool) -> None:
        """`member` has restarted, with a log that ends with `now` (term and index). `there`: whether its previous
        `durable` last entry, by which majorities were counted, is in it."""
        if not there:
            self._fail(
                f"member {member:x} took its log as durable up to entry {durable[1]} of term {durable[0]}, and started "
                f"again without that: its log ends with entry {now[1]} of term {now[0]}"
            )

    @property
    def last_index(self) -> int:
        return max(self._entries, default=0)

    def verdict(self) -> Verdict:
        return violation(self.problem) if self.problem else OK

    def _fail(self, text: str) -> None:
        self.problem = self.problem or text


@dataclass(frozen=True, slots=True)
class MemberView:
    """A member's contents after a run. `hashes[r]`: its digest of its state at revision r, for every revision it still
    answers at. `kvs`: all of its current key-values. `leases`: (id, TTL in seconds), in order. `rest`: digest of what
    is no key."""

    member: int
    applied: int
    revision: int
    compact_revision: int
    hashes: Mapping[int, int]
    kvs: Sequence[KeyValue] = ()
    leases: Sequence[tuple[int, int]] = ()
    sessions: Sequence[object] = field(default=())
    rest: int = 0


def check_members(views: Iterable[MemberView]) -> Verdict:
    """Members that have applied the same are equal, and all have applied everything."""
    known = list(views)
    if not known:
        return violation("there are no members")
    first, *others = known
    for other in others:
        for name in ("applied", "revision", "compact_revision", "leases", "sessions", "rest"):
            ours, theirs = getattr(first, name), getattr(other, name)
            if ours != theirs:
                return violation(
                    f"{name} differs: {_short(ours)} on member {first.member:x}, {_short(theirs)} on {other.member:x}"
                )
        for revision in sorted(first.hashes.keys() & other.hashes.keys()):
            if first.hashes[revision] != other.hashes[revision]:
                return violation(f"the hash of revision {revision} differs on {first.member:x} and {other.member:x}")
        if list(first.kvs) != list(other.kvs):
            differing = sorted(set(first.kvs) ^ set(other.kvs))[:2]
            return violation(f"key-values differ on {first.member:x} and {other.member:x}: {differing}")
    return OK


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 200 else text[:200] + "..."


def check_durability(checked: Checked, views: Iterable[MemberView]) -> Verdict:
    """Each member holds the result of the acknowledged writes, in their order. `checked` must be ok and have seen the
    last revision."""
    model = checked.model
    for view in views:
        if view.revision < model.revision:
            lost = checked.writers.get(view.revision + 1)
            where = f"member {view.member:x} ends at revision {view.revision}"
            return violation(f"{where}, though {model.revision} was seen; lost:\n  {lost}")
        if view.revision > model.revision:
            return violation(
                f"member {view.member:x} ends at revision {view.revision}, the last one seen is {model.revision}"
            )
        want = model.standing(*ANY_KEY, view.revision)
        if list(view.kvs) != want:
            extra, missing = sorted(set(view.kvs) - set(want))[:1], sorted(set(want) - set(view.kvs))[:1]
            return violation(f"member {view.member:x} holds {extra} where the writes come to {missing}")
    return OK

"""Elections and votes (Raft, 5.2, 5.4.1; the thesis, 9.6 PreVote, 4.2.3 leader lease)."""

from __future__ import annotations

from minikube_py.raft import quorum
from minikube_py.raft.configuration import NodeId
from minikube_py.raft.message import NOBODY, Message, MessageType, Term
from minikube_py.raft.quorum import VoteResult
from minikube_py.raft.state import TRANSFER, State


class Elections:
    """A member's election clock, the votes it got as a candidate, and the rules by which it votes."""

    __slots__ = ("_promised_ticks", "_state", "_told", "_told_ticks", "_transfer", "elapsed", "timeout", "votes")

    def __init__(self, state: State) -> None:
        self._state = state
        self._transfer = False
        self._told, self._told_ticks = (NOBODY, state.term), 0
        self.votes: dict[NodeId, bool] = {}
        # A restart forgets the promise to a leader that reads by lease, so wait until it has expired.
        self._promised_ticks = 0
        self.heard()
        self.reset()

    def reset(self) -> None:
        """Restarts the clock with a random timeout, so that members seldom start elections at the same time.

        Followers wait up to two fifths longer: two simultaneous candidates do not block each other (`_goes_first`),
        and a wider range would only prolong the time without a leader. A candidate waits up to twice as long."""
        election_ticks = self._state.config.election_ticks
        spread = election_ticks if self._state.role != "FOLLOWER" else election_ticks * 2 // 5 + 1
        self.elapsed = 0
        self.timeout = election_ticks + self._state.rng.randrange(spread)
        self.votes = {}

    def heard(self) -> None:
        """The leader was heard from. If it reads by lease this is a promise, which a higher term does not end."""
        self.elapsed = 0
        if self._state.config.lease_reads:
            self._promised_ticks = self._state.config.election_ticks

    def gone(self, still_ticks: int = 0) -> None:
        """There is no leader to wait for. As if an election timeout had passed, but for its random part and
        `still_ticks`."""
        self.elapsed = max(self.elapsed, self._state.config.election_ticks - still_ticks)

    def tick(self) -> bool:
        """One unit of time without a leader; True when an election is due."""
        self.elapsed += 1
        if self._promised_ticks:
            self._promised_ticks -= 1
        if self._told_ticks:
            self._told_ticks -= 1
        return self.elapsed >= self.timeout and not self._told_ticks

    def may_stand(self, *, called: bool = False) -> bool:
        """Only a voter may start an election; not while a committed change of the configuration is unapplied, since the
        voters are not known here before; nor, unless the leader requested it, against a promise to the leader."""
        state, log = self._state, self._state.log
        if self._promised_ticks and not called and state.configuration.electors() != [state.id]:
            return False
        return state.configuration.votes(state.id) and not (log.changes and log.changes[0] <= log.committed)

    def begin(self, *, transfer: bool) -> None:
        """This member has just become (pre-)candidate."""
        self.reset()
        self._transfer = transfer
        self.ask()

    def ask(self) -> None:
        """Requests the missing votes."""
        state = self._state
        log = state.log
        pre = state.role == "PRE_CANDIDATE"
        for node in state.configuration.electors():
            if node != state.id and node not in self.votes:
                state.send(
                    MessageType.PRE_VOTE if pre else MessageType.VOTE,
                    node,
                    term=Term(state.term + 1) if pre else state.term,
                    index=log.last_index,
                    log_term=log.last_term,
                    commit=log.committed,
                    hint=log.term(log.committed),
                    context=TRANSFER if self._transfer else b"",
                )

    def count(self, voter: NodeId, granted: bool) -> VoteResult:
        """Only a voter's first answer counts."""
        self.votes.setdefault(voter, granted)
        return quorum.vote_result(self._state.configuration, self.votes)

    def in_lease(self, message: Message) -> bool:
        """Whether a leader was heard from recently, so that no vote is granted (the thesis, 4.2.3) or promised (9.6).

        Except for whom this member told to stand for that term, before late words of the leader came: that candidate
        has entered the term, so the leader is deposed anyway, and a refusal would only prolong the time without one.
        Not against a promise: safety depends on that, and on nothing else here."""
        state = self._state
        if self._promised_ticks:
            return True
        heard = state.leader != NOBODY and self.elapsed < state.config.election_ticks
        told = self._told == (message.sender, message.term)
        if message.type == MessageType.VOTE:
            return heard and state.config.check_quorum and not told
        # Candidates that all passed the pre-vote would share the votes. So who told one to stand neither tells another
        # nor stands, for a third of a timeout.
        return heard or (state.role == "FOLLOWER" and self._told_ticks > 0 and not told)

    def promised(self, message: Message) -> bool:
        """Whether a vote would break a promise to the leader. A VOTE of a later term was compared with it; this term
        may have begun meanwhile by another message."""
        asks_for_it = message.type == MessageType.VOTE and message.context != TRANSFER
        return self._promised_ticks > 0 and asks_for_it and self._state.vote != message.sender

    def answer(self, message: Message) -> bool:
        """Grants or refuses a PRE_VOTE or VOTE, and replies. True: the vote is granted, and must be recorded."""
        state, log = self._state, self._state.log
        pre = message.type == MessageType.PRE_VOTE
        free = state.vote == NOBODY and state.leader == NOBODY
        may = state.vote == message.sender or free or (pre and message.term > state.term)
        up_to_date = (message.log_term, message.index) >= (log.last_term, log.last_index)
        granted = may and up_to_date and not (pre and self._goes_first(message))
        if granted:
            told = message.sender, message.term
            if not pre:
                self._told_ticks = 0
            elif told != self._told:
                # Once: one that hears no answers asks forever, and would hold up all others.
                self._told_ticks = state.config.election_ticks // 3
            self._told = told
        # A granted pre-vote has the future term; a refusal carries this member's own.
        state.send(
            MessageType.PRE_VOTE_REPLY if pre else MessageType.VOTE_REPLY,
            message.sender,
            term=message.term if granted else state.term,
            reject=not granted,
            commit=log.committed,
            hint=log.term(log.committed),
        )
        return granted and not pre

    def _goes_first(self, message: Message) -> bool:
        """Whether this member polls for the same term with the same log and has priority.

        If two members that pre-vote at the same time grant each other, both become candidates, each votes for itself,
        and if a majority needs both there is no leader for another timeout. Of equals the larger id goes first. A
        pre-vote promises nothing, so refusing it is always safe. The refusals also end: this member refuses for
        `election_ticks`, polls again after a random `election_ticks` to `2 * election_ticks - 1`, and refuses none in
        between. From ELECTION_TICKS_MIN on, at least half of the rounds leave a tick or more for that, and the other
        asks each tick. So a member whose own polls fail does not block others for long. With 1 no round would leave
        any."""
        state, log = self._state, self._state.log
        return (
            state.role == "PRE_CANDIDATE"
            and message.sender < state.id
            and message.term == state.term + 1
            and (message.log_term, message.index) == (log.last_term, log.last_index)
            and self.elapsed < state.config.election_ticks
        )

    def refuse(self, message: Message) -> None:
        """Refuses a request of an earlier term."""
        log = self._state.log
        type = MessageType.PRE_VOTE_REPLY if message.type == MessageType.PRE_VOTE else MessageType.VOTE_REPLY
        self._state.send(type, message.sender, reject=True, commit=log.committed, hint=log.term(log.committed))

    def learn_commit(self, message: Message) -> bool:
        """Candidates and voters exchange their commit indexes; True if this member's was lower, and it has that entry.

        A leader demoted or removed by a change may be the only one to know that the change is committed. It no longer
        leads, and its log may be too long for it to vote for members that still need its vote. (As in raft-rs;
        etcd-io/raft can be stuck here.)"""
        log = self._state.log
        if message.commit <= log.committed or not log.matches(message.commit, Term(message.hint)):
            return False
        log.committed = message.commit
        return True

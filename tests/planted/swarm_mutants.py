"""Bugs that are planted for the simulator: one change of one file each. What finds them are the checkers of
`minikube_py.sim`, which know what a store promises and nothing of these.
"""

# ruff: noqa: E501

from __future__ import annotations

from typing import NamedTuple


class SwarmMutant(NamedTuple):
    """`old` stands exactly once in `minikube_py/<file>`; `why` says how such a bug comes about."""

    name: str
    file: str
    old: str
    new: str
    why: str


MUTANTS: tuple[SwarmMutant, ...] = (
    # --- raft: elections ---------------------------------------------------------------------------------------------
    SwarmMutant(
        "raft: a vote is forgotten on restart", "store/recovery.py",
        "HardState(Term(saved.term), NodeId(saved.vote), LogIndex(saved.commit))",
        "HardState(Term(saved.term), NodeId(0), LogIndex(saved.commit))",
        "the term is restored, the vote beside it is not",
    ),
    SwarmMutant(
        "raft: a vote is not made durable", "raft/node.py",
        "unsaved = self._saved[0] != self.term or self._saved[1] != self.vote",
        "unsaved = self._saved[0] != self.term",
        "only a new term is taken for a change of the hard state",
    ),
    SwarmMutant(
        "raft: votes for two in one term", "raft/elections.py",
        "may = state.vote == message.sender or free or (pre and message.term > state.term)",
        "may = state.leader == NOBODY",
        "whoever knows no leader gives its vote, given or not",
    ),
    SwarmMutant(
        "raft: votes for a shorter log", "raft/elections.py",
        "up_to_date = (message.log_term, message.index) >= (log.last_term, log.last_index)",
        "up_to_date = message.log_term >= log.last_term",
        "the last entry's index is left out of the comparison (Raft, 5.4.1)",
    ),
    SwarmMutant(
        "raft: votes by index before term", "raft/elections.py",
        "up_to_date = (message.log_term, message.index) >= (log.last_term, log.last_index)",
        "up_to_date = (message.index, message.log_term) >= (log.last_index, log.last_term)",
        "the pair is compared the wrong way round",
    ),
    SwarmMutant(
        "raft: half of the voters elect", "raft/quorum.py",
        "    needed = majority(voters)\n",
        "    needed = (len(voters) + 1) // 2 if len(voters) % 2 == 0 else majority(voters) - 1\n",
        "a majority that is one too small",
    ),
    # --- raft: replication -------------------------------------------------------------------------------------------
    SwarmMutant(
        "raft: an older term's entries are committed by counting", "raft/leadership.py",
        "        if index <= log.committed or log.term(index) != term:",
        "        if index <= log.committed:",
        "the rule of Raft 5.4.2, figure 8, is left out",
    ),
    SwarmMutant(
        "raft: one voter too few commits", "raft/quorum.py",
        "    return indexes[(len(indexes) - 1) // 2] if indexes else NOTHING",
        "    return indexes[len(indexes) // 2 + (len(indexes) > 1)] if indexes else NOTHING",
        "the median is taken from the wrong side",
    ),
    SwarmMutant(
        "raft: acknowledged before it is durable", "raft/state.py",
        "        after = type in (MessageType.VOTE, MessageType.VOTE_REPLY, MessageType.APPEND_REPLY)",
        "        after = type in (MessageType.VOTE, MessageType.VOTE_REPLY)",
        "the reply to an append leaves with the other messages",
    ),
    SwarmMutant(
        "raft: the leader counts entries that its disk does not have yet", "raft/replication.py",
        "        match[state.id] = state.log.stable",
        "        match[state.id] = state.log.last_index",
        "its own log is taken to be durable",
    ),
    SwarmMutant(
        "raft: a conflicting entry stays", "raft/log.py",
        "                    self._truncate(entry.index)\n                    break",
        "                    break",
        "what contradicts the leader is not removed before its entries are appended",
    ),
    SwarmMutant(
        "raft: matching entries are cut too", "raft/log.py",
        "                if entry.index > self.offset and self.term(entry.index) != entry.term:",
        "                if entry.index > max(self.offset, self.committed):",
        "an append is taken to end the log there, also where it is an old one that came late (Raft, 5.3)",
    ),
    SwarmMutant(
        "raft: the previous entry is not compared", "raft/log.py",
        "        return self.offset <= index <= self.last_index and self.term(index) == term",
        "        return self.offset <= index <= self.last_index",
        "the consistency check looks at the length only",
    ),
    SwarmMutant(
        "raft: a heartbeat commits entries that the peer may not have", "raft/replication.py",
        "state.send(MessageType.HEARTBEAT, node, commit=min(progress.match, committed), context=context)",
        "state.send(MessageType.HEARTBEAT, node, commit=committed, context=context)",
        "a follower then commits what it got from another leader",
    ),
    SwarmMutant(
        "raft: a write in flight acknowledges the entries that replaced it", "raft/log.py",
        "            write.index = min(write.index, before)",
        "            pass",
        "a truncation while the disk is busy is overlooked",
    ),
    SwarmMutant(
        "raft: an acknowledgement owed to the old leader goes to the new one", "raft/node.py",
        "            self.vote = NOBODY\n            self._following.agreed = None\n",
        "            self.vote = NOBODY\n",
        "what was found to agree with one leader's log is acknowledged to another",
    ),
    SwarmMutant(
        "store: all incoming snapshots are written to one file", "store/log_files.py",
        '        name = f"incoming-{self._incoming_files}{PART_SUFFIX}"\n',
        '        name = "incoming" + PART_SUFFIX\n'
        "        if name in self.disk.names():\n            self.disk.remove(name)\n",
        "the next offer takes the file of a snapshot that is still to be named",
    ),
    # --- raft: reads, membership, snapshots --------------------------------------------------------------------------
    SwarmMutant(
        "raft: reads without a quorum", "raft/leadership.py",
        "        if self.opened and (self.replication.alone or self._leased()):",
        "        if self.opened:",
        "a leader takes its own word for it that it still leads",
    ),
    SwarmMutant(
        "raft: reads before an entry of the term is committed", "raft/leadership.py",
        "        if self.opened and self.reads.waiting:",
        "        if self.reads.waiting:",
        "a new leader does not know yet what is committed (Raft, 8)",
    ),
    SwarmMutant(
        "raft: a removed member still counts", "raft/configuration.py",
        "    voters, learners, learners_next = voters - one, learners - one, learners_next - one\n",
        "    if type != ChangeType.REMOVE:\n        voters = voters - one\n    learners, learners_next = learners - one, learners_next - one\n",
        "removal ends replication to it, and leaves its vote",
    ),
    # --- member ------------------------------------------------------------------------------------------------------
    SwarmMutant(
        "member: a read is served before it is applied", "store/replica.py",
        "        for done in reads.ready(raft.log.applied):",
        "        for done in reads.ready(raft.log.last_index):",
        "the index that was confirmed is taken to be applied",
    ),
    SwarmMutant(
        "member: a lost proposal is reported as refused", "store/replica.py",
        'self._give_up_waiting(OutcomeUnknown("leadership changed before',
        'self._give_up_waiting(Unavailable("leadership changed before',
        "unknown is turned into refused, and the client trusts it",
    ),
    SwarmMutant(
        "member: the members of a snapshot are forgotten", "store/replica.py",
        "        self.state, self.membership = state, members\n",
        "        self.state = state\n",
        "the state is replaced, the record beside it is not",
    ),
    SwarmMutant(
        "member: every read is served as serializable", "store/member.py",
        "        self.replica.read(done, linearizable=linearizable)\n",
        "        self.replica.read(done, linearizable=False)\n",
        "the flag of serializable reads is taken for that of all",
    ),
    SwarmMutant(
        "member: a new leader does not renew leases", "store/member.py",
        "                self.lessor.restart(self.state.leases())\n",
        "                pass\n",
        "who leads goes by deadlines from when it led before",
    ),
    SwarmMutant(
        "member: the end of a transfer is not reported", "store/peer_sender.py",
        "            self._forget_snapshot()\n            self._peers.report(self.member.id, True, True)\n",
        "            self._forget_snapshot()\n",
        "Raft waits for a snapshot that nobody sends any more",
    ),
    SwarmMutant(
        "member: the end of a sync hides a cancellation", "store/fsync.py",
        "                await ended(running)\n        raise\n",
        "                await ended(running)\n        running.result()\n",
        "who was cancelled meanwhile goes on, and who stops the member waits for it",
    ),
    # --- client ------------------------------------------------------------------------------------------------------
    SwarmMutant(
        "client: a write without an answer is reported as refused", "store/client.py",
        'return OutcomeUnknown(f"the store gave no answer {after}; the write may',
        'return Unavailable(f"the store gave no answer {after}; the write may',
        "a timeout is taken for a refusal",
    ),
    SwarmMutant(
        "member: a new leader refuses a change before it has applied its log", "store/leadership.py",
        "            if confirmed:\n                raise\n",
        "            raise\n",
        "only one change is under way, so what was checked is thought to hold",
    ),
    SwarmMutant(
        "client: a refusal that does not come from the log is taken as final", "store/client.py",
        "        before = isinstance(error, Unavailable | RequestTooLarge) or call.unlogged\n",
        "        before = isinstance(error, Unavailable | RequestTooLarge)\n",
        "the next leader's disk is full, and the one before has done it",
    ),
    SwarmMutant(
        "client: a write is sent again under another number", "store/client_session.py",
        "        write.on = None\n        write.doubtful = write.doubtful or may_be_done\n",
        "        write.on = None\n        write.doubtful = write.doubtful or may_be_done\n        if may_be_done and self.unanswered.pop(write.sequence, None):\n            self._queue.append(write)\n            return\n",
        "what came back is queued like what is new",
    ),
    SwarmMutant(
        "client: a watch resumes one revision too late", "store/client_watch.py",
        "self._request._replace(start_revision=revision + 1)",
        "self._request._replace(start_revision=revision + 2)",
        "an inclusive start is taken as exclusive",
    ),
    # --- mvcc, sessions, watch, index --------------------------------------------------------------------------------
    SwarmMutant(
        "sessions: an executed request is executed again", "mvcc/sessions.py",
        "        if sequence in session.replies:\n            return None\n",
        "",
        "the kept reply is not looked for",
    ),
    SwarmMutant(
        "sessions: replies are not in the snapshot", "mvcc/sessions.py",
        "        session.replies = {sequence: _reply_from_plain(plain) for sequence, plain in replies}",
        "        session.replies = {}",
        "a member that restarts or is sent a snapshot has forgotten what it answered",
    ),
    SwarmMutant(
        "mvcc: a compare with a missing key holds", "mvcc/txn.py",
        "            return target != \"VALUE\" and _compare(_ABSENT, target, op, operand)\n        return _compare(kv, target, op, operand)",
        "            return True\n        return _compare(kv, target, op, operand)",
        "create-if-absent overwrites after a deletion",
    ),
    SwarmMutant(
        "mvcc: a revoked lease leaves its keys", "mvcc/state.py",
        "        events = [self.index.delete(key, revision) for key in sorted(lease.keys)]",
        "        events = [self.index.delete(key, revision) for key in sorted(lease.keys)[1:]]",
        "an off-by-one in the loop",
    ),
    SwarmMutant(
        "watch: events before an installed snapshot are skipped", "mvcc/watch.py",
        "            watcher.next_revision = max(watcher.next_revision, self.revision + 1)\n            self._behind",
        "            watcher.next_revision = max(watcher.next_revision, state.revision + 1)\n            self._behind",
        "watchers go on from where the snapshot ends",
    ),
    SwarmMutant(
        "watch: no progress is reported to a watch that has caught up", "mvcc/watch.py",
        "        if events or until == self.revision:\n",
        "        if events:\n",
        "progress goes to those in step, and this one was not when it went out",
    ),
    SwarmMutant(
        "watch: a batch is delivered twice", "mvcc/watch.py",
        "        after, until = self.revision, self._state.revision\n        if after == until:",
        "        after, until = max(1, self.revision - 1), self._state.revision\n        if self.revision == until:",
        "the last revision is taken to be outstanding still",
    ),
    SwarmMutant(
        "index: a sum keeps the requests of a moved pod", "index/table.py",
        "            self._add(old, -1)\n",
        "",
        "only additions are counted",
    ),
    # --- wal ---------------------------------------------------------------------------------------------------------
    SwarmMutant(
        "wal: an overwritten tail comes back", "wal/recovery.py",
        "        self._truncate(first)\n        self.reached",
        "        if first < self.snapshot_index + len(self.entries) + 1 - len(datas):\n            return\n        self._truncate(first)\n        self.reached",
        "recovery takes a shorter run of entries at an old index for a repetition",
    ),
    # --- declared indexes --------------------------------------------------------------------------------------------
    SwarmMutant(
        "index: a dropped index still answers", "mvcc/tables.py",
        "            table.running.pop(gone).close()",
        "            table.running[gone].close()",
        "a dropped index follows its table no more, and is still asked",
    ),
    SwarmMutant(
        "index: pending changes are not applied before a query", "index/hosted.py",
        "        self._follow_up()\n        if self.host.unchanged_since(revision):",
        "        if self.host.unchanged_since(revision):",
        "changes are put off, and the question does not wait for them",
    ),
    SwarmMutant(
        "index: a declared field is not read from existing objects", "mvcc/successor.py",
        "            self.table.load((kv.key, decode(kv.value)) for kv in kvs)",
        "            whole, self.table.reader = self.table.reader, type(self.table.reader)(state.tables.declared[self.table.field_set.name])\n            self.table.load((kv.key, decode(kv.value)) for kv in kvs)\n            self.table.reader = whole",
        "rows that stood before the declaration are filled by the fields as they were",
    ),
    SwarmMutant(
        "index: a declared field is identified by its name alone", "index/table.py",
        "        return asked_of(self.field_set, [name for name, _ in asked]) == asked",
        "        return all(self.field_set.find(name) for name, _ in asked)",
        "an index was dropped, and the next one means something else by the same name",
    ),
    SwarmMutant(
        "index: a query is parsed with the fields that were declared when it first came", "mvcc/tables.py",
        "        self._run(name, self.by_name[name])\n        self.version += 1",
        "        self._run(name, self.by_name[name])",
        "what is kept of a question outlives the declarations it was read by",
    ),
    SwarmMutant(
        "index: a scan ignores referring objects", "mvcc/scanned.py",
        "                    total.update(kv.key, decode(kv.value))\n",
        "                    pass\n",
        "a declared sum is asked for before a table holds it, and only the objects asked about are decoded",
    ),
    # --- watches by fields that indexes declare ---------------------------------------------------------------------
    SwarmMutant(
        "watch: resumed at a revision before its fields were declared", "mvcc/watch.py",
        "            if watcher.watched and watcher.next_revision <= self._state.declared_since(*watcher.watched):",
        "            if watcher.watched and watcher.next_revision < 0:",
        "the stream broke, its fields were declared again meanwhile, and the client asks in the same words",
    ),
    SwarmMutant(
        "watch: continues when its fields are declared again", "mvcc/watch.py",
        "            if not tables.stands(*watched):",
        "            if not tables.stands(watched.field_set, ()):",
        "only the FieldSet is looked for, and not what its fields mean",
    ),
    SwarmMutant(
        "watch: live before it has caught up with its table", "mvcc/watch.py",
        "                del self._unserved[watcher]\n                self._behind[watcher] = None",
        "                del self._unserved[watcher]\n                self._join(watcher)",
        "what happened while its fields were being built is taken to be told",
    ),
)

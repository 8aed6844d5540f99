"""Raft as a pure state machine in the manner of etcd-io/raft: messages in; messages, entries and state out.

No IO, no clock, no threads, and randomness from its driver, which does all of that. The whole API of `Raft`:

    step(message)              handles a message from another member
    tick()                     advances time by one unit: elections, heartbeats, leadership that lost its quorum
    propose(data)              proposes an entry; returns its index, if it ever commits
    propose_change(change)     the same for a change of members
    read_index(context)        asks for the index at which a read that begins now is linearizable
    transfer(to)               transfers leadership
    report(to, reachable, ...) what the driver learned about a peer by other means: a lost link, a snapshot's end
    ready(can_write)           the work: what may be sent, what must be durable before what, what to apply
    persisted(term, index)     that Ready's hard state and entries are durable
    applied(index)             the entries up to that index have been applied
    compact(index)             those up to that index may be dropped; snapshot_taken(meta): sent to peers instead
    status()                   term, role, leader, commit, and the leader's view of each peer

A driver loops: `step`, `tick` and `propose` as things arrive; then `ready()`, and does what `Ready` says, in its
order:

    ready = raft.ready(can_write=not syncing)
    send(ready.messages)                                # now: the peers work while the disk does
    if ready.must_sync:
        write(ready.snapshot, ready.hard_state, ready.entries)   # one write, one sync, on any thread
        ... and when it is durable:  raft.persisted(term, last index written); send(ready.messages_after)
    apply(ready.committed); raft.applied(last index)
    answer the reads of ready.read_states, each once its index is applied

and calls `ready` again until it returns no work. Input during a sync forms the next batch. A proposal is done when its
entry appears in `committed` with the returned index and term; another entry at that index means that it was lost. The
errors are `ProposalDropped` (nothing changed; it may name the leader), `UnknownPeer` (not for us, or not believed:
nothing changed), and `SafetyViolated`: stop this member. `skip_change` before `applied`: a committed change that the
driver cannot apply changes nothing.

The modules: `node` for terms and roles, `elections` for votes, `leadership` and `replication` for the leader, `reads`
for linearizable reads, `following` for the follower; `log`, `progress`, `quorum` and `configuration` for the values
they work on; `message` and `ready` for the types, `codec` for their plain form.

Two design choices: the configuration changes when its entry is *applied* (as in etcd-io/raft; the thesis: when it is
appended); and `snapshot_wanted` tells a leader's driver that a peer needs a snapshot newer than the latest: one that
the log reaches back to, and whose configuration includes the peer.
"""

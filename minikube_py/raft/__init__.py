"""Raft as a pure state machine in the manner of etcd-io/raft: messages in; messages, entries and state out.

No IO, no clock, no threads, no randomness of its own: who drives it does all of that. The whole surface of `Raft`:

    step(message)              takes what another member sent
    tick()                     lets one unit of time pass: elections, heartbeats, leadership that lost its quorum
    propose(data)              asks for an entry; its index, if it ever commits, is returned
    propose_change(change)     the same for who is a member
    read_index(context)        asks from which index on a read that begins now sees all that was acknowledged before
    transfer(to)               gives leadership away
    report(to, reachable, ...) what the driver learned about a peer by other means: a lost link, a snapshot's end
    ready(can_write)           what is to be done: what may be sent, what must be durable before what, what to apply
    persisted(term, index)     that Ready's hard state and entries are durable
    applied(index)             the entries up to there have been applied
    compact(index)             those up to there may be forgotten; snapshot_taken(meta): what peers are sent instead
    status()                   term, role, leader, commit, and the leader's view of each peer

A driver loops: `step`, `tick` and `propose` as things arrive; then `ready()`, and does what `Ready` says, in its order:

    ready = raft.ready(can_write=not syncing)
    send(ready.messages)                                # now: the peers work while the disk does
    if ready.must_sync:
        write(ready.snapshot, ready.hard_state, ready.entries)   # one write, one sync, on any thread
        ... and when it is durable:  raft.persisted(term, last index written); send(ready.messages_after)
    apply(ready.committed); raft.applied(last index)
    answer the reads of ready.read_states, each once its index is applied

and calls `ready` again until it says nothing. What arrives during a sync is the next batch. A proposal is done when its
entry comes back in `committed`, with the index and the term it was given; another entry at that index means that it is
lost. An error here is `ProposalDropped` (nothing changed; it may name the leader), `UnknownPeer` (not for us), or
`SafetyViolated`: stop this member.

Where what stands: `node` terms and roles, `elections` votes, `leadership` and `replication` what a leader does, `reads`
linearizable reads, `following` what a follower does; `log`, `progress`, `quorum` and `configuration` the values they
work on; `message` and `ready` the words, `codec` the words in plain form.

Two choices to know: the configuration changes when its entry is *applied* (as in etcd-io/raft; the thesis: when it is
appended); and `snapshot_wanted` tells a leader's driver that a peer can be helped only by a snapshot newer than the
latest: one that the log reaches back to, and that has the peer among its members.
"""

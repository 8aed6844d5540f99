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
    compact(index)             those up to there may be forgotten
    status()                   term, role, leader, commit, and the leader's view of each peer

A driver loops: `step`, `tick` and `propose` as things arrive; then `ready()`, and does what `Ready` says, in its order.
"""

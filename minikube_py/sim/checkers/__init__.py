"""Checkers: histories in, verdicts out. They know what a store promises, and nothing of how this one keeps it.

    linearizability   single keys, by values alone (Wing and Gong; Lowe)
    transactions      all writes and reads, by revision: one order, real time, every answer replayed
    watches           what each watch was sent, against what happened
    leases            never ended early, ended in the end
    convergence       what members hold: one log, equal states, nothing acknowledged lost
    model, objects    what the above compare with: etcd's semantics, and rows by looking at every object
"""

"""Checkers: histories in, verdicts out. They know a store's guarantees, and nothing of this implementation.

    linearizability   single keys, by values alone (Wing and Gong; Lowe)
    transactions      all writes and reads, by revision: one order, real time, every answer replayed
    watches           the events of each watch, against what happened
    leases            never expired early, always expired eventually
    convergence       the members' contents: one log, equal states, nothing acknowledged lost
    model, objects    their references: etcd's semantics, and rows computed from every object
"""

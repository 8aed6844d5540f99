"""Common starting points of Raft's tests: a cluster that waits, passes time, changes its members."""

from __future__ import annotations

from raft_world import NOTHING, FixedRng, World

from minikube_py.raft.configuration import Change, ChangeType, ConfChange, Configuration

ELECTION_TICKS = 10


def change(*pairs: tuple[ChangeType, int], **fields) -> ConfChange:
    return ConfChange(tuple(Change(type, node) for type, node in pairs), **fields)


def waiting(size: int = 3, joiners: tuple[int, ...] = (), **knobs) -> World:
    """`size` voters with a snapshot at entry 1; `joiners` have nothing and are in no configuration yet."""
    world = World(seed=1)
    voters = Configuration(frozenset(range(1, size + 1)))
    for id in range(1, size + 1):
        world.add(id, voters, index=1, term=1, **knobs)
    for id in joiners:
        world.add(id, NOTHING, **knobs)
    return world


def rounds(world: World, count: int, *ids: int) -> None:
    for _ in range(count):
        for member in world.up():
            if not ids or member.id in ids:
                world.tick(member.id)
        world.settle()
        world.give_wanted_snapshots()


def configured(world: World, leader: int, *changes: ConfChange) -> None:
    for one in changes:
        world.call(leader, lambda raft, one=one: raft.propose_change(one))
        rounds(world, 5)


def slowest() -> FixedRng:
    """Draws the longest timeout."""
    rng = FixedRng(0)
    rng.value = ELECTION_TICKS - 1
    return rng

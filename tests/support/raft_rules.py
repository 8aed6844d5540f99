"""The few notions used by Raft's invariants, computed here and not by the code under test."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from minikube_py.raft.codec import decode_change
from minikube_py.raft.configuration import Configuration
from minikube_py.raft.message import Entry, EntryKind


class Broken(AssertionError):
    """An invariant of Raft is violated."""


def require(holds: object, law: str, *about: object) -> None:
    if not holds:
        raise Broken(f"{law}: {', '.join(map(str, about))}")


def is_quorum(configuration: Configuration, members: Collection[int]) -> bool:
    """A majority of the voters and, while joint, of the outgoing ones."""
    halves = [half for half in (configuration.voters, configuration.outgoing) if half]
    return all(2 * len(half & set(members)) > len(half) for half in halves) and bool(halves)


def is_change(entry: Entry) -> bool:
    """Whether it changes the voters; an entry with only a context does not."""
    if entry.kind != EntryKind.CHANGE:
        return False
    change = decode_change(entry.data)
    return bool(change.changes) or change.leave_joint


def subsets(items: Iterable[int]) -> Iterator[frozenset[int]]:
    rest = list(items)
    for bits in range(1 << len(rest)):
        yield frozenset(item for position, item in enumerate(rest) if bits >> position & 1)

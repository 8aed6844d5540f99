"""Messages and configuration changes in plain form, for msgpack. Input from a peer is checked field by field."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgpack

from minikube_py.errors import shown
from minikube_py.raft.configuration import Change, ChangeRefused, ChangeType, ConfChange, Configuration, NodeId, checked
from minikube_py.raft.message import Entry, EntryKind, LogIndex, Message, MessageType, SnapshotMeta, Term

INT_MAX = (1 << 63) - 1
CONTEXT_BYTES_MAX = 1 << 10
MEMBERS_MAX = 1000
ENTRIES_MAX = 1 << 17
"""Of a message: twice as many as a leader sends (`append_bytes_max` / ENTRY_BYTES), where all are empty."""
TYPES = frozenset(int(type) for type in MessageType) - {int(MessageType.HUP)}
KINDS = frozenset(int(kind) for kind in EntryKind)
CHANGES = frozenset(int(type) for type in ChangeType)
_new = tuple.__new__


class Malformed(ValueError):
    """Not a message of this version; the text names the field."""


def message_to_plain(message: Message) -> list[Any]:
    """Entries are sent as runs of one term and kind, (term, kind, [data...]); their indexes follow from the
    message's."""
    type, sender, to, term, log_term, index, commit, entries, reject, hint, context, snapshot = message
    return [
        int(type), sender, to, term, log_term, index, commit, _runs(entries), reject, hint, context,
        snapshot and [snapshot.index, snapshot.term, configuration_to_plain(snapshot.configuration)],
    ]


def message_from_plain(plain: Any) -> Message:
    """Raises: Malformed."""
    fields = _list(plain, "a message")
    if len(fields) != 12:
        raise Malformed(f"a message has 12 fields, not {len(fields)}")
    type, sender, to, term, log_term, index, commit, runs, reject, hint, context, snapshot = fields
    if _number(type, "type") not in TYPES:
        raise Malformed(f"message type {type} is unknown, or never travels")
    for name, value in (("term", term), ("log_term", log_term), ("index", index), ("commit", commit), ("hint", hint)):
        _number(value, name)
    if reject is not True and reject is not False:
        raise Malformed(f"reject is {shown(reject)}, not a boolean")
    if context.__class__ is not bytes or len(context) > CONTEXT_BYTES_MAX:
        raise Malformed(f"context is not bytes, {CONTEXT_BYTES_MAX} at most")
    entries = _entries(runs, index, log_term, term)
    if entries and type != MessageType.APPEND:
        raise Malformed(f"a message of type {type} carries no entries")
    if (snapshot is not None) != (type == MessageType.SNAPSHOT):
        raise Malformed("a SNAPSHOT message, and no other, names a snapshot")
    if log_term > term and type != MessageType.APPEND_REPLY:
        raise Malformed(f"log_term {log_term} is above the message's term {term}")
    meta = None if snapshot is None else _snapshot(snapshot)
    if meta is not None and meta.term > term:
        raise Malformed(f"a snapshot of term {meta.term} in a message of term {term}")
    return Message(
        MessageType(type), _node(sender, "sender"), _node(to, "to"), term, log_term, index, commit, entries, reject,
        hint, context, meta,
    )


def configuration_to_plain(configuration: Configuration) -> list[Any]:
    return [*(sorted(nodes) for nodes in configuration[:4]), configuration.auto_leave]


def configuration_from_plain(plain: Any) -> Configuration:
    """Raises: Malformed."""
    fields = _list(plain, "a configuration")
    if len(fields) != 5 or fields[4].__class__ is not bool:
        raise Malformed("a configuration has four lists of ids and a boolean")
    sets = []
    for nodes in fields[:4]:
        ids = [_node(node, "a member") for node in _list(nodes, "the members")]
        if len(ids) > MEMBERS_MAX or len(set(ids)) != len(ids):
            raise Malformed(f"members are listed twice, or are more than {MEMBERS_MAX}")
        sets.append(frozenset(ids))
    try:
        return checked(Configuration(sets[0], sets[1], sets[2], sets[3], fields[4]))
    except ChangeRefused as error:
        raise Malformed(f"the configuration contradicts itself: {error}") from None


def encode_change(change: ConfChange) -> bytes:
    """The data of an entry of kind CHANGE. Stored in logs on disk."""
    plain = ([(int(one.type), one.node) for one in change.changes], change.leave_joint, change.context)
    data: bytes = msgpack.packb(plain)
    return data


def decode_change(data: bytes) -> ConfChange:
    """Raises: Malformed."""
    try:
        plain = msgpack.unpackb(data)
    except (ValueError, msgpack.UnpackException) as error:
        raise Malformed(f"a change of the configuration is not msgpack: {error}") from None
    fields = _list(plain, "a change of the configuration")
    if len(fields) != 3 or fields[1].__class__ is not bool or fields[2].__class__ is not bytes:
        raise Malformed("a change of the configuration has a list, a boolean and bytes")
    changes = []
    for one in _list(fields[0], "the changes"):
        pair = _list(one, "a change")
        if len(pair) != 2 or _number(pair[0], "a change's type") not in CHANGES:
            raise Malformed(f"a change is a known type and a member, not {shown(pair)}")
        changes.append(Change(ChangeType(pair[0]), _node(pair[1], "a change's member")))
    if len(changes) > MEMBERS_MAX:
        raise Malformed(f"more than {MEMBERS_MAX} changes in one")
    return ConfChange(tuple(changes), fields[1], fields[2])


def _runs(entries: Sequence[Entry]) -> list[tuple[int, int, list[bytes]]]:
    if not entries:
        return []
    first, last = entries[0], entries[-1]
    if first[0] == last[0] and not any(entry[3] for entry in entries):
        return [(first[0], 0, [entry[2] for entry in entries])]
    runs: list[tuple[int, int, list[bytes]]] = []
    for term, _, data, kind in entries:
        if not runs or runs[-1][:2] != (term, kind):
            runs.append((term, int(kind), []))
        runs[-1][2].append(data)
    return runs


def _entries(runs: Any, before: int, log_term: int, term_max: int) -> Sequence[Entry]:
    if runs.__class__ is list and not runs:
        return ()
    entries: list[Entry] = []
    index = before
    floor = log_term
    for run in _list(runs, "entries"):
        fields = _list(run, "a run of entries")
        if len(fields) != 3:
            raise Malformed(f"a run of entries has 3 fields, not {len(fields)}")
        term, kind, datas = fields
        if not floor <= _number(term, "an entry's term") <= term_max:
            raise Malformed(f"an entry of term {term} after one of {floor}, in a message of {term_max}")
        if _number(kind, "an entry's kind") not in KINDS:
            raise Malformed(f"entry kind {kind} is unknown")
        if set(map(type, _list(datas, "a run's data"))) != {bytes}:
            raise Malformed("the data of entries is not bytes, or a run is empty")
        floor = term
        if len(entries) + len(datas) > ENTRIES_MAX:
            raise Malformed(f"more than {ENTRIES_MAX} entries in one message")
        entries += [_new(Entry, (term, number, data, kind)) for number, data in enumerate(datas, index + 1)]
        index += len(datas)
    if index > INT_MAX:
        raise Malformed(f"entry {index} is beyond {INT_MAX}")
    return entries


def _snapshot(plain: Any) -> SnapshotMeta:
    fields = _list(plain, "a snapshot")
    if len(fields) != 3:
        raise Malformed(f"a snapshot has 3 fields, not {len(fields)}")
    index, term = LogIndex(_number(fields[0], "a snapshot's index")), Term(_number(fields[1], "a snapshot's term"))
    return SnapshotMeta(index, term, configuration_from_plain(fields[2]))


def _list(value: Any, what: str) -> Sequence[Any]:
    if value.__class__ is not list and value.__class__ is not tuple:
        raise Malformed(f"{what} is a list, not {shown(value)}")
    sequence: Sequence[Any] = value
    return sequence


def _number(value: Any, what: str) -> int:
    # Not isinstance: True is an int, but not a number here.
    if value.__class__ is not int or not 0 <= value <= INT_MAX:
        raise Malformed(f"{what} is a number from 0 to {INT_MAX}, not {shown(value)}")
    number: int = value
    return number


def _node(value: Any, what: str) -> NodeId:
    if _number(value, what) == 0:
        raise Malformed(f"{what} is not a member id: 0")
    return NodeId(value)

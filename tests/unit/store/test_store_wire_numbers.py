"""What other releases and other processes read: numbers of words, records and versions never change, and what is left
out of a value means nothing."""

from __future__ import annotations

import dataclasses
from enum import IntEnum
from importlib import import_module
from typing import Any

import pytest
from declared import modules

from minikube_py.raft.configuration import NodeId
from minikube_py.store.bootstrap import cluster_id_of
from minikube_py.store.membership import Member

KINDS = {
    "raft/configuration.ChangeType": "ADD_VOTER=0 REMOVE=1 ADD_LEARNER=2",
    "raft/message.EntryKind": "NORMAL=0 CHANGE=1",
    "raft/message.MessageType": "HUP=0 PRE_VOTE=1 PRE_VOTE_REPLY=2 VOTE=3 VOTE_REPLY=4 APPEND=5 APPEND_REPLY=6 "
    "HEARTBEAT=7 HEARTBEAT_REPLY=8 SNAPSHOT=9 READ_INDEX=10 READ_INDEX_REPLY=11 TRANSFER=12 TIMEOUT_NOW=13 TELL=14",
    "wal/record.RecordType": "SEGMENT=1 ENTRIES=2 HARD_STATE=3 JOINED=4 INSTALLED=5 SNAPSHOT_HEAD=16 "
    "SNAPSHOT_CHUNK=17 SNAPSHOT_END=18",
    "store/membership.ChangeKind": "BOOTSTRAP=1 EXPECT=2 JOIN=3 PROMOTE=4 REMOVE=5 UPDATE=6",
    "store/peer_protocol.Ask": "LINK=1 WHO=2 JOIN=3",
    "store/peer_protocol.Say": "MESSAGE=0 PING=1 OFFER=2 CHUNK=3",
    "store/peer_protocol.Reply": "REFUSED=0 WELCOME=1 WHO=2 JOINED=3 NOT_LEADER=4 FAILED=5 ALIVE=6 PONG=7 WANT=8 "
    "DONE=9",
    "store/peer_protocol.Refusal": "GARBLED=0 VERSION=1 TOKEN=2 CLUSTER=3 ADDRESSEE=4 STRANGER=5 REMOVED=6 EARLY=7 "
    "FULL=8",
    "store/protocol.Op": "COMMAND=1 RANGE=2 WATCH=3 CANCEL=4 KEEP_ALIVE=5 STATUS=7 MEMBERS=8 MEMBER_CHANGE=9 "
    "TRANSFER=10 HASH=11 SNAPSHOT=12 PING=13 INDEXES=14 EXPLAIN=15 REMAINING=16",
    "store/protocol.Answer": "OK=0 ERROR=1 PART=2 EVENTS=3 END=4 FRAGMENT=5 LEADER=6",
}
NUMBERS = {
    "mvcc/codec": "VERSION=1 PUT=1 DELETE=2 TXN=3 GRANT=4 REVOKE=5 CHECKPOINT=6 COMPACT=7 DECLARE=8 RANGE=9 OPEN=10 "
    "IN_SESSION=11 CLOSE=12 DECLARE_INDEX=13 DROP_INDEX=14 RAISE=15 SET_ALARM=16 RELEASE=17 CHANGE_AUTH=18 AS_USER=19 "
    "PUT_RESULT=20 DELETE_RESULT=21 TXN_RESULT=22 LEASE_RESULT=23 COMPACT_RESULT=24 RANGE_RESULT=25 "
    "SESSION_RESULT=26 EVENT=30 BATCH=31 ERROR=32",
    "mvcc/snapshot": "FORMAT=3 HEAD=0 BASE=1 EVENTS=2 BOUNDARY=3 LEASE=4 FIELDS=5 END=6 SESSION=7 ALARM=8 "
    "USERS_AND_ROLES=9",
    "mvcc/auth": "READ=0 WRITE=1 READWRITE=2",
    "mvcc/lease": "NO_LEASE=0",
    "mvcc/types": r"SINGLE_KEY=b'' FROM_KEY=b'\x00'",
    "mvcc/validate": "INT64_MIN=-9223372036854775808 INT64_MAX=9223372036854775807",
    "mvcc/versions": "FIRST=1 LATEST=4 GRANTS_HAVE_NAMES=2 TXNS_HAVE_BUDGETS=2 ALARMS=2 RELEASES=3 USERS=4",
    "raft/codec": "INT_MAX=9223372036854775807",
    "raft/message": "NOBODY=0",
    "raft/reads": "ID_BYTES=8",
    "raft/state": "TRANSFER=b'transfer'",
    "store/hash_check": "ASKED=1 SAID=2",
    "store/identity": "ID_BITS=63",
    "store/membership": "ID_MAX=9223372036854775807 NO_ID=0",
    "store/peer_protocol": "PEER_VERSION=1",
    "store/protocol": "VERSION=3 SERIALIZABLE=1",
    "store/upkeep": "PROPOSE=0",
    "wal/record": r"MAGIC=b'\xd7WL' HEADER_BYTES=16",
    "wal/checksums": "POLYNOMIAL=3988292384 ONE=2147483648 ORDER=4294967295",
    "wal/segment": "FORMAT_VERSION=1 HEAD_BYTES=4096",
}
SWITCHES = {
    "raft/state.RaftConfig": {"pre_vote": True, "check_quorum": True, "lease_reads": False, "release": 0},
    "store/member_config.MemberConfig": {"own_gc": False, "lease_reads": False, "version": 4},
    "store/replica_config.ReplicaConfig": {"lease_reads": False, "version": 4},
    "store/replica_config.Bootstrap": {"version": 4},
    "store/bootstrap.Form": {"version": 4},
    "store/membership.MemberChange": {"version": 1},
    "store/recovery._Base": {"version": 1},
    "mvcc/types.RangeRequest": {"order": "KEY", "sort_target": "KEY", "sort_order": "NONE"},
}
"""Defaults that stand for something; sizes and waits are on the page of limits."""


def test_the_numbers_of_kinds_are_what_they_were() -> None:
    found = {
        f"{name}.{word}": " ".join(f"{each.name}={each.value}" for each in kind)
        for name, module in modules()
        for word, kind in vars(module).items()
        if isinstance(kind, type) and issubclass(kind, IntEnum) and kind.__module__ == module.__name__
    }
    assert found == KINDS


@pytest.mark.parametrize("name", NUMBERS)
def test_the_numbers_of_formats_and_words_are_what_they_were(name: str) -> None:
    module = import_module(f"minikube_py.{name.replace('/', '.')}")
    told = [each.partition("=") for each in NUMBERS[name].split(" ")]
    assert [f"{word}={getattr(module, word)!r}" for word, _, _ in told] == [
        f"{word}={value}" for word, _, value in told
    ]


def defaults() -> dict[str, dict[str, Any]]:
    """Of named tuples and dataclasses of the four packages."""
    found: dict[str, dict[str, Any]] = {}
    for name, module in modules():
        for word, kind in vars(module).items():
            if not isinstance(kind, type) or kind.__module__ != module.__name__:
                continue
            if dataclasses.is_dataclass(kind):
                declared = {each.name: each.default for each in dataclasses.fields(kind)}
                found[f"{name}.{word}"] = {k: v for k, v in declared.items() if v is not dataclasses.MISSING}
            elif issubclass(kind, tuple):
                found[f"{name}.{word}"] = dict(getattr(kind, "_field_defaults", {}))
    return found


def test_what_is_left_out_of_a_value_means_nothing() -> None:
    """It is no number, no text, false or nothing at all: whoever leaves a field out gets the same as one who knows none
    of it."""
    for owner, of in defaults().items():
        switches = SWITCHES.get(owner, {})
        assert {name: of[name] for name in switches} == switches
        if owner.endswith(("Config", "Limits")):
            flags = {name for name, value in of.items() if isinstance(value, bool)}
            assert flags <= set(switches), f"{owner} has a switch that no test names"
        else:
            left = {name: value for name, value in of.items() if name not in switches}
            assert {name: value for name, value in left.items() if value} == {}, owner


def test_there_is_something_to_look_at() -> None:
    found = defaults()
    assert sum(map(len, found.values())) > 150 and found["raft/message.Message"]["context"] == b""


def test_members_of_all_releases_give_a_cluster_the_same_id() -> None:
    members = [Member(NodeId(1), "one", "h:1", "c:1"), Member(NodeId(2), "two", "h:2", "c:2")]
    assert cluster_id_of(members, 1) == 1822757053450432447
    assert cluster_id_of(members, 4) == cluster_id_of(members[::-1], 4) == 1852835041385676656

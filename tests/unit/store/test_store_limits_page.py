"""docs/reference/store-limits.md names every number that bounds the store, with the value that is in force."""

from __future__ import annotations

import ast
import re
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import ModuleType

from declared import modules

from minikube_py.store.replica_config import ReplicaConfig

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "store-limits.md"
NO_LIMITS = re.compile(
    r"raft/codec\.INT_MAX|raft/log\.(START|BEFORE_ALL|NORMAL|CHANGE)|raft/message\.NOBODY|raft/progress\.NONE|"
    r"raft/quorum\.NOTHING|raft/reads\.ID_BYTES|wal/record\.HEADER_BYTES|wal/checksums\.(POLYNOMIAL|ONE|ORDER)|"
    r"wal/segment\.(FORMAT_VERSION|HEAD_BYTES)|mvcc/codec\..*|mvcc/versions\..*|mvcc/auth\.(READ|WRITE|READWRITE)|"
    r"mvcc/lease\.NO_LEASE|mvcc/successor\.FIRST_REVISION|mvcc/validate\.INT64_(MIN|MAX)|mvcc/snapshot\.(?!S\w+_).*|"
    r"mvcc/snapshot\.USERS_AND_ROLES|store/behind_gaps\.CHANGE|store/client_session\.IDLE|"
    r"store/hash_check\.(ASKED|SAID)|store/identity\.ID_BITS|store/membership\.(ID_MAX|NO_ID)|"
    r"store/(peer_)?protocol\.(\w*VERSION|SERIALIZABLE)|store/upkeep\.PROPOSE|"
    r"raft/state\.RaftConfig\.release|store/(replica|member)_config\.\w+\.version"
)
"""Numbers that stand for something (of formats and words on the wire, kinds, the first of a row), or nothing at all:
`test_store_wire_numbers` has those that others read."""


def is_number(value: object) -> bool:
    return type(value) in (int, float)


def assigned(module: ModuleType) -> set[str]:
    """The names on the left side of an assignment at the module's level."""
    statements = ast.parse(Path(str(module.__file__)).read_text()).body
    targets = [each for each in statements if isinstance(each, ast.Assign | ast.AnnAssign)]
    return {
        node.id
        for each in targets
        for target in (each.targets if isinstance(each, ast.Assign) else [each.target])
        for node in ast.walk(target)
        if isinstance(node, ast.Name)
    }


def numbers() -> dict[str, float]:
    """Of modules and of what configures, by name; those that another module defines are listed there alone."""
    found: dict[str, float] = {}
    for name, module in modules():
        own = assigned(module)
        for word, value in vars(module).items():
            if word.isupper() and not word.startswith("_") and is_number(value) and word in own:
                found[f"{name}.{word}"] = float(value)
            if is_dataclass(value) and value.__module__ == module.__name__ and re.search(r"(Config|Limits)$", word):
                for field in fields(value):
                    if is_number(field.default):
                        found[f"{name}.{word}.{field.name}"] = float(field.default)
    return {name: value for name, value in found.items() if not NO_LIMITS.fullmatch(name)}


def inherited(name: str) -> bool:
    """`MemberConfig` has what `ReplicaConfig` has, which is where the page tells it."""
    owner, _, field = name.rpartition(".")
    return owner.endswith("MemberConfig") and field in {each.name for each in fields(ReplicaConfig)}


def told() -> dict[str, float]:
    heads = {
        "Raft": "raft",
        "The log's files": "wal",
        "The state machine": "mvcc",
        "Members, clients and links": "store",
    }
    found: dict[str, float] = {}
    package = ""
    for line in PAGE.read_text().splitlines():
        if line.startswith("## "):
            package = heads[line[3:]]
        elif row := re.match(r"\| `([\w.]+)` \| ([0-9.e+-]+) \| \S", line):
            assert f"{package}/{row[1]}" not in found
            found[f"{package}/{row[1]}"] = float(row[2])
    return found


def test_the_page_tells_each_limit_with_its_value() -> None:
    assert told() == {name: value for name, value in numbers().items() if not inherited(name)}


def test_a_member_is_bounded_as_a_replica_is() -> None:
    of_members = {name.rpartition(".")[2]: value for name, value in numbers().items() if inherited(name)}
    of_replicas = {name.rpartition(".")[2]: value for name, value in told().items() if ".ReplicaConfig." in name}
    assert of_members == of_replicas and len(of_members) >= 9

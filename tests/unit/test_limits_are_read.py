"""A limit that nothing reads bounds nothing: each field of each dataclass of limits is read where it counts."""

from __future__ import annotations

import ast
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest

import minikube_py

PACKAGE = Path(minikube_py.__file__).parent
LIMITS = {"apiserver/limits.py", "store/limits.py", "store/peer_connection.py", "ports/descriptors.py", "etcd/http.py",
          "etcd/grpc_server.py", "http2/limits.py"}  # fmt: skip


def is_dataclass(node: ast.ClassDef) -> bool:
    return any("dataclass" in ast.unparse(each) for each in node.decorator_list)


@cache
def read() -> tuple[list[tuple[str, str, str]], dict[str, set[str]]]:
    """The fields of all classes of limits as (file, class, field); by name, the files that read such an attribute."""
    declared: list[tuple[str, str, str]] = []
    reads: defaultdict[str, set[str]] = defaultdict(set)
    for path in sorted(PACKAGE.rglob("*.py")):
        file = path.relative_to(PACKAGE).as_posix()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and node.name.endswith("Limits") and is_dataclass(node):
                declared += [
                    (file, node.name, each.target.id)
                    for each in node.body
                    if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
                ]
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                reads[node.attr].add(file)
    return declared, reads


def test_all_classes_of_limits_are_looked_at() -> None:
    assert {file for file, _, _ in read()[0]} == LIMITS


@pytest.mark.parametrize("file", sorted(LIMITS))
def test_each_limit_is_read_by_its_package(file: str) -> None:
    """Or by what all packages share: the ports, and what wires them."""
    declared, reads = read()
    homes = (file.partition("/")[0] + "/", "ports/", "control_plane/")
    unread = [
        f"{name}.{field}"
        for found, name, field in declared
        if found == file and not any(reader.startswith(homes) for reader in reads[field])
    ]
    assert not unread, f"nothing reads {unread}"

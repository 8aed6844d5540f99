"""No module keeps an exception to raise again: each raise adds to its traceback, whose frames hold what they held."""

from __future__ import annotations

import ast
import builtins
from pathlib import Path

import pytest

from minikube_py.api.schema import SCHEMA
from minikube_py.api.typed import Undecided, checker

PACKAGE = Path(__file__).parents[2] / "minikube_py"
OF_PYTHON = {
    name for name, each in vars(builtins).items() if isinstance(each, type) and issubclass(each, BaseException)
}


def bases_of(node: ast.ClassDef) -> set[str]:
    return {ast.unparse(base).rpartition(".")[2] for base in node.bases}


def test_no_module_keeps_an_exception() -> None:
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in PACKAGE.rglob("*.py")}
    classes = [node for tree in trees.values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    bases = {each.name: bases_of(each) for each in classes}
    known = OF_PYTHON
    while more := {name for name, of in bases.items() if of & known} - known:
        known = known | more
    assert "Undecided" in known and "StatusError" in known
    kept = []
    for path, tree in trees.items():
        own = {node.name: bool(bases_of(node) & known) for node in tree.body if isinstance(node, ast.ClassDef)}
        for node in tree.body:
            if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Call):
                name = ast.unparse(node.value.func).rpartition(".")[2]
                kept += [f"{path}:{node.lineno}"] * own.get(name, name in known)
    assert not kept


def test_what_the_fast_checker_leaves_to_the_reader_is_not_remembered() -> None:
    message = SCHEMA.kind("", "v1", "Pod")
    assert message is not None
    check, depths = checker(message), []
    for _ in range(3):
        with pytest.raises(Undecided) as caught:
            check({"spec": {"nobodyKnows": 1}})
        traceback, depth = caught.value.__traceback__, 0
        while traceback is not None:
            traceback, depth = traceback.tb_next, depth + 1
        depths.append(depth)
    assert len(set(depths)) == 1

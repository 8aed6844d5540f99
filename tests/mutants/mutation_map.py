"""Which tests run which lines, and at what cost: measured once for a commit, and kept beside the journal.

A line of JSON for each file of tests, and one for the histories; an interrupted measurement goes on where it was.
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from mutation_operators import Change
from mutation_tree import Tree
from mutation_worker import Request

JUDGES: Final = (
    "tests/unit/raft", "tests/unit/wal", "tests/unit/mvcc", "tests/unit/store", "tests/property", "tests/sim",
    "tests/integration",
)  # fmt: skip
"""Where the tests lie that may judge a mutant."""
PATTERN: Final = re.compile(
    r"test_(sim|index|property_(index|mvcc)|raft|sessions|store|wal|mvcc|etcd|edges|apply_(total|replicas))(?!_laws\.|_commands|_kill|_three)"
)
"""Those of these packages, if they run in the process of the test; histories are run by themselves."""
OF_DECLARATIONS: Final = ("test_store_limits_page.py", "test_store_wire_numbers.py")
"""Tests that read what modules declare. No line of those runs then: they judge whatever runs at import."""
SAMPLE_HISTORIES: Final = 12
HISTORIES, IMPORT = "histories", "import"
COST_MAX_S: Final = 40.0
"""A test that takes longer than that in all its parameters is left to the histories."""


@dataclass(frozen=True, slots=True)
class Coverage:
    """`lines[path][line]`: the tests that run it; `histories[path]`: the lines that histories run; `imported[path]`:
    those that run while tests are collected. `unfit` tests fail without a mutant, too."""

    cost_s: dict[str, float] = field(default_factory=dict)
    lines: dict[str, dict[int, list[str]]] = field(default_factory=dict)
    histories: dict[str, list[int]] = field(default_factory=dict)
    unfit: set[str] = field(default_factory=set)
    imported: dict[str, list[int]] = field(default_factory=dict)
    importers: dict[str, list[str]] = field(default_factory=dict)
    """The modules that name a module in an import."""
    kills: Counter[str] = field(default_factory=Counter)
    """How many mutants each test has killed so far."""

    def judges(self, change: Change) -> list[str]:
        """The tests that run a line of the change. For what runs at import (a declaration, a default), those that run
        its module, or, where that only declares, the modules that import it. First come the cheapest, and those
        that have killed before: one kill counts as half of the cost."""
        of = self.lines.get(change.path, {})
        found = {name for line in range(change.line, change.end_line + 1) for name in of.get(line, ())}
        if self.at_import(change) or not (found or change.function):
            users = self.importers.get(change.path, ())
            found |= self._run(change.path) or {name for path in users for name in self._run(path)}
            found |= {name for name in self.cost_s if name.partition("::")[0].endswith(OF_DECLARATIONS)}
        fit = (name for name in found.difference(self.unfit) if self.cost_s[name] <= COST_MAX_S)
        return sorted(fit, key=lambda name: (self.cost_s[name] / (1 + self.kills[name]), name))

    def _run(self, path: str) -> set[str]:
        """The tests that run something of a module, and not only import it, as whichever is first does."""
        imported = set(self.imported.get(path, ()))
        return {name for line, names in self.lines.get(path, {}).items() if line not in imported for name in names}

    def at_import(self, change: Change) -> bool:
        of = self.imported.get(change.path, [])
        return any(change.line <= line <= change.end_line for line in of)

    def in_histories(self, change: Change) -> bool:
        of = self.histories.get(change.path, [])
        return bool(of) and (not change.function or any(change.line <= line <= change.end_line for line in of))

    def add(self, found: dict[str, Any]) -> None:
        """What was measured of one file of tests, as JSON has it."""
        self.cost_s.update(found["cost_s"])
        self.unfit.update(found["unfit"])
        for path, of in found["lines"].items():
            for line, names in of.items():
                self.lines.setdefault(path, {}).setdefault(int(line), []).extend(names)


def measured(path: Path, tree: Tree, packages: Iterable[str], tell: Callable[[str], None]) -> Coverage:
    """What `path` has of it, and what it lacks: a first run takes minutes. What another commit's map beside it says of
    a file of tests holds here, too, if neither it nor a module that it ran differs.

    Raises: SystemExit if histories fail."""
    coverage = Coverage(importers=importers(tree.folder))
    done: set[str] = set()
    for line in path.read_text().splitlines() if path.is_file() else ():
        entry = json.loads(line)
        done.add(entry["name"])
        _take(coverage, entry)
    prefixes = tuple(f"{package}/" for package in packages)
    known = {entry["name"]: entry for entry in _of_other_commits(path, tree.folder)}
    for name in (*files(tree.folder), HISTORIES, IMPORT):
        if name not in done:
            entry = known.get(name) or _measure(tree, name, prefixes, tell)
            with path.open("a") as file:
                file.write(json.dumps(entry) + "\n")
            _take(coverage, entry)
    return coverage


def _of_other_commits(path: Path, folder: Path) -> Iterator[dict[str, Any]]:
    """What still holds: each of its sources is as it was."""
    for other in sorted(path.parent.parent.glob(f"*/{path.name}")):
        for entry in map(json.loads, other.read_text().splitlines() if other != path else ()):
            sources = entry.get("sources")
            if sources and sources == {name: digest(folder / name) for name in sources}:
                yield entry


def digest(file: Path) -> str:
    """Of its contents; "" where there is none."""
    return hashlib.sha256(file.read_bytes()).hexdigest()[:16] if file.is_file() else ""


def _sources(folder: Path, name: str, found: dict[str, Any]) -> dict[str, str]:
    """What decides what was measured of a file of tests, but for what tests share: itself, and the modules it ran."""
    if name in (HISTORIES, IMPORT):
        return {}
    ran = sorted(f"minikube_py/{path}" for path, of in found["lines"].items() if any(of.values()))
    return {each: digest(folder / each) for each in (name, *ran)}


def _take(coverage: Coverage, entry: dict[str, Any]) -> None:
    if entry["name"] == HISTORIES:
        coverage.histories.update(entry["found"]["lines"])
    elif entry["name"] == IMPORT:
        coverage.imported.update(entry["found"]["lines"])
    else:
        coverage.add(entry["found"])


def files(folder: Path) -> Iterator[str]:
    for where in JUDGES:
        for file in sorted((folder / where).rglob("test_*.py")):
            if PATTERN.match(file.name):
                yield file.relative_to(folder).as_posix()


def importers(folder: Path) -> dict[str, list[str]]:
    """By a module's path, the paths of those that import it or something of it, below `minikube_py/`."""
    root = folder / "minikube_py"
    found: dict[str, list[str]] = {}
    for file in sorted(root.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("minikube_py."):
                place = root.parent / node.module.replace(".", "/")
                for each in (place.with_suffix(".py"), *(place / f"{alias.name}.py" for alias in node.names)):
                    if each.is_file():
                        found.setdefault(each.relative_to(root).as_posix(), []).append(
                            file.relative_to(root).as_posix()
                        )
    return found


def _measure(tree: Tree, name: str, prefixes: tuple[str, ...], tell: Callable[[str], None]) -> dict[str, Any]:
    if name == HISTORIES:
        answer = tree.ask(Request("measure_histories", seeds=list(range(SAMPLE_HISTORIES)), cpu_s=900))
        if answer.outcome != "passed":
            raise SystemExit(f"histories without a mutant: {answer.outcome}, {answer.by}: {answer.text}")
    elif name == IMPORT:
        answer = tree.ask(Request("measure_import", list(files(tree.folder)), cpu_s=900))
        if answer.outcome != "passed":
            raise SystemExit(f"tests cannot be collected: {answer.text}")
    else:
        answer = tree.ask(Request("measure_tests", [name], cpu_s=900))
    found = answer.found or {"cost_s": {}, "unfit": [], "lines": {}}
    found["lines"] = {path: of for path, of in found["lines"].items() if path.startswith(prefixes)}
    unfit = found.get("unfit", ())
    tell(f"measured {name}: {answer.outcome}, {answer.cpu_s:.0f} s{', unfit: ' if unfit else ''}{', '.join(unfit)}")
    return {"name": name, "found": found, "sources": _sources(tree.folder, name, found)}

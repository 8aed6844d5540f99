#!/usr/bin/env python3
"""Checks that the code stays small: lines for each package, for each module and for each function.

    python tools/check_size.py            exits with 1 and says what is too long
    python tools/check_size.py --show     every package with its lines and its budget

`budgets.toml` holds the limits. A package's budget is raised only by an ADR in docs/adr, which the same commit adds.
The exceptions to the limits of modules and functions may shrink and go; none is added.
"""

from __future__ import annotations

import ast
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
BUDGETS = Path(__file__).with_name("budgets.toml")
PRODUCT = "minikube_py"
CHECKED = (PRODUCT, "tests", "tools")


@dataclass(frozen=True, slots=True)
class Budgets:
    """Lines. `modules` are exceptions by path, `functions` by `path:qualified.name`."""

    packages: Mapping[str, int]
    module_lines: int
    function_lines: int
    modules: Mapping[str, int] = field(default_factory=dict)
    functions: Mapping[str, int] = field(default_factory=dict)


def read_budgets(path: Path = BUDGETS) -> Budgets:
    document: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    limits, exceptions = document["limits"], document.get("exceptions", {})
    return Budgets(
        document["packages"], limits["module"], limits["function"],
        exceptions.get("modules", {}), exceptions.get("functions", {}),
    )  # fmt: skip


def package_lines(root: Path = ROOT) -> dict[str, int]:
    """Lines of each package; a module beside them counts as one, by its name."""
    counted: Counter[str] = Counter()
    for path in _modules(root, PRODUCT):
        counted[path.relative_to(root / PRODUCT).parts[0].removesuffix(".py")] += _lines(path)
    return dict(counted)


def too_long(budgets: Budgets, root: Path = ROOT) -> list[str]:
    """What exceeds its limit, one line each; empty if nothing does."""
    counted = package_lines(root)
    found = []
    for name, lines in sorted(counted.items()):
        budget = budgets.packages.get(name)
        if budget is None:
            found.append(f"{PRODUCT}/{name} has {lines} lines and no budget in tools/budgets.toml: it needs an ADR")
        elif lines > budget:
            found.append(f"{PRODUCT}/{name} has {lines} lines, {lines - budget} over its budget: raise only by an ADR")
    found += [f"{name} has a budget and no code: take it out" for name in budgets.packages if name not in counted]
    for top in CHECKED:
        for path in _modules(root, top):
            found += _module_too_long(path, path.relative_to(root).as_posix(), budgets)
    return found


def _module_too_long(path: Path, name: str, budgets: Budgets) -> Iterator[str]:
    lines = _lines(path)
    if lines > (limit := budgets.modules.get(name, budgets.module_lines)):
        yield f"{name} has {lines} lines; the limit is {limit}: split it by what it is about"
    for function, length in functions(path):
        if length > (limit := budgets.functions.get(f"{name}:{function}", budgets.function_lines)):
            yield f"{name}:{function} has {length} lines; the limit is {limit}: split it"


def functions(path: Path) -> Iterator[tuple[str, int]]:
    """Qualified names with their line counts, without decorators."""
    pending: list[tuple[ast.AST, str]] = [(ast.parse(path.read_text(encoding="utf-8")), "")]
    while pending:
        node, prefix = pending.pop()
        for child in _statements(node):
            name = prefix
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                name = f"{prefix}.{child.name}" if prefix else child.name
                if not isinstance(child, ast.ClassDef):
                    yield name, (child.end_lineno or child.lineno) - child.lineno + 1
            pending.append((child, name))


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    """Directly within: functions and classes are in no expression, and most of a tree is expressions."""
    for name in ("body", "orelse", "handlers", "finalbody", "cases"):
        within = getattr(node, name, None)
        if isinstance(within, list):
            yield from within


def _modules(root: Path, top: str) -> Iterator[Path]:
    return iter(sorted((root / top).rglob("*.py")))


def _lines(path: Path) -> int:
    return path.read_bytes().count(b"\n")


def main(arguments: list[str]) -> int:
    budgets = read_budgets()
    if "--show" in arguments:
        for name, lines in sorted(package_lines().items()):
            print(f"{name:<16}{lines:>7} of {budgets.packages.get(name, 0):>7}")
    found = too_long(budgets)
    for line in found:
        print(line, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

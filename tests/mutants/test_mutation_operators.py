"""The operators: each changes one place, in the same way each time, into something that parses."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest
from mutation_draw import BLOCK, QUOTAS, candidates, draw
from mutation_operators import OPERATORS, Change, changes

ROOT = Path(__file__).resolve().parents[2]
NAMES = [operator.name for operator in OPERATORS]
SOURCE = '''"""A module with something for each operator. Not this: 5 < 6."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    LIMIT = 3

SIZE: int = 10
Message = int | str


@dataclass(frozen=True)
class Thing(Base, metaclass=Meta):
    """Docstrings stay."""

    count: int = 0

    def step(self, items: list[int], *, most: int = 4) -> int | None:
        """So do these."""
        total = 0
        for at in range(1, len(items)):
            if not items[at] or (total < most and "ä" in self.names):
                continue
            total += items[at] * 2
            if total > 7:
                break
        try:
            self.save(total, most, sync=True)
        except ValueError as error:
            raise Refused(f"no more than {most + 1}", 400) from error
        assert total >= 0
        return max(total, len(items[1:most]))


async def send(link, data):
    await link.write(data)
    link.sent = link.sent + [byte for byte in data if byte != 0]
    return None
'''


def of(operator: str) -> list[Change]:
    return [change for change in changes("thing.py", SOURCE) if change.operator == operator]


def told(operator: str) -> set[tuple[str, str]]:
    return {(change.old, change.new) for change in of(operator)}


def differences(old: ast.AST, new: ast.AST) -> Iterator[tuple[ast.AST, ast.AST]]:
    """The lowest nodes that hold all that is different below them."""
    if type(old) is not type(new):
        yield old, new
        return
    below = list(zip(ast.iter_child_nodes(old), ast.iter_child_nodes(new), strict=False))
    alike = len(list(ast.iter_child_nodes(old))) == len(list(ast.iter_child_nodes(new)))
    own = [(getattr(old, name), getattr(new, name)) for name in old._fields]
    values = all(isinstance(a, ast.AST | list) or a == b for a, b in own)
    if not (alike and values):
        yield old, new
        return
    for a, b in below:
        if ast.dump(a) != ast.dump(b):
            yield from differences(a, b)


@pytest.mark.parametrize("operator", NAMES)
def test_each_operator_has_something_to_change(operator: str) -> None:
    assert of(operator), operator


@pytest.mark.parametrize("change", changes("thing.py", SOURCE), ids=lambda change: f"{change.operator}-{change.key}")
def test_a_change_parses_and_differs_in_exactly_one_place(change: Change) -> None:
    healthy = ast.parse(SOURCE)
    mutant = change.apply(SOURCE.encode()).decode()
    tree = ast.parse(mutant)
    assert ast.dump(tree) != ast.dump(healthy)
    # Two arguments that change places are two differences of one call.
    most = 2 if change.operator == "arguments" else 1
    assert 1 <= len(list(differences(healthy, tree))) <= most, mutant


def test_one_change_lies_in_one_span_of_the_text() -> None:
    source = SOURCE.encode()
    for change in changes("thing.py", SOURCE):
        assert source[change.start : change.end].decode() == change.old
        mutant = change.apply(source)
        assert mutant.startswith(source[: change.start]) and mutant.endswith(source[change.end :])


def test_the_same_source_has_the_same_changes_with_keys_of_their_own() -> None:
    first, second = changes("thing.py", SOURCE), changes("thing.py", SOURCE)
    assert first == second
    assert len({change.key for change in first}) == len(first)


def test_a_key_outlives_lines_that_are_put_in_above() -> None:
    moved = changes("thing.py", SOURCE.replace("SIZE: int", "\n\nSIZE: int"))
    assert [change.key for change in moved] == [change.key for change in changes("thing.py", SOURCE)]


@pytest.mark.parametrize(
    ("operator", "expected"),
    [
        ("comparison", ("total < most", "(total <= most)")),
        ("comparison", ("byte != 0", "(byte == 0)")),
        ("comparison", ('"ä" in self.names', "('ä' not in self.names)")),
        ("boundary", ("len(items)", "(len(items) - 1)")),
        ("boundary", ("7", "(7 + 1)")),
        ("boundary", ("most", "(most + 1)")),
        ("negation", ("not items[at]", "(items[at])")),
        ("negation", ("total > 7", "(not total > 7)")),
        ("constant", ("True", "False")),
        ("constant", ("10", "11")),
        ("deletion", ("self.save(total, most, sync=True)", "pass")),
        ("deletion", ("await link.write(data)", "pass")),
        ("deletion", ("total += items[at] * 2", "pass")),
        ("arguments", ("self.save(total, most, sync=True)", "(self.save(most, total, sync=True))")),
        ("arguments", ("self.save(total, most, sync=True)", "(self.save(total, most))")),
        ("return", ("max(total, len(items[1:most]))", "None")),
        ("loop", ("continue", "break")),
        ("loop", ("break", "continue")),
        ("swallow", ('raise Refused(f"no more than {most + 1}", 400) from error', "pass")),
        ("arithmetic", ("items[at] * 2", "(items[at] + 2)")),
        ("arithmetic", ("total += items[at] * 2", "total -= items[at] * 2")),
        ("arithmetic", ("max", "min")),
    ],
)
def test_what_an_operator_does(operator: str, expected: tuple[str, str]) -> None:
    assert expected in told(operator)


def test_what_is_said_to_people_and_to_type_checkers_is_left_alone() -> None:
    spans = {change.old for change in changes("thing.py", SOURCE)}
    assert not spans & {"5 < 6", "3", "frozen=True", "most + 1", "400", "int | None", "int | str", "Meta"}


@pytest.mark.parametrize("package", QUOTAS)
def test_real_modules_have_changes_that_parse(package: str) -> None:
    found = candidates(ROOT, package)
    for change in found[:: max(1, len(found) // 60)]:
        ast.parse(change.apply((ROOT / "minikube_py" / change.path).read_bytes()))
    assert len(found) > 300


def test_a_draw_is_fixed_by_its_seed_and_keeps_its_shares() -> None:
    found = {package: candidates(ROOT, package) for package in QUOTAS}
    small = list(islice(draw(found, "a" * 40), 2 * BLOCK))
    large = list(islice(draw(found, "a" * 40), 20 * BLOCK))
    assert large[: len(small)] == small
    assert small != list(islice(draw(found, "b" * 40), 2 * BLOCK))
    assert Counter(change.package for change in large) == {name: 20 * quota for name, quota in QUOTAS.items()}
    assert len({change.key for change in large}) == len(large)
    assert min(Counter(change.operator for change in large if change.package == "store").values()) >= 16


def test_a_draw_ends_when_nothing_is_left() -> None:
    found = {"wal": changes("wal/thing.py", SOURCE)}
    assert sorted(draw(found, "c"), key=lambda change: change.key) == sorted(
        found["wal"], key=lambda change: change.key
    )

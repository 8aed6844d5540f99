"""Rules whose verbs, groups, resources and names multiply: the time that they take grows with their length alone."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice, product
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from turns import LINES_MAX

from minikube_py.apiserver import escalation, rules
from minikube_py.apiserver.escalation import LISTED_BYTES_MAX, LISTED_MAX, TooWide, lacking, uncovered
from minikube_py.apiserver.rules import KEYS_MAX, Rule, User, compiled

WORDS = ("a", "b", "c", "*")
RESOURCES = ("r", "s", "r/status", "s/status", "*/status", "*")
PATHS = ("/x", "/x/y", "/x/*", "/x/**", "/*", "*")


def some(values: tuple[str, ...]) -> st.SearchStrategy[tuple[str, ...]]:
    return st.lists(st.sampled_from(values), max_size=3).map(tuple)


RULES = st.one_of(
    st.builds(Rule, some(WORDS), some(WORDS), some(RESOURCES), some(("n", "m", "*", ""))),
    st.builds(Rule, some(WORDS), paths=some(PATHS)),
)


@given(st.lists(RULES, max_size=6), st.sampled_from((0, 3, 10, KEYS_MAX)), st.data())
def test_rights_of_any_size_decide_as_the_rules_do(held: list[Rule], room: int, data: st.DataObject) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rules, "KEYS_MAX", room)
        rights = compiled(held)
    verb = data.draw(st.sampled_from(WORDS[:3]))
    asked = verb, data.draw(st.sampled_from(WORDS[:3])), data.draw(st.sampled_from(RESOURCES[:4])), "n"
    assert rights.allow(*asked) == any(rule.allows(*asked) for rule in held)
    path = data.draw(st.sampled_from(("/x", "/x/y", "/x/z", "/q")))
    assert rights.allow_path(verb, path) == any(rule.allows(verb, "", "", "", path) for rule in held)


def brute(held: list[Rule], wanted: list[Rule]) -> list[Rule]:
    """Each permission held against each rule, as upstream does."""

    def covers(rule: Rule, verb: str, group: str, resource: str, name: str, asked_names: bool) -> bool:
        _, slash, sub = resource.partition("/")
        wider = {"*", resource, *([f"*/{sub}"] if slash else [])}
        named = not rule.names or (asked_names and name in rule.names)
        return (
            not {"*", verb}.isdisjoint(rule.verbs)
            and not {"*", group}.isdisjoint(rule.groups)
            and not wider.isdisjoint(rule.resources)
            and named
        )

    def covers_path(rule: Rule, verb: str, path: str) -> bool:
        found = any(path == each or (each[-1:] == "*" and path.startswith(each.rstrip("*"))) for each in rule.paths)
        return found and not rule.names and not {"*", verb}.isdisjoint(rule.verbs)

    missing = []
    for rule in wanted:
        for group, resource, verb, name in product(rule.groups, rule.resources, rule.verbs, rule.names or ("",)):
            if not any(covers(each, verb, group, resource, name, bool(rule.names)) for each in held):
                missing.append(Rule((verb,), (group,), (resource,), (name,) if rule.names else ()))
        for path, verb in product(rule.paths, rule.verbs):
            if not any(covers_path(each, verb, path) for each in held):
                missing.append(Rule((verb,), paths=(path,)))
    return missing


@given(st.lists(RULES, max_size=4), st.lists(RULES, max_size=3), st.sampled_from((0, LISTED_MAX)))
def test_what_is_missing_is_found_without_multiplying(held: list[Rule], wanted: list[Rule], listed: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(escalation, "LISTED_MAX", listed)
        found = list(uncovered(held, wanted))
    expected = brute(held, wanted)
    if listed:
        assert found == expected
    else:
        assert sorted(map(repr, found)) == sorted(map(repr, expected))


def items(prefix: str, count: int) -> tuple[str, ...]:
    return tuple(f"{prefix}{i}" for i in range(count))


def wide(count: int, **more: Any) -> Rule:
    return Rule(items("v", count), items("g", count), items("r", count), **more)


HELD = {
    "nothing": Rule(("*",), ("x",), ("*",)),
    "everything": Rule(("*",), ("*",), ("*",)),
    "all but the last": Rule(items("v", 999), items("g", 999), items("r", 999)),
}


@contextmanager
def bounded() -> Iterator[None]:
    """Ends what takes more steps than a turn of the loop may."""
    left = LINES_MAX

    def step(frame: FrameType, event: str, _: object) -> Any:
        nonlocal left
        left -= 1
        assert left, "more steps than one turn of the loop may take"
        return step

    before = sys.gettrace()
    sys.settrace(step)
    try:
        yield
    finally:
        sys.settrace(before)


@pytest.mark.parametrize("names", [(), items("n", 1000)])
def test_rights_to_a_thousand_of_each_are_one_step(names: tuple[str, ...]) -> None:
    rule = wide(1000, names=names)
    with bounded():
        rights = compiled([rule] * 3)
    assert rights.allow("v1", "g1", "r1", "n1") and not rights.allow("v1", "g1", "q", "n1")


@pytest.mark.parametrize("held", HELD)
@pytest.mark.parametrize("names", [(), items("n", 1000)])
def test_what_is_missing_of_a_thousand_of_each_is_one_step(held: str, names: tuple[str, ...]) -> None:
    rule = wide(1000, names=names)
    with bounded():
        missing = list(islice(uncovered([HELD[held]], [rule]), LISTED_MAX))
    assert len(missing) == (0 if held == "everything" else LISTED_MAX)


@pytest.mark.parametrize("halves", [False, True])
@pytest.mark.parametrize("count", [40, 250])
def test_held_rules_that_tell_all_items_apart_do_not_multiply(halves: bool, count: int) -> None:
    """Each item has a rule of its own, so that no two are alike."""
    rule = wide(count, names=items("n", count))
    first, second = rule.verbs[::2], rule.verbs[1::2]
    whole = [replace(rule, verbs=first), replace(rule, verbs=second)] if halves else [rule]
    values = rule.in_order()[:4]
    apart = [
        Rule(*(each[i : i + 1] if at == own else each[:1] for at, each in enumerate(values)))
        for i in range(count)
        for own in range(4)
    ]
    with bounded():
        try:
            assert list(islice(uncovered([*apart, *whole], [rule]), LISTED_MAX)) == []
        except TooWide:
            assert halves


class _Nobody:
    def rules_of(self, user: User, namespace: str) -> tuple[list[Rule], list[Any]]:
        return [], []


@pytest.mark.parametrize("rule", [wide(1000), Rule(("get",), ("",), items("r" * 100_000, 50))], ids=("many", "long"))
def test_a_refusal_is_bounded(rule: Rule) -> None:
    with bounded():
        text = lacking(_Nobody(), User("u"), "", [rule])  # type: ignore[arg-type]
    assert len(text) < 2 * LISTED_BYTES_MAX and text.endswith("and more: at most 4,096 in 256 KiB are listed")

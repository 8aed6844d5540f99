"""Laws of apply, over drawn objects of the built-in kinds: done twice is done once, disjoint owners do not depend on
their order, nobody's field is lost to somebody who does not force, and field sets survive their JSON."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from test_api_typed import objects

from minikube_py.api.apply import typed
from minikube_py.api.apply.managed_fields import UPDATE_MANAGERS_MAX, Sender, field_manager
from minikube_py.api.apply.path_set import PathSet
from minikube_py.api.apply.types import Ref, message_type
from minikube_py.api.apply.updater import Conflicts, Managers, Typed, Updater
from minikube_py.api.kinds.core import CONFIGMAPS
from minikube_py.api.schema import SCHEMA

MESSAGES = ("core/v1.Pod", "core/v1.Service", "core/v1.ConfigMap", "apps/v1.Deployment", "core/v1.Node")
V = "v1"
UPDATER = Updater({})
CALM = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


@st.composite
def configs(draw: st.DrawFn, count: int) -> tuple[Ref, list[Any]]:
    """Several configurations of one type, none of which names an item twice."""
    name = draw(st.sampled_from(MESSAGES))
    ref = message_type(name)
    drawn = [draw(objects(SCHEMA.message(name))) for _ in range(count)]
    for each in drawn:
        try:
            typed.validate(each, ref)
        except typed.TypedError:
            assume(False)
    return ref, drawn


def applied(
    live: Any, ref: Ref, managers: Managers, config: Any, manager: str, force: bool = False
) -> tuple[Any, Managers]:
    value, left = UPDATER.apply(Typed(live, ref), Typed(config, ref), V, dict(managers), manager, force)
    return (live if value is typed.ABSENT else value), left


@CALM
@given(configs(2))
def test_applying_twice_is_applying_once(drawn: tuple[Ref, list[Any]]) -> None:
    ref, (before, config) = drawn
    live, managers = applied(None, ref, {}, before, "other")
    live, managers = applied(live, ref, managers, config, "me", True)
    again, owners = applied(live, ref, managers, config, "me")
    assert typed.equal(again, live)
    assert owners == managers


@CALM
@given(configs(2))
def test_what_was_applied_is_there_and_owned(drawn: tuple[Ref, list[Any]]) -> None:
    ref, (before, config) = drawn
    live, managers = applied(None, ref, {}, before, "other")
    live, managers = applied(live, ref, managers, config, "me", True)
    changes = typed.compare(live, config, ref)
    assert not changes.modified - changes.removed
    assert not changes.added or all(_is_empty(config, path) for path in changes.added)
    wanted = typed.field_set(config, ref)
    assert (managers["me"].fields if "me" in managers else PathSet()) == wanted


def _is_empty(config: Any, path: Any) -> bool:
    """Whether the value at the path is an empty map or list, or is in a list."""
    at = config
    for kind, name in path:
        if kind:
            return True
        if not isinstance(at, dict):
            return False
        at = at.get(name)
    return at in ({}, [], None)


@CALM
@given(configs(2))
def test_disjoint_owners_commute(drawn: tuple[Ref, list[Any]]) -> None:
    ref, (one, two) = drawn
    assume(not typed.field_set(one, ref) & typed.field_set(two, ref))
    orders = []
    for first, second in (((one, "one"), (two, "two")), ((two, "two"), (one, "one"))):
        live, managers = applied(None, ref, {}, *first)
        try:
            orders.append(applied(live, ref, managers, *second))
        except Conflicts:
            assume(False)
    (left, owners), (right, others) = orders
    assert owners == others
    changes = typed.compare(left, right, ref)
    # The order of lists is that of their senders; what is in them is the same.
    assert not (changes.removed or changes.added or changes.modified)


@CALM
@given(configs(3))
def test_nobody_loses_a_field_to_who_does_not_force(drawn: tuple[Ref, list[Any]]) -> None:
    ref, (other, mine, later) = drawn
    live, managers = applied(None, ref, {}, other, "other")
    for config in (mine, later):
        before = managers["other"].fields if "other" in managers else PathSet()
        owned = live
        try:
            live, managers = applied(live, ref, managers, config, "me")
        except Conflicts as error:
            assert all(conflict.path in before for conflict in error.conflicts)
            continue
        after = managers["other"].fields if "other" in managers else PathSet()
        assert not after - before
        changes = typed.compare(owned, live, ref)
        for path in (*(before - after), *(before & (changes.removed | changes.modified))):
            # A struct that somebody applied as {} goes with what others had in it: so it does upstream.
            assert _is_empty(other, path)


@CALM
@given(configs(2))
def test_a_removal_takes_what_only_its_sender_owned(drawn: tuple[Ref, list[Any]]) -> None:
    ref, (other, mine) = drawn
    live, managers = applied(None, ref, {}, other, "other")
    live, managers = applied(live, ref, managers, mine, "me", True)
    kept = managers["other"].fields if "other" in managers else PathSet()
    before = live
    live, managers = applied(live, ref, managers, {}, "me")
    assert "me" not in managers
    assert all(_is_empty(other, path) for path in typed.compare(before, live, ref).removed & kept)


@CALM
@given(configs(3))
def test_a_plain_write_owns_what_it_changed_and_nobody_owns_what_is_gone(drawn: tuple[Ref, list[Any]]) -> None:
    ref, (before, *written) = drawn
    live, managers = applied(None, ref, {}, before, "other")
    for new in written:
        changes = typed.compare(live, new, ref)
        managers = UPDATER.update(Typed(live, ref), Typed(new, ref), V, managers, "me")
        live = new
        mine = managers["me"].fields if "me" in managers else PathSet()
        assert not (changes.added | changes.modified) - mine
        assert not any(owned.fields & changes.removed for owned in managers.values())


@CALM
@given(st.lists(st.tuples(st.integers(0, 15), st.integers(0, 3)), max_size=40))
def test_of_many_plain_writers_the_latest_keep_their_names(writes: list[tuple[int, int]]) -> None:
    """Each writes a field of its own, some seconds after the one before; no field is lost."""
    manager, live, now_s = field_manager(CONFIGMAPS), None, 0.0
    data: dict[str, str] = {}
    since: dict[int, float] = {}
    for number, (writer, later_s) in enumerate(writes):
        now_s += 1 + later_s
        data = {**data, f"w{writer}": str(number)}
        new: dict[str, Any] = {"metadata": dict((live or {"metadata": {}})["metadata"]), "data": data}
        manager.update(live, new, Sender(f"m{writer}", wall_s=now_s))
        live = new
        since[writer] = now_s
    entries = live["metadata"]["managedFields"] if live is not None else []
    assert len(entries) <= UPDATE_MANAGERS_MAX
    latest = sorted(since, key=lambda writer: since[writer])[-(UPDATE_MANAGERS_MAX - 1) :]
    assert {f"m{writer}" for writer in latest} <= {each["manager"] for each in entries}
    fields = [name for each in entries for name in each["fieldsV1"]["f:data"] if name != "."]
    assert sorted(fields) == sorted(f"f:{name}" for name in data)


@CALM
@given(configs(1))
def test_field_sets_survive_their_json(drawn: tuple[Ref, list[Any]]) -> None:
    ref, (config,) = drawn
    fields = typed.field_set(config, ref)
    assert PathSet.from_json(json.loads(json.dumps(fields.to_json()))) == fields
    assert len(list(fields)) == len(fields)
    assert all(path in fields for path in fields)


@CALM
@given(configs(3))
def test_sets_of_fields_are_sets(drawn: tuple[Ref, list[Any]]) -> None:
    """Against Python's own sets of paths."""
    ref, found = drawn
    one, two, three = (typed.field_set(each, ref) for each in found)
    for mine, theirs in ((one, two), (two, three), (one | two, three)):
        left, right = set(mine), set(theirs)
        assert set(mine | theirs) == left | right
        assert set(mine & theirs) == left & right
        assert set(mine - theirs) == left - right
        below = {path for path in left if any(path[:n] in right for n in range(1, len(path) + 1))}
        assert set(mine.without(theirs)) == left - below

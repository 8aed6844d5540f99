"""Our apply beside structured-merge-diff's own tests of merging, step by step (tests/conformance/record_apply.py)."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from minikube_py.api.apply import typed
from minikube_py.api.apply.managed_fields import Sender, field_manager
from minikube_py.api.apply.path_set import PathSet, shown
from minikube_py.api.apply.types import Atom, ListOf, MapOf, Ref, StructField
from minikube_py.api.apply.updater import Conflicts, Convert, Managers, Owned, Typed, Updater, as_it_is
from minikube_py.api.registry import REGISTRY

FACTS = json.loads((Path(__file__).parents[2] / "conformance" / "data" / "apply_merge.json").read_text())
CASES = FACTS["cases"]


class Types:
    """A schema in upstream's YAML, as our types."""

    def __init__(self, declared: list[dict[str, Any]]) -> None:
        self._declared = {each["name"]: each for each in declared}

    @cache  # noqa: B019 - there are few, and they live as long as the test
    def named(self, name: str) -> Ref:
        return Ref(lambda: self._atom(self._declared[name]))

    def _ref(self, ref: Mapping[str, Any] | None) -> Ref | None:
        if not ref:
            return None
        relationship = ref.get("elementRelationship")
        named = self.named(ref["namedType"]) if "namedType" in ref else Ref(lambda: self._atom(ref))
        return named if relationship is None else Ref(lambda: self._overridden(named.atom, relationship))

    def _overridden(self, atom: Atom, relationship: str) -> Atom:
        map_of = replace(atom.map, atomic=relationship == "atomic") if atom.map is not None else None
        list_of = replace(atom.list, associative=relationship == "associative") if atom.list is not None else None
        return Atom(atom.scalar, list_of, map_of)

    def _atom(self, found: Mapping[str, Any]) -> Atom:
        list_of = map_of = None
        if "list" in found:
            element = self._ref(found["list"].get("elementType"))
            assert element is not None
            associative = found["list"].get("elementRelationship") == "associative"
            list_of = ListOf(element, associative, tuple(found["list"].get("keys", ())))
        if "map" in found:
            fields = {}
            for each in found["map"].get("fields", ()):
                type_ = self._ref(each.get("type")) or Ref(Atom)
                fields[each["name"]] = StructField(type_, each.get("default"))
            atomic = found["map"].get("elementRelationship") == "atomic"
            map_of = MapOf(fields, self._ref(found["map"].get("elementType")), atomic)
        return Atom(found.get("scalar"), list_of, map_of)


SCHEMAS = {int(number): Types(types) for number, types in FACTS["schemas"].items()}


def type_of(told: list[Any]) -> Ref:
    number, name = told
    return SCHEMAS[number].named(name)


def updater_of(case: dict[str, Any]) -> tuple[Updater, Convert]:
    ignored = {version: PathSet.from_json(json.loads(text)) for version, text in case["ignored"].items()}
    table = case["converted"]
    if not table:
        return Updater(ignored), as_it_is

    def convert(value: Typed, version: str) -> Typed | None:
        for each in table:
            if each["version"] == version and each["object"] == value.value and type_of(each["from"]) is value.type:
                return None if "missing" in each else Typed(each["result"], type_of(each["to"]))
        if value.value is None:
            # An empty object; in which order upstream converts differs from run to run.
            return Typed(None, type_of([table[0]["from"][0], version]))
        raise AssertionError(f"upstream never converted {value.value} to {version}")

    return Updater(ignored, convert), convert


def run(case: dict[str, Any]) -> Counter[str]:
    updater, convert = updater_of(case)
    live: Typed | None = None
    managers: Managers = {}
    steps: Counter[str] = Counter()
    for step in case["steps"]:
        given = Typed(step["object"], type_of(step["type"]))
        live = Typed(None, given.type) if live is None else convert(live, step["version"]) or live
        live = Typed(live.value, given.type)
        steps[step["op"]] += 1
        try:
            if step["op"] == "update":
                managers = updater.update(live, given, step["version"], managers, step["manager"])
                live = given
            else:
                force = step["op"] == "force"
                new, managers = updater.apply(live, given, step["version"], dict(managers), step["manager"], force)
                live = live if new is typed.ABSENT else Typed(new, live.type)
        except Conflicts as error:
            assert step.get("conflicts") == sorted(f"{each.manager} {shown(each.path)}" for each in error.conflicts)
            steps["conflict"] += 1
        except typed.TypedError as error:
            assert str(error) in step.get("error", "")
        else:
            assert "conflicts" not in step and "error" not in step, step
        if "error" not in step:
            assert typed.equal(live.value, step.get("live"))
        expected = {
            name: Owned(PathSet.from_json(json.loads(fields)), version, applied)
            for name, (version, applied, fields) in step["managers"].items()
        }
        assert managers == expected
    return steps


@pytest.mark.parametrize("case", CASES, ids=[f"{case['name']}-{number}" for number, case in enumerate(CASES)])
def test_each_step_leaves_the_object_and_its_owners_as_upstream(case: dict[str, Any]) -> None:
    run(case)


def test_how_many_cases_there_are() -> None:
    """So that facts that were lost are seen."""
    steps: Counter[str] = sum(map(run, CASES), Counter())
    print(f"structured-merge-diff: {len(CASES)} cases, {FACTS['left_out']} left out, steps {dict(steps)}")
    assert len(CASES) >= 200
    assert min(steps["apply"], steps["update"], steps["force"], steps["conflict"]) > 10


def test_a_creation_is_compared_with_nothing_and_merged_only_at_the_top(monkeypatch: pytest.MonkeyPatch) -> None:
    """It costs no more than a create by POST whose fields are owned."""
    walked: Counter[str] = Counter()

    def counted(name: str) -> Any:
        own = getattr(typed, name)

        def call(*given: Any) -> Any:
            walked[name] += 1
            return own(*given)

        return call

    for name in ("_compare", "_merge_members"):
        monkeypatch.setattr(typed, name, counted(name))
    pod = {"containers": [{"name": "c", "image": "i", "ports": [{"containerPort": 80}]}], "nodeSelector": {"a": "b"}}
    config = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "labels": {"a": "b"}}, "spec": pod}
    manager, sender = field_manager(REGISTRY.kind("", "v1", "Pod")), Sender("me")
    created = manager.apply(None, config, False, sender)
    # The object, and its metadata.
    assert walked == {"_merge_members": 2}
    assert created["spec"] == pod and created["metadata"]["labels"] == {"a": "b"}
    fields = created["metadata"]["managedFields"][0]["fieldsV1"]
    assert 'k:{"name":"c"}' in fields["f:spec"]["f:containers"]
    # Others' fields are known by comparing.
    manager.apply(created, {**config, "spec": {**pod, "nodeSelector": {"a": "c"}}}, True, Sender("other"))
    assert walked["_compare"] > 1

"""Selectors by law: what is printed is read back the same, compiled matchers agree with the requirements' own word."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from minikube_py.api.errors import StatusError
from minikube_py.api.kinds import core
from minikube_py.api.selectors import (
    FieldRequirement,
    FieldSelector,
    LabelRequirement,
    LabelSelector,
    escape_value,
    field_attributes,
    parse_field_selector,
    parse_label_selector,
)
from minikube_py.fields.where import Comparison

KEYS = st.sampled_from(["a", "b", "example.com/c", "in", "notin"])
VALUES = st.sampled_from(["", "x", "A1", "a-b_c.d", "in", "5", "007", "z" * 63])
NUMBERS = st.integers(-100, 100).filter(lambda n: n >= 0).map(str)


@st.composite
def label_requirements(draw: st.DrawFn) -> LabelRequirement:
    key, op = draw(KEYS), draw(st.sampled_from(["=", "==", "!=", "in", "notin", "exists", "!", ">", "<"]))
    if op in ("exists", "!"):
        return LabelRequirement(key, op)
    if op in (">", "<"):
        return LabelRequirement(key, op, (draw(NUMBERS),))
    if op in ("in", "notin"):
        return LabelRequirement(key, op, tuple(sorted(draw(st.sets(VALUES, min_size=1, max_size=3)))))
    return LabelRequirement(key, op, (draw(VALUES),))


@given(st.lists(label_requirements(), max_size=4))
def test_label_selectors_read_back_what_they_print(requirements: list[LabelRequirement]) -> None:
    selector = LabelSelector(tuple(sorted(requirements, key=lambda r: r.key)))
    again = parse_label_selector(str(selector))
    assert again.requirements == selector.requirements


@given(st.lists(label_requirements(), max_size=3), st.dictionaries(KEYS, VALUES | NUMBERS, max_size=4))
def test_compiled_label_matchers_agree_with_each_requirement(
    requirements: list[LabelRequirement], labels: dict[str, str]
) -> None:
    selector = LabelSelector(tuple(requirements))
    assert selector.matches(labels) == all(r.matches(labels) for r in requirements)
    if not labels:
        assert selector.matches(None) == selector.matches({})


@given(st.text(max_size=40))
@settings(max_examples=300)
def test_any_text_is_a_label_selector_or_a_400(text: str) -> None:
    try:
        parse_label_selector(text)
    except StatusError as refused:
        assert refused.code == 400


PIECES = st.sampled_from(["free.cpu", "metadata.name", "x", " ", "<", ">", "=", "!", "in", "(", ")", ",", "4", "\\"])


@given(st.text(max_size=40) | st.lists(PIECES, max_size=8).map("".join))
@settings(max_examples=300)
def test_any_text_is_a_field_selector_or_a_400(text: str) -> None:
    try:
        parse_field_selector(core.NODES, text)
    except StatusError as refused:
        assert refused.code == 400


FIELDS = st.sampled_from(sorted(core.PODS.selectable))


@given(st.text(max_size=20))
def test_escaped_values_come_back(value: str) -> None:
    selector = parse_field_selector(core.PODS, f"metadata.name={escape_value(value)}")
    assert selector.exact("metadata.name") == value


@st.composite
def comparisons(draw: st.DrawFn) -> Comparison:
    field = "free." + draw(st.sampled_from(["cpu", "memory", "nvidia.com/gpu"]))
    op = draw(st.sampled_from(["=", "!=", "<", "<=", ">", ">=", "in", "exists"]))
    values = draw(st.lists(st.integers(0, 10**6).map(str), min_size=1, max_size=3))
    if op == "exists":
        return Comparison(field, op)
    return Comparison(field, op, tuple(values if op == "in" else values[:1]))


OPS = st.sampled_from(["=", "!="])
NODE_FIELDS = st.sampled_from(sorted(core.NODES.selectable))


@given(
    st.lists(st.builds(FieldRequirement, NODE_FIELDS, OPS, st.text(max_size=8)), max_size=3),
    st.lists(comparisons(), max_size=3),
)
def test_field_selectors_read_back_what_they_print(
    requirements: list[FieldRequirement], where: list[Comparison]
) -> None:
    selector = FieldSelector(core.NODES, tuple(requirements), tuple(where))
    again = parse_field_selector(core.NODES, str(selector))
    assert again.where == selector.where
    assert sorted(again.requirements) == sorted(requirements)


@given(
    st.lists(st.builds(FieldRequirement, FIELDS, OPS, st.sampled_from(["", "x", "n1"])), max_size=3),
    st.fixed_dictionaries({}, optional={"nodeName": st.sampled_from(["n1", "x"]), "hostNetwork": st.booleans()}),
)
def test_objects_and_their_attributes_are_matched_alike(
    requirements: list[FieldRequirement], spec: dict[str, object]
) -> None:
    pod = {"metadata": {"name": "x", "namespace": "n1"}, "spec": spec, "status": {}}
    selector = FieldSelector(core.PODS, tuple(requirements), ())
    assert selector.matches(pod) == selector.matches_attributes(field_attributes(core.PODS, pod))

"""Declarations from text: what is read, and what is said of what cannot be."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minikube_py.errors import InvalidRequest
from minikube_py.fields.builtin import NODES
from minikube_py.fields.paths import Path, parse_path, path_text
from minikube_py.fields.spec import FieldSet, FieldSpec, Kind, SumSpec
from minikube_py.fields.text import (
    Declaration,
    Source,
    field_text,
    find_field,
    guessed_kind,
    read_declaration,
    split_outside,
    sum_text,
)

SPACES = FieldSet("namespaces", b"/registry/namespaces/", ())
PODS_PREFIX = b"/registry/pods/"
REQUESTED = "requested.*=pods:metadata.namespace:pod_requests@2"


def kind_at(path: Path) -> Kind:
    """A schema of one level: what nobody knows is refused."""
    if path == ("spec", "nodName"):
        raise InvalidRequest("nodes have no spec.nodName, did you mean spec.nodeName?")
    if path == ("spec", "size"):
        return "int"
    return "quantity" if path[:2] == ("status", "capacity") else guessed_kind(path)


SOURCES = {"pods": Source(PODS_PREFIX, guessed_kind), "leases": Source(b"/registry/x/leases/", guessed_kind)}


def path_field(name: str, kind: Kind, path: str = "", **more: str) -> FieldSpec:
    return FieldSpec(name, kind, "path@1", {"path": path or name, **more})


LABEL = 'metadata.labels["pool"]'
READ: dict[str, tuple[FieldSet, list[str], list[str], Declaration]] = {
    "declared ones": (
        NODES,
        ["free.cpu,free.memory,free.nvidia.com/gpu"],
        [],
        Declaration(("free.cpu", "free.memory", "free.nvidia.com/gpu"), (), ()),
    ),
    "a well-known time": (
        NODES,
        ["metadata.creationTimestamp"],
        [],
        Declaration(
            ("metadata.creationTimestamp",), (path_field("metadata.creationTimestamp", "time"),), ()
        ),
    ),
    "a label": (NODES, [LABEL], [], Declaration((LABEL,), (path_field(LABEL, "string"),), ())),
    "a label whose name ends as times do": (
        NODES,
        ["metadata.labels.startTime"],
        [],
        Declaration(
            ('metadata.labels["startTime"]',), (path_field('metadata.labels["startTime"]', "string"),), ()
        ),
    ),
    "a label as a number": (NODES, [LABEL + ":int"], [], Declaration((LABEL,), (path_field(LABEL, "int"),), ())),
    "a label as a quantity of its own": (
        NODES,
        [LABEL + " : quantity"],
        [],
        Declaration((LABEL,), (path_field(LABEL, "quantity", resource="pool"),), ()),
    ),
    "a quantity by the schema, in milli-units": (
        NODES,
        ["status.capacity.cpu"],
        [],
        Declaration(("status.capacity.cpu",), (path_field("status.capacity.cpu", "quantity", resource="cpu"),), ()),
    ),
    "a number by the schema, beside a declared one": (
        NODES,
        ["spec.size", "free.cpu"],
        [],
        Declaration(("spec.size", "free.cpu"), (path_field("spec.size", "int"),), ()),
    ),
    "commas and colons in keys": (
        NODES,
        ['metadata.annotations["a,b:c=d"]:time,free.cpu'],
        [],
        Declaration(
            ('metadata.annotations["a,b:c=d"]', "free.cpu"),
            (path_field('metadata.annotations["a,b:c=d"]', "time"),),
            (),
        ),
    ),
    "a name of its own": (
        NODES,
        [f"pool={LABEL}:int"],
        [],
        Declaration(("pool",), (path_field("pool", "int", LABEL),), ()),
    ),
    "members of a sum": (
        SPACES,
        ["requested.cpu", "requested.nvidia.com/gpu"],
        [REQUESTED],
        Declaration(
            ("requested.cpu", "requested.nvidia.com/gpu"),
            (
                FieldSpec("requested.cpu", "quantity", "sum@2", {"sum": "requested.*", "resource": "cpu"}),
                FieldSpec(
                    "requested.nvidia.com/gpu", "quantity", "sum@2",
                    {"sum": "requested.*", "resource": "nvidia.com/gpu"},
                ),
            ),
            (SumSpec("requested.*", PODS_PREFIX, "metadata.namespace", "pod_requests@2"),),
        ),
    ),
    "a count and a sum at a path": (
        SPACES,
        ["n,p"],
        ["n=pods:metadata.namespace:count@1", "p=pods:metadata.namespace:path@1(path=spec.a, resource=cpu)"],
        Declaration(
            ("n", "p"),
            (
                FieldSpec("n", "quantity", "sum@2", {"sum": "n", "resource": ""}),
                FieldSpec("p", "quantity", "sum@2", {"sum": "p", "resource": "cpu"}),
            ),
            (
                SumSpec("n", PODS_PREFIX, "metadata.namespace", "count@1"),
                SumSpec("p", PODS_PREFIX, "metadata.namespace", "path@1", {"path": "spec.a", "resource": "cpu"}),
            ),
        ),
    ),
    "a sum taken off": (
        SPACES,
        ["left=spec.size minus requested.cpu"],
        [REQUESTED],
        Declaration(
            ("left",),
            (FieldSpec("left", "quantity", "path@1", {"path": "spec.size", "resource": "cpu"}, "requested.*"),),
            (SumSpec("requested.*", PODS_PREFIX, "metadata.namespace", "pod_requests@2"),),
        ),
    ),
    "a sum that is there already": (
        NODES,
        ["requested.cpu"],
        ["requested.*=pods:spec.nodeName:pod_requests@2"],
        Declaration(("requested.cpu",), (), ()),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("known", "fields", "sums", "wanted"), READ.values(), ids=READ)
def test_what_is_read(known: FieldSet, fields: list[str], sums: list[str], wanted: Declaration) -> None:
    assert read_declaration(known, fields, sums, SOURCES, kind_at) == wanted


@pytest.mark.parametrize(("known", "fields", "sums", "wanted"), READ.values(), ids=READ)
def test_read_again_it_is_the_same_also_beside_the_first(
    known: FieldSet, fields: list[str], sums: list[str], wanted: Declaration
) -> None:
    beside = FieldSet(known.name, known.prefix, known.fields + wanted.declares, known.sums + wanted.sums)
    assert read_declaration(known, fields, sums, SOURCES, kind_at, beside) == wanted
    texts = [field_text(spec) for spec in wanted.declares if spec.extractor == "path@1"]
    if texts:
        listed = [sum_text(spec, SOURCES) for spec in wanted.sums]
        again = read_declaration(known, texts, listed, SOURCES, kind_at)
        assert again.declares == tuple(spec for spec in wanted.declares if spec.extractor == "path@1")
        assert again.sums == wanted.sums


def test_what_another_index_declares_is_declared_again() -> None:
    beside = FieldSet("nodes", NODES.prefix, (*NODES.fields, path_field(LABEL, "int")), NODES.sums)
    wanted = Declaration((LABEL,), (path_field(LABEL, "int"),), ())
    for text in (LABEL, "metadata.labels.pool", "metadata.labels['pool']:int"):
        assert read_declaration(NODES, [text], (), {}, kind_at, beside) == wanted


REFUSED: list[tuple[list[str], list[str], str]] = [
    ([], [], "an index needs a field: name those that are compared, as free.cpu,free.memory"),
    ([" , "], [], "an index needs a field"),
    (["free.cpu,,free.memory"], [], "there is an empty one; take the comma too many away"),
    (["free.cpu,free.cpu"], [], "field 'free.cpu' is named twice"),
    ([LABEL, "metadata.labels.pool"], [], "field 'metadata.labels.pool' is named twice"),
    ([",".join(f"free.r{i}" for i in range(17))], [], "at most 16 fields, this one 17"),
    (["spec.nodName"], [], "did you mean spec.nodeName?; declared on nodes: free.*, allocatable.*, requested.*"),
    (["spec.nodName:int"], [], "did you mean spec.nodeName?"),
    (["metadata.labels[pool]"], [], 'expected ["key"] or [index] at position 15; declared on nodes: free.*'),
    (["free.*"], [], "that is a family of fields: name its members, as free.cpu"),
    (["free.cpux"], [], "field free.cpux: no resource 'cpux', did you mean 'cpu'?; extended"),
    (["allocatable.fpga"], [], "no resource 'fpga'; extended resources have a domain, as nvidia.com/gpu"),
    (["a..b"], [], "has an empty part at position 2"),
    ([LABEL + ":integer"], [], "no kind 'integer', did you mean 'int'?; kinds are quantity, int, string, time"),
    ([LABEL + ":"], [], "no kind ''"),
    ([LABEL + ":int:int"], [], "no kind 'int:int'"),
    (["free.cpu:int"], [], "field free.cpu is declared on nodes as quantity: leave :int away"),
    (["metadata.creationTimestamp:int"], [], "its value (time) does not read as int, only as string or time"),
    (["spec.size:time"], [], "its value (int) does not read as time, only as quantity or int or string"),
    (["spec.pool=metadata.name"], [], "'spec.pool' would look like a path; choose a name that does not begin so"),
    (["po ol=metadata.name"], [], "'po ol' is not a name"),
    (["free.x=metadata.name"], [], "free.x is declared on nodes already, as free.*: choose another name"),
    (["x=spec.size minus used"], [], "no sum 'used' to take off; sums are: requested.*"),
    (["x=spec.size:string minus requested.cpu"], [], "a sum is taken off a quantity, not off a string"),
    (["x=spec.size minus requested.cpu minus requested.cpu"], [], "one sum can be taken off, not 2"),
    (["x.cpu"], ["x.*"], "write NAME=RESOURCE:REFERENCE:EXTRACTOR, as requested.*=pods:spec.nodeName:pod_requests@2"),
    (["x.cpu"], ["x.*=pods:spec.nodeName"], "2 of 3 parts after the name; write NAME=RESOURCE"),
    (["x.cpu"], ["x.*=podz:spec.nodeName:pod_requests@2"], "no resource 'podz', did you mean 'pods'?"),
    (["x.cpu"], ["x.*=pods:spec..nodeName:pod_requests@2"], "the reference is a path to a name, as spec.nodeName"),
    (["x.cpu"], ["x.*=pods:metadata.creationTimestamp:pod_requests@2"], "pods hold no name at 'metadata.creation"),
    (["x.cpu"], ["x.*=pods:spec.nodeName:pod_requests"], "extractors have a version: pod_requests@2"),
    (["x.cpu"], ["x.*=pods:spec.nodeName:pod_request@1"], "unknown extractor 'pod_request@1'; known: count@1, hash"),
    (["x"], ["x=pods:spec.nodeName:pod_requests@2"], "a family has no argument resource, a single field needs it"),
    (["x.cpu"], ["x.*=pods:spec.nodeName:path@1(path=spec.a)"], "reads one value, not a family"),
    (["x"], ["x=pods:spec.nodeName:path@1"], "takes the arguments default, path, resource; given: none"),
    (["x"], ["x=pods:spec.nodeName:path@1(spec.a)"], "argument 'spec.a': write each once, as path=spec.size"),
    (["x"], ["x=pods:spec.nodeName:path@1(path=a,path=b)"], "argument 'path=b': write each once"),
    (["x"], ["x=pods:spec.nodeName:sum@2(sum=x,resource=)"], "a sum cannot be of sums"),
    (["x"], ["x=pods:spec.nodeName:hash32@1(path=a)"], "hash32@1 reads an int, not quantity"),
    (["x"], ["x=pods:spec.nodeName:a b"], "'a b' is not an extractor"),
    (["free.cpu"], ["x=pods:spec.nodeName:count@1"], "sum x is used by no field: add one, as x, or leave the sum out"),
    (["x:int"], ["x=pods:spec.nodeName:count@1"], "field x is a sum, which is a quantity: leave :int away"),
    (["x"], ["spec.x=pods:spec.nodeName:count@1"], "'spec.x' is not a name for a sum"),
    (["x"], ["free.x=pods:spec.nodeName:count@1"], "nodes has a field free.x; choose another name"),
    (["x"], ["requested.*=leases:spec.a:pod_requests@2"], "as requested.*=pods:spec.nodeName:pod_requests@2: choose"),
    (["x"], [f"x{i}=pods:spec.nodeName:count@1" for i in range(9)], "at most 8 sums, this one 9"),
]


@pytest.mark.parametrize("resource", ["cpu", "pods", "ephemeral-storage", "hugepages-2Mi", "nvidia.com/gpu"])
def test_resources_of_nodes_may_be_declared(resource: str) -> None:
    assert read_declaration(NODES, [f"free.{resource}"]).fields == (f"free.{resource}",)


@pytest.mark.parametrize(("fields", "sums", "message"), REFUSED, ids=[f"{each[0]} {each[1]}"[:60] for each in REFUSED])
def test_what_is_refused(fields: list[str], sums: list[str], message: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        read_declaration(NODES, fields, sums, SOURCES, kind_at)
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("free.cpu", "free.cpu"),
        ("metadata.labels['pool']", LABEL),
        ("metadata.labels.pool", LABEL),
        (".metadata.labels.pool", LABEL),
        ('metadata["labels"].pool', LABEL),
        ("free.*", None),
        ("metadata.labels[", None),
        ("", None),
        ("metadata.label", None),
    ],
)
def test_one_field_by_each_way_of_writing_it(text: str, found: str | None) -> None:
    known = FieldSet("nodes", NODES.prefix, (*NODES.fields, path_field(LABEL, "string")), NODES.sums)
    name = find_field(known, text)
    assert (name[0] if name else None) == found


KEYS = st.text(st.characters(codec="utf-8", exclude_categories=("Cs",)), min_size=1, max_size=6)


@given(st.lists(KEYS | st.integers(0, 99), min_size=1, max_size=4))
def test_the_text_of_a_path_reads_as_that_path(parts: list[str | int]) -> None:
    path = tuple(parts)
    text = path_text(path)
    assert parse_path(text) == path
    assert path_text(parse_path(text)) == text


@given(st.lists(st.text("ab.:=", max_size=4), min_size=1, max_size=4))
def test_split_is_undone_by_join(parts: list[str]) -> None:
    assert split_outside(",".join(parts), ",") == parts
    whole = f'["{",".join(parts)}"]'
    assert split_outside(f"{whole},{whole}", ",") == [whole, whole]

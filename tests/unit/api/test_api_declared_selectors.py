"""Field selectors on what indexes declare: paths, label keys, times; and what upstream's selectors make of them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minikube_py.api import kind
from minikube_py.api.errors import StatusError
from minikube_py.api.field_kinds import kind_at
from minikube_py.api.kinds import coordination, core
from minikube_py.api.selectors import Askable, parse_field_selector
from minikube_py.errors import InvalidRequest
from minikube_py.fields.builtin import NODES
from minikube_py.fields.paths import parse_path
from minikube_py.fields.spec import FieldSet
from minikube_py.fields.text import read_declaration
from minikube_py.fields.where import Comparison

TEXTS = [
    'metadata.labels["pool"]', 'metadata.labels["rank"]:int', 'metadata.labels["topology.kubernetes.io/zone"]',
    "metadata.creationTimestamp", "status.capacity.cpu", "spec.taints[0].key", 'metadata.annotations["a,b=c"]',
    'speed=metadata.labels["speed"]:quantity',
]  # fmt: skip


def declared(resource: kind.Kind, base: FieldSet, *texts: str) -> Askable:
    fields, declares, _ = read_declaration(base, texts, kind_at=lambda path: kind_at(resource, path))
    return Askable(FieldSet(base.name, base.prefix, base.fields + declares, base.sums), frozenset(fields))


ASKABLE = declared(core.NODES, NODES, *TEXTS)
POOL, ZONE = 'metadata.labels["pool"]', 'metadata.labels["topology.kubernetes.io/zone"]'
NOON = "2026-01-31T12:00:00Z"


def comparison(field: str, op: Any = "exists", *values: str) -> Comparison:
    return Comparison(field, op, values)


EXTENSIONS = [
    (f"{POOL}=fast", [comparison(POOL, "=", "fast")]),
    (f"{POOL}==fast", [comparison(POOL, "=", "fast")]),
    (f"{POOL}!=fast", [comparison(POOL, "!=", "fast")]),
    (f"{POOL}>=b,{POOL}<c", [comparison(POOL, ">=", "b"), comparison(POOL, "<", "c")]),
    (f"{POOL} in (fast, slow)", [comparison(POOL, "in", "fast", "slow")]),
    (POOL, [comparison(POOL)]),
    ("metadata.labels['pool']=fast", [comparison(POOL, "=", "fast")]),
    ("metadata.labels.pool=fast", [comparison(POOL, "=", "fast")]),
    (f"{ZONE}=a", [comparison(ZONE, "=", "a")]),
    (r"metadata.labels.topology\.kubernetes\.io/zone=a", [comparison(ZONE, "=", "a")]),
    ('metadata.labels["rank"]>=10', [comparison('metadata.labels["rank"]', ">=", "10")]),
    (f"metadata.creationTimestamp<{NOON}", [comparison("metadata.creationTimestamp", "<", NOON)]),
    (
        f"metadata.creationTimestamp >= 2026-01-31T12:00:00.5+01:00,{POOL}=a:b",
        [comparison("metadata.creationTimestamp", ">=", "2026-01-31T12:00:00.5+01:00"), comparison(POOL, "=", "a:b")],
    ),
    ("metadata.creationTimestamp>0", [comparison("metadata.creationTimestamp", ">", "0")]),
    ("status.capacity.cpu>=1500m", [comparison("status.capacity.cpu", ">=", "1500m")]),
    ('status.capacity["cpu"]>=1500m', [comparison("status.capacity.cpu", ">=", "1500m")]),
    ("spec.taints[0].key=gpu", [comparison("spec.taints[0].key", "=", "gpu")]),
    ('metadata.annotations["a,b=c"]=x,free.cpu>1', [
        comparison('metadata.annotations["a,b=c"]', "=", "x"), comparison("free.cpu", ">", "1")]),
    ("speed>=10Gi", [comparison("speed", ">=", "10Gi")]),
]  # fmt: skip


@pytest.mark.parametrize(("text", "comparisons"), EXTENSIONS, ids=[text for text, _ in EXTENSIONS])
def test_declared_paths_take_comparisons(text: str, comparisons: list[Comparison]) -> None:
    selector = parse_field_selector(core.NODES, text, ASKABLE)
    assert list(selector.where.comparisons) == comparisons
    assert selector.requirements == ()
    assert selector.declared is ASKABLE.field_set
    assert parse_field_selector(core.NODES, str(selector), ASKABLE).where == selector.where


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "metadata.creationTimestamp<yesterday",
            'field selector: metadata.creationTimestamp: "yesterday": must be a time, as 2026-01-31T12:00:00Z',
        ),
        ('metadata.labels["rank"]>ten', 'metadata.labels["rank"]: "ten": must be a 64-bit integer'),
        ("speed>=fast", 'field selector: speed: "fast": quantities must match'),
        ('metadata.labels["pol"]=x', 'field label not supported: metadata.labels["pol"]'),
        ('metadata.labels["pool"=x', 'field label not supported: metadata.labels["pool"'),
        ("metadata.labels[pool]=x", "field label not supported: metadata.labels[pool]"),
        ('metadata["name"]=x', 'field label not supported: metadata["name"]'),
        (",".join(["free.cpu>1"] * 65), "field selector compares 65 times, limit 64"),
        (f"free.cpu in ({','.join(['1'] * 1025)})", "field selector: free.cpu: 1025 values, limit 1024"),
    ],
)
def test_what_cannot_be_read_is_refused(text: str, message: str) -> None:
    with pytest.raises(StatusError) as refused:
        parse_field_selector(core.NODES, text, ASKABLE)
    assert refused.value.code == 400
    assert message in refused.value.message


def outcome(resource: kind.Kind, text: str, askable: Askable | None) -> object:
    try:
        selector = parse_field_selector(resource, text, askable)
    except StatusError as error:
        return error.code, error.message
    return selector.requirements, selector.where


PIECES = st.sampled_from(
    [
        "metadata.name", "spec.unschedulable", "metadata.labels", "free", "a", "=", "==", "!=", "<", ">", ">=", ",",
        "\\", " ", "in", "(", ")", "[", "]", '"', "'", ".", ":", "x", "1", NOON, "metadata.labels.other",
    ]
)  # fmt: skip


NONE = Askable(None)
OTHERS = declared(core.NODES, FieldSet("nodes", NODES.prefix, ()), POOL, "status.phase")


@given(st.lists(PIECES, max_size=8).map("".join))
def test_selectors_of_the_original_mean_what_they_always_did(text: str) -> None:
    """Fields are declared that no such text names: nothing changes."""
    assert outcome(core.NODES, text, OTHERS) == outcome(core.NODES, text, NONE)


@pytest.mark.parametrize(
    ("resource", "fields", "text", "indexed", "has_index"),
    [
        (core.PODS, "spec.nodeName", "spec.nodeName=n1", "spec.nodeName=n1", True),
        (core.PODS, "spec.nodeName", "spec.nodeName!=n1", "spec.nodeName!=n1", False),
        (core.PODS, "spec.nodeName", "spec.nodeName=", "", False),
        (core.PODS, "spec.nodeName", f"spec.nodeName={'n' * 1025}", "", False),
        (core.PODS, "status.podIP", "status.podIP=10.0.0.1", "", False),
        (core.PODS, "spec.hostNetwork", "spec.hostNetwork=false", "", False),
        (core.PODS, "spec.priority", "spec.priority>5,status.phase=Running", "spec.priority>5", True),
        (core.PODS, "spec.priority", "spec.priority!=5", "spec.priority!=5", False),
        (core.SECRETS, "type", "type=Opaque", "type=Opaque", True),
        (core.SECRETS, 'type=metadata.labels["t"]', "type=Opaque", "", False),
        (core.EVENTS, "source=reportingComponent", "source=kubelet", "", False),
        (core.EVENTS, "count", "reason=x", "", False),
    ],
)
def test_what_the_original_selects_by_is_left_to_an_index_only_where_that_is_the_same(
    resource: kind.Kind, fields: str, text: str, indexed: str, has_index: bool
) -> None:
    askable = declared(resource, FieldSet(resource.plural, resource.prefix, ()), fields)
    selector = parse_field_selector(resource, text, askable)
    assert (str(selector.indexed), selector.has_index) == (indexed, has_index)


KINDS: list[tuple[kind.Kind, str, str]] = [
    (core.NODES, "metadata.creationTimestamp", "time"),
    (core.NODES, POOL, "string"),
    (core.NODES, "status.capacity.cpu", "quantity"),
    (core.NODES, "spec.unschedulable", "string"),
    (core.PODS, "spec.priority", "int"),
    (core.PODS, 'spec.containers[0].resources.requests["cpu"]', "quantity"),
    (coordination.LEASES, "spec.renewTime", "time"),
    (core.SERVICES, "spec.ports[0].targetPort", "string"),
    (core.PODS, "spec.nodName", "pods have no spec.nodName, did you mean spec.nodeName?"),
    (core.PODS, "spec.containers", "is a list, which cannot be compared; name a part of it, as spec.containers[0]"),
    (core.PODS, "spec.containers.name", "spec.containers is a list: write which, as spec.containers[0]"),
    (core.PODS, "metadata.labels", 'is a map, which cannot be compared; name a part of it, as metadata.labels["k'),
    (core.PODS, "metadata", "is an object, which cannot be compared; name a part of it, as metadata.name"),
    (core.NODES, "spec.unschedulable.x", "spec.unschedulable is a bool: it has no 'x'"),
    (core.NODES, "status[0]", "status is not a list: it has no [0]"),
    (core.NODES, "free", "nodes have no free"),
    (core.SECRETS, "data.x", "is of the type []uint8, which cannot be compared"),
    (core.NODES, "metadata.resourceVersion", "is not stored with the objects"),
]  # fmt: skip


@pytest.mark.parametrize(("resource", "path", "wanted"), KINDS, ids=[f"{each[0].plural} {each[1]}" for each in KINDS])
def test_the_schema_says_what_stands_at_a_path(resource: kind.Kind, path: str, wanted: str) -> None:
    try:
        said: str = kind_at(resource, parse_path(path))
    except InvalidRequest as error:
        said = str(error)
    assert wanted == said or (" " in wanted and wanted in said)

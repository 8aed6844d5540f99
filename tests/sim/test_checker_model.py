"""The model that answers are compared with: against the state machine, which has its own tests against etcd; and rows
of objects against the indexes."""

from __future__ import annotations

import json
import random

import orjson
import pytest
from correct_history import Recorder
from hypothesis import given, settings
from hypothesis import strategies as st

from minikube_py.env import Rng
from minikube_py.errors import InvalidRequest, RequestError
from minikube_py.fields.builtin import NODES, PODS
from minikube_py.fields.extract import family, wide_resource_list
from minikube_py.fields.where import Comparison, Where
from minikube_py.fields.whole import clamp
from minikube_py.mvcc.state import StateMachine
from minikube_py.mvcc.types import (
    FROM_KEY,
    Compare,
    DeclareFields,
    DeleteRange,
    KeyValue,
    LeaseGrant,
    LeaseRevoke,
    Put,
    RangeRequest,
    Txn,
    prefix_end,
)
from minikube_py.sim import edges
from minikube_py.sim.checkers.model import Impossible, Model
from minikube_py.sim.checkers.objects import Rows, Unsupported, amount, at_path, held, pod_amounts, resources, units
from minikube_py.sim.checkers.transactions import differs
from minikube_py.sim.history import shown
from minikube_py.sim.workload import Workload

KEYS = st.sampled_from([b"a", b"b", b"b/1", b"b/2", b"c"])
ENDS = st.sampled_from([b"", b"", b"", b"b0", b"z", FROM_KEY])
VALUES = st.sampled_from([b"", b"1", b"22"])
PUTS = st.builds(Put, KEYS, VALUES, st.sampled_from([0, 0, 1, 2]), st.booleans())
KEEPS = st.builds(Put, KEYS, st.just(b""), st.just(0), st.booleans(), st.just(True), st.booleans())
DELETES = st.builds(DeleteRange, KEYS, ENDS, st.booleans())
COMPARES = st.one_of(
    st.builds(
        Compare,
        KEYS,
        st.sampled_from(["VERSION", "CREATE", "MOD", "LEASE"]),
        st.sampled_from(["=", "!=", "<", ">"]),
        st.integers(0, 6),
        ENDS,
    ),
    st.builds(Compare, KEYS, st.just("VALUE"), st.sampled_from(["=", "!=", "<", ">"]), VALUES, ENDS),
)
RANGES = st.builds(
    RangeRequest,
    KEYS,
    ENDS,
    st.integers(0, 3),
    st.sampled_from([0, 0, 2, 5]),
    st.booleans(),
    st.booleans(),
    where=st.none(),
    order=st.just("KEY"),
    fields=st.just(()),
    sort_target=st.sampled_from(["KEY", "KEY", "VERSION", "CREATE", "MOD", "VALUE"]),
    sort_order=st.sampled_from(["NONE", "NONE", "ASCEND", "DESCEND"]),
    min_mod_revision=st.sampled_from([0, 0, 3]),
    max_mod_revision=st.sampled_from([0, 0, 6]),
    min_create_revision=st.sampled_from([0, 0, 3]),
    max_create_revision=st.sampled_from([0, 0, 6]),
)
LEAVES = st.lists(st.one_of(PUTS, KEEPS, DELETES, RANGES), max_size=3).map(tuple)
NESTED = st.builds(Txn, st.lists(COMPARES, max_size=1).map(tuple), LEAVES, LEAVES)
OPS = st.lists(st.one_of(PUTS, KEEPS, DELETES, RANGES, NESTED), max_size=3).map(tuple)
TXNS = st.builds(Txn, st.lists(COMPARES, max_size=2).map(tuple), OPS, OPS)
COMMANDS = st.one_of(PUTS, KEEPS, DELETES, TXNS, st.just(LeaseRevoke(1)), st.just(LeaseGrant(1, 5)))


@settings(max_examples=300)
@given(st.lists(COMMANDS, max_size=12), st.lists(RANGES, max_size=4))
def test_the_model_answers_as_the_state_machine(commands, ranges):
    state, model = StateMachine(), Model()
    state.apply(LeaseGrant(2, 5))
    for command in commands:
        try:
            result = state.apply(command)
        except RequestError:
            continue
        answer = model.run(command)
        assert model.revision == state.revision
        assert answer is None or differs(command, result, answer) == ""
        assert list(model.events[model.revision]) == (state.last_events or list(model.events[model.revision]))
    for request in ranges:
        if request.revision <= state.revision:
            assert differs(request, state.range(request), model.range(request, model.revision)) == ""


@settings(max_examples=100)
@given(st.lists(st.one_of(PUTS, DELETES, TXNS), min_size=1, max_size=8))
def test_undo_takes_back_what_was_done(commands):
    model = Model()
    whole = []
    for command in commands:
        before = (model.revision, dict(model.current), model.standing(b"\0", b"\0", model.revision))
        try:
            model.run(command)
        except Impossible:
            continue
        if model.revision > before[0]:
            whole.append(before)
    for revision, current, standing in reversed(whole):
        model.undo()
        assert (model.revision, model.current, model.standing(b"\0", b"\0", revision)) == (revision, current, standing)


@pytest.mark.parametrize(
    "txn",
    [
        Txn((), (Put(b"a", b"1"), Put(b"a", b"2"))),
        Txn((), (DeleteRange(b"a", b"c"), Put(b"b", b"2"))),
        Txn((), (Put(b"b", b"2"), DeleteRange(b"a", b"c"))),
        Txn((), (Put(b"a", b"", ignore_value=True),)),
    ],
)
def test_what_a_store_must_refuse_is_impossible(txn):
    with pytest.raises(Impossible):
        Model().run(txn)
    with pytest.raises(InvalidRequest):
        StateMachine().apply(txn)


# -- rows --------------------------------------------------------------------------------------------------------------

CPU = st.sampled_from(["1", "2", "1500m", "0.5", "100m", "2k", "1e3", "abc", "", "1Ki"])
MEMORY = st.sampled_from(["1Gi", "512Mi", "1000", "1.5Gi", "3M", "x"])
RESOURCES = st.fixed_dictionaries({}, optional={"cpu": CPU, "memory": MEMORY})


def text(obj) -> bytes:
    return json.dumps(obj).encode()


@st.composite
def objects(draw):
    found = {}
    for name in draw(st.lists(st.sampled_from(["n1", "n2", "n3"]), unique=True)):
        status = {"allocatable": draw(RESOURCES)}
        spec = {"unschedulable": True} if draw(st.booleans()) else {}
        found[NODES.prefix + name.encode()] = text({"metadata": {"name": name}, "spec": spec, "status": status})
    good = st.fixed_dictionaries({}, optional={"cpu": st.sampled_from(["1", "250m"]), "memory": st.just("100Mi")})
    for number in range(draw(st.integers(0, 4))):
        containers = [{"resources": {"requests": draw(good)}} for _ in range(draw(st.integers(0, 2)))]
        spec = {"containers": containers}
        if draw(st.booleans()):
            spec["nodeName"] = draw(st.sampled_from(["n1", "n2", "nowhere", ""]))
        if draw(st.booleans()):
            spec["initContainers"] = [{"resources": {"requests": draw(good)}}]
        if draw(st.booleans()):
            spec["overhead"] = {"cpu": "10m"}
        phase = draw(st.sampled_from(["Running", "Succeeded", "Failed"]))
        found[PODS.prefix + b"p%d" % number] = text({"spec": spec, "status": {"phase": phase}})
    return found


COMPARISONS = st.one_of(
    st.builds(
        Comparison,
        st.sampled_from(["free.cpu", "requested.cpu", "allocatable.cpu"]),
        st.sampled_from(["=", "!=", "<", "<=", ">", ">="]),
        st.sampled_from([("1",), ("500m",), ("0",), ("1490m",)]),
    ),
    st.builds(Comparison, st.sampled_from(["free.memory", "free.gpu"]), st.just("exists")),
    st.builds(Comparison, st.just("metadata.name"), st.just("in"), st.just(("n1", "n3"))),
    st.builds(Comparison, st.just("spec.unschedulable"), st.sampled_from(["=", "!="]), st.just(("true",))),
)


@settings(max_examples=200)
@given(objects(), st.lists(COMPARISONS, min_size=1, max_size=2))
def test_rows_by_looking_at_every_object_are_those_of_the_index(values, comparisons):
    state = StateMachine()
    state.apply(DeclareFields(NODES))
    state.apply(DeclareFields(PODS))
    for key, value in values.items():
        state.apply(Put(key, value))
    kvs = state.range(RangeRequest(b"\0", b"\0")).kvs
    where = Where(tuple(comparisons))
    names = ("free.cpu", "requested.memory", "allocatable.cpu", "metadata.name")
    answer = state.range(RangeRequest(NODES.prefix, prefix_end(NODES.prefix), where=where, fields=names))
    rows = Rows(NODES, kvs)
    assert rows.holding(where) == {kv.key for kv in answer.kvs}
    assert [tuple(rows.value(kv.key, name) for name in names) for kv in answer.kvs] == answer.fields
    names = ("hash.spec.nodeName", "requests.cpu")
    pods = state.range(RangeRequest(PODS.prefix, prefix_end(PODS.prefix), fields=names))
    rows = Rows(PODS, kvs)
    told = [tuple(rows.value(kv.key, name) for name in names) for kv in pods.kvs]
    assert told == pods.fields


def test_quantities_are_exact():
    assert units("cpu", amount("0.0001")) == 1 and units("cpu", amount("1")) == 1000
    assert units("memory", amount("1Ki")) == 1024 and units("memory", amount("1.5")) == 2
    assert amount("1e3") == 1000 and amount("12E") == 12 * 10**18 and amount(True) is None and amount("1 Gi") is None
    assert held(units("memory", amount("100E"))) == (1 << 63) - 1
    assert amount("8Ei") == (1 << 63) - 1, "as resource.ParseQuantity has it"


def test_odd_quantities_are_read_alike_by_the_checker_and_by_the_rows():
    odd = [*edges.ALMOST_QUANTITIES, *edges.NO_QUANTITIES]
    odd += [f"{number}{suffix}" for number in (0, 1, 999, -1, (1 << 63) - 1, "0.0001") for suffix in edges.SUFFIXES]
    for value in odd:
        for name in ("cpu", "memory"):
            read = resources({name: value})
            assert wide_resource_list({name: value}) == {key: units(key, each) for key, each in read.items()}, value


def test_pods_of_simulated_clients_ask_the_same_by_the_checker_and_by_the_rows():
    workload = Workload(Rng("pods"), 1)
    count = PODS.find("requests.cpu")
    different = set()
    for _ in range(4000):
        request = workload._pod()
        if isinstance(request, Txn):
            value = request.success[0].value
            rows = Rows(PODS, [KeyValue(b"/registry/pods/p", value, 1, 1, 1, 0)])
            wanted = {name: rows.value(b"/registry/pods/p", f"requests.{name}") for name in ("cpu", "memory", "pods")}
            read = family(count.extractor, count.args)(_loaded(value))
            assert {name: clamp(each) for name, each in read.items()} == _known(wanted), value
            different.add(value.partition(b'"spec"')[2])
    assert len(different) > 500


def _loaded(value):
    try:
        return orjson.loads(value)
    except ValueError:
        return None


def _known(row):
    return {name: value for name, value in row.items() if value is not None}


def test_what_the_checker_cannot_judge_it_says():
    with pytest.raises(Unsupported):
        at_path({}, 'metadata.annotations["a"]')
    with pytest.raises(Unsupported):
        pod_amounts({"spec": {"initContainers": [{"restartPolicy": "Always"}]}})


# -- records -----------------------------------------------------------------------------------------------------------


def test_records_are_shown_without_defaults():
    assert shown(Put(b"a", b"\xff")) == "Put(key=b'a', value=b'\\xff')"
    told = shown(Txn((Compare(b"a", "MOD", "=", 3),), (DeleteRange(b"a"),)))
    assert told == "Txn(compare=[Compare(key=b'a', target=MOD, op==, operand=3)], success=[DeleteRange(key=b'a')])"


def test_a_recorder_follows_its_seed():
    assert list(map(str, Recorder(5).run().operations)) == list(map(str, Recorder(5).run().operations))
    assert random.Random(1).random() == random.Random(1).random()

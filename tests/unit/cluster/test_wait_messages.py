"""What a WaitTimeout says: the text of `until`, and the state of objects of every shape."""

from __future__ import annotations

import functools
import linecache
from collections.abc import Callable
from typing import Any

import pytest

from minikube_py.cluster.waiting import STATE_SHOWN_MAX, Waiting, ready_of

META = {"name": "a", "namespace": "default", "resourceVersion": "49"}
LAMBDAS = (
    'lambda c: c["data"]["n"] == "2"',
    "lambda c: False",
    "lambda c, d=(1, 2): not (c and d)",
    'lambda c: "lambda x: 1" in c',
    "lambda c: all(map(lambda each: each in c, ()))",
    "lambda c: [each for each in c if each][0]",
    'lambda c: c["é"] and len(c) > 3',
    "lambda *c, **d: (c,\n            d)",
    "lambda c: {1: 2}[3]",
    "lambda c: (yield)",
)
AROUND = (
    "wait({}, timeout_s=300)",
    'é = "é"; wait(timeout_s=3, until={})',
    "wait(lambda other: other, {}); wait({0}, lambda other: 3)",
    "wait(\n    'cm/a',\n    until={},\n    timeout_s=300,\n)",
    "wait((lambda whole: whole)({}))",
    "def test():\n    if True:\n        wait(1, {})\ntest()",
)


@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize("text", LAMBDAS)
def test_a_lambda_is_shown_as_it_is_written_and_no_further(text: str, around: str) -> None:
    file = f"<lambda {text} in {around}>.py"
    source = around.replace("{0}", "{}").replace("{}", text)
    linecache.cache[file] = len(source), None, source.splitlines(keepends=True), file
    given: list[Callable[..., Any]] = []

    def wait(*values: Any, **named: Any) -> None:
        given.extend(each for each in (*values, *named.values()) if callable(each))

    exec(compile(source, file, "exec"), {"wait": wait})
    told = [Waiting("cm/a", until=each).wanted() for each in given]
    wanted = " ".join(text.split())
    assert told.count(f"until {wanted}") == source.count(text)
    assert {*told} <= {f"until {each}" for each in (wanted, "lambda other: other", "lambda other: 3")}


def test_other_functions_have_their_names() -> None:
    def named(obj: Any) -> bool:
        return False

    class Called:
        def __call__(self, obj: Any) -> bool:
            return False

    assert Waiting("cm/a", until=named).wanted() == "until named"
    assert Waiting("cm/a", until=functools.partial(named)).wanted().startswith("until functools.partial(")
    assert "Called object" in Waiting("cm/a", until=Called()).wanted()
    assert "<lambda>" in Waiting("cm/a", until=eval("lambda c: False")).wanted()


@pytest.mark.parametrize(
    ("obj", "until", "shown", "hidden"),
    [
        ({"kind": "ConfigMap", "data": {"n": "1"}}, False, ['{"data":{"n":"1"}}'], []),
        ({"kind": "ConfigMap", "data": {"n": "1"}}, True, ['{"data":{"n":"1"}}'], []),
        ({"kind": "ConfigMap", "binaryData": {"n": "MQ=="}, "immutable": True}, True, ['"immutable":true'], []),
        ({"kind": "Service", "spec": {"ports": []}, "status": {"x": 1}}, False, [': {"x":1}'], ["ports"]),
        ({"kind": "Service", "spec": {"ports": []}, "status": {"x": 1}}, True, ['{"status":{"x":1},', "ports"], []),
        ({"kind": "Service", "spec": {"ports": []}, "status": {}}, False, ['{"spec":{"ports":[]}}'], ["status"]),
        ({"kind": "Secret", "data": {"key": "hidden"}, "type": "O"}, True, ['"data":["key"]', '"O"'], ["hidden"]),
        ({"kind": "Role", "rules": [{"verbs": ["get"]}]}, False, ['"verbs":["get"]'], []),
        ({"kind": "Lease"}, True, ["default/a"], ["{", "metadata"]),
        ({"kind": "Site", "open": True, "metadata": {**META, "labels": {"l": "m"}}}, True, ['"l":"m"', "true"], []),
    ],
)
def test_the_state_is_what_may_be_waited_for(obj: Any, until: bool, shown: list[str], hidden: list[str]) -> None:
    for target, found in (("cm/a", obj), ("cm", obj)):
        waiting = Waiting(target, until=(lambda each: False) if until else None)
        waiting.seen([{"metadata": META, **found}])
        lines = waiting.message(30, "", (), ()).splitlines()
        assert len(lines) == 2 and all(each in lines[1] for each in shown), lines
        assert not any(each in lines[1] for each in hidden), lines


def test_a_long_state_is_cut_and_says_so() -> None:
    waiting = Waiting("cm/a")
    waiting.seen([{"kind": "ConfigMap", "metadata": META, "data": {"n": "1" * 5000}}])
    text = waiting.message(30, "", (), ())
    assert text.endswith("11...") and len(text) < STATE_SHOWN_MAX + 200


@pytest.mark.parametrize(("condition", "holds"), [
    ("Ready", True), ("ready", True), ("Ready=True", True), ("ready=true", True), ("Ready=False", False),
    ("Failed", False), ("failed=false", True), ("Other", False), ("Other=False", False),
])  # fmt: skip
def test_conditions_take_the_forms_of_kubectl_wait(condition: str, holds: bool) -> None:
    status = {"conditions": [{"type": "Ready", "status": "True"}, {"type": "Failed", "status": "False"}]}
    assert Waiting("w/a", condition=condition).seen([{"metadata": {"name": "a"}, "status": status}]) is holds


ROLLING = {"type": "RollingUpdate"}


@pytest.mark.parametrize(("kind", "spec", "status", "ready"), [
    ("Deployment", {"replicas": 2}, {"replicas": 2, "readyReplicas": 2, "updatedReplicas": 2}, 2),
    ("Deployment", {"replicas": 2}, {"replicas": 2, "readyReplicas": 2}, None),
    ("Deployment", {"replicas": 2, "paused": True}, {"replicas": 2, "readyReplicas": 2}, 2),
    ("Deployment", {"replicas": 0}, {}, 0),
    ("ReplicaSet", {"replicas": 2}, {"replicas": 2, "readyReplicas": 2}, 2),
    ("StatefulSet", {"replicas": 2, "updateStrategy": ROLLING}, {"readyReplicas": 2, "updatedReplicas": 1}, None),
    ("StatefulSet", {"replicas": 2, "updateStrategy": {"type": "OnDelete"}}, {"readyReplicas": 2}, 2),
    ("StatefulSet", {"replicas": 2, "updateStrategy": {**ROLLING, "rollingUpdate": {"partition": 1}}},
     {"readyReplicas": 2, "updatedReplicas": 1}, 2),
    ("DaemonSet", {"updateStrategy": ROLLING}, {"numberReady": 2, "desiredNumberScheduled": 2}, None),
    ("DaemonSet", {"updateStrategy": ROLLING},
     {"numberReady": 2, "desiredNumberScheduled": 2, "updatedNumberScheduled": 2}, 2),
])  # fmt: skip
def test_ready_replicas_are_of_the_latest_template(kind: str, spec: Any, status: Any, ready: int | None) -> None:
    assert ready_of({"kind": kind, "metadata": {}, "spec": spec, "status": status}) == ready

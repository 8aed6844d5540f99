# ruff: noqa: E501
"""Hostile values for every parameter of every public method of the door, found by its signature: each either works or is
refused by an error that names the parameter, and the cluster still answers afterwards."""

from __future__ import annotations

import inspect
import math
import os
from collections.abc import Callable, Iterator
from decimal import Decimal
from enum import IntEnum
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from minikube_py import AsyncCluster, Cluster, ClusterError, StatusError
from minikube_py.cluster.arguments import Checked, _rules, shown
from minikube_py.cluster.faults import Faults, Node
from minikube_py.cluster.local import AsyncNamespaced, Namespaced
from minikube_py.cluster.outside import OutsideCluster, OutsideNamespaced
from minikube_py.cluster.snapshots import Snapshot
from minikube_py.kubelet.config import NodeSpec

pytestmark = pytest.mark.real_time("real sockets and threads")
CLASSES: tuple[type, ...] = (Cluster, Namespaced, AsyncCluster, AsyncNamespaced, OutsideCluster, OutsideNamespaced, Node)
ELSEWHERE = ("run",)
"""Checked by tests of virtual time."""
CONFIG_MAP = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}


class Unshowable:
    def __repr__(self) -> str:
        raise RuntimeError("it has no form")


class Derived(str):
    """As numpy and enumerations have them."""


class One(IntEnum):
    ONE = 1


async def nothing(*_: object) -> None:
    """A coroutine function, for `run` and `program`."""


HOLDS_ITSELF: dict[str, Any] = {**CONFIG_MAP}
HOLDS_ITSELF["data"] = HOLDS_ITSELF
DEEP: Any = []
for _ in range(5_000):
    DEEP = [DEEP]
HOSTILE: tuple[Any, ...] = (
    None, True, False, -1, 0, 1, 3, 2.5, 1e-9, -0.0, math.nan, math.inf, -math.inf, 10**30, -(10**30), 10**5_000,
    Decimal(1), Fraction(1, 2), 1j, One.ONE, "", " ", "a", "1", "a b", "a\nb", "\0", "\ud800", "é", "..", "../..", "a/..",
    "x" * 70_000, "/", "/a", "a/", "//", "pods/", "pod/a/log", "pod/a?x=1", "pod/%2e", "pods/../nodes", "Pod/A", "pod",
    "po", "Pods", "ConfigMaps", "cm", "configmap", "frogs", "frogs/a", "frog.example", "pods.v1", "pods.v9", "deployments.v1.apps",
    "all", "api", "api/v1", "/api/v1/pods", "/api/v1/pods?limit=1", "GET", "get", "FOO", "app==", "!!", "a in (", "=", "nope",
    "default", "Ready", "real", "virtual", b"", b"\xff", "kind: [", "a: b: c", "x: &a [*a]", "{", "[]", "1\n2\n", "none.yaml", "a.json",
    bytearray(b"x"), memoryview(b"x"), [], [[1]], [None], {}, {1: 2}, {"a": 1}, {"limit": 3}, {"watch": "true"}, {"a": "b"},
    {"kind": ["Pod"], "apiVersion": "v1", "metadata": {"name": "x"}}, {**CONFIG_MAP, "metadata": None},
    {**CONFIG_MAP, "metadata": [1]}, {**CONFIG_MAP, "metadata": {"name": 3}}, {**CONFIG_MAP, "metadata": {"name": "../x"}},
    {**CONFIG_MAP, "data": {1, 2}}, {**CONFIG_MAP, "data": math.nan}, {**CONFIG_MAP, "data": {1: "a"}}, {**CONFIG_MAP, "data": DEEP},
    {**CONFIG_MAP, "metadata": {"name": "a", "annotations": 3}}, {**CONFIG_MAP, "metadata": {"name": "a", "namespace": {}}},
    {"apiVersion": "v1", "kind": "List", "items": [3]}, {"apiVersion": "v1", "kind": "List", "items": 3}, HOLDS_ITSELF,
    (), set(), frozenset("ab"), iter([]), iter([3]), range(3), object(), Unshowable(), Derived("pods"), lambda: 3, lambda _: 1 / 0,
    nothing, int, Path("none"), Path("none.yaml"), Path(""), NodeSpec("a"), [NodeSpec("a"), NodeSpec("a")], [NodeSpec("A_")],
    [NodeSpec("a", {"cpu": "lots"})], [NodeSpec(3)], [NodeSpec("a", {}, {"a": 1})], (NodeSpec("a"),),  # type: ignore[arg-type,dict-item]
    Snapshot(1, {}, lambda: None),  # type: ignore[arg-type]
)  # fmt: skip
GIVEN: dict[str, dict[str, Any]] = {
    "wait": {"target": "node/node-0", "timeout_s": 0},
    "get": {"name": "node/node-0"},
    "delete": {"name": "cm/gone"},
    "node": {"name": "node-0"},
    "in_namespace": {"name": "default"},
    "objects": {"kind": "nodes"},
    "request": {"method": "GET", "path": "/api/v1/nodes"},
    "apply": {"manifests": CONFIG_MAP},
    "end_container": {"pod": "a"},
    "program": {"main": nothing},
    "webhook": {"name": "guard", "answer": lambda request: True},
    "delay_events": {"seconds": 0.01},
    "hide_events": {"seconds": 0.01},
    "no_leader": {"seconds": 0.01},
    "slow": {"seconds": 0.01},
}
"""What a call needs beside the parameter that is drawn."""
SAID_BY_OTHERS = ("there is no kubectl", "kubectl ", "this cluster runs in real time")


def methods(of: type) -> dict[str, tuple[str, ...]]:
    """The public ones, with their parameters."""
    found = {}
    for name, each in inspect.getmembers(of, inspect.isfunction):
        parameters = tuple(inspect.signature(each).parameters)[1:]
        if not name.startswith("_") and parameters:
            found[name] = parameters
    return found


def drawn(of: type) -> Iterator[tuple[str, str]]:
    for method, parameters in methods(of).items():
        if method in ELSEWHERE:
            continue
        yield from ((method, parameter) for parameter in parameters)


def arguments_of(method: str, parameter: str, value: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if parameter == "arguments":
        return (value,), {}
    return (), {**GIVEN.get(method, {}), parameter: value}


def judged(method: str, parameter: str, value: Any, error: Exception) -> list[str]:
    """What is wrong with the refusal."""
    text = str(error)
    case = f"{method}({parameter}={shown(value)}): {type(error).__name__}: {text}"
    if isinstance(error, StatusError):
        fine = 400 <= error.code < 500
    elif parameter == "until" and callable(value):
        # What it raises itself reaches who gave it.
        fine = isinstance(error, ZeroDivisionError | TypeError | ClusterError)
    else:
        named = parameter in text or isinstance(error, TimeoutError) or text.startswith(SAID_BY_OTHERS)
        fine = isinstance(error, ClusterError) and named
    return [] if fine else [case]


def still_well(cluster: Any) -> None:
    cluster.all_well()
    assert [each["metadata"]["name"] for each in cluster.objects("nodes")] == ["node-0"]
    cluster.apply(CONFIG_MAP)


def test_every_parameter_has_a_rule() -> None:
    for each in CLASSES:
        assert issubclass(each, Checked)
        for method in methods(each):
            _rules(inspect.unwrap(getattr(each, method)))
    for each in (Cluster, OutsideCluster):
        _rules(inspect.unwrap(each.__init__))  # type: ignore[misc]


def test_one_without_a_rule_is_found() -> None:
    class New(Faults):
        def made(self, count: int) -> None:
            """Of another author's."""

    with pytest.raises(TypeError, match="made: count has no rule"):
        New().made(1)


@pytest.fixture
def refusing_kubectl(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """What reaches kubectl is kubectl's matter. The real one, started 120 times, is in `test_plain[real]`."""
    folder = tmp_path_factory.mktemp("programs")
    (folder / "kubectl").write_text("#!/bin/sh\nexit 1\n")
    (folder / "kubectl").chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("clock", ["virtual", "real"])
def test_plain(
    clock: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    if clock == "virtual":
        request.getfixturevalue("refusing_kubectl")
    monkeypatch.chdir(tmp_path)
    wrong: list[str] = []
    with Cluster(clock=clock, seed=1) as cluster:
        view = cluster.in_namespace("default")
        targets: tuple[tuple[type, Callable[[], Any]], ...] = (
            (Cluster, lambda: cluster), (Node, lambda: cluster.node("node-0")), (Namespaced, lambda: view),
        )  # fmt: skip
        for of, made in targets:
            for method, parameter in drawn(of):
                if of is Namespaced and hasattr(PARENTS[of], method):
                    continue
                for value in HOSTILE:
                    given, named = arguments_of(method, parameter, value)
                    try:
                        returned = getattr(made(), method)(*given, **named)
                    except Exception as error:
                        wrong += judged(method, parameter, value, error)
                    else:
                        if method == "program":
                            returned.stop()
                still_well(cluster)
        assert cluster.wait("node/node-0", condition="Ready", timeout_s=100)
    assert not wrong, "\n".join(wrong)


PARENTS = {Namespaced: inspect.getmro(Namespaced)[1]}


@pytest.mark.timeout(1200)
@pytest.mark.usefixtures("refusing_kubectl")
async def test_awaited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    wrong: list[str] = []
    async with Cluster() as cluster:
        for method, parameter in drawn(AsyncCluster):
            for value in HOSTILE:
                given, named = arguments_of(method, parameter, value)
                try:
                    returned = getattr(cluster, method)(*given, **named)
                    if inspect.isawaitable(returned):
                        await returned
                except Exception as error:
                    wrong += judged(method, parameter, value, error)
            cluster.all_well()
            assert len(await cluster.objects("nodes")) == 1
            await cluster.apply(CONFIG_MAP)
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("parameter", [*inspect.signature(Cluster).parameters])
def test_made(parameter: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    wrong: list[str] = []
    for value in HOSTILE:
        try:
            cluster = Cluster(**{parameter: value})
            if parameter not in ("data_dir", "clock", "port", "stages"):
                with Cluster(**{"clock": "virtual", parameter: value}) as cluster:
                    assert isinstance(cluster.objects("nodes"), list)
        except Exception as error:
            wrong += judged("Cluster", parameter, value, error)
    assert not wrong, "\n".join(wrong)
    assert not list(tmp_path.iterdir())

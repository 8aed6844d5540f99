"""What the state machine costs per command and per read, in microseconds, without disk, network or Raft.

    python tests/bench/bench_mvcc.py [--keys 100000] [--nodes 5000] [--json FILE]

`create` is a txn "put if absent"; `update` a txn "put if unchanged". Pods are about 900 bytes of JSON; their figures
are with the node and pod fields declared, so decoding, sums and both indexes are in them.
"""

from __future__ import annotations

import argparse
import gc
import json
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgpack
import orjson

from minikube_py.fields.builtin import NODES, PODS
from minikube_py.fields.where import Comparison, Where
from minikube_py.mvcc.codec import pack, unpack
from minikube_py.mvcc.snapshot import records, restore
from minikube_py.mvcc.state import StateMachine
from minikube_py.mvcc.types import (
    Command,
    Compact,
    Compare,
    DeclareFields,
    Put,
    RangeRequest,
    Txn,
    WatchBatch,
    prefix_end,
)
from minikube_py.mvcc.watch import WatchHub

PREFIX = PODS.prefix + b"default/"


def each(calls: Iterable[Any], run: Callable[[Any], object]) -> float:
    """Microseconds per call."""
    todo = list(calls)
    gc.collect()
    start = time.perf_counter()
    for call in todo:
        run(call)
    return (time.perf_counter() - start) / len(todo) * 1e6


def create(key: bytes, value: bytes) -> Txn:
    return Txn((Compare(key, "MOD", "=", 0),), (Put(key, value),))


def update(state: StateMachine, key: bytes, value: bytes) -> Txn:
    return Txn(
        (Compare(key, "MOD", "=", state.index.current[key].mod_revision),), (Put(key, value),), (RangeRequest(key),)
    )


def plain(keys: int) -> dict[str, float]:
    state = StateMachine()
    hub = WatchHub(state)
    batches: list[WatchBatch] = []
    results = {}
    names = [PREFIX + b"pod-%07d" % number for number in range(keys)]
    value = b"x" * 256
    commands: list[Command] = [create(name, value) for name in names]
    packed = [pack(command) for command in commands]
    results["pack a create"] = each(commands, pack)
    results["unpack a create"] = each(packed, unpack)
    results["create"] = each(commands, state.apply)
    results["update"] = each([update(state, name, value) for name in names[: keys // 2]], state.apply)
    hub.notify()
    hub.add(PODS.prefix, prefix_end(PODS.prefix), 0, batches.append)
    watched: list[Command] = [update(state, name, value) for name in names[: keys // 4]]
    results["update, one watcher"] = each(watched, lambda command: (state.apply(command), hub.notify()))
    everything = RangeRequest(PODS.prefix, prefix_end(PODS.prefix))
    results["get"] = each(names[:20_000], lambda name: state.range(RangeRequest(name)))
    results["range of 15,000"] = each(range(20), lambda _: state.range(everything._replace(limit=15_000)))
    results["page of 500"] = each(range(200), lambda _: state.range(everything._replace(limit=500)))
    past = state.revision - 1000
    results["page of 500, 1,000 ago"] = each(
        range(50), lambda _: state.range(everything._replace(limit=500, revision=past))
    )
    results["snapshot, per key"] = each([0], lambda _: [msgpack.packb(part) for part in records(state)]) / keys
    slices = [msgpack.packb(part) for part in records(state)]
    results["restore, per key"] = each([0], lambda _: restore(map(msgpack.unpackb, slices))) / keys
    events = state.revision
    results["compact, per event"] = each([0], lambda _: drop_past(state)) / events
    results["retained bytes, per key"] = state.size_bytes / keys
    return results


def drop_past(state: StateMachine) -> None:
    state.apply(Compact(state.revision))
    while state.trim(10_000):
        pass


def pod(number: int, node: int | None, phase: str) -> Command:
    resources = {"requests": {"cpu": f"{100 + number % 7 * 50}m", "memory": f"{number % 5 + 1}Gi"}}
    container = {"name": "c", "image": "registry.example/app:1", "resources": resources, "imagePullPolicy": "Always"}
    spec: dict[str, Any] = {"containers": [container], "restartPolicy": "Always", "schedulerName": "default-scheduler"}
    if node is not None:
        spec["nodeName"] = f"node-{node:06d}"
    conditions = [{"type": kind, "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"} for kind in "ABCD"]
    metadata = {
        "name": f"pod-{number}",
        "uid": "0" * 36,
        "labels": {"app": "a" * 20},
        "annotations": {"note": "n" * 120},
    }
    body = {"metadata": metadata, "spec": spec, "status": {"phase": phase, "conditions": conditions}}
    return Put(PREFIX + b"pod-%d" % number, orjson.dumps(body))


def indexed(nodes: int, pods: int = 20_000) -> dict[str, float]:
    state = StateMachine()
    state.apply(DeclareFields(NODES))
    state.apply(DeclareFields(PODS))
    results = {}
    allocatable = {"cpu": "64", "memory": "256Gi", "pods": "110", "openb.io/gpu-milli": "8000"}
    commands: list[Command] = []
    for number in range(nodes):
        body = {"metadata": {"name": f"node-{number:06d}"}, "status": {"allocatable": allocatable}}
        commands.append(Put(NODES.prefix + b"node-%06d" % number, orjson.dumps(body)))
    results["node created"] = each(commands, state.apply)
    results["pod created"] = each([pod(number, None, "Pending") for number in range(pods)], state.apply)
    results["pod bound"] = each([pod(number, number * 7919 % nodes, "Pending") for number in range(pods)], state.apply)
    results["pod running"] = each(
        [pod(number, number * 7919 % nodes, "Running") for number in range(pods)], state.apply
    )
    where = Where((Comparison("free.cpu", ">=", ("63",)), Comparison("free.memory", ">=", ("200Gi",))))
    query = RangeRequest(NODES.prefix, prefix_end(NODES.prefix), 10, where=where)
    results["query KEY 10"] = each(range(500), lambda _: state.range(query))
    results["query ANY 10"] = each(range(500), lambda _: state.range(query._replace(order="ANY")))
    hub = WatchHub(state)
    hub.add(NODES.prefix, prefix_end(NODES.prefix), 0, lambda _: None, where)
    moved = [pod(number, number * 31 % nodes, "Running") for number in range(2000)]
    results["pod moved, where-watch"] = each(moved, lambda command: (state.apply(command), hub.notify()))
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    measured = {"plain": plain(arguments.keys), "indexed": indexed(arguments.nodes)}
    for part, results in measured.items():
        print(f"{part:28}{'us':>12}")
        for name, value in results.items():
            print(f"  {name:26}{value:12.2f}")
    if arguments.json:
        arguments.json.write_text(
            json.dumps({"unit": "us", "keys": arguments.keys, "nodes": arguments.nodes, **measured}, indent=2)
        )


if __name__ == "__main__":
    main()

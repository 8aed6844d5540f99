"""An explored test as a pytest item: each run has its own cluster, and sets up and tears down its fixtures around the
test, as pytest does once for others.

Used in addition to pytest's public names: `Function._initrequest`, `_request._fillfixtures` and `Session._setupstate`,
with which pytest-rerunfailures, too, runs an item again."""

from __future__ import annotations

import inspect
import unittest
from contextlib import suppress
from typing import Any, Final

import pytest

from minikube_py.cluster.explore import Explored, explore
from minikube_py.cluster.factories import CLUSTER, LEFT, MARK, OURS, Ours, option, ours_of
from minikube_py.cluster.left_behind import sections
from minikube_py.cluster.local import Cluster

BEFORE: Final = pytest.StashKey[dict[Any, Any]]()
"""The state that pytest and its plugins had stored on the item before its first run."""


def prepare(item: pytest.Function) -> None:
    """Replaces pytest's set-up of the item. Raises: UsageError if it cannot be explored."""
    if isinstance(item.cls, type) and issubclass(item.cls, unittest.TestCase):
        raise pytest.UsageError(f"{MARK} is for test functions and methods, not for those of unittest.TestCase")
    if inspect.iscoroutinefunction(inspect.unwrap(item.obj)):
        raise pytest.UsageError(f"{MARK}: write it as `def`, not `async def`: only the program is asynchronous")
    if type(item).runtest is not pytest.Function.runtest:
        raise pytest.UsageError(f"{MARK}: no tests that a plugin runs itself, as {type(item).__name__}")
    cluster_of(item)
    item.setup = lambda: None  # type: ignore[method-assign]


def cluster_of(item: pytest.Function) -> Ours:
    """The options of a run's cluster: of the factory of the cluster that its fixture would use, else the defaults."""
    used = {name: ours for name, ours in ours_of(item).items() if ours.what != "minikube"}
    if used:
        names = " and ".join(used)
        raise pytest.UsageError(
            f"{MARK}: {names} is not explored: take what the test needs from `minikube`, the cluster of each run"
        )
    found: dict[int, Ours] = {}
    for name, ours in ours_of(item).items():
        definitions = item.session._fixturemanager.getfixturedefs(ours.cluster, item) or ()
        behind = OURS.get(getattr(definitions[-1], "func", None)) if definitions else None
        if behind is None or behind.what != "cluster":
            raise pytest.UsageError(f"{MARK}: {name} is on {ours.cluster}, which no run can have")
        nodes = behind.nodes if behind.nodes is not None else option(item.config, "nodes")
        found[nodes] = behind._replace(nodes=nodes, stages=behind.stages or option(item.config, "stages") or ())
    if len(found) > 1:
        raise pytest.UsageError(f"{MARK}: a run has one cluster, and the fixtures want {sorted(found)} nodes")
    return next(iter(found.values()))


def run(item: pytest.Function, seeds: list[int]) -> Explored:
    """Raises: what the test raises without any fault."""
    ours, failures = cluster_of(item), (pytest.fail.Exception,)
    return explore(lambda cluster: _once(item, cluster), seeds, ours.nodes or 0, failures, ours.stages)


def _once(item: pytest.Function, cluster: Cluster) -> None:
    calm = CLUSTER not in item.stash
    if calm:
        item.stash[BEFORE] = dict(item.stash._storage)
    for key, value in item.stash[BEFORE].items():
        # Some fixtures of pytest (tmp_path) remove what pytest stored for them.
        item.stash.setdefault(key, value)
    item.stash[CLUSTER] = cluster
    if item.cls is not None:
        for name in ("_instance", "_obj"):
            item.__dict__.pop(name, None)
    item._initrequest()
    try:
        item._request._fillfixtures()
        item.obj(**{name: item.funcargs[name] for name in item._fixtureinfo.argnames})
    except BaseException:
        if calm:
            item.stash[LEFT] = sections(cluster)
        with suppress(Exception, pytest.fail.Exception):
            _take_down(item)
        raise
    _take_down(item)


def _take_down(item: Any) -> None:
    state = item.session._setupstate
    try:
        # Up to its parent: everything of this item only.
        state.teardown_exact(item.parent)
    finally:
        state.setup(item)

"""Factories of pytest fixtures with custom options, in the style of pytest-postgresql.

    from minikube_py.cluster import factories

    big = factories.minikube_cluster(nodes=50)
    in_big = factories.minikube("big", isolation="snapshot")

A factory's arguments take precedence over the command line, and that over the ini file."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeVar

import pytest

if TYPE_CHECKING:
    from minikube_py.cluster.isolation import Before
    from minikube_py.cluster.local import Cluster
    from minikube_py.cluster.methods import BlockingMethods
    from minikube_py.cluster.outside import OutsideCluster
    from minikube_py.cluster.snapshots import Snapshot

Scope = Literal["session", "package", "module", "class", "function"]
Isolation = Literal["namespace", "snapshot"]
F = TypeVar("F")
NAME_MAX: Final = 40
SNAPSHOTS: Final = pytest.StashKey[dict[Any, tuple["Snapshot", tuple[int, int]]]]()
"""Of each cluster, with a mark of when it was restored."""
VIEWS: Final = pytest.StashKey[list["BlockingMethods"]]()
CLUSTER: Final = pytest.StashKey["Cluster"]()
"""The run of an explored test."""
LEFT: Final = pytest.StashKey[list[tuple[str, str]]]()
"""Leftovers when fixtures that use `minikube` had been torn down, or the test had failed without faults."""
RUINED: Final = "minikube_cluster_ruined"
MARK: Final = "minikube_explore"
ONLY_EXPLORED: Final = "minikube_only_explored"
SEEDS_USUAL: Final = 50
SEEDS_MAX: Final = 10_000_000
CHOICES: Final = {"clock": ("real", "virtual"), "isolation": ("namespace", "snapshot")}
LEAST: Final = {"nodes": 0, "seeds": 1, "seed-only": 1}
DIGITS_MAX: Final = 19
UNSEEN: Final = (
    "a test that asks for `minikube` by getfixturevalue cannot be explored: let it, or a fixture of its, take it as an "
    "argument"
)


class Ours(NamedTuple):
    """A fixture made here: a "cluster" of some nodes, an external server, or a "minikube" on the fixture of that
    name."""

    what: str
    nodes: int | None = None
    cluster: str = ""
    stages: Path | str | Sequence[Path | str] = ()


OURS: Final[dict[Any, Ours]] = {}
_numbers = itertools.count(1)


def minikube_cluster(
    *,
    nodes: int | None = None,
    clock: Literal["real", "virtual"] | None = None,
    seed: int | str | None = None,
    stages: Path | str | Sequence[Path | str] = (),
    scope: Scope = "session",
) -> Callable[..., Iterator[Cluster]]:
    """A running Cluster, by default one per session of each worker."""

    @pytest.fixture(scope=scope)
    def fixture(pytestconfig: pytest.Config) -> Iterator[Cluster]:
        """A running minikube_py.Cluster, for several tests."""
        from minikube_py.cluster.errors import ClusterError
        from minikube_py.cluster.local import Cluster

        how_many = nodes if nodes is not None else option(pytestconfig, "nodes")
        time = clock or option(pytestconfig, "clock")
        named = seed if seed is not None else option(pytestconfig, "seed")
        paths = stages or option(pytestconfig, "stages") or ()
        try:
            cluster = Cluster(how_many, clock=time, seed=named, stages=paths).start()
        except ClusterError as error:
            raise pytest.UsageError(f"minikube_cluster: {error}") from None
        yield cluster
        # What ruined it has been reported.
        cluster._stop(quietly=bool(cluster._ruin()))

    return _ours(fixture, Ours("cluster", nodes, stages=stages))


def minikube_noproc(
    *, kubeconfig: Path | str | None = None, context: str | None = None, scope: Scope = "session"
) -> Callable[..., Iterator[OutsideCluster]]:
    """A server that already runs; by default that of $KUBECONFIG or ~/.kube/config."""

    @pytest.fixture(scope=scope)
    def fixture(pytestconfig: pytest.Config) -> Iterator[OutsideCluster]:
        """A server that already runs, as a cluster: that of --minikube-kubeconfig, $KUBECONFIG or ~/.kube/config."""
        from minikube_py.cluster.outside import OutsideCluster, default_kubeconfig
        from minikube_py.errors import RequestError

        path = kubeconfig or option(pytestconfig, "kubeconfig") or default_kubeconfig()
        try:
            cluster = OutsideCluster(path, context or option(pytestconfig, "context") or "").start()
        except RequestError as error:
            raise pytest.UsageError(f"minikube_noproc: {error}") from None
        yield cluster
        cluster.stop()

    return _ours(fixture, Ours("outside"))


def minikube(cluster: str = "minikube_cluster", *, isolation: Isolation | None = None) -> Callable[..., Iterator[Any]]:
    """For one test, on the cluster of the fixture of that name: in a new namespace, deleted afterwards; or on the whole
    cluster, whose state is restored afterwards. Its faults, programs and webhooks end with it."""

    @pytest.fixture
    def fixture(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[BlockingMethods]:
        """A cluster for this test alone: a new namespace, or the whole one, whose state is restored afterwards."""
        if (explored := request.node.stash.get(CLUSTER, None)) is not None:
            yield explored
            return
        if option(request.config, "seeds") or option(request.config, "seed-only"):
            raise pytest.UsageError(UNSEEN)
        running = request.getfixturevalue(cluster)
        how = isolation or option(request.config, "isolation")
        if how not in CHOICES["isolation"]:
            raise pytest.UsageError(_one_of("isolation", how))
        used = _with_snapshot if how == "snapshot" else _in_namespace
        for door in used(request, running):
            _lead_to(str(door.kubeconfig_path), monkeypatch)
            request.node.stash.setdefault(VIEWS, []).append(door)
            yield door
            if _may_fail_in_teardown(request.node):
                from minikube_py.cluster.left_behind import sections

                request.node.stash.setdefault(LEFT, []).extend(sections(door))

    return _ours(fixture, Ours("minikube", cluster=cluster))


def end_ruined(item: pytest.Item) -> None:
    """Clusters that the test has stopped or broken, with all fixtures that use them: pytest sets them up again for the
    next test."""
    for name, ours in ours_of(item).items():
        name = ours.cluster or name
        for definition in (item.session._fixturemanager.getfixturedefs(name, item) or ())[-1:]:
            if OURS.get(getattr(definition, "func", None), ours).what != "cluster" or not definition.cached_result:
                continue
            cluster = definition.cached_result[0]
            if cluster is not None and (ruin := cluster._ruin()):
                said = f"{name} was started again after {item.nodeid}: {ruin}"
                item.user_properties.append((RUINED, said))
                definition.finish(item._request)  # type: ignore[attr-defined]


def _ours(fixture: F, ours: Ours) -> F:
    """The fixtures made here, whatever their names."""
    OURS[fixture._fixture_function] = ours  # type: ignore[attr-defined]
    return fixture


def ours_of(item: pytest.Item) -> dict[str, Ours]:
    """Those that the test uses, by their names there."""
    found = {name: OURS.get(getattr(definition, "func", None)) for name, definition in _definitions(item)}
    return {name: ours for name, ours in found.items() if ours is not None}


def _definitions(item: pytest.Item) -> Iterator[tuple[str, Any]]:
    info = getattr(item, "_fixtureinfo", None)
    return ((name, each[-1]) for name, each in getattr(info, "name2fixturedefs", {}).items() if each)


def _may_fail_in_teardown(item: pytest.Item) -> bool:
    """Whether the test's own fixtures may have used `minikube` until now."""
    functions = (definition.func for _, definition in _definitions(item))
    own = (each for each in functions if each not in OURS)
    return any(not str(getattr(each, "__module__", "")).startswith("_pytest.") for each in own)


def seeds_of(item: pytest.Item) -> list[int]:
    """The seeds for exploring the test: from the command line, else from its mark.

    Raises: UsageError if the mark is invalid, or the test has nothing to explore."""
    mark = item.get_closest_marker(MARK)
    one, count = option(item.config, "seed-only"), option(item.config, "seeds")
    marked = None if mark is None else _marked(mark)
    if not any(ours.what == "minikube" for ours in ours_of(item).values()):
        if mark is not None or item.config.getoption(ONLY_EXPLORED):
            raise pytest.UsageError(f"{MARK} is for tests that use the fixture `minikube`; this one does not")
        return []
    if one is not None:
        return [one]
    count = count or marked
    return [] if count is None else list(range(1, count + 1))


def _marked(mark: pytest.Mark) -> int:
    """Raises: UsageError."""
    given = {**dict(zip(("seeds",), mark.args, strict=False)), **mark.kwargs}
    if len(mark.args) + len(mark.kwargs) > 1 or given.keys() - {"seeds"}:
        said = ", ".join([*map(repr, mark.args), *(f"{name}={value!r}" for name, value in mark.kwargs.items())])
        raise pytest.UsageError(f"{MARK} takes seeds=N alone, not ({said}); one seed again: --minikube-seed-only")
    count = given.get("seeds", SEEDS_USUAL)
    if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= SEEDS_MAX:
        raise pytest.UsageError(f"{MARK}: seeds is a whole number from 1 to {SEEDS_MAX:,}, not {count!r}")
    return count


def _lead_to(kubeconfig: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from minikube_py.cluster import no_cluster

    monkeypatch.setenv("KUBECONFIG", kubeconfig)
    for name in no_cluster.IN_A_POD:
        monkeypatch.delenv(name, raising=False)
    for module in no_cluster.located():
        monkeypatch.setattr(module, no_cluster.LOCATION, kubeconfig)


def _in_namespace(request: pytest.FixtureRequest, running: Any) -> Iterator[BlockingMethods]:
    slug = re.sub("[^a-z0-9]+", "-", request.node.name.lower()).strip("-")[:NAME_MAX].strip("-") or "test"
    # An external server has seen other runs, and may be used by several workers: it chooses the name.
    named = {"name": f"{slug}-{next(_numbers)}"} if running.of_this_process else {"generateName": f"{slug}-"}
    (namespace,) = running.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": named})
    name = namespace["metadata"]["name"]
    view = running.in_namespace(name)
    # Pods need it, and are refused until it exists.
    view.wait("serviceaccount/default")
    before = _before(running) if running.of_this_process else None
    yield view
    view.client.close()
    if before is None or before.put_back():
        from minikube_py.cluster.isolation import delete_namespace

        delete_namespace(running, name)


def _with_snapshot(request: pytest.FixtureRequest, running: Any) -> Iterator[BlockingMethods]:
    """Of the state before the test; taken again only if something has changed since that state was restored."""
    if not running.of_this_process:
        raise pytest.UsageError(
            "minikube_isolation=snapshot is for a cluster of this process; a server from outside has namespaces"
        )
    kept = request.config.stash.setdefault(SNAPSHOTS, {})
    before = _before(running)
    snapshot, mark = kept.pop(before.engine, (None, (0, 0)))
    if snapshot is None or running._has_changed(mark):
        snapshot = running.snapshot()
    # Fixtures of a wider scope have made theirs by now.
    made = running.client._made()
    yield running
    running.client.close(made)
    if before.put_back():
        try:
            running.restore(snapshot)
            kept[before.engine] = snapshot, running._mark()
        except Exception:
            # The next test gets another cluster instead of this one's state.
            running.stop()
            raise


def _before(running: Cluster) -> Before:
    from minikube_py.cluster.isolation import Before

    return Before(running)


def option(config: pytest.Config, name: str) -> Any:
    """From the command line, else from the ini file; None if in neither. Raises: UsageError."""
    key = f"minikube_{name.replace('-', '_')}"
    given = config.getoption(key)
    text = given if given is not None else config.getini(key)
    if name in CHOICES and text not in CHOICES[name]:
        raise pytest.UsageError(_one_of(name, text))
    if name not in LEAST:
        return text or None
    if text and not (text.isascii() and text.isdecimal() and len(text) < DIGITS_MAX and int(text) >= LEAST[name]):
        raise pytest.UsageError(f"{key} is a whole number from {LEAST[name]} on, not {text!r}")
    return int(text) if text else None


def check_files(config: pytest.Config) -> None:
    """Those that the command line names, and the stages of the ini file. Raises: UsageError."""
    stages = option(config, "stages")
    kubeconfig, context = config.getoption("minikube_kubeconfig"), config.getoption("minikube_context")
    if not stages and kubeconfig is None and context is None:
        return
    from minikube_py.cluster.outside import OutsideCluster, default_kubeconfig
    from minikube_py.control_plane.stage_files import read_stages
    from minikube_py.errors import MinikubeError

    named = "stages"
    try:
        if stages:
            read_stages((Path(stages),))
        if kubeconfig is not None or context is not None:
            named = "kubeconfig" if kubeconfig is not None else "context"
            path = kubeconfig or option(config, "kubeconfig") or default_kubeconfig()
            OutsideCluster(path, context or option(config, "context") or "")
    except MinikubeError as error:
        raise pytest.UsageError(f"minikube_{named}: {error}") from None


def without_own_frames(raised: pytest.ExceptionInfo[BaseException]) -> None:
    """A refusal says in its text what happened: its traceback ends where the test called."""
    from minikube_py.api.errors import StatusError
    from minikube_py.cluster.errors import ClusterError

    if not isinstance(raised.value, ClusterError | StatusError):
        return
    last, each = None, raised.value.__traceback__
    while each is not None:
        last = each if not _module(each.tb_frame).startswith("minikube_py.") else last
        each = each.tb_next
    # Of a call by this plugin alone, all is shown.
    if last is not None and not _module(last.tb_frame).startswith(("_pytest.", "pluggy.")):
        last.tb_next = None


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))


def is_wrong_use(raised: pytest.ExceptionInfo[BaseException]) -> bool:
    """Whether it is a UsageError of this plugin."""
    of = _module(raised.traceback[-1].frame.raw)
    return isinstance(raised.value, pytest.UsageError) and of.startswith(f"{__package__}.")


def _one_of(name: str, text: object) -> str:
    return f"minikube_{name} is {' or '.join(map(repr, CHOICES[name]))}, not {text!r}"

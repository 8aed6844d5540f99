"""Programs in virtual time, and what exploring them finds: three wrong operators, and nothing in the right one."""

from __future__ import annotations

import asyncio
import gc
import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from detection import BUGS, DEFAULT, Detection
from site_operator import (
    SITE,
    BelievesItsList,
    NeedsTheEvent,
    SiteOperator,
    TakesOneForBoth,
    a_site_comes_changes_and_goes,
)
from test_plugin import LOADED, UNUSED

from minikube_py import Cluster, ClusterError
from minikube_py.cluster.aimed_faults import Aimed
from minikube_py.cluster.explore import Outcome, explore, run_once, shrunk
from minikube_py.cluster.program import Step
from minikube_py.sim.faults import Fault
from minikube_py.sim.loop import SimLoop

pytestmark = pytest.mark.real_time("plain functions, and processes")
ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs/how-to/explore.md"
SEEDS = int(os.environ.get("MINIKUBE_PY_EXPLORE_SEEDS", "15"))
MAPS = "/api/v1/namespaces/default/configmaps"


@pytest.mark.parametrize(
    ("operator", "says", "classes"),
    [
        (TakesOneForBoth, "service/shop", {"crash_client", "no_leader", "fail", "lost_answer", "throttle"}),
        (BelievesItsList, "removed and made again", {"stale"}),
        (NeedsTheEvent, "rc/shop in default: not gone", {"unseen", "cut_watch", "expire", "crash_client", "no_leader"}),
    ],
)
def test_a_wrong_operator_is_found(operator: type[SiteOperator], says: str, classes: set[str]) -> None:
    test = partial(a_site_comes_changes_and_goes, operator=operator)
    found = explore(test, range(1, DEFAULT + 1)).found
    assert found is not None and found.repeats
    assert says in str(found.least.error)
    least = found.least.faults
    assert 1 <= len(least) <= len(found.drawn.faults)
    assert any(fault.kind in classes for fault in least)
    for fault in least:
        # Without any of its faults, the shortest schedule does not fail.
        assert run_once(test, found.seed, tuple(each for each in least if each is not fault)).passed
    again = run_once(test, found.seed, least)
    assert again.timeline.lines() == found.least.timeline.lines() and again.begun == found.least.begun
    text = found.text()
    assert again.begun and all(str(fault) in text for _, fault in again.begun)
    assert f"seed {found.seed} fails: " in text and "the shortest schedule found that still fails (" in text
    assert f"({len(least)} of " in text
    assert "operator: GET /api/v1/namespaces/default/configmaps labelSelector=site=yes: 200 with" in text
    assert "store: replicationcontrollers/default/shop created at revision" in text


@pytest.mark.parametrize("operator", BUGS)
def test_each_known_bug_is_found_within_the_default_seeds_from_any(operator: type[SiteOperator]) -> None:
    detection = Detection(operator)
    needed = [detection.needed(start) for start in (1_001, 50_001, 7_000_001)]
    assert all(needed), needed


@pytest.mark.timeout(3600)
def test_nothing_is_found_in_the_right_one() -> None:
    explored = explore(a_site_comes_changes_and_goes, range(1, SEEDS + 1))
    assert explored.found is None, explored.found.text()
    assert explored.seeds == SEEDS and explored.kinds.total() >= SEEDS


def test_runs_leave_no_clusters_behind() -> None:
    def loops() -> int:
        return sum(issubclass(type(each), SimLoop) for each in gc.get_objects())

    collecting = gc.isenabled()
    gc.collect()
    before = loops()
    gc.disable()
    try:
        for seed in range(3):
            assert run_once(lambda cluster: None, seed, ()).passed
        assert loops() <= before + 1, "the last one's, at most"
    finally:
        if collecting:
            gc.enable()


def test_one_seed_gives_one_timeline_and_another_seed_another() -> None:
    faults = (
        Aimed(Fault(0, "crash_client"), Step("create", "services", 1)),
        Aimed(Fault(5_000_000, "unseen", (), (), 400_000, 1, "configmaps")),
    )
    runs = [run_once(a_site_comes_changes_and_goes, seed, faults) for seed in (1, 1, 2)]
    assert all(each.passed for each in runs)
    first, again, other = ("\n".join(each.timeline.lines()) for each in runs)
    assert first == again != other
    for said in ("operator crashes", "operator starts again", "fault: unseen", "no more faults"):
        assert said in first


def test_a_test_that_fails_without_faults_is_not_explored() -> None:
    def test(minikube: Any) -> None:
        raise ValueError("as it is")

    with pytest.raises(ValueError, match="as it is"):
        explore(test, range(1, 3))


def test_shrinking_does_not_swap_one_bug_for_another() -> None:
    """Both are AssertionErrors. Of two faults the second bug needs both; one alone shows the first."""

    def runs(faults: Sequence[Aimed]) -> Outcome:
        outcome = run_once(test, 3, ())
        return Outcome(tuple(faults), failed_with(len(faults)), outcome.timeline, outcome.calm)

    def test(minikube: Any) -> None:
        pass

    def failed_with(count: int) -> BaseException | None:
        try:
            assert count != 1, "one bug"
            assert count != 2, "another bug"
        except AssertionError as error:
            return error
        return None

    faults = (Aimed(Fault(0, "conflict", amount=1.0)), Aimed(Fault(1, "fail", amount=1.0)))
    found = shrunk(runs, 3, runs(faults))
    assert found.repeats and found.least.faults == faults
    assert "another bug" in str(found.least.error)
    alone = shrunk(runs, 3, runs(faults[:1]))
    assert alone.repeats and alone.least.faults == faults[:1] and "one bug" in str(alone.least.error)


def test_what_fails_only_once_is_said_to() -> None:
    runs = []

    def test(minikube: Any) -> None:
        runs.append(minikube)
        if len(runs) == 2:
            raise ValueError("just now")

    found = explore(test, range(1, 3)).found
    assert found is not None and not found.repeats
    assert "once more, the same seed did not fail again." in found.text() and "shortest" not in found.text()


@pytest.mark.parametrize("faults", [0, 1, 2, 5])
@pytest.mark.parametrize("repeats", [True, False])
def test_every_run_is_counted_and_another_failure_is_told(faults: int, repeats: bool) -> None:
    calm = run_once(lambda minikube: None, 3, ())
    errors: list[BaseException] = []

    def run(given: Sequence[Aimed]) -> Outcome:
        try:
            raise (KeyError("first") if repeats or not errors else ValueError("second"))
        except (KeyError, ValueError) as error:
            errors.append(error)
        return Outcome(tuple(given), errors[-1], calm.timeline, calm.calm)

    drawn = tuple(Aimed(Fault(at_us, "conflict", amount=1.0)) for at_us in range(faults))
    found = shrunk(run, 3, run(drawn))
    assert found.runs == len(errors) and found.repeats == repeats
    assert f"{len(errors)} runs):" in found.text() and found.text().startswith("seed 3 fails: KeyError: 'first'")
    if not repeats:
        assert "once more, the same seed failed otherwise: ValueError: second." in found.text()


async def of_httpx(clients: Any) -> None:
    async with clients.httpx_asyncio() as http:
        listed = (await http.get(MAPS)).json()
        await http.post(MAPS, json={"metadata": {"name": "made"}})
        since = {"watch": "true", "resourceVersion": listed["metadata"]["resourceVersion"]}
        async with http.stream("GET", MAPS, params=since) as response:
            async for line in response.aiter_lines():
                if '"made"' in line:
                    break
        assert (await http.post(MAPS, json={"metadata": {"name": "made"}})).status_code == 409
        await http.post(MAPS, json={"metadata": {"name": "done"}})


async def of_lightkube(clients: Any) -> None:
    from lightkube.models.meta_v1 import ObjectMeta
    from lightkube.resources.core_v1 import ConfigMap

    client = clients.lightkube_asyncio()
    await client.create(ConfigMap(metadata=ObjectMeta(name="made")))
    async for kind, each in client.watch(ConfigMap):
        if (kind, each.metadata.name) == ("ADDED", "made"):
            break
    assert "made" in [each.metadata.name async for each in client.list(ConfigMap)]
    await client.create(ConfigMap(metadata=ObjectMeta(name="done")))


async def of_kubernetes_asyncio(clients: Any) -> None:
    from kubernetes_asyncio import client, watch

    async with await clients.kubernetes_asyncio() as api:
        core = client.CoreV1Api(api)
        await core.create_namespaced_config_map("default", {"metadata": {"name": "made"}})
        async with watch.Watch() as watching:
            async for event in watching.stream(core.list_namespaced_config_map, "default"):
                if event["object"].metadata.name == "made":
                    break
        with pytest.raises(client.ApiException) as refused:
            await core.create_namespaced_config_map("default", {"metadata": {"name": "made"}})
        assert refused.value.status == 409
        await core.create_namespaced_config_map("default", {"metadata": {"name": "done"}})


@pytest.mark.parametrize("main", [of_httpx, of_lightkube, of_kubernetes_asyncio])
def test_a_program_may_use_any_of_these_clients(main: Callable[[Any], Any]) -> None:
    digests = []
    for _ in range(2):
        with Cluster(clock="virtual", seed=5) as cluster:
            program = cluster.program(main)
            cluster.wait("cm/done")
            cluster.advance(1)
            assert program.returned and program.starts == 1, program.error
            digests.append(cluster.digest)
    assert digests[0] == digests[1]


def test_a_program_that_raises_is_started_again_later_each_time() -> None:
    with Cluster(clock="virtual") as cluster:
        begun: list[float] = []

        async def fails(clients: Any) -> None:
            begun.append(cluster.now_s)
            raise ValueError("again")

        program = cluster.program(fails)
        cluster.advance(10)
        assert str(program.error) == "again" and program.starts == len(begun) >= 5
        pauses = [later - earlier for earlier, later in pairwise(begun)]
        assert pauses == sorted(pauses)


def test_nothing_of_a_program_runs_after_it_crashed() -> None:
    ticks: list[int] = []
    lives: list[Any] = []

    async def ticking(clients: Any) -> None:
        lives.append(clients)
        life = len(lives)

        async def tick() -> None:
            while True:
                ticks.append(life)
                await asyncio.sleep(0.01)

        beside = asyncio.ensure_future(tick())
        await beside

    with Cluster(clock="virtual") as cluster:
        program = cluster.program(ticking)
        cluster.advance(1)
        program.crash()
        cluster.advance(3)
        assert program.starts == 2 and ticks == sorted(ticks) and set(ticks) == {1, 2}
        program.stop()
        count = len(ticks)
        cluster.advance(3)
        assert len(ticks) == count and not program.running


def test_a_write_that_was_sent_arrives_though_its_sender_crashed() -> None:
    async def writes(clients: Any) -> None:
        async with clients.httpx_asyncio() as http:
            await http.post(MAPS, json={"metadata": {"name": "sent"}})

    with Cluster(clock="virtual") as cluster:
        program = cluster.program(writes)
        cluster.advance(0.0001)
        program.stop()
        cluster.wait("cm/sent", timeout_s=1)


def test_programs_are_for_virtual_time() -> None:
    async def main(clients: Any) -> None: ...

    with Cluster(nodes=0) as cluster, pytest.raises(ClusterError, match="runs in real time"):
        cluster.program(main)


def in_folder(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = (sys.executable, "-m", *command)
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


@pytest.mark.timeout(900)
def test_the_page_as_typed(tmp_path: Path) -> None:
    found = re.findall(r"```python\n# (\S+\.py)\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert [name for name, _ in found] == ["exposer.py", "test_exposer.py", "exposer.py"]
    for name, text in found[:2]:
        (tmp_path / name).write_text(text)
    target = "test_exposer.py::test_it_is_exposed"
    done = in_folder(tmp_path, "minikube_py", "explore", target, "--seeds", "200")
    assert done.returncode == 1, done.stdout + done.stderr
    shortest = "the shortest schedule found that still fails ("
    for said in ("is_exposed explored", shortest, "operate starts"):
        assert said in done.stdout, done.stdout
    again = re.search(r"again: minikube-py (explore) '(\S+)' (--seed) (\d+)", done.stdout)
    assert again is not None, done.stdout
    once_more = in_folder(tmp_path, "minikube_py", *again.groups())
    assert once_more.returncode == 1 and f"seed {again[4]} fails: " in once_more.stdout
    (tmp_path / "exposer.py").write_text(found[2][1])
    repaired = in_folder(tmp_path, "minikube_py", "explore", target, "--seeds", "30")
    assert repaired.returncode == 0 and ": 30 seeds, " in repaired.stdout, repaired.stdout + repaired.stderr


@pytest.mark.timeout(900)
def test_the_mark_among_other_tests(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        f"""
        import pytest

        SITE = {SITE!r}

        @pytest.fixture
        def other(): return 7

        @pytest.mark.minikube_explore(seeds=3)
        @pytest.mark.parametrize("number", [1])
        def test_explored(minikube, other, number):
            assert (other, number) == (7, 1)
            minikube.apply(SITE)
            minikube.advance(minutes=5)

        @pytest.mark.minikube_explore(seeds=3)
        async def test_asynchronous(minikube): ...

        def test_plain(minikube):
            assert minikube.namespace.startswith("test-plain")
        """
    )
    result = pytester.runpytest_subprocess(*LOADED, *UNUSED)
    result.assert_outcomes(passed=2, errors=1)
    result.stdout.fnmatch_lines(["*write it as `def`, not `async def`*"])
    result.stdout.fnmatch_lines(["explored test_the_mark_among_other_tests.py::test_explored*: 3 seeds, *"])


pytest_plugins = ("pytester",)

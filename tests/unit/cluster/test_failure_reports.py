"""Each report of a failure says how the programs under test go: their starts, their latest error with its line, and
what they read and wrote."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Any

import pytest
from test_plugin import run

from minikube_py import Cluster, WaitTimeout
from minikube_py.cluster.explore import FAILS_CALM, explore

pytest_plugins = ("pytester",)
pytestmark = [pytest.mark.real_time("plain functions, and processes"), pytest.mark.filterwarnings("default")]
MAPS = "/api/v1/namespaces/default/configmaps"
PROGRAMS = f"""
    import asyncio
    import pytest

    async def typo(clients):
        async with clients.httpx_asyncio() as http:
            (await http.get("{MAPS}")).raise_for_status()
            await http.post("{MAPS}", json=bdy)

    def wrong(clients):
        clients.httpx().get("{MAPS}")
        clients.kr8s()

    async def returns(clients): pass

    def waits(minikube, program, seconds=20):
        minikube.program(program)
        minikube.wait("cm/a", timeout_s=seconds)
"""


async def typo(clients: Any) -> None:
    async with clients.httpx_asyncio() as http:
        await http.get(MAPS)
        raise NameError("name 'bdy' is not defined")


def plain(clients: Any) -> None:
    clients.httpx().get(MAPS)
    clients.httpx_asyncio()
    raise NameError("name 'bdy' is not defined")


@pytest.mark.parametrize("main", [typo, plain])
def test_a_wait_in_vain_names_the_programs_that_raised(main: Callable[[Any], Any]) -> None:
    async def works(clients: Any) -> None:
        await asyncio.sleep(1000)

    with Cluster(clock="virtual") as cluster:
        cluster.program(works)
        program = cluster.program(main)
        with pytest.raises(WaitTimeout) as raised:
            cluster.wait("cm/a", timeout_s=20)
        starts = program.starts
        assert starts > 3
        assert f"program {main.__name__} " in str(raised.value) and f"{starts} starts; it raised " in str(raised.value)
        assert f"NameError: name 'bdy' is not defined at {__file__}:" in str(raised.value)
        assert "program works" not in str(raised.value)


@pytest.mark.parametrize("main", [typo, plain])
def test_without_faults_the_error_has_a_note(main: Callable[[Any], Any]) -> None:
    def test(minikube: Any) -> None:
        minikube.program(main)
        minikube.advance(5)
        raise ValueError("as it is")

    with pytest.raises(ValueError, match="as it is") as raised:
        explore(test, range(1, 3))
    (note,) = raised.value.__notes__
    assert note.startswith(f"{FAILS_CALM}\nprogram {main.__name__} ") and "NameError: name 'bdy'" in note


def test_under_faults_the_text_has_the_programs() -> None:
    async def needs_each_answer(clients: Any) -> None:
        async with clients.httpx_asyncio() as http:
            for _ in range(100):
                (await http.get(MAPS)).raise_for_status()
                await asyncio.sleep(0.1)
        await asyncio.sleep(1e6)

    def test(minikube: Any) -> None:
        program = minikube.program(needs_each_answer)
        minikube.advance(15)
        assert program.starts == 1

    found = explore(test, range(1, 40)).found
    assert found is not None
    assert re.search(r"\nprogram needs_each_answer runs, \d starts; it raised HTTPStatusError", found.text())


def test_a_request_without_an_answer_is_in_the_timeline() -> None:
    async def asks(clients: Any) -> None:
        async with clients.httpx_asyncio() as http:
            await http.post(MAPS, json={"metadata": {"name": "a"}})
            await http.get(f"{MAPS}/a")

    with Cluster(clock="virtual") as cluster:
        cluster.slow(100, "configmaps")
        cluster.program(asks)
        cluster.advance(5)
        lines = cluster._virtual().programs.timeline.lines()
        assert [line for line in lines if line.endswith(f"asks: POST {MAPS}: no answer came")]
        cluster.advance(300)
        lines = cluster._virtual().programs.timeline.lines()
        assert not [line for line in lines if line.endswith("no answer came")]


@pytest.mark.parametrize("name", ["typo", "wrong", "returns"])
def test_reports_of_pytest_have_the_programs_and_what_they_did(pytester: pytest.Pytester, name: str) -> None:
    pytester.makepyfile(
        PROGRAMS
        + f"""
    def test_plain(minikube): waits(minikube, {name})

    @pytest.mark.minikube_explore(seeds=3)
    def test_explored(minikube): waits(minikube, {name})
    """
    )
    result = run(pytester, "--minikube-clock=virtual")
    result.assert_outcomes(failed=2)
    error = {"typo": "NameError: *'bdy'*", "wrong": "ClusterError: kr8s() opens sockets*"}.get(name)
    program = f"program {name} *starts; it raised {error}" if error else f"program {name} has returned, 1 start"
    line = f"*  {name}: GET {MAPS}: 200 *" if error else f"*  {name} starts"
    for said in ("test_plain", "test_explored"):
        result.stdout.fnmatch_lines([f"*_ {said} _*", "*- minikube: programs -*", program, "reads and writes, *", line])
    result.stdout.fnmatch_lines([f"*{FAILS_CALM}"])


@pytest.mark.parametrize("shrinking", [False, True])
def test_what_ends_the_exploring_names_the_seed(shrinking: bool) -> None:
    runs = []

    def test(minikube: Any) -> None:
        runs.append(minikube)
        if shrinking and len(runs) == 4:
            raise ValueError("a failure")
        if len(runs) == 5 or (not shrinking and len(runs) == 4):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as raised:
        explore(test, range(1, 9))
    assert raised.value.__notes__ == ["it came while seed 3 was explored"]

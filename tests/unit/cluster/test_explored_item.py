"""Explored tests as pytest's items: fixtures set up again by each run, marks that are wrong, and what failures show."""

from __future__ import annotations

import sys

import pytest
from test_plugin import run

pytest_plugins = ("pytester",)
pytestmark = [pytest.mark.real_time("processes"), pytest.mark.filterwarnings("default")]
FIXTURES = """
    import pytest

    MAP = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}}
    told = []

    @pytest.fixture
    def web(minikube):
        minikube.apply(MAP)
        told.append("up")
        yield minikube
        assert minikube.get("cm/m")["metadata"]["name"] == "m"
        told.append("down")

    @pytest.fixture(scope="module")
    def once():
        told.append("once")
"""


def test_each_run_sets_its_fixtures_up_and_takes_them_down(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        FIXTURES
        + """
    @pytest.fixture(autouse=True)
    def before(request):
        yield
        told.append("after")

    @pytest.mark.minikube_explore(seeds=3)
    @pytest.mark.parametrize("number", [1, 2])
    def test_it(web, minikube, once, tmp_path, number):
        assert web is minikube and web.clock == "virtual" and len(web.objects("nodes")) == 1
        assert [each["metadata"]["name"] for each in web.objects("cm")].count("m") == 1
        (tmp_path / "new").touch(exist_ok=False)
        told.append("test")

    def test_what_was_told():
        runs = ["up", "test", "down", "after"] * 4
        assert [each for each in told if each != "once"] == [*runs, *runs]
        assert told.count("once") == 1

    @pytest.mark.minikube_explore(seeds=2)
    class TestMethods:
        @pytest.fixture(autouse=True)
        def has(self, minikube):
            self.cluster = minikube

        def setup_method(self):
            self.count = 0

        def test_it(self):
            self.count += 1
            assert self.count == 1 and not hasattr(self, "seen")
            self.seen = self.cluster.digest
    """
    )
    result = run(pytester)
    result.assert_outcomes(passed=4)
    result.stdout.fnmatch_lines(["explored *test_it?1?: 3 seeds, *", "explored *TestMethods::test_it: 2 seeds, *"])
    run(pytester, "--minikube-seeds=1", "-k", "Methods").assert_outcomes(passed=1, deselected=3)


def test_the_nodes_are_those_of_the_fixtures_cluster(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest
        from minikube_py.cluster import factories

        big = factories.minikube_cluster(nodes=5)
        in_big = factories.minikube("big")
        outside = factories.minikube("minikube_noproc")

        @pytest.mark.minikube_explore(seeds=1)
        def test_big(in_big): assert len(in_big.objects("nodes")) == 5

        @pytest.mark.minikube_explore(seeds=1)
        def test_both(in_big, minikube): pass

        @pytest.mark.minikube_explore(seeds=1)
        def test_outside(outside): pass

        @pytest.mark.minikube_explore(seeds=1)
        def test_behind(minikube, minikube_cluster): pass
        """
    )
    result = run(pytester)
    result.assert_outcomes(passed=1, errors=3)
    result.stdout.fnmatch_lines(["*a run has one cluster, and the fixtures want ?1, 5? nodes*"])
    result.stdout.fnmatch_lines(["*outside is on minikube_noproc, which no run can have*"])
    result.stdout.fnmatch_lines(["*minikube_cluster is not explored: take what the test needs from `minikube`*"])


@pytest.mark.parametrize(
    ("mark", "said"),
    [
        ("seeds=0", "seeds is a whole number from 1 to 10,000,000, not 0"),
        ("seeds=-3", "*not -3"), ("seeds='3'", "*not '3'"), ("seeds=2.5", "*not 2.5"), ("seeds=True", "*not True"),
        ("seeds=None", "*not None"), ("[]", "*not *"), ("10**9", "*not 1000000000"),
        ("seed=3", "takes seeds=N alone, not (seed=3)*"), ("3, 4", "takes seeds=N alone, not (3, 4)*"),
        ("3, seeds=4", "takes seeds=N alone, not (3, seeds=4)*"), ("seeds=3, nodes=2", "takes seeds=N alone*"),
    ],
)  # fmt: skip
def test_a_mark_that_cannot_be_is_a_usage_error(pytester: pytest.Pytester, mark: str, said: str) -> None:
    pytester.makepyfile(f"import pytest\n@pytest.mark.minikube_explore({mark})\ndef test_it(minikube): print('it ran')")
    result = run(pytester, "-s")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([f"test_*.py:2: UsageError: minikube_explore*{said}"])
    result.stdout.no_fnmatch_line("*pytest_plugin*")
    result.stdout.no_fnmatch_line("it ran")


def test_a_mark_where_nothing_can_be_explored_is_a_usage_error(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest
        import unittest

        pytestmark = pytest.mark.minikube_explore(seeds=2)

        def test_other(minikube_cluster): pass
        def test_none(): pass
        async def test_async(minikube): pass

        class TestOld(unittest.TestCase):
            @pytest.fixture(autouse=True)
            def has(self, minikube): pass
            def test_it(self): pass
        """
    )
    result = run(pytester)
    result.assert_outcomes(errors=4)
    result.stdout.fnmatch_lines_random(
        [
            "*is for tests that use the fixture `minikube`; this one does not*",
            "*write it as `def`, not `async def`*",
            "*not for those of unittest.TestCase*",
        ]
    )
    assert len([each for each in result.outlines if each.startswith("test_")]) == 5, "a line for each, and its progress"
    result.stdout.no_fnmatch_line("*pytest_plugin*")


def test_an_asynchronous_test_is_refused_as_such_whoever_runs_it(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import unittest

        import anyio
        import pytest

        async def test_auto(minikube): pass

        @pytest.mark.asyncio
        async def test_asyncio(minikube): pass

        @pytest.mark.anyio
        @pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
        async def test_anyio(minikube, anyio_backend): pass

        class TestOld(unittest.IsolatedAsyncioTestCase):
            @pytest.fixture(autouse=True)
            def has(self, minikube): pass
            async def test_it(self): pass
        """
    )
    for mode in ("auto", "strict"):
        result = run(pytester, "-p", "anyio", "--minikube-seeds=1", f"--asyncio-mode={mode}")
        result.assert_outcomes(errors=5)
        # Under CI pytest's summary repeats them.
        lines = [each for each in result.outlines if not each.startswith("ERROR ")]
        said = [each.partition("UsageError: ")[2] for each in lines if "UsageError: " in each]
        assert len([each for each in said if "write it as `def`, not `async def`" in each]) == 4, said
        assert len([each for each in said if "not for those of unittest.TestCase" in each]) == 1, said


def test_a_usage_error_of_the_test_itself_keeps_its_traceback(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("import pytest\ndef test_it(minikube):\n    raise pytest.UsageError('of the test')")
    result = run(pytester, "--minikube-clock=virtual")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([">*raise pytest.UsageError('of the test')"])


def test_a_fixture_that_fails_in_a_run_is_the_runs_failure(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        FIXTURES
        + """
    @pytest.fixture
    def fails(web):
        web.wait("cm/never", timeout_s=1)

    @pytest.fixture
    def fails_later(web):
        yield
        pytest.fail("too late")

    @pytest.fixture
    def fails_under_faults(web):
        client = web.client.httpx()
        for _ in range(200):
            assert client.get("/api/v1/nodes").status_code == 200, "an operator that gives up"
            web.advance(0.05)

    @pytest.mark.minikube_explore(seeds=3)
    def test_calm(fails): pass

    @pytest.mark.minikube_explore(seeds=3)
    def test_calm_later(fails_later): pass

    @pytest.mark.minikube_explore(seeds=30)
    def test_faults(fails_under_faults): pass

    @pytest.mark.minikube_explore(seeds=3)
    def test_skips(web): pytest.skip("not today")

    def test_balance(): assert told.count("up") == told.count("down")
    """
    )
    result = run(pytester)
    result.assert_outcomes(failed=3, skipped=1, passed=1)
    result.stdout.fnmatch_lines(["*minikube: objects in default*", "ConfigMap default/m"])
    result.stdout.fnmatch_lines(["*too late*"])
    result.stdout.fnmatch_lines(["*minikube: test_faults explored*", "seed * fails: AssertionError: *gives up*"])
    result.stdout.fnmatch_lines(["again: minikube-py explore '*::test_faults' --seed *"])
    result.stdout.fnmatch_lines(["explored *::test_faults: * of 30 seeds, *"])


def test_what_fails_before_and_after_the_test_is_shown_too(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        FIXTURES
        + """
    @pytest.fixture
    def waits(web):
        web.wait("cm/never", timeout_s=0)

    @pytest.fixture
    def ends_badly(web):
        yield
        web.apply({**MAP, "metadata": {"name": "late"}})
        assert False, "at the end"

    def test_before(waits): pass

    def test_after(ends_badly): pass
    """
    )
    result = run(pytester)
    result.assert_outcomes(passed=1, errors=2)
    result.stdout.fnmatch_lines(
        ["*ERROR at setup of test_before*", "*minikube: objects in test-before-*", "ConfigMap test-before-*/m"]
    )
    result.stdout.fnmatch_lines(
        ["*ERROR at teardown of test_after*", "*minikube: objects in test-after-*", "ConfigMap test-after-*/late"]
    )


@pytest.mark.parametrize(
    ("test", "said"),
    [
        ("def test_it(): pass", "minikube_explore is for tests that use the fixture `minikube`*"),
        ("def test_it(minikube_cluster): pass", "minikube_explore is for tests that use the fixture `minikube`*"),
        ("def test_it(minikube): pytest.skip('not today')", "nothing was explored"),
        ("@pytest.mark.skip\ndef test_it(minikube): pass", "nothing was explored"),
        ("@pytest.mark.xfail(run=False)\ndef test_it(minikube): pass", "nothing was explored"),
    ],
)
def test_the_command_fails_where_nothing_is_explored(pytester: pytest.Pytester, test: str, said: str) -> None:
    path = pytester.makepyfile(f"import pytest\n{test}\ndef test_other(minikube): pass")
    result = pytester.run(sys.executable, "-m", "minikube_py", "explore", f"{path}::test_it", "--seeds", "2")
    assert result.ret == 1
    result.stdout.fnmatch_lines([f"*{said}"])
    both = pytester.run(sys.executable, "-m", "minikube_py", "explore", str(path), "--seeds", "2")
    assert both.ret == (1 if "is for" in said else 0)
    both.stdout.fnmatch_lines(["explored *::test_other: 2 seeds, *"])

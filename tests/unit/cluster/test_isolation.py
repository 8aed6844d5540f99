"""What one test begins on a cluster that it shares with others: the next one sees nothing of it."""

from __future__ import annotations

from textwrap import dedent
from typing import Any

import pytest
from test_plugin import UNUSED

from minikube_py.cluster.faults import Faults

pytest_plugins = ("pytester",)
pytestmark = [pytest.mark.real_time("real sockets and threads"), pytest.mark.filterwarnings("default")]

HELP = '''
POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"},
       "spec": {"containers": [{"name": "c", "image": "i"}]}}
PATH = "/api/v1/namespaces/default/configmaps"
LONG_S = 1000.0
MANY = 1000


def guard(minikube, act):
    hook = minikube.webhook("guard", lambda request: True)
    minikube.apply({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "guard"}, "webhooks": [{
            "name": "guard.example.com", "clientConfig": {"url": hook.url}, "timeoutSeconds": 30,
            "failurePolicy": "Fail", "admissionReviewVersions": ["v1"], "sideEffects": "None",
            "rules": [{"apiGroups": [""], "apiVersions": ["*"], "operations": ["*"],
                       "resources": ["namespaces", "serviceaccounts", "configmaps", "pods", "pods/*"]}]}]})
    act(hook)


FAULTS = {
    "conflict_next": lambda c: c.conflict_next(times=MANY),
    "fail_next": lambda c: (c.fail_next(times=MANY), c.fail_next(times=MANY, done=True)),
    "throttle_next": lambda c: c.throttle_next(times=MANY),
    "slow": lambda c: (c.slow(LONG_S), c.slow(LONG_S, "pods", for_s=LONG_S)),
    "no_leader": lambda c: c.no_leader(LONG_S),
    "expire_watches": lambda c: c.expire_watches(),
    "cut_watches": lambda c: c.cut_watches(),
    "repeat_events": lambda c: c.repeat_events(),
    "delay_events": lambda c: c.delay_events(LONG_S),
    "hide_events": lambda c: c.hide_events(LONG_S),
    "stale_list": lambda c: c.stale_list(MANY),
    "node": lambda c: c.node("node-0").down(LONG_S),
    "node for good": lambda c: c.node("node-1").down(),
    "webhook": lambda c: guard(c, lambda hook: None),
    "webhook slow": lambda c: guard(c, lambda hook: hook.slow(LONG_S)),
    "webhook time_out": lambda c: guard(c, lambda hook: hook.time_out()),
    "webhook that refuses": lambda c: (guard(c, lambda hook: None), c.webhook("guard", lambda request: False)),
}
'''

WEATHER = """
import pytest
from helper import FAULTS, PATH, POD

revisions = []


@pytest.mark.parametrize("fault,after", [(fault, after) for fault in FAULTS for after in (False, True)])
def test_nothing_is_left(minikube, minikube_cluster, fault, after):
    virtual = minikube_cluster.clock == "virtual"
    client = minikube.client.httpx()
    if not after:
        revisions.append(client.get(PATH).json()["metadata"]["resourceVersion"])
        FAULTS[fault](minikube)
        if virtual:
            minikube.advance(100)
        return
    began_s = minikube.now_s if virtual else 0
    for node in minikube.objects("nodes"):
        assert {each["type"]: each["status"] for each in node["status"]["conditions"]}["Ready"] == "True"
        assert not node["spec"].get("taints")
    made = client.post(PATH, json={"metadata": {"name": f"of-{len(revisions)}"}})
    assert made.status_code == 201, made.text
    name = made.json()["metadata"]["name"]
    listed = client.get(PATH)
    assert name in [each["metadata"]["name"] for each in listed.json()["items"]]
    assert client.put(f"{PATH}/{name}", json=made.json()).status_code == 200
    query = {"watch": "1", "resourceVersion": revisions[-1]}
    with client.stream("GET", PATH, params=query) as watch:
        assert name in next(line for line in watch.iter_lines() if name in line or '"code":410' in line)
    assert client.delete(f"{PATH}/{name}").status_code == 200
    assert not virtual or minikube.now_s < began_s + 5
    minikube.apply(POD)
    minikube.wait("pod/a", phase="Running")
"""

PROGRAMS = """
import asyncio
import time

import pytest
from helper import PATH


def body(clients):
    return {"metadata": {"generateName": "x-"}, "data": {"in": clients.namespace}}


async def operates(clients):
    async with clients.httpx_asyncio() as client:
        while True:
            await client.post(PATH, json=body(clients))
            await asyncio.sleep(1)


def works(clients):
    while True:
        clients.httpx().post(PATH, json=body(clients))
        time.sleep(1)


async def fails(clients):
    async with clients.httpx_asyncio() as client:
        await client.post(PATH, json=body(clients))
    raise RuntimeError("again")


async def all_at_once(clients):
    async with clients.httpx_asyncio() as client:
        await asyncio.gather(*(client.post(PATH, json=body(clients)) for _ in range(20)))


@pytest.fixture(scope="module")
def of_all_tests(minikube_cluster):
    return minikube_cluster.program(operates, name="of-all")


PAIRS = [
    (main, slow_s, elsewhere, after)
    for main in (operates, works, fails, all_at_once)
    for slow_s in (0, 600)
    for elsewhere in (False, True)
    for after in (False, True)
]


def counted(cluster):
    found = [each.get("data", {}).get("in") for each in cluster.objects("cm", namespace="default")]
    return found.count("default"), found.count("elsewhere")


@pytest.mark.parametrize("main,slow_s,elsewhere,after", PAIRS)
def test_nothing_is_left(minikube, minikube_cluster, of_all_tests, main, slow_s, elsewhere, after):
    if after:
        before = counted(minikube_cluster)
        minikube.advance(100)
        later = counted(minikube_cluster)
        assert later[0] > before[0] + 80 and later[1] == before[1]
        return
    started_by = minikube.in_namespace("other") if elsewhere else minikube
    program = started_by.program(main, namespace="elsewhere")
    minikube.advance(3.01)
    assert program.starts
    if slow_s:
        minikube.slow(slow_s)
        minikube.advance(2.01)
    elif main is all_at_once:
        program.crash()
        minikube.advance(2.5)
"""


def run(pytester: pytest.Pytester, test: str, *arguments: str) -> pytest.RunResult:
    pytester.makepyfile(helper=HELP, test_it=dedent(test))
    return pytester.runpytest_subprocess(*UNUSED, *arguments)


def test_the_drawn_faults_are_all_there_are() -> None:
    helper: dict[str, Any] = {}
    exec(HELP, helper)
    drawn = {name.split()[0] for name in helper["FAULTS"]}
    assert {name for name in vars(Faults) if not name.startswith("_")} | {"webhook"} == drawn


@pytest.mark.parametrize("isolation", ["namespace", "snapshot"])
@pytest.mark.parametrize("clock", ["real", "virtual"])
def test_faults_end_with_their_test(pytester: pytest.Pytester, clock: str, isolation: str) -> None:
    options = (f"--minikube-clock={clock}", f"--minikube-isolation={isolation}", "--minikube-nodes=2")
    result = run(pytester, WEATHER, *options)
    assert result.parseoutcomes().keys() == {"passed"}, result.outlines


@pytest.mark.parametrize("isolation", ["namespace", "snapshot"])
def test_programs_end_with_their_test(pytester: pytest.Pytester, isolation: str) -> None:
    result = run(pytester, PROGRAMS, "--minikube-clock=virtual", f"--minikube-isolation={isolation}")
    assert result.parseoutcomes().keys() == {"passed"}, result.outlines


def test_webhooks_of_wider_fixtures_stay_and_are_what_they_were(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(
        """
        import pytest
        from helper import guard

        asked = []

        @pytest.fixture(scope="session")
        def guarded(minikube_cluster):
            guard(minikube_cluster, lambda hook: asked.append(hook))
            yield asked[0]
            assert len(asked[0].requests) > 2
        """
    )
    test = """
        import pytest
        from minikube_py.cluster.isolation import CONFIGURATIONS

        POLICY = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration"}

        @pytest.mark.parametrize("number", range(3))
        def test_it(minikube, guarded, number):
            configured = [[each["metadata"]["name"] for each in minikube.objects(kind)] for kind in CONFIGURATIONS]
            assert configured == [["guard"], []]
            # Controllers write, too, and delete what the test before has left.
            own = lambda each: each["operation"] == "CREATE" and each["name"] in ("a", "b")
            asked = lambda: [each["name"] for each in guarded.requests if own(each)]
            before = asked()
            minikube.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}})
            assert asked() == [*before, "a"]
            replaced = minikube.webhook("guard", lambda request: True)
            other = minikube.webhook("other", lambda request: True)
            minikube.apply({**POLICY, "metadata": {"name": "mine"}, "webhooks": [{
                "name": "mine.example.com", "clientConfig": {"url": other.url}, "failurePolicy": "Fail",
                "admissionReviewVersions": ["v1"], "sideEffects": "None",
                "rules": [{"apiGroups": [""], "apiVersions": ["*"], "operations": ["*"],
                           "resources": ["configmaps"]}]}]})
            minikube.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "b"}})
            assert asked() == [*before, "a"]
            assert len(replaced.requests) == len(other.requests) == 1
    """
    for isolation in ("namespace", "snapshot"):
        run(pytester, test, f"--minikube-isolation={isolation}").assert_outcomes(passed=3)


@pytest.mark.parametrize("isolation", ["namespace", "snapshot"])
def test_ready_clients_end_with_their_test_and_those_of_wider_fixtures_stay(
    pytester: pytest.Pytester, isolation: str
) -> None:
    result = run(pytester, """
        import os

        import pytest

        counts = []


        @pytest.fixture(scope="module")
        def shared(minikube_cluster):
            return minikube_cluster.client.httpx()


        @pytest.mark.parametrize("number", range(12))
        def test_it(shared, minikube, number):
            assert shared.get("/api/v1/namespaces").status_code == 200
            assert minikube.client.httpx().get("/api/v1/nodes").status_code == 200
            counts.append(len(os.listdir("/proc/self/fd" if os.path.isdir("/proc/self/fd") else "/dev/fd")))
            assert counts[-1] <= counts[0] + 6, counts
    """, f"--minikube-isolation={isolation}")  # fmt: skip
    result.assert_outcomes(passed=12)


def test_a_test_may_delete_its_namespace(pytester: pytest.Pytester) -> None:
    run(pytester, """
        def test_it(minikube):
            minikube.delete(f"namespace/{minikube.namespace}")
            minikube.wait(f"namespace/{minikube.namespace}", gone=True)
    """).assert_outcomes(passed=1)  # fmt: skip


RUINS = """
    import asyncio
    import gc

    import pytest

    POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"},
           "spec": {"containers": [{"name": "c", "image": "i"}]}}

    @pytest.fixture(scope="session")
    def prepared(minikube_cluster):
        minikube_cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "prepared"}})
        yield
        ended.append(minikube_cluster)

    ended = []

    def works(minikube):
        assert minikube.get("namespace/prepared")
        minikube.apply(POD)
        minikube.wait("pod/a", phase="Running")

    def breaks(minikube):
        async def main():
            async def bad():
                raise RuntimeError("boom")
            asyncio.get_running_loop().create_task(bad())
            await asyncio.sleep(1)
        minikube.run(main)
        gc.collect()
        minikube.advance(1)

    def test_breaks(prepared, minikube):
        works(minikube)
        if HOW == "breaks":
            breaks(minikube)
        else:
            getattr(minikube, "cluster", minikube).stop()

    @pytest.mark.parametrize("number", range(2))
    def test_works(prepared, minikube, number):
        works(minikube)
        assert len(ended) == 1
"""


@pytest.mark.parametrize("isolation", ["namespace", "snapshot"])
@pytest.mark.parametrize(("clock", "how"), [("virtual", "breaks"), ("virtual", "stops"), ("real", "stops")])
def test_a_cluster_that_a_test_ruined_is_replaced(
    pytester: pytest.Pytester, clock: str, how: str, isolation: str
) -> None:
    options = (f"--minikube-clock={clock}", f"--minikube-isolation={isolation}")
    result = run(pytester, RUINS.replace("HOW", repr(how)), *options)
    broken = how == "breaks"
    result.assert_outcomes(passed=2 + (not broken), failed=int(broken))
    why = "SimFailure: *never retrieved*" if broken else "it was stopped"
    result.stdout.fnmatch_lines([f"minikube_cluster was started again after test_it.py::test_breaks: {why}"])


WIDER = """
import pytest

CRD = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
       "metadata": {"name": "widgets.ex.com"}, "spec": {
           "group": "ex.com", "scope": "Namespaced",
           "names": {"plural": "widgets", "singular": "widget", "kind": "Widget"},
           "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {
               "type": "object", "x-kubernetes-preserve-unknown-fields": True}}}]}}
WIDGET = {"apiVersion": "ex.com/v1", "kind": "Widget", "metadata": {"name": "w"}}


def named(name):
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}}


@pytest.fixture(scope="module", autouse=True)
def of_the_module(minikube_cluster):
    minikube_cluster.apply([CRD, named("of-the-module")])
    minikube_cluster.wait("crd/widgets.ex.com", condition="Established")
    yield
    minikube_cluster.delete("crd/widgets.ex.com")
    minikube_cluster.wait("crd/widgets.ex.com", gone=True)
    minikube_cluster.delete("cm/of-the-module", namespace="default")


@pytest.fixture(scope="class")
def of_the_class(minikube_cluster):
    minikube_cluster.apply(named("of-the-class"))
    yield
    minikube_cluster.delete("cm/of-the-class", namespace="default")


def used(minikube, *wider):
    minikube.apply(WIDGET)
    assert len(minikube.objects("widgets")) == 1
    mine = {each["metadata"]["name"] for each in minikube.cluster.objects("cm", namespace="default")}
    assert mine - {"kube-root-ca.crt"} == {"of-the-module", *wider}
    minikube.apply(named("extra"))
    state = minikube.cluster.snapshot()
    minikube.delete("cm/extra", namespace="default")
    minikube.cluster.restore(state)
    minikube.delete("cm/extra", namespace="default")


def test_one(minikube):
    used(minikube)


@pytest.mark.usefixtures("of_the_class")
class Test:
    def test_two(self, minikube):
        used(minikube, "of-the-class")

    def test_three(self, minikube):
        used(minikube, "of-the-class")


def test_four(minikube):
    used(minikube)
"""


@pytest.mark.parametrize("clock", ["real", "virtual"])
@pytest.mark.parametrize("isolation", ["namespace", "snapshot"])
def test_what_wider_fixtures_make_stays_in_any_order(pytester: pytest.Pytester, isolation: str, clock: str) -> None:
    pytester.makepyfile(test_a="def test_first(minikube): pass", test_b=WIDER, test_c=WIDER, test_d=WIDER)
    args = (f"--minikube-isolation={isolation}", f"--minikube-clock={clock}", "-pno:xdist", "-pno:cacheprovider")
    pytester.runpytest_inprocess(*args).assert_outcomes(passed=13)


def test_a_snapshot_is_taken_again_only_after_a_change(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(
        """
        import pytest
        from minikube_py import Cluster

        taken = []
        own = Cluster.snapshot
        Cluster.snapshot = lambda cluster: taken.append(1) or own(cluster)

        @pytest.fixture
        def count():
            return lambda: len(taken)
        """
    )
    pytester.makepyfile(
        """
        import pytest

        MAP = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}

        @pytest.mark.parametrize("number", range(5))
        def test_some(minikube, count, number):
            minikube.apply(MAP)
            assert count() == 1

        def test_a_wider_fixture_wrote(minikube_cluster, count, request):
            minikube_cluster.apply(MAP)
            request.getfixturevalue("minikube")
            assert count() == 2
        """
    )
    args = ("--minikube-isolation=snapshot", "--minikube-clock=virtual", "-pno:xdist", "-pno:cacheprovider")
    pytester.runpytest_inprocess(*args).assert_outcomes(passed=6)

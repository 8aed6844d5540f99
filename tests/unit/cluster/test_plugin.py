"""The pytest plugin, as a user's project sees it."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from importlib.metadata import entry_points
from pathlib import Path

import pytest
import yaml

from minikube_py import Cluster

pytest_plugins = ("pytester",)
pytestmark = [pytest.mark.real_time("real sockets and threads"), pytest.mark.filterwarnings("default")]
PLUGIN = "minikube_py.cluster.pytest_plugin"
INSTALLED = any(each.value == PLUGIN for each in entry_points(group="pytest11"))
LOADED = () if INSTALLED else ("-p", PLUGIN)


UNUSED = ("-p", "no:cacheprovider", "-p", "no:anyio", "-p", "no:hypothesispytest")
"""Plugins that no test of these uses: they import trio and hypothesis, half a second of CPU in each process."""


def run(pytester: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    return pytester.runpytest_subprocess(*LOADED, *UNUSED, *arguments)


def test_it_is_an_entry_point_and_imports_nothing_of_the_control_plane() -> None:
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {"minikube_py": PLUGIN}
    heavy = "m.startswith('minikube_py') or m in ('numpy', 'orjson', 'aiohttp')"
    code = f"import sys, pytest, {PLUGIN}; print([m for m in sys.modules if {heavy}])"
    out = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    names = ["minikube_py", "minikube_py.cluster", "minikube_py.cluster.factories", PLUGIN]
    assert sorted(eval(out)) == sorted(names)


def test_each_test_has_a_namespace_and_kubeconfig_is_given_back(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytester.makepyfile(
        """
        import os
        import pytest

        seen = set()

        @pytest.mark.parametrize("number", range(3))
        def test_fresh(minikube, number):
            assert os.environ["KUBECONFIG"] == str(minikube.kubeconfig_path)
            assert minikube.namespace.startswith("test-fresh-")
            assert minikube.namespace not in seen
            seen.add(minikube.namespace)
            minikube.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}})
            assert [each["metadata"]["name"] for each in minikube.objects("cm")].count("a") == 1

        def test_after(minikube_cluster):
            assert os.environ["KUBECONFIG"] == "mine"
            assert len(minikube_cluster.objects("nodes")) == 1
            for name in seen:
                minikube_cluster.wait(f"namespace/{name}", gone=True)
        """
    )
    monkeypatch.setenv("KUBECONFIG", "mine")
    run(pytester).assert_outcomes(passed=4)


def test_the_state_is_put_back(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        RC = {"apiVersion": "v1", "kind": "ReplicationController", "metadata": {"name": "web"}, "spec": {
            "replicas": 20, "selector": {"a": "b"}, "template": {"metadata": {"labels": {"a": "b"}},
            "spec": {"containers": [{"name": "c", "image": "i"}]}}}}
        revisions = []

        def test_one(minikube):
            minikube.apply(RC)
            minikube.wait("rc/web", ready=20)
            minikube.node("node-0").down()
            revisions.append(int(minikube.get("rc/web")["metadata"]["resourceVersion"]))

        def test_two(minikube):
            assert minikube.objects("pods") == [] == minikube.objects("rc")
            minikube.apply(RC)
            assert int(minikube.wait("rc/web", ready=20)["metadata"]["resourceVersion"]) > revisions[0]
        """
    )
    run(pytester, "--minikube-isolation=snapshot", "--minikube-nodes=2").assert_outcomes(passed=2)


def test_command_line_comes_before_ini_and_a_factory_before_both(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nminikube_nodes = 2\n")
    pytester.makeconftest(
        """
        from minikube_py.cluster import factories
        five = factories.minikube_cluster(nodes=5)
        in_five = factories.minikube("five", isolation="snapshot")
        """
    )
    pytester.makepyfile(
        """
        def test_nodes(minikube_cluster, in_five, pytestconfig):
            assert len(in_five.objects("nodes")) == 5
            assert len(minikube_cluster.objects("nodes")) == (3 if pytestconfig.option.minikube_nodes else 2)
        """
    )
    run(pytester).assert_outcomes(passed=1)
    run(pytester, "--minikube-nodes", "3").assert_outcomes(passed=1)


def test_what_failed_is_shown(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        def test_fails(minikube):
            minikube.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "alone"}, "spec": {
                "nodeSelector": {"no": "such"}, "containers": [{"name": "c", "image": "i"}]}})
            minikube.wait("events", until=lambda event: event["reason"] == "FailedScheduling")
            import logging
            logging.getLogger("minikube_py.mine").info("said by a component")
            assert False

        def test_of_a_factory(one):
            import logging
            logging.getLogger("minikube_py.mine").info("said to a fixture of another name")
            assert False
        """
    )
    pytester.makeconftest("from minikube_py.cluster import factories; one = factories.minikube_cluster()")
    result = run(pytester)
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(["INFO minikube_py.mine: said to a fixture of another name"])
    result.stdout.fnmatch_lines(
        [
            "*minikube: objects in test-fails-*",
            "Pod test-fails-*/alone, Pending, PodScheduled: 0/1 nodes are available*",
            "*minikube: events in test-fails-*",
            "Warning FailedScheduling Pod/alone: 0/1 nodes are available*",
            "*minikube: logs of components*",
            "INFO minikube_py.mine: said by a component",
        ]
    )


def test_each_worker_has_a_cluster_of_its_own(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.parametrize("number", range(8))
        def test_alone(minikube, minikube_cluster, number, worker_id):
            minikube_cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": f"is-{worker_id}"}})
            names = [each["metadata"]["name"] for each in minikube.objects("namespaces")]
            assert [name for name in names if name.startswith("is-")] == [f"is-{worker_id}"]
        """
    )
    run(pytester, "-n", "4").assert_outcomes(passed=8)


def test_a_server_from_outside(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(
        """
        from minikube_py.cluster import factories
        outside = factories.minikube("minikube_noproc")
        """
    )
    pytester.makepyfile(
        """
        import pytest
        from minikube_py import ClusterError

        def test_it(outside, minikube_noproc):
            assert len(minikube_noproc.objects("nodes")) == 2
            outside.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}})
            assert outside.get("cm/a")["metadata"]["namespace"] == outside.namespace
            with pytest.raises(ClusterError, match="runs elsewhere"):
                outside.node("node-0").down()

        def test_again_in_another_context(outside, minikube_noproc, pytestconfig):
            import os, yaml
            leads_to = yaml.safe_load(open(os.environ["KUBECONFIG"]))
            assert leads_to["current-context"] == (pytestconfig.option.minikube_context or "minikube-py")
            assert leads_to["contexts"][0]["context"]["namespace"] == outside.namespace
            assert outside.namespace.startswith("test-again-in-another-context-")
            assert False, "for its report"
        """
    )
    with Cluster(nodes=2) as cluster:
        kubeconfig = pytester.path / "outside.yaml"
        document = yaml.safe_load(cluster.kubeconfig_path.read_text())
        document["contexts"].append({**document["contexts"][0], "name": "other"})
        kubeconfig.write_text(yaml.safe_dump(document))
        for context in ("", "other"):
            result = run(pytester, f"--minikube-kubeconfig={kubeconfig}", f"--minikube-context={context}")
            result.assert_outcomes(passed=1, failed=1)
            result.stdout.fnmatch_lines(["*minikube: objects in test-again-in-another-context-*"])
        result = run(pytester, f"--minikube-kubeconfig={kubeconfig}", "--minikube-isolation=snapshot")
        result.stdout.fnmatch_lines(["*snapshot is for a cluster of this process*"])


def test_virtual_time_by_an_option(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        def test_hours(minikube, minikube_cluster):
            minikube_cluster.advance(hours=1)
            assert minikube_cluster.now_s >= 3600
        """
    )
    run(pytester, "--minikube-clock=virtual", "--minikube-seed=3").assert_outcomes(passed=1)


def test_a_wrong_isolation_of_a_factory_is_refused(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(
        "from minikube_py.cluster import factories; minikube = factories.minikube(isolation='none')"
    )
    pytester.makepyfile("def test_it(minikube): pass")
    result = run(pytester)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["test_*.py:1: UsageError: minikube_isolation is 'namespace' or 'snapshot'*"])


def test_the_factories_of_the_reference(pytester: pytest.Pytester) -> None:
    page = (Path(__file__).parents[3] / "docs/reference/pytest.md").read_text()
    (conftest,) = re.findall(r"```python\n# conftest.py\n(.*?)```", page, re.DOTALL)
    pytester.makeconftest(conftest)
    pytester.makepyfile(
        """
        def test_big(in_big): assert len(in_big.objects("nodes")) == 50
        def test_hourly(hourly): hourly.advance(hours=1)
        """
    )
    run(pytester).assert_outcomes(passed=2)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("--minikube-nodes=many", "minikube_nodes is a whole number from 0 on, not 'many'"),
        ("--minikube-nodes=-1", "minikube_nodes is a whole number from 0 on, not '-1'"),
        ("--minikube-seeds=0", "minikube_seeds is a whole number from 1 on, not '0'"),
        ("--minikube-seed-only=1.5", "minikube_seed_only is a whole number from 1 on, not '1.5'"),
        ("--minikube-clock=sundial", "minikube_clock is 'real' or 'virtual', not 'sundial'"),
        ("--minikube-isolation=none", "minikube_isolation is 'namespace' or 'snapshot', not 'none'"),
        ("--minikube-stages=none", "minikube_stages: none: there is no such file"),
        ("--minikube-stages=.", "minikube_stages: no file ends in .yaml, .yml or .json: no stages there; *"),
        ("--minikube-kubeconfig=none", "minikube_kubeconfig: none: cannot read the kubeconfig: No such file *"),
        ("--minikube-context=nobody", "minikube_context: *nobody*"),
    ],
)
def test_an_option_that_cannot_be_is_refused_before_any_test(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, given: str, said: str
) -> None:
    pytester.makepyfile("def test_runs(): print('it ran')")
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig(pytester.path)))
    result = run(pytester, "-s", given)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: {said}"])
    result.stdout.no_fnmatch_line("*it ran*")


def test_one_seed_and_many_exclude_each_other_on_the_command_line(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_runs(): print('it ran')")
    result = run(pytester, "-s", "--minikube-seed-only=3", "--minikube-seeds=4")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: argument --minikube-seeds: not allowed with argument --minikube-seed-only"])
    result.stdout.no_fnmatch_line("*it ran*")
    # The command line comes before the ini file.
    pytester.makeini("[pytest]\nminikube_seeds = 4")
    run(pytester, "--minikube-seed-only=3").assert_outcomes(passed=1)


def kubeconfig(folder: Path) -> Path:
    """Of a server that nobody asks."""
    (folder / "kube").mkdir()
    cluster, user = {"server": "https://127.0.0.1:1"}, {"token": "t"}
    parts = {"clusters": [{"name": "a", "cluster": cluster}], "users": [{"name": "a", "user": user}]}
    context = {"contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}], "current-context": "a"}
    (folder / "kube/config").write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "Config", **parts, **context}))
    return folder / "kube/config"


def test_a_kubeconfig_that_is_not_there_is_said_in_a_line(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_outside(minikube_noproc): pass")
    pytester.makeini("[pytest]\nminikube_kubeconfig = none.yaml")
    result = run(pytester)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*minikube_noproc: none.yaml: cannot read the kubeconfig: No such file or directory"])
    result.stdout.no_fnmatch_line("*Traceback*")
    result.stdout.no_fnmatch_line("*factories.py*")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ('stages="/nowhere"', "stages: /nowhere: there is no such file"),
        ("nodes=-1", "nodes is how many, from 0 to 100,000, *"),
        ('clock="sundial"', 'clock is "real" or "virtual", not \'sundial\''),
        ('seed=""', "seed is a whole number of at most 64 bits, or a printable text, not ''"),
    ],
)
def test_arguments_of_a_factory_that_cannot_be_are_said_in_a_line(
    pytester: pytest.Pytester, arguments: str, said: str
) -> None:
    made = f"from minikube_py.cluster import factories; minikube_cluster = factories.minikube_cluster({arguments})"
    pytester.makeconftest(made)
    pytester.makepyfile("def test_it(minikube): pass")
    result = run(pytester)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([f"test_*.py:1: UsageError: minikube_cluster: {said}"])
    result.stdout.no_fnmatch_line("*factories.py*")


def test_asserts_of_the_control_plane_are_not_rewritten(pytester: pytest.Pytester) -> None:
    """As it is where the package is installed: pytest marks all that came with a plugin."""
    pytester.makeconftest("def pytest_configure(config): config.pluginmanager.rewrite_hook.mark_rewrite('minikube_py')")
    pytester.makepyfile(
        helper="""
        import minikube_py.cluster.local, sys
        loaders = {name: type(each.__loader__) for name, each in sys.modules.items() if name.startswith("minikube_py.")}
        """,
        test_loaders="""
        import importlib.machinery

        def test_loaders(minikube):
            from helper import loaders
            rewritten = {name for name, each in loaders.items() if each is not importlib.machinery.SourceFileLoader}
            assert len(loaders) > 300
            before = {"", ".factories", ".pytest_plugin"}
            assert {name.removeprefix("minikube_py.cluster") for name in rewritten} <= before
        """,
    )
    run(pytester).assert_outcomes(passed=1)


def test_a_fixture_that_exploring_cannot_see_is_refused(pytester: pytest.Pytester) -> None:
    """It passed without being explored."""
    pytester.makepyfile("def test_it(request): request.getfixturevalue('minikube')")
    run(pytester).assert_outcomes(passed=1)
    result = run(pytester, "--minikube-seeds=2")
    assert result.parseoutcomes().get("passed", 0) == 0
    result.stdout.fnmatch_lines(["*UsageError: a test that asks for `minikube` by getfixturevalue cannot be explored*"])


def test_each_fixture_is_described(pytester: pytest.Pytester) -> None:
    result = run(pytester, "--fixtures")
    for name in ("minikube", "minikube_cluster", "minikube_noproc"):
        (place,) = (number for number, line in enumerate(result.outlines) if line.split(" ")[0] == name)
        assert "luster" in result.outlines[place + 1] and "no docstring" not in result.outlines[place + 1]


REFUSED = """
import asyncio

def waits(minikube):
    minikube.wait("cm/never", timeout_s=0)

def test_wait(minikube):
    waits(minikube)

def test_get(minikube):
    minikube.get("cm/never")

def test_coroutine(minikube):
    async def main():
        await minikube.transport().request("GET", 7)
    minikube.run(main)
"""


def test_a_refused_call_shows_the_test_and_no_source_of_the_package(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(REFUSED)
    result = run(pytester, "--minikube-clock", "virtual")
    result.assert_outcomes(failed=3)
    text = result.stdout.str()
    for call in ("waits(minikube)", 'minikube.wait("cm/never", timeout_s=0)', 'minikube.get("cm/never")'):
        assert re.search(rf"^(>| ) +{re.escape(call)}$", text, re.MULTILINE), text
    assert "WaitTimeout: cm/never" in text and 'StatusError: configmaps "never" not found' in text
    refused, found, others = text.partition("_ test_coroutine _")
    assert found and "minikube_py/" not in refused.partition("= FAILURES =")[2], text
    # An error of another class is shown whole, and so is all that is asked for.
    assert "minikube_py/" in others
    assert "minikube_py/" in run(pytester, "--full-trace", "-k", "test_wait").stdout.str()

"""Configuration: profiles as KubeSchedulerConfiguration has them, and what is refused, where and why."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from scheduler_objects import node, pod
from scheduler_reference import Lent

from minikube_py.scheduler.cache import Cache
from minikube_py.scheduler.config import ConfigError, PluginSet, ProfileConfig, load, parse
from minikube_py.scheduler.configuration.checking import checked
from minikube_py.scheduler.configuration.messages import API_VERSION
from minikube_py.scheduler.evaluate import Evaluator
from minikube_py.scheduler.profile import PREPARED_HERE, Profile, _runs
from minikube_py.scheduler.registry import UPSTREAM_POINTS


def document(**more: Any) -> dict[str, Any]:
    return {"apiVersion": API_VERSION, "kind": "KubeSchedulerConfiguration", **more}


def built(**plugins: PluginSet) -> Profile:
    lent: Any = Lent(Cache())
    return Profile(ProfileConfig(plugins=plugins), lent)


def test_the_empty_configuration_is_the_default() -> None:
    config = parse(document())
    assert [profile.scheduler_name for profile in config.profiles] == ["default-scheduler"]
    assert (config.percentage_of_nodes_to_score, config.pod_initial_backoff_s, config.pod_max_backoff_s) == (100, 1, 10)


def test_profiles_are_read() -> None:
    plugins = {"score": {"disabled": [{"name": "*"}], "enabled": [{"name": "NodeResourcesFit", "weight": 7}]}}
    strategy = {"kind": "NodeResourcesFitArgs", "scoringStrategy": {"type": "MostAllocated"}}
    args = [{"name": "NodeResourcesFit", "args": strategy}]
    config = parse(
        document(
            percentageOfNodesToScore=0,
            podInitialBackoffSeconds=2,
            podMaxBackoffSeconds=20,
            leaderElection={"leaderElect": False},
            profiles=[{"schedulerName": "a"}, {"schedulerName": "b", "plugins": plugins, "pluginConfig": args}],
        )
    )
    assert [profile.scheduler_name for profile in config.profiles] == ["a", "b"]
    own = config.profiles[1]
    assert own.plugins["score"] == PluginSet((("NodeResourcesFit", 7),), ("*",))
    assert own.plugin_args["NodeResourcesFit"]["scoringStrategy"]["type"] == "MostAllocated"
    assert config.unused == ("leaderElection",)
    assert (config.percentage_of_nodes_to_score, config.pod_initial_backoff_s, config.pod_max_backoff_s) == (0, 2, 20)


WRONG = [
    ("not an object", [], "json: cannot unmarshal array into Go value of type struct"),
    ("other kind", {"apiVersion": "v1", "kind": "Pod"}, 'no kind "Pod" is registered for version "v1" in scheme'),
    ("unknown field", document(profile=[]), 'strict decoding error: unknown field "profile"'),
    ("percentage too high", document(percentageOfNodesToScore=101), "Invalid value: 101: not in valid range [0-100]"),
    (
        "text for a number",
        document(podMaxBackoffSeconds="10"),
        "json: cannot unmarshal string into Go struct field "
        "KubeSchedulerConfiguration.podMaxBackoffSeconds of type int64",
    ),
    (
        "a number beyond 64 bits, as it was written",
        document(podMaxBackoffSeconds=-(1 << 70)),
        "json: cannot unmarshal number -1180591620717411303424 into Go struct field "
        "KubeSchedulerConfiguration.podMaxBackoffSeconds of type int64",
    ),
    (
        "a field of an embedded struct",
        document(enableContentionProfiling={"a": 1}),
        "json: cannot unmarshal object into Go struct field "
        "KubeSchedulerConfiguration.DebuggingConfiguration.enableContentionProfiling of type bool",
    ),
    ("backoff shrinks", document(podInitialBackoffSeconds=5, podMaxBackoffSeconds=2), "greater than or equal"),
    ("two profiles, one name", document(profiles=[{"schedulerName": "a"}] * 2), "profiles[1].schedulerName: Duplicate"),
    ("two profiles without names", document(profiles=[{}, {}]), "profiles[0].schedulerName: Required value"),
    ("unknown point", document(profiles=[{"plugins": {"bake": {}}}]), 'unknown field "profiles[0].plugins.bake"'),
    ("arguments twice", document(profiles=[{"pluginConfig": [{"name": "x"}] * 2}]), "pluginConfig[1]: Duplicate value"),
    (
        "unknown argument",
        document(profiles=[{"pluginConfig": [{"name": "NodeResourcesFit", "args": {"x": 1}}]}]),
        "strict decoding error: decoding .profiles[0].pluginConfig[0]: strict decoding error: decoding args for plugin "
        'NodeResourcesFit: strict decoding error: unknown field "x"',
    ),
]


@pytest.mark.parametrize(("name", "wrong", "text"), WRONG, ids=[case[0] for case in WRONG])
def test_wrong_configurations_are_refused(name: str, wrong: Any, text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(json.dumps(wrong).encode())
    assert text in str(caught.value)


def test_there_is_one_order_with_the_same_args() -> None:
    def of(*args: dict[str, Any]) -> dict[str, Any]:
        sorts = [{"name": "PrioritySort", **each} for each in args]
        return document(profiles=[{"schedulerName": f"s{i}", "pluginConfig": [sort]} for i, sort in enumerate(sorts)])

    checked(parse(of({}, {})))
    checked(parse(of({"args": {}}, {"args": {}})))
    with pytest.raises(ConfigError) as caught:
        checked(parse(of({}, {"args": {}})))
    assert str(caught.value) == 'initializing profiles: different queue sort plugin args for profile "s1"'


def test_default_plugins_and_weights() -> None:
    profile = built()
    assert [(scorer.plugin.name, scorer.weight) for scorer in profile.looking.scorers] == [
        ("TaintToleration", 3),
        ("NodeAffinity", 2),
        ("NodeResourcesFit", 1),
        ("PodTopologySpread", 2),
        ("InterPodAffinity", 2),
        ("DynamicResources", 2),
        ("NodeResourcesBalancedAllocation", 1),
        ("ImageLocality", 1),
    ]
    assert list(profile.looking.filters) == [
        "NodeUnschedulable",
        "NodeName",
        "TaintToleration",
        "NodeAffinity",
        "NodePorts",
        "NodeResourcesFit",
        "VolumeRestrictions",
        "NodeVolumeLimits",
        "VolumeBinding",
        "VolumeZone",
        "PodTopologySpread",
        "InterPodAffinity",
        "DynamicResources",
        "NodeDeclaredFeatures",
    ]
    assert profile.kept_plugins == profile.local_plugins


POINTS = [
    ("one point loses a plugin", {"filter": PluginSet(disabled=frozenset(("NodePorts",)))}, "NodePorts", False),
    ("all points lose it", {"multiPoint": PluginSet(disabled=frozenset(("NodePorts",)))}, "NodePorts", False),
    ("taken out and put back", {"filter": PluginSet((("NodePorts", 0),), frozenset(("*",)))}, "NodePorts", True),
]


@pytest.mark.parametrize(("name", "plugins", "plugin", "there"), POINTS, ids=[case[0] for case in POINTS])
def test_enabling_and_disabling(name: str, plugins: dict[str, PluginSet], plugin: str, there: bool) -> None:
    assert (plugin in built(**plugins).looking.filters) is there


def test_a_point_overrides_the_weight_of_multi_point() -> None:
    profile = built(score=PluginSet((("TaintToleration", 9),)))
    assert {s.plugin.name: s.weight for s in profile.looking.scorers}["TaintToleration"] == 9
    assert profile.looking.scorers[0].plugin.name == "TaintToleration" and len(profile.looking.scorers) == 8


def test_a_plugin_without_its_filter_may_keep_the_points_that_upstream_then_skips() -> None:
    without = PluginSet(disabled=frozenset(("VolumeBinding",)))
    points = dict.fromkeys(("preFilter", "filter", "reserve", "preBind"), without)
    assert "VolumeBinding" not in built(**points).reservers


def test_what_upstream_does_not_prepare_is_prepared_with_what_it_is_for() -> None:
    """Without, a plugin that has nothing to say of a pod would be asked about every node."""
    profile = built()
    for before, (_, *names) in PREPARED_HERE.items():
        ran = {name for name, plugin in profile._made.items() if _runs(plugin, before)}
        missing = {name for name in ran if before not in UPSTREAM_POINTS[name]} - {*names}
        assert not missing, (before, missing)


BROKEN = [
    ("unknown", {"score": PluginSet((("Nonsense", 1),))}, 'ScorePlugin "Nonsense" does not exist'),
    ("unknown anywhere", {"multiPoint": PluginSet((("Foo", 1),))}, 'PreFilterPlugin "Foo" does not exist'),
    (
        "twice",
        {"score": PluginSet((("NodeAffinity", 1),) * 2)},
        'plugin "NodeAffinity" already registered as "ScorePlugin"',
    ),
    ("gate", {"filter": PluginSet((("GangScheduling", 1),))}, "needs the feature gates GenericWorkload"),
    (
        "a filter without what it reads",
        {"filter": PluginSet((("NodeResourcesFit", 1),)), "multiPoint": PluginSet((), ("NodeResourcesFit",))},
        'plugin "NodeResourcesFit" is enabled at filter but not at preFilter, whose results it reads',
    ),
    (
        "a score without what it reads",
        {"preScore": PluginSet((), ("TaintToleration",))},
        'plugin "TaintToleration" is enabled at score but not at preScore, whose results it reads',
    ),
    ("wrong point", {"bind": PluginSet((("NodePorts", 1),))}, 'plugin "NodePorts" does not extend BindPlugin plugin'),
    ("no binder", {"bind": PluginSet(disabled=frozenset(("*",)))}, "at least one bind plugin is needed"),
    (
        "no order",
        {"queueSort": PluginSet(disabled=frozenset(("*",)))},
        "only one queue sort plugin required",
    ),
    ("no such module", {"filter": PluginSet((("no.such:Thing", 1),))}, "No module named 'no'; write MODULE:CLASS"),
]


@pytest.mark.parametrize(("name", "plugins", "text"), BROKEN, ids=[case[0] for case in BROKEN])
def test_profiles_that_cannot_be_built(name: str, plugins: dict[str, PluginSet], text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        built(**plugins)
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("percentage", "nodes", "expected"),
    [(100, 5000, 5000), (0, 99, 99), (0, 100, 100), (0, 1000, 420), (0, 5000, 500), (0, 50_000, 2500), (10, 5000, 500),
     (1, 5000, 100)],
)  # fmt: skip
def test_how_many_nodes_are_enough(percentage: int, nodes: int, expected: int) -> None:
    lent: Any = Lent(Cache())
    evaluator = Evaluator(Profile(ProfileConfig(), lent), lent.columns, random.Random(1), percentage)
    assert evaluator.search.nodes_to_find(nodes) == expected


def test_a_search_goes_on_where_the_last_one_ended() -> None:
    lent: Any = Lent(Cache())
    for i in range(300):
        lent.cache.put_node(node(f"n{i:03}"))
    evaluator = Evaluator(Profile(ProfileConfig(), lent), lent.columns, random.Random(1), 40)
    seen = []
    for i in range(5):
        choice = evaluator.choose(pod(f"p{i}", cpu="1"))
        assert (choice.feasible, choice.evaluated) == (120, 120)
        seen.append(int(choice.node.name[1:]))
        lent.cache.assume(pod(f"p{i}", cpu="1"), choice.node.name)
    starts = (0, 120, 240, 60, 180)
    assert all((found - start) % 300 < 120 for found, start in zip(seen, starts, strict=True)), seen


def test_the_same_seed_makes_the_same_choices() -> None:
    def run(seed: int) -> list[str]:
        lent: Any = Lent(Cache())
        for i in range(50):
            lent.cache.put_node(node(f"n{i}"))
        evaluator = Evaluator(Profile(ProfileConfig(), lent), lent.columns, random.Random(seed), 100)
        found = []
        for i in range(30):
            incoming = pod(f"p{i}", cpu="1")
            found.append(evaluator.choose(incoming).node.name)
            lent.cache.assume(incoming, found[-1])
        return found

    assert run(4) == run(4) != run(5)


def test_a_taint_to_avoid_appears_on_one_node_of_many() -> None:
    """Scores that were 0 everywhere and so were left out must come back when the first node gets one."""
    lent: Any = Lent(Cache())
    for i in range(40):
        lent.cache.put_node(node(f"n{i}"))
    evaluator = Evaluator(Profile(ProfileConfig(), lent), lent.columns, random.Random(1), 100)
    evaluator.choose(pod("first", cpu="1"))
    for i in range(39):
        lent.cache.put_node(node(f"n{i}", taints=("k:PreferNoSchedule",)))
        assert evaluator.choose(pod("next", cpu="1")).node.name not in {f"n{j}" for j in range(i + 1)}

"""Plugins of one's own: how they are found, what a configuration says of them, and what becomes of what they raise."""

from __future__ import annotations

import json
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from scheduler_objects import node, pod
from scheduler_world import FakeApi, ManualClock, settle

from minikube_py.cli import main
from minikube_py.scheduler import registry
from minikube_py.scheduler.config import ConfigError, SchedulerConfig
from minikube_py.scheduler.configuration.checking import NoCluster
from minikube_py.scheduler.configuration.chosen import ChosenScheduler
from minikube_py.scheduler.configuration.files import read_scheduler, write_scheduler
from minikube_py.scheduler.framework import (
    Action,
    ClusterChange,
    ClusterEvent,
    CycleState,
    EventRegistration,
    PluginError,
    QueueingHint,
)
from minikube_py.scheduler.objects import PodInfo
from minikube_py.scheduler.own import Guarded, find
from minikube_py.scheduler.profile import Profile
from minikube_py.scheduler.scheduler import Scheduler

COMMANDS = [["up"], ["replay", "openb"], ["demo"], ["bench", "density"], ["bench", "schedule"]]
HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"

LAST = """
class Last:
    def __init__(self, args):
        self.factor = args.get("factor", 1)

    def score(self, state, pod, node):
        return self.factor * int(node.name[1:])
"""
"""Nodes n1, n2, ...: the last one is the best."""

BROKEN = """
from minikube_py.scheduler.framework import Code, Status

class Moody:
    scope = "NODE"

    def filter(self, state, pod, node):
        if pod.name == "filter":
            return {}["no such node"]
        if pod.name == "refused":
            return Status(Code.UNSCHEDULABLE, "node(s) were not in the mood")

    def score(self, state, pod, node):
        return {"score": 1 // 0 if pod.name == "score" else 0, "range": 101, "half": 0.5}.get(pod.name, 7)

    def sign_pod(self, pod):
        return pod.name
"""


def file(folder: Path, text: str, name: str = "mine.py") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def chosen(*targets: str, config: Path | None = None) -> SchedulerConfig:
    return read_scheduler(ChosenScheduler(config, targets))


@asynccontextmanager
async def scheduling(config: SchedulerConfig, *nodes: str) -> AsyncIterator[FakeApi]:
    api, clock = FakeApi(), ManualClock()
    for name in nodes:
        api.node(name)
    scheduler = Scheduler(api, clock, random.Random(3), config)
    await scheduler.start()
    try:
        yield api
        assert scheduler.failure is None
    finally:
        await scheduler.stop()


WRONG = [
    ("no file", None, "mine.py:Last", "there is no file"),
    ("syntax", "class Last:\n    def score(self\n", "mine.py:Last", "line 2: SyntaxError: '(' was never closed"),
    ("raises", "LIMIT = 1\nSHARE = LIMIT / 0\n", "mine.py:Last", "ZeroDivisionError: division by zero (mine.py, l"),
    ("no class", LAST, "mine.py:Lst", "has no class 'Lst'; with filter or score it has Last"),
    ("of its own", LAST.replace("Last", "NodePorts"), "mine.py:NodePorts", "rename yours"),
    ("scope", LAST.replace("def __init__", "scope = 'RACK'\n    def __init__"), "mine.py:Last", "write NODE, TOPOLOGY"),
    ("no keys", LAST.replace("def __init__", "scope = 'TOPOLOGY'\n    def __init__"), "mine.py:Last", "topology_keys"),
    ("vectors alone", LAST.replace("score(", "score_nodes("), "mine.py:Last", "has score_nodes and no score"),
    (
        "no unreserve",
        LAST + "    def reserve(self, *_):\n        pass\n",
        "mine.py:Last",
        "reserve and no unreserve: write what gives b",
    ),
    (
        "no remove_pod",
        LAST + "    def add_pod(self, *_):\n        pass\n",
        "mine.py:Last",
        "has add_pod and no remove_pod",
    ),
    ("async", LAST.replace("def score", "async def score"), "mine.py:Last", "score is async; only bind, "),
    ("normalize", LAST.replace("def __init__", "normalize = 100\n    def __init__"), "mine.py:Last", "a Normalize is"),
    ("no point", LAST.replace("score(", "scores("), "mine.py:Last", "takes part in no extension point: it has none of"),
    ("constructor", LAST.replace("args.get", "args.take"), "mine.py:Last", 'initializing plugin "Last": Attribute'),
    ("no place", LAST, "Last", "write FILE.py:CLASS, MODULE:CLASS, or the name of an entry point"),
    ("no module", LAST, "nowhere.at.all:Last", "No module named 'nowhere'; write MODULE:CLASS or FILE.py:CLASS"),
]


@pytest.mark.parametrize(("text", "target", "told"), [case[1:] for case in WRONG], ids=[case[0] for case in WRONG])
def test_what_cannot_be_loaded_says_where_and_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | None, target: str, told: str
) -> None:
    monkeypatch.chdir(tmp_path)
    if text is not None:
        file(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        chosen(target)
    assert told in str(caught.value)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_that_schedules_takes_plugins(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = tmp_path / "none.py"
    assert main.main([*command, "--data-dir", str(tmp_path / "d"), "--plugin", f"{missing}:Last"]) == 2
    assert f"there is no file {missing}" in capsys.readouterr().err


def test_a_class_that_takes_no_args_refuses_them(tmp_path: Path) -> None:
    mine = file(tmp_path, "class Last:\n    def score(self, state, pod, node):\n        return 0\n")
    config = file(tmp_path, HEAD + "profiles: [{pluginConfig: [{name: Last, args: {factor: 2}}]}]", "c.yaml")
    with pytest.raises(ConfigError, match='plugin "Last" takes no args'):
        chosen(f"{mine}:Last", config=config)


async def test_a_plugin_given_by_flag_decides(tmp_path: Path) -> None:
    async with scheduling(chosen(f"{file(tmp_path, LAST)}:Last"), "n1", "n2", "n99") as api:
        api.pod("p", cpu="1")
        await settle()
        assert api.where("p") == "n99"


FLAKY = """
class Flaky:
    calls = 0

    def pre_filter(self, state, pod, nodes):
        Flaky.calls += 1
        if Flaky.calls % PERIOD == PHASE:
            raise ValueError("now and then")
        return None, None

    def filter(self, state, pod, node):
        return None
"""


@pytest.mark.parametrize(("period", "phase"), [(2, 0), (2, 1), (3, 0), (3, 1), (3, 2)])
async def test_a_plugin_that_raises_now_and_then_holds_up_nobody(tmp_path: Path, period: int, phase: int) -> None:
    """The scheduler asks it again for a pod that fits nowhere: whether it may preempt on another node."""
    source = FLAKY.replace("PERIOD", str(period)).replace("PHASE", str(phase))
    async with scheduling(chosen(f"{file(tmp_path, source)}:Flaky"), "n1") as api:
        api.pod("large", cpu="999")
        await settle()
        for name in ("a", "b", "c"):
            api.pod(name, cpu="1m")
            await settle()
        assert any(api.where(name) for name in ("a", "b", "c"))


PROFILES = [
    ("plugins: {score: {enabled: [{name: Last, weight: 5}]}}", "n99"),
    ("pluginConfig: [{name: Last, args: {factor: 1}}]", "n99"),
    ("plugins: {multiPoint: {disabled: [{name: Last}]}}", "n1"),
    ("plugins: {score: {disabled: [{name: Last}]}}", "n1"),
]


@pytest.mark.parametrize(("profile", "wanted"), PROFILES)
async def test_a_configuration_says_how_it_takes_part(tmp_path: Path, profile: str, wanted: str) -> None:
    config = file(tmp_path, f"{HEAD}profiles: [{{{profile}}}]", "c.yaml")
    async with scheduling(chosen(f"{file(tmp_path, LAST)}:Last", config=config), "n1", "n99") as api:
        # The built-in plugins would take the empty node.
        api.pod("filler", cpu="3", nodeName="n99")
        await settle()
        api.pod("p", cpu="1")
        await settle()
        assert api.where("p") == wanted


FAILING = {
    "filter": """running "Moody" filter plugin: KeyError: 'no such node' (mine.py, line 9)""",
    "score": 'running Score plugins: plugin "Moody" failed with: ZeroDivisionError: '
    "integer division or modulo by zero (mine.py, line 14)",
    "range": 'plugin "Moody" returns an invalid score 101, it should in the range of [0, 100] after normalizing',
    "half": 'running Score plugins: plugin "Moody" failed with: score returned 0.5 for node n1; an int is expected',
}


@pytest.mark.parametrize("scope", ["NODE", "CLUSTER"])
async def test_what_it_raises_is_that_pods_error_and_others_go_on(tmp_path: Path, scope: str) -> None:
    mine = file(tmp_path, BROKEN.replace('"NODE"', f'"{scope}"'))
    async with scheduling(chosen(f"{mine}:Moody"), "n1", "n2") as api:
        for name in (*FAILING, "refused", "well"):
            api.pod(name, cpu="1")
        await settle()
        assert [name for name, _ in api.bound] == ["well"]
        for name, message in FAILING.items():
            told = api.condition(name)
            assert (told["reason"], told["message"]) == ("SchedulerError", message)
        refused = api.condition("refused")
        assert refused["message"].startswith("0/2 nodes are available: 2 node(s) were not in the mood.")
        assert refused["reason"] == "Unschedulable"


async def test_nodes_that_do_not_fit_are_not_scored(tmp_path: Path) -> None:
    text = """
class Picky:
    scope = "NODE"
    def score(self, state, pod, node):
        return node.allocatable["cpu"] // (1 if node.allocatable["cpu"] >= 4000 else 0) % 100
"""
    async with scheduling(chosen(f"{file(tmp_path, text)}:Picky"), "n1") as api:
        api.node("small", cpu="1")
        for number in range(3):
            api.pod(f"p{number}", cpu="1250m")
            await settle()
            assert api.where(f"p{number}") == "n1"
            # Changed nodes are worked out one by one.
            api.node("small", cpu="1", labels={"changed": str(number)})
            await settle()


async def test_room_is_given_back_where_unreserve_fails_too(tmp_path: Path) -> None:
    text = """
class Leaky:
    def reserve(self, state, pod, node_name):
        raise OSError("no disk")
    def unreserve(self, state, pod, node_name):
        raise OSError("no disk")
"""
    config = chosen(f"{file(tmp_path, text)}:Leaky")
    api = FakeApi()
    api.node("n1")
    scheduler = Scheduler(api, ManualClock(), random.Random(3), config)
    await scheduler.start()
    api.pod("p", cpu="1")
    await settle()
    assert scheduler.failure is None and scheduler.cache.assumed == 0
    assert api.condition("p")["message"] == 'running Reserve plugin "Leaky": OSError: no disk (mine.py, line 4)'
    await scheduler.stop()


BY_POINT = {
    "pre_enqueue": "self, pod",
    "less": "self, one, other",
    "permit": "self, state, pod, node_name",
    "post_bind": "self, state, pod, node_name",
}


@pytest.mark.parametrize("method", BY_POINT)
def test_one_point_is_enough(tmp_path: Path, method: str) -> None:
    mine = file(tmp_path, f"class One:\n    def {method}({BY_POINT[method]}):\n        return None\n")
    sort = "plugins: {queueSort: {disabled: [{name: '*'}], enabled: [{name: One}]}}" if method == "less" else ""
    config = file(tmp_path, f"{HEAD}profiles: [{{{sort}}}]", "c.yaml")
    assert chosen(f"{mine}:One", config=config).registry.keys() == {"One"}


HELPERS = ("name", "plugin", "reads", "bounded", "guarded", "_run", "node_local", "score_ceilings", "metrics")


@pytest.mark.parametrize("helper", HELPERS)
async def test_its_helper_methods_may_have_any_name(tmp_path: Path, helper: str) -> None:
    """As `name`, a method of every plugin in Go."""
    text = f"""
class Mine:
    def {helper}(self, x=0):
        return 10 * int(x)
    def score(self, state, pod, node):
        return self.{helper}(node.name[1:])
"""
    for more in ("", '    scope = "NODE"\n'):
        own = file(tmp_path, text.replace("Mine:\n", f"Mine:\n{more}"))
        async with scheduling(chosen(f"{own}:Mine"), "n1", "n2", "n10") as api:
            api.pod("p", cpu="1")
            await settle()
            assert api.where("p") == "n10"


async def test_small_integers_do_not_wrap(tmp_path: Path) -> None:
    text = """
import numpy as np
class Bytes:
    scope = "CLUSTER"
    def score(self, state, pod, node):
        return 10 * int(node.name[1:])
    def score_nodes(self, state, pod, nodes):
        return np.array([10 * int(node.name[1:]) for node in nodes.infos()], np.int8)
"""
    config = file(tmp_path, HEAD + "profiles: [{plugins: {score: {enabled: [{name: Bytes, weight: 20}]}}}]", "c.yaml")
    async with scheduling(chosen(f"{file(tmp_path, text)}:Bytes", config=config), *(f"n{i}" for i in range(11))) as api:
        api.pod("p", cpu="1")
        await settle()
        assert api.where("p") == "n10"


async def test_both_forms_must_agree_on_who_is_turned_down(tmp_path: Path) -> None:
    text = """
import numpy as np
class Two:
    def filter(self, state, pod, node):
        return None
    def filter_nodes(self, state, pod, nodes):
        return np.zeros(len(nodes), np.bool_)
"""
    async with scheduling(chosen(f"{file(tmp_path, text)}:Two"), "n1") as api:
        api.pod("p", cpu="1")
        await settle()
        wanted = 'running "Two" filter plugin: filter_nodes rejects NodeInfo(n1), filter does not'
        assert api.condition("p")["message"] == wanted


LABELLED = """
from minikube_py.scheduler.framework import Code, Status

class Labelled:
    scope = "NODE"
    def filter(self, state, pod, node):
        fits = node.labels.get("for") == pod.labels.get("app")
        return None if fits else Status(Code.UNSCHEDULABLE, "node(s) were not for it")
"""
AFTER = """
from minikube_py.scheduler.framework import *

class After:
    def __init__(self, args, handle):
        self.handle = handle
    def pre_enqueue(self, pod):
        if "after" not in pod.labels:
            return None
        first = self.handle.pod("default/" + pod.labels["after"])
        placed = first is not None and first.node_name
        return None if placed else Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, "not yet")
    def events_to_register(self):
        def helps(pod, change):
            return QueueingHint.QUEUE if change.new.name == pod.labels.get("after") else QueueingHint.SKIP
        return [EventRegistration(ClusterEvent(ASSIGNED_POD, Action.ADD), helps)]
"""


async def test_waiting_pods_of_one_spec_are_woken_by_what_the_filters_read(tmp_path: Path) -> None:
    async with scheduling(chosen(f"{file(tmp_path, LABELLED)}:Labelled"), "n1") as api:
        for app in ("a", "b"):
            api.pod(app, metadata={"labels": {"app": app}})
            await settle()
        api.node("n2", labels={"for": "b"})
        await settle()
        assert (api.where("a"), api.where("b")) == ("", "n2")


async def test_gated_pods_are_asked_one_by_one(tmp_path: Path) -> None:
    async with scheduling(chosen(f"{file(tmp_path, AFTER)}:After"), "n1") as api:
        for name, first in (("x", "one"), ("y", "two")):
            api.pod(name, metadata={"labels": {"after": first}})
            await settle()
        api.pod("two")
        await settle()
        assert (api.where("x"), api.where("y")) == ("", "n1")


QUIET = """
from minikube_py.scheduler.framework import Code, Status

class Quiet:
    scope = "NODE"
    def filter(self, state, pod, node):
        if any(READ for other in node.pods.values()):
            return Status(Code.UNSCHEDULABLE, "node(s) had a noisy pod")
"""


def again(api: FakeApi, name: str, **metadata: object) -> None:
    """The pod with other metadata."""
    pod = json.loads(json.dumps(api.objects["pods"][f"default/{name}"]))
    pod["metadata"] |= metadata
    api.put("pods", pod)


SIGNED = "\n    def sign_pod(self, pod):\n        return ()\n"


@pytest.mark.parametrize("more", ["", SIGNED], ids=["watched", "signed"])
async def test_a_verdict_is_renewed_when_a_pod_of_the_node_is_relabelled(tmp_path: Path, more: str) -> None:
    mine = file(tmp_path, QUIET.replace("READ", "other.labels.get('noisy')") + more)
    async with scheduling(chosen(f"{mine}:Quiet"), "n1", "n2") as api:
        for name in ("n1", "n2"):
            api.pod(f"on-{name}", nodeName=name, metadata={"labels": {"noisy": "yes"}})
        await settle()
        api.pod("waits", cpu="1")
        await settle()
        assert not api.where("waits")
        again(api, "on-n1", labels={})
        await settle()
        api.pod("new", cpu="1")
        await settle()
        assert (api.where("waits"), api.where("new")) == ("n1", "n1")


async def test_a_verdict_is_renewed_when_anything_else_of_a_pod_changes(tmp_path: Path) -> None:
    mine = file(tmp_path, QUIET.replace("READ", "not other.deleting"))
    async with scheduling(chosen(f"{mine}:Quiet"), "n1") as api:
        api.pod("old", nodeName="n1")
        await settle()
        api.pod("first", cpu="1")
        await settle()
        assert not api.where("first")
        again(api, "old", deletionTimestamp="2026-01-01T00:00:00Z")
        await settle()
        api.pod("second", cpu="1")
        await settle()
        assert api.where("second") == "n1"


@pytest.mark.parametrize("own", [True, False])
async def test_updates_of_running_pods_touch_nodes_only_for_plugins_that_may_read_them(
    tmp_path: Path, own: bool
) -> None:
    mine = file(tmp_path, QUIET.replace("READ", "False"))
    config = chosen(f"{mine}:Quiet") if own else SchedulerConfig()
    api = FakeApi()
    api.node("n1")
    api.pod("runs", nodeName="n1")
    scheduler = Scheduler(api, ManualClock(), random.Random(3), config)
    await scheduler.start()
    before = scheduler.columns.version
    again(api, "runs", labels={"any": "label"})
    await settle()
    assert (scheduler.columns.version > before) == own
    await scheduler.stop()


NAMED = """
from minikube_py.scheduler.framework import Code, Status

class Named:
    scope = "NODE"
    def filter(self, state, pod, node):
        whose = node.labels.get("for")
        return None if whose and whose == pod.name else Status(Code.UNSCHEDULABLE, "node(s) were not for it")
"""


async def test_waiting_pods_are_told_apart_by_what_was_not_read_yet(tmp_path: Path) -> None:
    async with scheduling(chosen(f"{file(tmp_path, NAMED)}:Named"), "n1") as api:
        for name in ("a", "b", "c"):
            api.pod(name, cpu="1")
        await settle()
        api.node("n1", labels={"for": "c"})
        await settle()
        assert [name for name, _ in api.bound] == ["c"]


async def later(pod: PodInfo, change: ClusterChange) -> QueueingHint:
    return QueueingHint.QUEUE


EVENTS: dict[str, Any] = {
    "text": EventRegistration("Node"),  # type: ignore[arg-type]
    "no resource": EventRegistration(ClusterEvent(None, Action.ALL)),  # type: ignore[arg-type]
    "no action": EventRegistration(ClusterEvent("Node", None)),  # type: ignore[arg-type]
    "text as action": EventRegistration(ClusterEvent("Node", "Add")),  # type: ignore[arg-type]
    "number as hint": EventRegistration(ClusterEvent("Node", Action.ALL), 5),  # type: ignore[arg-type]
    "async hint": EventRegistration(ClusterEvent("Node", Action.ALL), later),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("name", EVENTS)
def test_events_that_could_not_be_matched_are_refused(name: str) -> None:
    mine = SimpleNamespace(filter=lambda *_: None, events_to_register=lambda: [EVENTS[name]])
    with pytest.raises(ConfigError, match='initializing plugin "Mine": events_to_register returned'):
        Guarded("Mine", mine).events_to_register()  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "raised", ["SystemExit(3)", "asyncio.CancelledError()", "ValueError()", "BaseExceptionGroup('g', [SystemExit(3)])"]
)
async def test_a_hint_that_fails_leaves_no_pod_behind(tmp_path: Path, raised: str) -> None:
    text = f"""
import asyncio
from minikube_py.scheduler.framework import *

class Broken:
    def filter(self, state, pod, node):
        return None if node.name == "n2" else Status(Code.UNSCHEDULABLE, "node(s) were not n2")
    def hint(self, pod, change):
        raise {raised}
    def events_to_register(self):
        return [EventRegistration(ClusterEvent("Node", Action.ADD), self.hint)]
"""
    async with scheduling(chosen(f"{file(tmp_path, text)}:Broken"), "n1") as api:
        api.pod("p")
        await settle()
        api.node("n2")
        await settle()
        assert api.where("p") == "n2"


def test_an_array_of_another_shape_is_refused(tmp_path: Path) -> None:
    text = """
import numpy as np
class Short:
    def filter(self, state, pod, node):
        return None
    def filter_nodes(self, state, pod, nodes):
        return np.ones(1, np.bool_)
"""
    plugin = find(f"{file(tmp_path, text)}:Short").make({}, None)  # type: ignore[arg-type]
    assert plugin.filter(CycleState(), pod(), node("n")) is None  # type: ignore[attr-defined]
    with pytest.raises(PluginError, match="a numpy array of 2 bools, one a node, or None, is expected"):
        plugin.filter_nodes(CycleState(), pod(), [0, 0])  # type: ignore[attr-defined]


def test_an_entry_point_is_found_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = file(tmp_path, LAST)
    loaded = find(f"{mine}:Last").make

    def load() -> object:
        return loaded

    point = SimpleNamespace(name="last-one", value="mine:Last", load=load)
    monkeypatch.setattr(registry, "_entry_points", lambda: {"last-one": point})
    assert [name for name, _ in chosen("last-one").profiles[0].plugins["multiPoint"].enabled] == ["last-one"]


def test_a_second_plugin_of_the_same_name_is_refused(tmp_path: Path) -> None:
    one, two = file(tmp_path, LAST), file(tmp_path, LAST, "other.py")
    with pytest.raises(ConfigError, match="another plugin is named Last as well"):
        chosen(f"{one}:Last", f"{two}:Last")


def test_a_file_takes_no_other_modules_place(tmp_path: Path) -> None:
    find(f"{file(tmp_path, LAST, 'json.py')}:Last")
    import json as again

    assert again is json and json.loads("1") == 1


BINDERS = {
    "{disabled: [{name: DefaultBinder}]}": ["Mine"],
    "{enabled: [{name: Mine}, {name: DefaultBinder}], disabled: [{name: DefaultBinder}]}": ["Mine", "DefaultBinder"],
}


def test_a_binder_behind_one_that_binds_all_is_refused(tmp_path: Path) -> None:
    mine, file = tmp_path / "mine.py", tmp_path / "c.yaml"
    mine.write_text("class Mine:\n    async def bind(self, state, pod, node_name):\n        return None\n")
    said = 'plugin "Mine" would bind no pod: DefaultBinder stands before it and binds all.'
    with pytest.raises(ConfigError, match=said):
        read_scheduler(ChosenScheduler(None, (f"{mine}:Mine",)))
    file.write_text(HEAD)
    for refused in (read_scheduler, lambda chosen: write_scheduler(chosen, tmp_path / "written.yaml")):
        with pytest.raises(ConfigError, match=said):
            refused(ChosenScheduler(file, (f"{mine}:Mine",)))
    for bind, wanted in BINDERS.items():
        file.write_text(f"{HEAD}profiles: [{{plugins: {{bind: {bind}}}}}]")
        config = read_scheduler(ChosenScheduler(file, (f"{mine}:Mine",)))
        own: Any = NoCluster()
        assert list(Profile(config.profiles[0], own, config.registry).binders) == wanted

"""How a plugin of one's own is made: with the whole handle, and as the one that orders the queue."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

import pytest
from scheduler_world import FakeApi, ManualClock

from minikube_py.cli import main
from minikube_py.client.rest import ResourceRef
from minikube_py.scheduler.config import ConfigError, SchedulerConfig
from minikube_py.scheduler.configuration.checking import NoCluster, checked
from minikube_py.scheduler.configuration.chosen import ChosenScheduler
from minikube_py.scheduler.configuration.files import read_scheduler, with_own
from minikube_py.scheduler.framework import Handle
from minikube_py.scheduler.kinds import NeededKind
from minikube_py.scheduler.own import Guarded, OwnPlugin
from minikube_py.scheduler.profile import Profile
from minikube_py.scheduler.scheduler import Scheduler

HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"


def _read_all(handle: Any) -> None:
    """Every member of a Handle; those about a pod are only looked up, since a constructor knows none."""
    asked = {
        "informer": lambda each: each(ResourceRef("", "v1", "configmaps"), dict),
        "polled": lambda each: each(ResourceRef("metrics.k8s.io", "v1beta1", "nodes"), dict),
        "pod": lambda each: each("default/p"),
        "allow_waiting_pod": lambda each: each("u", "Mine"),
        "reject_waiting_pod": lambda each: each("u", "Mine", "no"),
        "activate": lambda each: each(()),
        "is_preempting": lambda each: each("u"),
        "count": lambda each: each("scheduler_preemption_attempts_total"),
        "kinds": lambda each: each.of(NeededKind(ResourceRef("", "v1", "configmaps"), "ConfigMap", dict)),
    }
    plain = {"columns", "client", "clock", "groups", "rng"}
    of_pods = {"tell", "dry_run", "preempt"}
    members = {name for name in vars(Handle) if not name.startswith("_")}
    assert members == {*asked, *plain, *of_pods}
    for name in sorted(members):
        asked.get(name, bool)(getattr(handle, name))


def test_a_constructor_has_the_whole_handle_checked_or_run() -> None:
    class Mine:
        def __init__(self, args: Any, handle: Any) -> None:
            _read_all(handle)

        def score(self, state: Any, pod: Any, node: Any) -> int:
            return 1

    own = {"Mine": OwnPlugin("Mine", lambda args, handle: Guarded("Mine", Mine(args, handle)))}
    config = checked(with_own(SchedulerConfig(), own))
    assert Scheduler(FakeApi(), ManualClock(), random.Random(3), config).profiles


SORTERS = {"sort_key": "queued", "less": "one, other"}


@pytest.mark.parametrize("method", SORTERS)
def test_a_plugin_that_orders_the_queue_is_refused_with_the_remedy_and_is_checked(
    tmp_path: Path, method: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = f"class Mine:\n    def {method}(self, {SORTERS[method]}):\n        return 1\n"
    mine, file = tmp_path / "mine.py", tmp_path / "c.yaml"
    mine.write_text(text)
    with pytest.raises(ConfigError, match="but got 2") as caught:
        read_scheduler(ChosenScheduler(None, (f"{mine}:Mine",)))
    (remedy,) = re.findall(r"with `(.*)` in profile default-scheduler leaves the order to Mine$", str(caught.value))
    file.write_text(f"{HEAD}profiles: [{{{remedy}}}]")
    config = read_scheduler(ChosenScheduler(file, (f"{mine}:Mine",)))
    lent: Any = NoCluster()
    assert Profile(config.profiles[0], lent, config.registry).queue_sort_name == "Mine"
    assert main.main(["plugin", "check", f"{mine}:Mine", "--no-bench", "--examples", "2"]) == 0
    assert method in capsys.readouterr().out

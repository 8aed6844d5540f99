"""What a configuration says of extenders."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from scheduler_world import FakeApi, ManualClock

from minikube_py.env import Tls
from minikube_py.scheduler.config import ConfigError, SchedulerConfig, parse
from minikube_py.scheduler.configuration.messages import API_VERSION, KIND
from minikube_py.scheduler.scheduler import Scheduler

Json = dict[str, Any]
ONE: Json = {"urlPrefix": "http://a", "filterVerb": "filter"}
TWO: Json = {"urlPrefix": "http://b", "filterVerb": "filter"}


def config(*extenders: Json, **more: Any) -> SchedulerConfig:
    return parse({"apiVersion": API_VERSION, "kind": KIND, "extenders": list(extenders), **more})


def test_ignorable_extenders_are_asked_last_and_share_one_timeout() -> None:
    found = config(ONE | {"ignorable": True}, TWO | {"httpTimeout": "1m"}).extenders
    assert [(each.url_prefix, each.timeout_s) for each in found] == [("http://b", 60.0), ("http://a", 5.0)]


def test_ignored_resources_replace_those_of_the_arguments() -> None:
    resources = [{"name": "a.com/x", "ignoredByScheduler": True}, {"name": "a.com/y"}]
    profile = {"pluginConfig": [{"name": "NodeResourcesFit", "args": {"ignoredResources": ["b.com/z"]}}]}
    found = config(ONE | {"managedResources": resources}, profiles=[profile])
    assert found.profiles[0].plugin_args["NodeResourcesFit"]["ignoredResources"] == ["a.com/x"]
    off = {"plugins": {"multiPoint": {"disabled": [{"name": "*"}], "enabled": [{"name": "PrioritySort"}]}}}
    with pytest.raises(ConfigError, match="can't find NodeResourcesFitArgs in plugin config"):
        config(ONE | {"managedResources": resources}, profiles=[off])


TLS: list[tuple[Json, Tls | None]] = [
    ({}, None),
    ({"enableHTTPS": True}, Tls(insecure=True)),
    ({"tlsConfig": {"serverName": "x"}}, Tls(server_name="x")),
    ({"enableHTTPS": True, "tlsConfig": {"serverName": "x"}}, Tls(insecure=True, server_name="x")),
]


@pytest.mark.parametrize(("given", "found"), TLS)
def test_whom_it_trusts(given: Json, found: Tls | None) -> None:
    assert config(ONE | given).extenders[0].tls == found


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (
            {"tlsConfig": {"insecure": True, "caFile": "/nowhere"}},
            "specifying a root certificates file with the insecure flag is not allowed",
        ),
        ({"tlsConfig": {"caFile": "/nowhere"}}, "open /nowhere: no such file or directory"),
        ({"tlsConfig": {"caData": "eA=="}}, "unable to load root certificates: unable to parse bytes as PEM block"),
    ],
)
def test_certificates_that_cannot_be_had_are_refused(given: Json, told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        config(ONE | given)
    assert str(caught.value) == f"couldn't build extenders: {told}"


def test_without_a_way_out_extenders_are_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="extenders: http://a: "):
        Scheduler(FakeApi(), ManualClock(), random.Random(1), config(ONE))
    Scheduler(FakeApi(), ManualClock(), random.Random(1), replace(config(ONE), extenders=()))

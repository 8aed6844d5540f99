"""What type checkers know about `wait`; `make lint` checks it, nothing runs it."""

from __future__ import annotations

from typing import Any, assert_type

from minikube_py import AsyncCluster, Cluster

Object = dict[str, Any]


def of_one(cluster: Cluster, name: str) -> None:
    assert_type(cluster.wait("rc/web", ready=3), Object)
    assert_type(cluster.wait(f"pod/{name}", phase="Running", timeout_s=5), Object)
    assert_type(cluster.wait(name, until=lambda obj: obj["spec"]["paused"] is True), Object)
    assert_type(cluster.in_namespace("other").wait("cm/a"), Object)
    assert_type(cluster.wait("rc/web", ready=3)["status"]["readyReplicas"], Any)


def of_many(cluster: Cluster, name: str) -> None:
    assert_type(cluster.wait("pods", ready=3), list[Object])
    assert_type(cluster.wait("deploy", condition="Available", namespace=""), list[Object])
    assert_type(cluster.wait(name, selector="app=web"), list[Object])


def gone(cluster: Cluster) -> None:
    assert_type(cluster.wait("pod/a", gone=True), list[Object])
    assert_type(cluster.wait("pods", gone=True, selector="app=web"), list[Object])
    cluster.wait("pod/a", gon=True)  # type: ignore[call-overload]
    cluster.wait("pod/a", ready="3")  # type: ignore[call-overload]


async def awaited(cluster: AsyncCluster, name: str) -> None:
    assert_type(await cluster.wait("rc/web", ready=3), Object)
    assert_type(await cluster.wait("pods", ready=3), list[Object])
    assert_type(await cluster.wait(name, selector="app=web"), list[Object])
    assert_type(await cluster.in_namespace("other").wait("cm/a"), Object)
    assert_type(await cluster.wait("pod/a", gone=True), list[Object])

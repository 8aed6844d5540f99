"""Custom resources whose definitions end and change while a cluster runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import pytest

from minikube_py import Cluster, ClusterError, StatusError

pytestmark = pytest.mark.real_time("real sockets and threads")
ABSENT = "no resource 'foos' is served by this cluster"


def definition(scope: str = "Namespaced", version: str = "v1") -> dict[str, Any]:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "foos.ex.io"},
        "spec": {
            "group": "ex.io", "scope": scope, "names": {"plural": "foos", "singular": "foo", "kind": "Foo"},
            "versions": [{"name": version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}],
        },
    }  # fmt: skip


def foo(name: str, version: str = "v1") -> dict[str, Any]:
    return {"apiVersion": f"ex.io/{version}", "kind": "Foo", "metadata": {"name": name}}


def define(cluster: Cluster, **given: str) -> None:
    cluster.apply(definition(**given))
    cluster.wait("crd/foos.ex.io", condition="Established")


def undefine(cluster: Cluster) -> None:
    cluster.delete("crd/foos.ex.io")
    cluster.wait("crd/foos.ex.io", gone=True)


def names(cluster: Cluster) -> list[str]:
    return [each["metadata"]["name"] for each in cluster.objects("foos")]


@pytest.fixture(params=["real", "virtual"])
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    clock: Literal["real", "virtual"] = request.param
    with Cluster(nodes=0, clock=clock) as cluster:
        yield cluster


@pytest.mark.parametrize("scopes", [("Namespaced", "Cluster"), ("Cluster", "Namespaced")])
def test_the_scope_is_that_of_the_latest_definition(cluster: Cluster, scopes: tuple[str, str]) -> None:
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}})
    other = cluster.in_namespace("other")
    for scope in scopes:
        define(cluster, scope=scope)
        (made,) = cluster.apply(foo("a"))
        assert ("namespace" in made["metadata"]) == (scope == "Namespaced")
        assert cluster.get("foo/a")["metadata"]["uid"] == made["metadata"]["uid"]
        assert names(cluster) == ["a"]
        assert [each["metadata"]["name"] for each in other.objects("foos")] == ([] if scope == "Namespaced" else ["a"])
        cluster.apply(foo("a"))
        cluster.delete("foo/a")
        cluster.wait("foo/a", gone=True)
        undefine(cluster)


def test_another_version_is_found(cluster: Cluster) -> None:
    for version in ("v1", "v2"):
        define(cluster, version=version)
        cluster.apply(foo("a", version))
        assert cluster.objects("foos")[0]["apiVersion"] == f"ex.io/{version}"
        undefine(cluster)


def test_what_is_not_served_any_more_is_unknown(cluster: Cluster) -> None:
    before = cluster.snapshot()
    for end in (lambda: cluster.restore(before), lambda: undefine(cluster)):
        define(cluster)
        cluster.apply(foo("a"))
        there = cluster.snapshot()
        end()
        for use in (
            lambda: names(cluster), lambda: cluster.get("foos/a"), lambda: cluster.delete("foos/a"),
            lambda: cluster.wait("foos/a", timeout_s=1), lambda: cluster.wait("foos", timeout_s=1),
        ):  # fmt: skip
            with pytest.raises(ClusterError, match=ABSENT):
                use()
        with pytest.raises(ClusterError, match=r"no kind 'Foo' in version 'ex.io/v1'"):
            cluster.apply(foo("a"))
        cluster.wait("foos/a", gone=True)
        cluster.restore(there)
        cluster.wait("crd/foos.ex.io", condition="Established")
        assert names(cluster) == ["a"]
        cluster.restore(before)
    with pytest.raises(ClusterError, match="no resource 'fools'"):
        cluster.wait("fools/a", gone=True)
    with pytest.raises(StatusError, match="not found"):
        cluster.get("cm/none")

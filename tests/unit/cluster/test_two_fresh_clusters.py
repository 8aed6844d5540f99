"""A fresh cluster holds the same objects in real and in virtual time, up to what a page names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from minikube_py import Cluster

PAGE = Path(__file__).resolve().parents[3] / "docs" / "how-to" / "virtual-time.md"
Name = tuple[str, str, str, str]
"""Group and version, plural, namespace, name."""
TRUSTED: Name = ("v1", "configmaps", "kube-system", "extension-apiserver-authentication")


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict | list):
        for key, each in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(each, f"{path}/{key}")
    else:
        yield path, value


def every_object(cluster: Cluster) -> dict[Name, dict[str, Any]]:
    """All that discovery lists, with the leaves of each."""

    def read(path: str) -> Any:
        return orjson.loads(cluster.request("GET", path).body)

    groups = [each["groupVersion"] for group in read("/apis")["groups"] for each in group["versions"]]
    found: dict[Name, dict[str, Any]] = {}
    for version, root in [("v1", "/api/v1"), *((each, f"/apis/{each}") for each in groups)]:
        for plural in [each["name"] for each in read(root)["resources"] if "list" in each["verbs"]]:
            for obj in read(f"{root}/{plural}")["items"]:
                metadata = obj["metadata"]
                # An Event's name ends in its time.
                name = metadata["name"].partition(".")[0] + obj["reason"] if plural == "events" else metadata["name"]
                found[version, plural, metadata.get("namespace", ""), name] = dict(leaves(obj))
    return found


def allowed() -> set[tuple[str, str]]:
    """Plural, or "*", and the last part of a leaf that may differ."""
    _, _, section = PAGE.read_text().partition("## The objects of a fresh cluster")
    rows = [line.split("|")[1:3] for line in section.partition("\n## ")[0].splitlines() if line.startswith("| `")]
    return {
        (plural, field) for row in rows for plural in re.findall("`(.+?)`", row[0])
        for field in re.findall("`(.+?)`", row[1])
    }  # fmt: skip


@pytest.mark.real_time("a cluster in real time")
def test_a_fresh_cluster_holds_the_same_objects_in_both_times() -> None:
    with Cluster(nodes=2) as real, Cluster(nodes=2, clock="virtual") as virtual:
        for cluster in (real, virtual):
            cluster.wait("events", until=lambda _, each=cluster: len(each.objects("events")) == 2)
            for node in range(2):
                cluster.wait(f"lease/node-{node}", namespace="kube-node-lease")
            for namespace in ("default", "kube-node-lease", "kube-public", "kube-system"):
                cluster.wait("cm/kube-root-ca.crt", namespace=namespace)
                cluster.wait("sa/default", namespace=namespace)
        real.wait(f"cm/{TRUSTED[3]}", namespace=TRUSTED[2])
        in_real, in_virtual = every_object(real), every_object(virtual)
        assert TRUSTED[3] in PAGE.read_text()
        assert in_real.keys() == {*in_virtual, TRUSTED} and TRUSTED not in in_virtual and len(in_real) > 150
        del in_real[TRUSTED]
        unequal: dict[tuple[str, str], Name] = {
            (name[1], path): name
            for name, found in in_real.items()
            for path in found.keys() | in_virtual[name].keys()
            if found.get(path) != in_virtual[name].get(path)
        }
        rows = allowed()
        for plural, path in unequal:
            field = path.rpartition("/")[2]
            assert {(plural, path.removeprefix("/")), ("*", field)} & rows, (unequal[plural, path], path)
        # Nothing is allowed that does not differ; the address of the machine may by chance be the same.
        fields = {("*", path.rpartition("/")[2]) for _, path in unequal}
        used = fields | {(plural, path.removeprefix("/")) for plural, path in unequal}
        assert {row for row in rows - used if "address" not in row[1]} == set()


def test_a_seed_decides_the_authority_and_another_draws_another() -> None:
    found = []
    for seed in (1, 1, 2):
        with Cluster(nodes=0, clock="virtual", seed=seed) as cluster:
            cluster.wait("cm/kube-root-ca.crt")
            pem = cluster.get("cm/kube-root-ca.crt")["data"]["ca.crt"]
            found.append(pem)
            cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "more"}})
            cluster.wait("cm/kube-root-ca.crt", namespace="more")
            assert cluster.get("cm/kube-root-ca.crt", namespace="more")["data"]["ca.crt"] == pem
    assert found[0] == found[1] != found[2]


def test_the_service_kubernetes_leads_to_the_api_server_for_as_long_as_it_runs() -> None:
    with Cluster(nodes=0, clock="virtual") as cluster:
        cluster.advance(minutes=5)
        (subset,) = cluster.get("endpoints/kubernetes")["subsets"]
        assert subset["addresses"] == [{"ip": "192.0.2.1"}] and subset["ports"][0]["port"] == 6443
        cluster.delete("endpoints/kubernetes")
        cluster.advance(11)
        assert cluster.get("endpoints/kubernetes")["subsets"] == [subset]

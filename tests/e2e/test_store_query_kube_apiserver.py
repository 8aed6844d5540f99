"""`minikube-py store query` under Kubernetes' own API server: its JSON is answered from, its protobuf is not."""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
import urllib.request
from collections import defaultdict
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from etcd_load import DoorCluster
from needs import original_program
from patience import PATIENCE_S, Deadline
from store_cluster import make_secrets

from upstream_run import Parts, Upstream, free_ports  # isort: skip

pytestmark = [pytest.mark.original, pytest.mark.timeout(600)]
JSON = Parts(media_type="application/json")
CPU = ("2", "3500m", "8", "500m")
"""What the nodes have."""
ASKED = ("250m", "1", "1500m")
"""What the pods request."""
Done = subprocess.CompletedProcess[str]


def objects() -> list[dict[str, Any]]:
    rng = random.Random(16)
    nodes = [
        {"apiVersion": "v1", "kind": "Node",
         "metadata": {"name": f"n{number}", "labels": {"pool": "ab"[number % 2]}},
         "status": {"allocatable": {"cpu": cpu, "memory": "8Gi", "pods": "50"}}}
        for number, cpu in enumerate(CPU)
    ]  # fmt: skip
    pods = [
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"p{number}", "namespace": "default"},
         "spec": {"nodeName": f"n{rng.randrange(3)}", "containers": [
             {"name": "c", "image": "x:1", "resources": {"requests": {"cpu": rng.choice(ASKED)}}}]}}
        for number in range(8)
    ]  # fmt: skip
    return [*nodes, *pods]


def cores(text: str) -> Fraction:
    return Fraction(text.removesuffix("m")) / (1000 if text.endswith("m") else 1)


def fetched(url: str) -> str:
    with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
        return str(answer.read(), "utf-8")


class Plane:
    """One member of ours, and the API server that is started on it."""

    def __init__(self, cluster: DoorCluster, folder: Path) -> None:
        self.cluster, self.folder = cluster, folder
        self.upstream = Upstream(folder)

    async def start(self, name: str, parts: Parts) -> None:
        self.upstream.kill()
        (self.folder / name).mkdir()
        self.upstream = Upstream(self.folder / name)
        await asyncio.to_thread(self.upstream.start_control_plane, [self.cluster.url("store-1")], parts)

    async def _run(self, *words: str, stdin: str = "") -> Done:
        return await asyncio.to_thread(
            subprocess.run, words, input=stdin, capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )

    async def kubectl(self, *words: str, stdin: str = "") -> str:
        config = f"--kubeconfig={self.upstream.kubeconfig}"
        done = await self._run(str(original_program("kubectl")), config, *words, stdin=stdin)
        assert done.returncode == 0, done
        return done.stdout

    async def query(self, *words: str) -> Done:
        host, port = self.cluster.where["store-1"]
        reach = ("--endpoints", f"{host}:{port}", "--secrets-dir", str(self.cluster.secrets / "admin"))
        return await self._run(sys.executable, "-m", "minikube_py", "store", "query", *words, *reach, "--json")

    async def names(self, *words: str) -> tuple[list[str], dict[str, Any]]:
        done = await self.query(*words)
        assert done.returncode == 0, done
        told = json.loads(done.stdout)
        return told["names"], told

    async def free(self) -> dict[str, Fraction]:
        """Free cores by node, of what kubectl shows."""
        shown = json.loads(await self.kubectl("get", "nodes,pods", "-A", "-o", "json"))["items"]
        taken: dict[str, Fraction] = defaultdict(Fraction)
        for each in shown:
            if each["kind"] == "Pod" and each.get("status", {}).get("phase") not in ("Succeeded", "Failed"):
                for container in each["spec"]["containers"]:
                    taken[each["spec"]["nodeName"]] += cores(container["resources"]["requests"]["cpu"])
        nodes = {each["metadata"]["name"]: each for each in shown if each["kind"] == "Node"}
        return {name: cores(each["status"]["allocatable"]["cpu"]) - taken[name] for name, each in nodes.items()}


async def test_json_is_answered_from_and_protobuf_is_refused(tmp_path: Path) -> None:
    secrets = await asyncio.to_thread(make_secrets, tmp_path / "secrets")
    cluster = DoorCluster(tmp_path / "store", secrets, random.Random(5), "http")
    plane = Plane(cluster, tmp_path)
    try:
        (port,) = free_ports(1)
        await cluster.links.start()
        await cluster.place("store-1")
        await cluster.start("store-1", flags=("--healthz", f"127.0.0.1:{port}"))
        await cluster.settle()
        await plane.start("protobuf", Parts())
        made = {"apiVersion": "v1", "kind": "List", "items": objects()}
        await plane.kubectl("apply", "-f", "-", stdin=json.dumps(made))
        refused = await plane.query("nodes", "free.cpu>=1")
        assert refused.returncode == 1 and refused.stdout == ""
        assert "4 of 4 nodes and 8 of 8 pods are not stored as JSON" in refused.stderr
        said = "of the objects of kube-pods, 8 are not JSON and cannot be read; their fields are missing"
        deadline = Deadline()
        while not any(said in line for life in cluster.lives for line in life.out):
            deadline.check([life.errors + life.out for life in cluster.lives])
            await asyncio.sleep(0.05)
        metrics = await asyncio.to_thread(fetched, f"http://127.0.0.1:{port}/metrics")
        assert 'minikube_py_store_objects_unreadable{field_set="minions"} 12' in metrics
        # With the other media type, what is written again is read; what is not, is still missed.
        await plane.start("json", JSON)
        for kind, missed in (("nodes", "8 of 8 pods are not"), ("pods", "")):
            await plane.kubectl("replace", "-f", "-", stdin=await plane.kubectl("get", kind, "-o", "json"))
            done = await plane.query("nodes", "free.cpu>=1")
            assert (missed in done.stderr) if missed else done.returncode == 0, done
        await check_answers(plane)
    finally:
        plane.upstream.kill()
        await cluster.close()


async def check_answers(plane: Plane) -> None:
    """Equal to what kubectl's output gives, while pods come and go; then from an index."""
    for gone in ("", "p1", "p4"):
        if gone:
            await plane.kubectl("delete", "pod", gone, "--force", "--grace-period=0")
        free = await plane.free()
        assert len(set(free.values())) > 1
        for bound in sorted(set(free.values())):
            expected = sorted(name for name, cpu in free.items() if cpu >= bound)
            assert (await plane.names("nodes", f"free.cpu>={int(bound * 1000)}m"))[0] == expected
    expected = sorted(name for name, cpu in free.items() if cpu >= 1 and name in ("n0", "n2"))
    asked = ("nodes", "pool=a,free.cpu>=1")
    fields = ("--index", "pools", "--fields", 'pool=metadata.labels["pool"],free.cpu')
    deadline = Deadline()
    names, told = await plane.names(*asked, *fields)
    while told["index"] != "pools":
        assert names == expected
        deadline.check(told)
        names, told = await plane.names(*asked)
    assert names == expected
    (index,) = json.loads((await plane.query("nodes")).stdout)["indexes"]
    assert (index["name"], index["state"], index["reason"]) == ("pools", "ready", "")
    assert (await plane.names("pods", "requests.cpu>=1500m"))[0]

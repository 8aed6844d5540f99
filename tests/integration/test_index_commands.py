"""`minikube-py index` against `minikube-py up`, in one process and split: with kubectl and the official Python client,
which know nothing of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client, config, watch
from needs import require_kubectls
from up_process import Up, up

from minikube_py.cli import main

pytestmark = pytest.mark.kubectl
POOL = 'metadata.labels["pool"]'
Index = Callable[..., str]


def own_structure(folder: Path) -> Path:
    path = folder / "mine.py"
    path.write_text("from minikube_py.index.structures.scan import Scan\nclass Mine(Scan):\n    structure = 'mine'\n")
    return path


@pytest.fixture(scope="module", params=[(), ("--split",)], ids=["one process", "split"])
def running(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    own = f"{own_structure(tmp_path_factory.mktemp('own'))}:Mine"
    flags = ["--structure", own, "--matcher", own, *request.param]
    with up("--nodes", "0", "--data-dir", str(tmp_path_factory.mktemp("index") / "data"), *flags) as running:
        yield running


@pytest.fixture(scope="module")
def v1(running: Up) -> Iterator[client.CoreV1Api]:
    with config.new_client_from_config(str(running.kubeconfig)) as api:
        v1 = client.CoreV1Api(api)
        for number, (cpu, pool) in enumerate([(2, "fast"), (4, "fast"), (8, "slow"), (16, "")]):
            amounts = {"cpu": str(cpu), "memory": "32Gi", "pods": "110"}
            labels = {"pool": pool, "rank": str(number)} if pool else {}
            v1.create_node({
                "metadata": {"name": f"n{number}", "labels": labels},
                "spec": {"unschedulable": True},
                "status": {"allocatable": amounts},
            })  # fmt: skip
        yield v1
        api.rest_client.pool_manager.clear()


@pytest.fixture
def index(running: Up, v1: client.CoreV1Api, capsys: pytest.CaptureFixture[str]) -> Index:
    def run(*arguments: str, code: int = 0) -> str:
        found = main.main(["index", *arguments, "--kubeconfig", str(running.kubeconfig)])
        said = capsys.readouterr()
        assert found == code, said.err
        return said.out if code == 0 else said.err

    return run


@pytest.fixture(scope="module")
def kubectl(running: Up, tmp_path_factory: pytest.TempPathFactory) -> Index:
    binaries = require_kubectls()
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path_factory.mktemp("home"))}

    def run(*arguments: str, code: int = 0) -> str:
        command = [str(binaries[max(binaries)]), "--kubeconfig", str(running.kubeconfig), *arguments]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert done.returncode == code, done.stderr
        return done.stdout if code == 0 else done.stderr

    return run


def of_python(v1: client.CoreV1Api, selector: str) -> list[str]:
    return [node.metadata.name for node in v1.list_node(field_selector=selector).items]


def of_kubectl(kubectl: Index, selector: str) -> list[str]:
    out = kubectl("get", "nodes", "--field-selector", selector, "-o", "name")
    return [line.removeprefix("node/") for line in out.split()]


def test_as_typed(running: Up, v1: client.CoreV1Api, index: Index, kubectl: Index) -> None:
    """The commands of the manual, one of them as a process that finds the control plane by $KUBECONFIG."""
    fields = ["--fields", "free.cpu,free.memory,free.nvidia.com/gpu", "--structure", "max-tree", "--wait"]
    command = [sys.executable, "-m", "minikube_py", "index", "create", "fits", "--on", "nodes", *fields]
    environment = {**os.environ, "KUBECONFIG": str(running.kubeconfig)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    first, *then = done.stdout.splitlines()
    assert (done.returncode, first) == (
        0, "index fits on nodes over free.cpu, free.memory, free.nvidia.com/gpu in max-tree: ready",
    ), done.stderr  # fmt: skip
    assert then[-1] == "  kubectl get nodes --field-selector 'free.cpu>=1'"
    assert index("list").splitlines()[1].split()[:5] == [
        "fits", "nodes", "free.cpu,free.memory,free.nvidia.com/gpu", "max-tree", "ready",
    ]  # fmt: skip
    question = "free.cpu>=4,free.memory>=16Gi"
    assert of_kubectl(kubectl, question) == of_python(v1, question) == ["n1", "n2", "n3"]
    explained = json.loads(index("explain", question, "--json"))
    ways = [explained["chosen"], *explained["others"]]
    assert {way["found"] for way in ways if way["takenUs"] >= 0} == {3}
    assert [way["structure"] for way in ways if way["name"] == "fits" and way["takenUs"] > 0] == ["max-tree"]
    assert "3" in index("explain", question).splitlines()[2].split()
    assert json.loads(index("stats", "fits", "--json"))["status"]["queries"] > 0
    assert index("drop", "fits").startswith("index fits is dropped")
    assert index("list").startswith("no index is declared")
    assert of_kubectl(kubectl, question) == ["n1", "n2", "n3"]


def test_a_structure_of_ones_own(index: Index, kubectl: Index, tmp_path: Path) -> None:
    """By its name, or by its file; one that the control plane was not started with is refused, file or not."""
    given = ["--on", "nodes", "--fields", "free.cpu", "--wait", "--structure"]
    assert "in mine: ready" in index("create", "own", *given, f"{own_structure(tmp_path)}:Mine")
    assert of_kubectl(kubectl, "free.cpu>=8") == ["n2", "n3"]
    explained = json.loads(index("explain", "free.cpu>=8", "--json"))
    assert [way["found"] for way in [explained["chosen"], *explained["others"]] if way["structure"] == "mine"] == [2]
    index("drop", "own")
    other = tmp_path / "other.py"
    other.write_text("class Other:\n    def find(self, box, limit=0):\n        return None\n")
    refused = index("create", "own", *given, f"{other}:Other", code=1)
    assert "no structure is named 'Other'" in refused
    assert f"start the control plane with --structure {other}:Other" in refused


def test_fields_that_nobody_has_declared_yet(v1: client.CoreV1Api, index: Index, kubectl: Index) -> None:
    refused = kubectl("get", "nodes", "--field-selector", f"{POOL}=fast", code=1)
    assert "field label not supported" in refused
    fields = ["--fields", f'{POOL},rank=metadata.labels["rank"]:int', "--fields", "metadata.creationTimestamp"]
    index("create", "pools", "--on", "nodes", *fields)
    for selector, wanted in (
        (f"{POOL}=fast", ["n0", "n1"]),
        ("rank>=1", ["n1", "n2"]),
        (f"{POOL}=fast,rank>0,free.cpu>=4", ["n1"]),
        ("metadata.creationTimestamp<2020-01-01T00:00:00Z", []),
        ("metadata.creationTimestamp>2020-01-01T00:00:00Z,rank<1", ["n0"]),
    ):
        assert of_kubectl(kubectl, selector) == of_python(v1, selector) == wanted
    table = [line.split() for line in kubectl("get", "nodes", "--field-selector", "rank=2", "-o", "wide").splitlines()]
    assert dict(zip(reversed(table[0]), reversed(table[1])))["RANK"] == "2"
    moves: list[tuple[str, str]] = []
    version = v1.list_node(field_selector="rank>=2").metadata.resource_version
    v1.patch_node("n0", {"metadata": {"labels": {"rank": "7"}}})
    v1.patch_node("n0", {"metadata": {"labels": {"rank": "1"}}})
    stream = watch.Watch()
    for event in stream.stream(v1.list_node, field_selector="rank>=2", resource_version=version, timeout_seconds=20):
        moves.append((event["type"], event["object"].metadata.name))
        if len(moves) == 2:
            stream.stop()
    assert moves == [("ADDED", "n0"), ("DELETED", "n0")]
    index("drop", "pools")
    assert "field label not supported" in kubectl("get", "nodes", "--field-selector", f"{POOL}=fast", code=1)


def test_sums_as_data(v1: client.CoreV1Api, index: Index, kubectl: Index) -> None:
    total = "requested.*=pods:metadata.namespace:pod_requests@2"
    index("create", "quota", "--on", "namespaces", "--fields", "requested.cpu", "--sum", total, "--wait")
    question = "requested.cpu>=1500m"
    assert v1.list_namespace(field_selector=question).items == []
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
    seen: list[Any] = []
    stream = watch.Watch()
    for number in (1, 2):
        v1.create_namespaced_pod("default", {"metadata": {"name": f"p{number}"}, "spec": {"containers": [container]}})
    for event in stream.stream(v1.list_namespace, field_selector=question, timeout_seconds=20):
        seen.append((event["type"], event["object"].metadata.name))
        if seen[-1][0] == "ADDED":
            v1.delete_namespaced_pod("p1", "default", grace_period_seconds=0)
        else:
            stream.stop()
    assert seen == [("ADDED", "default"), ("DELETED", "default")]
    assert kubectl("get", "ns", "--field-selector", "requested.cpu=1", "-o", "name") == "namespace/default\n"
    assert "requested.cpu" in index("stats", "quota")
    index("drop", "quota")


BAD: list[tuple[list[str], str]] = [
    (["create", "x", "--on", "nods", "--fields", "free.cpu"], "on: 'nods' is not a stored resource; the resources are"),
    (["create", "x", "--on", "nodes", "--fields", "spec.podCIRD"], "did you mean spec.podCIDR?"),
    (["create", "x", "--on", "nodes", "--fields", "free.cpu:int"], "declared on nodes as quantity: leave :int away"),
    (["create", "x", "--on", "nodes", "--fields", "free.cpu", "--structure", "btree"], "no structure is named 'btree'"),
    (["create", "x", "--on", "nodes", "--fields", "free.cpu", "--option", "a=1"], "has no option 'a'"),
    (["create", "x", "--on", "nodes", "--fields", "free.cpu", "--memory-limit", "1"], "a memory limit of 1 bytes"),
    (["create", "x", "--on", "nodes", "--fields", "n", "--sum", "n=podz:a:count@1"], "did you mean 'pods'?"),
    (["explain", "free.cpu>=lots"], "quantities must match the regular expression"),
    (["explain", "metadata.name="], "compares no declared field of nodes; there are free.*"),
    (["stats", "none"], "there is no index 'none'; the indexes are: none"),
    (["drop", "none"], "there is no index 'none'; the indexes are: none"),
]


def test_bad_input_is_one_line_that_says_what_would_be_right(index: Index) -> None:
    for arguments, message in BAD:
        said = index(*arguments, code=1)
        assert message in said and said.count("\n") == 1, said

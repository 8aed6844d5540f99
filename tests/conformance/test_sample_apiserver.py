"""A real extension API server in Go, unchanged, behind our `up`: it asks ours who may do what, and ours passes on
kubectl's requests, collects its garbage and empties its namespaces."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import ours
import pytest
from api_targets import original
from depth import DEEP
from patience import eventually
from sample_apiserver import API_SERVICE, GROUP, Kubectl, Sample, sample_apiserver

pytestmark = [
    pytest.mark.original, pytest.mark.slow, pytest.mark.timeout(400),
    pytest.mark.skipif(not DEEP, reason="make deep: the program takes minutes to build"),
]  # fmt: skip

SPEC = "spec: {reference: two, referenceType: Flunder}"


class World(NamedTuple):
    kubectl: Kubectl
    sample: Sample


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("sample")
    with ours.serve(("controllers",)) as up:
        kubectl = Kubectl(up["kubeconfig"], folder)
        with sample_apiserver(kubectl, folder) as sample:

            def admits() -> bool:
                return kubectl.run("create", "--dry-run=server", "-f", "-", given=flunder("probe")).returncode == 0

            eventually(admits, "its informers have synced", pause_s=0.5)
            yield World(kubectl, sample)


def flunder(name: str, namespace: str = "default", more: str = "") -> str:
    metadata = f"metadata: {{name: {name}, namespace: {namespace}{more}}}"
    return f"apiVersion: wardle.example.com/v1alpha1\nkind: Flunder\n{metadata}\n{SPEC}\n"


def owned_by(kind: str, api_version: str, name: str, uid: str) -> str:
    owner = f"{{apiVersion: {api_version}, kind: {kind}, name: {name}, uid: {uid}}}"
    return f", ownerReferences: [{owner}]"


def test_kubectl_knows_its_kinds_and_writes_them(world: World) -> None:
    kubectl = world.kubectl
    told = [line.split() for line in kubectl("api-resources --no-headers --api-group=wardle.example.com").splitlines()]
    assert told == [
        ["fischers", "wardle.example.com/v1alpha1", "false", "Fischer"],
        ["flunders", "wardle.example.com/v1alpha1", "true", "Flunder"],
    ]
    assert "defaults to \"Flunder\" if reference is set" in kubectl("explain flunders.spec.referenceType")
    assert kubectl("create -f -", flunder("one")) == "flunder.wardle.example.com/one created\n"
    assert kubectl("get flunders").split()[:3] == ["NAME", "CREATED", "AT"]
    assert kubectl("apply --server-side -f -", flunder("one", more=", labels: {a: b}")).endswith("serverside-applied\n")
    kubectl("label flunder one c=d")
    found = json.loads(kubectl("get flunder one -o json"))
    assert (found["metadata"]["labels"], found["spec"]["reference"]) == ({"a": "b", "c": "d"}, "two")
    unknown = flunder("two").replace("spec: {", "spec: {x: 1, ")
    assert 'unknown field "spec.x"' in kubectl.refused("create -f -", unknown)
    fischer = "apiVersion: wardle.example.com/v1alpha1\nkind: Fischer\nmetadata: {name: f}\n"
    kubectl("create -f -", fischer + "disallowedFlunders: [banned]\n")
    # Its own admission follows its own objects.
    bans = "this name may not be used"
    eventually(
        lambda: bans in kubectl.run("create", "--dry-run=server", "-f", "-", given=flunder("banned")).stderr, bans
    )
    kubectl("delete fischer f")


def test_version_two_of_openapi_tells_its_kinds_as_upstreams_server_tells_them(
    world: World, tmp_path: Path
) -> None:
    kubectl = world.kubectl

    def told(of: Kubectl) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(of("get --raw /openapi/v2"))
        return found

    def tells(of: Kubectl) -> bool:
        return any(GROUP in path for path in told(of)["paths"])

    eventually(lambda: tells(kubectl), "it is merged", pause_s=0.5)
    assert 'defaults to "Flunder" if reference is set' in kubectl("explain flunders.spec --output=plaintext-openapiv2")
    with original() as kubeconfig:
        theirs = Kubectl(str(kubeconfig), tmp_path)
        # It runs without a certificate by which the other server would believe it.
        theirs("create clusterrolebinding anybody --clusterrole=system:discovery --group=system:unauthenticated")
        with sample_apiserver(theirs, tmp_path):
            eventually(lambda: tells(theirs), "it is merged", pause_s=0.5)
            assert share(told(theirs)) == share(told(kubectl))


def share(document: dict[str, Any]) -> dict[str, Any]:
    """The paths and definitions of its group, and the names that were found for what they share with other groups."""
    return {
        part: {
            name: json.dumps(each, sort_keys=True)
            for name, each in document[part].items()
            if GROUP in name or "wardle" in name
        }
        for part in ("paths", "definitions")
    } | {"renamed": sorted(name for name in document["definitions"] if name[-3:-1] == "_v")}


def test_a_watch_tells_each_change(world: World) -> None:
    kubectl = world.kubectl
    kubectl("create -f -", flunder("seen"))
    shown = "jsonpath={.metadata.name}:{.spec.reference};"
    words = kubectl.command("get", "flunder", "seen", "--watch", "-o", shown)
    watching = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert watching.stdout is not None
    try:
        assert watching.stdout.read(len("seen:two;")) == "seen:two;"
        kubectl('patch flunder seen --type=merge -p {"spec":{"reference":"six"}}')
        assert watching.stdout.read(len("seen:six;")) == "seen:six;"
    finally:
        watching.terminate()
        watching.communicate()


def test_it_asks_this_server_who_somebody_is_and_what_they_may(world: World) -> None:
    """Asked by this server, which names the user, and directly, with a token that this server knows."""
    kubectl = world.kubectl
    kubectl("create serviceaccount singer")
    token = kubectl("create token singer").strip()
    home = Path(kubectl.kubeconfig).parent / "nobody"
    home.write_text("{}")
    directly = f"--kubeconfig={home} --server=https://localhost:{world.sample.port} --insecure-skip-tls-verify"
    user = "system:serviceaccount:default:singer"
    asks = f"get flunders --as={user}", f"get flunders {directly} --token={token}"
    for ask in asks:
        assert f'User "{user}" cannot list resource "flunders" in API group' in kubectl.refused(ask)
    assert "Unauthorized" in kubectl.refused(f"get flunders {directly} --token=unknown")
    kubectl("create role flunders --verb=list --resource=flunders.wardle.example.com")
    kubectl("create rolebinding flunders --role=flunders --serviceaccount=default:singer")
    for ask in asks:
        # It remembers refusals for some seconds.
        eventually(lambda ask=ask: kubectl.run(*ask.split()).returncode == 0, ask, pause_s=0.5)
    assert "cannot delete" in kubectl.refused(f"delete flunder one --as={user}")


def test_garbage_is_collected_from_either_server_to_the_other(world: World) -> None:
    kubectl = world.kubectl
    kubectl("create -f -", flunder("owner"))
    kubectl("create configmap owner")
    uids = [kubectl(f"get {kind} owner -o jsonpath={{.metadata.uid}}") for kind in ("flunder", "configmap")]
    owner = owned_by("Flunder", "wardle.example.com/v1alpha1", "owner", uids[0])
    kubectl("create -f -", f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: child{owner}}}\n")
    kubectl("create -f -", flunder("child", more=owned_by("ConfigMap", "v1", "owner", uids[1])))
    for kind, other in (("flunder", "configmap"), ("configmap", "flunder")):
        kubectl(f"delete {kind} owner")
        gone = f"the {other} goes with its owner"
        eventually(lambda other=other: kubectl.run("get", other, "child").returncode, gone, pause_s=0.5)


def test_a_namespace_goes_when_its_objects_have_gone(world: World) -> None:
    kubectl = world.kubectl

    def remaining() -> str:
        return kubectl('get namespace doomed -o jsonpath={.status.conditions[?(@.status=="True")].message}')

    kubectl("create namespace doomed")
    kubectl("create -f -", flunder("kept", "doomed", ", finalizers: [example.com/f]"))
    kubectl("delete namespace doomed --wait=false")
    told = "flunders.wardle.example.com has 1 resource instances"
    eventually(lambda: told in remaining(), told, pause_s=0.5)
    kubectl('patch flunder kept -n doomed --type=merge -p {"metadata":{"finalizers":null}}')
    kubectl("wait --for=delete namespace/doomed --timeout=60s")


def test_while_it_is_down_only_its_own_kinds_and_namespaces_that_end_wait(world: World) -> None:
    kubectl = world.kubectl
    kubectl("create namespace waits")
    world.sample.end()
    kubectl(f"wait --for=condition=Available=false apiservice/{API_SERVICE} --timeout=60s")
    assert "the server is currently unable to handle the request" in kubectl.refused("get flunders")
    kubectl("create configmap beside")
    kubectl("delete namespace waits --wait=false")
    failure = "--for=condition=NamespaceDeletionDiscoveryFailure namespace/waits --timeout=60s"
    kubectl(f"wait {failure}")
    world.sample.start()
    kubectl(f"wait --for=condition=Available apiservice/{API_SERVICE} --timeout=60s")
    kubectl("wait --for=delete namespace/waits --timeout=90s")
    kubectl("get flunders")

"""What a user does through the door: apply, list, wait, kubectl; what is said where that fails."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, get_args

import pytest

from minikube_py import Cluster, ClusterError, StatusError, WaitTimeout
from minikube_py.api.registry import REGISTRY
from minikube_py.cluster.wait_forms import OfMany

pytestmark = pytest.mark.real_time("real sockets and threads")
RC = """
apiVersion: v1
kind: ReplicationController
metadata: {name: web, labels: {app: web, tier: front}}
spec:
  replicas: 3
  selector: {app: web}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: c, image: nginx}]}
"""


def config_map(name: str, **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def test_apply_wait_and_list() -> None:
    with Cluster(nodes=2) as cluster:
        (made,) = cluster.apply(RC)
        assert made["metadata"]["uid"]
        found = cluster.wait("rc/web", ready=3)
        assert found["status"]["readyReplicas"] == 3
        pods = cluster.objects("pods", selector="app=web")
        assert {each["kind"] for each in pods} == {"Pod"} and len(pods) == 3
        assert cluster.objects("po", namespace="") == cluster.objects("Pod")
        assert len(cluster.wait("pods", ready=3, selector="app=web")) == 3
        name = pods[0]["metadata"]["name"]
        assert cluster.wait(f"pod/{name}", phase="Running") == cluster.wait(f"pods/{name}", condition="Ready")
        cluster.delete("rc/web")
        assert cluster.wait("rc/web", gone=True) == []


async def test_the_same_awaited() -> None:
    async with Cluster(nodes=2) as cluster:
        await cluster.apply(RC)
        await cluster.wait("rc/web", ready=3)
        assert len(await cluster.objects("pods")) == 3
        assert (await cluster.get("rc/web"))["kind"] == "ReplicationController"
        await cluster.delete("rc/web")
        await cluster.wait("rc/web", gone=True)


def test_applied_again_it_changes_what_the_manifest_says_and_takes_away_what_it_said(tmp_path: Path) -> None:
    with Cluster(nodes=0) as cluster:
        cluster.apply([config_map("a", x="1", y="1"), config_map("b")])
        cluster.request(
            "PATCH", "/api/v1/namespaces/default/configmaps/a", b'{"data":{"mine":"1"}}',
            content_type="application/merge-patch+json",
        )  # fmt: skip
        cluster.apply(config_map("a", x="2"))
        assert cluster.get("cm/a")["data"] == {"x": "2", "mine": "1"}
        (tmp_path / "1.yaml").write_text(RC)
        (tmp_path / "2.json").write_text('{"apiVersion":"v1","kind":"List","items":[]}')
        assert [each["kind"] for each in cluster.apply(tmp_path)] == ["ReplicationController"]
        assert len(cluster.apply(str(tmp_path / "1.yaml"))) == 1


def test_a_view_of_a_namespace() -> None:
    with Cluster(nodes=0) as cluster:
        cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "mine"}})
        view = cluster.in_namespace("mine")
        view.apply(config_map("a"))
        assert [each["metadata"]["name"] for each in view.objects("cm")].count("a") == 1
        assert "namespace" in view.kubeconfig_path.read_text()
        with pytest.raises(StatusError, match='configmaps "a" not found'):
            cluster.get("cm/a")


def test_a_wait_that_ends_in_vain_says_what_was_seen_last() -> None:
    with Cluster(nodes=0) as cluster:
        cluster.apply(RC)
        cluster.wait("events", until=lambda event: event["reason"] in ("FailedScheduling", "SuccessfulCreate"))
        cluster.wait("pods", until=lambda pod: bool(pod.get("status", {}).get("conditions")))
        with pytest.raises(WaitTimeout) as caught:
            cluster.wait("rc/web", ready=3, timeout_s=0)
        text = str(caught.value)
        assert text.startswith("rc/web in default: not ready=3 within 0 s\n  last seen at revision ")
        assert "no nodes available to schedule pods" in text
        assert "event Normal SuccessfulCreate ReplicationController/web" in text
        with pytest.raises(TimeoutError, match="it was never there"):
            cluster.wait("cm/none", timeout_s=0)
        with pytest.raises(WaitTimeout, match="until lambda"):
            cluster.wait("rc/web", until=lambda rc: rc["spec"]["replicas"] == 9, timeout_s=0)


@pytest.mark.parametrize(
    ("manifest", "text"),
    [
        ("a: [", "is not YAML"),
        ("", "holds no object"),
        ("hello\nworld\n", "not an object with apiVersion and kind"),
        ({"kind": "Pod"}, "not an object with apiVersion and kind"),
        ({"apiVersion": "v9", "kind": "Pod"}, "no kind 'Pod' in version 'v9' is served"),
        ({"apiVersion": "v1", "kind": "Pod"}, "without metadata.name"),
    ],
)  # fmt: skip
def test_what_cannot_be_applied_is_refused(manifest: Any, text: str) -> None:
    with Cluster(nodes=0) as cluster, pytest.raises(ClusterError, match=text):
        cluster.apply(manifest)


def test_applied_is_what_kubectl_would_apply() -> None:
    """How scalars are read: tests/conformance/test_manifests_vs_kubectl.py."""
    with Cluster(nodes=0) as cluster:
        cluster.apply('{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}' * 2)
        (made,) = cluster.apply("""
            apiVersion: v1
            kind: ConfigMap
            metadata: {name: b, annotations: {since: 2020-01-01}}
            data: {8080: "12:30:45", gone: null}
            """)
        assert made["data"] == {"8080": "12:30:45"} and made["metadata"]["annotations"]["since"] == "2020-01-01"
        for number in range(2):
            unknown = {**config_map(f"c{number}"), "dat": {"x": "1"}}
            with pytest.raises(StatusError, match="dat: field not declared in schema"):
                cluster.apply(unknown)
            # The second time it is a patch.
            cluster.apply(config_map("c1"))


def test_names_that_mean_nothing_are_refused() -> None:
    with Cluster(nodes=0) as cluster:
        with pytest.raises(ClusterError, match="no resource 'frogs' is served"):
            cluster.objects("frogs")
        with pytest.raises(ClusterError, match="name is KIND/NAME, as rc/web, not 'web'"):
            cluster.get("web")
        with pytest.raises(StatusError) as refused:
            cluster.apply({**config_map("A")})
        assert refused.value.code == 422


@pytest.mark.kubectl
@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not on the PATH: any of 1.27 to 1.33")
def test_kubectl() -> None:
    with Cluster(nodes=2) as cluster:
        assert "created" in cluster.kubectl("apply", "-f", "-", input=RC)
        cluster.wait("rc/web", ready=3)
        cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "mine"}})
        assert cluster.in_namespace("mine").kubectl("get", "pods") == ""
        with pytest.raises(ClusterError, match=r'kubectl get rc none failed \(1\).*"none" not found'):
            cluster.kubectl("get", "rc", "none")


def test_type_checkers_know_the_names_of_all_built_in_kinds() -> None:
    listed = [each for each in REGISTRY.kinds if "list" in each.verbs]
    assert set(get_args(OfMany)) == {name for each in listed for name in (each.plural, *each.short_names)}

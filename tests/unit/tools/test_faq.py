"""Frequently asked questions: each answer links a page that confirms it, and its commands exist."""

from __future__ import annotations

import json
import re
from ipaddress import ip_network
from pathlib import Path

import pytest

from minikube_py import Cluster
from minikube_py.apiserver import admission
from minikube_py.apiserver.addresses import DEFAULT_RANGE
from minikube_py.cli import main
from minikube_py.cluster import pytest_plugin
from minikube_py.controllers.base import ControllerConfig
from minikube_py.kubelet.config import KubeletConfig, NodeSpec

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "faq.md"
SECTIONS = dict(
    part.split("\n", 1) for part in re.split(r"^## ", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
)
FOUND = {
    "Do containers": ("how-to/inside-a-pod.md", "Containers do not really run"),
    "probes": ("reference/what-works.md", "No probe is run"),
    "version": ("reference/what-works.md", "Kubernetes 1.36"),
    "different": ("performance.md", "envtest"),
    "operator": ("tutorials/testing-an-operator.md", "operator"),
    "define nodes": ("reference/cluster.md", "NodeSpec"),
    "node fail": ("reference/cluster.md", ".down(seconds)"),
    "add and remove": ("reference/flags.md", "`--claim-share`"),
    "another machine": ("compose.md", "--host 0.0.0.0"),
    "Who may": ("reference/what-works.md", "create token"),
    "load balancers": ("reference/what-works.md", "nobody enforces a NetworkPolicy"),
    "Which addresses": ("reference/what-works.md", "ServiceCIDR"),
    "Is there a network": ("how-to/inside-a-pod.md", "port-forward"),
    "back it up": ("reference/commands.md", "store snapshot save FILE"),
    "trust": ("how-to/virtual-time.md", "digest"),
    "volumes": ("reference/what-works.md", "simulated.minikube-py"),
    "Pending": ("reference/commands.md", "what would have to change"),
    "How many": ("performance.md", "405 MB"),
    "in CI": ("reference/pytest.md", "session (of each xdist worker)"),
    "API fail": ("reference/cluster.md", "fail_next(on, *, times=1)"),
    "container crash": ("reference/cluster.md", "end_container"),
    "real kube-scheduler": ("how-to/a-real-etcd.md", "--etcd-servers"),
    "metrics and logs": ("reference/metrics.md", "/metrics"),
    "default node": ("how-to/live-page.md", "whether to group by zone"),
    "older data folder": ("adr/0011-apply-is-total.md", "A release that changes a command keeps the old rules"),
    "Helm": ("how-to/virtual-time.md", "minikube-py.io/run-seconds"),
    "log more": ("reference/pytest.md", "the components' log lines during the test"),
    "member dies": ("reliability.md", "An acknowledged write is never lost"),
    "drain": ("reference/what-works.md", "evictions of `kubectl drain`"),
    "admission webhooks": ("reference/what-works.md", "--enable-admission-plugins=ServiceAccount"),
}
"""A word of each question, and the place where a reader finds the answer."""


@pytest.mark.parametrize("word", FOUND)
def test_the_place_of_the_answer_still_has_it(word: str) -> None:
    page, phrase = FOUND[word]
    (answer,) = (text for question, text in SECTIONS.items() if word in question)
    assert re.search(rf"]\({re.escape(page)}(#[a-z-]+)?\)", answer)
    assert phrase in (PAGE.parent / page).read_text(encoding="utf-8")


def test_every_question_has_a_place() -> None:
    assert len(FOUND) == len(SECTIONS) >= 10


@pytest.mark.parametrize("command", sorted(set(re.findall(r"minikube-py ([a-z-]+)", PAGE.read_text(encoding="utf-8")))))
def test_its_flags_exist(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    lines = re.findall(rf"minikube-py {command}\b([^`\n]*)", PAGE.read_text(encoding="utf-8"))
    assert main.main([command, "--help"]) == 0
    text = capsys.readouterr().out
    for flag in {flag for line in lines for flag in re.findall(r"--[a-z-]+", line)}:
        assert flag in text, (command, flag)


def test_every_admission_plugin_is_listed() -> None:
    page = (ROOT / "docs/reference/what-works.md").read_text(encoding="utf-8")
    (listed,) = re.findall(r"^(NamespaceLifecycle,.*?)\n\n", page, re.MULTILINE | re.DOTALL)
    assert listed.replace("\n", " ").split(", ") == [
        name for name in admission.ORDER if name not in admission.OFF
    ]


def test_its_storage_class_provisions_volumes() -> None:
    (storage_class,) = re.findall(r"```yaml\n(.*?)```", SECTIONS["Do StatefulSets and volumes work?"], re.DOTALL)
    claim = {
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }  # fmt: skip
    with Cluster(clock="virtual", seed=1) as cluster:
        cluster.apply(storage_class)
        cluster.apply(claim)
        assert cluster.wait("persistentvolumeclaim/data", phase="Bound")["spec"]["storageClassName"] == "simulated"


def test_probes_and_init_containers_do_nothing() -> None:
    fails = {"exec": {"command": ["false"]}}
    first = [
        {"name": "first", "image": "a", "command": ["false"]},
        {"name": "beside", "image": "a", "restartPolicy": "Always", "startupProbe": fails},
    ]
    last = {"name": "last", "image": "a", "readinessProbe": fails, "livenessProbe": fails, "startupProbe": fails}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}}
    with Cluster(clock="virtual", seed=1) as cluster:
        cluster.apply(pod | {"spec": {"initContainers": first, "containers": [last]}})
        cluster.wait("pod/web", ready=1)
        cluster.advance(minutes=10)
        status = cluster.get("pod/web")["status"]
    ended, beside = status["initContainerStatuses"]
    assert ended["state"]["terminated"]["exitCode"] == 0 and beside["state"]["running"]
    assert status["containerStatuses"][0]["ready"] and status["containerStatuses"][0]["restartCount"] == 0


def test_a_node_that_is_created_is_played_and_its_pods_end_with_it() -> None:
    (node,) = re.findall(r"```yaml\n(.*?)```", SECTIONS["How do I add and remove nodes while it runs?"], re.DOTALL)
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}}
    with Cluster(nodes=1, clock="virtual", seed=1) as cluster:
        cluster.apply(node)
        cluster.wait("node/big-0", condition="Ready")
        cluster.apply(pod | {"spec": {"nodeSelector": {"pool": "big"}, "containers": [{"name": "c", "image": "a"}]}})
        cluster.wait("pod/web", ready=1)
        cluster.delete("node/big-0")
        cluster.advance(seconds=80)
        assert not cluster.objects("pods") and [each["metadata"]["name"] for each in cluster.objects("nodes")] == [
            "node-0"
        ]


def test_nobody_gives_a_load_balancer_its_address_but_a_client() -> None:
    (patch,) = re.findall(r"-p '(.*?)'", SECTIONS["Do load balancers, Ingress and NetworkPolicy work?"])
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}}
    with Cluster(clock="virtual", seed=1) as cluster:
        cluster.apply(service | {"spec": {"type": "LoadBalancer", "ports": [{"port": 80}]}})
        cluster.advance(minutes=10)
        assert cluster.get("service/web")["status"] == {"loadBalancer": {}}
        path = "/api/v1/namespaces/default/services/web/status"
        cluster.request("PATCH", path, body=patch.encode(), content_type="application/merge-patch+json")
        (given,) = cluster.get("service/web")["status"]["loadBalancer"]["ingress"]
        assert given["ip"] == "192.0.2.10"


def test_its_ranges_of_addresses_are_those_of_the_code() -> None:
    answer, kubelet = SECTIONS["Which addresses do pods, Services and nodes get?"], KubeletConfig()
    assert kubelet.service_cidr == DEFAULT_RANGE
    for each in (kubelet.pod_cidr, kubelet.node_cidr, DEFAULT_RANGE):
        assert each in answer
    more = {"apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR", "metadata": {"name": "more"}}
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}}
    with Cluster(nodes=1, clock="virtual", seed=1) as cluster:
        cluster.apply(more | {"spec": {"cidrs": ["192.168.7.0/24"]}})
        cluster.apply(service | {"spec": {"clusterIP": "192.168.7.9", "ports": [{"port": 80}]}})
        (node,) = cluster.objects("nodes")
    block, network = ip_network(node["spec"]["podCIDR"]), ip_network(kubelet.pod_cidr)
    assert block.prefixlen == 24 and block.network_address in network
    assert not block.overlaps(ip_network(DEFAULT_RANGE))


def test_its_shapes_are_nodes() -> None:
    (text,) = re.findall(r"```json\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert [NodeSpec(**each).labels for each in json.loads(text)] == [{"pool": "gpu"}]


def test_its_default_node_is_one() -> None:
    answer = SECTIONS["What does a default node have, and how do nodes get zones?"]
    with Cluster(nodes=1, clock="virtual", seed=1) as cluster:
        (node,) = cluster.objects("nodes")
    capacity, labels = node["status"]["capacity"], node["metadata"]["labels"]
    assert capacity.keys() == {"cpu", "memory", "ephemeral-storage", "pods"}
    assert "{cpu} CPUs, {memory} of memory, {ephemeral-storage} of ephemeral storage".format(**capacity) in answer
    assert f"room for {capacity['pods']} pods" in answer
    assert {each.rpartition("/")[2] for each in labels} == {"hostname", "os", "arch"}
    assert labels["kubernetes.io/os"] in answer and labels["kubernetes.io/arch"] in answer


@pytest.mark.parametrize("flag", ("-v=4", "--v=4", "--verbose", "--log-level=debug"))
def test_no_command_has_a_flag_for_verbosity(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("up", "scheduler", "controllers", "kubelet", "apiserver", "store"):
        assert main.main([command, flag]) == 2, command
    capsys.readouterr()


def test_the_logger_of_all_components_is_the_one_that_the_plugin_uses() -> None:
    assert f'logging.getLogger("{pytest_plugin.LOGGER}")' in SECTIONS["How do I make it log more, or less?"]


@pytest.mark.parametrize("page", ("faq.md", "how-to/virtual-time.md", "notebooks/a-cluster-in-a-notebook.ipynb"))
def test_pages_agree_with_the_code_when_a_node_counts_as_lost(page: str) -> None:
    """A lease is missed at the next round of the node controller after its grace period."""
    config = ControllerConfig()
    last_s = config.node_monitor_grace_s + config.node_monitor_period_s
    said = re.findall(
        r"(\d+) to (\d+) s(?:econds)? after (?:its|their) last heartbeat", (PAGE.parent / page).read_text("utf-8")
    )
    assert said == [(f"{config.node_monitor_grace_s:.0f}", f"{last_s:.0f}")]

"""The same requests, headers included, to a cluster in real and to one in virtual time: the same answers.

The same workload in both: the decisions that do not depend on timing are the same."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from typing import Any

import orjson
import pytest

from minikube_py import Cluster

pytestmark = pytest.mark.real_time("a cluster in real time")
SECRETS = "/api/v1/namespaces/default/secrets"
UNEQUAL = re.compile(
    r'"?(uid|resourceVersion|creationTimestamp|time|continue)"?: ?"?[^",}\n]*"?|"[0-9]+s"'
    r"|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
)
HEADERS = (
    "content-type",
    "cache-control",
    "warning",
    "x-content-type-options",
    "retry-after",
    "allow",
    "www-authenticate",
)
USERS = [None, "nobody", "system:serviceaccount:default:default", "system:node:node-0", ""]
AGENTS = ["my-operator/1.0 (linux)", "kubectl/v1.30", "curl/8.0", "", "a b/c", "x" * 200]
ACCEPTS = [
    "application/json", "*/*", "", "application/yaml", "image/png", "text/html",
    "application/json;as=Table;v=v1;g=meta.k8s.io", "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
]  # fmt: skip
QUERIES = [
    ("limit", "1"), ("resourceVersion", "x"), ("dryRun", "All"), ("dryRun", "x"), ("force", "true"),
    ("fieldValidation", "Strict"), ("labelSelector", "a in ("),
]  # fmt: skip
TYPES = [
    "application/json", "application/merge-patch+json", "application/strategic-merge-patch+json",
    "application/json-patch+json", "application/apply-patch+yaml", "text/plain", "application/yaml",
]  # fmt: skip


def drawn(rng: random.Random) -> dict[str, Any]:
    method = rng.choice(["GET", "GET", "POST", "PUT", "PATCH", "PATCH", "DELETE", "HEAD", "OPTIONS"])
    name = rng.choice(["", "/a", "/b", "/a/none"])
    path = rng.choice(
        [SECRETS + name] * 4 + ["/api/v1/nodes", "/apis", "/version", "/none", "/api/v1/namespaces/default"]
    )
    headers = [("Accept", rng.choice(ACCEPTS)), ("User-Agent", rng.choice(AGENTS))]
    if (user := rng.choice(USERS + [None] * 6)) is not None:
        headers.append(("Impersonate-User", user))
    if rng.random() < 0.1:
        headers += [
            ("Impersonate-Group", "system:masters"),
            ("Impersonate-Group", "b"),
            ("Impersonate-Extra-a%2Fb", "c"),
        ]
    if rng.random() < 0.15:
        headers.append(("Authorization", rng.choice(["Bearer wrong", "Basic eA==", "Bearer", ""])))
    query = [("fieldManager", "me")] * (rng.random() < 0.3) + [("pretty", rng.choice(["1", "0", "x"]))] * (
        rng.random() < 0.2
    )
    query += rng.sample(QUERIES, rng.choice([0, 0, 0, 1]))
    content = None
    if method in ("POST", "PUT", "PATCH"):
        kind = rng.choice(TYPES)
        headers.append(("Content-Type", kind))
        obj = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": rng.choice("ab")},
               "stringData": {rng.choice("xyz"): str(rng.randrange(9))}}  # fmt: skip
        content = orjson.dumps(
            [{"op": "add", "path": "/data", "value": {"q": "MQ=="}}] if "json-patch" in kind else obj
        )
        content = content[: rng.choice([len(content)] * 8 + [7])]
    return {"method": method, "url": path, "params": query, "headers": headers, "content": content}


def answer(http: Any, asked: dict[str, Any]) -> Any:
    found = http.request(**asked)
    shown = UNEQUAL.sub("", found.text) if found.status_code != 200 or "/api" in asked["url"] else ""
    if asked["url"] == "/api/v1/nodes":
        # Their states depend on time.
        shown = ""
    return found.status_code, {name: found.headers.get(name) for name in HEADERS}, shown


def test_a_request_is_answered_alike_in_both_times() -> None:
    rng = random.Random("both times")
    with Cluster(nodes=1) as real, Cluster(nodes=1, clock="virtual") as virtual:
        one, other = real.client.httpx(), virtual.client.httpx()
        seen = set()
        for number in range(250):
            asked = drawn(rng)
            first, second = answer(one, asked), answer(other, asked)
            assert first == second, (number, asked)
            seen.add(first[0])
        assert {200, 201, 400, 401, 403, 404, 405, 406, 415} <= seen, seen
        for manifest in (
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "by-door"}, "data": {"a": "b"}},
        ):
            made = [UNEQUAL.sub("", orjson.dumps(each.apply(manifest)).decode()) for each in (real, virtual)]
            assert made[0] == made[1]


def pod(name: str, **spec: Any) -> dict[str, Any]:
    containers = [{"name": "c", "image": "i", "resources": {"requests": {"cpu": spec.pop("cpu", "100m")}}}]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": containers, **spec}}


def is_refused(pod: dict[str, Any]) -> bool:
    return any(each.get("reason") == "Unschedulable" for each in pod["status"].get("conditions") or ())


def decisions(cluster: Cluster, rest: Callable[[], object]) -> Any:
    """Where each pod goes that has only one place, which are refused and why, what is counted and what is left."""
    for number in range(3):
        cluster.apply(pod(f"on-{number}", nodeSelector={"kubernetes.io/hostname": f"node-{number}"}))
    cluster.apply(pod("too-large", cpu="1000"))
    cluster.apply(pod("nowhere", nodeSelector={"no": "such"}))
    cluster.apply({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {"replicas": 6, "selector": {"matchLabels": {"app": "web"}}, "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "c", "image": "i"}], "topologySpreadConstraints": [{
                "maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {"matchLabels": {"app": "web"}}}]}}},
    })  # fmt: skip
    cluster.apply({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "work"}, "spec": {
        "completions": 3, "parallelism": 2, "template": {"spec": {"restartPolicy": "Never", "containers": [
            {"name": "c", "image": "i"}]}}}})  # fmt: skip
    cluster.wait("deploy/web", ready=6)
    cluster.wait("job/work", condition="Complete")
    for name in ("too-large", "nowhere"):
        cluster.wait(f"pod/{name}", until=is_refused)
    rest()
    pods = cluster.objects("pods")
    web = [each["spec"]["nodeName"] for each in pods if (each["metadata"].get("labels") or {}).get("app") == "web"]
    why = {
        each["metadata"]["name"]: [
            one["message"] for one in each["status"]["conditions"] if one["type"] == "PodScheduled"
        ]
        for each in pods if not each["spec"].get("nodeName")
    }  # fmt: skip
    job = cluster.get("job/work")["status"]
    return (
        {name: where for each in pods for name, where in [(each["metadata"]["name"], each["spec"].get("nodeName"))]
         if name.startswith("on-")},
        sorted(map(web.count, set(web))), why, job["succeeded"], job.get("failed"), len(pods),
        {each["metadata"]["name"]: each["metadata"]["generation"] for each in cluster.objects("deployments")},
        sorted({each["reason"] for each in cluster.objects("events")} - {"Scheduled", "Started", "Pulled", "Created"}),
    )  # fmt: skip


def test_what_does_not_depend_on_timing_is_decided_alike_in_both_times() -> None:
    with Cluster(nodes=3) as real, Cluster(nodes=3, clock="virtual") as virtual:
        found = decisions(real, lambda: None), decisions(virtual, lambda: virtual.advance(1))
    assert found[0] == found[1]
    assert found[0][0] == {f"on-{number}": f"node-{number}" for number in range(3)}
    assert found[0][1] == [2, 2, 2] and len(found[0][2]) == 2

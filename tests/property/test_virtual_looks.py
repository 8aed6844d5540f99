"""Reads of every kind between two advances leave the history, the time, all generators and the log as they were.

What is read is drawn, parameters included; a second cluster of the same seed is advanced alike, and nobody reads there.
"""

from __future__ import annotations

import gc
import random
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from minikube_py import Cluster, ClusterError
from minikube_py.cluster.input_log import InputLog

pytestmark = pytest.mark.real_time("plain functions drive virtual time")
SPEAKS = ["sh", "-c", "while true; do echo on; sleep 3; done"]
RC = {
    "apiVersion": "v1", "kind": "ReplicationController", "metadata": {"name": "web"},
    "spec": {"replicas": 2, "selector": {"app": "web"}, "template": {
        "metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [{"name": "c", "image": "i", "command": SPEAKS}]}}},
}  # fmt: skip
PODS = "/api/v1/namespaces/default/pods"
PLACES = [
    "/api/v1/pods", PODS, f"{PODS}/none", f"{PODS}/POD", f"{PODS}/POD/log", f"{PODS}/POD/status", f"{PODS}/POD/exec",
    "/api/v1/nodes", "/api/v1/nodes/node-0", "/api/v1/nodes/node-0/proxy/stats/summary", "/api/v1/events",
    "/api/v1/namespaces/default/services/kubernetes/proxy/", "/api/v1/namespaces/default/services/none/proxy/",
    "/apis/coordination.k8s.io/v1/leases", "/apis/apps/v1/deployments",
    "/api/v1/watch/pods", "/api/v1/componentstatuses",
    "/api", "/apis", "/apis/apps/v1", "/openapi/v2", "/openapi/v3", "/metrics", "/readyz", "/livez/etcd", "/version",
    "/none", "/api/v1/nones", "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers",
]  # fmt: skip
NUMBERS = ["", "0", "1", "5", "99999", "18446744073709551616", "-1", "x", "1.5", " ", "٣"]
TRUTHS = ["", "true", "1", "false", "0", "T", "maybe"]
PARAMETERS: dict[str, list[str]] = {
    "resourceVersion": NUMBERS, "resourceVersionMatch": ["", "Exact", "NotOlderThan", "exact"], "limit": NUMBERS,
    "continue": ["", "x", "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6NX0"], "watch": TRUTHS, "timeoutSeconds": NUMBERS,
    "sendInitialEvents": TRUTHS, "allowWatchBookmarks": TRUTHS,
    "labelSelector": ["app=web", "a in (b", "!x", "=="],
    "fieldSelector": ["spec.nodeName=node-0", "status.phase!=Running", "x=y", "metadata.name=POD"], "pretty": TRUTHS,
    "follow": TRUTHS, "tailLines": NUMBERS, "sinceSeconds": NUMBERS, "previous": TRUTHS, "container": ["c", "none"],
    "command": ["date"], "stdout": TRUTHS, "verbose": [""], "exclude": ["etcd"], "base64": ["YQ=="], "dryRun": ["All"],
}  # fmt: skip
ACCEPTS = [
    "application/json", "", "*/*", "application/yaml", "application/vnd.kubernetes.protobuf", "text/plain",
    "application/json;as=Table;v=v1;g=meta.k8s.io", "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
    "application/json;stream=watch", "image/png",
]  # fmt: skip
REVIEWS: list[tuple[str, Any]] = [
    ("authorization.k8s.io/v1/selfsubjectaccessreviews", {"resourceAttributes": {"verb": "get", "resource": "pods"}}),
    ("authorization.k8s.io/v1/selfsubjectrulesreviews", {"namespace": "default"}),
    (
        "authorization.k8s.io/v1/subjectaccessreviews",
        {"user": "a", "nonResourceAttributes": {"path": "/", "verb": "get"}},
    ),
    ("authorization.k8s.io/v1/namespaces/default/localsubjectaccessreviews", {}),
    ("authentication.k8s.io/v1/selfsubjectreviews", {}),
    ("authentication.k8s.io/v1/tokenreviews", {"token": "a.b.c"}),
]
DRY: list[tuple[str, str, Any]] = [
    ("POST", "/api/v1/namespaces/default/configmaps", {"metadata": {"generateName": "a-"}}),
    ("POST", PODS, {"metadata": {"name": "dry"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}),
    (
        "POST",
        PODS,
        {"metadata": {"name": "dry"}, "spec": {"serviceAccountName": "none", "containers": [{"name": "c"}]}},
    ),
    ("POST", "/api/v1/namespaces/default/services", {"metadata": {"name": "dry"}, "spec": {"ports": [{"port": 1}]}}),
    ("POST", "/api/v1/namespaces", {"metadata": {"name": "dry"}}),
    ("PUT", f"{PODS}/POD", {"metadata": {"name": "POD"}}),
    ("PATCH", "/api/v1/namespaces/default/replicationcontrollers/web", {"spec": {"replicas": 9}}),
    ("DELETE", f"{PODS}/POD", None),
    ("DELETE", PODS, None),
    ("POST", f"{PODS}/POD/eviction", {"metadata": {"name": "POD"}}),
]
parameters = st.lists(
    st.sampled_from(sorted(PARAMETERS)).flatmap(
        lambda name: st.tuples(st.just(name), st.sampled_from(PARAMETERS[name]))
    ),
    max_size=4,
)
headers = st.fixed_dictionaries(
    {"accept": st.sampled_from(ACCEPTS)},
    optional={
        "impersonate-user": st.sampled_from(["nobody", "system:serviceaccount:default:default", ""]),
        "authorization": st.sampled_from(["Bearer wrong", "Bearer a.b.c", "Basic eA==", ""]),
        "user-agent": st.sampled_from(["kubectl/v1.30", "curl/8", ""]),
    },
)
reads = st.tuples(
    st.sampled_from(["GET", "GET", "GET", "HEAD"]), st.sampled_from(PLACES), parameters, headers, st.none()
)
reviews = st.sampled_from(REVIEWS).flatmap(
    lambda each: st.tuples(
        st.just("POST"), st.just(f"/apis/{each[0]}"), parameters, headers, st.just({"spec": each[1]})
    )
)
dry = st.sampled_from(DRY).flatmap(
    lambda each: st.tuples(
        st.just(each[0]), st.just(each[1]), parameters.map(lambda found: [*found, ("dryRun", "All")]), headers,
        st.just(each[2]),
    )
)  # fmt: skip
looks = st.lists(st.lists(st.one_of(reads, reads, reviews, dry), max_size=5), min_size=3, max_size=3)


def generators() -> list[Any]:
    """Of all parts; the module's own, and those of tests, are nobody's here."""
    return [each for each in gc.get_objects() if type(each) is random.Random and each is not random._inst]  # type: ignore[attr-defined]


def look(cluster: Cluster, http: Any, asked: Any) -> None:
    method, path, query, sent, body = asked
    pod = cluster.objects("pods")[0]["metadata"]["name"]
    filled = [(name, value.replace("POD", pod)) for name, value in query]
    content = None if body is None else orjson.dumps(body).replace(b"POD", pod.encode())
    if method == "PATCH":
        sent = {**sent, "content-type": "application/merge-patch+json"}
    answer = http.request(method, path.replace("POD", pod), params=filled, headers=sent, content=content)
    assert 200 <= answer.status_code < 505, answer.text
    try:
        cluster.request(
            method, path.replace("POD", pod), content, dict(filled), sent.get("content-type", "application/json")
        )
    except ClusterError as error:
        assert "without a watch" in str(error)


def history(drawn: list[list[Any]], log: Path | None) -> tuple[Any, ...]:
    with Cluster(nodes=2, clock="virtual", seed=3) as cluster:
        cluster.apply(RC)
        cluster.wait("rc/web", ready=2)
        http = cluster.client.httpx()
        parts = generators() if log is not None else []
        for number, each in enumerate(drawn):
            before = [(one, one.getstate()) for one in parts]
            now_s, digest = cluster.now_s, cluster.digest
            own = cluster._engine._rng  # type: ignore[union-attr]
            beside = cluster._engine.virtual._time.beside._rng  # type: ignore[union-attr]
            for asked in each if log is not None else ():
                look(cluster, http, asked)
            assert (cluster.now_s, cluster.digest) == (now_s, digest)
            changed = [one for one, state in before if one.getstate() != state and one not in (own, beside)]
            assert not changed
            cluster.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"c{number}"}})
            cluster.advance(40)
        if log is not None:
            cluster.save_log(log)
        virtual = cluster._engine.virtual  # type: ignore[union-attr]
        return cluster.digest, virtual.steps, cluster.now_s, cluster.inputs


@settings(
    max_examples=8,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(looks)
def test_whatever_is_read_the_history_is_that_of_nobody_reading(tmp_path: Path, drawn: list[list[Any]]) -> None:
    quiet = history([[], [], []], None)
    log = tmp_path / "log"
    assert history(drawn, log) == quiet
    engine = InputLog.read(log).start()
    try:
        assert InputLog.read(log).play(engine) and engine.virtual.digest == quiet[0]
    finally:
        engine.stop(quietly=True)

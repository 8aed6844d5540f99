"""Pods and the accounts that they run as: what the plugin ServiceAccount adds to them, and whom it refuses."""

from __future__ import annotations

import copy
import itertools
import random
from collections.abc import Iterator
from typing import Any

from asking import Ask

Json = dict[str, Any]
NAMESPACE = "accounts"
IN = f"/api/v1/namespaces/{NAMESPACE}"
_TOKEN = "/var/run/secrets/kubernetes.io/serviceaccount"
_ACCOUNTS: dict[str, Json] = {
    "default": {}, "silent": {"automountServiceAccountToken": False}, "loud": {"automountServiceAccountToken": True}, "puller": {"imagePullSecrets": [{"name": "pull"}, {"name": "more"}, {}]},
    "strict": {"metadata": {"annotations": {"kubernetes.io/enforce-mountable-secrets": "true"}}, "secrets": [{"name": "mine"}], "imagePullSecrets": [{"name": "pull"}]},
    "lenient": {"metadata": {"annotations": {"kubernetes.io/enforce-mountable-secrets": "no"}}}, "odd": {"metadata": {"annotations": {"kubernetes.io/enforce-mountable-secrets": "T"}}},
}
_NAMES = (None, "", "default", "silent", "loud", "puller", "strict", "lenient", "odd", "absent", "A b")
_VOLUMES: tuple[Json, ...] = (
    {"secret": {"secretName": "mine"}}, {"secret": {"secretName": "other"}}, {"emptyDir": {}}, {"projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}},
    {"projected": {"sources": [{"secret": {"name": "other"}}]}}, {"configMap": {"name": "c"}}, {"azureFile": {"secretName": "s", "shareName": "x"}},
)
_ENV: tuple[Json, ...] = (
    {"env": [{"name": "E", "valueFrom": {"secretKeyRef": {"name": "mine", "key": "k"}}}]}, {"env": [{"name": "E", "valueFrom": {"secretKeyRef": {"name": "other", "key": "k"}}}]},
    {"envFrom": [{"secretRef": {"name": "other"}}]}, {"envFrom": [{"secretRef": {"name": "mine"}}]}, {"env": [{"name": "E", "value": "x"}]}, {},
)
_MOUNTS: tuple[Json, ...] = ({}, {"volumeMounts": [{"name": "v0", "mountPath": "/data"}]}, {"volumeMounts": [{"name": "v0", "mountPath": _TOKEN}]})


def setup() -> Iterator[Ask]:
    yield Ask("setup", "POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    for name, more in _ACCOUNTS.items():
        metadata = {**more.get("metadata", {}), "name": name}
        yield Ask("setup", "POST", f"{IN}/serviceaccounts", {**more, "metadata": metadata})


def known() -> Iterator[Ask]:
    """What is answered once admission knows the accounts."""
    for name in _ACCOUNTS:
        yield Ask("known", "POST", f"{IN}/pods?dryRun=All", _pod("known", {"serviceAccountName": name, "containers": [{"name": "c", "image": "i"}]}))


def _pod(name: str, spec: Json, **metadata: Any) -> Json:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, **metadata}, "spec": spec}


def _container(rng: random.Random, name: str) -> Json:
    return copy.deepcopy({"name": name, "image": "i", **rng.choice(_ENV), **rng.choice(_MOUNTS)})


def drawn(seed: int, count: int) -> Iterator[Ask]:
    rng = random.Random(seed)
    for i in range(count):
        spec: Json = {"containers": [_container(rng, f"c{n}") for n in range(rng.choice((1, 1, 2)))], "volumes": [{"name": "v0", "emptyDir": {}}]}
        spec["volumes"] += [copy.deepcopy({"name": f"v{n}", **rng.choice(_VOLUMES)}) for n in range(1, rng.randrange(1, 3))]
        if rng.random() < 0.3:
            spec["initContainers"] = [_container(rng, "init")]
        if rng.random() < 0.2:
            spec["volumes"].append({"name": "kube-api-access-own", "emptyDir": {}})
        if (name := rng.choice(_NAMES)) is not None:
            spec[rng.choice(("serviceAccountName", "serviceAccountName", "serviceAccount"))] = name
        if (told := rng.choice((None, None, True, False))) is not None:
            spec["automountServiceAccountToken"] = told
        if rng.random() < 0.2:
            spec["imagePullSecrets"] = [{"name": rng.choice(("pull", "own"))}]
        metadata: Json = {"annotations": {"kubernetes.io/config.mirror": "x"}} if rng.random() < 0.15 else {}
        if metadata:
            spec["nodeName"] = "somewhere"
        query = rng.choice(("", "?dryRun=All"))
        yield Ask("drawn", "POST", f"{IN}/pods{query}", _pod(f"p{i}", spec, **metadata))


def others() -> Iterator[Ask]:
    """Writes that come after, and pods of templates."""
    plain = {"containers": [{"name": "c", "image": "i"}]}
    for account in ("default", "strict", "odd", "lenient"):
        name = f"run-{account}"
        yield Ask("runs", "POST", f"{IN}/pods", _pod(name, {**plain, "serviceAccountName": account}))
        for secret in ("mine", "other"):
            for i, env in enumerate(({"env": [{"name": "E", "valueFrom": {"secretKeyRef": {"name": secret, "key": "k"}}}]}, {"envFrom": [{"secretRef": {"name": secret}}]})):
                added = {"spec": {"ephemeralContainers": [{"name": f"d{secret}{i}", "image": "i", **env}]}}
                yield Ask("debugs", "PATCH", f"{IN}/pods/{name}/ephemeralcontainers", added, "application/strategic-merge-patch+json")
        yield Ask("labels", "PATCH", f"{IN}/pods/{name}", {"metadata": {"labels": {"a": "b"}}}, "application/merge-patch+json")
    for method, kind in itertools.product(("POST",), ("replicationcontrollers", "podtemplates")):
        template = {"metadata": {"labels": {"a": "b"}}, "spec": plain}
        body: Json = {"metadata": {"name": "t"}, "template": template} if kind == "podtemplates" else {"metadata": {"name": "t"}, "spec": {"template": template}}
        yield Ask("templates", method, f"{IN}/{kind}?dryRun=All", body)
    yield Ask("missing", "POST", "/api/v1/namespaces/absent/pods", _pod("p", plain))
    yield Ask("new", "POST", "/api/v1/namespaces", {"metadata": {"name": "empty"}})
    yield Ask("no default", "POST", "/api/v1/namespaces/empty/pods", _pod("p", plain))

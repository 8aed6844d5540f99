"""Pods, templates and namespaces under the labels of pod security, valid or not."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from asking import Ask

CORE = "/api/v1"
LABEL = "pod-security.kubernetes.io"
_MERGE = "application/merge-patch+json"
SPACES: dict[str, dict[str, str]] = {
    "none": {}, "enforced": {"enforce": "restricted"}, "old": {"enforce": "restricted", "enforce-version": "v1.8"},
    "base": {"enforce": "baseline", "warn": "restricted", "warn-version": "v1.24"}, "warned": {"warn": "restricted"}, "audited": {"audit": "restricted"},
    "privileged": {"enforce": "privileged", "warn": "baseline"}, "base-alone": {"enforce": "baseline", "enforce-version": "v1.30"},
}  # fmt: skip
_GOOD = {"allowPrivilegeEscalation": False, "runAsNonRoot": True, "capabilities": {"drop": ["ALL"]}, "seccompProfile": {"type": "RuntimeDefault"}}
_SPECS: tuple[dict[str, Any], ...] = (
    {"containers": [{"name": "c", "image": "x"}]}, {"containers": [{"name": "c", "image": "x", "securityContext": _GOOD}]},
    {"containers": [{"name": "c", "image": "x", "securityContext": {"privileged": True}}], "hostNetwork": True},
    {"containers": [{"name": "c", "image": "x", "securityContext": _GOOD}, {"name": "d", "image": "x"}], "volumes": [{"name": "v", "hostPath": {"path": "/"}}]},
    {"containers": [{"name": "c", "image": "x", "ports": [{"containerPort": 80, "hostPort": 80}], "livenessProbe": {"httpGet": {"port": 80, "host": "h"}}}]},
)  # fmt: skip
_LABELS = (
    {"enforce": "x"}, {"enforce": "baseline", "enforce-version": "1.2"}, {"warn": "x", "audit": "Y"}, {"warn-version": "v1.99"}, {"enforce": "restricted"},
    {"enforce": "baseline", "enforce-version": "v1.01"},
)  # fmt: skip


def _labels(given: dict[str, str]) -> dict[str, str]:
    return {f"{LABEL}/{name}": value for name, value in given.items()}


def setup(prefix: str) -> Iterator[Ask]:
    for name, labels in SPACES.items():
        yield Ask("space", "POST", f"{CORE}/namespaces", {"metadata": {"name": f"{prefix}-{name}", "labels": _labels(labels)}})


def known(prefix: str) -> Iterator[tuple[Ask, bytes]]:
    """Asked until the answer says the word."""
    pod = {"metadata": {"name": "p"}, "spec": _SPECS[2]}
    yield Ask("known", "POST", f"{CORE}/namespaces/{prefix}-base-alone/pods?dryRun=All", pod), b"violates PodSecurity"


def known_change(prefix: str) -> Iterator[tuple[Ask, bytes]]:
    pod = {"metadata": {"name": "p"}, "spec": _SPECS[2]}
    yield Ask("known", "POST", f"{CORE}/namespaces/{prefix}-none/pods?dryRun=All", pod), b"violates PodSecurity"


def cases(prefix: str) -> Iterator[Ask]:
    for (name, _), spec in itertools.product(SPACES.items(), _SPECS):
        at = f"namespaces/{prefix}-{name}"
        template = {"metadata": {"labels": {"a": "b"}}, "spec": spec}
        workload = {"metadata": {"name": "w"}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template}}
        job = {"template": {"spec": {**spec, "restartPolicy": "Never"}}}
        yield Ask("pod", "POST", f"{CORE}/{at}/pods?dryRun=All", {"metadata": {"name": "p"}, "spec": spec})
        yield Ask("deployment", "POST", f"/apis/apps/v1/{at}/deployments?dryRun=All", workload)
        yield Ask("cronjob", "POST", f"/apis/batch/v1/{at}/cronjobs?dryRun=All", {"metadata": {"name": "j"}, "spec": {"schedule": "@hourly", "jobTemplate": {"spec": job}}})
        yield Ask("template", "POST", f"{CORE}/{at}/podtemplates?dryRun=All", {"metadata": {"name": "t"}, "template": template})
    for i, labels in enumerate(_LABELS):
        yield Ask("labels", "POST", f"{CORE}/namespaces?dryRun=All", {"metadata": {"name": f"{prefix}-made-{i}", "labels": _labels(labels)}})
        yield Ask("labels", "PATCH", f"{CORE}/namespaces/{prefix}-none?dryRun=All", {"metadata": {"labels": _labels(labels)}}, _MERGE)
    at = f"{CORE}/namespaces/{prefix}-none"
    for i, spec in enumerate(_SPECS):
        yield Ask("standing", "POST", f"{at}/pods", {"metadata": {"name": f"p{i}"}, "spec": spec})
        yield Ask("standing", "POST", f"{at}/pods", {"metadata": {"name": f"q{i}"}, "spec": spec})


def relabelled(prefix: str) -> Iterator[Ask]:
    """A namespace with pods gets a stricter label."""
    at = f"{CORE}/namespaces/{prefix}-none"
    for labels in ({"enforce": "baseline"}, {"enforce": "restricted", "enforce-version": "v1.20"}, {"enforce": "restricted"}, {"enforce": "privileged"}):
        yield Ask("relabelled", "PATCH", f"{at}?dryRun=All", {"metadata": {"labels": _labels(labels)}}, _MERGE)
    yield Ask("relabelled", "PATCH", at, {"metadata": {"labels": _labels({"enforce": "baseline", "warn": "restricted"})}}, _MERGE)


def changed(prefix: str) -> Iterator[Ask]:
    """Pods that the new label would not admit are changed where it matters, and where it does not."""
    at = f"{CORE}/namespaces/{prefix}-none"
    for i in range(len(_SPECS)):
        yield Ask("labelled", "PATCH", f"{at}/pods/p{i}", {"metadata": {"labels": {"a": "b"}}}, _MERGE)
        yield Ask("image", "PATCH", f"{at}/pods/p{i}", [{"op": "replace", "path": "/spec/containers/0/image", "value": "y"}], "application/json-patch+json")
        yield Ask("status", "PATCH", f"{at}/pods/p{i}/status", {"status": {"message": "m"}}, _MERGE)
        yield Ask("generated", "POST", f"{at}/pods?dryRun=All", {"metadata": {"generateName": "g-"}, "spec": {**_SPECS[i], "hostPID": True}})

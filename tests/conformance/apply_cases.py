"""Server-side apply: scripts of writes to one object each, by several managers, drawn at the edges of every type.

A script begins with an apply that creates its object, so that both servers keep who owns what from the first write on;
plain updates and patches, of the object and of its status, and further applies follow, forced and not.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

from asking import JSON, Answer, Ask
from drawn_objects import MERGE, STRATEGIC, changes, put
from hypothesis import strategies as st

from minikube_py.api.schema import SCHEMA

APPLY = "application/apply-patch+yaml"
IN = "/api/v1/namespaces/default"
_CONTAINER = {"name": "c", "image": "nginx", "ports": [{"containerPort": 80, "name": "http"}], "env": [{"name": "A", "value": "1"}]}
_TEMPLATE = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [_CONTAINER]}}
KINDS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "configmaps": (IN, "core/v1.ConfigMap", {"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "1", "b": "2"}}),
    "pods": (IN, "core/v1.Pod", {"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [_CONTAINER]}}),
    "services": (IN, "core/v1.Service", {
        "apiVersion": "v1", "kind": "Service", "spec": {"selector": {"a": "b"}, "ports": [{"name": "t", "port": 80}, {"name": "u", "port": 80, "protocol": "UDP"}]},
    }),
    "deployments": ("/apis/apps/v1/namespaces/default", "apps/v1.Deployment", {
        "apiVersion": "apps/v1", "kind": "Deployment",
        "spec": {"replicas": 2, "selector": {"matchLabels": {"a": "b"}}, "template": _TEMPLATE},
    }),
}  # fmt: skip
"""Where they are, their messages, and a configuration of each."""
MANAGERS = ("one", "two", "kubectl", "é x", "a" * 128)


def named(plural: str, name: str) -> dict[str, Any]:
    found = copy.deepcopy(KINDS[plural][2])
    return {**found, "metadata": {"name": name, "labels": {"l": "1"}}}


def applying(plural: str, name: str, config: Any, manager: str, more: str = "", sub: str = "") -> Ask:
    body = config if isinstance(config, str | bytes) else json.dumps(config)
    return Ask(f"apply {plural}{sub}", "PATCH", f"{KINDS[plural][0]}/{plural}/{name}{sub}?fieldManager={manager}{more}", body, APPLY)


def told() -> Iterator[Ask]:
    """One by one: what drawing would find too seldom."""
    at, path = f"{IN}/configmaps", f"{IN}/configmaps/told"
    config = {**named("configmaps", "told"), "metadata": {"name": "told"}}

    def data(**items: str) -> dict[str, Any]:
        return {**config, "data": items}

    yield Ask("no manager", "PATCH", path, json.dumps(config), APPLY)
    yield Ask("cbor", "PATCH", f"{path}?fieldManager=one", b"\xa0", "application/apply-patch+cbor")
    yield applying("configmaps", "told", config, "one", "&dryRun=All")
    yield applying("configmaps", "told", config, "one")
    yield applying("configmaps", "told", config, "one")
    yield applying("configmaps", "told", data(a="2", b="3"), "two")
    yield applying("configmaps", "told", data(a="2"), "two")
    yield applying("configmaps", "told", data(a="1", c="3"), "two")
    yield applying("configmaps", "told", data(b="2"), "one")
    yield applying("configmaps", "told", data(c="4"), "one", "&force=true&dryRun=All")
    yield applying("configmaps", "told", data(c="4"), "one", "&force=true")
    yield applying("configmaps", "told", data(), "two")
    yield applying("configmaps", "told", config, "one", "&force=maybe")
    yield applying("configmaps", "told", {**config, "kind": "Secret"}, "one")
    yield applying("configmaps", "told", {**config, "apiVersion": "apps/v1"}, "one")
    yield applying("configmaps", "told", {"metadata": {"name": "told"}}, "one")
    yield applying("configmaps", "told", {**config, "metadata": {"name": "other"}}, "one")
    yield applying("configmaps", "told", {**config, "metadata": {"name": "told", "namespace": "other"}}, "one")
    yield applying("configmaps", "told", {**config, "metadata": {"name": "told", "managedFields": []}}, "one")
    yield applying("configmaps", "told", {**config, "metadata": {"name": "told", "managedFields": None}}, "one")
    yield applying("configmaps", "told", {**config, "metadata": {"name": "told", "managedFields": [{}]}}, "one")
    yield applying("configmaps", "told", {**config, "metadata": {"name": "told", "resourceVersion": "1"}}, "one")
    yield applying("configmaps", "told", {**config, "metadata": {"name": "told", "uid": "nope"}}, "one", "&force=true")
    yield applying("configmaps", "new", {**config, "metadata": {"name": "new", "uid": "nope"}}, "one")
    yield applying("configmaps", "told", {**config, "nope": 1}, "one")
    yield applying("configmaps", "told", {**config, "data": {"a": 1}}, "one")
    yield applying("configmaps", "told", {**config, "data": ["a"]}, "one")
    yield applying("configmaps", "told", {**config, "immutable": "yes"}, "one")
    for body in ("", "[]", "a", "a: b: c", "{", "null", "- a", "{}", "a: 1\na: 2", "\t"):
        yield applying("configmaps", "told", body, "one")
    repeated = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: told}\ndata:\n  c: x\n  c: y\n"
    for validation in ("Strict", "Ignore"):
        yield applying("configmaps", "told", repeated, "one", f"&force=true&fieldValidation={validation}")
    yield Ask("put by another", "PUT", f"{path}?fieldManager=a-put", json.dumps(data(c="5", d="6")), JSON)
    yield Ask("merge by another", "PATCH", f"{path}?fieldManager=b-merge", json.dumps({"data": {"d": "7"}}), MERGE)
    yield applying("configmaps", "told", data(d="8"), "one")
    yield applying("configmaps", "told", data(d="8", c="8"), "one")
    for number in range(12):
        body = json.dumps({"data": {f"many-{number}": "1", "all": str(number)}})
        yield Ask("many updaters", "PATCH", f"{path}?fieldManager=m{number:02}", body, MERGE)
    yield Ask("read", "GET", path)
    yield Ask("listed", "GET", f"{at}?fieldSelector=metadata.name=told")
    for reset in ("[]", "[{}]", '[{"manager":"x"}]', '[{"manager":"x","operation":"Update","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{"f:data":{}}}]'):
        yield Ask("reset", "PATCH", f"{path}?fieldManager=r", f'{{"metadata":{{"managedFields":{reset}}}}}', MERGE)
        yield Ask("after a reset", "PATCH", f"{path}?fieldManager=r", json.dumps({"data": {"r": reset}}), MERGE)
        yield applying("configmaps", "told", data(q="1"), "one", "&force=true")


def told_of_pods() -> Iterator[Ask]:
    pod, place = named("pods", "told"), f"{IN}/pods/told"
    yield applying("pods", "told", pod, "one")
    condition = {"type": "x.io/ready", "status": "True"}
    yield applying("pods", "told", {**pod, "status": {"conditions": [condition]}}, "k", sub="/status")
    yield Ask("status", "PATCH", f"{place}/status?fieldManager=s", json.dumps({"status": {"conditions": [{**condition, "status": "False"}]}}), STRATEGIC)
    yield applying("pods", "told", {**pod, "status": {"conditions": [condition]}}, "k", sub="/status")
    yield applying("pods", "absent", named("pods", "absent"), "k", sub="/status")
    twice = {**pod, "spec": {"containers": [_CONTAINER, _CONTAINER]}}
    yield applying("pods", "told", twice, "one")
    yield applying("pods", "told", {**pod, "spec": {"containers": [{"image": "x"}]}}, "one")
    yield applying("pods", "told", {**pod, "spec": {"containers": [None]}}, "one")
    yield Ask("gone", "DELETE", place + "?gracePeriodSeconds=0")


def told_of_kubectl() -> Iterator[Ask]:
    """What kubectl has applied on the client's side does not conflict with what it applies now."""
    last = "kubectl.kubernetes.io/last-applied-configuration"
    config = named("configmaps", "noted")

    def data(**items: str) -> dict[str, Any]:
        return {**config, "metadata": {"name": "noted"}, "data": items}

    noted = {**data(a="1"), "metadata": {"name": "noted", "annotations": {last: json.dumps(data(a="1"))}}}
    yield applying("configmaps", "noted", noted, "before")
    yield applying("configmaps", "noted", data(a="2"), "kubectl")
    yield applying("configmaps", "noted", data(a="3"), "two")


def told_of_autoscalers() -> Iterator[Ask]:
    """One object through two versions: an owner's fields are those of its own version."""
    target = {"kind": "Deployment", "name": "none", "apiVersion": "apps/v1"}
    memory = {"type": "Resource", "resource": {"name": "memory", "target": {"type": "Utilization", "averageUtilization": 5}}}
    old = json.dumps([{"type": "Resource", "resource": {"name": "memory", "targetAverageUtilization": 7}}])
    noted = {"annotations": {"autoscaling.alpha.kubernetes.io/metrics": old, "x": "y"}}
    name = ""

    def ask(how: str, version: str, manager: str, more: str = "", metadata: Any = None, **spec: Any) -> Ask:
        """`how`: apply, merge, put or read."""
        obj = {"apiVersion": f"autoscaling/{version}", "kind": "HorizontalPodAutoscaler", "metadata": {"name": name, **(metadata or {})}, "spec": spec}
        at = f"/apis/autoscaling/{version}/namespaces/default/horizontalpodautoscalers/{name}?fieldManager={manager}{more}"
        method, media = {"apply": ("PATCH", APPLY), "merge": ("PATCH", MERGE), "put": ("PUT", JSON), "read": ("GET", "")}[how]
        return Ask(f"{how} {version}", method, at, None if how == "read" else json.dumps(obj), media)

    for first, second in (("v1", "v2"), ("v2", "v1")):
        name = f"from-{first}"
        yield ask("apply", first, "one", scaleTargetRef=target, maxReplicas=3, minReplicas=2)
        yield ask("apply", second, "two", maxReplicas=4)
        yield ask("merge", second, "three", metadata={"labels": {"a": "b"}})
        yield ask("merge", second, "three", maxReplicas=5)
        yield ask("apply", first, "one", scaleTargetRef=target, maxReplicas=3)
        yield ask("apply", first, "one", "&force=true", scaleTargetRef=target, maxReplicas=3)
        yield ask("apply", second, "one", scaleTargetRef=target, maxReplicas=3)
        yield ask("apply", "v2", "two", "&force=true", metrics=[memory], behavior={"scaleDown": {"stabilizationWindowSeconds": 5}})
        yield ask("apply", "v1", "three", targetCPUUtilizationPercentage=50)
        yield ask("apply", "v1", "three", "&force=true", targetCPUUtilizationPercentage=50, metadata=noted)
        yield ask("apply", "v2", "two", maxReplicas=3)
        yield ask("put", "v1", "four", scaleTargetRef=target, maxReplicas=3)
        yield ask("put", "v1", "five", scaleTargetRef=target, maxReplicas=3, metadata=noted)
        yield ask("put", "v1", "six", scaleTargetRef=target, maxReplicas=3, metadata=noted)
        yield ask("put", "v2", "four", scaleTargetRef=target, maxReplicas=3)
        yield from (ask("read", version, "") for version in (first, second))


def told_of_scales() -> Iterator[Ask]:
    """Of a kind with a Scale that is no custom one: upstream fails with 500 at every apply to a custom resource's."""
    at, template = f"{IN}/replicationcontrollers/scaled", {"metadata": {"labels": {"a": "b"}}, "spec": {"nodeSelector": {"no": "such"}, "containers": [_CONTAINER]}}
    whole = {"apiVersion": "v1", "kind": "ReplicationController", "metadata": {"name": "scaled"}, "spec": {"replicas": 0, "template": template}}
    scale = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "scaled"}}

    def ask(manager: str, body: Any, sub: str = "/scale", media: str = APPLY, more: str = "") -> Ask:
        return Ask(f"{media} {sub}", "PUT" if media == JSON else "PATCH", f"{at}{sub}?fieldManager={manager}{more}", json.dumps(body), media)

    yield ask("one", {**scale, "spec": {"replicas": 2}})
    yield ask("one", whole, sub="")
    yield ask("two", {**scale, "spec": {"replicas": 1}})
    yield ask("two", {**scale, "spec": {"replicas": 1}}, more="&force=true&dryRun=All")
    yield ask("two", {**scale, "spec": {"replicas": 1}}, more="&force=true")
    yield ask("two", {**scale, "spec": {"replicas": 1}})
    yield ask("one", {**scale, "spec": {"replicas": 1}})
    yield ask("three", {"spec": {"replicas": 2}}, media=MERGE)
    yield ask("one", {**scale, "spec": {"replicas": 3}})
    evil = {"manager": "evil", "operation": "Apply", "apiVersion": "autoscaling/v1", "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:replicas": {}}}}
    for number in (2, 1):
        yield ask("four", {"metadata": {"name": "scaled", "managedFields": [evil]}, "spec": {"replicas": number}}, media=JSON)
    yield ask("two", scale, more="&force=true")
    yield ask("two", {**scale, "spec": {"replicas": 1}, "status": {"replicas": 7}}, more="&force=true")
    for wrong in (whole, {**scale, "kind": "Size"}, {**scale, "metadata": {"name": "other"}}, {**scale, "metadata": {"name": "scaled", "resourceVersion": "1"}}, {**scale, "spec": {"replicas": -1}}):
        yield ask("two", wrong, more="&force=true")
    yield Ask("read", "GET", at)


TOLD = (told, told_of_pods, told_of_kubectl, told_of_autoscalers, told_of_scales)


def owned(answer: Answer) -> tuple[int, Any]:
    """Status, and of an object its data and its owners, of a refused apply its conflicts. Owners are in the order of
    the seconds of their writes, which fall differently on two servers.

    What upstream calls a fault of its own, and is its sender's, is 4xx here."""
    found = json.loads(answer.body)
    if answer.code >= 400:
        conflicts = sorted(map(str, found.get("details", {}).get("causes", ()))) if answer.code == 409 else None
        return 400 if answer.code == 500 else answer.code, conflicts
    entries = found.get("metadata", {}).get("managedFields", ())
    timeless = [{name: each[name] for name in each if name != "time"} for each in entries]
    return answer.code, (found.get("data"), sorted(timeless, key=str))


@st.composite
def scripts(draw: st.DrawFn, number: int) -> list[Ask]:
    """`number` makes the object's name its own.

    Without pods and their templates: updates of disabled fields, and overhead in templates, are judged otherwise by our
    validation, and what was stored then differs."""
    plural = draw(st.sampled_from(("configmaps", "services")))
    root, message, _ = KINDS[plural]
    name = f"drawn-{number}"
    path = f"{root}/{plural}/{name}"

    def changed(most: int) -> dict[str, Any]:
        obj = named(plural, name)
        for _ in range(draw(st.integers(0, most))):
            obj = put(obj, draw(changes(SCHEMA.message(message), obj)))
        return obj

    asks = [applying(plural, name, named(plural, name), "one")]
    for _ in range(draw(st.integers(1, 6))):
        manager, sub = draw(st.sampled_from(("one", "two", "three"))), ""
        if plural != "configmaps":
            sub = draw(st.sampled_from(("", "", "/status")))
        match draw(st.sampled_from(("apply", "apply", "apply", "merge", "strategic"))):
            case "apply":
                config = changed(3)
                for part in draw(st.lists(st.sampled_from(sorted(config)), max_size=2)):
                    if part not in ("apiVersion", "kind", "metadata"):
                        config.pop(part, None)
                force = draw(st.sampled_from(("", "&force=true", "&force=false")))
                asks.append(applying(plural, name, config, manager, force, sub))
            case kind:
                obj = changed(2)
                body = {part: obj[part] for part in obj if part in ("spec", "data", "status")}
                media = MERGE if kind == "merge" else STRATEGIC
                asks.append(Ask(f"patch {plural}{sub}", "PATCH", f"{path}{sub}?fieldManager={manager}", json.dumps(body), media))
    return [*asks, Ask(f"get {plural}", "GET", path), Ask(f"delete {plural}", "DELETE", f"{path}?gracePeriodSeconds=0")]

"""Writes that webhooks look at: what they are sent, what each of their answers does, and who is called at all.

Each case has configurations of its own, which match by the label `case`, so that all exist at once.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, NamedTuple

from asking import Ask
from webhook_server import WebhookServer

Json = dict[str, Any]
HOOKS = "/apis/admissionregistration.k8s.io/v1"
NAMESPACE = "hooked"
IN = f"/api/v1/namespaces/{NAMESPACE}"
_MERGE, _APPLY = "application/merge-patch+json", "application/apply-patch+yaml"
_ALL = {"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"]}


class Case(NamedTuple):
    """`hooks`: by kind (m, v) and answer, with what differs from the usual. `asks` without the label get it."""

    name: str
    hooks: tuple[tuple[str, str, Json], ...]
    asks: tuple[Ask, ...]


def _map(name: str, case: str, **more: Any) -> Json:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": {"case": case}}, "data": {"a": "1"}, **more}


def _create(case: str, query: str = "", **more: Any) -> Ask:
    return Ask(case, "POST", f"{IN}/configmaps{query}", _map(case, case, **more))


def _answers() -> Iterator[Case]:
    told = (
        "allow", "deny", "deny-why", "deny-200", "deny-reason", "deny-details", "deny-warns", "warns", "old", "no-response", "other-uid",
        "bad-json", "half-json", "empty", "text", "no-kind", "odd-kind", "bad-type", "list", "http-400", "http-401", "http-403", "http-404", "http-405", "http-409", "http-418", "http-422", "http-500", "http-502", "http-500-json",
    )  # fmt: skip
    patched = (
        "label", "unknown-field", "invalid", "empty-patch", "no-patch-type", "only-patch-type", "odd-patch-type", "blank-patch-type", "patch-text", "patch-object",
        "patch-misses", "patch-tests", "patch-odd", "move", "bad-field", "rename",
    )  # fmt: skip
    for answer in told:
        yield Case(f"v-{answer}", (("v", answer, {}),), (_create(f"v-{answer}"),))
    for answer in ("label", "only-patch-type", "no-patch-type"):
        yield Case(f"v-{answer}", (("v", answer, {}),), (_create(f"v-{answer}"),))
    for answer in (*patched, "deny", "deny-why", "warns", "http-500", "no-response"):
        yield Case(f"m-{answer}", (("m", answer, {}),), (_create(f"m-{answer}"),))
    for kind in "mv":
        for answer in ("http-500", "bad-json", "deny", "no-response"):
            name = f"{kind}-open-{answer}"
            yield Case(name, ((kind, answer, {"failurePolicy": "Ignore"}),), (_create(name),))


def _refused() -> Iterator[Case]:
    unreachable = {"url": "https://127.0.0.1:1/x"}
    for name, client in (
        ("refused", unreachable), ("no-authority", {"caBundle": None}), ("bad-authority", {"caBundle": "AAEC"}),
        ("no-service", {"url": None, "service": {"name": "absent", "namespace": "default", "path": "/x"}}),
    ):  # fmt: skip
        for policy in ("Fail", "Ignore"):
            case = f"{name}-{policy.lower()}"
            yield Case(case, (("v", "allow", {"clientConfig": client, "failurePolicy": policy}),), (_create(case),))
    yield Case("hangs", (("v", "hang", {"timeoutSeconds": 1}),), (_create("hangs"),))
    yield Case("hangs-open", (("m", "hang", {"timeoutSeconds": 1, "failurePolicy": "Ignore"}),), (_create("hangs-open"),))


def _orders() -> Iterator[Case]:
    yield Case("two-deny", (("v", "warns", {}), ("v", "deny", {})), (_create("two-deny"),))
    yield Case("mutates-then-denies", (("m", "label", {}), ("v", "deny-why", {})), (_create("mutates-then-denies"),))
    for policy in ("Never", "IfNeeded"):
        case = f"again-{policy.lower()}"
        hooks = (("m", "count", {"reinvocationPolicy": policy}), ("m", "label", {}), ("m", "label-again", {"reinvocationPolicy": policy}))
        yield Case(case, hooks, (_create(case),))
    # By the names of their configurations, whichever was made first: the later one is sent what the earlier one added.
    yield Case("ordered-b", (("m", "label-again", {}),), ())
    yield Case("ordered-a", (("m", "label", {"objectSelector": {"matchLabels": {"case": "ordered-b"}}}),), (_create("ordered-b"),))
    yield Case("allows-then-denies", (("m", "allow", {"reinvocationPolicy": "IfNeeded"}), ("m", "deny", {})), (_create("allows-then-denies"),))
    yield Case("dry", (("m", "label", {"sideEffects": "NoneOnDryRun"}), ("v", "warns", {})), (_create("dry", "?dryRun=All"), _create("dry", "?dryRun=All&fieldManager=f&fieldValidation=Strict"),))
    yield Case("reviews-v1beta1", (("m", "label", {"admissionReviewVersions": ["v2", "v1beta1", "v1"]}), ("v", "allow", {"admissionReviewVersions": ["v1beta1"]})), (_create("reviews-v1beta1"),))
    generated = Ask("generated", "POST", f"{IN}/configmaps?dryRun=All", {"metadata": {"generateName": "g-", "labels": {"case": "generated"}}})
    yield Case("generated", (("m", "allow", {}), ("v", "allow", {})), (generated,))
    named = Ask("names", "POST", f"{IN}/configmaps?dryRun=All", {"metadata": {"generateName": "g-", "labels": {"case": "names"}}})
    yield Case("names", (("m", "names", {}), ("v", "allow", {})), (named,))


def _conditions() -> Iterator[Case]:
    for i, (texts, policy) in enumerate((
        (("object.data.a == '1'",), "Fail"), (("object.data.a == '2'",), "Fail"), (("object.data.b == '1'",), "Fail"), (("object.data.b == '1'",), "Ignore"),
        (("object.data.b == '1'", "false"), "Fail"), (("object.data.b == '1'", "object.data.c == '1'"), "Fail"),
        (("request.operation == 'CREATE' && request.userInfo.username == 'admin'",), "Fail"), (("oldObject == null",), "Fail"),
        (("request.resource.resource == 'configmaps' && request.kind.kind == 'ConfigMap' && request.namespace == 'hooked'",), "Fail"),
        (("has(request.subResource)",), "Fail"), (("namespaceObject == null",), "Fail"), (("object.metadata.labels['case'].startsWith('condition')",), "Fail"),
        (("request.dryRun",), "Fail"), (("request.options.kind == 'CreateOptions'",), "Fail"), (("size(object.data) == 1 && type(object.data.a) == string",), "Fail"),
        (("[1,2,3].all(x, [1,2,3].all(y, x * y < 10))",), "Fail"),
    )):  # fmt: skip
        name = f"condition-{i}"
        conditions = [{"name": f"c{n}", "expression": text} for n, text in enumerate(texts)]
        yield Case(name, (("v", "deny", {"matchConditions": conditions, "failurePolicy": policy}),), (_create(name),))


def _rules() -> Iterator[Case]:
    for i, rule in enumerate((
        {"resources": ["*"]}, {"resources": ["pods"]}, {"resources": ["configmaps"]}, {"resources": ["configmaps/*"]}, {"resources": ["*/status"]}, {"resources": ["*/"]},
        {"apiGroups": ["apps"]}, {"apiGroups": [""]}, {"apiVersions": ["v2"]}, {"apiVersions": ["v1"]}, {"scope": "Cluster"}, {"scope": "Namespaced"},
        {"operations": ["UPDATE"]}, {"operations": ["UPDATE", "CREATE"]}, {"operations": ["CONNECT"]},
    )):  # fmt: skip
        name = f"rule-{i}"
        yield Case(name, (("v", "deny", {"rules": [{**_ALL, **rule}]}),), (_create(name),))
    for i, selector in enumerate(({"matchLabels": {"team": "a"}}, {"matchLabels": {"team": "b"}}, {"matchExpressions": [{"key": "team", "operator": "Exists"}]})):
        name = f"namespace-{i}"
        space = {"metadata": {"name": f"made-{i}", "labels": {"case": name, "team": "b"}}}
        yield Case(name, (("v", "deny", {"namespaceSelector": selector}),), (_create(name), Ask(name, "POST", "/api/v1/namespaces?dryRun=All", space)))
    for i, scope in enumerate(("Cluster", "Namespaced", "*")):
        name = f"scope-{i}"
        space = {"metadata": {"name": f"scoped-{i}", "labels": {"case": name}}}
        node = {"metadata": {"name": f"scoped-{i}", "labels": {"case": name}}}
        asks = (Ask(name, "POST", "/api/v1/namespaces?dryRun=All", space), Ask(name, "POST", "/api/v1/nodes?dryRun=All", node))
        yield Case(name, (("v", "deny", {"rules": [{**_ALL, "scope": scope}]}),), asks)


def _ways() -> Iterator[Case]:
    """Every way of writing. What is allowed is compared as it was sent to the webhooks."""
    name, at = "ways", f"{IN}/configmaps/ways"
    both = (("m", "allow", {}), ("v", "warns", {}))
    applied = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "ways-applied", "labels": {"case": name}}, "data": {"b": "2"}}
    yield Case(name, both, (
        _create(name), Ask(name, "PUT", at, _map(name, name, data={"b": "2"})), Ask(name, "PATCH", at, {"data": {"c": "3"}}, _MERGE), Ask(name, "PATCH", at, {}, _MERGE),
        Ask(name, "PATCH", f"{IN}/configmaps/ways-applied?fieldManager=f&force=true", applied, _APPLY),
        Ask(name, "PATCH", f"{IN}/configmaps/ways-applied?fieldManager=f", {**applied, "data": {"d": "4"}}, _APPLY),
        Ask(name, "DELETE", f"{at}?propagationPolicy=Background"), Ask(name, "DELETE", f"{IN}/configmaps/ways-applied", {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0}),
        Ask(name, "DELETE", at), _create(name), Ask(name, "DELETE", f"{IN}/configmaps?labelSelector=case%3Dways"),
    ))  # fmt: skip
    name = "delete-patched"
    only = {"rules": [{**_ALL, "operations": ["DELETE"]}]}
    yield Case(name, (("m", "move", only),), (_create(name), Ask(name, "DELETE", f"{IN}/configmaps/{name}")))
    name = "delete-denied"
    asks = (_create(name), Ask(name, "DELETE", f"{IN}/configmaps/{name}"), Ask(name, "DELETE", f"{IN}/configmaps?labelSelector=case%3D{name}"))
    yield Case(name, (("v", "deny-why", only),), asks)
    name = "pods"
    pod = {"metadata": {"name": "p", "labels": {"case": name}}, "spec": {"containers": [{"name": "c", "image": "x"}]}}
    at = f"{IN}/pods/p"
    yield Case(name, (("m", "allow", {}), ("v", "allow", {})), (
        Ask(name, "POST", f"{IN}/pods", pod), Ask(name, "PATCH", f"{at}/status", {"status": {"phase": "Running"}}, _MERGE),
        Ask(name, "POST", f"{at}/binding", {"metadata": {"name": "p", "labels": {"case": name}}, "target": {"kind": "Node", "name": "n"}}),
        Ask(name, "POST", f"{at}/eviction?dryRun=All", {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p", "labels": {"case": name}}}),
        Ask(name, "DELETE", f"{at}?gracePeriodSeconds=0"),
    ))  # fmt: skip
    for name, answer in (("pod-image", "image"), ("pod-priority", "priority")):
        pod = {"metadata": {"name": name, "labels": {"case": name}}, "spec": {"containers": [{"name": "c", "image": "x"}]}}
        yield Case(name, (("m", answer, {"rules": [{**_ALL, "resources": ["pods"]}]}),), (Ask(name, "POST", f"{IN}/pods?dryRun=All", pod),))
    name = "scaled"
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "x"}]}}
    deployment = {"metadata": {"name": name, "labels": {"case": name}}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template}}
    at = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments"
    yield Case(name, (("m", "replicas", {}), ("v", "allow", {})), (
        Ask(name, "POST", at, deployment), Ask(name, "PATCH", f"{at}/{name}", {"spec": {"replicas": 5}}, _MERGE), Ask(name, "GET", f"{at}/{name}/scale"),
    ))  # fmt: skip
    name = "by-scale"
    scaled = {"rules": [{**_ALL, "resources": ["*/scale"]}], "objectSelector": {}, "matchConditions": [{"name": "c", "expression": "request.name == 'by-scale'"}]}
    deployment = {**deployment, "metadata": {"name": name}}
    scale = {"metadata": {"name": name, "namespace": NAMESPACE}, "spec": {"replicas": 2}}
    yield Case(name, (("v", "deny-why", scaled),), (
        Ask(name, "POST", at, deployment), Ask(name, "PUT", f"{at}/{name}/scale", scale), Ask(name, "PATCH", f"{at}/{name}/scale", {"spec": {"replicas": 4}}, _MERGE),
    ))  # fmt: skip


def _operations() -> Iterator[Case]:
    """Every way of writing, with hooks for some of the operations alone."""
    for operations in (["CREATE"], ["UPDATE"], ["DELETE"], ["CREATE", "UPDATE"]):
        name = "only-" + "-".join(operations).lower()
        only = {"rules": [{**_ALL, "operations": operations}]}
        metadata = {"name": name, "labels": {"case": name}}
        lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata}
        applied = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {**metadata, "name": f"{name}-applied"}}
        of_lease = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/{name}"
        of_map, of_applied = f"{IN}/configmaps/{name}", f"{IN}/configmaps/{name}-applied?fieldManager=f"
        yield Case(name, (("m", "label", only), ("v", "warns", only)), (
            _create(name), Ask(name, "PUT", of_map, _map(name, name, data={"b": "2"})),
            Ask(name, "PATCH", of_map, {"data": {"c": "3"}}, _MERGE),
            Ask(name, "PUT", of_lease, lease), Ask(name, "PATCH", of_lease, {"spec": {"holderIdentity": "a"}}, _MERGE),
            Ask(name, "PATCH", of_applied, applied, _APPLY),
            Ask(name, "PATCH", of_applied, {**applied, "data": {"d": "4"}}, _APPLY),
            *(Ask(name, "DELETE", each.partition("?")[0]) for each in (of_map, of_lease, of_applied)),
        ))  # fmt: skip


def _versions() -> Iterator[Case]:
    """Changes that name a version which is not the stored one, or none: who is asked before they are refused."""
    for answer in ("allow", "label", "deny-why", "version-1", "no-version"):
        name = f"stale-{answer}"
        metadata = {"name": name, "labels": {"case": name}}
        of_map, of_scale = f"{IN}/configmaps/{name}", f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{name}/scale"
        of_lease = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/{name}"
        lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata}
        applied = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {**metadata, "name": f"{name}-applied"}, "data": {"d": "4"}}
        of_applied = f"{of_map}-applied?fieldManager=f&force=true"
        pod = {"metadata": metadata, "spec": {"containers": [{"name": "c", "image": "x"}]}}
        template = {"metadata": {"labels": {"a": "b"}}, "spec": pod["spec"]}
        deployment = {"metadata": metadata, "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template}}
        scale = {"metadata": {"name": name, "namespace": NAMESPACE}, "spec": {"replicas": 2}}
        changes = {"rules": [{**_ALL, "operations": ["UPDATE"]}]}
        scaled = {"rules": [{**_ALL, "operations": ["UPDATE"], "resources": ["*/scale"]}], "objectSelector": {}, "matchConditions": [{"name": "c", "expression": f"request.name == '{name}'"}]}
        yield Case(name, (("m", answer, changes), ("v", "warns", changes), ("v", "warns", scaled)), (
            _create(name), Ask(name, "POST", f"{IN}/pods", pod), Ask(name, "POST", of_lease.rpartition("/")[0], lease), Ask(name, "POST", of_scale.rpartition("/deployments/")[0] + "/deployments", deployment),
            *(Ask(name, "PUT", of_map, {"metadata": {**metadata, "resourceVersion": version}, "data": {"b": version}}) for version in ("1", "0", "", "x", "01", "18446744073709551616")),
            *(Ask(name, "PATCH", of_map, {"metadata": {"resourceVersion": version}, "data": {"b": version}}, _MERGE) for version in ("1", "0", "", "x", None)),
            Ask(name, "PUT", of_map, {"metadata": {**metadata, "uid": "1-2-3"}, "data": {"b": "uid"}}),
            Ask(name, "PUT", of_map, {"metadata": {**metadata, "resourceVersion": "1"}, "data": {"b" * 300: "not valid"}}),
            *(Ask(name, "PATCH", of_applied, {**applied, "data": {"d": value}}, _APPLY) for value in "12"),
            Ask(name, "PATCH", of_applied, {**applied, "metadata": {**applied["metadata"], "resourceVersion": "1"}}, _APPLY),
            Ask(name, "PUT", of_lease, lease), Ask(name, "PUT", of_lease, {**lease, "metadata": {**metadata, "resourceVersion": "1"}}),
            Ask(name, "PATCH", of_lease, {"metadata": {"resourceVersion": None}, "spec": {"holderIdentity": "a"}}, _MERGE),
            Ask(name, "PATCH", f"{IN}/pods/{name}/status", {"metadata": {"resourceVersion": "1"}, "status": {"phase": "Running"}}, _MERGE),
            Ask(name, "PUT", of_scale, scale), Ask(name, "PUT", of_scale, {**scale, "metadata": {**scale["metadata"], "resourceVersion": "1"}}),
            Ask(name, "PUT", of_scale, {**scale, "metadata": {**scale["metadata"], "uid": "1-2-3"}}),
            Ask(name, "PATCH", of_map, {"data": {"large": "x" * 300_000}}, _MERGE),
            Ask(name, "PUT", of_map, {"metadata": {**metadata, "resourceVersion": "1"}, "data": {"large": "y" * 300_000}}),
            Ask(name, "PUT", of_map, {"metadata": metadata, "data": {"large": "y" * 300_000}}),
        ))  # fmt: skip


def cases() -> list[Case]:
    return [*_answers(), *_refused(), *_orders(), *_conditions(), *_rules(), *_ways(), *_operations(), *_versions(), PROBE]


PROBE = Case("zz-probe", (("m", "allow", {}), ("v", "deny", {}), ("m", "deny", {})), ())
"""The last to be configured: once its hooks are known, all are."""


def known() -> tuple[Ask, ...]:
    """Asked until both are refused."""
    return (Ask("probe", "POST", f"{IN}/configmaps?dryRun=All", _map("zz-probe", "zz-probe")),)


def setup() -> Iterator[Ask]:
    yield Ask("setup", "POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE, "labels": {"team": "a"}}})


def configurations(each: Case, server: WebhookServer, side: str) -> Iterator[Ask]:
    """One for each kind of hooks."""
    for kind, plural in (("m", "mutatingwebhookconfigurations"), ("v", "validatingwebhookconfigurations")):
        hooks = []
        for i, (of, answer, more) in enumerate(each.hooks):
            if of != kind:
                continue
            more = copy.deepcopy(more)
            client = {"url": f"https://127.0.0.1:{server.port}/{side}/{answer}/{each.name}/{i}", "caBundle": server.bundle}
            client |= more.pop("clientConfig", {})
            hooks.append({
                "name": f"h{i}.{each.name}.example.com", "clientConfig": {k: v for k, v in client.items() if v is not None}, "sideEffects": "None",
                "admissionReviewVersions": ["v1"], "objectSelector": {"matchLabels": {"case": each.name}}, "rules": [_ALL], **more,
            })  # fmt: skip
        if hooks:
            yield Ask("configuration", "POST", f"{HOOKS}/{plural}", {"metadata": {"name": each.name}, "webhooks": hooks})

"""Custom resources of two versions that a webhook converts: definitions, and requests for the objects of each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from asking import Ask
from webhook_server import CONVERSIONS, WebhookServer

Json = dict[str, Any]
GROUP = "convert.example.com"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
MERGE, APPLY = "application/merge-patch+json", "application/apply-patch+yaml"
_NUMBER = {"type": "integer", "maximum": 100}
_NAME = {"name": {"type": "string"}}
_SPECS: dict[str, Json] = {
    "v1": {"size": _NUMBER, **_NAME, "kept": {"type": "string", "default": "one"}},
    "v2": {"dimensions": {"type": "object", "properties": {"width": _NUMBER, "unit": {"type": "string", "default": "cm"}}}, **_NAME},
    "v3": {"dimensions": {"type": "object", "properties": {"width": _NUMBER}}, "size": _NUMBER, **_NAME},
}  # fmt: skip
_PATHS = {"v1": ".spec.size", "v2": ".spec.dimensions.width", "v3": ".spec.size"}
BROKEN = tuple(name for name in CONVERSIONS if name not in ("c-moves", "c-labels", "c-junk", "c-floats"))


def _version(name: str, stored: str) -> Json:
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": _SPECS[name]}, "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}}
    return {
        "name": name, "served": True, "storage": name == stored, "schema": {"openAPIV3Schema": schema}, "subresources": {"status": {}},
        "additionalPrinterColumns": [{"name": "Size", "type": "integer", "jsonPath": _PATHS[name]}],
        "selectableFields": [{"jsonPath": _PATHS[name]}],
    }  # fmt: skip


def plural(answer: str) -> str:
    return answer.replace("-", "") + "s"


def definition(answer: str, client: Json, stored: str = "v1", versions: tuple[str, ...] = ("v1", "v2"), **conversion: Any) -> Json:
    webhook = {"clientConfig": client, "conversionReviewVersions": ["v1"], **conversion}
    names = {"plural": plural(answer), "kind": "Thing" + answer.title().replace("-", "")}
    return {
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": f"{plural(answer)}.{GROUP}"},
        "spec": {
            "group": GROUP, "scope": "Namespaced", "names": names, "versions": [_version(name, stored) for name in versions],
            "conversion": {"strategy": "Webhook", "webhook": webhook},
        },
    }  # fmt: skip


def client_of(webhooks: WebhookServer, side: str, answer: str) -> Json:
    return {"url": f"https://127.0.0.1:{webhooks.port}/{side}/{answer}", "caBundle": webhooks.bundle}


def at(answer: str, version: str, name: str = "") -> str:
    return f"/apis/{GROUP}/{version}/namespaces/default/{plural(answer)}" + (f"/{name}" if name else "")


def thing(answer: str, version: str, name: str, **more: Any) -> Json:
    kind = "Thing" + answer.title().replace("-", "")
    spec = {"v1": {"size": 3}, "v2": {"dimensions": {"width": 3}}, "v3": {"size": 4}}[version]
    return {"apiVersion": f"{GROUP}/{version}", "kind": kind, "metadata": {"name": name, "labels": {"a": name}}, "spec": spec, **more}


def whole(answer: str) -> Iterator[Ask]:
    """What two versions are asked that convert well."""
    for version, name in (("v1", "one"), ("v2", "two")):
        yield Ask(f"{answer} create", "POST", at(answer, version) + "?fieldManager=me", thing(answer, version, name))
        yield Ask(f"{answer} create again", "POST", at(answer, version), thing(answer, version, name))
        yield Ask(f"{answer} try", "POST", at(answer, version) + "?dryRun=All", thing(answer, version, name + "-dry"))
    yield Ask(f"{answer} invalid", "POST", at(answer, "v2"), thing(answer, "v2", "bad", spec={"dimensions": {"width": 101}}))
    yield from _read(answer)
    for version, other in (("v1", "two"), ("v2", "one")):
        spec: Json = {"v1": {"size": 5}, "v2": {"dimensions": {"width": 6}}}[version]
        yield Ask(f"{answer} merge", "PATCH", at(answer, version, other), {"spec": spec}, MERGE)
        yield Ask(f"{answer} nothing", "PATCH", at(answer, version, other), {"spec": spec}, MERGE)
        yield Ask(f"{answer} status", "PATCH", at(answer, version, other) + "/status", {"status": {"seen": version}}, MERGE)
        yield Ask(f"{answer} put", "PUT", at(answer, version, other), thing(answer, version, other))
        if answer == "c-junk":
            # Of several unknown fields, upstream names one or all, as it happens.
            continue
        applied = thing(answer, version, "three", spec={**spec, "name": version})
        yield Ask(f"{answer} apply", "PATCH", at(answer, version, "three") + f"?fieldManager={version}", applied, APPLY)
        yield Ask(f"{answer} apply alike", "PATCH", at(answer, version, "three") + f"?fieldManager={version}&force=true", applied, APPLY)
        yield Ask(f"{answer} apply try", "PATCH", at(answer, version, "three") + f"?fieldManager={version}&force=true&dryRun=All", applied, APPLY)
    if answer != "c-junk":
        yield from _owners(answer)
    yield from _read(answer)
    yield Ask(f"{answer} finalizer", "PATCH", at(answer, "v2", "one"), {"metadata": {"finalizers": ["example.com/a"]}}, MERGE)
    yield Ask(f"{answer} delete", "DELETE", at(answer, "v2", "one"))
    yield Ask(f"{answer} release", "PATCH", at(answer, "v2", "one"), {"metadata": {"finalizers": None}}, MERGE)
    yield Ask(f"{answer} delete", "DELETE", at(answer, "v1", "three"))


def _owners(answer: str) -> Iterator[Ask]:
    yield Ask(f"{answer} gives up", "PATCH", at(answer, "v2", "three") + "?fieldManager=v1&force=true", thing(answer, "v2", "three", spec={}), APPLY)
    yield Ask(f"{answer} owners", "GET", at(answer, "v1", "three"))


def moved_storage(webhooks: WebhookServer, side: str, answer: str) -> Ask:
    """Once the other version is stored: what stood there is still read, and moves when it is written."""
    client = client_of(webhooks, side, answer)
    change = {"spec": definition(answer, client, "v2", ("v1", "v2"))["spec"]}
    return Ask(f"{answer} stores v2", "PATCH", f"{DEFINITIONS}/{plural(answer)}.{GROUP}", change, MERGE)


def after(answer: str) -> Iterator[Ask]:
    yield from _read(answer)
    for version in ("v1", "v2"):
        yield Ask(f"{answer} touches", "PATCH", at(answer, version, "two"), {}, MERGE)
        yield Ask(f"{answer} new", "POST", at(answer, version), thing(answer, version, "new" + version))
    yield from _read(answer)


def _read(answer: str) -> Iterator[Ask]:
    for version in ("v1", "v2"):
        field = _PATHS[version].removeprefix(".")
        for name in ("one", "two"):
            yield Ask(f"{answer} get", "GET", at(answer, version, name))
        yield Ask(f"{answer} list", "GET", at(answer, version))
        yield Ask(f"{answer} page", "GET", at(answer, version) + "?limit=1")
        yield Ask(f"{answer} by label", "GET", at(answer, version) + "?labelSelector=a%3Done")
        yield Ask(f"{answer} by field", "GET", at(answer, version) + f"?fieldSelector={field}%3D3")
        yield Ask(f"{answer} table", "GET", at(answer, version), accept="application/json;as=Table;v=v1;g=meta.k8s.io")
        yield Ask(f"{answer} metadata", "GET", at(answer, version, "two"), accept="application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io")


def broken(answer: str) -> Iterator[Ask]:
    """What becomes of requests where the webhook fails."""
    yield Ask(f"{answer} stored", "POST", at(answer, "v1"), thing(answer, "v1", "one"))
    yield Ask(f"{answer} stored get", "GET", at(answer, "v1", "one"))
    yield Ask(f"{answer} stored list", "GET", at(answer, "v1"))
    yield Ask(f"{answer} get", "GET", at(answer, "v2", "one"))
    yield Ask(f"{answer} create", "POST", at(answer, "v2"), thing(answer, "v2", "two"))
    yield Ask(f"{answer} merge", "PATCH", at(answer, "v2", "one"), {"spec": {"name": "x"}}, MERGE)
    yield Ask(f"{answer} delete", "DELETE", at(answer, "v2", "one"))
    if answer in ("c-why", "c-http-500"):
        # Upstream tries again for seconds.
        yield Ask(f"{answer} list", "GET", at(answer, "v2"))
    yield Ask(f"{answer} stored delete", "DELETE", at(answer, "v1", "one"))


def refused(webhooks: WebhookServer) -> Iterator[Ask]:
    """Definitions whose conversion is wrong."""
    good = client_of(webhooks, "them", "c-moves")
    wrong: tuple[Json | None, ...] = (
        None, {}, {"url": "http://a.b/c"}, {"url": "https://"}, {"url": "https://a:b@c/d?e#f"}, {**good, "service": {"name": "a", "namespace": "b"}},
        {"service": {"name": "", "namespace": ""}}, {"service": {"name": "a", "namespace": "b", "port": 0}}, {"service": {"name": "a", "namespace": "b", "port": 70000}},
        {"service": {"name": "a", "namespace": "b", "path": "c"}}, {"service": {"name": "a", "namespace": "b", "path": "//"}}, {"service": {"name": "a", "namespace": "b", "path": "/x_y/"}},
    )  # fmt: skip
    query = "?dryRun=All"
    for client in wrong:
        body = definition("c-refused", client or {})
        if client is None:
            del body["spec"]["conversion"]["webhook"]["clientConfig"]
        yield Ask("refused client", "POST", DEFINITIONS + query, body)
    for versions in ([], ["v2"], ["v1", "v1"], ["v1", "-"], ["v1beta1"], ["x", "v1"], None):
        body = definition("c-refused", good, conversionReviewVersions=versions)
        yield Ask("refused reviews", "POST", DEFINITIONS + query, body)
    yield Ask("defaulted", "POST", DEFINITIONS + query, definition("c-refused", {"service": {"name": "a", "namespace": "b"}}))
    bare = definition("c-refused", good)
    del bare["spec"]["conversion"]["webhook"]
    yield Ask("no webhook", "POST", DEFINITIONS + query, bare)
    unused = definition("c-refused", good)
    unused["spec"]["conversion"]["strategy"] = "None"
    yield Ask("unused webhook", "POST", DEFINITIONS + query, unused)


BUNDLES = ("Cg==", "YQ==", "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCg==")
"""No certificates: what kubebuilder writes for cert-manager to replace, a letter, and the begin of a block."""


def not_callable(webhooks: WebhookServer, side: str) -> Iterator[Ask]:
    """Definitions that are not established before their webhook's bundle is valid."""
    for number, bundle in enumerate(BUNDLES):
        answer = f"c-bundle-{number}"
        yield Ask(answer, "POST", DEFINITIONS, definition(answer, {**client_of(webhooks, side, answer), "caBundle": bundle}))

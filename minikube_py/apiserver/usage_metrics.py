"""`metrics.k8s.io` from this server's nodes, pods and usage configuration.

Nothing is kept between requests, so an unused API costs nothing.

Source: metrics-server `pkg/api/{node,pod,table}.go`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

import orjson

from minikube_py.api import go_json
from minikube_py.api.errors import GroupResource, Json, not_found
from minikube_py.api.kind import Kind
from minikube_py.api.kinds.core import NODES, PODS
from minikube_py.api.kinds.metrics import NODE_METRICS, node_metrics, node_usage, pod_metrics
from minikube_py.api.meta import namespace_of
from minikube_py.api.selectors import parse_field_selector, parse_label_selector
from minikube_py.api.tables import TablePrinter, table_head
from minikube_py.api.usage import CLUSTER_PLURAL, KIND, PLURAL, DeclaredUsage
from minikube_py.apiserver.forms import (
    Form,
    check_list,
    check_options,
    negotiate,
    single_bytes,
    with_meta_version,
    with_options,
)
from minikube_py.apiserver.messages import Request, Response
from minikube_py.apiserver.options import ListOptions, list_options
from minikube_py.apiserver.routes import Route
from minikube_py.apiserver.selection import Selection
from minikube_py.apiserver.watch_cache import Entry
from minikube_py.apiserver.work import in_form
from minikube_py.fields.usage import Usage

if TYPE_CHECKING:
    from minikube_py.apiserver.core import ApiServer

_SLICE: Final = 200
"""Objects processed per event loop turn."""
_WARNINGS_MAX: Final = 10


async def answer(server: ApiServer, asked: Route, request: Request) -> Response:
    """Raises: StatusError 400, 404, 406, 504."""
    form = with_options(negotiate(request.accept), request.query)
    options = list_options(request.query, False, asked.resource) if asked.verb == "list" else ListOptions()
    await server.lister.wait_fresh()
    source = source_of(server)
    now_s = server.clock.wall_s()
    if asked.verb == "get":
        found = await _one(server, asked, source, now_s)
        value = orjson.dumps(found)
        body = single_bytes(asked.resource, value, 0, form, now_s)
    else:
        items = await _all(server, asked, options, source, now_s)
        body = list_bytes(asked.resource, items, form, now_s)
    response = Response(200, await in_form(body, form, server.writer.work), form.media_type)
    for wrong in list(source.wrong)[:_WARNINGS_MAX]:
        response = response.warning(wrong.replace("\n", " "))
    return response


def source_of(server: ApiServer) -> DeclaredUsage:
    group, version = KIND
    told: dict[str, list[Json]] = {}
    for plural in (PLURAL, CLUSTER_PLURAL):
        kind = server.registry.resource(group, version, plural)
        cache = server.cache.caches.get(kind) if kind is not None else None
        told[plural] = [entry.decode() for entry in cache.entries.values()] if cache is not None else []
    own = {(namespace_of(each), each["metadata"]["name"]): each for each in told[PLURAL]}

    def node(name: str) -> Json | None:
        entry = server.cache.of(NODES).entries.get(NODES.key("", name))
        found: Json | None = entry.decode() if entry is not None else None
        return found

    return DeclaredUsage(told[CLUSTER_PLURAL], own, node)


async def _one(server: ApiServer, asked: Route, source: DeclaredUsage, now_s: float) -> Json:
    of_nodes = asked.resource is NODE_METRICS
    kind = NODES if of_nodes else PODS
    entry = server.cache.of(kind).entries.get(kind.key(asked.namespace, asked.name))
    if entry is None:
        raise not_found(kind, asked.name)
    if of_nodes:
        return node_metrics(entry.decode(), await _node_usage(server, asked.name, source, now_s), now_s)
    found = pod_metrics(entry.decode(), source, now_s)
    if found is None:
        raise not_found(GroupResource(asked.resource.group, "podmetrics"), f"{asked.namespace}/{asked.name}")
    return found


async def _node_usage(server: ApiServer, name: str, source: DeclaredUsage, now_s: float) -> Usage:
    await asyncio.sleep(0)
    return node_usage([entry.decode() for entry in server.cache.of(PODS).on_node(name)], source, now_s)


async def _all(
    server: ApiServer, asked: Route, options: ListOptions, source: DeclaredUsage, now_s: float
) -> list[Json]:
    of_nodes = asked.resource is NODE_METRICS
    kind = NODES if of_nodes else PODS
    labels = parse_label_selector(options.label_selector)
    fields = parse_field_selector(asked.resource, options.field_selector)
    selection = Selection(kind, asked.namespace, labels, fields)
    found: list[Json] = []
    candidates: Iterable[Entry] = server.cache.of(kind).select(selection.prefix)
    for count, entry in enumerate(candidates):
        if count % _SLICE == _SLICE - 1:
            await asyncio.sleep(0)
        if not selection.matches(entry):
            continue
        if of_nodes:
            node = entry.decode()
            usage = await _node_usage(server, node["metadata"]["name"], source, now_s)
            found.append(node_metrics(node, usage, now_s))
        elif (told := pod_metrics(entry.decode(), source, now_s)) is not None:
            found.append(told)
    return found


def list_bytes(kind: Kind, items: list[Json], form: Form, now_s: float) -> bytes:
    check_options(form)
    if form.kind == "table":
        if not items:
            return with_meta_version(_EMPTY_TABLE, form)
        printer = TablePrinter(kind, now_s, form.include_object)
        named = {"kind": kind.kind, "apiVersion": kind.api_version} if form.include_object == "Object" else {}
        rows = b",".join(go_json.escaped(orjson.dumps(printer.row({**named, **item}))) for item in items)
        return with_meta_version(table_head(kind, {}), form) + with_meta_version(rows, form) + b"]}"
    if form.kind == "partial":
        check_list(kind, form)
        head = {"kind": "PartialObjectMetadata", "apiVersion": f"meta.k8s.io/{form.version}"}
        items = [{**head, "metadata": item["metadata"]} for item in items]
        listed = {**head, "kind": "PartialObjectMetadataList", "metadata": {}, "items": items}
    else:
        listed = {"kind": kind.list_kind, "apiVersion": kind.api_version, "metadata": {}, "items": items}
    return go_json.dumps(listed)


_EMPTY_TABLE: Final = (
    b'{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{},"columnDefinitions":null,"rows":null}'
)

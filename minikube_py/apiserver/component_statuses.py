"""`componentstatuses`: health of scheduler, controllers and store.

Upstream probes fixed local ports. Here, components in this process are asked directly; others are healthy while they
renew their lease. Source: kubernetes `pkg/registry/core/componentstatus/rest.go`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import orjson

from minikube_py.api.errors import GroupResource, Json, StatusError, not_found
from minikube_py.api.kinds.coordination import LEASES
from minikube_py.api.kinds.core.component_statuses import COMPONENTSTATUSES
from minikube_py.api.meta import parse_timestamp
from minikube_py.api.selectors import parse_field_selector, parse_label_selector
from minikube_py.apiserver.forms import Form, negotiate, single_bytes, with_options
from minikube_py.apiserver.messages import Request, Response
from minikube_py.apiserver.options import ListOptions, list_options
from minikube_py.apiserver.routes import Route
from minikube_py.apiserver.selection import Selection
from minikube_py.apiserver.usage_metrics import list_bytes
from minikube_py.apiserver.watch_cache import Entry
from minikube_py.apiserver.work import in_form
from minikube_py.mvcc.types import KeyValue

if TYPE_CHECKING:
    from minikube_py.apiserver.core import ApiServer

_COMPONENTS: Final = {"controller-manager": "controllers", "scheduler": "scheduler"}
_STORE: Final = "etcd-0"
_NAMESPACE: Final = "kube-system"


async def answer(server: ApiServer, asked: Route, request: Request) -> Response:
    """Raises: StatusError 400, 404, 406."""
    form = with_options(negotiate(request.accept), request.query)
    now_s = server.clock.wall_s()
    if asked.verb == "get":
        if asked.name not in (*_COMPONENTS, _STORE):
            raise not_found(GroupResource("", "componentstatus"), asked.name)
        value = orjson.dumps(await _status(server, asked.name))
        body = single_bytes(asked.resource, value, 0, form, now_s)
    else:
        body = await _list(server, list_options(request.query, False, asked.resource), form, now_s)
    return Response(200, await in_form(body, form, server.writer.work), form.media_type)


async def _list(server: ApiServer, options: ListOptions, form: Form, now_s: float) -> bytes:
    fields = parse_field_selector(COMPONENTSTATUSES, options.field_selector)
    selection = Selection(COMPONENTSTATUSES, "", parse_label_selector(options.label_selector), fields)
    found = [await _status(server, name) for name in sorted((*_COMPONENTS, _STORE))]
    return list_bytes(COMPONENTSTATUSES, [each for each in found if selection.matches(_entry(each))], form, now_s)


def _entry(status: Json) -> Entry:
    return Entry(COMPONENTSTATUSES, KeyValue(b"", orjson.dumps(status), 0, 0, 0, 0))


async def _status(server: ApiServer, name: str) -> Json:
    why = await _store(server) if name == _STORE else _component(server, name)
    told: Json = {"type": "Healthy", "status": "False" if why else "True"}
    # As upstream: components report a message, the store's probe an error.
    told |= {"error": why} if why and name == _STORE else {"message": why or "ok"}
    return {"metadata": {"name": name}, "conditions": [told]}


async def _store(server: ApiServer) -> str:
    try:
        await server.store.current_revision()
    except StatusError as error:
        return error.message
    return ""


def _component(server: ApiServer, name: str) -> str:
    """Why it is unhealthy."""
    here = server.component_health().get(_COMPONENTS[name])
    if here is not None:
        return here
    lease = f"kube-{name}"
    entry = server.cache.of(LEASES).entries.get(LEASES.key(_NAMESPACE, lease))
    spec = (entry.decode().get("spec") or {}) if entry is not None else {}
    if not spec.get("holderIdentity") or not spec.get("renewTime"):
        return f"nobody holds the lease {_NAMESPACE}/{lease}"
    age_s = server.clock.wall_s() - parse_timestamp(spec["renewTime"])
    most_s = spec.get("leaseDurationSeconds") or 0
    late = f"the lease {_NAMESPACE}/{lease} was renewed {age_s:.0f} s ago, and holds {most_s} s"
    return late if age_s > most_s else ""

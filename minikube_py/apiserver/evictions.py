"""`pods/eviction`: a deletion that the pod's disruption budgets must allow.

Source: `pkg/registry/core/pod/storage/eviction.go`.
"""

from __future__ import annotations

from typing import Final

import orjson

from minikube_py.api import go_json
from minikube_py.api.budgets import (
    check_same,
    has_ended,
    is_ready,
    needs_no_budget,
    spares_unready,
    still_processed,
    take_one,
    targeted,
)
from minikube_py.api.errors import (
    GroupResource,
    Json,
    StatusError,
    bad_request,
    invalid,
    invalid_value,
    not_found,
)
from minikube_py.api.kinds.core import PODS
from minikube_py.api.kinds.policy import PODDISRUPTIONBUDGETS
from minikube_py.api.label_selectors import selects
from minikube_py.api.meta import timestamp
from minikube_py.apiserver.deletes import Deleter
from minikube_py.apiserver.messages import Request, Response
from minikube_py.apiserver.object_store import ObjectStore
from minikube_py.apiserver.options import UNREAD, DeleteOptions, WriteOptions, options_of
from minikube_py.apiserver.preparing import check_namespace, stored
from minikube_py.apiserver.routes import Route
from minikube_py.apiserver.writes import Writer
from minikube_py.env import Clock
from minikube_py.mvcc.types import RangeRequest, prefix_end

ATTEMPTS_MAX: Final = 20
_EVICTIONS: Final = GroupResource("policy", "evictions", "Eviction")
_SUCCESS: Final = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}
_SEVERAL: Final = {
    "kind": "Status",
    "apiVersion": "v1",
    "metadata": {},
    "status": "Failure",
    "message": "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
    "code": 500,
}


class Evictions:
    def __init__(self, store: ObjectStore, writer: Writer, deleter: Deleter, clock: Clock) -> None:
        self._store = store
        self._writer = writer
        self._deleter = deleter
        self._clock = clock

    async def evict(self, route: Route, request: Request, options: WriteOptions) -> Response:
        """Raises: StatusError 400, 403, 404, 409, 422, 429."""
        sub = PODS.subresource("eviction")
        eviction, _ = await self._writer.read(PODS, request, options, sub)
        check_namespace(PODS, eviction["metadata"], route.namespace)
        if request.admit is not None:
            await self._pod(route, request)
        if (passage := self._writer.enter(route, request, "CREATE")) is not None:
            await passage.admit(None, eviction)
        if eviction["metadata"].get("name") != route.name:
            raise bad_request("name in URL does not match name in Eviction object")
        wanted = eviction.get("deleteOptions") or {}
        if wanted.get(UNREAD):
            why = "can not be set for pod eviction, try after removing the option"
            raise invalid(_EVICTIONS, route.name, [invalid_value(f"deleteOptions.{UNREAD}", True, why)])
        if options.dry_run and (told := wanted.get("dryRun")) and told != ["All"]:
            why = f"Non-matching dry-run options in request and content: [All] and [{' '.join(told)}]"
            raise StatusError(500, "", why)
        if passage is not None:
            await passage.validate(None, eviction)
        asked = _asked(wanted, options.dry_run)
        for attempts_left in reversed(range(ATTEMPTS_MAX)):
            pod = await self._pod(route, request)
            if not needs_no_budget(pod):
                return await self._by_budget(route, request, pod, asked)
            try:
                await self._delete(route, request, asked, None if has_ended(pod) else pod)
                return _answer(_SUCCESS)
            except StatusError as error:
                # It may have become ready. A named version must match.
                if error.code != 409 or asked.revision_text or not attempts_left:
                    raise
        raise AssertionError("the last attempt raises")

    async def _pod(self, route: Route, request: Request) -> Json:
        kv = await self._store.get(PODS.key(route.namespace, route.name))
        if kv is None:
            raise not_found(PODS, route.name)
        pod = stored(PODS, kv.value, kv.mod_revision)
        if request.admit is not None:
            request.admit(PODS, "eviction", route.name, pod, None)
        return pod

    async def _by_budget(self, route: Route, request: Request, pod: Json, asked: DeleteOptions) -> Response:
        budgets = await self._budgets(pod)
        if len(budgets) > 1:
            return _answer(_SEVERAL)
        unchanged: Json | None = None
        named = asked.revision_text
        if budgets and not is_ready(pod) and spares_unready(budgets[0]):
            # No budget counts it unless it has become ready. Upstream drops the named version.
            unchanged, asked = pod, asked._replace(revision_text="")
        elif budgets:
            name, now = budgets[0]["metadata"]["name"], timestamp(self._clock.wall_s())

            def take(budget: Json) -> Json:
                return take_one(budget, route.name, now)

            await self._writer.change(PODDISRUPTIONBUDGETS, route.namespace, name, take, asked.dry_run)
        try:
            await self._delete(route, request, asked, unchanged)
        except StatusError as error:
            if error.code == 409 and unchanged is not None and not named:
                raise still_processed(budgets[0]["metadata"]["name"]) from None
            raise
        return _answer(_SUCCESS)

    async def _budgets(self, pod: Json) -> list[Json]:
        """The budgets that select the pod, read from the store."""
        metadata = pod["metadata"]
        prefix = PODDISRUPTIONBUDGETS.collection_prefix(metadata["namespace"])
        result = await self._store.range(RangeRequest(prefix, prefix_end(prefix)))
        found = []
        for kv in result.kvs:
            budget = orjson.loads(kv.value)
            if selects((budget.get("spec") or {}).get("selector"), metadata.get("labels") or {}):
                found.append(budget)
        return found

    async def _delete(self, route: Route, request: Request, asked: DeleteOptions, unchanged: Json | None) -> None:
        """`unchanged`: the pod must be unchanged. Raises: StatusError 409."""
        revision = asked.revision_text or (unchanged["metadata"]["resourceVersion"] if unchanged is not None else "")
        asked = asked._replace(revision_text=revision)
        if not asked.dry_run:
            now = timestamp(self._clock.wall_s())

            def make(old: Json) -> Json:
                if request.admit is not None:
                    request.admit(PODS, "eviction", route.name, old, None)
                check_same(old, asked.uid, asked.revision_text)
                return targeted(old, now)

            written = await self._writer.change(PODS, route.namespace, route.name, make)
            if revision:
                asked = asked._replace(revision_text=str(written.revision))
        if asked.refusal is not None:
            raise asked.refusal
        await self._deleter.delete(PODS, route.namespace, route.name, asked)


def _asked(wanted: Json, dry_run: bool) -> DeleteOptions:
    """Wrong options are refused last, as upstream: after the budget has been charged."""
    dry_run = dry_run or bool(wanted.get("dryRun"))
    try:
        return options_of(wanted)._replace(dry_run=dry_run)
    except StatusError as error:
        told = {"preconditions": wanted.get("preconditions")}
        return options_of(told)._replace(dry_run=dry_run, refusal=error)


def _answer(status: Json) -> Response:
    return Response(status["code"], go_json.dumps(status))

"""`ApiServer`: requests to responses, without HTTP.

The order is upstream's: authenticate, authorize, route, decode, admit, validate; then one txn. Every outcome is a
response: a StatusError becomes its Status, a bug a logged 500.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from functools import partial
from ipaddress import IPv4Address
from typing import TYPE_CHECKING, Any, Final

from minikube_py.api.errors import StatusError, expired, internal, timeout
from minikube_py.api.kind import PARTS, Kind
from minikube_py.api.kinds.core import COMPONENTSTATUSES, NODES
from minikube_py.api.patch import ACCEPTED as PATCH_TYPES
from minikube_py.api.patch import APPLY_PATCH, is_apply
from minikube_py.api.registry import REGISTRY, Registry
from minikube_py.api.service_tokens import SigningKey
from minikube_py.apiserver import address_repair, bootstrap, nonresource, system
from minikube_py.apiserver.access import Access
from minikube_py.apiserver.addresses import DEFAULT_RANGE, AddressAllocator
from minikube_py.apiserver.admission_chain import chain_of
from minikube_py.apiserver.api_services import ApiServices
from minikube_py.apiserver.cached_cluster import CachedCluster
from minikube_py.apiserver.custom_resources import CustomResources
from minikube_py.apiserver.declared import Declarations
from minikube_py.apiserver.declaring import declare_later, declared
from minikube_py.apiserver.deletes import Deleter, orphaning_told
from minikube_py.apiserver.endpoints import EndpointReconciler
from minikube_py.apiserver.evictions import Evictions
from minikube_py.apiserver.forms import PLAIN, YAML, Form, finished, framed, negotiate_of, single_bytes, with_options
from minikube_py.apiserver.health import Results
from minikube_py.apiserver.inflight import InFlight, out_of_time, too_many, within
from minikube_py.apiserver.limits import Limits
from minikube_py.apiserver.lists import Lister
from minikube_py.apiserver.messages import PAGE, Page, Request, Response, error_response, warning_headers, with_warnings
from minikube_py.apiserver.metrics import RequestMetrics, gauges
from minikube_py.apiserver.namespaces import NamespaceGate
from minikube_py.apiserver.object_store import ObjectStore
from minikube_py.apiserver.options import (
    DeleteOptions,
    check_patch_type,
    check_unread,
    list_options,
    parse_bool,
    read_options,
    write_options,
)
from minikube_py.apiserver.outgoing import Closed, Outgoing
from minikube_py.apiserver.preparing import as_served
from minikube_py.apiserver.questions import Questions
from minikube_py.apiserver.quotas import Quotas
from minikube_py.apiserver.renewals import Renewing
from minikube_py.apiserver.reviews import review
from minikube_py.apiserver.routes import Route, check_segment, parse_path, route, verb_of
from minikube_py.apiserver.rules import User
from minikube_py.apiserver.scheduling import AskScheduler
from minikube_py.apiserver.service_accounts import ServiceAccounts
from minikube_py.apiserver.subresources import Subresources
from minikube_py.apiserver.watch_cache import WatchCache
from minikube_py.apiserver.watching import Watching
from minikube_py.apiserver.webhook_calls import Caller
from minikube_py.apiserver.work import ASKED_BY, Work, WorkHere, in_form, told
from minikube_py.apiserver.writes import Writer, Written
from minikube_py.client.transport import ApiResponse
from minikube_py.env import Clock, Rng, ended
from minikube_py.errors import Compacted, MinikubeError, Unavailable
from minikube_py.index.declared import INDEXES_PREFIX
from minikube_py.mvcc.types import FROM_KEY, KeyValue, RangeRequest, prefix_end
from minikube_py.store.storage import Storage, WatchBatch, WatchHandle

if TYPE_CHECKING:
    from minikube_py.apiserver.audit import Auditor
    from minikube_py.apiserver.conversions import Conversions
    from minikube_py.apiserver.inside import Inside

log = logging.getLogger(__name__)
_PREFIX: Final = b"/registry/"
_LOAD_PAGE: Final = 10_000
_REPLAYED: Final = 4096
"""Revisions reread at startup, so that watches can resume."""
_LOADS_MAX: Final = 10
"""How often the read is retried after a compaction."""
_RETRY_S: Final = 0.2
_SWEEP_S: Final = 1.0
_FLOWS_S: Final = 60.0
"""How often the system's flow schemas are checked, as upstream."""
_WITH_APPLY: Final = (*PATCH_TYPES, APPLY_PATCH)


class ApiServer:
    """`tokens` maps bearer tokens to users.

    `cluster_range`: the service network. `enabled_plugins`: of those in `admission.OFF`. `registry`: the served kinds
    without CRDs. `signing_key`: for service account tokens, the same on all servers of a cluster. `start` returns
    when the watch cache is complete and the system namespaces exist; `publish` then adds this server's address to the
    `kubernetes` service.
    """

    def __init__(
        self,
        storage: Storage,
        clock: Clock,
        rng: Rng,
        *,
        tokens: Mapping[str, User] | None = None,
        limits: Limits | None = None,
        cluster_range: str = DEFAULT_RANGE,
        registry: Registry = REGISTRY,
        outgoing: Outgoing | None = None,
        signing_key: SigningKey | None = None,
        enabled_plugins: Collection[str] = (),
    ) -> None:
        self.registry = registry
        self.limits = limits or Limits()
        self.clock = clock
        self.storage = storage
        self.started_s = 0.0
        self.rng = rng
        self.cache = WatchCache(registry.kinds, self.limits)
        self.store = ObjectStore(storage, clock, self.cache.reading)
        self.declared = Declarations(registry.kinds)
        self.lister = Lister(self.store, self.cache, self.declared, self.limits, clock)
        self.watching = Watching(self.store, self.cache, self.lister, self.limits, clock, rng)
        self.addresses = AddressAllocator(self.store, self.cache, clock, rng, cluster_range)
        gate = NamespaceGate(self.store, self.cache)
        seen = CachedCluster(self.cache, clock, registry.gates)
        quotas = Quotas(self.store, self.cache, self.limits, clock)
        self.writer = Writer(self.store, gate, self.addresses, self.limits, clock, rng, seen, quotas)
        self.accounts = ServiceAccounts(self.writer, gate, self.cache, clock, rng, signing_key)
        self.access = Access(tokens or {}, self.cache, clock, self.accounts, lambda: self.registry)
        self.webhook_caller = Caller(outgoing or Closed(), self.cache)
        self.writer.chain = chain_of(self, enabled_plugins)
        self.deleter = Deleter(self.store, clock, self.writer)
        self.hand_work_to(WorkHere(registry))
        self.subresources = Subresources(self.store, self.writer, clock)
        self.cache.conversions_of = self.writer.conversions_of = self.deleter.conversions_of = self._conversions_of
        self._conversions: Conversions | None = None
        self._inside: Inside | None = None
        self.evictions = Evictions(self.store, self.writer, self.deleter, clock)
        self.endpoints = EndpointReconciler(storage, self.writer, clock)
        self.services = ApiServices(self)
        self.flows = bootstrap.Flows(self)
        self.custom = CustomResources(self)
        self.requests = RequestMetrics()
        self.healthchecks = Results()
        self.in_flight = InFlight(self.limits)
        self.connection_metrics: Callable[[], Mapping[str, float]] = dict
        self.component_metrics: Callable[[], Mapping[str, float]] = dict
        self.component_health: Callable[[], Mapping[str, str]] = dict
        """Of components in this process, by name: why they are unhealthy, or ""."""
        self.ask_scheduler: AskScheduler | None = None
        self.questions = Questions(clock)
        self.page: Page | None = None
        self.auditor: Auditor | None = None
        self.making_document = asyncio.Lock()
        self.ready = self.started = False
        self.address, self._port = "", 0
        self._watch: WatchHandle | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._feeding: asyncio.Task[None] | None = None
        self.stopping = False
        self._inflight: dict[asyncio.Task[object], float] = {}
        self._late: set[asyncio.Task[object]] = set()
        self._renewing = Renewing(self, self._inflight, self._late)

    def _conversions_of(self, kind: Kind) -> Conversions | None:
        if kind.conversion_webhook is None:
            return None
        if self._conversions is None:
            from minikube_py.apiserver.conversions import Conversions

            self._conversions = Conversions(self.store, self.webhook_caller, self.rng, lambda: self.writer.work)
        return self._conversions

    # --- life -------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Raises: Unavailable if the store does not answer."""
        self.started_s = self.clock.wall_s()
        late = [kind.field_set for kind in self.registry.kinds if kind.field_set is not None]
        late = [each for each in late if not await declared(self.storage, each)]
        await self._load(_REPLAYED)
        await system.create_namespaces(self.writer)
        await system.create_priority_classes(self.writer)
        await system.create_service_cidr(self.writer, str(self.addresses.network), self.clock.wall_s())
        await self.cache.wait_until(await self.store.current_revision(), self.limits.request_timeout_s)
        await bootstrap.reconcile(self, bootstrap.expected(self.registry.gates))
        await address_repair.repair(self.writer, self.cache, self.clock.wall_s())
        forever = (self._bookmark_forever, self._sweep_forever, self._keep_up, self._keep_flows, self._repair)
        self._tasks = [asyncio.create_task(work()) for work in forever]
        if late:
            self._tasks.append(asyncio.create_task(declare_later(self.storage, late, self.clock)))
        self._tasks.append(asyncio.create_task(self.custom.run()))
        self.ready = self.started = True

    async def publish(self, host: str, port: int) -> None:
        self.address, self._port = self.address or f"{host}:{port}", port
        await system.create_service(self.writer, self.addresses.first, port)
        # Endpoints may not hold a loopback address, and other machines could not use it.
        if not IPv4Address(host).is_loopback:
            await self.endpoints.start(host, port)

    async def stop(self) -> None:
        """Ends watches after their pending events, and detaches from the store, which keeps running."""
        self.stopping = True
        self.ready = False
        self.watching.finish_all()
        for cache in self.cache.caches.values():
            cache.sleep()
        self.questions.close()
        await self.endpoints.stop()
        tasks = [*self._tasks, *([self._feeding] if self._feeding is not None else [])]
        for task in tasks:
            task.cancel()
        await ended(*tasks)
        if self._inside is not None:
            await self._inside.stop()
        if self._watch is not None:
            self._watch.cancel()
        await self.webhook_caller.outgoing.close()
        if self.auditor is not None:
            await self.auditor.stop()

    async def _load(self, replayed: int) -> None:
        """Fills the cache from some revisions back and follows the store from there, so that watches survive a
        restart."""
        _, newest = await self.storage.get(_PREFIX)
        kvs, indexes, revision = await self._read_since(max(newest - replayed, 1))
        # Only now, atomically with the load: a watch opened during the read would miss events.
        self.watching.finish_all(None if replayed else expired(f"too old resource version: ({revision})"))
        self.declared.load(indexes)
        self.cache.load(kvs, revision)
        self.custom.follow()
        # All keys, not only the registry's: the cache sees every revision and so knows its progress, and index
        # declarations take effect at their revision.
        self._watch = self.storage.watch(b"\0", FROM_KEY, revision + 1, self._take)
        if not await self.cache.wait_until(newest, self.limits.request_timeout_s):
            raise Unavailable(f"the store has not delivered events up to revision {newest}")

    async def _read_since(self, revision: int) -> tuple[list[KeyValue], list[KeyValue], int]:
        """The objects and the declared indexes at `revision`, or a later one if that is compacted, and that
        revision."""
        for attempt in range(_LOADS_MAX):
            try:
                indexes = RangeRequest(INDEXES_PREFIX, prefix_end(INDEXES_PREFIX), revision=revision)
                found = await self.storage.range(indexes)
                return await self._read_all(revision), found.kvs, revision
            except Compacted as error:
                revision = max(error.compact_revision, 1)
                if attempt:
                    # Compactions follow closely; the newest revision survives longest.
                    _, revision = await self.storage.get(_PREFIX)
        raise Unavailable(f"the store was compacted {_LOADS_MAX} times while its state was read")

    async def _read_all(self, revision: int) -> list[KeyValue]:
        kvs: list[KeyValue] = []
        low = _PREFIX
        while True:
            request = RangeRequest(low, prefix_end(_PREFIX), limit=_LOAD_PAGE, revision=revision)
            result = await self.storage.range(request)
            kvs += self.cache.readable(result.kvs)
            if not result.more:
                return kvs
            await asyncio.sleep(0)
            low = result.kvs[-1].key + b"\0"

    def _take(self, batch: WatchBatch) -> None:
        if batch.error is None:
            # First, so that the new revision is never seen with old fields.
            self.declared.apply(batch.events)
            self.cache.apply(batch.events, batch.revision)
            self.custom.follow()
        elif not self.stopping:
            if not isinstance(batch.error, Compacted):
                log.warning("the watch on the store ended: %s", batch.error)
            self.ready = False
            self._feeding = asyncio.get_running_loop().create_task(self._follow_again(batch.error))

    async def _follow_again(self, error: MinikubeError) -> None:
        """Resumes the broken watch; if its revision is compacted, reloads and makes all watchers relist."""
        while True:
            try:
                if isinstance(error, Compacted):
                    await self._load(0)
                else:
                    await self.storage.get(_PREFIX)
                    self._watch = self.storage.watch(b"\0", FROM_KEY, self.cache.revision + 1, self._take)
                self.ready = True
                return
            except MinikubeError as again:
                error = again if isinstance(again, Compacted) else error
                await self.clock.sleep(_RETRY_S)

    async def _bookmark_forever(self) -> None:
        while True:
            await self.clock.sleep(self.limits.bookmark_interval_s)
            self.watching.bookmark_all()

    async def _sweep_forever(self) -> None:
        """Ends requests that take too long, checked once a second: cheaper than a timer each."""
        while True:
            await self.clock.sleep(_SWEEP_S)
            oldest_s = self.clock.monotonic_s() - self.limits.request_timeout_s
            for task, started_s in list(self._inflight.items()):
                if started_s < oldest_s and task not in self._late:
                    self._late.add(task)
                    task.cancel()

    async def _keep_flows(self) -> None:
        while True:
            await self.clock.sleep(_FLOWS_S)
            with contextlib.suppress(MinikubeError):
                await system.keep(self.writer, self.cache)
                await self.flows.keep()

    async def _repair(self) -> None:
        while True:
            await self.clock.sleep(address_repair.INTERVAL_S)
            with contextlib.suppress(MinikubeError, StatusError):
                await system.create_service_cidr(self.writer, str(self.addresses.network), self.clock.wall_s())
                await address_repair.repair(self.writer, self.cache, self.clock.wall_s())

    async def _keep_up(self) -> None:
        """Recreates the service `kubernetes` (upstream: every 10 s), and polls indexes until they are complete."""
        while True:
            await self.clock.sleep(_SWEEP_S)
            with contextlib.suppress(MinikubeError, StatusError):
                await system.keep_service(self.writer, self.cache, self.addresses.first, self._port)
                await self.services.keep_trusted()
                await self.flows.tell()
                if self.declared.building:
                    self.declared.told(await self.storage.indexes())

    def hand_work_to(self, work: Work) -> None:
        """From now on, `work` handles large requests."""
        self.writer.work = self.lister.work = work

    # --- requests ---------------------------------------------------------------------------------------------------

    def handle(self, request: Request) -> Coroutine[Any, Any, Response]:
        """Never raises, except for a cancellation from outside."""
        if self.auditor is not None:
            return self.auditor.handle(request, self._within)
        return self._handle(request) if request.deadline_s is None else self._within(request)

    def _within(self, request: Request) -> Coroutine[Any, Any, Response]:
        if request.deadline_s is None:
            return self._handle(request)
        return within(request, self.clock, self._handle, self._late)

    async def _handle(self, request: Request) -> Response:
        started_s = self.clock.monotonic_s()
        task = asyncio.current_task()
        if task is not None:
            if len(self._inflight) >= self.limits.requests_max:
                return too_many(self.limits.requests_max)
            self._inflight[task] = started_s
        path = parse_path(request.path, self.registry)
        verb = request.method.lower()
        if path is not None:
            verb = verb_of(path, request.method, "watch" in request.query and parse_bool(request.query, "watch"))
        slots = self.in_flight.slots(request, verb) if request.receive is not None else None
        taken = permitted = found = False
        response: Response | None = None
        try:
            if slots is not None:
                slots.check()
            if self.page is not None and request.path.startswith(PAGE):
                response = await self.page.answer(request)
            elif (elsewhere := self.services.elsewhere and self.services.forwarder(request.path)) or path is None:
                await self.access.admit(request, path, verb)
                permitted = True
                response = await (elsewhere(request, verb, slots) if elsewhere else nonresource.answer(request, self))
            else:
                await self.access.admit(request, path, verb)
                ASKED_BY.set(request.user.name if request.user is not None else "")
                permitted = True
                asked = route(path, request.method, verb)
                found = True
                if request.receive is not None:
                    await request.read_body()
                if slots is not None:
                    # Only now: a slow sender must not occupy a slot.
                    slots.take()
                    taken = True
                response = await self._dispatch(asked, request)
        except StatusError as error:
            response = error_response(error)
            if not permitted and error.code in (400, 403):
                response.headers = {**response.headers, "X-Content-Type-Options": "nosniff"}
        except asyncio.CancelledError:
            if task is None or task not in self._late:
                raise
            task.uncancel()
            limit_s = self.limits.request_timeout_s
            if request.deadline_s is not None and self.clock.monotonic_s() < started_s + limit_s:
                response = out_of_time()
            else:
                response = error_response(timeout(f"request did not complete within {limit_s:g} s"))
        except Exception as error:
            log.exception("%s %s", request.method, request.path)
            if request.audit is not None:
                request.audit.panic = str(error) or type(error).__name__
            response = error_response(internal("the server met a condition that it does not know"))
        finally:
            if taken and slots is not None:
                if response is not None and response.pieces is not None:
                    # Large lists are rendered while they are sent.
                    response.sent = slots.give_back
                else:
                    slots.give_back()
            if task is not None:
                self._inflight.pop(task, None)
                self._late.discard(task)
        response = finished(response, request, path.resource if found and path is not None else None)
        self.requests.observe(path, verb, response.status, self.clock.monotonic_s() - started_s)
        return response

    def renew(
        self, user: User, writes: Sequence[tuple[str, bytes]]
    ) -> Coroutine[Any, Any, Sequence[ApiResponse | None]]:
        """PUTs of bodies to paths from within this process: the answers to those that renew an object, made in one
        step. None: `handle` must answer."""
        return self._renewing.all(user, writes)

    async def _dispatch(self, asked: Route, request: Request) -> Response:
        verb = asked.verb
        if asked.subresource is not None and asked.subresource.name not in PARTS:
            return await self._special(asked, request)
        if not asked.resource.stored:
            return await self._unstored(asked, request)
        if verb == "patch":
            check_patch_type(request.content_type, _WITH_APPLY)
        form = negotiate_of(request.accept, asked.resource, asked.subresource)
        listed = None
        if verb in ("get", "list", "watch"):
            listed = read_options(request.query, verb, asked.resource)
        if request.query:
            form = with_options(form, request.query)
        if verb == "create":
            self.custom.check_open(asked.resource, request)
            options = write_options(request.query, "CreateOptions", request.content_type)
            written = await self.writer.create(asked, request, options)
            return await self._written(asked, written, form)
        if listed is not None:
            if verb == "get":
                check_segment(asked.name)
                return await self.lister.get(asked, listed, form)
            if verb == "list":
                return await self.lister.answer(asked, listed, form)
            return framed(await self.watching.open(asked, listed, form), request)
        if verb == "update":
            options = write_options(request.query, "UpdateOptions", request.content_type)
            written = await self.writer.update(asked, request, options)
            return await self._written(asked, written, form)
        if verb == "patch":
            options = write_options(request.query, "PatchOptions", request.content_type)
            if request.audit is not None:
                request.audit.took_patch(request.body)
            if is_apply(request.content_type):
                self.custom.check_open(asked.resource, request)
                written = await self.writer.apply(asked, request, options, partial(self._may_create, request))
            else:
                written = await self.writer.patch(asked, request, options)
            return await self._written(asked, written, form)
        if verb == "delete":
            return await self._delete(asked, request, form)
        return await self._delete_collection(asked, request, form)

    async def _may_create(self, request: Request) -> None:
        """Raises: StatusError 403."""
        path = parse_path(request.path, self.registry)
        await self.access.may_create(request, path)

    async def _written(self, asked: Route, written: Written, form: Form) -> Response:
        try:
            body = single_bytes(
                asked.resource, as_served(asked.resource, written.value), written.revision, form, self.clock.wall_s()
            )
        except StatusError as error:
            raise with_warnings(error, written.warnings) from None
        if form is not PLAIN:
            body = await in_form(body, form, self.writer.work)
        status = 201 if written.created else 200
        if written.warnings:
            return Response(status, body, form.media_type, warning_headers(written.warnings))
        return Response(status, body, form.media_type)

    async def _special(self, asked: Route, request: Request) -> Response:
        assert asked.subresource is not None
        name = asked.subresource.name
        if name == "log" or asked.subresource.connects:
            return await self._look_inside(asked, request)
        if asked.verb == "patch":
            check_patch_type(request.content_type, _WITH_APPLY if name == "scale" else PATCH_TYPES)
        form = with_options(negotiate_of(request.accept, asked.resource, asked.subresource), request.query)
        if name == "scale" and asked.verb == "get":
            found = await self.lister.find(asked, read_options(request.query, "get", asked.resource))
            return await self.subresources.get_scale(asked.resource, found, form)
        kind = {"create": "CreateOptions", "update": "UpdateOptions", "patch": "PatchOptions"}[asked.verb]
        options = write_options(request.query, kind, request.content_type)
        if request.audit is not None and asked.verb == "patch":
            request.audit.took_patch(request.body)
        if name == "scale":
            return await self.subresources.write_scale(asked, request, options, form)
        if name == "binding":
            return await told(self.subresources.bind(asked, request, options), form, self.writer.work)
        if name == "token":
            return await self.accounts.issue(asked, request, options, form)
        return await told(self.evictions.evict(asked, request, options), form, self.writer.work)

    async def _look_inside(self, asked: Route, request: Request) -> Response:
        if asked.resource is NODES:
            from minikube_py.apiserver import node_proxy

            return await node_proxy.answer(self, asked, request)
        if self._inside is None:
            from minikube_py.apiserver.inside import Inside

            self._inside = Inside(self.store, self.writer, self.clock, self.rng, self._may_create)
        return await self._inside.answer(asked, request)

    async def _unstored(self, asked: Route, request: Request) -> Response:
        if asked.resource is COMPONENTSTATUSES:
            from minikube_py.apiserver import component_statuses

            return await component_statuses.answer(self, asked, request)
        if asked.verb in ("get", "list"):
            from minikube_py.apiserver import usage_metrics

            return await usage_metrics.answer(self, asked, request)
        form = negotiate_of(request.accept, asked.resource)
        options = write_options(request.query, "CreateOptions", request.content_type)
        if asked.resource.plural == "bindings":
            return await told(self.subresources.bind(asked, request, options), form, self.writer.work)
        return await review(self.writer, asked, request, self.access, options, self.clock.wall_s())

    async def _delete(self, asked: Route, request: Request, form: Form) -> Response:
        resource = asked.resource
        options = await self.writer.delete_options_of(request)
        check_segment(asked.name)
        if options.unread and await self._delete_unread(asked, request, options):
            return Response(200, nonresource.deleted_unread(resource, asked.name))
        with orphaning_told(resource, options) as warned:
            passage = self.writer.chain.enter(request, "DELETE", resource, asked.namespace, asked.name, options=options)
            deleted = await self.deleter.delete(resource, asked.namespace, asked.name, options, request.admit, passage)
            status_code = 202 if not deleted.gone and options.orphan is False else 200
            if deleted.gone and resource.delete_answer == "status":
                status = nonresource.deleted_status(resource, asked.name, deleted.value)
                body = await in_form(status, form, self.writer.work)
                return Response(200, body, YAML if form.media_type == YAML else "application/json", warned)
            body = single_bytes(
                resource, as_served(resource, deleted.value), deleted.revision, form, self.clock.wall_s()
            )
            body = await in_form(body, form, self.writer.work)
            return Response(status_code, body, form.media_type, warned)

    async def _delete_unread(self, asked: Route, request: Request, options: DeleteOptions) -> bool:
        """Deletes an unreadable object, like upstream's AllowUnsafeMalformedObjectDeletion: without admission,
        preconditions or finalizers. False: there is none. Raises: StatusError."""
        kv = await self.store.unread(asked.resource.key(asked.namespace, asked.name))
        if kv is None:
            return False
        check_unread(options)
        await self.access.check(request, parse_path(request.path, self.registry), "unsafe-delete-ignore-read-errors")
        return (await self.store.delete(kv)).done

    async def _delete_collection(self, asked: Route, request: Request, form: Form) -> Response:
        options = await self.writer.delete_options_of(request)
        listed = list_options(request.query, False, asked.resource)
        page, selection = await self.lister.page(asked, listed)
        with orphaning_told(asked.resource, options) as warned:
            passage = self.writer.chain.enter(request, "DELETE", asked.resource, asked.namespace, "", options=options)
            await self.deleter.delete_collection(asked.resource, page.items, options, request.admit, passage)
            response = await self.lister.render(asked.resource, page, form, selection)
            response.headers = {**response.headers, **warned}
            return response

    # --- what is going on -------------------------------------------------------------------------------------------

    def metrics(self) -> dict[str, float]:
        """Counters and gauges by Prometheus name: of the API server, and of its store."""
        return gauges(self, len(self._inflight))


__all__ = ["ApiServer", "error_response"]

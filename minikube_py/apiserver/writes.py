"""Creates, updates and patches: decode, default, admit, validate, and one txn with optimistic concurrency.

An object is encoded once; store, watch cache and response share that text. On a conflict the write is retried on the
new state, unless the sender named the version.

Source: apiserver `pkg/registry/generic/registry/store.go`, `pkg/endpoints/handlers/{create,update,patch}.go`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import orjson

from minikube_py.api import strategy
from minikube_py.api.apply.managed_fields import Sender, track, with_reset
from minikube_py.api.decode import JSON, decode
from minikube_py.api.errors import Json, StatusError, conflict, generate_name_conflict, not_found
from minikube_py.api.kind import Kind
from minikube_py.api.kinds.core import SERVICES
from minikube_py.api.meta import namespace_of
from minikube_py.api.patch import patch_type
from minikube_py.api.quota.charging import Refused
from minikube_py.apiserver.addresses import AddressAllocator, held_keys
from minikube_py.apiserver.admission import Chain, Passage
from minikube_py.apiserver.beats import Beats, may_beat
from minikube_py.apiserver.bodies import Bodies
from minikube_py.apiserver.cached_cluster import CachedCluster
from minikube_py.apiserver.changing import Absent, MakeNext, nothing_is_written, taken_error, told
from minikube_py.apiserver.limits import Limits
from minikube_py.apiserver.messages import Admission, Request, with_warnings
from minikube_py.apiserver.namespaces import NamespaceGate
from minikube_py.apiserver.object_store import Claim, ObjectStore, Outcome, Turn
from minikube_py.apiserver.options import WriteOptions
from minikube_py.apiserver.passing import Next, Passing, has_grown
from minikube_py.apiserver.preparing import (
    Body,
    Made,
    PatchBody,
    admit_create,
    applied,
    as_left,
    as_written,
    check_name,
    check_namespace,
    check_uid,
    decoded,
    encode,
    is_finished,
    key_of,
    named_for_create,
    patched,
    same,
    settle_version,
    shown,
    stored,
)
from minikube_py.apiserver.quotas import Quotas
from minikube_py.apiserver.renewals import Renewals, may_renew
from minikube_py.apiserver.routes import Route
from minikube_py.apiserver.settling import Settling
from minikube_py.apiserver.watch_cache import nobody_converts
from minikube_py.apiserver.work import Work, WorkHere, is_large, is_large_apply, is_large_patch
from minikube_py.env import Clock, Rng
from minikube_py.mvcc.types import KeyValue

if TYPE_CHECKING:
    from minikube_py.apiserver.conversions import Conversions


class Written(NamedTuple):
    """`revision` 0: nothing was stored (dryRun). `created`: a PUT created the object."""

    value: bytes
    revision: int
    created: bool = False
    warnings: list[str] = []


Make = Callable[[Json], Json]
"""Maps the stored object (with resourceVersion) to the new one; does not change its argument."""


class Writer(Bodies):
    def __init__(
        self,
        store: ObjectStore,
        gate: NamespaceGate,
        addresses: AddressAllocator,
        limits: Limits,
        clock: Clock,
        rng: Rng,
        cluster: CachedCluster,
        quotas: Quotas,
    ) -> None:
        self.quotas = quotas
        self.store = store
        self.cluster = cluster
        self.addresses = addresses
        self.work: Work = WorkHere()
        self.settling = Settling(self, cluster)
        self.passing = Passing(self, cluster)
        self.tracks_all = False
        self.conversions_of: Callable[[Kind], Conversions | None] = nobody_converts
        self.chain = Chain(())
        self.renewals = Renewals(store)
        self.beats = Beats(store)
        self._gate = gate
        self._limits = limits
        self._clock = clock
        self._rng = rng

    # --- create -----------------------------------------------------------------------------------------------------

    async def create(self, route: Route, request: Request, options: WriteOptions) -> Written:
        """Raises: StatusError 400, 403, 404, 409, 413, 415, 422."""
        passage = self.enter(route, request, "CREATE")
        if is_large(request.body, request.content_type):
            await self.note_large(route, request, options)
            return await self._create_large(route, request, options, passage)
        obj, warnings = decode(route.resource, request.body, request.content_type, options.field_validation)
        if request.audit is not None:
            request.audit.took(route.resource, obj, route.subresource)
        warnings += strategy.told_of_new(route.resource, obj)
        attempts_left = self._limits.generate_name_attempts_max
        while True:
            generated = "generateName" in obj["metadata"] and not obj["metadata"].get("name")
            try:
                given = (options.dry_run, request.admit, self.sender(request, options), passage)
                written = await self.create_object(route.resource, route.namespace, obj, *given)
                warnings += route.resource.warn(obj, None)
                return written._replace(warnings=warnings) if warnings else written
            except StatusError as error:
                attempts_left -= 1
                if not generated or error.reason != "AlreadyExists":
                    checked = error.reason == "AlreadyExists" or isinstance(error, Refused)
                    said = route.resource.warn(obj, None) if checked else list(error.warnings)
                    raise with_warnings(error, warnings + said) from None
                if not attempts_left:
                    raise generate_name_conflict(route.resource, obj["metadata"]["name"]) from None
            obj, _ = decode(route.resource, request.body, request.content_type, options.field_validation)
            strategy.without_repeats(obj)

    async def create_object(
        self,
        resource: Kind,
        namespace: str,
        obj: Json,
        dry_run: bool = False,
        admit: Admission | None = None,
        sender: Sender | None = None,
        passage: Passage | None = None,
    ) -> Written:
        """Consumes `obj`. If a generated name is taken, the answer is AlreadyExists with that name."""
        generated = not obj["metadata"].get("name")
        name = named_for_create(resource, namespace, obj, self._rng)
        guard = self._gate.known(namespace) if resource.namespaced else None
        if guard is None and resource.namespaced:
            guard = await self._gate.admit(resource, namespace, name)
        admit_create(resource, obj, self._rng, self._clock.wall_s(), self.cluster, admit, sender)
        if passage is not None:

            def again() -> None:
                if admit is not None:
                    admit(resource, "", name, None, obj)
                resource.admit(obj, None, self.cluster)

            name = await passage.admit_new(obj, generated, again)
        if passage is not None and has_grown(passage, obj):
            made = await self.passing.settled(self._settling(resource, namespace), obj, None)
            obj = decoded(resource, made.value)
        else:
            await self.settling.create(resource, obj)
        if passage is not None:
            await passage.validate(None, shown(resource, obj))
        if resource is SERVICES:
            return await self._create_service(namespace, name, obj, dry_run, guard)
        return await self._put_new(resource, namespace, name, encode(obj), dry_run, guard)

    def enter(self, route: Route, request: Request, verb: str) -> Passage | None:
        """None: no plugin handles it."""
        request.converted = {} if route.resource.conversion_webhook is not None else None
        return self.chain.enter(request, verb, route.resource, route.namespace, route.name, route.subresource)

    async def _finished(
        self,
        resource: Kind,
        new: Json,
        old: Json,
        sub: str,
        said: list[str],
        passage: Passage | None,
        admit: Admission | None,
    ) -> Json:
        """As `finish_update`, with admission plugins."""

        def again() -> None:
            if admit is not None:
                admit(resource, sub, old["metadata"]["name"], old, new)
            strategy.admit_update(resource, new, old, sub, self.cluster)

        again()
        if passage is None:
            return await self.settling.update(resource, new, old, sub, said)
        await passage.admit(old, new, again)
        if has_grown(passage, new):
            made = await self.passing.settled(self._settling(resource, namespace_of(old), sub), new, old)
            said[:] = made.warnings
            await self.passing.validate(resource, passage, old, made)
            return decoded(resource, made.value)
        new = await self.settling.update(resource, new, old, sub, said)
        await passage.validate(shown(resource, old), shown(resource, new))
        return new

    def sender(self, request: Request, options: WriteOptions) -> Sender:
        who = options.field_manager, request.user_agent
        sent = request.body, request.content_type
        return Sender(*who, self._clock.wall_s(), self.tracks_all, request.converted, *sent)

    def _settling(self, kind: Kind, namespace: str, sub: str = "") -> Body:
        given = self.cluster.seen_by(kind, namespace), self._clock.wall_s(), kind.definition, self.cluster.gates
        return Body(key_of(kind), b"", "", "", namespace, "", sub, *given)

    def asked_of(self, route: Route, request: Request, options: WriteOptions, passage: Passage | None) -> Body:
        sub = route.subresource.name if route.subresource else ""
        return self._settling(route.resource, route.namespace, sub)._replace(
            body=request.body, content_type=request.content_type, field_validation=options.field_validation,
            name=route.name, sender=self.sender(request, options), force=options.force,
            halfway=passage is not None and passage.mutates,
        )  # fmt: skip

    async def _create_large(
        self, route: Route, request: Request, options: WriteOptions, passage: Passage | None, updating: bool = False
    ) -> Written:
        """As `create`, with the work in a worker process."""
        attempts_left = self._limits.generate_name_attempts_max
        while True:
            seed = self._rng.getrandbits(64)
            asked, wall_s = self.asked_of(route, request, options, passage), self._clock.wall_s()
            made = await self.work.run("create", asked, wall_s, seed, updating)
            attempts_left -= 1
            try:
                return await self._put_made(route, made, asked, options.dry_run, request.admit, passage)
            except StatusError as error:
                if not made.generated or error.reason != "AlreadyExists":
                    raise
                if not attempts_left:
                    raise generate_name_conflict(route.resource, made.name) from None

    async def _put_made(
        self, route: Route, made: Made, asked: Body, dry_run: bool, admit: Admission | None, passage: Passage | None
    ) -> Written:
        resource, namespace = route.resource, route.namespace

        try:
            guard = await self._gate.admit(resource, namespace, made.name) if resource.namespaced else None
            made = await self.passing.new(resource, asked, made, passage, admit)
            if resource is SERVICES:
                put = self._create_service(namespace, made.name, orjson.loads(made.value), dry_run, guard)
            else:
                put = self._put_new(resource, namespace, made.name, made.value, dry_run, guard)
            return (await put)._replace(warnings=made.warnings)
        except StatusError as error:
            raise with_warnings(error, [*made.warnings, *error.warnings]) from None

    async def _put_new(
        self, resource: Kind, namespace: str, name: str, value: bytes, dry_run: bool, guard: KeyValue | None
    ) -> Written:
        key, converting = resource.key(namespace, name), self.conversions_of(resource)
        value = as_written(resource, value) if converting is None else await converting.to_store(resource, value)
        lease = await self.store.lease(resource.ttl_s) if resource.ttl_s and not dry_run else 0
        while True:
            new = partial(self.store.create, key, value, guard, lease, ())
            attempt = new if not dry_run else partial(self.store.create_dry, key)
            outcome = await self.quotas.create(resource, namespace, name, value, dry_run, attempt)
            if outcome.done:
                shown_value = value if converting is None else await converting.value_shown(resource, value)
                return Written(shown_value, outcome.revision, True)
            if outcome.current is not None:
                raise taken_error(resource, name, outcome.current)
            guard = await self._readmit(resource, namespace, name, guard, outcome)

    async def _readmit(
        self, resource: Kind, namespace: str, name: str, guard: KeyValue | None, outcome: Outcome
    ) -> KeyValue:
        """The namespace has changed since the check; it may still be active."""
        assert guard is not None, "only a guard or the object itself refuses a create"
        return await self._gate.admit(resource, namespace, name, fresh=True)

    async def _create_service(
        self, namespace: str, name: str, obj: Json, dry_run: bool, guard: KeyValue | None
    ) -> Written:
        key = SERVICES.key(namespace, name)
        asked, first = held_keys(obj), orjson.dumps(obj)
        attempt: Json | None = obj
        taken: list[Claim] = []
        for _ in range(self._limits.update_attempts_max):
            attempt = attempt or orjson.loads(first)
            claims = await self.addresses.allocate(attempt, None, taken)
            if dry_run:
                for claim in claims:
                    if claim.key in asked and await self.store.get(claim.key) is not None:
                        raise self.addresses.explain(attempt, [claim])
                return await self._put_new(SERVICES, namespace, name, encode(attempt), True, guard)
            value = encode({**attempt, "metadata": dict(attempt["metadata"])})
            write = partial(self.store.create, key, value, guard, 0, claims)
            outcome = await self.quotas.create(SERVICES, namespace, name, value, False, write)
            if outcome.done:
                return Written(value, outcome.revision, True)
            if outcome.current is not None:
                raise taken_error(SERVICES, name, outcome.current)
            wanted = [claim for claim in outcome.taken if claim.key in asked]
            if wanted:
                raise self.addresses.explain(attempt, wanted)
            taken += outcome.taken
            if not outcome.taken:
                guard = await self._readmit(SERVICES, namespace, name, guard, outcome)
            attempt = None
        raise conflict(SERVICES, name, "no free address was found in time; please try again")

    # --- update -----------------------------------------------------------------------------------------------------

    async def update(self, route: Route, request: Request, options: WriteOptions) -> Written:
        """PUT, of the object or of its `status` or `finalize`."""
        resource, sub = route.resource, route.subresource.name if route.subresource else ""
        create_new = not sub and resource.allow_create_on_update
        passage = self.enter(route, request, "UPDATE")
        plain = passage is None and may_renew(route, request)
        if plain and (renewal := self.renewals.of(resource, request)) is not None:
            renewed = await self.renewals.write(*renewal, request.path)
            if renewed is not None:
                return Written(*renewed)
        large = is_large(request.body, request.content_type)
        warnings: list[str] = []
        said: list[str] = []
        body, spare = b"", None
        before: list[KeyValue] = []
        sender = self.sender(request, options)
        if large:
            await self.note_large(route, request, options)
        else:
            spare, warnings = decode(resource, request.body, request.content_type, options.field_validation)
            if request.audit is not None:
                request.audit.took(resource, spare, route.subresource)
            warnings += strategy.without_repeats(spare)
            try:
                check_name(spare["metadata"], route.name)
                check_namespace(resource, spare["metadata"], route.namespace)
            except StatusError as error:
                raise with_warnings(error, warnings) from None
            body = orjson.dumps(spare)

        async def make(kv: KeyValue | None) -> Next | None:
            """The first use consumes the decoded body; a retry decodes again."""
            nonlocal spare
            if plain and kv is not None:
                before.append(kv)
            if large or (kv is not None and is_large(kv.value, JSON)):
                old_value, revision = (kv.value, kv.mod_revision) if kv is not None else (None, 0)
                asked = self.asked_of(route, request, options, passage)
                made: Made | None = await self.work.run("update", asked, old_value, revision, create_new)
                said.clear()
                if made is None:
                    return None
                return await self.passing.change(resource, asked, made, kv, warnings, passage, request.admit)
            if kv is None:
                return None
            obj, spare = spare if spare is not None else orjson.loads(body), None
            old = stored(resource, kv.value, kv.mod_revision)
            resource.default(obj)
            check_uid(resource, obj["metadata"], old)
            with_reset(obj, old, request.body, request.content_type)
            track(resource, sub, old, obj, sender)
            return Next(await self._finished(resource, obj, old, sub, said, passage, request.admit))

        try:
            where = resource, route.namespace, route.name, self._owned(resource, request, make)
            written = await self._change(*where, options.dry_run, create_new, sub, passage is None)
            if before and not (warnings or said):
                self.renewals.learn(resource, request, before[-1], written.value, written.revision)
        except Absent:
            if large:
                return await self._create_large(route, request, options, self._creating(route, request), updating=True)
            obj = orjson.loads(body)
            return await self._create_by_update(route, request, obj, options, warnings, sender)
        except StatusError as error:
            raise told(error, warnings, said) from None
        return written._replace(warnings=warnings + said) if warnings or said else written

    def _creating(self, route: Route, request: Request) -> Passage | None:
        """Of an update that turns out to create its object: other plugins may handle that."""
        return self.chain.enter(request, "CREATE", route.resource, route.namespace, route.name, route.subresource)

    async def _create_by_update(
        self,
        route: Route,
        request: Request,
        obj: Json,
        options: WriteOptions,
        warnings: list[str],
        sender: Sender | None,
    ) -> Written:
        settle_version(route.resource, route.name, obj["metadata"])
        warnings += route.resource.warn_given(obj)
        given = (options.dry_run, request.admit, sender, self._creating(route, request))
        written = await self.create_object(route.resource, route.namespace, obj, *given)
        return written._replace(warnings=warnings + route.resource.warn(obj, None))

    # --- patch ------------------------------------------------------------------------------------------------------

    async def patch(self, route: Route, request: Request, options: WriteOptions) -> Written:
        """Raises: StatusError 400, 404, 409, 415, 422."""
        resource, sub = route.resource, route.subresource.name if route.subresource else ""
        warnings: list[str] = []
        said: list[str] = []
        patch_type(request.content_type, resource.codec is None)
        passage = self.enter(route, request, "UPDATE")
        plain = passage is None and may_beat(route, request)
        key = resource.key(route.namespace, route.name)
        before: list[KeyValue] = []
        if plain and (beat := await self.beats.write(resource, key, request)) is not None:
            return Written(*beat)
        content_type, validation = request.content_type, options.field_validation
        sender = self.sender(request, options)
        patch = PatchBody(content_type, request.body, validation, route.namespace, route.name, sender)

        async def make(kv: KeyValue | None) -> Next | None:
            if kv is None:
                return None
            if is_large_patch(request.body, content_type, kv.value):
                asked = self.asked_of(route, request, options, passage)
                made = await self.work.run("patch", asked, kv.value, kv.mod_revision)
                said.clear()
                return await self.passing.change(resource, asked, made, kv, warnings, passage, request.admit)
            if plain:
                before.append(kv)
            old = stored(resource, kv.value, kv.mod_revision)
            new = patched(resource, old, patch, sub, warnings)
            return Next(await self._finished(resource, new, old, sub, said, passage, request.admit))

        try:
            where = resource, route.namespace, route.name, self._owned(resource, request, make)
            written = await self._change(*where, options.dry_run, sub=sub, queued=passage is None)
            if before and not (warnings or said):
                self.beats.learn(resource, route.name, request, before[-1], written.value, written.revision)
        except StatusError as error:
            raise told(error, warnings, said) from None
        return written._replace(warnings=warnings + said) if warnings or said else written

    async def apply(
        self, route: Route, request: Request, options: WriteOptions, may_create: Callable[[], Awaitable[None]]
    ) -> Written:
        """Server-side apply. `may_create` checks permission to create.

        Raises: StatusError 400, 403, 404, 409, 413, 422."""
        resource, sub = route.resource, route.subresource.name if route.subresource else ""
        warnings: list[str] = []
        said: list[str] = []
        passage = self.enter(route, request, "UPDATE")
        large = is_large_apply(request.body)
        patch = PatchBody(
            request.content_type, request.body, options.field_validation, route.namespace, route.name,
            self.sender(request, options), options.force,
        )  # fmt: skip

        async def make(kv: KeyValue | None) -> Next | None:
            if kv is None:
                return None
            if large or is_large(kv.value, JSON):
                asked = self.asked_of(route, request, options, passage)
                made = await self.work.run("apply", asked, kv.value, kv.mod_revision, 0)
                return await self.passing.change(resource, asked, made, kv, warnings, passage, request.admit)
            old = stored(resource, kv.value, kv.mod_revision)
            new = applied(resource, old, patch, sub, warnings)
            return Next(await self._finished(resource, new, old, sub, said, passage, request.admit))

        async def create() -> Written:
            await may_create()
            if large:
                created = self._creating(route, request)
                asked, seed = self.asked_of(route, request, options, created), self._rng.getrandbits(64)
                made: Made = await self.work.run("apply", asked, None, 0, seed)
                written = await self._put_made(route, made, asked, options.dry_run, request.admit, created)
                warnings[:] = written.warnings
                return written
            new = applied(resource, None, patch, sub, warnings)
            return await self._create_by_update(route, request, new, options, warnings, None)

        try:
            for _ in range(self._limits.update_attempts_max):
                try:
                    owned = self._owned(resource, request, make)
                    where = resource, route.namespace, route.name
                    written = await self._change(*where, owned, options.dry_run, not sub, sub, passage is None)
                    break
                except Absent:
                    try:
                        written = await create()
                        break
                    except StatusError as error:
                        if error.reason != "AlreadyExists":
                            raise
            else:
                raise conflict(resource, route.name)
        except StatusError as error:
            raise told(error, warnings, said) from None
        return written._replace(warnings=warnings + said) if warnings or said else written

    # --- common to all changes ---------------------------------------------------------------------------------

    def _owned(self, kind: Kind, request: Request, make: MakeNext) -> MakeNext:
        """With conversions for field managers of other versions."""
        converting, known = self.conversions_of(kind), request.converted
        return make if converting is None or known is None else converting.owned(kind, known, make)

    async def change(
        self, resource: Kind, namespace: str, name: str, make: Make, dry_run: bool = False, may_be_absent: bool = False
    ) -> Written:
        """Reads, changes, and writes if unchanged; retries on conflict.

        No-op changes are not written. Raises: StatusError 404, or Absent if `may_be_absent`."""

        async def make_next(kv: KeyValue | None) -> Next | None:
            return None if kv is None else Next(make(stored(resource, kv.value, kv.mod_revision)))

        return await self._change(resource, namespace, name, make_next, dry_run, may_be_absent)

    async def change_by(
        self, resource: Kind, namespace: str, name: str, make: MakeNext, dry_run: bool
    ) -> Written:
        """As `change`, with an async step that may be done elsewhere."""
        return await self._change(resource, namespace, name, make, dry_run, queued=False)

    async def _change(
        self,
        resource: Kind,
        namespace: str,
        name: str,
        make: MakeNext,
        dry_run: bool,
        absent: bool = False,
        sub: str = "-",
        queued: bool = True,
    ) -> Written:
        """Like `change`. `absent`: raises Absent if there is no object to change. `sub`: the subresource that quotas
        are checked for; "-": none that they count. `queued`: see Turn.

        Made again after every conflict, as upstream: each is another write's progress."""
        key, converting = resource.key(namespace, name), self.conversions_of(resource)
        if converting is not None:
            changed = await converting.change(resource, key, make, dry_run)
            if changed is not None:
                return Written(*changed)
            raise Absent if absent else not_found(resource, name)
        async with Turn(self.store, key, queued) as turn:
            kv = await self.store.get(key)
            taken: list[Claim] = []
            while True:
                found = await make(kv)
                if found is None or kv is None:
                    raise Absent if absent else not_found(resource, name)
                value, finished = found.value, found.finished
                asked: set[bytes] = set()
                held: set[bytes] = set()
                claims: list[Claim] = []
                if found.new is not None:
                    new = found.new
                    if resource is SERVICES:
                        asked, held = held_keys(new), held_keys(orjson.loads(kv.value))
                        claims = await self.addresses.allocate(new, held, taken)
                    finished = is_finished(resource, new)
                    value = encode(new)
                left, value = value, as_written(resource, value)
                if dry_run:
                    await self.quotas.update(resource, sub, namespace, kv, value, True, nothing_is_written)
                    return Written(value, kv.mod_revision)
                if finished:
                    outcome = await self.store.delete(kv, sorted(held))
                    if outcome.done:
                        return Written(as_left(resource, left), kv.mod_revision)
                elif value is kv.value or same(value, kv.value):
                    return Written(kv.value, kv.mod_revision)
                else:
                    released = sorted(held - held_keys(orjson.loads(value))) if resource is SERVICES else ()
                    write = partial(self.store.replace, kv, value, released, claims)
                    outcome = await self.quotas.update(resource, sub, namespace, kv, value, False, write)
                    if outcome.done:
                        return Written(value, outcome.revision)
                    wanted = [claim for claim in outcome.taken if claim.key in asked]
                    if wanted and outcome.current == kv:
                        raise self.addresses.explain(orjson.loads(value), wanted)
                    # A concurrent write took it; others may be free.
                    taken += outcome.taken
                kv = await turn.after(outcome.current)

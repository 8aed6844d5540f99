"""Creates, updates and patches: decode, default, admit, validate, and one txn with optimistic concurrency.

An object is encoded once; what the store, the watch cache and the answer hold is that one text. A write based on a
state that has changed meanwhile is worked out again on the new state, unless its sender named the version.

Source: apiserver `pkg/registry/generic/registry/store.go`, `pkg/endpoints/handlers/{create,update,patch}.go`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import orjson

from minikube_py.api import strategy
from minikube_py.api.decode import decode
from minikube_py.api.errors import (
    GroupResource,
    Json,
    StatusError,
    already_exists,
    bad_request,
    conflict,
    generate_name_conflict,
    go_quote,
    invalid,
    invalid_value,
    not_found,
)
from minikube_py.api.kind import Kind
from minikube_py.api.kinds.core import NAMESPACES, SERVICES
from minikube_py.api.meta import generate_name, new_uid, timestamp
from minikube_py.api.patch import ACCEPTED as PATCH_TYPES
from minikube_py.api.patch import apply_patch
from minikube_py.api.validation.dispatch import validate_create, validate_update
from minikube_py.apiserver.addresses import AddressAllocator, held_keys
from minikube_py.apiserver.limits import Limits
from minikube_py.apiserver.messages import Admission, Request
from minikube_py.apiserver.namespaces import NamespaceGate
from minikube_py.apiserver.object_store import Claim, ObjectStore, Outcome, encode
from minikube_py.apiserver.options import WriteOptions
from minikube_py.apiserver.routes import Route
from minikube_py.env import Clock, Rng
from minikube_py.mvcc.types import KeyValue

UNSUPPORTED_PATCH: Final = "415: Unsupported Media Type"


class Written(NamedTuple):
    """`revision` 0: nothing was stored (dryRun). `created` tells a PUT that made the object."""

    value: bytes
    revision: int
    created: bool = False
    warnings: list[str] = []


Make = Callable[[Json], Json]
"""From the stored object (with its resourceVersion) to the one to be stored; the given one stays as it is."""


class Writer:
    def __init__(
        self,
        store: ObjectStore,
        gate: NamespaceGate,
        addresses: AddressAllocator,
        limits: Limits,
        clock: Clock,
        rng: Rng,
    ) -> None:
        self.store = store
        self.addresses = addresses
        self._gate = gate
        self._limits = limits
        self._clock = clock
        self._rng = rng

    # --- create -----------------------------------------------------------------------------------------------------

    async def create(self, route: Route, request: Request, options: WriteOptions) -> Written:
        """Raises: StatusError 400, 403, 404, 409, 413, 415, 422."""
        obj, warnings = decode(route.resource, request.body, request.content_type, options.field_validation)
        attempts_left = self._limits.generate_name_attempts_max
        while True:
            generated = "generateName" in obj["metadata"] and not obj["metadata"].get("name")
            try:
                admit = request.admit
                written = await self.create_object(route.resource, route.namespace, obj, options.dry_run, admit)
                warnings += route.resource.warn(obj, None)
                return written._replace(warnings=warnings) if warnings else written
            except StatusError as error:
                attempts_left -= 1
                if not generated or error.reason != "AlreadyExists":
                    raise with_warnings(error, warnings) from None
                if not attempts_left:
                    raise generate_name_conflict(route.resource, obj["metadata"]["name"]) from None
            obj, _ = decode(route.resource, request.body, request.content_type, options.field_validation)

    async def create_object(
        self, resource: Kind, namespace: str, obj: Json, dry_run: bool = False, admit: Admission | None = None
    ) -> Written:
        """`obj` is used up. A generated name that is taken is told as AlreadyExists, of a name the sender never saw."""
        metadata = obj["metadata"]
        check_namespace(resource, metadata, namespace)
        if metadata.get("resourceVersion"):
            # The original answers 500 here; a sender's mistake is no fault of the server.
            raise bad_request("resourceVersion should not be set on objects to be created")
        if not metadata.get("name") and (base := metadata.get("generateName")):
            metadata["name"] = generate_name(base, self._rng)
        return await self._create_named(resource, namespace, obj, dry_run, admit)

    async def _create_named(
        self, resource: Kind, namespace: str, obj: Json, dry_run: bool, admit: Admission | None
    ) -> Written:
        metadata = obj["metadata"]
        name = metadata.get("name") or ""
        guard = await self._gate.admit(resource, namespace, name) if resource.namespaced else None
        for key in ("deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "managedFields"):
            if key in metadata:
                del metadata[key]
        metadata["uid"] = new_uid(self._rng)
        metadata["creationTimestamp"] = timestamp(self._clock.wall_s())
        resource.default(obj)
        if admit is not None:
            admit(resource, "", name, None, obj)
        strategy.prepare_for_create(resource, obj)
        errors = validate_create(resource, obj)
        if errors:
            raise invalid(resource, name, errors)
        resource.canonicalize(obj)
        if resource is SERVICES:
            return await self._create_service(namespace, name, obj, dry_run, guard)
        value = encode(obj)
        return await self._put_new(resource, namespace, name, value, dry_run, guard)

    async def _put_new(
        self, resource: Kind, namespace: str, name: str, value: bytes, dry_run: bool, guard: KeyValue | None
    ) -> Written:
        key = resource.key(namespace, name)
        if dry_run:
            if await self.store.get(key) is not None:
                raise already_exists(resource, name)
            return Written(value, 0, True)
        lease = await self.store.lease(resource.ttl_s) if resource.ttl_s else 0
        while True:
            outcome = await self.store.create(key, value, guard, lease)
            if outcome.done:
                return Written(value, outcome.revision, True)
            if outcome.current is not None:
                raise already_exists(resource, name)
            guard = await self._readmit(resource, namespace, name, guard, outcome)

    async def _readmit(
        self, resource: Kind, namespace: str, name: str, guard: KeyValue | None, outcome: Outcome
    ) -> KeyValue:
        """The namespace has changed since it was looked at: it may still be open."""
        assert guard is not None, "only a guard or the object itself refuses a create"
        return await self._gate.admit(resource, namespace, name, fresh=True)

    async def _create_service(
        self, namespace: str, name: str, obj: Json, dry_run: bool, guard: KeyValue | None
    ) -> Written:
        key = SERVICES.key(namespace, name)
        asked = held_keys(obj)
        taken: list[Claim] = []
        for _ in range(self._limits.update_attempts_max):
            attempt = orjson.loads(orjson.dumps(obj))
            claims = await self.addresses.allocate(attempt, None, taken)
            if dry_run:
                for claim in claims:
                    if claim.key in asked and await self.store.get(claim.key) is not None:
                        raise self.addresses.explain(attempt, [claim])
                return await self._put_new(SERVICES, namespace, name, encode(attempt), True, guard)
            value = encode(orjson.loads(orjson.dumps(attempt)))
            outcome = await self.store.create(key, value, guard, 0, claims)
            if outcome.done:
                return Written(value, outcome.revision, True)
            if outcome.current is not None:
                raise already_exists(SERVICES, name)
            wanted = [claim for claim in outcome.taken if claim.key in asked]
            if wanted:
                raise self.addresses.explain(attempt, wanted)
            taken += outcome.taken
            if not outcome.taken:
                guard = await self._readmit(SERVICES, namespace, name, guard, outcome)
        raise conflict(SERVICES, name, "no free address was found in time; please try again")

    # --- update -----------------------------------------------------------------------------------------------------

    async def update(self, route: Route, request: Request, options: WriteOptions) -> Written:
        """PUT, of the object or of its `status` or `finalize`."""
        resource, sub = route.resource, route.subresource.name if route.subresource else ""
        new, warnings = decode(resource, request.body, request.content_type, options.field_validation)
        metadata = new["metadata"]
        check_name(metadata, route.name)
        check_namespace(resource, metadata, route.namespace)
        body = orjson.dumps(new)
        resource.default(new)
        spare: list[Json] = [new]
        said: list[str] = []

        def make(old: Json) -> Json:
            """The decoded body is used up by its first use; a retry decodes it again."""
            if spare:
                obj = spare.pop()
            else:
                obj = orjson.loads(body)
                resource.default(obj)
            self.check_version(resource, route.name, obj["metadata"], old)
            if request.admit is not None:
                request.admit(resource, sub, route.name, old, obj)
            return self.prepared(resource, obj, old, sub, said)

        create_new = not sub and resource.allow_create_on_update
        try:
            written = await self.change(resource, route.namespace, route.name, make, options.dry_run, create_new)
        except _Absent:
            return await self._create_by_update(route, orjson.loads(body), options, warnings, request.admit)
        except StatusError as error:
            raise with_warnings(error, warnings) from None
        return written._replace(warnings=warnings + said) if warnings or said else written

    async def _create_by_update(
        self, route: Route, obj: Json, options: WriteOptions, warnings: list[str], admit: Admission | None
    ) -> Written:
        obj["metadata"].pop("resourceVersion", None)
        written = await self.create_object(route.resource, route.namespace, obj, options.dry_run, admit)
        return written._replace(warnings=warnings)

    def check_version(self, resource: Kind, name: str, metadata: Json, old: Json) -> None:
        """A named version must be the stored one; an empty one means any, where the kind allows it."""
        before = old["metadata"]
        uid = metadata.get("uid")
        if uid and uid != before["uid"]:
            strategy.check_preconditions(resource, old, uid, None)
        wanted = metadata.get("resourceVersion")
        if not wanted or wanted == "0":
            if not resource.allow_unconditional_update:
                kind = GroupResource(resource.group, resource.plural, resource.plural)
                wrong = invalid_value("metadata.resourceVersion", 0, "must be specified for an update")
                raise invalid(kind, name, [wrong])
            metadata["resourceVersion"] = before["resourceVersion"]
        elif wanted != before["resourceVersion"]:
            if not (wanted.isascii() and wanted.isdigit()):
                raise bad_request(f"strconv.ParseUint: parsing {go_quote(wanted)}: invalid syntax")
            raise conflict(resource, name)

    def prepared(self, resource: Kind, new: Json, old: Json, sub: str, said: list[str]) -> Json:
        """`new`, ready to be stored; `said` gets the warnings for its sender."""
        strategy.prepare_for_update(resource, new, old, sub)
        errors = validate_update(resource, new, old, sub)
        if errors:
            raise invalid(resource, old["metadata"]["name"], errors)
        resource.canonicalize(new)
        said[:] = () if sub else resource.warn(new, old)
        return new

    # --- patch ------------------------------------------------------------------------------------------------------

    async def patch(self, route: Route, request: Request, options: WriteOptions) -> Written:
        """Raises: StatusError 400, 404, 409, 415, 422."""
        resource, sub = route.resource, route.subresource.name if route.subresource else ""
        warnings: list[str] = []
        said: list[str] = []
        check_patch_type(request.content_type)

        def make(old: Json) -> Json:
            original = {"kind": resource.kind, "apiVersion": resource.api_version, **old}
            warnings.clear()
            new = apply_patch(
                request.content_type, resource, original, request.body, options.field_validation, warnings=warnings
            )
            metadata = new["metadata"]
            check_name(metadata, route.name)
            check_namespace(resource, metadata, route.namespace)
            wanted = metadata.get("resourceVersion")
            if wanted and wanted != old["metadata"]["resourceVersion"]:
                raise conflict(resource, route.name)
            metadata["resourceVersion"] = old["metadata"]["resourceVersion"]
            resource.default(new)
            if request.admit is not None:
                request.admit(resource, sub, route.name, old, new)
            return self.prepared(resource, new, old, sub, said)

        try:
            written = await self.change(resource, route.namespace, route.name, make, options.dry_run)
        except StatusError as error:
            raise with_warnings(error, warnings) from None
        return written._replace(warnings=warnings + said) if warnings or said else written

    # --- the common way of a change ---------------------------------------------------------------------------------

    async def change(
        self,
        resource: Kind,
        namespace: str,
        name: str,
        make: Make,
        dry_run: bool = False,
        may_be_absent: bool = False,
    ) -> Written:
        """Reads, makes, writes if unchanged; anew on a conflict. What changes nothing is not written.

        Raises: StatusError 404, or _Absent where `may_be_absent`; 409 after too many conflicts."""
        key = resource.key(namespace, name)
        kv = await self.store.get(key)
        taken: list[Claim] = []
        for _ in range(self._limits.update_attempts_max):
            if kv is None:
                raise _Absent if may_be_absent else not_found(resource, name)
            old = orjson.loads(kv.value)
            old["metadata"]["resourceVersion"] = str(kv.mod_revision)
            new = make(old)
            asked = held_keys(new) if resource is SERVICES else set()
            claims, held = await self._claims(resource, new, old, taken)
            finished = is_finished(resource, new)
            value = encode(new)
            if dry_run:
                return Written(value, kv.mod_revision)
            if finished:
                released = sorted(held_keys(old)) if resource is SERVICES else ()
                outcome = await self.store.delete(kv, released)
                if outcome.done:
                    return Written(value, kv.mod_revision)
            elif value == kv.value or _same(value, kv.value):
                return Written(kv.value, kv.mod_revision)
            else:
                released = sorted(held - held_keys(orjson.loads(value))) if resource is SERVICES else ()
                outcome = await self.store.replace(kv, value, claims, released)
                if outcome.done:
                    return Written(value, outcome.revision)
                wanted = [claim for claim in outcome.taken if claim.key in asked]
                if wanted and outcome.current == kv:
                    raise self.addresses.explain(orjson.loads(value), wanted)
                # Somebody else was given what was free a moment ago; there may be more.
                taken += outcome.taken
            kv = outcome.current
        raise conflict(resource, name)

    async def _claims(
        self, resource: Kind, new: Json, old: Json, taken: list[Claim]
    ) -> tuple[list[Claim], set[bytes]]:
        if resource is not SERVICES:
            return [], set()
        held = held_keys(old)
        return await self.addresses.allocate(new, held, taken), held


class _Absent(Exception):
    """The object to be changed is not there, and may be created."""


def _same(value: bytes, stored: bytes) -> bool:
    """Equal but for the order of members, which senders may choose."""
    return len(value) == len(stored) and bool(orjson.loads(value) == orjson.loads(stored))


def is_finished(resource: Kind, obj: Json) -> bool:
    """An object being deleted goes when nothing holds it any more: no finalizer, no grace."""
    metadata = obj["metadata"]
    if not metadata.get("deletionTimestamp") or metadata.get("finalizers"):
        return False
    if resource is NAMESPACES:
        return not (obj.get("spec") or {}).get("finalizers")
    return not metadata.get("deletionGracePeriodSeconds")


def check_name(metadata: Json, name: str) -> None:
    """Raises: StatusError 400 where the body names another object than the path."""
    found = metadata.get("name")
    if not found:
        raise bad_request(f"the name of the object ({name} based on URL) was undeterminable: name must be provided")
    if found != name:
        raise bad_request(f"the name of the object ({found}) does not match the name on the URL ({name})")


def check_namespace(resource: Kind, metadata: Json, namespace: str) -> None:
    """Fills in the path's namespace. Raises: StatusError 400 where the body names another."""
    found = metadata.get("namespace") or ""
    wanted = namespace if resource.namespaced else ""
    if not found:
        if wanted:
            metadata["namespace"] = wanted
    elif found != wanted:
        raise bad_request("the namespace of the provided object does not match the namespace sent on the request")


def check_patch_type(content_type: str) -> None:
    if content_type.partition(";")[0] not in PATCH_TYPES:
        raise StatusError(415, "UnsupportedMediaType", UNSUPPORTED_PATCH, {})


def with_warnings(error: StatusError, warnings: list[str]) -> StatusError:
    """A refusal carries the warnings of a body that was read already."""
    error.warnings = tuple(warnings)
    return error

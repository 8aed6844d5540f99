"""Subresources: a pod's binding, a controller's scale.

Source: `pkg/registry/core/pod/storage`, `pkg/registry/core/replicationcontroller/storage`.
"""

from __future__ import annotations

from typing import Final

import orjson

from minikube_py.api import go_json
from minikube_py.api.apply.managed_fields import track, with_owners
from minikube_py.api.errors import (
    GroupResource,
    Json,
    StatusError,
    bad_request,
    invalid,
    request_entity_too_large,
)
from minikube_py.api.kind import Kind
from minikube_py.api.kinds.core import PODS
from minikube_py.api.kinds.core.pods import bind_pod, validate_binding
from minikube_py.api.patch import apply_patch, is_apply
from minikube_py.api.scale import SCALES, owned_scale_of, require_replicas, scale_of, validate_scale, with_scale
from minikube_py.apiserver.forms import Form, single_bytes
from minikube_py.apiserver.messages import Request, Response, warning_headers, with_warnings
from minikube_py.apiserver.object_store import ObjectStore
from minikube_py.apiserver.options import WriteOptions
from minikube_py.apiserver.preparing import PatchBody, applied, check_name, check_namespace, check_uid, encode
from minikube_py.apiserver.routes import Route
from minikube_py.apiserver.work import INLINE_BYTES_MAX, INLINE_SLOW_BYTES_MAX, in_form, is_large_apply
from minikube_py.apiserver.writes import Writer
from minikube_py.env import Clock
from minikube_py.mvcc.types import KeyValue

SUCCESS: Final = go_json.dumps({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201})


class Subresources:
    def __init__(self, store: ObjectStore, writer: Writer, clock: Clock) -> None:
        self._store = store
        self._writer = writer
        self._clock = clock

    # --- pods -------------------------------------------------------------------------------------------------------

    async def bind(self, route: Route, request: Request, options: WriteOptions) -> Response:
        """Raises: StatusError 400, 404, 409, 422."""
        sub = PODS.subresource("binding")
        binding, _ = await self._writer.read(PODS, request, options, sub)
        metadata = binding["metadata"]
        check_namespace(PODS, metadata, route.namespace)
        name = route.name or metadata.get("name") or ""
        passage = self._writer.enter(route._replace(name=name), request, "CREATE")
        if passage is not None:
            await passage.admit(None, binding)
            name = route.name or binding["metadata"].get("name") or ""
        if binding["metadata"].get("name") != name:
            raise bad_request("name in URL does not match name in Binding object")
        if errors := validate_binding(binding):
            raise invalid(GroupResource("", "bindings", "Binding"), name, errors)
        if passage is not None:
            await passage.validate(None, binding)
        wall_s = self._clock.wall_s()

        def make(old: Json) -> Json:
            # In place: an unbound pod always changes, so no comparison is needed.
            bind_pod(old, binding, wall_s)
            return old

        await self._writer.change(PODS, route.namespace, name, make, options.dry_run)
        return Response(201, SUCCESS)

    # --- scale ------------------------------------------------------------------------------------------------------

    async def get_scale(self, kind: Kind, kv: KeyValue, form: Form) -> Response:
        require_replicas(kind, orjson.loads(kv.value))
        return await self._scale_response(kind, kv.value, kv.mod_revision, form)

    async def write_scale(self, route: Route, request: Request, options: WriteOptions, form: Form) -> Response:
        """PUT or PATCH. Raises: StatusError 400, 404, 409, 413, 415, 422."""
        resource, sub = route.resource, route.subresource
        given: Json | None = None
        warnings: list[str] = []
        passage = self._writer.enter(route, request, "UPDATE")
        applies = route.verb == "patch" and is_apply(request.content_type)
        if applies and is_large_apply(request.body):
            raise request_entity_too_large(f"limit is {INLINE_SLOW_BYTES_MAX} for YAML, {INLINE_BYTES_MAX} for JSON")
        sender = self._writer.sender(request, options)._replace(converted=None)
        where = route.namespace, route.name
        patch = PatchBody(request.content_type, request.body, options.field_validation, *where, sender, options.force)
        if route.verb != "patch":
            given, warnings = await self._writer.read(resource, request, options, sub)
            check_name(given["metadata"], route.name)
            check_namespace(resource, given["metadata"], route.namespace)

        def changed(before: Json) -> Json:
            warnings.clear()
            given = request.content_type, resource, before, request.body, options.field_validation
            scale = apply_patch(*given, subresource=sub, warnings=warnings)
            check_name(scale["metadata"], route.name)
            return scale

        async def make(old: Json) -> Json:
            held = with_owners(resource, old, sender) if applies else old
            before = owned_scale_of(resource, held)
            if applies:
                scale = applied(SCALES, before, patch, "scale", warnings)
            else:
                scale = {**given, "metadata": dict(given["metadata"])} if given is not None else changed(before)
                track(SCALES, "scale", before, scale, sender)
            if passage is not None:
                await passage.admit(before, scale)
            if errors := validate_scale(scale):
                raise invalid(SCALES, route.name, errors)
            new = with_scale(resource, held, scale)
            check_uid(resource, new["metadata"], old)
            new = await self._writer.settling.finish_update(resource, new, old, "", [])
            if passage is not None:
                await passage.validate(scale_of(resource, old), scale_of(resource, new))
            return new

        try:
            written = await self._writer.change_by(resource, route.namespace, route.name, make, options.dry_run)
        except StatusError as error:
            raise with_warnings(error, warnings) from None
        answer = await self._scale_response(resource, written.value, written.revision, form)
        answer.headers = warning_headers(warnings)
        return answer

    async def _scale_response(self, kind: Kind, value: bytes, revision: int, form: Form) -> Response:
        scale = scale_of(kind, orjson.loads(value))
        for name in ("kind", "apiVersion"):
            del scale[name]
        body = single_bytes(SCALES, encode(scale), revision, form, self._clock.wall_s())
        return Response(200, await in_form(body, form, self._writer.work), form.media_type)

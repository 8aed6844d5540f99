"""Subresources: a pod's binding, a controller's scale.

Source: `pkg/registry/core/pod/storage`, `pkg/registry/core/replicationcontroller/storage`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from minikube_py.api import go_json
from minikube_py.api.admission import take_topology
from minikube_py.api.decode import JSON
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
from minikube_py.api.patch import is_apply, patch_type
from minikube_py.api.scale import SCALES, scale_of
from minikube_py.apiserver.forms import Form, single_bytes
from minikube_py.apiserver.messages import Request, Response, warning_headers, with_warnings
from minikube_py.apiserver.object_store import ObjectStore
from minikube_py.apiserver.options import WriteOptions
from minikube_py.apiserver.passing import Next
from minikube_py.apiserver.preparing import Body, check_name, check_namespace, encode, key_of, stored
from minikube_py.apiserver.routes import Route
from minikube_py.apiserver.work import (
    INLINE_BYTES_MAX,
    INLINE_SLOW_BYTES_MAX,
    in_form,
    is_large,
    is_large_apply,
    is_large_patch,
)
from minikube_py.apiserver.writes import Writer
from minikube_py.env import Clock
from minikube_py.mvcc.types import KeyValue

if TYPE_CHECKING:
    from minikube_py.apiserver import scaling

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

        def place() -> None:
            target = binding.get("target") or {}
            if target.get("kind") == "Node" and route.resource is PODS:
                take_topology(binding, target.get("name") or "", self._writer.cluster)

        place()
        if passage is not None:
            await passage.admit(None, binding, place)
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
        return await self._scale_response(kind, kv.value, kv.mod_revision, form, True)

    async def write_scale(self, route: Route, request: Request, options: WriteOptions, form: Form) -> Response:
        """PUT or PATCH. Raises: StatusError 400, 404, 409, 413, 415, 422."""
        from minikube_py.apiserver import scaling

        resource, sub = route.resource, route.subresource
        given: Json | None = None
        warnings: list[str] = []
        said: list[str] = []
        applies = route.verb == "patch" and is_apply(request.content_type)
        if route.verb == "patch" and not applies:
            patch_type(request.content_type, resource.codec is None)
        passage = self._writer.enter(route, request, "UPDATE")
        if applies and is_large_apply(request.body):
            raise request_entity_too_large(f"limit is {INLINE_SLOW_BYTES_MAX} for YAML, {INLINE_BYTES_MAX} for JSON")
        asked = self._writer.asked_of(route, request, options, passage)
        asked = asked._replace(sender=asked.sender._replace(converted=None))
        if route.verb != "patch":
            given, warnings = await self._writer.read(resource, request, options, sub)
            check_name(given["metadata"], route.name)
            check_namespace(resource, given["metadata"], route.namespace)

        async def elsewhere(kv: KeyValue) -> Next:
            where = kv.value, kv.mod_revision
            before, scale, said[:] = await self._writer.work.run("late", "scaling", "begin", asked, given, *where)
            if passage is not None:
                await passage.admit(before, scale)
            ended: scaling.Ended = await self._writer.work.run("late", "scaling", "end", asked, scale, *where)
            if passage is not None:
                await passage.validate(ended.before, ended.after)
            return Next(None, ended.made.value, ended.made.finished)

        async def make(kv: KeyValue | None) -> Next | None:
            said.clear()
            if kv is None:
                return None
            if is_large(kv.value, JSON) or is_large_patch(request.body, request.content_type, kv.value):
                return await elsewhere(kv)
            old = stored(resource, kv.value, kv.mod_revision)
            held = scaling.held_by(resource, asked, old)
            before, scale, said[:] = scaling.begun(resource, asked, given, held)
            if passage is not None:
                await passage.admit(before, scale)
            new = scaling.scaled(resource, route.name, scale, held, old)
            new = await self._writer.settling.finish_update(resource, new, old, "", [])
            if passage is not None:
                await passage.validate(scale_of(resource, old), scale_of(resource, new))
            return Next(new)

        try:
            written = await self._writer.change_by(resource, route.namespace, route.name, make, options.dry_run)
        except StatusError as error:
            raise with_warnings(error, [*warnings, *said]) from None
        answer = await self._scale_response(resource, written.value, written.revision, form)
        answer.headers = warning_headers([*warnings, *said])
        return answer

    async def _scale_response(
        self, kind: Kind, value: bytes, revision: int, form: Form, checks: bool = False
    ) -> Response:
        from minikube_py.apiserver import scaling

        if is_large(value, JSON):
            asked = Body(key_of(kind), b"", "", "", "", "", definition=kind.definition)
            scale: Json = await self._writer.work.run("late", "scaling", "show", asked, value, checks)
        else:
            scale = scaling.shown_scale(kind, value, checks)
        for name in ("kind", "apiVersion"):
            del scale[name]
        body = single_bytes(SCALES, encode(scale), revision, form, self._clock.wall_s())
        return Response(200, await in_form(body, form, self._writer.work), form.media_type)

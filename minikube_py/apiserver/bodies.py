"""Reads bodies of requests that are not stored as they are: large ones in a worker process."""

from __future__ import annotations

from collections.abc import Mapping

import orjson

from minikube_py.api.decode import decode, decode_delete_options
from minikube_py.api.errors import Json
from minikube_py.api.kind import Kind, Subresource
from minikube_py.apiserver.messages import Request
from minikube_py.apiserver.options import DeleteOptions, WriteOptions, delete_options
from minikube_py.apiserver.preparing import Body, key_of
from minikube_py.apiserver.routes import Route
from minikube_py.apiserver.work import Work, is_large


class Bodies:
    work: Work

    async def read(
        self, kind: Kind, request: Request, options: WriteOptions, sub: Subresource | None = None
    ) -> tuple[Json, list[str]]:
        """A body that is not stored itself, and warnings. Raises: StatusError 400, 413, 415."""
        if not is_large(request.body, request.content_type):
            obj, warnings = decode(kind, request.body, request.content_type, options.field_validation, subresource=sub)
        else:
            obj, warnings = await self._read_large(kind, request, options, sub)
        if request.audit is not None:
            request.audit.took(kind, obj, sub)
        return obj, warnings

    async def note_large(self, route: Route, request: Request, options: WriteOptions) -> None:
        """Tells the audit log of a large body. Raises: StatusError 400, 413, 415."""
        if request.audit is not None:
            obj, _ = await self._read_large(route.resource, request, options, None)
            request.audit.took(route.resource, obj, route.subresource)

    async def _read_large(
        self, kind: Kind, request: Request, options: WriteOptions, sub: Subresource | None
    ) -> tuple[Json, list[str]]:
        name, validation = sub.name if sub is not None else "", options.field_validation
        body = Body(
            key_of(kind), request.body, request.content_type, validation, "", "", name, definition=kind.definition
        )
        value, warnings = await self.work.run("read", body)
        return orjson.loads(value), warnings

    async def delete_options_of(self, request: Request) -> DeleteOptions:
        """Raises: StatusError 400, 413, 415, 422."""
        body, content_type = request.body, request.content_type
        if request.audit is not None and body and not is_large(body, content_type):
            request.audit.took_options(decode_delete_options(body, content_type))
        return await self.delete_options(request.query, body, content_type)

    async def delete_options(self, query: Mapping[str, str], body: bytes, content_type: str) -> DeleteOptions:
        """Raises: StatusError 400, 413, 415, 422."""
        if is_large(body, content_type):
            options: DeleteOptions = await self.work.run("read_delete_options", body, content_type)
            return options
        return delete_options(query, body, content_type)

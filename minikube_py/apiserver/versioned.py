"""A write's objects in the versions that webhooks and policies name.

Source: apiserver `pkg/admission/plugin/webhook/generic/conversion.go` (VersionedAttributes).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import orjson

from minikube_py.api import go_json
from minikube_py.api.errors import Json, StatusError, internal
from minikube_py.api.kind import Kind
from minikube_py.apiserver.admission import Attributes
from minikube_py.apiserver.checks import as_stored
from minikube_py.apiserver.preparing import shown

if TYPE_CHECKING:
    from minikube_py.apiserver.conversions import Conversions

ConversionsOf = Callable[[Kind], "Conversions | None"]


class Views:
    """Of one write, for one pass of a plugin. A changed view is converted back when another version is wanted, or at
    the end (`settle`): what only its version can say stays for those that follow in it."""

    def __init__(self, attributes: Attributes, conversions_of: ConversionsOf) -> None:
        self.attributes, self._conversions_of = attributes, conversions_of
        self._views: dict[Kind, Attributes] = {}
        self._changed: Kind | None = None

    async def of(self, kind: Kind) -> Attributes:
        """The write with its objects in the version of `kind`. Raises: StatusError 500 of a conversion webhook."""
        if kind is not self._changed:
            await self.settle()
        given, own = self.attributes, self.attributes.of.kind
        if self.form(kind) is own:
            return given
        if kind not in self._views:
            old, new = [await self._between(own, obj, kind) for obj in (given.old, given.new)]
            self._views[kind] = replace(given, old=old, new=new)
        return self._views[kind]

    def changed(self, kind: Kind) -> None:
        """The new object was changed in the view of `kind`."""
        if self.form(kind) is self.attributes.of.kind:
            self._views.clear()
        else:
            self._views, self._changed = {kind: self._views[kind]}, kind

    async def settle(self) -> None:
        """Raises: StatusError 500 of a conversion webhook."""
        kind, new = self._changed, self.attributes.new
        if kind is None or new is None:
            return
        found = await self._between(kind, self._views[kind].new, self.attributes.of.kind)
        assert found is not None
        new.clear()
        new.update((name, found[name]) for name in found if name not in ("kind", "apiVersion"))
        self._changed = None

    def form(self, kind: Kind) -> Kind:
        """Whose fields the objects of this view have: the write's own kind where at most their apiVersion differs."""
        of = self.attributes.of
        converted = (each.converts is not None or each.conversion_webhook is not None for each in (kind, of.kind))
        return kind if any(converted) and of.said[2] == of.kind.kind else of.kind

    async def _between(self, kind: Kind, obj: Json | None, wanted: Kind) -> Json | None:
        if obj is None:
            return None
        converting = self._conversions_of(kind)
        if converting is not None:
            asked = {**obj, "kind": kind.kind, "apiVersion": kind.api_version}
            try:
                return await converting.between(kind, go_json.dumps(asked), wanted.api_version)
            except StatusError as error:
                raise internal(error.message) from None
        found: Json = orjson.loads(orjson.dumps(obj))
        as_stored(kind, found)
        return shown(wanted, found)

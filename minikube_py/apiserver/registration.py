"""What this server does to APIServices: those of definitions come and go with them, and local ones are available.

As upstream's, it restores those with its label (`true`: whenever they change), and leaves those whose label was removed
to their user. Several API servers on a store do the same, with optimistic concurrency.

Source: kube-aggregator `pkg/controllers/autoregister`, `pkg/controllers/status/local`.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from minikube_py.api.apply.managed_fields import Sender, track
from minikube_py.api.errors import Json, StatusError
from minikube_py.api.kinds.apiregistration import APISERVICES, LOCAL, MANAGED, is_local, with_condition
from minikube_py.api.meta import timestamp
from minikube_py.apiserver.api_services import ApiServices, Known
from minikube_py.apiserver.options import DeleteOptions
from minikube_py.errors import MinikubeError

if TYPE_CHECKING:
    from minikube_py.apiserver.core import ApiServer

log = logging.getLogger(__name__)
MANAGER: Final = "kube-apiserver"
_RETRY_S: Final = 1.0
Step = Callable[[], Awaitable[object]]


class Registration:
    def __init__(self, server: ApiServer, services: ApiServices) -> None:
        self._server = server
        self._services = services
        self._at_start = {*services.at_start}
        """Those of `onstart` that a server finds at its start are put right once, each; users may make others."""
        self._settled: dict[str, tuple[Known | None, Json | None]] = {}
        """Those for which nothing was to be done, as they were: of thousands, few have changed."""

    async def run(self) -> None:
        while True:
            await self._services.changed.wait()
            self._services.changed.clear()
            again = False
            settled, self._settled = self._settled, {}
            known, defined = self._services.known, self._services.defined
            for name in sorted(known.keys() | defined.keys() | self._at_start):
                at = known.get(name), defined.get(name)
                if at == settled.get(name) or (step := self._step(name)) is None:
                    self._settled[name] = at
                elif not await _done(name, step):
                    again = True
                    continue
                self._at_start.discard(name)
            if again:
                await self._server.clock.sleep(_RETRY_S)
                self._services.changed.set()

    def _step(self, name: str) -> Step | None:
        """What is to be done, if anything."""
        known, wanted = self._services.known.get(name), self._services.defined.get(name)
        if known is None:
            return partial(self._create, wanted) if wanted is not None else None
        if _is_managed(known.service, name in self._at_start) and name not in self._services.standing:
            if wanted is None:
                options = DeleteOptions(uid=known.service["metadata"]["uid"])
                return partial(self._server.deleter.delete, APISERVICES, "", name, options)
            if _said(known.service["spec"]) != wanted["spec"]:
                return partial(change, self._server, name, "", lambda old: {**old, "spec": dict(wanted["spec"])})
        if self._available(known.service) is not known.service:
            return partial(change, self._server, name, "status", self._available)
        return None

    def _available(self, service: Json) -> Json:
        now = timestamp(self._server.clock.wall_s())
        return with_condition(service, *LOCAL, now) if is_local(service) else service

    async def _create(self, wanted: Json) -> None:
        metadata = {**wanted["metadata"], "labels": dict(wanted["metadata"]["labels"])}
        made = {"metadata": metadata, "spec": dict(wanted["spec"])}
        await self._server.writer.create_object(APISERVICES, "", made, sender=_sender(self._server))


async def _done(name: str, step: Step) -> bool:
    """Whether it need not be tried again: also if the APIService was changed or deleted in the meantime."""
    try:
        await step()
    except StatusError as error:
        if error.code not in (404, 409):
            log.warning("the APIService %s: %s", name, error.message)
            return False
    except MinikubeError as error:
        log.warning("the APIService %s: %s", name, error)
        return False
    except Exception:
        log.exception("the APIService %s", name)
        return False
    return True


async def change(server: ApiServer, name: str, subresource: str, make: Callable[[Json], Json]) -> None:
    """Raises: StatusError."""

    def owned(stored: Json) -> Json:
        new = make(stored)
        if new is not stored:
            new = {**new, "metadata": dict(stored["metadata"])}
            track(APISERVICES, subresource, stored, new, _sender(server))
        return new

    await server.writer.change(APISERVICES, "", name, owned)


def _sender(server: ApiServer) -> Sender:
    return Sender("", MANAGER, server.clock.wall_s(), server.writer.tracks_all)


def _is_managed(service: Json, at_start: bool) -> bool:
    label = (service["metadata"].get("labels") or {}).get(MANAGED)
    return label == "true" or (label == "onstart" and at_start)


def _said(spec: Json) -> Json:
    """Without empty fields, which Go leaves out."""
    return {name: value for name, value in spec.items() if value not in (None, False, "")}

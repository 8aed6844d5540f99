"""Access to a pod's inside: logs, connections, and proxied requests.

Loaded on first use to keep startup fast: most servers never need these protocols.
"""

from __future__ import annotations

from minikube_py.apiserver.connecting import Connecting, MayCreate
from minikube_py.apiserver.forms import framed
from minikube_py.apiserver.logs import Logs, check_log_accepted
from minikube_py.apiserver.messages import Request, Response
from minikube_py.apiserver.object_store import ObjectStore
from minikube_py.apiserver.proxying import Proxying
from minikube_py.apiserver.routes import PROXY, Route
from minikube_py.apiserver.writes import Writer
from minikube_py.env import Clock, Rng


class Inside:
    def __init__(self, store: ObjectStore, writer: Writer, clock: Clock, rng: Rng, may_create: MayCreate) -> None:
        self._connecting = Connecting(store, writer, clock)
        self._logs = Logs(self._connecting, clock)
        self._proxying = Proxying(store, writer, rng)
        self._may_create = may_create

    async def answer(self, asked: Route, request: Request) -> Response:
        """Raises: StatusError."""
        name = asked.subresource.name if asked.subresource is not None else ""
        if name == "log":
            check_log_accepted(request.accept)
            return framed(await self._logs.log(asked, request.query), request)
        if name == PROXY:
            return await self._proxying.proxy(asked, request)
        return await self._connecting.connect(asked, request, self._may_create)

    async def stop(self) -> None:
        await self._connecting.runtime.stop()

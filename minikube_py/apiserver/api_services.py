"""The APIServices: what discovery lists, which kinds they turn on, and which of them this server has to change.

Source: kube-aggregator `pkg/apiserver/handler_apis.go`, `pkg/controllers/autoregister`; kubernetes
`pkg/controlplane/controller/crdregistration`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import orjson

from minikube_py.api.discovery import Listed, Remote
from minikube_py.api.errors import Json, StatusError
from minikube_py.api.kind import Kind
from minikube_py.api.kinds.apiregistration import (
    APISERVICES,
    LOCAL,
    is_local,
    listed_of,
    of_definitions,
    served_here,
    with_condition,
)
from minikube_py.api.kinds.core import CONFIGMAPS
from minikube_py.api.kinds.metrics import NODE_METRICS, ON_REQUEST
from minikube_py.apiserver.inflight import Slots
from minikube_py.apiserver.messages import Request, Response
from minikube_py.apiserver.outgoing import FrontProxy
from minikube_py.apiserver.watch_cache import Entry
from minikube_py.env import ended
from minikube_py.errors import MinikubeError

if TYPE_CHECKING:
    from minikube_py.apiserver.aggregation import Aggregation
    from minikube_py.apiserver.core import ApiServer

_METRICS: Final = f"{NODE_METRICS.version}.{NODE_METRICS.group}"


_PREFIX: Final = APISERVICES.prefix.decode()
_SYSTEM: Final = "kube-system"
_TRUSTED_NAME: Final = "extension-apiserver-authentication"
_TRUSTED: Final = CONFIGMAPS.key(_SYSTEM, _TRUSTED_NAME)
_LISTS: Final = {
    "requestheader-username-headers": "X-Remote-User", "requestheader-uid-headers": "X-Remote-Uid",
    "requestheader-group-headers": "X-Remote-Group", "requestheader-extra-headers-prefix": "X-Remote-Extra-",
}  # fmt: skip


class Known(NamedTuple):
    """An APIService as it was at a revision. `local`: it names no service; `wrong`: it is local, and not said to be
    available; `listed`: what the lists of groups tell of it."""

    revision: int
    service: Json
    local: bool
    wrong: bool
    listed: tuple[str, str, int, int]


class ApiServices:
    """`follow` is to be called whenever the cache has changed, and `define` with the served versions of definitions."""

    def __init__(self, server: ApiServer) -> None:
        self._server = server
        self._cache = server.cache.caches.get(APISERVICES)
        self._seen = -1
        self._needed = asyncio.Event()
        self._proxy: FrontProxy | None = None
        self._trusted = self._begun = False
        self._task: asyncio.Task[None] | None = None
        self.changed = asyncio.Event()
        """To be cleared by who acts on it."""
        self.known: dict[str, Known] = {}
        self.defined: dict[str, Json] = {}
        """The APIServices of definitions, by name."""
        self.standing = {each["metadata"]["name"] for each in served_here(server.registry.group_versions)}
        """The names of those that every server makes at its start."""
        self.listed: Listed | None = None if self._cache is None else ()
        self.groups: frozenset[str] = frozenset()
        self.remote: tuple[Remote, ...] = ()
        self.elsewhere: Aggregation | None = None
        self.at_start: frozenset[str] = frozenset()

    def follow(self) -> None:
        cache = self._cache
        if self.elsewhere is not None:
            self.elsewhere.follow()
        if cache is None or cache.last_change == self._seen:
            return
        self._seen = cache.last_change
        before = self.known
        named = ((each.key.decode().removeprefix(_PREFIX), each) for each in cache.entries.values())
        self.known = {name: _read(each, before.get(name)) for name, each in named}
        self.listed = tuple(each.listed for each in self.known.values())
        self.groups = frozenset(group for group, *_ in self.listed)
        self._look()
        self._divide()

    def pass_on(self, proxy: FrontProxy) -> None:
        """From now on, this server passes requests on to other servers; `proxy` is how these know it."""
        self._proxy = proxy
        self._server.writer.cluster.passes_on = True
        self._divide()
        self._work()

    async def keep_trusted(self) -> None:
        """The ConfigMap by which other servers know this one and its users: made, completed once, made again. Raises:
        StatusError, MinikubeError."""
        proxy, server = self._proxy, self._server
        if proxy is None or CONFIGMAPS not in server.cache.caches:
            return
        there = _TRUSTED in server.cache.of(CONFIGMAPS).entries
        if there and self._trusted:
            return

        def completed(old: Json) -> Json:
            data = {**(old.get("data") or {}), **trusted(proxy, old.get("data") or {})}
            return old if data == old.get("data") else {**old, "metadata": dict(old["metadata"]), "data": data}

        if there:
            await server.writer.change(CONFIGMAPS, _SYSTEM, _TRUSTED_NAME, completed)
        elif data := trusted(proxy, {}):
            made = {"metadata": {"name": _TRUSTED_NAME, "namespace": _SYSTEM}, "data": data}
            await server.writer.create_object(CONFIGMAPS, _SYSTEM, made)
        self._trusted = True

    def _divide(self) -> None:
        """Between this server and others, which are asked once it has started."""
        proxy, here = self._proxy, all(each.local for each in self.known.values())
        if self.elsewhere is None and self._begun and proxy is not None and not here:
            from minikube_py.apiserver.aggregation import Aggregation

            self.elsewhere = Aggregation(self._server, self, proxy)
        if self.elsewhere is not None:
            self.elsewhere.take(self.known)

    def forwarder(self, path: str) -> Callable[[Request, str, Slots | None], Coroutine[Any, Any, Response]] | None:
        """Gets the answer of another server, if the path is one of its: also if it is no more, once it is called."""
        if self.elsewhere is None or (remote := self.elsewhere.of(path)) is None:
            return None
        return partial(self.elsewhere.forward, remote)

    def define(self, versions: Iterable[tuple[str, str]]) -> None:
        """The served groups and versions of all definitions."""
        made = {f"{version}.{group}": (group, version) for group, version in versions}
        if self._cache is not None and made.keys() != self.defined.keys():
            self.defined = {name: self.defined.get(name) or of_definitions(*each) for name, each in made.items()}
            self._look()

    def _look(self) -> None:
        self.changed.set()
        if self.defined or any(name not in self.standing or each.wrong for name, each in self.known.items()):
            self._needed.set()
            self._work()

    def kinds(self) -> tuple[Kind, ...]:
        """Those that an APIService turns on."""
        found = self.known.get(_METRICS)
        return ON_REQUEST if found is not None and found.service["spec"].get("service") is None else ()

    def begin(self) -> None:
        """The server has started, and may write."""
        self._begun, self.at_start = True, frozenset(self.known)
        self._divide()
        self._work()

    def _work(self) -> None:
        """A server that changes nothing has no task for it."""
        if self._begun and self._task is None and (self._needed.is_set() or self._proxy is not None):
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        # If it fails, `keep_trusted` is called again soon.
        with suppress(StatusError, MinikubeError):
            await self.keep_trusted()
        await self._needed.wait()
        from minikube_py.apiserver.registration import Registration

        await Registration(self._server, self).run()

    async def stop(self) -> None:
        self._begun = False
        if self._task is not None:
            self._task.cancel()
            await ended(self._task)
        if self.elsewhere is not None:
            await self.elsewhere.stop()


def trusted(proxy: FrontProxy, known: Json) -> Json:
    """The data of that ConfigMap, beside what is `known`: several servers may have different authorities.

    Source: kubernetes `pkg/controlplane/controller/clusterauthenticationtrust`."""
    found: Json = {}
    if proxy.clients_pem:
        found["client-ca-file"] = _joined(known.get("client-ca-file") or "", proxy.clients_pem)
    if proxy.authority_pem:
        authority = "requestheader-client-ca-file"
        found[authority] = _joined(known.get(authority) or "", proxy.authority_pem)
        for key, name in {**_LISTS, "requestheader-allowed-names": proxy.name}.items():
            try:
                names = orjson.loads(known.get(key) or "[]")
            except orjson.JSONDecodeError:
                names = []
            names = names if isinstance(names, list) else []
            found[key] = orjson.dumps(names if name in names else [*names, name]).decode()
    return found


def _joined(known: str, pem: str) -> str:
    known = known if not known or known.endswith("\n") else f"{known}\n"
    return known if pem.strip() in known else f"{known}{pem}"


def _read(entry: Entry, before: Known | None) -> Known:
    same = before is not None and before.revision == entry.revision
    if before is not None and same:
        return before
    service = entry.decode()
    local = is_local(service)
    wrong = local and with_condition(service, *LOCAL, "") is not service
    return Known(entry.revision, service, local, wrong, listed_of(service))

"""The page over HTTP, as paths of the API server.

| Path under `/minikube-py/ui/` | Who may | What |
|---|---|---|
| ``, `page.js`, `page.css` | everybody | the page itself; it holds no data and loads nothing from outside |
| `POST login` | whoever has the link, once | a session for the bearer of the link's code, which is used up |
| `GET link` | an administrator of the cluster, with kubectl | another link, for one more browser |
| `state?since=N&group=LABEL` | a session | what changed after N: within 2 s, 0.1 s between answers |
| `node?name=`, `pod?key=` | a session | details; of a pod also what `explain pod` says |
| `match?where=` | a session | names of the nodes that a field selector finds, inequalities included |

Sessions and codes are users in no group, to whom no role applies: they read what this page shows, and nothing else of
the API. Nodes and pods are watched only while somebody looks; `IDLE_S` after the last question the watches end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from importlib.resources import files
from typing import Any, Final
from urllib.parse import quote

import orjson

from minikube_py.api.errors import StatusError, bad_request, method_not_allowed, path_not_found, service_unavailable
from minikube_py.api.meta import new_uid
from minikube_py.apiserver.auth import ADMIN
from minikube_py.apiserver.core import ApiServer
from minikube_py.apiserver.inprocess import InProcessTransport
from minikube_py.apiserver.messages import PAGE, Request, Response
from minikube_py.apiserver.rules import MASTERS, User
from minikube_py.apiserver.scheduling import EXPLAIN_PODS
from minikube_py.client.informer import Handler, Informer
from minikube_py.client.rest import NODES, PODS, RestClient
from minikube_py.env import Clock, Rng, ended, run_until
from minikube_py.ui.view import ZONE, NodeFacts, PodFacts, View, node_facts, pod_facts

IDLE_S: Final = 15.0
WAIT_MAX_S: Final = 2.0
BETWEEN_S: Final = 0.1
FIRST_MAX_S: Final = 10.0
"""For the first lists; then the page asks again. Less than IDLE_S, so that they go on meanwhile."""
SESSIONS_MAX: Final = 16
LINKS_MAX: Final = 16
"""Of both, the oldest ends when another starts."""
LINK_LIFE_S: Final = 3600
MATCHED_MAX: Final = 20_000
ROWS_AT_ONCE: Final = 500
RANKED: Final = 6
"""Nodes in the table of a pod: its own, and the current top ones."""

_GUEST: Final = "minikube-py:page-login"
_VIEWER: Final = User("minikube-py:page")
_FILES: Final = {
    "": (("page.html",), "text/html; charset=utf-8"),
    "page.js": (("grid.js", "page.js"), "text/javascript; charset=utf-8"),
    "page.css": (("page.css",), "text/css; charset=utf-8"),
}
_HEADERS: Final = {
    "Content-Security-Policy": "default-src 'self'; img-src data:; frame-ancestors 'none'; base-uri 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
_METADATA_ONLY: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"


class Page:
    """`ApiServer.page` of a control plane that runs in one process, at `server`. `secret` draws codes that nobody can
    guess."""

    def __init__(self, core: ApiServer, clock: Clock, rng: Rng, secret: Callable[[], str], server: str = "") -> None:
        self._server = server
        self._core, self._clock, self._rng, self._secret = core, clock, rng, secret
        self._transport = InProcessTransport(core)
        self._links: dict[User, tuple[str, float]] = {}  # Who may log in -> the code, and when it was made.
        self._sessions: dict[str, None] = {}
        self._view = View()
        self._informers: list[Informer[Any]] = []
        self._idle: asyncio.Task[None] | None = None
        self._asked_s = 0.0
        self._changed = asyncio.Event()
        self._turn = asyncio.Lock()
        """One answer is made at a time, however many wait: of nodes in slices, of `explain pod` in one step."""

    def link(self) -> str:
        """A single-use path to the page. Its code is in the fragment, which browsers do not send."""
        if len(self._links) >= LINKS_MAX:
            self._use_up(next(iter(self._links)))
        code, guest = self._secret(), User(_GUEST, uid=new_uid(self._rng))
        self._links[guest] = code, self._clock.monotonic_s()
        self._core.access.authenticator.add(code, guest)
        return f"{PAGE}#{code}"

    def _use_up(self, guest: User) -> float:
        """When the link was made. Raises: KeyError."""
        code, made_s = self._links.pop(guest)
        self._core.access.authenticator.remove(code)
        return made_s

    async def stop(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
            await ended(self._idle)
        await self._forget(self._informers)

    async def answer(self, request: Request) -> Response:
        """Raises: StatusError 400, 401, 403, 404, 405, 503."""
        name = request.path.removeprefix(PAGE)
        if name in _FILES:
            return _file(name, request)
        if request.wanted is not None:
            await self._core.access.admit(request, None, request.method.lower())
        if name == "login":
            return self._login(request)
        if name == "link":
            if request.user is None or MASTERS not in request.user.groups:
                raise _not_logged_in()
            if request.method != "GET":
                raise method_not_allowed()
            return Response(200, f"{self._server}{self.link()}\n".encode(), "text/plain; charset=utf-8", _HEADERS)
        questions: Mapping[str, Callable[[Mapping[str, str]], Awaitable[Any]]] = {
            "state": self._state,
            "node": self._node,
            "pod": self._pod,
            "match": self._match,
        }
        if name not in questions:
            raise path_not_found()
        if request.user != _VIEWER:
            raise _not_logged_in()
        if request.method != "GET":
            raise method_not_allowed()
        await self._look()
        return _json(await questions[name](request.query))

    def _login(self, request: Request) -> Response:
        if request.method != "POST":
            raise method_not_allowed()
        if request.user not in self._links or self._use_up(request.user) + LINK_LIFE_S < self._clock.monotonic_s():
            raise _not_logged_in()
        authenticator = self._core.access.authenticator
        if len(self._sessions) >= SESSIONS_MAX:
            oldest = next(iter(self._sessions))
            del self._sessions[oldest]
            authenticator.remove(oldest)
        session = self._secret()
        self._sessions[session] = None
        authenticator.add(session, _VIEWER)
        return _json({"session": session})

    # --- what is watched --------------------------------------------------------------------------------------------

    async def _look(self) -> None:
        """No request owns the watches: one that is cancelled leaves them to the next, or to `_until_idle`."""
        self._asked_s = self._clock.monotonic_s()
        if any(informer.failure is not None for informer in self._informers):
            await self._forget(self._informers)
        if not self._informers:
            self._watch()
        view, until_s = self._view, self._asked_s + FIRST_MAX_S
        try:
            for informer in self._informers:
                await run_until(self._clock, until_s, informer.wait_synced())
        except TimeoutError:
            raise service_unavailable("nodes and pods are still being listed") from None
        view.live = True

    def _watch(self) -> None:
        view, client = self._view, RestClient(self._transport)

        def put_pod(pod: PodFacts) -> None:
            view.put_pod(pod, self._clock.wall_s())

        put_node, more = view.put_node, self._changed.set
        nodes: Informer[NodeFacts] = Informer(client, NODES, node_facts, clock=self._clock, rng=self._rng)
        pods: Informer[PodFacts] = Informer(client, PODS, pod_facts, clock=self._clock, rng=self._rng)
        nodes.add_handler(Handler(put_node, lambda _, new: put_node(new), lambda old: view.remove_node(old.name), more))
        pods.add_handler(Handler(put_pod, lambda _, new: put_pod(new), lambda old: view.remove_pod(old.key), more))
        self._informers = [nodes, pods]
        for informer in self._informers:
            informer.start()
        watching = self._until_idle(self._informers)
        self._idle = asyncio.get_running_loop().create_task(watching, name="page: while somebody watches")

    async def _until_idle(self, informers: list[Informer[Any]]) -> None:
        while self._informers is informers and (left_s := self._asked_s + IDLE_S - self._clock.monotonic_s()) > 0:
            await self._clock.sleep(left_s)
        await self._forget(informers)

    async def _forget(self, informers: list[Informer[Any]]) -> None:
        """The next look starts others, with a view of their own, even before these have ended."""
        if self._informers is informers:
            self._informers, self._view = [], View(self._view.sequence + 1)
            self._changed.set()
        for informer in informers:
            await informer.stop()

    # --- questions --------------------------------------------------------------------------------------------------

    async def _state(self, query: Mapping[str, str]) -> Any:
        since = _number(query.get("since", "0"))
        await self._clock.sleep(BETWEEN_S)
        until_s = self._clock.monotonic_s() + WAIT_MAX_S
        with suppress(TimeoutError):
            while self._view.sequence == since:
                self._changed.clear()
                await run_until(self._clock, until_s, self._changed.wait())
        async with self._turn:
            view, rows = self._view, []
            answer = {**view.changes(since), **view.summary(since), "now": self._clock.wall_s()}
            for at in range(0, len(answer["nodes"]), ROWS_AT_ONCE):
                found = view.rows(answer["nodes"][at : at + ROWS_AT_ONCE], query.get("group", ZONE))
                rows += [orjson.dumps(found)[1:-1]] if found else []
                await asyncio.sleep(0)
            store = _raft(self._core.storage.metrics())
            return {**answer, "store": store, "nodes": orjson.Fragment(b"[%b]" % b",".join(rows))}

    async def _node(self, query: Mapping[str, str]) -> Any:
        return _found(self._view.node(query.get("name", "")))

    async def _pod(self, query: Mapping[str, str]) -> Any:
        key = query.get("key", "")
        pod = _found(self._view.pod(key))
        status, explained = await self._read(f"{EXPLAIN_PODS}{quote(key)}", {"limit": str(RANKED)})
        if status != 200:
            return {**pod, "explained": {"problem": explained.get("message", "")}}
        decision, now_s = explained["decision"] or {}, self._clock.wall_s()
        ended = "scored" if decision.get("node") else "refused"
        for name, at in (("queued", "queuedS"), ("attempted", "startedS"), (ended, "atS")):
            if decision.get(at) is not None:
                pod["moments"][name] = now_s - (explained["nowS"] - decision[at])
        return {**pod, "explained": explained}

    async def _match(self, query: Mapping[str, str]) -> Any:
        """`more`: those beyond MATCHED_MAX are left out. Upstream's error for an invalid selector."""
        params = {"fieldSelector": query.get("where", ""), "limit": str(MATCHED_MAX)}
        status, body = await self._read("/api/v1/nodes", params)
        if status != 200:
            raise bad_request(str(body.get("message", "")))
        names = [each["metadata"]["name"] for each in body["items"]]
        return {"names": names, "more": bool(body["metadata"].get("continue"))}

    async def _read(self, path: str, query: Mapping[str, str]) -> tuple[int, Any]:
        """As an administrator: the page filters what a session sees."""
        async with self._turn:
            response = await self._core.handle(Request("GET", path, query, user=ADMIN, accept=_METADATA_ONLY))
            parts = []
            try:
                for part in response.pieces or (response.body,):
                    parts.append(part)
                    await asyncio.sleep(0)
            finally:
                response.sent()
            return response.status, orjson.loads(b"".join(parts))


def _file(name: str, request: Request) -> Response:
    if request.method not in ("GET", "HEAD"):
        raise method_not_allowed()
    parts, content_type = _FILES[name]
    folder = files("minikube_py.ui") / "static"
    response = Response(200, b"".join((folder / part).read_bytes() for part in parts), content_type, _HEADERS)
    response.exact = True
    return response


def _json(value: Any) -> Response:
    response = Response(200, orjson.dumps(value), headers=_HEADERS)
    response.exact = True
    return response


def _raft(metrics: Mapping[str, float]) -> dict[str, float]:
    """The store's series that the panel shows, by their names without the prefix."""
    prefix = "minikube_py_store_"
    return {name.removeprefix(prefix): value for name, value in metrics.items() if name.startswith(f"{prefix}raft_")}


def _number(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise bad_request(f"since: {text!r} is not a number of at most 18 digits")
    return int(text)


def _found(value: dict[str, Any] | None) -> dict[str, Any]:
    if value is None:
        raise StatusError(404, "NotFound", "it does not exist, or no longer exists", None)
    return value


def _not_logged_in() -> StatusError:
    text = f"open the link that `up --ui` printed: it works once, within an hour. Another: kubectl get --raw {PAGE}link"
    return StatusError(401, "Unauthorized", text, None)

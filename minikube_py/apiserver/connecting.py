"""`pods/exec`, `pods/attach` and `pods/portforward`: connections into a pod.

This module authorizes, selects the container (with upstream's messages), and upgrades the connection. `containers`
plays the kubelet in this process: each API server has its own containers.

Source: `pkg/registry/core/pod/rest/subresources.go`, `pkg/registry/core/pod/strategy.go` (streamLocation).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from itertools import islice
from typing import Final, NamedTuple
from urllib.parse import parse_qsl

import orjson

from minikube_py.api.errors import Json, bad_request, go_quote, not_found
from minikube_py.api.kinds.core import PODS
from minikube_py.api.meta import timestamp
from minikube_py.apiserver.messages import TEXT, Request, Response
from minikube_py.apiserver.object_store import ObjectStore
from minikube_py.apiserver.options import parse_bool
from minikube_py.apiserver.routes import Route
from minikube_py.apiserver.writes import Writer
from minikube_py.containers import remote, serving
from minikube_py.containers.runtime import Container, NotThere, Runtime, Streams
from minikube_py.env import Clock

_LOOKED_AFTER: Final = 4
"""How many cached containers each new connection checks, to drop those of deleted pods."""
MayCreate = Callable[[Request], Awaitable[None]]


class Given(NamedTuple):
    """The options from a connection's query."""

    container: str
    wanted: remote.Wanted
    command: tuple[str, ...]
    ports: tuple[int, ...]

    def as_object(self, kind: str) -> Json:
        """The object for admission."""
        found: Json = {"kind": kind, "apiVersion": "v1"}
        if kind == "PodPortForwardOptions":
            return {**found, "ports": list(self.ports)} if self.ports else found
        found |= {name: True for name, value in self.wanted._asdict().items() if value}
        if self.container:
            found["container"] = self.container
        return {**found, "command": list(self.command)} if kind == "PodExecOptions" else found


def given_of(request: Request) -> Given:
    """Raises: StatusError 400."""
    query = request.query
    pairs = parse_qsl(request.head.query, keep_blank_values=True) if request.head is not None else list(query.items())
    wanted = remote.Wanted(*(parse_bool(query, name) for name in ("stdin", "stdout", "stderr", "tty")))
    return Given(
        query.get("container", ""),
        # A terminal has one output.
        wanted._replace(stderr=wanted.stderr and not wanted.tty),
        tuple(value for name, value in pairs if name == "command"),
        _ports(value for name, value in pairs if name == "ports"),
    )


def _ports(values: Iterable[str]) -> tuple[int, ...]:
    """Up to one beyond the limit, to be refused. Raises: StatusError 400."""
    found: list[int] = []
    for text in islice((part for value in values for part in value.split(",")), remote.PORTS_MAX + 1):
        digits = text.isascii() and text.isdigit()
        if not digits or int(text[:40]) >= 1 << 16:
            wrong = "value out of range" if digits else "invalid syntax"
            raise bad_request(f"cannot convert to []int32: strconv.ParseUint: parsing {go_quote(text)}: {wrong}")
        found.append(int(text))
    return tuple(found)


class Connecting:
    def __init__(self, store: ObjectStore, writer: Writer, clock: Clock) -> None:
        self.runtime = Runtime(clock)
        self._store = store
        self._writer = writer
        self._clock = clock

    async def connect(self, route: Route, request: Request, may_create: MayCreate) -> Response:
        """A response that upgrades the connection. Raises: StatusError 400, 403, 404."""
        # A browser's WebSocket is a GET; read permission must not suffice.
        await may_create(request)
        assert route.subresource is not None
        given = given_of(request)
        passage = self._writer.enter(route, request, "CONNECT")
        if passage is not None:
            await passage.allow(None, given.as_object(route.subresource.kind))
        pod = await self.pod(route)
        name = route.subresource.name
        container = "" if name == "portforward" else container_of(pod, given.container)
        if not pod["spec"].get("nodeName"):
            raise bad_request(f"pod {route.name} does not have a host assigned")
        asked = remote.asked_of(request.head.values) if request.head is not None else None
        if asked is None or not asked.upgrades:
            raise bad_request("Upgrade request required")
        await self._look_after()
        try:
            response = Response(101)
            response.upgrade = self._upgrade(name, pod, container, asked, given)
            return response
        except NotThere as error:
            return Response(500 if name != "portforward" else 404, f"{error}\n".encode(), TEXT)
        except remote.Refused as error:
            return Response(error.status, f"{error}\n".encode(), TEXT, error.headers)

    async def pod(self, route: Route) -> Json:
        """Raises: StatusError 404."""
        found = await self.find(route)
        if found is None:
            raise not_found(PODS, route.name)
        return found

    async def find(self, route: Route) -> Json | None:
        kv = await self._store.get(PODS.key(route.namespace, route.name))
        return orjson.loads(kv.value) if kv is not None else None

    def _upgrade(self, name: str, pod: Json, container: str, asked: remote.Asked, given: Given) -> remote.Upgrade:
        """Raises: NotThere, Refused."""
        metadata = pod["metadata"]
        if name == "portforward":
            if (pod.get("status") or {}).get("phase") != "Running":
                raise NotThere("pod does not exist")
            dial = partial(serving.serve, pod)
            return remote.forward(asked, given.ports, metadata["name"], metadata["uid"], dial)
        wanted = given.wanted
        if not (wanted.stdin or wanted.stdout or wanted.stderr):
            raise remote.Refused(400, "you must specify at least 1 of stdin, stdout, stderr")
        found = self.runtime.find(pod, container)
        attach = name == "attach"
        argv = (*(found.spec.get("command") or ()), *(found.spec.get("args") or ())) if attach else given.command
        run = self._attach(pod, found) if attach else partial(self._exec, found, list(given.command))
        return remote.command(asked, given.wanted, argv, run, self._clock.sleep)

    async def _exec(self, container: Container, argv: list[str], streams: Streams) -> int:
        with self.runtime.use(container):
            return await self.runtime.exec(container, argv, streams)

    def _attach(self, pod: Json, container: Container) -> remote.Run:
        async def run(streams: Streams) -> int:
            with self.runtime.use(container):
                code = await self.runtime.attach(container, streams)
            await self._ended(pod, container, code)
            return 0

        return run

    async def _ended(self, pod: Json, container: Container, code: int) -> None:
        """An attached client ended the container's main process: updates its status as a kubelet would."""
        uid, now = pod["metadata"]["uid"], timestamp(self._clock.wall_s())

        def make(old: Json) -> Json:
            if old["metadata"]["uid"] == uid:
                _end_container(old, container.name, code, now)
            return old

        await self._writer.change(PODS, container.namespace, container.pod, make, may_be_absent=True)

    async def _look_after(self) -> None:
        for key, namespace, name in self.runtime.oldest(_LOOKED_AFTER):
            kv = await self._store.get(PODS.key(namespace, name))
            if kv is None or orjson.loads(kv.value)["metadata"]["uid"] != key.uid:
                self.runtime.drop(key)


def container_of(pod: Json, wanted: str) -> str:
    """The selected container. Raises: StatusError 400."""
    spec, name = pod["spec"], pod["metadata"]["name"]
    parts = ("initContainers", "containers", "ephemeralContainers")
    names = [each["name"] for part in parts for each in spec.get(part) or ()]
    if wanted:
        if wanted not in names:
            raise bad_request(f"container {wanted} is not valid for pod {name}")
        return wanted
    own: list[Json] = spec.get("containers") or []
    if len(own) != 1:
        listed = " ".join(names)
        raise bad_request(f"a container name must be specified for pod {name}, choose one of: [{listed}]")
    return str(own[0]["name"])


def _end_container(pod: Json, name: str, code: int, now: str) -> None:
    """Marks it terminated in place, and restarted if the restart policy says so."""
    status, policy = pod["status"], pod["spec"].get("restartPolicy", "Always")
    entry = next((each for each in status.get("containerStatuses") or () if each["name"] == name), None)
    running = ((entry or {}).get("state") or {}).get("running")
    if entry is None or running is None:
        return
    reason = "Error" if code else "Completed"
    ended = {"terminated": {"exitCode": code, "reason": reason, "startedAt": running["startedAt"], "finishedAt": now,
                            "containerID": entry["containerID"]}}  # fmt: skip
    if policy == "Always" or (policy == "OnFailure" and code):
        entry |= {"lastState": ended, "state": {"running": {"startedAt": now}},
                  "restartCount": (entry.get("restartCount") or 0) + 1}  # fmt: skip
        return
    entry |= {"state": ended, "ready": False, "started": False}
    states = [each["state"].get("terminated") for each in status["containerStatuses"]]
    if all(states):
        failed = any(each["exitCode"] for each in states)
        status["phase"] = "Failed" if failed else "Succeeded"
        for condition in status.get("conditions") or ():
            if condition["type"] in ("Ready", "ContainersReady"):
                reason = "PodFailed" if failed else "PodCompleted"
                condition |= {"status": "False", "reason": reason, "lastTransitionTime": now}

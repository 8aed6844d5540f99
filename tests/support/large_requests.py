"""Sends a filled object in every way to a whole control plane, and measures the longest step of its loop for each.

What worker processes would do is done here and not counted. Steps are in milliseconds of this thread's CPU."""

from __future__ import annotations

import asyncio
import copy
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import orjson
from large_fields import OBJECTS, Filled, Json, Place, kind_of

from minikube_py.apiserver.auth import ADMIN
from minikube_py.apiserver.messages import Request, parse_query
from minikube_py.apiserver.work import WorkHere
from minikube_py.cluster.virtual import VirtualCluster
from minikube_py.sim.loop import SimLoop

MERGE, STRATEGIC = "application/merge-patch+json", "application/strategic-merge-patch+json"
JSON, JSON_PATCH, APPLY = "application/json", "application/json-patch+json", "application/apply-patch+yaml"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
SCALE = {"spec": {"replicas": 1}}
MENDED_MAX = 40
REST_S = 2.0
SCALED = ("deployments", "replicasets", "statefulsets", "replicationcontrollers")
NOT_SET_UP = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations", "namespaces", "servicecidrs")
"""Others of these would be in the way of all other writes."""


class Step(NamedTuple):
    """`longest_ms`: while the request is answered; `after_ms`: in what components do next."""

    what: str
    status: int
    sent_bytes: int
    longest_ms: float
    after_ms: float


class Steps:
    def __init__(self) -> None:
        self.longest_s = self.began_s = 0.0

    def ended(self) -> None:
        now_s = time.thread_time()
        self.longest_s = max(self.longest_s, now_s - self.began_s)
        self.began_s = now_s

    def restart(self) -> float:
        longest_s, self.longest_s, self.began_s = self.longest_s, 0.0, time.thread_time()
        return longest_s * 1000

    @contextmanager
    def left_out(self) -> Iterator[None]:
        before_s = time.thread_time()
        try:
            yield
        finally:
            self.began_s += time.thread_time() - before_s


class Away(WorkHere):
    def __init__(self, steps: Steps) -> None:
        super().__init__()
        self._steps = steps

    async def run(self, job: str, *given: Any) -> Any:
        with self._steps.left_out():
            return self.now(job, *given)


class Sender:
    def __init__(self, cluster: VirtualCluster) -> None:
        self._cluster = cluster
        self._steps = Steps()
        self._core = cluster.plane.core
        self._core.hand_work_to(Away(self._steps))

    async def ask(
        self, method: str, path: str, body: Any = None, content_type: str = JSON, accept: str = JSON
    ) -> tuple[int, bytes]:
        path, _, query = path.partition("?")
        sent = body if isinstance(body, bytes) else orjson.dumps(body) if body is not None else b""
        answer = await self._core.handle(Request(method, path, parse_query(query), sent, ADMIN, accept, content_type))
        if answer.pieces is None:
            return answer.status, answer.body
        pieces = []
        for piece in answer.pieces:
            pieces.append(piece)
            await asyncio.sleep(0)
        return answer.status, b"".join(pieces)

    async def set_up(self) -> None:
        """One object of most kinds."""
        await self.ask("POST", "/api/v1/namespaces", {"metadata": {"name": "drawn"}})
        for plural, (path, body) in OBJECTS.items():
            if plural not in NOT_SET_UP:
                await self.ask("POST", path, {**body, "metadata": {"name": "one", **body.get("metadata", {})}})

    async def measured(self, what: str, method: str, path: str, body: Any = None, *more: str) -> Step:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimLoop)
        sent = orjson.dumps(body) if body is not None else b""
        await asyncio.sleep(0)
        self._steps.restart()
        loop.after_step = self._steps.ended
        try:
            status, _ = await self.ask(method, path, sent, *more)
            await asyncio.sleep(0)
            longest_ms = self._steps.restart()
            await self._cluster.clock.sleep(REST_S)
            return Step(what, status, len(sent), longest_ms, self._steps.restart())
        finally:
            loop.after_step = None

    async def mended(self, filled: Filled) -> bool:
        """Whether validation accepts two of the items, in the end."""
        target, verb = (self._target(filled), "PUT") if filled.status else (OBJECTS[filled.place.plural][0], "POST")
        for _ in range(MENDED_MAX):
            status, answer = await self.ask(verb, f"{target}?dryRun=All", filled.made(2))
            if status < 300:
                return True
            causes = (orjson.loads(answer).get("details") or {}).get("causes") or []
            if not filled.mend(causes):
                return False
        return False

    def _target(self, filled: Filled) -> str:
        place = f"{OBJECTS[filled.place.plural][0]}/{filled.base['metadata']['name']}"
        return f"{place}/status" if filled.status else place

    async def steps_of(self, place: Place, name: str, size: int) -> AsyncIterator[Step]:
        """With items that are accepted, and with others."""
        filled = Filled.of(place, name)
        if filled.status:
            await self.ask("POST", OBJECTS[place.plural][0], filled.base)
        accepted = await self.mended(filled)
        for form in (filled, filled.refusable()):
            async for step in self._sent(form, size):
                yield step
        if not accepted:
            yield Step(f"{place}: never accepted", 0, 0, 0.0, 0.0)

    async def _sent(self, filled: Filled, size: int) -> AsyncIterator[Step]:
        place, obj = filled.place, filled.sized(size)
        path, target = OBJECTS[place.plural][0], self._target(filled)
        one, top = target.removesuffix("/status"), str(place.steps[0])
        first = ("PUT", target) if filled.status else ("POST", path)
        step = await self.measured(f"{place}: created", *first, obj)
        yield step
        if step.status < 300:
            relabelled = copy.deepcopy(obj)
            relabelled["metadata"]["generateName"] = "b"
            kind = kind_of(place.plural)
            config: Json = {"kind": kind.kind, "apiVersion": kind.api_version, **obj}
            noted = {"metadata": {"annotations": {"a": "b"}}}
            added = [{"op": "add", "path": "/metadata/generateName", "value": "c"}]
            for what, method, to, body, *more in (
                ("read as a table", "GET", one, None, JSON, TABLE),
                ("listed as a table", "GET", path, None, JSON, TABLE),
                ("dry run", "PUT", f"{target}?dryRun=All", obj),
                ("updated", "PUT", target, relabelled),
                ("merge patch", "PATCH", target, noted, MERGE),
                ("merge patch of all", "PATCH", target, {top: obj[top]}, MERGE),
                ("strategic merge patch", "PATCH", target, noted, STRATEGIC),
                ("JSON patch", "PATCH", target, added, JSON_PATCH),
                ("applied", "PATCH", f"{target}?fieldManager=m&force=true", config, APPLY),
                ("applied by another", "PATCH", f"{target}?fieldManager=n&force=true", config, APPLY),
                *([("scaled", "PATCH", f"{one}/scale", SCALE, MERGE)] if place.plural in SCALED else []),
            ):  # fmt: skip
                yield await self.measured(f"{place}: {what}", method, to, body, *more)
        yield await self.measured(f"{place}: deleted", "DELETE", f"{one}?gracePeriodSeconds=0")
        await self.ask("PATCH", one, {"metadata": {"finalizers": None}}, MERGE)
        if filled.status:
            await self.ask("POST", path, filled.base)

"""Clients of simulated API servers: they create, change, read and delete a few ConfigMaps, and watch them all.

Each object is a register whose content is the value under one key of its data: so the API's answers are checked by the
same checker as the store's registers. Values are unique."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from minikube_py.api.errors import StatusError
from minikube_py.client.rest import CONFIG_MAPS, RestClient, path_of
from minikube_py.env import Clock, Rng
from minikube_py.errors import MinikubeError, OutcomeUnknown
from minikube_py.mvcc.types import Compare, DeleteRange, DeleteResult, KeyValue, Put, RangeRequest, RangeResult, Txn
from minikube_py.mvcc.types import TxnResult as Swapped
from minikube_py.sim.clients import Traffic
from minikube_py.sim.recorder import Recorder

NAMESPACE: Final = "default"
NAMES: Final = tuple(f"c{number}" for number in range(5))
UNKNOWN_CODES: Final = frozenset((500, 502, 504))
LIST_PAGE: Final = 2
PAUSE_S: Final = 0.05


def key_of(name: str) -> bytes:
    return b"/configmaps/" + name.encode()


class ApiClient:
    """`seen`: name to (value, resourceVersion), from the last answer."""

    def __init__(
        self, rest: RestClient, clock: Clock, rng: Rng, number: int, traffic: Traffic, recorder: Recorder
    ) -> None:
        self._rest = rest
        self._clock = clock
        self._rng = rng
        self._number = number
        self._traffic = traffic
        self._recorder = recorder
        self._drawn = 0
        self._seen: dict[str, tuple[str, str]] = {}

    async def work(self) -> None:
        traffic = self._traffic
        while True:
            await traffic.wait()
            await self._clock.sleep(self._rng.random() * traffic.think_s)
            if traffic.quota > 0:
                traffic.quota -= 1
                await self._one()

    async def audit(self) -> None:
        """Reads every object once."""
        for name in NAMES:
            await self._get(name)

    async def _one(self) -> None:
        name, kind = self._rng.choice(NAMES), self._rng.random()
        if kind < 0.25:
            await self._create(name)
        elif kind < 0.5:
            await self._get(name)
        elif kind < 0.8:
            await self._update(name)
        elif kind < 0.9:
            await self._delete(name)
        else:
            await self._list()

    def _value(self) -> str:
        self._drawn += 1
        return f"{self._number}.{self._drawn}"

    # -- requests as operations on registers --------------------------------------------------------------------------

    async def _create(self, name: str) -> None:
        value, key = self._value(), key_of(name)
        request = Txn((Compare(key, "VERSION", "=", 0),), (Put(key, value.encode()),), (RangeRequest(key),))
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"v": value}}
        path = path_of(CONFIG_MAPS, NAMESPACE)
        await self._write(name, request, "POST", path, orjson.dumps(body), "AlreadyExists")

    async def _update(self, name: str) -> None:
        if name not in self._seen:
            await self._get(name)
            return
        (expected, version), value, key = self._seen[name], self._value(), key_of(name)
        request = Txn(
            (Compare(key, "VALUE", "=", expected.encode()),), (Put(key, value.encode()),), (RangeRequest(key),)
        )
        metadata = {"name": name, "resourceVersion": version}
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"v": value}}
        path = path_of(CONFIG_MAPS, NAMESPACE, name)
        await self._write(name, request, "PUT", path, orjson.dumps(body), "Conflict", "NotFound")

    async def _write(self, name: str, request: Txn, method: str, path: str, body: bytes, *no: str) -> None:
        """`no`: the reasons that mean that the object was not in the required state."""
        number = self._recorder.begin(self._number, request, False)
        try:
            answer = await self._rest.raw(method, path, None, body)
        except StatusError as error:
            if error.reason in no:
                self._recorder.end(number, "done", Swapped(0, False, ()))
                self._seen.pop(name, None)
            else:
                await self._refused(number, error)
            return
        except MinikubeError as error:
            await self._refused(number, error)
            return
        value, version = _content(orjson.loads(answer.body))
        self._seen[name] = value, version
        self._recorder.end(number, "done", Swapped(int(version), True, ()))

    async def _delete(self, name: str) -> None:
        number = self._recorder.begin(self._number, DeleteRange(key_of(name)), False)
        try:
            await self._rest.raw("DELETE", path_of(CONFIG_MAPS, NAMESPACE, name))
        except StatusError as error:
            if error.reason == "NotFound":
                self._recorder.end(number, "done", DeleteResult(0, 0))
            else:
                await self._refused(number, error)
        except MinikubeError as error:
            await self._refused(number, error)
        else:
            self._recorder.end(number, "done", DeleteResult(0, 1))
        self._seen.pop(name, None)

    async def _get(self, name: str) -> None:
        number = self._recorder.begin(self._number, RangeRequest(key_of(name)), False)
        try:
            answer = await self._rest.raw("GET", path_of(CONFIG_MAPS, NAMESPACE, name))
        except StatusError as error:
            if error.reason != "NotFound":
                await self._refused(number, error)
                return
            self._seen.pop(name, None)
            self._recorder.end(number, "done", RangeResult([], 0, False, 0))
            return
        except MinikubeError as error:
            await self._refused(number, error)
            return
        self._seen[name] = _content(orjson.loads(answer.body))
        self._recorder.end(number, "done", self._read(name))

    async def _list(self) -> None:
        """In one piece or in pages; either way at one moment within the first request."""
        numbers = {name: self._recorder.begin(self._number, RangeRequest(key_of(name)), False) for name in NAMES}
        try:
            page = await self._rest.list_page(CONFIG_MAPS, NAMESPACE, limit=self._rng.choice((0, LIST_PAGE)))
            items = list(page.items)
            while page.continue_token:
                page = await self._rest.list_page(
                    CONFIG_MAPS, NAMESPACE, limit=LIST_PAGE, continue_token=page.continue_token
                )
                items += page.items
        except MinikubeError as error:
            for number in numbers.values():
                self._end(number, error)
            await self._clock.sleep(PAUSE_S * self._rng.random())
            return
        found = {item["metadata"]["name"]: _content(item) for item in items}
        for name, number in numbers.items():
            if name in found:
                self._seen[name] = found[name]
            else:
                self._seen.pop(name, None)
            self._recorder.end(number, "done", self._read(name))

    def _read(self, name: str) -> RangeResult:
        seen = self._seen.get(name)
        if seen is None:
            return RangeResult([], 0, False, 0)
        kv = KeyValue(key_of(name), seen[0].encode(), 0, int(seen[1]), 0, 0)
        return RangeResult([kv], 1, False, kv.mod_revision)

    async def _refused(self, number: int, error: MinikubeError) -> None:
        self._end(number, error)
        await self._clock.sleep(PAUSE_S * self._rng.random())

    def _end(self, number: int, error: MinikubeError) -> None:
        unknown = isinstance(error, OutcomeUnknown) or (isinstance(error, StatusError) and error.code in UNKNOWN_CODES)
        self._recorder.end(number, "unknown" if unknown else "refused", None, error)


def _content(obj: Any) -> tuple[str, str]:
    return obj["data"]["v"], obj["metadata"]["resourceVersion"]


# -- watches ----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Stretch:
    """A list and the gapless watches after it: `start`, the list's version, its content, and then the events: (version,
    type, name, value). `reached`: the version up to which the server reported completeness."""

    start: int
    listed: dict[str, tuple[int, str]] = field(default_factory=dict)
    events: list[tuple[int, str, str, str]] = field(default_factory=list)
    reached: int = 0
    live: bool = True


class ApiFollower:
    """Lists and watches like an informer, at any API server."""

    def __init__(self, rest: RestClient, clock: Clock, rng: Rng, stretches: list[Stretch]) -> None:
        self._rest = rest
        self._clock = clock
        self._rng = rng
        self._stretches = stretches

    async def run(self) -> None:
        while True:
            try:
                await self._stretch()
            except (MinikubeError, StatusError):
                await self._clock.sleep(PAUSE_S * self._rng.random())

    async def _stretch(self) -> None:
        page = await self._rest.list_page(CONFIG_MAPS, NAMESPACE)
        stretch = Stretch(int(page.resource_version), reached=int(page.resource_version))
        for item in page.items:
            value, version = _content(item)
            stretch.listed[item["metadata"]["name"]] = int(version), value
        self._stretches.append(stretch)
        try:
            while await self._watch(stretch):
                await self._clock.sleep(PAUSE_S * self._rng.random())
        finally:
            stretch.live = False

    async def _watch(self, stretch: Stretch) -> bool:
        """False: it cannot resume from where it was."""
        params = {"resourceVersion": str(stretch.reached), "allowWatchBookmarks": "true"}
        params["timeoutSeconds"] = str(self._rng.choice((1, 3, 30)))
        stream = self._rest.transport.watch(path_of(CONFIG_MAPS, NAMESPACE), params)
        try:
            async for batch in stream:
                for event in batch:
                    obj = orjson.loads(event.object)
                    if event.type == "ERROR":
                        return int(obj["code"]) != 410
                    stretch.reached = int(obj["metadata"]["resourceVersion"])
                    if event.type != "BOOKMARK":
                        name, value = obj["metadata"]["name"], obj["data"]["v"]
                        stretch.events.append((stretch.reached, event.type, name, value))
        except MinikubeError:
            return True
        finally:
            await stream.aclose()  # type: ignore[attr-defined]
        return True


def check_stretches(stretches: list[Stretch], last: int, names: dict[str, tuple[int, str]]) -> str:
    """The error in the watches' events, "" if there is none. `last`: the version of a final list, after all events, and
    `names` its content, as (version, value).

    No event twice, out of order or missed: an event of one watch is in all stretches that include its version; and the
    result of a live watch is the final content."""
    truth: dict[int, tuple[str, str, str]] = {}
    for stretch in stretches:
        reached = stretch.start
        for version, kind, name, value in stretch.events:
            if version <= reached:
                return f"an event of version {version} came after one of {reached}: {kind} {name}"
            reached = version
            if truth.setdefault(version, (kind, name, value)) != (kind, name, value):
                return f"version {version} came as {(kind, name, value)} and as {truth[version]}"
    for stretch in stretches:
        told = {version for version, *_ in stretch.events}
        for version in sorted(truth):
            if stretch.start < version <= stretch.reached and version not in told:
                return f"{truth[version]} of version {version} is missing between {stretch.start} and {stretch.reached}"
        if not stretch.live:
            continue
        held = dict(stretch.listed)
        for version, kind, name, value in stretch.events:
            if version > last:
                continue
            if kind == "DELETED":
                held.pop(name, None)
            else:
                held[name] = version, value
        if stretch.reached >= last and held != names:
            return f"a watch from {stretch.start} made {held} of it, and there are {names}"
    return ""

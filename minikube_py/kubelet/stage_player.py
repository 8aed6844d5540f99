"""Plays the stages of one kind: watches its objects, chooses each one's next stage, waits, and writes.

An object is in one stage at a time. Changes meanwhile are processed afterwards, and a wait ends if its stage no longer
matches. After `AT_ONCE_MAX` immediate stages an object is limited to one per second, so that a stage loop cannot block
the event loop.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

import orjson

from minikube_py.api.registry import REGISTRY
from minikube_py.client.events import EventRecorder, Involved
from minikube_py.client.informer import Handler, Informer, Selection, key_of
from minikube_py.client.rest import Object, ResourceRef, RestClient, path_of, status_error
from minikube_py.client.timers import Timer, Timers
from minikube_py.client.transport import JSON, ApiResponse
from minikube_py.env import Clock, Rng
from minikube_py.errors import RequestError
from minikube_py.kubelet import pod_status
from minikube_py.kubelet.writes import Write, Writer
from minikube_py.stages.errors import StageFailed
from minikube_py.stages.stage import (
    APPLY,
    JSON_PATCH,
    MERGE,
    STRATEGIC,
    Action,
    Delete,
    Emit,
    Ref,
    Send,
    Stage,
    Step,
    chosen,
)
from minikube_py.stages.template import Door

logger = logging.getLogger(__name__)

AT_ONCE_MAX: Final = 32
AGAIN_S: Final = 1.0
BY_NODE: Final = "node"


class NotYet(StageFailed):
    """A temporary failure; retry."""


class Cast(Protocol):
    """Which objects are played, and functions for their templates."""

    def plays(self, obj: Object) -> bool: ...

    def doors(self, obj: Object) -> Mapping[str, Door]: ...

    def saw(self, obj: Object) -> None: ...

    def gone(self, obj: Object) -> None: ...


class Tools(NamedTuple):
    client: RestClient
    clock: Clock
    rng: Rng
    timers: Timers
    writer: Writer
    recorder: EventRecorder


@dataclass(slots=True, eq=False)
class Held:
    """A whole object: stages may use any field."""

    uid: str
    obj: Object


@dataclass(slots=True, eq=False)
class Life:
    """State of an object. `credit`: immediate stages left."""

    uid: str
    version: str = ""
    timer: Timer | None = None
    playing: bool = False
    newer: Object | None = None
    credit: float = AT_ONCE_MAX
    at_s: float = 0.0


@dataclass(slots=True, eq=False)
class _Play:
    key: str
    life: Life
    obj: Object
    stage: Stage
    steps: Iterator[Step]
    actions: deque[Action] = field(default_factory=deque)
    deleted: bool = False
    result: Object | None = None


@dataclass(slots=True)
class Counts:
    played: Counter[str] = field(default_factory=Counter)
    failed: int = 0
    refused: int = 0
    held_back: int = 0


class StagePlayer:
    def __init__(
        self, ref: Ref, stages: Sequence[Stage], cast: Cast, tools: Tools, counts: Counts, selection: Selection
    ) -> None:
        self.ref = ref
        self._stages, self._cast, self._tools, self._counts = stages, cast, tools, counts
        self._resource = resource_of(ref)
        self._of_kubelet = ref.api_version == "v1" and ref.kind in ("Pod", "Node")
        self._lives: dict[str, Life] = {}
        self.informer: Informer[Held] = Informer(
            tools.client,
            self._resource,
            lambda obj: Held(obj["metadata"]["uid"], self._told(obj)),
            clock=tools.clock,
            rng=tools.rng,
            selection=selection,
            indexers={BY_NODE: lambda held: ((held.obj.get("spec") or {}).get("nodeName") or "",)},
        )
        self.informer.add_handler(
            Handler(
                on_add=lambda held: self._seen(held.obj),
                on_update=lambda _, held: self._seen(held.obj),
                on_delete=lambda held: self._gone(held.obj),
            )
        )

    async def start(self) -> None:
        self.informer.start()
        await self.informer.wait_synced()

    async def stop(self) -> None:
        await self.informer.stop()

    def __len__(self) -> int:
        return len(self._lives)

    def _told(self, obj: Object) -> Object:
        """As KWOK: Pods and Nodes lack kind and apiVersion, others have them."""
        if self._of_kubelet:
            obj.pop("kind", None)
            obj.pop("apiVersion", None)
        else:
            obj["kind"], obj["apiVersion"] = self.ref.kind, self.ref.api_version
        return obj

    # --- what changes -----------------------------------------------------------------------------------------------

    def _seen(self, obj: Object) -> None:
        self._cast.saw(obj)
        key, metadata = key_of(obj), obj["metadata"]
        life = self._lives.get(key)
        if life is None or life.uid != metadata["uid"]:
            life = self._lives[key] = Life(metadata["uid"], at_s=self._tools.clock.monotonic_s())
        if life.playing:
            life.newer = obj
        elif life.version != metadata["resourceVersion"]:
            self._consider(key, life, obj)

    def _gone(self, obj: Object) -> None:
        life = self._lives.pop(key_of(obj), None)
        if life is not None and life.timer is not None:
            life.timer.cancel()
        self._cast.gone(obj)

    def look_again(self, node: str) -> None:
        """Re-evaluates objects of a node when its play starts or ends."""
        for held in self.informer.store.by_index(BY_NODE, node):
            self.look_at(held.obj)

    def look_at(self, obj: Object) -> None:
        key = key_of(obj)
        life = self._lives.get(key)
        if life is not None and not life.playing:
            self._consider(key, life, obj)

    # --- what comes next --------------------------------------------------------------------------------------------

    def _consider(self, key: str, life: Life, obj: Object) -> None:
        life.version = obj["metadata"]["resourceVersion"]
        if life.timer is not None:
            life.timer.cancel()
            life.timer = None
        if not self._cast.plays(obj):
            return
        tools = self._tools
        try:
            stage = chosen(self._stages, obj, tools.rng)
        except StageFailed as error:
            self._fails(key, "what is next", error)
            return
        if stage is None:
            return
        delay_s = 0.0
        try:
            delay_s = stage.drawn_delay_s(obj, tools.clock.wall_s(), tools.rng)
        except StageFailed as error:
            self._fails(key, f"the delay of stage {stage.name}", error)
        self._after(delay_s, key, life, obj, stage)

    def _after(self, delay_s: float, key: str, life: Life, obj: Object, stage: Stage) -> None:
        if delay_s > 0:
            life.timer = self._tools.timers.call_later(delay_s, partial(self._due, key, life, obj, stage))
        else:
            self._due(key, life, obj, stage)

    def _due(self, key: str, life: Life, obj: Object, stage: Stage) -> None:
        life.timer = None
        now_s = self._tools.clock.monotonic_s()
        life.credit = min(AT_ONCE_MAX, life.credit + now_s - life.at_s)
        life.at_s = now_s
        if life.credit < 1.0:
            if not self._counts.held_back:
                logger.warning("%s %s changes stages without a delay: limited to one a second", self.ref.kind, key)
            self._counts.held_back += 1
            self._after(AGAIN_S, key, life, obj, stage)
            return
        life.credit -= 1.0
        life.playing = True
        self._counts.played[stage.name] += 1
        self._go_on(_Play(key, life, obj, stage, iter(stage.steps)))

    def _fails(self, key: str, what: str, error: Exception) -> None:
        self._counts.failed += 1
        logger.warning("%s %s: %s: %s", self.ref.kind, key, what, error)

    # --- one stage --------------------------------------------------------------------------------------------------

    def _go_on(self, play: _Play) -> None:
        """Runs until something is written or nothing is left to do."""
        while True:
            while play.actions:
                action = play.actions.popleft()
                if isinstance(action, Emit):
                    self._emit(play.obj, action)
                elif not play.deleted:
                    self._write(play, action)
                    return
            step = next(play.steps, None)
            if step is None:
                self._ends(play)
                return
            try:
                play.actions.extend(step.actions(play.obj, self._cast.doors(play.obj)))
            except NotYet as error:
                logger.info("%s %s: %s", self.ref.kind, play.key, error)
                self._again(play)
                return
            except StageFailed as error:
                self._fails(play.key, f"{play.stage.where}: stage {play.stage.name}", error)
                self._ends(play)
                return

    def _again(self, play: _Play) -> None:
        """The whole stage, including its choice."""
        life, key = play.life, play.key
        life.playing = False
        obj, life.newer = life.newer or play.obj, None
        if self._lives.get(key) is life:
            life.timer = self._tools.timers.call_later(AGAIN_S, partial(self._consider, key, life, obj))

    def _ends(self, play: _Play) -> None:
        life, key = play.life, play.key
        life.playing = False
        newer, life.newer = life.newer, None
        if self._lives.get(key) is not life:
            return
        if play.stage.immediate and play.result is not None and _older(newer, play.result):
            newer = play.result
        if newer is not None and newer["metadata"]["resourceVersion"] != life.version:
            # Via the event loop, or stages of many steps would nest.
            life.timer = self._tools.timers.call_later(0.0, partial(self._consider, key, life, newer))

    def _emit(self, obj: Object, event: Emit) -> None:
        metadata = obj["metadata"]
        involved = Involved(
            self.ref.kind, metadata.get("namespace", ""), metadata["name"], metadata["uid"], self.ref.api_version
        )
        self._tools.recorder.event(involved, event.type, event.reason, event.message)

    def _write(self, play: _Play, action: Delete | Send) -> None:
        metadata = play.obj["metadata"]
        namespace, name, uid = metadata.get("namespace", ""), metadata["name"], metadata["uid"]
        if isinstance(action, Delete):
            play.deleted = True
            path = path_of(self._resource, namespace, name)
            self._tools.writer.put(Write("DELETE", path, pod_status.deletion(uid), JSON, partial(self._done, play)))
        elif action.verb == "patch":
            path = path_of(self._resource, namespace, name, action.subresource)
            body = for_this_one(action, uid)
            self._tools.writer.put(Write("PATCH", path, body, action.content_type, partial(self._patched, play)))
        else:
            self._apply(play, action, namespace)

    def _apply(self, play: _Play, action: Send, namespace: str) -> None:
        try:
            obj, collection, path = applied(action, namespace)
        except StageFailed as error:
            self._fails(play.key, f"{play.stage.where}: stage {play.stage.name}", error)
            self._ends(play)
            return
        params = {"fieldManager": "kwok", "force": "true"} if action.content_type == APPLY else None
        body = orjson.dumps(obj)
        patch = Write("PATCH", path, body, action.content_type, partial(self._done, play), params=params)

        def created(response: ApiResponse) -> None:
            if response.status == 409 and status_error(response.status, response.body).reason == "AlreadyExists":
                self._tools.writer.put(patch)
            else:
                self._done(play, response)

        self._tools.writer.put(patch if action.subresource else Write("POST", collection, body, JSON, created))

    def _patched(self, play: _Play, response: ApiResponse) -> None:
        if response.status < 300 and play.stage.immediate:
            result = self._told(orjson.loads(response.body))
            if result["metadata"]["resourceVersion"] != play.obj["metadata"]["resourceVersion"]:
                play.result = result
        self._done(play, response)

    def _done(self, play: _Play, response: ApiResponse) -> None:
        if response.status < 300:
            self._go_on(play)
            return
        if response.status != 404:
            self._counts.refused += 1
            error = status_error(response.status, response.body)
            logger.warning("%s %s: stage %s is refused: %s", self.ref.kind, play.key, play.stage.name, error)
        self._ends(play)


def _older(obj: Object | None, other: Object) -> bool:
    if obj is None:
        return True
    return int(obj["metadata"]["resourceVersion"]) < int(other["metadata"]["resourceVersion"])


def resource_of(ref: Ref) -> ResourceRef:
    """Raises: RequestError where the kind is not built in."""
    group, _, version = ref.api_version.rpartition("/")
    kind = REGISTRY.kind(group, version, ref.kind)
    if kind is None:
        raise RequestError(f"there are stages for {ref}, which is not a built-in kind")
    return ResourceRef(kind.group, kind.version, kind.plural)


def for_this_one(action: Send, uid: str) -> bytes:
    """Adds the uid to the patch, so that a new object of the same name refuses it."""
    patch = orjson.loads(action.body)
    if action.content_type == JSON_PATCH and isinstance(patch, list):
        return orjson.dumps([{"op": "test", "path": "/metadata/uid", "value": uid}, *patch])
    if action.content_type in (MERGE, STRATEGIC) and isinstance(patch, dict):
        metadata = patch.get("metadata")
        return orjson.dumps({**patch, "metadata": {**(metadata if isinstance(metadata, dict) else {}), "uid": uid}})
    return action.body


def applied(action: Send, namespace: str) -> tuple[Any, str, str]:
    """The object, the path of its collection, and its own. Raises: StageFailed."""
    obj = orjson.loads(action.body)
    if not isinstance(obj, dict) or not isinstance(obj.get("metadata"), dict):
        raise StageFailed("what is applied needs apiVersion, kind and metadata")
    group, _, version = str(obj.get("apiVersion") or "").rpartition("/")
    kind = REGISTRY.kind(group, version, str(obj.get("kind") or ""))
    if kind is None:
        raise StageFailed(f"{obj.get('kind')} of {obj.get('apiVersion')} is not a built-in kind")
    resource = ResourceRef(kind.group, kind.version, kind.plural)
    where = ""
    if kind.namespaced:
        where = str(obj["metadata"].get("namespace") or namespace)
        obj["metadata"]["namespace"] = where
    name = str(obj["metadata"].get("name") or "")
    if not name:
        raise StageFailed("what is applied needs a name")
    return obj, path_of(resource, where), path_of(resource, where, name, action.subresource)

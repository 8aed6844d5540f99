"""The inputs of a cluster in virtual time as a file, and replay of the history, up to a moment.

A JSON object per line: first the seed, the nodes and the versions, then the inputs in order."""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import orjson

from minikube_py.api.registry import Registry
from minikube_py.cluster import snapshots
from minikube_py.cluster.arguments import are_nodes
from minikube_py.cluster.errors import ClusterError, WrongMoment
from minikube_py.cluster.inputs import Input, request_of
from minikube_py.cluster.kinds import served_kind
from minikube_py.cluster.snapshots import Snapshot
from minikube_py.cluster.versions import versions, versions_told
from minikube_py.cluster.virtual import VirtualCluster, VirtualConfig
from minikube_py.cluster.virtual_engine import VirtualEngine
from minikube_py.errors import InvalidRequest
from minikube_py.kubelet.config import KubeletConfig, NodeSpec
from minikube_py.mvcc.types import Event
from minikube_py.sim.faults import Fault
from minikube_py.sim.loop import NS_PER_S
from minikube_py.stages.files import parsed

OTHER: Final = "this is another history, as by another version, or the log is not whole"
ROOT: Final = "/registry/"
VERBS: Final = ("created", "changed", "deleted")
FORMS: Final = (
    "12.5 (virtual seconds), revision=40, created=pods/default/web, changed=..., deleted=..., or the reason of an "
    "Event, as FailedScheduling or FailedScheduling/web"
)


def write(path: Path, engine: VirtualEngine) -> None:
    virtual = engine.virtual
    nodes = [each._asdict() for each in virtual.config.nodes]
    head = {**versions(), "seed": str(virtual.seed), "nodes": nodes, "digest": virtual.digest}
    if (stages := virtual.config.kubelet.stages) is not None:
        head["stages"] = [(path, base64.b64encode(data).decode("ascii")) for path, data in stages.files]
    rows = [orjson.dumps(head), *(orjson.dumps(each.to_json()) for each in engine.inputs)]
    path.write_bytes(b"\n".join(rows) + b"\n")


@dataclass(slots=True)
class Verified:
    """What a replay compared: the digests before `inputs` inputs, the last at `at_ns`; `whole`: also the log's own."""

    inputs: int = 0
    at_ns: int = 0
    whole: bool = False

    def told(self, now_ns: int) -> str:
        if self.whole:
            return f"verified: the digest of the whole history, and those before {self.inputs:,} inputs"
        if not self.inputs:
            return "verified: nothing; the log holds no digests up to here"
        left_s = (now_ns - self.at_ns) / NS_PER_S
        after = f"; the {left_s:,.6f} s after it are not verified" if left_s else ""
        return f"verified: the digests before {self.inputs:,} inputs, the last at {self.at_ns / NS_PER_S:,.6f} s{after}"


class Replayed(VirtualEngine):
    """`at_start`: the changes of its start, before anyone can look; it ended at `started_ns`."""

    started_ns = 0

    def start(self) -> None:
        self.at_start: list[Event] = []
        self.virtual.on_change(lambda now_ns, event: self.at_start.append(event))
        try:
            super().start()
        finally:
            self.virtual.on_change(None)
        self.started_ns = self.virtual.now_ns


@dataclass(frozen=True, slots=True)
class InputLog:
    seed: str
    nodes: tuple[NodeSpec, ...]
    digest: str
    version: str
    inputs: tuple[Input, ...]
    stages: tuple[tuple[str, bytes], ...] = ()
    """Their files."""

    @staticmethod
    def read(path: Path) -> InputLog:
        """Raises: ClusterError if it is not one."""
        try:
            rows = [orjson.loads(line) for line in path.read_bytes().splitlines()]
            head = rows[0]
            nodes = tuple(NodeSpec(**{**each, "taints": tuple(each["taints"])}) for each in head["nodes"])
            if not are_nodes(nodes):
                raise ValueError(f"these are no nodes: {head['nodes']}")
            inputs = tuple(map(Input.from_json, rows[1:]))
            stages = tuple((path, base64.b64decode(text, validate=True)) for path, text in head.get("stages", ()))
            if not all(isinstance(head[each], str) for each in ("seed", "digest", "minikube_py")):
                raise ValueError("the seed, the digest and the version are texts")
            known = versions_told({name: head[name] for name in versions() if name in head})
            return InputLog(head["seed"], nodes, head["digest"], known, inputs, stages)
        except OSError as error:
            raise ClusterError(f"{path}: cannot read the log: {error.strerror}") from error
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            raise ClusterError(f"{path}: this is no log of Cluster.save_log(): {error}") from error

    def start(self, port: int = 0) -> Replayed:
        """The cluster at its beginning."""
        kubelet = KubeletConfig(stages=parsed(self.stages)) if self.stages else KubeletConfig()
        engine = Replayed(self.seed, VirtualConfig(nodes=self.nodes, kubelet=kubelet), port)
        engine.start()
        return engine

    def play(self, engine: Replayed, until: Moment | None = None, verified: Verified | None = None) -> bool:
        """Plays all of it, or to the end of the moment in which `until` holds for the first time, which is the end of
        the start at the earliest; whether that happened. `verified` holds what was compared.

        Raises: ClusterError for an input that cannot be replayed, and for another history; SimFailure."""
        verified = verified or Verified()
        virtual = engine.virtual
        if until is not None and any(map(until.is_here, engine.at_start)):
            return True
        reached: list[int] = []
        taken: dict[int, Snapshot] = {}

        def look(now_ns: int, event: Event) -> None:
            if not reached and until is not None and until.is_here(event):
                reached.append(now_ns)

        virtual.on_change(look)
        try:
            for number, each in enumerate(self.inputs, 1):
                if until is not None and until.at_ns <= virtual.now_ns:
                    break
                self._compare(virtual, each, number, verified)
                if each.kind in ("snapshot", "restore"):
                    _state(engine, each, taken)
                else:
                    self._again(engine, each, number, until, reached)
                if reached:
                    virtual.advance(0)
                    return True
        finally:
            virtual.on_change(None)
        came = until is None or until.at_ns <= virtual.now_ns
        if until is None or not came:
            if virtual.digest != self.digest:
                why = f"digest {self.digest}, and this is {virtual.digest}"
                raise ClusterError(f"the log was written at {why}: {OTHER}")
            verified.whole = True
        return came

    def _compare(self, virtual: VirtualCluster, given: Input, number: int, verified: Verified) -> None:
        """Raises: ClusterError."""
        why = ""
        if given.at_ns != virtual.now_ns:
            why = f"{given.at_ns} ns, and now it is {virtual.now_ns} ns"
        elif given.digest and given.digest != virtual.digest:
            why = f"digest {given.digest}, and this is {virtual.digest}"
        if why:
            here = f"{versions_told(versions())}, and the log is of {self.version}"
            raise ClusterError(f"input {number} came at {why}: {OTHER} ({here})")
        if given.digest:
            verified.inputs, verified.at_ns = verified.inputs + 1, virtual.now_ns

    def _again(
        self, engine: VirtualEngine, given: Input, number: int, until: Moment | None, reached: list[int]
    ) -> None:
        virtual, arguments = engine.virtual, given.arguments
        if given.kind == "advance":
            left_ns = math.inf if until is None else until.at_ns - virtual.now_ns
            came_ns = virtual.duration_ns(arguments[0]) if len(arguments) == 1 else arguments[1]
            virtual.advance_until(min(came_ns, left_ns), lambda: bool(reached))
        elif given.kind == "request":
            engine.put(request_of(arguments))
        elif given.kind == "fault":
            at_us, kind, places, others, *rest = arguments
            # Inputs refused originally are refused again.
            with suppress(ClusterError, InvalidRequest):
                engine.inject(Fault(at_us, kind, tuple(places), tuple(others), *rest))
        elif given.kind == "all_well":
            engine.all_well()
        elif given.kind == "token":
            engine.write_use(*arguments)
        else:
            raise ClusterError(f"input {number} is {arguments[0]}: what code did cannot be written down")


def _state(engine: VirtualEngine, given: Input, taken: dict[int, Snapshot]) -> None:
    """A revision names a state. What failed originally fails again.

    Raises: ClusterError for a state that the log has not taken."""
    if given.kind == "restore" and given.arguments[0] not in taken:
        raise ClusterError(f"the log restores revision {given.arguments[0]}, of which it has no snapshot")
    with suppress(ClusterError):
        if given.kind == "snapshot":
            found: Snapshot = engine.within(snapshots.settled, "snapshot")
            taken[found.revision] = found
        else:
            (revision,) = given.arguments
            work = partial(snapshots.put_back, snapshot=taken[revision])
            engine.within(work, "restore", revision)


@dataclass(frozen=True, slots=True)
class Moment:
    """Where a replay stops: a time, a revision, a change of an object, an Event."""

    at_ns: float = math.inf
    revision: int = 0
    verb: str = ""
    key: str = ""
    reason: str = ""
    about: str = ""

    @staticmethod
    def parse(text: str) -> Moment:
        """Raises: ClusterError, which lists the forms."""
        name, equals, value = text.partition("=")
        if re.fullmatch(r"\d+(\.\d+)?s?", text):
            return Moment(at_ns=float(text.removesuffix("s")) * 1e9)
        if equals and name == "revision" and value.isdecimal() and int(value):
            return Moment(revision=int(value))
        if equals and name in VERBS and value:
            return Moment(verb=name, key=ROOT + value)
        if not equals and re.fullmatch(r"(?!nan$|inf)[A-Za-z]+(/[a-z0-9.-]+)?", text):
            reason, _, about = text.partition("/")
            return Moment(reason=reason, about=about)
        raise WrongMoment(f"{text!r} names no moment; write {FORMS}")

    def resolved(self, registry: Registry) -> Moment:
        """With the store's key, if it names an object as kubectl does: deployments/default/web, deploy/default/web,
        nodes/node-0. Raises: ClusterError if no such resource is served, or parts are missing."""
        if not self.verb:
            return self
        name, _, rest = self.key.removeprefix(ROOT).partition("/")
        kind = next((each for each in registry.kinds if self.key.encode().startswith(each.prefix)), None)
        if kind is not None:
            rest = self.key.removeprefix(kind.prefix.decode())
        else:
            try:
                kind = served_kind(registry, name, "--until")
            except ClusterError:
                # GROUP/PLURAL/NAMESPACE/NAME of a definition in the log, which is not served yet.
                if "." in name:
                    return self
                raise
        if not all(rest.split("/")) or rest.count("/") != kind.namespaced:
            form = "NAMESPACE/NAME" if kind.namespaced else "NAME"
            raise ClusterError(f"--until: write {self.verb}={kind.plural}/{form}, not {self.verb}={name}/{rest}")
        return replace(self, key=kind.prefix.decode() + rest)

    def passed(self, engine: Replayed) -> str:
        """Why a replay to this moment stands after it; "" if it does not."""
        if self.at_ns < engine.started_ns or any(map(self.is_here, engine.at_start)):
            return "the moment came during the start, which is one step: this is its end"
        return "the moment passed within a step: this is its end" if self.at_ns < engine.virtual.now_ns else ""

    def is_here(self, event: Event) -> bool:
        kv = event.kv
        if self.revision:
            return kv.mod_revision >= self.revision
        if self.verb:
            verb = "deleted" if event.type != "PUT" else "created" if kv.version == 1 else "changed"
            return verb == self.verb and kv.key.decode(errors="replace") == self.key
        if self.reason and event.type == "PUT" and kv.key.startswith(b"/registry/events/"):
            said: Mapping[str, Any] = orjson.loads(kv.value)
            about = said.get("involvedObject") or {}
            return said.get("reason") == self.reason and self.about in ("", about.get("name"))
        return False


def summary(engine: Replayed, until: Moment | None) -> Iterator[str]:
    if until is not None and (passed := until.passed(engine)):
        yield passed
    virtual = engine.virtual
    yield f"{virtual.now_s:,.6f} s of virtual time, revision {virtual.history.revision:,}, digest {virtual.digest}"

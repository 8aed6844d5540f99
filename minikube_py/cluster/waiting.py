"""The conditions of `Cluster.wait`, and the messages when they do not hold. Pure."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from minikube_py.cluster.errors import ClusterError

Object = dict[str, Any]
Until = Callable[[Object], bool]
STATE_SHOWN_MAX: Final = 600
MANY_SHOWN_MAX: Final = 120
NOT_SHOWN: Final = ("apiVersion", "kind", "metadata")
SHOWN_OF_METADATA: Final = ("labels", "annotations", "finalizers", "ownerReferences")
EVENTS_SHOWN_MAX: Final = 5
PODS_SHOWN_MAX: Final = 8


@dataclass(slots=True)
class Waiting:
    """For `target`, which is `rc/web`, or `pods` for all of a kind. Without a condition: until it exists.

    `ready`: this many replicas are ready, of the latest template, and no more desired; of a kind, this many objects.
    `condition`: that status condition is True, or what it says, as "Ready=False". `phase`: of a pod or namespace.
    `gone`: it does not exist. `until`: a function that must return True for it."""

    target: str
    ready: int | None = None
    condition: str | None = None
    phase: str | None = None
    gone: bool = False
    until: Until | None = None
    last: list[Object] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.gone:
            asked = (("ready", self.ready), ("condition", self.condition), ("phase", self.phase), ("until", self.until))
            if both := [name for name, value in asked if value is not None]:
                raise ClusterError(f"gone: what is not there has no {' and no '.join(both)}")

    @property
    def of_many(self) -> bool:
        return "/" not in self.target

    def seen(self, found: Sequence[Object]) -> bool:
        """Whether the condition holds. `found`: the object, or those of the kind; empty if there is none."""
        if found:
            self.last = list(found)
        if self.gone:
            self.last = list(found)
            return not found
        if self.of_many and self.ready is not None:
            return sum(is_ready(each) for each in found if self._fits(each)) >= self.ready
        return bool(found) and all(self._fits(each) for each in found)

    def _fits(self, obj: Object) -> bool:
        status = obj.get("status") or {}
        if self.ready is not None and not self.of_many and ready_of(obj) != self.ready:
            return False
        if self.condition is not None and not _holds(obj, self.condition):
            return False
        if self.phase is not None and status.get("phase") != self.phase:
            return False
        if self.until is None:
            return True
        answer = self.until(obj)
        if inspect.isawaitable(answer):
            getattr(answer, "close", lambda: None)()
            raise ClusterError("until is a plain function, not a coroutine function")
        return bool(answer)

    def wanted(self) -> str:
        parts = [f"{name}={value}" for name, value in (
            ("ready", self.ready), ("condition", self.condition), ("phase", self.phase),
        ) if value is not None]  # fmt: skip
        if self.gone:
            parts.append("gone")
        if self.until is not None:
            parts.append(f"until {_source(self.until)}")
        return ", ".join(parts) or "there"

    def message(self, timeout_s: float, where: str, pods: Sequence[Object], events: Sequence[Object]) -> str:
        """What was seen last; `pods` and `events` are the related ones."""
        lines = [f"{self.target}{where}: not {self.wanted()} within {timeout_s:g} s"]
        if not self.last:
            lines.append("  it was never there" if not self.gone else "")
        elif self.of_many:
            lines += [f"  {brief(each)}{self._state(each, MANY_SHOWN_MAX)}" for each in self.last[:PODS_SHOWN_MAX]]
        else:
            obj = self.last[0]
            revision = obj["metadata"].get("resourceVersion", "?")
            lines.append(f"  last seen at revision {revision}: {brief(obj)}{self._state(obj, STATE_SHOWN_MAX)}")
        lines += [f"  pod {brief(each)}" for each in pods[:PODS_SHOWN_MAX]]
        lines += [f"  event {event_line(each)}" for each in events[-EVENTS_SHOWN_MAX:]]
        return "\n".join(line for line in lines if line)

    def _state(self, obj: Object, shown_max: int) -> str:
        """Its status. Of kinds without one, or for `until`: all that it has, since that may be what is waited for."""
        state = {"status": obj["status"]} if obj.get("status") else {}
        if not state or self.until is not None:
            metadata = {name: obj["metadata"][name] for name in SHOWN_OF_METADATA if obj["metadata"].get(name)}
            state |= metadata | {name: value for name, value in obj.items() if name not in ("status", *NOT_SHOWN)}
        if obj.get("kind") == "Secret":
            # It may be of a server from outside.
            state |= {name: sorted(state[name]) for name in ("data", "stringData") if state.get(name)}
        text = orjson.dumps(state["status"] if [*state] == ["status"] else state).decode() if state else ""
        return f": {text[:shown_max]}{'...' if len(text) > shown_max else ''}" if text else ""


def ready_of(obj: Mapping[str, Any]) -> int | None:
    """How many replicas are ready; None if the status is older than the spec, more pods exist than desired, or it rolls
    out."""
    status, spec = obj.get("status") or {}, obj.get("spec") or {}
    if "conditions" in status and obj.get("kind") in ("Pod", "Node"):
        return int(is_ready(obj))
    if status.get("observedGeneration", 0) < (obj["metadata"].get("generation") or 0):
        return None
    if _rolls_out(obj):
        return None
    if obj.get("kind") == "DaemonSet":
        return int(status.get("numberReady") or 0)
    if spec.get("replicas") is not None and (status.get("replicas") or 0) > spec["replicas"]:
        return None
    return int(status.get("readyReplicas") or 0)


def _rolls_out(obj: Mapping[str, Any]) -> bool:
    """Whether it has yet to replace pods of an earlier template, and will."""
    status, spec, kind = obj.get("status") or {}, obj.get("spec") or {}, obj.get("kind")
    strategy = spec.get("updateStrategy") or {}
    by_itself = strategy.get("type") == "RollingUpdate" and not (strategy.get("rollingUpdate") or {}).get("partition")
    if kind == "DaemonSet" and by_itself:
        return bool((status.get("updatedNumberScheduled") or 0) < (status.get("desiredNumberScheduled") or 0))
    if (kind == "Deployment" and not spec.get("paused")) or (kind == "StatefulSet" and by_itself):
        return bool((status.get("updatedReplicas") or 0) < (spec.get("replicas") or 0))
    return False


def is_ready(obj: Mapping[str, Any]) -> bool:
    return condition_of(obj, "Ready") == "True"


def _holds(obj: Mapping[str, Any], condition: str) -> bool:
    """As `kubectl wait --for=condition=...`: a name without regard to case, and what it is, True by default."""
    name, _, wanted = condition.partition("=")
    conditions = (obj.get("status") or {}).get("conditions") or ()
    found = [each.get("status") for each in conditions if str(each.get("type")).lower() == name.lower()]
    return bool(found) and str(found[0]).lower() == (wanted or "True").lower()


def condition_of(obj: Mapping[str, Any], kind: str) -> str:
    """"True", "False", "Unknown", or "" if absent."""
    found = [each for each in (obj.get("status") or {}).get("conditions") or () if each.get("type") == kind]
    return str(found[0].get("status", "")) if found else ""


def brief(obj: Mapping[str, Any]) -> str:
    """A few words: name, phase or replicas, node, and why it is not ready."""
    metadata, status, spec = obj["metadata"], obj.get("status") or {}, obj.get("spec") or {}
    name = "/".join(filter(None, (metadata.get("namespace"), metadata["name"])))
    parts = [name]
    if "phase" in status:
        parts.append(str(status["phase"]))
    elif "replicas" in status:
        parts.append(f"{status.get('readyReplicas') or 0} of {spec.get('replicas', '?')} ready")
    if spec.get("nodeName"):
        parts.append(f"on {spec['nodeName']}")
    if metadata.get("deletionTimestamp"):
        parts.append("being deleted")
    for each in status.get("conditions") or ():
        if each.get("status") != "True" and (each.get("message") or each.get("reason")):
            parts.append(f"{each['type']}: {each.get('message') or each['reason']}")
            break
    return ", ".join(parts)


def event_line(event: Mapping[str, Any]) -> str:
    about = event.get("involvedObject") or {}
    return f"{event.get('type')} {event.get('reason')} {about.get('kind')}/{about.get('name')}: {event.get('message')}"


def _source(until: Until) -> str:
    """A function's name, a lambda's text."""
    name = getattr(until, "__name__", "")
    if name and name != "<lambda>":
        return name
    try:
        source = "".join(inspect.findsource(until)[0])
        places = [each for each in until.__code__.co_positions() if each[3]]
        lambdas = [each for each in ast.walk(ast.parse(source)) if isinstance(each, ast.Lambda)]
        # Of nested ones, the innermost.
        found = min((each for each in lambdas if _within(places, each)), key=_size)
        text = ast.get_source_segment(source, found) if places else None
    except (OSError, TypeError, ValueError, SyntaxError, AttributeError):
        text = None
    return repr(until) if text is None else " ".join(text.split())


def _within(places: Sequence[Any], node: ast.Lambda) -> bool:
    begin, end = (node.lineno, node.col_offset), (node.end_lineno or 0, node.end_col_offset or 0)
    return all(begin <= (line, column) and (to_line, to) <= end for line, to_line, column, to in places)


def _size(node: ast.Lambda) -> tuple[int, int]:
    return (node.end_lineno or 0) - node.lineno, (node.end_col_offset or 0) - node.col_offset

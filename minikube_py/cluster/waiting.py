"""The conditions of `Cluster.wait`, and the messages when they do not hold. Pure."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from minikube_py.cluster.errors import ClusterError

Object = dict[str, Any]
Until = Callable[[Object], bool]
STATUS_SHOWN_MAX: Final = 600
EVENTS_SHOWN_MAX: Final = 5
PODS_SHOWN_MAX: Final = 8


@dataclass(slots=True)
class Waiting:
    """For `target`, which is `rc/web`, or `pods` for all of a kind. Without a condition: until it exists.

    `ready`: this many replicas are ready, and no more desired; of a kind, this many objects. `condition`: that status
    condition is True. `phase`: of a pod or namespace. `gone`: it does not exist. `until`: a function that must return
    True for it."""

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
        if self.condition is not None and condition_of(obj, self.condition) != "True":
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
            lines += [f"  {brief(each)}" for each in self.last[:PODS_SHOWN_MAX]]
        else:
            obj = self.last[0]
            shown = orjson.dumps(obj.get("status") or {}).decode()[:STATUS_SHOWN_MAX]
            revision = obj["metadata"].get("resourceVersion", "?")
            lines.append(f"  last seen at revision {revision}: {brief(obj)}: {shown}")
        lines += [f"  pod {brief(each)}" for each in pods[:PODS_SHOWN_MAX]]
        lines += [f"  event {event_line(each)}" for each in events[-EVENTS_SHOWN_MAX:]]
        return "\n".join(line for line in lines if line)


def ready_of(obj: Mapping[str, Any]) -> int | None:
    """How many replicas are ready; None if the status is older than the spec, or more pods exist than desired."""
    status, spec = obj.get("status") or {}, obj.get("spec") or {}
    if "conditions" in status and obj.get("kind") in ("Pod", "Node"):
        return int(is_ready(obj))
    if status.get("observedGeneration", 0) < (obj["metadata"].get("generation") or 0):
        return None
    if obj.get("kind") == "DaemonSet":
        return int(status.get("numberReady") or 0)
    if spec.get("replicas") is not None and (status.get("replicas") or 0) > spec["replicas"]:
        return None
    return int(status.get("readyReplicas") or 0)


def is_ready(obj: Mapping[str, Any]) -> bool:
    return condition_of(obj, "Ready") == "True"


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
    name = getattr(until, "__name__", "")
    if name and name != "<lambda>":
        return name
    try:
        text = " ".join(inspect.getsource(until).split())
    except (OSError, TypeError):
        return repr(until)
    return text[max(0, text.find("lambda")) :].rstrip(",")

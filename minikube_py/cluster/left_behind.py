"""Objects and events left by a failed test in its namespace, and how its programs go, a line each."""

from __future__ import annotations

from typing import Any, Final

from minikube_py.api.errors import StatusError
from minikube_py.client.rest import Object, RestClient
from minikube_py.cluster.errors import ClusterError
from minikube_py.cluster.methods import BlockingMethods
from minikube_py.cluster.operations import Operations
from minikube_py.cluster.timeline import TIMELINE
from minikube_py.cluster.virtual_engine import VirtualEngine
from minikube_py.cluster.waiting import brief, event_line
from minikube_py.errors import MinikubeError

OBJECTS_SHOWN_MAX: Final = 50
EVENTS_SHOWN_MAX: Final = 30
LEFT_OUT: Final = frozenset(("Event", "ServiceAccount"))
"""Events are shown separately; every namespace has a service account."""
ROOT_CA: Final = "kube-root-ca.crt"


def sections(view: BlockingMethods) -> list[tuple[str, str]]:
    """Titles and texts for a report, which also lists what could not be read."""
    try:
        objects, events = view._do(_listed, reads=True)
    except MinikubeError as error:
        return [("minikube: objects", f"they cannot be listed: {error}"), *programs(view)]
    lines = [f"{kind} {brief(obj)}" for kind, obj in objects]
    more = [f"... and {len(lines) - OBJECTS_SHOWN_MAX} more"] if len(lines) > OBJECTS_SHOWN_MAX else []
    found = [("minikube: objects", "\n".join([*lines[:OBJECTS_SHOWN_MAX], *more]) or "none")]
    if events:
        found.append(("minikube: events", "\n".join(map(event_line, events[-EVENTS_SHOWN_MAX:]))))
    return [(f"{title} in {view.namespace}", text) for title, text in found] + programs(view)


def programs(view: BlockingMethods) -> list[tuple[str, str]]:
    """How the programs under test go, and what they read and wrote; of a cluster in virtual time."""
    try:
        engine = view._reached()
    except ClusterError:
        # The test has stopped it.
        return []
    if not isinstance(engine, VirtualEngine) or not (lines := engine.programs_told()):
        return []
    return [("minikube: programs", "\n".join([*lines, TIMELINE, *engine.programs.timeline.lines()]))]


async def _listed(operations: Operations) -> tuple[list[tuple[str, Object]], list[Object]]:
    client: RestClient = operations.client
    objects: list[tuple[str, Object]] = []
    events: list[Object] = []
    seen: dict[str, None] = {}
    for served in await operations.kinds.all(client):
        if not served.namespaced or (served.kind in seen and served.kind != "Event"):
            continue
        seen[served.kind] = None
        if served.kind == "Event" and served.ref.group:
            continue
        try:
            items = await client.list(served.ref, operations.namespace)
        except StatusError:
            # Not every user may list every kind.
            continue
        if served.kind == "Event":
            events = sorted(items, key=_when)
        elif served.kind not in LEFT_OUT:
            objects += [(served.kind, each) for each in items if each["metadata"]["name"] != ROOT_CA]
    return objects, events


def _when(event: dict[str, Any]) -> str:
    return str(event.get("lastTimestamp") or event.get("eventTime") or "")

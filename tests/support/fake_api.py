"""An API server in a dictionary, with faults, for the tests of clients and controllers.

It knows resourceVersions, watches with history, compaction, graceful deletion, finalizers, propagation, subresources
and patches, as far as the components use them; it validates nothing. The integration tests check the components with
real servers; here their logic is tested, step by step."""

from __future__ import annotations

import asyncio
import copy
import re
import zlib
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

import orjson

from minikube_py.api.errors import StatusError
from minikube_py.client.transport import ApiResponse, WatchEvent
from minikube_py.errors import OutcomeUnknown, Unavailable

Json = dict[str, Any]


class Kind(NamedTuple):
    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool


KINDS = [
    Kind("", "v1", plural, kind, namespaced)
    for plural, kind, namespaced in (
        ("namespaces", "Namespace", False),
        ("nodes", "Node", False),
        ("pods", "Pod", True),
        ("services", "Service", True),
        ("endpoints", "Endpoints", True),
        ("replicationcontrollers", "ReplicationController", True),
        ("configmaps", "ConfigMap", True),
        ("secrets", "Secret", True),
        ("serviceaccounts", "ServiceAccount", True),
        ("events", "Event", True),
        ("persistentvolumeclaims", "PersistentVolumeClaim", True),
        ("persistentvolumes", "PersistentVolume", False),
    )
] + [
    Kind("coordination.k8s.io", "v1", "leases", "Lease", True),
    Kind("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice", True),
    Kind("apps", "v1", "replicasets", "ReplicaSet", True),
    Kind("apps", "v1", "statefulsets", "StatefulSet", True),
    Kind("apps", "v1", "daemonsets", "DaemonSet", True),
    Kind("apps", "v1", "controllerrevisions", "ControllerRevision", True),
    Kind("batch", "v1", "jobs", "Job", True),
    Kind("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", True),
    Kind("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", False),
    Kind("resource.k8s.io", "v1", "resourceclaims", "ResourceClaim", True),
    Kind("resource.k8s.io", "v1", "resourceslices", "ResourceSlice", False),
]
VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
PATH = re.compile(
    r"^(?:/api/(?P<core>v1)|/apis/(?P<group>[^/]+)/(?P<version>[^/]+))"
    r"(?:/namespaces/(?P<namespace>[^/]+)(?=/[a-z]+(?:/|$)))?/(?P<plural>[a-z]+)(?:/(?P<name>[^/]+)(?:/(?P<sub>[a-z]+))?)?$"
)
MERGE_KEYS = {"conditions": "type", "ownerReferences": "uid", "addresses": "type", "podIPs": "ip", "hostIPs": "ip"}
NAMESPACE_SUBRESOURCES = ("status", "finalize")


class Record(NamedTuple):
    version: int
    type: str
    kind: Kind
    old: Json | None
    new: Json


class FakeApi:
    """An ApiTransport. `calls` are the requests so far, `refuse` answers some of them with a given error."""

    def __init__(self, clock: Any) -> None:
        self._clock = clock
        self.version = 1
        self.compacted = 0
        self.objects: dict[Kind, dict[str, Json]] = {kind: {} for kind in KINDS}
        self.applied: dict[tuple[Kind, str, str], Json] = {}
        """What each manager applied last; its members have no other owner."""
        self.history: list[Record] = []
        self._changed = asyncio.Event()
        self._epoch = 0
        self.down = False
        self.lose_answers = 0
        self.calls: list[tuple[str, str]] = []
        self.asked: list[dict[str, str]] = []
        """Parameters of the calls."""
        self.refuse: dict[tuple[str, str], StatusError] = {}
        self.watchers = 0

    # --- faults -----------------------------------------------------------------------------------------------------

    def compact(self) -> None:
        """Watches from before now get 410."""
        self.compacted = self.version
        self.history.clear()

    def drop_watches(self) -> None:
        self._epoch += 1
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    # --- ApiTransport -----------------------------------------------------------------------------------------------

    async def request(
        self,
        method: str,
        path: str,
        params: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = "application/json",
    ) -> ApiResponse:
        await asyncio.sleep(0)
        if self.down:
            raise Unavailable("down")
        self.calls.append((method, path))
        self.asked.append(dict(params or {}))
        try:
            for (verb, pattern), error in self.refuse.items():
                if verb == method and re.search(pattern, path):
                    raise error
            answer = self._handle(method, path, dict(params or {}), orjson.loads(body) if body else None, content_type)
        except StatusError as error:
            return ApiResponse(error.code, orjson.dumps(error.to_status()))
        if method != "GET" and self.lose_answers > 0:
            self.lose_answers -= 1
            raise OutcomeUnknown("the answer was lost")
        return ApiResponse(201 if method == "POST" else 200, orjson.dumps(answer))

    async def watch(self, path: str, params: Mapping[str, str] | None = None) -> AsyncIterator[list[WatchEvent]]:
        await asyncio.sleep(0)
        asked = dict(params or {})
        if self.down:
            raise Unavailable("down")
        kind, namespace, _, _ = self._parse(path)
        position, epoch = int(asked.get("resourceVersion") or self.version), self._epoch
        self.watchers += 1
        try:
            while True:
                if position < self.compacted:
                    error = StatusError(410, "Expired", f"too old resource version: {position}")
                    yield [WatchEvent("ERROR", orjson.dumps(error.to_status()))]
                    return
                changed = self._changed
                batch = [event for r in self.history if r.version > position and r.kind is kind
                         for event in _event(r, namespace, asked)]  # fmt: skip
                position = max(position, self.version)
                if batch:
                    yield batch
                if self.down:
                    raise Unavailable("down")
                if epoch != self._epoch:
                    return
                if changed is self._changed:
                    await changed.wait()
        finally:
            self.watchers -= 1

    async def close(self) -> None:
        return

    # --- requests ---------------------------------------------------------------------------------------------------

    def _parse(self, path: str) -> tuple[Kind, str, str, str]:
        match = PATH.match(path)
        if match is None:
            raise StatusError(404, "NotFound", f"no such path {path}")
        parts = match.groupdict()
        group, version = parts["group"] or "", parts["core"] or parts["version"]
        namespace, plural = parts["namespace"] or "", parts["plural"]
        name, sub = parts["name"] or "", parts["sub"] or ""
        if plural in NAMESPACE_SUBRESOURCES and namespace and not name:
            namespace, plural, name, sub = "", "namespaces", namespace, plural
        for kind in KINDS:
            if (kind.group, kind.version, kind.plural) == (group, version, plural):
                return kind, namespace, name, sub
        raise StatusError(404, "NotFound", "the server could not find the requested resource")

    def _handle(self, method: str, path: str, params: dict[str, str], body: Any, content_type: str) -> Json:
        if method == "GET" and path in ("/api/v1", "/apis", "/apis/coordination.k8s.io/v1"):
            return _discovery(path)
        kind, namespace, name, sub = self._parse(path)
        if method == "POST":
            return self._bind(namespace, name, body) if sub == "binding" else self.create(kind, namespace, body)
        if method == "GET":
            return self._get(kind, namespace, name) if name else self._list(kind, namespace, params)
        if method == "DELETE":
            if name:
                return self._delete(kind, namespace, name, body or {})
            for key in [k for k in self.objects[kind] if k.startswith(f"{namespace}/")]:
                self._delete(kind, namespace, key.split("/")[1], body or {})
            return {"kind": f"{kind.kind}List", "items": []}
        current = self._get(kind, namespace, name)
        if content_type.startswith("application/apply"):
            before = self.applied.get((kind, name, params["fieldManager"]), {})
            self.applied[kind, name, params["fieldManager"]] = body
            wanted = {**{key: value for key, value in current.items() if key not in before}, **body}
            wanted["metadata"] = current["metadata"]
        elif method == "PATCH":
            strategic = content_type.startswith("application/strategic")
            wanted = _merge(copy.deepcopy(current), body, strategic)
        else:
            wanted = body
        asked = body.get("metadata", {})
        if asked.get("uid") not in (None, current["metadata"]["uid"]):
            raise StatusError(409, "Conflict", "Precondition failed: UID")
        if asked.get("resourceVersion") not in (None, current["metadata"]["resourceVersion"]):
            raise StatusError(409, "Conflict", f"stale {kind.plural} {name}")
        return self._update(kind, current, wanted, sub)

    def _get(self, kind: Kind, namespace: str, name: str) -> Json:
        found = self.objects[kind].get(_key(namespace, name))
        if found is None:
            raise StatusError(404, "NotFound", f'{kind.plural} "{name}" not found')
        return found

    def _list(self, kind: Kind, namespace: str, params: dict[str, str]) -> Json:
        items = [o for _, o in sorted(self.objects[kind].items()) if _selected(o, namespace, params)]
        first = int(params.get("continue") or 0)
        limit = int(params.get("limit") or 0)
        metadata: Json = {"resourceVersion": str(self.version)}
        if limit and first + limit < len(items):
            metadata["continue"] = str(first + limit)
        page = items[first : first + limit] if limit else items[first:]
        return {"kind": f"{kind.kind}List", "metadata": metadata, "items": page}

    def create(self, kind: Kind, namespace: str, body: Json) -> Json:
        obj = copy.deepcopy(body)
        metadata = obj.setdefault("metadata", {})
        if "generateName" in metadata and "name" not in metadata:
            metadata["name"] = f"{metadata['generateName']}{self.version:05d}"
        if kind.namespaced:
            metadata["namespace"] = namespace
            home = self.objects[KINDS[0]].get(namespace)
            if home is not None and home["metadata"].get("deletionTimestamp"):
                causes = {"causes": [{"reason": "NamespaceTerminating"}]}
                raise StatusError(403, "Forbidden", "being terminated", causes)
        key = _key(metadata.get("namespace", ""), metadata["name"])
        if key in self.objects[kind]:
            raise StatusError(409, "AlreadyExists", f'{kind.plural} "{metadata["name"]}" already exists')
        metadata["uid"] = f"uid-{self.version}"
        metadata["creationTimestamp"] = self._now()
        metadata["generation"] = 1
        if kind.plural == "pods":
            obj.setdefault("status", {}).setdefault("phase", "Pending")
            obj.setdefault("spec", {}).setdefault("terminationGracePeriodSeconds", 30)
        if kind.plural == "namespaces":
            obj["spec"] = {"finalizers": ["kubernetes"]}
            obj["status"] = {"phase": "Active"}
        return self._store("ADDED", kind, key, None, obj)

    def _update(self, kind: Kind, current: Json, wanted: Json, sub: str) -> Json:
        new = copy.deepcopy(current)
        if sub == "status":
            new["status"] = wanted.get("status", {})
        elif sub == "finalize":
            new["spec"] = wanted["spec"]
        elif sub == "scale":
            new["spec"]["replicas"] = wanted["spec"]["replicas"]
        else:
            new = {**copy.deepcopy(wanted), "status": current.get("status", {})}
            if "status" not in current:
                del new["status"]
        if any(new.get(part) != current.get(part) for part in ("spec", "endpoints", "ports")):
            new["metadata"]["generation"] = current["metadata"].get("generation", 1) + 1
        for name in ("uid", "creationTimestamp", "resourceVersion", "deletionTimestamp"):
            if name in current["metadata"]:
                new["metadata"][name] = current["metadata"][name]
        if new == current:
            return current
        key = _key(new["metadata"].get("namespace", ""), new["metadata"]["name"])
        if self._may_go(kind, new):
            return self._remove(kind, key, new)
        return self._store("MODIFIED", kind, key, current, new)

    def _may_go(self, kind: Kind, obj: Json) -> bool:
        metadata = obj["metadata"]
        if not metadata.get("deletionTimestamp") or metadata.get("finalizers"):
            return False
        if kind.plural == "namespaces":
            return not obj["spec"].get("finalizers")
        return not metadata.get("deletionGracePeriodSeconds")

    def _delete(self, kind: Kind, namespace: str, name: str, options: Json) -> Json:
        obj = copy.deepcopy(self._get(kind, namespace, name))
        metadata, old = obj["metadata"], self._get(kind, namespace, name)
        for field, value in (options.get("preconditions") or {}).items():
            if metadata[field] != value:
                raise StatusError(409, "Conflict", f"precondition {field}: {value} is not {metadata[field]}")
        key, policy = _key(namespace, name), options.get("propagationPolicy", "Background")
        finalizer = {"Foreground": "foregroundDeletion", "Orphan": "orphan"}.get(policy)
        if finalizer and finalizer not in metadata.get("finalizers", []):
            metadata["finalizers"] = [*metadata.get("finalizers", []), finalizer]
        grace = 0
        if kind.plural == "pods":
            running = obj["spec"].get("nodeName") and obj["status"]["phase"] not in ("Succeeded", "Failed")
            asked = options.get("gracePeriodSeconds")
            grace = (obj["spec"]["terminationGracePeriodSeconds"] if asked is None else asked) if running else 0
            if "deletionTimestamp" in metadata:
                grace = min(grace, metadata.get("deletionGracePeriodSeconds", 0))
        metadata.setdefault("deletionTimestamp", self._now())
        metadata["deletionGracePeriodSeconds"] = grace
        if self._may_go(kind, obj):
            return self._remove(kind, key, obj)
        if kind.plural == "namespaces":
            obj["status"]["phase"] = "Terminating"
        return old if obj == old else self._store("MODIFIED", kind, key, old, obj)

    def _bind(self, namespace: str, name: str, body: Json) -> Json:
        kind = KINDS[2]
        pod = copy.deepcopy(self._get(kind, namespace, name))
        pod["spec"]["nodeName"] = body["target"]["name"]
        self._store("MODIFIED", kind, _key(namespace, name), self._get(kind, namespace, name), pod)
        return {"kind": "Status", "status": "Success"}

    def _store(self, type: str, kind: Kind, key: str, old: Json | None, new: Json) -> Json:
        self.version += 1
        new["metadata"]["resourceVersion"] = str(self.version)
        self.objects[kind][key] = new
        self.history.append(Record(self.version, type, kind, old, new))
        self._wake()
        return new

    def _remove(self, kind: Kind, key: str, obj: Json) -> Json:
        self.version += 1
        old = self.objects[kind].pop(key)
        obj["metadata"]["resourceVersion"] = str(self.version)
        self.history.append(Record(self.version, "DELETED", kind, old, obj))
        self._wake()
        return obj

    def _now(self) -> str:
        return datetime.fromtimestamp(self._clock.wall_s(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    # --- for tests --------------------------------------------------------------------------------------------------

    def kind(self, plural: str) -> dict[str, Json]:
        """The objects of a kind, by key."""
        return next(objects for kind, objects in self.objects.items() if kind.plural == plural)

    def make(self, plural: str, key: str, **parts: Any) -> Json:
        """Creates an object at once. `metadata` is merged with the key."""
        kind = next(kind for kind in KINDS if kind.plural == plural)
        namespace, _, name = key.rpartition("/")
        metadata = {"name": name, **parts.pop("metadata", {})}
        return self.create(kind, namespace, {"metadata": metadata, **parts})

    def change(self, plural: str, key: str, **parts: Any) -> Json:
        """Replaces top-level parts of an object at once."""
        kind = next(kind for kind in KINDS if kind.plural == plural)
        old = self.objects[kind][key]
        return self._store("MODIFIED", kind, key, old, {**copy.deepcopy(old), **copy.deepcopy(parts)})

    def remove(self, plural: str, key: str, **options: Any) -> None:
        kind = next(kind for kind in KINDS if kind.plural == plural)
        namespace, _, name = key.rpartition("/")
        self._delete(kind, namespace, name, options)


def _key(namespace: str, name: str) -> str:
    return f"{namespace}/{name}" if namespace else name


def _discovery(path: str) -> Json:
    if path == "/apis":
        version = {"groupVersion": "coordination.k8s.io/v1", "version": "v1"}
        return {"groups": [{"name": "coordination.k8s.io", "versions": [version], "preferredVersion": version}]}
    group = "" if path == "/api/v1" else "coordination.k8s.io"
    return {"resources": [{"name": k.plural, "kind": k.kind, "namespaced": k.namespaced, "verbs": VERBS}
                          for k in KINDS if k.group == group]}  # fmt: skip


def _selected(obj: Json, namespace: str, params: Mapping[str, str]) -> bool:
    if namespace and obj["metadata"].get("namespace") != namespace:
        return False
    fields = params.get("fieldSelector", "")
    if of_nodes := re.fullmatch(r"hash\.spec\.nodeName in \(([0-9,]+)\)", fields):
        node = obj["spec"].get("nodeName", "")
        return bool(node) and str(zlib.crc32(node.encode())) in of_nodes[1].split(",")
    for requirement in filter(None, fields.split(",")):
        term = re.match(r"^([^!=<>() ]+)(!?)==?(.*)$", requirement)
        if term is None:
            raise StatusError(400, "BadRequest", f"invalid selector: '{requirement}'")
        path, negate, value = term.groups()
        found: Any = obj
        for part in path.split("."):
            found = (found or {}).get(part)
        if ((found or "") == value) == bool(negate):
            return False
    for requirement in filter(None, params.get("labelSelector", "").split(",")):
        name, _, value = requirement.partition("=")
        if obj["metadata"].get("labels", {}).get(name) != value:
            return False
    return True


def _event(record: Record, namespace: str, params: Mapping[str, str]) -> list[WatchEvent]:
    before = record.old is not None and _selected(record.old, namespace, params)
    after = record.type != "DELETED" and _selected(record.new, namespace, params)
    if not before and not after:
        return []
    type = ("MODIFIED" if before else "ADDED") if after else "DELETED"
    return [WatchEvent(type, orjson.dumps(record.new))]


def _merge(target: Any, patch: Any, strategic: bool) -> Any:
    if not isinstance(patch, dict) or not isinstance(target, dict):
        return patch
    for name, value in patch.items():
        if value is None:
            target.pop(name, None)
        elif strategic and name in MERGE_KEYS and isinstance(value, list):
            target[name] = _merge_list(target.get(name) or [], value, MERGE_KEYS[name])
        else:
            target[name] = _merge(target.get(name, {}) if isinstance(value, dict) else None, value, strategic)
    return target


def _merge_list(target: list[Json], patch: list[Json], merge_key: str) -> list[Json]:
    merged = {entry[merge_key]: entry for entry in target}
    for entry in patch:
        if entry.get("$patch") == "delete":
            merged.pop(entry[merge_key], None)
        else:
            merged[entry[merge_key]] = {**merged.get(entry[merge_key], {}), **entry}
    return list(merged.values())

"""Roles, bindings, flow schemas and APIServices that every cluster has, as upstream's server creates them at startup.

Roles are in `bootstrap_policy.json`, recorded from a live upstream. Missing objects are created a hundred per
transaction; missing rules and subjects are added, unless its annotation `rbac.authorization.kubernetes.io/autoupdate`
is "false" (docs/adr/0025-rbac-objects.md). Flow schemas and priority levels are checked every minute; the spec is
restored unless the object is user-managed. Every flow schema says whether its priority level exists.

Source: kubernetes `pkg/registry/rbac/rest/storage_rbac.go`, component-helpers `auth/rbac/reconciliation`,
`pkg/registry/flowcontrol/ensurer`, apiserver `pkg/util/flowcontrol/apf_controller.go`.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Container, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

import orjson

from minikube_py.api.apply.managed_fields import Sender, field_manager, track
from minikube_py.api.errors import Json, StatusError
from minikube_py.api.feature_gates import FeatureGates
from minikube_py.api.kind import Kind
from minikube_py.api.kinds.apiregistration import APISERVICES, as_managed, served_here
from minikube_py.api.kinds.flowcontrol import (
    AUTO_UPDATE,
    FLOWS,
    FLOWSCHEMAS,
    LEVELS,
    MANDATORY,
    PRIORITYLEVELS,
    dangling,
)
from minikube_py.api.kinds.rbac import CLUSTERROLEBINDINGS, CLUSTERROLES, ROLEBINDINGS, ROLES
from minikube_py.api.meta import namespace_of, new_uid, timestamp
from minikube_py.api.patch import APPLY_PATCH
from minikube_py.api.registry import registry_of
from minikube_py.apiserver.escalation import uncovered
from minikube_py.apiserver.messages import Request
from minikube_py.apiserver.preparing import encode
from minikube_py.apiserver.rules import AUTHENTICATED, MASTERS, User, rule_of
from minikube_py.apiserver.system import attempt
from minikube_py.apiserver.watch_cache import WatchCache
from minikube_py.apiserver.writes import Writer
from minikube_py.fields.booleans import BOOLEANS
from minikube_py.mvcc.types import KeyValue

if TYPE_CHECKING:
    from minikube_py.apiserver.core import ApiServer

log = logging.getLogger(__name__)
_AUTOUPDATE: Final = "rbac.authorization.kubernetes.io/autoupdate"
_TOGETHER_MAX: Final = 100
"""An etcd takes 128 operations in one transaction."""
_ATTEMPTS_MAX: Final = 10
_SPECS: Final = {PRIORITYLEVELS: LEVELS, FLOWSCHEMAS: FLOWS}
Served = Sequence[tuple[Kind, Json]]
_PRODUCER: Final = "api-priority-and-fairness-config-producer-v1"
_CONSUMER: Final = "api-priority-and-fairness-config-consumer-v1"
_SERVER: Final = User("system:apiserver", (MASTERS, AUTHENTICATED))
_TOLD_MAX: Final = 6
"""How often in a minute the server takes the condition of one flow schema back from others."""
_TURN: Final = 100
"""Flow schemas that are looked at in one step."""


@cache
def expected(gates: FeatureGates) -> tuple[tuple[Kind, Json], ...]:
    """Not to be changed."""
    here = Path(__file__)
    recorded = orjson.loads(here.with_name("bootstrap_policy.json").read_bytes())
    if gates:
        gated = orjson.loads(here.with_name("bootstrap_policy_gated.json").read_bytes())
        add_gated(recorded, gated, gates)
    kinds = (CLUSTERROLES, CLUSTERROLEBINDINGS, ROLES, ROLEBINDINGS)
    return (*((kind, obj) for kind in kinds for obj in recorded[kind.plural]), *_flows(), *_services(gates))


def add_gated(recorded: Json, gated: Json, gates: FeatureGates) -> None:
    """Additions to `recorded` for enabled feature gates: rules of existing roles, and objects."""
    for gate in sorted(gates & gated.keys()):
        for plural, objects in gated[gate].items():
            there = {namespace_of(obj) + "/" + obj["metadata"]["name"]: obj for obj in recorded[plural]}
            for obj in objects:
                known = there.get(namespace_of(obj) + "/" + obj["metadata"]["name"])
                if known is None:
                    recorded[plural].append(obj)
                else:
                    known["rules"] = [*known["rules"], *obj["rules"]]


@cache
def _flows() -> tuple[tuple[Kind, Json], ...]:
    metadata = {"annotations": {AUTO_UPDATE: "true"}, "generation": 1}
    return tuple(
        (kind, {"metadata": {"name": name, **metadata}, "spec": spec, "status": {}})
        for kind, specs in _SPECS.items()
        for name, spec in specs.items()
    )


def _services(gates: FeatureGates) -> Served:
    return [(APISERVICES, each) for each in served_here(registry_of(gates).group_versions)]


async def reconcile(server: ApiServer, wanted: Served) -> None:
    """What cannot be made or read does not prevent startup. Raises: StatusError if the store does not answer."""
    writer, cache, now_s = server.writer, server.cache, server.clock.wall_s()
    served = [(kind, obj) for kind, obj in wanted if kind in cache.caches]

    async def create_missing() -> None:
        for _ in range(_ATTEMPTS_MAX):
            if await _create_missing(served, server, now_s):
                break

    await attempt("the roles and flow schemas of the system are not all made", create_missing())
    for kind, expected in served:
        what = f"{kind.kind} {expected['metadata']['name']} of the system is not completed"
        await attempt(what, _complete(writer, cache, kind, expected, now_s))
    await attempt("flow schemas of an earlier release are not all deleted", _remove_unwanted(writer, cache))


async def _create_missing(served: Served, server: ApiServer, now_s: float) -> bool:
    """False: another server is creating them too; check some again."""
    cache = server.cache
    unreadable = cache.reading.why
    missing = [
        (kind, obj)
        for kind, obj in served
        if (key := _key(kind, obj)) not in cache.of(kind).entries and key not in unreadable
    ]
    made = list(_new(missing, server.rng, now_s))
    count = _TOGETHER_MAX
    while made:
        together = dict(made[:count])
        try:
            outcome = await server.store.create_all(together)
        except StatusError as error:
            if error.code != 413 or len(together) == 1:
                raise
            # A store may have a lower limit.
            count = len(together) // 2
            continue
        del made[: len(together)]
        await cache.wait_until(outcome.revision, server.limits.request_timeout_s)
        if not outcome.done:
            return False
    return True


async def _remove_unwanted(writer: Writer, cache: WatchCache) -> None:
    """Objects of an earlier release that this one does not create."""
    for kind, specs in _SPECS.items():
        for entry in cache.of(kind).select(kind.prefix) if kind in cache.caches else ():
            metadata = entry.decode()["metadata"]
            if metadata["name"] not in specs and _says((metadata.get("annotations") or {}).get(AUTO_UPDATE)):
                await writer.store.delete(KeyValue(entry.key, entry.value, 0, entry.revision, 0, 0))


def _says(value: str | None) -> bool | None:
    """An annotation's value by Go's ParseBool."""
    return BOOLEANS.get(value or "")


def _key(kind: Kind, obj: Json) -> bytes:
    return kind.key(namespace_of(obj), obj["metadata"]["name"])


def _new(objects: list[tuple[Kind, Json]], rng: random.Random, now_s: float) -> Iterator[tuple[bytes, bytes]]:
    for kind, obj in objects:
        named = {key: value for key, value in obj["metadata"].items() if key in ("name", "namespace")}
        stamped = {**named, "uid": new_uid(rng), "creationTimestamp": timestamp(now_s)}
        made = {**obj, "metadata": {**stamped, **obj["metadata"]}}
        kind.prepare_create(made)
        if kind in _SPECS:
            track(kind, "", None, made, Sender(_PRODUCER, "", now_s))
        if kind is FLOWSCHEMAS and (condition := dangling(made, LEVELS, timestamp(now_s))) is not None:
            made = field_manager(kind, "status").apply(
                made, _with_status(made, condition), True, Sender(_CONSUMER, "", now_s)
            )
        yield _key(kind, obj), encode(made)


# --- what is there already --------------------------------------------------------------------------------------------


async def _complete(writer: Writer, cache: WatchCache, kind: Kind, expected: Json, now_s: float) -> None:
    entry = cache.of(kind).entries.get(_key(kind, expected))
    found = orjson.loads(entry.value) if entry is not None else None
    if found is None or _completed(kind, found, expected) is None:
        return
    namespace, name = namespace_of(expected), expected["metadata"]["name"]
    if kind in (CLUSTERROLEBINDINGS, ROLEBINDINGS) and found["roleRef"] != expected["roleRef"]:
        # It cannot be changed: the binding is replaced.
        assert entry is not None
        await writer.store.delete(KeyValue(entry.key, entry.value, 0, entry.revision, 0, 0))
        await writer.create_object(kind, namespace, orjson.loads(orjson.dumps(expected)))
        return

    def make(old: Json) -> Json:
        new = _completed(kind, old, expected)
        if new is not None and kind in _SPECS:
            track(kind, "", old, new, Sender(_PRODUCER, "", now_s))
        return new or old

    try:
        await writer.change(kind, namespace, name, make)
    except StatusError as error:
        if error.code != 404:
            raise


def _completed(kind: Kind, found: Json, expected: Json) -> Json | None:
    """`found` completed; None if it is complete or must not be changed."""
    if kind is APISERVICES:
        return as_managed(found, expected)
    metadata = found["metadata"]
    annotations = metadata.get("annotations") or {}
    if kind in _SPECS:
        said, spec = _says(annotations.get(AUTO_UPDATE)), expected["spec"]
        if "exempt" in spec and (exempt := found["spec"].get("exempt")) is not None:
            # Its shares belong to the administrator.
            spec = {**spec, "exempt": exempt}
        renewed = metadata["name"] in MANDATORY or (metadata.get("generation") == 1 if said is None else said)
        if said is renewed and (not renewed or found["spec"] == spec):
            return None
        annotations = {**annotations, AUTO_UPDATE: "true" if renewed else "false"}
        new = {**found, "metadata": {**metadata, "annotations": annotations}}
        if renewed and found["spec"] != spec:
            new["spec"] = spec
            new["metadata"]["generation"] = metadata.get("generation", 0) + 1
        return new
    if annotations.get(_AUTOUPDATE) == "false":
        return None
    merged = {
        name: {**expected["metadata"].get(name, {}), **(metadata.get(name) or {})} for name in ("labels", "annotations")
    }
    new = {**found, "metadata": {**metadata, **merged}}
    if kind in (CLUSTERROLES, ROLES):
        _complete_rules(new, expected)
    elif found["roleRef"] == expected["roleRef"]:
        subjects = found.get("subjects") or []
        if missing := [subject for subject in expected.get("subjects") or () if subject not in subjects]:
            new["subjects"] = subjects + missing
    else:
        return expected
    return new if new != found else None


def _complete_rules(new: Json, expected: Json) -> None:
    rules = new.get("rules") or []
    if rules != (expected.get("rules") or []):
        held = [rule_of(rule) for rule in rules]
        if missing := list(uncovered(held, [rule_of(rule) for rule in expected.get("rules") or ()])):
            new["rules"] = rules + [rule.to_json() for rule in missing]
    wanted = (expected.get("aggregationRule") or {}).get("clusterRoleSelectors") or []
    selectors = (new.get("aggregationRule") or {}).get("clusterRoleSelectors") or []
    if not wanted:
        new.pop("aggregationRule", None)
    elif missing_selectors := [selector for selector in wanted if selector not in selectors]:
        new["aggregationRule"] = {"clusterRoleSelectors": selectors + missing_selectors}


# --- flow schemas ---------------------------------------------------------------------------------------------------


class Flows:
    """Keeps the system's flow schemas and priority levels, and the condition Dangling of every flow schema."""

    def __init__(self, server: ApiServer) -> None:
        self._server = server
        self._seen: tuple[int, ...] = ()
        self._told: Counter[str] = Counter()

    async def keep(self) -> None:
        """To be called each minute. Raises: StatusError if the store does not answer."""
        self._seen = ()
        self._told.clear()
        await reconcile(self._server, _flows())

    async def tell(self) -> None:
        """To be called each second: says of flow schemas whether their levels exist. What is refused is tried again
        with the next change, or by `keep`."""
        caches = self._server.cache.caches
        if FLOWSCHEMAS not in caches or PRIORITYLEVELS not in caches:
            return
        flows, levels = caches[FLOWSCHEMAS], caches[PRIORITYLEVELS]
        seen = flows.last_change, levels.last_change
        if seen == self._seen:
            return
        self._seen = seen
        there = {key.rpartition(b"/")[2].decode() for key in levels.entries}
        for place, entry in enumerate(list(flows.entries.values())):
            await attempt(f"the condition of the FlowSchema {entry.key.decode()}", self._tell(entry.decode(), there))
            if place % _TURN == 0:
                await asyncio.sleep(0)

    async def _tell(self, flow: Json, levels: Container[str]) -> None:
        condition, name = dangling(flow, levels, timestamp(self._server.clock.wall_s())), flow["metadata"]["name"]
        if condition is None or self._told[name] == _TOLD_MAX:
            return
        self._told[name] += 1
        path = f"/apis/{FLOWSCHEMAS.api_version}/{FLOWSCHEMAS.plural}/{name}/status"
        body, query = orjson.dumps(_with_status(flow, condition)), {"fieldManager": _CONSUMER, "force": "true"}
        request = Request("PATCH", path, query, body, _SERVER, content_type=APPLY_PATCH)
        response = await self._server.handle(request)
        if response.status not in (200, 404):
            log.warning("the condition of the FlowSchema %s is refused: %s", name, response.whole().decode())


def _with_status(flow: Json, condition: Json) -> Json:
    """To be applied."""
    meant = {"apiVersion": FLOWSCHEMAS.api_version, "kind": FLOWSCHEMAS.kind}
    return {**meant, "metadata": {"name": flow["metadata"]["name"]}, "status": {"conditions": [condition]}}

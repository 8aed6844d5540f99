"""Roles, bindings, flow schemas and APIServices that every cluster has, as upstream's server creates them at startup.

Roles are in `bootstrap_policy.json`, recorded from a live upstream. Missing objects are created a hundred per
transaction; missing rules and subjects are added, unless its annotation `rbac.authorization.kubernetes.io/autoupdate`
is "false" (docs/adr/0025-rbac-objects.md). Flow schemas and priority levels are checked every minute; the spec is
restored unless the object is user-managed.

Source: kubernetes `pkg/registry/rbac/rest/storage_rbac.go`, component-helpers `auth/rbac/reconciliation`,
`pkg/registry/flowcontrol/ensurer`.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Final

import orjson

from minikube_py.api.errors import Json, StatusError
from minikube_py.api.feature_gates import FeatureGates
from minikube_py.api.kind import Kind
from minikube_py.api.kinds.apiregistration import APISERVICES, as_managed, served_here
from minikube_py.api.kinds.flowcontrol import AUTO_UPDATE, FLOWS, FLOWSCHEMAS, LEVELS, MANDATORY, PRIORITYLEVELS
from minikube_py.api.kinds.rbac import CLUSTERROLEBINDINGS, CLUSTERROLES, ROLEBINDINGS, ROLES
from minikube_py.api.meta import namespace_of, new_uid, timestamp
from minikube_py.api.registry import registry_of
from minikube_py.apiserver.escalation import uncovered
from minikube_py.apiserver.preparing import encode
from minikube_py.apiserver.rules import rule_of
from minikube_py.apiserver.system import attempt
from minikube_py.apiserver.watch_cache import WatchCache
from minikube_py.apiserver.writes import Writer
from minikube_py.fields.booleans import BOOLEANS
from minikube_py.mvcc.types import KeyValue

_AUTOUPDATE: Final = "rbac.authorization.kubernetes.io/autoupdate"
_TOGETHER_MAX: Final = 100
"""An etcd takes 128 operations in one transaction."""
_ATTEMPTS_MAX: Final = 10
_SPECS: Final = {PRIORITYLEVELS: LEVELS, FLOWSCHEMAS: FLOWS}
Served = Sequence[tuple[Kind, Json]]


@cache
def _expected(gates: FeatureGates) -> tuple[tuple[Kind, Json], ...]:
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


async def reconcile(
    writer: Writer,
    cache: WatchCache,
    rng: random.Random,
    wall_s: float,
    patience_s: float,
    flows: bool = False,
) -> None:
    """`flows`: only flow schemas and priority levels.

    What cannot be made or read does not prevent startup. Raises: StatusError if the store does not answer."""
    expected_here = _flows() if flows else _expected(writer.cluster.gates)
    served = [(kind, obj) for kind, obj in expected_here if kind in cache.caches]

    async def create_missing() -> None:
        for _ in range(_ATTEMPTS_MAX):
            if await _create_missing(served, writer, cache, rng, wall_s, patience_s):
                break

    await attempt("the roles and flow schemas of the system are not all made", create_missing())
    for kind, expected in served:
        what = f"{kind.kind} {expected['metadata']['name']} of the system is not completed"
        await attempt(what, _complete(writer, cache, kind, expected))
    await attempt("flow schemas of an earlier release are not all deleted", _remove_unwanted(writer, cache))


async def _create_missing(
    served: Served, writer: Writer, cache: WatchCache, rng: random.Random, wall_s: float, patience_s: float
) -> bool:
    """False: another server is creating them too; check some again."""
    unreadable = cache.reading.why
    missing = [
        (kind, obj)
        for kind, obj in served
        if (key := _key(kind, obj)) not in cache.of(kind).entries and key not in unreadable
    ]
    created_at = timestamp(wall_s)
    made = list(_new(missing, rng, created_at))
    count = _TOGETHER_MAX
    while made:
        together = dict(made[:count])
        try:
            outcome = await writer.store.create_all(together)
        except StatusError as error:
            if error.code != 413 or len(together) == 1:
                raise
            # A store may have a lower limit.
            count = len(together) // 2
            continue
        del made[: len(together)]
        await cache.wait_until(outcome.revision, patience_s)
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


def _new(objects: list[tuple[Kind, Json]], rng: random.Random, created_at: str) -> Iterator[tuple[bytes, bytes]]:
    for kind, obj in objects:
        named = {key: value for key, value in obj["metadata"].items() if key in ("name", "namespace")}
        stamped = {**named, "uid": new_uid(rng), "creationTimestamp": created_at}
        made = {**obj, "metadata": {**stamped, **obj["metadata"]}}
        kind.prepare_create(made)
        yield _key(kind, obj), encode(made)


# --- what is there already --------------------------------------------------------------------------------------------


async def _complete(writer: Writer, cache: WatchCache, kind: Kind, expected: Json) -> None:
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
        return _completed(kind, old, expected) or old

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

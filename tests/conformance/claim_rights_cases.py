"""Writes to the status of ResourceClaims by users who hold some of the rights to its parts. Drawn from a seed."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

from asking import Ask

RBAC = "/apis/rbac.authorization.k8s.io/v1"
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/claimed/resourceclaims"
DRIVERS = ("a.example.com", "b.example.com")
NODE = "n1"
_GROUP = "resource.k8s.io"
_MERGE = "application/merge-patch+json"


def _rule(resource: str, verbs: list[str], names: tuple[str, ...] = ()) -> dict[str, Any]:
    rule: dict[str, Any] = {"verbs": verbs, "apiGroups": [_GROUP], "resources": [resource]}
    return rule | ({"resourceNames": list(names)} if names else {})


_WRITES = ["update", "patch"]
_STATUS = _rule("resourceclaims/status", [*_WRITES, "get"])
_ARBITRARY, _ASSOCIATED = ([f"{prefix}-node:{verb}" for verb in _WRITES] for prefix in ("arbitrary", "associated"))
RULES = {
    "status": [],
    "binder": [_rule("resourceclaims/binding", _WRITES)],
    "updates": [_rule("resourceclaims/binding", ["update"])],
    "reports-a": [_rule("resourceclaims/driver", _ARBITRARY, DRIVERS[:1])],
    "reports-here": [_rule("resourceclaims/driver", _ASSOCIATED)],
    "reports-b-here": [_rule("resourceclaims/driver", _ASSOCIATED, DRIVERS[1:])],
    "all": [_rule("resourceclaims/binding", ["*"]), _rule("resourceclaims/driver", ["*"])],
    "of-no-part": [_rule("resourceclaims/*", ["*"])],
    "every": [_rule("*/binding", ["*"]), _rule("*/driver", ["*"], DRIVERS)],
}
"""By user and by service account: what they hold beside the right to write the status."""


def setup() -> Iterator[Ask]:
    yield Ask("claims setup", "POST", "/api/v1/namespaces", {"metadata": {"name": "claimed"}})
    for name, rules in RULES.items():
        role = {"metadata": {"name": f"claims-{name}"}, "rules": [_STATUS, *rules]}
        yield Ask("claims setup", "POST", f"{RBAC}/clusterroles", role)
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": f"claims-{name}"}
        subjects = [{"kind": "User", "name": name}, {"kind": "ServiceAccount", "name": name, "namespace": "claimed"}]
        binding = {"metadata": {"name": f"claims-{name}"}, "subjects": subjects, "roleRef": reference}
        yield Ask("claims setup", "POST", f"{RBAC}/clusterrolebindings", binding)
    # A right to bind that is held in the namespace alone is none.
    local = {"metadata": {"name": "local"}, "rules": RULES["all"]}
    yield Ask("claims setup", "POST", f"{RBAC}/namespaces/claimed/roles", local)
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "local"}
    binding = {"metadata": {"name": "local"}, "subjects": [{"kind": "User", "name": "status"}], "roleRef": reference}
    yield Ask("claims setup", "POST", f"{RBAC}/namespaces/claimed/rolebindings", binding)
    for name, status in STANDING.items():
        spec = {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "c"}}]}}
        yield Ask("claims setup", "POST", CLAIMS, {"metadata": {"name": name}, "spec": spec})
        if status:
            body = {"metadata": {"name": name}, "spec": spec, "status": status}
            yield Ask("claims setup", "PUT", f"{CLAIMS}/{name}/status", _compact(body))


def known() -> Ask:
    asked = {"verb": "x", "group": _GROUP, "resource": "resourceclaims", "subresource": "binding"}
    spec = {"user": "every", "resourceAttributes": asked}
    return Ask("claims known", "POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", {"spec": spec})


def _compact(body: dict[str, Any]) -> bytes:
    """Upstream compares a driver's data byte by byte, as they were sent."""
    return json.dumps(body, separators=(",", ":")).encode()


def _result(driver: str) -> dict[str, Any]:
    return {"request": "r", "driver": driver, "pool": "p", "device": "d"}


def _allocation(node: str | None = NODE, drivers: tuple[str, ...] = DRIVERS) -> dict[str, Any]:
    found: dict[str, Any] = {"devices": {"results": [_result(driver) for driver in drivers]}}
    if node is not None:
        term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
        found["nodeSelector"] = {"nodeSelectorTerms": [term]}
    return found


def _device(driver: str, data: int = 0) -> dict[str, Any]:
    return {"driver": driver, "pool": "p", "device": "d", **({"data": {"n": data}} if data else {})}


_USER = {"resource": "pods", "name": "p", "uid": "u"}
STANDING: dict[str, dict[str, Any]] = {
    "pending": {},
    "here": {"allocation": _allocation()},
    "reported": {"allocation": _allocation(), "reservedFor": [_USER], "devices": [_device(each) for each in DRIVERS]},
    "anywhere": {"allocation": _allocation(None), "devices": [_device(DRIVERS[0], 1)]},
    "there": {"allocation": _allocation("n2"), "devices": [_device(DRIVERS[1])]},
}


def _drawn_status(rng: random.Random, standing: dict[str, Any]) -> dict[str, Any]:
    status = dict(standing)
    if rng.random() < 0.4:
        fewer = _allocation(drivers=DRIVERS[:1])
        status["allocation"] = rng.choice((None, _allocation(), _allocation(None), fewer, status.get("allocation")))
    if rng.random() < 0.4:
        status["reservedFor"] = rng.choice((None, [], [_USER], [{**_USER, "uid": "v"}], [{"resource": "pods"}]))
    if rng.random() < 0.7:
        drivers = rng.sample((*DRIVERS, "c.example.com"), rng.randint(0, 2))
        status["devices"] = [_device(driver, rng.randrange(3)) for driver in drivers] or None
    return {name: value for name, value in status.items() if value is not None}


def cases(seed: int, count: int) -> Iterator[Ask]:
    rng = random.Random(seed)
    for _ in range(count):
        name = rng.choice(list(STANDING))
        status, target = _drawn_status(rng, STANDING[name]), f"{CLAIMS}/{name}/status?dryRun=All"
        user, headers = rng.choice(list(RULES)), list[tuple[str, str]]()
        if rng.random() < 0.5:
            user = f"system:serviceaccount:claimed:{user}"
            nodes = rng.choice(((), (NODE,), (NODE,), ("n2",), (NODE, "n2"), ("Not a node",)))
            headers = [("Impersonate-Extra-authentication.kubernetes.io%2fnode-name", node) for node in nodes]
        headers.insert(0, ("Impersonate-User", user))
        if rng.random() < 0.5:
            spec = {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "c"}}]}}
            body = {"metadata": {"name": name}, "spec": spec, "status": status}
            yield Ask("claims status", "PUT", target, _compact(body), headers=tuple(headers))
        else:
            # What is not there any more is taken away.
            gone = dict.fromkeys(("allocation", "reservedFor", "devices"))
            yield Ask("claims status", "PATCH", target, {"status": gone | status}, _MERGE, headers=tuple(headers))

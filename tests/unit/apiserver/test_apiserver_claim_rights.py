"""The status of a ResourceClaim: who may bind it, and who may report of its devices.

Beside upstream: `test_who_may_write_which_part_of_a_claims_status` in `tests/conformance/test_differential.py`."""

from __future__ import annotations

from typing import Any

import pytest
from api_core import MERGE, Core

from minikube_py.apiserver.rules import AUTHENTICATED, User

RBAC = "/apis/rbac.authorization.k8s.io/v1"
CLAIM = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
HERE = {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]}
RESULT = {"request": "r", "driver": "d.example.com", "pool": "p", "device": "d"}
ALLOCATION = {"devices": {"results": [RESULT]}, "nodeSelector": HERE}
DEVICE = {"driver": "d.example.com", "pool": "p", "device": "d"}
BINDING = {"verbs": ["patch"], "apiGroups": ["resource.k8s.io"], "resources": ["resourceclaims/binding"]}
REPORT = {"status": {"devices": [DEVICE]}}
BIND = {"status": {"allocation": ALLOCATION}}
BOTH = {"status": {"allocation": {"devices": ALLOCATION["devices"]}, "devices": [DEVICE]}}


def driver(verb: str, *names: str) -> dict[str, Any]:
    rule = {"verbs": [verb], "apiGroups": ["resource.k8s.io"], "resources": ["resourceclaims/driver"]}
    return rule | ({"resourceNames": names} if names else {})


def user(node: str = "") -> User:
    """A service account of a driver; its token was issued for a pod on `node`."""
    extra = (("authentication.kubernetes.io/node-name", (node,)),) if node else ()
    return User("system:serviceaccount:default:driver", (AUTHENTICATED,), "", extra)


CASES = [
    pytest.param((), user(), BIND, ["status.allocation"], id="who holds no part binds nothing"),
    pytest.param((BINDING,), user(), BIND, [], id="who may bind binds"),
    pytest.param((BINDING,), user(), BOTH, ["status.devices"], id="who binds does not report"),
    pytest.param((driver("arbitrary-node:patch"),), user(), REPORT, [], id="a driver reports from anywhere"),
    pytest.param((driver("arbitrary-node:patch", "e.example.com"),), user(), REPORT, ["status.devices"], id="its own"),
    pytest.param((driver("associated-node:patch"),), user("n1"), REPORT, [], id="from the node that has the devices"),
    pytest.param((driver("associated-node:patch"),), user("n2"), REPORT, ["status.devices"], id="from another node"),
    pytest.param((driver("associated-node:patch"),), user("n1"), {"status": {"reservedFor": []}}, [], id="no change"),
    pytest.param((driver("*"),), user(), {"status": {"allocation": None}}, ["status.allocation"], id="or to give back"),
]


@pytest.mark.parametrize(("rules", "who", "patch", "refused"), CASES)
async def test_each_part_of_a_claims_status_has_a_right_of_its_own(
    core: Core, rules: tuple[dict[str, Any], ...], who: User, patch: dict[str, Any], refused: list[str]
) -> None:
    status = {"verbs": ["patch"], "apiGroups": ["resource.k8s.io"], "resources": ["resourceclaims/status"]}
    await core.done("POST", f"{RBAC}/clusterroles", {"metadata": {"name": "r"}, "rules": [status, *rules]})
    binding = {"subjects": [{"kind": "User", "name": who.name}], "roleRef": {"kind": "ClusterRole", "name": "r"}}
    binding["roleRef"] |= {"apiGroup": "rbac.authorization.k8s.io"}  # type: ignore[operator]
    await core.done("POST", f"{RBAC}/clusterrolebindings", {"metadata": {"name": "r"}, **binding})
    spec = {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "c"}}]}}
    await core.done("POST", CLAIM, {"metadata": {"name": "c"}, "spec": spec})
    if patch is not BIND:
        await core.done("PATCH", f"{CLAIM}/c/status", BIND, content_type=MERGE)
    code, answer = await core.ask("PATCH", f"{CLAIM}/c/status", patch, content_type=MERGE, user=who)
    causes = answer["details"]["causes"] if code == 422 else []
    assert {cause["field"] for cause in causes if cause["reason"] == "FieldValueForbidden"} >= set(refused), answer
    assert code == (422 if refused else 200), answer
    await core.done("PATCH", f"{CLAIM}/c/status", patch, content_type=MERGE)

"""Authorizes writes to parts of a ResourceClaim's status: its binding, and each driver's device status.

Upstream's gate DRAResourceClaimGranularStatusAuthorization, which is on by default. Source: kubernetes
`pkg/registry/resource/utils.go`, `resourceclaim/strategy.go`.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import Final

from minikube_py.api.equality import same_message
from minikube_py.api.errors import FieldError, Json, forbidden_value, invalid
from minikube_py.api.kind import Kind
from minikube_py.api.kinds.resource import GROUP, RESOURCECLAIMS
from minikube_py.api.meta import is_dns1123_subdomain
from minikube_py.api.validation.device_claims import device_id
from minikube_py.api.validation.dispatch import validate_update
from minikube_py.apiserver.auth import Asked, refusal
from minikube_py.apiserver.messages import Admission
from minikube_py.apiserver.rbac import Policy
from minikube_py.apiserver.rules import User

ASSOCIATED: Final = "associated-node:"
ARBITRARY: Final = "arbitrary-node:"
NODE_NAME: Final = "authentication.kubernetes.io/node-name"
_ACCOUNT: Final = "system:serviceaccount:"


def admission_of(policy: Policy, user: User, asked: Asked) -> Admission:
    """The checks on the user's writes to claim status."""

    def admit(kind: Kind, sub: str, name: str, old: Json | None, new: Json | None) -> None:
        """Raises: StatusError 422."""
        if kind is not RESOURCECLAIMS or sub != "status" or old is None or new is None:
            return
        # As it would be stored: without the status of deallocated devices.
        new = {**deepcopy(new), "metadata": deepcopy(old["metadata"])}
        kind.prepare_status(new, old)
        before, after = old.get("status") or {}, new.get("status") or {}
        errors = _binding(policy, user, asked.verb, before, after)
        if after.get("allocation") is not None:
            errors += _devices(policy, user, asked, before, after)
        if errors:
            raise invalid(kind, name, errors + validate_update(kind, new, old, sub))

    return admit


def _binding(policy: Policy, user: User, verb: str, before: Json, after: Json) -> list[FieldError]:
    parts = [{name: each[name] for name in ("allocation", "reservedFor") if each.get(name)} for each in (before, after)]
    if same_message("resource/v1.ResourceClaimStatus", *parts):
        return []
    why = _why_not(policy, user, [Asked(verb, GROUP, "resourceclaims", "binding")])
    what = f'changing status.allocation or status.reservedFor requires resource="resourceclaims/binding", verb="{verb}"'
    return [forbidden_value("status.allocation", f"{what} permission: {why}")] if why else []


def _devices(policy: Policy, user: User, asked: Asked, before: Json, after: Json) -> list[FieldError]:
    verbs = [ARBITRARY + asked.verb]
    if _node_of(user) and _node_of(user) == _allocated_node(after["allocation"]):
        verbs.insert(0, ASSOCIATED + asked.verb)
    errors = []
    for driver in sorted(_changed_drivers(before, after)):
        of = [Asked(verb, GROUP, "resourceclaims", "driver", asked.namespace, driver) for verb in verbs]
        if why := _why_not(policy, user, of):
            what = f'changing status.devices requires resource="resourceclaims/driver", verb="[{" ".join(verbs)}]"'
            errors.append(forbidden_value("status.devices", f"{what} permission: {why}"))
    return errors


def _why_not(policy: Policy, user: User, wanted: Sequence[Asked]) -> str:
    """The first one's reason if none is allowed; empty if one is."""
    answers = [policy.decide(user, each) for each in wanted]
    return "" if any(may for may, _ in answers) else refusal(user, wanted[0], answers[0][1]).message


def _changed_drivers(before: Json, after: Json) -> set[str]:
    def by_device(status: Json) -> dict[tuple[str, tuple[str, ...]], Json]:
        devices = status.get("devices") or ()
        return {(each.get("driver") or "", tuple(device_id(each).values())): each for each in devices}

    old, new = by_device(before), by_device(after)
    of = "resource/v1.AllocatedDeviceStatus"
    return {key[0] for key in old.keys() | new.keys() if not same_message(of, old.get(key), new.get(key))}


def _allocated_node(allocation: Json) -> str:
    """The only node with the devices; empty if there may be others."""
    terms = (allocation.get("nodeSelector") or {}).get("nodeSelectorTerms") or []
    if len(terms) != 1 or terms[0].get("matchExpressions") or len(terms[0].get("matchFields") or ()) != 1:
        return ""
    field: Json = terms[0]["matchFields"][0]
    one = field.get("key") == "metadata.name" and field.get("operator") == "In" and len(field.get("values") or ()) == 1
    return str(field["values"][0]) if one else ""


def _node_of(user: User) -> str:
    """The node that a service account's token was issued for."""
    names = dict(user.extra).get(NODE_NAME, ())
    account = user.name.removeprefix(_ACCOUNT)
    known = account != user.name and account.count(":") == 1 and len(names) == 1
    return names[0] if known and not is_dns1123_subdomain(names[0]) else ""

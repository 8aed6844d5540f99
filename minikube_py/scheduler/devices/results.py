"""Builds a claim's `status.allocation` from the devices found for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from minikube_py.scheduler.devices.allocator import Asked, Given, Solution
from minikube_py.scheduler.devices.views import ClaimView

Allocation = dict[str, Any]


def allocations(solution: Solution, claims: Sequence[ClaimView], node_name: str) -> list[Allocation]:
    """One per claim. Shares have no id yet: their `shareID` is "". Raises: ValueError."""
    return [
        _allocation(claim, given, chosen, node_name)
        for claim, given, chosen in zip(claims, solution.given, solution.chosen, strict=True)
    ]


def _allocation(claim: ClaimView, given: list[Given], chosen: list[Asked], node_name: str) -> Allocation:
    devices: dict[str, Any] = {}
    if given:
        devices["results"] = [_result(each) for each in given]
    configs = [*_class_configs(chosen), *_claim_configs(claim, chosen)]
    if configs:
        devices["config"] = configs
    found: Allocation = {"devices": devices}
    selector = _node_selector(claim, given, node_name)
    if selector is not None:
        found["nodeSelector"] = selector
    return found


def _result(given: Given) -> dict[str, Any]:
    device, request = given.candidate.device, given.request
    found: dict[str, Any] = {"request": request.full_name, **device.id._asdict()}
    if request.is_admin:
        found["adminAccess"] = True
    if request.tolerations:
        found["tolerations"] = list(request.tolerations)
    if device.conditions:
        found["bindingConditions"] = list(device.conditions)
    if device.failure_conditions:
        found["bindingFailureConditions"] = list(device.failure_conditions)
    if given.taken is not None:
        found["shareID"] = ""
        if given.taken:
            found["consumedCapacity"] = {name: str(amount) for name, amount in given.taken.items()}
    return found


def _class_configs(chosen: list[Asked]) -> list[dict[str, Any]]:
    """A class's configs once, for all requests that name it."""
    by_class: dict[str, list[dict[str, Any]]] = {}
    for asked in chosen:
        name = asked.request.full_name
        known = by_class.get(asked.class_view.name)
        if known is None:
            by_class[asked.class_view.name] = [
                {"source": "FromClass", "requests": [name], **config} for config in asked.class_view.configs
            ]
        else:
            for config in known:
                config["requests"].append(name)
    return [config for configs in by_class.values() for config in configs]


def _claim_configs(claim: ClaimView, chosen: list[Asked]) -> list[dict[str, Any]]:
    """As upstream, a config that names several requests is repeated for each of them."""
    found = []
    for config in claim.spec.get("config") or ():
        requests = config.get("requests") or ()
        named = [asked for asked in chosen if {asked.request.base_name, asked.request.full_name} & set(requests)]
        found += [{"source": "FromClaim", **config}] * (len(named) if requests else 1)
    return found


def _node_selector(claim: ClaimView, given: list[Given], node_name: str) -> dict[str, Any] | None:
    """Where all the devices can be used; None for everywhere."""
    labels: list[dict[str, Any]] = []
    fields: list[dict[str, Any]] = []
    for each in given:
        candidate = each.candidate
        reach = candidate.slice.reach_of(candidate.device)
        if reach.node_name is not None or candidate.device.binds_to_node:
            name = {"key": "metadata.name", "operator": "In", "values": [node_name]}
            return {"nodeSelectorTerms": [{"matchFields": [name]}]}
        terms = (reach.selector or {}).get("nodeSelectorTerms") or ()
        if len(terms) > 1:
            text = f"unsupported ResourceSlice.NodeSelector with {len(terms)} terms"
            raise ValueError(f"create NodeSelector for claim {claim.name}: {text}")
        for term in terms:
            _add_new(term.get("matchFields") or (), fields)
            _add_new(term.get("matchExpressions") or (), labels)
    if not labels and not fields:
        return None
    found = {"matchExpressions": labels} if labels else {}
    return {"nodeSelectorTerms": [found | ({"matchFields": fields} if fields else {})]}


def _add_new(requirements: Sequence[dict[str, Any]], found: list[dict[str, Any]]) -> None:
    for each in requirements:
        if not any(_are_alike(each, known) for known in found):
            found.append(each)


def _are_alike(a: dict[str, Any], b: dict[str, Any]) -> bool:
    return (a.get("key"), a.get("operator"), set(a.get("values") or ())) == (
        b.get("key"),
        b.get("operator"),
        set(b.get("values") or ()),
    )

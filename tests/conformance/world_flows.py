"""Flow schemas and priority levels that drawn requests speak of: as `worlds` has them of the other kinds."""

from __future__ import annotations

from typing import Any

Body = dict[str, Any]
FLOWS = "/apis/flowcontrol.apiserver.k8s.io/v1"


def _spec(**fields: Any) -> Body:
    return {"spec": fields}


_LIMITED = {
    "nominalConcurrencyShares": 5, "lendablePercent": 50, "borrowingLimitPercent": 10,
    "limitResponse": {"type": "Queue", "queuing": {"queues": 64, "handSize": 6, "queueLengthLimit": 50}},
}  # fmt: skip
WORLD: dict[str, tuple[str, Body]] = {
    "flowschemas": (
        f"{FLOWS}/flowschemas",
        {"spec": {
            "priorityLevelConfiguration": {"name": "two"}, "matchingPrecedence": 700, "distinguisherMethod": {"type": "ByUser"},
            "rules": [{
                "subjects": [{"kind": "User", "user": {"name": "u"}}, {"kind": "ServiceAccount", "serviceAccount": {"name": "*", "namespace": "n"}}],
                "resourceRules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "namespaces": ["n"]}],
                "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["/x/*"]}],
            }],
        }},
    ),
    "prioritylevelconfigurations": (f"{FLOWS}/prioritylevelconfigurations", {"spec": {"type": "Limited", "limited": _LIMITED}}),
}

_SUBJECTED = (*({"kind": kind, own: {"name": name}} for kind, own in (("User", "user"), ("Group", "group"), ("User", "group"), ("Odd", "user")) for name in ("", "u")), {"kind": "Group"}, {"kind": "User", "user": {"name": "u"}, "group": {"name": "g"}, "serviceAccount": {"name": "s", "namespace": "n"}})
_ACCOUNTS = tuple({"kind": "ServiceAccount", "serviceAccount": account} for account in (None, {"name": "s"}, {"name": "A", "namespace": "B"}, {"name": "*", "namespace": "n"}, {"name": "s", "namespace": "a.b"}))
_VERBED = (["get", "list"], ["*"], ["*", "get"], ["odd", "get"], [], None)
_RULED_BY = (
    *({"verbs": verbs} for verbs in _VERBED), *({name: items} for name in ("apiGroups", "resources", "namespaces") for items in (["*"], ["*", "a"], ["a", "b"], ["A.b"], [], None)),
    {"clusterScope": True, "namespaces": None}, {"clusterScope": True, "namespaces": ["a"]},
)
_URLS = tuple({"nonResourceURLs": urls} for urls in (["*"], ["*", "/a"], ["/"], [""], ["a"], ["/a b"], ["/a//b"], ["/a/*"], ["/a*"], ["/*/a"], ["/*/*"], [], None))
_FLOW = {"subjects": [{"kind": "User", "user": {"name": "u"}}]}
_OF_PODS = {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "namespaces": ["n"]}
_QUEUED = tuple({"queuing": {name: number}} for name in ("queues", "handSize", "queueLengthLimit") for number in (-1, 0, 1, 3, 8, 10, 1024, 10_000_000, 10_000_001))
PARTS: dict[str, tuple[Body, ...]] = {
    "flowschemas": (
        *(_spec(rules=[{**_FLOW, "subjects": [subject], "resourceRules": [_OF_PODS]}]) for subject in (*_SUBJECTED, *_ACCOUNTS)),
        *(_spec(rules=[{**_FLOW, "resourceRules": [{**_OF_PODS, **part}]}]) for part in _RULED_BY), _spec(rules=[_FLOW]), _spec(rules=[{"resourceRules": [_OF_PODS]}]), _spec(rules=[{}]), _spec(rules=None),
        *(_spec(rules=[{**_FLOW, "nonResourceRules": [{"verbs": ["get"], "nonResourceURLs": ["/"], **part}]}]) for part in (*_URLS, *({"verbs": verbs} for verbs in _VERBED))),
        *(_spec(matchingPrecedence=number) for number in (0, 1, 2, -1, 10_000, 10_001, None)), *(_spec(distinguisherMethod=each) for each in (None, {}, {"type": "ByNamespace"}, {"type": "Odd"})),
        *(_spec(priorityLevelConfiguration={"name": name}) for name in ("", "A", "exempt")), *({"metadata": {"name": name}} for name in ("exempt", "catch-all")),
    ),
    "prioritylevelconfigurations": (
        *(_spec(type=type_) for type_ in ("Exempt", "Odd", "", None)), _spec(type="Exempt", limited=None), _spec(limited=None), _spec(exempt={}), _spec(exempt={"nominalConcurrencyShares": -1, "lendablePercent": 101}),
        *(_spec(limited={name: number}) for name in ("nominalConcurrencyShares", "lendablePercent", "borrowingLimitPercent") for number in (-1, 0, 100, 101, None)),
        *(_spec(limited={"limitResponse": part}) for part in (*_QUEUED, {"type": "Reject"}, {"type": "Reject", "queuing": None}, {"queuing": None}, {"type": "Odd"}, {"type": ""}, {"queuing": {"queues": 0, "handSize": 0, "queueLengthLimit": 0}})),
        {"metadata": {"name": "exempt"}}, {"metadata": {"name": "exempt"}, "spec": {"type": "Exempt", "limited": None, "exempt": {"lendablePercent": 7}}}, {"metadata": {"name": "catch-all"}},
        {"metadata": {"annotations": {"flowcontrol.k8s.io/v1beta3-preserve-zero-concurrency-shares": ""}}},
    ),
}  # fmt: skip

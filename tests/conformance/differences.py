"""Where ours answers otherwise than the original on purpose, each with its reason. All else must be alike."""

from __future__ import annotations

CLIENTS_FAULT = "the original answers 500 to what is the client's fault; ours says 4xx, with the same words"
NO_MANAGED_FIELDS = "server-side apply, and the managedFields it needs, are not kept"
DEPTH = "nesting is limited to 200 levels instead of 10,000, and the limit says its value"

RAW: dict[str, str] = {
    "create with resourceVersion": CLIENTS_FAULT,
    "get bad rv": CLIENTS_FAULT,
    "watch bad rv": CLIENTS_FAULT,
    "put bad rv": CLIENTS_FAULT,
    "strategic patch bad directive": CLIENTS_FAULT,
    "strategic patch no merge key": CLIENTS_FAULT,
    "bind no target": CLIENTS_FAULT,
    "bind wrong kind": CLIENTS_FAULT,
    "create deep": DEPTH,
    "create very deep": DEPTH,
    "get not acceptable": "objects are not answered in protobuf, so it is not among the representations offered",
    "merge patch wrong type": NO_MANAGED_FIELDS,
    "merge patch strict": NO_MANAGED_FIELDS,
}

KUBECTL: dict[str, str] = {
    "describe namespace": "resource quotas and limit ranges are not served, so kubectl does not speak of them",
    "describe pod": "our kubelets report a host IP and container ids, as real ones do; KWOK's do not",
    "logs": "our kubelets answer with an empty log; the original cannot reach KWOK's",
    "get nodes wide": "free.<resource> columns are shown, and our kubelets report an address and an OS",
    "node leases": "a lease is held by its node's name, as real kubelets hold it; KWOK's by the process",
    "describe service": "endpoint slices are not served, so kubectl reads the Endpoints",
    "raw namespace": NO_MANAGED_FIELDS,
}

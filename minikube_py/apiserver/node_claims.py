"""Which shared kubelet plays which node, recorded by the API server at registration or claim.

The record is an annotation that only the API server sets for such users: on the Node that one of them registers, and on
the Lease by which it claims the node (or a slot of nodes). A Lease takes precedence. Another kubelet may take over an
expired Lease, as in leader election. Objects written by a kubelet `system:node:NAME` carry its name in the same
annotation, and no shared kubelet can take them over: neither the Lease, even if expired, nor the Node through an
earlier Lease.
"""

from __future__ import annotations

from typing import Final

import orjson

from minikube_py.api.errors import Json
from minikube_py.api.kinds.coordination import LEASES
from minikube_py.api.kinds.core import NODES
from minikube_py.api.meta import parse_timestamp
from minikube_py.apiserver.watch_cache import Entry, WatchCache
from minikube_py.env import Clock

PLAYED_BY: Final = "minikube-py.io/played-by"
LEASE_NAMESPACE: Final = "kube-node-lease"
SLOT_PREFIX: Final = "minikube-py-kubelet-"
NODE_PREFIX: Final = "system:node:"
NO_SLOT: Final = f"can only access leases of kubelet processes, named {SLOT_PREFIX}<slot>, in kube-system"
_KEY: Final = f'"{PLAYED_BY}":'.encode()
_OWN_KEY: Final = f'"{PLAYED_BY}":"{NODE_PREFIX}'.encode()


_CLAIMED: Final = ((NODES, ""), (LEASES, LEASE_NAMESPACE))


def is_slot(name: str) -> bool:
    """Whether a Lease of `kube-system` claims a kubelet process's share of the nodes."""
    return name.startswith(SLOT_PREFIX) and len(name) > len(SLOT_PREFIX)


def player(obj: Json) -> str:
    """The user that an object's annotation names; "" without one."""
    return str((obj["metadata"].get("annotations") or {}).get(PLAYED_BY) or "")


def set_player(obj: Json, user: str) -> None:
    metadata = obj["metadata"]
    metadata["annotations"] = {**(metadata.get("annotations") or {}), PLAYED_BY: user}


def has_run_out(lease: Json, wall_s: float) -> bool:
    """Whether the lease expired; one without time and duration was never held."""
    spec = lease.get("spec") or {}
    renewed, duration_s = spec.get("renewTime") or spec.get("acquireTime"), spec.get("leaseDurationSeconds")
    if not renewed or not duration_s:
        return True
    return bool(parse_timestamp(renewed) + duration_s < wall_s)


class NodeClaims:
    """Reads the claims from the watch cache."""

    def __init__(self, cache: WatchCache, clock: Clock) -> None:
        self._cache = cache
        self._clock = clock

    def player_of(self, node: str) -> str:
        """The user that plays `node`: a shared kubelet, the node's own, or ""."""
        registered = self._cache.of(NODES).entries.get(NODES.key("", node))
        if registered is not None and _OWN_KEY in registered.value:
            return _player_of(registered)
        lease = self._cache.of(LEASES).entries.get(LEASES.key(LEASE_NAMESPACE, node))
        if lease is not None:
            return _player_of(lease)
        return _player_of(registered) if registered is not None else ""

    def may_register(self, user: str, node: str) -> bool:
        """Whether `user` may create the Node: no other user holds its lease."""
        lease = self._cache.of(LEASES).entries.get(LEASES.key(LEASE_NAMESPACE, node))
        return lease is None or self.may_take(user, orjson.loads(lease.value))

    def may_claim(self, user: str, node: str) -> bool:
        """Whether `user` may create the node's missing Lease: no other kubelet registered the node."""
        registered = self._cache.of(NODES).entries.get(NODES.key("", node))
        return registered is None or _player_of(registered) in ("", user)

    def may_take(self, user: str, lease: Json) -> bool:
        """Whether `user` may write an existing Lease: its own, or an expired one of a shared kubelet."""
        holder, metadata = player(lease), lease["metadata"]
        if metadata["namespace"] == LEASE_NAMESPACE and not self.is_shared(metadata["name"]):
            return False
        if holder == user:
            return True
        of_shared = bool(holder) and not holder.startswith(NODE_PREFIX)
        of_slot = metadata["namespace"] != LEASE_NAMESPACE and is_slot(metadata["name"])
        return (of_shared or of_slot) and has_run_out(lease, self._clock.wall_s())

    def is_shared(self, node: str) -> bool:
        """Whether neither Node nor Lease was written by the node's own kubelet."""
        for kind, namespace in _CLAIMED:
            entry = self._cache.of(kind).entries.get(kind.key(namespace, node))
            if entry is not None and _OWN_KEY in entry.value:
                return not self.player_of(node).startswith(NODE_PREFIX)
        # The usual case, found without decoding either.
        return True

    def stays_shared(self, node: str, key: bytes, judged: list[Entry | None]) -> bool:
        """`is_shared` for renewals of a Lease that a shared kubelet holds. `key`: the Node's; `judged`: the Node last
        found to be shared. If the Lease was written by another, the renewal conflicts."""
        entry = self._cache.of(NODES).entries.get(key)
        if entry is not judged[0] and self.is_shared(node):
            judged[0] = entry
        return entry is judged[0]


def _player_of(entry: Entry) -> str:
    """Search for the annotation's key first: most objects lack it and need no decoding."""
    return player(orjson.loads(entry.value)) if _KEY in entry.value else ""

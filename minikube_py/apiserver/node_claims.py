"""Which shared kubelet plays which node: what the API server writes down when one registers or claims it.

The record is an annotation that only the API server sets for such users: on the Node that one of them registers, and on
the Lease by which it claims the node (or a slot of nodes). The Lease decides where there is one. Another kubelet may
take a Lease over once it has run out, as leaders do.

What a kubelet `system:node:NAME` writes carries its name in the same annotation, and no shared kubelet gets it: not the
Lease, not even one that has run out, nor the Node by a Lease made before.
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
    """Whether a Lease of `kube-system` is one by which a kubelet process claims its share of the nodes."""
    return name.startswith(SLOT_PREFIX) and len(name) > len(SLOT_PREFIX)


def player(obj: Json) -> str:
    """The user that an object's annotation names; "" without one."""
    return str((obj["metadata"].get("annotations") or {}).get(PLAYED_BY) or "")


def set_player(obj: Json, user: str) -> None:
    metadata = obj["metadata"]
    metadata["annotations"] = {**(metadata.get("annotations") or {}), PLAYED_BY: user}


def has_run_out(lease: Json, wall_s: float) -> bool:
    """Whether nobody renewed the lease in time; one that says neither when nor how long was never held."""
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
        """Who plays `node`: a shared kubelet, or the node's own; "" where neither does."""
        registered = self._cache.of(NODES).entries.get(NODES.key("", node))
        if registered is not None and _OWN_KEY in registered.value:
            return _player_of(registered)
        lease = self._cache.of(LEASES).entries.get(LEASES.key(LEASE_NAMESPACE, node))
        if lease is not None:
            return _player_of(lease)
        return _player_of(registered) if registered is not None else ""

    def may_register(self, user: str, node: str) -> bool:
        """Whether `user` may make the Node: nobody else holds its lease."""
        lease = self._cache.of(LEASES).entries.get(LEASES.key(LEASE_NAMESPACE, node))
        return lease is None or self.may_take(user, orjson.loads(lease.value))

    def may_claim(self, user: str, node: str) -> bool:
        """Whether `user` may make the node's Lease, where there is none: no other kubelet registered the node."""
        registered = self._cache.of(NODES).entries.get(NODES.key("", node))
        return registered is None or _player_of(registered) in ("", user)

    def may_take(self, user: str, lease: Json) -> bool:
        """Whether `user` may write a Lease that stands: its own, or a shared kubelet's that has run out."""
        holder, metadata = player(lease), lease["metadata"]
        if metadata["namespace"] == LEASE_NAMESPACE and not self.is_shared(metadata["name"]):
            return False
        if holder == user:
            return True
        of_shared = bool(holder) and not holder.startswith(NODE_PREFIX)
        of_slot = metadata["namespace"] != LEASE_NAMESPACE and is_slot(metadata["name"])
        return (of_shared or of_slot) and has_run_out(lease, self._clock.wall_s())

    def is_shared(self, node: str) -> bool:
        """Whether the node's own kubelet wrote neither the Node nor its Lease."""
        for kind, namespace in _CLAIMED:
            entry = self._cache.of(kind).entries.get(kind.key(namespace, node))
            if entry is not None and _OWN_KEY in entry.value:
                return not self.player_of(node).startswith(NODE_PREFIX)
        # Nearly always, and found without decoding either.
        return True


def _player_of(entry: Entry) -> str:
    """Most objects are decoded in vain: the annotation's key is looked for first."""
    return player(orjson.loads(entry.value)) if _KEY in entry.value else ""

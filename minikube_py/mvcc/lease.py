"""Leases in the state machine: ids, TTLs and attached keys. The leader decides when one expires.

Source: etcd's lessor (facts: minimum TTL 2 s, maximum 9e9; a grant of id 0 or of a known id is refused)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

from minikube_py.errors import InvalidRequest, LeaseExists, LeaseNotFound
from minikube_py.mvcc.types import LeaseRevoke

MIN_TTL_S: Final = 2
MAX_TTL_S: Final = 9_000_000_000
NO_LEASE: Final = 0


@dataclass(slots=True)
class Lease:
    """`remaining_s` is that of the last checkpoint, 0 without one. `granted`: a number unique to the grant; 0 for those
    of version 1 of the rules. Only `keys` change: a list of leases stays as of its moment."""

    id: int
    ttl_s: int
    remaining_s: int = 0
    keys: set[bytes] = field(default_factory=set)
    granted: int = 0


class Leases:
    def __init__(self) -> None:
        self.by_id: dict[int, Lease] = {}

    def grant(self, lease_id: int, ttl_s: int, granted: int = 0) -> Lease:
        """Raises: LeaseNotFound for id 0, InvalidRequest for too large a TTL, LeaseExists."""
        if lease_id == NO_LEASE:
            raise LeaseNotFound
        if ttl_s > MAX_TTL_S:
            raise InvalidRequest("etcdserver: too large lease TTL")
        if lease_id in self.by_id:
            raise LeaseExists
        lease = self.by_id[lease_id] = Lease(lease_id, max(ttl_s, MIN_TTL_S), granted=granted)
        return lease

    def get(self, lease_id: int, granted: int = 0) -> Lease:
        """The lease of this id; with `granted` only that grant. Raises: LeaseNotFound."""
        lease = self.by_id.get(lease_id)
        if lease is None or (granted and lease.granted != granted):
            raise LeaseNotFound
        return lease

    def checkpoint(self, lease_id: int, remaining_s: int) -> Lease:
        """Raises: LeaseNotFound."""
        lease = self.by_id[lease_id] = replace(self.get(lease_id), remaining_s=remaining_s)
        return lease

    def revoke_of(self, lease_id: int) -> LeaseRevoke:
        """The command that revokes the current lease of this id, and no later one."""
        lease = self.by_id.get(lease_id)
        return LeaseRevoke(lease_id, 0 if lease is None else lease.granted)

    def move(self, key: bytes, old: int, new: int) -> None:
        """Detaches `key` from lease `old` and attaches it to `new`; 0 is none."""
        if old:
            lease = self.by_id.get(old)
            if lease is not None:
                lease.keys.discard(key)
        if new:
            self.by_id[new].keys.add(key)

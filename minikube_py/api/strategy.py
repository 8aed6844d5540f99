"""Server-side changes to incoming objects: ownership of spec and status, and generation.

The rules are those of `apiserver/pkg/registry/rest`; what is a kind's own are its hooks. Objects have their defaults;
they are changed in place, and parts of the old object are shared with the new one, never copied.
"""

from __future__ import annotations

from typing import Final

import orjson

from minikube_py.api import gates
from minikube_py.api.equality import same_spec
from minikube_py.api.errors import Json, conflict
from minikube_py.api.kind import Cluster, Kind, stamps_nothing
from minikube_py.api.meta import next_generation, timestamp


def prepare_for_create(kind: Kind, obj: Json, cluster: Cluster) -> None:
    """Admits, clears what senders may not set, and sets what the server does. Name, uid and creationTimestamp are
    the caller's.

    Raises: StatusError 403 of admission."""
    kind.admit(obj, None, cluster)
    prepare_create(kind, obj, cluster)


def prepare_create(kind: Kind, obj: Json, cluster: Cluster) -> None:
    gates.drop(obj, None, kind.gated, cluster.gates)
    kind.prepare_create(obj)


def prepare_for_update(kind: Kind, new: Json, old: Json, subresource: str, cluster: Cluster) -> None:
    """Admits, and keeps what this path may not write. Raises: StatusError 403 of admission."""
    admit_update(kind, new, old, subresource, cluster)
    settle_update(kind, new, old, subresource, cluster)


def admit_update(kind: Kind, new: Json, old: Json, subresource: str, cluster: Cluster) -> None:
    """Raises: StatusError 403 of admission."""
    admit = kind.admit_part[subresource][0] if subresource in kind.admit_part else None if subresource else kind.admit
    if admit is not None:
        admit(new, old, cluster)


def settle_update(kind: Kind, new: Json, old: Json, subresource: str, cluster: Cluster) -> None:
    """Keeps what this path may not write: status on the main one, spec on `status`; and read-only metadata.

    Raises: StatusError 403 of admission."""
    metadata, before = new["metadata"], old["metadata"]
    if before.get("generation") is not None:
        metadata["generation"] = before["generation"]
    else:
        metadata.pop("generation", None)
    if subresource == "status":
        keep(new, old, "spec")
        kind.prepare_status(new, old)
        kind.admit_status(new, old, cluster)
        if kind.stamp_status is not stamps_nothing:
            kind.stamp_status(new, old, timestamp(cluster.wall_s()))
    elif subresource == "approval":
        keep(new, old, "spec")
        kind.stamp_status(new, old, timestamp(cluster.wall_s()))
        kind.prepare_approval(new, old)
    elif subresource == "finalize":
        keep(new, old, "status")
    elif subresource:
        kind.prepare_part[subresource](new, old)
        _raise_generation(kind, new, old)
    else:
        _update_main(kind, new, old, cluster)
    if not metadata.get("uid"):
        metadata["uid"] = before["uid"]
    if before.get("creationTimestamp"):
        metadata["creationTimestamp"] = before["creationTimestamp"]
    if before.get("deletionTimestamp"):
        metadata["deletionTimestamp"] = before["deletionTimestamp"]
    if before.get("deletionGracePeriodSeconds") is not None and metadata.get("deletionGracePeriodSeconds") is None:
        metadata["deletionGracePeriodSeconds"] = before["deletionGracePeriodSeconds"]


def _update_main(kind: Kind, new: Json, old: Json, cluster: Cluster) -> None:
    if kind.has_status:
        keep(new, old, "status")
    gates.drop(new, old, kind.gated, cluster.gates)
    kind.prepare_update(new, old)
    _raise_generation(kind, new, old)


def _raise_generation(kind: Kind, new: Json, old: Json) -> None:
    if kind.generation and not same_spec(kind, new.get("spec"), old.get("spec")):
        next_generation(new, old)


def keep(new: Json, old: Json, name: str) -> None:
    """Restores `name`."""
    if name in old:
        new[name] = old[name]
    else:
        new.pop(name, None)


def check_preconditions(kind: Kind, obj: Json, uid: str | None, resource_version: str | None) -> None:
    """Raises: StatusError 409 if a given uid or resourceVersion does not match."""
    metadata = obj["metadata"]
    for key, what, wanted in (("uid", "UID", uid), ("resourceVersion", "ResourceVersion", resource_version)):
        found = metadata.get(key) or ""
        if wanted and wanted != found:
            name, namespace = metadata["name"], metadata.get("namespace") or ""
            why = (
                f"StorageError: invalid object, Code: 4, Key: {_upstream_key(kind, namespace, name)}, "
                f"ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: {what} in precondition: {wanted}, "
                f"{what} in object meta: {found}"
            )
            raise conflict(kind, name, why)


_UPSTREAM_FOLDERS: Final = {
    "replicationcontrollers": "controllers", "endpoints": "services/endpoints", "nodes": "minions",
    "services": "services/specs", "ingresses": "ingress",
}  # fmt: skip
"""Source: `pkg/kubeapiserver/default_storage_factory_builder.go`."""


def _upstream_key(kind: Kind, namespace: str, name: str) -> str:
    """Upstream's key, for messages: built-in kinds have no group there."""
    ours = kind.key(namespace, name).decode()
    if kind.definition or kind.group in ("apiextensions.k8s.io", "apiregistration.k8s.io"):
        return ours
    return f"/registry/{_UPSTREAM_FOLDERS.get(kind.plural, kind.plural)}/{ours.removeprefix(kind.prefix.decode())}"


_REPEATED_OWNERS: Final = (
    ".metadata.ownerReferences contains duplicate entries{}; API server dedups owner references in 1.20+, and may "
    "reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {}"
)


def without_repeats(obj: Json, after: str = "") -> list[str]:
    """Drops owners that are named twice, and returns the warning."""
    owners = obj["metadata"].get("ownerReferences")
    if not owners or len(owners) < 2:
        return []
    kept: dict[bytes, Json] = {}
    repeated: list[str] = []
    for each in owners:
        key = orjson.dumps(each, option=orjson.OPT_SORT_KEYS)
        if key in kept:
            repeated.append(each.get("uid") or "")
        kept.setdefault(key, each)
    if not repeated:
        return []
    obj["metadata"]["ownerReferences"] = list(kept.values())
    return [_REPEATED_OWNERS.format(after, ", ".join(repeated))]


def told_of_new(kind: Kind, obj: Json) -> list[str]:
    """Of an object to be created, as it was sent; owners named twice are dropped."""
    return without_repeats(obj) + kind.warn_given(obj)

"""Fields whose feature gate is off by default: dropped from new objects, kept where in use.

Source: the dropDisabledFields functions of `pkg/api` and `pkg/registry`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final

from minikube_py.api.apply.assigned import EACH, Path
from minikube_py.api.errors import Json
from minikube_py.api.feature_gates import GENERIC_WORKLOAD, FeatureGates

_OF_PODS: Final[tuple[Path, ...]] = (
    ("schedulingGroup",),
    *(("volumes", EACH, "projected", "sources", EACH, name) for name in ("clusterTrustBundle", "podCertificate")),
    *((kind, EACH, "lifecycle", "stopSignal") for kind in ("initContainers", "containers", "ephemeralContainers")),
)
_OPENED_BY: Final = {"schedulingGroup": GENERIC_WORKLOAD}
"""The gate of a field, by the last name of its path."""


def of_pods(*where: str) -> tuple[Path, ...]:
    """The fields of the pod spec at `where`."""
    return tuple((*where, *path) for path in _OF_PODS)


def _holders(value: Any, path: Path) -> Iterator[Json]:
    if not value:
        return
    if len(path) == 1:
        if value.get(path[0]) is not None:
            yield value
    elif path[0] == EACH:
        for item in value:
            yield from _holders(item, path[1:])
    else:
        yield from _holders(value.get(path[0]), path[1:])


_Tree = tuple[tuple[str, bool, "_Tree"], ...]
"""By member: whether it is a list, and what is below each of it; nothing for a gated field."""


@lru_cache
def _tree(gated: tuple[Path, ...]) -> _Tree:
    """One walk tells whether an object has any of them, which is rare."""
    below: dict[tuple[str, bool], list[Path]] = {}
    for name, *rest in gated:
        each = rest[:1] == [EACH]
        below.setdefault((name, each), []).append(tuple(rest[each:]))
    return tuple([(name, each, _tree(tuple(filter(None, rest)))) for (name, each), rest in below.items()])


def _has_any(value: Any, tree: _Tree) -> bool:
    for name, each, below in tree:
        found = value.get(name)
        if found is None:
            continue
        if not below:
            return True
        for item in found if each else (found,):
            if item and _has_any(item, below):
                return True
    return False


def drop(obj: Json, old: Json | None, gated: tuple[Path, ...], on: FeatureGates) -> None:
    """In place; a lifecycle that holds nothing else goes as well. `on`: the gates that were turned on."""
    if not gated or not _has_any(obj, _tree(gated)):
        return
    for path in gated:
        if on and _OPENED_BY.get(path[-1]) in on:
            continue
        if old is not None and any(_holders(old, path)):
            continue
        for holder in list(_holders(obj, path)):
            del holder[path[-1]]
            if not holder and path[-2] == "lifecycle":
                for container in _holders(obj, path[:-1]):
                    if container["lifecycle"] is holder:
                        del container["lifecycle"]

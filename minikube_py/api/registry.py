"""The served kinds, by path or kind; by default the values of `api.kinds`."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from minikube_py.api.feature_gates import GENERIC_WORKLOAD, NO_GATES, FeatureGates
from minikube_py.api.kind import Kind
from minikube_py.api.kinds import (
    admissionregistration,
    apiextensions,
    apiregistration,
    apps,
    authentication,
    authorization,
    autoscaling,
    batch,
    certificates,
    coordination,
    core,
    discovery,
    events,
    flowcontrol,
    networking,
    node,
    policy,
    rbac,
    resource,
    scheduling,
    service_cidrs,
    storage,
    volume_attributes,
)  # fmt: skip


class Registry:
    """The kinds, in the order of discovery: by group, then by plural."""

    def __init__(
        self, kinds: tuple[Kind, ...], base: Registry | None = None, gates: FeatureGates = NO_GATES
    ) -> None:
        """`base`: the registry of those of the kinds that were there first. `gates`: those that were turned on."""
        self.kinds = kinds
        self.base = base or self
        self.gates: FeatureGates = base.gates if base is not None else gates
        self._by_plural = {(k.group, k.version, k.plural): k for k in kinds}
        self._by_kind = {(k.group, k.version, k.kind): k for k in kinds}
        self.groups = frozenset(k.group for k in kinds)
        self.parsed: dict[str, Any] = {}
        """A cache of parsed request paths, for the parser."""
        self.group_versions: tuple[tuple[str, str], ...] = tuple(dict.fromkeys((k.group, k.version) for k in kinds))

    def resource(self, group: str, version: str, plural: str) -> Kind | None:
        return self._by_plural.get((group, version, plural))

    def extended(self, custom: tuple[Kind, ...]) -> Registry:
        """The registry that serves `custom` beside the initial kinds, which take precedence."""
        base = self.base
        return (
            Registry((*base.kinds, *(k for k in custom if base.resource(k.group, k.version, k.plural) is None)), base)
            if custom
            else base
        )

    def kind(self, group: str, version: str, kind: str) -> Kind | None:
        return self._by_kind.get((group, version, kind))


GROUPS: Final = (
    core, admissionregistration, apiextensions, apiregistration, apps, authentication, authorization, autoscaling,
    batch, certificates, coordination, discovery, events, flowcontrol, networking, service_cidrs, node, policy, rbac,
    resource, scheduling, storage, volume_attributes,
)  # fmt: skip
REGISTRY: Final = Registry(tuple(kind for group in GROUPS for kind in group.KINDS))


@cache
def registry_of(gates: FeatureGates) -> Registry:
    """What a server serves by default with these gates turned on."""
    if not gates:
        return REGISTRY
    more: dict[str, tuple[Kind, ...]] = {}
    if GENERIC_WORKLOAD in gates:
        from minikube_py.api.kinds import pod_groups

        more[pod_groups.GROUP] = pod_groups.KINDS
    kinds: list[Kind] = []
    for kind, following in zip(REGISTRY.kinds, (*REGISTRY.kinds[1:], None), strict=True):
        kinds.append(kind)
        if following is None or following.group != kind.group:
            kinds += more.pop(kind.group, ())
    return Registry(tuple(kinds), gates=gates)

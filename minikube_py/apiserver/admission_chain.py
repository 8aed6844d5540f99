"""Assembles a server's admission plugins."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from minikube_py.apiserver import signers
from minikube_py.apiserver.admission import SERVICE_ACCOUNT, TAINT_NODES, Chain, Plugin
from minikube_py.apiserver.admission_rules import Namespaces
from minikube_py.apiserver.authorizing import Asking
from minikube_py.apiserver.mutating_policies import MutatingPolicies
from minikube_py.apiserver.pod_resizes import PodResizes
from minikube_py.apiserver.pod_security import PodSecurity
from minikube_py.apiserver.policies import ValidatingPolicies
from minikube_py.apiserver.settling import Long
from minikube_py.apiserver.webhooks import MutatingWebhooks, ValidatingWebhooks

if TYPE_CHECKING:
    from minikube_py.apiserver.core import ApiServer


def chain_of(server: ApiServer, enabled: Collection[str]) -> Chain:
    """`enabled`: plugins that are off by default. Call before the caches are loaded."""
    cache, store, rng = server.cache, server.store, server.rng
    namespaces, asking = Namespaces(store, cache), Asking(Long(server.writer), server.access.may)
    given = (cache, namespaces, server.webhook_caller, lambda: server.registry, rng, asking)
    of_policies = (cache, namespaces, lambda: server.registry, asking)
    policies = MutatingPolicies(*of_policies), ValidatingPolicies(*of_policies)
    of_requests = signers.plugins(server.access)
    of_pods: tuple[Plugin, ...] = PodSecurity(cache, namespaces, server.clock), PodResizes(cache)
    if SERVICE_ACCOUNT in enabled:
        from minikube_py.apiserver.pod_accounts import EphemeralAccounts, PodAccounts

        accounts = cache, store, server.clock, rng
        of_pods = *of_pods, PodAccounts(*accounts), EphemeralAccounts(*accounts)
    if TAINT_NODES in enabled:
        from minikube_py.apiserver.node_taints import NodeTaints

        of_pods = *of_pods, NodeTaints()
    return Chain((*of_pods, *of_requests, *policies, MutatingWebhooks(*given), ValidatingWebhooks(*given)))

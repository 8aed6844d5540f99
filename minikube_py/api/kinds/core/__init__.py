"""The core group, `v1`."""

from __future__ import annotations

from typing import Final

from minikube_py.api.kind import Kind
from minikube_py.api.kinds.core.component_statuses import COMPONENTSTATUSES
from minikube_py.api.kinds.core.config import CONFIGMAPS, SECRETS, SERVICEACCOUNTS
from minikube_py.api.kinds.core.endpoints import ENDPOINTS
from minikube_py.api.kinds.core.events import EVENTS
from minikube_py.api.kinds.core.limit_ranges import LIMITRANGES
from minikube_py.api.kinds.core.namespaces import NAMESPACES
from minikube_py.api.kinds.core.nodes import NODES
from minikube_py.api.kinds.core.pod_templates import PODTEMPLATES
from minikube_py.api.kinds.core.pods import BINDINGS, PODS
from minikube_py.api.kinds.core.replication_controllers import REPLICATIONCONTROLLERS
from minikube_py.api.kinds.core.resource_quotas import RESOURCEQUOTAS
from minikube_py.api.kinds.core.services import SERVICES
from minikube_py.api.kinds.core.volumes import PERSISTENTVOLUMECLAIMS, PERSISTENTVOLUMES

KINDS: Final[tuple[Kind, ...]] = (
    BINDINGS,
    COMPONENTSTATUSES,
    CONFIGMAPS,
    ENDPOINTS,
    EVENTS,
    LIMITRANGES,
    NAMESPACES,
    NODES,
    PERSISTENTVOLUMECLAIMS,
    PERSISTENTVOLUMES,
    PODS,
    PODTEMPLATES,
    REPLICATIONCONTROLLERS,
    RESOURCEQUOTAS,
    SECRETS,
    SERVICEACCOUNTS,
    SERVICES,
)

__all__ = [
    "BINDINGS",
    "COMPONENTSTATUSES",
    "CONFIGMAPS",
    "ENDPOINTS",
    "EVENTS",
    "KINDS",
    "LIMITRANGES",
    "NAMESPACES",
    "NODES",
    "PERSISTENTVOLUMECLAIMS",
    "PERSISTENTVOLUMES",
    "PODS",
    "PODTEMPLATES",
    "REPLICATIONCONTROLLERS",
    "RESOURCEQUOTAS",
    "SECRETS",
    "SERVICEACCOUNTS",
    "SERVICES",
]

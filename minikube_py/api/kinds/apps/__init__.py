"""The group `apps`: kinds that keep pods running, and the revisions of their templates.

Source: k8s.io/kubernetes pkg/apis/apps (validation, v1), pkg/registry/apps.
"""

from __future__ import annotations

from typing import Final

from minikube_py.api.kind import Kind
from minikube_py.api.kinds.apps.daemon_sets import DAEMONSETS
from minikube_py.api.kinds.apps.replicas import DEPLOYMENTS, REPLICASETS
from minikube_py.api.kinds.apps.revisions import CONTROLLERREVISIONS
from minikube_py.api.kinds.apps.stateful_sets import STATEFULSETS

KINDS: Final[tuple[Kind, ...]] = (CONTROLLERREVISIONS, DAEMONSETS, DEPLOYMENTS, REPLICASETS, STATEFULSETS)

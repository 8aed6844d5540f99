"""The node authorizer: permissions of nodes and kubelets.

A user `system:node:NAME` is one node and gets upstream's rules and reasons. A user of `system:kubelets` plays many
nodes with one identity: it may access the nodes that it registered or claimed (see `node_claims`), and what their pods
refer to. Checks that need the object itself are in `node_restriction`.

Source: kubernetes `plugin/pkg/auth/authorizer/node/node_authorizer.go`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any, Final, Protocol

import orjson

from minikube_py.api.errors import Json, StatusError, go_quote
from minikube_py.api.kind import Kind
from minikube_py.api.kinds.core import PODS
from minikube_py.api.kinds.core.volumes import PERSISTENTVOLUMES
from minikube_py.api.kinds.resource import RESOURCESLICES
from minikube_py.api.kinds.storage import VOLUMEATTACHMENTS
from minikube_py.api.selectors import FieldRequirement, parse_field_selector
from minikube_py.apiserver.auth import Asked, refusal
from minikube_py.apiserver.node_claims import LEASE_NAMESPACE, NO_SLOT, NODE_PREFIX, NodeClaims, is_slot
from minikube_py.apiserver.rbac import Policy
from minikube_py.apiserver.rules import KUBELETS, NODE_RIGHTS, NODES, User
from minikube_py.apiserver.watch_cache import WatchCache, slices

MIRROR: Final = "kubernetes.io/config.mirror"
_READ: Final = ("get", "list", "watch")
_LEASE_VERBS: Final = ("get", "create", "update", "patch", "delete")
_POD_WRITES: Final = {"status": ("update", "patch"), "eviction": ("create",), "": ("create", "delete")}
_SCAN_SLICE: Final = 1000
_SECRETS: Final = ("secretRef", "secretKeyRef", "nodePublishSecretRef")
_CONFIG_MAPS: Final = ("configMapRef", "configMapKeyRef", "configMap")
_SECRET_SOURCES: Final = ("cephfs", "cinder", "flexVolume", "rbd", "scaleIO", "iscsi", "storageos")
_OF_ONE_NODE: Final[dict[str, Kind]] = {kind.plural: kind for kind in (PODS, VOLUMEATTACHMENTS, RESOURCESLICES)}
"""Kinds whose objects name their node themselves."""


class Nodes(Protocol):
    """The nodes of a user. `title` is how reasons name them."""

    title: str

    def has(self, node: str) -> bool: ...


class OneNode:
    def __init__(self, name: str) -> None:
        self.name = name
        self.title = f"node '{name}'"

    def has(self, node: str) -> bool:
        return node == self.name


class PlayedNodes:
    def __init__(self, claims: NodeClaims, user: User) -> None:
        self._claims, self._user = claims, user
        self.title = f"the nodes of user '{user.name}'"

    def has(self, node: str) -> bool:
        return self._claims.player_of(node) == self._user.name


class NodeAccess:
    """`authorize` is for users of `system:nodes` and `system:kubelets` only."""

    def __init__(self, cache: WatchCache, claims: NodeClaims, policy: Policy) -> None:
        self._cache = cache
        self._claims = claims
        self.policy = policy

    def nodes_of(self, user: User) -> Nodes | None:
        """None if the user is in `system:nodes` but the node is unknown."""
        if NODES in user.groups:
            name = user.name.removeprefix(NODE_PREFIX)
            return OneNode(name) if name and name != user.name else None
        return PlayedNodes(self._claims, user) if KUBELETS in user.groups else None

    async def authorize(self, user: User, asked: Asked, field_selector: str = "") -> None:
        """Raises: StatusError 403."""
        reason = await self.reason(user, asked, field_selector)
        if reason is not None:
            raise refusal(user, asked, reason)

    async def reason(self, user: User, asked: Asked, field_selector: str = "") -> str | None:
        """Why it is denied, perhaps empty; None if allowed."""
        if self.policy.allowed(user, asked):
            return None
        if not asked.plural:
            return ""
        nodes = self.nodes_of(user)
        if nodes is None:
            return f"unknown node for user {go_quote(user.name)}" if user.name == NODE_PREFIX else ""
        rule = _RULES.get((asked.group, asked.plural))
        if rule is None:
            return None if NODE_RIGHTS.allow(asked.verb, asked.group, asked.resource, asked.name) else ""
        found = rule(nodes, asked, field_selector)
        if found is not _RELATED:
            return found
        if not asked.name:
            return "No Object name found"
        related = await self._is_related(nodes, asked)
        return None if related else f"no relationship found between {nodes.title} and this object"

    async def _is_related(self, nodes: Nodes, asked: Asked) -> bool:
        """Whether the object is of one of the nodes, or a pod on one refers to it or to its claim."""
        kind = _OF_ONE_NODE.get(asked.plural)
        if kind is not None:
            entry = self._cache.of(kind).entries.get(kind.key(asked.namespace, asked.name))
            return entry is not None and nodes.has(node_of(entry.decode()))
        if asked.plural == "persistentvolumes":
            entry = self._cache.of(PERSISTENTVOLUMES).entries.get(PERSISTENTVOLUMES.key("", asked.name))
            namespace, name = _claim_of(entry.decode().get("spec") or {}) if entry is not None else ("", "")
            return bool(name) and await self._is_named(nodes, _CLAIMS, namespace, {name})
        if await self._is_named(nodes, asked.plural, asked.namespace, {asked.name}):
            return True
        return asked.plural == "secrets" and await self._is_of_volume(nodes, asked)

    async def _is_named(self, nodes: Nodes, plural: str, namespace: str, names: set[str]) -> bool:
        # Few pods name one: search their bytes, decode only matches. An ephemeral volume does not name its claim.
        marks = [orjson.dumps(min(names))] if len(names) == 1 else [b'"persistentVolumeClaim"']
        if plural == _CLAIMS:
            marks.append(b'"ephemeral"')
        for number, part in enumerate(slices(self._cache.of(PODS).select(PODS.key(namespace, "")), _SCAN_SLICE, True)):
            if number:
                await asyncio.sleep(0)
            for entry in part:
                if not any(mark in entry.value for mark in marks):
                    continue
                pod = entry.decode()
                if nodes.has(node_of(pod)) and not names.isdisjoint(references(pod, plural)):
                    return True
        return False

    async def _is_of_volume(self, nodes: Nodes, asked: Asked) -> bool:
        """Whether a claimed volume names the secret for its nodes. All volumes of a class may name the same one: their
        claims are looked for together."""
        quoted, wanted = orjson.dumps(asked.name), (asked.namespace, asked.name)
        claims: dict[str, set[str]] = {}
        volumes = self._cache.of(PERSISTENTVOLUMES).select(PERSISTENTVOLUMES.collection_prefix())
        for part in slices(volumes, _SCAN_SLICE, True):
            await asyncio.sleep(0)
            for entry in part:
                if quoted in entry.value and wanted in _volume_secrets(spec := entry.decode().get("spec") or {}):
                    namespace, name = _claim_of(spec)
                    if name:
                        claims.setdefault(namespace, set()).add(name)
        for namespace, names in claims.items():
            await asyncio.sleep(0)
            if await self._is_named(nodes, _CLAIMS, namespace, names):
                return True
        return False


def _claim_of(spec: Json) -> tuple[str, str]:
    """The namespace and name of the claim that a PersistentVolume is bound to; both empty if it is not."""
    claim = spec.get("claimRef") or {}
    found = claim.get("namespace") or "", claim.get("name") or ""
    return found if all(found) else ("", "")


def node_of(obj: Json) -> str:
    """The node that a pod, an attachment or a slice is of, or ""."""
    return str((obj.get("spec") or {}).get("nodeName") or "")


def references(pod: Json, plural: str) -> set[str]:
    """The names of the objects of one kind, by its plural, that a pod refers to; none for a mirror pod."""
    if MIRROR in (pod["metadata"].get("annotations") or {}):
        return set()
    spec = pod.get("spec") or {}
    if plural == "serviceaccounts":
        return {spec["serviceAccountName"]} if spec.get("serviceAccountName") else set()
    if plural == _CLAIMS:
        return set(_volume_claims(pod["metadata"].get("name") or "", spec))
    if plural == "resourceclaims":
        return set(_resource_claims(spec, pod.get("status") or {}))
    found: set[str] = set()
    _collect(spec, _SECRETS if plural == "secrets" else _CONFIG_MAPS, plural == "secrets", found)
    return found


def _volume_claims(pod: str, spec: Json) -> Iterator[str]:
    for volume in spec.get("volumes") or ():
        if volume.get("persistentVolumeClaim"):
            yield volume["persistentVolumeClaim"].get("claimName") or ""
        elif volume.get("ephemeral"):
            yield f"{pod}-{volume['name']}"


def _volume_secrets(spec: Json) -> Iterator[tuple[str, str]]:
    """The secrets that a PersistentVolume names for kubelets, by namespace and name; not those for controllers."""
    of_claim = (spec.get("claimRef") or {}).get("namespace") or ""
    if azure := spec.get("azureFile"):
        yield azure.get("secretNamespace") or of_claim, azure.get("secretName") or ""
    for source in _SECRET_SOURCES:
        if ref := (spec.get(source) or {}).get("secretRef"):
            # Their volumes may be from before references had a namespace.
            fallback = "" if source in ("cinder", "storageos") else of_claim
            yield ref.get("namespace") or fallback, ref.get("name") or ""
    for ref in ((spec.get("csi") or {}).get(f"node{step}SecretRef") for step in ("Publish", "Stage", "Expand")):
        if ref:
            yield ref.get("namespace") or "", ref.get("name") or ""


def _resource_claims(spec: Json, status: Json) -> Iterator[str]:
    made = {each["name"]: each.get("resourceClaimName") for each in status.get("resourceClaimStatuses") or ()}
    for each in spec.get("resourceClaims") or ():
        yield each.get("resourceClaimName") or made.get(each["name"]) or ""
    yield (status.get("extendedResourceClaimStatus") or {}).get("resourceClaimName") or ""


def _collect(value: Any, keys: tuple[str, ...], secrets: bool, found: set[str]) -> None:
    if isinstance(value, list):
        for item in value:
            _collect(item, keys, secrets, found)
        return
    if not isinstance(value, dict):
        return
    for key, item in value.items():
        if key in keys and isinstance(item, dict):
            found.add(str(item.get("name") or ""))
        elif secrets and key == "secret" and isinstance(item, dict):
            found.add(str(item.get("secretName") or item.get("name") or ""))
        elif secrets and key == "imagePullSecrets":
            found.update(str(each.get("name") or "") for each in item or ())
        elif secrets and key == "azureFile" and isinstance(item, dict):
            found.add(str(item.get("secretName") or ""))
        if isinstance(item, dict | list):
            _collect(item, keys, secrets, found)


# --- rules by resource ----------------------------------------------------------------------------------------------

_CLAIMS: Final = "persistentvolumeclaims"
_RELATED: Final = "\0"
"""A rule's result that depends on what pods refer to."""

_Rule = Callable[[Nodes, Asked, str], "str | None"]


def _read_by_reference(nodes: Nodes, asked: Asked, _: str) -> str | None:
    if asked.verb not in _READ:
        return "can only read resources of this type"
    if asked.subresource:
        return "cannot read subresource"
    if not asked.namespace:
        return "can only read namespaced object of this type"
    return _RELATED


def _get(nodes: Nodes, asked: Asked, _: str) -> str | None:
    if asked.verb != "get":
        return "can only get individual resources of this type"
    return "cannot get subresource" if asked.subresource else _RELATED


def _volume_claim(nodes: Nodes, asked: Asked, selector: str) -> str | None:
    if asked.subresource != "status":
        return _get(nodes, asked, selector)
    return _RELATED if asked.verb in ("update", "patch") else "can only get/update/patch this type"


def _csi_node(nodes: Nodes, asked: Asked, _: str) -> str | None:
    if asked.verb not in _LEASE_VERBS:
        return "can only get, create, update, patch, or delete a CSINode"
    if asked.subresource:
        return "cannot authorize CSINode subresources"
    if asked.verb != "create" and not nodes.has(asked.name):
        return "can only access CSINode with the same name as the requesting node"
    return None


def _slice(nodes: Nodes, asked: Asked, field_selector: str) -> str | None:
    """What a create may hold is for `node_restriction`."""
    if asked.subresource:
        return "cannot authorize ResourceSlice subresources"
    if asked.verb == "create":
        return None
    if asked.verb in ("get", "update", "patch", "delete"):
        return _RELATED
    if asked.verb not in ("watch", "list", "deletecollection"):
        verbs = "get, watch, list, create, update, patch, delete, deletecollection"
        return f"only the following verbs are allowed for a ResourceSlice: {verbs}"
    if any(each.op == "=" and nodes.has(each.value) for each in _by_node(RESOURCESLICES, field_selector)):
        return None
    return "can only list/watch/deletecollection resourceslices with nodeName field selector"


def _by_node(kind: Kind, text: str) -> list[FieldRequirement]:
    """What a selector asks of the node; nothing if it cannot be read."""
    try:
        selector = parse_field_selector(kind, text)
    except StatusError:
        return []
    return [each for each in selector.requirements if each.field == "spec.nodeName"]


def _service_account(nodes: Nodes, asked: Asked, selector: str) -> str | None:
    if asked.verb == "get" and not asked.subresource:
        return _read_by_reference(nodes, asked, selector)
    if asked.verb != "create" or not asked.name:
        return "can only create tokens for individual service accounts"
    return _RELATED if asked.subresource == "token" else "can only create token subresource of serviceaccount"


def _lease(nodes: Nodes, asked: Asked, _: str) -> str | None:
    """Shared kubelets read all node leases, and claim slots by leases in `kube-system`."""
    if isinstance(nodes, PlayedNodes):
        if asked.namespace == "kube-system":
            if asked.verb not in ("get", "list", "watch", "create", "update"):
                return "can only get, list, watch, create, or update a lease in kube-system"
            return None if not asked.name or is_slot(asked.name) else NO_SLOT
        if asked.namespace == LEASE_NAMESPACE and asked.verb in ("list", "watch"):
            return None
    if asked.verb not in _LEASE_VERBS:
        return "can only get, create, update, patch, or delete a node lease"
    if asked.namespace != LEASE_NAMESPACE:
        return f'can only access leases in the "{LEASE_NAMESPACE}" system namespace'
    if isinstance(nodes, OneNode) and asked.verb != "create" and asked.name != nodes.name:
        return "can only access node lease with the same name as the requesting node"
    return None


def _node(nodes: Nodes, asked: Asked, _: str) -> str | None:
    if asked.subresource == "status":
        return None if asked.verb in ("update", "patch") else ""
    if asked.subresource:
        return ""
    if asked.verb in ("create", "update", "patch"):
        return None
    if asked.verb in _READ:
        if isinstance(nodes, PlayedNodes) or (isinstance(nodes, OneNode) and asked.name == nodes.name):
            return None
        if not asked.name:
            return f"{nodes.title} cannot read all nodes, only its own Node object"
        return f"{nodes.title} cannot read '{asked.name}', only its own Node object"
    return ""


def _pod(nodes: Nodes, asked: Asked, field_selector: str) -> str | None:
    if asked.verb in _POD_WRITES.get(asked.subresource, ()):
        return None
    if asked.subresource or asked.verb not in _READ:
        return ""
    if asked.verb == "get":
        return _RELATED
    if _selects_by_node(nodes, field_selector):
        return None
    return _RELATED if asked.name else "can only list/watch pods with spec.nodeName field selector"


def _selects_by_node(nodes: Nodes, text: str) -> bool:
    """A node must select its own pods; shared kubelets, whose nodes change, bound pods."""
    try:
        selector = parse_field_selector(PODS, text)
    except StatusError:
        return False
    by_node = [each for each in selector.requirements if each.field == "spec.nodeName"]
    if isinstance(nodes, OneNode):
        return any(each.op == "=" and each.value == nodes.name for each in by_node)
    hashed = any(each.field.endswith("spec.nodeName") for each in selector.where.comparisons)
    return hashed or any((each.op == "=") == bool(each.value) for each in by_node)


_RULES: Final[dict[tuple[str, str], _Rule]] = {
    ("", "secrets"): _read_by_reference,
    ("", "configmaps"): _read_by_reference,
    ("", "serviceaccounts"): _service_account,
    ("coordination.k8s.io", "leases"): _lease,
    ("", "nodes"): _node,
    ("", "pods"): _pod,
    ("", _CLAIMS): _volume_claim,
    ("", "persistentvolumes"): _get,
    ("resource.k8s.io", "resourceclaims"): _get,
    ("resource.k8s.io", "resourceslices"): _slice,
    ("storage.k8s.io", "volumeattachments"): _get,
    ("storage.k8s.io", "csinodes"): _csi_node,
}

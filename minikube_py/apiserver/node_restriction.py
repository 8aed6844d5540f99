"""The admission plugin NodeRestriction: what a node or kubelet may write, depending on the object.

`admission_of` gives the check for one request, or None for other users; writes call it with the stored and the new
object. A shared kubelet (`node_claims`) obeys the same rules for each node it plays; its registrations and claims are
recorded here.

Source: kubernetes `plugin/pkg/admission/noderestriction/admission.go`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from minikube_py.api.errors import Json, forbidden, go_quote, not_found
from minikube_py.api.kind import Kind
from minikube_py.api.kinds.certificates import REQUESTS
from minikube_py.api.kinds.coordination import LEASES
from minikube_py.api.kinds.core import NODES, PODS, SERVICEACCOUNTS
from minikube_py.api.kinds.core.volumes import PERSISTENTVOLUMECLAIMS
from minikube_py.api.kinds.resource import RESOURCESLICES
from minikube_py.api.kinds.storage import CSINODES
from minikube_py.apiserver.auth import Asked, is_narrowed
from minikube_py.apiserver.messages import Admission, Standing, admits_renewals
from minikube_py.apiserver.node_access import MIRROR, NodeAccess, Nodes, OneNode, node_of, references
from minikube_py.apiserver.node_claims import (
    LEASE_NAMESPACE,
    NO_SLOT,
    NODE_PREFIX,
    PLAYED_BY,
    NodeClaims,
    is_slot,
    player,
    set_player,
)
from minikube_py.apiserver.rbac import Policy
from minikube_py.apiserver.rules import MASTERS, User
from minikube_py.apiserver.watch_cache import WatchCache

_KUBELET_LABELS: Final = frozenset(
    ("kubernetes.io/hostname", "topology.kubernetes.io/zone", "topology.kubernetes.io/region",
     "failure-domain.beta.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/region",
     "beta.kubernetes.io/instance-type", "node.kubernetes.io/instance-type", "kubernetes.io/os", "kubernetes.io/arch",
     "beta.kubernetes.io/os", "beta.kubernetes.io/arch")
)  # fmt: skip
_KUBELET_NAMESPACES: Final = ("kubelet.kubernetes.io", "node.kubernetes.io")
_SIGNERS_OF_NODES: Final = ("kubernetes.io/kubelet-serving", "kubernetes.io/kube-apiserver-client-kubelet")
_RESTRICTED: Final = "node-restriction.kubernetes.io"


class NodeRestriction:
    def __init__(self, access: NodeAccess, claims: NodeClaims, cache: WatchCache) -> None:
        self._access, self._claims, self._cache = access, claims, cache

    def admission_of(self, user: User) -> tuple[Admission | None, Standing | None]:
        if not is_narrowed(user) or MASTERS in user.groups:
            return None, admits_renewals
        nodes = self._access.nodes_of(user)
        found = _Admission(user, nodes, self._claims, self._cache, self._access.policy)
        return found.check, found.standing


class _Admission:
    def __init__(
        self, user: User, nodes: Nodes | None, claims: NodeClaims, cache: WatchCache, policy: Policy
    ) -> None:
        self._user, self._nodes, self._claims, self._cache, self._policy = user, nodes, claims, cache, policy

    def check(self, resource: Kind, sub: str, name: str, old: Json | None, new: Json | None) -> None:
        """See Admission."""
        nodes = self._nodes
        why: str | None = None
        if nodes is None:
            why = f"could not determine node from user {go_quote(self._user.name)}"
        elif resource is PODS:
            why = self._pod(nodes, sub, old, new)
        elif resource is NODES:
            why = self._node(nodes, name, old, new)
        elif resource is LEASES:
            why = self._lease(nodes, name, old, new)
        elif resource is PERSISTENTVOLUMECLAIMS:
            why = _claim_status(self._who(nodes), sub, old, new)
        elif resource is CSINODES and not nodes.has(((old or new or {}).get("metadata") or {}).get("name") or name):
            why = "can only access CSINode with the same name as the requesting node"
        elif resource is RESOURCESLICES and (old is None or new is None) and not nodes.has(node_of(old or new or {})):
            verb = "create" if old is None else "delete"
            why = f"can only {verb} ResourceSlice with the same NodeName as the requesting node"
        elif resource is REQUESTS and old is None and new is not None and not sub:
            why = _signing_request(nodes, new["spec"])
        elif resource is SERVICEACCOUNTS and sub == "token" and new is not None:
            why = self._token(nodes, name, new)
        if why is not None:
            raise forbidden(resource, name, why)

    def standing(self, kind: Kind, name: str, lease: Json) -> Callable[[], bool] | None:
        """See Standing: for a node of the user, or a Lease that the user keeps holding."""
        if kind is NODES:
            return partial(self._nodes.has, name) if self._nodes is not None else None
        if player(lease) != self._user.name:
            return None
        if isinstance(self._nodes, OneNode) or lease["metadata"]["namespace"] != LEASE_NAMESPACE:
            return admits_renewals(kind, name, lease)
        return partial(self._claims.stays_shared, name, NODES.key("", name), [None])

    # --- pods -------------------------------------------------------------------------------------------------------

    def _pod(self, nodes: Nodes, sub: str, old: Json | None, new: Json | None) -> str | None:
        who = self._who(nodes)
        if sub == "status":
            return _pod_status(who, nodes, old, new)
        if sub == "eviction":
            mine = old is not None and nodes.has(node_of(old))
            return None if mine else f"{_unquoted(who)} can only evict pods with spec.nodeName set to itself"
        if sub:
            return f"unexpected pod subresource {go_quote(sub)}, only 'status' and 'eviction' are allowed"
        if old is None and new is not None:
            return self._mirror_pod(who, nodes, new)
        if new is None and old is not None:
            mine = nodes.has(node_of(old))
            return None if mine else f"{who} can only delete pods with spec.nodeName set to itself"
        return f'unexpected operation "UPDATE", {who} can only create and delete mirror pods'

    def _mirror_pod(self, who: str, nodes: Nodes, pod: Json) -> str | None:
        if MIRROR not in (pod["metadata"].get("annotations") or {}):
            return f"pod does not have {go_quote(MIRROR)} annotation, {who} can only create mirror pods"
        node = node_of(pod)
        if not nodes.has(node):
            return f"{who} can only create pods with spec.nodeName set to itself"
        owners = pod["metadata"].get("ownerReferences") or []
        if len(owners) > 1:
            return f"{who} can only create pods with a single owner reference set to itself"
        if not owners or (owners[0].get("apiVersion"), owners[0].get("kind"), owners[0].get("name")) != (
            "v1", "Node", node,
        ):  # fmt: skip
            return f"{who} can only create pods with an owner reference set to itself"
        if not owners[0].get("controller"):
            return f"{who} can only create pods with a controller owner reference set to itself"
        if owners[0].get("blockOwnerDeletion"):
            return f"{who} must not set blockOwnerDeletion on an owner reference"
        entry = self._cache.of(NODES).entries.get(NODES.key("", node))
        if entry is None:
            raise not_found(NODES, node)
        uid = entry.decode()["metadata"]["uid"]
        if owners[0].get("uid") != uid:
            return f"node {node} UID mismatch: expected {owners[0].get('uid') or ''} got {uid}"
        referred = _api_reference(pod.get("spec") or {})
        return f"{who} can not create pods that reference {referred}" if referred else None

    def _token(self, nodes: Nodes, account: str, asked: Json) -> str | None:
        """A token for a pod on one of the nodes, for an audience that the pod names."""
        namespace, spec = asked["metadata"]["namespace"], asked["spec"]
        ref = spec.get("boundObjectRef") or {}
        if (ref.get("apiVersion"), ref.get("kind")) != ("v1", "Pod") or not ref.get("name"):
            return "node requested token not bound to a pod"
        if not ref.get("uid"):
            return "node requested token with a pod binding without a uid"
        entry = self._cache.of(PODS).entries.get(PODS.key(namespace, ref["name"]))
        if entry is None:
            raise not_found(PODS, ref["name"])
        pod = entry.decode()
        if pod["metadata"]["uid"] != ref["uid"]:
            told = f"the UID in the bound object reference ({ref['uid']}) does not match the UID in record"
            return f"{told}. The object might have been deleted and then recreated"
        if not nodes.has(node_of(pod)):
            return "node requested token bound to a pod scheduled on a different node"
        audiences = spec.get("audiences") or [""]
        if len(audiences) > 1:
            return "node may only request 0 or 1 audiences"
        audience, user = audiences[0], self._user
        if audience in _audiences(pod["spec"]):
            return None
        wanted = Asked("request-serviceaccounts-token-audience", "", audience, "", namespace, account)
        if self._policy.allowed(user, wanted):
            return None
        told = f"{user.name} is not authorized to request tokens for this audience"
        return f"audience {go_quote(audience)} not found in pod spec volume, {told}"

    # --- nodes and leases -------------------------------------------------------------------------------------------

    def _node(self, nodes: Nodes, name: str, old: Json | None, new: Json | None) -> str | None:
        who = self._who(nodes)
        registers = old is None and not isinstance(nodes, OneNode)
        if not registers and not nodes.has(name):
            return f"{who} is not allowed to modify node {go_quote(name)}"
        if new is None:
            return None
        if old is None:
            if (new.get("spec") or {}).get("configSource") is not None:
                return f"{who} is not allowed to create pods with a non-nil configSource"
            # A shared kubelet invents nodes, including labels.
            if not registers and (labels := _forbidden_labels({}, new)):
                return f"{who} is not allowed to set the following labels: {', '.join(labels)}"
        else:
            source = (new.get("spec") or {}).get("configSource")
            if source is not None and source != (old.get("spec") or {}).get("configSource"):
                return f"{who} is not allowed to update configSource to a new non-nil configSource"
            if (new.get("spec") or {}).get("taints") != (old.get("spec") or {}).get("taints"):
                return f"{who} is not allowed to modify taints"
            if new["metadata"].get("ownerReferences") != old["metadata"].get("ownerReferences"):
                return f"{who} is not allowed to modify ownerReferences"
            if labels := _forbidden_labels(old, new):
                return f"is not allowed to modify labels: {', '.join(labels)}"
        if registers and not self._claims.may_register(self._user.name, name):
            return f"{who} is not allowed to register node {go_quote(name)}, whose lease another holds"
        if registers or isinstance(nodes, OneNode):
            set_player(new, self._user.name)
        elif old is not None:
            _keep_player(old, new)
        return None

    def _lease(self, nodes: Nodes, name: str, old: Json | None, new: Json | None) -> str | None:
        metadata = (old or new or {})["metadata"]
        of_node = metadata.get("namespace") == LEASE_NAMESPACE
        if isinstance(nodes, OneNode):
            if not of_node:
                return f'can only access leases in the "{LEASE_NAMESPACE}" system namespace'
            if metadata.get("name") != nodes.name:
                return "can only access node lease with the same name as the requesting node"
            if new is not None:
                set_player(new, self._user.name)
            return None
        user = self._user.name
        if not of_node and not is_slot(metadata.get("name") or ""):
            return NO_SLOT
        if old is None:
            if of_node and not self._claims.may_claim(user, metadata.get("name") or ""):
                return f"user {go_quote(user)} did not register the node, and nobody gave its lease up"
        elif not self._claims.may_take(user, old):
            return f"user {go_quote(user)} does not hold the lease, which has not run out"
        if new is not None:
            set_player(new, user)
        return None

    def _who(self, nodes: Nodes) -> str:
        return f"node {go_quote(nodes.name)}" if isinstance(nodes, OneNode) else f"user {go_quote(self._user.name)}"


def _unquoted(who: str) -> str:
    """Upstream's only message without quotes around the node."""
    return who.replace('"', "") if who.startswith("node ") else who


def _keep_player(old: Json, new: Json) -> None:
    before = player(old)
    if before:
        set_player(new, before)
    elif PLAYED_BY in (new["metadata"].get("annotations") or {}):
        del new["metadata"]["annotations"][PLAYED_BY]


def _pod_status(who: str, nodes: Nodes, old: Json | None, new: Json | None) -> str | None:
    if old is None or new is None:
        return "unexpected operation"
    if not nodes.has(node_of(old)):
        return f"{who} can only update pod status for pods with spec.nodeName set to itself"
    if (old["metadata"].get("labels") or {}) != (new["metadata"].get("labels") or {}):
        return f"{who} cannot update labels through pod status"
    before, after = old.get("status") or {}, new.get("status") or {}
    if (before.get("resourceClaimStatuses") or []) != (after.get("resourceClaimStatuses") or []):
        return f"{who} cannot update resource claim statues"
    if before.get("extendedResourceClaimStatus") != after.get("extendedResourceClaimStatus"):
        return f"{who} cannot update extended resource claim status"
    return None


_OWN_CLAIM_STATUS: Final = ("capacity", "conditions", "allocatedResourceStatuses", "allocatedResources")
_OF_EACH_WRITE: Final = ("resourceVersion", "managedFields")


def _claim_status(who: str, sub: str, old: Json | None, new: Json | None) -> str | None:
    """Of a claim, a node writes what it measured, and nothing else."""
    if sub != "status":
        return "may only update PVC status"
    if old is None or new is None:
        return "unexpected operation"
    if _beside_own_status(old) == _beside_own_status(new):
        return None
    return f"{who} is not allowed to update fields other than status.quantity and status.conditions"


def _beside_own_status(claim: Json) -> Json:
    """Without what is empty: upstream compares by meaning."""
    return {
        "metadata": {k: v for k, v in claim["metadata"].items() if v and k not in _OF_EACH_WRITE},
        "spec": claim.get("spec") or {},
        "status": {k: v for k, v in (claim.get("status") or {}).items() if v and k not in _OWN_CLAIM_STATUS},
    }


def _signing_request(nodes: Nodes, spec: Json) -> str | None:
    """A certificate by which a node is known is for that node."""
    if spec.get("signerName") not in _SIGNERS_OF_NODES:
        return None
    # Deferred: a tenth of importing all kinds.
    from minikube_py.api.certificate_requests import parse_request, subject_name

    try:
        name = subject_name(parse_request(spec.get("request") or ""))
    except ValueError as error:
        return f"unable to parse csr: {error}"
    if name.startswith(NODE_PREFIX) and nodes.has(name.removeprefix(NODE_PREFIX)):
        return None
    return f"can only create a node CSR with CN={NODE_PREFIX}{nodes.name if isinstance(nodes, OneNode) else 'NAME'}"


def _audiences(spec: Json) -> set[str]:
    """Audiences of the tokens that a pod's volumes project."""
    projected = ((volume.get("projected") or {}).get("sources") or () for volume in spec.get("volumes") or ())
    tokens = (source.get("serviceAccountToken") for sources in projected for source in sources)
    return {token.get("audience") or "" for token in tokens if token is not None}


def _forbidden_labels(old: Json, new: Json) -> list[str]:
    """Changed labels that a kubelet may not set, sorted."""
    before: dict[str, Any] = (old.get("metadata") or {}).get("labels") or {}
    after: dict[str, Any] = new["metadata"].get("labels") or {}
    changed = {key for key in {*before, *after} if before.get(key) != after.get(key)}
    return sorted(key for key in changed if _is_forbidden(key))


def _is_forbidden(key: str) -> bool:
    namespace, slash, _ = key.partition("/")
    if not slash:
        return False
    if _within(namespace, _RESTRICTED):
        return True
    if not (_within(namespace, "kubernetes.io") or _within(namespace, "k8s.io")):
        return False
    return key not in _KUBELET_LABELS and not any(_within(namespace, each) for each in _KUBELET_NAMESPACES)


def _within(namespace: str, domain: str) -> bool:
    return namespace == domain or namespace.endswith(f".{domain}")


# --- what a mirror pod may not refer to -----------------------------------------------------------------------------

_VOLUMES: Final = {
    "configMap": "configmaps (via configmap volumes)",
    "secret": "secrets (via secret volumes)",
    "csi": "csidrivers (via CSI volumes)",
    "glusterfs": "endpoints (via glusterFS volumes)",
    "persistentVolumeClaim": "persistentvolumeclaims",
    "ephemeral": "persistentvolumeclaims (via ephemeral volumes)",
    "azureFile": "secrets (via azureFile volumes)",
}
_PROJECTED: Final = {
    "configMap": "configmaps (via projected volumes)",
    "secret": "secrets (via projected volumes)",
    "serviceAccountToken": "serviceaccounts (via projected volumes)",
    "clusterTrustBundle": "clustertrustbundles",
    "podCertificate": "podcertificates",
}


def _api_reference(spec: Json) -> str:
    """Which resource of the API a pod refers to, in upstream's words, or ""."""
    if spec.get("serviceAccountName"):
        return "serviceaccounts"
    pod = {"metadata": {}, "spec": spec}
    if references(pod, "secrets"):
        return "secrets"
    if references(pod, "configmaps"):
        return "configmaps"
    if spec.get("resourceClaims"):
        return "resourceclaims"
    for volume in spec.get("volumes") or ():
        for kind, said in _VOLUMES.items():
            if volume.get(kind) is not None:
                return said
        for source in (volume.get("projected") or {}).get("sources") or ():
            for kind, said in _PROJECTED.items():
                if source.get(kind) is not None:
                    return said
    return ""

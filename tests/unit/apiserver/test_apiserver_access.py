"""Who a request runs as, and what it may: tokens, impersonation, bootstrap roles, nodes and kubelets.

Answers are upstream's, of a server with `--authorization-mode=Node,RBAC` and NodeRestriction, unless a test says
that its subject is this project's own.
"""

from __future__ import annotations

import random
from typing import Any

import orjson
import pytest
from api_core import MERGE, PODS, Core, config_map, node, pod

from minikube_py.api.errors import StatusError
from minikube_py.apiserver.auth import (
    ADMIN,
    ANONYMOUS,
    CONTROLLER_MANAGER,
    SCHEDULER,
    SHARED_KUBELET,
    Asked,
    Authenticator,
)
from minikube_py.apiserver.impersonation import impersonated, wanted_user
from minikube_py.apiserver.messages import Request
from minikube_py.apiserver.node_claims import PLAYED_BY
from minikube_py.apiserver.rules import AUTHENTICATED, User, compiled

Json = dict[str, Any]
PLAIN_USER = User("plain", (AUTHENTICATED,))
N1 = User("system:node:n1", ("system:nodes", AUTHENTICATED))
OTHER_KUBELET = User("system:kubelets:b", ("system:kubelets", AUTHENTICATED))
NODE_LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
SLOT_LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"


# --- tokens and rules -----------------------------------------------------------------------------------------------


async def test_a_token_is_known_whole_or_not_at_all() -> None:
    auth = Authenticator({"secret": ADMIN, "other": User("x")})
    assert auth.known("Bearer secret") is (await auth.asker("bearer  secret")).user is ADMIN
    found = auth.known("Bearer other")
    assert found is not None and found.groups == (AUTHENTICATED,)
    assert auth.known(None) is ANONYMOUS
    assert (await auth.asker("Basic eDp5")).user is (await auth.asker("Bearer ")).user is ANONYMOUS
    for wrong in ("Bearer secre", "Bearer secrets", "Bearer \udcff", "Bearer " + "x" * 100_000):
        with pytest.raises(StatusError) as refused:
            await auth.asker(wrong)
        assert refused.value.code == 401


RIGHTS = {
    "an administrator": (ADMIN, "delete", "", "nodes", "", True),
    "the scheduler binds": (SCHEDULER, "create", "", "pods/binding", "", True),
    "the scheduler writes no secrets": (SCHEDULER, "update", "", "secrets", "", False),
    "the scheduler reads no secrets": (SCHEDULER, "list", "", "secrets", "", False),
    "the scheduler reports": (SCHEDULER, "patch", "", "pods/status", "", True),
    "the scheduler's own lease": (SCHEDULER, "update", "coordination.k8s.io", "leases", "kube-scheduler", True),
    "no other lease": (SCHEDULER, "update", "coordination.k8s.io", "leases", "kube-controller-manager", False),
    "controllers delete": (CONTROLLER_MANAGER, "delete", "", "pods", "x", True),
    "controllers make no nodes": (CONTROLLER_MANAGER, "create", "", "nodes", "", False),
    "controllers bind nothing": (CONTROLLER_MANAGER, "create", "", "pods/binding", "", False),
    "everyone asks what they may": (PLAIN_USER, "create", "authorization.k8s.io", "selfsubjectaccessreviews", "", True),
    "nobody asks nothing": (ANONYMOUS, "create", "authorization.k8s.io", "selfsubjectaccessreviews", "", False),
    "a group alone is no node": (N1, "list", "", "pods", "", False),
}


@pytest.mark.parametrize("case", RIGHTS.values(), ids=RIGHTS)
async def test_bootstrap_roles_say_who_may_do_what(core: Core, case: tuple[User, str, str, str, str, bool]) -> None:
    user, verb, group, resource, name, may = case
    plural, _, sub = resource.partition("/")
    assert core.api.access.policy.allowed(user, Asked(verb, group, plural, sub, "", name)) is may


async def test_paths_are_open_by_rules_too(core: Core) -> None:
    def may(user: User, path: str) -> bool:
        return core.api.access.policy.allowed(user, Asked("get", path=path))

    assert may(ANONYMOUS, "/healthz") and not may(ANONYMOUS, "/metrics")
    assert may(PLAIN_USER, "/apis/apps") and not may(PLAIN_USER, "/metrics")
    assert may(ADMIN, "/metrics")


async def test_compiled_rights_decide_as_each_rule_does(core: Core) -> None:
    """The sets against each rule by itself, for everything that the rules name and some that they do not."""
    rng = random.Random(11)
    policy = core.api.access.policy
    for user in (ADMIN, SCHEDULER, CONTROLLER_MANAGER, PLAIN_USER, ANONYMOUS):
        rules, errors = policy.rules_of(user, "kube-system")
        assert rules and not errors
        rights = compiled(rules)
        verbs = sorted({verb for rule in rules for verb in rule.verbs} | {"get", "approve"})
        groups = sorted({group for rule in rules for group in rule.groups} | {"apps"})
        resources = sorted({each for rule in rules for each in rule.resources} | {"secrets", "pods/status", "x/status"})
        paths = sorted({each for rule in rules for each in rule.paths} | {"/apis/x", "/nowhere"})
        for _ in range(400):
            verb, group, resource = rng.choice(verbs), rng.choice(groups), rng.choice(resources)
            name, path = rng.choice(("", "kube-scheduler", "x")), rng.choice(paths)
            by_rules = any(rule.allows(verb, group, resource, name) for rule in rules)
            assert rights.allow(verb, group, resource, name) is by_rules, (user.name, verb, group, resource)
            assert rights.allow_path(verb, path) is any(rule.allows(verb, "", "", "", path) for rule in rules)


# --- impersonation --------------------------------------------------------------------------------------------------

ON_PODS = Asked("get", "", "pods", "", "default", "x")

REFUSED = {
    "a user": (
        [("Impersonate-User", "nobody")],
        'pods "x" is forbidden: User "plain" cannot impersonate-on:user-info:get resource "pods" in API group "" '
        'in the namespace "default"',
    ),
    "a node": (
        [("impersonate-user", "system:node:x")],
        'pods "x" is forbidden: User "plain" cannot impersonate-on:arbitrary-node:get resource "pods" in API group "" '
        'in the namespace "default"',
    ),
    "a service account": (
        [("Impersonate-User", "system:serviceaccount:a:b")],
        'pods "x" is forbidden: User "plain" cannot impersonate-on:serviceaccount:get resource "pods" in API group "" '
        'in the namespace "default"',
    ),
    "a node with a group": (
        [("Impersonate-User", "system:node:x"), ("Impersonate-Group", "g")],
        'users "system:node:x" is forbidden: User "plain" cannot impersonate resource "users" in API group "" '
        "at the cluster scope",
    ),
    "a group alone": (
        [("Impersonate-Group", "g"), ("Impersonate-Extra-a%2fb", "1"), ("Impersonate-Extra-A%2FB", "2")],
        'requested &user.DefaultInfo{Name:"", UID:"", Groups:[]string{"g"}, '
        'Extra:map[string][]string{"a/b":[]string{"1", "2"}}} without impersonating a user name',
    ),
    "a uid alone": (
        [("Impersonate-Uid", "u")],
        'requested &user.DefaultInfo{Name:"", UID:"u", Groups:[]string(nil), '
        "Extra:map[string][]string(nil)} without impersonating a user name",
    ),
}


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED)
async def test_who_may_not_impersonate_is_refused_in_the_originals_words(
    core: Core, case: tuple[list[tuple[str, str]], str]
) -> None:
    headers, message = case
    with pytest.raises(StatusError) as refused:
        wanted = wanted_user(headers)
        assert wanted is not None
        impersonated(PLAIN_USER, wanted, ON_PODS, core.api.access.policy)
    assert refused.value.message == message
    assert refused.value.code == (400 if message.startswith("requested") else 403)


BECOMES = {
    "nobody": (User("nobody", uid="7", extra=(("foo", ("bar",)),)), (AUTHENTICATED,)),
    "an administrator": (User("a", ("system:masters",)), ("system:masters", AUTHENTICATED)),
    "a node": (User("system:node:x"), ("system:nodes", AUTHENTICATED)),
    "a node with a group": (User("system:node:x", ("g",)), ("g", AUTHENTICATED)),
    "a service account": (
        User("system:serviceaccount:a:b"),
        ("system:serviceaccounts", "system:serviceaccounts:a", AUTHENTICATED),
    ),
    "no service account": (User("system:serviceaccount:A:b"), (AUTHENTICATED,)),
    "anonymous": (User("system:anonymous"), ("system:unauthenticated",)),
    "unauthenticated": (User("x", ("system:unauthenticated",)), ("system:unauthenticated",)),
}


@pytest.mark.parametrize("case", BECOMES.values(), ids=BECOMES)
async def test_an_administrator_becomes_whom_the_headers_name(core: Core, case: tuple[User, tuple[str, ...]]) -> None:
    wanted, groups = case
    found, _ = impersonated(ADMIN, wanted, ON_PODS, core.api.access.policy)
    assert found == User(wanted.name, groups, wanted.uid, wanted.extra)


EVERYWHERE = [
    ("GET", "/version"), ("GET", "/nowhere"), ("GET", "/metrics"), ("GET", "/api/v1/pods"),
    ("GET", "/api/v1/pods?watch=true"), ("GET", "/api/v1/watch/pods"), ("POST", PODS), ("PUT", f"{PODS}/x"),
    ("PATCH", f"{PODS}/x/status"), ("DELETE", PODS), ("GET", "/apis/no.such/v1/things"), ("POST", f"{PODS}/x/eviction"),
    ("GET", "/openapi/v3"), ("GET", f"{PODS}/x/log"),
]  # fmt: skip


@pytest.mark.parametrize("asked", EVERYWHERE, ids=lambda asked: " ".join(asked))
async def test_impersonation_is_settled_before_anything_else_on_every_path(core: Core, asked: Any) -> None:
    method, path = asked
    path, _, query = path.partition("?")
    request = Request(method, path, {"watch": "true"} if query else {}, b"{", PLAIN_USER, wanted=User("nobody"))
    response = await core.api.handle(request)
    assert response.status == 403 and b"impersonate-on:user-info:" in response.body, response.body


async def test_can_i_as_somebody_else_tells_what_that_one_may(core: Core) -> None:
    review = {"kind": "SelfSubjectAccessReview", "apiVersion": "authorization.k8s.io/v1"}
    spec = {"resourceAttributes": {"verb": "list", "resource": "secrets", "namespace": "default"}}
    for wanted, may in ((None, True), (User("nobody"), False), (User("x", ("system:masters",)), True)):
        request = Request(
            "POST",
            "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
            body=orjson.dumps({**review, "spec": spec}),
            user=ADMIN,
            wanted=wanted,
        )
        response = await core.api.handle(request)
        assert response.status == 201 and orjson.loads(response.body)["status"]["allowed"] is may


# --- one node -------------------------------------------------------------------------------------------------------


async def furnish(core: Core) -> None:
    for name in ("n1", "n2"):
        await core.done("POST", "/api/v1/nodes", node(name))
        lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}}
        await core.done("POST", NODE_LEASES, lease)
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": f"s-{name}"}}
        await core.done("POST", "/api/v1/namespaces/default/secrets", secret)
        await core.done("POST", "/api/v1/namespaces/default/configmaps", config_map(f"m-{name}"))
        bound = pod(f"p-{name}", name)
        bound["spec"]["volumes"] = [{"name": "v", "secret": {"secretName": f"s-{name}"}}]
        source = {"configMapKeyRef": {"name": f"m-{name}", "key": "k"}}
        bound["spec"]["containers"][0]["env"] = [{"name": "E", "valueFrom": source}]
        await core.done("POST", PODS, bound)


READS = {
    "its secret": ("/api/v1/namespaces/default/secrets/s-n1", 200, ""),
    "another's secret": (
        "/api/v1/namespaces/default/secrets/s-n2",
        403,
        "no relationship found between node 'n1' and this object",
    ),
    "all secrets": ("/api/v1/secrets", 403, "can only read namespaced object of this type"),
    "the secrets of a namespace": ("/api/v1/namespaces/default/secrets", 403, "No Object name found"),
    "its secret, listed": ("/api/v1/namespaces/default/secrets?fieldSelector=metadata.name=s-n1", 200, ""),
    "its config map": ("/api/v1/namespaces/default/configmaps/m-n1", 200, ""),
    "another's config map": (
        "/api/v1/namespaces/default/configmaps/m-n2",
        403,
        "no relationship found between node 'n1' and this object",
    ),
    "its pod": (f"{PODS}/p-n1", 200, ""),
    "another's pod": (f"{PODS}/p-n2", 403, "no relationship found between node 'n1' and this object"),
    "its pods": ("/api/v1/pods?fieldSelector=spec.nodeName=n1", 200, ""),
    "another's pods": (
        "/api/v1/pods?fieldSelector=spec.nodeName=n2",
        403,
        "can only list/watch pods with spec.nodeName field selector",
    ),
    "all pods": ("/api/v1/pods", 403, "can only list/watch pods with spec.nodeName field selector"),
    "itself": ("/api/v1/nodes/n1", 200, ""),
    "another node": ("/api/v1/nodes/n2", 403, "node 'n1' cannot read 'n2', only its own Node object"),
    "all nodes": ("/api/v1/nodes", 403, "node 'n1' cannot read all nodes, only its own Node object"),
    "its lease": (f"{NODE_LEASES}/n1", 200, ""),
    "another's lease": (
        f"{NODE_LEASES}/n2",
        403,
        "can only access node lease with the same name as the requesting node",
    ),
    "all leases": (NODE_LEASES, 403, "can only get, create, update, patch, or delete a node lease"),
    "a lease elsewhere": (f"{SLOT_LEASES}/x", 403, 'can only access leases in the "kube-node-lease" system namespace'),
    "services": ("/api/v1/services", 200, ""),
    "namespaces": (
        "/api/v1/namespaces",
        403,
        'User "system:node:n1" cannot list resource "namespaces" in API group "" at the cluster scope',
    ),
}


async def test_a_node_reads_itself_and_what_its_pods_refer_to(core: Core) -> None:
    await furnish(core)
    for case, (path, code, reason) in READS.items():
        status, answer = await core.ask("GET", path, user=N1)
        assert status == code, (case, answer)
        assert answer.get("message", "").endswith(reason), (case, answer)


STRATEGIC = "application/strategic-merge-patch+json"
READY = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
WRITES = {
    "its status": ("PATCH", "/api/v1/nodes/n1/status", READY, 200, ""),
    "another's status": (
        "PATCH",
        "/api/v1/nodes/n2/status",
        READY,
        403,
        'nodes "n2" is forbidden: node "n1" is not allowed to modify node "n2"',
    ),
    "a label of its own": ("PATCH", "/api/v1/nodes/n1", {"metadata": {"labels": {"disk": "ssd"}}}, 200, ""),
    "a reserved label": (
        "PATCH",
        "/api/v1/nodes/n1",
        {"metadata": {"labels": {"node-role.kubernetes.io/control-plane": "", "a.k8s.io/b": ""}}},
        403,
        'nodes "n1" is forbidden: is not allowed to modify labels: a.k8s.io/b, node-role.kubernetes.io/control-plane',
    ),
    "its taints": (
        "PATCH",
        "/api/v1/nodes/n1",
        {"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}},
        403,
        'nodes "n1" is forbidden: node "n1" is not allowed to modify taints',
    ),
    "itself, deleted": (
        "DELETE",
        "/api/v1/nodes/n1",
        None,
        403,
        'nodes "n1" is forbidden: User "system:node:n1" cannot delete resource "nodes" in API group "" '
        "at the cluster scope",
    ),
    "its pod's status": ("PATCH", f"{PODS}/p-n1/status", {"status": {"phase": "Running"}}, 200, ""),
    "another's pod's status": (
        "PATCH",
        f"{PODS}/p-n2/status",
        {"status": {"phase": "Running"}},
        403,
        'pods "p-n2" is forbidden: node "n1" can only update pod status for pods with spec.nodeName set to itself',
    ),
    "a pod's labels": (
        "PATCH",
        f"{PODS}/p-n1/status",
        {"metadata": {"labels": {"a": "b"}}},
        403,
        'pods "p-n1" is forbidden: node "n1" cannot update labels through pod status',
    ),
    "a pod made": (
        "POST",
        PODS,
        pod("new", "n1"),
        403,
        'pods "new" is forbidden: pod does not have "kubernetes.io/config.mirror" annotation, node "n1" can only '
        "create mirror pods",
    ),
    "another's pod evicted": (
        "POST",
        f"{PODS}/p-n2/eviction",
        {"kind": "Eviction", "apiVersion": "policy/v1", "metadata": {"name": "p-n2"}},
        403,
        'pods "p-n2" is forbidden: node n1 can only evict pods with spec.nodeName set to itself',
    ),
    "another's pod evicted by another name": (
        "POST",
        f"{PODS}/p-n2/eviction",
        {"kind": "Eviction", "apiVersion": "policy/v1", "metadata": {"name": "other"}},
        403,
        'pods "p-n2" is forbidden: node n1 can only evict pods with spec.nodeName set to itself',
    ),
    "another's pod deleted": (
        "DELETE",
        f"{PODS}/p-n2",
        None,
        403,
        'pods "p-n2" is forbidden: node "n1" can only delete pods with spec.nodeName set to itself',
    ),
    "its pod deleted": ("DELETE", f"{PODS}/p-n1", {"gracePeriodSeconds": 0}, 200, ""),
    "another node made": (
        "POST",
        "/api/v1/nodes",
        {"kind": "Node", "apiVersion": "v1", "metadata": {"name": "n3"}},
        403,
        'nodes "n3" is forbidden: node "n1" is not allowed to modify node "n3"',
    ),
    "another's lease": (
        "POST",
        NODE_LEASES,
        {"kind": "Lease", "apiVersion": "coordination.k8s.io/v1", "metadata": {"name": "n3"}},
        403,
        'leases.coordination.k8s.io "n3" is forbidden: can only access node lease with the same name as the requesting '
        "node",
    ),
}


async def test_a_node_writes_itself_and_its_pods(core: Core) -> None:
    await furnish(core)
    for case, (method, path, body, code, message) in WRITES.items():
        kind = STRATEGIC if method == "PATCH" else "application/json"
        status, answer = await core.ask(method, path, body, content_type=kind, user=N1)
        assert status == code, (case, answer)
        assert not message or answer.get("message") == message, (case, answer)


async def test_a_user_in_the_group_of_nodes_that_is_no_node_may_nothing_of_theirs(core: Core) -> None:
    for name, reason in (("stranger", ""), ("system:node:", ': unknown node for user "system:node:"')):
        user = User(name, ("system:nodes", AUTHENTICATED))
        status, answer = await core.ask("GET", "/api/v1/services", user=user)
        assert status == 403 and answer["message"].endswith(f"at the cluster scope{reason}")


# --- kubelets that share an identity: this project's own ------------------------------------------------------------


def lease(name: str, renewed: str = "2026-01-01T00:00:00.000000Z", seconds: int = 40, version: str = "") -> Json:
    metadata = {"name": name, **({"resourceVersion": version} if version else {})}
    spec = {"holderIdentity": name, "leaseDurationSeconds": seconds, "renewTime": renewed}
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}


FAR = "2999-01-01T00:00:00.000000Z"


async def code_of(core: Core, user: User, method: str, path: str, body: Json | None = None) -> int:
    kind = MERGE if method == "PATCH" else "application/json"
    status, _ = await core.ask(method, path, body, content_type=kind, user=user)
    return status


async def test_a_kubelet_touches_what_it_registered_and_no_other_node(core: Core) -> None:
    await furnish(core)
    made = await core.ask("POST", "/api/v1/nodes", node("k1"), user=SHARED_KUBELET)
    assert made[0] == 201 and made[1]["metadata"]["annotations"] == {PLAYED_BY: "system:kubelets"}
    await core.done("POST", PODS, pod("on-k1", "k1"))
    for path, mine in (("k1", True), ("n1", False)):
        beat = await code_of(core, SHARED_KUBELET, "PATCH", f"/api/v1/nodes/{path}/status", READY)
        assert beat == (200 if mine else 403)
    for name, mine in (("on-k1", True), ("p-n1", False)):
        running = {"status": {"phase": "Running"}}
        code = 200 if mine else 403
        assert await code_of(core, SHARED_KUBELET, "PATCH", f"{PODS}/{name}/status", running) == code
        assert await code_of(core, SHARED_KUBELET, "GET", f"{PODS}/{name}") == code
        gone = await code_of(core, SHARED_KUBELET, "DELETE", f"{PODS}/{name}", {"gracePeriodSeconds": 0})
        assert gone == (200 if mine else 403)
    for path in ("/api/v1/secrets", "/api/v1/namespaces/default/secrets/s-n1", "/api/v1/pods"):
        assert await code_of(core, SHARED_KUBELET, "GET", path) == 403
    for name in ("k1", "n1"):
        assert await code_of(core, SHARED_KUBELET, "DELETE", f"/api/v1/nodes/{name}") == 403
    assert await code_of(core, SHARED_KUBELET, "GET", "/api/v1/pods?fieldSelector=spec.nodeName!=") == 200
    taken_off = {"metadata": {"annotations": {PLAYED_BY: None}}}
    assert await code_of(core, SHARED_KUBELET, "PATCH", "/api/v1/nodes/k1", taken_off) == 200
    assert (await core.done("GET", "/api/v1/nodes/k1"))["metadata"]["annotations"][PLAYED_BY] == "system:kubelets"


async def test_a_kubelet_claims_a_node_that_others_made_by_making_its_lease(core: Core) -> None:
    await core.done("POST", "/api/v1/nodes", node("adopted"))
    path = "/api/v1/nodes/adopted/status"
    assert await code_of(core, SHARED_KUBELET, "PATCH", path, READY) == 403
    assert await code_of(core, SHARED_KUBELET, "POST", NODE_LEASES, lease("adopted", FAR)) == 201
    assert await code_of(core, SHARED_KUBELET, "PATCH", path, READY) == 200
    assert await code_of(core, OTHER_KUBELET, "PATCH", path, READY) == 403
    version = (await core.done("GET", f"{NODE_LEASES}/adopted"))["metadata"]["resourceVersion"]
    stolen = lease("adopted", FAR, version=version)
    assert await code_of(core, OTHER_KUBELET, "PUT", f"{NODE_LEASES}/adopted", stolen) == 403


async def test_a_lease_that_ran_out_is_taken_over_with_its_node(core: Core) -> None:
    assert await code_of(core, SHARED_KUBELET, "POST", "/api/v1/nodes", node("k1")) == 201
    assert await code_of(core, OTHER_KUBELET, "POST", NODE_LEASES, lease("k1", FAR)) == 403
    assert await code_of(core, SHARED_KUBELET, "POST", NODE_LEASES, lease("k1")) == 201
    version = (await core.done("GET", f"{NODE_LEASES}/k1"))["metadata"]["resourceVersion"]
    taken = lease("k1", FAR, version=version)
    assert await code_of(core, OTHER_KUBELET, "PUT", f"{NODE_LEASES}/k1", taken) == 200
    assert await code_of(core, OTHER_KUBELET, "PATCH", "/api/v1/nodes/k1/status", READY) == 200
    assert await code_of(core, SHARED_KUBELET, "PATCH", "/api/v1/nodes/k1/status", READY) == 403


async def test_a_shared_kubelet_never_gets_the_node_of_a_kubelet_of_its_own(core: Core) -> None:
    """Neither before its Lease is made, nor once it has run out, nor by a Lease made before the node was there."""
    assert await code_of(core, SHARED_KUBELET, "POST", NODE_LEASES, lease("n1")) == 201
    forged = node("n1")
    forged["metadata"]["annotations"] = {PLAYED_BY: SHARED_KUBELET.name}
    assert await code_of(core, N1, "POST", "/api/v1/nodes", forged) == 201
    await core.done("POST", PODS, pod("victim", "n1"))
    assert await code_of(core, SHARED_KUBELET, "GET", f"{PODS}/victim") == 403
    assert await code_of(core, SHARED_KUBELET, "DELETE", f"{NODE_LEASES}/n1") == 403
    await core.done("DELETE", f"{NODE_LEASES}/n1")
    assert await code_of(core, SHARED_KUBELET, "POST", NODE_LEASES, lease("n1", FAR)) == 403
    assert await code_of(core, N1, "POST", NODE_LEASES, lease("n1")) == 201
    version = (await core.done("GET", f"{NODE_LEASES}/n1"))["metadata"]["resourceVersion"]
    for verb, body in (("PUT", lease("n1", FAR, version=version)), ("PATCH", READY), ("DELETE", None)):
        assert await code_of(core, SHARED_KUBELET, verb, f"{NODE_LEASES}/n1", body) == 403
    await core.done("DELETE", "/api/v1/nodes/n1")
    assert await code_of(core, SHARED_KUBELET, "POST", "/api/v1/nodes", node("n1")) == 403
    assert await code_of(core, SHARED_KUBELET, "GET", f"{PODS}/victim") == 403


async def test_a_node_is_its_own_kubelets_once_that_has_written_to_it(core: Core) -> None:
    await core.done("POST", "/api/v1/nodes", node("n1"))
    assert await code_of(core, N1, "PATCH", "/api/v1/nodes/n1/status", READY) == 200
    assert await code_of(core, SHARED_KUBELET, "POST", NODE_LEASES, lease("n1", FAR)) == 403


async def test_a_node_lease_of_nobody_known_is_not_taken_over(core: Core) -> None:
    await core.done("POST", "/api/v1/nodes", node("n1"))
    made = await core.done("POST", NODE_LEASES, lease("n1"))
    taken = lease("n1", FAR, version=made["metadata"]["resourceVersion"])
    assert await code_of(core, SHARED_KUBELET, "PUT", f"{NODE_LEASES}/n1", taken) == 403


async def test_a_kubelet_writes_the_leases_of_slots_and_never_those_of_leaders(core: Core) -> None:
    for name in ("kube-scheduler", "old"):
        await core.done("POST", SLOT_LEASES, lease(name))
    assert await code_of(core, SHARED_KUBELET, "POST", SLOT_LEASES, lease("minikube-py-kubelet-0", FAR)) == 201
    for name, code in (("minikube-py-kubelet-0", 200), ("kube-scheduler", 403), ("old", 403)):
        version = (await core.done("GET", f"{SLOT_LEASES}/{name}"))["metadata"]["resourceVersion"]
        body = lease(name, FAR, version=version)
        assert await code_of(core, SHARED_KUBELET, "PUT", f"{SLOT_LEASES}/{name}", body) == code


@pytest.mark.parametrize(
    "name", ["kube-controller-manager", "kube-scheduler", "minikube-py-kubelet-", "x-minikube-py-kubelet-0"]
)
async def test_a_kubelet_makes_no_other_lease_in_kube_system_where_there_is_none(core: Core, name: str) -> None:
    """Whoever has the Lease first leads: the scheduler would wait for as long as it says."""
    for method, path in (("POST", SLOT_LEASES), ("PUT", f"{SLOT_LEASES}/{name}"), ("GET", f"{SLOT_LEASES}/{name}")):
        status, answer = await core.ask(method, path, lease(name, FAR), user=SHARED_KUBELET)
        assert status == 403 and "named minikube-py-kubelet-<slot>, in kube-system" in answer["message"], method
    generated = lease("", FAR)
    del generated["metadata"]["name"]
    generated["metadata"]["generateName"] = name[:8]
    assert await code_of(core, SHARED_KUBELET, "POST", SLOT_LEASES, generated) == 403
    assert await code_of(core, N1, "POST", SLOT_LEASES, lease(name, FAR)) == 403
    assert (await core.ask("GET", f"{SLOT_LEASES}/{name}"))[0] == 404


async def test_what_a_kubelet_registers_is_written_down_for_large_objects_too(core: Core) -> None:
    """They are made in another place than small ones (`work`)."""
    large = node("k1")
    large["metadata"]["annotations"] = {f"a{number}": "x" * 1000 for number in range(250)}
    status, made = await core.ask("POST", "/api/v1/nodes", large, user=SHARED_KUBELET)
    assert status == 201 and made["metadata"]["annotations"][PLAYED_BY] == "system:kubelets"
    images = [{"names": ["n" * 400], "sizeBytes": number} for number in range(600)]
    status, changed = await core.ask(
        "PATCH", "/api/v1/nodes/k1/status", {"status": {"images": images}}, content_type=MERGE, user=SHARED_KUBELET
    )
    assert status == 200 and changed["metadata"]["annotations"][PLAYED_BY] == "system:kubelets"
    stripped = {**made, "metadata": {**made["metadata"], "annotations": {"b": "x" * 250_000}, "resourceVersion": ""}}
    status, changed = await core.ask("PUT", "/api/v1/nodes/k1", stripped, user=SHARED_KUBELET)
    assert status == 200 and changed["metadata"]["annotations"][PLAYED_BY] == "system:kubelets"

"""RBAC: who holds which rules, who may grant them, and what every cluster has from its start.

`rbac_facts.json` holds the cases of upstream's own tests: `TestRuleMatches` (plugin/pkg/auth/authorizer/rbac) and all
of component-helpers' `policy_comparator_test.go`.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from api_core import MERGE, Core
from hypothesis import given
from hypothesis import strategies as st

from minikube_py.api.kinds.rbac import CLUSTERROLEBINDINGS, CLUSTERROLES, ROLEBINDINGS, ROLES
from minikube_py.apiserver import bootstrap, rbac
from minikube_py.apiserver.auth import ADMIN, ANONYMOUS, Asked
from minikube_py.apiserver.escalation import uncovered
from minikube_py.apiserver.rules import AUTHENTICATED, Rule, User, compiled, rule_of

Json = dict[str, Any]
FACTS = orjson.loads((Path(__file__).parent / "rbac_facts.json").read_bytes())
RBAC = "/apis/rbac.authorization.k8s.io/v1"
ROLES_OF_DEFAULT = f"{RBAC}/namespaces/default/roles"
BINDINGS_OF_DEFAULT = f"{RBAC}/namespaces/default/rolebindings"
ANN = User("ann", ("writers", AUTHENTICATED))
ROBOT = User("system:serviceaccount:default:robot", ("system:serviceaccounts", AUTHENTICATED))
READ_PODS = {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}


# --- rules ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", FACTS["matches"], ids=lambda case: case["name"])
def test_rules_match_as_upstreams_tests_say(case: Json) -> None:
    rule = rule_of(case["rule"])
    rights = compiled((rule,))
    for each in case["asked"]:
        may = each.pop("allowed")
        asked = Asked(**each)
        assert rule.allows(asked.verb, asked.group, asked.resource, asked.name, asked.path) is may, each
        if asked.path is not None:
            assert rights.allow_path(asked.verb, asked.path) is may, each
        else:
            assert rights.allow(asked.verb, asked.group, asked.resource, asked.name) is may, each


@pytest.mark.parametrize("case", FACTS["covers"], ids=lambda case: case["name"])
def test_rules_cover_others_as_upstreams_tests_say(case: Json) -> None:
    held, wanted = ([rule_of(rule) for rule in case[which]] for which in ("held", "wanted"))
    missing = list(uncovered(held, wanted))
    assert missing == [rule_of(rule) for rule in case["missing"]]
    assert (not missing) is case["covered"]


def _some(*of: str) -> st.SearchStrategy[tuple[str, ...]]:
    return st.lists(st.sampled_from(of), min_size=1, max_size=3).map(tuple)


_RESOURCES = ("pods", "pods/status", "*", "*/status", "*/", "", "pods/*")
_of_resources = st.builds(
    Rule,
    _some("get", "list", "*"),
    _some("", "apps", "*"),
    _some(*_RESOURCES),
    st.one_of(st.just(()), _some("a", "b", "")),
)
_of_paths = st.builds(Rule, _some("get", "*"), paths=_some("/a", "/a/*", "*", "/a**", ""))
_rules = st.lists(st.one_of(_of_resources, _of_paths), max_size=4)


@given(_rules)
def test_compiled_rules_decide_as_each_by_itself(rules: list[Rule]) -> None:
    rights = compiled(rules)
    for asked in itertools.product(("get", "x"), ("", "apps"), _RESOURCES, ("", "a", "c")):
        assert rights.allow(*asked) is any(rule.allows(*asked) for rule in rules), asked


@given(_rules)
def test_compiled_paths_decide_as_each_by_itself(rules: list[Rule]) -> None:
    rights = compiled(rules)
    for verb, path in itertools.product(("get", "x"), ("/a", "/a/b", "/", "", "/a*", "*")):
        assert rights.allow_path(verb, path) is any(rule.allows(verb, "", "", "", path) for rule in rules), (verb, path)


@given(_rules, _rules)
def test_who_holds_rules_is_allowed_all_that_they_allow(held: list[Rule], wanted: list[Rule]) -> None:
    """What is covered is allowed: of every request that `wanted` allows, unless something of it is missing."""
    if list(uncovered(held, wanted)):
        return
    for verb, group, resource, name in _requests():
        if compiled(wanted).allow(verb, group, resource, name):
            assert compiled(held).allow(verb, group, resource, name), (verb, group, resource, name)


def _requests() -> Iterator[tuple[str, str, str, str]]:
    return itertools.product(("get", "x"), ("", "x"), ("pods", "pods/status", "x/status"), ("", "a"))


# --- roles and bindings of a cluster --------------------------------------------------------------------------------


async def role(core: Core, name: str, *rules: Json, path: str = f"{RBAC}/clusterroles") -> None:
    await core.done("POST", path, {"metadata": {"name": name}, "rules": list(rules)})


async def bind(
    core: Core,
    name: str,
    to: str,
    *subjects: Json,
    path: str = f"{RBAC}/clusterrolebindings",
    kind: str = "ClusterRole",
) -> None:
    body = {"metadata": {"name": name}, "roleRef": {"kind": kind, "name": to}, "subjects": list(subjects)}
    await core.done("POST", path, body)


def may(core: Core, user: User, verb: str, plural: str, namespace: str = "", group: str = "", name: str = "") -> bool:
    asked = Asked(verb, group, plural, "", namespace, name)
    decided, _ = core.api.access.policy.decide(user, asked)
    assert core.api.access.policy.allowed(user, asked) is decided
    return decided


async def status_of(core: Core, method: str, path: str, body: Any = None, user: User = ADMIN) -> int:
    return (await core.respond(method, path, body, user=user)).status


async def test_rights_follow_roles_and_bindings_as_they_change(core: Core) -> None:
    assert not may(core, ANN, "get", "pods", "default")
    await bind(core, "early", "reads", {"kind": "Group", "name": "writers"})
    _, why = core.api.access.policy.decide(ANN, Asked("get", "", "pods"))
    assert why == 'RBAC: clusterrole.rbac.authorization.k8s.io "reads" not found'
    await role(core, "reads", READ_PODS)
    assert may(core, ANN, "get", "pods", "default") and not may(core, ROBOT, "get", "pods")
    _, why = core.api.access.policy.decide(ANN, Asked("get", "", "pods"))
    assert why == 'RBAC: allowed by ClusterRoleBinding "early" of ClusterRole "reads" to Group "writers"'
    await core.done(
        "PATCH", f"{RBAC}/clusterroles/reads", {"rules": [{**READ_PODS, "verbs": ["list"]}]}, content_type=MERGE
    )
    assert may(core, ANN, "list", "pods") and not may(core, ANN, "get", "pods")
    subjects = [{"kind": "ServiceAccount", "name": "robot", "namespace": "default"}]
    await core.done("PATCH", f"{RBAC}/clusterrolebindings/early", {"subjects": subjects}, content_type=MERGE)
    assert may(core, ROBOT, "list", "pods") and not may(core, ANN, "list", "pods")
    await core.done("DELETE", f"{RBAC}/clusterrolebindings/early")
    assert not may(core, ROBOT, "list", "pods")


async def test_a_binding_of_a_namespace_gives_rights_there_alone(core: Core) -> None:
    await role(core, "reads", READ_PODS, path=ROLES_OF_DEFAULT)
    robot = {"kind": "ServiceAccount", "name": "robot"}
    await bind(core, "reads", "reads", robot, path=BINDINGS_OF_DEFAULT, kind="Role")
    assert may(core, ROBOT, "get", "pods", "default")
    assert not may(core, ROBOT, "get", "pods", "kube-system") and not may(core, ROBOT, "get", "pods")
    assert await status_of(core, "GET", "/api/v1/namespaces/default/pods/x", user=ROBOT) == 404
    assert await status_of(core, "GET", "/api/v1/namespaces/default/pods", user=ROBOT) == 403


async def test_a_put_that_would_create_needs_the_verb_create(core: Core) -> None:
    rule = {"verbs": ["update"], "apiGroups": ["coordination.k8s.io"], "resources": ["leases"]}
    await role(core, "updates", rule)
    await bind(core, "updates", "updates", {"kind": "User", "name": "ann", "apiGroup": "rbac.authorization.k8s.io"})
    lease = {"metadata": {"name": "x"}, "spec": {}}
    path = "/apis/coordination.k8s.io/v1/namespaces/default/leases/x"
    code, refused = await core.ask("PUT", path, lease, user=ANN)
    assert code == 403 and 'User "ann" cannot create resource' in refused["message"]
    made = await core.done("POST", path.removesuffix("/x"), lease)
    assert await status_of(core, "PUT", path, made, user=ANN) == 200


# --- the bootstrap policy -------------------------------------------------------------------------------------------


async def reconciled(core: Core) -> None:
    await bootstrap.reconcile(core.api, bootstrap.expected(core.api.registry.gates))


async def test_a_start_makes_what_upstream_makes_in_two_transactions(core: Core) -> None:
    counts = [len(core.api.cache.of(kind).entries) for kind in (CLUSTERROLES, CLUSTERROLEBINDINGS, ROLES, ROLEBINDINGS)]
    assert counts == [69, 50, 7, 7]
    kinds = (CLUSTERROLES, CLUSTERROLEBINDINGS, ROLES, ROLEBINDINGS)
    revisions = {entry.revision for kind in kinds for entry in core.api.cache.of(kind).entries.values()}
    assert len(revisions) == 2
    before = core.api.cache.revision
    await reconciled(core)
    assert core.api.cache.revision == before, "what is complete is not written"


async def test_what_lacks_rules_or_subjects_gets_them_back(core: Core) -> None:
    path, bindings = f"{RBAC}/clusterroles/system:discovery", f"{RBAC}/clusterrolebindings"
    before = await core.done("GET", path)
    extra = {"verbs": ["get"], "nonResourceURLs": ["/mine"]}
    await core.done("PATCH", path, {"rules": [extra], "metadata": {"labels": None}}, content_type=MERGE)
    await core.done("PATCH", f"{bindings}/system:discovery", {"subjects": []}, content_type=MERGE)
    await core.done("DELETE", f"{bindings}/system:basic-user")
    await core.done("DELETE", f"{bindings}/cluster-admin")
    await bind(core, "cluster-admin", "view")
    await reconciled(core)
    after = await core.done("GET", path)
    assert after["metadata"]["labels"] == before["metadata"]["labels"] and after["rules"][0] == extra
    held = [rule_of(rule) for rule in after["rules"]]
    assert not list(uncovered(held, [rule_of(rule) for rule in before["rules"]]))
    assert (await core.done("GET", f"{bindings}/system:discovery"))["subjects"][0]["name"] == AUTHENTICATED
    assert may(core, ANN, "create", "selfsubjectreviews", group="authentication.k8s.io")
    assert (await core.done("GET", f"{bindings}/cluster-admin"))["roleRef"]["name"] == "cluster-admin"


async def test_what_is_not_to_be_updated_stays_as_it_is(core: Core) -> None:
    path = f"{RBAC}/clusterroles/system:discovery"
    metadata = {"annotations": {"rbac.authorization.kubernetes.io/autoupdate": "false"}}
    await core.done("PATCH", path, {"rules": [], "metadata": metadata}, content_type=MERGE)
    await reconciled(core)
    assert (await core.done("GET", path))["rules"] is None


async def test_an_administrators_request_costs_no_look_at_roles(core: Core) -> None:
    """Counted: neither a rule nor a set of rights is touched."""
    core.api.access.policy._compiled.clear()
    assert await status_of(core, "GET", "/api/v1/namespaces/default/pods", user=ADMIN) == 200
    assert not core.api.access.policy._compiled
    assert await status_of(core, "GET", "/version", user=ANONYMOUS) == 200
    assert await status_of(core, "GET", "/version", user=ANONYMOUS) == 200
    assert len(core.api.access.policy._compiled) == 1, "others are compiled once"


# --- many rules -----------------------------------------------------------------------------------------------------


async def turns_during(work: Awaitable[object]) -> int:
    """How many turns others had meanwhile."""
    turns = 0
    done = asyncio.ensure_future(work)
    while not done.done():
        turns += 1
        await asyncio.sleep(0)
    await done
    return turns


async def test_tens_of_thousands_of_rules_are_compiled_in_slices_and_once(core: Core, monkeypatch: Any) -> None:
    """36,000 of one user held the loop for 112 ms."""
    many = [{"verbs": ["get"], "apiGroups": [""], "resources": [f"r{number}"]} for number in range(3000)]
    for name in ("a", "b"):
        await role(core, name, *many)
        await bind(core, name, name, {"kind": "User", "name": "ann"})
    policy = core.api.access.policy
    begun: list[object] = []
    steps = rbac.compile_steps
    monkeypatch.setattr(rbac, "compile_steps", lambda held: begun.append(1) or steps(held))
    asked = Asked("get", "", "r2999")
    assert not policy._compiled
    assert await turns_during(asyncio.gather(*[policy.ready(ANN, asked) for _ in range(20)])) >= 6
    assert len(begun) == 1 and policy._rights(ANN, "") == compiled(policy._rules(ANN, ""))
    assert policy.allowed(ANN, asked) and not policy.allowed(ANN, Asked("list", "", "r1"))
    assert await turns_during(policy.ready(ANN, asked)) == 1 and len(begun) == 1


async def test_rights_that_were_compiled_while_roles_changed_are_not_kept(core: Core) -> None:
    many = [{"verbs": ["get"], "apiGroups": [""], "resources": [f"r{number}"]} for number in range(3000)]
    await role(core, "a", *many)
    await bind(core, "a", "a", {"kind": "User", "name": "ann"})
    policy = core.api.access.policy
    underway = asyncio.ensure_future(policy.ready(ANN, Asked("get", "", "r2999")))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert policy._underway and not underway.done()
    path = f"{RBAC}/clusterroles/a"
    assert await status_of(core, "DELETE", path) == 200
    await underway
    assert not policy._underway and not policy.allowed(ANN, Asked("get", "", "r2999"))

# ruff: noqa: E501
"""Policies and match conditions that are long for small objects are asked elsewhere, with the same verdict."""

from __future__ import annotations

import gc
import pickle
from typing import Any

import pytest
from api_core import MAPS, Core, config_map
from hypothesis import given, settings
from hypothesis import strategies as st
from turns import LINES_MAX, Elsewhere, Turns

from minikube_py.api.admission_policies import ValidatingPolicy
from minikube_py.apiserver import settling
from minikube_py.apiserver.work import WorkHere
from minikube_py.cel.allowance import OutOfSteps, within

ADMISSION = "/apis/admissionregistration.k8s.io/v1"
LOOPS = "object.data.all(a, object.data.all(b, a.size() + b.size() < {}))"
SPEC: dict[str, Any] = {
    "matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["*"]}]},
}  # fmt: skip
POLICIES: dict[str, dict[str, Any]] = {
    "allows": {"validations": [{"expression": LOOPS.format(100)}]},
    "denies": {"validations": [{"expression": LOOPS.format(20), "messageExpression": "'too long: ' + string(object.data.size())"}]},
    "runs out": {"validations": [{"expression": f"[{'1,' * 60}1].all(i, [{'1,' * 60}1].all(j, {LOOPS.format(100)}))"}]},
    "a variable": {"variables": [{"name": "v", "expression": LOOPS.format(100)}], "validations": [{"expression": "variables.v"}]},
    "a condition": {"matchConditions": [{"name": "c", "expression": f"!{LOOPS.format(100)}"}], "validations": [{"expression": "false"}]},
    "a pattern": {"validations": [{"expression": "object.data['k0'].matches('^(a|b)*a(a|b){300}c') || object.data.size() > 0"}]},
    "to compile": {"validations": [{"expression": f"object.data.size() > {-i} && has(object.metadata.name)"} for i in range(60)]},
}
DATA = {**{f"k{i}": "ab" * 200 if not i else "v" for i in range(60)}, "longest-of-all": "v"}


async def bound(core: Core, spec: dict[str, Any]) -> None:
    await core.done("POST", f"{ADMISSION}/validatingadmissionpolicies", {"metadata": {"name": "p"}, "spec": {**SPEC, **spec}})
    binding = {"metadata": {"name": "b"}, "spec": {"policyName": "p", "validationActions": ["Deny"]}}
    await core.done("POST", f"{ADMISSION}/validatingadmissionpolicybindings", binding)


async def test_no_policy_that_mutates_holds_the_loop(core: Core, monkeypatch: pytest.MonkeyPatch) -> None:
    """What one of several mutations has done when time is up is done once."""
    patches = ("Object{data: {'n': object.data.?n.orValue('') + 'x'}}", f"{LOOPS.format(100)} ? Object{{data: {{'n': object.data.n + 'y'}}}} : Object{{}}")
    mutations = [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": each}} for each in patches]
    rules = {"resourceRules": [{**SPEC["matchConstraints"]["resourceRules"][0], "operations": ["CREATE"]}]}
    spec = {"matchConstraints": rules, "mutations": mutations, "reinvocationPolicy": "Never"}
    await core.done("POST", f"{ADMISSION}/mutatingadmissionpolicies", {"metadata": {"name": "p"}, "spec": spec})
    await core.done("POST", f"{ADMISSION}/mutatingadmissionpolicybindings", {"metadata": {"name": "b"}, "spec": {"policyName": "p"}})
    monkeypatch.setattr(settling, "SPARED", 0)
    turns = Turns()
    core.api.hand_work_to(elsewhere := Elsewhere(turns))
    gc.collect()
    found = await turns.of(core.ask("POST", f"{MAPS}?dryRun=All", config_map("a", **DATA)))
    assert found[0] == 201 and found[1]["data"]["n"] == "xy"
    assert turns.most < LINES_MAX and elsewhere.jobs == 1
    monkeypatch.setattr(settling, "STEPS_MAX", 1 << 60)
    assert (await core.ask("POST", f"{MAPS}?dryRun=All", config_map("a", **DATA)))[1]["data"] == found[1]["data"]


async def posted(core: Core) -> tuple[int, Any]:
    code, answer = await core.ask("POST", f"{MAPS}?dryRun=All", config_map("a", **DATA))
    return code, answer.get("message")


@pytest.mark.parametrize("name", POLICIES)
async def test_no_policy_holds_the_loop(core: Core, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    await bound(core, POLICIES[name])
    monkeypatch.setattr(settling, "SPARED", 0)
    turns = Turns()
    core.api.hand_work_to(elsewhere := Elsewhere(turns))
    gc.collect()
    found = await turns.of(posted(core))
    assert turns.most < LINES_MAX and elsewhere.jobs == 1
    assert found[0] == (422 if name in ("denies", "runs out") else 201), found
    monkeypatch.setattr(settling, "STEPS_MAX", 1 << 60)
    assert await posted(core) == found and elsewhere.jobs == 1


class Packed(WorkHere):
    jobs = 0

    async def run(self, job: str, *given: Any) -> Any:
        self.jobs += 1
        return pickle.loads(pickle.dumps(self.now(job, *pickle.loads(pickle.dumps(given)))))


async def test_no_match_condition_of_a_webhook_holds_the_loop(core: Core) -> None:
    hook = {
        "name": "a.example.com", "clientConfig": {"url": "https://127.0.0.1:1/"}, "sideEffects": "None", "admissionReviewVersions": ["v1"],
        "rules": SPEC["matchConstraints"]["resourceRules"], "matchConditions": [{"name": "c", "expression": f"!{LOOPS.format(100)}"}],
    }  # fmt: skip
    for plural in ("mutatingwebhookconfigurations", "validatingwebhookconfigurations"):
        await core.done("POST", f"{ADMISSION}/{plural}", {"metadata": {"name": "w"}, "webhooks": [hook]})
    core.api.hand_work_to(packed := Packed())
    assert (await posted(core))[0] == 201 and packed.jobs == 2


async def test_a_long_policy_is_compiled_in_parts(core: Core) -> None:
    """And is then asked here, as any other."""
    await bound(core, POLICIES["to compile"])
    core.api.hand_work_to(packed := Packed())
    for _ in range(40):
        assert (await posted(core))[0] == 201
    jobs = packed.jobs
    assert 0 < jobs < 40
    for _ in range(3):
        assert (await posted(core))[0] == 201
    assert packed.jobs == jobs


EXPRESSIONS = (
    "object.data.size() > 3", "object.data.all(k, object.data[k] != 'x')", "object.data.exists(k, k.matches('^(a|b)*b$'))",
    "variables.v > 2", "object.missing == 1", "'%s'.format([object.data]) != ''", "object.data.map(k, k).join(',').size() < 9",
)  # fmt: skip


@settings(deadline=None, max_examples=40)
@given(
    st.lists(st.sampled_from(EXPRESSIONS), min_size=1, max_size=4), st.booleans(), st.sampled_from(["Fail", "Ignore"]),
    st.dictionaries(st.text("ab", max_size=3), st.sampled_from(["x", "y"]), max_size=8), st.lists(st.integers(0, 20_000), max_size=4),
)  # fmt: skip
def test_a_policy_that_was_ended_says_what_it_would_have_said(
    expressions: list[str], told: bool, fails: str, data: dict[str, str], limits: list[int]
) -> None:
    message = {"messageExpression": "'has ' + string(variables.v)"} if told else {}
    spec = {
        "variables": [{"name": "v", "expression": "object.data.map(k, object.data[k]).filter(x, x == 'x').size()"}],
        "validations": [{"expression": each, **message} for each in expressions], "failurePolicy": fails,
        "auditAnnotations": [{"key": "k", "valueExpression": "string(variables.v)"}],
    }  # fmt: skip
    bindings = {"object": {"data": data}, "oldObject": None, "request": {}}
    wanted = ValidatingPolicy(spec).denials(bindings, None)
    policy = ValidatingPolicy(spec)
    for limit in limits:
        try:
            assert within(limit, policy.denials, bindings, None) == wanted
        except OutOfSteps:
            continue
    assert policy.denials(bindings, None) == wanted

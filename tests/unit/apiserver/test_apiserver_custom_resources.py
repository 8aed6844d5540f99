"""Custom resources: the registry of a server that changes while it runs; answers as upstream gave them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from api_core import JSON, MERGE, Core, names
from patience import until

from minikube_py.api.patch import APPLY_PATCH

CONFORMANCE = Path(__file__).resolve().parents[2] / "conformance"
sys.path.insert(0, str(CONFORMANCE))

import custom_apply_cases  # noqa: E402
import custom_rule_cases  # noqa: E402
import custom_schema_cases  # noqa: E402
import custom_value_cases  # noqa: E402
import custom_version_cases  # noqa: E402
import custom_write_cases  # noqa: E402
from custom_cases import DEFINITIONS, GROUP, OBJECTS, Case, cases, definition, of, seen, thing, warning_texts  # noqa: E402

SUITES = {
    "applies": custom_apply_cases.cases, "resources": cases, "rules": custom_rule_cases.cases,
    "schemas": custom_schema_cases.cases, "values": custom_value_cases.cases, "versions": custom_version_cases.cases,
}  # fmt: skip
ANY = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
GAUGES = f"{OBJECTS}/gauges"
KNOWN_DIFFERENCES = {
    ("CustomResourceDefinition", "fields are allowed at the root"): "upstream prints the members of its Go type",
    ("'dependencies': {}", "dependencies is not supported"): "an empty map is taken for none",
}
"""What is answered otherwise, by what the request or the answer holds and what upstream's answer holds; and why."""


async def served(core: Core, path: str = GAUGES) -> None:
    async def answers() -> bool:
        return (await core.respond("GET", path)).status == 200

    await until(answers, f"{path} is served")


async def gone(core: Core, path: str = GAUGES) -> None:
    async def missing() -> bool:
        return (await core.respond("GET", path)).status == 404

    await until(missing, f"{path} is served no more")


def blamed_rightly(told: Any) -> Any:
    """Where the body of an apply is wrong by its own fault, upstream answers 500; ours 400, in the same words."""
    if told[0] != 500 or not any("typed patch object" in each for each in told[1].get("message", ())):
        return told
    return [400, {**told[1], "code": 400, "reason": "BadRequest"}, *told[2:]]


async def answer(core: Core, case: Case) -> Any:
    response = await core.respond(case.method, case.path, case.data(), case.accept, case.content_type)
    body = b"".join(response.pieces) if response.pieces is not None else response.body
    lines = (response.headers.get("Warning") or "").split("\n")
    return seen(response.status, body, warning_texts(filter(None, lines)), case.path)


@pytest.mark.parametrize("suite", SUITES)
async def test_answers_are_those_that_upstream_gave(core: Core, suite: str) -> None:
    upstream = json.loads((CONFORMANCE / "data" / f"custom_{suite}.json").read_text())
    wrong = []
    for index, (case, told) in enumerate(zip(SUITES[suite](), upstream, strict=True)):
        found = await answer(core, case)
        if case.await_names:
            await served(core, f"/apis/{GROUP}/v1/{case.body['spec']['names']['plural']}")
        told = blamed_rightly(told)
        if found != told and not any(a in f"{case}{told}" and b in str(told) for a, b in KNOWN_DIFFERENCES):
            asked = f"{index} {case.method} {case.path} {case.data()[:600]!r}"
            wrong.append(f"{asked}\n  upstream {told}\n  ours     {found}")
    assert not wrong, f"{len(wrong)} of {len(upstream)}:\n" + "\n".join(wrong)


async def test_what_is_not_honoured_is_refused_by_name(core: Core) -> None:
    """Go compiles this pattern; here it has too many steps."""
    long = "a{1000}" * 21
    rules = {"type": "string", "x-kubernetes-validations": [{"rule": f"self.matches('{long}')"}]}
    refused = (
        (definition("gauges", of(spec=rules)), "x-kubernetes-validations"),
        (definition("gauges", of(a={"type": "string", "pattern": long})), "expression too large"),
    )
    for body, word in refused:
        code, told = await core.ask("POST", DEFINITIONS, body)
        assert code == 422 and word in told["message"], told


async def test_every_server_on_a_store_serves_what_is_defined(core: Core) -> None:
    other = core.server()
    await other.start()
    first = core.api
    await core.done("POST", DEFINITIONS, definition("gauges", of(spec=ANY)))
    await served(core)
    await core.done("POST", GAUGES, thing("Gauge", "a", spec={"x": 1}))
    core.api = other
    await served(core)

    async def listed() -> bool:
        return names((await core.ask("GET", GAUGES))[1]) == ["a"]

    await until(listed, "the other server has the object")
    watch = await core.watch(f"{GAUGES}?resourceVersion=0")
    assert await watch.named(1) == [("ADDED", "a")]
    core.api = first
    await core.done("PATCH", f"{GAUGES}/a", {"spec": {"x": 2}}, MERGE)
    assert (await watch.take(1))[0][1]["spec"] == {"x": 2}
    core.api = other
    await core.done("DELETE", f"{DEFINITIONS}/gauges.{GROUP}")
    assert (await watch.rest())[0][0] == "DELETED"
    for server in (first, other):
        core.api = server
        await gone(core)

        async def unlisted() -> bool:
            return GROUP not in {each["name"] for each in (await core.ask("GET", "/apis"))[1]["groups"]}

        await until(unlisted, "its APIService is gone")
    core.api = first
    await other.stop()


async def test_objects_are_there_again_after_a_start(core: Core) -> None:
    await core.done("POST", DEFINITIONS, definition("gauges", of(spec=ANY)))
    await served(core)
    await core.done("POST", GAUGES, thing("Gauge", "a", spec={"x": 1}))
    first, core.api = core.api, core.server()
    await core.api.start()
    assert names((await core.ask("GET", GAUGES))[1]) == ["a"]
    await core.api.stop()
    core.api = first


async def test_a_definition_waits_for_the_finalizers_of_its_objects(core: Core) -> None:
    await core.done("POST", DEFINITIONS, definition("gauges", of(spec=ANY)))
    await served(core)
    held = thing("Gauge", "a")
    held["metadata"]["finalizers"] = ["example.com/held"]
    await core.done("POST", GAUGES, held)
    path = f"{DEFINITIONS}/gauges.{GROUP}"
    told = await core.done("DELETE", path)
    assert told["metadata"]["finalizers"] == ["customresourcecleanup.apiextensions.k8s.io"]

    async def leaving() -> bool:
        return "deletionTimestamp" in (await core.ask("GET", f"{GAUGES}/a"))[1]["metadata"]

    await until(leaving, "the object is being deleted")
    assert (await core.respond("GET", path)).status == 200
    why = "create not allowed while custom resource definition is terminating"
    for name, asked in (
        ('"b" ', ("POST", GAUGES, thing("Gauge", "b"))),
        ('"c" ', ("PATCH", f"{GAUGES}/c?fieldManager=a", thing("Gauge", "c"), JSON, APPLY_PATCH)),
        ("", ("POST", GAUGES, {**thing("Gauge", "b"), "metadata": {"generateName": "d"}})),
    ):
        status, told = await core.ask(*asked)
        assert (status, told["message"]) == (403, f"gauges.{GROUP} {name}is forbidden: {why}")
    await core.done("PATCH", f"{GAUGES}/a", {"metadata": {"finalizers": None}}, MERGE)
    await gone(core, path)


async def test_versions_show_the_same_objects_each_in_its_own_way(core: Core) -> None:
    def version(name: str, storage: bool, **properties: Any) -> Any:
        schema = {"openAPIV3Schema": of(spec=of(**properties))}
        return {"name": name, "served": True, "storage": storage, "schema": schema}

    integer = {"type": "integer"}
    versions = [version("v1", True, a=integer, b=integer), version("v2", False, a=integer, c={**integer, "default": 7})]
    await core.done("POST", DEFINITIONS, definition("gauges", None, spec={"versions": versions}))
    await served(core)
    await core.done("POST", GAUGES, thing("Gauge", "x", spec={"a": 1, "b": 2}))
    second = GAUGES.replace("/v1/", "/v2/")
    assert (await core.ask("GET", f"{second}/x"))[1]["spec"] == {"a": 1}
    listed = (await core.ask("GET", second))[1]["items"]
    assert [(each["apiVersion"], each["spec"]) for each in listed] == [(f"{GROUP}/v2", {"a": 1})]
    assert (await core.ask("GET", f"/apis/{GROUP}"))[1]["preferredVersion"]["version"] == "v2"


async def test_a_changed_schema_holds_at_once_and_defaults_what_was_stored(core: Core) -> None:
    await core.done("POST", DEFINITIONS, definition("gauges", of(spec=of(a={"type": "integer"}))))
    await served(core)
    await core.done("POST", GAUGES, thing("Gauge", "x", spec={}))
    watch = await core.watch(f"{GAUGES}?resourceVersion=0")
    await watch.take(1)
    wider = definition("gauges", of(spec=of(a={"type": "integer"}, b={"type": "string", "default": "new"})))
    await core.done("PATCH", f"{DEFINITIONS}/gauges.{GROUP}", {"spec": {"versions": wider["spec"]["versions"]}}, MERGE)
    assert await watch.rest() == []

    async def filled() -> bool:
        return (await core.ask("GET", f"{GAUGES}/x"))[1]["spec"] == {"b": "new"}

    await until(filled, "the default of the new schema")
    assert (await core.ask("GET", f"{GAUGES}?resourceVersion=0"))[1]["items"][0]["spec"] == {"b": "new"}


async def test_versions_of_several_definitions_of_a_group_are_ranked_together(core: Core) -> None:
    """As upstream lists them for definitions with these versions, made in this order."""
    for plural, versions in (("aas", ("v1alpha1",)), ("bbs", ("v1", "v1beta1")), ("ccs", ("v1alpha1", "v2"))):
        listed = [
            {"name": name, "served": True, "storage": not at, "schema": {"openAPIV3Schema": ANY}}
            for at, name in enumerate(versions)
        ]
        await core.done("POST", DEFINITIONS, definition(plural, ANY, spec={"versions": listed}))
        await served(core, f"{OBJECTS.replace('/v1/', f'/{versions[0]}/')}/{plural}")
    wanted = ["v2", "v1", "v1beta1", "v1alpha1"]
    group = await core.done("GET", f"/apis/{GROUP}")
    assert [each["version"] for each in group["versions"]] == wanted
    assert group["preferredVersion"]["version"] == "v2"
    aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    items = (await core.ask("GET", "/apis", accept=aggregated))[1]["items"]
    (group,) = [each for each in items if each["metadata"]["name"] == GROUP]
    assert [each["version"] for each in group["versions"]] == wanted


@pytest.mark.parametrize("how", ["create", "apply", "unnamed"])
async def test_what_the_server_writes_to_a_definition_is_its_own(core: Core, how: str) -> None:
    """As upstream's `kube-apiserver`; nobody owns anything where nobody asked for it."""
    body, path = definition("gauges", of(spec=ANY)), f"{DEFINITIONS}/gauges.{GROUP}"
    if how == "apply":
        await core.done("PATCH", f"{path}?fieldManager=me", body, APPLY_PATCH)
    else:
        await core.done("POST", DEFINITIONS + ("?fieldManager=me" if how == "create" else ""), body)
    await served(core)
    entries = (await core.done("GET", path))["metadata"].get("managedFields") or ()
    told = {each["manager"]: (each["operation"], each.get("subresource"), each["fieldsV1"]) for each in entries}
    if how == "unnamed":
        assert not told
        return
    operation, sub, fields = told["kube-apiserver"]
    assert (operation, sub, set(fields["f:status"])) == ("Update", "status", {"f:acceptedNames", "f:conditions"})
    assert set(told) == {"me", "kube-apiserver"} and "f:status" not in told["me"][2]


async def test_what_differs_from_its_definition_is_told_as_upstream_tells_it(core: Core) -> None:
    """Upstream's answers, which `test_objects_vs_original` compares for more writes."""
    for ask in custom_write_cases.setup():
        await core.done(ask.method, ask.target, ask.body)
        await served(core, custom_write_cases.ORBS)
    await core.done("POST", custom_write_cases.ORBS, custom_write_cases.orb("o"))
    told = {}
    for ask in custom_write_cases.cases():
        status, answer = await core.ask(ask.method, ask.target, ask.body, content_type=ask.content_type or JSON)
        told[ask.name] = f"{status} {answer.get('message', '')}".rstrip()
    invalid, wrong = '422 Orb.writes.example.com "o" is invalid: ', "writes.example.com/v1beta1"
    least = "spec.n: Invalid value: -1: spec.n in body should be greater than or equal to 0"
    assert {name: told[name] for name in (
        "scale strategic", "scale -1 merge", "version beta merge", "version other merge", "version absent merge",
        "uri http://x:99999", "uri http://x:-1", "selector",
    )} == {
        "scale strategic": "415 the body of the request was in an unknown format - accepted media types include: "
        "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml",
        "scale -1 merge": f"{invalid}[{least}, .spec.n: Invalid value: -1: should be a non-negative integer]",
        "version beta merge": f'{invalid}apiVersion: Invalid value: "{wrong}": must be writes.example.com/v1',
        "version other merge": '422 Foo "o" is invalid: [kind: Invalid value: "Foo": must be Orb, '
        'apiVersion: Invalid value: "x": must be writes.example.com/v1]',
        "version absent merge": "500 Internal error occurred: Object 'apiVersion' is missing in "
        "'object has no apiVersion field'",
        "uri http://x:99999": "201",
        "uri http://x:-1": '422 Orb.writes.example.com "u" is invalid: spec.u: Invalid value: "http://x:-1": '
        'spec.u in body must be of type uri: "http://x:-1"',
        "selector": "400 field label not supported: spec.s",
    }  # fmt: skip


@pytest.mark.parametrize("bundle", ["Cg==", "YQ==", "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCg=="])
async def test_a_definition_waits_for_a_valid_bundle_of_its_webhook(core: Core, bundle: str) -> None:
    """`Cg==` is what kubebuilder writes, for cert-manager to replace. Upstream: pkg/controller/establish."""
    body = definition("gauges", of(spec=ANY))
    client = {"url": "https://127.0.0.1:1/", "caBundle": bundle}
    webhook = {"clientConfig": client, "conversionReviewVersions": ["v1"]}
    body["spec"]["conversion"] = {"strategy": "Webhook", "webhook": webhook}
    await core.done("POST", DEFINITIONS, body)
    path = f"{DEFINITIONS}/gauges.{GROUP}"

    async def told() -> Any:
        conditions = (await core.done("GET", path))["status"].get("conditions") or ()
        return next(([c["status"], c["reason"], c["message"]] for c in conditions if c["type"] == "Established"), None)

    why = "The conversion webhook CABundle is invalid"
    assert await until(told, "it has the condition") == ["False", "InvalidCABundle", why]
    assert (await core.respond("GET", GAUGES)).status == 404
    change = {"spec": {"conversion": {"webhook": {"clientConfig": {"caBundle": None}}}}}
    await core.done("PATCH", path, change, MERGE)
    await served(core)
    assert await told() == ["True", "InitialNamesAccepted", "the initial names have been accepted"]


async def test_a_schema_of_items_that_is_too_deep_is_refused(core: Core) -> None:
    """None of it is left out in silence."""
    body = json.dumps(definition("gauges", of(a="deep")))
    deep = '{"type":"array","items":' * 250 + '{"type":"string"}' + "}" * 250
    code, answer = await core.ask("POST", DEFINITIONS, body.replace('"deep"', deep).encode())
    assert code == 400 and "nested more deeply than 200 levels" in answer["message"]


async def test_names_that_another_definition_has_are_not_accepted(core: Core) -> None:
    await core.done("POST", DEFINITIONS, definition("gauges", of(spec=ANY)))
    await served(core)
    clash = definition("meters", of(spec=ANY))
    clash["spec"]["names"]["kind"] = "Gauge"
    await core.done("POST", DEFINITIONS, clash)
    path = f"{DEFINITIONS}/meters.{GROUP}"

    async def conditions() -> Any:
        found = (await core.ask("GET", path))[1]["status"].get("conditions") or ()
        return {each["type"]: (each["status"], each["reason"], each["message"]) for each in found}

    found = await until(conditions, "the names are judged")
    assert found["NamesAccepted"] == ("False", "ListKindConflict", '"GaugeList" is already in use')
    assert found["Established"] == ("False", "NotAccepted", "not all names are accepted")
    assert (await core.respond("GET", f"{OBJECTS}/meters")).status == 404
    await core.done("DELETE", f"{DEFINITIONS}/gauges.{GROUP}")
    await served(core, f"{OBJECTS}/meters")

"""APIServices of definitions: made, restored and removed with them, as upstream's controllers do."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from api_core import MERGE, Core, names
from patience import until

from minikube_py.api.kinds.apiregistration import listed_of
from minikube_py.apiserver import api_services
from minikube_py.apiserver.registration import Registration
from minikube_py.errors import Unavailable

SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
MANAGED = "kube-aggregator.kubernetes.io/automanaged"
V1, V2 = (f"{SERVICES}/{version}.example.com" for version in ("v1", "v2beta1"))
SPEC = {"group": "example.com", "version": "v1", "groupPriorityMinimum": 1000, "versionPriority": 100}


def definition(plural: str, *versions: str, served: bool = True) -> dict[str, Any]:
    schema = {"openAPIV3Schema": {"type": "object"}}
    return {
        "metadata": {"name": f"{plural}.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": {"plural": plural, "kind": plural.capitalize()},
            "versions": [
                {"name": each, "served": served or not at, "storage": not at, "schema": schema}
                for at, each in enumerate(versions)
            ],
        },
    }  # fmt: skip


def local(name: str, label: str | None = None) -> dict[str, Any]:
    version, _, group = name.partition(".")
    labels = {} if label is None else {MANAGED: label}
    spec = {"group": group, "version": version, "groupPriorityMinimum": 100, "versionPriority": 7}
    return {"metadata": {"name": name, "labels": labels}, "spec": spec}


async def there(core: Core, path: str, present: bool = True) -> dict[str, Any]:
    async def found() -> bool:
        return ((await core.respond("GET", path)).status == 200) is present

    await until(found, f"{path} is {'there' if present else 'gone'}")
    return await core.done("GET", path) if present else {}


async def becomes(core: Core, path: str, **fields: Any) -> None:
    async def has() -> bool:
        response = await core.respond("GET", path)
        found = (await core.done("GET", path)) if response.status == 200 else {}
        return fields.items() <= found.items()

    await until(has, f"{path} has {fields}")


async def becomes_available(core: Core, name: str) -> None:
    async def available() -> bool:
        conditions = (await core.done("GET", f"{SERVICES}/{name}"))["status"].get("conditions") or ()
        return "True" in [each["status"] for each in conditions]

    await until(available, f"{name} is available")


async def test_a_version_of_definitions_has_an_apiservice_while_one_serves_it(core: Core) -> None:
    await core.done("POST", DEFINITIONS, definition("ones", "v1", "v2beta1"))
    await core.done("POST", DEFINITIONS, definition("twos", "v1"))
    for path, version in ((V1, "v1"), (V2, "v2beta1")):
        found = await there(core, path)
        assert found["metadata"]["labels"] == {MANAGED: "true"}
        assert found["spec"] == {**SPEC, "version": version}
        (condition,) = found["status"]["conditions"]
        assert (condition["type"], condition["status"], condition["reason"]) == ("Available", "True", "Local")
    body = {"spec": definition("ones", "v1", "v2beta1", served=False)["spec"]}
    await core.done("PATCH", f"{DEFINITIONS}/ones.example.com", body, MERGE)
    await there(core, V2, False)
    await core.done("DELETE", f"{DEFINITIONS}/ones.example.com")
    await there(core, f"{DEFINITIONS}/ones.example.com", False)
    await there(core, V1)
    await core.done("DELETE", f"{DEFINITIONS}/twos.example.com")
    await there(core, V1, False)


async def test_what_users_do_to_it_is_undone_unless_they_take_its_label(core: Core) -> None:
    await core.done("POST", DEFINITIONS, definition("ones", "v1"))
    before = await there(core, V1)
    await core.done("DELETE", V1)

    async def again() -> bool:
        response = await core.respond("GET", V1)
        return response.status == 200 and (await core.done("GET", V1))["metadata"]["uid"] != before["metadata"]["uid"]

    await until(again, "a deleted one is made again")
    change = {"metadata": {"labels": {"a": "b"}}, "spec": {"versionPriority": 7}}
    await core.done("PATCH", V1, change, MERGE)
    await becomes(core, V1, spec=SPEC)
    assert (await core.done("GET", V1))["metadata"]["labels"] == {MANAGED: "true", "a": "b"}
    condition = {"type": "Available", "status": "False", "reason": "R", "message": "m", "lastTransitionTime": None}
    await core.done("PATCH", f"{V1}/status", {"status": {"conditions": [condition]}}, MERGE)

    async def available() -> bool:
        (told,) = (await core.done("GET", V1))["status"]["conditions"]
        return (told["status"], told["reason"]) == ("True", "Local")

    await until(available, "a local one is available")
    await core.done("PATCH", V1, {"metadata": {"labels": {MANAGED: None}}, "spec": {"groupPriorityMinimum": 3}}, MERGE)
    # What was queued before is done before what is queued now.
    await core.done("POST", DEFINITIONS, definition("twos", "v2beta1"))
    await there(core, V2)
    await becomes(core, V1, spec={**SPEC, "groupPriorityMinimum": 3})
    await core.done("DELETE", f"{DEFINITIONS}/ones.example.com")
    await core.done("DELETE", f"{DEFINITIONS}/twos.example.com")
    await there(core, V2, False)
    await there(core, V1)


async def test_discovery_lists_groups_by_the_priorities_of_their_apiservices(core: Core) -> None:
    await core.done("POST", DEFINITIONS, definition("ones", "v1", "v2beta1"))
    await there(core, V2)
    await core.done("POST", SERVICES, local("v1.a.example.com"))
    groups = {each["name"]: each for each in (await core.done("GET", "/apis"))["groups"]}
    assert list(groups)[-2:] == ["example.com", "a.example.com"]
    assert [each["version"] for each in groups["example.com"]["versions"]] == ["v1", "v2beta1"]
    change = {"metadata": {"labels": {MANAGED: None}}, "spec": {"groupPriorityMinimum": 17900, "versionPriority": 200}}
    await core.done("PATCH", V2, change, MERGE)
    groups = {each["name"]: each for each in (await core.done("GET", "/apis"))["groups"]}
    assert list(groups)[:2] == ["apiregistration.k8s.io", "example.com"]
    assert [each["version"] for each in groups["example.com"]["versions"]] == ["v2beta1", "v1"]
    group = await core.done("GET", "/apis/example.com")
    assert group["preferredVersion"]["version"] == "v2beta1"
    await core.done("DELETE", f"{SERVICES}/v1.apps")
    assert "apps" not in [each["name"] for each in (await core.done("GET", "/apis"))["groups"]]
    assert (await core.done("GET", "/apis/apps"))["name"] == "apps"
    assert (await core.done("GET", "/apis/apps/v1"))["groupVersion"] == "apps/v1"


async def test_while_there_is_no_other_server_no_request_asks_for_one(
    core: Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(core.api.services, "forwarder", asked.append)
    await core.done("POST", SERVICES, local("v1.a.example.com"))
    assert (await core.respond("GET", "/apis/none.example.com/v1/things")).status == 404
    assert asked == []


@pytest.mark.parametrize("label", ["true", "onstart"])
async def test_those_with_a_label_that_nothing_wants_are_deleted(
    core: Core, label: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`onstart`: only by a server that finds it at its start, which tries again."""
    await core.done("POST", SERVICES, local("v1.a.example.com", label))
    await core.done("POST", SERVICES, local("v1.b.example.com"))
    if label == "onstart":
        await core.done("POST", DEFINITIONS, definition("ones", "v1"))
        await there(core, V1)
        await core.done("GET", f"{SERVICES}/v1.a.example.com")
        step = Registration._step
        failures = [Unavailable("not now")]

        def failing_once(self: Registration, name: str) -> Any:
            if name == "v1.a.example.com" and failures:
                return partial(fail, failures.pop())
            return step(self, name)

        async def fail(error: Unavailable) -> None:
            raise error

        monkeypatch.setattr(Registration, "_step", failing_once)
        await core.api.stop()
        core.api = core.server()
        await core.api.start()
    await there(core, f"{SERVICES}/v1.a.example.com", False)
    assert "v1.b.example.com" in names(await core.done("GET", SERVICES))
    if label == "onstart":
        assert not failures


async def test_one_that_cannot_be_deleted_leaves_others_to_their_users(
    core: Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those with `onstart` are put right once, each: users may make one of the same name."""
    for name in ("v1.a.example.com", "v1.b.example.com"):
        await core.done("POST", SERVICES, local(name, "onstart"))
    step = Registration._step
    failures: list[str] = []

    def failing(self: Registration, name: str) -> Any:
        return partial(fail, name) if name == "v1.a.example.com" else step(self, name)

    async def fail(name: str) -> None:
        failures.append(name)
        raise Unavailable("not now")

    monkeypatch.setattr(Registration, "_step", failing)
    await core.api.stop()
    core.api = core.server()
    await core.api.start()
    await there(core, f"{SERVICES}/v1.b.example.com", False)
    before = await core.done("POST", SERVICES, local("v1.b.example.com", "onstart"))
    failures.clear()

    async def tried_again() -> bool:
        return len(failures) > 1

    await until(tried_again, "the one that cannot be deleted is tried twice")
    after = await core.done("GET", f"{SERVICES}/v1.b.example.com")
    assert after["metadata"]["uid"] == before["metadata"]["uid"]


async def test_of_many_the_one_that_changed_is_looked_at(core: Core, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(20):
        await core.done("POST", SERVICES, local(f"v1.n{number}.example.com"))
    await becomes_available(core, "v1.n19.example.com")
    read: list[str] = []
    stepped: list[str] = []
    step = Registration._step

    def listed(service: dict[str, Any]) -> Any:
        read.append(service["metadata"]["name"])
        return listed_of(service)

    def looked_at(self: Registration, name: str) -> Any:
        stepped.append(name)
        return step(self, name)

    monkeypatch.setattr(api_services, "listed_of", listed)
    monkeypatch.setattr(Registration, "_step", looked_at)
    await core.done("PATCH", f"{SERVICES}/v1.n7.example.com", {"spec": {"versionPriority": 8}}, MERGE)
    await core.done("POST", SERVICES, local("v1.last.example.com"))
    await becomes_available(core, "v1.last.example.com")
    assert {*read} == {*stepped} == {"v1.n7.example.com", "v1.last.example.com"}


async def test_without_connections_to_others_their_apiservices_are_refused_by_name(core: Core) -> None:
    remote = local("v1.a.example.com")
    remote["spec"]["service"] = {"namespace": "default", "name": "s"}
    status, told = await core.ask("POST", SERVICES, remote)
    assert (status, "this API server makes no connections to other servers" in told["message"]) == (422, True)
    await core.done("POST", SERVICES, local("v1.a.example.com"))
    change = {"spec": {"service": {"namespace": "default", "name": "s"}}}
    status, told = await core.ask("PATCH", f"{SERVICES}/v1.a.example.com", change, content_type=MERGE)
    assert (status, told["details"]["causes"][0]["field"]) == (422, "spec.service")

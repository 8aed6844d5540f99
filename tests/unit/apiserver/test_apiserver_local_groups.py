"""Groups of APIServices without a service: listed as upstream lists them, though nothing serves them."""

from __future__ import annotations

from typing import Any

from api_core import Core

SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"


def _groups(listed: dict[str, Any]) -> dict[str, list[str]]:
    return {each["name"]: [version["version"] for version in each["versions"]] for each in listed["groups"]}


async def test_the_group_of_a_local_apiservice_is_listed_while_it_is_there(core: Core) -> None:
    before = _groups(await core.done("GET", "/apis"))
    assert (await core.respond("GET", "/apis/x.example.com")).status == 404
    for group, version, priority in (("x.example.com", "v1", 15), ("x.example.com", "v2", 20), ("apps", "v2", 30)):
        spec = {"group": group, "version": version, "groupPriorityMinimum": 2000, "versionPriority": priority}
        await core.done("POST", SERVICES, {"metadata": {"name": f"{version}.{group}"}, "spec": spec})
    listed = await core.done("GET", "/apis")
    assert _groups(listed) == {**before, "apps": ["v2", "v1"], "x.example.com": ["v2", "v1"]}
    assert [name for name in _groups(listed) if name != "x.example.com"] == list(before)
    group = await core.done("GET", "/apis/x.example.com")
    assert (group["kind"], group["preferredVersion"]["groupVersion"]) == ("APIGroup", "x.example.com/v2")
    for path in ("/apis/x.example.com/v1", "/apis/x.example.com/v1/foos", "/apis/apps/v2", "/apis/y.example.com"):
        assert (await core.respond("GET", path)).status == 404, path
    for name in ("v1.x.example.com", "v2.x.example.com", "v2.apps"):
        await core.done("DELETE", f"{SERVICES}/{name}")
    assert _groups(await core.done("GET", "/apis")) == before
    assert (await core.respond("GET", "/apis/x.example.com")).status == 404

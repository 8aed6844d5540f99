"""Answers that were found to differ from a live upstream's, and no longer do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import orjson
import pytest
from api_core import MAPS, PODS, TABLE, Core, config_map, pod

from minikube_py.api.registry import REGISTRY
from minikube_py.apiserver.bookmarks import bookmark_object

LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
BOOKMARKS = json.loads((Path(__file__).parents[2] / "conformance" / "data" / "bookmarks.json").read_text())
"""The object of the bookmark that ends the first events, by kind, at revision 7, as kube-apiserver 1.36 wrote it."""


@pytest.mark.parametrize("name", BOOKMARKS)
def test_bookmarks_hold_what_an_object_without_content_prints(name: str) -> None:
    kind = next(kind for kind in REGISTRY.kinds if kind.kind == name)
    metadata = {"resourceVersion": "7", "annotations": {"k8s.io/initial-events-end": "true"}}
    assert orjson.dumps(bookmark_object(kind, metadata)) == orjson.dumps(BOOKMARKS[name])


@pytest.mark.parametrize("query", ["", "?dryRun=All"])
async def test_what_is_there_but_being_deleted_is_said_to_be(core: Core, query: str) -> None:
    held = config_map("a")
    held["metadata"]["finalizers"] = ["a.example/b"]
    await core.done("POST", MAPS, held)
    assert (await core.ask("POST", MAPS + query, held))[1]["message"] == 'configmaps "a" already exists'
    await core.done("DELETE", f"{MAPS}/a")
    status, answer = await core.ask("POST", MAPS + query, held)
    assert (status, answer["reason"]) == (409, "AlreadyExists")
    assert answer["message"] == 'object is being deleted: configmaps "a" already exists'


@pytest.mark.parametrize("size", [1, 40_000])
async def test_a_put_that_creates_reads_the_version_and_the_uid(core: Core, size: int) -> None:
    def lease(name: str, **metadata: str) -> dict[str, Any]:
        return {"metadata": {"name": name, "annotations": {"a": "x" * size}, **metadata}, "spec": {}}

    for version in ("", "0", "5"):
        name = f"v{version}"
        made = await core.done("PUT", f"{LEASES}/{name}", lease(name, resourceVersion=version))
        assert made["metadata"]["resourceVersion"] != version
    status, answer = await core.ask("PUT", f"{LEASES}/bad", lease("bad", resourceVersion="x"))
    assert (status, answer["message"]) == (400, 'strconv.ParseUint: parsing "x": invalid syntax')
    status, answer = await core.ask("PUT", f"{LEASES}/old", lease("old", uid="5"))
    assert status == 409
    assert answer["message"].endswith("Precondition failed: UID in precondition: 5, UID in object meta: ")


async def test_options_of_a_table_are_read_once_there_is_something_to_be_shown(core: Core) -> None:
    wrong = "Unable to convert to Table as requested: includeObject: Invalid value"
    status, answer = await core.ask("POST", f"{MAPS}?includeObject=bad", config_map("a"), accept=TABLE)
    assert status == 400 and answer["message"].startswith(wrong)
    assert (await core.done("GET", f"{MAPS}/a"))["metadata"]["name"] == "a"
    for path, code in ((f"{MAPS}/absent", 404), (f"{MAPS}/a", 400), (MAPS, 400)):
        assert (await core.ask("GET", f"{path}?includeObject=bad", accept=TABLE))[0] == code
    status, answer = await core.ask("GET", f"{MAPS}?includeObject=bad&watch=true", accept=TABLE)
    assert status == 400 and answer["message"].startswith(wrong)


async def test_a_log_is_asked_for_in_forms_that_errors_have(core: Core) -> None:
    await core.done("POST", PODS, pod("a", "n1"))
    for accept in ("text/plain", TABLE):
        for name in ("a", "absent"):
            status, answer = await core.ask("GET", f"{PODS}/{name}/log", accept=accept)
            assert status == 406 and answer["message"].startswith("only the following media types are accepted")
    assert (await core.ask("GET", f"{PODS}/absent/log", accept="application/json, */*"))[0] == 404

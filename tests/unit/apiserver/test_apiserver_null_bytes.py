"""A null in a map of bytes: upstream stores protobuf, which has empty bytes instead."""

from __future__ import annotations

from typing import Any

import pytest
from api_core import JSON, MERGE, Core

from minikube_py.api.patch import APPLY_PATCH, JSON_PATCH

SECRETS, MAPS = "/api/v1/namespaces/default/secrets", "/api/v1/namespaces/default/configmaps"


@pytest.mark.parametrize(("path", "kind", "member"), [(SECRETS, "Secret", "data"), (MAPS, "ConfigMap", "binaryData")])
async def test_it_is_empty_bytes(core: Core, path: str, kind: str, member: str) -> None:
    def body(name: str) -> Any:
        return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name}, member: {"a": None, "b": "YQ=="}}

    await core.done("POST", path, body("one"))
    await core.done("PATCH", f"{path}/two?fieldManager=m", body("two"), APPLY_PATCH)
    await core.done("PUT", f"{path}/one", body("one"))
    for name in ("one", "two"):
        assert (await core.done("GET", f"{path}/{name}"))[member] == {"a": "", "b": "YQ=="}
    added = [{"op": "add", "path": f"/{member}/c", "value": None}]
    await core.done("PATCH", f"{path}/one", added, JSON_PATCH)
    await core.done("PATCH", f"{path}/one", {member: {"b": None}}, MERGE)
    assert (await core.done("GET", f"{path}/one"))[member] == {"a": "", "c": ""}
    assert (await core.ask("POST", f"{path}?dryRun=All", body("three"), content_type=JSON))[1][member]["a"] == ""

"""`/flagz`, `/statusz` and `/metrics`: who asks for text, and who for an object. Words: kube-apiserver 1.36."""

from __future__ import annotations

import orjson
import pytest
from api_core import JSON, Core

OF = "g=config.k8s.io;v=v1beta1;as"


async def test_people_get_text(core: Core) -> None:
    for accept in ("", "*/*", "text/plain", "application/json, */*"):
        flags = await core.respond("GET", "/flagz", None, accept)
        assert (flags.status, flags.content_type) == (200, "text/plain; charset=utf-8"), accept
        assert b"\napiserver flagz\nWarning: This endpoint" in flags.body and b"\nrequest_timeout_s=60\n" in flags.body
        status = (await core.respond("POST", "/statusz", None, accept)).body.decode()
        assert "Up: 0 hr 00 min" in status and "Binary version: 1.36.0\n" in status
        assert "Paths: " in status and " /metrics " in status and "/apis" not in status


@pytest.mark.parametrize("version", ["v1beta1", "v1alpha1"])
async def test_programs_get_an_object(core: Core, version: str) -> None:
    answer = await core.respond("GET", "/flagz", None, f"{JSON};{OF}=Flagz".replace("v1beta1", version))
    found = orjson.loads(answer.body)
    assert [found["kind"], found["apiVersion"], found["metadata"]] == [
        "Flagz", f"config.k8s.io/{version}", {"name": "apiserver"},
    ]  # fmt: skip
    assert found["flags"]["service-cluster-ip-range"] == str(core.api.addresses.network)
    assert ("Warning" in answer.headers) == (version == "v1alpha1")
    status = await core.respond("GET", "/statusz", None, f"application/yaml;{OF}=Statusz")
    assert status.content_type == "application/yaml" and b"kind: Statusz\n" in status.body


@pytest.mark.parametrize("accept", [JSON, "application/yaml", f"{JSON};{OF}=Statusz", "text/plain;v=v1", "image/png"])
async def test_other_forms_are_refused(core: Core, accept: str) -> None:
    code, answer = await core.ask("GET", "/flagz", accept=accept)
    wanted = "only the following media types are accepted: application/json, application/yaml, text/plain"
    assert (code, answer["message"]) == (406, wanted)


async def test_other_paths_are_not_found(core: Core) -> None:
    for path in ("/flagz/", "/flagz/x", "//flagz", "/statusz/x"):
        assert (await core.respond("GET", path)).status == 404, path


async def test_metrics_are_reset_by_a_delete(core: Core) -> None:
    await core.done("GET", "/api/v1/namespaces")
    shown = b'apiserver_request_total{verb="LIST"'
    assert shown in (await core.respond("POST", "/metrics")).body
    assert (await core.respond("DELETE", "/metrics")).body == b"metrics reset\n"
    assert shown not in (await core.respond("GET", "/metrics")).body

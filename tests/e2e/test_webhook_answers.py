"""What real webhooks answer beside a review: errors, other places, and that they want to be asked later."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest
from api_core import MAPS, Core, config_map
from webhook_server import WebhookServer, serving

from minikube_py.apiserver.outgoing import RETRIES_MAX, HttpsOutgoing

HOOKS = "/apis/admissionregistration.k8s.io/v1"
FAILED = 'failed calling webhook "a.example.com": failed to call webhook: '


async def _said(folder: Path, webhooks: WebhookServer, name: str, plural: str) -> Any:
    core = await Core(folder / "core").start()
    core.api.webhook_caller.outgoing = outgoing = HttpsOutgoing()
    client = {"url": f"https://127.0.0.1:{webhooks.port}/x/{name}", "caBundle": webhooks.bundle}
    rule = {"operations": ["*"], "apiGroups": [""], "apiVersions": ["*"], "resources": ["configmaps"]}
    hook = {
        "name": "a.example.com", "clientConfig": client, "sideEffects": "None", "rules": [rule],
        "admissionReviewVersions": ["v1"],
    }  # fmt: skip
    asked = await core.ask("POST", f"{HOOKS}/{plural}", {"metadata": {"name": "a"}, "webhooks": [hook]})
    assert asked[0] == 201, asked
    response = await core.respond("POST", MAPS, config_map("m"))
    await outgoing.close()
    await core.stop()
    return response


@pytest.mark.parametrize(
    ("name", "code", "told", "asked"),
    [
        ("c-status", 500, FAILED + "my message", {"c-status": 1}),
        ("c-moved", 201, "", {"c-moved": 1, "allow": 1}),
        ("c-around", 500, "stopped after 10 redirects", {"c-around": 10}),
        ("c-busy", 500, FAILED + "the server is currently unable to handle the request", {"c-busy": RETRIES_MAX + 1}),
        ("c-deny-later", 429, "denied the request", {"c-deny-later": 1}),
        ("c-no-namespace", 201, "", {"c-no-namespace": 1}),
        ("c-gone", 500, "EOF", {"c-gone": 1}),
    ],
)
async def test_a_webhook_is_understood_as_by_client_go(
    tmp_path: Path, name: str, code: int, told: str, asked: dict[str, int]
) -> None:
    with serving(tmp_path) as webhooks:
        response = await _said(tmp_path, webhooks, name, "mutatingwebhookconfigurations")
        assert (response.status, told in orjson.loads(response.body).get("message", "")) == (code, True), response.body
        assert {path: len(kept) for path, kept in webhooks.sent["x"].items()} == asked
    assert response.headers.get("Retry-After") == ("5" if code == 429 else None)
    assert code != 201 or b'"namespace":"default"' in response.body

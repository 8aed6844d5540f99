"""How JSON goes over a connection: its newline, its indentation for people, Go's escapes; refusals in YAML."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
import yaml
from api_core import MAPS, Core, config_map
from edges import json_values
from hypothesis import given, settings

from minikube_py.api import go_json
from minikube_py.apiserver.auth import ADMIN
from minikube_py.apiserver.forms import is_pretty
from minikube_py.apiserver.messages import Request, Response

PRETTY = {
    "curl": ({}, "curl/8.5.0", True),
    "wget": ({}, "Wget/1.21", True),
    "a browser": ({}, "Mozilla/5.0 (X11)", True),
    "an old browser": ({}, "Mozilla/4.0", False),
    "kubectl": ({}, "kubectl/v1.36.2", False),
    "nobody": ({}, "", False),
    "asked for": ({"pretty": "1"}, "", True),
    "asked for in a word": ({"pretty": "True"}, "", True),
    "curl that does not want it": ({"pretty": "false"}, "curl/8", False),
    "no Go boolean": ({"pretty": "yes"}, "curl/8", False),
    "empty": ({"pretty": ""}, "curl/8", True),
}


@pytest.mark.parametrize("case", PRETTY.values(), ids=PRETTY)
def test_json_is_laid_out_for_those_for_whom_upstream_does(case: tuple[dict[str, str], str, bool]) -> None:
    query, user_agent, pretty = case
    assert is_pretty(query, user_agent) is pretty


@given(json_values)
@settings(max_examples=200)
def test_escapes_change_no_value(value: Any) -> None:
    try:
        plain = orjson.dumps(value)
    except TypeError:
        return
    for written in (go_json.dumps(value), go_json.indented(plain), go_json.indented(plain, 4)):
        assert orjson.loads(written) == orjson.loads(plain)
        assert not set(written.decode()) & set("<>&\u2028\u2029")


async def ask(core: Core, path: str, pretty: bool = False, **more: Any) -> Response:
    path, _, query = path.partition("?")
    request = Request(more.pop("method", "GET"), path, dict([query.split("=")] if query else ()), user=ADMIN, **more)
    request.pretty = pretty
    return await core.api.handle(request)


async def test_compact_json_ends_with_a_newline_and_indented_json_does_not(core: Core) -> None:
    await core.done("POST", MAPS, config_map("a", text="<&>\u2028"))
    for path in (f"{MAPS}/a", MAPS, f"{MAPS}/none", "/api", "/apis/nope/v1/x"):
        compact, laid_out = await ask(core, path), await ask(core, path, True)
        if compact.content_type != "application/json":
            continue
        assert compact.body.endswith(b"\n") and compact.body.count(b"\n") == 1, path
        assert laid_out.body.decode() == go_json.escaped(
            json.dumps(json.loads(compact.body), indent=2, ensure_ascii=False).encode()
        ).decode(), path
        assert b"<" not in compact.body and b"&" not in laid_out.body


async def test_a_large_list_is_laid_out_part_by_part(core: Core) -> None:
    for number in range(7):
        await core.done("POST", MAPS, config_map(f"m{number}", text="a\nb"))
    object.__setattr__(core.api.limits, "list_slice", 3)
    parts = (await ask(core, MAPS, True)).pieces
    plain = (await ask(core, MAPS)).pieces
    object.__setattr__(core.api.limits, "list_slice", 500)
    assert parts is not None and plain is not None
    compact = b"".join(plain)
    assert compact.endswith(b"]}\n")
    assert b"".join(parts).decode() == json.dumps(json.loads(compact), indent=2)


async def test_a_refusal_is_in_yaml_where_yaml_is_accepted(core: Core) -> None:
    answer = await ask(core, f"{MAPS}/none", accept="application/yaml")
    assert answer.status == 404 and answer.content_type == "application/yaml"
    assert yaml.safe_load(answer.body)["reason"] == "NotFound"


VERSIONS = {"0": 201, "v1": 201, "-1": 201, "1": 400, "18446744073709551615": 400, "18446744073709551616": 201}


async def test_a_version_in_an_object_to_be_made_is_refused_only_where_storage_would_read_it(core: Core) -> None:
    for number, (version, code) in enumerate(VERSIONS.items()):
        body = config_map(f"v{number}")
        body["metadata"]["resourceVersion"] = version
        for query in ("?dryRun=All", ""):
            assert (await core.ask("POST", f"{MAPS}{query}", body))[0] == code, version

"""Puts `api_cases` to upstream and keeps its answers in `data/`: `api_bodies`, `api_patches`, `api_discovery` and
`flow_schemas`.

    python tests/conformance/record_api.py URL TOKEN
"""

from __future__ import annotations

import http.client
import json
import ssl
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from api_cases import BODIES, CORE, LEASES, OBJECTS, PATCHES, Case

DATA = Path(__file__).parent / "data"


class Original:
    def __init__(self, url: str, token: str) -> None:
        parts = urlsplit(url)
        assert parts.hostname is not None
        context = ssl._create_unverified_context()
        self._connection = http.client.HTTPSConnection(parts.hostname, parts.port, context=context)
        self._token = token

    def ask(self, method: str, path: str, body: bytes | None = None, content_type: str | None = None) -> Case:
        headers = {"authorization": f"Bearer {self._token}", "accept": "application/json"}
        if content_type is not None:
            headers["content-type"] = content_type
        self._connection.request(method, path, body=body, headers=headers)
        response = self._connection.getresponse()
        answer: dict[str, Any] = json.loads(response.read())
        warnings = [value for name, value in response.getheaders() if name.lower() == "warning"]
        found: Case = {"code": response.status}
        if warnings:
            found["warnings"] = warnings
        if answer.get("kind") == "Status" and response.status >= 400:
            found |= {"reason": answer.get("reason", ""), "message": answer["message"]}
        else:
            found["answer"] = answer
        return found


def record_bodies(original: Original) -> list[Case]:
    recorded = []
    for case in BODIES:
        collection = LEASES if case["plural"] == "leases" else f"{CORE}/{case['plural']}"
        path = f"{collection}?dryRun=All&fieldValidation={case['validation']}"
        body = bytes.fromhex(case["hex"]) if "hex" in case else case["body"].encode()
        recorded.append({**case, **original.ask("POST", path, body, case["content_type"])})
    return recorded


def record_patches(original: Original) -> Case:
    paths = {}
    objects = {}
    for name, (collection, content) in OBJECTS.items():
        paths[name] = f"{collection}/{content['metadata']['name']}"
        original.ask("POST", collection, json.dumps(content).encode(), "application/json")
        objects[name] = original.ask("GET", paths[name])["answer"]
    recorded = []
    for case in PATCHES:
        path = f"{paths[case['object']]}?dryRun=All&fieldValidation={case['validation']}"
        answer = original.ask("PATCH", path, case["patch"].encode(), case["content_type"])
        if len(case["patch"]) > 10_000:
            # Long ones are made again from the cases.
            case = {**case, "patch": None}
        recorded.append({**case, **answer})
    return {"objects": objects, "cases": recorded}


def record_discovery(original: Original) -> Case:
    """What upstream's discovery says of the kinds that are served here."""
    from minikube_py.api.registry import REGISTRY

    recorded: Case = {}
    for group, version in REGISTRY.group_versions:
        path = f"/apis/{group}/{version}" if group else f"/api/{version}"
        served = {row.plural for row in REGISTRY.kinds if (row.group, row.version) == (group, version)}
        answer = original.ask("GET", path)["answer"]
        kept = [entry for entry in answer["resources"] if entry["name"].partition("/")[0] in served]
        recorded[path] = {**answer, "resources": kept}
    return recorded


def record_flows(original: Original) -> Case:
    """The flow schemas and priority levels that upstream has from its start: annotations and spec by name."""
    recorded: Case = {}
    for plural in ("flowschemas", "prioritylevelconfigurations"):
        items = original.ask("GET", f"/apis/flowcontrol.apiserver.k8s.io/v1/{plural}")["answer"]["items"]
        told = {each["metadata"]["name"]: {"annotations": each["metadata"]["annotations"], "spec": each["spec"]}
                for each in items}
        recorded[plural] = told
    return recorded


def write(name: str, content: Any) -> None:
    path = DATA / name
    if "objects" not in content and not isinstance(content, list):
        text = json.dumps(content, indent=1, sort_keys=True) + "\n"
    elif isinstance(content, list):
        text = "[\n" + ",\n".join(json.dumps(case, sort_keys=True) for case in content) + "\n]\n"
    else:
        objects = json.dumps(content["objects"], sort_keys=True)
        cases = ",\n".join(json.dumps(case, sort_keys=True) for case in content["cases"])
        text = f'{{"objects": {objects},\n"cases": [\n{cases}\n]}}\n'
    path.write_text(text)
    print(f"{path}: {len(text)} bytes")


def main() -> None:
    original = Original(sys.argv[1], sys.argv[2])
    DATA.mkdir(exist_ok=True)
    write("api_bodies.json", record_bodies(original))
    write("api_patches.json", record_patches(original))
    write("api_discovery.json", record_discovery(original))
    write("flow_schemas.json", record_flows(original))


if __name__ == "__main__":
    main()

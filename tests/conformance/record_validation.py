"""Asks upstream for its judgement on every case of `validation_cases` and writes it down.

    PYTHONPATH=tests/support python tests/conformance/record_validation.py

Kept are answers: status, and the object as it was stored or the refusal. Large values are cut out of bodies again when
they are read, by making the cases again.
"""

from __future__ import annotations

import json
import os
import pathlib
import ssl
import urllib.error
import urllib.request
from typing import Any

from needs import original
from validation_cases import CREATES, UPDATES, Update

DATA = pathlib.Path(__file__).parent / "data"
CLUSTER = ("namespaces", "nodes", "selfsubjectaccessreviews")
GROUPS = {"leases": "coordination.k8s.io", "selfsubjectaccessreviews": "authorization.k8s.io"}


class Original:
    def __init__(self, url: str, token: str) -> None:
        self._url, self._token = url, token
        self.warnings: list[str] = []
        self._context = ssl._create_unverified_context()

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        headers = {"authorization": f"Bearer {self._token}", "content-type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._url + path, method=method, data=data, headers=headers)
        try:
            with urllib.request.urlopen(request, context=self._context, timeout=30) as answer:
                self.warnings = answer.headers.get_all("warning") or []
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as refused:
            self.warnings = []
            return refused.code, json.loads(refused.read())


def collection(plural: str) -> str:
    group = GROUPS.get(plural)
    root = f"/apis/{group}/v1" if group else "/api/v1"
    return f"{root}/{plural}" if plural in CLUSTER else f"{root}/namespaces/default/{plural}"


def merge(target: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return patch
    out = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            out.pop(key, None)
        else:
            out[key] = merge(out.get(key), value)
    return out


def without_managers(obj: Any) -> Any:
    if isinstance(obj, dict) and isinstance(obj.get("metadata"), dict):
        obj["metadata"].pop("managedFields", None)
    return obj


def record_update(original: Original, case: Update) -> dict[str, Any]:
    """`old` is what was stored, `new` what was sent, `code` and `answer` what came back."""
    base = collection(case.plural)
    # A namespace is not gone before a controller has emptied it, so one serves all cases.
    if case.plural != "namespaces":
        original.ask("DELETE", f"{base}/z?gracePeriodSeconds=0&propagationPolicy=Background")
    code, _ = original.ask("POST", base, case.stored)
    if code != 201 and case.plural != "namespaces":
        raise SystemExit(f"{case.name}: cannot store: {code}")
    _, old = original.ask("GET", f"{base}/z")
    without_managers(old)
    new = merge(old, case.patch)
    path = f"{base}/z/{case.subresource}" if case.subresource else f"{base}/z"
    code, answer = original.ask("PUT", path, new)
    recorded = {"old": old, "new": new, "code": code, "answer": without_managers(answer)}
    return recorded | ({"warnings": original.warnings} if original.warnings else {})


def record(original: Original) -> None:
    creates: dict[str, dict[str, Any]] = {}
    for plural in {case.plural for case in CREATES} - {"namespaces"}:
        original.ask("DELETE", f"{collection(plural)}/z?gracePeriodSeconds=0&propagationPolicy=Background")
    for case in CREATES:
        code, answer = original.ask("POST", collection(case.plural) + "?dryRun=All", case.body)
        answer = without_managers(answer)
        if len(json.dumps(answer)) > 20_000:
            answer = {"status": answer["status"]} if answer.get("kind") == "Status" else {"kind": answer["kind"]}
        creates[case.name] = {"code": code, "answer": answer}
        if original.warnings:
            creates[case.name]["warnings"] = original.warnings
    updates = {case.name: record_update(original, case) for case in UPDATES}
    for name, table in (("validation_create.json", creates), ("validation_update.json", updates)):
        lines = ",\n".join(f"{json.dumps(key)}: {json.dumps(value, sort_keys=True)}" for key, value in table.items())
        (DATA / name).write_text("{\n" + lines + "\n}\n")
        print(f"{name}: {len(table)} cases")


def main() -> None:
    if "ORIGINAL_URL" in os.environ:
        record(Original(os.environ["ORIGINAL_URL"], os.environ["ORIGINAL_TOKEN"]))
        return
    with original() as running:
        record(Original(running["url"], running["token"]))


if __name__ == "__main__":
    main()

"""Asks upstream what each selector of `selector_cases` selects, or why it refuses.

    PYTHONPATH=tests/support python tests/conformance/record_selectors.py
"""

from __future__ import annotations

import json
import os
from typing import Any
from urllib.parse import quote

from needs import original
from record_tables import store
from record_validation import DATA, Original, collection, without_managers
from selector_cases import FIELDS, LABELS, PODS


def selected(original: Original, plural: str, parameter: str, text: str) -> dict[str, Any]:
    code, answer = original.ask("GET", f"{collection(plural)}?{parameter}={quote(text)}")
    if code != 200:
        return {"code": code, "message": answer["message"]}
    names = sorted(item["metadata"]["name"] for item in answer["items"])
    return {"code": code, "names": [name for name in names if name.startswith("sel-")]}


def record(original: Original) -> None:
    for name, (labels, spec) in PODS.items():
        containers = [{"name": "c", "image": "x"}]
        store(
            original, "pods", {"metadata": {"name": name, "labels": labels}, "spec": {"containers": containers, **spec}}
        )
    pods = {name: without_managers(original.ask("GET", f"{collection('pods')}/{name}")[1]) for name in PODS}
    found = {
        "pods": pods,
        "labels": {text: selected(original, "pods", "labelSelector", text) for text in LABELS},
        "fields": {f"{plural} {text}": selected(original, plural, "fieldSelector", text) for plural, text in FIELDS},
    }
    (DATA / "selectors.json").write_text(json.dumps(found, indent=0, sort_keys=True) + "\n")
    print(f"selectors.json: {len(LABELS) + len(FIELDS)} selectors")


def main() -> None:
    if "ORIGINAL_URL" in os.environ:
        record(Original(os.environ["ORIGINAL_URL"], os.environ["ORIGINAL_TOKEN"]))
        return
    with original() as running:
        record(Original(running["url"], running["token"]))


if __name__ == "__main__":
    main()

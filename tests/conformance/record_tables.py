"""Asks upstream how it prints the objects of `table_cases`, and writes down objects and cells.

    PYTHONPATH=tests/support python tests/conformance/record_tables.py
"""

from __future__ import annotations

import json
import os
import urllib.request
from typing import Any

from needs import original
from record_validation import DATA, Original, collection, without_managers
from table_cases import OBJECTS, STATUSES

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


def table(original: Original, path: str) -> Any:
    headers = {"authorization": f"Bearer {original._token}", "accept": TABLE}
    request = urllib.request.Request(f"{original._url}{path}?includeObject=Object", headers=headers)
    with urllib.request.urlopen(request, context=original._context, timeout=30) as answer:
        return json.loads(answer.read())


def store(original: Original, plural: str, body: Any, status: Any = None) -> None:
    name = body["metadata"]["name"]
    base = collection(plural)
    original.ask("DELETE", f"{base}/{name}?gracePeriodSeconds=0&propagationPolicy=Background")
    code, stored = original.ask("POST", base, body)
    if code != 201:
        raise SystemExit(f"{plural} {name}: {code} {stored}")
    if status:
        code, answer = original.ask("PUT", f"{base}/{name}/status", {**stored, "status": status})
        if code != 200:
            raise SystemExit(f"{plural} {name}: {code} {answer}")


def printed(original: Original, plural: str, names: set[str]) -> Any:
    answer = table(original, collection(plural))
    columns = [[c["name"], c["type"], c["format"], c["priority"]] for c in answer["columnDefinitions"]]
    rows = [
        {"object": without_managers(row["object"]), "cells": row["cells"], "conditions": row.get("conditions")}
        for row in answer["rows"]
        if row["object"]["metadata"]["name"] in names
    ]
    return {"columns": columns, "rows": rows}


def record(original: Original) -> None:
    found = {}
    names = set()
    for title, (spec, status) in STATUSES.items():
        name = title.replace(" ", "-")
        names.add(name)
        pod = {"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "x"}], **spec}}
        store(original, "pods", pod, status)
    found["pods"] = printed(original, "pods", names)
    for plural, objects in OBJECTS.items():
        for body in objects:
            store(original, plural, body)
        found[plural] = printed(original, plural, {body["metadata"]["name"] for body in objects})
    lines = ",\n".join(f"{json.dumps(key)}: {json.dumps(value, sort_keys=True)}" for key, value in found.items())
    (DATA / "tables.json").write_text("{\n" + lines + "\n}\n")
    print(f"tables.json: {sum(len(value['rows']) for value in found.values())} rows")


def main() -> None:
    if "ORIGINAL_URL" in os.environ:
        record(Original(os.environ["ORIGINAL_URL"], os.environ["ORIGINAL_TOKEN"]))
        return
    with original() as running:
        record(Original(running["url"], running["token"]))


if __name__ == "__main__":
    main()

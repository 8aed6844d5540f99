"""Asks upstream of each expression of `expression_cases` whether a DeviceClass may select by it.

    PYTHONPATH=tests/support python tests/conformance/record_expressions.py
"""

from __future__ import annotations

import json
import os

from expression_cases import EXPRESSIONS
from needs import original
from record_validation import DATA, Original

CLASSES = "/apis/resource.k8s.io/v1/deviceclasses?dryRun=All"


def said(original: Original, expression: str) -> str | None:
    """The cause of the refusal, or None."""
    spec = {"selectors": [{"cel": {"expression": expression}}]}
    code, answer = original.ask("POST", CLASSES, {"metadata": {"name": "a"}, "spec": spec})
    if code == 201:
        return None
    (cause,) = answer["details"]["causes"]
    message: str = cause["message"]
    return message


def record(original: Original) -> None:
    found = {expression: said(original, expression) for expression in EXPRESSIONS}
    (DATA / "expressions.json").write_text(json.dumps(found, indent=0, ensure_ascii=False) + "\n")
    print(f"expressions.json: {len(found)} expressions, {sum(each is None for each in found.values())} of them good")


def main() -> None:
    if "ORIGINAL_URL" in os.environ:
        record(Original(os.environ["ORIGINAL_URL"], os.environ["ORIGINAL_TOKEN"]))
        return
    with original() as running:
        record(Original(running["url"], running["token"]))


if __name__ == "__main__":
    main()

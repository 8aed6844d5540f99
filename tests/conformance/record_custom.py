#!/usr/bin/env python3
"""Records what upstream answers to `custom_cases` and its like, as data/custom_*.json.

    python tests/conformance/record_custom.py [--url URL --token TOKEN]

Without a URL, upstream is started by `tools/upstream`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import ssl
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "support")]

import custom_apply_cases  # noqa: E402
import custom_cases  # noqa: E402
import custom_rule_cases  # noqa: E402
import custom_schema_cases  # noqa: E402
import custom_value_cases  # noqa: E402
import custom_version_cases  # noqa: E402
import upstream  # noqa: E402
from custom_cases import Case, seen, warning_texts  # noqa: E402

DATA = Path(__file__).parent / "data"
WAIT_S = 30
CASES = {
    "applies": custom_apply_cases.cases, "resources": custom_cases.cases, "rules": custom_rule_cases.cases,
    "schemas": custom_schema_cases.cases, "values": custom_value_cases.cases, "versions": custom_version_cases.cases,
}  # fmt: skip


def ask(url: str, token: str, case: Case) -> tuple[int, bytes, list[str]]:
    headers = {"Authorization": f"Bearer {token}", "Accept": case.accept, "Content-Type": case.content_type}
    request = urllib.request.Request(url + case.path, case.data() or None, headers, method=case.method)
    context = ssl._create_unverified_context()
    try:
        with urllib.request.urlopen(request, context=context) as response:
            return response.status, response.read(), warning_texts(response.headers.get_all("Warning") or ())
    except urllib.error.HTTPError as error:
        return error.code, error.read(), warning_texts(error.headers.get_all("Warning") or ())


def ask_until(url: str, token: str, case: Case, code: int) -> tuple[int, bytes, list[str]]:
    """The first answer with this code."""
    deadline_s = time.monotonic() + WAIT_S
    while (found := ask(url, token, case))[0] != code:
        assert time.monotonic() < deadline_s, f"{case.path} is not answered with {code}"
        time.sleep(0.2)
    return found


def record(url: str, token: str, cases: list[Case]) -> list[Any]:
    found = []
    for case in cases:
        until = case.until_code
        code, body, warnings = ask_until(url, token, case, until) if until else ask(url, token, case)
        found.append(seen(code, body, warnings, case.path))
        if case.await_names:
            assert code == 201, body
            group, plural = (case.body["spec"]["group"], case.body["spec"]["names"]["plural"])
            ask_until(url, token, Case("GET", f"/apis/{group}/v1/{plural}"), 200)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url")
    parser.add_argument("--token", default="")
    parser.add_argument("--only", choices=sorted(CASES))
    given = parser.parse_args()
    with contextlib.ExitStack() as stack:
        told = vars(given) if given.url else stack.enter_context(upstream.running("run"))
        for name in [given.only] if given.only else sorted(CASES):
            found = record(told["url"], told["token"], CASES[name]())
            text = ",\n".join(json.dumps(each, sort_keys=True) for each in found)
            (DATA / f"custom_{name}.json").write_text(f"[\n{text}\n]\n")
            print(f"{name}: {len(found)} answers")


if __name__ == "__main__":
    main()

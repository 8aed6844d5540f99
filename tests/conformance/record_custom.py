#!/usr/bin/env python3
"""Records what upstream answers to `custom_cases`, as data/custom_resources.json.

    python tests/conformance/record_custom.py [--url URL --token TOKEN]

Without a URL, upstream is started by `tools/upstream`.
"""

from __future__ import annotations

import argparse
import json
import ssl
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "support")]

import upstream  # noqa: E402
from custom_cases import Case, cases, seen  # noqa: E402

DATA = Path(__file__).parent / "data" / "custom_resources.json"
WAIT_S = 30


def ask(url: str, token: str, case: Case) -> tuple[int, bytes]:
    headers = {"Authorization": f"Bearer {token}", "Accept": case.accept, "Content-Type": case.content_type}
    request = urllib.request.Request(url + case.path, case.data() or None, headers, method=case.method)
    context = ssl._create_unverified_context()
    try:
        with urllib.request.urlopen(request, context=context) as response:
            return response.status, response.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def record(url: str, token: str) -> list[Any]:
    found = []
    for case in cases():
        code, body = ask(url, token, case)
        found.append(seen(code, body))
        if case.await_names:
            assert code == 201, body
            group, plural = (case.body["spec"]["group"], case.body["spec"]["names"]["plural"])
            deadline = time.monotonic() + WAIT_S
            while ask(url, token, Case("GET", f"/apis/{group}/v1/{plural}"))[0] != 200:
                assert time.monotonic() < deadline, "the definition is not served"
                time.sleep(0.2)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url")
    parser.add_argument("--token", default="")
    given = parser.parse_args()
    if given.url:
        found = record(given.url, given.token)
    else:
        with upstream.running("run") as told:
            found = record(told["url"], told["token"])
    DATA.write_text("[\n" + ",\n".join(json.dumps(each, sort_keys=True) for each in found) + "\n]\n")
    print(f"{len(found)} answers")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Records what upstream answers to `admission_suites`, as data/admission_*.json.

    python tests/conformance/record_admission.py [SUITE ...]

Upstream is started by `tools/upstream`, once for each suite.
"""

from __future__ import annotations

import contextlib
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "support"), str(Path(__file__).parents[2])]

import upstream  # noqa: E402
from admission_suites import DATA, SUITES, sent, told  # noqa: E402
from asking import Server  # noqa: E402
from patience import eventually  # noqa: E402
from webhook_server import serving  # noqa: E402

WAIT_S = 30


def record(name: str) -> dict[str, Any]:
    with contextlib.ExitStack() as stack:
        ready = stack.enter_context(upstream.running("run"))
        hooks = stack.enter_context(serving(Path(stack.enter_context(tempfile.TemporaryDirectory()))))
        server = stack.enter_context(Server(ready["url"], ready["token"]))
        suite = SUITES[name](hooks)
        for ask in suite.made:
            assert server.ask(ask).code < 300 or name in ("policies", "mutations"), ask
        for ask, word in suite.known:
            eventually(lambda ask=ask, word=word: word in server.ask(ask).body, f"{ask} is known", WAIT_S)
        answers = [told(server.ask(ask), name) for ask in suite.asks]
        return {"answers": answers, "sent": sent(hooks.sent["them"])}


def main() -> None:
    for name in sys.argv[1:] or sorted(SUITES):
        found = record(name)
        answers = ",\n".join(json.dumps(each) for each in found["answers"])
        reviews = ",\n".join(f"{json.dumps(path)}: {json.dumps(each)}" for path, each in found["sent"].items())
        (DATA / f"admission_{name}.json").write_text(f'{{"answers": [\n{answers}\n],\n"sent": {{\n{reviews}\n}}}}\n')
        print(f"{name}: {len(found['answers'])} answers")


if __name__ == "__main__":
    main()

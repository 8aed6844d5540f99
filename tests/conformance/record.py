"""Records upstream's answers to the kubectl session and to the raw requests.

usage: PYTHONPATH=tests/support python tests/conformance/record.py [raw] [kubectl]

Upstream is run by `tools/upstream`, which must have built it. Raw answers are kept as they are, those of kubectl as
they compare: uids, times, versions and random names replaced.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import kubectl_session
import raw_cases
import scenario
from asking import Server
from needs import kubectls, original

DATA = Path(__file__).parent / "data"
RAW_FILE, KUBECTL_FILE = DATA / "original_raw.json", DATA / "original_kubectl.json"


def raw_answers(url: str, token: str) -> dict[str, Any]:
    with Server(url, token) as server:
        return {ask.name: server.ask(ask).to_json() for ask in raw_cases.CASES}


def kubectl_answers(kubectl: Path, minor: int, kubeconfig: Path) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as home:
        outputs = kubectl_session.session(kubectl, minor, kubeconfig, Path(home), scenario.STEPS)
        return {step.name: kubectl_session.comparable(step, output) for step, output in outputs}


def merged(by_minor: dict[int, dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Step -> its distinct answers, each with the kubectl versions that print it."""
    result: dict[str, list[dict[str, Any]]] = {}
    for minor, answers in by_minor.items():
        for name, answer in answers.items():
            known = result.setdefault(name, [])
            for entry in known:
                if entry["answer"] == answer:
                    entry["kubectl"].append(minor)
                    break
            else:
                known.append({"kubectl": [minor], "answer": answer})
    return result


def write(path: Path, data: Any) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(data, indent=1, sort_keys=True) + "\n")
    print(f"wrote {path.name}: {path.stat().st_size} bytes")


def main() -> None:
    what = sys.argv[1:] or ["raw", "kubectl"]
    if "raw" in what:
        with original() as server:
            write(RAW_FILE, raw_answers(server["url"], server["token"]))
    if "kubectl" in what:
        by_minor = {}
        for minor, kubectl in sorted(kubectls().items()):
            print(f"kubectl 1.{minor} ...", flush=True)
            with original("--scheduler", "--controllers", "--kubelets") as server:
                by_minor[minor] = kubectl_answers(kubectl, minor, Path(server["kubeconfig"]))
        write(KUBECTL_FILE, merged(by_minor))


if __name__ == "__main__":
    main()

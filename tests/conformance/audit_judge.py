"""Audit events beside upstream: the same requests to both under the same policy, and their events field by field.

    python tests/conformance/audit_judge.py --examples 1000 [--seed 1]

prints how many events were alike, and those that were not, smallest first.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "support"), str(Path(__file__).parents[2])]

import drawn  # noqa: E402
import needs  # noqa: E402
import ours  # noqa: E402
import patience  # noqa: E402
from alike import _NOISE, seen  # noqa: E402
from asking import Answer, Ask, Server  # noqa: E402
from audit_cases import SETUP, cases, changing  # noqa: E402
from differences import explain  # noqa: E402
from hypothesis import HealthCheck, Phase, given, settings  # noqa: E402
from hypothesis import seed as seeded_by  # noqa: E402
from judging import _remember, _with_version  # noqa: E402

Json = dict[str, Any]
_TIMES = ("requestReceivedTimestamp", "stageTimestamp")
_MICROSECONDS = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")
_VERBS = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")
_RESOURCES = (
    "pods", "pods/status", "*/status", "pods/*", "configmaps", "secrets", "deployments", "*", "nodes", "services",
    "*/scale", "namespaces", "leases", "pods/eviction",
)  # fmt: skip
_GROUPS = ("", "apps", "*", "batch", "coordination.k8s.io", "rbac.authorization.k8s.io", "authorization.k8s.io")
_STAGES = ("RequestReceived", "ResponseStarted", "ResponseComplete", "Panic")
_LEVELS = ("None", "Metadata", "Request", "RequestResponse")


def drawn_policy(seed: int) -> Json:
    """Rules about some requests, and a last one, by which all others are logged whole."""
    rng = random.Random(seed)

    def some(values: Iterable[str], share: float = 0.4) -> list[str]:
        return [each for each in values if rng.random() < share] if rng.random() < share else []

    rules = []
    for _ in range(12):
        rule: Json = {"level": rng.choice(_LEVELS)}
        if rng.random() < 0.2:
            rule["nonResourceURLs"] = some(("/version", "/healthz*", "/api*", "/openapi/*", "*"), 0.9)
        else:
            groups = [{"group": rng.choice(_GROUPS), "resources": some(_RESOURCES)} for _ in range(rng.randrange(3))]
            for each in groups:
                if each["resources"] and rng.random() < 0.3:
                    each["resourceNames"] = ["a", "seen", "web"]
            rule |= {"resources": groups, "namespaces": some(("default", "", "kube-system", "drawn"), 0.3)}
            rule |= {"verbs": some(_VERBS)}
        rule |= {"users": some(("admin", "system:anonymous", "jane"), 0.3)}
        rule |= {"userGroups": some(("system:masters", "system:unauthenticated"), 0.3)}
        rule |= {"omitStages": some(_STAGES, 0.3)}
        if rng.random() < 0.5:
            rule["omitManagedFields"] = rng.random() < 0.5
        narrow = any(rule.get(name) for name in ("resources", "namespaces", "verbs", "users", "nonResourceURLs"))
        rules += [rule] if narrow else []
    last = {"level": "RequestResponse", "omitManagedFields": seed % 2 == 0}
    return {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [*rules, last]}


@dataclass
class Report:
    alike: int = 0
    asked: Counter[str] = field(default_factory=Counter)
    skipped: list[Ask] = field(default_factory=list)
    """Their answers differ already, which other judges tell."""
    left: list[tuple[Ask, str]] = field(default_factory=list)

    def text(self, most: int = 25) -> str:
        by_shape: dict[Any, list[tuple[Ask, str]]] = {}
        for ask, why in sorted(self.left, key=lambda each: len(each[0].shown()) + len(each[1])):
            by_shape.setdefault((ask.name, why.partition("\n")[0]), []).append((ask, why))
        return "\n".join(
            f"--- {shape}, {len(found)} times\n{found[0][0].shown()}\n{found[0][1]}"
            for shape, found in list(by_shape.items())[:most]
        )

    def counts(self) -> str:
        told = f"{self.alike} events alike, {len(self.left)} requests whose events differ"
        return f"{told}, {len(self.skipped)} of {sum(self.asked.values())} requests not compared"


def events_of(log: Path) -> dict[str, list[Json]]:
    """By audit id, in order."""
    found: dict[str, list[Json]] = {}
    for line in log.read_text().split("\n"):
        with contextlib.suppress(json.JSONDecodeError):
            event = json.loads(line)
            found.setdefault(event["auditID"], []).append(event)
    return found


def settled(event: Json) -> Json:
    """Without what differs from server to server. Times must have microseconds."""
    for name in _TIMES:
        assert _MICROSECONDS.fullmatch(event[name]), event[name]
    annotations = event.get("annotations", {})
    for name in annotations:
        annotations[name] = re.sub("^JTI=.*", "JTI", annotations[name])
    text = json.dumps({name: value for name, value in event.items() if name not in (*_TIMES, "auditID")}).encode()
    for pattern, other in _NOISE:
        text = pattern.sub(other, text)
    found: Json = json.loads(text)
    return found


def _is_explained(theirs: Any, mine: Any, path: str) -> bool:
    if path.endswith(".authenticationMetadata"):
        # Upstream tries the mode first that last allowed the sender to impersonate anybody.
        return bool(theirs == "absent")
    if path.endswith(".managedFields"):
        # A rule of `differences`: ours tracks the managers of plain writes where somebody asked for it.
        return bool(mine == "absent")
    if path.endswith((".targetCPUUtilizationPercentage", ".deprecated.daemonset.template.generation")):
        # Upstream shows what its conversion to the internal version adds.
        return bool(".requestObject." in path and mine == "absent")
    if ".columnDefinitions[" in path and path.endswith(".description"):
        return True
    # What a type requires and a body lacks: Go prints null or "", before validation refuses it.
    return ".requestObject." in path and mine == "absent" and theirs in (None, "")


def differences(theirs: Any, mine: Any, path: str) -> list[str]:
    if isinstance(theirs, dict) and isinstance(mine, dict):
        names = sorted({*theirs, *mine})
        pairs = [(theirs.get(name, "absent"), mine.get(name, "absent"), f"{path}.{name}") for name in names]
    elif isinstance(theirs, list) and isinstance(mine, list) and len(theirs) == len(mine):
        pairs = [(x, y, f"{path}[{i}]") for i, (x, y) in enumerate(zip(theirs, mine, strict=True))]
    elif _is_explained(theirs, mine, path):
        return []
    else:
        return [] if theirs == mine else [f"{path}\n  upstream: {theirs!r:.700}\n  ours:     {mine!r:.700}"]
    return [found for pair in pairs for found in differences(*pair)]


def _body(answer: Answer) -> Any:
    """Settled, if it is JSON."""
    text = answer.body
    for pattern, other in _NOISE:
        text = pattern.sub(other, text)
    try:
        return json.loads(text)
    except ValueError:
        return None


def _without_reply(event: Json) -> Json:
    return {**event, "responseObject": {}} if "responseObject" in event else event


class Judge:
    def __init__(self, theirs: Server, mine: Server, logs: tuple[Path, Path]) -> None:
        self._servers, self._logs = (theirs, mine), logs
        self._asked: list[tuple[Ask, bool, bool]] = []
        """Whether the answers are alike or a rule of `differences` says why not, and whether the bodies are alike."""
        self._versions: tuple[dict[str, str], dict[str, str]] = ({}, {})

    def take(self, ask: Ask, pool: ThreadPoolExecutor) -> None:
        """The same audit id to both."""
        named = replace(ask, headers=(*ask.headers, ("Audit-ID", f"judged-{len(self._asked)}")))
        both = list(
            pool.map(
                lambda each: each[0].ask(_with_version(named, each[1])), zip(self._servers, self._versions, strict=True)
            )
        )
        for answer, known in zip(both, self._versions, strict=True):
            with contextlib.suppress(KeyError, TypeError, ValueError):
                _remember(ask, answer, known)
        found = explain(ask, seen(both[0]), seen(both[1]))
        whole = not differences(_body(both[0]), _body(both[1]), "body")
        self._asked.append((ask, not found.left and both[0].code == both[1].code, whole))

    def report(self) -> Report:
        found = Report()
        marker = f"judged-{len(self._asked)}"
        for server in self._servers:
            server.ask(Ask("marker", "GET", "/api/v1/nodes/marker", headers=(("Audit-ID", marker),)))
        for log in self._logs:
            patience.eventually(lambda log=log: len(events_of(log).get(marker, ())) == 2, "the last event is logged")
        theirs, mine = (events_of(log) for log in self._logs)
        for at, (ask, alike, whole) in enumerate(self._asked):
            found.asked[ask.name] += 1
            if not alike:
                found.skipped.append(ask)
                continue
            wanted, got = ([settled(e) for e in log.get(f"judged-{at}", ())] for log in (theirs, mine))
            if not whole:
                wanted, got = ([_without_reply(e) for e in events] for events in (wanted, got))
            why = differences([e["stage"] for e in wanted], [e["stage"] for e in got], "stages")
            if not why:
                why = [each for x, y in zip(wanted, got, strict=True) for each in differences(x, y, x["stage"])]
            if why:
                found.left.append((ask, "\n".join(why)))
            else:
                found.alike += len(wanted)
        return found


@contextlib.contextmanager
def servers(policy: Json) -> Iterator[tuple[Server, Server, tuple[Path, Path]]]:
    with contextlib.ExitStack() as stack:
        folders = [Path(stack.enter_context(tempfile.TemporaryDirectory())) for _ in range(2)]
        for folder in folders:
            (folder / "policy.yaml").write_text(json.dumps(policy))
        logs = folders[0] / "audit.log", folders[1] / "audit.log"
        theirs = stack.enter_context(needs.original("--audit-policy-file", str(folders[0] / "policy.yaml")))
        mine = stack.enter_context(ours.serve(started=ours.audited(folders[1] / "policy.yaml", logs[1])))
        upstream, own = (stack.enter_context(Server(each["url"], each["token"])) for each in (theirs, mine))
        yield upstream, own, logs


def judge(policy: Json, examples: int, seed: int) -> Report:
    with servers(policy) as (theirs, mine, logs), ThreadPoolExecutor(2) as pool:
        judging = Judge(theirs, mine, logs)
        for ask in (*drawn.SETUP, *SETUP, *cases()):
            judging.take(ask, pool)

        @seeded_by(seed)
        @settings(
            max_examples=examples, deadline=None, database=None, phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )  # fmt: skip
        @given(drawn.asks)
        def asked(ask: Ask) -> None:
            judging.take(ask, pool)

        asked()
        for ask in changing():
            judging.take(ask, pool)
        return judging.report()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--examples", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--whole", action="store_true", help="all at RequestResponse, in place of a drawn policy")
    arguments = parser.parse_args()
    whole = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [{"level": "RequestResponse"}]}
    report = judge(whole if arguments.whole else drawn_policy(arguments.seed), arguments.examples, arguments.seed)
    print(report.text(), report.counts(), sep="\n")
    return 1 if report.left else 0


if __name__ == "__main__":
    sys.exit(main())

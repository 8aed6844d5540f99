"""The differential runner: the same requests to ours and to a live upstream, answers compared to the byte.

    python tests/conformance/judging.py --examples 2000 [--seed 1] [--url URL --token TOKEN]

prints how many answers were alike, by class of request; which rules of `differences` explained the others; and what
remains, smallest first. Without a URL, upstream is started by `tools/upstream`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "support"), str(Path(__file__).parents[2])]

import drawn  # noqa: E402
import needs  # noqa: E402
import ours  # noqa: E402
from alike import seen  # noqa: E402
from asking import Answer, Ask, Server  # noqa: E402
from differences import Explained, explain  # noqa: E402
from drawn_bytes import QUIET_S, SURE_QUIET_S, Fate, RawServer, connections, explained  # noqa: E402
from drawn_objects import VERSION  # noqa: E402
from hypothesis import HealthCheck, Phase, given, seed, settings  # noqa: E402

SHOWN_BYTES = 1500


@dataclass
class Report:
    asked: Counter[str] = field(default_factory=Counter)
    alike: Counter[str] = field(default_factory=Counter)
    rules: Counter[str] = field(default_factory=Counter)
    findings: list[tuple[Ask, Answer, Answer, Explained]] = field(default_factory=list)

    def take(self, ask: Ask, theirs: Answer, mine: Answer) -> None:
        self.asked[ask.name] += 1
        found = explain(ask, seen(theirs), seen(mine))
        self.rules.update(found.rules)
        if found.left:
            self.findings.append((ask, theirs, mine, found))
        elif not found.rules:
            self.alike[ask.name] += 1

    def counts(self) -> str:
        total, alike = sum(self.asked.values()), sum(self.alike.values())
        lines = [f"{total} requests: {alike} alike to the byte, {total - alike - len(self.findings)} by a rule, {len(self.findings)} not"]
        classes = [name for name in sorted(self.asked) if self.asked[name] > 1]
        lines += [f"  {name:<28} {self.asked[name]:>6} asked {self.alike[name]:>6} alike" for name in classes]
        return "\n".join([*lines, *(f"  rule {name:<36} {count:>6}" for name, count in sorted(self.rules.items()))])

    def text(self, most: int = 20) -> str:
        """The smallest findings, one for each shape of difference first."""
        by_shape: dict[Any, list[tuple[Ask, Answer, Answer, Explained]]] = {}
        for finding in sorted(self.findings, key=lambda each: len(each[0].shown())):
            ask, _, _, found = finding
            shape = (ask.name, tuple(sorted(found.left)), found.left.get("code"))
            by_shape.setdefault(shape, []).append(finding)
        parts = []
        for shape, found_here in list(by_shape.items())[:most]:
            ask, _, _, explained = found_here[0]
            told = "\n".join(f"  {aspect}\n    upstream: {str(x)[:SHOWN_BYTES]}\n    ours:     {str(y)[:SHOWN_BYTES]}" for aspect, (x, y) in explained.left.items())
            parts.append(f"--- {shape}, {len(found_here)} times\n{ask.shown()}\n{told}")
        return "\n".join(parts)


def _remember(ask: Ask, answer: Answer, versions: dict[str, str]) -> None:
    """The version of what stands now, by its path."""
    target = ask.target.partition("?")[0]
    if ask.method in ("POST", "PATCH", "PUT") and answer.code in (200, 201) and not target.endswith("/binding"):
        metadata = json.loads(answer.body)["metadata"]
        path = target.removesuffix("/status") if ask.method != "POST" else f"{target}/{metadata['name']}"
        versions[path] = metadata.get("resourceVersion", "1")


def _with_version(ask: Ask, versions: dict[str, str]) -> Ask:
    body = ask.payload()
    if body is None or VERSION.encode() not in body:
        return ask
    version = versions.get(ask.target.partition("?")[0].removesuffix("/status"), "1")
    return replace(ask, body=body.replace(VERSION.encode(), version.encode()))


class Lockstep:
    """One request after the other to both, with the version that the object has on each."""

    def __init__(self, theirs: Server, mine: Server, report: Report) -> None:
        self._servers = theirs, mine
        self._report = report
        self._versions: tuple[dict[str, str], dict[str, str]] = ({}, {})

    def take(self, ask: Ask) -> None:
        answers = [server.ask(_with_version(ask, known)) for server, known in zip(self._servers, self._versions)]
        self._report.take(ask, *answers)
        for answer, known in zip(answers, self._versions):
            _remember(ask, answer, known)


def judge(theirs: Server, mine: Server, examples: int, seeded: int) -> Report:
    report = Report()
    with ThreadPoolExecutor(1) as beside:

        versions: dict[Server, dict[str, str]] = {theirs: {}, mine: {}}

        def both(ask: Ask) -> tuple[Answer, Answer]:
            other = beside.submit(theirs.ask, _with_version(ask, versions[theirs]))
            return mine.ask(_with_version(ask, versions[mine])), other.result()

        for ask in drawn.SETUP:
            answer, other = both(ask)
            report.take(ask, other, answer)
            for server, answered in ((mine, answer), (theirs, other)):
                _remember(ask, answered, versions[server])

        @seed(seeded)
        @settings(max_examples=examples, deadline=None, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
        @given(drawn.asks)
        def asked(ask: Ask) -> None:
            answer, other = both(ask)
            report.take(ask, other, answer)

        asked()
    return report


def judge_bytes(theirs: RawServer, mine: RawServer, examples: int, seeded: int) -> tuple[Counter[str], list[str]]:
    """Raw bytes to both: how many fates were alike ("") or explained by which rule; and what remains, smallest first."""
    sent: list[bytes] = []

    @seed(seeded)
    @settings(max_examples=examples, deadline=None, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(connections)
    def drawn_ones(each: bytes) -> None:
        sent.append(each)

    drawn_ones()
    with ThreadPoolExecutor(8) as asking, ThreadPoolExecutor(8) as beside:

        def both(each: bytes) -> tuple[bytes, Fate, Fate]:
            for quiet_s in (QUIET_S, SURE_QUIET_S):
                other = beside.submit(theirs.fate, each, quiet_s)
                mine_now, theirs_now = mine.fate(each, quiet_s), other.result()
                if explained(each, theirs_now, mine_now) is not None:
                    break
            return each, theirs_now, mine_now

        counts: Counter[str] = Counter()
        left: list[tuple[bytes, Fate, Fate]] = []
        for found in asking.map(both, sent):
            rule = explained(*found)
            if rule is None:
                left.append(found)
            else:
                counts[rule] += 1
    left.sort(key=lambda found: len(found[0]))
    return counts, [f"{each!r}\n    upstream: {other}\n    ours:     {own}" for each, other, own in left]


@contextlib.contextmanager
def both(theirs: dict[str, Any] | None = None) -> Iterator[tuple[Server, Server]]:
    """A live upstream, started here unless `theirs` says where one is (url, token), and ours."""
    with contextlib.ExitStack() as stack:
        started = (theirs or stack.enter_context(needs.original()), stack.enter_context(ours.serve()))
        upstream, own = (stack.enter_context(Server(each["url"], each["token"])) for each in started)
        yield upstream, own


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--examples", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--url")
    parser.add_argument("--token", default="")
    arguments = parser.parse_args()
    with both({"url": arguments.url, "token": arguments.token} if arguments.url else None) as (theirs, mine):
        report = judge(theirs, mine, arguments.examples, arguments.seed)
    print(report.text(), report.counts(), sep="\n")
    return 1 if report.findings else 0


if __name__ == "__main__":
    sys.exit(main())

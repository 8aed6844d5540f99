"""The journal of verdicts, and what they come to: a table, the survivors, and the same as JSON."""

from __future__ import annotations

import json
import math
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from mutation_draw import QUOTAS
from mutation_operators import OPERATORS, Change
from mutation_trial import KILLED, NOT_IMPORTED, SURVIVED, TIMEOUT, Verdict

JUDGED: Final = Path(__file__).with_name("judged.toml")
EQUIVALENT: Final = "equivalent"
COLUMNS: Final = (KILLED, SURVIVED, EQUIVALENT, TIMEOUT, NOT_IMPORTED)
OUTCOME: Final = ("status", "by", "tests", "histories", "cpu_s", "histories_s")
"""What a draw does not say of a mutant: how it went."""


class Journal:
    """A line of JSON for each verdict; the last of a mutant counts."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.verdicts: dict[str, Verdict] = {}
        if path.is_file():
            for line in path.read_text().splitlines():
                verdict = Verdict(**json.loads(line))
                self.verdicts[verdict.key] = verdict

    def add(self, verdict: Verdict) -> None:
        self.verdicts[verdict.key] = verdict
        with self._path.open("a") as file:
            file.write(json.dumps(verdict._asdict()) + "\n")


def recorded(report: Path, commit: str, drawn: Iterable[Change]) -> list[Verdict]:
    """The verdicts that an earlier report, as `to_json` gives it, has of these mutants.

    Raises: SystemExit if it is of another commit, or has no verdict for each mutant that it counts."""
    document = json.loads(report.read_text())
    if document["commit"] != commit:
        raise SystemExit(f"{report} is of commit {document['commit']}, not of {commit}")
    verdicts = document.get("verdicts", {})
    if len(verdicts) != document["drawn"]:
        raise SystemExit(f"{report} counts {document['drawn']} mutants and has verdicts of {len(verdicts)}")
    return [
        Verdict(each.key, each.path, each.line, each.function, each.operator, each.old, each.new, **verdicts[each.key])
        for each in drawn
        if each.key in verdicts
    ]


class Reasons(NamedTuple):
    """What people found out about mutants, by key: which change nothing that can be seen, and why others live."""

    equivalent: Mapping[str, str]
    survivor: Mapping[str, str]


def reasons(path: Path = JUDGED) -> Reasons:
    document = tomllib.loads(path.read_text())
    return Reasons(document.get("equivalent", {}), document.get("survivor", {}))


class Score(NamedTuple):
    """Of `judged` mutants, which are those that were drawn without the equivalent, late and broken ones."""

    killed: int
    judged: int

    @property
    def share(self) -> float:
        return self.killed / self.judged if self.judged else 1.0

    def interval(self, z: float = 1.96) -> tuple[float, float]:
        """Wilson's, of 95 %."""
        n = self.judged
        if not n:
            return 0.0, 1.0
        middle = (self.share + z * z / (2 * n)) / (1 + z * z / n)
        half = z * math.sqrt(self.share * (1 - self.share) / n + z * z / (4 * n * n)) / (1 + z * z / n)
        return max(0.0, middle - half), min(1.0, middle + half)

    def __str__(self) -> str:
        low, high = self.interval()
        return f"{self.killed} of {self.judged}: {self.share:.0%} (95 % interval {low:.0%} to {high:.0%})"


class Report:
    def __init__(self, verdicts: Iterable[Verdict], known: Reasons) -> None:
        self.verdicts = list(verdicts)
        self.known = known

    def status(self, verdict: Verdict) -> str:
        return EQUIVALENT if verdict.status == SURVIVED and verdict.key in self.known.equivalent else verdict.status

    def counts(self, verdicts: Iterable[Verdict]) -> Counter[str]:
        return Counter(self.status(verdict) for verdict in verdicts)

    def score(self, verdicts: Iterable[Verdict] | None = None) -> Score:
        counts = self.counts(self.verdicts if verdicts is None else verdicts)
        return Score(counts[KILLED], counts[KILLED] + counts[SURVIVED])

    def survivors(self) -> list[Verdict]:
        return [verdict for verdict in self.verdicts if self.status(verdict) == SURVIVED]

    def _groups(self) -> dict[str, list[Verdict]]:
        packages = {name: [v for v in self.verdicts if v.package == name] for name in QUOTAS}
        operators = {each.name: [v for v in self.verdicts if v.operator == each.name] for each in OPERATORS}
        return {name: those for name, those in {**packages, **operators, "all": self.verdicts}.items() if those}

    def table(self) -> str:
        lines = [f"{'':<12}{'drawn':>7}" + "".join(f"{name:>14}" for name in COLUMNS) + f"{'score':>8}"]
        for name, those in self._groups().items():
            counts = self.counts(those)
            cells = "".join(f"{counts[column]:>14}" for column in COLUMNS)
            lines.append(f"{name:<12}{len(those):>7}{cells}{self.score(those).share:>8.0%}")
        by_histories = sum(verdict.status == KILLED and verdict.by.startswith("histories") for verdict in self.verdicts)
        lines += ["", f"score: {self.score()}; {by_histories} of the killed by histories alone", ""]
        for verdict in self.survivors():
            old, new = (" ".join(text.split())[:80] for text in (verdict.old, verdict.new))
            lines += [
                f"survivor {verdict.key}: {verdict.path}:{verdict.line} in {verdict.function or 'the module'}, "
                f"{verdict.operator}: {old}  ->  {new}",
                f"    {self.known.survivor.get(verdict.key, 'no reason known')} "
                f"({verdict.tests} tests, {verdict.histories} histories)",
            ]
        return "\n".join(lines)

    def to_json(self, commit: str, tests_of: str) -> dict[str, Any]:
        low, high = self.score().interval()
        return {
            "commit": commit,
            "tests_of": tests_of,
            "drawn": len(self.verdicts),
            "score": round(self.score().share, 4),
            "interval_95": [round(low, 4), round(high, 4)],
            "groups": {
                name: {"drawn": len(those), **self.counts(those), "score": round(self.score(those).share, 4)}
                for name, those in self._groups().items()
            },
            "cpu_s": round(sum(verdict.cpu_s for verdict in self.verdicts)),
            "verdicts": {verdict.key: _outcome(verdict) for verdict in self.verdicts},
            "survivors": [
                {**verdict._asdict(), "reason": self.known.survivor.get(verdict.key, "")}
                for verdict in self.survivors()
            ],
            "equivalent": [
                {**verdict._asdict(), "reason": self.known.equivalent[verdict.key]}
                for verdict in self.verdicts
                if self.status(verdict) == EQUIVALENT
            ],
        }


def _outcome(verdict: Verdict) -> dict[str, Any]:
    """Without what is empty; `status` always."""
    return {name: value for name in OUTCOME if (value := getattr(verdict, name))}

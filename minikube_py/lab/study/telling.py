"""The report of the study: Markdown, HTML, CSV and JSON, with the machine and both commits above every figure."""

from __future__ import annotations

import csv
import html
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import orjson

from minikube_py.lab.environment import Environment
from minikube_py.lab.report import Table
from minikube_py.lab.study.advice import tree
from minikube_py.lab.study.design import Design
from minikube_py.lab.study.journal import Record
from minikube_py.lab.study.pictures import draw_all
from minikube_py.lab.study.predictions import Evidence, Finding, judge
from minikube_py.lab.study.registration import Registration
from minikube_py.lab.study.tables import all_tables

NAME = "bloom-report"
STYLE = """body{font:15px/1.5 system-ui,sans-serif;max-width:1100px;margin:2em auto;padding:0 1em;color:#1a202c}
table{border-collapse:collapse;margin:1em 0;font-size:13px;display:block;overflow-x:auto}
td,th{padding:3px 9px;border-bottom:1px solid #e2e8f0;text-align:right}td:first-child,th:first-child{text-align:left}
img{max-width:100%}h2{margin-top:2em}.warn{color:#c53030;font-weight:bold}li{margin:.3em 0}"""

WORDS = {
    "cell": "one choice of every factor: so many nodes, so full, so many resources, and so on",
    "shard": "a part of the nodes that is looked through as a whole; a front (filter, max vector, bitset) stands "
    "before each and says which need not be opened",
    "C_behind": "what opening a shard costs beyond looking through it: 0 where it is at hand in this process; the "
    "disk's or the network's time where it is not",
    "U/Q": "updates per query: how many nodes change for each request that is asked",
    "p_empty": "the share of shards that hold no match, and need not have been opened",
    "FPR": "false positive rate: of the shards that hold no match, the share that a front lets through",
    "oracle": "a filter without false positives and without cost; where it does not win, none can",
    "none, `always`": "no filter: every shard is opened",
    "tight memory": "rivals are no filter, the max vector, and a joint bitset of no more bytes",
    "free memory": "those, and every exact structure that holds all nodes",
    "win, tie, loss": "the interval of the ratio of costs lies below .95, between .95 and 1.05, above 1.05; else "
    "undecided",
}
"""What the report's tables are told in, for who has not read the registration."""


@dataclass(frozen=True, slots=True)
class Told:
    """All that the report says, whatever it is written as."""

    head: list[str]
    warnings: list[str]
    findings: list[Finding]
    advice: list[str]
    pictures: list[tuple[str, Path]]
    tables: list[Table]


def write(
    design: Design,
    registration: Registration,
    environment: Environment,
    records: Sequence[Record],
    folder: Path,
    rates: Mapping[str, float],
) -> list[Path]:
    """Writes all forms of the report into `folder`; returns the files."""
    evidence = Evidence(design, records)
    told = Told(
        _head(design, registration, environment, records),
        warnings_of(design, registration, records),
        judge(evidence),
        tree(evidence),
        draw_all(evidence, folder, rates),
        all_tables(evidence),
    )
    files = [folder / f"{NAME}.{kind}" for kind in ("md", "html", "json", "csv")]
    files[0].write_text(markdown(told), encoding="utf-8")
    files[1].write_text(page(told), encoding="utf-8")
    files[2].write_bytes(_json(design, registration, environment, told, records))
    _csv(files[3], evidence)
    return [*files, *(path for _, path in told.pictures)]


def _head(design: Design, registration: Registration, environment: Environment, records: Sequence[Record]) -> list[str]:
    wanted = Counter(unit.block for unit in design.units())
    done = Counter(record["block"] for record in records if "failed" not in record)
    by_seed = Counter(record["seed"] for record in records if "failed" not in record)
    seeds = ", ".join(f"{seed}: {count}" for seed, count in sorted(by_seed.items()))
    blocks = ", ".join(f"{block} {done[block]} of {count}" for block, count in wanted.items())
    share = sum(done.values()) / max(1, sum(wanted.values()))
    return [
        f"The design: {registration.line}.",
        f"Mode `{design.mode}`: {sum(done.values()):,} of {sum(wanted.values()):,} units ({100 * share:.0f} %), "
        f"by seed {seeds or 'none'}; by block: {blocks}.",
        *environment.lines(),
        f"Intervals: {100 * design.raw['confidence']:g} %, bootstrap over seeds and batches, "
        f"{design.raw['resamples']:,} resamples; "
        f"a win is a cost surely below {1 - design.raw['margin']:g} of the rival's.",
    ]


def warnings_of(design: Design, registration: Registration, records: Sequence[Record]) -> list[str]:
    """What a reader must know before the figures."""
    warnings = []
    if not registration.commit:
        warnings.append(registration.line)
    if design.mode == "quick":
        warnings.append("Quick mode: few seeds and levels, range filters up to 10,000 nodes only: a first answer.")
    elif design.mode == "medium":
        warnings.append("Medium mode: fewer levels and seeds than were first registered (Deviations, 7).")
    missing = len(list(design.units())) - sum("failed" not in record for record in records)
    if missing:
        warnings.append(f"{missing:,} units have not finished: the run was stopped. Cells rest on the seeds that have.")
    absent = Counter(text.split(":")[0] for record in records for text in record.get("absent", {}).values())
    if absent:
        warnings.append(
            "Absent here: " + ", ".join(f"{name} (in {count} units)" for name, count in absent.items()) + "."
        )
    wrong = {name for record in records for name, each in record.get("candidates", {}).items() if each.get("wrong")}
    if wrong:
        warnings.append("WRONG ANSWERS, and therefore left out: " + ", ".join(sorted(wrong)) + ".")
    cut = Counter(name for record in records for name, each in record.get("candidates", {}).items() if each.get("cut"))
    if cut:
        warnings.append(
            "Cut short by the limit of time in some batch: "
            + ", ".join(f"{name} ({count} units)" for name, count in cut.items())
            + "."
        )
    failed = [record for record in records if "failed" in record]
    if failed:
        warnings.append(
            f"{len(failed)} units failed; the first, {failed[0]['key']}: {failed[0]['failed'].strip().splitlines()[-1]}"
        )
    return warnings


def markdown(told: Told) -> str:
    lines = ["# Filters and indexes for matching pods to nodes: the report", ""]
    lines += [
        "Written by `minikube-py lab study bloom`; every figure is from the run's journal. What was asked, and how it",
        "was to be judged, stands in [bloom.md](bloom.md).",
        "",
    ]
    lines += [f"- {line}" for line in told.head] + [""]
    lines += [f"> **Note.** {line}" + "\n>" for line in told.warnings] + [""]
    lines += ["## Words", "", *(f"- **{word}**: {meaning}." for word, meaning in WORDS.items()), ""]
    lines += ["## Predictions", "", "| | Prediction | | Evidence |", "|---|---|---|---|"]
    lines += [f"| {each.name} | {each.claim} | **{each.outcome}** | {each.evidence} |" for each in told.findings]
    lines += ["", "## Advice, with thresholds from these data", "", *told.advice, ""]
    lines += ["## Pictures", ""]
    for caption, path in told.pictures:
        lines += [f"**{caption}**", "", f"![{caption}]({path.name})", ""]
    lines += ["## Tables", ""]
    for table in told.tables:
        lines += [f"### {table.title}", "", _row(table.columns), "|---|" + "---:|" * (len(table.columns) - 1)]
        lines += [_row(row) for row in table.rows] + [""]
    return "\n".join(lines)


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def page(told: Told) -> str:
    def safe(text: str) -> str:
        parts = html.escape(text).split("**")
        # Every other part stood between the marks of bold.
        text = "".join(f"<b>{part}</b>" if number % 2 else part for number, part in enumerate(parts))
        return "".join(f"<code>{part}</code>" if number % 2 else part for number, part in enumerate(text.split("`")))

    body = ["<h1>Filters and indexes for matching pods to nodes</h1>"]
    body += ["<ul>", *(f"<li>{safe(line)}</li>" for line in told.head), "</ul>"]
    body += [f'<p class="warn">{safe(line)}</p>' for line in told.warnings]
    words = [f"<li>{safe(f'**{word}**: {meaning}.')}</li>" for word, meaning in WORDS.items()]
    body += ["<h2>Words</h2>", "<ul>", *words, "</ul>"]
    findings = Table("Predictions", ("", "prediction", "outcome", "evidence"))
    for each in told.findings:
        findings.add(each.name, each.claim, each.outcome, each.evidence)
    body += ["<h2>Predictions</h2>", _html_table(findings), "<h2>Advice, with thresholds from these data</h2>"]
    body += [
        f"<p style='margin-left:{line.index(line.strip()) * 0.6}em'>{safe(line.strip().removeprefix('- '))}</p>"
        for line in told.advice
    ]
    body += ["<h2>Pictures</h2>"]
    body += [
        f'<h3>{safe(caption)}</h3><img src="{path.name}" alt="{html.escape(caption)}">'
        for caption, path in told.pictures
    ]
    body += ["<h2>Tables</h2>"]
    for table in told.tables:
        body += [f"<h3>{safe(table.title)}</h3>", _html_table(table)]
    title = "Filters and indexes for matching pods to nodes"
    return f"<!doctype html><meta charset=utf-8><title>{title}</title><style>{STYLE}</style>\n" + "\n".join(body) + "\n"


def _html_table(table: Table) -> str:
    rows = ["<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in table.rows]
    head = "<tr>" + "".join(f"<th>{html.escape(cell)}</th>" for cell in table.columns) + "</tr>"
    return "<table>" + head + "\n".join(rows) + "</table>"


def _json(
    design: Design, registration: Registration, environment: Environment, told: Told, records: Sequence[Record]
) -> bytes:
    document: dict[str, Any] = {
        "study": "bloom",
        "mode": design.mode,
        "registration": asdict(registration),
        "environment": environment.as_dict(),
        "units_finished": sum("failed" not in record for record in records),
        "warnings": told.warnings,
        "findings": [asdict(each) for each in told.findings],
        "advice": told.advice,
        "tables": [{"title": table.title, "columns": table.columns, "rows": table.rows} for table in told.tables],
    }
    return orjson.dumps(document, option=orjson.OPT_INDENT_2) + b"\n"


def _csv(path: Path, evidence: Evidence) -> None:
    """One line for each cell and candidate. What it costs anywhere in the ledger is a sum of its columns:
    query_us + opened * C_behind + U/Q * update_us."""
    found = evidence.cells("grid", "dimensions", "bits", "repetition", "placement", "ranges")
    factors = sorted({name for cell in found for name in cell.levels})
    measured = ["seeds", "query_us", "update_us", "opened", "p_empty", "false_positive_rate", "filter_bytes"]
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["block", "limit", *factors, "candidate", *measured])
        for cell in found:
            levels = [cell.levels.get(factor, "") for factor in factors]
            for name in cell.names:
                figures = [cell.query(name), cell.update(name), cell.opened(name)]
                figures += [cell.p_empty(), cell.false_positive_rate(name)]
                row = [cell.block, cell.limit, *levels, name, len(cell.records)]
                writer.writerow([*row, *(f"{value:.4g}" for value in figures), cell.bytes(name)])

"""The report of a study: Markdown, HTML, CSV and JSON, with machine and commits above every figure."""

from __future__ import annotations

import csv
import html
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import orjson

from minikube_py.lab.environment import Environment
from minikube_py.lab.report import Table
from minikube_py.lab.study.audit import warnings_of
from minikube_py.lab.study.design import Design
from minikube_py.lab.study.experiment import Account, Finding, Rates, Study
from minikube_py.lab.study.journal import Record
from minikube_py.lab.study.registration import Registration, told

STYLE = """body{font:15px/1.5 system-ui,sans-serif;max-width:1100px;margin:2em auto;padding:0 1em;color:#1a202c}
table{border-collapse:collapse;margin:1em 0;font-size:13px;display:block;overflow-x:auto}
td,th{padding:3px 9px;border-bottom:1px solid #e2e8f0;text-align:right}td:first-child,th:first-child{text-align:left}
img{max-width:100%}h2{margin-top:2em}.warn{color:#c53030;font-weight:bold}li{margin:.3em 0}"""
ADVICE = "Advice, with thresholds from these data"


@dataclass(frozen=True, slots=True)
class Written:
    """The report's content, independent of format, and its files."""

    study: Study
    head: list[str]
    warnings: list[str]
    account: Account
    files: list[Path] = field(default_factory=list)

    @property
    def findings(self) -> list[Finding]:
        return self.account.findings


def write(
    study: Study,
    design: Design,
    registration: Registration,
    environment: Environment,
    records: Sequence[Record],
    folder: Path,
    rates: Rates,
) -> Written:
    """Writes the report in all formats to `folder`."""
    account = study.tell(design, records, folder, rates)
    head = _head(study, design, registration, environment, records)
    made = Written(study, head, warnings_of(study, design, registration, records), account)
    files = [folder / f"{study.name}-report.{kind}" for kind in ("md", "html", "json", "csv")]
    files[0].write_text(markdown(made), encoding="utf-8")
    files[1].write_text(page(made), encoding="utf-8")
    files[2].write_bytes(_json(design, registration, environment, made, records))
    with files[3].open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(account.rows)
    made.files.extend([*files, *(path for _, path in account.pictures)])
    return made


def _head(
    study: Study, design: Design, registration: Registration, environment: Environment, records: Sequence[Record]
) -> list[str]:
    wanted = Counter(unit.block for unit in design.units())
    done = Counter(record["block"] for record in records if "failed" not in record)
    by_seed = Counter(record["seed"] for record in records if "failed" not in record)
    seeds = ", ".join(f"{seed}: {count}" for seed, count in sorted(by_seed.items()))
    blocks = ", ".join(f"{block} {done[block]} of {count}" for block, count in wanted.items())
    share = sum(done.values()) / max(1, sum(wanted.values()))
    return [
        f"The design: {registration.line(told(study.text))}.",
        f"Mode `{design.mode}`: {sum(done.values()):,} of {sum(wanted.values()):,} units ({100 * share:.0f} %), "
        f"by seed {seeds or 'none'}; by block: {blocks}.",
        *environment.lines(),
        study.intervals(design),
    ]


def markdown(made: Written) -> str:
    study, account = made.study, made.account
    lines = [f"# {study.title}: the report", ""]
    lines += [
        f"Written by `minikube-py lab study {study.name}`; every figure is from the run's journal. "
        "The questions and criteria",
        f"are in [{study.text.name}]({study.text.name}).",
        "",
    ]
    lines += [f"- {line}" for line in made.head] + [""]
    lines += [f"> **Note.** {line}" + "\n>" for line in made.warnings] + [""]
    if study.words:
        lines += ["## Words", "", *(f"- **{word}**: {meaning}." for word, meaning in study.words.items()), ""]
    lines += ["## Predictions", "", "| | Prediction | | Evidence |", "|---|---|---|---|"]
    lines += [f"| {each.name} | {each.claim} | **{each.outcome}** | {each.evidence} |" for each in account.findings]
    if account.advice:
        lines += ["", f"## {ADVICE}", "", *account.advice]
    lines += ["", "## Pictures", ""] if account.pictures else [""]
    for caption, path in account.pictures:
        lines += [f"**{caption}**", "", f"![{caption}]({path.name})", ""]
    lines += ["## Tables", ""]
    for table in account.tables:
        lines += [f"### {table.title}", "", _row(table.columns), "|---|" + "---:|" * (len(table.columns) - 1)]
        lines += [_row(row) for row in table.rows] + [""]
    return "\n".join(lines)


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def page(made: Written) -> str:
    def safe(text: str) -> str:
        parts = html.escape(text).split("**")
        # Every other part was between bold markers.
        text = "".join(f"<b>{part}</b>" if number % 2 else part for number, part in enumerate(parts))
        return "".join(f"<code>{part}</code>" if number % 2 else part for number, part in enumerate(text.split("`")))

    study, account = made.study, made.account
    body = [f"<h1>{study.title}</h1>"]
    body += ["<ul>", *(f"<li>{safe(line)}</li>" for line in made.head), "</ul>"]
    body += [f'<p class="warn">{safe(line)}</p>' for line in made.warnings]
    words = [f"<li>{safe(f'**{word}**: {meaning}.')}</li>" for word, meaning in study.words.items()]
    body += ["<h2>Words</h2>", "<ul>", *words, "</ul>"] if words else []
    findings = Table("Predictions", ("", "prediction", "outcome", "evidence"))
    for each in account.findings:
        findings.add(each.name, each.claim, each.outcome, each.evidence)
    body += ["<h2>Predictions</h2>", _html_table(findings), *([f"<h2>{ADVICE}</h2>"] if account.advice else [])]
    body += [
        f"<p style='margin-left:{line.index(line.strip()) * 0.6}em'>{safe(line.strip().removeprefix('- '))}</p>"
        for line in account.advice
    ]
    body += ["<h2>Pictures</h2>"] if account.pictures else []
    body += [
        f'<h3>{safe(caption)}</h3><img src="{path.name}" alt="{html.escape(caption)}">'
        for caption, path in account.pictures
    ]
    body += ["<h2>Tables</h2>"]
    for table in account.tables:
        body += [f"<h3>{safe(table.title)}</h3>", _html_table(table)]
    head = f"<!doctype html><meta charset=utf-8><title>{study.title}</title><style>{STYLE}</style>\n"
    return head + "\n".join(body) + "\n"


def _html_table(table: Table) -> str:
    rows = ["<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in table.rows]
    head = "<tr>" + "".join(f"<th>{html.escape(cell)}</th>" for cell in table.columns) + "</tr>"
    return "<table>" + head + "\n".join(rows) + "</table>"


def _json(
    design: Design, registration: Registration, environment: Environment, made: Written, records: Sequence[Record]
) -> bytes:
    account = made.account
    document: dict[str, Any] = {
        "study": made.study.name,
        "mode": design.mode,
        "registration": registration.as_dict(),
        "environment": environment.as_dict(),
        "units_finished": sum("failed" not in record for record in records),
        "warnings": made.warnings,
        "findings": [asdict(each) for each in account.findings],
        "advice": account.advice,
        "tables": [{"title": table.title, "columns": table.columns, "rows": table.rows} for table in account.tables],
    }
    return orjson.dumps(document, option=orjson.OPT_INDENT_2) + b"\n"

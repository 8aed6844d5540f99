"""The committed journals give the committed reports, whoever ran the studies."""

import csv
import gzip
import io
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import orjson
import pytest

from minikube_py.lab.study.experiment import find
from minikube_py.lab.study.journal import digest
from minikube_py.lab.study.measured import Measured, labels_beside
from minikube_py.studies.bloom.predictions import ALL, Evidence, in_process
from minikube_py.studies.bloom.study import Bloom, csv_rows
from minikube_py.studies.emptiness.study import Emptiness
from minikube_py.studies.prediction.study import Prediction

STUDIES = Path(__file__).resolve().parents[3] / "docs/studies"


def test_the_committed_journal_gives_the_committed_report() -> None:
    lines = gzip.decompress((STUDIES / "data/bloom-medium.jsonl.gz").read_bytes()).splitlines()
    header, *records = map(orjson.loads, lines)
    design = Bloom().load("medium")
    assert header["design"] == digest(design)
    evidence = Evidence(design, records)
    written = io.StringIO()
    csv.writer(written).writerows(csv_rows(evidence))
    assert written.getvalue() == (STUDIES / "bloom-report.csv").read_bytes().decode()
    reported = {each["name"]: each for each in json.loads((STUDIES / "bloom-report.json").read_text())["findings"]}
    # P1 alone takes as long as the others together.
    for judged in ALL:
        if judged is not in_process:
            found = judged(evidence)
            wanted = reported[found.name]
            assert (found.outcome, found.evidence) == (wanted["outcome"], wanted["evidence"])


LATER = (
    *("constraints", "watched", "watched-synthetic", "range-filter", "compiled-fronts"),
    *("bounded-skyline", "bounded-skyline-cost", "by-request", "lazy-skyline", "lazy-requests", "prediction-curves"),
    "compiled-waiting",
    "reasons",
    "compiled-reasons",
)


@pytest.mark.parametrize(
    ("study", "mode", "report"),
    [
        (Emptiness(), "quick", "emptiness-report"),
        (Emptiness(), "full", "emptiness-full-report"),
        (Prediction(), "full", "prediction-report"),
        (find(str(STUDIES / "end-to-end.toml")), "medium", "end-to-end-report"),
        (find(str(STUDIES / "end-to-end-room.toml")), "medium", "end-to-end-room-report"),
        (find(str(STUDIES / "bounded-skyline-cost.toml")), "quick-2", "bounded-skyline-cost-quick-2-report"),
        *((find(str(STUDIES / f"{each}.toml")), "quick", f"{each}-report") for each in LATER),
    ],
    ids=("emptiness", "emptiness, all lists", "prediction", "end-to-end", "end-to-end, with room", "a repeat", *LATER),
)
def test_the_committed_journal_of_a_contest_gives_its_report(study: Any, mode: str, report: str) -> None:
    lines = gzip.decompress((STUDIES / f"data/{study.name}-{mode}.jsonl.gz").read_bytes()).splitlines()
    header, *records = map(orjson.loads, lines)
    design = study.load(mode.partition("-")[0])
    assert header["design"] == digest(design)
    measured = Measured(design, records, labels_beside(study.packaged), study.shares)
    document = json.loads((STUDIES / f"{report}.json").read_text())
    assert [asdict(each) for each in measured.judge()] == document["findings"]
    tables = [[each.title, list(each.columns), list(map(list, each.rows))] for each in measured.tables()]
    assert tables == [[each["title"], each["columns"], each["rows"]] for each in document["tables"]]
    assert measured.biased == {} and measured.wrong == set()

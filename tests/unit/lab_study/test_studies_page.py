"""What the page of the studies says about prices and sizes of fronts follows from the committed reports."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from statistics import fmean

STUDIES = Path(__file__).resolve().parents[3] / "docs/studies"
POLICIES = ("packed", "spread")
Figures = dict[tuple[str, str], dict[str, float]]


def figures(report: str, table: int = 0) -> Figures:
    """By front and level, the means of a table whose second column is a factor."""
    shown = json.loads((STUDIES / f"{report}-report.json").read_text(encoding="utf-8"))["tables"][table]
    return {
        (name, str(level)): {
            head: float(str(cell).split()[0]) for head, cell in zip(shown["columns"][2:], cells) if cell != "-"
        }
        for name, level, *cells in shown["rows"]
    }


def page() -> str:
    return " ".join((STUDIES / "README.md").read_text(encoding="utf-8").split())


def prices(form: str, rival: str, changes: int, opened: Figures, head: str) -> list[float]:
    """From what price of opening a shard, in us, a skyline costs less than a rival: by how pods are placed."""
    timed = figures("compiled-fronts" if form else "emptiness")

    def cost(name: str, policy: str) -> float:
        of = timed[name + form, policy]
        return of["a request, us"] + changes * of["a change, us"]

    more = [cost("skyline", policy) - cost(rival, policy) for policy in POLICIES]
    saved = [opened[rival, policy][head] - opened["skyline", policy][head] for policy in POLICIES]
    return sorted(us / shards for us, shards in zip(more, saved))


def told(low: float, high: float, digits: int) -> str:
    return f"{low:.{digits}f} to {high:.{digits}f}"


def test_from_which_price_a_skyline_pays_is_what_the_reports_give() -> None:
    first = figures("bounded-skyline")
    for form, digits, title in (("", 0, "numpy"), ("@compiled", 1, "compiled")):
        all_that_pass = figures("compiled-fronts" if form else "emptiness")
        for changes, in_words in ((1, "one change a request"), (10, "ten changes")):
            cells = [
                told(*prices(form, rival, changes, opened, head), digits)
                for opened, head in ((all_that_pass, "shards opened for a request"), (first, "opened_first"))
                for rival in ("repairing-max", "max-vectors-4")
            ]
            assert f"| {title}, {in_words} | {' | '.join(cells)} |" in page()


def test_a_copy_of_all_nodes_takes_as_much_cpu_as_the_page_says() -> None:
    times = figures("compiled-fronts")

    def beside(requests: int, changes: int) -> list[str]:
        costs = [
            [
                requests * times[f"{name}@compiled", policy]["a request, us"]
                + changes * times[f"{name}@compiled", policy]["a change, us"]
                for name in ("oracle", "skyline")
            ]
            for policy in POLICIES
        ]
        return [f"{copy / skyline:.1f}" for copy, skyline in costs]

    assert beside(1, 1) == ["1.1", "0.8"] and sorted(beside(3, 1)) == ["1.4", "2.1"] and beside(1, 10) == ["0.3", "0.3"]
    for said in ("1.1 times where pods are packed, 0.8 where they are spread", "1.4 to 2.1 times", "a third at ten"):
        assert said in page()


def test_four_vectors_over_a_skyline_take_a_third_to_a_half_of_its_bytes() -> None:
    found = figures("bounded-skyline")
    shares = [found["bounded-skyline-4", each]["bytes"] / found["skyline", each]["bytes"] for each in POLICIES]
    assert 0.3 < min(shares) < max(shares) < 0.55
    by_list = json.loads((STUDIES / "bounded-skyline-report.json").read_text(encoding="utf-8"))["tables"][3]["rows"]
    let = [float(str(row[5]).split()[0]) for row in by_list if row[0] == "bounded-skyline-4"]
    assert len(let) == 10
    in_hundred = f"{100 * min(let):.0f} to {100 * max(let):.0f}"
    assert f"let through {in_hundred} of 100 full shards, by list" in page()
    readme = " ".join((STUDIES / "../../README.md").read_text(encoding="utf-8").split())
    assert f"a third to half its size, err for {in_hundred} of 100 full shards, by list of pods, on one trace" in readme
    shown = json.loads((STUDIES / "by-request-report.json").read_text(encoding="utf-8"))["tables"][1]["rows"]
    other = [float(str(row[5]).split()[0]) for row in shown if row[:2] == ["bounded-skyline-4", "none"]]
    assert f"for {100 * min(other):.0f} to {100 * max(other):.0f} on the other" in readme


def test_what_learning_a_request_opens_is_what_the_page_says() -> None:
    """From the journal: the nodes that were read to learn, as shards a request; and the price from which it loses."""
    lines = gzip.decompress((STUDIES / "data/by-request-quick.jsonl.gz").read_bytes()).splitlines()
    opened: dict[tuple[str, str, str], dict[str, list[list[float]]]] = {}
    for record in map(json.loads, lines[1:]):
        levels = record["levels"]
        if record["block"] != "grid":
            for name in ("by-request", "by-request@known"):
                own, skyline = (record["candidates"][each]["figures"] for each in (name, "skyline"))
                spent = [fmean(each["answer_us"]) + fmean(each["change_us"]) for each in (own, skyline)]
                shards = 16 * fmean(own["rows_read"]) / (1280 if levels["list"] == "dlrm" else 1213)
                block = opened.setdefault((record["block"], levels["rules"], name), {})
                block.setdefault(levels["list"] + levels["policy"], []).append([shards, *spent])
    wanted = {
        ("openb", "none", "by-request"): ("2.1 to 2.2", "54 to 90"),
        ("dlrm", "none", "by-request"): ("1.8 to 1.9", "76 to 101"),
        ("dlrm", "all", "by-request"): ("6.1 to 6.2", "56 to 62"),
        ("dlrm", "all", "by-request@known"): ("3.4 to 3.5", "104 to 111"),
    }
    for key, cells in opened.items():
        means = [[fmean(column) for column in zip(*cell)] for cell in cells.values()]
        shards = [each for each, _, _ in means]
        if key not in wanted:
            assert shards == [0.0] * len(shards)
            continue
        loses = [(skyline - own) / each for each, own, skyline in means]
        said = told(min(shards), max(shards), 1), told(min(loses), max(loses), 0)
        assert said == wanted[key] and all(each in page() for each in said)


def test_a_bit_for_each_request_is_exact_and_cheap_to_keep_up_where_the_page_says_so() -> None:
    found = figures("by-request")
    for policy in POLICIES:
        known, skyline, four = (found[each, policy] for each in ("by-request@known", "skyline", "bounded-skyline-4"))
        assert known["share of full shards let through"] == 0.0
        assert 6 < skyline["a change, us"] / known["a change, us"] < 10
        assert 10 < four["a change, us"] / known["a change, us"] < 21
        assert known["bytes"] > skyline["bytes"] > found["by-request", policy]["bytes"] > four["bytes"]


def test_what_a_skyline_that_waits_costs_is_what_the_page_says() -> None:
    document = json.loads((STUDIES / "lazy-skyline-report.json").read_text(encoding="utf-8"))
    evidence = {each["name"]: each["evidence"] for each in document["findings"]}
    for name, figure, said in (
        ("P1", "0.818 [0.781, 0.856]", "0.82 (0.78 to 0.86)"),
        ("P2", "0.629 [0.497, 0.798]", "0.63 (0.50 to 0.80)"),
        ("P3", "0.287 [0.173, 0.476]", "0.29 (0.17 to 0.48)"),
        ("P7", "0.815 [0.7, 0.949]", "0.82 (0.70 to 0.95)"),
        ("P8", "1.03 [0.919, 1.15]", "1.03 (0.92 to 1.15)"),
        ("P14", "1.52 [1.18, 1.96]", "1.52, 1.18 to 1.96"),
        ("P15", "1.92 [1.53, 2.42]", "1.92, 1.53 to 2.42"),
    ):
        assert figure in evidence[name] and said in page()

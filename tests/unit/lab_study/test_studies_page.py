"""What the page of the studies says about prices and sizes of fronts follows from the committed reports."""

from __future__ import annotations

import json
from pathlib import Path

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
    let = sorted(found["bounded-skyline-4", each]["share of full shards let through"] for each in POLICIES)
    in_hundred = " to ".join(f"{100 * each:.0f}" for each in let)
    assert f"let through {in_hundred} of 100 full shards" in page()
    readme = " ".join((STUDIES / "../../README.md").read_text(encoding="utf-8").split())
    assert f"a third to half its size, err for {in_hundred} of 100 full shards on one real list" in readme


def test_a_bit_for_each_request_is_exact_and_cheap_to_keep_up_where_the_page_says_so() -> None:
    found = figures("by-request")
    for policy in POLICIES:
        known, skyline, four = (found[each, policy] for each in ("by-request@known", "skyline", "bounded-skyline-4"))
        assert known["share of full shards let through"] == 0.0
        assert 6 < skyline["a change, us"] / known["a change, us"] < 10
        assert 10 < four["a change, us"] / known["a change, us"] < 21
        assert known["bytes"] > skyline["bytes"] > found["by-request", policy]["bytes"] > four["bytes"]

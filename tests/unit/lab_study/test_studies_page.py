"""What the page of the studies says about prices and sizes of fronts follows from the committed reports."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from statistics import fmean

import pytest

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


def evidence_of(study: str) -> dict[str, tuple[float, ...]]:
    """By prediction, the figure and the ends of its interval."""
    document = json.loads((STUDIES / f"{study}-report.json").read_text(encoding="utf-8"))
    found = {}
    for each in document["findings"]:
        value = re.search(r": (\S+) \[(\S+), (\S+)\]", each["evidence"])
        assert value is not None, each
        found[each["name"]] = tuple(map(float, value.groups()))
    return found


@pytest.mark.parametrize("name", ["P1", "P2", "P3", "P4", "P5", "P6", "P7", "P9", "P10", "P11", "P13", "P16", "P17"])
def test_what_a_skyline_that_waits_costs_is_what_the_page_says(name: str) -> None:
    value, low, high = evidence_of("lazy-skyline")[name]
    digits = 1 if value > 2 else 2
    assert f"{value:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})" in page()


def test_what_learned_and_given_bits_cost_beside_a_skyline_that_waits_is_what_the_page_says() -> None:
    found = evidence_of("lazy-skyline")
    for name in ("P14", "P15"):
        assert "{:.2f}, {:.2f} to {:.2f}".format(*found[name]) in page()
    assert "1.03 (0.997 to 1.07) (P8)" in page() and found["P8"] == (1.03, 0.997, 1.07)


WAITS = (
    ("openb, one change a request", 0, ("packed", "spread")),
    ("openb, ten changes, two lists", 1, ("packed", "spread")),
    ("DLRM without rules, one change", 2, ("none packed", "none spread")),
    ("DLRM with all rules, one change", 2, ("all packed", "all spread")),
    ("synthetic, correlation 0 and -0.8, one change", 3, ("0", "-0.8")),
    ("synthetic, ten changes", 4, ("0", "-0.8")),
)


def waiting(table: int, study: str = "lazy-skyline") -> Figures:
    """As `figures`, of studies in turns, whose tables have one factor or two."""
    shown = json.loads((STUDIES / f"{study}-report.json").read_text(encoding="utf-8"))["tables"][table]
    first = shown["columns"].index("clusters")
    return {
        (name, " ".join(map(str, row[: first - 1]))): {
            head: float(str(cell).split()[0])
            for head, cell in zip(shown["columns"][first + 1 :], row[first:], strict=True)
            if cell != "-"
        }
        for name, *row in shown["rows"]
    }


@pytest.mark.parametrize(("title", "table", "levels"), WAITS)
def test_from_which_price_a_skyline_that_waits_pays_is_what_the_report_gives(
    title: str, table: int, levels: tuple[str, str]
) -> None:
    """Against four max vectors, of both skylines; and from which price the one that is kept up at once costs less."""
    found, cells = waiting(table), []
    for first in ("", "@first"):
        prices: dict[str, list[float]] = {"skyline": [], "skyline-repaired": [], "up to": []}
        for level in levels:
            four, at_once, waits = (
                found[name + first, level] for name in ("max-vectors-4", "skyline", "skyline-repaired")
            )
            for name, front in (("skyline", at_once), ("skyline-repaired", waits)):
                saved = four["opened_in_all"] - front["opened_in_all"]
                prices[name].append((front["turn_us"] - four["turn_us"]) / saved)
            if table < 3:
                more = waits["opened_in_all"] - at_once["opened_in_all"]
                prices["up to"].append((at_once["turn_us"] - waits["turn_us"]) / more)
            elif waits["in_vain"]:
                prices["up to"].append((at_once["turn_us"] - waits["turn_us"]) / waits["in_vain"])
        for each in prices.values():
            each.sort()
        cells += [f"{low:,.0f} to {high:,.0f}" for low, high in (prices["skyline"], prices["skyline-repaired"])]
        if table < 3:
            cells.append("{:,.0f} to {:,.0f}".format(*prices["up to"]))
        else:
            bound = 10 ** (len(str(int(prices["up to"][0]))) - 1)
            cells.append(f"over {int(prices['up to'][0] / bound) * bound:,}")
    assert f"| {title} | {' | '.join(cells)} |" in page()


def test_the_readme_gives_what_a_pod_costs_in_all_as_the_report_does() -> None:
    tables = [
        json.loads((STUDIES / f"{study}-report.json").read_text(encoding="utf-8"))["tables"][0]
        for study in ("compiled-reasons", "reasons")
    ]
    readme = (STUDIES / "../../README.md").read_text(encoding="utf-8")
    for front, words in (
        ("none", "| nothing |"),
        ("max-vectors-4", "| four maxima a shard |"),
        ("skyline", "| a skyline: the nodes"),
        ("skyline-repaired", "| a skyline that is formed again"),
        ("refused", "| the smallest requests that were refused"),
        ("reasons", "| why: the least amounts"),
        ("by-request-lazy", "| a bit for each distinct request and shard, learned"),
        ("by-request@known", "| a bit for each distinct request and shard, all"),
        ("copy", "| a copy of what all"),
    ):
        cells = []
        for shown, form in zip(tables, ("@compiled", ""), strict=True):
            at = shown["columns"].index("later_whole_cost_at_100_us")
            for policy in POLICIES:
                (cell,) = [row[at] for row in shown["rows"] if row[:2] == [f"{front}{form}@first", policy]]
                value, low, high = (float(each) for each in re.findall(r"[\d.e+]+", cell))
                cells.append(f"{value:,.0f} ± {(high - low) / 2:,.0f}")
        (line,) = [each for each in readme.splitlines() if each.startswith(words)]
        assert line.endswith(f"| {' | '.join(cells)} |"), line
    ratios = evidence_of("compiled-reasons")
    for name in ("P3", "P5", "P11", "P12", "P14", "P15"):
        assert ratio(*ratios[name]) in " ".join(readme.split()), name
    ratios = evidence_of("reasons")
    for name in ("P2", "P3", "P4", "P8", "P12", "P13", "P14", "P15", "P23", "P27"):
        assert ratio(*ratios[name]) in " ".join(readme.split()), name
    for head, words in (("empty", "{:.2f} and {:.2f} of the shards"), ("found", "{:.2f} and {:.2f} of the pods")):
        shares = [waiting(0, "reasons")["none@first", each][f"later_{head}"] for each in POLICIES]
        assert words.format(*shares) in " ".join(readme.split())


def ratio(value: float, low: float, high: float) -> str:
    digits = 1 if value > 2 else 2
    return f"{value:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"


REASONS = (
    ("none", "no front"),
    ("max-vectors-4", "four max vectors"),
    ("skyline", "a skyline, kept up at once"),
    ("skyline-repaired", "a skyline that waits"),
    ("refused", "refused requests"),
    ("reasons", "**reasons**"),
    ("by-request-lazy", "bits learned from openings in vain"),
    ("by-request@known", "a bit for each request, all given"),
    ("copy", "**a copy of all nodes, in columns**"),
)


def test_what_fronts_cost_in_clusters_that_stay_full_is_what_the_page_says() -> None:
    found = waiting(0, "reasons")
    elsewhere = (
        (2, "@next", POLICIES), (3, "@first", ("1.1 packed", "1.1 spread")), (3, "@next", ("1.1 packed", "1.1 spread")),
        (4, "@first", ("spread",)), (5, "@first", ("none packed", "none spread")),
        (5, "@first", ("all packed", "all spread")), (6, "@first", ("0.8",)), (6, "@first", ("0",)),
        (6, "@first", ("-0.8",)),
    )  # fmt: skip
    for front, words in REASONS:
        cells = []
        for head, form in (
            ("later_turn_us", ",.0f"),
            ("later_opened_in_all", ",.2f"),
            ("later_whole_cost_at_100_us", ",.0f"),
            ("later_whole_cost_at_400_us", ",.0f"),
            ("later_bytes", ",.0f"),
        ):
            cells.append(" and ".join(f"{found[f'{front}@first', each][head]:{form}}" for each in POLICIES))
        assert f"| {words} | {' | '.join(cells)} |" in page()
        cells = []
        for table, order, levels in elsewhere:
            there = [waiting(table, "reasons").get((front + order, level)) for level in levels]
            cells.append(" and ".join(f"{each['later_whole_cost_at_100_us']:,.0f}" for each in there if each) or "-")
        assert f"| {words} | {' | '.join(cells)} |" in page()


@pytest.mark.parametrize(
    ("table", "levels", "words"),
    [
        (0, POLICIES, "from {} µs on there"),
        (5, ("all packed", "all spread"), "{} with DLRM's rules"),
        (6, ("0", "-0.8"), "{} on synthetic clusters"),
    ],
)
def test_from_which_price_reasons_cost_more_than_a_skyline_that_waits(
    table: int, levels: tuple[str, str], words: str
) -> None:
    found, prices = waiting(table, "reasons"), []
    for level in levels:
        reasons, waits = (found[f"{name}@first", level] for name in ("reasons", "skyline-repaired"))
        more = reasons["later_opened_in_all"] - waits["later_opened_in_all"]
        prices.append((waits["later_turn_us"] - reasons["later_turn_us"]) / more)
    assert words.format(f"{min(prices):,.0f} to {max(prices):,.0f}") in page()


def test_what_fronts_cost_in_turns_is_what_the_page_says() -> None:
    found = waiting(0)
    for front, words in (
        ("oracle", "all nodes"),
        ("by-request@known", "a bit for each request, all known"),
        ("by-request", "the same, learned when asked"),
        ("max-vectors-4", "four max vectors"),
        ("skyline", "skyline, kept up at once"),
        ("skyband-4", "skyband of 4, kept up at once"),
        ("skyline-dirty", "skyline, formed before it lets through"),
        ("skyline-repaired", "**skyline, formed after an opening in vain**"),
    ):
        cells = []
        for head, form in (
            ("turn_us", ",.0f"),
            ("opened_in_all", ".2f"),
            ("whole_cost_at_100_us", ",.0f"),
            ("whole_cost_at_400_us", ",.0f"),
        ):
            cells.append(" and ".join(f"{found[f'{front}@first', each][head]:{form}}" for each in POLICIES))
        assert f"| {words} | {' | '.join(cells)} |" in page()


def test_what_learned_requests_cost_is_what_the_page_says() -> None:
    found = waiting(0, "lazy-requests")
    for front, words in (
        ("oracle", "all nodes"),
        ("by-request@known", "a bit for each request, all known"),
        ("by-request-lazy", "**the same, learned from openings in vain**"),
        ("refused", "refused requests alone"),
        ("by-request", "a bit for each request, learned by opening all"),
        ("skyline-repaired", "a skyline that waits"),
        ("skyline", "a skyline, kept up at once"),
        ("max-vectors-4", "four max vectors"),
    ):
        cells = []
        for head, form in (
            ("turn_us", ",.0f"),
            ("opened_in_all", ".2f"),
            ("whole_cost_at_100_us", ",.0f"),
            ("whole_cost_at_400_us", ",.0f"),
            ("bytes", ",.0f"),
        ):
            later, whole = (
                " and ".join(f"{found[f'{front}@first', each][part + head]:{form}}" for each in POLICIES)
                for part in ("later_", "")
            )
            cells.append(f"{later} ({whole})")
        assert f"| {words} | {' | '.join(cells)} |" in page()


@pytest.mark.parametrize(
    ("table", "words"),
    [*enumerate(("above 7 µs an opening", "8 at ten changes", "23 with DLRM's rules", "38 on synthetic clusters"))],
)
def test_from_which_price_a_compiled_skyline_costs_less_than_all_that_learn(table: int, words: str) -> None:
    """A skyline that waits aside on synthetic clusters, where it opens next to nothing in vain."""
    found, prices = waiting(table, "compiled-reasons"), []
    for level in {level for _, level in found}:
        exact = found["skyline@compiled@first", level]
        for front in ("reasons", "by-request-lazy", "refused", *(["skyline-repaired"] if table < 3 else [])):
            other = found[f"{front}@compiled@first", level]
            more = other["later_opened_in_all"] - exact["later_opened_in_all"]
            prices.append((exact["later_turn_us"] - other["later_turn_us"]) / more)
    highest = int(re.findall(r"\d+", words)[0])
    assert highest - 1 < max(prices) <= highest and words in page()


@pytest.mark.parametrize("study", ["lazy-requests", "compiled-waiting", "reasons", "compiled-reasons"])
def test_each_prediction_of_studies_in_turns_stands_on_the_page(study: str) -> None:
    for name, (value, low, high) in evidence_of(study).items():
        digits = 1 if value > 2 else 2
        assert f"{value:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})" in page(), name


@pytest.mark.parametrize(
    ("table", "one", "four"),
    [
        (0, ("0.4 to 0.9", "0.6 to 1.2"), ("1.2 to 2.3", "1.6 to 3.0")),
        (1, ("11 to 15", "8"), ("14 to 21", "13 to 14")),
    ],
)
def test_from_which_price_a_compiled_skyline_pays_is_what_the_page_says(
    table: int, one: tuple[str, str], four: tuple[str, str]
) -> None:
    found = waiting(table, "compiled-waiting")
    for rival, words in (("repairing-max", one), ("max-vectors-4", four)):
        for front, said in zip(("skyline", "skyline-repaired"), words, strict=True):
            prices = []
            for policy in POLICIES:
                less, more = (found[f"{name}@compiled@first", policy] for name in (front, rival))
                prices.append((less["turn_us"] - more["turn_us"]) / (more["opened_in_all"] - less["opened_in_all"]))
            ends = list(dict.fromkeys(f"{each:.{1 - table}f}" for each in sorted(prices)))
            assert " to ".join(ends) == said and said in page()


def test_both_runs_of_the_bounded_skylines_costs_are_told() -> None:
    first, again = (evidence_of(each) for each in ("bounded-skyline-cost", "bounded-skyline-cost-quick-2"))
    for name, what in (("P1", "below 0.9"), ("P2", "more than"), ("P7", "more than")):
        assert f"| {name}: " in page() and what in page()
        for found in (first[name], again[name]):
            value, low, high = (f"{each:.3g}" for each in found)
            assert re.search(rf"\| {name}: [^|]*\|[^\n]*{value}0? \({low}0? to {high}0?\)", page())


def test_the_page_of_prediction_has_what_the_report_gives() -> None:
    shown = json.loads((STUDIES / "prediction-curves-report.json").read_text(encoding="utf-8"))["tables"]
    (table,) = [each for each in shown if each["title"] == "CPU alone limits: usable at equal violations"]
    at = table["columns"].index("usable at violations of at most 0.01")
    gains = {(row[0], row[1]): str(row[at]) for row in table["rows"]}
    told = (STUDIES.parent / "prediction.md").read_text(encoding="utf-8")
    for family, words in (
        ("ratio", "a fixed ratio of requests"),
        ("n-sigma-2h", "N-sigma, two hours of samples"),
        ("percentile-2h", "percentile, two hours"),
        ("n-sigma-30min", "N-sigma, half an hour"),
        ("percentile-30min", "percentile, half an hour"),
        ("ewma-30min", "EWMA, half an hour"),
        ("holt-winters-30min", "Holt-Winters, half an hour"),
    ):
        (line,) = [each for each in told.splitlines() if each.startswith(f"| {words} |")]
        for cell, usage in zip(line.split("|")[2:4], ("replayed", "busy"), strict=True):
            numbers = [float(each) for each in re.findall(r"[\d.]+", gains[family, usage])]
            assert [float(each) for each in re.findall(r"[\d.]+", cell)] == numbers, line
            assert ("its most" in cell) == ("its most" in gains[family, usage])
    for name, found in evidence_of("prediction-curves").items():
        if name in ("P1", "P2", "P4", "P9"):
            assert "{:.2f} [{:.2f}, {:.2f}]".format(*found) in told

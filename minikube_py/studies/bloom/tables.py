"""The tables of the report, each from the records alone."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from statistics import fmean, median
from typing import Any

from minikube_py.lab.report import Table
from minikube_py.studies.bloom.ledger import BASE, IDEAL, JOINT, PLAIN, Cell, Price
from minikube_py.studies.bloom.predictions import Evidence, in_process_costs, probe_break_even_us
from minikube_py.studies.bloom.settings import costs_behind_us, updates_per_query
from minikube_py.studies.bloom.statistics import Verdict, share_interval

FRONTS = (PLAIN, JOINT)


def number(value: float) -> str:
    """Three figures; `never` for infinity."""
    if math.isnan(value):
        return "-"
    if math.isinf(value):
        return "never"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def microseconds(value_us: float) -> str:
    return number(value_us) + (" us" if math.isfinite(value_us) else "")


def percent(hits: int, total: int) -> str:
    return f"{100 * hits / total:.0f} %" if total else "-"


def cost_text(cost_us: float) -> str:
    return "0" if not cost_us else f"{cost_us:g} us" if cost_us < 1000 else f"{cost_us / 1000:g} ms"


def opening_costs(cost_us: float) -> str:
    """The head of a column for one C_behind."""
    return f"a shard opens in {cost_text(cost_us)}" if cost_us else "opening a shard is free"


def updates_text(ratio: float) -> str:
    return "one update for a request" if ratio == 1 else f"{ratio:g} updates for a request"


def oracle_first(evidence: Evidence) -> Table:
    """If the ideal filter does not win, no filter can."""
    design = evidence.design
    columns = ("a shard's opening costs", *map(updates_text, updates_per_query(design)))
    table = Table(
        "Oracle first: share of cells where even a perfect, free filter beats none, max vector and joint bitset",
        columns,
    )
    grid = evidence.cells("grid")
    for cost in costs_behind_us(design):
        cells = []
        for ratio in updates_per_query(design):
            found = [
                cell.verdict(design, IDEAL, Price(cost, ratio), free=False) == "win"
                for cell in grid
                if IDEAL in cell.names
            ]
            cells.append(percent(sum(found), len(found)))
        table.add(cost_text(cost), *cells)
    return table


def verdicts(evidence: Evidence, free: bool, updates: float = 1.0) -> Table:
    """Every filter and summary against its rivals, over the cells of `grid`."""
    design = evidence.design
    memory = "free memory: none, max vector, joint bitset, every exact structure" if free else "tight memory"
    columns = ("", *map(opening_costs, costs_behind_us(design)))
    table = Table(f"Win / tie / undecided / loss, {updates_text(updates)}, {memory}", columns)
    for name in (*FRONTS, *design.raw["filters"]):
        row = []
        for cost in costs_behind_us(design):
            found: Counter[Verdict] = Counter()
            for cell in evidence.cells("grid"):
                if name in cell.names:
                    found[cell.verdict(design, name, Price(cost, updates), free)] += 1
                elif name not in FRONTS and all(record.get("skipped") == "oracle" for record in cell.records):
                    found["loss"] += 1
            row.append(" / ".join(str(found[each]) for each in ("win", "tie", "undecided", "loss")) if found else "-")
        table.add(name, *row)
    return table


def rule(evidence: Evidence) -> Table:
    """The registered rule: p_empty (1 - FPR) C_behind > C_probe + U/Q C_maintain."""
    design = evidence.design
    columns = ("", *(opening_costs(cost) for cost in costs_behind_us(design) if cost))
    table = Table(
        "Share of cells where a filter pays against none (the registered rule), one update for a request", columns
    )
    for name in (*FRONTS, *design.raw["filters"]):
        there = [cell for cell in evidence.cells("grid") if name in cell.names]
        row = [
            percent(sum(cell.pays(name, Price(cost, 1.0)) for cell in there), len(there))
            for cost in costs_behind_us(design)
            if cost
        ]
        table.add(name, *row)
    return table


def winners(evidence: Evidence, free: bool, updates: float = 1.0) -> Table:
    """Which candidate is cheapest, by n and C_behind: how often, over the cells of `grid`."""
    design = evidence.design
    title = (
        "Cheapest of all candidates" if free else "Cheapest of the shards' fronts (no structure of all nodes at hand)"
    )
    table = Table(
        f"{title}, {updates_text(updates)}", ("nodes", *map(opening_costs, costs_behind_us(design)))
    )
    grid = evidence.cells("grid")
    for nodes in sorted({int(cell.levels["n"]) for cell in grid}):
        row = []
        for cost in costs_behind_us(design):
            found = Counter(best(cell, Price(cost, updates), free) for cell in grid if cell.levels["n"] == nodes)
            row.append(", ".join(f"{name} {count}" for name, count in found.most_common(3)))
        table.add(f"{nodes:,}", *row)
    return table


def best(cell: Cell, price: Price, free: bool) -> str:
    """The cheapest real candidate, without the oracle."""
    names = [name for name in cell.names if name != IDEAL and (free or cell.kind(name) == "front")]
    return cell.winner(names, price)


def break_even(evidence: Evidence) -> Table:
    """C_behind from which a front costs less than none, and less than the max vector; medians over cells."""
    columns = (
        "",
        "utilisation",
        "cells",
        "share of full shards",
        "false positives",
        "against none, us",
        "against max vector, us",
        "at 10 updates for a request, us",
    )
    table = Table(
        "Cost of opening a shard from which a front pays; one update for a request, 256 shards, limit 1 "
        "(medians over cells)",
        columns,
    )
    for name in (*FRONTS, *evidence.design.raw["filters"]):
        groups: dict[float, list[Cell]] = {}
        for cell in evidence.cells("grid"):
            if name in cell.names and BASE in cell.names and cell.levels["shards"] == 256 and cell.limit == "1":
                groups.setdefault(float(cell.levels["utilisation"]), []).append(cell)
        for utilisation, group in sorted(groups.items()):
            rates = [rate for cell in group if not math.isnan(rate := cell.false_positive_rate(name))]
            table.add(
                name,
                f"{utilisation:g}",
                len(group),
                f"{median(cell.p_empty() for cell in group):.2f}",
                number(median(rates)) if rates else "-",
                number(median(cell.break_even_us(name, 1.0) for cell in group)),
                "-" if name == PLAIN else number(median(cell.break_even_us(name, 1.0, PLAIN) for cell in group)),
                number(median(cell.break_even_us(name, 10.0) for cell in group)),
            )
    return table


def exact(evidence: Evidence, block: str = "grid", limit: str = "1") -> Table:
    """The in-process cost of structures that hold all nodes."""
    columns = ("", "nodes", "request us", "busiest us", "update us", "1 : 1 us", "bytes / node")
    table = Table(
        f"Exact structures in process, limit {limit} (means over cells of `{block}`; busiest: utilisation from 0.97)",
        columns,
    )
    grid = [cell for cell in evidence.cells(block) if cell.limit == limit]
    for name in evidence.design.raw["exact"]:
        for nodes in sorted({int(cell.levels["n"]) for cell in grid}):
            there = [cell for cell in grid if cell.levels["n"] == nodes and name in cell.names]
            busy = [cell for cell in there if float(cell.levels["utilisation"]) >= 0.97]
            if there:
                table.add(
                    name,
                    f"{nodes:,}",
                    number(fmean(cell.query(name) for cell in there)),
                    number(fmean(cell.query(name) for cell in busy)) if busy else "-",
                    number(fmean(cell.update(name) for cell in there)),
                    number(fmean(cell.mean(name, Price(0.0, 1.0)) for cell in there)),
                    number(fmean(cell.bytes(name) for cell in there) / nodes),
                )
    return table


def repetition(evidence: Evidence) -> Table:
    """The cheapest structure as requests repeat."""
    table = Table(
        "Repetition of requests, one update for each: microseconds, and the cheapest structure",
        ("nodes", "repetition", "shapes", "best other", "which"),
    )
    groups: dict[tuple[int, float], list[Cell]] = {}
    for cell in evidence.cells("repetition"):
        groups.setdefault((int(cell.levels["n"]), float(cell.levels["repetition"])), []).append(cell)
    price = Price(0.0, 1.0)
    for (nodes, share), group in sorted(groups.items()):
        names = [name for name in group[0].names if all(name in cell.names for cell in group)]
        means = {name: fmean(cell.mean(name, price) for cell in group) for name in names}
        others = {name: mean for name, mean in means.items() if name != "shapes"}
        if others:
            least = min(others, key=others.__getitem__)
            table.add(f"{nodes:,}", f"{share:g}", number(means.get("shapes", math.nan)), number(others[least]), least)
    return table


def ranges(evidence: Evidence) -> Table:
    """Short ranges over many values, where the maximum is uninformative."""
    columns = (
        "",
        "universe",
        "L",
        "bits",
        "bytes / key",
        "opened of 256",
        "request us",
        "a shard's opening costs 1 ms, 0.01 updates for a request: us",
        "verdict",
    )
    table = Table("Ranges of L values, one resource, 256 shards (verdict: tight memory)", columns)
    price = Price(1000.0, 0.01)
    groups: dict[tuple[str, int, int, int], list[Cell]] = {}
    for cell in evidence.cells("ranges"):
        levels = cell.levels
        for name in cell.names:
            fixed = name not in evidence.design.raw["filters"] and name != JOINT
            bits = 0 if fixed else int(levels["bits_per_key"])
            groups.setdefault((name, int(levels["universe"]), int(levels["length"]), bits), []).append(cell)
    for (name, universe, length, bits), group in sorted(groups.items()):
        found = Counter(cell.verdict(evidence.design, name, price, free=False) for cell in group)
        table.add(
            name,
            f"2^{round(math.log2(universe))}",
            f"{length:,}",
            bits or "-",
            f"{fmean(cell.bytes(name) / int(cell.levels['n']) for cell in group):.2f}",
            number(fmean(cell.opened(name) for cell in group)),
            number(fmean(cell.query(name) for cell in group)),
            number(fmean(cell.mean(name, price) for cell in group)),
            "-" if name in (BASE, IDEAL) else ", ".join(f"{verdict} {count}" for verdict, count in found.items()),
        )
    return table


def rates(evidence: Evidence) -> Table:
    """Measured false positives, and the bounds."""
    columns = (
        "", "bits", "L", "requests", "false positives", "95 %", "its bound", "L / 2^bits", "probe us", "in numpy us",
    )  # fmt: skip
    table = Table("False positives of the range filters", columns)
    groups: dict[tuple[str, float, int, str], list[dict[str, Any]]] = {}
    for record in evidence.of_block("rates"):
        levels = record["levels"]
        for name, figures in record["candidates"].items():
            key = (name, float(levels["bits_per_key"]), int(levels["length"]), str(levels["queries"]))
            groups.setdefault(key, []).append(figures)
    for (name, bits, length, queries), group in sorted(groups.items()):
        found = share_interval(sum(each["false_positives"] for each in group), sum(each["asked"] for each in group))
        bounds = [each["bound"] for each in group if each["bound"] is not None]
        table.add(
            name,
            f"{bits:g}",
            f"{length:,}",
            queries,
            number(found.value),
            f"{number(found.low)} to {number(found.high)}",
            number(fmean(bounds)) if bounds else "none",
            number(min(1.0, length / 2**bits)),
            number(fmean(each["probe_us"] for each in group)),
            number(fmean(each["probe_many_us"] for each in group)),
        )
    return table


def history(evidence: Evidence) -> Table:
    """The past: its memory, and the cost of querying it."""
    shares = [float(share) for share in evidence.design.levels("history", "old_share") if share]
    mixed = [f"{100 * share:g} % old: us" for share in shares]
    columns = ("", "nodes", "the past by", "bytes / revision", "now us", "at an old revision us", "update us", *mixed)
    table = Table("Reads at old revisions, limit 1", columns)
    groups: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for record in evidence.of_block("history"):
        for name, figures in record["candidates"].items():
            if figures["kind"] == "whole" and not figures["wrong"]:
                groups.setdefault((name, int(record["levels"]["n"])), []).append(figures)
    for (name, nodes), group in sorted(groups.items()):
        now, old = (fmean(each[what] for each in group) for what in ("query_us", "old_query_us"))
        size = number(fmean(each["bytes_a_revision"] for each in group))
        update = number(fmean(each["update_us"] for each in group))
        costs = [number((1 - share) * now + share * old) for share in shares]
        table.add(name, f"{nodes:,}", group[0]["past"], size, number(now), number(old), update, *costs)
    return table


def window(evidence: Evidence) -> Table:
    """Summaries of the whole window, sound at each of its revisions."""
    columns = ("", "nodes", "utilisation", "window, updates / node", "FPR of the present", "FPR of the window")
    table = Table("A summary that covers the whole retained window", columns)
    groups: dict[tuple[str, int, float, float], list[dict[str, Any]]] = {}
    for record in evidence.of_block("history"):
        levels = record["levels"]
        for name, figures in record["candidates"].items():
            if figures["kind"] == "front":
                key = (name, int(levels["n"]), float(levels["utilisation"]), float(levels["window_share"]))
                groups.setdefault(key, []).append(figures)
    for (name, nodes, utilisation, share), group in sorted(groups.items()):
        present, whole = (
            fmean(each[what] for each in group) for what in ("false_positives_present", "false_positives")
        )
        table.add(name, f"{nodes:,}", f"{utilisation:g}", f"{share:g}", number(present), number(whole))
    return table


def churn(evidence: Evidence) -> Table:
    """Requests as nodes change without rebuilds."""
    shares = [f"{float(share):g}" for share in evidence.design.levels("churn", "changed_share")]
    table = Table(
        "Decay without rebuilding: us a request (shards opened), by share of nodes changed", ("", "nodes", *shares)
    )
    groups: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for record in evidence.of_block("churn"):
        for name, figures in record["candidates"].items():
            groups.setdefault((name, int(record["levels"]["n"])), []).append(figures)
    for (name, nodes), group in sorted(groups.items()):
        row = []
        for share in shares:
            query, opened = (
                fmean(fmean(each["stages"][share][what]) for each in group) for what in ("query_us", "opened")
            )
            row.append(f"{number(query)}" + (f" ({number(opened)})" if group[0]["kind"] == "front" else ""))
        table.add(name, f"{nodes:,}", *row)
    return table


def stream(evidence: Evidence) -> Table:
    """Real streams beside the ledger's sum of their parts."""
    columns = (
        "",
        "nodes",
        "updates for a request",
        "measured us",
        "query us",
        "update us",
        "the ledger, from one update for a request, us",
        "measured / ledger",
    )
    table = Table("Requests and updates interleaved, limit 1: does the ledger add up?", columns)
    groups: dict[tuple[str, int, str], list[tuple[dict[str, float], dict[str, float]]]] = {}
    for record in evidence.of_block("stream"):
        for name, figures in record["candidates"].items():
            for ratio, measured in figures["ratios"].items():
                one = figures["ratios"].get("1", measured)
                groups.setdefault((name, int(record["levels"]["n"]), ratio), []).append((measured, one))
    for (name, nodes, ratio), group in sorted(groups.items()):
        each, query, update = (
            fmean(measured[what] for measured, _ in group) for what in ("each_us", "query_us", "update_us")
        )
        ledger = fmean(one["query_us"] + float(ratio) * one["update_us"] for _, one in group)
        table.add(
            name,
            f"{nodes:,}",
            ratio,
            number(each),
            number(query),
            number(update),
            number(ledger),
            f"{each / ledger:.2f}",
        )
    return table


def probes(evidence: Evidence) -> Table:
    """Python, numpy and compiled: a request that fits no node."""
    names = ("first-fit", "max-tree", BASE, PLAIN, JOINT, "bloom")
    columns = ("", "nodes", *names, "break-even joint", "break-even bloom")
    table = Table(
        "The same loops in three ways: us for a request no node can take, 256 shards in process; "
        "cost of opening a shard from which it pays",
        columns,
    )
    groups: dict[tuple[int, str], list[tuple[dict[str, Any], int]]] = {}
    for record in evidence.of_block("probes"):
        for way, figures in record["ways"].items():
            groups.setdefault((int(record["levels"]["n"]), way), []).append((figures, record["shards"]))
    for (nodes, way), group in sorted(groups.items()):
        costs = [in_process_costs(figures, shards) for figures, shards in group]
        row = [number(_mean([each[name] for each in costs if name in each])) for name in names]
        evens = [
            number(median(probe_break_even_us(figures, name, shards) for figures, shards in group))
            for name in (JOINT, "bloom")
        ]
        table.add(way, f"{nodes:,}", *row, *evens)
    return table


def behind(evidence: Evidence) -> Table:
    """Shards with a real opening cost."""
    table = Table(
        "Real shards: what opening one costs",
        (
            "", "nodes", "shards", "opening a shard, us", "p99 us", "request us without", "with max vector",
            "with joint bitset",
        ),
    )  # fmt: skip
    groups: dict[tuple[str, int, int], list[dict[str, Any]]] = {}
    for record in evidence.of_block("behind"):
        for name, figures in record.get("cases", {}).items():
            groups.setdefault((name, int(record["levels"]["n"]), int(record["levels"]["shards"])), []).append(figures)
    for (name, nodes, shards), group in sorted(groups.items()):
        row = [
            _mean([each[what] for each in group if what in each])
            for what in ("c_behind_us", "p99_us", BASE, PLAIN, JOINT)
        ]
        table.add(name, f"{nodes:,}", shards, *map(number, row))
    return table


def placement(evidence: Evidence) -> Table:
    """Shards whose nodes fill together."""
    columns = (
        "placement",
        "utilisation",
        "correlation",
        "share of full shards",
        "FPR max vector",
        "FPR joint bitset",
        "joint / max vector at 1 ms",
    )
    table = Table("Placement of nodes in shards, limit 1", columns)
    groups: dict[tuple[str, float, float], list[Cell]] = {}
    for cell in evidence.cells("placement"):
        levels = cell.levels
        key = (str(levels["placement"]), float(levels["utilisation"]), float(levels["correlation"]))
        groups.setdefault(key, []).append(cell)
    price = Price(1000.0, 1.0)
    for (where, utilisation, correlation), group in sorted(groups.items()):
        rates = [
            _mean([rate for cell in group if not math.isnan(rate := cell.false_positive_rate(name))]) for name in FRONTS
        ]
        ratio = fmean(cell.mean(JOINT, price) / cell.mean(PLAIN, price) for cell in group)
        empty = fmean(cell.p_empty() for cell in group)
        table.add(where, f"{utilisation:g}", f"{correlation:g}", f"{empty:.3f}", *map(number, rates), number(ratio))
    return table


def dimensions(evidence: Evidence) -> Table:
    """The number of requested resources."""
    columns = (
        "d",
        "correlation",
        "share of full shards",
        "FPR max vector",
        "FPR joint bitset",
        "cheapest in process",
        "cheapest front at 1 ms",
    )
    table = Table("Number of resources and their correlation, one update for a request", columns)
    groups: dict[tuple[int, float], list[Cell]] = {}
    for cell in evidence.cells("dimensions"):
        groups.setdefault((int(cell.levels["d"]), float(cell.levels["correlation"])), []).append(cell)
    for (count, correlation), group in sorted(groups.items()):
        rates = [
            _mean([rate for cell in group if not math.isnan(rate := cell.false_positive_rate(name))]) for name in FRONTS
        ]
        here = Counter(best(cell, Price(0.0, 1.0), free=True) for cell in group).most_common(1)[0][0]
        far = Counter(best(cell, Price(1000.0, 1.0), free=False) for cell in group).most_common(1)[0][0]
        empty = fmean(cell.p_empty() for cell in group)
        table.add(count, f"{correlation:g}", f"{empty:.3f}", *map(number, rates), here, far)
    return table


def bits(evidence: Evidence) -> Table:
    """Filters of more bits against the summaries at equal bytes."""
    columns = (
        "",
        "bits",
        "cells",
        "false positives",
        "opened",
        "request us",
        "update us",
        "bytes / node",
        "cost / max vector, 1 ms",
        "cost / joint, 1 ms",
    )
    table = Table("Filters in front of shards by bits per key and resource, limit 1, one update for a request", columns)
    groups: dict[tuple[str, int], list[Cell]] = {}
    for cell in evidence.cells("bits"):
        for name in (*FRONTS, *evidence.design.raw["filters"]):
            if name in cell.names:
                groups.setdefault((name, int(cell.levels["bits_per_key"])), []).append(cell)
    price = Price(1000.0, 1.0)
    for (name, size), group in sorted(groups.items()):
        found = [rate for cell in group if not math.isnan(rate := cell.false_positive_rate(name))]
        table.add(
            name,
            size,
            len(group),
            number(_mean(found)),
            number(fmean(cell.opened(name) for cell in group)),
            number(fmean(cell.query(name) for cell in group)),
            number(fmean(cell.update(name) for cell in group)),
            number(fmean(cell.bytes(name) / int(cell.levels["n"]) for cell in group)),
            *(number(fmean(cell.mean(name, price) / cell.mean(rival, price) for cell in group)) for rival in FRONTS),
        )
    return table


def _mean(values: Iterable[float] | Sequence[float]) -> float:
    found = [value for value in values if not math.isnan(value)]
    return fmean(found) if found else math.nan


def all_tables(evidence: Evidence) -> list[Table]:
    """In report order; tables without rows are omitted."""
    made = [
        oracle_first(evidence),
        verdicts(evidence, free=False),
        verdicts(evidence, free=True),
        rule(evidence),
        winners(evidence, free=True),
        winners(evidence, free=False),
        break_even(evidence),
        exact(evidence),
        exact(evidence, limit="0"),
        repetition(evidence),
        dimensions(evidence),
        placement(evidence),
        bits(evidence),
        ranges(evidence),
        rates(evidence),
        churn(evidence),
        history(evidence),
        window(evidence),
        stream(evidence),
        probes(evidence),
        behind(evidence),
    ]
    return [table for table in made if any(set(row[1:]) != {"-"} for row in table.rows)]

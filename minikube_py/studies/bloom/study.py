"""The study `bloom`: its measurements by block, and its part of the report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from minikube_py.lab.study.design import Design, Unit
from minikube_py.lab.study.experiment import CHECKOUT, Account, Rates, Report, Study
from minikube_py.studies.bloom import behind, matching, probes, rates, staged
from minikube_py.studies.bloom.advice import tree
from minikube_py.studies.bloom.pictures import draw_all
from minikube_py.studies.bloom.predictions import Evidence, judge
from minikube_py.studies.bloom.tables import all_tables
from minikube_py.studies.bloom.workload import SYNTHETIC

WITHIN_UNIT: Final = ("changed_share", "old_share", "updates")

MEASURES: Final[dict[str, Callable[[Design, Unit], Report]]] = {
    "grid": matching.measure,
    "dimensions": matching.measure,
    "bits": matching.measure,
    "repetition": matching.measure,
    "placement": matching.measure,
    "ranges": matching.measure,
    "churn": staged.churn,
    "history": staged.history,
    "stream": staged.stream,
    "rates": rates.measure,
    "probes": probes.measure,
    "behind": behind.measure,
}


class Bloom(Study):
    """When does a filter, or which index, speed up matching pods to nodes?"""

    name = "bloom"
    title = "Filters and indexes for matching pods to nodes"
    text, design = CHECKOUT / "docs/studies/bloom.md", CHECKOUT / "docs/studies/bloom.json"
    packaged = Path(__file__).with_name("design.json")
    settings = (
        *SYNTHETIC, "rebuild_share", "joint_buckets_max", "batches", "queries_per_batch", "updates_per_batch",
        "batch_limit_s", "c_behind_us", "updates_per_query", "margin", "resamples", "exact_rows_max", "filter_rows_max",
    )  # fmt: skip
    block_settings = ("limits", "ablation", "filters")
    factors = (*WITHIN_UNIT, "n", "universe", "length", "window_share", "keys", "queries")
    draws_rates = True
    words = {
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
        "win, tie, loss": "the interval of the ratio of costs lies below 0.95, between 0.95 and 1.05, above 1.05; else "
        "undecided",
    }
    mode_notes = {
        "quick": "Quick mode: few seeds and levels, range filters up to 10,000 nodes only: a first answer.",
        "medium": "Medium mode: fewer levels and seeds than were first registered (Deviations, 7).",
    }

    def load(self, mode: str) -> Design:
        # A single resource has no correlation.
        return replace(super().load(mode), same=(("d", 1, "correlation", 0),), within=WITHIN_UNIT)

    def weight(self, unit: Unit) -> float:
        levels = dict(unit.levels)
        return 1.0 + float(levels.get("n", levels.get("keys", 10_000))) / 2_000

    def measure(self, design: Design, unit: Unit) -> Report:
        return MEASURES[unit.block](design, unit)

    def tell(self, design: Design, records: Sequence[Report], folder: Path, rates: Rates) -> Account:
        evidence = Evidence(design, records)
        pictures = draw_all(evidence, folder, rates)
        return Account(judge(evidence), all_tables(evidence), csv_rows(evidence), pictures, tree(evidence))

    def intervals(self, design: Design) -> str:
        return (
            f"Intervals: {100 * design.raw['confidence']:g} %, bootstrap over seeds and batches, "
            f"{design.raw['resamples']:,} resamples; "
            f"a win is a cost surely below {1 - design.raw['margin']:g} of the rival's."
        )


def csv_rows(evidence: Evidence) -> list[Sequence[object]]:
    """One line per cell and candidate. Its cost anywhere in the ledger is a sum of columns: query_us + opened *
    C_behind + U/Q * update_us."""
    found = evidence.cells("grid", "dimensions", "bits", "repetition", "placement", "ranges")
    factors = sorted({name for cell in found for name in cell.levels})
    measured = ["seeds", "query_us", "update_us", "opened", "p_empty", "false_positive_rate", "filter_bytes"]
    rows: list[Sequence[object]] = [["block", "limit", *factors, "candidate", *measured]]
    for cell in found:
        levels = [cell.levels.get(factor, "") for factor in factors]
        for name in cell.names:
            figures = [cell.query(name), cell.update(name), cell.opened(name)]
            figures += [cell.p_empty(), cell.false_positive_rate(name)]
            row = [cell.block, cell.limit, *levels, name, len(cell.records)]
            rows.append([*row, *(f"{value:.4g}" for value in figures), cell.bytes(name)])
    return rows

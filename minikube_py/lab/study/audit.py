"""Warnings that precede the figures: missing, absent, wrong, cut short or measured in a biased order.

The records are checked, not the code that wrote them: a fault injected in a candidate, a batch or an order is visible
in the journal. Findings also change conclusions (`minikube_py.lab.study.measured`).
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from minikube_py.lab.study.design import Design
from minikube_py.lab.study.experiment import Study
from minikube_py.lab.study.journal import AGAIN, Record
from minikube_py.lab.study.registration import Registration, told

ELSEWHERE_NS: Final = 1_000_000
ELSEWHERE_SHARE: Final = 0.1
"""CPU time of other threads in a unit, and its share, up to which it may be the interpreter's or the runner's own."""
UNDER_WAY: Final = 64
"""Maximum units finished after an unfinished one: other processes were working on them."""


def warnings_of(study: Study, design: Design, registration: Registration, records: Sequence[Record]) -> list[str]:
    """In report order."""
    warnings = []
    if not registration.commit:
        warnings.append(registration.line(told(study.text)))
    elif registration.changed:
        warnings.append(f"CHANGED AFTER ITS REGISTRATION: {registration.changed}.")
    if design.mode in study.mode_notes:
        warnings.append(study.mode_notes[design.mode])
    missing = len(list(design.units())) - sum("failed" not in record for record in records)
    if missing:
        warnings.append(f"{missing:,} units have not finished: the run was stopped. Cells rest on the seeds that have.")
    if again := sum(AGAIN in record for record in records):
        warnings.append(f"MEASURED TWICE: {again:,} units are in the journal more than once; the first of each counts.")
    absent: dict[str, list[str]] = {}
    for record in records:
        for text in record.get("absent", {}).values():
            name, _, reason = text.partition(": ")
            absent.setdefault(name, []).append(reason)
    if absent:
        listed = "; ".join(f"{name} (in {len(why)} units): {why[0]}" for name, why in absent.items())
        warnings.append(f"Absent here: {listed}.")
    wrong = wrong_candidates(records)
    if wrong:
        warnings.append("WRONG ANSWERS, and therefore left out: " + ", ".join(sorted(wrong)) + ".")
    cut = Counter(name for record in records for name, each in _candidates(record) if each.get("cut"))
    if cut:
        listed = ", ".join(f"{name} ({count} units)" for name, count in cut.items())
        warnings.append(f"Cut short by the limit of time in some batch: {listed}.")
    threads = Counter(name for record in records for name, each in _candidates(record) if _had_threads(each))
    if threads:
        listed = ", ".join(f"{name} (in {count} units)" for name, count in threads.items())
        warnings.append(f"Worked in other threads or processes too, whose CPU time is counted as theirs: {listed}.")
    unmatched = Counter(name for record in records for name, each in _candidates(record) if _fell_short(record, each))
    if unmatched:
        listed = ", ".join(f"{name} ({count} units)" for name, count in unmatched.items())
        warnings.append(f"TRUNCATED BATCHES, compared with nothing: {listed}.")
    biased = biased_orders(design, records)
    if biased:
        listed = "; ".join(f"block {block}: {', '.join(names)}" for block, names in biased.items())
        warnings.append(f"BIASED ORDER, times of these blocks are no evidence: {listed}.")
    warnings += [f"NOT OF THE DESIGN: {line}." for line in _chosen(design, records)]
    failed = [record for record in records if "failed" in record]
    if failed:
        said = failed[0]["failed"].strip().splitlines()[-1]
        warnings.append(f"{len(failed)} units failed; the first, {failed[0]['key']}: {said}")
    return warnings


def _candidates(record: Record) -> Iterator[tuple[str, Mapping[str, Any]]]:
    yield from record.get("candidates", {}).items()


def _fell_short(record: Record, candidate: Mapping[str, Any]) -> bool:
    """Whether some batch has fewer requests than planned."""
    return "planned" in record and candidate["asked"] != record["planned"]


def _had_threads(candidate: Mapping[str, Any]) -> bool:
    spent_ns, all_ns = (float(candidate.get(name, 0)) for name in ("elsewhere_ns", "cpu_ns"))
    return spent_ns > max(ELSEWHERE_NS, ELSEWHERE_SHARE * all_ns)


def wrong_candidates(records: Sequence[Record]) -> set[str]:
    return {name for record in records for name, each in _candidates(record) if each.get("wrong")}


def drawn(names: Sequence[str], key: str, turn: int) -> list[str]:
    """The order of candidates in a unit's turn: drawn for the unit, and rotated by one for each turn."""
    order = list(names)
    random.Random(key).shuffle(order)
    first = turn % max(1, len(order))
    return order[first:] + order[:first]


def biased_orders(design: Design, records: Sequence[Record]) -> dict[str, list[str]]:
    """By block, what is wrong with its orders: they are others than `drawn`.

    Later turns find warm caches, or a machine left idle by others. Units of a block begin at their first turn, or all
    at that of their seed's number."""
    off: dict[str, list[tuple[bool, bool]]] = {}
    for record in records:
        if not (turns := record.get("order")):
            continue
        names = design.candidates(record["block"])
        two = [False, False]
        for rule, first in enumerate((0, record["seed"])):
            for number, turn in enumerate(turns, first):
                two[rule] |= drawn([name for name in names if name in turn], record["key"], number) != turn
        off.setdefault(record["block"], []).append((two[0], two[1]))
    found: dict[str, list[str]] = {}
    for block, units in off.items():
        if count := min(sum(by_batch for by_batch, _ in units), sum(by_seed for _, by_seed in units)):
            found[block] = [f"{count} of {len(units)} units in another order than the drawn one"]
    return found


def _chosen(design: Design, records: Sequence[Record]) -> Iterator[str]:
    """Unregistered units, and units run out of order: the finished ones must be a fair sample."""
    planned = [unit.key for unit in design.units()]
    done = {record["key"] for record in records}
    unknown = done - set(planned)
    if unknown:
        yield f"{len(unknown)} units that it does not have, {min(unknown)} among them"
    first_open = next((place for place, key in enumerate(planned) if key not in done), len(planned))
    ahead = sum(key in done for key in planned[first_open:])
    if ahead > UNDER_WAY:
        yield f"{ahead} units finished out of turn, before {planned[first_open]}"

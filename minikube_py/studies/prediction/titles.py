"""Titles of the study's pictures, from the intervals: what they say holds of the run that is drawn."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from minikube_py.lab.statistics import of_clusters
from minikube_py.lab.study import curves
from minikube_py.lab.study.measured import Measured

NO_PREDICTOR = ("reserved", "limits", "oracle")
RATE = {"violations": 0.01, "evictions": 1.0}
MAIN = {"violations": "replayed", "evictions": "growing"}
KINDS = {
    "30min": "by half an hour of samples",
    "2h": "by two hours",
    "ratio": "by a fixed ratio",
    "ratio-both": "by a fixed ratio",
    "cpu-unseen": "by memory alone",
}
PRICES = {"violations": (100, "minutes short of CPU"), "evictions": (1, "pods evicted")}
"""How many times a price is that of a hundred, and of what."""


def usable(found: Measured) -> str:
    """Ends of the intervals."""
    of = {name: found.interval(found.by_cluster("replayed", "usable", name)) for name in found.names("replayed")}
    predicted = [each for name, each in of.items() if name not in NO_PREDICTOR]
    low, high = min(each.low for each in predicted), max(each.high for each in predicted)
    foresight = of["oracle"]
    text = "On the replayed day, where memory is the limit, predicting usage lets pods reserve"
    text += f" {low:.1f} to {high:.1f} times the CPU that nodes have"
    return f"{text}; perfect foresight {foresight.low:.1f} to {foresight.high:.1f} times"


def violations(found: Measured) -> str:
    """Paired differences of clusters, jointly at the study's confidence, though which one is the worst is seen in the
    same data. "Worse than each" is wrong only if one of n - 1 is surely worse than the true worst: half of the doubt.
    "Worse than some" may be wrong of any two, in this order: the other half."""
    names, days = found.names("generated"), found.levels_of("generated", {}, ["usage"])
    of = {(day["usage"], name): found.by_seed("generated", "violations", name, day) for day in days for name in names}
    short = [str(day["usage"]) for day in days if any(any(of[day["usage"], name].values()) for name in names)]
    if short != ["busy"]:
        return f"CPU ran short on {len(short)} of {len(days)} kinds of day"
    busy = {name: of["busy", name] for name in names}
    most = max(found.interval(list(values.values())).high for values in busy.values())
    worst = max(names, key=lambda name: sum(busy[name].values()))
    others = [name for name in names if name != worst]
    most_short = busy[worst].items()
    paired = [[value - busy[name][seed] for seed, value in most_short if seed in busy[name]] for name in others]

    def surely(statements: int) -> int:
        return sum(of_clusters(each, 1 - (1 - found.confidence) / statements).low > 0 for each in paired)

    label, how = found.labels.get(worst, worst), f"each of the {len(others)} others"
    if surely(len(others)) < len(others):
        how = f"{surely(len(names) * len(others))} of {len(others)} others"
    only = "only " if len(days) > 1 else ""
    where = f"CPU ran short {only}on the busier day, in at most {1000 * most:.1f} of 1,000 minutes of nodes"
    return (
        f"{where}; with these constants {label} more often than {how}\n\n"
        f"Differences paired by cluster, {found.confidence:.0%} for all together"
    )


def curves_drawn(found: Measured, picture: str) -> str:
    """Of a picture of curves: what kinds of families gain at equal price, by their means. The panel of MAIN is the
    message, the others are notes."""
    (asked,) = (each for each in found.design.raw["pictures"] if each["name"] == picture)
    panels = found.levels_of(asked["block"], asked.get("where", {}), [asked["panels"]])
    day = {panel[asked["panels"]]: panel for panel in panels}
    main = MAIN[asked["x"]] if MAIN[asked["x"]] in day else next(iter(day))
    title, *more = _panel(found, asked, day.pop(main))
    notes = [*more, *(_panel(found, asked, panel)[0] for panel in day.values())]
    marks = "Means over clusters; a mark for each constant; perfect foresight is to have none"
    return "\n\n".join((title, "\n".join([*notes, marks])))


def _panel(found: Measured, asked: Mapping[str, Any], panel: Mapping[str, Any]) -> list[str]:
    """What is gained at the price that all families reach, of RATE at most; how much half an hour of samples gains over
    two hours at that price; and at RATE, by families that reach it and that cost more with each constant."""
    price, level = asked["x"], panel[asked["panels"]]
    drawn = {
        family: curves.curve(found, asked["block"], family, asked["y"], price, panel)
        for family in asked["families"]
        if any(family.endswith(end) for end in KINDS)
    }
    reached = {family: max(one.means()[1], default=0.0) for family, one in drawn.items()}
    rate = min(RATE[price], *reached.values())
    day = " ".join(found.labels.get(f"day {level}", str(level)).split())
    told = [f"CPU reserved {day}, {_priced(price, rate)}, times the node's: {_gains(drawn, rate)}"]
    for family, one in drawn.items():
        other = drawn.get(family.replace("-30min", "-2h"), one)
        if other is not one and (values := curves.compared(one, other, rate)):
            ratio = of_clusters([math.exp(each) for each in values], found.confidence, ratio=True)
            label = found.labels.get(family, family).split(",")[0]
            figures = f"{ratio.value:.2f} [{ratio.low:.2f}, {ratio.high:.2f}]"
            told.append(f"{label}, half an hour over two hours at that price: {figures}")
    paid = {each: one for each, one in drawn.items() if reached[each] >= RATE[price] and _rises(one.means()[1])}
    if rate < RATE[price] and paid:
        whose = "of families that cost as much, and more with each constant"
        told.append(f"W{_priced(price, RATE[price])[1:]}, {whose}: {_gains(paid, RATE[price])}")
    return told


def _rises(prices: Sequence[float]) -> bool:
    return list(prices) == sorted(prices)


def _priced(price: str, rate: float) -> str:
    of_hundred, what = PRICES[price]
    return f"with at most {of_hundred * rate:.2g} of 100 {what}" if rate else f"with no {what}"


def _gains(drawn: Mapping[str, curves.Curve], rate: float) -> str:
    gains: dict[str, list[float]] = {}
    for family, one in drawn.items():
        if (gain := one.at(rate)) > 0:
            words = next(words for end, words in KINDS.items() if family.endswith(end))
            gains.setdefault(words, []).append(gain)
    return ", ".join(f"{_span(each)} {words}" for words, each in gains.items())


def _span(gains: list[float]) -> str:
    low, high = f"{min(gains):.1f}", f"{max(gains):.1f}"
    return low if low == high else f"{low} to {high}"


TITLES = {"usable": usable, "violations": violations}
OF_CURVES = {
    "violations": lambda found: curves_drawn(found, "violations"),
    "evictions": lambda found: curves_drawn(found, "evictions"),
}

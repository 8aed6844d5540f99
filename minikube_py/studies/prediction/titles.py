"""Titles of the study's pictures, from the intervals: what they say holds of the run that is drawn."""

from __future__ import annotations

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
PRICES = {"violations": "1 of 100 minutes short of CPU", "evictions": "1 of 100 pods evicted"}


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
    """Of a picture of curves: what kinds of families gain at one price, by their means. The panel of MAIN is the
    message, the other a note."""
    (asked,) = (each for each in found.design.raw["pictures"] if each["name"] == picture)
    price, told = asked["x"], {}
    for panel in found.levels_of(asked["block"], asked.get("where", {}), [asked["panels"]]):
        gains: dict[str, list[float]] = {}
        for family in asked["families"]:
            gain = curves.curve(found, asked["block"], family, asked["y"], price, panel).at(RATE[price])
            words = next((words for end, words in KINDS.items() if family.endswith(end)), "")
            if words and gain > 0:
                gains.setdefault(words, []).append(gain)
        told[panel[asked["panels"]]] = ", ".join(f"{_span(each)} {words}" for words, each in gains.items())
    day = {each: " ".join(found.labels.get(f"day {each}", str(each)).split()) for each in told}
    main = MAIN[price] if MAIN[price] in told else next(iter(told))
    title = f"CPU reserved {day[main]}, with at most {PRICES[price]}, times the node's: {told[main]}"
    notes = [f"{day[each].capitalize()}: {text}" for each, text in told.items() if each != main]
    marks = "Means over clusters; a mark for each constant; perfect foresight is to have none"
    return "\n\n".join((title, "\n".join([*notes, marks])))


def _span(gains: list[float]) -> str:
    low, high = f"{min(gains):.1f}", f"{max(gains):.1f}"
    return low if low == high else f"{low} to {high}"


TITLES = {"usable": usable, "violations": violations}
OF_CURVES = {
    "violations": lambda found: curves_drawn(found, "violations"),
    "evictions": lambda found: curves_drawn(found, "evictions"),
}

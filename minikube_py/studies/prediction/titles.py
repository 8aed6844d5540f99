"""Titles of the study's pictures, from the intervals: what they say holds of the run that is drawn."""

from __future__ import annotations

from minikube_py.lab.study import curves
from minikube_py.lab.study.measured import Measured
from minikube_py.lab.study.statistics import of_clusters

NO_PREDICTOR = ("reserved", "limits", "oracle")
RATE = {"violations": 0.01, "evictions": 1.0}
PRICES = {"violations": "1 % violations", "evictions": "1 of 100 pods evicted"}


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
    """Paired differences of clusters, jointly at the study's confidence: divided by the number of comparisons."""
    names, days = found.names("generated"), found.levels_of("generated", {}, ["usage"])
    of = {(day["usage"], name): found.by_seed("generated", "violations", name, day) for day in days for name in names}
    short = [str(day["usage"]) for day in days if any(any(of[day["usage"], name].values()) for name in names)]
    if short != ["busy"]:
        return f"CPU ran short on {len(short)} of {len(days)} kinds of day"
    busy = {name: of["busy", name] for name in names}
    most = max(found.interval(list(values.values())).high for values in busy.values())
    worst = max(names, key=lambda name: sum(busy[name].values()))
    others = [name for name in names if name != worst]
    surely = 0
    for name in others:
        paired = [value - busy[name][seed] for seed, value in busy[worst].items() if seed in busy[name]]
        surely += of_clusters(paired, 1 - (1 - found.confidence) / len(others)).low > 0
    label, how = found.labels.get(worst, worst), f"each of the {len(others)} others"
    if surely < len(others):
        how = f"{surely} of {len(others)} others"
    only = "only " if len(days) > 1 else ""
    where = f"CPU ran short {only}on the busier day, in at most {1000 * most:.1f} of 1,000 minutes of nodes"
    return (
        f"{where}; with these constants {label} more often than {how}\n\n"
        f"Differences paired by cluster, {found.confidence:.0%} for all together"
    )


def leaders(found: Measured, picture: str) -> str:
    """Of a picture of curves: who gains most at one price, and beside how many others the interval of the ratio of
    gains is above 1, jointly at the study's confidence."""
    (asked,) = (each for each in found.design.raw["pictures"] if each["name"] == picture)
    price, block = asked["x"], asked["block"]
    families, told = [each for each in asked["families"] if each != "oracle"], []
    for panel in found.levels_of(block, asked.get("where", {}), [asked["panels"]]):
        of = {name: curves.curve(found, block, name, asked["y"], price, panel) for name in families}
        gains = {name: each.at(RATE[price]) for name, each in of.items() if each.at(RATE[price]) > 0}
        first = max(gains, key=lambda name: gains[name])
        others = [name for name in gains if name != first]
        share = 1 - (1 - found.confidence) / max(1, len(others))
        ratios = [curves.compared(of[first], of[name], RATE[price]) for name in others]
        beaten = sum(of_clusters(each, share).low > 0 for each in ratios if each)
        day = " ".join(found.labels.get(f"day {panel[asked['panels']]}", str(panel[asked["panels"]])).split())
        label = found.labels.get(first, first)
        told.append(f"{day} {label} ({gains[first]:.1f} times the node; surely more than {beaten} of {len(others)})")
    notes = "A mark for each constant, means over clusters; the oracle is a bound"
    return f"Most CPU for at most {PRICES[price]}: {'; '.join(told)}\n\n{notes}"


TITLES = {"usable": usable, "violations": violations}
OF_CURVES = {
    "violations": lambda found: leaders(found, "violations"),
    "evictions": lambda found: leaders(found, "evictions"),
}

"""Operating curves: candidates that are one method with other constants, compared where they cost the same.

A family is a list of the design, from the most careful constant to the most daring. Its curve joins, constant by
constant, the means over clusters of a price and of a gain; what it gains at a price of at most `rate` is the highest
point of that line. Intervals are by the jackknife over clusters: a pseudo-value per cluster, and Student's t (Tukey
1958; Efron and Tibshirani, An Introduction to the Bootstrap, 1993, ch. 11). A constant may also be chosen on some cells
and judged on others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from minikube_py.lab import plots
from minikube_py.lab.report import Table
from minikube_py.lab.statistics import Floats, Interval, of_clusters
from minikube_py.lab.study.design import expanded
from minikube_py.lab.study.experiment import Finding

if TYPE_CHECKING:
    from minikube_py.lab.study.measured import Measured

Where = Mapping[str, Any]


class Curve(NamedTuple):
    """`gains`, `prices`: a row per constant of `names`, a column per cluster of `seeds`."""

    names: Sequence[str]
    seeds: Sequence[int]
    gains: Floats
    prices: Floats

    def of(self, seeds: Sequence[int]) -> Curve:
        kept = [at for at, seed in enumerate(self.seeds) if seed in seeds]
        return Curve(self.names, [self.seeds[at] for at in kept], self.gains[:, kept], self.prices[:, kept])

    def means(self) -> tuple[list[float], list[float]]:
        """Of gains and prices, by constant; none without clusters."""
        gains, prices = (each.mean(axis=1).tolist() if self.seeds else [] for each in (self.gains, self.prices))
        return gains, prices

    def at(self, rate: float) -> float:
        """The greatest gain at a mean price of at most `rate`; NaN if all constants cost more."""
        return best(*self.means(), rate)

    def reaches(self, rate: float) -> bool:
        """Whether the most daring constant costs as much."""
        return max(self.means()[1], default=-math.inf) >= rate


def best(gains: Sequence[float], prices: Sequence[float], rate: float) -> float:
    """On the line through the points in order."""
    found = [gain for gain, price in zip(gains, prices) if price <= rate]
    for (gain, price), (next_gain, next_price) in pairwise(zip(gains, prices)):
        if min(price, next_price) <= rate < max(price, next_price):
            found.append(gain + (next_gain - gain) * (rate - price) / (next_price - price))
    return max(found, default=math.nan)


def curve(found: Measured, block: str, family: str, gain: str, price: str, where: Where) -> Curve:
    """Of the clusters that have every cell for each constant that gave no wrong answers."""
    names = [name for name in expanded(found.design.raw, family) if name in found.names(block)]
    rows = [[found.by_seed(block, figure, name, where) for name in names] for figure in (gain, price)]
    seeds = sorted(set.intersection(*(set(row) for each in rows for row in each))) if names else []
    shape = len(names), len(seeds)
    gains, prices = (np.array([[row[seed] for seed in seeds] for row in each]).reshape(shape) for each in rows)
    return Curve(names, seeds, gains, prices)


def _untested(found: Measured, block: str, family: str, figures: Sequence[str], where: Where) -> str:
    """Why a family's curve is no evidence, as for a single candidate: every constant counts. "" if it is."""
    names = expanded(found.design.raw, family)
    return found.barred(block, figures, names, where) or found.gaps(block, figures, names, where)


def _without(found: Measured, family: str) -> str:
    """Its name, and the constants that its curve lacks because they gave wrong answers."""
    lying = [name for name in expanded(found.design.raw, family) if name in found.wrong]
    return f"{family} (without {', '.join(lying)}: wrong answers)" if lying else family


def jackknife(clusters: int, of: Callable[[Sequence[int]], float]) -> list[float]:
    """A pseudo-value per cluster of a statistic `of` the clusters that are named; [] if it has no value somewhere."""
    if clusters < 2:
        return []
    whole = of(range(clusters))
    without = [of([other for other in range(clusters) if other != one]) for one in range(clusters)]
    values = [clusters * whole - (clusters - 1) * each for each in without]
    return values if all(map(math.isfinite, values)) else []


def gained(one: Curve, rate: float) -> list[float]:
    """Pseudo-values of what is gained at `rate`."""
    return jackknife(len(one.seeds), lambda kept: one.of([one.seeds[at] for at in kept]).at(rate))


def compared(ours: Curve, theirs: Curve, rate: float) -> list[float]:
    """Pseudo-values of the logarithm of the ratio of both gains at `rate`, over the clusters of both."""
    seeds = [seed for seed in ours.seeds if seed in theirs.seeds]

    def ratio(kept: Sequence[int]) -> float:
        two = [each.of([seeds[at] for at in kept]).at(rate) for each in (ours, theirs)]
        return math.log(two[0] / two[1]) if min(two) > 0 else math.nan

    return jackknife(len(seeds), ratio)


def chosen(one: Curve, rate: float) -> str:
    """The constant that gains most of those with a mean price of at most `rate`; "" if there is none."""
    found = ((gain, name) for name, gain, price in zip(one.names, *one.means()) if price <= rate)
    return max(found, default=(0.0, ""))[1]


def judge(found: Measured, foretold: Mapping[str, Any]) -> Finding:
    """Of a prediction with `at`: of the gains at that price; or, with `tuned`, of the constants chosen there."""
    name, claim, below = foretold["name"], foretold["claim"], foretold["is"] == "below"
    if "tuned" in foretold:
        return _judge_chosen(found, foretold)
    told = _at_price(found, foretold)
    if isinstance(told, str):
        return Finding(name, claim, "not tested", told)
    interval, clusters, what = told
    result = interval.outcome(below, float(foretold["than"]))
    return Finding(name, claim, result, f"{what}: {interval.text()}, {clusters} clusters")


def _judge_chosen(found: Measured, foretold: Mapping[str, Any]) -> Finding:
    ((price, rate),) = foretold["at"].items()
    block, gain = foretold["block"], foretold["gain"]
    for family in (foretold[part] for part in ("of", "over") if part in foretold):
        if told := _untested(found, block, family, (gain, price), foretold["tuned"]):
            return Finding(foretold["name"], foretold["claim"], "not tested", told)
    names = {
        part: chosen(curve(found, block, foretold[part], gain, price, foretold["tuned"]), rate)
        for part in ("of", "over")
        if part in foretold
    }
    if none := [foretold[part] for part, name in names.items() if not name]:
        told = f"no constant of {' and '.join(none)} has {price} of at most {rate:g}"
        return Finding(foretold["name"], foretold["claim"], "not tested", told)
    return found.judged({**foretold, **names})


def _at_price(found: Measured, foretold: Mapping[str, Any]) -> tuple[Interval, int, str] | str:
    """The interval of a gain, or of a ratio of two; the clusters; what it is. Or why there is none."""
    ((price, rate),) = foretold["at"].items()
    block, gain, where = foretold["block"], foretold["figure"], foretold.get("where", {})
    for family in (foretold[part] for part in ("of", "over") if part in foretold):
        if told := _untested(found, block, family, (gain, price), where):
            return told
    both = [curve(found, block, foretold[part], gain, price, where) for part in ("of", "over") if part in foretold]
    what = f"{gain} of {foretold['of']} at {price} of at most {rate:g}"
    if "over" in foretold:
        what += f" over that of {foretold['over']}"
        values = compared(both[0], both[1], rate)
        interval = of_clusters([math.exp(each) for each in values], found.confidence, ratio=True)
    else:
        values = gained(both[0], rate)
        interval = of_clusters(values, found.confidence)
    if len(values) < 2:
        return f"{what}: {_valueless(both, rate)}"
    return interval, len(values), what


def _valueless(both: Sequence[Curve], rate: float) -> str:
    """Why there are no pseudo-values over the clusters that all of `both` have."""
    seeds = [seed for seed in both[0].seeds if all(seed in each.seeds for each in both)]
    if len(seeds) < 2:
        return "there are fewer than two clusters"
    samples = [seeds, *([other for other in seeds if other != one] for one in seeds)]
    gains = [each.of(kept).at(rate) for each in both for kept in samples]
    why = "every constant costs more" if any(map(math.isnan, gains)) else "a gain that is not above 0 has no ratio"
    return f"{why}, of all clusters or without one of them"


def tables(found: Measured) -> Iterator[Table]:
    """One per entry of `curves`: with `tuned` the constants chosen there and what they do elsewhere, else what each
    family gains at each price."""
    for asked in found.design.raw.get("curves", ()):
        yield (_chosen if "tuned" in asked else _gained)(found, asked)


def _cells(found: Measured, asked: Mapping[str, Any]) -> list[dict[str, Any]]:
    return found.levels_of(asked["block"], asked.get("where", {}), asked.get("by", ()))


def _gained(found: Measured, asked: Mapping[str, Any]) -> Table:
    block, price = asked["block"], asked["price"]
    heads = [f"{asked['gain']} at {price} of at most {rate:g}" for rate in asked["at"]]
    table = Table(str(asked["title"]), ("", *asked.get("by", ()), "clusters", *heads))
    for family in asked["families"]:
        for levels in _cells(found, asked):
            one = curve(found, block, family, asked["gain"], price, {**asked.get("where", {}), **levels})
            told = []
            for rate in asked["at"]:
                text = of_clusters(values, found.confidence).text() if (values := gained(one, rate)) else "-"
                told.append(text if one.reaches(rate) or text == "-" else f"{text}, its most")
            table.add(_without(found, family), *map(str, levels.values()), str(len(one.seeds)), *told)
    return table


def _chosen(found: Measured, asked: Mapping[str, Any]) -> Table:
    block, gain, price = asked["block"], asked["gain"], asked["price"]
    (rate,) = asked["at"]
    table = Table(str(asked["title"]), ("", "chosen", *asked.get("by", ()), "clusters", gain, price))
    for family in asked["families"]:
        name = chosen(curve(found, block, family, gain, price, asked["tuned"]), rate)
        for levels in _cells(found, asked) if name else ():
            where = {**asked.get("where", {}), **levels}
            values = [found.by_cluster(block, figure, name, where) for figure in (gain, price)]
            told = [found.interval(each).text() if each else "-" for each in values]
            table.add(_without(found, family), name, *map(str, levels.values()), str(len(values[0])), *told)
    return table


def draw(found: Measured, asked: Mapping[str, Any], labels: Mapping[str, str]) -> Any:
    """A panel for each level of `panels`: a line for each family, a mark for each constant; the gain above the price,
    in percent."""
    panels = found.levels_of(asked["block"], asked.get("where", {}), [asked["panels"]] if "panels" in asked else [])
    figure, axes = plots.figure(1, len(panels), (3.5 * len(panels), 3.6))
    figure.subplots_adjust(wspace=0.12)
    plots.share_axis(axes[0], "y")
    for panel, axis in zip(panels, axes[0]):
        for number, family in enumerate(asked["families"]):
            one = curve(found, asked["block"], family, asked["y"], asked["x"], {**asked.get("where", {}), **panel})
            points = [(fmean(price), fmean(gain)) for price, gain in zip(one.prices, one.gains)] if one.seeds else []
            colour = plots.MANY[number % len(plots.MANY)]
            name = _without(found, family).replace(family, labels.get(family, family), 1)
            style = {"color": colour, "marker": plots.MARKERS[number % 4], "markersize": 4, "label": name}
            axis.plot(*zip(*points), linewidth=1.4, **style)
        axis.set_title(", ".join(labels.get(str(level), str(level)) for level in panel.values()), fontsize=8.5)
        axis.set_xscale("symlog", linthresh=asked.get("linear", 0.001))
        axis.set_xlim(left=-0.15 * asked.get("linear", 0.001))
        if axis is axes[0][-1]:
            axis.legend(fontsize=7.5, loc="upper left", bbox_to_anchor=(1.02, 1.0))
    axes[0][0].set_ylim(bottom=0)
    axes[0][0].set_ylabel(labels.get(asked["y"], asked["y"]))
    figure.supxlabel(labels.get(asked["x"], asked["x"]).replace("\n", " "), y=0.0, va="top", fontsize=9)
    return figure

"""A figure's title that states a result is true of what the figure shows: each is drawn from the committed data, and
judged by what was drawn. A title without a judge fails; so does a judge without a title. What is written in a figure can
be read, and its panels can be compared."""

# ruff: noqa: E501 (titles are as long as they are)

from __future__ import annotations

import copy
import csv
import gzip
import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
import numpy as np
import orjson
import pictures as drawing
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text

from minikube_py.lab import plots
from minikube_py.lab.calls import beside_report, tables
from minikube_py.lab.conformance import bench
from minikube_py.lab.environment import Environment
from minikube_py.lab.study.contest import Contest
from minikube_py.lab.study.curves import best
from minikube_py.lab.study.design import Design
from minikube_py.lab.study.experiment import find
from minikube_py.lab.study.measured import Measured, labels_beside
from minikube_py.scheduler.prediction.predictors import MaxOf
from minikube_py.studies.bloom import pictures
from minikube_py.studies.bloom.predictions import Evidence
from minikube_py.studies.bloom.study import Bloom
from minikube_py.studies.emptiness.study import Emptiness
from minikube_py.studies.prediction.study import Prediction
from minikube_py.studies.prediction.titles import TITLES

DOCS = Path(__file__).resolve().parents[3] / "docs"
DATA = DOCS / "studies/data"
DRAWN_WITH = "3.11.2"
"""The version whose bytes the pictures are; others draw the same a little otherwise."""
OF_IMG = ("calls", "an-index")
FILTERS = ("Bloom, probed", "prefix Bloom", "Rosetta", "Grafite", "Memento")
STRUCTURES = (
    "scan", "columns", "sorted-runs", "max-tree", "cow-max-tree", "kd-tree", "bitmaps", "zones", "joint-zones", "shapes",
)  # fmt: skip
EXACT = ("scan", "plain columns", "sorted runs", "max-tree", "k-d tree", "bitmaps", "zones", "joint zones")


class At(NamedTuple):
    x: float
    y: float
    low: float
    high: float


class Shown(NamedTuple):
    """A drawn figure: by panel and label the points, with the ends of their bars; and the texts in each panel."""

    title: str
    panels: list[tuple[str, dict[str, list[At]]]]
    texts: list[list[tuple[float, float, str]]]

    def of(self, panel: str) -> dict[str, list[At]]:
        (found,) = (series for title, series in self.panels if panel in title)
        return found


def message(title: str) -> str:
    return " ".join(title.split("\n\n")[0].split())


def shown(figure: Any) -> Shown:
    axes = figure.axes
    texts = [[(*each.get_position(), each.get_text()) for each in panel.texts] for panel in axes]
    panels = [(each.get_title() or each.get_title("left"), dict(series(each))) for each in axes]
    return Shown(message(figure._suptitle.get_text()), panels, texts)


def series(axes: Any) -> Iterator[tuple[str, list[At]]]:
    for handle, label in zip(*axes.get_legend_handles_labels()):
        if hasattr(handle, "get_offsets"):
            yield label, [At(x, y, y, y) for x, y in handle.get_offsets()]
        elif hasattr(handle, "get_data"):
            yield label, [At(x, y, y, y) for x, y in zip(*handle.get_data())]
        else:
            line, _, bars = handle
            way = 0 if handle.has_xerr else 1
            ends = [[point[way] for point in segment] for segment in bars[0].get_segments()]
            points = zip(*line.get_data(), ends, strict=True)
            yield label, [At(x, y, min(each), max(each)) for x, y, each in points]


def usable(figure: Shown) -> bool:
    ((_, drawn),) = figure.panels
    values = {label: points[0].x for label, points in drawn.items()}
    foresight = values.pop("perfect foresight")
    for name in ("requests (no predictor)", "0.9 of requests"):
        del values[name]
    return len(values) == 7 and all(1.55 <= value < 1.75 for value in values.values()) and 1.95 <= foresight < 2.15


def violations(figure: Shown) -> bool:
    busy = {label: points[0] for label, points in figure.of("busier").items()}
    quiet = [points[0].x for title, drawn in figure.panels if "busier" not in title for points in drawn.values()]
    worst = busy.pop("percentile")
    return (
        len(quiet) == 20
        and not any(quiet)
        and worst.high < 0.00345
        and all(each.high < 0.00345 and each.high < worst.low for each in busy.values())
    )


def skyline_alone(figure: Shown) -> bool:
    return all(
        all(point.x == 0 for point in points) == (label == "skyline (exact)")
        for _, drawn in figure.panels
        for label, points in drawn.items()
    )


def lines_of_panels(figure: Shown) -> Iterator[dict[str, list[At]]]:
    """By label, what a line of three panels shows: at a correlation of -0.8, 0 and 0.8."""
    assert len(figure.panels) == 6
    for first in (0, 3):
        panels = [drawn for _, drawn in figure.panels[first : first + 3]]
        yield {label: [drawn[label][0] for drawn in panels] for label in panels[0]}


def correlated(figure: Shown) -> bool:
    last = [points[-1].high for drawn in lines_of_panels(figure) for points in drawn.values()]
    return skyline_alone(figure) and max(last) <= 1 / 6


def exact_fronts_grow(figure: Shown) -> bool:
    for drawn in lines_of_panels(figure):
        for label, points in drawn.items():
            if "(exact)" in label and not points[0].low > points[1].high > points[2].high:
                return False
            if "bitset" in label and max(each.x for each in points) > 1.02 * min(each.x for each in points):
                return False
    return True


def skyband_reads_fewer(figure: Shown) -> bool:
    return len(figure.panels) == 6 and all(
        drawn["skyband, k = 4 (exact)"][0].x < drawn["skyline (exact)"][0].x for _, drawn in figure.panels
    )


def winners(figure: Shown) -> bool:
    """Texts are at (nodes, share in use); the lowest share is half, the least nodes are 1,000."""
    for (title, _), texts in zip(figure.panels, figure.texts, strict=True):
        slow = "1 ms" in title or "10 ms" in title
        for nodes, share, text in texts:
            name, sure = text.split("\n")[0], "times that" in text
            if share >= 1 and "all nodes" in title and name not in EXACT:
                return False
            if share >= 1 and nodes >= 1 and "only shard" in title and slow and not (sure and name == "joint bitset"):
                return False
    return len(figure.panels) == 8


def latency(figure: Shown) -> bool:
    medians = {label: points[0].x for label, points in figure.of("No node").items()}
    exact = [medians[name] for name in EXACT if name in medians]
    return len(exact) > 5 and max(exact) < 1000 and all(1000 <= medians[name] <= 1e6 for name in FILTERS)


def rates(figure: Shown) -> bool:
    near = []
    for title, drawn in figure.panels:
        beside = title.startswith("Ranges") and "next to" in title
        if beside and min(each.y for each in drawn["prefix Bloom"]) < 0.2:
            return False
        if title.startswith("Ranges"):
            bits = re.match(r"Ranges of ([\d,]+)", title)
            assert bits is not None
            length = int(bits[1].replace(",", ""))
            near += [point.y / min(1, length / 2**point.x) for name in FILTERS[3:] for point in drawn[name]]
    return max(near) <= 10


def break_even(figure: Shown) -> bool:
    def pays(panel: str) -> dict[str, tuple[int, int]]:
        told = (re.fullmatch(r"(.*) \(pays in (\d+) of (\d+)\)", label) for label in figure.of(panel))
        return {each[1]: (int(each[2]), int(each[3])) for each in told if each is not None}

    beside = pays("largest values")
    filters = [beside[name] for name in FILTERS]
    share = sum(of[0] for of in filters) / sum(of[1] for of in filters)
    bitset = beside["joint bitset"][0] / beside["joint bitset"][1]
    return abs(share - 1 / 9) < 0.01 and abs(bitset - 0.8) < 0.03 and all(pays("no summary")[n][0] for n in FILTERS)


def decay(figure: Shown) -> bool:
    drawn = figure.panels[1][1]
    grown = {name: [each.y / points[0].y for each in points] for name, points in drawn.items()}
    bloom = grown.pop("Bloom, probed")
    others = [value for values in grown.values() for value in values]
    return 4.5 < bloom[-1] == max(bloom) < 5.5 and len(grown) == 3 and max(others) < 2


def throughput(figure: Shown) -> bool:
    for _, drawn in figure.panels:
        rare = max(drawn, key=lambda name: drawn[name][0].y)
        columns = drawn["plain columns"]
        if "tree" not in rare or min(each.y for each in columns) < 0.3 * columns[0].y:
            return False
    return True


def revisions(figure: Shown) -> bool:
    sizes = {row: text for _, row, text in figure.texts[0] if "undo log" in text}
    numbers = [float(match[0].replace(",", "")) for text in sizes.values() if (match := re.search(r"[\d,]+", text))]
    pairs = zip(figure.panels[1][1]["at an old revision"], figure.panels[1][1]["now"], strict=True)
    slower = [old.x > now.x for old, now in pairs if now.y in sizes]
    return bool(numbers) and all(abs(each - 40) < 5 for each in numbers) and all(slower)


def constants(figure: Shown) -> bool:
    return all(point.y > 0.01 for _, drawn in figure.panels for point in drawn["Bloom, probed"] if point.y == point.y)


JUDGES: Mapping[str, Callable[[Shown], bool]] = {
    "On the replayed day, where memory is the limit, predicting usage lets pods reserve 1.6 to 1.7 times the CPU that nodes have; perfect foresight 2.0 to 2.1 times":
        usable,
    "CPU ran short only on the busier day, in at most 3.4 of 1,000 minutes of nodes; with these constants percentile more often than each of the 9 others":
        violations,
    "Of these fronts only the skyline lets through none of the full shards": skyline_alone,
    "Of these fronts only the skyline never errs; where free resources are positively correlated the others let through at most a sixth":
        correlated,
    "Exact fronts grow where resources compete; a bitset keeps its size": exact_fronts_grow,
    "A skyband of 4 reads fewer nodes again than a skyline does": skyband_reads_fewer,
    "What finds a node at the least cost, 90 % in use or more: with all nodes in memory an exact structure; before shards of 10,000 nodes or more that take 1 ms or longer to open, a joint bitset": winners,
    "Where no node fits, range filters take milliseconds to a second; most exact structures take microseconds": latency,
    "Prefix Bloom filters fail next to stored values; for ranges Grafite and Memento stay within ten times the least possible error":
        rates,
    "Range filters can pay beside no summary; beside the largest values they pay in one of nine cells, a joint bitset in four of five": break_even,
    "Where nothing is rebuilt, a Bloom filter comes to open five times as many shards on average; the other fronts always less than twice as many": decay,
    "Trees lead where updates are rare; plain columns keep their pace where they are many": throughput,
    "An undo log keeps the past in 40 bytes a revision, but a request about the past then takes longer": revisions,
    "However its loops are written, a Bloom filter pays only before shards that cost something to open": constants,
}  # fmt: skip


def lines_of(name: str) -> list[Any]:
    return [orjson.loads(line) for line in gzip.decompress((DATA / name).read_bytes()).splitlines()[1:]]


def keeping(kept: dict[str, Any]) -> Callable[[Any, Path], Path]:
    def keep(figure: Any, path: Path) -> Path:
        figure.style_of_ours.__exit__(None, None, None)
        kept[path.name] = figure
        return path

    return keep


@pytest.fixture(scope="module")
def pictured() -> dict[str, Any]:
    """By file name every picture that is drawn from data in docs, as a figure of matplotlib."""
    kept: dict[str, Any] = {}
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(plots, "save", keeping(kept))
        contests: list[tuple[Contest, str]] = [(Prediction(), "full"), (Emptiness(), "quick")]
        for study, mode in contests:
            labels, records = labels_beside(study.packaged), lines_of(f"{study.name}-{mode}.jsonl.gz")
            Measured(study.load(mode), records, labels, study.shares, study.titles).draw(Path(), study.name)
        pictures.draw_all(Evidence(Bloom().load("medium"), lines_of("bloom-medium.jsonl.gz")), Path(), {})
        for name, draw in (("calls", tables.draw), ("calls-beside", beside_report.draw)):
            recorded = json.loads((DOCS / f"data/{name}.json").read_text(encoding="utf-8"))
            draw(recorded, "; ".join(Environment(**recorded["environment"]).lines()), Path(f"{name}.png"))
        checked = json.loads((DOCS / "data/index-check.json").read_text(encoding="utf-8"))
        bench.draw([bench.Cost(**each) for each in checked["costs"]], "ordered", Path("an-index-of-your-own.svg"))
    return kept


@pytest.fixture(scope="module")
def figures(pictured: dict[str, Any]) -> list[Any]:
    return list(pictured.values())


@pytest.fixture(scope="module")
def drawn(pictured: dict[str, Any]) -> dict[str, Shown]:
    """By its message, what each picture of a study shows."""
    return {each.title: each for each in (shown(of) for name, of in pictured.items() if not name.startswith(OF_IMG))}


def test_every_picture_was_drawn_and_has_a_judge(drawn: dict[str, Shown]) -> None:
    contests = (Prediction, Emptiness)
    labels = [json.loads(each.packaged.with_name("labels.json").read_text()) for each in contests]  # type: ignore[union-attr]
    titles = [text for each in labels for name, text in each.items() if name.startswith("picture ")]
    titles += pictures.TEXTS["titles"].values()
    computed = {title for title, judge in JUDGES.items() if judge in (usable, violations)}
    assert set(JUDGES) == {message(title) for title in titles} | computed == set(drawn)


def test_plain_columns_are_as_much_slower_than_the_best_as_the_docs_say() -> None:
    """Of the grid, the first node that fits and an update, up to 10,000 nodes; ratios to one digit."""
    cells: dict[tuple[str, ...], dict[str, float]] = {}
    for row in csv.DictReader((DOCS / "studies/bloom-report.csv").read_text(encoding="utf-8").splitlines()):
        of_grid = (row["block"], row["limit"]) == ("grid", "1") and row["n"] in ("1000", "10000")
        if of_grid and row["candidate"] in STRUCTURES:
            cell = cells.setdefault((row["utilisation"], row["n"], row["correlation"]), {})
            cell[row["candidate"]] = float(row["query_us"]) + float(row["update_us"])
    assert len(cells) == 24 and all({"scan", "columns", "max-tree"} <= cell.keys() for cell in cells.values())
    slower: dict[str, list[float]] = {}
    for (used, *_), cell in cells.items():
        slower.setdefault(used, []).append(round(cell["columns"] / min(cell.values()), 1))
        assert (min(cell, key=lambda name: cell[name]) == "scan") == (used == "0.5")
    assert max(slower["0.9"]) == 1.1 and max(slower["0.97"]) == 1.7
    assert [min(slower["0.5"]), max(slower["0.5"])] == [3.0, 3.4] and max(slower["0.995"]) == 3.2
    assert min(slower["0.995"]) == 1.5 and 20 < max(cell["columns"] for cell in cells.values()) < 21
    for page in ("../README.md", "studies/README.md"):
        told = " ".join((DOCS / page).read_text(encoding="utf-8").split())
        assert "3.4 times as long as the best" in told and "half empty" in told


def test_the_readme_names_the_skylines_strongest_rival_and_the_mode_of_the_run() -> None:
    report = json.loads((DOCS / "studies/emptiness-report.json").read_text(encoding="utf-8"))
    rows = [row for row in report["tables"][0]["rows"] if row[0] in ("oracle", "skyline")]
    costs = {
        (name, policy): float(asked.split()[0]) + float(changed.split()[0]) for name, policy, *_, asked, changed in rows
    }
    assert len(costs) == 4 and {row[4] for row in rows} == {"0 [0, 0]"}
    slower = [costs["skyline", policy] / costs["oracle", policy] for policy in ("packed", "spread")]
    assert 3 < min(slower) < max(slower) < 4.5
    found = {
        each["name"]: each
        for each in json.loads((DOCS / "studies/compiled-fronts-report.json").read_text(encoding="utf-8"))["findings"]
    }
    assert "skyline@compiled: 0.937 [0.884, 0.994]" in found["P7"]["evidence"]
    assert "skyline@compiled: 4.58 [3.98, 5.26]" in found["P8"]["evidence"]
    everything = json.loads((DOCS / "studies/emptiness-full-report.json").read_text(encoding="utf-8"))
    assert everything["mode"] == "full" and "6 clusters; so in 266 of 266 cells" in everything["findings"][0]["evidence"]
    design = Emptiness().load("quick").raw["blocks"]["openb"]
    assert report["mode"] == "quick" and len(design["quick"]["list"]) == 5 and len(design["full"]["list"]) == 23
    told = " ".join((DOCS / "../README.md").read_text(encoding="utf-8").split())
    assert "Bits of given requests take an eighth of a skyline's work to keep up (in numpy; half, compiled)" in told
    kept_up = {
        each["name"]: each
        for each in json.loads((DOCS / "studies/by-request-report.json").read_text(encoding="utf-8"))["findings"]
    }
    assert "skyline: 0.132 [0.124, 0.14]" in kept_up["P3"]["evidence"]
    assert "skyline@compiled: 0.522 [0.473, 0.576]" in kept_up["P7"]["evidence"]


def test_what_only_the_skyline_does_is_said_of_the_fronts_that_are_shown(drawn: dict[str, Shown]) -> None:
    """A skyband, which these pictures leave out, lets nothing through either."""
    told = [title for title in drawn if "only the skyline" in title.lower()]
    assert len(told) == 2 and all(title.startswith("Of these fronts only") for title in told)
    assert not any("skyband" in label for title in told for _, panel in drawn[title].panels for label in panel)


@pytest.mark.skipif(matplotlib.__version__ != DRAWN_WITH, reason=f"drawn with matplotlib {DRAWN_WITH}")
def test_every_picture_in_the_docs_is_drawn_from_the_data_in_docs(pictured: dict[str, Any], tmp_path: Path) -> None:
    for name, figure in pictured.items():
        figure.style_of_ours = nullcontext()
        found = plots.save(figure, tmp_path / name).read_bytes()
        folder = "img" if name.startswith(OF_IMG) else "studies"
        assert found == (DOCS / folder / name).read_bytes(), f"{name} was drawn by other code; run `make pictures`"


def test_every_committed_run_is_drawn_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By `make pictures`: the picture of the compiled fronts had been left out of its list."""
    there = {path.name for path in DATA.iterdir()}
    assert {f"{run}{drawing.SUFFIX}" for run in drawing.runs()} == there
    asked: list[list[str]] = []
    monkeypatch.setattr(drawing, "minikube_py", lambda words: asked.append(words) or 0)
    for run in drawing.runs():
        drawing.study(run, tmp_path)
    assert [words[2] for words in asked if "compiled-fronts" in words[2]] == [str(DOCS / "studies/compiled-fronts.toml")]
    assert len(asked) == len(there) and not list(tmp_path.iterdir())


def test_titles_over_operating_curves_say_what_the_curves_show(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the drawn lines: the highest point of each up to the price that all of them reach."""
    figures: dict[str, Any] = {}
    monkeypatch.setattr(plots, "save", keeping(figures))
    study: Any = find(str(DOCS / "studies/prediction-curves.toml"))
    with_labels = lines_of("prediction-curves-quick.jsonl.gz"), labels_beside(study.packaged)
    Measured(study.load("quick"), *with_labels, study.shares, study.titles).draw(Path(), study.name)
    kinds = (", 30 min", "half an hour of samples"), (", 2 h", "two hours"), ("fixed", "a fixed ratio")
    cases = ("violations", 0.01, "trace", "no minutes"), ("violations", 0.01, "busier", "at most 1 of 100 minutes")
    for name, most, panel, told in (*cases, ("evictions", 1.0, "grows", "with at most 0.083 of 100 pods evicted")):
        figure = figures[f"prediction-curves-{name}.png"]
        drawn = shown(figure)
        lines = {label: points for label, points in drawn.of(panel).items() if label != "perfect foresight"}
        rate = min(most, *(max(each.x for each in points) for points in lines.values()))
        gains = {label: best([at.y for at in line], [at.x for at in line], rate) for label, line in lines.items()}
        where = drawn.title if panel != "busier" else " ".join(each.get_text() for each in figure.texts)
        for kind, words in kinds:
            values = [f"{gain:.1f}" for label, gain in gains.items() if kind in label and gain > 0]
            span = " to ".join(dict.fromkeys((min(values), max(values))))
            assert told in where and f"{span} by {words}" in where
    notes = "".join(each.get_text() for figure in figures.values() for each in figure.texts)
    assert "N-sigma, half an hour over two hours at that price: 1.31 [1.20, 1.43]" in notes


@pytest.mark.skipif(matplotlib.__version__ != DRAWN_WITH, reason=f"drawn with matplotlib {DRAWN_WITH}")
@pytest.mark.parametrize("name", ["compiled-fronts", "prediction-curves"])
def test_the_pictures_of_smaller_studies_are_drawn_from_their_journals(tmp_path: Path, name: str) -> None:
    study: Any = find(str(DOCS / f"studies/{name}.toml"))
    labels = labels_beside(study.packaged)
    measured = Measured(study.load("quick"), lines_of(f"{name}-quick.jsonl.gz"), labels, None, study.titles)
    made = measured.draw(tmp_path, study.name)
    assert len(made) == 2
    for _, path in made:
        assert path.read_bytes() == (DOCS / "studies" / path.name).read_bytes(), f"{path.name}: run `make pictures`"


def test_titles_of_predictors_follow_from_what_was_measured() -> None:
    """With fewer violations in some clusters, what was sure is so no more; and not only the busier day is short of CPU."""
    design, records = Prediction().load("full"), lines_of("prediction-full.jsonl.gz")

    def title(usage: str, value: float, seeds: int) -> str:
        changed = copy.deepcopy(records)
        for record in changed:
            if record["levels"]["usage"] == usage and record["seed"] < seeds:
                record["candidates"]["percentile"]["figures"]["violations"] = [value]
        return TITLES["violations"](Measured(design, changed, labels_beside(Prediction.packaged)))

    assert "percentile more often than each of the 9 others" in title("busy", 0.0, 0)
    assert re.search(r"percentile more often than [0-8] of 9 others", title("busy", 0.0, 12))
    assert title("alone", 0.5, 1) == "CPU ran short on 2 of 3 kinds of day"
    changed = copy.deepcopy(records)
    for record in changed:
        for each in record["candidates"].values():
            each["figures"]["usable"] = [2 * value for value in each["figures"]["usable"]]
    assert "reserve 3.2 to 3.3 times" in TITLES["usable"](Measured(design, changed))


def test_the_worst_of_equal_predictors_is_rarely_called_worse() -> None:
    """Which one is the worst is seen in the same data: at 80 % for all together, in at most a fifth of runs."""
    rng, names, told = np.random.default_rng(1), [f"p{number}" for number in range(10)], []
    for _ in range(400):
        found: Any = Measured(Design({"confidence": 0.8}, "quick"), [])
        drawn = {name: dict(enumerate(rng.normal(1.0, 0.1, 20))) for name in names}
        found.names, found.levels_of = lambda block: names, lambda *asked: [{"usage": "busy"}]
        found.by_seed = lambda block, figure, name, day, drawn=drawn: drawn[name]
        told.append(TITLES["violations"](found))
    assert sum("more often than 0 of 9 others" not in title for title in told) <= 0.2 * len(told)


@pytest.mark.parametrize("study", [Emptiness(), Bloom()], ids=lambda study: str(study.name))
def test_titles_of_a_recorded_run_are_not_put_over_another(study: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """One figure of one unit differs."""
    mode = {"emptiness": "quick", "bloom": "medium"}[study.name]
    records = lines_of(f"{study.name}-{mode}.jsonl.gz")
    records[0] = {**records[0], "took_s": -1}
    told: list[str] = []
    monkeypatch.setattr(plots, "entitle", lambda figure, title: told.append(title))
    monkeypatch.setattr(plots, "save", lambda figure, path: path)
    if isinstance(study, Bloom):
        pictures.decay(Evidence(study.load(mode), records), Path())
        assert told[0].startswith("Decay after churn, nothing rebuilt\n\n")
        assert "bars: lowest and highest seed" in told[0]
        return
    design = study.load(mode)
    Measured(design, records, labels_beside(study.packaged), study.shares, study.titles).draw(Path(), study.name)
    captions = [each["caption"] for each in design.raw["pictures"]]
    assert len(told) == len(captions) and all(title.startswith(of) for title, of in zip(told, captions))


def test_a_predictor_is_called_what_it_is() -> None:
    """`max` is the greater of others; it was shown as the maximum so far."""
    others = MaxOf.defaults["of"]
    assert labels_beside(Prediction.packaged)["max"].lower() == f"greater of {' and '.join(others)}"


def test_recorded_calls_have_names_for_readers(pictured: dict[str, Any]) -> None:
    for name in ("calls.png", "calls-beside.png"):
        for axes in pictured[name].axes:
            written = [each.get_text() for each in [*axes.get_yticklabels(), *axes.texts]]
            assert len(written) > 6 and not [each for each in written if "_" in each.replace("minikube_py", "")]
            assert axes.get_legend() is None


def test_pictures_of_studies_name_candidates_and_figures_for_readers(
    pictured: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = [figure for name, figure in pictured.items() if name.startswith(("emptiness", "prediction"))]
    monkeypatch.setattr(plots, "save", lambda figure, path: (drawn.append(figure), path)[1])
    study: Any = find(str(DOCS / "studies/compiled-fronts.toml"))
    records = lines_of("compiled-fronts-quick.jsonl.gz")
    Measured(study.load("quick"), records, labels_beside(study.packaged)).draw(Path(), study.name)
    assert len(drawn) >= 6
    for figure in drawn:
        for axes in figure.axes:
            legend = axes.get_legend()
            written = [*axes.get_yticklabels(), *axes.texts, axes.xaxis.label, axes.yaxis.label, axes.title]
            written += [figure._supxlabel] if figure._supxlabel else []
            written += legend.get_texts() if legend else []
            names = [each.get_text() for each in written if "$" not in each.get_text()]
            assert not [each for each in names if "@" in each or "_" in each]


def test_no_text_lies_over_another_or_over_another_panel(figures: list[Any]) -> None:
    for figure in figures:
        renderer = FigureCanvasAgg(figure).get_renderer()
        figure.draw(renderer)
        boxes = {each: each.get_window_extent(renderer) for each in [*figure.texts, figure._suptitle] if each}
        for axes in figure.axes:
            ticks = [tick.label1 for axis in (axes.xaxis, axes.yaxis) for tick in axis._update_ticks()]
            texts = [axes._left_title, axes.xaxis.label, axes.yaxis.label, *axes.texts, *ticks]
            seen = [each for each in texts if each.get_visible() and each.get_text().strip()]
            boxes.update({each: Text.get_window_extent(each, renderer) for each in seen})
            others = [other.get_window_extent(renderer) for other in figure.axes if other is not axes]
            assert not [each for each in seen if any(cover(boxes[each], other) for other in others)]
        assert not [pair for pair in combinations(boxes, 2) if cover(boxes[pair[0]], boxes[pair[1]])]


def cover(one: Any, other: Any) -> bool:
    """Whether two boxes share more than a pixel in both directions."""
    across = min(one.x1, other.x1) - max(one.x0, other.x0)
    return bool(across > 1 and min(one.y1, other.y1) - max(one.y0, other.y0) > 1)


def test_panels_of_one_figure_have_one_scale_and_lines_have_their_own_colour(figures: list[Any]) -> None:
    for figure in figures:
        for beside in panels_in_rows(figure):
            for way in ("get_xlim", "get_ylim"):
                labels = {(each.get_xlabel(), getattr(each, way)()) for each in beside}
                alike = {label for label, _ in labels}
                assert len(labels) == len(alike), (figure.axes[0].get_title("left"), way)
        for axes in figure.axes:
            lines = [line for line in axes.get_lines() if line.get_linestyle() != "None" and len(line.get_xdata()) > 2]
            colours = [line.get_color() for line in lines]
            assert len(set(colours)) >= len(colours) - 1  # A bound may be black.


def panels_in_rows(figure: Any) -> list[list[Any]]:
    rows: dict[float, list[Any]] = {}
    for axes in figure.axes:
        rows.setdefault(round(axes.get_position().y0, 3), []).append(axes)
    return list(rows.values())


@pytest.mark.parametrize("title", JUDGES)
def test_a_title_holds(title: str, drawn: dict[str, Shown]) -> None:
    assert JUDGES[title](drawn[title])


@pytest.mark.parametrize(
    ("others", "title"),
    [
        ([400.0, 410.0], "With plain columns a scheduler binds the most pods per second"),
        (
            [500.0, 660.0],
            "With plain columns a scheduler binds the most pods per second; with k-d tree perhaps as many",
        ),
    ],
)
def test_a_bench_names_a_winner_only_beyond_its_noise(
    others: list[float], title: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[Any] = []
    monkeypatch.setattr(plots, "save", lambda figure, path: kept.append(figure) or path)
    shared = "10,000 nodes, 1,500 pods, all scored, 1 store member, 0.97 full"
    rates = {f"columns, {shared}": [670.0, 675.0], f"kd-tree, {shared}": others, f"scan, {shared}": [245.0]}
    pictures.end_to_end(rates, Path())
    (figure,) = kept
    figure.style_of_ours.__exit__(None, None, None)
    found = shown(figure)
    assert found.title == title and set(found.panels[0][1]) == {"plain columns", "k-d tree"}
    assert shared.replace(", ", "; ") in figure.texts[0].get_text()


def test_a_title_that_does_not_hold_is_found(drawn: dict[str, Shown]) -> None:
    """Every judge that is put to another figure of its kind, or to the same with a point moved, says so."""
    figure = next(each for title, each in drawn.items() if "CPU ran short" in title)
    busy = [(title, {**points, "EWMA": points["percentile"]}) for title, points in figure.panels]
    assert not violations(figure._replace(panels=busy))
    fronts = drawn["Of these fronts only the skyline lets through none of the full shards"]
    panels = [(title, {**each, "joint bitset, 8 steps": each["skyline (exact)"]}) for title, each in fronts.panels]
    assert not skyline_alone(fronts._replace(panels=panels))


def test_an_index_is_faster_or_slower_only_beyond_the_noise() -> None:
    def cost(name: str, find_us: float) -> bench.Cost:
        return bench.Cost(name, 10, {"none": find_us}, {"none": 1}, 1.0, 1.0, 1, 1)

    own, other = cost("mine", 10.0), "other"
    told = {us: bench.beside_best([own, cost(other, us)], own, "none")[0] for us in (8.0, 9.2, 10.0, 10.9, 11.1)}
    assert told == {
        8.0: "1.2 times slower than", 9.2: "about as fast as", 10.0: "about as fast as", 10.9: "about as fast as",
        11.1: "1.1 times faster than",
    }  # fmt: skip

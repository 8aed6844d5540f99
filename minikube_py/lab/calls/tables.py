"""The report of a recording: histogram, mix beside the published one, unused API parts; tables, JSON, a chart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from minikube_py.lab import plots
from minikube_py.lab.calls.published import SOURCE, Line, mix
from minikube_py.lab.calls.recorder import API_SERVER, Recorder
from minikube_py.lab.calls.shapes import all_parts
from minikube_py.lab.measure import summary_ms
from minikube_py.lab.report import Table, milliseconds

ROWS_SHOWN: Final = 40
SEEN_SHARE: Final = 0.002
COLOURS: Final[Mapping[str, str]] = {
    "user": plots.GREEN,
    "scheduler": plots.BLUE,
    "controllers": plots.ORANGE,
    "kubelet": plots.SAFE[5],
    API_SERVER: plots.GREY,
}


def histogram(recorder: Recorder) -> Table:
    """The most frequent kinds of calls; those beyond `ROWS_SHOWN` share one row."""
    total = max(1, recorder.total)
    ordered = sorted(recorder.latencies_s.items(), key=lambda item: -len(item[1]))
    title = f"Calls from the API server to the store: {recorder.total:,}, in {len(ordered)} kinds"
    table = Table(title, ("call", "resource", "for", "calls", "share", "p50 ms", "p99 ms"))
    for kind, found in ordered[:ROWS_SHOWN]:
        figures = summary_ms(found)
        shown = [_share(len(found) / total), *(milliseconds(figures[key]) for key in ("p50_ms", "p99_ms"))]
        table.add(words(kind.operation, kind.shape), kind.resource, kind.role, f"{len(found):,}", *shown)
    rest = sum(len(found) for _, found in ordered[ROWS_SHOWN:])
    if rest:
        table.add("others", f"{len(ordered) - ROWS_SHOWN} kinds", "", f"{rest:,}", _share(rest / total), "", "")
    return table


def by_role(recorder: Recorder) -> Table:
    roles: dict[str, Counter[str]] = {}
    for kind, found in recorder.latencies_s.items():
        roles.setdefault(kind.role, Counter())[kind.operation] += len(found)
    operations = sorted({name for counts in roles.values() for name in counts})
    table = Table("The same by client, beside the requests they sent", ("for", "API requests", *operations))
    for role, counts in sorted(roles.items(), key=lambda item: -item[1].total()):
        sent = sum(count for (asker, *_), count in recorder.requests.items() if asker == role)
        table.add(role, f"{sent:,}", *(f"{counts[name]:,}" for name in operations))
    return table


def mix_table(lines: Sequence[Line]) -> Table:
    table = Table(f"Ours beside {SOURCE}", ("what", "of", "Kubernetes", "here"))
    for line in lines:
        table.add(line.what, line.of, _share(line.published), _share(line.ours))
    return table


def unused(recorder: Recorder) -> dict[str, list[str]]:
    """The API parts of the store that no call used, by group."""
    return {
        group: missing
        for group, names in all_parts().items()
        if (missing := [name for name in names if not recorder.parts[name]])
    }


def unused_lines(missing: Mapping[str, Sequence[str]]) -> list[str]:
    whole = all_parts()
    return [f"{group}: {len(names)} of {len(whole[group])}: {_short(names)}" for group, names in missing.items()]


def _short(names: Sequence[str]) -> str:
    """Without the common prefix; compares together by their target."""
    compares: dict[str, list[str]] = {}
    others: list[str] = []
    for name in names:
        words = name.split()
        if words[0] == "Compare":
            compares.setdefault(words[1], []).append(words[2])
        else:
            others.append(name.removeprefix("RangeRequest.").removeprefix("watch."))
    return ", ".join([*others, *(f"{target} {' '.join(ops)}" for target, ops in compares.items())])


def _share(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{100 * value:.1f} %" if value >= 0.0005 or value == 0 else f"{100 * value:.2f} %"


def figures(recorder: Recorder, duration_s: float) -> dict[str, Any]:
    kinds = [
        {**kind._asdict(), **summary_ms(found)}
        for kind, found in sorted(recorder.latencies_s.items(), key=lambda item: -len(item[1]))
    ]
    requests = [
        {"role": role, "verb": verb, "resource": resource, "count": count}
        for (role, verb, resource), count in recorder.requests.most_common()
    ]
    return {
        "duration_s": round(duration_s, 3),
        "calls": recorder.total,
        "kinds": kinds,
        "mix": [line._asdict() for line in mix(recorder)],
        "mix_source": SOURCE,
        "requests": requests,
        "events": dict(recorder.events),
        "failures": dict(recorder.failures),
        "parts_used": dict(recorder.parts.most_common()),
        "parts_unused": unused(recorder),
    }


def draw(figures: Mapping[str, Any], below: str, path: Path) -> Path:
    """Calls by shape and role, and the mix beside the published one. `figures` as above; `below`: in small type."""
    shapes: dict[str, Counter[str]] = {}
    for kind in figures["kinds"]:
        text = words(kind["operation"], kind["shape"])
        shapes.setdefault(text, Counter())[kind["role"]] += kind["count"]
    made, axes = plots.figure(1, 2, (13, 5.4))
    made.subplots_adjust(wspace=0.34)
    title = f"{figures['calls']:,} calls from API server to store ({figures['run']})"
    _draw_shapes(axes[0][0], _with_others(shapes), title)
    _draw_mix(axes[0][1], [Line(**line) for line in figures["mix"] if line["published"] is not None])
    made.text(0.01, -0.04, below, fontsize=7, color=plots.GREY)
    return plots.save(made, path)


def words(operation: str, shape: str = "") -> str:
    """A kind of call for readers: `txn: update (bind)`, `lease grant`."""
    if shape in ("", operation):
        return "declare fields" if operation == "declare" else operation.replace("_", " ")
    what, _, more = shape.partition(": ")
    return f"{operation}: {what} ({more})" if more else f"{operation}: {what}"


def _with_others(shapes: Mapping[str, Counter[str]]) -> dict[str, Counter[str]]:
    """By number of calls; those too few to be seen share a row."""
    ordered = sorted(shapes, key=lambda text: -shapes[text].total())
    total = sum(shapes[text].total() for text in ordered)
    few = [text for text in ordered if shapes[text].total() < SEEN_SHARE * total]
    shown = {text: shapes[text] for text in ordered if text not in few}
    if few:
        shown[f"{len(few)} other kinds"] = sum((shapes[text] for text in few), Counter())
    return shown


def _draw_shapes(axes: Any, shapes: Mapping[str, Counter[str]], title: str) -> None:
    ordered, whole = list(shapes), [counts.total() for counts in shapes.values()]
    for place, counts in enumerate(shapes.values()):
        left = 0
        for role, colour in COLOURS.items():
            axes.barh([place], [counts[role]], left=left, color=colour, edgecolor="white", linewidth=0.5)
            left += counts[role]
        axes.annotate(f" {left:,}", (left, place), va="center", fontsize=8)
    seen = [role for role in COLOURS if any(counts[role] > SEEN_SHARE * max(whole) for counts in shapes.values())]
    for row, role in enumerate(seen[::-1]):
        at = {"ha": "right", "color": COLOURS[role], "fontweight": "bold", "transform": axes.transAxes}
        axes.text(0.99, 0.03 + 0.06 * row, f"for the {role}", **at)
    axes.set_yticks(range(len(ordered)), ordered)
    axes.set_ylim(len(ordered) - 0.4, -0.6)
    axes.set_xlabel("calls to the store")
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.margins(x=0.12)
    axes.grid(axis="y", visible=False)
    most = " and ".join(f"'{text}'" for text in ordered[:2])
    axes.set_title(f"{most} are {sum(whole[:2]) / sum(whole):.0%} of\n{title}")


def _draw_mix(axes: Any, lines: Sequence[Line]) -> None:
    places = range(len(lines))[::-1]
    for offset, label, colour, values in (
        (0.2, "Kubernetes 1.34's end-to-end tests on etcd", plots.PALE, [line.published or 0.0 for line in lines]),
        (-0.2, "this run", plots.SAFE[4], [line.ours or 0.0 for line in lines]),
    ):
        heights = [place + offset for place in places]
        bars = axes.barh(heights, [100 * v for v in values], 0.38, color=colour, label=label)
        axes.bar_label(bars, labels=[_share(value) for value in values], fontsize=7.5, padding=2)
        axes.annotate(label, (1, heights[0]), va="center", fontsize=7.5)
    axes.set_yticks(places, [f"{line.what}\n(of {line.of})" for line in lines], fontsize=7.5)
    axes.set_xlabel("% of the calls, ranges or txns")
    axes.margins(x=0.12)
    axes.grid(axis="y", visible=False)
    txns = next(line for line in lines if line.what == "txn")
    axes.set_title(f"Txns are {_share(txns.ours)} of the calls,\nin Kubernetes' own tests {_share(txns.published)}")

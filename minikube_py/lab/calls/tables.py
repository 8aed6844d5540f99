"""The report of a recording: histogram, mix beside the published one, unused API parts; tables, JSON, a chart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from minikube_py.lab import plots
from minikube_py.lab.calls.published import SOURCE, Line, mix
from minikube_py.lab.calls.recorder import API_SERVER, Kind, Recorder
from minikube_py.lab.calls.shapes import all_parts
from minikube_py.lab.environment import Environment
from minikube_py.lab.measure import summary_ms
from minikube_py.lab.report import Table, milliseconds

ROWS_SHOWN: Final = 40
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
        shown = [milliseconds(figures[key]) for key in ("p50_ms", "p99_ms")]
        table.add(_text(kind), kind.resource, kind.role, f"{len(found):,}", _share(len(found) / total), *shown)
    rest = sum(len(found) for _, found in ordered[ROWS_SHOWN:])
    if rest:
        table.add("others", f"{len(ordered) - ROWS_SHOWN} kinds", "", f"{rest:,}", _share(rest / total), "", "")
    return table


def _text(kind: Kind) -> str:
    return kind.operation if kind.shape == kind.operation else f"{kind.operation}: {kind.shape}"


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


def draw(recorder: Recorder, environment: Environment, path: Path, title: str) -> Path:
    """Calls by shape and role, and the mix beside the published one."""
    shapes: dict[str, Counter[str]] = {}
    for kind, found in recorder.latencies_s.items():
        shapes.setdefault(_text(kind), Counter())[kind.role] += len(found)
    made, axes = plots.figure(1, 2, (14, 0.9 + 0.36 * max(8, len(shapes))))
    _draw_shapes(axes[0][0], shapes, title)
    _draw_mix(axes[0][1], [line for line in mix(recorder) if line.published is not None])
    made.subplots_adjust(wspace=0.42)
    made.text(0.01, -0.04, "; ".join(environment.lines()), fontsize=7, color=plots.GREY)
    return plots.save(made, path)


def _draw_shapes(axes: Any, shapes: Mapping[str, Counter[str]], title: str) -> None:
    ordered = sorted(shapes, key=lambda text: shapes[text].total())
    roles = [role for role in COLOURS if any(shapes[text][role] for text in ordered)]
    left = [0.0] * len(ordered)
    for role in roles:
        widths = [shapes[text][role] for text in ordered]
        # The legend names what can be seen.
        label = f"for the {role}" if max(widths) > 0.004 * shapes[ordered[-1]].total() else None
        axes.barh(range(len(ordered)), widths, left=left, color=COLOURS[role], label=label)
        left = [before + width for before, width in zip(left, widths)]
    for place, whole in enumerate(left):
        axes.annotate(f" {int(whole):,}", (whole, place), va="center", fontsize=7)
    axes.set_yticks(range(len(ordered)), ordered)
    axes.set_xlabel("calls")
    axes.margins(x=0.12)
    axes.grid(axis="y", visible=False)
    most = " and ".join(f"'{text}'" for text in ordered[:-3:-1])
    axes.set_title(f"{most} are {sum(left[-2:]) / sum(left):.0%} of\n{title}")
    axes.legend(loc="lower right", fontsize=8)


def _draw_mix(axes: Any, lines: Sequence[Line]) -> None:
    places = range(len(lines))[::-1]
    for offset, label, colour, values in (
        (0.2, "Kubernetes 1.34 e2e on etcd", plots.GREY, [line.published or 0.0 for line in lines]),
        (-0.2, "this run", plots.BLUE, [line.ours or 0.0 for line in lines]),
    ):
        bars = axes.barh(
            [place + offset for place in places], [100 * v for v in values], 0.38, color=colour, label=label
        )
        axes.bar_label(bars, labels=[_share(value) for value in values], fontsize=7, padding=2)
    axes.set_yticks(places, [f"{line.what}\n(of {line.of})" for line in lines], fontsize=7)
    axes.set_xlabel("% of the calls, ranges or txns")
    axes.margins(x=0.12)
    axes.grid(axis="y", visible=False)
    txns = next(line for line in lines if line.what == "txn")
    axes.set_title(f"Txns are {_share(txns.ours)} of the calls,\nin Kubernetes' own tests {_share(txns.published)}")
    axes.legend(loc="lower right", fontsize=8)

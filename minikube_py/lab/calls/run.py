"""`minikube-py lab calls`: a run with a recorder on both sides of the API server, and its report."""

from __future__ import annotations

import logging
import random
from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from minikube_py.control_plane.config import Step
from minikube_py.env import SystemClock
from minikube_py.lab import plots, report
from minikube_py.lab.calls import tables
from minikube_py.lab.calls.drawing import Diagram, svg
from minikube_py.lab.calls.published import mix
from minikube_py.lab.calls.recorded import RecordedControlPlane
from minikube_py.lab.calls.recorder import Recorder
from minikube_py.lab.calls.stories import Stories, tell
from minikube_py.lab.calls.story import pod_story
from minikube_py.lab.cluster import Ground
from minikube_py.lab.density import DensityOptions, run_density
from minikube_py.lab.environment import Environment, describe
from minikube_py.lab.replay_report import ReplayOptions, run_replay

LAYOUT = "one process: store, API server, scheduler, controllers, kubelet"


async def run_calls(
    run: DensityOptions | ReplayOptions, *, data_dir: Path | None, results: Path, seed: int, step: Step
) -> None:
    """The run's own report first, then the calls'. Raises: MinikubeError of every kind."""
    report.require_writable(results)
    recorder = Recorder(SystemClock())
    plane = partial(RecordedControlPlane, recorder)
    ground = Ground(step=step, data_dir=data_dir, seed=seed, plane=plane)
    if isinstance(run, DensityOptions):
        name = "density"
        await run_density(run, ground, results)
    else:
        name = "replay openb"
        await run_replay(run, ground, results)
    duration_s = recorder.clock.monotonic_s() - recorder.began_s
    pod = pod_story(recorder.between(0.0, recorder.clock.monotonic_s()))
    with _only_errors():
        stories = await tell(step, random.Random(seed).getrandbits(32))
    environment = describe(results, LAYOUT)
    _tell(recorder, stories)
    folder = report.results_folder(results, f"calls-{name.replace(' ', '-')}", datetime.now())
    figures = {
        "run": name,
        "options": {key: str(value) if isinstance(value, Path) else value for key, value in asdict(run).items()},
        **tables.figures(recorder, duration_s),
        "query_us": stories.query_us,
    }
    report.print_written(_write(folder, environment, recorder, figures, pod, stories))


@contextmanager
def _only_errors() -> Any:
    """Silences warnings, which every deliberately cut connection causes."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)


def _tell(recorder: Recorder, stories: Stories) -> None:
    report.print_table(tables.histogram(recorder))
    report.print_table(tables.by_role(recorder))
    report.print_table(tables.mix_table(mix(recorder)))
    print("\nStore API calls not used in this run")
    for line in tables.unused_lines(tables.unused(recorder)):
        print(f"  {line}")
    for what, count in recorder.failures.most_common():
        print(f"{count:,} calls ended differently: {what}")
    print("\nNodes with enough free capacity, in the diagrams")
    for what, took_us in stories.query_us.items():
        print(f"  {what}: {took_us:,.0f} µs")


def _write(
    folder: Path,
    environment: Environment,
    recorder: Recorder,
    figures: Mapping[str, Any],
    pod: Diagram | None,
    stories: Stories,
) -> list[Path]:
    paths = [report.write_json(folder, "calls", environment, figures)]
    diagrams = {
        "pod": pod,
        "scheduler-start": stories.scheduler,
        "compaction": stories.compaction,
        "query-index": stories.with_index,
        "query-declared": stories.with_declared,
        "query-scan": stories.without_index,
    }
    for name, diagram in diagrams.items():
        if diagram is not None:
            path = folder / f"{name}.svg"
            path.write_text(svg(diagram), encoding="utf-8")
            paths.append(path)
    if not plots.available():
        print(plots.MISSING)
        return paths
    return [*paths, tables.draw(figures, "; ".join(environment.lines()), folder / "calls.png")]

"""The workloads of a file, each on a separate control plane, and their report."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any, Final

from minikube_py.cluster.virtual import VirtualCluster
from minikube_py.control_plane.config import Step
from minikube_py.controllers.garbage_collector import GarbageCollector
from minikube_py.controllers.manager import ControllerManager
from minikube_py.controllers.namespace import NamespaceController
from minikube_py.controllers.resource_claims import ResourceClaims
from minikube_py.errors import InvalidRequest, MinikubeError, WrongUsage
from minikube_py.lab import report
from minikube_py.lab.cluster import running
from minikube_py.lab.environment import Environment
from minikube_py.lab.scheduler_perf import objects, ops
from minikube_py.lab.scheduler_perf.figures import Item, with_all_labels
from minikube_py.lab.scheduler_perf.files import Run, is_enabled, read_file
from minikube_py.lab.scheduler_perf.gates import check_gates, notes, refusal
from minikube_py.lab.scheduler_perf.running import Running
from minikube_py.lab.scheduler_perf.templates import template
from minikube_py.lab.stage import stage
from minikube_py.lab.virtual import in_virtual_time
from minikube_py.scheduler.asks import POD_LEVEL_RESOURCES
from minikube_py.scheduler.config import SchedulerConfig
from minikube_py.scheduler.configuration.chosen import DEFAULT_SCHEDULER, ChosenScheduler
from minikube_py.scheduler.configuration.files import read_scheduler
from minikube_py.scheduler.objects import DEFAULT_SCHEDULER_NAME
from minikube_py.scheduler.plugins.node_declared_features import NodeDeclaredFeatures
from minikube_py.scheduler.scheduler import Scheduler

CONTROLLERS: Final = (GarbageCollector.name, NamespaceController.name, ResourceClaims.name)
"""The controllers of upstream's benchmark; workloads bind volumes themselves."""
DEFAULT_LABELS: Final = "integration-test,-performance"
TOPICS: Final = {"topology_spreading": "topologyspreading", "event_handling": "eventhandling"}
"""Upstream's names of folders in results and thresholds, where they differ."""


@dataclass(frozen=True, slots=True)
class Plan:
    """From the command's flags. `workloads`: TEST or TEST/WORKLOAD, with * and ?; `labels`: a filter."""

    file: Path
    workloads: Sequence[str]
    labels: str
    topic: str
    seed: int
    chosen: ChosenScheduler = DEFAULT_SCHEDULER

    def runs(self) -> list[Run]:
        """The selected runs, whether or not they can run. Raises: InvalidRequest."""
        found = read_file(self.file)
        check_gates(found)
        chosen = [run for run in found if is_enabled(self.labels, run.labels) and self._is_named(run)]
        for name in self.workloads:
            if not any(_matches(run, name) for run in found):
                raise InvalidRequest(f"{self.file}: no workload is named {name}; --list shows them")
        if not chosen:
            raise InvalidRequest(f"{self.file}: no workload has the labels {self.labels}; --list shows them all")
        return chosen

    def _is_named(self, run: Run) -> bool:
        return not self.workloads or any(_matches(run, name) for name in self.workloads)


def _matches(run: Run, name: str) -> bool:
    return fnmatchcase(run.name, name) or fnmatchcase(run.case.name, name)


def topic_of(file: Path) -> str:
    """Upstream's name of the folder: `dra_extendedresource_scoring`, `eventhandling`."""
    folders = file.resolve().parent.parts
    at = len(folders) - folders[::-1].index("dra") - 1 if "dra" in folders else len(folders) - 1
    name = "_".join(folders[at:])
    return TOPICS.get(name, name)


def why_not(run: Run) -> str:
    """Why a workload cannot run here, or "". Raises: InvalidRequest if a file that it names cannot be read."""
    if why := refusal(run):
        return why
    for op in run.ops:
        if isinstance(op, ops.CreateAny | ops.UpdateAny | ops.CreateResourceClaims):
            obj = template(run.case.folder / op.template_path).render()
            if objects.is_inert(obj):
                continue
            try:
                kind, _ = objects.served(obj, op.template_path)
            except InvalidRequest as error:
                return str(error)
            for name in op.subresources if isinstance(op, ops.UpdateAny) else ():
                if kind.subresource(name) is None:
                    return f"the API has no subresource {kind.plural}/{name}"
    return ""


def notes_of(run: Run) -> list[str]:
    """Differences of a workload from upstream's."""
    found = notes(run)
    for op in run.ops:
        if isinstance(op, ops.CreateAny):
            obj = template(run.case.folder / op.template_path).render()
            group, version = objects.group_and_version(obj)
            if objects.is_inert(obj):
                gate = objects.INERT[group, str(obj["kind"])]
                found.append(
                    f"{op.template_path}: not created; upstream's scheduler reads no {obj['kind']} while {gate} is "
                    "off, as it is by default"
                )
            elif (group, version) in objects.SAME_AS:
                same = objects.SAME_AS[group, version]
                found.append(f"{op.template_path}: sent as {group}/{same}, whose fields are those of {version}")
    return list(dict.fromkeys(found))


@dataclass(slots=True)
class Outcome:
    run: Run
    environment: Environment
    items: list[Item]
    missed: list[str]
    scheduled: int
    duration_s: float
    attempts: int
    history: dict[str, Any] = field(default_factory=dict)


def _configured(run: Run, plan: Plan) -> SchedulerConfig:
    """Raises: ConfigError."""
    chosen = plan.chosen
    if chosen.file is None and run.case.scheduler_config_path:
        chosen = chosen._replace(file=run.case.folder / run.case.scheduler_config_path)
    config = read_scheduler(chosen, needed=DEFAULT_SCHEDULER_NAME)
    if not run.declared_features:
        return config
    features = dict.fromkeys(run.declared_features, POD_LEVEL_RESOURCES)
    plugin = partial(NodeDeclaredFeatures, features=features)
    return replace(config, registry={**config.registry, NodeDeclaredFeatures.name: plugin})


async def run_one(
    run: Run, plan: Plan, *, data_dir: Path | None, step: Step, virtual: VirtualCluster | None = None
) -> Outcome:
    """Raises: MinikubeError of every kind."""
    config = _configured(run, plan)
    percent = config.percentage_of_nodes_to_score
    async with stage(1, data_dir=data_dir, scored_percent=percent, step=step, virtual=virtual) as standing:
        clock = standing.clock
        scheduler = Scheduler(standing.scheduler, clock, random.Random(plan.seed), config)
        controllers = ControllerManager(standing.transport, clock, random.Random(plan.seed), names=CONTROLLERS)
        started_s = clock.monotonic_s()
        async with running(scheduler, controllers):
            workload = Running(run, plan.topic, standing, scheduler, plan.seed)
            items = await workload.run()
        attempts = sum(value for name, value in scheduler.metrics().items() if name.startswith(ATTEMPTS))
        duration_s = clock.monotonic_s() - started_s
        environment = standing.environment
    return Outcome(run, environment, items, workload.missed, workload.scheduled, duration_s, int(attempts))


ATTEMPTS: Final = "scheduler_schedule_attempts_total{"


@dataclass(slots=True)
class Told:
    """All runs of a command; prints progress."""

    plan: Plan
    outcomes: list[Outcome] = field(default_factory=list)
    refused: list[tuple[str, str]] = field(default_factory=list)
    failed: list[tuple[str, str]] = field(default_factory=list)

    def begin(self) -> list[Run]:
        """The workloads that can run. Raises: InvalidRequest."""
        found = []
        for run in self.plan.runs():
            if why := why_not(run):
                self.refused.append((run.name, why))
                print(f"{run.name}: refused: {why}", flush=True)
            else:
                found.append(run)
        return found

    def say(self, run: Run) -> None:
        print(f"\n{run.name}: {run.pods:,} pods", flush=True)
        for note in notes_of(run):
            print(f"  {note}", flush=True)

    def fail(self, run: Run, error: MinikubeError) -> None:
        self.failed.append((run.name, str(error)))
        print(f"{run.name}: FAILED: {error}", flush=True)

    def end(self, results: Path) -> bool:
        """Prints and writes the report; returns whether all succeeded."""
        if self.outcomes:
            environment = self.outcomes[-1].environment
            environment.tell()
            report.print_table(self._table())
            report.print_written([self._write(results, environment)])
        for outcome in self.outcomes:
            for text in outcome.missed:
                print(f"below its threshold: {text}", flush=True)
        told = [f"{len(self.outcomes)} ran", f"{len(self.failed)} failed", f"{len(self.refused)} refused"]
        print(f"\n{', '.join(told)} of {len(self.outcomes) + len(self.failed) + len(self.refused)} workloads")
        return not self.failed and not any(outcome.missed for outcome in self.outcomes)

    def _table(self) -> report.Table:
        columns = (
            "",
            "pods scheduled",
            "attempts",
            "pods/s",
            "p50",
            "p99",
            "measured s",
            "attempt p99 ms",
            "of threshold",
        )
        table = report.Table("Workloads of scheduler_perf; pods/s by upstream's samples of one second", columns)
        for outcome in self.outcomes:
            for name in dict.fromkeys(item["labels"]["Name"] for item in outcome.items):
                table.add(name.removeprefix("BenchmarkPerfScheduling/"), *_cells(outcome, name))
            if not outcome.items:
                table.add(outcome.run.name, f"{outcome.scheduled:,}", f"{outcome.attempts:,}", *("-",) * 6)
        return table

    def _write(self, results: Path, environment: Environment) -> Path:
        folder = report.results_folder(results, "scheduler-perf", datetime.now())
        items = with_all_labels([item for outcome in self.outcomes for item in outcome.items])
        workloads = [
            {
                "name": outcome.run.name,
                "notes": notes_of(outcome.run),
                "pods_scheduled": outcome.scheduled,
                "attempts": outcome.attempts,
                "duration_s": round(outcome.duration_s, 3),
                "missed": outcome.missed,
                **({"history": outcome.history} if outcome.history else {}),
            }
            for outcome in self.outcomes
        ]
        figures = {
            "dataItems": items,
            "file": str(self.plan.file),
            "workloads": workloads,
            "failed": dict(self.failed),
            "refused": dict(self.refused),
        }
        name = f"BenchmarkPerfScheduling_benchmark_{self.plan.topic}"
        return report.write_json(folder, name, environment, figures)


def _cells(outcome: Outcome, name: str) -> list[str]:
    items = {
        item["labels"].get("Metric", ""): item["data"]
        for item in outcome.items
        if item["labels"]["Name"] == name and item["labels"].get("result", "scheduled") == "scheduled"
    }
    rates = items.get("SchedulingThroughput", {})
    attempt = items.get("scheduler_scheduling_attempt_duration_seconds", {}).get("Perc99")
    limit = rates.get("AverageThreshold")
    return [
        f"{outcome.scheduled:,}",
        f"{outcome.attempts:,}",
        *(f"{rates[each]:,.1f}" if each in rates else "-" for each in ("Average", "Perc50", "Perc99")),
        f"{items['SchedulingDuration']['Duration']:,.2f}",
        report.milliseconds(attempt) if attempt is not None else "-",
        f"{rates['Average'] / limit:.2f}" if limit else "-",
    ]


async def run_all(plan: Plan, *, data_dir: Path | None, results: Path, step: Step) -> bool:
    """Prints progress; False if a run failed or missed its threshold.

    Raises: InvalidRequest; ReportError."""
    report.require_writable(results)
    told = Told(plan)
    runs = told.begin()
    if data_dir is not None and len(runs) > 1:
        raise WrongUsage(f"--data-dir holds one run, and these are {len(runs)}; leave it out, or ask for one")
    for run in runs:
        told.say(run)
        try:
            told.outcomes.append(await run_one(run, plan, data_dir=data_dir, step=step))
        except MinikubeError as error:
            told.fail(run, error)
    return told.end(results)


async def _on(run: Run, plan: Plan, step: Step, virtual: VirtualCluster) -> Outcome:
    return await run_one(run, plan, data_dir=None, step=step, virtual=virtual)


def run_all_virtually(plan: Plan, *, again: str, results: Path, step: Step) -> bool:
    """`run_all` in virtual time, each run with its digest. `again`: the command without its seed.

    Raises: InvalidRequest; ReportError; SimFailure."""
    report.require_writable(results)
    told = Told(plan)
    for run in told.begin():
        told.say(run)
        try:
            outcome, history = in_virtual_time(plan.seed, partial(_on, run, plan, step))
        except MinikubeError as error:
            told.fail(run, error)
            continue
        told.outcomes.append(replace(outcome, history=history.as_dict()))
        for line in history.lines(again):
            print(f"  {line}", flush=True)
    return told.end(results)


def show(plan: Plan) -> None:
    """Lists the workloads: labels, size, and why one does not run. Raises: InvalidRequest."""
    table = report.Table(f"{plan.file}", ("", "labels", "pods", "runs here"))
    for run in plan.runs():
        table.add(run.name, ", ".join(run.labels) or "-", f"{run.pods:,}", why_not(run) or "yes")
    report.print_table(table)

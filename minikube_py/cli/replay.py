"""Replay a trace through a control plane of its own and write down how long each pod took; or stop at a moment of a
history in virtual time, to inspect it with kubectl.

  minikube-py replay openb                  no pod leaves; as fast as possible
  minikube-py replay openb --departures     each leaves at its time; at most about 60 run at once
  minikube-py replay openb --virtual        in virtual time: the same seed gives the same digest
  minikube-py replay --from LOG --until FailedScheduling/web
                                            a log that Cluster.save_log(LOG) wrote, to the end of that moment"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from minikube_py.cli import flags, forms, input_files, virtual
from minikube_py.cli.running import run_interruptible
from minikube_py.cli.terminal import started
from minikube_py.errors import InvalidRequest, WrongUsage

if TYPE_CHECKING:
    from minikube_py.cluster.virtual import VirtualCluster

LOG, REAL, VIRTUAL = "--from LOG", "a trace in real time", "a trace and --virtual"
ETCD: Final = ("servers", "cafile", "certfile", "keyfile", "prefix", "compaction_interval")
HONOURED: Final = {
    **dict.fromkeys(("log", "until", "port"), (LOG,)),
    **dict.fromkeys(("virtual", "heartbeats", "members", "page"), (VIRTUAL,)),
    **dict.fromkeys(("split", "data_dir", *(f"etcd_{name}" for name in ETCD)), (REAL,)),
    **dict.fromkeys(("departures", "speed", "day", "pods", "tables", "scheduler_config", "plugins"), (REAL, VIRTUAL)),
    **dict.fromkeys(("results", "seed"), (REAL, VIRTUAL)),
}
"""By each flag's destination: the forms of this command that it belongs to."""


def configure(parser: argparse.ArgumentParser) -> None:
    trace_help = "openb, or the name of an entry point of minikube_py.traces"
    parser.add_argument("trace", nargs="?", type=flags.TRACE, metavar="TRACE", help=trace_help)
    log_help = "a recorded history: its seed and inputs"
    parser.add_argument("--from", dest="log", type=input_files.file, metavar="LOG", help=log_help)
    until_help = "with --from: 12.5 (seconds), revision=40, created=pods/default/a (changed=, deleted=), REASON[/NAME]"
    parser.add_argument("--until", metavar="EVENT", help=until_help)
    port_help = "with --from: port of the API server (default: any free one)"
    parser.add_argument("--port", type=flags.whole_number(0, 65535), default=0, metavar="N", help=port_help)
    parser.add_argument("--departures", action="store_true", help="delete each pod at its time, in the trace's order")
    speed_help = (
        "with --departures or --day: seconds of the trace per second; 0: as fast as possible (default: 0, with --day 1)"
    )
    parser.add_argument("--speed", type=flags.seconds, metavar="X", help=speed_help)
    day_help = "only the pods that arrive on day D of the trace; each is created and deleted at its time"
    parser.add_argument("--day", type=flags.whole_number(0, 10_000), metavar="D", help=day_help)
    beats_help = "with --virtual: elided omits Leases and repeated node statuses, and the digest states this"
    parser.add_argument("--heartbeats", choices=["written", "elided"], default="written", help=beats_help)
    members_help = "with --virtual: members of the store, each on its own simulated machine (default: 1)"
    parser.add_argument("--members", type=flags.whole_number(1, 7), default=1, metavar="N", help=members_help)
    pods_help = "only the first N pods (default: all)"
    parser.add_argument("--pods", type=flags.whole_number(1, 10_000_000), metavar="N", help=pods_help)
    tables_help = "read the tables of `minikube-py trace convert` from here (default: those packaged)"
    parser.add_argument("--tables", type=input_files.folder, metavar="DIR", help=tables_help)
    flags.add_scheduler_config(parser)
    flags.add_etcd_behind(parser)
    flags.add_run(parser, virtual=True)
    flags.add_page(parser, "with --virtual: the run")
    forms.watch(parser)


def run(arguments: argparse.Namespace) -> int:
    of_log = hasattr(arguments, "log")
    if of_log == (arguments.trace is not None):
        raise WrongUsage("name either a trace (`replay openb`) or a log (`replay --from LOG`)")
    in_virtual_time = hasattr(arguments, "virtual")
    given = forms.require(arguments, LOG if of_log else VIRTUAL if in_virtual_time else REAL, HONOURED)
    if of_log:
        return _look(arguments.log, arguments.until, arguments.port)
    if "speed" in given and not given & {"departures", "day"}:
        raise WrongUsage("--speed needs --departures or --day: without them, no pod waits for its time")
    if arguments.tables and arguments.trace != "openb":
        raise WrongUsage("--tables reads the tables of openb; remove it, or name openb")
    from minikube_py.lab.cluster import Ground
    from minikube_py.lab.replay_report import ReplayOptions, run_replay

    options = ReplayOptions(
        departures=arguments.departures or arguments.day is not None,
        speed=arguments.speed if "speed" in given else float("day" in given),
        pods=arguments.pods,
        tables=arguments.tables,
        day=arguments.day,
        trace=arguments.trace,
    )
    chosen = flags.run_by(arguments)
    steps = started()

    ground = Ground(
        step=steps.done, split=arguments.split, data_dir=arguments.data_dir, seed=arguments.seed, chosen=chosen,
        etcd=flags.etcd_behind(arguments),
    )  # fmt: skip

    def replay(cluster: VirtualCluster | None = None) -> Coroutine[Any, Any, None]:
        return run_replay(options, replace(ground, virtual=cluster), arguments.results)

    if in_virtual_time:
        from minikube_py.cluster.virtual import VirtualConfig

        config = VirtualConfig(heartbeats=arguments.heartbeats, members=arguments.members)
        virtual.run(arguments.seed, replay, config, arguments.page)
    else:
        run_interruptible(replay())
    return 0


def _look(log: Path, until: str | None, port: int) -> int:
    """Replays the history up to there; then the control plane is paused for kubectl until Ctrl-C."""
    from minikube_py.cluster.input_log import InputLog, Moment, Verified, summary

    moment = None if until is None else Moment.parse(until)
    with input_files.wrong_value("--from"):
        history = InputLog.read(log)
    steps = started()
    engine = history.start(port)
    try:
        verified = Verified()
        moment = moment and moment.resolved(engine.plane.core.registry)
        came = history.play(engine, moment, verified)
        for line in summary(engine, moment):
            steps.line(line)
        steps.line(verified.told(engine.virtual.now_ns))
        if not came:
            raise InvalidRequest(f"{until} does not come in {log}: this is its end")
        steps.line(f"at {engine.url}; virtual time is stopped; Ctrl-C ends it\n")
        steps.line(f"  kubectl --kubeconfig {engine.kubeconfig('default')} get pods\n")
        run_interruptible(asyncio.Event().wait())
    finally:
        engine.stop(quietly=True)
    return 0

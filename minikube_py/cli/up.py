"""Start a control plane and keep it until Ctrl-C: store, API server over HTTPS, scheduler, controllers, fake kubelet.

Prints the kubectl line to paste when it is ready. Without --data-dir everything is in a temporary folder that is
removed at the end; with it, a later `up` on the same folder has all acknowledged writes.

All roles share one process; with --split each has its own, which is restarted when it dies. --members 3 runs three
members of the store: any one may die without loss of acknowledged writes."""

from __future__ import annotations

import argparse
import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from minikube_py.cli import audit_flags, flags, forms, input_files
from minikube_py.cli.terminal import STARTED, Steps
from minikube_py.control_plane.config import COMPONENTS, LOOPBACK, ControlPlaneConfig
from minikube_py.control_plane.process import Role, Stopping
from minikube_py.control_plane.store_layout import MEMBERS_MAX, member_count
from minikube_py.ports.descriptors import raise_descriptors

SEVERAL_MAX = 9

OWN_STORE, OTHER_STORE = "the built-in store", "an etcd (--etcd-servers)"
HONOURED = dict.fromkeys(
    (
        *("members", "etcd_port", "etcd_http_port", "restore", "quota_bytes", "reserve_bytes"),
        *("auto_compaction_mode", "auto_compaction_retention"),
    ),
    (OWN_STORE,),
)
WITH_ROLE = {
    "kubelet": dict.fromkeys(("nodes", "stages"), ("a kubelet",)),
    "controllers": dict.fromkeys(("controllers", "enable_controllers"), ("controllers",)),
    "scheduler": dict.fromkeys(("scheduler_config", "schedulers"), ("the scheduler",)),
}
WITH_ANY_SCHEDULER = dict.fromkeys(("matcher", "seed", "plugins"), ("a scheduler",))


def configure(parser: argparse.ArgumentParser) -> None:
    parser.usage = "%(prog)s [flags]"
    _configure_cluster(parser.add_argument_group("cluster"))
    _configure_server(parser.add_argument_group("API server"))
    _configure_processes(parser.add_argument_group("processes"))
    _configure_scheduling(parser.add_argument_group("scheduling"))
    store = parser.add_argument_group("store")
    restore_help = "restore this snapshot at the start; only into a folder without a store"
    store.add_argument("--restore", type=input_files.file, metavar="F", help=restore_help)
    flags.add_room(store)
    flags.add_structures(store)
    etcd_help = (
        "serve etcd's v3 API on this port of 127.0.0.1, each further member on the next port; 0 for any free ones "
        "(needs the extra `etcd-api`)"
    )
    store.add_argument("--etcd-port", type=flags.whole_number(0, 65535), metavar="P", help=etcd_help)
    http_help = "likewise its JSON gateway, /health, /readyz, /version and /metrics; beside --etcd-port"
    store.add_argument("--etcd-http-port", type=flags.whole_number(0, 65535), metavar="P", help=http_help)
    flags.add_etcd_behind(parser.add_argument_group("a real etcd as the store"))
    parser.set_defaults(parser=parser)
    forms.watch(parser)


def _configure_cluster(group: flags.Flags) -> None:
    flags.add_nodes(group, 1, "how many fake nodes")
    flags.add_stages(group)
    data_help = "data folder (default: a temporary folder, removed at the end)"
    group.add_argument("--data-dir", type=Path, metavar="D", help=data_help)
    kubeconfig_help = "write the kubeconfig here; never overwrites a file of another tool (default: in the data folder)"
    group.add_argument("--kubeconfig", type=Path, metavar="F", help=kubeconfig_help)
    ui_help = "serve a live page of the cluster; prints a link that opens it once (one process only)"
    group.add_argument("--ui", action="store_true", help=ui_help)


def _configure_server(group: flags.Flags) -> None:
    host_help = "listen on this address, 0.0.0.0 for all of them, as within a container (default: 127.0.0.1)"
    group.add_argument("--host", type=flags.address, default=LOOPBACK, metavar="A", help=host_help)
    port_help = "listen on this port, 0 for any free one (default: 6443, or a free one if that is taken)"
    group.add_argument("--port", type=flags.whole_number(0, 65535), metavar="P", help=port_help)
    san_help = "also name this host or address in the server's certificate; repeatable, or separated by commas"
    group.add_argument("--tls-san", type=flags.HOSTS, action="append", default=[], metavar="HOST,...", help=san_help)
    flags.add_admission_plugins(group)
    flags.add_controllers(group)
    audit_flags.add_audit(group)


def _configure_processes(group: flags.Flags) -> None:
    group.add_argument("--split", action="store_true", help="each role as a process of its own, over HTTPS")
    members_help = "members of the store, one process each (default: as in the data folder, or 1)"
    group.add_argument("--members", type=flags.whole_number(1, MEMBERS_MAX), metavar="N", help=members_help)
    several = flags.whole_number(1, SEVERAL_MAX)
    for role, what in (("apiservers", "API servers"), ("schedulers", "schedulers"), ("controllers", "controllers")):
        help_text = f"number of processes of {what}; with more than 1 each role has its own process (default: 1)"
        group.add_argument(f"--{role}", type=several, default=1, metavar="N", help=help_text)
    without_help = "do not run these roles, to run your own; comma-separated"
    kinds = flags.several(flags.one_of(*COMPONENTS))
    group.add_argument("--without", type=kinds, default=(), metavar=f"{'|'.join(COMPONENTS)},...", help=without_help)


def _configure_scheduling(group: flags.Flags) -> None:
    flags.add_scheduler_config(group)
    flags.add_feature_gates(group)
    flags.add_matcher(group)
    seed_help = "seed for breaking the scheduler's ties, the same at each start (default: random)"
    group.add_argument("--seed", type=flags.whole_number(0, 2**63 - 1), metavar="S", help=seed_help)
    beside_help = "run another scheduler of that name and configuration, for pods with that schedulerName"
    group.add_argument(
        "--scheduler", type=flags.named_file, action="append", default=[], metavar="NAME=F", help=beside_help
    )


def run(arguments: argparse.Namespace) -> int:
    from minikube_py.control_plane.secrets import parse_hosts

    _refuse_unused(arguments)
    forms.require(arguments, OTHER_STORE if hasattr(arguments, "etcd_servers") else OWN_STORE, HONOURED)
    flags.admit_structures(arguments)
    etcd = flags.etcd_behind(arguments)
    temporary = arguments.data_dir is None
    folder = Path(tempfile.mkdtemp(prefix="minikube-py-")) if temporary else arguments.data_dir.absolute()
    chosen = flags.chosen(arguments)
    for name, file in arguments.scheduler:
        beside = chosen._replace(file=file)
        flags.require_scheduler(beside, "--scheduler", name=name, gates=arguments.feature_gates)
    config = ControlPlaneConfig(
        data_dir=folder,
        host=arguments.host,
        port=arguments.port,
        kubeconfig=arguments.kubeconfig.absolute() if arguments.kubeconfig else None,
        nodes=arguments.nodes,
        seed=arguments.seed,
        matcher=arguments.matcher,
        structures=tuple(arguments.structures),
        enabled_plugins=arguments.enable_admission_plugins,
        enabled_controllers=arguments.enable_controllers,
        chosen=chosen,
        more_schedulers=tuple(arguments.scheduler),
        names=parse_hosts(",".join(arguments.tls_san), "--tls-san"),
        components=tuple(name for name in COMPONENTS if name not in arguments.without),
        members=arguments.members,
        restore=arguments.restore,
        etcd_port=arguments.etcd_port,
        etcd_http_port=arguments.etcd_http_port,
        etcd=etcd,
        apiservers=arguments.apiservers,
        schedulers=arguments.schedulers,
        controllers=arguments.controllers,
        quota_bytes=arguments.quota_bytes,
        reserve_bytes=arguments.reserve_bytes,
        retain_s=arguments.auto_compaction_retention,
        gates=arguments.feature_gates,
        stages=flags.stages(arguments),
        audit=audit_flags.audit(arguments),
    )
    members = 1 if etcd is not None else member_count(config)
    if 0 in (config.etcd_port, config.etcd_http_port):
        from minikube_py.control_plane.etcd_door import with_ports

        config = with_ports(config, members)
    split = arguments.split or max(config.apiservers, config.schedulers, config.controllers, members) > 1
    steps = Steps()
    raise_descriptors()
    try:
        if split and arguments.ui:
            arguments.parser.error("--ui needs a control plane in one process: remove --split and --members")
        if split and config.audit.to_standard_output:
            arguments.parser.error("--audit-log-path - needs a control plane in one process: name a file")
        return asyncio.run(_run(config, split, temporary, steps, arguments.ui))
    finally:
        if temporary:
            shutil.rmtree(folder, ignore_errors=True)


def _refuse_unused(arguments: argparse.Namespace) -> None:
    """Raises: WrongUsage."""
    for role in getattr(arguments, "without", ()):
        more = WITH_ANY_SCHEDULER if role == "scheduler" and not hasattr(arguments, "scheduler") else {}
        forms.refuse(arguments, f"--without {role}", WITH_ROLE[role] | more)
    audit_flags.refuse_half(arguments)
    if not hasattr(arguments, "etcd_port"):
        forms.refuse(arguments, "a server without etcd's API", {"etcd_http_port": ("--etcd-port",)})


async def _run(config: ControlPlaneConfig, split: bool, temporary: bool, steps: Steps, ui: bool) -> int:
    written = b""
    removed = " (temporary: removed at the end; --data-dir keeps it)" if temporary else ""
    steps.line(f"data in {config.data_dir}{removed}")
    async with Stopping("up") as stopping:
        plane = _make(config, split, steps)
        steps.done("Python", STARTED)
        running = AsyncExitStack()
        try:
            server = await stopping.unless_asked(plane.start())
            if server is not None:
                written = config.kubeconfig_file.read_bytes()
                _tell(config, server, steps)
                if ui:
                    await running.enter_async_context(_page(plane, server, steps))
                await stopping.wait(plane)
            steps.line(f"\n{stopping.reason}: stopping ...")
        finally:
            await running.aclose()
            await plane.stop()
            if temporary:
                _remove_kubeconfig(config.kubeconfig_file, written)
        steps.line("stopped")
    return 0


def _remove_kubeconfig(path: Path, written: bytes) -> None:
    """Its target is gone; another `up` may have replaced it."""
    try:
        if written and path.read_bytes() == written:
            path.unlink()
    except OSError:
        pass


def _make(config: ControlPlaneConfig, split: bool, steps: Steps) -> Role:
    if split:
        from minikube_py.control_plane.split import SplitControlPlane
        from minikube_py.env import SystemClock

        return SplitControlPlane(config, SystemClock(), steps.done, steps.line, steps.progress)
    import random

    from minikube_py.control_plane.in_process import ControlPlane
    from minikube_py.env import SystemClock

    return ControlPlane(config, SystemClock(), random.Random(), steps.done, steps.progress)


@asynccontextmanager
async def _page(plane: Role, server: str, steps: Steps) -> AsyncIterator[None]:
    import random
    import secrets

    from minikube_py.control_plane.in_process import ControlPlane
    from minikube_py.env import SystemClock
    from minikube_py.ui.page import Page

    assert isinstance(plane, ControlPlane)
    page = Page(plane.core, SystemClock(), random.Random(), secrets.token_urlsafe, server)
    plane.core.page = page
    steps.line(f"  {server}{page.link()}    (for one browser, within an hour; its certificate is this cluster's own)\n")
    try:
        yield
    finally:
        await page.stop()


def _tell(config: ControlPlaneConfig, server: str, steps: Steps) -> None:
    steps.line(f"ready in {steps.elapsed_s():.2f} s at {server}; Ctrl-C ends it\n")
    steps.line(f"  kubectl --kubeconfig {config.kubeconfig_file} get nodes\n")
    if config.etcd_port:
        client = config.pki_folder / "etcd-client"
        tls = f"--cacert {config.pki_folder / 'ca.crt'} --cert {client}.crt --key {client}.key"
        steps.line(f"  etcdctl --endpoints https://{LOOPBACK}:{config.etcd_port} {tls} get --keys-only --prefix /\n")
    if config.etcd_http_port:
        steps.line(f"  etcd's gateway, /health and /metrics: https://{LOOPBACK}:{config.etcd_http_port}\n")
    if config.members is not None and config.members > 1:
        steps.line("  minikube-py store status\n")
    if config.members is not None and config.members % 2 == 0:
        steps.line(f"  {even_members(config.members)}\n")


def even_members(count: int) -> str:
    """Why not an even number of members."""
    lost = (count - 1) // 2
    bears = f"{lost} that fail" if lost > 1 else "one that fails" if lost else "none that fails"
    return f"{count} members bear {bears}, as {count - 1} would: a write needs {count - lost}. Take an odd number"

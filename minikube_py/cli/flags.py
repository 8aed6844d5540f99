"""Flags shared by commands, and argument types."""

from __future__ import annotations

import argparse
import ipaddress
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from minikube_py.cli.input_files import file, file_or_folder, wrong_value
from minikube_py.control_plane.secret_files import AUTHORITY, SERVER, SERVER_KEY, STORE_TOKEN
from minikube_py.errors import MinikubeError
from minikube_py.own_code import absolute, find_class

if TYPE_CHECKING:
    from minikube_py.api.feature_gates import FeatureGates
    from minikube_py.control_plane.etcd_behind import EtcdBehind
    from minikube_py.control_plane.process import ProcessOptions
    from minikube_py.control_plane.role_clients import Election
    from minikube_py.control_plane.store_admin import StoreAdmin
    from minikube_py.scheduler.configuration.chosen import ChosenScheduler

T = TypeVar("T")

Flags = argparse._ActionsContainer
"""A parser, or a group of its flags."""

NODES_MAX = 100_000


def whole_number(low: int, high: int) -> Callable[[str], int]:
    """A kind of argument: an integer from `low` to `high`."""

    def parse(text: str) -> int:
        try:
            value = int(text.replace("_", "").replace(",", ""))
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"{value} is not within {low} to {high:,}")
        return value

    return parse


def address(text: str) -> str:
    """A kind of argument: an IP address."""
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not an IP address") from None


def several(kind: Callable[[str], T]) -> Callable[[str], tuple[T, ...]]:
    """A kind of argument: values of `kind` with commas between."""

    def parse(text: str) -> tuple[T, ...]:
        parts = [part.strip() for part in text.split(",")]
        if "" in parts:
            raise argparse.ArgumentTypeError(f"{text!r} has an empty part; write values with commas between")
        return tuple(map(kind, parts))

    return parse


def one_of(*names: str) -> Callable[[str], str]:
    """A kind of argument: one of some names."""

    def parse(text: str) -> str:
        if text not in names:
            raise argparse.ArgumentTypeError(f"{text!r} is not one of {', '.join(names)}")
        return text

    return parse


def share(high: float, low: float = 0) -> Callable[[str], float]:
    """A kind of argument: a number from `low` to `high`."""

    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"{text} is not within {low:g} to {high:,.12g}")
        return value

    return parse


seconds = share(1e9)
per_second = share(1e9, 0.001)


_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)")
_UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def duration_s(text: str) -> float:
    """A duration as upstream's flags take it: `15s`, `1m30s`, `500ms`; in seconds."""
    parts = _DURATION.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration; write 15s, 1m30s or 500ms")
    return sum(float(number) * _UNITS_S[unit] for number, unit in parts)


def retention_s(text: str) -> float:
    """As `duration_s`; 0 needs no unit."""
    return 0.0 if text == "0" else duration_s(text)


def compaction_age_s(text: str) -> float:
    """`--auto-compaction-retention` in etcd's mode `periodic`: a number without a unit is in hours."""
    return float(text) * 3_600 if re.fullmatch(r"[0-9]{1,6}", text) else duration_s(text)


def compaction_mode(text: str) -> str:
    """Of etcd's two modes, the one that the store supports."""
    if text == "revision":
        raise argparse.ArgumentTypeError("'revision' is not supported: the store keeps revisions by age, as 'periodic'")
    if text != "periodic":
        raise argparse.ArgumentTypeError(f"{text!r} is not a mode; the store supports 'periodic'")
    return text


def size_bytes(text: str) -> int:
    """A number of bytes, also with a suffix: `64Mi`, `2Gi`."""
    found = re.fullmatch(r"(\d{1,15})(Ki|Mi|Gi|Ti|)", text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size in bytes; write 100000, 64Mi or 2Gi")
    return int(found[1]) << {"": 0, "Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40}[found[2]]


def mapping(text: str) -> dict[str, Any]:
    """A kind of argument: a mapping in YAML or JSON."""
    from minikube_py.api import yaml_text

    try:
        found, _ = yaml_text.read(text.encode())
    except yaml_text.YamlError as error:
        raise argparse.ArgumentTypeError(f"{text!r}: {error}; write {{NAME: VALUE}}") from None
    if not isinstance(found, dict):
        raise argparse.ArgumentTypeError(f"{text!r} is not a mapping; write {{NAME: VALUE}}")
    return found


def checked(place: str, *more: object) -> Callable[[str], str]:
    """A kind of argument: a text that a function of ours takes, with `more`. `place`: MODULE:NAME in this package,
    imported only if there is a text to check."""

    def parse(text: str) -> str:
        try:
            if text:
                find_class(f"minikube_py.{place}")(text, *more)
        except MinikubeError as error:
            raise argparse.ArgumentTypeError(str(error).lstrip(": ")) from None
        return text

    return parse


HOST_PORT = checked("ports.addresses:require_address")
HOSTS = checked("control_plane.secrets:parse_hosts", "")
MEMBERS = checked("store.bootstrap:parse_initial_cluster")
TRACE = checked("lab.trace:installed")
SERVER_URL = checked("ports.addresses:require_server_url")
URLS = checked("control_plane.etcd_urls:parse_urls", "")
USUAL_SERVER = "https://127.0.0.1:6443"
HOSTS_PORTS = checked("control_plane.store_access:parse_addresses", "")


def switch(text: str) -> bool:
    """`true` or `false`, as in `--leader-elect=false`."""
    if text.lower() not in ("true", "false"):
        raise argparse.ArgumentTypeError(f"{text!r} is neither true nor false")
    return text.lower() == "true"


def add_nodes(parser: Flags, default: int, what: str, low: int = 0) -> None:
    kind = whole_number(low, NODES_MAX)
    parser.add_argument("--nodes", type=kind, default=default, metavar="N", help=f"{what} (default: {default:,})")


def add_run(parser: argparse.ArgumentParser, split: bool = True, virtual: bool = False) -> None:
    """Flags of every measurement: mode, seed and output."""
    if split:
        parser.add_argument("--split", action="store_true", help="each role as a process of its own, over HTTPS")
    data_help = "keep the data here, on the disk to be measured (default: a temporary folder)"
    parser.add_argument("--data-dir", type=Path, metavar="D", help=data_help)
    if virtual:
        virtual_help = "in virtual time: no real waiting; the same seed gives the same history, shown by its digest"
        parser.add_argument("--virtual", action="store_true", help=virtual_help)
    add_results(parser)
    seed_help = "the same seed makes the same objects in the same order, and breaks ties the same way (default: 0)"
    parser.add_argument("--seed", type=whole_number(0, 2**63 - 1), default=0, metavar="S", help=seed_help)


def add_results(parser: argparse.ArgumentParser, what: str = "JSON and pictures") -> None:
    results_help = f"write {what} under this folder (default: results)"
    parser.add_argument("--results", type=Path, default=Path("results"), metavar="DIR", help=results_help)


def add_page(parser: argparse.ArgumentParser, what: str) -> None:
    page_help = f"{what} as one HTML file: the nodes over time, with a slider"
    parser.add_argument("--page", type=new_file, metavar="FILE.html", help=page_help)


def new_file(text: str) -> Path:
    """A writable file path, checked before a long run."""
    path = Path(text).absolute()
    if path.is_dir() or not os.access(path.parent, os.W_OK | os.X_OK):
        raise argparse.ArgumentTypeError(f"{text}: no file can be written there")
    return path


def add_kubeconfig(parser: argparse.ArgumentParser) -> None:
    help_text = "how to reach the API server: a kubeconfig with an https server, its authority and a token"
    parser.add_argument("--kubeconfig", type=Path, required=True, metavar="F", help=help_text)


DEFAULT_MATCHER = "columns"


def matcher(text: str) -> str:
    """A kind of argument: the name of a structure, or the location of a user-defined class."""
    # The default passes here too; avoid loading numpy in a process supervisor.
    if text == DEFAULT_MATCHER or ":" in text:
        return absolute(text)
    from minikube_py.index.catalogue import STRUCTURES

    return one_of(*STRUCTURES)(text)


def add_matcher(parser: Flags) -> None:
    help_text = (
        "what finds candidate nodes for the scheduler: columns (filters check all nodes), a structure of the "
        "index family, or FILE.py:CLASS; the decisions are the same (default: columns)"
    )
    parser.add_argument("--matcher", type=matcher, default=DEFAULT_MATCHER, metavar="NAME", help=help_text)


def feature_gates(text: str) -> FeatureGates:
    """A kind of argument: upstream's feature gates, `Name=true,Other=false`."""
    from minikube_py.api.feature_gates import FeatureGateError, parse

    try:
        return parse(text)
    except FeatureGateError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def add_feature_gates(parser: Flags) -> None:
    help_text = "upstream's feature gates: GenericWorkload (Workload, PodGroup) and GangScheduling can be turned on"
    parser.add_argument(
        "--feature-gates", type=feature_gates, default=frozenset(), metavar="NAME=true,...", help=help_text
    )


def add_structures(parser: Flags) -> None:
    help_text = (
        "let indexes be kept in a structure of your own, FILE.py:CLASS or MODULE:CLASS, under its name; may be given "
        "several times, and at each start"
    )
    parser.add_argument(
        "--structure", dest="structures", type=absolute, action="append", default=[], metavar="FILE.py:CLASS",
        help=help_text,
    )  # fmt: skip


def add_admission_plugins(parser: Flags) -> None:
    help_text = (
        "admission plugins beside those that are on: ServiceAccount, which gives pods accounts and tokens, "
        "TaintNodesByCondition, which keeps pods off new nodes until controllers saw that they are ready"
    )
    known = several(one_of("ServiceAccount", "TaintNodesByCondition"))
    parser.add_argument("--enable-admission-plugins", type=known, default=(), metavar="NAME,...", help=help_text)


def add_controllers(parser: Flags) -> None:
    help_text = "controllers beside those that are on: ttl-controller, which annotates each node for its kubelet"
    known = several(one_of("ttl-controller"))
    parser.add_argument("--enable-controllers", type=known, default=(), metavar="NAME,...", help=help_text)


def add_stages(parser: Flags) -> None:
    help_text = (
        "KWOK stages for pods, nodes and other objects: a file, or a folder of files; repeatable "
        "(default: pods run at once)"
    )
    parser.add_argument("--stages", type=file_or_folder, action="append", default=[], metavar="PATH", help=help_text)


def stages(arguments: argparse.Namespace) -> tuple[Path, ...]:
    """Of `add_stages`; absolute, as other processes may read them. Raises: WrongUsage."""
    paths = tuple(path.absolute() for path in arguments.stages)
    if paths:
        from minikube_py.stages.files import load

        with wrong_value("--stages"):
            load(paths)
    return paths


def add_scheduler_config(parser: Flags, *more: str) -> None:
    help_text = "the scheduler's KubeSchedulerConfiguration, YAML or JSON (default: upstream's default plugins)"
    parser.add_argument("--scheduler-config", *more, dest="scheduler_config", type=file, metavar="F", help=help_text)
    plugin_help = (
        "a plugin of your own, FILE.py:CLASS, MODULE:CLASS or the name of an entry point; takes part at all its points "
        "unless the configuration names it; repeatable"
    )
    parser.add_argument(
        "--plugin", dest="plugins", type=absolute, action="append", default=[], metavar="FILE.py:CLASS",
        help=plugin_help,
    )  # fmt: skip


def admit_structures(arguments: argparse.Namespace) -> None:
    """Makes those of `add_structures` known to this process. Raises: BadCode, InvalidRequest."""
    if arguments.structures:
        from minikube_py.index.catalogue import admit

        for target in arguments.structures:
            admit(target)


def chosen(arguments: argparse.Namespace, name: str = "", needed: str = "") -> ChosenScheduler:
    """The value of the `add_scheduler_config` flags; `name`, `needed` as of `read_scheduler`. Raises: WrongUsage."""
    from minikube_py.scheduler.configuration.chosen import ChosenScheduler

    if ":" in (matcher := getattr(arguments, "matcher", "")):
        from minikube_py.index.catalogue import admit

        with wrong_value("--matcher"):
            admit(matcher)
    path = arguments.scheduler_config
    found = ChosenScheduler(path.absolute() if path else None, tuple(arguments.plugins))
    require_scheduler(found, "--scheduler-config", name, needed, getattr(arguments, "feature_gates", frozenset()))
    return found


def run_by(arguments: argparse.Namespace) -> ChosenScheduler:
    """As `chosen`, for a run whose pods name no scheduler."""
    return chosen(arguments, needed="default-scheduler")


def require_scheduler(
    chosen: ChosenScheduler, flag: str, name: str = "", needed: str = "", gates: FeatureGates = frozenset()
) -> None:
    """`flag`: of its file. Raises: WrongUsage."""
    # A supervisor loads no scheduler unless it has to judge one.
    if chosen.file is None and not (chosen.plugins or chosen.known):
        return
    from minikube_py.scheduler.configuration.files import own_plugins, read_scheduler

    with wrong_value("--plugin"):
        own_plugins((*chosen.plugins, *chosen.known))
    with wrong_value(flag if chosen.file is not None else "--plugin"):
        read_scheduler(chosen, name=name, needed=needed, gates=gates)


def named_file(text: str) -> tuple[str, Path]:
    """NAME=FILE, as a kind of argument."""
    name, equals, path = text.partition("=")
    if not name or not equals or not path:
        raise argparse.ArgumentTypeError(f"{text!r}: write NAME=FILE")
    return name, file(path).absolute()


def add_leader_election(parser: argparse.ArgumentParser, lease: str) -> None:
    """Upstream's flags; `lease` is the name of the Lease unless another is given."""
    group = parser.add_argument_group(
        "leader election", "Of several such processes one is active and the others are standbys. Upstream's flags."
    )
    elect_help = "stand for election before any work (default: true; --leader-elect=false to work at once)"
    group.add_argument(
        "--leader-elect", type=switch, nargs="?", const=True, default=True, metavar="true|false", help=elect_help
    )
    add_lease_timing(group, "leader-elect")
    name_help = f"the Lease to lock (default: {lease})"
    group.add_argument("--leader-elect-resource-name", default=lease, metavar="NAME", help=name_help)
    namespace_help = "its namespace (default: kube-system)"
    group.add_argument("--leader-elect-resource-namespace", default="kube-system", metavar="NS", help=namespace_help)
    lock_help = "the kind of lock; only leases (default: leases)"
    group.add_argument("--leader-elect-resource-lock", choices=["leases"], default="leases", help=lock_help)
    identity_help = (
        "who this process is; a process of the same name takes the lease over at once, so give one only where no two "
        "can ever run under it (default: host name and a random number)"
    )
    group.add_argument("--leader-elect-identity", metavar="NAME", help=identity_help)


def add_lease_timing(group: argparse._ArgumentGroup, prefix: str) -> None:
    lease_help = "how long candidates wait after the last observed renewal before they take it (default: 15s)"
    group.add_argument(f"--{prefix}-lease-duration", type=duration_s, default=15.0, metavar="T", help=lease_help)
    deadline_help = "how long the holder retries a renewal before it stops writing (default: 10s)"
    group.add_argument(f"--{prefix}-renew-deadline", type=duration_s, default=10.0, metavar="T", help=deadline_help)
    retry_help = "time between attempts (default: 2s)"
    group.add_argument(f"--{prefix}-retry-period", type=duration_s, default=2.0, metavar="T", help=retry_help)


def election(arguments: argparse.Namespace) -> Election | None:
    """The value of the `add_leader_election` flags; None without leader election. Raises: RequestError."""
    from minikube_py.client.lease_lock import Timing
    from minikube_py.control_plane.role_clients import Election

    if not arguments.leader_elect:
        return None
    return Election(
        arguments.leader_elect_resource_namespace,
        arguments.leader_elect_resource_name,
        arguments.leader_elect_identity,
        Timing(
            arguments.leader_elect_lease_duration,
            arguments.leader_elect_renew_deadline,
            arguments.leader_elect_retry_period,
        ),
    )


HEALTH_PORTS = {"store": 10251, "apiserver": 10252, "scheduler": 10259, "controllers": 10257, "kubelet": 10248}
"""The port for `minikube-py health ROLE`; upstream's if there is one."""


def _healthz(text: str) -> str:
    return text if text == "none" else HOST_PORT(text)


def add_process(parser: argparse.ArgumentParser, role: str) -> None:
    """Flags of every role process."""
    health_help = (
        f"address that answers `minikube-py health {role}` (plain HTTP, GET /readyz), or `none` "
        f"(default: 127.0.0.1:{HEALTH_PORTS[role]} if it is free; none with --with-parent)"
    )
    parser.add_argument("--healthz", type=_healthz, metavar="HOST:PORT", help=health_help)
    parent_help = "exit when standard input closes, to end with the parent process"
    parser.add_argument("--with-parent", action="store_true", help=parent_help)


def process(arguments: argparse.Namespace, role: str) -> ProcessOptions:
    """The value of the `add_process` flags."""
    from minikube_py.control_plane.process import ProcessOptions

    asked = arguments.healthz is not None
    own = None if arguments.with_parent else f"127.0.0.1:{HEALTH_PORTS[role]}"
    address = arguments.healthz if asked else own
    return ProcessOptions(arguments.with_parent, None if address == "none" else address, asked)


def add_store_access(parser: argparse.ArgumentParser) -> None:
    """Flags to reach a running store."""
    group = parser.add_argument_group(
        "which store", "By default the store of the running `minikube-py up`, or the one that $MINIKUBE_PY_STORE names."
    )
    group.add_argument("--data-dir", type=Path, metavar="D", help="that of the `up` with this data folder")
    endpoints_help = "the store with members at these addresses; needs --secrets-dir, or token and authority"
    group.add_argument("--endpoints", type=HOSTS_PORTS, metavar="HOST:PORT,...", help=endpoints_help)
    secrets_help = f"the folder `admin` of init-secrets: {STORE_TOKEN} and {AUTHORITY}"
    group.add_argument("--secrets-dir", type=Path, metavar="D", help=secrets_help)
    group.add_argument("--token-file", type=Path, metavar="F", help="the token for the store")
    group.add_argument("--ca-file", type=Path, metavar="F", help="the authority that signed its certificates, PEM")
    timeout_help = "timeout for each member (default: 5s)"
    group.add_argument("--timeout", type=duration_s, default=5.0, metavar="T", help=timeout_help)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(parser=parser)


def store_admin(arguments: argparse.Namespace) -> StoreAdmin:
    """A client of the store in the `add_store_access` flags. Raises: SetupError."""
    from minikube_py.control_plane.store_access import access_by_files, find_access
    from minikube_py.control_plane.store_admin import StoreAdmin

    secrets = arguments.secrets_dir
    if arguments.endpoints is not None and arguments.data_dir is not None:
        arguments.parser.error("--data-dir and --endpoints both name a store; give one of them")
    if arguments.endpoints is None:
        if secrets or arguments.token_file or arguments.ca_file:
            arguments.parser.error("--secrets-dir, --token-file and --ca-file go with --endpoints")
        return StoreAdmin(find_access(arguments.data_dir), arguments.timeout)
    token_file = arguments.token_file or (secrets and secrets / STORE_TOKEN)
    authority_file = arguments.ca_file or (secrets and secrets / AUTHORITY)
    if not token_file or not authority_file:
        arguments.parser.error("--endpoints needs --secrets-dir, or --token-file and --ca-file")
    access = access_by_files(arguments.endpoints, token_file, authority_file, "--endpoints")
    return StoreAdmin(access, arguments.timeout)


class Secrets:
    """Files that a role needs: each by a flag of its own, or all by `--secrets-dir`, under their usual names."""

    def __init__(self, parser: argparse.ArgumentParser, folder: str) -> None:
        self._group = parser.add_argument_group("secrets", "Files that `minikube-py init-secrets` makes.")
        folder_help = f"find all of these in this folder, the `{folder}` of init-secrets"
        self._group.add_argument("--secrets-dir", type=Path, metavar="D", help=folder_help)
        self._names: dict[str, str] = {}
        self._optional: set[str] = set()
        self._parser = parser
        parser.set_defaults(secrets=self)

    def file(self, flag: str, name: str, help_text: str, needed: bool = True) -> None:
        self._group.add_argument(flag, type=Path, metavar="F", help=f"{help_text} (D/{name})")
        self._names[flag] = name
        if not needed:
            self._optional.add(flag)

    def tls(self) -> None:
        """Upstream's names for a server's own certificate."""
        self.file("--tls-cert-file", SERVER, "the server's certificate, PEM")
        self.file("--tls-private-key-file", SERVER_KEY, "its private key, PEM")

    def find(self, arguments: argparse.Namespace, needed: Callable[[str], bool] = lambda _: True) -> None:
        """Sets files without a separate flag. Exits with a usage error if one is missing."""
        missing = []
        for flag, name in self._names.items():
            key = flag.lstrip("-").replace("-", "_")
            if getattr(arguments, key) is None and needed(flag):
                if arguments.secrets_dir is None and flag not in self._optional:
                    missing.append(flag)
                elif arguments.secrets_dir is not None:
                    setattr(arguments, key, arguments.secrets_dir / name)
        if missing:
            self._parser.error(f"needs --secrets-dir, or {', '.join(missing)}")


def add_room(parser: Flags) -> None:
    """`quota_bytes`, `reserve_bytes`, and how much history is kept, of a store member."""
    quota_help = (
        "refuse writes that need space once data and history reach this size, and raise the alarm NOSPACE; deletes "
        "and reads continue (default: 2Gi; 0: no bound)"
    )
    names = "--quota-bytes", "--quota-backend-bytes"
    parser.add_argument(*names, type=size_bytes, default=2 << 30, metavar="SIZE", help=quota_help)
    reserve_help = "the same when the disk has less than this free (default: 64Mi)"
    parser.add_argument("--reserve-bytes", type=size_bytes, default=64 << 20, metavar="SIZE", help=reserve_help)
    mode_help = "periodic, the default: the retention is an age; etcd's other mode, revision, is refused"
    parser.add_argument("--auto-compaction-mode", type=compaction_mode, metavar="MODE", help=mode_help)
    retention_help = (
        "compact what is older, as etcd's flag of that name: 30m, or a number of hours; 0: only when a client asks "
        "(default: 5m, or earlier once writes sum up to 64Mi)"
    )
    parser.add_argument("--auto-compaction-retention", type=compaction_age_s, metavar="AGE", help=retention_help)


def add_etcd_behind(parser: Flags) -> None:
    """An etcd instead of our store; flags as kube-apiserver's."""
    servers_help = "store everything in this etcd instead of the built-in store (needs the extra `etcd`)"
    parser.add_argument("--etcd-servers", metavar="URL,...", help=servers_help)
    files = (
        ("cafile", "the authority that signed etcd's certificates"),
        ("certfile", "the client certificate for etcd"),
        ("keyfile", "its private key"),
    )
    for name, what in files:
        parser.add_argument(f"--etcd-{name}", type=Path, metavar="F", help=f"{what}, PEM")
    prefix_help = "the prefix of all keys in etcd; each cluster needs its own (default: /registry)"
    parser.add_argument("--etcd-prefix", metavar="P", help=prefix_help)
    compaction_help = "interval of compaction; one API server compacts etcd; 0: never (default: 5m)"
    parser.add_argument("--etcd-compaction-interval", type=retention_s, metavar="D", help=compaction_help)
    parser.set_defaults(parser=parser)


def etcd_behind(arguments: argparse.Namespace) -> EtcdBehind | None:
    """None without --etcd-servers. Exits with a usage error if the flags conflict."""
    names = {
        "servers": "servers",
        "cafile": "authority_file",
        "certfile": "certificate_file",
        "keyfile": "key_file",
        "prefix": "prefix",
        "compaction_interval": "compaction_interval_s",
    }
    named = {field: value for flag, field in names.items() if (value := getattr(arguments, f"etcd_{flag}")) is not None}
    if not named:
        return None
    if "servers" not in named:
        arguments.parser.error("--etcd-cafile, --etcd-prefix and similar flags need --etcd-servers")
    from minikube_py.control_plane.errors import SetupError
    from minikube_py.control_plane.etcd_behind import EtcdBehind

    try:
        found = EtcdBehind(**named)
        found.check()
    except SetupError as error:
        arguments.parser.error(str(error))
    return found

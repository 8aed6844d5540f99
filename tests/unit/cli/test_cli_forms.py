"""A flag that the form of a command does not honour is wrong usage (2), named with the form that it needs.

Commands whose flags depend on others: `up` (store, roles, audit), `apiserver` (store, audit), `store` (members, etcd's
API), `store status` and all that reach a store, `store salvage`, `scheduler`, `kubelet`, `bench schedule`,
`bench scheduler-perf`, `lab calls`, `lab study`, `replay`, `trace convert`; and, in the tests of those commands,
`--page` and `--virtual` of measurements, `compare`, `index check`, `controllers`. In all others each flag acts in every
call, but for `health --secrets-dir`, of which its help says so, and upstream's flags of leader election (ADR 0105).
"""

from __future__ import annotations

import argparse
import shlex

import pytest

from minikube_py.cli import forms, up
from minikube_py.cli.main import main

OWN_STORE = "needs the built-in store; this is an etcd (--etcd-servers)"
CLAIMED = "needs --claim-share; this is a fixed share"
NO_SCHEDULER = "the scheduler; this is --without scheduler"
ANY_SCHEDULER = "needs a scheduler; this is --without scheduler"
SILENT = "--audit-log-path; this is a server without an audit log"
SERVER = "apiserver --store h:1 --secrets-dir d"
ALONE = "needs --initial-cluster, --advertise or --listen-peers; this is a member alone"

REFUSED = {
    "kubelet --kubeconfig x --claim-prefix p": f"--claim-prefix {CLAIMED}",
    "kubelet --kubeconfig x --claim-identity me": f"--claim-identity {CLAIMED}",
    "kubelet --kubeconfig x --claim-lease-duration 3s": f"--claim-lease-duration {CLAIMED}",
    "kubelet --kubeconfig x --claim-renew-deadline 3s": f"--claim-renew-deadline {CLAIMED}",
    "kubelet --kubeconfig x --claim-retry-period 3s": f"--claim-retry-period {CLAIMED}",
    "kubelet --kubeconfig x --claim-share --share 0/2": "--share needs a fixed share; this is --claim-share",
    "up --etcd-servers http://127.0.0.1:1 --quota-bytes 1Gi": f"--quota-bytes {OWN_STORE}",
    "up --etcd-servers http://127.0.0.1:1 --quota-backend-bytes 1Gi": f"--quota-bytes {OWN_STORE}",
    "up --etcd-servers http://127.0.0.1:1 --reserve-bytes 1Mi": f"--reserve-bytes {OWN_STORE}",
    "up --etcd-servers http://127.0.0.1:1 --members 3": f"--members {OWN_STORE}",
    "up --etcd-servers http://127.0.0.1:1 --restore FILE": f"--restore {OWN_STORE}",
    "up --etcd-http-port 0": "--etcd-http-port needs --etcd-port",
    "up --etcd-servers http://127.0.0.1:1 --etcd-port 0": f"--etcd-port {OWN_STORE}",
    "up --etcd-cafile f": "need --etcd-servers",
    "up --without kubelet --nodes 50": "--nodes needs a kubelet; this is --without kubelet",
    "up --without scheduler,kubelet --stages FILE": "--stages needs a kubelet; this is --without kubelet",
    "up --without controllers --controllers 2": "--controllers needs controllers; this is --without controllers",
    "up --without controllers --enable-controllers ttl-controller": "--enable-controllers needs controllers; this is "
    "--without controllers",
    "up --without scheduler --schedulers 2": f"--schedulers needs {NO_SCHEDULER}",
    "up --without scheduler --scheduler-config FILE": f"--scheduler-config needs {NO_SCHEDULER}",
    "up --without scheduler --scheduler a=FILE --scheduler-config FILE": f"--scheduler-config needs {NO_SCHEDULER}",
    "up --without scheduler --matcher columns": f"--matcher {ANY_SCHEDULER}",
    "up --without scheduler --seed 7": f"--seed {ANY_SCHEDULER}",
    "up --without scheduler --plugin p.py:P": f"--plugin {ANY_SCHEDULER}",
    "up --audit-log-maxage 3 --audit-log-mode batch": f"--audit-log-maxage needs {SILENT}".replace(
        ";", "; --audit-log-mode needs --audit-log-path;"
    ),
    "up --audit-policy-file FILE": f"--audit-policy-file needs {SILENT}",
    "up --audit-log-path f": "--audit-log-path needs --audit-policy-file; this is a server that logs nothing",
    f"{SERVER} --audit-log-maxsize 3": f"--audit-log-maxsize needs {SILENT}",
    f"{SERVER} --audit-log-path f": "--audit-log-path needs --audit-policy-file; this is a server that logs nothing",
    "apiserver --etcd-servers http://127.0.0.1:1 --store-ca-file f": "--store-ca-file needs --store; this is an etcd",
    "kubelet --kubeconfig x --shapes FILE --nodes 3": "--nodes needs nodes of the default shape or --claim-share",
    "scheduler --kubeconfig x --write-config-to f --seed 3": "--seed needs a run; this is --write-config-to",
    "scheduler --kubeconfig x --write-config-to f --healthz none": "--healthz needs a run; this is --write-config-to",
    "store --data-dir d --rejoin": f"--rejoin {ALONE}",
    "store --data-dir d --advertise-peer h:1": f"--advertise-peer {ALONE}",
    "store --data-dir d --peer-ca-file f": f"--peer-ca-file {ALONE}",
    "store --data-dir d --listen-client-http-urls http://127.0.0.1:1": "--listen-client-http-urls needs --listen-",
    "store --data-dir d --watch-progress-notify-interval 3s": "--watch-progress-notify-interval needs --listen-client-",
    "store --data-dir d --trusted-ca-file f": "--trusted-ca-file needs --listen-client-urls; this is a member without",
    "store --data-dir d --trusted-ca-file f --listen-client-urls http://127.0.0.1:1": "--trusted-ca-file needs a URL",
    "store status --data-dir d --endpoints h:1": "--data-dir and --endpoints both name a store; give one of them",
    "store salvage d --exact": "--exact needs --to: without it, nothing is written",
    "trace convert --lists --pods gpushare40": "--pods needs nodes and pods; this is --lists",
    "trace convert --usage --pods gpushare40": "--pods needs nodes and pods; this is --usage",
    "lab study bloom --report --time 3s": "--time needs a run; this is --report",
    "bench schedule --virtual --members 3": "--virtual has one member, not 3",
    "bench schedule --nodes 10,20 --data-dir d": "--data-dir holds one run, and these are 2; leave it out",
    "bench scheduler-perf FILE --list --seed 3": "--seed needs a run; this is --list",
    "bench scheduler-perf FILE --list --virtual": "--virtual needs a run; this is --list",
    "bench scheduler-perf FILE --list --results d": "--results needs a run; this is --list",
    "bench scheduler-perf FILE --list --plugin p.py:P": "--plugin needs a run; this is --list",
    "bench scheduler-perf FILE --list --scheduler-config FILE": "--scheduler-config needs a run; this is --list",
}


@pytest.mark.parametrize("typed", REFUSED)
def test_a_flag_of_another_form_is_refused_by_name(typed: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        code = main(shlex.split(typed.replace("FILE", __file__)))
    except SystemExit as ended:
        code = ended.code
    assert code == 2 and REFUSED[typed] in capsys.readouterr().err


@pytest.mark.parametrize(
    "typed",
    [
        "",
        "--without scheduler,controllers,kubelet",
        "--without scheduler --scheduler mine=FILE --matcher columns --seed 7 --plugin p.py:P",
        "--without controllers --nodes 3 --schedulers 2",
        "--audit-log-path - --audit-policy-file FILE --audit-log-mode batch",
    ],
)
def test_defaults_and_flags_that_act_are_silent(typed: str) -> None:
    parser = argparse.ArgumentParser()
    up.configure(parser)
    found = parser.parse_args(shlex.split(typed.replace("FILE", __file__)))
    up._refuse_unused(found)
    forms.require(found, up.OWN_STORE, up.HONOURED)
    assert found.reserve_bytes == 64 << 20

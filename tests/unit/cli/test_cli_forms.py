"""A flag that the form of a command does not honour is wrong usage (2), named with the form that it needs."""

from __future__ import annotations

import shlex

import pytest

from minikube_py.cli.main import main

OWN_STORE = "needs the built-in store; this is an etcd (--etcd-servers)"
CLAIMED = "needs --claim-share; this is a fixed share"

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
    "up --etcd-servers http://127.0.0.1:1 --etcd-port 0": f"--etcd-port {OWN_STORE}",
    "up --etcd-cafile f": "need --etcd-servers",
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

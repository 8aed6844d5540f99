"""kubectl in virtual time: no command waits for time that does not pass."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest

from minikube_py import Cluster, ClusterError
from minikube_py.cluster.kubectl import GLOBAL_SWITCHES, WAITING, without_waiting

pytestmark = pytest.mark.real_time("real sockets and threads")
needs_kubectl = pytest.mark.skipif(
    shutil.which("kubectl") is None, reason="kubectl is not on the PATH: any of 1.27 to 1.33"
)
WAITS = re.compile(r"^ +(?:-\w, )?--(wait|watch|watch-only|timeout|pod-running-timeout|stdin)[=\[]", re.MULTILINE)
POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
       "spec": {"containers": [{"name": "c", "image": "i"}]}}  # fmt: skip

REFUSED = """
delete pod p --wait=true
delete pod p --wait
-n default delete --wait=1 pod p
drain node-0 --force
--v=0 drain node-0
-v 0 drain node-0 --timeout=1s
wait pod/p --for=delete
wait pod/p --for=delete --timeout=1s
rollout status deploy/web
-n default rollout status deploy/web
rollout status deploy/web --watch
rollout -n default status deploy/web
get pods -w
get pods --watch
get -Aw pods
get pods --watch-only
--as admin get pods -w -o name
events -w
events -Aw=true
replace --force -f -
apply -f - --prune --wait
apply --force -f -
scale rc web --replicas=2 --timeout=1m
run p --image=i -it
run p --image=i --attach
run p --image=i --rm -i -- sh
debug p --image=i -it
proxy
exec p -- ls
attach p
port-forward p 80
logs deploy/web --pod-running-timeout=1m
--match-server-version wait pod/p --for=delete
--insecure-skip-tls-verify --request-timeout 3s drain node-0
get pods --watch=false -w
""".strip().splitlines()
PASSED = """
get pods
get pods -owide
get pods -o wide
get pods -l w
get pods --watch=false
get pods -w=false
get pods -nw
rollout restart deploy/web
rollout history deploy/web
rollout status deploy/web -w=false
rollout status deploy/web --watch=0
wait pod/p --for=delete --timeout=0
wait pod/p --for=delete --timeout 0s
apply -f -
apply --server-side --force-conflicts -f -
replace -f -
scale rc web --replicas=2
scale rc web --replicas=2 --timeout=0s
run p --image=i
run p --image=i -- sh -w -i
drain node-0 --dry-run=server
run -i p --image=i --dry-run=client -o yaml
delete --help
drain -h
help wait
-n delete get pods
--context drain get pods
create -f -
--help
label pod p -- wait
annotate pod p delete=x
""".strip().splitlines()


@pytest.mark.parametrize("line", REFUSED)
def test_what_would_wait_is_refused_by_name(line: str) -> None:
    command = next(each for each in line.split() if each in WAITING)
    with pytest.raises(ClusterError, match=f"^kubectl {command}.* would wait, and in virtual time no time passes"):
        without_waiting(line.split())


@pytest.mark.parametrize("line", PASSED)
def test_what_does_not_wait_passes_as_it_is(line: str) -> None:
    assert without_waiting(line.split()) == line.split()


@pytest.mark.parametrize(
    ("line", "added"),
    [
        ("delete pod p", "delete pod p --wait=false"),
        ("-n default delete pod p", "-n default delete pod p --wait=false"),
        ("--v=0 delete pod p --wait=false", "--v=0 delete pod p --wait=false --wait=false"),
        ("--as admin delete pod -- p", "--as admin delete pod --wait=false -- p"),
        ("logs deploy/web", "logs deploy/web --pod-running-timeout=1ms"),
    ],
)
def test_what_waits_by_default_does_not(line: str, added: str) -> None:
    assert without_waiting(line.split()) == added.split()


@needs_kubectl
def test_every_command_of_this_kubectl_that_can_wait_is_known() -> None:
    def help_of(*words: str) -> str:
        return subprocess.run(["kubectl", *words, "--help"], capture_output=True, text=True, check=True).stdout

    commands = re.findall(r"^  ([a-z-]+) {2,}\S", help_of().partition("Usage:")[0], re.MULTILINE)
    assert len(commands) > 30
    waiting = {each for each in commands if WAITS.search(help_of(each))}
    waiting |= {"rollout"} if WAITS.search(help_of("rollout", "status")) else set()
    assert {"delete", "drain", "wait", "get", "rollout"} <= waiting <= WAITING.keys()
    shown = subprocess.run(["kubectl", "options"], capture_output=True, text=True, check=True).stdout
    assert set(re.findall(r"^ +(?:-\w, )?--([a-z-]+)=(?:true|false):", shown, re.MULTILINE)) <= GLOBAL_SWITCHES


@needs_kubectl
@pytest.mark.parametrize(
    "line",
    [
        "delete pod p", "-n default delete pod p", "--v=0 delete pod p", "delete pod p --grace-period=0",
        "delete pod p --now", "delete pod p --grace-period=0 --force", "delete pods --all", "delete node/node-0",
        "delete namespace extra", "logs p", "wait pod/p --for=condition=Ready --timeout=0",
    ],
)  # fmt: skip
def test_it_returns(line: str) -> None:
    with Cluster(clock="virtual") as cluster:
        cluster.apply([POD, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "extra"}}])
        cluster.wait("pod/p", phase="Running")
        before_s = cluster.now_s
        cluster.kubectl(*line.split())
        # A write takes as long as the disk.
        assert cluster.now_s < before_s + 0.1

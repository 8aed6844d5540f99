"""Our control plane as a separate process, for comparisons with upstream."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

STOP_TIMEOUT_S = 30

BEHIND = "MINIKUBE_PY_BEHIND"
"""If this is `etcd`, everything compared with upstream runs on a real etcd."""
SERVE = """
ETCD = ""
GATES = ""
AUDIT = ()
CONFIG = ""
import asyncio, gc, random, signal, sys
from pathlib import Path
from minikube_py.api.feature_gates import parse
from minikube_py.apiserver import bootstrap
from minikube_py.apiserver.audit_log import LogOptions
from minikube_py.control_plane.auditing import Auditing
from minikube_py.control_plane.config import ControlPlaneConfig
from minikube_py.control_plane.etcd_behind import EtcdBehind
from minikube_py.control_plane.in_process import ControlPlane
from minikube_py.env import SystemClock
from minikube_py.scheduler.configuration.chosen import ChosenScheduler

PLUGINS = ()
# Upstream without priority and fairness, as judges run it, does not say of flow schemas whether their levels exist.
bootstrap.dangling = lambda *_: None

async def main(folder, components, nodes):
    etcd = EtcdBehind(ETCD) if ETCD else None
    more = {"etcd": etcd, "enabled_plugins": PLUGINS, "gates": parse(GATES)}
    if CONFIG:
        more["chosen"] = ChosenScheduler(Path(CONFIG))
    if AUDIT:
        more["audit"] = Auditing(Path(AUDIT[0]), LogOptions(AUDIT[1]))
    config = ControlPlaneConfig(Path(folder), port=0, nodes=nodes, components=components, **more)
    plane = ControlPlane(config, SystemClock(), random.Random(0))
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await plane.start()
    print("ready", flush=True)
    await stop.wait()
    await plane.stop()

asyncio.run(main(sys.argv[1], tuple(filter(None, sys.argv[2].split(","))), int("".join(sys.argv[3:]) or 0)))
gc.freeze()  # what was loaded is not searched for garbage at the end
"""



def gated(gates: str) -> tuple[str, str, str]:
    """Starts `serve` for a control plane with these feature gates."""
    return sys.executable, "-c", SERVE.replace('GATES = ""', f'GATES = "{gates}"')


def audited(policy: Path, log: Path) -> tuple[str, str, str]:
    """Starts `serve` for a control plane with an audit log."""
    return sys.executable, "-c", SERVE.replace("AUDIT = ()", f"AUDIT = {(str(policy), str(log))!r}")


def scheduling(config: Path) -> tuple[str, str, str]:
    """Starts `serve` for a control plane with this KubeSchedulerConfiguration."""
    return sys.executable, "-c", SERVE.replace('CONFIG = ""', f'CONFIG = "{config}"')


DEFAULT = (sys.executable, "-c", SERVE)
WITH_ACCOUNTS = (sys.executable, "-c", SERVE.replace("PLUGINS = ()", "PLUGINS = ('ServiceAccount',)"))


@contextlib.contextmanager
def serve_on_etcd(components: tuple[str, ...] = (), nodes: int = 0) -> Iterator[dict[str, Any]]:
    """The same, on a real etcd."""
    from etcd_api import real_etcd

    with tempfile.TemporaryDirectory() as folder, real_etcd(Path(folder, "etcd")) as place:
        script = SERVE.replace('ETCD = ""', f'ETCD = "http://{place}"')
        with serve(components, (sys.executable, "-c", script), nodes) as served:
            yield served


@contextlib.contextmanager
def serve(
    components: tuple[str, ...] = (), started: Sequence[str] = DEFAULT, nodes: int = 0
) -> Iterator[dict[str, Any]]:
    """Yields url, token and kubeconfig; `components` run beside store and API server. `started`: the process, to which
    folder, components and, where there are any, the number of fake `nodes` are added."""
    if os.environ.get(BEHIND) == "etcd" and started == DEFAULT:
        with serve_on_etcd(components, nodes) as served:
            yield served
        return
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "log")
        with log.open("w") as errors:
            command = [*started, folder + "/data", ",".join(components), *([str(nodes)] if nodes else [])]
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
        try:
            assert process.stdout is not None
            if process.stdout.readline() != "ready\n":
                raise RuntimeError(f"ours did not start:\n{log.read_text()[-2000:]}")
            kubeconfig = Path(folder, "data", "kubeconfig")
            config = yaml.safe_load(kubeconfig.read_text())
            yield {
                "url": config["clusters"][0]["cluster"]["server"],
                "token": config["users"][0]["user"]["token"],
                "kubeconfig": str(kubeconfig),
                "pid": process.pid,
            }
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(STOP_TIMEOUT_S)
            process.stdout.close()  # type: ignore[union-attr]
            said = log.read_text()
    if "Traceback" in said:
        raise RuntimeError(f"ours printed a traceback:\n{said[-4000:]}")

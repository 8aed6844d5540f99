"""A small density run on real upstream behind the recording proxy: what it saw is what etcd and kube-apiserver counted,
and each pod has its calls, by phase."""

from collections import Counter
from functools import partial
from pathlib import Path

import pytest
import upstream
from needs import original_program

from minikube_py.control_plane.errors import SetupError
from minikube_py.lab.calls.beside import UpstreamRun
from minikube_py.lab.calls.beside_report import call_table, counter_tables, phase_table
from minikube_py.lab.calls.phases import by_phase, per_pod
from minikube_py.lab.cluster import Ground
from minikube_py.lab.density import DensityOptions, run_density

PODS, LATE = 12, 3


@pytest.mark.real_time("upstream's own programs")
async def test_the_proxy_saw_what_etcd_and_kube_apiserver_counted(tmp_path: Path) -> None:
    for name in upstream.Parts(scheduler=True, controllers=True, kubelets=True).programs:
        original_program(name)
    run = UpstreamRun(upstream.SCRIPT)
    options = DensityOptions(3, PODS, LATE, 5.0, controllers=False, in_flight=8, seed=1)
    on = partial(run.cluster, results=tmp_path, step=lambda *_: None)
    await run_density(options, Ground(step=lambda *_: None), tmp_path, on)

    recorder, counted = run.recording.recorder, run.counted
    assert counted.disagreements() == []
    assert counted.etcd_handled["KV/Txn"] >= 4 * (PODS + LATE)
    found = by_phase(recorder.between(0.0, recorder.clock.monotonic_s()))
    pods = PODS + LATE
    assert found["creation", "txn: create", "pods"] == pods
    assert found["scheduling", "txn: update: bind", "pods"] == pods
    assert found["running", "txn: update: status", "pods"] == pods
    # kube-apiserver counts before it asks, etcd's proxy when it is answered.
    assert counted.api_server["create pods"] == pods
    assert counted.api_server["update pods"] >= 2 * pods
    assert found["events", "txn: create", "events"] <= counted.api_server["create events"]
    assert counted.etcd_mvcc["etcd_mvcc_put_total"] >= 4 * pods
    assert recorder.events["from the store: events"] >= 4 * pods
    sides = {"one": found, "other": found}
    assert len(phase_table(sides, pods).rows) == 6 and len(call_table(sides, pods).rows) >= 4
    assert all(table.rows for table in counter_tables(counted))


def test_a_proxy_that_missed_a_call_is_found(tmp_path: Path) -> None:
    script = tmp_path / "upstream"
    with pytest.raises(SetupError, match="no such file"):
        UpstreamRun(script)
    script.touch()
    run = UpstreamRun(script)
    run.counted.etcd_handled = {"KV/Txn": 7, "KV/Range": 3, "Lease/LeaseGrant": 1}
    run.counted.proxied = {"KV/Txn": (7, 7), "KV/Range": (2, 4)}
    assert run.counted.disagreements() == ["Lease/LeaseGrant: 0 to 0 by the proxy, 1 by etcd"]
    run.counted.proxied |= {"Lease/LeaseGrant": (1, 1), "KV/Txn": (6, 6)}
    assert run.counted.disagreements() == ["KV/Txn: 6 to 6 by the proxy, 7 by etcd"]


def test_shares_of_a_pod_add_up() -> None:
    counted = Counter({("creation", "txn: create", "pods"): 4, ("events", "txn: create", "events"): 6})
    told = per_pod(counted, 2)  # type: ignore[arg-type]
    assert told["creation"] == 2 and told["events"] == 3 and sum(told.values()) == 5

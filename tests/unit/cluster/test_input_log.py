"""A history in virtual time, made again from its inputs up to a moment, and looked at there."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import shutil
import signal
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from minikube_py import Cluster, ClusterError
from minikube_py.client.kubeconfig import load_kubeconfig
from minikube_py.cluster.input_log import InputLog, Moment, Verified

pytestmark = pytest.mark.real_time("plain functions, and a process")
ROOT = Path(__file__).parents[3]
EARLY = "the moment came during the start, which is one step: this is its end"
PODS = "/api/v1/namespaces/default/pods"


def pod(name: str, **spec: Any) -> dict[str, Any]:
    containers = [{"name": "c", "image": "i"}]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": containers, **spec}}


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a history with writes by several clients, faults, a node that goes down and a pod that fits nowhere."""
    path = tmp_path_factory.mktemp("log") / "history.jsonl"
    with Cluster(nodes=2, clock="virtual", seed=11) as cluster:
        cluster.apply(pod("a"))
        cluster.wait("pod/a", phase="Running")
        http = cluster.client.httpx()
        cluster.fail_next("pods")
        assert http.get(PODS).status_code == 500
        assert http.post(PODS, json=pod("b")).status_code == 201
        cluster.slow(0.5, "pods", for_s=3)
        assert http.get(PODS).status_code == 200
        cluster.advance(4)
        cluster.apply(pod("none", nodeSelector={"no": "such"}))
        cluster.node("node-0").down(30)
        cluster.advance(minutes=2)
        cluster.delete("pod/a")
        cluster.advance(minutes=1)
        cluster.all_well()
        cluster.save_log(path)
    return path


def played(log: Path, until: str | None = None) -> tuple[Any, bool, Any]:
    history = InputLog.read(log)
    engine = history.start()
    try:
        moment = None if until is None else Moment.parse(until).resolved(engine.plane.core.registry)
        came = history.play(engine, moment)
        found = engine.answer(_get(PODS))
        return engine.virtual.digest, came, (engine.virtual.now_s, json.loads(found.body))
    finally:
        engine.stop(quietly=True)


def _get(path: str) -> Any:
    from minikube_py.apiserver.messages import Request
    from minikube_py.cluster.gate import DOOR

    return Request("GET", path, user=DOOR)


def test_the_whole_log_makes_the_same_history(log: Path) -> None:
    digest, came, _ = played(log)
    assert came and digest == InputLog.read(log).digest


@pytest.mark.parametrize(
    ("until", "names", "phases"),
    [
        ("created=pods/default/b", ["a", "b"], ["Running", "Pending"]),
        ("FailedScheduling/none", ["a", "b", "none"], ["Running", "Running", "Pending"]),
        ("FailedScheduling", ["a", "b", "none"], ["Running", "Running", "Pending"]),
        ("deleted=pods/default/a", ["b", "none"], ["Running", "Pending"]),
        ("60", ["a", "b", "none"], ["Running", "Running", "Pending"]),
    ],
)
def test_it_stops_at_the_end_of_a_moment(log: Path, until: str, names: list[str], phases: list[str]) -> None:
    digest, came, (now_s, pods) = played(log, until)
    assert came
    assert [each["metadata"]["name"] for each in pods["items"]] == names
    assert [each["status"]["phase"] for each in pods["items"]] == phases
    if until == "60":
        assert now_s == 60
    assert (digest, came, (now_s, pods)) == played(log, until)


def test_a_revision_is_reached_and_no_more_than_its_moment(log: Path) -> None:
    _, came, (_, pods) = played(log, "revision=40")
    assert came and int(pods["metadata"]["resourceVersion"]) in range(40, 50)


@pytest.mark.parametrize(
    ("until", "told"),
    [
        ("created=nodes/node-0", EARLY),
        ("revision=1", EARLY),
        ("0.001", EARLY),
        ("deleted=nodes/node-0", None),
        ("created=pods/default/b", ""),
        ("3.6", ""),
        ("60", ""),
    ],
)
def test_what_came_during_the_start_opens_its_end(log: Path, until: str, told: str | None) -> None:
    history = InputLog.read(log)
    engine = history.start()
    try:
        start = engine.virtual.now_ns, engine.virtual.digest
        moment = Moment.parse(until).resolved(engine.plane.core.registry)
        assert history.play(engine, moment) is (told is not None)
        assert moment.passed(engine) == (told or "")
        assert (start == (engine.virtual.now_ns, engine.virtual.digest)) is bool(told)
    finally:
        engine.stop(quietly=True)


def test_a_time_that_passed_within_a_step_is_said(tmp_path: Path) -> None:
    with Cluster(nodes=1, clock="virtual") as cluster:
        cluster.slow(2, "pods")
        assert cluster.client.httpx().get(PODS).status_code == 200
        cluster.save_log(tmp_path / "log")
    history, moment = InputLog.read(tmp_path / "log"), Moment.parse("1")
    engine = history.start()
    try:
        assert history.play(engine, moment) and engine.virtual.now_s >= 2
        assert moment.passed(engine) == "the moment passed within a step: this is its end"
    finally:
        engine.stop(quietly=True)


@pytest.mark.parametrize("until", ["deleted=pods/default/b", "NoSuchReason", "revision=100000", "100000"])
def test_what_does_not_come_is_said(log: Path, until: str) -> None:
    digest, came, _ = played(log, until)
    assert not came and digest == InputLog.read(log).digest


def verified(log: Path, until: str | None) -> str:
    history, found = InputLog.read(log), Verified()
    engine = history.start()
    try:
        history.play(engine, None if until is None else Moment.parse(until), found)
        return found.told(engine.virtual.now_ns)
    finally:
        engine.stop(quietly=True)


def changed_log(log: Path, path: Path, number: int, **values: str) -> Path:
    """Row 0 is the head, row 1 the first input."""
    rows = [json.loads(line) for line in log.read_text().splitlines()]
    rows[number] |= values
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


def test_it_says_what_it_verified(log: Path, tmp_path: Path) -> None:
    inputs = len(InputLog.read(log).inputs)
    whole = f"verified: the digest of the whole history, and those before {inputs} inputs"
    assert verified(log, None) == whole == verified(log, "NoSuchReason")
    assert verified(log, "0") == "verified: nothing; the log holds no digests up to here"
    found = re.fullmatch(
        r"verified: the digests before (\d+) inputs, the last at ([\d.]+) s; the ([\d.]+) s after it are not verified",
        verified(log, "60"),
    )
    assert found is not None
    assert 0 < int(found[1]) < inputs
    assert float(found[2]) + float(found[3]) == 60
    rows = [json.loads(line) for line in log.read_text().splitlines()]
    for row in rows[1:]:
        del row["digest"]
    earlier = tmp_path / "earlier"
    earlier.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    assert verified(earlier, "60") == "verified: nothing; the log holds no digests up to here"
    assert verified(earlier, None) == "verified: the digest of the whole history, and those before 0 inputs"


def test_another_history_is_refused_where_it_shows_first(log: Path, tmp_path: Path) -> None:
    other = "0" * 64
    last = len(InputLog.read(log).inputs)
    for number in (1, last // 2, last):
        wrong = changed_log(log, tmp_path / f"{number}", number, digest=other)
        with pytest.raises(ClusterError, match=f"input {number} came at digest {other}, and this is "):
            verified(wrong, None)
    assert "not verified" in verified(changed_log(log, tmp_path / "later", last, digest=other), "60")
    for until in (None, "NoSuchReason"):
        with pytest.raises(ClusterError, match=f"the log was written at digest {other}"):
            verified(changed_log(log, tmp_path / "end", 0, digest=other), until)
    with pytest.raises(ClusterError, match=r"input \d+ came at .* this is another history"):
        verified(changed_log(log, tmp_path / "seed", 0, seed="12"), "60")


@pytest.mark.parametrize("text", ["", "revision=x", "revision=0", "made=pods/a", "Failed Scheduling", "-1"])
def test_what_names_no_moment_is_refused(text: str) -> None:
    with pytest.raises(ClusterError, match="names no moment; write "):
        Moment.parse(text)


def test_other_files_and_code_are_refused(tmp_path: Path) -> None:
    other = tmp_path / "other"
    with pytest.raises(ClusterError, match="cannot read the log"):
        InputLog.read(other)
    other.write_text("{}\n")
    with pytest.raises(ClusterError, match="no log of"):
        InputLog.read(other)

    async def main() -> None: ...

    with Cluster(nodes=0, clock="virtual") as cluster:
        cluster.run(main)
        cluster.save_log(other)
    with pytest.raises(ClusterError, match="what code did cannot be written down"):
        played(other)


def test_the_command_opens_that_moment_for_kubectl(log: Path) -> None:
    command = [sys.executable, "-m", "minikube_py", "replay", "--from", str(log), "--until", "FailedScheduling/none"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    try:
        assert process.stdout is not None
        lines: list[str] = []
        while "kubectl --kubeconfig" not in (line := process.stdout.readline()):
            assert line, (lines, process.communicate())
            lines.append(line)
        found = re.search(r"--kubeconfig (\S+)", line)
        assert found is not None and any("digest" in each for each in lines)
        access = load_kubeconfig(Path(found[1]))
        assert access.ca_pem is not None
        import httpx

        context = ssl.create_default_context(cadata=access.ca_pem.decode())
        headers = {"Authorization": f"Bearer {access.token}"}
        with httpx.Client(base_url=access.server, verify=context, headers=headers, trust_env=False) as http:
            pods = http.get(PODS).json()["items"]
        assert [each["metadata"]["name"] for each in pods] == ["a", "b", "none"]
        process.send_signal(signal.SIGINT)
        assert process.wait() == 130
    finally:
        process.kill()
        process.communicate()
    early = subprocess.Popen(
        [*command[:-1], "created=nodes/node-0"], stdout=subprocess.PIPE, text=True, env=environment
    )
    assert early.stdout is not None
    said = [early.stdout.readline() for _ in range(4)]
    early.send_signal(signal.SIGINT)
    early.communicate()
    assert any(EARLY in each for each in said), said
    wrong = subprocess.run([*command[:-1], "NoSuchReason"], capture_output=True, text=True, env=environment)
    assert wrong.returncode == 1 and "NoSuchReason does not come in" in wrong.stderr
    neither = subprocess.run([*command[:4]], capture_output=True, text=True, env=environment)
    assert neither.returncode == 2 and "name either" in neither.stderr


def test_snapshots_and_what_puts_them_back_are_replayed(tmp_path: Path) -> None:
    with Cluster(nodes=2, clock="virtual", seed=5) as cluster, Cluster(nodes=1, clock="virtual", seed=5) as other:
        cluster.apply(pod("a"))
        first = cluster.snapshot()
        cluster.apply(pod("b"))
        second = cluster.snapshot()
        cluster.restore(first)
        cluster.advance(3)
        assert [each["metadata"]["name"] for each in cluster.objects("pods")] == ["a"]
        inputs = len(cluster.inputs)
        with pytest.raises(ClusterError, match="another cluster"):
            cluster.restore(other.snapshot())
        assert len(cluster.inputs) == inputs
        cluster.restore(second)
        cluster.save_log(tmp_path / "log")
        digest = cluster.digest
    again, _, (_, pods) = played(tmp_path / "log")
    assert again == digest and [each["metadata"]["name"] for each in pods["items"]] == ["a", "b"]


ODD: list[Any] = [None, True, -1, 0, 1e308, 2**63, "", "x", [], {}, [[]], "door", {"base64": "!!"}, {"base64": "AA=="}]


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Of all parts of a JSON value."""
    yield path
    if isinstance(value, dict | list):
        for key, each in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places(each, (*path, key))


@pytest.mark.parametrize("seed", range(30))
def test_a_log_with_any_field_of_another_type_is_refused_or_plays(tmp_path: Path, seed: int) -> None:
    with Cluster(nodes=1, clock="virtual") as cluster:
        cluster.apply(pod("a"))
        state = cluster.snapshot()
        cluster.node("node-0").down(1)
        cluster.advance(2)
        cluster.restore(state)
        cluster.all_well()
        cluster.save_log(tmp_path / "log")
    rng = random.Random(seed)
    rows = [json.loads(each) for each in (tmp_path / "log").read_text().splitlines()]
    row = rng.choice(rows)
    *way, last = rng.choice(list(places(row))[1:])
    where = row
    for key in way:
        where = where[key]
    if rng.random() < 0.8:
        where[last] = rng.choice(ODD)
    else:
        del where[last]
    (tmp_path / "log").write_text("\n".join(map(json.dumps, rows)))
    with contextlib.suppress(ClusterError):
        played(tmp_path / "log")


def test_a_log_holds_the_stages_by_which_its_pods_live(tmp_path: Path) -> None:
    stages = tmp_path / "stages"
    shutil.copytree(Path(__file__).parents[3] / "examples/stages", stages)
    with Cluster(nodes=1, clock="virtual", stages=stages) as cluster:
        cluster.apply({**pod("a"), "metadata": {"name": "a", "labels": {"crashes": "true"}}})
        cluster.advance(60)
        cluster.save_log(tmp_path / "log")
        digest, found = cluster.digest, cluster.get("pod/a")["status"]["containerStatuses"]
    # Replayed where they are no more.
    shutil.rmtree(stages)
    again, _, (_, pods) = played(tmp_path / "log")
    assert again == digest and pods["items"][0]["status"]["containerStatuses"] == found
    with Cluster(nodes=1, clock="virtual") as cluster:
        cluster.apply({**pod("a"), "metadata": {"name": "a", "labels": {"crashes": "true"}}})
        cluster.advance(60)
        assert cluster.digest != digest


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("created=pods/default/a", "/registry/pods/default/a"),
        ("created=po/default/a", "/registry/pods/default/a"),
        ("changed=deployments/default/d", "/registry/apps/deployments/default/d"),
        ("changed=deploy/default/d", "/registry/apps/deployments/default/d"),
        ("changed=deployments.apps/default/d", "/registry/apps/deployments/default/d"),
        ("changed=apps/deployments/default/d", "/registry/apps/deployments/default/d"),
        ("deleted=nodes/node-0", "/registry/nodes/node-0"),
        ("created=example.com/widgets/default/w", "/registry/example.com/widgets/default/w"),
    ],
)
def test_a_moment_names_an_object_as_kubectl_does(text: str, key: str) -> None:
    with Cluster(nodes=0, clock="virtual") as cluster:
        assert Moment.parse(text).resolved(cluster._reached().plane.core.registry).key == key


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("created=poods/default/a", "did you mean pods"),
        ("created=pods/a", "write created=pods/NAMESPACE/NAME, not created=pods/a"),
        ("created=pods/default/", "write created=pods/NAMESPACE/NAME"),
        ("created=deploy/d", "write created=deployments/NAMESPACE/NAME, not created=deploy/d"),
        ("deleted=nodes/default/n", "write deleted=nodes/NAME"),
    ],
)
def test_an_object_that_nothing_can_be_is_refused(text: str, why: str) -> None:
    with Cluster(nodes=0, clock="virtual") as cluster, pytest.raises(ClusterError, match=why):
        Moment.parse(text).resolved(cluster._reached().plane.core.registry)

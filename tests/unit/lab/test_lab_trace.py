"""The openb trace: what the table holds, what the converter makes, what a bad table is answered with."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from needs import published_trace

from minikube_py.cli.main import main
from minikube_py.lab import trace
from minikube_py.lab.workload import GPU_MODEL_LABEL, GPU_RESOURCE, trace_nodes

TABLES = Path(trace.__file__).parent / "traces"


@pytest.fixture(scope="module")
def openb() -> trace.Trace:
    return trace.load()


def test_size_and_order(openb: trace.Trace) -> None:
    assert (len(openb.nodes), len(openb.pods)) == (1213, 8152)
    assert [pod.arrival_s for pod in openb.pods] == sorted(pod.arrival_s for pod in openb.pods)
    assert sum((TABLES / name).stat().st_size for name in (trace.NODES_TABLE, trace.PODS_TABLE)) < 500_000


def test_figures_are_those_the_paper_names(openb: trace.Trace) -> None:
    assert sum(node.gpus for node in openb.nodes) == 6212
    assert sum(node.cpu_milli for node in openb.nodes) == 107_018_000
    assert len({node[1:] for node in openb.nodes}) == 15
    counts = {gpus: sum(pod.gpus == gpus and pod.gpu_milli == 1000 for pod in openb.pods) for gpus in (1, 2, 4, 8)}
    assert counts == {1: 3911, 2: 16, 4: 15, 8: 44}
    assert sum(pod.gpus == 1 and pod.gpu_milli < 1000 for pod in openb.pods) == 3078
    assert sum(pod.gpus == 0 for pod in openb.pods) == 1088


@pytest.mark.parametrize(
    ("pod", "expected_milli"),
    [
        pytest.param(trace.TracePod("p", 0, 1, 1, 1, 0, 0, ()), 0, id="no GPU"),
        pytest.param(trace.TracePod("p", 0, 1, 1, 1, 1, 460, ()), 460, id="a share of one"),
        pytest.param(trace.TracePod("p", 0, 1, 1, 1, 8, 1000, ()), 8000, id="eight whole ones"),
    ],
)
def test_gpus_become_one_figure(pod: trace.TracePod, expected_milli: int) -> None:
    assert pod.gpu_total_milli == expected_milli


def test_nodes_keep_their_gpus_and_model(openb: trace.Trace) -> None:
    shapes = trace_nodes(openb.nodes)
    assert shapes[0].capacity == {"cpu": "64", "memory": "256Gi", "pods": "110", GPU_RESOURCE: "2000"}
    assert shapes[0].labels == {GPU_MODEL_LABEL: "P100"}
    assert sum(int(shape.capacity[GPU_RESOURCE]) for shape in shapes) == openb.gpu_capacity_milli == 6_212_000


def test_converter_makes_the_packaged_tables_again() -> None:
    for name, table in trace.convert(published_trace()).items():
        assert table == (TABLES / name).read_bytes(), f"{name} is not what the converter makes"


POD_HEADER = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,creation_time,deletion_time"


def _source(folder: Path, nodes: list[str], pods: list[str]) -> Path:
    header = "sn,cpu_milli,memory_mib,gpu,model"
    (folder / "openb_node_list_gpu_node.csv").write_text("\n".join([header, *nodes]) + "\n")
    (folder / "openb_pod_list_default.csv").write_text("\n".join([POD_HEADER, *pods]) + "\n")
    return folder


def test_convert_then_load(tmp_path: Path) -> None:
    nodes = ["openb-node-0000,64000,262144,2,P100", "openb-node-0001,8000,1024,0,"]
    pods = ["b,6000,1,1,460,V100M16|T4,9,11", "a,5,2,8,1000,,3,3"]
    for name, table in trace.convert(_source(tmp_path, nodes, pods)).items():
        (tmp_path / name).write_bytes(table)
    loaded = trace.load(tmp_path)
    assert loaded.nodes == (
        trace.TraceNode("openb-node-0000", 64000, 262144, 2, "P100"),
        trace.TraceNode("openb-node-0001", 8000, 1024, 0, ""),
    )
    assert loaded.pods == (
        trace.TracePod("openb-pod-0000", 3, 0, 5, 2, 8, 1000, ()),
        trace.TracePod("openb-pod-0001", 9, 2, 6000, 1, 1, 460, ("T4", "V100M16")),
    )


LEGEND, NODE_HEADER = "# models: 1=T4", ",".join(trace.NODE_COLUMNS)


@pytest.mark.parametrize(
    ("table", "text"),
    [
        pytest.param("", "not a table of", id="empty"),
        pytest.param("cpu\n1\n", "not a table of", id="another table"),
        pytest.param(f"{LEGEND}\n{NODE_HEADER}\n1,2,3\n", "line 3: 3 figures where 4", id="a figure short"),
        pytest.param(f"{LEGEND}\n{NODE_HEADER}\n1,2,3,1\n1,x,3,1\n", "line 4", id="not a number"),
        pytest.param(f"{LEGEND}\n{NODE_HEADER}\n1,2,3,9\n", "model 9", id="unknown model"),
    ],
)
def test_bad_table_is_named(tmp_path: Path, table: str, text: str) -> None:
    (tmp_path / trace.NODES_TABLE).write_text(table)
    with pytest.raises(trace.TraceError, match=text):
        trace.load(tmp_path)


def test_absent_source_is_named(tmp_path: Path) -> None:
    with pytest.raises(trace.TraceError, match=r"openb_node_list_gpu_node\.csv"):
        trace.convert(tmp_path)
    with pytest.raises(trace.TraceError, match="unknown pod list 'nope'"):
        trace.convert(tmp_path, "nope")
    with pytest.raises(trace.TraceError, match="openb-node-0007 where openb-node-0000"):
        trace.convert(_source(tmp_path, ["openb-node-0007,1,1,0,"], []))


def theirs() -> trace.Trace:
    nodes = tuple(trace.TraceNode(f"n-{number}", 8000, 16384, 0, "") for number in range(3))
    return trace.Trace(
        nodes, tuple(trace.TracePod(f"p-{number}", number, 9, 1000, 64, 0, 0, ()) for number in range(5))
    )


def fails() -> trace.Trace:
    raise SystemExit(3)


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    made: dict[str, Any] = {"theirs": theirs, "broken": fails, "empty": lambda: trace.Trace((), ()), "other": dict}
    points = [SimpleNamespace(name=name, value=f"m:{name}", load=lambda made=each: made) for name, each in made.items()]
    monkeypatch.setattr(trace, "entry_points", lambda group: points if group == "minikube_py.traces" else [])


def test_of_the_packaged_trace_no_distribution_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has a file that would be read, at every command."""
    monkeypatch.setattr(trace, "entry_points", lambda group: pytest.fail("read"))
    assert trace.installed(trace.OPENB) is None


@pytest.mark.usefixtures("installed")
def test_a_trace_that_is_installed_is_known_by_its_name(tmp_path: Path) -> None:
    words = ["--seeds", "2", "--pods", "0", "--scheduler-only", "--results", str(tmp_path)]
    assert main(["compare", "default", "default", "--trace", "theirs", *words]) == 0
    (written,) = tmp_path.glob("*/compare.json")
    found = json.loads(written.read_text())
    assert found["trace"] == "theirs" and found["measures"]["nodes used"]["first"] == [3, 3]
    assert main(["replay", "theirs", "--virtual", "--heartbeats", "elided", "--results", str(tmp_path)]) == 0
    assert len(list(tmp_path.glob("replay-theirs-*/*.json"))) == 1


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("replay nope", "there is no trace 'nope'; the traces are: openb, theirs, broken, empty, other"),
        ("compare default default --trace nope", "there is no trace 'nope'"),
        ("replay theirs --tables .", "--tables reads the tables of openb"),
        ("replay broken", "trace broken: SystemExit: 3"),
        ("replay empty", "m:empty returned no minikube_py.lab.trace.Trace with nodes and pods"),
        ("compare default default --trace other", "m:other returned no minikube_py.lab.trace.Trace"),
    ],
)
def test_a_trace_that_is_none_is_one_error(
    words: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    try:
        assert main(words.split()) in (1, 2)
    except SystemExit as error:
        assert error.code == 2
    told = capsys.readouterr().err
    assert said in told and "Traceback" not in told

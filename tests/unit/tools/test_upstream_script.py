"""`tools/upstream` without upstream: what is built when, and what it says when something is missing."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import upstream_build
import upstream_run
from patience import eventually
from upstream_build import GO_MISSING, PROGRAMS, UpstreamError, build, is_built, is_intact, missing

SCRIPT = Path(upstream_build.__file__).with_name("upstream")
FAKE_GO = f"""#!{sys.executable}
import json, pathlib, sys
arguments = sys.argv[1:]
here = pathlib.Path(__file__).parent
with open(here / "calls", "a") as file:
    print(arguments[0], file=file)
if arguments[0] == "build":
    pathlib.Path(arguments[arguments.index("-o") + 1]).write_text(pathlib.Path("go.mod").read_text())
elif arguments[0] == "version":
    print((here / "written").read_text())
elif arguments[:2] == ["mod", "download"]:
    required = "require (\\n\\ta.b/c v1.2.3\\n\\tk8s.io/api v0.0.0\\n\\ta.b/d v1.0.0 // indirect\\n)\\n"
    (here / "go.mod").write_text(required + "replace (\\n\\tk8s.io/api => ./staging/src/k8s.io/api\\n)\\n")
    print(json.dumps({{"GoMod": str(here / "go.mod"), "Dir": str(here)}}))
"""


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a `go` that builds the go.mod it is given, and writes down what it is asked."""
    folder = tmp_path / "tools"
    folder.mkdir()
    (folder / "go").write_text(FAKE_GO)
    (folder / "go").chmod(0o755)
    (folder / "written").write_text("")
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("MINIKUBE_PY_UPSTREAM_BIN", str(tmp_path / "bin"))
    return folder


def builds(tools: Path) -> int:
    return (tools / "calls").read_text().split().count("build")


def test_what_is_built_is_not_built_again(tools: Path) -> None:
    assert missing(["etcd"]) == ["etcd"]
    build(["etcd"])
    build(["etcd"])
    assert builds(tools) == 1 and missing(["etcd"]) == []
    assert "require go.etcd.io/etcd/server/v3 v3.7.3" in (upstream_build.bin_folder() / "etcd").read_text()


def test_libraries_in_the_repository_of_kubernetes_are_taken_as_published(tools: Path) -> None:
    build(["kubectl"])
    text = (upstream_build.bin_folder() / "kubectl").read_text()
    assert f"replace k8s.io/api => k8s.io/api {upstream_build.STAGING}" in text


def test_a_program_of_this_repository_is_built_anew_when_its_source_changes(
    tools: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(upstream_build, "ROOT", tmp_path)
    (source := tmp_path / PROGRAMS["fleet-operator"].source).mkdir(parents=True)
    for text, built in (("package main", 1), ("package main", 1), ("package main // another", 2)):
        (source / "main.go").write_text(text)
        build(["fleet-operator"])
        assert builds(tools) == built
    required = (upstream_build.bin_folder() / "fleet-operator").read_text()
    assert f"require k8s.io/kubernetes {upstream_build.KUBERNETES}" in required
    assert f"require sigs.k8s.io/controller-runtime {upstream_build.CONTROLLER_RUNTIME}" in required


def test_what_a_program_shares_with_kubernetes_is_taken_in_its_versions(tools: Path) -> None:
    build(["helm"])
    lines = (upstream_build.bin_folder() / "helm").read_text().splitlines()
    replaced = [line.removeprefix("replace ") for line in lines if line.startswith("replace ")]
    staged = f"k8s.io/api => k8s.io/api {upstream_build.STAGING}"
    assert replaced == ["a.b/c => a.b/c v1.2.3", "a.b/d => a.b/d v1.0.0", staged]


def test_upstreams_tests_keep_the_paths_of_their_sources(tools: Path) -> None:
    """They find files by them: with -trimpath every workload of scheduler_perf ended before its first pod."""
    program = upstream_build.scheduler_perf_program("misc")
    assert program.build == ("test", "-c") and "-trimpath" in upstream_build.PROGRAMS["etcd"].build
    assert program.recipe["build"] == "test -c"


def test_of_a_failed_workload_the_fatal_line_is_shown() -> None:
    log = "x" * 9000 + "\nFATAL ERROR:\n  start apiserver: no path\n" + "y" * 9000
    assert "no path" in upstream_run.why_it_failed(log) and "x" not in upstream_run.why_it_failed(log)
    assert upstream_run.why_it_failed("a" * 2000 + "FAIL").endswith("FAIL")


def test_another_version_is_built_anew(tools: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build(["etcd"])
    old = PROGRAMS["etcd"]
    newer = upstream_build.Program(old.name, old.package, old.module, "v3.8.0")
    monkeypatch.setattr(upstream_build, "PROGRAMS", {"etcd": newer})
    assert missing(["etcd"]) == ["etcd"]
    build(["etcd"])
    assert builds(tools) == 2 and not is_built(old)


def test_a_truncated_binary_is_built_anew_and_a_changed_one_is_named(tools: Path) -> None:
    build(["etcd"])
    binary = upstream_build.bin_folder() / "etcd"
    whole = binary.read_bytes()
    binary.write_bytes(bytes(len(whole)))
    assert is_built(PROGRAMS["etcd"]) and not is_intact(PROGRAMS["etcd"])
    binary.write_bytes(whole[:-1])
    build(["etcd"])
    assert builds(tools) == 2 and is_intact(PROGRAMS["etcd"])


@pytest.mark.parametrize(("version", "taken"), [(upstream_build.ETCD, True), ("v3.6.0", False)])
def test_a_binary_without_a_stamp_is_taken_over_if_go_finds_its_version(tools: Path, version: str, taken: bool) -> None:
    binary = upstream_build.bin_folder() / "etcd"
    binary.parent.mkdir()
    binary.write_bytes(b"built by hand")
    program = PROGRAMS["etcd"]
    told = f"{binary}: go1.26\n\tpath\t{program.package}\n\tmod\t{program.module}\t{version}\th1:=\n"
    (tools / "written").write_text(told)
    assert is_built(program) is taken


def test_without_go_the_message_says_where_it_is_had(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("MINIKUBE_PY_UPSTREAM_BIN", str(tmp_path / "bin"))
    with pytest.raises(UpstreamError) as raised:
        build(["etcd"])
    assert str(raised.value) == GO_MISSING and "https://go.dev/dl" in GO_MISSING


def test_an_unknown_program_is_refused_with_those_there_are() -> None:
    with pytest.raises(UpstreamError, match=r"no program is called etcdd; there are: etcd, etcdctl, etcdutl, kwok"):
        build(["etcdd"])


def test_binaries_lie_in_the_cache_unless_a_variable_says_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in upstream_build.BIN_VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/cache")
    assert upstream_build.bin_folder() == Path("/cache/minikube_py/upstream/bin")
    monkeypatch.setenv("ORIGINAL_BIN", "/old")
    assert upstream_build.bin_folder() == Path("/old")
    monkeypatch.setenv("MINIKUBE_PY_UPSTREAM_BIN", "/new")
    assert upstream_build.bin_folder() == Path("/new")


def test_the_script_explains_itself_and_fails_in_one_line(tools: Path) -> None:
    told = subprocess.run([sys.executable, str(SCRIPT), "--help"], capture_output=True, text=True, check=True).stdout
    assert all(word in told for word in ("build", "run", "etcd", "scheduler-perf", "MINIKUBE_PY_UPSTREAM_BIN"))
    done = subprocess.run([sys.executable, str(SCRIPT), "build", "nothing"], capture_output=True, text=True)
    assert done.returncode == 1 and done.stderr.startswith("upstream: no program is called nothing")


def test_the_parts_that_are_asked_for_decide_what_must_be_built() -> None:
    assert upstream_run.Parts().programs == ["etcd", "kube-apiserver"]
    assert upstream_run.Parts(scheduler=True, kubelets=True).programs[2:] == ["kube-scheduler", "kwok"]


@pytest.mark.parametrize("media_type", ["", *upstream_run.MEDIA_TYPES])
def test_the_media_type_of_stored_objects_is_a_flag_of_the_api_server(
    tools: Path, monkeypatch: pytest.MonkeyPatch, media_type: str
) -> None:
    started: list[tuple[str, ...]] = []
    upstream = upstream_run.Upstream(tools)
    monkeypatch.setattr(upstream, "_start", lambda name, program, *flags: started.append(flags))
    monkeypatch.setattr(upstream, "_wait", lambda name, url: None)
    monkeypatch.setattr(upstream, "_make_signing_key", lambda: None)
    upstream.start_control_plane(["http://127.0.0.1:2379"], upstream_run.Parts(media_type=media_type))
    told = [flag for flag in started[0] if flag.startswith("--storage-media-type")]
    assert told == ([f"--storage-media-type={media_type}"] if media_type else [])


def test_a_child_that_ends_by_itself_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINIKUBE_PY_UPSTREAM_BIN", str(tmp_path))
    (tmp_path / "etcd").write_text("#!/bin/sh\necho no disk\nexit 3\n")
    (tmp_path / "etcd").chmod(0o755)
    upstream = upstream_run.Upstream(tmp_path)
    with pytest.raises(UpstreamError, match=r"(?s)etcd-0 is not ready.*no disk"):
        upstream.start_etcd(1)
    upstream.stop()


def test_who_stands_on_another_is_stopped_before_it_and_whose_data_goes_is_killed(tmp_path: Path) -> None:
    told = "trap 'echo $0 >>stopped; exit' TERM; echo $0 >>ready; while :; do sleep 0.01; done"

    def started() -> upstream_run.Upstream:
        upstream = upstream_run.Upstream(tmp_path)
        for name in ("etcd", "kube-apiserver"):
            upstream.children[name] = subprocess.Popen(["sh", "-c", told, name], cwd=tmp_path)
        eventually(lambda: (tmp_path / "ready").exists() and len(lines("ready")) == 2, "both run")
        (tmp_path / "ready").unlink()
        return upstream

    def lines(name: str) -> list[str]:
        return (tmp_path / name).read_text().split()

    started().stop()
    assert lines("stopped") == ["kube-apiserver", "etcd"]
    killed = started()
    killed.kill()
    assert [child.returncode for child in killed.children.values()] == [-signal.SIGKILL] * 2
    assert len(lines("stopped")) == 2


def test_a_stamp_says_what_a_binary_was_built_from(tools: Path) -> None:
    build(["etcdctl"])
    stamp = json.loads((upstream_build.bin_folder() / ".etcdctl.stamp").read_text())
    assert stamp["recipe"]["version"] == upstream_build.ETCD and len(stamp["sha256"]) == 64

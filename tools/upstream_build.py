"""Builds upstream's programs from their Go modules, at the versions that this project compares itself with.

A binary lies in `bin_folder()` beside a stamp of its sources. A binary with another stamp is rebuilt; one without a
stamp is adopted if Go finds the right versions in it. Concurrent builders wait for each other.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

KUBERNETES = "v1.36.2"
STAGING = "v0.36.2"
"""The version under which Kubernetes publishes the libraries of its own repository."""
ETCD = "v3.7.3"
KWOK = "v0.8.0"
CONTROLLER_RUNTIME, HELM = "v0.24.1", "v3.21.4"
"""The releases for this Kubernetes."""
GO_LINE = "1.26.0"
"""The language version; an older Go fetches this toolchain by itself."""

GO_MISSING = (
    "Go is not installed, and upstream is built with it. Any Go from 1.21 on will do (it fetches the toolchain that "
    "the modules ask for): https://go.dev/dl"
)
BIN_VARIABLES = ("MINIKUBE_PY_UPSTREAM_BIN", "ORIGINAL_BIN")
"""The first that is set names the folder of the binaries; the second is the variable's former name."""
STAGES = "kwok-stages"
"""A folder beside the binaries: KWOK's own rules for nodes and pods, which are in its module, not in its binary."""
PERF = "k8s.io/kubernetes/test/integration/scheduler_perf"
ROOT = Path(__file__).resolve().parents[1]
OPERATOR = "tests/conformance/operator"


class UpstreamError(Exception):
    """Upstream cannot be built or run; the message is for users."""


@dataclass(frozen=True, slots=True)
class Program:
    """A program, its main package, the module it belongs to, and that module's version."""

    name: str
    package: str
    module: str
    version: str
    test: bool = False
    """Built by `go test -c`."""
    by_name: bool = False
    """Built only when it is named: it takes minutes, and few checks need it."""
    source: str = ""
    """A folder of this repository with the main package, which is not of `module` then, but built on it."""
    beside: bool = False
    """What it shares with Kubernetes is taken in Kubernetes' versions, so that it is compiled once for all."""

    @property
    def recipe(self) -> dict[str, str]:
        """Everything that determines the result of a build."""
        told = {"package": self.package, "module": self.module, "version": self.version, "go": GO_LINE,
                "ldflags": self.ldflags}  # fmt: skip
        if self.source:
            parts = hashlib.sha256(b"".join(path.read_bytes() for path in self.files))
            told["source"] = parts.hexdigest()
        if self.beside:
            told["beside"] = KUBERNETES
        return told | ({"build": " ".join(self.build)} if self.test else {})

    @property
    def files(self) -> list[Path]:
        return sorted((ROOT / self.source).glob("*.go")) if self.source else []

    @property
    def build(self) -> tuple[str, ...]:
        """The go command. Upstream's tests find files by the paths of their sources, which -trimpath removes."""
        return ("test", "-c") if self.test else ("build", "-trimpath")

    @property
    def of_kubernetes(self) -> bool:
        return self.module == "k8s.io/kubernetes"

    @property
    def ldflags(self) -> str:
        if not self.of_kubernetes or self.test:
            return "-s -w"
        major, minor, _ = self.version.removeprefix("v").split(".")
        told = {"gitVersion": self.version, "gitMajor": major, "gitMinor": minor}
        return "-s -w " + " ".join(f"-X k8s.io/component-base/version.{key}={text}" for key, text in told.items())


def kubernetes_program(name: str) -> Program:
    return Program(name, f"k8s.io/kubernetes/cmd/{name}", "k8s.io/kubernetes", KUBERNETES)


PROGRAMS: Mapping[str, Program] = {
    program.name: program
    for program in (
        Program("etcd", "go.etcd.io/etcd/server/v3", "go.etcd.io/etcd/server/v3", ETCD),
        Program("etcdctl", "go.etcd.io/etcd/etcdctl/v3", "go.etcd.io/etcd/etcdctl/v3", ETCD),
        Program("etcdutl", "go.etcd.io/etcd/etcdutl/v3", "go.etcd.io/etcd/etcdutl/v3", ETCD),
        Program("kwok", "sigs.k8s.io/kwok/cmd/kwok", "sigs.k8s.io/kwok", KWOK),
        Program("e2e.test", "k8s.io/kubernetes/test/e2e", "k8s.io/kubernetes", KUBERNETES, test=True, by_name=True),
        Program("fleet-operator", ".", "sigs.k8s.io/controller-runtime", CONTROLLER_RUNTIME, source=OPERATOR,
                beside=True),
        Program("helm", "helm.sh/helm/v3/cmd/helm", "helm.sh/helm/v3", HELM, beside=True),
        Program("sample-apiserver", "k8s.io/sample-apiserver", "k8s.io/sample-apiserver", STAGING, by_name=True),
        *map(kubernetes_program, ("kube-apiserver", "kube-scheduler", "kube-controller-manager", "kubectl")),
    )
}


def scheduler_perf_program(folder: str) -> Program:
    """The binary of one folder of upstream's benchmark of its scheduler."""
    name = f"scheduler-perf-{folder.replace('/', '-')}"
    return Program(name, f"{PERF}/{folder}", "k8s.io/kubernetes", KUBERNETES, test=True)


def bin_folder() -> Path:
    for variable in BIN_VARIABLES:
        if folder := os.environ.get(variable):
            return Path(folder)
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache, "minikube_py", "upstream", "bin")


def note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


# --- existing binaries ------------------------------------------------------------------------------------------------


def _stamp_path(program: Program) -> Path:
    return bin_folder() / f".{program.name}.stamp"


def is_built(program: Program) -> bool:
    """Whether the binary exists, is complete, and has these versions."""
    binary = bin_folder() / program.name
    try:
        stamp = json.loads(_stamp_path(program).read_text())
        if stamp["recipe"] == program.recipe and stamp["size_bytes"] == binary.stat().st_size:
            return True
    except (OSError, ValueError, KeyError):
        pass
    return binary.is_file() and _take_over(program, binary)


def missing(names: Sequence[str]) -> list[str]:
    return [name for name in names if not is_built(PROGRAMS[name])]


def _take_over(program: Program, binary: Path) -> bool:
    """Adopts a binary without a matching stamp if the versions that Go recorded in it match."""
    if shutil.which("go") is None:
        return False
    done = subprocess.run(["go", "version", "-m", str(binary)], capture_output=True, text=True)
    lines = [line.split() for line in done.stdout.splitlines()]
    wanted = [program.module, program.version]
    fits = any(line[:1] in (["dep"], ["mod"]) and line[1:3] == wanted for line in lines)
    if not fits or ["path", program.package] not in lines or program.test or program.source:
        return False
    if program.name == "kwok" and not (bin_folder() / STAGES).is_dir():
        _keep_stages(program)
    _write_stamp(program)
    return True


def _write_stamp(program: Program) -> None:
    binary = bin_folder() / program.name
    with open(binary, "rb") as file:
        checksum = hashlib.file_digest(file, "sha256").hexdigest()
    stamp = {"recipe": program.recipe, "size_bytes": binary.stat().st_size, "sha256": checksum}
    draft = _stamp_path(program).with_suffix(f".{os.getpid()}")
    draft.write_text(json.dumps(stamp, indent=1) + "\n")
    draft.replace(_stamp_path(program))


def is_intact(program: Program) -> bool:
    """Whether the binary's bytes are unchanged since the build. Slower than `is_built`: it reads all of them."""
    try:
        stamp = json.loads(_stamp_path(program).read_text())
        with open(bin_folder() / program.name, "rb") as file:
            return bool(stamp["sha256"] == hashlib.file_digest(file, "sha256").hexdigest())
    except (OSError, ValueError, KeyError):
        return False


# --- building ---------------------------------------------------------------------------------------------------------


def build(names: Sequence[str] = ()) -> None:
    """Builds missing or outdated ones of these, or of all. Raises: UpstreamError."""
    for name in names or [each.name for each in PROGRAMS.values() if not each.by_name]:
        if name not in PROGRAMS:
            raise UpstreamError(f"no program is called {name}; there are: {', '.join(PROGRAMS)}")
        build_program(PROGRAMS[name])


def build_program(program: Program) -> Path:
    """The binary's path, once it exists."""
    folder = bin_folder()
    folder.mkdir(parents=True, exist_ok=True)
    with _one_at_a_time(folder / f".{program.name}.lock"):
        if is_built(program):
            return folder / program.name
        if shutil.which("go") is None:
            raise UpstreamError(GO_MISSING)
        note(f"building {program.name} {program.version} ...")
        started_s = time.monotonic()
        draft = folder / f".{program.name}.draft"
        with tempfile.TemporaryDirectory(prefix="upstream-build-") as module:
            write_module(Path(module), program)
            go([*program.build, "-mod=mod", "-ldflags", program.ldflags, "-o", str(draft), program.package], module)
        draft.replace(folder / program.name)
        if program.name == "kwok":
            _keep_stages(program)
        _write_stamp(program)
        note(f"built {program.name} in {time.monotonic() - started_s:.0f} s")
    return folder / program.name


@contextlib.contextmanager
def _one_at_a_time(path: Path) -> Iterator[None]:
    with open(path, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def go(arguments: Sequence[str], folder: str | Path) -> None:
    environment = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-buildvcs=false", "GOWORK": "off"}
    done = subprocess.run(["go", *arguments], cwd=folder, env=environment, stdout=subprocess.DEVNULL)
    if done.returncode:
        raise UpstreamError(f"go {arguments[0]} of {arguments[-1]} failed with {done.returncode}; its words are above")


def write_module(folder: Path, program: Program) -> None:
    """A module that requires this program alone, so that other requirements do not change its versions."""
    lines = ["module upstream", f"go {GO_LINE}", f"require {program.module} {program.version}"]
    if program.beside:
        lines.append(f"require k8s.io/kubernetes {KUBERNETES}")
        lines += [f"replace {name} => {name} {version}" for name, version in _required().items()]
    if program.of_kubernetes or program.beside:
        lines += [f"replace {name} => {name} {STAGING}" for name in _staged()]
    (folder / "go.mod").write_text("\n".join(lines) + "\n")
    for path in program.files:
        shutil.copy(path, folder)
    if program.source:
        return
    imported = PERF if program.test else program.package
    (folder / "tools.go").write_text(f'//go:build tools\n\npackage tools\n\nimport _ "{imported}"\n')
    if program.test:
        go(["mod", "tidy", "-e"], folder)


def _go_mod() -> str:
    return Path(module_info("k8s.io/kubernetes", KUBERNETES)["GoMod"]).read_text()


def _staged() -> list[str]:
    """The libraries that Kubernetes' go.mod takes from its own repository, which a foreign module cannot."""
    return sorted(set(re.findall(r"^\s*(?:replace\s+)?(\S+)\s+=>\s+\./staging/", _go_mod(), re.MULTILINE)))


def _required() -> dict[str, str]:
    """What Kubernetes takes from others, with the versions."""
    found = re.findall(r"^\t(\S+) (v\S+)(?: // indirect)?$", _go_mod(), re.MULTILINE)
    return {name: version for name, version in found if version != "v0.0.0"}


def module_info(module: str, version: str) -> dict[str, Any]:
    """Go's information on a fetched module: `Dir` is its folder, `GoMod` its go.mod."""
    if shutil.which("go") is None:
        raise UpstreamError(GO_MISSING)
    done = subprocess.run(
        ["go", "mod", "download", "-json", f"{module}@{version}"],
        capture_output=True, text=True, env={**os.environ, "GOWORK": "off"}, cwd=tempfile.gettempdir(),
    )  # fmt: skip
    if done.returncode:
        raise UpstreamError(f"{module} {version} cannot be fetched: {done.stdout or done.stderr}")
    info: dict[str, Any] = json.loads(done.stdout)
    return info


def _keep_stages(program: Program) -> None:
    """Fast nodes and pods, and heartbeats by Lease."""
    source = Path(module_info(program.module, program.version)["Dir"], "kustomize", "stage")
    target = bin_folder() / STAGES
    target.mkdir(exist_ok=True)
    for kind in ("node/fast", "node/heartbeat-with-lease", "pod/fast"):
        for file in (source / kind).glob("*.yaml"):
            if file.name != "kustomization.yaml":
                shutil.copyfile(file, target / f"{kind.replace('/', '-')}-{file.name}")

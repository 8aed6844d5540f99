"""Kubernetes' sample-apiserver, unchanged: another API server, of `wardle.example.com`, behind one of a cluster.

It asks that cluster for tokens, rights, namespaces and the certificates of who passes requests on, as a service account
with the rights that its own manifests give it."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import yaml
from etcd_api import real_etcd
from needs import original_program
from patience import PATIENCE_S
from ports import free_ports

GROUP = "wardle.example.com"
API_SERVICE = f"v1alpha1.{GROUP}"
ACCOUNT = "system:serviceaccount:wardle:apiserver"
_SUBJECTS = "subjects: [{kind: ServiceAccount, name: apiserver, namespace: wardle}]"
RIGHTS = f"""
apiVersion: v1
kind: Namespace
metadata: {{name: wardle}}
---
apiVersion: v1
kind: ServiceAccount
metadata: {{name: apiserver, namespace: wardle}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {{name: aggregated-apiserver-clusterrole}}
rules:
- {{apiGroups: [""], resources: [namespaces], verbs: [get, watch, list]}}
- apiGroups: [admissionregistration.k8s.io]
  resources:
  - mutatingwebhookconfigurations
  - validatingwebhookconfigurations
  - validatingadmissionpolicies
  - validatingadmissionpolicybindings
  - mutatingadmissionpolicies
  - mutatingadmissionpolicybindings
  verbs: [get, watch, list]
- apiGroups: [flowcontrol.apiserver.k8s.io]
  resources: [prioritylevelconfigurations, flowschemas]
  verbs: [list, watch]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {{name: sample-apiserver-clusterrolebinding}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: aggregated-apiserver-clusterrole}}
{_SUBJECTS}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {{name: "wardle:system:auth-delegator"}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: "system:auth-delegator"}}
{_SUBJECTS}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {{name: wardle-auth-reader, namespace: kube-system}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: Role, name: extension-apiserver-authentication-reader}}
{_SUBJECTS}
"""
"""Source: sample-apiserver `artifacts/example`, which lack the mutating policies that its libraries wait for."""


def registration(port: int) -> str:
    return f"""
apiVersion: v1
kind: Service
metadata: {{name: api, namespace: wardle}}
spec: {{type: ExternalName, externalName: localhost}}
---
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {{name: {API_SERVICE}}}
spec:
  insecureSkipTLSVerify: true
  group: {GROUP}
  groupPriorityMinimum: 1000
  versionPriority: 15
  service: {{name: api, namespace: wardle, port: {port}}}
  version: v1alpha1
"""


class Kubectl:
    """Runs commands as the kubeconfig's user."""

    def __init__(self, kubeconfig: str, home: Path) -> None:
        self.program = str(original_program("kubectl"))
        self.kubeconfig, self._home = kubeconfig, home

    def command(self, *words: str) -> list[str]:
        return [self.program, "--kubeconfig", self.kubeconfig, *words]

    def run(self, *words: str, given: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*words), input=given, capture_output=True, text=True, cwd=self._home,
            env={"HOME": str(self._home), "TERM": "dumb"}, timeout=2 * PATIENCE_S,
        )  # fmt: skip

    def __call__(self, typed: str, given: str = "") -> str:
        """What it prints; it must succeed."""
        done = self.run(*typed.split(), given=given)
        assert done.returncode == 0, f"kubectl {typed}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout

    def refused(self, typed: str, given: str = "") -> str:
        """Why it fails."""
        done = self.run(*typed.split(), given=given)
        assert done.returncode, f"kubectl {typed} succeeded\n{done.stdout}"
        return done.stderr


class Sample:
    """`process` serves at `port`."""

    def __init__(self, port: int, log: Path) -> None:
        self.port, self.log = port, log
        self.process: subprocess.Popen[bytes] | None = None
        self.command: list[str] = []

    def start(self) -> None:
        with self.log.open("a") as log:
            self.process = subprocess.Popen(self.command, stdout=log, stderr=subprocess.STDOUT)

    def end(self) -> None:
        if self.process is not None:
            # It would wait for a minute until all watches end.
            self.process.kill()
            self.process.wait(PATIENCE_S)
            self.process = None


@contextlib.contextmanager
def sample_apiserver(kubectl: Kubectl, folder: Path) -> Iterator[Sample]:
    """It is available."""
    program = original_program("sample-apiserver")
    kubectl("apply -f -", RIGHTS)
    token = kubectl("create token apiserver -n wardle").strip()
    config = yaml.safe_load(Path(kubectl.kubeconfig).read_text())
    config["users"][0]["user"] = {"token": token}
    theirs = folder / "account.kubeconfig"
    theirs.write_text(yaml.safe_dump(config))
    (port,) = free_ports(1)
    sample = Sample(port, folder / "sample-apiserver.log")
    with real_etcd(folder / "sample-etcd") as place:
        sample.command = [
            str(program), f"--etcd-servers=http://{place}", f"--secure-port={port}", "--bind-address=127.0.0.1",
            f"--cert-dir={folder / 'sample-certificates'}",
            *(f"--{of}kubeconfig={theirs}" for of in ("", "authentication-", "authorization-")),
        ]  # fmt: skip
        sample.start()
        try:
            kubectl("apply -f -", registration(port))
            kubectl(f"wait --for=condition=Available apiservice/{API_SERVICE} --timeout=60s")
            yield sample
        except AssertionError as error:
            raise AssertionError(f"{error}\n{sample.log.read_text()[-4000:]}") from None
        finally:
            sample.end()

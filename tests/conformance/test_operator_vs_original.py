"""An operator by controller-runtime, unchanged, on upstream's control plane and on ours: the same commands to both, and
the same objects at rest, refusals and events. Its source is in `operator`; `tools/upstream` builds it."""

from __future__ import annotations

import base64
import contextlib
import json
import re
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import patience
import pytest
from needs import original_program
from planes import Both, Plane, both
from ports import free_ports

from minikube_py.control_plane.certificates import ensure_certificates

pytestmark = [pytest.mark.original, pytest.mark.slow, pytest.mark.timeout(300)]

Json = dict[str, Any]
GROUP, OWNER = "lab.example.com", "fleet-operator"
DEFAULT = "namespaces/default"
LEASES = f"/apis/coordination.k8s.io/v1/{DEFAULT}/leases"
LEASE_S = 6 * max(1, patience.FACTOR)
_SPECS: dict[str, Json] = {
    "v1": {"size": {"type": "integer"}, "image": {"type": "string"}, "settings": {"type": "string"}},
    "v2": {
        "replicas": {"type": "integer"}, "settings": {"type": "string"},
        "image": {"type": "object", "properties": {"name": {"type": "string"}, "tag": {"type": "string"}}},
        "env": {"type": "object", "additionalProperties": {"type": "string"}},
    },
}  # fmt: skip
_COUNTS = {"v1": ".spec.size", "v2": ".spec.replicas"}
_STATUS = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_BY_CHANCE = (
    "uid", "resourceVersion", "creationTimestamp", "time", "lastTransitionTime", "lastUpdateTime", "managedFields",
)  # fmt: skip
_UID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_NAMES = re.compile(rf"[\w.-]+_{_UID}|{_UID}|(?<=\w-)[0-9a-f]{{8,10}}(?=\W)")
"""Leaders, uids, and what a ReplicaSet's name ends with."""
_OWNED = ("operation", "subresource", "fieldsV1")
MANAGERS = {"minikube-py": "kube-controller-manager"}


def _version(name: str) -> Json:
    properties = {"spec": {"type": "object", "properties": _SPECS[name]}, "status": _STATUS}
    scale = {"specReplicasPath": _COUNTS[name], "statusReplicasPath": ".status.replicas"}
    return {
        "name": name, "served": True, "storage": name == "v2",
        "schema": {"openAPIV3Schema": {"type": "object", "properties": properties}},
        "subresources": {"status": {}, "scale": {**scale, "labelSelectorPath": ".status.selector"}},
        "additionalPrinterColumns": [{"name": "Wanted", "type": "integer", "jsonPath": _COUNTS[name]}],
    }  # fmt: skip


def manifests(port: int, bundle: str) -> str:
    """The definition, and who is asked at this port for conversions, defaults and verdicts."""

    def client(path: str) -> Json:
        return {"url": f"https://127.0.0.1:{port}/{path}", "caBundle": bundle}

    names = {"plural": "fleets", "singular": "fleet", "kind": "Fleet", "listKind": "FleetList"}
    conversion = {"conversionReviewVersions": ["v1"], "clientConfig": client("convert")}
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": f"fleets.{GROUP}"},
        "spec": {"group": GROUP, "scope": "Namespaced", "names": names, "versions": [_version("v1"), _version("v2")],
                 "conversion": {"strategy": "Webhook", "webhook": conversion}},
    }  # fmt: skip
    items: list[Json] = [definition]
    for kind, path, operations in (("Mutating", "mutate", []), ("Validating", "validate", ["DELETE"])):
        rule = {"apiGroups": [GROUP], "apiVersions": ["v2"], "resources": ["fleets"]}
        webhook = {
            "name": f"{path}.{GROUP}", "admissionReviewVersions": ["v1"], "sideEffects": "None",
            "clientConfig": client(f"{path}-lab-example-com-v2-fleet"),
            "rules": [{**rule, "operations": ["CREATE", "UPDATE", *operations]}],
        }  # fmt: skip
        of = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": f"{kind}WebhookConfiguration"}
        items.append({**of, "metadata": {"name": OWNER}, "webhooks": [webhook]})
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items})


def fleet(name: str, version: str, **spec: Any) -> str:
    return json.dumps({"apiVersion": f"{GROUP}/{version}", "kind": "Fleet", "metadata": {"name": name}, "spec": spec})


class Operators:
    """Two processes of the operator on one plane, of which the first leads until it is killed."""

    def __init__(self, plane: Plane, certificates: Path, bundle: str) -> None:
        self.plane, self._bundle = plane, bundle
        self._flags = [f"--kubeconfig={plane.kubeconfig}", f"--certificates={certificates}", f"--lease={LEASE_S}s"]
        self._running: list[tuple[subprocess.Popen[bytes], int]] = []

    def start(self) -> None:
        program, (port,) = original_program(OWNER), free_ports(1)
        with (self.plane.folder / f"operator-{port}.log").open("w") as log:
            command = [str(program), *self._flags, f"--port={port}"]
            self._running.append((subprocess.Popen(command, stdout=log, stderr=log), port))
        patience.eventually(lambda: _listens(port), lambda: f"{self.plane.name}: it listens\n{self.told()}")

    def begin(self) -> None:
        """The definition is there, one leads, and another waits."""
        self._ask_webhooks_at(free_ports(1)[0])
        done = self.plane.run(f"kubectl wait crd/fleets.{GROUP} --for=condition=Established --timeout=60s")
        assert done.returncode == 0, done.stderr
        self.start()
        patience.eventually(self.leader, lambda: f"{self.plane.name}: one leads\n{self.told()}", pause_s=0.2)
        self.start()
        self._ask_webhooks_at(self._running[0][1])

    def _ask_webhooks_at(self, port: int) -> None:
        done = self.plane.run("kubectl apply -f -", manifests(port, self._bundle))
        assert done.returncode == 0, done.stderr

    def leader(self) -> str:
        leases = self.plane.read(LEASES)["items"]
        return "".join(each["spec"].get("holderIdentity") or "" for each in leases if each["metadata"]["name"] == OWNER)

    def hand_over(self) -> None:
        """The leader is killed, without a chance to release its lease."""
        before = self.leader()
        self._ask_webhooks_at(self._running[1][1])
        process, _ = self._running.pop(0)
        process.kill()
        process.wait(patience.PATIENCE_S)
        patience.eventually(lambda: self.leader() not in ("", before), "another leads", LEASE_S * 5, 0.2)

    def told(self) -> str:
        """Of the logs, the ends."""
        return "\n".join(path.read_text()[-1500:] for path in sorted(self.plane.folder.glob("operator-*.log")))

    def end(self) -> None:
        for process, _ in self._running:
            process.kill()
            process.wait(patience.PATIENCE_S)


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


@contextlib.contextmanager
def operated(asked: Both, folder: Path) -> Iterator[list[Operators]]:
    made = ensure_certificates(folder / "pki")
    served = folder / "served"
    served.mkdir()
    shutil.copy(made.server_file, served / "tls.crt")
    shutil.copy(made.server_key_file, served / "tls.key")
    bundle = base64.b64encode(made.authority_pem).decode()
    found = [Operators(plane, served, bundle) for plane in asked.planes]
    try:
        yield found
    except BaseException:
        print(*(f"{each.plane.name}:\n{each.told()}" for each in found), sep="\n")
        raise
    finally:
        for each in found:
            each.end()


# --- what is there ----------------------------------------------------------------------------------------------------


def plain(value: Any) -> Any:
    """Without what differs by chance."""
    if isinstance(value, dict):
        return {_NAMES.sub("<name>", name): plain(part) for name, part in value.items() if name not in _BY_CHANCE}
    if isinstance(value, list):
        return [plain(part) for part in value]
    return _NAMES.sub("<name>", value) if isinstance(value, str) else value


def _owned(found: Json) -> list[Any]:
    """Who owns which fields, by name: two writers of one second come in either order."""
    owners = [
        [MANAGERS.get(each["manager"], each["manager"]), *(plain(each.get(of)) for of in _OWNED)]
        for each in found["metadata"].get("managedFields", ())
    ]  # fmt: skip
    return sorted(owners, key=str)


def world(plane: Plane) -> Json:
    """Fleets in both versions, what the operator made of them, and its events."""
    found: Json = {}
    for version in ("v1", "v2"):
        for each in plane.read(FLEETS.replace("v2", version))["items"]:
            found[f"{version} fleet {each['metadata']['name']}"] = plain(each)
    for each in plane.read(f"/apis/apps/v1/{DEFAULT}/deployments")["items"]:
        found[f"deployment {each['metadata']['name']}"] = [_owned(each), plain(each)]
    for each in plane.read(f"/api/v1/{DEFAULT}/configmaps")["items"]:
        if each["metadata"]["name"] != "kube-root-ca.crt":
            # Before an object's first apply, ours keeps no owners.
            owners = _owned(each) if each["metadata"]["name"] == "farewells" else []
            found[f"configmap {each['metadata']['name']}"] = [owners, plain(each)]
    pods = plane.read(f"/api/v1/{DEFAULT}/pods")["items"]
    found["pods"] = sorted([each["metadata"]["labels"]["fleet"], each["status"]["phase"]] for each in pods)
    found["events"] = sorted(
        plain([*(each["regarding"][of] for of in ("kind", "name")), each["type"], each["reason"], each["note"],
               each["reportingController"]])
        for each in plane.read(f"/apis/events.k8s.io/v1/{DEFAULT}/events")["items"]
        if each["regarding"]["kind"] in ("Fleet", "Lease")
    )  # fmt: skip
    return found


FLEETS = f"/apis/{GROUP}/v2/{DEFAULT}/fleets"
OLD, NEW = f"fleets.v1.{GROUP}", f"fleets.v2.{GROUP}"
NEXT = fleet("next", "v2", replicas=3, image={"name": "boat", "tag": "1"}, settings="harbour", env={"A": "a", "B": "b"})


def ready(name: str, count: int) -> str:
    return f"kubectl wait {NEW}/{name} --for=jsonpath={{.status.ready}}={count} --timeout=60s"


def versions_and_verdicts(ask: Both) -> None:
    ask("kubectl create configmap harbour --from-literal=depth=3")
    ask("kubectl create -f -", fleet("old", "v1", image="boat"))
    ask("kubectl apply --server-side -f -", NEXT)
    ask("kubectl create -f -", fleet("late", "v2", replicas=1, image={"name": "raft", "tag": "1"}, settings="absent"))
    ask("kubectl create -f -", fleet("large", "v1", size=11, image="boat"))
    ask("kubectl create -f -", fleet("large", "v2", replicas=11, image={"name": "boat"}))
    ask(ready("next", 3))
    ask.rest("fleets run, but one without its settings", world)
    ask(f"kubectl get {OLD} next -o jsonpath={{.spec}}{{.metadata.annotations}}")
    ask(f"kubectl get {OLD}")


def changes(ask: Both) -> None:
    ask("kubectl create configmap absent --from-literal=depth=1")
    ask("kubectl patch configmap harbour --type=merge -p '{\"data\": {\"depth\": \"4\"}}'")
    ask.rest("settings are found by the index", world)
    ask(f"kubectl scale {NEW} next --replicas=4")
    ask(f"kubectl scale {OLD} old --replicas=2")
    ask(f"kubectl patch {OLD} next --type=merge -p '{{\"spec\": {{\"image\": \"boat:2\"}}}}'")
    ask(f"kubectl patch {NEW} next --type=json -p '[{{\"op\": \"remove\", \"path\": \"/spec/env/B\"}}]'")
    ask(f"kubectl patch {NEW} next --type=json -p '[{{\"op\": \"remove\", \"path\": \"/spec/settings\"}}]'")
    ask(ready("next", 4))
    ask.rest("what is no longer applied is gone", world)


def conflicts(ask: Both) -> None:
    ask("kubectl scale deployment next --replicas=1")
    ask.rest("another's field is left to it", world)
    ask(f"kubectl annotate {NEW} next {GROUP}/force=yes")
    ask(ready("next", 4))
    ask.rest("and taken by force", world)
    ask("kubectl apply --server-side -f -", NEXT)
    ask("kubectl apply --server-side --force-conflicts -f -", NEXT)
    ask(f"kubectl annotate {OLD} old {GROUP}/keep=yes")
    ask(f"kubectl delete {OLD} old")


def farewells(ask: Both) -> None:
    ask(f"kubectl scale {OLD} old --replicas=1")
    ask.rest("the other process works", world)
    ask(f"kubectl annotate {OLD} old {GROUP}/keep-")
    ask(f"kubectl delete {NEW} old next late --timeout=60s")
    ask.rest("fleets say farewell, and what they own is collected", world)
    for plane in ask.planes:
        assert not plane.read(FLEETS)["items"] and not plane.read(f"/apis/apps/v1/{DEFAULT}/deployments")["items"]
        (noted,) = [part[1]["data"] for name, part in world(plane).items() if name == "configmap farewells"]
        assert noted == dict.fromkeys(("late", "next", "old"), "gone")


def test_it_makes_the_same_of_both(tmp_path: Path) -> None:
    original_program(OWNER)
    with both(tmp_path) as ask, operated(ask, tmp_path) as (theirs, mine):

        def each(act: Callable[[Operators], Any]) -> None:
            ask.each(lambda plane: act(theirs if plane is theirs.plane else mine))

        each(Operators.begin)
        versions_and_verdicts(ask)
        changes(ask)
        conflicts(ask)
        each(Operators.hand_over)
        farewells(ask)
        told = {event[3] for event in world(mine.plane)["events"]}
        assert told == {"Applied", "NoSettings", "Conflict", "Farewell", "LeaderElection"}
        assert not ask.differing, "\n".join(ask.differing)

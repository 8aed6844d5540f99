"""What a node may read and write of storage, devices and certificates: what its pods refer to.

Answers are upstream's, of a server with `--authorization-mode=Node,RBAC` and NodeRestriction.
"""

from __future__ import annotations

import base64
from typing import Any

import pytest
from api_core import PODS, Core, node, pod
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from minikube_py.api.errors import Json
from minikube_py.apiserver.rules import AUTHENTICATED, User
from minikube_py.apiserver.watch_cache import Entry

N1 = User("system:node:n1", ("system:nodes", AUTHENTICATED))
STRATEGIC = "application/strategic-merge-patch+json"
CORE, STORAGE, RESOURCE = "/api/v1", "/apis/storage.k8s.io/v1", "/apis/resource.k8s.io/v1"
CERTIFICATES = "/apis/certificates.k8s.io/v1"
CLAIMS, SLICES = f"{CORE}/namespaces/default/persistentvolumeclaims", f"{RESOURCE}/resourceslices"
STRANGER = "no relationship found between node 'n1' and this object"
SELECTED = "can only list/watch/deletecollection resourceslices with nodeName field selector"
ONLY_MEASURED = "is not allowed to update fields other than status.quantity and status.conditions"


def made(api: str, kind: str, name: str, **spec: Any) -> Json:
    return {"apiVersion": api, "kind": kind, "metadata": {"name": name}, "spec": spec}


def a_slice(name: str, node_name: str) -> Json:
    pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
    return made("resource.k8s.io/v1", "ResourceSlice", name, driver="d.example.com", pool=pool, nodeName=node_name)


async def furnish_storage(core: Core) -> None:
    sized = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    for name in ("n1", "n2"):
        await core.done("POST", f"{CORE}/nodes", node(name))
        for claim in (f"c-{name}", f"p-{name}-e"):
            await core.done("POST", CLAIMS, made("v1", "PersistentVolumeClaim", claim, **sized))
        held = {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "hostPath": {"path": "/x"}}
        held["claimRef"] = {"namespace": "default", "name": f"c-{name}"}
        await core.done("POST", f"{CORE}/persistentvolumes", made("v1", "PersistentVolume", f"v-{name}", **held))
        attached = {"attacher": "d.example.com", "nodeName": name, "source": {"persistentVolumeName": f"v-{name}"}}
        attachment = made("storage.k8s.io/v1", "VolumeAttachment", f"a-{name}", **attached)
        await core.done("POST", f"{STORAGE}/volumeattachments", attachment)
        await core.done("POST", f"{STORAGE}/csinodes", made("storage.k8s.io/v1", "CSINode", name, drivers=[]))
        request = {"name": "r", "exactly": {"deviceClassName": "x"}}
        devices = made("resource.k8s.io/v1", "ResourceClaim", f"r-{name}", devices={"requests": [request]})
        await core.done("POST", f"{RESOURCE}/namespaces/default/resourceclaims", devices)
        await core.done("POST", SLICES, a_slice(f"s-{name}", name))
        bound = pod(f"p-{name}", name)
        template = {"spec": sized}
        bound["spec"]["volumes"] = [
            {"name": "v", "persistentVolumeClaim": {"claimName": f"c-{name}"}},
            {"name": "e", "ephemeral": {"volumeClaimTemplate": template}},
        ]
        bound["spec"]["resourceClaims"] = [{"name": "r", "resourceClaimName": f"r-{name}"}]
        await core.done("POST", PODS, bound)


LOST: Json = {"status": {"phase": "Lost"}}
MEASURED = {"status": {"capacity": {"storage": "2Gi"}}}
STORED = (
    *(("GET", path + each, None, 200 if each.startswith(own) else 403, "" if each.startswith(own) else STRANGER)
      for path, own in ((f"{CLAIMS}/", ("c-n1", "p-n1-e")), (f"{CORE}/persistentvolumes/", ("v-n1",)),
                        (f"{STORAGE}/volumeattachments/", ("a-n1",)), (f"{SLICES}/", ("s-n1",)),
                        (f"{RESOURCE}/namespaces/default/resourceclaims/", ("r-n1",)))
      for each in (*own, *(name.replace("n1", "n2") for name in own), "none")),
    ("GET", CLAIMS, None, 403, "can only get individual resources of this type"),
    ("GET", f"{CLAIMS}/c-n1/status", None, 403, "can only get/update/patch this type"),
    ("PATCH", f"{CLAIMS}/c-n2/status", MEASURED, 403, STRANGER),
    ("PATCH", f"{CLAIMS}/c-n1/status", LOST, 403, ONLY_MEASURED),
    ("PATCH", f"{CLAIMS}/c-n1/status", {"metadata": {"labels": {"a": "b"}}}, 403, ONLY_MEASURED),
    ("PATCH", f"{CLAIMS}/c-n1/status", MEASURED, 200, ""),
    ("GET", f"{STORAGE}/csinodes/n1", None, 200, ""),
    ("GET", f"{STORAGE}/csinodes", None, 403, "can only get, create, update, patch, or delete a CSINode"),
    *((method, f"{STORAGE}/csinodes/n2", {} if method == "PATCH" else None, 403,
       "can only access CSINode with the same name as the requesting node") for method in ("GET", "PATCH", "DELETE")),
    ("POST", f"{STORAGE}/csinodes", made("storage.k8s.io/v1", "CSINode", "n3", drivers=[]), 403,
     "can only access CSINode with the same name as the requesting node"),
    ("DELETE", SLICES, None, 403, SELECTED),
    ("GET", f"{SLICES}?fieldSelector=spec.nodeName=n2", None, 403, SELECTED),
    ("DELETE", f"{SLICES}?fieldSelector=spec.nodeName=n2", None, 403, SELECTED),
    ("GET", f"{SLICES}?fieldSelector=spec.nodeName=n1", None, 200, ""),
    ("POST", SLICES, a_slice("new", "n2"), 403,
     "can only create ResourceSlice with the same NodeName as the requesting node"),
    ("POST", SLICES, a_slice("new", "n1"), 201, ""),
    ("DELETE", f"{SLICES}/s-n2", None, 403, STRANGER),
    ("DELETE", f"{SLICES}?fieldSelector=spec.nodeName=n1", None, 200, ""),
    ("PATCH", f"{CORE}/nodes/n1", {"spec": {"configSource": {"configMap": {"namespace": "a", "name": "b"}}}}, 403,
     "is not allowed to update configSource to a new non-nil configSource"),
)  # fmt: skip


async def test_a_node_touches_only_the_storage_and_devices_of_its_pods(core: Core) -> None:
    await furnish_storage(core)
    for method, path, body, code, reason in STORED:
        kind = STRATEGIC if method == "PATCH" else "application/json"
        status, answer = await core.ask(method, path, body, content_type=kind, user=N1)
        assert status == code, (method, path, answer)
        assert answer.get("message", "").endswith(reason) or not reason, (method, path, answer)
    # What its pods referred to is no longer its own once they are gone.
    await core.done("DELETE", f"{PODS}/p-n1", {"gracePeriodSeconds": 0})
    status, answer = await core.ask("PATCH", f"{CLAIMS}/c-n1/status", MEASURED, content_type=STRATEGIC, user=N1)
    assert (status, answer["message"].endswith(STRANGER)) == (403, True)


async def test_a_node_reads_the_secrets_that_volumes_of_its_pods_name_for_nodes(core: Core) -> None:
    await furnish_storage(core)
    secrets = f"{CORE}/namespaces/default/secrets"
    names = ("stage", "control", "target", "far")
    ref: dict[str, Json] = {name: {"namespace": "default", "name": name} for name in names}
    csi = {"driver": "d.example.com", "volumeHandle": "h"}
    iscsi = {"targetPortal": "10.0.0.1", "iqn": "iqn.2001-04.a.b:c", "lun": 0, "secretRef": ref["target"]}
    sources: dict[str, tuple[str, Json]] = {
        "x": ("n1", {"csi": {**csi, "nodeStageSecretRef": ref["stage"], "controllerPublishSecretRef": ref["control"]}}),
        "y": ("n1", {"iscsi": iscsi}),
        "z": ("n2", {"csi": {**csi, "nodePublishSecretRef": ref["far"]}}),
    }  # fmt: skip
    for name in ref:
        await core.done("POST", secrets, {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}})
    for name, (node_name, source) in sources.items():
        spec = {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, **source}
        spec["claimRef"] = {"namespace": "default", "name": f"c-{node_name}"}
        await core.done("POST", f"{CORE}/persistentvolumes", made("v1", "PersistentVolume", name, **spec))
    codes = {name: (await core.ask("GET", f"{secrets}/{name}", user=N1))[0] for name in ref}
    assert codes == {"stage": 200, "control": 403, "target": 200, "far": 403}


async def test_a_secret_of_many_volumes_reads_each_volume_and_pod_once(
    core: Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All volumes of a class name one secret. The pod of the last volume is on the node that asks."""
    count, ref = 40, {"namespace": "default", "name": "shared"}
    secret = f"{CORE}/namespaces/default/secrets"
    await core.done("POST", secret, {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "shared"}})
    for name in ("n1", "n2"):
        await core.done("POST", f"{CORE}/nodes", node(name))
    for number in range(count):
        spec: Json = {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}}
        spec["csi"] = {"driver": "d.example.com", "volumeHandle": "h", "nodePublishSecretRef": ref}
        spec["claimRef"] = {"namespace": "default", "name": f"p{number:02}-e"}
        await core.done("POST", f"{CORE}/persistentvolumes", made("v1", "PersistentVolume", f"v{number:02}", **spec))
        bound = pod(f"p{number:02}", "n1" if number == count - 1 else "n2")
        claim = {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}
        source: Json = {"ephemeral": {"volumeClaimTemplate": claim}}
        if number % 2:
            source = {"persistentVolumeClaim": {"claimName": f"p{number:02}-e"}}
        bound["spec"]["volumes"] = [{"name": "e", **source}]
        await core.done("POST", PODS, bound)
    decoded, decode = 0, Entry.decode

    def counted(entry: Entry) -> Any:
        nonlocal decoded
        decoded += 1
        return decode(entry)

    monkeypatch.setattr(Entry, "decode", counted)
    for code in (200, 403):
        decoded = 0
        assert (await core.ask("GET", f"{secret}/shared", user=N1))[0] == code
        assert count <= decoded <= 2 * count + 10, decoded
        if code == 200:
            await core.done("DELETE", f"{PODS}/p{count - 1}", {"gracePeriodSeconds": 0})


async def test_a_node_asks_for_no_certificate_of_another_node(core: Core) -> None:
    await core.done("POST", f"{CORE}/nodes", node("n1"))
    for name, code in (("n1", 201), ("n2", 403)):
        key = ec.generate_private_key(ec.SECP256R1())
        subject = [(NameOID.ORGANIZATION_NAME, "system:nodes"), (NameOID.COMMON_NAME, f"system:node:{name}")]
        builder = x509.CertificateSigningRequestBuilder()
        builder = builder.subject_name(x509.Name([x509.NameAttribute(*each) for each in subject]))
        pem = builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
        spec = {"request": base64.b64encode(pem).decode(), "usages": ["digital signature", "client auth"]}
        spec["signerName"] = "kubernetes.io/kube-apiserver-client-kubelet"
        asked = made("certificates.k8s.io/v1", "CertificateSigningRequest", f"for-{name}", **spec)
        status, answer = await core.ask("POST", f"{CERTIFICATES}/certificatesigningrequests", asked, user=N1)
        assert status == code and (code == 201 or "with CN=system:node:n1" in answer["message"]), answer

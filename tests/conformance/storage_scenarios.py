"""Claims, volumes and disruption budgets: wishes to a controller manager, and what it makes of them."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any

from patience import until

from minikube_py.api.errors import StatusError
from minikube_py.client.rest import EVENTS, NODES, PODS, REPLICATION_CONTROLLERS, ResourceRef, RestClient

NAMESPACE = "work"
VOLUMES = ResourceRef("", "v1", "persistentvolumes")
CLAIMS = ResourceRef("", "v1", "persistentvolumeclaims")
CLASSES = ResourceRef("storage.k8s.io", "v1", "storageclasses")
ATTRIBUTES_CLASSES = ResourceRef("storage.k8s.io", "v1", "volumeattributesclasses")
BUDGETS = ResourceRef("policy", "v1", "poddisruptionbudgets")
DRIVERS = ResourceRef("storage.k8s.io", "v1", "csidrivers")
ATTACHMENTS = ResourceRef("storage.k8s.io", "v1", "volumeattachments")
Settled = Callable[[RestClient, Callable[[], Awaitable[Any]]], Awaitable[Any]]
_UID = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}")


def volume(name: str, size: str, *modes: str, labels: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    full = {"capacity": {"storage": size}, "accessModes": list(modes or ("ReadWriteOnce",)), "hostPath": {"path": "/data"}}
    return {"metadata": {"name": name, "labels": labels or {}}, "spec": {**full, **spec}}


def claim(name: str, size: str, *modes: str, **spec: Any) -> dict[str, Any]:
    full = {"accessModes": list(modes or ("ReadWriteOnce",)), "resources": {"requests": {"storage": size}}, "storageClassName": ""}
    return {"metadata": {"name": name}, "spec": {**full, **spec}}


OFFERED = (
    volume("small", "1Gi"),
    volume("medium", "4Gi"),
    volume("shared", "2Gi", "ReadWriteOnce", "ReadWriteMany"),
    volume("gold", "3Gi", labels={"tier": "gold"}),
    volume("reserved", "6Gi", claimRef={"name": "reserver", "namespace": NAMESPACE}),
    volume("classed", "1Gi", storageClassName="fast"),
    volume("delayed", "1Gi", storageClassName="later"),
    volume("blocks", "20Gi", volumeMode="Block"),
    volume("deletes", "30Gi", persistentVolumeReclaimPolicy="Delete"),
    volume("driven", "40Gi", persistentVolumeReclaimPolicy="Delete", hostPath=None, csi={"driver": "a.b", "volumeHandle": "h"}),
    volume("loses", "50Gi"),
)
WANTED = (
    claim("c-small", "1Gi"),
    claim("c-shared", "1Gi", "ReadWriteMany"),
    claim("c-gold", "1Gi", selector={"matchLabels": {"tier": "gold"}}),
    claim("reserver", "1Gi"),
    claim("c-classed", "1Gi", storageClassName="fast"),
    claim("c-later", "1Gi", storageClassName="later"),
    claim("c-outside", "1Gi", storageClassName="outside"),
    claim("c-outside-later", "1Gi", storageClassName="outside-later"),
    claim("c-unknown", "1Gi", storageClassName="unknown"),
    claim("c-medium", "3500Mi"),
    claim("c-blocks", "15Gi", volumeMode="Block"),
    claim("c-too-large", "100Gi"),
    claim("c-deletes", "25Gi", volumeName="deletes"),
    claim("c-driven", "35Gi", volumeName="driven"),
    claim("c-loses", "45Gi", volumeName="loses"),
    claim("c-mismatch", "60Gi", volumeName="delayed"),
    claim("c-taken", "1Gi", volumeName="small"),
    claim("c-missing", "1Gi", volumeName="nowhere"),
)
_WAITING = (
    "c-later", "c-outside", "c-outside-later", "c-unknown", "c-too-large", "c-mismatch", "c-taken", "c-missing",
)  # fmt: skip


async def _standing(client: RestClient) -> Any:
    def shown(obj: dict[str, Any], *parts: str) -> dict[str, Any]:
        spec, metadata = obj["spec"], obj["metadata"]
        found: dict[str, Any] = {part: spec[part] for part in parts if part in spec}
        if "claimRef" in found:
            found["claimRef"] = {key: value for key, value in spec["claimRef"].items() if key in ("name", "namespace", "kind")}
        status = {key: value for key, value in obj["status"].items() if key != "lastPhaseTransitionTime"}
        annotations = metadata.get("annotations") or {}
        going = "deletionTimestamp" in metadata
        return {**found, "status": status, "annotations": annotations, "finalizers": metadata.get("finalizers"), "going": going}

    return {
        "volumes": {v["metadata"]["name"]: shown(v, "claimRef") for v in await client.list(VOLUMES)},
        "claims": {c["metadata"]["name"]: shown(c, "volumeName", "storageClassName") for c in await client.list(CLAIMS, NAMESPACE)},
    }


async def _told(client: RestClient, *namespaces: str) -> list[str]:
    found = set()
    for namespace in namespaces:
        for event in await client.list(EVENTS, namespace):
            about, source = event["involvedObject"], event["source"]
            told = (about["kind"], about["name"], event["type"], event["reason"], event["message"], str(source))
            found.add(_UID.sub("UID", " | ".join(told)))
    return sorted(line for line in found if line.startswith(("PersistentVolume", "PodDisruptionBudget")))


async def _gone(client: RestClient, resource: ResourceRef, name: str, namespace: str = "") -> None:
    async def is_gone() -> bool:
        try:
            await client.get(resource, name, namespace)
        except StatusError as error:
            return error.code == 404
        return False

    await until(is_gone, f"{name} is gone")


def binding(settled: Settled) -> Callable[[RestClient], Awaitable[Any]]:
    async def scenario(client: RestClient) -> Any:
        for name, mode, provisioner in (
            ("later", "WaitForFirstConsumer", "kubernetes.io/no-provisioner"),
            ("outside", "Immediate", "example.com/outside"),
            ("outside-later", "WaitForFirstConsumer", "example.com/outside"),
        ):
            await client.create(CLASSES, {"metadata": {"name": name}, "provisioner": provisioner, "volumeBindingMode": mode})
        for made in OFFERED:
            await client.create(VOLUMES, {**made, "spec": {k: v for k, v in made["spec"].items() if v is not None}})

        async def available() -> bool:
            return all(v["status"]["phase"] == "Available" for v in await client.list(VOLUMES))

        await until(available, "all are available")
        for wanted in WANTED:
            await client.create(CLAIMS, wanted, NAMESPACE)

            async def looked_at(name: str = wanted["metadata"]["name"]) -> bool:
                found = await client.get(CLAIMS, name, NAMESPACE)
                return found["status"]["phase"] != "Pending" or name in _WAITING

            await until(looked_at, "it is bound")
        answers: list[Any] = [await settled(client, lambda: _standing(client))]
        for name in ("c-small", "c-deletes", "c-driven"):
            await client.delete(CLAIMS, name, NAMESPACE)
            await _gone(client, CLAIMS, name, NAMESPACE)
        await client.delete(VOLUMES, "medium")
        answers.append(await settled(client, lambda: _standing(client)))
        await client.delete(CLAIMS, "c-medium", NAMESPACE)
        await _gone(client, VOLUMES, "medium")
        await client.delete(VOLUMES, "loses")
        await client.patch(VOLUMES, "loses", {"metadata": {"finalizers": None}})
        answers.append(await settled(client, lambda: _standing(client)))
        answers.append(await settled(client, lambda: _told(client, NAMESPACE, "default")))
        for found in await client.list(CLAIMS, NAMESPACE):
            await client.delete(CLAIMS, found["metadata"]["name"], NAMESPACE)
            await _gone(client, CLAIMS, found["metadata"]["name"], NAMESPACE)
        for found in await client.list(VOLUMES):
            await client.delete(VOLUMES, found["metadata"]["name"])
            await _gone(client, VOLUMES, found["metadata"]["name"])
        return answers

    return scenario


def used_claims(settled: Settled) -> Callable[[RestClient], Awaitable[Any]]:
    """Claims that pods use, and those made for them; and a class that a claim uses."""

    async def scenario(client: RestClient) -> Any:
        await client.create(ATTRIBUTES_CLASSES, {"metadata": {"name": "fast"}, "driverName": "a.b", "parameters": {"a": "b"}})
        await client.create(CLAIMS, claim("used", "1Gi", volumeAttributesClassName="fast"), NAMESPACE)
        template = {"metadata": {"labels": {"a": "b"}}, "spec": claim("x", "1Gi")["spec"]}
        volumes = [
            {"name": "v", "persistentVolumeClaim": {"claimName": "used"}},
            {"name": "w", "ephemeral": {"volumeClaimTemplate": template}},
        ]
        spec = {"containers": [{"name": "c", "image": "x"}], "nodeName": "n", "volumes": volumes, "terminationGracePeriodSeconds": 0}
        await client.create(PODS, {"metadata": {"name": "user"}, "spec": spec}, NAMESPACE)

        async def made() -> bool:
            return any(c["metadata"]["name"] == "user-w" for c in await client.list(CLAIMS, NAMESPACE))

        await until(made, "the ephemeral claim is there")

        async def ask() -> Any:
            found = await _standing(client)
            owners = [c["metadata"].get("ownerReferences") for c in await client.list(CLAIMS, NAMESPACE)]
            for references in owners:
                for reference in references or ():
                    reference.pop("uid")
            kept = await client.get(ATTRIBUTES_CLASSES, "fast") if await client.list(ATTRIBUTES_CLASSES) else None
            return {**found, "owners": owners, "kept": kept and kept["metadata"]["finalizers"]}

        await client.delete(ATTRIBUTES_CLASSES, "fast")
        await client.delete(CLAIMS, "used", NAMESPACE)
        answers: list[Any] = [await settled(client, ask)]
        await client.delete(PODS, "user", NAMESPACE, grace_period_s=0)
        await _gone(client, CLAIMS, "used", NAMESPACE)
        await _gone(client, CLAIMS, "user-w", NAMESPACE)
        await _gone(client, ATTRIBUTES_CLASSES, "fast")
        answers.append(await settled(client, ask))
        return answers

    return scenario


def _driven(name: str, mode: str = "ReadWriteOnce", **source: Any) -> dict[str, Any]:
    source = source or {"csi": {"driver": "a.b", "volumeHandle": name}}
    reference = {"claimRef": {"name": name, "namespace": NAMESPACE}}
    full = volume(name, "1Gi", mode, **reference, **source)
    full["spec"].pop("hostPath")
    return full


ATTACHED = {
    "once": _driven("once"),
    "many": _driven("many", "ReadWriteMany"),
    "none": _driven("none", csi={"driver": "no.attach", "volumeHandle": "none"}),
    "fibre": _driven("fibre", fc={"targetWWNs": ["5000"], "lun": 1}),
    "portal": _driven("portal", iscsi={"targetPortal": "10.0.0.1:3260", "iqn": "iqn.2001-04.com.example:x", "lun": 3}),
    "disk": _driven("disk", gcePersistentDisk={"pdName": "d"}),
}


async def _attached(client: RestClient) -> Any:
    nodes = {n["metadata"]["name"]: n["status"].get("volumesAttached") or [] for n in await client.list(NODES)}
    events = await client.list(EVENTS, NAMESPACE)
    told = {
        (e["involvedObject"]["name"], e["type"], e["reason"], e["message"], str(e["source"]))
        for e in events
        if "AttachVolume" in e["reason"]
    }
    return {
        "attachments": {a["metadata"]["name"]: a["spec"] for a in await client.list(ATTACHMENTS)},
        "nodes": {name: sorted(str(each) for each in listed) for name, listed in nodes.items() if name.startswith("attach")},
        "told": sorted(told),
    }


async def _set_attachment(client: RestClient, volume_name: str, node: str, **status: Any) -> None:
    for found in await client.list(ATTACHMENTS):
        spec = found["spec"]
        if (spec["source"]["persistentVolumeName"], spec["nodeName"]) == (volume_name, node):
            patch = {"status": {"attached": False, **status}}
            await client.patch(ATTACHMENTS, found["metadata"]["name"], patch, subresource="status")


async def _make_attachable(client: RestClient) -> None:
    await client.create(DRIVERS, {"metadata": {"name": "no.attach"}, "spec": {"attachRequired": False}})
    for name in ("attach-0", "attach-1"):
        annotations = {"volumes.kubernetes.io/controller-managed-attach-detach": "true"}
        ready = {"conditions": [{"type": "Ready", "status": "True"}]}
        await client.create(NODES, {"metadata": {"name": name, "annotations": annotations}, "status": ready})
    for name, made in ATTACHED.items():
        await client.create(VOLUMES, made)
        await client.create(CLAIMS, claim(name, "1Gi", *made["spec"]["accessModes"], volumeName=name), NAMESPACE)

    async def bound() -> bool:
        return all(c["status"]["phase"] == "Bound" for c in await client.list(CLAIMS, NAMESPACE))

    await until(bound, "the claims are bound")


async def _use(client: RestClient, pod: str, node: str, *claims: str) -> None:
    volumes = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in claims]
    spec = {"containers": [{"name": "c", "image": "x"}], "nodeName": node, "volumes": volumes}
    await client.create(PODS, {"metadata": {"name": pod}, "spec": spec}, NAMESPACE)


def attaching(settled: Settled) -> Callable[[RestClient], Awaitable[Any]]:
    """Pods on nodes whose volumes a controller attaches; the script is the external attacher."""

    async def scenario(client: RestClient) -> Any:
        async def rest() -> Any:
            return await settled(client, lambda: _attached(client))

        await _make_attachable(client)
        await _use(client, "first", "attach-0", *ATTACHED)
        answers = [await rest()]
        for name in ("once", "many", "disk"):
            await _set_attachment(client, name, "attach-0", attached=True)
        answers.append(await rest())
        await _use(client, "second", "attach-1", "once", "many")
        answers.append(await rest())
        await _set_attachment(client, "many", "attach-1", attached=True)
        in_use = {"status": {"volumesInUse": ["kubernetes.io/csi/a.b^once"]}}
        await client.patch(NODES, "attach-0", in_use, subresource="status")
        await client.delete(PODS, "first", NAMESPACE, grace_period_s=0)
        answers.append(await rest())
        await client.patch(NODES, "attach-0", {"status": {"volumesInUse": None}}, subresource="status")
        answers.append(await rest())
        await _set_attachment(client, "once", "attach-1", attachError={"message": "no room"})
        answers.append(await rest())
        await _set_attachment(client, "once", "attach-1", attached=True, attachError=None)
        answers.append(await rest())
        await client.delete(PODS, "second", NAMESPACE, grace_period_s=0)
        answers.append(await rest())
        for name in ATTACHED:
            await client.delete(CLAIMS, name, NAMESPACE)
            await client.delete(VOLUMES, name)
            await _gone(client, VOLUMES, name)
        for name in ("attach-0", "attach-1"):
            await client.delete(NODES, name)
        await client.delete(DRIVERS, "no.attach")
        return answers

    return scenario


def expanding(settled: Settled) -> Callable[[RestClient], Awaitable[Any]]:
    async def scenario(client: RestClient) -> Any:
        grows = {"metadata": {"name": "grows"}, "provisioner": "a.b", "allowVolumeExpansion": True}
        await client.create(CLASSES, grows)
        for name in ("once", "disk"):
            made = ATTACHED[name]
            await client.create(VOLUMES, {**made, "spec": {**made["spec"], "storageClassName": "grows"}})
            wanted = claim(name, "1Gi", volumeName=name, storageClassName="grows")
            await client.create(CLAIMS, wanted, NAMESPACE)

        async def bound() -> bool:
            return all(c["status"]["phase"] == "Bound" for c in await client.list(CLAIMS, NAMESPACE))

        await until(bound, "the claims are bound")
        for name in ("once", "disk"):
            more = {"spec": {"resources": {"requests": {"storage": "2Gi"}}}}
            await client.patch(CLAIMS, name, more, NAMESPACE)

        async def ask() -> Any:
            return {"told": await _told(client, NAMESPACE), **(await _standing(client))}

        answers = [await settled(client, ask)]
        for name in ("once", "disk"):
            await client.delete(CLAIMS, name, NAMESPACE)
            await client.delete(VOLUMES, name)
            await _gone(client, VOLUMES, name)
        await client.delete(CLASSES, "grows")
        return answers

    return scenario


def budgets(settled: Settled) -> Callable[[RestClient], Awaitable[Any]]:
    """Each budget has pods of its own: upstream looks at one budget of a pod alone when the pod changes."""
    wanted: dict[str, dict[str, Any]] = {
        "least": {"minAvailable": 2}, "least-share": {"minAvailable": "51%"}, "most": {"maxUnavailable": 1}, "most-share": {"maxUnavailable": "30%"},
        "nothing": {}, "zero": {"maxUnavailable": 0}, "whole": {"minAvailable": "100%"}, "too-many": {"minAvailable": 9},
    }  # fmt: skip

    async def scenario(client: RestClient) -> Any:
        bare = {"containers": [{"name": "c", "image": "x"}], "nodeName": "n", "terminationGracePeriodSeconds": 0}
        for name in wanted:
            template = {"metadata": {"labels": {"app": name}}, "spec": bare}
            spec = {"replicas": 3, "selector": {"app": name}, "template": template}
            await client.create(REPLICATION_CONTROLLERS, {"metadata": {"name": name}, "spec": spec}, NAMESPACE)
        await client.create(PODS, {"metadata": {"name": "lone", "labels": {"app": "lone"}}, "spec": bare}, NAMESPACE)

        async def there() -> bool:
            return len(await client.list(PODS, NAMESPACE)) == 3 * len(wanted) + 1

        await until(there, "the pods are there")
        for name, spec in {**wanted, "none": {"minAvailable": 1}, "lone": {"maxUnavailable": 1}}.items():
            body = {"metadata": {"name": name}, "spec": {"selector": {"matchLabels": {"app": name}}, **spec}}
            await client.create(BUDGETS, body, NAMESPACE)

        async def ask() -> Any:
            return {b["metadata"]["name"]: b["status"] for b in await client.list(BUDGETS, NAMESPACE)}

        answers: list[Any] = [await settled(client, ask)]
        condition = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        status = {"phase": "Running", "conditions": [condition]}
        for pod in await client.list(PODS, NAMESPACE):
            await client.patch(PODS, pod["metadata"]["name"], {"status": status}, NAMESPACE, subresource="status")
        answers.append(await settled(client, ask))
        for name in ("most", "least", "least-share"):
            await client.scale(REPLICATION_CONTROLLERS, name, NAMESPACE, 1)
        answers.append(await settled(client, ask))
        await client.patch(BUDGETS, "zero", {"spec": {"maxUnavailable": 2}}, NAMESPACE)
        answers.append(await settled(client, ask))
        # How often it was said depends on how changes fell into syncs; what was said first does not.
        told = [line for line in await _told(client, NAMESPACE) if "NoPods" in line or "Unmanaged" in line]
        answers.append([line for line in told if "none" in line or "lone" in line])
        for name in wanted:
            await client.delete(REPLICATION_CONTROLLERS, name, NAMESPACE, propagation="Background")
        answers.append(await settled(client, ask))
        return answers

    return scenario

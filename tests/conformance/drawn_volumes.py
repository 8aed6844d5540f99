"""Volumes, claims, classes and a pod that uses them, drawn from a seed; and the nodes and pods that they meet."""

from __future__ import annotations

import random
from typing import Any

from minikube_py.scheduler.volumes.views import CAPACITIES, CLAIMS, CLASSES, VOLUMES

ZONE, DISK = "topology.kubernetes.io/zone", "example.com/disk"
GIB = ("512Mi", "1Gi", "1073741824", "1.5Gi", "2Gi", "3Gi", "5G")
SELECTED, COMPLETED = "volume.kubernetes.io/selected-node", "pv.kubernetes.io/bind-completed"


def node(name: str, **labels: str) -> dict[str, Any]:
    amounts = {"cpu": "64", "memory": "256Gi", "pods": "500"}
    metadata = {"name": name, "labels": {"kubernetes.io/hostname": name, **labels}}
    return {
        "kind": "Node",
        "apiVersion": "v1",
        "metadata": metadata,
        "status": {"allocatable": amounts, "capacity": amounts},
    }


NODES = [
    node("n0", **{ZONE: "a", DISK: "ssd"}),
    node("n1", **{ZONE: "a"}),
    node("n2", **{ZONE: "b", DISK: "ssd"}),
    node("n3", **{ZONE: "b", "failure-domain.beta.kubernetes.io/zone": "c"}),
    node("n4", **{DISK: "hdd"}),
    node("n5"),
]
LIMITS = {"n0": 1, "n1": 2, "n2": 0, "n4": None}
"""By node, how many volumes of the driver `limited` it attaches."""


def matching(*expressions: tuple[str, str, list[str]], **fields: Any) -> dict[str, Any]:
    found = [{"key": k, "operator": o, **({"values": v} if v else {})} for k, o, v in expressions]
    return {"required": {"nodeSelectorTerms": [{"matchExpressions": found, **fields}]}}


AFFINITIES: list[dict[str, Any] | None] = [
    None,
    None,
    matching((ZONE, "In", ["a"])),
    matching((ZONE, "In", ["b", "c"]), (DISK, "Exists", [])),
    matching((ZONE, "NotIn", ["a"])),
    matching((DISK, "DoesNotExist", [])),
    matching(("kubernetes.io/hostname", "In", ["n1"])),
    matching(("kubernetes.io/hostname", "In", ["nobody"])),
    matching((ZONE, "Exists", []), matchFields=[{"key": "metadata.name", "operator": "In", "values": ["n2"]}]),
]
MODES = (["ReadWriteOnce"], ["ReadWriteOnce", "ReadOnlyMany"], ["ReadWriteMany"], ["ReadWriteOncePod"])


class Draw:
    """One case: classes, volumes, claims and a pod, by names that end in the twin's own."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.made: list[tuple[Any, dict[str, Any]]] = []
        self.volumes: list[dict[str, Any]] = []

    def case(self, suffix: str, scheduler: str) -> tuple[list[tuple[Any, dict[str, Any]]], dict[str, Any]]:
        rng = self.rng
        self.suffix, made = suffix, self.made
        self.classes = [
            "",
            "missing",
            *(f"{kind}{suffix}" for kind in ("static", "dynamic", "counted", "limited", "at-once")),
        ]
        for kind in ("static", "dynamic", "counted", "limited", "at-once"):
            made.append((CLASSES.resource, self._class(kind)))
        for i in range(rng.randint(0, 6)):
            made.append((VOLUMES.resource, self._volume(f"v{i}{suffix}")))
        volumes: list[dict[str, Any]] = []
        for i in range(rng.choice((1, 1, 1, 2, 3))):
            name = f"c{i}{suffix}"
            claim = self._claim(name)
            if rng.random() < 0.2:
                self._bind(claim, f"b{i}{suffix}")
            if rng.random() < 0.97:
                made.append((CLAIMS.resource, claim))
            volumes.append({"name": f"w{i}", "persistentVolumeClaim": {"claimName": name}})
        if rng.random() < 0.3:
            volumes.append({"name": "inline", **rng.choice(INLINE)})
        if rng.random() < 0.3:
            for i in range(rng.randint(1, 2)):
                made.append((CAPACITIES.resource, self._capacity(f"k{i}{suffix}")))
        container = {"name": "c", "image": "x"}
        spec: dict[str, Any] = {
            "schedulerName": scheduler,
            "containers": [container],
            "volumes": volumes,
            "terminationGracePeriodSeconds": 0,
        }
        if rng.random() < 0.7:
            spec["nodeSelector"] = {"kubernetes.io/hostname": rng.choice((*NODES, *NODES[3:]))["metadata"]["name"]}
        return made, {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": f"p{suffix}"}, "spec": spec}

    def _class(self, kind: str) -> dict[str, Any]:
        provisioner = {
            "static": "kubernetes.io/no-provisioner",
            "counted": "counted.example.com",
            "limited": "limited.example.com",
        }
        found: dict[str, Any] = {
            "metadata": {"name": f"{kind}{self.suffix}"},
            "provisioner": provisioner.get(kind, "example.com/none"),
        }
        found["volumeBindingMode"] = "Immediate" if kind == "at-once" else "WaitForFirstConsumer"
        if kind != "static" and self.rng.random() < 0.3:
            values = self.rng.choice((["a"], ["b"], ["a", "b"], ["nowhere"]))
            found["allowedTopologies"] = [{"matchLabelExpressions": [{"key": ZONE, "values": values}]}]
        return found

    def _volume(self, name: str) -> dict[str, Any]:
        rng = self.rng
        spec: dict[str, Any] = {
            "capacity": {"storage": rng.choice(GIB)},
            "accessModes": rng.choice(MODES),
            "storageClassName": rng.choice((self.classes[2], self.classes[2], self.classes[3], "")),
        }
        if rng.random() < 0.6:
            spec["csi"] = {"driver": "limited.example.com", "volumeHandle": name}
        else:
            spec["hostPath"] = {"path": "/data"}
        if (affinity := rng.choice((*AFFINITIES, *[None] * 9))) is not None:
            spec["nodeAffinity"] = affinity
        if rng.random() < 0.1:
            spec["volumeMode"] = "Block"
        if rng.random() < 0.15:
            spec["claimRef"] = {"namespace": "default", "name": f"c0{self.suffix}"}
        labels = rng.choice(
            (
                {},
                {"tier": "gold"},
                {ZONE: "b"},
                {ZONE: "a__b"},
                {"failure-domain.beta.kubernetes.io/zone": "c"},
                {ZONE: ""},
            )
        )
        return {
            "metadata": {"name": name, "labels": labels},
            "spec": spec,
            "status": {"phase": "Available" if rng.random() < 0.9 else "Pending"},
        }

    def _claim(self, name: str) -> dict[str, Any]:
        rng = self.rng
        spec: dict[str, Any] = {
            "accessModes": rng.choice(MODES[:2]) if rng.random() < 0.9 else MODES[3],
            "resources": {"requests": {"storage": rng.choice(GIB)}},
            "storageClassName": rng.choices(self.classes, (1, 1, 40, 30, 20, 20, 1))[0],
        }
        if rng.random() < 0.15:
            spec["selector"] = {"matchLabels": {"tier": "gold"}}
        annotations = {}
        if rng.random() < 0.1:
            # Of a node that is there, nothing would show that the pod was placed.
            annotations[SELECTED] = "nobody"
        return {"metadata": {"name": name, "namespace": "default", "annotations": annotations}, "spec": spec}

    def _bind(self, claim: dict[str, Any], volume: str) -> None:
        claim["spec"]["volumeName"] = volume
        if self.rng.random() < 0.9:
            claim["metadata"]["annotations"][COMPLETED] = "yes"
        if self.rng.random() < 0.9:
            self.made.append((VOLUMES.resource, self._volume(volume)))

    def _capacity(self, name: str) -> dict[str, Any]:
        rng = self.rng
        found: dict[str, Any] = {
            "metadata": {"name": name, "namespace": "default"},
            "storageClassName": f"counted{self.suffix}",
        }
        found["capacity"] = rng.choice(GIB)
        if rng.random() < 0.3:
            found["maximumVolumeSize"] = rng.choice(GIB)
        topology = rng.choice(
            (None, {}, {"matchLabels": {ZONE: "a"}}, {"matchExpressions": [{"key": DISK, "operator": "Exists"}]})
        )
        if topology is not None:
            found["nodeTopology"] = topology
        return found


INLINE = [
    {"gcePersistentDisk": {"pdName": "taken"}},
    {"gcePersistentDisk": {"pdName": "taken", "readOnly": True}},
    {"awsElasticBlockStore": {"volumeID": "vol-1"}},
    {"iscsi": {"targetPortal": "1.2.3.4", "iqn": "iqn.2001-04.com.example:a", "lun": 0}},
    {"rbd": {"monitors": ["m1", "m2"], "image": "i"}},
    {"cinder": {"volumeID": "c"}},
    {"emptyDir": {}},
]
RUNNING = [
    ("n0", [{"gcePersistentDisk": {"pdName": "taken", "readOnly": True}}]),
    ("n1", [{"gcePersistentDisk": {"pdName": "taken"}}, {"awsElasticBlockStore": {"volumeID": "vol-1"}}]),
    ("n2", [{"iscsi": {"targetPortal": "1.2.3.4", "iqn": "iqn.2001-04.com.example:a", "lun": 1}}]),
    ("n4", [{"rbd": {"monitors": ["m2", "m3"], "image": "i"}}]),
]


def node_drivers() -> list[dict[str, Any]]:
    """What is known of the drivers on each node."""
    found = []
    for name, count in LIMITS.items():
        driver = {
            "name": "limited.example.com",
            "nodeID": name,
            "topologyKeys": [],
            **({} if count is None else {"allocatable": {"count": count}}),
        }
        others = [{"name": "pd.csi.storage.gke.io", "nodeID": name, "topologyKeys": [], "allocatable": {"count": 1}}]
        migrated = {"storage.alpha.kubernetes.io/migrated-plugins": "kubernetes.io/gce-pd"}
        found.append({"metadata": {"name": name, "annotations": migrated}, "spec": {"drivers": [driver, *others]}})
    return found


def running() -> list[dict[str, Any]]:
    found = []
    for i, (where, volumes) in enumerate(RUNNING):
        named = [{"name": f"v{j}", **volume} for j, volume in enumerate(volumes)]
        spec = {"nodeName": where, "containers": [{"name": "c", "image": "x"}], "volumes": named}
        found.append({"metadata": {"name": f"running-{i}"}, "spec": spec})
    return found


COUNTED = {"metadata": {"name": "counted.example.com"}, "spec": {"storageCapacity": True}}
